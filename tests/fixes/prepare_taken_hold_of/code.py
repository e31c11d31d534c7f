import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Trimming(LlamaForCausalLM):
    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **kwargs):
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        return {"input_ids": input_ids[:, seen:], "past_key_values": past_key_values}


def build() -> Trimming:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
        pad_token_id=0,
    )
    return Trimming(config).eval()
