"""A filled cache of one row for inputs that are expanded to several, or rows that are repeated in another order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import GenerationConfigValue, Value, literal
from kvlint.checks.base import Check
from kvlint.checks.bindings import NOTHING, Scope, position
from kvlint.checks.cache_feeds import (
    Feed,
    base_of_cache,
    cached_feeds,
    calls_in,
    copied,
    feed_at,
    feeds_in,
    is_output_cache,
    is_tokenizer_call,
    last_part,
    scope_of,
    single_value,
    slice_of,
)
from kvlint.findings import Category, Finding
from kvlint.nodes import walk

EXPANDERS = ("num_return_sequences", "num_beams")
PREFILLED = re.compile(r"(?i)prefix|prefill|prompt|system|base|root|shared|filled|template|context")
REPEATS = frozenset({"repeat", "expand", "repeat_interleave", "tile", "expand_as", "batch_repeat_interleave"})
CALL_ERRORS = frozenset({"RuntimeError", "Exception", "BaseException"})


class CacheBatchMismatch(Check):
    """Reports calls of ``generate`` that expand their inputs beside a filled cache that is not expanded."""

    triggers = ("num_return_sequences", "num_beams", "repeat_interleave", ".repeat(", ".expand(")
    also = (("cache", "past_key_values"),)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for feed in cached_feeds(facts):
            scope = scope_of(facts, feed)
            if feed.role == "generate" and not feed.place.caught & CALL_ERRORS:
                yield from self._expanded(facts, scope, feed)
            if not feed.place.caught & CALL_ERRORS:
                yield from self._repeated(facts, scope, feed)
            yield from self._order(facts, scope, feed)
            yield from self._layers(facts, scope, feed)

    def _expanded(self, facts: Facts, scope: Scope, feed: Feed) -> Iterator[Finding]:
        given = expansion(facts, scope, feed)
        if given is None or not filled(facts, scope, feed) or expanded(facts, scope, feed):
            return
        node, name, count = given
        assert feed.cache is not None
        cache = facts.source(feed.cache)
        rows = f"{count} rows" if count else "several rows"
        yield self.finding(
            facts,
            node,
            feed.place,
            f"`{name}` expands the inputs of `generate` to {rows} each, `{cache}` keeps the rows it was filled with: RuntimeError",
            releases=feed.place.releases,
            help=f"`{cache}.batch_repeat_interleave({count or name})` on a copy first",
        )

    def _repeated(self, facts: Facts, scope: Scope, feed: Feed) -> Iterator[Finding]:
        """Rows of the ids that filled the cache, repeated for a call that is given the cache as it is."""
        if len(feed.ids) != 1 or feed.role not in ("model", "generate"):
            return
        given = repeated_rows(scope, feed.ids[0])
        if given is None:
            return
        call, path, count = given
        fillings = [item for item in fillings_of(facts, scope, feed) if position(item.node) < position(feed.node)]
        if not fillings or any(len(item.ids) != 1 or rows_of(item.ids[0]) != path for item in fillings):
            return
        if len(scope.definitions(path, feed.node)) != 1 or len(scope.bindings.get(path, ())) != 1:
            return
        if expanded(facts, scope, feed, call):
            return
        assert feed.cache is not None
        cache = facts.source(feed.cache)
        yield self.finding(
            facts,
            feed.keyword or feed.cache,
            feed.place,
            f"`{facts.source(call)}` has other rows than `{cache}`, which was filled with those of `{path}`: RuntimeError",
            releases=feed.place.releases,
            help=f"`{cache}.batch_repeat_interleave({count})` on a copy first, and `repeat_interleave` for the ids",
        )

    def _order(self, facts: Facts, scope: Scope, feed: Feed) -> Iterator[Finding]:
        interleaved = [
            call
            for call in calls_on(scope, feed.path, "batch_repeat_interleave")
            if isinstance(call, ast.Call) and position(call) < position(feed.node)
        ]
        if not interleaved or len(feed.ids) != 1 or not feed.path:
            return
        ids = single_value(scope, feed.ids[0])
        if not isinstance(ids, ast.Call) or not isinstance(ids.func, ast.Attribute) or ids.func.attr != "repeat":
            return
        if (
            len(ids.args) != 2
            or not (isinstance(ids.args[1], ast.Constant) and ids.args[1].value == 1)
            or not interleaved[0].args
        ):
            return
        if ast.dump(ids.args[0]) != ast.dump(interleaved[0].args[0]) or not several_rows(scope, ids.func.value):
            return
        count = facts.source(ids.args[0])
        yield self.finding(
            facts,
            ids,
            feed.place,
            f"`repeat` puts the rows in the order a b a b, `{feed.path}.batch_repeat_interleave` in the order a a b b: "
            "rows meet the cache of other rows",
            releases=feed.place.releases,
            help=f"`{facts.source(ids.func.value)}.repeat_interleave({count}, dim=0)`",
            category=Category.SILENT,
        )

    def _layers(self, facts: Facts, scope: Scope, feed: Feed) -> Iterator[Finding]:
        """Rows tiled layer by layer, a b a b, beside ids whose rows are repeated in place, a a b b."""
        if len(feed.ids) != 1 or not feed.path:
            return
        ids = single_value(scope, feed.ids[0])
        if (
            not isinstance(ids, ast.Call)
            or last_part(path_of(ids.func) or getattr(ids.func, "attr", "")) != "repeat_interleave"
        ):
            return
        if "0" not in {ast.unparse(item) for item in (*ids.args[1:], *(word.value for word in ids.keywords))}:
            return
        for store in layer_stores(scope, feed):
            if position(store) < position(feed.node) and tiles_rows(store.value):
                yield self.finding(
                    facts,
                    store.value,
                    feed.place,
                    "the rows of the cache are put in the order a b a b, those of the ids in the order a a b b: rows meet the "
                    "cache of other rows",
                    releases=feed.place.releases,
                    help=f"`{feed.path}.batch_repeat_interleave(n)`",
                    category=Category.SILENT,
                )


def layer_stores(scope: Scope, feed: Feed) -> list[ast.Assign]:
    """``layer.keys = ...`` in loops over the layers of the cache of a call, and ``cache.layers[i].keys = ...``."""
    found: list[ast.Assign] = []
    for node in scope.nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr not in ("keys", "values"):
            continue
        if base_of_cache(target.value) == feed.path:
            found.append(node)
            continue
        for loop in scope.loops(node):
            if isinstance(loop, ast.For) and base_of_cache(iterated(loop.iter)) == feed.path:
                if path_of(target.value) in {path_of(item) for item in walk(loop.target)} - {""}:
                    found.append(node)
    return found


def iterated(node: ast.expr) -> ast.expr:
    """``cache.layers`` of ``enumerate(cache.layers)``."""
    if isinstance(node, ast.Call) and path_of(node.func) in ("enumerate", "list", "tuple", "reversed") and node.args:
        return node.args[0]
    return node


def tiles_rows(node: ast.expr) -> bool:
    """``x.repeat(n, 1, 1, 1)``, ``torch.tile(x, (n, 1, 1, 1))`` and ``torch.cat([x] * n, dim=0)``."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in ("cat", "concat"):
        dims = [*node.args[1:], *(item.value for item in node.keywords)]
        tiled = bool(node.args) and isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Mult)
        return tiled and {ast.unparse(item) for item in dims} <= {"0"}
    sizes = node.args[1:] if path_of(node.func) == "torch.tile" else node.args
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    ones = [ast.unparse(item) == "1" for item in sizes]
    return name in ("repeat", "tile") and len(ones) == 4 and not ones[0] and all(ones[1:])


def repeated_rows(scope: Scope, node: ast.expr) -> tuple[ast.Call, str, str] | None:
    """(call, path of the ids, how often) for ``ids.repeat(n, 1)``, ``ids.expand(n, -1)``, ``ids.repeat_interleave(n, 0)``."""
    call = single_value(scope, node)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
        return None
    path, count, rest = rows_of(call.func.value), call.args[0], call.args[1:]
    if isinstance(count, ast.Constant) and (not isinstance(count.value, int) or count.value < 2):
        return None
    if not isinstance(count, (ast.Constant, ast.Name, ast.Attribute)) or not path:
        return None
    dims = [*rest, *(item.value for item in call.keywords if item.arg == "dim")]
    if len(dims) != 1 or len(call.keywords) + len(rest) != 1:
        return None
    wanted = {"repeat": "1", "expand": "-1", "repeat_interleave": "0"}.get(call.func.attr)
    return (call, path, ast.unparse(count)) if wanted == ast.unparse(dims[0]) else None


def rows_of(node: ast.expr) -> str:
    """The name of ids, whole or cut by columns: ``ids``, ``ids[:, :-1]``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        rows = node.slice.elts[0]
        if isinstance(rows, ast.Slice) and rows.lower is None and rows.upper is None and rows.step is None:
            if isinstance(node.slice.elts[1], ast.Slice):
                return rows_of(node.value)
        return ""
    return node.id if isinstance(node, ast.Name) else ""


def fillings_of(facts: Facts, scope: Scope, feed: Feed) -> list[Feed]:
    """The calls that filled the cache of *feed*, where all of them are seen."""
    assert feed.cache is not None
    value = single_value(scope, feed.cache)
    source = is_output_cache(value)
    filling: list[Feed | None] = []
    if source == "()" and isinstance(value, (ast.Attribute, ast.Subscript)):
        filling = [feed_at(facts, value.value)]
    elif source:
        found = scope.definitions(source, value)
        filling = [feed_at(facts, found[0].value)] if len(found) == 1 else []
    elif isinstance(value, ast.Call) and not copied(facts, value) and feed.path and not scope.loops(feed.node):
        filling = [item for item in feeds_in(facts, scope, feed.path) if item.node is not feed.node]
    return [item for item in filling if item is not None and item.role == "model" and scope_of(facts, item) is scope]


def expansion(facts: Facts, scope: Scope, feed: Feed) -> tuple[ast.AST, str, str] | None:
    """(where, which option, how many rows) for a call that expands its inputs."""
    for keyword, (name, value) in zip(feed.node.keywords, feed.use.keywords, strict=True):
        if name in EXPANDERS and more_than_one(scope, keyword.value, value):
            return (
                keyword,
                name,
                facts.source(keyword.value) if isinstance(keyword.value, (ast.Constant, ast.Name)) else "",
            )
    for keyword, (name, value) in zip(feed.node.keywords, feed.use.keywords, strict=True):
        if name == "generation_config" and any(isinstance(atom, GenerationConfigValue) for atom in value):
            call = single_value(scope, keyword.value)
            for item in call.keywords if isinstance(call, ast.Call) else ():
                if (
                    item.arg in EXPANDERS
                    and isinstance(item.value, ast.Constant)
                    and isinstance(item.value.value, int)
                    and item.value.value > 1
                ):
                    return keyword, item.arg, str(item.value.value)
    return None


def more_than_one(scope: Scope, node: ast.expr, value: Value) -> bool:
    """True for a number above one, also for a parameter that is one by default."""
    if isinstance(node, ast.Name) and isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        spec = scope.node.args
        positional = [*spec.posonlyargs, *spec.args]
        defaults = [
            *zip(reversed(positional), reversed(spec.defaults), strict=False),
            *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
        ]
        default = next((item for arg, item in defaults if arg.arg == node.id), None)
        if default is not None and len(scope.bindings.get(node.id, ())) == 1:
            node = default
    known = literal(value)
    if isinstance(known, int) and not isinstance(known, bool):
        return known > 1
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 1


def filled(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True where the cache is known to hold tokens, as far as this function or the cache's name shows."""
    node = feed.cache
    for _ in range(4):
        if node is None:
            return False
        if copied(facts, node):
            assert isinstance(node, ast.Call)
            return holds_tokens(facts, scope, node.args[0], feed, a_copy=True)
        path = path_of(node)
        found = scope.definitions(path, node) if path else []
        if len(found) == 1 and found[0].kind == "assign" and found[0].value is not None and not is_output_cache(node):
            if fed_before(facts, scope, path, feed):
                return True
            node = found[0].value
            continue
        return holds_tokens(facts, scope, node, feed, a_copy=False)
    return False


def holds_tokens(facts: Facts, scope: Scope, node: ast.expr, feed: Feed, a_copy: bool) -> bool:
    path = path_of(node)
    if is_output_cache(node):
        return True
    if isinstance(node, ast.Call):
        return last_part(path_of(node.func)) in ("from_legacy_cache",)
    if path and fed_before(facts, scope, path, feed):
        return True
    if any(item.value is not None for item in scope.definitions(path, node)):
        return a_copy and not is_new(facts, scope, path, node)
    return a_copy or bool(PREFILLED.search(last_part(path)))


def is_new(facts: Facts, scope: Scope, path: str, at: ast.AST) -> bool:
    """True for a cache that was just constructed."""
    return all(
        isinstance(item.value, ast.Call) and not copied(facts, item.value) for item in scope.definitions(path, at)
    )


def fed_before(facts: Facts, scope: Scope, path: str, feed: Feed) -> bool:
    """True where an earlier call has written one row (or as many as it was given) into the cache."""
    first = next(iter(feeds_in(facts, scope, path)), None)
    return first is not None and position(first.node) < position(feed.node)


def expanded(facts: Facts, scope: Scope, feed: Feed, besides: ast.Call | None = None) -> bool:
    """True where the rows of the cache, or of what filled it, may be repeated already, *besides* one repetition."""
    assert feed.cache is not None
    expressions, paths = slice_of(scope, (feed.cache,))
    if any(repeats(item) for item in expressions):
        return True
    if any(repeats(item.value) for item in layer_stores(scope, feed)):
        return True
    feeding = {id(item.node): item for path in paths for item in feeds_in(facts, scope, path)}
    feeding |= {id(item.node): item for item in map(partial(feed_at, facts), expressions) if item is not None}
    feeding.pop(id(feed.node), None)
    if any(repeated_inputs(scope, item) for item in feeding.values()):
        return True
    found = repetitions(scope)
    return any(node is not besides for path in paths for node in found.get(path, ()))


def repeats(expression: ast.expr) -> bool:
    """``ids.repeat(4, 1)``, ``[text] * 4``."""
    for node in walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in REPEATS:
            return True
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mult)
            and isinstance(node.left, (ast.List, ast.Tuple))
        ):
            return True
    return False


def repeated_inputs(scope: Scope, feed: Feed) -> bool:
    """True where the rows of what is fed may be repeated ones."""
    known = scope.memo.get(("repeated inputs", id(feed.node)))
    if known is None:
        made, _ = slice_of(scope, feed.inputs)
        known = scope.memo["repeated inputs", id(feed.node)] = any(repeats(item) for item in made)
    return bool(known)


def repetitions(scope: Scope) -> dict[str, list[ast.Call]]:
    """Calls that repeat the rows of something, or are named as if they did, by the path of it."""
    known = scope.memo.get("repetitions")
    if not isinstance(known, dict):
        found: dict[str, list[ast.Call]] = {}
        for node in scope.calls:
            if isinstance(node.func, ast.Attribute):
                name = node.func.attr
                if name in REPEATS or "expand" in name or "repeat" in name:
                    found.setdefault(path_of(node.func.value).split(".layers")[0], []).append(node)
            if re.search(r"(?i)expand|repeat|batch|tile|beam", last_part(path_of(node.func))):
                for argument in node.args:
                    found.setdefault(path_of(argument), []).append(node)
        known = scope.memo["repetitions"] = found
    return known


def calls_on(scope: Scope, path: str, method: str) -> list[ast.AST]:
    return list(scope.methods.get(f"{path}.{method}", NOTHING).nodes)


def several_rows(scope: Scope, node: ast.expr) -> bool:
    """True for ids that a tokenizer made from several texts."""
    expressions, _ = slice_of(scope, (node,))
    for call in calls_in(expressions):
        if is_tokenizer_call(call) and call.args:
            first = call.args[0]
            if isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) > 1:
                return True
            if any(word.arg == "padding" for word in call.keywords) and path_of(first).endswith("s"):
                return True
    return False
