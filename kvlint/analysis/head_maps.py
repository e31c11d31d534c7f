"""Maps from query heads to kv heads that take the remainder: ``k[:, h % n_kv]``.

A remainder is a record when a single query head (a loop variable over the query heads, or a name for one) is taken modulo
a number of kv heads and what comes out indexes keys or values. Divisibility tests and pairs of ``//`` and ``%`` that take
one flat index apart are something else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvlint.analysis.layout_roles import GROUP, HEADS, KV_HEADS, role_of_name
from kvlint.analysis.layout_values import tags_of
from kvlint.analysis.layout_walk import text_of
from kvlint.nodes import assignment, children, code_of, lines_with, walk, walk_lines

ONE_HEAD = re.compile(
    r"(?i)^(?:h|hq|qh|hi|hd|h_idx|head|q_?head|query_?head|head_(?:idx|id|index|i|num)|i_?h|ih|off_hq?|pid_hq?|cur_head|head_q|off_head|start_h|h_q|q_head_(?:idx|id|index)|cur_head_id)$"
)
CONFIG = re.compile(r"(?i)(?:^|_)(?:cfg|conf|config|hparams|args)$")
CONFIG_STEMS = ("cfg", "conf", "hparams", "args")
STRIDE = re.compile(r"(?i)stride")
STATE_STRIDE = re.compile(r"(?i)(?:^|_)[kv](?:[a-z]{0,2}|_?cache.*)(?:_|$)|key|value|_kv|kv_")
ON_PURPOSE = re.compile(r"(?i)bug|wrong|bad|naive|incorrect|broken|tiled|modulo|interleav")


@dataclass(frozen=True, slots=True)
class HeadMap:
    """One remainder that picks a kv head."""

    node: ast.BinOp
    statement: ast.stmt
    use: ast.expr
    """Where the keys or values are indexed."""
    group: str
    """Code for the number of query heads that share a kv head, or "" where nothing in scope says it."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """A number of query heads over a number of kv heads, both from a configuration, that nothing shows to divide."""

    node: ast.BinOp
    statement: ast.stmt


def unchecked_groups(tree: ast.Module, text: str) -> list[GroupSize]:
    """The sizes of groups that are computed from a configuration, in a file that tests nowhere that they are whole."""
    quotients = [
        node
        for node in walk_lines(tree, lines_with(text, ("//",)))
        if isinstance(node, ast.BinOp) and is_group_size(node)
    ]
    if not quotients:
        return []
    tests = walk_lines(tree, lines_with(text, ("%", "*", "divmod")))
    if any(isinstance(node, ast.expr) and is_division_test(node) for node in tests):
        return []
    wanted = {id(node) for node in quotients}
    statements: dict[int, ast.stmt] = {}
    from_config: set[str] = set()
    for statement in walk_lines(
        tree, sorted({*lines_with(text.lower(), CONFIG_STEMS), *(q.lineno for q in quotients)})
    ):
        if isinstance(statement, ast.stmt):
            expressions = list(own_expressions(statement))
            statements.update((id(node), statement) for node in expressions if id(node) in wanted)
            targets, value = assignment(statement)
            if value is not None and any(of_config(node) for node in expressions):
                from_config.update(code_of(target) for target in targets)
    return [
        GroupSize(node, statements[id(node)])
        for node in sorted(quotients, key=lambda node: (node.lineno, node.col_offset))
        if all(of_config(side) or code_of(side) in from_config for side in (node.left, node.right))
    ]


def is_group_size(node: ast.BinOp) -> bool:
    """Query heads over kv heads, by their names."""
    return (
        isinstance(node.op, ast.FloorDiv)
        and role_of_name(field_name(node.left)) == HEADS
        and role_of_name(field_name(node.right)) == KV_HEADS
    )


def own_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without those of statements inside it."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        stack.extend(child for child in children(node) if not isinstance(child, ast.stmt))
        if isinstance(node, ast.expr):
            yield node


def is_division_test(node: ast.expr) -> bool:
    """``n_q % n_kv``, ``divmod(n_q, n_kv)``, and comparisons with a product of the kv heads."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return role_of_name(field_name(node.left)) == HEADS and role_of_name(field_name(node.right)) == KV_HEADS
    if isinstance(node, ast.Call):
        return text_of(node.func) == "divmod" and any(role_of_name(field_name(arg)) == KV_HEADS for arg in node.args)
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.BinOp)
        and isinstance(side.op, ast.Mult)
        and KV_HEADS in (role_of_name(field_name(side.left)), role_of_name(field_name(side.right)))
        for side in (node.left, *node.comparators)
    )


def of_config(node: ast.expr) -> bool:
    """``config.x``, ``self.config.x``, ``config["x"]``, ``getattr(config, "x")``."""
    if isinstance(node, ast.Call) and text_of(node.func) in ("getattr", "get") and node.args:
        base: ast.expr | None = node.args[0]
        if isinstance(node.func, ast.Attribute):
            base = node.func.value
    else:
        base = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
    return base is not None and bool(CONFIG.search(text_of(base)))


def field_name(node: ast.expr) -> str:
    """The name of a variable, an attribute, or an item that is written as a string."""
    if isinstance(node, ast.Call) and text_of(node.func) in ("getattr", "get"):
        keys = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        return keys[0] if keys else ""
    return text_of(node)


def head_maps(tree: ast.Module, text: str) -> list[HeadMap]:
    """Every such map in a file, in order."""
    found: list[HeadMap] = []
    marked = walk_lines(tree, lines_with(text, ("%",)))
    if not any(isinstance(node, ast.BinOp) and is_remainder(node) for node in marked):
        return found
    for scope in scopes(tree, marked):
        found.extend(maps_in(scope))
    return sorted(found, key=lambda item: (item.node.lineno, item.node.col_offset))


def is_remainder(node: ast.BinOp) -> bool:
    """True for ``a % b`` that formats no string."""
    formats = isinstance(node.left, ast.JoinedStr) or (
        isinstance(node.left, ast.Constant) and isinstance(node.left.value, (str, bytes))
    )
    return isinstance(node.op, ast.Mod) and not formats


def scopes(tree: ast.Module, nodes: list[ast.AST]) -> Iterator[list[ast.stmt]]:
    """The statements of the module itself and of each function among the nodes."""
    yield [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.body


def nodes_of(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of a scope, without those of functions inside it."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        stack.extend(reversed(list(children(node))))


def maps_in(body: list[ast.stmt]) -> Iterator[HeadMap]:
    nodes = list(nodes_of(body))
    remainders = [node for node in nodes if isinstance(node, ast.BinOp) and is_remainder(node)]
    if not remainders:
        return
    divided = {
        (code_of(node.left), code_of(node.right))
        for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Div))
    } | {
        (code_of(node.args[0]), code_of(node.args[1]))
        for node in nodes
        if isinstance(node, ast.Call) and text_of(node.func) == "divmod" and len(node.args) == 2
    }
    ranges = loop_ranges(nodes)
    compared = {id(node.left) for node in nodes if isinstance(node, ast.Compare)}
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    for node in remainders:
        left, right = code_of(node.left), code_of(node.right)
        if (
            (left, right) in divided
            or id(node) in compared
            or not is_kv_count(node.right, nodes)
            or not (is_one_head(node.left, ranges, nodes) or picks_a_head(node, ranges, nodes))
            or any(is_division_of(item, left) for item in other_branches(nodes, node))
        ):
            continue
        statement = next(item for item in reversed(statements) if holds(item, node))
        use = use_of(node, statement, nodes)
        if use is not None:
            yield HeadMap(node, statement, use, group_of(node, ranges, nodes))


def is_division_of(node: ast.AST, left: str) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and code_of(node.left) == left


def other_branches(nodes: Iterable[ast.AST], node: ast.expr) -> Iterator[ast.AST]:
    """What is done instead of *node*, in the other branch of the conditions around it: code that knows both ways has chosen."""
    for item in nodes:
        if not isinstance(item, (ast.If, ast.IfExp)) or not item.lineno <= node.lineno <= (item.end_lineno or 0):
            continue
        body = item.body if isinstance(item.body, list) else [item.body]
        orelse = item.orelse if isinstance(item.orelse, list) else [item.orelse]
        for branch, other in ((body, orelse), (orelse, body)):
            if any(child is node for statement in branch for child in walk(statement)):
                yield from (child for statement in other for child in walk(statement))


def holds(statement: ast.stmt, node: ast.AST) -> bool:
    return any(child is node for child in walk(statement))


def loop_ranges(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    """Loop variables over ``range(n)`` with their n."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            call = node.iter
            if isinstance(call, ast.Call) and text_of(call.func) in ("range", "arange") and call.args:
                found[node.target.id] = call.args[-1] if len(call.args) < 3 else call.args[1]
    return found


def is_kv_count(node: ast.expr, nodes: list[ast.AST]) -> bool:
    """True for a number of kv heads: by its name, or as the size of an axis of keys or values."""
    if role_of_name(text_of(node)) == KV_HEADS:
        return True
    definition = assigned(node, nodes) if isinstance(node, ast.Name) else node
    if (
        isinstance(definition, ast.Subscript)
        and isinstance(definition.value, ast.Attribute)
        and definition.value.attr == "shape"
    ):
        return (
            bool(tags_of(text_of(definition.value.value)) & {"key", "value", "kv"})
            and isinstance(definition.slice, ast.Constant)
            and definition.slice.value in (1, 2)
        )
    return False


def assigned(node: ast.expr, nodes: list[ast.AST]) -> ast.expr | None:
    """The one value that a name is given in the scope."""
    values = [
        value
        for targets, value in map(assignment, nodes)
        if any(code_of(target) == code_of(node) for target in targets)
    ]
    return values[0] if len(values) == 1 else None


def is_one_head(node: ast.expr, ranges: dict[str, ast.expr], nodes: list[ast.AST]) -> bool:
    """True for the number of a single query head, or for all of them (``torch.arange(n_q)``)."""
    if isinstance(node, ast.Call) and text_of(node.func) == "arange" and node.args:
        return role_of_name(text_of(node.args[-1])) == HEADS
    if not isinstance(node, ast.Name):
        return False
    if node.id in ranges:
        return role_of_name(text_of(ranges[node.id])) == HEADS or (
            bool(ONE_HEAD.search(node.id)) and role_of_name(text_of(ranges[node.id])) != KV_HEADS
        )
    return bool(ONE_HEAD.search(node.id))


def picks_a_head(node: ast.BinOp, ranges: dict[str, ast.expr], nodes: list[ast.AST]) -> bool:
    """``keys[:, i % n_kv]`` right there: whatever wraps around behind the batch is the number of a query head."""
    if not isinstance(node.left, ast.Name) or len(node.left.id) > 1:
        return False
    over = ranges.get(node.left.id)
    if over is not None and role_of_name(text_of(over)) == KV_HEADS:
        return False
    return any(
        isinstance(item, ast.Subscript)
        and indexes_state(item)
        and isinstance(item.slice, ast.Tuple)
        and len(item.slice.elts) > 1
        and isinstance(item.slice.elts[0], ast.Slice)
        and item.slice.elts[1] is node
        for item in nodes
    )


def use_of(node: ast.BinOp, statement: ast.stmt, nodes: list[ast.AST]) -> ast.expr | None:
    """Where the result indexes keys or values: at once, or through the name it is given."""
    for item in nodes:
        if isinstance(item, ast.Subscript) and indexes_state(item) and any(child is node for child in walk(item.slice)):
            return item
        if (
            isinstance(item, ast.BinOp)
            and isinstance(item.op, ast.Mult)
            and by_stride(item, lambda side: any(child is node for child in walk(side)))
        ):
            return item
    targets, _ = assignment(statement)
    if not targets or not isinstance(targets[0], ast.Name):
        return None
    name = targets[0].id
    if ON_PURPOSE.search(name):
        return None

    def mentions(side: ast.AST) -> bool:
        return any(isinstance(child, ast.Name) and child.id == name for child in walk(side))

    for item in nodes:
        if isinstance(item, ast.Subscript) and indexes_state(item) and mentions(item.slice):
            return item
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult) and by_stride(item, mentions):
            return item
        if (
            isinstance(item, ast.Call)
            and text_of(item.func) in ("index_select", "take", "take_along_dim", "take_along_axis")
            and any(mentions(arg) for arg in item.args)
            and tags_of(
                text_of(
                    item.func.value if isinstance(item.func, ast.Attribute) and len(item.args) == 2 else item.args[0]
                )
            )
            & {"key", "value", "kv"}
        ):
            return item
    return None


def indexes_state(node: ast.Subscript) -> bool:
    return bool(tags_of(text_of(node.value)) & {"key", "value", "kv"})


def by_stride(node: ast.BinOp, mentions: object) -> bool:
    """``kv_head * stride_kh``: pointer arithmetic into keys or values."""
    for side, other in ((node.left, node.right), (node.right, node.left)):
        name = text_of(other)
        if STRIDE.search(name) and STATE_STRIDE.search(STRIDE.sub("", name)) and mentions(side):  # type: ignore[operator]
            return True
    return False


def group_of(node: ast.BinOp, ranges: dict[str, ast.expr], nodes: list[ast.AST]) -> str:
    """Code for the size of a group: a name of the scope that holds it, or the quotient of both counts."""
    right = code_of(node.right)
    for item in nodes:
        targets, value = assignment(item)
        if targets and isinstance(targets[0], ast.Name) and isinstance(value, ast.BinOp):
            if (
                isinstance(value.op, ast.FloorDiv)
                and code_of(value.right) == right
                and role_of_name(text_of(value.left)) == HEADS
            ):
                return targets[0].id
    for item in nodes:
        if (
            isinstance(item, ast.Name)
            and role_of_name(item.id) == GROUP
            and re.search(r"(?i)rep|per_kv|key_value_groups", item.id)
        ):
            return item.id
    heads = ranges.get(node.left.id) if isinstance(node.left, ast.Name) else None
    if heads is not None and role_of_name(text_of(heads)) == HEADS:
        return f"({code_of(heads)} // {right})"
    return ""
