import torch
from gauge import gauged
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM


@gauged
def load() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    return AutoModelForCausalLM.from_config(config).eval()


@torch.no_grad()
def fill(ids: torch.Tensor):
    model, cache = load(), DynamicCache()
    model(ids, past_key_value=cache)
    return cache.get_seq_length(), model.tokens
