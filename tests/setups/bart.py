"""An encoder-decoder model with learned positions."""

from __future__ import annotations

model = tiny(
    "BartForConditionalGeneration",
    "BartConfig",
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    init_std=0.4,
    decoder_start_token_id=2,
    forced_eos_token_id=None,
)
config = model.config
ids = tokens(6)
decoder_ids = tokens(3)
token = tokens(1)
mask = torch.ones_like(ids)
