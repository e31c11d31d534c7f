"""The signs that a number can have, by how it is computed."""

from __future__ import annotations

import ast
import itertools
import textwrap
from pathlib import Path

import pytest

from kvlint.analysis.facts import Facts
from kvlint.checks.signs import (
    ANY,
    NEGATIVE,
    NOT_NEGATIVE,
    NOT_POSITIVE,
    POSITIVE,
    ZERO,
    Signs,
    added,
    combined,
    opposite,
)
from kvlint.timeline import the_timeline


def signs(code: str) -> int:
    """The signs of the argument of ``crop`` in *code*."""
    timeline = the_timeline()
    tree = ast.parse(code)
    facts = Facts(code, Path("code.py"), "module", timeline.all, timeline, tree)
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "c.crop")
    return Signs(facts, "c").of(call.args[0])


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("4", POSITIVE),
        ("0", ZERO),
        ("-n", ANY),
        ("n", ANY),
        ("a - b", ANY),
        ("len(ids)", NOT_NEGATIVE),
        ("ids.shape[1]", NOT_NEGATIVE),
        ("prompt_len", NOT_NEGATIVE),
        ("self.past_length", NOT_NEGATIVE),
        ("len(ids) - 1", NOT_NEGATIVE),
        ("a_len - b_len", ANY),
        ("-len(ids)", NOT_POSITIVE),
        ("-1 * len(ids)", NOT_POSITIVE),
        ("len(a) + 1", POSITIVE),
        ("c.get_seq_length() - n", NOT_NEGATIVE),
        ("n - c.get_seq_length()", NOT_POSITIVE),
        ("int(n - c.get_seq_length())", NOT_POSITIVE),
        ("d.get_seq_length() - c.get_seq_length()", NOT_POSITIVE),
        ("min(0, n)", NOT_POSITIVE),
        ("max(0, n)", NOT_NEGATIVE),
        ("min(len(a), 4)", NOT_NEGATIVE),
        ("len(a) if n else -1", ANY),
        ("len(a) // 2", NOT_NEGATIVE),
        ("n % 4", NOT_NEGATIVE),
        ("(m := 3)", POSITIVE),
    ],
)
def test_expressions(argument: str, expected: int) -> None:
    assert signs(f"def f(c, n, a, b, ids): c.crop({argument})") == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("k = len(ids)\nc.crop(k)", NOT_NEGATIVE),
        ("k = -2\nc.crop(k)", NEGATIVE),
        ("k = n - m\nc.crop(k)", ANY),
        ("k_len = n - m\nc.crop(k_len)", ANY),
        ("k = 0\nfor x in ids:\n    k += 1\nc.crop(k)", NOT_NEGATIVE),
        ("k = 0\nfor x in ids:\n    k -= 1\nc.crop(k)", NOT_POSITIVE),
        ("for k in range(8):\n    c.crop(k)", NOT_NEGATIVE),
        ("for k in range(8, 0, -1):\n    c.crop(k)", ANY),
        ("if n > 0:\n    c.crop(n)", POSITIVE),
        ("if n < 1:\n    return\nc.crop(n)", POSITIVE),
        ("if n < 1:\n    n = 3\nc.crop(n)", ANY),
        ("if not n >= 0:\n    raise ValueError\nc.crop(n)", NOT_NEGATIVE),
        ("if n <= 8:\n    c.crop(n)", ANY),
        ("size = c.get_seq_length()\nfor x in ids:\n    c.crop(size - c.get_seq_length())", NOT_POSITIVE),
    ],
)
def test_names(body: str, expected: int) -> None:
    assert signs("def f(c, n, m, ids):\n" + textwrap.indent(body, "    ")) == expected


@pytest.mark.parametrize(("one", "other"), list(itertools.product(range(-3, 4), repeat=2)))
def test_sums_agree_with_numbers(one: int, other: int) -> None:
    def sign(number: int) -> int:
        return NEGATIVE if number < 0 else POSITIVE if number else ZERO

    assert combined(sign(one), sign(other), added) & sign(one + other)
    assert opposite(sign(one)) == sign(-one)


def test_a_length_that_grows_stays_one() -> None:
    assert signs("def f(self, c, n):\n    self.cache_length += n\n    c.crop(self.cache_length)") == NOT_NEGATIVE
