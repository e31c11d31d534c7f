import torch
from transformers import DynamicCache


def keep(model, ids, order):
    cache = model(ids, use_cache=True).past_key_values
    return DynamicCache(model._reorder_cache(cache, order))
