"""Names of transformers that some release lacks: what the screen looks for in a file's bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from kvlint.analysis.library import COMMON_CLASSES, library_of
from kvlint.analysis.values import CACHE, QUANTIZED_CACHE
from kvlint.behaviour import tables
from kvlint.checks.words import CACHE_WORDS
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.sieve import MEMBER, Groups
from kvlint.timeline import Timeline

NAMED_MEMBERS = (*COMMON_CLASSES, QUANTIZED_CACHE)
"""Classes whose missing members are looked for one by one, the base class first."""
TELLING = re.compile(r"(?i)cache|mask|past|quant|layer|processor")
"""Names that hardly any other package has."""


def missing_names(
    timeline: Timeline, wanted: Callable[[str], bool]
) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
    """Known names that are *wanted* (by their own name, or that of what they stand for) and that some release lacks,
    by the module that has them; its name is in the file, too, unless the top level has the name."""
    telling: dict[str, dict[str, ReleaseSet]] = {}
    common: dict[str, dict[ReleaseSet, list[str]]] = {}
    for name in timeline.symbols():
        if wanted(name) or wanted(timeline.canonical(name) or name):
            gone = timeline.all - timeline.importable(name)
            if gone:
                module, _, short = name.rpartition(".")
                of_model = module.startswith("transformers.models.")
                last = r"models[.\w]*|modeling_\w+" if of_model else module.rpartition(".")[2]
                if last == "transformers" or (TELLING.search(short) and not of_model):
                    found = telling.setdefault(last, {})
                    found[short] = found.get(short, NO_RELEASE) | gone
                else:
                    common.setdefault(last, {}).setdefault(gone, []).append(short)
    for last in sorted({*telling, *common}):
        words = dict(telling.get(last, {}))
        words |= {imported(last, names): gone for gone, names in common.get(last, {}).items()}
        yield () if last == "transformers" else ((f"~{last}",) if "|" in last else (last,),), words


def imported(module: str, names: list[str]) -> str:
    """A pattern for names that other packages have too: taken from this module."""
    any_name = "|".join(sorted(set(names)))
    return rf"~(?:{module})\s+import\s+(?:\([^)]*|[^\n]*)\b(?:{any_name})\b|(?:{module})\.(?:{any_name})\b"


def symbols_in(timeline: Timeline, modules: tuple[str, ...]) -> list[str]:
    """Known names that stand for something in one of the modules (given with a dot at the end)."""
    return [name for name in timeline.symbols() if (timeline.canonical(name) or name).startswith(modules)]


def missing_member_ways(timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
    """Members of caches that some release lacks or that do not work there: of any cache, and of the common classes,
    whose name (or that of an attribute which holds one) is in the file then. The name of a rare class is enough."""
    library = library_of(timeline)
    classes = sorted({timeline.canonical(name) or name for name in timeline.symbols() if timeline.is_cache_class(name)})
    broken = tables()["broken"]
    names = sorted(
        {member for cls in classes for member in timeline.members(cls)}
        | {member for row in broken for member in row["members"]}
    )
    known: dict[str, ReleaseSet] = {}
    for cls in NAMED_MEMBERS:
        found: dict[str, ReleaseSet] = {}
        for name in names:
            lives = library.member(cls, name)
            if cls != CACHE:
                lives |= library.member(CACHE, name) - timeline.importable(cls)
            gone = timeline.all - lives if lives else NO_RELEASE
            for row in broken:
                if name in row["members"] and ("*" in row["classes"] or cls.rpartition(".")[2] in row["classes"]):
                    gone |= timeline.matching(row["releases"])
            if gone - known.get(name, NO_RELEASE):
                found[name] = gone
        if cls == CACHE:
            known = dict(found)
            found["has_previous_state"] = timeline.all
        if found:
            yield (CACHE_WORDS, class_words(cls)), {MEMBER + name: gone for name, gone in found.items()}
    rare = {cls.rpartition(".")[2] for cls in classes if cls not in NAMED_MEMBERS}
    yield (), dict.fromkeys(rare, timeline.all)


def class_words(cls: str) -> tuple[str, ...]:
    """Words of which one is in a file where a cache of this class can be told."""
    short = cls.rpartition(".")[2]
    if cls == CACHE:
        return CACHE_WORDS
    return (short, "attention_cache") if short == "DynamicCache" else (short,)
