"""Values of expressions for the layout interpreter: names, shapes, indexing, arithmetic, comprehensions."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kvlint.analysis import layout
from kvlint.analysis.layout import ONE, Axis, Dims, Factor, Lead, Scalar, Tensor, axis_size, divide, product, settle
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, KV_HEADS, SEQUENCE, Strength
from kvlint.analysis.layout_values import (
    NOTHING,
    Append,
    Atom,
    Copies,
    Cut,
    Expansion,
    Flag,
    Function,
    Items,
    Obj,
    Text,
    Value,
    tags_of,
)
from kvlint.analysis.layout_walk import Env, LayoutWalk, join, text_of
from kvlint.nodes import children, code_of, walk

SHAPE_NAMES = ("shape",)
POSITIONS = re.compile(r"(?i)(?:^|_)pos(?:ition)?s?(?:_ids)?$")
STATE = re.compile(r"(?i)(?:^|layer_|decoder_|attn_|attention_|incremental_)state$")
"""Names of what holds keys and values of a past beside other things, and does not say so."""
EVERY_HEAD, TILED_HEADS = "every kv head", "every kv head, again and again"
"""What an index into keys is: ``arange(n_kv)``, and that repeated as a whole."""
CONTRACT = (BATCH, KV_HEADS, SEQUENCE, HEAD_DIM)


class LayoutEval(LayoutWalk):
    """Evaluates expressions."""

    copy_counts: dict[str, Scalar]
    """The numbers of copies, by what is made of them."""

    def eval(self, node: ast.expr, env: Env) -> Value:
        contract = self.contracts.get(id(node))
        if contract is not None:
            value = self.contract(contract, node)
            if value is not None:
                self.eval_children(node, env)
                return value
        kind = type(node)
        method = self.evaluators.get(kind)
        if method is None:
            method = self.evaluators[kind] = getattr(self, "eval_" + kind.__name__, self.eval_other)
        return method(node, env)

    def eval_other(self, node: ast.expr, env: Env) -> Value:
        self.eval_children(node, env)
        return (self.fresh(node),)

    def eval_children(self, node: ast.AST, env: Env) -> None:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.eval(child, env)

    def contract(self, part: str, node: ast.expr) -> Value | None:
        """A tensor that a transformers cache holds: ``[batch, kv heads, sequence, head dim]`` by the library's contract."""
        if part == "pair":
            return (Items((self.stored("keys", node), self.stored("values", node))),)
        if part in ("keys", "values"):
            return self.stored(part, node)
        return None

    def stored(self, part: str, node: ast.expr) -> Value:
        key = self.key(node, part)
        axes = []
        for index, role in enumerate(CONTRACT):
            factor = layout.known_factor(key, index)
            self.book.note(
                factor.key,
                role,
                Strength.STRUCTURE,
                node,
                "a transformers cache keeps [batch, kv heads, sequence, head dim]",
            )
            axes.append((factor,))
        tags = frozenset({"past", "key" if part == "keys" else "value"})
        return (Tensor(None, tuple(axes), tags=tags, name=text_of(node)),)

    # -- leaves and paths -------------------------------------------------------------------------------------------

    def eval_Constant(self, node: ast.Constant, env: Env) -> Value:
        if node.value is None or isinstance(node.value, bool):
            return (Flag(node.value),)
        if isinstance(node.value, int):
            return (Scalar((node.value, ())),)
        if isinstance(node.value, str):
            return (Text(node.value),)
        return (Obj(f"constant {node.value!r}"),)

    def eval_Name(self, node: ast.Name, env: Env) -> Value:
        value = env.get(node.id)
        if value is None:
            value = self.module_env.get(node.id)
        if value is None:
            return (Obj(f"global/{node.id}", node.id, tags_of(node.id)),)
        return value

    def eval_NamedExpr(self, node: ast.NamedExpr, env: Env) -> Value:
        value = self.eval(node.value, env)
        self.assign(node.target, value, env, node.value)
        return env.get(node.target.id, value)

    def eval_Await(self, node: ast.Await, env: Env) -> Value:
        return self.eval(node.value, env)

    def eval_Attribute(self, node: ast.Attribute, env: Env) -> Value:
        path = path_text(node)
        if path and path in env:
            return env[path]
        base = self.eval(node.value, env)
        if node.attr == "shape":
            return self.shapes(base)
        if node.attr == "ndim":
            return self.rank_of(base, node)
        if node.attr in ("T", "mT"):
            return self.map_tensors(base, node, lambda tensor: layout.transpose(tensor, -1, -2))
        if node.attr == "data":
            return base
        results: list[Value] = []
        for atom in base:
            if isinstance(atom, Obj):
                if atom.key.endswith(".self"):
                    results.append((Obj(f"{atom.key[:-5]}.{node.attr}", node.attr, tags_of(node.attr)),))
                else:
                    results.append((Obj(f"{atom.key}.{node.attr}", node.attr, self.tags_in(atom, node.attr)),))
        return join(*results) or (self.fresh(node, node.attr),)

    def shapes(self, base: Value) -> Value:
        results: list[Value] = []
        for atom in base:
            tensor = self.as_tensor(atom)
            if tensor is not None:
                results.append((self.shape_of(tensor),))
        return join(*results)

    def shape_of(self, tensor: Tensor) -> Dims:
        tensor = settle(tensor, self.book.ranks)
        if tensor.open:
            return Dims(Lead("?"), (), tensor)
        return Dims(tensor.lead, tuple(axis_scalar(axis) for axis in tensor.axes), tensor)

    def rank_of(self, base: Value, node: ast.AST) -> Value:
        ranks = set()
        for atom in base:
            tensor = self.as_tensor(atom)
            ranks.add(None if tensor is None else settle(tensor, self.book.ranks).rank)
        if len(ranks) == 1 and None not in ranks:
            rank = ranks.pop()
            assert rank is not None
            return (Scalar((rank, ())),)
        return (self.fresh(node, "ndim"),)

    # -- conversions ------------------------------------------------------------------------------------------------

    def as_tensor(self, atom: Atom) -> Tensor | None:
        """The alternative seen as a tensor, or None where it cannot be one."""
        if isinstance(atom, Tensor):
            return atom
        if isinstance(atom, Obj):
            return layout.unknown_tensor(atom.key, atom.name, atom.tags)
        return None

    def as_scalar(self, value: Value) -> Scalar | None:
        """A value seen as a number; None where it may be several."""
        if len(value) != 1:
            scalars = {atom for atom in (self.atom_scalar(item) for item in value) if atom is not None}
            if len({scalar.size for scalar in scalars}) == 1 and len(scalars) == len(value):
                return next(iter(scalars))
            return None
        return self.atom_scalar(value[0])

    def atom_scalar(self, atom: Atom) -> Scalar | None:
        if isinstance(atom, Scalar):
            return atom
        if isinstance(atom, Obj):
            known = self.attribute_scalar(atom)
            if known is not None:
                return known
            names = (atom.name,) if atom.name else ()
            return Scalar((1, (atom.key,)), names, None, atom.quotient)
        return None

    def attribute_scalar(self, atom: Obj) -> Scalar | None:
        """What the class's own assignments say of ``self.x`` as a number: a constant, other names of it, a quotient."""
        owner, _, name = atom.key.rpartition(".")
        definitions = self.attributes.get((owner, name))
        if not definitions:
            return None
        if (owner, name) in self._attribute_cache:
            return self._attribute_cache[(owner, name)]
        if (owner, name) in self._evaluating:
            return None
        self._evaluating.add((owner, name))
        result: Scalar | None = None
        if len(definitions) == 1 and isinstance(
            definitions[0], (ast.Name, ast.Attribute, ast.BinOp, ast.Constant, ast.Call, ast.IfExp, ast.BoolOp)
        ):
            definition = definitions[0]
            number = (
                None
                if isinstance(definition, ast.Call)
                else self.as_scalar(self.eval(definition, {"self": (Obj(f"{owner}.self", "self"),)}))
            )
            extra = literal_names(definition)
            if isinstance(definition, ast.Constant) and number is not None:
                result = Scalar(number.size, (name,))
            elif number is not None:
                more = tuple(item for item in (*number.names, *extra) if item != name)
                result = Scalar((1, (atom.key,)), (name, *more), None, number.quotient)
            elif extra:
                result = Scalar((1, (atom.key,)), (name, *extra))
        self._evaluating.discard((owner, name))
        self._attribute_cache[(owner, name)] = result
        return result

    def as_int(self, value: Value) -> int | None:
        scalar = self.as_scalar(value)
        return scalar.value if scalar is not None and scalar.factor is None else None

    def map_tensors(self, value: Value, node: ast.AST, change: object) -> Value:
        """*change* of each alternative that can be a tensor; what it cannot follow is a fresh object with the same tags."""
        results: list[Atom] = []
        for atom in value:
            if isinstance(atom, Flag):
                continue
            tensor = self.as_tensor(atom)
            changed = change(settle(tensor, self.book.ranks)) if tensor is not None else None  # type: ignore[operator]
            if changed is None:
                name = getattr(atom, "name", "")
                tags: frozenset[str] = getattr(atom, "tags", frozenset())
                changed = Obj(self.key(node, f"?{len(results)}"), name, tags)
            if changed not in results:
                results.append(changed)
        return tuple(results) or (self.fresh(node),)

    # -- displays ---------------------------------------------------------------------------------------------------

    def eval_Tuple(self, node: ast.Tuple | ast.List, env: Env) -> Value:
        items: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                inner = self.eval(item.value, env)
                if len(inner) == 1 and isinstance(inner[0], Items):
                    items.extend(inner[0].items)
                    continue
                if len(inner) == 1 and isinstance(inner[0], Dims):
                    return self.starred_shape(node, env, inner[0], item, items)
                return (self.fresh(node),)
            items.append(self.eval(item, env))
        return (Items(tuple(items)),)

    eval_List = eval_Tuple

    def starred_shape(
        self, node: ast.Tuple | ast.List, env: Env, dims: Dims, star: ast.Starred, before: list[Value]
    ) -> Value:
        """``(*x.shape[:-1], heads, head_dim)`` as a shape."""
        rest = [
            self.as_scalar(self.eval(item, env))
            for item in node.elts[node.elts.index(star) + 1 :]
            if not isinstance(item, ast.Starred)
        ]
        first = [self.as_scalar(value) for value in before]
        if any(item is None for item in (*rest, *first)) or (first and dims.lead is not None):
            return (self.fresh(node),)
        return (Dims(dims.lead, tuple(item for item in (*first, *dims.items, *rest) if item is not None)),)

    def eval_Dict(self, node: ast.Dict, env: Env) -> Value:
        self.eval_children(node, env)
        return (self.fresh(node),)

    def eval_JoinedStr(self, node: ast.JoinedStr, env: Env) -> Value:
        return (self.fresh(node),)

    def eval_Lambda(self, node: ast.Lambda, env: Env) -> Value:
        return (Function(node, self.owner, env=env),)

    def eval_IfExp(self, node: ast.IfExp, env: Env) -> Value:
        known = self.truth(node.test, env)
        if known is not None:
            return self.eval(node.body if known else node.orelse, env)
        yes, no = dict(env), dict(env)
        self.narrow(node.test, yes, no)
        return join(self.eval(node.body, yes), self.eval(node.orelse, no))

    def eval_BoolOp(self, node: ast.BoolOp, env: Env) -> Value:
        values = [self.eval(item, env) for item in node.values]
        if isinstance(node.op, ast.Or):
            numbers = [self.as_scalar(value) for value in values]
            first = numbers[0]
            if first is not None:
                names = tuple(name for number in numbers if number is not None for name in number.names)
                return (Scalar(first.size, tuple(dict.fromkeys(names)), first.factor, first.quotient),)
        return join(*values)

    def eval_Compare(self, node: ast.Compare, env: Env) -> Value:
        left = self.eval(node.left, env)
        right = self.eval(node.comparators[0], env)
        for item in node.comparators[1:]:
            self.eval(item, env)
        if len(node.ops) == 1 and len(left) == 1 and len(right) == 1:
            op, one, other = node.ops[0], left[0], right[0]
            if isinstance(op, (ast.Is, ast.IsNot)) and other == Flag(None):
                if isinstance(one, Flag):
                    return (Flag((one.value is None) == isinstance(op, ast.Is)),)
                if isinstance(one, (Tensor, Items, Scalar)):
                    return (Flag(isinstance(op, ast.IsNot)),)
            if isinstance(op, (ast.Eq, ast.NotEq)):
                first, second = self.as_int(left), self.as_int(right)
                if first is not None and second is not None:
                    return (Flag((first == second) == isinstance(op, ast.Eq)),)
                if isinstance(one, Text) and isinstance(other, Text):
                    return (Flag((one.value == other.value) == isinstance(op, ast.Eq)),)
        return (self.fresh(node),)

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def eval_UnaryOp(self, node: ast.UnaryOp, env: Env) -> Value:
        value = self.eval(node.operand, env)
        if isinstance(node.op, ast.USub):
            number = self.as_int(value)
            if number is not None:
                return (Scalar((-number, ())),)
            if any(isinstance(atom, Tensor) for atom in value):
                return value
        return (self.fresh(node),)

    def eval_BinOp(self, node: ast.BinOp, env: Env) -> Value:
        left, right = self.eval(node.left, env), self.eval(node.right, env)
        if isinstance(node.op, ast.MatMult):
            return self.matmul(node, left, right)
        shape = self.shape_sum(node, left, right) if isinstance(node.op, ast.Add) else None
        if shape is not None:
            return shape
        if isinstance(node.op, ast.Mult) and len(left) == 1 and isinstance(left[0], Items) and len(left[0].items) == 1:
            return (Copies(left[0].items[0], right),)
        tensor = self.elementwise_pair(left, right)
        if tensor is not None:
            return tensor
        one, other = self.as_scalar(left), self.as_scalar(right)
        if one is not None and other is not None:
            return (self.arithmetic(node, one, other),)
        return (self.fresh(node),)

    def arithmetic(self, node: ast.BinOp, one: Scalar, other: Scalar) -> Atom:
        if isinstance(node.op, ast.Mult):
            return Scalar(product(one.size, other.size))
        if isinstance(node.op, (ast.FloorDiv, ast.Div)):
            exact = divide(one.size, other.size)
            if exact is not None:
                return Scalar(exact, (), None, (one, other))
            return Scalar((1, (f"({one.size}//{other.size})",)), (), None, (one, other))
        if isinstance(node.op, (ast.Add, ast.Sub)) and one.value is not None and other.value is not None:
            return Scalar((one.value + other.value * (1 if isinstance(node.op, ast.Add) else -1), ()))
        text = code_of(node)
        return Scalar((1, (f"({self.context}:{text})",)))

    def shape_sum(self, node: ast.BinOp, left: Value, right: Value) -> Value | None:
        """``x.size()[:-1] + (heads, head_dim)``."""
        if len(left) != 1 or len(right) != 1:
            return None
        one, other = self.as_shape(left[0]), self.as_shape(right[0])
        if (
            one is None
            or other is None
            or not (isinstance(left[0], (Dims, Items)) and isinstance(right[0], (Dims, Items)))
        ):
            return None
        if other.lead is not None:
            return None
        return (Dims(one.lead, one.items + other.items),)

    def as_shape(self, atom: Atom) -> Dims | None:
        """A tuple of numbers as a shape."""
        if isinstance(atom, Dims):
            return atom
        if isinstance(atom, Items):
            scalars = [self.as_scalar(item) for item in atom.items]
            if all(item is not None for item in scalars):
                return Dims(None, tuple(item for item in scalars if item is not None))
        return None

    def elementwise_pair(self, left: Value, right: Value) -> Value | None:
        """The result of an elementwise operation: laid out like the operand that is known best."""
        candidates: list[Value] = []
        for value in (left, right):
            if any(isinstance(atom, Tensor) for atom in value):
                candidates.append(tuple(atom for atom in value if not isinstance(atom, Flag)))
        if not candidates:
            for value in (left, right):
                if any(isinstance(atom, Obj) and atom.tags & {"key", "value", "query"} for atom in value):
                    return value
            return None
        if len(candidates) == 2:
            ranks = [
                max((len(atom.axes) for atom in value if isinstance(atom, Tensor)), default=0) for value in candidates
            ]
            return candidates[0] if ranks[0] >= ranks[1] else candidates[1]
        return candidates[0]

    def matmul(self, node: ast.AST, left: Value, right: Value) -> Value:
        raise NotImplementedError

    # -- subscripts -------------------------------------------------------------------------------------------------

    def eval_Subscript(self, node: ast.Subscript, env: Env) -> Value:
        path = path_text(node)
        if path and path in env:
            return env[path]
        base = self.eval(node.value, env)
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(entry, (ast.Slice,)) or is_none(entry) or is_ellipsis(entry) for entry in entries):
            return self.sliced(node, base, entries, env)
        if len(entries) != 1:  # none in x[()]
            for entry in entries:
                self.eval(entry, env)
            return self.map_tensors(base, node, lambda tensor: self.index_tensor(tensor, entries, env))
        index_value = self.eval(entries[0], env)
        index = self.as_int(index_value)
        results: list[Value] = []
        for atom in base:
            results.append(self.item(atom, index, index_value, node))
        return join(*results) or (self.fresh(node, text_of(node)),)

    def item(self, atom: Atom, index: int | None, index_value: Value, node: ast.Subscript) -> Value:
        """``atom[index]``."""
        if isinstance(atom, Items) and index is not None and -len(atom.items) <= index < len(atom.items):
            return atom.items[index]
        if isinstance(atom, Dims):
            return self.shape_item(atom, index, node)
        if isinstance(atom, Tensor):
            tensor = settle(atom, self.book.ranks)
            if tensor.rank is not None and tensor.rank >= 2 and index is not None:
                return (Tensor(None, tensor.axes[1:], False, tensor.tags, tensor.name),)
            return (Obj(self.key(node), tensor.name, tensor.tags),)
        if isinstance(atom, Obj):
            key = self.subscript_key(atom, index, index_value, node)
            name = (
                index_value[0].value
                if len(index_value) == 1 and isinstance(index_value[0], Text)
                else f"{atom.name}[{index}]"
                if index is not None
                else atom.name
            )
            extra = self.tags_in(atom, name)
            return (Obj(key, name, extra | (atom.tags & {"past"})),)
        return ()

    def tags_in(self, holder: Obj, name: str) -> frozenset[str]:
        """What a member or an item is by its name: the keys of a cache are old keys."""
        tags = tags_of(name)
        if tags & {"key", "value", "kv"} and ("past" in holder.tags or STATE.search(holder.name)):
            tags |= {"past"}
        return tags

    def subscript_key(self, atom: Obj, index: int | None, index_value: Value, node: ast.Subscript) -> str:
        if index is not None:
            return f"{atom.key}[{index}]"
        if len(index_value) == 1 and isinstance(index_value[0], Text):
            return f"{atom.key}[{index_value[0].value}]"
        return f"{atom.key}[{code_of(node.slice)}]"

    def shape_item(self, dims: Dims, index: int | None, node: ast.AST) -> Value:
        if index is None:
            return (Obj(self.key(node)),)
        if dims.tensor is not None:
            return (self.size_at(dims.tensor, index, node),)
        count = len(dims.items)
        if dims.lead is None and -count <= index < count:
            return (dims.items[index],)
        if dims.lead is not None and -count <= index < 0:
            return (dims.items[index],)
        if dims.lead is not None and dims.lead.key != "?":
            if index >= 0:
                return (self.scalar_of_axis(dims.lead.key, index),)
            return (self.scalar_of_axis(dims.lead.key, index + count - dims.lead.drop),)
        return (Obj(self.key(node)),)

    def size_at(self, tensor: Tensor, index: int, node: ast.AST) -> Atom:
        """``tensor.shape[index]`` or ``tensor.size(index)``; remembered, should it be taken for a length."""
        tensor = settle(tensor, self.book.ranks)
        axis_node = (
            node.slice
            if isinstance(node, ast.Subscript)
            else node.args[0]
            if isinstance(node, ast.Call) and node.args
            else None
        )
        known = self.reads.get(id(node))
        tensors = (
            (*known[2], tensor)
            if known is not None and known[3] == self.context and tensor not in known[2]
            else (tensor,)
        )
        self.reads[id(node)] = (axis_node, index, tensors, self.context)
        axis = layout.axis_at(tensor, index)
        if axis is None:
            return Obj(self.key(node))
        return axis_scalar(axis)

    def sliced(self, node: ast.Subscript, base: Value, entries: Sequence[ast.expr], env: Env) -> Value:
        """``x[:, None]``, ``x[..., :n]``, ``shape[:-1]``, ``past[:2]``."""
        for entry in entries:
            if isinstance(entry, ast.Slice):
                for bound in (entry.lower, entry.upper, entry.step):
                    if bound is not None:
                        self.eval(bound, env)
            else:
                self.eval(entry, env)
        results: list[Value] = []
        for position, atom in enumerate(base):
            if isinstance(atom, Dims):
                results.append(self.slice_shape(atom, entries, env, node))
                continue
            if isinstance(atom, Items):
                results.append(self.slice_items(atom, entries, env, node))
                continue
            tensor = self.as_tensor(atom)
            if tensor is None:
                continue
            tensor = settle(tensor, self.book.ranks)
            plain = isinstance(atom, Obj) and len(entries) == 1 and isinstance(entries[0], ast.Slice)
            if plain and isinstance(atom, Obj):
                results.append((Obj(f"{atom.key}[{code_of(node.slice)}]", atom.name, atom.tags),))
                continue
            self.note_cut(node, tensor, entries)
            self.note_tiled_index(node, tensor, entries, env)
            changed = self.index_tensor(tensor, entries, env)
            results.append(
                (changed if changed is not None else Obj(self.key(node, f"?{position}"), tensor.name, tensor.tags),)
            )
        return join(*results) or (self.fresh(node, text_of(node)),)

    def slice_shape(self, dims: Dims, entries: Sequence[ast.expr], env: Env, node: ast.AST) -> Value:
        entry = entries[0]
        if len(entries) != 1 or not isinstance(entry, ast.Slice) or entry.step is not None:
            return (self.fresh(node),)
        low = self.as_int(self.eval(entry.lower, env)) if entry.lower is not None else None
        high = self.as_int(self.eval(entry.upper, env)) if entry.upper is not None else None
        if (entry.lower is not None and low is None) or (entry.upper is not None and high is None):
            return (self.fresh(node),)
        if dims.lead is None:
            return (Dims(None, dims.items[low:high]),)
        count = len(dims.items)
        if low is None and high is not None and high < 0:
            if -high <= count:
                return (Dims(dims.lead, dims.items[: count + high]),)
            return (Dims(Lead(dims.lead.key, dims.lead.drop - high - count), ()),)
        if low is not None and low < 0 and high is None:
            items = [self.shape_item(Dims(dims.lead, dims.items), index, node) for index in range(low, 0)]
            scalars = [self.as_scalar(item) for item in items]
            if all(item is not None for item in scalars):
                return (Dims(None, tuple(item for item in scalars if item is not None)),)
        if (low or 0) >= 0 and high is not None and high > 0 and not dims.items:
            return (Dims(None, tuple(self.scalar_of_axis(dims.lead.key, index) for index in range(low or 0, high))),)
        return (self.fresh(node),)

    def slice_items(self, atom: Items, entries: Sequence[ast.expr], env: Env, node: ast.AST) -> Value:
        entry = entries[0]
        if len(entries) == 1 and isinstance(entry, ast.Slice) and entry.step is None:
            low = self.as_int(self.eval(entry.lower, env)) if entry.lower is not None else 0
            high = self.as_int(self.eval(entry.upper, env)) if entry.upper is not None else len(atom.items)
            if low is not None and high is not None:
                return (Items(atom.items[low:high]),)
        return (self.fresh(node),)

    def index_tensor(self, tensor: Tensor, entries: Sequence[ast.expr], env: Env) -> Tensor | None:
        """Indexing with slices, ``None``, ``...`` and single numbers."""
        kinds = [self.entry_kind(entry, env) for entry in entries]
        if "unknown" in kinds or kinds.count("ellipsis") > 1:
            return None
        consuming = [kind for kind in kinds if kind in ("slice", "full", "index")]
        if tensor.lead is not None and "ellipsis" not in kinds:
            if len(consuming) >= 4 and not tensor.axes and not tensor.lead.drop:
                self.book.set_rank(tensor.lead.key, len(consuming))
                tensor = settle(tensor, self.book.ranks)
            elif set(kinds) <= {"slice", "full"}:
                return tensor if not tensor.axes else None
            else:
                return None
        if tensor.open:
            return None
        if "ellipsis" in kinds:
            at = kinds.index("ellipsis")
            behind = [kind for kind in kinds[at + 1 :] if kind in ("slice", "full", "index")]
            before = [kind for kind in kinds[:at] if kind != "new"]
            if tensor.lead is not None:
                if before:
                    return None
                tensor = layout.reveal(tensor, len(behind))
                front: list[Axis] = list(tensor.axes[: len(tensor.axes) - len(behind)])
                rest = list(tensor.axes[len(tensor.axes) - len(behind) :])
                if any(kind == "new" for kind in kinds[:at]):
                    return None
            else:
                if len(behind) + len(before) > len(tensor.axes):
                    return None
                split = len(tensor.axes) - len(behind)
                front = self.pick(list(tensor.axes[: len(before)]), kinds[:at]) + list(tensor.axes[len(before) : split])
                rest = list(tensor.axes[split:])
            return Tensor(tensor.lead, (*front, *self.pick(rest, kinds[at + 1 :])), False, tensor.tags, tensor.name)
        if len(consuming) > len(tensor.axes):
            return None
        axes = self.pick(list(tensor.axes[: len(consuming)]), kinds) + list(tensor.axes[len(consuming) :])
        return Tensor(None, tuple(axes), False, tensor.tags, tensor.name)

    def pick(self, axes: list[Axis], kinds: Sequence[str]) -> list[Axis]:
        """The axes that index entries of these kinds leave."""
        result: list[Axis] = []
        position = 0
        for kind in kinds:
            if kind == "new":
                result.append(())
            elif kind == "index":
                position += 1
            else:
                axis = axes[position]
                if kind == "slice" and len(axis) == 1:
                    axis = (self.cut_factor(axis[0]),)
                result.append(axis)
                position += 1
        return result

    def cut_factor(self, factor: Factor) -> Factor:
        """A part of an axis: the same role, another size."""
        key = factor.key + "~"
        self.book.same(factor.key, key)
        return Factor(key, (1, (key,)), factor.kind)

    def entry_kind(self, entry: ast.expr, env: Env) -> str:
        if isinstance(entry, ast.Slice):
            return "full" if entry.lower is None and entry.upper is None else "slice"
        if is_none(entry):
            return "new"
        if is_ellipsis(entry):
            return "ellipsis"
        value = self.eval(entry, env)
        if self.as_int(value) is not None:
            return "index"
        if len(value) == 1 and isinstance(value[0], Scalar):
            return "index"
        if isinstance(entry, ast.Name) and len(entry.id) == 1:
            return "index"
        return "unknown"

    def note_cut(self, node: ast.Subscript, tensor: Tensor, entries: Sequence[ast.expr]) -> None:
        """Records a slice with bounds of a key or value tensor."""
        if not tensor.tags & {"key", "value", "kv"} or not isinstance(node.ctx, ast.Load):
            return
        bounded = [
            (position, entry)
            for position, entry in enumerate(entries)
            if isinstance(entry, ast.Slice) and (entry.lower is not None or entry.upper is not None)
        ]
        if len(bounded) != 1 or any(is_none(entry) for entry in entries):
            return
        position, entry = bounded[0]
        ellipsis = next((index for index, item in enumerate(entries) if is_ellipsis(item)), None)
        if any(not isinstance(item, ast.Slice) and not is_ellipsis(item) for item in entries):
            return
        axis = position if ellipsis is None or ellipsis > position else position - len(entries)
        bound = " ".join(code_of(item) for item in (entry.lower, entry.upper) if item is not None)
        self.record(Cut(node, None, axis, (tensor,), "slice", bound, self.statement, self.function))

    def note_tiled_index(self, node: ast.Subscript, tensor: Tensor, entries: Sequence[ast.expr], env: Env) -> None:
        """``k[:, arange(n_kv).repeat(n_rep)]``: copies of the heads, tiled."""
        if not tensor.tags & {"key", "value", "kv"} or not all(isinstance(item, ast.Slice) for item in entries[:-1]):
            return
        (index, *more) = self.eval(entries[-1], env) if isinstance(entries[-1], ast.Name) else ((),)
        if more or not isinstance(index, Tensor) or TILED_HEADS not in index.tags or index.lead is None:
            return
        position = len(entries) - 1
        axis = layout.axis_at(tensor, position)
        self.book.note_axis(axis, KV_HEADS, Strength.CONSUMER, node, "indexed with the number of each kv head")
        count = self.copy_counts.get(index.lead.key)
        self.record(
            Expansion(node, None, position, (tensor,), "tiled", count, None, "index", self.statement, self.function)
        )

    def store_slice(self, target: ast.Subscript, value: Value, env: Env) -> None:
        """``cache[:, :, start:end] = k``."""
        path = path_text(target)
        if path:
            env[path] = value
            self.reached_through.add(re.split(r"[.\[]", path, maxsplit=1)[0])
        base = self.eval(target.value, env)
        entries = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        ranged = [
            entry
            for entry in entries
            if (isinstance(entry, ast.Slice) and (entry.lower is not None or entry.upper is not None))
            or is_positions(entry)
        ]
        old = [tensor for tensor in (self.as_tensor(atom) for atom in base) if tensor is not None]
        new = [
            tensor
            for tensor in (self.as_tensor(atom) for atom in value if not isinstance(atom, Flag))
            if tensor is not None
        ]
        if not ranged or not old or not new or len(new) != len(value):
            return
        stored = any(tensor.tags & {"past"} or "cache" in (tensor.lead.key if tensor.lead else "") for tensor in old)
        part = part_of((*new, *old))
        if not stored or not part:
            return
        ellipsis = next((index for index, item in enumerate(entries) if is_ellipsis(item)), None)
        steps = [
            (position, entry)
            for position, entry in enumerate(entries)
            if (isinstance(entry, ast.Slice) and entry.lower is not None and entry.upper is not None)
            or is_positions(entry)
        ]
        if len(steps) != 1 or any(is_none(entry) for entry in entries):
            return
        position, step = steps[0]
        if re.search(r"(?i)head|rank|group|shard|layer|split", code_of(step)):
            return
        if ellipsis is not None and ellipsis < position:
            axis = position - len(entries)
        else:
            dropped = sum(1 for item in entries[:position] if not isinstance(item, ast.Slice))
            axis = position - dropped
        whole = all(isinstance(item, ast.Slice) or is_ellipsis(item) for item in entries if item is not step)
        if is_positions(step) and (
            not whole or any(settle(tensor, self.book.ranks).rank not in (None, 4) for tensor in new)
        ):
            return
        kept = tuple(old) if whole else ()
        self.record(Append(target, None, axis, tuple(new), kept, part, "slice", self.statement, self.function))

    # -- comprehensions ---------------------------------------------------------------------------------------------

    def eval_ListComp(self, node: ast.ListComp | ast.GeneratorExp, env: Env) -> Value:
        inner = dict(env)
        first = node.generators[0]
        value = self.eval(first.iter, inner)
        if (
            len(node.generators) == 1
            and not first.ifs
            and len(value) == 1
            and isinstance(value[0], Items)
            and len(value[0].items) <= 4
        ):
            results: list[Value] = []
            context = self.context
            for number, item in enumerate(value[0].items):
                self.context = f"{context}/{number}"  # what each round makes is something else
                self.assign(first.target, item, inner, None)
                results.append(self.eval(node.elt, inner))
            self.context = context
            return (Items(tuple(results)),)
        for generator in node.generators:
            iterated = value if generator is first else self.eval(generator.iter, inner)
            self.assign(generator.target, self.item_of(iterated, generator.iter), inner, None)
            for test in generator.ifs:
                self.eval(test, inner)
        element = self.eval(node.elt, inner)
        if isinstance(first.iter, ast.Call) and text_of(first.iter.func) == "range" and len(first.iter.args) == 1:
            return (
                (Copies(element, self.eval(first.iter.args[0], env)),)
                if is_constant_over(first.target, node.elt)
                else (self.fresh(node),)
            )
        return (self.fresh(node),)

    eval_GeneratorExp = eval_ListComp

    def eval_DictComp(self, node: ast.DictComp, env: Env) -> Value:
        inner = dict(env)
        for generator in node.generators:
            self.assign(generator.target, self.item_of(self.eval(generator.iter, inner), generator.iter), inner, None)
        self.eval(node.value, inner)
        return (self.fresh(node),)

    def item_of(self, value: Value, node: ast.expr) -> Value:
        """What iterating over *value* yields."""
        contract = self.contracts.get(-id(node))
        if contract == "pair":
            return (Items((self.stored("keys", node), self.stored("values", node))),)
        if contract in ("keys", "values"):
            return self.stored(contract, node)
        parts: list[Value] = []
        for atom in value:
            if isinstance(atom, Items) and len(atom.items) <= 4:
                parts.append(join(*atom.items))
            elif isinstance(atom, Obj):
                parts.append((Obj(f"{atom.key}[*]", atom.name, atom.tags),))
            elif isinstance(atom, Tensor):
                dropped = self.drop_first(atom)
                parts.append((dropped,) if dropped is not None else ())
        return join(*parts) or (self.fresh(node),)


def axis_scalar(axis: Axis) -> Scalar:
    return Scalar(axis_size(axis), (), axis[0] if len(axis) == 1 else None)


def part_of(tensors: Sequence[Tensor]) -> str:
    """Which half of a cache the tensors are, by their tags."""
    tags = frozenset().union(*(tensor.tags for tensor in tensors)) if tensors else frozenset()
    if "query" in tags and not tags & {"key", "value", "kv"}:
        return ""
    if "key" in tags and "value" not in tags:
        return "keys"
    if "value" in tags and "key" not in tags:
        return "values"
    if tags & {"kv", "key", "value"}:
        return "keys and values"
    return ""


def literal_names(node: ast.expr) -> tuple[str, ...]:
    """Names that a definition gives away besides its own: ``getattr(config, "num_key_value_heads", ...)``."""
    if isinstance(node, ast.Call) and text_of(node.func) == "getattr" and len(node.args) >= 2:
        key = node.args[1]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return (key.value,)
    return ()


def path_text(node: ast.expr) -> str:
    """``a.b[0]`` for chains of names, attributes and constant subscripts, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = path_text(node.value)
        return f"{base}.{node.attr}" if base else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = path_text(node.value)
        return f"{base}[{node.slice.value!r}]" if base else ""
    return ""


def is_none(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or (
        isinstance(node, ast.Attribute) and node.attr == "newaxis"
    )


def is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def is_positions(node: ast.expr) -> bool:
    """True for a name of the positions that new keys are written to: ``input_pos``, ``cache_position``."""
    return isinstance(node, (ast.Name, ast.Attribute)) and POSITIONS.search(text_of(node)) is not None


def is_constant_over(target: ast.expr, element: ast.expr) -> bool:
    """True where the element does not use the loop's variable."""
    bound = {item.id for item in walk(target) if isinstance(item, ast.Name)}
    return not any(isinstance(item, ast.Name) and item.id in bound for item in walk(element))


__all__ = ["NOTHING", "ONE", "LayoutEval", "axis_scalar", "is_ellipsis", "is_none", "part_of", "path_text"]
