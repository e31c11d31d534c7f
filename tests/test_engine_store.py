"""What is kept of a project between runs: units and surroundings, by content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvlint.engine import index as engine_index
from kvlint.engine.index import Index
from kvlint.engine.store import Store, row_of, state_of, unit_of
from kvlint.engine.units import Surroundings

PATCH = """
from transformers.models.llama import modeling_llama
from attention import attend

modeling_llama.LlamaAttention.forward = attend
"""
ATTENTION = """
def attend(self, hidden_states, past_key_value=None, **kwargs):
    return past_key_value.update(hidden_states, hidden_states, 0)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "setup.py").write_text("", encoding="utf-8")
    (root / "patch.py").write_text(PATCH, encoding="utf-8")
    (root / "attention.py").write_text(ATTENTION, encoding="utf-8")
    return root


def surroundings(project: Path, folder: Path) -> Surroundings:
    return Index(folder=str(folder)).surroundings(str(project), str(project / "attention.py"))


def test_a_unit_survives_the_way_to_disk(project: Path) -> None:
    for unit in Index().project(str(project)).units.values():
        assert unit_of(json.loads(json.dumps(row_of(unit)))) == unit


def test_what_was_kept_is_what_is_found(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = surroundings(project, tmp_path / "kept")
    assert [place.target for place in first.places] == ["transformers.models.llama.modeling_llama.LlamaAttention"]
    lowered: list[str] = []
    monkeypatch.setattr(engine_index, "lower", lambda path, *_: lowered.append(path))
    assert surroundings(project, tmp_path / "kept") == first
    assert lowered == []


def test_only_what_changed_is_lowered_again(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings(project, tmp_path / "kept")
    (project / "attention.py").write_text("\n\n" + ATTENTION, encoding="utf-8")
    lowered: list[str] = []
    real = engine_index.lowered

    def noted(path: str, data: bytes) -> object:
        lowered.append(Path(path).name)
        return real(path, data)

    monkeypatch.setattr(engine_index, "lowered", noted)
    assert surroundings(project, tmp_path / "kept").places[0].line == 4
    assert lowered == ["attention.py"]


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[]", b'{"kvlint": 1}', b"\xff\x00", b"[" * 100_000, None])
@pytest.mark.parametrize("kind", ["units", "surroundings"])
def test_damage_is_as_good_as_nothing(project: Path, tmp_path: Path, damage: bytes | None, kind: str) -> None:
    folder = tmp_path / "kept"
    first = surroundings(project, folder)
    for path in folder.glob("*.json"):
        if kind in path.name or kind == "units":
            content = json.loads(path.read_bytes())
            content["content"] = {"state": 1, "files": [[1]], "a": [2]}
            path.write_bytes(json.dumps(content).encode() if damage is None else damage)
    assert surroundings(project, folder) == first


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert surroundings(project, tmp_path / "file" / "inner").places


def test_a_state_is_that_of_all_contents() -> None:
    assert state_of({"a": b"1", "b": b"2"}) == state_of({"b": b"2", "a": b"1"})
    assert state_of({"a": b"1", "b": b"2"}) != state_of({"a": b"1", "b": b"3"})
    assert Store("", "x").units() == {}


COMPAT = """
import transformers

LIMIT = 3


def is_new() -> bool:
    return transformers.__version__ >= "5"


def long_one(model):
    first = 1
    second = 2
    third = 3
    fourth = 4
    fifth = 5
    sixth = 6
    seventh = 7
    eighth = 8
    ninth = 9
    tenth = 10
    eleventh = 11
    twelfth = 12
    return first
"""


def surface(project: Path, text: str) -> str:
    path = project / "compat.py"
    path.write_text(text, encoding="utf-8")
    return Index().surroundings(str(project), str(path)).surface


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3\n", "LIMIT = 3\n# why three\n\n"),
        ("    second = 2\n", "    second = 3\n    more = 1\n"),
    ],
)
def test_a_remark_and_the_inside_of_what_tells_nothing_are_no_surface(project: Path, before: str, after: str) -> None:
    assert before in COMPAT
    assert surface(project, COMPAT.replace(before, after)) == surface(project, COMPAT) != ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ('>= "5"', '>= "6"'),
        ("def long_one(model):", "def long_one(model, past=None):"),
        ("    second = 2\n", "    second = model.past\n"),
    ],
)
def test_what_others_can_be_told_is_surface(project: Path, before: str, after: str) -> None:
    assert before in COMPAT
    assert surface(project, COMPAT.replace(before, after)) != surface(project, COMPAT)


OWN = """
class Tiny:
    def forward(self, ids, past=None):
        return Output(past_key_values=[(ids, ids)])
"""


def test_a_format_of_the_projects_own_is_known_in_the_other_files(project: Path) -> None:
    assert not Index().surroundings(str(project), str(project / "attention.py")).own_format
    (project / "tiny.py").write_text("import transformers\n" + OWN, encoding="utf-8")
    index = Index()
    assert index.surroundings(str(project), str(project / "attention.py")).own_format
    assert index.surroundings(str(project), str(project / "notes.ipynb")).own_format
    assert not index.surroundings(str(project), str(project / "tiny.py")).own_format
