"""Calls that the layout interpreter understands: tensor operations, projections, attention functions, local functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvlint.analysis import layout
from kvlint.analysis.layout import Axis, Dims, Factor, Scalar, Tensor, known_factor, settle
from kvlint.analysis.layout_einops import Pattern, parse_pattern
from kvlint.analysis.layout_eval import LayoutEval, axis_scalar, part_of
from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE, Strength, is_heads, roles_of
from kvlint.analysis.layout_values import (
    FUSED_NAME,
    NOTHING,
    Append,
    Atom,
    Attend,
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
from kvlint.analysis.layout_walk import CALL_DEPTH, Env, join, text_of

SAME_SHAPE = frozenset(
    ["contiguous", "to", "float", "half", "bfloat16", "double", "type", "type_as", "clone", "detach", "cuda", "cpu", "requires_grad_", "masked_fill", "masked_fill_", "dropout", "softmax", "log_softmax", "relu", "gelu", "silu", "tanh", "sigmoid", "normalize", "astype", "div", "div_", "mul", "mul_", "add", "add_", "sub", "clamp", "nan_to_num", "copy", "asarray", "ascontiguousarray", "exp", "layer_norm", "rms_norm", "dropout_", "int", "long", "checkpoint_name", "with_sharding_constraint", "quantize", "dequantize", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like", "stop_gradient", "array", "rms_norm_", "apply_rope", "sqrt", "pin_memory", "view_as", "expand_as_"]
)
NAMESPACES = frozenset({"torch", "np", "numpy", "jnp", "mx", "F", "functional", "einops", "tnp", "nn", "jax", "mlx", "ops", "lax", "tf", "ms", "paddle"})
CONCAT = frozenset({"cat", "concat", "concatenate"})
STACKS = {"hstack": 1, "vstack": 0, "dstack": 2, "column_stack": 1, "row_stack": 0}
CREATE = frozenset({"zeros", "ones", "empty", "randn", "rand", "full", "new_zeros", "new_ones", "new_empty", "new_full"})
PROJECTION = re.compile(
    r"(?i)(?:^|_)(?:[qkv]{1,3}|query|key|value|keys|values|queries|query_key_value|key_value|kqv)(?:_?(?:proj|projection|linear|layer|lin|net|dense|map|fc|weight|embed|a|b|head))?s?$"
    r"|^(?:to_?[qkv]{1,3}|w_?[qkv]{1,3}|c_attn|in_proj|query_key_value|qkv_proj|kv_proj|attn_qkv|Wqkv|[qkv]_lin|q_attn|wkv)$"
)
LINEAR = re.compile(r"Linear|Conv1D$|Dense|Projection")
SAME_MODULE = re.compile(r"(?i)norm|dropout|rot|rope|identity|act_?fn|quant|^ln|_ln|scale|drop|Identity|sharding|checkpoint|constraint")
ROTARY = re.compile(r"(?i)rot|rope|pos_emb|xpos|position_emb|alibi_scale|apply_pos")
NEW_NAME = re.compile(r"(?i)new|cur|step|tok|next|now|latest|_t$|_i$|\d$|last|append|incoming|this|chunk|(?:^|_)one(?:_|$)")
"""Names of what is added to keys or values under their own name (``k = cat([k, k_new])``)."""
HEADS_FIRST, SEQUENCE_FIRST = (BATCH, HEADS, SEQUENCE, HEAD_DIM), (BATCH, SEQUENCE, HEADS, HEAD_DIM)
PROMISED = {"_shape": HEADS_FIRST, "transpose_for_scores": HEADS_FIRST, "_split_heads": HEADS_FIRST, "_reshape": SEQUENCE_FIRST}
"""Helpers that attention classes of transformers have had under these names, and the axes of what they return."""
SDPA = frozenset({"scaled_dot_product_attention", "sdpa", "scaled_dot_product_attention_mlx"})
FLASH = frozenset({"flash_attn_func", "memory_efficient_attention"})


class LayoutOps(LayoutEval):
    """Evaluates calls."""

    def eval_Call(self, node: ast.Call, env: Env) -> Value:
        name = text_of(node.func)
        if isinstance(node.func, ast.Attribute) and not self.is_namespace(node.func.value, env):
            return self.method_call(node, name, env)
        if (isinstance(node.func, ast.Name) and node.func.id in env) or (isinstance(node.func, ast.Name) and node.func.id in self.module_env):
            return self.call_value(node, self.eval(node.func, env), name, env)
        if isinstance(node.func, ast.Name):
            dotted = self.libraries.get(node.func.id, node.func.id)
            name = dotted.rpartition(".")[2]
        arguments = self.arguments(node, env)
        return self.function_call(node, name, arguments, self.keywords(node, env), env)

    def is_namespace(self, node: ast.expr, env: Env) -> bool:
        """True for ``torch``, ``torch.nn.functional``, ``F``, ``np`` and the like."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id in env:
            return False
        return node.id in self.libraries or node.id in NAMESPACES

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

    # -- methods ----------------------------------------------------------------------------------------------------

    def method_call(self, node: ast.Call, name: str, env: Env) -> Value:
        assert isinstance(node.func, ast.Attribute)
        base = self.eval(node.func.value, env)
        arguments, keywords = self.arguments(node, env), self.keywords(node, env)
        if len(base) == 1 and isinstance(base[0], Obj) and base[0].name == "self":
            own = self.own_method(base[0].key[:-5], name)
            if own is not None:
                return self.inline(node, own, arguments, keywords, env)
            promised = self.promised(node, base[0].key[:-5], name, arguments)
            if promised is not None:
                return promised
            return self.module_call(node, base[0].key[:-5], name, arguments, keywords)
        if len(base) == 1 and isinstance(base[0], Obj) and name == "update" and len(arguments) >= 2:
            return self.update_call(node, arguments, keywords)
        result = self.tensor_method(node, base, name, arguments, keywords)
        if result is not None:
            return result
        if PROJECTION.search(name) or ROTARY.search(name):
            return self.module_call(node, "", name, arguments, keywords)
        if name in SDPA or name in FLASH:
            return self.function_call(node, name, arguments, keywords, env)
        return (self.fresh(node, name if tags_of(name) else ""),)

    def own_method(self, owner: str, name: str) -> Function | None:
        """A method of the class, or of a class of the same file that it derives from."""
        seen: set[str] = set()
        queue = [owner]
        while queue:
            current = queue.pop(0)
            cls = self.classes.get(current)
            if cls is None or current in seen:
                continue
            seen.add(current)
            for item in cls.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                    static = any(isinstance(deco, ast.Name) and deco.id == "staticmethod" for deco in item.decorator_list)
                    return Function(item, owner, bound=not static)
            queue.extend(text_of(base) for base in cls.bases)
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
            self.book.note(factor.key, role, Strength.STRUCTURE, node, f"`{name}` of `{found.rpartition('.')[2]}` lays heads out so")
            axes.append((factor,))
        tags = frozenset(tag for atom in arguments[0] for tag in getattr(atom, "tags", ()))
        return (Tensor(None, tuple(axes), tags=tags),)

    def update_call(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``cache.update(k, v, layer)`` of something that is not known to be a transformers cache by these values."""
        part = self.contracts.get(-id(node))
        if part == "update":
            tensors = tuple(tuple(tensor for tensor in map(self.as_tensor, value) if tensor is not None) for value in arguments[:2])
            self.record(Attend(node, "heads-first", "update", tensors, self.statement, self.function))
            return (Items((self.stored("keys", node), self.stored("values", node))),)
        return (self.fresh(node),)

    def module_call(self, node: ast.Call, owner: str, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
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

    def rotary(self, node: ast.AST, arguments: list[Value], name: str) -> Value:
        """A rotary embedding gives back what it was given: queries and keys, or one of them."""
        rotated = [value for value in arguments if any(getattr(atom, "tags", frozenset()) & {"query", "key"} for atom in value)]
        rotated = [value for value in rotated if not any(isinstance(atom, Flag) for atom in value)]
        if len(rotated) == 1:
            return rotated[0]
        if len(rotated) == 2:
            return (Items((rotated[0], rotated[1])),)
        tensors = [value for value in arguments if any(isinstance(atom, Tensor) for atom in value)]
        if len(tensors) == 1 and not any("value" in getattr(atom, "tags", ()) for atom in tensors[0]):
            return tensors[0]
        return (self.fresh(node),)

    # -- functions --------------------------------------------------------------------------------------------------

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

    def inline(self, node: ast.Call, function: Function, arguments: list[Value], keywords: dict[str, Value], env: Env) -> Value:
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
        several = next((index for index, value in enumerate(arguments) if sum(isinstance(atom, Tensor) for atom in value) > 1), None)
        if several is not None:
            parts = []
            for number, atom in enumerate(arguments[several]):
                outer_context = self.context
                self.context = f"{outer_context}#{number}"
                parts.append(self.inline(node, function, [*arguments[:several], (atom,), *arguments[several + 1 :]], keywords, env))
                self.context = outer_context
            return join(*parts)
        self.budget -= 1
        outer = (self.context, self.depth, self.owner, self.target_text)
        self.context = f"{self.context}>{node.lineno}.{node.col_offset}"
        self.depth += 1
        self.owner = function.owner or self.owner
        inner: Env = dict(function.env)
        if function.bound or (function.owner and "self" not in inner and function.node.args.args[:1] and function.node.args.args[0].arg == "self"):
            inner["self"] = (Obj(f"{self.owner}.self", "self"),)
        self.bind(function, arguments, keywords, inner)
        if isinstance(function.node, ast.Lambda):
            result = self.eval(function.node.body, inner)
        else:
            self.returns.append([])
            self.block(function.node.body, inner)
            returned = self.returns.pop()
            result = self.joined_returns(returned) if returned else NOTHING
        self.context, self.depth, self.owner, self.target_text = outer
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
        defaults = dict(zip([arg.arg for arg in reversed([*spec.posonlyargs, *spec.args])], reversed(spec.defaults), strict=False))
        defaults |= {arg.arg: default for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is not None}
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

    def function_call(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value], env: Env) -> Value:
        """A function of a library."""
        if name in CONCAT or name in STACKS:
            return self.concat(node, name, arguments, keywords, env)
        if name == "stack":
            return self.stack(node, arguments, keywords)
        if name in SDPA or name in FLASH:
            return self.attend(node, name, arguments, keywords)
        if name in ("matmul", "bmm", "baddbmm", "dot") and len(arguments) >= 2:
            pair = arguments[-2:] if name == "baddbmm" else arguments[:2]
            return self.matmul(node, pair[0], pair[1])
        if name == "einsum":
            return self.einsum(node, arguments)
        if name in ("rearrange", "repeat", "reduce") and len(arguments) >= 2 and any(isinstance(atom, Text) for atom in arguments[1]):
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
            return (Items((((Items(tuple(self.item_of(value, item) for value, item in zip(arguments, node.args, strict=False)))),),)),) if arguments else NOTHING
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
        if name == "repeat_kv" and len(arguments) >= 2:
            return (self.fresh(node, text_of(node.args[0])),)
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

    def numpy_name(self, node: ast.Call) -> bool:
        root: ast.AST = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        dotted = self.libraries.get(name, name)
        return dotted.split(".")[0] in ("numpy", "np", "jnp", "jax", "mx", "mlx", "tf", "tensorflow")

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

    # -- tensor operations ------------------------------------------------------------------------------------------

    def tensor_method(
        self, node: ast.Call, base: Value, name: str, arguments: list[Value], keywords: dict[str, Value], numpy_style: bool = False
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
        if name == "transpose" and (numpy_style or len(arguments) >= 3 or (len(arguments) == 1 and self.shape_argument(arguments) is not None)):
            changed = lambda tensor: self.op_permute(node, tensor, arguments, keywords)  # noqa: E731
        if name == "repeat" and numpy_style:
            changed = lambda tensor: self.op_repeat_interleave(node, tensor, arguments, keywords)  # noqa: E731
        if name in ("chunk", "split", "unbind", "tensor_split", "array_split", "unstack"):
            return self.parts(node, base, name, arguments, keywords)
        return self.map_tensors(base, node, changed)

    def shape_argument(self, arguments: list[Value]) -> Dims | None:
        if len(arguments) == 1 and len(arguments[0]) == 1:
            return self.as_shape(arguments[0][0]) if isinstance(arguments[0][0], (Dims, Items)) else None
        return None

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
        if arguments and len(arguments[0]) == 1 and isinstance(arguments[0][0], Dims) and arguments[0][0].lead is not None:
            rest = [self.as_scalar(value) for value in arguments[1:]]
            if all(item is not None for item in rest):
                return Dims(arguments[0][0].lead, (*arguments[0][0].items, *(item for item in rest if item is not None)))
            return None
        scalars = [self.as_scalar(value) for value in arguments]
        if not scalars or any(item is None for item in scalars):
            return None
        return Dims(None, tuple(item for item in scalars if item is not None))

    def axis_argument(self, arguments: list[Value], keywords: dict[str, Value], position: int, default: int | None = None) -> int | None:
        for name in ("dim", "axis"):
            if name in keywords:
                return self.as_int(keywords[name])
        if len(arguments) > position:
            return self.as_int(arguments[position])
        return default

    def op_transpose(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
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
        self.book.note(known_factor(key, 0).key, BATCH, Strength.CONVENTION, None, "hidden states are [batch, sequence, features]")
        self.book.note(known_factor(key, 1).key, SEQUENCE, Strength.CONVENTION, None, "hidden states are [batch, sequence, features]")

    def op_permute(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
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

    def op_move(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        axes = self.numbers(arguments)
        return layout.move(tensor, axes[0], axes[1]) if axes is not None and len(axes) == 2 else None

    def op_unsqueeze(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        return layout.insert(tensor, index) if index is not None else None

    def op_squeeze(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        axis = layout.axis_at(tensor, index)
        return layout.remove(tensor, index) if axis is not None and axis == () else None

    def op_select(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        return layout.remove(tensor, index) if index is not None else None

    def op_narrow(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        if tensor.tags & {"key", "value", "kv"} and len(node.args) >= 2:
            bound = " ".join(ast.unparse(item) for item in node.args[1:])
            self.record(Cut(node, self.axis_node(node, 0), index, (tensor,), "narrow", bound, self.statement, self.function))
        return self.resized(tensor, index)

    def op_index_select(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        index = self.axis_argument(arguments, keywords, 0)
        if index is None:
            return None
        if tensor.tags & {"key", "value", "kv", "past"}:
            offset = 1 if not isinstance(node.func, ast.Attribute) or len(node.args) == 3 else 0
            bound = " ".join(ast.unparse(item) for item in node.args[1 + offset :])
            self.record(Cut(node, self.axis_node(node, offset), index, (tensor,), "reorder", bound, self.statement, self.function))
        return self.resized(tensor, index)

    def resized(self, tensor: Tensor, index: int) -> Tensor | None:
        axis = layout.axis_at(tensor, index)
        if axis is None:
            return None
        if len(axis) != 1:
            key = "+".join(factor.key for factor in axis) + f"~{tensor.name}@{index}"
            return layout.with_axis(tensor, index, (Factor(key, (1, (key,))),))
        return layout.with_axis(tensor, index, (self.cut_factor(axis[0]),))

    def axis_node(self, node: ast.Call, position: int) -> ast.expr | None:
        for keyword in node.keywords:
            if keyword.arg in ("dim", "axis"):
                return keyword.value
        return node.args[position] if len(node.args) > position else None

    def op_flatten(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
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
        return replace(tensor, axes=(*tensor.axes[:low], merged, *tensor.axes[high + 1 :]))

    def op_unflatten(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
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

    # -- view and reshape -------------------------------------------------------------------------------------------

    def op_reshape(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        targets = self.targets(arguments or [keywords[name] for name in ("shape", "newshape", "size") if name in keywords])
        if targets is None:
            return None
        if targets.lead is not None and targets.lead.key in self.book.ranks:
            count = self.book.ranks[targets.lead.key] - targets.lead.drop
            front = tuple(self.scalar_of_axis(targets.lead.key, index) for index in range(max(count, 0)))
            targets = Dims(None, front + targets.items)
        if targets.lead is not None:
            return self.reshape_behind(node, tensor, targets)
        if tensor.lead is not None and tensor.axes and tensor.lead.key != "?" and len(targets.items) >= 4 - (len(tensor.axes) - 1):
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
        inner = self.split_axes(node, Tensor(None, behind), list(targets.items)) if behind is not None and len(behind) else None
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
        parts = [axis for axis in result.axes if len(axis) == 1 and any(axis[0].key.startswith(key + "/") for key in features)]
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
        if len(wanted) == 4 and (roles[0] == SEQUENCE or roles[1] == BATCH) and not (roles[0] == SEQUENCE and roles[1] == BATCH):
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

    def note_roles(self, node: ast.AST, axes: Sequence[Axis], items: Sequence[Scalar], roles: Sequence[str | None]) -> None:
        text = ", ".join(described(item) for item in items)
        for axis, role in zip(axes, roles, strict=False):
            if role in (BATCH, SEQUENCE, HEADS, KV_HEADS, HEAD_DIM):
                assert role is not None
                self.book.note_axis(axis, role, Strength.STRUCTURE, node, f"laid out as ({text})")

    def note_parts(self, node: ast.AST, parts: Sequence[Axis], roles: Sequence[str | None]) -> None:
        """A projection split in two is heads times head dim, unless the sizes say otherwise."""
        heads, dim = roles
        if heads is None and (dim is None or dim == HEAD_DIM):
            self.book.note_axis(parts[0], HEADS, Strength.STRUCTURE, node, "the first part of a split projection")
        if dim is None and (heads is None or is_heads(heads)):
            self.book.note_axis(parts[1], HEAD_DIM, Strength.STRUCTURE, node, "the last part of a split projection")

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
                self.record(Expansion(node, None, index, (plain,), order, count, None, "reshape", self.statement, self.function))

    copy_names: dict[str, tuple[str, ...]]

    # -- copies -----------------------------------------------------------------------------------------------------

    def copies(self, node: ast.AST, count: Scalar | None, tag: str) -> Factor:
        key = self.key(node, tag)
        if count is not None:
            names = (*count.names, *(name for item in count.quotient or () for name in ()))
            self.copy_names[key] = names
            self.copy_counts[key] = count
        return Factor(key, count.size if count is not None and count.size[0] > 0 else (1, (key,)), "copies")

    copy_counts: dict[str, Scalar]

    def op_expand(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
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

    def op_repeat(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        """``torch.Tensor.repeat`` and ``tile``."""
        targets = self.targets(arguments or [keywords[name] for name in ("reps", "dims", "repeats") if name in keywords])
        if targets is None or targets.lead is not None:
            return None
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
        return arguments[index] if index < len(arguments) and not any(isinstance(item, ast.Starred) for item in arguments) else None

    def op_repeat_interleave(self, node: ast.Call, tensor: Tensor, arguments: list[Value], keywords: dict[str, Value]) -> Tensor | None:
        axis = self.axis_argument(arguments, keywords, 1)
        count = self.as_scalar(arguments[0]) if arguments else self.as_scalar(keywords["repeats"]) if "repeats" in keywords else None
        if axis is None:
            return None
        offset = 1 if len(node.args) > 1 and self.is_namespace_call(node) else 0
        self.expansion(node, self.axis_node(node, 1 + offset), axis, tensor, "interleaved", count, node.args[offset] if len(node.args) > offset else None, "repeat_interleave")
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
        self.record(Expansion(node, axis_node, axis, (tensor,), order, count, count_node, how, self.statement, self.function))

    # -- joining and parting ----------------------------------------------------------------------------------------

    def concat(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value], env: Env) -> Value:
        operands = arguments[0] if arguments else next((keywords[key] for key in ("tensors", "arrays") if key in keywords), ())
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
        if len(items) >= 2 and nodes and len({ast.unparse(item) for item in nodes}) == 1:
            return self.concat_copies(node, Copies(items[0], (Scalar((len(items), ())),)), axis, axis_node)
        self.note_append(node, axis, axis_node, items, nodes)
        return self.joined_tensor(node, items, axis)

    def target_name(self) -> str:
        return self.target_text.rpartition(".")[2].split("[")[0]

    def operand_nodes(self, node: ast.Call) -> list[ast.expr]:
        first = node.args[0] if node.args else next((item.value for item in node.keywords if item.arg in ("tensors", "arrays")), None)
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

    def note_append(self, node: ast.Call, axis: int, axis_node: ast.expr | None, items: Sequence[Value], nodes: Sequence[ast.expr]) -> None:
        """Records a concatenation of old and new keys or values, and that their axes belong together."""
        if not 2 <= len(items) <= 3:
            return
        tensors = [[tensor for tensor in map(self.as_tensor, value) if tensor is not None] for value in items]
        if any(not found for found in tensors):
            return
        texts = [ast.unparse(item) for item in nodes] if len(nodes) == len(items) else ["" for _ in items]
        past = [index for index, found in enumerate(tensors) if all("past" in tensor.tags for tensor in found)]
        if not past and texts[0] and texts[0] == self.target_text:
            rest = [tensor for found in tensors[1:] for tensor in found]
            if texts[0].startswith("self.") or all(tensor.tags & {"key", "value", "kv"} and NEW_NAME.search(tensor.name) for tensor in rest):
                past = [0]
        if not past and texts[-1] and texts[0].startswith("self.") and not texts[-1].startswith("self."):
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
        self.record(Append(node, axis_node, axis, tuple(new), tuple(old), part, "concatenation", self.statement, self.function))

    def align_tensors(self, left: Tensor, right: Tensor) -> None:
        """Two tensors that are joined: axis by axis the same roles."""
        left, right = settle(left, self.book.ranks), settle(right, self.book.ranks)
        if left.rank is not None and right.rank is None and right.lead is not None and right.lead.key != "?" and not right.axes:
            self.book.set_rank(right.lead.key, left.rank + right.lead.drop)
            right = settle(right, self.book.ranks)
        elif right.rank is not None and left.rank is None and left.lead is not None and left.lead.key != "?" and not left.axes:
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

    def stack(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        axis = self.axis_argument(arguments, keywords, 1, 0)
        operands = arguments[0] if arguments else ()
        if axis is None or len(operands) != 1:
            return (self.fresh(node),)
        if isinstance(operands[0], Copies):
            count = self.as_scalar(operands[0].count)
            return self.map_tensors(operands[0].item, node, lambda tensor: layout.insert(tensor, axis, (self.copies(node, count, "stack"),)))
        if isinstance(operands[0], Items) and operands[0].items:
            key = self.key(node, "stack")
            new = (Factor(key, (len(operands[0].items), ())),)
            return self.map_tensors(operands[0].items[0], node, lambda tensor: layout.insert(tensor, axis, new))
        return (self.fresh(node),)

    def parts(self, node: ast.Call, base: Value, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
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
                piece = layout.remove(tensor, axis) if name in ("unbind", "unstack") else self.piece(node, tensor, axis, number)
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

    # -- attention --------------------------------------------------------------------------------------------------

    def attend(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``scaled_dot_product_attention`` and the flash functions: they say how keys and values are laid out."""
        values = list(arguments[:3])
        for names in (("query", "q"), ("key", "k"), ("value", "v"))[len(values) :]:
            found = next((keywords[item] for item in names if item in keywords), None)
            if found is None:
                break
            values.append(found)
        if len(values) < 3:
            return (self.fresh(node),)
        tensors: list[tuple[Tensor, ...]] = []
        for value in values:
            found_tensors = [settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, value) if tensor is not None]
            tensors.append(tuple(found_tensors))
        wants = "heads-first" if name in SDPA else "sequence-first"
        self.record(Attend(node, wants, name, tuple(tensors), self.statement, self.function))
        note = f"`{name}` takes {'[batch, heads, sequence, head dim]' if name in SDPA else '[batch, sequence, heads, head dim]'}"
        known = {tensor.rank for found_tensors in tensors for tensor in found_tensors if tensor.rank is not None}
        for found_tensors in tensors:
            for tensor in found_tensors:
                if len(known) == 1 and tensor.rank is None and tensor.lead is not None and not tensor.axes and tensor.lead.key != "?":
                    self.book.set_rank(tensor.lead.key, next(iter(known)) + tensor.lead.drop)
                elif name == "flash_attn_func" and tensor.lead is not None and not tensor.axes and tensor.lead.key != "?":
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
                if tensor is not None and tensor.lead is not None and tensor.tags & {"key", "value", "query"} and tensor.lead.key != "?":
                    self.book.set_rank(tensor.lead.key, len(letters) - len(tensor.axes) + tensor.lead.drop)
        if len(inputs) != 2:
            return (self.fresh(node),)
        self.note_einsum(node, inputs, out, operands)
        return (self.fresh(node),)

    def note_einsum(self, node: ast.Call, inputs: list[str], out: str, operands: list[Value]) -> None:
        tensors = [[settle(tensor, self.book.ranks) for tensor in map(self.as_tensor, value) if tensor is not None] for value in operands]
        tags = [frozenset().union(*(tensor.tags for tensor in found)) if found else frozenset() for found in tensors]
        scores = [index for index in (0, 1) if "key" in tags[index] and "query" in tags[1 - index]]
        outputs = [index for index in (0, 1) if "value" in tags[index] and not tags[1 - index] & {"query", "key", "value"}]
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
                            self.book.note_axis(plain_axis(axis), BATCH if shared_seen == 1 else HEADS, Strength.CONSUMER, node, note)

    # -- einops -----------------------------------------------------------------------------------------------------

    def einops(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        text = next(atom.value for atom in arguments[1] if isinstance(atom, Text))
        pattern = parse_pattern(text)
        if pattern is None or name == "reduce":
            return (self.fresh(node),)
        sizes = {key: self.as_scalar(value) for key, value in keywords.items()}
        return self.map_tensors(arguments[0], node, lambda tensor: self.rearrange(node, tensor, pattern, sizes))

    def rearrange(self, node: ast.Call, tensor: Tensor, pattern: Pattern, sizes: dict[str, Scalar | None]) -> Tensor | None:
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
        scalars = [Scalar(item.size, tuple(dict.fromkeys((*item.names, name)))) for item, name in zip(scalars, names, strict=True)]
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

    def split_group(self, node: ast.Call, axis: Axis, group: tuple[str, ...], sizes: dict[str, Scalar | None]) -> dict[str, Axis]:
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

    # -- creation ---------------------------------------------------------------------------------------------------

    def create(self, node: ast.Call, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """``torch.zeros(b, heads, s, head_dim)``."""
        given = arguments[:1] if arguments and len(arguments[0]) == 1 and isinstance(arguments[0][0], (Items, Dims)) else arguments
        targets = self.targets(given or [keywords[name] for name in ("size", "shape") if name in keywords])
        if targets is None or targets.lead is not None or len(targets.items) < 2:
            return (self.fresh(node, self.target_name()),)
        axes = tuple(self.fresh_axis(node, item, index) for index, item in enumerate(targets.items))
        roles = roles_of(list(targets.items))
        self.note_roles(node, axes, targets.items, roles)
        return (Tensor(None, axes),)

    methods: dict[str, Callable[..., Tensor | None]] = {}


LayoutOps.methods = {
    "transpose": LayoutOps.op_transpose,
    "transpose_": LayoutOps.op_transpose,
    "swapaxes": LayoutOps.op_transpose,
    "swapdims": LayoutOps.op_transpose,
    "permute": LayoutOps.op_permute,
    "movedim": LayoutOps.op_move,
    "moveaxis": LayoutOps.op_move,
    "view": LayoutOps.op_reshape,
    "reshape": LayoutOps.op_reshape,
    "unflatten": LayoutOps.op_unflatten,
    "flatten": LayoutOps.op_flatten,
    "unsqueeze": LayoutOps.op_unsqueeze,
    "expand_dims": LayoutOps.op_unsqueeze,
    "squeeze": LayoutOps.op_squeeze,
    "select": LayoutOps.op_select,
    "narrow": LayoutOps.op_narrow,
    "index_select": LayoutOps.op_index_select,
    "expand": LayoutOps.op_expand,
    "broadcast_to": LayoutOps.op_expand,
    "repeat": LayoutOps.op_repeat,
    "tile": LayoutOps.op_repeat,
    "repeat_interleave": LayoutOps.op_repeat_interleave,
    "chunk": LayoutOps.op_select,
    "split": LayoutOps.op_select,
    "unbind": LayoutOps.op_select,
    "tensor_split": LayoutOps.op_select,
    "array_split": LayoutOps.op_select,
    "unstack": LayoutOps.op_select,
}


def plain_axis(axis: Axis | None) -> Axis | None:
    """An axis without the copies in it."""
    if axis is None:
        return None
    others = tuple(factor for factor in axis if factor.kind != "copies")
    return others if len(others) == 1 else axis


def is_plain_object(tensor: Tensor) -> bool:
    """True where nothing but the identity of the tensor is known."""
    return tensor.lead is not None and not tensor.axes and not tensor.lead.drop and tensor.lead.key != "?"


def described(item: Scalar) -> str:
    if item.value is not None:
        return str(item.value)
    return item.names[-1] if item.names else "..."


__all__ = ["LayoutOps", "axis_scalar"]
