"""An encoder-decoder model with relative positions."""

from __future__ import annotations

model = tiny(
    "T5ForConditionalGeneration",
    "T5Config",
    d_model=32,
    d_kv=8,
    d_ff=48,
    num_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
)
config = model.config
ids = tokens(6)
decoder_ids = tokens(3)
token = tokens(1)
mask = torch.ones_like(ids)
