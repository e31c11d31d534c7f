"""The regions of a file: what the carriers hand to the analysis, and how offsets in a region lead back into the file.

A *document* is the decoded text of a file, newlines untouched and without byte order mark. A *region* is Python (or
JSON) text taken out of it with newlines normalised; its *layout* leads from offsets in the region to offsets in the
document and turns edits of the region into edits of the document.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from kvlint.findings import Edit

# Without one of these a docstring holds no example.
EXAMPLE_MARKS = (">>> ", "```", "~~~", ".. code", ".. sourcecode", ".. ipython", ".. testcode", ".. jupyter-execute")
NEWLINE = re.compile(r"\r\n|\r|\n")
PROSE = "markdown-prose"
"""The kind of the region with everything in a Markdown file that is no code."""


class EditError(ValueError):
    """Edits that cannot be written back into the file; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Line:
    """Where one line of a region lies in its file.

    *number* is the 1-based line of the file (in notebooks: of the cell), *column* the count of characters in front of
    the region's text on that line (the indent of a fence, a prompt), *cell* the 1-based number among a notebook's
    code cells.
    """

    number: int
    column: int = 0
    cell: int | None = None


class Layout(Protocol):
    """The way from a region back into its document."""

    def line(self, index: int) -> Line:
        """Where the region's line *index* (0-based) lies."""
        ...

    def place(self, offset: int) -> int:
        """The document offset of the region's *offset*."""
        ...

    def document_edits(self, edits: Sequence[Edit]) -> list[Edit]:
        """The same change as edits of the document; raises `EditError` where that is not possible."""
        ...


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of a file that is linted on its own.

    *text* has ``\\n`` line ends and no byte order mark. *kind* is ``module``, ``notebook``, ``markdown``, ``rst``,
    ``docstring``, ``generation-config`` (*text* is JSON then) or ``markdown-prose`` (no code at all). Without *layout*
    the text is the document itself.
    """

    text: str
    kind: str = "module"
    fixable: bool = True
    layout: Layout | None = None

    @property
    def is_python(self) -> bool:
        """Whether the text is Python."""
        return self.kind not in ("generation-config", PROSE)

    @property
    def lines(self) -> tuple[Line, ...]:
        """One `Line` for each line of the text, computed anew on every call: for single places use `line`."""
        count = self.text.count("\n") + 1
        return tuple(map(self.line, range(count)))

    def line(self, index: int) -> Line:
        """Where the region's line *index* (0-based) lies."""
        return Line(index + 1) if self.layout is None else self.layout.line(index)


@dataclass(frozen=True, slots=True)
class SourceError:
    """What keeps a file, or a part of it, from being read; *line* and *column* are 1-based where they are known."""

    message: str
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A block of a carrier (a notebook cell, a fence) that was left out of its region: the place of its first line.

    *text* is the block where it claims to be Python and cannot be parsed, "" where it is something else. *offset* is that
    of its first character in a document whose lines are not those of *line* (a notebook).
    """

    line: Line
    reason: str
    text: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a carrier finds in a document."""

    regions: tuple[Region, ...] = ()
    errors: tuple[SourceError, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def ordered(edits: Iterable[Edit], length: int) -> list[Edit]:
    """*edits* by position; raises `EditError` where two overlap or one leaves ``0..length``.

    Insertions at the same offset keep the order in which they were given.
    """
    result = sorted(edits, key=lambda edit: (edit.start, edit.end))
    reached = 0
    for edit in result:
        if edit.start < reached or edit.end < edit.start:
            raise EditError(f"the edits overlap at offset {edit.start}")
        reached = edit.end
    if reached > length:
        raise EditError(f"an edit reaches past the end of the text ({reached} of {length} characters)")
    return result


def edited(text: str, edits: Iterable[Edit]) -> str:
    """*text* with *edits* applied; raises `EditError` where they overlap or leave the text."""
    parts: list[str] = []
    reached = 0
    for edit in ordered(edits, len(text)):
        parts += (text[reached : edit.start], edit.text)
        reached = edit.end
    parts.append(text[reached:])
    return "".join(parts)


def refined(text: str, edits: Iterable[Edit]) -> list[Edit]:
    """The same change in smaller edits: lines that a replacement of several lines repeats are not touched."""
    result: list[Edit] = []
    for edit in edits:
        old = text[edit.start : edit.end]
        if old == edit.text:
            continue
        if "\n" not in old:
            result.append(_trimmed(edit, old))
            continue
        result.extend(_line_edits(edit, old.split("\n"), edit.text.split("\n")))
    return result


def _line_edits(edit: Edit, old: list[str], new: list[str]) -> Iterable[Edit]:
    """Edits of single lines and runs of lines that together make *edit*."""
    from difflib import SequenceMatcher

    old = [line + "\n" for line in old[:-1]] + old[-1:]
    new = [line + "\n" for line in new[:-1]] + new[-1:]
    starts = [edit.start]
    for line in old:
        starts.append(starts[-1] + len(line))
    if len(old) * len(new) > 4_000_000:
        yield edit
        return
    for tag, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if old_to - old_from == new_to - new_from:
            for step in range(old_to - old_from):
                start, end = starts[old_from + step], starts[old_from + step + 1]
                yield _trimmed(Edit(start, end, new[new_from + step]), old[old_from + step])
            continue
        part = Edit(starts[old_from], starts[old_to], "".join(new[new_from:new_to]))
        yield _trimmed(part, "".join(old[old_from:old_to])) if tag == "replace" else part


def _trimmed(edit: Edit, old: str) -> Edit:
    """*edit*, which replaces *old*, without the characters that both sides begin and end with."""
    new = edit.text
    limit = min(len(old), len(new))
    head = 0
    while head < limit and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return Edit(edit.start + head, edit.end - tail, new[head : len(new) - tail])


def newline_at(document: str, offset: int) -> str:
    """The newline that ends the line of *offset*; on a last line without one, the newline before it."""
    ends = [place for place in (document.find("\n", offset), document.find("\r", offset)) if place >= 0]
    if ends:
        first = min(ends)
        return "\r\n" if document.startswith("\r\n", first) else document[first]
    before = max(document.rfind("\n", 0, offset), document.rfind("\r", 0, offset))
    if before < 0:
        return "\n"
    return "\r\n" if document[before - 1 : before + 1] == "\r\n" else document[before]


@dataclass(frozen=True)
class NewlineLayout:
    """The layout of a region that is the whole document with its carriage returns normalised."""

    text: str
    document: str

    @cached_property
    def _pairs(self) -> list[int]:
        """The region offsets of the newlines that are two characters in the document."""
        return [match.start() - count for count, match in enumerate(re.finditer("\r\n", self.document))]

    def line(self, index: int) -> Line:
        return Line(index + 1)

    def place(self, offset: int) -> int:
        return offset + bisect_left(self._pairs, offset)

    def document_edits(self, edits: Sequence[Edit]) -> list[Edit]:
        result = []
        for edit in refined(self.text, edits):
            start, end = self.place(edit.start), self.place(edit.end)
            text = edit.text
            if "\n" in text:
                text = text.replace("\n", newline_at(self.document, start))
            result.append(Edit(start, end, text))
        return result
