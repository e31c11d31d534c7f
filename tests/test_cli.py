"""The command line, as a stubborn user tries it: on real files, with the real rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvlint import __version__
from kvlint.cli import main
from kvlint.linter import newer_syntax

STALE = "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"
FIXED = STALE.replace("past[0][0]", "past.layers[0].keys")
CHECKED = "Checked for transformers 5.24.0 (the newest release known).\n"
CLEAN = "x = 1\n"
BROKEN = "from transformers import DynamicCache\npast = DynamicCache(\n"


@dataclass(frozen=True, slots=True)
class Run:
    code: int
    out: str
    err: str
    raw: bytes


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def kvlint(*arguments: str | Path, stdin: bytes | str | None = None) -> Run:
    result = CliRunner().invoke(main, ["--jobs", "1", *map(str, arguments)], input=stdin)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return Run(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)


def command(*arguments: str | Path) -> Run:
    """Without options in front: for subcommands."""
    result = CliRunner().invoke(main, [str(item) for item in arguments])
    return Run(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvlint", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **environment},
    )


def write(name: str, text: str | bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---------------------------------------------------------------------------------------------------------------------
# What is found, where, and the exit code


def test_the_summary_names_the_releases_and_what_said_so() -> None:
    write("a.py", STALE)
    assert f"\n{CHECKED}" in kvlint().out
    assert "\nChecked for transformers >=4.57,<6 (--target).\n" in kvlint("--target", ">=4.57,<6").out
    write("kvlint.toml", 'target = "5.1"\n')
    assert "\nChecked for transformers 5.1 (" in kvlint().out
    assert "kvlint.toml: target)." in kvlint().out
    assert "Checked for" not in kvlint("-q").out
    assert kvlint("--exclude", "*").out == "No files to lint.\n"


def test_in_a_github_workflow_findings_are_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", STALE)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run = kvlint()
    assert run.out.startswith("::error title=kvlint (KV204),file=a.py,line=4,col=8,")
    assert run.out.endswith(f"\n{CHECKED}Found 1 finding (1 breaking) in 1 file; 1 fixable with --fix.\n")
    assert kvlint("--output-format", "full").out.startswith("a.py:4:8: KV204")
    assert kvlint("--output-format", "github").out.count("\n") == 1
    write("kvlint.toml", 'output-format = "concise"\n')
    assert kvlint("-q").out.startswith("a.py:4:8: KV204")


def test_progress_is_for_a_terminal_and_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from kvlint.progress import Progress

    times = iter([0.0, 1.0, 2.5, 2.55, 3.0])
    stream = StringIO()
    progress = Progress(stream, 4, lambda: next(times))
    progress.file()
    assert stream.getvalue() == ""
    progress.file(3)
    assert stream.getvalue() == "\r2 of 4 files, 3 found"
    progress.file()
    progress.file()
    assert stream.getvalue().endswith("\r4 of 4 files, 3 found")
    progress.clear()
    assert stream.getvalue().endswith(f"\r{' ' * len('4 of 4 files, 3 found')}\r")

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    from kvlint import progress as module

    for name in ("a.py", "b.py"):
        write(name, STALE)
    terminal = Terminal()
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module.sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    shown = module.on_terminal(2)
    assert shown is not None
    from kvlint.config import Settings
    from kvlint.discovery import FoundFile
    from kvlint.run import Options, run

    files = [FoundFile(str(Path(name).absolute()), Settings(root=str(Path.cwd()))) for name in ("a.py", "b.py")]
    run(files, Options(str(Path.cwd()), use_cache=False, jobs=1), progress=shown)
    assert (shown.done, shown.findings) == (2, 2)
    assert "1 of 2 files" in terminal.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    assert module.on_terminal(2) is None


def test_findings_are_exit_code_1_and_none_is_0() -> None:
    write("a.py", STALE)
    run = kvlint()
    assert run.code == 1
    assert run.out.startswith("a.py:4:8: KV204 cache-subscript [*]: ")
    assert run.out.endswith(f"\n\n{CHECKED}Found 1 finding (1 breaking) in 1 file; 1 fixable with --fix.\n")
    assert run.err == ""
    write("a.py", CLEAN)
    assert kvlint() == Run(0, "Nothing found in 1 file.\n", "", b"Nothing found in 1 file.\n")


def test_no_files_is_said() -> None:
    assert kvlint().out == "No files to lint.\n"


def test_the_full_report_shows_source_origin_and_way_out() -> None:
    write("a.py", STALE)
    lines = kvlint().out.splitlines()
    assert lines[1:5] == ["  |", "3 | past = DynamicCache()", "4 | keys = past[0][0]", "  |        ^^^^^^^"]
    assert any("(line 3): `past = DynamicCache()`" in line for line in lines)
    assert "  = fix (--fix): Replace with `past.layers[0].keys`" in lines


def test_paths_below_the_current_folder_are_relative_and_others_absolute(place: Path) -> None:
    write("sub/a.py", STALE)
    assert kvlint("sub", "--output-format", "concise").out.startswith("sub/a.py:4:8: ")
    assert kvlint(place / "sub", "--output-format", "concise").out.startswith("sub/a.py:4:8: ")
    outside = place.parent / "outside.py"
    outside.write_text(STALE, encoding="utf-8")
    assert kvlint("../outside.py", "--output-format", "concise").out.startswith(f"{outside.as_posix()}:4:8: ")


def test_order_is_path_line_column_code() -> None:
    write("b.py", STALE + STALE)
    write("a/z.py", STALE)
    write("a.py", STALE)
    places = [line.split(": ")[0] for line in kvlint("--output-format", "concise", "b.py", ".", "-q").out.splitlines()]
    assert places == ["a.py:4:8", "a/z.py:4:8", "b.py:4:8", "b.py:8:8"]


def test_a_file_that_cannot_be_parsed_is_a_finding_and_the_others_are_linted() -> None:
    write("a.py", BROKEN)
    write("b.py", STALE)
    run = kvlint("--output-format", "concise")
    assert run.code == 1
    assert run.out.splitlines()[0] == "a.py:2:20: KV000 syntax-error: cannot be parsed: '(' was never closed"
    assert run.out.splitlines()[1].startswith("b.py:4:8: KV204")
    assert kvlint("a.py", "--ignore", "KV000").code == 0


def test_python_2_is_called_by_its_name() -> None:
    write("a.py", "from transformers import DynamicCache\nprint DynamicCache\n")
    assert "(this is Python 2)" in kvlint().out


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"# DynamicCache \xff\n", "byte 0xff is not valid utf-8"),
        (b"# -*- coding: nonsense -*-\n# DynamicCache\n", "nonsense"),
        (b"x = 1 # DynamicCache\0\n", "NUL byte"),
    ],
)
def test_files_that_are_no_text_are_findings_and_stay_as_they_are(data: bytes, words: str) -> None:
    path = write("a.py", data)
    run = kvlint("--fix")
    assert (run.code, path.read_bytes()) == (1, data)
    assert "KV000" in run.out
    assert words in run.out


def test_an_unreadable_file_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    write("a.py", STALE)
    write("b.py", STALE)
    opened = builtins.open

    def refuse(file: Any, *rest: Any, **more: Any) -> Any:
        if str(file).endswith("a.py"):
            raise PermissionError(13, "Permission denied", file)
        return opened(file, *rest, **more)

    monkeypatch.setattr(builtins, "open", refuse)
    run = kvlint("--output-format", "concise")
    assert run.code == 1
    assert run.out.splitlines()[0] == "a.py:1:1: KV000 syntax-error: cannot be read: permission denied"
    assert "b.py:4:8: KV204" in run.out


def test_very_deep_nesting_is_a_finding() -> None:
    write("a.py", f"from transformers import DynamicCache\nx = {'(' * 5000}1{')' * 5000}\n")
    write("b.py", "from transformers import DynamicCache\nx = " + "-" * 90_000 + "1\n")
    run = kvlint("--output-format", "concise")
    assert run.code == 1
    assert [line.split(" ")[1] for line in run.out.splitlines()[:2]] == ["KV000", "KV000"]


def test_a_file_over_the_size_limit_is_left_out_with_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import linter

    monkeypatch.setattr(linter, "CODE_LIMIT", 1_000_000)
    write("big.py", STALE + "#" * 1_200_000)
    run = kvlint()
    assert run.code == 0
    assert run.err == "kvlint: note: big.py: not checked: 1.2 MB is over the limit of 1 MB for a file\n"


def notebook(code: str, output: str) -> str:
    """A notebook of one cell."""
    shown = {"output_type": "stream", "name": "stdout", "text": output}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [shown], "source": code}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_of_a_notebook_only_the_code_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import linter

    monkeypatch.setattr(linter, "CODE_LIMIT", 1_000_000)
    write("shown.ipynb", notebook(STALE, "x" * 1_200_000))
    write("written.ipynb", notebook(STALE + "#" * 1_200_000, ""))
    run = kvlint()
    assert "shown.ipynb:cell 1:" in run.out
    assert run.err == "kvlint: note: written.ipynb: not checked: 1.2 MB of code is over the limit of 1 MB\n"


def test_a_fault_in_a_check_names_check_and_file_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import checks

    (broken,) = (check for check in checks.all_checks() if check.code == "KV101")

    def fail(*_: object) -> None:
        raise KeyError("oops\nnext line")

    monkeypatch.setattr(type(broken), "findings", fail)
    for name in ("a.py", "b.py"):
        write(name, STALE + "from transformers import SinkCache\n")
    run = kvlint("--no-cache")
    assert run.code == 2
    assert "KV204" in run.out
    assert run.err.startswith("kvlint: error: internal error in KV101 on a.py (and 1 other file): KeyError: ")
    assert run.err.count("\n") == 1


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.py"], "nope.py: no such file or directory"),
        ([""], "an empty path: no such file or directory"),
        (["a.py", "nope"], "nope: no such file or directory"),
        (["--select", "KV999"], "--select: unknown rule 'KV999'"),
        (
            ["--ignore", "KV204,cache-subscrpt"],
            "--ignore: unknown rule 'cache-subscrpt', did you mean 'cache-subscript'?",
        ),
        (["--extend-select", ""], None),
        (
            ["--show", "depricated"],
            "--show: 'depricated' is not a kind of finding that is hidden, did you mean 'deprecated'?",
        ),
        (["--output-format", "jsn"], "--output-format: unknown output format 'jsn', did you mean 'json'?"),
        (["--target", "5.999"], "--target: no known transformers release matches '5.999'"),
        (["--target", ">=banana"], "--target: '>=banana' is neither a release"),
        (["--exclude", "[b-a]"], "--exclude: '[b-a]' is not a valid glob"),
        (["--exclude", "src/["], "--exclude: 'src/[' is not a valid glob"),
        (["--select", ""], "--select: names no rule"),
        (["--config", "nope.toml"], "--config nope.toml: no such file"),
        (["--config", "a.py", "--isolated"], "--config and --isolated contradict each other"),
        (["--jobs", "-1"], "Invalid value for '--jobs'"),
        (["--jobs", "many"], "Invalid value for '--jobs'"),
        (["--color", "pink"], "Invalid value for '--color'"),
        (["--selct", "KV2"], "no such option: --selct, did you mean '--select'?"),
        (["--target"], "Option '--target' requires an argument"),
        (["-", "a.py"], "'-' (standard input) cannot be mixed with other paths"),
        (["--output-file", "nope/report.txt"], "--output-file nope/report.txt: no such file or directory"),
        (["--python", "nope", "--target", "installed"], "--python nope: no such file or directory"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments: list[str], message: str | None) -> None:
    write("a.py", STALE)
    run = kvlint(*arguments)
    if message is None:
        assert run.code == 1
        return
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"kvlint: error: {message}")
    assert run.err.count("\n") == 1


def test_a_broken_configuration_is_one_line() -> None:
    write("pyproject.toml", "[tool.kvlint\n")
    write("a.py", CLEAN)
    run = kvlint()
    assert (run.code, run.out, run.err.count("\n")) == (2, "", 1)
    assert "pyproject.toml: not valid TOML" in run.err
    assert kvlint("--isolated").code == 0


def test_an_error_of_our_own_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import run as runs

    def fail(*_: object) -> None:
        raise ZeroDivisionError("bad\nluck")

    monkeypatch.setattr(runs, "run", fail)
    run = kvlint()
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert run.err.startswith("kvlint: error: internal error: ZeroDivisionError: bad luck")


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import run as runs

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "run", stop)
    assert kvlint().code == 130


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pipe of a Unix shell")
def test_a_closed_pipe_is_quiet() -> None:
    write("a.py", STALE * 2000)
    script = f"{sys.executable} -m kvlint --no-cache --output-format concise . | head -n 1"
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


# ---------------------------------------------------------------------------------------------------------------------
# Fixing


def test_fix_writes_and_exits_0_when_nothing_is_left() -> None:
    path = write("a.py", STALE)
    run = kvlint("--fix")
    assert (run.code, run.out, path.read_text(encoding="utf-8")) == (
        0,
        f"{CHECKED}Fixed 1 finding in 1 file; nothing left.\n",
        FIXED,
    )
    assert kvlint("--fix").out == f"{CHECKED}Nothing found in 1 file.\n"


def test_fix_exits_1_when_something_is_left() -> None:
    write("a.py", STALE + "from transformers import SinkCache\n")
    run = kvlint("--fix")
    assert run.code == 1
    assert run.out.splitlines()[-1].startswith("Fixed 1 finding in 1 file; 1 finding (1 breaking) in 1 file left")


def test_exit_codes_of_fixing() -> None:
    write("a.py", STALE)
    assert kvlint("--fix", "--exit-non-zero-on-fix").code == 1
    assert kvlint("--fix", "--exit-non-zero-on-fix").code == 0
    write("a.py", STALE)
    assert kvlint("--exit-zero").code == 0


def test_fix_only_reports_nothing() -> None:
    path = write("a.py", STALE + "from transformers import SinkCache\n")
    assert kvlint("--fix-only") == Run(0, "", "", b"")
    assert "past.layers[0].keys" in path.read_text(encoding="utf-8")


def test_fixable_and_unfixable() -> None:
    write("pyproject.toml", '[tool.kvlint]\nunfixable = ["KV204"]\n')
    path = write("a.py", STALE)
    run = kvlint("--fix")
    assert (run.code, path.read_text(encoding="utf-8")) == (1, STALE)
    assert "[*]" not in run.out


@pytest.mark.parametrize(
    "text",
    [
        STALE.encode(),
        STALE.replace("\n", "\r\n").encode(),
        STALE.rstrip("\n").encode(),
        b"\xef\xbb\xbf" + STALE.rstrip("\n").replace("\n", "\r\n").encode(),
        ("# -*- coding: latin-1 -*-\n# \xe9\n" + STALE).encode("latin-1"),
        ("# \u2028 form\x0cfeed \r# inside\n" + STALE).encode(),
    ],
    ids=["lf", "crlf", "no-newline", "bom-crlf-no-newline", "latin-1", "odd-separators"],
)
def test_the_patch_is_what_fix_writes_and_git_applies_it(text: bytes, place: Path) -> None:
    names = ["a.py", "deep/folder/b c.py", "\u00e9.py"]
    for name in names:
        write(name, text)
    run = kvlint("--diff")
    assert (run.code, run.err) == (1, "Would fix 3 findings in 3 files.\n")
    assert all(Path(name).read_bytes() == text for name in names)
    patch = place.parent / "all.patch"
    patch.write_bytes(run.raw)
    subprocess.run(["git", "apply", "--whitespace=nowarn", str(patch)], check=True, capture_output=True)
    applied = [Path(name).read_bytes() for name in names]
    for name in names:
        write(name, text)
    assert kvlint("--fix", "-q").code == 0
    assert [Path(name).read_bytes() for name in names] == applied
    assert text.replace(b"past[0][0]", b"past.layers[0].keys") == applied[0]


def test_diff_without_anything_to_fix() -> None:
    write("a.py", CLEAN)
    assert kvlint("--diff") == Run(0, "", "Nothing would be fixed.\n", b"")


def test_a_notebook_and_a_markdown_file_are_fixed_where_the_code_lies() -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["past[0][0]\n"]},
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": STALE.splitlines(True)[:3],
        },
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": ["%time\n", "k = past[0][0]"],
        },
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}
    text = json.dumps(notebook, indent=1)
    path = write("n.ipynb", text)
    (found,) = json.loads(kvlint("n.ipynb", "--output-format", "json").out)
    assert (found["cell"], found["line"], found["column"], found["origin"]) == (2, 2, 5, 3)
    assert kvlint("n.ipynb", "--output-format", "concise").out.startswith("n.ipynb:cell 2:2:5: KV204")
    assert kvlint("n.ipynb", "--fix").code == 0
    assert path.read_text(encoding="utf-8") == text.replace("k = past[0][0]", "k = past.layers[0].keys")
    readme = write("README.md", f"past[0][0]\n\n```python\n{STALE}```\n")
    assert kvlint("README.md", "--fix").code == 0
    assert readme.read_text(encoding="utf-8") == f"past[0][0]\n\n```python\n{FIXED}```\n"


def test_a_file_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", STALE)
    monkeypatch.setattr(os, "access", lambda *_: False)
    run = kvlint("--fix")
    assert (run.code, run.err) == (2, "kvlint: error: a.py: cannot be written: permission denied\n")


def test_a_file_that_changes_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import run as runs

    path = write("a.py", STALE)
    original = runs.run

    def run_and_edit(*arguments: Any) -> Any:
        outcome = original(*arguments)
        path.write_text("mine = 1\n", encoding="utf-8")
        return outcome

    monkeypatch.setattr(runs, "run", run_and_edit)
    run = kvlint("--fix")
    assert (run.code, run.err) == (2, "kvlint: error: a.py: changed while it was being linted; not fixed\n")
    assert path.read_text(encoding="utf-8") == "mine = 1\n"


def apply_json_edits(text: str, found: list[dict[str, Any]]) -> str:
    """The text with the edits of a JSON report carried out, as another program would: by lines and columns."""
    lines = text.split("\n")

    def offset(line: int, column: int) -> int:
        return sum(len(item) + 1 for item in lines[: line - 1]) + column - 1

    edits = sorted(
        (offset(edit["start_line"], edit["start_column"]), offset(edit["end_line"], edit["end_column"]), edit["text"])
        for finding in found
        for edit in finding["fix"]["edits"]
    )
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", STALE + "d = {'\u6f22': past[1][0]}  # kvlint: ignore[KV101] old\n# kvlint: ignore[KV101]\n"),
        ("a.py", "def f():\n\tfrom transformers import DynamicCache\n\tpast = DynamicCache()\n\treturn past[0][0]\n"),
        ("a.md", "- item\n\n  ```python\n" + "".join(f"  {line}\n" for line in STALE.splitlines()) + "  ```\n"),
    ],
)
def test_the_edits_of_the_json_report_are_what_fix_does(name: str, text: str, newline: str) -> None:
    text = text.replace("\n", newline)
    path = write(name, text)
    found = json.loads(kvlint("--output-format", "json").out)
    assert kvlint("--fix", "-q").code == 0
    assert apply_json_edits(text, found) == path.read_bytes().decode() != text


def test_a_link_is_fixed_once_and_stays_a_link() -> None:
    real = write("real.py", STALE)
    Path("link.py").symlink_to("real.py")
    assert kvlint("--fix", "link.py", "real.py").out == f"{CHECKED}Fixed 1 finding in 1 file; nothing left.\n"
    assert Path("link.py").is_symlink()
    assert real.read_text(encoding="utf-8") == FIXED


# ---------------------------------------------------------------------------------------------------------------------
# Standard input


def test_standard_input() -> None:
    run = kvlint("-", "--output-format", "concise", stdin=STALE)
    assert (run.code, run.out.splitlines()[0][:16]) == (1, "<stdin>:4:8: KV2")
    assert kvlint("-", "--stdin-filename", "x/a.py", "-q", "--output-format", "concise", stdin=STALE).out.startswith(
        "x/a.py:4:8: "
    )
    markdown = kvlint("-", "--stdin-filename", "README.md", "--output-format", "concise", stdin=STALE)
    assert markdown.code == 0


def test_standard_input_is_fixed_to_standard_output() -> None:
    text = STALE.replace("\n", "\r\n").encode()
    run = kvlint("-", "--fix", stdin=text)
    assert (run.code, run.raw) == (0, text.replace(b"past[0][0]", b"past.layers[0].keys"))
    assert run.err == f"{CHECKED}Fixed 1 finding in 1 file; nothing left.\n"
    assert kvlint("-", "--fix", stdin=CLEAN).raw == CLEAN.encode()
    assert kvlint("-", "--fix", stdin=BROKEN).raw == BROKEN.encode()
    patch = kvlint("-", "--diff", "--stdin-filename", "a.py", stdin=STALE)
    assert patch.out.startswith("--- a/a.py\n+++ b/a.py\n@@ -1,4 +1,4 @@\n")


def test_settings_hold_for_standard_input_too() -> None:
    write("sub/pyproject.toml", '[tool.kvlint]\nignore = ["KV204"]\nextend-exclude = ["gen"]\nforce-exclude = true\n')
    assert kvlint("-", "--stdin-filename", "sub/a.py", stdin=STALE).code == 0
    run = kvlint("-", "--fix", "--stdin-filename", "sub/gen/a.py", "--select", "KV204", stdin=STALE)
    assert (run.code, run.raw) == (0, STALE.encode())


# ---------------------------------------------------------------------------------------------------------------------
# Choosing


def test_rules_are_chosen_by_code_prefix_and_name() -> None:
    write("a.py", STALE)
    for chosen in ("KV204", "kv2", "cache-subscript", "ALL", "KV101,KV204"):
        assert kvlint("--select", chosen).code == 1
        assert kvlint("--ignore", chosen).code == 0
    assert kvlint("--select", "KV1", "--select", "KV204").code == 1
    assert kvlint("--select", "KV1").code == 0
    assert kvlint("--select", "KV1", "--extend-select", "KV204").code == 1


def test_the_target_decides() -> None:
    write("a.py", STALE)
    assert kvlint("--target", "4.57.6").code == 0
    assert kvlint("--target", ">=4.57,<5.1").code == 1
    assert kvlint("--target", "latest").code == 1


def test_the_target_of_the_project_and_the_line_about_it() -> None:
    write("pyproject.toml", '[project]\nname = "x"\nversion = "1"\ndependencies = ["transformers<5"]\n')
    write("a.py", STALE)
    write("b.py", STALE)
    run = kvlint()
    assert run.code == 1
    assert run.err.startswith("kvlint: note: this project requires transformers<5 (pyproject.toml); kvlint checks for ")
    assert run.err.count("\n") == 1
    assert kvlint("-q").err == ""
    quiet = kvlint("--target", "project")
    assert (quiet.code, quiet.err) == (0, "")
    for name in ("a.py", "b.py"):
        write(name, CLEAN)
    assert kvlint().err == ""


def test_suppressions_can_be_ignored() -> None:
    write("a.py", STALE.replace("past[0][0]", "past[0][0]  # kvlint: ignore[KV204] known"))
    assert kvlint().code == 0
    assert kvlint("--ignore-suppressions").code == 1


def test_unused_suppressions_are_found_in_files_without_any_trigger() -> None:
    path = write("a.py", "x = 1  # kvlint: ignore[KV204]\n")
    run = kvlint("--output-format", "concise")
    assert (run.code, "KV900 unused-suppression [*]" in run.out) == (1, True)
    assert kvlint("--fix").code == 0
    assert path.read_text(encoding="utf-8") == "x = 1\n"


def test_a_suppression_in_a_file_that_cannot_be_parsed_is_not_unused() -> None:
    write("a.py", "x = 1  # kvlint: ignore[KV204]\n" + BROKEN)
    assert [item["code"] for item in json.loads(kvlint("--output-format", "json").out)] == ["KV000"]


def test_show_files_and_show_settings() -> None:
    write("a.py", CLEAN)
    write("sub/b.md", "")
    write("sub/pyproject.toml", '[tool.kvlint]\ntarget = "5.1"\n')
    assert kvlint("--show-files").out == "a.py\nsub/b.md\n"
    shown = kvlint("--show-settings", "sub/b.md", "--ignore", "KV204").out
    assert 'target = "5.1"' in shown
    assert 'ignore = ["KV204"]' in shown
    assert shown.startswith("# ")
    assert kvlint("--show-settings", "nope").code == 2


def test_show_settings_says_where_each_value_and_the_target_come_from() -> None:
    write("a.py", CLEAN)
    write("requirements.txt", "transformers==4.46.0\n")
    write("kvlint.toml", 'target = "project"\nignore = ["KV101"]\n')
    lines = kvlint("--show-settings", "--ignore", "KV204", "--jobs", "2").out.splitlines()
    assert lines[0].endswith("kvlint.toml")
    assert 'target = "project"  # kvlint.toml' in lines
    assert 'ignore = ["KV101", "KV204"]  # kvlint.toml and --ignore' in lines
    assert "jobs = 2  # --jobs" in lines
    assert "unsafe-fixes = false  # default" in lines
    assert "# target: transformers 4.46.1 (requirements.txt): 4.46.1" in lines
    assert lines[-1].startswith("# transformers 4.46.0 (requirements.txt) is not among the releases kvlint knows")
    refused = kvlint("--show-settings", "--target", "instaled")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_statistics() -> None:
    write("a.py", STALE + "k = past[1][0]\nx = 1  # kvlint: ignore[KV101]\n")
    lines = kvlint("--statistics").out.splitlines()
    assert lines[:2] == ["2  KV204  [*] cache-subscript", "1  KV900  [*] unused-suppression"]


def test_statistics_for_programs() -> None:
    write("a.py", STALE)
    counts = json.loads(kvlint("--statistics", "--output-format", "json").out)
    assert counts == [{"code": "KV204", "name": "cache-subscript", "count": 1, "fixable": 1}]


def test_settings_of_the_linted_project_hold_from_elsewhere() -> None:
    write("there/pyproject.toml", '[tool.kvlint]\noutput-format = "concise"\n')
    write("there/a.py", STALE)
    assert kvlint("there").out.count("\n") == 3


def test_output_file() -> None:
    write("a.py", STALE)
    assert kvlint("--output-format", "json", "--output-file", "report.json").out == ""
    assert json.loads(Path("report.json").read_text(encoding="utf-8"))[0]["code"] == "KV204"


def test_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", STALE)
    assert "\x1b[" not in kvlint().out
    assert "\x1b[" in kvlint("--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in kvlint().out
    assert "\x1b[" not in kvlint("--color", "never").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in kvlint().out


def test_quiet_shows_findings_only() -> None:
    write("a.py", STALE)
    assert kvlint("-q", "--output-format", "concise").out.count("\n") == 1
    write("a.py", CLEAN)
    assert kvlint("-q") == Run(0, "", "", b"")


# ---------------------------------------------------------------------------------------------------------------------
# Subcommands and start-up


def test_version_and_help() -> None:
    assert command("--version").out == f"kvlint {__version__}\n"
    shown = command("--help").out
    assert "--target" in shown
    assert "Exit codes" in shown
    assert "check " in shown
    assert command("check", "-h").code == 0


def test_check_is_the_default_and_a_command() -> None:
    write("a.py", STALE)
    assert command("check", "a.py").out == command("a.py").out
    assert command().code == 1


def test_a_path_called_like_a_command_is_reached_with_a_dot() -> None:
    write("rule", "#!/usr/bin/env python\n" + STALE)
    assert command("./rule", "--output-format", "concise").out.startswith("rule:5:8: KV204")


def test_every_listed_command_can_be_loaded() -> None:
    import click

    context = click.Context(main)
    for name in main.list_commands(context):
        loaded = main.get_command(context, name)
        assert loaded is not None
        assert loaded.name == name


HEAVY = (
    "libcst",
    "rich",
    "packaging",
    "pathspec",
    "platformdirs",
    "torch",
    "transformers",
    "concurrent.futures.process",
)


@pytest.mark.parametrize("arguments", [["--version"], ["--no-cache", "clean.py"], ["--show-files"]])
def test_a_run_that_finds_no_trigger_imports_nothing_heavy(arguments: list[str]) -> None:
    write("clean.py", CLEAN)
    script = (
        "import sys\nfrom kvlint.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n"
        f"    assert stop.code == 0, stop.code\nprint([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_runs() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kvlint {__version__}\n", "")


# -- what stands in a file ------------------------------------------------------------------------------------------


def test_a_bad_target_in_a_configuration_names_the_file(place: Path) -> None:
    write("a.py", STALE)
    write("kvlint.toml", 'target = "5.999"\n')
    run = kvlint("a.py")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"kvlint: error: {place}/kvlint.toml: target: no known transformers release matches")
    assert kvlint("a.py", "--target", "5.24").code == 1
    assert kvlint("a.py", "--target", ">=banana").err.startswith("kvlint: error: --target: '>=banana'")
    write("kvlint.toml", 'target = "project"\n')
    assert f"{place}/kvlint.toml: target project: nothing there requires" in kvlint("a.py").err
    Path("kvlint.toml").unlink()
    write("pyproject.toml", '[tool.kvlint]\ntarget = "5.999"\n')
    assert f"{place}/pyproject.toml: [tool.kvlint]: target: no known" in kvlint("a.py").err


@pytest.mark.parametrize(
    ("line", "running", "needed"),
    [
        ("def first[T](items: list[T]) -> T:", (3, 11), (3, 12)),
        ("class Stack[T]:", (3, 11), (3, 12)),
        ("type Pair = tuple[int, int]", (3, 11), (3, 12)),
        ("type Pair = tuple[int, int]", (3, 12), None),
        ("def first[T = int](items):", (3, 12), (3, 13)),
        ('print(f"{d["a"]}")', (3, 11), (3, 12)),
        ("x = t'{name}'", (3, 13), (3, 14)),
        ("except ValueError, TypeError:", (3, 13), (3, 14)),
        ("except ValueError, error:", (3, 13), None),
        ("except* ValueError:", (3, 10), (3, 11)),
        ("past = DynamicCache(", (3, 10), None),
        ("x = type(y) = 3", (3, 10), None),
    ],
)
def test_syntax_of_a_newer_python(line: str, running: tuple[int, int], needed: tuple[int, int] | None) -> None:
    assert newer_syntax(line, running) == needed


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there is no newer syntax yet")
def test_syntax_of_a_newer_python_is_named() -> None:
    write("a.py", "from transformers import DynamicCache\nx = t'{1}'\n")
    here = ".".join(map(str, sys.version_info[:2]))
    assert f"(this may be syntax of Python 3.14; kvlint runs on Python {here} and reads no newer one)" in kvlint().out


@pytest.mark.parametrize("last", ["return out", "raise KeyboardInterrupt", "continue", "break"])
def test_a_cell_that_ends_early_silences_no_other_cell(last: str) -> None:
    cells = [STALE, last, "past[1]"]
    nodes = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    write("a.ipynb", json.dumps({"cells": nodes, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    write("a.md", "".join(f"```python\n{cell}\n```\n" for cell in cells))
    found = [line.split(": KV204")[0] for line in kvlint("-q", "--output-format", "concise").out.splitlines()]
    assert found == ["a.ipynb:cell 1:4:8", "a.ipynb:cell 3:1:1", "a.md:5:8", "a.md:12:1"]


def test_a_condition_that_ends_a_cell_still_narrows_the_releases() -> None:
    cells = [
        "import transformers\nfrom packaging.version import Version\nfrom transformers import DynamicCache\n",
        "if Version(transformers.__version__) >= Version('5'):\n    raise RuntimeError('needs transformers 4')\n",
        "past = DynamicCache()\npast[0]\n",
    ]
    write("a.md", "".join(f"```python\n{cell}```\n" for cell in cells))
    assert kvlint("--target", ">=4.50").code == 0


def test_examples_in_docstrings_are_fixed_when_asked_for() -> None:
    example = """def f():
    \"\"\"Example:

    >>> from transformers import AutoModelForCausalLM
    >>> model = AutoModelForCausalLM.from_pretrained("x")
    >>> out = model.generate(ids, cache_implementation="dynamic_full")
    >>> out = model.model.layers[0](
    ...     hidden, past_key_value=past
    ... )
    >>> out = model(ids, past_key_values=past)
    \"\"\"
"""
    write("a.py", example)
    options = ("--fix", "--unsafe-fixes", "--show", "deprecated", "--target", "5.24")
    assert kvlint(*options).code == 1
    assert Path("a.py").read_text() == example
    assert kvlint(*options, "--fix-docstrings").code == 0
    new = example.replace("dynamic_full", "dynamic")
    assert Path("a.py").read_text() == new.replace("past_key_values=", "cache=").replace("past_key_value=", "cache=")


def test_examples_in_docstrings_know_what_their_module_imports() -> None:
    text = (
        'def f():\n    """Example.\n\n    >>> out = bot.generate(ids, cache_implementation="dynamic_full")\n    """\n'
    )
    write("a.py", "import transformers\n" + text)
    write("b.py", "import cachelib\n" + text)
    assert [line.split(" ")[0] for line in kvlint("-q", "--output-format", "concise").out.splitlines()] == [
        "a.py:5:54:"
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Nothing is skipped silently


def notebook_of(*cells: tuple[str, str]) -> str:
    """A notebook of cells given as kind and source, written as Jupyter does."""
    rows = []
    for kind, text in cells:
        row: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        rows.append({**row, "outputs": [], "execution_count": None} if kind == "code" else row)
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def test_blocks_that_cannot_be_parsed_are_counted_and_listed() -> None:
    broken = "past_key_values[0] = (\n"
    write("a.ipynb", notebook_of(("code", "x = 1\n"), ("code", broken), ("code", f"%%bash\n{broken}")))
    write("b.md", f"Text\n\n```python\n{broken}```\n\n```bash\n{broken}```\n\n```python\nnothing of ours (\n```\n")
    write("c.rst", f"Text\n\n.. code-block:: python\n\n    {broken}\nmore\n")
    write("d.py", f'def f():\n    """Example::\n\n    ```python\n    {broken}    ```\n    """\n')
    run = kvlint()
    assert run.code == 0
    assert "4 places undecided (KV000): --show undecided" in run.out
    listed = kvlint("--show", "undecided", "--output-format", "concise", "-q").out.splitlines()
    assert [line.split(" KV000 ")[0] for line in listed] == [
        "a.ipynb:cell 2:1:1:",
        "b.md:4:1:",
        "c.rst:5:5:",
        "d.py:5:5:",
    ]
    assert "this cell cannot be parsed as Python, so nothing in it was checked" in listed[0]
    (row,) = json.loads(kvlint("a.ipynb", "--show", "undecided", "--output-format", "rdjson").out)["diagnostics"]
    line = Path("a.ipynb").read_text().splitlines()[row["location"]["range"]["start"]["line"] - 1]
    assert "past_key_values[0]" in line
    assert row["severity"] == "INFO"


def test_fences_in_text_cells_of_a_notebook_are_linted_and_fixed() -> None:
    code = STALE.replace("keys =", 'a, b = "é\\n",')
    text = f"# A\n\n```python\n{code}```\n\n```bash\npast[0]\n```\n"
    write("a.ipynb", notebook_of(("code", "x = 1\n"), ("markdown", text), ("raw", text)))
    run = kvlint("--output-format", "json")
    (row,) = json.loads(run.out)
    lines = Path("a.ipynb").read_text().splitlines()
    assert row["cell"] is None
    assert lines[row["line"] - 1][row["column"] - 1 : row["end_column"] - 1] == "past[0]"
    assert kvlint("--fix", "-q").code == 0
    cells = json.loads(Path("a.ipynb").read_text())["cells"]
    assert "".join(cells[1]["source"]) == text.replace("past[0][0]", "past.layers[0].keys")
    assert "".join(cells[2]["source"]) == text


def test_a_single_string_cell_of_text_has_places_too() -> None:
    cell = {"cell_type": "markdown", "metadata": {}, "source": f"~~~py\n{STALE}~~~\n"}
    write("a.ipynb", json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (row,) = json.loads(kvlint("--output-format", "json").out)
    document = Path("a.ipynb").read_text()
    assert (row["line"], document[row["column"] - 1 : row["end_column"] - 1]) == (1, "past[0]")


def test_letters_may_be_escaped_in_json() -> None:
    write("generation_config.json", '{"cache\\u005fimplementation": "no_such_cache"}')
    assert "generation_config.json:1:31: KV401" in kvlint("--output-format", "concise").out
    write(
        "a.ipynb", notebook_of(("code", STALE)).replace("past[0]", "p\\u0061st[0]").replace("Dynamic", "D\\u0079namic")
    )
    assert "a.ipynb:cell 1:4:8: KV204" in kvlint("a.ipynb", "--output-format", "concise").out


@pytest.mark.parametrize("value", ["5", "true", "false", '["static"]', '{"a": 1}', "1.5"])
def test_values_of_a_wrong_type_are_refused_as_transformers_does(value: str) -> None:
    write("generation_config.json", f'{{"cache_implementation": {value}}}')
    run = kvlint("--output-format", "concise")
    assert f"KV401 invalid-cache-implementation: `{value}` is not a `cache_implementation`: loading" in run.out
    write("generation_config.json", '{"cache_implementation": null}')
    assert kvlint().code == 0
