"""The cache under its old key, in dicts that the library updates or reads: looked up where it is not, put where nothing looks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.recorder import path_of
from kvlint.checks.absent_values import place_at
from kvlint.checks.bindings import position, tree_of
from kvlint.checks.hooks import registered_hooks
from kvlint.checks.library_calls import GENERATION_STEP
from kvlint.checks.library_dicts import (
    LibraryDict,
    is_key,
    key_uses,
    library_dicts,
)
from kvlint.nodes import assignment, walk

NEW_KEY = "cache"
PREPARE_CACHE = "_prepare_cache_for_generation"
OLD_KEYS = ("past_key_values", "cache_params")
SWALLOWED = {"attention": ("past_key_values", "past_key_value"), "layer": ("past_key_value",)}
"""Keys that modules of each kind ignore: decoder layers still take ``past_key_values`` (run on 5.24.0)."""


@dataclass(frozen=True, slots=True)
class StaleKey:
    """A use of an old key. *how* is "read" (it is never there), "raises" (KeyError) or "written" (nothing reads it)."""

    node: ast.expr
    key: str
    place: Place
    how: str
    where: str


def loop_reads(facts: Facts) -> Iterator[StaleKey]:
    """``model_kwargs.get("past_key_values")`` behind ``model_kwargs = model._update_model_kwargs_for_generation(...)``."""
    if facts.tree is None or writes_old_key(facts):
        return
    for definition in facts.functions:
        function = definition.info.node
        for path, updated in updated_dicts(function):
            if any(kind not in ("store", "delete") for kind, _ in key_uses(function, path, NEW_KEY)):
                continue  # it looks under both names
            for key in OLD_KEYS:
                uses = key_uses(function, path, key)
                if is_put(facts, function, path, key):
                    continue
                start = (
                    updated if is_handed_over(facts, definition.info.name, key) else round_of(facts, function, updated)
                )
                asked = {kind for kind, _ in uses} & {"in", "not in", "get", "get-default"}
                for kind, node in uses:
                    if position(node) <= start or kind in ("store", "get-default"):
                        continue
                    raises = kind in ("subscript", "pop", "delete")
                    if raises and asked:
                        continue
                    how = "raises" if raises else "read"
                    yield StaleKey(node, key, place_at(facts, node, definition.place), how, f"`{path}`")


def library_reads(facts: Facts) -> Iterator[StaleKey]:
    """Keys looked up in the ``model_kwargs`` that ``generate`` hands to a method of its own, or keeps for an assistant."""
    for item in library_dicts(facts):
        if item.role != "generate" or handles_new(item) or writes_old_key(facts) or stores(facts, item.path):
            continue
        for key in OLD_KEYS:
            uses = key_uses(item.function, item.path, key)
            asked = {kind for kind, _ in uses} & {"in", "not in", "get", "get-default"}
            for kind, node in uses:
                raises = kind in ("subscript", "pop", "delete")
                if kind != "get-default" and not (raises and asked):
                    how = "raises" if raises else "read"
                    yield StaleKey(node, key, place_at(facts, node, item.place), how, item.shown)


def stores(facts: Facts, path: str) -> bool:
    """True where the file puts an old key into a dict of this path."""
    return any(
        kind == "store"
        for item in facts.functions
        for key in OLD_KEYS
        for kind, _ in key_uses(item.info.node, path, key)
    )


def updated_dicts(function: ast.AST) -> Iterator[tuple[str, tuple[int, int]]]:
    """Paths that get what ``_update_model_kwargs_for_generation`` returns, or that ``_prepare_cache_for_generation`` puts a
    cache into, and where the first time."""
    seen: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == PREPARE_CACHE:
            given = [*node.args[1:2], *(item.value for item in node.keywords if item.arg == "model_kwargs")]
            for path in map(path_of, given):
                if path and path not in seen:
                    seen.add(path)
                    yield path, position(node)
        targets, value = assignment(node)
        if len(targets) == 1 and isinstance(value, ast.Call):
            func, path = value.func, path_of(targets[0])
            if isinstance(func, ast.Attribute) and func.attr == GENERATION_STEP and path and path not in seen:
                seen.add(path)
                yield path, position(value)


def is_put(facts: Facts, function: ast.AST, path: str, key: str, before: ast.AST | None = None) -> bool:
    """True where the function puts something under the key of a dict (*before* a node), or begins the dict with it."""
    return begins_with(function, path, key) or any(
        kind == "store"
        and not reads_itself(facts, node, path, key)
        and (before is None or position(node) < position(before))
        for kind, node in key_uses(function, path, key)
    )


def begins_with(function: ast.AST, path: str, key: str) -> bool:
    """True where the dict is written down with the key, or a dict with it is joined to it."""
    given = [
        value for targets, value in map(assignment, walk(function)) if any(path_of(one) == path for one in targets)
    ]
    return any(
        (isinstance(node, ast.keyword) and node.arg == key) or (isinstance(node, ast.expr) and is_key(node, key))
        for value in given
        if isinstance(value, ast.Dict) or (isinstance(value, ast.Call) and ast.unparse(value.func) == "dict")
        for node in walk(value)
    )


def is_handed_over(facts: Facts, name: str, key: str) -> bool:
    """True where the project calls a function of this name with the key: from then on it is in the dict."""
    return f"{name} {key}" in facts.surroundings.keywords or any(
        call.keyword(key) is not None and ast.unparse(call.node.func).rpartition(".")[2] == name for call in facts.calls
    )


def round_of(facts: Facts, function: ast.AST, updated: tuple[int, int]) -> tuple[int, int]:
    """Where the innermost loop around the update begins: what stands in front of it there is behind it in the next round."""
    loops = [
        node
        for node in walk(function)
        if isinstance(node, (ast.For, ast.While)) and position(node) < updated < ((node.end_lineno or 0) + 1, 0)
    ]
    return max(map(position, loops), default=updated)


def reads_itself(facts: Facts, node: ast.expr, path: str, key: str) -> bool:
    """True for ``d[key] = reorder(d[key])``: it puts nothing there that was not there."""
    _, value = assignment(tree_of(facts).parent(node))
    return value is not None and any(
        isinstance(one, ast.Subscript) and path_of(one.value) == path and is_key(one.slice, key) for one in walk(value)
    )


def writes_old_key(facts: Facts) -> bool:
    """True where the file has an update of its own, which may use the old key."""
    return any(
        item.info.name == GENERATION_STEP
        and any(isinstance(node, ast.Constant) and node.value in OLD_KEYS for node in walk(item.info.node))
        for item in facts.functions
    )


def dead_writes(facts: Facts) -> Iterator[StaleKey]:
    """The cache put under an old key into what ``prepare_inputs_for_generation`` of the library returned, or into the
    keywords of an attention module or layer by a pre-hook."""
    for item in library_dicts(facts):
        if item.role == "prepare" and not is_own_spread(item):
            if not handles_new(item):
                for key in OLD_KEYS:
                    yield from writes(facts, item, key, f'{item.shown} which holds the cache as "{NEW_KEY}"')
    for hook in registered_hooks(facts):
        if hook.before and hook.role in SWALLOWED:
            shown = f"the keywords that {hook.shown} gets"
            item = LibraryDict(hook.function, hook.keywords, hook.place, hook.role, shown)
            if not handles_new(item):
                for key in SWALLOWED[hook.role]:
                    yield from writes(facts, item, key, item.shown)


def is_own_spread(item: LibraryDict) -> bool:
    kwarg = item.function.args.kwarg
    return kwarg is not None and kwarg.arg == item.path


def handles_new(item: LibraryDict) -> bool:
    """True where the function says anything about the new key of the dict, or takes it out."""
    return any(
        (isinstance(node, ast.Constant) and node.value == NEW_KEY)
        or (isinstance(node, ast.keyword) and node.arg == NEW_KEY)
        for node in walk(item.function)
    )


def writes(facts: Facts, item: LibraryDict, key: str, where: str) -> Iterator[StaleKey]:
    for kind, node in key_uses(item.function, item.path, key):
        if kind == "store" and not puts_none(facts, node):
            yield StaleKey(node, key, place_at(facts, node, item.place), "written", where)
    for node, value in merged_in(item.function, item.path, key):
        if not (isinstance(value, ast.Constant) and value.value is None):
            yield StaleKey(node, key, place_at(facts, node, item.place), "written", where)


def merged_in(function: ast.AST, path: str, key: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The key and its value in ``d.update(key=value)``, ``{**d, "key": value}``, ``dict(d, key=value)`` and their like."""
    for node in walk(function):
        if isinstance(node, ast.Dict) and any(
            at is None and path_of(value) == path for at, value in zip(node.keys, node.values, strict=True)
        ):
            yield from in_display(node, key)
        elif isinstance(node, ast.Call):
            func = node.func
            updates = isinstance(func, ast.Attribute) and func.attr == "update" and path_of(func.value) == path
            spread = [*node.args[:1], *(item.value for item in node.keywords if item.arg is None)]
            copies = isinstance(func, ast.Name) and func.id == "dict" and any(path_of(one) == path for one in spread)
            if updates or copies:
                for item in node.keywords:
                    if item.arg == key:
                        yield item.value, item.value
                for part in node.args:
                    if isinstance(part, ast.Dict):
                        yield from in_display(part, key)


def in_display(node: ast.Dict, key: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    for at, value in zip(node.keys, node.values, strict=True):
        if at is not None and is_key(at, key):
            yield at, value


def puts_none(facts: Facts, node: ast.expr) -> bool:
    _, value = assignment(tree_of(facts).parent(node))
    return isinstance(value, ast.Constant) and value.value is None
