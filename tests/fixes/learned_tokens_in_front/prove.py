import torch
from code import *

m = build()
ids = torch.tensor([[3, 4, 5]])
with torch.no_grad():
    want = ids
    for _ in range(6):
        want = torch.cat([want, m(want).logits[:, -1:].argmax(-1)], 1)
assert write(m, ids).tolist() == want.tolist()
print("OK")
