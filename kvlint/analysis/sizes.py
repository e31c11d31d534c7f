"""Cache sizes: arithmetic and allocations that count heads, and which heads they count.

Each function is read once, in order. An expression is a *quantity*: the kinds of its factors (layers, query heads, kv
heads, head dim, bytes, ...) whatever the order and association, through local variables. A product that names a cache and
counts query heads or the hidden size is a record; a group ratio that is applied to it later takes it back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from kvlint.analysis.layout_roles import HEAD_DIM, HEADS, KV_HEADS, role_of_name
from kvlint.analysis.layout_walk import text_of
from kvlint.analysis.model_configs import GROUPED_CONFIGS, KnownConfig, named_models
from kvlint.nodes import BLOCKS, any_between, assignment, children, code_of, statements, walk

LAYERS, QUERY_HEADS, KV, DIM, DERIVED_DIM, HIDDEN = (
    "layers",
    "query heads",
    "kv heads",
    "head dim",
    "derived head dim",
    "hidden size",
)
BYTES, TOKENS, GROUP, NOPE, LATENT, NUMBER, OTHER = (
    "bytes",
    "tokens",
    "group",
    "expanded head dim",
    "latent",
    "number",
    "other",
)
DIFFUSION_CONFIGS = ("transformer.config", "unet.config")
"""In a file that names diffusers: models with as many kv heads as query heads, and no name for them."""
WEAK_HEADS = "heads by a bare name"

CACHE_WORD = re.compile(
    r"(?i)(?:^|[^a-z])kvs?(?:[^a-z]|$)|kv_?cache|(?:key|kv).{0,6}value.{0,6}cache|past_key|cache_(?:size|bytes|mem|gb|mb|gib)|[kv]_cache|key_cache|value_cache|kvcache"
)
NOT_A_SIZE = re.compile(r"(?i)flop|param(?!eter)|activation|weight|mlp|attn_?matrix|score|proj|mask|index")
PAST_WORD = re.compile(
    r"(?i)past_key|past_kv|past_k|past_v|key_cache|value_cache|k_cache|v_cache|kv_?cache|cache_[kv]|(?:^|_)pkv"
)
MARK = re.compile(
    r"(?<![a-z])kvs?(?![a-z])|kv_?cache|(?:key|kv).{0,6}value.{0,6}cache|(?:key|value|[kv])_cache|past_(?:key|kv|[kv])"
    r"|cache_(?:size|bytes|mem|gb|mb|gib|[kv])|(?:^|_)pkv|def \w*cache|key_value_heads|register_buffer"
)
"""Either of the two, in lower case and in one line."""
MARK_STEMS = ("kv", "cache", "past_k", "past_v", "key_value_heads", "register_buffer")
LOOSE_CACHE = re.compile(r"(?i)(?:^|[^a-z])(?:kv|caches?|past)(?:[^a-z]|$)|(?<![a-z])(?:KV|kv|Cache|cache)(?=[A-Z_]|$)")
"""A word of a cache alone: enough beside a product that nothing but a cache has."""
PAIRED = (("k", "v"), ("key", "value"), ("keys", "values"), ("k_buf", "v_buf"), ("k_buffer", "v_buffer"))
"""Names of two buffers of one shape that hold keys and values, whatever their class is called."""
LAYER_NAME = re.compile(r"(?i)(?:num|n)_?(?:hidden_|decoder_)?layers?$|^layers?$|^num_blocks$|^depth$|layer_num")
BYTE_NAME = re.compile(r"(?i)byte|itemsize|element_size|dtype_size|precision|^width$|elem_size|dtype_width|bits")
TOKEN_NAME = re.compile(r"(?i)seq|token|len|ctx|context|positions?$|batch|^b$|bsz")
CONFIG_NAME = re.compile(r"(?i)(?:^|_)(?:cfg|conf|config|text_config|hf_config|model_config|text_cfg|llm_config|tc)$")
MAKES_CACHE = re.compile(
    r"(?i)(?:init|make|create|build|alloc|new|empty|prepare|setup|reset|get)\w*?(?:kv_?cache|past_k|key_value|_cache)"
)
"""Names of functions whose buffers are a cache, whatever they are called."""
ANY_CONFIG = frozenset({"AutoConfig", "PretrainedConfig", "PreTrainedConfig"})
OWN_TENSORS = re.compile(r"Module$|Attention$|Layer$|PreTrainedModel$|Block$")
"""Bases of classes that make their keys themselves: they know how many heads those have."""
ALLOCATE = frozenset({"zeros", "empty", "ones", "randn", "rand", "full", "zeros_like", "new_zeros", "new_empty"})
SHAPES = frozenset({"view", "reshape", "unflatten", "zeros", "empty", "ones", "randn"})
PASSED_ON = re.compile(r"past_key_values|\bcache\s*=|DynamicCache|from_legacy_cache")
"""Without one of these no class hands a past to a model."""
STRONG_HEADS = frozenset({"num_attention_heads"})
STRONG_HIDDEN = frozenset({"hidden_size"})


MAX_FACTORS = 64
"""Factors of the largest product that is looked at: a size of a cache has about six."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """The kinds of the factors of a number. *below* are those it is divided by."""

    kinds: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    strong: bool = False
    """The query heads or the hidden size come from fields of a configuration."""
    pending: tuple[int, ...] = ()
    """Records that this number was made by: a group ratio takes them back."""
    node: ast.expr | None = None
    """Where the query heads or the hidden size were read."""
    derived: ast.expr | None = None
    """Where a head dim was derived from the hidden size."""
    numbers: tuple[int, ...] = ()
    beside: str = ""
    """The field of kv heads that stands beside the query heads in the same dict or class, and is not read."""


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """One number or buffer that is sized with the wrong heads. *kind* is heads, hidden, mla or derived."""

    kind: str
    node: ast.expr
    statement: ast.stmt
    subject: str
    reason: str
    factor: str = ""
    evidence: ast.AST | None = None


@dataclass(slots=True)
class Scope:
    """What is known in one function (or in the module's own statements)."""

    node: ast.AST
    name: str
    text: str
    specific: bool
    """The configuration belongs to one model, so what it lacks is right to be left out."""
    about: str
    """Where a known model may be named."""
    env: dict[str, Quantity] = field(default_factory=dict)
    kv_names: list[ast.AST] = field(default_factory=list)
    kv_used: bool = False
    mla: int = 0
    names_cache: bool = False
    names_loosely: bool = False
    """The function or its class has a word of a cache in its name."""
    grouped: str = ""
    """The class of the configuration, where it is one of transformers' with kv heads of its own."""
    configs: set[str] = field(default_factory=set)
    """Names that hold a configuration and do not say so."""
    shapes: dict[str, list[ast.expr]] = field(default_factory=dict)
    """The items of tuples and lists that have a name."""

    @property
    def models(self) -> tuple[KnownConfig, ...]:
        """The known models that are named there."""
        return named_models(self.about)


class SizeReader:
    """Reads the functions of a file."""

    def __init__(self, tree: ast.Module, text: str, specific: bool) -> None:
        self.tree = tree
        self.text = text
        self.lines = text.split("\n")
        self.specific = specific
        self.records: dict[int, SizeRecord] = {}
        self.statement: ast.stmt = tree.body[0] if tree.body else ast.Pass()
        self.class_name = ""
        self._members: dict[tuple[str, str], Quantity | None] = {}
        self._buffers: dict[ast.AST, frozenset[str]] = {}

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the file that do not make keys themselves, by their names."""
        return {
            node.name: node
            for node in statements(self.tree)
            if isinstance(node, ast.ClassDef) and not any(OWN_TENSORS.search(text_of(base)) for base in node.bases)
        }

    @cached_property
    def module_configs(self) -> set[str]:
        """Names of the module that hold a configuration."""
        found: set[str] = set()
        for item in self.tree.body:
            targets, value = assignment(item)
            if value is not None and is_config(value, found):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
        return found

    @cached_property
    def attributes(self) -> dict[str, dict[str, list[tuple[ast.expr | None, ast.AST]]]]:
        """What those classes keep under ``self``: the values that they assign, and where; None for a declared field."""
        found: dict[str, dict[str, list[tuple[ast.expr | None, ast.AST]]]] = {}
        for name, cls in self.classes.items():
            members = found.setdefault(name, {})
            for item in cls.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    members.setdefault(item.target.id, []).append((None, item))
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    for statement in statements(item):
                        targets, value = assignment(statement)
                        pairs = [(target, value) for target in targets]
                        if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
                            pairs = list(zip(targets[0].elts, value.elts, strict=False))
                        for target, given in pairs:
                            if isinstance(target, ast.Attribute) and text_of(target.value) == "self":
                                members.setdefault(target.attr, []).append((given, item))
        return found

    def member(self, name: str) -> Quantity | None:
        """What ``self.name`` counts, where the class takes it from any model's configuration; None where it does not."""
        key = (self.class_name, name)
        if key in self._members:
            return self._members[key]
        self._members[key] = None
        given = self.attributes.get(self.class_name, {}).get(name, [])
        if len(given) == 1 and given[0][0] is not None:
            value, method = given[0]
            assert value is not None and isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
            if not self.is_specific(method):
                scope = Scope(method, "", "", False, "", configs=set(self.module_configs))
                for statement in statements(method):
                    targets, held = assignment(statement)
                    if held is not None and is_config(held, scope.configs):
                        scope.configs |= {target.id for target in targets if isinstance(target, ast.Name)}
                quantity = self.quantity(value, scope)
                strong = quantity.strong and quantity.kinds in ((QUERY_HEADS,), (HIDDEN,))
                if strong or (quantity.kinds == (DERIVED_DIM,) and quantity.derived is not None):
                    self._members[key] = quantity
        return self._members[key]

    @cached_property
    def fields(self) -> dict[str, dict[str, ast.expr | None]]:
        """The fields that are written down in the file."""
        return written_fields(self.tree)

    def run(self) -> list[SizeRecord]:
        """Everything found, in order."""
        marked = marked_lines(self.text)
        for owner, node in functions_of(self.tree) if marked else ():
            if not any_between(marked, node.lineno, node.end_lineno or node.lineno):
                continue
            source = "\n".join(self.lines[node.lineno - 1 : node.end_lineno])
            self.class_name = owner
            docstring = ast.get_docstring(node) or ""
            scope = Scope(node, node.name, source, self.is_specific(node), source, configs=set(self.module_configs))
            scope.names_cache = bool(names_cache(node.name) or names_cache(owner) or names_cache(docstring))
            scope.names_loosely = bool(LOOSE_CACHE.search(node.name) or LOOSE_CACHE.search(owner))
            scope.grouped = grouped_config(node, self.tree)
            for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                scope.env[arg.arg] = self.quantity_of_name(arg.arg, arg, scope, bare=True)
            self.block(node.body, scope)
        module = [
            item
            for item in self.tree.body
            if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
        source = "\n".join("\n".join(self.lines[item.lineno - 1 : item.end_lineno]) for item in module)
        if module and names_cache(source):
            self.class_name = ""
            scope = Scope(self.tree, "", source, self.specific, self.text)
            self.block(module, scope)
        if "num_attention_heads" in self.text:
            if PASSED_ON.search(self.text):
                self.prefix_classes()
            if "head_dim" in self.text and "hidden_size" in self.text:
                self.head_dims_at_hand()
        return [self.records[key] for key in sorted(self.records)]

    def is_specific(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """True where the configuration is annotated with the class of one model."""
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if CONFIG_NAME.search(arg.arg) and arg.annotation is not None:
                name = text_of(arg.annotation) or (
                    arg.annotation.value if isinstance(arg.annotation, ast.Constant) else ""
                )
                if (
                    isinstance(name, str)
                    and name.endswith("Config")
                    and name not in ("PretrainedConfig", "PreTrainedConfig", "AutoConfig", "ModelConfig")
                ):
                    return True
        return self.specific

    # -- statements -------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.statement = statement
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            targets, given = assignment(statement)
            if given is not None:
                self.assign(targets, given, scope)
            elif isinstance(statement, ast.AugAssign):
                name = target_name(statement.target)
                known = scope.env.get(code_of(statement.target), Quantity())
                quantity = self.judge(statement.value, scope, name)
                if isinstance(statement.op, (ast.Div, ast.FloorDiv, ast.Mult)) and set(quantity.kinds) & {KV, GROUP}:
                    self.take_back(known)
                    known = replace(known, pending=())
                if isinstance(statement.op, ast.Mult):
                    known = self.times(known, quantity)
                    part = known.node if known.node is not None else known.derived
                    if part is not None:
                        known = self.consider(part, known, scope, name, in_steps=True)
                elif isinstance(statement.op, (ast.Div, ast.FloorDiv)):
                    known = replace(known, below=(*known.below, *quantity.kinds))
                scope.env[code_of(statement.target)] = known
            elif isinstance(statement, ast.If):
                self.branches(statement, scope)
            elif isinstance(statement, (ast.Return, ast.Expr)) and statement.value is not None:
                self.judge(statement.value, scope, "")
            else:
                for child in children(statement):
                    if isinstance(child, ast.expr):
                        self.judge(child, scope, "")
                for name in ("body", "orelse", "finalbody"):
                    inner = getattr(statement, name, None)
                    if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                        self.block(inner, scope)
                tried = dict(scope.env)
                for handler in getattr(statement, "handlers", ()):
                    self.block(handler.body, scope)
                for name, quantity in tried.items():
                    if KV in quantity.kinds and scope.env[name] is not quantity:
                        scope.env[name] = quantity  # the handler is for a config without kv heads

    def assign(self, targets: Sequence[ast.expr], value: ast.expr, scope: Scope) -> None:
        target = targets[0]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for item, part in zip(target.elts, value.elts, strict=True):
                scope.env[code_of(item)] = self.judge(part, scope, target_name(item))
            return
        quantity = self.judge(value, scope, target_name(target))
        name = target_name(target)
        if isinstance(target, ast.Name):
            scope.configs.discard(target.id)
            scope.shapes.pop(target.id, None)
            if is_config(value, scope.configs):
                scope.configs.add(target.id)
            elif isinstance(value, (ast.Tuple, ast.List)):
                scope.shapes[target.id] = list(value.elts)
        if not quantity.kinds and isinstance(value, (ast.Constant, ast.Call, ast.Subscript)):
            named = self.quantity_of_name(name, target, scope, bare=True)
            quantity = replace(named, numbers=quantity.numbers) if named.kinds and named.kinds != (OTHER,) else quantity
        for item in targets:
            scope.env[code_of(item)] = quantity

    def branches(self, statement: ast.If, scope: Scope) -> None:
        """Both branches; a name that one of them gives the kv heads holds the kv heads."""
        test = ast.unparse(statement.test)
        self.judge(statement.test, scope, "")
        is_mla = bool(re.search(r"deepseek_v[23]|kv_lora_rank|is_mla|use_mla", test)) and not re.search(
            r"^not |is None|not in |!=|== 0", test
        )
        before = dict(scope.env)
        scope.mla += is_mla
        self.block(statement.body, scope)
        scope.mla -= is_mla
        after = scope.env
        scope.env = dict(before)
        self.block(statement.orelse, scope)
        for name, quantity in after.items():
            other = scope.env.get(name)
            if other is None or (KV in quantity.kinds and QUERY_HEADS in other.kinds):
                scope.env[name] = quantity
            elif other is not quantity and before.get(name) is other:
                scope.env[name] = quantity if KV in quantity.kinds or QUERY_HEADS not in quantity.kinds else other

    # -- quantities -------------------------------------------------------------------------------------------------

    def judge(self, node: ast.expr, scope: Scope, target: str) -> Quantity:
        """The quantity of an expression; products in it that size a cache become records."""
        return self.quantity(node, scope, target, top=True)

    def quantity(self, node: ast.expr, scope: Scope, target: str = "", top: bool = False) -> Quantity:
        if isinstance(node, ast.BinOp):
            return self.binary(node, scope, target, top)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self.named(node, scope)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, int) and not isinstance(node.value, bool):
                return Quantity((NUMBER,), numbers=(node.value,))
            return Quantity()
        if isinstance(node, ast.BoolOp):
            return self.either([self.quantity(item, scope) for item in node.values])
        if isinstance(node, ast.IfExp):
            self.quantity(node.test, scope)
            return self.either(
                [self.quantity(node.body, scope, target, top), self.quantity(node.orelse, scope, target, top)]
            )
        if isinstance(node, ast.Call):
            return self.call(node, scope, target, top)
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    self.quantity(part.value, scope, text, top=True)
            return Quantity()
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
                self.quantity(value, scope, name, top=True)
            return Quantity()
        for child in children(node):
            if isinstance(child, ast.expr):
                self.quantity(child, scope, target, top=True)
        return Quantity()

    def either(self, options: list[Quantity]) -> Quantity:
        """``a or b``, ``a if t else b``: the kv heads where one of them is, the config's head dim where one of them is."""
        for kind in (KV, DIM):
            for option in options:
                if option.kinds == (kind,):
                    return option
        known = [option for option in options if option.kinds]
        return known[0] if known else Quantity()

    def named(self, node: ast.expr, scope: Scope) -> Quantity:
        known = scope.env.get(code_of(node))
        name = text_of(node)
        if known is None and isinstance(node, ast.Attribute) and text_of(node.value) == "self" and self.class_name:
            member = self.member(node.attr)
            if member is not None:
                told = self.quantity_of_name(name, node, scope, bare=False)
                return replace(member, node=node, beside=told.beside)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            name = node.slice.value
        elif isinstance(node, ast.Subscript):
            self.quantity(node.value, scope)
            return Quantity()
        if known is not None:
            if KV in known.kinds:
                scope.kv_used = True
            return known
        return self.quantity_of_name(name, node, scope, bare=isinstance(node, ast.Name))

    def quantity_of_name(self, name: str, node: ast.AST, scope: Scope, bare: bool) -> Quantity:
        """The kind that a field or a variable of this name is."""
        expression = node if isinstance(node, ast.expr) else None
        lowered = name.lower()
        if lowered in ("qk_nope_head_dim", "v_head_dim", "qk_head_dim"):
            return Quantity((NOPE,), node=expression)
        if lowered in ("kv_lora_rank", "qk_rope_head_dim"):
            return Quantity((LATENT,))
        role = role_of_name(name)
        if role == KV_HEADS:
            scope.kv_names.append(node)
            return Quantity((KV,))
        if role == HEADS:
            strong = name in STRONG_HEADS and not bare and self.from_config(node, scope)
            holder = self.holder(expression)
            kv_fields = [key for key in holder if role_of_name(key) == KV_HEADS]
            if kv_fields and not any(
                re.search(rf"[.\[('\"]+{re.escape(key)}['\"]?[\]),]|\.{re.escape(key)}\b", scope.text)
                for key in kv_fields
            ):
                return Quantity((QUERY_HEADS,), strong=strong, node=expression, beside=kv_fields[0])
            return Quantity((QUERY_HEADS,), strong=strong, node=expression)
        if role == HEAD_DIM:
            return Quantity((DIM,))
        if lowered in ("hidden_size", "n_embd", "d_model", "hidden_dim", "embed_dim"):
            return Quantity(
                (HIDDEN,), strong=name in STRONG_HIDDEN and not bare and self.from_config(node, scope), node=expression
            )
        if LAYER_NAME.search(name):
            return Quantity((LAYERS,))
        if re.search(r"(?i)key_value_groups|n_rep$|group_size|num_groups|gqa", name):
            return Quantity((GROUP,))
        if BYTE_NAME.search(name):
            return Quantity((BYTES,))
        if TOKEN_NAME.search(name):
            return Quantity((TOKENS,))
        return Quantity((OTHER,))

    def holder(self, node: ast.expr | None) -> Iterable[str]:
        """The fields of what a field is read from: a dict that is written down (also one of dicts), or a class of the file."""
        base = base_of(node) if node is not None else ""
        if base == "self" and isinstance(node, ast.Attribute):
            return self.attributes.get(self.class_name, {})
        if base not in self.fields and isinstance(node, ast.Subscript):
            while isinstance(node, ast.Subscript):
                node = node.value
            base = text_of(node) if node is not None else ""
        return self.fields.get(base, {})

    def from_config(self, node: ast.AST, scope: Scope) -> bool:
        """True for ``config.x``, ``model.config.x``, ``config["x"]``."""
        base = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        if isinstance(node, ast.Call) and node.args:
            base = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
        if base is None or (ast.unparse(base).endswith(DIFFUSION_CONFIGS) and "diffusers" in self.text):
            return False
        return bool(CONFIG_NAME.search(text_of(base))) or (isinstance(base, ast.Name) and base.id in scope.configs)

    def call(self, node: ast.Call, scope: Scope, target: str, top: bool) -> Quantity:
        name = text_of(node.func)
        if name in ("getattr", "get") and node.args:
            keys = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            options = [self.quantity_of_name(key, node, scope, bare=False) for key in keys[:1]]
            options += [self.quantity(item, scope) for item in node.args if not isinstance(item, ast.Constant)]
            return self.either(options)
        if name in ("int", "float", "round", "ceil", "floor", "max", "min", "abs") and node.args:
            return self.either([self.quantity(item, scope, target, top=True) for item in node.args])
        if name == "prod" and len(node.args) == 1:
            result = Quantity()
            for item in items_of(node.args, scope):
                result = self.times(result, self.quantity(item, scope))
            return self.consider(node, result, scope, target, in_steps=True) if top else result
        if name in ALLOCATE and (
            PAST_WORD.search(f"{target} {enclosing_names(self.statement)}")
            or MAKES_CACHE.search(scope.name)
            or (len(items_of(node.args, scope)) == 4 and self.is_paired(target, scope))
        ):
            self.allocation(node, scope, target)
            return Quantity()
        text = " ".join(
            item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)
        )
        if name == "register_buffer" and len(node.args) > 1:
            text = text or target
        for item in node.args:
            self.quantity(item, scope, text or target, top=True)
        for keyword in node.keywords:
            self.quantity(keyword.value, scope, keyword.arg or "", top=True)
        if isinstance(node.func, ast.Attribute):
            self.quantity(node.func.value, scope, target, top=True)
        return Quantity()

    def is_paired(self, target: str, scope: Scope) -> bool:
        """True for a buffer or an attribute called as one of two that hold keys and values, where its fellow is made too."""
        if scope.node not in self._buffers:
            self._buffers[scope.node] = frozenset(made_under(scope.node))
        names = self._buffers[scope.node]
        return any(target in pair and set(pair) <= names for pair in PAIRED)

    def binary(self, node: ast.BinOp, scope: Scope, target: str, top: bool) -> Quantity:
        left, right = self.quantity(node.left, scope, target), self.quantity(node.right, scope, target)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            if top:
                for side, quantity in ((node.left, left), (node.right, right)):
                    self.consider(side, quantity, scope, target)
            if {NOPE, LATENT} >= set(left.kinds + right.kinds) and NOPE in left.kinds + right.kinds:
                return Quantity((NOPE,), node=left.node or right.node)
            if isinstance(node.op, ast.Add) and left.kinds == right.kinds == (LATENT,):
                return Quantity((LATENT,))
            pending = left.pending + right.pending
            return Quantity((OTHER,), pending=pending)
        if isinstance(node.op, ast.Mult):
            result = self.times(left, right)
        elif isinstance(node.op, (ast.Div, ast.FloorDiv)):
            result = self.over(node, left, right)
        else:
            return Quantity((NUMBER,) if set(left.kinds + right.kinds) <= {NUMBER} else (OTHER,))
        for one, other in ((left, right), (right, left)):
            if one.pending and {*other.kinds, *other.below} & {KV, GROUP}:
                self.take_back(one)
            elif one.pending and {*other.kinds} & {QUERY_HEADS, OTHER, NUMBER}:
                self.take_back(one, "none")
        return self.consider(node, result, scope, target) if top else result

    def times(self, left: Quantity, right: Quantity) -> Quantity:
        if len(left.kinds) + len(right.kinds) > MAX_FACTORS:
            return Quantity((OTHER,))
        return Quantity(
            left.kinds + right.kinds,
            left.below + right.below,
            left.strong or right.strong,
            left.pending + right.pending,
            left.node or right.node,
            left.derived or right.derived,
            left.numbers + right.numbers,
            left.beside or right.beside,
        )

    def over(self, node: ast.BinOp, left: Quantity, right: Quantity) -> Quantity:
        if HIDDEN in left.kinds and right.kinds == (QUERY_HEADS,) and left.kinds == (HIDDEN,):
            strong = left.strong and right.strong
            return Quantity((DERIVED_DIM,), strong=False, derived=node if strong else None)
        if QUERY_HEADS in left.kinds and KV in right.kinds and len(left.kinds) == 1:
            return Quantity((GROUP,))
        return Quantity(
            left.kinds,
            left.below + right.kinds,
            left.strong,
            left.pending + right.pending,
            left.node,
            left.derived,
            left.numbers,
            left.beside,
        )

    def take_back(self, quantity: Quantity, kind: str = "") -> None:
        """Forgets the counts of query heads in it (or those of one *kind*): a group ratio was applied. A head dim stays what
        it was derived from."""
        for key in quantity.pending:
            if key in self.records and self.records[key].kind != "derived" and kind in ("", self.records[key].kind):
                del self.records[key]

    # -- verdicts ---------------------------------------------------------------------------------------------------

    def consider(
        self, node: ast.expr, quantity: Quantity, scope: Scope, target: str, in_steps: bool = False
    ) -> Quantity:
        """Records a product that sizes a cache with the wrong heads. *in_steps*: it is not written with ``*``."""
        if not (isinstance(node, ast.BinOp) or in_steps) or quantity.pending:
            return quantity
        kinds = list(quantity.kinds)
        names = f"{target} {scope.name}"
        named = names_cache(target) or scope.names_cache or is_cache_alone(quantity)
        if not named and may_be_cache(quantity):
            named = scope.names_loosely or bool(LOOSE_CACHE.search(target)) or is_printed(target, scope.text)
        if not named or NOT_A_SIZE.search(names):
            return quantity
        if LATENT in kinds and counts_latent_twice(quantity):
            return self.keep("latent", node, quantity, scope, "one latent a token serves keys and values")
        around = sum(kind in kinds for kind in (LAYERS, BYTES, TOKENS)) + (
            2 in quantity.numbers or 4 in quantity.numbers
        )
        if (
            NOPE in kinds
            and (KV in kinds or QUERY_HEADS in kinds)
            and LATENT not in kinds
            and (around or scope.mla or len(kinds) > 3)
        ):
            return self.keep(
                "mla", node, quantity, scope, "keys and values of every head, of a model that caches one latent a token"
            )
        if scope.mla and (KV in kinds or QUERY_HEADS in kinds) and (DIM in kinds or DERIVED_DIM in kinds) and around:
            return self.keep(
                "mla", node, quantity, scope, "keys and values of every head, of a model that caches one latent a token"
            )
        if KV in kinds or GROUP in quantity.below or KV in quantity.below:
            scope.kv_used = True
            if KV in kinds and DERIVED_DIM in kinds and quantity.derived is not None and not scope.specific and around:
                return self.keep("derived", quantity.derived, quantity, scope, "")
            return quantity
        if QUERY_HEADS in quantity.below or GROUP in quantity.below:
            return quantity
        if counts_no_heads(quantity) and not re.search(r"(?i)head", names):
            return self.keep("none", node, quantity, scope, "a cache keeps `head_dim` numbers of each kv head")
        counts_heads = QUERY_HEADS in kinds and (DIM in kinds or DERIVED_DIM in kinds)
        counts_hidden = HIDDEN in kinds and not counts_heads
        if counts_heads or counts_hidden:
            if around < (1 if counts_heads else 2):
                return quantity
            reason, factor = self.reason(quantity, scope)
            if reason:
                return self.keep("heads" if counts_heads else "hidden", node, quantity, scope, reason, factor)
        model = self.numbers_of_model(quantity, scope)
        if model is not None:
            return self.keep(
                "heads",
                node,
                quantity,
                scope,
                f"{model.name} has {model.heads} query and {model.kv_heads} kv heads",
                model.factor,
            )
        return quantity

    def reason(self, quantity: Quantity, scope: Scope) -> tuple[str, str]:
        """Why the number of query heads is known to be the wrong one, and by what factor; ("", "") where it is not."""
        known = [model for model in scope.models if model.kv_heads]
        if scope.models and all(model.kv_heads == model.heads for model in scope.models):
            return "", ""
        grouped = next((model for model in known if model.kv_heads != model.heads), None)
        if grouped is not None and (quantity.strong or QUERY_HEADS in quantity.kinds):
            return f"{grouped.name} has {grouped.heads} query and {grouped.kv_heads} kv heads", grouped.factor
        if scope.grouped and quantity.strong and not scope.kv_names:
            return f"`{scope.grouped}` has `num_key_value_heads`", ""
        if quantity.beside:
            return f"`{quantity.beside}` stands beside them and is not used", ""
        if scope.kv_names and not scope.kv_used and not self.used_elsewhere(scope):
            return "the number of kv heads is at hand and not used", ""
        if quantity.strong and not scope.specific and not scope.kv_names:
            return "a grouped-query model caches `num_key_value_heads` heads", ""
        return "", ""

    def used_elsewhere(self, scope: Scope) -> bool:
        """True where the kv heads of the scope take part in arithmetic, a shape or a call."""
        names = {text_of(node) if isinstance(node, ast.expr) else getattr(node, "arg", "") for node in scope.kv_names}
        for node in walk(scope.node):
            if isinstance(node, (ast.BinOp, ast.Call, ast.Subscript, ast.Compare)):
                for child in children(node):
                    child = child.value if isinstance(child, ast.keyword) else child
                    if (
                        isinstance(child, (ast.Name, ast.Attribute))
                        and text_of(child) in names
                        and not isinstance(node, ast.Call)
                    ):
                        return True
                    if (
                        isinstance(node, ast.Call)
                        and isinstance(child, (ast.Name, ast.Attribute))
                        and child is not node.func
                        and text_of(child) in names
                    ):
                        return True
        return False

    def numbers_of_model(self, quantity: Quantity, scope: Scope) -> KnownConfig | None:
        """The grouped-query model near by whose layers, query heads and head dim are the numbers of the product."""
        if not quantity.numbers or set(quantity.kinds) & {KV, GROUP}:
            return None
        line = self.statement.lineno
        near = "\n".join(self.lines[max(0, line - 6) : (self.statement.end_lineno or line) + 1])
        for model in named_models(f"{near}\n{scope.name}"):
            if not model.kv_heads or model.kv_heads == model.heads:
                continue
            numbers = quantity.numbers
            hidden = is_part(numbers, (model.layers, model.hidden))  # or as many tokens, behind 8 kv heads
            if is_part(numbers, (model.layers, model.heads, model.head_dim)) or (
                hidden and not is_part(numbers, (model.kv_heads, model.head_dim))
            ):
                return model
        return None

    def keep(
        self, kind: str, node: ast.expr, quantity: Quantity, scope: Scope, reason: str, factor: str = ""
    ) -> Quantity:
        subject = "hidden_size" if kind == "hidden" else ast.unparse(quantity.node) if quantity.node is not None else ""
        key = id(node)
        self.records.setdefault(
            key, SizeRecord(kind, node, self.statement_of(node, scope), subject, reason, factor, quantity.node)
        )
        return replace(quantity, pending=(*quantity.pending, key))

    def statement_of(self, node: ast.expr, scope: Scope) -> ast.stmt:
        """The innermost statement that holds *node* (a head dim may have been derived before it is used)."""
        if self.statement.lineno <= node.lineno <= (self.statement.end_lineno or 0):
            return self.statement
        holders = [
            item
            for root in (scope.node, self.tree)
            for item in walk(root)
            if isinstance(item, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr))
            and item.lineno <= node.lineno <= (item.end_lineno or 0)
        ]
        return holders[-1] if holders else self.statement

    def allocation(self, node: ast.Call, scope: Scope, target: str) -> None:
        """``k_cache = torch.zeros(b, config.num_attention_heads, n, head_dim)``."""
        sizes = items_of(node.args, scope)
        quantities = [self.quantity(item, scope) for item in sizes]
        kinds = [kind for quantity in quantities for kind in quantity.kinds]
        derived = next((quantity.derived for quantity in quantities if quantity.kinds == (DERIVED_DIM,)), None)
        if derived is not None and not scope.specific and not scope.models:
            self.records.setdefault(
                id(derived), SizeRecord("derived", derived, self.statement_of(derived, scope), "", "")
            )
        if KV in kinds or QUERY_HEADS not in kinds or GROUP in kinds:
            return
        heads = next(quantity for quantity in quantities if QUERY_HEADS in quantity.kinds)
        if QUERY_HEADS in [kind for quantity in quantities for kind in quantity.below] and len(heads.kinds) > 1:
            return
        reason, factor = self.reason(heads, scope)
        where: ast.expr = node
        statement = self.statement
        if heads.node is not None and not self.statement.lineno <= heads.node.lineno <= (
            self.statement.end_lineno or 0
        ):
            if any(item is heads.node for item in sizes):  # a shape that has a name
                where, statement = heads.node, self.statement_of(heads.node, scope)
        if reason:
            self.records.setdefault(
                id(where),
                SizeRecord(
                    "heads",
                    where,
                    statement,
                    ast.unparse(heads.node) if heads.node else "",
                    reason,
                    factor,
                    heads.node,
                ),
            )

    # -- classes that build a past for any model --------------------------------------------------------------------

    def prefix_classes(self) -> None:
        """``self.heads = config.num_attention_heads`` in a class that hands a past of that shape to a model."""
        for cls in statements(self.tree):
            given = handed_attributes(cls) if isinstance(cls, ast.ClassDef) else set()
            if not isinstance(cls, ast.ClassDef) or not given:
                continue
            for item in cls.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    if grouped_config(item, self.tree) or not (self.specific or self.is_specific(item)):
                        self.definitions(item, given, cls)

    def shaped(self, cls: ast.ClassDef, attribute: str, quantity: Quantity) -> None:
        """Records the ``view`` or ``reshape`` in which ``self.heads``, one of several that a statement sets, is an axis."""
        if quantity.kinds != (QUERY_HEADS,) or not quantity.strong:
            return
        reason = "a grouped-query model caches `num_key_value_heads` heads"
        for statement in statements(cls):
            if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) or statement.value is None:
                continue
            for node in walk(statement.value):
                if isinstance(node, ast.Call) and text_of(node.func) in SHAPES and axis_of(node, attribute):
                    record = SizeRecord("heads", node, statement, f"self.{attribute}", reason, "", quantity.node)
                    self.records.setdefault(id(node), record)

    # -- a head dim that is written down ----------------------------------------------------------------------------

    def head_dims_at_hand(self) -> None:
        """``config["hidden_size"] // config["num_attention_heads"]`` of a dict, or of a class of the file, that has ``head_dim``."""
        dicts = {
            text_of(targets[0])
            for targets, value in map(assignment, statements(self.tree))
            if isinstance(value, ast.Dict) and has_key(value, "head_dim") and isinstance(targets[0], ast.Name)
        }
        classes = {
            node.name
            for node in statements(self.tree)
            if isinstance(node, ast.ClassDef) and node.name.endswith("Config") and declares(node, "head_dim")
        }
        if not dicts and not classes:
            return
        for _, function in (*functions_of(self.tree), ("", self.tree)):
            owned = set(dicts)
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
                    if arg.annotation is not None and text_of(arg.annotation) in classes:
                        owned.add(arg.arg)
            owned = {name for name in owned if not self.reads_head_dim(name)}
            for statement in statements(function):
                if (
                    isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr))
                    and statement.value is not None
                ):
                    self.derived_in(statement, owned)

    def reads_head_dim(self, name: str) -> bool:
        """True where the file reads the field of that object in another place: it knows when to derive it."""
        found = rf"\b{re.escape(name)}(?:\.head_dim\b|\[.head_dim.\]|\.get\(.head_dim)|getattr\({re.escape(name)}, .head_dim"
        return bool(re.search(found, "\n".join(self.lines)))

    def derived_in(self, statement: ast.Assign | ast.AnnAssign | ast.Return | ast.Expr, owned: set[str]) -> None:
        if statement.value is None or re.search(r"[\"'.]head_dim", ast.unparse(statement.value)):
            return
        for node in walk(statement.value):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Div))):
                continue
            sides = [(field_of(side), base_of(side)) for side in (node.left, node.right)]
            if (
                sides[0] == ("hidden_size", sides[1][1])
                and sides[1][0] == "num_attention_heads"
                and sides[0][1] in owned
            ):
                self.records.setdefault(
                    id(node), SizeRecord("derived", node, statement, "", f"`{sides[0][1]}` has `head_dim`")
                )

    def definitions(self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: set[str], cls: ast.ClassDef) -> None:
        scope = Scope(function, function.name, "", False, "")
        for statement in statements(function):
            targets, value = assignment(statement)
            if not isinstance(statement, ast.stmt) or value is None or len(targets) != 1:
                continue
            target = targets[0]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                for item, part in zip(target.elts, value.elts, strict=True):
                    if isinstance(item, ast.Attribute) and text_of(item.value) == "self" and item.attr in given:
                        self.shaped(cls, item.attr, self.quantity(part, scope))
                continue
            if not (isinstance(target, ast.Attribute) and text_of(target.value) == "self" and target.attr in given):
                continue
            quantity = self.quantity(value, scope)
            if quantity.kinds == (QUERY_HEADS,) and quantity.strong:
                reason = "a grouped-query model caches `num_key_value_heads` heads"
                self.records.setdefault(id(value), SizeRecord("heads", value, statement, ast.unparse(value), reason))
            elif (
                quantity.kinds == (DERIVED_DIM,)
                and quantity.derived is not None
                and not grouped_config(function, self.tree)
            ):
                self.records.setdefault(
                    id(quantity.derived), SizeRecord("derived", quantity.derived, statement, "", "")
                )


def is_cache_alone(quantity: Quantity) -> bool:
    """True for two times layers, kv heads and head dim: nothing else of a model has these factors."""
    kinds = quantity.kinds
    heads = KV in kinds and (DIM in kinds or DERIVED_DIM in kinds)
    return LAYERS in kinds and heads and HIDDEN not in kinds and bool({2, 4} & {*quantity.numbers})


def may_be_cache(quantity: Quantity) -> bool:
    """True for two times layers, heads and head dim (or the hidden size, or a latent) with tokens or bytes."""
    kinds = quantity.kinds
    width = HIDDEN in kinds or LATENT in kinds or (QUERY_HEADS in kinds and (DIM in kinds or DERIVED_DIM in kinds))
    return LAYERS in kinds and width and (TOKENS in kinds or BYTES in kinds) and bool({2, 4} & {*quantity.numbers})


def counts_no_heads(quantity: Quantity) -> bool:
    """True for two times layers, head dim, tokens and bytes, with nothing that may be the heads."""
    kinds = [kind for kind in quantity.kinds if kind != NUMBER]
    needed = {LAYERS, DIM, TOKENS} <= {*kinds} <= {LAYERS, DIM, TOKENS, BYTES} and not quantity.below
    return needed and 2 in quantity.numbers and {*quantity.numbers} <= {1, 2, 4}


def is_printed(name: str, text: str) -> bool:
    """True where a line prints the number under the words "KV cache": ``print(f"KV cache: {total / 2**30} GiB")``."""
    found = rf"(?i)[\"'][^\"'\n]*\bkv[ _-]?cache\b[^\n]*[{{,(]\s*(?-i:{re.escape(name)})\b"
    return name.isidentifier() and "cache" in text.lower() and re.search(found, text) is not None


def counts_latent_twice(quantity: Quantity) -> bool:
    """True for a latent with a factor for keys and values, besides the bytes of a number."""
    if {KV, QUERY_HEADS, NOPE, HIDDEN} & {*quantity.kinds}:
        return False
    twos = sum(number == 2 for number in quantity.numbers)
    sizes = (BYTES in quantity.kinds) + sum(number in (1, 4) for number in quantity.numbers)
    return LAYERS in quantity.kinds and (twos >= 2 or (twos == 1 and sizes > 0))


def axis_of(call: ast.Call, attribute: str) -> bool:
    """True where ``self.<attribute>`` is one of the sizes of a ``view``, by itself."""
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    return any(
        isinstance(item, ast.Attribute) and text_of(item.value) == "self" and item.attr == attribute for item in sizes
    )


def is_part(numbers: Sequence[int], wanted: Sequence[int]) -> bool:
    """True where each of the *wanted* numbers is there, as often as it is wanted."""
    return all(list(numbers).count(number) >= list(wanted).count(number) for number in wanted)


def written_fields(tree: ast.Module) -> dict[str, dict[str, ast.expr | None]]:
    """The fields of dicts that are written down, and of parameters annotated with a class of the file, by their name.

    A name that stands for two things has the fields of both.
    """
    found: dict[str, dict[str, ast.expr | None]] = {}
    classes: dict[str, dict[str, ast.expr | None]] = {}
    aliases: list[tuple[str, str]] = []
    for node in statements(tree):
        targets, written = assignment(node)
        if isinstance(written, ast.Dict) and isinstance(targets[0], ast.Name):
            inner = [value for value in written.values if isinstance(value, ast.Dict)]
            for item in (written, *(inner if len(inner) == len(written.values) else ())):
                found.setdefault(targets[0].id, {}).update(fields_of(item))
        elif (
            isinstance(written, ast.Subscript)
            and isinstance(written.value, ast.Name)
            and isinstance(targets[0], ast.Name)
        ):
            aliases.append((targets[0].id, written.value.id))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = {
                item.target.id: item.value
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    for name, whole in aliases:
        if any(isinstance(value, ast.Dict) for value in found.get(whole, {}).values()):
            found.setdefault(name, {}).update(found[whole])
    for node in walk(tree) if classes else ():
        if isinstance(node, ast.arg) and node.annotation is not None and text_of(node.annotation) in classes:
            found.setdefault(node.arg, {}).update(classes[text_of(node.annotation)])
    return found


def fields_of(node: ast.Dict) -> dict[str, ast.expr | None]:
    """The keys of a dict that are strings, with their values."""
    return {
        key.value: value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def is_config(node: ast.expr, known: set[str]) -> bool:
    """True for an expression that is any model's configuration: ``AutoConfig.from_pretrained(...)``, ``model.config``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "from_pretrained":
            return text_of(node.func.value) in ANY_CONFIG | GROUPED_CONFIGS
        return node.func.attr == "get_text_config"
    if isinstance(node, ast.Name):
        return node.id in known
    return isinstance(node, ast.Attribute) and node.attr in ("config", "text_config")


def made_under(function: ast.AST) -> Iterator[str]:
    """The names under which a function keeps tensors: of ``register_buffer("k", ...)`` and ``self.k = torch.zeros(...)``."""
    for statement in statements(function):
        targets, value = assignment(statement)
        if isinstance(value, ast.Call) and text_of(value.func) in ALLOCATE:
            yield from (item.attr for item in targets if isinstance(item, ast.Attribute))
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and text_of(call.func) == "register_buffer" and call.args:
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                yield call.args[0].value


def items_of(sizes: Sequence[ast.expr], scope: Scope) -> list[ast.expr]:
    """The sizes that are given one by one, as one tuple, or under the name of a tuple."""
    if len(sizes) != 1:
        return list(sizes)
    only = sizes[0].value if isinstance(sizes[0], ast.Starred) else sizes[0]
    if isinstance(only, (ast.Tuple, ast.List)):
        return list(only.elts)
    if isinstance(only, ast.Name) and only.id in scope.shapes:
        return scope.shapes[only.id]
    return list(sizes)


def names_cache(text: str) -> bool:
    """True for a name or a text that speaks of a cache of keys and values."""
    lowered = text.lower()
    stems = "kv" in lowered or "cache" in lowered or "past_key" in lowered
    return stems and CACHE_WORD.search(text) is not None


def marked_lines(text: str) -> list[int]:
    """The 1-based lines that speak of a cache or a past."""
    lowered = text.lower()
    found: set[int] = set()
    for stem in MARK_STEMS:
        position = lowered.find(stem)
        while position >= 0:
            start = lowered.rfind("\n", 0, position) + 1
            end = lowered.find("\n", position)
            end = len(lowered) if end < 0 else end
            if MARK.search(lowered, start, end):
                found.add(start)
            position = lowered.find(stem, end)
    lines: list[int] = []
    line, last = 1, 0
    for start in sorted(found):
        line += lowered.count("\n", last, start)
        last = start
        lines.append(line)
    return lines


def grouped_config(node: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> str:
    """The class of the configuration that a function is given, where it is one with kv heads of its own."""
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if CONFIG_NAME.search(arg.arg) and arg.annotation is not None:
            written = arg.annotation.value if isinstance(arg.annotation, ast.Constant) else text_of(arg.annotation)
            named = imported_as(tree).get(written, written) if isinstance(written, str) else ""
            if named in GROUPED_CONFIGS:
                return named
    return ""


@lru_cache(maxsize=4)
def imported_as(tree: ast.Module) -> dict[str, str]:
    """The names that imports at the top of a module give to others, and what those are called where they come from."""
    return {
        alias.asname: alias.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname is not None
    }


def has_key(node: ast.Dict, key: str) -> bool:
    return any(isinstance(item, ast.Constant) and item.value == key for item in node.keys)


def declares(cls: ast.ClassDef, name: str) -> bool:
    """True where the class has the field: declared in its body, or assigned to ``self``."""
    for node in statements(cls):
        if isinstance(node, ast.AnnAssign) and text_of(node.target) == name:
            return True
        targets, _ = assignment(node)
        if any(isinstance(item, ast.Attribute) and item.attr == name for item in targets):
            return True
    return False


def field_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return node.attr if isinstance(node, ast.Attribute) else ""


def base_of(node: ast.expr) -> str:
    return text_of(node.value) if isinstance(node, (ast.Subscript, ast.Attribute)) else ""


def handed_attributes(cls: ast.ClassDef) -> set[str]:
    """Attributes of ``self`` that shape something which a method passes to a model as its past."""
    found: set[str] = set()
    for method in cls.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        taints: dict[str, set[str]] = {}
        for statement in walk(method):
            targets, value = assignment(statement)
            if value is not None:
                attributes = attributes_in(value, taints)
                for target in targets:
                    for name in walk(target):
                        if isinstance(name, ast.Name) and attributes:
                            taints.setdefault(name.id, set()).update(attributes)
        for node in walk(method):
            if isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg in ("past_key_values", "cache"):
                        found |= attributes_in(keyword.value, taints)
                if text_of(node.func) in ("DynamicCache", "from_legacy_cache"):
                    for item in node.args:
                        found |= attributes_in(item, taints)
    return found


def attributes_in(node: ast.expr, taints: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for child in walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id == "self":
            found.add(child.attr)
        elif isinstance(child, ast.Name):
            found |= taints.get(child.id, set())
    return found


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with the name of its class."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        owner, node = stack.pop()
        for name in BLOCKS[node.__class__]:
            for child in getattr(node, name):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield owner, child
                    stack.append((owner, child))
                elif isinstance(child, ast.ClassDef):
                    stack.append((child.name, child))
                elif isinstance(child, ast.stmt):
                    stack.append((owner, child))


def target_name(target: ast.expr) -> str:
    if (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and isinstance(target.slice.value, str)
    ):
        return target.slice.value
    return text_of(target)


def enclosing_names(statement: ast.stmt) -> str:
    """Names that the statement assigns to or passes its value under."""
    names: list[str] = []
    targets, _ = assignment(statement)
    names += [ast.unparse(target) for target in targets]
    for node in walk(statement):
        if isinstance(node, ast.keyword) and node.arg:
            names.append(node.arg)
    return " ".join(names)
