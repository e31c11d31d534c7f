"""``past[0]``, ``past[i][0]``, ``past[0][0].shape[2]`` on a cache object: ``Cache.__getitem__`` went in 5.0.0."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, SubscriptUse
from kvlint.analysis.values import CACHE, ENCODER_DECODER_CACHE, CacheObject
from kvlint.checks.base import Check
from kvlint.checks.bindings import tree_of
from kvlint.checks.layer_kinds import trust_in_layers
from kvlint.checks.receivers import (
    CONTRACT_SOURCES,
    comes_in,
    describe,
    holds_own_caches,
    is_its_own,
    known_cache,
    may_be_else,
    may_be_rebuilt,
    members_of,
    own_formats,
)
from kvlint.checks.tuple_models import tuple_model
from kvlint.checks.words import KNOWN_CACHE
from kvlint.findings import Applicability, Finding, Fix
from kvlint.rewriting import has_comment, is_plain, minimal, parenthesised

LENGTH_AXES = (2, -2)


class CacheSubscript(Check):
    """Reports subscripts of cache objects."""

    triggers = ("past", "cache", "Cache", "kv")
    pattern = KNOWN_CACHE

    def findings(self, facts: Facts) -> Iterator[Finding]:
        parents = {id(use.node): use for use in facts.subscripts}
        own = own_formats(facts)
        if holds_own_caches(facts):
            return
        for use in facts.subscripts:
            cache = known_cache(use.value)
            if cache is not None and (cache.source not in CONTRACT_SOURCES or may_be_else(use.value)):
                if (id(use.place.function), use.path) in own and not comes_in(use):
                    continue
            if cache is None or (cache.local_class is not None and cache.local_class.defines("__getitem__")):
                continue
            if (may_be_rebuilt(use.value) and not comes_in(use)) or is_its_own(cache, use.place.function):
                continue
            if use.action != "load" or use.place.caught & {"TypeError", "Exception"}:
                continue
            life = facts.timeline.all - members_of(facts, cache, "__getitem__")
            wrong = use.place.releases & cache.when & life
            if not wrong:
                continue
            replacement = replacement_of(facts, use, cache, parents)
            model = tuple_model(facts, use.place.function)
            whole = model is not None and model.parameter == use.path
            yield self.finding(
                facts,
                use.node,
                use.place,
                f"{describe(cache)} cannot be indexed: TypeError {{when}}",
                releases=wrong,
                life=life,
                help=replacement.help,
                origin=cache.origin,
                fix=model.fix if model is not None and whole else replacement.fix(facts, use, cache),
            )


@dataclass(frozen=True, slots=True)
class Replacement:
    """What to write instead of the subscript (or of the longer expression around it)."""

    node: ast.expr | None
    text: str
    needs: str
    help: str

    def fix(self, facts: Facts, use: SubscriptUse, cache: CacheObject) -> Fix | None:
        """Unsafe where layers are asked of a cache of unknown class: one of an encoder-decoder model has none.

        None where something is taken off the length of a cache that the library hands over: it is empty at first, where
        None was, and has a length that the expression was not written for.
        """
        if self.node is None or not use.place.releases <= facts.timeline.compare(">=", self.needs):
            return None
        if cache.source not in ("output", "constructed") and is_lowered(facts, self.node):
            return None
        start, end = facts.span(self.node)
        if has_comment(facts.text[start:end]):
            return None
        applicability = Applicability.SAFE
        if self.needs != "4.36" and cache.cls != ENCODER_DECODER_CACHE:
            trust = trust_in_layers(facts, cache)
            if trust is None:
                return None
            applicability = trust if cache.cls != CACHE else Applicability.UNSAFE
        return Fix(f"Replace with `{self.text}`", applicability, (minimal(facts.text, start, end, self.text),))


def is_lowered(facts: Facts, node: ast.expr) -> bool:
    """True where the expression stands in front of a minus sign: ``past[0][0].shape[2] - n``."""
    tree = tree_of(facts)
    inner: ast.AST = node
    outer = tree.parent(node)
    while isinstance(outer, (ast.BinOp, ast.Call)) and inner is not getattr(outer, "func", None):
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Sub) and outer.left is inner:
            return True
        inner, outer = outer, tree.parent(outer)
    return False


def replacement_of(
    facts: Facts, use: SubscriptUse, cache: CacheObject, subscripts: dict[int, SubscriptUse]
) -> Replacement:
    """The modern form of one use, seen together with what is read from the layer's pair."""
    node = use.node
    if use.path == "layer_past":
        hint = "it is the cache of all layers, no pair of tensors: `keys, values = layer_past.update(key, value, self.layer_idx)`"
        return Replacement(None, "", "", hint)
    source = parenthesised(facts.source(node.value), node.value)
    if isinstance(node.slice, ast.Slice):
        return Replacement(None, "", "", "iterate over `.layers`, which is a list of layers with `.keys` and `.values`")
    index = facts.source(node.slice)
    pair = use.parent
    if isinstance(pair, ast.Subscript) and pair.value is node:
        part = pair.slice.value if isinstance(pair.slice, ast.Constant) else None
        both = cache.cls == ENCODER_DECODER_CACHE or part in (2, 3)
        half = "cross_attention_cache" if part in (2, 3) else "self_attention_cache"
        if part in (0, 1) or (both and part in (2, 3)):
            if both:
                source = f"{source}.{half}"
            length = length_expression(facts, pair, subscripts)
            if length is not None and is_plain(node.value):
                argument = "" if index in ("0",) else index
                if argument.startswith("-") or not is_plain(node.slice):
                    return Replacement(None, "", "", f"write `{source}.get_seq_length()`")
                text = f"{source}.get_seq_length({argument})"
                return Replacement(length, text, "4.36", f"write `{text}`")
            name = "keys" if part in (0, 2) else "values"
            text = f"{source}.layers[{index}].{name}"
            return Replacement(pair, text, "4.54", f"write `{text}` (4.54 and newer)")
    if cache.cls == ENCODER_DECODER_CACHE:
        source = f"{source}.self_attention_cache"
    text = f"{source}.layers[{index}]"
    return Replacement(None, "", "", f"the layer is `{text}`, with `.keys` and `.values` (4.54 and newer)")


def length_expression(facts: Facts, pair: ast.Subscript, subscripts: dict[int, SubscriptUse]) -> ast.expr | None:
    """The whole of ``pair.shape[2]`` or ``pair.size(-2)``, found from the shape's own record."""
    for use in facts.attributes:
        if use.value_node is not pair:
            continue
        if use.name == "shape" and isinstance(use.parent, ast.Subscript) and axis_of(use.parent.slice) in LENGTH_AXES:
            return use.parent
        if (
            use.name == "size"
            and use.call is not None
            and len(use.call.args) == 1
            and axis_of(use.call.args[0]) in LENGTH_AXES
        ):
            return use.call
    return None


def axis_of(node: ast.expr) -> int | None:
    """The literal axis number of an index expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    return None
