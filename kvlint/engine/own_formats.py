"""Classes that keep the past in a format of their own, as their syntax shows it: pairs, lists, sums, counts.

What the library would hand over as a cache object is whatever such a class returned one step before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.nodes import walk

PAST_NAMES = frozenset(
    {"past_key_values", "past_key_value", "cache", "past", "layer_past", "past_kv", "kv_cache", "cache_params"}
)
OUTPUT_KEYS = frozenset({"past_key_values", "cache", "cache_params"})
FORWARDS = ("forward", "__call__", "call")
OBJECT_METHODS = frozenset(
    {"update", "get_seq_length", "get_usable_length", "get_max_length", "to_legacy_cache", "reorder_cache"}
)


def own_forward(node: ast.ClassDef) -> ast.FunctionDef | None:
    """The method by which the class shows a format of its own."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name in FORWARDS:
            names = {arg.arg for arg in all_parameters(item) if arg.arg in PAST_NAMES}
            if speaks_to_objects(item, names) or passes_whole(item, names):
                continue
            if returns_pairs(item) or reads_layers(item, names):
                return item
    return None


def all_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def speaks_to_objects(function: ast.AST, names: set[str]) -> bool:
    """True where a method is called that cache objects have and collections do not."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in OBJECT_METHODS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in names | PAST_NAMES
        for node in walk(function)
    )


def passes_whole(function: ast.AST, names: set[str]) -> bool:
    """True where the past goes on as it came: to ``super().forward``, or to a model that the class holds."""
    builtins = (
        "zip",
        "enumerate",
        "len",
        "isinstance",
        "list",
        "tuple",
        "type",
        "iter",
        "print",
        "range",
        "bool",
        "hasattr",
    )
    for node in walk(function):
        if not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and node.func.id in builtins):
            continue
        called = isinstance(node.func, ast.Attribute) or (isinstance(node.func, ast.Name) and node.func.id.islower())
        given = [*node.args, *(item.value for item in node.keywords)]
        if called and any(isinstance(item, ast.Name) and item.id in names for item in given):
            return True
        if isinstance(node.func, ast.Attribute) and is_super(node.func.value):
            return True
    return False


def is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def returns_pairs(function: ast.AST) -> bool:
    """True where an output is made whose cache is a tuple or list that the function built."""
    built = {
        target.id
        for node in walk(function)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        and node.value is not None
        and is_collection(node.value)
        for target in flat(node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in walk(function):
        if isinstance(node, ast.keyword) and node.arg in OUTPUT_KEYS:
            if is_collection(node.value) or (isinstance(node.value, ast.Name) and node.value.id in built):
                return True
    return False


def flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from flat(target.elts)
        else:
            yield target


def is_collection(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return is_collection(node.body) or is_collection(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(is_collection(item) for item in node.values)
    if isinstance(node, ast.Tuple) and any(is_collection(item) for item in node.elts):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("tuple", "list")
    return isinstance(node, (ast.Tuple, ast.List, ast.ListComp, ast.GeneratorExp))


def reads_layers(function: ast.AST, names: set[str]) -> bool:
    """True for ``past[0][0]``, ``past[index]`` and ``zip(self.layers, past)``."""
    for node in walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
            if isinstance(node.slice, ast.Name):
                return True
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
            inner = node.value.value
            if isinstance(inner, ast.Name) and inner.id in names:
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            given = [item.id for item in node.args if isinstance(item, ast.Name)]
            if node.func.id == "zip" and names & set(given):
                return True
    return False
