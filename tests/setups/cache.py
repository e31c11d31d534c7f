"""A cache that has seen the ids."""

from __future__ import annotations

if config.is_encoder_decoder:
    _filled = model(ids, decoder_input_ids=decoder_ids, use_cache=True)
else:
    _filled = model(ids, use_cache=True)
cache = next(_filled[name] for name in ("cache", "past_key_values", "cache_params") if name in _filled)
