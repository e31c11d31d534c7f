"""Lines of a document to blocks of Python: no prompts, no common indent, magics replaced, other things left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvlint.carriers.lines import Block, BlockLine
from kvlint.carriers.magics import masked
from kvlint.carriers.parsing import parses

_DOCTEST = re.compile(r"(?P<prompt>[ \t]*(?:>>>|\.\.\.))(?: |$)")
_DOCTEST_START = re.compile(r"[ \t]*>>>(?: |$)")
_IPYTHON = re.compile(r"(?P<prompt>[ \t]*(?:In ?\[[ \d]*\]:|\.{3,}:))(?: |$)")
_IPYTHON_START = re.compile(r"[ \t]*In ?\[[ \d]*\]:(?: |$)")


@dataclass(frozen=True, slots=True)
class Taken:
    """What `python_blocks` made of some lines: blocks, and the index of the first line of what it left out."""

    blocks: tuple[Block, ...] = ()
    skipped: tuple[int, ...] = ()


def python_blocks(lines: Sequence[BlockLine], prefix: str = "", *, prompts: bool = False) -> Taken:
    """The Python in *lines*, of which *prefix* has been taken off; with *prompts*, only what stands behind prompts."""
    first = next((line for line in lines if line.text.strip()), None)
    if first is None:
        return Taken()
    if prompts or _DOCTEST_START.match(first.text):
        return doctest_blocks(lines, prefix)
    if _IPYTHON_START.match(first.text):
        return _ipython_blocks(lines, prefix)
    block = python_block(lines, prefix)
    if block is not None:
        return Taken((block,))
    if any(_DOCTEST_START.match(line.text) for line in lines):
        return doctest_blocks(lines, prefix)
    return Taken(skipped=(lines[0].index,))


def python_block(lines: Sequence[BlockLine], prefix: str = "") -> Block | None:
    """*lines* as one block without their common indent and with magics replaced; None where that is not Python."""
    first = next((line.text for line in lines if line.text.strip()), "")
    if first[:1] in (" ", "\t"):
        lines, indent = _dedented(lines)
        prefix += indent
    block = Block(tuple(lines), prefix)
    if parses(block.text):
        return block
    replaced = []
    for line, mask in zip(lines, masked([line.text for line in lines]), strict=True):
        changed = line.masked or mask.changed
        replaced.append(replace(line, strip=line.strip + mask.strip, text=mask.text, masked=changed))
    block = Block(tuple(replaced), prefix)
    return block if parses(block.text) else None


def _dedented(lines: Sequence[BlockLine]) -> tuple[list[BlockLine], str]:
    indents = [line.text[: len(line.text) - len(line.text.lstrip(" \t"))] for line in lines if line.text.strip()]
    common = min(indents, key=len)
    while not all(indent.startswith(common) for indent in indents):
        common = common[:-1]
    result = []
    for line in lines:
        if line.text.startswith(common):
            result.append(replace(line, strip=line.strip + len(common), text=line.text[len(common) :]))
        else:
            result.append(replace(line, strip=line.strip + len(line.text), text=""))
    return result, common


def doctest_blocks(lines: Sequence[BlockLine], prefix: str = "") -> Taken:
    """The examples behind ``>>>`` prompts in *lines*, expected output dropped, each that is not Python left out."""
    examples: list[list[BlockLine]] = []
    prompts: list[str] = []
    open_example = False
    for line in lines:
        match = _DOCTEST.match(line.text)
        if match is not None and match["prompt"].endswith(">>>"):
            examples.append([])
            prompts.append(match["prompt"])
            open_example = True
        elif match is None or not open_example or len(match["prompt"]) != len(prompts[-1]):
            if open_example and line.text.strip():
                examples[-1][-1] = replace(examples[-1][-1], answered=True)
            open_example = False
            continue
        width = match.end()
        examples[-1].append(replace(line, strip=line.strip + width, text=line.text[width:]))
    kept: list[tuple[list[BlockLine], str]] = []
    skipped: list[int] = []
    for example, prompt in zip(examples, prompts, strict=True):
        magic_free = python_block(example)
        if magic_free is None:
            skipped.append(example[0].index)
        else:
            kept.append((list(magic_free.lines), prompt))
    blocks = []
    run: list[BlockLine] = []
    for number, (example, prompt) in enumerate(kept):
        run += example
        following = kept[number + 1] if number + 1 < len(kept) else None
        if following is None or following[1] != prompt or following[0][0].index != example[-1].index + 1:
            indent = prefix + prompt[:-3]
            blocks.append(Block(tuple(run), f"{indent}>>> ", f"{indent}... "))
            run = []
    return Taken(tuple(blocks), tuple(skipped))


def _ipython_blocks(lines: Sequence[BlockLine], prefix: str) -> Taken:
    """The inputs behind ``In [1]:`` prompts in *lines*."""
    cells: list[list[BlockLine]] = []
    prompts: list[str] = []
    open_cell = False
    for line in lines:
        match = _IPYTHON.match(line.text)
        if match is not None and _IPYTHON_START.match(line.text):
            cells.append([])
            prompts.append(match["prompt"])
            open_cell = True
        elif match is None or not open_cell:
            if open_cell and line.text.strip():
                cells[-1][-1] = replace(cells[-1][-1], answered=True)
            open_cell = False
            continue
        width = match.end()
        cells[-1].append(replace(line, strip=line.strip + width, text=line.text[width:]))
    blocks = []
    skipped = []
    for cell, prompt in zip(cells, prompts, strict=True):
        block = python_block(cell)
        if block is None:
            skipped.append(cell[0].index)
        else:
            blocks.append(replace(block, prefix=prefix + "...:".rjust(len(prompt)) + " "))
    return Taken(tuple(blocks), tuple(skipped))
