"""A state-space model: no keys, no values."""

from __future__ import annotations

model = tiny("MambaForCausalLM", "MambaConfig", state_size=4, time_step_rank=4)
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
