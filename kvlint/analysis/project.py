"""The files around the linted one, read only when a name of theirs decides something.

A project is the folder of the nearest ``pyproject.toml``, ``setup.py``, ``setup.cfg`` or ``.git``. Modules are looked
up by path, never imported; each one that was read is a dependency of the result.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvlint.analysis.values import Value
from kvlint.releases import ReleaseSet

ROOT_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
MAX_MODULE_BYTES = 2_000_000


@dataclass(eq=False, slots=True)
class Project:
    """The modules of one project, by dotted name; parsed at most once each."""

    root: Path | None = None
    modules: dict[Path, ast.Module | None] = field(default_factory=dict)
    exports: dict[tuple[Path, ReleaseSet], dict[str, Value]] = field(default_factory=dict)
    """Top-level names of the modules that were followed, by module and target range."""
    walks: list[Any] = field(default_factory=list)
    """The walks over these modules, for functions of theirs that are called."""

    @staticmethod
    def of(path: Path) -> Project:
        """The project that holds *path* (a folder without any marker: no project)."""
        return Project(find_root(path))

    def module_path(self, importer: Path, module: str, level: int) -> Path | None:
        """The file of ``from <level dots><module> import ...`` written in *importer*, if it lies in the project."""
        if level:
            folder = importer.parent
            for _ in range(level - 1):
                folder = folder.parent
            return existing_module(folder, module)
        for base in self._search_folders(importer):
            found = existing_module(base, module)
            if found is not None:
                return found
        return None

    def _search_folders(self, importer: Path) -> list[Path]:
        folder = importer.parent
        package_top = folder
        while (package_top / "__init__.py").is_file() and package_top.parent != package_top:
            package_top = package_top.parent
        folders = [package_top, folder]
        if self.root is not None:
            folders += [self.root, self.root / "src"]
        return list(dict.fromkeys(folders))

    def tree(self, path: Path) -> ast.Module | None:
        """The syntax tree of a module, or None where it cannot be read or parsed."""
        if path not in self.modules:
            self.modules[path] = parse_quietly(path)
        return self.modules[path]


def find_root(path: Path) -> Path | None:
    """The nearest folder above *path* that holds a root marker."""
    for folder in path.resolve().parents:
        if any((folder / marker).exists() for marker in ROOT_MARKERS):
            return folder
    return None


def existing_module(folder: Path, module: str) -> Path | None:
    parts = [part for part in module.split(".") if part]
    target = folder.joinpath(*parts)
    for candidate in (target.with_name(target.name + ".py"), target / "__init__.py"):
        if parts and candidate.is_file():
            return candidate
    if not parts and (folder / "__init__.py").is_file():
        return folder / "__init__.py"
    return None


def parse_quietly(path: Path) -> ast.Module | None:
    import warnings

    try:
        data = path.read_bytes()
        if len(data) > MAX_MODULE_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def package_name(path: Path) -> str:
    """Dotted name of a file's module by the ``__init__.py`` files above it; "" outside any package."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        if folder.parent == folder:
            break
        folder = folder.parent
    return ".".join(parts) if len(parts) > (0 if path.stem == "__init__" else 1) else ""


WORTH_FOLLOWING = re.compile(r"(?i)transformers|version|cache|past|model|attention|layer|_v\d|hf_|is_|mixin|dynamic|compat|const|legacy|older|newer|util")
