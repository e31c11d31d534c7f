"""Regions made of lines that lie scattered in a document: fences, prompts, notebook cells.

Each line of such a region is a line of a *host* text without some characters in front (an indent, a quote mark, a
prompt). The host is the document itself, or the joined cells of a notebook.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from kvlint.carriers.parsing import parsed
from kvlint.carriers.regions import NEWLINE, EditError, Line, Region, edited, newline_at, refined
from kvlint.findings import Edit


@dataclass(frozen=True, slots=True)
class HostLine:
    """One line of a host text: ``host[start : start + len(text)]``, followed by *newline* (empty at the end)."""

    start: int
    text: str
    newline: str


@dataclass(frozen=True, slots=True)
class BlockLine:
    """One line of a block: the host line *index* without its first *strip* characters.

    A *masked* line has another *text* than the host and is never written (a magic). Nothing may be put in front of a
    *pinned* one. An *answered* line has output below it, which would be left behind if the line went away.
    """

    index: int
    strip: int
    text: str
    masked: bool = False
    pinned: bool = False
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines of Python in one fence, cell or doctest.

    Lines that are added get *prefix* in front; with *continuation* set, *prefix* is for lines that begin a statement
    and *continuation* for the others.
    """

    lines: tuple[BlockLine, ...]
    prefix: str = ""
    continuation: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


def host_lines(host: str, start: int = 0, end: int | None = None) -> list[HostLine]:
    """The lines of ``host[start:end]``; only ``\\n``, ``\\r\\n`` and a lone ``\\r`` end a line."""
    end = len(host) if end is None else end
    result = []
    for match in NEWLINE.finditer(host, start, end):
        result.append(HostLine(start, host[start : match.start()], match.group()))
        start = match.end()
    result.append(HostLine(start, host[start:end], ""))
    return result


def block_text(lines: Sequence[HostLine], first: int) -> str:
    """The text of the block that begins on the line *first*: up to the end of its fence, or of what is indented as far."""
    start = lines[first].text
    indent = len(start) - len(start.lstrip())
    end = first
    for line in lines[first:]:
        stripped = line.text.lstrip(" \t>")
        if stripped.startswith(("```", "~~~")) or (stripped and len(line.text) - len(line.text.lstrip()) < indent):
            break
        end += 1
    return "\n".join(line.text for line in lines[first:end])


@dataclass(frozen=True, slots=True)
class _Carried:
    start: int
    text_start: int
    end: int
    newline: str
    line: Line
    block: int
    source: BlockLine


@dataclass(frozen=True)
class LinesLayout:
    """The layout of a region whose lines are lines of *host*; *encode* and *locate* lead from there to the document."""

    text: str
    host: str
    carried: tuple[_Carried, ...]
    blocks: tuple[Block, ...]
    encode: Callable[[list[Edit]], list[Edit]] | None = field(default=None, repr=False)
    locate: Callable[[int], int] | None = field(default=None, repr=False)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.text.split("\n")[:-1]), initial=0))

    def line(self, index: int) -> Line:
        return self.carried[index].line

    def _host_place(self, offset: int) -> int:
        index = bisect_right(self._starts, offset) - 1
        carried = self.carried[index]
        return min(carried.text_start + offset - self._starts[index], carried.end)

    def place(self, offset: int) -> int:
        place = self._host_place(offset)
        return place if self.locate is None else self.locate(place)

    def document_edits(self, edits: Sequence[Edit]) -> list[Edit]:
        small = refined(self.text, edits)
        beginnings = _statement_lines(edited(self.text, small)) if self._has_prompts else frozenset()
        result = []
        added = 0
        for edit in small:
            index = bisect_right(self._starts, edit.start) - 1
            result.append(self._host_edit(edit, index, beginnings, index + added))
            added += edit.text.count("\n") - self.text.count("\n", edit.start, edit.end)
        return result if self.encode is None else self.encode(result)

    @property
    def _has_prompts(self) -> bool:
        return any(block.continuation is not None for block in self.blocks)

    def _host_edit(self, edit: Edit, index: int, beginnings: frozenset[int], new_index: int) -> Edit:
        """*edit*, which begins on line *index* of the old text and *new_index* of the new one, in the host."""
        starts, carried = self._starts, self.carried
        first = carried[index]
        last_index = bisect_right(starts, edit.end) - 1
        block = self.blocks[first.block]

        def prefixed(lines: Iterable[str], number: int) -> list[str]:
            """*lines* with what stands in front of them; *number* is that of the first one in the new text."""
            if block.continuation is None:
                return [block.prefix + line if line else block.prefix.rstrip() for line in lines]
            result = []
            for step, line in enumerate(lines, number):
                prompt = block.prefix if step in beginnings else block.continuation
                result.append(prompt + line if line else prompt.rstrip())
            return result

        newline = newline_at(self.host, first.start)
        at_line = edit.start == starts[index]
        if at_line and edit.start == edit.end and edit.text.endswith("\n"):
            if first.source.pinned:
                raise EditError("nothing can be put in front of a cell magic")
            lines = prefixed(edit.text.split("\n")[:-1], new_index)
            return Edit(first.start, first.start, "".join(line + newline for line in lines))
        to_end = edit.end == len(self.text) and not edit.text
        whole = at_line and edit.end > edit.start and (edit.end == starts[last_index] or to_end)
        if whole and (not edit.text or edit.text.endswith("\n")):
            last = last_index if to_end else last_index - 1
            lines = prefixed(edit.text.split("\n")[:-1], new_index)
            return self._whole_lines(index, last, lines, newline)
        self._check(index, last_index, insertion_at=edit.start if edit.start == edit.end else None)
        head, *rest = edit.text.split("\n")
        text = newline.join([head, *prefixed(rest, new_index + 1)])
        return Edit(self._host_place(edit.start), self._host_place(edit.end), text)

    def _whole_lines(self, index: int, last: int, lines: list[str], newline: str) -> Edit:
        """The replacement of the lines *index* to *last*, newlines included, by *lines*."""
        self._check(index, last)
        carried = self.carried
        first, final = carried[index], carried[last]
        if not lines and final.source.answered:
            raise EditError("the example's output would be left behind")
        start, end = first.start, final.end
        if final.newline:
            return Edit(start, end + len(final.newline), "".join(line + newline for line in lines))
        if not lines and index and carried[index - 1].block == first.block:
            start = carried[index - 1].end
        return Edit(start, end, newline.join(lines))

    def _check(self, first: int, last: int, insertion_at: int | None = None) -> None:
        """Raise `EditError` unless the lines can be written and follow each other in the host."""
        carried = self.carried
        for index in range(first, last + 1):
            source = carried[index].source
            outside = insertion_at is not None and insertion_at == self._starts[index] + len(source.text)
            if source.masked and not outside:
                raise EditError("a magic or an escaped line is not rewritten")
            if index > first and carried[index].start != carried[index - 1].end + len(carried[index - 1].newline):
                raise EditError("the edit crosses the border between two blocks of code")
            if index > first and carried[index].block != carried[index - 1].block:
                raise EditError("the edit crosses the border between two blocks of code")


def _statement_lines(text: str) -> frozenset[int]:
    """The 0-based lines on which the statements at the outermost level of *text* begin."""
    tree = parsed(text)
    if not isinstance(tree, ast.Module):
        return frozenset(match for match, line in enumerate(text.split("\n")) if re.match(r"\S", line))
    numbers = set()
    for statement in tree.body:
        decorators = getattr(statement, "decorator_list", [])
        numbers.add(min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1)
    return frozenset(numbers)


def region_of(
    kind: str,
    host: str,
    lines: Sequence[HostLine],
    blocks: Sequence[Block],
    *,
    fixable: bool = True,
    line_of: Callable[[BlockLine], Line] | None = None,
    encode: Callable[[list[Edit]], list[Edit]] | None = None,
    locate: Callable[[int], int] | None = None,
    first_number: int = 1,
) -> Region:
    """The region that joins *blocks*, whose lines are among *lines* of *host*.

    *first_number* is the file's line number of ``lines[0]``; *line_of* replaces this numbering.
    """
    carried = []
    for number, block in enumerate(blocks):
        for line in block.lines:
            host_line = lines[line.index]
            end = host_line.start + len(host_line.text)
            text_start = host_line.start + line.strip
            place = Line(first_number + line.index, line.strip) if line_of is None else line_of(line)
            carried.append(_Carried(host_line.start, text_start, end, host_line.newline, place, number, line))
    text = "\n".join(block.text for block in blocks)
    layout = LinesLayout(text, host, tuple(carried), tuple(blocks), encode, locate)
    return Region(text, kind, fixable, layout)
