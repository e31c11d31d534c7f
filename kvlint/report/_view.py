"""What every output format is given: the findings to show and the numbers around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlint.findings import Applicability, Category

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic

HIDDEN = {Category.DEPRECATED: "deprecated", Category.UNDECIDED: "undecided"}
"""Categories that are counted, not listed, unless asked for by this word."""


@dataclass(frozen=True, slots=True)
class View:
    """A run as the reports see it.

    *found* are the findings to list, in order; *hidden* counts those of each category that are not listed; *applied*
    counts what was fixed by code (in a run that only shows the patch: would be), in *changed* files. *allowed* are the
    applicabilities that a fixing run with these options would apply, *fixable* the codes. *targets* say which
    releases the files were checked for, and what said so; there are none where no file held a word of interest. *known* counts the findings
    of a baseline, which are not listed. *elsewhere* says which fixes another target would offer.
    """

    found: tuple[Diagnostic, ...]
    hidden: tuple[tuple[Category, int], ...] = ()
    hidden_codes: tuple[str, ...] = ()
    files: int = 0
    applied: tuple[tuple[str, int], ...] = ()
    changed: int = 0
    fixing: bool = False
    allowed: frozenset[Applicability] = frozenset({Applicability.SAFE})
    fixable: frozenset[str] | None = None
    color: bool = False
    quiet: bool = False
    targets: tuple[str, ...] = ()
    known: int = 0
    elsewhere: str = ""

    def is_fixable(self, item: Diagnostic, allowed: Iterable[Applicability] | None = None) -> bool:
        """True where a fixing run (with fixes of *allowed*) would offer to fix the finding."""
        chosen = self.allowed if allowed is None else allowed
        if item.fix is None or not item.fix.edits or item.fix.applicability not in chosen:
            return False
        return self.fixable is None or item.code in self.fixable


def split(
    found: Sequence[Diagnostic], show: Iterable[str]
) -> tuple[tuple[Diagnostic, ...], Counter[Category], set[str]]:
    """The findings to list, the count of those hidden in each category, and the codes of the undecided among them."""
    shown: list[Diagnostic] = []
    hidden: Counter[Category] = Counter()
    undecided: set[str] = set()
    for item in found:
        word = HIDDEN.get(item.category)
        if word is None or word in show:
            shown.append(item)
            continue
        hidden[item.category] += 1
        if item.category is Category.UNDECIDED:
            undecided.add(item.code)
    return tuple(shown), hidden, undecided
