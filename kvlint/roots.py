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


@cache
def code_root(folder: str) -> str:
    """The folder of the code that belongs together with the files of *folder*.

    That of the nearest ``.git``; without one, of the outermost pyproject.toml, setup.py or setup.cfg; without any, the top
    package, or the folder itself. An installed package is a project of its own, and so is each folder of a hub's
    modules.
    """
    parts = folder.split(os.sep)
    for marker in ("site-packages", "dist-packages", "transformers_modules"):
        if marker in parts[:-1]:
            return os.sep.join(parts[: parts.index(marker) + 2])
    outermost = ""
    current = folder
    while True:
        if os.path.exists(os.path.join(current, ".git")):
            return current
        if any(os.path.exists(os.path.join(current, marker)) for marker in ROOT_MARKERS):
            outermost = current
        parent = os.path.dirname(current)
        if parent == current:
            break
        current = parent
    if outermost:
        return outermost
    top = folder
    while os.path.exists(os.path.join(os.path.dirname(top), "__init__.py")):
        top = os.path.dirname(top)
    return top
