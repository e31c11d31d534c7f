"""What every check needs in a file, without importing the checks.

Importing every check (and the analysis behind them) takes longer than reading some hundred files, so it is kept in a
generated module. A check that the module does not know yet is asked itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kvlint.selection import SYNTAX_ERROR, UNUSED_SUPPRESSION, known_rules
from kvlint.sieve import Sieve
from kvlint.trigger_words import OFF_BY_DEFAULT, RELEASES, SIEVES


@dataclass(frozen=True, slots=True)
class Trigger:
    """What the screen needs to know of a check: its sieve, and whether it is on by default.

    *timeline* is the number of releases that the words of the sieve were looked up for; a timeline of another length
    has others.
    """

    code: str
    sieve: Sieve
    default: bool
    timeline: int = 0


@cache
def table() -> tuple[Trigger, ...]:
    """The triggers of every check, by code."""
    codes = {rule.code for rule in known_rules()} - {SYNTAX_ERROR[0], UNUSED_SUPPRESSION[0]}
    if codes - SIEVES.keys():
        return from_checks()
    return tuple(Trigger(code, Sieve(*SIEVES[code]), code not in OFF_BY_DEFAULT, RELEASES) for code in sorted(codes))


def from_checks() -> tuple[Trigger, ...]:
    """The triggers as the checks themselves have them."""
    from kvlint.checks import all_checks
    from kvlint.timeline import load

    timeline = load()
    return tuple(
        Trigger(check.code, check.sieve(timeline), check.default, len(timeline.releases)) for check in all_checks()
    )
