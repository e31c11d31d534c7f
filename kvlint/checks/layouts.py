"""What the checks of tensor layouts share: words for axes, the fix of an axis number, undecided places."""

from __future__ import annotations

import ast

from kvlint.analysis.facts import Facts
from kvlint.analysis.layout_facts import Layouts
from kvlint.analysis.layout_verdicts import Verdict
from kvlint.findings import Applicability, Fix
from kvlint.rewriting import replace_node

AXIS_WORDS = {"heads": "the heads", "head dim": "the head dim", "batch": "the batch", "sequence": "the sequence"}


def axis_fix(facts: Facts, axis_node: ast.expr | None, axis: int | None) -> Fix | None:
    """Writes another axis number in place of a literal one."""
    if axis_node is None or axis is None or not is_number(axis_node):
        return None
    return Fix(f"Use axis {axis}", Applicability.SAFE, (replace_node(facts, axis_node, str(axis)),))


def is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def laid_out(layouts: Layouts, verdict: Verdict) -> str:
    """``[batch, heads, sequence, head dim]`` for the tensor of a verdict, or "" where too little is known."""
    if verdict.tensor is None:
        return ""
    text = layouts.layout_text(verdict.tensor)
    return text if "..." not in text else ""


def subject(part: str) -> str:
    """``keys``, ``values`` or ``keys and values`` as the start of a sentence."""
    return part[:1].upper() + part[1:]
