"""``kvlint explain FILE:LINE``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvlint.cli import main

CODE = """import torch


class Block:
    def forward(self, x, past=None):
        b, s, _ = x.shape
        k = self.k_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2)
        if past is not None:
            k = torch.cat([past[0], k], dim=1)
        return k
"""


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main.main(["explain", *arguments])
    output = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, output.out, output.err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "attention.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def test_layout_with_its_evidence(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(capsys, f"{file}:7")
    assert code == 0
    assert out.splitlines() == [
        "k: [batch, heads, sequence, head dim]",
        "  axis 0: batch; its size is called `b` here (line 6)",
        "  axis 1: heads; laid out as (b, s, heads, head_dim) (line 7)",
        "  axis 2: sequence; its size is called `s` here (line 6)",
        "  axis 3: head dim; laid out as (b, s, heads, head_dim) (line 7)",
    ]


def test_both_sides_of_an_append_and_the_finding(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(capsys, f"{file}:9", "--output-format", "json")
    data = json.loads(out)
    assert code == 0
    assert [item["name"] for item in data["tensors"]] == ["k", "past[0]"]
    assert {item["layout"] for item in data["tensors"]} == {"[batch, heads, sequence, head dim]"}
    assert len(data["findings"]) == 1 and data["findings"][0].startswith("KV501 silent: ")


def test_a_line_without_tensors(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(capsys, f"{file}:1")
    assert code == 0
    assert out == f"{file}:1: nothing here has to do with a cache, a model or their tensors, as far as is known\n"


def test_markdown_counts_the_lines_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"# Title\n\n```python\n{CODE}```\n", encoding="utf-8")
    _, out, _ = explain(capsys, f"{path}:10")
    assert out.startswith("k: [batch, heads, sequence, head dim]\n")
    assert "(line 10)" in out


def notebook(path: Path) -> Path:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": ["import torch\n"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": CODE.splitlines(True)},
    ]
    data = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_notebooks_count_the_lines_of_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = notebook(tmp_path / "book.ipynb")
    code, out, _ = explain(capsys, f"{path}:2:9")
    assert code == 0
    assert out.startswith("k: [batch, heads, sequence, head dim]\n")
    assert "KV501 silent: " in out


def test_prose_has_findings_and_no_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "README.md"
    path.write_text("# Title\n\nKV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2\n", encoding="utf-8")
    code, out, _ = explain(capsys, f"{path}:3")
    assert (code, out[:13], out.count("\n")) == (0, "KV701 silent:", 1)
    code, out, _ = explain(capsys, f"{path}:1")
    assert (code, out) == (
        0,
        f"{path}:1: nothing here has to do with a cache, a model or their tensors, as far as is known\n",
    )


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("book.ipynb:3", "is a notebook: write FILE:CELL:LINE"),
        ("book.ipynb:3:1", "has no code cell 3 in Python (it has 1 to 2)"),
        ("book.ipynb:2:40", "cell 2 of book.ipynb has no line 40 (it has 11)"),
        ("broken.ipynb:1:1", "broken.ipynb"),
        ("empty.ipynb:1:1", "has no code cell in Python"),
        ("README.md:9", "README.md has no line 9 (it has 2)"),
        ("README.md:1:1", "is no notebook: write FILE:LINE"),
        ("odd.py:1", "is not valid utf-8"),
        ("README.md:0", "has no line 0"),
    ],
)
def test_places_that_are_not_there(
    place: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook(tmp_path / "book.ipynb")
    Path("broken.ipynb").write_text("{", encoding="utf-8")
    Path("empty.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', encoding="utf-8"
    )
    Path("README.md").write_text("a\nb\n", encoding="utf-8")
    Path("odd.py").write_bytes(b"x = '\xff'\n")
    code, _, err = explain(capsys, place)
    assert code == 2
    assert err.startswith("kvlint: error: ") and complaint in err and err.count("\n") == 1


@pytest.mark.parametrize("place", ["attention.py", "missing.py:3", "attention.py:x"])
def test_mistakes_take_one_line(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = explain(capsys, place)
    assert code == 2
    assert err.startswith("kvlint: error: ") and err.count("\n") == 1


def test_a_file_that_does_not_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n", encoding="utf-8")
    code, _, err = explain(capsys, f"{path}:1")
    assert code == 2
    assert "cannot be read" in err


VALUES = """import transformers
from transformers import DynamicCache


def count(tokens, thing):
    cache = DynamicCache()
    seen = len(cache.key_cache)
    held = cache.get_seq_length()
    also = thing.get_usable_length(1)
    quiet = cache.value_cache  # kvlint: ignore[KV202]
    try:
        return cache.seen_tokens
    except AttributeError:
        return seen + held
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (6, "`cache` is a `DynamicCache` (constructed) (line 6)"),
        (7, "`cache` is a `DynamicCache` (constructed) (line 6)"),
        (7, "KV202 breaks: `DynamicCache` has no `key_cache`: AttributeError from 4.56.0"),
        (8, "not reported: `get_seq_length` of a `DynamicCache` (constructed) is there on 5.24.0"),
        (9, "not reported: nothing shows what `thing` is, and what is not known is never reported"),
        (10, "(not reported: a comment silences it)"),
        (12, "not reported: AttributeError raised here is caught"),
    ],
)
def test_any_line_says_what_its_values_are_and_why_it_is_reported_or_not(
    line: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_text(VALUES, encoding="utf-8")
    code, out, _ = explain(capsys, f"{path}:{line}")
    assert code == 0
    assert any(said in item for item in out.splitlines()), out


def test_a_line_for_other_releases_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.py"
    path.write_text(VALUES, encoding="utf-8")
    _, out, _ = explain(capsys, f"{path}:7", "--target", "4.50", "--output-format", "json")
    known = json.loads(out)
    assert known["findings"] == []
    assert known["target"] == "4.50 (--target)"
    assert {"text": "cache", "what": "a `DynamicCache` (constructed)", "line": 6} in known["values"]
    assert any("`key_cache` of a `DynamicCache`" in reason for reason in known["not_reported"])
    assert explain(capsys, f"{path}:7", "--target", "instaled")[0] == 2
    assert explain(capsys, f"{path}:7", "--config", str(tmp_path / "nope.toml"))[0] == 2


PROJECT = {
    "pyproject.toml": "",
    "app/__init__.py": "",
    "app/base.py": "from transformers.models.llama.modeling_llama import LlamaAttention\n\n\n"
    "class Base(LlamaAttention):\n    pass\n",
    "app/own.py": "from app.base import Base\n\n\nclass Mine(Base):\n"
    "    def forward(self, hidden_states, past_key_values=None):\n        return hidden_states, past_key_values\n\n\n"
    "def fast(self, hidden_states, past_key_values=None):\n    return hidden_states\n\n\n"
    "class Unrelated:\n    pass\n",
    "app/patch.py": "import transformers\nfrom transformers import cache_utils\n"
    "from transformers.models.mistral.modeling_mistral import MistralAttention\n\nfrom app.own import fast\n\n\n"
    "def install():\n    MistralAttention.forward = fast\n"
    "    cache_utils.DynamicCache.key_cache = property(lambda self: [])\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_project_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = explain(capsys, "--project", str(project / "app"), "--output-format", "json")
    known = json.loads(out)
    attention = "transformers.models.llama.modeling_llama.LlamaAttention"
    assert (code, known["root"]) == (0, str(project))
    assert [(item["name"], item["path"], item["line"], item["through"]) for item in known["classes"]] == [
        ("Base", "app/base.py", 4, []),
        ("Mine", "app/own.py", 4, ["Base"]),
    ]
    assert all(item["library"] == [attention] for item in known["classes"])
    (place,) = known["places"]
    assert place["target"] == "transformers.models.mistral.modeling_mistral.MistralAttention.forward"
    assert (place["value"], place["called_by_library"]) == ("fast", True)
    assert place["defined"] == {"path": "app/own.py", "line": 9}
    assert place["put"] == {"path": "app/patch.py", "line": 9}
    entries = {item["name"]: item for item in known["entries"]}
    assert entries["Mine.forward"]["why"] == f"derives from {attention}"
    assert entries["fast"]["parameters"] == ["self", "hidden_states", "past_key_values"]
    assert "app/patch.py:9" in entries["fast"]["why"]
    assert known["shims"] == ["key_cache"]


def test_a_project_as_text(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    code, out, _ = explain(capsys, "--project")
    assert code == 0
    assert "app/own.py:4: Mine derives from transformers.models.llama.modeling_llama.LlamaAttention through Base" in out
    assert "app/patch.py:9: transformers.models.mistral.modeling_mistral.MistralAttention.forward = fast" in out
    assert "Unrelated" not in out


def test_a_project_with_nothing_of_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "setup.py").write_text("", encoding="utf-8")
    code, out, _ = explain(capsys, "--project", str(tmp_path))
    assert (code, out.count("  none")) == (0, 5)


def test_neither_a_place_nor_a_project_is_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert explain(capsys)[0] == 2
    code, _, err = explain(capsys, "--project", str(tmp_path / "nope"))
    assert (code, "no such file or folder" in err) == (2, True)
