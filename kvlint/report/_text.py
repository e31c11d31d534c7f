"""Pieces of the formats that people read: places, colours, the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvlint.findings import Applicability, Category
from kvlint.report._view import View

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic

WORDS = {
    Category.SILENT: "silent",
    Category.BREAKS: "breaking",
    Category.WASTEFUL: "wasteful",
    Category.DEPRECATED: "deprecated",
    Category.UNDECIDED: "undecided",
    Category.META: "other",
}
"""How the summary names the categories, in its order: what runs and is wrong comes first."""

COLORS = {"bold": "1", "red": "1;31", "yellow": "1;33", "blue": "1;34", "cyan": "36", "green": "1;32", "dim": "2"}
SEVERITY_COLORS = {"error": "red", "warning": "yellow", "note": "blue"}


TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what is written: a terminal shows something else than what is there."""
ORDERS = ("::", "##[", "##vso")
"""What begins a line that a runner of GitHub or Azure obeys."""


def is_plain(char: str) -> bool:
    """False for a character that moves the cursor, colours or turns what a terminal shows, or ends a line."""
    return (
        char >= " " and not "\x7f" <= char <= "\x9f" and char not in TURNS and char not in "\u2028\u2029"
    ) or char == "\t"


def plain(text: str) -> str:
    """*text* with such characters written out: nothing of it reaches a terminal as an order."""
    if all(map(is_plain, text)):
        return text
    return "".join(char if is_plain(char) else f"\\u{ord(char):04x}" for char in text)


def file_name(path: str) -> str:
    """A path as text formats show it; one that a runner would obey begins with ``./``."""
    return plain(f"./{path}" if path.startswith(ORDERS) else path)


def paint(text: str, color: str, enabled: bool) -> str:
    """*text* in a colour where colours are *enabled*."""
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m" if enabled and text else text


def place(item: Diagnostic, color: bool = False) -> str:
    """``path:line:column``, in notebooks ``path:cell 3:line:column``."""
    cell = f"cell {item.cell}:" if item.cell is not None else ""
    return f"{paint(file_name(item.path), 'bold', color)}:{cell}{item.line}:{item.column}"


def heading(item: Diagnostic, view: View) -> str:
    """Code, name, the marks of the finding, and what it says."""
    marks = " [*]" if view.is_fixable(item) else ""
    kind = f" ({item.category.value})" if item.category not in (Category.BREAKS, Category.META) else ""
    code = paint(item.code, SEVERITY_COLORS[item.severity], view.color)
    return f"{code} {item.name}{paint(marks, 'cyan', view.color)}{kind}: {plain(item.message)}"


def count(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def by_category(found: Iterable[Diagnostic]) -> str:
    """``5 silent, 7 breaking``."""
    numbers = Counter(item.category for item in found)
    return ", ".join(f"{numbers[category]:,} {word}" for category, word in WORDS.items() if numbers[category])


def summary(view: View) -> str:
    """The last lines of a report: what was found, what can be fixed, what is not shown."""
    if view.quiet:
        return ""
    lines = [f"Checked for transformers {'; '.join(view.targets)}."] if view.targets else []
    lines.append(verdict(view))
    if view.elsewhere:
        lines.append(f"{view.elsewhere}.")
    hidden = dict(view.hidden)
    if number := hidden.get(Category.DEPRECATED):
        lines.append(f"{count(number, 'deprecated use')} not shown (--show deprecated)")
    if number := hidden.get(Category.UNDECIDED):
        lines.append(f"{count(number, 'place')} undecided ({', '.join(view.hidden_codes)}): --show undecided")
    if view.known:
        lines.append(f"{count(view.known, 'known finding')} not shown (--no-baseline)")
    return "\n".join(lines) + "\n"


def verdict(view: View) -> str:
    fixed = sum(number for _, number in view.applied)
    done = f"Fixed {count(fixed, 'finding')} in {count(view.changed, 'file')}" if fixed else ""
    if not view.found:
        if done:
            return f"{done}; nothing left."
        if not view.files:
            return paint("No files to lint.", "yellow", view.color)
        return paint(f"Nothing found in {count(view.files, 'file')}.", "green", view.color)
    paths = len({item.path for item in view.found})
    text = f"{count(len(view.found), 'finding')} ({by_category(view.found)}) in {count(paths, 'file')}"
    text = f"{done}; {text} left" if done else f"Found {text}"
    safe = sum(view.is_fixable(item, {Applicability.SAFE}) for item in view.found)
    unsafe = sum(view.is_fixable(item, {Applicability.UNSAFE}) for item in view.found)
    offers = []
    if view.fixing:
        safe = 0
        unsafe = 0 if Applicability.UNSAFE in view.allowed else unsafe
    if safe:
        offers.append(f"{safe:,} fixable with --fix")
    if unsafe:
        offers.append(f"{unsafe:,} {'more' if safe else 'fixable'} with --unsafe-fixes")
    return f"{text}{'; ' if offers else ''}{', '.join(offers)}."


def counted(view: View) -> list[tuple[str, str, int, int]]:
    """Code, name, findings and fixable findings of every rule, most findings first."""
    numbers = Counter((item.code, item.name) for item in view.found)
    fixable = Counter((item.code, item.name) for item in view.found if view.is_fixable(item))
    rows = [(*rule, number, fixable[rule]) for rule, number in numbers.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def statistics(view: View) -> str:
    """How often each rule was found; ``[*]``: all of it can be fixed, ``[-]``: some of it."""
    rows = counted(view)
    width = max((len(str(number)) for _, _, number, _ in rows), default=1)
    lines = []
    for code, name, number, fixable in rows:
        mark = "[*]" if fixable == number else "[-]" if fixable else "[ ]"
        lines.append(f"{number:>{width}}  {code}  {mark} {name}\n")
    return "".join(lines)


def statistics_json(view: View) -> str:
    """The same for programs."""
    import json

    rows = [
        {"code": code, "name": name, "count": number, "fixable": fixable}
        for code, name, number, fixable in counted(view)
    ]
    return json.dumps(rows, indent=2) + "\n"
