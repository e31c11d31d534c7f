"""Shrinking keeps what counts for the cache and nothing else; expectations read it from the configuration."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from kvlint.runtime.expectations import Kind, LayerExpectation, expectations
from kvlint.runtime.shrinking import Sizes, choose_layers, shrink


def small(model_type: str, **changes: Any) -> tuple[LayerExpectation, ...]:
    config_class = CONFIG_MAPPING[model_type]
    data = shrink(config_class(**changes).to_dict(), Sizes())
    data.pop("model_type")
    return expectations(config_class(**data))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "expected"),
    [(32, 8, 2), (32, 32, 4), (32, 1, 1), (40, 10, 2)],
    ids=["grouped", "multi-head", "multi-query", "grouped by four"],
)
def test_the_kind_of_grouping_is_kept(heads: int, kv_heads: int, expected: int) -> None:
    layer = small("llama", num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=heads * 64)[0]
    assert (layer.query_heads, layer.kv_heads) == (4, expected)


def test_every_kind_of_layer_is_kept_once_and_in_order() -> None:
    kinds = [layer.kind for layer in small("gemma3_text")]
    assert kinds == [Kind.SLIDING, Kind.FULL]
    assert [layer.window for layer in small("gemma3_text")] == [8, None]


def test_kinds_that_repeat_over_the_layers_are_kept_once_each() -> None:
    assert [layer.kind for layer in small("recurrent_gemma")] == [Kind.LINEAR, Kind.SLIDING]


def test_layers_that_share_an_earlier_cache_stay_after_it() -> None:
    kinds = [layer.kind for layer in small("gemma3n_text")]
    assert kinds[:2] == [Kind.SLIDING, Kind.FULL]
    assert len(kinds) == 4


def test_choose_layers_takes_the_first_of_each_combination() -> None:
    config = {
        "layer_types": ["a", "a", "b", "a", "b", "b"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "dense"],
    }
    assert choose_layers(config, 6, 10) == (0, 1, 2, 5)
    assert choose_layers(config, 6, 2) == (0, 1)
    assert choose_layers({}, 6, 10) == (0, 1)
    assert choose_layers({}, 0, 10) == ()


def test_nested_configurations_are_shrunk_and_rotary_sections_fit() -> None:
    config = {
        "model_type": "outer",
        "text_config": {
            "model_type": "inner", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 40,
            "head_dim": 128, "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24]},
        },
        "image_token_id": 151655,
        "eos_token_id": [2, 32000],
    }  # fmt: skip
    result = shrink(config, Sizes())
    text = result["text_config"]
    assert (text["hidden_size"], text["num_attention_heads"], text["num_hidden_layers"]) == (64, 4, 2)
    assert sum(text["rope_parameters"]["mrope_section"]) == text["head_dim"] // 2
    assert 100 <= result["image_token_id"] < 160
    assert result["eos_token_id"][0] == 2
    assert 100 <= result["eos_token_id"][1] < 160


@pytest.mark.parametrize(("share", "total"), [(None, 16), (0.5, 8)])
def test_positions_of_three_axes_are_filled_in_where_a_type_leaves_them_to_its_code(
    share: float | None, total: int
) -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4, "head_dim": 128,
              "rope_parameters": rope | ({"partial_rotary_factor": share} if share else {})}  # fmt: skip
    assert "mrope_section" not in shrink(config, Sizes())["rope_parameters"]
    sections = shrink(config, Sizes(fill=True))["rope_parameters"]["mrope_section"]
    assert len(sections) == 3
    assert sum(sections) == total
    assert min(sections) > 0


def test_rotary_sections_of_a_latent_fit_its_rotary_part() -> None:
    config = {
        "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 4, "head_dim": 64, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "rope_parameters": {"rope_type": "default", "mrope_section": [8, 12, 12]},
    }  # fmt: skip
    small = shrink(config, Sizes())
    assert sum(small["rope_parameters"]["mrope_section"]) == small["qk_rope_head_dim"] // 2


def test_shrinking_leaves_the_given_dictionary_alone() -> None:
    config = {"hidden_size": 4096, "layer_types": ["full_attention"] * 4, "num_hidden_layers": 4}
    before = {key: list(value) if isinstance(value, list) else value for key, value in config.items()}
    shrink(config, Sizes())
    assert config == before


def test_a_latent_is_expected_as_one_head_and_expanded_before_5_15() -> None:
    config = CONFIG_MAPPING["deepseek_v3"]()
    latent, expanded = expectations(config)[0], expectations(config, latent_cache=False)[0]
    assert (latent.kv_heads, latent.key_dim, latent.value_dim) == (1, 512, 64)
    assert (expanded.kv_heads, expanded.key_dim, expanded.value_dim) == (128, 192, 128)


def test_a_composite_configuration_is_read_through_its_text_part() -> None:
    layers = expectations(CONFIG_MAPPING["gemma3"]())
    assert {layer.kind for layer in layers} == {Kind.SLIDING, Kind.FULL}


def test_the_multi_head_formula_counts_query_heads() -> None:
    layer = LayerExpectation(Kind.FULL, query_heads=8, kv_heads=2, key_dim=16, value_dim=16)
    assert layer.mha_elements(10) == 10 * 8 * 32
    assert LayerExpectation(Kind.LINEAR).mha_elements(10) == 0
    latent = LayerExpectation(Kind.FULL, 8, 1, 512, 64, latent=True, expanded=128 + 64 + 128)
    assert latent.mha_elements(10) == 10 * 8 * 320
