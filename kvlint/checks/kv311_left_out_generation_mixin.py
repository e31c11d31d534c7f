"""``generate`` of a model class of the project that no longer inherits it: ``PreTrainedModel`` has no ``GenerationMixin``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import Instance, LocalClass, Member, SuperObject
from kvlint.checks.base import Check
from kvlint.checks.symbols import ATTRIBUTE_ERRORS
from kvlint.contracts import contracts_of
from kvlint.findings import Category, Finding
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet

PLAIN_BASES = ("torch.nn.", "abc.", "typing.", "builtins.")
"""Packages whose classes bring no ``generate``."""
GENERATE = "generate"


class LeftOutGenerationMixin(Check):
    """Reports ``generate`` of an object whose class inherits it on no release in force."""

    triggers = (GENERATE,)
    pattern = r"\.\s*generate\b"
    also = (("PreTrainedModel", "Model"),)
    category = Category.BREAKS

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers or facts.foreign_engine:
            return
        told: set[int] = set()
        for use in facts.attributes:
            info = asked(facts, use)
            if info is None or use.place.caught & ATTRIBUTE_ERRORS or use.place.known_members:
                continue
            inherited = inherits(facts, info)
            if inherited is None:
                continue
            wrong = use.place.releases - inherited
            if not wrong:
                continue
            yield self.finding(
                facts,
                use.node,
                use.place,
                f"`{info.name}` has no `{GENERATE}`: AttributeError {{when}}; its bases no longer bring `GenerationMixin` along",
                releases=wrong,
                life=facts.timeline.all - inherited,
                help=f"name it in the class: `class {info.name}({', '.join(map(ast.unparse, info.node.bases))}, GenerationMixin)`, "
                "from `transformers`; right on every release",
                defect=f"KV311 {info.qualname}",
                leads=id(info) not in told,
            )
            told.add(id(info))


def asked(facts: Facts, use: AttributeUse) -> ClassInfo | None:
    """The one class of the project whose ``generate`` is read, where it is none of the project's; None for anything else."""
    if use.action != "load" or use.name != GENERATE or len(use.value) != 1:
        return None
    atom = use.value[0]
    if not isinstance(atom, (Instance, SuperObject)):
        return None
    info = atom.info
    if any(GENERATE in each.methods or "__getattr__" in each.methods for each in info.ancestors()) and not isinstance(
        atom, SuperObject
    ):
        return None
    if isinstance(atom, SuperObject) and any(GENERATE in each.methods for each in info.ancestors()[1:]):
        return None
    inside = isinstance(atom, SuperObject) or (isinstance(use.value_node, ast.Name) and use.value_node.id == "self")
    return None if inside and not is_made_here(facts, info) else info


def is_made_here(facts: Facts, info: ClassInfo) -> bool:
    """True where the project itself makes an object of the class, or of one that derives from it.

    An auto class that loads code from the hub adds the mixin to a class that lacks it.
    """
    for call in facts.calls:
        for atom in call.callee:
            made = atom.of if isinstance(atom, Member) and atom.name == "from_pretrained" else atom
            if isinstance(made, LocalClass) and info in made.info.ancestors():
                return True
    return False


def inherits(facts: Facts, info: ClassInfo) -> ReleaseSet | None:
    """Releases on which the class inherits ``generate`` from transformers; None where something else may bring it."""
    if not info.bases_known() or is_given(facts, info):
        return None
    contracts = contracts_of(facts.timeline.releases)
    found, models = NO_RELEASE, False
    for base in info.foreign_bases():
        if base.startswith("transformers."):
            if base.endswith("GenerationMixin"):
                return None
            releases = contracts.generates(facts.timeline.canonical(base) or base)
            if not releases:
                return None
            found |= releases
            models = True
        elif not base.startswith(PLAIN_BASES):
            return None
    return found if models else None


def is_given(facts: Facts, info: ClassInfo) -> bool:
    """True where the file puts a ``generate``, or other bases, on whatever it is."""
    if any(GENERATE in each.attributes or GENERATE in each.assigned for each in info.ancestors()):
        return True
    for node in walk(facts.tree) if facts.tree is not None else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in (GENERATE, "__bases__"):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            if isinstance(node.args[1], ast.Constant) and node.args[1].value == GENERATE:
                return True
    return False
