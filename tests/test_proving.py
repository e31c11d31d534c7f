"""``--fix --prove COMMAND``: what the command passes after is kept, the rest is taken back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BEFORE = """from transformers import DynamicCache


def length(cache: DynamicCache):
    return cache.get_usable_length(1)


def seen(cache: DynamicCache):
    return cache.seen_tokens
"""
FIRST = BEFORE.replace("get_usable_length(1)", "get_seq_length()")
BOTH = FIRST.replace("seen_tokens", "get_seq_length()")


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "kvlint", "--target", "5.24", "--no-cache", "-j", "1", *options, "a.py"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}


def judged_by(judge: str) -> str:
    return f'"{sys.executable}" -c "{judge}"'


def fix(folder: Path, judge: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "a.py").write_text(BEFORE)
    return subprocess.run(
        command("--fix", "--prove", judged_by(judge), *options),
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(),
    )


def test_all_fixes_stay_where_the_command_passes(tmp_path: Path) -> None:
    done = fix(tmp_path, "pass")
    assert (tmp_path / "a.py").read_text() == BOTH
    assert "note: a.py: kept: 2 fixes (KV201, KV202)" in done.stderr
    assert done.returncode == 0


def test_a_unit_after_which_the_command_fails_is_taken_back(tmp_path: Path) -> None:
    done = fix(tmp_path, "assert 'seen_tokens' in open('a.py').read()")
    assert (tmp_path / "a.py").read_text() == FIRST
    assert "note: a.py: kept: line 5, KV201: " in done.stderr
    assert "note: a.py: taken back: line 9, KV202: " in done.stderr
    assert done.returncode == 1
    assert "a.py:9" in done.stdout
    assert "KV201" not in done.stdout


def test_a_command_that_fails_before_judges_all_fixes_together(tmp_path: Path) -> None:
    done = fix(tmp_path, "assert 'seen_tokens' not in open('a.py').read()")
    assert (tmp_path / "a.py").read_text() == BOTH
    assert done.returncode == 0
    done = fix(tmp_path, "raise SystemExit(1)")
    assert (tmp_path / "a.py").read_text() == BEFORE
    assert "the command fails before and after the fixes: all of them were taken back" in done.stderr
    assert done.returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another kind")
def test_a_run_that_is_ended_puts_back_what_was_on_trial(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(BEFORE)
    judge = "import time, os; open('began', 'a').close() if 'seen_tokens' not in open('a.py').read() else None; "
    judge += "time.sleep(60) if os.path.exists('began') else None"
    process = subprocess.Popen(
        command("--fix", "--prove", judged_by(judge)), cwd=tmp_path, env=environment(), start_new_session=True
    )
    until = time.monotonic() + 120
    while not (tmp_path / "began").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert file.read_text() == BOTH
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 130
    assert file.read_text() == BEFORE


@pytest.mark.parametrize("options", [(), ("--diff",)])
def test_it_goes_with_fix(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "a.py").write_text(BEFORE)
    done = subprocess.run(
        command(*options, "--prove", "true"), cwd=tmp_path, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 2
    assert "--prove goes with --fix" in done.stderr
