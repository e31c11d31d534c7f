"""The pytest plugin: a ``check_cache`` fixture, and ``--kv-verify`` to watch every model that the tests run.

Imports nothing heavy: torch and transformers are touched only by a test that asks for the fixture, or with the option.
"""

from __future__ import annotations

import functools
import inspect
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


_UNSEEN = pytest.StashKey[dict[str, int]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With ``--kv-verify``: says at the end which forwards could not be watched, and why."""
    for reason, count in config.stash.get(_UNSEEN, {}).items():
        terminalreporter.write_line(f"kvlint: {count} forward{'s' if count != 1 else ''} not watched: {reason}")


@pytest.fixture(autouse=True)
def _kv_verify(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--kv-verify``: every outermost forward of a transformers model inside the test is watched."""
    if not request.config.getoption("--kv-verify"):
        yield
        return
    unseen = request.config.stash.setdefault(_UNSEEN, {})
    with _every_model_watched(request.config.getoption("--kv-verify-every"), unseen):
        yield


@contextmanager
def _every_model_watched(every: int, unseen: dict[str, int]) -> Iterator[None]:
    import torch
    from transformers import PreTrainedModel

    from kvlint.runtime.environment import cache_keyword
    from kvlint.runtime.watch import Observer

    observers: dict[int, Observer] = {}
    running: list[Any] = []
    compiled: Any = _compiled_module()
    owners: list[Any] = [PreTrainedModel, *([compiled] if compiled is not None else [])]

    def watched(inherited: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inherited)
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            # A traced forward is looked at from outside of its graph. The base model inside a causal model is a
            # PreTrainedModel, too: only the outermost call is looked at.
            if torch.compiler.is_compiling() or running or not _watchable(self, cache_keyword):
                return inherited(self, *arguments, **options)
            observer = observers.get(id(self))
            if observer is None:
                observer = observers[id(self)] = Observer(self, every, "raise")
            running.append(self)
            try:
                observer.before(arguments, options)
                output = inherited(self, *arguments, **options)
                observer.after(arguments, options, output)
            finally:
                running.pop()
            return output

        return call

    kept = [(owner, vars(owner).get("__call__")) for owner in owners]
    for owner in owners:
        owner.__call__ = watched(owner.__call__)
    try:
        with _direct_calls(PreTrainedModel, watched):
            yield
    finally:
        for owner, own in kept:
            if own is None:
                del owner.__call__
            else:
                owner.__call__ = own
        for observer in observers.values():
            for one in observer.watch.unseen:
                unseen[one.reason] = unseen.get(one.reason, 0) + 1


@contextmanager
def _direct_calls(base: Any, watched: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Puts *watched* around the ``forward`` of every model class, too: ``model.forward(...)`` passes ``__call__`` by. Classes
    that are made inside of the block are met when a model of theirs is."""
    kept: dict[Any, Any] = {}
    build = base.__init__

    def wrap(cls: Any) -> None:
        if cls not in kept and issubclass(cls, base) and inspect.isfunction(vars(cls).get("forward")):
            kept[cls] = vars(cls)["forward"]
            cls.forward = watched(kept[cls])

    @functools.wraps(build)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        for cls in type(self).__mro__:
            wrap(cls)
        build(self, *arguments, **options)

    waiting = [base]
    while waiting:
        cls = waiting.pop()
        wrap(cls)
        waiting += cls.__subclasses__()
    base.__init__ = init
    try:
        yield
    finally:
        base.__init__ = build
        for cls, forward in kept.items():
            cls.forward = forward


def _watchable(module: Any, cache_keyword: Callable[[Any], str | None]) -> bool:
    from transformers import PreTrainedModel

    inner = getattr(module, "_orig_mod", module)
    return isinstance(inner, PreTrainedModel) and cache_keyword(inner) is not None


def _compiled_module() -> Any:
    """The class that ``torch.compile(model)`` gives, or None where this torch has it elsewhere."""
    try:
        from torch._dynamo.eval_frame import OptimizedModule
    except ImportError:
        return None
    return OptimizedModule
