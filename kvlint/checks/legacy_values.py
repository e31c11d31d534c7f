"""Is a value the tuple (or list) that models took for a cache before 5.0.0?"""

from __future__ import annotations

from kvlint.analysis.values import CacheObject, Items, LegacyCache, NoneValue, Sequence, Value


def is_legacy(value: Value) -> bool:
    """True where every alternative but None is a tuple or list: nothing that has the methods of a cache."""
    kinds = [atom for atom in value if not isinstance(atom, NoneValue)]
    return bool(kinds) and all(isinstance(atom, (LegacyCache, Items, Sequence)) for atom in kinds)


def built_beside(value: Value) -> Value:
    """The collections of pairs that code built, where the other alternatives are caches: some path leads to each."""
    if not all(isinstance(atom, (CacheObject, Items, Sequence, NoneValue)) for atom in value):
        return ()
    built = tuple(atom for atom in value if isinstance(atom, (Items, Sequence)) and is_pairs((atom,)))
    return built if any(isinstance(atom, CacheObject) for atom in value) else ()


def is_pairs(value: Value) -> bool:
    """True where the value is known to hold one pair of tensors for each layer."""
    for atom in value:
        if isinstance(atom, LegacyCache):
            continue
        if isinstance(atom, Sequence):
            items: tuple[Value, ...] = (atom.item,)
        elif isinstance(atom, Items) and atom.items:
            items = atom.items
        else:
            return False
        if not all(is_pair(item) for item in items):
            return False
    return bool(value)


def is_pair(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, Items) and len(atom.items) == 2 for atom in value)


def describe_legacy(value: Value) -> str:
    """How messages call it."""
    if any(isinstance(atom, LegacyCache) for atom in value):
        return "a tuple of keys and values"
    collections = [atom for atom in value if isinstance(atom, (Items, Sequence))]
    kind = "tuple" if all(atom.is_tuple for atom in collections) else "list"
    empty = all(isinstance(atom, Items) and not atom.items for atom in collections)
    return f"an empty {kind}" if empty else f"a {kind}"
