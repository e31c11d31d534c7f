"""The default report: every finding with its source line, where the value came from, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvlint.findings import Applicability
from kvlint.report._text import SEVERITY_COLORS, heading, paint, place, summary
from kvlint.report._view import View

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic, PlacedRelated, SourceLine

ORIGIN_WIDTH = 100
AVAILABILITY = {
    Applicability.SAFE: "fix (--fix)",
    Applicability.UNSAFE: "fix (--fix --unsafe-fixes: look at the result)",
    Applicability.SHOWN: "by hand",
}


def render(view: View) -> str:
    """Findings one after the other, an empty line after each, and the summary."""
    return "".join(f"{block(item, view)}\n" for item in view.found) + summary(view)


def block(item: Diagnostic, view: View) -> str:
    """One finding."""
    lines = [f"{place(item, view.color)}: {heading(item, view)}"]
    width = max((len(str(line.number)) for line in item.source), default=1)
    bar = paint("|", "blue", view.color)
    if item.source:
        lines.append(f"{'':{width}} {bar}")
    for line in item.source:
        number = paint(f"{line.number:>{width}}", "blue", view.color)
        lines.append(f"{number} {bar} {visible(line.text)}".rstrip())
        if line.number == item.line:
            caret = paint(carets(item, line), SEVERITY_COLORS[item.severity], view.color)
            lines.append(f"{'':{width}} {bar} {underlined_margin(item, line)}{caret}")
    equals = paint("=", "blue", view.color)
    remarks = []
    if item.origin is not None:
        cell = f"cell {item.origin.cell}, " if item.origin.cell not in (None, item.cell) else ""
        text = item.origin.source.text.strip()
        text = text if len(text) <= ORIGIN_WIDTH else text[:ORIGIN_WIDTH] + "..."
        cell = f"{item.origin.path}, " if item.origin.path else cell
        remarks.append(f"{item.origin.text} ({cell}line {item.origin.line}): `{visible(text)}`")
    remarks += [f"also {other.code} {other_place(other)}: {other.message}" for other in item.related]
    if item.help:
        remarks.append(f"help: {item.help}")
    if item.fix is not None:
        remarks.append(f"{AVAILABILITY[item.fix.applicability]}: {item.fix.title}")
    if item.source and remarks:
        lines.append(f"{'':{width}} {bar}")
    lines += [f"{'':{width}} {equals} {remark}" for remark in remarks]
    return "\n".join(lines) + "\n"


def other_place(other: PlacedRelated) -> str:
    """``path:line:column`` of another place of the same defect."""
    cell = f"cell {other.cell}:" if other.cell is not None else ""
    return f"{other.path}:{cell}{other.line}:{other.column}"


def visible(text: str) -> str:
    """*text* without control characters that would move the cursor or colour the terminal."""
    return "".join(char if char >= " " or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def underlined_margin(item: Diagnostic, line: SourceLine) -> str:
    """Blanks as wide as the text in front of the finding; tabs stay tabs."""
    before = line.text[: max(item.column - 1 - line.skipped, 0)]
    return "".join("\t" if char == "\t" else " " * char_width(char) for char in before)


def carets(item: Diagnostic, line: SourceLine) -> str:
    """Carets under the finding, to the end of the line where it goes on below it."""
    start = max(item.column - 1 - line.skipped, 0)
    end = item.end_column - 1 - line.skipped if item.end_line == item.line else len(line.text.rstrip())
    return "^" * max(sum(char_width(char) for char in line.text[start:end]), 1)


def char_width(char: str) -> int:
    """Columns that a terminal gives to a character."""
    if char < "\u0300":
        return 1
    import unicodedata

    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
