"""What becomes of a name that is always None: where the body fails on it, and which tests of it never hold."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from kvlint.analysis.evaluate import handler_names, is_guard
from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.recorder import path_of
from kvlint.checks.bindings import tree_of
from kvlint.nodes import assignment, walk

ASKS_THE_CACHE = frozenset({"get_seq_length", "has_previous_state", "is_first_iteration"})
"""Names by which a body learns the step in another way."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def place_at(facts: Facts, node: ast.AST, outer: Place) -> Place:
    """The place of a node of a function that as a whole stands at *outer*."""
    tree = tree_of(facts)
    statement: ast.stmt = outer.statement
    caught: set[str] = set()
    child: ast.AST = node
    found = isinstance(node, ast.stmt)
    if isinstance(node, ast.stmt):
        statement = node
    for item in tree.ancestors(node):
        if not found and isinstance(item, ast.stmt):
            statement, found = item, True
        if isinstance(item, ast.Try) and any(child is one for one in item.body):
            for handler in item.handlers:
                caught |= handler_names(handler) if is_guard(handler, item) else set()
        if isinstance(item, FUNCTIONS):
            break
        child = item
    releases = outer.releases & facts.reaching(statement)
    return replace(outer, statement=statement, caught=frozenset(caught), releases=releases)


def is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def need_of(function: ast.AST, name: str, bound: ast.expr | None = None) -> ast.expr | None:
    """A use of the name that fails on None; None where the body tests it, sets it (other than at *bound*) or only passes
    it on."""
    needed: ast.expr | None = None
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load) and node is not bound:
            return None
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) and tests(node.test, name):
            return None
        if isinstance(node, ast.BoolOp) and any(tests(value, name) for value in node.values):
            return None
        if is_needed(node, name):
            assert isinstance(node, ast.expr)
            needed = needed or node
    return needed


def is_needed(node: ast.AST, name: str) -> bool:
    """True for ``name.x``, ``name[i]`` and arithmetic with it."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return is_name(node.value, name) and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.BinOp) and (is_name(node.left, name) or is_name(node.right, name))


def tests(test: ast.expr, name: str) -> bool:
    """True for ``name``, ``name is None`` and combinations: the body knows that it may be None."""
    if is_name(test, name):
        return True
    if isinstance(test, ast.UnaryOp):
        return tests(test.operand, name)
    if isinstance(test, ast.BoolOp):
        return any(tests(value, name) for value in test.values)
    return isinstance(test, ast.Compare) and is_name(test.left, name) and isinstance(test.ops[0], (ast.Is, ast.IsNot))


def insisted_on(function: ast.AST, name: str) -> ast.expr | None:
    """The test of ``if name is None: raise ...`` or ``assert name is not None`` that always stops the function."""
    body = getattr(function, "body", [])
    for statement in body if isinstance(body, list) else []:
        if any(is_name(node, name) and isinstance(node.ctx, ast.Store) for node in walk(statement)):  # type: ignore[attr-defined]
            return None
        if isinstance(statement, ast.If) and is_none_test(statement.test, name, ast.Is):
            return statement.test if isinstance(statement.body[-1], ast.Raise) and len(statement.body) == 1 else None
        if isinstance(statement, ast.Assert) and is_none_test(statement.test, name, ast.IsNot):
            return statement.test
    return None


def is_none_test(test: ast.expr, name: str, kind: type[ast.cmpop]) -> bool:
    return (
        isinstance(test, ast.Compare)
        and is_name(test.left, name)
        and isinstance(test.ops[0], kind)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
    )


def present_by_name(name: str) -> Callable[[ast.expr], bool]:
    """The test ``name is not None``."""
    return lambda test: is_none_test(test, name, ast.IsNot)


def present_by_key(path: str, key: str) -> Callable[[ast.expr], bool]:
    """The test ``"key" in path``."""
    return lambda test: (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Constant)
        and test.left.value == key
        and isinstance(test.ops[0], ast.In)
        and path_of(test.comparators[0]) == path
    )


def dead_tests(
    function: ast.AST, present: Callable[[ast.expr], bool], holds: Callable[[ast.AST], bool]
) -> Iterator[ast.expr]:
    """Tests in a function that ask whether the value is there, never hold, and decide something that is not done in
    another way: ``if value is not None and value[0] > 0:`` without ``else``, a flag made of such a test.

    *holds* is true for an expression that reads the value. Silent where the body learns the step from the cache too,
    where the branch returns or gives what has another value already, and where it only passes the value on.
    """
    nodes = walk(function)
    if any((getattr(node, "attr", None) or getattr(node, "id", None)) in ASKS_THE_CACHE for node in nodes):
        return
    for node in nodes:
        if isinstance(node, ast.If) and not node.orelse:
            parts = conjunction(node.test)
            if not any(present(part) for part in parts):
                continue
            if any(tells_step(part, holds) for part in parts if not present(part)):
                yield node.test
            elif len(parts) == 1 and sets_something(function, node, holds):
                yield node.test
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BoolOp):
            parts = conjunction(node.value)
            if any(present(part) for part in parts) and bound_once(nodes, node.targets):
                if any(tells_step(part, holds) for part in parts if not present(part)):
                    yield node.value


def conjunction(test: ast.expr) -> list[ast.expr]:
    """The operands of a test by ``and``; the test itself where it is none."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def tells_step(test: ast.expr, holds: Callable[[ast.AST], bool]) -> bool:
    """True for a test that tells the first step from the later ones: by the value itself, or by one new token."""
    if not isinstance(test, ast.Compare):
        return False
    if any(holds(node) for node in walk(test.left)):
        return True
    one = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 1
    return one and isinstance(test.ops[0], ast.Eq)


def bound_once(nodes: list[ast.AST], targets: list[ast.expr]) -> bool:
    """True for one plain name that nothing else is put into."""
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return False
    name = targets[0].id
    return (
        sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in nodes) == 1
    )


def sets_something(function: ast.AST, branch: ast.If, holds: Callable[[ast.AST], bool]) -> bool:
    """True where a branch gives, from the value, something that has no other value in the function."""
    if any(isinstance(node, (ast.Return, ast.Raise)) for node in walk(branch)):
        return False
    inside = {id(node) for node in walk(branch)}
    given = False
    for node in walk(branch):
        targets, value = assignment(node)
        if value is None or not any(holds(part) for part in walk(value)):
            continue
        for target in targets:
            path = subscript_path(target)
            if not path or has_other_value(function, path, inside):
                return False
            given = True
    return given


def subscript_path(target: ast.expr) -> str:
    """The path of a target; a key of a dict counts with its name."""
    return path_of(target)


def has_other_value(function: ast.AST, path: str, inside: set[int]) -> bool:
    """True where the path is a parameter, or is bound elsewhere in the function to something other than None, or tested."""
    arguments = getattr(function, "args", None)
    if isinstance(arguments, ast.arguments):
        if any(arg.arg == path for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)):
            return True
    for node in walk(function):
        if id(node) in inside:
            continue
        targets, value = assignment(node)
        if any(path_of(target) == path for target in targets):
            if not (isinstance(value, ast.Constant) and value.value is None):
                return True
        if isinstance(node, ast.Compare) and path_of(node.left) == path:
            return True
    return False
