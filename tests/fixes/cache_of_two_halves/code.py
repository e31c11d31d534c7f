import torch
from transformers import BartConfig, BartForConditionalGeneration
from transformers.cache_utils import Cache


def freeze(cache: Cache):
    return cache.to_legacy_cache()


def keys_of(cache: Cache, index: int):
    return cache[index][0]


def length(cache: Cache):
    return cache[0][0].shape[2]


def build():
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=64,
            d_model=32,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        )
    ).eval()


def run(model, ids, dec):
    cache = model(input_ids=ids, decoder_input_ids=dec, use_cache=True).past_key_values
    return freeze(cache), keys_of(cache, 1), length(cache)
