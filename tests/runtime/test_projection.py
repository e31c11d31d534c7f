"""Bytes at another length: what a short run extrapolates to is what a run of that length holds, whatever the layer."""

from __future__ import annotations

import pytest

from kvlint.runtime import Options, Plan, Source, Verification, verify
from kvlint.runtime.report import projection_rows, to_json, to_markdown

EXACT = [
    ("llama", "dynamic"), ("llama", "static"), ("gemma2", "dynamic"), ("gemma2", "static"), ("gemma3n_text", "dynamic"),
    ("deepseek_v3", "dynamic"), ("glm_moe_dsa", "dynamic"), ("qwen3_next", "dynamic"), ("falcon_h1", "dynamic"),
    ("minimax", "dynamic"), ("t5", "dynamic"), ("whisper", "dynamic"),
]  # fmt: skip


def run(family: str, cache: str, tokens: int | None, prompt: int = 6) -> Verification:
    plan = Plan(batch=3, prompt=prompt, cache=cache, quantized_backend="fp8")
    source = Source(family, random_weights=True)
    return verify(Options(source, plan, only=("kv-heads",), at_length=tokens))


@pytest.mark.parametrize(("family", "cache"), EXACT)
def test_the_bytes_of_a_longer_run_are_foretold_layer_by_layer(family: str, cache: str) -> None:
    longer = run(family, cache, None, prompt=60)
    spare = 5 if cache == "static" else 0  # a static cache is made for some more tokens than are fed
    foretold = run(family, cache, longer.tokens + spare).projection
    assert foretold is not None
    assert [layer.bytes for layer in foretold.layers] == [layer.visible_bytes for layer in longer.layers]


@pytest.mark.parametrize("family", ["llama", "deepseek_v3"])
def test_quantized_rows_are_foretold_within_a_percent(family: str) -> None:
    longer = run(family, "quantized", None, prompt=60)
    foretold = run(family, "quantized", longer.tokens).projection
    assert foretold is not None
    for layer, held in zip(foretold.layers, longer.layers, strict=True):
        assert layer.bytes == pytest.approx(held.visible_bytes, rel=0.01)
        assert layer.formula_bytes is not None
        assert layer.bytes < layer.formula_bytes


def test_the_formula_and_multi_head_attention_stand_beside_the_bytes() -> None:
    foretold = run("deepseek_v3", "dynamic", 1000).projection
    assert foretold is not None
    layer = foretold.layers[0]
    # 3 rows, 1000 tokens, 4 bytes; the latent and its rotary part are 24 + 8, a head's key and value 24 + 32
    assert layer.bytes == layer.formula_bytes == 3 * 1000 * 4 * (24 + 8)
    assert layer.mha_bytes == run("deepseek_v3", "dynamic", None, prompt=993).layers[0].mha_bytes
    assert layer.mha_bytes is not None
    assert layer.mha_bytes > 6 * layer.bytes


def test_a_table_of_the_lengths_has_every_layer_and_the_sum() -> None:
    result = run("gemma2", "dynamic", 32768)
    title, sliding, full, total = projection_rows(result)
    assert title[2:5] == ("bytes", "formula", "as MHA")
    assert sliding[:3] == ("0", "sliding", "10.5 KiB")
    assert full[:3] == ("1", "full", "48.0 MiB")
    assert total[0] == "all"
    assert "| 1 | full | 48.0 MiB |" in to_markdown([result])
    assert "Bytes extrapolated to 32768 tokens x 3 rows:" in to_markdown([result])
    assert "32768" in to_json([result])
    assert any("shrunk" in note for note in result.notes)


def test_without_a_length_there_is_no_such_table() -> None:
    assert projection_rows(run("llama", "dynamic", None)) == []
