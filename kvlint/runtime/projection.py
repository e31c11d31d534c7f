"""What a cache would take at another length and batch: measured on a short run, extrapolated by kind of layer.

Full layers grow with every token, windowed ones up to their window, states and the encoder's keys not at all; quantized
and compressed rows are continued by what they were measured to grow by. Beside each figure stands what the formula of
the configuration gives, and what one head of keys and values for every query head would take.
"""

from __future__ import annotations

from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence
from kvlint.runtime.checks.memory import formula_bytes
from kvlint.runtime.expectations import Kind, LayerExpectation
from kvlint.runtime.result import ProjectedLayer


def project(evidence: Evidence, tokens: int, batch: int) -> tuple[ProjectedLayer, ...]:
    """One entry a layer for *tokens* tokens in each of *batch* rows; cross-attention and what a cache keeps beside its
    layers follow with their own part."""
    recording, plan = evidence.recording, evidence.plan
    item = evidence.runner.torch.empty((), dtype=evidence.runner.dtype).element_size()
    projected = []
    for index, (layer, expected) in enumerate(
        zip(cache_layers.self_layers(recording.cache), evidence.expected, strict=False)
    ):
        size, how = _layer(evidence, layer, expected, index, tokens)
        rows = min(tokens, expected.window - 1) if expected.window else tokens
        attends = expected.kind.attends and expected.kind is not Kind.OTHER
        projected.append(
            ProjectedLayer(
                index, "self", expected.kind.value, round(size * batch),
                formula_bytes(expected, rows, batch, item) if attends else None,
                expected.mha_elements(tokens) * batch * item if attends else None, how,
            )
        )  # fmt: skip
    for index, layer in enumerate(cache_layers.cross_layers(recording.cache)):
        size = cache_layers.visible_bytes(layer) / plan.batch
        keys = cache_layers.keys_of(layer)
        rows = 0 if keys is None else int(keys.shape[-2])
        projected.append(
            ProjectedLayer(
                index, "cross", "cross", round(size * batch), None, None, f"as the encoder's output ({rows} rows)"
            )
        )
    beside = cache_layers.shown(cache_layers.beside_layers(recording.cache)) / plan.batch
    if beside:
        projected.append(ProjectedLayer(0, "beside", "other", round(beside * batch), None, None, "does not grow"))
    return tuple(projected)


def _layer(evidence: Evidence, layer: Any, expected: LayerExpectation, index: int, tokens: int) -> tuple[float, str]:
    """Bytes of one row of the batch at *tokens* tokens, and how that was worked out."""
    plan, recording = evidence.plan, evidence.recording
    keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
    now = cache_layers.visible_bytes(layer) / plan.batch
    grown = [step.after[index].visible_bytes / plan.batch for step in recording.steps if index < len(step.after)]
    seen = sum(step.tokens for step in recording.steps)
    if cache_layers.is_quantized(layer):
        recent = 0 if keys is None else int(keys.shape[-2])  # rows that are not quantized yet
        unquantized = cache_layers.shown(one for one in (keys, values) if one is not None) / plan.batch
        per_row = (now - unquantized) / (seen - recent) if seen > recent else now / seen
        return unquantized + per_row * (tokens - recent), "grows as measured (quantized)"
    if not expected.kind.attends or keys is None or values is None:
        return now, "does not grow"
    if expected.kind is Kind.OTHER:
        first = recording.steps[0]
        slope = (grown[-1] - grown[0]) / max(1, seen - first.start - first.tokens)
        return now + slope * (tokens - seen), "estimated from the growth measured"
    per_row = (cache_layers.shown([keys, values]) / plan.batch) / keys.shape[-2]
    indexed = cache_layers.shown(t for name, t in cache_layers.states_of(layer) if name == "indexer_keys") / plan.batch
    constant = now - per_row * keys.shape[-2] - indexed
    static = cache_layers.is_static(layer)
    if expected.window and cache_layers.is_sliding(layer):
        bound = expected.window if static else expected.window - 1
        return constant + per_row * min(tokens, bound), f"bounded by its window of {expected.window}"
    how = "preallocated for that length" if static else "grows with every token"
    return constant + (per_row + indexed / keys.shape[-2]) * tokens, how
