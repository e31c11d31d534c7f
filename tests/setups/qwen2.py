"""A grouped-query decoder with biases in its projections."""

from __future__ import annotations

model = tiny("Qwen2ForCausalLM", "Qwen2Config")
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
