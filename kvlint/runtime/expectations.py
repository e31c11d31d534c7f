"""What a configuration says about the cache: per layer its kind, kv heads, head dims and window.

Read from the configuration alone, never from the cache or the library's own dispatch, so that the two can be
compared. Every dimension may be unknown (None): configurations of rare families say it in words of their own, and
an unknown dimension is not checked rather than guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(str, Enum):
    """What a layer keeps between steps."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    INDEXED = "indexed"
    LINEAR = "linear"
    HYBRID = "hybrid"
    HYBRID_SLIDING = "hybrid-sliding"
    SHARED = "shared"
    OTHER = "other"

    @property
    def attends(self) -> bool:
        """True where the layer keeps keys and values."""
        return self not in (Kind.LINEAR, Kind.SHARED)

    @property
    def windowed(self) -> bool:
        """True where the layer keeps no more than its window."""
        return self in (Kind.SLIDING, Kind.CHUNKED, Kind.HYBRID_SLIDING)

    @property
    def recurrent(self) -> bool:
        """True where the layer keeps convolution or recurrent states."""
        return self in (Kind.LINEAR, Kind.HYBRID, Kind.HYBRID_SLIDING)


_KINDS = {
    "full_attention": Kind.FULL,
    "attention": Kind.FULL,
    "global": Kind.FULL,
    "sliding_attention": Kind.SLIDING,
    "chunked_attention": Kind.CHUNKED,
    "indexed_attention": Kind.INDEXED,
    "linear_attention": Kind.LINEAR,
    "mamba": Kind.LINEAR,
    "conv": Kind.LINEAR,
    "hybrid": Kind.HYBRID,
    "hybrid_sliding": Kind.HYBRID_SLIDING,
    "dummy": Kind.SHARED,
    "moe": Kind.SHARED,
    "mlp": Kind.SHARED,
}
"""The layer types of transformers (``DYNAMIC_LAYER_TYPE_MAPPING``, 5.24) and their older spellings."""


_WINDOWED_KV_FACTOR = {"mimo_v2_flash": 2}
"""Families whose windowed layers have more kv heads than the configuration says, by a factor written in the model
code only (modeling_mimo_v2_flash.py, 5.24.0: ``num_key_value_heads * 2 if is_swa``)."""


@dataclass(frozen=True, slots=True)
class LayerExpectation:
    """What the configuration says of one layer's cache.

    Keys are ``(batch, kv_heads, length, key_dim)``, values ``(batch, kv_heads, length, value_dim)``. *window* is in
    tokens. *latent* marks MLA: one shared "head" of width *key_dim* and one of *value_dim*, expanded on use to *expanded*
    numbers a query head (its key and its value).
    *mixes_heads* marks attention whose outputs are no longer one head each (differential attention).
    """

    kind: Kind
    query_heads: int | None = None
    kv_heads: int | None = None
    key_dim: int | None = None
    value_dim: int | None = None
    window: int | None = None
    latent: bool = False
    label: str = ""
    mixes_heads: bool = False
    expanded: int | None = None

    def mha_elements(self, tokens: int) -> int:
        """Elements a row would take if keys and values were stored per query head (the widely copied formula)."""
        if not self.kind.attends or not self.query_heads or not self.key_dim or not self.value_dim:
            return 0
        return tokens * self.query_heads * (self.expanded or self.key_dim + self.value_dim)


def text_config(config: Any) -> Any:
    """The configuration of the text decoder: *config* itself, or the nested one of a composite model."""
    getter = getattr(config, "get_text_config", None)
    return getter(decoder=True) if getter is not None else config


def expectations(config: Any, latent_cache: bool = True) -> tuple[LayerExpectation, ...]:
    """What *config* (a configuration object, composite ones included) says, one entry a layer.

    *latent_cache* is whether MLA models keep the latent (from transformers 5.15) or expanded heads (before).
    """
    text = text_config(config)
    count = int(getattr(text, "num_hidden_layers", 0) or getattr(text, "n_layer", 0) or 0)
    per_layer = _per_layer_configs(text, count)
    types = _layer_types(text, per_layer)
    return tuple(
        _layer(name, layer, index, latent_cache)
        for index, (name, layer) in enumerate(zip(types, per_layer, strict=False))
    )


def expected_for(config: Any, count: int) -> tuple[LayerExpectation, ...]:
    """As ``expectations``, for a cache of *count* layers: layers that the configuration does not list are of the kind
    OTHER, labelled "looped" where the model runs layers several times (each pass has its own cache), else "unlisted".
    """
    from kvlint.runtime.inspection import latent_cache

    known = expectations(config, latent_cache())
    loops = any("loop" in name for name in vars(text_config(config)))
    extra = LayerExpectation(Kind.OTHER, label="looped" if loops else "unlisted")
    return known + (extra,) * max(0, count - len(known))


def _per_layer_configs(text: Any, count: int) -> Sequence[Any]:
    """One configuration a layer: 5.22 and newer resolve heterogeneous ones themselves."""
    resolved = getattr(text, "per_layer_config", None)
    if isinstance(resolved, Sequence) and len(resolved) == count:
        return list(resolved)
    return [text] * count


def _layer_types(text: Any, per_layer: Sequence[Any]) -> list[str]:
    types = getattr(text, "layer_types", None)
    if types is None:
        types = []
        for layer in per_layer:
            if getattr(layer, "sliding_window", None) is not None and getattr(layer, "use_sliding_window", True):
                types.append("sliding_attention")
            elif getattr(layer, "attention_chunk_size", None) is not None:
                types.append("chunked_attention")
            else:
                types.append("full_attention")
    types = list(types)
    modes = getattr(text, "kv_sharing_modes", None)
    if modes is not None:
        types = ["dummy" if mode == "reuse" else name for name, mode in zip(types, modes, strict=False)]
    return types


def _layer(name: str, config: Any, index: int, latent_cache: bool) -> LayerExpectation:
    kind = _KINDS.get(name, Kind.OTHER)
    window: int | None = None
    if kind in (Kind.SLIDING, Kind.HYBRID_SLIDING):
        window = _integer(config, index, "sliding_window")
    elif kind is Kind.CHUNKED:
        window = _integer(config, index, "attention_chunk_size")
    if not kind.attends:
        return LayerExpectation(kind, label=name)
    # Windowed layers may have heads of their own under names with a prefix (MiMo, Inkling).
    own = ("swa_num_attention_heads", "swa_head_dim", "swa_v_head_dim", "swa_num_key_value_heads") if window else ()
    queries = _integer(
        config,
        index,
        *own[:1],
        "num_attention_heads_per_layer",
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
    )
    width = _integer(config, index, "hidden_size", "n_embd", "d_model")
    if latent_cache and _integer(config, index, "kv_lora_rank"):
        rank, rope = _integer(config, index, "kv_lora_rank"), _integer(config, index, "qk_rope_head_dim")
        parts = [_integer(config, index, part) for part in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
        whole = sum(part for part in parts if part is not None) if None not in parts else None
        return LayerExpectation(kind, queries, 1, rank, rope, window, True, name, expanded=whole)
    head_dim = _integer(config, index, *own[1:2], "head_dim", "kv_channels", "d_kv", "attention_head_dim", "dim_head")
    if head_dim is None and width and queries:
        head_dim = width // queries
    kv_heads = _integer(config, index, *own[3:]) or _kv_heads(config, index, queries)
    if kv_heads is not None and window:
        kv_heads *= _WINDOWED_KV_FACTOR.get(str(getattr(config, "model_type", "")), 1)
    key_dim, value_dim = head_dim, head_dim
    if _integer(config, index, "kv_lora_rank"):
        nope, rope = _integer(config, index, "qk_nope_head_dim"), _integer(config, index, "qk_rope_head_dim")
        key_dim = nope + rope if nope and rope else None
        value_dim, kv_heads = _integer(config, index, "v_head_dim"), queries
    elif _integer(config, index, *own[2:3], "v_head_dim"):
        value_dim = _integer(config, index, *own[2:3], "v_head_dim")
    differential = hasattr(config, "lambda_std_dev")
    return LayerExpectation(kind, queries, kv_heads, key_dim, value_dim, window, False, name, differential)


def _kv_heads(config: Any, index: int, queries: int | None) -> int | None:
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1  # falcon and gpt_bigcode: their num_kv_heads counts only under the newer layout
    if hasattr(config, "new_decoder_architecture") and not config.new_decoder_architecture:
        return queries
    own = _integer(config, index, "num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads", "n_head_kv")
    return own if own is not None else queries


def _integer(config: Any, index: int, *names: str) -> int | None:
    """The first of the attributes *names* that is a number; of a per-layer list its entry *index*."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and index < len(value):
            value = value[index]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
