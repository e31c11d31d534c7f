"""Attributes of cache objects that a release in force lacks: ``key_cache``, ``value_cache``, ``seen_tokens``, ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.names import CACHE_KEYWORDS
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import CACHE, ENCODER_DECODER_CACHE, STATIC_CACHE, CacheObject
from kvlint.behaviour import method_hint, releases_of
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of_cache
from kvlint.checks.layer_kinds import may_have_halves, trust_in_layers
from kvlint.checks.layer_members import gone_from_layers, missing_layer_members
from kvlint.checks.missing_names import missing_member_ways
from kvlint.checks.receivers import MissingMember, describe, hidden_members, missing_members, receiver
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet
from kvlint.rewriting import attribute_edit, has_comment, minimal, parenthesised
from kvlint.sieve import MEMBER, Groups
from kvlint.timeline import Timeline

LISTS = {"key_cache": "keys", "value_cache": "values"}
COUNTERS = ("seen_tokens", "_seen_tokens")
READERS = frozenset({"zip", "enumerate", "sum", "list", "tuple", "reversed", "any", "all", "max", "min"})


class RemovedCacheAttribute(Check):
    """Reports reads of cache attributes that are gone, not there yet, or became methods."""

    triggers = (
        "key_cache",
        "value_cache",
        "seen_tokens",
        "max_batch_size",
        "max_cache_len",
        "conv_states",
        "ssm_states",
        "has_previous_state",
        "past",
        "cache.",
        ".layers",
    )

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        yield from missing_member_ways(timeline)
        yield (("layers", "Layer"),), {MEMBER + name: gone for name, gone in gone_from_layers(timeline).items()}

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for missing in missing_members(facts, "attribute"):
            if missing.use.action in ("store", "delete"):
                continue
            yield self.finding(
                facts,
                missing.use.node,
                missing.use.place,
                f"{describe(missing.cache)} has no `{missing.use.name}`: AttributeError {{when}}",
                releases=missing.wrong,
                life=missing.life,
                help=method_hint(missing.use.name),
                origin=missing.cache.origin,
                defect=defect_of_cache(facts, missing.cache),
                fix=fix_of(facts, missing),
            )
        for layer in missing_layer_members(facts, "attribute"):
            yield self.finding(
                facts,
                layer.use.node,
                layer.use.place,
                f"the layers of {describe(layer.cache)} have no `{layer.use.name}`: AttributeError {{when}}",
                releases=layer.wrong,
                life=layer.life,
                help=method_hint(f"layers.{layer.use.name}"),
                origin=layer.cache.origin,
                defect=defect_of_cache(facts, layer.cache),
            )
        for missing in hidden_members(facts):
            yield self.finding(
                facts,
                missing.use.node,
                missing.use.place,
                f"{describe(missing.cache)} has no `{missing.use.name}` {{when}}: this is always the default",
                releases=missing.wrong,
                life=missing.life,
                category=Category.SILENT,
                help=method_hint(missing.use.name),
                origin=missing.cache.origin,
                defect=defect_of_cache(facts, missing.cache),
            )
        for use in facts.attributes:
            yield from self._uncalled(facts, use)

    def _uncalled(self, facts: Facts, use: AttributeUse) -> Iterator[Finding]:
        """``if cache.has_previous_state:`` where that is a method."""
        cache = receiver(facts, use)
        if use.name != "has_previous_state" or use.action != "load" or use.call is not None or cache is None:
            return
        life = releases_of(facts.timeline, "has-previous-state-method")
        wrong = use.place.releases & cache.when & life
        if cache.local_class is not None or not wrong or isinstance(use.parent, ast.Attribute):
            return
        in_force_everywhere = use.place.releases <= life
        _, end = facts.span(use.node)
        yield self.finding(
            facts,
            use.node,
            use.place,
            "`has_previous_state` is a method {when}: without the call it is always true",
            releases=wrong,
            life=life,
            category=Category.SILENT,
            help="write `has_previous_state()`",
            origin=cache.origin,
            defect=defect_of_cache(facts, cache),
            fix=Fix("Call it", Applicability.SAFE, (Edit(end, end, "()"),)) if in_force_everywhere else None,
        )


def fix_of(facts: Facts, missing: MissingMember) -> Fix | None:
    """The replacement, where it is right on all releases in force."""
    use, node = missing.use, missing.use.node
    if not isinstance(node, ast.Attribute) or use.action != "load" or use.place.releases - missing.cache.when:
        return None
    if missing.cache.source == "super" or (missing.cache.source == "self" and use.name in LISTS):
        return None  # a subclass that fills the lists itself is not mended one by one
    in_force = use.place.releases
    if missing.cache.cls == ENCODER_DECODER_CACHE and use.name in LISTS:
        return None  # which half is meant is not to be seen
    if use.name in LISTS and rebuilds_list(use.place.statement):
        return None
    if use.name in LISTS and in_force <= facts.timeline.matching(">=4.54"):
        return list_fix(facts, use, node, missing.cache)
    if use.name in COUNTERS:
        return Fix(
            "Replace with `get_seq_length()`", Applicability.SAFE, (attribute_edit(facts, node, "get_seq_length()"),)
        )
    if use.name in ("max_cache_len", "max_batch_size") and in_force <= facts.timeline.matching(">=5.13"):
        return bound_fix(facts, missing, node)
    return None


def rebuilds_list(statement: ast.stmt) -> bool:
    """``c.key_cache = [k[:n] for k in c.key_cache]``: mending the read alone would leave an assignment without effect
    (KV203) where an exception was, so there is no fix."""
    targets, _ = assignment(statement)
    flat = [item for target in targets for item in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return any(isinstance(target, ast.Attribute) and target.attr in LISTS for target in flat)


def bound_fix(facts: Facts, missing: MissingMember, node: ast.Attribute) -> Fix | None:
    """The names that replaced the bounds of static caches.

    ``batch_size`` is -1 before the first update: none for a cache that may have been made just before.
    """
    cache = missing.cache
    if missing.use.name == "max_cache_len":
        safe = Applicability.SAFE if cache.cls == STATIC_CACHE else Applicability.UNSAFE
        return Fix("Replace with `get_max_length()`", safe, (attribute_edit(facts, node, "get_max_length()"),))
    if cache.source in ("constructed", "self") and not filled_before(facts, missing.use, node):
        return None
    return Fix("Replace with `batch_size`", Applicability.UNSAFE, (attribute_edit(facts, node, "batch_size"),))


def filled_before(facts: Facts, use: AttributeUse, node: ast.Attribute) -> bool:
    """True where the same function handed the cache to a model above."""
    name = path_of(node.value)
    return any(
        call.place.function is use.place.function
        and call.node.lineno < node.lineno
        and any(keyword.arg in CACHE_KEYWORDS and path_of(keyword.value) == name for keyword in call.node.keywords)
        for call in facts.calls
    )


def operands(test: ast.Compare) -> list[ast.expr]:
    """What numbers are compared."""
    if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in test.ops):
        return []
    return [test.left, *test.comparators]


def list_fix(facts: Facts, use: AttributeUse, node: ast.Attribute, cache: CacheObject) -> Fix | None:
    """``cache.key_cache[i]`` becomes ``cache.layers[i].keys``; the whole list is rebuilt where it is only read."""
    part, parent = LISTS[use.name], use.parent
    trust = trust_in_layers(facts, cache)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        if trust is None or isinstance(parent.slice, ast.Slice) or isinstance(parent.ctx, ast.Del):
            return None
        _, end = facts.span(parent)
        edits = (attribute_edit(facts, node, "layers"), Edit(end, end, f".{part}"))
        return Fix(f"Replace with `.layers[...].{part}`", trust, edits)
    if isinstance(parent, ast.Call) and parent.func is not node:
        name = parent.func.id if isinstance(parent.func, ast.Name) else ""
        if name == "len" and not may_have_halves(facts, cache):
            # A layer that was made from a config is there before it holds anything.
            filled = any(
                isinstance(item, ast.Compare) and parent in operands(item) for item in walk(use.place.statement)
            )
            applicability = Applicability.UNSAFE if filled else Applicability.SAFE
            if filled and cache.cls != CACHE and use.place.releases <= facts.timeline.matching(">=4.57"):
                start, end = facts.span(parent)
                source = parenthesised(facts.source(node.value), node.value)
                text = f"sum(layer.is_initialized for layer in {source}.layers)"
                if trust is None or has_comment(facts.text[start:end]):
                    return None
                return Fix("Count the filled layers", Applicability.UNSAFE, (minimal(facts.text, start, end, text),))
            return Fix("Count the layers", applicability, (attribute_edit(facts, node, "layers"),))
        if name not in READERS:
            return None
    elif not isinstance(parent, (ast.For, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Starred)):
        return None
    start, end = facts.span(node)
    if trust is None or has_comment(facts.text[start:end]):
        return None
    source = parenthesised(facts.source(node.value), node.value)
    text = f"[layer.{part} for layer in {source}.layers]"
    return Fix(f"Collect the {part} of the layers", trust, (minimal(facts.text, start, end, text),))
