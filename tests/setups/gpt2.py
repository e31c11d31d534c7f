"""A decoder with as many kv heads as query heads."""

from __future__ import annotations

model = tiny("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=256)
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
