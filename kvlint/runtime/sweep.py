"""Many models, each in a process of its own with a time limit, so that one that hangs or dies takes no other along."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from kvlint.runtime.checks.base import all_checks
from kvlint.runtime.environment import load_torch, load_transformers, quiet
from kvlint.runtime.models import ModelUnavailable
from kvlint.runtime.result import Verification
from kvlint.runtime.verify import Options, verify


@dataclass(frozen=True, slots=True)
class _Job:
    index: int
    options: Options
    process: Any
    receiver: Connection
    deadline: float


def sweep(
    wanted: Sequence[Options],
    *,
    limit_seconds: float = 60.0,
    processes: int = 1,
    memory_bytes: int | None = 8 << 30,
    progress: Callable[[int, Verification], None] | None = None,
    resume: Path | None = None,
) -> tuple[Verification, ...]:
    """Verifies every model of *wanted*, and returns the results in that order.

    A model that takes longer than *limit_seconds* or more than *memory_bytes* of address space becomes "unsupported"
    with that reason. *progress* is called with the number of finished models and each result as it comes. *resume* is a
    file that gets each result as a line when it is there; models that it has already are not run again. Raises
    ValueError where that file holds something else or results of other releases, and OSError where it cannot be read.
    """
    load_transformers()
    quiet()
    # A fork inherits the imported libraries (seconds a model saved); it must happen before CUDA or threads start.
    forked = all(one.source.device == "cpu" for one in wanted) and "fork" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if forked else "spawn")
    if forked:
        load_torch().set_num_threads(1)
        all_checks()
    known = _kept(resume)
    results: dict[int, Verification] = {}
    waiting: list[tuple[int, Options]] = []
    for index, options in enumerate(wanted):
        kept = known.get((options.source.name, options.plan.cache))
        if kept is None:
            waiting.append((index, options))
        else:
            results[index] = kept
    waiting.reverse()
    running: list[_Job] = []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index, options = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(options, sender, memory_bytes), daemon=True)
                process.start()
                sender.close()
                running.append(_Job(index, options, process, receiver, time.monotonic() + limit_seconds))
            for job in _finished(running):
                running.remove(job)
                result = _collect(job, limit_seconds)
                results[job.index] = result
                _keep(resume, result)
                if progress is not None:
                    progress(len(results), result)
    finally:
        for job in running:  # only after an interruption
            job.process.kill()
    return tuple(results[index] for index in range(len(wanted)))


def _kept(path: Path | None) -> dict[tuple[str, str], Verification]:
    """The results of an earlier sweep by model and cache; a last line that was cut off by a kill is left out."""
    if path is None or not path.exists():
        return {}
    found: dict[tuple[str, str], Verification] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines[:-1]):
        try:
            one = Verification.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number + 1} is no result of a sweep") from error
        if one.transformers != _version("transformers"):
            raise ValueError(f"holds results of transformers {one.transformers}: give another file")
        found[(one.model, one.cache)] = one
    if lines[-1]:
        path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")
    return found


def _keep(path: Path | None, result: Verification) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result.to_json()) + "\n")


def _finished(running: Sequence[_Job]) -> list[_Job]:
    patience = max(0.0, min(job.deadline for job in running) - time.monotonic())
    ready = wait([job.receiver for job in running], timeout=patience)
    now = time.monotonic()
    return [job for job in running if job.receiver in ready or now >= job.deadline]


def _collect(job: _Job, limit_seconds: float) -> Verification:
    result: Verification | None = None
    late = not job.receiver.poll()
    if not late:
        try:
            result = job.receiver.recv()
        except EOFError:
            result = None
    if job.process.is_alive() and result is None and late:
        job.process.kill()
    job.process.join()
    job.receiver.close()
    if result is not None:
        return result
    reason = (
        f"took longer than {limit_seconds:.0f} s" if late else f"the process died (exit code {job.process.exitcode})"
    )
    empty = Verification(job.options.source.name, job.options.source.name, job.options.plan.cache, unsupported=reason)
    return replace(empty, seconds=limit_seconds if late else 0.0, transformers=_version("transformers"))


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def _work(options: Options, sender: Connection, memory_bytes: int | None) -> None:
    """Runs in the child: one model, the result through the pipe."""
    if memory_bytes is not None and options.source.device == "cpu":
        _limit_memory(memory_bytes)
    quiet()
    _discard_output()
    try:
        result = verify(options)
    except ModelUnavailable as error:
        result = Verification(options.source.name, "", options.plan.cache, unsupported=str(error))
    sender.send(result)
    sender.close()


def _limit_memory(count: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (count, count))


def _discard_output() -> None:
    """Model code prints; a child's prints would tear the parent's progress line."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
