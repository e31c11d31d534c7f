"""The target range: which releases of transformers the linted code is meant for.

``--target`` takes a release (``5.24``, ``4.57.6``), a range (``>=4.56,<6``), ``latest``, ``installed`` or ``project``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kvlint.config import read_toml
from kvlint.errors import UsageProblem, did_you_mean
from kvlint.releases import ReleaseSet
from kvlint.roots import project_root

if TYPE_CHECKING:
    from kvlint.timeline import Timeline

WORDS = ("latest", "installed", "project")
REQUIREMENT = re.compile(r"(?i)\s*transformers\s*(?:\[[^\]]*\])?\s*(?P<spec>[^;#@]*?)\s*(?:[;#].*)?\s*\Z")
DIST_INFO = re.compile(r"transformers-(.+)\.dist-info\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """The releases to lint for: *text* says which, *source* where that comes from, *note* is a remark."""

    releases: ReleaseSet
    text: str
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a project says about transformers: a version specifier ("" for any) and the file that says so."""

    specifier: str
    source: str
    exact: bool = False


def resolve(
    text: str,
    timeline: Timeline,
    project_root: str | None,
    environment: str | None = None,
    where: str = "--target",
) -> Target:
    """The target that *text* asks for ("" for the default), among the releases of *timeline*.

    *environment* is a virtual environment or an interpreter for ``installed``; *where* names what says *text*: the
    option, or a key of a configuration file. Raises UsageProblem where *text* means nothing, or no release that is
    known.
    """
    wanted = text.strip()
    word = wanted.lower()
    if word in ("", "latest"):
        newest = timeline.releases[-1]
        note = note_on_default(timeline, project_root) if not word else ""
        return Target(ReleaseSet.of(len(timeline.releases) - 1), newest, "the newest release known", note)
    if word == "installed":
        return installed_target(timeline.releases, project_root, environment, where)
    if word == "project":
        return project_target(timeline, project_root, where)
    return matched(wanted, timeline, where)


EXACT = re.compile(r"(?:={2,3}\s*)?v?(\d+)\.(\d+)\.(\d+)\Z")


def matched(wanted: str, timeline: Timeline, where: str) -> Target:
    """The target that a version or a specifier asks for. Raises UsageProblem where it is none, or no release matches.

    A patch release that kvlint does not know (4.46.0 was withdrawn, 5.10.3 never published) stands for the nearest one of
    its minor release, with a note.
    """
    found = EXACT.match(wanted)
    if found is not None:
        number = (int(found[1]), int(found[2]), int(found[3]))
        near = nearest_patch(number, timeline.releases)
        version = ".".join(map(str, number))
        if near is not None and near != version:
            note = (
                f"transformers {version} ({where}) is not among the releases kvlint knows: withdrawn, never published, or "
                f"too new; it checks for {near}"
            )
            return Target(ReleaseSet.of(timeline.releases.index(near)), near, where, note)
    return Target(matching(wanted, timeline, where), wanted, where)


def nearest_patch(number: tuple[int, int, int], releases: Sequence[str]) -> str | None:
    """The release itself, else the next later one of the same minor release, else the last; None for an unknown minor."""
    same = [release for release in releases if release.startswith(f"{number[0]}.{number[1]}.")]
    later = [release for release in same if int(release.split(".")[2]) >= number[2]]
    return later[0] if later else same[-1] if same else None


def matching(wanted: str, timeline: Timeline, where: str) -> ReleaseSet:
    """The releases that a version or a specifier names: ``4.57`` is all of 4.57.x. Raises UsageProblem for none."""
    parts = [part.strip() for part in wanted.strip("() ").split(",") if part.strip()]
    specifier = parts[0] if len(parts) == 1 and parts[0][:1].isdigit() else ",".join(map(standard_specifier, parts))
    try:
        return timeline.matching(specifier)
    except ValueError as problem:
        hint = did_you_mean(wanted, WORDS) if wanted.isalpha() else ""
        raise UsageProblem(f"{where}: {problem}{hint}") from None


def standard_specifier(part: str) -> str:
    """One part of a specifier as PEP 440 has it: ``^4.40`` is ``>=4.40,<5``, ``~4.40`` is ``~=4.40.0``."""
    number = part.lstrip("^~=<>! ").strip()
    pieces = number.split(".")
    if part.startswith("^") and all(piece.isdigit() for piece in pieces):
        return f">={number},<{int(pieces[0]) + 1}"
    if part.startswith("~") and not part.startswith("~=") and all(piece.isdigit() for piece in pieces):
        upper = f"{pieces[0]}.{int(pieces[1]) + 1}" if len(pieces) > 1 else str(int(pieces[0]) + 1)
        return f">={number},<{upper}"
    return f"=={part}" if part[:1].isdigit() else part


def note_on_default(timeline: Timeline, project_root: str | None) -> str:
    """One line where the project's own requirement rules out the newest release, which is the default target."""
    try:
        requirement = project_requirement(project_root) if project_root else None
        if requirement is None or not requirement.specifier:
            return ""
        newest = len(timeline.releases) - 1
        if newest in set(matched(requirement.specifier, timeline, requirement.source).releases):
            return ""
    except UsageProblem:
        return ""
    return (
        f"this project requires transformers{spaced(requirement.specifier)} ({requirement.source}); "
        f"kvlint checks for {timeline.releases[-1]}; use --target project"
    )


def spaced(specifier: str) -> str:
    return f" {specifier}" if specifier[:1].isalnum() else specifier


def project_target(timeline: Timeline, project_root: str | None, where: str = "--target") -> Target:
    """The releases that the project's own files allow. Raises UsageProblem where they say nothing."""
    requirement = project_requirement(project_root) if project_root else None
    if requirement is None:
        looked = (
            f"in {project_root}" if project_root else "(no pyproject.toml, setup.py, setup.cfg, requirements or .git)"
        )
        raise UsageProblem(f"{where} project: nothing there requires transformers {looked}; name the releases instead")
    if not requirement.specifier:
        return Target(timeline.all, "any release", requirement.source)
    return matched(requirement.specifier, timeline, requirement.source)


def installed_target(
    releases: Sequence[str], project_root: str | None, environment: str | None, where: str = "--target"
) -> Target:
    """The release that is installed, read off the name of its dist-info folder. Raises UsageProblem for none."""
    for folder in site_folders(project_root, environment):
        version = installed_version(folder)
        if version is None:
            continue
        if version in releases:
            return Target(ReleaseSet.of(releases.index(version)), version, folder)
        from packaging.version import InvalidVersion, Version

        try:
            wanted = Version(version)
        except InvalidVersion:
            continue
        near = nearest_patch(wanted.release[:3], releases) if len(wanted.release) == 3 else None
        if near is not None:
            note = f"transformers {version} ({folder}) is not among the releases kvlint knows; it checks for {near}"
            return Target(ReleaseSet.of(releases.index(near)), near, folder, note)
        earlier = [index for index, release in enumerate(releases) if Version(release) <= wanted]
        if not earlier:
            raise UsageProblem(
                f"{where} installed: transformers {version} ({folder}) is older than what kvlint knows ({releases[0]})"
            )
        nearest = releases[earlier[-1]]
        note = f"transformers {version} ({folder}) is not among the releases kvlint knows; it checks for {nearest}"
        return Target(ReleaseSet.of(earlier[-1]), nearest, folder, note)
    looked = environment or "VIRTUAL_ENV, .venv of the project, the environment of kvlint"
    raise UsageProblem(f"{where} installed: transformers is not installed (looked in: {looked}; see --python)")


def installed_version(folder: str) -> str | None:
    """The version of transformers installed in a site-packages folder."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    return next((match[1] for name in names if (match := DIST_INFO.match(name))), None)


def site_folders(project_root: str | None, environment: str | None) -> Iterator[str]:
    """The site-packages folders to look in, best first."""
    if environment is not None:
        if not os.path.exists(environment):
            raise UsageProblem(f"--python {environment}: no such file or directory")
        base = environment
        if os.path.isfile(environment):
            base = os.path.dirname(os.path.dirname(os.path.abspath(environment)))
        found = list(packages_of(base))
        yield from found or [environment]
        return
    bases = [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")]
    if project_root:
        bases[1:1] = [os.path.join(project_root, ".venv"), os.path.join(project_root, "venv")]
    for item in bases:
        if item:
            yield from packages_of(item)
    yield from (folder for folder in sys.path if folder)


def packages_of(environment: str) -> Iterator[str]:
    """The site-packages folders of a virtual environment."""
    library = os.path.join(environment, "lib")
    if os.path.isdir(library):
        for name in sorted(os.listdir(library), reverse=True):
            folder = os.path.join(library, name, "site-packages")
            if os.path.isdir(folder):
                yield folder
    windows = os.path.join(environment, "Lib", "site-packages")
    if os.path.isdir(windows):
        yield windows


def requiring_folder(folder: str) -> str | None:
    """The nearest folder from *folder* upwards whose files require transformers; where none does, the project's root.

    Looks up to the root of the repository; outside of any, up to a folder with a project file, or to the home folder.
    """
    return nearest_requirement(folder) or project_root(folder)


@cache
def nearest_requirement(folder: str) -> str | None:
    """The nearest folder that says something about transformers."""
    if says_something(folder):
        return folder
    parent = os.path.dirname(folder)
    if parent == folder or os.path.exists(os.path.join(folder, ".git")):
        return None
    outside = not in_repository(folder)
    if outside and (folder == project_root(folder) or folder == os.path.expanduser("~")):
        return None
    return nearest_requirement(parent)


def says_something(folder: str) -> bool:
    """True where the files of a folder declare or lock a transformers."""
    locks = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
    if any(mentions_transformers(os.path.join(folder, name)) for name in locks):
        return True
    try:
        return next(declarations(folder), None) is not None
    except UsageProblem:
        return True


@cache
def in_repository(folder: str) -> bool:
    """True where a folder from *folder* upwards is the root of a git repository."""
    parent = os.path.dirname(folder)
    return os.path.exists(os.path.join(folder, ".git")) or (parent != folder and in_repository(parent))


def project_requirement(root: str) -> Requirement | None:
    """What the files of a project say about transformers; None where they do not mention it.

    A declared range (pyproject.toml, setup.cfg, setup.py, requirements files) comes first, since it is a promise to
    users; a lock file decides where the declaration allows any release, or there is none.
    """
    declared = next((found for found in declarations(root)), None)
    if declared is not None and declared.specifier:
        return declared
    return next(locked(root), declared)


def declarations(root: str) -> Iterator[Requirement]:
    """Declared requirements, the weightiest first."""
    path = os.path.join(root, "pyproject.toml")
    if mentions_transformers(path):
        found = list(from_pyproject(read_toml(path)))
        yield from (Requirement(specifier, "pyproject.toml") for specifier in sorted(found, key=lambda item: not item))
    path = os.path.join(root, "setup.cfg")
    if mentions_transformers(path):
        yield from (Requirement(specifier, "setup.cfg") for specifier in from_setup_cfg(path))
    path = os.path.join(root, "setup.py")
    if mentions_transformers(path):
        yield from (Requirement(specifier, "setup.py") for specifier in from_setup_py(path))
    for name in requirement_files(root):
        with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
            for line in file:
                if (specifier := specifier_in(line)) is not None:
                    yield Requirement(specifier, name)


def requirement_files(root: str) -> list[str]:
    """``requirements*.txt`` and ``requirements/*.txt``, the plainest name first."""
    names = []
    for folder in ("", "requirements"):
        try:
            listed = os.listdir(os.path.join(root, folder))
        except OSError:
            continue
        for name in listed:
            if name.endswith((".txt", ".in")) and (folder or name.startswith("requirements")):
                shown = f"{folder}/{name}" if folder else name
                if mentions_transformers(os.path.join(root, folder, name)):
                    names.append(shown)
    return sorted(names, key=lambda name: (len(name), name))


def mentions_transformers(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"transformers" in file.read()
    except OSError:
        return False


def specifier_in(line: str) -> str | None:
    """The version specifier of a requirement line for transformers; None where it is about something else."""
    match = REQUIREMENT.match(line)
    if match is None:
        return None
    specifier = match["spec"].strip("() ")
    return specifier if not specifier or specifier[0] in "<>=!~^" else None


def first_specifiers(lines: Iterable[Any]) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str) and (specifier := specifier_in(line)) is not None:
            yield specifier


def table(container: Any, *keys: str) -> Mapping[str, Any]:
    """A table inside tables, empty where there is none."""
    for key in keys:
        container = container.get(key) if isinstance(container, dict) else None
    return container if isinstance(container, dict) else {}


def from_pyproject(document: Mapping[str, Any]) -> Iterator[str]:
    """Specifiers in the places of a pyproject.toml that name dependencies: own ones, poetry's, extras, groups."""
    own = table(document, "project").get("dependencies")
    yield from first_specifiers(own if isinstance(own, list) else ())
    poetry = table(document, "tool", "poetry")
    yield from poetry_specifiers(table(poetry, "dependencies"))
    for extra in table(document, "project", "optional-dependencies").values():
        yield from first_specifiers(extra if isinstance(extra, list) else ())
    for group in table(poetry, "group").values():
        yield from poetry_specifiers(table(group, "dependencies"))
    yield from poetry_specifiers(table(poetry, "dev-dependencies"))
    for group in table(document, "dependency-groups").values():
        yield from first_specifiers(group if isinstance(group, list) else ())


def poetry_specifiers(dependencies: Mapping[str, Any]) -> Iterator[str]:
    value = dependencies.get("transformers")
    if isinstance(value, dict):
        value = value.get("version")
    if isinstance(value, str):
        yield "" if value.strip() == "*" else value


def from_setup_cfg(path: str) -> Iterator[str]:
    from configparser import ConfigParser, Error

    parser = ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except (Error, UnicodeDecodeError):
        return
    if parser.has_option("options", "install_requires"):
        yield from first_specifiers(parser.get("options", "install_requires").splitlines())
    if parser.has_section("options.extras_require"):
        for _, lines in parser.items("options.extras_require"):
            yield from first_specifiers(lines.splitlines())


def from_setup_py(path: str) -> Iterator[str]:
    """Requirement strings anywhere in a setup.py: it is read, never run."""
    import ast
    import warnings

    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            specifier = specifier_in(node.value)
            if specifier:
                yield specifier


def locked(root: str) -> Iterator[Requirement]:
    """The release in the project's lock file."""
    for name in ("uv.lock", "poetry.lock", "pdm.lock"):
        path = os.path.join(root, name)
        if mentions_transformers(path):
            packages = read_toml(path).get("package")
            for package in packages if isinstance(packages, list) else ():
                if isinstance(package, dict) and package.get("name") == "transformers" and "version" in package:
                    yield Requirement(f"=={package['version']}", name, exact=True)
    path = os.path.join(root, "Pipfile.lock")
    if mentions_transformers(path):
        import json

        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except (OSError, ValueError):
            return
        version = table(document, "default", "transformers").get("version")
        if isinstance(version, str):
            yield Requirement(version, "Pipfile.lock", exact=True)
