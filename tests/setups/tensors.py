"""Queries, keys and values of 2 rows, 4 query heads, 2 kv heads, 5 tokens and head dim 8."""

from __future__ import annotations

b, h, kv, s, d = 2, 4, 2, 5, 8
_random = torch.Generator().manual_seed(0)
q = torch.randn(b, h, s, d, generator=_random)
k = torch.randn(b, kv, s, d, generator=_random)
v = torch.randn(b, kv, s, d, generator=_random)
