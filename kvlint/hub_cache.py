"""What models in the local Hugging Face cache bring along: where it lies, which repository and revision it is of.

Files are only looked at: nothing is downloaded, imported or run. A model's own code lies in two places: in the
snapshot that was downloaded (``hub/models--ORG--NAME/snapshots/COMMIT``, links to blobs), and in the copy that
transformers imports (``modules/transformers_modules/ORG/NAME/COMMIT``). Settings of generation lie in the snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import expandvars
from pathlib import Path

MODEL_FOLDER = "models--"
MODULES_PACKAGE = "transformers_modules"
SNAPSHOT_PATTERNS = ("*.py", "generation_config.json")
"""What of a snapshot is looked at: its code, and the settings that are loaded with the model."""

_COMMIT = re.compile(r"[0-9a-f]{16,64}\Z")


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A Python file, or settings of generation, of a repository: its absolute *path*, and its *name* there with ``/``."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Revision:
    """The code of one revision of a repository.

    *revision* is a commit, or the hash of the files for a model that was loaded from a folder, or "" where an old
    transformers copied such a model without one. *refs* are the branches and tags that name the commit, as far as the
    cache knows. *folder* is where the files lie; with *imported* that is the copy that transformers imports.
    """

    repository: str
    revision: str
    refs: tuple[str, ...]
    folder: str
    imported: bool
    files: tuple[CodeFile, ...]

    @property
    def brings_code(self) -> bool:
        """False for settings of generation alone, which most models have."""
        return any(file.name.endswith(".py") for file in self.files)


@dataclass(frozen=True, slots=True)
class CacheFolders:
    """The folders of the cache: of downloaded repositories, and of code that was copied to be imported."""

    hub: Path
    modules: Path


def cache_folders(environment: Mapping[str, str]) -> CacheFolders:
    """The folders that huggingface_hub and transformers use under these environment variables."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home(), ".cache")
    home = _expanded(environment.get("HF_HOME") or Path(base, "huggingface"))
    hub = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or home / "hub"
    modules = environment.get("HF_MODULES_CACHE") or home / "modules"
    return CacheFolders(_expanded(hub), _expanded(modules) / MODULES_PACKAGE)


def _expanded(path: str | Path) -> Path:
    return Path(expandvars(path)).expanduser().absolute()


def repositories(folders: CacheFolders) -> tuple[str, ...]:
    """The names of the models in the cache, with or without code of their own, sorted."""
    names = {name for name, _ in _model_folders(folders.hub)}
    names.update(found.repository for found in _imported(folders.modules, names))
    return tuple(sorted(names))


def revisions(folders: CacheFolders) -> tuple[Revision, ...]:
    """Every revision with code or settings of generation of its own, sorted by repository and revision.

    The copy that transformers imports is listed where it differs from the snapshot, or there is no snapshot.
    """
    models = dict(_model_folders(folders.hub))
    snapshots = [found for name, folder in models.items() for found in _snapshots(name, folder)]
    known = {(found.repository, found.revision): found for found in snapshots}
    copies = []
    for copy in _imported(folders.modules, models):
        original = known.get((copy.repository, copy.revision))
        different = tuple(file for file in copy.files if not _is_copy(file, original))
        refs = original.refs if original is not None else ()
        copies.append(Revision(copy.repository, copy.revision, refs, copy.folder, True, different))
    found = [revision for revision in (*snapshots, *copies) if revision.files]
    return tuple(
        sorted(found, key=lambda item: (item.repository.lower(), item.repository, item.revision, item.imported))
    )


def _model_folders(hub: Path) -> Iterator[tuple[str, Path]]:
    """The models downloaded into *hub*: name and folder."""
    for folder in sorted(hub.glob(f"{MODEL_FOLDER}*")):
        if folder.is_dir():
            yield folder.name.removeprefix(MODEL_FOLDER).replace("--", "/"), folder


def _snapshots(name: str, folder: Path) -> Iterator[Revision]:
    refs = _refs(folder / "refs")
    for snapshot in sorted(folder.glob("snapshots/*")):
        if snapshot.is_dir():
            names = tuple(sorted(ref for ref, commit in refs.items() if commit == snapshot.name))
            yield Revision(
                name, snapshot.name, names, str(snapshot), False, tuple(_files(snapshot, *SNAPSHOT_PATTERNS))
            )


def _refs(folder: Path) -> dict[str, str]:
    """The branches, tags and pull requests that are known, and the commit of each."""
    found = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.read_text("utf-8", "replace").strip()
        except OSError:
            continue
    return found


def _imported(modules: Path, models: Iterable[str]) -> Iterator[Revision]:
    """The code below *modules*, by repository and revision; *models* tells how names are really spelled."""
    spelled = {_module_path(name): name for name in models}
    groups: dict[tuple[str, str, str], list[CodeFile]] = {}
    for file in _files(modules, "*.py"):
        parts = file.name.split("/")[:-1]
        if not parts:
            continue
        commits = [index for index, part in enumerate(parts) if index and _COMMIT.match(part)]
        count = commits[0] if commits else 1
        module_path = "/".join(parts[:count])
        repository = spelled.get(module_path) or "/".join(map(_unsanitized, parts[:count]))
        revision = parts[count] if commits else ""
        depth = count + bool(commits)
        folder = str(modules.joinpath(*parts[:depth]))
        name = "/".join(file.name.split("/")[depth:])
        groups.setdefault((repository, revision, folder), []).append(CodeFile(file.path, name))
    for (repository, revision, folder), files in groups.items():
        yield Revision(repository, revision, (), folder, True, tuple(files))


def _module_path(name: str) -> str:
    """The folder that transformers makes of a repository's name (its `_sanitize_module_name`)."""
    parts = (part.replace(".", "_dot_").replace("-", "_hyphen_") for part in name.split("/"))
    return "/".join(f"_{part}" if part[:1].isdigit() else part for part in parts)


def _unsanitized(part: str) -> str:
    """The name that a folder of modules was most likely made of."""
    name = part.replace("_hyphen_", "-").replace("_dot_", ".")
    return name[1:] if re.match(r"_\d", name) else name


def _is_copy(file: CodeFile, original: Revision | None) -> bool:
    if original is None:
        return False
    path = next((other.path for other in original.files if other.name == file.name), None)
    try:
        return path is not None and Path(path).read_bytes() == Path(file.path).read_bytes()
    except OSError:
        return False


def _files(folder: Path, *patterns: str) -> Iterator[CodeFile]:
    """The files below *folder* that hold anything, sorted; links to blobs count, dangling ones do not."""
    for path in sorted({path for pattern in patterns for path in folder.rglob(pattern)}):
        try:
            has_content = path.is_file() and path.stat().st_size > 0
        except OSError:
            continue
        if has_content and "__pycache__" not in path.parts:
            yield CodeFile(str(path), path.relative_to(folder).as_posix())
