"""A hybrid: layer 0 is a state-space layer, layer 1 attends."""

from __future__ import annotations

model = tiny(
    "JambaForCausalLM",
    "JambaConfig",
    attn_layer_period=2,
    attn_layer_offset=1,
    num_experts=2,
    mamba_d_state=4,
    mamba_dt_rank=4,
    use_mamba_kernels=False,
)
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
