"""Formulas in the prose of Markdown files (KV701)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvlint import screen
from kvlint.analysis.model_configs import KnownConfig, known_configs
from kvlint.analysis.prose_sizes import prose_sizes
from kvlint.cli import main
from kvlint.source import PROSE, parse

GROUPED = [config for _, config in known_configs() if 0 < config.kv_heads < config.heads]
EQUAL = [config for _, config in known_configs() if config.kv_heads == config.heads]


def found(text: str) -> list[tuple[str, str]]:
    """The products that are reported, with the model's name."""
    return [(text[size.start : size.end], size.model) for size in prose_sizes(text)]


def formulas(config: KnownConfig) -> list[str]:
    heads = f"KV cache of {config.name}: 2 * {config.layers} * {config.heads} * {config.head_dim} * 2 bytes per token."
    if config.heads * config.head_dim != config.hidden:
        return [heads]
    return [heads, f"KV cache of {config.name}: 2 × {config.layers} × {config.hidden} × 2 × 4096"]


@pytest.mark.parametrize("config", GROUPED, ids=lambda config: config.name)
def test_every_grouped_model_of_the_table(config: KnownConfig) -> None:
    for text in formulas(config):
        assert [model for _, model in found(text)] == [config.name]
        assert "KV701" in screen.candidates(text.encode(), frozenset({"KV701"}), "README.md")


@pytest.mark.parametrize("config", EQUAL, ids=lambda config: config.name)
def test_models_with_as_many_kv_heads_are_right(config: KnownConfig) -> None:
    for text in formulas(config):
        assert not found(text)


@pytest.mark.parametrize(
    "text",
    [
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 bytes per token",
        r"KV cache of Llama-3.1-70B: 2\*80\*64\*128\*2",
        "KV cache of Llama-3.1-70B: 2x80x64x128x2",
        "KV cache of Llama-3.1-70B: `2 × 80 × 8,192 × 2 × 4096 / 1024^3` = 10 GB",
        "KV cache of Llama-3.1-70B: 2 (K and V) x 80 layers x 64 heads x 128 head dim x 2 bytes (fp16)",
        "KV cache of Llama-3.1-70B: $2 \\times 80 \\times 64 \\times 128 \\times 2$",
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 * seq_len",
        "KV cache of Llama-3.1-70B with 16 users: 16 users * 2 * 80 * 64 * 128 * 2",
        "# Llama-3.1-70B\n\n## KV cache\n\nOne token takes 2 * 80 * 64 * 128 * 2 bytes.",
        "The KV cache of Llama-3.1-70B:\n\n```\n2 * 80 * 64 * 128 * 2\n```",
        "We run Llama-3.1-70B.\n\n```\nKV cache\n\n= 2 * 80 * 64 * 128 * 2 bytes\n```\n",
        "**Llama-3.1-70B**\n\nThe KV cache takes 2 * 80 * 64 * 128 * 2 bytes.",
        "KV cache of Llama-3.1-70B with 8192 tokens: 2 * 80 * 8192 * 8192 * 2",
        "| KV cache | |\n|---|---|\n| Llama-2-7B | 2*32*4096*2 |\n| Llama-3.1-70B | 2*80*64*128*2 |",
    ],
)
def test_ways_to_write_it(text: str) -> None:
    assert [model for _, model in found(text)] == ["Llama-3.1-70B"]


@pytest.mark.parametrize(
    "text",
    [
        "KV cache of Llama-3.1-70B: 2 * 80 * 8 * 128 * 2 bytes per token",
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 / 8",
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2, divided by 8",
        "KV cache of Llama-3.1-70B without GQA: 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B (64 query heads, 8 KV heads): 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-65B: 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B and Llama-65B: 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B and Llama-2-7B: 2 * 80 * 64 * 128 * 2",
        "KV cache: 2 * 80 * 64 * 128 * 2",
        "Weights of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 * 7",
        "KV cache of Llama-3.1-70B: 2 * 81 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B, FLOPs: 2 * 80 * 64 * 128 * 2",
        "KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 + 5",
        "KV cache of Llama-3.1-70B. Activations: 80 * 8192 * 4096 * 2",
        "KV cache of Llama-3.1-70B: 2 * 80 * groups * 64 * 128 * 2",
        "# KV cache of Llama-3.1-70B\n\nText.\n\n# Other\n\n2 * 80 * 64 * 128 * 2",
    ],
)
def test_silent(text: str) -> None:
    assert not found(text)


def test_place_help_and_no_rewriting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "# Memory\r\n\r\n```python\r\nx = 1\r\n```\r\n\r\nKV cache of Llama-3.1-70B: é 2 * 80 * 64 * 128 * 2 bytes.\r\n"
    )
    path = tmp_path / "README.md"
    path.write_bytes(text.encode())
    with pytest.raises(SystemExit):
        main.main([str(path), "--fix", "--unsafe-fixes", "--no-cache"])
    out = capsys.readouterr().out
    assert re.search(r"README\.md:7:30: KV701 .*8x too much.*Llama-3\.1-70B caches 8 kv heads", out)
    assert "`2 * 80 * 8 * 128 * 2`" in out
    assert path.read_bytes() == text.encode()


def test_code_is_no_prose_and_plain_blocks_are() -> None:
    text = "KV cache\n\n```python\n2 * 3\n```\n\n```bash\necho 2 * 80\n```\n\n```text\n2 * 80 * 64\n```\n"
    regions = {region.kind: region.text for region in parse(Path("a.md"), text.encode()).regions}
    assert regions["markdown"] == "2 * 3"
    assert "2 * 3" not in regions[PROSE] and "echo" not in regions[PROSE] and "2 * 80 * 64" in regions[PROSE]
    assert regions[PROSE].count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("comment", "codes"),
    [
        ("<!-- kvlint: ignore[KV701] counted for the paper -->", []),
        ("<!-- kvlint: ignore-file[KV701] -->\n", []),
        ("<!-- kvlint: ignore[KV601] -->", ["KV900", "KV701"]),
        ("<!-- a comment -->", ["KV701"]),
    ],
)
def test_comments_silence(comment: str, codes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"It's here.\n\n{comment}\nKV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main.main([str(path), "--output-format", "concise", "--no-cache"])
    assert re.findall(r"KV\d{3}(?= [a-z])", capsys.readouterr().out) == codes
