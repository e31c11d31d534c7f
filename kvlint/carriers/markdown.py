"""Markdown (also MDX, Quarto and R Markdown): the Python fences of a file, joined so that they share imports."""

from __future__ import annotations

from pathlib import PurePath

from kvlint.carriers.fences import fence_blocks
from kvlint.carriers.lines import host_lines, region_of
from kvlint.carriers.regions import Extraction, Line, Skipped

_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".qmd", ".rmd"})


def claims(path: PurePath) -> bool:
    """Whether a file of this name is Markdown."""
    return path.suffix.lower() in _SUFFIXES


def extract(path: PurePath, document: str) -> Extraction:
    """One region with all Python fences of *document*, if it has any."""
    lines = host_lines(document)
    blocks, skipped, _ = fence_blocks(lines)
    left_out = tuple(Skipped(Line(index + 1), "this block is not Python") for index in skipped)
    if not blocks:
        return Extraction(skipped=left_out)
    return Extraction((region_of("markdown", document, lines, blocks),), skipped=left_out)
