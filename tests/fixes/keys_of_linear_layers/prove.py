import torch
from code import *

m = build()
with torch.no_grad():
    assert memory(m, torch.tensor([[3, 4, 5]])) == 3 * 2 * 8
print("OK")
