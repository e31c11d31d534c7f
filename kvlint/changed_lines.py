"""Which lines of which files a git diff touches: what ``--since REV`` reports on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from kvlint.diagnostics import Diagnostic
from kvlint.errors import UsageProblem

HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
UNSAFE_REVISION = re.compile(r"\A-|\s|\A\Z")


@dataclass(frozen=True, slots=True)
class ChangedLines:
    """The changed lines of each changed file, by real absolute path; None: the whole file is new."""

    files: Mapping[str, tuple[range, ...] | None]

    def touches_file(self, path: str) -> bool:
        """True where something of the file at the absolute *path* was changed."""
        return os.path.realpath(path) in self.files

    def touches(self, item: Diagnostic, path: str) -> bool:
        """True where a finding in the file at *path* lies on a changed line, or its value comes from one."""
        ranges = self.files.get(os.path.realpath(path), ())
        if ranges is None:
            return True
        places = [range(item.span.line, item.span.end_line + 1)]
        if item.origin is not None:
            line = (item.origin.in_file or item.origin).line
            places.append(range(line, line + 1))
        places += [range(o.line, o.end_line + 1) for o in item.related if o.path == item.path and o.cell is None]
        return any(one.start < other.stop and other.start < one.stop for one in places for other in ranges)


def changed_since(revision: str, cwd: str) -> ChangedLines:
    """What changed in the working tree since the commit where it left *revision*; untracked files are new as a whole.

    Raises UsageProblem where there is no git, no repository or no such revision.
    """
    if UNSAFE_REVISION.search(revision):
        raise UsageProblem(f"--since {revision!r}: not a revision")
    top = git(cwd, "rev-parse", "--show-toplevel").decode("utf-8", "surrogateescape").rstrip("\n")
    try:
        commit = git(cwd, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except UsageProblem:
        raise UsageProblem(f"--since {revision}: git knows no such revision here") from None
    start = commit.decode().strip()
    with suppress(UsageProblem):
        start = git(cwd, "merge-base", start, "HEAD").decode().strip() or start
    diff = ("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--no-textconv")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/", "--diff-filter=d")
    changes = git(top, "-c", "core.quotePath=false", *diff, *prefixes, start, "--")
    files: dict[str, tuple[range, ...] | None] = {
        os.path.realpath(os.path.join(top, name)): ranges for name, ranges in read_diff(changes).items()
    }
    untracked = git(top, "ls-files", "--others", "--exclude-standard", "-z")
    for name in untracked.decode("utf-8", "surrogateescape").split("\0"):
        if name:
            files[os.path.realpath(os.path.join(top, name))] = None
    return ChangedLines(files)


def git(folder: str, *arguments: str) -> bytes:
    """The output of a git command in *folder*. Raises UsageProblem where it fails."""
    try:
        run = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    except OSError as problem:
        raise UsageProblem(f"--since: git cannot be run: {(problem.strerror or str(problem)).lower()}") from None
    if run.returncode:
        lines = run.stderr.decode("utf-8", "replace").strip().splitlines()
        words = lines[0].removeprefix("fatal: ") if lines else f"git {arguments[0]} failed"
        raise UsageProblem(f"--since: {words}")
    return run.stdout


def read_diff(diff: bytes) -> dict[str, tuple[range, ...]]:
    """The lines on the new side of a diff without context, by file name. Where lines only went away there are none."""
    found: dict[str, list[range]] = {}
    name = ""
    left = 0
    for line in diff.decode("utf-8", "surrogateescape").split("\n"):
        if left:
            left -= not line.startswith("\\")
        elif line.startswith("+++ "):
            name = unquoted(line[4:].removesuffix("\t"))
            name = name.removeprefix("b/")
            found.setdefault(name, [])
        elif (hunk := HUNK.match(line)) is not None:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            removed = re.match(r"@@ -\d+(?:,(\d+))?", line)
            left = count + int((removed[1] or 1) if removed else 0)
            if count:
                found[name].append(range(first, first + count))
    return {name: tuple(ranges) for name, ranges in found.items()}


def unquoted(name: str) -> str:
    """A file name as it is, where git wrote it in quotes with escapes."""
    if not name.startswith('"'):
        return name
    escapes = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

    def plain(match: re.Match[str]) -> str:
        word = match[1]
        return chr(int(word, 8)) if word[0].isdigit() else escapes.get(word, word)

    return re.sub(r"\\([0-7]{3}|.)", plain, name[1:-1])
