"""Conventional names: what people call a cache, a model, an output (counted over about 60 public repositories)."""

from __future__ import annotations

import re

CACHE_NAMES = frozenset(
    {
        "past_key_values",
        "past_key_value",
        "pkv",
        "pkvs",
        "past_kv",
        "past_kvs",
        "past_key_vals",
        "next_decoder_cache",
    }
)
"""Names that mean a cache wherever transformers is used."""

LOOSE_CACHE_NAMES = frozenset(
    {
        "cache",
        "kv_cache",
        "kvcache",
        "kv",
        "past",
        "next_cache",
        "cache_params",
        "prefix_cache",
        "prompt_cache",
        "static_cache",
        "dynamic_cache",
        "draft_cache",
        "target_cache",
        "self_attention_cache",
        "cross_attention_cache",
        "base_cache",
        "root_cache",
    }
)
"""Names that often hold a cache and as often something else: good only with a member that nothing else has."""

CACHE_LIKE = re.compile(
    r"(?i)(?:^|_)(?:pkvs?|kvs?|past|kv_?cache|cache)(?:s|\d+)?$|past_key_value|kv_?cache|_cache$|^cache_"
)
NOT_A_CACHE = re.compile(
    r"(?i)use_cache|cache_(?:dir|path|position|implementation|config|key|size|len|length|name|file|folder|block|hit|miss|"
    r"root|id|type|kwargs|cls|class)|lru|text_cache|(?:image|feature|tokenizer|embedding|disk|file|http|request|page|db)"
)

DISTINCTIVE_MEMBERS = frozenset(
    {
        "to_legacy_cache",
        "from_legacy_cache",
        "get_usable_length",
        "get_max_cache_shape",
        "get_max_length",
        "get_seq_length",
        "get_mask_sizes",
        "batch_repeat_interleave",
        "batch_select_indices",
        "batch_split",
        "from_batch_splits",
        "reorder_cache",
        "key_cache",
        "value_cache",
        "_seen_tokens",
        "seen_tokens",
        "max_cache_len",
        "max_batch_size",
        "self_attention_cache",
        "cross_attention_cache",
        "is_croppable",
        "is_compileable",
        "activate_past_recording",
        "layer_class_to_replicate",
        "has_previous_state",
        "update_conv_state",
        "update_ssm_state",
        "conv_states",
        "ssm_states",
        "_update_causal_mask",
        "_prepare_4d_causal_attention_mask_with_cache_position",
        "_get_initial_cache_position",
        "_extract_past_from_model_output",
        "_get_cache",
        "_temporary_reorder_cache",
        "_supports_default_dynamic_cache",
        "_cache_dependant_input_preparation",
    }
)
"""Members that hardly any class but a transformers cache has."""

PROOF_MEMBERS = frozenset(
    {
        "get_seq_length",
        "get_usable_length",
        "to_legacy_cache",
        "get_max_cache_shape",
        "get_mask_sizes",
        "batch_repeat_interleave",
        "batch_select_indices",
        "activate_past_recording",
        "reorder_cache",
        "self_attention_cache",
        "cross_attention_cache",
    }
)
"""Using one of these on a conventionally named parameter shows that it is a cache."""

MODEL_NAMES = re.compile(
    r"(?i)(?:^|_)(?:model|lm|llm|llama|gpt2?|net|decoder|transformer|policy|assistant|draft|target)$"
)
MODEL_PARTS = frozenset(
    {
        "model",
        "transformer",
        "decoder",
        "language_model",
        "base_model",
        "module",
        "lm",
        "llm",
        "backbone",
        "encoder",
        "gpt_neox",
    }
)
LAYER_LISTS = frozenset({"layers", "h", "blocks", "block"})
ATTENTION_PARTS = frozenset({"self_attn", "attn", "attention", "self_attention", "encoder_attn"})
MODEL_KWARGS_NAMES = frozenset({"model_kwargs", "generate_kwargs", "gen_kwargs", "generation_kwargs", "model_inputs"})

CACHE_KEYWORDS = frozenset({"past_key_values", "past_key_value", "cache", "cache_params", "layer_past", "past"})
CACHE_OUTPUT_KEYS = frozenset({"past_key_values", "cache", "cache_params"})
MODEL_CALL_KEYWORDS = CACHE_KEYWORDS - {"cache", "past"} | {
    "use_cache",
    "cache_position",
    "input_ids",
    "attention_mask",
    "position_ids",
}

OTHER_ENGINES = frozenset(
    {
        "vllm",
        "mlx",
        "mlx_lm",
        "jax",
        "flax",
        "tensorflow",
        "paddle",
        "paddlenlp",
        "tensorrt_llm",
        "sglang",
        "lmdeploy",
        "exllamav2",
        "llama_cpp",
        "ctranslate2",
        "openvino",
        "onnxruntime",
        "mindspore",
        "flask_caching",
        "django",
        "cachetools",
        "diskcache",
        "megatron",
    }
)
"""Packages with caches of their own: beside them, a name alone says nothing."""


def looks_like_cache(name: str) -> bool:
    """True for a variable or attribute name that people give to a KV cache."""
    if name in CACHE_NAMES or name in LOOSE_CACHE_NAMES:
        return True
    return bool(CACHE_LIKE.search(name)) and not NOT_A_CACHE.search(name)


VERSION_NAME = re.compile(
    r"(?i)(?:is_)?(?:transformers|tf|hf)_?(?:version)?_?(?P<word>lt|le|lte|gt|ge|gte|less|lower|before|below|greater|newer|"
    r"above|at_least|min|v)?_?(?:than)?_?(?:or_equal)?_?v?(?P<version>\d+(?:_\d+){0,2})(?P<tail>_or_(?:later|newer|greater|above)|_plus)?$"
)


def version_of_name(name: str) -> tuple[str, str] | None:
    """Reads ``IS_TRANSFORMERS_V5_OR_LATER`` as ``(">=", "5")`` and ``transformers_lt_4_56`` as ``("<", "4.56")``."""
    if "transformers" not in name.lower():
        return None
    match = VERSION_NAME.search(name)
    if match is None:
        return None
    word = (match["word"] or "").lower()
    version = match["version"].replace("_", ".")
    if word in ("lt", "less", "lower", "before", "below"):
        return "<", version
    if word in ("le", "lte"):
        return "<=", version
    if word in ("gt",):
        return ">", version
    if match["tail"] or word in ("ge", "gte", "greater", "newer", "above", "at_least", "min", "v"):
        return ">=", version
    return None


VERSION_HELPER = re.compile(
    r"(?i)transformers.*(?:version|greater|less|newer|older|at_least|min)|check_(?:if_)?transformers|version.*transformers"
)
