"""Which of the offered fixes are applied together in one round, and the round's new text.

Fixes are text edits. Two that touch the same characters do not go into one round: the later one is offered again
when the file has been looked at anew. Fixes of one group are applied together or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvlint.findings import Applicability, Edit, Finding

MAX_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Unit:
    """What is applied together or not at all: edits, in order and without overlap, and the findings they resolve."""

    edits: tuple[Edit, ...]
    findings: tuple[Finding, ...]


def choose(
    findings: Sequence[Finding], silenced: Iterable[Finding], allowed: frozenset[Applicability], fixable: frozenset[str]
) -> tuple[Unit, ...]:
    """Chooses from the fixes of *findings* (of one region) those that can be applied in one round.

    *silenced* findings are not fixed, and neither is a group or a unit that one of them belongs to. A unit of which one
    fix may not be applied in this run is left whole.
    """
    groups: dict[str, list[Finding]] = {}
    firsts = first_edits(findings)
    for number, finding in enumerate(sorted(findings, key=lambda item: first_edit(item, firsts))):
        if finding.fix is not None:
            groups.setdefault(finding.fix.group or f"\0{number}", []).append(finding)
    blocked = {finding.fix.group for finding in silenced if finding.fix is not None and finding.fix.group}
    whole = {finding.fix.unit for finding in silenced if finding.fix is not None}
    whole |= {
        finding.fix.unit
        for finding in findings
        if finding.fix is not None and not is_allowed(finding, allowed, fixable)
    }
    units: list[Unit] = []
    taken: list[Edit] = []
    judged: dict[int, Unit | None] = {}
    """What came of a fix that several findings share, by id."""
    for name, members in groups.items():
        if name in blocked or not all(is_allowed(member, allowed, fixable) for member in members):
            continue
        if any(member.fix is not None and member.fix.unit and member.fix.unit in whole for member in members):
            continue
        shared = id(members[0].fix)
        if len(members) == 1 and shared in judged:
            same = judged[shared]
            if same is not None:
                units.append(Unit(same.edits, tuple(members)))
            continue
        if len(members) == 1:
            judged[shared] = None
        edits = sorted({edit for member in members for edit in fix_edits(member)})
        if edits and not overlap_inside(edits) and not any(collides_with_any(edit, taken) for edit in edits):
            for edit in edits:
                place = bisect_left(taken, edit)
                if taken[place : place + 1] != [edit]:
                    taken.insert(place, edit)
            units.append(Unit(tuple(edits), tuple(members)))
            if len(members) == 1:
                judged[shared] = units[-1]
    return tuple(units)


def is_allowed(finding: Finding, allowed: frozenset[Applicability], fixable: frozenset[str]) -> bool:
    """True where the finding's fix may be applied in this run."""
    return finding.fix is not None and finding.fix.applicability in allowed and finding.code in fixable


def fix_edits(finding: Finding) -> tuple[Edit, ...]:
    return finding.fix.edits if finding.fix is not None else ()


def first_edits(findings: Iterable[Finding]) -> dict[int, int]:
    """Where the first edit of each fix lies, by the id of the fix: many findings may share one."""
    fixes = {id(finding.fix): finding.fix for finding in findings if finding.fix is not None and finding.fix.edits}
    return {key: min(edit.start for edit in fix.edits) for key, fix in fixes.items()}


def first_edit(finding: Finding, firsts: dict[int, int]) -> tuple[int, int, str]:
    """Order in which fixes get their turn: by the place of their first edit."""
    return (firsts.get(id(finding.fix), finding.start), finding.start, finding.code)


def collides(one: Edit, other: Edit) -> bool:
    """True where two different edits cannot both be applied: shared characters, or two insertions at one place."""
    if one == other:
        return False
    first, second = sorted((one, other))
    return first.start == second.start or first.end > second.start


def collides_with_any(edit: Edit, taken: Sequence[Edit]) -> bool:
    """True where *edit* collides with one of *taken*, which is sorted and free of collisions itself."""
    place = bisect_left(taken, edit)
    return any(collides(edit, other) for other in taken[max(place - 1, 0) : place + 2])


def overlap_inside(edits: Sequence[Edit]) -> bool:
    return any(collides(one, other) for one, other in pairwise(edits))


def merged_edits(units: Iterable[Unit]) -> tuple[Edit, ...]:
    """The edits of several units, each once: two fixes may want the same import."""
    lists = {id(unit.edits): unit.edits for unit in units}
    return tuple(sorted({edit for edits in lists.values() for edit in edits}))


def allowed_applicabilities(unsafe: bool) -> frozenset[Applicability]:
    """What a run may apply: safe fixes, with *unsafe* also those that need a look."""
    return frozenset({Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE})
