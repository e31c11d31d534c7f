"""Attention modules and caches with one deliberate mistake each, put into a small random Llama.

``attention`` is a plain, correct attention; every mistake is one branch in it that names itself. The caches are
subclasses of ``DynamicCache`` with one wrong method.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
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


def with_cache(make: Callable[[Any], Any]) -> Loaded:
    """The small Llama that builds its cache with *make(config)* where none is passed."""
    loaded = small_llama()
    original = loaded.model.forward
    keyword = cache_keyword(loaded.model) or "cache"

    def forward(*arguments: Any, **options: Any) -> Any:
        if options.get("use_cache") and options.get(keyword) is None:
            options[keyword] = make(loaded.config)
        return original(*arguments, **options)

    forward.__signature__ = __import__("inspect").signature(original)  # type: ignore[attr-defined]
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
        cos, sin = position_embeddings
        if mistake == "rotary-off-by-one" and past:
            cos, sin = rotary(hidden_states, position_ids + 1)
        q = module.q_proj(hidden_states).view(rows, tokens, queries, dim).transpose(1, 2)
        k = module.k_proj(hidden_states).view(rows, tokens, kv_heads, dim).transpose(1, 2)
        v = module.v_proj(hidden_states).view(rows, tokens, kv_heads, dim).transpose(1, 2)
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        k, v = _remember(cache, k, v, past)
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
        if mistake == "upcast":
            k, v = cache.update(k.double(), v.double(), index)
            return k.float(), v.float()
        k, v = cache.update(k, v, index)
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
        return tensor.repeat_interleave(group, dim=1)

    def _mask(given: torch.Tensor | None, scores: torch.Tensor, past: int) -> torch.Tensor:
        tokens, width = scores.shape[-2:]
        causal = torch.ones(tokens, width, dtype=torch.bool).tril(width - tokens)
        if mistake == "open-mask-on-chunk" and past and tokens > 1:
            causal = torch.ones_like(causal)
            given = None
        if mistake == "padding-forgotten" and past:
            given = None
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
