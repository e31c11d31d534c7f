"""Whether the model says the same with a cache as without one.

All comparisons are of logits in float32 against one uncached forward over the same tokens; the greedy token of every
position must be the same too, unless the uncached logits of the two candidates are closer than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvlint.runtime.checks.base import Evidence, Outcome, check
from kvlint.runtime.expectations import Kind, text_config
from kvlint.runtime.models import describe
from kvlint.runtime.probe import Step
from kvlint.runtime.result import Status

_BASE = ("runs", "finite")
_ALIKE = 0.9
"""Least correlation of logits with a quantized cache to those without one. Measured on 5.24 with random models: 0.98 and
more with 4 bits in groups of 16; a cache that is read along another axis gives less than 0.7."""

_BIDIRECTIONAL = ("use_bidirectional_attention", "bidirectional", "prefix_lm", "bi_data")
"""Fields by which configurations say that a token may see later ones."""


@check("causal", needs=_BASE)
def causal(evidence: Evidence) -> Outcome:
    """What a decoder says of a token must not change when later tokens change: keys and values of a cached token stay as
    they are, so a model that looks ahead cannot agree with its own cache."""
    recording = evidence.recording
    if recording.leak is None or recording.reference is None:
        return Outcome.not_applicable("no uncached forward to compare with")
    config = text_config(evidence.runner.config)
    told = next((name for name in _BIDIRECTIONAL if getattr(config, name, None)), "")
    if told or getattr(config, "is_causal", True) is False:
        return Outcome.not_applicable(f"the configuration asks for attention to later tokens ({told or 'is_causal'})")
    tolerance = evidence.tolerance(recording.reference)
    if recording.leak <= tolerance:
        return Outcome.passed(f"largest change {recording.leak:.1e}", recording.leak, tolerance)
    return Outcome.failed(
        f"logits of the prompt to stay within {tolerance:.1e} when later tokens change (a causal mask)",
        f"a change of {recording.leak:.1e}", "", (), recording.leak, tolerance,
    )  # fmt: skip


def _steps(evidence: Evidence, steps: list[Step], what: str) -> Outcome:
    recording = evidence.recording
    if recording.reference is None:
        return Outcome.not_applicable("no uncached forward to compare with")
    if not recording.consistent:
        return Outcome.not_applicable(
            f"the uncached model's answer for the prompt changes by {recording.inconsistency:.1e} when more tokens follow"
        )
    if not steps:
        return Outcome.not_applicable("no such step in this run")
    tolerance = evidence.tolerance(recording.reference)
    worst = Outcome.passed("", 0.0, tolerance)
    for step in steps:
        wanted = recording.reference[:, step.start : step.start + step.tokens]
        outcome = same_answer(evidence, step.logits, wanted, f"{what} ({step.name})")
        if outcome.status is Status.FAILED:
            return _located(evidence, step, outcome)
        if (outcome.deviation or 0.0) >= (worst.deviation or 0.0):
            worst = outcome
    return worst


def _located(evidence: Evidence, failed: Step, outcome: Outcome) -> Outcome:
    """*outcome* with the first layer whose output differs in the failed step: the run up to it is repeated once with
    the cache and once without, and what the layers hand on is compared."""
    runner, ids = evidence.runner, evidence.recording.ids
    cache = None
    for step in evidence.recording.steps:
        if step is failed:
            break
        _, cache = runner.advance(ids[:, step.start : step.start + step.tokens], cache or runner.new_cache())
    part = slice(failed.start, failed.start + failed.tokens)
    if cache is None:
        cache = runner.new_cache() or runner.built_cache()
    try:
        found, wanted = runner.hidden(ids[:, part], cache), runner.hidden(ids[:, : part.stop], None)
    except Exception:  # a help for the reader only; models need not be able to show their hidden states
        return outcome
    for index, (one, two) in enumerate(zip(found, wanted, strict=False)):
        if one.dim() != 3 or one.shape != two[:, part].shape:
            return outcome
        gap = float((one - two[:, part]).abs().max())
        if gap > evidence.tolerance(two):
            place = "in the first hidden state" if index == 0 else f"in the output of layer {index - 1}"
            text = f"{outcome.found}, first {place} ({gap:.1e})"
            return replace(outcome, found=text, layers=() if index == 0 else (index - 1,))
    return outcome


def same_answer(evidence: Evidence, found: Any, wanted: Any, what: str) -> Outcome:
    """Compares logits ``(rows, tokens, vocabulary)``, and the greedy token wherever the choice is clear."""
    if evidence.lossy:
        return Outcome.resembles(found, wanted, _ALIKE, what)
    tolerance = evidence.tolerance(wanted)
    outcome = Outcome.compared(found, wanted, tolerance, what)
    if outcome.status is Status.FAILED or wanted.shape[-1] < 2:  # one number a token: an end of speech, not a choice
        return outcome
    best = wanted.topk(2, dim=-1)
    clear = (best.values[..., 0] - best.values[..., 1]) > 2 * tolerance
    differ = (found.argmax(-1) != best.indices[..., 0]) & clear
    if bool(differ.any()):
        return Outcome.failed(f"{what}: the same greedy tokens", f"{int(differ.sum())} others")
    return outcome


@check("prefill", needs=(*_BASE, "causal"))
def prefill(evidence: Evidence) -> Outcome:
    """The prompt's logits must not depend on whether a cache is filled on the way."""
    return _steps(evidence, list(evidence.recording.steps[:1]), "logits of the prompt")


@check("cached-steps", needs=(*_BASE, "prefill", "quantized-rows"))
def cached_steps(evidence: Evidence) -> Outcome:
    """A token fed alone, with the cache, must get the logits it gets in a forward over everything. Where it does not,
    positions, mask or cached rows are wrong, and generated text is fluent and wrong."""
    single = [step for step in evidence.recording.steps if step.name.startswith("step")]
    return _steps(evidence, single, "logits with the cache as without")


@check("cached-chunk", needs=(*_BASE, "prefill", "quantized-rows"))
def cached_chunk(evidence: Evidence) -> Outcome:
    """Several tokens fed at once onto a filled cache (speculative decoding, chunked prefill, the next turn of a chat)
    must get the logits they get in a forward over everything: here the mask has to be right, too."""
    error = evidence.recording.chunk_error
    if error.startswith(("AssertionError", "NotImplementedError", "ValueError")):
        return Outcome.not_applicable(f"the model refuses several tokens at once: {error}")
    if error:
        return Outcome.failed("no exception", error)
    chunk = [step for step in evidence.recording.steps if step.name == "chunk"]
    return _steps(evidence, chunk, "logits of several tokens with the cache as without")


@check("after-chunk", needs=("cached-chunk",))
def after_chunk(evidence: Evidence) -> Outcome:
    """A token fed after several at once must find what they left behind: a state that was not carried to the last of them,
    or positions that count forwards instead of tokens, show only now."""
    recording, plan = evidence.recording, evidence.plan
    if recording.reference is None or not recording.consistent:
        return Outcome.not_applicable("no uncached forward to compare with")
    if recording.chunk_error:
        return Outcome.not_applicable("the model refuses several tokens at once")
    parts = (plan.prompt, plan.chunk, 1)
    found = _fed(evidence, parts)
    end = sum(parts)
    return same_answer(
        evidence, found, recording.reference[:, end - 1 : end], "logits of a token after several at once"
    )


def _fed(evidence: Evidence, parts: Sequence[int], **options: Any) -> Any:
    """Logits of the last of *parts*: the run's tokens fed onto a new cache, so many at a time."""
    runner, ids = evidence.runner, evidence.recording.ids
    cache, start, logits = runner.new_cache(), 0, None
    for tokens in parts:
        logits, cache = runner.advance(ids[:, start : start + tokens], cache, **options)
        start += tokens
    return logits


@check("left-padding", needs=("cached-steps",))
def left_padding(evidence: Evidence) -> Outcome:
    """With rows of different length padded on the left, cached steps must agree with an uncached forward under the
    same mask and positions (padded positions are not compared)."""
    return _padded(evidence, (1, 1, 1))


@check("left-padded-chunk", needs=("left-padding", "after-chunk"))
def left_padded_chunk(evidence: Evidence) -> Outcome:
    """Several tokens at once onto a left-padded, filled cache must agree with an uncached forward, too."""
    return _padded(evidence, (3,))


@check("padding-unseen", needs=("left-padding", "reach"))
def padding_unseen(evidence: Evidence) -> Outcome:
    """A row padded on the left must get the logits that it gets alone. A mask shifted by one, states that take the padding
    in, or keys rotated by their column and queries by their position are as wrong with the cache as without."""
    runner, plan = evidence.runner, evidence.plan
    reason = _unpaddable(evidence)
    if reason:
        return Outcome.not_applicable(reason)
    ids = runner.prompt(plan.prompt + 1, seed=2)
    mask = _padding(evidence, ids)
    found = runner.uncached(ids, mask)[-1:, plan.padding :]
    if runner.positions and not any(one.kind is Kind.OTHER for one in evidence.expected):
        wanted = runner.uncached(ids[-1:, plan.padding :])
        return same_answer(evidence, found, wanted, "logits of a padded row as of the row alone")
    # Where columns are positions, or blocks of them are compressed, a row alone is another row.
    others = runner.torch.where(mask.bool(), ids, runner.prompt(plan.prompt + 1, seed=10))
    wanted = runner.uncached(others, mask)[-1:, plan.padding :]
    return same_answer(evidence, found, wanted, "logits of a padded row as above other padding")


def _unpaddable(evidence: Evidence) -> str:
    """Why rows of this run cannot be padded on the left, or an empty string."""
    runner, plan = evidence.runner, evidence.plan
    if runner.loaded.encoder_decoder:
        return "decoders of encoder-decoder models are not padded on the left"
    if not runner.masked:
        return "forward takes no attention_mask"
    if not evidence.recording.consistent:
        return "the uncached model's answers change when more tokens follow"
    if plan.batch < 2 or plan.prompt <= plan.padding:
        return "needs two rows and a prompt longer than the padding"
    return ""


def _padding(evidence: Evidence, ids: Any) -> Any:
    """A mask for *ids* whose last row begins with padding."""
    mask = evidence.runner.torch.ones_like(ids)
    mask[-1, : evidence.plan.padding] = 0
    return mask


def _padded(evidence: Evidence, parts: tuple[int, ...]) -> Outcome:
    """Feeds a padded prompt, then *parts* tokens at a time, and compares with one uncached forward."""
    runner, plan = evidence.runner, evidence.plan
    reason = _unpaddable(evidence)
    if reason:
        return Outcome.not_applicable(reason)
    torch = runner.torch
    ids = runner.prompt(plan.prompt + sum(parts), seed=2)
    mask = _padding(evidence, ids)
    wanted = runner.uncached(ids, mask)
    first = plan.prompt
    logits, cache = runner.advance(ids[:, :first], runner.new_cache(), mask=mask[:, :first])
    found = [logits[:, plan.padding :]]
    for tokens in parts:
        logits, cache = runner.advance(ids[:, first : first + tokens], cache, mask=mask[:, : first + tokens])
        found.append(logits)
        first += tokens
    return same_answer(evidence, torch.cat(found, dim=1), wanted[:, plan.padding :], "logits of a padded batch")


@check("default-positions", needs=("cached-steps",))
def default_positions(evidence: Evidence) -> Outcome:
    """A loop that passes only the new ids and the cache must work: the model takes positions and mask from the cache.
    Where it does not, hand-written loops decode with wrong positions while ``generate``, which passes them, is right."""
    runner, recording = evidence.runner, evidence.recording
    if recording.reference is None or not recording.consistent:
        return Outcome.not_applicable("no uncached forward to compare with")
    if runner.loaded.encoder_decoder or not runner.positions:
        return Outcome.not_applicable("forward takes no position_ids")
    ids, split = recording.ids, evidence.plan.prompt
    _, cache = runner.advance(ids[:, :split], runner.new_cache(), explicit=False)
    logits, _ = runner.advance(ids[:, split : split + 1], cache, explicit=False)
    plain, _ = runner.forward(ids, None, use_cache=False, explicit=False)
    return same_answer(evidence, logits, plain[:, split : split + 1], "logits of a step without position_ids and mask")


@check("default-positions-chunk", needs=("default-positions", "after-chunk"))
def default_positions_chunk(evidence: Evidence) -> Outcome:
    """The same for several tokens at once (the next turn of a chat) and the token after them: without position_ids each token
    of the turn has a position of its own, counted on from the cache."""
    runner, recording, plan = evidence.runner, evidence.recording, evidence.plan
    if recording.reference is None or not recording.consistent or recording.chunk_error:
        return Outcome.not_applicable("no uncached forward to compare with")
    if runner.loaded.encoder_decoder or not runner.positions:
        return Outcome.not_applicable("forward takes no position_ids")
    plain, _ = runner.forward(recording.ids, None, use_cache=False, explicit=False)
    outcome = Outcome.passed()
    for parts in ((plan.prompt, plan.chunk), (plan.prompt, plan.chunk, 1)):
        found, end = _fed(evidence, parts, explicit=False), sum(parts)
        what = "logits without position_ids and mask of " + ("a token after several" if parts[-1] == 1 else "several")
        outcome = same_answer(evidence, found, plain[:, end - parts[-1] : end], what + " at once")
        if outcome.status is Status.FAILED:
            break
    return outcome


@check("full-mask", needs=("cached-steps",))
def full_mask(evidence: Evidence) -> Outcome:
    """A mask over everything seen so far may be passed with every step, as attention models need it. Models with
    states only must ignore it: multiplied onto a single token it feeds that token once for every column."""
    runner, recording = evidence.runner, evidence.recording
    if not runner.states_only or not runner.masked or recording.reference is None:
        return Outcome.not_applicable("the mask was passed with every step")
    ids, split = recording.ids, evidence.plan.prompt
    _, cache = runner.advance(ids[:, :split], runner.new_cache())
    for position in (split, split + 1):
        token, mask = ids[:, position : position + 1], ids.new_ones((ids.shape[0], position + 1))
        with runner.torch.no_grad():
            output = runner.model(input_ids=token, attention_mask=mask, use_cache=True, **{str(runner.keyword): cache})
    wanted = recording.reference[:, split + 1 : split + 2]
    return same_answer(evidence, output.logits.float(), wanted, "logits of a step with a mask over everything seen")


@check("generate", needs=("cached-steps", "cache-off"))
def generate(evidence: Evidence) -> Outcome:
    """``generate`` must choose the same greedy tokens with use_cache=True and use_cache=False."""
    ids = evidence.runner.prompt(evidence.plan.prompt, seed=3)
    return _generated(evidence, ids, evidence.runner.torch.ones_like(ids), "tokens of generate")


@check("padded-generate", needs=("generate", "left-padding"))
def padded_generate(evidence: Evidence) -> Outcome:
    """``generate`` on rows of different length must choose the same greedy tokens with and without a cache: the mask has to
    grow with every token, and positions come from the mask and not from the cache's length."""
    reason = _unpaddable(evidence)
    if reason:
        return Outcome.not_applicable(reason)
    ids = evidence.runner.prompt(evidence.plan.prompt, seed=2)
    return _generated(evidence, ids, _padding(evidence, ids), "tokens of generate for a padded batch")


def _generated(evidence: Evidence, ids: Any, mask: Any, what: str) -> Outcome:
    """Compares the greedy continuations of *ids* with and without a cache."""
    runner, plan = evidence.runner, evidence.plan
    if not hasattr(runner.model, "generate") or not callable(
        getattr(runner.model, "prepare_inputs_for_generation", None)
    ):
        return Outcome.not_applicable("the model has no generate")
    if runner.loaded.encoder_decoder and not runner.text_encoder:
        return Outcome.not_applicable("its encoder takes no ids")
    if evidence.lossy:
        return Outcome.not_applicable("a quantized cache is lossy: its tokens may be others")
    if not evidence.recording.consistent:
        return Outcome.not_applicable("the uncached model's answers change when more tokens follow")
    options: dict[str, Any] = {
        "do_sample": False, "num_beams": 1, "max_new_tokens": plan.steps, "min_new_tokens": plan.steps,
        "return_dict_in_generate": True, "output_logits": True, "attention_mask": mask,
        "disable_compile": True,
    }  # fmt: skip
    implementation = {"static": "static", "offloaded": "offloaded", "offloaded-static": "offloaded_static"}.get(
        plan.cache
    )
    cached_options: dict[str, Any] = {"cache_implementation": implementation} if implementation else {}
    if plan.make_cache is not None and runner.keyword:
        cached_options = {runner.keyword: runner.new_cache()}
    with runner.torch.no_grad():
        try:
            plain = runner.model.generate(ids, use_cache=False, **options)
        except Exception as error:  # whatever a family's own generate asks for beside ids: no matter of the cache
            if type(error).__name__ == "OutOfMemoryError":
                raise
            return Outcome.not_applicable(f"generate cannot be run on ids alone: {describe(error, 120)}")
        cached = runner.model.generate(ids, use_cache=True, **options, **cached_options)
    if cached.logits is None or plain.logits is None:
        return Outcome.not_applicable("generate returns no logits")
    found = runner.torch.stack([step.float() for step in cached.logits], dim=1)
    wanted = runner.torch.stack([step.float() for step in plain.logits], dim=1)
    length = min(found.shape[1], wanted.shape[1])
    # What was chosen, not what was likeliest: generate suppresses the end of the text before its time.
    chosen, likewise = cached.sequences[:, -found.shape[1] :], plain.sequences[:, -wanted.shape[1] :]
    tolerance = evidence.tolerance(wanted)
    for position in range(length):
        outcome = same_answer(evidence, found[:, position : position + 1], wanted[:, position : position + 1], what)
        if outcome.status is Status.FAILED:
            return outcome
        if bool((chosen[:, position] != likewise[:, position]).any()):
            return Outcome.passed(f"{position} tokens compared, then two candidates are nearly equal", None, tolerance)
    if found.shape != wanted.shape:
        return Outcome.failed(f"{wanted.shape[1]} new tokens", f"{found.shape[1]}")
    return Outcome.passed(f"{length} tokens", outcome.deviation, tolerance)
