"""The trigger words of all checks, without importing the checks.

Importing every check (and the analysis behind them) takes longer than reading some hundred files. The words are
therefore kept where Python keeps compiled modules, beside them in ``__pycache__``, under the fingerprint of the
sources: derived, never older than what it is derived from, and not written where bytecode is not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import cache_from_source
from typing import Any

from kvlint.fingerprint import own_fingerprint


@dataclass(frozen=True, slots=True)
class Trigger:
    """What the screen needs to know of a check: words of which one must occur, and whether it is on by default."""

    code: str
    words: tuple[str, ...]
    default: bool


@cache
def table() -> tuple[Trigger, ...]:
    """The triggers of every check, by code."""
    import json

    path = stored_path()
    try:
        with open(path, "rb") as file:
            fingerprint, rows = json.loads(file.read())
        if fingerprint == own_fingerprint():
            return tuple(Trigger(code, tuple(words), default) for code, words, default in rows)
    except (OSError, ValueError, TypeError):
        pass
    found = from_checks()
    if not sys.dont_write_bytecode:
        store(path, [own_fingerprint(), [[item.code, item.words, item.default] for item in found]])
    return found


def from_checks() -> tuple[Trigger, ...]:
    """The triggers as the checks themselves have them."""
    from kvlint.checks import all_checks

    return tuple(Trigger(check.code, tuple(check.triggers), check.default) for check in all_checks())


def stored_path() -> str:
    """Where the table is kept."""
    compiled = cache_from_source(os.path.join(os.path.dirname(__file__), "checks", "__init__.py"))
    return os.path.join(os.path.dirname(compiled), "triggers.json")


def store(path: str, content: Any) -> None:
    """Keeps the table; a folder that cannot be written to is no reason to complain."""
    import json

    from kvlint.writing import write_atomically

    try:
        write_atomically(path, json.dumps(content).encode(), create_folder=True)
    except OSError:
        return
