"""kvlint: finds and rewrites stale or incorrect KV-cache code of Hugging Face transformers.

`lint` and `lint_paths` are what programs call; docs/api.md describes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlint.config import Settings
    from kvlint.diagnostics import Diagnostic, PlacedEdit, PlacedFix, PlacedOrigin, PlacedRelated, SourceLine
    from kvlint.errors import UsageProblem
    from kvlint.findings import Applicability, Category
    from kvlint.public import FileReport, Report, lint, lint_paths, settings_for

__version__ = "0.1.0"

__all__ = [
    "Applicability",
    "Category",
    "Diagnostic",
    "FileReport",
    "PlacedEdit",
    "PlacedFix",
    "PlacedOrigin",
    "PlacedRelated",
    "Report",
    "Settings",
    "SourceLine",
    "UsageProblem",
    "__version__",
    "lint",
    "lint_paths",
    "settings_for",
]

HOMES = {
    "Applicability": "findings",
    "Category": "findings",
    "Diagnostic": "diagnostics",
    "FileReport": "public",
    "PlacedEdit": "diagnostics",
    "PlacedFix": "diagnostics",
    "PlacedOrigin": "diagnostics",
    "PlacedRelated": "diagnostics",
    "Report": "public",
    "Settings": "config",
    "SourceLine": "diagnostics",
    "UsageProblem": "errors",
    "lint": "public",
    "lint_paths": "public",
    "settings_for": "public",
}
"""The module of each public name. The command line imports none of them here: its start is a good part of a short run."""


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
