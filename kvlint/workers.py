"""Linting in worker processes, where there is enough of it to pay for them; here, where there is not.

Jobs come in while others are being worked on: what screens them need not be done first.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.context import BaseContext

    from kvlint.jobs import Job, Result

PARALLEL_BYTES = 300_000
"""Worker processes are started for more than this many bytes of files that the screen let pass."""
BATCH_BYTES = 150_000
"""Files are handed to workers in batches of about this size."""
COLLECT_BYTES = 4_000_000
"""The garbage collector is off while files are linted, and runs once after every so many bytes: nearly everything is freed
without it (``Facts.let_go``)."""
RECURSION_LIMIT = 5_000
"""Deep enough for sums of some thousand terms, within the stack that threads have on every platform."""


def execute(jobs: Iterable[tuple[Job, int]], workers: int = 0) -> Iterator[tuple[Job, Result]]:
    """Lints the jobs, given with the sizes of their files in bytes, in as many processes (0: one a core)."""
    workers = workers or usable_cores()
    jobs = iter(jobs)
    first: list[tuple[Job, int]] = []
    size = 0
    for item in jobs:
        first.append(item)
        size += item[1]
        if workers > 1 and size > PARALLEL_BYTES and len(first) > 1:
            yield from execute_in_pool(batched(itertools.chain(first, jobs)), workers, codes_of(first))
            return
    yield from execute_here([job for job, _ in sorted(first, key=in_turn)])


def in_turn(item: tuple[Job, int]) -> tuple[tuple[str, ...], int]:
    """Files that are looked at alone come first, the biggest before the others; then cluster by cluster."""
    job, size = item
    around = job.surroundings.around
    return (around if len(around) > 1 else (), -size)


def execute_here(jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    """Lints in this process."""
    if not jobs:
        return
    lint_one = quiet_linter()
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        for job in jobs:
            yield job, lint_one(job)
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def batched(jobs: Iterable[tuple[Job, int]]) -> Iterator[list[Job]]:
    """Jobs to hand to a worker at once, in their order: files of one folder import the same modules, which a worker keeps
    for a while. Files of one cluster, which are walked together, are never torn apart."""
    batch: list[Job] = []
    room = BATCH_BYTES
    for job, size in jobs:
        together = (
            bool(batch)
            and len(job.surroundings.around) > 1
            and batch[-1].surroundings.around == job.surroundings.around
        )
        if batch and room < size and not together:
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(job)
        room -= size
    if batch:
        yield batch


def codes_of(jobs: Iterable[tuple[Job, int]]) -> frozenset[str]:
    """The rules that one of the jobs triggers."""
    return frozenset().union(*(job.triggered for job, _ in jobs))


def quiet_linter() -> Callable[[Job], Result]:
    """`kvlint.linter.lint` with the garbage collector off while it works."""
    from kvlint.linter import followed_by, forget_project, lint

    forget_project()  # files may have changed since another run of this process
    since_collection = 0
    followed = 0
    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))

    def lint_one(job: Job) -> Result:
        nonlocal since_collection, followed
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return lint(job)
        finally:
            since_collection += len(job.data) if job.data is not None else file_size(job.path)
            now_followed = followed_by(job)
            since_collection += max(now_followed - followed, 0)
            followed = now_followed
            if since_collection > COLLECT_BYTES:
                since_collection = 0
                gc.collect()
            if was_enabled:
                gc.enable()

    return lint_one


def file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def execute_in_pool(batches: Iterable[list[Job]], workers: int, codes: frozenset[str]) -> Iterator[tuple[Job, Result]]:
    """Lints in worker processes. Where one of them dies, what is left is done again, one file at a time.

    *codes* are the rules to import before workers are forked.
    """
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = worker_context()
    if context.get_start_method() == "fork":
        import_before_fork(codes)
        gc.freeze()
    lost: list[Job] = []
    try:
        with worker_pool(workers, context) as pool:
            pending: dict[Future[list[Result]], list[Job]] = {}
            try:
                for batch in batches:
                    try:
                        pending[pool.submit(work_on, batch)] = batch
                    except BrokenProcessPool:
                        lost += batch
                for future in as_completed(pending):
                    batch = pending.pop(future)
                    try:
                        yield from zip(batch, future.result(), strict=True)
                    except BrokenProcessPool:
                        lost += batch
            except BaseException:
                stop_workers(pool)
                raise
        yield from execute_one_by_one(lost, context)
    finally:
        gc.unfreeze()


def worker_pool(workers: int, context: BaseContext) -> ProcessPoolExecutor:
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)


def stop_workers(pool: ProcessPoolExecutor) -> None:
    """Ends the workers at once: nobody waits for their results any more."""
    import multiprocessing

    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()


def execute_one_by_one(jobs: Iterable[Job], context: BaseContext) -> Iterator[tuple[Job, Result]]:
    """Lints in one worker process, replaced when a file has killed it; that file gets an error."""
    from concurrent.futures.process import BrokenProcessPool

    from kvlint.jobs import Fault, Result

    waiting = list(jobs)
    while waiting:
        with worker_pool(1, context) as pool:
            while waiting:
                job = waiting.pop(0)
                try:
                    yield job, pool.submit(work, job).result()
                except BrokenProcessPool:
                    fault = Fault("a worker", job.shown, "the process died (out of memory?)")
                    yield job, Result(job.shown, job.path, (), faults=(fault,))
                    break


def worker_context() -> BaseContext:
    """Forked workers have everything imported already; where there is no fork they start anew."""
    import multiprocessing

    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def import_before_fork(codes: frozenset[str]) -> None:
    """Imports what workers need for the checks with these codes, and loads the timeline."""
    import kvlint.linter
    from kvlint import analysis, checks

    for code in sorted(codes):
        checks.check(code)
    kvlint.timeline.the_timeline()
    assert analysis is not None


def start_worker() -> None:
    """Workers leave the interrupt key to their parent."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


@cache
def worker_linter() -> Callable[[Job], Result]:
    return quiet_linter()


def work(job: Job) -> Result:
    """Lints one file in a worker."""
    return worker_linter()(job)


def work_on(jobs: Sequence[Job]) -> list[Result]:
    """Lints several files in a worker."""
    return [work(job) for job in jobs]


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
