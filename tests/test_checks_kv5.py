"""Appends, lengths, cuts and hand-overs: what is reported, and right code that looks alike."""

from __future__ import annotations

import textwrap

import pytest
from layout_helpers import found, lines_marked

CODES = "KV501 KV502 KV503 KV504 KV505"

BAD = {
    "tuple operands, negative axis": """
        def forward(self, x, layer_past=None):
            B, T, C = x.size()
            k = self.key(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = self.value(x).view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            if layer_past is not None:
                past_k, past_v = layer_past
                k = torch.cat((past_k, k), dim=-3)  # KV501
                v = torch.cat((past_v, v), dim=-1)  # KV502
            return k, v
        """,
    "axis in a constant, stored attribute": """
        def forward(self, x):
            b, s, _ = x.shape
            axis = 1
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            self.k_cache = torch.cat([self.k_cache, k], dim=axis)  # KV501
            return self.k_cache
        """,
    "keyword tensors, jax": """
        import jax.numpy as jnp

        def attend(x, cache, wk, heads, head_dim):
            b, s, _ = x.shape
            k = (x @ wk).reshape(b, s, heads, head_dim).transpose(0, 2, 1, 3)
            return jnp.concatenate([cache["k"], k], axis=1)  # KV501
        """,
    "rearranged": """
        def forward(self, x, cache):
            q, k, v = self.to_qkv(x).chunk(3, dim=-1)
            q, k, v = map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h=self.heads), (q, k, v))
            ck, cv = cache
            k = torch.cat((ck, k), dim=1)  # KV501
            v = torch.cat((cv, v), dim=-2)
            return k, v
        """,
    "a helper of the file appends": """
        def append(past, new):
            return torch.cat([past, new], dim=1)  # KV501

        def forward(self, x, past_k):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            return append(past_k, k)
        """,
    "sequence first": """
        def forward(self, x, past_k=None):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.n_kv_heads, self.head_dim)
            if past_k is not None:
                k = torch.cat([past_k, k], dim=2)  # KV501
            return k
        """,
    "flash attention says sequence first": """
        def attend(q, k, v, past_k):
            k = torch.cat([past_k, k], dim=2)  # KV501
            return flash_attn_func(q, k, v)
        """,
    "keys transposed, values not": """
        def forward(self, x, past):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).permute(0, 2, 3, 1)
            v = self.v_proj(x).view(b, s, self.heads, self.head_dim).permute(0, 2, 1, 3)
            k = torch.cat([past[0], k], dim=-1)
            v = torch.cat([past[1], v], dim=-1)  # KV502
            return k, v
        """,
    "written into a buffer along the heads": """
        def forward(self, x, start_pos):
            b, s, _ = x.shape
            k = self.wk(x).view(b, s, self.n_heads, self.head_dim).transpose(1, 2)
            self.cache_k[:b, start_pos : start_pos + s] = k  # KV501
        """,
    "copied into a buffer along the heads": """
        def forward(self, x, pos):
            b, t, c = x.shape
            k = self.to_k(x).view(b, t, self.n_heads, c // self.n_heads).transpose(1, 2)
            self.k_cache.index_copy_(1, pos, k)  # KV501
            past_len = self.k_cache.shape[1]  # KV503
            return torch.slice_scatter(self.k_cache, k, dim=1, start=pos, end=pos + t), past_len  # KV501
        """,
    "numpy, the last axis": """
        import numpy as np

        B, H, D = 2, 4, 16
        Wk = np.zeros((H * D, H * D))

        def heads(x):
            return x.reshape(B, x.shape[1], H, D).transpose(0, 2, 1, 3)

        def decode(prompt, tok):
            kc, k1 = heads(prompt @ Wk), heads(tok @ Wk)
            return np.concatenate([kc, k1], axis=-1)  # KV502
        """,
    "mlx": """
        import mlx.core as mx

        def attend(self, x, cache):
            B, L, D = x.shape
            keys = self.k_proj(x).reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
            key_cache, value_cache = cache
            return mx.concatenate([key_cache, keys], axis=1)  # KV501
        """,
    "length from the heads": """
        def forward(self, x, past=None):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            kv_seq_len = k.shape[1]  # KV503
            if past is not None:
                kv_seq_len += past[0].shape[1]  # KV503
                k = torch.cat([past[0], k], dim=2)
            return k, kv_seq_len
        """,
    "length of a cache": """
        from transformers import DynamicCache

        def length(cache: DynamicCache):
            seq_len = cache.layers[0].keys.shape[1]  # KV503
            return seq_len
        """,
    "cut on the heads": """
        from transformers import DynamicCache

        def trim(cache: DynamicCache, max_len):
            for layer in cache.layers:
                layer.keys = layer.keys[:, -max_len:]  # KV504
                layer.values = layer.values[:, :, -max_len:]
        """,
    "beams on the heads": """
        from transformers import DynamicCache

        def reorder(cache: DynamicCache, beam_idx):
            for layer in cache.layers:
                layer.keys = layer.keys.index_select(1, beam_idx)  # KV504
                layer.values = layer.values.index_select(0, beam_idx)
        """,
    "update before the transpose": """
        from transformers.cache_utils import Cache

        class Attention:
            def forward(self, x, past_key_values: Cache):
                b, s, _ = x.shape
                k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
                v = self.v_proj(x).view(b, s, self.heads, self.head_dim)
                k, v = past_key_values.update(k, v, self.layer_idx)  # KV505
                return k.transpose(1, 2), v.transpose(1, 2)
        """,
    "attention over heads": """
        def forward(self, x):
            b, s, _ = x.shape
            q = self.q_proj(x).view(b, s, self.heads, self.head_dim)
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            v = self.v_proj(x).view(b, s, self.heads, self.head_dim)
            return F.scaled_dot_product_attention(q, k, v)  # KV505
        """,
    "a cache class of the file": """
        class KVCache:
            def update(self, key, value):
                self.cache["key"] = torch.cat([self.cache["key"], key], dim=1)  # KV501
                self.cache["value"] = torch.cat([self.cache["value"], value], dim=2)

        class Attention:
            def __init__(self):
                self.kv = KVCache()

            def forward(self, x):
                b, s, _ = x.shape
                k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
                v = self.v_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
                self.kv.update(k, v)
        """,
    "pairs of a transformers cache": """
        def merge(model, ids, new):
            past = model(ids, use_cache=True).past_key_values
            for k, v in past:
                kv_len = k.shape[1]  # KV503
            return tuple((torch.cat([k, nk], dim=1), torch.cat([v, nv], dim=2)) for (k, v), (nk, nv) in zip(past, new))  # KV501
        """,
    "the stored keys of a layer": """
        from transformers import DynamicCache

        def extend(cache: DynamicCache, new_k):
            return torch.cat([cache.layers[0].keys, new_k], dim=1)  # KV501
        """,
    "two lengths of one tensor": """
        def lengths(layer_past):
            kv_seq_len = layer_past[0].size(-2)
            past_len = layer_past[0].shape[-1]  # KV503
            return kv_seq_len, past_len
        """,
    "flash attention with heads first": """
        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = (self.qkv(x).view(b, s, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)).unbind(0)
            return flash_attn_func(q, k, v)  # KV505
        """,
}

GOOD = {
    "sequence first, axis 1": """
        def forward(self, x, past_k=None):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            k = k if past_k is None else torch.cat([past_k, k], dim=1)
            kv_len = k.shape[1]
            return k[:, -self.window_len :], kv_len
        """,
    "a model with pasts of its own layout": """
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m")
        for k, v in model(ids, use_cache=True).past_key_values:
            past_len = k.shape[1]
        """,
    "written into a buffer along the sequence": """
        def forward(self, x, start_pos):
            b, s, _ = x.shape
            k = self.wk(x).view(b, s, self.n_heads, self.head_dim)
            self.cache_k[:b, start_pos : start_pos + s] = k
            self.v_cache[:, :, start_pos : start_pos + s] = k.transpose(1, 2)
            self.k_cache.index_copy_(1, start_pos, k)
            return self.cache_k[:b, : start_pos + s]
        """,
    "heads of one rank written": """
        def forward(self, x, rank):
            b, s, _ = x.shape
            k = self.wk(x).view(b, s, self.n_heads, self.head_dim).transpose(1, 2)
            first_head, last_head = rank * 4, rank * 4 + 4
            self.k_cache[:, first_head:last_head] = k
        """,
    "heads folded into the batch": """
        def forward(self, x, past_k):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2).reshape(b * self.heads, s, self.head_dim)
            past_len = past_k.shape[1]
            return torch.cat([past_k, k], dim=1), past_len
        """,
    "not split yet": """
        def forward(self, x, past_k):
            k = torch.cat([past_k, self.k_proj(x)], dim=1)
            b, s, _ = k.shape
            return k.view(b, s, self.heads, self.head_dim).transpose(1, 2)
        """,
    "the past is transposed for the join": """
        def forward(self, x, past):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            return torch.cat([past[0].transpose(1, 2), k], dim=1)
        """,
    "sequence first of the batch": """
        def forward(self, x, past_k):
            s, b, _ = x.shape
            k = self.k_proj(x).view(s, b, self.heads, self.head_dim)
            return torch.cat([past_k, k], dim=0)
        """,
    "latents": """
        def forward(self, x, cache):
            latent = self.kv_a_proj(x)
            kv, k_pe = torch.split(latent, [self.kv_lora_rank, self.rope_dim], dim=-1)
            past_kv, past_k_pe = cache
            return torch.cat([past_kv, kv], dim=1), torch.cat([past_k_pe, k_pe], dim=1)
        """,
    "parts of the head dim": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            k_rot, k_pass = k[..., : self.rotary_ndims], k[..., self.rotary_ndims :]
            k = torch.cat((k_rot * 2, k_pass), dim=-1)
            return k
        """,
    "padding of the head dim": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            k = torch.cat([k, torch.zeros(b, self.heads, s, 4)], dim=-1)
            return k
        """,
    "nothing known": """
        def append(past_k, k, past_v, v):
            return torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1)
        """,
    "a comment is no proof": """
        def append(past_k, k):
            # keys are [batch, heads, seq, head_dim]
            return torch.cat([past_k, k], dim=1)
        """,
    "the branch decides": """
        def forward(self, x, past_k):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            if self.bhsd:
                k = k.transpose(1, 2)
            return torch.cat([past_k, k], dim=1)
        """,
    "the axis is a parameter": """
        def forward(self, x, past_k, dim):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            return torch.cat([past_k, k], dim=dim)
        """,
    "heads of several devices": """
        def gather(k_shards, x):
            b, s, _ = x.shape
            k0 = k_proj0(x).view(b, s, 4, 8).transpose(1, 2)
            k1 = k_proj1(x).view(b, s, 4, 8).transpose(1, 2)
            return torch.cat([k0, k1], dim=1)
        """,
    "masks and time series": """
        def forward(self, past_values, future_values, prev_key_padding_mask, key_padding_mask):
            values = torch.cat((past_values, future_values), dim=1)
            return torch.cat([prev_key_padding_mask, key_padding_mask], dim=1), values
        """,
    "a slice by heads": """
        def shard(self, x, rank):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            return k[:, rank * self.heads_per_rank : (rank + 1) * self.heads_per_rank]
        """,
    "an own cache with update": """
        def forward(self, x, kv_store):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            v = self.v_proj(x).view(b, s, self.heads, self.head_dim)
            return kv_store.update(k, v, 0)
        """,
    "flash attention": """
        def forward(self, x):
            b, s, _ = x.shape
            q = self.q_proj(x).view(b, s, self.heads, self.head_dim)
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim)
            v = self.v_proj(x).view(b, s, self.heads, self.head_dim)
            return flash_attn_func(q, k, v)
        """,
    "number of heads": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
            num_heads, head_dim = k.shape[1], k.shape[-1]
            return num_heads, head_dim
        """,
}


def module(text: str) -> str:
    return "import torch\nimport torch.nn.functional as F\nfrom einops import rearrange\n" + textwrap.dedent(text)


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    text = module(BAD[name])
    assert found(text, CODES) == lines_marked(text)


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    assert found(module(GOOD[name]), CODES) == []


def test_undecided_places_are_told_on_request() -> None:
    text = module(GOOD["nothing known"])
    assert [code for code, _ in found(text, CODES, undecided=True)] == ["KV501", "KV501"]
    assert found(module(GOOD["sequence first, axis 1"]), CODES, undecided=True) == []
