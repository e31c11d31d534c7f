"""``kvlint [PATHS]``: options -> settings -> files -> run -> report, written files, exit code."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kvlint.config import BASELINE_NAME, Overrides, Resolver, Settings, check_format, check_globs, check_show, describe
from kvlint.discovery import Discovery, FoundFile, discover
from kvlint.errors import UsageProblem
from kvlint.options import (
    FILES,
    FIXING,
    HELP,
    KNOWN,
    LISTED,
    REPORT,
    RULES,
    RUN,
    SETTINGS,
    GroupedCommand,
    config_options,
    file_options,
    flat,
    jobs_option,
    option,
    resolver_of,
    rule_options,
)
from kvlint.report import format_names
from kvlint.report._text import plain
from kvlint.selection import check_selectors

if TYPE_CHECKING:
    from kvlint.baseline import Baseline, Known
    from kvlint.changed_lines import ChangedLines
    from kvlint.diagnostics import Diagnostic
    from kvlint.report._view import View
    from kvlint.run import Options, Run

STDIN_NAME = "<stdin>"


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
    since: str | None = None
    write_baseline: bool = False
    add_ignore: str | None = None
    isolated_files: bool = False
    changed: ChangedLines | None = None
    prove: str | None = None

    @property
    def fixing(self) -> bool:
        return self.fix or self.fix_only or self.diff


@click.command("check", cls=GroupedCommand, context_settings=HELP)
@click.argument("paths", nargs=-1, metavar="[PATHS]...")
@option(
    SETTINGS,
    "--target",
    metavar="RELEASES",
    help="Releases of transformers to lint for: 5.24, '>=4.56,<6', latest (default), installed, project.",
)
@option(
    SETTINGS,
    "--python",
    metavar="ENV",
    help="Environment or interpreter whose transformers --target installed reads.",
)
@config_options
@option(
    SETTINGS, "--show-settings", is_flag=True, help="Print the settings that hold for the first path, and the target."
)
@rule_options
@option(RULES, "--extend-select", type=LISTED, multiple=True, metavar="RULES", help="Use these rules too.")
@option(
    RULES,
    "--show",
    type=LISTED,
    multiple=True,
    metavar="KINDS",
    help="List what is only counted: deprecated, undecided.",
)
@option(RULES, "--ignore-suppressions", is_flag=True, help="Report also what a comment silences.")
@file_options
@option(
    FILES,
    "--force-exclude/--no-force-exclude",
    default=None,
    help="Exclude files also when they are named (pre-commit).",
)
@option(
    FILES,
    "--respect-gitignore/--no-respect-gitignore",
    default=None,
    help="Leave out what git ignores (default).",
)
@option(FILES, "--stdin-filename", metavar="NAME", help="What to call the text read from standard input (PATHS is -).")
@option(
    FILES, "--since", metavar="REV", help="Report only on lines that changed since the tree left this git revision."
)
@option(FILES, "--show-files", is_flag=True, help="List the files that would be linted.")
@option(FIXING, "--fix", is_flag=True, help="Apply the safe fixes.")
@option(
    FIXING, "--unsafe-fixes/--no-unsafe-fixes", default=None, help="With --fix or --diff: also those that need a look."
)
@option(FIXING, "--diff", is_flag=True, help="Show what --fix would change as one patch (git apply); write nothing.")
@option(
    FIXING,
    "--prove",
    metavar="COMMAND",
    help="With --fix: run COMMAND after each unit of change, and take back those after which it fails.",
)
@option(FIXING, "--fix-only", is_flag=True, help="Apply fixes and report nothing.")
@option(FIXING, "--fix-docstrings/--no-fix-docstrings", default=None, help="Also rewrite examples in docstrings.")
@option(KNOWN, "--baseline", metavar="FILE", help="Report only findings that are not in FILE.")
@option(KNOWN, "--no-baseline", is_flag=True, help="Use no baseline, not the one of the configuration either.")
@option(
    KNOWN,
    "--write-baseline",
    is_flag=True,
    help=f"Write the findings of this run to the baseline ({BASELINE_NAME} by default), and exit 0.",
)
@option(
    KNOWN,
    "--add-ignore",
    metavar="[=REASON]",
    default=None,
    help="Silence the findings of this run with ignore comments on their lines.",
)
@option(
    REPORT,
    "--output-format",
    metavar="FORMAT",
    help=f"One of {', '.join(format_names())}; full by default, github in a GitHub workflow.",
)
@option(REPORT, "-o", "--output-file", metavar="FILE", help="Write the report to FILE.")
@option(REPORT, "--statistics", is_flag=True, help="Count the findings of each rule.")
@option(REPORT, "--exit-zero", is_flag=True, help="Exit 0 also with findings.")
@option(
    REPORT,
    "--exit-non-zero-on-fix",
    is_flag=True,
    help="Exit 1 where anything was fixed, also if nothing is left.",
)
@option(
    REPORT,
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Colours (auto: on a terminal; NO_COLOR, FORCE_COLOR).",
)
@option(REPORT, "-q", "--quiet", is_flag=True, help="Findings only: no summary, no remarks.")
@jobs_option
@option(RUN, "--isolated-files", is_flag=True, help="Look at each file as if there were no others.")
@option(RUN, "--no-cache", is_flag=True, help="Neither read nor write stored results.")
@option(RUN, "--cache-dir", metavar="FOLDER", help="Where results are stored.")
def check(**options: Any) -> int:
    """Lint files and folders (the default command)."""
    overrides = read_overrides(options)
    cwd = os.getcwd()
    resolver = resolver_of(options, overrides, cwd)
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
        since=options["since"],
        write_baseline=options["write_baseline"],
        add_ignore=options["add_ignore"],
        isolated_files=options["isolated_files"],
        prove=options["prove"],
    )
    paths: tuple[str, ...] = options["paths"] or (".",)
    check_combinations(request, paths == ("-",))
    if options["show_settings"]:
        folder = folder_of(paths[0], resolver.cwd)
        settings = resolver.for_folder(folder)
        sys.stdout.write(describe(settings, target_remarks(settings, folder, request)))
        return 0
    if paths == ("-",):
        return check_stdin(resolver, request)
    if "-" in paths:
        raise UsageProblem("'-' (standard input) cannot be mixed with other paths")
    found = discover(paths, resolver)
    if request.since is not None:
        from kvlint.changed_lines import changed_since

        changed = changed_since(request.since, cwd)
        found = replace(found, files=tuple(file for file in found.files if changed.touches_file(file.path)))
        request = replace(request, changed=changed)
    if options["show_files"]:
        from kvlint.run import shown_path

        sys.stdout.write("".join(f"{shown_path(file.path, cwd)}\n" for file in found.files))
        return 0
    return lint_and_report(found, resolver.for_folder(folder_of(paths[0], cwd)), cwd, request, None)


def target_remarks(settings: Settings, folder: str, request: Request) -> list[str]:
    """What ``--show-settings`` says of the releases in force. Raises UsageProblem for a target that means nothing."""
    from kvlint.run import Options, Targets
    from kvlint.timeline import the_timeline

    target = Targets(Options(cwd=folder, environment=request.python)).of(settings, folder)
    releases = the_timeline().ranges(target.releases)
    remark = f"target: transformers {target.text} ({target.source}): {', '.join(releases)}"
    return [remark, target.note] if target.note else [remark]


def check_combinations(request: Request, stdin: bool) -> None:
    """Raises UsageProblem for options that contradict each other."""
    if request.add_ignore is not None and not request.add_ignore.isprintable():
        raise UsageProblem("--add-ignore: the reason is one line of text")
    if request.prove is not None and (request.diff or stdin or not request.fixing):
        raise UsageProblem("--prove goes with --fix or --fix-only, and with files")
    writes = {
        "--write-baseline": request.write_baseline,
        "--add-ignore": request.add_ignore is not None,
        "--fix, --fix-only and --diff": request.fixing,
    }
    asked = [name for name, wanted in writes.items() if wanted]
    if len(asked) > 1:
        raise UsageProblem(f"{asked[0]} cannot be combined with {asked[1]}: run one after the other")
    if request.since is not None and (request.fixing or request.write_baseline):
        raise UsageProblem(f"--since cannot be combined with {asked[0]}, which is about whole files")
    if stdin and (request.since is not None or request.write_baseline or request.add_ignore is not None):
        name = "--since" if request.since is not None else asked[0]
        raise UsageProblem(f"{name} is about files, not standard input")


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
        baseline=baseline_of(options),
    )


def baseline_of(options: dict[str, Any]) -> str | None:
    """The baseline that the command line names, "" for none at all. Raises UsageProblem for a contradiction."""
    if not options["no_baseline"]:
        named: str | None = options["baseline"]
        return named and os.path.abspath(os.path.expanduser(named))
    if options["baseline"] is not None or options["write_baseline"]:
        raise UsageProblem("--no-baseline contradicts --baseline and --write-baseline")
    return ""


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
    from kvlint.progress import on_terminal
    from kvlint.run import Options, run

    baseline = None
    if settings.baseline and not request.write_baseline:
        from kvlint.baseline import read

        baseline = read(settings.baseline)
    allowed = allowed_applicabilities(settings.unsafe_fixes)
    options = Options(
        cwd=cwd,
        allowed=allowed if request.fixing else frozenset(),
        use_cache=request.use_cache,
        cache_folder=settings.cache_dir,
        use_suppressions=request.use_suppressions,
        jobs=settings.jobs,
        environment=request.python,
        isolated_files=request.isolated_files,
    )
    proved: tuple[str, ...] = ()
    if request.prove is not None:
        from kvlint.proving import prove

        proved = prove(found.files, options, request.prove)
        options = replace(options, allowed=frozenset())
    progress = on_terminal(len(found.files)) if not request.quiet else None
    try:
        outcome = run(found.files, options, stdin, progress)
    finally:
        if progress is not None:
            progress.clear()
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
    view, stale = make_view(outcome, settings, request, found.files, baseline, stdin)
    notices = [*proved, *outcome.notices, *(notice for result in outcome.results for notice in result.notices), *stale]
    if request.write_baseline:
        return write_baseline(view, outcome, found.files, settings, request) if not faults else complain(faults)
    if request.add_ignore is not None:
        silenced, notes = add_ignores(view, outcome, request.add_ignore)
        files = [file for file in found.files if file.path in silenced]
        again = run(files, options)
        results = (*(result for result in outcome.results if result.path not in silenced), *again.results)
        outcome = replace(outcome, results=results)
        view, _ = make_view(outcome, settings, request, found.files, baseline, stdin)
        notices += notes
    if speaks_of_fixes(settings, request) and stdin is None:
        view = replace(view, elsewhere=fixes_elsewhere(view, outcome, found.files, options))
    if not request.quiet:
        for notice in notices:
            print(f"kvlint: note: {plain(notice)}", file=sys.stderr)
    report(outcome, view, settings, request, stdin is not None)
    complain(faults)
    return exit_code(view, outcome, request, bool(faults))


def complain(faults: Sequence[str]) -> int:
    """Names each fault on the error stream; returns the exit code that they make."""
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    return 2


def write_baseline(view: View, outcome: Run, files: Sequence[FoundFile], settings: Settings, request: Request) -> int:
    """Writes the listed findings to the baseline. Raises UsageProblem where that fails."""
    from kvlint.baseline import Linted, renewed, written
    from kvlint.discovery import describe_error
    from kvlint.report._text import count
    from kvlint.writing import write_atomically

    path = settings.baseline or os.path.abspath(BASELINE_NAME)
    baseline = renewed(path, Linted.of(files, outcome), view.found)
    try:
        write_atomically(path, written(baseline).encode("utf-8", "surrogateescape"))
    except OSError as problem:
        raise UsageProblem(f"baseline {path}: cannot be written: {describe_error(problem)}") from None
    if not request.quiet:
        paths = len({known.path for known in baseline.entries})
        total = count(baseline.entries.total(), "finding")
        print(f"Wrote {total} in {count(paths, 'file')} to {os.path.relpath(path)}.")
    return 0


def add_ignores(view: View, outcome: Run, reason: str) -> tuple[frozenset[str], list[str]]:
    """Adds ignore comments for the listed findings to their files; the paths that were written, and remarks."""
    from pathlib import Path

    from kvlint.discovery import describe_error
    from kvlint.ignoring import with_comments
    from kvlint.report._text import count
    from kvlint.writing import write_atomically

    paths = {result.shown: result.path for result in outcome.results}
    written: set[str] = set()
    notes: list[str] = []
    total = 0
    for shown in sorted({item.path for item in view.found}):
        path = paths[shown]
        try:
            data = Path(path).read_bytes()
            new, placed = with_comments(Path(path), data, (o for o in view.found if o.path == shown), reason)
            if new != data:
                write_atomically(path, new)
                written.add(path)
                total += placed
        except OSError as problem:
            raise UsageProblem(f"{shown}: cannot be written: {describe_error(problem)}") from None
    notes.append(f"added ignore comments for {count(total, 'finding')} in {count(len(written), 'file')}")
    return frozenset(written), notes


def write_fixed(outcome: Run, stdin: bytes | None, request: Request) -> dict[str, str]:
    """Writes what was fixed where it belongs; returns a line for the path of each file that could not be written."""
    if stdin is None:
        return write_files(outcome)
    if request.fixing:
        fixed = next((result.fixed for result in outcome.results if result.fixed is not None), stdin)
        sys.stdout.flush()
        sys.stdout.buffer.write(fixed)
        sys.stdout.buffer.flush()
    return {}


def write_files(outcome: Run) -> dict[str, str]:
    """Writes every changed file, one step each; returns a line for the path of each that could not be written."""
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


def speaks_of_fixes(settings: Settings, request: Request) -> bool:
    """Whether the report has a summary for people, which says what can be fixed."""
    from kvlint.report import FOR_PEOPLE

    return not (request.quiet or request.diff or request.fix_only) and settings.format_in_force in FOR_PEOPLE


def fixes_elsewhere(view: View, outcome: Run, files: Sequence[FoundFile], options: Options) -> str:
    """``3 more fixes with --target 5.24``, where a range takes fixes away that its newest release alone would have."""
    from kvlint.findings import Applicability
    from kvlint.run import run
    from kvlint.timeline import the_timeline

    safe = {Applicability.SAFE}
    unfixed = {place_of(item) for item in view.found if not view.is_fixable(item, safe)}
    releases = outcome.targets[0].releases if len(outcome.targets) == 1 else ()
    if not unfixed or len(releases) < 2:
        return ""
    known = the_timeline().releases
    newest = known[max(releases)]
    shown = {item.path for item in view.found}
    paths = {result.path for result in outcome.results if result.shown in shown}
    again = [replace(file, settings=replace(file.settings, target=newest)) for file in files if file.path in paths]
    there = run(again, replace(options, allowed=frozenset(), with_fixes=True))
    found = {place_of(item) for result in there.results for item in result.diagnostics if view.is_fixable(item, safe)}
    number = len(found & unfixed)
    minor = newest.rpartition(".")[0]
    alone = sum(release.startswith(f"{minor}.") for release in known) == 1
    return (
        f"{number:,} more fix{'' if number == 1 else 'es'} with --target {minor if alone else newest}" if number else ""
    )


def place_of(item: Diagnostic) -> tuple[str, int, int, int, str]:
    """What makes a finding the same one for another target."""
    return item.path, item.cell or 0, item.line, item.column, item.code


STALE_LISTED = 10
"""So many entries of a baseline of which nothing is left are named."""


def make_view(
    outcome: Run,
    settings: Settings,
    request: Request,
    files: Sequence[FoundFile],
    baseline: Baseline | None,
    stdin: bytes | None,
) -> tuple[View, list[str]]:
    """The run as the reports see it, and remarks on a baseline that says more than there is."""
    from kvlint.fixing import allowed_applicabilities
    from kvlint.report._view import View, split

    every = [item for result in outcome.results for item in result.diagnostics]
    every.sort(key=lambda item: item.sort_key)
    stale: list[str] = []
    known = 0
    kept = split(every, settings.show)[0]
    if baseline is not None:
        from kvlint.baseline import Linted, without_known

        comparison = without_known(baseline, Linted.of(files, outcome, stdin), kept)
        kept, known, stale = comparison.new, comparison.known, worded(comparison.stale, baseline)
    if request.changed is not None:
        paths = {result.shown: result.path for result in outcome.results}
        every = [item for item in every if request.changed.touches(item, paths[item.path])]
        kept = tuple(item for item in kept if request.changed.touches(item, paths[item.path]))
    _, hidden, codes = split(every, settings.show)
    applied: Counter[str] = Counter()
    for result in outcome.results:
        applied.update(dict(result.applied))
    view = View(
        found=kept,
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
        targets=outcome.checked_for,
        known=known,
    )
    return view, stale


def worded(stale: Sequence[Known], baseline: Baseline) -> list[str]:
    """Remarks on the entries of a baseline of which nothing is left."""
    name = os.path.basename(baseline.path)
    lines = [
        f"{name}: no longer found: {entry.code} in {entry.path}{f', {entry.scope}' if entry.scope else ''}: `{entry.text}`"
        for entry in stale[:STALE_LISTED]
    ]
    if stale:
        from kvlint.report._text import count

        more = f" ({len(stale) - STALE_LISTED:,} not named)" if len(stale) > STALE_LISTED else ""
        gone = "is" if len(stale) == 1 else "are"
        lines.append(f"{name}: {count(len(stale), 'finding')} {gone} gone{more}; --write-baseline takes them out")
    return lines


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
        programs = settings.output_format not in ("", *FOR_PEOPLE)
        text = statistics_json(view) if programs else statistics(view) + summary(view)
    else:
        text = render(settings.format_in_force, view)
        if not settings.output_format and settings.format_in_force not in FOR_PEOPLE:
            text += summary(view)
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
