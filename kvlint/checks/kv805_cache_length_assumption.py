"""The length of a cache taken for the length of the sequence that ``generate`` returned: it is one shorter."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import STATIC_CACHE, CacheObject, Certainty, Member, Model
from kvlint.checks.base import Check
from kvlint.checks.bindings import FAR, Binding, Placed, Scope, after, position, prefixes, tree_of
from kvlint.checks.cache_feeds import (
    Feed,
    call_at,
    feeds_in,
    feeds_of,
    is_output_cache,
    last_part,
    scope_of,
    single_value,
)
from kvlint.checks.turns import reads_length
from kvlint.findings import Category, Finding
from kvlint.nodes import assignment, walk

LIVE_COUNTERS = ">=5.4"
"""Releases on which ``get_seq_length`` of a static layer gives the tensor in which the layer counts."""
LENGTH_READERS = ("get_seq_length", "get_usable_length")
POSITION_MAKERS = ("arange",)
MASK_MAKERS = ("ones", "new_ones", "ones_like")


class CacheLengthAssumption(Check):
    """Reports places that take a cache to be as long as the sequence it generated."""

    triggers = ("get_seq_length", "get_usable_length", "cache=", "past_key_values=", ".crop(")
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        yield from self._state_space(facts)
        yield from self._live(facts)
        for feed in feeds_of(facts):
            if feed.role == "model":
                yield from self._one_place(facts, feed)
            if feed.role != "generate":
                continue
            scope = scope_of(facts, feed)
            names = result_names(scope, feed)
            if not names.returned or not (feed.path or names.caches):
                continue
            for node, what in assumptions(facts, scope, feed, names):
                yield self.finding(
                    facts,
                    node,
                    feed.place,
                    f"{what}: after `generate` the cache is one token shorter than the sequence it returned, "
                    "the last token has not been fed yet",
                    releases=feed.place.releases,
                    help="ask the cache, `cache.get_seq_length()`, or feed the last token again with what follows",
                )

    def _live(self, facts: Facts) -> Iterator[Finding]:
        """``before = static.get_seq_length()`` that is looked at again after the cache has been fed: it has moved along."""
        life = facts.timeline.matching(LIVE_COUNTERS)
        for use in facts.calls:
            atom = use.callee[0] if len(use.callee) == 1 else None
            cache = atom.of if isinstance(atom, Member) and atom.name == "get_seq_length" else None
            wrong = use.place.releases & life
            if not isinstance(cache, CacheObject) or cache.cls != STATIC_CACHE or not wrong:
                continue
            if cache.certainty == Certainty.PROVEN and is_looked_at_again(facts, use):
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    "this is the counter of the static cache itself {when}, a tensor that moves on with the next tokens: "
                    "later it is the new length, not the old one",
                    releases=wrong,
                    life=life,
                    help="take the number out of it: `int(cache.get_seq_length())`",
                )

    def _state_space(self, facts: Facts) -> Iterator[Finding]:
        """``out.cache.get_seq_length()`` of a model that has state-space layers only: there is nothing to count."""
        life = facts.timeline.keyword_of_kind("model", "cache")
        for use in facts.attributes:
            wrong = life & use.place.releases
            if use.name != "get_seq_length" or use.call is None or not wrong:
                continue
            if use.place.caught & {"ValueError", "Exception"} or not of_state_space_model(facts, use.value_node):
                continue
            yield self.finding(
                facts,
                use.node,
                use.place,
                "the cache of a model without attention layers counts no tokens: `get_seq_length()` raises ValueError {when}",
                releases=wrong,
                life=life,
                help="ask `has_previous_state()`, and count the tokens yourself",
                category=Category.BREAKS,
            )

    def _one_place(self, facts: Facts, feed: Feed) -> Iterator[Finding]:
        """The length of the cache as the position of all rows, where the prompt got its positions from the mask."""
        scope = scope_of(facts, feed)
        given = next((item.value for item in feed.node.keywords if item.arg == "position_ids"), None)
        if given is None or feed.mask is None or feed.cache is None:
            return
        made = single_value(scope, given)
        if not reads_length(made) or sums_mask(made):
            return
        for other in feeds_in(facts, scope):
            places = [item.value for item in other.node.keywords if item.arg == "position_ids"]
            if position(other.node) >= position(feed.node) or other.role != "model" or not places:
                continue
            if sums_mask(single_value(scope, places[0])):
                yield self.finding(
                    facts,
                    made,
                    feed.place,
                    "every row gets the length of the cache as its position; the prompt got positions without the padding, so "
                    "that shorter rows skip some",
                    releases=feed.place.releases,
                    help="go on from the mask: `mask.sum(-1, keepdim=True) - 1`",
                )
                return


STATE_SPACE = ("MambaForCausalLM", "MambaModel", "Mamba2ForCausalLM", "Mamba2Model", "FalconMamba")
"""Models whose layers all keep a state instead of keys and values."""


def is_looked_at_again(facts: Facts, use: CallUse) -> bool:
    """True where the length goes into a name of its own that is read after the same cache has been fed, and where the
    cache may have held something before: until then the length is a plain 0."""
    func, parent = use.node.func, use.parent
    path = path_of(func.value) if isinstance(func, ast.Attribute) else ""
    targets, value = assignment(parent)
    if not path or value is not use.node or len(targets) != 1:
        return False
    target = targets[0]
    scope = tree_of(facts).scope_of(use.node)
    if not isinstance(target, ast.Name) or len(scope.bindings.get(target.id, ())) != 1:
        return False
    fed = [position(feed.node) for feed in feeds_of(facts) if feed.path == path and scope_of(facts, feed) is scope]
    later = [place for place in fed if place > position(use.node)]
    made_here = any(place[0] for place in map(position, makers(scope, path)))
    if not later or (made_here and len(later) == len(fed)):
        return False
    return any(
        isinstance(node, ast.Name)
        and node.id == target.id
        and isinstance(node.ctx, ast.Load)
        and position(node) > min(later)
        for node in scope.nodes
    )


def makers(scope: Scope, path: str) -> list[ast.expr]:
    """What a name of the scope itself is bound to."""
    return [item.value for item in scope.bindings.get(path, ()) if item.value is not None]


def sums_mask(node: ast.expr) -> bool:
    """True where a ``cumsum`` or a ``sum`` has a part in it."""
    return any(isinstance(item, ast.Attribute) and item.attr in ("cumsum", "sum") for item in walk(node))


def of_state_space_model(facts: Facts, node: ast.expr) -> bool:
    """True for the cache of an output that only models of the families in STATE_SPACE can have returned."""
    source = is_output_cache(node)
    if isinstance(node, ast.Attribute) and node.attr == "cache_params":
        source = path_of(node.value)
    scope = tree_of(facts).scope_of(node)
    made = scope.definitions(source, node) if source not in ("", "()") else []
    calls = [call_at(facts, item.value) for item in made if item.value is not None]
    if not calls or len(calls) != len(made):
        return False
    for call in calls:
        models = [atom for atom in call.callee if isinstance(atom, Model)] if call is not None else []
        if not models or any(not item.cls.rpartition(".")[2].startswith(STATE_SPACE) for item in models):
            return False
    return True


class Names:
    """What is known by name after a call of ``generate``."""

    def __init__(self) -> None:
        self.returned: set[str] = set()
        """Paths of the returned ids."""
        self.caches: set[str] = set()
        """Paths of the cache."""
        self.result = ""


def result_names(scope: Scope, feed: Feed) -> Names:
    names = Names()
    if feed.path:
        names.caches.add(feed.path)
    for item in scope.by_value.get(id(feed.node), ()):
        if item.kind == "assign" and len(scope.bindings[item.path]) == 1:
            names.result = item.path
    if not names.result:
        return names
    whole = any(item.arg == "return_dict_in_generate" for item in feed.node.keywords)
    if whole:
        names.returned.add(f"{names.result}.sequences")
        names.caches |= {f"{names.result}.{word}" for word in ("cache", "past_key_values")}
    else:
        names.returned.add(names.result)
    for item in aliases(scope).get(names.result, ()):
        if item.value is not None and is_output_cache(item.value) == names.result:
            names.caches.add(item.path)
    todo = list(names.returned) if whole else []
    while todo:
        for item in aliases(scope).get(todo.pop(), ()):
            if item.value is not None and path_of(item.value) in names.returned and item.path not in names.returned:
                names.returned.add(item.path)
                todo.append(item.path)
    return names


def aliases(scope: Scope) -> dict[str, list[Binding]]:
    """Names that are assigned once, and a plain path or the cache of an output: by that path, and by that output."""
    known = scope.memo.get("aliases")
    if not isinstance(known, dict):
        found: dict[str, list[Binding]] = {}
        for bindings in scope.bindings.values():
            item = bindings[0]
            if len(bindings) == 1 and item.kind == "assign" and item.value is not None:
                for path in {path_of(item.value), is_output_cache(item.value)} - {""}:
                    found.setdefault(path, []).append(item)
        known = scope.memo["aliases"] = found
    return known


def assumptions(facts: Facts, scope: Scope, feed: Feed, names: Names) -> Iterator[tuple[ast.AST, str]]:
    """The places, and what is wrong there."""
    end = later_use(facts, scope, feed, names)
    for node in telling_nodes(scope).between(after(feed.node), FAR if end is None else end):
        if scope.tree.inside(node, feed.node):
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            left, right = resolved(scope, node.left), resolved(scope, node.comparators[0])
            if (is_cache_length(left, names) and is_whole_length(right, feed, names)) or (
                is_cache_length(right, names) and is_whole_length(left, feed, names)
            ):
                yield node, "the two lengths are never equal"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "crop" and path_of(node.func.value) in names.caches and node.args:
                if removes_generated(scope, node.args[0], names):
                    yield node.args[0], "one token too many is taken away"
    yield from skipped_token(facts, scope, feed, names, end)
    for other in feeds_on(facts, scope, feed, names, end, everywhere=False):
        if other.role != "model" or len(other.ids) != 1:
            continue
        for keyword in other.node.keywords:
            if keyword.arg in ("position_ids", "cache_position"):
                start = first_position(scope, keyword.value)
                if start is not None and is_returned_length(resolved(scope, start), names):
                    yield keyword, "the positions leave one out"
            elif keyword.arg == "attention_mask" and mask_is_longer(scope, keyword.value, names, path_of(other.ids[0])):
                yield keyword, "the mask is one too long"


def telling_nodes(scope: Scope) -> Placed:
    """The comparisons of a scope, and the calls of ``crop``."""
    known = scope.memo.get("telling nodes")
    if not isinstance(known, Placed):
        known = scope.memo["telling nodes"] = Placed(
            node
            for node in scope.nodes
            if isinstance(node, ast.Compare)
            or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "crop")
        )
    return known


def later_use(facts: Facts, scope: Scope, feed: Feed, names: Names) -> tuple[int, int] | None:
    """Where the cache next is fed or gets another value: what is said here holds up to there."""
    ends: list[tuple[int, int]] = []
    for path in names.caches:
        feeds = feeds_in(facts, scope, path)
        first_later = bisect_right(feeds, position(feed.node), key=feed_position)
        ends += [position(item.node) for item in feeds[first_later : first_later + 1]]
    for path in names.caches | names.returned:
        for prefix in prefixes(path):
            items, places = scope.placed(prefix)
            for item in islice(items, bisect_right(places, position(feed.node)), None):
                if item.value is not feed.node and not reads_result(item.value, names):
                    ends.append(position(item.node))
                    break
    first = min(ends) if ends else None
    return None if first is None else (first[0], first[1] + 1)


def reads_result(value: ast.expr | None, names: Names) -> bool:
    """True for ``out.past_key_values`` and ``out.sequences``: another name for the same."""
    return (
        value is not None
        and bool(names.result)
        and (is_output_cache(value) == names.result or path_of(value) in names.returned)
    )


def resolved(scope: Scope, node: ast.expr) -> ast.expr:
    """The expression behind a name that is assigned once."""
    for _ in range(3):
        path = path_of(node)
        found = scope.definitions(path, node) if path and isinstance(node, ast.Name) else []
        if len(found) != 1 or found[0].value is None or found[0].kind != "assign":
            break
        node = found[0].value
    return strip_int(node)


def strip_int(node: ast.expr) -> ast.expr:
    while (
        isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Name) and node.func.id == "int"
    ):
        node = node.args[0]
    return node


def is_cache_length(node: ast.expr, names: Names) -> bool:
    """``cache.get_seq_length()``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LENGTH_READERS
        and path_of(node.func.value) in names.caches
    )


def is_length_of(node: ast.expr, paths: set[str]) -> bool:
    """``x.shape[1]``, ``x.shape[-1]``, ``x.size(1)``, ``len(x[0])``."""
    return measured(node) in paths - {""}


def measured(node: ast.expr) -> str:
    """The path of the ids whose length an expression reads; "" for any other."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return path_of(node.value.value) if number(node.slice) in (1, -1) else ""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and len(node.args) == 1
    ):
        return path_of(node.func.value) if number(node.args[0]) in (1, -1) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        item = node.args[0]
        if isinstance(item, ast.Subscript) and not isinstance(item.slice, ast.Slice):
            return path_of(item.value)
    return ""


def lengths_of(scope: Scope) -> dict[str, set[str]]:
    """The paths that are given the length of some ids, by the path of the ids."""
    known = scope.memo.get("lengths")
    if not isinstance(known, dict):
        found: dict[str, set[str]] = {}
        for bindings in scope.bindings.values():
            for item in bindings:
                if item.value is not None:
                    found.setdefault(measured(strip_int(item.value)), set()).add(item.path)
        known = scope.memo["lengths"] = found
    return known


def feeds_by_path(facts: Facts) -> dict[str, list[Feed]]:
    """The feeds of the region by the path of their cache."""
    known = facts.memo.get("feeds by path")
    if not isinstance(known, dict):
        found: dict[str, list[Feed]] = {}
        for feed in feeds_of(facts):
            found.setdefault(feed.path, []).append(feed)
        known = facts.memo["feeds by path"] = found
    return known


def number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def is_returned_length(node: ast.expr, names: Names) -> bool:
    return is_length_of(node, names.returned)


def is_whole_length(node: ast.expr, feed: Feed, names: Names) -> bool:
    """The length of the returned ids: read off them, or that of the prompt and ``max_new_tokens``."""
    if is_returned_length(node, names):
        return True
    limit = next((item.value for item in feed.node.keywords if item.arg == "max_new_tokens"), None)
    if limit is None or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return False
    prompts = {path_of(item) for item in feed.ids} - {""}
    sides = (node.left, node.right)
    return any(is_length_of(one, prompts) and ast.dump(other) == ast.dump(limit) for one, other in (sides, sides[::-1]))


def removes_generated(scope: Scope, node: ast.expr, names: Names) -> bool:
    """``-(out.shape[1] - ids.shape[1])`` or ``ids.shape[1] - out.shape[1]``: the number of all generated tokens."""
    node = resolved(scope, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = resolved(scope, node.operand)
        return (
            isinstance(inner, ast.BinOp)
            and isinstance(inner.op, ast.Sub)
            and is_returned_length(resolved(scope, inner.left), names)
            and is_plain_length(resolved(scope, inner.right))
        )
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and is_returned_length(resolved(scope, node.right), names)
        and is_plain_length(resolved(scope, node.left))
    )


def is_plain_length(node: ast.expr) -> bool:
    """A length and nothing added or taken away."""
    return not isinstance(node, ast.BinOp) and not isinstance(node, ast.Constant)


def first_position(scope: Scope, node: ast.expr) -> ast.expr | None:
    """``start`` of ``torch.arange(start, ...)``, through ``unsqueeze`` and the like."""
    current = resolved(scope, node)
    for _ in range(4):
        if isinstance(current, ast.Subscript):
            current = current.value
            continue
        if not isinstance(current, ast.Call):
            return None
        if last_part(path_of(current.func)) in POSITION_MAKERS:
            return current.args[0] if len(current.args) >= 2 else None
        if isinstance(current.func, ast.Attribute) and current.func.attr in ("unsqueeze", "to", "expand", "view"):
            current = current.func.value
            continue
        return None
    return None


def mask_is_longer(scope: Scope, node: ast.expr, names: Names, ids: str) -> bool:
    """``torch.ones(1, out.shape[1] + ids.shape[1])``: as long as the returned ids and the new ones together."""
    current = resolved(scope, node)
    if not isinstance(current, ast.Call) or last_part(path_of(current.func)) not in MASK_MAKERS[:2]:
        return False
    parts = [
        part for item in current.args for part in (item.elts if isinstance(item, (ast.Tuple, ast.List)) else [item])
    ]
    if len(parts) != 2:
        return False
    length = resolved(scope, parts[1])
    if not isinstance(length, ast.BinOp) or not isinstance(length.op, ast.Add):
        return False
    sides = (resolved(scope, length.left), resolved(scope, length.right))
    return any(
        is_returned_length(one, names) and is_length_of(other, {ids} - {""}) for one, other in (sides, sides[::-1])
    )


def skipped_token(
    facts: Facts, scope: Scope, feed: Feed, names: Names, end: tuple[int, int] | None
) -> Iterator[tuple[ast.AST, str]]:
    """Ids that are cut at the length of the returned sequence and fed with the cache: the last returned token is left out."""
    lengths = {path for ids in names.returned for path in lengths_of(scope).get(ids, ())}
    shared = {path for path in lengths if path.startswith("self.")}
    for other in feeds_on(facts, scope, feed, names, end, everywhere=bool(shared or scope.loops(feed.node))):
        where = scope_of(facts, other)
        if where is not scope:
            if not other.path.startswith("self.") or other.place.owner is not feed.place.owner:
                continue
        known = lengths if where is scope else shared
        for ids in other.ids:
            start = cut_at(where, ids)
            if start is None:
                continue
            later = where is not scope or (
                position(other.node) > position(feed.node) and (end is None or position(other.node) < end)
            )
            again = (
                bool(set(map(id, where.loops(other.node))) & set(map(id, scope.loops(feed.node))))
                or path_of(start) in shared
            )
            if path_of(start) in known:
                if later or again:
                    yield start, "the last returned token is left out"
            elif later and where is scope and is_returned_length(resolved(scope, start), names):
                yield start, "the last returned token is left out"


def feeds_on(
    facts: Facts, scope: Scope, feed: Feed, names: Names, end: tuple[int, int] | None, everywhere: bool
) -> Iterator[Feed]:
    """The feeds of the cache: all of them, or those behind *feed* and in front of *end*."""
    for path in sorted(names.caches):
        if everywhere:
            yield from (
                item for item in feeds_by_path(facts).get(path, ()) if item is not feed or scope.loops(feed.node)
            )
            continue
        feeds = feeds_in(facts, scope, path)
        for item in islice(feeds, bisect_right(feeds, position(feed.node), key=feed_position), None):
            if end is not None and position(item.node) >= end:
                break
            yield item


def feed_position(feed: Feed) -> tuple[int, int]:
    return position(feed.node)


def cut_at(scope: Scope, node: ast.expr) -> ast.expr | None:
    """``n`` of ``ids[:, n:]``."""
    path = path_of(node)
    found = scope.definitions(path, node) if path else []
    if len(found) == 1 and found[0].value is not None and found[0].kind == "assign":
        node = found[0].value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        cut = node.slice.elts[1]
        if isinstance(cut, ast.Slice) and cut.lower is not None and cut.upper is None:
            return cut.lower
    return None
