"""The units of a project's files: found, screened, lowered, remembered by content.

Files that say nothing of caches, models or transformers are left out; what they hold can decide nothing here.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from kvlint.discovery import ignore_files_above, is_ignored, read_ignore_file
from kvlint.engine.link import Project
from kvlint.engine.lower import lower
from kvlint.engine.units import Unit

WORTH_LOWERING = re.compile(
    rb"transformers|past_key|key_value|layer_past|kv_cache|DynamicCache|use_cache|[Cc]ache\b|pkv|past\b"
)
MAX_BYTES = 1_500_000
"""Bytes of the largest file that is lowered; bigger ones were not written by hand."""
MAX_FILES = 8_000
"""Python files of the largest project that is looked at as a whole; of a bigger one, each file is looked at alone."""
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv", "env"})
LIBRARY = "transformers"


@dataclass(slots=True)
class Index:
    """The projects of a run, each read once. *buffers* are contents that differ from those on disk."""

    buffers: dict[str, bytes] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)

    def project(self, root: str) -> Project:
        """The project at *root*."""
        if root not in self.projects:
            files = list(python_files(root))
            self.projects[root] = Project(root, self._units(files) if len(files) <= MAX_FILES else {})
        return self.projects[root]

    def _units(self, files: list[str]) -> dict[str, Unit]:
        """The units of the files that say something of interest, and of those that they import from."""
        units: dict[str, Unit] = {}
        left: list[str] = []
        for path in files:
            unit = self._lowered(path)
            if unit is not None:
                units[path] = unit
            else:
                left.append(path)
        wanted = {
            part
            for unit in units.values()
            for _, item in unit.imports
            for part in (item.module.rpartition(".")[2], item.name)
        }
        for path in left:
            stem = os.path.splitext(os.path.basename(path))[0]
            unit = self._lowered(path, anyway=True) if stem in wanted else None
            if unit is not None:
                units[path] = unit
        return units

    def _lowered(self, path: str, anyway: bool = False) -> Unit | None:
        """The unit of a file; None for one that says nothing of interest (not *anyway*), or that cannot be parsed."""
        try:
            data = self.buffers.get(path)
            if data is None:
                with open(path, "rb", buffering=0) as file:
                    data = file.read()
            wanted = anyway or os.path.basename(path) == "__init__.py" or WORTH_LOWERING.search(data) is not None
            return lowered(path, data) if wanted and len(data) <= MAX_BYTES else None
        except OSError:
            return None


def python_files(root: str) -> Iterator[str]:
    """The Python files below *root*, sorted: not those that git ignores, nor virtual environments.

    Copies of transformers inside of the project are left out: they are a library of their own.
    """
    pending = [(root, ignore_files_above(root))]
    while pending:
        folder, ignores = pending.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in listed}
        if folder != root and ("pyvenv.cfg" in names or is_library_copy(folder, names)):
            continue
        if ".gitignore" in names:
            ignores = (*ignores, *read_ignore_file(os.path.join(folder, ".gitignore"), folder))
        inner = []
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                hidden = entry.name.startswith(".") or entry.name in SKIPPED
                if not hidden and not (ignores and is_ignored(entry.path, entry.name + "/", ignores)):
                    inner.append((entry.path, ignores))
            elif entry.name.endswith(".py") and not (ignores and is_ignored(entry.path, entry.name, ignores)):
                yield entry.path
        pending += reversed(inner)


VERSION_LINE = re.compile(rb"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


@lru_cache(maxsize=1024)
def copy_around(folder: str, root: str) -> str:
    """The folder of the copy of transformers that *folder* lies in, inside of the project at *root*; "" where it is in none.

    The package of a project that is transformers itself is no copy.
    """
    current = folder
    while len(current) > len(root):
        parent = os.path.dirname(current)
        if os.path.basename(current) == LIBRARY and os.path.exists(os.path.join(current, "modeling_utils.py")):
            return "" if parent in (root, os.path.join(root, "src")) else current
        current = parent
    return ""


@lru_cache(maxsize=64)
def version_of_copy(package: str) -> str:
    """The version that a copy of transformers says it is; "" where it says none."""
    try:
        with open(os.path.join(package, "__init__.py"), "rb") as file:
            found = VERSION_LINE.search(file.read())
    except OSError:
        return ""
    return found[1].decode("ascii", "replace") if found is not None else ""


def is_library_copy(folder: str, names: set[str]) -> bool:
    """True for a folder that holds the package transformers itself."""
    return os.path.basename(folder) == LIBRARY and {"__init__.py", "modeling_utils.py"} <= names


def lowered(path: str, data: bytes) -> Unit | None:
    """The unit of a file with this content; None where it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
        return lower(path, data.decode(errors="replace"), tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
