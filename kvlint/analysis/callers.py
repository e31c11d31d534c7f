"""Who calls a method of a model class: the library, or code of the project alone."""

from __future__ import annotations

import ast
import re

from kvlint.analysis.library import GENERATION_MIXIN, PRE_TRAINED_MODEL
from kvlint.analysis.names import CACHE_NAMES, CACHE_OUTPUT_KEYS
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.engine.units import Surroundings
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Timeline

PREPARE = "prepare_inputs_for_generation"
GENERATIVE_NAMES = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "ForQuestionGeneration",
    "ForSpeechSeq2Seq",
)
JUDGING_NAMES = ("Classification", "QuestionAnswering", "MultipleChoice", "ForMaskedLM", "ForRetrieval")
MAIN_INPUT = re.compile(r"ids|embeds|input|token")
"""What ``generate`` hands to ``forward`` at every step has such a name (``generation/utils.py``: ``input_ids``,
``inputs_embeds``, ``decoder_input_ids``); models may be called with other ones than they take."""


BESIDE_IDS = frozenset({"position_ids", "token_type_ids"})
"""What ``generate`` hands over beside the ids, and never in their place."""
CACHE_PARAMETERS = CACHE_NAMES | CACHE_OUTPUT_KEYS


def uncalled(info: FunctionInfo, path: str, surroundings: Surroundings, timeline: Timeline) -> ReleaseSet:
    """Releases on which the library does not call a method of a class of the project, because the project does.

    Either ``generate`` is the class's own, or could not call the method. Or the class cannot be reached from the library
    there, and a call in the project hands the method its cache. *path* is that of the class's file.
    """
    owner = info.owner
    if owner is None or info.name not in (PREPARE, "forward"):
        return NO_RELEASE
    if info.name == "forward" and (judges(owner) or (is_head(owner) and not takes_main_input(info))):
        return timeline.all
    if info.callers and generates_by_itself(owner):
        return timeline.all
    key = (path, owner.name)
    apart = surroundings.around and is_part(owner, timeline) and key not in surroundings.handed
    if apart and info.name == "forward" and any("forward" in other.methods for other in owner.ancestors()[1:]):
        return timeline.all  # a part of a part of the project's own: it is called as that one is
    if not filled_by_project(info):
        return NO_RELEASE
    if info.name == PREPARE:
        return ungenerated(owner, timeline)
    if key in surroundings.own or apart:
        return timeline.all
    return ungenerated(owner, timeline) if is_head(owner) else NO_RELEASE


def is_part(owner: ClassInfo, timeline: Timeline) -> bool:
    """True for a class that derives from a layer or an attention of transformers."""
    kinds = {timeline.class_kind(timeline.canonical(base) or base) for base in owner.foreign_bases()}
    return bool(kinds & {"layer", "attention"})


def is_head(owner: ClassInfo) -> bool:
    """True for a model class that generates, by its own hooks or by its name."""
    named = [*owner.foreign_bases(), *(info.name for info in owner.ancestors())]
    return owner.method(PREPARE) is not None or any(name.endswith((*GENERATIVE_NAMES, "Mixin")) for name in named)


def judges(owner: ClassInfo) -> bool:
    """True for a head that gives a verdict on its input, by its name: nobody has it generate."""
    return owner.name.endswith(JUDGING_NAMES) and not is_head(owner)


def ungenerated(owner: ClassInfo, timeline: Timeline) -> ReleaseSet:
    """Releases on which the library's ``generate`` never runs the class.

    ``PreTrainedModel`` brought ``GenerationMixin`` up to 4.51.
    """
    shorts = {base.rpartition(".")[2] for base in owner.foreign_bases() if base.startswith("transformers.")}
    if not owner.bases_known() or any("Mixin" in name or name.endswith(GENERATIVE_NAMES) for name in shorts):
        return NO_RELEASE
    mixed = NO_RELEASE
    for releases, bases in timeline.bases(PRE_TRAINED_MODEL):
        if GENERATION_MIXIN in bases:
            mixed |= releases
    return timeline.all - mixed


def generates_by_itself(owner: ClassInfo) -> bool:
    """True for a ``generate`` that calls the model or its hooks, and leaves nothing of it to the library."""
    method = owner.method("generate")
    if method is None:
        return False
    calls = [node for node in walk(method.node) if isinstance(node, ast.Call)]
    return any(is_own_step(node) for node in calls) and not any(is_of_library(node, owner) for node in calls)


def is_own_step(node: ast.Call) -> bool:
    """``self(...)``, ``self.forward(...)``, ``self.prepare_inputs_for_generation(...)``."""
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in ("forward", PREPARE, "__call__"):
        func = func.value
    return isinstance(func, ast.Name) and func.id == "self"


def is_of_library(node: ast.Call, owner: ClassInfo) -> bool:
    """``super().generate(...)``, ``self._sample(...)``: decoding that the class does not define."""
    func = node.func
    if not isinstance(func, ast.Attribute) or not DECODES.intersection((func.attr,)):
        return False
    is_super = isinstance(func.value, ast.Call) and getattr(func.value.func, "id", "") == "super"
    is_self = isinstance(func.value, ast.Name) and func.value.id == "self"
    return is_super or (is_self and func.attr != "generate" and owner.method(func.attr) is None)


DECODES = frozenset(
    {"generate", "_sample", "_beam_search", "_assisted_decoding", "_greedy_search", "sample", "beam_search"}
    | {"greedy_search", "contrastive_search", "assisted_decoding", "group_beam_search", "constrained_beam_search"}
)
"""Methods of ``GenerationMixin`` that decode (``generation/utils.py``)."""


def filled_by_project(info: FunctionInfo) -> bool:
    """True where a call in the project hands over a parameter for the cache."""
    return any(info.arguments.get(name) for name in CACHE_PARAMETERS & {arg.arg for arg in info.parameters()})


def filled_by_prepare(info: FunctionInfo) -> bool:
    """True for a ``forward`` that gets its cache from the ``prepare_inputs_for_generation`` of its own class.

    Not where that one asks the library's, which adds the cache under the library's name; one of the project's own classes
    above may be asked.
    """
    prepare = info.owner.method(PREPARE) if info.owner is not None and info.name == "forward" else None
    return prepare is not None and fills(prepare, info)


def fills(prepare: FunctionInfo, forward: FunctionInfo) -> bool:
    """True for a ``prepare_inputs_for_generation`` that makes the inputs of a ``forward`` by itself, or with those of the
    project's own classes above it, its cache among them."""
    names = CACHE_PARAMETERS & {arg.arg for arg in forward.parameters()}
    above = prepare.owner.ancestors()[1:] if prepare.owner is not None else ()
    written = False
    for step in [prepare, *(cls.methods[PREPARE] for cls in above if PREPARE in cls.methods)]:
        written = written or bool(names & keys_written(step.node))
        asks_above = any(
            isinstance(node, ast.Attribute) and node.attr == PREPARE and isinstance(node.value, ast.Call)
            for node in walk(step.node)
        )
        if not asks_above:
            return written
    return False


def keys_written(function: ast.AST) -> set[str]:
    """The keys and keywords that a function writes: ``{"a": x}``, ``f(a=x)``, ``d["a"] = x``."""
    found: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Dict):
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found.add(node.arg)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                found.add(node.slice.value)
    return found


def takes_main_input(info: FunctionInfo) -> bool:
    """True for a ``forward`` that ``generate`` can call: it takes the ids or the embeddings."""
    if info.node.args.kwarg is not None or info.node.args.vararg is not None:
        return True
    others = [arg.arg for arg in info.parameters()[1:] if arg.arg not in CACHE_PARAMETERS]
    return not others or any(map(MAIN_INPUT.search, set(others) - BESIDE_IDS))
