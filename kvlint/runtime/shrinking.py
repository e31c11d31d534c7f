"""Makes a configuration so small that its model runs in milliseconds on a CPU, without changing its kind.

Works on the plain dictionary of a configuration (``to_dict()``) and on the dictionaries nested in it. What counts for
the cache is kept: which kinds of layers there are and in which order, whether heads are grouped, whether keys and
values share a head dim, windows, latent ranks. Sizes are set by what a field's name says it is, because the field
names are the only thing that all families share. The functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a shrunk model. *hidden* is the width, *query_heads* a multiple of *kv_heads*, *window* tokens.

    *head_dim* differs from ``hidden / query_heads`` on purpose: a head dim that was derived where the configuration
    gives one is then seen. *layers* bounds the number of layers, unless *keep_layers* leaves them all: some families
    tie their layer lists to each other in ways of their own. *fill* sets a head dim and layer types that are left open.
    """

    hidden: int = 64
    query_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    layers: int = 6
    keep_layers: bool = False
    fill: bool = False
    window: int = 8
    vocabulary: int = 160
    positions: int = 256

    @property
    def derived_head_dim(self) -> int:
        """``hidden / query_heads``."""
        return self.hidden // self.query_heads


_ONE, _TWO, _FOUR, _EIGHT = "1", "2", "4", "8"

_RULES: tuple[tuple[str, str], ...] = (
    # names (whole, as a regular expression) -> the size: an attribute of Sizes, a number that is the most allowed, or
    # "=" and the number itself where several fields must multiply to the same
    (r"(ngram_vocab_size_base|encoder_hash_byte_group_vocab)", "vocabulary"),
    (r"(.*_)?(un)?(padded_)?vocab_size(_per_layer_input|_.*)?", "vocabulary"),
    (r"max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length|model_max_length", "positions"),
    (r"max_(source|target|encoder|decoder)_positions?(_embeddings)?|(t2u_)?max_position_embeddings", "positions"),
    (r"max_(encoder|decoder)_position_embeddings|original_max_position_embeddings", "positions"),
    (r"hidden_size|n_embd|d_model|embedding_dim|emb_dim|lru_width|word_embed_proj_dim|embed_dim", "hidden"),
    (r"text_hidden_size|audio_hidden_size|condition_dim", "hidden"),
    (r"decoder_hidden_size|encoder_hidden_size|cross_attention_hidden_size|dim_model_base", "hidden"),
    (r"embedding_size|input_embedding_size|output_embedding_size|hidden_size_per_layer_input", "hidden"),
    (r"ple_embed_dim|output_hidden_size|projection_dim|out_hidden_size", "hidden"),
    (r"(.*_)?intermediate_size(_mlp|_mlp_only)?|ffn_dim|ffn_hidden_size|feed_forward_size", "hidden"),
    (r"dense_intermediate_size|dim_ff|dff|d_ff|d_inner|n_inner|(encoder|decoder)_ffn_dim|inner_dim", "hidden"),
    (r"(moe_|shared_)(expert_|experts_)?(shared_expert_)?(intermediate|hidden)_size", "hidden"),
    (r"num_attention_heads|n_heads?|num_heads|attention_heads|(encoder|decoder)_attention_heads", "query_heads"),
    (r"num_(encoder|decoder)_attention_heads|swa_num_attention_heads|num_query_heads", "query_heads"),
    (r"(.*_)?(num_key_value_heads|num_kv_heads|n_head_kv|kv_n_heads|num_query_groups)", "kv_heads"),
    (r"sliding_window(_size)?|attention_chunk_size|window_size|local_attention|attention_window(_size)?", "window"),
    (r"num_experts|num_local_experts|n_routed_experts|moe_num_experts|zero_expert_num", _FOUR),
    (r"num_experts_per_tok(en)?|moe_topk|moe_k|moe_top_k|num_selected_experts", _TWO),
    (r"n_group|topk_group|num_expert_group|n_shared_experts|num_shared_experts|moe_num_shared_experts", _ONE),
    (r"first_k_dense_replace|num_dense_layers|num_nextn_predict_layers", _ONE),
    (r"q_lora_rank|o_lora_rank|laurel_rank|gated_norm_rank|adapter_rank|hc_lowrank|loop_gate_rank", "16"),
    (r"kv_lora_rank", "24"),
    (r"qk_rope_head_dim", "=8"),
    (r"qk_nope_head_dim", "=16"),
    (r"qk_head_dim", "=24"),
    (r"index_head_dim|linear_(key|value)_head_dim|linear_head_dim", "16"),
    (r"index_n_heads|linear_num_key_heads|o_groups", _TWO),
    (r"linear_num_value_heads|linear_num_heads", _FOUR),
    (r"index_topk", "64"),
    (r"index_block_size", _FOUR),
    (r"rotary_dim", _EIGHT),
    (r"mamba_d_state|state_size|ssm_state_size|d_state", "16"),
    (r"mamba_n_heads|mamba_num_heads|n_mamba_heads", "=8"),
    (r"mamba_d_head|mamba_head_dim|mamba_headdim", "=16"),
    (r"mamba_d_ssm", "=128"),
    (r"mamba_n_groups|n_groups|mamba_ngroups", _TWO),
    (r"(mamba_)?chunk_size", _EIGHT),
    (r"time_step_rank|mamba_dt_rank", _FOUR),
    (r"router_hidden_size", "16"),
    (r"attn_layer_period|expert_layer_period", _TWO),
    (r"attn_layer_offset|expert_layer_offset", _ONE),
    (r"(.*_)?head_dim|kv_channels|d_kv|dim_head|d_head|attention_head_size", "head_dim"),
    (r"image_size", "32"),
    (r"patch_size", _EIGHT),
    (r"num_mel_bins", "16"),
)
_COMPILED = tuple((re.compile(pattern), size) for pattern, size in _RULES)
_LAYER_COUNT = re.compile(
    r"num_hidden_layers|n_layers?|num_layers|num_blocks|num_(encoder|decoder)_layers|(encoder|decoder)_layers|depth"
)
_LAYER_INDICES = re.compile(r".*(layer_ids|layer_indices|layer_idxs|attn_idxs|only_layers|attention_layers|moe_layers)")
_SCALE = re.compile(r"initializer_range|init_std|embed_init_std|embedding_initializer_range")
_INITIAL_SCALE = 0.12
"""Standard deviation of shrunk weights: near 1/sqrt(hidden), so that attention is far from uniform and a wrong key or
value moves the logits. The usual 0.02 makes such a small model nearly blind to its past."""


def shrink(config: Mapping[str, Any], sizes: Sizes, *, group_heads: bool = False) -> dict[str, Any]:
    """*config* (a configuration's dictionary) with every size reduced to *sizes*; nested dictionaries alike.

    *group_heads* asks for grouped kv heads also where *config* has as many as query heads: a model type's defaults
    often do, and grouping is the harder case. Configurations with multi-query heads (one kv head) keep them, and so
    do those with a latent (MLA), whose key heads are the query heads.
    """
    total = _layer_count(config)
    chosen = tuple(range(total)) if sizes.keep_layers else choose_layers(config, total, sizes.layers)
    small = {key: _value(key, value, config, sizes, group_heads) for key, value in config.items()}
    for key, value in config.items():
        if total and isinstance(value, list) and len(value) == total:
            small[key] = [small[key][index] for index in chosen]
        elif key == "block_types" and isinstance(value, (list, tuple)) and not sizes.keep_layers:
            small[key] = list(dict.fromkeys(value))  # kinds that repeat over the layers: each once
        elif _LAYER_INDICES.fullmatch(key) and isinstance(value, list):
            small[key] = [new for new, old in enumerate(chosen) if old in value]
        elif _LAYER_COUNT.fullmatch(key) and isinstance(value, int):
            small[key] = value if sizes.keep_layers else min(value, len(chosen) or 2)
        elif key == "per_layer_config" and isinstance(value, dict) and value:
            small[key] = {
                str(new): small[key][name]
                for new, old in enumerate(chosen)
                for name in value
                if str(name).isdigit() and int(name) == old
            }
    if config.get("num_kv_shared_layers") and not sizes.keep_layers:
        small["num_kv_shared_layers"] = len(chosen) // 2
    return small | _missing(config, len(chosen), sizes)


def _missing(config: Mapping[str, Any], layers: int, sizes: Sizes) -> dict[str, Any]:
    """Values for fields that a type's defaults leave open although its model needs them: experts, and which layers of
    a hybrid model attend (none at all would leave nothing to check)."""
    filled: dict[str, Any] = {}
    if sizes.fill and "layer_types" in config and config["layer_types"] is None and layers:
        filled["layer_types"] = ["conv" if "conv_L_cache" in config else "full_attention"] * (layers - 1)
        filled["layer_types"].append("full_attention")
    if sizes.fill and "head_dim" in config and config["head_dim"] is None:
        filled["head_dim"] = sizes.head_dim
    rope = config.get("rope_parameters")
    if sizes.fill and isinstance(rope, Mapping) and "rope_type" in rope and "mrope_section" not in rope:
        # Families with positions of three axes have the sections for their usual head dim in their code.
        width = sizes.head_dim if "head_dim" in config else sizes.derived_head_dim
        share = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
        filled["rope_parameters"] = {**rope, "mrope_section": _three(int(width * share) // 2)}
    types = config.get("layer_types")
    if layers > 1 and isinstance(types, list) and set(types) == {"linear_attention"}:
        filled["layer_types"] = ["linear_attention"] * (layers - 1) + ["full_attention"]
    if config.get("is_encoder_decoder") and config.get("decoder_start_token_id") is None:
        start = config.get("bos_token_id")
        filled["decoder_start_token_id"] = start if isinstance(start, int) and start < 4 else 0
    if "moe_intermediate_size" in config:
        for name in ("n_routed_experts", "num_experts_per_tok", "n_shared_experts"):
            if name in config and config[name] is None:
                filled[name] = {"n_routed_experts": 4, "num_experts_per_tok": 2}.get(name, 1)
    if "attn_layer_indices" in config and layers:
        filled["attn_layer_indices"] = [layers - 1]
    return filled


def choose_layers(config: Mapping[str, Any], total: int, limit: int) -> tuple[int, ...]:
    """Indices of the layers to keep: one of each kind in the order of first appearance, repeated to two at least.

    The kind of a layer is what all per-layer lists of the configuration say of it. Layers that share their keys and
    values with an earlier one (``num_kv_shared_layers``) double the list: the second half then shares.
    """
    if not total:
        return ()
    columns = [
        value for key, value in sorted(config.items())
        if isinstance(value, list) and len(value) == total and "layer" in key
    ]  # fmt: skip
    overrides = config.get("per_layer_config")
    own = overrides if isinstance(overrides, dict) else {}
    named = {int(name): str(value) for name, value in own.items() if str(name).isdigit()}
    seen: dict[str, int] = {}
    for index in range(total):
        kind = str([column[index] for column in columns]) + named.get(index, "")
        seen.setdefault(kind, index)
    first = sorted(seen.values())[:limit]
    if len(first) == 1:
        first = [first[0], min(first[0] + 1, total - 1)] if total > 1 else first
    if config.get("num_kv_shared_layers"):
        first = first + first
    return tuple(first)


def _layer_count(config: Mapping[str, Any]) -> int:
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_blocks"):
        if isinstance(config.get(key), int):
            return int(config[key])
    return 0


def _value(key: str, value: Any, config: Mapping[str, Any], sizes: Sizes, group_heads: bool) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _nested(key, value, config, sizes, group_heads)
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [_nested(key, item, config, sizes, group_heads) for item in value]
    if key.endswith(("token_id", "token_index", "token_ids")):
        return _token(key, value, sizes)
    if _SCALE.fullmatch(key):
        return _INITIAL_SCALE
    if isinstance(value, list):
        return [_number(key, item, config, sizes, group_heads) for item in value]
    return _number(key, value, config, sizes, group_heads)


def _number(key: str, value: Any, config: Mapping[str, Any], sizes: Sizes, group_heads: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return value
    if key == "attention_hidden_size" and config.get("hidden_size"):
        return sizes.hidden * max(1, value // int(config["hidden_size"]))
    name = key.removesuffix("_per_layer") if key != "vocab_size_per_layer_input" else key
    for pattern, size in _COMPILED:
        if not pattern.fullmatch(name):
            continue
        if size == "kv_heads":
            return _kv_heads(value, config, sizes, group_heads)
        if size.startswith("=") or (name == "head_dim" and value == config.get("qk_rope_head_dim")):
            return int(size.removeprefix("=")) if size.startswith("=") else 8
        wanted = int(size) if size.isdigit() else int(getattr(sizes, size))
        # A size is only ever made smaller, except heads, whose ratio to the kv heads must hold.
        return wanted if size in ("query_heads", "head_dim", "hidden") else min(value, wanted)
    return value


def _kv_heads(value: int, config: Mapping[str, Any], sizes: Sizes, group_heads: bool) -> int:
    if value == 1:
        return 1
    if config.get("kv_lora_rank"):
        return sizes.query_heads
    queries = config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads")
    if value == queries and not group_heads:
        return sizes.query_heads
    return sizes.kv_heads


def _token(key: str, value: Any, sizes: Sizes) -> Any:
    """Special tokens move to the top of the small vocabulary, apart from the ids that prompts are drawn from."""
    if isinstance(value, list):
        return [_token(key, item, sizes) for item in value]
    if not isinstance(value, int) or value < 0:
        return value
    return value if value < 4 else sizes.vocabulary - 1 - sum(map(ord, key)) % 40


def _nested(key: str, value: Mapping[str, Any], config: Mapping[str, Any], sizes: Sizes, group_heads: bool) -> Any:
    if "model_type" in value or "num_hidden_layers" in value:
        return shrink(value, sizes, group_heads=group_heads)
    if key in ("id2label", "label2id", "quantization_config"):
        return dict(value)
    if key.startswith("rope_") or "rope_type" in value:
        return _rope(value, config, sizes)
    return {name: _value(str(name), item, config, sizes, group_heads) for name, item in value.items()}


def _rope(value: Mapping[str, Any], config: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Rotary parameters: per-frequency lists are cut and sections rescaled to the small head dim (with a latent: to its
    rotary part)."""
    old = config.get("head_dim") or (config.get("hidden_size", 0) // (config.get("num_attention_heads") or 1))
    new = sizes.head_dim if config.get("head_dim") else sizes.derived_head_dim
    if config.get("kv_lora_rank") and config.get("qk_rope_head_dim"):
        old, new = config["qk_rope_head_dim"], 8
    small: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            small[name] = _rope(item, config, sizes)
        elif name == "mrope_section" and isinstance(item, list) and old:
            small[name] = _sections(item, new / old)
        elif name in ("short_factor", "long_factor") and isinstance(item, list) and old:
            small[name] = item[: max(1, len(item) * new // old)]
        else:
            small[name] = item
    return small


def _three(total: int) -> list[int]:
    """*total* frequencies for time, height and width, about as 2 to 3 to 3."""
    first = max(1, total // 4)
    second = (total - first) // 2
    return [first, second, total - first - second]


def _sections(sections: list[int], ratio: float) -> list[int]:
    total = round(sum(sections) * ratio)
    parts = [max(1, int(section * ratio)) for section in sections]
    parts[-1] += total - sum(parts)
    return parts
