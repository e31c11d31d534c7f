"""Where a cache of transformers is constructed: by a call, by ``partial``, by ``super().__init__`` of a subclass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import CACHE, Member, SuperObject, Symbol, of_type
from kvlint.checks.receivers import cache_class
from kvlint.releases import ReleaseSet

INIT = ".__init__"
PARTIAL = "functools.partial"
SEEN_BY = (
    r"Cache[\"']?\)?\s*\(|Cache\s+as\b|=\s*[\w.]*Cache\b(?!\s*[\w(])|Cache\.__init__|"
    r"class\s+\w+\(\s*[\w.]*Cache\b|partial\(\s*[\w.]*Cache\b"
)
"""A pattern that every text with a construction matches."""


@dataclass(frozen=True, slots=True)
class Construction:
    """One call that brings arguments to the constructor of *cls*."""

    use: CallUse
    """The call; where the first argument is none of the constructor's, one without it."""
    cls: str
    releases: ReleaseSet
    whole: bool = True
    """The call is written as the constructor takes it: fixes of calls apply. False for ``partial(StaticCache, ...)``."""


def constructions(facts: Facts) -> Iterator[Construction]:
    """Every construction of a cache class of transformers in the region."""
    for use in facts.calls:
        for atom in use.callee:
            if isinstance(atom, Symbol):
                yield from _of_symbol(facts, use, atom)
            elif isinstance(atom, Member) and atom.name == "__init__" and isinstance(atom.of, SuperObject):
                cls = base_class(facts, atom.of.info)
                if cls is not None and len(use.callee) == 1:
                    yield Construction(use, cls, use.place.releases & atom.when)


def _of_symbol(facts: Facts, use: CallUse, atom: Symbol) -> Iterator[Construction]:
    cls = cache_class(facts, atom.name)
    if cls is not None:
        yield Construction(use, cls, use.place.releases & atom.when & facts.timeline.importable(atom.name))
    elif atom.name.endswith(INIT) and use.arguments and not use.starred:
        name = atom.name.removesuffix(INIT)
        cls = cache_class(facts, name)
        if cls is not None and cls != CACHE:
            in_force = use.place.releases & atom.when & facts.timeline.importable(name)
            yield Construction(behind_first(use), cls, in_force, False)
    elif atom.name == PARTIAL and use.arguments and not use.starred:
        for made in of_type(use.arguments[0], Symbol):
            cls = cache_class(facts, made.name)
            if cls is not None:
                in_force = use.place.releases & made.when & facts.timeline.importable(made.name)
                yield Construction(behind_first(use), cls, in_force, False)


def behind_first(use: CallUse) -> CallUse:
    """The call without its first argument."""
    node = ast.Call(use.node.args[0], use.node.args[1:], use.node.keywords)
    return replace(use, node=ast.copy_location(node, use.node), arguments=use.arguments[1:])


def base_class(facts: Facts, info: ClassInfo) -> str | None:
    """The cache class that ``super().__init__`` of *info* initialises; None for ``Cache`` itself, and where it is not known."""
    if len(info.bases) != 1 or any("__init__" in other.methods for other in info.ancestors()[1:]):
        return None
    found = [cache_class(facts, base) for base in info.foreign_bases()]
    return found[0] if len(found) == 1 and found[0] != CACHE else None
