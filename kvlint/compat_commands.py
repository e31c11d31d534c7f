"""The command ``kvlint compat``: which releases of transformers code works on, from one analysis over all of them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from kvlint.check_command import wants_color
from kvlint.discovery import discover
from kvlint.errors import UsageProblem
from kvlint.options import (
    HELP,
    REPORT,
    RULES,
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
    from kvlint.compat import Compatibility
    from kvlint.releases import ReleaseSet
    from kvlint.run import Run

EVERY = ">=0"
"""The target that holds every release of the timeline."""


@click.command("compat", cls=GroupedCommand, context_settings=HELP)
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@option(SETTINGS, "--target", metavar="RELEASES", help="Look at these releases only: 5.24, '>=4.56,<6', project.")
@config_options
@rule_options
@option(RULES, "--ignore-suppressions", is_flag=True, help="Count also what a comment silences.")
@file_options
@option(
    REPORT,
    "--output-format",
    type=click.Choice(["chart", "json"]),
    default="chart",
    show_default=True,
    help="chart is for people.",
)
@option(REPORT, "--html", metavar="FILE", help="Also write FILE, a page with the matrix of uses and releases.")
@option(
    REPORT,
    "--link",
    metavar="TEMPLATE",
    help="Links of the page, with {path} and {line}: 'https://github.com/me/it/blob/main/{path}#L{line}'.",
)
@option(REPORT, "--fail-on", metavar="RELEASES", help="Exit 1 where a use breaks or is silently wrong on one of these.")
@option(REPORT, "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours.")
@jobs_option
@option(RUN, "--no-cache", is_flag=True, help="Neither read nor write stored results.")
def compat(paths: tuple[str, ...], **options: Any) -> int:
    """Show which releases of transformers the code in PATHS works on.

    For every release: how many uses break, and how many run and are silently wrong. Deprecated and wasteful ones work.
    """
    from kvlint.compat import compatibility, union
    from kvlint.jobs import worded_faults
    from kvlint.targets import matching
    from kvlint.timeline import the_timeline

    if "-" in paths:
        raise UsageProblem("compat reads files and folders, not standard input")
    if options["link"] is not None:
        check_link(options["link"])
        if options["html"] is None:
            raise UsageProblem("--link is about the page that --html writes; name its file")
    timeline = the_timeline()
    fail_on = matching(options["fail_on"], timeline, "--fail-on") if options["fail_on"] is not None else None
    outcome, problems = analyse(paths or (".",), options)
    targets = {target.text: target.releases for target in outcome.targets}
    scope = union(targets.values()) if targets else timeline.all
    found = (item for result in outcome.results for item in result.diagnostics)
    known = compatibility(found, timeline.releases, scope, outcome.files)
    if options["html"] is not None:
        write_page(known, options["html"], options["link"])
    show(known, options)
    faults = worded_faults(fault for result in outcome.results for fault in result.faults) + problems
    for notice in (*outcome.notices, *(notice for result in outcome.results for notice in result.notices)):
        print(f"kvlint: note: {notice}", file=sys.stderr)
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    return 2 if faults else 1 if fail_on is not None and failing(known, fail_on) else 0


def failing(known: Compatibility, releases: ReleaseSet) -> bool:
    return bool((known.breaking | known.wrong) & releases)


def analyse(paths: tuple[str, ...], options: dict[str, Any]) -> tuple[Run, list[str]]:
    """The findings on all releases, and the folders that could not be read. Raises UsageProblem for wrong options."""
    from kvlint.run import Options, run

    cwd = os.getcwd()
    resolver = resolver_of(options, shared_overrides(options, target=options["target"] or EVERY), cwd)
    found = discover(paths, resolver)
    settings = resolver.for_folder(cwd)
    how = Options(
        cwd=cwd,
        use_cache=not options["no_cache"],
        cache_folder=settings.cache_dir,
        use_suppressions=not options["ignore_suppressions"],
        with_fixes=False,
        grouped=False,
        jobs=settings.jobs,
    )
    return run(found.files, how), [f"{problem.path}: {problem.message}" for problem in found.problems]


def check_link(template: str) -> None:
    """Raises UsageProblem where *template* cannot be filled in."""
    try:
        template.format(path="a.py", line=1)
    except (ValueError, KeyError, IndexError, AttributeError):
        raise UsageProblem(f"--link {template}: only {{path}} and {{line}} can be filled in") from None


def write_page(known: Compatibility, name: str, link: str | None) -> None:
    """Writes the page. Raises UsageProblem where it cannot be written."""
    from kvlint.compat_html import Links, render

    text = render(known, Links.of(name, link))
    try:
        with open(name, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except OSError as problem:
        raise UsageProblem(f"--html {name}: {(problem.strerror or str(problem)).lower()}") from None


def show(known: Compatibility, options: dict[str, Any]) -> None:
    """Prints the chart, or the object for programs."""
    if options["output_format"] == "json":
        from kvlint import compat_json

        sys.stdout.write(compat_json.render(known))
        return
    from kvlint.compat_text import Look, render

    width = shutil.get_terminal_size((80, 24)).columns
    color = wants_color(options["color"], to_file=False, to_errors=False)
    sys.stdout.write(render(known, Look(width, color, shows_blocks())))


def shows_blocks() -> bool:
    """Whether standard output can write block characters."""
    try:
        "█▒".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
