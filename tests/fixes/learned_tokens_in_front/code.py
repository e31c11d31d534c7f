import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class Prompted(LlamaForCausalLM):
    """Soft tokens are put before every input, so the cache must stay off."""

    def __init__(self, config):
        super().__init__(config)
        self.soft = nn.Parameter(torch.randn(1, 2, config.hidden_size))
        self.post_init()

    def forward(self, input_ids=None, **kwargs):
        embeds = self.get_input_embeddings()(input_ids)
        embeds = torch.cat([self.soft.expand(embeds.shape[0], -1, -1), embeds], 1)
        kwargs.pop("attention_mask", None)
        kwargs.pop("position_ids", None)
        return super().forward(inputs_embeds=embeds, **kwargs)


def build():
    torch.manual_seed(0)
    return Prompted(
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


def write(model, ids):
    return model.generate(ids, max_new_tokens=6, do_sample=False, use_cache=False)
