"""What is asked of one file, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvlint.diagnostics import Diagnostic
from kvlint.engine.units import ALONE, Surroundings
from kvlint.findings import Applicability
from kvlint.releases import ReleaseSet


@dataclass(frozen=True, slots=True)
class FixRequest:
    """Which fixes a run applies: by applicability, by rule, and not those of kinds of findings that are *hidden*."""

    allowed: frozenset[Applicability]
    fixable: frozenset[str]
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """One file to lint. *path* is absolute, *shown* is what reports call it; *data* replaces the file's bytes.

    *codes* are the rules in use, *triggered* those of them that could fire on these bytes. *surroundings* is what the
    project says about the file. *typing*: the file is being written in an editor, and the files around it are not walked
    again for that.
    """

    path: str
    shown: str
    codes: frozenset[str]
    triggered: frozenset[str]
    target: ReleaseSet
    fix: FixRequest | None = None
    fix_docstrings: bool = False
    use_suppressions: bool = True
    with_fixes: bool = True
    grouped: bool = True
    """What comes from one defect is one finding; else every place is one."""
    data: bytes | None = None
    surroundings: Surroundings = ALONE
    typing: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """An internal error: in which part, on which file, and what happened."""

    part: str
    shown: str
    detail: str

    def __str__(self) -> str:
        return f"internal error in {self.part} on {self.shown}: {self.detail}; please report it"


def worded_faults(faults: Iterable[Fault]) -> list[str]:
    """One line for each kind of internal error, however many files it befell."""
    kinds: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        kinds.setdefault((fault.part, fault.detail), []).append(fault)
    lines = []
    for alike in kinds.values():
        more = len({fault.shown for fault in alike}) - 1
        also = f" (and {more:,} other file{'' if more == 1 else 's'})" if more else ""
        lines.append(str(Fault(alike[0].part, alike[0].shown + also, alike[0].detail)))
    return lines


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one file.

    *original* and *fixed* are the bytes before and after, *fixed* None where nothing was changed; *applied* counts the
    findings resolved by fixes, by code. *notices* are remarks of one line each.
    *digest* is that of the bytes that were linted, *dependencies* the other files that decided something.
    """

    shown: str
    path: str
    diagnostics: tuple[Diagnostic, ...]
    original: bytes = b""
    fixed: bytes | None = None
    applied: tuple[tuple[str, int], ...] = ()
    notices: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    digest: str = ""
    dependencies: tuple[str, ...] = ()
