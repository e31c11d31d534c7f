"""The result cache: what was found in a file, for as long as nothing that decided it has changed.

An entry holds for the content of the file (its digest, never its date), the rules in use, the target releases, the
content of every other file that decided something, and this very kvlint (version, its own files, the timeline and the
Python that runs it). One JSON file a project lies in the user's cache folder, so that a linted tree stays as it was
and nobody can hand us results inside a repository. It is replaced in one step; of two runs at the same time the later
one wins, which costs time and nothing else.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

from kvlint.diagnostics import Diagnostic
from kvlint.fingerprint import digest, own_fingerprint
from kvlint.lint import Job, Result
from kvlint.writing import write_atomically

MAX_ENTRIES = 20_000
FORMAT = 1


def default_folder() -> str:
    """Where the platform keeps caches, as platformdirs has it (whose import would cost more than reading the cache)."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local")
        return os.path.join(base, "kvlint", "Cache")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/kvlint")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kvlint")


def key_of(job: Job) -> str:
    """The entry that holds for this file under these settings."""
    words = [
        job.path,
        ",".join(sorted(job.codes)),
        f"{job.target.bits:x}",
        f"{job.fix_docstrings} {job.use_suppressions} {job.with_fixes}",
    ]
    return digest("\n".join(words).encode("utf-8", "surrogateescape"))


@dataclass(slots=True)
class Cache:
    """The entries of one project. *fresh* are those that this run has used or made."""

    path: str
    fingerprint: str
    entries: dict[str, list[Any]] = field(default_factory=dict)
    fresh: dict[str, list[Any]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    changed: bool = False

    @staticmethod
    def open(folder: str, project: str, timeline: str) -> Cache:
        """The cache of *project* for the timeline of this fingerprint; empty where there is none that can be read."""
        import json

        name = f"{digest(project.encode('utf-8', 'surrogateescape'))}.json"
        cache = Cache(os.path.join(folder or default_folder(), name), f"{own_fingerprint()} {timeline} {FORMAT}")
        try:
            with open(cache.path, "rb") as file:
                stored = json.loads(file.read())
            if stored["fingerprint"] == cache.fingerprint and isinstance(stored["entries"], dict):
                cache.entries = stored["entries"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass
        return cache

    def get(self, job: Job, content: str) -> Result | None:
        """The stored result of *job* for a file whose digest is *content*."""
        key = key_of(job)
        entry = self.entries.get(key)
        try:
            if entry is None or entry[0] != content:
                return None
            if any(self.current_digest(path) != known for path, known in entry[2]):
                return None
            found = tuple(Diagnostic.from_row(job.shown, row) for row in entry[1])
        except (ValueError, TypeError, IndexError):
            return None
        self.fresh[key] = entry
        return Result(job.shown, job.path, found, digest=content)

    def put(self, job: Job, result: Result) -> None:
        """Stores a result, unless it is one that another run should find anew."""
        if result.faults or result.notices or result.fixed is not None or not result.digest:
            return
        dependencies = [[path, self.current_digest(path)] for path in result.dependencies]
        self.fresh[key_of(job)] = [result.digest, [item.to_row() for item in result.diagnostics], dependencies]
        self.changed = True

    def current_digest(self, path: str) -> str:
        """The digest of another file as it is now; "" where it cannot be read."""
        if path not in self.digests:
            try:
                with open(path, "rb") as file:
                    self.digests[path] = digest(file.read())
            except OSError:
                self.digests[path] = ""
        return self.digests[path]

    def save(self) -> None:
        """Writes the cache where it has something new. A folder that cannot be written to is no reason to complain."""
        if not self.changed:
            return
        import json

        kept = {key: entry for key, entry in self.entries.items() if key not in self.fresh}
        room = max(MAX_ENTRIES - len(self.fresh), 0)
        newest = dict(list(kept.items())[-room:] if room else [])
        text = json.dumps({"fingerprint": self.fingerprint, "entries": {**newest, **self.fresh}}, separators=(",", ":"))
        try:
            write_atomically(self.path, text.encode(), create_folder=True)
        except OSError:
            return
