"""Calls of library functions whose parameters changed: what lands in which one, what is refused, what is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.names import CACHE_KEYWORDS
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Certainty, Instance, Member, Model, SuperObject, Symbol, cache_of
from kvlint.checks.bindings import tree_of
from kvlint.checks.cache_feeds import single_value
from kvlint.checks.private_members import GENERATION_MIXIN, is_hook_name
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Dated, Signature, Timeline

MASK_FUNCTIONS = "transformers.masking_utils.create_"
POSITIONS = frozenset({"cache_position", "position_ids"})
PREPARE = "prepare_inputs_for_generation"


@dataclass(frozen=True, slots=True)
class Misplaced:
    """An argument that lands in another parameter than the one it was given for, that is refused, or that is missing."""

    node: ast.AST
    life: ReleaseSet
    says: str
    help: str = "name the arguments: their order differs between releases"


@dataclass(frozen=True, slots=True)
class Called:
    """The function that a call reaches. *own*: the releases on which a class of transformers has one of its own;
    *renamed*: keywords that are taken under their old name, with the new one, by release."""

    shown: str
    signatures: Dated[Signature] = ()
    own: ReleaseSet = NO_RELEASE
    renamed: tuple[tuple[ReleaseSet, str, str], ...] = ()
    is_method: bool = False


@lru_cache(maxsize=2)
def private_methods(timeline: Timeline) -> frozenset[str]:
    """Private methods of generation around the cache of which some release knows the signature."""
    return frozenset(
        name
        for name in timeline.members(GENERATION_MIXIN)
        if is_hook_name(name) and timeline.signatures(GENERATION_MIXIN, name)
    )


def misplaced(facts: Facts, use: CallUse) -> Iterator[Misplaced]:
    """What is wrong with the arguments of a call, if it goes to one of these functions; what stops it first comes first."""
    if any(isinstance(item, ast.Starred) for item in use.node.args):
        return
    function = called(facts, use)
    if function is None:
        return
    too_many = sum_of(
        releases
        for releases, signature in function.signatures
        if not signature.accepts_args and len(use.node.args) > len(signature.positional)
    )
    if (too_many - function.own) & use.place.releases and len(use.node.args) > 1:
        says = f"`{function.shown}` takes fewer positional arguments {{when}}: TypeError"
        yield Misplaced(use.node, too_many - function.own, says)
        return
    yield from refused_names(use, function)
    yield from lacking(use, function)
    yield from in_other_places(facts, use, function)


def in_other_places(facts: Facts, use: CallUse, function: Called) -> Iterator[Misplaced]:
    """A cache by position where another parameter stands on some releases."""
    for index, (node, value) in enumerate(zip(use.node.args, use.arguments, strict=False)):
        if index and (cache_of(value, Certainty.CONTEXT) is not None or named_cache(node)):
            taken, other = by_place(function.signatures, index)
            if taken and other:
                parameter = next(iter(sorted(other)))
                life = other[parameter] - function.own
                says = f"argument {index + 1} of `{function.shown}` is `{parameter}` {{when}}, and a cache is given: it raises"
                if life:
                    yield Misplaced(node, life, says)
                return
        taken, other = by_place(function.signatures, index) if index else (NO_RELEASE, {})
        if taken and POSITIONS & other.keys() and taken - function.own and holds_positions(facts, node):
            says = (
                f"argument {index + 1} of `{function.shown}` is the cache {{when}}, and positions are given: it raises"
            )
            yield Misplaced(node, taken - function.own, says)
            return


def holds_positions(facts: Facts, node: ast.expr) -> bool:
    """True for ``torch.arange(...)``, at once or under a name that nothing else is assigned to."""
    made = single_value(tree_of(facts).scope_of(node), node)
    while (
        isinstance(made, ast.Call)
        and isinstance(made.func, ast.Attribute)
        and made.func.attr in ("to", "unsqueeze", "cuda")
    ):
        made = made.func.value
    return isinstance(made, ast.Call) and path_of(made.func).rpartition(".")[2] == "arange"


def refused_names(use: CallUse, function: Called) -> Iterator[Misplaced]:
    """Keywords that a private method does not know (those of the mask functions are told in another way)."""
    if not function.is_method:
        return
    for keyword in use.node.keywords:
        life = sum_of(
            releases
            for releases, signature in function.signatures
            if keyword.arg and not signature.accepts_kwargs and signature.parameter(keyword.arg) is None
        )
        if life - function.own:
            says = f"`{function.shown}` takes no `{keyword.arg}`: TypeError {{when}}"
            yield Misplaced(keyword, life - function.own, says, "leave it out")


def lacking(use: CallUse, function: Called) -> Iterator[Misplaced]:
    """A parameter without a default that is not given, or given under a name that ends in ``**kwargs``."""
    given = {keyword.arg for keyword in use.node.keywords}
    if None in given or not (use.node.args or given):
        return
    missing: dict[str, ReleaseSet] = {}
    for releases, signature in function.signatures:
        old = {new for when, name, new in function.renamed if when & releases and name in given}
        refused = {name for name in given if name and signature.parameter(name) is None}
        if refused and not signature.accepts_kwargs:
            continue  # told already
        by_position = {item.name for item in signature.positional[: len(use.node.args)]}
        for item in signature.parameters:
            required = item.kind in ("normal", "positional", "keyword") and item.default is None
            if required and item.name not in given | by_position | old:
                missing[item.name] = missing.get(item.name, NO_RELEASE) | releases
    for name, releases in missing.items():
        life = releases - function.own
        if life:
            node = misnamed(use, name) or use.node
            says = f"`{function.shown}` is not given `{name}`, which it needs {{when}}: TypeError"
            yield Misplaced(node, life, says, f"pass `{name}=`")


def misnamed(use: CallUse, name: str) -> ast.AST | None:
    """The keyword that was meant: one that differs from *name* by a letter (``input_embeds``)."""
    for keyword in use.node.keywords:
        if keyword.arg and keyword.arg != name and keyword.arg.replace("s", "") == name.replace("s", ""):
            return keyword
    return None


def sum_of(parts: Iterator[ReleaseSet]) -> ReleaseSet:
    found = NO_RELEASE
    for part in parts:
        found |= part
    return found


def by_place(signatures: Dated[Signature], index: int) -> tuple[ReleaseSet, dict[str, ReleaseSet]]:
    """The releases on which the parameter at a place is the cache, and the other parameters that stand there by release."""
    taken = NO_RELEASE
    other: dict[str, ReleaseSet] = {}
    for releases, signature in signatures:
        positional = signature.positional
        if index < len(positional):
            name = positional[index].name
            if name in CACHE_KEYWORDS:
                taken |= releases
            else:
                other[name] = other.get(name, NO_RELEASE) | releases
    return taken, other


def named_cache(node: ast.expr) -> bool:
    """True for a plain name of a parameter for the cache."""
    return isinstance(node, ast.Name) and node.id in CACHE_KEYWORDS


def called(facts: Facts, use: CallUse) -> Called | None:
    """The function that a call reaches; None where it may be another.

    ``getattr(model, "create_masks_for_generate", create_masks_for_generate)`` is the function: a model that has its own
    takes what that takes.
    """
    symbols = [atom for atom in use.callee if isinstance(atom, Symbol)]
    if len(symbols) == 1:
        canonical = facts.timeline.canonical(symbols[0].name) or symbols[0].name
        short = canonical.rpartition(".")[2]
        others = (atom for atom in use.callee if atom is not symbols[0])
        same = all(isinstance(one, Member) and isinstance(one.of, Model) and one.name == short for one in others)
        if canonical.startswith(MASK_FUNCTIONS) and same:
            renamed = tuple(
                (releases, item.old, item.new)
                for releases, items in facts.timeline.deprecations(canonical)
                for item in items
                if item.old and item.new
            )
            return Called(short, facts.timeline.signatures(canonical), renamed=renamed)
        return None
    atom = use.callee[0] if len(use.callee) == 1 else None
    if isinstance(atom, Member) and (atom.name == PREPARE or atom.name in private_methods(facts.timeline)):
        classes = model_classes_of(atom)
        if classes is not None:
            own = NO_RELEASE
            for cls in classes:
                own |= facts.timeline.defines(cls, atom.name)
            signatures = facts.timeline.signatures(GENERATION_MIXIN, atom.name)
            return Called(atom.name, signatures, own, is_method=atom.name != PREPARE)
    return None


def model_classes_of(atom: Member) -> list[str] | None:
    """The classes of transformers behind the object of a method, where these are known; None where it may be another."""
    of = atom.of
    if isinstance(of, Model):
        named = of.cls and not of.cls.rpartition(".")[2].startswith("Auto")
        return [of.cls] if of.certainty >= Certainty.PROVEN and of.role == "model" and named else None
    if isinstance(of, (SuperObject, Instance)):
        ancestors = of.info.ancestors()[1:] if isinstance(of, SuperObject) else of.info.ancestors()
        bases = [base for base in of.info.foreign_bases() if is_torch_model_class(base)]
        if bases and of.info.bases_known() and not any(atom.name in info.methods for info in ancestors):
            return bases
    return None
