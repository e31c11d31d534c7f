"""Calls that the layout interpreter understands: tensor operations, projections, functions of the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import ClassVar

from kvlint.analysis import layout
from kvlint.analysis.layout import Dims, Scalar, Tensor, known_factor
from kvlint.analysis.layout_attention import FLASH, PROJECTION, SDPA, LayoutAttention
from kvlint.analysis.layout_eval import EVERY_HEAD, is_none
from kvlint.analysis.layout_joins import STACKS
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE, Strength, role_of
from kvlint.analysis.layout_values import (
    NOTHING,
    Attend,
    Flag,
    Function,
    Items,
    Obj,
    Text,
    Value,
    tags_of,
)
from kvlint.analysis.layout_walk import CALL_DEPTH, Env, join, text_of
from kvlint.nodes import walk

SAME_SHAPE = frozenset(
    [
        "contiguous",
        "to",
        "float",
        "half",
        "bfloat16",
        "double",
        "type",
        "type_as",
        "clone",
        "detach",
        "cuda",
        "cpu",
        "requires_grad_",
        "masked_fill",
        "masked_fill_",
        "dropout",
        "softmax",
        "log_softmax",
        "relu",
        "gelu",
        "silu",
        "tanh",
        "sigmoid",
        "normalize",
        "astype",
        "div",
        "div_",
        "mul",
        "mul_",
        "add",
        "add_",
        "sub",
        "clamp",
        "nan_to_num",
        "copy",
        "asarray",
        "ascontiguousarray",
        "exp",
        "layer_norm",
        "rms_norm",
        "dropout_",
        "int",
        "long",
        "checkpoint_name",
        "with_sharding_constraint",
        "quantize",
        "dequantize",
        "zeros_like",
        "ones_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "full_like",
        "stop_gradient",
        "array",
        "rms_norm_",
        "apply_rope",
        "sqrt",
        "pin_memory",
        "view_as",
        "expand_as_",
    ]
)
CONCAT = frozenset({"cat", "concat", "concatenate"})
TRANSPOSING = frozenset({"transpose_a", "transpose_b", "adjoint_a", "adjoint_b"})
"""Arguments of TensorFlow's matmul that turn an operand round first."""
CREATE = frozenset(
    {"zeros", "ones", "empty", "randn", "rand", "full", "new_zeros", "new_ones", "new_empty", "new_full"}
)
LINEAR = re.compile(r"Linear|Conv1D$|Dense|Projection")
SAME_MODULE = re.compile(
    r"(?i)norm|dropout|rot|rope|identity|act_?fn|quant|^ln|_ln|scale|drop|Identity|sharding|checkpoint|constraint"
)
ROTARY = re.compile(r"(?i)rot|rope|pos_emb|xpos|position_emb|alibi_scale|apply_pos")
HEADS_FIRST, SEQUENCE_FIRST = (BATCH, HEADS, SEQUENCE, HEAD_DIM), (BATCH, SEQUENCE, HEADS, HEAD_DIM)
PROMISED = {
    "_shape": HEADS_FIRST,
    "transpose_for_scores": HEADS_FIRST,
    "_split_heads": HEADS_FIRST,
    "_reshape": SEQUENCE_FIRST,
}
"""Helpers that attention classes of transformers have had under these names, and the axes of what they return."""


class LayoutCalls(LayoutAttention):
    """Evaluates calls."""

    methods: ClassVar[dict[str, Callable[..., Tensor | None]]] = {}

    def eval_Call(self, node: ast.Call, env: Env) -> Value:
        name = text_of(node.func)
        if isinstance(node.func, ast.Attribute) and not self.is_namespace(node.func.value, env):
            return self.method_call(node, name, env)
        if (isinstance(node.func, ast.Name) and node.func.id in env) or (
            isinstance(node.func, ast.Name) and node.func.id in self.module_env and id(node) not in self.elsewhere
        ):
            return self.call_value(node, self.eval(node.func, env), name, env)
        if isinstance(node.func, ast.Name) and node.func.id in self.classes:
            self.arguments(node, env)
            return (Obj(f"{node.func.id}.self", "self"),)
        if isinstance(node.func, ast.Name):
            dotted = self.libraries.get(node.func.id, node.func.id)
            name = dotted.rpartition(".")[2]
        arguments = self.arguments(node, env)
        return self.function_call(node, name, arguments, self.keywords(node, env), env)

    def arguments(self, node: ast.Call, env: Env) -> list[Value]:
        """The positional arguments; a starred tuple is spelt out where its items are known."""
        values: list[Value] = []
        for item in node.args:
            if isinstance(item, ast.Starred):
                inner = self.eval(item.value, env)
                if len(inner) == 1 and isinstance(inner[0], Items):
                    values.extend(inner[0].items)
                elif len(inner) == 1 and isinstance(inner[0], Dims) and inner[0].lead is None:
                    values.extend((scalar,) for scalar in inner[0].items)
                elif len(inner) == 1 and isinstance(inner[0], Dims):
                    values.append(inner)
                else:
                    values.append((self.fresh(item, "*"),))
            else:
                values.append(self.eval(item, env))
        return values

    def keywords(self, node: ast.Call, env: Env) -> dict[str, Value]:
        return {item.arg or "**": self.eval(item.value, env) for item in node.keywords}

    def method_call(self, node: ast.Call, name: str, env: Env) -> Value:
        assert isinstance(node.func, ast.Attribute)
        base = self.eval(node.func.value, env)
        arguments, keywords = self.arguments(node, env), self.keywords(node, env)
        instance = self.instance_class(base[0]) if len(base) == 1 and isinstance(base[0], Obj) else ""
        if instance:
            own = self.own_method(instance, name)
            if own is not None:
                return self.inline(node, own, arguments, keywords, env)
        if len(base) == 1 and isinstance(base[0], Obj) and base[0].name == "self":
            if name == "register_buffer" and len(arguments) > 1 and len(arguments[0]) == 1:
                text = arguments[0][0]
                if isinstance(text, Text):
                    self.store(f"{base[0].key[:-5]}.{text.value}", self.named(text.value, arguments[1]))
                return (self.fresh(node),)
            own = self.own_method(base[0].key[:-5], name)
            if own is not None:
                return self.inline(node, own, arguments, keywords, env)
            promised = self.promised(node, base[0].key[:-5], name, arguments)
            if promised is not None:
                return promised
            return self.module_call(node, base[0].key[:-5], name, arguments, keywords)
        if len(base) == 1 and isinstance(base[0], Obj) and name == "update" and len(arguments) >= 2:
            return self.update_call(node, arguments, keywords)
        if name == "get" and arguments and len(arguments[0]) == 1 and isinstance(arguments[0][0], Text):
            item = arguments[0][0].value
            held = [atom for atom in base if isinstance(atom, Obj)]
            if held and len(held) == len(base):
                return tuple(Obj(f"{atom.key}[{item}]", item, self.tags_in(atom, item)) for atom in held)
        result = self.tensor_method(node, base, name, arguments, keywords)
        if result is not None:
            return result
        if PROJECTION.search(name) or ROTARY.search(name):
            return self.module_call(node, "", name, arguments, keywords)
        if name in SDPA or name in FLASH:
            return self.function_call(node, name, arguments, keywords, env)
        return (self.fresh(node, name if tags_of(name) else ""),)

    def instance_class(self, atom: Obj) -> str:
        """The class of the file that the object is an instance of, or ""."""
        if atom.key.endswith(".self"):
            return atom.key[:-5] if atom.key[:-5] in self.classes else ""
        owner, _, name = atom.key.rpartition(".")
        made = {
            text_of(item.func) if isinstance(item, ast.Call) else "" for item in self.attributes.get((owner, name), ())
        }
        return next(iter(made)) if len(made) == 1 and made <= self.classes.keys() else ""

    def own_method(self, owner: str, name: str) -> Function | None:
        """A method of the class, or of a class of the project that it derives from."""
        seen: set[int] = set()
        queue = [self.classes.get(owner)]
        while queue:
            cls = queue.pop(0)
            if cls is None or id(cls) in seen:
                continue
            seen.add(id(cls))
            for item in cls.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                    static = any(
                        isinstance(deco, ast.Name) and deco.id == "staticmethod" for deco in item.decorator_list
                    )
                    return Function(item, owner, bound=not static)
            queue.extend(self.parents.get(id(cls)) or [self.classes.get(text_of(base)) for base in cls.bases])
        return None

    def promised(self, node: ast.Call, owner: str, name: str, arguments: list[Value]) -> Value | None:
        """What the helpers of attention classes of transformers give, in a class that derives from one."""
        order = PROMISED.get(name)
        cls = self.classes.get(owner)
        if order is None or cls is None or not arguments:
            return None
        bases = [self.libraries.get(text_of(base), "") for base in cls.bases]
        found = next((base for base in bases if base.startswith("transformers.") and "Attention" in base), None)
        if found is None or (name == "_split_heads" and not re.search(r"GPT2Attention|GPTNeoSelfAttention", found)):
            return None
        axes = []
        for index, role in enumerate(order):
            factor = known_factor(self.key(node), index)
            self.book.note(
                factor.key,
                role,
                Strength.STRUCTURE,
                node,
                f"`{name}` of `{found.rpartition('.')[2]}` lays heads out so",
            )
            axes.append((factor,))
        tags = frozenset(tag for atom in arguments[0] for tag in getattr(atom, "tags", ()))
        return (Tensor(None, tuple(axes), tags=tags),)

    def update_call(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``cache.update(k, v, layer)`` of something that is not known to be a transformers cache by these values."""
        part = self.contracts.get(-id(node))
        if part == "update":
            tensors = tuple(
                tuple(tensor for tensor in map(self.as_tensor, value) if tensor is not None) for value in arguments[:2]
            )
            for tensor in (item for found in tensors for item in found):
                if tensor.lead is not None and tensor.axes and tensor.lead.key != "?":
                    self.book.set_rank(tensor.lead.key, 4 - len(tensor.axes) + tensor.lead.drop)
            self.record(Attend(node, "heads-first", "update", tensors, self.statement, self.function))
            return (Items((self.stored("keys", node), self.stored("values", node))),)
        return (self.fresh(node),)

    def module_call(
        self, node: ast.Call, owner: str, name: str, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """``self.k_proj(x)``: a projection keeps the leading axes and gives new features; a norm keeps everything."""
        kind = self.module_kind(owner, name)
        first = arguments[0] if arguments else next(iter(keywords.values()), ())
        if kind == "projection":
            return self.project(node, first, name)
        if ROTARY.search(name) or kind == "rotary":
            return self.rotary(node, arguments, name)
        if kind == "same" and first:
            return first
        return (self.fresh(node, name if tags_of(name) else ""),)

    def module_kind(self, owner: str, name: str) -> str:
        definitions = self.attributes.get((owner, name), [])
        classes = {text_of(item.func) for item in definitions if isinstance(item, ast.Call)}
        if classes:
            if any(LINEAR.search(item) and "Conv2d" not in item for item in classes):
                return "projection"
            if any(item.startswith("Conv") or "conv" in item.lower() for item in classes):
                return "other"
            if all(SAME_MODULE.search(item) for item in classes):
                return "rotary" if any(ROTARY.search(item) for item in classes) else "same"
        if SAME_MODULE.search(name) and not ROTARY.search(name):
            return "same"
        if PROJECTION.search(name):
            return "projection"
        return "other"

    def rotary(self, node: ast.AST, arguments: list[Value], name: str) -> Value:
        """A rotary embedding gives back what it was given: queries and keys, or one of them."""
        rotated = [
            value for value in arguments if any(getattr(atom, "tags", frozenset()) & {"query", "key"} for atom in value)
        ]
        rotated = [value for value in rotated if not any(isinstance(atom, Flag) for atom in value)]
        if len(rotated) == 1:
            return rotated[0]
        if len(rotated) == 2:
            return (Items((rotated[0], rotated[1])),)
        tensors = [value for value in arguments if any(isinstance(atom, Tensor) for atom in value)]
        if len(tensors) == 1 and not any("value" in getattr(atom, "tags", ()) for atom in tensors[0]):
            return tensors[0]
        return (self.fresh(node),)

    def call_value(self, node: ast.Call, callee: Value, name: str, env: Env) -> Value:
        arguments, keywords = self.arguments(node, env), self.keywords(node, env)
        functions = [atom for atom in callee if isinstance(atom, Function)]
        if len(functions) == 1 and len(callee) == 1:
            if ROTARY.search(name):
                return self.rotary(node, arguments, name)
            return self.inline(node, functions[0], arguments, keywords, env)
        if name in SDPA or name in FLASH:
            return self.function_call(node, name, arguments, keywords, env)
        if len(callee) == 1 and isinstance(callee[0], Obj) and arguments:
            owner, _, attribute = callee[0].key.rpartition(".")
            if (owner, attribute) in self.attributes:
                return self.module_call(node, owner, attribute, arguments, keywords)
        if PROJECTION.search(name) and arguments:
            return self.project(node, arguments[0], name)
        if ROTARY.search(name):
            return self.rotary(node, arguments, name)
        return (self.fresh(node, name if tags_of(name) else ""),)

    def inline(
        self, node: ast.Call, function: Function, arguments: list[Value], keywords: dict[str, Value], env: Env
    ) -> Value:
        """Interprets a function of the file for these arguments; only where a tensor or a key or value goes in."""
        worth = any(
            isinstance(atom, Tensor) or (isinstance(atom, Obj) and atom.tags) or isinstance(atom, Function)
            for value in (*arguments, *keywords.values())
            for atom in value
        )
        name = function.node.name if not isinstance(function.node, ast.Lambda) else "lambda"
        if not worth or self.depth >= CALL_DEPTH or self.budget <= 0:
            return (self.fresh(node, name if tags_of(name) else ""),)
        if ROTARY.search(name):
            return self.rotary(node, arguments, name)
        if name == "repeat_kv" and len(arguments) == 2 and repeats_axis_one(function.node):
            return self.repeat_kv(node, arguments)
        several = next(
            (index for index, value in enumerate(arguments) if sum(isinstance(atom, Tensor) for atom in value) > 1),
            None,
        )
        if several is not None:
            parts = []
            for number, atom in enumerate(arguments[several]):
                outer_context = self.context
                self.context = f"{outer_context}#{number}"
                parts.append(
                    self.inline(
                        node, function, [*arguments[:several], (atom,), *arguments[several + 1 :]], keywords, env
                    )
                )
                self.context = outer_context
            return join(*parts)
        self.budget -= 1
        outer = (self.context, self.depth, self.owner, self.target_text, self.in_shared)
        self.context = f"{self.context}>{node.lineno}.{node.col_offset}"
        self.depth += 1
        self.in_shared = self.in_shared or name in self.shared
        self.owner = function.owner or self.owner
        inner: Env = dict(function.env)
        if function.bound or (
            function.owner
            and "self" not in inner
            and function.node.args.args[:1]
            and function.node.args.args[0].arg == "self"
        ):
            inner["self"] = (Obj(f"{self.owner}.self", "self"),)
        self.bind(function, arguments, keywords, inner)
        if isinstance(function.node, ast.Lambda):
            result = self.eval(function.node.body, inner)
        else:
            self.returns.append([])
            self.block(function.node.body, inner)
            returned = self.returns.pop()
            result = self.joined_returns(returned) if returned else NOTHING
        self.context, self.depth, self.owner, self.target_text, self.in_shared = outer
        return result or (self.fresh(node),)

    def joined_returns(self, returned: list[Value]) -> Value:
        """The alternatives of all return statements; tuples of one length are joined item by item."""
        tuples = [value[0] for value in returned if len(value) == 1 and isinstance(value[0], Items)]
        if len(tuples) == len(returned) and len({len(item.items) for item in tuples}) == 1:
            columns = zip(*(item.items for item in tuples), strict=True)
            return (Items(tuple(join(*column) for column in columns)),)
        return join(*returned)

    def bind(self, function: Function, arguments: list[Value], keywords: dict[str, Value], inner: Env) -> None:
        spec = function.node.args
        positional = [*spec.posonlyargs, *spec.args]
        if function.bound and positional and positional[0].arg in ("self", "cls"):
            positional = positional[1:]
        defaults = dict(
            zip([arg.arg for arg in reversed([*spec.posonlyargs, *spec.args])], reversed(spec.defaults), strict=False)
        )
        defaults |= {
            arg.arg: default
            for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if default is not None
        }
        for arg in (*positional, *spec.kwonlyargs):
            inner[arg.arg] = (Obj(f"{self.context}/{arg.arg}", arg.arg, tags_of(arg.arg)),)
        for arg, value in zip(positional, arguments, strict=False):
            inner[arg.arg] = self.named(arg.arg, value) if any(isinstance(atom, Scalar) for atom in value) else value
        given = {arg.arg for arg, _ in zip(positional, arguments, strict=False)}
        for arg in (*positional, *spec.kwonlyargs):
            if arg.arg in keywords:
                inner[arg.arg] = keywords[arg.arg]
            elif arg.arg not in given and arg.arg in defaults:
                inner[arg.arg] = self.eval(defaults[arg.arg], {})
        for rest in (spec.vararg, spec.kwarg):
            if rest is not None:
                inner[rest.arg] = (Obj(f"{self.context}/{rest.arg}", rest.arg),)

    def function_call(
        self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value], env: Env
    ) -> Value:
        """A function of a library."""
        if name in CONCAT or name in STACKS:
            return self.concat(node, name, arguments, keywords, env)
        if name == "stack":
            return self.stack(node, arguments, keywords)
        if name in SDPA or name in FLASH:
            return self.attend(node, name, arguments, keywords)
        if name in ("matmul", "bmm", "baddbmm", "dot") and len(arguments) >= 2:
            if any(keyword.arg in TRANSPOSING for keyword in node.keywords):
                return NOTHING
            pair = arguments[-2:] if name == "baddbmm" else arguments[:2]
            return self.matmul(node, pair[0], pair[1])
        if name == "einsum":
            return self.einsum(node, arguments)
        if (
            name in ("rearrange", "repeat", "reduce")
            and len(arguments) >= 2
            and any(isinstance(atom, Text) for atom in arguments[1])
        ):
            return self.einops(node, name, arguments, keywords)
        if name == "linear" and len(arguments) >= 2:
            weight = node.args[1] if len(node.args) > 1 else node
            return self.project(node, arguments[0], text_of(weight))
        if name in CREATE:
            return self.create(node, arguments, keywords)
        if name in ("map",) and len(arguments) == 2:
            return self.map_call(node, arguments, env)
        if name in ("tuple", "list") and len(arguments) == 1:
            return arguments[0]
        if name == "zip":
            return (
                (
                    Items(
                        (
                            (
                                (
                                    Items(
                                        tuple(
                                            self.item_of(value, item)
                                            for value, item in zip(arguments, node.args, strict=False)
                                        )
                                    )
                                ),
                            ),
                        )
                    ),
                )
                if arguments
                else NOTHING
            )
        if name == "enumerate" and arguments:
            return (Items(((Items(((self.fresh(node, "index"),), self.item_of(arguments[0], node.args[0]))),),)),)
        if name == "reversed" and arguments:
            return arguments[0]
        if name in ("int", "max", "min", "float") and arguments:
            scalar = self.as_scalar(arguments[0]) if len(arguments) == 1 else None
            return (scalar,) if scalar is not None else (self.fresh(node),)
        if name == "len" and arguments:
            return self.length_of(node, arguments[0])
        if name == "getattr" and len(arguments) >= 2:
            return self.getattr_call(node, arguments)
        if name in ("isinstance", "hasattr", "print", "range"):
            return (self.fresh(node),)
        if name == "arange" and len(arguments) == 1:
            heads = self.as_scalar(arguments[0])
            if heads is not None and role_of(heads) == KV_HEADS:
                return (Obj(self.key(node), "", frozenset({EVERY_HEAD})),)
            return (self.fresh(node),)
        if name == "repeat_kv" and len(arguments) >= 2:
            return self.repeat_kv(node, arguments)
        if arguments and name not in ("Parameter",):
            numpy_style = self.numpy_name(node)
            result = self.tensor_method(node, arguments[0], name, arguments[1:], keywords, numpy_style)
            if result is not None:
                return result
        if ROTARY.search(name):
            return self.rotary(node, arguments, name)
        if PROJECTION.search(name) and len(name) > 3 and arguments and not keywords:
            return self.project(node, arguments[0], name)
        return (self.fresh(node, name if tags_of(name) else ""),)

    def repeat_kv(self, node: ast.Call, arguments: list[Value]) -> Value:
        """``repeat_kv(k, n)`` of transformers: each element of axis 1 n times."""
        count = self.as_scalar(arguments[1])
        number = node.args[1] if len(node.args) > 1 else None

        def change(tensor: Tensor) -> Tensor | None:
            if tensor.rank != 4:
                return None
            self.expansion(node, None, 1, tensor, "interleaved", count, number, "repeat_kv")
            return layout.interleaved(tensor, 1, self.copies(node, count, "repeat_kv"))

        return self.map_tensors(arguments[0], node, change)

    def map_call(self, node: ast.Call, arguments: list[Value], env: Env) -> Value:
        function, items = arguments
        if len(function) == 1 and isinstance(function[0], Function) and len(items) == 1 and isinstance(items[0], Items):
            results = []
            for position, item in enumerate(items[0].items):
                outer = self.context
                self.context = f"{outer}#{position}"
                results.append(self.inline(node, function[0], [item], {}, env))
                self.context = outer
            return (Items(tuple(results)),)
        return (self.fresh(node),)

    def length_of(self, node: ast.Call, value: Value) -> Value:
        if len(value) == 1 and isinstance(value[0], Items):
            return (Scalar((len(value[0].items), ())),)
        if len(value) == 1 and isinstance(value[0], Dims) and value[0].lead is None:
            return (Scalar((len(value[0].items), ())),)
        if len(value) == 1 and isinstance(value[0], Dims) and value[0].lead is not None:
            lead = value[0].lead
            rank = self.book.ranks.get(lead.key)
            if rank is None and len(value[0].items) == 2 and lead.key != "?":
                self.book.set_rank(lead.key, lead.drop + 2)
                self.convention(lead.key)
                rank = lead.drop + 2
            if rank is not None:
                return (Scalar((rank - value[0].lead.drop + len(value[0].items), ())),)
        return (self.fresh(node),)

    def getattr_call(self, node: ast.Call, arguments: list[Value]) -> Value:
        name = arguments[1][0].value if len(arguments[1]) == 1 and isinstance(arguments[1][0], Text) else ""
        base = arguments[0][0] if len(arguments[0]) == 1 else None
        if name and isinstance(base, Obj):
            return (Obj(f"{base.key}.{name}", name, tags_of(name)),)
        return (self.fresh(node, name),)

    def tensor_method(
        self,
        node: ast.Call,
        base: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        numpy_style: bool = False,
    ) -> Value | None:
        """The result of a tensor method, or None where *name* is none that is known."""
        if name in SAME_SHAPE:
            return base if base else None
        if name in ("size", "shape") and not keywords:
            return self.size_call(node, base, arguments)
        if name in ("dim", "ndimension") and not arguments:
            return self.rank_of(base, node)
        handler = self.methods.get(name)
        if handler is None:
            return None
        changed = lambda tensor: handler(self, node, tensor, arguments, keywords)  # noqa: E731
        if name == "transpose" and (
            numpy_style or len(arguments) >= 3 or (len(arguments) == 1 and self.shape_argument(arguments) is not None)
        ):
            changed = lambda tensor: self.op_permute(node, tensor, arguments, keywords)  # noqa: E731
        if name == "repeat" and numpy_style:
            changed = lambda tensor: self.op_repeat_interleave(node, tensor, arguments, keywords)  # noqa: E731
        if name in ("chunk", "split", "unbind", "tensor_split", "array_split", "unstack"):
            return self.parts(node, base, name, arguments, keywords)
        return self.map_tensors(base, node, changed)

    def size_call(self, node: ast.Call, base: Value, arguments: list[Value]) -> Value:
        if not arguments:
            return self.shapes(base) or (self.fresh(node),)
        index = self.as_int(arguments[0])
        results: list[Value] = []
        for atom in base:
            tensor = self.as_tensor(atom)
            if tensor is not None and index is not None:
                results.append((self.size_at(tensor, index, node),))
        return join(*results) or (self.fresh(node),)


def repeats_axis_one(node: ast.AST) -> bool:
    """True for the body that ``repeat_kv`` has everywhere: ``x[:, :, None, :, :].expand(...)``."""
    return any(
        isinstance(item, ast.Subscript)
        and isinstance(item.slice, ast.Tuple)
        and len(item.slice.elts) >= 3
        and all(isinstance(entry, ast.Slice) for entry in item.slice.elts[:2])
        and is_none(item.slice.elts[2])
        for item in walk(node)
    )


LayoutCalls.methods = {
    "transpose": LayoutCalls.op_transpose,
    "transpose_": LayoutCalls.op_transpose,
    "swapaxes": LayoutCalls.op_transpose,
    "swapdims": LayoutCalls.op_transpose,
    "permute": LayoutCalls.op_permute,
    "movedim": LayoutCalls.op_move,
    "moveaxis": LayoutCalls.op_move,
    "view": LayoutCalls.op_reshape,
    "reshape": LayoutCalls.op_reshape,
    "unflatten": LayoutCalls.op_unflatten,
    "flatten": LayoutCalls.op_flatten,
    "unsqueeze": LayoutCalls.op_unsqueeze,
    "expand_dims": LayoutCalls.op_unsqueeze,
    "squeeze": LayoutCalls.op_squeeze,
    "select": LayoutCalls.op_select,
    "narrow": LayoutCalls.op_narrow,
    "index_select": LayoutCalls.op_index_select,
    "index_copy": LayoutCalls.op_write,
    "index_copy_": LayoutCalls.op_write,
    "slice_scatter": LayoutCalls.op_write,
    "expand": LayoutCalls.op_expand,
    "broadcast_to": LayoutCalls.op_expand,
    "repeat": LayoutCalls.op_repeat,
    "tile": LayoutCalls.op_repeat,
    "repeat_interleave": LayoutCalls.op_repeat_interleave,
    "chunk": LayoutCalls.op_select,
    "split": LayoutCalls.op_select,
    "unbind": LayoutCalls.op_select,
    "tensor_split": LayoutCalls.op_select,
    "array_split": LayoutCalls.op_select,
    "unstack": LayoutCalls.op_select,
}
