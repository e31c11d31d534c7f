"""``cache_position``: refused by ``generate``, and no longer filled where a function of the file still counts on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.nodes import walk
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import UNKNOWN, Mapping
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import Scope, position, tree_of
from kvlint.checks.cache_parameters import merge_place
from kvlint.checks.call_targets import Argument, arguments_of, is_none, target_of, with_threads
from kvlint.checks.kv305_unfilled_cache_parameter import required, unfilled
from kvlint.checks.library_calls import CACHE_PARAMETERS, LibraryCalled, library_called
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.rewriting import drop_keywords

NAME = "cache_position"


class RemovedCachePosition(Check):
    """Reports ``cache_position`` given to ``generate``, and parameters of that name that stay None where one is needed."""

    triggers = (NAME,)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        yield from self._arguments(facts)
        for item in library_called(facts):
            finding = self._parameter(facts, item)
            if finding is not None:
                yield finding

    def _arguments(self, facts: Facts) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "generate-refuses-cache-position")
        for use in with_threads(facts):
            for item in (*arguments_of(use), *set_on_inputs(facts, use)):
                if item.name != NAME or is_none(item.value):
                    continue
                target = target_of(facts, use)
                wrong = life & use.place.releases
                if (
                    target is None
                    or target.role != "generate"
                    or not wrong
                    or use.place.caught & {"ValueError", "Exception"}
                ):
                    continue
                fix = None
                if item.written and use.place.releases <= life:
                    edit = drop_keywords(facts, use.node, (NAME,))
                    fix = None if edit is None else Fix(f"Leave out `{NAME}`", Applicability.UNSAFE, (edit,))
                yield self.finding(
                    facts,
                    item.keyword,
                    use.place,
                    f"`generate` refuses `{NAME}=`: ValueError {{when}}",
                    releases=wrong,
                    life=life,
                    help="leave it out: pass all ids of the conversation with the cache, and `generate` feeds the new ones",
                    fix=fix,
                )

    def _parameter(self, facts: Facts, item: LibraryCalled) -> Finding | None:
        parameter = item.info.parameter(NAME)
        if parameter is None or item.elsewhere or item.role not in ("layer", "attention", "prepare"):
            return None
        life = releases_of(facts.timeline, "cache-position-not-passed")
        wrong = life & item.place.releases
        missing = required(item.info, parameter)
        use = None if missing else first_need(item.info)
        if use is not None and behind_the_past(item.info, use):
            wrong = wrong - unfilled(facts, item)
        if not wrong or (not missing and use is None):
            return None
        if missing:
            message = f"the library calls `{item.shown}` without `{NAME}`, which has no default: TypeError {{when}}"
        else:
            message = f"`{NAME}` of `{item.shown}` is None {{when}}, and its body uses it as a tensor: it raises there"
        start, _ = facts.span(parameter)
        return self.finding(
            facts,
            parameter,
            item.place,
            message,
            releases=wrong,
            life=life,
            help="the position of the first new token is `cache.get_seq_length()`; `is_first_iteration` tells the first step",
            category=Category.BREAKS,
            fix=count_positions(facts, item) if item.place.releases <= life and not missing else None,
            span=(start, start + len(NAME)),
        )


def set_on_inputs(facts: Facts, use: CallUse) -> Iterator[Argument]:
    """``inputs["cache_position"] = positions`` in front of a call that unpacks ``inputs``, which a tokenizer made."""
    for keyword, (name, value) in zip(use.node.keywords, use.keywords, strict=True):
        path = path_of(keyword.value)
        if name or not path or any(isinstance(atom, Mapping) for atom in value):
            continue
        scope = tree_of(facts).scope_of(use.node)
        found = scope.definitions(f"{path}[{NAME!r}]", use.node)
        made = scope.definitions(path, use.node)
        if len(found) != 1 or len(made) != 1 or found[0].kind != "assign" or made[0].kind != "assign":
            continue
        if position(made[0].node) < position(found[0].node) < position(use.node) and always(scope, found[0].node, use):
            if not (isinstance(found[0].value, ast.Constant) and found[0].value.value is None):
                yield Argument(NAME, UNKNOWN, keyword, False)


def always(scope: Scope, node: ast.AST, use: CallUse) -> bool:
    """True where a statement runs before every run of the call, and nothing takes the key out again."""
    block = scope.tree.parent(node)
    if not any(item is block for item in scope.tree.ancestors(use.node)) or isinstance(block, (ast.If, ast.Try)):
        return False
    return not any(
        isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr in ("pop", "clear")
        and position(node) < position(item) < position(use.node)
        for item in scope.nodes
    )


def count_positions(facts: Facts, item: LibraryCalled) -> Fix | None:
    """Makes the positions of the new tokens where none come; None where another fix is about to rename the cache."""
    function = item.info.node
    past = next((arg.arg for arg in item.info.parameters() if arg.arg in CACHE_PARAMETERS), None)
    if item.role != "prepare" or past is None or item.info.parameter("input_ids") is None:
        return None
    place = merge_place(facts, function)
    if place is None or unfilled(facts, item) or not imports_torch(facts, function):
        return None
    offset, indent = place
    masked = item.info.parameter("attention_mask") is not None
    length = (
        "input_ids.shape[1] if attention_mask is None else attention_mask.shape[1]" if masked else "input_ids.shape[1]"
    )
    lines = (
        f"if {NAME} is None:",
        f"    {NAME} = torch.arange(",
        f"        {past}.get_seq_length() if {past} is not None else 0,",
        f"        {length},",
        "        device=input_ids.device,",
        "    )",
    )
    text = "".join(f"{line}\n{indent}" for line in lines)
    return Fix(f"Make `{NAME}` where none comes", Applicability.UNSAFE, (Edit(offset, offset, text),))


def imports_torch(facts: Facts, function: ast.AST) -> bool:
    """True where the module, or a function around this one, says ``import torch``."""
    assert facts.tree is not None
    bodies = [facts.tree.body]
    for node in walk(facts.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(part is function for part in walk(node)):
            bodies.append(node.body)
    return any(
        isinstance(node, ast.Import) and any(alias.name == "torch" and alias.asname is None for alias in node.names)
        for body in bodies
        for node in body
    )


def first_need(info: FunctionInfo) -> ast.expr | None:
    """A use of the parameter that fails on None; None where the body tests it, sets it or only passes it on."""
    needed: ast.expr | None = None
    for node in walk(info.node):
        if isinstance(node, ast.Name) and node.id == NAME and not isinstance(node.ctx, ast.Load):
            return None
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) and mentions_as_test(node.test):
            return None
        if isinstance(node, ast.BoolOp) and any(mentions_as_test(value) for value in node.values):
            return None
        if is_needed(node):
            assert isinstance(node, ast.expr)
            needed = needed or node
    return needed


def is_needed(node: ast.AST) -> bool:
    """True for ``cache_position.x``, ``cache_position[i]`` and arithmetic with it."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return is_parameter(node.value) and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.BinOp) and (is_parameter(node.left) or is_parameter(node.right))


def behind_the_past(info: FunctionInfo, need: ast.expr) -> bool:
    """True where the use stands in a branch that is taken only with a cache, which KV305 says may never come."""
    for node in walk(info.node):
        if isinstance(node, ast.If) and any(
            isinstance(other, ast.Name) and other.id in CACHE_PARAMETERS for other in walk(node.test)
        ):
            if any(other is need for statement in node.body for other in walk(statement)):
                return True
    return False


def is_parameter(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == NAME


def mentions_as_test(test: ast.expr) -> bool:
    """True for ``cache_position``, ``cache_position is None`` and combinations: the body knows that it may be None."""
    if is_parameter(test):
        return True
    if isinstance(test, ast.UnaryOp):
        return mentions_as_test(test.operand)
    if isinstance(test, ast.BoolOp):
        return any(mentions_as_test(value) for value in test.values)
    return isinstance(test, ast.Compare) and is_parameter(test.left) and isinstance(test.ops[0], (ast.Is, ast.IsNot))
