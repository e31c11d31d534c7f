"""One model through the whole check: load, record, judge, summarise."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, run_checks
from kvlint.runtime.checks.memory import formula_bytes
from kvlint.runtime.environment import load_torch, load_transformers
from kvlint.runtime.expectations import LayerExpectation, expected_for
from kvlint.runtime.inspection import rows_expected
from kvlint.runtime.models import Loaded, ModelUnavailable, NotConstructible, Source, candidates, describe, load
from kvlint.runtime.probe import Broken, NoCache, Plan, Recording, Runner, record
from kvlint.runtime.result import GrowthPoint, LayerSummary, Verification


@dataclass(frozen=True, slots=True)
class Options:
    """A model, a plan of the run, and which checks (all when *only* is empty)."""

    source: Source
    plan: Plan = field(default_factory=Plan)
    only: tuple[str, ...] = ()


def verify(options: Options) -> Verification:
    """Loads the model of *options* and checks the cache that it really builds.

    What keeps the check from running (no cache at all, a constructor that refuses, too little memory) becomes the
    ``unsupported`` reason of the result. Raises ModelUnavailable for a model that cannot be had, and
    RuntimeUnavailable without torch or transformers.
    """
    started = time.perf_counter()
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
        return verify_model(load(options.source), options.plan, options.only)
    last: Exception | None = None
    for loaded in candidates(options.source):
        try:
            return _examined(loaded, options.plan, options.only)
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # this shrinking cannot be run; another one, closer to the defaults, may
            last = error
    raise last or NotConstructible("no shrinking of its configuration can be built")


def verify_model(loaded: Loaded, plan: Plan | None = None, only: tuple[str, ...] = ()) -> Verification:
    """Checks a model that is already there. Raises NoCache or UnsupportedCache where there is nothing to check."""
    plan = plan or Plan()
    try:
        return _examined(loaded, plan, only)
    except Broken as error:
        about = Options(Source(loaded.name, device=str(next(loaded.model.parameters()).device)), plan)
        return replace(_unsupported(about, ""), model_type=loaded.model_type, checks=(error.result,))


def _examined(loaded: Loaded, plan: Plan, only: tuple[str, ...]) -> Verification:
    """As ``verify_model``, but a model without a cache that could be looked at raises Broken."""
    torch, transformers = load_torch(), load_transformers()
    started = time.perf_counter()
    runner = Runner(loaded, plan)
    cuda = runner.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(runner.device)
    recording = record(runner)
    peak = int(torch.cuda.max_memory_allocated(runner.device)) if cuda else None
    expected = expected_for(loaded.config, len(cache_layers.self_layers(recording.cache)))
    evidence = Evidence(runner, recording, expected)
    checks = run_checks(evidence, only)
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
    )


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
            )
        )
    return tuple(summaries)


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
                visible_bytes=sum(held.visible_bytes for held in step.after),
                held_bytes=sum(held.held_bytes for held in step.after),
                expected_bytes=sum(size[0] for size in sizes),
                mha_bytes=sum(size[1] for size in sizes),
                static_bytes=sum(size[2] for size in sizes),
            )
        )
    return tuple(points)
