"""Private members of models and of generation: on which releases a model has one, by its class where that is known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.values import Instance, LocalFunction, Model, SuperObject, Symbol, of_type
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Timeline

GENERATION_MIXIN = "transformers.generation.utils.GenerationMixin"
PRE_TRAINED_MODEL = "transformers.modeling_utils.PreTrainedModel"
HOOK_WORDS = (
    "causal_mask",
    "causal_attention_mask",
    "cache",
    "past",
    "generation_mode",
    "_update_model_kwargs",
    "_expand_inputs",
)
COMMON = 4
"""On a model of unknown class, a private method is there as long as so many classes of transformers have it."""
PARTS = ("model", "layer", "attention")


def is_hook_name(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and any(word in name for word in HOOK_WORDS)


@lru_cache(maxsize=2)
def hooks_of_models(timeline: Timeline) -> Mapping[str, tuple[ReleaseSet, ReleaseSet]]:
    """Private hooks that classes in modeling files define: the releases on which some class has it, and those of them
    up to the last one on which at least ``COMMON`` classes have it."""
    owners: dict[str, list[ReleaseSet]] = {}
    for symbol in timeline.symbols():
        if symbol.startswith("transformers.models."):
            of_class: dict[str, ReleaseSet] = {}
            for releases, names in timeline.forward_keywords(symbol, "has"):
                for name in names:
                    of_class[name] = of_class.get(name, NO_RELEASE) | releases
            for name, releases in of_class.items():
                owners.setdefault(name, []).append(releases)
    found = {}
    for name, sets in owners.items():
        some, many = at_least(1, sets), at_least(COMMON, sets)
        found[name] = (some, some & ReleaseSet.span(0, many.newest) if many else NO_RELEASE)
    return found


def at_least(number: int, sets: list[ReleaseSet]) -> ReleaseSet:
    """The releases that are in so many of the sets."""
    levels = [NO_RELEASE] * number
    for releases in sets:
        for level in range(number - 1, 0, -1):
            levels[level] |= levels[level - 1] & releases
        levels[0] |= releases
    return levels[-1]


@lru_cache(maxsize=2)
def private_hooks(timeline: Timeline) -> Mapping[str, ReleaseSet]:
    """Private names around the cache that some model had, and the releases on which hardly any has."""
    found: dict[str, ReleaseSet] = {name: many for name, (_, many) in hooks_of_models(timeline).items()}
    for cls in (GENERATION_MIXIN, PRE_TRAINED_MODEL):
        for name in timeline.members(cls):
            found[name] = found.get(name, NO_RELEASE) | timeline.member(cls, name)
    return {name: timeline.all - lives for name, lives in found.items() if is_hook_name(name)}


@lru_cache(maxsize=256)
def family_bases(timeline: Timeline, module: str) -> tuple[str, ...]:
    """The ``XPreTrainedModel`` classes of a modeling file, from which its models inherit."""
    return tuple(
        name
        for name in timeline.symbols()
        if name.endswith("PreTrainedModel") and name.rpartition(".")[0] == module and ".models." in name
    )


def lives_of(timeline: Timeline, name: str, classes: list[str]) -> ReleaseSet:
    """Releases on which a model has the private member; none where no class of transformers is known to have had it."""
    found = timeline.member(GENERATION_MIXIN, name) | timeline.member(PRE_TRAINED_MODEL, name)
    for cls in classes:
        canonical = timeline.canonical(cls) or cls
        for owner in (canonical, *family_bases(timeline, canonical.rpartition(".")[0])):
            found |= timeline.member(owner, name)
    if found:
        return found
    known = [cls for cls in classes if not cls.rpartition(".")[2].startswith(("Auto", "PreTrainedModel"))]
    some, many = hooks_of_models(timeline).get(name, (NO_RELEASE, NO_RELEASE))
    return some if known else many


def model_classes(facts: Facts, use: AttributeUse) -> list[str] | None:
    """The classes of the model whose member is read: an empty list for a model of unknown class, None for anything else.

    Loaded or built here, ``self`` of a model class or of a function that is put into one, or ``super()`` in one.
    """
    for atom in use.value:
        if isinstance(atom, Model) and atom.certainty >= 2:
            return [atom.cls] if atom.cls else []
        info = atom.info if isinstance(atom, (Instance, SuperObject)) else None
        if isinstance(atom, Instance) and atom.info.defines(use.name):
            return None
        if info is not None:
            bases = [base for base in info.foreign_bases() if is_torch_model_class(base)]
            return bases or None
    function = use.place.function
    if function is not None and isinstance(use.value_node, ast.Name):
        positional = [*function.node.args.posonlyargs, *function.node.args.args]
        if positional and positional[0].arg == use.value_node.id:
            return installed_on(facts).get(id(function.node)) or ([] if is_decoding_loop(function.node) else None)
    return None


def is_decoding_loop(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True for a copy of one of the library's loops: its first parameter is a model, asked for inputs and updated keywords."""
    first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
    called = {
        node.func.attr
        for node in walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and first is not None
        and node.func.value.id == first.arg
    }
    return {"prepare_inputs_for_generation", "_update_model_kwargs_for_generation"} <= called


def installed_on(facts: Facts) -> Mapping[int, list[str]]:
    """Functions of the file that are put into classes of transformers (ids of their nodes), and these classes."""
    known = facts.memo.get("installed on")
    if not isinstance(known, dict):
        found: dict[int, list[str]] = {}
        for use in facts.attributes:
            if use.action != "store":
                continue
            for function in of_type(use.assigned, LocalFunction):
                for symbol in of_type(use.value, Symbol):
                    if facts.timeline.class_kind(facts.timeline.canonical(symbol.name) or symbol.name) in PARTS:
                        found.setdefault(id(function.info.node), []).append(symbol.name)
        known = facts.memo["installed on"] = found
    return known
