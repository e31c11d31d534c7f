"""The packaged contracts are what the sources of the releases say, and what running models do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from page_runner import transformers4_folder

from kvlint import contracts_build
from kvlint.api_commands import api
from kvlint.contracts import Call, Contracts, load
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import CACHE_KEYWORDS, packaged_file
from kvlint.timeline import load as load_timeline

TIMELINE = load_timeline(overlay=Path("no overlay"))
CONTRACTS = load(TIMELINE.releases)
WORKER = Path(__file__).with_name("contracts_worker.py")
RELEASES = ("4.57.6", "5.24.0")
OF_CACHES = frozenset(CACHE_KEYWORDS) - {"use_cache", "cache_position"}


def ranges(found: ReleaseSet) -> str:
    return ", ".join(TIMELINE.ranges(found))


def on(release: str, dated: Any) -> list[Any]:
    """What holds on one release."""
    bit = TIMELINE.matching(f"=={release}")
    return [value for rs, value in dated if rs & bit]


# --------------------------------------------------------------------------------------------- the file and its source


def folder(release: str) -> Path:
    """The folder in which a release is installed, for the tests to run it."""
    if release.startswith("4."):
        return transformers4_folder()
    spec = find_spec("transformers")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


def test_two_releases_read_again_give_the_rows_of_the_file() -> None:
    kept = contracts_build.merged(load())
    for release in RELEASES:
        read = contracts_build.read_folder(folder(release))
        assert read.version == release
        assert read.symbols == kept.record(release).symbols


def test_the_file_is_its_own_dump() -> None:
    text = packaged_file().with_name("contracts.json").read_text(encoding="utf-8")
    assert contracts_build.dump(contracts_build.merged(load())) == text


def test_contracts_know_the_releases_of_the_timeline() -> None:
    assert CONTRACTS.releases == TIMELINE.releases
    assert CONTRACTS.known == TIMELINE.all


def test_every_row_has_its_evidence() -> None:
    """Each caller that the file names is a function of a file of the release, and makes the call."""
    for kind, method in (("attention", "forward"), ("cache", "update"), ("cache layer", "get_mask_sizes")):
        for values in CONTRACTS.kind_callers(kind, method).values():
            for value, dated in values.items():
                for rs, caller in dated:
                    owner, _, name = caller.rpartition(".")
                    assert CONTRACTS.defines(owner, name) >= rs, (kind, method, value, caller)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ('"kinds":{', "the contracts are damaged; reinstall kvlint"),
        ('"format":1', "the contracts have layout 9, this kvlint reads 1"),
    ],
)
def test_another_layout_is_refused(damage: str, complaint: str, tmp_path: Path) -> None:
    text = packaged_file().with_name("contracts.json").read_text(encoding="utf-8")
    path = tmp_path / "contracts.json"
    path.write_text(text.replace(damage, damage.replace("kinds", "sorts").replace("1", "9"), 1), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        load(path=path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.json cannot be read: No such file or directory; reinstall kvlint"):
        load(path=tmp_path / "none.json")


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("cls", "method", "keyword", "releases"),
    [
        ("LlamaAttention", "forward", "past_key_value", "4.36.0-4.55.4"),
        ("LlamaAttention", "forward", "past_key_values", "4.56.0-5.23.0"),
        ("LlamaAttention", "forward", "cache", "5.24.0"),
        ("LlamaAttention", "forward", "cache_position", "4.38.0-5.3.0"),
        ("GPTNeoXAttention", "forward", "layer_past", "4.36.0-5.24.0"),
        ("LlamaForCausalLM", "prepare_inputs_for_generation", "next_sequence_length", "5.3.0-5.24.0"),
    ],
)
def test_keywords_that_come_in(cls: str, method: str, keyword: str, releases: str) -> None:
    assert ranges(CONTRACTS.passed(cls, method)[keyword]) == releases


def test_attentions_gave_three_and_give_two() -> None:
    counts = [(use.unpacked, ranges(rs)) for rs, use in CONTRACTS.result_use("LlamaAttention")]
    assert counts == [(3, "4.36.0-4.47.1"), (2, "4.48.0-4.53.3"), (2, "4.54.0-5.24.0")]


def test_layers_of_caches_are_handed_the_query_length_instead_of_positions() -> None:
    places = CONTRACTS.positions("DynamicLayer", "get_mask_sizes")
    assert ranges(places[0]) == "4.54.0-5.24.0"
    old, new = (TIMELINE.matching(text) for text in ("==5.3.0", "==5.4.0"))
    calls = CONTRACTS.calls("transformers.cache_utils.Cache", "get_mask_sizes")
    assert [call.positions for rs, call in calls if rs & old and call.receiver == "<layer>.get_mask_sizes"] == [
        ("cache_position",)
    ]
    assert [call.positions for rs, call in calls if rs & new and call.receiver == "<layer>.get_mask_sizes"] == [
        ("query_length",)
    ]


def test_who_generates() -> None:
    assert ranges(CONTRACTS.generates("LlamaForCausalLM")) == "4.36.0-5.24.0"
    assert ranges(CONTRACTS.generates("LlamaModel")) == "4.36.0-4.51.3"
    assert not CONTRACTS.generates("BertForSequenceClassification") & TIMELINE.matching(">=4.52")


def test_what_is_not_recorded_is_unknown() -> None:
    assert not CONTRACTS.defines("NoSuchModel")
    assert CONTRACTS.callers("NoSuchModel") == ()
    assert CONTRACTS.takes("LlamaForCausalLM", "no_such_method") == ()


# ------------------------------------------------------------------------------------------------------------ kvlint api


def kvlint_api(*arguments: str) -> str:
    """What ``kvlint api`` prints. Raises what it raises."""
    result = CliRunner().invoke(api, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(
    "line",
    [
        "transformers.models.llama.modeling_llama.LlamaDecoderLayer.forward  (method)",
        "    5.24.0            past_key_values= still fills cache= until 5.40.0",
        (
            "5.24.0 LlamaModel.forward calls self.layers[*](hidden_states, attention_mask=, position_embeddings=,"
            " position_ids=, cache=, use_cache=, **kwargs), uses the result as it is"
            "  (transformers/models/llama/modeling_llama.py)"
        ),
        (
            "5.24.0 self.self_attn(hidden_states=, attention_mask=, position_ids=, cache=, use_cache=,"
            " position_embeddings=, **kwargs), unpacks 2, uses 0 of them  (transformers/models/llama/modeling_llama.py)"
        ),
        "    4.42.0 to 4.42.4                    nothing: an unknown keyword is swallowed",
        "    4.54.0 to 5.24.0  hidden_states",
    ],
)
def test_api_prints_what_comes_in_goes_on_and_is_returned(line: str) -> None:
    lines = [" ".join(each.split()) for each in kvlint_api("LlamaDecoderLayer.forward").splitlines()]
    assert " ".join(line.split()) in lines


def test_api_as_json() -> None:
    (found,) = json.loads(kvlint_api("LlamaDecoderLayer.forward", "--output-format", "json"))
    coming = [row for row in found["contract"]["comes in"] if row["releases"] == ["5.24.0"]]
    assert [(row["caller"], row["positions"], row["checkpoint"]) for row in coming] == [
        ("transformers.models.llama.modeling_llama.LlamaModel.forward", ["hidden_states"], False)
    ]
    assert coming[0]["keywords"] == ["attention_mask", "position_embeddings", "position_ids", "cache", "use_cache"]
    assert coming[0]["file"] == "transformers/models/llama/modeling_llama.py"
    assert found["contract"]["kwargs go to"][-1]["to"] == []


def test_api_of_a_cache_method_tells_what_all_callers_pass() -> None:
    (found,) = json.loads(kvlint_api("DynamicCache.update", "--output-format", "json"))
    positions = {row["positions"]: row["releases"] for row in found["contract"]["comes in"] if "positions" in row}
    assert positions["4"] == ["4.36.0-5.3.0"]
    assert all(row["caller"] and row["file"].endswith(".py") for row in found["contract"]["comes in"])


def test_api_of_a_function_tells_who_calls_it() -> None:
    (found,) = json.loads(kvlint_api("transformers.masking_utils.create_causal_mask", "--output-format", "json"))
    keywords = {row["keyword"]: row["releases"] for row in found["contract"]["comes in"] if "keyword" in row}
    assert keywords["cache"] == ["5.24.0"]


# ------------------------------------------------------------------------------------------------- what really happens


@cache
def observed(release: str) -> Mapping[str, Any]:
    """What the worker saw on a release."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if release.startswith("4."):
        environment["PYTHONPATH"] = str(folder(release))
    command = [sys.executable, str(WORKER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def kind_of(contracts: Contracts, cls: str, release: str) -> str:
    return next(iter(on(release, contracts.kind(cls))), "")


def candidates(seen: Mapping[str, Any], release: str) -> list[Call]:
    """Calls of the contracts that the observed one can be: in the same function, of the same method."""
    owner, _, method = seen["callee"].rpartition(".")
    if owner.startswith("transformers.cache_utils."):
        caller, _, function = seen["caller"].rpartition(".")
        ways = {f"{receiver}.{method}" for receiver in ("<cache>", "<layer>", "self", "super()")}
        return [call for call in on(release, CONTRACTS.calls(caller, function)) if call.receiver in ways]
    return [call for call in on(release, CONTRACTS.callers(owner, method)) if call.caller == seen["caller"]]


def passes(call: Call, seen: Mapping[str, Any]) -> bool:
    """Whether exactly these positions and keywords are passed, with what the spread dicts held."""
    positions = sum(not text.startswith("*") for text in call.positions)
    more = any(text.startswith("*") for text in call.positions)
    keywords = {name for name, _ in call.keywords}.union(*(seen["spread"].get(name, ()) for name in call.starred))
    enough = seen["positions"] >= positions if more else seen["positions"] == positions
    return enough and keywords == set(seen["keywords"])


def takes_apart(call: Call, seen: Mapping[str, Any]) -> bool:
    """Whether the caller did with the result what the contract says: as many values unpacked, no other item or field."""
    use = call.use
    unpacked = [count for count in seen["unpacked"] if count != use.unpacked]
    rest = [start for start in seen["rest_from"] if start != use.rest_from]
    return not unpacked and not rest and set(seen["items"]) <= use.items and set(seen["fields"]) <= use.fields


def about_caches(seen: Mapping[str, Any], release: str) -> bool:
    """Whether a cache has a part in the call: encoders run without, and no contract is recorded for them."""
    owner, _, method = seen["callee"].rpartition(".")
    if owner.startswith("transformers.cache_utils.") or method != "forward":
        return True
    return kind_of(CONTRACTS, owner, release) != "" and bool(OF_CACHES & set(seen["keywords"]))


@pytest.mark.parametrize("release", RELEASES)
def test_what_running_models_pass_and_use_is_what_the_contracts_say(release: str) -> None:
    found = observed(release)
    assert found["release"] == release
    assert len(found["families"]) >= 10
    wrong: list[str] = []
    held: dict[str, set[str]] = defaultdict(set)
    for seen in found["calls"]:
        if not about_caches(seen, release):
            continue
        matching = [call for call in candidates(seen, release) if passes(call, seen)]
        if not any(takes_apart(call, seen) for call in matching):
            known = [f"{call} -> {call.use.text}" for call in candidates(seen, release)]
            wrong.append(f"{seen['caller']} calls {seen['callee']}: {seen}; known: {known}")
        owner, _, method = seen["callee"].rpartition(".")
        held[kind_of(CONTRACTS, owner, release) if method == "forward" else method].add(owner)
    assert not wrong, "\n".join(wrong)
    assert len(held["attention"]) >= 10 and len(held["layer"]) >= 10 and len(held["model"]) >= 10
    assert len(held["prepare_inputs_for_generation"]) >= 10
    assert len(held["update"]) >= 3 and len(held["get_mask_sizes"]) >= 2 and len(held["reorder_cache"]) >= 2


@pytest.mark.parametrize("release", RELEASES)
def test_every_unpacked_result_and_every_item_was_seen(release: str) -> None:
    """The other way: where the contract of an attention or a layer says that two are unpacked, two were."""
    counts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for seen in observed(release)["calls"]:
        counts[seen["caller"], seen["callee"]].update(seen["unpacked"])
    compared = 0
    for (caller, callee), unpacked in counts.items():
        owner, _, method = callee.rpartition(".")
        if kind_of(CONTRACTS, owner, release) in ("attention", "mixer", "layer") and method == "forward":
            calls = [call for call in on(release, CONTRACTS.callers(owner)) if call.caller == caller]
            promised = {call.use.unpacked for call in calls if call.use.unpacked and not call.checkpoint}
            if calls and len(promised) <= 1:
                assert unpacked == promised, (caller, callee)
                compared += bool(promised)
    assert compared >= 8


@pytest.mark.parametrize("release", RELEASES)
def test_what_prepare_inputs_returns_is_what_it_writes(release: str) -> None:
    checked = 0
    for seen in observed(release)["calls"]:
        if "returned" in seen:
            written = {key for key, rs in writes_of(seen["defined"]).items() if rs & TIMELINE.matching(f"=={release}")}
            given = set(seen["keywords"]).union(*seen["spread"].values())
            assert set(seen["returned"]) <= written | given, seen
            checked += 1
    assert checked >= 10


def writes_of(cls: str) -> Mapping[str, ReleaseSet]:
    """Keys that a class's own ``prepare_inputs_for_generation`` writes, and those that it inherits."""
    found: dict[str, ReleaseSet] = dict(CONTRACTS.writes(cls, "prepare_inputs_for_generation"))
    for key, rs in CONTRACTS.writes(
        "transformers.generation.utils.GenerationMixin", "prepare_inputs_for_generation"
    ).items():
        found[key] = found.get(key, NO_RELEASE) | rs
    return found
