"""The half of the server that lints: settings, targets and modules of the project stay warm from one look to the next.

Everything here is a function of a buffer and of what lies on disk; nothing knows of the protocol.
"""

from __future__ import annotations

import io
import os
import tokenize
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.config import Resolver, Settings
from kvlint.discovery import FoundFile
from kvlint.engine.index import Index, copy_around, lowered, version_of_copy
from kvlint.engine.units import ALONE, Surroundings, Unit
from kvlint.errors import UsageProblem
from kvlint.findings import Applicability
from kvlint.jobs import FixRequest, Job, Result, worded_faults
from kvlint.run import Candidate, Options, Planned, Planner, Targets, make_job
from kvlint.screen import PYTHON
from kvlint.server.buffers import Buffer, Offer, Seen, Spot, Told
from kvlint.server.options import ClientOptions
from kvlint.triggers import table
from kvlint.workers import work

if TYPE_CHECKING:
    from kvlint.linter import Look

INSTALLED = "site-packages"
KEPT_LOOKS = 4
SAFE = frozenset({Applicability.SAFE})
OFFERED = frozenset({Applicability.SAFE, Applicability.UNSAFE})


@dataclass(slots=True)
class Roots:
    """The settings and targets of one workspace folder, as far as they were asked for."""

    resolver: Resolver
    options: Options
    targets: Targets


@dataclass(slots=True)
class Session:
    """Looks at buffers. *client* is what the editor has set."""

    client: ClientOptions = field(default_factory=ClientOptions)
    roots: dict[str, Roots] = field(default_factory=dict)
    results: dict[Job, Result] = field(default_factory=dict)
    looks: dict[Job, Look] = field(default_factory=dict)
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """When the files that decided something were written, and their sizes: not every editor tells of changed files."""
    units: dict[str, tuple[str, Unit | None]] = field(default_factory=dict)
    """What was lowered of the files of all projects, as in `Index`."""
    plans: dict[str, tuple[Planner, Surroundings]] = field(default_factory=dict)
    """By path: how the last whole look at a buffer was planned, and what its project said about it."""

    def use(self, client: ClientOptions) -> None:
        """Has other options of the editor hold from now on."""
        self.client = client
        self.forget(())

    def warm(self) -> None:
        """Imports what the first look needs."""
        from kvlint.workers import import_before_fork

        import_before_fork(frozenset(trigger.code for trigger in table()))

    def see(self, buffer: Buffer, typing: bool = False) -> Seen:
        """The findings of a buffer that are to be shown. *typing*: quickly, with the files around it as they were."""
        passing = typing and buffer.path in self.plans and buffer.path.endswith(PYTHON)
        try:
            asked = self.job_of(buffer, typing=typing)
        except UsageProblem as problem:
            return Seen(problem=str(problem))
        if asked is None:
            return Seen(passing=passing)
        job, settings = asked
        result = self.result(job)
        hidden = settings.hidden_kinds
        shown = tuple(item for item in result.diagnostics if item.category.value not in hidden)
        if shown and not buffer.cells and is_notebook(buffer.path):
            from kvlint.server.fixes import in_document

            shown = tuple(map(in_document, shown))
        faults = tuple(worded_faults(result.faults)) if result.faults else ()
        return Seen(shown, "", result.notices, faults, passing=passing)

    def offers(self, buffer: Buffer, spot: Spot) -> tuple[Offer, ...]:
        """The fixes of the findings at *spot*, each of which can be applied alone."""
        seen = self.see(buffer, typing=True).diagnostics
        if not any(item.fix is not None and item.fix.edits for item in seen if spot.touches(item)):
            return ()
        asked = self.asked(buffer)
        if asked is None:
            return ()
        job, settings = asked
        from kvlint.server.fixes import offers

        fixable = FixRequest(OFFERED, settings.fixable_codes(), settings.hidden_kinds)
        return offers(job, self.look(job), fixable, spot, buffer.cells)

    def fixed(self, buffer: Buffer) -> str | None:
        """The text with every safe fix applied (with unsafe ones where the settings say so); None for no change."""
        from kvlint.fixing import allowed_applicabilities
        from kvlint.linter import lint

        asked = self.asked(buffer)
        if asked is None:
            return None
        job, settings = asked
        request = FixRequest(
            allowed_applicabilities(settings.unsafe_fixes), settings.fixable_codes(), settings.hidden_kinds
        )
        result = lint(replace(job, fix=request))
        if result.fixed is None:
            return None
        return result.fixed.decode(encoding_of(buffer.path, buffer.text))

    def tell(self, buffer: Buffer, spot: Spot) -> Told | None:
        """What is known at *spot*: the findings there, and the life of the name there."""
        from kvlint.server.hover import tell

        try:
            asked = self.job_of(buffer, screened=False, typing=True)
        except UsageProblem:
            return None
        return None if asked is None else tell(asked[0], self.see(buffer, typing=True).diagnostics, buffer, spot)

    def forget(self, paths: tuple[str, ...]) -> None:
        """Lets go of what the files at *paths* decided; with none, of everything that was read."""
        from kvlint.linter import forget_project
        from kvlint.roots import code_root, project_root
        from kvlint.targets import in_repository, nearest_requirement

        self.results.clear()
        self.looks.clear()
        self.stamps.clear()
        self.plans.clear()
        python = bool(paths) and all(path.endswith((".py", ".pyi")) for path in paths)
        if not python or any(os.path.basename(path) == "setup.py" for path in paths):
            self.roots.clear()
            for decided in (project_root, nearest_requirement, in_repository):
                decided.cache_clear()
        for known in (code_root, copy_around, version_of_copy):
            known.cache_clear()
        forget_project()

    def asked(self, buffer: Buffer) -> tuple[Job, Settings] | None:
        """As `job_of`, where wrong settings leave nothing to look at: they were told with the findings."""
        try:
            return self.job_of(buffer)
        except UsageProblem:
            return None

    def job_of(self, buffer: Buffer, screened: bool = True, typing: bool = False) -> tuple[Job, Settings] | None:
        """What to look for in a buffer; None where it is excluded or, if it is *screened*, can hold no finding.

        *typing*: what the project says about the buffer may be that of its last whole look. Raises UsageProblem.
        """
        roots = self.roots_of(buffer.root)
        folder = os.path.dirname(buffer.path)
        settings = roots.resolver.for_folder(folder)
        if settings.excludes(buffer.path) or INSTALLED in buffer.path.split(os.sep):
            return None
        data = buffer.text.encode(encoding_of(buffer.path, buffer.text), "replace")
        file = FoundFile(buffer.path, settings)
        planned = self.planned(file, data, roots, typing)
        if isinstance(planned, Planned):
            return planned.job, settings
        if screened:
            return None
        nothing = Candidate(file, settings.codes_for(buffer.path)[0], frozenset(), data, len(data), "")
        return make_job(nothing, roots.options, roots.targets.of(settings, folder).releases), settings

    def planned(self, file: FoundFile, data: bytes, roots: Roots, typing: bool) -> Planned | None:
        """What there is to do for a file with this content. Raises UsageProblem."""
        if typing and file.path in self.plans:
            planner, known = self.plans[file.path]
            around = moved(known, file.path, data)
            planned = planner.plan(file, data, around)
            if not isinstance(planned, Planned):
                return None
            whole = around.alone or planned.job in self.results
            return planned if whole else replace(planned, job=replace(planned.job, typing=True))
        planner = Planner(roots.options, roots.targets, Index({file.path: data}, memory=self.units))
        planned = planner.plan(file, data)
        around = planned.job.surroundings if isinstance(planned, Planned) else ALONE
        self.plans[file.path] = (planner, around)
        return planned if isinstance(planned, Planned) else None

    def roots_of(self, root: str) -> Roots:
        """The settings of the workspace folder *root*. Raises UsageProblem where they cannot be read."""
        if root not in self.roots:
            config = os.path.join(root, os.path.expanduser(self.client.config)) if self.client.config else None
            python = os.path.join(root, os.path.expanduser(self.client.python)) if self.client.python else None
            if config is not None and not os.path.isfile(config):
                raise UsageProblem(f"the editor's settings for kvlint: config: {config}: no such file")
            resolver = Resolver.create(self.client.overrides, root, config)
            options = Options(cwd=root, use_cache=False, environment=python)
            self.roots[root] = Roots(resolver, options, Targets(options))
        return self.roots[root]

    def result(self, job: Job) -> Result:
        """The result of a job; those of the last few are kept while the files that decided them stay as they were."""
        changed = tuple(path for path, known in self.stamps.items() if stamp(path) != known)
        if changed:
            self.forget(changed)
        if job not in self.results:
            keep(self.results, job, work(job))
            self.stamps.update((path, stamp(path)) for path in self.results[job].dependencies)
        return self.results[job]

    def look(self, job: Job) -> Look:
        """The findings of a job before they were placed; those of the last few are kept."""
        if job not in self.looks:
            from kvlint.linter import look_at
            from kvlint.timeline import the_timeline

            keep(self.looks, job, look_at(job, job.data or b"", the_timeline()))
        return self.looks[job]


def moved(around: Surroundings, path: str, data: bytes) -> Surroundings:
    """What a project says about a file, with the lines of the file's functions and classes as they are in *data*."""
    if not around.places:
        return around
    unit = lowered(path, data)
    if unit is None:
        return around
    lines = {item.qualname: item.line for item in unit.functions} | {item.qualname: item.line for item in unit.classes}
    places = (
        place if place.value[0] != path else replace(place, line=lines.get(place.value[1], 0))
        for place in around.places
    )
    return replace(around, places=tuple(places))


def keep(memory: dict[Job, object] | dict[Job, Result] | dict[Job, Look], job: Job, value: object) -> None:
    """Remembers an answer and forgets the oldest ones."""
    memory[job] = value  # type: ignore[assignment]
    for old in list(memory)[:-KEPT_LOOKS]:
        del memory[old]


def stamp(path: str) -> tuple[int, int]:
    """What tells one state of a file from another, without reading it."""
    try:
        known = os.stat(path)
    except OSError:
        return 0, 0
    return known.st_mtime_ns, known.st_size


def is_notebook(path: str) -> bool:
    return Path(path).suffix.lower() == ".ipynb"


def encoding_of(path: str, text: str) -> str:
    """The encoding in which the linter reads the text: the one that a coding cookie names, where it can write it."""
    if not path.endswith((".py", ".pyi")) or "coding" not in text[:2_000]:
        return "utf-8"
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text[:2_000].encode("utf-8", "replace")).readline)
        text.encode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        return "utf-8"
    return "utf-8" if encoding == "utf-8-sig" else encoding
