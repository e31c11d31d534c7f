"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
"""In continuous integration the same examples every time: a red run is about the change, not about luck."""
if os.environ.get("CI"):
    settings.load_profile("ci")

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _variable in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS"):
    os.environ.pop(_variable, None)


@pytest.fixture(scope="session")
def worker() -> Iterator[Callable[[str], object]]:
    """``worker("4")``, ``worker("5")``: the process that runs examples on those releases, started when asked for."""
    from page_runner import Worker

    running: dict[str, Worker] = {}

    def start(major: str) -> Worker:
        if major not in running:
            running[major] = Worker(major)
        return running[major]

    yield start
    for process in running.values():
        process.close()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, outside of any project's configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
