"""New keys or values joined to the past on the head dim instead of the sequence axis."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import Append
from kvlint.analysis.layout_verdicts import appends
from kvlint.checks.base import Check
from kvlint.checks.layouts import axis_fix, laid_out, subject
from kvlint.checks.words import HEADS
from kvlint.findings import Category, Finding


class ConcatOnHeadDim(Check):
    """Reports appends whose axis is proven to be the head dim."""

    triggers = (
        "cat(",
        "concat",
        "stack(",
        "cache_k",
        "cache_v",
        "k_cache",
        "v_cache",
        "key_cache",
        "value_cache",
        "cache[",
    )
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in appends(known):
            site = verdict.site
            assert isinstance(site, Append)
            if verdict.outcome != "wrong" or verdict.role != "head dim":
                continue
            place = known.place(site.statement)
            shape = laid_out(known, verdict)
            axis = verdict.sequence
            yield self.finding(
                facts,
                site.node,
                place,
                f"{subject(site.part)} are joined to the past on axis {site.axis}, the head dim"
                f"{' of ' + shape if shape else ''}: the head dim grows and the sequence does not",
                releases=place.releases,
                help=f"the sequence is axis {axis}" if axis is not None else "append on the sequence axis",
                origin=known.origin(verdict.evidence),
                fix=axis_fix(facts, site.axis_node, axis),
            )
