"""docs/runtime-library.md: each of its five examples does what the page says, and the names that it lists are there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from click.testing import CliRunner

import kvlint.runtime
from kvlint.verify_commands import verify
from tests.runtime import broken

PAGE = (Path(__file__).parents[2] / "docs" / "runtime-library.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL))
NEW_NAMES = pytest.mark.skipif(
    not hasattr(transformers, "__version__") or tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24),
    reason="the examples are written for 5.24",
)


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(kvlint.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={"PYTHONPATH": root, "PATH": "", "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_page_has_five_examples() -> None:
    assert list(EXAMPLES) == [
        "test_cache.py", ".github/workflows/cache.yml", "attention.py", "own_cache.py", "train.py"
    ]  # fmt: skip
    assert len(re.findall(r"^## \d\. ", PAGE, re.MULTILINE)) == 5


def test_the_names_of_the_page_are_the_names_of_the_library() -> None:
    [names] = re.findall(r"^from kvlint.runtime import (.+)$", PAGE.split("```")[1], re.MULTILINE)
    listed = names.split(", ")
    assert set(listed) <= set(kvlint.runtime.__all__)
    for name in listed:
        assert callable(getattr(kvlint.runtime, name))
        assert getattr(kvlint.runtime, name).__doc__
        assert f"`{name}(" in PAGE


def test_the_library_is_imported_without_torch(tmp_path: Path) -> None:
    code = "import sys, kvlint.runtime; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert python("-c", code, folder=tmp_path).returncode == 0


@NEW_NAMES
def test_the_plugin_watches_a_projects_tests(tmp_path: Path) -> None:
    (tmp_path / "test_cache.py").write_text(EXAMPLES["test_cache.py"])
    # The entry point is blocked so that the plugin is loaded once, whether or not kvlint is installed.
    plugin = ("-p", "no:kvlint", "-p", "kvlint.pytest_plugin")
    done = python("-m", "pytest", "-q", *plugin, "--kv-verify", "test_cache.py", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_command_of_the_workflow_checks_a_models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = re.findall(r"- run: kvlint verify (.+)", EXAMPLES[".github/workflows/cache.yml"])
    broken.small_llama().model.save_pretrained(tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    data["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps(data))
    (tmp_path / "modeling_own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n"
        "    config_class = LlamaConfig\n"
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(verify, command.split())
    assert result.exit_code == 0, result.output
    assert "## ., static cache: passed" in (tmp_path / "cache.md").read_text()
    assert (tmp_path / "cache.xml").exists()


@NEW_NAMES
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("attention.py", ("layer 0, 1: expected", "query heads")),
        ("own_cache.py", ("get_seq_length(0) ==",)),
        ("train.py", ("step 0: loss", "step 2: loss", "4 forwards watched")),
    ],
)
def test_an_example_runs_as_it_stands(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).write_text(EXAMPLES[name])
    done = python(name, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in words:
        assert word in done.stdout


def test_what_is_documented_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(
        "from kvlint.runtime import CheckResult, Options, Plan, Source, Verification, check_cache, verify, watch_cache\n"
        "def failures(name: str, model: object, cache: object, config: object) -> tuple[CheckResult, ...]:\n"
        "    one: Verification = verify(Options(Source(name, random_weights=True), Plan(batch=1), at_length=100))\n"
        "    with watch_cache(model, every=2, action='record') as watch:\n"
        "        results = check_cache(cache, config, tokens=1)\n"
        "    reveal_type(watch.seen[0].tokens)\n"
        "    return one.failures + watch.failures + results\n"
        "verify(3)\n"
    )
    settings = "[mypy]\nstrict = true\n[mypy-torch.*,transformers.*]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings)
    done = python("-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "use.py", folder=tmp_path)
    assert 'Revealed type is "int | None"' in done.stdout or 'Revealed type is "Union[int, None]"' in done.stdout
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert 'Argument 1 to "verify" has incompatible type "int"' in errors[0]
