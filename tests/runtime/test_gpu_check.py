"""scripts/gpu_check.sh: its dry run on the CPU is whole, states what it did not run, and fails where something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvlint.runtime import accelerator
from kvlint.runtime.accelerator import Findings, NotHere, NotInRelease, Part, exit_code, parts, run

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip


def test_the_dry_run_is_whole_and_skips_nothing_silently(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    done = script("--device", "cpu", "--limit", "800", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(output.read_text())
    assert document["finished"]
    assert [part["part"] for part in document["parts"]] == [part.name for part in parts("cpu")]
    for part in document["parts"]:
        if part["status"] == "not run":
            assert "CUDA" in part["reason"]
        else:
            assert part["status"] == "passed", part
            assert part["held"] > 0
    ran = {part["part"].split()[0] for part in document["parts"] if part["status"] == "passed"}
    assert ran == {"values", "placement", "quantized", "compiled", "memory", "verify", "attention"}


def test_without_a_device_one_line_says_so() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = script("never-written.json")
    assert done.returncode == 2
    assert done.stderr.strip() == "gpu_check: torch sees no CUDA device (--device cpu is a dry run)"
    assert not Path("never-written.json").exists()


def test_without_arguments_the_script_says_how_it_is_called() -> None:
    done = script()
    assert done.returncode == 2
    assert "gpu_check.sh [--device cuda]" in done.stdout


def fails(found: Findings) -> None:
    found.expect("it holds", False, "it does not")


def holds(found: Findings) -> None:
    found.expect("it holds", True)


def raises(found: Findings) -> None:
    raise RuntimeError("a kernel is missing")


def lacks(found: Findings) -> None:
    raise NotHere("no such package")


def precedes(found: Findings) -> None:
    raise NotInRelease("this release has no such family")


@pytest.mark.parametrize(
    ("function", "optional", "status", "code"),
    [
        (holds, False, "passed", 0),
        (fails, False, "failed", 1),
        (raises, False, "error", 1),
        (lacks, False, "not run", 2),
        (lacks, True, "not run", 0),
        (precedes, False, "not in this release", 0),
    ],
)
def test_the_exit_code_says_what_was_not_run(
    function: Any, optional: bool, status: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "parts", lambda device: [Part("only", function, optional)])
    document = run("cpu", 100.0)
    assert document["parts"][0]["status"] == status
    assert exit_code(document, dry=True) == code


def test_parts_behind_the_limit_are_listed_and_what_was_done_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(accelerator, "parts", lambda device: [Part("one", holds), Part("two", holds)])
    document = run("cpu", -1.0, keep=lambda document: kept.append(len(document["parts"])))
    assert [part["status"] for part in document["parts"]] == ["no time", "no time"]
    assert kept == [1, 2, 2]
    assert exit_code(document, dry=False) == 2


def test_a_cache_of_another_dtype_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers.cache_utils import DynamicLayer

    original = DynamicLayer.update

    def update(self: Any, keys: Any, values: Any, *arguments: Any, **options: Any) -> Any:
        found = original(self, keys, values, *arguments, **options)
        self.keys = self.keys.to(torch.float64)
        return tuple(tensor.to(keys.dtype) for tensor in found)  # the model itself sees nothing

    monkeypatch.setattr(DynamicLayer, "update", update)
    document = run("cpu", 100.0, ["placement llama dynamic"])
    [part] = document["parts"]
    assert part["status"] == "failed"
    assert part["reason"] == "self layer 0 tensor 0 in bfloat16: found torch.float64"


def test_other_values_than_on_the_cpu_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.cache_utils import DynamicLayer

    original, calls = DynamicLayer.update, [0]

    def update(self: Any, keys: Any, values: Any, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1  # the first model's two layers take three steps: what comes after is the second's
        return original(self, keys * (1.0 if calls[0] <= 6 else 1.1), values, *arguments, **options)

    monkeypatch.setattr(DynamicLayer, "update", update)
    [part] = run("cpu", 100.0, ["values llama float32"])["parts"]
    assert part["status"] == "failed"
    assert "within 0.002" in part["reason"]
