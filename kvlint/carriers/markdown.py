"""Markdown (also MDX, Quarto and R Markdown): the Python fences of a file, joined so that they share imports.

A document that multiplies numbers where it speaks of a cache has one more region: its prose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from kvlint.carriers.fences import Fence, fence_blocks
from kvlint.carriers.lines import Block, BlockLine, HostLine, block_text, host_lines, region_of
from kvlint.carriers.regions import PROSE, Extraction, Line, Region, Skipped

_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".qmd", ".rmd"})
_PRODUCT = re.compile(r"\d[^\n\d]{0,48}?(?:\*|×|·|⋅|∙|[xX]|\\times|\\cdot)[\s($]*\d")
_CACHE = re.compile(r"(?i)kv|cache")
_PLAIN = frozenset({"", "text", "txt", "plain", "plaintext", "math", "latex", "tex"})


def claims(path: PurePath) -> bool:
    """Whether a file of this name is Markdown."""
    return path.suffix.lower() in _SUFFIXES


def extract(path: PurePath, document: str) -> Extraction:
    """One region with all Python fences of *document*, if it has any, and one with the prose around them."""
    lines = host_lines(document)
    blocks, skipped, fences = fence_blocks(lines)
    left_out = tuple(
        Skipped(Line(index + 1), "this block is not Python", block_text(lines, index)) for index in skipped
    )
    regions = [region_of("markdown", document, lines, blocks)] if blocks else []
    if _CACHE.search(document) and _PRODUCT.search(document):
        regions.append(prose(document, lines, fences))
    return Extraction(tuple(regions), skipped=left_out)


def prose(document: str, lines: Sequence[HostLine], fences: Sequence[Fence]) -> Region:
    """The lines of *document*, those of code blank; blocks of plain text belong to the prose. It is never rewritten."""
    code = {
        index
        for fence in fences
        if fence.info.lower() not in _PLAIN
        for index in range(fence.first - 1, fence.last + 1)
    }
    block = Block(
        tuple(
            BlockLine(index, 0, "" if index in code else line.text, masked=index in code)
            for index, line in enumerate(lines)
        )
    )
    return region_of(PROSE, document, lines, [block], fixable=False)
