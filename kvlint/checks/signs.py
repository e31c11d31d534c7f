"""Which signs a number can have, by how it is computed: literals, lengths, arithmetic, bindings and tests of its name.

A set of signs is a small integer: ``NEGATIVE | ZERO | POSITIVE`` is "nothing is known". A length is not negative, the
difference of two things that are not known may be anything.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.checks.bindings import Binding, Scope, tree_of

NEGATIVE, ZERO, POSITIVE = 1, 2, 4
ANY = NEGATIVE | ZERO | POSITIVE
NOT_NEGATIVE = ZERO | POSITIVE
NOT_POSITIVE = NEGATIVE | ZERO

LENGTH_CALLS = frozenset({"len", "abs", "get_seq_length", "size", "numel", "dim", "bit_length"})
"""Functions and methods whose result is a count."""
SAME_NUMBER = frozenset({"int", "float", "round", "item", "cpu", "tolist", "long"})
"""Functions and methods that give the number back that they were given."""
LENGTH_PARTS = frozenset({"len", "length"})
"""Parts of a name that say that it holds a length."""
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Signs:
    """Works out signs in one region. *whole* is the receiver whose own length nothing that is kept of it exceeds."""

    facts: Facts
    whole: str = ""

    def of(self, node: ast.expr, seen: frozenset[int] = frozenset()) -> int:
        """The signs that *node* can have."""
        if id(node) in seen:
            return 0
        if len(seen) > DEEPEST:
            return ANY
        seen = seen | {id(node)}
        if isinstance(node, ast.Constant):
            return sign_of(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.of(node.operand, seen)
            if isinstance(node.op, ast.UAdd):
                return inner
            return opposite(inner)
        if isinstance(node, ast.BinOp):
            return self._operation(node.op, node.left, node.right, seen)
        if isinstance(node, ast.IfExp):
            return self.of(node.body, seen) | self.of(node.orelse, seen)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value, seen)
        if isinstance(node, ast.Call):
            return self._call(node, seen)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return NOT_NEGATIVE
        path = path_of(node)
        return self._name(path, node, seen) if path else ANY

    def _operation(self, op: ast.operator, left: ast.expr, right: ast.expr, seen: frozenset[int]) -> int:
        first, second = self.of(left, seen), self.of(right, seen)
        if isinstance(op, ast.Sub):
            if self._is_whole(right, seen):
                return NOT_POSITIVE  # what was kept of it, less all of it now
            if self._is_whole(left, seen):
                return NOT_NEGATIVE
            if first == NOT_NEGATIVE and isinstance(right, ast.Constant) and second == POSITIVE:
                return NOT_NEGATIVE  # all but the last few
            return combined(first, opposite(second), added)
        if isinstance(op, ast.Add):
            return combined(first, second, added)
        if isinstance(op, ast.Mult):
            return combined(first, second, multiplied)
        if isinstance(op, (ast.FloorDiv, ast.Div)) and second == POSITIVE:
            return first
        if isinstance(op, ast.Mod) and not second & NEGATIVE:
            return NOT_NEGATIVE
        return ANY

    def _is_whole(self, node: ast.expr, seen: frozenset[int]) -> bool:
        """True for the length of the receiver itself, also by way of a name or of ``int``."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get_seq_length":
                return bool(self.whole) and path_of(node.func.value) == self.whole
            if isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
                return self._is_whole(node.args[0], seen)
            return False
        path = path_of(node)
        if not path or len(seen) > DEEPEST:
            return False
        bound = self._scope(node).definitions(path, node)
        return (
            len(bound) == 1
            and (value := bound[0].value) is not None
            and bound[0].kind == "assign"
            and (self._is_whole(value, seen | {id(value)}))
        )

    def _call(self, node: ast.Call, seen: frozenset[int]) -> int:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in LENGTH_CALLS:
            return NOT_NEGATIVE
        if name in ("min", "max") and isinstance(function, ast.Name) and len(node.args) > 1 and not node.keywords:
            found = self.of(node.args[0], seen)
            for part in node.args[1:]:
                found = combined(found, self.of(part, seen), min if name == "min" else max)
            return found
        if name in SAME_NUMBER:
            if isinstance(function, ast.Attribute):
                return self.of(function.value, seen)
            return self.of(node.args[0], seen) if len(node.args) >= 1 else ANY
        return ANY

    def _scope(self, node: ast.expr) -> Scope:
        return tree_of(self.facts).scope_of(node)

    def _name(self, path: str, node: ast.expr, seen: frozenset[int]) -> int:
        scope = self._scope(node)
        found = 0
        for binding in scope.definitions(path, node):
            found |= self._bound(path, binding, seen)
        if not found or found == ANY:
            known = scope.bindings.get(path, ())
            if all(item.kind != "assign" or item.value is None for item in known):
                parts = path.rpartition(".")[2].lower().split("_")
                if LENGTH_PARTS & set(parts):
                    return NOT_NEGATIVE
            if len(known) <= 1:
                return self._tested(path, node)
        return found or ANY

    def _bound(self, path: str, binding: Binding, seen: frozenset[int]) -> int:
        value = binding.value
        if binding.kind == "assign" and value is not None:
            return self.of(value, seen)
        if binding.kind == "augmented" and isinstance(binding.node, ast.AugAssign):
            node = binding.node
            if id(node) in seen:
                return 0
            return self._operation(node.op, node.target, node.value, seen | {id(node)})
        if isinstance(binding.node, (ast.For, ast.comprehension)) and isinstance(binding.node.target, ast.Name):
            steps = binding.node.iter
            if isinstance(steps, ast.Call) and isinstance(steps.func, ast.Name) and steps.func.id == "range":
                first = self.of(steps.args[0], seen) if len(steps.args) > 1 else NOT_NEGATIVE
                return first if len(steps.args) < 3 and not first & NEGATIVE else ANY
        return ANY

    def _tested(self, path: str, node: ast.expr) -> int:
        """What tests around the place, or tests before it that end the way, leave of a name that is never bound anew."""
        found = ANY
        for test, holds in tests_before(self.facts, node):
            found &= left_by(test, path, holds)
        return found


def tests_before(facts: Facts, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that hold (or do not hold) where *node* is reached."""
    tree = tree_of(facts)
    child = node
    for parent in tree.ancestors(node):
        if isinstance(parent, (ast.If, ast.While)):
            if child in parent.body:
                yield parent.test, True
            elif child in parent.orelse and isinstance(parent, ast.If):
                yield parent.test, False
        for block in (
            getattr(parent, "body", None),
            getattr(parent, "orelse", None),
            getattr(parent, "finalbody", None),
        ):
            if isinstance(block, list) and child in block:
                for earlier in block[: block.index(child)]:
                    if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], ENDS) and not earlier.orelse:
                        yield earlier.test, False
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return
        child = parent


def left_by(test: ast.expr, path: str, holds: bool) -> int:
    """The signs that a comparison of *path* with a small number leaves, where it holds or does not."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or):
        found = ANY
        for part in test.values:
            found &= left_by(part, path, holds)
        return found
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return left_by(test.operand, path, not holds)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or path_of(test.left) != path:
        return ANY
    right = test.comparators[0]
    if not isinstance(right, ast.Constant) or not isinstance(right.value, int):
        return ANY
    number, op = right.value, test.ops[0]
    kept = 0
    for sign, sample in ((NEGATIVE, (-2, -1)), (ZERO, (0,)), (POSITIVE, (1, 2))):
        answers = {holds_for(op, value, number) for value in sample}
        if None in answers or holds in answers or abs(number) > 1:
            kept |= sign
    return kept


def holds_for(op: ast.cmpop, value: int, number: int) -> bool | None:
    """Whether ``value op number`` is true; None for an operator that says nothing of signs."""
    for kind, answer in (
        (ast.Lt, value < number),
        (ast.LtE, value <= number),
        (ast.Gt, value > number),
        (ast.GtE, value >= number),
        (ast.Eq, value == number),
        (ast.NotEq, value != number),
    ):
        if isinstance(op, kind):
            return answer
    return None


def sign_of(value: object) -> int:
    """The sign of a constant."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ANY
    return NEGATIVE if value < 0 else POSITIVE if value > 0 else ZERO


def opposite(signs: int) -> int:
    """The signs of the number with a minus in front."""
    return signs & ZERO | (POSITIVE if signs & NEGATIVE else 0) | (NEGATIVE if signs & POSITIVE else 0)


def combined(first: int, second: int, how: Callable[[int, int], int]) -> int:
    """All signs that *how* makes of one sign of each; signs are ordered as the numbers are."""
    found = 0
    for one in (NEGATIVE, ZERO, POSITIVE):
        for other in (NEGATIVE, ZERO, POSITIVE):
            if first & one and second & other:
                found |= how(one, other)
    return found


def added(one: int, other: int) -> int:
    """The signs of the sum of a number of sign *one* and a number of sign *other*."""
    if one in (ZERO, other):
        return other
    return one if other == ZERO else ANY


def multiplied(one: int, other: int) -> int:
    """The sign of the product."""
    if ZERO in (one, other):
        return ZERO
    return POSITIVE if one == other else NEGATIVE
