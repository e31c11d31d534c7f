import torch
from transformers import LlamaForCausalLM
from code import *

m, p = build(), build(LlamaForCausalLM)
ids = torch.tensor([[3, 4, 5, 9]])
with torch.no_grad():
    emb = p.get_input_embeddings()(ids)
    assert (
        m.generate(ids, max_new_tokens=5, do_sample=False).tolist()
        == p.generate(ids, max_new_tokens=5, do_sample=False).tolist()
    )
    assert (
        m.generate(inputs_embeds=emb, max_new_tokens=5, do_sample=False).tolist()
        == p.generate(inputs_embeds=emb, max_new_tokens=5, do_sample=False).tolist()
    )
print("OK")
