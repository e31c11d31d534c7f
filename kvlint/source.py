"""Bytes of a file to regions of Python, and edits of a region back into bytes.

Nothing here raises on what a file holds: what cannot be read is an entry in ``Source.errors``. Writing back changes the
edited characters and nothing else: byte order mark, encoding, every newline and every other byte stay.
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvlint.carriers import carrier_for
from kvlint.carriers.regions import (
    EXAMPLE_MARKS,
    PROSE,
    EditError,
    Extraction,
    Layout,
    Line,
    NewlineLayout,
    Region,
    Skipped,
    SourceError,
    edited,
    ordered,
)
from kvlint.findings import Edit

__all__ = [
    "PROSE",
    "EditError",
    "Layout",
    "Line",
    "Region",
    "Skipped",
    "Source",
    "SourceError",
    "apply_edits",
    "apply_region_edits",
    "document_edits",
    "document_offset",
    "document_position",
    "is_python_script",
    "parse",
    "position",
    "read",
]

_COOKIE = re.compile(rb"coding[:=]")
_SHEBANG = re.compile(rb"#!.*(?:\b(?:python|pypy)[0-9.]*w?(?:\.exe)?(?:\s|$)|\buv\b.*\brun\b|\bipython\b)")


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its bytes, how they were decoded, and what was found in them.

    *text* is the decoded document (newlines as they are, no byte order mark); *newline* the one used most, ``\\n`` in
    a file without any. *skipped* lists notebook cells and examples that are not Python and were left out.
    """

    path: Path
    raw: bytes
    encoding: str
    newline: str
    bom: bool
    regions: tuple[Region, ...]
    errors: tuple[SourceError, ...] = ()
    text: str = ""
    skipped: tuple[Skipped, ...] = ()
    docstrings: bool = True
    fix_docstrings: bool = False
    wanted: Callable[[str], bool] | None = None


def read(path: Path, *, docstrings: bool = True, fix_docstrings: bool = False) -> Source:
    """The source of the file at *path*; a file that cannot be opened has an error entry and no regions."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Source(path, b"", "utf-8", "\n", False, (), (SourceError(f"cannot be read: {reason}"),))
    return parse(path, raw, docstrings=docstrings, fix_docstrings=fix_docstrings)


def parse(
    path: Path,
    raw: bytes,
    *,
    docstrings: bool = True,
    fix_docstrings: bool = False,
    wanted: Callable[[str], bool] | None = None,
) -> Source:
    """The source of a file called *path* that holds *raw*.

    The suffix of *path* chooses the carrier; any other file is read as a Python module. *docstrings* adds a region for
    each docstring with examples (whose text is *wanted*, where that is given: most examples have nothing to find),
    and *fix_docstrings* lets those be rewritten. Raises nothing on what *raw* holds.
    """
    extract = carrier_for(path)
    bom = raw.startswith(codecs.BOM_UTF8)
    body = raw[3:] if bom else raw
    encoding = "utf-8"
    try:
        if extract is None and _COOKIE.search(raw, 0, 2_000):
            encoding = _declared_encoding(raw)
        text = _decoded(body, encoding)
    except (SyntaxError, LookupError) as error:
        message = str(error.args[0]) if error.args else "unknown encoding"
        return Source(path, raw, encoding, "\n", bom, (), (SourceError(message, 1),))
    except UnicodeError as error:
        return Source(path, raw, encoding, "\n", bom, (), (_undecodable(body, error),))
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return Source(path, raw, encoding, "\n", bom, (), (SourceError("holds a NUL byte", line),), text)
    if extract is not None:
        found = extract(path, text)
    else:
        found = _module(text)
        if docstrings and any(mark in text for mark in EXAMPLE_MARKS):
            from kvlint.carriers.docstring import extract_docstrings

            examples = extract_docstrings(text, fixable=fix_docstrings, wanted=wanted)
            found = Extraction(found.regions + examples.regions, skipped=examples.skipped)
    regions = found.regions
    if encoding != "utf-8" and not _round_trips(text, encoding, body):
        regions = tuple(Region(region.text, region.kind, False, region.layout) for region in regions)
    return Source(
        path, raw, encoding, _dominant_newline(text), bom, regions, found.errors, text, found.skipped,
        docstrings, fix_docstrings, wanted,
    )  # fmt: skip


def is_python_script(head: bytes) -> bool:
    """Whether a file that begins with *head* (its first line is enough) is to be run by Python."""
    return _SHEBANG.match(head.split(b"\n", 1)[0].rstrip()) is not None


def position(region: Region, offset: int) -> tuple[int, int, int | None]:
    """Where *offset* of the region's text lies for a reader: line, column (both 1-based), notebook cell or None."""
    text = region.text
    line = region.line(text.count("\n", 0, offset))
    column = offset - text.rfind("\n", 0, offset)
    return line.number, line.column + column, line.cell


def document_offset(region: Region, offset: int) -> int:
    """The offset in ``Source.text`` of *offset* in the region."""
    return offset if region.layout is None else region.layout.place(offset)


def document_position(source: Source, region: Region, offset: int) -> tuple[int, int]:
    """The line and column (both 1-based) of *offset* in the file itself: in a notebook, of the JSON text."""
    place = document_offset(region, offset)
    text = source.text
    before = text.count("\n", 0, place)
    if text.find("\r", 0, place) >= 0:
        before += text.count("\r", 0, place) - text.count("\r\n", 0, place)
    start = max(text.rfind("\n", 0, place), text.rfind("\r", 0, place))
    return before + 1, place - start


def document_edits(region: Region, edits: Sequence[Edit]) -> list[Edit]:
    """*edits* of the region as edits of ``Source.text``, in order; raises `EditError` where that is not possible."""
    if not edits:
        return []
    if not region.fixable:
        raise EditError("this part of the file is not rewritten")
    sorted_edits = ordered(edits, len(region.text))
    return sorted_edits if region.layout is None else region.layout.document_edits(sorted_edits)


def apply_edits(source: Source, region: Region, edits: Sequence[Edit]) -> bytes:
    """The bytes of the file with *edits* of *region* written back.

    Raises `EditError` where they cannot be written: they overlap, touch a magic line or the border between two blocks,
    or hold a character that the file's encoding lacks.
    """
    return apply_region_edits(source, [(region, edits)])


def apply_region_edits(source: Source, changes: Sequence[tuple[Region, Sequence[Edit]]]) -> bytes:
    """The bytes of the file with edits of several of its regions written back; raises `EditError` as `apply_edits`."""
    changes = [(region, edits) for region, edits in changes if edits]
    if not changes:
        return source.raw
    edits = [edit for region, region_edits in changes for edit in document_edits(region, region_edits)]
    text = edited(source.text, edits)
    try:
        body = text.encode(source.encoding)
    except UnicodeError as error:
        raise EditError(f"the new text cannot be written in the file's encoding, {source.encoding}") from error
    raw = codecs.BOM_UTF8 + body if source.bom else body
    if any(region.kind != "module" for region, _ in changes):
        _verify(source, changes, raw)
    elif "\r" in source.text:
        every = [edit for _, region_edits in changes for edit in region_edits]
        if _module(text).regions[0].text != edited(changes[0][0].text, every):
            raise EditError("the edit would join two halves of different newlines")
    return raw


def _verify(source: Source, changes: Sequence[tuple[Region, Sequence[Edit]]], raw: bytes) -> None:
    """Raise `EditError` unless *raw*, read again, holds the edited regions and the other ones unchanged."""
    expected = []
    for region in source.regions:
        edits = [edit for changed, changed_edits in changes if changed is region for edit in changed_edits]
        expected.append((region.kind, edited(region.text, edits)))
    again = parse(source.path, raw, docstrings=source.docstrings, fix_docstrings=source.fix_docstrings)
    found = [(region.kind, region.text) for region in again.regions]
    # Docstrings that were not wanted are found here, and only here.
    unread = iter(_inked(found))
    if not all(lines in unread for lines in _inked(expected)):
        raise EditError("the edited text would not be read back from the file as it was written")


def _inked(regions: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The lines that are not blank of each region that has any: an emptied block may leave a blank line or vanish.

    The region of a module is the whole document, examples in its docstrings included, and needs no comparison.
    """
    lines = [[line for line in text.split("\n") if line.strip()] for kind, text in regions if kind != "module"]
    return [inked for inked in lines if inked]


def _module(text: str) -> Extraction:
    if "\r" not in text:
        return Extraction((Region(text),))
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    return Extraction((Region(normal, layout=NewlineLayout(normal, text)),))


def _declared_encoding(raw: bytes) -> str:
    """The encoding that a coding cookie names (PEP 263); raises SyntaxError where it names none that Python knows."""
    import io
    import tokenize

    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _decoded(body: bytes, encoding: str) -> str:
    if encoding == "utf-8":
        return body.decode("utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return body.decode(encoding)


def _round_trips(text: str, encoding: str, body: bytes) -> bool:
    try:
        return text.encode(encoding) == body
    except UnicodeError:
        return False


def _undecodable(body: bytes, error: UnicodeError) -> SourceError:
    if not isinstance(error, UnicodeDecodeError):
        return SourceError(f"cannot be decoded: {error}")
    line = body.count(b"\n", 0, error.start) + 1
    wrong = body[error.start]
    return SourceError(f"byte 0x{wrong:02x} is not valid {error.encoding} (no encoding cookie says otherwise)", line)


def _dominant_newline(text: str) -> str:
    if "\r" not in text:
        return "\n"
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=lambda newline: counts[newline])
