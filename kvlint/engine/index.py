"""The units of a project's files: found, screened, lowered, remembered by content.

Files that say nothing of caches, models or transformers are left out; what they hold can decide nothing here.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kvlint.discovery import ignore_files_above, is_ignored, read_ignore_file
from kvlint.engine.link import Project
from kvlint.engine.lower import lower
from kvlint.engine.store import Store, Units, state_of
from kvlint.engine.units import ALONE, Surroundings, Unit
from kvlint.fingerprint import digest
from kvlint.roots import project_root

WORTH_LOWERING = re.compile(rb"transformers|past_key|key_value|layer_past|kv_cache|DynamicCache|use_cache|pkv")
WORTH_BESIDE_TORCH = re.compile(rb"[Cc]ache\b|past\b")
"""Words that many programs use: they say something in one that holds tensors."""
MAX_BYTES = 1_500_000
"""Bytes of the largest file that is lowered; bigger ones were not written by hand."""
MAX_FILES = 8_000
"""Python files of the largest project that is looked at as a whole; of a bigger one, each file is looked at alone."""
MAX_LOOSE_FILES = 400
"""The same for a folder in which nothing says that it is a project; of a bigger one, its own files are looked at."""
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv", "env"})
LIBRARY = "transformers"


@dataclass(slots=True)
class Index:
    """The projects of a run, each read once. *buffers* are contents that differ from those on disk.

    *memory* holds what was lowered, by path with the digest of the content; it may outlive the index. *folder* is where
    that is kept from one run to the next, "" for nowhere.
    """

    buffers: dict[str, bytes] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    memory: Units | None = None
    folder: str = ""
    _known: dict[str, dict[str, Surroundings]] = field(default_factory=dict)

    def surroundings(self, root: str, path: str) -> Surroundings:
        """What the project at *root* says about a file of it."""
        if root not in self._known:
            self._known[root] = self._all_surroundings(root)
        return self._known[root].get(path) or self._known[root].get("", ALONE)

    def _all_surroundings(self, root: str) -> dict[str, Surroundings]:
        if not self.folder or self.buffers:
            project = self.project(root)
            return {path: project.surroundings(path) for path in (*project.units, "")}
        store = Store(self.folder, root)
        state = state_of({path: self._data(path) for path in self._files(root)})
        kept = store.surroundings(state)
        if not kept:
            self.memory = store.units()
            project = self.project(root)
            kept = {path: project.surroundings(path) for path in (*project.units, "")}
            store.keep({path: item for path, item in self.memory.items() if path in project.units}, state, kept)
        return kept

    def project(self, root: str) -> Project:
        """The project at *root*."""
        if root not in self.projects:
            self.projects[root] = Project(root, self._units(self._files(root)))
        return self.projects[root]

    def _files(self, root: str) -> list[str]:
        """The Python files of a project; of one that is too big, none, or those of the folder."""
        limit = MAX_FILES if project_root(root) is not None else MAX_LOOSE_FILES
        files = list(itertools.islice(python_files(root), limit + 1))
        if len(files) <= limit:
            return files
        return [path for path in files if os.path.dirname(path) == root] if limit == MAX_LOOSE_FILES else []

    def _units(self, files: list[str]) -> dict[str, Unit]:
        """The units of the files that say something of interest, of those that they import from, and of their callers."""
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
        spoken = names_that_speak(units.values())
        for path in left:
            if path not in units and imports_one_of(self._data(path), spoken):
                unit = self._lowered(path, anyway=True)
                if unit is not None:
                    units[path] = unit
        return units

    def _data(self, path: str) -> bytes:
        """The content of a file; empty where it cannot be read."""
        data = self.buffers.get(path)
        try:
            return data if data is not None else Path(path).read_bytes()
        except OSError:
            return b""

    def _lowered(self, path: str, anyway: bool = False) -> Unit | None:
        """The unit of a file; None for one that says nothing of interest (not *anyway*), or that cannot be parsed."""
        data = self._data(path)
        wanted = anyway or os.path.basename(path) == "__init__.py" or speaks(data)
        return self._remembered(path, data) if wanted and len(data) <= MAX_BYTES else None

    def _remembered(self, path: str, data: bytes) -> Unit | None:
        """The unit of a file with this content."""
        if self.memory is None:
            return lowered(path, data)
        name = digest(data)
        if self.memory.get(path, ("", None))[0] != name:
            self.memory[path] = (name, lowered(path, data))
        return self.memory[path][1]


def speaks(data: bytes) -> bool:
    """True for the content of a file that says something of caches, models or transformers."""
    return WORTH_LOWERING.search(data) is not None or (b"torch" in data and WORTH_BESIDE_TORCH.search(data) is not None)


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


IMPORTED = re.compile(rb"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]+)", re.MULTILINE)


def names_that_speak(units: Iterable[Unit]) -> dict[bytes, set[bytes]]:
    """By the name of a module: its functions, and its classes with methods, whose code speaks of caches.

    What calls them may say what they are given, or use what they give.
    """
    found: dict[bytes, set[bytes]] = {}
    for unit in units:
        stem = os.fsencode(os.path.splitext(os.path.basename(unit.path))[0])
        names = {(item.owner or item.name).encode() for item in unit.functions if item.speaks}
        if names:
            found.setdefault(stem, set()).update(names)
    return found


def imports_one_of(data: bytes, names: Mapping[bytes, set[bytes]]) -> bool:
    """True for a file that imports one of these functions from a module of that name."""
    for match in IMPORTED.finditer(data):
        wanted = names.get(match[1].rpartition(b".")[2])
        if wanted and wanted.intersection(re.findall(rb"\w+", match[2])):
            return True
    return False


VERSION_LINE = re.compile(rb"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


@lru_cache(maxsize=1024)
def copy_around(folder: str, root: str) -> str:
    """The folder of the copy of transformers that *folder* lies in, inside of the project at *root*; "" where it is in none.

    The package of a project that is transformers itself is no copy.
    """
    current = folder
    while len(current) > len(root):
        parent = os.path.dirname(current)
        if os.path.basename(current) == LIBRARY and version_of_copy(current):
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
    """True for a folder that holds the package transformers itself; subpackages of others are called so, too."""
    return os.path.basename(folder) == LIBRARY and "__init__.py" in names and bool(version_of_copy(folder))


def lowered(path: str, data: bytes) -> Unit | None:
    """The unit of a file with this content; None where it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
        return lower(path, data.decode(errors="replace"), tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
