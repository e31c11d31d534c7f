"""Tokens that the cache already holds, fed beside it once more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Model, of_type
from kvlint.checks.base import Check
from kvlint.checks.bindings import Binding, Scope
from kvlint.checks.cache_feeds import (
    Feed,
    cached_feeds,
    handled,
    is_output_cache,
    last_part,
    scope_of,
    single_value,
    stays,
)
from kvlint.checks.filled_caches import fillers, tokens_at, tokens_of
from kvlint.findings import Category, Finding

ENCODER_WORDS = frozenset({"decoder_input_ids", "encoder_outputs", "encoder_hidden_states", "decoder_attention_mask"})
ENCODER_DECODERS = ("ConditionalGeneration", "Seq2SeqLM", "SpeechSeq2Seq", "EncoderDecoderModel")
JOINS = frozenset({"cat", "concat", "concatenate", "hstack"})
WINDOW = ("n_positions", "max_position_embeddings", "n_ctx", "block_size", "context", "ctx", "max_len", "max_length")
"""Words of the number of tokens that a model can see: ``ids[:, -block_size:]`` cuts off nothing in an ordinary run."""


class CachedTokensAgain(Check):
    """Reports calls that are given the whole sequence, or the prompt, together with the cache that holds it."""

    triggers = ("cache=", "past_key_values=", 'past_key_values"', "past_key_values'", '"cache"', "'cache'")
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for feed in cached_feeds(facts):
            if feed.role not in ("model", "generate") or takes_encoder_ids(feed):
                continue
            what = self._again(facts, feed)
            if what:
                yield self.finding(
                    facts,
                    (*feed.inputs, feed.node)[0],
                    feed.place,
                    what,
                    releases=feed.place.releases,
                    help=advice(facts, feed),
                )

    def _again(self, facts: Facts, feed: Feed) -> str:
        assert feed.cache is not None
        cache = facts.source(feed.cache)
        if feed.role == "model" and grown_each_round(facts, feed):
            return f"every round feeds the whole sequence beside `{cache}`, which holds it already: its tokens are appended again"
        if filled_with_the_same(facts, feed):
            return f"`{cache}` holds these tokens already: they are fed and appended a second time"
        return ""


def takes_encoder_ids(feed: Feed) -> bool:
    """True where the ids are those of an encoder, which leaves nothing of them in the cache of the decoder."""
    if ENCODER_WORDS & {item.arg for item in feed.node.keywords}:
        return True
    models = [atom for atom in feed.use.callee if isinstance(atom, Model)]
    models += [item for atom in feed.use.callee for item in of_type((getattr(atom, "of", atom),), Model)]
    return any(item.cls.endswith(ENCODER_DECODERS) for item in models)


def advice(facts: Facts, feed: Feed) -> str:
    if feed.role == "generate":
        return "fill the cache with all but the last token, `ids[:, :-1]`, or give `generate` a fresh one"
    return "feed the tokens that the cache has not seen: `ids[:, cache.get_seq_length():]`"


# -- the same ids twice -------------------------------------------------------------------------------------------------


def filled_with_the_same(facts: Facts, feed: Feed) -> bool:
    """True where an earlier call on the cache got the same ids, or (for a model) the beginning of them."""
    scope = scope_of(facts, feed)
    heads = [tokens_of(scope, feed)]
    if feed.role == "model" and len(feed.inputs) == 1 and not feed.spread:
        joined = first_of_join(single_value(scope, feed.inputs[0]))
        heads.append(tokens_at(scope, joined) if joined is not None else None)
    if not any(heads):
        return False
    return any(
        item.role in ("model", "generate")
        and not takes_encoder_ids(item)
        and same_model(item, feed)
        and tokens_of(scope, item) in [head for head in heads if head is not None]
        for item in fillers(facts, feed)
    )


def same_model(one: Feed, other: Feed) -> bool:
    """True where both calls go to one model, or to a part of it: ``lm.model(...)`` and ``lm.generate(...)``."""
    names = sorted((owner_of(one), owner_of(other)), key=len)
    return bool(names[0]) and (names[0] == names[1] or names[1].startswith(f"{names[0]}."))


def owner_of(feed: Feed) -> str:
    path = path_of(feed.node.func)
    return path.rpartition(".")[0] if last_part(path) in ("generate", "forward", "__call__") else path


def first_of_join(node: ast.expr) -> ast.expr | None:
    """``ids`` of ``torch.cat([ids, token], dim=1)``."""
    if not isinstance(node, ast.Call) or last_part(path_of(node.func)) not in JOINS or not node.args:
        return None
    parts = node.args[0]
    dims = [*node.args[1:], *(item.value for item in node.keywords if item.arg in ("dim", "axis"))]
    along = {ast.unparse(item) for item in dims} <= {"1", "-1"} and (
        bool(dims) or path_of(node.func).endswith("hstack")
    )
    if not isinstance(parts, (ast.List, ast.Tuple)) or len(parts.elts) < 2 or not along:
        return None
    return parts.elts[0]


# -- a sequence that grows ----------------------------------------------------------------------------------------------


def grown_each_round(facts: Facts, feed: Feed) -> bool:
    """True in a loop that appends to its ids, feeds them whole, and goes on with the cache of the round before."""
    scope = scope_of(facts, feed)
    loops = scope.loops(feed.node)
    if not loops or len(feed.ids) != 1 or feed.spread or not goes_on(facts, scope, feed, loops[0]):
        return False
    path = path_of(whole(scope, feed.ids[0], loops[0]))
    inside = scope.bound_in(path, loops[0]) if path else []
    return bool(inside) and all(appends(item, path) for item in inside)


def whole(scope: Scope, node: ast.expr, loop: ast.AST) -> ast.expr:
    """The sequence behind ``ids[:, -model.config.n_positions:]``, a cut that an ordinary run does not come to."""
    value = single_value(scope, node)
    if value is not node and first_of_join(value) is None and scope.tree.inside(value, loop):
        node = value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        rows, cut = node.slice.elts
        if isinstance(rows, ast.Slice) and rows.lower is None and rows.upper is None and isinstance(cut, ast.Slice):
            bound = cut.lower.operand if isinstance(cut.lower, ast.UnaryOp) else None
            if cut.upper is None and (cut.lower is None or (bound is not None and is_window(bound))):
                return node.value
    return node


def is_window(node: ast.expr) -> bool:
    return any(word in last_part(path_of(node)).lower() for word in WINDOW)


def appends(item: Binding, path: str) -> bool:
    """``ids = torch.cat([ids, token], dim=1)``."""
    first = first_of_join(item.value) if item.value is not None and item.path == path else None
    return first is not None and path_of(first) == path


def goes_on(facts: Facts, scope: Scope, feed: Feed, loop: ast.AST) -> bool:
    """True where each round of *loop* is given the cache that the round before has written into."""
    if not feed.path or handled(facts, scope, feed.path, loop):
        return False
    if stays(facts, scope, feed.path, loop):
        return True
    inside = scope.bound_in(feed.path, loop)
    source = is_output_cache(feed.cache)
    if source and inside:
        return all(item.path == source and item.value is feed.node for item in inside)
    return bool(inside) and all(item.path == feed.path and gives_cache_of(scope, item, feed) for item in inside)


def gives_cache_of(scope: Scope, item: Binding, feed: Feed) -> bool:
    """``past = out.past_key_values`` and ``past = out[1]`` of the call; ``logits, past = model(...)[:2]``."""
    value = item.value
    if isinstance(item.node, ast.Assign) and item.kind == "target":
        return scope.tree.inside(feed.node, item.node)
    if value is None:
        return False
    source = is_output_cache(value)
    if not source and isinstance(value, ast.Subscript) and ast.unparse(value.slice) == "1":
        source = path_of(value.value)
    if source == "()" and isinstance(value, (ast.Attribute, ast.Subscript)):
        return value.value is feed.node
    found = scope.definitions(source, value) if source else []
    return len(found) == 1 and found[0].value is feed.node
