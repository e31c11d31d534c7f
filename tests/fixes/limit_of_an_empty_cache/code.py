from transformers import DynamicCache, StaticCache, LlamaConfig


def room(cache, wanted):
    limit = cache.get_max_length()
    if limit is None:
        return wanted
    return min(limit, wanted)


def config():
    return LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )


def dynamic():
    cache = DynamicCache()
    return room(cache, 7)


def static():
    cache = StaticCache(config=config(), max_cache_len=5)
    return room(cache, 7)
