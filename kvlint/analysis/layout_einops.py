"""The pattern language of einops: ``"b s (h d) -> b h s d"``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Both sides of a pattern: a tuple of names for each axis (a single name, or the names in parentheses)."""

    left: Groups
    right: Groups

    @property
    def ellipsis_left(self) -> bool:
        return any("..." in group or "…" in group for group in self.left)


@lru_cache(maxsize=256)
def parse_pattern(text: str) -> Pattern | None:
    """The pattern, or None where the text is none."""
    left, arrow, right = text.partition("->")
    if not arrow:
        return None
    one, other = parse_side(left), parse_side(right)
    return Pattern(one, other) if one is not None and other is not None else None


def parse_side(text: str) -> Groups | None:
    tokens = re.findall(r"\(|\)|\.\.\.|\w+", text)
    groups: list[tuple[str, ...]] = []
    current: list[str] | None = None
    for token in tokens:
        if token == "(":
            if current is not None:
                return None
            current = []
        elif token == ")":
            if current is None:
                return None
            groups.append(tuple(current))
            current = None
        elif current is not None:
            current.append(token)
        else:
            groups.append(() if token == "1" else (token,))
    return tuple(groups) if current is None else None
