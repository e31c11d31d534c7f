"""Sizes of caches: what is reported, and right code that looks alike."""

from __future__ import annotations

import textwrap

import pytest
from layout_helpers import found, lines_marked

CODES = "KV701 KV702 KV703"

BAD = {
    "another order": """
        def cache_bytes(config, seq_len, dtype_bytes):
            kv_cache = seq_len * config.num_attention_heads * config.head_dim * dtype_bytes * config.num_hidden_layers * 2  # KV701
            return kv_cache
        """,
    "through local variables": """
        def estimate_kv_cache(model, batch, tokens):
            cfg = model.config
            layers, heads = cfg.num_hidden_layers, cfg.num_attention_heads
            head_dim = cfg.head_dim
            total = batch * tokens * 2 * layers * heads * head_dim * 2  # KV701
            return total / 1024**3
        """,
    "in a report": """
        def report(config, tokens):
            print(f"KV cache: {2 * config.num_hidden_layers * config.hidden_size * tokens * 2 / 1e9:.2f} GB")  # KV701
        """,
    "under a key": """
        def plan(config, tokens):
            return {
                "weights": 2 * config.num_hidden_layers * config.hidden_size * 4,
                "kv_cache_bytes": 2 * config.num_hidden_layers * config.hidden_size * tokens * 2,  # KV701
            }
        """,
    "the docstring names it": """
        def per_token(config):
            \"\"\"Bytes of KV cache for each token.\"\"\"
            return 2 * config.num_hidden_layers * config["num_attention_heads"] * config["head_dim"] * 2  # KV701
        """,
    "kv heads at hand": """
        def kv_cache_size(n_layers, n_heads, n_kv_heads, head_dim, tokens):
            return 2 * n_layers * n_heads * head_dim * tokens * 2  # KV701
        """,
    "a buffer": """
        def init(model, config, batch, length):
            past_key_values = [
                (
                    torch.zeros(batch, config.num_attention_heads, length, config.head_dim),  # KV701
                    torch.zeros((batch, config.num_attention_heads, length, config.head_dim)),  # KV701
                )
                for _ in range(config.num_hidden_layers)
            ]
            return past_key_values
        """,
    "a known model by its numbers": """
        # Mistral-7B-v0.1 in bfloat16
        kv_bytes_per_token = 2 * 32 * 32 * 128 * 2  # KV701
        """,
    "a known model by its id": """
        from transformers import AutoConfig

        def kv_cache_gb(tokens):
            cfg = AutoConfig.from_pretrained("meta-llama/Llama-3.1-8B")
            return 2 * cfg.num_hidden_layers * cfg.hidden_size * tokens * 2 / 1e9  # KV701
        """,
    "mla by its fields": """
        def kv_cache_bytes(cfg, tokens):
            dims = cfg.qk_nope_head_dim + cfg.qk_rope_head_dim + cfg.v_head_dim
            return cfg.num_hidden_layers * cfg.num_attention_heads * dims * 2 * tokens  # KV702
        """,
    "mla by its branch": """
        def kv_cache_bytes(cfg, tokens):
            if getattr(cfg, "kv_lora_rank", None) is not None:
                return 2 * cfg.num_hidden_layers * cfg.num_attention_heads * cfg.head_dim * 2 * tokens  # KV702
            return 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * cfg.head_dim * 2 * tokens
        """,
    "derived head dim": """
        def kv_cache_bytes(cfg, tokens):
            head_dim = cfg.hidden_size // cfg.num_attention_heads  # KV703
            return 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * head_dim * 2 * tokens
        """,
    "derived in place": """
        def kv_cache_bytes(cfg, tokens):
            return 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * (cfg.hidden_size // cfg.num_attention_heads) * 2 * tokens  # KV703
        """,
    "kv heads beside them in a dict": """
        spec = {"layers": 80, "heads": 64, "kv_heads": 8, "head_dim": 128}
        kv_bytes = 2 * spec["layers"] * spec["heads"] * spec["head_dim"] * 2  # KV701
        """,
    "kv heads beside them in a class": """
        class Spec:
            n_layers: int
            n_heads: int
            n_kv_heads: int
            head_dim: int

        def kv_cache_bytes(spec: Spec, tokens):
            return 2 * spec.n_layers * spec.n_heads * spec.head_dim * tokens * 2  # KV701
        """,
    "inputs of an exported model": """
        def dummy_inputs(config, batch):
            inputs = {}
            head_dim = config.hidden_size // config.num_attention_heads  # KV703
            for i in range(config.num_hidden_layers):
                inputs[f"past_key_values.{i}.key"] = np.zeros((batch, config.num_attention_heads, 0, head_dim))  # KV701
            return inputs
        """,
    "a dict that holds it": """
        config = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
        head_dim = config["hidden_size"] // config["num_attention_heads"]  # KV703
        """,
    "a class of the file that holds it": """
        class MyConfig:
            hidden_size: int
            num_attention_heads: int
            head_dim: int

        def rope(config: MyConfig):
            return config.hidden_size // config.num_attention_heads  # KV703
        """,
}

GOOD = {
    "a ratio afterwards": """
        def kv_cache_bytes(cfg, tokens):
            size = 2 * cfg.num_hidden_layers * cfg.hidden_size * tokens * 2
            size //= cfg.num_attention_heads // cfg.num_key_value_heads
            return size
        """,
    "a ratio beside": """
        def kv_cache_bytes(cfg, tokens):
            return 2 * cfg.num_hidden_layers * cfg.hidden_size * cfg.num_key_value_heads / cfg.num_attention_heads * tokens * 2
        """,
    "a bare parameter": """
        def kv_cache_bytes(num_layers, num_heads, head_dim, tokens):
            return 2 * num_layers * num_heads * head_dim * tokens * 2
        """,
    "kv heads by a branch": """
        def kv_cache_bytes(cfg, tokens):
            if hasattr(cfg, "num_key_value_heads"):
                heads = cfg.num_key_value_heads
            else:
                heads = cfg.num_attention_heads
            head_dim = getattr(cfg, "head_dim", cfg.hidden_size // cfg.num_attention_heads)
            return 2 * cfg.num_hidden_layers * heads * head_dim * tokens * 2
        """,
    "kv heads by a default": """
        def kv_cache_bytes(cfg, tokens):
            heads = getattr(cfg, "num_key_value_heads", cfg.num_attention_heads)
            return 2 * cfg.num_hidden_layers * heads * cfg.head_dim * tokens * 2
        """,
    "a multi-head model by its id": """
        from transformers import AutoConfig

        def kv_cache_gb(tokens):
            cfg = AutoConfig.from_pretrained("openai-community/gpt2")
            return 2 * cfg.num_hidden_layers * cfg.hidden_size * tokens * 2 / 1e9
        """,
    "a multi-head model by its numbers": """
        # Llama-2-7B, 4096 tokens
        kv_cache_bytes = 1 * 4096 * 2 * 32 * 4096 * 2
        """,
    "operations, not bytes": """
        def flops(cfg, tokens):
            return 6 * cfg.num_hidden_layers * cfg.hidden_size * cfg.hidden_size * tokens

        def attention_flops(cfg, kv_len):
            return 4 * cfg.num_hidden_layers * cfg.num_attention_heads * cfg.head_dim * kv_len
        """,
    "the code of one model": """
        from transformers import GPT2Config

        class Attention:
            def __init__(self, config: GPT2Config):
                self.head_dim = config.hidden_size // config.num_attention_heads
                self.k_cache = torch.zeros(1, config.num_attention_heads, 8, self.head_dim)
        """,
    "latents": """
        def kv_cache_bytes(cfg, tokens):
            if cfg.kv_lora_rank:
                return cfg.num_hidden_layers * (cfg.kv_lora_rank + cfg.qk_rope_head_dim) * 2 * tokens
            return 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * cfg.head_dim * 2 * tokens
        """,
    "weights of the projections": """
        def qkv_params(cfg):
            kv = 2 * cfg.hidden_size * cfg.num_key_value_heads * cfg.head_dim
            return cfg.hidden_size * cfg.num_attention_heads * cfg.head_dim + kv
        """,
    "both are counted": """
        def sizes(cfg, tokens):
            q_bytes = 2 * tokens * cfg.num_attention_heads * cfg.head_dim
            kv_cache_bytes = 2 * 2 * cfg.num_hidden_layers * tokens * cfg.num_key_value_heads * cfg.head_dim
            return q_bytes, kv_cache_bytes
        """,
    "a scratch buffer for expanded heads": """
        class Attention:
            def temp_kv_size(self):
                if self.num_key_value_heads == self.num_attention_heads:
                    return 0
                return 2 * self.max_seq_len * self.num_attention_heads * self.head_dim * 2
        """,
    "kv heads beside them, and used": """
        spec = {"layers": 80, "heads": 64, "kv_heads": 8, "head_dim": 128}
        q_bytes = spec["heads"] * spec["head_dim"] * 2
        kv_bytes = 2 * spec["layers"] * spec["kv_heads"] * spec["head_dim"] * 2
        """,
    "a field that is read where it is set": """
        class ArchConfig:
            hidden_size: int
            num_attention_heads: int
            head_dim: int

        def head_dim(arch: ArchConfig):
            return arch.head_dim or arch.hidden_size // arch.num_attention_heads

        def plain(arch: ArchConfig):
            return arch.hidden_size // arch.num_attention_heads
        """,
    "a comment": """
        # kv cache: 2 * 80 layers * 64 heads * 128 * 2 bytes for Llama-3.1-70B
        x = 1
        """,
}


def module(text: str) -> str:
    return "import torch\n" + textwrap.dedent(text)


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    text = module(BAD[name])
    assert found(text, CODES) == lines_marked(text)


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    assert found(module(GOOD[name]), CODES) == []
