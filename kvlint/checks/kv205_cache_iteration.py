"""``for k, v in past``: from 5.0.0 a cache yields three items for each layer, and static ones cannot be iterated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, IterationUse, SubscriptUse
from kvlint.analysis.values import (
    CACHE,
    DYNAMIC_CACHE,
    ENCODER_DECODER_CACHE,
    CacheObject,
    Certainty,
    LayerPair,
    LegacyCache,
    of_type,
)
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.kv204_cache_subscript import axis_of
from kvlint.checks.layer_kinds import trust_in_layers
from kvlint.checks.receivers import (
    CONTRACT_SOURCES,
    describe,
    holds_own_caches,
    is_as_left,
    known_cache,
    members_of,
    own_formats,
)
from kvlint.checks.tuple_models import tuple_model
from kvlint.checks.words import KNOWN_CACHE
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk

OLD_ARITY = {ENCODER_DECODER_CACHE: 4}
NEW_ARITY = {ENCODER_DECODER_CACHE: 6}
TRANSPARENT_CALLS = frozenset({"enumerate", "reversed", "tuple", "list", "iter", "zip"})


PAIR_NAMES = re.compile(r"(?i)(?:^|_)k(?:ey)?s?(?:_|$)"), re.compile(r"(?i)(?:^|_)v(?:al(?:ue)?)?s?(?:_|$)")


def takes_pair(use: IterationUse, cache: CacheObject) -> bool:
    """``past_key, past_value = layer_past`` of what the library hands to a function."""
    if use.how != "unpack" or cache.source != "hook" or not isinstance(use.target, ast.Tuple):
        return False
    names = [item.id if isinstance(item, ast.Name) else "" for item in use.target.elts]
    return len(names) == 2 and all(pattern.search(name) for pattern, name in zip(PAIR_NAMES, names, strict=True))


class CacheIteration(Check):
    """Reports iterations that expect the pairs of old releases."""

    triggers = ("past", "cache", "Cache", "kv")
    pattern = KNOWN_CACHE

    def findings(self, facts: Facts) -> Iterator[Finding]:
        own = own_formats(facts)
        if holds_own_caches(facts):
            return
        for use in facts.iterations:
            if use.place.caught & {"ValueError", "TypeError", "Exception"}:
                continue
            cache = known_cache(use.value) or listed(use)
            if cache is not None and cache.source not in CONTRACT_SOURCES and (id(use.place.function), use.path) in own:
                continue
            if cache is not None and not (cache.local_class is not None and cache.local_class.defines("__iter__")):
                yield from self._of_cache(facts, use, cache)
            else:
                yield from self._of_layer(facts, use)
        for part in facts.subscripts:
            yield from self._of_part(facts, part)

    def _of_part(self, facts: Facts, use: SubscriptUse) -> Iterator[Finding]:
        """``layer[-2:]`` and ``layer[2]``: what stood there until 4.57 stands elsewhere, behind the window."""
        pair = next((atom for atom in of_type(use.value, LayerPair)), None)
        if pair is None or pair.indexed or pair.cache is None or len(use.value) > 1 or use.action != "load":
            return
        triples = releases_of(facts.timeline, "iteration-triples")
        wrong = use.place.releases & pair.when & pair.cache.when & triples
        in_reorder = use.place.function is not None and use.place.function.name == "_reorder_cache"  # KV303
        if not wrong or pair.cache.certainty < Certainty.CONTEXT or in_reorder or not has_moved(use.node.slice):
            return
        yield self.finding(
            facts,
            use.node,
            use.place,
            f"`{facts.source(use.node)}` is something else {{when}}: a layer of an iterated cache has the window, "
            "or None, behind keys and values",
            releases=wrong,
            life=triples,
            help="iterate over `cache.layers` (`.self_attention_cache.layers` and `.cross_attention_cache.layers`) and "
            "read `.keys` and `.values`",
            category=Category.SILENT,
            origin=pair.cache.origin,
        )

    def _of_cache(self, facts: Facts, use: IterationUse, cache: CacheObject) -> Iterator[Finding]:
        lives = members_of(facts, cache, "__iter__")
        gone = facts.timeline.all - lives
        wrong = use.place.releases & cache.when & gone
        if wrong and lives:
            yield self.finding(
                facts,
                use.node,
                use.place,
                f"{describe(cache)} cannot be iterated: TypeError {{when}}",
                releases=wrong,
                life=gone,
                help="iterate over `cache.layers`; each layer has `.keys` and `.values` (4.54 and newer)",
                origin=cache.origin,
            )
            return
        if takes_pair(use, cache):
            life = releases_of(facts.timeline, "library-passes-cache-objects")
            wrong = use.place.releases & cache.when & life
            if wrong:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    "the cache of all layers is unpacked as if it were the pair of one: ValueError, it has an item for "
                    "each layer, {when}",
                    releases=wrong,
                    life=life,
                    help="`keys, values = cache.update(keys, values, self.layer_idx)` stores the new ones and gives all",
                    origin=cache.origin,
                )
            return
        target = pair_target(use)
        if target is None:
            yield from self._beside_layers(facts, use, cache)
            return
        count = len(target.elts)
        triples = releases_of(facts.timeline, "iteration-triples")
        if count not in (2, 4) or any(isinstance(item, ast.Starred) for item in target.elts):
            return
        if (
            count == 4
            and cache.cls != ENCODER_DECODER_CACHE
            and cache.source not in (*CONTRACT_SOURCES, "attribute", "key")
        ):
            return
        wrong = use.place.releases & cache.when & triples
        if not wrong:
            return
        both = count == 4 or cache.cls == ENCODER_DECODER_CACHE
        items = "six items for each layer" if both else "three items for each layer (keys, values, window)"
        help = (
            "iterate over `zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers)`"
            if both
            else "iterate over `cache.layers` and read `.keys` and `.values`, or take the rest with `*_`"
        )
        yield self.finding(
            facts,
            use.node,
            use.place,
            f"{describe(cache)} yields {items}: ValueError, too many values to unpack, {{when}}",
            releases=wrong,
            life=triples,
            help=help,
            origin=cache.origin,
            fix=None if both else rest_fix(facts, target, cache),
        )

    def _beside_layers(self, facts: Facts, use: IterationUse, cache: CacheObject) -> Iterator[Finding]:
        """``for block, layer_past in zip(self.h, past)`` in a model, which must be handed None on the first step."""
        model = tuple_model(facts, use.place.function)
        if cache.source != "hook" or model is None or model.parameter != use.path or use.function_name != "zip":
            return
        if asks_for_length(facts, use):
            return
        life = releases_of(facts.timeline, "empty-cache-yields-none")
        wrong = use.place.releases & cache.when & life
        if wrong:
            yield self.finding(
                facts,
                use.node,
                use.place,
                "the cache that `generate` makes has None for the keys and values of each layer on the first step, "
                "where the layers expect None or a pair of tensors: {when}",
                releases=wrong,
                life=life,
                help="hand each layer the whole cache and call `cache.update(keys, values, layer_idx)` there, "
                "or take the pairs from `cache.layers` once `cache.get_seq_length() > 0`",
                origin=cache.origin,
                fix=model.fix,
            )

    def _of_layer(self, facts: Facts, use: IterationUse) -> Iterator[Finding]:
        """``for t in layer_past``: the third item is no tensor."""
        pair = next(
            (atom for atom in of_type(use.value, LayerPair) if atom.cache is not None and not atom.indexed), None
        )
        if pair is None or pair.cache is None or pair.cache.certainty < Certainty.CONTEXT:
            return
        if len(use.value) > 1 and not (use.how == "unpack" and is_of_attribute(use)):
            return
        triples = releases_of(facts.timeline, "iteration-triples")
        wrong = use.place.releases & pair.when & triples
        if not wrong:
            return
        origin = pair.cache.origin
        if use.how in ("for", "comprehension") and not isinstance(use.target, ast.Tuple):
            yield self.finding(
                facts,
                use.node,
                use.place,
                "a layer of an iterated cache has a third item, the window or None, that is no key or value: {when}",
                releases=wrong,
                life=triples,
                help="iterate over `cache.layers` and treat `.keys` and `.values` by name",
                origin=origin,
            )
        elif use.how == "unpack" and isinstance(use.target, ast.Tuple) and len(use.target.elts) == 2:
            if any(isinstance(item, ast.Starred) for item in use.target.elts):
                return
            yield self.finding(
                facts,
                use.node,
                use.place,
                "a layer of an iterated cache has three items: ValueError, too many values to unpack, {when}",
                releases=wrong,
                life=triples,
                help="take the rest with `*_`, or iterate over `cache.layers`",
                origin=origin,
                fix=rest_fix(facts, use.target, pair.cache),
            )


def is_of_attribute(use: IterationUse) -> bool:
    """True for ``kv`` of ``for kv in self.past``, where others have left a cache, or pairs, in the attribute."""
    function, name = use.place.function, getattr(use.node, "id", "")
    return function is not None and any(
        isinstance(node, ast.For)
        and isinstance(node.target, ast.Name)
        and node.target.id == name
        and is_as_left(node.iter, function)
        for node in walk(function.node)
    )


def asks_for_length(facts: Facts, use: IterationUse) -> bool:
    """True where a condition of the function asks the cache for its length: it may well know an empty one."""
    function = use.place.function
    assert function is not None
    for node in ast.walk(function.node):
        if isinstance(node, (ast.If, ast.IfExp)):
            if any(
                word in facts.source(node.test) for word in ("get_seq_length", "is_initialized", "len(", "isinstance")
            ):
                if use.path in facts.source(node.test):
                    return True
    return False


def has_moved(index: ast.expr) -> bool:
    """True for an item, or items, of a layer that are not its first two counted from the front."""
    if isinstance(index, ast.Slice):
        lower, upper = (0 if part is None else axis_of(part) for part in (index.lower, index.upper))
        if lower is None or upper is None or index.step is not None:
            return False
        return lower < 0 or lower >= 2 or (index.upper is not None and not 0 <= upper <= 2)
    place = axis_of(index)
    return place is not None and not 0 <= place < 2


def pair_target(use: IterationUse) -> ast.Tuple | None:
    """The tuple of names that each item is unpacked into; of ``zip(*cache)``: the names that take the columns."""
    if use.how == "star":
        call = use.loop
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "zip"
            and len(call.args) == 1
        ):
            statement = use.place.statement
            if (
                isinstance(statement, ast.Assign)
                and statement.value is call
                and isinstance(statement.targets[0], ast.Tuple)
            ):
                return statement.targets[0]
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
                outer = statement.value
                if isinstance(outer, ast.Call) and call in outer.args and getattr(outer.func, "id", "") in ("map",):
                    return statement.targets[0]
        return None
    if use.how in ("for", "comprehension"):
        return use.target if isinstance(use.target, ast.Tuple) else None
    if use.how == "call" and use.function_name in TRANSPARENT_CALLS:
        return None if use.function_name in ("tuple", "list", "iter") else loop_target(use)
    return None


def listed(use: IterationUse) -> CacheObject | None:
    """The cache whose items a list or a tuple holds (``layers = tuple(cache)``) that is iterated over."""
    if use.how not in ("for", "comprehension") or len(use.value) != 1 or not isinstance(use.value[0], LegacyCache):
        return None
    cache = use.value[0].of
    return cache if cache is not None and cache.certainty >= Certainty.CONTEXT else None


def part_of_zip(use: IterationUse, target: ast.expr) -> ast.Tuple | None:
    """``(k, v)`` of ``for (k, v), other in zip(cache, others)``."""
    call = use.loop
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Tuple) or len(target.elts) != len(call.args):
        return None
    parts = [part for arg, part in zip(call.args, target.elts, strict=True) if arg is use.node]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], ast.Tuple) else None


def loop_target(use: IterationUse) -> ast.Tuple | None:
    """``(k, v)`` of ``for i, (k, v) in enumerate(cache)`` and of ``for k, v in reversed(cache)``."""
    call = use.loop
    for node in walk(use.place.statement):
        if isinstance(node, (ast.For, ast.comprehension)) and node.iter is call:
            target = node.target
            if use.function_name == "zip":
                return part_of_zip(use, target)
            if use.function_name == "enumerate":
                inner = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
                return inner if isinstance(inner, ast.Tuple) else None
            return target if isinstance(target, ast.Tuple) else None
    return None


def rest_fix(facts: Facts, target: ast.Tuple, cache: CacheObject) -> Fix | None:
    """Takes what comes behind keys and values: right before and after 5.0."""
    if len(target.elts) != 2 or cache.cls not in (CACHE, DYNAMIC_CACHE):
        return None
    name = rest_name(facts)
    if not name:
        return None
    _, end = facts.span(target.elts[-1])
    trust = trust_in_layers(facts, cache)
    if trust is None:
        return None
    sure = cache.cls == DYNAMIC_CACHE or cache.source in ("hook", "output", "parameter", "usage", "key", "attribute")
    return Fix(
        "Take the rest of each item",
        trust if sure else Applicability.UNSAFE,
        (Edit(end, end, f", *{name}"),),
    )


def rest_name(facts: Facts) -> str:
    """A name for what is thrown away: ``_``, unless the file reads or defines that (``gettext``); "" where none is free."""
    known = facts.memo.get("name for the rest")
    if not isinstance(known, str):
        known = facts.memo["name for the rest"] = free_rest_name(facts)
    return known


def free_rest_name(facts: Facts) -> str:
    taken: set[str] = set()
    for node in walk(facts.tree) if facts.tree is not None else ():
        if isinstance(node, ast.Name):
            if node.id != "_" or isinstance(node.ctx, ast.Load):
                taken.add(node.id)
        elif isinstance(node, ast.Assign):
            taken |= {item.id for item in node.targets if isinstance(item, ast.Name)}
        elif isinstance(node, ast.alias):
            taken.add(node.asname or node.name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            taken.add(node.name)
        elif isinstance(node, ast.arg):
            taken.add(node.arg)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            taken.update(node.names)
    return next((name for name in ("_", "_rest") if name not in taken), "")
