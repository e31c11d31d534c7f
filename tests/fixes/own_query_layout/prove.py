import torch
from code import *

torch.manual_seed(0)
x, wq, wk, wv = torch.randn(1, 5, 16), torch.randn(16, 32), torch.randn(16, 16), torch.randn(16, 16)
got = project(x, wq, wk, wv, 4, 2, 8)
q = (x @ wq).view(1, 5, 2, 2, 8)  # group, kv head
k = (x @ wk).view(1, 5, 2, 8)
v = (x @ wv).view(1, 5, 2, 8)
want = torch.einsum(
    "bgksp,bksd->bgkpd" if False else "bgkpt,bgktd->bgkpd",
    torch.softmax(torch.einsum("bpgkd,btkd->bgkpt", q, k), -1),
    v.permute(0, 2, 1, 3)[:, None].expand(1, 2, 2, 5, 8),
).flatten(1, 2)
assert torch.allclose(got, want, atol=1e-5)
print("OK")
