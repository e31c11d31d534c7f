"""Values of expressions. Dispatches by node type; records the facts that checks may ask for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from kvlint.analysis.facts import (
    AttributeUse,
    CompareUse,
    IterationUse,
    SubscriptUse,
    SymbolUse,
)
from kvlint.analysis.library import LOADERS, is_record, is_torch_model_class
from kvlint.analysis.names import (
    ATTENTION_PARTS,
    CACHE_NAMES,
    CACHE_OUTPUT_KEYS,
    DISTINCTIVE_MEMBERS,
    LAYER_LISTS,
    LOOSE_CACHE_NAMES,
    MODEL_NAMES,
    MODEL_PARTS,
)
from kvlint.analysis.project import WORTH_FOLLOWING
from kvlint.analysis.recorder import Flow, Recorder, path_of, unknown
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import (
    CACHE,
    DYNAMIC_CACHE,
    UNKNOWN,
    Atom,
    CacheLayer,
    CacheLayers,
    CacheLength,
    CacheObject,
    Certainty,
    Config,
    GenerationConfigValue,
    Instance,
    Items,
    Later,
    LayerPair,
    LegacyCache,
    Literal,
    LocalClass,
    LocalFunction,
    Mapping,
    Member,
    Model,
    ModelKwargs,
    ModelLayers,
    ModelOutput,
    NegativeNumber,
    NoneValue,
    OutputDict,
    Outside,
    PerRelease,
    Pipeline,
    ProjectModule,
    Sequence,
    StoredTensor,
    SuperObject,
    Symbol,
    TensorShape,
    Truth,
    Unknown,
    Value,
    grown,
    is_mixed,
    join,
    literal,
    of_type,
    restrict,
)
from kvlint.analysis.versions import apply_each
from kvlint.nodes import children, walk
from kvlint.releases import EVERY_RELEASE, ReleaseSet

INTERESTING: frozenset[type[Atom]] = frozenset(
    {
        CacheObject,
        CacheLayers,
        CacheLayer,
        LayerPair,
        StoredTensor,
        TensorShape,
        LegacyCache,
        ModelOutput,
        OutputDict,
        ModelKwargs,
        GenerationConfigValue,
    }
)


SAME_MODEL_METHODS = frozenset(
    {"to", "cuda", "cpu", "eval", "half", "float", "bfloat16", "train", "requires_grad_", "get_decoder", "compile"}
)
"""Methods of a module that return the module."""
VERSION = "transformers.__version__"
SIGNATURE = "<signature>"
"""Stands as a member of a function for what ``inspect`` says of its parameters."""
SIGNATURE_PARTS = frozenset({"parameters", "args", "kwonlyargs", "co_varnames"})
COMPARED = INTERESTING | {CacheLength}
WITH_MODELS = INTERESTING | {Model, Instance, SuperObject}
ITERATED: frozenset[type[Atom]] = frozenset({CacheObject, LegacyCache, LayerPair, CacheLayers})
OUTPUTS: frozenset[type[Atom]] = frozenset({ModelOutput, OutputDict})


def holds(value: Value, kinds: frozenset[type[Atom]]) -> bool:
    """True where an alternative is of one of these types."""
    return not kinds.isdisjoint(map(type, value))


UNBOUND_MODEL = re.compile(r"(?:^|_)(?:model|lm|llm)$")
"""A name that the region never binds (a snippet goes on where another one ended) and that means a model."""


def names_part(node: ast.expr, parent: ast.AST | None) -> bool:
    """True where the node is only the beginning of a longer name, or the callee of a call (recorded there)."""
    return isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node)


def is_cache_config(value: Value) -> bool:
    """True for ``generation_config.cache_config`` that nobody has set here."""
    return any(
        isinstance(atom, Member) and atom.name == "cache_config" and isinstance(atom.of, GenerationConfigValue)
        for atom in value
    )


def table_of_names(mapping: Mapping) -> Value:
    """What any key of a table of names gives (``{"grow": DynamicCache, "fixed": StaticCache}[kind]``): things that are
    imported, or functions and classes of the project."""
    values = [value for _, value in mapping.items]
    kinds = (Symbol, LocalFunction, LocalClass)
    named = not mapping.open and all(value and all(isinstance(atom, kinds) for atom in value) for value in values)
    return join(*values) if named and values else UNKNOWN


GENERATION_MIXIN = "transformers.generation.utils.GenerationMixin"
OUTPUT_HOLDER = re.compile(
    r"(?i)^(?:outs?|res|results?|ret|state|inputs|kwargs|batch|step)$|output|kwargs|model_inputs"
)


def holds_output(node: ast.expr) -> bool:
    """True where the mapping that is indexed is called like a model output or like arguments of a model."""
    base = node.value if isinstance(node, ast.Subscript) else node.func if isinstance(node, ast.Call) else node
    if isinstance(base, ast.Attribute) and isinstance(node, ast.Call):
        base = base.value
    name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
    return bool(OUTPUT_HOLDER.search(name)) and "dummy" not in name


class Expressions(Recorder):
    """Evaluates expressions under a flow. Calls and conditions are added by the classes built on this one."""

    _handlers: dict[type[ast.AST], Callable[..., Value]]
    _shims: set[str]
    """Names that the file itself puts into modules and classes of transformers."""

    def expression(self, node: ast.expr | None, flow: Flow, parent: ast.AST | None = None) -> Value:
        """The value of *node*; walks every sub-expression once."""
        if node is None:
            return UNKNOWN
        kind = type(node)
        method = self._handlers.get(kind)
        if method is None:
            method = self._handlers[kind] = getattr(self, "_eval_" + kind.__name__, self._eval_other)
        return method(node, flow, parent)

    def _eval_other(self, node: ast.AST, flow: Flow, parent: ast.AST | None) -> Value:
        return self._eval_children(node, flow)

    def _eval_children(self, node: ast.AST, flow: Flow) -> Value:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.expression(child, flow, node)
        return UNKNOWN

    # -- leaves ---------------------------------------------------------------------------------------------------

    def _eval_Constant(self, node: ast.Constant, flow: Flow, parent: ast.AST | None) -> Value:
        if node.value is None:
            return (NoneValue(),)
        return (Literal(node.value),)

    def _eval_Name(self, node: ast.Name, flow: Flow, parent: ast.AST | None) -> Value:
        value = self.lookup(node.id, flow)
        if not names_part(node, parent):
            self.record_symbols(node, value, "load", flow)
        return value

    def lookup(self, name: str, flow: Flow) -> Value:
        value = flow.names.get(name)
        if value is None:
            value = self.module_flow.names.get(name)
            if type(value) is Later:
                value = value.now()
            if value is not None:
                value = restrict(value, flow.releases) or value
        if value is None:
            if self.star_import and name[:1].isupper() and self.timeline.knows(f"transformers.{name}"):
                return (Symbol(f"transformers.{name}"),)
            if UNBOUND_MODEL.search(name) and not self.foreign_engine:
                return (Model(Certainty.NAMED),)
            return UNKNOWN
        return value.now() if type(value) is Later else value

    def _eval_NamedExpr(self, node: ast.NamedExpr, flow: Flow, parent: ast.AST | None) -> Value:
        value = self.expression(node.value, flow, node)
        flow.bind(node.target.id, value)
        return value

    def _eval_Await(self, node: ast.Await, flow: Flow, parent: ast.AST | None) -> Value:
        return self.expression(node.value, flow, node)

    def _eval_Starred(self, node: ast.Starred, flow: Flow, parent: ast.AST | None) -> Value:
        value = self.expression(node.value, flow, node)
        self.record_iteration(node.value, value, "star", None, flow, parent)
        return UNKNOWN

    def _eval_JoinedStr(self, node: ast.JoinedStr, flow: Flow, parent: ast.AST | None) -> Value:
        self._eval_children(node, flow)
        return UNKNOWN

    def _eval_FormattedValue(self, node: ast.FormattedValue, flow: Flow, parent: ast.AST | None) -> Value:
        return self._eval_children(node, flow)

    # -- displays -------------------------------------------------------------------------------------------------

    def _eval_Tuple(self, node: ast.Tuple, flow: Flow, parent: ast.AST | None) -> Value:
        return self._display(node, flow, is_tuple=True)

    def _eval_List(self, node: ast.List, flow: Flow, parent: ast.AST | None) -> Value:
        return self._display(node, flow, is_tuple=False)

    def _display(self, node: ast.Tuple | ast.List, flow: Flow, is_tuple: bool) -> Value:
        values = tuple(self.expression(item, flow, node) for item in node.elts)
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return (Sequence(UNKNOWN, is_tuple=is_tuple),)
        dated = self._of_releases(values)
        return (PerRelease(tuple(map(tuple if is_tuple else list, dated))),) if dated else (Items(values, is_tuple),)

    def _of_releases(self, values: tuple[Value, ...]) -> list[tuple[Any, ...]]:
        """``(Version(v).major, Version(v).minor)`` for every release; empty where it is not made of versions."""
        atoms = [value[0] for value in values if len(value) == 1 and isinstance(value[0], (PerRelease, Literal))]
        if len(atoms) < len(values) or not any(isinstance(atom, PerRelease) for atom in atoms):
            return []
        count = len(self.timeline.releases)
        return list(
            zip(*(atom.values if isinstance(atom, PerRelease) else [atom.value] * count for atom in atoms), strict=True)
        )

    def _eval_Dict(self, node: ast.Dict, flow: Flow, parent: ast.AST | None) -> Value:
        items: list[tuple[str, Value]] = []
        is_open = False
        output = False
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.expression(item, flow, node)
            if key is None:
                is_open = True
                output = output or any(isinstance(atom, ModelOutput) for atom in value)
                for mapping in of_type(value, Mapping):
                    items.extend(mapping.items)
                continue
            key_value = literal(self.expression(key, flow, node))
            if isinstance(key_value, str):
                items.append((key_value, value))
            else:
                is_open = True
        if output:
            return (OutputDict(),)
        return (Mapping(tuple(items), is_open),)

    def _eval_Set(self, node: ast.Set, flow: Flow, parent: ast.AST | None) -> Value:
        return self._eval_children(node, flow)

    # -- attributes -----------------------------------------------------------------------------------------------

    def _eval_Attribute(self, node: ast.Attribute, flow: Flow, parent: ast.AST | None) -> Value:
        base = self.expression(node.value, flow, node)
        path = path_of(node)
        name = node.attr
        if not isinstance(node.ctx, ast.Load):
            self.record_attribute(node, node.value, base, name, "store", flow, parent)
            return UNKNOWN
        self.record_attribute(node, node.value, base, name, "load", flow, parent)
        self.note_missing_member(base, name, flow)
        if path:
            stored = flow.names.get(path)
            if stored is not None:
                return stored
        value = self.attribute(base, name, node, flow)
        if not names_part(node, parent) and any(isinstance(atom, Symbol) for atom in base):
            self.record_symbols(node, value, "load", flow)  # an object that keeps a class does not name it
        return value

    def attribute(self, base: Value, name: str, node: ast.expr, flow: Flow) -> Value:
        """The value of ``base.name``."""
        parts = [self.attribute_of(atom, name, node, flow) for atom in base]
        return join(*parts) if parts else UNKNOWN

    def attribute_of(self, atom: Atom, name: str, node: ast.expr, flow: Flow) -> Value:
        """The value of ``.name`` on one alternative."""
        handler = self._attribute_handlers.get(type(atom))
        if handler is not None:
            return handler(self, atom, name, node)
        return UNKNOWN

    def _attribute_symbol(self, atom: Symbol, name: str, node: ast.expr) -> Value:
        qualified = f"{atom.name}.{name}"
        if qualified == VERSION:
            return self.library_value(qualified)
        return (Symbol(qualified, when=atom.when, origin=atom.origin),)

    def _attribute_outside(self, atom: Outside, name: str, node: ast.expr) -> Value:
        return (atom,)

    def _attribute_pipeline(self, atom: Pipeline, name: str, node: ast.expr) -> Value:
        return self._attribute_unknown(Unknown(), name, node)

    def library_value(self, qualified: str) -> Value:
        """What a name of transformers stands for: itself, and the version for another string on each release."""
        return (PerRelease(self.timeline.releases),) if qualified == VERSION else (Symbol(qualified),)

    def _attribute_cache(self, atom: CacheObject, name: str, node: ast.expr) -> Value:
        if atom.local_class is not None and atom.local_class.defines(name):
            own = atom.local_class.attribute(name)
            method = atom.local_class.method(name)
            if method is not None:
                return (LocalFunction(method, bound=True, when=atom.when),)
            return own or UNKNOWN
        if name == "layers":
            return (CacheLayers(atom, when=atom.when, origin=atom.origin),)
        if name in ("key_cache", "value_cache"):
            return (CacheLayers(atom, "keys" if name == "key_cache" else "values", when=atom.when, origin=atom.origin),)
        if name in ("self_attention_cache", "cross_attention_cache"):
            return (CacheObject(DYNAMIC_CACHE, atom.certainty, "attribute", when=atom.when, origin=atom.origin),)
        if name in ("seen_tokens", "_seen_tokens", "max_cache_len"):
            return (CacheLength(atom, name, node, when=atom.when),)
        return (Member(atom, name, when=atom.when),)

    def _attribute_layer(self, atom: CacheLayer, name: str, node: ast.expr) -> Value:
        if name in ("keys", "values"):
            return (StoredTensor(name, atom.cache, when=atom.when, origin=atom.origin),)
        return (Member(atom, name, when=atom.when),)

    def _attribute_tensor(self, atom: StoredTensor, name: str, node: ast.expr) -> Value:
        if name == "shape":
            return (TensorShape(atom, when=atom.when),)
        return (Member(atom, name, when=atom.when),)

    def _attribute_output(self, atom: ModelOutput, name: str, node: ast.expr) -> Value:
        if name in CACHE_OUTPUT_KEYS:
            return atom.held or (self.output_cache(atom, node),)
        return (Member(atom, name, when=atom.when),)

    def output_cache(self, atom: ModelOutput, node: ast.expr) -> CacheObject:
        """The cache held by a model output."""
        return CacheObject(
            CACHE,
            atom.certainty,
            "output",
            filled=True,
            when=atom.when,
            origin=self.origin(node, "the cache of a model output"),
        )

    def _attribute_model(self, atom: Model, name: str, node: ast.expr) -> Value:
        if name == "config":
            return (Config(atom.certainty, atom.name, atom.cls, atom.windowed),)
        if name == "generation_config":
            return (GenerationConfigValue(),)
        if atom.role == "model":
            if name in MODEL_PARTS:
                return (Model(atom.certainty, "model", atom.name, atom.cls, family=atom.family, origin=atom.origin),)
            if name in LAYER_LISTS:
                return (ModelLayers(atom, origin=atom.origin),)
        if atom.role == "layer" and name in ATTENTION_PARTS:
            held = self.library.held_by(atom.cls, name)
            return (Model(atom.certainty, "attention", atom.name, held, family=atom.family, origin=atom.origin),)
        return (Member(atom, name),)

    def _attribute_instance(self, atom: Instance, name: str, node: ast.expr) -> Value:
        info = atom.info
        method = info.method(name)
        if method is not None:
            if any(isinstance(item, ast.Name) and item.id == "property" for item in method.node.decorator_list):
                return self.result_of(method)
            return (LocalFunction(method, bound=True),)
        value = info.attribute(name)
        if value and not unknown(value):
            return value
        if value and is_record(info):
            return (Outside(),)
        if value and any(isinstance(atom, Unknown) for atom in value):
            return UNKNOWN  # the class itself sets it, to what is not known: the name says nothing
        if self.is_model_instance(info) and not info.defines(name):
            inherited = self._attribute_model(Model(Certainty.PROVEN, cls=self.model_class(info)), name, node)
            if not isinstance(inherited[0], Member) or name in (
                "generate",
                "prepare_inputs_for_generation",
                "_update_model_kwargs_for_generation",
            ):
                return inherited
            if self.timeline.signatures(GENERATION_MIXIN, name):
                return (Member(atom, name),)
        if name in SAME_MODEL_METHODS and info.bases_known():
            return (Member(atom, name),)
        if name in ATTENTION_PARTS and info.bases_known() and not info.defines(name):
            layers = [base for base in info.foreign_bases() if self.library.part(base) == "layer"]
            if len(layers) == 1:
                return self._attribute_model(Model(Certainty.PROVEN, "layer", cls=layers[0]), name, node)
        return self._attribute_by_name(name, node)

    def result_of(self, info: FunctionInfo) -> Value:
        """What a function of the file or its project returns, as far as is known; the place is walked again when more is."""
        info.readers.add(id(self._function.node) if self._function is not None else id(self))
        return info.returns or UNKNOWN

    def model_class(self, info: Any) -> str:
        """The class of transformers that a local model class derives from, where that is one."""
        bases = [base for base in info.foreign_bases() if is_torch_model_class(base)]
        return bases[0] if len(bases) == 1 else ""

    def is_model_instance(self, info: Any) -> bool:
        """True for a local class that derives from a transformers model class."""
        return any(is_torch_model_class(base) for base in info.foreign_bases())

    def _attribute_local_class(self, atom: LocalClass, name: str, node: ast.expr) -> Value:
        method = atom.info.method(name)
        if method is not None:
            return (LocalFunction(method),)
        if name in LOADERS and self.is_model_instance(atom.info):
            return (Member(atom, name),)
        return atom.info.attribute(name) or UNKNOWN

    def exported(self, path: Path, name: str) -> Value:
        raise NotImplementedError

    def _attribute_module(self, atom: ProjectModule, name: str, node: ast.expr) -> Value:
        joined = self.joint is not None and atom.path in self.joint.walks
        worth = joined or WORTH_FOLLOWING.search(name) or WORTH_FOLLOWING.search(atom.path.stem)
        return (self.exported(atom.path, name) if worth else ()) or UNKNOWN

    def _attribute_unknown(self, atom: Unknown, name: str, node: ast.expr) -> Value:
        return self._attribute_by_name(name, node)

    def _attribute_by_name(self, name: str, node: ast.expr) -> Value:
        """An attribute of something unknown: its name may say what it is."""
        if self.foreign_engine:
            return UNKNOWN
        if name in CACHE_NAMES or name == "cache_params":
            certainty = Certainty.CONTEXT if name == "past_key_values" else Certainty.NAMED
            if name != "past_key_values" and not self.uses_transformers:
                return UNKNOWN
            return (
                CacheObject(CACHE, certainty, "attribute", origin=self.origin(node, f"an attribute named `{name}`")),
            )
        if name in LOOSE_CACHE_NAMES and isinstance(node, ast.Attribute):
            return (
                Unknown(),
                CacheObject(
                    CACHE, Certainty.NAMED, "attribute", origin=self.origin(node, f"an attribute named `{name}`")
                ),
            )
        if name == "generation_config":
            return (GenerationConfigValue(),)
        if name == "config":
            return (Config(),)
        if MODEL_NAMES.search(name) and name not in ("target", "policy", "net", "draft"):
            return (Model(Certainty.NAMED, origin=self.origin(node, f"an attribute named `{name}`")),)
        if name in ATTENTION_PARTS:
            return (Model(Certainty.NAMED, "attention"),)
        return UNKNOWN

    def _attribute_version(self, atom: PerRelease, name: str, node: ast.expr) -> Value:
        values = apply_each(atom.values, lambda value: getattr(value, name))
        if values is not None and not any(callable(value) for value in values):
            return (PerRelease(values),)
        return (Member(atom, name),)

    def _attribute_kwargs(self, atom: ModelKwargs, name: str, node: ast.expr) -> Value:
        return (Member(atom, name),)

    def _attribute_member(self, atom: Member, name: str, node: ast.expr) -> Value:
        if isinstance(atom.of, PerRelease) and atom.name == "distribution" and name == "version":
            return (atom.of,)
        if name == "__code__" and atom.name == "forward":
            return (Member(atom, SIGNATURE),)
        if atom.name == SIGNATURE:
            return (Member(atom, "keys"),) if name == "keys" else (atom,) if name in SIGNATURE_PARTS else UNKNOWN
        return UNKNOWN

    def _attribute_member_holder(self, atom: Atom, name: str, node: ast.expr) -> Value:
        return (Member(atom, name),)

    def _attribute_super(self, atom: SuperObject, name: str, node: ast.expr) -> Value:
        for info in atom.info.ancestors()[1:]:
            if name in info.methods:
                return (LocalFunction(info.methods[name], bound=True),)
        return (Member(atom, name),)

    _attribute_handlers: ClassVar[dict[type[Atom], Callable[..., Value]]] = {}

    # -- subscripts -----------------------------------------------------------------------------------------------

    def _eval_Subscript(self, node: ast.Subscript, flow: Flow, parent: ast.AST | None) -> Value:
        base = self.expression(node.value, flow, node)
        index = self.expression(node.slice, flow, node)
        action = "load" if isinstance(node.ctx, ast.Load) else "store"
        self.record_subscript(node, base, index, action, flow, parent)
        if action == "store":
            return UNKNOWN
        path = path_of(node)
        if path and path in flow.names:
            return flow.names[path]
        parts = [self.item_of(atom, index, node) for atom in base]
        return join(*parts) if parts else UNKNOWN

    def _eval_Slice(self, node: ast.Slice, flow: Flow, parent: ast.AST | None) -> Value:
        self._eval_children(node, flow)
        return UNKNOWN

    def item_of(self, atom: Atom, index: Value, node: ast.Subscript) -> Value:
        """The value of ``atom[index]``."""
        key = literal(index)
        if isinstance(atom, CacheObject):
            if isinstance(node.slice, ast.Slice):
                return (LegacyCache("slice"),) if atom.certainty >= Certainty.CONTEXT else UNKNOWN
            return (LayerPair(atom, indexed=True, when=atom.when, origin=atom.origin),)
        if isinstance(atom, LegacyCache):
            return (LegacyCache("slice"),) if isinstance(node.slice, ast.Slice) else (LayerPair(atom.of),)
        if isinstance(atom, LayerPair):
            if key in (0, 1, 2, 3):
                return (
                    StoredTensor("keys" if key % 2 == 0 else "values", atom.cache, "subscript", origin=atom.origin),
                )
            return UNKNOWN
        if isinstance(atom, CacheLayers):
            if isinstance(node.slice, ast.Slice):
                return (atom,)
            if atom.part == "layers":
                return (CacheLayer(atom.cache, origin=atom.origin),)
            return (StoredTensor(atom.part, atom.cache, "lists", origin=atom.origin),)
        if isinstance(atom, ModelLayers):
            return (atom,) if isinstance(node.slice, ast.Slice) else (self.layer_of(atom),)
        if isinstance(atom, ModelOutput) and key in CACHE_OUTPUT_KEYS:
            return (self.output_cache(atom, node),)
        if isinstance(atom, (ModelKwargs, OutputDict, Unknown, Mapping)) and isinstance(key, str):
            return self.key_of(atom, key, node)
        if isinstance(atom, Mapping):
            return table_of_names(atom)
        if isinstance(atom, Items) and isinstance(key, int) and not isinstance(key, bool):
            return atom.items[key] if -len(atom.items) <= key < len(atom.items) else UNKNOWN
        if isinstance(atom, Sequence):
            return (atom,) if isinstance(node.slice, ast.Slice) else atom.item
        if isinstance(atom, PerRelease):
            return self._version_item(atom, node)
        if isinstance(atom, Outside):
            return (atom,)
        if isinstance(atom, Symbol):
            held = self.library.held_class(atom.name)
            return (Symbol(held, when=atom.when),) if held else UNKNOWN
        return UNKNOWN

    def layer_of(self, layers: ModelLayers) -> Model:
        """A layer of a model, with its class where the model's file has one kind of layers."""
        model = layers.model
        return Model(model.certainty, "layer", model.name, self.library.layer_class(model.cls), family=model.family)

    def key_of(self, atom: Atom, key: str, node: ast.expr) -> Value:
        """The value under a string key of a dict-like alternative."""
        if isinstance(atom, Mapping):
            for name, value in reversed(atom.items):
                if name == key:
                    return value
            return UNKNOWN
        if key in ("past_key_values", "past_key_value", "cache_params") and not self.foreign_engine:
            if isinstance(atom, Unknown) and not holds_output(node):
                return UNKNOWN
            certainty = Certainty.PROVEN if isinstance(atom, OutputDict) else Certainty.CONTEXT
            when = EVERY_RELEASE
            if isinstance(atom, ModelKwargs) and atom.hook:
                certainty = Certainty.PROVEN
            elif isinstance(atom, ModelKwargs):
                if not self.uses_transformers:
                    certainty = Certainty.NAMED
                if key == "past_key_value" and "past_key_value=" not in self.text:  # only attention is given that
                    when = self.timeline.keyword_of_kind("attention", key)
            return (
                NoneValue() if isinstance(atom, ModelKwargs) else Unknown(),
                CacheObject(CACHE, certainty, "key", when=when, origin=self.origin(node, f'the value under "{key}"')),
            )
        if key == "cache" and isinstance(atom, (ModelKwargs, OutputDict)):
            handed = isinstance(atom, ModelKwargs) and atom.hook
            certainty, source = (Certainty.PROVEN, "hook") if handed else (Certainty.CONTEXT, "key")
            return (CacheObject(CACHE, certainty, source, origin=self.origin(node, f'the value under "{key}"')),)
        return UNKNOWN

    def _version_item(self, atom: PerRelease, node: ast.Subscript) -> Value:
        try:
            key = ast.literal_eval(node.slice) if not isinstance(node.slice, ast.Slice) else None
            if isinstance(node.slice, ast.Slice):
                lower = ast.literal_eval(node.slice.lower) if node.slice.lower else None
                upper = ast.literal_eval(node.slice.upper) if node.slice.upper else None
                key = slice(lower, upper)
        except ValueError:
            return UNKNOWN
        values = apply_each(atom.values, lambda value: value[key])
        return (PerRelease(values),) if values is not None else UNKNOWN

    # -- operators ------------------------------------------------------------------------------------------------

    def _eval_IfExp(self, node: ast.IfExp, flow: Flow, parent: ast.AST | None) -> Value:
        when_true, when_false = self.branch(node.test, flow, node)
        parts = []
        for branch, item in ((when_true, node.body), (when_false, node.orelse)):
            if branch is not None and branch.releases:
                value = self.expression(item, branch, node)
                parts.append(restrict(value, branch.releases) if branch.releases != flow.releases else value)
        return join(*parts) if parts else UNKNOWN

    def _eval_BoolOp(self, node: ast.BoolOp, flow: Flow, parent: ast.AST | None) -> Value:
        current: Flow | None = flow
        values: list[Value] = []
        for position, item in enumerate(node.values):
            if current is None or not current.releases:
                break
            values.append(self.expression(item, current, node))
            if position == len(node.values) - 1:
                break
            when_true, when_false = self.branch(item, current, node, evaluate=False)
            current = when_true if isinstance(node.op, ast.And) else when_false
        truth = self.combine_truths(node.op, values) if len(values) == len(node.values) else None
        if truth is not None:
            return truth
        if isinstance(node.op, ast.Or):
            values[:-1] = [tuple(atom for atom in value if not isinstance(atom, NoneValue)) for value in values[:-1]]
        return join(*values)

    def combine_truths(self, op: ast.boolop, values: list[Value]) -> Value | None:
        sets = [value[0].releases for value in values if len(value) == 1 and isinstance(value[0], Truth)]
        if len(sets) != len(values) or not sets:
            return None
        result = sets[0]
        for other in sets[1:]:
            result = result & other if isinstance(op, ast.And) else result | other
        return (Truth(result),)

    def _eval_UnaryOp(self, node: ast.UnaryOp, flow: Flow, parent: ast.AST | None) -> Value:
        value = self.expression(node.operand, flow, node)
        if isinstance(node.op, ast.Not) and len(value) == 1 and isinstance(value[0], Truth):
            return (Truth(self.timeline.all - value[0].releases),)
        if isinstance(node.op, ast.USub) and isinstance(literal(value), (int, float)):
            return (Literal(-literal(value)),)
        return (NegativeNumber(),) if isinstance(node.op, ast.USub) else UNKNOWN

    def _eval_BinOp(self, node: ast.BinOp, flow: Flow, parent: ast.AST | None) -> Value:
        left = self.expression(node.left, flow, node)
        right = self.expression(node.right, flow, node)
        if isinstance(node.op, ast.Add):
            if any(isinstance(atom, (LegacyCache, Items, Sequence)) for atom in left):
                return join(left, right) if any(isinstance(atom, LegacyCache) for atom in right) else grown(left, right)
        if isinstance(node.op, ast.Mult) and any(isinstance(atom, Items) for atom in left):
            item = join(*[item for atom in of_type(left, Items) for item in atom.items]) or UNKNOWN
            return (Sequence(item),)
        if isinstance(node.op, ast.BitOr):
            return join(left, right)
        if isinstance(node.op, ast.Sub) and any(isinstance(atom, CacheLength) for atom in right):
            return (NegativeNumber(),)
        return UNKNOWN

    def _eval_Compare(self, node: ast.Compare, flow: Flow, parent: ast.AST | None) -> Value:
        left = self.expression(node.left, flow, node)
        rights = tuple(self.expression(item, flow, node) for item in node.comparators)
        if any(holds(value, COMPARED) for value in (left, *rights)):
            self.records.compares[id(node)] = CompareUse(node, left, rights, self.place(flow))
        truth = self.version_truth(node, left, rights)
        return (Truth(truth),) if truth is not None else UNKNOWN

    def _eval_Lambda(self, node: ast.Lambda, flow: Flow, parent: ast.AST | None) -> Value:
        inner = flow.copy()
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            inner.bind(arg.arg, self.conventional(arg.arg, arg))
        for default in (*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)):
            self.expression(default, flow, node)
        self.expression(node.body, inner, node)
        return UNKNOWN

    # -- comprehensions -------------------------------------------------------------------------------------------

    def _comprehension(self, node: Any, flow: Flow, *results: ast.expr) -> list[Value]:
        inner = flow.copy()
        for generator in node.generators:
            value = self.expression(generator.iter, inner, node)
            self.record_iteration(generator.iter, value, "comprehension", generator.target, inner, node)
            self.assign(generator.target, self.item_value(value, generator.iter), inner, None)
            for test in generator.ifs:
                when_true, _ = self.branch(test, inner, node)
                if when_true is None or not when_true.releases:
                    return [UNKNOWN for _ in results]
                inner = when_true
        return [self.expression(result, inner, node) for result in results]

    def _version_parts(self, node: ast.ListComp | ast.GeneratorExp, flow: Flow) -> Value | None:
        """``[int(x) for x in transformers.__version__.split(".")]``, for every release."""
        generator, element = node.generators[0], node.elt
        if len(node.generators) > 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            return None
        value = self.expression(generator.iter, flow, node)
        if len(value) != 1 or not isinstance(value[0], PerRelease):
            return None
        if not (
            isinstance(element, ast.Call)
            and isinstance(element.func, ast.Name)
            and element.func.id == "int"
            and len(element.args) == 1
            and isinstance(element.args[0], ast.Name)
            and element.args[0].id == generator.target.id
        ):
            return None
        values = apply_each(value[0].values, lambda parts: [int(part) for part in parts])
        return (PerRelease(values),) if values is not None else None

    def _eval_ListComp(self, node: ast.ListComp, flow: Flow, parent: ast.AST | None) -> Value:
        parts = self._version_parts(node, flow)
        if parts is not None:
            return parts
        return self.collected(self._comprehension(node, flow, node.elt)[0], is_tuple=False)

    def _eval_GeneratorExp(self, node: ast.GeneratorExp, flow: Flow, parent: ast.AST | None) -> Value:
        parts = self._version_parts(node, flow)
        if parts is not None:
            return parts
        return self.collected(self._comprehension(node, flow, node.elt)[0], is_tuple=False)

    def _eval_SetComp(self, node: ast.SetComp, flow: Flow, parent: ast.AST | None) -> Value:
        self._comprehension(node, flow, node.elt)
        return UNKNOWN

    def _eval_DictComp(self, node: ast.DictComp, flow: Flow, parent: ast.AST | None) -> Value:
        self._comprehension(node, flow, node.key, node.value)
        return (OutputDict(),) if self._copies_output(node) else (Mapping((), open=True),)

    def _copies_output(self, node: ast.DictComp) -> bool:
        """True for ``{k: v for k, v in out.items()}`` of a model output, under the same keys."""
        generator = node.generators[0]
        call, target = generator.iter, generator.target
        if len(node.generators) > 1 or not isinstance(target, ast.Tuple) or not isinstance(node.key, ast.Name):
            return False
        if not isinstance(target.elts[0], ast.Name) or target.elts[0].id != node.key.id:
            return False
        use = self.records.calls.get(id(call))
        return (
            use is not None
            and bool(use.callee)
            and all(
                isinstance(atom, Member) and atom.name == "items" and isinstance(atom.of, (ModelOutput, OutputDict))
                for atom in use.callee
            )
        )

    def collected(self, item: Value, is_tuple: bool) -> Value:
        """A collection whose items are *item*."""
        return (Sequence(item, is_tuple=is_tuple),)

    def item_value(self, value: Value, node: ast.expr) -> Value:
        """What iterating over *value* yields."""
        parts: list[Value] = []
        for atom in value:
            if isinstance(atom, CacheObject):
                parts.append((LayerPair(atom, origin=atom.origin),))
            elif isinstance(atom, LegacyCache):
                parts.append((LayerPair(atom.of),))
            elif isinstance(atom, CacheLayers):
                if atom.part == "layers":
                    parts.append((CacheLayer(atom.cache, origin=atom.origin),))
                else:
                    parts.append((StoredTensor(atom.part, atom.cache, "lists", origin=atom.origin),))
            elif isinstance(atom, ModelLayers):
                parts.append((self.layer_of(atom),))
            elif isinstance(atom, Items):
                parts.append(UNKNOWN if not atom.items or is_mixed(atom.items) else join(*atom.items))
            elif isinstance(atom, Sequence):
                parts.append(atom.item)
            elif isinstance(atom, LayerPair):
                parts.append((StoredTensor("keys", atom.cache, "subscript"),))
            elif isinstance(atom, Outside):
                parts.append((atom,))
            elif isinstance(atom, NoneValue):
                continue
            else:
                parts.append(UNKNOWN)
        return join(*parts) if parts else UNKNOWN

    def unpacked(self, value: Value, count: int) -> list[Value]:
        """The values of *count* names that *value* is unpacked into."""
        columns: list[list[Value]] = [[] for _ in range(count)]
        for atom in value:
            items = self._unpack_atom(atom, count)
            for column, item in zip(columns, items, strict=True):
                column.append(item)
        return [join(*column) if column else UNKNOWN for column in columns]

    def _unpack_atom(self, atom: Atom, count: int) -> list[Value]:
        if isinstance(atom, Items) and len(atom.items) == count:
            return list(atom.items)
        if isinstance(atom, LayerPair):
            parts: list[Value] = [
                (StoredTensor("keys" if i % 2 == 0 else "values", atom.cache, "subscript"),)
                for i in range(min(count, 2))
            ]
            return (parts + [UNKNOWN] * count)[:count]
        if isinstance(atom, (CacheObject, LegacyCache, CacheLayers, Sequence)):
            return [self.item_value((atom,), ast.Constant(0))] * count
        if isinstance(atom, TensorShape) and count == 4:
            return [UNKNOWN] * 4
        if isinstance(atom, PerRelease):
            columns = apply_each(atom.values, lambda value: tuple(value)[:count])
            if columns is not None and all(len(row) == count for row in columns):
                return [(PerRelease(tuple(row[i] for row in columns)),) for i in range(count)]
        return [UNKNOWN] * count

    # -- records --------------------------------------------------------------------------------------------------

    def record_attribute(
        self,
        node: ast.expr,
        value_node: ast.expr,
        base: Value,
        name: str,
        action: str,
        flow: Flow,
        parent: ast.AST | None,
    ) -> None:
        if action == "load" and name in self._shims:
            return
        kinds = WITH_MODELS if name.startswith("_") or name in ("generation_config", "generate") else INTERESTING
        if name not in DISTINCTIVE_MEMBERS and not holds(base, kinds):
            if not self.names_cache_class(base) and not is_cache_config(base):
                return
        path = path_of(value_node)
        place = self.place(flow)
        if path and flow.knows_member(path, name):
            place = replace(place, known_members=frozenset({(path, name)}))
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        self.records.attributes[id(node)] = AttributeUse(
            node, value_node, base, name, action, place, path, call=call, parent=parent
        )

    def names_cache_class(self, value: Value) -> bool:
        """True for a class of caches itself, as against an object of one."""
        return any(self.library.cache_class(atom.name) is not None for atom in value if isinstance(atom, Symbol))

    def record_default(
        self, node: ast.Call, value_node: ast.expr, base: Value, name: str, flow: Flow, parent: ast.AST | None
    ) -> None:
        """``getattr(value, "name", default)``."""
        if (holds(base, WITH_MODELS) or is_cache_config(base)) and name not in self._shims:
            self.records.defaults[id(node)] = AttributeUse(
                node, value_node, base, name, "default", self.place(flow), path_of(value_node), parent=parent
            )

    def record_subscript(
        self, node: ast.Subscript, base: Value, index: Value, action: str, flow: Flow, parent: ast.AST | None
    ) -> None:
        if holds(base, INTERESTING):
            self.records.subscripts[id(node)] = SubscriptUse(
                node, base, index, action, self.place(flow), path_of(node.value), parent=parent
            )

    def record_iteration(
        self,
        node: ast.expr,
        value: Value,
        how: str,
        target: ast.expr | None,
        flow: Flow,
        loop: ast.AST | None,
        function_name: str = "",
    ) -> None:
        if holds(value, ITERATED) or (loop is not None and holds(value, OUTPUTS)):
            self.records.iterations[(id(node), how)] = IterationUse(
                node, value, how, target, self.place(flow), function_name, loop, path_of(node)
            )

    def record_symbols(
        self, node: ast.expr, value: Value, context: str, flow: Flow, quoted: ast.Constant | None = None
    ) -> None:
        """Records references to names of transformers."""
        for atom in value:
            if type(atom) is Symbol and atom.name.startswith("transformers."):
                releases = flow.releases & atom.when
                if not releases:
                    continue
                place = self.place(flow)
                if releases != place.releases:
                    place = replace(place, releases=releases)
                before = self.records.symbols.get(id(quoted or node))
                if context == "load" and before is not None and before.node is node and before.context == "isinstance":
                    context = "isinstance"
                self.records.symbols[id(quoted or node)] = SymbolUse(
                    node, atom.name, context, place, isinstance(node, ast.Name), quoted
                )

    def mark_tested(self, node: ast.expr) -> None:
        """Names in the second argument of ``isinstance`` are references of their own kind."""
        for item in walk(node):
            use = self.records.symbols.get(id(item))
            if use is not None and use.context == "load":
                self.records.symbols[id(item)] = replace(use, context="isinstance")

    # -- to be provided by the classes built on this one ------------------------------------------------------------

    def branch(
        self, test: ast.expr, flow: Flow, owner: ast.AST, evaluate: bool = True
    ) -> tuple[Flow | None, Flow | None]:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, flow: Flow, value_node: ast.expr | None) -> None:
        raise NotImplementedError

    def version_truth(self, node: ast.Compare, left: Value, rights: tuple[Value, ...]) -> Any:
        raise NotImplementedError

    def conventional(self, name: str, node: ast.AST) -> Value:
        raise NotImplementedError

    def prepares_by_itself(self, hook: str) -> bool:
        raise NotImplementedError

    def note_missing(self, releases: ReleaseSet, flow: Flow, errors: frozenset[str]) -> None:
        raise NotImplementedError

    def note_missing_member(self, base: Value, name: str, flow: Flow) -> None:
        raise NotImplementedError


Expressions._attribute_handlers = {
    Symbol: Expressions._attribute_symbol,
    CacheObject: Expressions._attribute_cache,
    CacheLayer: Expressions._attribute_layer,
    StoredTensor: Expressions._attribute_tensor,
    ModelOutput: Expressions._attribute_output,
    Model: Expressions._attribute_model,
    Instance: Expressions._attribute_instance,
    LocalClass: Expressions._attribute_local_class,
    Unknown: Expressions._attribute_unknown,
    Pipeline: Expressions._attribute_pipeline,
    Outside: Expressions._attribute_outside,
    PerRelease: Expressions._attribute_version,
    ProjectModule: Expressions._attribute_module,
    ModelKwargs: Expressions._attribute_kwargs,
    LegacyCache: Expressions._attribute_member_holder,
    Member: Expressions._attribute_member,
    OutputDict: Expressions._attribute_member_holder,
    CacheLayers: Expressions._attribute_member_holder,
    GenerationConfigValue: Expressions._attribute_member_holder,
    Mapping: Expressions._attribute_member_holder,
    Items: Expressions._attribute_member_holder,
    Literal: Expressions._attribute_member_holder,
    Sequence: Expressions._attribute_member_holder,
    LocalFunction: Expressions._attribute_member_holder,
    SuperObject: Expressions._attribute_super,
}
