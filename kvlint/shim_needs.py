"""What a shim has to bring for the files that it is made for: which members their stale uses want, and what is left."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.analysis.values import CACHE, DYNAMIC_CACHE, ENCODER_DECODER_CACHE, STATIC_CACHE, LayerPair, of_type
from kvlint.checks.kv210_max_length_sentinel import nodes_asked_for_none
from kvlint.checks.kv305_unfilled_cache_parameter import known_parameter, parameter_span, unfilled
from kvlint.checks.library_calls import CACHE_PARAMETERS, library_called
from kvlint.checks.receivers import known_cache, missing_members, receiver
from kvlint.checks.symbols import references
from kvlint.findings import Category, Finding

if TYPE_CHECKING:
    from kvlint.analysis.facts import Facts
    from kvlint.discovery import FoundFile
    from kvlint.run import Options
    from kvlint.targets import Target

ITERATED = {CACHE: "DynamicCache", DYNAMIC_CACHE: "DynamicCache", ENCODER_DECODER_CACHE: "EncoderDecoderCache"}
CROPPED = {CACHE: "Cache", DYNAMIC_CACHE: "Cache", ENCODER_DECODER_CACHE: "EncoderDecoderCache"}
SHOWN_MODULES = ("transformers", "transformers.cache_utils", "transformers.modeling_attn_mask_utils")
"""Where a shim can put names."""
REORDER = "_reorder_cache"
NONE = ":None"
"""Marks the variant of a member that answers None where there is no bound."""


@dataclass(frozen=True, slots=True)
class Want:
    """A stale use that a shim can serve: the members it wants, or the method that is to be adapted."""

    shown: str
    line: int
    keys: tuple[str, ...] = ()
    method: tuple[str, str] | None = None
    """Class and method."""
    late: bool = False
    """The class is no model of its own: it can only be adapted once it exists."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A stale use that no shim can serve."""

    shown: str
    line: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Needs:
    """What all files want together, and what is left of them; *files* are those that have a stale use."""

    wants: tuple[Want, ...]
    leftovers: tuple[Leftover, ...]
    files: tuple[str, ...]
    problems: tuple[str, ...] = ()


def needs_of(files: Sequence[FoundFile], options: Options, target: Target, known: frozenset[str]) -> Needs:
    """Analyses *files* for the releases of *target*; *known* are the keys of the members that a shim can bring."""
    from kvlint.analysis import analyse
    from kvlint.diagnostics import Placer
    from kvlint.linter import look_at, project_of
    from kvlint.run import Candidate, Targets, make_job, screen
    from kvlint.timeline import the_timeline

    timeline = the_timeline()
    targets = Targets(options)
    wants: list[Want] = []
    leftovers: list[Leftover] = []
    names: list[str] = []
    problems: list[str] = []
    for file in files:
        candidate = screen(file, options, targets, None)
        if not isinstance(candidate, Candidate):
            problems += [f"{candidate.shown}: {item.message}" for item in candidate.diagnostics] if candidate else []
            continue
        job = make_job(candidate, options, target.releases)
        path = Path(job.path)
        look = look_at(job, path.read_bytes(), timeline)
        problems += [str(fault) for fault in look.faults]
        for item in look.regions:
            found = [one for one in item.kept if one.category in (Category.BREAKS, Category.SILENT)]
            if not found:
                problems += [f"{job.shown}: {one.message}" for one in item.kept if one.code == "KV000"]
                continue
            facts = analyse(item.region, path, target.releases, project_of(path.parent), timeline)
            served = serving(facts, known)
            placer = Placer.of(job.shown, look.source, item.region, timeline.ranges)
            names.append(os.path.basename(job.path))
            for one in found:
                line = placer.locate(one.start)[0]
                want = served.get((one.start, one.end)) or by_rule(facts, one, known)
                if want is None:
                    leftovers.append(Leftover(job.shown, line, one.code, one.message))
                else:
                    wants.append(Want(job.shown, line, want.keys, want.method, want.late))
    return Needs(tuple(wants), tuple(leftovers), tuple(sorted(set(names))), tuple(problems))


def by_rule(facts: Facts, finding: Finding, known: frozenset[str]) -> Want | None:
    """What a finding wants that its rule alone tells."""
    if finding.code == "KV204" and "Cache.__getitem__" in known:
        return Want("", 0, ("Cache.__getitem__",))
    return None


def serving(facts: Facts, known: frozenset[str]) -> dict[tuple[int, int], Want]:
    """What the uses of a region want, by their place in the text."""
    found: dict[tuple[int, int], Want] = {}
    for span, keys in (*members(facts, known), *changed_members(facts), *names_of_modules(facts, known)):
        if keys and all(key in known for key in keys):
            found.setdefault(span, Want("", 0, keys))
    for item in library_called(facts):
        parameter = known_parameter(item.info)
        owner = item.info.owner
        if parameter is None or owner is None or item.elsewhere or not unfilled(facts, item):
            continue
        if parameter.arg in CACHE_PARAMETERS:
            late = item.role not in ("model", "prepare")
            found[parameter_span(facts, parameter)] = Want("", 0, (), (owner.name, item.info.name), late)
    for use in facts.functions:
        if use.info.name == REORDER and use.info.owner is not None:
            want = Want("", 0, (), (use.info.owner.name, REORDER))
            found.update(dict.fromkeys(spans_of(facts, use.info.node), want))
    return found


def spans_of(facts: Facts, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, int]]:
    """A function, and its name."""
    start, end = facts.span(node)
    yield start, end
    header = facts.text.index(node.name, start)
    yield header, header + len(node.name)


Served = tuple[tuple[int, int], tuple[str, ...]]


def members(facts: Facts, known: frozenset[str]) -> Iterator[Served]:
    """Members that are missing, read or assigned."""
    asked = nodes_asked_for_none(facts)
    for kind in ("method", "attribute"):
        for missing in missing_members(facts, kind):
            name = missing.use.name
            if missing.use.call is not None and id(missing.use.call) in asked and f"Cache.{name}{NONE}" in known:
                name += NONE
            yield facts.span(missing.use.node), member_keys(missing.cache.cls, name, known)
    for use in facts.attributes:
        if use.action == "store" and use.name in ("key_cache", "value_cache", "seen_tokens", "_seen_tokens"):
            cache = receiver(facts, use)
            if cache is not None:
                yield facts.span(use.node), member_keys(cache.cls, use.name, known)


def member_keys(cls: str, name: str, known: frozenset[str]) -> tuple[str, ...]:
    """The keys of one member of a cache class; of a cache that may be of any class, those of all classes."""
    short = cls.rpartition(".")[2]
    if f"Cache.{name}" in known:
        return (f"Cache.{name}",)
    if cls == CACHE:
        return tuple(sorted(key for key in known if key.rpartition(".")[2] == name and key[0].isupper()))
    return (f"{short}.{name}",)


def changed_members(facts: Facts) -> Iterator[Served]:
    """Members that exist and mean something else."""
    asked = nodes_asked_for_none(facts)
    for use in facts.attributes:
        if use.call is None:
            continue
        cache = known_cache(use.value)
        if use.name == "crop" and cache is not None and cache.cls in CROPPED:
            yield facts.span(use.call), (f"{CROPPED[cache.cls]}.crop",)
        elif use.name == "get_max_length" and id(use.call) in asked and cache is not None and cache.cls != STATIC_CACHE:
            yield facts.span(use.call), ("Cache.get_max_length",)
    for iteration in facts.iterations:
        cache = known_cache(iteration.value)
        if cache is None:
            pair = next(iter(of_type(iteration.value, LayerPair)), None)
            cache = pair.cache if pair is not None else None
        if cache is not None and cache.cls in ITERATED:
            yield facts.span(iteration.node), (f"{ITERATED[cache.cls]}.__iter__",)


def names_of_modules(facts: Facts, known: frozenset[str]) -> Iterator[Served]:
    """Classes and functions of modules."""
    for reference in references(facts):
        qualified = reference.qualified
        if qualified in SHOWN_MODULES:
            inside = tuple(sorted(key for key in known if f"transformers.{key}".startswith(f"{qualified}.")))
            yield reference.span, inside
        elif qualified.rpartition(".")[0] in SHOWN_MODULES:
            canonical = facts.timeline.canonical(qualified) or qualified
            yield reference.span, (canonical.removeprefix("transformers."),)


def places(wants: Iterable[Want]) -> dict[str, list[str]]:
    """Each member with the places that want it, in order: ``modeling_x.py:12``."""
    found: dict[str, list[str]] = {}
    for want in wants:
        for key in want.keys:
            place = f"{os.path.basename(want.shown)}:{want.line}"
            if place not in found.setdefault(key, []):
                found[key].append(place)
    return dict(sorted(found.items()))
