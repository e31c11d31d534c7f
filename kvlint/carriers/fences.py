"""Fenced code blocks of Markdown: which lines are Python, and what stands in front of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvlint.carriers.blocks import python_blocks
from kvlint.carriers.lines import Block, BlockLine, HostLine

# Languages of fences and of reStructuredText directives; consoles are told by their prompts.
PYTHON = frozenset(
    {"python", "py", "python3", "py3", "ipython", "ipython3"}
    | {"pycon", "pycon3", "python-console", "python-repl", "doctest"}
)
# MyST and Quarto directives whose first argument is the language.
_DIRECTIVES = frozenset({"code-cell", "code-block", "code", "sourcecode"})
_PYTHON_DIRECTIVES = frozenset({"jupyter-execute", "testcode", "testsetup", "doctest", "exec-python"})

_CONTAINER = r"[ \t]*(?:>[ ]?|(?:[-*+]|\d{1,9}[.)])[ \t]+)"
_OPENING = re.compile(rf"(?P<prefix>(?:{_CONTAINER})*[ \t]*)(?P<fence>`{{3,}}|~{{3,}})(?P<info>.*)$")
_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t])")
_OPTION = re.compile(r"[ \t]*:[\w-]+:")


@dataclass(frozen=True, slots=True)
class Fence:
    """The lines ``first`` to ``last`` (exclusive) of a fence's content; *prefix* stands in front of each."""

    info: str
    prefix: str
    first: int
    last: int


def fences(lines: Sequence[str]) -> list[Fence]:
    """The fences in *lines*, those in HTML comments left out; one that is not closed ends with its container."""
    result = []
    index = 0
    comment_end = ""
    while index < len(lines):
        line = lines[index]
        index += 1
        if comment_end:
            if comment_end in line:
                comment_end = ""
            continue
        stripped = line.lstrip(" \t>")
        for opening, closing in (("<!--", "-->"), ("{/*", "*/}")):
            if stripped.startswith(opening) and closing not in stripped[len(opening) :]:
                comment_end = closing
        match = None if comment_end else _OPENING.match(line)
        if match is None or (match["fence"][0] == "`" and "`" in match["info"]):
            continue
        prefix = _MARKER.sub(lambda marker: " " * len(marker.group()), match["prefix"])
        end = index
        closed = False
        while end < len(lines):
            strip = _strip(lines[end], prefix)
            if strip is None:
                break
            if _closes(lines[end][strip:], match["fence"]):
                closed = True
                break
            end += 1
        result.append(Fence(match["info"].strip(), prefix, index, end))
        index = end + 1 if closed else end
    return result


def _strip(line: str, prefix: str) -> int | None:
    """How many characters of *line* belong to *prefix*; None where the line is outside of its block quote."""
    place = 0
    quotes = prefix.count(">")
    for _ in range(quotes):
        match = re.compile(r"[ \t]*>").match(line, place)
        if match is None:
            return None
        place = match.end()
    indent = prefix.rpartition(">")[2]
    end = min(len(line), place + len(indent))
    while place < end and line[place] in " \t":
        place += 1
    return place


def _closes(text: str, fence: str) -> bool:
    stripped = text.strip(" \t")
    indent = len(text) - len(text.lstrip(" \t"))
    return indent <= 3 and len(stripped) >= len(fence) and not stripped.strip(fence[0])


def is_python(info: str) -> bool:
    """Whether the info string of a fence says that it holds Python, or a Python console."""
    words = info.lower().split(None, 1)
    if not words:
        return False
    first, rest = words[0], words[1] if len(words) > 1 else ""
    if first.startswith("{"):
        name, _, after = first[1:].partition("}")
        name = re.split(r"[,\s#]", name, maxsplit=1)[0].lstrip(".")
        if name in _DIRECTIVES:
            name = re.split(r"[\s{,:]", after or rest, maxsplit=1)[0]
        return name in PYTHON or name in _PYTHON_DIRECTIVES
    return re.split(r"[{,:;=(\[]", first, maxsplit=1)[0] in PYTHON


def fence_blocks(lines: Sequence[HostLine]) -> tuple[list[Block], list[int], list[Fence]]:
    """The Python blocks of the fences in *lines*, the first lines of what was left out, and all fences."""
    texts = [line.text for line in lines]
    blocks: list[Block] = []
    skipped: list[int] = []
    found = fences(texts)
    for fence in found:
        if not is_python(fence.info):
            continue
        first = fence.first
        if fence.info.startswith("{"):
            first = _after_options(texts, fence)
        content = []
        for index in range(first, fence.last):
            strip = _strip(texts[index], fence.prefix) or 0
            content.append(BlockLine(index, strip, texts[index][strip:]))
        taken = python_blocks(content, fence.prefix)
        blocks += taken.blocks
        skipped += taken.skipped
    return blocks, skipped, found


def _after_options(texts: Sequence[str], fence: Fence) -> int:
    """The first line behind a directive's options (``:key: value`` lines, or YAML between two ``---`` lines)."""
    index = fence.first
    if index < fence.last and texts[index].strip() == "---":
        for end in range(index + 1, fence.last):
            if texts[end].strip() == "---":
                return end + 1
    while index < fence.last and _OPTION.match(texts[index]):
        index += 1
    return index
