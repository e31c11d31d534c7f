import torch


def spread(query, key, value, num_heads, num_kv_heads):
    """Heads lie interleaved in both: query head h belongs to kv head h % num_kv_heads."""
    out = []
    for h in range(num_heads):
        kv_head = h % num_kv_heads
        out.append(torch.softmax(query[:, h] @ key[:, kv_head].transpose(-1, -2), -1) @ value[:, kv_head])
    return torch.stack(out, 1)


def project(x, wq, wk, wv, num_heads, num_kv_heads, dim):
    batch, steps, _ = x.shape
    query = (x @ wq).view(batch, steps, num_heads // num_kv_heads, num_kv_heads, dim).flatten(2, 3).transpose(1, 2)
    key = (x @ wk).view(batch, steps, num_kv_heads, dim).transpose(1, 2)
    value = (x @ wv).view(batch, steps, num_kv_heads, dim).transpose(1, 2)
    return spread(query, key, value, num_heads, num_kv_heads)
