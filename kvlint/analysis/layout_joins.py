"""Operations that join tensors, old keys to new ones above all, and take them apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from kvlint.analysis import layout
from kvlint.analysis.layout import Factor, Scalar, Tensor, known_factor, settle
from kvlint.analysis.layout_copies import LayoutCopies
from kvlint.analysis.layout_eval import part_of
from kvlint.analysis.layout_values import (
    Append,
    Atom,
    Copies,
    Flag,
    Items,
    Obj,
    Value,
)
from kvlint.analysis.layout_walk import Env, text_of
from kvlint.nodes import code_of

STACKS = {"hstack": 1, "vstack": 0, "dstack": 2, "column_stack": 1, "row_stack": 0}
NEW_NAME = re.compile(
    r"(?i)new|cur|step|tok|next|now|latest|_t$|_i$|\d$|last|append|incoming|this|chunk|(?:^|_)one(?:_|$)"
)
"""Names of what is added to keys or values under their own name (``k = cat([k, k_new])``)."""


class LayoutJoins(LayoutCopies):
    """Concatenates, stacks, chunks, splits."""

    def concat(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value], env: Env) -> Value:
        operands = (
            arguments[0] if arguments else next((keywords[key] for key in ("tensors", "arrays") if key in keywords), ())
        )
        axis = STACKS.get(name) if name in STACKS else self.axis_argument(arguments, keywords, 1, 0)
        axis_node = self.axis_node(node, 1)
        if len(operands) == 1 and isinstance(operands[0], Copies):
            return self.concat_copies(node, operands[0], axis, axis_node)
        if len(operands) != 1 or not isinstance(operands[0], Items):
            return (self.fresh(node, self.target_name()),)
        items = operands[0].items
        nodes = self.operand_nodes(node)
        if axis is None or not items:
            return (self.fresh(node, self.target_name()),)
        if len(items) >= 2 and nodes and len({code_of(item) for item in nodes}) == 1:
            return self.concat_copies(node, Copies(items[0], (Scalar((len(items), ())),)), axis, axis_node)
        self.note_append(node, axis, axis_node, items, nodes)
        return self.joined_tensor(node, items, axis)

    def operand_nodes(self, node: ast.Call) -> list[ast.expr]:
        first = (
            node.args[0]
            if node.args
            else next((item.value for item in node.keywords if item.arg in ("tensors", "arrays")), None)
        )
        return list(first.elts) if isinstance(first, (ast.Tuple, ast.List)) else []

    def concat_copies(self, node: ast.Call, copies: Copies, axis: int | None, axis_node: ast.expr | None) -> Value:
        count = self.as_scalar(copies.count)
        if axis is None:
            return (self.fresh(node),)
        index = axis

        def change(tensor: Tensor) -> Tensor | None:
            self.expansion(node, axis_node, index, tensor, "tiled", count, None, "concatenation of copies")
            return layout.tiled(tensor, index, self.copies(node, count, "copies"))

        return self.map_tensors(copies.item, node, change)

    def note_append(
        self, node: ast.Call, axis: int, axis_node: ast.expr | None, items: Sequence[Value], nodes: Sequence[ast.expr]
    ) -> None:
        """Records a concatenation of old and new keys or values, and that their axes belong together."""
        if not 2 <= len(items) <= 3:
            return
        tensors = [[tensor for tensor in map(self.as_tensor, value) if tensor is not None] for value in items]
        if any(not found for found in tensors):
            return
        texts = [code_of(item) for item in nodes] if len(nodes) == len(items) else ["" for _ in items]
        past = [index for index, found in enumerate(tensors) if all("past" in tensor.tags for tensor in found)]
        if not past and texts[0] and texts[0] == self.target_text:
            rest = [tensor for found in tensors[1:] for tensor in found]
            if texts[0].startswith("self.") or all(
                tensor.tags & {"key", "value", "kv"} and NEW_NAME.search(tensor.name) for tensor in rest
            ):
                past = [0]
        if not past and texts[-1] and texts[0].startswith("self.") and not texts[-1].startswith("self."):
            past = [0]
        if len(past) == len(items) and all(tensor.rank is not None for found in tensors for tensor in found):
            past = [0]
        if not past or len(past) == len(items):
            return
        old = [tensor for index in past for tensor in tensors[index]]
        new = [tensor for index, found in enumerate(tensors) if index not in past for tensor in found]
        part = part_of(new) or part_of(old)
        if not part or any("query" in tensor.tags for tensor in new):
            return
        for one in old:
            for other in new:
                self.align_tensors(one, other)
        self.record(
            Append(node, axis_node, axis, tuple(new), tuple(old), part, "concatenation", self.statement, self.function)
        )

    def align_tensors(self, left: Tensor, right: Tensor) -> None:
        """Two tensors that are joined: axis by axis the same roles."""
        left, right = settle(left, self.book.ranks), settle(right, self.book.ranks)
        if (
            left.rank is not None
            and right.rank is None
            and right.lead is not None
            and right.lead.key != "?"
            and not right.axes
        ):
            self.book.set_rank(right.lead.key, left.rank + right.lead.drop)
            right = settle(right, self.book.ranks)
        elif (
            right.rank is not None
            and left.rank is None
            and left.lead is not None
            and left.lead.key != "?"
            and not left.axes
        ):
            self.book.set_rank(left.lead.key, right.rank + left.lead.drop)
            left = settle(left, self.book.ranks)
        ranks = {left.rank, right.rank}
        if None not in ranks and len(ranks) == 1:
            pairs = list(zip(left.axes, right.axes, strict=True))
        elif None in ranks and not (left.open or right.open):
            if is_plain_object(left) and is_plain_object(right) and left.lead is not None and right.lead is not None:
                self.book.same_rank(left.lead.key, right.lead.key)
            pairs = []
            for index in (*range(5), *range(-5, 0)):
                one, other = layout.axis_at(left, index), layout.axis_at(right, index)
                if one is not None and other is not None:
                    pairs.append((one, other))
        elif left.open or right.open:
            pairs = []
            for index in range(3):
                one, other = layout.axis_at(left, index), layout.axis_at(right, index)
                if one is not None and other is not None:
                    pairs.append((one, other))
        else:
            return
        for one, other in pairs:
            if len(one) == 1 and len(other) == 1:
                self.book.align(one[0].key, other[0].key)

    def joined_tensor(self, node: ast.Call, items: Sequence[Value], axis: int) -> Value:
        """What a concatenation gives: laid out like its best known operands."""
        best: list[Tensor] = []
        for value in items:
            known = [settle(atom, self.book.ranks) for atom in value if isinstance(atom, Tensor)]
            known = [tensor for tensor in known if tensor.rank is not None]
            if known and len(known) == len(value) and (not best or "past" not in known[0].tags):
                best = known
        if not best:
            objects = [atom for value in items for atom in value if isinstance(atom, (Obj, Tensor))]
            chosen = next((atom for atom in reversed(objects) if "past" not in atom.tags), None)
            if chosen is None:
                return (self.fresh(node),)
            tensor = self.as_tensor(chosen)
            assert tensor is not None
            key = self.key(node)
            result = layout.unknown_tensor(key, tensor.name, tensor.tags - {"past"})
            tensor = settle(tensor, self.book.ranks)
            if tensor.lead is not None and not tensor.axes and not tensor.lead.drop:
                self.book.same_rank(tensor.lead.key, key)
                for index in (*range(5), *range(-5, 0)):
                    self.book.same(known_factor(tensor.lead.key, index).key, known_factor(key, index).key)
            return (result,)
        results: list[Atom] = []
        for tensor in best:
            grown = self.resized(tensor, axis)
            if grown is not None:
                results.append(replace(grown, tags=grown.tags - {"past"}))
        return tuple(results) or (self.fresh(node),)

    def op_write(
        self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]
    ) -> Tensor | None:
        """``cache.index_copy_(dim, index, k)`` and ``cache.slice_scatter(k, dim, ...)``: new keys written along an axis."""
        scatter = text_of(node.func) == "slice_scatter"
        source = (
            arguments[0]
            if scatter and arguments
            else arguments[2]
            if len(arguments) > 2
            else keywords.get("source", ())
        )
        axis = self.axis_argument(arguments, keywords, 1 if scatter else 0, 0 if scatter else None)
        new = [made for made in map(self.as_tensor, source) if made is not None]
        part = part_of([*new, tensor])
        stored = "past" in tensor.tags or (tensor.lead is not None and "cache" in tensor.lead.key)
        if axis is None or not new or len(new) != len(source) or not part or not stored:
            return tensor
        for one in new:
            self.align_tensors(tensor, one)
        offset = 1 if self.is_namespace_call(node) else 0
        axis_node = self.axis_node(node, (1 if scatter else 0) + offset)
        self.record(Append(node, axis_node, axis, tuple(new), (tensor,), part, "slice", self.statement, self.function))
        return tensor

    def stack(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        axis = self.axis_argument(arguments, keywords, 1, 0)
        operands = arguments[0] if arguments else ()
        if axis is None or len(operands) != 1:
            return (self.fresh(node),)
        if isinstance(operands[0], Copies):
            count = self.as_scalar(operands[0].count)
            return self.map_tensors(
                operands[0].item, node, lambda tensor: layout.insert(tensor, axis, (self.copies(node, count, "stack"),))
            )
        if isinstance(operands[0], Items) and operands[0].items:
            key = self.key(node, "stack")
            new = (Factor(key, (len(operands[0].items), ())),)
            return self.map_tensors(operands[0].items[0], node, lambda tensor: layout.insert(tensor, axis, new))
        return (self.fresh(node),)

    def parts(
        self, node: ast.Call, base: Value, name: str, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """``chunk``, ``split``, ``unbind``: as many tensors as the call makes."""
        axis = self.axis_argument(arguments, keywords, 0 if name in ("unbind", "unstack") else 1, 0)
        count = self.part_count(name, node, arguments, keywords)
        columns: list[list[Atom]] = [[] for _ in range(count)]
        for atom in base:
            if isinstance(atom, Flag):
                continue
            tensor = self.as_tensor(atom)
            if tensor is None or axis is None:
                return (self.fresh(node),)
            tensor = settle(tensor, self.book.ranks)
            if axis >= 0 and tensor.lead is not None:
                tensor = self.assume_projection(tensor, axis)
            for number in range(count):
                piece = (
                    layout.remove(tensor, axis)
                    if name in ("unbind", "unstack")
                    else self.piece(node, tensor, axis, number)
                )
                if piece is None and axis == 0 and count == 2 and tensor.tags & {"past", "kv"} == tensor.tags:
                    half = f"{tensor.name}[{number}]"
                    tags = frozenset({"past", "value" if number else "key"}) if "past" in tensor.tags else frozenset()
                    columns[number].append(Obj(self.key(node, f"part{number}"), half, tags))
                    continue
                columns[number].append(piece if piece is not None else Obj(self.key(node, f"part{number}")))
        return (Items(tuple(tuple(column) for column in columns)),)

    def assume_projection(self, tensor: Tensor, axis: int) -> Tensor:
        """``qkv.split(size, dim=2)``: the last axis of three."""
        if tensor.lead is not None and len(tensor.axes) == 1 and tensor.lead.key != "?" and axis == 2:
            self.book.set_rank(tensor.lead.key, tensor.lead.drop + 2)
            self.convention(tensor.lead.key)
            return settle(tensor, self.book.ranks)
        return tensor

    def part_count(self, name: str, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> int:
        """How many parts there are; as many as there may be names, where only their size is given."""
        sizes = arguments[0] if arguments else keywords.get("split_size_or_sections", keywords.get("chunks", ()))
        if name == "chunk" or (name == "split" and self.numpy_name(node)):
            number = self.as_int(sizes) if sizes else None
            if number is not None and 1 <= number <= 8:
                return number
        if len(sizes) == 1 and isinstance(sizes[0], Items):
            return len(sizes[0].items)
        target = self.statement
        if isinstance(target, ast.Assign) and isinstance(target.targets[0], (ast.Tuple, ast.List)):
            return len(target.targets[0].elts)
        return 3

    def piece(self, node: ast.Call, tensor: Tensor, index: int, number: int) -> Tensor | None:
        axis = layout.axis_at(tensor, index)
        if axis is None:
            return None
        if len(axis) == 1:
            key = f"{axis[0].key}/{self.key(node)}/{number}"
            if axis[0].kind != "features":
                self.book.same(axis[0].key, key)
            axis = (Factor(key, (1, (key,)), axis[0].kind),)
        else:
            key = f"{self.key(node)}/{number}"
            axis = (Factor(key, (1, (key,))),)
        made = layout.with_axis(tensor, index, axis)
        return None if made is None else replace(made, tags=frozenset(), name="")


def is_plain_object(tensor: Tensor) -> bool:
    """True where nothing but the identity of the tensor is known."""
    return tensor.lead is not None and not tensor.axes and not tensor.lead.drop and tensor.lead.key != "?"
