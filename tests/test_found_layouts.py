"""Layouts and sizes that were missed once, and wrong fixes that were offered: each as it was found."""

from __future__ import annotations

import textwrap

import pytest
from analysing import fixed, lines, lint, releases
from layout_helpers import found, lines_marked

from kvlint import checks

CODES = " ".join(check.code for check in checks.all_checks() if check.code[:3] in ("KV5", "KV6", "KV7"))

BAD = {
    # -- sizes ---------------------------------------------------------------------------------------------------
    "derived head dim, product used again": """
        def kv_cache_bytes(config, tokens, batch):
            head_dim = config.hidden_size // config.num_attention_heads  # KV703
            per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * 2
            return per_token * tokens * batch
        """,
    "derived head dim, in another unit": """
        def kv_cache_gib(config, tokens):
            head_dim = config.hidden_size // config.num_attention_heads  # KV703
            kv_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * tokens * 2
            return kv_bytes / 1024**3
        """,
    "derived head dim, memory divided by the product": """
        def batch_size(config, gpu_mem, tokens):
            head_dim = config.hidden_size // config.num_attention_heads  # KV703
            kv_per_seq = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * tokens * 2
            return gpu_mem // kv_per_seq
        """,
    "attributes copied from a configuration": """
        class Estimator:
            def __init__(self, config):
                self.num_layers = config.num_hidden_layers
                self.num_heads = config.num_attention_heads
                self.head_dim = config.head_dim

            def kv_cache_bytes(self, n):
                return 2 * self.num_layers * self.num_heads * self.head_dim * n * 2  # KV701
        """,
    "a configuration under a short name": """
        from transformers import AutoConfig

        def kv_cache_bytes(name, tokens):
            c = AutoConfig.from_pretrained(name)
            return 2 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * tokens * 2  # KV701

        def kv_cache_size(model, tokens):
            arch = model.config
            return 2 * arch.num_hidden_layers * arch.num_attention_heads * arch.head_dim * tokens * 2  # KV701
        """,
    "a configuration under a short name, of the module": """
        from transformers import AutoConfig

        c = AutoConfig.from_pretrained("some/model")

        def kv_cache_bytes(tokens):
            return 2 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * tokens * 2  # KV701
        """,
    "a method of the class that holds both": """
        from dataclasses import dataclass

        @dataclass
        class Spec:
            num_layers: int
            num_heads: int
            num_kv_heads: int
            head_dim: int

            def kv_cache_bytes(self, tokens):
                return 2 * self.num_layers * self.num_heads * self.head_dim * tokens * 2  # KV701
        """,
    "a shape in a variable": """
        def init_kv_cache(config, b, n):
            shape = (b, config.num_attention_heads, n, config.head_dim)  # KV701
            k = torch.zeros(shape)
            v = torch.zeros(*shape)
            return k, v
        """,
    "prod": """
        import math

        def kv_cache_bytes(config, tokens):
            return math.prod((2, config.num_hidden_layers, config.num_attention_heads, config.head_dim, tokens, 2))  # KV701

        def kv_cache_size(config, tokens):
            size = 2 * np.prod([config.num_hidden_layers, config.num_attention_heads, config.head_dim, tokens])  # KV701
            return size
        """,
    "multiplied step by step": """
        def kv_cache_bytes(config, tokens):
            size = 2 * config.num_hidden_layers
            size *= config.num_attention_heads  # KV701
            size *= config.head_dim
            size *= tokens * 2
            return size
        """,
    "a dict of models": """
        MODELS = {
            "small": {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128},
            "large": {"layers": 80, "heads": 64, "kv_heads": 8, "head_dim": 128},
        }

        def kv_cache_bytes(name, tokens):
            return 2 * MODELS[name]["layers"] * MODELS[name]["heads"] * MODELS[name]["head_dim"] * tokens * 2  # KV701

        def kv_cache_size(name, tokens):
            m = MODELS[name]
            return 2 * m["layers"] * m["heads"] * m["head_dim"] * tokens * 2  # KV701
        """,
    "keys and values of MLA summed": """
        def kv_cache_bytes(c, n, w):
            k = c.num_attention_heads * c.qk_head_dim * n * w  # KV702
            v = c.num_attention_heads * c.v_head_dim * n * w  # KV702
            return (k + v) * c.num_hidden_layers
        """,
    # -- layouts -------------------------------------------------------------------------------------------------
    "the shape idiom of transformers": """
        from transformers.models.llama.modeling_llama import LlamaAttention

        class A(LlamaAttention):
            def forward(self, hidden_states, position_embeddings, attention_mask=None, cache=None, **kw):
                shape = (*hidden_states.shape[:-1], -1, self.head_dim)
                k = self.k_proj(hidden_states).view(shape)
                v = self.v_proj(hidden_states).view(shape)
                k, v = cache.update(k, v, self.layer_idx)  # KV505
                return k, v
        """,
    "a subclass asks the library": """
        from transformers import DynamicCache

        class W(DynamicCache):
            def update(self, key_states, value_states, layer_idx, *args, **kwargs):
                k, v = super().update(key_states, value_states, layer_idx, *args, **kwargs)
                kv_len = k.shape[1]  # KV503
                return k[:, -self.window :], v[:, -self.window :]  # KV504
        """,
    "layers of two caches": """
        import torch
        from transformers import DynamicCache

        def merge(a: DynamicCache, b: DynamicCache):
            for x, y in zip(a.layers, b.layers):
                x.keys = torch.cat([x.keys, y.keys], dim=1)  # KV501
        """,
    "iterated with a rest": """
        from transformers import DynamicCache

        def lens(cache: DynamicCache):
            for k, v, *_ in cache:
                seq_len = k.size(1)  # KV503
        """,
    "a length returned": """
        from transformers import DynamicCache

        def past_len(c: DynamicCache):
            return c.layers[0].keys.shape[1]  # KV503
        """,
    "a registered buffer": """
        class KVCache(torch.nn.Module):
            def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
                super().__init__()
                self.register_buffer("k_cache", torch.zeros(max_batch_size, n_heads, max_seq_length, head_dim))

            def update(self, input_pos, k_val):
                self.k_cache[:, input_pos] = k_val  # KV501
        """,
    "a registered buffer, index_copy_": """
        class KVCache(torch.nn.Module):
            def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
                super().__init__()
                self.register_buffer("k_cache", torch.zeros(max_batch_size, n_heads, max_seq_length, head_dim))

            def update(self, input_pos, k_val):
                self.k_cache.index_copy_(1, input_pos, k_val)  # KV501
        """,
    "a buffer of the class": """
        class Attention(torch.nn.Module):
            def __init__(self, args):
                super().__init__()
                self.cache_k = torch.zeros(args.max_batch_size, args.n_heads, args.max_seq_len, args.head_dim)

            def forward(self, xk, bsz, start_pos, seqlen):
                self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk  # KV501
        """,
    "a buffer whose shape has a name": """
        class KVCache(nn.Module):
            def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
                super().__init__()
                cache_shape = (max_batch_size, n_heads, max_seq_length, head_dim)
                self.register_buffer("k_cache", torch.zeros(cache_shape))
                self.register_buffer("v_cache", torch.zeros(cache_shape))

            def update(self, input_pos, k_val, v_val):
                k_out = self.k_cache
                v_out = self.v_cache
                k_out[:, input_pos] = k_val  # KV501
                v_out[:, :, input_pos] = v_val
                return k_out, v_out
        """,
    "a buffer that new keys do not fit": """
        class Attention(nn.Module):
            def __init__(self, args):
                self.cache_k = torch.zeros((args.max_batch_size, args.n_heads, args.max_seq_len, args.head_dim)).cuda()

            def forward(self, x, start_pos):
                bsz, seqlen, _ = x.shape
                xk = self.wk(x).view(bsz, seqlen, self.n_heads, self.head_dim)
                self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk  # KV501
        """,
    "members of a cache": """
        class B(torch.nn.Module):
            def attribute(self, x, kv_cache):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                return torch.cat([kv_cache.k, k], dim=1)  # KV501

            def plural(self, x, kv_cache):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                return torch.cat([kv_cache.keys, k], dim=1)  # KV501

            def get(self, x, kv_cache):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                return torch.cat([kv_cache.get("k"), k], dim=1)  # KV501

            def state(self, x, state):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                return torch.cat([state["k"], k], dim=1)  # KV501
        """,
    "repeat_kv before the transpose": """
        from transformers.models.llama.modeling_llama import repeat_kv

        class C(torch.nn.Module):
            def forward(self, x):
                b, s, _ = x.shape
                k = self.wk(x).view(b, s, self.num_key_value_heads, self.hd)
                return repeat_kv(k, self.num_key_value_groups).transpose(1, 2)  # KV602
        """,
    "repeat_kv of the file, before the transpose": """
        def repeat_kv(hidden_states, n_rep):
            batch, num_key_value_heads, slen, head_dim = hidden_states.shape
            if n_rep == 1:
                return hidden_states
            hidden_states = hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
            return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)

        class C(torch.nn.Module):
            def forward(self, x):
                b, s, _ = x.shape
                k = self.wk(x).view(b, s, self.num_key_value_heads, self.hd)
                return repeat_kv(k, self.num_key_value_groups).transpose(1, 2)  # KV602
        """,
    "expanded and flattened": """
        def repeat_keys(k, n_rep):
            b, n_kv, s, d = k.shape
            return k[:, None].expand(b, n_rep, n_kv, s, d).flatten(1, 2)  # KV602
        """,
    "stacked and flattened": """
        def repeat_keys(k, n_rep):
            b, n_kv, s, d = k.shape
            return torch.stack([k] * n_rep, 1).flatten(1, 2)  # KV602
        """,
    "einsum projects": """
        def forward(self, x, past_k, w_k):
            k = torch.einsum("bsd,dhk->bhsk", x, w_k)
            return torch.cat([past_k, k], dim=1)  # KV501
        """,
    "einsum projects, jax": """
        import jax.numpy as jnp

        def forward(x, past_k, w_k):
            k = jnp.einsum("bsd,dhk->bhsk", x, w_k)
            return jnp.concatenate([past_k, k], axis=1)  # KV501
        """,
    "numpy transposes": """
        import numpy as np

        def forward(x, past_k, w_k, heads, head_dim):
            b, s, _ = x.shape
            k = np.transpose((x @ w_k).reshape(b, s, heads, head_dim), (0, 2, 1, 3))
            return np.concatenate([past_k, k], axis=3)  # KV502
        """,
    "jax transposes": """
        import jax.numpy as jnp

        def forward(x, past_k, w_k, heads, head_dim):
            b, s, _ = x.shape
            k = (x @ w_k).reshape(b, s, heads, head_dim).transpose(0, 2, 1, 3)
            return jnp.concatenate([past_k, k], axis=3)  # KV502
        """,
    "a past taken apart": """
        class D(torch.nn.Module):
            def unbound(self, x, past):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                pk, pv = past.unbind(0)
                return torch.cat([pk, k], 1)  # KV501

            def chunked(self, x, past):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                pk, pv = past.chunk(2)
                return torch.cat([pk, k], 1)  # KV501
        """,
    "all three in one comprehension": """
        def forward(self, x, past_k):
            b, s, _ = x.shape
            qkv = self.qkv(x).chunk(3, dim=-1)
            q, k, v = (t.view(b, s, self.num_heads, self.head_dim).transpose(1, 2) for t in qkv)
            return torch.cat([past_k, k], dim=1)  # KV501
        """,
    "flash attention with a cache": """
        from flash_attn import flash_attn_with_kvcache

        def forward(self, x, k_cache, v_cache):
            b, s, _ = x.shape
            q = self.q(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
            k = self.k(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
            v = self.v(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
            return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, causal=True)  # KV505
        """,
    "a remainder with the heads of a configuration": """
        class E:
            def pick(self, keys):
                out = []
                for i in range(self.config.num_attention_heads):
                    out.append(keys[:, i % self.config.num_key_value_heads])  # KV601
                return out
        """,
    "a remainder of any number": """
        class M(nn.Module):
            def loop(self, q, k, v):
                for i in range(q.shape[1]):
                    a = q[:, i] @ k[:, i % self.config.num_key_value_heads].transpose(-1, -2)  # KV601

            def get(self, key_states, i):
                return key_states[:, i % self.config.num_key_value_heads]  # KV601
        """,
    "an index of tiled heads": """
        def expand(keys, n_kv, n_rep):
            idx = torch.arange(n_kv).repeat(n_rep)
            return keys[:, idx]  # KV602
        """,
}


@pytest.mark.parametrize("name", BAD)
def test_reported(name: str) -> None:
    text = textwrap.dedent(BAD[name])
    assert set(found(text, CODES)) == set(lines_marked(text))


GOOD = {
    "a length of tuples that a model of one's own lays out": """
        from transformers import GenerationConfig

        class QWen(Base):
            def get_past_key_values_cache_seq_len(self, past_key_values):
                return past_key_values[0][0].shape[1]
        """,
    "a head dim that the configuration is asked for": """
        def kv_cache_bytes(config, tokens, batch):
            head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * 2
            return per_token * tokens * batch / 1024**3
        """,
    "a ratio that is applied to the product": """
        def kv_cache_bytes(config, tokens):
            mha = 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * tokens * 2
            size = mha * config.num_key_value_heads
            return size // config.num_attention_heads
        """,
    "attributes with a fallback": """
        class Estimator:
            def __init__(self, config):
                self.num_layers = config.num_hidden_layers
                self.num_heads = config.num_attention_heads
                self.num_kv_heads = getattr(config, "num_key_value_heads", None) or self.num_heads
                self.head_dim = config.head_dim

            def kv_cache_bytes(self, n):
                return 2 * self.num_layers * self.num_kv_heads * self.head_dim * n * 2

            def attention_flops(self, n):
                return 2 * self.num_layers * self.num_heads * self.head_dim * n * n
        """,
    "a module that makes its keys with all heads": """
        class Attention(torch.nn.Module):
            def __init__(self, config):
                super().__init__()
                self.num_heads = config.num_attention_heads
                self.head_dim = config.hidden_size // config.num_attention_heads
                self.k_proj = torch.nn.Linear(config.hidden_size, self.num_heads * self.head_dim)

            def kv_cache_bytes(self, n):
                return 2 * self.num_heads * self.head_dim * n * 2
        """,
    "a configuration of one model under a short name": """
        from transformers import GPT2Config

        def kv_cache_bytes(tokens):
            c = GPT2Config.from_pretrained("gpt2")
            return 2 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * tokens * 2
        """,
    "steps with a ratio": """
        def kv_cache_bytes(config, tokens):
            size = 2 * config.num_hidden_layers
            size *= config.num_attention_heads
            size *= config.head_dim
            size //= config.num_attention_heads // config.num_key_value_heads
            return size * tokens
        """,
    "steps with the kv heads": """
        def kv_cache_bytes(config, tokens):
            size = 2 * config.num_hidden_layers
            size *= config.num_key_value_heads
            size *= config.head_dim
            return size * tokens
        """,
    "a dict of models, read whole": """
        MODELS = {"small": {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128}}

        def kv_cache_bytes(name, tokens):
            m = MODELS[name]
            heads = m["kv_heads"] or m["heads"]
            return 2 * m["layers"] * heads * m["head_dim"] * tokens * 2
        """,
    "a shape of the output": """
        def forward_with_kv_cache(config, b, n):
            shape = (b, config.num_attention_heads, n, config.head_dim)
            out = torch.zeros(shape)
            return out
        """,
    "the shape idiom, transposed": """
        from transformers.models.llama.modeling_llama import LlamaAttention

        class A(LlamaAttention):
            def forward(self, hidden_states, position_embeddings, attention_mask=None, cache=None, **kw):
                shape = (*hidden_states.shape[:-1], -1, self.head_dim)
                k = self.k_proj(hidden_states).view(shape).transpose(1, 2)
                v = self.v_proj(hidden_states).view(shape).transpose(1, 2)
                k, v = cache.update(k, v, self.layer_idx)
                return k, v
        """,
    "a subclass that lays out its cache itself": """
        from transformers import DynamicCache

        class Base(DynamicCache):
            def update(self, key_states, value_states, layer_idx, cache_kwargs=None):
                return self.append(key_states, value_states)

        class W(Base):
            def update(self, key_states, value_states, layer_idx, cache_kwargs=None):
                k, v = super().update(key_states, value_states, layer_idx, cache_kwargs)
                kv_len = k.shape[1]
                return k[:, -self.window :], v[:, -self.window :]
        """,
    "the sequence of a cache": """
        import torch
        from transformers import DynamicCache

        def merge(a: DynamicCache, b: DynamicCache):
            for x, y in zip(a.layers, b.layers):
                x.keys = torch.cat([x.keys, y.keys], dim=-2)
                x.values = torch.cat([x.values, y.values], dim=0)

        def past_len(c: DynamicCache):
            for k, v, *_ in c:
                seq_len = k.size(2)
            return c.layers[0].keys.shape[-2]

        def num_heads(c: DynamicCache):
            return c.layers[0].keys.shape[1]
        """,
    "buffers that are sequence first, or written on the sequence": """
        class First(torch.nn.Module):
            def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
                super().__init__()
                self.register_buffer("k_cache", torch.zeros(max_batch_size, max_seq_length, n_heads, head_dim))

            def update(self, input_pos, k_val, start, n):
                self.k_cache[:, input_pos] = k_val
                self.k_cache.index_copy_(1, input_pos, k_val)
                self.k_cache[:, start : start + n] = k_val

        class Second(torch.nn.Module):
            def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim):
                super().__init__()
                self.register_buffer("k_cache", torch.zeros(max_batch_size, n_heads, max_seq_length, head_dim))

            def update(self, input_pos, k_val, start, n):
                self.k_cache[:, :, input_pos] = k_val
                self.k_cache.index_copy_(2, input_pos, k_val)
                self.k_cache[:, :, start : start + n] = k_val
        """,
    "one token of a buffer": """
        class Step(torch.nn.Module):
            def __init__(self, batch, length, n_heads, head_dim):
                super().__init__()
                self.k_cache = torch.zeros(batch, n_heads, length, head_dim)

            def update(self, x, pos):
                b, s, _ = x.shape
                k = self.k_proj(x).view(b, self.n_heads, self.head_dim)
                self.k_cache[:, :, pos] = k
        """,
    "members of a cache, on the sequence": """
        class B(torch.nn.Module):
            def attribute(self, x, kv_cache, state):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                one = torch.cat([kv_cache.k, k], dim=2)
                two = torch.cat([kv_cache.get("k"), k], dim=-2)
                return one, two, torch.cat([state["k"], k], dim=2)
        """,
    "repeat_kv behind the transpose": """
        from transformers.models.llama.modeling_llama import repeat_kv

        class C(torch.nn.Module):
            def forward(self, x):
                b, s, _ = x.shape
                k = self.wk(x).view(b, s, self.num_key_value_heads, self.hd).transpose(1, 2)
                return repeat_kv(k, self.num_key_value_groups)
        """,
    "repeat_kv for sequence first": """
        def repeat_kv(x, n_rep):
            bs, slen, n_kv_heads, head_dim = x.shape
            if n_rep == 1:
                return x
            x = x[:, :, :, None, :].expand(bs, slen, n_kv_heads, n_rep, head_dim)
            return x.reshape(bs, slen, n_kv_heads * n_rep, head_dim)

        class C(torch.nn.Module):
            def forward(self, x):
                b, s, _ = x.shape
                k = self.wk(x).view(b, s, self.num_key_value_heads, self.hd)
                return repeat_kv(k, self.num_key_value_groups).transpose(1, 2)
        """,
    "repeated in place": """
        def expand_keys(k, n_rep):
            b, n_kv, s, d = k.shape
            one = k[:, :, None].expand(b, n_kv, n_rep, s, d).flatten(1, 2)
            two = torch.stack([k] * n_rep, 2).flatten(1, 2)
            return one, two, k[:, torch.arange(n_kv).repeat_interleave(n_rep)]
        """,
    "einsum projects, joined on the sequence": """
        def forward(self, x, past_k, w_k):
            k = torch.einsum("bsd,dhk->bhsk", x, w_k)
            first = torch.einsum("bsd,dhk->bshk", x, w_k)
            return torch.cat([past_k, k], dim=2), torch.cat([self.old_keys, first], dim=1)
        """,
    "a past taken apart, on the sequence": """
        class D(torch.nn.Module):
            def unbound(self, x, past):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.n_heads, -1).transpose(1, 2)
                pk, pv = past.unbind(0)
                return torch.cat([pk, k], 2)
        """,
    "flash attention with a cache": """
        from flash_attn import flash_attn_with_kvcache

        def forward(self, x, k_cache, v_cache):
            b, s, _ = x.shape
            q = self.q(x).view(b, s, self.num_heads, self.head_dim)
            k = self.k(x).view(b, s, self.num_heads, self.head_dim)
            v = self.v(x).view(b, s, self.num_heads, self.head_dim)
            return flash_attn_with_kvcache(q, k_cache, v_cache, k, v, causal=True)
        """,
}


@pytest.mark.parametrize("name", GOOD)
def test_right_code_that_looks_alike(name: str) -> None:
    assert found(textwrap.dedent(GOOD[name]), CODES) == []


def messages(text: str, code: str, target: str = "latest") -> list[str]:
    return [f"{one.message}; {one.help}" for one in lint(text, target, codes={code})]


@pytest.mark.parametrize(
    "view",
    [
        "reshape(bs, n, self.h, -1).permute(0, 2, 1, 3)",
        "view(bs, n, self.num_heads, self.head_dim).transpose(1, 2)",
    ],
)
def test_a_length_does_not_make_its_own_axis_the_sequence(view: str) -> None:
    text = textwrap.dedent(
        f"""
        class A(torch.nn.Module):
            def forward(self, x, layer_past=None):
                bs, n, _ = x.size()
                k = self.k(x).{view}
                offset = 0
                if layer_past is not None:
                    offset = layer_past[0].shape[1]
                    k = torch.cat([layer_past[0], k], dim=2)
                cos, sin = self.rope(n, offset=offset)
                return k
        """
    )
    (message,) = messages(text, "KV503")
    assert "the heads of [batch, heads, " in message
    assert "the sequence is axis -2" in message
    assert "offset = layer_past[0].shape[-2]" in fixed(text, codes={"KV503"})


GUARDED = {
    "KV501": """
        import torch
        import transformers
        from packaging import version

        class A(torch.nn.Module):
            def forward(self, x, past_k):
                b, s, _ = x.shape
                k = self.k(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)
                if version.parse(transformers.__version__) < version.parse("5.0.0"):
                    return torch.cat([past_k, k], dim=1)
                return torch.cat([past_k, k], dim=2)
        """,
    "KV601": """
        import transformers
        from packaging import version

        def pick(keys, num_heads, num_kv_heads):
            if version.parse(transformers.__version__) >= version.parse("5.0.0"):
                return None
            return [keys[:, h % num_kv_heads] for h in range(num_heads)]
        """,
    "KV701": """
        import transformers
        from packaging import version

        def kv_cache_bytes(config, tokens):
            if version.parse(transformers.__version__) < version.parse("5.0.0"):
                return 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * tokens * 2
            return 0
        """,
}


@pytest.mark.parametrize("code", GUARDED)
def test_only_where_a_release_in_force_gets_there(code: str) -> None:
    text = textwrap.dedent(GUARDED[code])
    assert not lint(text, ">=5", codes={code})
    (old,) = lint(text, ">=4.40", codes={code})
    (oldest,) = lint(text, "==4.57.6", codes={code})
    assert oldest.releases <= old.releases
    assert not old.releases & releases(">=5")


def test_a_latent_cache_of_an_old_release() -> None:
    text = textwrap.dedent(
        """
        import transformers
        from packaging import version

        def kv_cache_bytes(config, tokens):
            if version.parse(transformers.__version__) < version.parse("5"):
                return config.num_attention_heads * (config.qk_nope_head_dim + config.v_head_dim) * tokens * 2
            return (config.kv_lora_rank + config.qk_rope_head_dim) * tokens * 2
        """
    )
    assert not lint(text, ">=4.40", codes={"KV702"})


def test_a_model_with_as_many_layers_as_query_heads() -> None:
    """Llama-3-8B and Mistral-7B have 32 of both: 32 beside 8 kv heads are the layers."""
    head = '"""KV cache of Mistral-7B."""\n\n'
    assert lines(head + "kv_cache = 2 * 32 * 8 * 128 * 4096 * 2\n", codes=("KV701",)) == set()
    assert lines(head + "kv_cache = 2 * 32 * 32 * 128 * 4096 * 2\n", codes=("KV701",)) == {(3, "KV701")}
    assert lines(head + "kv_cache = 2 * 32 * 32 * 128 * 8 * 2\n", codes=("KV701",)) == {(3, "KV701")}
    assert lines(head + "kv_cache = 2 * 32 * 4096 * 8192 * 2\n", codes=("KV701",)) == {(3, "KV701")}


def test_a_fallback_for_configurations_without_kv_heads() -> None:
    text = """
def kv(config, n):
    try:
        heads = config.num_key_value_heads
    except AttributeError:
        heads = config.num_attention_heads
    return {"kv_cache": 2 * config.num_hidden_layers * heads * config.head_dim * n}
"""
    assert lines(text, codes=("KV701",)) == set()
    assert lines(text.replace("num_key_value_heads", "num_attention_heads"), codes=("KV701",)) == {(7, "KV701")}


def test_the_transformer_of_a_diffusion_pipeline() -> None:
    text = """
import torch
from diffusers import DiffusionPipeline


class Pipe(DiffusionPipeline):
    def alloc(self, b, n):
        kv_cache = {}
        for i in range(self.transformer.config.num_layers):
            heads, dim = self.transformer.config.num_attention_heads, self.transformer.config.attention_head_dim
            kv_cache[i] = {"k": torch.zeros(b, self.transformer.config.num_attention_heads, n, dim)}
        return kv_cache
"""
    assert lines(text, codes=("KV701",)) == set()
    assert lines(text.replace("diffusers", "pipelines"), codes=("KV701",)) == {(11, "KV701")}
