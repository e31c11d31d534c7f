"""Mistakes that a person can make, and how they are worded."""

from __future__ import annotations

from collections.abc import Iterable


class UsageProblem(Exception):
    """A mistake in the command line, a configuration file or the environment: one clear line, exit code 2."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``, did you mean 'select'?`` for the candidate nearest to *word*, or nothing where none is near."""
    from difflib import get_close_matches

    by_folded = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(word.lower(), list(by_folded), n=1, cutoff=0.6)
    return f", did you mean {by_folded[close[0]]!r}?" if close else ""
