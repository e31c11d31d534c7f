"""Sets of transformers releases: what a target range, a guard and a life span have in common.

Every question kvlint asks ("on which releases does this name exist?", "which releases can reach this
branch?") has a finite answer, because the releases that the timeline knows are finite. A set is therefore
one integer: bit *i* stands for the *i*-th release of the timeline, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ReleaseSet:
    """An immutable set of releases, stored as a bit mask over the timeline's release list."""

    bits: int = 0

    def __and__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits & other.bits)

    def __or__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits | other.bits)

    def __sub__(self, other: ReleaseSet) -> ReleaseSet:
        return ReleaseSet(self.bits & ~other.bits)

    def __bool__(self) -> bool:
        return self.bits != 0

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        """Indices of the members, oldest first."""
        bits, index = self.bits, 0
        while bits:
            if bits & 1:
                yield index
            bits >>= 1
            index += 1

    def __le__(self, other: ReleaseSet) -> bool:
        """True where every member of this set is in *other*."""
        return self.bits & ~other.bits == 0

    @property
    def oldest(self) -> int:
        """Index of the oldest member. Raises ValueError on the empty set."""
        if not self.bits:
            raise ValueError("the empty set of releases has no oldest member")
        return (self.bits & -self.bits).bit_length() - 1

    @property
    def newest(self) -> int:
        """Index of the newest member. Raises ValueError on the empty set."""
        if not self.bits:
            raise ValueError("the empty set of releases has no newest member")
        return self.bits.bit_length() - 1

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Maximal runs of neighbouring releases as ``(first index, last index)``, both included."""
        return runs(self.bits)

    @staticmethod
    def of(*indices: int) -> ReleaseSet:
        """The set that holds exactly the releases with these indices."""
        bits = 0
        for index in indices:
            bits |= 1 << index
        return ReleaseSet(bits)

    @staticmethod
    def span(first: int, last: int) -> ReleaseSet:
        """The releases from index *first* to index *last*, both included (empty when last < first)."""
        return ReleaseSet(((1 << (last - first + 1)) - 1) << first) if last >= first else ReleaseSet()


@lru_cache(maxsize=1024)
def runs(bits: int) -> tuple[tuple[int, int], ...]:
    """The runs of neighbouring ones in *bits*: ``(first index, last index)``."""
    found: list[tuple[int, int]] = []
    for index in ReleaseSet(bits):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return tuple(found)


NO_RELEASE = ReleaseSet()
EVERY_RELEASE = ReleaseSet((1 << 4096) - 1)
"""Stands for "no restriction": a superset of any set of known releases."""
