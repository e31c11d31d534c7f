"""Small projects that are run before and after their fixes: what worked works, and what failed works or is reported.

Each folder of ``tests/fixes`` holds the code that is fixed and a ``prove.py`` that ends well where its results are right.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvlint import lint_paths
from kvlint.public import settings_for

CASES = Path(__file__).parent / "fixes"
NAMES = sorted(folder.name for folder in CASES.iterdir() if (folder / "prove.py").is_file())


def works(folder: Path) -> bool:
    """Whether the proof ends well; nothing of kvlint takes part in it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "prove.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TRANSFORMERS_VERBOSITY": "error"},
    )
    return done.returncode == 0 and done.stdout.strip().endswith("OK")


def fix(project: Path, unsafe: bool) -> tuple[bool, bool]:
    """Applies fixes; whether anything was changed, and whether anything is reported afterwards."""
    settings = replace(settings_for(project), target="5.24", unsafe_fixes=unsafe)
    changed = False
    report = lint_paths([project], settings, fix=True, cache=False)
    for file in report.files:
        assert not file.errors
        if file.fixed_bytes is not None:
            changed = True
            Path(file.path).write_bytes(file.fixed_bytes)
    return changed, bool(report.findings)


@pytest.mark.parametrize("name", NAMES)
def test_fixes_leave_nothing_broken_unsaid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    project, proof = tmp_path / "project", tmp_path / "proof"
    shutil.copytree(CASES / name, proof, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(proof, project, ignore=shutil.ignore_patterns("prove.py"))
    (project / ".git").mkdir()
    monkeypatch.chdir(project)
    before = result = works(proof)
    for unsafe in (False, True):
        changed, reported = fix(project, unsafe)
        if changed:
            shutil.copytree(project, proof, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
            result = works(proof)
        assert result or (not before and reported), (
            f"wrong after {'all' if unsafe else 'the safe'} fixes, left: {reported}"
        )
