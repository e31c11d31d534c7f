"""One module a rule. A check reads facts and yields findings; its page in ``rules/`` says what it is about."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from kvlint.analysis.facts import Facts
from kvlint.checks.base import Check
from kvlint.findings import Finding


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check, by code: one instance of each class that a module ``kvNNN_name`` defines."""
    found: list[Check] = []
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("kv"):
            loaded = importlib.import_module(f"{__name__}.{module.name}")
            for value in vars(loaded).values():
                if isinstance(value, type) and issubclass(value, Check) and value.__module__ == loaded.__name__:
                    found.append(value.of_module(module.name))
    return tuple(sorted(found, key=lambda check: check.code))


def findings(facts: Facts, codes: frozenset[str], fixes: bool = True) -> list[Finding]:
    """What the checks with these codes find, by place.

    Without *fixes* the findings carry none, and nothing is rewritten to make them.
    """
    found = {finding for check in all_checks() if check.code in codes for finding in check.run(facts, fixes)}
    return sorted(found, key=lambda finding: (finding.start, finding.end, finding.code, finding.message))


__all__ = ["Check", "all_checks", "findings"]
