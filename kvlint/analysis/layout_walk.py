"""Interprets the functions of a file that handle keys and values, following the axes of tensors.

A second, smaller interpreter beside the one for cache objects: it knows shapes instead of releases. It runs only when a
check asks for layouts, and only over functions that name a key, a value or a cache. Names, branches, loops, tuple
unpacking and calls of functions of the same file are followed; anything else is an object without known axes.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvlint.analysis.layout import Dims, Lead, Scalar, Tensor, known_factor, settle
from kvlint.analysis.layout_roles import (
    BATCH,
    FEATURES,
    SEQUENCE,
    RoleBook,
    Strength,
    roles_of,
)
from kvlint.analysis.layout_values import (
    MAX_ALTERNATIVES,
    NOTHING,
    Atom,
    Flag,
    Function,
    Items,
    LengthRead,
    Obj,
    Site,
    Value,
    tags_of,
)
from kvlint.nodes import assignment, children, code_of, statements, walk

Env = dict[str, Value]
CALL_DEPTH = 5
CALL_BUDGET = 150
LENGTH_NAME = re.compile(
    r"(?i)len|offset|(?:^|_)past(?:_|$)|n_past|seq|num_tokens|n_tokens|(?:^|_)start(?:_pos)?$|position"
)
NOT_A_LENGTH = re.compile(
    r"(?i)head|dim|batch|bsz|hidden|embed|shape|rank|ndim|layer|shape|group|size_per|lens?_of_shape"
)
RETURNS_LENGTH = re.compile(r"(?i)len(?:gth)?(?:$|_)|num_tokens|n_tokens|offset$")
"""Names of functions that give the number of cached tokens."""


def join(*values: Value) -> Value:
    """All alternatives, each once; none of many is an unknown object."""
    found: list[Atom] = []
    for value in values:
        for atom in value:
            if atom not in found:
                found.append(atom)
    if len(found) > MAX_ALTERNATIVES:
        first = next((atom for atom in found if isinstance(atom, (Tensor, Obj))), None)
        name = first.name if first is not None else ""
        return (
            Obj(
                "joined/" + "|".join(sorted({atom.key for atom in found if isinstance(atom, Obj)})) + f"/{name}",
                name,
                tags_of(name),
            ),
        )
    return tuple(found)


def merge(left: Env | None, right: Env | None) -> Env | None:
    """The names after two branches; a name bound in one of them only keeps that value."""
    if left is None or right is None:
        return right if left is None else left
    merged: Env = {}
    for name in [*left, *(name for name in right if name not in left)]:
        one, other = left.get(name), right.get(name)
        if one is None or other is None or one is other:
            merged[name] = one or other or ()
        else:
            merged[name] = join(one, other)
    return merged


@dataclass(frozen=True, slots=True)
class Binding:
    """A name and the value it was given on a line; *inlined* when through a call with known arguments."""

    line: int
    name: str
    value: Value
    inlined: bool


class LayoutWalk:
    """Shared state of the interpretation of one file. The calls of tensor operations are added by a class on top."""

    def __init__(
        self,
        functions: Sequence[ast.FunctionDef | ast.AsyncFunctionDef],
        classes: dict[str, ast.ClassDef],
        owners: dict[int, str],
        libraries: dict[str, str],
        contracts: dict[int, str],
    ) -> None:
        self.functions = functions
        self.classes = classes
        self.owners = owners
        self.libraries = libraries
        """Local names of imported modules and functions -> their dotted names."""
        self.contracts = contracts
        """Nodes whose value is a tensor of a transformers cache ("keys" or "values"), or a "pair", or a "layer"."""
        self.parents: dict[int, list[ast.ClassDef]] = {}
        """The classes that a class derives from, by its node, where they are known (also those of other files)."""
        self.elsewhere: dict[int, ast.AST] = {}
        """Nodes of other files -> what stands for them in this one: the class that inherits them."""
        self.book = RoleBook()
        self.sites: dict[int, list[tuple[bool, Site]]] = {}
        self.module_env: Env = {}
        self.shared: frozenset[str] = frozenset()
        """Functions that are called in several places: what they call the axes of their arguments is about none of these."""
        self.in_shared = False
        self.reached_through: set[str] = set()
        """Names through which something was bound: ``a`` of ``a.b``."""
        self.attributes: dict[tuple[str, str], list[ast.expr]] = {}
        self.executors: dict[type[ast.stmt], Callable[[Any, Env], Env | None]] = {}
        """The method for each kind of statement."""
        self.evaluators: dict[type[ast.expr], Callable[[Any, Env], Value]] = {}
        self.context = ""
        self.depth = 0
        self.budget = CALL_BUDGET
        self.returns: list[list[Value]] = []
        self.statement: ast.stmt = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
        self.function: ast.AST | None = None
        self.owner = ""
        self.target_text = ""
        self.pending: list[Function] = []
        self.envs: list[Env] = []
        """Names that hold a function which sees them."""
        self.trace: list[Binding] | None = None
        """Every value that a name is given, where somebody wants to know."""
        self._attribute_cache: dict[tuple[str, str], Scalar | None] = {}
        self._evaluating: set[tuple[str, str]] = set()
        for name, cls in classes.items():
            for node in statements(cls):
                targets, value = assignment(node)
                if value is not None and len(targets) == 1:
                    target = targets[0]
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                    ):
                        self.attributes.setdefault((name, target.attr), []).append(value)

    def let_go(self) -> None:
        """Forgets everything: methods of this object are kept in it, and functions in the names that they see."""
        for env in self.envs:
            env.clear()
        self.__dict__.clear()

    # -- the file ---------------------------------------------------------------------------------------------------

    def run(self, tree: ast.Module, wanted: Iterable[ast.FunctionDef | ast.AsyncFunctionDef], module: bool) -> None:
        """Interprets the module's own statements and the *wanted* functions."""
        body = [
            node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
        self.context = "module"
        calls = Counter(
            node.func.id for node in walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        self.shared = frozenset(name for name, count in calls.items() if count > 1)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.module_env[node.name] = (Function(node),)
        if module:
            self.block(body, self.module_env)
        else:
            self.block(
                [
                    node
                    for node in body
                    if isinstance(node, (ast.Assign, ast.AnnAssign))
                    and isinstance(node.value, (ast.Constant, ast.Tuple))
                ],
                self.module_env,
            )
        for node in wanted:
            self.enter(Function(node, self.owners.get(id(node), ""), bound=id(node) in self.owners))
            while self.pending:
                self.enter(self.pending.pop(0))

    def enter(self, function: Function) -> None:
        """Interprets a function for itself, with nothing known of its parameters."""
        node = function.node
        if isinstance(node, ast.Lambda):
            return
        self.context = f"{node.name}@{node.lineno}"
        self.depth = 0
        self.budget = CALL_BUDGET
        self.function = node
        self.owner = function.owner
        env: Env = dict(function.env)
        spec = node.args
        for position, arg in enumerate((*spec.posonlyargs, *spec.args, *spec.kwonlyargs)):
            if position == 0 and function.bound and arg.arg == "self":
                env["self"] = (Obj(f"{function.owner}.self", "self"),)
            else:
                env[arg.arg] = (Obj(f"{self.context}/{arg.arg}", arg.arg, tags_of(arg.arg)),)
        for rest in (spec.vararg, spec.kwarg):
            if rest is not None:
                env[rest.arg] = (Obj(f"{self.context}/{rest.arg}", rest.arg),)
        self.returns.append([])
        self.block(node.body, env)
        self.returns.pop()

    # -- statements -------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], env: Env | None) -> Env | None:
        """The names after *body*; None where it never ends normally."""
        for statement in body:
            if env is None:
                return None
            if self.depth == 0:
                self.statement = statement
            kind = type(statement)
            handler = self.executors.get(kind)
            if handler is None:
                handler = self.executors[kind] = getattr(self, "exec_" + kind.__name__, self.exec_other)
            env = handler(statement, env)
        return env

    def exec_other(self, node: ast.stmt, env: Env) -> Env:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.eval(child, env)
        return env

    def exec_Assign(self, node: ast.Assign, env: Env) -> Env:
        outer = self.target_text
        self.target_text = code_of(node.targets[0]) if len(node.targets) == 1 else ""
        value = self.eval(node.value, env)
        for target in node.targets:
            self.assign(target, value, env, node.value)
        self.target_text = outer
        return env

    def exec_AnnAssign(self, node: ast.AnnAssign, env: Env) -> Env:
        if node.value is not None:
            outer = self.target_text
            self.target_text = code_of(node.target)
            self.assign(node.target, self.eval(node.value, env), env, node.value)
            self.target_text = outer
        return env

    def exec_AugAssign(self, node: ast.AugAssign, env: Env) -> Env:
        value = self.eval(node.value, env)
        name = node.target.id if isinstance(node.target, ast.Name) else getattr(node.target, "attr", "")
        if isinstance(node.op, ast.Add) and name:
            self.note_length(name, value, node.value)
        if isinstance(node.target, ast.Name):
            known = env.get(node.target.id, ())
            if not any(isinstance(atom, Tensor) for atom in known):
                env[node.target.id] = (self.fresh(node, name),)
        return env

    def exec_Expr(self, node: ast.Expr, env: Env) -> Env | None:
        self.eval(node.value, env)
        return env

    def exec_Return(self, node: ast.Return, env: Env) -> Env | None:
        value = self.eval(node.value, env) if node.value is not None else NOTHING
        if self.depth == 0 and node.value is not None and RETURNS_LENGTH.search(getattr(self.function, "name", "")):
            parts = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            for part in parts:
                if isinstance(part, (ast.Subscript, ast.Call)) and not of_tuples(part):
                    read = value if part is node.value else self.eval(part, env)
                    self.note_length(getattr(self.function, "name", ""), read, part)
        self.returns[-1].append(value) if self.returns else None
        return None

    def exec_Raise(self, node: ast.Raise, env: Env) -> Env | None:
        return None

    def exec_Continue(self, node: ast.Continue, env: Env) -> Env | None:
        return None

    exec_Break = exec_Continue

    def exec_If(self, node: ast.If, env: Env) -> Env | None:
        known = self.truth(node.test, env)
        if known is True:
            return self.block(node.body, env)
        if known is False:
            return self.block(node.orelse, env)
        yes, no = dict(env), dict(env)
        self.narrow(node.test, yes, no)
        return merge(self.block(node.body, yes), self.block(node.orelse, no))

    def exec_For(self, node: ast.For | ast.AsyncFor, env: Env) -> Env | None:
        value = self.eval(node.iter, env)
        self.assign(node.target, self.item_of(value, node.iter), env, None)
        after = self.block(node.body, dict(env))
        return merge(env, after)

    exec_AsyncFor = exec_For

    def exec_While(self, node: ast.While, env: Env) -> Env | None:
        self.eval(node.test, env)
        return merge(env, self.block(node.body, dict(env)))

    def exec_With(self, node: ast.With | ast.AsyncWith, env: Env) -> Env | None:
        for item in node.items:
            value = self.eval(item.context_expr, env)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, env, None)
        return self.block(node.body, env)

    exec_AsyncWith = exec_With

    def exec_Try(self, node: ast.Try, env: Env) -> Env | None:
        before = dict(env)
        after = self.block([*node.body, *node.orelse], env)
        for handler in node.handlers:
            after = merge(after, self.block(handler.body, dict(before)))
        return self.block(node.finalbody, after)

    def exec_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Env) -> Env:
        function = Function(node, self.owner, env=env)
        env[node.name] = (function,)
        self.envs.append(env)
        if self.depth == 0:
            self.pending.append(function)
        return env

    exec_AsyncFunctionDef = exec_FunctionDef

    def exec_ClassDef(self, node: ast.ClassDef, env: Env) -> Env:
        return env

    def exec_Assert(self, node: ast.Assert, env: Env) -> Env:
        return env

    # -- names ------------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value, env: Env, value_node: ast.expr | None) -> None:
        """Binds a target; a tensor takes on what the new name says of it."""
        if isinstance(target, ast.Name):
            env[target.id] = self.named(target.id, value)
            if self.trace is not None and id(target) not in self.elsewhere:
                self.trace.append(Binding(target.lineno, target.id, env[target.id], self.depth > 0))
            if target.id in self.reached_through:
                for key in [key for key in env if key.startswith((target.id + ".", target.id + "["))]:
                    del env[key]
            self.note_length(target.id, value, value_node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value, env, value_node)
        elif isinstance(target, ast.Attribute):
            path = code_of(target)
            env[path] = self.named(target.attr, value)
            self.reached_through.add(re.split(r"[.\[]", path, maxsplit=1)[0])
            self.note_length(target.attr, value, value_node)
            if path.startswith("self.") and path.count(".") == 1:
                self.store(f"{self.owner}.{target.attr}", value)
        elif isinstance(target, ast.Subscript):
            self.store_slice(target, value, env)

    def named(self, name: str, value: Value) -> Value:
        tags = tags_of(name)
        result: list[Atom] = []
        for atom in value:
            if isinstance(atom, Tensor):
                kept = tags | (atom.tags & {"past"}) if tags else atom.tags
                atom = Tensor(atom.lead, atom.axes, atom.open, frozenset(kept), name)
            elif isinstance(atom, Obj):
                kept = tags | (atom.tags & {"past"}) if tags else atom.tags
                atom = Obj(atom.key, name if "[" not in atom.name else atom.name, frozenset(kept), atom.quotient)
            elif isinstance(atom, Scalar):
                if name not in atom.names and name != "_":
                    atom = Scalar(atom.size, (*atom.names, name), atom.factor, atom.quotient)
            result.append(atom)
        return tuple(result)

    def store(self, key: str, value: Value) -> None:
        """What is assigned to an attribute is what other methods read from it: the same axes."""
        for atom in value:
            if isinstance(atom, Tensor):
                tensor = settle(atom, self.book.ranks)
                if tensor.rank is not None:
                    if self.book.ranks.get(key, tensor.rank) != tensor.rank:
                        continue
                    self.book.set_rank(key, tensor.rank)
                    for index, axis in enumerate(tensor.axes):
                        if len(axis) == 1:
                            self.book.align(known_factor(key, index).key, axis[0].key)
                elif tensor.lead is not None and not tensor.axes and not tensor.lead.drop:
                    self.align_objects(key, tensor.lead.key)
            elif isinstance(atom, Obj) and atom.tags:
                self.align_objects(key, atom.key)

    def align_objects(self, left: str, right: str) -> None:
        if left == right:
            return
        self.book.same_rank(left, right)
        for index in (*range(5), *range(-5, 0)):
            self.book.align(known_factor(left, index).key, known_factor(right, index).key)

    def unpack(self, target: ast.Tuple | ast.List, value: Value, env: Env, value_node: ast.expr | None) -> None:
        names = target.elts
        starred = next((index for index, item in enumerate(names) if isinstance(item, ast.Starred)), None)
        columns: list[list[Value]] = [[] for _ in names]
        for atom in value:
            for column, part in zip(
                columns, self.items_of_atom(atom, len(names), starred, names, value_node), strict=True
            ):
                column.append(part)
        for item, column in zip(names, columns, strict=True):
            joined = join(*column) if column else ()
            if isinstance(item, ast.Starred):
                self.assign(item.value, joined, env, None)
            else:
                self.assign(item, joined or (self.fresh(item, text_of(item)),), env, None)

    def items_of_atom(
        self, atom: Atom, count: int, starred: int | None, names: Sequence[ast.expr], node: ast.expr | None
    ) -> list[Value]:
        """The values of *count* names that one alternative is unpacked into."""
        if isinstance(atom, Items) and len(atom.items) == count and starred is None:
            return list(atom.items)
        if isinstance(atom, Items) and starred is not None and len(atom.items) >= count - 1:
            behind = len(atom.items) - (count - 1 - starred)
            return [*atom.items[:starred], (Items(atom.items[starred:behind]),), *atom.items[behind:]]
        if isinstance(atom, Dims):
            return self.unpack_shape(atom, count, starred, names)
        if isinstance(atom, Tensor) and starred is None:
            item = self.drop_first(atom)
            if item is not None:
                return [(item,)] * count
        if isinstance(atom, Obj):
            return [
                (
                    Obj(
                        f"{atom.key}[{index}]",
                        f"{atom.name}[{index}]",
                        tags_of(f"{atom.name}[{index}]") | (atom.tags & {"past"}),
                    ),
                )
                for index in range(count)
            ]
        return [() for _ in range(count)]

    def drop_first(self, tensor: Tensor) -> Tensor | None:
        tensor = settle(tensor, self.book.ranks)
        if tensor.rank is None or tensor.rank < 2:
            return None
        return Tensor(None, tensor.axes[1:], False, tensor.tags, tensor.name)

    def unpack_shape(self, dims: Dims, count: int, starred: int | None, names: Sequence[ast.expr]) -> list[Value]:
        """``b, s, _ = x.shape``: the number of names is the rank, and the names may tell the axes."""
        if starred is None and dims.lead is not None and not dims.items:
            self.book.set_rank(dims.lead.key, count + dims.lead.drop)
            items = [self.scalar_of_axis(dims.lead.key, index) for index in range(count)]
        elif starred is None and len(dims.items) == count and dims.lead is None:
            items = list(dims.items)
        elif starred is not None and dims.lead is None and len(dims.items) >= count - 1:
            behind = count - 1 - starred
            middle = dims.items[starred : len(dims.items) - behind]
            rest = dims.items[len(dims.items) - behind :]
            return [*[(item,) for item in dims.items[:starred]], (Dims(None, middle),), *[(item,) for item in rest]]
        elif starred is not None and dims.lead is not None and not dims.items:
            front: list[Value] = [(self.scalar_of_axis(dims.lead.key, index),) for index in range(starred)]
            behind = count - 1 - starred
            back: list[Value] = [
                (self.scalar_of_axis(dims.lead.key, index - behind - dims.lead.drop),) for index in range(behind)
            ]
            rest_dims = Dims(Lead(dims.lead.key, dims.lead.drop + behind), ()) if not starred else Dims(Lead("?"), ())
            return [*front, (rest_dims,), *back]
        else:
            return [() for _ in range(count)]
        self.note_names(items, names)
        return [(item,) for item in items]

    def note_names(self, items: Sequence[Scalar], names: Sequence[ast.expr]) -> None:
        """Evidence from the names that the sizes of a shape are unpacked into."""
        if self.in_shared:
            return
        called = [
            Scalar(item.size, (name.id,) if isinstance(name, ast.Name) and name.id.strip("_") else ())
            for item, name in zip(items, names, strict=True)
        ]
        roles = roles_of(called)
        if len(items) == 3 and roles[0] is None and roles[1] is None:
            letters = [scalar.names[0].lower() if scalar.names else "" for scalar in called]
            if letters[0] == "b" and letters[1] in ("s", "t", "l", "n"):
                roles = [BATCH, SEQUENCE, roles[2]]
        for item, name, role in zip(items, names, roles, strict=True):
            if role is not None and item.factor is not None and role != FEATURES:
                self.book.note(
                    item.factor.key, role, Strength.NAMED, name, f"its size is called `{text_of(name)}` here"
                )

    def note_length(self, name: str, value: Value, node: ast.expr | None) -> None:
        """``past_len = past.shape[2]``: the code takes this axis for the sequence."""
        if node is None or not LENGTH_NAME.search(name) or NOT_A_LENGTH.search(name):
            return
        scalars = [atom for atom in value if isinstance(atom, Scalar) and atom.factor is not None]
        if len(scalars) == 1 and scalars[0].factor is not None:
            self.book.note(scalars[0].factor.key, SEQUENCE, Strength.LENGTH, node, f"read as `{name}` here")
        self.record_length(name, node)

    def record_length(self, name: str, node: ast.expr) -> None:
        """Turns the shape read in *node* into a site, where one was seen."""
        for child in [node, *(item for item in walk(node) if item is not node)]:
            read = self.reads.get(id(child))
            if read is not None and (self.context == read[3]):
                axis_node, axis, tensors, _ = read
                if any(tensor.tags & {"key", "value", "kv"} for tensor in tensors):
                    assert isinstance(child, ast.expr)
                    self.record(LengthRead(child, axis_node, axis, tensors, name, self.statement, self.function))
                return

    reads: dict[int, tuple[ast.expr | None, int, tuple[Tensor, ...], str]]

    def record(self, site: Site) -> None:
        """Adds a place; *inlined* tells that it was reached through a call with known arguments."""
        if id(site.node) not in self.elsewhere:
            self.sites.setdefault(id(site.node), []).append((self.depth > 0, site))

    # -- small helpers ----------------------------------------------------------------------------------------------

    def key(self, node: ast.AST, tag: str = "") -> str:
        """An identity for what *node* makes in the present call."""
        return f"{self.context}:{getattr(node, 'lineno', 0)}.{getattr(node, 'col_offset', 0)}.{getattr(node, 'end_col_offset', 0)}{tag}"

    def fresh(self, node: ast.AST, name: str = "") -> Obj:
        """An unknown object, made at *node*."""
        return Obj(self.key(node), name, tags_of(name))

    def scalar_of_axis(self, key: str, index: int) -> Scalar:
        factor = known_factor(key, index)
        return Scalar(factor.size, (), factor)

    def truth(self, node: ast.expr, env: Env) -> bool | None:
        """Whether a condition holds, where the values decide it."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, env)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(item, env) for item in node.values]
            if isinstance(node.op, ast.And):
                return False if False in parts else True if all(parts) else None
            return True if True in parts else False if all(part is False for part in parts) else None
        value = self.eval(node, env)
        if len(value) == 1 and isinstance(value[0], Flag) and isinstance(node, (ast.Name, ast.Constant, ast.Compare)):
            return bool(value[0].value)
        if len(value) == 1 and isinstance(value[0], Tensor) and isinstance(node, ast.Name):
            return None
        return None

    def narrow(self, node: ast.expr, yes: Env, no: Env) -> None:
        """Drops ``None`` from the alternatives of a name that was asked for it."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for item in node.values:
                self.narrow(item, yes, {})
            return
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and isinstance(node.comparators[0], ast.Constant)
            and node.comparators[0].value is None
        ):
            path = code_of(node.left)
            env = yes if isinstance(node.ops[0], ast.IsNot) else no
            kept = tuple(atom for atom in env.get(path, ()) if not isinstance(atom, Flag))
            if kept:
                env[path] = kept

    def eval(self, node: ast.expr, env: Env) -> Value:
        raise NotImplementedError

    def item_of(self, value: Value, node: ast.expr) -> Value:
        raise NotImplementedError

    def store_slice(self, target: ast.Subscript, value: Value, env: Env) -> None:
        raise NotImplementedError


def of_tuples(node: ast.expr) -> bool:
    """True for ``past[0][0].shape[1]``: tuples may be those of a model of one's own, laid out as it likes."""
    inner = node.value if isinstance(node, ast.Subscript) else getattr(node, "func", node)
    tensor = getattr(inner, "value", inner)
    return isinstance(tensor, ast.Subscript)


def text_of(node: ast.AST) -> str:
    """A short name for an expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        inner = text_of(node.value)
        if isinstance(node.slice, ast.Constant):
            return node.slice.value if isinstance(node.slice.value, str) else f"{inner}[{node.slice.value!r}]"
        if isinstance(node.slice, ast.UnaryOp):
            return f"{inner}[{code_of(node.slice)}]"
        return inner
    return ""
