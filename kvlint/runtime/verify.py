"""One model through the whole check: load, record, judge, summarise."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvlint import __version__
from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, run_checks
from kvlint.runtime.checks.memory import formula_bytes
from kvlint.runtime.environment import load_torch, load_transformers
from kvlint.runtime.expectations import LayerExpectation, expected_for
from kvlint.runtime.inspection import rows_expected
from kvlint.runtime.models import Loaded, ModelUnavailable, NotConstructible, Source, candidates, describe, load
from kvlint.runtime.probe import Broken, NoCache, Plan, Recording, Runner, record
from kvlint.runtime.projection import project
from kvlint.runtime.result import CheckResult, GrowthPoint, LayerSummary, Projection, Verification
from kvlint.runtime.watch import config_of


@dataclass(frozen=True, slots=True)
class Options:
    """A model, a plan of the run, which checks (all when *only* is empty, without those in *skip*), and a length to
    extrapolate the bytes to."""

    source: Source
    plan: Plan = field(default_factory=Plan)
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    at_length: int | None = None


def verify(options: Options | Source | str, plan: Plan | None = None) -> Verification:
    """Loads the model of *options* and checks the cache that it really builds.

    *options* is an ``Options``, or a ``Source`` (or its name: a path or hub id) with an optional *plan*.

    What keeps the check from running (no cache at all, a constructor that refuses, too little memory) becomes the
    ``unsupported`` reason of the result. Raises ModelUnavailable for a model that cannot be had, and
    RuntimeUnavailable without torch or transformers.
    """
    started = time.perf_counter()
    if not isinstance(options, Options):
        source = options if isinstance(options, Source) else Source(options)
        options = Options(source, plan or Plan())
    try:
        result = _verify(options)
    except NotConstructible as error:
        result = _unsupported(options, str(error))
    except Broken as error:
        result = replace(_unsupported(options, ""), checks=(error.result,))
    except (NoCache, cache_layers.UnsupportedCache) as error:
        result = _unsupported(options, str(error))
    except MemoryError:
        result = _unsupported(options, "out of memory")
    except ModelUnavailable:
        raise
    except Exception as error:  # whatever a family's own code raises: a reason, not a crash
        memory = type(error).__name__ == "OutOfMemoryError"
        result = _unsupported(options, "out of device memory" if memory else describe(error))
    return replace(result, seconds=round(time.perf_counter() - started, 3))


def _verify(options: Options) -> Verification:
    if not options.source.random_weights:
        return _examined(load(options.source), options)
    last: Exception | None = None
    for loaded in candidates(options.source):
        try:
            return _examined(loaded, options)
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # this shrinking cannot be run; another one, closer to the defaults, may
            last = error
    raise last or NotConstructible("no shrinking of its configuration can be built")


def verify_model(
    model: Any, plan: Plan | None = None, only: Sequence[str] = (), *, skip: Sequence[str] = ()
) -> Verification:
    """Checks a model that is already there: a ``Loaded``, or any model of transformers (or a module around one).

    Raises NoCache or UnsupportedCache where there is nothing to check. The model is put into eval mode for the run.
    """
    loaded = model if isinstance(model, Loaded) else _as_loaded(model)
    about = Source(loaded.name, device=str(next(loaded.model.parameters()).device))
    options = Options(about, plan or Plan(), tuple(only), tuple(skip))
    training = loaded.model.training
    loaded.model.eval()
    try:
        return _examined(loaded, options)
    except Broken as error:
        return replace(_unsupported(options, ""), model_type=loaded.model_type, checks=(error.result,))
    finally:
        loaded.model.train(training)


def _as_loaded(model: Any) -> Loaded:
    config = config_of(model)
    if config is None:
        raise TypeError(f"{type(model).__name__} has no configuration, and no module inside of it has one")
    return Loaded(model, config, type(model).__name__, str(getattr(config, "model_type", "")))


def _examined(loaded: Loaded, options: Options) -> Verification:
    """As ``verify_model``, but a model without a cache that could be looked at raises Broken."""
    torch, transformers = load_torch(), load_transformers()
    plan = options.plan
    started = time.perf_counter()
    runner = Runner(loaded, plan)
    cuda = runner.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(runner.device)
    recording = record(runner)
    peak = int(torch.cuda.max_memory_allocated(runner.device)) if cuda else None
    expected = expected_for(loaded.config, len(cache_layers.self_layers(recording.cache)))
    evidence = Evidence(runner, recording, expected)
    checks = run_checks(evidence, options.only, options.skip)
    projection = None
    if options.at_length:
        projection = Projection(options.at_length, plan.batch, project(evidence, options.at_length, plan.batch))
    return Verification(
        model=loaded.name,
        model_type=loaded.model_type,
        cache=plan.cache,
        device=str(runner.device),
        dtype=str(runner.dtype).removeprefix("torch."),
        attention=str(getattr(loaded.config, "_attn_implementation", "") or ""),
        transformers=str(transformers.__version__),
        torch=str(torch.__version__),
        parameters=sum(parameter.numel() for parameter in loaded.model.parameters()),
        batch=plan.batch,
        tokens=plan.tokens,
        checks=checks,
        layers=_layers(evidence),
        growth=_growth(evidence),
        peak_bytes=peak,
        seconds=round(time.perf_counter() - started, 3),
        kvlint=__version__,
        python=platform.python_version(),
        seed=plan.seed,
        prompt=tuple(tuple(int(token) for token in row) for row in recording.ids[:, : plan.prompt].tolist()),
        notes=_notes(checks, options),
        projection=projection,
    )


def _notes(checks: Sequence[CheckResult], options: Options) -> tuple[str, ...]:
    """What a reader should know although nothing failed."""
    windows = (check.found for check in checks if check.name == "window" and check.found.startswith("not filled"))
    notes = [f"window {text}" for text in windows]
    if options.at_length and options.source.random_weights and options.source.shrunk:
        notes.append("the bytes are those of the shrunk model (--full-size keeps the sizes of the configuration)")
    return tuple(notes)


def _unsupported(options: Options, reason: str) -> Verification:
    torch, transformers = load_torch(), load_transformers()
    return Verification(
        model=options.source.name,
        model_type=options.source.name if options.source.random_weights else "",
        cache=options.plan.cache,
        device=options.source.device,
        transformers=str(transformers.__version__),
        torch=str(torch.__version__),
        unsupported=reason,
        kvlint=__version__,
        python=platform.python_version(),
        seed=options.plan.seed,
    )


def _layers(evidence: Evidence) -> tuple[LayerSummary, ...]:
    """Shapes and bytes of every layer at the end of the run."""
    recording, plan = evidence.recording, evidence.plan
    summaries = []
    for index, layer in enumerate(cache_layers.self_layers(recording.cache)):
        expected = evidence.expected[index] if index < len(evidence.expected) else None
        keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
        sizes = _sizes(layer, expected, plan, plan.tokens, evidence.runner)
        summaries.append(
            LayerSummary(
                index=index,
                kind=expected.kind.value if expected else "unknown",
                layer_class=type(layer).__name__,
                keys=tuple(keys.shape) if keys is not None else (),
                values=tuple(values.shape) if values is not None else (),
                dtype=str(keys.dtype).removeprefix("torch.") if keys is not None else "",
                device=str(keys.device) if keys is not None else "",
                visible_bytes=cache_layers.visible_bytes(layer),
                held_bytes=cache_layers.held_bytes(layer),
                expected_bytes=sizes[0],
                mha_bytes=sizes[1],
                static_bytes=sizes[2],
                kv_bytes=cache_layers.shown(tensor for tensor in (keys, values) if tensor is not None),
            )
        )
    for index, layer in enumerate(cache_layers.cross_layers(recording.cache)):
        summaries.append(_measured(index, "cross", layer))
    beside = tuple(cache_layers.beside_layers(recording.cache))
    if beside:
        size, held = cache_layers.shown(beside), cache_layers.stored(beside)
        name = type(cache_layers.self_attention(recording.cache)).__name__
        summaries.append(LayerSummary(0, "other", name, (), (), "", "", size, held, 0, 0, 0, "beside"))
    return tuple(summaries)


def _measured(index: int, part: str, layer: Any) -> LayerSummary:
    """A layer of which the configuration says nothing: what is held, as long as the encoder's output."""
    keys, values = cache_layers.keys_of(layer), cache_layers.values_of(layer)
    size = cache_layers.visible_bytes(layer)
    return LayerSummary(
        index, part, type(layer).__name__,
        tuple(keys.shape) if keys is not None else (), tuple(values.shape) if values is not None else (),
        str(keys.dtype).removeprefix("torch.") if keys is not None else "", str(keys.device) if keys is not None else "",
        size, cache_layers.held_bytes(layer), 0, 0, 0, part, size,
    )  # fmt: skip


def _sizes(
    layer: Any, expected: LayerExpectation | None, plan: Plan, tokens: int, runner: Runner
) -> tuple[int, int, int]:
    """Bytes by the grouped-query formula, by the multi-head formula, and as a static cache for the whole run."""
    if expected is None or not expected.kind.attends:
        return 0, 0, 0
    item = runner.torch.empty((), dtype=runner.dtype).element_size()
    rows = rows_expected(layer, expected, tokens)
    preallocated = min(expected.window, plan.tokens) if expected.window else plan.tokens
    return (
        formula_bytes(expected, tokens if rows is None else rows, plan.batch, item) or 0,
        expected.mha_elements(tokens) * plan.batch * item,
        formula_bytes(expected, preallocated, plan.batch, item) or 0,
    )


def _growth(evidence: Evidence) -> tuple[GrowthPoint, ...]:
    """Bytes of the whole cache after every forward of the run."""
    recording: Recording = evidence.recording
    layers = cache_layers.self_layers(recording.cache)
    points = []
    for step in recording.steps:
        tokens = step.start + step.tokens
        sizes = [
            _sizes(layer, expected, evidence.plan, tokens, evidence.runner)
            for layer, expected in zip(layers, evidence.expected, strict=False)
        ]
        points.append(
            GrowthPoint(
                tokens=tokens,
                visible_bytes=step.beside_bytes + sum(held.visible_bytes for held in (*step.after, *step.cross)),
                held_bytes=step.beside_bytes + sum(held.held_bytes for held in (*step.after, *step.cross)),
                expected_bytes=sum(size[0] for size in sizes),
                mha_bytes=sum(size[1] for size in sizes),
                static_bytes=sum(size[2] for size in sizes),
            )
        )
    return tuple(points)
