"""Runs kvlint on the case files: small inputs, each with a file that says what must be reported on which line.

Every entry of ``lines`` is reported, with a code that fits its kind; nothing is reported elsewhere, except deprecated
names on ``deprecated_name_lines``. A case that waits for a rule without a page or a check is a strict expected
failure; that is worked out from the rulebook, so that it turns into a plain test with the rule.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page_runner
import pytest

from kvlint import rulebook
from kvlint.findings import Category

CASES = Path(__file__).with_name("cases")

KINDS: dict[str, str] = {
    "removed-class": "KV101 KV102 KV103",
    "removed-method": "KV201",
    "removed-attr": "KV202 KV203",
    "not-subscriptable": "KV204",
    "iter-arity": "KV205",
    "ctor-arg": "KV206 KV207 KV208",
    "ctor-positional": "KV206 KV207 KV208",
    "cache-config": "KV206 KV207 KV403",
    "crop-positive": "KV209",
    "crop-kw": "KV209",
    "max-length-sentinel": "KV210 KV201",
    "first-step-check": "KV211",
    "sliding-length": "KV212",
    "cache-position-ignored": "KV213",
    "mask-helper": "KV103 KV213",
    "subclass-init": "KV214",
    "subclass-partial": "KV214",
    "attn-arity": "KV309",
    "legacy-tuple": "KV301 KV302",
    "reorder-legacy": "KV303",
    "kw-singular": "KV304",
    "kw-swallowed": "KV305 KV304",
    "kw-renamed": "KV305 KV308",
    "output-key": "KV306",
    "generate-arg": "KV307 KV401 KV402 KV403",
    "cache-impl": "KV401 KV402 KV403 KV404",
    "cache-impl-conflict": "KV401 KV403",
    "layout-cat-axis": "KV501 KV502 KV504",
    "layout-gqa-order": "KV601 KV602",
    "size-heads": "KV701",
    "size-mla": "KV702",
    "size-head-dim": "KV703",
    "reuse-no-copy": "KV801 KV802",
    "reuse-shallow-copy": "KV801",
    "reuse-short-mask": "KV803 KV802",
    "batch-mismatch": "KV804",
    "pad-mask": "KV803",
}
"""The codes that may report an entry of each kind."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input and what its expect file says. A place is (cell or None, line)."""

    file: Path
    target: str
    kinds: dict[tuple[int | None, int], str]
    deprecated: frozenset[int]

    @property
    def id(self) -> str:
        """The name of the input without its suffix."""
        return self.file.stem

    def codes(self, place: tuple[int | None, int]) -> frozenset[str]:
        """The codes that may report this entry."""
        return frozenset(KINDS[self.kinds[place]].split())


def _read(expect: Path) -> Case:
    data = json.loads(expect.read_text(encoding="utf-8"))
    stem = expect.name.removesuffix(".expect.json")
    (file,) = (path for path in CASES.glob(f"{stem}.*") if path != expect)
    kinds = {
        (entry.get("cell"), entry["cell_line"] if "cell" in entry else entry["line"]): entry["kind"]
        for entry in data["lines"]
    }
    return Case(file, data["target"], kinds, frozenset(data.get("deprecated_name_lines", ())))


ALL = [_read(expect) for expect in sorted(CASES.glob("*.expect.json"))]


def _built() -> frozenset[str]:
    """The codes of the rules that have both their page and their check."""
    checks = Path(rulebook.__file__).with_name("checks")
    return frozenset(page.code for page in rulebook.read_pages() if (checks / f"{page.module}.py").is_file())


BUILT = _built()


def _parameters() -> list[Any]:
    parameters = []
    for case in ALL:
        waiting = sorted({kind for place, kind in case.kinds.items() if not case.codes(place) & BUILT})
        marks = (
            [pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"no rule yet for {', '.join(waiting)}")]
            if waiting
            else []
        )
        parameters.append(pytest.param(case, id=case.id, marks=marks))
    return parameters


each = pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])


def _findings(case: Case, *options: str) -> list[dict[str, Any]]:
    """What is found in the case as the only file of a project, in the current folder."""
    Path(".git").mkdir(exist_ok=True)
    alone = Path(shutil.copy(case.file, Path.cwd()))
    return page_runner.findings(alone, "--target", case.target, *options)


@pytest.mark.parametrize("case", _parameters())
def test_case_is_reported(case: Case, empty_folder: Path) -> None:
    found: dict[tuple[int | None, int], set[str]] = {}
    for finding in _findings(case, "--show", "deprecated"):
        for one in (finding, *finding["related"]):
            found.setdefault((one.get("cell"), one["line"]), set()).add(one["code"])
    missing = {place: kind for place, kind in case.kinds.items() if not found.get(place, set()) & case.codes(place)}
    assert missing == {}, f"reported: {found}"


@each
def test_nothing_else_is_reported(case: Case, empty_folder: Path) -> None:
    extra = [
        (one["cell"], one["line"], one["code"], one["message"])
        for one in _findings(case, "--show", "deprecated")
        if (one["cell"], one["line"]) not in case.kinds
        and not (one["category"] == Category.DEPRECATED.value and _line_in_file(case, one) in case.deprecated)
    ]
    assert extra == []


@each
def test_deprecated_names_are_hidden_unless_asked_for(case: Case, empty_folder: Path) -> None:
    shown = _findings(case, "--show", "deprecated")
    by_default = _findings(case)
    assert by_default == [one for one in shown if one["category"] != Category.DEPRECATED.value]


def _line_in_file(case: Case, finding: dict[str, Any]) -> int:
    """The line in the file as it lies on disk: for a notebook, that of the cell's line in the JSON."""
    if finding["cell"] is None:
        return int(finding["line"])
    cells = [cell for cell in json.loads(case.file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    wanted = json.dumps(cells[finding["cell"] - 1]["source"][finding["line"] - 1])
    lines = case.file.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if wanted in line)


def test_every_kind_is_known() -> None:
    assert len(ALL) >= 70
    assert {kind for case in ALL for kind in case.kinds.values()} == set(KINDS)


def test_every_input_has_an_expect_file() -> None:
    inputs = {path for path in CASES.iterdir() if not path.name.endswith(".expect.json")}
    assert inputs == {case.file for case in ALL}
