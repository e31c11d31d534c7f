"""A cache sized with the query heads or the hidden size, where grouped-query models cache fewer heads."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.prose_sizes import prose_sizes
from kvlint.analysis.sizes import SizeRecord
from kvlint.carriers.regions import PROSE
from kvlint.checks.base import Check
from kvlint.checks.sizes import config_base, place_of, size_records
from kvlint.checks.words import CACHE_SIZE, CACHE_WORDS
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.rewriting import replace_node


class MhaOnlyCacheSize(Check):
    """Reports sizes and buffers of a cache that count query heads."""

    triggers = (
        *("heads", "head_dim", "hidden_size", "n_head", "n_embd"),
        *("llama", "Llama", "LLaMA", "qwen", "Qwen", "mistral", "Mistral", "mixtral", "Mixtral", "gemma", "Gemma"),
    )
    also = ((*CACHE_WORDS, "register_buffer"),)
    pattern = CACHE_SIZE
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.kind == PROSE:
            yield from self.prose(facts)
        for record in size_records(facts):
            if record.kind not in ("heads", "hidden", "none"):
                continue
            place = place_of(facts, record)
            if record.kind == "none":
                yield self.finding(
                    facts,
                    record.node,
                    place,
                    f"This counts one head a layer: {record.reason}",
                    releases=place.releases,
                    help="multiply by `num_key_value_heads`",
                )
                continue
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

    def prose(self, facts: Facts) -> Iterator[Finding]:
        """Products of numbers beside the name of a model, in a document."""
        for size in prose_sizes(facts.text):
            config = size.config
            what = "This counts" if size.kind == "heads" else "The hidden size stands for"
            much = f" ({config.factor} too much)" if config.factor else ""
            yield Finding(
                code=self.code,
                name=self.name,
                category=self.category,
                start=size.start,
                end=size.end,
                message=f"{what} the {config.heads} query heads of the cache{much}: "
                f"{size.model} caches {config.kv_heads} kv heads",
                help=f"count the kv heads: `{' '.join(size.corrected(facts.text).split())}`",
                releases=facts.target,
                statement_start=facts.text.rfind("\n", 0, size.start) + 1,
                statement_end=size.end,
            )


def fix_of(facts: Facts, record: SizeRecord) -> Fix | None:
    """Reads the kv heads of a configuration, and its heads where it has no such field."""
    node = record.evidence if record.evidence is not None else record.node
    base = config_base(facts, node)
    if record.kind != "heads" or base in ("", "self") or getattr(node, "attr", "") != "num_attention_heads":
        return None
    text = f'getattr({base}, "num_key_value_heads", None) or {base}.num_attention_heads'
    if node is not record.node:
        text = f"({text})"
    return Fix("Count the kv heads", Applicability.UNSAFE, (replace_node(facts, node, text),))
