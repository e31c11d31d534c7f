from transformers import DynamicCache, LlamaConfig


def config():
    return LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )


def filled(cache: DynamicCache):
    return len(cache.key_cache) > 0


def seen(cache: DynamicCache, layer=0):
    if len(cache.key_cache) <= layer:
        return 0
    return cache.key_cache[layer].shape[-2]


def fresh():
    cache = DynamicCache(config=config())
    return filled(cache), seen(cache)


def bare():
    cache = DynamicCache()
    return filled(cache), seen(cache)
