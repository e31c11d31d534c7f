"""The frozen data types that pass between the stages: edits, fixes, findings.

Findings hold text ranges, never syntax nodes: so they pickle into the result cache and between processes,
map to notebook cells and Markdown fences, and serialise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kvlint.releases import NO_RELEASE, ReleaseSet


class Category(str, Enum):
    """What is wrong with a use (see ARCHITECTURE.md, "Categories")."""

    BREAKS = "breaks"
    SILENT = "silent"
    WASTEFUL = "wasteful"
    DEPRECATED = "deprecated"
    UNDECIDED = "undecided"
    META = "meta"

    @property
    def severity(self) -> str:
        """``error``, ``warning`` or ``note``: how reports grade the category."""
        if self in (Category.WASTEFUL, Category.META):
            return "warning"
        if self in (Category.DEPRECATED, Category.UNDECIDED):
            return "note"
        return "error"


class Applicability(str, Enum):
    """How far a fix may be trusted: applied by ``--fix``, by ``--unsafe-fixes``, or only printed."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replaces ``text[start:end]`` of a region by *text*; offsets count characters of the region's text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A rewrite: all of its edits are applied, or none.

    *group* names fixes of one region that must be applied together or not at all (the uses and the import of
    one removed symbol); an empty group stands alone. *unit* names what a value's fixes belong to: none of them is
    applied where one of them may not be (see ``checks/units.py``).
    """

    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]
    group: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value came from: a place in the region and what it shows ("a cache, constructed here")."""

    start: int
    text: str
    path: str = ""
    """The file it stands in where that may be another one than the finding's; with the *line* there."""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Related:
    """Another place of the same defect, in this file or another one: a use that fails for the reason of the finding.

    *path* is absolute, "" for the finding's own file. Lines and columns are those of `Diagnostic`; *code* and *message*
    are what the place would be reported with alone.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    message: str
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One use that is wrong on at least one release in force, placed in the region's text.

    *start* and *end* are character offsets into the region; *statement_start* and *statement_end* span the whole
    logical statement (suppression comments on any of its lines count). *message* says what happens and on which
    releases; *help* says what to do by hand, also where no fix is offered and why. *releases* are those of the
    range in force on which the use is wrong. *related* are the other places of the same defect: one defect is one finding.
    """

    code: str
    name: str
    category: Category
    start: int
    end: int
    message: str
    help: str = ""
    releases: ReleaseSet = NO_RELEASE
    origin: Origin | None = None
    fix: Fix | None = None
    statement_start: int = -1
    statement_end: int = -1
    related: tuple[Related, ...] = ()
    defect: str = ""
    """What is wrong behind it, where several findings of a file can come from one thing (``name:HybridCache``)."""
    leads: bool = False
    """The finding is that thing itself (the import that fails); the others only fail behind it."""

    def __hash__(self) -> int:
        """Of its place and words alone: a fix that many findings share may hold thousands of edits."""
        return hash((self.code, self.start, self.end, self.message))
