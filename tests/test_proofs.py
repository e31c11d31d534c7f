"""The table of fixes and their proofs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from kvlint import proofs, rulebook
from kvlint.rule_commands import rule

PROJECTS = {folder.name for folder in (Path(__file__).parent / "fixes").iterdir() if folder.is_dir()}


def test_every_proof_is_a_project_that_is_run_and_every_project_proves_something() -> None:
    named = {name for shape in proofs.shapes() for name in (*shape.works, *shape.held)}
    assert named == PROJECTS


def test_shapes_belong_to_rules_with_fixes() -> None:
    fixing = {page.code for page in rulebook.load() if page.fix != "none"}
    assert {shape.rule for shape in proofs.shapes()} <= fixing


def test_a_rule_tells_what_its_fix_was_proven_on() -> None:
    shown = CliRunner().invoke(rule, ["KV305"]).output
    assert "## Proven on" in shown
    assert "run after it: callers_elsewhere" in shown
    assert "## Proven on" not in CliRunner().invoke(rule, ["KV802"]).output
