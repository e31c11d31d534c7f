import torch
from gauge import gauged
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig


@torch.no_grad()
def fill(ids: torch.Tensor):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config).eval()
    cache = DynamicCache(config=config)
    model = gauged(model)
    model(ids, past_key_value=cache)
    return cache.get_seq_length(), model.tokens
