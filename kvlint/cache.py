"""The result cache: what was found in a file, for as long as nothing that decided it has changed.

An entry holds for the content of the file (its digest, never its date), the rules in use, the target releases, the
content of every other file that decided something, and this very kvlint (version, its own files, the timeline and the
Python that runs it). What the screen said of some content is kept too: a digest is faster than thirty searches.

One JSON file a project lies in the user's cache folder, so that a linted tree stays as it was and nobody can hand us
results inside a repository. It is replaced in one step; of two runs at the same time the later one wins, which costs
time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from kvlint.fingerprint import digest, own_fingerprint
from kvlint.folders import cache_folder
from kvlint.writing import write_atomically

if TYPE_CHECKING:
    from kvlint.jobs import Job, Result

T = TypeVar("T")

MAX_ENTRIES = 20_000
FORMAT = 2


def key_of(job: Job, timeline: str) -> str:
    """The entry that holds for this file under these settings and the timeline of this fingerprint."""
    words = [
        timeline,
        job.path,
        ",".join(sorted(job.codes)),
        f"{job.target.bits:x}",
        f"{job.fix_docstrings} {job.use_suppressions} {job.with_fixes} {job.grouped}",
        repr(job.surroundings),
    ]
    return digest("\n".join(words).encode("utf-8", "surrogateescape"))


@dataclass(slots=True)
class Cache:
    """The entries of one project; the *fresh* ones are those that this run has used or made.

    *screens* holds, by content and rules in use, the rules that could fire ("" for none).
    """

    path: str
    fingerprint: str
    entries: dict[str, list[Any]] = field(default_factory=dict)
    fresh: dict[str, list[Any]] = field(default_factory=dict)
    screens: dict[str, str] = field(default_factory=dict)
    fresh_screens: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    changed: bool = False
    surface: Callable[[str], str] | None = None
    """A digest of what another file shows to those that only follow a name into it; "" where only its content will do."""

    @staticmethod
    def open(folder: str, project: str, surface: Callable[[str], str] | None = None) -> Cache:
        """The cache of *project*; empty where there is none that can be read."""
        import json

        name = f"{digest(project.encode('utf-8', 'surrogateescape'))}.json"
        cache = Cache(os.path.join(folder or cache_folder(), name), f"{own_fingerprint()} {FORMAT}", surface=surface)
        try:
            with open(cache.path, "rb") as file:
                stored = json.loads(file.read())
            entries, screens = stored["entries"], stored["screens"]
            if stored["fingerprint"] == cache.fingerprint and isinstance(entries, dict) and isinstance(screens, dict):
                cache.entries, cache.screens = entries, screens
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            pass
        return cache

    def screened(self, content: str, rules: str) -> str | None:
        """What was kept with `keep_screen` for this content and these rules."""
        key = f"{content} {rules}"
        found = self.screens.get(key)
        if not isinstance(found, str):
            return None
        self.fresh_screens[key] = found
        return found

    def keep_screen(self, content: str, rules: str, outcome: str) -> None:
        """Keeps what the screen said."""
        self.fresh_screens[f"{content} {rules}"] = outcome
        self.changed = True

    def get(self, job: Job, content: str, timeline: str) -> Result | None:
        """The stored result of *job* for a file whose digest is *content*."""
        from kvlint.diagnostics import Diagnostic
        from kvlint.jobs import Result

        key = key_of(job, timeline)
        entry = self.entries.get(key)
        try:
            if entry is None or entry[0] != content:
                return None
            around = frozenset(job.surroundings.around)
            if any(self.digest_for(path, around) != known for path, known in entry[2]):
                return None
            found = tuple(Diagnostic.from_row(job.shown, row) for row in entry[1])
        except (ValueError, TypeError, IndexError):
            return None
        self.fresh[key] = entry
        return Result(job.shown, job.path, found, digest=content)

    def put(self, job: Job, result: Result, timeline: str) -> None:
        """Stores a result, unless it is one that another run should find anew."""
        if result.faults or result.notices or result.fixed is not None or not result.digest:
            return
        around = frozenset(job.surroundings.around)
        dependencies = [[path, self.digest_for(path, around)] for path in result.dependencies]
        self.fresh[key_of(job, timeline)] = [
            result.digest,
            [item.to_row() for item in result.diagnostics],
            dependencies,
        ]
        self.changed = True

    def digest_for(self, path: str, around: frozenset[str]) -> str:
        """What another file was like for a result: all of it for one that is walked together with the linted file
        (*around*), what it shows for any other."""
        shown = self.surface(path) if self.surface is not None and path not in around else ""
        return shown or self.current_digest(path)

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

        content = {
            "fingerprint": self.fingerprint,
            "entries": newest(self.entries, self.fresh),
            "screens": newest(self.screens, self.fresh_screens),
        }
        try:
            text = json.dumps(content, separators=(",", ":"))
            write_atomically(self.path, text.encode(), create_folder=True)
        except OSError:
            return


def newest(old: dict[str, T], fresh: dict[str, T]) -> dict[str, T]:
    """The *fresh* entries, behind as many of the latest *old* ones as there is room for."""
    room = max(MAX_ENTRIES - len(fresh), 0)
    kept = [item for item in old.items() if item[0] not in fresh]
    return {**dict(kept[-room:] if room else []), **fresh}
