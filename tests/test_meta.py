"""What holds for the project as a whole: rules, README, packaging, and what must not be in any file."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import page_runner
import pytest

import kvlint
from kvlint import rulebook, selection

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = page_runner.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _files() -> list[Path]:
    """The files of the project: what git knows, or everything in an unpacked archive that is no build product."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        built = {".cache", ".venv", "build", "dist", "__pycache__"}
        paths = [path for path in ROOT.rglob("*") if not built & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def test_every_page_has_a_check_and_every_check_a_page() -> None:
    assert rulebook.unpaired(rulebook.read_pages()) == ()
    known = [(rule.code, rule.name) for rule in selection.known_rules()]
    assert known == [(page.code, page.name) for page in rulebook.load()]


def test_check_and_page_agree() -> None:
    from kvlint import checks

    by_code = {page.code: page for page in rulebook.load()}
    for check in checks.all_checks():
        page = by_code[check.code]
        assert check.name == page.name
        assert check.category in page.categories


def test_generated_parts_of_the_readme_are_up_to_date() -> None:
    assert _script("readme_table").filled(README) == README, "run python scripts/readme_table.py"


def test_readme_has_the_two_commands_that_ci_runs() -> None:
    setup = README[README.index("## Set-up") : README.index("## What it prints")]
    commands = re.findall(r"```sh\n(.*?)\n```", setup, re.DOTALL)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_configuration_in_the_readme_is_accepted(empty_folder: Path) -> None:
    (snippet,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (empty_folder / "pyproject.toml").write_text(snippet, encoding="utf-8")
    run = page_runner.kvlint("--show-settings")
    assert (run.exit_code, run.stderr) == (0, "")
    assert "cache-subscript" in run.stdout or "KV204" in run.stdout


FENCED = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def test_links_of_the_documentation_lead_somewhere() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in _files()
        if page.suffix == ".md" and "tests" not in page.relative_to(ROOT).parts
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", FENCED.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists() and target not in MADE_FOR_THE_SITE
    ]
    assert missing == []


MADE_FOR_THE_SITE = ("../rules/index.md",)
"""Pages that `scripts/site_pages.py` makes; the build of the site fails where one is not there."""


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == kvlint.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(kvlint.__version__)}\b", changelog, re.MULTILINE)
    for page in rulebook.read_pages():
        assert f"## {page.since} " in changelog, (
            f"{page.code} came with {page.since}, which the changelog does not have"
        )


FORBIDDEN = tuple(
    "".join(parts) for parts in (("/wo", "rk/"), ("/tmp/", "kv"), ("/ro", "ot/"), ("/.libr", "ary"), ("../sh", "ared"))
)


@pytest.mark.parametrize("words", FORBIDDEN)
def test_no_file_names_a_place_on_somebodys_machine(words: str) -> None:
    assert [str(path.relative_to(ROOT)) for path in _files() if words.encode() in path.read_bytes()] == []


HOOKED = (
    *("a.py", "src/a.pyi", "a/b.ipynb", "README.md", "docs/a.rst", "bin/tool", "json.py"),
    *("generation_config.json", "m/generation_config.json", "config.json", "m/my_config.json", "tsconfig.json"),
)
"""Files that the hooks are asked about: every one but settings in JSON that are not those of generation."""


def test_the_snippets_for_continuous_integration_are_what_the_hooks_and_the_action_take() -> None:
    import yaml

    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    snippets = [yaml.safe_load(part.split("```")[0]) for part in text.split("```yaml\n")[1:]]
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    (local,) = [
        hook
        for part in snippets
        if "repos" in part
        for repo in part["repos"]
        for hook in repo["hooks"]
        if "entry" in hook
    ]
    assert {key: local[key] for key in ("entry", "types_or", "files", "require_serial")} == {
        key: hooks["kvlint"][key] for key in ("entry", "types_or", "files", "require_serial")
    }
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    steps = [step for part in snippets for step in (part if isinstance(part, list) else part.get("steps", ()))]
    used = [step["with"] for step in steps if step["uses"].startswith("kvlint/kvlint@")]
    assert len(used) == 3
    for given in used:
        assert set(given) <= set(inputs)
        options = [word for word in given.get("arguments", "").split() if word.startswith("--")]
        helped = page_runner.kvlint("--help").stdout
        assert all(option in helped for option in options)


def test_workflows_use_every_system_and_python() -> None:
    import yaml

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["linter"]["strategy"]["matrix"]
    assert matrix["os"] == jobs["action"]["strategy"]["matrix"]["os"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [f"3.{minor}" for minor in range(10, 15)]
    commands = [step["run"] for step in jobs["linter"]["steps"] if "run" in step]
    named = re.findall(r"(?:tests|examples)/\w+\.py", "\n".join(commands))
    assert named and all((ROOT / name).is_file() for name in named)


def test_hooks_start_kvlint_on_every_kind_of_file() -> None:
    import yaml

    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["kvlint", "kvlint-fix"]
    for hook in hooks:
        assert {"python", "pyi", "jupyter", "markdown", "rst", "json"} == set(hook["types_or"])
        wanted = [name for name in HOOKED if re.search(hook["files"], name)]
        assert wanted == [
            name for name in HOOKED if name.endswith("generation_config.json") or not name.endswith(".json")
        ]
        program, *options = hook["entry"].split()
        assert program == "kvlint"
        assert page_runner.kvlint(*options, "--help").exit_code == 0
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert set(inputs) == {"paths", "target", "arguments"}


def test_wheel_brings_the_rulebook(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("kvlint-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "unpacked")
    for file in (ROOT / "rules").rglob("*"):
        if file.is_file():
            assert f"kvlint/_rules/{file.relative_to(ROOT / 'rules').as_posix()}" in names
    run = subprocess.run(
        [sys.executable, "-c", "from kvlint.cli import main; main()", "rule", "--all"],
        cwd=tmp_path / "unpacked",
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert [line.split()[0] for line in run.stdout.splitlines()] == [page.code for page in rulebook.read_pages()]


# --- kvlint rule


def test_rule_is_printed_by_code_and_by_name() -> None:
    for page in rulebook.load():
        by_code = page_runner.kvlint("rule", page.code)
        by_name = page_runner.kvlint("rule", page.name)
        assert by_code.exit_code == 0
        assert by_code.stdout == by_name.stdout
        assert by_code.stdout.startswith(f"# {page.code} {page.name}\n\n{page.summary}.\n")
        assert not re.search(r"^`{3,}(?:python|json) ", by_code.stdout, re.MULTILINE), "a fence shows its attributes"
        for block in page.blocks:
            if block.role == "bad":
                assert block.text.split("\n")[0].strip() in by_code.stdout


def test_rule_as_json() -> None:
    import json

    pages = rulebook.load()
    every = json.loads(page_runner.kvlint("rule", "--all", "--output-format", "json").stdout)
    assert [(one["code"], one["name"]) for one in every] == [(page.code, page.name) for page in pages]
    one = json.loads(page_runner.kvlint("rule", pages[0].code.lower(), "--output-format", "json").stdout)
    assert one == every[0]
    assert list(one["sections"]) == list(rulebook.HEADINGS)


def test_a_prefix_lists_the_rules_whose_codes_begin_so() -> None:
    import json

    pages = [page for page in rulebook.load() if page.code.startswith("KV2")]
    listed = page_runner.kvlint("rule", "kv2")
    assert (listed.exit_code, [line.split()[0] for line in listed.stdout.splitlines()]) == (0, [p.code for p in pages])
    found = json.loads(page_runner.kvlint("rule", "KV21", "--output-format", "json").stdout)
    assert [one["code"] for one in found] == [page.code for page in pages if page.code.startswith("KV21")]
    assert page_runner.kvlint("rule", "KV").stdout == page_runner.kvlint("rule", "--all").stdout
    assert page_runner.kvlint("rule", "KV99").exit_code == 2


def test_unknown_rule_is_one_clear_line() -> None:
    page = rulebook.load()[-1]
    run = page_runner.kvlint("rule", page.name[:-1])
    assert run.exit_code == 2
    assert run.stdout == ""
    assert f"did you mean {page.code} ({page.name})?" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["rule"], ["rule", "KV204", "--all"]])
def test_rule_wants_one_rule_or_all(arguments: list[str]) -> None:
    run = page_runner.kvlint(*arguments)
    assert run.exit_code == 2
    assert "name one rule" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
