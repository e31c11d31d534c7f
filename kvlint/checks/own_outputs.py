"""Outputs of the project that keep a cache in a field whose name ``ModelOutput`` translates: nothing is put or found there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import ClassUse, Facts
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import LocalClass, of_type

TRANSLATED = ("past_key_values", "cache_params")
"""Fields that ``ModelOutput`` keeps under another name."""
KEPT_AS = "cache"
WITHOUT_CACHE = frozenset(
    {
        *("ModelOutput", "BaseModelOutput", "BaseModelOutputWithNoAttention", "BaseModelOutputWithPooling"),
        *("CausalLMOutput", "MaskedLMOutput", "SequenceClassifierOutput", "TokenClassifierOutput"),
    }
)
"""Outputs of transformers that have no field for a cache."""


@dataclass(frozen=True, slots=True)
class LostField:
    """A field that is declared at *node*. *raises*: the class is built with it by keyword, and cannot be."""

    node: ast.Name
    use: ClassUse
    raises: bool


def lost_fields(facts: Facts) -> Iterator[LostField]:
    """Fields of output classes in which a cache gets lost.

    Where a base of transformers has the field ``cache``, one under the old name hides the property that reads it. Where
    there is none, the keyword is handed on under a name that the class does not take.
    """
    for use in facts.classes:
        fields = [item for item in declared(use.info) if item.id in TRANSLATED]
        bases = [base.rpartition(".")[2] for base in use.info.foreign_bases() if base.startswith("transformers.")]
        if not fields or not bases or not use.info.bases_known() or takes_its_own(use.info):
            continue
        for field in fields:
            if any("Output" in base and ("Past" in base or "Seq2Seq" in base) for base in bases):
                yield LostField(field, use, raises=False)
            elif WITHOUT_CACHE.issuperset(bases) and is_record(use.info) and is_given(facts, use.info, field.id):
                yield LostField(field, use, raises=True)


def declared(info: ClassInfo) -> list[ast.Name]:
    """The names of the fields that the class itself declares."""
    return [
        item.target for item in info.node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def takes_its_own(info: ClassInfo) -> bool:
    """True for a class with a field for the cache, or with an ``__init__`` that nothing translates for."""
    if info.method("__init__") is not None:
        return True
    return any(item.id == KEPT_AS for each in info.ancestors() for item in declared(each))


def is_record(info: ClassInfo) -> bool:
    """True for a class under ``@dataclass``, however it is called."""
    return any("dataclass" in ast.unparse(item) for item in info.node.decorator_list)


def is_given(facts: Facts, info: ClassInfo, field: str) -> bool:
    """True where the project builds the class, or one that derives from it, with the field as a keyword."""
    names = {info.name}
    for call in facts.calls:
        if call.keyword(field) is not None:
            if any(info in atom.info.ancestors() for atom in of_type(call.callee, LocalClass)):
                return True
    for use in facts.classes:
        if info in use.info.ancestors():
            names.add(use.info.name)
    return any(f"{name} {field}" in facts.surroundings.keywords for name in names)
