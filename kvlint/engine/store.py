"""Units, and what a project says about its files, kept on disk between runs.

Both hold for contents, never for dates. They lie beside the result cache as JSON; a file that cannot be read, or that
another kvlint wrote, is as good as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from kvlint.engine.units import ClassHead, FunctionHead, Import, Place, Put, Surroundings, Unit
from kvlint.fingerprint import digest, own_fingerprint
from kvlint.writing import write_atomically

Units = dict[str, tuple[str, Unit | None]]
"""By path: the digest of a file's content and its unit, None where it has none."""


@dataclass(frozen=True, slots=True)
class Store:
    """What is kept for one project in a *folder*."""

    folder: str
    root: str

    def units(self) -> Units:
        """The units that were kept; empty where none can be read."""
        try:
            rows = self._read("units")
            return {path: (name, unit_of(row) if row is not None else None) for path, (name, row) in rows.items()}
        except (TypeError, ValueError, AttributeError, IndexError, KeyError):
            return {}

    def surroundings(self, state: str) -> dict[str, Surroundings]:
        """What was kept about the files of the project in this state (`state_of`); empty for another one."""
        try:
            stored = self._read("surroundings")
            if stored.get("state") != state:
                return {}
            return {path: surroundings_of(row) for path, row in stored["files"].items()}
        except (TypeError, ValueError, AttributeError, IndexError, KeyError):
            return {}

    def keep(self, units: Units, state: str, surroundings: Mapping[str, Surroundings]) -> None:
        """Writes both; says nothing where the folder cannot be written."""
        self._write("units", {path: [name, unit and row_of(unit)] for path, (name, unit) in units.items()})
        files = {path: plain(item) for path, item in surroundings.items()}
        self._write("surroundings", {"state": state, "files": files})

    def _name(self, kind: str) -> str:
        return os.path.join(self.folder, f"{digest(self.root.encode('utf-8', 'surrogateescape'))}.{kind}.json")

    def _read(self, kind: str) -> dict[str, Any]:
        try:
            with open(self._name(kind), "rb") as file:
                stored = json.loads(file.read())
        except (OSError, ValueError, RecursionError):
            return {}
        known = isinstance(stored, dict) and stored.get("kvlint") == own_fingerprint()
        content = stored.get("content") if known else None
        return content if isinstance(content, dict) else {}

    def _write(self, kind: str, content: dict[str, Any]) -> None:
        text = json.dumps({"kvlint": own_fingerprint(), "content": content}, separators=(",", ":"))
        try:
            os.makedirs(self.folder, exist_ok=True)
            write_atomically(self._name(kind), text.encode("utf-8", "surrogatepass"))
        except OSError:
            pass


def state_of(contents: Mapping[str, bytes]) -> str:
    """A name for the contents of all files of a project."""
    words = (f"{path} {digest(data)}" for path, data in sorted(contents.items()))
    return digest("\n".join(words).encode("utf-8", "surrogateescape"))


def row_of(unit: Unit) -> list[Any]:
    """A unit as lists, strings and numbers."""
    return [sorted(value) if isinstance(value, frozenset) else plain(value) for value in row(unit)]


ROWS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(item.name for item in fields(kind)))
    for kind in (Unit, FunctionHead, ClassHead, Import, Put, Place, Surroundings)
}


def row(item: Any) -> tuple[Any, ...]:
    """The fields of one of these."""
    return ROWS[type(item)](item)


def plain(value: Any) -> Any:
    """A value with the rows of what it holds; ``dataclasses.astuple`` takes ten times as long."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return plain(row(value)) if type(value) in ROWS else value


def unit_of(row: list[Any]) -> Unit:
    """The reverse of `row_of`."""
    (
        path,
        functions,
        classes,
        imports,
        stars,
        aliases,
        puts,
        called,
        given,
        size,
        keywords,
        taken,
        surface,
        own_format,
    ) = row
    return Unit(
        path,
        tuple(FunctionHead(*map(frozen, item)) for item in functions),
        tuple(ClassHead(*map(frozen, item)) for item in classes),
        tuple((bound, Import(*item)) for bound, item in imports),
        tuple(Import(*item) for item in stars),
        frozen(aliases),
        tuple(Put(*map(frozen, item)) for item in puts),
        frozenset(called),
        frozenset(given),
        size,
        frozenset(keywords),
        frozenset(taken),
        surface,
        own_format,
    )


def surroundings_of(row: list[Any]) -> Surroundings:
    """The reverse of ``dataclasses.astuple`` for `Surroundings`."""
    around, places, *rest = row
    return Surroundings(frozen(around), tuple(Place(*map(frozen, item)) for item in places), *map(frozen, rest))


def frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
