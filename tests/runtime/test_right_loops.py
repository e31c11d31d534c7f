"""Decode loops that are right, written in every way that people write them: a watched one must raise nothing, and see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, QuantizedCache, StaticCache

from kvlint.runtime import watch_cache
from kvlint.runtime.models import Loaded, Source, load
from kvlint.runtime.watch import CacheWarning, Watch
from tests.runtime import broken

IDS = torch.randint(5, 100, (2, 6), generator=torch.Generator().manual_seed(0))
LOADED: dict[str, Loaded] = {}


def model_of(family: str, **options: Any) -> Any:
    """The small *family*, built once: every loop leaves it as it was."""
    name = f"{family} {options}"
    if name not in LOADED:
        LOADED[name] = load(Source(family, random_weights=True, **options))
    return LOADED[name].model


def steps(model: Any, call: Callable[[torch.Tensor, Any], Any], cache: Any = None, count: int = 3) -> None:
    """A loop over *call(ids, cache)*: the prompt, then single greedy tokens."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    ids = IDS
    with torch.no_grad():
        for _ in range(count):
            output = call(ids, cache)
            logits = output[0] if isinstance(output, tuple) else output.logits
            ids = logits[:, -1:].argmax(-1)


def generated(model: Any, ids: torch.Tensor = IDS, **options: Any) -> None:
    usual = {"do_sample": False, "max_new_tokens": 5, "min_new_tokens": 5, "disable_compile": True}
    model.generate(ids, attention_mask=torch.ones_like(ids), **{**usual, **options})


class Wrapper(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model

    def forward(self, *arguments: Any, **options: Any) -> Any:
        return self.inner(*arguments, **options)


class AutocastInside(Wrapper):
    def forward(self, *arguments: Any, **options: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(*arguments, **options)


class LearnedPrompt(torch.nn.Module):
    """Puts four learned vectors before the prompt."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner, self.config = model, model.config

    def forward(self, input_ids: Any, past_key_values: Any = None) -> Any:
        embeds = self.inner.get_input_embeddings()(input_ids)
        if past_key_values is None:
            embeds = torch.cat([torch.zeros(2, 4, embeds.shape[-1]), embeds], dim=1)
        return self.inner(
            inputs_embeds=embeds, use_cache=True, **({"cache": past_key_values} if past_key_values else {})
        )


def crop_past_the_window() -> Watch:
    model = model_of("mistral")
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    with watch_cache(model) as watch, torch.no_grad():
        model(IDS, cache=cache)
        for _ in range(4):
            model(IDS[:, :3], cache=cache)
            cache.crop(-2)
    return watch


def prompt_lookup(family: str) -> Watch:
    model = model_of(family)
    with watch_cache(model) as watch:
        row = torch.tensor([[7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8]])
        generated(model, row, prompt_lookup_num_tokens=3, max_new_tokens=12, min_new_tokens=12)
    return watch


def assisted() -> Watch:
    model, assistant = model_of("llama"), model_of("llama", seed=1)
    with watch_cache(model) as watch, watch_cache(assistant):
        generated(model, IDS[:1], assistant_model=assistant)
    return watch


def watched(model: Any, run: Callable[[Any], None], outer: Any = None) -> Watch:
    with watch_cache(model if outer is None else outer) as watch:
        run(model if outer is None else outer)
    return watch


def llama(run: Callable[[Any], None], **options: Any) -> Callable[[], Watch]:
    return lambda: watched(model_of("llama", **options), run)


def turns(model: Any) -> None:
    """A second turn fed onto the cache of the first, several tokens at once."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        for part in (IDS, IDS[:, :4], IDS[:, 4:]):
            model(part, cache=cache)


def prefix(model: Any) -> None:
    """One prefix, prefilled once and copied for each prompt."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(IDS, cache=cache)
        for start in (0, 2):
            model(IDS[:, start : start + 2], cache=copy.deepcopy(cache))


def rows_moved(model: Any) -> None:
    """Rows repeated, reordered and selected between forwards, as beam search does it by hand."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(IDS, cache=cache)
        cache.batch_repeat_interleave(2)
        model(IDS[:, :1].repeat_interleave(2, 0), cache=cache)
        cache.reorder_cache(torch.tensor([3, 2, 1, 0]))
        model(IDS[:, :1].repeat_interleave(2, 0), cache=cache)
        cache.batch_select_indices(torch.tensor([0]))
        model(IDS[:1, :1], cache=cache)


def static_twice(model: Any) -> None:
    cache = StaticCache(config=model.config, max_cache_len=16)
    for _ in range(2):
        steps(model, lambda ids, kept: model(ids, cache=kept), cache)
        cache.reset()


def left_padded(model: Any) -> None:
    mask = torch.ones_like(IDS)
    mask[1, :2] = 0
    model.generate(IDS, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)


def by_pairs(model: Any) -> None:
    """A cache made of pairs of tensors, filled elsewhere."""
    with torch.no_grad():
        first = model(IDS, use_cache=True).cache
        again = DynamicCache([(layer.keys, layer.values) for layer in first.layers])
        model(IDS[:, :1], cache=again)


def training(model: Any) -> None:
    model(IDS, labels=IDS, use_cache=False).loss.backward()
    model.zero_grad()


def another_object(model: Any) -> None:
    """The cache is rebuilt between two forwards."""
    cache = None
    with torch.no_grad():
        for ids in (IDS, IDS[:, :1], IDS[:, :1]):
            cache = model(ids, use_cache=True, **({} if cache is None else {"cache": copy.deepcopy(cache)})).cache


def by_hand_encoder_decoder() -> Watch:
    model = model_of("bart")
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    with watch_cache(model) as watch, torch.no_grad():
        for _ in range(3):
            model(input_ids=IDS, decoder_input_ids=IDS[:, :1], cache=cache)
    return watch


def in_autocast(model: Any) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        steps(model, lambda ids, cache: model(ids, cache=cache))


def float32_embeddings() -> Watch:
    loaded = load(Source("llama", random_weights=True, dtype="bfloat16"))
    embed = loaded.model.model.embed_tokens.float()
    own = embed.forward
    embed.forward = lambda ids: own(ids).bfloat16()
    return watched(loaded.model, lambda model: steps(model, lambda ids, cache: model(ids, cache=cache)))


def compiled() -> Watch:
    model = model_of("llama")
    outer = torch.compile(model, backend="eager")
    return watched(model, lambda m: steps(model, lambda ids, cache: m(ids, cache=cache), count=2), outer)


LOOPS: dict[str, Callable[[], Watch]] = {
    "cache": llama(lambda m: steps(m, lambda ids, c: m(ids, cache=c))),
    "past_key_values": llama(lambda m: steps(m, lambda ids, c: m(ids, past_key_values=c))),
    "positional": llama(lambda m: steps(m, lambda ids, c: m(ids, None, None, c))),
    "by name": llama(lambda m: steps(m, lambda ids, c: m(input_ids=ids, cache=c, use_cache=True))),
    "tuples": llama(lambda m: steps(m, lambda ids, c: m(ids, cache=c, return_dict=False))),
    "forward called directly": llama(lambda m: steps(m, lambda ids, c: m.forward(ids, cache=c))),
    "embeddings": llama(lambda m: steps(m, lambda ids, c: m(inputs_embeds=m.get_input_embeddings()(ids), cache=c))),
    "base model": lambda: watched(
        model_of("llama").model, lambda m: steps(m, lambda ids, c: (m(ids, cache=c).last_hidden_state,))
    ),
    "wrapper": lambda: watched(
        model_of("llama"), lambda m: steps(model_of("llama"), lambda ids, c: m(ids, past_key_values=c)),
        Wrapper(model_of("llama")),
    ),
    "wrapper, positional": lambda: watched(
        model_of("llama"), lambda m: steps(model_of("llama"), lambda ids, c: m(ids, None, None, c)),
        Wrapper(model_of("llama")),
    ),
    "autocast": llama(in_autocast),
    "autocast inside": lambda: watched(
        model_of("llama"), lambda m: steps(model_of("llama"), lambda ids, c: m(ids, cache=c)),
        AutocastInside(model_of("llama")),
    ),
    "float32 embeddings above bfloat16": float32_embeddings,
    "bfloat16": llama(lambda m: steps(m, lambda ids, c: m(ids, cache=c)), dtype="bfloat16"),
    "turns": llama(turns),
    "prefix": llama(prefix),
    "rows moved": llama(rows_moved),
    "static, reset": llama(static_twice),
    "four bits in eight": llama(
        lambda m: steps(m, lambda ids, c: m(ids, cache=c), QuantizedCache(backend="fp8", config=m.config))
    ),
    "padding": llama(left_padded),
    "pairs": llama(by_pairs),
    "another object": llama(another_object),
    "greedy": llama(generated),
    "sampling": llama(lambda m: generated(m, do_sample=True)),
    "beams": llama(lambda m: generated(m, num_beams=3, num_return_sequences=2)),
    "static generate": llama(lambda m: generated(m, cache_implementation="static")),
    "prefill in chunks": llama(lambda m: generated(m, prefill_chunk_size=4)),
    "given cache": llama(lambda m: generated(m, past_key_values=DynamicCache(config=m.config))),
    "guided": llama(lambda m: generated(m, guidance_scale=1.5)),
    "assisted": assisted,
    "prompt lookup": lambda: prompt_lookup("llama"),
    "prompt lookup past the window": lambda: prompt_lookup("mistral"),
    "prompt lookup, mixed windows": lambda: prompt_lookup("gemma2"),
    "crop past the window": crop_past_the_window,
    "window, cache without configuration": lambda: watched(
        model_of("mistral"), lambda m: steps(m, lambda ids, c: m(ids, cache=c), DynamicCache(), 6)
    ),
    "window, static": lambda: watched(model_of("mistral"), lambda m: generated(m, cache_implementation="static")),
    "shared layers": lambda: watched(model_of("gemma3n_text"), generated),
    "latent": lambda: watched(model_of("deepseek_v3"), generated),
    "states": lambda: watched(model_of("mamba2"), generated),
    "states and attention": lambda: watched(model_of("jamba"), generated),
    "encoder-decoder": by_hand_encoder_decoder,
    "encoder-decoder, beams": lambda: watched(model_of("t5"), lambda m: generated(m, num_beams=2)),
    "compiled": compiled,
}  # fmt: skip


def learned_prompt() -> Watch:
    outer, cache = LearnedPrompt(model_of("llama")), None
    with watch_cache(outer) as watch, torch.no_grad():
        for ids in (IDS, IDS[:, :1], IDS[:, :1]):
            cache = outer(ids, cache).cache
    return watch


LOOPS["learned prompt"] = learned_prompt


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", LOOPS)
def test_a_right_loop_is_watched_in_silence(name: str) -> None:
    watch = LOOPS[name]()
    assert watch.failures == ()
    assert watch.unseen == []
    assert watch.seen


def test_there_are_at_least_forty_loops() -> None:
    assert len(LOOPS) >= 40


def test_a_training_step_without_a_cache_is_no_blind_spot() -> None:
    watch = llama(training)()
    assert (watch.seen, watch.unseen) == ([], [])


def test_more_memory_than_needed_is_a_note() -> None:
    watch = LOOPS["window, cache without configuration"]()
    assert watch.notes == ["layer 0: DynamicLayer (full) where a windowed layer (sliding_attention) would do"]


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_a_watch_that_cannot_see_says_so() -> None:
    model = broken.with_legacy_tuples().model
    with pytest.warns(CacheWarning, match="the legacy format"), watch_cache(model) as watch, torch.no_grad():
        model(IDS, use_cache=True)
    assert [one.forward for one in watch.unseen] == [1]
    inner = model_of("llama")
    outer = torch.compile(inner, backend="eager")
    with pytest.warns(CacheWarning, match="watched"), watch_cache(inner), torch.no_grad():
        outer(IDS, use_cache=True)


def test_the_model_is_left_as_it_was() -> None:
    model = broken.small_llama().model
    before = dict(vars(model))
    with watch_cache(model):
        model(IDS)
        assert model.forward is not before.get("forward")
    assert vars(model) == before


def test_a_failing_forward_leaves_the_watch_working() -> None:
    model = broken.small_llama().model
    with watch_cache(model) as watch, torch.no_grad():
        with pytest.raises(ValueError, match="specify exactly one"):
            model(input_ids=None)
        model.forward(IDS, use_cache=True)
    assert [one.fed for one in watch.seen] == [6]
