import torch
from transformers import DynamicCache, GenerationConfig, LlamaConfig, LlamaForCausalLM


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
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=None,
        )
    ).eval()


def defaults(**more):
    config = GenerationConfig(max_new_tokens=4, do_sample=False, use_cache=True, max_cache_len=64)
    config.update(**more)
    return config


def room(config, ids):
    return config.max_cache_len - ids.shape[1]


def run(model, ids):
    config = defaults(cache_implementation="static")
    return room(config, ids), model.generate(ids, generation_config=config).shape[1]
