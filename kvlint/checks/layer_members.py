"""Members of the layers of a cache (``cache.layers[i]``) that a release in force lacks, by the class of the cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.values import DYNAMIC_CACHE, STATIC_CACHE, CacheLayer, CacheObject, Certainty
from kvlint.checks.receivers import ATTRIBUTE_ERRORS
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Timeline

MODULE = "transformers.cache_utils"
EITHER = "LinearAttentionLayer"
"""A layer without a bound, which static caches hold as well."""


@dataclass(frozen=True, slots=True)
class MissingLayerMember:
    """A read of a member that no layer of the cache has on the releases *wrong*; *kind* is what it was."""

    use: AttributeUse
    cache: CacheObject
    wrong: ReleaseSet
    life: ReleaseSet
    kind: str


def missing_layer_members(facts: Facts, kind: str) -> Iterator[MissingLayerMember]:
    """Reads of members of this kind ("method", "attribute") on layers of caches of transformers.

    Silent where a class of the file has such a member, or the file sets it: the layers may be its own.
    """
    for use in facts.attributes:
        if use.action not in ("load", "augmented") or use.place.typing_only or use.place.known_members:
            continue
        if use.place.caught & ATTRIBUTE_ERRORS or len(use.value) != 1 or not isinstance(use.value[0], CacheLayer):
            continue
        cache = use.value[0].cache
        if cache.certainty < Certainty.CONTEXT or cache.local_class is not None or is_set_here(facts, use.name):
            continue
        lives, found = member_of_layers(facts.timeline, cache.cls, use.name)
        wrong = use.place.releases & cache.when & (facts.timeline.all - lives)
        if lives and wrong and found == kind:
            yield MissingLayerMember(use, cache, wrong, facts.timeline.all - lives, kind)


def is_set_here(facts: Facts, name: str) -> bool:
    """True where the file defines a member of this name, or sets one."""
    if any(item.info.defines(name) for item in facts.classes):
        return True
    return re.search(rf"\.{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)|[\"']{re.escape(name)}[\"']", facts.text) is not None


@lru_cache(maxsize=512)
def member_of_layers(timeline: Timeline, cls: str, name: str) -> tuple[ReleaseSet, str]:
    """Releases on which a layer that such a cache can hold has the member, and what it was last."""
    lives, newest, kind = NO_RELEASE, -1, ""
    for layer in layer_classes(timeline):
        short = layer.rpartition(".")[2]
        static = "Static" in short or short in ("SlidingWindowLayer", "ChunkedSlidingLayer")
        if (cls == STATIC_CACHE and not static and short != EITHER) or (cls == DYNAMIC_CACHE and static):
            continue
        lives |= timeline.member(layer, name)
        for releases, found in timeline.member_kind(layer, name):
            if releases.newest > newest:
                newest, kind = releases.newest, "method" if found.endswith("method") else "attribute"
    return lives, kind


@lru_cache(maxsize=2)
def layer_classes(timeline: Timeline) -> tuple[str, ...]:
    """The layer classes that ``cache_utils`` defines on some release."""
    return tuple(
        name
        for name in timeline.symbols()
        if name.startswith(f"{MODULE}.") and timeline.is_layer_class(name) and timeline.canonical(name) == name
    )


@lru_cache(maxsize=2)
def gone_from_layers(timeline: Timeline) -> Mapping[str, ReleaseSet]:
    """Members of any layer class that every one of them lacks on some release since there are layers."""
    names = {name for layer in layer_classes(timeline) for name in timeline.members(layer)}
    since = timeline.importable(f"{MODULE}.DynamicLayer")
    found: dict[str, ReleaseSet] = {}
    for name in names:
        gone = NO_RELEASE
        for cls in (STATIC_CACHE, DYNAMIC_CACHE, ""):
            lives, _ = member_of_layers(timeline, cls, name)
            gone |= since - lives if lives else NO_RELEASE
        if gone and not name.startswith("__"):
            found[name] = gone
    return found
