"""New keys or values joined to the past on the heads axis instead of the sequence axis."""

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

SEQUENCE_AXES = (2, -2)


class ConcatOnHeadAxis(Check):
    """Reports appends whose axis is proven to be the heads, or that contradict the length the code itself reads."""

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
            place = known.place(site.statement)
            if verdict.outcome == "wrong" and verdict.role != "head dim":
                shape = laid_out(known, verdict)
                axis = verdict.sequence
                why = (
                    f"which holds the heads in {shape}"
                    if not verdict.note and shape
                    else (verdict.note and f"but {verdict.note}") or "which holds the heads"
                )
                yield self.finding(
                    facts,
                    site.node,
                    place,
                    f"{subject(site.part)} are {verb(site.how)} axis {site.axis}, {why}: an error for chunks of different "
                    "lengths, a wrong cache for equal ones",
                    releases=place.releases,
                    help=f"the sequence is axis {axis}" if axis is not None else "append on the sequence axis",
                    origin=known.origin(verdict.evidence),
                    fix=axis_fix(facts, site.axis_node, axis),
                )
            elif verdict.outcome == "undecided" and site.axis not in SEQUENCE_AXES and site.how == "concatenation":
                yield self.finding(
                    facts,
                    site.node,
                    place,
                    f"{subject(site.part)} are joined on axis {site.axis}; nothing here shows whether that is the sequence",
                    releases=place.releases,
                    help="right for [batch, sequence, heads, head dim], wrong for [batch, heads, sequence, head dim]; "
                    "the view or transpose that lays the tensor out would decide it",
                    category=Category.UNDECIDED,
                )


def verb(how: str) -> str:
    return "written along" if how == "slice" else "joined to the past on"
