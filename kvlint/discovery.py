"""Which files a run lints: the paths it was given, walked, less what is excluded or ignored by git.

Works on strings and ``os.scandir``: a walk over some thousand files is part of every run, and building as many Path
objects would cost more than the walk itself. Paths stay strings on their way to the report.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvlint.config import Resolver, Settings, relative_to
from kvlint.errors import UsageProblem
from kvlint.globs import Matcher, compile_patterns

SUFFIXES = (".py", ".pyi", ".ipynb", ".md", ".markdown", ".rst")
NAMES = frozenset({"generation_config.json"})
SHEBANG_BYTES = 128


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to lint: its absolute path and its settings."""

    path: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Problem:
    """A folder that could not be read."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files of a run, in the order of their paths, and what stood in the way."""

    files: tuple[FoundFile, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The patterns of a `.gitignore` and the folder that they are relative to."""

    folder: str
    matcher: Matcher


@dataclass(slots=True)
class Walk:
    """The state of one walk."""

    resolver: Resolver
    files: dict[str, Settings] = field(default_factory=dict)
    links: dict[str, Settings] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def discover(paths: Iterable[str], resolver: Resolver) -> Discovery:
    """Walks *paths*. Raises UsageProblem for one that does not exist."""
    walk = Walk(resolver)
    for path in paths:
        absolute = os.path.normpath(os.path.join(resolver.cwd, path))
        if not path:
            raise UsageProblem("an empty path: no such file or directory")
        try:
            mode = os.stat(absolute).st_mode
        except OSError as problem:
            raise UsageProblem(f"{path}: {describe_error(problem)}") from None
        if stat.S_ISDIR(mode):
            settings = resolver.for_folder(absolute)
            if not (settings.force_exclude and settings.excludes(absolute)):
                walk_folder(walk, absolute, ignore_files_above(absolute) if settings.respect_gitignore else ())
        elif not stat.S_ISREG(mode):
            raise UsageProblem(f"{path}: neither a file nor a folder (standard input is read with -)")
        else:
            settings = resolver.for_folder(os.path.dirname(absolute))
            if not (settings.force_exclude and settings.excludes(absolute)):
                (walk.links if os.path.islink(absolute) else walk.files)[absolute] = settings
    real_files = {os.path.realpath(path) for path in walk.files} if walk.links else set()
    for link, settings in walk.links.items():
        real = os.path.realpath(link)
        if real not in real_files:
            real_files.add(real)
            walk.files[link] = settings
    files = tuple(FoundFile(path, walk.files[path]) for path in sorted(walk.files))
    return Discovery(files, tuple(sorted(walk.problems, key=lambda problem: problem.path)))


def describe_error(problem: OSError) -> str:
    """What an OSError means for a person, without its number."""
    if isinstance(problem, FileNotFoundError):
        return "no such file or directory"
    return (problem.strerror or str(problem)).lower()


def walk_folder(walk: Walk, folder: str, ignores: tuple[IgnoreFile, ...]) -> None:
    """Adds the files below *folder*."""
    try:
        with os.scandir(folder) as entries:
            listed = list(entries)
    except OSError as problem:
        walk.problems.append(Problem(folder, f"cannot be read: {describe_error(problem)}"))
        return
    settings = walk.resolver.for_folder(folder)
    if settings.respect_gitignore and any(entry.name == ".gitignore" for entry in listed):
        ignores = (*ignores, *read_ignore_file(os.path.join(folder, ".gitignore"), folder))
    excludes = compile_patterns((*settings.exclude, *settings.extend_exclude))
    excludes_folder = relative_to(folder, settings.root)
    for entry in listed:
        name = entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not (name.endswith(SUFFIXES) or name in NAMES or "." not in name):
            continue
        shown = name + "/" if is_folder else name
        if excludes.decide(f"{excludes_folder}/{shown}" if excludes_folder else shown, shown):
            continue
        if ignores and is_ignored(entry.path, shown, ignores):
            continue
        if is_folder:
            walk_folder(walk, entry.path, ignores)
        elif is_wanted(entry):
            (walk.links if entry.is_symlink() else walk.files)[entry.path] = settings


def is_wanted(entry: os.DirEntry[str]) -> bool:
    """True for a regular file (or a link to one); one without a suffix must name python in its first line."""
    try:
        if not entry.is_file():
            return False
        return "." in entry.name or has_python_shebang(entry.path)
    except OSError:
        return False


def has_python_shebang(path: str) -> bool:
    """True where the first line of the file says that Python runs it."""
    try:
        with open(path, "rb", buffering=0) as file:
            start = file.read(SHEBANG_BYTES)
    except OSError:
        return False
    if not start.startswith(b"#!"):
        return False
    from kvlint.source import is_python_script

    return is_python_script(start)


def is_ignored(path: str, name: str, ignores: tuple[IgnoreFile, ...]) -> bool:
    """True where git ignores *path*: the innermost file that says anything decides. *name* ends in / for a folder."""
    slash = "/" if name.endswith("/") else ""
    for ignore in reversed(ignores):
        decision = ignore.matcher.decide(relative_to(path, ignore.folder) + slash, name)
        if decision is not None:
            return decision
    return False


def read_ignore_file(path: str, folder: str) -> tuple[IgnoreFile, ...]:
    """The patterns of one file; none where it cannot be read. A line that git could not read either says nothing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = tuple(file.read().splitlines())
    except OSError:
        return ()
    try:
        return (IgnoreFile(folder, compile_patterns(lines)),)
    except ValueError:
        return (IgnoreFile(folder, compile_patterns(tuple(line for line in lines if is_readable(line)))),)


def is_readable(line: str) -> bool:
    try:
        compile_patterns((line,))
    except ValueError:
        return False
    return True


def ignore_files_above(folder: str) -> tuple[IgnoreFile, ...]:
    """The ignore files that hold for *folder* from above it, up to the root of its repository, outermost first.

    Outside a repository there are none. A folder that is ignored itself was asked for by name: nothing above holds.
    """
    above: list[str] = []
    current = folder
    while not os.path.exists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            return ()
        above.append(parent)
        current = parent
    ignores = list(read_ignore_file(os.path.join(current, ".git", "info", "exclude"), current))
    for parent in reversed(above):
        ignores += read_ignore_file(os.path.join(parent, ".gitignore"), parent)
    found = tuple(ignores)
    inside = relative_to(folder, current).split("/")
    for depth in range(1, len(inside) + 1):
        if inside[0] and is_ignored(os.path.join(current, *inside[:depth]), inside[depth - 1] + "/", found):
            return ()
    return found
