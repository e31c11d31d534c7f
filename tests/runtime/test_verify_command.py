"""``kvlint verify``: exit codes, outputs, and one clear line for everything that can go wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from kvlint.runtime.report import read_json, to_json, to_junit
from kvlint.runtime.result import CheckResult, Status, Verification
from kvlint.verify_commands import exit_code, verify
from tests.runtime import broken


def run(*arguments: str) -> Result:
    return CliRunner().invoke(verify, list(arguments))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    broken.small_llama().model.save_pretrained(path)
    return path


def test_a_model_on_disk_is_loaded_by_the_real_loading_code(saved: Path, tmp_path: Path) -> None:
    result = run(str(saved), "--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml"))
    assert result.exit_code == 0, result.output
    assert "head-map" in result.output
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["summary"] == {"passed": 1, "failed": 0, "unsupported": 0}
    assert document["verifications"][0]["model_type"] == "llama"
    suite = ElementTree.fromstring((tmp_path / "out.xml").read_text())[0]
    assert suite.get("failures") == "0"


def test_a_config_file_is_enough_for_random_weights(saved: Path) -> None:
    result = run("--random-weights", str(saved / "config.json"), "--batch", "3", "--prompt-length", "9")
    assert result.exit_code == 0, result.output
    assert "16 tokens x 3 rows" in result.output


def test_several_models_are_run_apart_and_counted(tmp_path: Path) -> None:
    result = run("--random-weights", "llama", "rwkv", "--json", str(tmp_path / "out.json"))
    assert result.exit_code == 2, result.output
    assert "2 models: 1 passed, 1 unsupported" in result.output
    names = [one.model for one in read_json((tmp_path / "out.json").read_text())]
    assert names == ["llama", "rwkv"]


def test_a_model_that_takes_too_long_is_ended() -> None:
    result = run("--random-weights", "llama", "qwen3_next", "--limit", "1", "--new-tokens", "200")
    assert "took longer than 1 s" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a MODEL"),
        (["--all"], "--all needs --random-weights"),
        (["llama", "--random-weights", "--check", "nonsense"], "no check is named nonsense"),
        (["llama", "--random-weights", "--device", "warp"], "device warp cannot be used"),
        (["llama", "--random-weights", "--dtype", "float99"], "no dtype of torch"),
        (["/nowhere/at/all"], "cannot load /nowhere/at/all"),
        (["/nowhere/at/all", "--random-weights"], "there is no such folder or file"),
        (["nobody-has/this-model"], "not in the local cache"),
        (["rwkv", "--random-weights"], "takes no cache"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line_with_exit_code_2(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2")
    result = run("--random-weights", str(tmp_path / "config.json"))
    assert result.exit_code == 2
    assert "is no configuration" in " ".join(result.output.split())


def test_several_kinds_of_cache_are_run_one_after_the_other(tmp_path: Path) -> None:
    result = run(
        "--random-weights", "llama", "--cache", "dynamic", "--cache", "static", "--check", "bytes",
        "--at-length", "1000", "--markdown", str(tmp_path / "out.md"), "--json", str(tmp_path / "out.json"),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 runs: 2 passed" in result.output
    assert "extrapolated to 1000 tokens x 2 rows" in " ".join(result.output.split())
    assert [one.cache for one in read_json((tmp_path / "out.json").read_text())] == ["dynamic", "static"]
    page = (tmp_path / "out.md").read_text()
    assert "## llama, static cache: passed" in page
    assert "seed 0" in page
    assert "Prompt: `[[" in page


def test_a_check_can_be_left_out_and_is_listed_as_such() -> None:
    result = run("--random-weights", "llama", "--skip", "generate", "--skip", "head-map")
    assert result.exit_code == 0, result.output
    assert result.output.count("left out (--skip)") == 2


def test_all_checks_are_listed_with_what_they_are_for() -> None:
    from kvlint.runtime.checks.base import all_checks

    result = run("--list-checks")
    assert result.exit_code == 0, result.output
    for check in all_checks():
        assert check.name in result.output
        assert check.explanation
    assert "[batch, kv heads" in " ".join(result.output.split())


def test_an_interrupted_sweep_goes_on_from_what_it_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    first = run("--random-weights", "llama", "--check", "kv-heads", "--resume", str(kept))
    assert first.exit_code == 0, first.output
    with kept.open("a", encoding="utf-8") as file:
        file.write('{"model": "gpt2", "cut off')  # a kill in the middle of a line
    second = run("--random-weights", "llama", "gpt2", "--check", "kv-heads", "--resume", str(kept))
    assert second.exit_code == 0, second.output
    assert "[2/2] gpt2" in second.output
    assert "] llama" not in second.output
    assert [json.loads(line)["model"] for line in kept.read_text().splitlines()] == ["llama", "gpt2"]


def test_results_of_another_release_are_not_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text(json.dumps(replace(SOUND, transformers="4.99.0").to_json()) + "\n")
    result = run("--random-weights", "llama", "--resume", str(kept))
    assert result.exit_code == 2
    assert "holds results of transformers 4.99.0" in " ".join(result.output.split())


@pytest.mark.parametrize("options", [(), ("--random-weights",)])
def test_code_of_a_model_is_not_passed_over_in_silence(options: tuple[str, ...], tmp_path: Path) -> None:
    model = broken.small_llama().model
    model.config.auto_map = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    model.save_pretrained(tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    data["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps(data))
    name = str(tmp_path / "config.json") if options else str(tmp_path)
    refused = run(*options, name, "--check", "kv-heads")
    assert refused.exit_code == 2
    assert "brings its own code (modeling_own.OwnForCausalLM)" in " ".join(refused.output.split())
    accepted = run(*options, name, "--check", "kv-heads", "--ignore-remote-code")
    assert accepted.exit_code == 0, accepted.output


def test_code_of_a_model_is_run_where_asked_for(tmp_path: Path) -> None:
    broken.small_llama().model.save_pretrained(tmp_path)
    (tmp_path / "modeling_own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n"
        "    config_class = LlamaConfig\n"
        "    def forward(self, *arguments, **options):\n"
        "        raise RuntimeError('this is the own code')\n"
    )
    data = json.loads((tmp_path / "config.json").read_text())
    data["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps(data))
    result = run(str(tmp_path), "--trust-remote-code")
    assert result.exit_code == 2
    assert "this is the own code" in " ".join(result.output.split())


def test_pickled_weights_need_a_flag(tmp_path: Path) -> None:
    import torch

    model = broken.small_llama().model
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    refused = run(str(tmp_path))
    assert refused.exit_code == 2
    assert "--allow-pickle" in refused.output
    allowed = run(str(tmp_path), "--allow-pickle", "--check", "kv-heads")
    assert allowed.exit_code == 0, allowed.output


def test_remote_code_needs_a_flag(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}})
    )
    (tmp_path / "configuration_own.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    result = run(str(tmp_path))
    assert result.exit_code == 2
    assert "--trust-remote-code" in result.output
    assert not marker.exists()


def test_without_the_runtime_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run("--random-weights", "llama")
    assert result.exit_code == 2
    assert result.output.strip().count("\n") == 0
    assert 'pip install "kvlint[runtime]"' in result.output


def test_an_old_release_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", "4.55.4")
    result = run("--random-weights", "llama")
    assert result.exit_code == 2
    assert "needs transformers 4.56 or newer, found 4.55.4" in result.output


def test_a_plot_is_drawn_or_its_package_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("--random-weights", "llama", "--check", "kv-heads", "--plot", str(tmp_path / "out.png"))
    assert result.exit_code == 2
    assert 'pip install "kvlint[plot]"' in result.output


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("--random-weights", "gemma2", "--check", "kv-heads", "--plot", str(tmp_path / "out.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = run("--random-weights", "llama", "--check", "kv-heads", "--json", str(tmp_path / "no" / "out.json"))
    assert result.exit_code == 2
    assert "cannot write" in result.output


FAILED = CheckResult("head-map", Status.FAILED, "KV601", "[2, 3]", "[1, 3]", "Why it matters.", (0, 1))
SOUND = Verification("m", "llama", "dynamic", checks=(CheckResult("kv-heads", Status.PASSED),))


def test_exit_codes_are_those_of_the_linter() -> None:
    failed = replace(SOUND, checks=(*SOUND.checks, FAILED))
    unsupported = replace(SOUND, checks=(), unsupported="no cache")
    assert exit_code((SOUND,)) == 0
    assert exit_code((SOUND, failed)) == 1
    assert exit_code((unsupported,)) == 2
    assert exit_code((SOUND, unsupported)) == 2
    assert exit_code((failed, unsupported)) == 1


def test_json_is_read_back_unchanged() -> None:
    one = replace(SOUND, checks=(FAILED,))
    assert read_json(to_json([one, SOUND])) == (one, SOUND)


def test_junit_names_the_code_and_explains() -> None:
    suite = ElementTree.fromstring(to_junit([replace(SOUND, checks=(FAILED,))]))[0]
    case = suite[0]
    assert case.get("name") == "KV601 head-map"
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "layer 0, 1: expected [2, 3], found [1, 3]"
    assert failure.text == "Why it matters."
