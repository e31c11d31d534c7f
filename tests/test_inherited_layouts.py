"""Helpers that a class inherits from another file of its project, and what they tell of layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlint import checks
from kvlint.analysis import analyse
from kvlint.analysis.facts import Facts
from kvlint.analysis.project import Project
from kvlint.cli import main
from kvlint.source import parse, position
from kvlint.timeline import the_timeline

HEADS_FIRST = """import torch
from torch import nn


class BaseAttention(nn.Module):
    def _split_heads(self, x, num_heads, head_dim):
        new_shape = x.size()[:-1] + (num_heads, head_dim)
        x = x.view(new_shape)
        return x.permute(0, 2, 1, 3)
"""
SEQUENCE_FIRST_OF_THREE = HEADS_FIRST.replace("x.permute(0, 2, 1, 3)", "x  # split_heads").replace(
    "x.size()[:-1] + (num_heads, head_dim)", "(x.shape[0], x.shape[1], num_heads, head_dim)"
)
SEQUENCE_FIRST = HEADS_FIRST.replace("        return x.permute(0, 2, 1, 3)\n", "        return x  # split_heads\n")
DERIVED = """import torch

from attention_base import BaseAttention


class Attention(BaseAttention):
    def forward(self, x, past=None):
        k = self._split_heads(self.k_proj(x), self.num_heads, self.head_dim)
        if past is not None:
            k = torch.cat([past[0], k], dim=1)
        return k
"""
OVERRIDE = (
    DERIVED
    + """
    def _split_heads(self, x, num_heads, head_dim):
        return x.view(x.shape[0], x.shape[1], num_heads, head_dim)
"""
)


def project(folder: Path, base: str, derived: str) -> Path:
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    (folder / "attention_base.py").write_text(base, encoding="utf-8")
    path = folder / "attention.py"
    path.write_text(derived, encoding="utf-8")
    return path


def facts_of(path: Path) -> Facts:
    timeline = the_timeline()
    (region,) = parse(path, path.read_bytes()).regions
    return analyse(region, path, timeline.matching(timeline.releases[-1]), Project.of(path), timeline)


def found(path: Path) -> list[tuple[str, int]]:
    (region,) = parse(path, path.read_bytes()).regions
    codes = frozenset({"KV501", "KV502", "KV503"})
    return [
        (item.code, position(region, item.start)[0])
        for item in checks.findings(facts_of(path), codes)
        if item.category.value != "undecided"
    ]


@pytest.mark.parametrize(
    ("base", "derived", "expected"),
    [
        (HEADS_FIRST, DERIVED, [("KV501", 10)]),
        (SEQUENCE_FIRST, DERIVED, []),
        (HEADS_FIRST, OVERRIDE, []),
        (HEADS_FIRST, DERIVED.replace("dim=1", "dim=2"), []),
        (SEQUENCE_FIRST_OF_THREE, DERIVED, []),
        (SEQUENCE_FIRST_OF_THREE, DERIVED.replace("dim=1", "dim=2"), [("KV501", 10)]),
        (HEADS_FIRST, OVERRIDE.replace("dim=1", "dim=2"), [("KV501", 10)]),
        ("class BaseAttention:\n    pass\n", DERIVED, []),
    ],
)
def test_the_helper_that_runs_decides(tmp_path: Path, base: str, derived: str, expected: list[tuple[str, int]]) -> None:
    assert found(project(tmp_path, base, derived)) == expected


def test_a_base_of_the_same_name(tmp_path: Path) -> None:
    base = HEADS_FIRST.replace("BaseAttention", "Attention")
    derived = DERIVED.replace("import BaseAttention", "import Attention").replace("BaseAttention", "Attention")
    assert found(project(tmp_path, base, derived)) == [("KV501", 10)]


def test_through_two_files(tmp_path: Path) -> None:
    (tmp_path / "attention_root.py").write_text(HEADS_FIRST.replace("BaseAttention", "RootAttention"), encoding="utf-8")
    between = (
        "from attention_root import RootAttention\n\n\nclass BaseAttention(RootAttention):\n    past_key_value = None\n"
    )
    assert found(project(tmp_path, between, DERIVED)) == [("KV501", 10)]


def test_places_lie_in_the_linted_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = (
        HEADS_FIRST
        + """
    def append(self, past, x):
        b, n_heads, s, head_dim = x.shape
        return torch.cat([past, x], dim=1)
"""
    )
    derived = DERIVED.replace("torch.cat([past[0], k], dim=1)", "self.append(past[0], k)")
    path = project(tmp_path, base, derived)
    assert found(path) == []
    assert tmp_path / "attention_base.py" in facts_of(path).dependencies
    with pytest.raises(SystemExit) as stop:
        main.main(["explain", f"{project(tmp_path, HEADS_FIRST, DERIVED)}:10"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "axis 1: heads" in out and "(line 6)" in out


FUNCTION = """def split_heads(x, num_heads, head_dim):
    b, s, _ = x.shape
    return helper(x.view(b, s, num_heads, head_dim).transpose(1, 2))


def helper(x):
    return x
"""
USES = """import torch

from attention_base import split_heads


class Attention:
    def forward(self, x, past=None):
        k = split_heads(self.k_proj(x), self.num_heads, self.head_dim)
        if past is not None:
            k = torch.cat([past[0], k], dim=1)
        return k
"""


@pytest.mark.parametrize(
    ("base", "derived", "expected"),
    [
        (
            FUNCTION.replace(
                "helper(x.view(b, s, num_heads, head_dim).transpose(1, 2))",
                "x.view(b, s, num_heads, head_dim).transpose(1, 2)",
            ),
            USES,
            [("KV501", 10)],
        ),
        (
            FUNCTION.replace(
                "helper(x.view(b, s, num_heads, head_dim).transpose(1, 2))", "x.view(b, s, num_heads, head_dim)"
            ),
            USES,
            [],
        ),
        (FUNCTION, USES + "\n\ndef helper(x):\n    return x.transpose(1, 2)\n", []),
        (FUNCTION, USES + "\n\ndef helper(x):\n    return x\n", []),
    ],
)
def test_imported_functions(tmp_path: Path, base: str, derived: str, expected: list[tuple[str, int]]) -> None:
    assert found(project(tmp_path, base, derived)) == expected
