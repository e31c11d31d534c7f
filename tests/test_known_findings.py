"""Baselines, ``--since`` and ``--add-ignore``: what keeps old findings out of the way."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_cli import FIXED, STALE, Run, kvlint, place, write

import kvlint as api
from kvlint import baseline as baselines
from kvlint.changed_lines import read_diff
from kvlint.config import BASELINE_NAME

__all__ = ["place"]

TWO = """\
from transformers import DynamicCache


def first(past: DynamicCache):
    return past[0][0]


class Runner:
    def second(self, past: DynamicCache):
        return past[0][0]
"""


def lines(run: Run) -> list[str]:
    """Path, line and code of each finding in the concise format."""
    return [line.split(" ")[0] for line in run.out.splitlines() if ": KV" in line]


def concise(*arguments: str) -> Run:
    return kvlint("--output-format", "concise", *arguments)


# ---------------------------------------------------------------------------------------------------------------------
# Baselines


def test_known_findings_are_not_reported_and_new_ones_are() -> None:
    write("a.py", TWO)
    run = kvlint("--write-baseline")
    assert (run.code, run.out) == (0, f"Wrote 2 findings in 1 file to {BASELINE_NAME}.\n")
    run = concise("--baseline", BASELINE_NAME)
    assert (run.code, lines(run), run.err) == (0, [], "")
    assert "2 known findings not shown (--no-baseline)" in run.out
    write("a.py", TWO + "\n\ndef third(past: DynamicCache):\n    return past[1][0]\n")
    run = concise("--baseline", BASELINE_NAME)
    assert (run.code, lines(run)) == (1, ["a.py:14:12:"])


def test_moved_lines_stay_known() -> None:
    write("a.py", TWO)
    kvlint("--write-baseline")
    write("a.py", "import os\n\n\n" + TWO.replace("return past", "assert past\n    return past"))
    assert lines(concise("--baseline", BASELINE_NAME)) == []


def test_the_same_line_in_another_function_is_new() -> None:
    write("a.py", TWO)
    kvlint("--write-baseline")
    write("a.py", TWO.replace("class Runner", "def more(past: DynamicCache):\n    return past[0][0]\n\n\nclass Runner"))
    assert len(lines(concise("--baseline", BASELINE_NAME))) == 1


def test_a_renamed_function_and_a_renamed_file_stay_known() -> None:
    path = write("a.py", TWO)
    kvlint("--write-baseline")
    write("a.py", TWO.replace("def first", "def start"))
    assert lines(concise("--baseline", BASELINE_NAME)) == []
    path.unlink()
    write("sub/b.py", TWO)
    run = concise("--baseline", BASELINE_NAME)
    assert (lines(run), run.err) == ([], "")
    write("a.py", TWO)
    assert len(lines(concise("--baseline", BASELINE_NAME))) == 2


def test_fixed_ones_are_reported_as_stale_and_taken_out() -> None:
    write("a.py", TWO)
    kvlint("--write-baseline")
    write("a.py", TWO.replace("    return past[0][0]\n\n\nclass", "    return past.layers[0].keys\n\n\nclass"))
    run = concise("--baseline", BASELINE_NAME)
    assert run.code == 0
    assert run.err.splitlines() == [
        f"kvlint: note: {BASELINE_NAME}: no longer found: KV204 in a.py, first: `return past[0][0]`",
        f"kvlint: note: {BASELINE_NAME}: 1 finding is gone; --write-baseline takes them out",
    ]
    kvlint("--write-baseline")
    found = json.loads(Path(BASELINE_NAME).read_text())["findings"]
    assert [row["in"] for row in found["a.py"]] == ["Runner.second"]


def test_a_run_judges_only_what_it_looked_at() -> None:
    write("a.py", TWO)
    write("b.py", TWO)
    kvlint("--write-baseline")
    write("b.py", FIXED)
    assert concise("--baseline", BASELINE_NAME, "a.py").err == ""
    assert concise("--baseline", BASELINE_NAME, "--select", "KV5").err == ""
    assert concise("--baseline", BASELINE_NAME, "--target", "4.40.0").err == ""
    assert "no longer found" in concise("--baseline", BASELINE_NAME, "b.py").err
    kvlint("--write-baseline", "b.py")
    assert sorted(json.loads(Path(BASELINE_NAME).read_text())["findings"]) == ["a.py"]


def test_the_configuration_names_a_baseline() -> None:
    write("kvlint.toml", 'baseline = "known.json"\n')
    write("sub/a.py", TWO)
    assert kvlint("--write-baseline").out == "Wrote 2 findings in 1 file to known.json.\n"
    assert lines(concise("sub")) == []
    assert len(lines(concise("sub", "--no-baseline"))) == 2
    assert api.lint_paths(["sub"]).findings == ()
    assert api.lint(TWO, "sub/a.py").findings == ()
    assert len(api.lint(TWO, "sub/a.py", api.Settings()).findings) == 2


def test_a_baseline_knows_notebooks_and_documents() -> None:
    cells = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text}
        for text in ("x = 1\n", TWO)
    ]
    write("a.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    write("b.md", f"```python\n{TWO}```\n")
    kvlint("--write-baseline")
    scopes = [row["in"] for rows in json.loads(Path(BASELINE_NAME).read_text())["findings"].values() for row in rows]
    assert scopes == ["Runner.second", "first"] * 2
    write("a.ipynb", json.dumps({"cells": cells[1:], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    write("b.md", f"# More\n\n```python\n{TWO}```\n")
    assert lines(concise("--baseline", BASELINE_NAME)) == []


def test_fixing_with_a_baseline_reports_only_what_is_new() -> None:
    write("a.py", TWO)
    kvlint("--write-baseline")
    run = kvlint("--fix", "--unsafe-fixes", "--baseline", BASELINE_NAME)
    assert run.code == 0
    assert "Fixed 2 findings" in run.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file or directory (--write-baseline makes one)"),
        ("{", "not valid JSON"),
        ("[]", "not a baseline of kvlint"),
        ('{"kvlint-baseline": 99}', "has format 99, this kvlint reads 1"),
        ('{"kvlint-baseline": 1, "findings": {"a.py": [{"code": 1}]}}', "not a baseline of kvlint"),
        ('{"kvlint-baseline": 1, "findings": []}', "not a baseline of kvlint"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_one_line(content: str | None, words: str) -> None:
    write("a.py", TWO)
    if content is not None:
        write("known.json", content)
    run = kvlint("--baseline", "known.json")
    assert run.code == 2
    assert words in run.err
    assert run.err.count("\n") == 1


def test_a_baseline_that_cannot_be_written_is_one_line() -> None:
    write("a.py", TWO)
    run = kvlint("--write-baseline", "--baseline", "nowhere/known.json")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "cannot be written" in run.err


def test_blocks_are_named_from_outside_in() -> None:
    text = "class A:\n    @property\n    def b(self):\n        if 1:\n            def c(): pass\nx = 1\n"
    scopes = baselines.scopes_of(Path("a.py"), text.encode())
    assert [scopes.get((None, line), "") for line in range(1, 7)] == ["A", "A.b", "A.b", "A.b", "A.b.c", ""]


# ---------------------------------------------------------------------------------------------------------------------
# --since


def git(*arguments: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *name, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository() -> None:
    git("init", "--initial-branch", "main")
    write("a.py", TWO)
    write("ä b.py", TWO)
    git("add", ".")
    git("commit", "-m", "first")


@pytest.mark.usefixtures("repository")
def test_only_changed_lines_and_new_files_are_reported() -> None:
    assert concise("--since", "HEAD").out == "No files to lint.\n"
    write("ä b.py", TWO.replace("        return past[0][0]", "        return past[1][1]"))
    write("new.py", STALE)
    assert lines(concise("--since", "HEAD")) == ["new.py:4:8:", "ä"]
    assert "ä b.py:10:16: KV204" in concise("--since", "HEAD").out
    assert kvlint("--since", "HEAD", "--show-files").out == "new.py\nä b.py\n"


@pytest.mark.usefixtures("repository")
def test_the_revision_is_where_the_tree_left_it() -> None:
    git("checkout", "-b", "work")
    write("a.py", TWO + "\n\ndef third(past: DynamicCache):\n    return past[1][0]\n")
    git("commit", "-am", "work")
    git("checkout", "main")
    write("a.py", "import os\n" + TWO.replace("first", "start"))
    git("commit", "-am", "more")
    git("checkout", "work")
    assert lines(concise("--since", "main")) == ["a.py:14:12:"]


@pytest.mark.usefixtures("repository")
def test_a_changed_origin_touches_the_finding() -> None:
    write("a.py", "from transformers import DynamicCache\n\npast = None\n\n\nprint(past[0][0])\n")
    git("commit", "-am", "second")
    write("a.py", "from transformers import DynamicCache\n\npast = DynamicCache()\n\n\nprint(past[0][0])\n")
    assert lines(concise("--since", "HEAD")) == ["a.py:6:7:"]


@pytest.mark.usefixtures("repository")
def test_lines_of_a_notebook_are_those_of_its_file() -> None:
    def notebook(*sources: str) -> str:
        cells = [
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": text.splitlines(True),
            }
            for text in sources
        ]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)

    write("n.ipynb", notebook(STALE, "keys = 1\n"))
    git("add", ".")
    git("commit", "-m", "notebook")
    write("n.ipynb", notebook(STALE, "values = past[1][1]\n"))
    assert "n.ipynb:cell 2:1:10: KV204" in concise("--since", "HEAD").out
    assert "cell 1" not in concise("--since", "HEAD").out


def test_since_needs_a_repository_and_a_revision() -> None:
    write("a.py", TWO)
    run = kvlint("--since", "HEAD")
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert "not a git repository" in run.err
    git("init")
    for revision in ("nothing", "--output=x", "", "a b"):
        run = kvlint(f"--since={revision}")
        assert (run.code, run.err.count("\n")) == (2, 1)
        assert "revision" in run.err
    assert not Path("x").exists()


def test_diffs_are_read_whatever_the_lines_hold() -> None:
    diff = (
        b"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1 @@ def f():\n---- a/x\n-y\n++++ b/zzz\n"
        b"@@ -9,0 +9,3 @@\n+@@ -1 +1 @@\n+b\n+c\n\\ No newline at end of file\n"
        b'--- "a/q\\".py"\n+++ "b/q\\"\\t.py"\n@@ -3 +2,0 @@\n-x\n'
    )
    assert read_diff(diff) == {"a.py": (range(1, 2), range(9, 12)), 'q"\t.py': ()}


# ---------------------------------------------------------------------------------------------------------------------
# --add-ignore


def test_comments_silence_every_finding_of_the_run() -> None:
    write("a.py", TWO)
    run = kvlint("--add-ignore=moved in July", "a.py")
    assert run.code == 0
    assert run.err == "kvlint: note: added ignore comments for 2 findings in 1 file\n"
    comment = "past[0][0]  # kvlint: ignore[KV204] moved in July\n"
    assert Path("a.py").read_text() == TWO.replace("past[0][0]\n", comment)
    assert concise().code == 0


def test_the_reason_may_be_left_out() -> None:
    write("a.py", TWO)
    assert kvlint("--add-ignore", "a.py").code == 0
    assert Path("a.py").read_text() == TWO.replace("past[0][0]\n", "past[0][0]  # kvlint: ignore[KV204]\n")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("keys = past[0][0]  # noqa: E501\n", "keys = past[0][0]  # noqa: E501  # kvlint: ignore[KV204]\n"),
        (
            "keys, x = past[0][0], past.key_cache  # kvlint: ignore[KV202] why\n",
            "keys, x = past[0][0], past.key_cache  # kvlint: ignore[KV202, KV204] why\n",
        ),
        (
            "keys, x = past[0][0], past.key_cache\n",
            "keys, x = past[0][0], past.key_cache  # kvlint: ignore[KV202, KV204]\n",
        ),
        (
            'text = f"""\n{past[0][0]}\nmore\n"""\n',
            'text = f"""\n{past[0][0]}\nmore\n"""  # kvlint: ignore[KV204]\n',
        ),
        (
            "keys = 1 + \\\n    past[0][0] + \\\n    1\n",
            "keys = 1 + \\\n    past[0][0] + \\\n    1  # kvlint: ignore[KV204]\n",
        ),
        (
            "keys = print(\n    past[0][0],\n    # more\n)\n",
            "keys = print(\n    past[0][0],  # kvlint: ignore[KV204]\n    # more\n)\n",
        ),
    ],
)
def test_where_comments_go(code: str, expected: str) -> None:
    head = "from transformers import DynamicCache\n\npast = DynamicCache()\n"
    write("a.py", head + code)
    run = kvlint("--add-ignore", "a.py")
    assert Path("a.py").read_text() == head + expected
    assert (run.code, concise().code) == (0, 0)


def test_comments_go_into_cells_and_fences() -> None:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": STALE}
    write("a.ipynb", json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    write("b.md", f"Text\n\n> ```python\n> {STALE.strip().replace(chr(10), chr(10) + '> ')}\n> ```\n")
    assert kvlint("--add-ignore=known").code == 0
    assert "[0]  # kvlint: ignore[KV204] known" in json.loads(Path("a.ipynb").read_text())["cells"][0]["source"]
    assert "> keys = past[0][0]  # kvlint: ignore[KV204] known\n" in Path("b.md").read_text()


def test_what_can_hold_no_comment_stays_reported() -> None:
    text = '{"cache_implementation": "no_such_cache"}'
    write("generation_config.json", text)
    run = concise("--add-ignore")
    assert (run.code, Path("generation_config.json").read_text()) == (1, text)
    assert "KV401" in run.out
    assert "0 findings in 0 files" in run.err


def test_only_new_findings_get_comments_where_there_is_a_baseline() -> None:
    write("a.py", TWO)
    kvlint("--write-baseline")
    write("a.py", TWO + "\n\ndef third(past: DynamicCache):\n    return past[1][0]\n")
    assert kvlint("--baseline", BASELINE_NAME, "--add-ignore").code == 0
    assert Path("a.py").read_text().count("kvlint: ignore") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--add-ignore", "--fix"], "--add-ignore cannot be combined with --fix"),
        (["--write-baseline", "--diff"], "--write-baseline cannot be combined with --fix"),
        (["--write-baseline", "--add-ignore"], "--write-baseline cannot be combined with --add-ignore"),
        (["--since", "HEAD", "--fix"], "--since cannot be combined with --fix"),
        (["--since", "HEAD", "--write-baseline"], "--since cannot be combined with --write-baseline"),
        (["--add-ignore=a\nb"], "--add-ignore: the reason is one line"),
        (["-", "--since", "HEAD"], "--since is about files"),
        (["-", "--write-baseline"], "--write-baseline is about files"),
        (["-", "--add-ignore"], "--add-ignore is about files"),
        (["--no-baseline", "--baseline", "x"], "--no-baseline contradicts"),
        (["--no-baseline", "--write-baseline"], "--no-baseline contradicts"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(options: list[str], words: str) -> None:
    write("a.py", TWO)
    run = kvlint(*options)
    assert (run.code, run.err.count("\n"), Path("a.py").read_text()) == (2, 1, TWO)
    assert words in run.err
