"""Where projects begin: the nearest folder that holds a marker."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


@cache
def project_root(folder: str) -> str | None:
    """The root of the project that *folder* lies in."""
    if any(os.path.exists(os.path.join(folder, marker)) for marker in ROOT_MARKERS):
        return folder
    parent = os.path.dirname(folder)
    return None if parent == folder else project_root(parent)


def find_root(path: Path) -> Path | None:
    """The nearest folder above *path* that holds a root marker."""
    for folder in path.resolve().parents:
        if any((folder / marker).exists() for marker in ROOT_MARKERS):
            return folder
    return None
