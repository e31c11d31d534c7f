from functools import partial

import torch
from transformers import DynamicCache


@torch.no_grad()
def write(model, ids, n):
    past = DynamicCache(config=model.config)
    step = partial(model.prepare_inputs_for_generation, past_key_values=past)
    for _ in range(n):
        ids = torch.cat([ids, model(**step(ids)).logits[:, -1:].argmax(-1)], dim=1)
    return ids, past.get_seq_length()
