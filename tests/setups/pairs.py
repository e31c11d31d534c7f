"""The keys and values of the ids, as a tuple of one pair a layer."""

from __future__ import annotations

_filled = model(ids, use_cache=True)
_cache = next(_filled[name] for name in ("cache", "past_key_values") if name in _filled)
pairs = tuple((layer.keys, layer.values) for layer in _cache.layers)
