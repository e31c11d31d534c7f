"""``kvlint [PATHS]``: options -> settings -> files -> run -> report, written files, exit code."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kvlint.config import Overrides, Resolver, Settings, check_format, check_globs, check_show, describe
from kvlint.discovery import Discovery, FoundFile, discover
from kvlint.errors import UsageProblem
from kvlint.report import format_names
from kvlint.selection import check_selectors

if TYPE_CHECKING:
    from kvlint.report._view import View
    from kvlint.run import Run

STDIN_NAME = "<stdin>"


class Listed(click.ParamType[Any]):
    """Words separated by commas."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value


LISTED = Listed()


def flat(values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The words of an option that may be repeated."""
    return tuple(word for value in values for word in value)


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for beside the settings."""

    fix: bool
    fix_only: bool
    diff: bool
    output_file: str | None
    show_statistics: bool
    exit_zero: bool
    exit_non_zero_on_fix: bool
    use_cache: bool
    stdin_filename: str | None
    color: str
    use_suppressions: bool
    quiet: bool
    python: str | None

    @property
    def fixing(self) -> bool:
        return self.fix or self.fix_only or self.diff


@click.command("check", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@click.option(
    "--target",
    metavar="RELEASES",
    help="Releases of transformers to lint for: 5.24, '>=4.56,<6', latest (default), installed, project.",
)
@click.option("--python", metavar="ENV", help="Environment or interpreter whose transformers --target installed reads.")
@click.option(
    "--select",
    type=LISTED,
    multiple=True,
    metavar="RULES",
    help="Use these rules only: codes, prefixes (KV2), names, ALL; comma-separated.",
)
@click.option("--extend-select", type=LISTED, multiple=True, metavar="RULES", help="Use these rules too.")
@click.option("--ignore", type=LISTED, multiple=True, metavar="RULES", help="Do not use these rules.")
@click.option(
    "--show", type=LISTED, multiple=True, metavar="KINDS", help="List what is only counted: deprecated, undecided."
)
@click.option("--fix", is_flag=True, help="Apply the safe fixes.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes", default=None, help="With --fix or --diff: also those that need a look."
)
@click.option("--diff", is_flag=True, help="Show what --fix would change as one patch (git apply); write nothing.")
@click.option("--fix-only", is_flag=True, help="Apply fixes and report nothing.")
@click.option("--fix-docstrings/--no-fix-docstrings", default=None, help="Also rewrite examples in docstrings.")
@click.option(
    "--output-format",
    metavar="FORMAT",
    help=f"One of {', '.join(format_names())}; full by default.",
)
@click.option("-o", "--output-file", metavar="FILE", help="Write the report to FILE.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule.")
@click.option(
    "--exclude", type=LISTED, multiple=True, metavar="GLOBS", help="Exclude these instead of the default ones."
)
@click.option("--extend-exclude", type=LISTED, multiple=True, metavar="GLOBS", help="Exclude these too.")
@click.option(
    "--force-exclude/--no-force-exclude", default=None, help="Exclude files also when they are named (pre-commit)."
)
@click.option("--respect-gitignore/--no-respect-gitignore", default=None, help="Leave out what git ignores (default).")
@click.option("--stdin-filename", metavar="NAME", help="What to call the text read from standard input (PATHS is -).")
@click.option("--config", metavar="FILE", help="Read settings from FILE, not from the nearest pyproject.toml.")
@click.option("--isolated", is_flag=True, help="Read no configuration file.")
@click.option("--ignore-suppressions", is_flag=True, help="Report also what a comment silences.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write stored results.")
@click.option("--cache-dir", metavar="FOLDER", help="Where results are stored.")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="Worker processes (default: one a core).",
)
@click.option("--show-files", is_flag=True, help="List the files that would be linted.")
@click.option("--show-settings", is_flag=True, help="Print the settings that hold for the first path.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 also with findings.")
@click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit 1 where anything was fixed, also if nothing is left.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colours (auto: on a terminal; NO_COLOR, FORCE_COLOR).",
)
@click.option("-q", "--quiet", is_flag=True, help="Findings only: no summary, no remarks.")
def check(**options: Any) -> int:
    """Lint files and folders (the default command)."""
    overrides = read_overrides(options)
    cwd = os.getcwd()
    resolver = Resolver.create(overrides, cwd, options["config"], options["isolated"])
    request = Request(
        fix=options["fix"],
        fix_only=options["fix_only"],
        diff=options["diff"],
        output_file=options["output_file"],
        show_statistics=options["statistics"],
        exit_zero=options["exit_zero"],
        exit_non_zero_on_fix=options["exit_non_zero_on_fix"],
        use_cache=not options["no_cache"],
        stdin_filename=options["stdin_filename"],
        color=options["color"],
        use_suppressions=not options["ignore_suppressions"],
        quiet=options["quiet"],
        python=options["python"],
    )
    paths: tuple[str, ...] = options["paths"] or (".",)
    if options["show_settings"]:
        sys.stdout.write(describe(resolver.for_folder(folder_of(paths[0], resolver.cwd))))
        return 0
    if paths == ("-",):
        return check_stdin(resolver, request)
    if "-" in paths:
        raise UsageProblem("'-' (standard input) cannot be mixed with other paths")
    found = discover(paths, resolver)
    if options["show_files"]:
        from kvlint.run import shown_path

        sys.stdout.write("".join(f"{shown_path(file.path, cwd)}\n" for file in found.files))
        return 0
    return lint_and_report(found, resolver.for_folder(folder_of(paths[0], cwd)), cwd, request, None)


def read_overrides(options: dict[str, Any]) -> Overrides:
    """The settings on the command line. Raises UsageProblem for rules, globs, kinds or formats that do not exist."""
    lists = {
        name: flat(options[name]) for name in ("select", "extend_select", "ignore", "show", "exclude", "extend_exclude")
    }
    for name in ("select", "extend_select", "ignore"):
        check_selectors(lists[name], f"--{name.replace('_', '-')}")
    if options["select"] and not lists["select"]:
        raise UsageProblem("--select: names no rule")
    for name in ("exclude", "extend_exclude"):
        check_globs(lists[name], f"--{name.replace('_', '-')}")
    check_show(lists["show"], "--show")
    if options["output_format"] is not None:
        check_format(options["output_format"], "--output-format")
    if options["config"] is not None and not os.path.isfile(options["config"]):
        raise UsageProblem(f"--config {options['config']}: no such file")
    if options["config"] is not None and options["isolated"]:
        raise UsageProblem("--config and --isolated contradict each other")
    return Overrides(
        target=options["target"],
        select=lists["select"] if options["select"] else None,
        extend_select=lists["extend_select"],
        ignore=lists["ignore"],
        show=lists["show"],
        unsafe_fixes=options["unsafe_fixes"],
        fix_docstrings=options["fix_docstrings"],
        exclude=lists["exclude"] if options["exclude"] else None,
        extend_exclude=lists["extend_exclude"],
        force_exclude=options["force_exclude"],
        respect_gitignore=options["respect_gitignore"],
        output_format=options["output_format"],
        jobs=options["jobs"],
        cache_dir=options["cache_dir"] and os.path.abspath(os.path.expanduser(options["cache_dir"])),
    )


def folder_of(path: str, cwd: str) -> str:
    """The folder whose settings hold for *path*. Raises UsageProblem where there is no such path."""
    absolute = os.path.normpath(os.path.join(cwd, path))
    if path != "-" and not os.path.exists(absolute):
        raise UsageProblem(f"{path}: no such file or directory")
    return cwd if path == "-" else absolute if os.path.isdir(absolute) else os.path.dirname(absolute)


def check_stdin(resolver: Resolver, request: Request) -> int:
    """Lints standard input. With --fix the text goes to standard output, the report to the error stream."""
    path = os.path.normpath(os.path.join(resolver.cwd, request.stdin_filename or STDIN_NAME))
    if sys.stdin is None:
        raise UsageProblem("standard input is closed, there is nothing to lint")
    data = sys.stdin.buffer.read()
    settings = resolver.for_folder(os.path.dirname(path))
    found = Discovery((FoundFile(path, settings),), ())
    if settings.force_exclude and settings.excludes(path):
        found = Discovery((), ())
    return lint_and_report(found, settings, resolver.cwd, request, data)


def lint_and_report(found: Discovery, settings: Settings, cwd: str, request: Request, stdin: bytes | None) -> int:
    """Runs, writes what was fixed, reports, and returns the exit code.

    *settings* are those of the first path: they decide what concerns the whole run (format, hidden kinds, workers).
    """
    from kvlint.fixing import allowed_applicabilities
    from kvlint.run import Options, run

    allowed = allowed_applicabilities(settings.unsafe_fixes)
    options = Options(
        cwd=cwd,
        allowed=allowed if request.fixing else frozenset(),
        use_cache=request.use_cache,
        cache_folder=settings.cache_dir,
        use_suppressions=request.use_suppressions,
        jobs=settings.jobs,
        environment=request.python,
    )
    outcome = run(found.files, options, stdin)
    faults: list[str] = []
    if internal := [fault for result in outcome.results for fault in result.faults]:
        from kvlint.jobs import worded_faults

        faults += worded_faults(internal)
    faults += [f"{problem.path}: {problem.message}" for problem in found.problems]
    if not request.diff:
        refused = write_fixed(outcome, stdin, request)
        faults += refused.values()
        if refused:
            again = run([file for file in found.files if file.path in refused], replace(options, allowed=frozenset()))
            written = tuple(result for result in outcome.results if result.path not in refused)
            outcome = replace(outcome, results=(*written, *again.results))
    if not request.quiet:
        for notice in (*outcome.notices, *(notice for result in outcome.results for notice in result.notices)):
            print(f"kvlint: note: {notice}", file=sys.stderr)
    view = make_view(outcome, settings, request)
    report(outcome, view, settings, request, stdin is not None)
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    return exit_code(view, outcome, request, bool(faults))


def write_fixed(outcome: Run, stdin: bytes | None, request: Request) -> dict[str, str]:
    """Writes every changed file, one step each; returns a line for the path of each that could not be written."""
    if stdin is not None:
        if request.fixing:
            fixed = next((result.fixed for result in outcome.results if result.fixed is not None), stdin)
            sys.stdout.flush()
            sys.stdout.buffer.write(fixed)
            sys.stdout.buffer.flush()
        return {}
    refused = {}
    for result in outcome.results:
        if result.fixed is not None:
            from kvlint.discovery import describe_error
            from kvlint.writing import write_atomically

            try:
                with open(result.path, "rb") as file:
                    if file.read() != result.original:
                        refused[result.path] = f"{result.shown}: changed while it was being linted; not fixed"
                        continue
                write_atomically(result.path, result.fixed)
            except OSError as problem:
                refused[result.path] = f"{result.shown}: cannot be written: {describe_error(problem)}"
    return refused


def make_view(outcome: Run, settings: Settings, request: Request) -> View:
    """The run as the reports see it."""
    from kvlint.fixing import allowed_applicabilities
    from kvlint.report._view import View, split

    every = [item for result in outcome.results for item in result.diagnostics]
    every.sort(key=lambda item: item.sort_key)
    shown, hidden, codes = split(every, settings.show)
    applied: Counter[str] = Counter()
    for result in outcome.results:
        applied.update(dict(result.applied))
    return View(
        found=shown,
        hidden=tuple(sorted(hidden.items())),
        hidden_codes=tuple(sorted(codes)),
        files=outcome.files,
        applied=tuple(sorted(applied.items())),
        changed=sum(result.fixed is not None for result in outcome.results),
        fixing=request.fixing,
        allowed=allowed_applicabilities(settings.unsafe_fixes),
        fixable=settings.fixable_codes(),
        color=wants_color(request.color, request.output_file is not None, request.fixing and outcome.files == 1),
        quiet=request.quiet,
    )


def wants_color(choice: str, to_file: bool, to_errors: bool) -> bool:
    """Colours where asked for; by default on a terminal, unless the environment says otherwise."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return not to_file and os.environ.get("TERM") != "dumb" and (sys.stderr if to_errors else sys.stdout).isatty()


def report(outcome: Run, view: View, settings: Settings, request: Request, from_stdin: bool) -> None:
    """Writes the patch, the statistics or the findings where they belong."""
    from kvlint.report import FOR_PEOPLE, render
    from kvlint.report._text import statistics, statistics_json, summary

    if request.diff:
        from kvlint.report._patch import patch

        sys.stdout.flush()
        for result in outcome.results:
            if result.fixed is not None:
                sys.stdout.buffer.write(patch(result.shown, result.original, result.fixed))
        sys.stdout.buffer.flush()
        fixed = sum(number for _, number in view.applied)
        if not request.quiet:
            sys.stderr.write(patch_summary(fixed, view.changed))
        return
    if request.fix_only:
        return
    if request.show_statistics:
        text = statistics(view) + summary(view) if settings.output_format in FOR_PEOPLE else statistics_json(view)
    else:
        text = render(settings.output_format, view)
    if request.output_file is not None:
        try:
            with open(request.output_file, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                file.write(text)
        except OSError as problem:
            raise UsageProblem(f"--output-file {request.output_file}: {(problem.strerror or '').lower()}") from None
    else:
        (sys.stderr if from_stdin and request.fixing else sys.stdout).write(text)


def patch_summary(fixed: int, changed: int) -> str:
    from kvlint.report._text import count

    if not changed:
        return "Nothing would be fixed.\n"
    return f"Would fix {count(fixed, 'finding')} in {count(changed, 'file')}.\n"


def exit_code(view: View, outcome: Run, request: Request, failed: bool) -> int:
    """0, 1 or 2, as the options have it."""
    if failed:
        return 2
    if request.exit_zero:
        return 0
    if request.diff:
        return 1 if view.changed else 0
    if request.exit_non_zero_on_fix and view.applied:
        return 1
    return 1 if view.found and not request.fix_only else 0
