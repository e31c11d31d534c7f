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


def helper_hint(qualified: str) -> str:
    """What to do instead of a helper that is gone; the hint of its module where it has none of its own."""
    table = tables()["helper"]
    name = qualified
    while name:
        if name in table:
            return str(table[name]["hint"])
        short = name.rpartition(".")[2]
        if short in table:
            return str(table[short]["hint"])
        name = name.rpartition(".")[0]
    return ""


@dataclass(frozen=True, slots=True)
class BrokenMember:
    """A member that a class has by inheritance and that does not work there."""

    releases: str
    effect: str
    outcome: str
    says: str
    hint: str


def method_hint(name: str) -> str:
    """What to write instead of a member of a cache that is gone; "name=" for an assignment to it."""
    row = tables()["member"].get(name)
    return str(row["hint"]) if row is not None else ""


def broken_members(cls: str, name: str) -> tuple[BrokenMember, ...]:
    """Rows for the member *name* of the class with canonical name *cls*."""
    short = cls.rpartition(".")[2]
    return tuple(
        BrokenMember(row["releases"], row["effect"], row["outcome"], row["says"], row["hint"])
        for row in tables()["broken"]
        if name in row["members"] and ("*" in row["classes"] or short in row["classes"])
    )


@lru_cache(maxsize=1)
def layer_past_families() -> Mapping[str, str]:
    """Families whose layers call the cache ``layer_past``, and the releases on which it is a cache object."""
    return {family: releases for releases, names in tables()["layer_past_cache"].items() for family in names}
