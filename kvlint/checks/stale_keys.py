"""The cache under its old key, in dicts that the library updates or reads: looked up where it is not, put where nothing looks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.names import ATTENTION_PARTS
from kvlint.analysis.nodes import assignment, walk
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Member, Model
from kvlint.checks.absent_values import place_at
from kvlint.checks.bindings import position, tree_of
from kvlint.checks.library_dicts import (
    GENERATION_STEP,
    LibraryDict,
    hook_functions,
    is_key,
    key_uses,
    keywords_parameter,
    library_dicts,
    method_of,
)

NEW_KEY = "cache"
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
                if any(kind == "store" and not reads_itself(facts, node, path, key) for kind, node in uses):
                    continue
                asked = {kind for kind, _ in uses} & {"in", "not in", "get", "get-default"}
                for kind, node in uses:
                    if position(node) <= updated or kind in ("store", "get-default"):
                        continue
                    raises = kind in ("subscript", "pop", "delete")
                    if raises and asked:
                        continue
                    how = "raises" if raises else "read"
                    yield StaleKey(node, key, place_at(facts, node, definition.place), how, f"`{path}`")


def updated_dicts(function: ast.AST) -> Iterator[tuple[str, tuple[int, int]]]:
    """Paths that get what ``_update_model_kwargs_for_generation`` returns, and where the first time."""
    seen: set[str] = set()
    for node in walk(function):
        targets, value = assignment(node)
        if len(targets) == 1 and isinstance(value, ast.Call):
            func, path = value.func, path_of(targets[0])
            if isinstance(func, ast.Attribute) and func.attr == GENERATION_STEP and path and path not in seen:
                seen.add(path)
                yield path, position(value)


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
    for use in facts.calls:
        func = use.node.func
        if not isinstance(func, ast.Attribute) or func.attr != "register_forward_pre_hook":
            continue
        for function, place, shown in hook_functions(facts, use):
            path = keywords_parameter(function, method_of(facts, function))
            role = part_role(use.callee, func.value)
            if path and role:
                item = LibraryDict(function, path, place, role, f"the keywords that {shown} gets")
                if not handles_new(item):
                    for key in SWALLOWED[role]:
                        yield from writes(facts, item, key, item.shown)


def is_own_spread(item: LibraryDict) -> bool:
    kwarg = item.function.args.kwarg
    return kwarg is not None and kwarg.arg == item.path


def part_role(callee: tuple[object, ...], module: ast.expr) -> str:
    """ "attention" or "layer" for a part of a model that is known as one, by its value or by the attribute it is; ""."""
    for atom in callee:
        if isinstance(atom, Member) and isinstance(atom.of, Model) and atom.of.role in SWALLOWED:
            return atom.of.role
    return "attention" if isinstance(module, ast.Attribute) and module.attr in ATTENTION_PARTS else ""


def handles_new(item: LibraryDict) -> bool:
    """True where the function says anything about the new key of the dict, or takes it out."""
    return any(isinstance(node, ast.Constant) and node.value == NEW_KEY for node in walk(item.function))


def writes(facts: Facts, item: LibraryDict, key: str, where: str) -> Iterator[StaleKey]:
    for kind, node in key_uses(item.function, item.path, key):
        if kind == "store" and not puts_none(facts, node):
            yield StaleKey(node, key, place_at(facts, node, item.place), "written", where)


def puts_none(facts: Facts, node: ast.expr) -> bool:
    _, value = assignment(tree_of(facts).parent(node))
    return isinstance(value, ast.Constant) and value.value is None
