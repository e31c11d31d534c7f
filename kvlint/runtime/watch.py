"""Watches the cache of a running model: every forward of ``generate`` or of a hand-written loop is looked at.

What is compared costs little: shapes, lengths, dtypes, and the newest row of each tensor, copied before a forward and
compared after it. The cache is never read in full, and nothing is kept from one forward to the next but counts.

A cache is known by what it is, not by the name it is passed under: positional, ``cache=``, ``past_key_values=``, through
a wrapper's ``*args, **kwargs``, in a dictionary or in a tuple. What cannot be looked at is listed with its reason.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.dtypes import allowed
from kvlint.runtime.environment import CACHE_NAMES, load_torch, load_transformers
from kvlint.runtime.expectations import Kind, LayerExpectation, expected_for, text_config
from kvlint.runtime.inspection import STILL_CHECKS, Moment, Problem, result_of, shape_text
from kvlint.runtime.result import CacheError, CheckResult, Status

Action = Literal["raise", "warn", "record"]
ACTIONS: tuple[Action, ...] = ("raise", "warn", "record")
_CHECKS = tuple(name for name in STILL_CHECKS if name != "finite")
"""``finite`` reads every number of the cache, so it is left to ``check_cache``."""

_IDS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")
_NO_TOKENS = frozenset({*_IDS, "attention_mask", "decoder_attention_mask", "encoder_hidden_states", "labels"})
"""Tensors that add no token of their own; others (images, audio) may: their tokens are then not counted."""


class CacheWarning(UserWarning):
    """A check failed while a model was watched with ``action="warn"``, or a watch could not see a cache."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One watched forward: its number, tokens it was fed, tokens a row had taken after it, and what failed.

    *fed* and *tokens* are None where they cannot be told from the arguments (images that become tokens).
    """

    forward: int
    fed: int | None
    tokens: int | None
    failures: tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True)
class Unseen:
    """One forward with a cache that could not be looked at, and why. *forward* is 0 for what ran compiled."""

    forward: int
    reason: str


@dataclass
class Watch:
    """What ``watch_cache`` gives: the forwards that were looked at, those that could not be, and notes (what is right
    but costs memory)."""

    seen: list[Seen] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """All failures of all forwards."""
        return tuple(failure for one in self.seen for failure in one.failures)

    def blind(self) -> str:
        """What was not seen, in one line; empty where everything was."""
        reasons = Counter(one.reason for one in self.unseen)
        words = [f"{reason} ({count} forwards)" if count > 1 else reason for reason, count in reasons.items()]
        return "; ".join(words)


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
    """What was there before a forward: the cache that was passed, its length (None: unknown) and newest rows."""

    cache: Any
    length: int | None
    edges: tuple[_Edge, ...]
    cross: tuple[_Edge, ...] = ()
    strange: str = ""


class Observer:
    """Looks at one model's cache before and after each forward; used by ``watch_cache`` and the pytest plugin."""

    def __init__(self, model: Any, every: int = 1, action: str = "raise") -> None:
        if action not in ACTIONS:
            raise ValueError(f"action is one of {', '.join(ACTIONS)}, not {action!r}")
        if every < 1:
            raise ValueError(f"every counts forwards and is 1 or more, not {every}")
        self.torch = load_torch()
        self.model, self.every, self.action = model, every, action
        self.config = config_of(model)
        self.expected: tuple[LayerExpectation, ...] = ()
        self.watch = Watch()
        self.count = 0
        self.compiled = False
        self.inside = False
        self._names = _positional_names(model)
        self._is_library_model = isinstance(model, load_transformers().PreTrainedModel)
        self._before: _Before | None = None
        self._autocast: Any = None
        self._probe: Any = None
        self._allowed: dict[Any, Callable[[int], frozenset[Any] | None]] = {}
        self._attention = next((m for m in model.modules() if isinstance(getattr(m, "layer_idx", None), int)), None)

    def before(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        """Called with the arguments of a forward that is about to run."""
        if self.torch.compiler.is_compiling():
            self.compiled = True  # a traced forward: nothing of it may be looked at without breaking its graph
            return
        self.count += 1
        self.inside = True
        self._before = None
        if (self.count - 1) % self.every:
            return
        given = self._named(arguments, options)
        cache = _given_cache(given)
        if cache is not None:
            self._before = _Before(cache, _length(cache), tuple(_edges(cache)), tuple(_cross_edges(cache)))
        else:
            strange = next((given[name] for name in CACHE_NAMES if given.get(name) is not None), None)
            what = "" if strange is None else f"the cache is a {type(strange).__name__} that keeps no list of layers"
            # A wrapper may put tokens of its own (a learned prompt) before those it was given.
            self._before = _Before(None, 0 if self._is_library_model else None, (), strange=what)
        self._look_for_autocast()

    def after(self, arguments: tuple[Any, ...], options: Mapping[str, Any], output: Any) -> None:
        """Called with the output of that forward. Raises CacheError or warns, as the observer was told to."""
        if self.torch.compiler.is_compiling():
            return
        self.inside = False
        self._forget_probe()
        before, self._before = self._before, None
        if before is None:
            return
        given = self._named(arguments, options)
        cache = cache_layers.output_cache(output)
        if cache is None and before.cache is not None:
            cache = before.cache  # filled in place and not handed back
        if cache is None or not cache_layers.is_cache(cache):
            self._not_seen(before, given, cache)
            return
        failures, fed, tokens = self._judge(before, given, cache)
        self.watch.seen.append(Seen(self.count, fed, tokens, failures))
        if failures and self.action == "raise":
            raise CacheError(failures)
        if failures and self.action == "warn":
            warnings.warn(str(CacheError(failures)), CacheWarning, stacklevel=4)

    def finish(self) -> None:
        """Called at the end: notes what ran out of sight, and warns of it unless told to record only."""
        self._forget_probe()
        if self.compiled:
            self.watch.unseen.append(
                Unseen(0, "a forward ran inside torch.compile (watch the compiled module instead)")
            )
        elif not self.count and _anything_compiled(self.torch):
            self.watch.unseen.append(Unseen(0, "no forward was seen (one compiled before the block keeps no hooks)"))
        if self.watch.unseen and self.action != "record":
            warnings.warn(f"not every cache could be watched: {self.watch.blind()}", CacheWarning, stacklevel=4)

    def _judge(
        self, before: _Before, given: Mapping[str, Any], cache: Any
    ) -> tuple[tuple[CheckResult, ...], int | None, int | None]:
        rows, fed = _fed_shape(given, self.config)
        if before.cache is not None and before.cache is not cache and before.length:
            before = replace(before, edges=(), cross=())  # another object came back: rows may have been moved into it
        counted = None if before.length is None or fed is None else before.length + fed
        found = cache_layers.self_layers(cache)
        if len(found) > len(self.expected):
            self.expected = self._expectations(len(found))
        tokens = counted if counted is not None else _length(cache)
        moment = Moment(found, self.expected, rows, tokens, self._dtypes(), None)
        results = [result_of(name, self._without_notes(name, STILL_CHECKS[name](cache, moment))) for name in _CHECKS]
        results.append(result_of("append-axis", _grown(before.edges, moment)))
        if counted is not None and fed is not None:
            results.append(result_of("old-rows", _changed(before.edges, moment, fed)))
        results.append(result_of("cross-attention", _cross_changed(before.cross, cache_layers.cross_layers(cache))))
        return tuple(result for result in results if result.status is Status.FAILED), fed, counted

    def _dtypes(self) -> Callable[[int], frozenset[Any] | None]:
        """What the weights allow, worked out once for each dtype that the model or an autocast region has."""
        key = (next((parameter.dtype for parameter in self.model.parameters()), None), self._autocast)
        if key not in self._allowed:
            self._allowed[key] = allowed(self.model, self._autocast)
        return self._allowed[key]

    def _expectations(self, count: int) -> tuple[LayerExpectation, ...]:
        if self.config is None:
            return (LayerExpectation(Kind.FULL),) * count
        expected = expected_for(self.config, count)
        if (getattr(self.model, "tp_size", None) or 1) > 1:  # each process holds its share of the kv heads
            return tuple(replace(one, kv_heads=None) for one in expected)
        return expected

    def _without_notes(self, name: str, problems: list[Problem]) -> list[Problem]:
        """Of *problems* those that make an answer wrong; layers that only keep more than they need become a note."""
        if name != "layer-kinds":
            return problems
        wasteful = [one for one in problems if one.wasteful]
        if wasteful:
            note = f"layer {wasteful[0].layer}: {wasteful[0].found} where {wasteful[0].expected} would do"
            if note not in self.watch.notes:
                self.watch.notes.append(note)
        return [one for one in problems if not one.wasteful]

    def _not_seen(self, before: _Before, given: Mapping[str, Any], cache: Any) -> None:
        if cache is not None:
            legacy = cache_layers.is_legacy(cache)
            what = "a tuple of tensors (the legacy format)" if legacy else f"a {type(cache).__name__} without layers"
            self.watch.unseen.append(Unseen(self.count, f"the model returned {what}"))
        elif before.strange:
            self.watch.unseen.append(Unseen(self.count, before.strange))
        elif given.get("use_cache"):
            self.watch.unseen.append(Unseen(self.count, "no cache came back with use_cache=True"))

    def _named(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name; a positional one that the forward does not name by its number."""
        given = {
            self._names[index] if index < len(self._names) else f"*{index}": value
            for index, value in enumerate(arguments)
        }
        return {**given, **options}

    def _look_for_autocast(self) -> None:
        """The dtype of an autocast region around the attention: known here, or once the attention runs."""
        self._forget_probe()
        self._autocast = self._autocast_dtype()
        if self._autocast is None and self._attention is not None:

            def probe(module: Any, inputs: Any) -> None:
                if not self.torch.compiler.is_compiling():
                    self._autocast = self._autocast_dtype()

            self._probe = self._attention.register_forward_pre_hook(probe)

    def _autocast_dtype(self) -> Any:
        device = next((parameter.device.type for parameter in self.model.parameters()), "cpu")
        if device == "meta" or not self.torch.is_autocast_enabled(device):
            return None
        return self.torch.get_autocast_dtype(device)

    def _forget_probe(self) -> None:
        if self._probe is not None:
            self._probe.remove()
            self._probe = None


@contextmanager
def watch_cache(model: Any, *, every: int = 1, action: Action = "raise") -> Iterator[Watch]:
    """Checks the cache of *model* after every *every*-th forward inside the block.

    *action* is "raise" (CacheError, an AssertionError, at the first failing forward), "warn" (a CacheWarning each) or
    "record" (nothing but the returned ``Watch``). The model is left as it was. Raises ValueError for other values and
    RuntimeUnavailable without torch or transformers. A forward whose cache cannot be looked at is listed in
    ``Watch.unseen``; at the end a CacheWarning says so, except with "record".
    """
    observer = Observer(model, every, action)
    handles = [
        model.register_forward_pre_hook(
            lambda _, arguments, options: observer.before(arguments, options), with_kwargs=True
        ),
        model.register_forward_hook(
            lambda _, arguments, options, output: observer.after(arguments, options, output), with_kwargs=True
        ),
    ]
    try:
        with _direct_calls(model, observer):
            yield observer.watch
    finally:
        for handle in handles:
            handle.remove()
    observer.finish()


@contextmanager
def _direct_calls(model: Any, observer: Observer) -> Iterator[None]:
    """Lets *observer* see calls of ``model.forward(...)``, too: hooks run for ``model(...)`` only."""
    torch, original, own = observer.torch, model.forward, vars(model).get("forward")
    if type(model).__name__ == "OptimizedModule":  # its forward is the compiled call itself
        yield
        return

    @functools.wraps(original)
    def forward(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **options)
        if observer.inside:
            try:
                return original(*arguments, **options)
            except BaseException:
                observer.inside = False
                raise
        observer.before(arguments, options)
        try:
            output = original(*arguments, **options)
        finally:
            observer.inside = False
        observer.after(arguments, options, output)
        return output

    vars(model)["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del vars(model)["forward"]
        else:
            vars(model)["forward"] = own


def _anything_compiled(torch: Any) -> bool:
    """Whether torch.compile has traced anything in this process."""
    counters = getattr(getattr(getattr(torch, "_dynamo", None), "utils", None), "counters", {})
    return bool(counters.get("frames"))


def config_of(model: Any) -> Any:
    """The configuration of *model*, or of the first model inside of it that has one (wrappers have none); or None."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "get_text_config"):
            return config
    return None


def _positional_names(model: Any) -> tuple[str, ...]:
    """Names of the positional parameters of *model*'s forward, as far as it names them."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))


def _given_cache(given: Mapping[str, Any]) -> Any:
    """The cache among the arguments: under a usual name, or whatever argument is one."""
    named = [given[name] for name in CACHE_NAMES if name in given]
    return next((value for value in (*named, *given.values()) if cache_layers.is_cache(value)), None)


def _fed_shape(given: Mapping[str, Any], config: Any) -> tuple[int | None, int | None]:
    """Rows and tokens of the ids (or embeddings) that a forward was given; None where that cannot be told."""
    names = _IDS[:2] if getattr(config, "is_encoder_decoder", False) else _IDS
    name, tensor = next(((name, given[name]) for name in names if given.get(name) is not None), ("", None))
    if tensor is None and not any(given.get(name) is not None for name in _IDS):
        name, tensor = next(
            ((name, value) for name, value in given.items() if name.startswith("*") and hasattr(value, "dim")),
            ("", None),
        )
    if tensor is None or tensor.dim() != (3 if tensor.is_floating_point() else 2):
        return None, None  # several codebooks a token, or nothing that is fed
    if config is not None and hasattr(text_config(config), "num_codebooks"):
        return None, int(tensor.shape[1])  # rows and codebooks may share an axis
    if any(_may_add_tokens(key, value) for key, value in given.items() if key != name):
        return int(tensor.shape[0]), None
    return int(tensor.shape[0]), int(tensor.shape[1])


def _may_add_tokens(name: str, value: Any) -> bool:
    return (
        name not in _NO_TOKENS and hasattr(value, "dim") and value.dim() >= 2 and bool(value.is_floating_point())
    )  # pixel values, audio features


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


def _cross_edges(cache: Any) -> Iterator[_Edge]:
    for index, layer in enumerate(cache_layers.cross_layers(cache)):
        for name, tensor in (("keys", cache_layers.keys_of(layer)), ("values", cache_layers.values_of(layer))):
            if tensor is not None and tensor.dim() == 4:
                yield _Edge(index, name, tuple(tensor.shape), int(tensor.shape[2]), tensor[:, :, -1].clone())


def _cross_changed(edges: Sequence[_Edge], layers: Sequence[Any]) -> list[Problem]:
    """Cross-attention layers whose rows are others, or more, than before the forward: they are only read."""
    torch = load_torch()
    problems = []
    for edge in edges:
        now = getattr(layers[edge.layer], edge.name, None) if edge.layer < len(layers) else None
        wanted = f"cross-attention {edge.name} unchanged"
        if now is None or tuple(now.shape) != edge.shape:
            found = "nothing" if now is None else shape_text(now.shape)
            problems.append(Problem(edge.layer, wanted, f"{shape_text(edge.shape)} became {found}"))
        elif not torch.equal(now[:, :, -1], edge.newest.to(now.device)):
            problems.append(Problem(edge.layer, wanted, "another last row"))
    return problems


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
