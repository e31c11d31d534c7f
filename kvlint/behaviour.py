"""The curated half of what kvlint knows: changes of meaning, replacements, and their evidence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvlint.releases import ReleaseSet
from kvlint.timeline import Timeline, packaged_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class ClassReplacement:
    """What to write instead of a cache class that is gone. *use* is empty where nothing replaces it."""

    use: str
    needs: str
    drop: tuple[str, ...]
    add: str
    hint: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A change of behaviour, and the releases on which it holds."""

    releases: str
    effect: str
    says: str
    evidence: str


@lru_cache(maxsize=1)
def tables() -> Mapping[str, Any]:
    """The content of ``behaviour.toml``."""
    return tomllib.loads(packaged_file().with_name("behaviour.toml").read_text(encoding="utf-8"))


def class_replacement(qualified: str) -> ClassReplacement | None:
    """The replacement of a cache class, by its canonical name; caches of single models share one."""
    table = tables()["class"]
    row = table.get(qualified)
    if row is None and qualified.startswith("transformers.models."):
        row = table["*"]
    if row is None:
        return None
    return ClassReplacement(
        row.get("use", ""),
        row.get("needs", ""),
        tuple(row.get("drop", ())),
        row.get("add", ""),
        row["hint"],
        row["evidence"],
    )


def fact(name: str) -> Fact:
    """A fact by its id. Raises KeyError for an id that the file does not have."""
    row = tables()["fact"][name]
    return Fact(row["releases"], row["effect"], row["says"], row["evidence"])


def releases_of(timeline: Timeline, name: str) -> ReleaseSet:
    """The releases on which a fact holds."""
    return timeline.matching(fact(name).releases)
