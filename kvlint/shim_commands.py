"""The command ``kvlint shim``: writes a module that back-fills what old files use of transformers."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from kvlint.discovery import discover
from kvlint.errors import UsageProblem
from kvlint.options import (
    HELP,
    REPORT,
    SETTINGS,
    GroupedCommand,
    config_options,
    file_options,
    option,
    resolver_of,
    rule_options,
    shared_overrides,
)


@click.command("shim", cls=GroupedCommand, context_settings=HELP)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@option(SETTINGS, "--target", metavar="RELEASES", help="The releases to run on: 5.24, latest (default), installed.")
@option(
    SETTINGS,
    "--python",
    metavar="ENV",
    help="Environment or interpreter whose transformers --target installed reads.",
)
@config_options
@rule_options
@file_options
@option(REPORT, "-o", "--output", metavar="FILE", help="Write the module to FILE (default: standard output).")
@option(REPORT, "--strict", is_flag=True, help="Exit 1 where something is left that no shim can mend.")
def shim(paths: tuple[str, ...], **options: Any) -> int:
    """Write a small module that lets the files in PATHS run on a newer transformers.

    For files that cannot be edited, such as the code of a model on the hub. The module adds the removed members that
    these files use, and nothing else; its install() does nothing where they exist. What no member could mend is listed
    in the module and on the error stream.
    """
    from kvlint.run import Options, Targets
    from kvlint.shim import members, module
    from kvlint.shim_needs import needs_of

    if "-" in paths:
        raise UsageProblem("shim reads files and folders, not standard input")
    cwd = os.getcwd()
    resolver = resolver_of(options, shared_overrides(options, target=options["target"] or "latest"), cwd)
    found = discover(paths, resolver)
    settings = resolver.for_folder(cwd)
    how = Options(cwd=cwd, use_cache=False, with_fixes=False, environment=options["python"])
    target = Targets(how).of(settings, cwd)
    needs = needs_of(found.files, how, target, members().keys)
    text = module(needs, target.text)
    if options["output"] is None:
        sys.stdout.write(text)
    elif text:
        write(options["output"], text)
    report(needs, text, options["output"])
    faults = (*needs.problems, *(f"{problem.path}: {problem.message}" for problem in found.problems))
    for fault in faults:
        print(f"kvlint: error: {fault}", file=sys.stderr)
    return 2 if faults else 1 if options["strict"] and needs.leftovers else 0


def write(name: str, text: str) -> None:
    """Writes the module. Raises UsageProblem where that would overwrite something else, or fails."""
    from kvlint.shim import WRITTEN_BY

    try:
        if os.path.exists(name):
            with open(name, encoding="utf-8", errors="replace") as file:
                if WRITTEN_BY not in file.read(2000):
                    raise UsageProblem(f"-o {name}: this file is no shim of kvlint; it is not overwritten")
        with open(name, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as problem:
        raise UsageProblem(f"-o {name}: {(problem.strerror or str(problem)).lower()}") from None


def report(needs: Any, text: str, output: str | None) -> None:
    """Says on the error stream what was written, and what is left."""
    from kvlint.report._text import count
    from kvlint.shim_needs import places

    for item in needs.leftovers:
        print(f"kvlint: not mended: {item.shown}:{item.line}: {item.code} {item.message}", file=sys.stderr)
    if not text:
        what = "no member that could be added would help" if needs.leftovers else "these files need nothing"
        print(f"kvlint: nothing written: {what}", file=sys.stderr)
    elif output is not None:
        methods = len({want.method for want in needs.wants if want.method is not None})
        also = f" and adapts {count(methods, 'method')}" if methods else ""
        print(f"kvlint: wrote {output}: back-fills {count(len(places(needs.wants)), 'member')}{also}", file=sys.stderr)
