"""Carriers: the formats in which Python (or generation settings) lies in files, one module a format.

A carrier module has ``claims(path) -> bool`` and ``extract(path, document) -> Extraction``; it is found by having them.
Plain Python modules are read by `kvlint.source` itself, which also asks `kvlint.carriers.docstring` for the examples
in their docstrings.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import PurePath

from kvlint.carriers.regions import Extraction


@cache
def _carriers() -> tuple[tuple[Callable[[PurePath], bool], Callable[[PurePath, str], Extraction]], ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple((module.claims, module.extract) for module in modules if hasattr(module, "claims"))


def carrier_for(path: PurePath) -> Callable[[PurePath, str], Extraction] | None:
    """What extracts the regions of a file with this name; None for a plain Python module."""
    if path.suffix in (".py", ".pyi"):
        return None
    return next((extract for claims, extract in _carriers() if claims(path)), None)
