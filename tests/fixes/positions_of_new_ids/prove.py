import torch
from transformers import DynamicCache
from code import *

m = build()
c = DynamicCache()
with torch.no_grad():
    m(torch.tensor([[3, 4, 5]]), past_key_values=c)
    got = continue_(m, c, torch.tensor([[6]]))[:, -3:]
    want = m.generate(torch.tensor([[3, 4, 5, 6]]), max_new_tokens=3, do_sample=False)[:, -3:]
assert got.tolist() == want.tolist()
print("OK")
