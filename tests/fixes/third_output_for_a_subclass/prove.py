import torch
from code import *

m = build()
with torch.no_grad():
    m.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=3, do_sample=False)
print("OK")
