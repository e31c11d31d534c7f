"""The parts of the page harness: shapes, comments put on lines, edits applied by hand."""

from __future__ import annotations

import json
from typing import Any

import page_runner
import pytest

TEXT = "if x:\n    y = (\n        1,\n    )\nz = '''\n2'''\n"


def _shape(name: str) -> page_runner.Shape:
    return next(shape for shape in page_runner.SHAPES if shape.name == name)


@pytest.mark.parametrize("shape", page_runner.SHAPES, ids=lambda shape: shape.name)
def test_lines_lie_where_the_shape_says(shape: page_runner.Shape) -> None:
    data = shape.build(TEXT)
    text = data.decode("utf-8-sig")
    if shape.cell is not None:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "".join(cells[shape.cell - 1]["source"])
    lines = text.splitlines()
    for number, line in enumerate(TEXT.splitlines(), shape.first_line):
        assert lines[number - 1].strip() == line.strip()


def test_shapes_differ_in_bytes() -> None:
    built = [shape.build(TEXT) for shape in page_runner.SHAPES]
    assert len(set(built)) == len(built)
    assert _shape("crlf").build(TEXT).count(b"\r\n") == TEXT.count("\n")
    assert b"\n\ty = (\n\t\t1," in _shape("tabs").build(TEXT)


@pytest.mark.parametrize(
    ("line", "lines"), [(1, [1]), (2, [2, 3, 4]), (3, [2, 3, 4]), (4, [2, 3, 4]), (5, [5, 6]), (6, [5, 6])]
)
def test_lines_of_a_statement(line: int, lines: list[int]) -> None:
    assert list(page_runner.statement_lines(TEXT, line)) == lines


def test_lines_of_a_head() -> None:
    text = "@a\n@b(\n)\ndef f(\n    x,\n):\n    return 1\n\n\nclass C: pass\n"
    assert list(page_runner.statement_lines(text, 5)) == [1, 2, 3, 4, 5, 6]
    assert list(page_runner.statement_lines(text, 7)) == [7]
    assert list(page_runner.statement_lines(text, 10)) == [10]


def test_comments_go_on_the_line_or_behind_the_statement() -> None:
    assert page_runner.with_comments(TEXT, {1: "# a", 3: "# b", 5: "# c"}) == (
        "if x:  # a\n    y = (\n        1,  # b\n    )\nz = '''\n2'''  # c\n"
    )
    assert page_runner.with_comments("a = 1 + \\\n    2\n", {1: "# a"}) == "a = 1 + \\\n    2  # a\n"


def _finding(*edits: tuple[int, int, int, int, str], applicability: str = "safe") -> dict[str, Any]:
    names = ("start_line", "start_column", "end_line", "end_column", "text")
    fix = {"applicability": applicability, "edits": [dict(zip(names, edit, strict=True)) for edit in edits]}
    return {"fix": fix}


def test_edits_are_applied_by_hand() -> None:
    found = [
        {"fix": None},
        _finding((1, 1, 1, 2, "abc"), (2, 1, 3, 1, "")),
        _finding((1, 2, 1, 3, "overlaps")),
        _finding((3, 1, 3, 2, "unsafe"), applicability="unsafe"),
        _finding((4, 1, 4, 1, "new\n")),
    ]
    assert page_runner.apply_by_hand("a b\nc\nd\n", found, frozenset({"safe"})) == "abc b\nd\nnew\n"
    assert page_runner.apply_by_hand("a b\nc\nd\n", found[3:], frozenset({"safe", "unsafe"})) == (
        "a b\nc\nunsafe\nnew\n"
    )


def test_same_edit_of_two_findings_is_applied_once() -> None:
    found = [
        _finding((1, 1, 1, 1, "import x\n"), (2, 1, 2, 2, "B")),
        _finding((1, 1, 1, 1, "import x\n"), (3, 1, 3, 2, "C")),
    ]
    assert page_runner.apply_by_hand("a\nb\nc\n", found, frozenset({"safe"})) == "import x\na\nB\nC\n"
