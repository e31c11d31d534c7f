"""``--add-ignore``: comments that silence the findings of a run, on their lines."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.carriers.regions import EditError, Region
from kvlint.findings import Category, Edit
from kvlint.source import Source, apply_region_edits, parse
from kvlint.suppression import Comment, find_comments, line_starts

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class Lines:
    """Where comments can stand in a text, by 0-based line: *open* ends in no string and no backslash, *last* is the last line
    of its logical line."""

    open: frozenset[int]
    last: tuple[int, ...]


def with_comments(path: Path, data: bytes, found: Iterable[Diagnostic], reason: str) -> tuple[bytes, int]:
    """*data* with ``# kvlint: ignore[...] reason`` on a line of each finding, and how many got one.

    What has no place for a comment (JSON, prose, examples in docstrings, a line that is all magic) is left as it is.
    """
    source = parse(path, data, docstrings=False)
    wanted = [item for item in found if item.category is not Category.META]
    changes: list[tuple[Region, list[Edit]]] = []
    placed = 0
    for region in source.regions:
        if not region.is_python or not region.fixable:
            continue
        offered = comments(region, wanted, reason)
        if not fits(source, region, [edit for edit, _ in offered]):
            offered = [(edit, count) for edit, count in offered if fits(source, region, [edit])]
        if offered:
            changes.append((region, [edit for edit, _ in offered]))
            placed += sum(count for _, count in offered)
    try:
        return apply_region_edits(source, changes), placed
    except EditError:
        return data, 0


def fits(source: Source, region: Region, edits: Sequence[Edit]) -> bool:
    """True where the edits can be written into the file."""
    try:
        apply_region_edits(source, [(region, edits)])
    except EditError:
        return False
    return True


def comments(region: Region, found: Iterable[Diagnostic], reason: str) -> list[tuple[Edit, int]]:
    """The edits that add comments to a region, each with the number of findings that it silences."""
    places: dict[tuple[int | None, int], int] = {}
    for index, place in enumerate(region.lines):
        places.setdefault((place.cell, place.number), index)
    lines = lines_of(region.text)
    by_line: dict[int, list[Diagnostic]] = {}
    for item in found:
        first = places.get((item.cell, item.line))
        if first is None or first >= len(lines.last):
            continue
        end = places.get((item.cell, item.end_line), first)
        line = next((index for index in range(first, end + 1) if index in lines.open), lines.last[first])
        if line in lines.open:
            by_line.setdefault(line, []).append(item)
    starts = line_starts(region.text)
    existing = find_comments(region.text)
    return [
        (edit, len(items))
        for line, items in sorted(by_line.items())
        if (edit := comment(region.text, starts, existing, line, {item.code for item in items}, reason)) is not None
    ]


def comment(
    text: str, starts: Sequence[int], existing: Sequence[Comment], line: int, codes: set[str], reason: str
) -> Edit | None:
    """The edit that lets the comment on a line silence *codes*: one that is there already is extended."""
    start = starts[line]
    end = starts[line + 1] - 1 if line + 1 < len(starts) else len(text)
    for known in existing:
        if known.kind == "ignore" and known.items and known.lines is not None and start <= known.start < end:
            more = sorted(codes - {code for item in known.items for code in item.codes})
            place = known.items[-1].end
            return Edit(place, place, "".join(f", {code}" for code in more)) if more else None
    words = f"  # kvlint: ignore[{', '.join(sorted(codes))}]{f' {reason}' if reason else ''}"
    place = start + len(text[start:end].rstrip())
    return Edit(place, place, words)


def lines_of(text: str) -> Lines:
    """The lines of Python source; those behind a place that cannot be tokenized are left out."""
    count = text.count("\n") + 1
    closed: set[int] = set()
    last: list[int] = []
    strings: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            first_row, last_row = token.start[0] - 1, token.end[0] - 1
            name = tokenize.tok_name[token.type]
            if name == "STRING":
                closed.update(range(first_row, last_row))
            elif name.endswith("STRING_START"):
                strings.append(first_row)
            elif name.endswith("STRING_END"):
                closed.update(range(strings.pop(), last_row))
            elif token.type in (tokenize.NEWLINE, tokenize.NL) and not strings:
                if token.type == tokenize.NEWLINE or not token.line.strip() or token.line.lstrip().startswith("#"):
                    last += [first_row] * (first_row + 1 - len(last))
    except (tokenize.TokenError, SyntaxError):
        pass
    rows = text.split("\n")
    closed.update(row for row, words in enumerate(rows) if words.rstrip().endswith("\\"))
    return Lines(frozenset(range(min(count, len(last)))) - closed, tuple(last))
