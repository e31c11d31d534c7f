"""Inputs of one or several files, each a project of its own: what must be reported on which line, and nothing else.

``NNN_name.*`` or a folder ``NNN_name`` with an ``expect.json``. The 200s were rebuilt from public reports, the 400s are kinds
that were missed in real code, the 500s are right code that looks alike. Of a file, ``lines`` must be reported, by whatever
rule (``or`` names lines where the same report is as good); on ``accept_lines``, and on ``deprecated_name_lines`` by what is deprecated,
something may be. Related places of a finding count as found, never as too much. What is still open stands in ``open.txt``: such
a case is a strict expected failure, so that it turns into a plain test once it is right.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvlint.cli import main

CORPUS = Path(__file__).with_name("corpus")
OPEN = frozenset((CORPUS / "open.txt").read_text(encoding="utf-8").split())
FREE = ("accept_lines", "optional_lines", "deprecated_name_lines")

Place = tuple[int | None, int]
"""(cell, line): a line of the file, or of a cell of a notebook."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file must say: each entry names places of which one is reported; *free* may be."""

    entries: tuple[tuple[Place, ...], ...]
    free: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Case:
    """A project; *files* are relative to it, *source* is the file or the folder of the input."""

    name: str
    source: Path
    files: dict[str, Wanted]


def wanted(data: dict[str, Any]) -> Wanted:
    entries = []
    for line in data.get("lines", []):
        if "cell" in line:
            entries.append(((line["cell"], line.get("cell_line", line["line"])),))
        else:
            entries.append(tuple((None, number) for number in (line["line"], *line.get("or", ()))))
    free = {(None, item["line"] if isinstance(item, dict) else item) for key in FREE for item in data.get(key, [])}
    return Wanted(tuple(entries), frozenset(free))


def cases() -> Iterator[Case]:
    for expect in sorted([*CORPUS.glob("*.expect.json"), *CORPUS.glob("*/expect.json")]):
        data = json.loads(expect.read_text(encoding="utf-8"))
        if expect.name == "expect.json":
            folder = expect.parent
            yield Case(folder.name, folder, {name: wanted(item) for name, item in (data.get("files") or {}).items()})
        else:
            stem = expect.name.removesuffix(".expect.json")
            (source,) = (path for path in CORPUS.glob(f"{stem}.*") if path != expect)
            yield Case(stem, source, {source.name: wanted(data)})


ALL = list(cases())


def parameters() -> list[Any]:
    marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason="open")]
    return [pytest.param(case, id=case.name, marks=marks if case.name in OPEN else []) for case in ALL]


def laid_out(case: Case, folder: Path) -> None:
    (folder / ".git").mkdir()
    if case.source.is_dir():
        shutil.copytree(case.source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expect.json"))
    else:
        shutil.copy(case.source, folder)


def reported(
    case: Case, folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[tuple[set[Place], bool, str]]]:
    """By file: the places of every report, whether it is a related one, and what it says."""
    target = str(folder) if case.source.is_dir() else str(folder / case.source.name)
    options = ["--isolated", "--no-cache", "--target", "5.24", "--output-format", "json", "--exit-zero", "-j", "1"]
    with pytest.raises(SystemExit):
        main([*options, target])
    found: dict[str, list[tuple[set[Place], bool, str]]] = {}
    for one in json.loads(capsys.readouterr().out):
        if one["category"] == "deprecated":
            continue
        for item, related in [(one, False), *((other, True) for other in one["related"])]:
            name = (folder / item["path"]).resolve().relative_to(folder.resolve()).as_posix()
            last = item.get("end_line") or item["line"]
            places: set[Place] = {(item.get("cell"), line) for line in range(item["line"], last + 1)}
            if item.get("cell") is not None:
                places.add((None, line_in_notebook(folder / name, item["cell"], item["line"])))
            found.setdefault(name, []).append((places, related, f"{item['line']} {item['code']} {item['message']}"))
    return found


def line_in_notebook(path: Path, cell: int, line: int) -> int:
    """The line of the notebook's JSON that holds a line of a cell."""
    text = path.read_text(encoding="utf-8")
    code = [one for one in json.loads(text)["cells"] if one["cell_type"] == "code"][cell - 1]
    wanted_text = json.dumps("".join(code["source"]).split("\n")[line - 1])[1:-1]
    return next(number for number, held in enumerate(text.split("\n"), 1) if wanted_text in held)


@pytest.mark.parametrize("case", parameters())
def test_what_is_wrong_is_reported_and_nothing_else(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = reported(case, tmp_path, capsys)
    for name, item in case.files.items():
        reports = found.get(name, [])
        missed = [entry for entry in item.entries if not any(places & set(entry) for places, _, _ in reports)]
        known = {place for entry in item.entries for place in entry} | item.free
        more = [says for places, related, says in reports if not related and not places & known]
        assert (missed, more) == ([], []), name


def test_what_is_open_exists() -> None:
    assert {case.name for case in ALL} >= OPEN
