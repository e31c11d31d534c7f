"""Positional arguments of library functions whose order changed: what lands in which parameter, on which releases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.names import CACHE_KEYWORDS
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import Certainty, Instance, Member, Model, SuperObject, Symbol, cache_of
from kvlint.checks.bindings import tree_of
from kvlint.checks.cache_feeds import single_value
from kvlint.checks.private_members import GENERATION_MIXIN
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Dated, Signature

MASK_FUNCTIONS = "transformers.masking_utils.create_"
POSITIONS = frozenset({"cache_position", "position_ids"})
METHODS = ("prepare_inputs_for_generation", "_prepare_cache_for_generation")


@dataclass(frozen=True, slots=True)
class Misplaced:
    """An argument that lands in another parameter than the one it was given for, or one too many."""

    node: ast.AST
    life: ReleaseSet
    says: str


def misplaced(facts: Facts, use: CallUse) -> Iterator[Misplaced]:
    """What is wrong with the positional arguments of a call, if it goes to one of these functions."""
    if len(use.callee) != 1 or any(isinstance(item, ast.Starred) for item in use.node.args):
        return
    shown, signatures, own = called(facts, use)
    if not signatures or len(use.node.args) < 2:
        return
    too_many = NO_RELEASE
    for releases, signature in signatures:
        if not signature.accepts_args and len(use.node.args) > len(signature.positional):
            too_many |= releases
    if (too_many - own) & use.place.releases:
        says = f"`{shown}` takes fewer positional arguments {{when}}: TypeError"
        yield Misplaced(use.node, too_many - own, says)
        return
    for index, (node, value) in enumerate(zip(use.node.args, use.arguments, strict=False)):
        if index and (cache_of(value, Certainty.CONTEXT) is not None or named_cache(node)):
            taken, other = by_place(signatures, index)
            if taken and other:
                parameter = next(iter(sorted(other)))
                life = other[parameter] - own
                says = f"argument {index + 1} of `{shown}` is `{parameter}` {{when}}, and a cache is given: it raises"
                if life:
                    yield Misplaced(node, life, says)
                return
        taken, other = by_place(signatures, index) if index else (NO_RELEASE, {})
        if taken and POSITIONS & other.keys() and taken - own and holds_positions(facts, node):
            says = f"argument {index + 1} of `{shown}` is the cache {{when}}, and positions are given: it raises"
            yield Misplaced(node, taken - own, says)
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


def called(facts: Facts, use: CallUse) -> tuple[str, Dated[Signature], ReleaseSet]:
    """The function that a call reaches: how it is called, its signatures, and the releases on which a class of its own
    has the method in another order."""
    atom = use.callee[0]
    if isinstance(atom, Symbol):
        canonical = facts.timeline.canonical(atom.name) or atom.name
        if canonical.startswith(MASK_FUNCTIONS):
            return canonical.rpartition(".")[2], facts.timeline.signatures(canonical), NO_RELEASE
    if isinstance(atom, Member) and atom.name in METHODS:
        classes = model_classes_of(atom)
        if classes is not None:
            own = NO_RELEASE
            for cls in classes:
                own |= facts.timeline.defines(cls, atom.name)
            return atom.name, facts.timeline.signatures(GENERATION_MIXIN, atom.name), own
    return "", (), NO_RELEASE


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
