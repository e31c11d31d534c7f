"""Which calls have filled the cache that a later call is given, as far as the function shows."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.checks.bindings import Binding, Scope, position, prefixes
from kvlint.checks.cache_feeds import (
    Feed,
    copied,
    feed_at,
    feeds_before,
    handled_between,
    is_output_cache,
    scope_of,
)

STEPS = 6
"""So many assignments a cache is followed back through."""


def fillers(facts: Facts, feed: Feed) -> list[Feed]:
    """The calls that always have written into the cache of *feed* before it, the last one first; nothing between takes
    tokens out of it. Empty where that is not seen."""
    scope = scope_of(facts, feed)
    node, at = feed.cache, position(feed.node)
    found: list[Feed] = []
    for _ in range(STEPS):
        if node is None:
            break
        if copied(facts, node) and isinstance(node, ast.Call):
            node, at = node.args[0], position(node)
            continue
        call = output_of(scope, node)
        if call is not None:
            filler = feed_at(facts, call)
            if filler is not None and always_before(scope, filler.place.statement, feed.node):
                found.append(filler)
                if filler.cache is not None:
                    node, at = filler.cache, position(filler.node)
                    continue
            break
        path = path_of(node)
        if not path or handled_between(facts, scope, path, (0, 0), at):
            break
        found += written_before(facts, scope, path, feed, at)
        bindings = scope.definitions(path, node)
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
            break
        node, at = bindings[0].value, position(bindings[0].node)
    return [item for item in dict.fromkeys(found) if item.node is not feed.node]


def output_of(scope: Scope, node: ast.expr) -> ast.Call | None:
    """The call whose output holds the cache that *node* is: ``out.past_key_values`` with ``out = model(...)``."""
    source = is_output_cache(node)
    if source == "()":
        assert isinstance(node, (ast.Attribute, ast.Subscript))
        return node.value if isinstance(node.value, ast.Call) else None
    found = scope.definitions(source, node) if source else []
    value = found[0].value if len(found) == 1 and found[0].kind == "assign" else None
    return value if isinstance(value, ast.Call) else None


def written_before(facts: Facts, scope: Scope, path: str, feed: Feed, at: tuple[int, int]) -> list[Feed]:
    """The feeds under *path* that always run before *feed*, and before the place *at*, with no new value between."""
    found: list[Feed] = []
    for item in reversed(feeds_before(facts, scope, path, feed)):
        if position(item.node) >= at:
            continue
        if any(scope.bound_between(key, position(item.node), at) for key in prefixes(path)):
            break
        if always_before(scope, item.place.statement, feed.node):
            found.append(item)
    return found


def always_before(scope: Scope, statement: ast.stmt, later: ast.AST) -> bool:
    """True where *statement* stands, perhaps in a ``with``, in a block that holds *later* too."""
    if scope.tree.scope_of(statement) is not scope:
        return False
    inner: ast.AST = statement
    parent = scope.tree.parent(inner)
    while isinstance(parent, (ast.With, ast.AsyncWith)):
        inner, parent = parent, scope.tree.parent(parent)
    if parent is scope.node:
        return True
    if isinstance(parent, (ast.If, ast.Try)):
        blocks = [parent.body, parent.orelse, *([parent.finalbody] if isinstance(parent, ast.Try) else [])]
        block = next((block for block in blocks if inner in block), [])
        return any(later is item or scope.tree.inside(later, item) for item in block)
    return scope.tree.inside(later, parent) if parent else False


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call is fed: the path of ids that are given as they are, and where that path gets its value."""

    path: str
    bound: tuple[int, ...]


def tokens_of(scope: Scope, feed: Feed) -> Tokens | None:
    """The ids of a call where they are one plain path: ``ids``, ``inputs.input_ids`` and ``**inputs`` (the same)."""
    if len(feed.inputs) != 1:
        return None
    return tokens_at(scope, feed.inputs[0], bool(feed.spread))


def tokens_at(scope: Scope, node: ast.expr, spread: bool = False) -> Tokens | None:
    """What *node* stands for, as tokens; None where it is no plain path or is changed in place somewhere."""
    path = path_of(node)
    if spread and path:
        root = path
    else:
        root = member_of(node) or path
    if not root or any(scope.changed_in(prefix, scope.node) for prefix in prefixes(root)):
        return None
    bound: list[Binding] = [item for key in prefixes(root) for item in scope.definitions(key, node)]
    name = f"{root}.input_ids" if spread or member_of(node) else root
    return Tokens(name, tuple(sorted(id(item.node) for item in bound)))


def member_of(node: ast.expr) -> str:
    """``inputs`` of ``inputs.input_ids`` and ``inputs["input_ids"]``."""
    if isinstance(node, ast.Attribute) and node.attr == "input_ids":
        return path_of(node.value)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "input_ids":
        return path_of(node.value)
    return ""
