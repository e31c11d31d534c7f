"""An MLA model sized as if it cached keys and values of every head."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.checks.base import Check
from kvlint.checks.sizes import place_of, size_records
from kvlint.checks.words import CACHE_SIZE, CACHE_WORDS
from kvlint.findings import Category, Finding


class MlaCacheSize(Check):
    """Reports sizes of a cache that multiply heads with the expanded head dims of an MLA model."""

    triggers = ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "deepseek")
    also = (CACHE_WORDS,)
    pattern = CACHE_SIZE
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        latent = facts.timeline.compare(">=", "5.15")
        for record in size_records(facts):
            place = place_of(facts, record)
            wrong = place.releases & latent
            if record.kind not in ("mla", "latent") or not wrong:
                continue
            what = "keys and values of every head" if record.kind == "mla" else "the latent twice"
            yield self.finding(
                facts,
                record.node,
                place,
                f"This counts {what}, but the model caches one latent per token {{when}}",
                releases=wrong,
                life=latent,
                help="the cache holds `kv_lora_rank + qk_rope_head_dim` numbers per token and layer",
            )
