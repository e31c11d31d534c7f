"""Models that hand each layer its pair of keys and values and collect the new pairs in a tuple: converted whole, or not.

Such a ``forward`` reads its parameter as a tuple in many places, and its layers join the tensors themselves. Changing
some of these places leaves a mixture that cannot run. One fix converts all of it: the pairs are taken from the cache
where the function begins, and put into it where it returns; everything between stays as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts, IterationUse, SubscriptUse
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import CacheObject
from kvlint.checks.bindings import tree_of
from kvlint.checks.receivers import may_be_rebuilt
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.nodes import walk

PARAMETERS = ("past_key_values", "cache", "past")
NEEDS = "5.0"
"""From here on models get cache objects only; ``DynamicCache(pairs)`` and ``layers`` are older."""
SEQUENCE_AXES = ({-2}, {2})
NAMES = {
    "cache": ("cache", "given_cache", "whole_cache"),
    "length": ("seen", "seen_tokens", "cached_tokens"),
    "index": ("index", "layer_index", "number"),
    "keys": ("keys", "all_keys", "joined_keys"),
    "values": ("values", "all_values", "joined_values"),
}
"""Names for what the fix adds, in order of preference."""


@dataclass(frozen=True, slots=True)
class TupleModel:
    """A ``forward`` that reads its cache parameter layer by layer."""

    parameter: str
    fix: Fix | None
    """Converts the function whole; None where its shape is not the one that can be converted."""


def tuple_model(facts: Facts, info: FunctionInfo | None) -> TupleModel | None:
    """What is known of *info* as such a ``forward``; None for any other function."""
    if info is None or info.owner is None or info.name != "forward":
        return None
    key = f"tuple model {id(info.node)}"
    if key not in facts.memo:
        facts.memo[key] = _tuple_model(facts, info)
    known = facts.memo[key]
    return known if isinstance(known, TupleModel) else None


def _tuple_model(facts: Facts, info: FunctionInfo) -> TupleModel | None:
    assert info.owner is not None
    name = next((arg.arg for arg in info.parameters() if arg.arg in PARAMETERS), None)
    if name is None or not any(is_torch_model_class(base) for base in info.owner.foreign_bases()):
        return None
    if not any(_is_layer_read(facts, node, name) for node in walk(info.node)):
        return None
    return TupleModel(name, whole_fix(facts, info, name))


def left_alone(facts: Facts) -> bool:
    """True where the file has such a function that fails on the whole range in force and is not understood.

    Then nothing of its models is fixed: half of a conversion is worse than none.
    """
    known = facts.memo.get("left alone")
    if not isinstance(known, bool):
        known = facts.memo["left alone"] = any(_fails(facts, use.info) for use in facts.functions)
    return known


def _fails(facts: Facts, info: FunctionInfo) -> bool:
    model = tuple_model(facts, info)
    if model is None or model.fix is not None or facts.kind == "docstring" or facts.in_transformers:
        return False
    new = facts.timeline.compare(">=", NEEDS)
    uses: list[SubscriptUse | IterationUse] = [*facts.subscripts, *facts.iterations]
    return any(
        use.place.function is info
        and use.path == model.parameter
        and use.place.releases <= new
        and not may_be_rebuilt(use.value)
        and any(isinstance(atom, CacheObject) and atom.source == "hook" for atom in use.value)
        for use in uses
    )


def held_back(facts: Facts, finding: Finding) -> bool:
    """True for a fix inside a model class of a file whose models are left alone, unless it converts one whole."""
    if not finding.code.startswith(("KV2", "KV3")) or not left_alone(facts):
        return False
    if any(model.fix == finding.fix for use in facts.functions if (model := tuple_model(facts, use.info)) is not None):
        return False
    for use in facts.classes:
        start, end = facts.span(use.info.node)
        if start <= finding.start < end and any(is_torch_model_class(base) for base in use.info.foreign_bases()):
            return True
    return False


def _is_layer_read(facts: Facts, node: ast.AST, name: str) -> bool:
    """``zip(self.h, past)`` over the layers, or ``past[index]`` with the number of one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip" and len(node.args) > 1:
        return any(isinstance(item, ast.Name) and item.id == name for item in node.args)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
        return isinstance(node.slice, ast.Name)
    return False


def whole_fix(facts: Facts, info: FunctionInfo, name: str) -> Fix | None:
    """The fix that converts the function, where each step of it is understood."""
    place = next((use.place for use in facts.functions if use.info is info), None)
    if place is None or not place.releases <= facts.timeline.compare(">=", NEEDS):
        return None
    if facts.in_transformers or facts.kind == "docstring" or not read_as_tuple(facts, info, name):
        return None
    if joined_axes(facts) not in SEQUENCE_AXES:
        return None
    body = info.node.body
    first = body[1] if len(body) > 1 and _is_docstring(body[0]) else body[0]
    returned = collected(info.node)
    if returned is None:
        return None
    pairs, last = returned
    names = fresh_names(info)
    imported = import_edits(facts)
    if names is None or imported is None:
        return None
    start, end = above_comments(facts, first), above_comments(facts, last)
    indent = facts.text[facts.index.line_start(first.lineno) : facts.span(first)[0]]
    if start < 0 or end < 0 or indent.strip():
        return None
    bound, edits = imported
    cache, length, index = names["cache"], names["length"], names["index"]
    keys, values = names["keys"], names["values"]
    taken = (
        f"{cache} = {name}",
        f"{name} = None",
        f"if {cache} is not None and {cache}.get_seq_length() > 0:",
        f"    {name} = tuple((layer.keys, layer.values) for layer in {cache}.layers)",
    )
    stored = (
        f"if {pairs} is not None and {cache} is None:",
        f"    {pairs} = {bound}({pairs})",
        f"elif {pairs} is not None:",
        f"    {length} = {cache}.get_seq_length()",
        f"    for {index}, ({keys}, {values}) in enumerate({pairs}):",
        f"        {cache}.update({keys}[..., {length}:, :], {values}[..., {length}:, :], {index})",
        f"    {pairs} = {cache}",
    )
    before, after = ("".join(f"{line}\n{indent}" for line in lines) for lines in (taken, stored))
    # one edit over all of the function: no other fix changes a part of it in the same round
    edits.append(Edit(start, end, before + facts.text[start:end] + after))
    return Fix(
        f"Take the pairs from the cache, and put the new ones into it (all of `{info.qualname}`)",
        Applicability.UNSAFE,
        tuple(sorted(edits)),
    )


def above_comments(facts: Facts, statement: ast.stmt) -> int:
    """Where the statement starts, or the comments right above it; -1 where it does not begin its line."""
    line = statement.lineno
    if facts.text[facts.index.line_start(line) : facts.span(statement)[0]].strip():
        return -1
    while line > 1 and facts.text[facts.index.line_start(line - 1) : facts.index.line_start(line)].lstrip()[:1] == "#":
        line -= 1
    start = facts.index.line_start(line)
    return start + len(facts.text[start:]) - len(facts.text[start:].lstrip(" \t"))


def read_as_tuple(facts: Facts, info: FunctionInfo, name: str) -> bool:
    """True where every use of the parameter is one that a tuple of pairs, or None, is right for."""
    tree = tree_of(facts)
    for node in walk(info.node):
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        parent = tree.parent(node)
        if isinstance(node.ctx, ast.Store):
            if not isinstance(parent, ast.Assign) or not is_none_per_layer(parent.value):
                return False
        elif isinstance(parent, ast.Call):
            if getattr(parent.func, "id", "") not in ("zip", "enumerate", "len") or node not in parent.args:
                return False
        elif isinstance(parent, ast.Compare):
            if not isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
                return False
        elif isinstance(parent, ast.Subscript):
            if parent.value is not node or not isinstance(parent.ctx, ast.Load):
                return False
        elif not isinstance(parent, (ast.BoolOp, ast.If, ast.IfExp)) or getattr(parent, "body", None) is node:
            return False
    return True


def is_none_per_layer(node: ast.expr) -> bool:
    """``tuple([None] * n)``, ``[None] * n``, ``(None,) * n`` or ``None``."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("tuple", "list") and len(node.args) == 1:
        return is_none_per_layer(node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return is_none_per_layer(node.left)
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) == 1 and is_none_per_layer(node.elts[0])
    return isinstance(node, ast.Constant) and node.value is None


def collected(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ast.stmt] | None:
    """The name of the tuple of new pairs that is returned, and the statement of the body before which it is complete."""
    names = {
        keyword.value.id if isinstance(keyword.value, ast.Name) else ""
        for node in walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)
        for keyword in node.value.keywords
        if keyword.arg in ("past_key_values", "cache")
    }
    if len(names) != 1 or "" in names:
        return None
    (name,) = names
    parts = {name}
    for _ in range(2):
        parts |= {source for part in parts for value in assigned(function, part) if (source := alias_of(value))}
    values = {part: list(assigned(function, part)) for part in parts}
    if not any(is_growth(value, part) for part, found in values.items() for value in found):
        return None
    for part, found in values.items():
        if not found or not all(is_start(v) or is_growth(v, part) or alias_of(v) in parts for v in found):
            return None
    done = max(i for i, statement in enumerate(function.body) if any(binds(statement, part) for part in parts))
    if done + 1 >= len(function.body):
        return None
    for statement in function.body[: done + 1]:
        if any(isinstance(node, ast.Return) for node in walk(statement)):
            return None
    for statement in function.body[: done + 1]:
        reads = [n for n in walk(statement) if isinstance(n, ast.Name) and n.id in parts]
        owned = [n for n in _assignments(statement) if target_of_assignment(n) in parts]
        inside = {id(n) for item in owned for n in walk(item)}
        if any(id(node) not in inside for node in reads):
            return None
    return name, function.body[done + 1]


def _assignments(node: ast.AST) -> Iterator[ast.Assign | ast.AugAssign]:
    for item in walk(node):
        if isinstance(item, (ast.Assign, ast.AugAssign)):
            yield item


def target_of_assignment(node: ast.Assign | ast.AugAssign) -> str:
    target = (
        node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else getattr(node, "target", None)
    )
    return target.id if isinstance(target, ast.Name) else ""


def assigned(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name; ``x += y`` is given as ``x + y``."""
    for node in _assignments(function):
        if target_of_assignment(node) == name:
            if isinstance(node, ast.AugAssign):
                yield ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
            else:
                yield node.value


def binds(statement: ast.stmt, name: str) -> bool:
    return any(target_of_assignment(node) == name for node in _assignments(statement))


def is_start(node: ast.expr) -> bool:
    """``()`` or None, or one of them on a condition."""
    if isinstance(node, ast.IfExp):
        return is_start(node.body) and is_start(node.orelse)
    return (isinstance(node, ast.Tuple) and not node.elts) or (isinstance(node, ast.Constant) and node.value is None)


def is_growth(node: ast.expr, name: str) -> bool:
    """``name + (pair,)``: one item more."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and isinstance(node.left, ast.Name)
        and node.left.id == name
        and isinstance(node.right, ast.Tuple)
        and len(node.right.elts) == 1
        and not isinstance(node.right.elts[0], ast.Starred)
    )


def alias_of(node: ast.expr) -> str:
    """``other`` of ``other`` and of ``other if use_cache else None``."""
    if isinstance(node, ast.IfExp) and is_start(node.orelse):
        node = node.body
    return node.id if isinstance(node, ast.Name) else ""


def joined_axes(facts: Facts) -> set[int] | None:
    """Axes on which the file joins tensors of the past with new ones; None where keys or values are not both seen, or
    where a layer's past holds more than a pair."""
    assert facts.tree is not None
    axes: list[int | None] = []
    for node in walk(facts.tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and "past" in ast.unparse(node.value):
            lower = node.slice.lower
            if isinstance(lower, ast.UnaryOp) and ast.unparse(lower) == "-2":
                return None
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in ("cat", "concat") or not node.args:
            continue
        parts = node.args[0]
        if isinstance(parts, (ast.Tuple, ast.List)) and parts.elts and "past" in ast.unparse(parts.elts[0]):
            axes.append(axis(node))
    found = {item for item in axes if item is not None}
    return found if len(axes) >= 2 and None not in axes else None


def axis(call: ast.Call) -> int | None:
    """The literal axis of ``torch.cat``; 0 where none is given."""
    given = next((item.value for item in call.keywords if item.arg in ("dim", "axis")), None)
    given = given if given is not None or len(call.args) < 2 else call.args[1]
    if given is None:
        return 0
    try:
        value = ast.literal_eval(given)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def fresh_names(info: FunctionInfo) -> dict[str, str] | None:
    """A name for each thing that the fix adds, none of which the function has already."""
    used = {node.id for node in walk(info.node) if isinstance(node, ast.Name)}
    used |= {node.arg for node in walk(info.node) if isinstance(node, ast.arg)}
    found = {role: next((name for name in names if name not in used), "") for role, names in NAMES.items()}
    return found if all(found.values()) else None


def import_edits(facts: Facts) -> tuple[str, list[Edit]] | None:
    """What ``DynamicCache`` is called in the module, with the edit that imports it where nothing does."""
    assert facts.tree is not None
    for statement in facts.tree.body:
        for use in facts.imports:
            if use.statement is statement and use.qualified.rpartition(".")[2] == "DynamicCache":
                return use.bound, []
    if any(isinstance(node, ast.Name) and node.id == "DynamicCache" for node in walk(facts.tree)):
        return None
    statements = {id(use.statement) for use in facts.imports if not use.place.typing_only}
    for statement in facts.tree.body:
        if isinstance(statement, ast.ImportFrom) and id(statement) in statements:
            start = facts.index.line_start(statement.lineno)
            return "DynamicCache", [Edit(start, start, "from transformers import DynamicCache\n")]
    return None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
