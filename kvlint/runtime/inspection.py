"""Looks at a cache as it is at one moment and compares it with what the configuration says.

``check_cache`` is the public entry; the same functions judge every step of a recorded run (``kvlint.runtime.checks``)
and every forward that ``watch_cache`` sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.environment import load_torch
from kvlint.runtime.expectations import Kind, LayerExpectation, expected_for
from kvlint.runtime.result import CheckResult, Status


@dataclass(frozen=True, slots=True)
class Problem:
    """One layer that is not as expected. *wasteful*: the answers are right, only more is kept than is needed."""

    layer: int
    expected: str
    found: str
    code: str = ""
    wasteful: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A cache at one moment: its layers, what is expected of them, rows and tokens fed so far.

    *batch*, *tokens*, *dtypes* (a function from a layer's index) and *device* are None where the caller does not know
    them: they are then not checked.
    """

    layers: Sequence[Any]
    expected: Sequence[LayerExpectation]
    batch: int | None
    tokens: int | None
    dtypes: Callable[[int], frozenset[Any] | None] | None = None
    device: Any = None

    def attending(self) -> list[tuple[int, Any, LayerExpectation]]:
        """Index, layer and expectation of the layers that hold keys as plain tensors right now."""
        return [
            (index, layer, expected)
            for index, (layer, expected) in enumerate(zip(self.layers, self.expected, strict=False))
            if expected.kind.attends and cache_layers.keys_of(layer) is not None
        ]


def latent_cache() -> bool:
    """Whether the installed transformers caches MLA's latent (from 5.15) instead of expanded heads."""
    import transformers
    from packaging.version import Version

    return Version(transformers.__version__) >= Version("5.15")


def shape_text(shape: Sequence[Any]) -> str:
    """``[2, ?, 7, 16]``: a shape for people, unknown sizes as question marks."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def rows_expected(layer: Any, expected: LayerExpectation, tokens: int) -> int | None:
    """Rows (sequence axis) that *layer* stores after *tokens* tokens, None where its class has rules of its own.

    Dynamic layers grow with the tokens, sliding ones up to window - 1 (the next token brings the last row itself),
    static ones have their size from the start.
    """
    if cache_layers.is_quantized(layer) or expected.kind is Kind.OTHER:
        return None
    if cache_layers.is_static(layer):
        return int(layer.max_cache_len)
    window = getattr(layer, "sliding_window", None)
    if cache_layers.is_sliding(layer) and window is not None:
        return min(tokens, int(window) - 1)
    return tokens


def rows_problem(
    layer: Any, expected: LayerExpectation, index: int, tokens: int, shape: Sequence[int]
) -> Problem | None:
    """The problem of keys of *shape* in *layer* after *tokens* tokens, or None.

    A sliding layer that records its past (for ``crop``) keeps any number of rows from its window to all of them: how
    many depends on when it was cropped.
    """
    wanted = rows_expected(layer, expected, tokens)
    if wanted is None or len(shape) != 4 or shape[2] == wanted:
        return None
    if getattr(layer, "record_past", False) and wanted < shape[2] <= tokens:
        return None
    return Problem(
        index, f"{wanted} rows after {tokens} tokens", f"{shape[2]} on axis 2 of {shape_text(shape)}", "KV503"
    )


def values_problem(index: int, keys: Sequence[int], values: Any | None) -> list[Problem]:
    """The problem of *values* that differ from keys of shape *keys* in more than their head dim; else nothing."""
    if values is None or tuple(values.shape[:-1]) == tuple(keys[:-1]):
        return []
    return [Problem(index, f"values like keys {shape_text(keys)}", shape_text(values.shape), "KV503")]


def length_problem(expected: LayerExpectation, index: int, tokens: int, length: int | None) -> Problem | None:
    """The problem of a layer whose ``get_seq_length`` answered *length* after *tokens* tokens, or None."""
    if length is None or length == tokens or not expected.kind.attends:
        return None
    return Problem(index, f"get_seq_length({index}) == {tokens}", str(length), "KV503")


def layer_kinds(moment: Moment) -> list[Problem]:
    """Layers whose cache class is not the one that the configuration's layer type asks for."""
    problems = []
    listed = [expected for expected in moment.expected if expected.label != "unlisted"]
    if len(moment.layers) > len(listed):
        return [Problem(len(listed), f"{len(listed)} layers", f"{len(moment.layers)} layers")]
    for index, (layer, expected) in enumerate(zip(moment.layers, moment.expected, strict=False)):
        if expected.kind is Kind.OTHER:
            continue
        found = _kind_of(layer)
        wanted = _plain(expected)
        if found != wanted and not (wanted == "windowed" and _window_cannot_bind(layer, expected)):
            problems.append(
                Problem(
                    index, f"a {wanted} layer ({expected.label})", f"{type(layer).__name__} ({found})",
                    wasteful=found == wanted.replace("windowed", "full"),
                )
            )  # fmt: skip
        elif expected.window and not cache_layers.is_static(layer):
            own = getattr(layer, "sliding_window", None)
            if own is not None and int(own) != expected.window:
                problems.append(Problem(index, f"a window of {expected.window}", f"a window of {int(own)}"))
    return problems


def _plain(expected: LayerExpectation) -> str:
    names = {
        Kind.SHARED: "placeholder", Kind.LINEAR: "state", Kind.HYBRID: "state and full",
        Kind.HYBRID_SLIDING: "state and windowed", Kind.SLIDING: "windowed", Kind.CHUNKED: "windowed",
    }  # fmt: skip
    return names.get(expected.kind, "full")


def _kind_of(layer: Any) -> str:
    if cache_layers.is_empty_by_design(layer):
        return "placeholder"
    attention = "windowed" if cache_layers.is_sliding(layer) else "full"
    if not cache_layers.is_recurrent(layer):
        return attention
    return f"state and {attention}" if hasattr(layer, "keys") else "state"


def _window_cannot_bind(layer: Any, expected: LayerExpectation) -> bool:
    size = getattr(layer, "max_cache_len", None)
    return size is not None and expected.window is not None and int(size) <= expected.window


def batch_rows(moment: Moment) -> list[Problem]:
    """Layers whose first axis is not the batch."""
    if moment.batch is None:
        return []
    return [
        Problem(index, f"{moment.batch} rows", f"{_shape(layer)[0]} on axis 0 of {shape_text(_shape(layer))}")
        for index, layer, _ in moment.attending()
        if _shape(layer)[0] != moment.batch
    ]


def kv_heads(moment: Moment) -> list[Problem]:
    """Layers whose second axis is not the number of kv heads that the configuration gives."""
    problems = []
    for index, layer, expected in moment.attending():
        shape = _shape(layer)
        if len(shape) != 4:
            problems.append(Problem(index, "4 axes", f"{len(shape)} axes: {shape_text(shape)}"))
        elif expected.kv_heads is not None and shape[1] != expected.kv_heads:
            code = "KV602" if shape[1] == expected.query_heads else "KV505" if shape[2] == expected.kv_heads else ""
            note = " (the query heads: kv heads were repeated before they were stored)" if code == "KV602" else ""
            problems.append(
                Problem(
                    index, f"{expected.kv_heads} kv heads", f"{shape[1]} on axis 1 of {shape_text(shape)}{note}", code
                )
            )
    return problems


def head_dim(moment: Moment) -> list[Problem]:
    """Layers whose last axis is not the head dim that the configuration gives or implies."""
    problems = []
    for index, layer, expected in moment.attending():
        for name, tensor, wanted in (
            ("keys", cache_layers.keys_of(layer), expected.key_dim),
            ("values", cache_layers.values_of(layer), expected.value_dim),
        ):
            if tensor is not None and wanted is not None and tensor.shape[-1] != wanted:
                code = "KV702" if expected.latent else "KV703"
                problems.append(
                    Problem(
                        index,
                        f"{name} of head dim {wanted}",
                        f"{tensor.shape[-1]} on axis 3 of {shape_text(tensor.shape)}",
                        code,
                    )
                )
    return problems


def stored_rows(moment: Moment) -> list[Problem]:
    """Layers that store another number of rows than their class stores after that many tokens."""
    if moment.tokens is None:
        return []
    problems = []
    for index, layer, expected in moment.attending():
        shape, values = _shape(layer), cache_layers.values_of(layer)
        problem = rows_problem(layer, expected, index, moment.tokens, shape)
        if problem is not None:
            problems.append(problem)
        problems += values_problem(index, shape, values)
    return problems


def sequence_length(cache: Any, moment: Moment) -> list[Problem]:
    """Layers whose ``get_seq_length`` is not the number of tokens fed."""
    if moment.tokens is None:
        return []
    found = (
        length_problem(expected, index, moment.tokens, cache_layers.length_of(cache, index))
        for index, expected in zip(range(len(moment.layers)), moment.expected, strict=False)
    )
    return [problem for problem in found if problem is not None]


def dtype_and_device(moment: Moment) -> list[Problem]:
    """Layers whose keys or values have another dtype or device than the model."""
    problems = []
    for index, layer, _ in moment.attending():
        dtypes = moment.dtypes(index) if moment.dtypes is not None else None
        for name, tensor in (("keys", cache_layers.keys_of(layer)), ("values", cache_layers.values_of(layer))):
            if tensor is None:
                continue
            if dtypes and tensor.dtype not in dtypes:
                wanted = " or ".join(sorted(map(str, dtypes)))
                problems.append(Problem(index, f"{name} in {wanted}", str(tensor.dtype)))
            if moment.device is not None and tensor.device != moment.device:
                problems.append(Problem(index, f"{name} on {moment.device}", str(tensor.device)))
    return problems


def finite(moment: Moment) -> list[Problem]:
    """Layers that hold a NaN or an infinity."""
    torch = load_torch()
    return [
        Problem(index, "finite numbers", "NaN or infinity")
        for index, layer in enumerate(moment.layers)
        if any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in cache_layers.tensors_of(layer)
               if t.dtype.itemsize > 1)
    ]  # fmt: skip


def _shape(layer: Any) -> tuple[int, ...]:
    keys = cache_layers.keys_of(layer)
    return tuple(keys.shape) if keys is not None else ()


EXPLANATIONS = {
    "cache-class": "A model hands back its cache as an object: tuples of tensors are refused or dropped by generate and by "
    "the library's layers.",
    "layer-kinds": "Each layer type of the configuration has its own cache layer. A full layer in place of a windowed "
    "one is right but saves no memory; the reverse loses context.",
    "batch": "The first axis of keys and values is the batch.",
    "kv-heads": "The cache stores kv heads; they are repeated for the query heads only after they were read. Stored "
    "repeated, the cache is larger by the group size and everything that counts its heads is wrong.",
    "head-dim": "The last axis is the head dim that the configuration gives (head_dim, or hidden size over query heads "
    "where it gives none); MLA stores the latent instead.",
    "stored-rows": "Rows are counted on axis -2: every token of a full layer, window - 1 of a sliding one, the "
    "preallocated size of a static one.",
    "seq-length": "get_seq_length is where every mask and position of the next step starts; it counts tokens fed, "
    "also where a window keeps fewer rows.",
    "dtype-device": "Keys and values are kept in the model's dtype and on the layer's device; a silent upcast doubles "
    "the cache.",
    "finite": "A NaN or infinity in the cache reaches every later token.",
}
"""Why each of the checks of this module matters, for reports."""

STILL_CHECKS: dict[str, Callable[[Any, Moment], list[Problem]]] = {
    "layer-kinds": lambda cache, moment: layer_kinds(moment),
    "batch": lambda cache, moment: batch_rows(moment),
    "kv-heads": lambda cache, moment: kv_heads(moment),
    "head-dim": lambda cache, moment: head_dim(moment),
    "stored-rows": lambda cache, moment: stored_rows(moment),
    "seq-length": lambda cache, moment: sequence_length(cache, moment),
    "dtype-device": lambda cache, moment: dtype_and_device(moment),
    "finite": lambda cache, moment: finite(moment),
}
"""The checks that need nothing but the cache at one moment."""


def result_of(name: str, problems: Sequence[Problem], passed: str = "") -> CheckResult:
    """The check's outcome: passed without problems, else failed with the first problem and all its layers."""
    explanation = EXPLANATIONS.get(name, "")
    if not problems:
        return CheckResult(name, Status.PASSED, found=passed, explanation=explanation)
    first = problems[0]
    return CheckResult(
        name, Status.FAILED, first.code, first.expected, first.found, explanation,
        layers=tuple(sorted({problem.layer for problem in problems})),
    )  # fmt: skip


def check_cache(
    cache: Any,
    config: Any,
    *,
    tokens: int | None = None,
    batch: int | None = None,
    dtype: Any = None,
    device: Any = None,
) -> tuple[CheckResult, ...]:
    """Compares *cache* as it is now with what *config* says, and returns one result a check (none of them raises).

    *tokens* is the number of tokens a row has been fed, *batch* the number of rows, *dtype* and *device* those of the
    model; what is None is not checked. Raises RuntimeUnavailable without torch or transformers and UnsupportedCache
    (a TypeError) where *cache* is no transformers cache.
    """
    torch = load_torch()
    found = cache_layers.self_layers(cache)
    dtypes = None if dtype is None else lambda index: frozenset({dtype})
    device = None if device is None else torch.device(device)
    moment = Moment(found, expected_for(config, len(found)), batch, tokens, dtypes, device)
    return tuple(result_of(name, look(cache, moment)) for name, look in STILL_CHECKS.items())
