"""Where names of one function get their values: bindings, loops, changes in place. Textual, and silent where it does not know."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.nodes import children, walk

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
    lines: list[int] = field(default_factory=list)
    """The first lines of the statements of the module."""

    def let_go(self) -> None:
        """Forgets the scopes, which know this tree; see ``Facts.let_go``."""
        self.scopes.clear()
        self.parents.clear()

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds *node*; None for the module, and for a node that is not of its tree."""
        found = self.parents.get(id(node))
        if found is None and node is not self.module:
            for position in self._near(getattr(node, "lineno", None)):
                if position not in self.known:
                    self._learn(position)
            found = self.parents.get(id(node))
        return found

    def _near(self, line: int | None) -> range:
        """The positions of the module's statements that may hold a node on *line* (None: a node without a place)."""
        body = self.module.body
        if line is None:
            return range(0 if len(self.known) < len(body) else len(body), len(body))
        if not self.lines:
            self.lines = [first_line(statement) for statement in body]
        last = bisect_right(self.lines, line)
        first = last
        while first and stands_on(body[first - 1], line):
            first -= 1
        return range(first, last)

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
    first = first_line(statement)
    return first <= line <= (statement.end_lineno or first)


def first_line(node: ast.AST) -> int:
    """The line on which a node begins, that of its first decorator where it has some."""
    decorators: list[ast.expr] | None = getattr(node, "decorator_list", None)
    return position(decorators[0] if decorators else node)[0]


def position(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))


def after(node: ast.AST) -> tuple[int, int]:
    """The first place behind the beginning of a node."""
    line, column = position(node)
    return line, column + 1


def end_of(node: ast.AST) -> tuple[int, int]:
    """Where a node ends."""
    return (getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions and classes inside it, in the order of the text."""
    todo = list(reversed(list(children(node))))
    while todo:
        item = todo.pop()
        yield item
        if not isinstance(item, (*FUNCTIONS, ast.ClassDef)):
            todo.extend(reversed(list(children(item))))


class Placed:
    """Nodes in the order of the text: those inside a part of the code are found without looking at the others."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.nodes = sorted(nodes, key=position)
        self.places = [position(node) for node in self.nodes]

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> Sequence[ast.AST]:
        """Those that begin at *start* or behind it, and in front of *end*."""
        return self.nodes[bisect_left(self.places, start) : bisect_left(self.places, end)]

    def around(self, region: ast.AST) -> Sequence[ast.AST]:
        """Those that can lie in *region*, as far as places tell."""
        if isinstance(region, ast.Module):
            return self.nodes
        last = (getattr(region, "end_lineno", None) or 0, getattr(region, "end_col_offset", None) or 0)
        return self.between((first_line(region), 0), last) if last != (0, 0) else self.nodes


NOTHING = Placed(())
FAR = (sys.maxsize, 0)
"""A place behind everything."""


def by_path(found: Iterable[tuple[str, ast.AST]]) -> dict[str, Placed]:
    """Nodes by the path they belong to."""
    nodes: dict[str, list[ast.AST]] = {}
    for path, node in found:
        nodes.setdefault(path, []).append(node)
    return {path: Placed(items) for path, items in nodes.items()}


class Scope:
    """A function, class body or module with the bindings in it."""

    def __init__(self, tree: Tree, node: ast.AST) -> None:
        self.tree = tree
        self.node = node
        self.nodes = list(own_nodes(node))
        self.bindings: dict[str, list[Binding]] = {}
        for binding in self._collect():
            self.bindings.setdefault(binding.path, []).append(binding)
        self.memo: dict[object, object] = {}
        """What was worked out about this scope, for the next check that asks."""
        self._placed: dict[str, tuple[list[Binding], list[tuple[int, int]]]] = {}
        self._definitions: dict[tuple[str, int], list[Binding]] = {}

    @cached_property
    def calls(self) -> list[ast.Call]:
        """The calls of this scope."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def called(self) -> frozenset[str]:
        """The names of what is called here, without what they are reached through."""
        return frozenset(
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in self.calls
        )

    @cached_property
    def methods(self) -> dict[str, Placed]:
        """Calls of methods, by ``path.method``."""
        return by_path(
            (f"{path_of(node.func.value)}.{node.func.attr}", node)
            for node in self.calls
            if isinstance(node.func, ast.Attribute)
        )

    @cached_property
    def loads(self) -> dict[str, Placed]:
        """The places that read a name, by name."""
        return by_path(
            (node.id, node) for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )

    @cached_property
    def changes(self) -> dict[str, Placed]:
        """The places that change a list, dict or attribute in place, by its path."""
        return by_path(self._changes())

    def _changes(self) -> Iterator[tuple[str, ast.AST]]:
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWING:
                yield path_of(node.func.value), node
            elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                yield base_path(node.value), node

    @cached_property
    def extended(self) -> frozenset[str]:
        """Paths under which something longer is bound: ``a`` and ``a.b`` for ``a.b[c] = x``."""
        return frozenset(prefix for path in self.bindings for prefix in prefixes(path) if prefix != path)

    @cached_property
    def by_value(self) -> dict[int, list[Binding]]:
        """Bindings by the id of the expression that is bound."""
        found: dict[int, list[Binding]] = {}
        for bindings in self.bindings.values():
            for item in bindings:
                if item.value is not None:
                    found.setdefault(id(item.value), []).append(item)
        return found

    def inside(self, placed: Placed, region: ast.AST) -> bool:
        """True where one of the nodes of this scope lies in *region*."""
        if region is self.node:
            return bool(placed.nodes)
        return any(self.tree.inside(node, region) for node in placed.around(region))

    def all_inside(self, placed: Placed, region: ast.AST) -> list[ast.AST]:
        """Those of the nodes of this scope that lie in *region*."""
        if region is self.node:
            return list(placed.nodes)
        return [node for node in placed.around(region) if self.tree.inside(node, region)]

    def placed(self, path: str) -> tuple[list[Binding], list[tuple[int, int]]]:
        """The bindings of a path that are no parameters, in the order of the text, and their places."""
        known = self._placed.get(path)
        if known is None:
            items = [item for item in self.bindings.get(path, ()) if item.kind != "parameter"]
            items.sort(key=lambda item: self._place(item.node))
            known = self._placed[path] = (items, [self._place(item.node) for item in items])
        return known

    def _place(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins; a part of a comprehension, which has no place of its own, begins where that does."""
        around = self.tree.parent(node) if isinstance(node, ast.comprehension) else None
        return position(around or node)

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
            items, places = self.placed(prefix)
            if not items:
                continue
            if region is not self.node and getattr(region, "end_lineno", None) is not None:
                start, end = bisect_left(places, (first_line(region), 0)), bisect_left(places, end_of(region))
                items = items[start:end]
            found += [item for item in items if region is self.node or self.tree.inside(item.node, region)]
        return found

    def bound_between(self, path: str, start: tuple[int, int], end: tuple[int, int]) -> bool:
        """True where the path gets a value in a statement that begins behind *start* and in front of *end*."""
        places = self.placed(path)[1]
        first = bisect_right(places, start)
        return first < len(places) and places[first] < end

    def definitions(self, path: str, at: ast.AST) -> list[Binding]:
        """The bindings that can have given *path* its value at *at*: back to the last one that always runs before it, and
        the later ones of a loop around both."""
        if path not in self.bindings:
            return []
        key = (path, id(at))
        found = self._definitions.get(key)
        if found is None:
            found = self._definitions[key] = list(self._reaching(path, at))
        return found

    def _reaching(self, path: str, at: ast.AST) -> Iterator[Binding]:
        around = {id(item) for item in self.tree.ancestors(at)}
        loops = self.loops(at)
        items, places = self.placed(path)
        now = position(at)
        first_later = bisect_left(places, now)
        if loops:
            last = bisect_left(places, end_of(loops[-1]))
            for binding in reversed(items[first_later:last]):
                if any(self.tree.inside(binding.node, loop) for loop in loops):
                    yield binding
        for binding in reversed(items[:first_later]):
            if self._being_assigned(binding, at):
                if any(self.tree.inside(binding.node, loop) for loop in loops):
                    yield binding
                continue
            yield binding
            if self._always_before(binding.node, around):
                return
        yield from (item for item in self.bindings[path] if item.kind == "parameter")

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
        return self.inside(self.changes.get(path, NOTHING), region)


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
