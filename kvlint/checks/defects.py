"""What several findings of one file have in common: the name whose import fails."""

from __future__ import annotations

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import CACHE, CacheObject


def defect_of(facts: Facts, qualified: str) -> str:
    """The key of all that fails because a name of transformers is not there."""
    return f"name:{facts.timeline.canonical(qualified) or qualified}"


def defect_of_cache(facts: Facts, cache: CacheObject) -> str:
    """The key of what is done with an object whose class may be gone; none for a cache of any class."""
    return defect_of(facts, cache.cls) if cache.cls != CACHE else ""


def defect_of_call(facts: Facts, use: CallUse) -> str:
    """The key of all that is wrong with the arguments of one call."""
    return f"call:{facts.span(use.node)[0]}"
