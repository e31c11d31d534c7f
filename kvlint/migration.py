"""The way from one release of transformers to another: what breaks on it, what is fixed, what is left, which pins move.

Two runs are behind it: one over all releases of the way, which tells what breaks when, and one for the last release alone,
whose safe fixes are those that are right there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from kvlint.compat import minor, read
from kvlint.errors import UsageProblem
from kvlint.findings import Applicability, Category
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.selection import SYNTAX_ERROR
from kvlint.targets import Requirement, declarations, locked, matched, spaced

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic
    from kvlint.jobs import Result
    from kvlint.timeline import Timeline

WRONG = (Category.BREAKS, Category.SILENT)


@dataclass(frozen=True, slots=True)
class Journey:
    """From which release to which (indices into *releases*), and what says so."""

    releases: tuple[str, ...]
    start: int
    end: int
    start_source: str
    end_source: str

    @property
    def start_text(self) -> str:
        return self.releases[self.start]

    @property
    def end_text(self) -> str:
        return self.releases[self.end]

    @property
    def target(self) -> str:
        """The way as a target range."""
        return f">={self.start_text},<={self.end_text}"


@dataclass(frozen=True, slots=True)
class Stage:
    """A minor release of the way, and what is wrong from there on to the end of it."""

    label: str
    found: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The findings of one rule."""

    code: str
    name: str
    found: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Pin:
    """A requirement of the project: the file, what it says now ("" for any release), and what it should say ("": the same)."""

    source: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class Migration:
    """All that a report tells. *before* is wrong already on the first release, *stages* come with later ones.

    *fixed* are the files that the safe fixes change, *applied* counts what these fix. *look* are findings whose fix needs
    a decision, *by_hand* those without one; their places are those after the safe fixes. *floor* is the oldest release on
    which the fixed code works, what is left aside.
    """

    journey: Journey
    before: tuple[Diagnostic, ...]
    stages: tuple[Stage, ...]
    fixed: tuple[Result, ...]
    applied: int
    look: tuple[Group, ...]
    by_hand: tuple[Group, ...]
    unread: tuple[Diagnostic, ...]
    deprecated: int
    pins: tuple[Pin, ...]
    floor: int
    files: int

    @property
    def to_do(self) -> bool:
        """Whether anything is wrong on the last release."""
        return bool(self.applied or self.look or self.by_hand)


# -- from where to where ------------------------------------------------------------------------------------------------


def journey(timeline: Timeline, root: str | None, start: str | None, end: str | None) -> Journey:
    """The way that the options, or else the files of the project at *root*, ask for.

    A project that is locked starts from the locked release, one that allows several from the oldest of them; without
    *end* it goes to the newest release. Raises UsageProblem where nothing says from where, or where the way leads back.
    """
    if start is not None:
        known = matched(start, timeline, "--from")
        first, source = known.releases.oldest, f"--from {start}"
    else:
        requirement = pinned(root) if root else None
        if requirement is None:
            raise UsageProblem(
                "nothing here says which transformers the project uses (no pyproject.toml, setup.py, setup.cfg, "
                "requirements or lock file that requires it): name it, as in kvlint migrate --from 4.46"
            )
        allowed = (
            matched(requirement.specifier, timeline, requirement.source).releases
            if requirement.specifier
            else timeline.all
        )
        first, source = allowed.oldest, f"{requirement.source}: transformers{spaced(requirement.specifier)}"
    last, end_source = len(timeline.releases) - 1, "the newest release that kvlint knows"
    if end is not None:
        last, end_source = matched(end, timeline, "--to").releases.newest, f"--to {end}"
    way = Journey(tuple(timeline.releases), first, last, source, end_source)
    if first > last:
        raise UsageProblem(
            f"transformers {way.start_text} ({source}) is newer than {way.end_text} ({end_source}): "
            "kvlint migrate goes forward; see kvlint compat for older releases"
        )
    return way


def pinned(root: str) -> Requirement | None:
    """What the project at *root* runs on: a release where one is pinned or locked, else the range that it declares."""
    declared = list(declarations(root))
    exact = next((item for item in declared if is_exact(item.specifier)), None)
    return (
        exact
        or next(locked(root), None)
        or next((item for item in declared if item.specifier), None)
        or next(iter(declared), None)
    )


def is_exact(specifier: str) -> bool:
    return specifier.startswith("==") and "," not in specifier and "*" not in specifier


# -- what the runs say --------------------------------------------------------------------------------------------------


def stages_of(found: Iterable[Diagnostic], way: Journey) -> tuple[tuple[Diagnostic, ...], tuple[Stage, ...]]:
    """What is wrong on the last release: already on the first one, and by the minor release that it came with."""
    numbers = {release: index for index, release in enumerate(way.releases)}
    dated = [(first_wrong(read(item.releases, numbers), way), item) for item in found if item.category in WRONG]
    before = tuple(item for first, item in dated if first == way.start)
    later = sorted(
        ((first, item) for first, item in dated if first is not None and first > way.start),
        key=lambda pair: (pair[0], pair[1].sort_key),
    )
    stages = tuple(
        Stage(label, tuple(item for _, item in members))
        for label, members in groupby(later, key=lambda pair: minor(way.releases[pair[0]]))
    )
    return before, stages


def first_wrong(releases: ReleaseSet, way: Journey) -> int | None:
    """The release of the way from which on to its end a use is wrong; None for one that is right at its end."""
    wrong = set(releases)
    if way.end not in wrong:
        return None
    first = way.end
    while first > way.start and first - 1 in wrong:
        first -= 1
    return first


def groups(found: Iterable[Diagnostic]) -> tuple[Group, ...]:
    """The findings by rule: what is silently wrong first, then by code."""
    by_rule: dict[tuple[str, str], list[Diagnostic]] = {}
    for item in found:
        by_rule.setdefault((item.code, item.name), []).append(item)
    made = [Group(code, name, tuple(items)) for (code, name), items in by_rule.items()]
    return tuple(sorted(made, key=lambda group: (is_loud(group), group.code)))


def is_loud(group: Group) -> bool:
    """True where no finding of the group is silently wrong."""
    return all(item.category is not Category.SILENT for item in group.found)


def needs_a_look(item: Diagnostic) -> bool:
    """True for a finding with a fix that is applied with ``--unsafe-fixes`` only."""
    return item.fix is not None and item.fix.applicability is Applicability.UNSAFE and bool(item.fix.edits)


def unread(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """What kept a file, or a part of one, from being judged."""
    return tuple(item for item in found if item.code == SYNTAX_ERROR[0])


def floor_of(found: Iterable[Diagnostic], way: Journey) -> int:
    """The oldest release from which on, to the end of the way, none of *found* is wrong; those that are wrong at its end
    are left aside: they are to be mended."""
    numbers = {release: index for index, release in enumerate(way.releases)}
    wrong = NO_RELEASE
    for item in found:
        releases = read(item.releases, numbers)
        if item.category in WRONG and way.end not in set(releases):
            wrong |= releases
    before = [index for index in wrong if way.start <= index < way.end]
    return max(before) + 1 if before else way.start


# -- pins ---------------------------------------------------------------------------------------------------------------


def pins_of(root: str | None, timeline: Timeline, way: Journey, floor: int) -> tuple[Pin, ...]:
    """The requirements of the project with what they should say at the end of the way. Raises UsageProblem for one that
    cannot be read."""
    if root is None:
        return ()
    declared: Mapping[tuple[str, str], None] = {(item.source, item.specifier): None for item in declarations(root)}
    pins = [Pin(source, spec, raised(spec, source, timeline, way, floor)) for source, spec in declared]
    pins += [Pin(item.source, item.specifier, f"=={way.end_text}") for item in list(locked(root))[:1]]
    return tuple(pin if pin.then != pin.now else Pin(pin.source, pin.now, "") for pin in pins)


def raised(specifier: str, source: str, timeline: Timeline, way: Journey, floor: int) -> str:
    """A specifier for the end of the way: an exact one stays exact, a range begins where the code works."""
    if is_exact(specifier):
        return f"=={way.end_text}"
    if specifier:
        allowed = set(matched(specifier, timeline, source).releases)
        if way.end in allowed and min(allowed) >= floor:
            return specifier
    return f">={plain(way.releases, floor)},<{int(way.end_text.split('.')[0]) + 1}"


def plain(releases: Sequence[str], index: int) -> str:
    """A release as the start of a range: ``4.54`` where it is the first of its minor release."""
    first = next(number for number, release in enumerate(releases) if minor(release) == minor(releases[index]))
    return minor(releases[index]) if first == index else releases[index]
