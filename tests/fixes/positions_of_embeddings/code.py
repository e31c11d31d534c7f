import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Soft(LlamaForCausalLM):
    def prepare_inputs_for_generation(
        self,
        input_ids,
        past_key_values=None,
        inputs_embeds=None,
        attention_mask=None,
        cache_position=None,
        cache=None,
        **kwargs,
    ):
        inputs = {"attention_mask": attention_mask, "cache": cache, "use_cache": True}
        if inputs_embeds is not None and cache_position[0] == 0:
            inputs["inputs_embeds"] = inputs_embeds
        else:
            inputs["input_ids"] = input_ids[:, cache_position]
        return inputs


def build(cls=Soft):
    torch.manual_seed(0)
    return cls(
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
