"""Names that every example finds: torch, copy, transformers and the cache classes; and the tiny models' factory."""

from __future__ import annotations

import copy

import torch
import transformers
from transformers import Cache, DynamicCache, EncoderDecoderCache, StaticCache

VOCABULARY = 64


def tiny(model_class, config_class, **changes):
    """A model with random weights, the same ones at every call."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": None,
        "initializer_range": 0.4,
    }
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**{**sizes, **changes})
    return getattr(transformers, model_class)(config).eval()


def tokens(count):
    """One row of *count* token ids, none of them special."""
    return torch.randint(3, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(count))


def greedy(model, ids, n):
    """The *n* most likely next tokens, each computed from the whole sequence without a cache: ``[1, n]``."""
    for _ in range(n):
        logits = model(ids, use_cache=False).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids[:, -n:]
