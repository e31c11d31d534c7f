"""The table of well-known models."""

from __future__ import annotations

import pytest

from kvlint.analysis.model_configs import KnownConfig, known_configs, named_models

ALL = [config for _, config in known_configs()]


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.name)
def test_a_row_is_consistent(config: KnownConfig) -> None:
    assert config.layers > 0 and config.heads > 0 and config.hidden > 0
    assert config.kv_heads == 0 or config.heads % config.kv_heads == 0
    assert config.head_dim in (64, 80, 96, 128, 256)


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.name)
def test_a_model_is_found_by_its_own_name(config: KnownConfig) -> None:
    assert named_models(f"# {config.name}") == (config,)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", ["Llama-3-70B"]),
        ("meta-llama/Llama-2-7b-hf", ["Llama-2-7B"]),
        ("Llama-3.1-70B against Llama-2-7B", ["Llama-3-70B", "Llama-2-7B"]),
        ("Qwen/Qwen2.5-7B-Instruct", ["Qwen2.5-7B"]),
        ("openai-community/gpt2", ["GPT-2"]),
        ("gpt2-large", []),
        ("deepseek-ai/DeepSeek-V3", ["DeepSeek-V3"]),
        ("llama in general", []),
    ],
)
def test_names_in_text(text: str, names: list[str]) -> None:
    assert [config.name for config in named_models(text)] == names


def test_the_tutorials_numbers() -> None:
    by_name = {config.name: config for config in ALL}
    llama2, llama3 = by_name["Llama-2-7B"], by_name["Llama-3-70B"]
    assert 1 * 4096 * 2 * llama2.layers * llama2.hidden * 2 == 2 * 1024**3
    assert llama2.factor == "1x"
    assert (llama3.heads, llama3.kv_heads, llama3.factor) == (64, 8, "8x")
