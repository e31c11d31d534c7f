"""Functions of the file that transformers itself calls, and the keyword under which it hands them the cache."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kvlint.analysis.callers import GENERATIVE_NAMES, filled_by_prepare, uncalled
from kvlint.analysis.facts import AssignUse, AttributeUse, CallUse, Facts, Place
from kvlint.analysis.library import is_layer_class, is_own_module
from kvlint.analysis.names import ATTENTION_PARTS, LAYER_LISTS, MODEL_PARTS
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.analysis.values import (
    Certainty,
    Instance,
    LocalClass,
    LocalFunction,
    Model,
    ModelLayers,
    Symbol,
    Unknown,
    Value,
    literal,
    of_type,
)
from kvlint.analysis.values import Mapping as DictDisplay
from kvlint.checks.installing import filled_beside, installed_by_helpers
from kvlint.checks.library_contracts import called_by_these_alone
from kvlint.engine.link import level
from kvlint.engine.units import Place as LinkedPlace
from kvlint.nodes import assignment, walk
from kvlint.releases import NO_RELEASE, ReleaseSet

CACHE_PARAMETERS = ("cache", "past_key_values", "past_key_value", "cache_params")
"""Names under which some release hands over the cache. ``layer_past`` is left out: it held a tuple, not a cache."""
OLD_PARAMETERS = ("layer_past", "past")
"""Older names for what a layer has cached, or a model. A few families pass ``layer_past``; nothing ever passes ``past``."""

OTHER_FRAMEWORKS = ("TF", "Flax")
NO_CACHE_MADE = {
    "reformer": ">=4.54",
    "xlnet": ">=4.54",
    "minimax": ">=4.53",
    "rwkv": ">=4.36",
    "xlstm": ">=4.36",
    "lfm2": "<5.5",
    "olmohybrid": "<5.20",
    "jamba": "<5.5",
    "zamba": "<5.5",
    "bamba": "<5.5",
}
"""Parts of class names for which ``generate`` makes no cache (``_supports_default_dynamic_cache`` of the releases); up
to 5.4 also stateful models, and generous where it does no harm to be silent."""
STATEFUL = "<5.5"
ROLES = {1: "attention", 2: "layer", 3: "model", 4: "model"}
"""What stands at each height of a model (``engine.link.level``)."""
MANY = 8
"""Functions that one patch may put somewhere; with more it is not followed what they call."""
CLASS_ENDINGS = ("Attention", "Layer", "Block", "Model", "ForCausalLM")
ENCODERS = re.compile(r"[Bb]ert(?!a)|[Rr]oberta|Electra|Xmod|Data2VecText|^Ernie(?!4)")
HEAD = re.compile(r"For[A-Z]\w*$")
"""A class of the library with a head on top of its model."""


@dataclass(frozen=True, slots=True)
class LibraryCalled:
    """A function that the library calls. *names* says on which releases it passes the cache under which keyword."""

    info: FunctionInfo
    place: Place
    role: str
    """model, layer, attention, mixer (linear attention), prepare (``prepare_inputs_for_generation``) or hook"""
    names: Mapping[str, ReleaseSet]
    shown: str
    encoder: bool = False
    """The class belongs to an encoder family, whose forward mostly runs without a cache."""
    elsewhere: bool = False
    """The function is defined in another file of the project; here it is put in its place."""
    patched: AttributeUse | AssignUse | CallUse | None = field(default=None, compare=False)
    replaces: str = ""
    """Qualified name of the class of transformers whose place the function's class takes, or of the dict it is put in."""
    filled: bool = False
    """Code of the project that is put beside it fills its cache: it calls the parts below in its own way, no more."""


def library_called(facts: Facts) -> list[LibraryCalled]:
    """Every function of the region that the library calls with a cache, in the order of the text."""
    if facts.foreign_engine or facts.tree is None:
        return []
    known = facts.memo.get("library called")
    if not isinstance(known, tuple):
        known = facts.memo["library called"] = tuple(_library_called(facts))
    return list(known)


def _library_called(facts: Facts) -> list[LibraryCalled]:
    found: dict[int, LibraryCalled] = {}
    unlinked = [item for item in [*_methods(facts), *_patches(facts)] if not item.info.places]
    for item in [*_outermost(facts, unlinked), *_linked(facts)]:
        if item.filled or _called_by_own_parts(facts, item):
            continue
        key = item.patched.node if item.elsewhere and item.patched is not None else item.info.node
        item = narrowed(item)
        known = found.setdefault(id(key), item)
        if known is not item:  # put in several places: it is called on the releases that reach one of them
            both = known.place.releases | item.place.releases
            known = found[id(key)] = replace(known, place=replace(known.place, releases=both))
        if known.replaces and item.replaces not in ("", known.replaces):
            found[id(key)] = replace(known, names=either(known.names, item.names))
    return sorted(found.values(), key=lambda item: item.place.statement.lineno)


def _called_by_own_parts(facts: Facts, item: LibraryCalled) -> bool:
    """True for a part that the library calls only from where the file has put code of its own, which calls it."""
    if item.role not in ("layer", "attention", "mixer"):
        return False
    known = facts.memo.get("replaced classes")
    if not isinstance(known, frozenset):
        functions = (use.info for use in facts.functions if use.info.name == "forward" or use.info.places)
        known = facts.memo["replaced classes"] = frozenset(
            name for info in functions for name in _stands_for(facts, info)
        )
    own = _stands_for(facts, item.info)
    return bool(own) and all(called_by_these_alone(facts, name, known - own) for name in own)


def _stands_for(facts: Facts, info: FunctionInfo) -> frozenset[str]:
    """The classes of transformers whose ``forward`` a function replaces: those that its class derives from, or is put in."""
    bases = [place.target for place in info.places if place.member == "forward"]
    if info.owner is not None and info.name == "forward":
        bases += [base for base in info.owner.foreign_bases() if base.startswith("transformers.")]
    return frozenset(
        canonical
        for base in bases
        if (canonical := facts.timeline.canonical(base)) and facts.timeline.class_kind(canonical)
    )


def _linked(facts: Facts) -> Iterator[LibraryCalled]:
    """Functions that some file of the project puts where the library calls them."""
    for use in facts.functions:
        for place in use.info.places:
            if place.by_library and place.member in ("forward", "prepare_inputs_for_generation"):
                where = use.place
                if use.info.installed:
                    reached = NO_RELEASE
                    for releases in use.info.installed.values():
                        reached |= releases
                    where = replace(where, releases=where.releases & reached)
                owner = use.info.owner
                shown = f"{owner.name}.{use.info.name}" if owner is not None else use.info.name
                item = _at_place(facts, use.info, where, place, shown)
                if item is not None:
                    yield item


def _at_place(facts: Facts, info: FunctionInfo, where: Place, place: LinkedPlace, shown: str) -> LibraryCalled | None:
    """A function in the place of a method of a class of transformers; None where there is no such class.

    A class that is gone had a successor in its family: the keywords are those of the kind.
    """
    short = place.target.rpartition(".")[2]
    kind = ROLES[level(place.target)]
    if place.member == "prepare_inputs_for_generation":
        names = class_names(facts, place.target, place.member) or kind_names(facts, "model")
        return LibraryCalled(info, where, "prepare", names, shown)
    names = with_successor(facts, place.target, kind, class_names(facts, place.target))
    canonical = facts.timeline.canonical(place.target) or place.target
    if called_by_users_alone(facts, canonical):
        return None
    known = facts.timeline.class_kind(canonical)
    if names and known in ("model", "layer", "attention"):
        kind = known
    elif names and is_mixer(known, short):
        kind = "mixer"
    elif short not in class_names_of_library(facts) and not place.target.startswith("transformers.models."):
        return None
    else:
        names = kind_names(facts, kind)
    return LibraryCalled(info, where, kind, names, shown, is_encoder_family(short))


def called_by_users_alone(facts: Facts, canonical: str) -> bool:
    """True for a head that does not generate (``GPT2ForSequenceClassification``): no code of the library calls it."""
    if HEAD.search(canonical) is None or canonical.endswith(GENERATIVE_NAMES):
        return False
    defined = facts.timeline.definitions(canonical)
    newest = max((releases for releases, _ in defined), key=lambda releases: releases.newest, default=NO_RELEASE)
    return bool(newest) and not facts.timeline.member(canonical, "generate") & ReleaseSet.of(newest.newest)


def with_successor(facts: Facts, target: str, kind: str, names: dict[str, ReleaseSet]) -> dict[str, ReleaseSet]:
    """The keywords of a class, and of what stands in its place on the releases that no longer have it."""
    gone = facts.timeline.all - facts.timeline.importable(target)
    if not names or not gone:
        return names
    return either(
        names, {name: releases & gone for name, releases in kind_names(facts, kind).items() if releases & gone}
    )


def class_names_of_library(facts: Facts) -> frozenset[str]:
    """The names of all classes of transformers but those so plain that anybody's may be called so."""
    known = facts.memo.get("class names")
    if not isinstance(known, frozenset):
        names = {symbol.rpartition(".")[2] for symbol in facts.timeline.symbols()}
        known = facts.memo["class names"] = frozenset(names.difference(CLASS_ENDINGS))
    return known


def narrowed(item: LibraryCalled) -> LibraryCalled:
    """A function that is put in its place on some releases only is called on these."""
    if item.patched is None or item.place.releases <= item.patched.place.releases:
        return item
    releases = item.place.releases & item.patched.place.releases
    return replace(item, place=replace(item.place, releases=releases))


def kind_names(facts: Facts, kind: str) -> dict[str, ReleaseSet]:
    """Keyword -> releases on which the library's own code of this kind (model, layer, attention) is called with it."""
    return {name: releases for name in CACHE_PARAMETERS if (releases := facts.timeline.keyword_of_kind(kind, name))}


def class_names(facts: Facts, qualified: str, method: str = "forward") -> dict[str, ReleaseSet]:
    """The same for one class of transformers, by what its own method takes."""
    names: dict[str, ReleaseSet] = {}
    for releases, keywords in facts.timeline.forward_keywords(facts.timeline.canonical(qualified) or qualified, method):
        for keyword in keywords:
            if keyword in (*CACHE_PARAMETERS, "layer_past"):
                names[keyword] = names.get(keyword, NO_RELEASE) | releases
    return names


def either(first: Mapping[str, ReleaseSet], second: Mapping[str, ReleaseSet]) -> dict[str, ReleaseSet]:
    """The keywords of one function that is called in two places."""
    return {name: first.get(name, NO_RELEASE) | second.get(name, NO_RELEASE) for name in {**first, **second}}


def _methods(facts: Facts) -> Iterator[LibraryCalled]:
    for use in facts.functions:
        info, owner = use.info, use.info.owner
        if owner is None or info.is_static or _other_framework(owner):
            continue
        if info.name == "forward" and (str(facts.path), owner.name) in facts.surroundings.own:
            continue
        shown = f"{owner.name}.{info.name}"
        if info.name == "prepare_inputs_for_generation":
            if is_own_module(owner.foreign_bases()) or _takes_cache_first(info) or _is_stand_in(facts, owner):
                continue
            yield LibraryCalled(info, reached(facts, info, use.place), "prepare", _prepare_names(facts, owner), shown)
        elif info.name == "forward" and not filled_by_prepare(info):
            role, names, encoder = _class_role(facts, owner)
            if role and not _called_by_the_file(facts, owner) and not _passed_through(facts, info, owner):
                yield LibraryCalled(info, reached(facts, info, use.place), role, names, shown, encoder)


def _passed_through(facts: Facts, info: FunctionInfo, owner: ClassInfo) -> bool:
    """True for an attention that a layer of the library holds, which hands on the keywords that the project calls it with."""
    names = {arg.arg for arg in info.parameters()} & set(CACHE_PARAMETERS)
    for use in facts.classes:
        held = any(atom.info is owner for value in use.info.attributes.values() for atom in of_type(value, Instance))
        if held and names & use.info.given and use.info.method("forward") is None:
            bases = [base for base in use.info.foreign_bases() if base.startswith("transformers.")]
            if any("**kwargs" in keywords for base in bases for _, keywords in forward_keywords(facts, base)[-1:]):
                return True
    return False


def forward_keywords(facts: Facts, qualified: str) -> tuple[tuple[ReleaseSet, tuple[str, ...]], ...]:
    """The keywords of a class's ``forward`` by release, the newest last (``Timeline.forward_keywords``)."""
    dated = facts.timeline.forward_keywords(facts.timeline.canonical(qualified) or qualified)
    return tuple(sorted(dated, key=lambda item: item[0].oldest))


def reached(facts: Facts, info: FunctionInfo, place: Place) -> Place:
    """The place of a method on the releases on which the library calls it."""
    never = uncalled(info, str(facts.path), facts.surroundings, facts.timeline)
    return replace(place, releases=place.releases - never)


def _is_stand_in(facts: Facts, owner: ClassInfo) -> bool:
    """True for a class without bases that the file makes objects of itself: it is no part of a model class."""
    if owner.bases or owner.node.keywords:
        return False
    made = facts.memo.get("made objects")
    if not isinstance(made, frozenset):
        made = facts.memo["made objects"] = frozenset(
            id(atom.info) for use in facts.calls for atom in of_type(use.callee, LocalClass)
        )
    return id(owner) in made


def _takes_cache_first(info: FunctionInfo) -> bool:
    """True for a method of another engine: ``generate`` hands the ids over as the first positional argument."""
    parameters = info.node.args.posonlyargs + info.node.args.args
    position = info.first_positional()
    return len(parameters) > position and parameters[position].arg in CACHE_PARAMETERS


def _prepare_names(facts: Facts, owner: ClassInfo) -> dict[str, ReleaseSet]:
    for base in owner.foreign_bases():
        names = class_names(facts, base, "prepare_inputs_for_generation") if base.startswith("transformers.") else {}
        if names and base.endswith(GENERATIVE_NAMES):
            return names
    return kind_names(facts, "model")


def _other_framework(owner: ClassInfo) -> bool:
    names = [owner.name, *(base.rpartition(".")[2] for base in owner.foreign_bases())]
    return any(name.startswith(OTHER_FRAMEWORKS) for name in names)


def _class_role(facts: Facts, owner: ClassInfo) -> tuple[str, dict[str, ReleaseSet], bool]:
    """Role, keywords and family of a class whose ``forward`` the library calls; an empty role where it does not."""
    model_base = False
    for base in owner.foreign_bases():
        if not base.startswith("transformers."):
            continue
        short = base.rpartition(".")[2]
        canonical = facts.timeline.canonical(base) or base
        kind = facts.timeline.class_kind(canonical)
        names = class_names(facts, base)
        encoder = is_encoder_family(short)
        if names and kind in ("layer", "attention"):
            return kind, names, encoder
        if names and is_mixer(kind, short):
            return "mixer", names, encoder
        if names and kind == "model" and called_by_users_alone(facts, canonical):
            return "", {}, False
        if names and kind == "model" and (not encoder or base.endswith(GENERATIVE_NAMES)):
            return "model", names, False
        model_base = model_base or short.endswith(("PreTrainedModel", "GenerationMixin"))
    if (model_base and _generates(owner)) or _held_under_library_forward(facts, owner):
        return "model", kind_names(facts, "model"), False
    return "", {}, False


def _held_under_library_forward(facts: Facts, owner: ClassInfo) -> bool:
    """True for the inner model of a class of the file whose ``forward`` is that of a head of transformers, which calls it
    with the cache: inherited, or ``forward = LlamaForCausalLM.forward``."""
    for use in facts.classes:
        if not _makes_part(use.info, owner.name) or use.info is owner or use.info.method("forward") is not None:
            continue
        given = [atom.name.removesuffix(".forward") for atom in of_type(use.info.attribute("forward"), Symbol)]
        heads = given or [base for base in use.info.foreign_bases() if base.startswith("transformers.")]
        if any(base.endswith(GENERATIVE_NAMES) and class_names(facts, base) for base in heads):
            return True
    return False


def _makes_part(info: ClassInfo, name: str) -> bool:
    """True where ``__init__`` puts an object of a class where a head of transformers keeps its model (``self.model``)."""
    init = info.methods.get("__init__")
    for node in walk(init.node) if init is not None else ():
        targets, value = assignment(node)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == name:
            if any(isinstance(target, ast.Attribute) and target.attr in MODEL_PARTS for target in targets):
                return True
    return False


def is_mixer(kind: str | None, name: str) -> bool:
    """True for a part of a layer other than attention that takes the cache by keyword: gated delta nets, mamba mixers,
    short convolutions. (Encoders and decoders are handed theirs in ways of their own.)"""
    return kind == "other" and not name.endswith(("Encoder", "Decoder", "Embeddings", "Model", "Prenet"))


def is_encoder_family(short: str) -> bool:
    """True for the classes of BERT and its like: decoders too, by their signatures, but hardly ever used as such."""
    return bool(ENCODERS.search(short)) and not short.startswith("ModernBertDecoder")


def _generates(owner: ClassInfo) -> bool:
    """True for a model class on which ``generate`` is called."""
    names = {base.rpartition(".")[2] for base in owner.foreign_bases()}
    if "GenerationMixin" in names or any(info.name.endswith(GENERATIVE_NAMES) for info in owner.ancestors()):
        return True
    return owner.method("prepare_inputs_for_generation") is not None


ONLY_ON_REQUEST = "<4.54"
"""Releases on which ``generate`` makes a cache for the classes alone that say ``_supports_cache_class = True``
(``generation/utils.py``, ``_prepare_cache_for_generation``)."""


def without_made_cache(facts: Facts, owner: ClassInfo | None) -> ReleaseSet:
    """Releases on which ``generate`` makes no cache for the class, by its name or because it is stateful."""
    if owner is None:
        return NO_RELEASE
    name, releases = owner.name.lower(), NO_RELEASE
    for part, range_ in NO_CACHE_MADE.items():
        if part in name and "minimaxm" not in name:
            releases |= facts.timeline.matching(range_)
    own = {base.rpartition(".")[2] for base in owner.foreign_bases()} <= {"PreTrainedModel", "GenerationMixin"}
    supporting = [info.attributes.get("_supports_cache_class", ()) for info in owner.ancestors()]
    if own and not any(literal(value) is True for value in supporting):
        releases |= facts.timeline.matching(ONLY_ON_REQUEST)
    if any("_is_stateful" in info.attributes for info in owner.ancestors()):
        releases |= facts.timeline.matching(STATEFUL)
    return releases


GENERATION_STEP = "_update_model_kwargs_for_generation"


def handed_on_by_the_class(owner: ClassInfo | None, name: str) -> bool:
    """True where a model's own ``_update_model_kwargs_for_generation`` puts something under the keyword after each step:
    from the second step on the parameter holds what the class chose, whatever the library passes."""
    step = owner.method(GENERATION_STEP) if owner is not None else None
    return step is not None and any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == name
        for node in walk(step.node)
    )


def is_own_object(info: FunctionInfo, name: str) -> bool:
    """True for a parameter that is annotated with a class of the project which is no cache of the library: what is done
    with it is that class's own protocol, and a cache of the library does not follow it."""
    return any(isinstance(atom, Instance) for atom in info.promised.get(name, ()))


def _called_by_the_file(facts: Facts, owner: ClassInfo) -> bool:
    """True where the only callers of the class's ``forward`` are in the file: it is a part of classes with their own."""
    held = False
    for use in facts.classes:
        if use.info is owner:
            continue
        names = [
            name
            for name, value in use.info.attributes.items()
            if any(atom.info is owner for atom in of_type(value, Instance))
        ]
        if not names:
            continue
        forward = use.info.methods.get("forward")
        if forward is None or not any(_calls_part(forward.node, name) for name in names):
            return False
        held = True
    return held


def _calls_part(function: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        for node in walk(function)
    )


# -- functions put in the place of a method -------------------------------------------------------------------------


def _patches(facts: Facts) -> Iterator[LibraryCalled]:
    yield from _registered(facts)
    yield from _by_helpers(facts)
    yield from _decoders(facts)
    places = {id(use.info.node): use.place for use in facts.functions}
    for use in facts.attributes:
        if use.action != "store":
            continue
        if use.name in ("forward", "prepare_inputs_for_generation"):
            if use.name == "forward" and _held_by_own_module(use):
                continue
            for info in _with_wrapped(facts, [atom.info for atom in of_type(use.assigned, LocalFunction)]):
                item = _patched(facts, use, info, places.get(id(info.node), use.place))
                if item is not None:
                    item = replace(item, filled=filled_beside(facts, use, info))
                    here = id(info.node) in places
                    yield item if here else replace(item, elsewhere=True)
        elif use.name in ATTENTION_PARTS:
            yield from _replaced_part(facts, use)
        else:
            yield from _replaced_class(facts, use)


def _with_wrapped(facts: Facts, functions: list[FunctionInfo]) -> Iterator[FunctionInfo]:
    """The functions, and those of the project that they hand all their arguments on to, as they came."""
    for info in functions:
        yield info
        spec = info.node.args
        if spec.vararg is None or spec.kwarg is None or len(functions) > MANY:
            continue
        for use in facts.calls:
            if use.place.function is info and hands_all_on(use.node, spec.vararg.arg, spec.kwarg.arg):
                for atom in of_type(use.callee, LocalFunction):
                    if atom.info not in functions:
                        functions.append(atom.info)


def hands_all_on(node: ast.Call, args: str, kwargs: str) -> bool:
    """``f(*args, **kwargs)``, with more in front at most."""
    return (
        bool(node.args)
        and isinstance(node.args[-1], ast.Starred)
        and isinstance(node.args[-1].value, ast.Name)
        and node.args[-1].value.id == args
        and len(node.keywords) == 1
        and node.keywords[0].arg is None
        and isinstance(node.keywords[0].value, ast.Name)
        and node.keywords[0].value.id == kwargs
    )


def _held_by_own_module(use: AttributeUse) -> bool:
    """True for ``self.attn.forward = f`` in a module of the project that calls what it holds in its own ``forward``."""
    owner, holder = use.place.owner, use.value_node
    forward = owner.method("forward") if owner is not None else None
    return (
        owner is not None
        and forward is not None
        and isinstance(holder, ast.Attribute)
        and isinstance(holder.value, ast.Name)
        and holder.value.id == "self"
        and owner.bases_known()
        and not any(base.startswith("transformers.") for base in owner.foreign_bases())
        and _calls_part(forward.node, holder.attr)
        and not _hands_on_keywords(forward.node, holder.attr)
    )


def _hands_on_keywords(function: ast.AST, name: str) -> bool:
    """True where a part is called with the ``**kwargs`` of whoever calls, the library among them."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and any(keyword.arg is None for keyword in node.keywords)
        for node in walk(function)
    )


def _by_helpers(facts: Facts) -> Iterator[LibraryCalled]:
    """Functions that a helper of the project is told to put in the place of a method."""
    places = {id(use.info.node): use.place for use in facts.functions}
    for item in installed_by_helpers(facts):
        if item.member in ("forward", "prepare_inputs_for_generation"):
            line = item.use.node.lineno
            where = LinkedPlace(item.target, item.member, ("", item.function.qualname), line, ("", line))
            place = places.get(id(item.function.node))
            found = _at_place(facts, item.function, place or item.use.place, where, item.function.name)
            if found is not None:
                yield replace(found, patched=item.use, elsewhere=place is None)


def _decoders(facts: Facts) -> Iterator[LibraryCalled]:
    """Functions that ``generate`` is told to decode with: it hands them what it would hand to its own."""
    places = {id(use.info.node): use.place for use in facts.functions}
    for use in facts.calls:
        for word, value in use.keywords:
            for atom in of_type(value, LocalFunction) if word == "custom_generate" else ():
                place = places.get(id(atom.info.node))
                if place is not None:
                    yield LibraryCalled(
                        atom.info, place, "model", kind_names(facts, "model"), atom.info.name, patched=use
                    )


def _outermost(facts: Facts, items: list[LibraryCalled]) -> Iterator[LibraryCalled]:
    """Leaves out the parts that other items call themselves: a model by its head, layers by a model, attention by a layer."""
    everywhere = _hidden_patches(facts)
    layers = "model" in everywhere or any(
        item.role == "model" and _mentions(item.info.node, LAYER_LISTS) for item in items
    )
    attention = [item.info for item in items if item.role == "layer" and _calls_attention(item.info.node)]
    models = [(item.info, _called_members(item.info.node)) for item in items if item.role == "model"]
    for item in items:
        beside = _replaced_beside(facts, item)
        part = _part_put_on(item)
        if item.role == "model" and part and any(part in called for info, called in models if info is not item.info):
            continue
        if item.role == "layer" and (layers or "model" in beside):
            continue
        hidden = everywhere or "layer" in beside
        if item.role == "attention" and (hidden or any(info is not item.info for info in attention)):
            continue
        yield item


def _replaced_beside(facts: Facts, item: LibraryCalled) -> set[str]:
    """The kinds of modules whose ``forward`` is replaced by the function that puts the item in its place, and by those that
    it calls."""
    around = item.patched.place.function if item.patched is not None else None
    if around is None:
        return set()
    called = [
        atom.info for use in facts.calls if use.place.function is around for atom in of_type(use.callee, LocalFunction)
    ]
    return {kind for info in called for kind in info.replaces} | (around.replaces - {item.role})


def _part_put_on(item: LibraryCalled) -> str:
    """The name of the part of an object that the item is put on: ``model`` of ``top.model.forward = f``."""
    target = item.patched.value_node if isinstance(item.patched, AttributeUse) else None
    return target.attr if isinstance(target, ast.Attribute) else ""


def _called_members(function: ast.AST) -> set[str]:
    return {
        node.func.attr for node in walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def _hidden_patches(facts: Facts) -> set[str]:
    """Kinds ("model", "layer") of classes of transformers whose ``forward`` is replaced by something that is not seen.

    It may call the parts, which are replaced too, in a way of its own.
    """
    kinds: set[str] = set()
    for use in facts.assigns:
        target = use.target
        if (
            isinstance(target, ast.Attribute)
            and target.attr == "forward"
            and all(isinstance(a, Unknown) for a in use.value)
        ):
            name = target.value.attr if isinstance(target.value, ast.Attribute) else getattr(target.value, "id", "")
            if name.endswith(("DecoderLayer", "Block")):
                kinds.add("layer")
            elif name.endswith("Model"):
                kinds.add("model")
    return kinds


def _mentions(function: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in names for node in walk(function))


def _calls_attention(function: ast.AST) -> bool:
    return any(_calls_part(function, name) for name in ATTENTION_PARTS)


def _patched(facts: Facts, use: AttributeUse, info: FunctionInfo, place: Place) -> LibraryCalled | None:
    shown = info.name
    if use.name == "prepare_inputs_for_generation":
        return LibraryCalled(info, place, "prepare", kind_names(facts, "model"), shown, patched=use)
    for atom in use.value:
        if isinstance(atom, Symbol) and atom.name.startswith("transformers."):
            canonical = facts.timeline.canonical(atom.name) or atom.name
            kind = facts.timeline.class_kind(canonical)
            names = class_names(facts, atom.name)
            if called_by_users_alone(facts, canonical):
                return None
            if kind in ("model", "layer", "attention") and names:
                encoder = is_encoder_family(atom.name.rpartition(".")[2])
                return LibraryCalled(info, place, kind, names, shown, encoder, patched=use)
            if names and is_mixer(kind, atom.name):
                return LibraryCalled(info, place, "mixer", names, shown, patched=use)
            if is_layer_class(atom.name) and not facts.timeline.knows(atom.name):
                return LibraryCalled(info, place, "attention", kind_names(facts, "attention"), shown, patched=use)
            return None
        if isinstance(atom, Model):
            if atom.role == "model" and atom.certainty < Certainty.CONTEXT and not isinstance(use.value_node, ast.Name):
                return None
            return LibraryCalled(info, place, atom.role, kind_names(facts, atom.role), shown, patched=use)
        if isinstance(atom, LocalClass):
            role, names, encoder = _class_role(facts, atom.info)
            return LibraryCalled(info, place, role, names, shown, encoder, patched=use) if role else None
    if all(isinstance(atom, (Unknown, ModelLayers)) for atom in use.value):
        if picks_other_classes(facts, use.node):
            return None
        role = role_by_parameters(info)
        if role:
            return LibraryCalled(info, place, role, kind_names(facts, role), shown, patched=use)
    return None


def _replaced_part(facts: Facts, use: AttributeUse) -> Iterator[LibraryCalled]:
    """``layer.self_attn = FastAttention()`` in the layers of a model."""
    if not any(isinstance(atom, Model) and atom.role == "layer" for atom in use.value):
        return
    for atom in of_type(use.assigned, Instance):
        forward = atom.info.methods.get("forward")
        place = next((item.place for item in facts.functions if item.info is forward), None)
        if forward is not None and place is not None and not _class_role(facts, atom.info)[0]:
            names = kind_names(facts, "attention")
            yield LibraryCalled(forward, place, "attention", names, f"{atom.info.name}.forward", patched=use)


def _replaced_class(facts: Facts, use: AttributeUse) -> Iterator[LibraryCalled]:
    """``modeling_llama.LlamaAttention = MyAttention``."""
    for symbol in of_type(use.value, Symbol):
        qualified = f"{symbol.name}.{use.name}"
        kind = facts.timeline.class_kind(qualified)
        names = class_names(facts, qualified)
        if kind in ("model", "layer", "attention") and names:
            yield from _stands_in(facts, use, use.assigned, kind, names, qualified)


def _registered(facts: Facts) -> Iterator[LibraryCalled]:
    """``LLAMA_ATTENTION_CLASSES["eager"] = MyAttention`` and ``.update({...})``: models of that file pick it there."""
    named = {id(use.node): use.qualified for use in facts.symbols if use.qualified.startswith("transformers.models.")}
    if not named:
        return
    for use in facts.assigns:
        if isinstance(use.target, ast.Subscript) and id(use.target.value) in named:
            yield from _put_into(facts, use, use.value, named[id(use.target.value)])
    for call in facts.calls:
        for symbol in of_type(call.callee, Symbol):
            if symbol.name.startswith("transformers.models.") and symbol.name.endswith(".update"):
                given = [value for _, value in call.keywords]
                for atom in (atom for value in call.arguments for atom in of_type(value, DictDisplay)):
                    given += [value for _, value in atom.items]
                for value in given:
                    yield from _put_into(facts, call, value, symbol.name.removesuffix(".update"))


def _put_into(facts: Facts, use: AssignUse | CallUse, value: Value, qualified: str) -> Iterator[LibraryCalled]:
    """The ``forward`` of a class that is put into a registry of transformers, called as those that it held."""
    names: dict[str, ReleaseSet] = {}
    first = ""
    for releases, held in facts.timeline.held_classes(qualified):
        for cls in held:
            for name, taken in class_names(facts, cls).items():
                names[name] = names.get(name, NO_RELEASE) | (taken & releases & use.place.releases)
                first = first or cls
    if first:
        role = facts.timeline.class_kind(first) or "attention"
        encoder = is_encoder_family(first.rpartition(".")[2])
        yield from _stands_in(facts, use, value, role, names, qualified, encoder)


def _stands_in(
    facts: Facts,
    use: AttributeUse | AssignUse | CallUse,
    value: Value,
    role: str,
    names: Mapping[str, ReleaseSet],
    qualified: str,
    encoder: bool = False,
) -> Iterator[LibraryCalled]:
    """The ``forward`` of a class of the project that takes the place of one of transformers."""
    for atom in of_type(value, LocalClass):
        forward = atom.info.methods.get("forward")
        place = next((item.place for item in facts.functions if item.info is forward), None)
        if place is None and _class_role(facts, atom.info)[0]:
            continue  # the class derives from one that the library calls: the file that defines it is told
        if forward is not None:
            yield LibraryCalled(
                forward,
                place or use.place,
                role,
                names,
                f"{atom.info.name}.forward",
                encoder,
                elsewhere=place is None,
                patched=use,
                replaces=qualified,
            )


def picks_other_classes(facts: Facts, node: ast.AST) -> bool:
    """True where the module is picked by names of classes of which transformers has none: code from the hub calls it.

    A name such as ``Attention`` is no name of transformers' own, even if some file of it has a class that is called so.
    """
    assert facts.tree is not None
    names: set[str] = set()
    for test in walk(facts.tree):
        if isinstance(test, ast.If) and any(other is node for item in test.body for other in walk(item)):
            names |= {
                item.value for item in walk(test.test) if isinstance(item, ast.Constant) and isinstance(item.value, str)
            }
    names = {name for name in names if name.isidentifier() and name.endswith(CLASS_ENDINGS)}
    if not names:
        return False
    return not names & class_names_of_library(facts)


def role_by_parameters(info: FunctionInfo) -> str:
    """What a function that takes the place of some module's ``forward`` stands for, by the names of its parameters."""
    names = {arg.arg for arg in info.parameters()}
    if "hidden_states" in names and names & {"position_embeddings", "attention_mask", "position_ids"}:
        return "attention"
    if "input_ids" in names and names & {"attention_mask", "inputs_embeds"}:
        return "model"
    return ""
