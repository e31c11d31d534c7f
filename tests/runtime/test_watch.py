"""``watch_cache``: silent on sound models through generate and hand-written loops, loud on broken ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache, StaticCache

from kvlint.runtime import CacheError, check_cache, watch_cache
from kvlint.runtime.models import Loaded, Source, load
from kvlint.runtime.result import Status
from kvlint.runtime.watch import CacheWarning
from tests.runtime import broken

IDS = torch.randint(5, 100, (2, 6), generator=torch.Generator().manual_seed(0))


def generate(loaded: Loaded, **options: Any) -> torch.Tensor:
    return loaded.model.generate(
        IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=6, min_new_tokens=6, do_sample=False,
        disable_compile=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3n_text", "jamba", "deepseek_v3"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_sound_models_are_watched_in_silence(family: str, cache: str | None) -> None:
    loaded = load(Source(family, random_weights=True))
    plain = generate(loaded)
    with watch_cache(loaded.model) as watch:
        watched = generate(loaded, **({"cache_implementation": cache} if cache else {}))
    assert watch.failures == ()
    assert [one.fed for one in watch.seen] == [6, 1, 1, 1, 1, 1]
    assert watch.seen[-1].tokens == 11
    assert torch.equal(plain, watched)


def test_beam_search_is_watched_in_silence() -> None:
    loaded = broken.small_llama()
    with watch_cache(loaded.model) as watch:
        generate(loaded, num_beams=3)
    assert len(watch.seen) == 6
    assert watch.failures == ()


def test_a_rolled_back_draft_is_no_failure() -> None:
    loaded = broken.small_llama()
    with watch_cache(loaded.model) as watch, torch.no_grad():
        cache = DynamicCache(config=loaded.config)
        loaded.model(IDS, cache=cache)
        loaded.model(IDS[:, :3], cache=cache)
        cache.crop(-2)
        loaded.model(IDS[:, :1], cache=cache)
    assert [one.tokens for one in watch.seen] == [6, 9, 8]
    assert watch.failures == ()


@pytest.mark.parametrize(
    ("mistake", "name", "code"),
    [
        ("tiled-before-update", "kv-heads", "KV602"),
        ("update-before-transpose", "kv-heads", "KV505"),
        ("upcast", "dtype-device", ""),
    ],
)
def test_broken_attention_raises_with_name_and_code(mistake: str, name: str, code: str) -> None:
    loaded = broken.with_mistake(mistake)
    with pytest.raises(CacheError) as caught, watch_cache(loaded.model), torch.no_grad():
        cache = None
        for _ in range(2):
            output = loaded.model(IDS[:, :1], use_cache=True, **({"cache": cache} if cache is not None else {}))
            cache = output.cache
    assert (name, code) in {(failure.name, failure.code) for failure in caught.value.failures}


def test_a_changed_row_is_seen_by_the_forward_that_changed_it() -> None:
    loaded = broken.small_llama()
    original = loaded.model.model.layers[1].self_attn.forward

    def forward(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        layer = options["cache"].layers[1]
        if layer.keys.shape[2] == 9:
            layer.values[0, 0, 7, 0] += 1.0
        return result

    loaded.model.model.layers[1].self_attn.forward = forward
    with watch_cache(loaded.model, action="record") as watch:
        generate(loaded)
    assert [(one.tokens, failure.name, failure.layers) for one in watch.seen for failure in one.failures] == [
        (9, "old-rows", (1,))
    ]


@pytest.mark.parametrize(
    ("mistake", "words"),
    [("appended", "cross-attention keys unchanged, found [2, 4, 5, 16] became [2, 4, 10, 16]"),
     ("values-weakened", "cross-attention values unchanged, found another last row")],
)  # fmt: skip
def test_cross_attention_that_changes_is_seen_by_the_forward_that_changed_it(mistake: str, words: str) -> None:
    model = broken.with_cross_attention(mistake).model
    ids = torch.randint(5, 90, (2, 5), generator=torch.Generator().manual_seed(0))
    with watch_cache(model, action="record") as watch, torch.no_grad():
        cache = model(ids, decoder_input_ids=ids[:, :1], use_cache=True).cache
        model(ids, decoder_input_ids=ids[:, 1:2], cache=cache)
    assert [(one.forward, [failure.name for failure in one.failures]) for one in watch.seen] == [
        (1, []), (2, ["cross-attention"]),
    ]  # fmt: skip
    assert words in watch.failures[0].message


def test_every_counts_forwards_and_warn_warns() -> None:
    loaded = broken.with_mistake("upcast")
    with watch_cache(loaded.model, every=3, action="record") as watch:
        generate(loaded)
    assert [one.forward for one in watch.seen] == [1, 4]
    with pytest.warns(CacheWarning, match="dtype-device"), watch_cache(loaded.model, action="warn"):
        generate(loaded)


def test_hooks_are_removed_and_arguments_are_checked() -> None:
    loaded = broken.small_llama()
    with watch_cache(loaded.model), torch.no_grad():
        assert loaded.model._forward_hooks
        loaded.model(IDS, use_cache=True)
    assert not loaded.model._forward_hooks
    assert not loaded.model._forward_pre_hooks
    with pytest.raises(ValueError, match="action is one of"), watch_cache(loaded.model, action="shout"):
        pass
    with pytest.raises(ValueError, match="1 or more"), watch_cache(loaded.model, every=0):
        pass


def test_check_cache_looks_at_a_cache_as_it_is() -> None:
    loaded = broken.small_llama()
    with torch.no_grad():
        cache = loaded.model(IDS, use_cache=True).cache
    sound = check_cache(cache, loaded.config, tokens=6, batch=2, dtype=torch.float32)
    assert {result.status for result in sound} == {Status.PASSED}
    wrong = check_cache(cache, loaded.config, tokens=7, batch=3, dtype=torch.bfloat16)
    assert {result.name for result in wrong if result.status is Status.FAILED} == {
        "batch", "stored-rows", "seq-length", "dtype-device",
    }  # fmt: skip


def test_check_cache_sees_a_cache_built_without_the_config_of_a_sliding_model() -> None:
    loaded = load(Source("mistral", random_weights=True))
    with torch.no_grad():
        cache = loaded.model(IDS, cache=DynamicCache()).cache
    failures = [result for result in check_cache(cache, loaded.config, tokens=6) if result.status is Status.FAILED]
    assert [(result.name, result.layers) for result in failures] == [("layer-kinds", (0, 1))]
    cache = StaticCache(config=loaded.config, max_cache_len=20)
    with torch.no_grad():
        loaded.model(IDS, cache=cache)
    assert not [result for result in check_cache(cache, loaded.config, tokens=6) if result.status is Status.FAILED]


def test_check_cache_refuses_what_is_no_cache() -> None:
    with pytest.raises(TypeError, match="keeps no list of layers"):
        check_cache(((torch.zeros(1), torch.zeros(1)),), broken.small_llama().config)
