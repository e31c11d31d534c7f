"""The number of cached tokens read from the heads, head dim or batch axis."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import layouts
from kvlint.analysis.layout_values import LengthRead
from kvlint.analysis.layout_verdicts import lengths
from kvlint.checks.base import Check
from kvlint.checks.layouts import AXIS_WORDS, axis_fix, laid_out
from kvlint.checks.words import HEADS
from kvlint.findings import Category, Finding
from kvlint.nodes import walk


class LengthFromWrongAxis(Check):
    """Reports a size that is called a length and is proven to be another axis."""

    triggers = (".shape", ".size(")
    pattern = HEADS
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        known = layouts(facts)
        for verdict in lengths(known):
            site = verdict.site
            assert isinstance(site, LengthRead)
            if verdict.outcome != "wrong" or names_its_axis(site) or counts_items(site) or asks_format(site):
                continue
            place = known.place(site.statement)
            shape = laid_out(known, verdict)
            axis = verdict.sequence
            yield self.finding(
                facts,
                site.node,
                place,
                f"`{site.name}` is read from axis {site.axis}, {AXIS_WORDS[verdict.role]}"
                f"{' of ' + shape if shape else ''}: not a number of tokens",
                releases=place.releases,
                help=f"the sequence is axis {axis}" if axis is not None else "read the sequence axis",
                origin=known.origin(verdict.evidence),
                fix=axis_fix(facts, site.axis_node, axis),
            )


def names_its_axis(site: LengthRead) -> bool:
    """``len3 = k.size(3)``: the name counts axes, not tokens."""
    return site.name[-1:] == str(site.axis) and not site.name[-2:-1].isdigit()


def counts_items(site: LengthRead) -> bool:
    """``if len(past[0]) != 4``: the function knows layers of another format than pairs of keys and values."""
    if site.function is None:
        return False
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Call)
        and isinstance(node.left.func, ast.Name)
        and node.left.func.id == "len"
        and len(node.left.args) == 1
        and isinstance(node.left.args[0], ast.Subscript)
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value != 2
        for node in walk(site.function)
    )


def asks_format(site: LengthRead) -> bool:
    """``if past[0][0].shape[0] == batch``: the function asks which of several formats this very tensor has."""
    shape = site.node.value if isinstance(site.node, ast.Subscript) else site.node
    tensor = shape.value if isinstance(shape, ast.Attribute) else None
    if site.function is None or tensor is None:
        return False
    asked = tuple(f"{ast.unparse(tensor)}.{member}" for member in ("shape[", "size(", "dim(", "ndim"))
    return any(
        isinstance(node, ast.Compare) and ast.unparse(node.left).startswith(asked)
        for test in walk(site.function)
        if isinstance(test, (ast.If, ast.IfExp, ast.Assert))
        for node in walk(test.test)
    )
