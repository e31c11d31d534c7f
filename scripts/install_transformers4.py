"""Installs the newest transformers 4.x into a folder of its own, beside the newest release in the environment.

The rule pages say what code did on 4.x; the tests run those examples with this folder in front of ``sys.path``. The
folder is ``.cache/transformers4`` of the checkout, or the one that ``KVLINT_TRANSFORMERS4`` names. Nothing happens
where it holds these versions already.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "constraints" / "transformers4.txt"


def folder() -> Path:
    """Where the 4.x release lies, or is to lie."""
    named = os.environ.get("KVLINT_TRANSFORMERS4")
    return Path(named) if named else ROOT / ".cache" / "transformers4"


def main() -> int:
    """Installs what is missing; returns the exit status of pip."""
    target = folder()
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    stamp = target / "installed.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        print(f"{target} is up to date")
        return 0
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--upgrade"]
    command += ["--target", str(target), "--requirement", str(REQUIREMENTS)]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        stamp.write_text(wanted, encoding="utf-8")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
