"""Which checks could possibly fire on a file, told from its bytes alone.

A check names words of which one must occur for it to find anything. Files without any are never parsed, and while
no file has any, no check is imported.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kvlint.triggers import table


@lru_cache(maxsize=16)
def patterns(codes: frozenset[str]) -> tuple[re.Pattern[bytes] | None, tuple[tuple[str, re.Pattern[bytes]], ...]]:
    """One pattern of all trigger words, and one for each check."""
    each: list[tuple[str, re.Pattern[bytes]]] = []
    words: set[str] = set()
    for trigger in table():
        if trigger.code in codes and trigger.words:
            words |= set(trigger.words)
            each.append((trigger.code, compiled(trigger.words)))
    return (compiled(tuple(sorted(words))) if words else None), tuple(each)


def compiled(words: tuple[str, ...]) -> re.Pattern[bytes]:
    """Matches where one of the words occurs; a word that contains another one of them is left out."""
    needed = [word for word in words if not any(other != word and other in word for other in words)]
    return re.compile(b"|".join(re.escape(word.encode()) for word in sorted(set(needed))))


def candidates(data: bytes, codes: frozenset[str]) -> frozenset[str]:
    """The codes out of *codes* whose check could fire on these bytes.

    Bytes in UTF-16 or UTF-32 hold no word of ours as ASCII; Python refuses such files, and so does reading them.
    """
    anything, each = patterns(codes)
    if anything is None or anything.search(data) is None:
        return frozenset()
    return frozenset(code for code, pattern in each if pattern.search(data) is not None)
