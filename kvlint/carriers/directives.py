"""Python in reStructuredText: code directives and doctest blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from kvlint.carriers.blocks import doctest_blocks, python_blocks
from kvlint.carriers.fences import PYTHON
from kvlint.carriers.lines import Block, BlockLine, HostLine

_DIRECTIVE = re.compile(
    r"(?P<indent>[ \t]*)\.\.[ ]+"
    r"(?P<name>code-block|code|sourcecode|code-cell|ipython|testcode|testsetup|jupyter-execute)"
    r"::[ \t]*(?P<argument>[\w.+-]*)"
)
# A comment begins with two dots and is no directive, target, footnote or substitution.
_COMMENT = re.compile(r"(?P<indent>[ \t]*)\.\.(?:[ \t]+(?![\w:+.-]+::|_|\[|\|).*)?$")
_OPTION = re.compile(r"[ \t]*:[\w-]+:")
# Directives that hold Python without an argument that says so.
_WITHOUT_ARGUMENT = frozenset({"ipython", "testcode", "testsetup", "jupyter-execute"})


def directive_blocks(lines: Sequence[HostLine], taken: Set[int] = frozenset()) -> tuple[list[Block], list[int]]:
    """The Python blocks in *lines* and the first lines of what was left out; the lines *taken* are not looked at."""
    texts = ["" if index in taken else line.text for index, line in enumerate(lines)]
    blocks: list[Block] = []
    skipped: list[int] = []
    index = 0
    loose: list[BlockLine] = []
    while index < len(texts):
        directive = _DIRECTIVE.match(texts[index])
        comment = None if directive else _COMMENT.match(texts[index])
        opener = directive or comment
        if opener is None:
            loose.append(BlockLine(index, 0, texts[index]))
            index += 1
            continue
        end = _body_end(texts, index + 1, len(opener["indent"].expandtabs()))
        if directive is not None:
            argument = directive["argument"].lower()
            if argument in PYTHON or (directive["name"] in _WITHOUT_ARGUMENT):
                body = _body(texts, index + 1, end)
                found = python_blocks(body)
                blocks += found.blocks
                skipped += found.skipped
        loose.append(BlockLine(index, 0, ""))
        index = end
    examples = doctest_blocks(loose)
    blocks += examples.blocks
    skipped += examples.skipped
    blocks.sort(key=lambda block: block.lines[0].index)
    return blocks, sorted(skipped)


def _body_end(texts: Sequence[str], index: int, indent: int) -> int:
    """The line behind the lines that are indented deeper than *indent*, blank lines at their end not counted."""
    end = index
    while index < len(texts):
        text = texts[index]
        if text.strip():
            if len(text) - len(text.lstrip(" \t")) <= indent:
                break
            end = index + 1
        index += 1
    return end


def _body(texts: Sequence[str], index: int, end: int) -> list[BlockLine]:
    while index < end and (_OPTION.match(texts[index]) or not texts[index].strip()):
        index += 1
    return [BlockLine(number, 0, texts[number]) for number in range(index, end)]
