"""Cache classes that the releases in force do not have: ``HybridCache``, ``SinkCache``, ``MambaCache``, ..."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvlint.analysis.facts import Facts
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of
from kvlint.checks.missing_names import missing_names
from kvlint.checks.swallowed_imports import swallowed_imports, swallowed_message
from kvlint.checks.symbols import SymbolReference, class_fix, references
from kvlint.findings import Category, Finding
from kvlint.releases import ReleaseSet
from kvlint.sieve import Groups
from kvlint.timeline import Timeline


class RemovedCacheClass(Check):
    """Reports imports and uses of cache classes that are gone (or not there yet)."""

    triggers = ("Cache",)

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        yield from missing_names(timeline, timeline.is_cache_class)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        every = [reference for reference in references(facts) if wanted(facts, reference)]
        for reference in every:
            yield self.finding(
                facts,
                reference.node,
                reference.place,
                message(reference),
                releases=reference.missing,
                life=facts.timeline.all - facts.timeline.importable(reference.qualified),
                help=reference.advice(facts),
                fix=class_fix(facts, reference, every),
                span=reference.span,
                defect=defect_of(facts, reference.qualified),
                leads=reference.is_import,
            )
        for reference in swallowed_imports(facts):
            if wanted(facts, reference):
                yield self.finding(
                    facts,
                    reference.node,
                    reference.place,
                    swallowed_message(reference),
                    releases=reference.missing,
                    life=facts.timeline.all - facts.timeline.importable(reference.qualified),
                    help=reference.advice(facts),
                    category=Category.SILENT,
                )


def wanted(facts: Facts, reference: SymbolReference) -> bool:
    return facts.timeline.is_cache_class(facts.timeline.canonical(reference.qualified) or reference.qualified)


def message(reference: SymbolReference) -> str:
    name = reference.qualified.rpartition(".")[2]
    module = reference.qualified.rpartition(".")[0]
    if reference.is_import:
        return f"`{name}` cannot be imported from `{module}`: ImportError {{when}}"
    if reference.through_import:
        return f"`{name}` is not in transformers: its import fails {{when}}"
    return f"`{module}` has no `{name}`: AttributeError {{when}}"
