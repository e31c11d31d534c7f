"""Outputs of attention modules and decoder layers: three where layers unpack two, and more taken than there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.nodes import assignment, walk
from kvlint.analysis.values import ModelLayers, Unknown
from kvlint.checks.base import Check
from kvlint.checks.library_calls import LibraryCalled, library_called
from kvlint.checks.part_results import returns_two, wrong_results
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import has_comment


class AttentionThirdOutput(Check):
    """Reports attention modules and patches that return three outputs."""

    triggers = ("Attention", "attn", "attention", "Layer", "layers", "Block", "blocks", ".h")
    pattern = (
        r"modeling_\w+\s+import|\.\s*(?:layers|blocks|h)\b|super\s*\(\s*\)\s*[(.]|\.\s*forward\s*=(?!=)|_(?:CLASSES|TYPES)\b|\bsetattr\b|MethodType|\.\s*\w*Att\w*\s*=(?!=)|Att\w*\s+as\b|"
        r"\bclass\s+\w+\s*\([^)]*(?:[aA]tt|Block|Layer)"
    )

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers:
            return
        yield from self._results(facts)
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

    def _results(self, facts: Facts) -> Iterator[Finding]:
        """The other way: what code takes from a part of the library that it calls itself."""
        for item in wrong_results(facts):
            wrong = item.place.releases & item.life
            if not wrong or (item.outcome and item.place.caught & {item.outcome, "Exception"}):
                continue
            layer = item.role == "layer"
            yield self.finding(
                facts,
                item.node,
                item.place,
                item.says + (f": {item.outcome}" if item.outcome else ", and nothing says so"),
                releases=wrong,
                life=item.life,
                help="take the result as it is; the cache is updated in place"
                if layer
                else "take the attention output and the weights; the cache is updated in place",
                category=Category.BREAKS if item.outcome else Category.SILENT,
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
    owner = item.info.owner
    return returns_two(facts, [*(owner.foreign_bases() if owner is not None else ()), item.replaces])


def drop_third(facts: Facts, value: ast.Tuple) -> Fix | None:
    """Leaves the third output out."""
    _, start = facts.span(value.elts[1])
    _, end = facts.span(value.elts[2])
    if has_comment(facts.text[start:end]):
        return None
    return Fix("Return two outputs", Applicability.UNSAFE, (Edit(start, end, ""),))
