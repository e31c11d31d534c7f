"""Watches the cache of a running model: every forward of ``generate`` or of a hand-written loop is looked at.

What is compared costs little: shapes, lengths, dtypes, and the newest row of each tensor, copied before a forward and
compared after it. The cache is never read in full, and nothing is kept from one forward to the next but counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.environment import cache_keyword, load_torch, output_cache
from kvlint.runtime.expectations import Kind, LayerExpectation, expected_for
from kvlint.runtime.inspection import STILL_CHECKS, Moment, Problem, result_of, shape_text
from kvlint.runtime.result import CacheError, CheckResult, Status

ACTIONS = ("raise", "warn", "record")
_CHECKS = tuple(name for name in STILL_CHECKS if name != "finite")
"""``finite`` reads every number of the cache, so it is left to ``check_cache``."""


class CacheWarning(UserWarning):
    """A check failed while a model was watched with ``action="warn"``."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One watched forward: its number, tokens it was fed, tokens a row had taken after it, and what failed."""

    forward: int
    fed: int
    tokens: int | None
    failures: tuple[CheckResult, ...]


@dataclass
class Watch:
    """What ``watch_cache`` gives: the forwards that were looked at, in order."""

    seen: list[Seen] = field(default_factory=list)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """All failures of all forwards."""
        return tuple(failure for one in self.seen for failure in one.failures)


@dataclass(frozen=True, slots=True)
class _Edge:
    """The newest row ``(batch, kv heads, head dim)`` of one tensor before a forward, and the tensor's shape."""

    layer: int
    name: str
    shape: tuple[int, ...]
    valid: int
    newest: Any


@dataclass(frozen=True, slots=True)
class _Before:
    length: int | None
    edges: tuple[_Edge, ...]


class Observer:
    """Looks at one model's cache before and after each forward; used by ``watch_cache`` and the pytest plugin."""

    def __init__(self, model: Any, every: int, action: str) -> None:
        if action not in ACTIONS:
            raise ValueError(f"action is one of {', '.join(ACTIONS)}, not {action!r}")
        if every < 1:
            raise ValueError(f"every counts forwards and is 1 or more, not {every}")
        load_torch()
        self.model, self.every, self.action = model, every, action
        self.keyword = cache_keyword(model.forward)
        self.expected: tuple[LayerExpectation, ...] = ()
        self.dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
        self.watch = Watch()
        self.count = 0
        self._before: _Before | None = None

    def before(self, options: dict[str, Any]) -> None:
        """Called with the keyword arguments of a forward that is about to run."""
        self.count += 1
        self._before = None
        if (self.count - 1) % self.every:
            return
        cache = options.get(self.keyword) if self.keyword else None
        if cache is None:
            self._before = _Before(0, ())
        elif isinstance(getattr(getattr(cache, "self_attention_cache", cache), "layers", None), list):
            self._before = _Before(_length(cache), tuple(_edges(cache)))

    def after(self, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        """Called with the output of that forward. Raises CacheError or warns, as the observer was told to."""
        before, self._before = self._before, None
        cache = output_cache(output)
        if before is None or cache is None:
            return
        if not isinstance(getattr(getattr(cache, "self_attention_cache", cache), "layers", None), list):
            return
        shape = _fed_shape(arguments, options)
        if shape is None:
            return
        rows, fed = shape
        tokens = None if before.length is None else before.length + fed
        found = cache_layers.self_layers(cache)
        if len(found) > len(self.expected):
            self.expected = expected_for(self.model.config, len(found))
        moment = Moment(found, self.expected, rows, tokens, self.dtype, None)
        results = [result_of(name, STILL_CHECKS[name](cache, moment)) for name in _CHECKS]
        results.append(result_of("append-axis", _grown(before.edges, moment)))
        results.append(result_of("old-rows", _changed(before.edges, moment, fed)))
        failures = tuple(result for result in results if result.status is Status.FAILED)
        self.watch.seen.append(Seen(self.count, fed, tokens, failures))
        if failures and self.action == "raise":
            raise CacheError(failures)
        if failures and self.action == "warn":
            warnings.warn(str(CacheError(failures)), CacheWarning, stacklevel=4)


@contextmanager
def watch_cache(model: Any, *, every: int = 1, action: str = "raise") -> Iterator[Watch]:
    """Checks the cache of *model* after every *every*-th forward inside the block.

    *action* is "raise" (CacheError, an AssertionError, at the first failing forward), "warn" (a CacheWarning each) or
    "record" (nothing but the returned ``Watch``). The model is left as it was. Raises ValueError for other values and
    RuntimeUnavailable without torch or transformers. Forwards that return no cache of transformers are passed over.
    """
    observer = Observer(model, every, action)
    handles = [
        model.register_forward_pre_hook(lambda _, arguments, options: observer.before(options), with_kwargs=True),
        model.register_forward_hook(
            lambda _, arguments, options, output: observer.after(arguments, options, output), with_kwargs=True
        ),
    ]
    try:
        yield observer.watch
    finally:
        for handle in handles:
            handle.remove()


def _fed_shape(arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, int] | None:
    """Rows and tokens of the ids (or embeddings) that a forward was given."""
    for name in ("decoder_input_ids", "input_ids", "decoder_inputs_embeds", "inputs_embeds"):
        tensor = options.get(name)
        if tensor is not None:
            return int(tensor.shape[0]), int(tensor.shape[1])
    if arguments and hasattr(arguments[0], "shape") and len(arguments[0].shape) >= 2:
        return int(arguments[0].shape[0]), int(arguments[0].shape[1])
    return None


def _length(cache: Any) -> int | None:
    """Tokens that the first counting layer has taken; an empty cache has taken none."""
    count = len(cache_layers.self_layers(cache))
    lengths = (cache_layers.length_of(cache, index) for index in range(count))
    return next((length for length in lengths if length is not None), None if count else 0)


def _edges(cache: Any) -> Iterator[_Edge]:
    for index, layer in enumerate(cache_layers.self_layers(cache)):
        if cache_layers.is_quantized(layer):
            continue
        length = cache_layers.length_of(cache, index)
        for name, tensor in (("keys", cache_layers.keys_of(layer)), ("values", cache_layers.values_of(layer))):
            if tensor is None or tensor.dim() != 4 or not length:
                continue
            valid = min(length, int(tensor.shape[2]))
            newest = tensor[:, :, valid - 1].clone()
            yield _Edge(index, name, tuple(tensor.shape), valid, newest)


def _grown(edges: Sequence[_Edge], moment: Moment) -> list[Problem]:
    problems = []
    for edge in edges:
        now = getattr(moment.layers[edge.layer], edge.name, None)
        if now is None or now.dim() != 4:
            continue
        wrong = [axis for axis in (0, 1, 3) if now.shape[axis] != edge.shape[axis]]
        if wrong:
            code = {1: "KV501", 3: "KV502"}.get(wrong[0], "")
            grew = f"{shape_text(edge.shape)} became {shape_text(now.shape)}"
            problems.append(Problem(edge.layer, "only axis 2 (the sequence) to grow", f"axis {wrong[0]}: {grew}", code))
    return problems


def _changed(edges: Sequence[_Edge], moment: Moment, fed: int) -> list[Problem]:
    """Layers in which the newest row before the forward is not, bit for bit, the row before the new ones after it."""
    torch = load_torch()
    problems = []
    for edge in edges:
        now = getattr(moment.layers[edge.layer], edge.name, None)
        own_kind = edge.layer < len(moment.expected) and moment.expected[edge.layer].kind is Kind.OTHER
        if now is None or now.dim() != 4 or own_kind or tuple(now.shape[:2]) != edge.shape[:2]:
            continue
        place = min(edge.valid + fed, int(now.shape[2])) - fed - 1
        if place < 0 or now.shape[3] != edge.shape[3]:
            continue
        if not torch.equal(now[:, :, place], edge.newest.to(now.device)):
            problems.append(Problem(edge.layer, f"old {edge.name} unchanged", "another row at the end of the past"))
    return problems
