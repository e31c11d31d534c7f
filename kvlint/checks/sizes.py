"""What the checks of cache sizes share: the records of a region, read once."""

from __future__ import annotations

import ast
import re

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.sizes import SizeReader, SizeRecord

GENERIC_CONFIGS = frozenset(
    {
        "AutoConfig",
        "PretrainedConfig",
        "PreTrainedConfig",
        "GenerationConfig",
        "BitsAndBytesConfig",
        "LoraConfig",
        "PeftConfig",
        "QuantizedCacheConfig",
    }
)


def size_records(facts: Facts) -> list[SizeRecord]:
    """The sizes of caches in a region that count the wrong heads."""
    known = facts.memo.get("sizes")
    if isinstance(known, list):
        return known
    found = SizeReader(facts.tree, facts.text, is_specific(facts)).run() if facts.tree is not None else []
    if facts.reach:
        found = [record for record in found if facts.reaching(record.statement)]
    facts.memo["sizes"] = found
    return found


def is_specific(facts: Facts) -> bool:
    """True for the code of one model: it defines or imports the configuration class of one."""
    if facts.in_transformers:
        return True
    for use in facts.imports:
        name = use.qualified.rpartition(".")[2]
        if (
            name.endswith("Config")
            and name not in GENERIC_CONFIGS
            and re.search(r"configuration|config|transformers", use.qualified)
        ):
            return True
    return any(
        any(base.endswith(("PretrainedConfig", "PreTrainedConfig")) for base in use.info.foreign_bases())
        for use in facts.classes
    )


def place_of(facts: Facts, record: SizeRecord) -> Place:
    return Place(facts.reaching(record.statement), frozenset(), record.statement, None, None)


def config_base(facts: Facts, node: ast.AST | None) -> str:
    """The text of ``config`` in ``config.num_attention_heads``, or "" for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        return facts.source(node.value)
    return ""
