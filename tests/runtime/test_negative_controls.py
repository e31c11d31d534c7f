"""Every deliberate mistake is caught by the checks that should catch it, and by no other."""

from __future__ import annotations

import pytest

from kvlint.runtime.result import Status, Verification
from kvlint.runtime.verify import verify_model
from tests.runtime import broken


def failed(result: Verification) -> dict[str, str]:
    return {check.name: check.code for check in result.failures}


MISTAKES = [
    # the axis of the concatenation
    ("concat-heads", {"append-axis": "KV501"}),
    ("concat-head-dim", {"append-axis": "KV502"}),
    ("update-before-transpose", {"update-layout": "KV505"}),
    # every shape is right, cached and uncached agree: only the perturbation sees it
    ("interleaved-heads", {"head-map": "KV601"}),
    ("tiled-before-update", {"kv-heads": "KV602"}),
    # shapes, rows, lengths and round trips are right: only the comparison with the uncached model sees it
    ("rotary-off-by-one", {"cached-steps": "", "cached-chunk": ""}),
    ("open-mask-on-chunk", {"cached-chunk": ""}),
    ("padding-forgotten", {"left-padding": ""}),
    # one number of one old row: the row comparison sees it directly, the logits of later tokens follow
    ("corrupted-element", {"old-rows": "", "cached-steps": "", "cached-chunk": ""}),
    ("upcast", {"dtype-device": ""}),
]


@pytest.mark.parametrize(("mistake", "expected"), MISTAKES, ids=[name for name, _ in MISTAKES])
def test_broken_attention_is_caught_by_the_right_checks_only(mistake: str, expected: dict[str, str]) -> None:
    assert failed(verify_model(broken.with_mistake(mistake))) == expected


CACHES = [
    (broken.CropForgotten, {"crop": "KV504"}),
    (broken.CropOnHeads, {"crop": "KV504"}),
    (broken.CropKeysOnly, {"crop": "KV504"}),
    (broken.LengthFromHeads, {"seq-length": "KV503"}),
    (broken.ResetZeroes, {"reset": ""}),
    (broken.CopiedByReference, {"copy": ""}),
    (broken.ReorderKeysOnly, {"reorder": ""}),
    (broken.RepeatedInBlocks, {"batch-repeat": ""}),
    (broken.SelectsTheFirst, {"batch-select": ""}),
]


@pytest.mark.parametrize(("cache", "expected"), CACHES, ids=[cache.__name__ for cache, _ in CACHES])
def test_broken_cache_is_caught_by_the_right_checks_only(cache: type, expected: dict[str, str]) -> None:
    assert failed(verify_model(broken.with_cache(lambda config: cache(config=config)))) == expected


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
