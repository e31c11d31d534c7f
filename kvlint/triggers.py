"""The trigger words of all checks, without importing the checks.

Importing every check (and the analysis behind them) takes longer than reading some hundred files, so the words are
kept in a generated module. A check that the module does not know yet is asked itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kvlint.selection import SYNTAX_ERROR, UNUSED_SUPPRESSION, known_rules
from kvlint.trigger_words import OFF_BY_DEFAULT, WORDS


@dataclass(frozen=True, slots=True)
class Trigger:
    """What the screen needs to know of a check: words of which one must occur, and whether it is on by default."""

    code: str
    words: tuple[str, ...]
    default: bool


@cache
def table() -> tuple[Trigger, ...]:
    """The triggers of every check, by code."""
    codes = {rule.code for rule in known_rules()} - {SYNTAX_ERROR[0], UNUSED_SUPPRESSION[0]}
    if codes - WORDS.keys():
        return from_checks()
    return tuple(Trigger(code, WORDS[code], code not in OFF_BY_DEFAULT) for code in sorted(codes))


def from_checks() -> tuple[Trigger, ...]:
    """The triggers as the checks themselves have them."""
    from kvlint.checks import all_checks

    return tuple(Trigger(check.code, tuple(sorted(set(check.triggers))), check.default) for check in all_checks())
