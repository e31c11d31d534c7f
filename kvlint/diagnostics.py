"""Findings placed in their files: lines and columns instead of offsets, and the source lines to show.

A `Finding` needs its region to be understood, a `Diagnostic` stands alone: it goes from worker to parent, into the
result cache and into every report.
"""

from __future__ import annotations

import itertools
import os
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from kvlint.carriers.regions import NEWLINE, Region
from kvlint.findings import Applicability, Category, Edit, Finding, Fix, Origin, Related
from kvlint.releases import ReleaseSet
from kvlint.selection import SYNTAX_ERROR
from kvlint.source import EditError, Source, document_edits, document_position
from kvlint.suppression import line_starts

SNIPPET_WIDTH = 240
"""Longer source lines are not shown in full, only this many characters around the finding."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of a file to show: its number as in `Diagnostic.line`, and *skipped* characters left out in front."""

    number: int
    text: str
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class PlacedEdit:
    """Replaces a stretch of the file by *text*; lines, columns (1-based, in characters) and cell as in a Diagnostic."""

    start_line: int
    start_column: int
    end_line: int
    end_column: int
    text: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class PlacedFix:
    """A fix with its edits placed; empty *edits* where it cannot be written into this file."""

    title: str
    applicability: Applicability
    edits: tuple[PlacedEdit, ...]


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A stretch of the file itself (1-based, columns in characters), where other places are those of a notebook's cell."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class PlacedOrigin:
    """Where the value came from; *path* is as shown, "" for the finding's own file, *in_file* as in a Diagnostic."""

    line: int
    column: int
    cell: int | None
    text: str
    source: SourceLine
    in_file: FileSpan | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class PlacedRelated:
    """Another place of the same defect; *path* as shown, lines, columns and *cell* as in a Diagnostic."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    message: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding as the user sees it.

    *path* is as shown, with ``/``. *line* and *column* are 1-based, *end_column* is that after the last character.
    In notebooks lines are those of the *cell* (1-based, code cells only), *in_file* has those of the file. *releases* are
    the runs of releases on which the use is wrong, as `Timeline.ranges` writes them.
    """

    code: str
    name: str
    category: Category
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None
    message: str
    help: str
    releases: tuple[str, ...]
    origin: PlacedOrigin | None
    fix: PlacedFix | None
    source: tuple[SourceLine, ...]
    related: tuple[PlacedRelated, ...] = ()
    in_file: FileSpan | None = None

    @property
    def span(self) -> FileSpan:
        """Where the finding lies in the file itself."""
        return self.in_file or FileSpan(self.line, self.column, self.end_line, self.end_column)

    @property
    def severity(self) -> str:
        """``error``, ``warning`` or ``note``."""
        unreadable = self.code == SYNTAX_ERROR[0] and self.category is Category.META
        return "error" if unreadable else self.category.severity

    @property
    def sort_key(self) -> tuple[str, int, int, int, str, int, int, str]:
        """Path, then place in the file, then code."""
        return (
            self.path,
            self.cell or 0,
            self.line,
            self.column,
            self.code,
            self.end_line,
            self.end_column,
            self.message,
        )

    def to_row(self) -> list[Any]:
        """As lists, strings and numbers (for the result cache); the path is left out, others are relative to its folder."""
        origin, fix = self.origin, self.fix
        folder = posixpath.dirname(self.path)
        return [
            self.code, self.name, self.category.value,
            self.line, self.column, self.end_line, self.end_column, self.cell,
            self.message, self.help, self.releases,
            origin and [
                origin.line, origin.column, origin.cell, origin.text, line_row(origin.source), span_row(origin.in_file),
                origin.path and posixpath.relpath(origin.path, folder or "."),
            ],
            fix and [
                fix.title, fix.applicability.value,
                [[e.start_line, e.start_column, e.end_line, e.end_column, e.text, e.cell] for e in fix.edits],
            ],
            [line_row(line) for line in self.source],
            [
                [posixpath.relpath(item.path, folder or "."), *astuple(item)[1:]] for item in self.related
            ],
            span_row(self.in_file),
        ]  # fmt: skip

    @staticmethod
    def from_row(path: str, row: list[Any]) -> Diagnostic:
        """The reverse of `to_row`."""
        (code, name, category, line, column, end_line, end_column, cell,
         message, help, releases, origin, fix, source, related, in_file) = row  # fmt: skip
        folder = posixpath.dirname(path)
        return Diagnostic(
            code, name, Category(category), path, line, column, end_line, end_column, cell, message, help,
            tuple(releases),
            read_origin(folder, *origin) if origin else None,
            PlacedFix(fix[0], Applicability(fix[1]), tuple(PlacedEdit(*edit) for edit in fix[2])) if fix else None,
            tuple(SourceLine(*item) for item in source),
            tuple(PlacedRelated(beside(folder, item[0]), *item[1:]) for item in related),
            read_span(in_file),
        )  # fmt: skip


def beside(folder: str, path: str) -> str:
    """How reports name the file that is called *path* from the folder of another one."""
    return posixpath.normpath(posixpath.join(folder, path))


def line_row(line: SourceLine) -> list[Any]:
    return [line.number, line.text, line.skipped]


def span_row(span: FileSpan | None) -> list[int] | None:
    return None if span is None else list(astuple(span))


def read_origin(folder: str, *row: Any) -> PlacedOrigin:
    """The reverse of what `Diagnostic.to_row` makes of an origin."""
    line, column, cell, text, source, span, path = row
    return PlacedOrigin(line, column, cell, text, SourceLine(*source), read_span(span), path and beside(folder, path))


def read_span(row: list[int] | None) -> FileSpan | None:
    return None if row is None else FileSpan(*row)


@dataclass(frozen=True, slots=True)
class Placer:
    """Places the findings of one region. *ranges* writes a set of releases as runs of versions."""

    path: str
    source: Source
    region: Region
    ranges: Callable[[ReleaseSet], tuple[str, ...]]
    starts: Sequence[int]
    fixes: dict[int, tuple[Fix, PlacedFix]] = field(default_factory=dict)
    """Fixes that are placed already, by id: one may belong to many findings."""
    lines: list[int] = field(default_factory=list)

    @staticmethod
    def of(path: str, source: Source, region: Region, ranges: Callable[[ReleaseSet], tuple[str, ...]]) -> Placer:
        return Placer(path, source, region, ranges, line_starts(region.text))

    def locate(self, offset: int) -> tuple[int, int, int | None]:
        """Line, column and cell of an offset of the region's text."""
        if self.region.kind == "markdown" and self.source.path.suffix == ".ipynb":
            return *document_position(self.source, self.region, offset), None
        index = bisect_right(self.starts, offset) - 1
        line = self.region.line(index)
        return line.number, line.column + offset - self.starts[index] + 1, line.cell

    def place(self, finding: Finding, others: Sequence[Finding] = ()) -> Diagnostic:
        """The finding as a diagnostic, with the places of *others* that come from the same defect."""
        line, column, cell = self.locate(finding.start)
        end_line, end_column, _ = self.locate(max(finding.end, finding.start))
        origin = None
        if finding.origin is not None and self.is_elsewhere(finding.origin):
            origin = self.place_elsewhere(finding.origin)
        elif finding.origin is not None:
            at = finding.origin.start
            origin_line, origin_column, origin_cell = self.locate(at)
            shown = self.show(bisect_right(self.starts, at) - 1, at)
            text, in_file = finding.origin.text, self.span(at, at)
            origin = PlacedOrigin(origin_line, origin_column, origin_cell, text, shown, in_file)
        return Diagnostic(
            finding.code,
            finding.name,
            finding.category,
            self.path,
            line,
            column,
            end_line,
            end_column,
            cell,
            finding.message,
            finding.help,
            self.ranges(finding.releases),
            origin,
            self.place_fix(finding.fix) if finding.fix is not None else None,
            self.snippet(finding),
            (*map(self.place_related, finding.related), *map(self.place_other, others)),
            self.span(finding.start, max(finding.end, finding.start)),
        )

    def span(self, start: int, end: int) -> FileSpan | None:
        """Where a stretch of a notebook's cell lies in the file; None in other files, whose lines are those of the file."""
        if self.region.kind != "notebook":
            return None
        return FileSpan(
            *document_position(self.source, self.region, start), *document_position(self.source, self.region, end)
        )

    def is_elsewhere(self, origin: Origin) -> bool:
        """True for an origin in another file than the region's."""
        return bool(origin.path) and origin.path != str(self.source.path)

    def place_elsewhere(self, origin: Origin) -> PlacedOrigin:
        """An origin in another file of the project."""
        here = os.path.dirname(str(self.source.path))
        shown = beside(posixpath.dirname(self.path), os.path.relpath(origin.path, here).replace(os.sep, "/"))
        try:
            with open(origin.path, encoding="utf-8", errors="replace") as file:
                text = next(itertools.islice(file, origin.line - 1, None), "").rstrip("\n")
        except OSError:
            text = ""
        return PlacedOrigin(origin.line, 1, None, origin.text, SourceLine(origin.line, text), path=shown)

    def place_other(self, other: Finding) -> PlacedRelated:
        """Where another finding of the same defect stands."""
        line, column, cell = self.locate(other.start)
        end_line, end_column, _ = self.locate(max(other.end, other.start))
        return PlacedRelated(self.path, line, column, end_line, end_column, other.code, other.message, cell)

    def place_related(self, item: Related) -> PlacedRelated:
        """The place with the name of its file as reports show it."""
        path = self.path
        if item.path:
            relative = os.path.relpath(item.path, self.source.path.parent).replace(os.sep, "/")
            path = beside(posixpath.dirname(self.path), relative)
        return PlacedRelated(
            path, item.line, item.column, item.end_line, item.end_column, item.code, item.message, item.cell
        )

    def snippet(self, finding: Finding) -> tuple[SourceLine, ...]:
        """The finding's first line with the line before and after it, as far as they are neighbours in the file."""
        index = bisect_right(self.starts, finding.start) - 1
        here = self.region.line(index)
        lines = []
        for other in range(max(index - 1, 0), min(index + 2, len(self.starts))):
            place = self.region.line(other)
            if place.cell == here.cell and place.number - here.number == other - index:
                lines.append(self.show(other, finding.start if other == index else self.starts[other]))
        while lines and not lines[-1].text.strip() and lines[-1].number != here.number:
            lines.pop()
        return tuple(lines)

    def show(self, index: int, offset: int) -> SourceLine:
        """The region's line *index* (0-based), cut to the neighbourhood of *offset* where it is very long."""
        start = self.starts[index]
        end = self.starts[index + 1] - 1 if index + 1 < len(self.starts) else len(self.region.text)
        place = self.region.line(index)
        first = start
        if end - start > SNIPPET_WIDTH:
            first = max(start, min(offset - SNIPPET_WIDTH // 3, end - SNIPPET_WIDTH))
            end = min(end, first + SNIPPET_WIDTH)
        return SourceLine(place.number, self.region.text[first:end], first - start + place.column)

    def place_fix(self, fix: Fix) -> PlacedFix:
        """The fix with its edits as places of the file; in notebooks as places of their cells."""
        known = self.fixes.get(id(fix))
        if known is None:
            known = self.fixes[id(fix)] = (fix, self.placed_fix(fix))
        return known[1]

    def placed_fix(self, fix: Fix) -> PlacedFix:
        if not self.region.fixable:
            return PlacedFix(fix.title, Applicability.SHOWN, tuple(self.place_edit(edit) for edit in fix.edits))
        if self.region.layout is None or self.region.kind == "notebook":
            return PlacedFix(fix.title, fix.applicability, tuple(self.place_edit(edit) for edit in sorted(fix.edits)))
        try:
            edits = document_edits(self.region, fix.edits)
        except EditError:
            return PlacedFix(fix.title, Applicability.SHOWN, ())
        return PlacedFix(fix.title, fix.applicability, tuple(self.place_in_document(edit) for edit in edits))

    def place_edit(self, edit: Edit) -> PlacedEdit:
        line, column, cell = self.locate(edit.start)
        end_line, end_column, _ = self.locate(edit.end)
        return PlacedEdit(line, column, end_line, end_column, edit.text, cell)

    def place_in_document(self, edit: Edit) -> PlacedEdit:
        starts = self.document_lines()
        return PlacedEdit(*document_place(starts, edit.start), *document_place(starts, edit.end), edit.text)

    def document_lines(self) -> list[int]:
        """The offsets of the lines of the whole document."""
        if not self.lines:
            self.lines.extend(document_starts(self.source.text))
        return self.lines


def document_starts(text: str) -> list[int]:
    """The offset of the first character of every line of a text whose lines end in ``\\n``, ``\\r\\n`` or ``\\r``."""
    return [0, *(match.end() for match in NEWLINE.finditer(text))]


def document_place(starts: Sequence[int], offset: int) -> tuple[int, int]:
    """The 1-based line and column of *offset* in a document whose lines begin at *starts*."""
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1
