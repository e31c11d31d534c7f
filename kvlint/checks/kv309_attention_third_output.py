"""Outputs of attention modules and decoder layers: three where layers unpack two, and more taken than there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import ModelLayers, Unknown
from kvlint.checks.absent_values import place_at
from kvlint.checks.base import Check
from kvlint.checks.library_calls import CACHE_PARAMETERS, LibraryCalled, library_called
from kvlint.checks.library_contracts import unpack_two
from kvlint.checks.part_results import wrong_results
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet
from kvlint.rewriting import has_comment


class AttentionThirdOutput(Check):
    """Reports attention modules and patches that return three outputs."""

    triggers = ("Attention", "attn", "attention", "Layer", "layers", "Block", "blocks", ".h")
    pattern = (
        r"modeling_\w+\s+import|\.\s*(?:layers|blocks|h)\b|super\s*\([^)]*\)\s*(?:\.\s*(?:forward|__call__)\b|\()|\.\s*forward\s*=(?!=)|_(?:CLASSES|TYPES)\b|\bsetattr\b|MethodType|\.\s*\w*Att\w*\s*=(?!=)|Att\w*\s+as\b|"
        r"\bclass\s+\w+\s*\([^)]*(?:[aA]tt|Block|Layer)"
    )

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers:
            return
        yield from self._results(facts)
        called = {id(item.info.node): item for item in library_called(facts) if item.role == "attention"}
        for module in called.values():
            yield from self._never_stored(facts, module)
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
                    fix=drop_third(facts, value)
                    if in_force <= life and value is use.node.value and not takes_three(facts, function)
                    else None,
                )

    def _never_stored(self, facts: Facts, item: LibraryCalled) -> Iterator[Finding]:
        """``return out, (key, value)`` of a module that leaves the cache it is given alone."""
        pair = None if item.elsewhere or by_parameters(item) else returned_pair(item.info)
        life = two_outputs(facts, item)
        wrong = item.place.releases & life
        if pair is None or not wrong:
            return
        yield self.finding(
            facts,
            pair,
            place_at(facts, pair, item.place),
            f"`{item.shown}` returns the keys and values of this step, which nothing reads {{when}}, and stores none: "
            "every step sees its own tokens alone",
            releases=wrong,
            life=life,
            category=Category.SILENT,
            help="store them in the cache that is handed over: `keys, values = cache.update(keys, values, self.layer_idx)`",
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


PART = re.compile(r"(?i)forward$|att\w*$")
"""Calls of an attention module."""
KEYS, VALUES = re.compile(r"(?i)^k(?:ey)?s?(?:_|\d|$)"), re.compile(r"(?i)^v(?:al(?:ue)?)?s?(?:_|\d|$)")
"""Names of keys and values."""


def returned_pair(info: FunctionInfo) -> ast.expr | None:
    """The pair of keys and values that a function gives back behind its result; None where it may store them: it reads a
    parameter for the cache, or hands on what else it is given."""
    taken = {arg.arg for arg in info.parameters() if arg.arg in (*CACHE_PARAMETERS, "layer_past")}
    spec = info.node.args
    taken |= {arg.arg for arg in (spec.vararg, spec.kwarg) if arg is not None}
    nodes = walk(info.node)
    if any(isinstance(node, ast.Name) and node.id in taken for node in nodes):
        return None
    if any(isinstance(node, ast.Attribute) and node.attr in ("update", "cat", "append") for node in nodes):
        return None  # kept in some other place
    for node in nodes:
        value = node.value if isinstance(node, ast.Return) else None
        for item in value.elts[1:] if isinstance(value, ast.Tuple) else ():
            found = bound_value(nodes, item)
            if is_pair(found):
                return found
    return None


def bound_value(nodes: list[ast.AST], node: ast.expr) -> ast.expr:
    """What a name is bound to, where that is one thing only (beside None)."""
    if not isinstance(node, ast.Name):
        return node
    given = [value for targets, value in map(assignment, nodes) if any(is_named(target, node.id) for target in targets)]
    given = [value for value in given if not (isinstance(value, ast.Constant) and value.value is None)]
    return given[0] if len(given) == 1 and given[0] is not None else node


def is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_pair(node: ast.expr) -> bool:
    """``(key, value)``, also behind a condition."""
    if isinstance(node, ast.IfExp):
        return is_pair(node.body) or is_pair(node.orelse)
    if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
        return False
    names = [item.id if isinstance(item, ast.Name) else "" for item in node.elts]
    return KEYS.search(names[0]) is not None and VALUES.search(names[1]) is not None


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
    return unpack_two(facts, [*(owner.foreign_bases() if owner is not None else ()), item.replaces])


def takes_three(facts: Facts, function: FunctionInfo) -> bool:
    """True where other code of the file takes three results apart that a ``forward`` or an attention gives."""
    for node in walk(facts.tree) if facts.tree is not None else ():
        targets, value = assignment(node)
        taken = [target for target in targets if isinstance(target, ast.Tuple) and len(target.elts) == 3]
        if taken and isinstance(value, ast.Call) and PART.search(ast.unparse(value.func)):
            if not any(other is node for other in walk(function.node)):
                return True
    return False


def drop_third(facts: Facts, value: ast.Tuple) -> Fix | None:
    """Leaves the third output out."""
    _, start = facts.span(value.elts[1])
    _, end = facts.span(value.elts[2])
    if has_comment(facts.text[start:end]):
        return None
    return Fix("Return two outputs", Applicability.UNSAFE, (Edit(start, end, ""),))
