"""The one place that imports torch and transformers, and says in one line what is missing."""

from __future__ import annotations

import inspect
import os
import warnings
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


def cache_keyword(forward: Any) -> str | None:
    """How *forward* calls its cache: ``cache`` (from 5.24), ``past_key_values``, ``cache_params``, or None.

    The order matters: from 5.24 the old names are still answered through a decorator, with a warning.
    """
    parameters = inspect.signature(forward).parameters
    for name in ("cache", "past_key_values", "cache_params"):
        if name in parameters:
            return name
    return None


def output_cache(output: Any) -> Any:
    """The cache that a model output carries, or None. Reads keys first: 5.24 warns on the old attribute names."""
    keys = set(output.keys()) if hasattr(output, "keys") else set()
    for name in ("cache", "past_key_values", "cache_params"):
        if name in keys:
            return output[name]
    return None
