"""Baselines: findings that are known already, so that only new ones are reported.

A known finding is named by its file, its rule, the function that it lies in and the text of its line, not by a line
number: code that moves stays known. Paths are relative to the baseline file.
"""

from __future__ import annotations

import ast
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlint.errors import UsageProblem

if TYPE_CHECKING:
    from kvlint.diagnostics import Diagnostic
    from kvlint.discovery import FoundFile
    from kvlint.jobs import Result
    from kvlint.run import Run

FORMAT = 1

Scopes = Mapping[tuple[int | None, int], str]
"""The qualified name of the innermost function or class by cell and line; what is in none has no entry."""


@dataclass(frozen=True, slots=True, order=True)
class Known:
    """What a finding is known by: *path* relative to the baseline, *scope* ("" at module level), *text* of its line."""

    path: str
    code: str
    scope: str
    text: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """The content of a baseline file: how often each finding was there, and the releases it was written for."""

    path: str
    entries: Counter[Known]
    target: str = ""

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.path))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings that are *new*, how many are *known*, and entries of which nothing is left."""

    new: tuple[Diagnostic, ...]
    known: int
    stale: tuple[Known, ...]


def read(path: str) -> Baseline:
    """The baseline at *path*. Raises UsageProblem where it cannot be read or is none."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as problem:
        hint = " (--write-baseline makes one)" if isinstance(problem, FileNotFoundError) else ""
        raise UsageProblem(f"baseline {path}: {(problem.strerror or str(problem)).lower()}{hint}") from None
    except (ValueError, RecursionError) as problem:
        raise UsageProblem(f"baseline {path}: not valid JSON: {problem}") from None
    try:
        if content["kvlint-baseline"] != FORMAT:
            version = content["kvlint-baseline"]
            raise UsageProblem(f"baseline {path}: has format {version!r}, this kvlint reads {FORMAT}: write it anew")
        entries = Counter(
            {
                Known(file, str(row["code"]), str(row["in"]), str(row["text"])): int(row.get("count", 1))
                for file, rows in content["findings"].items()
                for row in rows
            }
        )
        return Baseline(path, entries, str(content.get("target", "")))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UsageProblem(f"baseline {path}: not a baseline of kvlint (--write-baseline makes one)") from None


def written(baseline: Baseline) -> str:
    """The text of a baseline file: sorted, so that a diff of two shows what changed."""
    findings: dict[str, list[dict[str, Any]]] = {}
    for known, count in sorted(baseline.entries.items()):
        row: dict[str, Any] = {"code": known.code, "in": known.scope, "text": known.text}
        findings.setdefault(known.path, []).append(row if count == 1 else {**row, "count": count})
    content = {"kvlint-baseline": FORMAT, "target": baseline.target, "findings": findings}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def identified(
    found: Iterable[Diagnostic], folder: str, files: Mapping[str, str], read_file: Callable[[str], bytes]
) -> list[tuple[Known, Diagnostic]]:
    """Each finding with what it is known by. *files* are absolute paths by shown ones, *read_file* gives what was linted."""

    @cache
    def scopes(path: str) -> Scopes:
        return scopes_of(Path(path), read_file(path))

    named = []
    for item in found:
        path = files[item.path]
        scope = scopes(path).get((item.cell, item.line), "")
        named.append((Known(relative(path, folder), item.code, scope, line_text(item)), item))
    return named


def relative(path: str, folder: str) -> str:
    """*path* from *folder*, with ``/``; as it is where they have nothing in common (two drives)."""
    try:
        return os.path.relpath(path, folder).replace(os.sep, "/")
    except ValueError:
        return path.replace(os.sep, "/")


def line_text(item: Diagnostic) -> str:
    """The line of a finding, blanks between its words made one."""
    return next((" ".join(line.text.split()) for line in item.source if line.number == item.line), "")


def scopes_of(path: Path, data: bytes) -> Scopes:
    """The functions and classes of a file, by the places of their lines."""
    from kvlint import source

    found: dict[tuple[int | None, int], str] = {}
    for region in source.parse(path, data).regions:
        if not region.is_python:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(region.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        lines = region.lines
        for first, last, name in sorted(named_blocks(tree), key=lambda block: (block[0], -block[1])):
            for place in lines[first - 1 : last]:
                found[(place.cell, place.number)] = name
    return found


def named_blocks(tree: ast.Module) -> list[tuple[int, int, str]]:
    """First line, last line and qualified name of every function and class, outer ones before those inside."""
    blocks: list[tuple[int, int, str]] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, outer = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}" if outer else child.name
                first = min([child.lineno, *(item.lineno for item in child.decorator_list)])
                blocks.append((first, child.end_lineno or child.lineno, name))
                waiting.append((child, name))
            elif not isinstance(child, ast.expr):
                waiting.append((child, outer))
    return blocks


def compare(
    baseline: Baseline, found: Sequence[tuple[Known, Diagnostic]], judged: Callable[[Known], bool]
) -> Comparison:
    """Takes the known findings out of *found*. An entry is stale where nothing is left of it and *judged* says that this run
    would have found it.

    An entry stands for one finding: first for one that is the same in all, then for one whose function has another
    name, then for one whose file has, if the old file is gone.
    """
    left = Counter(baseline.entries)
    waiting = list(found)
    for same in (whole, without_scope, without_path):
        by_key: dict[object, list[Known]] = {}
        for known in sorted(left.elements()):
            if same is not without_path or not os.path.exists(os.path.join(baseline.folder, known.path)):
                by_key.setdefault(same(known), []).append(known)
        still = []
        for known, item in waiting:
            entries = by_key.get(same(known))
            if entries:
                left[entries.pop(0)] -= 1
            else:
                still.append((known, item))
        waiting = still
    stale = tuple(sorted(known for known in left.elements() if judged(known)))
    return Comparison(tuple(item for _, item in waiting), len(found) - len(waiting), stale)


def whole(known: Known) -> object:
    return known


def without_scope(known: Known) -> object:
    return known.path, known.code, known.text


def without_path(known: Known) -> object:
    return known.code, known.scope, known.text


def merged(old: Baseline, new: Baseline, looked_at: Callable[[Known], bool]) -> Baseline:
    """*new* with the entries of *old* about files that this run did not look at and that are still there."""
    kept = Counter(
        {
            known: count
            for known, count in old.entries.items()
            if not looked_at(known) and os.path.exists(os.path.join(old.folder, known.path))
        }
    )
    return Baseline(new.path, new.entries + kept, new.target)


@dataclass(frozen=True, slots=True)
class Linted:
    """What a run looked at, as far as baselines ask: the files with their settings, and the bytes that findings are about."""

    files: Sequence[FoundFile]
    results: Sequence[Result]
    target: str
    stdin: bytes | None = None

    @staticmethod
    def of(files: Sequence[FoundFile], outcome: Run, stdin: bytes | None = None) -> Linted:
        return Linted(files, outcome.results, "; ".join(outcome.checked_for), stdin)

    def content(self, path: str) -> bytes:
        """The bytes in which the findings of the file at *path* lie: fixed ones where there are any."""
        fixed = next((result.fixed for result in self.results if result.path == path), None)
        if fixed is not None:
            return fixed
        if self.stdin is not None:
            return self.stdin
        try:
            return Path(path).read_bytes()
        except OSError:
            return b""

    def identified(self, found: Iterable[Diagnostic], folder: str) -> list[tuple[Known, Diagnostic]]:
        """Each finding with what it is known by in a baseline that lies in *folder*."""
        paths = {result.shown: result.path for result in self.results}
        return identified(found, folder, paths, self.content)

    def judges(self, folder: str) -> Callable[[Known], bool]:
        """Whether this run would have found an entry of a baseline in *folder*: its file was linted with its rule, or is gone."""
        from kvlint.run import in_use

        codes = {relative(file.path, folder): in_use(*file.settings.codes_for(file.path)) for file in self.files}

        def judged(known: Known) -> bool:
            if known.path in codes:
                return known.code in codes[known.path]
            return not os.path.exists(os.path.join(folder, known.path))

        return judged


def without_known(baseline: Baseline, linted: Linted, found: Iterable[Diagnostic]) -> Comparison:
    """The findings that are not in the baseline. Entries count as stale only where it was written for the same releases."""
    judged = linted.judges(baseline.folder)
    same_target = not linted.target or not baseline.target or linted.target == baseline.target
    return compare(baseline, linted.identified(found, baseline.folder), lambda known: same_target and judged(known))


def renewed(path: str, linted: Linted, found: Iterable[Diagnostic]) -> Baseline:
    """A baseline for *path* with all of *found*, and with what an old one there says of files that were not linted now."""
    folder = os.path.dirname(os.path.abspath(path))
    new = Baseline(path, Counter(known for known, _ in linted.identified(found, folder)), linted.target)
    return merged(read(path), new, linted.judges(folder)) if os.path.exists(path) else new
