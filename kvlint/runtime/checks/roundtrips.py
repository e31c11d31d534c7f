"""Whether the cache's own operations do what they say: crop, reset, reorder, repeat, select, copy.

Each check makes a cache of its own, so none disturbs another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, Outcome, check
from kvlint.runtime.probe import Runner, clone

_READY = ("runs", "old-rows")
_COPIED = (*_READY, "copy")


def _croppable(cache: Any) -> str:
    """Why *cache* cannot be cut back, or an empty string."""
    if not hasattr(cache, "crop"):
        return f"{type(cache).__name__} has no crop"
    for layer in cache_layers.self_layers(cache):
        if cache_layers.is_recurrent(layer) and not getattr(layer, "is_croppable", False):
            return "recurrent states cannot be cut back"
        if cache_layers.is_quantized(layer):
            return "quantized rows cannot be cut back"
        if not hasattr(layer, "crop"):
            return f"{type(layer).__name__} has no crop in this release"
        sliding = cache_layers.is_sliding(layer)
        if sliding and cache_layers.is_static(layer) and not getattr(layer, "is_croppable", False):
            return "static sliding layers lose what left the window"
        if sliding and not cache_layers.is_static(layer) and not hasattr(layer, "activate_past_recording"):
            return "sliding layers cannot be cut back in this release"
        if getattr(layer, "is_croppable", True) is False:
            return f"{type(layer).__name__} says it cannot be cut back"
    return ""


@check("crop", needs=_COPIED)
def crop(evidence: Evidence) -> Outcome:
    """After crop(-n) the cache must be as it was n tokens earlier: shorter by n, and the same tokens fed again get the
    same logits. A rejected draft that is not taken back stays in every later token's past."""
    runner, plan = evidence.runner, evidence.plan
    if evidence.recording.reference is None:
        return Outcome.not_applicable("the run did not finish")
    ids = evidence.recording.ids
    first = plan.prompt + 1
    held = cache_layers.self_layers(evidence.recording.cache)
    dropping = any(cache_layers.is_sliding(layer) or cache_layers.is_recurrent(layer) for layer in held)
    cache, _ = runner.fill(ids[:, :first], recording=dropping)
    reason = _croppable(cache)
    if reason:
        return Outcome.not_applicable(reason)
    # A model that refuses several tokens at once gets them one by one.
    width = 1 if evidence.recording.chunk_error else 3
    wanted, _ = _feed(runner, ids[:, first : first + 3], clone(cache), width)
    _, cache = _feed(runner, runner.prompt(2, seed=4), cache, width)
    try:
        cache.crop(-2)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if "not support" not in str(error) and "only defined" not in str(error):
            raise
        return Outcome.not_applicable(str(error))
    cache._kvlint_tokens = first
    for index, expected in enumerate(evidence.expected[: len(cache_layers.self_layers(cache))]):
        length = cache_layers.length_of(cache, index)
        if expected.kind.attends and length is not None and length != first:
            return Outcome.failed(f"length {first} after crop(-2)", str(length), "KV504", (index,))
    again, _ = _feed(runner, ids[:, first : first + 3], cache, width)
    return Outcome.compared(again, wanted, evidence.tolerance(wanted), "logits after crop(-2) as before", "KV504")


def _feed(runner: Runner, ids: Any, cache: Any, width: int) -> tuple[Any, Any]:
    """Feeds *ids* onto *cache*, *width* tokens at a time; logits of all of them and the cache."""
    parts = []
    for start in range(0, int(ids.shape[1]), width):
        logits, cache = runner.advance(ids[:, start : start + width], cache)
        parts.append(logits)
    return runner.torch.cat(parts, dim=1), cache


@check("reset", needs=_READY)
def reset(evidence: Evidence) -> Outcome:
    """After reset the cache must be as new: length 0, and the prompt gets the logits of an empty cache, also where the encoder's
    output is another one by then."""
    runner, plan = evidence.runner, evidence.plan
    ids = runner.prompt(plan.prompt)
    cache, wanted = runner.fill(ids)
    if not hasattr(cache, "reset"):
        return Outcome.not_applicable(f"{type(cache).__name__} has no reset in this release")
    cache.reset()
    cache._kvlint_tokens = 0
    lengths = [cache_layers.length_of(cache, index) for index in range(len(cache_layers.self_layers(cache)))]
    left = [index for index, length in enumerate(lengths) if length]
    if left:
        return Outcome.failed("length 0 after reset", str(lengths[left[0]]), layers=left)
    what = "logits after reset as on a new cache"
    if not runner.loaded.encoder_decoder:
        again, _ = runner.advance(ids, cache)
        return Outcome.compared(again, wanted, evidence.tolerance(wanted), what)
    with runner.another_encoding():
        wanted = runner.fill(ids)[1]
        again, _ = runner.advance(ids, cache)
    return Outcome.compared(again, wanted, evidence.tolerance(wanted), f"{what}, for another output of the encoder")


@check("reorder", needs=_COPIED)
def reorder(evidence: Evidence) -> Outcome:
    """reorder_cache(rows) must make row i of every layer the row rows[i] was: beam search continues each hypothesis from its
    own past, and often several from the same one."""
    runner, plan = evidence.runner, evidence.plan
    if plan.batch < 2:
        return Outcome.not_applicable("needs two rows")
    if runner.loaded.encoder_decoder:
        # The encoder's rows stay in place, so only equal encoder rows would make the logits comparable.
        return _reorder_rows(evidence)
    ids = runner.prompt(plan.prompt)
    cache, _ = runner.fill(ids)
    order = _beams(runner)
    step = runner.prompt(1, seed=5)
    wanted, _ = runner.advance(step, clone(cache))
    cache.reorder_cache(order)
    found, _ = runner.advance(step[order], cache)
    if evidence.lossy:  # groups span rows, so that moved rows are rounded anew
        return Outcome.resembles(found, wanted[order], 0.9, "logits of reordered rows")
    return Outcome.compared(found, wanted[order], evidence.tolerance(wanted), "logits of reordered rows")


def _beams(runner: Runner) -> Any:
    """Each row goes on from the next one, the last two from the last: an order that is not its own inverse."""
    rows = runner.plan.batch
    return (runner.torch.arange(rows, device=runner.device) + 1).clamp(max=rows - 1)


def _reorder_rows(evidence: Evidence) -> Outcome:
    runner, plan = evidence.runner, evidence.plan
    cache, _ = runner.fill(runner.prompt(plan.prompt))
    halves = (("self", cache_layers.snapshot), ("cross", cache_layers.cross_snapshot))
    before = {half: held(cache) for half, held in halves}
    order = _beams(runner)
    cache.reorder_cache(order)
    for half, held in halves:
        for index, (old, new) in enumerate(zip(before[half], held(cache), strict=True)):
            for name, rows, moved in (("keys", old.keys, new.keys), ("values", old.values, new.values)):
                if rows is not None and moved is not None and not bool((moved == rows[order]).all()):
                    return Outcome.failed(f"{half}-attention {name} in the new order", "another order", layers=(index,))
    return Outcome.passed("rows of every layer")


@check("batch-repeat", needs=_COPIED)
def batch_repeat(evidence: Evidence) -> Outcome:
    """batch_repeat_interleave(2) must double every row in place: row 0 twice, then row 1 twice. Both copies of a row are
    then fed tokens of their own, as beams are."""
    runner, plan = evidence.runner, evidence.plan
    reason = _resizable(evidence)
    if reason:
        return Outcome.not_applicable(reason)
    cache, _ = runner.fill(runner.prompt(plan.prompt))
    pair = (runner.prompt(1, seed=5), runner.prompt(1, seed=9))
    wanted = _interleaved(runner, [runner.advance(step, clone(cache))[0] for step in pair])
    cache.batch_repeat_interleave(2)
    found, _ = runner.advance(_interleaved(runner, pair), cache)
    return Outcome.compared(found, wanted, evidence.tolerance(wanted), "logits of repeated rows")


def _interleaved(runner: Runner, parts: Sequence[Any]) -> Any:
    """Row 0 of each of *parts*, then row 1 of each, and so on."""
    return runner.torch.stack(tuple(parts), dim=1).flatten(0, 1)


@check("batch-select", needs=_COPIED)
def batch_select(evidence: Evidence) -> Outcome:
    """batch_select_indices(rows) must keep those rows, in that order, in every layer."""
    runner, plan = evidence.runner, evidence.plan
    reason = _resizable(evidence)
    if reason:
        return Outcome.not_applicable(reason)
    cache, _ = runner.fill(runner.prompt(plan.prompt))
    step = runner.prompt(1, seed=5)
    wanted, _ = runner.advance(step, clone(cache))
    last = runner.torch.tensor([plan.batch - 1], device=step.device)
    cache.batch_select_indices(last)
    found, _ = runner.advance(step[last], cache)
    return Outcome.compared(found, wanted[last], evidence.tolerance(wanted), "logits of the selected row")


def _resizable(evidence: Evidence) -> str:
    if evidence.runner.loaded.encoder_decoder:
        return "the encoder's rows would have to be resized too"
    for layer in cache_layers.self_layers(evidence.recording.cache):
        if cache_layers.is_quantized(layer):
            return "quantized rows cannot be resized"
        if not hasattr(layer, "batch_repeat_interleave") or not hasattr(layer, "batch_select_indices"):
            return f"{type(layer).__name__} has no batch operations"
        if cache_layers.is_recurrent(layer):
            return "the batch operations cover keys and values only, not states"
    return ""


@check("copy", needs=_READY)
def copy_independent(evidence: Evidence) -> Outcome:
    """A deep copy must be independent: a step on the copy leaves the original bit for bit as it was, and a step on the
    original afterwards gets the same logits (a shared prefix is prefilled once and copied for every prompt)."""
    runner, plan = evidence.runner, evidence.plan
    cache, _ = runner.fill(runner.prompt(plan.prompt))
    before = cache_layers.snapshot(cache)
    if plan.offloads:
        return Outcome.not_applicable("an offloaded cache holds a stream, which copy.deepcopy refuses")
    copied = clone(cache)
    step = runner.prompt(1, seed=5)
    wanted, _ = runner.advance(step, copied)
    after = cache_layers.snapshot(cache)
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        for first, second in ((old.keys, new.keys), (old.values, new.values), *_paired(old.states, new.states)):
            if first is not None and (first.shape != second.shape or not bool((first == second).all())):
                return Outcome.failed("the original unchanged", "changed by a step on its copy", layers=(index,))
    found, _ = runner.advance(step, cache)
    return Outcome.compared(found, wanted, evidence.tolerance(wanted), "logits of original and copy")


def _paired(old: tuple[tuple[str, Any], ...], new: tuple[tuple[str, Any], ...]) -> list[tuple[Any, Any]]:
    later = dict(new)
    return [(tensor, later[name]) for name, tensor in old if name in later]
