"""One family a cache layout passes everything that applies to it, with the layers that its configuration asks for."""

from __future__ import annotations

import pytest

from kvlint.runtime.models import Source
from kvlint.runtime.probe import Plan
from kvlint.runtime.result import Status, Verification
from kvlint.runtime.verify import Options, verify

FAMILIES = [
    ("llama", {"DynamicLayer": (2, 2, 13, 32)}),
    ("gpt2", {"DynamicLayer": (2, 4, 13, 16)}),
    ("gpt_bigcode", {"DynamicLayer": (2, 1, 13, 16)}),
    ("falcon", {"DynamicLayer": (2, 1, 13, 16)}),
    ("qwen2", {"DynamicLayer": (2, 2, 13, 16)}),
    ("mistral", {"DynamicSlidingWindowLayer": (2, 2, 7, 32)}),
    ("gemma2", {"DynamicSlidingWindowLayer": (2, 2, 7, 32), "DynamicLayer": (2, 2, 13, 32)}),
    ("gemma3n_text", {"DynamicSlidingWindowLayer": (2, 2, 7, 32), "DummyLayer": ()}),
    ("llama4_text", {"DynamicSlidingWindowLayer": (2, 2, 7, 32), "DynamicLayer": (2, 2, 13, 32)}),
    ("deepseek_v3", {"DynamicLayer": (2, 1, 13, 24)}),
    ("glm_moe_dsa", {"DynamicIndexedLayer": (2, 1, 13, 24)}),
    ("qwen3_next", {"LinearAttentionLayer": (), "DynamicLayer": (2, 2, 13, 32)}),
    ("falcon_h1", {"LinearAttentionAndFullAttentionLayer": (2, 2, 13, 16)}),
    ("mimo_v2_flash", {"DynamicSlidingWindowLayer": (2, 4, 7, 32), "DynamicLayer": (2, 2, 13, 32)}),
    ("bart", {"DynamicLayer": (2, 4, 13, 16)}),
    ("t5", {"DynamicLayer": (2, 4, 13, 32)}),
]


def run(family: str, cache: str = "dynamic", backend: str = "quanto") -> Verification:
    return verify(Options(Source(family, random_weights=True), Plan(cache=cache, quantized_backend=backend)))


@pytest.mark.parametrize(("family", "layers"), FAMILIES, ids=[name for name, _ in FAMILIES])
def test_a_family_passes_with_the_layers_of_its_configuration(family: str, layers: dict[str, tuple[int, ...]]) -> None:
    result = run(family)
    assert [(check.name, check.message) for check in result.failures] == []
    assert result.unsupported == ""
    found = {(layer.layer_class, layer.keys) for layer in result.layers}
    assert set(layers.items()) <= found
    assert all(layer.visible_bytes >= layer.expected_bytes for layer in result.layers)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3n_text", "deepseek_v3", "bart"])
def test_a_static_cache_passes_and_is_preallocated(family: str) -> None:
    result = run(family, "static")
    assert [(check.name, check.message) for check in result.failures] == []
    full = [layer for layer in result.layers if layer.layer_class == "StaticLayer"]
    assert full
    assert {layer.keys[2] for layer in full} == {18}


@pytest.mark.parametrize("family", ["llama", "deepseek_v3"])
def test_a_quantized_cache_passes_and_is_compared_as_what_it_is(family: str) -> None:
    result = run(family, "quantized", "fp8")
    assert result.failures == ()
    states = {check.name: check.status for check in result.checks}
    assert states["seq-length"] is Status.PASSED
    assert states["quantized-rows"] is states["cached-steps"] is states["reach"] is Status.PASSED
    assert sum(1 for state in states.values() if state is Status.PASSED) >= 20


@pytest.mark.parametrize(
    ("family", "cache", "reason"),
    [
        ("llama", "offloaded", "needs a CUDA device"),
        ("mistral", "quantized", "only supported for models with only full attention"),
        ("rwkv", "dynamic", "takes no cache"),
        ("reformer", "dynamic", "cannot be built from a configuration alone"),
    ],
)
def test_what_cannot_be_checked_is_unsupported_with_a_reason(family: str, cache: str, reason: str) -> None:
    result = run(family, cache)
    assert result.status == "unsupported"
    assert reason in result.unsupported
    assert result.checks == ()


def test_a_run_is_deterministic() -> None:
    first, second = run("gemma2"), run("gemma2")
    assert first.checks == second.checks
    assert first.layers == second.layers


def test_the_formulas_of_one_layer() -> None:
    layer = run("llama").layers[0]
    # 2 rows, 13 tokens, 2 kv heads of 4 query heads, 32 wide, keys and values, 4 bytes a number
    assert layer.visible_bytes == layer.expected_bytes == 2 * 13 * 2 * 32 * 2 * 4
    assert layer.mha_bytes == 2 * layer.expected_bytes
    assert layer.static_bytes == layer.expected_bytes


def test_one_check_can_be_asked_for_with_what_it_builds_on() -> None:
    result = verify(Options(Source("llama", random_weights=True), only=("kv-heads",)))
    assert [check.name for check in result.checks] == ["update-layout", "append-axis", "kv-heads"]
