"""An attention ``forward`` that still returns the past as its third output, where decoder layers unpack two."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.nodes import assignment, walk
from kvlint.analysis.values import ModelLayers, Unknown
from kvlint.behaviour import attention_families, releases_of
from kvlint.checks.base import Check
from kvlint.checks.library_calls import LibraryCalled, library_called
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import has_comment


class AttentionThirdOutput(Check):
    """Reports attention modules and patches that return three outputs."""

    triggers = ("Attention", "attn", "attention")
    also = (("forward",), ("return",))
    pattern = (
        r"\.\s*forward\s*=(?!=)|_(?:CLASSES|TYPES)\b|\bsetattr\b|MethodType|\.\s*\w*Att\w*\s*=(?!=)|Att\w*\s+as\b|"
        r"\bclass\s+\w+\s*\([^)]*(?:[aA]tt|Block|Layer)"
    )

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers:
            return
        called = {id(item.info.node): item for item in library_called(facts) if item.role == "attention"}
        for use in facts.returns:
            function = use.place.function
            item = called.get(id(function.node)) if function is not None else None
            if function is None or item is None or item.elsewhere:
                continue
            value = returned(function.node, use.node.value) or appended(function.node, use.node.value)
            if value is None or len(value.elts) != 3:
                continue
            if any(isinstance(element, ast.Starred) for element in value.elts):
                continue
            life = two_outputs(facts, item)
            if by_parameters(item) and not is_past(value.elts[2]):
                continue
            in_force = use.place.releases & item.place.releases
            wrong = in_force & life
            if wrong:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    f"`{item.shown}` returns three outputs and decoder layers unpack two {{when}}: ValueError, too many values to unpack",
                    releases=wrong,
                    life=life,
                    help="return the attention output and the weights (or None); the cache is updated in place",
                    fix=drop_third(facts, value) if in_force <= life and value is use.node.value else None,
                )


def returned(function: ast.AST, value: ast.expr | None) -> ast.Tuple | None:
    """The tuple that is returned, written there or assigned to the returned name, which nothing else is ever put into."""
    if isinstance(value, ast.Name):
        stores = [node for node in walk(function) if isinstance(node, ast.Name) and node.id == value.id]
        given = [item for targets, item in map(assignment, walk(function)) if targets and targets[0] in stores]
        written = [node for node in stores if not isinstance(node.ctx, ast.Load)]
        value = given[0] if len(given) == len(written) == 1 else None
    return value if isinstance(value, ast.Tuple) else None


def appended(function: ast.AST, value: ast.expr | None) -> ast.Tuple | None:
    """``super().forward(...) + (cache,)``, written there or by ``outputs += (cache,)``: the three outputs as a tuple."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        parts = [value.left, value.right]
    if isinstance(value, ast.Name):
        stores = [
            node
            for node in walk(function)
            if isinstance(node, (ast.Assign, ast.AugAssign))
            and any(
                isinstance(item, ast.Name) and item.id == value.id
                for item in (node.targets if isinstance(node, ast.Assign) else [node.target])
            )
        ]
        if len(stores) == 2 and isinstance(stores[0], ast.Assign) and isinstance(stores[1], ast.AugAssign):
            parts = [stores[0].value, stores[1].value] if isinstance(stores[1].op, ast.Add) else []
    if (
        len(parts) != 2
        or not isinstance(parts[1], ast.Tuple)
        or len(parts[1].elts) != 1
        or not is_past(parts[1].elts[0])
    ):
        return None
    call = parts[0]
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "super().forward":
        return None
    return ast.Tuple([call, call, parts[1].elts[0]], ast.Load())


def by_parameters(item: LibraryCalled) -> bool:
    """True for a function put into a module of unknown class: it may be a whole layer, such as a block of T5."""
    use = item.patched
    return isinstance(use, AttributeUse) and all(isinstance(atom, (Unknown, ModelLayers)) for atom in use.value)


def is_past(node: ast.expr) -> bool:
    """True for what old attention modules returned third: the past under a name that says so, or None."""
    if isinstance(node, ast.IfExp):
        return is_past(node.body) and is_past(node.orelse)
    if isinstance(node, ast.Tuple):
        return len(node.elts) == 2
    return (isinstance(node, ast.Constant) and node.value is None) or (
        isinstance(node, ast.Name) and (looks_like_cache(node.id) or node.id.startswith("present"))
    )


def two_outputs(facts: Facts, item: LibraryCalled) -> ReleaseSet:
    """Releases on which the layer around the module unpacks two outputs."""
    families = attention_families()
    owner = item.info.owner
    bases = [*(owner.foreign_bases() if owner is not None else ()), item.replaces]
    named = [base.split(".")[2] for base in bases if base.startswith("transformers.models.") and base.count(".") >= 4]
    if any(family in families.other for family in named):
        return ReleaseSet(0)
    if any(family in families.early for family in named):
        return releases_of(facts.timeline, "attention-two-outputs-early")
    return releases_of(facts.timeline, "attention-two-outputs")


def drop_third(facts: Facts, value: ast.Tuple) -> Fix | None:
    """Leaves the third output out."""
    _, start = facts.span(value.elts[1])
    _, end = facts.span(value.elts[2])
    if has_comment(facts.text[start:end]):
        return None
    return Fix("Return two outputs", Applicability.UNSAFE, (Edit(start, end, ""),))
