"""A decoder whose every layer sees a window of 8 tokens; the ids are longer than that."""

from __future__ import annotations

model = tiny("MistralForCausalLM", "MistralConfig", sliding_window=8)
config = model.config
ids = tokens(12)
token = tokens(1)
mask = torch.ones_like(ids)
