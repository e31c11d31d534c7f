"""Is the object of a use a transformers cache? The policy that all checks of members share."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import AttributeUse, Facts, SubscriptUse
from kvlint.analysis.library import COMMON_CLASSES, STATE_CLASSES, library_of
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.nodes import walk
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import (
    CACHE,
    CacheObject,
    Certainty,
    Items,
    LayerPair,
    LegacyCache,
    NoneValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    cache_of,
    without,
)
from kvlint.releases import ReleaseSet

ATTRIBUTE_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})

TELLING_MEMBERS = frozenset(
    {
        "to_legacy_cache",
        "from_legacy_cache",
        "get_usable_length",
        "get_max_cache_shape",
        "key_cache",
        "value_cache",
        "seen_tokens",
        "_seen_tokens",
        "get_max_length",
        "batch_split",
        "from_batch_splits",
        "conv_states",
        "ssm_states",
        "update_conv_state",
        "update_ssm_state",
        "has_previous_state",
    }
)
"""Members by which even a merely well-named object gives itself away as a transformers cache."""


def members_of(facts: Facts, cache: CacheObject, name: str) -> ReleaseSet:
    """Releases on which the cache has the member. Where only the base class is known: on which any common class has."""
    if cache.local_class is not None and cache.local_class.defines(name):
        return facts.timeline.all
    library = library_of(facts.timeline)
    lives = library.member(cache.cls, name)
    if cache.cls != CACHE:  # where the class is gone, the object is some other cache
        lives |= library.member(CACHE, name) - facts.timeline.importable(cache.cls)
    return lives


def kind_of(facts: Facts, cache: CacheObject, name: str) -> str:
    """What the member was on the newest release that had it: "method", "attribute", or "" where no release had it."""
    classes = (cache.cls,) if cache.cls != CACHE else (*COMMON_CLASSES, *STATE_CLASSES)
    newest, kind = -1, ""
    for cls in classes:
        for releases, found in facts.timeline.member_kind(cls, name):
            if releases.newest > newest:
                newest, kind = releases.newest, found
    return "method" if kind.endswith("method") else "attribute" if kind else ""


def receiver(facts: Facts, use: AttributeUse) -> CacheObject | None:
    """The cache that *use* reads a member of, or None where it may be something else."""
    value = without(use.value, LegacyCache, LayerPair, Sequence, Items)
    known = cache_of(value, Certainty.CONTEXT)
    if known is not None:
        unsure = known.certainty < Certainty.PROVEN or may_be_else(value)
        return None if unsure and use.name in TENSOR_MEMBERS else known
    for atom in value:
        if isinstance(atom, Symbol):
            cls = cache_class(facts, atom.name)
            if cls is not None:
                return CacheObject(cls, when=atom.when, origin=atom.origin)
    if use.name not in TELLING_MEMBERS or facts.foreign_engine or use.name in own_members(facts):
        return None
    if not all(isinstance(atom, (Unknown, NoneValue, CacheObject)) for atom in value):
        return None
    name = last_name(use.value_node)
    if name and looks_like_cache(name):
        named = next((atom for atom in value if isinstance(atom, CacheObject)), None)
        return named or CacheObject(CACHE, Certainty.NAMED, "name")
    return None


def own_members(facts: Facts) -> frozenset[str]:
    """Members that classes of the file define and that do not stand on a class of transformers."""
    known = facts.memo.get("own members")
    if not isinstance(known, frozenset):
        names: set[str] = set()
        for use in facts.classes:
            if not any(base.startswith("transformers.") for base in use.info.foreign_bases()):
                names |= set(use.info.methods) | use.info.assigned
        known = facts.memo["own members"] = frozenset(names)
    return known


def cache_class(facts: Facts, qualified: str) -> str | None:
    """The canonical cache class behind a dotted name."""
    if not qualified.startswith("transformers."):
        return None
    canonical = facts.timeline.canonical(qualified) or qualified
    return canonical if facts.timeline.is_cache_class(canonical) else None


def last_name(node: ast.expr) -> str:
    """The name that the object is reached by: ``x`` of ``x``, ``b`` of ``a.b``, ``k`` of ``a["k"]``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
    return ""


def known_cache(value: Value) -> CacheObject | None:
    """A cache that is more than a name."""
    return cache_of(value, Certainty.CONTEXT)


def may_be_else(value: Value) -> bool:
    """True where one alternative is not known at all: a function that returns a cache here, and a tensor there."""
    return any(isinstance(atom, Unknown) for atom in value)


def describe(cache: CacheObject) -> str:
    """How messages call the object: its class where it is known."""
    return f"`{cache.cls.rpartition('.')[2]}`" if cache.cls != CACHE else "a cache"


@dataclass(frozen=True, slots=True)
class MissingMember:
    """A member of a cache that some release in force lacks."""

    use: AttributeUse
    cache: CacheObject
    wrong: ReleaseSet
    life: ReleaseSet


def missing_members(facts: Facts, kind: str) -> Iterator[MissingMember]:
    """Uses of members of this kind ("method", "attribute") on caches, where a release in force has no such member."""
    for use in facts.attributes:
        if use.place.caught & ATTRIBUTE_ERRORS or use.place.typing_only:
            continue
        if use.place.known_members:
            continue
        cache = receiver(facts, use)
        if cache is None or (cache.local_class is not None and not cache.local_class.bases_known()):
            continue
        lives = members_of(facts, cache, use.name)
        if not lives or kind_of(facts, cache, use.name) != kind:
            continue
        life = facts.timeline.all - lives
        wrong = use.place.releases & cache.when & life
        if wrong:
            yield MissingMember(use, cache, wrong, life)


CONTRACT_SOURCES = frozenset({"constructed", "hook", "output", "isinstance", "self"})
"""Where a cache came from the library for certain: what the code does with it does not make it something else."""
TENSOR_MEMBERS = frozenset(
    {
        *("shape", "size", "device", "dtype", "dim", "ndim", "is_cuda", "new_zeros", "contiguous"),
        *("to", "cuda", "cpu", "half", "float"),
    }
)


NO_TENSOR_METHODS = frozenset({"cat", "update", "append", "extend", "push", "add_tokens"})
"""Methods that caches of projects have, and tensors have not."""
OWN_CACHE_CALL = re.compile(rf"[01]\s*\]\s*\.\s*(?:{'|'.join(sorted(NO_TENSOR_METHODS))})\s*\(")
PAIR_TAKERS = frozenset({"DynamicCache", "EncoderDecoderCache"})
"""Classes whose only positional argument is a collection of pairs."""


def taken_as_tensor(parent: ast.AST | None) -> bool:
    """True where the expression around a subscript treats what it yields as a tensor."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in TENSOR_MEMBERS
    return isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("torch.is_tensor", "torch.cat")


def own_formats(facts: Facts) -> frozenset[tuple[int, str]]:
    """(function, path) pairs of names that the code indexes in ways that no transformers cache ever allowed.

    ``x[i] = t``, ``x[0].shape`` (a layer is a pair, no tensor), ``x[i][j]`` with a variable or with 2 and more,
    ``x[:, i]`` where the name may be something else as well; and what is turned into a cache by
    ``from_legacy_cache(x)`` or ``DynamicCache(x)``.
    """
    found: set[tuple[int, str]] = set()
    for use in facts.subscripts:
        if any(isinstance(atom, CacheObject) for atom in use.value):
            axes = isinstance(use.node.slice, ast.Tuple) and may_be_else(use.value)
            if use.path and (use.action != "load" or axes or taken_as_tensor(use.parent)):
                found.add((id(use.place.function), use.path))
        elif any(isinstance(atom, LayerPair) for atom in use.value):
            part = use.node.slice
            usual = isinstance(part, (ast.UnaryOp, ast.Slice)) or (
                isinstance(part, ast.Constant) and part.value in (0, 1)
            )
            outer = use.node.value
            if (not usual or use.action != "load") and isinstance(outer, ast.Subscript):
                path = path_of(outer.value)
                if path:
                    found.add((id(use.place.function), path))
    for call in facts.calls:
        func = call.node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if (name == "from_legacy_cache" and call.node.args) or (name in PAIR_TAKERS and len(call.node.args) == 1):
            path = path_of(call.node.args[0])
            if path:
                found.add((id(call.place.function), path))
    return frozenset(found)


def holds_own_caches(facts: Facts) -> bool:
    """True where the items of a layer's past are objects with methods that no tensor has: caches of the project's own
    (``past_key_value[0].cat(keys, dim=2)``), behind a class that derives from a model of transformers."""
    known = facts.memo.get("own caches")
    if not isinstance(known, bool):
        nodes = walk(facts.tree) if facts.tree is not None and OWN_CACHE_CALL.search(facts.text) else []
        known = facts.memo["own caches"] = any(is_call_of_own_cache(node) for node in nodes)
    return known


def is_call_of_own_cache(node: ast.AST) -> bool:
    """``past[0].cat(...)``: the method of an item of a pair that would be a tensor in every format of transformers."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    item = node.func.value
    if node.func.attr not in NO_TENSOR_METHODS or not isinstance(item, ast.Subscript):
        return False
    pair = isinstance(item.slice, ast.Constant) and item.slice.value in (0, 1)
    return pair and looks_like_cache(last_name(item.value))


def comes_in(use: SubscriptUse) -> bool:
    """True for an attribute that the function reads as others have left it: a cache from one, pairs from another."""
    node, function = use.node.value, use.place.function
    if not isinstance(node, ast.Attribute) or function is None or cache_of(use.value, Certainty.PROVEN) is None:
        return False
    return not any(
        isinstance(other, ast.Attribute)
        and other.attr == node.attr
        and isinstance(other.ctx, ast.Store)
        and (other.lineno, other.col_offset) < (node.lineno, node.col_offset)
        for other in walk(function.node)
    )


def may_be_rebuilt(value: Value) -> bool:
    """True where the code itself may have put a collection of its own in the cache's place; one of Nones is a start."""
    proven = cache_of(value, Certainty.PROVEN) is not None
    for atom in value:
        if isinstance(atom, LegacyCache) and not (proven and atom.built == "annotation"):
            return True
        if isinstance(atom, (Items, Sequence)):
            items = atom.items if isinstance(atom, Items) else (atom.item,)
            if any(not isinstance(part, NoneValue) for item in items for part in item):
                return True
    return False
