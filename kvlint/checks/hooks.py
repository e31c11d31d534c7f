"""Functions of the file that some file of the project registers as hooks which see keyword arguments, and on what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.names import ATTENTION_PARTS
from kvlint.analysis.scopes import FunctionInfo, HookUse
from kvlint.analysis.values import Member, Model
from kvlint.nodes import walk

REGISTRATIONS = ("register_forward_pre_hook", "register_forward_hook")
ATTENTION_WORDS = re.compile(r"(?i)attention|self_attn|\battn")
BLOCKS = (ast.If, ast.For, ast.IfExp, ast.comprehension, ast.ListComp)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class RegisteredHook:
    """A hook that sees the keywords of a module as the dict *keywords*. *role* is what the module is (attention, layer,
    model), "" where nothing tells; *before*: it runs in front of the module's ``forward``."""

    function: Function
    place: Place
    shown: str
    keywords: str
    role: str
    before: bool


def registered_hooks(facts: Facts) -> list[RegisteredHook]:
    """Every hook of the region that sees keyword arguments, each function once."""
    known = facts.memo.get("registered hooks")
    if not isinstance(known, list):
        found: dict[int, RegisteredHook] = {}
        for hook in (*_functions(facts), *_lambdas(facts)):
            earlier = found.setdefault(id(hook.function), hook)
            if not earlier.role and hook.role:
                found[id(hook.function)] = hook
        known = facts.memo["registered hooks"] = list(found.values())
    return known


def _functions(facts: Facts) -> Iterator[RegisteredHook]:
    for definition in facts.functions:
        info = definition.info
        for use in registrations_of(info):
            path = keywords_parameter(info.node, info.first_positional() + bound_by_partial(use.node))
            if sees_keywords(use.node) and path:
                role, before = role_of(use), is_before(use.node)
                yield RegisteredHook(info.node, definition.place, f"`{info.qualname}`", path, role, before)


def registrations_of(info: FunctionInfo) -> Iterator[HookUse]:
    """The calls that register the function, or a method of an ancestor that it overrides (``self.hook``)."""
    yield from info.hooks.values()
    if info.owner is not None:
        for ancestor in info.owner.ancestors()[1:]:
            method = ancestor.methods.get(info.name)
            if method is not None and method is not info:
                yield from method.hooks.values()


def _lambdas(facts: Facts) -> Iterator[RegisteredHook]:
    for call in facts.calls:
        func, given = call.node.func, call.node.args[0] if call.node.args else None
        if not isinstance(func, ast.Attribute) or func.attr not in REGISTRATIONS or not isinstance(given, ast.Lambda):
            continue
        path = keywords_parameter(given, 0)
        if sees_keywords(call.node) and path and facts.tree is not None:
            use = HookUse(call.node, call.callee, call.place.releases, facts.tree)
            yield RegisteredHook(given, call.place, "the hook", path, role_of(use), is_before(call.node))


def is_before(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == REGISTRATIONS[0]


def sees_keywords(node: ast.Call) -> bool:
    """True for ``with_kwargs=True``."""
    flags = (item.value for item in node.keywords if item.arg == "with_kwargs")
    return any(isinstance(flag, ast.Constant) and flag.value is True for flag in flags)


def bound_by_partial(node: ast.Call) -> int:
    """How many leading parameters ``partial(hook, a, b)`` fills."""
    given = node.args[0] if node.args else None
    if not isinstance(given, ast.Call):
        return 0
    name = given.func.attr if isinstance(given.func, ast.Attribute) else getattr(given.func, "id", "")
    return max(0, len(given.args) - 1) if name == "partial" else 0


def keywords_parameter(function: Function, first: int) -> str:
    """The parameter that gets the dict of keyword arguments: the third, behind the module and the arguments."""
    positional = [*function.args.posonlyargs, *function.args.args]
    return positional[first + 2].arg if len(positional) > first + 2 else ""


def role_of(use: HookUse) -> str:
    """What the module is: by its value, by the attribute it is, or by the conditions that pick it."""
    for atom in use.callee:
        if isinstance(atom, Member) and isinstance(atom.of, Model):
            return atom.of.role
    func = use.node.func
    module = func.value if isinstance(func, ast.Attribute) else None
    if isinstance(module, ast.Attribute) and module.attr in ATTENTION_PARTS:
        return "attention"
    return "attention" if picked_by_name(use) else ""


def picked_by_name(use: HookUse) -> bool:
    """True where a condition around the registration speaks of attention, or calls a function of the file that does."""
    functions = {
        node.name: node for node in walk(use.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    for node in walk(use.tree):
        if not isinstance(node, ast.If) or not any(part is use.node for item in node.body for part in walk(item)):
            continue
        called = [
            part.func.id for part in walk(node.test) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
        ]
        texts = [node.test, *(functions[name] for name in called if name in functions)]
        if any(ATTENTION_WORDS.search(ast.unparse(text)) for text in texts):
            return True
    return False
