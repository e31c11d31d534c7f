"""Kv heads copied for the query heads in the wrong order, or along an axis that is not the heads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.head_maps import other_branches
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import Expansion
from kvlint.analysis.layout_verdicts import Verdict, expansions
from kvlint.checks.base import Check
from kvlint.checks.bindings import tree_of
from kvlint.checks.layouts import AXIS_WORDS
from kvlint.checks.words import HEADS
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.rewriting import has_comment, is_plain, replace_node


class TiledKvHeads(Check):
    """Reports copies on a proven heads axis in tile order, and interleaved copies on a proven other axis."""

    triggers = ("repeat(", "repeat_interleave", "repeat_kv", "tile(", "cat(", "concat", "expand(", "stack(")
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in expansions(known):
            site = verdict.site
            assert isinstance(site, Expansion)
            place = known.place(site.statement)
            if verdict.outcome == "wrong" and not is_chosen(facts, site):
                yield self.finding(
                    facts,
                    site.node,
                    place,
                    message(verdict, site),
                    releases=place.releases,
                    help=advice(site),
                    origin=known.origin(verdict.evidence),
                    fix=order_fix(facts, site),
                )
            elif verdict.outcome == "undecided" and verdict.note == "group":
                yield self.finding(
                    facts,
                    site.node,
                    place,
                    f"Keys or values are tiled on axis {site.axis}; nothing here shows whether that is the heads",
                    releases=place.releases,
                    help="grouped queries need every kv head repeated in place (`repeat_interleave`)",
                    category=Category.UNDECIDED,
                )


def is_chosen(facts: Facts, site: Expansion) -> bool:
    """True where the other branch of a condition repeats the heads in place: the code knows both orders."""
    return facts.tree is not None and any(
        isinstance(node, ast.Attribute) and node.attr == "repeat_interleave"
        for node in other_branches(tree_of(facts).ancestors(site.node), site.node)
    )


def message(verdict: Verdict, site: Expansion) -> str:
    if site.order == "interleaved":
        return f"Copies are made along axis {site.axis}, {AXIS_WORDS[verdict.role]}, and not along the heads"
    if verdict.note == "groups":
        return (
            "The groups are tiled (0, 1, 0, 1, ...) where each must be repeated in place (0, 0, 1, 1, ...): heads read "
            "the states of other groups, unless there is one group"
        )
    return (
        "The kv heads are tiled (0, 1, 0, 1, ...) where each must be repeated in place (0, 0, 1, 1, ...): query heads "
        "read the keys and values of other groups; invisible with one kv head or as many as query heads"
    )


def advice(site: Expansion) -> str:
    if site.order == "interleaved":
        return "repeat along the heads axis"
    if site.how == "einops":
        return "put the group behind the heads: `(h g)`"
    if site.how == "index":
        return "repeat the number of each head in place (`repeat_interleave`)"
    if site.how == "reshape":
        return "insert the new axis behind the heads (`k[:, :, None]`) before expanding"
    return f"use `repeat_interleave(n, dim={site.axis})`"


OWN_ORDER = re.compile(r"\.(?:view|reshape|unflatten)\([^()]*//[^()]*\)\s*\.(?:transpose|permute|swapaxes|flatten)\(")
"""Heads split into groups and put into another order: the queries may lie so that tiled keys are right."""


def order_fix(facts: Facts, site: Expansion) -> Fix | None:
    """``k.repeat(1, n, 1, 1)`` -> ``k.repeat_interleave(n, dim=1)``."""
    node = site.node
    if site.order != "tiled" or site.how != "repeat" or not isinstance(node, ast.Call) or site.count_node is None:
        return None
    if (
        not isinstance(node.func, ast.Attribute)
        or node.func.attr != "repeat"
        or not is_plain(site.count_node)
        or node.keywords
    ):
        return None
    if has_comment(facts.source(node)) or OWN_ORDER.search(facts.text):
        return None
    text = f"{facts.source(node.func.value)}.repeat_interleave({facts.source(site.count_node)}, dim={site.axis})"
    return Fix("Repeat each kv head in place", Applicability.UNSAFE, (replace_node(facts, node, text),))
