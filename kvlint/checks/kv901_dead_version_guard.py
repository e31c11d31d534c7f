"""A condition on the transformers release that every release in force answers alike: one of its branches is dead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from kvlint.analysis.facts import Facts, GuardUse
from kvlint.checks.base import Check
from kvlint.findings import Category, Finding
from kvlint.nodes import walk


class DeadVersionGuard(Check):
    """Reports version tests that the range in force decides; off unless selected, since it is about a declared range."""

    triggers = ("version", "Version", "VERSION")
    also = (("transformers",),)
    default: ClassVar[bool] = False
    category = Category.META

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.tree is None or not facts.guards:
            return
        owners = {id(node.test): node for node in walk(facts.tree) if isinstance(node, (ast.If, ast.IfExp, ast.While))}
        for use in facts.guards:
            owner = owners.get(id(use.node))
            reached = use.place.releases & facts.target
            if owner is None or not reached or not asks_for_version(facts, use):
                continue
            true_on = reached & use.releases
            if true_on and true_on != reached:
                continue
            ranges = ", ".join(facts.timeline.ranges(reached))
            answer = "true" if true_on else "false"
            yield self.finding(
                facts,
                use.node,
                use.place,
                f"this condition is {answer} on every release that gets here ({ranges}): {dead(owner, bool(true_on))}",
                help="keep the branch that is taken, without the condition"
                if true_on or orelse(owner)
                else "remove it",
            )


def asks_for_version(facts: Facts, use: GuardUse) -> bool:
    """True for a condition that says the word, or a name that was made of it: what `hasattr` finds out is no promise
    about releases."""
    if says_version(facts, use.node):
        return True
    names = {node.id for node in walk(use.node) if isinstance(node, ast.Name)}
    return bool(names & version_names(facts))


def says_version(facts: Facts, node: ast.AST) -> bool:
    return "version" in facts.source(node).lower()


def version_names(facts: Facts) -> frozenset[str]:
    """Names that the module gives the answer to a question about a version."""
    known = facts.memo.get("version names")
    if not isinstance(known, frozenset):
        made = (node for node in walk(facts.tree) if isinstance(node, ast.Assign)) if facts.tree is not None else ()
        known = facts.memo["version names"] = frozenset(
            target.id
            for node in made
            if says_version(facts, node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        )
    return known


def orelse(owner: ast.AST) -> bool:
    return bool(getattr(owner, "orelse", None))


def dead(owner: ast.AST, always: bool) -> str:
    """What never runs."""
    if not always:
        return "its branch never runs"
    return "its other branch never runs" if orelse(owner) else "it decides nothing"
