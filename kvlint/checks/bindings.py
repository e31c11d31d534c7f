"""Where names of one function get their values: bindings, loops, changes in place. Textual, and silent where it does not know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvlint.analysis.facts import Facts
from kvlint.analysis.nodes import children, walk
from kvlint.analysis.recorder import path_of

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
GROWING = frozenset(
    {"append", "extend", "insert", "add", "update", "pop", "popleft", "remove", "clear", "appendleft", "setdefault"}
)
"""Methods that change a list, dict or set in place."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One place where a path gets a value. *value* is None where it is not a plain assignment (loop target, unpacking)."""

    path: str
    node: ast.AST
    value: ast.expr | None
    kind: str
    """assign, augmented, target, parameter, delete"""


@dataclass(slots=True)
class Tree:
    """The parents of the nodes of a module, worked out for one statement of it at a time, and the scopes looked at."""

    module: ast.Module
    parents: dict[int, ast.AST] = field(default_factory=dict)
    scopes: dict[int, Scope] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    """Positions of the statements of the module whose parents are known."""

    def let_go(self) -> None:
        """Forgets the scopes, which know this tree; see ``Facts.let_go``."""
        self.scopes.clear()
        self.parents.clear()

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds *node*; None for the module, and for a node that is not of its tree."""
        found = self.parents.get(id(node))
        if found is None and node is not self.module:
            line = getattr(node, "lineno", None)
            for position, statement in enumerate(self.module.body):
                if position not in self.known and (line is None or stands_on(statement, line)):
                    self._learn(position)
            found = self.parents.get(id(node))
        return found

    def _learn(self, position: int) -> None:
        self.known.add(position)
        statement = self.module.body[position]
        self.parents[id(statement)] = self.module
        for node in walk(statement):
            for child in children(node):
                self.parents[id(child)] = node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around *node*, nearest first."""
        current = self.parent(node)
        while current is not None:
            yield current
            current = self.parent(current)

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        return node is outer or any(item is outer for item in self.ancestors(node))

    def scope(self, node: ast.AST) -> Scope:
        """The scope of a function or module node."""
        found = self.scopes.get(id(node))
        if found is None:
            found = self.scopes[id(node)] = Scope(self, node)
        return found

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope that *node* stands in; a lambda belongs to what is around it."""
        last = node
        for item in self.ancestors(node):
            last = item
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
        return self.scope(last)


def tree_of(facts: Facts) -> Tree:
    """The parents of the region's tree, worked out once."""
    known = facts.memo.get("parents")
    if not isinstance(known, Tree):
        assert facts.tree is not None
        known = facts.memo["parents"] = Tree(facts.tree)
    return known


def stands_on(statement: ast.stmt, line: int) -> bool:
    """True where a statement, with its decorators, takes up a line."""
    decorators = getattr(statement, "decorator_list", None)
    first = decorators[0].lineno if decorators else statement.lineno
    return first <= line <= (statement.end_lineno or first)


def position(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes inside it, in the order of the text."""
    todo = list(reversed(list(children(node))))
    while todo:
        item = todo.pop()
        yield item
        if not isinstance(item, (*FUNCTIONS, ast.ClassDef)):
            todo.extend(reversed(list(children(item))))


class Scope:
    """A function, class body or module with the bindings in it."""

    def __init__(self, tree: Tree, node: ast.AST) -> None:
        self.tree = tree
        self.node = node
        self.nodes = list(own_nodes(node))
        self.bindings: dict[str, list[Binding]] = {}
        for binding in self._collect():
            self.bindings.setdefault(binding.path, []).append(binding)

    def _collect(self) -> Iterator[Binding]:
        if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            spec = self.node.args
            extra = [item for item in (spec.vararg, spec.kwarg) if item is not None]
            for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *extra):
                yield Binding(arg.arg, arg, None, "parameter")
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from targets(target, node.value, node)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from targets(node.target, node.value, node)
            elif isinstance(node, ast.NamedExpr):
                yield from targets(node.target, node.value, node)
            elif isinstance(node, ast.AugAssign):
                path = path_of(node.target)
                if path:
                    yield Binding(path, node, node.value, "augmented")
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                yield from targets(node.target, None, node)
            elif isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    if item.optional_vars is not None:
                        yield from targets(item.optional_vars, None, node)
            elif isinstance(node, ast.Delete):
                for target in node.targets:
                    path = path_of(target)
                    if path:
                        yield Binding(path, node, None, "delete")

    def loops(self, node: ast.AST) -> list[ast.AST]:
        """The loops and comprehensions of this scope that run *node* again and again, innermost first."""
        found: list[ast.AST] = []
        child = node
        for item in self.tree.ancestors(node):
            if item is self.node:
                break
            if isinstance(item, LOOPS):
                if child in item.body or (isinstance(item, ast.While) and child is item.test):
                    found.append(item)
            elif isinstance(item, COMPREHENSIONS):
                if not (isinstance(child, ast.comprehension) and child is item.generators[0]):
                    found.append(item)
            child = item
        return found

    def bound_in(self, path: str, region: ast.AST) -> list[Binding]:
        """Bindings of a path, or of what it is reached through, inside *region*."""
        found: list[Binding] = []
        for prefix in prefixes(path):
            found += [
                item
                for item in self.bindings.get(prefix, ())
                if item.kind != "parameter" and self.tree.inside(item.node, region)
            ]
        return found

    def definitions(self, path: str, at: ast.AST) -> list[Binding]:
        """The bindings that can have given *path* its value at *at*: back to the last one that always runs before it, and
        the later ones of a loop around both."""
        around = {id(item) for item in self.tree.ancestors(at)}
        loops = self.loops(at)
        found: list[Binding] = []
        known = self.bindings.get(path, ())
        for binding in reversed(known):
            earlier = binding.kind == "parameter" or (
                position(binding.node) < position(at) and not self._being_assigned(binding, at)
            )
            if not earlier:
                if any(self.tree.inside(binding.node, loop) for loop in loops):
                    found.append(binding)
                continue
            found.append(binding)
            if binding.kind == "parameter" or self._always_before(binding.node, around):
                break
        return found

    def _being_assigned(self, binding: Binding, at: ast.AST) -> bool:
        return binding.kind in ("assign", "augmented") and self.tree.inside(at, binding.node)

    def _always_before(self, node: ast.AST, around: set[int]) -> bool:
        """True where the statement of *node* stands in a block that holds the later place as well."""
        if isinstance(node, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
            return id(node) in around
        parent = self.tree.parent(node)
        if isinstance(parent, (ast.If, ast.Try)):
            return False
        return parent is self.node or id(parent) in around

    def changed_in(self, path: str, region: ast.AST) -> bool:
        """True where a list, dict or attribute under *path* is changed in place inside *region*."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWING:
                if path_of(node.func.value) == path and self.tree.inside(node, region):
                    return True
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                if base_path(node.value) == path and self.tree.inside(node, region):
                    return True
        return False


def targets(target: ast.expr, value: ast.expr | None, node: ast.AST) -> Iterator[Binding]:
    if isinstance(target, (ast.Tuple, ast.List)):
        same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for number, item in enumerate(target.elts):
            part = value.elts[number] if same and isinstance(value, (ast.Tuple, ast.List)) else None
            for binding in targets(item, part, node):
                yield binding if part is not None else Binding(binding.path, node, value, "target")
    elif isinstance(target, ast.Starred):
        yield from targets(target.value, None, node)
    else:
        path = path_of(target)
        if path:
            yield Binding(path, node, value, "assign" if value is not None else "target")


def prefixes(path: str) -> Iterator[str]:
    """``a``, ``a.b`` and ``a.b.c`` for ``a.b.c``."""
    for number, letter in enumerate(path):
        if letter in ".[":
            yield path[:number]
    yield path


def base_path(node: ast.expr) -> str:
    """The path under which an object is changed: that of ``x`` for a store to ``x[i]``, ``x[i][j]``."""
    while isinstance(node, ast.Subscript) and not path_of(node):
        node = node.value
    return path_of(node)


def paths_read(expression: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The longest paths that an expression reads, with their nodes; the function of a call is not read."""
    todo: list[ast.AST] = [expression]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                todo.append(node.func.value)
            elif not isinstance(node.func, ast.Name):
                todo.append(node.func)
            todo += [*node.args, *(item.value for item in node.keywords)]
            continue
        path = path_of(node)
        if path:
            assert isinstance(node, ast.expr)
            yield path, node
            continue
        todo.extend(children(node))
