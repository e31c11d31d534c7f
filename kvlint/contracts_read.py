"""What one source file of transformers says about its calls: who calls whom, with what, and what becomes of the result.

``read_file`` parses a file and gives ``FileContracts``: for each class (and, under the name ``""``, for the functions of
the module) a head and one text a method. Nothing is decided here that needs another file; ``contracts_build`` puts the
files of a release together.

The head of a class is ``kind|bases|attribute=Class, Class;attribute=...``; classes of other files of transformers have
a leading dot (``.cache_utils.Cache``). The text of a method is a list of lines, each with a mark:

====  ================================================================================================================
mark  line
====  ================================================================================================================
``(``  parameters as source without annotations, ``self`` left out
``!``  a decorator that renames a keyword: ``old>new@version``
``@``  other decorators that stand between the caller and the function
``>``  a call: ``receiver(position, ..., keyword=, keyword=value, **kwargs) use``
``=``  what a ``return`` gives: ``(name, name)``, ``Class(field, field)``, ``name``, ``residual + name`` or ``value``
``?``  keys that are read from the dicts of keyword arguments
``+``  keys that are written into them, or into the dict that is returned
====  ================================================================================================================

A receiver is written the same way in every file, so that equal calls are equal texts: ``self.self_attn``,
``self.layers[*]`` (an item, also through a loop variable), ``self`` (the model itself), ``self.hook``, ``super().hook``,
``<cache>.update``, ``<layer>.update`` (a layer of a cache), ``<attention>`` (the attention function), ``<model>.generate``
(another model), ``<logits_processor>``; ``checkpoint `` before it marks the call under gradient checkpointing. A keyword
without a value is filled from the name that it has itself; an item of a past is written ``past_key_values[*]``.

A use is made of these words: ``unpack 2`` and ``uses 0 1`` (of the unpacked, those that have a name that is no ``_``),
``item 0 1``, ``from 1`` (a slice), ``field cache logits``, ``whole``, ``returned``, ``ignored``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvlint.contracts import held_classes
from kvlint.timeline import CACHE_KEYWORDS
from kvlint.timeline_build import _called_name, _dotted, _flat, _imports, _renamed_keyword, _resolved, _signature

PASTS = frozenset(CACHE_KEYWORDS) - {"use_cache", "cache_position"}
"""Names under which the library hands a cache, or a part of one, to a model, a layer or an attention."""

HOOK = re.compile(
    r"^(?:forward|generate|prepare_inputs_for_generation|get_candidates|update_candidate_strategy)$"
    r"|^_?\w*(?:cache|past|causal_mask|4d_|model_kwargs|create_masks|_for_generation)\w*$"
)
"""Methods of models by which the library's generation and forward talk to each other."""

_CACHE_NAME = re.compile(
    r"(?:^|_)(?:past|past_key_values?|cache_params|layer_past)$"
    r"|^(?:_|curr?_|current_|self_attn_|cross_attn_|assistant_|user_|mtp_|kv_)*cache$"
)
_CACHE_PART = frozenset({"self_attention_cache", "cross_attention_cache", "self_attn_cache", "cross_attn_cache"})
_CACHE_KEY = "cache_key"
"""The name that generation gives to the key under which it found the cache: ``model_kwargs[cache_key]``."""
_NO_CACHE_METHOD = frozenset(
    {"get", "pop", "items", "keys", "values", "append", "extend", "copy", "setdefault", "split"}
)
_ATTENTION_FUNCTION = frozenset({"attention_interface", "attention_fn", "attn_interface"})
_CALLBACK = frozenset(
    {"logits_processor", "stopping_criteria", "candidate_generator", "decoding_method", "custom_generate_function"}
)
_MODEL_NAME = re.compile(r"^(?:self\.)?(?:assistant_|main_|_)?model$")
_MACHINERY = frozenset({"cache_utils", "masking_utils", "modeling_attn_mask_utils", "modeling_layers"})
_MASK_MODULES = (".masking_utils.", ".modeling_attn_mask_utils.")
_STATES = frozenset({"conv_states", "ssm_states", "recurrent_states", "rnn_state", "conv_state", "ssm_state"})
_TENSOR = frozenset(
    {
        "shape",
        "size",
        "view",
        "reshape",
        "transpose",
        "dtype",
        "device",
        "to",
        "contiguous",
        "float",
        "half",
        "unsqueeze",
    }
    | {"squeeze", "permute", "dim", "new_zeros", "expand", "sum", "mean", "chunk", "split", "masked_fill", "type_as"}
    | {"max", "min", "clone", "detach", "numel", "ndim", "is_cuda"}
)
_DOCUMENTING = re.compile(
    r"docstring|^wraps$|^no_grad$|^property$|^classmethod$|^staticmethod$|^abstractmethod$|replace_"
)
_KEY_METHODS = frozenset({"get", "pop", "setdefault"})
_PASSES_PAST = re.compile(
    rf"[(, ](?:{'|'.join(sorted(PASTS | {'use_cache'}))})(?:=|[,)\[])|^>(?:<cache>|<layer>|<attention>)"
)
_CALLS_CACHE = re.compile(r"\n(?:!|>(?:checkpoint )?(?:<cache>|<layer>))")
_USE_WORDS = ("unpack", "uses", "item", "from", "field", "whole", "returned", "ignored")
_LONGEST_VALUE = 40


@dataclass(frozen=True, slots=True)
class FileContracts:
    """Facts by class and method; the method ``""`` is the head of the class, the class ``""`` the module's functions."""

    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_file(module: str, text: str) -> FileContracts:
    """The contracts of one file; *module* is its dotted name without ``transformers.``."""
    tree = ast.parse(text)
    names = _imports(_flat(tree.body, typing=True), module)
    classes = _classes(tree)
    file = _File(module, names, classes, _registries(tree, classes))
    rows: dict[str, dict[str, str]] = {}
    functions: dict[str, str] = {}
    for statement in _flat(tree.body):
        if isinstance(statement, ast.ClassDef):
            row = _class_row(statement, file)
            if row:
                rows[statement.name] = row
        elif isinstance(statement, ast.FunctionDef):
            adds = _adds_generation(statement)
            if adds or file.library or _mentions_cache(statement) or "kwargs" in _parameters(statement):
                function = _function_text(statement, _Holder(file, None, {}, frozenset(), {}))
                if adds or file.library or _CALLS_CACHE.search(function):
                    functions[statement.name] = function
    if functions:
        rows[""] = functions
    return FileContracts(rows)


@dataclass(frozen=True, slots=True)
class _File:
    module: str
    names: Mapping[str, str]
    classes: Mapping[str, ast.ClassDef]
    registries: Mapping[str, tuple[str, ...]]
    """Dicts of classes of the file, from which its models pick one (``LLAMA_ATTENTION_CLASSES``)."""

    @property
    def library(self) -> bool:
        """Whether the file is the library's own machinery of caches and generation: all of its methods count."""
        return self.module.startswith(("generation.", "integrations.")) or self.module in _MACHINERY

    @property
    def caches(self) -> bool:
        """Whether the classes of the file are caches and layers of caches."""
        return self.module == "cache_utils"


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {statement.name: statement for statement in _flat(tree.body) if isinstance(statement, ast.ClassDef)}


def _registries(tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for statement in _flat(tree.body):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            values = [value.id for value in statement.value.values if isinstance(value, ast.Name)]
            target = statement.targets[0]
            if isinstance(target, ast.Name) and values and set(values) <= set(classes):
                found[target.id] = tuple(dict.fromkeys(values))
    return found


def _methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for statement in _flat(node.body):
        if isinstance(statement, ast.FunctionDef) and not _is_accessor(statement):
            yield statement


def _is_accessor(function: ast.FunctionDef) -> bool:
    return any(
        (isinstance(item, ast.Attribute) and item.attr == "setter") or _called_name(item).endswith("property")
        for item in function.decorator_list
    )


def _ancestors(name: str, file: _File) -> set[str]:
    """Last parts of the names of all ancestors, as far as the file knows them."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        node = file.classes.get(waiting.pop())
        for base in node.bases if node is not None else ():
            last = _resolved(base, file.names, file.module).rpartition(".")[2]
            if last not in found:
                found.add(last)
                waiting.append(last)
    return found


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def takes_a_past(name: str, file: _File) -> bool:
    """Whether ``forward`` of the class, own or inherited in the file, has a keyword that the library uses for caches."""
    node = file.classes.get(name)
    if node is None:
        return False
    forward = next((method for method in _methods(node) if method.name == "forward"), None)
    if forward is not None:
        return bool(set(_parameters(forward)) & (PASTS | {"use_cache"}))
    return any(takes_a_past(base, file) for base in _ancestors(name, file) if base != name)


def _mentions_cache(function: ast.FunctionDef) -> bool:
    return any(_CACHE_NAME.search(name) for name in _parameters(function))


def _adds_generation(function: ast.FunctionDef) -> bool:
    """Whether the function makes another class of one, with ``GenerationMixin`` as a base."""
    return any(
        isinstance(node, ast.Tuple) and len(node.elts) > 1 and _dotted_name(node.elts[-1]) == "GenerationMixin"
        for node in ast.walk(function)
    )


# -------------------------------------------------------------------------------------------------------------- classes


def _class_row(node: ast.ClassDef, file: _File) -> dict[str, str]:
    ancestors = _ancestors(node.name, file)
    kind = _kind(node, file, ancestors)
    own = list(_methods(node))
    held = _held(own, file)
    holder = _Holder(file, node.name, held, frozenset(method.name for method in own), {})
    texts: dict[str, str] = {}
    matters = takes_a_past(node.name, file)
    for method in own:
        if method.name == "__init__" and kind not in ("cache", "cache layer"):
            continue
        text = _function_text(method, holder)
        if method.name == "__init__" and "\n>" not in text:
            continue
        if kind in ("head", "model") and not matters and method.name == "forward":
            text = _with_past_only(text)
        calls = "\n>" in text
        if matters and method.name == "forward":
            texts[method.name] = text
        elif kind in ("cache", "cache layer"):
            texts[method.name] = text
        elif kind == "generation" or (kind == "other" and not matters) or file.module == "modeling_utils":
            if _CALLS_CACHE.search(text) or file.library:
                texts[method.name] = text
        elif calls or (HOOK.search(method.name) and method.name != "forward"):
            texts[method.name] = text
    used = {name: held[name] for name in holder.used if name in held}
    if not texts and kind not in ("model", "head", "generation", "cache", "cache layer"):
        return {}
    bases = [_resolved(base, file.names, file.module) for base in node.bases]
    own_prefix = f".{file.module}."
    shown = ", ".join(base.removeprefix(own_prefix) for base in bases)
    holds = ";".join(f"{name}={', '.join(used[name])}" for name in sorted(used))
    return {"": f"{kind}|{shown}|{holds}", **texts}


def _with_past_only(text: str) -> str:
    """The lines of a method of a model that takes no cache: of its calls those that pass a past, or touch one."""
    return "\n".join(line for line in text.split("\n") if line[0] != ">" or _PASSES_PAST.search(line))


def _kind(node: ast.ClassDef, file: _File, ancestors: set[str]) -> str:
    """``head``, ``model``, ``layer``, ``attention``, ``mixer``, ``cache``, ``cache layer``, ``output``, ``generation``."""
    name = node.name
    lines = {name, *ancestors}
    if "GenerationMixin" in lines and not any(each.endswith("PreTrainedModel") for each in lines):
        return "generation"
    if any(each.endswith("PreTrainedModel") for each in lines):
        heads = "GenerationMixin" in lines or any(each.startswith("GenericFor") for each in lines)
        return "head" if heads or re.search(r"For[A-Z]|LMHead|DoubleHeads", name) else "model"
    if name.startswith("GenericFor"):
        return "head"
    if name.endswith("Output") or "ModelOutput" in ancestors:
        return "output"
    if not lines & {"Module", "GradientCheckpointingLayer"}:
        bases = [_resolved(base, file.names, file.module) for base in node.bases]
        beside = file.caches or any(base.startswith(".cache_utils.") for base in bases)
        if any("LayerMixin" in each or (beside and each.endswith("Layer")) for each in lines):
            return "cache layer"
        if any(each.endswith("Cache") for each in lines):
            return "cache"
    if name.endswith(("Layer", "Block")) and "LayerSelfAttention" not in name and "LayerCrossAttention" not in name:
        return "layer"
    if _keeps_states(node):
        return "mixer"
    if "Attention" in name:
        return "attention"
    if file.module.startswith("generation."):
        return "generation"
    return "other"


def _keeps_states(node: ast.ClassDef) -> bool:
    """Whether the class keeps the states of linear attention in a cache that it is handed."""
    for part in _ordered(node):
        if isinstance(part, ast.Attribute):
            if part.attr in ("update_conv_state", "update_recurrent_state", "update_ssm_state"):
                return True
            if part.attr in _STATES and _is_cache(part.value):
                return True
    return False


def _held(methods: Sequence[ast.FunctionDef], file: _File) -> dict[str, tuple[str, ...]]:
    """Attributes that hold modules, with the classes that they can be of, in the order of the source.

    ``AutoModel`` stands for a class that the configuration chooses; ``getattr(self, self.base_model_prefix)`` is
    the attribute ``<base>``.
    """
    found: dict[str, list[str]] = {}

    def add(attribute: str, classes: Iterable[str]) -> None:
        for name in classes:
            if name not in found.setdefault(attribute, []):
                found[attribute].append(name)

    for method in methods:
        local: dict[str, list[str]] = {}
        for node in _ordered(method):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        local.setdefault(target.id, []).extend(_made(node.value, file, local))
                    elif isinstance(target, ast.Attribute) and _dotted(target.value) == "self":
                        add(target.attr, _made(node.value, file, local))
            elif isinstance(node, ast.Call):
                name = _dotted(node.func) or ""
                if name.endswith(".append") and node.args:
                    owner = name.removesuffix(".append")
                    made = _made(node.args[0], file, local)
                    if owner.startswith("self."):
                        add(owner.removeprefix("self."), made)
                    elif owner in local:
                        local[owner].extend(made)
                elif name == "setattr" and len(node.args) == 3 and _dotted(node.args[1]) == "self.base_model_prefix":
                    add("<base>", _made(node.args[2], file, local))
    return {name: tuple(classes) for name, classes in found.items() if classes}


def _made(node: ast.expr, file: _File, local: Mapping[str, Sequence[str]]) -> list[str]:
    """Classes of modules that the expression makes, or stands for."""
    found: list[str] = []
    if isinstance(node, ast.Name):
        found = _class_names(node.id, file) or list(local.get(node.id, ()))
    elif isinstance(node, ast.Call):
        name = _dotted(node.func) or ""
        if re.search(r"(?:^|\.)AutoModel\w*\.\w*from_", name):
            return ["AutoModel"]
        last = name.rpartition(".")[2]
        if last in ("ModuleList", "ModuleDict", "Sequential", "list", "enumerate", "_init_layers"):
            found = [made for argument in node.args for made in _made(argument, file, local)]
        elif isinstance(node.func, (ast.Name, ast.Subscript, ast.IfExp)):
            found = _made(node.func, file, local)
        elif name.endswith(("._from_config", ".from_pretrained")):
            found = _class_names(name.rpartition(".")[0], file)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        found = list(file.registries.get(node.value.id) or local.get(node.value.id, ()))
    elif isinstance(node, ast.IfExp):
        found = [*_made(node.body, file, local), *_made(node.orelse, file, local)]
    elif isinstance(node, (ast.List, ast.Tuple)):
        found = [made for item in node.elts for made in _made(item, file, local)]
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        found = _made(node.elt, file, local)
    return list(dict.fromkeys(found))


def _class_names(name: str, file: _File) -> list[str]:
    if name in file.classes:
        return [name]
    target = file.names.get(name, "")
    if target.startswith(".") and target.rpartition(".")[2][:1].isupper() and ".models." in target:
        return [target]
    return []


# ------------------------------------------------------------------------------------------------------------ functions


@dataclass(slots=True)
class _Holder:
    """The class that a function belongs to, as far as calls need it."""

    file: _File
    name: str | None
    held: Mapping[str, tuple[str, ...]]
    methods: frozenset[str]
    used: dict[str, None]
    """Attributes of ``held`` that a recorded call goes to."""


def _function_text(function: ast.FunctionDef, holder: _Holder) -> str:
    owner = holder.name is not None and not any(
        _called_name(decorator) == "staticmethod" for decorator in function.decorator_list
    )
    parameters = _signature(function)[1:-1]
    if owner:
        _, _, parameters = parameters.partition(", ") if "," in parameters else ("", "", "")
    lines = [f"({parameters}"]
    for decorator in function.decorator_list:
        renamed = _renamed_keyword(decorator)
        if renamed is not None:
            lines.append(f"!{renamed}")
    body = _Body(function, holder)
    lines += dict.fromkeys(f"!{renamed}@" for renamed in body.renamed())
    wrappers = [_called_name(item) for item in function.decorator_list if _renamed_keyword(item) is None]
    shown = [name for name in wrappers if name and not _DOCUMENTING.search(name)]
    if shown:
        lines.append(f"@{', '.join(shown)}")
    lines += dict.fromkeys(f">{call}" for call in body.calls())
    lines += dict.fromkeys(f"={text}" for text in body.returned())
    read, written = body.keys()
    if read:
        lines.append(f"?{', '.join(sorted(read))}")
    if written:
        lines.append(f"+{', '.join(sorted(written))}")
    return "\n".join(lines)


_NO_CHILDREN = frozenset({"ctx", "op", "ops", "annotation", "returns", "type_comment", "kind", "decorator_list"})


def _ordered(root: ast.AST, parents: dict[ast.AST, ast.AST] | None = None) -> list[ast.AST]:
    """Nodes below *root* in the order of the source, annotations left out; *parents* is filled on the way."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        children: list[ast.AST] = []
        for name in node._fields:
            if name in _NO_CHILDREN:
                continue
            value = getattr(node, name, None)
            if isinstance(value, list):
                children += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                children.append(value)
        if parents is not None:
            for child in children:
                parents[child] = node
        children.reverse()
        waiting += children
    return found


class _Body:
    """One function, walked once; what its local names stand for is read first."""

    __slots__ = ("function", "holder", "names", "nodes", "own", "parents")

    names: dict[str, str]
    """What local names stand for: a receiver (``self.layers[*]``) or an item of a past (``past_key_values[*]``)."""
    own: list[ast.AST]
    """Nodes without those of functions inside of it."""

    def __init__(self, function: ast.FunctionDef, holder: _Holder) -> None:
        self.function = function
        self.holder = holder
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes = [node for statement in function.body for node in _ordered(statement, self.parents)]
        for statement in function.body:
            self.parents[statement] = function
        inner = [node for node in self.nodes if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef))]
        inside = {node for each in inner for node in _ordered(each) if node is not each}
        self.own = [node for node in self.nodes if node not in inside]
        self.names = {}
        self._read_names()

    def calls(self) -> Iterator[str]:
        """The recorded calls, in the order of the source."""
        found = [node for node in self.nodes if isinstance(node, ast.Call)]
        for node in sorted(found, key=lambda each: (each.lineno, each.col_offset)):
            text = self._call(node)
            if text is not None:
                yield text

    # ------------------------------------------------------------------------------------------------ local names

    def _read_names(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.For):
                self._bind(node.target, node.iter)
            elif isinstance(node, ast.comprehension):
                self._bind(node.target, node.iter)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._assign(node.targets[0].id, node.value)

    def _bind(self, target: ast.expr, iterated: ast.expr) -> None:
        """Names of a loop: of ``enumerate`` and ``zip`` each goes with its own."""
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and isinstance(target, ast.Tuple):
            if iterated.func.id == "enumerate" and len(target.elts) == 2 and iterated.args:
                self._bind(target.elts[1], iterated.args[0])
                return
            if iterated.func.id == "zip" and len(target.elts) == len(iterated.args):
                for each, source in zip(target.elts, iterated.args, strict=True):
                    self._bind(each, source)
                return
        if isinstance(target, ast.Name):
            while isinstance(iterated, ast.Subscript) and isinstance(iterated.slice, ast.Slice):
                iterated = iterated.value
            item = self._item(iterated)
            if item is not None:
                self.names[target.id] = item

    def _item(self, node: ast.expr) -> str | None:
        """What an item of *node* is called."""
        text = _dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if text is None:
            return None
        if text.startswith("self.") and text.count(".") == 1:
            attribute = text.removeprefix("self.")
            if attribute in self.holder.held:
                return f"{text}[*]"
            if self.holder.file.caches and attribute in ("layers", "layer_caches"):
                return "<layer>"
        return f"{text}[*]" if text in PASTS else None

    def _assign(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.IfExp):
            for part in (value.body, value.orelse):
                self._assign(name, part)
            return
        if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice):
            item = self._item(value.value)
            if item is not None and (_CACHE_NAME.search(name) or item.split("[")[0] not in PASTS):
                self.names.setdefault(name, item)
        elif isinstance(value, ast.Subscript) and _dotted_name(value.value) in PASTS and _CACHE_NAME.search(name):
            self.names.setdefault(name, ast.unparse(value))
        elif isinstance(value, ast.Attribute) and _dotted(value) in ("self.__call__", "self.forward"):
            self.names[name] = "self"
        elif isinstance(value, ast.Call) and _dotted(value.func) == "self.get_compiled_call":
            self.names.setdefault(name, "self")
        elif isinstance(value, ast.Call) and "ALL_ATTENTION_FUNCTIONS" in ast.dump(value.func):
            self.names[name] = "<attention>"
        elif isinstance(value, ast.Subscript) and _dotted(value.value) == "ALL_ATTENTION_FUNCTIONS":
            self.names[name] = "<attention>"

    # ------------------------------------------------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> str | None:
        function, arguments, mark = node.func, node.args, ""
        if _dotted(function) in (
            "self._gradient_checkpointing_func",
            "checkpoint",
            "torch.utils.checkpoint.checkpoint",
        ):
            if not arguments:
                return None
            function, arguments, mark = arguments[0], arguments[1:], "checkpoint "
            if isinstance(function, ast.Attribute) and function.attr in ("__call__", "forward"):
                function = function.value
        receiver = self._receiver(function)
        if receiver is None or not self._recorded(receiver, node, arguments):
            return None
        if receiver.startswith("self."):
            self.holder.used[re.split(r"[.\[]", receiver.removeprefix("self."), maxsplit=1)[0]] = None
        shown = [*map(self._position, arguments), *map(self._keyword, node.keywords)]
        return f"{mark}{receiver}({', '.join(shown)}) {_grouped(self._use(node))}"

    def _receiver(self, node: ast.expr) -> str | None:
        """The canonical text of what is called; None for what is no business of contracts."""
        file = self.holder.file
        if isinstance(node, ast.Name):
            if node.id == "self":
                return "self"
            known = self.names.get(node.id)
            if known is not None:
                return known if known in ("self", "<attention>") or known.startswith("self.") else None
            if node.id in _ATTENTION_FUNCTION:
                return "<attention>"
            if file.library and not file.caches and _MODEL_NAME.search(node.id):
                return "<model>"
            if file.module.startswith("generation.") and node.id in _CALLBACK:
                return f"<{node.id}>"
            target = file.names.get(node.id, "")
            return target if target.startswith(_MASK_MODULES) and not node.id[:1].isupper() else None
        if isinstance(node, ast.Subscript):
            base = self._attribute(node.value)
            if base is None:
                return None
            index = ast.unparse(node.slice)
            return f"{base}[{index}]" if re.fullmatch(r"-?\d+", index) else f"{base}[*]"
        if isinstance(node, ast.Call) and _dotted(node.func) == "getattr" and len(node.args) >= 2:
            prefix = _dotted(node.args[1]) == "self.base_model_prefix" and _dotted(node.args[0]) == "self"
            return "self.<base>" if prefix else None
        if not isinstance(node, ast.Attribute):
            return None
        return self._method(node.value, node.attr) or self._attribute(node)

    def _attribute(self, node: ast.expr) -> str | None:
        """``self.name`` where the name holds modules, or a longer path that starts with one."""
        text = _dotted(node) if isinstance(node, ast.Attribute) else None
        if text is None or not text.startswith("self."):
            return None
        if text.split(".")[1] in self.holder.held:
            return text
        file = self.holder.file
        return "<model>" if file.library and not file.caches and _MODEL_NAME.search(text) else None

    def _method(self, owner: ast.expr, name: str) -> str | None:
        """A method of a cache, of a layer of a cache, of the model itself, of its base or of another model."""
        file = self.holder.file
        if isinstance(owner, ast.Call) and _dotted(owner.func) == "super":
            return f"super().{name}" if (HOOK.search(name) or file.caches) and name != "__init__" else None
        if isinstance(owner, ast.Name) and owner.id in ("self", "cls"):
            own = name in self.holder.methods or (file.caches and not name.startswith("__"))
            if name in self.holder.held or (file.caches and name in _NO_CACHE_METHOD):
                return None
            return f"self.{name}" if HOOK.search(name) or (own and file.library) else None
        if self._is_layer(owner):
            return f"<layer>.{name}" if name not in _NO_CACHE_METHOD else None
        if _is_cache(owner) and name not in _NO_CACHE_METHOD:
            return f"<cache>.{name}"
        if name == "forward" and (held := self._attribute(owner)) is not None:
            return held
        if file.module.startswith("generation.") and isinstance(owner, ast.Name) and owner.id in _CALLBACK:
            return f"<{owner.id}>.{name}"
        if HOOK.search(name) and not name.startswith("is_") and not isinstance(owner, ast.Constant):
            text = _dotted(owner) if isinstance(owner, (ast.Name, ast.Attribute)) else None
            if re.search(r"(?:^|[._])(?:model|decoder|encoder|lm|generator)(?:_\w+)?$", text or ""):
                return f"<model>.{name}"
        return None

    def _is_layer(self, node: ast.expr) -> bool:
        """Whether the expression is a layer of a cache: an item of ``layers`` of a cache."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id) == "<layer>" or (
                self.holder.file.caches and node.id in ("layer", "cache_layer")
            )
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "layers":
            return _is_cache(node.value.value) or (self.holder.file.caches and _dotted(node.value.value) == "self")
        return False

    def _recorded(self, receiver: str, node: ast.Call, arguments: Sequence[ast.expr]) -> bool:
        if receiver == "<cache>.update" and len(arguments) + len(node.keywords) < 2:
            return False
        if not receiver.startswith("self.") or receiver.split(".")[1].split("[")[0] not in self.holder.held:
            return True
        if any(takes_a_past(name, self.holder.file) for name in held_classes(receiver, self.holder.held)):
            return True
        texts = {keyword.arg for keyword in node.keywords} | {_dotted(argument) for argument in arguments}
        return bool(texts & (PASTS | {"use_cache"}))

    # -------------------------------------------------------------------------------------------------- arguments

    def _position(self, node: ast.expr) -> str:
        if isinstance(node, ast.Starred):
            return f"*{self._value(node.value) or '_'}"
        return self._value(node) or "_"

    def _keyword(self, keyword: ast.keyword) -> str:
        value = self._value(keyword.value)
        if keyword.arg is None:
            return f"**{value or '_'}"
        if value == keyword.arg:
            return f"{keyword.arg}="
        cached = keyword.arg in PASTS or (value or "").removesuffix("[*]") in PASTS
        return f"{keyword.arg}={value or '_'}" if cached else f"{keyword.arg}="

    def _value(self, node: ast.expr) -> str | None:
        """A short name of an argument; of a choice the first that is no constant."""
        if isinstance(node, ast.IfExp):
            body = self._value(node.body)
            return self._value(node.orelse) if body in (None, "None") else body
        if isinstance(node, ast.Constant):
            return str(node.value) if node.value is None or isinstance(node.value, (bool, int)) else None
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return self._item(node.value)
        text = _dotted(node) if isinstance(node, ast.Attribute) else None
        return text if text is not None and len(text) <= _LONGEST_VALUE else None

    # ---------------------------------------------------------------------------------------------------- results

    def _use(self, node: ast.expr) -> str:
        parent = self.parents.get(node)
        if isinstance(parent, ast.Await):
            return self._use(parent)
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and parent.value is node:
            target = parent.targets[0] if isinstance(parent, ast.Assign) else parent.target
            if isinstance(target, (ast.Tuple, ast.List)):
                return _unpacked(target)
            if isinstance(target, ast.Name):
                words = self._words(target.id, parent)
                return " ".join(words) if words else "ignored"
            return "whole"
        if isinstance(parent, ast.Expr):
            return "ignored"
        if isinstance(parent, ast.Return):
            return "returned"
        return _part_of(node, parent)

    def _words(self, name: str, assigned: ast.stmt) -> list[str]:
        """How a name that holds a result is used until it is bound anew; each word once."""
        found: dict[str, None] = {}
        for statement in self._following(assigned):
            stored = isinstance(statement, ast.Assign) and any(
                isinstance(part, ast.Name) and part.id == name
                for target in statement.targets
                for part in ast.walk(target)
            )
            for part in _ordered(statement):
                if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load):
                    parent = self.parents.get(part)
                    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
                        word = _unpacked(parent.targets[0]) if parent.value is part else _part_of(part, parent)
                    elif isinstance(parent, ast.Return):
                        word = "returned"
                    else:
                        word = self._field_got(parent) or _part_of(part, parent)
                    found[word] = None
            if stored:
                break
        return sorted(found)

    def _field_got(self, node: ast.AST | None) -> str | None:
        """``field cache`` for ``outputs.get("cache")``."""
        call = self.parents.get(node) if isinstance(node, ast.Attribute) and node.attr == "get" else None
        key = _key(call.args[0]) if isinstance(call, ast.Call) and call.args else ""
        return f"field {key}" if key else None

    def _following(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """Statements that run after this one, in the same block and then in those around it."""
        node: ast.AST = statement
        while node is not self.function:
            parent = self.parents[node]
            for block in ("body", "orelse", "finalbody"):
                statements = getattr(parent, block, None)
                if isinstance(statements, list) and node in statements:
                    yield from statements[statements.index(node) + 1 :]
            node = parent

    def returned(self) -> Iterator[str]:
        """What the function's own ``return`` statements give."""
        for node in self.own:
            if isinstance(node, ast.Return) and node.value is not None:
                yield self._result(node.value)

    def _result(self, value: ast.expr) -> str:
        if isinstance(value, ast.Tuple):
            return f"({', '.join(_short(item) for item in value.elts)})"
        if isinstance(value, ast.Call):
            name = (_dotted(value.func) or "").rpartition(".")[2]
            if name[:1].isupper():
                return f"{name}({', '.join(keyword.arg or '**' for keyword in value.keywords)})"
            return f"{self._receiver(value.func) or name or 'value'}()"
        if isinstance(value, ast.Name):
            parts = self._built(value.id)
            return f"({', '.join(parts)})" if parts else value.id
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            left = self._result(value.left)
            if left.startswith("("):
                right = self._result(value.right) if isinstance(value.right, ast.Tuple) else "(...)"
                return f"({', '.join(part for part in (left[1:-1], right[1:-1]) if part)})"
            if _is_sum(value):
                return ast.unparse(value)
        return "value"

    def _built(self, name: str) -> list[str]:
        """Items of a tuple that is put together in the function; those that come under a condition have a ``?``."""
        parts: list[str] = []
        for node in self.own:
            if isinstance(node, ast.Assign) and any(
                isinstance(each, ast.Name) and each.id == name for each in node.targets
            ):
                if isinstance(node.value, ast.Tuple):
                    parts = [_short(item) for item in node.value.elts]
                elif isinstance(node.value, ast.BinOp) and isinstance(node.value.left, ast.Tuple):
                    parts = [*map(_short, node.value.left.elts), "..."]
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                mark = "?" if isinstance(self.parents.get(node), ast.If) else ""
                if parts and isinstance(node.value, ast.Tuple):
                    parts += [f"{_short(item)}{mark}" for item in node.value.elts]
                elif parts:
                    parts.append("...")
        return parts

    # ------------------------------------------------------------------------------------------------------- keys

    def renamed(self) -> Iterator[str]:
        """Old names that the body itself turns into new ones: ``kwargs["cache"] = kwargs.pop("past_key_values")``."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                new = _key(target.slice) if isinstance(target, ast.Subscript) else _dotted_name(target) or ""
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "pop":
                    old = _key(value.args[0]) if value.args else ""
                    if old in PASTS and new in PASTS and old != new:
                        yield f"{old}>{new}"
            elif (
                isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.In)
            ):
                listed = node.test.comparators[0]
                given = [
                    _key(each.value) for each in node.body if isinstance(each, ast.Return) and each.value is not None
                ]
                if isinstance(listed, (ast.Tuple, ast.List, ast.Set)) and given and given[0] in PASTS:
                    yield from (f"{old}>{given[0]}" for old in map(_key, listed.elts) if old in PASTS)

    def keys(self) -> tuple[set[str], set[str]]:
        """Constant keys read from, and written into, the dicts of keyword arguments that the function handles."""
        read: set[str] = set()
        written: set[str] = set()
        kwarg = self.function.args.kwarg.arg if self.function.args.kwarg else None
        dicts = {
            name for name in (kwarg, *_parameters(self.function)) if name and re.search(r"kwargs$|^outputs$", name)
        }
        dicts |= {"model_inputs"}
        if not (self.holder.file.library or HOOK.search(self.function.name)):
            dicts &= {kwarg}
        for node in self.nodes:
            if isinstance(node, ast.Subscript) and _dotted_name(node.value) in dicts:
                (written if isinstance(node.ctx, ast.Store) else read).update(self._strings(node.slice))
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)) and _key(node.left):
                if _dotted_name(node.comparators[0]) in dicts:
                    read.add(_key(node.left))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if _dotted_name(node.func.value) not in dicts:
                    continue
                if node.func.attr in _KEY_METHODS and node.args and _key(node.args[0]):
                    read.add(_key(node.args[0]))
                elif node.func.attr == "update":
                    written.update(keyword.arg for keyword in node.keywords if keyword.arg)
                    written.update(_dict_keys(node.args[0]) if node.args else ())
            elif isinstance(node, ast.Assign) and _dotted_name(node.targets[0]) in dicts:
                written.update(_dict_keys(node.value))
            elif isinstance(node, ast.Return) and node.value is not None and HOOK.search(self.function.name):
                written.update(_dict_keys(node.value))
        return read, written

    def _strings(self, node: ast.expr) -> list[str]:
        """The strings that a key can be: itself, or what the function puts into the name."""
        if isinstance(node, ast.IfExp):
            return [*self._strings(node.body), *self._strings(node.orelse)]
        if not isinstance(node, ast.Name):
            return [key] if (key := _key(node)) else []
        found: list[str] = []
        for each in self.own:
            if isinstance(each, ast.Assign) and _dotted_name(each.targets[0]) == node.id:
                found += [] if isinstance(each.value, ast.Name) else self._strings(each.value)
            elif isinstance(each, ast.For) and _dotted_name(each.target) == node.id:
                items = each.iter.elts if isinstance(each.iter, (ast.List, ast.Tuple)) else []
                found += filter(None, map(_key, items))
        return found


def _is_cache(node: ast.expr) -> bool:
    """Whether the library's own names say that this is a cache: ``past_key_values``, ``self.cross_attention_cache``."""
    if isinstance(node, ast.Attribute):
        return node.attr in _CACHE_PART or (bool(_CACHE_NAME.search(node.attr)) and node.attr != "use_cache")
    if isinstance(node, ast.Subscript):
        return _key(node.slice) in PASTS or _dotted_name(node.slice) == _CACHE_KEY
    return isinstance(node, ast.Name) and bool(_CACHE_NAME.search(node.id)) and node.id != "use_cache"


def _unpacked(target: ast.Tuple | ast.List) -> str:
    """``unpack 2 uses 0``: how many a target takes, and which of them have a name that is no ``_``."""
    if any(isinstance(item, ast.Starred) for item in target.elts):
        return f"unpack {len(target.elts) - 1}+"
    used = [str(place) for place, item in enumerate(target.elts) if not _is_blank(item)]
    return " ".join([f"unpack {len(target.elts)}", "uses", *used] if used else [f"unpack {len(target.elts)}"])


def _grouped(use: str) -> str:
    """The words of a use, each once: ``item 1 item 0`` becomes ``item 0 1``."""
    groups: dict[str, set[str]] = {}
    word = ""
    for part in use.split(" "):
        if part in _USE_WORDS:
            word = part
            groups.setdefault(word, set())
        else:
            groups[word].add(part)
    if len(groups) > 1:
        groups.pop("ignored", None)
    ordered = [word for word in _USE_WORDS if word in groups]
    return " ".join(part for word in ordered for part in (word, *sorted(groups[word])))


def _is_blank(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and set(node.id) == {"_"}


def _part_of(node: ast.expr, parent: ast.AST | None) -> str:
    """Which part of a value its surrounding takes."""
    if isinstance(parent, ast.Subscript) and parent.value is node:
        index = ast.unparse(parent.slice)
        if re.fullmatch(r"-?\d+", index):
            return f"item {index}"
        if re.fullmatch(r"\d+:", index):
            return f"from {index[:-1]}"
        if isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str):
            return f"field {parent.slice.value}"
        if isinstance(parent.slice, ast.IfExp):
            places = [ast.unparse(part) for part in (parent.slice.body, parent.slice.orelse)]
            if all(re.fullmatch(r"-?\d+", place) for place in places):
                return " ".join(f"item {place}" for place in sorted(set(places)))
        return "whole"
    if isinstance(parent, ast.Attribute):
        return "whole" if parent.attr in _TENSOR else f"field {parent.attr}"
    return "whole"


def _is_sum(node: ast.expr) -> bool:
    """Whether the expression adds the residual to other names: all of them are tensors, then."""
    parts = [part for part in ast.walk(node) if not isinstance(part, (ast.BinOp, ast.Add, ast.Load))]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return len(names) == len(parts) and "residual" in names


def _short(node: ast.expr) -> str:
    text = _dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    return (
        text
        if text is not None and len(text) <= _LONGEST_VALUE
        else ("*" if isinstance(node, ast.Starred) else "value")
    )


def _key(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _dotted_name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _dict_keys(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Dict):
        return [text for key in node.keys if key is not None and (text := _key(key))]
    if isinstance(node, ast.Call) and _dotted(node.func) == "dict":
        return [keyword.arg for keyword in node.keywords if keyword.arg]
    return []
