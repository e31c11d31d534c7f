"""What programs call: `lint` for a text, `lint_paths` for files; both return typed findings, and neither writes.

They go the way of the command line (settings, screen, engine), so that an editor, a script and a hook say the same.
"""

from __future__ import annotations

import os
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

from kvlint.config import Overrides, Resolver, Settings, validate
from kvlint.diagnostics import Diagnostic
from kvlint.discovery import Discovery, FoundFile, discover

if TYPE_CHECKING:
    from kvlint.jobs import Result
    from kvlint.run import Run


@dataclass(frozen=True, slots=True)
class FileReport:
    """What was found in one text.

    *findings* are those that the command line would list, by place. With ``fix=True`` *fixed_bytes* is what a file would
    hold after the fixes (None where they change nothing) and *findings* are those left in it. *notices* are remarks (a
    text too big to be checked), *errors* what kept something from being checked, one line each.
    """

    path: str
    findings: tuple[Diagnostic, ...]
    fixed_bytes: bytes | None = None
    notices: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def fixed(self) -> str | None:
        """The text after the fixes, with its line ends and without a byte order mark."""
        if self.fixed_bytes is None:
            return None
        from pathlib import Path

        from kvlint.source import parse

        return parse(Path(self.path), self.fixed_bytes, docstrings=False).text


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in files: *files* lists those that had anything to say, *checked* counts all that were linted."""

    files: tuple[FileReport, ...]
    checked: int
    notices: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The findings of all files, by path and place."""
        return tuple(item for file in self.files for item in file.findings)


def settings_for(folder: str | os.PathLike[str] = ".") -> Settings:
    """The settings of the files in *folder*: those of the nearest configuration file, else the defaults.

    Change them with `dataclasses.replace`. Raises UsageProblem for a configuration that cannot be read.
    """
    cwd = os.getcwd()
    return Resolver.create(Overrides(), cwd).for_folder(absolute(folder, cwd))


def lint(
    source: str | bytes,
    path: str | os.PathLike[str] = "<string>",
    settings: Settings | None = None,
    *,
    fix: bool = False,
) -> FileReport:
    """Lints a text: a module, or what the suffix of *path* says (a notebook, Markdown, ``generation_config.json``).

    Nothing at *path* is read or written, but what the text imports from its project is looked up beside it. Without
    *settings* those of the folder of *path* hold. Raises UsageProblem for settings that mean nothing.
    """
    cwd = os.getcwd()
    file = absolute(path, cwd)
    chosen = prepared(settings, cwd) if settings is not None else settings_for(os.path.dirname(file))
    data = as_bytes(source)
    outcome = run_over((FoundFile(file, chosen),), chosen, cwd, fix, stdin=data, cache=False)
    shown = shown_name(file, cwd)
    if not outcome.results:
        return FileReport(shown, (), notices=outcome.notices)
    found = report_of(outcome.results[0], outcome, chosen, (FoundFile(file, chosen),), data)
    return replace(found, notices=(*outcome.notices, *found.notices))


def lint_paths(
    paths: Iterable[str | os.PathLike[str]],
    settings: Settings | None = None,
    *,
    fix: bool = False,
    cache: bool = True,
) -> Report:
    """Lints files and folders as the command line does. With ``fix=True`` each report has the fixed text; nothing is written.

    Without *settings* each file has those of its own folder. *cache* keeps results for the next run. Raises UsageProblem
    for a path that does not exist and for settings that mean nothing.
    """
    cwd = os.getcwd()
    fixed = prepared(settings, cwd) if settings is not None else None
    found: Discovery = discover([os.fspath(path) for path in paths], Resolver(Overrides(), cwd, fixed))
    of_file = {file.path: file.settings for file in found.files}
    first = fixed or (found.files[0].settings if found.files else settings_for())
    outcome = run_over(found.files, first, cwd, fix, stdin=None, cache=cache)
    problems = tuple(f"{problem.path}: {problem.message}" for problem in found.problems)
    reports = tuple(report_of(result, outcome, of_file[result.path], found.files) for result in outcome.results)
    return Report(reports, outcome.files, outcome.notices, problems)


def absolute(path: str | os.PathLike[str], cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.fspath(path)))


def prepared(settings: Settings, cwd: str) -> Settings:
    """*settings* with a root for their globs, checked. Raises UsageProblem."""
    validate(settings, "settings")
    return settings if settings.root else replace(settings, root=cwd)


def as_bytes(source: str | bytes) -> bytes:
    """The text as a file would hold it: in the encoding that it declares, where that can write it."""
    if isinstance(source, bytes):
        return source
    data = source.encode("utf-8", "surrogatepass")
    if "coding" not in source[:2_000]:
        return data
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        return source.encode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        return data


def run_over(
    files: tuple[FoundFile, ...], settings: Settings, cwd: str, fix: bool, *, stdin: bytes | None, cache: bool
) -> Run:
    from kvlint.fixing import allowed_applicabilities
    from kvlint.run import Options, run

    allowed = allowed_applicabilities(settings.unsafe_fixes) if fix else frozenset()
    options = Options(cwd, allowed, use_cache=cache, cache_folder=settings.cache_dir, jobs=settings.jobs)
    return run(files, options, stdin)


def shown_name(path: str, cwd: str) -> str:
    from kvlint.run import shown_path

    return shown_path(path, cwd)


def report_of(
    result: Result, outcome: Run, settings: Settings, files: Sequence[FoundFile], data: bytes | None = None
) -> FileReport:
    """A result as callers see it: hidden kinds of findings, and those of the baseline, left out."""
    findings = tuple(item for item in result.diagnostics if item.category.value not in settings.hidden_kinds)
    if settings.baseline and findings:
        from kvlint.baseline import Linted, read, without_known

        linted = Linted(files, (result,), "; ".join(outcome.checked_for), data)
        findings = without_known(read(settings.baseline), linted, findings).new
    return FileReport(result.shown, findings, result.fixed, result.notices, tuple(map(str, result.faults)))
