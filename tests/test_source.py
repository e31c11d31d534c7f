"""Reading bytes into regions, positions, and writing edits back: plain modules and what all carriers share."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlint import source
from kvlint.findings import Edit

MODULE = Path("module.py")
SUFFIXES = (".py", ".ipynb", ".md", ".rst", ".json", "", ".mdx", ".txt")


def parse(text: str | bytes, path: str = "module.py", **settings: bool) -> source.Source:
    raw = text.encode() if isinstance(text, str) else text
    return source.parse(Path(path), raw, **settings)


def region_of(found: source.Source) -> source.Region:
    return found.regions[0]


def replaced(found: source.Source, old: str, new: str) -> bytes:
    region = region_of(found)
    start = region.text.index(old)
    return source.apply_edits(found, region, [Edit(start, start + len(old), new)])


def test_plain_module_is_its_own_region() -> None:
    found = parse("a = 1\nb = 2\n")
    region = region_of(found)
    assert (region.text, region.kind, region.fixable) == ("a = 1\nb = 2\n", "module", True)
    assert (found.encoding, found.newline, found.bom, found.errors) == ("utf-8", "\n", False, ())
    assert [line.number for line in region.lines] == [1, 2, 3]
    assert source.position(region, region.text.index("2")) == (2, 5, None)
    assert region.text is found.text  # nothing is copied on the common path


def test_byte_order_mark_is_no_text_and_stays() -> None:
    found = parse(codecs.BOM_UTF8 + b"a = 1\n")
    assert found.bom
    assert region_of(found).text == "a = 1\n"
    assert source.position(region_of(found), 0) == (1, 1, None)
    assert replaced(found, "1", "2") == codecs.BOM_UTF8 + b"a = 2\n"


def test_encoding_cookie() -> None:
    raw = "# -*- coding: latin-1 -*-\nname = 'é'  # ü\nx = 1\n".encode("latin-1")
    found = parse(raw)
    assert found.encoding == "iso-8859-1"
    assert "'é'" in region_of(found).text
    assert replaced(found, "x = 1", "x = 'ö'") == raw.replace(b"x = 1", b"x = '\xf6'")
    with pytest.raises(source.EditError, match="iso-8859-1"):
        replaced(found, "x = 1", "x = '→'")


def test_encoding_that_does_not_round_trip_is_never_rewritten() -> None:
    raw = b"# coding: utf-7\nx = 1 +AGE-\n"
    found = parse(raw)
    assert not region_of(found).fixable
    with pytest.raises(source.EditError):
        replaced(found, "x", "y")


@pytest.mark.parametrize(
    ("raw", "message", "line"),
    [
        (b"a = 1\nb = '\xff'\n", "byte 0xff is not valid utf-8", 2),
        (b"a = 1\nb = 2\n\0\n", "holds a NUL byte", 3),
        (b"# coding: no-such-codec\na = 1\n", "no-such-codec", 1),
        (b"# coding: rot13\na = 1\n", "rot13", 1),
        ("a = 1\n".encode("utf-16"), "byte 0xff", 1),
    ],
)
def test_unreadable_content_is_an_error_entry(raw: bytes, message: str, line: int) -> None:
    found = parse(raw)
    assert found.regions == ()
    assert [(message in error.message, error.line) for error in found.errors] == [(True, line)]
    assert found.raw == raw


def test_missing_file_is_an_error_entry(tmp_path: Path) -> None:
    found = source.read(tmp_path / "none.py")
    assert found.regions == ()
    assert "cannot be read" in found.errors[0].message


def test_read_takes_bytes_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"#!/usr/bin/env python3\r\nx = 1\r\n")
    found = source.read(path)
    assert (found.newline, region_of(found).text) == ("\r\n", "#!/usr/bin/env python3\nx = 1\n")


@pytest.mark.parametrize(
    ("head", "python"),
    [
        (b"#!/usr/bin/env python3\nx", True),
        (b"#!/usr/bin/python3.11 -u\n", True),
        (b"#! /usr/bin/env -S uv run --script\n", True),
        (b"#!/usr/bin/env pypy3\r\n", True),
        (b"#!/bin/sh\n# python\n", False),
        (b"# python3\n", False),
        (b"#!/usr/bin/env pythonic\n", False),
        (b"", False),
    ],
)
def test_python_scripts_are_told_by_their_first_line(head: bytes, python: bool) -> None:
    assert source.is_python_script(head) is python


@pytest.mark.parametrize(("newline", "name"), [("\n", "lf"), ("\r\n", "crlf"), ("\r", "cr")])
def test_inserted_newlines_are_those_of_the_file(newline: str, name: str) -> None:
    raw = newline.join(["import a", "x = (1,", "     2)", ""]).encode()
    found = parse(raw)
    assert found.newline == newline, name
    region = region_of(found)
    assert region.text == "import a\nx = (1,\n     2)\n"
    assert source.apply_edits(found, region, [Edit(0, 0, "import b\n")]) == f"import b{newline}".encode() + raw
    at = region.text.index("\nx")
    assert source.apply_edits(found, region, [Edit(at, at, "  # c")]) == raw.replace(b"import a", b"import a  # c")
    assert replaced(found, "(1,\n     2)", "(1,\n     3)") == raw.replace(b"2", b"3")
    assert source.document_position(found, region, region.text.index("2")) == (3, 6)


def test_mixed_newlines_survive_and_an_insertion_takes_its_line_s() -> None:
    raw = b"a = 1\r\nb = 2\nc = 3\rd = 4\r\n"
    found = parse(raw)
    region = region_of(found)
    assert region.text == "a = 1\nb = 2\nc = 3\nd = 4\n"
    at = region.text.index
    edits = [Edit(at("a"), at("a"), "w\n"), Edit(at("b"), at("b"), "x\n"), Edit(at("c"), at("c"), "y\n")]
    assert source.apply_edits(found, region, edits) == b"w\r\na = 1\r\nx\nb = 2\ny\rc = 3\rd = 4\r\n"
    # A replacement of many lines touches the one that differs.
    assert replaced(found, region.text, region.text.replace("3", "33")) == raw.replace(b"3", b"33")
    assert source.document_position(found, region, at("d")) == (4, 1)


def test_last_line_without_newline() -> None:
    assert replaced(parse(b"a\r\nb"), "b", "b\nc") == b"a\r\nb\r\nc"
    assert replaced(parse(b"b"), "b", "b\nc") == b"b\nc"


def test_newlines_are_never_joined_by_a_deletion() -> None:
    with pytest.raises(source.EditError, match="halves"):
        replaced(parse(b"a\rb\nc\n"), "b", "")


def test_form_feeds_and_odd_separators_end_no_line() -> None:
    found = parse("a = 1\n\f\nb = '\x1c\u2028\v'\nc = 3\n")
    region = region_of(found)
    assert source.position(region, region.text.index("c")) == (4, 1, None)
    assert len(region.lines) == 5


def test_edits_are_checked() -> None:
    found = parse("abcdef\n")
    region = region_of(found)
    with pytest.raises(source.EditError, match="overlap"):
        source.apply_edits(found, region, [Edit(0, 3, "x"), Edit(2, 4, "y")])
    with pytest.raises(source.EditError, match="past the end"):
        source.apply_edits(found, region, [Edit(0, 99, "x")])
    assert source.apply_edits(found, region, [Edit(3, 3, "2"), Edit(3, 3, "1"), Edit(3, 4, "D")]) == b"abc21Def\n"


def test_edits_of_several_regions_are_written_together() -> None:
    found = parse('def f():\n    """\n    >>> f(1)\n    """\n    return 1\n', fix_docstrings=True)
    module, example = found.regions
    assert example.kind == "docstring"
    at = module.text.index("return 1")
    raw = source.apply_region_edits(found, [(module, [Edit(at, at + 8, "return 2")]), (example, [Edit(2, 3, "3")])])
    assert raw == b'def f():\n    """\n    >>> f(3)\n    """\n    return 2\n'


@given(st.binary(max_size=200), st.sampled_from(SUFFIXES))
def test_any_bytes_are_read_and_left_as_they_are(raw: bytes, suffix: str) -> None:
    found = parse(raw, f"generation_config{suffix}", fix_docstrings=True)
    assert found.raw == raw
    assert found.regions or found.errors or suffix in (".ipynb", ".md", ".rst", ".json", ".mdx")
    for region in found.regions:
        assert source.apply_edits(found, region, []) == raw
        assert len(region.lines) == region.text.count("\n") + 1


LINE = st.text(alphabet="ab =1#é\t\f\u2028", max_size=8)


@given(st.lists(st.tuples(LINE, st.sampled_from(["\n", "\r\n", "\r"])), max_size=8), st.booleans(), st.data())
def test_only_the_edited_characters_of_a_module_change(
    lines: list[tuple[str, str]], bom: bool, data: st.DataObject
) -> None:
    document = "".join(line + newline for line, newline in lines)
    raw = (codecs.BOM_UTF8 if bom else b"") + document.encode()
    found = parse(raw)
    region = region_of(found)
    start = data.draw(st.integers(0, len(region.text)))
    end = data.draw(st.integers(start, len(region.text)))
    new = data.draw(st.text(alphabet="xyé \n", max_size=6))
    try:
        written = source.apply_edits(found, region, [Edit(start, end, new)])
    except source.EditError as error:
        # Deleting what stands between "\r" and "\n" would make one newline of two.
        assert "halves of different newlines" in str(error)
        assert "\r" in document.replace("\r\n", "")
        return
    assert region_of(parse(written)).text == region.text[:start] + new + region.text[end:]
    head = document[: source.document_offset(region, start)].encode()
    tail = document[source.document_offset(region, end) :].encode()
    body = written.removeprefix(codecs.BOM_UTF8) if bom else written
    assert body.startswith(head)
    assert body.endswith(tail)
