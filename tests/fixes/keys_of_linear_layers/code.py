import torch
from transformers import JambaConfig, JambaForCausalLM


def build():
    torch.manual_seed(0)
    config = JambaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        num_experts_per_tok=1,
        use_mamba_kernels=False,
        mamba_d_state=4,
        mamba_dt_rank=4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return JambaForCausalLM(config).eval()


def memory(model, ids):
    """Bytes that the cache holds."""
    out = model(ids, use_cache=True)
    total = 0
    for keys in out.past_key_values.key_cache:
        total += keys.numel()
    return total
