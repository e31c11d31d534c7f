"""Jupyter notebooks (nbformat 3 and 4): the code cells, joined, and their edits written into the JSON as it stands.

Python fences in cells of Markdown make a region of their own.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any

from kvlint.carriers.blocks import python_block
from kvlint.carriers.fences import fence_blocks
from kvlint.carriers.json_spans import (
    JsonError,
    Span,
    StringMap,
    document_value,
    encoded,
    items,
    line_and_column,
    members,
    skip_space,
)
from kvlint.carriers.lines import Block, BlockLine, HostLine, block_text, host_lines, region_of
from kvlint.carriers.magics import FILE_CELL_MAGICS, PYTHON_CELL_MAGICS, cell_magic
from kvlint.carriers.regions import EditError, Extraction, Line, Skipped, SourceError
from kvlint.findings import Edit

_SURROGATE = re.compile("[\ud800-\udfff]")
STAND_IN = "\ufffd"
"""What the analysis sees in the place of half a surrogate pair, which no parser of Python takes."""
_NON_ASCII_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")


@dataclass(frozen=True, slots=True)
class Literal:
    """One JSON string of a cell's source: where it stands, and where its text begins in the host."""

    start: int
    end: int
    host: int
    value: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One code cell: its 1-based *number* among them, its *literals* and whether they are a list of lines."""

    number: int
    literals: tuple[Literal, ...]
    listed: bool
    separator: str
    python: bool

    @property
    def text(self) -> str:
        return "".join(literal.value for literal in self.literals)


def claims(path: PurePath) -> bool:
    """Whether a file of this name is a notebook."""
    return path.suffix.lower() == ".ipynb"


def extract(path: PurePath, document: str) -> Extraction:
    """One region with all Python cells of *document*; cells written to a module by ``%%writefile`` make their own."""
    try:
        root = document_value(document)
        if not isinstance(root.value, dict):
            return Extraction(errors=(SourceError("is not a notebook: the JSON holds no object", 1),))
        if not _is_python(root.value):
            return Extraction()
        cells = list(_cells(document, root))
    except JsonError as error:
        line, column = line_and_column(document, error.offset)
        return Extraction(errors=(SourceError(f"is not valid JSON: {error}", line, column),))
    code = _code_regions(document, cells)
    texts = _text_regions(
        document, [cell for cell in _cells(document, root, "markdown") if re.search("```|~~~", cell.text)]
    )
    return Extraction((*code.regions, *texts.regions), skipped=(*code.skipped, *texts.skipped))


def _code_regions(document: str, cells: Sequence[Cell]) -> Extraction:
    """One region with all Python code cells, one more for each that is written to a module."""
    host = "\n".join(cell.text for cell in cells)
    lines: list[HostLine] = []
    places: list[Line] = []
    main: list[Block] = []
    files: list[Block] = []
    skipped: list[Skipped] = []
    for cell in cells:
        start = cell.literals[0].host
        found = host_lines(host, start, start + len(cell.text))
        first = len(lines)
        lines += found
        places += (Line(number, 0, cell.number) for number in range(1, len(found) + 1))
        if not cell.text.strip():
            continue
        content, own_file = _cell_content(cell, found, first)
        block = python_block(content) if content is not None else None
        if block is None:
            text = cell.text if content is not None else ""
            place = cell.literals[0].start + 1
            skipped.append(Skipped(Line(1, 0, cell.number), "this cell is not Python", text, place))
        else:
            (files if own_file else main).append(block)
    encoder = _Encoder(document, tuple(cells))

    def line_of(line: BlockLine) -> Line:
        return replace(places[line.index], column=line.strip)

    groups = [main, *([block] for block in files)]
    regions = tuple(
        region_of("notebook", host, lines, group, line_of=line_of, encode=encoder.encode, locate=encoder.locate)
        for group in groups
        if group
    )
    return Extraction(regions, skipped=tuple(skipped))


def _text_regions(document: str, cells: Sequence[Cell]) -> Extraction:
    """One region with the Python fences in cells of Markdown; its places are those of the file."""
    host = "\n".join(cell.text for cell in cells)
    encoder = _Encoder(document, tuple(cells))
    lines: list[HostLine] = []
    blocks: list[Block] = []
    skipped: list[Skipped] = []

    def line_of(line: BlockLine) -> Line:
        start = encoder.locate(lines[line.index].start)
        number, column = line_and_column(document, start)
        return Line(number, column - 1 + line.strip)

    for cell in cells:
        start = cell.literals[0].host
        found = host_lines(host, start, start + len(cell.text))
        first = len(lines)
        lines += found
        taken, left_out, _ = fence_blocks(found)
        blocks += (moved(block, first) for block in taken)
        for index in left_out:
            place = encoder.locate(found[index].start)
            number, _ = line_and_column(document, place)
            skipped.append(Skipped(Line(number), "this block is not Python", block_text(found, index), place))
    if not blocks:
        return Extraction(skipped=tuple(skipped))
    region = region_of("markdown", host, lines, blocks, line_of=line_of, encode=encoder.encode, locate=encoder.locate)
    return Extraction((region,), skipped=tuple(skipped))


def moved(block: Block, by: int) -> Block:
    """*block* with the numbers of its lines counted from so many lines earlier."""
    return replace(block, lines=tuple(replace(line, index=line.index + by) for line in block.lines))


def _is_python(notebook: Mapping[str, Any]) -> bool:
    """Whether the notebook's kernel is one for Python, or it names none."""
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return True
    for section, key in (("language_info", "name"), ("kernelspec", "language")):
        inner = metadata.get(section)
        language = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(language, str) and language:
            return "python" in language.lower()
    return True


def _cells(document: str, root: Span, wanted: str = "code") -> Iterator[Cell]:
    """The cells of a kind; those whose source is no text are counted and left out."""
    number = 0
    host = 0
    for place in _cell_places(document, root):
        fields = dict(members(document, place.start))
        kind = fields.get("cell_type")
        if kind is None or kind.value != wanted:
            continue
        number += 1
        source = fields.get("source", fields.get("input"))
        if source is None:
            continue
        if isinstance(source.value, str):
            spans, listed, separator = [source], False, ""
        elif isinstance(source.value, list) and all(isinstance(item, str) for item in source.value):
            spans, listed = list(items(document, source.start)), True
            separator = _separator(document, source, spans)
        else:
            continue
        literals = []
        for span in spans:
            literals.append(Literal(span.start, span.end, host, _SURROGATE.sub(STAND_IN, span.value)))
            host += len(span.value)
        if literals:
            host += 1
            yield Cell(number, tuple(literals), listed, separator, _cell_is_python(fields))


def _cell_places(document: str, root: Span) -> Iterator[Span]:
    """The objects of all cells: nbformat 4 lists them at the top, nbformat 3 in worksheets."""
    for name, member in dict(members(document, root.start)).items():
        if name == "cells" and isinstance(member.value, list):
            yield from (item for item in items(document, member.start) if isinstance(item.value, dict))
        elif name == "worksheets" and isinstance(member.value, list):
            for sheet in items(document, member.start):
                if isinstance(sheet.value, dict):
                    yield from _cell_places(document, sheet)


def _separator(document: str, source: Span, spans: Sequence[Span]) -> str:
    """What stands between two strings of the list."""
    if len(spans) > 1:
        return document[spans[0].end : spans[1].start]
    space = document[source.start + 1 : skip_space(document, source.start + 1)]
    return "," + (space or " ")


def _cell_is_python(fields: Mapping[str, Span]) -> bool:
    language = fields["language"].value if "language" in fields else None
    metadata = fields["metadata"].value if "metadata" in fields else None
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    if isinstance(editor, dict):
        language = editor.get("languageId", language)
    return not isinstance(language, str) or "python" in language.lower()


def _cell_content(cell: Cell, lines: Sequence[HostLine], first: int) -> tuple[list[BlockLine] | None, bool]:
    """The cell's lines, None where it is in another language, and whether it is a file of its own.

    Lines of cell magics become ``pass``, so that every line of the cell keeps its number.
    """
    if not cell.python:
        return None, False
    content = [BlockLine(first + index, 0, line.text) for index, line in enumerate(lines)]
    own_file = False
    for index, line in enumerate(lines):
        magic = cell_magic(line.text)
        if magic is None:
            if line.text.strip() and not line.text.lstrip().startswith("#"):
                break
            continue
        if magic.name in FILE_CELL_MAGICS and magic.arguments.endswith(".py"):
            own_file = True
        elif magic.name not in PYTHON_CELL_MAGICS:
            return None, False
        content[: index + 1] = [replace(before, pinned=True) for before in content[: index + 1]]
        content[index] = replace(content[index], text="pass", masked=True)
    return content, own_file


class _Encoder:
    """Edits of the joined cells as edits of the JSON text; only the characters that change are written anew."""

    def __init__(self, document: str, cells: tuple[Cell, ...]) -> None:
        self._document = document
        self._cells = cells
        self._starts = [cell.literals[0].host for cell in cells]
        self._map = lru_cache(maxsize=None)(self._string_map)

    def _string_map(self, literal: Literal) -> StringMap:
        return StringMap(self._document, literal.start, literal.end)

    def _find(self, offset: int) -> tuple[Cell, int]:
        """The cell and the number of its literal in which the host's *offset* lies."""
        cell = self._cells[max(0, bisect_right(self._starts, offset) - 1)]
        index = bisect_right([literal.host for literal in cell.literals], offset) - 1
        return cell, max(0, index)

    def locate(self, offset: int) -> int:
        """The document offset of the host's *offset*."""
        cell, index = self._find(offset)
        literal = cell.literals[index]
        return self._map(literal).written(min(offset - literal.host, len(literal.value)))

    def encode(self, edits: list[Edit]) -> list[Edit]:
        """*edits* of the host as edits of the document."""
        return [self._encoded(edit) for edit in edits]

    def _encoded(self, edit: Edit) -> Edit:
        if STAND_IN in edit.text:
            raise EditError("the edit moves text that stands for half a surrogate pair")
        cell, first = self._find(edit.start)
        other, last = self._find(edit.end)
        if other is not cell:
            raise EditError("the edit crosses the border between two cells")
        final = cell.literals[-1]
        at_end = edit.end == final.host + len(final.value)
        if cell.listed and not edit.text and at_end and first and edit.start == cell.literals[first].host:
            # The last lines go away with the separator in front of them.
            return Edit(cell.literals[first - 1].end, final.end, "")
        ascii_only = self._ascii_only(cell, first, last)
        between = f'"{cell.separator}"'
        text = encoded(edit.text, ascii_only=ascii_only)
        if cell.listed and edit.text:
            pieces = [encoded(piece, ascii_only=ascii_only) for piece in re.findall(r"[^\n]*\n|[^\n]+", edit.text)]
            text = between.join(pieces)
            if edit.text.endswith("\n") and not at_end:
                text += between
            begun = cell.literals[first]
            if edit.start == begun.host + len(begun.value) and begun.value.endswith("\n"):
                text = between + text
        return Edit(self.locate(edit.start), self.locate(edit.end), text)

    def _ascii_only(self, cell: Cell, first: int, last: int) -> bool:
        """Whether characters outside of ASCII are to be escaped: as in the strings edited, else as in the file."""
        near = escapes_beyond_ascii(self._document[cell.literals[first].start : cell.literals[last].end])
        return (self._document_escapes if near is None else near) is not False

    @cached_property
    def _document_escapes(self) -> bool | None:
        return escapes_beyond_ascii(self._document)


def escapes_beyond_ascii(text: str) -> bool | None:
    """Whether characters outside of ASCII are escaped in a text; None where it has none."""
    if not text.isascii():
        return False
    return True if _NON_ASCII_ESCAPE.search(text) else None
