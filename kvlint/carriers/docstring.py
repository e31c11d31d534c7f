"""Examples in docstrings: prompts, Markdown fences and code directives, one region for each docstring."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from kvlint.carriers.directives import directive_blocks
from kvlint.carriers.fences import fence_blocks
from kvlint.carriers.lines import Block, BlockLine, HostLine, host_lines, region_of
from kvlint.carriers.parsing import parsed
from kvlint.carriers.regions import EXAMPLE_MARKS, NEWLINE, Extraction, Line, Region, Skipped

_LITERAL = re.compile(r"(?P<prefix>[rRuU]?)(?P<quotes>\"\"\"|'''|\"|')")


def extract_docstrings(document: str, *, fixable: bool) -> Extraction:
    """The docstrings of the module *document* that hold Python; *fixable* lets them be rewritten.

    A module that does not parse has none. Left out are docstrings of several literals, and those whose escapes change
    the number of lines.
    """
    tree = parsed(document)
    if tree is None:
        return Extraction()
    starts = [0, *(match.end() for match in NEWLINE.finditer(document))]
    regions: list[Region] = []
    skipped: list[Skipped] = []
    for node in _docstrings(tree):
        value = node.value
        if not isinstance(value, str) or not any(mark in value for mark in EXAMPLE_MARKS):
            continue
        begin = _offset(document, starts, node.lineno, node.col_offset)
        end = _offset(document, starts, node.end_lineno or node.lineno, node.end_col_offset or 0)
        literal = _LITERAL.match(document, begin)
        if literal is None:
            continue
        quotes = len(literal["quotes"])
        body = host_lines(document, literal.end(), end - quotes)
        meant = value.split("\n")
        if len(body) != len(meant) or document[end - quotes : end] != literal["quotes"]:
            continue
        # Examples are looked for in the text as Python sees it; a line that is written otherwise is not rewritten.
        seen = [replace(line, text=text) for line, text in zip(body, meant, strict=True)]
        column = literal.end() - starts[node.lineno - 1]
        region, left_out = _examples(document, body, seen, node.lineno, fixable, column)
        skipped += left_out
        if region is not None:
            regions.append(region)
    return Extraction(tuple(regions), skipped=tuple(skipped))


def _examples(
    document: str, body: list[HostLine], seen: list[HostLine], number: int, fixable: bool, column: int
) -> tuple[Region | None, list[Skipped]]:
    blocks, skipped, found = fence_blocks(seen)
    taken = {index for fence in found for index in range(fence.first - 1, fence.last + 1)}
    more, more_skipped = directive_blocks(seen, taken)
    every = sorted([*blocks, *more], key=lambda block: block.lines[0].index)
    left_out = [Skipped(Line(number + index), "this example is not Python") for index in (*skipped, *more_skipped)]
    if not every:
        return None, left_out
    marked = [_marked(block, body, seen) for block in every]

    def line_of(line: BlockLine) -> Line:
        return Line(number + line.index, line.strip if line.index else line.strip + column)

    return region_of("docstring", document, body, marked, fixable=fixable, line_of=line_of), left_out


def _marked(block: Block, body: list[HostLine], seen: list[HostLine]) -> Block:
    """*block* with the lines masked that are not written in the file as they are meant."""
    lines = []
    for line in block.lines:
        written = body[line.index].text == seen[line.index].text
        lines.append(line if written else replace(line, masked=True))
    return replace(block, lines=tuple(lines))


def _docstrings(tree: ast.Module) -> list[ast.Constant]:
    """The strings that stand alone as a statement, as docstrings do, in the order of the file."""
    result = []
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            body = getattr(node, name, None)
            for statement in body if isinstance(body, list) else ():
                if not isinstance(statement, ast.Expr):
                    waiting.append(statement)
                elif isinstance(statement.value, ast.Constant):
                    result.append(statement.value)
    return sorted(result, key=lambda node: (node.lineno, node.col_offset))


def _offset(document: str, starts: list[int], line: int, column: int) -> int:
    """The offset of a position as ``ast`` gives it: 1-based line, column in bytes of UTF-8."""
    start = starts[line - 1]
    text = document[start : start + column]
    if text.isascii():
        return start + column
    return start + len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
