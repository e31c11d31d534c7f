"""The command ``kvlint hub``: lints what models bring along, as it lies in the local Hugging Face cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvlint.check_command import wants_color
from kvlint.config import Settings, check_show
from kvlint.discovery import FoundFile
from kvlint.errors import UsageProblem, did_you_mean
from kvlint.hub_cache import CacheFolders, Revision, cache_folders, repositories, revisions
from kvlint.options import (
    HELP,
    LISTED,
    REPORT,
    RULES,
    RUN,
    SETTINGS,
    GroupedCommand,
    config_options,
    flat,
    jobs_option,
    option,
    resolver_of,
    rule_options,
    shared_overrides,
)

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic
    from kvlint.report._view import View
    from kvlint.run import Run

SHORT_COMMIT = 12


@dataclass(frozen=True, slots=True)
class Group:
    """One revision and what was found in it, by the name of the file in the repository."""

    revision: Revision
    found: tuple[tuple[str, Diagnostic], ...]


@click.command("hub", cls=GroupedCommand, context_settings=HELP)
@click.argument("name", required=False, metavar="[ORG/NAME]")
@option(
    SETTINGS,
    "--target",
    metavar="RELEASES",
    help="Releases of transformers to lint for: 5.24, '>=4.56,<6', latest (default), installed.",
)
@option(
    SETTINGS,
    "--python",
    metavar="ENV",
    help="Environment or interpreter whose transformers --target installed reads.",
)
@config_options
@rule_options
@option(
    RULES,
    "--show",
    type=LISTED,
    multiple=True,
    metavar="KINDS",
    help="List what is only counted: deprecated, undecided.",
)
@option(
    REPORT,
    "--output-format",
    type=click.Choice(["grouped", "json"]),
    default="grouped",
    show_default=True,
    help="grouped is for people, json a list of revisions with their findings.",
)
@option(REPORT, "--exit-zero", is_flag=True, help="Exit 0 also with findings.")
@option(REPORT, "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours.")
@option(REPORT, "-q", "--quiet", is_flag=True, help="Findings only: no summary, no revisions without any.")
@jobs_option
@option(RUN, "--no-cache", is_flag=True, help="Neither read nor write stored results.")
def hub(name: str | None, **options: Any) -> int:
    """Lint the code that models of the hub bring along (trust_remote_code), and their generation_config.json.

    Looks into the local Hugging Face cache (HF_HOME, HF_HUB_CACHE and HF_MODULES_CACHE are respected), at every model
    or at ORG/NAME. Nothing is downloaded, imported or run, and nothing is changed.
    """
    settings = read_settings(options)
    folders = cache_folders(os.environ)
    chosen = choose(name, folders)
    outcome = lint(chosen, settings, options["python"], not options["no_cache"])
    groups, view = group(chosen, outcome, settings, options)
    if options["output_format"] == "json":
        text = as_json(groups)
    elif chosen:
        text = as_text(groups, view)
    else:
        where = (
            f"{name} is in the cache, but brings" if name else f"No model in {folders.hub} or {folders.modules} brings"
        )
        text = "" if options["quiet"] else f"{where} no code or settings of generation of its own.\n"
    sys.stdout.write(text)
    notices = outcome.notices if not options["quiet"] else ()
    for notice in notices:
        print(f"kvlint: note: {notice}", file=sys.stderr)
    faults = [fault for result in outcome.results for fault in result.faults]
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    if faults:
        return 2
    return 1 if view.found and not options["exit_zero"] else 0


def read_settings(options: dict[str, Any]) -> Settings:
    """The settings of the current folder with the command line on top. Raises UsageProblem for unknown rules."""
    show = flat(options["show"])
    check_show(show, "--show")
    cwd = str(Path.cwd())
    overrides = shared_overrides(options, target=options["target"], show=show)
    return resolver_of(options, overrides, cwd).for_folder(cwd)


def choose(name: str | None, folders: CacheFolders) -> tuple[Revision, ...]:
    """The revisions to lint. Raises UsageProblem where there is no cache, or no model *name* in it."""
    if not folders.hub.is_dir() and not folders.modules.is_dir():
        raise UsageProblem(
            f"there is no Hugging Face cache: neither {folders.hub} nor {folders.modules} exists (is HF_HOME set as it "
            "was for the download?)"
        )
    every = revisions(folders)
    if name is None:
        return every
    names = repositories(folders)
    wanted = name.strip("/").lower()
    matching = {known for known in names if known.lower() == wanted}
    if not matching and "/" not in wanted:
        matching = {known for known in names if known.lower().endswith(f"/{wanted}")}
    if not matching:
        hint = did_you_mean(name, names) or f" ({counted(len(names), 'model')} in it)"
        raise UsageProblem(f"there is no model {name!r} in the cache {folders.hub}{hint}")
    return tuple(revision for revision in every if revision.repository in matching)


def lint(chosen: Sequence[Revision], settings: Settings, environment: str | None, use_cache: bool) -> Run:
    """The findings in all files of the revisions."""
    from kvlint.run import Options, run

    files = [FoundFile(file.path, settings) for revision in chosen for file in revision.files]
    options = Options(
        cwd=str(Path.cwd()),
        use_cache=use_cache,
        cache_folder=settings.cache_dir,
        with_fixes=False,
        jobs=settings.jobs,
        environment=environment,
    )
    return run(files, options)


def group(
    chosen: Sequence[Revision], outcome: Run, settings: Settings, options: dict[str, Any]
) -> tuple[list[Group], View]:
    """The findings by revision, and all of them as the reports see them."""
    from kvlint.report._view import View, split

    by_path = {result.path: result.diagnostics for result in outcome.results}
    every = [item for result in outcome.results for item in result.diagnostics]
    shown, hidden, codes = split(every, settings.show)
    listed = set(map(id, shown))
    groups = []
    for revision in chosen:
        found = [
            (file.name, item)
            for file in revision.files
            for item in sorted(by_path.get(file.path, ()), key=lambda item: item.sort_key)
            if id(item) in listed
        ]
        groups.append(Group(revision, tuple(found)))
    view = View(
        found=shown,
        hidden=tuple(sorted(hidden.items())),
        hidden_codes=tuple(sorted(codes)),
        files=outcome.files,
        color=wants_color(options["color"], to_file=False, to_errors=False),
        quiet=options["quiet"],
        targets=outcome.checked_for,
    )
    return groups, view


def as_text(groups: Sequence[Group], view: View) -> str:
    """A heading for every revision that has findings or code, its findings below, and the summary."""
    from kvlint.report._text import heading, paint, summary

    parts = []
    clean = 0
    for one in groups:
        revision = one.revision
        if not one.found:
            clean += 1
            if not view.quiet and revision.brings_code:
                parts.append(f"{title(revision, view.color)}: nothing found in {files(revision)}\n\n")
            continue
        parts.append(f"{title(revision, view.color)}\n  {paint(revision.folder, 'dim', view.color)}\n")
        for name, item in one.found:
            parts.append(f"  {name}:{item.line}:{item.column}: {heading(item, view)}\n")
            if item.help:
                parts.append(f"      help: {item.help}\n")
        parts.append("\n")
    if not view.quiet:
        affected = len({one.revision.repository for one in groups if one.found})
        total = len({one.revision.repository for one in groups})
        brings = "brings code or settings is" if total == 1 else "bring code or settings are"
        parts.append(f"{affected} of {counted(total, 'model')} that {brings} affected.\n")
    return "".join(parts) + summary(view)


def title(revision: Revision, color: bool) -> str:
    """``ORG/NAME at 0123456789ab (main)``."""
    from kvlint.report._text import paint

    text = paint(revision.repository, "bold", color)
    if revision.revision:
        text += f" at {revision.revision[:SHORT_COMMIT]}"
    if revision.refs:
        text += f" ({', '.join(revision.refs)})"
    return f"{text}, the copy that is imported" if revision.imported else text


def files(revision: Revision) -> str:
    return counted(len(revision.files), "file")


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def as_json(groups: Sequence[Group]) -> str:
    """A list with an object for every revision; its ``findings`` are those of the linter's JSON, with a ``file``."""
    import json

    from kvlint.report.json import as_object

    rows = [
        {
            "repository": one.revision.repository,
            "revision": one.revision.revision,
            "refs": list(one.revision.refs),
            "folder": one.revision.folder,
            "imported": one.revision.imported,
            "files": [file.name for file in one.revision.files],
            "findings": [{"file": name, **as_object(item)} for name, item in one.found],
        }
        for one in groups
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
