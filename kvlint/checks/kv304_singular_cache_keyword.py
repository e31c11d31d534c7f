"""``past_key_value=`` (and other keywords of other releases): swallowed by ``**kwargs``, or refused by ``generate``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.library import is_layer_class
from kvlint.analysis.names import LAYER_LISTS
from kvlint.analysis.values import Certainty, Instance, LocalFunction, Model, Symbol, Value, cache_of, of_type
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.call_targets import Argument, Target, arguments_of, is_none, target_of
from kvlint.engine.link import LEVELS, family, level
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.nodes import assignment, statements, walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.rewriting import keyword_edit

KEYWORDS = ("past_key_value", "past_key_values", "cache")


class SingularCacheKeyword(Check):
    """Reports a cache passed under a keyword that the callee does not have on a release in force."""

    triggers = ("past_key_value", "cache")
    pattern = r"past_key_value|\bcache\s*=(?!=)|[\"']cache[\"']"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.calls:
            for item in arguments_of(use):
                if item.name not in KEYWORDS or is_none(item.value):
                    continue
                target = target_of(facts, use)
                if target is None or target.role not in ("model", "layer", "attention", "generate"):
                    continue
                if target.role in ("layer", "attention") and takes_own_part(facts, use, item.name, target.role):
                    continue
                if any(isinstance(atom, Instance) for atom in item.value):
                    continue  # an object of the project's own, for layers that take such ones: code from the hub
                if item.name == "cache" and cache_of(item.value, Certainty.CONTEXT) is None:
                    continue
                life = wrong_releases(facts, target.role, item.name)
                wrong = life & use.place.releases
                raising = raising_releases(facts, target.role, item.name)
                for raises in (False, True):
                    part = wrong & raising if raises else wrong - raising
                    if not part or (raises and use.place.caught & {"TypeError", "ValueError", "Exception"}):
                        continue
                    yield self.finding(
                        facts,
                        item.keyword,
                        use.place,
                        message(target, item.name, raises),
                        releases=part,
                        life=life & raising if raises else life - raising,
                        help=f"the keyword is {keywords_text(facts, target.role, use.place.releases)}",
                        category=Category.BREAKS if raises else Category.SILENT,
                        fix=rename(facts, use, item, target),
                    )


def takes_own_part(facts: Facts, use: CallUse, keyword: str, role: str) -> bool:
    """True where the layer or attention that ``self`` holds may be one of the file's own, whose forward has the keyword."""
    func = use.node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call):  # super().forward
        return False
    if put_in_place(facts, use, keyword, role) or is_replaced(facts, use, role):
        return True
    return any(
        other.info.name == "forward"
        and other.info.owner is not None
        and other.info.owner is not use.place.owner
        and other.info.parameter(keyword) is not None
        and any(is_layer_class(base) for base in other.info.owner.foreign_bases())
        for other in facts.functions
    )


def is_replaced(facts: Facts, use: CallUse, role: str) -> bool:
    """True where a function of the project stands for the part that is called: on objects, or on its class, beside the
    function that calls it."""
    if any(role in other.info.replaces for other in facts.functions):
        return True
    families = families_around(use)
    return any(
        place.member in ("", "forward") and level(place.target) == LEVELS[role] and family(place.target) in families
        for place in facts.surroundings.places
    )


def families_around(use: CallUse) -> set[str]:
    """The modules of transformers into whose classes the function is put that calls."""
    around = use.place.function
    return {family(place.target) for place in around.places} if around is not None else set()


def put_in_place(facts: Facts, use: CallUse, keyword: str, role: str) -> bool:
    """True where the file puts a function or a module of its own, which takes the keyword, in the place of the part that is
    called: ``layer.self_attn.forward = own``, ``model.layers = nn.ModuleList(Own(l) for l in model.layers)``."""
    func = use.node.func
    part = func.attr if isinstance(func, ast.Attribute) else ""
    families = families_around(use)
    if any(
        put.action == "store"
        and put.name == "forward"
        and any(atom.info.parameter(keyword) is not None for atom in of_type(put.assigned, LocalFunction))
        and may_stand_in(facts, put.value, role, families)
        for put in facts.attributes
    ):
        return True
    names = {part, *(LAYER_LISTS if not part else ())} - {""}
    for statement in statements(facts.tree) if facts.tree is not None else ():
        targets, value = assignment(statement)
        for target in targets if value is not None else ():
            item = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(item, ast.Attribute) and item.attr in names and makes_own_part(facts, value, keyword):
                return True
    return False


def may_stand_in(facts: Facts, value: Value, role: str, families: set[str]) -> bool:
    """True where a ``forward`` that is put on *value* gets what is handed to a part of this role: by being put there, or
    on the attention of a layer of the library, which hands on what it does not know. Classes of other *families* do not."""
    roles = {atom.role for atom in of_type(value, Model)}
    for symbol in of_type(value, Symbol):
        if families and family(symbol.name) not in families:
            return False
        roles.add(facts.timeline.class_kind(facts.timeline.canonical(symbol.name) or symbol.name) or "")
    return not roles or role in roles or (role == "layer" and "attention" in roles)


def makes_own_part(facts: Facts, node: ast.AST | None, keyword: str) -> bool:
    """True for an expression that builds an object of a class of the file whose forward has the keyword."""
    if node is None:
        return False
    made = {item.id for item in walk(node) if isinstance(item, ast.Name)}
    return any(
        use.info.name in made
        and (method := use.info.method("forward")) is not None
        and method.parameter(keyword) is not None
        for use in facts.classes
    )


def wrong_releases(facts: Facts, role: str, keyword: str) -> ReleaseSet:
    """Releases on which the library does not take the keyword, nor translates it."""
    every = facts.timeline.all
    kind = "model" if role == "generate" else role
    known = facts.timeline.keyword_of_kind(kind, keyword)
    renamed = facts.timeline.keyword_of_kind("model", "cache")
    if keyword == "past_key_value" and role in ("layer", "attention"):
        return releases_of(facts.timeline, "singular-keyword-swallowed")
    if keyword == "past_key_values":
        return every - known - renamed
    return every - known


def raising_releases(facts: Facts, role: str, keyword: str) -> ReleaseSet:
    """Releases on which the wrong keyword is noticed."""
    if role == "generate":
        return facts.timeline.all
    if role == "model" and keyword == "past_key_value":
        return releases_of(facts.timeline, "singular-keyword-raises")
    return NO_RELEASE


def message(target: Target, keyword: str, raises: bool) -> str:
    if target.role == "generate":
        return f"`generate` refuses `{keyword}=`: ValueError {{when}}"
    if raises:
        return f"{target.shown} does not take `{keyword}=`: TypeError {{when}}"
    return f"{target.shown} swallows `{keyword}=` {{when}}: the cache is neither read nor written, and nothing says so"


def keywords_text(facts: Facts, role: str, releases: ReleaseSet) -> str:
    kind = "model" if role == "generate" else role
    parts = []
    for keyword in ("past_key_value", "past_key_values", "cache"):
        known = facts.timeline.keyword_of_kind(kind, keyword) & releases
        if known:
            parts.append(f"`{keyword}=` {facts.timeline.describe(known, facts.timeline.all)}")
    return " and ".join(parts)


def rename(facts: Facts, use: CallUse, item: Argument, target: Target) -> Fix | None:
    """Renames the keyword to one that every release in force takes or translates, unless another name of it is given too."""
    new = right_keyword(facts, target.role, use.place.releases)
    others = {other.arg for other in use.node.keywords if other is not item.keyword}
    if not new or not item.written or others & {*KEYWORDS, None}:
        return None
    # Layers that are reached through a list may be those of code from the hub, which keeps its names.
    # What stands for a model may be a wrapper, or a class of the project that is registered with the library.
    if taken_by_the_project(facts, use, item.name):
        return None
    part = target.role in ("layer", "attention")
    applicability = Applicability.UNSAFE if part and target.certainty < Certainty.PROVEN else Applicability.SAFE
    return Fix(f"Pass it as `{new}`", applicability, (keyword_edit(facts, item.keyword, new),))


def taken_by_the_project(facts: Facts, use: CallUse, keyword: str) -> bool:
    """True where a ``forward`` or ``generate`` of the project takes the keyword: it may stand where the library's stood."""
    if keyword in facts.surroundings.taken:
        return True
    return any(
        other.info.name in ("forward", "generate") and other.info.parameter(keyword) is not None
        for other in facts.functions
        if other.info is not use.place.function
    )


def right_keyword(facts: Facts, role: str, releases: ReleaseSet) -> str:
    for keyword in ("cache", "past_key_values", "past_key_value"):
        if not releases & wrong_releases(facts, role, keyword):
            return keyword
    return ""
