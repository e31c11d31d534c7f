"""Dicts of keyword arguments that the library fills and a function of the file reads: ``**kwargs``, hooks, ``model_kwargs``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import CallUse, Facts, FunctionUse, Place
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.nodes import walk
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import LocalFunction, Member, Model, ModelKwargs, Value, of_type
from kvlint.checks.library_calls import library_called

HOOK_REGISTRATIONS = ("register_forward_pre_hook", "register_forward_hook")
GENERATION_STEP = "_update_model_kwargs_for_generation"
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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
        for item in (*_spread(facts), *_hooks(facts), *_steps(facts), *_returned(facts)):
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
    """The third parameter of a hook that is registered with ``with_kwargs=True``."""
    for use in facts.calls:
        for function, place, shown in hook_functions(facts, use):
            path = keywords_parameter(function, method_of(facts, function))
            if path:
                yield LibraryDict(function, path, place, hook_role(use), f"`{path}` of {shown}")


def _steps(facts: Facts) -> Iterator[LibraryDict]:
    """``model_kwargs`` of an overridden ``_update_model_kwargs_for_generation``."""
    for definition in facts.functions:
        info = definition.info
        if info.name != GENERATION_STEP or info.owner is None:
            continue
        positional = [*info.node.args.posonlyargs, *info.node.args.args]
        bases = info.owner.foreign_bases()
        if len(positional) > 2 and any(is_torch_model_class(base) for base in bases):
            path = positional[2].arg
            yield LibraryDict(info.node, path, definition.place, "generate", f"`{path}` of `{info.name}`")


def _returned(facts: Facts) -> Iterator[LibraryDict]:
    """What ``super().prepare_inputs_for_generation(...)`` or that of a model returned, under the name it was put."""
    for use in facts.assigns:
        function = use.place.function
        path = path_of(use.target)
        if path and function is not None and returned_by_library(use.value):
            yield LibraryDict(function.node, path, use.place, "prepare", f"`{path}`, which the library made,")


def returned_by_library(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, ModelKwargs) and atom.hook for atom in value)


def hook_functions(facts: Facts, use: CallUse) -> Iterator[tuple[Function, Place, str]]:
    """The functions that a call registers as a hook which sees keyword arguments: with a method, those of the classes of
    the file that override it."""
    func = use.node.func
    if not isinstance(func, ast.Attribute) or func.attr not in HOOK_REGISTRATIONS or not use.arguments:
        return
    flag = use.keyword("with_kwargs")
    if flag is None or not isinstance(flag.value, ast.Constant) or flag.value.value is not True:
        return
    given = use.node.args[0] if use.node.args else None
    if isinstance(given, ast.Lambda):
        yield given, use.place, "the hook"
        return
    for atom in of_type(use.arguments[0], LocalFunction):
        for item in overriding(facts, atom.info):
            yield item.info.node, item.place, f"`{item.info.qualname}`"


def overriding(facts: Facts, info: FunctionInfo) -> Iterator[FunctionUse]:
    """The definition of a function in the file, and those of the classes that override it."""
    for item in facts.functions:
        owner = item.info.owner
        same = item.info is info
        if not same and owner is not None and info.owner is not None and item.info.name == info.name:
            same = any(other is info.owner for other in owner.ancestors()[1:])
        if same:
            yield item


def method_of(facts: Facts, function: Function) -> FunctionInfo | None:
    return next((item.info for item in facts.functions if item.info.node is function), None)


def keywords_parameter(function: Function, info: FunctionInfo | None) -> str:
    """The parameter of a hook that gets the dict of keyword arguments: the third, behind the module and the arguments."""
    positional = [*function.args.posonlyargs, *function.args.args]
    position = 2 + (info.first_positional() if info is not None else 0)
    return positional[position].arg if len(positional) > position else ""


def hook_role(use: CallUse) -> str:
    """What the module is on which a hook is registered; where nothing tells, an attention module."""
    for atom in use.callee:
        if isinstance(atom, Member) and isinstance(atom.of, Model):
            return atom.of.role
    return "attention"


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
