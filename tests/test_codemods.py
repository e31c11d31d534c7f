"""The codemod, run as a user of LibCST runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BEFORE = """from transformers import DynamicCache


def length(cache: DynamicCache):
    # how much it has seen
    return cache.get_usable_length(1)  # kept


def items(cache: DynamicCache):
    return cache.seen_tokens
"""


def codemod(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "libcst.tool", "codemod", "--no-format", "--hide-progress"]
    return subprocess.run(
        [*command, "-x", "kvlint.codemods.MigrateCache", *options, "src"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )


def project(folder: Path) -> Path:
    (folder / "src").mkdir()
    (folder / ".git").mkdir()
    file = folder / "src" / "a.py"
    file.write_text(BEFORE)
    return file


def test_the_codemod_applies_the_safe_fixes(tmp_path: Path) -> None:
    file = project(tmp_path)
    done = codemod(tmp_path, "--target", "5.24")
    assert done.returncode == 0, done.stderr
    changed = BEFORE.replace("get_usable_length(1)", "get_seq_length()").replace("seen_tokens", "get_seq_length()")
    assert file.read_text() == changed
    assert codemod(tmp_path, "--target", "5.24").returncode == 0
    assert file.read_text() == changed


def test_rules_limit_what_is_rewritten(tmp_path: Path) -> None:
    file = project(tmp_path)
    done = codemod(tmp_path, "--target", "5.24", "--rules", "KV202")
    assert done.returncode == 0, done.stderr
    assert file.read_text() == BEFORE.replace("seen_tokens", "get_seq_length()")


def test_a_mistake_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    file = project(tmp_path)
    for options, words in (
        (("--target", "nonsense"), "--target: 'nonsense' is neither"),
        (("--rules", "KV9999"), "--rules: unknown rule 'KV9999'"),
    ):
        done = codemod(tmp_path, *options)
        assert done.returncode == 2
        assert f"kvlint: error: {words}" in done.stderr
        assert "Traceback" not in done.stderr
    assert file.read_text() == BEFORE
