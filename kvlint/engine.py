"""A run over many files: screen, result cache, worker processes; results come back in the order of their paths.

The parent reads every file once and asks the screen; what can match nothing is done then. The rest is answered from
the result cache or linted, in worker processes where there is enough of it to pay for them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kvlint.config import Settings
from kvlint.discovery import FoundFile
from kvlint.fingerprint import digest
from kvlint.screen import PYTHON
from kvlint.selection import UNUSED_SUPPRESSION
from kvlint.triggers import table

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.context import BaseContext

    from kvlint.cache import Cache
    from kvlint.findings import Applicability
    from kvlint.lint import Job, Result
    from kvlint.releases import ReleaseSet
    from kvlint.targets import Target

PARALLEL_BYTES = 300_000
"""Worker processes are started for more than this many bytes of files that the screen let pass."""
BATCH_BYTES = 150_000
"""Files are handed to workers in batches of about this size."""
COLLECT_BYTES = 4_000_000
"""The garbage collector is off while files are linted and runs once after every so many bytes (syntax trees take some
hundred times their source; with 4 MB the process grows to 180 MB, with 1 MB to 100 MB, for 5 % more time)."""
REMEMBERED_FILES = 50
"""In runs over at least so many files, what the screen says of a file is kept too."""
RECURSION_LIMIT = 5_000
"""Deep enough for sums of some thousand terms, within the stack that threads have on every platform."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run does, beyond the settings of its files.

    *allowed* are the fixes to apply (none: lint only). *cache_folder* "" is the platform's; *environment* is where
    ``--target installed`` looks.
    """

    cwd: str
    allowed: frozenset[Applicability] = frozenset()
    use_cache: bool = True
    cache_folder: str = ""
    use_suppressions: bool = True
    with_fixes: bool = True
    jobs: int = 0
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: a result for every file that had anything to say, by path, and how many were looked at."""

    results: tuple[Result, ...]
    files: int
    notices: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(slots=True)
class Candidate:
    """A file that the screen let pass."""

    file: FoundFile
    codes: frozenset[str]
    triggered: frozenset[str]
    data: bytes | None
    size: int
    digest: str


@dataclass(slots=True)
class Targets:
    """The target ranges of a run, each worked out once."""

    options: Options
    known: dict[tuple[str, str | None], Target] = field(default_factory=dict)

    def of(self, settings: Settings, folder: str) -> Target:
        """The target of the files in *folder*. Raises UsageProblem where the settings ask for none that is known."""
        from kvlint.lint import the_timeline
        from kvlint.targets import resolve

        key = self._key(settings, folder)
        if key not in self.known:
            root = project_root(folder)
            self.known[key] = resolve(settings.target, the_timeline(), root, self.options.environment)
        return self.known[key]

    def is_known(self, settings: Settings, folder: str) -> bool:
        """True where the target of the files in *folder* has been worked out already."""
        return self._key(settings, folder) in self.known

    def _key(self, settings: Settings, folder: str) -> tuple[str, str | None]:
        near = settings.target.strip().lower() in ("", "installed", "project")
        return (settings.target, project_root(folder) if near else None)

    def timeline_length(self) -> int:
        """The number of releases that the timeline knows."""
        from kvlint.lint import the_timeline

        return len(the_timeline().releases)


@cache
def project_root(folder: str) -> str | None:
    """The root of the project that *folder* lies in."""
    from kvlint.analysis.project import ROOT_MARKERS

    if any(os.path.exists(os.path.join(folder, marker)) for marker in ROOT_MARKERS):
        return folder
    parent = os.path.dirname(folder)
    return None if parent == folder else project_root(parent)


def shown_path(path: str, cwd: str) -> str:
    """*path* as reports name it: relative to *cwd* when below it, always with ``/``."""
    prefix = cwd if cwd.endswith(os.sep) else cwd + os.sep
    return (path[len(prefix) :] if path.startswith(prefix) else path).replace(os.sep, "/")


def run(files: Sequence[FoundFile], options: Options, stdin: bytes | None = None) -> Run:
    """Lints *files*; with *stdin* the one file's bytes are those.

    Raises UsageProblem for a target that means nothing.
    """
    results: list[Result] = []
    found: list[Candidate] = []
    stores = Stores(options)
    remember = stores if len(files) >= REMEMBERED_FILES and stdin is None else None
    targets = Targets(options)
    for file in files:
        outcome = screen(file, options, targets, stdin, remember)
        if isinstance(outcome, Candidate):
            found.append(outcome)
        elif outcome is not None:
            results.append(outcome)
    notices: tuple[str, ...] = ()
    if found:
        jobs, sizes, digests = [], [], []
        for candidate in found:
            folder = os.path.dirname(candidate.file.path)
            jobs.append(make_job(candidate, options, targets.of(candidate.file.settings, folder).releases))
            sizes.append(candidate.size)
            digests.append(candidate.digest)
        results += lint_all(jobs, sizes, digests, stores)
        notices = tuple(target.note for target in targets.known.values() if target.note)[:1]
    stores.save()
    results.sort(key=lambda result: result.shown)
    return Run(tuple(results), len(files), notices, tuple(targets.known.values()))


def screen(
    file: FoundFile, options: Options, targets: Targets, stdin: bytes | None, stores: Stores | None = None
) -> Candidate | Result | None:
    """None for a file that can have no finding, a result for one that cannot be read.

    With *stores* the answer is kept there from one run to the next.
    """
    codes, asked = file.settings.codes_for(file.path)
    codes = in_use(codes, asked)
    data = stdin
    if data is None:
        try:
            with open(file.path, "rb", buffering=0) as handle:
                data = handle.read()
        except OSError as problem:
            from kvlint.lint import Job, unreadable
            from kvlint.releases import NO_RELEASE

            job = Job(file.path, shown_path(file.path, options.cwd), codes, frozenset(), NO_RELEASE)
            return unreadable(job, f"cannot be read: {(problem.strerror or str(problem)).lower()}")
    content = ""
    store = stores.of(file.path) if stores is not None else None
    if store is None:
        outcome = screen_bytes(data, file, codes, options, targets)
    else:
        content = digest(data)
        rules = name_of_rules(codes, file.path.endswith(PYTHON), file.settings.target, options)
        known = store.screened(content, rules)
        outcome = screen_bytes(data, file, codes, options, targets) if known is None else known
        if known is None:
            store.keep_screen(content, rules, outcome)
    if not outcome:
        return None
    triggered = frozenset(outcome.split()) & codes
    return Candidate(file, codes, triggered, stdin, len(data), content or digest(data))


def screen_bytes(data: bytes, file: FoundFile, codes: frozenset[str], options: Options, targets: Targets) -> str:
    """The rules that could fire on these bytes, as words; ``-`` where only an ignore comment is to be looked at.

    The releases in force are looked up only for files that hold something of interest for some release.
    """
    from kvlint.screen import candidates

    folder = os.path.dirname(file.path)
    triggered = codes if targets.is_known(file.settings, folder) else candidates(data, codes, file.path)
    if triggered:
        releases = targets.of(file.settings, folder).releases
        triggered = candidates(data, triggered, file.path, releases.bits, targets.timeline_length())
    if triggered:
        return " ".join(sorted(triggered))
    return "-" if options.use_suppressions and may_hold_a_needless_comment(data, codes) else ""


@cache
def name_of_rules(codes: frozenset[str], python: bool, target: str, options: Options) -> str:
    """A short name for what a screen looks for."""
    words = f"{' '.join(sorted(codes))} {python} {target} {options.environment} {options.use_suppressions}"
    return digest(words.encode("utf-8", "surrogateescape"))[:8]


def may_hold_a_needless_comment(data: bytes, codes: frozenset[str]) -> bool:
    """True where a file that triggers no rule may still hold an ignore comment to complain about."""
    if UNUSED_SUPPRESSION[0] not in codes or not (b"kvlint" in data or b"noqa" in data):
        return False
    from kvlint.suppression import could_be_unused

    return could_be_unused(data)


@cache
def off_by_default() -> frozenset[str]:
    """The rules that run only when they are selected by name, prefix or ``ALL``."""
    return frozenset(trigger.code for trigger in table() if not trigger.default)


def in_use(codes: frozenset[str], asked: frozenset[str]) -> frozenset[str]:
    """*codes* without the rules that are off unless asked for."""
    return codes - (off_by_default() - asked)


def make_job(candidate: Candidate, options: Options, target: ReleaseSet) -> Job:
    from kvlint.lint import FixRequest, Job

    settings = candidate.file.settings
    return Job(
        path=candidate.file.path,
        shown=shown_path(candidate.file.path, options.cwd),
        codes=candidate.codes,
        triggered=candidate.triggered,
        target=target,
        fix=FixRequest(options.allowed, settings.fixable_codes(), settings.hidden_kinds) if options.allowed else None,
        fix_docstrings=settings.fix_docstrings,
        use_suppressions=options.use_suppressions,
        with_fixes=options.with_fixes,
        data=candidate.data,
    )


def lint_all(jobs: Sequence[Job], sizes: Sequence[int], digests: Sequence[str], stores: Stores) -> list[Result]:
    """The results of all *jobs*, from the cache or by linting."""
    from kvlint.lint import the_timeline

    timeline = the_timeline().fingerprint
    results: list[Result] = []
    waiting: list[int] = []
    for index, job in enumerate(jobs):
        store = stores.of(job.path) if job.data is None else None
        hit = store.get(job, digests[index], timeline) if store is not None else None
        if hit is not None and not needs_fixing(job, hit):
            results.append(hit)
        else:
            waiting.append(index)
    for index, result in execute(jobs, waiting, sizes, stores.options.jobs):
        results.append(result)
        store = stores.of(result.path) if jobs[index].data is None else None
        if store is not None:
            store.put(jobs[index], result, timeline)
    return results


@dataclass(slots=True)
class Stores:
    """The result caches of the projects that a run meets."""

    options: Options
    known: dict[str, Cache] = field(default_factory=dict)

    def of(self, path: str) -> Cache | None:
        """The cache of the project that holds the file (outside of any: of the current folder)."""
        if not self.options.use_cache:
            return None
        project = project_root(os.path.dirname(path)) or self.options.cwd
        if project not in self.known:
            from kvlint.cache import Cache

            self.known[project] = Cache.open(self.options.cache_folder, project)
        return self.known[project]

    def save(self) -> None:
        for store in self.known.values():
            store.save()


def needs_fixing(job: Job, result: Result) -> bool:
    """True where a stored result holds something that the job is to fix."""
    return job.fix is not None and any(
        item.fix is not None and item.fix.applicability in job.fix.allowed and item.code in job.fix.fixable
        for item in result.diagnostics
    )


def execute(
    jobs: Sequence[Job], waiting: Sequence[int], sizes: Sequence[int], workers: int
) -> Iterator[tuple[int, Result]]:
    """Lints the *waiting* jobs, the big files first; in this process where there is little to do."""
    batches = batched(jobs, waiting, sizes)
    total = sum(sizes[index] for index in waiting)
    workers = min(workers or usable_cores(), len(batches))
    if workers > 1 and total > PARALLEL_BYTES:
        yield from execute_in_pool(jobs, batches, workers)
        return
    lint_one = quiet_linter()
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        for index in (index for batch in batches for index in batch):
            yield index, lint_one(jobs[index])
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def batched(jobs: Sequence[Job], waiting: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """The *waiting* jobs in batches that are handed to a worker at once, the big ones first.

    Files of one folder stay together: they import the same modules, which a worker keeps for a while.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(waiting, key=lambda index: os.path.split(jobs[index].path)):
        if room < sizes[index]:
            batches.append([])
            room = BATCH_BYTES
        batches[-1].append(index)
        room -= sizes[index]
    return sorted(batches, key=lambda batch: -sum(sizes[index] for index in batch))


def quiet_linter() -> Callable[[Job], Result]:
    """`kvlint.lint.lint` with the garbage collector off while it works."""
    from kvlint.lint import followed_by, lint

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


def execute_in_pool(jobs: Sequence[Job], batches: Sequence[list[int]], workers: int) -> Iterator[tuple[int, Result]]:
    """Lints in worker processes. Where one of them dies, what is left is done again, one file at a time."""
    from concurrent.futures import as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = worker_context()
    if context.get_start_method() == "fork":
        import_before_fork(frozenset().union(*(job.triggered for job in jobs)))
        gc.freeze()
    lost: list[int] = []
    try:
        with worker_pool(workers, context) as pool:
            pending = {pool.submit(work_on, [jobs[index] for index in batch]): batch for batch in batches}
            try:
                for future in as_completed(pending):
                    batch = pending.pop(future)
                    try:
                        yield from zip(batch, future.result(), strict=True)
                    except BrokenProcessPool:
                        lost += batch
            except BaseException:
                stop_workers(pool)
                raise
        yield from execute_one_by_one(jobs, lost, context)
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


def execute_one_by_one(jobs: Sequence[Job], order: Sequence[int], context: BaseContext) -> Iterator[tuple[int, Result]]:
    """Lints in one worker process, replaced when a file has killed it; that file gets an error."""
    from concurrent.futures.process import BrokenProcessPool

    from kvlint.lint import Fault, Result

    waiting = list(order)
    while waiting:
        with worker_pool(1, context) as pool:
            while waiting:
                index = waiting.pop(0)
                try:
                    yield index, pool.submit(work, jobs[index]).result()
                except BrokenProcessPool:
                    shown = jobs[index].shown
                    fault = Fault("a worker", shown, "the process died (out of memory?)")
                    yield index, Result(shown, jobs[index].path, (), faults=(fault,))
                    break


def worker_context() -> BaseContext:
    """Forked workers have everything imported already; where there is no fork they start anew."""
    import multiprocessing

    return multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def import_before_fork(codes: frozenset[str]) -> None:
    """Imports what workers need for the checks with these codes, and loads the timeline."""
    import kvlint.lint
    from kvlint import analysis, checks

    for code in sorted(codes):
        checks.check(code)
    kvlint.lint.the_timeline()
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
