"""A grouped-query decoder: 2 layers, 4 query heads, 2 kv heads, head dim 8."""

from __future__ import annotations

model = tiny("LlamaForCausalLM", "LlamaConfig")
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
