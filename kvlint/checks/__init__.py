"""One module a rule. A check reads facts and yields findings; its page in ``rules/`` says what it is about."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache

from kvlint.analysis.facts import Facts
from kvlint.checks import units
from kvlint.checks.base import Check
from kvlint.findings import Finding


@cache
def modules() -> dict[str, str]:
    """The modules of the checks (``kvNNN_name``) by their code."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("kv"))
    return {name.split("_", 1)[0].upper(): name for name in sorted(names)}


@cache
def check(code: str) -> Check:
    """The check with this code, imported on its first use: the one instance of the class that its module defines."""
    name = modules()[code]
    loaded = importlib.import_module(f"{__name__}.{name}")
    (kind,) = (
        value
        for value in vars(loaded).values()
        if isinstance(value, type) and issubclass(value, Check) and value.__module__ == loaded.__name__
    )
    return kind.of_module(name)


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check, by code."""
    return tuple(check(code) for code in sorted(modules()))


def findings(
    facts: Facts, codes: frozenset[str], fixes: bool = True, beside: frozenset[str] = frozenset()
) -> list[Finding]:
    """What the checks with these codes find, by place.

    Without *fixes* the findings carry none, and nothing is rewritten to make them. The rules of *beside* are not
    selected: they are asked only for what stands against a fix.
    """
    found = in_order(found_by(facts, codes, fixes))
    if not fixes or not any(finding.fix is not None and units.concerned(finding) for finding in found):
        return found
    return units.settle(facts, in_order({*found, *found_by(facts, beside - codes, fixes)}), codes)


def found_by(facts: Facts, codes: frozenset[str], fixes: bool) -> set[Finding]:
    return {finding for code in sorted(codes & modules().keys()) for finding in check(code).run(facts, fixes)}


def in_order(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda finding: (finding.start, finding.end, finding.code, finding.message))


__all__ = ["Check", "all_checks", "check", "findings"]
