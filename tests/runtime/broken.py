"""Attention modules and caches with one deliberate mistake each, put into a small random Llama.

``attention`` is a plain, correct attention; every mistake is one branch in it that names itself. The caches are
subclasses of ``DynamicCache`` with one wrong method.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, QuantizedLayer
from transformers.models.llama.modeling_llama import rotate_half

from kvlint.runtime.environment import cache_keyword
from kvlint.runtime.models import Loaded, Source, load

SOURCE = Source("llama", random_weights=True)


def small_llama() -> Loaded:
    """Two layers, four query heads on two kv heads of 32."""
    return load(SOURCE)


def with_mistake(mistake: str) -> Loaded:
    """The small Llama with its attention replaced by one that makes *mistake* ("" for none)."""
    loaded = small_llama()
    keyword = cache_keyword(loaded.model.model.layers[0].self_attn) or "cache"
    for layer in loaded.model.model.layers:
        layer.self_attn.forward = _forward(layer.self_attn, loaded.model.model.rotary_emb, mistake, keyword)
    return loaded


def with_cache(make: Callable[[Any], Any], family: str = "llama") -> Loaded:
    """The small *family* that builds its cache with *make(config)* where none is passed."""
    return _with_built(load(Source(family, random_weights=True)), make)


def _with_built(loaded: Loaded, make: Callable[[Any], Any]) -> Loaded:
    original = loaded.model.forward
    keyword = cache_keyword(loaded.model) or "cache"

    @functools.wraps(original)
    def forward(*arguments: Any, **options: Any) -> Any:
        if options.get("use_cache") and options.get(keyword) is None:
            options[keyword] = make(loaded.config)
        return original(*arguments, **options)

    loaded.model.forward = forward
    return loaded


def _rotated(tensor: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """*tensor* ``[batch, heads, tokens, dim]`` rotated by its positions."""
    return tensor * cos.unsqueeze(1) + rotate_half(tensor) * sin.unsqueeze(1)


def _forward(module: Any, rotary: Any, mistake: str, keyword: str) -> Callable[..., Any]:
    config = module.config
    queries, kv_heads = config.num_attention_heads, config.num_key_value_heads
    group, dim, index = queries // kv_heads, module.head_dim, module.layer_idx

    def attention(
        hidden_states: torch.Tensor,
        position_embeddings: Any = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        cache = options.get(keyword)
        rows, tokens = hidden_states.shape[:2]
        past = 0 if cache is None else int(cache.get_seq_length(index))
        if mistake == "cached-prompt-raises" and cache is not None and tokens > 1 and not past:
            raise RuntimeError("the cache has no room")
        cos, sin = position_embeddings
        if mistake == "rotary-off-by-one" and past:
            cos, sin = rotary(hidden_states, position_ids + 1)
        if mistake == "rotary-from-zero" and past:
            cos, sin = rotary(hidden_states, torch.arange(tokens)[None])
        if mistake == "rotary-of-the-first-in-a-chunk" and past:
            cos, sin = cos[:, :1], sin[:, :1]
        q = module.q_proj(hidden_states).view(rows, tokens, queries, dim).transpose(1, 2)
        k = module.k_proj(hidden_states).view(rows, tokens, kv_heads, dim).transpose(1, 2)
        v = module.v_proj(hidden_states).view(rows, tokens, kv_heads, dim).transpose(1, 2)
        q = _rotated(q, cos, sin)
        if mistake == "rotated-after-update":
            k, v = _remember(cache, k, v, past)
            k = _rotated(k, *rotary(hidden_states, torch.arange(k.shape[2])[None] + 3 * bool(past)))
        else:
            k, v = _remember(cache, _rotated(k, cos, sin), v, past)
        if mistake == "keys-of-another-row" and past:
            k = k.roll(1, dims=0)
        if mistake == "rows-mixed-above-two" and past and rows > 2:
            k = k[[1, 0, *range(2, rows)]]
        if mistake == "values-shifted-by-one" and past:
            v = v.roll(1, dims=2)
        if mistake == "sees-the-newest-only" and past:
            k, v = k[:, :, -tokens:], v[:, :, -tokens:]
            attention_mask = None
        if mistake != "tiled-before-update":
            k, v = _expanded(k), _expanded(v)
        scores = q @ k.transpose(-1, -2) / dim**0.5
        scores = scores + _mask(attention_mask, scores, past)
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, tokens, queries * dim)
        return module.o_proj(out), None

    def _remember(cache: Any, k: torch.Tensor, v: torch.Tensor, past: int) -> tuple[torch.Tensor, torch.Tensor]:
        if cache is None:
            return (_expanded(k), _expanded(v)) if mistake == "tiled-before-update" else (k, v)
        if mistake in ("concat-heads", "concat-head-dim"):
            return _concatenated(cache, k, v, 1 if mistake == "concat-heads" else -1)
        if mistake == "update-before-transpose":
            k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2), index)
            return k.transpose(1, 2), v.transpose(1, 2)
        if mistake == "tiled-before-update":
            k, v = _expanded(k), _expanded(v)
        if mistake in ("upcast", "downcast"):
            wide = torch.float64 if mistake == "upcast" else torch.bfloat16
            k, v = cache.update(k.to(wide), v.to(wide), index)
            return k.float(), v.float()
        if mistake == "rounded-through-half":
            return cache.update(k.half().float(), v.half().float(), index)  # type: ignore[no-any-return]
        if mistake == "update-twice":
            cache.update(k, v, index)
        if mistake == "prompt-not-stored" and k.shape[2] > 1:
            return k, v
        if mistake == "stored-in-the-first-layer":
            return cache.update(k, v, 0)  # type: ignore[no-any-return]
        if mistake == "keys-stored-as-values":
            return cache.update(k, k, index)  # type: ignore[no-any-return]
        if mistake == "cache-ignored":
            cache.update(k, v, index)
            return k, v
        if mistake == "transposed-heads":
            return cache.update(k.flip(1), v, index)  # type: ignore[no-any-return]
        k, v = cache.update(k, v, index)
        if mistake == "keeps-the-last-four":
            cache.layers[index].keys, cache.layers[index].values = k[:, :, -4:], v[:, :, -4:]
        if mistake == "rotates-the-past-again" and past:
            cache.layers[index].keys = torch.cat([-k[:, :, :past], k[:, :, past:]], dim=2)
        if mistake == "last-of-a-chunk-stored-twice" and past and k.shape[2] > past + 1:
            cache.layers[index].values = torch.cat([v[:, :, :-1], v[:, :, -2:-1]], dim=2)
        if mistake == "not-a-number" and past == 7:
            cache.layers[index].values[0, 0, -1, 0] = float("nan")
        if mistake == "corrupted-element" and index == 0 and past == 8:
            cache.layers[index].keys[0, 0, 0, 0] += 5.0
        return k, v

    def _concatenated(cache: Any, k: torch.Tensor, v: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
        while len(cache.layers) <= index:
            cache.layers.append(DynamicLayer())
        layer = cache.layers[index]
        if layer.keys is not None:
            k, v = torch.cat([layer.keys, k], dim=axis), torch.cat([layer.values, v], dim=axis)
        layer.keys, layer.values, layer.is_initialized = k, v, True
        return k, v

    def _expanded(tensor: torch.Tensor) -> torch.Tensor:
        if mistake == "interleaved-heads":
            return tensor.repeat(1, group, 1, 1)
        if mistake == "heads-reversed":
            return tensor.flip(1).repeat_interleave(group, dim=1)
        if mistake == "first-head-for-all":
            return tensor[:, :1].expand(-1, queries, -1, -1)
        return tensor.repeat_interleave(group, dim=1)

    def _mask(given: torch.Tensor | None, scores: torch.Tensor, past: int) -> torch.Tensor:
        tokens, width = scores.shape[-2:]
        causal = torch.ones(tokens, width, dtype=torch.bool).tril(width - tokens)
        if mistake == "open-mask-on-chunk" and past and tokens > 1:
            causal = torch.ones_like(causal)
            given = None
        if mistake == "padding-forgotten" and past:
            given = None
        if mistake == "no-causal-mask":
            return torch.zeros_like(scores)
        if mistake in ("sees-one-too-many", "misses-itself", "misses-the-first"):
            shift = {"sees-one-too-many": 1, "misses-itself": -1}.get(mistake, 0)
            causal, given = torch.ones_like(causal).tril(width - tokens + shift), None
            # Whoever would see nothing sees itself.
            causal |= (causal.sum(-1, keepdim=True) == 0) & torch.eye(tokens, width, dtype=torch.bool)
            if mistake == "misses-the-first" and width > 1:
                causal[1:, 0] = False
                causal[:1, 0] = past == 0
        if given is None:
            allowed = causal[None, None]
        else:
            allowed = given if given.dtype == torch.bool else given > -1.0
        return torch.zeros_like(scores).masked_fill(~allowed[..., :width], torch.finfo(scores.dtype).min)

    return attention


class CropForgotten(DynamicCache):
    """A rejected draft is never taken back."""

    def crop(self, *arguments: Any, **options: Any) -> None:
        return None


class CropOnHeads(DynamicCache):
    """A cut on axis 1: with ``n`` heads fewer instead of ``n`` tokens."""

    def crop(self, tokens: int) -> None:
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[:, :tokens], layer.values[:, :tokens]


class CropKeysOnly(DynamicCache):
    """Rolls back by overwriting with the rows of the wrong tokens: right length, wrong rows."""

    def crop(self, tokens: int) -> None:
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[..., -tokens:, :], layer.values[..., -tokens:, :]


class LengthFromHeads(DynamicCache):
    """Reads its length off the heads axis."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.layers[layer_idx].keys.shape[1]) if super().get_seq_length(layer_idx) else 0


class ResetZeroes(DynamicCache):
    """Zeroes its rows on reset and keeps the length (as transformers 4.54 to 5.17 did)."""

    def reset(self) -> None:
        for layer in self.layers:
            layer.keys.zero_()
            layer.values.zero_()


class CopiedByReference(DynamicCache):
    """``copy.deepcopy`` gives a new cache around the same layers."""

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.copy(self)


class ReorderKeysOnly(DynamicCache):
    """Moves the keys of a beam and leaves the values where they were."""

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        for layer in self.layers:
            layer.keys = layer.keys.index_select(0, beam_idx)


class RepeatedInBlocks(DynamicCache):
    """Repeats the batch as a whole (0, 1, 0, 1) instead of row by row (0, 0, 1, 1)."""

    def batch_repeat_interleave(self, repeats: int) -> None:
        for layer in self.layers:
            layer.keys, layer.values = layer.keys.repeat(repeats, 1, 1, 1), layer.values.repeat(repeats, 1, 1, 1)


class SelectsTheFirst(DynamicCache):
    """Keeps as many rows as asked for, but always the first ones."""

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[: len(indices)], layer.values[: len(indices)]


class HalfTheWindow(DynamicSlidingWindowLayer):
    """A windowed layer that drops rows too early."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        returned = super().update(key_states, value_states, *args, **kwargs)
        keep = max(1, self.sliding_window // 2)
        self.keys, self.values = self.keys[:, :, -keep:], self.values[:, :, -keep:]
        return returned


class OneRowTooMany(DynamicSlidingWindowLayer):
    """A windowed layer that keeps its whole window: the next token then sees one position more than the mask has."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        returned = super().update(key_states, value_states, *args, **kwargs)
        self.keys, self.values = returned[0][:, :, -self.sliding_window :], returned[1][:, :, -self.sliding_window :]
        return returned


class MaskTooWide(DynamicCache):
    """Announces one column more than it has rows."""

    def get_mask_sizes(self, *arguments: Any, **options: Any) -> Any:
        length, offset = super().get_mask_sizes(*arguments, **options)
        return length, offset + 1


class LengthOffByOne(DynamicCache):
    """Counts the next token already."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        length = super().get_seq_length(layer_idx)
        return length + 1 if length else 0


class CropOneTooFew(DynamicCache):
    """Takes back one token less than it was asked for."""

    def crop(self, tokens: int) -> None:
        super().crop(tokens + 1 if tokens < -1 else tokens)


class ReorderForgotten(DynamicCache):
    """Leaves every hypothesis of a beam search with the past of another."""

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        return None


class ReorderInverse(DynamicCache):
    """Moves row i to rows[i] instead of taking it from there: right for two beams that change places."""

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        super().reorder_cache(beam_idx.argsort())


class ReorderKeysOfTheDecoder(EncoderDecoderCache):
    """Moves the keys of the decoder's own past and nothing else."""

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        for layer in self.self_attention_cache.layers:
            layer.keys = layer.keys.index_select(0, beam_idx)


class ReorderOwnPastOnly(EncoderDecoderCache):
    """Leaves the rows of the encoder's output where they were."""

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)


class ResetOwnPastOnly(EncoderDecoderCache):
    """Goes on with the keys and values of the encoder's output of before."""

    def reset(self) -> None:
        self.self_attention_cache.reset()


class ResetForgotten(DynamicCache):
    """Is as full after reset as it was before."""

    def reset(self) -> None:
        return None


class FourBits(QuantizedLayer):
    """A right layer of four bits: groups along the head dim, each with a scale and a zero."""

    wrong = ""

    def __init__(self) -> None:
        super().__init__(q_group_size=16, residual_length=4)

    def _quantize(self, tensor: torch.Tensor, axis: int) -> Any:
        grouped = tensor.reshape(-1, self.q_group_size)
        low, high = grouped.amin(1, keepdim=True), grouped.amax(1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-8)
        return ((grouped - low) / scale).round().to(torch.uint8), scale, low, tensor.shape

    def _dequantize(self, quantized: Any) -> torch.Tensor:
        packed, scale, low, shape = quantized
        if self.wrong == "low-forgotten":
            low = torch.zeros_like(low)
        if self.wrong == "scale":
            scale, low = 2 * scale, 2 * low
        tensor = (packed * scale + low).reshape(shape)
        if self.wrong == "axis":
            batch, heads, rows, dim = tensor.shape
            return tensor.transpose(2, 3).reshape(batch, heads, rows, dim)
        return tensor


class FourBitsWrongAxis(FourBits):
    """Read back along another axis than it was packed along."""

    wrong = "axis"


class FourBitsTwiceAsLarge(FourBits):
    """Scaled back by twice the scale."""

    wrong = "scale"


class FourBitsWithoutZero(FourBits):
    """Scaled back, and not moved back to where the numbers were."""

    wrong = "low-forgotten"


def with_layers(make: Callable[[int], Any], family: str = "llama") -> Loaded:
    """The small *family* whose dynamic caches have layers made by *make(window)*."""

    def build(config: Any) -> Any:
        cache = DynamicCache(config=config)
        cache.layers = [make(getattr(layer, "sliding_window", 0)) for layer in cache.layers]
        return cache

    return with_cache(build, family)


def with_encoder_decoder_cache(cache: Callable[[Any, Any], Any]) -> Loaded:
    """The small BART whose own cache is a *cache* of two dynamic ones."""
    return with_cache(lambda config: cache(DynamicCache(config=config), DynamicCache(config=config)), "bart")


def with_legacy_tuples() -> Loaded:
    """The small Llama that hands back a tuple of pairs of tensors."""
    loaded = small_llama()
    original = loaded.model.forward
    keyword = cache_keyword(loaded.model) or "cache"

    @functools.wraps(original)
    def forward(*arguments: Any, **options: Any) -> Any:
        past = options.get(keyword)
        if isinstance(past, tuple):
            options[keyword] = DynamicCache(past)
        output = original(*arguments, **options)
        if output.get(keyword) is not None:
            output[keyword] = tuple((layer.keys, layer.values) for layer in output[keyword].layers)
        return output

    loaded.model.forward = forward
    return loaded


def with_cross_attention(mistake: str) -> Loaded:
    """A small BART whose cross-attention computes its keys and values (or one of them) anew, appends or weakens them in
    every step, or goes on with those of the first encoder output that it ever saw."""
    loaded = load(Source("bart", random_weights=True))
    first: dict[tuple[int, int], Any] = {}
    for layer in loaded.model.model.decoder.layers:
        attention = layer.encoder_attn

        def forward(*arguments: Any, original: Any = attention.forward, **options: Any) -> Any:
            cache = options.get("cache")
            index = layer_index[id(original.__self__)]
            if cache is not None and mistake == "computed-anew":
                cache.is_updated[index] = False
                cache.cross_attention_cache.layers[index].reset()
            if cache is not None and mistake == "appended":
                cache.is_updated[index] = False
            own, place = original.__self__, (index, int(options["key_value_states"].shape[0]))
            filled = cache is not None and cache.is_updated.get(index)
            if filled and mistake == "keys-computed-anew":
                states = options["key_value_states"]
                keys = own.k_proj(states).view(*states.shape[:2], -1, own.head_dim).transpose(1, 2)
                cache.cross_attention_cache.layers[index].keys = keys
            if filled and mistake == "values-weakened":
                cache.cross_attention_cache.layers[index].values = (
                    cache.cross_attention_cache.layers[index].values * 0.9
                )
            if cache is not None and not filled and mistake == "of-the-first-encoder" and place in first:
                cache.cross_attention_cache.update(*first[place], index)
                cache.is_updated[index] = True
            output = original(*arguments, **options)
            if cache is not None:
                layer = cache.cross_attention_cache.layers[index]
                first.setdefault(place, (layer.keys, layer.values))
            return output

        attention.forward = forward
    layer_index = {id(layer.encoder_attn): index for index, layer in enumerate(loaded.model.model.decoder.layers)}
    return loaded


def with_state_from_zero() -> Loaded:
    """A small Mamba2 whose recurrent state starts anew in every step."""

    class Forgetful(DynamicCache):
        def update_recurrent_state(
            self, recurrent_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
        ) -> Any:
            return super().update_recurrent_state(torch.zeros_like(recurrent_states), layer_idx, *args, **kwargs)

    return with_cache(lambda config: Forgetful(config=config), "mamba2")


def given_otherwise(change: Callable[[dict[str, Any]], None]) -> Loaded:
    """The small Llama whose forward begins with *change* to its keyword arguments."""
    loaded = small_llama()
    original = loaded.model.forward

    @functools.wraps(original)
    def forward(*arguments: Any, **options: Any) -> Any:
        change(options)
        return original(*arguments, **options)

    loaded.model.forward = forward
    return loaded


def positions_from_zero(options: dict[str, Any]) -> None:
    """Positions are counted from 0 wherever they are not told."""
    if options.get("position_ids") is None and options.get("input_ids") is not None:
        options["position_ids"] = torch.arange(options["input_ids"].shape[1])[None]


def turns_from_zero(options: dict[str, Any]) -> None:
    """Positions of several tokens at once are counted from 0 where they are not told."""
    if options["input_ids"].shape[1] > 1:
        positions_from_zero(options)


def mask_shifted(options: dict[str, Any]) -> None:
    """The mask begins one column late: the first padding is seen, the cached run and the uncached one agree."""
    mask = options.get("attention_mask")
    if mask is not None:
        options["attention_mask"] = torch.cat([mask[:, 1:], mask[:, -1:]], dim=1)


def caches_always(options: dict[str, Any]) -> None:
    """``use_cache=False`` is not heard."""
    options["use_cache"] = True


def one_behind(inputs: dict[str, Any], cache: Any) -> None:
    """Positions of a cached step are one too small."""
    positions = inputs.get("position_ids")
    if positions is not None and int(positions.min()) > 0:
        inputs["position_ids"] = positions - 1


def counted_by_the_cache(inputs: dict[str, Any], cache: Any) -> None:
    """Positions of a cached step count padding, too."""
    if cache is not None and cache.get_seq_length():
        inputs["position_ids"] = torch.full_like(inputs["position_ids"], cache.get_seq_length())


def with_wrong_generate(change: Callable[[dict[str, Any], Any], None]) -> Loaded:
    """The small Llama whose ``prepare_inputs_for_generation`` ends with *change*."""
    loaded = small_llama()
    original = loaded.model.prepare_inputs_for_generation

    @functools.wraps(original)
    def prepare(*arguments: Any, **options: Any) -> Any:
        inputs = original(*arguments, **options)
        change(inputs, inputs.get("cache"))
        return inputs

    loaded.model.prepare_inputs_for_generation = prepare
    return loaded


def handing_none_back() -> Loaded:
    """A forward that fills the cache that it is given and hands none back: generate goes on without its past."""
    loaded = with_cache(lambda config: DynamicCache(config=config))
    original = loaded.model.forward

    @functools.wraps(original)
    def forward(*arguments: Any, **options: Any) -> Any:
        given = options.get("cache") is not None
        output = original(*arguments, **options)
        if given:
            output["cache"] = None
        return output

    loaded.model.forward = forward
    return loaded
