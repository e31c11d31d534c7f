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


@check("bytes", needs=("runs", "stored-rows", "kv-heads", "head-dim"))
def bytes_held(evidence: Evidence) -> Outcome:
    """Keys and values take 2 * rows * kv heads * head dim numbers a row of the batch (latent rank + rope dim for MLA),
    not one per query head: the widely copied formula without kv heads is too large by the group size."""
    plan, tokens = evidence.plan, sum(step.tokens for step in evidence.recording.steps)
    problems: list[Problem] = []
    total = mha = rest = 0
    cache = evidence.recording.cache
    for index, (layer, expected) in enumerate(zip(cache_layers.self_layers(cache), evidence.expected, strict=False)):
        keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
        rows = rows_expected(layer, expected, tokens)
        held = cache_layers.visible_bytes(layer)
        wanted = None
        if keys is not None and values is not None and rows is not None and expected.kind is not Kind.OTHER:
            wanted = formula_bytes(expected, rows, plan.batch, int(keys.element_size()))
        if wanted is None or keys is None or values is None:
            rest += held  # states, compressed or quantized rows: measured, no formula
            continue
        found = cache_layers.shown((keys, values))
        rest += held - found
        total += found
        mha += expected.mha_elements(tokens) * plan.batch * int(keys.element_size())
        if found != wanted:
            code = "KV702" if expected.latent else "KV701"
            problems.append(Problem(index, f"{wanted} bytes of keys and values", f"{found}", code))
    cross = sum(cache_layers.visible_bytes(layer) for layer in cache_layers.cross_layers(cache))
    beside = cache_layers.shown(cache_layers.beside_layers(cache))
    parts = [f"{total} bytes of keys and values (a head for every query head: {mha})"] if total else []
    named = ((rest, "of states and other rows"), (cross, "of cross-attention"), (beside, "beside the layers"))
    parts += [f"{size} {name}" for size, name in named if size]
    if not parts:
        return Outcome.not_applicable("the cache holds nothing")
    return Outcome.problems(problems, ", ".join(parts))
