"""Walking syntax trees, several times as fast as ``ast.walk``.

Contexts (``Load``) and operators are no nodes here: they have no place in the text, and nobody looks for them by walking.
"""

from __future__ import annotations

import ast
from bisect import bisect_left

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


def assignment(node: ast.AST | None) -> tuple[list[ast.expr], ast.expr | None]:
    """The targets and the value of ``a = b = value`` and of ``a: kind = value``; no targets for any other node."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [node.target], node.value
    return [], None


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


class Blocks(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that hold statements, or handlers and cases with statements."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        kept: tuple[str, ...] = ()
        if issubclass(kind, (ast.mod, ast.stmt, ast.ExceptHandler, ast.match_case)):
            kept = tuple(name for name in kind._fields if name in BLOCK_FIELDS)
        self[kind] = kept
        return kept


BLOCK_FIELDS = frozenset({"body", "handlers", "orelse", "finalbody", "cases"})
BLOCKS = Blocks()


def statements(node: ast.AST) -> list[ast.AST]:
    """The statements of ``walk``, in its order (with the handlers and cases between them), without looking into them."""
    found: list[ast.AST] = [node]
    table = BLOCKS
    for item in found:
        for name in table[item.__class__]:
            found += getattr(item, name)
    return found


def walk_lines(node: ast.AST, lines: list[int]) -> list[ast.AST]:
    """As ``walk``, without the statements that stand on none of these sorted, 1-based *lines*."""
    found: list[ast.AST] = [node]
    for item in found:
        for child in children(item):
            if isinstance(child, ast.stmt):
                decorators = getattr(child, "decorator_list", None)
                first = decorators[0].lineno if decorators else child.lineno
                if not any_between(lines, first, child.end_lineno or first):
                    continue
            found.append(child)
    return found


def any_between(lines: list[int], first: int, last: int) -> bool:
    """True where one of the sorted *lines* lies in the range, ends included."""
    position = bisect_left(lines, first)
    return position < len(lines) and lines[position] <= last


def lines_with(text: str, words: tuple[str, ...]) -> list[int]:
    """The 1-based lines of a text that hold one of the words, sorted."""
    found: set[int] = set()
    for word in words:
        line, last = 1, 0
        position = text.find(word)
        while position >= 0:
            line += text.count("\n", last, position)
            last = position
            found.add(line)
            position = text.find(word, position + len(word))
    return sorted(found)


def code_of(node: ast.expr) -> str:
    """``ast.unparse`` of an expression; names and attributes are put together without its slow way."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        return f"{code_of(node.value)}.{node.attr}"
    return ast.unparse(node)
