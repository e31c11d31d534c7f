"""The number of cached tokens read from the heads, head dim or batch axis."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import LengthRead
from kvlint.analysis.layout_verdicts import lengths
from kvlint.checks.base import Check
from kvlint.checks.layouts import AXIS_WORDS, axis_fix, laid_out
from kvlint.checks.words import HEADS
from kvlint.findings import Category, Finding


class LengthFromWrongAxis(Check):
    """Reports a size that is called a length and is proven to be another axis."""

    triggers = (".shape", ".size(")
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in lengths(known):
            site = verdict.site
            assert isinstance(site, LengthRead)
            if verdict.outcome != "wrong":
                continue
            place = known.place(site.statement)
            shape = laid_out(known, verdict)
            axis = verdict.sequence
            yield self.finding(
                facts,
                site.node,
                place,
                f"`{site.name}` is read from axis {site.axis}, {AXIS_WORDS[verdict.role]}"
                f"{' of ' + shape if shape else ''}: not a number of tokens",
                releases=place.releases,
                help=f"the sequence is axis {axis}" if axis is not None else "read the sequence axis",
                origin=known.origin(verdict.evidence),
                fix=axis_fix(facts, site.axis_node, axis),
            )
