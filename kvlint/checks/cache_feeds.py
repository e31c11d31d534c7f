"""Calls that feed tokens to a model together with a cache: which cache, which ids, which mask, and how often."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.names import MODEL_NAMES
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import (
    Items,
    LayerPair,
    LegacyCache,
    LocalClass,
    LocalFunction,
    Mapping,
    Sequence,
    Symbol,
    Value,
    of_type,
)
from kvlint.checks.bindings import (
    COMPREHENSIONS,
    FUNCTIONS,
    LOOPS,
    NOTHING,
    Binding,
    Placed,
    Scope,
    by_path,
    paths_read,
    position,
    prefixes,
    tree_of,
)
from kvlint.checks.call_targets import is_none, own_cache_models, target_of
from kvlint.nodes import walk

CACHE_WORDS = ("cache", "past_key_values")
"""Keywords of a model and of `generate` for the cache, and members of their output that hold it."""
IDS_WORDS = ("input_ids", "inputs", "inputs_embeds", "decoder_input_ids")
SPEAKS_OF_MODELS = re.compile(
    r"get_seq_length|transformers|input_ids|\.logits|batch_repeat_interleave|DynamicCache|StaticCache|max_new_tokens"
)
PLAIN = (LegacyCache, Items, Sequence, Mapping, LayerPair)
"""Tuples and lists of tensors: nothing is written into them."""
TOKENIZER = re.compile(r"(?i)(?:^|_)(?:tok|tokeni[sz]er?|tknzr|processor|proc|enc(?:ode)?|text_processor)$")
READERS = frozenset(
    {
        "get_seq_length",
        "get_max_length",
        "get_max_cache_shape",
        "get_mask_sizes",
        "get_usable_length",
        "is_initialized",
        "to_legacy_cache",
        "activate_past_recording",
        "__len__",
    }
)
"""Methods of a cache that leave it as it is."""
HARMLESS = frozenset(
    {"len", "print", "isinstance", "type", "repr", "str", "id", "hasattr", "getattr", "bool", "deepcopy", "copy"}
)
"""Functions that leave a cache as it is."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One call. *role* is "model" or "generate"; *spread* are the mappings given with ``**``."""

    use: CallUse
    role: str
    keyword: ast.keyword | None
    cache: ast.expr | None
    ids: tuple[ast.expr, ...]
    mask: ast.expr | None
    spread: tuple[ast.expr, ...]

    @property
    def node(self) -> ast.Call:
        return self.use.node

    @property
    def place(self) -> Place:
        return self.use.place

    @property
    def path(self) -> str:
        """The path of the cache, "" where it is no plain path."""
        return path_of(self.cache) if self.cache is not None else ""

    @property
    def inputs(self) -> tuple[ast.expr, ...]:
        """All expressions that bring tokens."""
        return (*self.ids, *self.spread)


def feeds_of(facts: Facts) -> tuple[Feed, ...]:
    """All calls of a model or of ``generate`` in the region, in the order of the text."""
    known = facts.memo.get("feeds")
    if not isinstance(known, tuple):
        found = [feed for feed in (feed_of(facts, use) for use in facts.calls) if feed is not None]
        known = facts.memo["feeds"] = tuple(sorted(found, key=lambda feed: position(feed.node)))
    return known


def cached_feeds(facts: Facts) -> list[Feed]:
    """Those that are given a cache."""
    return [feed for feed in feeds_of(facts) if feed.cache is not None]


def helper_feeds(facts: Facts) -> tuple[Feed, ...]:
    """Calls of functions of the file that generate with the cache they are given; the other arguments count as ids."""
    known = facts.memo.get("helper feeds")
    if not isinstance(known, tuple):
        found = [feed for use in facts.calls for feed in helper_feed(facts, use)]
        known = facts.memo["helper feeds"] = tuple(sorted(found, key=lambda feed: position(feed.node)))
    return known


def helper_feed(facts: Facts, use: CallUse) -> Iterator[Feed]:
    functions = [atom for atom in use.callee if isinstance(atom, LocalFunction)]
    if len(functions) != 1 or len(use.callee) != 1 or any(isinstance(item, ast.Starred) for item in use.node.args):
        return
    info = functions[0].info
    if id(info.node) not in own_functions(facts) or any(item.arg is None for item in use.node.keywords):
        return
    spec = info.node.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)][info.first_positional() if functions[0].bound else 0 :]
    given: list[tuple[str, ast.expr, ast.keyword | None]] = [
        (name, node, None) for name, node in zip(names, use.node.args, strict=False)
    ]
    given += [(str(item.arg), item.value, item) for item in use.node.keywords]
    for name, node, keyword in given:
        if path_of(node) and generates_with(facts, info.node, name):
            others = tuple(other for key, other, _ in given if key != name)
            yield Feed(use, "helper", keyword, node, others, None, ())


def own_functions(facts: Facts) -> frozenset[int]:
    """The ids of the nodes of the functions of the file."""
    known = facts.memo.get("own functions")
    if not isinstance(known, frozenset):
        known = facts.memo["own functions"] = frozenset(id(item.info.node) for item in facts.functions)
    return known


def feeds_in(facts: Facts, scope: Scope, path: str | None = None) -> tuple[Feed, ...]:
    """The feeds of one scope, in the order of the text; with *path* those that are given the cache under it."""
    known = facts.memo.get("feeds by scope")
    if not isinstance(known, dict):
        found: dict[tuple[int, str | None], list[Feed]] = {}
        for feed in feeds_of(facts):
            where = id(scope_of(facts, feed).node)
            found.setdefault((where, None), []).append(feed)
            found.setdefault((where, feed.path), []).append(feed)
        known = facts.memo["feeds by scope"] = {key: tuple(feeds) for key, feeds in found.items()}
    found_here: tuple[Feed, ...] = known.get((id(scope.node), path), ())
    return found_here


def feeds_before(facts: Facts, scope: Scope, path: str, feed: Feed) -> tuple[Feed, ...]:
    """The feeds of the cache under *path* in front of *feed*, in the order of the text."""
    feeds = feeds_in(facts, scope, path)
    return feeds[: bisect_left(feeds, position(feed.node), key=lambda item: position(item.node))]


def feed_at(facts: Facts, node: ast.AST | None) -> Feed | None:
    """The feed that is this very call."""
    known = facts.memo.get("feeds by node")
    if not isinstance(known, dict):
        known = facts.memo["feeds by node"] = {id(feed.node): feed for feed in feeds_of(facts)}
    found: Feed | None = known.get(id(node))
    return found


def call_at(facts: Facts, node: ast.AST) -> CallUse | None:
    """What is known of a call."""
    known = facts.memo.get("calls by node")
    if not isinstance(known, dict):
        found: dict[int, CallUse] = {}
        for use in facts.calls:
            found.setdefault(id(use.node), use)
        known = facts.memo["calls by node"] = found
    use_here: CallUse | None = known.get(id(node))
    return use_here


def generates_with(facts: Facts, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """True where a function leaves a prompt and an answer in the cache that its parameter *name* holds."""
    scope = tree_of(facts).scope(function)
    if len(scope.bindings.get(name, ())) != 1:
        return False
    if not any(feed.role == "generate" or scope.loops(feed.node) for feed in feeds_in(facts, scope, name)):
        return False
    return not handled(facts, scope, name, function)


def feed_of(facts: Facts, use: CallUse) -> Feed | None:
    if facts.in_transformers and facts.foreign_engine:
        return None
    role = role_of(facts, use)
    if not role:
        return None
    keyword = cache = mask = None
    ids: list[ast.expr] = [use.node.args[0]] if use.node.args and not isinstance(use.node.args[0], ast.Starred) else []
    spread: list[ast.expr] = []
    for item, (_, value) in zip(use.node.keywords, use.keywords, strict=True):
        if item.arg is None:
            held = cache_in_dict(facts, item.value, value)
            if held is None:
                spread.append(item.value)
            elif cache is None:
                keyword, cache = item, held
        elif item.arg in CACHE_WORDS and not is_none(value) and not any(isinstance(atom, PLAIN) for atom in value):
            keyword, cache = item, item.value
        elif item.arg in IDS_WORDS:
            ids.append(item.value)
        elif item.arg == "attention_mask":
            mask = item.value
    return Feed(use, role, keyword, cache, tuple(ids), mask, tuple(spread))


def cache_in_dict(facts: Facts, node: ast.expr, value: Value) -> ast.expr | None:
    """The cache in a dict behind ``**`` that brings no tokens: ``dict(past_key_values=cache, max_new_tokens=5)``."""
    if len(value) != 1 or not isinstance(value[0], Mapping) or value[0].open or facts.tree is None:
        return None
    items = dict(value[0].items)
    if len(items.keys() & {*CACHE_WORDS}) != 1 or items.keys() & {*IDS_WORDS, "attention_mask"}:
        return None
    name = next(iter(items.keys() & {*CACHE_WORDS}))
    if is_none(items[name]) or any(isinstance(atom, PLAIN) for atom in items[name]):
        return None
    scope = tree_of(facts).scope_of(node)
    display = single_value(scope, node)
    if any(item.kind != "parameter" for item in scope.bindings.get(f"{path_of(node)}[{name!r}]", ())):
        return None
    if isinstance(display, ast.Dict):
        found = [
            item
            for key, item in zip(display.keys, display.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == name
        ]
    elif isinstance(display, ast.Call) and path_of(display.func) == "dict":
        found = [item.value for item in display.keywords if item.arg == name]
    else:
        return None
    return found[0] if len(found) == 1 and path_of(found[0]) else None


def role_of(facts: Facts, use: CallUse) -> str:
    """``model``, ``generate`` or ""."""
    target = target_of(facts, use)
    if target is not None:
        return target.role if target.role in ("model", "generate") else ""
    if facts.foreign_engine or any(isinstance(atom, (LocalFunction, LocalClass)) for atom in use.callee):
        return ""
    words = {item.arg for item in use.node.keywords} & {*CACHE_WORDS}
    func = use.node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if not words or not SPEAKS_OF_MODELS.search(facts.text) or own_cache_models(facts, {str(word) for word in words}):
        return ""
    if name == "generate" and isinstance(func, ast.Attribute):
        return "generate"
    if isinstance(func, ast.Name) and MODEL_NAMES.search(name):
        return "model"
    return ""


def scope_of(facts: Facts, feed: Feed) -> Scope:
    return tree_of(facts).scope_of(feed.node)


def last_part(path: str) -> str:
    return re.split(r"[.\[]", path)[-1]


# -- copies -----------------------------------------------------------------------------------------------------------


def copied(facts: Facts, node: ast.expr | None) -> str:
    """ "deep" or "shallow" for a call of ``copy.deepcopy`` or ``copy.copy``, else ""."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return ""
    use = call_at(facts, node)
    names = {atom.name for atom in of_type(use.callee, Symbol)} if use is not None else set()
    if "copy.deepcopy" in names:
        return "deep"
    if "copy.copy" in names:
        return "shallow"
    path = path_of(node.func)
    if path in ("copy.deepcopy", "deepcopy"):
        return "deep"
    return "shallow" if path == "copy.copy" and not names else ""


# -- loops ------------------------------------------------------------------------------------------------------------


def stays(facts: Facts, scope: Scope, path: str, region: ast.AST) -> bool:
    """True where the cache under *path* is, all through *region*, one object that nothing but feeds write to."""
    if not path or scope.bound_in(path, region):
        return False
    return not handled(facts, scope, path, region)


def handled(facts: Facts, scope: Scope, path: str, region: ast.AST) -> bool:
    """True where something in *region* may take tokens out of the cache, or hand it to code that may."""
    with_helpers = scope.node is not region or not isinstance(region, FUNCTIONS)
    return scope.inside(handlers(facts, scope, with_helpers).get(path, NOTHING), region)


def handled_between(facts: Facts, scope: Scope, path: str, start: tuple[int, int], end: tuple[int, int]) -> bool:
    """True where a statement that begins between two places, and is no loop, does that."""
    places = scope.memo.get(("handling statements", path))
    if not isinstance(places, list):
        found = handlers(facts, scope, True).get(path, NOTHING).nodes
        places = scope.memo["handling statements", path] = sorted(
            {position(item) for node in found for item in statements_around(scope, node) if not isinstance(item, LOOPS)}
        )
    first = bisect_right(places, start)
    return first < len(places) and places[first] < end


def statements_around(scope: Scope, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of the scope that hold a node."""
    for item in (node, *scope.tree.ancestors(node)):
        if item is scope.node:
            return
        if isinstance(item, ast.stmt):
            yield item


def handlers(facts: Facts, scope: Scope, with_helpers: bool) -> dict[str, Placed]:
    """What handles a cache in a scope, by the path of the cache; calls of helpers that generate do, unless *with_helpers*."""
    key = ("handlers", with_helpers)
    known = scope.memo.get(key)
    if not isinstance(known, dict):
        fed = facts.memo.get(f"fed {with_helpers}")
        if not isinstance(fed, frozenset):
            feeds = (*feeds_of(facts), *helper_feeds(facts)) if with_helpers else feeds_of(facts)
            fed = facts.memo[f"fed {with_helpers}"] = frozenset(id(feed.node) for feed in feeds)
        known = scope.memo[key] = by_path(handling(scope, fed))
    return known


def handling(scope: Scope, fed: frozenset[int]) -> Iterator[tuple[str, ast.AST]]:
    """(path of a cache, what handles it), calls that are *fed* left out."""
    for node in scope.nodes:
        if isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Attribute):
                owner = base_of_cache(func.value)
                if owner and (owner != path_of(func.value) or func.attr not in READERS):
                    yield owner, node
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if id(node) in fed or name in HARMLESS:
                continue
            for item in (*node.args, *(item.value for item in node.keywords)):
                path = path_of(strip_star(item))
                if path:
                    yield path, node
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield base_of_cache(node.value), node
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield base_of_cache(node.iter), node


def strip_star(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def base_of_cache(node: ast.expr) -> str:
    """The path of the cache behind ``cache``, ``cache.layers``, ``cache.layers[i]``, ``cache.layers[i].keys``."""
    current = node
    while True:
        if isinstance(current, ast.Subscript):
            current = current.value
        elif isinstance(current, ast.Attribute) and current.attr in (
            "layers",
            "keys",
            "values",
            "key_cache",
            "value_cache",
        ):
            current = current.value
        else:
            return path_of(current)


LEAVING = (ast.Break, ast.Return, ast.Raise)
"""Statements after which nothing of a block runs: a block that holds one ends with it, or with code that is dead."""


def leaves_at_once(scope: Scope, feed: Feed, loop: ast.AST) -> bool:
    """True where the loop ends in the very round of the feed: ``return generate(...)``, or a ``break`` behind it."""
    if isinstance(loop, COMPREHENSIONS):
        return False
    child: ast.AST = feed.node
    for item in scope.tree.ancestors(feed.node):
        if isinstance(item, ast.Return):
            return True
        if isinstance(child, ast.stmt):
            for block in (getattr(item, "body", None), getattr(item, "orelse", None), getattr(item, "finalbody", None)):
                if isinstance(block, list) and block and isinstance(block[-1], LEAVING):
                    if child is not block[-1] and any(one is child for one in block):
                        return True
        if item is loop:
            return False
        child = item
    return False


class Dependence:
    """What an expression inside a loop is made from."""

    def __init__(self, facts: Facts, scope: Scope, loop: ast.AST) -> None:
        self.facts = facts
        self.scope = scope
        self.loop = loop
        self.carried = False
        """Something that is handed from round to round, or that cannot be told."""
        self.varies = False
        """Something that is new in every round: the loop's own target, a line that is read."""
        self.fixed: set[str] = set()
        """Paths from outside of the loop that stay as they are."""
        self.calls: list[ast.Call] = []
        """Calls on the way, inside the loop."""
        self.nodes: list[ast.expr] = []
        """The expressions on the way."""
        self._seen: set[tuple[str, int]] = set()

    def follow(self, expression: ast.expr) -> Dependence:
        self.nodes.append(expression)
        for path, node in self._paths(expression):
            self._path(path, node)
        return self

    def _paths(self, expression: ast.expr) -> list[tuple[str, ast.expr]]:
        for node in walk(expression):
            if isinstance(node, ast.Call):
                self.calls.append(node)
                func = path_of(node.func)
                parts = func.split(".")
                if parts[0] in ("self", "cls") and not any(TOKENIZER.search(part) for part in parts[1:]):
                    self.carried = True
                if func in ("input", "next") or parts[-1] in ("readline", "prompt", "recv", "get"):
                    self.varies = self.varies or func == "input"
            elif isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
                self.carried = True
        return list(paths_read(expression))

    def _path(self, path: str, node: ast.expr) -> None:
        key = (path, id(node))
        if key in self._seen or self.carried:
            return
        self._seen.add(key)
        for prefix in prefixes(path):
            if self.scope.changed_in(prefix, self.loop):
                self.carried = True
                return
        inside = self.scope.bound_in(path, self.loop)
        if not inside:
            self.fixed.add(path)
            return
        for prefix in prefixes(path):
            if not any(item.path == prefix for item in inside):
                continue
            for binding in self.scope.definitions(prefix, node):
                self._binding(binding, node)

    def _binding(self, binding: Binding, at: ast.AST) -> None:
        tree = self.scope.tree
        if not tree.inside(binding.node, self.loop):
            self.carried = True  # either round: from before the loop, or from the round before
            return
        if binding.kind == "target" and binding.value is None:
            if isinstance(binding.node, (ast.For, ast.AsyncFor)) and binding.node is not self.loop:
                self.follow(binding.node.iter)
            elif isinstance(binding.node, ast.comprehension) and not tree.inside(binding.node, self.loop):
                self.carried = True
            self.varies = True
            return
        if binding.kind in ("augmented", "delete", "parameter") or binding.value is None:
            self.carried = binding.kind != "augmented" or self.carried
            if binding.kind == "augmented":
                self._augmented(binding)
            return
        if position(binding.node) > position(at):
            self.carried = True
            return
        self.follow(binding.value)

    def _augmented(self, binding: Binding) -> None:
        """``text += more``: fine where the name got a fresh value earlier in the same round."""
        assert isinstance(binding.node, ast.AugAssign)
        if binding.value is not None:
            self.follow(binding.value)
        for earlier in self.scope.definitions(binding.path, binding.node):
            if not self.scope.tree.inside(earlier.node, self.loop) or position(earlier.node) >= position(binding.node):
                self.carried = True
                return
            self._binding(earlier, binding.node)


def dependence(facts: Facts, scope: Scope, loop: ast.AST, expressions: tuple[ast.expr, ...]) -> Dependence:
    found = Dependence(facts, scope, loop)
    for item in expressions:
        found.follow(item)
    return found


# -- what is read from where --------------------------------------------------------------------------------------------


def slice_of(scope: Scope, expressions: tuple[ast.expr, ...], limit: int = 60) -> tuple[list[ast.expr], set[str]]:
    """The expressions that can have made *expressions*, followed back through the scope, and the paths they read."""
    key = ("slice", limit, tuple(map(id, expressions)))
    known = scope.memo.get(key)
    if not isinstance(known, tuple):
        known = scope.memo[key] = followed_back(scope, expressions, limit)
    return known


def followed_back(scope: Scope, expressions: tuple[ast.expr, ...], limit: int) -> tuple[list[ast.expr], set[str]]:
    todo: list[ast.expr] = list(expressions)
    found: list[ast.expr] = []
    paths: set[str] = set()
    seen: set[int] = set()
    while todo and len(found) < limit:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        found.append(item)
        for path, node in paths_read(item):
            paths.add(path)
            for prefix in prefixes(path):
                for binding in scope.definitions(prefix, node):
                    if binding.value is not None:
                        todo.append(binding.value)
                    elif isinstance(binding.node, (ast.For, ast.AsyncFor, ast.comprehension)):
                        todo.append(binding.node.iter)
    return found, paths


def calls_in(expressions: list[ast.expr]) -> Iterator[ast.Call]:
    for item in expressions:
        for node in walk(item):
            if isinstance(node, ast.Call):
                yield node


def is_tokenizer_call(node: ast.Call) -> bool:
    """``tok(...)``, ``self.tokenizer(...)``, ``tok.encode(...)``, ``tok.apply_chat_template(...)``."""
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in (
        "apply_chat_template",
        "encode_plus",
        "batch_encode_plus",
        "encode",
    ):
        return func.attr != "encode" or bool(TOKENIZER.search(last_part(path_of(func.value))))
    return bool(TOKENIZER.search(last_part(path_of(func)))) if path_of(func) else False


def single_value(scope: Scope, node: ast.expr) -> ast.expr:
    """What a name was assigned, where that is one expression."""
    path = path_of(node)
    found = scope.definitions(path, node) if path else []
    if len(found) == 1 and found[0].value is not None and found[0].kind == "assign":
        return found[0].value
    return node


def tokenized(scope: Scope, node: ast.expr) -> ast.Call | None:
    """The one call of a tokenizer that made *node*."""
    current = single_value(scope, node)
    while (
        isinstance(current, ast.Call)
        and isinstance(current.func, ast.Attribute)
        and current.func.attr in ("to", "cuda", "cpu")
    ):
        current = single_value(scope, current.func.value)
    return current if isinstance(current, ast.Call) and is_tokenizer_call(current) else None


def cache_sources(scope: Scope, feed: Feed) -> list[Binding]:
    """The bindings that the cache of a call comes from: of its own name, or of the output it is read off."""
    assert feed.cache is not None
    path = feed.path
    if isinstance(feed.cache, ast.Attribute) and feed.cache.attr in CACHE_WORDS and path:
        return scope.definitions(path, feed.node) or scope.definitions(path_of(feed.cache.value), feed.node)
    if isinstance(feed.cache, ast.Subscript) and path:
        return scope.definitions(path, feed.node) or scope.definitions(path_of(feed.cache.value), feed.node)
    return scope.definitions(path, feed.node) if path else []


def is_output_cache(node: ast.expr | None) -> str:
    """The path of ``out`` for ``out.cache``, ``out.past_key_values`` and ``out["cache"]``; "()" for that of a call."""
    if isinstance(node, ast.Attribute) and node.attr in CACHE_WORDS:
        return "()" if isinstance(node.value, ast.Call) else path_of(node.value)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in CACHE_WORDS:
        return path_of(node.value)
    return ""


# -- caches that outlive a call ----------------------------------------------------------------------------------------


Key = tuple[str, int]
"""A path and the id of a class (of None for a function outside of classes)."""


def renewers(facts: Facts) -> dict[Key, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that start a cache anew or handle it, by its path and their class."""
    known = facts.memo.get("renewers")
    if not isinstance(known, dict):
        known = facts.memo["renewers"] = by_function(
            facts, lambda scope: (*scope.bindings, *handlers(facts, scope, False))
        )
    return known


def by_function(
    facts: Facts, paths: Callable[[Scope], Iterable[str]]
) -> dict[Key, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of the file by the *paths* that each has to do with."""
    found: dict[Key, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    tree = tree_of(facts)
    for use in facts.functions:
        for path in dict.fromkeys(paths(tree.scope(use.info.node))):
            found.setdefault((path, id(use.info.owner)), []).append(use.info.node)
    return found


def renewing(facts: Facts, scope: Scope, feed: Feed) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions beside that of *feed* that share its cache and start it anew or handle it."""
    for node in renewers(facts).get((feed.path, id(feed.place.owner)), ()):
        if node is not scope.node:
            yield node


def renews(facts: Facts, other: Scope, path: str) -> bool:
    return path in other.bindings or handled(facts, other, path, other.node)


def renewed_by_callee(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True where the function first calls another one that starts the cache anew."""
    return any(node.name in scope.called for node in renewing(facts, scope, feed))


def renewed_elsewhere(facts: Facts, scope: Scope, feed: Feed) -> bool:
    return any(node.name != "__init__" for node in renewing(facts, scope, feed))
