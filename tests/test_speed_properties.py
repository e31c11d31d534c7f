"""Screening files by their bytes loses no finding: what is found with the screen is what is found without it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvlint import checks, screen, triggers
from kvlint.analysis import analyse
from kvlint.analysis.project import Project
from kvlint.releases import ReleaseSet
from kvlint.sieve import Sieve, Words
from kvlint.source import parse
from kvlint.timeline import Timeline, load

ROOT = Path(__file__).resolve().parent.parent
CASES = sorted(path for path in (ROOT / "tests" / "cases").rglob("*") if path.suffix in (".py", ".ipynb", ".md"))
PAGES = sorted((ROOT / "rules").glob("KV*.md"))
FENCE = re.compile(r"```python[^\n]*\n(.*?)```", re.DOTALL)
CODES = frozenset(trigger.code for trigger in triggers.table())
TARGETS = ("==5.24.0", ">=4.36", ">=4.40,<4.55", "==4.57.6")


@cache
def timeline() -> Timeline:
    return load()


def found(data: bytes, path: Path, target: ReleaseSet) -> set[str]:
    """Codes of the findings of all checks, nothing screened."""
    codes: set[str] = set()
    for region in parse(path, data).regions:
        try:
            facts = analyse(region, path, target, Project(None), timeline())
        except (SyntaxError, RecursionError):
            continue
        codes |= {finding.code for finding in checks.findings(facts, CODES, fixes=False)}
    return codes


def screened(data: bytes, path: Path, target: ReleaseSet) -> frozenset[str]:
    """Codes that pass both steps of the screen."""
    first = screen.candidates(data, CODES, str(path))
    return screen.candidates(data, first, str(path), target.bits, len(timeline().releases))


def assert_nothing_lost(data: bytes, path: Path, specifier: str) -> set[str]:
    target = timeline().matching(specifier)
    codes = found(data, path, target)
    assert codes <= screened(data, path, target), (path.name, specifier)
    return codes


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_no_finding_of_a_case_is_lost(path: Path) -> None:
    for specifier in TARGETS:
        assert_nothing_lost(path.read_bytes(), path, specifier)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_finding_of_a_page_is_lost(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for number, block in enumerate(FENCE.findall(text)):
        for specifier in TARGETS:
            assert_nothing_lost(block.encode(), Path(f"block{number}.py"), specifier)


def test_the_cases_have_findings_to_lose() -> None:
    target = timeline().matching("==5.24.0")
    codes = {code for path in CASES for code in found(path.read_bytes(), path, target)}
    assert len(codes) > 20


@cache
def snippets() -> tuple[str, ...]:
    """Statements of the pages: whole blocks, and the lines of imports and calls in them."""
    blocks = [block for page in PAGES for block in FENCE.findall(page.read_text(encoding="utf-8"))]
    return tuple(dict.fromkeys(blocks))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), specifier=st.sampled_from(TARGETS))
def test_no_finding_of_joined_snippets_is_lost(data: st.DataObject, specifier: str) -> None:
    chosen = data.draw(st.lists(st.sampled_from(snippets()), min_size=1, max_size=3))
    name = data.draw(st.sampled_from(["a.py", "a.md", "a.ipynb"]))
    source = "\n\n".join(chosen)
    if name.endswith(".md"):
        source = f"```python\n{source}\n```\n"
    elif name.endswith(".ipynb"):
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
        source = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert_nothing_lost(source.encode(), Path(name), specifier)


def test_a_file_without_any_word_passes_no_sieve() -> None:
    data = b"import os\n\n\ndef add(a, b):\n    return a + b\n"
    assert screen.candidates(data, CODES) == frozenset()


def test_words_of_other_releases_are_left_out() -> None:
    old, new = timeline().matching("<5"), timeline().matching(">=5")
    sieve = Sieve((("a",),), ways=(((), {"gone": new.bits}), ((("b",),), {})))
    assert sieve.passes(Words(b"a gone"), True)
    assert sieve.on(new.bits).passes(Words(b"a gone"), True)
    assert not sieve.on(old.bits).passes(Words(b"a gone"), True)
    assert sieve.on(old.bits).passes(Words(b"a b"), True)
    only_new = Sieve((("a",),), ways=(((), {"gone": new.bits}),))
    assert not only_new.on(old.bits).passes(Words(b"a gone"), True)


def test_patterns_are_asked_of_python_files_alone() -> None:
    sieve = Sieve((("cache",),), pattern=r"\bcache\b")
    assert not sieve.passes(Words(b"cached"), True)
    assert sieve.passes(Words(b"cached"), False)


def test_another_timeline_has_words_of_its_own() -> None:
    data = b"from transformers import SomethingCache\n"
    release = timeline().matching("==5.24.0").bits
    length = len(timeline().releases)
    codes = frozenset({"KV101"})
    assert screen.candidates(data, codes, "a.py", release, length) == frozenset()
    assert screen.candidates(data, codes, "a.py", release, length + 1) == codes


def test_the_releases_of_lines() -> None:
    """Statements ask by their line, so that a file of guarded statements does not cost the square of its length."""
    from kvlint.analysis.facts import by_line
    from kvlint.releases import ReleaseSet

    found = by_line({(2, 4): ReleaseSet(0b0111), (3, 3): ReleaseSet(0b1110), (9, 9): ReleaseSet(0)})
    assert {line: releases.bits for line, releases in found.items()} == {2: 0b0111, 3: 0b0110, 4: 0b0111, 9: 0}
