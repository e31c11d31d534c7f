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
    from kvlint.runtime.models import Loaded, ModelUnavailable, Source, load
    from kvlint.runtime.probe import NoCache, Plan
    from kvlint.runtime.verify import Options, verify, verify_model
    from kvlint.runtime.watch import CacheWarning, Watch, watch_cache

__all__ = [
    "CacheError",
    "CacheWarning",
    "CheckResult",
    "LayerSummary",
    "Loaded",
    "ModelUnavailable",
    "NoCache",
    "Options",
    "Plan",
    "RuntimeUnavailable",
    "Source",
    "Status",
    "Verification",
    "Watch",
    "check_cache",
    "load",
    "verify",
    "verify_model",
    "watch_cache",
]

_HOMES = {
    "CacheWarning": "watch",
    "Loaded": "models",
    "ModelUnavailable": "models",
    "NoCache": "probe",
    "Options": "verify",
    "Plan": "probe",
    "Source": "models",
    "Watch": "watch",
    "check_cache": "inspection",
    "load": "models",
    "verify": "verify",
    "verify_model": "verify",
    "watch_cache": "watch",
}


def __getattr__(name: str) -> Any:
    """Imports a name of ``__all__`` on first use, so that ``import kvlint.runtime`` costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"kvlint.runtime.{home}"), name)
    globals()[name] = value  # a module of the same name (verify) must not take its place
    return value
