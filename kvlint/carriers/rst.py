"""reStructuredText: Python code directives and doctest blocks, joined so that they share imports."""

from __future__ import annotations

from pathlib import PurePath

from kvlint.carriers.directives import directive_blocks
from kvlint.carriers.lines import block_text, host_lines, region_of
from kvlint.carriers.regions import Extraction, Line, Skipped


def claims(path: PurePath) -> bool:
    """Whether a file of this name is reStructuredText."""
    return path.suffix.lower() in (".rst", ".rest")


def extract(path: PurePath, document: str) -> Extraction:
    """One region with all Python of *document*, if it has any."""
    lines = host_lines(document)
    blocks, skipped = directive_blocks(lines)
    left_out = tuple(
        Skipped(Line(index + 1), "this block is not Python", block_text(lines, index)) for index in skipped
    )
    if not blocks:
        return Extraction(skipped=left_out)
    return Extraction((region_of("rst", document, lines, blocks),), skipped=left_out)
