"""The command ``kvlint migrate``: everything that an upgrade of transformers asks of a project, in order."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kvlint.check_command import folder_of, wants_color, write_files
from kvlint.discovery import FoundFile, discover
from kvlint.errors import UsageProblem
from kvlint.options import (
    FIXING,
    HELP,
    REPORT,
    RUN,
    SETTINGS,
    GroupedCommand,
    config_options,
    file_options,
    jobs_option,
    option,
    resolver_of,
    rule_options,
    shared_overrides,
)

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic
    from kvlint.documents import Document
    from kvlint.jobs import Result
    from kvlint.migration import Journey, Migration
    from kvlint.run import Options, Run

WIDEST = 110
"""Columns of the widest line of prose."""


@click.command("migrate", cls=GroupedCommand, context_settings=HELP)
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@option(
    SETTINGS, "--from", "start", metavar="RELEASE", help="The release in use (default: what the project pins or locks)."
)
@option(
    SETTINGS, "--to", "end", metavar="RELEASE", help="The release to go to (default: the newest that kvlint knows)."
)
@config_options
@rule_options
@file_options
@option(FIXING, "--apply", is_flag=True, help="Write the safe fixes.")
@option(
    REPORT, "--check", is_flag=True, help="For CI: say how much there is to do, and exit 1 where there is anything."
)
@option(REPORT, "--markdown", metavar="FILE", help="Also write the report to FILE, as Markdown.")
@option(REPORT, "--html", metavar="FILE", help="Also write the report to FILE, as a page.")
@option(REPORT, "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours.")
@jobs_option
@option(RUN, "--no-cache", is_flag=True, help="Neither read nor write stored results.")
def migrate(paths: tuple[str, ...], **options: Any) -> int:
    """Walk through an upgrade of transformers: what breaks by release, what is fixed, what needs a look, what is left.

    Exits 0 where the report was made; with --check 1 where there is anything to do.
    """
    from kvlint.jobs import worded_faults
    from kvlint.migration import journey
    from kvlint.migration_report import document
    from kvlint.targets import requiring_folder
    from kvlint.timeline import the_timeline

    paths = paths or (".",)
    if "-" in paths:
        raise UsageProblem("migrate reads files and folders, not standard input")
    if options["apply"] and options["check"]:
        raise UsageProblem("--check writes nothing: leave it or --apply out")
    cwd = os.getcwd()
    root = requiring_folder(folder_of(paths[0], cwd))
    way = journey(the_timeline(), root, options["start"], options["end"])
    outcome, migration = analyse(paths, way, root, options)
    failures = {}
    if options["apply"]:
        failures = write_files(outcome)
        kept = tuple(item for item in migration.fixed if item.path not in failures)
        migration = replace(migration, fixed=kept, applied=fixed_findings(kept))
    report = document(migration, paths, written=options["apply"])
    for name, text in pages(report, options):
        write_page(name, text, options)
    show(report, options)
    faults = worded_faults(fault for result in outcome.results for fault in result.faults) + list(failures.values())
    for notice in (*outcome.notices, *(notice for result in outcome.results for notice in result.notices)):
        print(f"kvlint: note: {notice}", file=sys.stderr)
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    return 2 if faults else 1 if options["check"] and migration.to_do else 0


def analyse(paths: tuple[str, ...], way: Journey, root: str | None, options: dict[str, Any]) -> tuple[Run, Migration]:
    """The run that fixes for the last release (nothing is written), and all that a report tells. Raises UsageProblem."""
    from kvlint.findings import Applicability, Category
    from kvlint.migration import WRONG, Migration, floor_of, groups, needs_a_look, pins_of, stages_of, unread
    from kvlint.run import Options, run
    from kvlint.timeline import the_timeline

    cwd = os.getcwd()

    def files(target: str) -> tuple[FoundFile, ...]:
        found = discover(paths, resolver_of(options, shared_overrides(options, target=target), cwd))
        if found.problems:
            problem = found.problems[0]
            raise UsageProblem(f"{problem.path}: {problem.message}")
        return found.files

    along = files(way.target)
    settings = along[0].settings if along else None
    how = Options(
        cwd=cwd,
        use_cache=not options["no_cache"],
        cache_folder=settings.cache_dir if settings else "",
        with_fixes=False,
        jobs=settings.jobs if settings else 0,
    )
    on_the_way = run(along, how)
    outcome = run(files(way.end_text), replace(how, allowed=frozenset({Applicability.SAFE}), with_fixes=True))
    fixed = tuple(result for result in outcome.results if result.fixed is not None)
    before, stages = stages_of((item for result in on_the_way.results for item in result.diagnostics), way)
    left = sorted((item for result in outcome.results for item in result.diagnostics), key=lambda item: item.sort_key)
    wrong = [item for item in left if item.category in WRONG]
    floor = floor_of(after_fixes(on_the_way, fixed, along, how), way)
    return outcome, Migration(
        journey=way,
        before=before,
        stages=stages,
        fixed=fixed,
        applied=fixed_findings(fixed),
        look=groups(item for item in wrong if needs_a_look(item)),
        by_hand=groups(item for item in wrong if not needs_a_look(item)),
        unread=unread(left),
        deprecated=sum(item.category is Category.DEPRECATED for item in left),
        pins=pins_of(root, the_timeline(), way, floor),
        floor=floor,
        files=outcome.files,
    )


def fixed_findings(fixed: Sequence[Result]) -> int:
    """How many findings the fixes of these files resolve."""
    return sum(number for result in fixed for _, number in result.applied)


def after_fixes(on_the_way: Run, fixed: Sequence[Result], files: Sequence[FoundFile], how: Options) -> list[Diagnostic]:
    """What would be found along the way in the fixed files, and in those that stay as they are."""
    from kvlint.engine.index import Index
    from kvlint.run import Planned, Planner, Targets
    from kvlint.workers import work

    changed = {result.path: result.fixed or b"" for result in fixed}
    planner = Planner(how, Targets(how), Index(dict(changed)))
    found = [item for result in on_the_way.results if result.path not in changed for item in result.diagnostics]
    for file in files:
        if file.path in changed:
            planned = planner.plan(file, changed[file.path])
            if isinstance(planned, Planned):
                found += work(planned.job).diagnostics
    return found


def pages(report: Document, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The option of every file to write, and what to write."""
    from kvlint.documents import as_html, as_markdown

    if options["markdown"] is not None:
        yield "markdown", as_markdown(report)
    if options["html"] is not None:
        yield "html", as_html(report)


def write_page(kind: str, text: str, options: dict[str, Any]) -> None:
    """Writes a report. Raises UsageProblem where it cannot be written."""
    name = options[kind]
    try:
        with open(name, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as problem:
        raise UsageProblem(f"--{kind} {name}: {(problem.strerror or str(problem)).lower()}") from None


def show(report: Document, options: dict[str, Any]) -> None:
    """Prints the report; with --check its head only."""
    from kvlint.documents import as_text

    if options["check"]:
        report = replace(report, chapters=())
    width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
    sys.stdout.write(as_text(report, width, wants_color(options["color"], to_file=False, to_errors=False)))
