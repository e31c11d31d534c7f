"""What `kvlint explain --project` prints: what the linked files of a project say together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvlint.engine.index import Index
from kvlint.engine.link import Project
from kvlint.errors import UsageProblem
from kvlint.roots import code_root

ENTRIES = ("forward", "prepare_inputs_for_generation", "_reorder_cache", "update", "reorder_cache", "get_seq_length")
"""Methods that the library calls on objects of classes that derive from its own."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A line of a file of the project; *path* is relative to its root, with ``/``."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def as_json(self) -> dict[str, object]:
        return {"path": self.path, "line": self.line}


@dataclass(frozen=True, slots=True)
class KnownClass:
    """A class of the project that has ancestors in the library. *own*: only code of the project calls its methods."""

    name: str
    at: Spot
    through: tuple[str, ...]
    library: tuple[str, ...]
    own: bool


@dataclass(frozen=True, slots=True)
class KnownPlace:
    """A function or class of the project that stands where the library calls it, and the line that puts it there."""

    target: str
    value: str
    defined: Spot
    put: Spot
    by_library: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of the project that the library calls, with its parameters, and why it does."""

    name: str
    at: Spot
    parameters: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Linked:
    """All that is known of a project: *files* were read, *clusters* are those that are walked together."""

    root: str
    files: int
    classes: tuple[KnownClass, ...]
    places: tuple[KnownPlace, ...]
    entries: tuple[Entry, ...]
    shims: tuple[str, ...]
    clusters: tuple[tuple[str, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "root": self.root,
            "files": self.files,
            "classes": [
                {
                    "name": item.name,
                    **item.at.as_json(),
                    "through": list(item.through),
                    "library": list(item.library),
                    "called_by_project_only": item.own,
                }
                for item in self.classes
            ],
            "places": [
                {
                    "target": item.target,
                    "value": item.value,
                    "defined": item.defined.as_json(),
                    "put": item.put.as_json(),
                    "called_by_library": item.by_library,
                }
                for item in self.places
            ],
            "entries": [
                {"name": item.name, **item.at.as_json(), "parameters": list(item.parameters), "why": item.why}
                for item in self.entries
            ],
            "shims": list(self.shims),
            "clusters": [list(item) for item in self.clusters],
        }


def explain_project(path: str) -> Linked:
    """What is known of the project that the file or folder *path* belongs to. Raises UsageProblem where there is none."""
    absolute = os.path.abspath(path)
    if not os.path.exists(absolute):
        raise UsageProblem(f"no such file or folder: {path}")
    root = code_root(absolute if os.path.isdir(absolute) else os.path.dirname(absolute))
    return linked(Index().project(root))


def linked(project: Project) -> Linked:
    """The outside view of a project's units."""
    around = {cluster for cluster in project.clusters.values() if len(cluster) > 1}
    return Linked(
        project.root,
        len(project.units),
        tuple(classes(project)),
        tuple(places(project)),
        tuple(entries(project)),
        project.shims,
        tuple(sorted(tuple(spot(project, path, 0).path for path in cluster) for cluster in around)),
    )


def spot(project: Project, path: str, line: int) -> Spot:
    return Spot(os.path.relpath(path, project.root).replace(os.sep, "/"), line)


def classes(project: Project) -> Iterator[KnownClass]:
    """The classes with ancestors in the library, by place."""
    for (path, name), head in sorted(project.classes.items(), key=lambda item: (item[0][0], item[1].line)):
        own, library = project.ancestors(path, name)
        if library:
            through = tuple(cls for _, cls in own[1:])
            called = (path, name) in project.own_classes
            yield KnownClass(name, spot(project, path, head.line), through, tuple(library), called)


def places(project: Project) -> Iterator[KnownPlace]:
    """Who is put where."""
    for item in project.places:
        target = f"{item.target}.{item.member}" if item.member else item.target
        defined, put = spot(project, item.value[0], item.line), spot(project, *item.at)
        yield KnownPlace(target, item.value[1], defined, put, item.by_library)


def entries(project: Project) -> Iterator[Entry]:
    """The functions that the library calls: methods of classes derived from its own, and what is put in its places."""
    found: dict[tuple[str, str], Entry] = {}
    for (path, name), _ in sorted(project.classes.items()):
        _, library = project.ancestors(path, name)
        if not library or (path, name) in project.own_classes:
            continue
        for member in ENTRIES:
            if (path, f"{name}.{member}") in project.functions:
                add_entry(project, found, (path, f"{name}.{member}"), f"derives from {', '.join(library)}")
    for place in project.places:
        target = f"{place.target}.{place.member}" if place.member else place.target
        path, name = place.value
        own = place.value in project.functions
        method: tuple[str, str] | None = (path, name) if own else project.method(path, name, "forward")
        if method is not None and place.by_library:
            add_entry(project, found, method, f"stands for {target} ({spot(project, *place.at)})")
    yield from sorted(found.values(), key=lambda item: (item.at.path, item.at.line))


def add_entry(project: Project, found: dict[tuple[str, str], Entry], key: tuple[str, str], why: str) -> None:
    head = project.functions[key]
    if key in found:
        why = f"{found[key].why}; {why}"
    found[key] = Entry(key[1], spot(project, key[0], head.line), head.parameters, why)


def as_text(known: Linked) -> str:
    """The same for people."""
    lines = [f"{known.root}: {known.files:,} files that say something of caches, models or transformers"]
    lines += section("classes of the library's kind", (class_line(item) for item in known.classes))
    lines += section("places (who is put where)", (place_line(item) for item in known.places))
    lines += section(
        "entries (what the library calls)",
        (f"{item.at}: {item.name}({', '.join(item.parameters)}): {item.why}" for item in known.entries),
    )
    lines += section("names put on the library's caches", known.shims)
    lines += section("files walked together", (", ".join(item) for item in known.clusters))
    return "\n".join(lines) + "\n"


def class_line(item: KnownClass) -> str:
    through = f" through {', '.join(item.through)}" if item.through else ""
    own = "; only code of the project calls its methods" if item.own else ""
    return f"{item.at}: {item.name} derives from {', '.join(item.library)}{through}{own}"


def place_line(item: KnownPlace) -> str:
    caller = "the library calls it" if item.by_library else "only code of the project calls it"
    return f"{item.put}: {item.target} = {item.value} (defined at {item.defined}; {caller})"


def section(title: str, lines: Any) -> list[str]:
    """A heading with its lines; "none" where there are none."""
    listed = [f"  {line}" for line in lines]
    return [f"{title}:", *(listed or ["  none"])]
