"""The findings of an example are those of the same code written in another way."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

import page_runner
import pytest
from page_runner import PLAIN, Example
from spellings import SPELLINGS, Spelling

from kvlint import rulebook

EXAMPLES = [example for page in rulebook.load() for example in page_runner.examples(page)]


def written(example: Example, spelling: Spelling) -> str | None:
    """The example in this spelling; None where it cannot be written so, or is already."""
    block = example.block
    if block.language != "python" or not block.text.strip():
        return None
    if spelling.down and "function" in block.attributes.get("not_in", "").split():
        return None
    try:
        text = spelling.write(block.text)
        if text is None or text == block.text:
            return None
        ast.parse(text)
    except (SyntaxError, tokenize.TokenError):
        return None
    return text


PAIRS = [
    (example, spelling)
    for example in EXAMPLES
    for spelling in SPELLINGS
    if written(example, spelling) is not None
]  # fmt: skip


@pytest.mark.parametrize(
    ("example", "spelling"), PAIRS, ids=[f"{example.id}-{spelling.name}" for example, spelling in PAIRS]
)
def test_findings_do_not_depend_on_the_spelling(example: Example, spelling: Spelling, tmp_path: Path) -> None:
    text = written(example, spelling)
    assert text is not None
    plain = page_runner.write(tmp_path, example.block, PLAIN)
    expected = page_runner.places(page_runner.relevant(example.page, page_runner.findings(plain, *example.options)))
    other = page_runner.write(tmp_path, example.block, PLAIN, text)
    found = page_runner.places(page_runner.relevant(example.page, page_runner.findings(other, *example.options)))
    assert found == {(line + spelling.down, code) for line, code in expected}
