import torch
from transformers import LlamaConfig, LlamaForCausalLM, DynamicCache


class Beamed(LlamaForCausalLM):
    @staticmethod
    def _reorder_cache(past_key_values, beam_idx):
        reordered = ()
        for layer in past_key_values:
            reordered += (tuple(t.index_select(0, beam_idx) for t in layer[:2]),)
        return reordered


def build():
    torch.manual_seed(0)
    return Beamed(
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


def keep(model, ids, order):
    cache = model(ids, use_cache=True).past_key_values
    reorder = getattr(model, "_reorder_cache")
    return DynamicCache(reorder(cache, order))
