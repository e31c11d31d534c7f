"""What a check is, what it is given, and how all of them are run.

A check is a function from ``Evidence`` to ``Outcome``, marked with ``@check``. It names the checks it builds on
(*needs*): when one of those failed, this one is skipped, because its answer would only repeat the failure.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.expectations import LayerExpectation
from kvlint.runtime.inspection import EXPLANATIONS, Problem
from kvlint.runtime.models import describe
from kvlint.runtime.probe import Plan, Recording, Runner
from kvlint.runtime.result import CheckResult, Status


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a check may look at: the runner (for runs of its own), the recorded run, what the config says."""

    runner: Runner
    recording: Recording
    expected: tuple[LayerExpectation, ...]

    @property
    def lossy(self) -> bool:
        """True where the cache keeps rows quantized: what is read differs a little from what was written."""
        return any(cache_layers.is_quantized(layer) for layer in cache_layers.self_layers(self.recording.cache))

    @property
    def plan(self) -> Plan:
        """The sizes of the run."""
        return self.runner.plan

    def tolerance(self, reference: Any) -> float:
        """Largest difference allowed between two computations of logits like *reference* in the model's dtype.

        Cached and uncached runs add the same numbers in another order. Measured on 5.24 with random models of all
        families in float32: 1e-5 of the largest logit at most, so 1e-4 is a wide margin; recurrent layers, whose
        chunked scan and single step are different formulas, ten times that; half precisions in proportion to their
        epsilon.
        """
        torch = self.runner.torch
        relative = {torch.float32: 1e-4, torch.float64: 1e-7, torch.float16: 1e-2}.get(self.runner.dtype, 6e-2)
        if relative < 1e-2 and any(layer.kind.recurrent for layer in self.expected):
            relative *= 10
        return float(relative * max(1.0, float(reference.abs().max())))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check function returns; build it with ``passed``, ``failed``, ``problems`` or ``not_applicable``."""

    status: Status
    code: str = ""
    expected: str = ""
    found: str = ""
    layers: tuple[int, ...] = ()
    deviation: float | None = None
    tolerance: float | None = None

    @staticmethod
    def passed(found: str = "", deviation: float | None = None, tolerance: float | None = None) -> Outcome:
        """Everything as it should be."""
        return Outcome(Status.PASSED, found=found, deviation=deviation, tolerance=tolerance)

    @staticmethod
    def failed(
        expected: str,
        found: str,
        code: str = "",
        layers: Sequence[int] = (),
        deviation: float | None = None,
        tolerance: float | None = None,
    ) -> Outcome:
        """Something is not as it should be."""
        return Outcome(Status.FAILED, code, expected, found, tuple(layers), deviation, tolerance)

    @staticmethod
    def not_applicable(reason: str) -> Outcome:
        """The model or its cache has no such thing."""
        return Outcome(Status.NOT_APPLICABLE, found=reason)

    @staticmethod
    def problems(problems: Sequence[Problem], found: str = "") -> Outcome:
        """Passed without problems; else failed, with the first one's words and the layers of all."""
        if not problems:
            return Outcome.passed(found)
        first = problems[0]
        return Outcome.failed(first.expected, first.found, first.code, sorted({problem.layer for problem in problems}))

    @staticmethod
    def compared(found: Any, wanted: Any, tolerance: float, what: str, code: str = "") -> Outcome:
        """Passed where two tensors differ by no more than *tolerance* (absolute, in units of the logits)."""
        if tuple(found.shape) != tuple(wanted.shape):
            return Outcome.failed(f"{what} of shape {list(wanted.shape)}", f"{list(found.shape)}", code)
        gap = float((found - wanted).abs().max())
        if gap <= tolerance:
            return Outcome.passed(f"largest difference {gap:.1e}", gap, tolerance)
        return Outcome.failed(f"{what}: within {tolerance:.1e}", f"a difference of {gap:.1e}", code, (), gap, tolerance)

    @staticmethod
    def resembles(found: Any, wanted: Any, least: float, what: str, layers: Sequence[int] = ()) -> Outcome:
        """Passed where two tensors correlate by at least *least*: for what a quantized cache reads back."""
        if tuple(found.shape) != tuple(wanted.shape):
            return Outcome.failed(f"{what} of shape {list(wanted.shape)}", f"{list(found.shape)}", layers=layers)
        alike = correlation(found, wanted)
        if alike >= least:
            return Outcome.passed(f"correlation {alike:.3f}", 1 - alike, 1 - least)
        expected = f"{what}: a correlation of at least {least}"
        return Outcome.failed(expected, f"{alike:.3f}", "", layers, 1 - alike, 1 - least)


def correlation(first: Any, second: Any) -> float:
    """The correlation of all numbers of two tensors of one shape; 1.0 for two that are constant."""
    one, two = first.double().flatten(), second.double().flatten()
    one, two = one - one.mean(), two - two.mean()
    norms = float(one.norm() * two.norm())
    return float(one @ two) / norms if norms else 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """A check function with its name, what it builds on, and why it matters."""

    name: str
    needs: tuple[str, ...]
    explanation: str
    run: Callable[[Evidence], Outcome]


def check(name: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Evidence], Outcome]], Check]:
    """Declares a check; the function's docstring explains a failure to whoever sees it."""

    def declare(function: Callable[[Evidence], Outcome]) -> Check:
        explanation = EXPLANATIONS.get(name) or " ".join((function.__doc__ or "").split())
        return Check(name, tuple(needs), explanation, function)

    return declare


@cache
def all_checks() -> tuple[Check, ...]:
    """Every check of this package, each after those it builds on, otherwise by module and line."""
    package = importlib.import_module("kvlint.runtime.checks")
    found: list[Check] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found += [value for value in vars(module).values() if isinstance(value, Check)]
    ordered: list[Check] = []
    placed: set[str] = set()
    while found:
        ready = [one for one in found if placed.issuperset(one.needs)]
        if not ready:
            raise RuntimeError(f"checks build on each other in a circle: {', '.join(one.name for one in found)}")
        ordered += ready
        placed |= {one.name for one in ready}
        found = [one for one in found if one.name not in placed]
    return tuple(ordered)


def run_checks(evidence: Evidence, only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[CheckResult, ...]:
    """Runs all checks (or those named in *only* with what they build on) and returns their results in order. Those in
    *skip* are left out and listed as such; what builds on them is run.

    An exception inside a check fails that check with the exception's text; out-of-memory errors pass through.
    """
    wanted = _closure(only) if only else None
    results: dict[str, CheckResult] = {}
    for one in all_checks():
        if wanted is not None and one.name not in wanted:
            continue
        if one.name in skip:
            results[one.name] = CheckResult(one.name, Status.NOT_APPLICABLE, found="left out (--skip)")
            continue
        blocker = next((need for need in one.needs if results[need].status in (Status.FAILED, Status.SKIPPED)), None)
        if blocker is not None:
            results[one.name] = CheckResult(
                one.name, Status.SKIPPED, found=f"builds on {blocker}", explanation=one.explanation
            )
            continue
        results[one.name] = _run(one, evidence)
    return tuple(results.values())


def _closure(names: Sequence[str]) -> set[str]:
    known = {one.name: one for one in all_checks()}
    wanted, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += known[name].needs
    return wanted


def _run(one: Check, evidence: Evidence) -> CheckResult:
    try:
        outcome = one.run(evidence)
    except MemoryError:
        raise
    except Exception as error:  # models and cache classes may raise anything; that is a finding, not a crash
        if type(error).__name__ == "OutOfMemoryError":
            raise
        outcome = Outcome.failed("no exception", describe(error))
    return CheckResult(
        one.name, outcome.status, outcome.code, outcome.expected, outcome.found, one.explanation, outcome.layers,
        outcome.deviation, outcome.tolerance,
    )  # fmt: skip
