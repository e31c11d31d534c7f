"""Which part of transformers a call goes to: a model, a decoder layer, ``generate``, a mask helper, an output class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.library import is_layer_class, is_torch_model_class
from kvlint.analysis.names import MODEL_CALL_KEYWORDS, MODEL_NAMES
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import (
    UNKNOWN,
    Atom,
    Certainty,
    Instance,
    LocalClass,
    LocalFunction,
    Mapping,
    Member,
    Model,
    NoneValue,
    Pipeline,
    SuperObject,
    Symbol,
    Unknown,
    Value,
    of_type,
)
from kvlint.releases import EVERY_RELEASE, ReleaseSet

MASK_MODULE = "transformers.masking_utils."
THREAD = "threading.Thread"
CALLS = ("forward", "__call__")


@dataclass(frozen=True, slots=True)
class Target:
    """What a call reaches. *role*: model, layer, attention, generate, prepare, mask or output."""

    role: str
    certainty: Certainty
    shown: str
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """A keyword argument, written out or as a literal key of a dict that is given with ``**``."""

    name: str
    value: Value
    keyword: ast.keyword
    written: bool
    when: ReleaseSet = EVERY_RELEASE
    """The releases on which the dict behind ``**`` is the one that holds it."""


def arguments_of(use: CallUse) -> Iterator[Argument]:
    """Keyword arguments of a call, also those in a dict display behind ``**``."""
    for keyword, (name, value) in zip(use.node.keywords, use.keywords, strict=True):
        if name:
            yield Argument(name, value, keyword, True)
            continue
        for mapping in of_type(value, Mapping):
            for key, item in dict(mapping.items).items():
                yield Argument(key, item, keyword, False, mapping.when)


def sure_arguments(use: CallUse) -> Iterator[Argument]:
    """The same without what a dict behind ``**`` holds on some paths only: a condition may have asked the signature."""
    for item in arguments_of(use):
        if item.written:
            yield item
            continue
        value = next(
            value
            for keyword, (_, value) in zip(use.node.keywords, use.keywords, strict=True)
            if keyword is item.keyword
        )
        when = item.when
        for atom in value:
            if not isinstance(atom, Mapping) or item.name not in dict(atom.items):
                when -= atom.when
        if when:
            yield replace(item, when=when)


def argument(use: CallUse, name: str) -> Argument | None:
    """The keyword argument of this name."""
    return next((item for item in arguments_of(use) if item.name == name), None)


def with_threads(facts: Facts) -> Iterator[CallUse]:
    """The calls of the region, and for each ``Thread(target=model.generate, kwargs=...)`` the call that it makes."""
    for use in facts.calls:
        yield use
        target, given = use.keyword("target"), use.keyword("kwargs")
        if target is None or given is None or not any(atom.name == THREAD for atom in of_type(use.callee, Symbol)):
            continue
        spread = ast.copy_location(ast.keyword(None, given.value), given)
        node = ast.copy_location(ast.Call(target.value, [], [spread]), use.node)
        values = dict(use.keywords)
        yield replace(
            use,
            node=node,
            callee=values["target"],
            arguments=(),
            keywords=(("", values["kwargs"]),),
            starred=False,
            result=UNKNOWN,
        )


def is_none(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, NoneValue) for atom in value)


def target_of(facts: Facts, use: CallUse) -> Target | None:
    """Where the call goes, or None where it may go to code that is not transformers'."""
    if facts.foreign_engine:
        return None
    found: Target | None = None
    for atom in use.callee:
        if isinstance(atom, (LocalFunction, LocalClass)):
            return None
        item = _target_of_atom(facts, use, atom)
        if item is None:
            if not isinstance(atom, Unknown):
                return None
            continue
        if found is not None and item.role != found.role:
            return None
        found = item
    if found is None or found.certainty is Certainty.PROVEN:
        return found
    if found.certainty < Certainty.CONTEXT and not _plausible(facts, use, found):
        return None
    return None if own_cache_models(facts, {name for name, _ in use.keywords}) else found


def _target_of_atom(facts: Facts, use: CallUse, atom: Atom) -> Target | None:
    if isinstance(atom, Model):
        return Target(atom.role, atom.certainty, f"`{facts.source(use.node.func)}`", atom)
    if isinstance(atom, Member):
        return _target_of_member(facts, use, atom)
    if isinstance(atom, Instance):
        role = "" if atom.info.method("forward") or atom.info.method("__call__") else library_role(facts, atom.info)
        return Target(role, Certainty.PROVEN, f"`{facts.source(use.node.func)}`") if role else None
    if isinstance(atom, Symbol):
        return _target_of_symbol(facts, atom)
    if isinstance(atom, Pipeline):
        return Target("pipeline", Certainty.PROVEN, "the pipeline")
    if isinstance(atom, Unknown) and isinstance(use.node.func, ast.Attribute) and use.node.func.attr == "generate":
        return Target("generate", Certainty.NAMED, "`generate`")
    return None


def _target_of_member(facts: Facts, use: CallUse, atom: Member) -> Target | None:
    roles = {"generate": "generate", "prepare_inputs_for_generation": "prepare"}
    if isinstance(atom.of, Model):
        if atom.name in CALLS:
            return Target(atom.of.role, atom.of.certainty, f"`{facts.source(use.node.func)}`", atom.of)
        if atom.name in roles and atom.of.role == "model":
            return Target(roles[atom.name], atom.of.certainty, f"`{atom.name}`", atom.of)
    if isinstance(atom.of, SuperObject) and not any(atom.name in info.methods for info in atom.of.info.ancestors()[1:]):
        role = library_role(facts, atom.of.info)
        if role and atom.name in CALLS:
            return Target(role, Certainty.PROVEN, f"`{facts.source(use.node.func)}`")
        if role == "model" and atom.name in roles:
            return Target(roles[atom.name], Certainty.PROVEN, f"`{atom.name}`")
    if isinstance(atom.of, Unknown) and atom.name == "generate":
        return Target("generate", Certainty.NAMED, "`generate`")
    return None


def _target_of_symbol(facts: Facts, atom: Symbol) -> Target | None:
    name = atom.name
    short = name.rpartition(".")[2]
    if not name.startswith("transformers."):
        return None
    if (facts.timeline.canonical(name) or name).startswith(MASK_MODULE) and short.startswith("create_"):
        return Target("mask", Certainty.PROVEN, f"`{short}`")
    if "Output" in short and short[:1].isupper() and not short.startswith(("TF", "Flax")):
        return Target("output", Certainty.PROVEN, f"`{short}`")
    return None


def library_role(facts: Facts, info: ClassInfo) -> str:
    """Role of the transformers class that a local class derives from; "" where it derives from none with a cache."""
    for base in info.foreign_bases():
        kind = (
            facts.timeline.class_kind(facts.timeline.canonical(base) or base)
            if base.startswith("transformers.")
            else None
        )
        if kind in ("layer", "attention"):
            return kind
        if kind == "model" or is_torch_model_class(base):
            return "model"
        if is_layer_class(base):
            return "attention"
    return ""


def _plausible(facts: Facts, use: CallUse, target: Target) -> bool:
    """Whether a callee that merely has the name of a model is one of transformers.

    A part of an own module (``self.attn`` of a class that derives from nothing of transformers) is that project's own.
    """
    path = path_of(use.node.func)
    owner = use.place.owner
    keywords = {name for name, _ in use.keywords}
    if path.startswith("self.") and target.role != "generate":
        if owner is None:
            return False
        role = library_role(facts, owner)
        part = path.split(".")[1]
        if target.role == "attention":
            return role == "layer" and part not in owner.attributes
        return bool(role) and part not in owner.attributes
    if target.role == "generate":
        return facts.uses_transformers or bool(MODEL_NAMES.search(path.rpartition(".")[0].rpartition(".")[2]))
    if target.role == "attention":
        return facts.uses_transformers
    return facts.uses_transformers or bool(keywords & MODEL_CALL_KEYWORDS)


def own_cache_models(facts: Facts, keywords: set[str]) -> bool:
    """True where a class of the file that is not transformers' own takes one of the keywords when it is called."""
    for use in facts.classes:
        if library_role(facts, use.info):
            continue
        method = use.info.methods.get("forward") or use.info.methods.get("__call__")
        if method is not None and any(arg.arg in keywords for arg in method.parameters()):
            cached = {"past_key_values", "past_key_value", "cache", "layer_past", "past"}
            if any(arg.arg in cached and arg.arg in keywords for arg in method.parameters()):
                return True
    return False
