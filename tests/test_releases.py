"""The algebra of release sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlint.releases import EVERY_RELEASE, NO_RELEASE, ReleaseSet

INDICES = st.frozensets(st.integers(0, 200))
SETS = INDICES.map(lambda indices: ReleaseSet.of(*indices))


@given(INDICES, INDICES)
def test_operators_are_those_of_sets(left: frozenset[int], right: frozenset[int]) -> None:
    first, second = ReleaseSet.of(*left), ReleaseSet.of(*right)
    assert set(first & second) == left & right
    assert set(first | second) == left | right
    assert set(first - second) == left - right
    assert (first <= second) == (left <= right)
    assert bool(first) == bool(left)
    assert len(first) == len(left)
    assert (first == second) == (left == right)


@given(INDICES)
def test_members_come_oldest_first(indices: frozenset[int]) -> None:
    assert list(ReleaseSet.of(*indices)) == sorted(indices)


@given(INDICES)
def test_spans_are_maximal_and_give_the_set_back(indices: frozenset[int]) -> None:
    chosen = ReleaseSet.of(*indices)
    spans = chosen.spans()
    rebuilt = NO_RELEASE
    for first, last in spans:
        assert first <= last
        rebuilt |= ReleaseSet.span(first, last)
    assert rebuilt == chosen
    assert all(before[1] + 1 < after[0] for before, after in pairwise(spans))


@given(INDICES.filter(bool))
def test_oldest_and_newest(indices: frozenset[int]) -> None:
    chosen = ReleaseSet.of(*indices)
    assert chosen.oldest == min(indices)
    assert chosen.newest == max(indices)


@given(SETS)
def test_no_and_every_release_are_the_bounds(chosen: ReleaseSet) -> None:
    assert NO_RELEASE <= chosen <= EVERY_RELEASE
    assert chosen & EVERY_RELEASE == chosen
    assert chosen | NO_RELEASE == chosen


@given(st.integers(0, 200), st.integers(0, 200))
def test_span(first: int, last: int) -> None:
    assert list(ReleaseSet.span(first, last)) == list(range(first, last + 1))


@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_the_empty_set_has_no_bounds(name: str) -> None:
    with pytest.raises(ValueError, match=f"no {name} member"):
        getattr(NO_RELEASE, name)
