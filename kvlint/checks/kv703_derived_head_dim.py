"""A head dim derived from the hidden size where the configuration may set it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.sizes import SizeRecord
from kvlint.checks.base import Check
from kvlint.checks.sizes import config_base, place_of, size_records
from kvlint.checks.words import CACHE_SIZE, CACHE_WORDS
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.rewriting import replace_node


class DerivedHeadDim(Check):
    """Reports ``hidden_size // num_attention_heads`` of any model's configuration in the size of a cache."""

    triggers = ("hidden_size",)
    also = (("num_attention_heads",), (*CACHE_WORDS, "key_value_heads"))
    pattern = CACHE_SIZE
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for record in size_records(facts):
            if record.kind != "derived":
                continue
            place = place_of(facts, record)
            yield self.finding(
                facts,
                record.node,
                place,
                f"The head dim is derived from the hidden size{': ' + record.reason if record.reason else ''}; "
                "a config that sets `head_dim` need not agree",
                releases=place.releases,
                help="read `head_dim` and derive it only where a config has none",
                fix=fix_of(facts, record),
            )


def is_config(base: str) -> bool:
    """True for ``config``, ``self.text_config`` and the like: an object of the model's own may share a field's name, not mean it."""
    return base.rpartition(".")[2].lower().endswith(("config", "cfg", "conf"))


def fix_of(facts: Facts, record: SizeRecord) -> Fix | None:
    """``getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads``."""

    node = record.node
    if not isinstance(node, ast.BinOp):
        return None
    base = next((base for part in (node.left, node.right) if is_config(base := config_base(facts, part))), "")
    value = getattr(record.statement, "value", None)
    if not base or value is not node:
        return None
    text = f'getattr({base}, "head_dim", None) or {facts.source(node)}'
    return Fix("Read the head dim", Applicability.UNSAFE, (replace_node(facts, node, text),))
