"""Every deliberate mistake is caught by the checks that should catch it, and by no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvlint.runtime.models import Loaded
from kvlint.runtime.result import Status, Verification
from kvlint.runtime.verify import verify_model
from tests.runtime import broken


def failed(result: Verification) -> dict[str, str]:
    return {check.name: check.code for check in result.failures}


_STEPS = {"cached-steps": "", "cached-chunk": ""}

MISTAKES = [
    # the axis of the concatenation
    ("concat-heads", {"append-axis": "KV501"}, "axis 1 grew"),
    ("concat-head-dim", {"append-axis": "KV502"}, "axis 3 grew"),
    ("update-before-transpose", {"update-layout": "KV505"}, "expected [2, 2, 1, 32], found [2, 1, 2, 32]"),
    # every shape is right, cached and uncached agree: only a perturbation sees it
    ("interleaved-heads", {"head-map": "KV601"}, "query heads [2, 3] to read kv head 1, found [1, 3]"),
    ("heads-reversed", {"head-map": ""}, "query heads [2, 3] to read kv head 1, found [0, 1]"),
    ("first-head-for-all", {"head-map": ""}, "query heads [2, 3] to read kv head 1, found []"),
    ("misses-itself", {"reach": ""}, "token 10 to see positions 0 to 10, found 0 to 9"),
    ("misses-the-first", {"reach": ""}, "token 10 to see positions 0 to 10, found 1 to 10"),
    ("no-causal-mask", {"causal": ""}, "a causal mask"),
    ("sees-one-too-many", {"causal": ""}, "a causal mask"),
    # heads, rows and lengths
    ("tiled-before-update", {"kv-heads": "KV602"}, "expected 2 kv heads, found 4 on axis 1"),
    ("update-twice", {"seq-length": "KV503"}, "found 12"),
    ("prompt-not-stored", {"seq-length": "KV503"}, "found 0"),
    ("stored-in-the-first-layer", {"seq-length": "KV503"}, "found 12"),
    ("keeps-the-last-four", {"seq-length": "KV503"}, "found 4"),
    ("upcast", {"dtype-device": ""}, "keys in torch.float32, found torch.float64"),
    ("downcast", {"dtype-device": "", "prefill": ""}, "keys in torch.float32, found torch.bfloat16"),
    ("not-a-number", {"finite": ""}, "NaN"),
    # shapes, rows, lengths and round trips are right: only the comparison with the uncached model sees it
    ("rounded-through-half", {"prefill": ""}, "first in the output of layer 0"),
    ("keys-stored-as-values", {"prefill": ""}, "first in the output of layer 0"),
    ("transposed-heads", {"prefill": ""}, "first in the output of layer 0"),
    ("rotary-off-by-one", _STEPS, "(step 1)"),
    ("rotary-from-zero", _STEPS, "first in the output of layer 0"),
    ("rotary-of-the-first-in-a-chunk", {"cached-chunk": ""}, "(chunk)"),
    ("rotated-after-update", _STEPS, "(step 1)"),
    ("values-shifted-by-one", _STEPS, "first in the output of layer 0"),
    (
        "keys-of-another-row",
        {**_STEPS, "batch-repeat": "", "batch-select": "", "reorder": ""},
        "first in the output of layer 0",
    ),
    ("cache-ignored", {**_STEPS, "head-map": ""}, "first in the output of layer 0"),
    ("sees-the-newest-only", {**_STEPS, "head-map": ""}, "first in the output of layer 0"),
    ("open-mask-on-chunk", {"cached-chunk": ""}, "first in the output of layer 0"),
    ("padding-forgotten", {"left-padding": ""}, "padded batch"),
    ("last-of-a-chunk-stored-twice", {"after-chunk": ""}, "a token after several at once"),
    ("rows-mixed-above-two", {"batch-repeat": ""}, "logits of repeated rows"),
    # old rows: the comparison of rows sees it directly, the logits of later tokens follow
    ("corrupted-element", {"old-rows": "", **_STEPS}, "layer 0: expected old keys unchanged, found 1 numbers"),
    ("rotates-the-past-again", {"old-rows": "", **_STEPS}, "layer 0, 1: expected old keys unchanged"),
    ("cached-prompt-raises", {"runs": ""}, "the cache has no room"),
]


@pytest.mark.parametrize(("mistake", "expected", "words"), MISTAKES, ids=[name for name, _, _ in MISTAKES])
def test_broken_attention_is_caught_by_the_right_checks_only(
    mistake: str, expected: dict[str, str], words: str
) -> None:
    result = verify_model(broken.with_mistake(mistake))
    assert failed(result) == expected
    assert words in " | ".join(check.message for check in result.failures)


CACHES = [
    (broken.CropForgotten, {"crop": "KV504"}),
    (broken.CropOnHeads, {"crop": "KV504"}),
    (broken.CropKeysOnly, {"crop": "KV504"}),
    (broken.CropOneTooFew, {"crop": "KV504"}),
    (broken.LengthFromHeads, {"seq-length": "KV503"}),
    (broken.LengthOffByOne, {"seq-length": "KV503"}),
    (broken.MaskTooWide, {"mask-sizes": "", "prefill": ""}),
    (broken.ResetZeroes, {"reset": ""}),
    (broken.ResetForgotten, {"reset": ""}),
    (broken.CopiedByReference, {"copy": ""}),
    (broken.ReorderKeysOnly, {"reorder": ""}),
    (broken.ReorderForgotten, {"reorder": ""}),
    (broken.ReorderInverse, {"reorder": ""}),
    (broken.RepeatedInBlocks, {"batch-repeat": ""}),
    (broken.SelectsTheFirst, {"batch-select": ""}),
]


@pytest.mark.parametrize(("cache", "expected"), CACHES, ids=[cache.__name__ for cache, _ in CACHES])
def test_broken_cache_is_caught_by_the_right_checks_only(cache: type, expected: dict[str, str]) -> None:
    assert failed(verify_model(broken.with_cache(lambda config: cache(config=config)))) == expected


OTHERS: list[tuple[str, Callable[[], Loaded], dict[str, str], str]] = [
    ("four bits read along another axis", lambda: broken.with_layers(lambda _: broken.FourBitsWrongAxis()),
     {"quantized-rows": ""}, "keys read back as they were written"),
    ("four bits without their zero", lambda: broken.with_layers(lambda _: broken.FourBitsWithoutZero()),
     {"quantized-rows": ""}, "keys read back as they were written"),
    ("four bits twice as large", lambda: broken.with_layers(lambda _: broken.FourBitsTwiceAsLarge()),
     {"quantized-rows": ""}, "layer 0, 1"),
    ("half the window", lambda: broken.with_layers(broken.HalfTheWindow, "mistral"),
     {"stored-rows": "KV503"}, "6 rows after 6 tokens, found 4 on axis 2"),
    ("a row more than the window", lambda: broken.with_layers(broken.OneRowTooMany, "mistral"),
     {"stored-rows": "KV503"}, "7 rows after 8 tokens, found 8 on axis 2"),
    ("legacy tuples", broken.with_legacy_tuples, {"cache-class": "KV301"}, "a tuple of 2 tuples of tensors"),
    ("cross-attention computed anew", lambda: broken.with_cross_attention("computed-anew"),
     {"cross-attention": ""}, "computed anew in every step"),
    ("cross-attention appended", lambda: broken.with_cross_attention("appended"),
     {"cross-attention": ""}, "[2, 4, 5, 16] became [2, 4, 10, 16]"),
    ("a state that starts from zero", broken.with_state_from_zero, {"cached-steps": "", "cached-chunk": ""}, "(step 1)"),
    ("cross-attention keys computed anew", lambda: broken.with_cross_attention("keys-computed-anew"),
     {"cross-attention": ""}, "to read the cached keys of the encoder's output"),
    ("cross-attention values weakened", lambda: broken.with_cross_attention("values-weakened"),
     {"cross-attention": "", "cached-steps": "", "cached-chunk": "", "crop": "KV504"}, "values unchanged, found changed in step 1"),
    ("cross-attention of the first encoder output", lambda: broken.with_cross_attention("of-the-first-encoder"),
     {"cross-attention": "", "generate": ""}, "the same: keys and values of the one before"),
    ("decoder's keys reordered", lambda: broken.with_encoder_decoder_cache(broken.ReorderKeysOfTheDecoder),
     {"reorder": ""}, "self-attention values in the new order"),
    ("decoder's past reordered", lambda: broken.with_encoder_decoder_cache(broken.ReorderOwnPastOnly),
     {"reorder": ""}, "cross-attention keys in the new order"),
    ("decoder's past reset", lambda: broken.with_encoder_decoder_cache(broken.ResetOwnPastOnly),
     {"reset": ""}, "for another output of the encoder"),
    ("positions from zero", lambda: broken.given_otherwise(broken.positions_from_zero),
     {"default-positions": ""}, "without position_ids"),
    ("positions of a turn from zero", lambda: broken.given_otherwise(broken.turns_from_zero),
     {"default-positions-chunk": ""}, "without position_ids and mask of several at once"),
    ("a mask shifted by one", lambda: broken.given_otherwise(broken.mask_shifted),
     {"padding-unseen": ""}, "a padded row as of the row alone"),
    ("a cache that was not asked for", lambda: broken.given_otherwise(broken.caches_always),
     {"cache-off": ""}, "expected no cache with use_cache=False, found a filled DynamicCache"),
    ("no cache handed back", broken.handing_none_back, {"generate": ""}, "tokens of generate"),
    ("generate one position behind", lambda: broken.with_wrong_generate(broken.one_behind),
     {"generate": ""}, "tokens of generate"),
    ("generate counts padding", lambda: broken.with_wrong_generate(broken.counted_by_the_cache),
     {"padded-generate": ""}, "tokens of generate for a padded batch"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "expected", "words"), OTHERS, ids=[name for name, *_ in OTHERS])
def test_other_mistakes_are_caught_by_the_right_checks_only(
    name: str, make: Callable[[], Loaded], expected: dict[str, str], words: str
) -> None:
    result = verify_model(make())
    assert failed(result) == expected
    assert words in result.failures[0].message


def test_there_are_at_least_forty_negative_controls() -> None:
    assert len(MISTAKES) + len(CACHES) + len(OTHERS) >= 40


def test_the_same_attention_without_a_mistake_passes_everything() -> None:
    result = verify_model(broken.with_mistake(""))
    assert failed(result) == {}
    assert {check.name for check in result.checks if check.status is Status.PASSED} >= {
        "append-axis", "old-rows", "cached-steps", "cached-chunk", "left-padding", "head-map", "crop", "copy", "bytes",
    }  # fmt: skip


def test_the_same_cache_without_a_mistake_passes_everything() -> None:
    from transformers import DynamicCache

    assert failed(verify_model(broken.with_cache(lambda config: DynamicCache(config=config)))) == {}


def test_checks_that_build_on_a_failed_one_are_skipped_with_its_name() -> None:
    result = verify_model(broken.with_mistake("concat-heads"))
    skipped = {check.name: check.found for check in result.checks if check.status is Status.SKIPPED}
    assert skipped["kv-heads"] == "builds on append-axis"
    assert "cached-steps" in skipped
