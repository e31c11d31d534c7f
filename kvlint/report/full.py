"""The default report: every finding with its source line, where the value came from, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvlint.findings import Applicability, Category
from kvlint.report._text import SEVERITY_COLORS, file_name, heading, is_plain, paint, place, plain, summary
from kvlint.report._view import View

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic, PlacedRelated, SourceLine

ORIGIN_WIDTH = 100
AVAILABILITY = {
    Applicability.SAFE: "fix (--fix)",
    Applicability.UNSAFE: "fix (--fix --unsafe-fixes: look at the result)",
    Applicability.SHOWN: "by hand",
}


FOLD_AFTER = 20
"""Of one rule in one file so many findings are shown at length; the others are one line together."""
FOLDED_PLACES = 10
"""The first so many places of a fold are named."""


def render(view: View) -> str:
    """Findings one after the other, an empty line after each, and the summary. What runs and is wrong comes first."""
    return "".join(f"{part}\n" for part in parts(in_order(view.found), view)) + summary(view)


def in_order(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Silent findings before the others, each by place: nothing else tells a person about these."""
    return sorted(found, key=lambda item: item.category is not Category.SILENT)


def parts(found: Iterable[Diagnostic], view: View) -> Iterator[str]:
    """The block of each finding; what exceeds `FOLD_AFTER` is folded into one, after the last that is shown of its rule and file."""
    groups: dict[tuple[str, str], list[Diagnostic]] = {}
    kept: list[Diagnostic] = []
    for item in found:
        group = groups.setdefault((item.path, item.code), [])
        group.append(item)
        if len(group) <= FOLD_AFTER:
            kept.append(item)
    last = {id(group[FOLD_AFTER - 1]): group for group in groups.values() if len(group) > FOLD_AFTER}
    for item in kept:
        yield block(item, view)
        if id(item) in last:
            yield fold(last[id(item)][FOLD_AFTER:], view)


def fold(items: Sequence[Diagnostic], view: View) -> str:
    """One line for findings of one rule in one file that are not shown at length."""
    first = items[0]
    places = [f"{f'cell {item.cell}:' if item.cell is not None else ''}{item.line}" for item in items[:FOLDED_PLACES]]
    more = ", ..." if len(items) > FOLDED_PLACES else ""
    where = f"{'line' if len(items) == 1 else 'lines'} {', '.join(places)}{more}"
    code = paint(first.code, SEVERITY_COLORS[first.severity], view.color)
    path = paint(first.path, "bold", view.color)
    return f"{path}: {len(items):,} more {code} {first.name} ({where}); --output-format concise lists them\n"


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
        cell = f"{file_name(item.origin.path)}, " if item.origin.path else cell
        remarks.append(f"{plain(item.origin.text)} ({cell}line {item.origin.line}): `{visible(text)}`")
    remarks += [f"also {other.code} {other_place(other)}: {plain(other.message)}" for other in item.related]
    if item.help:
        remarks.append(f"help: {plain(item.help)}")
    if item.fix is not None:
        remarks.append(f"{AVAILABILITY[item.fix.applicability]}: {plain(item.fix.title)}")
    if item.source and remarks:
        lines.append(f"{'':{width}} {bar}")
    lines += [f"{'':{width}} {equals} {remark}" for remark in remarks]
    return "\n".join(lines) + "\n"


def other_place(other: PlacedRelated) -> str:
    """``path:line:column`` of another place of the same defect."""
    cell = f"cell {other.cell}:" if other.cell is not None else ""
    return f"{file_name(other.path)}:{cell}{other.line}:{other.column}"


def visible(text: str) -> str:
    """*text* without control characters that would move the cursor or colour the terminal."""
    return "".join(char if is_plain(char) else "\N{REPLACEMENT CHARACTER}" for char in text)


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
