"""The files around the linted one, read only when a name of theirs decides something.

A project is the folder of the nearest ``pyproject.toml``, ``setup.py``, ``setup.cfg`` or ``.git``. Modules are looked
up by path, never imported; each one that was read is a dependency of the result.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.releases import ReleaseSet
from kvlint.roots import find_root

if TYPE_CHECKING:
    from kvlint.analysis.evaluate import Walk

MAX_MODULE_BYTES = 2_000_000
DECIDING = (b"past_key_value", b"split_heads", b"transpose(1, 2)", b"permute(0, 2, 1, 3)", b"import *")
"""A cache, a helper that lays out heads, or the names of a module that is not named."""
KEPT_BYTES = 400_000
"""Source of the modules that are kept for the next file (a syntax tree takes some hundred times its source)."""


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file of the project."""

    text: str
    tree: ast.Module


@dataclass(eq=False, slots=True)
class Project:
    """The modules of one project that were followed; those that were asked for last are kept."""

    root: Path | None = None
    walks: dict[tuple[Path, ReleaseSet], tuple[Walk | None, int]] = field(default_factory=dict)
    """The walk over a module's statements and the size of its text, by module and target range; the last used last."""
    paths: dict[tuple[Path, str, int], Path | None] = field(default_factory=dict)
    """Where modules lie, by the folder that imports them."""
    modules: dict[Path, Module | None] = field(default_factory=dict)
    """What was read of modules that were followed; the last used last."""
    followed: int = 0
    """Characters of the modules that were read so far."""

    @staticmethod
    def of(path: Path) -> Project:
        """The project that holds *path* (a folder without any marker: no project)."""
        return Project(find_root(path))

    def beside(self) -> Project:
        """The same project with walks of its own: what was read and found on disk is shared."""
        return Project(self.root, paths=self.paths, modules=self.modules)

    def module(self, path: Path) -> Module | None:
        """The text and the syntax tree of a file; None where it cannot be read or parsed, or cannot matter."""
        known = self.modules.pop(path) if path in self.modules else read_module(path)
        self.modules[path] = known
        return known

    def module_path(self, importer: Path, module: str, level: int) -> Path | None:
        """The file of ``from <level dots><module> import ...`` written in *importer*, if it lies in the project."""
        key = (importer.parent, module, level)
        if key not in self.paths:
            self.paths[key] = self._find(importer, module, level)
        return self.paths[key]

    def _find(self, importer: Path, module: str, level: int) -> Path | None:
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

    def walk(self, path: Path, target: ReleaseSet, make: Callable[[Path], Walk | None]) -> Walk | None:
        """The walk over a module, made with *make* where it is not kept; None where it cannot be read or parsed."""
        key = (path, target)
        known = self.walks.pop(key, None)
        if known is None:
            walk = make(path)
            known = (walk, len(walk.text) if walk is not None else 0)
            self.followed += known[1]
        self.walks[key] = known
        return known[0]

    def parsed(self, path: Path, target: ReleaseSet, text: str) -> ast.Module | None:
        """The tree of a module that was followed before, where it has this text; None for any other."""
        walk, _ = self.walks.get((path, target), (None, 0))
        known = walk if walk is not None else self.modules.get(path)
        return known.tree if known is not None and known.text == text else None

    def forget(self) -> None:
        """Lets go of the modules that nobody asked for lately. Not in the middle of a file: its values refer to them."""
        kept = sum(size for _, size in self.walks.values())
        for key in list(self.walks):
            if kept <= KEPT_BYTES:
                break
            kept -= self.walks.pop(key)[1]
        kept = sum(len(module.text) for module in self.modules.values() if module is not None)
        for path in list(self.modules):
            if kept <= KEPT_BYTES:
                break
            module = self.modules.pop(path)
            kept -= len(module.text) if module is not None else 0


def existing_module(folder: Path, module: str) -> Path | None:
    parts = [part for part in module.split(".") if part]
    target = os.path.join(folder, *parts)
    for candidate in (target + ".py", os.path.join(target, "__init__.py")) if parts else ():
        if os.path.isfile(candidate):
            return Path(candidate)
    if not parts and os.path.isfile(os.path.join(folder, "__init__.py")):
        return folder / "__init__.py"
    return None


def read_module(path: Path) -> Module | None:
    """The text and the syntax tree of a file, or None where it cannot be read or parsed."""
    import warnings

    try:
        data = path.read_bytes()
        if len(data) > MAX_MODULE_BYTES or not may_decide(path, data):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Module(data.decode(errors="replace"), ast.parse(data))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def may_decide(path: Path, data: bytes) -> bool:
    """False for a module whose names cannot matter: no word of transformers or of a cache, and no names of others."""
    return path.name == "__init__.py" or any(word in data for word in DECIDING) or b"transformers" in data.lower()


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


WORTH_FOLLOWING = re.compile(
    r"(?i)transformers|version|cache|past|model|attention|attn|forward|patch|layer|_v\d|hf_|is_|mixin|dynamic|compat|const|legacy|older|newer|util|for(?:causal|conditional)"
)
