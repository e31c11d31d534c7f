"""Query heads mapped to kv heads with ``%`` instead of ``//``, and (undecided) groups that need not be whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.head_maps import GroupSize, HeadMap, head_maps, unchecked_groups
from kvlint.checks.base import Check
from kvlint.findings import Applicability, Category, Edit, Finding, Fix, Origin
from kvlint.nodes import assignment, walk
from kvlint.rewriting import has_comment, is_plain, replace_node


class ModuloHeadMap(Check):
    """Reports remainders that pick the kv head of a query head."""

    triggers = ("kv", "KV", "key_value", "query_groups", "k.shape", "key.shape", "keys.shape")
    also = (("%", "//"),)
    pattern = r"%\s*[A-Za-z_(]|//\s*[\w.\[\]\"'(]*(?:kv|KV|key_value|query_groups)"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.tree is None:
            return
        for found in head_maps(facts.tree, facts.text):
            place = Place(facts.reaching(found.statement), frozenset(), found.statement, None, None)
            if not place.releases or lays_groups_first(facts):
                continue
            start, _ = facts.span(found.use)
            yield self.finding(
                facts,
                found.node,
                place,
                f"`{facts.source(found.node)}` gives neighbouring query heads different kv heads (0, 1, 0, 1, ...); those of a "
                "group share one (0, 0, 1, 1, ...): wrong values, invisible with one kv head or as many as query heads",
                releases=place.releases,
                help=f"divide by the size of a group: `{replacement(facts, found)}`",
                origin=Origin(start, "keys or values are indexed with it here"),
                fix=fix_of(facts, found),
            )
        for group in unchecked_groups(facts.tree, facts.text):
            place = Place(facts.reaching(group.statement), frozenset(), group.statement, None, None)
            if not place.releases:
                continue
            yield self.finding(
                facts,
                group.node,
                place,
                "Nothing in this file shows that the query heads are a multiple of the kv heads; where they are not, the size "
                "of a group is rounded down",
                releases=place.releases,
                help=f"test `{facts.source(group.node.left)} % {facts.source(group.node.right)} == 0` where it is computed",
                category=Category.UNDECIDED,
                fix=test_in_front(facts, group),
            )


def lays_groups_first(facts: Facts) -> bool:
    """True where the file splits heads into ``(heads // kv_heads, kv_heads)``: then the remainder is the kv head."""
    known = facts.memo.get("groups first")
    if not isinstance(known, bool):
        nodes = walk(facts.tree) if facts.tree is not None and "//" in facts.text else []
        sizes = {
            target.id: value
            for targets, value in map(assignment, nodes)
            for target in targets
            if isinstance(target, ast.Name) and value is not None
        }
        known = facts.memo["groups first"] = any(
            is_group_of(sizes.get(first.id) if isinstance(first, ast.Name) else first, second)
            for node in nodes
            if isinstance(node, (ast.Call, ast.Tuple))
            for first, second in pairwise(node.args if isinstance(node, ast.Call) else node.elts)
        )
    return known


def is_group_of(node: ast.AST | None, kv_heads: ast.expr) -> bool:
    """True for ``heads // kv_heads``."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv)
        and ast.unparse(node.right) == ast.unparse(kv_heads)
    )


def test_in_front(facts: Facts, group: GroupSize) -> Fix | None:
    """A test in front of a statement that stands alone on its lines."""
    if not isinstance(group.statement, (ast.Assign, ast.AnnAssign)):
        return None
    start, _ = facts.span(group.statement)
    line = facts.text.rfind("\n", 0, start) + 1
    indent = facts.text[line:start]
    left, right = facts.source(group.node.left), facts.source(group.node.right)
    if indent.strip() or "\n" in left + right:
        return None
    text = (
        f"{indent}if {left} % {right}:\n"
        f'{indent}    raise ValueError("the query heads must be a multiple of the kv heads")\n'
    )
    return Fix("Test that the groups are whole", Applicability.SHOWN, (Edit(line, line, text),))


def replacement(facts: Facts, found: HeadMap) -> str:
    left = facts.source(found.node.left)
    return f"{left} // {found.group or '(query heads // kv heads)'}"


def fix_of(facts: Facts, found: HeadMap) -> Fix | None:
    if not found.group or not is_plain(found.node.left) or has_comment(facts.source(found.node)):
        return None
    return Fix(
        "Divide by the size of a group",
        Applicability.UNSAFE,
        (replace_node(facts, found.node, replacement(facts, found)),),
    )
