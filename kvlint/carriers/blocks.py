"""Lines of a document to blocks of Python: no prompts, no common indent, magics replaced, other things left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvlint.carriers.lines import Block, BlockLine
from kvlint.carriers.magics import masked
from kvlint.carriers.parsing import parses

_DOCTEST = re.compile(r"(?P<prompt>[ \t]*(?:>>>|\.\.\.))(?: |$)")
# How many lines with a prompt each are tried as one statement.
_LONGEST_STATEMENT = 40
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


@dataclass(slots=True)
class _Example:
    """The lines of one example behind its *prompt*, and the lines of output below them."""

    prompt: str
    lines: list[BlockLine]
    output: list[BlockLine]

    def with_output(self, count: int) -> list[BlockLine]:
        """The example's lines and *count* of those below, for statements that go on without a prompt."""
        indent = len(self.prompt) - 3
        below = []
        for line in self.output[:count]:
            strip = min(indent, len(line.text) - len(line.text.lstrip(" \t")))
            below.append(replace(line, strip=line.strip + strip, text=line.text[strip:]))
        return self.lines + below


def doctest_blocks(lines: Sequence[BlockLine], prefix: str = "") -> Taken:
    """The examples behind ``>>>`` prompts in *lines*, expected output dropped, each that is not Python left out."""
    blocks: list[Block] = []
    skipped: list[int] = []
    examples = _examples(lines)
    first = 0
    while first < len(examples):
        prompt = examples[first].prompt
        end = first + 1
        while end < len(examples) and examples[end].prompt == prompt and _adjacent(examples[end - 1], examples[end]):
            end += 1
        kept, left_out = _parsing_runs(examples[first:end])
        indent = prefix + prompt[:-3]
        blocks += (Block(run, f"{indent}>>> ", f"{indent}... ") for run in kept)
        skipped += left_out
        first = end
    return Taken(tuple(blocks), tuple(skipped))


def _examples(lines: Sequence[BlockLine]) -> list[_Example]:
    examples: list[_Example] = []
    is_open = False
    for line in lines:
        match = _DOCTEST.match(line.text)
        width = 0 if match is None else match.end()
        code = replace(line, strip=line.strip + width, text=line.text[width:])
        if match is not None and match["prompt"].endswith(">>>"):
            examples.append(_Example(match["prompt"], [code], []))
            is_open = True
        elif is_open and match is not None and len(match["prompt"]) == len(examples[-1].prompt):
            examples[-1].lines.append(code)
        elif examples:
            is_open = False
            examples[-1].output.append(line)
    for example in examples:
        if example.output and example.output[0].text.strip():
            example.lines[-1] = replace(example.lines[-1], answered=True)
    return examples


def _adjacent(before: _Example, after: _Example) -> bool:
    return after.lines[0].index == before.lines[-1].index + 1


def _parsing_runs(examples: list[_Example]) -> tuple[list[tuple[BlockLine, ...]], list[int]]:
    """Runs of *examples*, which follow each other, that are Python, and the first lines of what is left out."""
    whole = python_block([line for example in examples for line in example.lines])
    if whole is not None:
        return [whole.lines], []
    runs: list[tuple[BlockLine, ...]] = []
    skipped: list[int] = []
    first = 0
    while first < len(examples):
        block, used = _first_statement(examples[first:])
        if block is None:
            skipped.append(examples[first].lines[0].index)
        elif runs and runs[-1][-1].index + 1 == block.lines[0].index:
            runs[-1] += block.lines
        else:
            runs.append(block.lines)
        first += used
    return runs, skipped


def _first_statement(examples: list[_Example]) -> tuple[Block | None, int]:
    """The statement that the first of *examples* begins, and how many of them it takes up.

    Statements of several lines are often written with ``>>>`` on each line, or with a prompt on the first one only.
    """
    for count in range(1, min(_LONGEST_STATEMENT, len(examples)) + 1):
        block = python_block([line for example in examples[:count] for line in example.lines])
        if block is not None:
            return block, count
        last = examples[count - 1]
        for below in range(1, min(_LONGEST_STATEMENT, len(last.output)) + 1):
            lines = [line for example in examples[: count - 1] for line in example.lines]
            block = python_block([*lines, *last.with_output(below)])
            if block is not None:
                return block, count
    return None, 1


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
