"""The one place that imports torch and transformers, and says in one line what is missing."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

OLDEST_TRANSFORMERS = "4.56"
"""The first release whose caches are built from the config: ``DynamicCache(config=...)`` (older ones: TypeError)."""

OLDEST_TORCH = "2.4"


class RuntimeUnavailable(RuntimeError):
    """The runtime check cannot run in this environment; the message says what to do."""


def load_torch() -> ModuleType:
    """torch, imported on the first call. Raises RuntimeUnavailable where it is missing or too old."""
    try:
        import torch
    except ImportError as error:
        raise RuntimeUnavailable(
            f'the runtime check needs torch and transformers: pip install "kvlint[runtime]" ({error})'
        ) from error
    _require("torch", str(torch.__version__), OLDEST_TORCH)
    return torch


def load_transformers() -> ModuleType:
    """transformers, imported on the first call. Raises RuntimeUnavailable where it is missing or too old."""
    load_torch()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import transformers
    except ImportError as error:
        raise RuntimeUnavailable(
            f'the runtime check needs torch and transformers: pip install "kvlint[runtime]" ({error})'
        ) from error
    _require("transformers", str(transformers.__version__), OLDEST_TRANSFORMERS)
    return transformers


def _require(name: str, found: str, oldest: str) -> None:
    from packaging.version import Version

    if Version(Version(found).base_version) < Version(oldest):
        raise RuntimeUnavailable(
            f"the runtime check needs {name} {oldest} or newer, found {found}: pip install -U {name}"
        )


def quiet() -> None:
    """Silences the libraries' own logging and warnings: their text would tear the progress line and the JSON."""
    transformers = load_transformers()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")


CACHE_NAMES = ("cache", "past_key_values", "cache_params")
"""How models call their cache; the order matters: from 5.24 the old names are still answered through a decorator."""


def forward_parameters(model: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of *model*'s forward (or of a function). One that takes ``*args, **kwargs`` only is a wrapper: then those of the
    model's class, or of the model that it wraps."""
    seen: set[int] = set()
    found: Mapping[str, inspect.Parameter] = {}
    if not hasattr(model, "forward"):
        return inspect.signature(model).parameters
    for forward in (model.forward, type(model).forward, *(child.forward for child in model.children())):
        if id(forward) in seen:
            continue
        seen.add(id(forward))
        try:
            found = inspect.signature(forward).parameters
        except (TypeError, ValueError):
            continue
        if any(one.kind is not one.VAR_POSITIONAL and one.kind is not one.VAR_KEYWORD and name != "self"
               for name, one in found.items()):  # fmt: skip
            return found
    return found


def cache_keyword(model: Any) -> str | None:
    """How *model*'s forward calls its cache: ``cache`` (from 5.24), ``past_key_values``, ``cache_params``, or None."""
    parameters = forward_parameters(model)
    return next((name for name in CACHE_NAMES if name in parameters), None)
