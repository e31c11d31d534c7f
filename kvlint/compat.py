"""On which releases code works: the findings of one analysis over all releases, turned into uses by release.

A use is a place in a file. Several rules, or several messages of one rule, may speak of the same place on different
releases; on each release it counts once: it breaks where any of them says so, else it is silently wrong where any of
them says that. Deprecated and wasteful uses work, they do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from kvlint.findings import Category
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.selection import SYNTAX_ERROR

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding, with the releases of the scope on which it holds."""

    item: Diagnostic
    releases: ReleaseSet


@dataclass(frozen=True, slots=True)
class Use:
    """One place that is wrong on some release, with everything that was found there: what breaks comes first."""

    path: str
    line: int
    column: int
    cell: int | None
    found: tuple[Verdict, ...]
    breaks: ReleaseSet
    silent: ReleaseSet
    """Releases on which it is silently wrong and does not break."""

    @property
    def wrong(self) -> ReleaseSet:
        return self.breaks | self.silent

    @property
    def place(self) -> str:
        """``12:5``, in notebooks ``cell 3:12:5``."""
        cell = f"cell {self.cell}:" if self.cell is not None else ""
        return f"{cell}{self.line}:{self.column}"

    @property
    def source(self) -> str:
        """The line of the file, without its indent."""
        lines = (line for verdict in self.found for line in verdict.item.source if line.number == self.line)
        return next((line.text.strip() for line in lines), "")


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring releases of one minor release on which every use does the same.

    *label* is the minor release, or where that is in several pieces ``5.15.0`` and ``5.15.1-3``.
    """

    label: str
    releases: ReleaseSet
    breaks: int
    silent: int


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What an analysis says of the releases in *scope* (indices into *releases*, oldest first).

    *unread* are places that kept a file, or a part of one, from being judged.
    """

    releases: tuple[str, ...]
    scope: ReleaseSet
    uses: tuple[Use, ...]
    unread: tuple[Diagnostic, ...]
    files: int

    @property
    def breaking(self) -> ReleaseSet:
        """Releases on which at least one use raises."""
        return union(use.breaks for use in self.uses)

    @property
    def wrong(self) -> ReleaseSet:
        """Releases on which all runs, and at least one use is silently wrong."""
        return union(use.silent for use in self.uses) - self.breaking

    @property
    def working(self) -> ReleaseSet:
        return self.scope - self.breaking - self.wrong

    @property
    def hopeless(self) -> tuple[Use, ...]:
        """Uses that are wrong on every release of the scope."""
        return tuple(use for use in self.uses if self.scope <= use.wrong)

    def without_hopeless(self) -> Compatibility:
        """The same without the uses that no release makes right."""
        kept = tuple(use for use in self.uses if not self.scope <= use.wrong)
        return Compatibility(self.releases, self.scope, kept, self.unread, self.files)

    def text(self, chosen: ReleaseSet) -> str:
        """Releases in prose, by minor release where all its releases are meant: ``4.48 to 4.53 and 5.0.1``."""
        return joined(ranges(self.releases, chosen, self.scope))

    def counts(self, index: int) -> tuple[int, int]:
        """How many uses break, and how many are silently wrong, on one release."""
        bit = ReleaseSet.of(index)
        return sum(bool(use.breaks & bit) for use in self.uses), sum(bool(use.silent & bit) for use in self.uses)

    def segments(self) -> list[Segment]:
        """The minor releases of the scope, oldest first; one whose releases differ comes in several pieces."""
        found: list[Segment] = []
        for _, members in groupby(self.scope, key=lambda index: minor(self.releases[index])):
            whole = list(members)
            for _, alike in groupby(whole, key=self.verdicts):
                piece = ReleaseSet.of(*alike)
                label = minor(self.releases[whole[0]])
                if len(piece) < len(whole):
                    label = self.releases[piece.oldest]
                    if len(piece) > 1:
                        label += f"-{self.releases[piece.newest].rpartition('.')[2]}"
                found.append(Segment(label, piece, *self.counts(piece.oldest)))
        return found

    def verdicts(self, index: int) -> tuple[int, ...]:
        """What every use does on one release: 0 works, 1 is silently wrong, 2 breaks."""
        bit = ReleaseSet.of(index)
        return tuple(2 if use.breaks & bit else 1 if use.silent & bit else 0 for use in self.uses)


def union(sets: Iterable[ReleaseSet]) -> ReleaseSet:
    whole = NO_RELEASE
    for one in sets:
        whole |= one
    return whole


def minor(release: str) -> str:
    """``4.48`` of ``4.48.3``."""
    return ".".join(release.split(".")[:2])


def ranges(releases: Sequence[str], chosen: ReleaseSet, scope: ReleaseSet) -> list[str]:
    """Runs of *chosen* releases within *scope*: ``4.48 to 4.53``, ``5.15.1``. A minor release that is complete in
    the scope goes by its own name."""
    members = list(scope)
    first_of: dict[str, int] = {}
    last_of: dict[str, int] = {}
    for index in members:
        first_of.setdefault(minor(releases[index]), index)
        last_of[minor(releases[index])] = index
    texts: list[str] = []
    for is_chosen, run in groupby(members, key=lambda index: bool(ReleaseSet.of(index) & chosen)):
        if not is_chosen:
            continue
        indices = list(run)
        first, last = indices[0], indices[-1]
        whole_start = first == first_of[minor(releases[first])] and last >= last_of[minor(releases[first])]
        whole_end = last == last_of[minor(releases[last])] and first <= first_of[minor(releases[last])]
        start = minor(releases[first]) if whole_start else releases[first]
        end = minor(releases[last]) if whole_end else releases[last]
        texts.append(start if start == end else f"{start} to {end}")
    return texts


def joined(parts: Sequence[str]) -> str:
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else "".join(parts)


def headline(compat: Compatibility) -> str:
    """The sentence on top: ``works on 4.48 to 4.53``."""
    if not compat.breaking | compat.wrong:
        return f"works on every release ({compat.text(compat.scope)})"
    return f"works on {compat.text(compat.working) or 'no release'}"


def remarks(compat: Compatibility) -> list[str]:
    """What belongs to the headline: silently wrong releases, breaking ones, and uses that no release makes right."""
    lines = []
    if compat.wrong:
        lines.append(f"runs, with something silently wrong, on {compat.text(compat.wrong)}")
    if compat.breaking and compat.working | compat.wrong:
        lines.append(f"breaks on {compat.text(compat.breaking)}")
    if compat.hopeless and len(compat.hopeless) < len(compat.uses):
        number = len(compat.hopeless)
        rest = compat.without_hopeless()
        if rest.working:
            subject = "1 use is" if number == 1 else f"{number:,} uses are"
            lines.append(f"{subject} wrong on every release; the rest works on {rest.text(rest.working)}")
    if compat.unread:
        number = len({item.path for item in compat.unread})
        lines.append(
            f"{'1 file was' if number == 1 else f'{number:,} files were'} not or not wholly judged ({SYNTAX_ERROR[0]})"
        )
    return lines


def compatibility(
    diagnostics: Iterable[Diagnostic], releases: Sequence[str], scope: ReleaseSet, files: int
) -> Compatibility:
    """Sorts the diagnostics of an analysis with target *scope* into uses; *files* is how many files were looked at."""
    numbers = {release: index for index, release in enumerate(releases)}
    places: dict[tuple[str, int, int, int], list[Diagnostic]] = {}
    unread: list[Diagnostic] = []
    for item in diagnostics:
        if item.code == SYNTAX_ERROR[0]:
            unread.append(item)
        elif item.category in (Category.BREAKS, Category.SILENT):
            places.setdefault((item.path, item.cell or 0, item.line, item.column), []).append(item)
    uses = []
    for (path, cell, line, column), items in sorted(places.items()):
        items.sort(key=lambda item: (item.category is not Category.BREAKS, item.sort_key))
        found = tuple(Verdict(item, read(item.releases, numbers) & scope) for item in items)
        breaks = union(one.releases for one in found if one.item.category is Category.BREAKS)
        silent = union(one.releases for one in found) - breaks
        if breaks | silent:
            uses.append(Use(path, line, column, cell or None, found, breaks, silent))
    return Compatibility(tuple(releases), scope, tuple(uses), tuple(unread), files)


def read(spans: Iterable[str], numbers: dict[str, int]) -> ReleaseSet:
    """The releases that a diagnostic names as runs (``5.0.0-5.24.0``, ``5.4.0``)."""
    chosen = NO_RELEASE
    for span in spans:
        first, _, last = span.partition("-")
        chosen |= ReleaseSet.span(numbers[first], numbers[last or first])
    return chosen
