import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM


def build():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.5,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=None,
        )
    ).eval()


def continue_(model, cache, ids):
    """*ids* are the new ones only."""
    position = torch.arange(cache.get_seq_length(), cache.get_seq_length() + ids.shape[1])
    return model.generate(ids, past_key_values=cache, cache_position=position, max_new_tokens=3, do_sample=False)
