"""The runtime check: runs a real forward pass and checks the cache that the model really builds.

``check_cache(cache, config, tokens=..., batch=...)`` looks at a cache as it is, ``watch_cache(model)`` at every step
of a loop or of ``generate``, ``verify(...)`` runs the whole set of checks on a model. torch and transformers are
imported only when one of them is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvlint.runtime.environment import RuntimeUnavailable
from kvlint.runtime.result import CacheError, CheckResult, LayerSummary, Status, Verification

if TYPE_CHECKING:
    from kvlint.runtime.inspection import check_cache
    from kvlint.runtime.verify import Options, verify, verify_model
    from kvlint.runtime.watch import watch_cache

__all__ = [
    "CacheError",
    "CheckResult",
    "LayerSummary",
    "Options",
    "RuntimeUnavailable",
    "Status",
    "Verification",
    "check_cache",
    "verify",
    "verify_model",
    "watch_cache",
]

_HOMES = {
    "check_cache": "inspection",
    "watch_cache": "watch",
    "verify": "verify",
    "verify_model": "verify",
    "Options": "verify",
}


def __getattr__(name: str) -> Any:
    """Imports what needs torch on first use, so that ``import kvlint.runtime`` costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kvlint.runtime.{home}"), name)
