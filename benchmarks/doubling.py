"""Does twice the input cost twice as much? Every shape of `shapes.py`, grown until it costs something, then doubled.

    python benchmarks/doubling.py                       # all shapes, a table and the worst ratio
    python benchmarks/doubling.py "chat turns" branches # some of them
    python benchmarks/doubling.py --seconds 0.5         # bigger inputs: steadier ratios

CPU seconds and peak memory are those of a process of its own a measurement, forked after everything was imported. One
that takes longer than its limit is stopped and shown as such. Exits 1 where a ratio is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from shapes import PROJECTS, SHAPES, ProjectShape, Shape  # noqa: E402

LIMIT = 2.2
"""The highest ratio of CPU seconds for twice the input that passes."""
FIRST = 16
MOST_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost: CPU seconds, the memory that it added in MiB, findings; *died* where it was stopped."""

    seconds: float
    memory: float
    findings: int
    died: bool = False


@dataclass(frozen=True, slots=True)
class Growth:
    """What a shape costs at *copies* and at twice as many."""

    shape: str
    copies: int
    size: int
    once: Cost
    twice: Cost

    @property
    def ratio(self) -> float:
        return self.twice.seconds / max(self.once.seconds, 1e-6)


def lint_project(shape: ProjectShape, copies: int) -> int:
    """Lints a project of this shape, cold and in one process, and returns the number of findings."""
    import tempfile
    from dataclasses import replace

    from kvlint.public import lint_paths, settings_for

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        package = root / "project"
        package.mkdir()
        (root / "pyproject.toml").write_text("")
        (package / "__init__.py").write_text("")
        for name, text in shape.build(copies).items():
            (package / f"{name}.py").write_text(text)
        settings = replace(settings_for(root), jobs=1)
        return len(lint_paths([root], settings, cache=False).findings)


def lint_copies(shape: Shape | ProjectShape, copies: int) -> int:
    """Lints *copies* of a shape and returns the number of findings."""
    if isinstance(shape, ProjectShape):
        return lint_project(shape, copies)
    return lint_text(shape, shape.build(copies))


def size_of(shape: Shape | ProjectShape, copies: int) -> int:
    """Characters of so many copies."""
    built = shape.build(copies)
    return len(built) if isinstance(built, str) else sum(map(len, built.values()))


def lint_text(shape: Shape, text: str) -> int:
    """Lints a file of this shape in this process and returns the number of findings."""
    from kvlint.checks import all_checks
    from kvlint.findings import Applicability
    from kvlint.jobs import FixRequest, Job
    from kvlint.screen import candidates
    from kvlint.timeline import the_timeline
    from kvlint.workers import execute_here

    codes = frozenset(check.code for check in all_checks()) | {"KV000", "KV900"}
    data = text.encode()
    name = f"file{shape.suffix}"
    everything = frozenset({Applicability.SAFE, Applicability.UNSAFE})
    job = Job(
        path=f"/nowhere/{name}",
        shown=name,
        codes=codes,
        triggered=candidates(data, codes, name),
        target=the_timeline().matching("5.24.0"),
        fix=FixRequest(everything, codes) if shape.fix else None,
        data=data,
    )
    return sum(len(result.diagnostics) for _, result in execute_here([job]))


def measured(shape: Shape | ProjectShape, copies: int, limit: int) -> Cost:
    """The cost of *copies* of a shape, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            before = resource.getrusage(resource.RUSAGE_SELF)
            found = lint_copies(shape, copies)
            after = resource.getrusage(resource.RUSAGE_SELF)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            memory = (after.ru_maxrss - before.ru_maxrss) / 1024
            os.write(write, json.dumps([seconds, memory, found]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return Cost(*json.loads(answer)) if answer else Cost(float(limit), 0.0, 0, died=True)


def growth(shape: Shape | ProjectShape, enough: float, limit: int) -> Growth:
    """Doubles a shape until it costs *enough* seconds, and once more."""
    copies = FIRST
    cost = measured(shape, copies, limit)
    while cost.seconds < enough and size_of(shape, copies * 2) < MOST_BYTES:
        copies *= 2
        cost = measured(shape, copies, limit)
    again = measured(shape, copies, limit) if not cost.died else cost
    cost = min(cost, again, key=lambda item: item.seconds)
    twice = cost if cost.died else measured(shape, copies * 2, limit)
    if not twice.died and twice.seconds > LIMIT * cost.seconds:
        second = measured(shape, copies * 2, limit)
        twice = min(twice, second, key=lambda item: item.seconds)
    return Growth(shape.name, copies, size_of(shape, copies), cost, twice)


def row(item: Growth) -> str:
    over = " died" if item.twice.died else " OVER" if item.ratio > LIMIT else ""
    return (
        f"{item.shape:36} {item.copies:6} {item.size / 1000:8.1f} KB {item.once.seconds:7.2f} s {item.twice.seconds:7.2f} s"
        f" {item.ratio:6.2f} {item.twice.memory:6.0f} MiB {item.twice.findings:6}{over}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("shapes", nargs="*", help="names of shapes, or parts of them (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=0.15, help="grow each shape until it costs so many CPU seconds"
    )
    parser.add_argument("--limit", type=int, default=20, help="CPU seconds after which a measurement is stopped")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)
    chosen = [
        shape
        for shape in (*SHAPES, *PROJECTS)
        if not options.shapes or any(word in shape.name for word in options.shapes)
    ]
    lint_text(SHAPES[0], SHAPES[0].build(2))
    found = []
    for shape in chosen:
        item = growth(shape, options.seconds, options.limit)
        found.append(item)
        print(row(item), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(item) for item in found], indent=1) + "\n")
    wrong = [item for item in found if item.ratio > LIMIT or item.twice.died]
    print(f"{len(found)} shapes, {len(wrong)} above {LIMIT} times for twice the input")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
