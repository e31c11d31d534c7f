"""What the contracts of transformers say about its parts: what they are handed, what they return, what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvlint.analysis.facts import Facts
from kvlint.behaviour import releases_of
from kvlint.contracts import contracts_of
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import CACHE_KEYWORDS

CACHES = frozenset(CACHE_KEYWORDS) - {"use_cache", "cache_position"}
"""Names under which the library's own code holds a cache, or a past."""


def returns_alone(facts: Facts, cls: str) -> ReleaseSet:
    """Releases on which ``forward`` of the class returns one tensor, in no tuple."""
    return _on_all(facts, cls, _is_alone)


def returns_two(facts: Facts, cls: str) -> ReleaseSet:
    """Releases on which ``forward`` of the class returns a tuple of two, whatever it is asked for."""
    return _on_all(facts, cls, lambda text: _length(text) == 2)


def called_by_these_alone(facts: Facts, cls: str, callers: frozenset[str]) -> bool:
    """True where, on all releases in force, only these classes call ``forward`` of the class (a part of theirs)."""
    found = {
        call.caller.rpartition(".")[0]
        for rs, call in contracts_of(facts.timeline.releases).callers(cls)
        if rs & facts.target
    }
    return bool(found) and found <= callers


def unpack_two(facts: Facts, names: Iterable[str]) -> ReleaseSet:
    """Releases on which whatever calls an attention module of one of these classes unpacks two outputs.

    A name is that of a class of transformers, or of a dict of such classes in a modeling module. On releases that do
    not have the class the other attention classes of its module tell, which took its place; where no name is known,
    every family does what the most do.
    """
    contracts = contracts_of(facts.timeline.releases)
    found, asked = NO_RELEASE, False
    for name in names:
        module = name.rpartition(".")[0]
        around = contracts.classes(module, "attention") if module.startswith("transformers.models.") else ()
        if around or contracts.kind(name):
            asked = True
            found |= _unpacked(facts, name, around)
    return found if asked else releases_of(facts.timeline, "attention-two-outputs")


def _unpacked(facts: Facts, cls: str, around: Iterable[str]) -> ReleaseSet:
    contracts = contracts_of(facts.timeline.releases)
    two, others = _callers(facts, cls)
    left = contracts.known - contracts.defines(cls)
    for other in around:
        there = _callers(facts, other)
        two |= there[0] & left
        others |= there[1] & left
    return two - others


def _callers(facts: Facts, cls: str) -> tuple[ReleaseSet, ReleaseSet]:
    """Releases on which a caller unpacks two outputs, and those on which one takes them in another way."""
    two = others = NO_RELEASE
    for rs, use in contracts_of(facts.timeline.releases).result_use(cls):
        if use.unpacked == 2 and not use.or_more:
            two |= rs
        elif use.unpacked is not None or use.items or use.rest_from is not None:
            others |= rs
    return two, others


def cache_by_position(facts: Facts, cls: str, place: int) -> ReleaseSet:
    """Releases on which a model hands the class a cache as the argument at *place*, which has no name then."""
    found = NO_RELEASE
    for rs, call in contracts_of(facts.timeline.releases).callers(cls):
        if not call.checkpoint and place < len(call.positions) and call.positions[place].partition("[")[0] in CACHES:
            found |= rs
    return found


def layer_positions(facts: Facts, method: str, count: int) -> ReleaseSet:
    """Releases on which the library calls a method of layers of caches with so many positional arguments."""
    found = NO_RELEASE
    for rs, _ in contracts_of(facts.timeline.releases).kind_callers("cache layer", method)["positions"][str(count)]:
        found |= rs
    return found


def no_longer_called(facts: Facts, method: str) -> ReleaseSet:
    """Releases after the last one on which the library calls a method of caches or of their layers."""
    contracts = contracts_of(facts.timeline.releases)
    called = NO_RELEASE
    for kind in ("cache", "cache layer"):
        for values in contracts.kind_callers(kind, method).values():
            for dated in values.values():
                for rs, _ in dated:
                    called |= rs
    after = called.newest + 1
    return ReleaseSet(contracts.known.bits >> after << after)


def _on_all(facts: Facts, cls: str, fits: Callable[[str], bool]) -> ReleaseSet:
    good = bad = NO_RELEASE
    for rs, texts in contracts_of(facts.timeline.releases).returns(cls):
        if texts and all(map(fits, texts)):
            good |= rs
        else:
            bad |= rs
    return good - bad


def _is_alone(text: str) -> bool:
    """Whether a ``return`` gives a name that holds one value, or a sum with the residual."""
    return " + " in text or (text.isidentifier() and text != "value" and not text.endswith("outputs"))


def _length(text: str) -> int | None:
    """Length of the tuple that a ``return`` gives, None where it depends or is no tuple."""
    if not text.startswith("(") or "..." in text or "?" in text or "*" in text:
        return None
    return len(text[1:-1].split(", "))
