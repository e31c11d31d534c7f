"""The idioms that establish a layout, and what they establish."""

from __future__ import annotations

import pytest
from layout_helpers import last_tensor, layout_of, layouts_of

HEADS_FIRST = "[batch, heads, sequence, head dim]"
SEQUENCE_FIRST = "[batch, sequence, heads, head dim]"
TRANSPOSED = "[batch, heads, head dim, sequence]"

CLASS = """
class Attention(nn.Module):
    def __init__(self, config):
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // self.num_heads
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)

    def _split_heads(self, x):
        return x.view(*x.shape[:-1], self.num_heads, self.head_dim){suffix}

    def _shape(self, tensor, length, bsz):
        return tensor.view(bsz, length, self.num_heads, self.head_dim).transpose(1, 2).contiguous()

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_heads, self.head_dim)
        return x.view(new_shape).permute(0, 2, 1, 3)

    def forward(self, x):
        b, s, _ = x.shape
        {body}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            "k = self.k_proj(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)",
            HEADS_FIRST,
            id="view transpose",
        ),
        pytest.param(
            "k = self.k_proj(x).view(b, -1, self.num_heads, self.head_dim).transpose(1, 2)", HEADS_FIRST, id="view -1"
        ),
        pytest.param("k = self.k_proj(x).view(b, s, -1, self.head_dim).transpose(1, 2)", HEADS_FIRST, id="heads -1"),
        pytest.param("k = self.k_proj(x).view(b, s, 4, 8).transpose(1, 2)", HEADS_FIRST, id="bare numbers"),
        pytest.param(
            "k = self.k_proj(x); k = k.view(b, s, self.num_heads, self.head_dim); k = k.transpose(1, 2)",
            HEADS_FIRST,
            id="in steps",
        ),
        pytest.param(
            "k = self.k_proj(x).reshape(b, s, self.num_heads, self.head_dim).permute(0, 2, 1, 3)",
            HEADS_FIRST,
            id="permute",
        ),
        pytest.param(
            "k = self.k_proj(x).reshape(b, s, self.num_heads, self.head_dim).permute(0, 2, 3, 1)",
            TRANSPOSED,
            id="keys transposed",
        ),
        pytest.param(
            "k = self.k_proj(x).unflatten(-1, (self.num_heads, self.head_dim)).swapaxes(1, 2)",
            HEADS_FIRST,
            id="unflatten",
        ),
        pytest.param("k = self.k_proj(x).view(b, s, self.num_heads, self.head_dim)", SEQUENCE_FIRST, id="no transpose"),
        pytest.param(
            "k = rearrange(self.k_proj(x), 'b s (h d) -> b h s d', h=self.num_heads)", HEADS_FIRST, id="rearrange"
        ),
        pytest.param(
            "k = rearrange(self.k_proj(x), 'b n (h d) -> b n h d', h=self.num_heads)",
            SEQUENCE_FIRST,
            id="rearrange, sequence first",
        ),
        pytest.param("k = self._shape(self.k_proj(x), -1, b)", HEADS_FIRST, id="helper with sizes"),
        pytest.param("k = self.transpose_for_scores(self.k_proj(x))", HEADS_FIRST, id="helper with a computed shape"),
        pytest.param("k = self._split_heads(self.k_proj(x))", SEQUENCE_FIRST, id="helper without the transpose"),
        pytest.param(
            "q, k, v = self.qkv(x).chunk(3, dim=-1); k = self._shape(k, s, b)", HEADS_FIRST, id="fused, chunked"
        ),
        pytest.param(
            "q, k, v = self.qkv(x).view(b, s, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)",
            HEADS_FIRST,
            id="fused, five axes",
        ),
        pytest.param(
            "qkv = self.qkv(x).reshape(b, s, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4); q, k, v = qkv.unbind(0)",
            HEADS_FIRST,
            id="fused, unbound",
        ),
        pytest.param(
            "q, k, v = map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h=self.num_heads), self.qkv(x).chunk(3, dim=-1))",
            HEADS_FIRST,
            id="mapped lambda",
        ),
        pytest.param(
            "q, k, v = [t.view(b, s, self.num_heads, self.head_dim).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1)]",
            HEADS_FIRST,
            id="comprehension",
        ),
        pytest.param(
            "k = np.transpose(self.k_proj(x).reshape(b, s, self.num_heads, self.head_dim), (0, 2, 1, 3))",
            HEADS_FIRST,
            id="numpy",
        ),
        pytest.param(
            "k = self.k_proj(x).reshape(b, s, self.num_heads, self.head_dim).transpose(0, 2, 1, 3)",
            HEADS_FIRST,
            id="numpy method",
        ),
        pytest.param(
            "k = self._shape(self.k_proj(x), s, b).view(b * self.num_heads, -1, self.head_dim)",
            "[batch x heads, sequence, head dim]",
            id="folded",
        ),
    ],
)
def test_idioms(body: str, expected: str) -> None:
    code = "import torch\nimport numpy as np\nfrom torch import nn\nfrom einops import rearrange\n" + CLASS.format(
        body=body.replace("; ", "\n        "), suffix=""
    )
    assert layout_of(code).replace("kv heads", "heads") == expected


def test_an_override_without_the_transpose_changes_the_answer() -> None:
    body = "k = self._split_heads(self.k_proj(x))"
    base = CLASS.format(body=body, suffix=".transpose(1, 2)")
    derived = base + (
        "\n\nclass FlashAttention(Attention):\n"
        "    def _split_heads(self, x):\n        return x.view(*x.shape[:-1], self.num_heads, self.head_dim)\n\n"
        "    def forward(self, x):\n        b, s, _ = x.shape\n        flash_k = self._split_heads(self.k_proj(x))\n"
    )
    assert layout_of(derived, "k") == HEADS_FIRST
    assert layout_of(derived, "flash_k") == SEQUENCE_FIRST


def test_branches_that_disagree_are_alternatives_and_not_one_layout() -> None:
    view = "k = self.k_proj(x).view(b, s, self.num_heads, self.head_dim)"
    body = f"{view}\n        if flag:\n            k = k.transpose(1, 2)\n        k = k.contiguous()"
    code = CLASS.format(body=body, suffix="")
    assert last_tensor(layouts_of(code), "k") is None


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("out = F.scaled_dot_product_attention(q, k.contiguous(), v)", {-2: "sequence", -1: "head dim"}),
        ("scores = torch.matmul(q, k.transpose(-1, -2))", {-2: "sequence", -1: "head dim"}),
        ("scores = torch.einsum('bhqd,bhkd->bhqk', q, k)", {0: "batch", 1: "heads", 2: "sequence", 3: "head dim"}),
        ("scores = torch.einsum('bqhd,bkhd->bhqk', q, k)", {0: "batch", 1: "sequence", 2: "heads", 3: "head dim"}),
        ("out = flash_attn_func(q, k, v)", {1: "sequence", 2: "heads", 3: "head dim"}),
        ("b, n_heads, s, head_dim = k.shape", {1: "heads", 2: "sequence"}),
    ],
)
def test_a_use_tells_the_layout_of_what_came_in(use: str, expected: dict[int, str]) -> None:
    imports = "import torch\nimport torch.nn.functional as F\nfrom flash_attn import flash_attn_func\n"
    code = f"{imports}\n\ndef attend(q, k, v):\n    k = k.clone()\n    {use}\n"
    layouts = layouts_of(code)
    tensor = last_tensor(layouts, "k")
    from kvlint.analysis.layout import unknown_tensor
    from kvlint.analysis.layout_values import Obj

    if tensor is None:
        bindings = [binding for binding in layouts.walk.trace or () if binding.name == "k"]
        atom = bindings[-1].value[0]
        assert isinstance(atom, Obj)
        tensor = unknown_tensor(atom.key)
    for index, role in expected.items():
        evidence = layouts.evidence(tensor, index)
        assert evidence is not None and evidence.role == role, index


def test_a_file_without_keys_and_values_costs_nothing() -> None:
    layouts = layouts_of("def add(a, b):\n    return a.view(3, 4).transpose(0, 1) + b\n")
    assert not layouts.walk.trace
    assert not layouts.walk.book.evidence
