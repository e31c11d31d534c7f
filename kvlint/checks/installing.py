"""Functions of the project that put what they are given in the place of a method of a model's parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvlint.analysis.callers import CACHE_PARAMETERS, PREPARE, fills
from kvlint.analysis.facts import AttributeUse, CallUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import LocalFunction, Symbol, Value, literal, of_type
from kvlint.nodes import children, walk

BINDERS = frozenset({"MethodType", "partial", "partialmethod", "wraps"})


@dataclass(frozen=True, slots=True)
class Installed:
    """*function* becomes the method *member* of the class *target*, by a call of a helper."""

    function: FunctionInfo
    target: str
    member: str
    use: CallUse


def installed_by_helpers(facts: Facts) -> Iterator[Installed]:
    """``replace_method(model, "LlamaAttention", "forward", attention)`` where the helper walks over the modules of a model
    and sets the method on those of the class that it is told; ``patch(LlamaAttention, "forward", attention)``."""
    sets: dict[int, list[Set]] = {}
    for use in facts.calls:
        if len(use.callee) != 1 or not isinstance(use.callee[0], LocalFunction) or use.starred:
            continue
        helper = use.callee[0].info
        given = arguments_by_name(helper, use)
        if not any(of_type(value, LocalFunction) for value in given.values()):
            continue
        if id(helper.node) not in sets:
            sets[id(helper.node)] = list(sets_of(helper.node))
        for holder, member, value, tests in sets[id(helper.node)]:
            name = member if isinstance(member, str) else literal(given.get(member.id, ()))
            classes = [symbol.name for symbol in of_type(given.get(holder, ()), Symbol)]
            for target in classes or [target for test in tests for target in picked(test, given)]:
                for function in of_type(given.get(value, ()), LocalFunction):
                    if isinstance(name, str):
                        yield Installed(function.info, target, name, use)


def arguments_by_name(helper: FunctionInfo, use: CallUse) -> Mapping[str, Value]:
    """The values that a call gives to the parameters of a function."""
    spec = helper.node.args
    bound = helper.first_positional() if helper.owner is not None else 0
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)][bound:]
    return {**dict(zip(names, use.arguments, strict=False)), **{name: value for name, value in use.keywords if name}}


Set = tuple[str, "str | ast.Name", str, "list[ast.expr]"]
"""What a function puts on an object: the name of that, the member (its name, or the parameter that has it), the parameter
whose value it gets, and the conditions around."""


def sets_of(function: ast.AST) -> Iterator[Set]:
    """What a function puts on objects."""
    pending: list[tuple[ast.AST, list[ast.expr]]] = [(function, [])]
    while pending:
        node, tests = pending.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            if len(node.args) == 3:
                member, value, holder = node.args[1], inner_name(node.args[2]), inner_name(node.args[0])
                if value and isinstance(member, ast.Name):
                    yield holder, member, value, tests
                elif value and isinstance(member, ast.Constant) and isinstance(member.value, str):
                    yield holder, member.value, value, tests
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            value = inner_name(node.value)
            if value:
                yield inner_name(node.targets[0].value), node.targets[0].attr, value, tests
        if isinstance(node, ast.If):
            pending += [(child, [*tests, node.test]) for child in node.body]
            pending += [(child, tests) for child in (node.test, *node.orelse)]
        else:
            pending += [(child, tests) for child in children(node)]


def inner_name(node: ast.expr) -> str:
    """The name behind ``f``, ``f.__get__(module)`` and ``MethodType(f, module)``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "__get__":
            return inner_name(func.value)
        last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if last in BINDERS and node.args:
            return inner_name(node.args[0])
    return ""


def picked(test: ast.expr, given: Mapping[str, Value]) -> Iterator[str]:
    """The classes that a condition picks: by a name that it is compared with, or by ``isinstance``."""
    for node in walk(test):
        if isinstance(node, ast.Compare) and "__name__" in ast.unparse(node):
            for side in (node.left, *node.comparators):
                known = literal(given.get(side.id, ())) if isinstance(side, ast.Name) else None
                if isinstance(known, str):
                    yield known
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("isinstance", "issubclass")
            and len(node.args) == 2
        ):
            if isinstance(node.args[1], ast.Name):
                for symbol in of_type(given.get(node.args[1].id, ()), Symbol):
                    yield symbol.name


def filled_beside(facts: Facts, use: AttributeUse, info: FunctionInfo) -> bool:
    """True for a ``forward`` that is put on an object and gets its cache from what is put there beside it: a
    ``prepare_inputs_for_generation`` of the same object, or the ``forward`` of the object that holds it and calls it."""
    path = path_of(use.value_node)
    if use.name != "forward" or not path:
        return False
    for other in facts.attributes:
        if other.action != "store" or other.place.function is not use.place.function:
            continue
        holder = path_of(other.value_node)
        for function in of_type(other.assigned, LocalFunction):
            if other.name == PREPARE and holder == path and fills(function.info, info):
                return True
            if other.name == "forward" and holder and path.startswith(f"{holder}."):
                if calls_member(function.info, path.removeprefix(f"{holder}."), info):
                    return True
    return False


def calls_member(caller: FunctionInfo, member: str, called: FunctionInfo) -> bool:
    """True where a method calls a part of its object, ``self.model(...)``, with a cache that the part's ``forward`` takes."""
    names = CACHE_PARAMETERS & {arg.arg for arg in called.parameters()}
    first = next((arg.arg for arg in caller.parameters()), "")
    return any(
        isinstance(node, ast.Call)
        and path_of(node.func) == f"{first}.{member}"
        and any(keyword.arg in names for keyword in node.keywords)
        for node in walk(caller.node)
    )
