"""Values that annotations promise."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cached_property

from kvlint.analysis.guards import Guards, flatten_union
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.recorder import Flow
from kvlint.analysis.values import (
    UNKNOWN,
    CacheObject,
    Certainty,
    Config,
    GenerationConfigValue,
    Instance,
    LayerPair,
    LegacyCache,
    LocalClass,
    Model,
    ModelOutput,
    NoneValue,
    Sequence,
    Symbol,
    Value,
    join,
)
from kvlint.nodes import walk

TUPLE_NAMES = frozenset({"tuple", "list", "Tuple", "List", "Sequence", "Iterable"})
UNION_NAMES = frozenset({"Optional", "Union"})
LAZY = re.compile(r"^from __future__ import [^\n]*\bannotations\b", re.MULTILINE)
TRANSPARENT_NAMES = frozenset({"Annotated", "Final", "ClassVar", "Required", "NotRequired"})


class Annotations(Guards):
    """Reads annotations, quoted ones too."""

    def annotation(self, node: ast.expr, flow: Flow) -> Value:
        """The value an annotation promises; () where it says nothing that matters here."""
        if isinstance(node, ast.Constant):
            if node.value is None:
                return (NoneValue(),)
            if isinstance(node.value, str):
                return self._quoted(node, flow)
            return ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._one_of(flatten_union(node), flow)
        if isinstance(node, ast.Subscript):
            return self._subscripted(node, flow)
        if isinstance(node, ast.Name) and node.id in TUPLE_NAMES and node.id not in flow.names:
            return (Sequence(UNKNOWN, is_tuple=node.id.lower() == "tuple", promised=True),)
        if isinstance(node, (ast.Name, ast.Attribute)):
            typing_only = self._typing_only
            self._typing_only = typing_only or self.never_evaluated
            value = self.expression(node, flow, None)
            self.record_symbols(node, value, "annotation", flow)
            self._typing_only = typing_only
            return self._instance_of(value, node)
        return ()

    @cached_property
    def never_evaluated(self) -> bool:
        """True in a module with ``from __future__ import annotations``."""
        return LAZY.search(self.text) is not None

    def _one_of(self, items: list[ast.expr], flow: Flow) -> Value:
        """What a union promises: a member that says nothing may be anything, it does not leave the others alone."""
        return join(*[self.annotation(item, flow) or UNKNOWN for item in items])

    def _quoted(self, node: ast.Constant, flow: Flow) -> Value:
        assert isinstance(node.value, str)
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            return ()
        shift_into(inner, node, self.text, self.index.offset(node.lineno, node.col_offset))
        typing_only, self._typing_only = self._typing_only, True
        try:
            before = set(self.records.symbols)
            value = self.annotation(inner, flow)
            for key in set(self.records.symbols) - before:
                use = self.records.symbols[key]
                self.records.symbols[key] = replace(use, quoted=node)
            return value
        finally:
            self._typing_only = typing_only

    def _subscripted(self, node: ast.Subscript, flow: Flow) -> Value:
        name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in UNION_NAMES:
            return join(self._one_of(items, flow), (NoneValue(),) if name == "Optional" else ())
        if name in TRANSPARENT_NAMES:
            return self.annotation(items[0], flow)
        if name in TUPLE_NAMES:
            inner = [self.annotation(item, flow) for item in items]
            if any(isinstance(atom, (Sequence, LayerPair, LegacyCache)) for value in inner for atom in value):
                return (LegacyCache("annotation"),)
            return (Sequence(join(*inner) or UNKNOWN, is_tuple=name.lower() == "tuple", promised=True),)
        self.expression(node.value, flow, node)
        for item in items:
            self.annotation(item, flow)
        return ()

    def _instance_of(self, value: Value, node: ast.expr) -> Value:
        """An object of the annotated class."""
        parts: list[Value] = []
        for atom in value:
            if isinstance(atom, Symbol):
                parts.append(self._instance_of_symbol(atom, node))
            elif isinstance(atom, LocalClass):
                base = self.cache_base(atom.info)
                if base is not None:
                    origin = self.origin(node, f"annotated as `{atom.info.name}`")
                    parts.append((CacheObject(base, source="annotation", local_class=atom.info, origin=origin),))
                else:
                    parts.append((Instance(atom.info),))
        return join(*parts) if parts else ()

    def _instance_of_symbol(self, atom: Symbol, node: ast.expr) -> Value:
        cls = self.library.cache_class(atom.name)
        short = atom.name.rpartition(".")[2]
        if cls is not None:
            origin = self.origin(node, f"annotated as `{short}`")
            return (CacheObject(cls, Certainty.PROVEN, "annotation", when=atom.when, origin=origin),)
        if is_torch_model_class(atom.name):
            return (Model(Certainty.PROVEN, cls=atom.name, origin=self.origin(node, f"annotated as `{short}`")),)
        if atom.name.startswith("transformers."):
            if short == "GenerationConfig":
                return (GenerationConfigValue(),)
            if short.endswith("Config"):
                return (Config(Certainty.PROVEN),)
            if short.startswith(("TF", "Flax")):
                return ()
            if short.endswith(("OutputWithPast", "ModelOutput", "OutputWithCrossAttentions", "LMOutput")):
                return (ModelOutput(),)
        return ()


def shift_into(tree: ast.expr, constant: ast.Constant, text: str, start: int) -> None:
    """Moves the positions of a parsed quoted annotation to where its text stands in the file.

    The string must be a plain one-line literal for the ranges to be exact; otherwise every node gets the range of the
    whole string.
    """
    assert isinstance(constant.value, str)
    quote = next((mark for mark in ('"""', "'''", '"', "'") if text.startswith(mark, start)), "")
    plain = bool(quote) and text.startswith(constant.value, start + len(quote)) and "\n" not in constant.value
    lead = len(constant.value) - len(constant.value.lstrip())
    for node in walk(tree):
        if not hasattr(node, "lineno"):
            continue
        if plain and node.lineno == 1:
            shift = constant.col_offset + len(quote) + lead
            node.lineno = node.end_lineno = constant.lineno  # type: ignore[attr-defined]
            node.col_offset += shift  # type: ignore[attr-defined]
            node.end_col_offset = (node.end_col_offset or 0) + shift  # type: ignore[attr-defined]
        else:
            node.lineno, node.col_offset = constant.lineno, constant.col_offset  # type: ignore[attr-defined]
            node.end_lineno, node.end_col_offset = constant.end_lineno, constant.end_col_offset  # type: ignore[attr-defined]
