"""Whether the cache takes the bytes that the grouped-query formula gives."""

from __future__ import annotations

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, Outcome, check
from kvlint.runtime.expectations import Kind, LayerExpectation
from kvlint.runtime.inspection import Problem, rows_expected


def formula_bytes(expected: LayerExpectation, rows: int, batch: int, item: int) -> int | None:
    """Bytes of keys and values: batch * rows * kv heads * (key dim + value dim) * bytes a number; None if unknown."""
    if expected.kv_heads is None or expected.key_dim is None or expected.value_dim is None:
        return None
    return batch * rows * expected.kv_heads * (expected.key_dim + expected.value_dim) * item


@check("bytes", needs=("stored-rows", "kv-heads", "head-dim"))
def bytes_held(evidence: Evidence) -> Outcome:
    """Keys and values take 2 * rows * kv heads * head dim numbers a row of the batch (latent rank + rope dim for MLA),
    not one per query head: the widely copied formula without kv heads is too large by the group size."""
    plan, tokens = evidence.plan, sum(step.tokens for step in evidence.recording.steps)
    problems: list[Problem] = []
    total = mha = 0
    for index, (layer, expected) in enumerate(
        zip(cache_layers.self_layers(evidence.recording.cache), evidence.expected, strict=False)
    ):
        keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
        rows = rows_expected(layer, expected, tokens)
        if keys is None or values is None or rows is None or expected.kind is Kind.OTHER:
            continue
        item = int(keys.element_size())
        wanted = formula_bytes(expected, rows, plan.batch, item)
        found = keys.numel() * item + values.numel() * int(values.element_size())
        if wanted is None:
            continue
        total += found
        mha += expected.mha_elements(tokens) * plan.batch * item
        if found != wanted:
            code = "KV702" if expected.latent else "KV701"
            problems.append(Problem(index, f"{wanted} bytes", f"{found}", code))
    if not total:
        return Outcome.not_applicable("no layer holds plain keys and values of known size")
    return Outcome.problems(problems, f"{total} bytes; per query head it would be {mha}")
