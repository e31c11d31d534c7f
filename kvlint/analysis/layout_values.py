"""The values that the layout interpreter handles, what names say of them, and the places it records."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import lru_cache

from kvlint.analysis.layout import Dims, Scalar, Tensor

MAX_ALTERNATIVES = 4


@dataclass(frozen=True, slots=True)
class Obj:
    """Something of which only the way to it is known: a parameter, an attribute, the result of a call."""

    key: str
    name: str = ""
    tags: frozenset[str] = frozenset()
    quotient: tuple[Scalar, Scalar] | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple or list with known items."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Copies:
    """``[x] * n`` or ``[x for _ in range(n)]``."""

    item: Value
    count: Value


@dataclass(frozen=True, slots=True)
class Text:
    """A string constant."""

    value: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A condition that is known, or None (``None`` is not known to be true: it is false)."""

    value: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function or lambda of the file, with the names around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    owner: str = ""
    bound: bool = False
    env: dict[str, Value] = field(default_factory=dict)


Atom = Tensor | Dims | Scalar | Obj | Items | Copies | Text | Flag | Function
Value = tuple[Atom, ...]

NOTHING: Value = (Flag(None),)

NOT_A_STATE = re.compile(
    r"(?i)mask|len|num|idx|index|bias|scale|pos(?:_|ition|$)|pad|dim|size|heads?$|top_?k|cos|sin|time|loc|grad|loss|param|mel|conv|"
    r"ssm|token|ids?$|bucket|name|config|dtype|device|shape|weight|proj_dim|cls|spec|type|state_dict|_fn$|scores?"
)
KEY_NAME = re.compile(r"^kc$|(?:^|_|\d)(?:k|key|keys|ks|kk)(?:_|\d|$)|^(?:w_?k|to_?k|K\d?)$")
VALUE_NAME = re.compile(r"^vc$|(?:^|_|\d)(?:v|val|value|values|vs|vv)(?:_|\d|$)|^(?:w_?v|to_?v|V\d?)$")
BOTH_NAME = re.compile(r"(?:^|_)(?:kvs?|key_?values?)(?:_|\d|$)|kv_proj|to_kv|^wkv$|(?:^|_)kv_?cache")
QUERY_NAME = re.compile(r"(?:^|_|\d)(?:q|query|queries|qs|qq)(?:_|\d|$)|^(?:w_?q|to_?q|Q\d?)$")
PAST_NAME = re.compile(
    r"(?i)past|cache|prev|prefix|history|saved|stored|buffer|(?:^|_)old(?:_|$)|(?:^|_)mems?(?:_|$)|^[kv]c$|^[kv]_?cache"
)
FUSED_NAME = re.compile(r"(?i)qkv|query_key_value|c_attn|in_proj|wqkv|Wqkv|to_qkv|kqv")


@lru_cache(maxsize=20_000)
def tags_of(name: str) -> frozenset[str]:
    """What a name says a tensor is: key, value, query, past."""
    index = ""
    if name.endswith(("[0]", "[1]", "[-1]", "[-2]")):
        name, _, index = name.rpartition("[")
    name = name.rpartition(".")[2].strip("_")
    tags: set[str] = set()
    if PAST_NAME.search(name) and not NOT_A_STATE.search(name):
        tags.add("past")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    if NOT_A_STATE.search(snake):
        return frozenset(tags)
    lowered = snake if len(snake) < 3 else snake.lower()
    if BOTH_NAME.search(lowered) or (index and "past" in tags):
        if index in ("0]", "-2]"):
            tags.add("key")
        elif index in ("1]", "-1]"):
            tags.add("value")
        else:
            tags |= {"kv"}
    elif not FUSED_NAME.search(lowered):
        for tag, pattern in (("key", KEY_NAME), ("value", VALUE_NAME), ("query", QUERY_NAME)):
            if pattern.search(lowered) or (len(lowered) == 1 and pattern.search(lowered.lower())):
                tags.add(tag)
    return frozenset(tags)


@dataclass(frozen=True, slots=True)
class Append:
    """New keys or values joined to old ones along one axis."""

    node: ast.expr
    axis_node: ast.expr | None
    axis: int
    new: tuple[Tensor, ...]
    old: tuple[Tensor, ...]
    part: str
    how: str
    """concatenation, slice or index_copy_"""
    statement: ast.stmt
    function: ast.AST | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A stored tensor cut to a length, or its rows reordered, on one axis."""

    node: ast.expr
    axis_node: ast.expr | None
    axis: int
    tensors: tuple[Tensor, ...]
    how: str
    """slice, narrow or reorder"""
    bound: str
    statement: ast.stmt
    function: ast.AST | None


@dataclass(frozen=True, slots=True)
class LengthRead:
    """The size of one axis of a key or value tensor taken as a number of tokens."""

    node: ast.expr
    axis_node: ast.expr | None
    axis: int
    tensors: tuple[Tensor, ...]
    name: str
    statement: ast.stmt
    function: ast.AST | None


@dataclass(frozen=True, slots=True)
class Attend:
    """Keys and values handed to something that wants a certain layout."""

    node: ast.Call
    wants: str
    """heads-first (``[B, H, S, D]``) or sequence-first (``[B, S, H, D]``)"""
    name: str
    tensors: tuple[tuple[Tensor, ...], ...]
    statement: ast.stmt
    function: ast.AST | None


@dataclass(frozen=True, slots=True)
class Expansion:
    """Copies of a tensor along one of its axes, for the query heads that share a kv head."""

    node: ast.expr
    axis_node: ast.expr | None
    axis: int
    tensors: tuple[Tensor, ...]
    order: str
    """tiled (the whole axis again and again) or interleaved (each element several times)"""
    count: Scalar | None
    count_node: ast.expr | None
    how: str
    statement: ast.stmt
    function: ast.AST | None


Site = Append | Cut | LengthRead | Attend | Expansion
