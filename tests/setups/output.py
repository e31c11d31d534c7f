"""What a forward pass over the ids returns."""

from __future__ import annotations

if config.is_encoder_decoder:
    out = model(ids, decoder_input_ids=decoder_ids, use_cache=True)
else:
    out = model(ids, use_cache=True)
