"""The fast walk sees what ``ast.walk`` sees, in its order, but for contexts and operators."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from kvlint.nodes import children, walk

UNPLACED = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.type_ignore)
SAMPLES = [
    "def f(a, /, b: int = 1, *c, d, e=2, **g) -> int:\n    return {**a, b: c, 1: None}[d:e:1]\n",
    "async def f():\n    async with a as b, c:\n        async for d in e:\n            await d\n            yield d\n",
    "match a:\n    case {'x': 1, **rest} if a:\n        pass\n    case [1, *more] | C(1, y=None) as z:\n        pass\n",
    "global x, y\nimport a.b as c\nfrom . import d\n",
    "try:\n    a = f'{b!r:>{c}}' < 1 is not None\nexcept (A, B) as e:\n    raise C from e\nelse:\n    del a.b, a[0]\n",
    "x = [i async for i in (lambda *a, k=1: a)(1, *b, **c) if (n := i) if not n]\ny: int\nx += -1 @ 2\n",
    "class A[T: int, *Ts, **P](B, metaclass=C):\n    type X[U] = list[U]\n",
    "try:\n    pass\nexcept* E:\n    pass\n",
]


def parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:
        pytest.skip(f"syntax newer than Python {sys.version_info[0]}.{sys.version_info[1]}")


@pytest.mark.parametrize("source", SAMPLES)
def test_same_nodes(source: str) -> None:
    tree = parsed(source)
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, UNPLACED)]


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.parent.glob("kvlint/analysis/*.py")), ids=lambda p: p.stem
)
def test_children(path: Path) -> None:
    tree = parsed(path.read_text(encoding="utf-8"))
    nodes = walk(tree)
    assert nodes == [node for node in ast.walk(tree) if not isinstance(node, UNPLACED)]
    for node in nodes:
        assert children(node) == [item for item in ast.iter_child_nodes(node) if not isinstance(item, UNPLACED)]
