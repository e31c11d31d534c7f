"""``kvlint hub``: the code of models as it lies in a Hugging Face cache, built here the way the libraries build it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvlint.cli import exit_code_of
from kvlint.hub_cache import cache_folders, repositories, revisions
from kvlint.hub_commands import hub

OLD, NEW = "0" * 39 + "1", "a" * 40
STALE = "from transformers.cache_utils import SinkCache\n\ncache = SinkCache(4, 2)\n"
CLEAN = "from transformers import DynamicCache\n\ncache = DynamicCache()\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face home, and a working folder without any configuration."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_MODULES_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "hf"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``kvlint hub`` with arguments: exit code, output, error stream."""

    def run_hub(*arguments: str) -> tuple[int, str, str]:
        code = exit_code_of(lambda: hub.main([*arguments, "--no-cache"], "hub", standalone_mode=False))
        return (code, *capsys.readouterr())

    return run_hub


def download(home: Path, name: str, commit: str, files: dict[str, str], ref: str = "") -> Path:
    """A snapshot as huggingface_hub leaves it: links to blobs, and the branch that names the commit."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    for number, (file, text) in enumerate(files.items()):
        blob = folder / "blobs" / f"{commit[:8]}{number:032}"
        blob.write_text(text)
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(os.path.relpath(blob, (snapshot / file).parent))
    if ref:
        (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (folder / "refs" / ref).write_text(commit)
    return snapshot


def imported(home: Path, *parts: str, files: dict[str, str]) -> Path:
    """A copy as transformers makes it before it imports the code, with empty ``__init__.py`` on the way."""
    folder = home / "modules" / "transformers_modules"
    for part in ("", *parts):
        folder = folder / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def test_findings_are_grouped_by_repository_and_revision(home: Path, run: Run) -> None:
    snapshot = download(home, "my-org/chat.1b", NEW, {"modeling_chat.py": STALE, "sub/util.py": CLEAN}, "main")
    download(home, "my-org/chat.1b", OLD, {"modeling_chat.py": CLEAN}, "refs/pr/1")
    download(home, "plain", NEW, {"config.json": "{}"}, "main")
    imported(home, "my_hyphen_org", "chat_dot_1b", NEW, files={"modeling_chat.py": STALE})
    code, output, errors = run("--target", "5.24")
    assert code == 1, errors
    assert f"my-org/chat.1b at {NEW[:12]} (main)\n  {snapshot}\n  modeling_chat.py:1:38: KV101" in output
    assert f"my-org/chat.1b at {OLD[:12]} (refs/pr/1): nothing found in 1 file" in output
    assert "the copy that is imported" not in output  # it is the same as the snapshot
    assert "1 of 1 model that brings code or settings is affected." in output
    assert "Found 1 finding" in output


def test_one_model_by_name(home: Path, run: Run) -> None:
    download(home, "org/stale", NEW, {"m.py": STALE}, "main")
    download(home, "org/clean", NEW, {"m.py": CLEAN}, "main")
    download(home, "org/weights", NEW, {"config.json": "{}"}, "main")
    code, output, _ = run("org/clean", "--target", "5.24")
    assert (code, "stale" in output) == (0, False)
    code, output, _ = run("STALE", "--target", "5.24")
    assert (code, "org/stale at" in output) == (1, True)
    code, output, _ = run("stale", "--target", "4.40")
    assert code == 0
    code, output, _ = run("org/weights")
    assert (code, output) == (
        0,
        "org/weights is in the cache, but brings no code or settings of generation of its own.\n",
    )


def test_names_that_are_not_there(home: Path, run: Run) -> None:
    download(home, "org/chat-model", NEW, {"m.py": CLEAN})
    code, output, errors = run("org/chatmodel")
    assert (code, output) == (2, "")
    assert errors.startswith("kvlint: error: there is no model 'org/chatmodel' in the cache ")
    assert errors.endswith("did you mean 'org/chat-model'?\n")


def test_no_cache_at_all(home: Path, run: Run) -> None:
    code, output, errors = run()
    assert (code, output) == (2, "")
    assert "there is no Hugging Face cache" in errors
    assert str(home / "hub") in errors
    (home / "hub").mkdir(parents=True)
    assert run()[0] == 0


def test_settings_of_generation(home: Path, run: Run) -> None:
    stale = '{\n  "cache_implementation": "dynamic_full"\n}\n'
    config = '{"keys": "cache_implementation"}'
    snapshot = download(home, "org/stale", NEW, {"generation_config.json": stale, "config.json": config}, "main")
    download(home, "org/fine", NEW, {"generation_config.json": '{"use_cache": true}'}, "main")
    download(home, "org/both", NEW, {"generation_config.json": stale, "m.py": STALE}, "main")
    code, output, errors = run("--target", "5.24")
    assert (code, errors) == (1, "")
    assert f"org/stale at {NEW[:12]} (main)\n  {snapshot}\n  generation_config.json:2:27: KV401" in output
    assert "org/fine" not in output
    both = output[output.index("org/both") : output.index("org/stale")]
    assert [line.split(":")[0].strip() for line in both.splitlines() if "KV" in line] == [
        "generation_config.json",
        "m.py",
    ]
    assert "2 of 3 models that bring code or settings are affected." in output
    rows = json.loads(run("--target", "5.24", "--output-format", "json")[1])
    assert [(row["repository"], row["files"], len(row["findings"])) for row in rows] == [
        ("org/both", ["generation_config.json", "m.py"], 2),
        ("org/fine", ["generation_config.json"], 0),
        ("org/stale", ["generation_config.json"], 1),
    ]
    (snapshot / "generation_config.json").resolve().unlink()
    assert "org/stale" not in run("--target", "5.24")[1]
    assert run("org/fine", "--target", "5.24")[0] == 0


def test_json(home: Path, run: Run) -> None:
    snapshot = download(home, "org/stale", NEW, {"m.py": STALE}, "main")
    code, output, _ = run("--target", "5.24", "--output-format", "json")
    assert code == 1
    (row,) = json.loads(output)
    findings = row.pop("findings")
    assert row == {
        "repository": "org/stale",
        "revision": NEW,
        "refs": ["main"],
        "folder": str(snapshot),
        "imported": False,
        "files": ["m.py"],
    }
    assert [(item["file"], item["line"], item["code"]) for item in findings] == [
        ("m.py", 1, "KV101"),
    ]
    assert [other["line"] for other in findings[0]["related"]] == [3]
    assert {item["path"] for item in findings} == {str(snapshot / "m.py")}


def test_options_of_the_linter(home: Path, run: Run) -> None:
    download(home, "org/stale", NEW, {"m.py": STALE}, "main")
    assert run("--ignore", "KV1", "--target", "5.24")[0] == 0
    assert run("--select", "KV2", "--target", "5.24")[0] == 0
    assert run("--exit-zero", "--target", "5.24")[0] == 0
    code, _, errors = run("--select", "KV99999")
    assert (code, "--select: unknown rule 'KV99999'" in errors) == (2, True)
    code, output, _ = run("--ignore", "KV1", "-q")
    assert (code, output) == (0, "")


def test_copies_that_differ_or_stand_alone_are_listed(home: Path, run: Run) -> None:
    download(home, "org/edited", NEW, {"m.py": CLEAN, "n.py": CLEAN}, "main")
    folder = imported(home, "org", "edited", NEW, files={"m.py": STALE, "n.py": CLEAN})
    imported(home, "gone_hyphen_org", "_2_dot_5b", OLD, files={"m.py": CLEAN})
    imported(home, "local_hyphen_model", "0123456789abcdef", files={"m.py": CLEAN})
    imported(home, "older", files={"m.py": CLEAN})
    found = revisions(cache_folders(os.environ))
    assert [(one.repository, one.revision, one.imported, [file.name for file in one.files]) for one in found] == [
        ("gone-org/2.5b", OLD, True, ["m.py"]),
        ("local-model", "0123456789abcdef", True, ["m.py"]),
        ("older", "", True, ["m.py"]),
        ("org/edited", NEW, False, ["m.py", "n.py"]),
        ("org/edited", NEW, True, ["m.py"]),
    ]
    code, output, _ = run("org/edited", "--target", "5.24")
    assert code == 1
    assert f"org/edited at {NEW[:12]} (main), the copy that is imported\n  {folder}\n  m.py:1:38: KV101" in output


def test_dangling_links_are_passed_over(home: Path) -> None:
    snapshot = download(home, "org/m", NEW, {"m.py": CLEAN, "gone.py": STALE})
    (snapshot / "gone.py").resolve().unlink()
    (found,) = revisions(cache_folders(os.environ))
    assert [file.name for file in found.files] == ["m.py"]
    assert repositories(cache_folders(os.environ)) == ("org/m",)


ENVIRONMENTS = [
    {},
    {"XDG_CACHE_HOME": "/x"},
    {"HF_HOME": "~/hf"},
    {"HF_HOME": "$HOME/hf", "XDG_CACHE_HOME": "/x"},
    {"HUGGINGFACE_HUB_CACHE": "/y"},
    {"HUGGINGFACE_HUB_CACHE": "/y", "HF_HUB_CACHE": "/z"},
    {"HF_HOME": "/h", "HF_MODULES_CACHE": "/m"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: "-".join(environment) or "default")
def test_folders_are_those_of_the_libraries(environment: dict[str, str]) -> None:
    pytest.importorskip("huggingface_hub")
    names = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_MODULES_CACHE", "XDG_CACHE_HOME")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    variables = {**clean, "HOME": "/home/someone", **environment}
    program = "from huggingface_hub import constants as c; print(c.HF_HUB_CACHE); print(c.HF_HOME)"
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    hub_cache, hf_home = done.stdout.split()
    program = (
        "import os, sys; from kvlint.hub_cache import *; f = cache_folders(os.environ); print(f.hub); print(f.modules)"
    )
    variables["PYTHONPATH"] = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    modules = environment.get("HF_MODULES_CACHE", f"{hf_home}/modules")
    assert done.stdout.split() == [hub_cache, f"{modules}/transformers_modules"]


def test_module_folders_are_named_as_transformers_names_them(home: Path) -> None:
    dynamic = pytest.importorskip("transformers.dynamic_module_utils")
    for name in ("org/Plain", "my-org/phi-3.5-mini", "01-ai/2b.x", "a_b/c--d"):
        parts = [dynamic._sanitize_module_name(part) for part in name.split("/")]
        imported(home, *parts, NEW, files={"m.py": CLEAN})
    assert repositories(cache_folders(os.environ)) == ("01-ai/2b.x", "a_b/c--d", "my-org/phi-3.5-mini", "org/Plain")


def test_a_cache_made_by_transformers(home: Path, tmp_path: Path, run: Run) -> None:
    pytest.importorskip("transformers")
    model = tmp_path / "my-model"
    model.mkdir()
    (model / "modeling_x.py").write_text("from .helper_x import cache\n")
    (model / "helper_x.py").write_text(STALE)
    program = (
        "import sys; from transformers.dynamic_module_utils import get_cached_module_file as get; get(*sys.argv[1:])"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", program, str(model), "modeling_x.py"], env=environment, check=True)
    code, output, _ = run("my-model", "--target", "5.24")
    assert code == 1
    assert "\n  helper_x.py:1:38: KV101" in output
