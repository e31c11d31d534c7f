"""Head maps: remainders and tiles, and right code that looks alike."""

from __future__ import annotations

import ast
import textwrap

import pytest
from analysing import lint
from layout_helpers import found, lines_marked

from kvlint.carriers.regions import edited
from kvlint.findings import Applicability, Category

CODES = "KV601 KV602"

BAD = {
    "index in place": """
        def attend(q, k, v, n_heads, n_kv_heads):
            return [q[:, h] @ k[:, h % n_kv_heads].mT for h in range(n_heads)]  # KV601
        """,
    "through a variable": """
        def attend(q, k_cache, v_cache, num_heads, num_kv_heads):
            for head in range(num_heads):
                kv_head = head % num_kv_heads  # KV601
                scores = q[head] @ k_cache[kv_head].T
        """,
    "list of indices": """
        def expand(k, num_q_heads, num_kv_heads):
            index = [i % num_kv_heads for i in range(num_q_heads)]  # KV601
            return k[:, index]
        """,
    "all at once": """
        def expand(k, num_q_heads, num_kv_heads):
            index = torch.arange(num_q_heads) % num_kv_heads  # KV601
            return k.index_select(1, index)
        """,
    "triton": """
        @triton.jit
        def kernel(Q, K, V, stride_qh, stride_kh, stride_kn, H_KV: tl.constexpr):
            off_h = tl.program_id(1)
            off_hk = off_h % H_KV  # KV601
            k_ptr = K + off_hk * stride_kh
        """,
    "counts from shapes": """
        def attend(q, k, v):
            n_q = q.shape[1]
            n_groups_of_keys = k.shape[1]
            for h in range(n_q):
                j = h % n_groups_of_keys  # KV601
                yield q[:, h] @ k[:, j].transpose(-1, -2)
        """,
    "repeat": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_key_value_heads, self.head_dim).transpose(1, 2)
            k = k.repeat(1, self.num_key_value_groups, 1, 1)  # KV602
            return k
        """,
    "repeat, sequence first": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.wk(x).view(b, s, self.n_kv_heads, self.head_dim)
            v = self.wv(x).view(b, s, self.n_kv_heads, self.head_dim)
            k = k.repeat(1, 1, self.n_heads // self.n_kv_heads, 1)  # KV602
            v = torch.tile(v, (1, 1, self.n_rep, 1))  # KV602
            return k, v
        """,
    "numpy tile": """
        import numpy as np

        def expand(k, n_rep):
            b, n_kv_heads, s, head_dim = k.shape
            return np.tile(k, (1, n_rep, 1, 1))  # KV602
        """,
    "concatenated copies": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_kv_heads, self.head_dim).transpose(1, 2)
            k = torch.cat([k] * self.n_rep, dim=1)  # KV602
            return k
        """,
    "copies from a comprehension": """
        def forward(self, x, n_rep):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_kv_heads, self.head_dim).transpose(1, 2)
            k = torch.cat([k for _ in range(n_rep)], dim=1)  # KV602
            return k
        """,
    "expanded in front of the heads": """
        def repeat_kv(k, n_rep):
            b, n_kv_heads, s, head_dim = k.shape
            k = k.unsqueeze(1).expand(b, n_rep, n_kv_heads, s, head_dim)
            return k.reshape(b, n_rep * n_kv_heads, s, head_dim)  # KV602
        """,
    "einops": """
        from einops import repeat

        def expand(k, groups):
            return repeat(k, "b h s d -> b (g h) s d", g=groups)  # KV602
        """,
    "interleaved along the sequence": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_kv_heads, self.head_dim)
            k = k.repeat_interleave(self.n_rep, dim=1)  # KV602
            return k
        """,
    "groups of a state-space model": """
        def scan(self, B, batch, seq_len):
            B = B.reshape(batch, seq_len, self.n_groups, self.ssm_state_size)
            B = B.repeat(1, 1, self.num_heads // self.n_groups, 1)  # KV602
            return B
        """,
}

GOOD = {
    "divisibility": """
        def check(n_heads, n_kv_heads):
            assert n_heads % n_kv_heads == 0
            if n_heads % n_kv_heads:
                raise ValueError("not divisible")
        """,
    "flat index": """
        def kernel(K, stride_kb, stride_kh, n_kv_heads):
            off_h = tl.program_id(0)
            off_b = off_h // n_kv_heads
            head = off_h % n_kv_heads
            return K + off_b * stride_kb + head * stride_kh
        """,
    "the quotient": """
        def attend(q, k, n_heads, n_kv_heads):
            return [q[:, h] @ k[:, h // (n_heads // n_kv_heads)].mT for h in range(n_heads)]
        """,
    "not keys": """
        def colour(palette, n_heads, n_kv_heads):
            return [palette[h % n_kv_heads] for h in range(n_heads)]
        """,
    "the batch repeated": """
        def beams(k, num_beams):
            b, n_kv_heads, s, head_dim = k.shape
            return k.repeat(num_beams, 1, 1, 1)
        """,
    "repeated behind a new axis": """
        def repeat_kv(k, n_rep):
            b, n_kv_heads, s, head_dim = k.shape
            return k.unsqueeze(2).repeat(1, 1, n_rep, 1, 1).view(b, -1, s, head_dim)
        """,
    "flat view of sequence and heads": """
        def repeat_kv(k, n_rep):
            b, n_kv_heads, s, head_dim = k.shape
            return k.repeat(1, 1, n_rep, 1).view(b, n_kv_heads * n_rep, s, head_dim)
        """,
    "interleaved": """
        def forward(self, x):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_kv_heads, self.head_dim).transpose(1, 2)
            k = torch.repeat_interleave(k, self.n_rep, dim=1)
            k = k.repeat_interleave(dim=1, repeats=self.n_rep)
            return k
        """,
    "two layouts by branch": """
        def expand(x_kv, n_rep, first):
            if first:
                bs, n_kv_heads, slen, head_dim = x_kv.shape
                return x_kv[:, :, None].expand(bs, n_kv_heads, n_rep, slen, head_dim).reshape(bs, n_kv_heads * n_rep, slen, head_dim)
            bs, slen, n_kv_heads, head_dim = x_kv.shape
            return x_kv[:, :, :, None].expand(bs, slen, n_kv_heads, n_rep, head_dim).reshape(bs, slen, n_kv_heads * n_rep, head_dim)
        """,
    "a mask for the heads": """
        def widen(mask, n_rep):
            b, heads, s, t = mask.shape
            return mask.repeat(1, n_rep, 1, 1)
        """,
    "queries in the same order": """
        def attend(q, k, n_rep, n_kv_heads):
            b, _, s, head_dim = q.shape
            q = q.view(b, n_rep, n_kv_heads, s, head_dim).flatten(1, 2)
            b, n_kv_heads, t, head_dim = k.shape
            return q @ k.repeat(1, n_rep, 1, 1).mT
        """,
    "a number of copies that is no group": """
        def forward(self, x, num_samples):
            b, s, _ = x.shape
            k = self.k_proj(x).view(b, s, self.num_kv_heads, self.head_dim).transpose(1, 2)
            return k.repeat(1, num_samples, 1, 1)
        """,
}


def module(text: str) -> str:
    return "import torch\nimport triton.language as tl\n" + textwrap.dedent(text)


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    text = module(BAD[name])
    assert found(text, CODES) == lines_marked(text)


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    assert found(module(GOOD[name]), CODES) == []


GROUPS = {
    "fields of a config": (
        """
        class Attention(nn.Module):
            def __init__(self, config):
                self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        """,
        1,
    ),
    "attributes that were read from it": (
        """
        class Attention(nn.Module):
            def __init__(self, config):
                self.num_heads = config.num_attention_heads
                self.num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
                self.n_rep = self.num_heads // self.num_kv_heads
        """,
        1,
    ),
    "items of a dict": (
        """
        def groups(config):
            return config["num_attention_heads"] // config["num_key_value_heads"]
        """,
        1,
    ),
    "asserted": (
        """
        class Attention(nn.Module):
            def __init__(self, config):
                assert config.num_attention_heads % config.num_key_value_heads == 0
                self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        """,
        0,
    ),
    "tested by the config class": (
        """
        class Config:
            def __init__(self, num_attention_heads, num_key_value_heads):
                if num_attention_heads % num_key_value_heads != 0:
                    raise ValueError("heads")


        class Attention(nn.Module):
            def __init__(self, config):
                self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        """,
        0,
    ),
    "multiplied back": (
        """
        class Attention(nn.Module):
            def __init__(self, config):
                self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
                if self.num_key_value_groups * config.num_key_value_heads != config.num_attention_heads:
                    raise ValueError("heads")
        """,
        0,
    ),
    "parameters": ("def groups(n_heads, n_kv_heads):\n    return n_heads // n_kv_heads\n", 0),
    "shapes": ("def groups(q, k):\n    return q.shape[1] // k.shape[1]\n", 0),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_that_need_not_be_whole_are_only_counted(name: str) -> None:
    code, count = GROUPS[name]
    text = textwrap.dedent(code)
    items = lint(text, codes=("KV601",))
    assert [item.category for item in items] == [Category.UNDECIDED] * count
    for item in items:
        assert item.fix is None or item.fix.applicability is Applicability.SHOWN
        if item.fix is not None:
            ast.parse(edited(text, item.fix.edits))
