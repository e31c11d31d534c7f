"""The frozen data types of the runtime check: what one check found, what one model's run found.

Nothing here imports torch or transformers, so reports can be read, merged and rendered without them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Status(str, Enum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A check it builds on failed, so its answer would say nothing new."""
    NOT_APPLICABLE = "not-applicable"
    """The model or its cache class has no such thing (no ``crop`` on linear layers, one head only, ...)."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check on one model.

    *code* is the code of the static rule that finds the same mistake in source text (``KV501``), or empty where no
    rule does. *expected* and *found* are short texts ("[2, 2, 7, 16]"), *deviation* the largest difference measured
    and *tolerance* the largest allowed (both in units of the compared quantity), None where the check is exact.
    *layers* are the 0-based layers that failed.
    """

    name: str
    status: Status
    code: str = ""
    expected: str = ""
    found: str = ""
    explanation: str = ""
    layers: tuple[int, ...] = ()
    deviation: float | None = None
    tolerance: float | None = None

    @property
    def message(self) -> str:
        """One line for people."""
        place = f"layer {', '.join(map(str, self.layers[:6]))}: " if self.layers else ""
        if self.status is Status.FAILED:
            return f"{place}expected {self.expected}, found {self.found}"
        return f"{place}{self.found}" if self.found else self.expected


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """What one cache layer held after the run; shapes are ``(batch, kv heads, length, head dim)``, sizes bytes.

    *part* is "self", "cross" (keys and values of the encoder's output) or "beside" (what a cache class keeps on itself);
    *kv_bytes* are those of keys and values, the rest of *visible_bytes* are states, indexer keys or compressed rows.
    """

    index: int
    kind: str
    layer_class: str
    keys: tuple[int, ...]
    values: tuple[int, ...]
    dtype: str
    device: str
    visible_bytes: int
    held_bytes: int
    expected_bytes: int
    mha_bytes: int
    static_bytes: int
    part: str = "self"
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProjectedLayer:
    """Bytes of one layer at another length and batch (see ``projection.project``): extrapolated, by the formula, and
    with a kv head for every query head; None where no formula holds. *how* says in words how it grows."""

    index: int
    part: str
    kind: str
    bytes: int
    formula_bytes: int | None
    mha_bytes: int | None
    how: str


@dataclass(frozen=True, slots=True)
class Projection:
    """``ProjectedLayer`` for *tokens* tokens in each of *batch* rows."""

    tokens: int
    batch: int
    layers: tuple[ProjectedLayer, ...]


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """Bytes of the whole cache when it had taken *tokens* tokens a row (see ``LayerSummary`` for the four sizes)."""

    tokens: int
    visible_bytes: int
    held_bytes: int
    expected_bytes: int
    mha_bytes: int
    static_bytes: int


@dataclass(frozen=True, slots=True)
class Verification:
    """One model's run: what it was run on, the outcome of every check, the bytes that were held.

    *unsupported* is the reason why no check could be run (empty when they were). *prompt* are the ids that were fed,
    *notes* what a reader should know (a window that was not filled).
    """

    model: str
    model_type: str
    cache: str
    device: str = "cpu"
    dtype: str = ""
    attention: str = ""
    transformers: str = ""
    torch: str = ""
    parameters: int = 0
    batch: int = 0
    tokens: int = 0
    checks: tuple[CheckResult, ...] = ()
    layers: tuple[LayerSummary, ...] = ()
    growth: tuple[GrowthPoint, ...] = ()
    peak_bytes: int | None = None
    seconds: float = 0.0
    unsupported: str = ""
    kvlint: str = ""
    python: str = ""
    seed: int = 0
    prompt: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    projection: Projection | None = None

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status is Status.FAILED)

    @property
    def status(self) -> str:
        """``passed``, ``failed`` or ``unsupported``."""
        if self.unsupported:
            return "unsupported"
        return "failed" if self.failures else "passed"

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values, ready for ``json.dumps``; the inverse of ``from_json``."""
        return {"status": self.status, **asdict(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Verification:
        """The verification that ``to_json`` wrote. Raises KeyError or TypeError where *data* is something else."""
        fields = {key: value for key, value in data.items() if key != "status"}
        fields["checks"] = tuple(
            CheckResult(**{**check, "status": Status(check["status"]), "layers": tuple(check["layers"])})
            for check in data.get("checks", ())
        )
        fields["layers"] = tuple(
            LayerSummary(**{**layer, "keys": tuple(layer["keys"]), "values": tuple(layer["values"])})
            for layer in data.get("layers", ())
        )
        fields["growth"] = tuple(GrowthPoint(**point) for point in data.get("growth", ()))
        fields["prompt"] = tuple(tuple(row) for row in data.get("prompt", ()))
        fields["notes"] = tuple(data.get("notes", ()))
        projected = data.get("projection")
        if projected:
            layers = tuple(ProjectedLayer(**layer) for layer in projected["layers"])
            fields["projection"] = Projection(projected["tokens"], projected["batch"], layers)
        return Verification(**fields)


class CacheError(AssertionError):
    """Raised by ``watch_cache`` and the pytest fixture when a check failed; *failures* says which."""

    def __init__(self, failures: tuple[CheckResult, ...]) -> None:
        self.failures = failures
        lines = [f"{check.code} {check.name}: {check.message}".lstrip() for check in failures]
        super().__init__("; ".join(lines))
