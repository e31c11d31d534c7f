"""A mask that does not cover what the cache holds, or none although the batch is padded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Certainty, cache_of
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import Scope, position, prefixes
from kvlint.checks.cache_feeds import (
    Feed,
    cache_sources,
    cached_feeds,
    calls_in,
    dependence,
    feed_at,
    feeds_before,
    handled,
    is_output_cache,
    is_tokenizer_call,
    leaves_at_once,
    renewed_by_callee,
    renewed_elsewhere,
    scope_of,
    single_value,
    slice_of,
    stays,
    tokenized,
)
from kvlint.checks.turns import (
    CHAT,
    goes_through_pieces,
    is_conversation,
    mask_follows_past,
    may_hold_history,
    reads_length,
)
from kvlint.findings import Category, Finding
from kvlint.nodes import walk

LOOK_BACK = 8
"""So many of the first and of the last calls on a cache are looked at for the one that padded the batch."""
ENCODER_WORDS = frozenset({"decoder_input_ids", "encoder_outputs", "encoder_hidden_states", "decoder_attention_mask"})


class StaleAttentionMask(Check):
    """Reports calls on a used cache whose mask covers only the new tokens, is that of the prompt, or is left out."""

    triggers = ("cache=", "past_key_values=")
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for feed in cached_feeds(facts):
            scope = scope_of(facts, feed)
            if ENCODER_WORDS & {item.arg for item in feed.node.keywords}:
                continue
            if feed.role == "generate":
                if turn_in_loop(facts, scope, feed) or turn_of_object(facts, scope, feed):
                    yield self._turn(facts, feed)
            elif new_tokens_only(facts, scope, feed):
                yield self._short(facts, feed, "covers only the new tokens")
            elif remade_mask(facts, scope, feed):
                yield self._short(facts, feed, "covers only the new tokens")
            elif prompt_mask(facts, scope, feed):
                yield self._short(facts, feed, "stays that of the prompt while the cache grows")
            else:
                source = dropped_mask(facts, scope, feed)
                if source is not None:
                    yield self._dropped(facts, feed, source)

    def _turn(self, facts: Facts, feed: Feed) -> Finding:
        node: ast.AST = feed.node
        spread = [item for item in feed.node.keywords if item.arg is None]
        given = [item for item in feed.node.keywords if item.arg == "attention_mask"]
        if given or spread:
            node = (given or spread)[0]
        assert feed.cache is not None
        name = facts.source(feed.cache)
        return self.finding(
            facts,
            node,
            feed.place,
            f"only the new turn is passed, and `generate` takes it for the whole conversation: as many of its first tokens as "
            f"`{name}` holds are dropped",
            releases=feed.place.releases,
            help=f"pass the ids of the whole conversation, or a mask over `{name}.get_seq_length()` and the new tokens",
        )

    def _short(self, facts: Facts, feed: Feed, what: str) -> Finding:
        node = next((item for item in feed.node.keywords if item.arg == "attention_mask"), None)
        spread = next((item for item in feed.node.keywords if item.arg is None), None)
        life = releases_of(facts.timeline, "short-mask-is-padded")
        silent = life & feed.place.releases
        when = facts.timeline.describe(life, facts.timeline.all)
        result = f"what it does not cover is masked out {when}" if silent else "RuntimeError"
        if silent and feed.place.releases - life:
            result += ", a RuntimeError before"
        return self.finding(
            facts,
            node or spread or feed.node,
            feed.place,
            f"the mask {what}: {result}",
            releases=feed.place.releases,
            help="the mask has to cover the past and the new tokens: `torch.cat([mask, mask.new_ones(mask.shape[0], n)], dim=1)`",
            category=Category.SILENT if silent else Category.BREAKS,
        )

    def _dropped(self, facts: Facts, feed: Feed, source: str) -> Finding:
        return self.finding(
            facts,
            feed.node,
            feed.place,
            f"no attention mask although the batch in the cache is padded (`{source}`): the padding is attended to",
            releases=feed.place.releases,
            help="extend the mask at every step, `torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)`, and pass it",
        )


# -- a new turn alone, given to generate --------------------------------------------------------------------------------------


def turn_in_loop(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True in a loop over the turns of a conversation that gives `generate` the new turn and the cache of all."""
    loops = scope.loops(feed.node)
    if (
        not loops
        or not feed.path
        or not (stays(facts, scope, feed.path, loops[0]) or handed_on(facts, scope, feed, loops[0]))
        or leaves_at_once(scope, feed, loops[0])
    ):
        return False
    found = dependence(facts, scope, loops[0], feed.inputs)
    if (
        found.carried
        or not found.varies
        or any(reads_length(item) for item in found.nodes)
        or mask_follows_past(scope, feed)
    ):
        return False
    if goes_through_pieces(loops[0]) or not is_conversation(loops[0], found):
        return False
    return any(is_tokenizer_call(call) for call in found.calls)


def handed_on(facts: Facts, scope: Scope, feed: Feed, loop: ast.AST) -> bool:
    """True where each round of *loop* goes on with the cache that the call returned in the round before."""
    inside = scope.bound_in(feed.path, loop)
    if len(inside) != 1 or inside[0].path != feed.path or inside[0].value is None:
        return False
    value, source = inside[0].value, is_output_cache(inside[0].value)
    if source == "()":
        made = isinstance(value, (ast.Attribute, ast.Subscript)) and value.value is feed.node
    else:
        found = scope.definitions(source, value) if source else []
        made = len(found) == 1 and found[0].value is feed.node
    return made and not handled(facts, scope, feed.path, loop)


def turn_of_object(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True in a function that tokenizes one text and generates with a cache that outlives the call."""
    path = feed.path
    function = feed.place.function
    if function is None or function.node is not scope.node or function.name == "__init__" or not path:
        return False
    owner = feed.place.owner
    if path.startswith("self.") and path.count(".") == 1 and owner is not None:
        if cache_of(owner.attribute(path.partition(".")[2]), Certainty.CONTEXT) is None and not feed_elsewhere(
            facts, scope, feed
        ):
            return False
    elif path.isidentifier() and path not in scope.bindings and owner is None:
        if cache_of(facts.module_names.get(path, ()), Certainty.PROVEN) is None:
            return False
    else:
        return False
    if not stays(facts, scope, path, scope.node) or mask_follows_past(scope, feed) or may_hold_history(scope, feed):
        return False
    if scope.loops(feed.node) or renewed_by_callee(facts, scope, feed):
        return False
    expressions, _ = slice_of(scope, feed.inputs)
    if not any(is_tokenizer_call(call) for call in calls_in(expressions)):
        return False
    names = (function.name, owner.name if owner is not None else "")
    return not renewed_elsewhere(facts, scope, feed) or any(CHAT.search(name) for name in names)


def feed_elsewhere(facts: Facts, scope: Scope, feed: Feed) -> bool:
    known = facts.memo.get("scopes of caches")
    if not isinstance(known, dict):
        found: dict[str, set[int]] = {}
        for item in cached_feeds(facts):
            found.setdefault(item.path, set()).add(id(scope_of(facts, item).node))
        known = facts.memo["scopes of caches"] = found
    return bool(known.get(feed.path, set()) - {id(scope.node)})


# -- a call of the model ------------------------------------------------------------------------------------------------------


def own_extent(scope: Scope, feed: Feed) -> bool:
    """True where the mask is as long as the ids of the same call, by the way both are made."""
    if feed.mask is None:
        return not feed.ids and len(feed.spread) == 1 and tokenized(scope, feed.spread[0]) is not None
    if len(feed.ids) != 1:
        return False
    ids = feed.ids[0]
    mask = single_value(scope, feed.mask)
    if isinstance(mask, ast.Call):
        name = path_of(mask.func).split(".")[-1]
        if name == "ones_like" and len(mask.args) >= 1:
            return same(mask.args[0], ids)
        if name in ("ones", "new_ones") and mask.args:
            return path_of(ids) != "" and mentions_shape(mask, path_of(ids)) and not has_sum(mask)
        return False
    return (
        mask_owner(mask) != ""
        and mask_owner(mask) == ids_owner(scope, ids)
        and tokenized_name(scope, mask_owner(mask), feed) is not None
    )


def same(left: ast.expr, right: ast.expr) -> bool:
    return ast.dump(left) == ast.dump(right)


def mentions_shape(node: ast.expr, path: str) -> bool:
    return any(
        isinstance(item, ast.Attribute) and item.attr == "shape" and path_of(item.value) == path for item in walk(node)
    )


def has_sum(node: ast.expr) -> bool:
    return any(isinstance(item, ast.BinOp) for item in walk(node))


def mask_owner(node: ast.expr) -> str:
    """``enc`` of ``enc.attention_mask`` and ``enc["attention_mask"]``, moved to a device or not."""
    return member_owner(node, "attention_mask")


def ids_owner(scope: Scope, node: ast.expr) -> str:
    return member_owner(single_value(scope, node), "input_ids")


def member_owner(node: ast.expr, name: str) -> str:
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("to", "cuda", "cpu", "clone", "long")
    ):
        node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr == name:
        return path_of(node.value)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == name:
        return path_of(node.value)
    return ""


def tokenized_name(scope: Scope, path: str, feed: Feed) -> ast.Call | None:
    found = scope.definitions(path, feed.node)
    if len(found) != 1 or found[0].value is None:
        return None
    return tokenized(scope, found[0].value)


def grows_in(facts: Facts, scope: Scope, feed: Feed, loop: ast.AST) -> bool:
    """True where each round of *loop* adds to what the cache holds."""
    assert feed.cache is not None
    if feed.path and stays(facts, scope, feed.path, loop):
        return True
    tree = scope.tree
    for binding in cache_sources(scope, feed):
        if not tree.inside(binding.node, loop) or binding.value is None:
            continue
        value = binding.value
        source = is_output_cache(value)
        if source and any(item.value is feed.node for item in scope.bindings.get(source, ())):
            return True
        if value is feed.node and is_output_cache(feed.cache):
            return True
    return False


def was_filled(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True where the cache holds tokens when the call runs, at the latest in the second round of its loop."""
    loops = scope.loops(feed.node)
    if loops and grows_in(facts, scope, feed, loops[0]):
        return True
    assert feed.cache is not None
    sources = cache_sources(scope, feed)
    if is_output_cache(feed.cache):
        return bool(sources) and all(is_prefill(facts, scope, item.value) for item in sources)
    if len(sources) == 1 and is_output_cache(sources[0].value) == "()":
        assert isinstance(sources[0].value, (ast.Attribute, ast.Subscript))
        return is_prefill(facts, scope, sources[0].value.value)
    if len(sources) == 1 and is_output_cache(sources[0].value):
        found = scope.definitions(is_output_cache(sources[0].value), sources[0].node)
        return bool(found) and all(is_prefill(facts, scope, item.value) for item in found)
    return filling_before(facts, scope, feed) is not None or filled_by_earlier_calls(facts, scope, feed)


def filled_by_earlier_calls(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True for the cache of an object that each call of a method adds to."""
    owner = feed.place.owner
    if not feed.path.startswith("self.") or owner is None or getattr(scope.node, "name", "__init__") == "__init__":
        return False
    bound = scope.bindings.get(feed.path, [])
    if bound:
        if not all(position(item.node) > position(feed.node) and is_output_cache(item.value) for item in bound):
            return False
    elif cache_of(owner.attribute(feed.path.partition(".")[2]), Certainty.CONTEXT) is None:
        return False
    if renewed_by_callee(facts, scope, feed):
        return False
    names = (getattr(scope.node, "name", ""), owner.name)
    return not renewed_elsewhere(facts, scope, feed) or any(CHAT.search(name) for name in names)


def is_prefill(facts: Facts, scope: Scope, node: ast.expr | None) -> bool:
    found = feed_at(facts, node)
    return found is not None and found.role == "model"


def filling_before(facts: Facts, scope: Scope, feed: Feed) -> Feed | None:
    """The call in front that always has filled the cache of *feed*, with nothing between that empties it."""
    if not feed.path or handled(facts, scope, feed.path, scope.node):
        return None
    around = [scope.node, *scope.tree.ancestors(feed.node)]
    for item in reversed(feeds_before(facts, scope, feed.path, feed)):
        start, end = position(item.node), position(feed.node)
        if any(scope.bound_between(key, start, end) for key in prefixes(feed.path)):
            return None
        parent = scope.tree.parent(item.place.statement)
        while isinstance(parent, (ast.With, ast.AsyncWith)):
            parent = scope.tree.parent(parent)
        if not any(parent is other for other in around) or isinstance(parent, (ast.If, ast.Try)):
            continue
        return item
    return None


def new_tokens_only(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True where a used cache meets a mask that is as long as the new ids."""
    if not own_extent(scope, feed) or not was_filled(facts, scope, feed):
        return False
    return not (feed.path and handled(facts, scope, feed.path, scope.node))


def remade_mask(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True in a decoding loop that makes the mask of the next round as long as the ids of that round."""
    loops = scope.loops(feed.node)
    if not loops or feed.mask is None or len(feed.ids) != 1 or leaves_at_once(scope, feed, loops[0]):
        return False
    ids, mask = path_of(feed.ids[0]), path_of(feed.mask)
    if not ids.isidentifier() or not mask.isidentifier() or not grows_in(facts, scope, feed, loops[0]):
        return False
    new, made = scope.bound_in(ids, loops[0]), scope.bound_in(mask, loops[0])
    if len(new) != 1 or len(made) != 1 or new[0].kind != "assign" or made[0].kind != "assign":
        return False
    value = made[0].value
    if not isinstance(value, ast.Call) or path_of(value.func).split(".")[-1] != "ones_like" or not value.args:
        return False
    if path_of(value.args[0]) != ids or not position(feed.node) < position(new[0].node) < position(made[0].node):
        return False
    assert new[0].value is not None
    return not any(path_of(node) == ids for node in walk(new[0].value))


def prompt_mask(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True in a decoding loop whose mask was made before the loop, as long as the prompt."""
    loops = scope.loops(feed.node)
    if not loops or feed.mask is None or len(feed.ids) != 1 or leaves_at_once(scope, feed, loops[0]):
        return False
    loop = loops[0]
    path = path_of(feed.mask)
    if not path or scope.bound_in(path, loop) or any(scope.changed_in(prefix, loop) for prefix in prefixes(path)):
        return False
    if not grows_in(facts, scope, feed, loop) or not dependence(facts, scope, loop, feed.inputs).carried:
        return False
    mask = single_value(scope, feed.mask)
    if mask_owner(mask):
        call = tokenized_name(scope, mask_owner(mask), feed)
        return call is not None and not pads_to_length(call)
    return isinstance(mask, ast.Call) and path_of(mask.func).split(".")[-1] == "ones_like"


def pads_to_length(call: ast.Call) -> bool:
    """True where the tokenizer pads to a length of its own, which may be meant to leave room."""
    padding = next((item.value for item in call.keywords if item.arg == "padding"), None)
    return isinstance(padding, ast.Constant) and padding.value == "max_length"


# -- no mask ------------------------------------------------------------------------------------------------------------------


def dropped_mask(facts: Facts, scope: Scope, feed: Feed) -> str | None:
    """The call that padded the batch, for a step on its cache without a mask."""
    if (
        feed.mask is not None
        or feed.spread
        or len(feed.ids) != 1
        or any(isinstance(item, ast.Starred) for item in feed.node.args)
    ):
        return None
    if len(feed.node.args) > 1:
        return None
    for prefill in prefills(facts, scope, feed):
        call = None
        if prefill.mask is not None:
            mask = single_value(scope, prefill.mask)
            call = tokenized_name(scope, mask_owner(mask), prefill) if mask_owner(mask) else None
        elif len(prefill.spread) == 1 and not prefill.ids:
            call = tokenized(scope, prefill.spread[0])
        if call is not None and pads_rows(call):
            return facts.source(call)
    return None


def prefills(facts: Facts, scope: Scope, feed: Feed) -> Iterator[Feed]:
    """The calls in front of which *feed* continues the cache."""
    assert feed.cache is not None
    values = [item.value for item in cache_sources(scope, feed)]
    for value in list(values):
        source = is_output_cache(value)
        if source and value is not None:
            values += [item.value for item in scope.definitions(source, value)]
    found = {id(item.node): item for item in map(partial(feed_at, facts), values) if item is not None}
    if feed.path:
        earlier = feeds_before(facts, scope, feed.path, feed)
        found |= {id(item.node): item for item in (*earlier[:LOOK_BACK], *earlier[-LOOK_BACK:])}
    for item in sorted(found.values(), key=lambda item: position(item.node)):
        if item.node is feed.node or item.role != "model" or scope_of(facts, item) is not scope:
            continue
        if position(item.node) < position(feed.node):
            yield item


def pads_rows(call: ast.Call) -> bool:
    """True where a tokenizer call pads, as far as it shows: several texts to one length, or any to a given one."""
    padding = next((item.value for item in call.keywords if item.arg == "padding"), None)
    if not isinstance(padding, ast.Constant) or padding.value in (False, None, "do_not_pad"):
        return False
    if padding.value == "max_length":
        return True
    named = next((item.value for item in call.keywords if item.arg in ("text", "texts")), None)
    if not call.args and named is None:
        return False
    first = call.args[0] if call.args else named
    assert first is not None
    if isinstance(first, (ast.List, ast.Tuple)):
        return len(first.elts) > 1
    if isinstance(first, (ast.ListComp, ast.GeneratorExp)):
        return True
    return bool(re.search(r"(?i)(?:s|batch|list)$", path_of(first).split(".")[-1]))
