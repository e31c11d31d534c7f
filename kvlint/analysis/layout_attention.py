"""Attention itself: what takes queries, keys and values tells how they are laid out."""

from __future__ import annotations

import ast
import re

from kvlint.analysis import layout
from kvlint.analysis.layout import Axis, Factor, Tensor, settle
from kvlint.analysis.layout_joins import LayoutJoins
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, SEQUENCE, Strength
from kvlint.analysis.layout_values import (
    FUSED_NAME,
    Attend,
    Text,
    Value,
)

PROJECTION = re.compile(
    r"(?i)(?:^|_)(?:[qkv]{1,3}|query|key|value|keys|values|queries|query_key_value|key_value|kqv)(?:_?(?:proj|projection|linear|layer|lin|net|dense|map|fc|weight|embed|a|b|head))?s?$"
    r"|^(?:to_?[qkv]{1,3}|w_?[qkv]{1,3}|c_attn|in_proj|query_key_value|qkv_proj|kv_proj|attn_qkv|Wqkv|[qkv]_lin|q_attn|wkv)$"
)
SDPA = frozenset({"scaled_dot_product_attention", "sdpa", "scaled_dot_product_attention_mlx"})
FLASH = frozenset({"flash_attn_func", "flash_attn_with_kvcache", "memory_efficient_attention"})


class LayoutAttention(LayoutJoins):
    """Attention functions, matrix products, einsum."""

    def attend(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``scaled_dot_product_attention`` and the flash functions: they say how keys and values are laid out."""
        values = list(arguments[:3])
        for names in (("query", "q"), ("key", "k"), ("value", "v"))[len(values) :]:
            found = next((keywords[item] for item in names if item in keywords), None)
            if found is None:
                break
            values.append(found)
        if name == "flash_attn_with_kvcache":
            new = [*arguments[3:5], *(keywords[key] for key in ("k", "v") if key in keywords)]
            values = [*arguments[:1], *new] if len(new) == 2 else []
        if len(values) < 3:
            return (self.fresh(node),)
        tensors: list[tuple[Tensor, ...]] = []
        for value in values:
            tensors.append(
                tuple(settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, value) if tensor is not None)
            )
        wants = "heads-first" if name in SDPA else "sequence-first"
        self.record(Attend(node, wants, name, tuple(tensors), self.statement, self.function))
        note = f"`{name}` takes {'[batch, heads, sequence, head dim]' if name in SDPA else '[batch, sequence, heads, head dim]'}"
        known = {tensor.rank for found_tensors in tensors for tensor in found_tensors if tensor.rank is not None}
        for found_tensors in tensors:
            for tensor in found_tensors:
                if (
                    len(known) == 1
                    and tensor.rank is None
                    and tensor.lead is not None
                    and not tensor.axes
                    and tensor.lead.key != "?"
                ):
                    self.book.set_rank(tensor.lead.key, next(iter(known)) + tensor.lead.drop)
                elif (
                    name.startswith("flash_attn_")
                    and tensor.lead is not None
                    and not tensor.axes
                    and tensor.lead.key != "?"
                ):
                    self.book.set_rank(tensor.lead.key, 4 + tensor.lead.drop)
                self.note_wanted(settle(tensor, self.book.ranks), wants, node, note)
        return values[0]

    def note_wanted(self, tensor: Tensor, wants: str, node: ast.AST, note: str) -> None:
        self.book.note_axis(plain_axis(layout.axis_at(tensor, -1)), HEAD_DIM, Strength.CONSUMER, node, note)
        if wants == "heads-first":
            self.book.note_axis(plain_axis(layout.axis_at(tensor, -2)), SEQUENCE, Strength.CONSUMER, node, note)
            if tensor.rank == 4:
                self.book.note_axis(plain_axis(layout.axis_at(tensor, 1)), HEADS, Strength.CONSUMER, node, note)
                self.book.note_axis(plain_axis(layout.axis_at(tensor, 0)), BATCH, Strength.CONSUMER, node, note)
        elif tensor.rank == 4:
            self.book.note_axis(plain_axis(layout.axis_at(tensor, 1)), SEQUENCE, Strength.CONSUMER, node, note)
            self.book.note_axis(plain_axis(layout.axis_at(tensor, 2)), HEADS, Strength.CONSUMER, node, note)
            self.book.note_axis(plain_axis(layout.axis_at(tensor, 0)), BATCH, Strength.CONSUMER, node, note)

    def matmul(self, node: ast.AST, left: Value, right: Value) -> Value:
        """``q @ k.transpose(-1, -2)`` tells the last axes of both; ``x @ w_k`` is a projection."""
        one = [settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, left) if tensor is not None]
        other = [settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, right) if tensor is not None]
        if len(one) == 1 and len(other) == 1:
            queries, keys = one[0], other[0]
            if "query" in queries.tags and "key" in keys.tags:
                note = "queries times keys"
                self.book.note_axis(plain_axis(layout.axis_at(queries, -1)), HEAD_DIM, Strength.CONSUMER, node, note)
                self.book.note_axis(plain_axis(layout.axis_at(keys, -2)), HEAD_DIM, Strength.CONSUMER, node, note)
                self.book.note_axis(plain_axis(layout.axis_at(keys, -1)), SEQUENCE, Strength.CONSUMER, node, note)
                self.book.note_axis(plain_axis(layout.axis_at(queries, -2)), SEQUENCE, Strength.CONSUMER, node, note)
                return (self.fresh(node),)
            name = keys.name
            if "value" in keys.tags and not queries.tags & {"key", "value", "query"} and not PROJECTION.search(name):
                note = "weights times values"
                self.book.note_axis(plain_axis(layout.axis_at(keys, -2)), SEQUENCE, Strength.CONSUMER, node, note)
                self.book.note_axis(plain_axis(layout.axis_at(keys, -1)), HEAD_DIM, Strength.CONSUMER, node, note)
                return (self.fresh(node),)
            if PROJECTION.search(name) or FUSED_NAME.search(name):
                return self.project(node, left, name)
        return (self.fresh(node),)

    def einsum(self, node: ast.Call, arguments: list[Value]) -> Value:
        """``einsum("bhqd,bhkd->bhqk", q, k)``."""
        text = next((value[0].value for value in arguments if len(value) == 1 and isinstance(value[0], Text)), "")
        operands = [value for value in arguments if not (len(value) == 1 and isinstance(value[0], Text))]
        left, arrow, out = text.replace(" ", "").partition("->")
        inputs = left.split(",")
        if not arrow or len(inputs) != len(operands) or "." in text or not 2 <= len(inputs) <= 3:
            return (self.fresh(node),)
        for letters, value in zip(inputs, operands, strict=True):
            for atom in value:
                tensor = self.as_tensor(atom)
                if (
                    tensor is not None
                    and tensor.lead is not None
                    and tensor.tags & {"key", "value", "query"}
                    and tensor.lead.key != "?"
                ):
                    self.book.set_rank(tensor.lead.key, len(letters) - len(tensor.axes) + tensor.lead.drop)
        if len(inputs) != 2:
            return (self.fresh(node),)
        projected = self.einsum_projection(node, inputs, out, operands)
        if projected is not None:
            return projected
        self.note_einsum(node, inputs, out, operands)
        return (self.fresh(node),)

    def einsum_projection(self, node: ast.Call, inputs: list[str], out: str, operands: list[Value]) -> Value | None:
        """``einsum("bsd,dhk->bhsk", x, w)``: hidden states times a weight that holds heads and head dim."""
        states, weight = inputs
        made = [letter for letter in weight if letter not in states]
        summed = [letter for letter in weight if letter in states]
        if (
            len(states) != 3
            or len(summed) != 1
            or summed[0] != states[2]
            or sorted(out) != sorted({*states[:2], *made})
        ):
            return None
        if len(made) != 2 or made[0].lower() not in "hn" or made[1].lower() not in "dhkvpec" or len(operands[0]) != 1:
            return None
        tensor = self.as_tensor(operands[0][0])
        if tensor is None or tensor.open:
            return None
        if tensor.lead is not None and tensor.lead.key != "?":
            self.book.set_rank(tensor.lead.key, 3 - len(tensor.axes) + tensor.lead.drop)
            self.convention(tensor.lead.key)
            tensor = settle(tensor, self.book.ranks)
        if tensor.rank != 3:
            return None
        axes: dict[str, Axis] = dict(zip(states[:2], tensor.axes, strict=False))
        for letter, role in zip(made, (HEADS, HEAD_DIM), strict=True):
            key = self.key(node, letter)
            axes[letter] = (Factor(key, (1, (key,))),)
            self.book.note(
                key, role, Strength.STRUCTURE, node, f"`{letter}` of einsum({f'{states},{weight}->{out}'!r})"
            )
        return (Tensor(None, tuple(axes[letter] for letter in out)),)

    def note_einsum(self, node: ast.Call, inputs: list[str], out: str, operands: list[Value]) -> None:
        tensors = [
            [settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, value) if tensor is not None]
            for value in operands
        ]
        tags = [frozenset().union(*(tensor.tags for tensor in found)) if found else frozenset() for found in tensors]
        scores = [index for index in (0, 1) if "key" in tags[index] and "query" in tags[1 - index]]
        outputs = [
            index for index in (0, 1) if "value" in tags[index] and not tags[1 - index] & {"query", "key", "value"}
        ]
        note = f"einsum({'->'.join((','.join(inputs), out))!r})"
        for index, role_of_contracted in ((scores, HEAD_DIM), (outputs, SEQUENCE)):
            if len(index) != 1:
                continue
            mine, other = inputs[index[0]], inputs[1 - index[0]]
            for tensor in tensors[index[0]]:
                if tensor.rank != len(mine):
                    continue
                shared_seen = 0
                for axis, letter in zip(tensor.axes, mine, strict=True):
                    if letter in other and letter not in out:
                        self.book.note_axis(plain_axis(axis), role_of_contracted, Strength.CONSUMER, node, note)
                    elif letter not in other and letter in out:
                        role = SEQUENCE if role_of_contracted == HEAD_DIM else HEAD_DIM
                        self.book.note_axis(plain_axis(axis), role, Strength.CONSUMER, node, note)
                    elif letter in other and letter in out:
                        shared_seen += 1
                        if len(mine) == 4 and shared_seen <= 2:
                            self.book.note_axis(
                                plain_axis(axis), BATCH if shared_seen == 1 else HEADS, Strength.CONSUMER, node, note
                            )


def plain_axis(axis: Axis | None) -> Axis | None:
    """An axis without the copies in it."""
    if axis is None:
        return None
    others = tuple(factor for factor in axis if factor.kind != "copies")
    return others if len(others) == 1 else axis
