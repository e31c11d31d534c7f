"""Operations that copy a tensor along its axes, for the query heads that share a kv head: repeat, expand, einops."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from kvlint.analysis import layout
from kvlint.analysis.layout import Axis, Factor, Scalar, Tensor, settle
from kvlint.analysis.layout_einops import Pattern, parse_pattern
from kvlint.analysis.layout_eval import EVERY_HEAD, TILED_HEADS
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE, Strength, roles_of
from kvlint.analysis.layout_values import (
    Expansion,
    Text,
    Value,
)
from kvlint.analysis.layout_views import LayoutViews


class LayoutCopies(LayoutViews):
    """Repeats, expands, rearranges by pattern."""

    copy_names: dict[str, tuple[str, ...]]
    """What the numbers of copies were called."""

    def note_merged(self, node: ast.Call, before: Tensor, after: Tensor | None) -> None:
        """Copies made by expand and merged into an axis here are an expansion of that axis."""
        if after is None:
            return
        for index, axis in enumerate(after.axes):
            copies = [factor for factor in axis if factor.kind == "copies"]
            others = [factor for factor in axis if factor.kind != "copies"]
            if len(copies) == 1 and len(others) == 1 and axis not in before.axes:
                order = "tiled" if axis[0].kind == "copies" else "interleaved"
                plain = replace(after, axes=(*after.axes[:index], (others[0],), *after.axes[index + 1 :]))
                count = Scalar(copies[0].size, self.copy_names.get(copies[0].key, ()))
                self.record(
                    Expansion(node, None, index, (plain,), order, count, None, "reshape", self.statement, self.function)
                )

    def copies(self, node: ast.AST, count: Scalar | None, tag: str) -> Factor:
        key = self.key(node, tag)
        if count is not None:
            self.copy_names[key] = count.names
            self.copy_counts[key] = count
        return Factor(key, count.size if count is not None and count.size[0] > 0 else (1, (key,)), "copies")

    def op_expand(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        targets = self.targets(arguments)
        if targets is None or targets.lead is not None:
            return None
        if tensor.lead is not None and not tensor.axes and not tensor.lead.drop:
            self.book.set_rank(tensor.lead.key, len(targets.items))
            tensor = settle(tensor, self.book.ranks)
        rank = tensor.rank
        if rank is None or rank > len(targets.items):
            return None
        axes: list[Axis] = []
        extra = len(targets.items) - rank
        for index, item in enumerate(targets.items):
            axis: Axis = () if index < extra else tensor.axes[index - extra]
            if axis == () and item.value not in (1, -1):
                axis = (self.copies(node, item, f"expand{index}"),)
            axes.append(axis)
        return replace(tensor, axes=tuple(axes))

    def op_repeat(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        """``torch.Tensor.repeat`` and ``tile``."""
        targets = self.targets(
            arguments or [keywords[name] for name in ("reps", "dims", "repeats") if name in keywords]
        )
        if targets is None or targets.lead is not None:
            return None
        if EVERY_HEAD in tensor.tags and len(targets.items) == 1 and tensor.lead is not None:
            self.copy_counts[tensor.lead.key] = targets.items[0]
            return replace(tensor, tags=frozenset({TILED_HEADS}))
        if tensor.lead is not None:
            if tensor.lead.key == "?" or len(targets.items) < 2:
                return None
            self.book.set_rank(tensor.lead.key, len(targets.items) - len(tensor.axes) + tensor.lead.drop)
            tensor = settle(tensor, self.book.ranks)
        if tensor.rank is None or tensor.rank != len(targets.items):
            return None
        result: Tensor | None = tensor
        repeated = [index for index, item in enumerate(targets.items) if item.value != 1]
        for index in repeated:
            assert result is not None
            item = targets.items[index]
            axis = tensor.axes[index]
            if len(repeated) == 1 and axis:
                self.expansion(node, None, index, tensor, "tiled", item, self.size_node(node, index), "repeat")
            result = layout.tiled(result, index, self.copies(node, item, f"tile{index}"))
            if result is None:
                return None
        return result

    def size_node(self, node: ast.Call, index: int) -> ast.expr | None:
        arguments: Sequence[ast.expr] = node.args
        if len(arguments) <= 2 and arguments and isinstance(arguments[-1], (ast.Tuple, ast.List)):
            arguments = arguments[-1].elts
        return (
            arguments[index]
            if index < len(arguments) and not any(isinstance(item, ast.Starred) for item in arguments)
            else None
        )

    def op_repeat_interleave(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        axis = self.axis_argument(arguments, keywords, 1)
        count = (
            self.as_scalar(arguments[0])
            if arguments
            else self.as_scalar(keywords["repeats"])
            if "repeats" in keywords
            else None
        )
        if axis is None:
            return None
        offset = 1 if len(node.args) > 1 and self.is_namespace_call(node) else 0
        self.expansion(
            node,
            self.axis_node(node, 1 + offset),
            axis,
            tensor,
            "interleaved",
            count,
            node.args[offset] if len(node.args) > offset else None,
            "repeat_interleave",
        )
        return layout.interleaved(tensor, axis, self.copies(node, count, "interleave"))

    def is_namespace_call(self, node: ast.Call) -> bool:
        return not isinstance(node.func, ast.Attribute) or self.is_namespace(node.func.value, {})

    def expansion(
        self,
        node: ast.expr,
        axis_node: ast.expr | None,
        axis: int,
        tensor: Tensor,
        order: str,
        count: Scalar | None,
        count_node: ast.expr | None,
        how: str,
    ) -> None:
        self.record(
            Expansion(node, axis_node, axis, (tensor,), order, count, count_node, how, self.statement, self.function)
        )

    def einops(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        text = next(atom.value for atom in arguments[1] if isinstance(atom, Text))
        pattern = parse_pattern(text)
        if pattern is None or name == "reduce":
            return (self.fresh(node),)
        sizes = {key: self.as_scalar(value) for key, value in keywords.items()}
        return self.map_tensors(arguments[0], node, lambda tensor: self.rearrange(node, tensor, pattern, sizes))

    def rearrange(
        self, node: ast.Call, tensor: Tensor, pattern: Pattern, sizes: dict[str, Scalar | None]
    ) -> Tensor | None:
        """``rearrange`` and ``repeat``: the letters of the left side are factors, the right side places them."""
        tensor = settle(tensor, self.book.ranks)
        dotted = pattern.ellipsis_left
        if tensor.lead is not None and not dotted and tensor.lead.key != "?":
            self.book.set_rank(tensor.lead.key, len(pattern.left) - len(tensor.axes) + tensor.lead.drop)
            if len(pattern.left) == 3 and tensor.axes:
                self.convention(tensor.lead.key)
            tensor = settle(tensor, self.book.ranks)
        if dotted or tensor.rank != len(pattern.left):
            return None
        letters: dict[str, Axis] = {}
        for axis, group in zip(tensor.axes, pattern.left, strict=True):
            if len(group) == 1:
                letters[group[0]] = axis
            elif not group:
                continue
            else:
                letters.update(self.split_group(node, axis, group, sizes))
        names = [name for group in pattern.left for name in group]
        scalars = [sizes.get(name) or Scalar((1, (name,)), (name,)) for name in names]
        scalars = [
            Scalar(item.size, tuple(dict.fromkeys((*item.names, name))))
            for item, name in zip(scalars, names, strict=True)
        ]
        roles = roles_of(scalars)
        for name, role in zip(names, roles, strict=True):
            axis = letters.get(name, ())
            if role in (BATCH, SEQUENCE, HEADS, KV_HEADS, HEAD_DIM) and role is not None:
                self.book.note_axis(axis, role, Strength.STRUCTURE, node, f"the pattern calls it `{name}`")
        axes: list[Axis] = []
        for group in pattern.right:
            factors: list[Factor] = []
            for name in group:
                if name in letters:
                    factors.extend(letters[name])
                elif name != "1":
                    count = sizes.get(name)
                    if count is None and name.isdigit():
                        count = Scalar((int(name), ()))
                    factors.append(self.copies(node, count, f"einops-{name}"))
            axes.append(tuple(factors))
        result = replace(tensor, axes=tuple(axes))
        for index, axis in enumerate(axes):
            copies = [factor for factor in axis if factor.kind == "copies"]
            others = [factor for factor in axis if factor.kind != "copies"]
            if len(copies) == 1 and len(others) == 1 and axis not in tensor.axes:
                order = "tiled" if axis[0].kind == "copies" else "interleaved"
                plain = replace(result, axes=(*axes[:index], (others[0],), *axes[index + 1 :]))
                self.expansion(node, None, index, plain, order, self.copy_counts.get(copies[0].key), None, "einops")
        return result

    def split_group(
        self, node: ast.Call, axis: Axis, group: tuple[str, ...], sizes: dict[str, Scalar | None]
    ) -> dict[str, Axis]:
        """``(h d)`` on the left: the axis in parts."""
        if len(axis) == len(group):
            return {name: (factor,) for name, factor in zip(group, axis, strict=True)}
        base = axis[0].key if len(axis) == 1 else self.key(node)
        made: dict[str, Axis] = {}
        for name in group:
            key = f"{base}/{self.key(node)}/{name}"
            size = sizes.get(name)
            made[name] = (Factor(key, size.size if size is not None else (1, (key,))),)
        return made
