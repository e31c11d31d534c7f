"""A run over many files: screen, result cache, worker processes; results come back in the order of their paths.

The parent reads every file once and asks the screen; what can match nothing is done then. The rest is answered from
the result cache or linted, in worker processes where there is enough of it to pay for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from kvlint.config import Settings
from kvlint.discovery import FoundFile
from kvlint.engine.index import Index, copy_around, version_of_copy
from kvlint.engine.units import ALONE, Surroundings
from kvlint.fingerprint import digest
from kvlint.folders import cache_folder
from kvlint.roots import code_root, project_root
from kvlint.screen import PYTHON
from kvlint.selection import UNUSED_SUPPRESSION
from kvlint.triggers import table
from kvlint.workers import execute

if TYPE_CHECKING:
    from kvlint.cache import Cache
    from kvlint.findings import Applicability
    from kvlint.jobs import Job, Result
    from kvlint.progress import Progress
    from kvlint.releases import ReleaseSet
    from kvlint.targets import Target

REMEMBERED_FILES = 50
"""In runs over at least so many files, what the screen says of a file is kept too."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run does, beyond the settings of its files.

    *allowed* are the fixes to apply (none: lint only). *cache_folder* "" is the platform's; *environment* is where
    ``--target installed`` looks. *isolated_files*: each file is looked at as if there were no others. *refused* and
    *single* are those of a `FixRequest`.
    """

    cwd: str
    allowed: frozenset[Applicability] = frozenset()
    use_cache: bool = True
    cache_folder: str = ""
    use_suppressions: bool = True
    with_fixes: bool = True
    grouped: bool = True
    """As in `Job`."""
    jobs: int = 0
    environment: str | None = None
    isolated_files: bool = False
    refused: frozenset[str] = frozenset()
    single: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: a result for every file that had anything to say, by path, and how many were looked at."""

    results: tuple[Result, ...]
    files: int
    notices: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()

    @property
    def checked_for(self) -> tuple[str, ...]:
        """The releases that files were checked for, with what said so; empty where no file held a word of interest."""
        return tuple(sorted({f"{target.text} ({target.source})" for target in self.targets}))


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
        from kvlint.targets import resolve
        from kvlint.timeline import the_timeline

        key = self._key(settings, folder)
        if key not in self.known:
            root = root_for(settings, folder)
            self.known[key] = resolve(
                settings.target, the_timeline(), root, self.options.environment, settings.target_from
            )
        return self.known[key]

    def is_known(self, settings: Settings, folder: str) -> bool:
        """True where the target of the files in *folder* has been worked out already."""
        return self._key(settings, folder) in self.known

    def _key(self, settings: Settings, folder: str) -> tuple[str, str | None]:
        return (settings.target, root_for(settings, folder))

    def timeline_length(self) -> int:
        """The number of releases that the timeline knows."""
        from kvlint.timeline import the_timeline

        return len(the_timeline().releases)


def root_for(settings: Settings, folder: str) -> str | None:
    """The folder whose environment or requirements decide the target; None where neither does."""
    word = settings.target.strip().lower()
    if word == "installed":
        return project_root(folder)
    if word in ("", "project"):
        from kvlint.targets import requiring_folder

        return requiring_folder(folder)
    return None


def shown_path(path: str, cwd: str) -> str:
    """*path* as reports name it: relative to *cwd* when below it, always with ``/``."""
    prefix = cwd if cwd.endswith(os.sep) else cwd + os.sep
    return (path[len(prefix) :] if path.startswith(prefix) else path).replace(os.sep, "/")


def run(
    files: Sequence[FoundFile],
    options: Options,
    stdin: bytes | None = None,
    progress: Progress | None = None,
    index: Index | None = None,
) -> Run:
    """Lints *files*; with *stdin* the one file's bytes are those. *progress* is told of every file that is done. *index*
    is what is known of the projects already, for a caller that comes file by file.

    Raises UsageProblem for a target that means nothing.
    """
    results: list[Result] = []
    kept_in = (options.cache_folder or cache_folder()) if options.use_cache else ""
    index = index or Index({files[0].path: stdin} if stdin is not None and files else {}, folder=kept_in)
    stores = Stores(options, index)
    remember = stores if len(files) >= REMEMBERED_FILES and stdin is None else None
    planner = Planner(options, Targets(options), index, remember)

    def keep(result: Result | None) -> None:
        if result is not None:
            results.append(result)
        if progress is not None:
            progress.file(len(result.diagnostics) if result is not None else 0)

    def candidates() -> Iterator[tuple[Job, int]]:
        """What has to be linted, while the rest is still being read."""
        for file in files:
            planned = planner.plan(file, stdin)
            if isinstance(planned, Planned):
                hit = stores.result(planned.job, planned.digest)
                if hit is None or needs_fixing(planned.job, hit):
                    yield planned.job, planned.size
                else:
                    keep(hit)
            else:
                keep(planned)

    jobs = candidates() if options.isolated_files else clustered(candidates())
    for job, result in execute(jobs, options.jobs):
        keep(result)
        stores.keep(job, result)
    targets = planner.targets
    notices = tuple(target.note for target in targets.known.values() if target.note)[:1]
    stores.save()
    results.sort(key=lambda result: result.shown)
    notices += newer_python(results)
    return Run(tuple(results), len(files), notices, tuple(targets.known.values()))


@dataclass(frozen=True, slots=True)
class Planned:
    """A file that has to be looked at: the job, the size of its content and the digest of it."""

    job: Job
    size: int
    digest: str


@dataclass(slots=True)
class Planner:
    """Works out what is to be looked for in a file: by its words, by the files around it, for which releases.

    *triggers* are the rules that the words of a cluster of files ask for, by its paths.
    """

    options: Options
    targets: Targets
    index: Index
    remember: Stores | None = None
    triggers: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    def plan(
        self, file: FoundFile, stdin: bytes | None = None, surroundings: Surroundings | None = None
    ) -> Planned | Result | None:
        """What there is to do for a file; a result where it cannot be read, None where it can have no finding.

        *stdin* stands for the file's content; *surroundings* for what the index says of its project.
        """
        outcome = screen(file, self.options, self.targets, stdin, self.remember)
        around = surroundings or (ALONE if self.options.isolated_files else surroundings_of(self.index, file.path))
        if len(around.around) > 1 and (outcome is None or isinstance(outcome, Candidate)):
            outcome = joined(outcome, file, self.options, self.targets, around.around, stdin, self.triggers)
        if not isinstance(outcome, Candidate):
            return outcome
        target = self.targets.of(file.settings, os.path.dirname(file.path))
        releases = in_copy(file.path, target.releases)
        if not releases:
            return None
        job = replace(make_job(outcome, self.options, releases), surroundings=around)
        return Planned(job, outcome.size, outcome.digest)


NEWER_PYTHON = re.compile(r"this may be syntax of Python (\d+)\.(\d+);")


def newer_python(results: Iterable[Result]) -> tuple[str, ...]:
    """One remark where files could not be read for a syntax that is newer than the Python that runs kvlint."""
    needed = [
        (int(found[1]), int(found[2]))
        for result in results
        if (found := next((said for item in result.diagnostics if (said := NEWER_PYTHON.search(item.message))), None))
    ]
    if not needed:
        return ()
    version = ".".join(map(str, max(needed)))
    files = "1 file seems" if len(needed) == 1 else f"{len(needed):,} files seem"
    how = f"`uvx --python {version} kvlint`, or an environment of Python {version} with kvlint in it"
    return (f"{files} to be written for Python {version}: run kvlint under that one ({how})",)


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
            from kvlint.jobs import Job
            from kvlint.linter import unreadable
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
    from kvlint.jobs import FixRequest, Job

    settings = candidate.file.settings
    fix = None
    if options.allowed:
        fixable, hidden = settings.fixable_codes(), settings.hidden_kinds
        fix = FixRequest(options.allowed, fixable, hidden, options.refused, options.single)
    return Job(
        path=candidate.file.path,
        shown=shown_path(candidate.file.path, options.cwd),
        codes=candidate.codes,
        triggered=candidate.triggered,
        target=target,
        fix=fix,
        fix_docstrings=settings.fix_docstrings,
        use_suppressions=options.use_suppressions,
        with_fixes=options.with_fixes,
        grouped=options.grouped,
        data=candidate.data,
    )


def in_copy(path: str, releases: ReleaseSet) -> ReleaseSet:
    """The releases out of *releases* for which a file is judged: a copy of transformers inside of a project goes with
    itself, so that only what it says it is counts."""
    folder = os.path.dirname(path)
    package = copy_around(folder, code_root(folder))
    if not package:
        return releases
    from kvlint.releases import NO_RELEASE, ReleaseSet
    from kvlint.timeline import the_timeline

    known = the_timeline().releases
    version = version_of_copy(package)
    return releases & ReleaseSet.of(known.index(version)) if version in known else NO_RELEASE


def joined(
    outcome: Candidate | None,
    file: FoundFile,
    options: Options,
    targets: Targets,
    around: tuple[str, ...],
    stdin: bytes | None,
    known: dict[tuple[str, ...], frozenset[str]],
) -> Candidate | None:
    """The outcome of the screen for a file that is walked together with others: their words count as its own.

    *known* is what has been triggered by clusters so far.
    """
    codes, asked = file.settings.codes_for(file.path)
    codes = in_use(codes, asked)
    if around not in known:
        together = b"\n".join(read_bytes(other) if other != file.path or stdin is None else stdin for other in around)
        known[around] = frozenset(screen_bytes(together, file, codes, options, targets).split())
    triggered = known[around] & codes
    if outcome is not None:
        return replace(outcome, triggered=outcome.triggered | triggered)
    if not triggered:
        return None
    data = stdin if stdin is not None else read_bytes(file.path)
    return Candidate(file, codes, triggered, stdin, len(data), digest(data))


def read_bytes(path: str) -> bytes:
    """The content of a file; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as handle:
            return handle.read()
    except OSError:
        return b""


def surroundings_of(index: Index, path: str) -> Surroundings:
    """What the project of a file says about it."""
    return index.surroundings(code_root(os.path.dirname(path)), path)


def clustered(jobs: Iterable[tuple[Job, int]]) -> Iterator[tuple[Job, int]]:
    """The jobs with those of one cluster behind each other."""
    waiting: dict[tuple[str, ...], list[tuple[Job, int]]] = {}
    for job, size in jobs:
        around = job.surroundings.around
        if len(around) < 2:
            yield job, size
        else:
            waiting.setdefault(around, []).append((job, size))
    for together in waiting.values():
        yield from together


@dataclass(slots=True)
class Stores:
    """The result caches of the projects that a run meets."""

    options: Options
    index: Index | None = None
    known: dict[str, Cache] = field(default_factory=dict)

    def of(self, path: str) -> Cache | None:
        """The cache of the project that holds the file (outside of any: of the current folder)."""
        if not self.options.use_cache:
            return None
        project = project_root(os.path.dirname(path)) or self.options.cwd
        if project not in self.known:
            from kvlint.cache import Cache

            self.known[project] = Cache.open(self.options.cache_folder, project, self.surface_of)
        return self.known[project]

    def surface_of(self, path: str) -> str:
        """What the index says that a file shows; "" where it is not asked, or knows nothing of the file."""
        if self.index is None or self.options.isolated_files:
            return ""
        return surroundings_of(self.index, path).surface

    def result(self, job: Job, content: str) -> Result | None:
        """The result that is kept for a job on these bytes."""
        store = self.of(job.path) if job.data is None else None
        return store.get(job, content, timeline_fingerprint()) if store is not None else None

    def keep(self, job: Job, result: Result) -> None:
        """Keeps a result for the next run."""
        store = self.of(job.path) if job.data is None else None
        if store is not None:
            store.put(job, result, timeline_fingerprint())

    def save(self) -> None:
        for store in self.known.values():
            store.save()


def timeline_fingerprint() -> str:
    from kvlint.timeline import the_timeline

    return the_timeline().fingerprint


def needs_fixing(job: Job, result: Result) -> bool:
    """True where a stored result holds something that the job is to fix."""
    return job.fix is not None and any(
        item.fix is not None and item.fix.applicability in job.fix.allowed and item.code in job.fix.fixable
        for item in result.diagnostics
    )
