"""Dicts of keyword arguments that the library fills and a function of the file reads: ``**kwargs``, hooks, ``model_kwargs``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Certainty, LocalFunction, Model, ModelKwargs, Symbol, Value, of_type
from kvlint.checks.hooks import Function, registered_hooks
from kvlint.checks.library_calls import GENERATION_STEP, library_called
from kvlint.nodes import walk

ASSISTANT = "self.assistant_kwargs"


@dataclass(frozen=True, slots=True)
class LibraryDict:
    """A dict under one path in one function. *role* says what the keywords are those of: a model, layer or attention
    module, ``prepare`` (``prepare_inputs_for_generation``), or ``generate`` (its ``model_kwargs``)."""

    function: Function
    path: str
    place: Place
    role: str
    shown: str


def library_dicts(facts: Facts) -> list[LibraryDict]:
    """Every dict of the region that the library fills, each function and path once."""
    if facts.foreign_engine or facts.in_transformers:
        return []
    known = facts.memo.get("library dicts")
    if not isinstance(known, list):
        found: dict[tuple[int, str], LibraryDict] = {}
        for item in (*_spread(facts), *_hooks(facts), *_steps(facts), *_returned(facts), *_candidates(facts)):
            found.setdefault((id(item.function), item.path), item)
        known = facts.memo["library dicts"] = list(found.values())
    return known


def _spread(facts: Facts) -> Iterator[LibraryDict]:
    """``**kwargs`` of a function that the library calls."""
    for item in library_called(facts):
        kwarg = item.info.node.args.kwarg
        if kwarg is not None and not item.elsewhere:
            yield LibraryDict(item.info.node, kwarg.arg, item.place, item.role, f"`**{kwarg.arg}` of `{item.shown}`")


def _hooks(facts: Facts) -> Iterator[LibraryDict]:
    """The keywords that a hook sees which is registered with ``with_kwargs=True``; where nothing tells, of attention."""
    for hook in registered_hooks(facts):
        shown = f"`{hook.keywords}` of {hook.shown}"
        yield LibraryDict(hook.function, hook.keywords, hook.place, hook.role or "attention", shown)


def _steps(facts: Facts) -> Iterator[LibraryDict]:
    """``model_kwargs`` of an overridden ``_update_model_kwargs_for_generation``, and of what is put in its place."""
    put = {
        id(atom.info)
        for use in facts.attributes
        if use.action == "store" and use.name == GENERATION_STEP and is_model(use.value)
        for atom in of_type(use.assigned, LocalFunction)
    }
    for definition in facts.functions:
        info = definition.info
        bases = info.owner.foreign_bases() if info.owner is not None and info.name == GENERATION_STEP else ()
        positional = [*info.node.args.posonlyargs, *info.node.args.args]
        if len(positional) > 2 and (id(info) in put or any(is_torch_model_class(base) for base in bases)):
            path = positional[2].arg
            yield LibraryDict(info.node, path, definition.place, "generate", f"`{path}` of `{info.name}`")


def _candidates(facts: Facts) -> Iterator[LibraryDict]:
    """``self.assistant_kwargs`` of a candidate generator that derives from one of the library, which fills it."""
    for definition in facts.functions:
        info = definition.info
        bases = info.owner.foreign_bases() if info.owner is not None else ()
        if any(base.startswith("transformers.") and base.endswith("CandidateGenerator") for base in bases):
            yield LibraryDict(info.node, ASSISTANT, definition.place, "generate", f"`{ASSISTANT}`")


def is_model(value: Value) -> bool:
    """True for a model of transformers, or a class of such."""
    return bool(value) and all(
        (isinstance(atom, Symbol) and is_torch_model_class(atom.name))
        or (isinstance(atom, Model) and atom.role == "model" and atom.certainty >= Certainty.CONTEXT)
        for atom in value
    )


def _returned(facts: Facts) -> Iterator[LibraryDict]:
    """What ``super().prepare_inputs_for_generation(...)`` or that of a model returned, under the name it was put."""
    for use in facts.assigns:
        function = use.place.function
        path = path_of(use.target)
        if path and function is not None and returned_by_library(use.value):
            yield LibraryDict(function.node, path, use.place, "prepare", f"`{path}`, which the library made,")


def returned_by_library(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, ModelKwargs) and atom.hook for atom in value)


def key_uses(function: ast.AST, path: str, key: str) -> list[tuple[str, ast.expr]]:
    """How a function uses a key of the dict: ("subscript", "store", "delete", "get", "pop", "in", "not in"), in the order
    of the text; a default of ``get`` and ``pop`` that is not None makes it "get-default"."""
    found: list[tuple[str, ast.expr]] = []
    for node in walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and path_of(node.comparators[0]) == path:
            if is_key(node.left, key) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                found.append(("in" if isinstance(node.ops[0], ast.In) else "not in", node))
        elif isinstance(node, ast.Subscript) and path_of(node.value) == path and is_key(node.slice, key):
            kind = {ast.Load: "subscript", ast.Store: "store", ast.Del: "delete"}[type(node.ctx)]
            found.append((kind, node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == path:
            if node.args and is_key(node.args[0], key) and node.func.attr in ("get", "pop", "setdefault"):
                default = node.args[1] if len(node.args) > 1 else None
                given = default is not None and not (isinstance(default, ast.Constant) and default.value is None)
                kind = "get-default" if given or node.func.attr == "setdefault" else "get"
                if node.func.attr == "pop" and default is None:
                    kind = "pop"
                found.append((kind, node))
    return sorted(found, key=lambda item: (item[1].lineno, item[1].col_offset))


def is_key(node: ast.expr, key: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == key
