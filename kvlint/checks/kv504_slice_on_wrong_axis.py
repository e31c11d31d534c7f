"""A cache cut to a length, or its beams reordered, on the wrong axis."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import Cut
from kvlint.analysis.layout_verdicts import cuts
from kvlint.checks.base import Check
from kvlint.checks.layouts import AXIS_WORDS, axis_fix, laid_out
from kvlint.checks.words import HEADS
from kvlint.findings import Category, Finding


class SliceOnWrongAxis(Check):
    """Reports cuts to a length on the heads or head dim, and reorderings of beams on another axis than the batch."""

    triggers = ("[:,", "[ :,", "[...,", "[ ...,", "narrow(", "index_select")
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in cuts(known):
            site = verdict.site
            assert isinstance(site, Cut)
            if verdict.outcome != "wrong":
                continue
            place = known.place(site.statement)
            shape = laid_out(known, verdict)
            reorder = site.how == "reorder"
            axis = 0 if reorder else verdict.sequence
            done = "reorders beams on" if reorder else "cuts"
            help = (
                "the batch is axis 0"
                if reorder
                else f"the sequence is axis {axis}"
                if axis is not None
                else "cut the sequence axis"
            )
            yield self.finding(
                facts,
                site.node,
                place,
                f"This {done} axis {site.axis}, {AXIS_WORDS[verdict.role]}{' of ' + shape if shape else ''}",
                releases=place.releases,
                help=help,
                origin=known.origin(verdict.evidence),
                fix=axis_fix(facts, site.axis_node, axis),
            )
