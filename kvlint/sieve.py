"""What the bytes of a file must hold for a check to fire: groups of words, words of certain releases, a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

Groups = tuple[tuple[str, ...], ...]
"""Groups of words; of each group one must be there. A word that begins with ``~`` is a pattern."""
Way = tuple[Groups, Mapping[str, int]]
"""One of several ways to a finding: the groups, and words of which one must be there with the releases (bits of a
``ReleaseSet``) on which it leads to one; no words: the groups are enough."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """What one check needs of a file.

    *pattern* is asked of Python files alone: in notebooks and documents the code may be written with escapes. With
    *ways* one of them must be open.
    """

    groups: Groups = ()
    pattern: str = ""
    ways: tuple[Way, ...] = ()

    def on(self, target: int) -> Sieve:
        """The sieve for these releases: words of the ways that lead to nothing there are left out."""
        ways: list[Way] = []
        for groups, words in self.ways:
            kept = {word: releases for word, releases in words.items() if releases & target}
            if kept or not words:
                ways.append((groups, kept))
        return Sieve(self.groups, self.pattern, tuple(ways) or ((((),), {}),)) if self.ways else self

    def passes(self, words: Words, python: bool) -> bool:
        """True where the check could fire on these bytes."""
        if not words.all_of(self.groups):
            return False
        if self.ways and not any(words.all_of(groups) and words.any_in(tuple(dated)) for groups, dated in self.ways):
            return False
        return not self.pattern or not python or words.matches(self.pattern)


@dataclass(slots=True)
class Words:
    """Which words are in the bytes of one file, each looked for once."""

    data: bytes
    known: dict[str, bool] = field(default_factory=dict)
    groups: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def all_of(self, groups: Groups) -> bool:
        """True where each group has a word in the file."""
        return all(self.any_of(group) for group in groups)

    def any_in(self, group: tuple[str, ...]) -> bool:
        """True where one of the words is there, or none is asked for."""
        return not group or self.any_of(group)

    def any_of(self, group: tuple[str, ...]) -> bool:
        """True where one of the words is there."""
        answer = self.groups.get(group)
        if answer is None:
            answer = False
            for word in group:
                if self.has(word):
                    answer = True
                    break
            self.groups[group] = answer
        return answer

    def has(self, word: str) -> bool:
        """True where the word is in the file."""
        answer = self.known.get(word)
        if answer is None:
            if word.startswith("~"):
                answer = compiled(word[1:]).search(self.data) is not None
            else:
                answer = word.encode() in self.data
            self.known[word] = answer
        return answer

    def matches(self, pattern: str) -> bool:
        """True where the pattern is found."""
        answer = self.known.get(pattern)
        if answer is None:
            answer = self.known[pattern] = compiled(pattern).search(self.data) is not None
        return answer


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[bytes]:
    """A pattern for bytes."""
    return re.compile(pattern.encode())
