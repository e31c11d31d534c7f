"""Runs over many files: the screen, worker processes, the result cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvlint import linter, triggers, workers
from kvlint import run as runs
from kvlint.cache import Cache
from kvlint.config import Overrides, Resolver
from kvlint.discovery import discover
from kvlint.fixing import allowed_applicabilities
from kvlint.folders import cache_folder
from kvlint.jobs import Fault, Job, Result
from kvlint.releases import ReleaseSet
from kvlint.run import Options, Run

STALE = "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as the current folder, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "setup.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were really linted, not answered from the cache."""
    seen: list[str] = []
    original = linter.lint_bytes

    def note(job: Job, data: bytes) -> Result:
        seen.append(job.shown)
        return original(job, data)

    monkeypatch.setattr(linter, "lint_bytes", note)
    return seen


def run(fix: bool = False, jobs: int = 1, use_cache: bool = True, **overrides: object) -> Run:
    resolver = Resolver.create(Overrides(**overrides), str(Path.cwd()))  # type: ignore[arg-type]
    allowed = allowed_applicabilities(False) if fix else frozenset()
    files = discover((".",), resolver).files
    return runs.run(files, Options(cwd=str(Path.cwd()), allowed=allowed, jobs=jobs, use_cache=use_cache))


def found(outcome: Run) -> list[tuple[str, int, str]]:
    return [(item.path, item.line, item.code) for result in outcome.results for item in result.diagnostics]


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_without_a_trigger_are_never_parsed(parsed: list[str]) -> None:
    write("a.py", "syntax error here (\n")
    write("b.py", STALE)
    outcome = run()
    assert (found(outcome), outcome.files, parsed) == ([("b.py", 4, "KV204")], 3, ["b.py"])


def test_workers_find_the_same_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        write(f"m{number:02}.py", STALE * (number % 4) + "# DynamicCache\n")
    one = run(jobs=1, use_cache=False)
    started: list[int] = []
    original = workers.execute_in_pool

    def note(batches: Iterator[list[Job]], count: int, codes: frozenset[str]) -> object:
        started.append(count)
        return original(batches, count, codes)

    monkeypatch.setattr(workers, "PARALLEL_BYTES", 100)
    monkeypatch.setattr(workers, "BATCH_BYTES", 0)
    monkeypatch.setattr(workers, "execute_in_pool", note)
    two = run(jobs=2, use_cache=False)
    assert started == [2]
    assert one.results == two.results
    assert len(found(one)) == 18


def test_little_work_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "execute_in_pool", lambda *_: pytest.fail("workers for a handful of bytes"))
    write("a.py", STALE)
    write("b.py", STALE)
    assert len(found(run(jobs=2))) == 2


def die(job: Job) -> Result:
    """Stands in for a check that takes its whole process down on one file."""
    if job.shown == "b.py":
        os._exit(9)
    return linter.lint(job)


def test_a_worker_that_dies_costs_its_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py", "c.py"):
        write(name, STALE)
    monkeypatch.setattr(workers, "PARALLEL_BYTES", 100)
    monkeypatch.setattr(workers, "BATCH_BYTES", 0)
    monkeypatch.setattr(workers, "work", die)
    outcome = run(jobs=2, use_cache=False)
    assert found(outcome) == [("a.py", 4, "KV204"), ("c.py", 4, "KV204")]
    faults = [fault for result in outcome.results for fault in result.faults]
    assert [str(fault) for fault in faults] == [
        "internal error in a worker on b.py: the process died (out of memory?); please report it"
    ]


# ---------------------------------------------------------------------------------------------------------------------
# The result cache


def test_an_unchanged_file_is_answered_from_the_cache(parsed: list[str]) -> None:
    write("a.py", STALE)
    write("sub/b.py", STALE + "x = (\n")
    first = run()
    assert (len(parsed), first.results) == (2, run().results)
    assert len(parsed) == 2
    assert {item.path for result in first.results for item in result.diagnostics} == {"a.py", "sub/b.py"}


def test_stored_results_are_the_same_to_the_last_detail(parsed: list[str]) -> None:
    notebook = {
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "source": STALE}],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    write("n.ipynb", json.dumps(notebook))
    write("a.py", STALE.replace("keys =", "keys = '\u2028é' or") + "# kvlint: ignore[KV101]\n")
    fresh, stored = run(), run()
    assert len(parsed) == 2
    assert fresh.results == stored.results
    assert any(item.origin and item.fix for result in stored.results for item in result.diagnostics)


def test_content_decides_and_not_its_date(parsed: list[str]) -> None:
    path = write("a.py", STALE)
    run()
    os.utime(path, (1, 1))
    run()
    assert len(parsed) == 1
    status = path.stat()
    write("a.py", STALE.replace("keys", "kezs"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    run()
    assert len(parsed) == 2


def test_other_settings_are_other_results(parsed: list[str]) -> None:
    write("a.py", STALE)
    assert found(run()) == found(run(target="5.1")) == [("a.py", 4, "KV204")]
    assert found(run(target="4.57.6")) == []
    assert found(run(ignore=("KV204",))) == []
    assert len(parsed) == 4
    run(target="5.1")
    run()
    assert len(parsed) == 4


def test_another_file_that_decided_something_is_part_of_it(parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.py", STALE)
    other = write("helper.py", "one = 1\n")
    original = linter.look_at

    def with_dependency(job: Job, data: bytes, timeline: object) -> linter.Look:
        look = original(job, data, timeline)  # type: ignore[arg-type]
        return linter.Look(look.source, look.regions, look.faults, (str(other.resolve()), "/nowhere/gone.py"))

    monkeypatch.setattr(linter, "look_at", with_dependency)
    run()
    run()
    assert len(parsed) == 1
    write("helper.py", "one = 2\n")
    run()
    assert len(parsed) == 2
    other.unlink()
    run()
    assert len(parsed) == 3


def test_a_remark_in_a_module_that_was_followed_changes_nothing(parsed: list[str]) -> None:
    write("setup.py", "")
    write("compat.py", 'import transformers\n\nNEW = transformers.__version__ >= "5"\n')
    write("a.py", "from compat import NEW\n" + STALE.replace("keys =", "keys = None if NEW else"))
    run()
    before = len(parsed)
    write("compat.py", '# since 5.0\nimport transformers\n\nNEW = transformers.__version__ >= "5"  \n')
    run()
    assert parsed[before:].count("a.py") == 0
    write("compat.py", 'import transformers\n\nNEW = transformers.__version__ >= "9"\n')
    assert found(run()) == [("a.py", 5, "KV204")]


def test_fixing_uses_what_is_stored_for_files_without_anything_to_fix(parsed: list[str]) -> None:
    write("a.py", STALE)
    write("b.py", "from transformers import SinkCache\n")
    run()
    run(fix=True)
    assert parsed == ["a.py", "b.py", "a.py"]


def test_an_upgrade_of_kvlint_or_its_timeline_forgets_everything(
    parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.py", STALE)
    run()
    monkeypatch.setattr("kvlint.cache.own_fingerprint", lambda: "another")
    run()
    run()
    assert len(parsed) == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"null", b"[]", b'{"fingerprint": 1}', b"\xff\x00", b"[" * 100_000, None],
)
def test_a_damaged_cache_is_an_empty_one(parsed: list[str], damage: bytes | None) -> None:
    write("a.py", STALE)
    run()
    (path,) = (item for item in Path(cache_folder()).iterdir() if item.name.count(".") == 1)
    if damage is None:
        stored = json.loads(path.read_bytes())
        stored["entries"] = {key: [entry[0], [[1, 2]], 7] for key, entry in stored["entries"].items()}
        damage = json.dumps(stored).encode()
    path.write_bytes(damage)
    assert found(run()) == [("a.py", 4, "KV204")]
    run()
    assert len(parsed) == 2


def test_a_cache_folder_that_cannot_be_used_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file in the way", encoding="utf-8")
    write("a.py", STALE)
    assert found(run()) == [("a.py", 4, "KV204")]


def test_no_cache_leaves_no_trace(tmp_path: Path, place: Path) -> None:
    write("a.py", STALE)
    run(use_cache=False)
    assert not (tmp_path / "cache").exists()
    assert sorted(path.name for path in place.iterdir()) == ["a.py", "setup.py"]


def test_entries_of_other_settings_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvlint.cache.MAX_ENTRIES", 2)
    write("a.py", STALE)
    for target in ("5.1", "5.2", "5.3"):
        run(target=target)
    (path,) = (item for item in Path(cache_folder()).iterdir() if item.name.count(".") == 1)
    assert len(json.loads(path.read_bytes())["entries"]) == 2


def test_what_the_screen_said_is_kept_for_the_content(monkeypatch: pytest.MonkeyPatch, parsed: list[str]) -> None:
    monkeypatch.setattr(runs, "REMEMBERED_FILES", 1)
    asked: list[bytes] = []
    original = runs.screen_bytes

    def note(data: bytes, *rest: Any) -> str:
        asked.append(data)
        return original(data, *rest)

    monkeypatch.setattr(runs, "screen_bytes", note)
    write("a.py", STALE)
    write("b.py", "x = 1\n")
    write("c.py", "x = 1  # kvlint: ignore[KV204]\n")
    first = run()
    assert len(asked) == 4
    assert run().results == first.results
    assert len(asked) == 4
    assert [code for _, _, code in found(first)] == ["KV204", "KV900"]
    write("b.py", STALE)
    assert [code for _, _, code in found(run())] == ["KV204", "KV204", "KV900"]
    assert len(asked) == 4
    write("b.py", STALE + "y = 1\n")
    run()
    run(ignore=("KV204",))
    assert len(asked) == 9


def test_faults_and_notices_are_not_stored(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "c.json"), "x")
    job = Job("/a.py", "a.py", frozenset(), frozenset(), engine_target())
    for result in (
        Result("a.py", "/a.py", (), digest="d", faults=(Fault("KV101", "a.py", "oops"),)),
        Result("a.py", "/a.py", (), digest="d", notices=("hm",)),
        Result("a.py", "/a.py", (), digest="d", fixed=b""),
        Result("a.py", "/a.py", (), digest=""),
    ):
        cache.put(job, result, "t")
    assert (cache.fresh, cache.changed) == ({}, False)


def engine_target() -> ReleaseSet:
    return ReleaseSet.of(0)


# ---------------------------------------------------------------------------------------------------------------------
# Trigger words


def test_the_generated_trigger_words_are_those_of_the_checks() -> None:
    assert triggers.table() == triggers.from_checks(), "run `python scripts/build_triggers.py`"


def test_a_check_that_the_generated_words_lack_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "SIEVES", {})
    assert triggers.table.__wrapped__() == triggers.from_checks()


def test_examples_in_which_nothing_can_be_found_are_not_read(tmp_path: Path) -> None:
    """An example is screened by its own words; one with a comment of ours is read in any case."""
    from kvlint.jobs import Job
    from kvlint.linter import worth_reading
    from kvlint.timeline import the_timeline

    timeline = the_timeline()
    job = Job("a.py", "a.py", frozenset({"KV204"}), frozenset({"KV204"}), timeline.matching(">=5"))
    assert worth_reading(job, ">>> past_key_values[0]")
    assert worth_reading(job, ">>> print(1)  # kvlint: ignore[KV204]")
    assert not worth_reading(job, ">>> print(1)")
