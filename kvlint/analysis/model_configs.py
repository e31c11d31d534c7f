"""Well-known model configurations, read from ``rules/api/model_configs.toml``."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache

from kvlint.timeline import packaged_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAMILIES = re.compile(
    r"(?:llama|mistral|mixtral|qwen|gpt|opt|bloom|falcon|gemma|phi|smollm|yi|command)[-_ ]?[a-z]?\d|deepseek[-_ ]?[vr]"
)
"""How every name of the table begins, in lower case; the names themselves are looked for only after one of these."""


GROUPED_CONFIGS = frozenset(
    {
        *(
            "ArceeConfig",
            "CohereConfig",
            "Cohere2Config",
            "GemmaConfig",
            "Gemma2Config",
            "Gemma3TextConfig",
            "GlmConfig",
        ),
        *(
            "Glm4Config",
            "GptOssConfig",
            "GraniteConfig",
            "JambaConfig",
            "LlamaConfig",
            "Llama4TextConfig",
            "MistralConfig",
        ),
        *("MixtralConfig", "NemotronConfig", "Olmo2Config", "OlmoConfig", "Phi3Config", "PhiConfig", "Qwen2Config"),
        *("Qwen2MoeConfig", "Qwen3Config", "Qwen3MoeConfig", "SmolLM3Config", "StableLmConfig", "Starcoder2Config"),
    }
)
"""Configurations of transformers with ``num_key_value_heads``, a number of its own beside the query heads."""


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """The sizes of one released model. *kv_heads* is 0 for a model that caches latents instead of heads."""

    name: str
    pattern: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int

    @property
    def factor(self) -> str:
        """By how much a size is over-counted with the query heads: ``8x``."""
        return f"{self.heads // self.kv_heads}x" if self.kv_heads and self.heads % self.kv_heads == 0 else ""


@cache
def known_configs() -> tuple[tuple[re.Pattern[str], KnownConfig], ...]:
    """The table, in its order: the more special names come first."""
    text = packaged_file().with_name("model_configs.toml").read_text(encoding="utf-8")
    found = []
    for row in tomllib.loads(text)["model"]:
        config = KnownConfig(
            row["name"], row["pattern"], row["layers"], row["heads"], row["kv-heads"], row["head-dim"], row["hidden"]
        )
        found.append((re.compile(config.pattern, re.IGNORECASE), config))
    return tuple(found)


@lru_cache(maxsize=16)
def named_models(text: str) -> tuple[KnownConfig, ...]:
    """The known models that a piece of code names."""
    return tuple(config for _, config in model_mentions(text))


def model_mentions(text: str) -> tuple[tuple[str, KnownConfig], ...]:
    """The known models that a text names, each with the words that name it first."""
    if not FAMILIES.search(text.lower()):
        return ()
    found: list[tuple[str, KnownConfig]] = []
    rest = text
    for pattern, config in known_configs():
        match = pattern.search(rest)
        if match is not None:
            found.append((match.group(), config))
            rest = pattern.sub(" ", rest)
    return tuple(found)
