"""``cache._seen_tokens = n``, ``cache.key_cache = [...]``: plain attributes that nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.behaviour import fact, method_hint, releases_of
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of_cache
from kvlint.checks.receivers import describe, receiver
from kvlint.checks.words import CACHE_WORDS
from kvlint.findings import Category, Finding

FACTS = {
    "key_cache": "attribute-lists-ignored",
    "value_cache": "attribute-lists-ignored",
    "_seen_tokens": "seen-tokens-ignored",
    "seen_tokens": "seen-tokens-ignored",
}
PROPERTY_RELEASES = ">=4.54,<4.56"
"""On these ``key_cache`` and ``value_cache`` are properties without a setter."""


class DeadCacheAttributeAssignment(Check):
    """Reports assignments to attributes of a cache that have no effect."""

    triggers = tuple(FACTS)
    also = (CACHE_WORDS,)
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.attributes:
            if use.action != "store" or use.name not in FACTS or use.place.known_members:
                continue
            cache = receiver(facts, use)
            if cache is None or cache.local_class is not None:
                continue
            known = fact(FACTS[use.name])
            silent = releases_of(facts.timeline, FACTS[use.name])
            raising = (
                facts.timeline.matching(PROPERTY_RELEASES)
                if use.name in ("key_cache", "value_cache")
                else silent - silent
            )
            in_force = use.place.releases & cache.when
            dead = (
                f"assigning `{use.name}` of {describe(cache)} changes nothing {{when}}: {known.says}; "
                "it sets a plain attribute"
            )
            refused = f"`{use.name}` of {describe(cache)} cannot be assigned: AttributeError, the property has no setter, {{when}}"
            for life, message, category in (
                (silent - raising, dead, Category.SILENT),
                (raising, refused, Category.BREAKS),
            ):
                if in_force & life:
                    yield self.finding(
                        facts,
                        use.node,
                        use.place,
                        message,
                        releases=in_force & life,
                        life=life,
                        category=category,
                        help=method_hint(f"{use.name}="),
                        origin=cache.origin,
                        defect=defect_of_cache(facts, cache),
                    )
