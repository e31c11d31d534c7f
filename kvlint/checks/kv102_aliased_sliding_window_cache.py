"""``transformers.cache_utils.SlidingWindowCache`` from 5.5.1: another name of ``StaticCache``, without a word."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts, ImportUse, SymbolUse
from kvlint.checks.base import Check
from kvlint.checks.symbols import class_fix, references_where
from kvlint.findings import Category, Finding
from kvlint.releases import ReleaseSet


class AliasedSlidingWindowCache(Check):
    """Reports names that resolve to another class than the one they name."""

    triggers = ("SlidingWindowCache",)
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        every = list(references_where(facts, aliased))
        tested = any(isinstance(item.use, SymbolUse) and item.use.context == "isinstance" for item in every)
        for reference in every:
            target = alias_of(facts, reference.qualified)
            name = reference.qualified.rpartition(".")[2]
            verb = "is imported as" if isinstance(reference.use, ImportUse) else "is only another name of"
            yield self.finding(
                facts,
                reference.node,
                reference.place,
                f"`{name}` {verb} `{target}` {{when}}: every static cache is an instance of it",
                releases=reference.missing,
                life=aliased(facts, reference.qualified),
                help=reference.advice(facts),
                fix=None if tested else class_fix(facts, reference, every),
                span=reference.span,
            )


def aliased(facts: Facts, qualified: str) -> ReleaseSet:
    """Releases on which the name stands for another class."""
    found = ReleaseSet(0)
    for releases in facts.timeline.alias_target(qualified):
        found |= releases
    return found


def alias_of(facts: Facts, qualified: str) -> str:
    targets = facts.timeline.alias_target(qualified)
    return next(iter(targets.values())).rpartition(".")[2] if targets else ""
