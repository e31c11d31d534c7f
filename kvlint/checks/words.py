"""Words and patterns that several checks need in a file: what the analysis takes for a cache, by its bytes alone."""

from __future__ import annotations

from kvlint.analysis.names import CACHE_NAMES, PROOF_MEMBERS

CACHE_WORDS = ("cache", "Cache", "CACHE", "past", "Past", "PAST", "kv", "KV", "Kv")
"""A name or a class that the analysis takes for a cache holds one of these."""
LIBRARY_WORDS = (
    "transformers",
    "torch",
    "past_key",
    "layer_past",
    "use_cache",
    "generate(",
    "DynamicCache",
    "StaticCache",
    "EncoderDecoderCache",
    "seen_tokens",
    "prepare_inputs",
    "generation_config",
    "self_attn",
    *sorted(PROOF_MEMBERS),
)
"""A file that is not analysed together with others, and holds none of these, has nothing to do with the library's caches."""
KNOWN_CACHE = r"Cache|cache_params|\bcache\b|" + "|".join(sorted(CACHE_NAMES | PROOF_MEMBERS))
"""A cache that is more than a loosely used name is written with one of these somewhere in a Python file."""
TUPLE_WORDS = ("tuple", "list", "Tuple", "List", "Sequence", "Iterable")
HEADS = (
    r"(?i)head|attn|attention|einsum|rearrange|cache|matmul|"
    r"(?<![a-z0-9])(?:h|g|k|n_?h|nh|n_hd|num_h|n_?q|nqh|h_?q|hq|h_?k|hk|h_?kv|kv_?h|nkv|n_?kv|n_?rep|rep|hd|hs|dh|d_?[hkvq]|d_?kv|d_?qk|hdim)(?![a-z0-9])"
)
"""Without one of these nothing shows which axis of a tensor is the heads or the head dim."""
CACHE_SIZE = (
    r"(?i)head_dim|kv_cache|kvcache|past_k|past_v|k_cache|v_cache|key_cache|value_cache|dynamiccache|from_legacy_cache|"
    r"cache_size|cache_bytes|cache_mem|cache_gb|cache_mb|cache_gib|cache_k|cache_v|"
    r"kv(?<![a-z]kv)s?(?![a-z])|key.{0,6}value.{0,6}cache|kv.{0,6}value.{0,6}cache|pkv(?<![a-z0-9]pkv)|cache(?<!\wcache)\s*=|"
    r"def \w*cache|key_value_heads|register_buffer"
)
"""A number that sizes a cache stands near one of these, or is handed to a model as its past."""
