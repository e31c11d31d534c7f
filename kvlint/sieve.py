"""What the bytes of a file must hold for a check to fire: groups of words, words of certain releases, a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

Groups = tuple[tuple[str, ...], ...]
"""Groups of words; of each group one must be there. A word that begins with ``~`` is a pattern, one that begins with ``@``
the name of a member, behind a dot or as a string."""
PATTERN, MEMBER = "~", "@"
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
                ways.append(((*groups, tuple(kept)) if kept else groups, {}))
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
    lowered: bytes | None = None
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
            known, data = self.known, self.data
            for word, sought in spelt(group):
                there = known.get(word)
                if there is None:
                    there = sought in data if isinstance(sought, bytes) else sought.search(data) is not None
                    known[word] = there
                if there:
                    answer = True
                    break
            self.groups[group] = answer
        return answer

    def matches(self, pattern: str) -> bool:
        """True where the pattern is found."""
        answer = self.known.get(pattern)
        if answer is None:
            search = searched(pattern)
            if search.folded and self.lowered is None:
                self.lowered = self.data.lower()
            answer = self.known[pattern] = search.finds(
                self.lowered if search.folded and self.lowered is not None else self.data
            )
        return answer


@lru_cache(maxsize=512)
def spelt(group: tuple[str, ...]) -> tuple[tuple[str, bytes | re.Pattern[bytes]], ...]:
    """The words of a group as bytes to look for; its patterns, and its members, are put together in one each."""
    found: list[tuple[str, bytes | re.Pattern[bytes]]] = [
        (spelling, spelling.encode())
        for word in group
        if not word.startswith((PATTERN, MEMBER))
        for spelling in spellings(word)
    ]
    patterns = "|".join(word[1:] for word in group if word.startswith(PATTERN))
    members = "|".join(word[1:] for word in group if word.startswith(MEMBER))
    if members:
        members = rf"[.\"'][\s\\]*(?:{members})\b"
    found += [(pattern, re.compile(pattern.encode())) for pattern in (patterns, members) if pattern]
    return tuple(found)


def spellings(word: str) -> tuple[str, ...]:
    """How a word may be written: some people put a blank before ``(``, ``[`` and ``=``."""
    return (word, f"{word[:-1]} {word[-1]}") if word[-1:] in ("(", "[", "=") and word[:-1].strip() else (word,)


@dataclass(frozen=True, slots=True)
class Search:
    """A pattern whose plain alternatives are looked for as words: a word costs a tenth of a pattern, or less.

    The others are looked for one by one, which is fast where they begin with letters. *folded* patterns (``(?i)``) are
    written in lower case and looked for in lowered bytes.
    """

    words: tuple[bytes, ...]
    rest: tuple[re.Pattern[bytes], ...]
    folded: bool

    def finds(self, data: bytes) -> bool:
        """True where one of the alternatives is in *data*."""
        return any(word in data for word in self.words) or any(part.search(data) for part in self.rest)


@lru_cache(maxsize=64)
def searched(pattern: str) -> Search:
    """How to look for a pattern."""
    folded = pattern.startswith("(?i)")
    parts = alternatives(pattern.removeprefix("(?i)"))
    words = tuple(part.encode() for part in parts if PLAIN.fullmatch(part))
    rest = tuple(re.compile(part.encode()) for part in parts if not PLAIN.fullmatch(part))
    return Search(words, rest, folded)


PLAIN = re.compile(r"[\w ]+")


def alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern at its top level."""
    parts, depth, start, position = [], 0, 0, 0
    in_set = False
    while position < len(pattern):
        letter = pattern[position]
        if letter == "\\":
            position += 1
        elif in_set:
            in_set = letter != "]"
        elif letter == "[":
            in_set = True
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "|" and depth == 0:
            parts.append(pattern[start:position])
            start = position + 1
        position += 1
    return [*parts, pattern[start:]]
