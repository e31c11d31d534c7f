"""Walking syntax trees, several times as fast as ``ast.walk``.

Contexts (``Load``) and operators are no nodes here: they have no place in the text, and nobody looks for them by walking.
"""

from __future__ import annotations

import ast

DULL_FIELDS = frozenset(
    {
        "arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level", "lineno", "module",
        "name", "op", "ops", "rest", "simple", "tag", "type_comment", "type_ignores",
    }
)  # fmt: skip
"""Fields that never hold a node with a place in the text."""
PLAIN_VALUES = ("Constant", "MatchSingleton", "Global", "Nonlocal")
"""Kinds whose fields hold strings and constants only."""


class Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that can hold other nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        names: tuple[str, ...] = () if kind.__name__ in PLAIN_VALUES else kind._fields
        kept = tuple(
            name for name in names if name not in DULL_FIELDS or (kind.__name__, name) == ("TypeAlias", "name")
        )
        self[kind] = kept
        return kept


FIELDS = Fields()
HOLES = frozenset({ast.Dict, ast.arguments})
"""Kinds with lists of nodes in which None stands for "none here"."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below *node*, in the order of ``ast.iter_child_nodes``."""
    kind = node.__class__
    found: list[ast.AST] = []
    for name in FIELDS[kind]:
        value = getattr(node, name, None)
        if value is not None:
            if value.__class__ is list:
                found += value
            else:
                found.append(value)
    return [item for item in found if item is not None] if kind in HOLES else found


def walk(node: ast.AST) -> list[ast.AST]:
    """*node* and everything below it, level by level: the order of ``ast.walk``."""
    found: list[ast.AST] = [node]
    table = FIELDS
    for item in found:
        kind = item.__class__
        for name in table[kind]:
            value = getattr(item, name, None)
            if value is None:
                continue
            if value.__class__ is not list:
                found.append(value)
            elif kind in HOLES:
                found += [part for part in value if part is not None]
            else:
                found += value
    return found


def code_of(node: ast.expr) -> str:
    """``ast.unparse`` of an expression; names and attributes are put together without its slow way."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        return f"{code_of(node.value)}.{node.attr}"
    return ast.unparse(node)
