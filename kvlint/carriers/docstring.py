"""Examples in docstrings: prompts, Markdown fences and code directives, one region for each docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kvlint.carriers.directives import directive_blocks
from kvlint.carriers.fences import fence_blocks
from kvlint.carriers.lines import Block, BlockLine, HostLine, block_text, host_lines, region_of
from kvlint.carriers.parsing import literal_value, parsed
from kvlint.carriers.regions import EXAMPLE_MARKS, NEWLINE, Extraction, Line, Region, Skipped

_LAST = re.compile(r"[ \t\f]*(?:[;#\r\n]|$)")
_HEADER = re.compile(r"[ \t\f]*(?:async[ \t]+def|def|class)\b")
# A word that looks like a header may stand in a comment or a string of the real one.
_HEADERS_TRIED = 3
_PREFIXES = ("r", "R", "u", "U")
# What can hide a quote: comments and strings. Strings of one line end with it even where a quote is missing.
_TOKEN = re.compile(
    r"#[^\r\n]*|(?P<quotes>\"\"\"|''')|\"[^\"\\\r\n]*(?:\\.[^\"\\\r\n]*)*\"|'[^'\\\r\n]*(?:\\.[^'\\\r\n]*)*'"
)


@dataclass(frozen=True, slots=True)
class _String:
    """A triple-quoted string that stands alone: ``document[begin:end]``, quotes and prefix included.

    *body* is the offset behind the opening quotes; nothing but comments is in front of a string that *leads*.
    """

    begin: int
    body: int
    end: int
    leads: bool


def extract_docstrings(document: str, *, fixable: bool, wanted: Callable[[str], bool] | None = None) -> Extraction:
    """The docstrings of the module *document* that hold Python; *fixable* lets them be rewritten.

    Of those only the ones whose examples are *wanted*, by default all. The module is not parsed, which would take
    longer than everything else here, only the headers above the strings in question. Left out are strings in single
    quotes, docstrings of several literals, and those whose escapes change the number of lines.
    """
    regions = []
    skipped: list[Skipped] = []
    for string in _strings(document):
        text = document[string.begin : string.end]
        if not any(mark in text for mark in EXAMPLE_MARKS) or (wanted is not None and not wanted(text)):
            continue
        if not (string.leads or _heads_a_body(document, string.begin)):
            continue
        number = len(NEWLINE.findall(document, 0, string.begin)) + 1
        region, left_out = _examples(document, string, number, fixable)
        skipped += left_out
        if region is not None and (wanted is None or wanted(region.text)):
            regions.append(region)
    return Extraction(tuple(regions), skipped=tuple(skipped))


def _strings(document: str) -> Iterator[_String]:
    """The triple-quoted strings in *document* with nothing else, or a header, on their first and last line."""
    place = 0
    leads = True
    while (token := _TOKEN.search(document, place)) is not None:
        leads = leads and document[place : token.start()].strip(" \t\f\r\nrRuU") == ""
        place = token.end()
        quotes = token["quotes"]
        if quotes is None:
            leads = leads and token.group().startswith("#")
            continue
        end = document.find(quotes, place)
        while end >= 0 and _escaped(document, end, place):
            end = document.find(quotes, end + 1)
        if end < 0:
            return
        body, place = place, end + len(quotes)
        begin = token.start()
        if document[begin - 1 : begin] in _PREFIXES:
            begin -= 1
        line = max(document.rfind("\n", 0, begin), document.rfind("\r", 0, begin)) + 1
        if document[line:begin].rstrip(" \t\f")[-1:] in ("", ":") and _LAST.match(document, place):
            yield _String(begin, body, place, leads)
        leads = False


def _escaped(document: str, end: int, start: int) -> bool:
    """Whether a backslash takes the meaning of the quote at *end*, in a string that begins at *start*."""
    before = document[start:end]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _examples(document: str, string: _String, number: int, fixable: bool) -> tuple[Region | None, tuple[Skipped, ...]]:
    """The region of the docstring that begins on the line *number*, and what was left out of it."""
    value = literal_value(document[string.begin : string.end])
    body = host_lines(document, string.body, string.end - 3)
    meant = value.split("\n") if value is not None else []
    if len(body) != len(meant):
        return None, ()
    # Examples are looked for in the text as Python sees it; a line that is written otherwise is not rewritten.
    seen = [replace(line, text=text) for line, text in zip(body, meant, strict=True)]
    blocks, skipped, found = fence_blocks(seen)
    taken = {index for fence in found for index in range(fence.first - 1, fence.last + 1)}
    more, more_skipped = directive_blocks(seen, taken)
    every = sorted([*blocks, *more], key=lambda block: block.lines[0].index)
    left_out = tuple(
        Skipped(Line(number + index), "this example is not Python", block_text(seen, index))
        for index in (*skipped, *more_skipped)
    )
    if not every:
        return None, left_out
    marked = [_marked(block, body, seen) for block in every]
    column = string.body - 1 - max(document.rfind("\n", 0, string.body), document.rfind("\r", 0, string.body))

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


def _heads_a_body(document: str, begin: int) -> bool:
    """Whether the string at *begin* is the first statement in the body of a class or a function."""
    end = begin
    for _ in range(_HEADERS_TRIED):
        found = max(document.rfind("def ", 0, end), document.rfind("class ", 0, end))
        if found < 0:
            return False
        start = max(document.rfind("\n", 0, found), document.rfind("\r", 0, found)) + 1
        header = document[start:begin]
        if _HEADER.match(header):
            # The header alone, with the string's place taken by another statement, must be all there is.
            indent = header[: len(header) - len(header.lstrip(" \t\f"))]
            tree = parsed(f"if 1:\n{header}pass" if indent else f"{header}pass")
            body = tree.body if tree is not None else []
            while body and isinstance(body[0], ast.If):
                body = body[0].body
            if len(body) == 1 and isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return [type(statement) for statement in body[0].body] == [ast.Pass]
        end = found
    return False
