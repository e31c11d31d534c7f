"""Members of a cache that no release ever had: ``cache.get_length()``, ``cache.cache_position``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.values import CACHE, CacheObject, NoneValue
from kvlint.behaviour import broken_members
from kvlint.checks.base import Check
from kvlint.checks.layer_members import is_set_here
from kvlint.checks.receivers import ATTRIBUTE_ERRORS, describe
from kvlint.findings import Finding
from kvlint.releases import ReleaseSet
from kvlint.timeline import Timeline

NAMED_HERE = frozenset({"constructed", "annotation", "isinstance"})
"""Where a cache is known from code that names its class."""
CALLED = {"cache_position": "the position of the first new token is `cache.get_seq_length()`"}


class UnknownCacheMember(Check):
    """Reports reads of members that no release gives to caches of this class."""

    triggers = ("Cache",)
    pattern = r"Cache\b"

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers or facts.foreign_engine or "Cache" not in facts.text:
            return
        for use in facts.attributes:
            cache = known_class(use)
            if cache is None or use.place.caught & ATTRIBUTE_ERRORS or use.place.known_members or use.place.typing_only:
                continue
            if (
                ever_had(facts.timeline, cache, use.name)
                or is_set_here(facts, use.name)
                or is_set_around(facts, use.name)
            ):
                continue
            wrong = (use.place.releases & cache.when) - facts.timeline.may_have_more(cache.cls)
            if wrong:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    f"{describe(cache)} has no `{use.name}`, on no release: AttributeError",
                    releases=wrong,
                    help=CALLED.get(use.name) or likely(facts.timeline, cache, use.name, wrong),
                    origin=cache.origin,
                )


def known_class(use: AttributeUse) -> CacheObject | None:
    """The cache whose member is read, where it is nothing else and only transformers decides what it has."""
    if use.action not in ("load", "augmented") or use.name.startswith("_"):
        return None
    found = [atom for atom in use.value if not isinstance(atom, NoneValue)]
    if len(found) != 1 or not isinstance(found[0], CacheObject) or found[0].source not in NAMED_HERE:
        return None
    return found[0] if found[0].local_class is None else None  # what a subclass is given is the project's business


def is_set_around(facts: Facts, name: str) -> bool:
    """True where a module that is walked together with this one defines or sets a member of the name."""
    homes = [definition.info.home for definition in facts.functions[:1]]
    joint = getattr(homes[0], "joint", None) if homes else None
    sought = re.compile(
        rf"\bdef {re.escape(name)}\b|\.{re.escape(name)}\s*=(?!=)|^\s+{re.escape(name)}\s*[:=]", re.MULTILINE
    )
    return joint is not None and any(sought.search(walk.text) for walk in joint.walks.values())


def ever_had(timeline: Timeline, cache: CacheObject, name: str) -> bool:
    """True where some release gives the member to the class, or, where another may be meant, to any cache."""
    exact = cache.source == "constructed" and cache.cls != CACHE
    classes = (cache.cls,) if exact else (cache.cls, *cache_classes(timeline))
    return any(timeline.member(cls, name) or broken_members(cls, name) for cls in classes)


@lru_cache(maxsize=2)
def cache_classes(timeline: Timeline) -> tuple[str, ...]:
    """Every class of caches that some release defines."""
    return tuple(
        sorted({timeline.canonical(name) or name for name in timeline.symbols() if timeline.is_cache_class(name)})
    )


def likely(timeline: Timeline, cache: CacheObject, name: str, releases: ReleaseSet) -> str:
    """The member that was meant, by its spelling."""
    names = [other for other, lives in timeline.members(cache.cls).items() if releases <= lives and other[0] != "_"]
    close = difflib.get_close_matches(name, sorted(names), 1, 0.6)
    return (
        f"the nearest that it has is `{close[0]}`" if close else "see `kvlint api " + cache.cls.rpartition(".")[2] + "`"
    )
