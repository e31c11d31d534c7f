"""The runtime check: runs a real forward pass and checks the cache that the model really builds.

``check_cache(cache, config, tokens=..., batch=...)`` looks at a cache as it is, ``watch_cache(model)`` at every step
of a loop or of ``generate``, ``verify(...)`` runs the whole set of checks on a model by its name and ``verify_model(...)``
on a model that is there already. torch and transformers are imported only when one of them is called; where they are
missing or too old, RuntimeUnavailable says so.

The functions are imported here at once, not on first use: ``verify`` is also the name of a module of this package, and
the name means the function whichever is imported first.
"""

from __future__ import annotations

from kvlint.runtime.environment import RuntimeUnavailable
from kvlint.runtime.inspection import check_cache
from kvlint.runtime.models import Loaded, ModelUnavailable, NotConstructible, Source, load
from kvlint.runtime.probe import Broken, NoCache, Plan
from kvlint.runtime.result import CacheError, CheckResult, LayerSummary, Projection, Status, Verification
from kvlint.runtime.verify import Options, verify, verify_model
from kvlint.runtime.watch import CacheWarning, Seen, Unseen, Watch, watch_cache

__all__ = [
    "Broken",
    "CacheError",
    "CacheWarning",
    "CheckResult",
    "LayerSummary",
    "Loaded",
    "ModelUnavailable",
    "NoCache",
    "NotConstructible",
    "Options",
    "Plan",
    "Projection",
    "RuntimeUnavailable",
    "Seen",
    "Source",
    "Status",
    "Unseen",
    "Verification",
    "Watch",
    "check_cache",
    "load",
    "verify",
    "verify_model",
    "watch_cache",
]
