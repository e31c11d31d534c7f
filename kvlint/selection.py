"""Which rules exist, and which of them a run uses: codes, prefixes (``KV2``), names, ``ALL``.

The list of rules is the list of files in ``kvlint/checks`` (``kv204_cache_subscript.py`` is KV204,
cache-subscript): reading it imports none of them. The engine itself finds two more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from kvlint.errors import UsageProblem, did_you_mean

SYNTAX_ERROR = ("KV000", "syntax-error")
UNUSED_SUPPRESSION = ("KV900", "unused-suppression")

CHECK_FILE = re.compile(r"kv(\d{3})_(\w+)\.py\Z")
CODE = re.compile(r"KV\d{0,3}\Z")


@dataclass(frozen=True, slots=True, order=True)
class RuleName:
    """A rule's code and name."""

    code: str
    name: str


@cache
def known_rules() -> tuple[RuleName, ...]:
    """Every rule, by code."""
    rules = {RuleName(*SYNTAX_ERROR), RuleName(*UNUSED_SUPPRESSION)}
    for file in os.listdir(os.path.join(os.path.dirname(__file__), "checks")):
        if match := CHECK_FILE.match(file):
            rules.add(RuleName(f"KV{match[1]}", match[2].replace("_", "-")))
    return tuple(sorted(rules))


@cache
def expand(selector: str) -> frozenset[str]:
    """The codes that *selector* (a code, a prefix, a name or ``ALL``, in any case) stands for; empty: unknown."""
    wanted = selector.strip()
    upper = wanted.upper()
    if upper == "ALL":
        return frozenset(rule.code for rule in known_rules())
    if CODE.match(upper):
        return frozenset(rule.code for rule in known_rules() if rule.code.startswith(upper))
    name = wanted.lower().replace("_", "-")
    return frozenset(rule.code for rule in known_rules() if rule.name == name)


def check_selectors(selectors: Iterable[str], where: str) -> None:
    """Raises UsageProblem, naming *where* it stands, for the first selector that stands for no rule."""
    for selector in selectors:
        if not expand(selector):
            candidates = [text for rule in known_rules() for text in (rule.code, rule.name)]
            hint = did_you_mean(selector, candidates)
            raise UsageProblem(f"{where}: unknown rule {selector!r}{hint} (`kvlint rule --all` lists them)")


def specificity(selector: str) -> int:
    """How narrow a selector is: 0 for ``ALL``, the length of a prefix, most for a code or a name."""
    text = selector.strip().upper()
    if text == "ALL":
        return 0
    return len(text) if CODE.match(text) else 5


@lru_cache(maxsize=256)
def resolve(
    select: tuple[str, ...] | None, extend: tuple[str, ...], ignore: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """The codes in use, and those of them that were asked for by more than the default.

    With *select* None every rule is in use. Where a rule is both selected and ignored the narrower selector
    decides (``--select KV204 --ignore KV2`` keeps KV204); ignoring wins a draw.
    """
    chosen: dict[str, tuple[int, bool]] = {}
    for selector in ("ALL",) if select is None else select:
        for code in expand(selector):
            chosen[code] = max(chosen.get(code, (-1, False)), (specificity(selector), select is not None))
    for selector in extend:
        for code in expand(selector):
            chosen[code] = max(chosen.get(code, (-1, False)), (specificity(selector), True))
    for selector in ignore:
        for code in expand(selector):
            if code in chosen and specificity(selector) >= chosen[code][0]:
                del chosen[code]
    return frozenset(chosen), frozenset(code for code, (_, asked) in chosen.items() if asked)
