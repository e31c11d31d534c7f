"""Output formats: one module each, ``render(view) -> str``, found by their files (those without ``_`` in front).

The result of a run reaches them as a `View`.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlint.report._view import View

FOR_PEOPLE = frozenset({"full", "concise", "grouped"})
"""Formats that end in a summary; the others are for programs and hold findings only."""


@cache
def format_names() -> tuple[str, ...]:
    """The names of the output formats."""
    files = os.listdir(os.path.dirname(__file__))
    return tuple(sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_")))


def render(name: str, view: View) -> str:
    """The report *name* of a run, ending in a newline unless empty."""
    text: str = import_module(f"{__name__}.{name}").render(view)
    return text
