"""Many models, each in a process of its own with a time limit, so that one that hangs or dies takes no other along."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
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
    names: Sequence[str],
    base: Options,
    *,
    limit_seconds: float = 60.0,
    processes: int = 1,
    memory_bytes: int | None = 8 << 30,
    progress: Callable[[int, Verification], None] | None = None,
) -> tuple[Verification, ...]:
    """Verifies every model of *names* with the options of *base*, and returns the results in the order of *names*.

    A model that takes longer than *limit_seconds* or more than *memory_bytes* of address space becomes "unsupported"
    with that reason. *progress* is called with the number of finished models and each result as it comes.
    """
    load_transformers()
    quiet()
    # A fork inherits the imported libraries (seconds a model saved); it must happen before CUDA or threads start.
    forked = base.source.device == "cpu" and "fork" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if forked else "spawn")
    if forked:
        load_torch().set_num_threads(1)
        all_checks()
    waiting = list(enumerate(names))[::-1]
    running: list[_Job] = []
    results: dict[int, Verification] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            index, name = waiting.pop()
            options = replace(base, source=replace(base.source, name=name))
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(options, sender, memory_bytes), daemon=True)
            process.start()
            sender.close()
            running.append(_Job(index, options, process, receiver, time.monotonic() + limit_seconds))
        for job in _finished(running):
            running.remove(job)
            result = _collect(job, limit_seconds)
            results[job.index] = result
            if progress is not None:
                progress(len(results), result)
    return tuple(results[index] for index in range(len(names)))


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
