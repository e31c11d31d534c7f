"""Keys and values handed to a cache, or to an attention function, in the other layout than it takes."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import Attend
from kvlint.analysis.layout_verdicts import attentions
from kvlint.checks.base import Check
from kvlint.checks.layouts import laid_out
from kvlint.checks.words import HEADS
from kvlint.findings import Category, Finding


class UpdateBeforeTranspose(Check):
    """Reports ``cache.update`` and attention calls whose keys are proven to have heads and sequence swapped."""

    triggers = (
        "scaled_dot_product_attention",
        "flash_attn_func",
        "flash_attn_with_kvcache",
        "past_key",
        "Cache",
        "cache.update",
    )
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in attentions(known):
            site = verdict.site
            assert isinstance(site, Attend)
            if verdict.outcome != "wrong":
                continue
            place = known.place(site.statement)
            shape = laid_out(known, verdict)
            first = site.wants == "heads-first"
            wanted = "[batch, heads, sequence, head dim]" if first else "[batch, sequence, heads, head dim]"
            if site.name == "update":
                what = f"The cache is given {shape} and takes {wanted}: it grows along the heads"
            else:
                what = f"`{site.name}` is given {shape} and takes {wanted}: it attends over the heads"
            yield self.finding(
                facts,
                site.node,
                place,
                what,
                releases=place.releases,
                help="transpose axes 1 and 2 first (`.transpose(1, 2)`)",
                origin=known.origin(verdict.evidence),
            )
