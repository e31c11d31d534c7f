"""What is found for a range of releases is what is found for each of them, no more and no less."""

from __future__ import annotations

import ast
from collections import defaultdict

import page_runner
import pytest
from analysing import lint, releases
from page_runner import Example

from kvlint import checks, rulebook
from kvlint.findings import Category
from kvlint.releases import ReleaseSet

CODES = frozenset(check.code for check in checks.all_checks())
RANGE = ">=4.36"
ONES = ("4.36.2", "4.41.2", "4.47.1", "4.50.3", "4.54.1", "4.56.2", "4.57.6", "5.0.0", "5.9.0", "5.18.0", "5.24.0")
BY_RANGE = (Category.DEPRECATED, Category.UNDECIDED, Category.META)
"""A deprecated name is told of only where every release in force has the new one; a version test is dead for a range."""


def is_module(example: Example) -> bool:
    try:
        ast.parse(example.block.text)
    except SyntaxError:
        return False
    return example.block.language == "python" and bool(example.block.text.strip())


EXAMPLES = [example for page in rulebook.load() for example in page_runner.examples(page) if is_module(example)]


def found(text: str, target: str) -> dict[tuple[int, str], ReleaseSet]:
    """The releases of every finding, by line and code."""
    dated: dict[tuple[int, str], ReleaseSet] = defaultdict(lambda: ReleaseSet(0))
    for finding in lint(text, target, codes=CODES):
        if finding.category not in BY_RANGE:
            dated[text.count("\n", 0, finding.start) + 1, finding.code] |= finding.releases
    return dated


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.id for example in EXAMPLES])
def test_a_range_is_the_sum_of_its_releases(example: Example) -> None:
    text = example.block.text
    whole = found(text, RANGE)
    for one in ONES:
        expected = {place for place, dated in whole.items() if dated & releases(f"=={one}")}
        assert set(found(text, f"=={one}")) == expected, one
