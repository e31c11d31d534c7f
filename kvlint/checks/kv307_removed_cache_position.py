"""``cache_position``: refused by ``generate``, and no longer filled where a function of the file still counts on it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import UNKNOWN, Mapping
from kvlint.behaviour import releases_of
from kvlint.checks.absent_values import (
    dead_tests,
    insisted_on,
    is_name,
    need_of,
    place_at,
    present_by_key,
    present_by_name,
)
from kvlint.checks.base import Check
from kvlint.checks.bindings import Scope, position, tree_of
from kvlint.checks.cache_parameters import merge_place
from kvlint.checks.call_targets import Argument, arguments_of, is_none, target_of, with_threads
from kvlint.checks.kv214_incomplete_cache_subclass import is_cache_subclass
from kvlint.checks.kv305_unfilled_cache_parameter import required, unfilled
from kvlint.checks.library_calls import CACHE_PARAMETERS, LibraryCalled, library_called
from kvlint.checks.library_dicts import LibraryDict, key_uses, library_dicts
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet
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
        yield from self._keys(facts)
        yield from self._updates(facts)

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
                if item.written and use.place.releases <= life and not feeds_the_rest(facts, use, item):
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
        if parameter is None or item.elsewhere or item.role not in ("layer", "attention", "mixer", "prepare"):
            return None
        life = releases_of(facts.timeline, "cache-position-not-passed")
        wrong = life & item.place.releases
        missing = required(item.info, parameter)
        use = None if missing else need_of(item.info.node, NAME)
        if use is not None and behind_the_past(item.info, use):
            wrong = wrong - unfilled(facts, item)
        if not wrong:
            return None
        if not missing and use is None:
            return self._tested(facts, item, wrong, life)
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

    def _tested(self, facts: Facts, item: LibraryCalled, wrong: ReleaseSet, life: ReleaseSet) -> Finding | None:
        """A parameter that the body insists on, or whose test never holds."""
        function = item.info.node
        test = insisted_on(function, NAME)
        if test is not None:
            message = f"`{NAME}` of `{item.shown}` is None {{when}}: this test stops every call"
            return self._at(facts, test, item.place, message, life, Category.BREAKS)
        for test in dead_tests(function, present_by_name(NAME), lambda node: is_name(node, NAME)):
            message = f"`{NAME}` of `{item.shown}` is None {{when}}: this test never holds, and nothing says so"
            return self._at(facts, test, item.place, message, life, Category.SILENT)
        return None

    def _keys(self, facts: Facts) -> Iterator[Finding]:
        """``kwargs["cache_position"]`` and its like, in dicts that the library fills."""
        life = releases_of(facts.timeline, "cache-position-not-passed")
        for item in library_dicts(facts):
            if item.role == "model":
                continue  # whoever calls the model may hand it over
            for node, message, category in absent_key(item, facts):
                finding = self._at(facts, node, item.place, message, life, category)
                if finding is not None:
                    yield finding

    def _updates(self, facts: Facts) -> Iterator[Finding]:
        """``cache_kwargs`` of an overridden ``update``, which is None since layers count for themselves."""
        life = releases_of(facts.timeline, "cache-position-not-passed")
        if any(hands_cache_kwargs(use) for use in facts.calls):
            return  # code of the project calls it in a way of its own
        for definition in facts.functions:
            info = definition.info
            parameter = info.parameter("cache_kwargs")
            if info.name != "update" or info.owner is None or parameter is None or required(info, parameter):
                continue
            use = need_of(info.node, "cache_kwargs")
            if use is None or not is_cache_subclass(facts, info.owner) or not defaults_to_none(info, parameter):
                continue
            message = "models call `update` without `cache_kwargs`, which is None {when}: it raises here"
            finding = self._at(facts, use, definition.place, message, life, Category.BREAKS, "TypeError")
            if finding is not None:
                yield finding

    def _at(
        self,
        facts: Facts,
        node: ast.expr,
        outer: Place,
        message: str,
        life: ReleaseSet,
        category: Category,
        error: str = "KeyError",
    ) -> Finding | None:
        place = place_at(facts, node, outer)
        wrong = place.releases & life
        if not wrong or (category is Category.BREAKS and place.caught & {error, "Exception", "BaseException"}):
            return None
        return self.finding(
            facts,
            node,
            place,
            message,
            releases=wrong,
            life=life,
            help="the position of the first new token is `cache.get_seq_length()`; `is_first_iteration` tells the first step",
            category=category,
        )


def absent_key(item: LibraryDict, facts: Facts) -> Iterator[tuple[ast.expr, str, Category]]:
    """Uses of the key in a dict in which it is not any more: node, message, category."""
    uses = key_uses(item.function, item.path, NAME)
    asked = {kind for kind, _ in uses} & {"in", "not in", "get", "get-default"}
    stores = [position(node) for kind, node in uses if kind == "store"]
    raising = f'{item.shown} has no "{NAME}" {{when}}: KeyError'
    absent = f'"{NAME}" is never in {item.shown} {{when}}'
    told = False
    for kind, node in uses:
        if stores and position(node) > stores[0] and not in_statement_of(facts, node, stores[0]):
            return
        if kind in ("subscript", "pop", "delete") and not asked:
            if not told and not isinstance(tree_of(facts).parent(node), ast.Expr):
                yield node, raising, Category.BREAKS
            told = True
        elif kind == "get":
            found = got(facts, item, node)
            if found is not None:
                yield node, f"{absent}: {found[0]}", found[1]
    if asked == {"in"}:
        dead = dead_tests(item.function, present_by_key(item.path, NAME), lambda node: reads_key(node, item.path))
        for test in dead:
            yield test, f"{absent}: this test does not hold, and nothing says so", Category.SILENT


def in_statement_of(facts: Facts, node: ast.AST, start: tuple[int, int]) -> bool:
    """True where the node is read for the very statement that begins at *start*: ``d[k] = d[k][-1:] + n``."""
    return any(isinstance(item, ast.stmt) and position(item) == start for item in tree_of(facts).ancestors(node))


def reads_key(node: ast.AST, path: str) -> bool:
    return isinstance(node, ast.Subscript) and path_of(node) == f"{path}[{NAME!r}]"


def got(facts: Facts, item: LibraryDict, node: ast.expr) -> tuple[str, Category] | None:
    """What comes of ``d.get("cache_position")``: it fails at once, or in the name it is put into; None where all is well."""
    parent = tree_of(facts).parent(node)
    if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
        return "it raises", Category.BREAKS
    if isinstance(parent, ast.BinOp):
        return "it raises", Category.BREAKS
    targets, _ = assignment(parent)
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return None
    name = targets[0].id
    if len(tree_of(facts).scope(item.function).bindings.get(name, ())) != 1:
        return None
    if need_of(item.function, name, targets[0]) is not None:
        return f"`{name}` is None, and the body uses it as a tensor", Category.BREAKS
    if insisted_on(item.function, name) is not None:
        return f"`{name}` is None, and a test stops every call", Category.BREAKS
    for _ in dead_tests(item.function, present_by_name(name), lambda one: is_name(one, name)):
        return f"the test of `{name}` does not hold, and nothing says so", Category.SILENT
    return None


def hands_cache_kwargs(use: CallUse) -> bool:
    """True for ``cache.update(keys, values, layer, cache_kwargs)`` outside of an overridden ``update``."""
    func = use.node.func
    if not isinstance(func, ast.Attribute) or func.attr != "update":
        return False
    inside = use.place.function is not None and use.place.function.name == "update"
    return not inside and (len(use.node.args) > 3 or use.keyword("cache_kwargs") is not None)


def defaults_to_none(info: FunctionInfo, parameter: ast.arg) -> bool:
    spec = info.node.args
    positional = [*spec.posonlyargs, *spec.args]
    if parameter in positional:
        default: ast.expr | None = spec.defaults[positional.index(parameter) - len(positional)]
    else:
        default = spec.kw_defaults[spec.kwonlyargs.index(parameter)]
    return isinstance(default, ast.Constant) and default.value is None


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
    names = [arg.arg for arg in item.info.parameters() if arg.arg in CACHE_PARAMETERS]
    past = "cache" if "cache" in names else next(iter(names), None)
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


def feeds_the_rest(facts: Facts, use: CallUse, item: Argument) -> bool:
    """True where the positions begin at the length of the cache: the ids may be the new ones alone, and `generate` wants all."""
    name, scope = path_of(item.keyword.value), tree_of(facts).scope_of(use.node)
    values = [item.keyword.value, *(made.value for made in scope.definitions(name, use.node) if made.value is not None)]
    return any("get_seq_length" in facts.source(one) for one in values)


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


def behind_the_past(info: FunctionInfo, need: ast.expr) -> bool:
    """True where the use stands in a branch that is taken only with a cache, which KV305 says may never come."""
    for node in walk(info.node):
        if isinstance(node, ast.If) and any(
            isinstance(other, ast.Name) and other.id in CACHE_PARAMETERS for other in walk(node.test)
        ):
            if any(other is need for statement in node.body for other in walk(statement)):
                return True
    return False
