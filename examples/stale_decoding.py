"""Greedy decoding as it was written for transformers 4.40. Try: kvlint examples/"""

import torch
from transformers import AutoModelForCausalLM, DynamicCache


@torch.no_grad()
def continue_from(model: AutoModelForCausalLM, ids: torch.Tensor, pairs: tuple, steps: int) -> torch.Tensor:
    cache = DynamicCache.from_legacy_cache(pairs)
    for _ in range(steps):
        seen = cache[0][0].shape[2]
        out = model(ids[:, seen:], past_key_values=cache, use_cache=True)
        ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], dim=1)
    print(len(cache.key_cache), "layers,", cache.key_cache[0].shape[-2], "tokens")
    return ids
