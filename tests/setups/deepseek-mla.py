"""A decoder with multi-head latent attention."""

from __future__ import annotations

model = tiny(
    "DeepseekV3ForCausalLM",
    "DeepseekV3Config",
    num_key_value_heads=4,
    kv_lora_rank=16,
    q_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=1,
    topk_group=1,
    moe_intermediate_size=16,
    first_k_dense_replace=1,
)
config = model.config
ids = tokens(6)
token = tokens(1)
mask = torch.ones_like(ids)
