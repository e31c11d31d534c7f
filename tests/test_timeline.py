"""The packaged timeline says what the releases really have, and answers questions as promised."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kvlint import timeline as timeline_module
from kvlint import timeline_overlay
from kvlint.api_commands import api
from kvlint.errors import UsageProblem
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Timeline
from kvlint.timeline_build import Merged, Record, read_folder, read_wheel

TIMELINE = timeline_module.load(overlay=Path("no overlay"))
OLDEST, NEWEST = TIMELINE.releases[0], TIMELINE.releases[-1]


def ranges(found: ReleaseSet) -> str:
    return ", ".join(TIMELINE.ranges(found))


def kvlint_api(*arguments: str) -> str:
    """What ``kvlint api`` prints. Raises what it raises."""
    result = CliRunner().invoke(api, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


# --------------------------------------------------------------------------------------- facts, run on real releases

IMPORTABLE = [
    ("transformers.Cache", "4.36.0-5.24.0"),
    ("transformers.DynamicCache", "4.36.0-5.24.0"),
    ("transformers.StaticCache", "4.38.0-5.24.0"),
    ("transformers.EncoderDecoderCache", "4.43.0-5.24.0"),
    ("transformers.QuantizedCache", "4.42.0-5.24.0"),
    ("transformers.SinkCache", "4.36.0-4.57.6"),
    ("transformers.OffloadedCache", "4.44.0-4.57.6"),
    ("transformers.OffloadedStaticCache", "4.45.0-4.57.6"),
    ("transformers.HybridCache", "4.44.0-4.57.6"),
    ("transformers.HybridChunkedCache", "4.54.0-4.57.6"),
    ("transformers.QuantoQuantizedCache", "4.42.0-4.57.6"),
    ("transformers.HQQQuantizedCache", "4.42.0-4.57.6"),
    ("transformers.QuantizedCacheConfig", "4.42.0-4.55.4"),
    ("transformers.CacheConfig", "4.42.0-4.55.4"),
    ("transformers.SlidingWindowCache", "4.44.0-4.57.6"),
    ("transformers.MambaCache", "4.44.0-5.4.0"),
    ("transformers.StaticCacheConfig", ""),
    ("transformers.OffloadedHybridCache", ""),
    ("transformers.cache_utils.SlidingWindowCache", "4.42.0-4.57.6, 5.5.1-5.24.0"),
    ("transformers.cache_utils.HybridChunkedCache", "4.51.0-4.57.6"),
    ("transformers.cache_utils.OffloadedHybridCache", "4.52.1-4.57.6"),
    ("transformers.cache_utils.StaticCacheConfig", "4.45.0-4.55.4"),
    ("transformers.cache_utils.MambaCache", "4.43.0-4.55.4"),
    ("transformers.cache_utils.CacheLayerMixin", "4.54.0-5.24.0"),
    ("transformers.cache_utils.SlidingWindowLayer", "4.54.0-4.57.6"),
    ("transformers.cache_utils.StaticSlidingWindowLayer", "4.57.1-5.24.0"),
    ("transformers.cache_utils.DynamicSlidingWindowLayer", "4.56.0-5.24.0"),
    ("transformers.cache_utils.QuantizedLayer", "4.56.0-5.24.0"),
    ("transformers.cache_utils.LinearAttentionLayer", "5.5.0-5.24.0"),
    ("transformers.cache_utils.DummyLayer", "5.23.0-5.24.0"),
    ("transformers.cache_utils.KeyValuesWrapper", "4.54.0-4.55.4"),
    ("transformers.cache_utils.CacheProcessor", "4.54.0-4.55.4"),
    ("transformers.cache_utils.MtpCache", "5.14.0-5.24.0"),
    ("transformers.cache_utils.DFlashCache", "5.15.0-5.24.0"),
    ("transformers.models.mamba2.modeling_mamba2.Mamba2Cache", "4.44.0-5.4.0"),
    ("transformers.models.jamba.modeling_jamba.HybridMambaAttentionDynamicCache", "4.40.0-5.4.0"),
    ("transformers.models.qwen3_next.modeling_qwen3_next.Qwen3NextDynamicCache", "4.57.1-5.4.0"),
    ("transformers.generation.utils.NEED_SETUP_CACHE_CLASSES_MAPPING", "4.38.0-4.55.4"),
    ("transformers.generation.utils.QUANT_BACKEND_CLASSES_MAPPING", "4.42.0-4.55.4"),
    ("transformers.generation.utils.ALL_CACHE_NAMES", "4.49.0-5.24.0"),
    ("transformers.generation.configuration_utils.STATIC_CACHE_IMPLEMENTATIONS", "4.56.0-5.24.0"),
    ("transformers.generation.configuration_utils.CACHE_CONFIG_MAPPING", "4.49.0-4.53.3"),
    ("transformers.modeling_attn_mask_utils", "4.36.0-5.23.0"),
    ("transformers.modeling_attn_mask_utils._prepare_4d_causal_attention_mask_for_sdpa", "4.36.0-5.23.0"),
    ("transformers.masking_utils.create_causal_mask", "4.53.0-5.24.0"),
    ("transformers.GenerationMixin", "4.36.0-5.24.0"),
    ("transformers.LlamaForCausalLM", "4.36.0-5.24.0"),
    ("transformers.models.llama.LlamaForCausalLM", "4.36.0-5.24.0"),
]


@pytest.mark.parametrize(("name", "releases"), IMPORTABLE, ids=[name for name, _ in IMPORTABLE])
def test_importable(name: str, releases: str) -> None:
    assert ranges(TIMELINE.importable(name)) == releases
    assert TIMELINE.knows(name) == bool(releases)


MEMBERS = [
    ("DynamicCache", "key_cache", "4.36.0-4.55.4"),
    ("StaticCache", "value_cache", "4.38.0-4.55.4"),
    ("DynamicCache", "_seen_tokens", "4.39.0-4.53.3"),
    ("DynamicCache", "seen_tokens", "4.36.0-4.53.3"),
    ("DynamicCache", "get_usable_length", "4.36.0-4.53.3"),
    ("DynamicCache", "get_max_length", "4.36.0-4.48.3, 5.13.0-5.24.0"),
    ("StaticCache", "get_max_length", "4.38.0-4.48.3, 5.13.0-5.24.0"),
    ("DynamicCache", "get_max_cache_shape", "4.46.1-5.19.0"),
    ("StaticCache", "max_cache_len", "4.38.0-5.19.0"),
    ("DynamicCache", "max_cache_len", "4.54.0-5.19.0"),
    ("DynamicCache", "max_batch_size", "4.54.0-5.19.0"),
    ("StaticCache", "max_batch_size", "4.38.0-4.44.2, 4.47.0-5.19.0"),
    ("StaticCache", "batch_size", "4.45.0-4.50.3, 5.13.0-5.24.0"),
    ("DynamicCache", "batch_size", "5.13.0-5.24.0"),
    ("DynamicCache", "to_legacy_cache", "4.36.0-4.57.6"),
    ("DynamicCache", "from_legacy_cache", "4.36.0-4.57.6"),
    ("DynamicCache", "__getitem__", "4.36.0-4.57.6"),
    ("StaticCache", "__getitem__", "4.54.0-4.57.6"),
    ("DynamicCache", "__iter__", "4.36.0-5.24.0"),
    ("StaticCache", "__iter__", "4.54.0-4.57.6"),
    ("DynamicCache", "__len__", "4.36.0-5.24.0"),
    ("DynamicCache", "__setitem__", ""),
    ("DynamicCache", "__init__", "4.36.0-5.24.0"),
    ("DynamicCache", "layers", "4.54.0-5.24.0"),
    ("DynamicCache", "batch_split", "4.42.0-4.53.3"),
    ("DynamicCache", "from_batch_splits", "4.42.0-4.53.3"),
    ("DynamicCache", "reset", "4.54.0-5.24.0"),
    ("StaticCache", "crop", "4.54.0-5.24.0"),
    ("StaticCache", "batch_repeat_interleave", "4.54.0-5.24.0"),
    ("DynamicCache", "is_compileable", "4.49.0-5.24.0"),
    ("DynamicCache", "is_initialized", "4.57.1-5.24.0"),
    ("DynamicCache", "is_croppable", "5.17.0-5.24.0"),
    ("DynamicCache", "activate_past_recording", "5.14.0-5.24.0"),
    ("DynamicCache", "get_mask_sizes", "4.53.0-5.24.0"),
    ("DynamicCache", "is_updated", ""),
    ("cache_utils.StaticLayer", "crop", "5.24.0"),
    ("GenerationConfig", "cache_implementation", "4.38.0-5.24.0"),
    ("GenerationMixin", "_reorder_cache", "4.36.0-4.53.3"),
    ("GenerationMixin", "_get_cache", "4.42.0-5.0.0"),
    ("GenerationMixin", "_prepare_static_cache", "5.1.0-5.24.0"),
    ("GenerationMixin", "_get_initial_cache_position", "4.41.0-5.3.0"),
    ("GenerationMixin", "_cache_dependant_input_preparation", "4.51.0-5.2.0"),
    ("GenerationMixin", "_temporary_reorder_cache", "4.36.0-4.53.3"),
    ("GenerationMixin", "_extract_past_from_model_output", "4.36.0-4.48.3"),
    ("GenerationMixin", "_get_layer_device_map_for_cache_init", "4.50.0-4.55.4"),
    ("LlamaForCausalLM", "_supports_default_dynamic_cache", "4.42.0-5.24.0"),
    ("LlamaForCausalLM", "_reorder_cache", "4.36.0-4.53.3"),
    ("LlamaModel", "_update_causal_mask", "4.38.0-4.52.4"),
    ("models.llama.modeling_llama.LlamaPreTrainedModel", "_supports_static_cache", "4.41.0-4.53.3"),
    ("modeling_outputs.CausalLMOutputWithPast", "cache", "5.24.0"),
    ("modeling_outputs.CausalLMOutputWithPast", "past_key_values", "4.36.0-5.24.0"),
]


@pytest.mark.parametrize(("cls", "member", "releases"), MEMBERS, ids=[f"{cls}.{name}" for cls, name, _ in MEMBERS])
def test_member(cls: str, member: str, releases: str) -> None:
    assert ranges(TIMELINE.member(f"transformers.{cls}", member)) == releases


def test_members_that_were_rebuilt_keep_their_kind_by_release() -> None:
    kinds = {kind: ranges(rs) for rs, kind in TIMELINE.member_kind("transformers.DynamicCache", "key_cache")}
    assert kinds == {"attribute": "4.36.0-4.53.3", "property": "4.54.0-4.55.4"}
    owners = {owner: ranges(rs) for rs, owner in TIMELINE.member_owner("transformers.DynamicCache", "key_cache")}
    assert owners["transformers.cache_utils.Cache"] == "4.54.0-4.55.4"


SIGNATURES = [
    ("DynamicCache", None, "4.48.3-4.49.0", "num_hidden_layers"),
    ("DynamicCache", None, "4.50.3-4.53.3", "_distributed_cache_data"),
    ("DynamicCache", None, "4.54.1-4.55.4", "ddp_cache_data,args,kwargs"),
    ("DynamicCache", None, "4.56.2-5.24.0", "ddp_cache_data,config,offloading,offload_only_non_sliding"),
    (
        "StaticCache",
        None,
        "4.48.3-4.50.3",
        "config,batch_size,max_cache_len,device,dtype,max_batch_size,layer_device_map",
    ),
    ("StaticCache", None, "4.51.3-4.53.3", "config,max_batch_size,max_cache_len,device,dtype,layer_device_map"),
    ("StaticCache", None, "4.54.1-4.55.4", "args,kwargs"),
    ("StaticCache", None, "4.56.2-5.24.0", "config,max_cache_len,offloading,offload_only_non_sliding,kwargs"),
    ("EncoderDecoderCache", None, "4.48.3-4.55.4", "self_attention_cache,cross_attention_cache"),
    ("EncoderDecoderCache", None, "4.56.2-5.24.0", "caches"),
    ("QuantizedCache", None, "4.48.3-4.53.3", "cache_config"),
    ("QuantizedCache", None, "4.54.1-4.55.4", "backend,kwargs"),
    (
        "QuantizedCache",
        None,
        "4.56.2-5.24.0",
        "backend,config,nbits,axis_key,axis_value,q_group_size,residual_length",
    ),
    ("DynamicCache", "update", "4.48.3-5.3.0", "key_states,value_states,layer_idx,cache_kwargs"),
    ("DynamicCache", "update", "5.4.0-5.24.0", "key_states,value_states,layer_idx,args,kwargs"),
    ("DynamicCache", "crop", "4.48.3-5.14.1", "max_length"),
    ("DynamicCache", "crop", "5.15.0-5.24.0", "tokens_to_remove"),
    ("DynamicCache", "get_seq_length", "4.54.1-4.55.4", "layer_idx,cache_position"),
    ("DynamicCache", "get_seq_length", "4.56.2-5.24.0", "layer_idx"),
    ("DynamicCache", "get_mask_sizes", "4.53.3-5.3.0", "cache_position,layer_idx"),
    ("DynamicCache", "get_mask_sizes", "5.4.0-5.24.0", "query_length,layer_idx"),
]


@pytest.mark.parametrize(("cls", "member", "releases", "names"), SIGNATURES)
def test_signatures(cls: str, member: str | None, releases: str, names: str) -> None:
    first, last = (TIMELINE.index(text) for text in releases.split("-"))
    assert first is not None and last is not None
    wanted = ReleaseSet.span(first, last)
    found = [item for rs, item in TIMELINE.signatures(f"transformers.{cls}", member) if rs & wanted]
    assert {",".join(parameter.name for parameter in item.parameters) for item in found} == {names}


def test_a_signature_knows_its_parameters() -> None:
    (_, newest) = TIMELINE.signatures("transformers.StaticCache")[-1]
    assert str(newest) == "(config, max_cache_len, offloading=False, offload_only_non_sliding=True, **kwargs)"
    assert newest.accepts_kwargs and not newest.accepts_args
    assert newest.parameter("kwargs") is None
    offloading = newest.parameter("offloading")
    assert offloading is not None and offloading.default == "False"
    assert [parameter.name for parameter in newest.positional][:2] == ["config", "max_cache_len"]


VALUES = [
    ("static", "4.38.0-5.24.0"),
    ("hybrid_chunked", "4.51.0-5.24.0"),
    ("dynamic", "4.50.0-5.24.0"),
    ("dynamic_full", "4.56.0-5.14.1"),
    ("mamba", "4.43.0-4.53.3"),
    ("offloaded_hybrid_chunked", "4.52.1-5.24.0"),
    ("sliding_window", "4.42.0-5.24.0"),
]


@pytest.mark.parametrize(("value", "releases"), VALUES)
def test_accepted_cache_implementations(value: str, releases: str) -> None:
    assert ranges(TIMELINE.cache_implementations()[value]) == releases


def test_constants_hold_their_values() -> None:
    names = {value: ranges(rs) for value, rs in TIMELINE.generation_values("ALL_CACHE_NAMES").items()}
    assert names["past_key_values"] == "4.49.0-5.23.0"
    assert names["cache"] == "5.24.0"
    assert "sink" not in TIMELINE.cache_implementations()


KEYWORDS = [
    ("model", "past_key_values", "4.36.0-5.23.0"),
    ("model", "cache", "5.24.0"),
    ("attention", "past_key_value", "4.36.0-4.55.4"),
    ("attention", "past_key_values", "4.56.0-5.23.0"),
    ("layer", "past_key_value", "4.36.0-4.55.4"),
    ("layer", "cache", "5.24.0"),
]


@pytest.mark.parametrize(("kind", "keyword", "releases"), KEYWORDS)
def test_keywords_of_the_library(kind: str, keyword: str, releases: str) -> None:
    assert ranges(TIMELINE.keyword_of_kind(kind, keyword)) == releases


def test_forward_keywords_of_one_class() -> None:
    attention = "transformers.models.llama.modeling_llama.LlamaAttention"
    by_release = {index: names for rs, names in TIMELINE.forward_keywords(attention) for index in rs}
    for release, keyword in (("4.55.4", "past_key_value"), ("4.56.2", "past_key_values"), ("5.24.0", "cache")):
        index = TIMELINE.index(release)
        assert index is not None and keyword in by_release[index]
    renames = TIMELINE.deprecations(attention, "forward")
    assert [(ranges(rs), each.old, each.new, each.removal) for rs, (each,) in renames] == [
        ("4.56.0-4.57.6", "past_key_value", "past_key_values", "4.58"),
        ("5.24.0", "past_key_values", "cache", "5.40.0"),
    ]
    generate = TIMELINE.forward_keywords("transformers.LlamaForCausalLM", "prepare_inputs_for_generation")
    assert generate[-1] == (ReleaseSet.of(len(TIMELINE.releases) - 1), ("cache", "**kwargs"))


def test_an_alias_is_told_from_a_class() -> None:
    ((rs, target),) = TIMELINE.alias_target("transformers.cache_utils.SlidingWindowCache").items()
    assert (ranges(rs), target) == ("5.5.1-5.24.0", "transformers.cache_utils.StaticCache")
    assert TIMELINE.alias_target("transformers.StaticCache") == {}


def test_canonical_names() -> None:
    assert TIMELINE.canonical("transformers.HybridCache") == "transformers.cache_utils.HybridCache"
    assert TIMELINE.canonical("transformers.MambaCache") == "transformers.models.mamba.modeling_mamba.MambaCache"
    assert TIMELINE.canonical("transformers.NoSuchThing") is None
    places = {place: ranges(rs) for rs, place in TIMELINE.definitions("transformers.MambaCache")}
    assert places["transformers.cache_utils.MambaCache"] == "4.44.0-4.53.3"


@pytest.mark.parametrize(
    ("name", "cache", "layer"),
    [
        ("transformers.Cache", True, False),
        ("transformers.EncoderDecoderCache", True, False),
        ("transformers.MambaCache", True, False),
        ("transformers.models.jamba.modeling_jamba.HybridMambaAttentionDynamicCache", True, False),
        ("transformers.cache_utils.DynamicSlidingWindowLayer", False, True),
        ("transformers.models.deepseek_v4.modeling_deepseek_v4.DeepseekV4HCACache", False, True),
        ("transformers.CacheConfig", False, False),
        ("transformers.models.omdet_turbo.modeling_omdet_turbo.OmDetTurboLRUCache", False, False),
        ("transformers.LlamaForCausalLM", False, False),
    ],
)
def test_kinds_of_classes(name: str, cache: bool, layer: bool) -> None:
    assert TIMELINE.is_cache_class(name) is cache
    assert TIMELINE.is_layer_class(name) is layer


def test_bases_and_subclasses() -> None:
    bases = {names: ranges(rs) for rs, names in TIMELINE.bases("transformers.QuantizedCache")}
    assert bases[("transformers.cache_utils.DynamicCache",)] == "4.42.0-4.55.4"
    assert bases[("transformers.cache_utils.Cache",)] == "4.56.0-5.24.0"
    assert "transformers.cache_utils.OffloadedCache" in TIMELINE.subclasses_of("transformers.DynamicCache")
    assert ranges(TIMELINE.may_have_more("transformers.DynamicCache")) == "4.44.0-4.49.0"


def test_a_removal_is_announced() -> None:
    ((rs, (announced,)),) = TIMELINE.deprecations("transformers.DynamicCache", "key_cache")
    assert (ranges(rs), announced.old, announced.removal) == ("4.54.0-4.55.4", None, "4.56.0")


# ------------------------------------------------------------------------------------------------- sets of releases

VERSIONS = st.one_of(
    st.sampled_from(TIMELINE.releases),
    st.builds(
        "{}.{}{}".format,
        st.sampled_from([3, 4, 5, 6]),
        st.integers(0, 60),
        st.sampled_from(["", ".0", ".1", ".0.dev0", ".0rc1", ".1.post1", ".0.0"]),
    ),
)


@given(st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), VERSIONS)
def test_compare_is_the_order_of_packaging(op: str, version: str) -> None:
    bound = Version(version)
    wanted = {
        index
        for index, release in enumerate(map(Version, TIMELINE.releases))
        if eval(f"release {op} bound", {"release": release, "bound": bound})
    }
    assert set(TIMELINE.compare(op, version)) == wanted


@given(st.lists(st.builds("{}{}".format, st.sampled_from(["<", "<=", ">=", ">", "!="]), VERSIONS), min_size=1))
def test_matching_is_the_specifier_of_packaging(parts: list[str]) -> None:
    text = ",".join(parts)
    wanted = {i for i, release in enumerate(TIMELINE.releases) if SpecifierSet(text).contains(release)}
    if wanted:
        assert set(TIMELINE.matching(text)) == wanted
    else:
        with pytest.raises(ValueError, match="no known transformers release matches"):
            TIMELINE.matching(text)


def test_a_bare_number_is_a_release_or_all_of_a_series() -> None:
    assert ranges(TIMELINE.matching("4.57")) == "4.57.1-4.57.6"
    assert ranges(TIMELINE.matching("5.24.0")) == "5.24.0"
    assert ranges(TIMELINE.matching("5")) == "5.0.0-5.24.0"
    assert ranges(TIMELINE.matching(" >=4.56,<4.57 ")) == "4.56.0-4.56.2"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("newest", "neither a release such as"),
        (">>5", "neither a release such as"),
        ("9", "no known transformers release matches '9' .known: 4.36.0 to"),
        ("4.57.99", "no known transformers release"),
    ],
)
def test_a_wrong_range_is_explained_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as problem:
        TIMELINE.matching(text)
    assert "\n" not in str(problem.value)


def test_compare_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no comparison"):
        TIMELINE.compare("~=", "5.0")
    with pytest.raises(ValueError, match="not a version number"):
        TIMELINE.compare(">=", "five")


def test_index() -> None:
    assert TIMELINE.index("4.36.0") == 0
    assert TIMELINE.index("5.24") == TIMELINE.index("5.24.0")
    assert TIMELINE.index("4.57.99") is None
    assert TIMELINE.index("latest") is None


def _within(text: str) -> ReleaseSet:
    return TIMELINE.matching(text)


@pytest.mark.parametrize(
    ("found", "within", "prose"),
    [
        (">=5", ">=4.36", "from 5.0.0"),
        (">=4.54,<5", ">=4.36", "on 4.54.0 to 4.57.6"),
        ("5.4.0", ">=4.36", "on 5.4.0"),
        ("5.24.0", ">=4.36", "from 5.24.0"),
        ("5.24.0", "5.24.0", "on 5.24.0"),
        (">=5", ">=5.20", "on 5.20.0 to 5.24.0"),
        ("<5", ">=4.57", "on 4.57.1 to 4.57.6"),
    ],
)
def test_describe(found: str, within: str, prose: str) -> None:
    assert TIMELINE.describe(_within(found), _within(within)) == prose


def test_describe_joins_runs_and_sees_no_gap_outside() -> None:
    runs = TIMELINE.member("transformers.DynamicCache", "get_max_length")
    assert TIMELINE.describe(runs, TIMELINE.all) == "on 4.36.0 to 4.48.3 and from 5.13.0"
    only_these = TIMELINE.matching("4.48.3") | TIMELINE.matching("5.13.0") | TIMELINE.matching("5.24.0")
    assert TIMELINE.describe(runs, only_these) == "on 4.48.3 to 5.24.0"
    assert TIMELINE.describe(NO_RELEASE, TIMELINE.all) == ""


# ---------------------------------------------------------------------------------------------- the file and its source


def wheels_of_two_releases(folder: Path) -> Iterator[tuple[str, Path]]:
    """Wheels in the folder that KVLINT_WHEELS names; without it they are downloaded."""
    given = os.environ.get("KVLINT_WHEELS")
    for version in ("4.57.6", "5.24.0"):
        path = Path(given or folder) / f"transformers-{version}-py3-none-any.whl"
        if not path.is_file():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(path.parent)]
            subprocess.run([*command, f"transformers=={version}"], check=True)
        yield version, path


def test_two_releases_read_again_give_the_entries_of_the_file(tmp_path: Path) -> None:
    merged = Merged.load(timeline_module.packaged_file().read_text(encoding="utf-8"))
    for version, wheel in wheels_of_two_releases(tmp_path):
        read, kept = read_wheel(wheel), merged.record(version)
        assert read.version == version
        assert read.symbols == kept.symbols
        assert read.models == kept.models


def test_the_file_is_its_own_dump() -> None:
    text = timeline_module.packaged_file().read_text(encoding="utf-8")
    assert Merged.load(text).dump() == text


def test_rows_are_those_of_the_json_document() -> None:
    text = timeline_module.packaged_file().read_text(encoding="utf-8")
    document = json.loads(text)
    for name in timeline_module.TABLES:
        assert dict(getattr(TIMELINE, f"_{name}")) == document[name]


RECORDS = st.fixed_dictionaries(
    {name: st.dictionaries(st.sampled_from(["", "m"]), st.sampled_from(["a", "b"]), min_size=1) for name in "xy"}
)


@settings(max_examples=50)
@given(st.permutations(["4.9.0", "4.10.0", "4.10.1", "5.0.0rc1", "5.0.0"]), st.data())
def test_merging_keeps_every_record_in_any_order(versions: list[str], data: st.DataObject) -> None:
    records = {version: Record(version, data.draw(RECORDS), {"x": {"A": "a|b"}}) for version in versions}
    merged = Merged()
    for version in versions:
        merged.add(records[version])
    assert merged.releases == ["4.9.0", "4.10.0", "4.10.1", "5.0.0rc1", "5.0.0"]
    read = Merged.load(merged.dump())
    for version, record in records.items():
        assert read.record(version) == record


# ----------------------------------------------------------------------------------------------- learning a new release

INIT = """
__version__ = "{version}"
_import_structure = {{"configuration_utils": ["PretrainedConfig"]}}
try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    pass
else:
    _import_structure["cache_utils"] = ["Cache", "RingCache"]
"""
CACHE_UTILS = """
from .configuration_utils import PretrainedConfig
from .utils.deprecation import deprecate_kwarg

class Cache:
    def __init__(self, *, layers):
        self.layers, (self.first, *_) = layers, layers
    def __getitem__(self, index): ...
    @property
    def size(self): ...
    @size.setter
    def size(self, value): ...
    @deprecate_kwarg("length", version="v6.1", new_name="count")
    def crop(self, count: int = 1, /, *more: int, deep: bool = False, **kwargs): self.cropped = True

class RingCache(Cache):
    def old(self):
        logger.warning_once("`old` is deprecated and will be removed in v7.2")

CircleCache = RingCache

def __getattr__(name):
    if name == "WheelCache":
        class WheelCache(Cache): ...
        return WheelCache
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder that holds a tiny package with the layout of transformers."""
    folder = tmp_path / "site-packages" / "transformers"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(INIT.format(version="5.99.0"), encoding="utf-8")
    (folder / "cache_utils.py").write_text(CACHE_UTILS, encoding="utf-8")
    return folder.parent


@pytest.fixture
def learnt(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """The timeline after ``kvlint api update`` has read the tiny package."""
    monkeypatch.setenv("KVLINT_DATA_DIR", str(tmp_path / "data"))
    kvlint_api("update", "--from", str(package))
    return timeline_module.load()


def test_what_a_release_has_is_read_from_its_source(learnt: Timeline) -> None:
    only = ReleaseSet.of(len(learnt.releases) - 1)
    assert learnt.releases[-1] == "5.99.0"
    assert learnt.importable("transformers.RingCache") == only
    assert learnt.importable("transformers.cache_utils.WheelCache") == only
    assert learnt.alias_target("transformers.cache_utils.CircleCache") == {only: "transformers.cache_utils.RingCache"}
    assert only <= learnt.importable("transformers.cache_utils.PretrainedConfig")
    assert not only & learnt.importable("transformers.DynamicCache")
    for member in ("__getitem__", "layers", "first", "cropped", "old"):
        assert learnt.member("transformers.RingCache", member) == only
    kinds = {name: learnt.member_kind("transformers.RingCache", name)[-1][1] for name in ("size", "layers", "cropped")}
    assert kinds == {"size": "settable property", "layers": "attribute", "cropped": "late attribute"}
    ((_, crop),) = learnt.signatures("transformers.RingCache", "crop")
    assert [(each.name, each.kind, each.default) for each in crop.parameters] == [
        ("count", "positional", "1"),
        ("more", "args", None),
        ("deep", "keyword", "False"),
        ("kwargs", "kwargs", None),
    ]
    ((_, (renamed,)),) = learnt.deprecations("transformers.RingCache", "crop")
    assert (renamed.old, renamed.new, renamed.removal) == ("length", "count", "6.1")
    ((_, (removal,)),) = learnt.deprecations("transformers.RingCache", "old")
    assert (removal.old, removal.removal) == (None, "7.2")


def test_a_learnt_release_changes_nothing_of_the_others(learnt: Timeline) -> None:
    others = learnt.all - ReleaseSet.of(len(learnt.releases) - 1)
    for name, releases in IMPORTABLE:
        assert ", ".join(learnt.ranges(learnt.importable(name) & others)) == releases
    assert learnt.fingerprint != TIMELINE.fingerprint


def test_learning_twice_needs_force(learnt: Timeline, package: Path) -> None:
    (package / "transformers" / "cache_utils.py").write_text("class Cache: ...\n", encoding="utf-8")
    assert "known already" in kvlint_api("update", "--from", str(package / "transformers"))
    assert timeline_module.load().knows("transformers.cache_utils.RingCache")
    report = json.loads(kvlint_api("update", "--from", str(package), "--force", "--output-format", "json"))
    assert report["learnt"] is True
    assert not timeline_module.load().knows("transformers.cache_utils.RingCache")


def test_another_packaged_timeline_is_merged_anew(learnt: Timeline, tmp_path: Path) -> None:
    older = Merged.load(timeline_module.packaged_file().read_text(encoding="utf-8"))
    smaller = Merged()
    for version in older.releases[-3:]:
        smaller.add(older.record(version))
    packaged = tmp_path / "timeline.json"
    packaged.write_text(smaller.dump(), encoding="utf-8")
    again = timeline_module.load(packaged)
    assert again.releases == (*older.releases[-3:], "5.99.0")
    assert again.knows("transformers.cache_utils.CircleCache")


def test_a_wheel_and_a_development_version_are_read_too(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVLINT_DATA_DIR", str(tmp_path / "data"))
    init = package / "transformers" / "__init__.py"
    init.write_text(INIT.format(version="5.24.0.dev0"), encoding="utf-8")
    wheel = tmp_path / "transformers-5.24.0.dev0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(package.rglob("*.py")):
            archive.write(path, path.relative_to(package).as_posix())
    assert read_wheel(wheel) == read_folder(package)
    assert "learnt transformers 5.24.0.dev0" in kvlint_api("update", "--from", str(wheel))
    timeline = timeline_module.load()
    assert timeline.releases[-2:] == ("5.24.0.dev0", "5.24.0")
    assert timeline.ranges(timeline.compare("<", "5.24.0"))[-1].endswith("-5.24.0.dev0")
    assert timeline.ranges(timeline.compare(">=", "5.24")) == ("5.24.0",)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "holds no transformers package"),
        ({"__init__.py": "x = 1\n"}, "names no version"),
        ({"__init__.py": '__version__ = "6.0.0"\n', "cache_utils.py": "class :\n"}, "nothing learnt"),
    ],
)
def test_what_is_no_release_is_refused(
    files: Mapping[str, str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVLINT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "transformers").mkdir()
    for name, text in files.items():
        (tmp_path / "transformers" / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageProblem, match=complaint):
        kvlint_api("update", "--from", str(tmp_path))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    packaged = tmp_path / "timeline.json"
    with pytest.raises(ValueError, match="cannot be read"):
        timeline_module.load(packaged, tmp_path / "none")
    packaged.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        timeline_module.load(packaged, tmp_path / "none")
    packaged.write_text('{\n"format":0,\n"releases":[]\n}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="layout 0"):
        timeline_module.load(packaged, tmp_path / "none")
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "6.0.0.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged; delete it"):
        timeline_overlay.merged(timeline_module.packaged_file().read_bytes(), tmp_path / "overlay")


# -------------------------------------------------------------------------------------------------------- kvlint api


@pytest.fixture(autouse=True)
def nothing_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLINT_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("DynamicCache.key_cache", "on 4.36.0 to 4.55.4"),
        ("HybridCache", "from transformers import HybridCache              4.44.0 to 4.57.6"),
        ("create_causal_mask", "5.24.0          past_key_values= renamed to cache= in 5.40.0"),
        ("transformers.modeling_attn_mask_utils", "on 4.36.0 to 5.23.0"),
        ("transformers.masking_utils", "create_causal_mask"),
        ("cache_implementation=hybrid", "on 4.42.0 to 5.24.0"),
        ("cache_implementation", "    4.43.0 to 4.53.3  mamba"),
        ("cache_implementation", "  deprecated\n    4.56.0 to 5.24.0  hybrid"),
        ("SlidingWindowCache", "5.5.1 to 5.24.0  transformers.cache_utils.StaticCache"),
        ("get_max_cache_shape", "transformers.cache_utils.DynamicCache.get_max_cache_shape  (method)"),
        ("LlamaAttention", "5.24.0            cache, **kwargs"),
    ],
)
def test_api_prints_the_life_of_a_name(name: str, line: str) -> None:
    assert line in kvlint_api(name)


def test_the_values_of_an_option_by_release_as_json() -> None:
    (option,) = json.loads(kvlint_api("--output-format", "json", "cache_implementation"))
    listed = {item["value"]: item["releases"] for item in option["values"]}
    assert listed == {value: list(TIMELINE.ranges(rs)) for value, rs in TIMELINE.cache_implementations().items()}


def test_api_as_json() -> None:
    (crop,) = json.loads(kvlint_api("--output-format", "json", "DynamicCache.crop"))
    assert crop["releases"] == ["4.42.0-5.24.0"]
    assert crop["parameters"][-1] == {"releases": ["5.15.0-5.24.0"], "value": "(tokens_to_remove)"}


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("HybirdCache", "HybridCache"),
        ("DynamicCache.key_cach", "DynamicCache.key_cache"),
        ("cache_implementation=hybird", "cache_implementation=hybrid"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, guess: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        kvlint_api(name)
    assert str(problem.value) == f"no release has '{name}', did you mean '{guess}'?"


def test_api_diff() -> None:
    found = json.loads(kvlint_api("diff", "4.57", "5.24.0", "--output-format", "json"))
    assert (found["old"], found["new"]) == ("4.57.6", "5.24.0")
    assert "transformers.HybridCache" in found["removed"]
    assert "transformers.cache_utils.Cache.__getitem__" in found["removed"]
    assert "transformers.cache_utils.DummyLayer" in found["added"]
    assert "transformers.cache_utils.Cache.update" in {each["name"] for each in found["changed"]}
    assert any("cache" in each["change"] for each in found["models"])
    text = kvlint_api("diff", "5.23.0", "5.24.0", "--all")
    assert "  transformers.modeling_attn_mask_utils\n" in text
    assert "llama.modeling_llama.LlamaAttention" in text
    assert "no difference" in kvlint_api("diff", "5.24.0", "5.24.0")
    with pytest.raises(UsageProblem, match=r"no known transformers release matches '4\.57\.99'"):
        kvlint_api("diff", "4.57.99", "5.24.0")


def test_api_without_a_name_says_what_to_give() -> None:
    with pytest.raises(UsageProblem, match="name what to look up"):
        kvlint_api()
