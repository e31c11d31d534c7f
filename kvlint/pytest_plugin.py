"""The pytest plugin: a ``check_cache`` fixture, and ``--kv-verify`` to watch every model that the tests run.

Imports nothing heavy: torch and transformers are touched only by a test that asks for the fixture, or with the option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--kv-verify`` and its ``--kv-verify-every``."""
    group = parser.getgroup("kvlint", "KV caches of transformers models")
    group.addoption(
        "--kv-verify", action="store_true", default=False,
        help="check the cache after every forward of every transformers model that a test runs",
    )  # fmt: skip
    group.addoption(
        "--kv-verify-every", type=int, default=1, metavar="N", help="with --kv-verify: look at every N-th forward only"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuses ``--kv-verify`` in one line where torch or transformers is missing, before any test runs."""
    if not config.getoption("--kv-verify"):
        return
    from kvlint.runtime.environment import RuntimeUnavailable, load_transformers

    if config.getoption("--kv-verify-every") < 1:
        raise pytest.UsageError("--kv-verify-every counts forwards and is 1 or more")
    try:
        load_transformers()
    except RuntimeUnavailable as error:
        raise pytest.UsageError(f"--kv-verify: {error}") from error


@pytest.fixture
def check_cache() -> Callable[..., None]:
    """A function ``check_cache(cache, config, tokens=..., batch=..., dtype=..., device=...)`` that fails the test when
    the cache is not as the configuration says; the message carries codes and layers. Skips without torch."""
    from kvlint.runtime.environment import RuntimeUnavailable, load_transformers

    try:
        load_transformers()
    except RuntimeUnavailable as error:
        pytest.skip(str(error))
    from kvlint.runtime.inspection import check_cache as look
    from kvlint.runtime.result import CacheError, Status

    def check(cache: Any, config: Any, **known: Any) -> None:
        __tracebackhide__ = True
        failures = tuple(result for result in look(cache, config, **known) if result.status is Status.FAILED)
        if failures:
            raise CacheError(failures)

    return check


@pytest.fixture(autouse=True)
def _kv_verify(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--kv-verify``: every outermost forward of a transformers model inside the test is watched."""
    if not request.config.getoption("--kv-verify"):
        yield
        return
    with _every_model_watched(request.config.getoption("--kv-verify-every")):
        yield


@contextmanager
def _every_model_watched(every: int) -> Iterator[None]:
    from transformers import PreTrainedModel

    from kvlint.runtime.environment import cache_keyword
    from kvlint.runtime.watch import Observer

    observers: dict[int, Observer] = {}
    running: list[Any] = []
    owner: Any = PreTrainedModel
    inherited = owner.__call__

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        # The base model inside a causal model is a PreTrainedModel, too: only the outermost call is looked at.
        if running or cache_keyword(self.forward) is None:
            return inherited(self, *arguments, **options)
        observer = observers.get(id(self))
        if observer is None:
            observer = observers[id(self)] = Observer(self, every, "raise")
        running.append(self)
        try:
            observer.before(options)
            output = inherited(self, *arguments, **options)
            observer.after(arguments, options, output)
        finally:
            running.pop()
        return output

    owner.__call__ = call
    try:
        yield
    finally:
        del owner.__call__
