"""The Python API: `kvlint.lint` and `kvlint.lint_paths` say what the command line says, and write nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import kvlint
from kvlint.cli import main
from kvlint.config import KEYS

pytestmark = pytest.mark.usefixtures("empty_folder")

STALE = "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"
FIXED = STALE.replace("past[0][0]", "past.layers[0].keys")
DOCS = Path(__file__).parent.parent / "docs" / "api.md"


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_text_has_the_findings_of_the_file() -> None:
    report = kvlint.lint(STALE, path="src/a.py")
    (item,) = report.findings
    assert (report.path, item.path, item.code, item.line, item.column, item.end_column) == (
        *("src/a.py", "src/a.py"),
        *("KV204", 4, 8, 15),
    )
    assert item.category is kvlint.Category.BREAKS
    assert item.fix is not None
    assert item.fix.applicability is kvlint.Applicability.SAFE
    assert not Path("src").exists()


def test_the_suffix_of_the_path_says_what_the_text_is() -> None:
    prose = f"# Decoding\n\n```python\n{STALE}```\n"
    assert [item.line for item in kvlint.lint(prose, "a.md").findings] == [7]
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": STALE}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert [(item.cell, item.line) for item in kvlint.lint(notebook, Path("a.ipynb")).findings] == [(1, 4)]
    settings = '{"cache_implementation": "no_such_cache"}'
    assert [item.code for item in kvlint.lint(settings, "generation_config.json").findings] == ["KV401"]


def test_fixing_returns_the_text_and_what_is_left() -> None:
    report = kvlint.lint(STALE, fix=True)
    assert report.fixed == FIXED
    assert report.findings == ()
    assert kvlint.lint(FIXED, fix=True).fixed is None
    windows = kvlint.lint(STALE.replace("\n", "\r\n").encode(), fix=True)
    assert windows.fixed_bytes == FIXED.replace("\n", "\r\n").encode()
    assert windows.fixed == FIXED.replace("\n", "\r\n")


def test_a_text_is_read_in_the_encoding_that_it_declares() -> None:
    text = f"# coding: latin-1\n{STALE}".replace("keys =", "é, keys = '', ")
    (item,) = kvlint.lint(text).findings
    assert (item.line, item.column) == (5, text.splitlines()[4].index("past") + 1)
    assert kvlint.lint(f"# coding: no-such-encoding\n{STALE}").findings[0].code == "KV000"


def test_settings_are_those_of_the_folder_unless_given() -> None:
    write("old/kvlint.toml", 'target = "4.40.0"\n')
    assert kvlint.lint(STALE, "old/a.py").findings == ()
    assert kvlint.lint(STALE, "new/a.py").findings
    assert kvlint.lint(STALE, "old/a.py", kvlint.Settings()).findings
    assert kvlint.lint(STALE, "new/a.py", kvlint.Settings(ignore=("KV2",))).findings == ()
    settings = replace(kvlint.settings_for("old"), target="5.24")
    assert kvlint.lint(STALE, "old/a.py", settings).findings
    assert kvlint.lint(STALE, "a/b.py", kvlint.Settings(per_file_ignores=(("a/**", ("KV204",)),))).findings == ()


def test_hidden_kinds_are_left_out_unless_asked_for() -> None:
    text = STALE.replace("keys = past[0][0]", "def step(ids):\n    return model(ids, past_key_values=past)")
    text = f"from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('a')\n{text}"
    (item,) = kvlint.lint(text, settings=kvlint.Settings(show=("deprecated",))).findings
    assert item.category is kvlint.Category.DEPRECATED
    assert kvlint.lint(text).findings == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (kvlint.Settings(select=()), "settings: select names no rule"),
        (kvlint.Settings(select=("KV99",)), "settings: select: unknown rule 'KV99'"),
        (kvlint.Settings(target="5.999"), "no known transformers release matches"),
        (kvlint.Settings(show=("depricated",)), "settings: show: 'depricated'"),
        (kvlint.Settings(jobs=-1), "settings: jobs must be 0"),
        (kvlint.Settings(output_format="x"), "settings: output-format: unknown output format 'x'"),
        (kvlint.Settings(per_file_ignores=(("*", ("KV99",)),)), "settings: per-file-ignores.'*': unknown rule"),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_one_line(settings: kvlint.Settings, words: str) -> None:
    with pytest.raises(kvlint.UsageProblem, match=re.escape(words)) as raised:
        kvlint.lint(STALE, settings=settings)
    assert "\n" not in str(raised.value)


def test_every_setting_of_a_file_is_a_field() -> None:
    assert set(KEYS.values()) <= set(kvlint.Settings.__dataclass_fields__)


def test_a_text_that_cannot_be_parsed_is_a_finding() -> None:
    (item,) = kvlint.lint(STALE + "def (:\n").findings
    assert (item.code, item.line) == ("KV000", 5)


def test_paths_have_the_findings_of_the_command_line() -> None:
    write("src/a.py", STALE)
    write("src/b.py", "x = 1\n")
    write("src/c.md", f"```python\n{STALE}```\n")
    report = kvlint.lint_paths(["src"])
    assert report.checked == 3
    assert [file.path for file in report.files] == ["src/a.py", "src/c.md"]
    printed = json.loads(CliRunner().invoke(main, ["src", "--output-format", "json"]).stdout)
    assert [(item.path, item.line, item.column, item.code) for item in report.findings] == [
        (row["path"], row["line"], row["column"], row["code"]) for row in printed
    ]


def test_paths_are_fixed_in_memory_only() -> None:
    path = write("a.py", STALE)
    report = kvlint.lint_paths([path], fix=True, cache=False)
    assert [file.fixed for file in report.files] == [FIXED]
    assert path.read_text() == STALE


def test_each_file_has_the_settings_of_its_folder() -> None:
    write("old/a.py", STALE)
    write("old/kvlint.toml", 'target = "4.40.0"\n')
    write("new/a.py", STALE)
    assert [item.path for item in kvlint.lint_paths(["."]).findings] == ["new/a.py"]
    assert [item.path for item in kvlint.lint_paths(["."], kvlint.Settings(target="5.24")).findings] == [
        "new/a.py",
        "old/a.py",
    ]


def test_a_missing_path_is_a_usage_problem() -> None:
    with pytest.raises(kvlint.UsageProblem, match=r"nowhere: no such file"):
        kvlint.lint_paths(["nowhere"])


def test_a_fault_of_a_check_is_an_error_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import checks

    def fail(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(checks, "findings", fail)
    (error,) = set(kvlint.lint(STALE, settings=kvlint.Settings(select=("KV204",))).errors)
    assert error.startswith("internal error in KV204 on <string>: ZeroDivisionError: on purpose")


def test_every_public_name_is_there_and_described() -> None:
    words = DOCS.read_text(encoding="utf-8")
    for name in kvlint.__all__:
        value = getattr(kvlint, name)
        assert value is not None
        if callable(value) and name not in ("SourceLine", "Category"):
            assert name in words
    assert set(kvlint.HOMES) == set(kvlint.__all__) - {"__version__"}
    assert set(kvlint.__all__) <= set(dir(kvlint))
    with pytest.raises(AttributeError, match="no attribute 'lint_everything'"):
        _ = kvlint.lint_everything


def test_lint_stays_the_function_after_a_run() -> None:
    """A module of the package by the name of a function would take its place when it is imported."""
    code = f"import kvlint, kvlint.linter\nkvlint.lint({STALE!r})\nassert callable(kvlint.lint)\nprint(kvlint.lint('').path)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "<string>", "")
    modules = {path.stem for path in Path(kvlint.__file__).parent.glob("*.py")}
    assert not modules & set(kvlint.HOMES)


def test_the_examples_of_the_page_run_and_print_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    write("src/a.py", STALE)
    write("notebooks/a.md", "nothing\n")
    examples = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    exec(examples[0], {})
    assert capsys.readouterr().out == re.findall(r"```text\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(examples[1], {})
    assert capsys.readouterr().out == "1 findings in 2 files\n"


def test_related_places_come_with_their_file() -> None:
    from kvlint.diagnostics import Diagnostic, Placer
    from kvlint.findings import Category, Finding, Related
    from kvlint.source import parse

    source = parse(Path.cwd() / "src" / "a.py", STALE.encode())
    placer = Placer.of("src/a.py", source, source.regions[0], lambda releases: ())
    here = Related("", 3, 1, 3, 5, "KV204", "here")
    there = Related(str(Path.cwd() / "lib" / "b.py"), 7, 2, 8, 3, "KV305", "there", 2)
    finding = Finding("KV204", "cache-subscript", Category.BREAKS, 67, 71, "message", related=(here, there))
    placed = placer.place(finding)
    assert [item.path for item in placed.related] == ["src/a.py", "lib/b.py"]
    stored = json.loads(json.dumps(placed.to_row()))
    assert Diagnostic.from_row("src/a.py", stored) == placed
    moved = Diagnostic.from_row("/else/where/src/a.py", stored)
    assert [item.path for item in moved.related] == ["/else/where/src/a.py", "/else/where/lib/b.py"]
