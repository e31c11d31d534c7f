"""Arrows of imports go down: no module of kvlint imports itself, on whatever way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("kvlint.engine", "kvlint.analysis", "kvlint.checks")
"""Packages from the bottom up: none of them knows one that stands above it."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "kvlint").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported."""
    for node in body:
        if is_for_types(node) or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []))


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found & known.keys()


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imported(path, known) - {name} for name, path in known.items()}


def circle(edges: dict[str, set[str]]) -> list[str]:
    """A way from a module back to it; empty where there is none."""
    done: set[str] = set()

    def look(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(edges[name]):
            found = look(other, [*way, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := look(name, []))), [])


def test_no_module_is_imported_by_what_it_imports() -> None:
    assert circle(graph()) == []


def test_no_floor_knows_the_one_above() -> None:
    wrong = [
        (name, other)
        for name, others in graph().items()
        for other in others
        for height, floor in enumerate(FLOORS)
        if name.startswith(floor) and other.startswith(FLOORS[height + 1 :])
    ]
    assert wrong == []


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == ["a", "b", "c", "a"]
