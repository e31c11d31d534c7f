"""Which checks could possibly fire on a file, told from its bytes alone.

A check names words of which one must occur for it to find anything. Files without any are never parsed, and while
no file has any, no check is imported.
"""

from __future__ import annotations

from functools import lru_cache

from kvlint.triggers import table


@lru_cache(maxsize=16)
def codes_by_word(codes: frozenset[str]) -> tuple[tuple[bytes, frozenset[str]], ...]:
    """Every trigger word with the codes that it wakes, the words that wake most first."""
    woken: dict[str, set[str]] = {}
    for trigger in table():
        if trigger.code in codes:
            for word in trigger.words:
                woken.setdefault(word, set()).add(trigger.code)
    ordered = sorted(woken.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple((word.encode(), frozenset(found)) for word, found in ordered)


def candidates(data: bytes, codes: frozenset[str]) -> frozenset[str]:
    """The codes out of *codes* whose check could fire on these bytes.

    One search a word beats one pattern of all of them: a word is found by the C library's string search. Bytes in
    UTF-16 or UTF-32 hold no word of ours as ASCII; Python refuses such files, and so does reading them.
    """
    found: frozenset[str] = frozenset()
    for word, woken in codes_by_word(codes):
        if not woken <= found and word in data:
            found |= woken
    return found
