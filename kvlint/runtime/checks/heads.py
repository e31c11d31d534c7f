"""Which query heads read which kv head.

One kv head of one layer of a filled cache is changed, one token is fed, and what that layer's attention hands on is
compared head by head with a run on the unchanged cache: exactly the query heads of its group may differ. That needs
no knowledge of module names: of the modules that run after the layer's ``Cache.update`` and receive a tensor of
``query heads * value dim`` numbers a token, the first that receives anything else than before is the one behind the
attention (a query projection that runs this late receives the same).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, Outcome, check
from kvlint.runtime.expectations import Kind
from kvlint.runtime.inspection import Problem
from kvlint.runtime.probe import Runner, clone, updates_seen_by

_CANDIDATES = 4
"""Tensors looked at after an update; the attention's output is among the first two in every known model."""


@dataclass
class _Capture:
    """What modules received after the update of *layer*, each ``(rows, query heads, value dim)``, in order."""

    layer: int
    rows: int
    heads: int
    width: int
    armed: bool = False
    outputs: list[Any] = field(default_factory=list)

    def offer(self, arguments: tuple[Any, ...]) -> None:
        if not self.armed or len(self.outputs) >= _CANDIDATES:
            return
        tensor = next((one for one in arguments if hasattr(one, "shape")), None)
        if tensor is None or tensor.dim() < 2 or not tensor.is_floating_point():
            return
        # One token is fed, so batch-first and token-first layouts flatten to the same rows.
        if tensor.numel() == self.rows * self.heads * self.width and self.width in (
            tensor.shape[-1], tensor.shape[-1] // self.heads,
        ):  # fmt: skip
            self.outputs.append(tensor.detach().reshape(self.rows, self.heads, self.width).clone())


@contextmanager
def _capturing(runner: Runner, capture: _Capture) -> Iterator[None]:
    def arm(cache: Any, layer: int, keys: Any, values: Any, returned: Any) -> None:
        capture.armed = layer == capture.layer

    hooks = [
        module.register_forward_pre_hook(lambda module, arguments: capture.offer(arguments))
        for module in runner.model.modules()
    ]
    try:
        with updates_seen_by(arm):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _received(runner: Runner, cache: Any, ids: Any, layer: int, heads: int, width: int) -> list[Any]:
    capture = _Capture(layer, int(ids.shape[0]), heads, width)
    with _capturing(runner, capture):
        runner.advance(ids, cache)
    return capture.outputs


def _disturb(layer: Any, head: int, torch: Any) -> None:
    generator = torch.Generator().manual_seed(11)
    for name in ("keys", "values"):
        tensor = getattr(layer, name)
        noise = torch.randn(tensor[:, head].shape, generator=generator).to(tensor.dtype).to(tensor.device)
        changed = tensor.clone()
        changed[:, head] += noise * max(1.0, float(tensor.abs().max()))
        tensor.copy_(changed) if cache_layers.is_static(layer) else setattr(layer, name, changed)


def _changed_heads(plain: Any, moved: Any) -> set[int]:
    """Heads of two ``(rows, heads, dim)`` tensors that differ by more than rounding."""
    change = (moved - plain).abs().amax(dim=(0, 2))
    limit = 1e-4 * max(1.0, float(plain.abs().max()))
    return {head for head in range(int(plain.shape[1])) if float(change[head]) > limit}


@check("head-map", needs=("runs", "old-rows", "kv-heads", "head-dim", "copy"))
def head_map(evidence: Evidence) -> Outcome:
    """Query head h reads kv head h // (query heads / kv heads). With h % kv heads (also: keys tiled instead of
    interleaved) every shape is right, and it is wrong only where 1 < kv heads < query heads."""
    runner = evidence.runner
    if evidence.lossy or evidence.plan.offloads:
        return Outcome.not_applicable("keys are not held as plain tensors on the device")
    ids = runner.prompt(evidence.plan.prompt + 1)
    cache, _ = runner.fill(ids)
    step = runner.prompt(1, seed=5)
    problems: list[Problem] = []
    judged: list[int] = []
    reason = "no layer holds keys by head"
    for index, (layer, expected) in enumerate(zip(cache_layers.self_layers(cache), evidence.expected, strict=False)):
        keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
        if keys is None or values is None or expected.latent or expected.kind is Kind.OTHER:
            continue
        if expected.mixes_heads:
            reason = "differential attention mixes the heads before anything else sees them"
            continue
        queries, kv_heads = expected.query_heads, int(keys.shape[1])
        if not queries or queries % kv_heads:
            reason = "the configuration gives no number of query heads"
            continue
        width, head = int(values.shape[-1]), kv_heads - 1
        before = _received(runner, clone(cache), step, index, queries, width)
        disturbed = clone(cache)
        _disturb(cache_layers.self_layers(disturbed)[index], head, runner.torch)
        after = _received(runner, disturbed, step, index, queries, width)
        if not before or len(before) != len(after):
            reason = "no module receives the heads one by one after the attention"
            continue
        changed = next(filter(None, map(_changed_heads, before, after)), set())
        group = queries // kv_heads
        wanted = set(range(head * group, (head + 1) * group))
        judged.append(index)
        if changed != wanted:
            modulo = changed == {h for h in range(queries) if h % kv_heads == head}
            code = "KV601" if modulo else ""
            note = " (the map h % kv heads)" if modulo else ""
            problems.append(
                Problem(index, f"query heads {sorted(wanted)} to read kv head {head}", f"{sorted(changed)}{note}", code)
            )
    if not judged:
        return Outcome.not_applicable(reason)
    return Outcome.problems(problems, f"{len(judged)} layers, {queries} query heads on {kv_heads}")
