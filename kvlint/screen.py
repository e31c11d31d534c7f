"""Which checks could possibly fire on a file, told from its bytes alone.

A check says what a file must hold for it to find anything. Files that have it for no check are never parsed, and while
no file has it, no check is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from kvlint.sieve import Sieve, Words, spellings
from kvlint.triggers import table

PYTHON = (".py", ".pyi", ".pyw")
JSON = (".json", ".ipynb")
ASCII_ESCAPE = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
"""How JSON may write a letter: ``cache\\u005fimplementation`` is a word of ours."""


@lru_cache(maxsize=64)
def sieves(codes: frozenset[str], target: int, releases: int) -> tuple[tuple[str, Sieve], ...]:
    """The sieves of these checks for a range of releases (bits; 0 for any) of a timeline with so many."""
    found = []
    for trigger in table():
        if trigger.code in codes:
            sieve = trigger.sieve
            if sieve.ways:
                dated = target and releases == trigger.timeline
                sieve = sieve.on(target) if dated else Sieve(sieve.groups, sieve.pattern)
            found.append((trigger.code, sieve))
    return tuple(sorted(found, key=cost))


@lru_cache(maxsize=64)
def roots(codes: frozenset[str], target: int, releases: int) -> tuple[bytes, ...] | None:
    """A few words of which a file needs one for any of these checks; None where a check names no plain words.

    Of each sieve one group is enough: the one that adds the fewest words to those chosen before. A word that holds
    another one adds none; groups that many checks share come first.
    """
    chosen: set[str] = set()
    left = [[group for group in sieve.groups if plain(group)] for _, sieve in sieves(codes, target, releases)]
    if not all(left):
        return None
    shared = Counter(group for groups in left for group in groups)
    for groups in sorted(left, key=lambda groups: (-max(shared[group] for group in groups), groups)):
        best = min(groups, key=lambda group: (len(new_words(group, chosen)), -shared[group], group))
        chosen |= new_words(best, chosen)
    needed = [word for word in chosen if not any(other != word and other in word for other in chosen)]
    return tuple(spelling.encode() for word in sorted(needed) for spelling in spellings(word))


def plain(group: tuple[str, ...]) -> bool:
    return bool(group) and not any(word.startswith("~") for word in group)


def new_words(group: tuple[str, ...], chosen: set[str]) -> set[str]:
    """The words of a group that hold none of the chosen ones."""
    return {word for word in group if not any(other in word for other in chosen)}


def cost(item: tuple[str, Sieve]) -> tuple[int, str]:
    """Sieves that cost little come first: they spare the others of their kind."""
    code, sieve = item
    patterns = any(word.startswith("~") for _, words in sieve.ways for word in words)
    return (2 * patterns + bool(sieve.pattern), code)


def candidates(
    data: bytes, codes: frozenset[str], path: str = "x.py", target: int = 0, releases: int = 0
) -> frozenset[str]:
    """The codes out of *codes* whose check could fire on these bytes of the file at *path*.

    Without a *target* only words that any release needs are looked for. With one (bits, and the number of releases of
    its timeline) patterns are, too; where one check of a kind needs the file read anyway, those of the others of that
    kind, which cost more than they save, are not. One search a word beats one pattern of all of them: a word is found
    by the C library's string search. Bytes in UTF-16 or UTF-32 hold no word of ours as ASCII; Python refuses such
    files, and so does reading them.
    """
    if path.endswith(JSON) and b"\\u00" in data:
        data = ASCII_ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data)
    needed = roots(codes, target, releases)
    if needed is not None and not any(word in data for word in needed):
        return frozenset()
    words = Words(data)
    python = path.endswith(PYTHON)
    found: set[str] = set()
    read: set[str] = set()
    for code, sieve in sieves(codes, target, releases):
        if words.all_of(sieve.groups):
            kind = kind_of(code)
            if kind in read or not target or sieve.passes(words, python):
                found.add(code)
                if target:
                    read.add(kind)
    return frozenset(found)


def kind_of(code: str) -> str:
    """Checks of one kind share the costly part: layouts (5), copies of heads (6), sizes (7), and the values of names."""
    return code[2] if code[2] in "567" else "1"
