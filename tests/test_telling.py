"""Dull statements are not looked into: a cache under a dull name is followed all the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from analysing import expect

from kvlint import checks
from kvlint.analysis import analyse
from kvlint.analysis.project import Project
from kvlint.analysis.telling import Telling
from kvlint.source import parse
from kvlint.timeline import the_timeline
from kvlint.triggers import table

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = sorted([*(ROOT / "tests" / "cases").glob("*.py"), *(ROOT / "rules").glob("KV*.md")])
FENCE = re.compile(r"```python[^\n]*\n(.*?)```", re.DOTALL)
CODES = frozenset(trigger.code for trigger in table())
HEAD = "from transformers import DynamicCache\n"

ALIASES = {
    "a name": "x = DynamicCache()\ny = x\ny[0]  # KV204\n",
    "an attribute of anything": "def f(obj):\n    obj.foo = DynamicCache()\n    t = obj.foo\n    t[0]  # KV204\n",
    "an attribute of self": (
        "class A:\n    def __init__(self):\n        self.store = DynamicCache()\n\n"
        "    def run(self):\n        r = self.store\n        r[0]  # KV204\n"
    ),
    "an attribute of a base class": (
        "class A:\n    def __init__(self):\n        self.store = DynamicCache()\n\n"
        "class B(A):\n    def run(self):\n        r = self.store\n        r[0]  # KV204\n"
    ),
    "an item": 'd = {}\nd["a"] = DynamicCache()\ne = d["a"]\ne[0]  # KV204\n',
    "a tested attribute": "def f(obj):\n    if isinstance(obj.foo, DynamicCache):\n        z = obj.foo\n        z[0]  # KV204\n",
    "a loop variable": "for a in [DynamicCache()]:\n    b = a\n    b[0]  # KV204\n",
    "a result": "def make():\n    return DynamicCache()\n\nq = make()\nq[0]  # KV204\n",
    "a result of a function that comes later": (
        "def use():\n    q = make()\n    q[0]  # KV204\n\ndef make():\n    return DynamicCache()\n"
    ),
    "a property": (
        "class A:\n    @property\n    def foo(self):\n        return DynamicCache()\n\n"
        "    def run(self):\n        r = self.foo\n        r[0]  # KV204\n"
    ),
    "an argument": "def f(a):\n    b = a\n    b[0]  # KV204\n\nf(DynamicCache())\n",
    "a keyword": "def f(a):\n    b = a\n    b[0]  # KV204\n\nf(a=DynamicCache())\n",
    "a walrus": "if (n := DynamicCache()):\n    m = n\n    m[0]  # KV204\n",
    "an unpacked tuple": "a, b = DynamicCache(), 1\nc = a\nc[0]  # KV204\n",
    "a closure": "def f():\n    a = DynamicCache()\n\n    def g():\n        b = a\n        b[0]  # KV204\n\n    return g\n",
    "a global": "thing = DynamicCache()\n\ndef f():\n    t = thing\n    t[0]  # KV204\n",
    "another name of the class": "make = DynamicCache\nk = make()\nk[0]  # KV204\n",
    "a condition on a global": (
        "thing = DynamicCache()\n\ndef f(n):\n    if other is None:\n        n = 1\n    while other is not None:\n"
        "        t = thing\n        t[0]  # KV204\n"
    ),
    "a name that is None in one branch only": (
        "def f(x):\n    if flag is None:\n        y = 1\n    else:\n        y = 2\n    while flag is not None:\n"
        "        t = DynamicCache()\n        t[0]  # KV204\n"
    ),
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_cache_under_dull_names(name: str) -> None:
    expect(HEAD + ALIASES[name])


def found(path: Path) -> list[str]:
    """Everything that all checks find in the Python of a file."""
    text = path.read_text(encoding="utf-8")
    blocks = FENCE.findall(text) if path.suffix == ".md" else [text]
    findings: list[str] = []
    for block in blocks:
        for region in parse(Path("a.py"), block.encode()).regions:
            try:
                facts = analyse(region, Path("a.py"), the_timeline().all, Project(None), the_timeline())
            except SyntaxError:
                continue
            findings += [repr(item) for item in checks.findings(facts, CODES)]
    return findings


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_looking_into_everything_finds_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = found(path)
    monkeypatch.setattr(Telling, "dull", lambda *_: False)
    assert found(path) == quick
