import torch
from code import *
torch.manual_seed(0)
q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
want = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).view(1, 2, 2, 5, 8).transpose(1, 2).reshape(1, 4, 5, 8)
assert torch.allclose(run(q, k, v), want, atol=1e-5)
print("OK")
