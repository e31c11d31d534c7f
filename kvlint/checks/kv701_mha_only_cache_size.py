"""A cache sized with the query heads or the hidden size, where grouped-query models cache fewer heads."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.sizes import SizeRecord
from kvlint.checks.base import Check
from kvlint.checks.sizes import config_base, place_of, size_records
from kvlint.checks.words import CACHE_SIZE, CACHE_WORDS
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.rewriting import replace_node


class MhaOnlyCacheSize(Check):
    """Reports sizes and buffers of a cache that count query heads."""

    triggers = ("heads", "hidden_size", "n_head", "llama", "Llama", "qwen", "Qwen", "mistral", "Mistral", "n_embd")
    also = (CACHE_WORDS,)
    pattern = CACHE_SIZE
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for record in size_records(facts):
            if record.kind not in ("heads", "hidden"):
                continue
            place = place_of(facts, record)
            what = (
                "`hidden_size` stands for all query heads" if record.kind == "hidden" else "This counts the query heads"
            )
            much = f" ({record.factor} too much)" if record.factor else ""
            yield self.finding(
                facts,
                record.node,
                place,
                f"{what} of the cache{much}: {record.reason}",
                releases=place.releases,
                help="count `num_key_value_heads` (and fall back to `num_attention_heads` where a config has none)"
                if record.kind == "heads"
                else "count `num_key_value_heads * head_dim`",
                fix=fix_of(facts, record),
            )


def fix_of(facts: Facts, record: SizeRecord) -> Fix | None:
    """Reads the kv heads of a configuration, and its heads where it has no such field."""
    node = record.evidence if record.evidence is not None else record.node
    base = config_base(facts, node)
    if record.kind != "heads" or not base or getattr(node, "attr", "") != "num_attention_heads":
        return None
    text = f'getattr({base}, "num_key_value_heads", None) or {base}.num_attention_heads'
    if node is not record.node:
        text = f"({text})"
    return Fix("Count the kv heads", Applicability.UNSAFE, (replace_node(facts, node, text),))
