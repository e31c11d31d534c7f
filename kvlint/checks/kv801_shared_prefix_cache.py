"""One cache for several prompts: every call writes into it, so only the first starts from the prefix."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import ENCODER_DECODER_CACHE, CacheObject, Certainty, Symbol, of_type
from kvlint.checks.base import Check
from kvlint.checks.bindings import (
    COMPREHENSIONS,
    FAR,
    NOTHING,
    Scope,
    after,
    paths_read,
    position,
    prefixes,
    tree_of,
)
from kvlint.checks.cache_feeds import (
    Dependence,
    Feed,
    by_function,
    cached_feeds,
    call_at,
    calls_in,
    copied,
    dependence,
    feeds_before,
    feeds_of,
    handled,
    handled_between,
    handlers,
    helper_feeds,
    is_output_cache,
    is_tokenizer_call,
    last_part,
    leaves_at_once,
    scope_of,
    single_value,
    slice_of,
    stays,
)
from kvlint.checks.turns import (
    goes_through_pieces,
    is_conversation,
    is_fixed_part,
    is_strided,
    mask_follows_past,
    reads_length,
)
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk

ALTERNATIVES = re.compile(
    r"(?i)(?:^|_)(?:candidates?|options?|choices?|continuations?|suffix(?:es)?|endings?|questions?|queries|prompts?|answers?|"
    r"completions?|hypothes[ei]s|branch(?:es)?|variants?|tails?|alternatives?|proposals?|conditions?|labels?|verbalizers?)(?:_|$)"
)
"""What people call texts that each follow the same prefix."""


LOOK_BACK = 8
"""So many calls on the same cache in front of a call are looked at: what came before those is in its ids or was in theirs."""
ENCODER_INPUTS = ("input_ids", "inputs_embeds", "encoder_outputs", "input_features", "pixel_values")
PLACES = ("attention_mask", "position_ids", "cache_position")
"""Arguments that say where in the sequence the tokens stand."""


class SharedPrefixCache(Check):
    """Reports a cache that several prompts write to, and shallow copies of a cache."""

    triggers = ("cache=", "past_key_values=", "copy.copy", 'past_key_values"', "past_key_values'", '"cache"', "'cache'")
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        feeds = cached_feeds(facts)
        told: set[int] = set()
        for feed in feeds:
            for shallow in shallow_copies(facts, feed):
                if id(shallow) not in told:
                    told.add(id(shallow))
                    yield self._shallow(facts, feed, shallow)
            for value in shared_layers(facts, feed):
                if id(value) not in told:
                    told.add(id(value))
                    yield self._layers(facts, feed, value)
        for shallow in copies_in_list(facts):
            if id(shallow) not in told:
                yield self._shallow(facts, None, shallow)
        for feed in feeds:
            kept = cross_half_kept(facts, feed)
            if kept is not None and id(kept) not in told:
                told.add(id(kept))
                yield self._cross(facts, feed, kept)
        first: set[tuple[int, str]] = set()
        for feed in (*feeds, *helper_feeds(facts)):
            scope = scope_of(facts, feed)
            loop = shared_in_loop(facts, scope, feed)
            if loop is not None and (id(loop), feed.path) not in first:
                first.add((id(loop), feed.path))
                yield self._shared(facts, feed, "the loop")
            elif loop is None and (follows_another(facts, scope, feed) or shared_by_calls(facts, scope, feed)):
                yield self._shared(facts, feed, "each call")

    def _shared(self, facts: Facts, feed: Feed, who: str) -> Finding:
        assert feed.cache is not None
        name = facts.source(feed.cache)
        argument = f"{feed.keyword.arg}=" if feed.keyword is not None and feed.keyword.arg else ""
        rounds = "every round of the loop" if who == "the loop" else "every call"
        return self.finding(
            facts,
            feed.keyword or feed.cache,
            feed.place,
            f"{rounds} writes into `{name}`: from the second prompt on, it holds the tokens of the prompts before",
            releases=feed.place.releases,
            help=f"give each prompt a copy: `{argument}copy.deepcopy({name})`",
            fix=deepcopy_fix(facts, feed),
        )

    def _cross(self, facts: Facts, feed: Feed, node: ast.AST) -> Finding:
        return self.finding(
            facts,
            node,
            feed.place,
            f"the keys of the first input stay in the cross half of `{feed.path}`: later rounds attend to it, not to their own",
            releases=feed.place.releases,
            help="build an `EncoderDecoderCache` for each input, or `reset()` it",
        )

    def _layers(self, facts: Facts, feed: Feed, node: ast.expr) -> Finding:
        return self.finding(
            facts,
            node,
            feed.place,
            f"the caches share these layers: what is fed to `{feed.path}` is written into the other one too",
            releases=feed.place.releases,
            help="copy the whole cache with `copy.deepcopy`",
        )

    def _shallow(self, facts: Facts, feed: Feed | None, node: ast.Call) -> Finding:
        use = call_at(facts, node)
        place = use.place if use is not None else feed.place if feed is not None else None
        assert place is not None
        name = facts.source(node.args[0])
        fix = None
        if isinstance(node.func, ast.Attribute):
            _, end = facts.span(node.func)
            fix = Fix("Copy the layers too", Applicability.UNSAFE, (Edit(end - len("copy"), end, "deepcopy"),))
        return self.finding(
            facts,
            node,
            place,
            f"`copy.copy` leaves the layers shared: what is fed to the copy is written into `{name}` too",
            releases=place.releases,
            help=f"`copy.deepcopy({name})`",
            fix=fix,
        )


def cross_half_kept(facts: Facts, feed: Feed) -> ast.AST | None:
    """Where a loop gives an encoder-decoder model input after input with one ``EncoderDecoderCache``: the store that renews its
    self half only, or the call where there is none."""
    scope = scope_of(facts, feed)
    loops = scope.loops(feed.node)
    given = feed.use.keyword_value(feed.keyword.arg) if feed.keyword is not None and feed.keyword.arg else None
    if not loops or not feed.path or given is None or feed.role != "model" or leaves_at_once(scope, feed, loops[0]):
        return None
    if not any(isinstance(atom, CacheObject) and atom.cls == ENCODER_DECODER_CACHE for atom in given):
        return None
    if any(item.path in prefixes(feed.path) for item in scope.bound_in(feed.path, loops[0])):
        return None
    halves = [
        f"{feed.path}.{name}" for name in ("self_attention_cache", "cross_attention_cache", "is_updated", "layers")
    ]
    if any(scope.bound_in(path, loops[0]) for path in halves[1:]) or scope.changed_in(halves[2], loops[0]):
        return None
    if any(scope.methods.get(f"{path}.reset", NOTHING).nodes for path in (feed.path, halves[1])):
        return None
    sources = tuple(item for item in feed.node.args[:1]) + tuple(
        item.value for item in feed.node.keywords if item.arg in ENCODER_INPUTS
    )
    found = dependence(facts, scope, loops[0], sources)
    if not sources or found.carried or not found.varies:
        return None
    renewing = scope.bound_in(halves[0], loops[0])
    if renewing:
        return renewing[0].node
    return feed.keyword if stays(facts, scope, feed.path, loops[0]) else None


def deepcopy_fix(facts: Facts, feed: Feed) -> Fix | None:
    """Wraps the cache in ``copy.deepcopy`` and imports ``copy`` where that is missing."""
    assert feed.cache is not None and isinstance(facts.tree, ast.Module)
    if feed.keyword is not None and feed.keyword.arg is None:
        return None  # the dict is filled once
    module = tree_of(facts).scope(facts.tree)
    if "copy" in module.bindings or "copy" in scope_of(facts, feed).bindings:
        return None
    edits: list[Edit] = []
    if not has_copy(module) and not has_copy(scope_of(facts, feed)):
        first = first_import(facts.tree)
        if first is None or copy_means_something_else(facts):
            return None
        where, _ = facts.span(first)
        edits.append(Edit(where, where, "import copy\n"))
    start, end = facts.span(feed.cache)
    edits += [Edit(start, start, "copy.deepcopy("), Edit(end, end, ")")]
    return Fix("Give each prompt a copy", Applicability.UNSAFE, tuple(edits))


def has_copy(scope: Scope) -> bool:
    """True where the scope imports ``copy``; a module does at its top level."""
    known = scope.memo.get("imports copy")
    if known is None:
        nodes = scope.node.body if isinstance(scope.node, ast.Module) else scope.nodes
        known = scope.memo["imports copy"] = any(imports_copy(node) for node in nodes)
    return bool(known)


def copy_means_something_else(facts: Facts) -> bool:
    known = facts.memo.get("copy means something else")
    if known is None:
        assert facts.tree is not None
        known = facts.memo["copy means something else"] = any(names_copy(node) for node in walk(facts.tree))
    return bool(known)


def imports_copy(node: ast.AST) -> bool:
    return isinstance(node, ast.Import) and any(item.name == "copy" and not item.asname for item in node.names)


def first_import(tree: ast.Module) -> ast.stmt | None:
    """The first import of the module that stands on a line of its own and is not one of ``__future__``."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.col_offset == 0:
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                return node
    return None


def names_copy(node: ast.AST) -> bool:
    """True where the name ``copy`` means something else than the module."""
    if isinstance(node, ast.alias):
        return (node.asname or node.name) == "copy"
    if isinstance(node, ast.Name):
        return node.id == "copy" and isinstance(node.ctx, ast.Store)
    return isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == "copy"


# -- shallow copies -----------------------------------------------------------------------------------------------------


def shallow_copies(facts: Facts, feed: Feed) -> Iterator[ast.Call]:
    """Calls of ``copy.copy`` that make the cache of *feed*, and whose layers stay those of the original."""
    scope = scope_of(facts, feed)
    assert feed.cache is not None
    if copied(facts, feed.cache) == "shallow":
        assert isinstance(feed.cache, ast.Call)
        yield feed.cache
        return
    if not feed.path:
        return
    definitions = scope.definitions(feed.path, feed.node)
    if not definitions or not all(copied(facts, item.value) for item in definitions):
        return
    for item in definitions:
        if copied(facts, item.value) == "shallow" and not renewed(scope, feed.path):
            assert isinstance(item.value, ast.Call)
            if outlives(scope, item.value, item.node):
                yield item.value


def copies_in_list(facts: Facts) -> Iterator[ast.Call]:
    """``[copy.copy(cache) for _ in candidates]`` of a cache that is known to be one, in a scope that replaces no layers."""
    if facts.tree is None:
        return
    tree = tree_of(facts)
    for use in facts.calls:
        if not any(atom.name == "copy.copy" for atom in of_type(use.callee, Symbol)) or len(use.node.args) != 1:
            continue
        around = tree.parent(use.node)
        if not isinstance(around, ast.ListComp) or around.elt is not use.node or not use.arguments:
            continue
        if not use.arguments[0] or not all(
            isinstance(atom, CacheObject) and atom.certainty is Certainty.PROVEN and atom.local_class is None
            for atom in use.arguments[0]
        ):
            continue
        scope = tree.scope_of(use.node)
        path = path_of(use.node.args[0])
        fixed = path.isidentifier() and not any(
            path == item.path and isinstance(item.node, ast.comprehension) for item in scope.bindings.get(path, ())
        )
        if fixed and not stores_layers(scope):
            yield use.node


def stores_layers(scope: Scope) -> bool:
    """True where something is given other layers."""
    known = scope.memo.get("stores layers")
    if known is None:
        known = scope.memo["stores layers"] = any(
            isinstance(node, ast.Attribute) and node.attr == "layers" and isinstance(node.ctx, ast.Store)
            for node in scope.nodes
        )
    return bool(known)


def shared_layers(facts: Facts, feed: Feed) -> Iterator[ast.expr]:
    """Values of ``branch.layers = ...`` that hold the very layers of another cache: ``root.layers``, ``list(root.layers)``."""
    scope = scope_of(facts, feed)
    for item in scope.bindings.get(f"{feed.path}.layers", ()) if feed.path else ():
        value = item.value
        if isinstance(value, ast.Call) and len(value.args) == 1 and path_of(value.func) in ("list", "copy.copy"):
            value = value.args[0]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "copy":
            value = value.func.value
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
            value = value.value
        if isinstance(value, ast.Attribute) and value.attr == "layers" and path_of(value.value) not in ("", feed.path):
            assert item.value is not None
            yield item.value


def renewed(scope: Scope, path: str) -> bool:
    """True where the layers of the copy are replaced: ``branch.layers = [...]``."""
    if path in scope.extended:
        return True
    return scope.changed_in(f"{path}.layers", scope.node)


def outlives(scope: Scope, call: ast.Call, statement: ast.AST) -> bool:
    """True where the original is used again: in the next round, further below, or by whoever owns it."""
    path = path_of(call.args[0])
    if not path or "." in path or scope.loops(call):
        return True
    bound = scope.bindings.get(path, [])
    if not bound or any(item.kind == "parameter" for item in bound):
        return True
    later = scope.loads.get(path, NOTHING).between(after(call.args[0]), FAR)
    return any(not scope.tree.inside(node, statement) for node in later)


# -- loops ----------------------------------------------------------------------------------------------------------------


def aliased(facts: Facts, scope: Scope, feed: Feed, loop: ast.AST) -> str:
    """The path of the cache outside of *loop*, through ``branch = base`` in its body; "" where each round has its own."""
    path = feed.path
    for _ in range(3):
        inside = scope.bound_in(path, loop) if path else []
        if not inside:
            return path
        if len(inside) != 1 or inside[0].path != path or inside[0].value is None:
            return ""
        path = path_of(inside[0].value)
    return ""


def shared_in_loop(facts: Facts, scope: Scope, feed: Feed) -> ast.AST | None:
    """The loop whose rounds all write into the cache of *feed* although each has a prompt of its own."""
    loops = scope.loops(feed.node)
    if not loops:
        return None
    loop = loops[0]
    path = aliased(facts, scope, feed, loop)
    if (
        not path
        or not stays(facts, scope, path, loop)
        or (path != feed.path and handled(facts, scope, feed.path, loop))
    ):
        return None
    if leaves_at_once(scope, feed, loop):
        return None
    found = dependence(facts, scope, loop, feed.inputs)
    placed = dependence(facts, scope, loop, tuple(item.value for item in feed.node.keywords if item.arg in PLACES))
    if found.carried or placed.carried or any(reads_length(item) for item in (*found.nodes, *placed.nodes)):
        return None
    if found.varies and (goes_through_pieces(loop) or (feed.role == "model" and is_strided(loop))):
        return None
    if (
        feed.role == "model"
        and not isinstance(loop, ast.While)
        and found.varies
        and starts_at_prefix(scope, loop, placed)
    ):
        return loop
    if feed.role != "model":
        return None if is_conversation(loop, found) else loop
    return loop if alternatives(facts, scope, feed, loop, found) else None


def starts_at_prefix(scope: Scope, loop: ast.AST, placed: Dependence) -> bool:
    """True where positions or mask say that every round starts at the same place, behind what was there before the loop."""
    for item in placed.nodes:
        for node in walk(item):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = last_part(path_of(node.func))
            if name == "arange" and len(node.args) > 1 and is_fixed(scope, loop, node.args[0]):
                return True
            if name in ("cat", "concat") and isinstance(node.args[0], (ast.List, ast.Tuple)) and node.args[0].elts:
                if is_fixed(scope, loop, node.args[0].elts[0]):
                    return True
            if name in ("ones", "new_ones"):
                parts = [part for argument in node.args for part in walk(argument) if isinstance(part, ast.BinOp)]
                if any(isinstance(part.op, ast.Add) and is_fixed(scope, loop, part.left) for part in parts):
                    return True
    return False


def is_fixed(scope: Scope, loop: ast.AST, node: ast.expr) -> bool:
    """True for something that is read from outside of *loop* and is the same in each round."""
    paths = [path for path, _ in paths_read(node)]
    return bool(paths) and not any(scope.bound_in(path, loop) or scope.changed_in(path, loop) for path in paths)


def alternatives(facts: Facts, scope: Scope, feed: Feed, loop: ast.AST, found: Dependence) -> bool:
    """True where the rounds of a loop over ``model(...)`` are alternatives, not pieces of one sequence."""
    if not found.varies or isinstance(loop, ast.While):
        return False
    source = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    targets: list[ast.expr] = [loop.target] if isinstance(loop, (ast.For, ast.AsyncFor)) else []
    if source is None and isinstance(loop, COMPREHENSIONS):
        source = loop.generators[0].iter
        targets = [loop.generators[0].target]
    if source is None:
        return False
    words = [last_part(path_of(node)) for part in (source, *targets) for node in walk(part) if path_of(node)]
    if not any(ALTERNATIVES.search(word) for word in words):
        return False
    return uses_result(scope, feed)


def uses_result(scope: Scope, feed: Feed) -> bool:
    """True where what the model says of the tokens is kept: the feed is more than a way to fill the cache."""
    return not isinstance(scope.tree.parent(feed.node), ast.Expr)


# -- one call after the other -----------------------------------------------------------------------------------------------


def follows_another(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True for a ``generate`` on a cache that an earlier ``generate`` of the same block has used for another prompt."""
    if feed.role != "generate" or not feed.path or scope.loops(feed.node):
        return False
    for earlier in reversed(feeds_before(facts, scope, feed.path, feed)[-LOOK_BACK:]):
        if between(facts, scope, earlier, feed):
            return False
        if earlier.role != "generate" or scope.loops(earlier.node) or not same_block(scope, earlier, feed):
            continue
        if other_prompt(facts, scope, earlier, feed):
            return True
    return False


def same_block(scope: Scope, earlier: Feed, later: Feed) -> bool:
    return scope.tree.parent(earlier.place.statement) is scope.tree.parent(later.place.statement)


def between(facts: Facts, scope: Scope, earlier: Feed, later: Feed) -> bool:
    """True where the cache gets another value, or is handled, between two feeds."""
    start, end = position(earlier.node), position(later.node)
    for prefix in prefixes(later.path):
        if scope.bound_between(prefix, start, end):
            return True
    return handled_between(facts, scope, later.path, start, end)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the ids of a feed are made from: calls on the way (by id), texts, paths that are read."""

    paths: set[str]
    calls: frozenset[int]
    texts: tuple[str, ...]
    tokenized: bool
    undecided: bool
    """Something that it reads is changed in place, or a method of the object has a part in it."""


def prompt_of(scope: Scope, feed: Feed) -> Prompt:
    known = scope.memo.get(("prompt", id(feed.node)))
    if not isinstance(known, Prompt):
        expressions, paths = slice_of(scope, feed.inputs)
        calls = list(calls_in(expressions))
        undecided = any(scope.changed_in(prefix, scope.node) for path in paths for prefix in prefixes(path)) or any(
            isinstance(node.func, ast.Attribute)
            and path_of(node.func).startswith("self.")
            and not is_tokenizer_call(node)
            for node in calls
        )
        known = scope.memo["prompt", id(feed.node)] = Prompt(
            paths,
            frozenset(map(id, calls)),
            tuple(strings(expressions)),
            any(is_tokenizer_call(node) for node in calls),
            undecided,
        )
    return known


def other_prompt(facts: Facts, scope: Scope, earlier: Feed, later: Feed) -> bool:
    """True where the later prompt is tokenized from a text of its own, without anything the earlier call returned."""
    if mask_follows_past(scope, later):
        return False
    new, old = prompt_of(scope, later), prompt_of(scope, earlier)
    if id(earlier.node) in new.calls or new.undecided:
        return False
    if same_head(scope, earlier, later):
        return True
    if not new.tokenized or not old.tokenized:
        return False
    if any(len(text) > len(before) > 3 and text.startswith(before) for text in new.texts for before in old.texts):
        return False
    return not any(is_assigned(scope, path) and grows(scope, path) for path in new.paths & old.paths)


def is_assigned(scope: Scope, path: str) -> bool:
    """True for a path that is given a value by a plain assignment."""
    known = scope.memo.get(("is assigned", path))
    if known is None:
        found = any(item.kind == "assign" for item in scope.bindings.get(path, ()))
        known = scope.memo["is assigned", path] = found
    return bool(known)


def same_head(scope: Scope, earlier: Feed, later: Feed) -> bool:
    """True for ``torch.cat([head, a], 1)`` and then ``torch.cat([head, b], 1)``, where *b* is not made from *a*."""
    parts = [joined(single_value(scope, feed.ids[0])) if len(feed.ids) == 1 else None for feed in (earlier, later)]
    if parts[0] is None or parts[1] is None:
        return False
    (head, first), (again, second) = parts[0], parts[1]
    if head != again or first == second or len(scope.bindings.get(head, ())) != 1:
        return False
    made: list[ast.expr] = []
    read = {second}
    bindings = scope.bindings.get(second, [])
    if len(bindings) != 1 or len(scope.bindings.get(first, ())) != 1:
        return False
    if bindings[0].value is not None:
        made, read = slice_of(scope, (bindings[0].value,))
    return first not in read and not any(node is earlier.node for node in calls_in(made))


def joined(node: ast.expr) -> tuple[str, str] | None:
    """(head, tail) of ``torch.cat([head, tail], ...)`` of two names."""
    if not isinstance(node, ast.Call) or last_part(path_of(node.func)) not in ("cat", "concat") or not node.args:
        return None
    if not isinstance(node.args[0], (ast.List, ast.Tuple)) or len(node.args[0].elts) != 2:
        return None
    names = [path_of(item) for item in node.args[0].elts]
    return (names[0], names[1]) if all(name.isidentifier() for name in names) else None


def strings(expressions: list[ast.expr]) -> list[str]:
    return [
        node.value
        for item in expressions
        for node in walk(item)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def grows(scope: Scope, path: str) -> bool:
    """True for a name that is built from itself: ``text = text + more``."""
    known = scope.memo.get(("grows", path))
    if known is None:
        known = scope.memo["grows", path] = any(
            item.kind == "augmented"
            or (item.value is not None and any(path_of(node) == path for node in walk(item.value)))
            for item in scope.bindings.get(path, ())
        )
    return bool(known)


# -- a cache that outlives the call -------------------------------------------------------------------------------------------


def shared_by_calls(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True for a prefix cache of an object or module that one function fills and another one generates with."""
    if feed.role != "generate" or not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    path = feed.path
    root = path.split(".")[0].split("[")[0]
    if not path or (root == "self") != ("." in path) or (root != "self" and root in scope.bindings):
        return False
    if not stays(facts, scope, path, scope.node) or mask_follows_past(scope, feed) or scope.node.name == "__init__":
        return False
    filled = fillings(facts).get((path, id(feed.place.owner) if root == "self" else id(None)))
    if filled is None or not filled.beside(scope):
        return False
    if root != "self" and not all(scope.tree.inside(scope.node, node) for node in filled.beside(scope)):
        return False
    if touched_elsewhere(facts, scope, feed, root):
        return False
    _, paths = slice_of(scope, feed.inputs)
    if any(scope.changed_in(prefix, scope.node) for name in paths for prefix in prefixes(name)):
        return False
    own = {name for name in paths if name.startswith("self.") and not is_fixed_part(name)}
    if any(name in scope.bindings or not filled.reads(name, scope) for name in own):
        return False
    shared = {
        name
        for name in paths
        if name != "self" and not re.search(r"(?i)tok|proc|device|model", name) and filled.reads(name, scope)
    }
    return bool(shared) and not any(bound_again(facts, scope, feed, name, filled) for name in shared)


class Fillings:
    """The functions that fill one cache of an object or module, and what they make its ids from."""

    def __init__(self) -> None:
        self.scopes: dict[int, Scope] = {}
        self.readers: dict[str, set[int]] = {}
        """By path, the functions whose ids are made from it."""
        self.kept: dict[str, list[tuple[int, str]]] = {}
        """By attribute, the functions that set it, and to which path."""

    def add(self, scope: Scope, feed: Feed) -> None:
        where = id(scope.node)
        if where not in self.scopes:
            self.scopes[where] = scope
            for bindings in scope.bindings.values():
                for item in bindings:
                    source = path_of(item.value) if item.value is not None and "." in item.path else ""
                    if source:
                        self.kept.setdefault(item.path, []).append((where, source))
        for path in slice_of(scope, feed.inputs)[1]:
            self.readers.setdefault(path, set()).add(where)

    def beside(self, scope: Scope) -> list[ast.AST]:
        """The functions other than this one."""
        return [item.node for item in self.scopes.values() if item is not scope]

    def reads(self, path: str, beside: Scope) -> bool:
        """True where another function makes ids from the path, or sets it to what it makes them from: ``self.head = head``."""
        if self.readers.get(path, set()) - {id(beside.node)}:
            return True
        return any(
            where != id(beside.node) and bool(self.readers.get(source, set()) - {id(beside.node)})
            for where, source in self.kept.get(path, ())
        )


def fillings(facts: Facts) -> dict[tuple[str, int], Fillings]:
    """What fills a cache, by its path and by the class that the functions belong to (None outside of classes)."""
    known = facts.memo.get("fillings")
    if not isinstance(known, dict):
        found: dict[tuple[str, int], Fillings] = {}
        for feed in feeds_of(facts):
            scope = scope_of(facts, feed)
            for path in filled_paths(scope, feed):
                found.setdefault((path, id(feed.place.owner)), Fillings()).add(scope, feed)
        known = facts.memo["fillings"] = found
    return known


def filled_paths(scope: Scope, feed: Feed) -> set[str]:
    """The paths of the caches that a call writes into, or returns."""
    found = {feed.path} - {""}
    if feed.role == "model":
        found |= returned_caches(scope).get(f"() {id(feed.node)}", set())
        for item in scope.by_value.get(id(feed.node), ()):
            found |= returned_caches(scope).get(item.path, set())
    return found


def returned_caches(scope: Scope) -> dict[str, set[str]]:
    """The paths that are set to the cache of an output: by the path of the output, or by the call that returns it."""
    known = scope.memo.get("returned caches")
    if not isinstance(known, dict):
        found: dict[str, set[str]] = {}
        for bindings in scope.bindings.values():
            for item in bindings:
                source = is_output_cache(item.value)
                if source == "()" and isinstance(item.value, (ast.Attribute, ast.Subscript)):
                    source = f"() {id(item.value.value)}"
                if source:
                    found.setdefault(source, set()).add(item.path)
        known = scope.memo["returned caches"] = found
    return known


def bound_again(facts: Facts, scope: Scope, feed: Feed, name: str, filled: Fillings) -> bool:
    """True where another function than those that fill the cache changes the shared ids."""
    if not name.startswith("self."):
        return False
    known = facts.memo.get("changing functions")
    if not isinstance(known, dict):
        known = facts.memo["changing functions"] = by_function(facts, lambda item: (*item.bindings, *item.changes))
    return any(
        node.name != "__init__" and (node is scope.node or id(node) not in filled.scopes)
        for node in known.get((name, id(feed.place.owner)), ())
    )


def touched_elsewhere(facts: Facts, scope: Scope, feed: Feed, root: str) -> bool:
    """True where another function takes tokens out of the cache, or builds it anew between calls."""
    whole = id(feed.place.owner) if root == "self" else 0
    known = facts.memo.get(("touching", whole))
    if not isinstance(known, dict):
        found: dict[str, list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]] = {}
        for function in facts.functions:
            if root == "self" and function.info.owner is not feed.place.owner:
                continue
            node = function.info.node
            other = scope.tree.scope(node)
            for path in handlers(facts, other, False):
                found.setdefault(path, []).append((node, True))
            if node.name != "__init__":
                for path in other.bindings:
                    found.setdefault(path, []).append((node, False))
        known = facts.memo["touching", whole] = found
    return any(
        node is not scope.node and (handles or node.name in scope.called) for node, handles in known.get(feed.path, ())
    )
