"""A decoder whose layer 0 sees a window of 8 tokens and whose layer 1 sees all."""

from __future__ import annotations

model = tiny(
    "Gemma2ForCausalLM",
    "Gemma2Config",
    head_dim=8,
    sliding_window=8,
    query_pre_attn_scalar=8,
    tie_word_embeddings=False,
)
config = model.config
ids = tokens(12)
token = tokens(1)
mask = torch.ones_like(ids)
