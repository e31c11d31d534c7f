"""Operations that rearrange the axes of a tensor: transposing, viewing, splitting into heads, merging."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from kvlint.analysis import layout
from kvlint.analysis.layout import Axis, Dims, Factor, Scalar, Tensor, known_factor, settle
from kvlint.analysis.layout_eval import LayoutEval
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE, Strength, is_heads, roles_of
from kvlint.analysis.layout_values import (
    Atom,
    Cut,
    Items,
    Value,
    tags_of,
)
from kvlint.analysis.layout_walk import Env
from kvlint.nodes import code_of

NAMESPACES = frozenset(
    {
        "torch",
        "np",
        "numpy",
        "jnp",
        "mx",
        "F",
        "functional",
        "einops",
        "tnp",
        "nn",
        "jax",
        "mlx",
        "ops",
        "lax",
        "tf",
        "ms",
        "paddle",
    }
)


class LayoutViews(LayoutEval):
    """Transposes, reshapes, selects; projections and tensors made here."""

    def note_merged(self, node: ast.Call, before: Tensor, after: Tensor | None) -> None:
        raise NotImplementedError

    def is_namespace(self, node: ast.expr, env: Env) -> bool:
        """True for ``torch``, ``torch.nn.functional``, ``F``, ``np`` and the like."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id in env:
            return False
        return node.id in self.libraries or node.id in NAMESPACES

    def numpy_name(self, node: ast.Call) -> bool:
        root: ast.AST = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        dotted = self.libraries.get(name, name)
        return dotted.split(".")[0] in ("numpy", "np", "jnp", "jax", "mx", "mlx", "tf", "tensorflow")

    def project(self, node: ast.AST, value: Value, name: str) -> Value:
        """A linear map: new features in place of the last axis."""
        results: list[Atom] = []
        for atom in value:
            tensor = self.as_tensor(atom)
            if tensor is None:
                continue
            tensor = settle(tensor, self.book.ranks)
            if tensor.open:
                continue
            key = self.key(node, "features")
            feature = Factor(key, (1, (key,)), "features")
            if tensor.lead is not None and not tensor.axes:
                made = Tensor(layout.Lead(tensor.lead.key, tensor.lead.drop + 1), ((feature,),))
            else:
                made = Tensor(tensor.lead, (*tensor.axes[:-1], (feature,)))
            made = replace(made, tags=tags_of(name), name=name)
            if made not in results:
                results.append(made)
        return tuple(results) or (self.fresh(node, name),)

    def shape_argument(self, arguments: list[Value]) -> Dims | None:
        if len(arguments) == 1 and len(arguments[0]) == 1:
            return self.as_shape(arguments[0][0]) if isinstance(arguments[0][0], (Dims, Items)) else None
        return None

    def numbers(self, arguments: list[Value], skip: int = 0) -> list[int] | None:
        """The arguments, or the one tuple among them, as integers."""
        values = arguments[skip:]
        if len(values) == 1 and len(values[0]) == 1 and isinstance(values[0][0], Items):
            values = list(values[0][0].items)
        found = [self.as_int(value) for value in values]
        return None if any(item is None for item in found) else [item for item in found if item is not None]

    def targets(self, arguments: list[Value]) -> Dims | None:
        """The arguments of view, reshape, expand, repeat as one shape."""
        if len(arguments) == 1 and len(arguments[0]) == 1 and isinstance(arguments[0][0], (Items, Dims)):
            return self.as_shape(arguments[0][0])
        if (
            arguments
            and len(arguments[0]) == 1
            and isinstance(arguments[0][0], Dims)
            and arguments[0][0].lead is not None
        ):
            rest = [self.as_scalar(value) for value in arguments[1:]]
            if all(item is not None for item in rest):
                return Dims(
                    arguments[0][0].lead, (*arguments[0][0].items, *(item for item in rest if item is not None))
                )
            return None
        scalars = [self.as_scalar(value) for value in arguments]
        if not scalars or any(item is None for item in scalars):
            return None
        return Dims(None, tuple(item for item in scalars if item is not None))

    def axis_argument(
        self, arguments: list[Value], keywords: dict[str, Value], position: int, default: int | None = None
    ) -> int | None:
        for name in ("dim", "axis"):
            if name in keywords:
                return self.as_int(keywords[name])
        if len(arguments) > position:
            return self.as_int(arguments[position])
        return default

    def axis_node(self, node: ast.Call, position: int) -> ast.expr | None:
        for keyword in node.keywords:
            if keyword.arg in ("dim", "axis"):
                return keyword.value
        return node.args[position] if len(node.args) > position else None

    def op_transpose(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        values = [*arguments, *(keywords[name] for name in ("dim0", "dim1", "axis1", "axis2") if name in keywords)]
        axes = self.numbers(values)
        if axes is None or len(axes) != 2:
            return None
        tensor = self.assume_rank(tensor, max(axes) if min(axes) >= 0 else -1)
        return layout.transpose(tensor, axes[0], axes[1])

    def assume_rank(self, tensor: Tensor, highest: int) -> Tensor:
        """Hidden states have three axes: what a projection gives, or its split into heads, is spelt out so."""
        if tensor.lead is None or not tensor.axes or highest < 0 or tensor.lead.key == "?":
            return tensor
        self.book.set_rank(tensor.lead.key, tensor.lead.drop + 2)
        self.convention(tensor.lead.key)
        return settle(tensor, self.book.ranks)

    def convention(self, key: str) -> None:
        self.book.note(
            known_factor(key, 0).key, BATCH, Strength.CONVENTION, None, "hidden states are [batch, sequence, features]"
        )
        self.book.note(
            known_factor(key, 1).key,
            SEQUENCE,
            Strength.CONVENTION,
            None,
            "hidden states are [batch, sequence, features]",
        )

    def op_permute(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        values = arguments or [keywords[name] for name in ("dims", "axes", "perm") if name in keywords]
        order = self.numbers(values)
        if order is None or not order:
            return None
        if tensor.lead is not None and tensor.lead.key != "?":
            count = len(order) - len(tensor.axes)
            if count < 0:
                return None
            if count == 2 and tensor.axes:
                self.convention(tensor.lead.key)
            self.book.set_rank(tensor.lead.key, count + tensor.lead.drop)
            tensor = settle(tensor, self.book.ranks)
        return layout.permute(tensor, order)

    def op_move(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        axes = self.numbers(arguments)
        return layout.move(tensor, axes[0], axes[1]) if axes is not None and len(axes) == 2 else None

    def op_unsqueeze(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        return layout.insert(tensor, index) if index is not None else None

    def op_squeeze(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        axis = layout.axis_at(tensor, index)
        return layout.remove(tensor, index) if axis is not None and axis == () else None

    def op_select(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        return layout.remove(tensor, index) if index is not None else None

    def op_narrow(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        if tensor.tags & {"key", "value", "kv"} and len(node.args) >= 2:
            bound = " ".join(code_of(item) for item in node.args[1:])
            self.record(
                Cut(node, self.axis_node(node, 0), index, (tensor,), "narrow", bound, self.statement, self.function)
            )
        return self.resized(tensor, index)

    def op_index_select(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        if tensor.tags & {"key", "value", "kv", "past"}:
            offset = 1 if not isinstance(node.func, ast.Attribute) or len(node.args) == 3 else 0
            bound = " ".join(code_of(item) for item in node.args[1 + offset :])
            self.record(
                Cut(
                    node,
                    self.axis_node(node, offset),
                    index,
                    (tensor,),
                    "reorder",
                    bound,
                    self.statement,
                    self.function,
                )
            )
        return self.resized(tensor, index)

    def resized(self, tensor: Tensor, index: int) -> Tensor | None:
        axis = layout.axis_at(tensor, index)
        if axis is None:
            return None
        if len(axis) != 1:
            key = "+".join(factor.key for factor in axis) + f"~{tensor.name}@{index}"
            return layout.with_axis(tensor, index, (Factor(key, (1, (key,))),))
        return layout.with_axis(tensor, index, (self.cut_factor(axis[0]),))

    def op_flatten(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        first = self.as_int(arguments[0]) if arguments else 0
        last = self.as_int(arguments[1]) if len(arguments) > 1 else -1
        if tensor.rank is None:
            if first is None or first >= 0 or last is None or last >= 0:
                return None
            tensor = layout.reveal(tensor, -first)
            low, high = len(tensor.axes) + first, len(tensor.axes) + last
        else:
            if first is None or last is None:
                return None
            low, high = first % tensor.rank, last % tensor.rank
        if low > high or low < 0:
            return None
        merged: Axis = tuple(factor for axis in tensor.axes[low : high + 1] for factor in axis)
        result = replace(tensor, axes=(*tensor.axes[:low], merged, *tensor.axes[high + 1 :]))
        self.note_merged(node, tensor, result)
        return result

    def op_unflatten(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        sizes = self.targets([keywords["sizes"]] if "sizes" in keywords else arguments[1:2])
        if index is None or sizes is None or sizes.lead is not None:
            return None
        if tensor.lead is not None and index >= 0:
            tensor = self.assume_rank(tensor, index)
        if tensor.lead is not None and index < 0:
            tensor = layout.reveal(tensor, -index)
        position = layout.place(tensor, index)
        if position is None:
            return None
        axis = tensor.axes[position]
        if len(axis) == 1 and axis[0].kind != "features":
            axis = (replace(axis[0], kind="features"),)
        inner = self.split_axes(node, Tensor(None, (axis,)), list(sizes.items))
        if inner is None:
            return None
        return replace(tensor, axes=(*tensor.axes[:position], *inner.axes, *tensor.axes[position + 1 :]))

    def op_reshape(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        targets = self.targets(
            arguments or [keywords[name] for name in ("shape", "newshape", "size") if name in keywords]
        )
        if targets is None:
            return None
        if targets.lead is not None and targets.lead.key in self.book.ranks:
            count = self.book.ranks[targets.lead.key] - targets.lead.drop
            front = tuple(self.scalar_of_axis(targets.lead.key, index) for index in range(max(count, 0)))
            targets = Dims(None, front + targets.items)
        if targets.lead is not None:
            return self.reshape_behind(node, tensor, targets)
        if (
            tensor.lead is not None
            and tensor.axes
            and tensor.lead.key != "?"
            and len(targets.items) >= 4 - (len(tensor.axes) - 1)
        ):
            self.book.set_rank(tensor.lead.key, tensor.lead.drop + 2)
            self.convention(tensor.lead.key)
            tensor = settle(tensor, self.book.ranks)
        result = self.split_axes(node, tensor, list(targets.items)) if tensor.rank is not None else None
        if result is None:
            result = self.reshape_by_names(node, tensor, list(targets.items))
        self.note_merged(node, tensor, result)
        return result

    def reshape_behind(self, node: ast.Call, tensor: Tensor, targets: Dims) -> Tensor | None:
        """``x.view(*x.shape[:-1], heads, head_dim)``: only what is behind the leading axes changes."""
        assert targets.lead is not None
        roles = roles_of([None if item.value == -1 else item for item in targets.items])
        behind = tensor.axes if tensor.lead == targets.lead else None
        inner = (
            self.split_axes(node, Tensor(None, behind), list(targets.items))
            if behind is not None and len(behind)
            else None
        )
        if inner is None:
            axes = tuple(self.fresh_axis(node, item, index) for index, item in enumerate(targets.items))
            inner = Tensor(None, axes)
            self.note_roles(node, axes, targets.items, roles)
            if len(axes) == 2 and tensor.tags & {"key", "value", "query"}:
                self.note_parts(node, axes, roles)
        return Tensor(targets.lead, inner.axes, False, tensor.tags, tensor.name)

    def split_axes(self, node: ast.Call, tensor: Tensor, items: list[Scalar]) -> Tensor | None:
        """A reshape that follows from the sizes; the parts of a projection get their roles."""
        made: list[tuple[str, Factor]] = []

        def split(factor: Factor, target: Scalar | None, part: int) -> Factor:
            key = f"{factor.key}/{self.key(node)}/{len(made)}"
            size = target.size if target is not None and target.size[0] > 0 else (1, (key,))
            new = Factor(key, size, factor.kind if target is None or factor.kind == "copies" else "")
            made.append((factor.key, new))
            return new

        wanted = [None if item.value == -1 else item for item in items]
        result = layout.reshape(tensor, wanted, split)
        if result is not None:
            result = self.tidy(result, wanted)
        if result is None:
            result = self.positional(node, tensor, wanted)
            if result is None:
                return None
        roles = roles_of(wanted)
        self.note_roles(node, result.axes, items, roles)
        features = {factor.key for axis in tensor.axes for factor in axis if factor.kind == "features"}
        parts = [
            axis
            for axis in result.axes
            if len(axis) == 1 and any(axis[0].key.startswith(key + "/") for key in features)
        ]
        if len(parts) == 2 and result.axes[-2:] == tuple(parts):
            self.note_parts(node, parts, roles[-2:])
        elif len(parts) >= 3 and result.axes[-1] is parts[-1] and roles[-1] is None:
            self.book.note_axis(parts[-1], HEAD_DIM, Strength.STRUCTURE, node, "the last part of a split projection")
        return result

    def tidy(self, result: Tensor, wanted: Sequence[Scalar | None]) -> Tensor | None:
        """Gives up what is left of a projection behind a -1, where its parts account for all of it."""
        wild = next((index for index, item in enumerate(wanted) if item is None), None)
        if wild is None:
            return result
        axis = result.axes[wild]
        leftover = [factor for factor in axis if factor.kind == "features"]
        if not leftover:
            return result
        if len(axis) == 1:
            key = leftover[0].key + "/rest"
            return replace(result, axes=(*result.axes[:wild], (Factor(key, (1, (key,))),), *result.axes[wild + 1 :]))
        behind = len(wanted) - wild - 1
        if behind >= 2:
            kept = tuple(factor for factor in axis if factor.kind != "features")
            return replace(result, axes=(*result.axes[:wild], kept, *result.axes[wild + 1 :]))
        return None

    def positional(self, node: ast.Call, tensor: Tensor, wanted: Sequence[Scalar | None]) -> Tensor | None:
        """``x @ W`` seen as ``[b, s, features]`` and viewed as four axes: the last two are the features, by position."""
        if tensor.rank is None or len(wanted) != tensor.rank + 1 or tensor.rank < 2:
            return None
        last = tensor.axes[-1]
        if len(last) != 1 or last[0].kind != "features":
            return None
        roles = roles_of(wanted)
        if any(is_heads(role) or role == HEAD_DIM for role in roles[:-2]):
            return None
        if any(role in (BATCH, SEQUENCE) for role in roles[-2:]):
            return None
        if (
            len(wanted) == 4
            and (roles[0] == SEQUENCE or roles[1] == BATCH)
            and not (roles[0] == SEQUENCE and roles[1] == BATCH)
        ):
            return None
        made = []
        for offset, target in ((0, wanted[-2]), (1, wanted[-1])):
            key = f"{last[0].key}/{self.key(node)}/p{offset}"
            size = target.size if target is not None else (1, (key,))
            made.append((Factor(key, size),))
        return replace(tensor, axes=(*tensor.axes[:-1], *made))

    def reshape_by_names(self, node: ast.Call, tensor: Tensor, items: list[Scalar]) -> Tensor:
        """A reshape of something unknown: new axes, whose sizes may tell what they are."""
        wanted = [None if item.value == -1 else item for item in items]
        roles = roles_of(wanted)
        axes = tuple(self.fresh_axis(node, item, index) for index, item in enumerate(items))
        self.note_roles(node, axes, items, roles)
        return Tensor(None, axes, False, tensor.tags, tensor.name)

    def fresh_axis(self, node: ast.AST, item: Scalar, index: int) -> Axis:
        if item.value == 1:
            return ()
        key = self.key(node, f"[{index}]")
        size = item.size if item.value is None or item.value > 0 else (1, (key,))
        if item.factor is not None:
            self.book.align(key, item.factor.key)
        return (Factor(key, size),)

    def note_roles(
        self, node: ast.AST, axes: Sequence[Axis], items: Sequence[Scalar], roles: Sequence[str | None]
    ) -> None:
        text = ", ".join(described(item) for item in items)
        for axis, item, role in zip(axes, items, roles, strict=False):
            of_argument = self.in_shared and item.factor is not None
            if role in (BATCH, SEQUENCE, HEADS, KV_HEADS, HEAD_DIM) and not of_argument:
                assert role is not None
                self.book.note_axis(axis, role, Strength.STRUCTURE, node, f"laid out as ({text})")

    def note_parts(self, node: ast.AST, parts: Sequence[Axis], roles: Sequence[str | None]) -> None:
        """A projection split in two is heads times head dim, unless the sizes say otherwise."""
        heads, dim = roles
        if heads is None and (dim is None or dim == HEAD_DIM):
            self.book.note_axis(parts[0], HEADS, Strength.STRUCTURE, node, "the first part of a split projection")
        if dim is None and (heads is None or is_heads(heads)):
            self.book.note_axis(parts[1], HEAD_DIM, Strength.STRUCTURE, node, "the last part of a split projection")

    def create(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``torch.zeros(b, heads, s, head_dim)``."""
        given = (
            arguments[:1]
            if arguments and len(arguments[0]) == 1 and isinstance(arguments[0][0], (Items, Dims))
            else arguments
        )
        targets = self.targets(given or [keywords[name] for name in ("size", "shape") if name in keywords])
        if targets is None or targets.lead is not None or len(targets.items) < 2:
            return (self.fresh(node, self.target_name()),)
        axes = tuple(self.fresh_axis(node, item, index) for index, item in enumerate(targets.items))
        roles = roles_of(list(targets.items))
        self.note_roles(node, axes, targets.items, roles)
        return (Tensor(None, axes),)

    def target_name(self) -> str:
        return self.target_text.rpartition(".")[2].split("[")[0]


def described(item: Scalar) -> str:
    if item.value is not None:
        return str(item.value)
    return item.names[-1] if item.names else "..."
