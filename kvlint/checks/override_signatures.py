"""Methods of cache and layer subclasses against what the library calls: parameters, names that nothing calls, abstract ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import ClassUse, Facts, FunctionUse, Place
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.behaviour import releases_of
from kvlint.checks.absent_values import place_at
from kvlint.checks.library_contracts import layer_positions, no_longer_called
from kvlint.checks.receivers import cache_class
from kvlint.nodes import walk
from kvlint.releases import ReleaseSet

OLD_LIMIT, NEW_LIMIT = "get_max_cache_shape", "get_max_length"
ABSTRACT_LAYER = "CacheLayerMixin"


@dataclass(frozen=True, slots=True)
class Misfit:
    """An override that does not fit. *silent* where nothing raises."""

    node: ast.AST
    name: str
    """The method or class at whose name the finding stands; "" for *node* itself."""
    place: Place
    life: ReleaseSet
    says: str
    help: str
    silent: bool = False


def misfits(facts: Facts) -> Iterator[Misfit]:
    """Every override of the region that the library cannot call as it does, or does not call."""
    for definition in facts.functions:
        owner = definition.info.owner
        if owner is None or definition.info.is_static:
            continue
        layer, cache = derives_from_layer(facts, owner), derives_from_cache(facts, owner)
        if not layer and not cache:
            continue
        if definition.info.name == "lazy_initialization" and layer:
            yield from one_state(facts, definition)
        elif definition.info.name == "get_mask_sizes":
            yield from sizes_of_positions(facts, definition)
        elif definition.info.name == OLD_LIMIT and owner.method(NEW_LIMIT) is None and not is_abstract(facts, owner):
            yield from old_limit(facts, definition)
    for item in facts.classes:
        yield from abstract_limit(facts, item)


def one_state(facts: Facts, definition: FunctionUse) -> Iterator[Misfit]:
    """``lazy_initialization(self, key_states)``: layers hand over keys and values."""
    spec = definition.info.node.args
    if spec.vararg is not None or len([*spec.posonlyargs, *spec.args]) != 2 or len(spec.defaults) == 2:
        return
    yield Misfit(
        definition.info.node,
        definition.info.name,
        definition.place,
        layer_positions(facts, "lazy_initialization", 2),
        "`lazy_initialization` is called with keys and values {when}: TypeError, this one takes one of them",
        "take `key_states, value_states`; on older releases the values are not passed: `value_states=None`",
    )


def sizes_of_positions(facts: Facts, definition: FunctionUse) -> Iterator[Misfit]:
    """``get_mask_sizes(self, cache_position, ...)`` whose body uses the positions as a tensor: an int comes."""
    info = definition.info
    positional = [*info.node.args.posonlyargs, *info.node.args.args]
    if len(positional) < 2:
        return
    name = positional[1].arg
    for node in walk(info.node):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return
        if isinstance(node, ast.Call) and any(isinstance(item, ast.Name) and item.id == name for item in node.args):
            return  # it may be asked what it is, or turned into what is needed
    for node in walk(info.node):
        of_tensor = isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name)
        if of_tensor and node.value.id == name:  # type: ignore[attr-defined]
            yield Misfit(
                node,
                "",
                place_at(facts, node, definition.place),
                releases_of(facts.timeline, "mask-sizes-query-length"),
                f"`get_mask_sizes` is called with the number of new tokens {{when}}, an int: `{name}` is no tensor",
                "use it as the query length",
            )
            return


def old_limit(facts: Facts, definition: FunctionUse) -> Iterator[Misfit]:
    """``get_max_cache_shape`` in a subclass: the library asks ``get_max_length``."""
    if called_in_file(facts, OLD_LIMIT) or only_says_none(definition.info):
        return
    yield Misfit(
        definition.info.node,
        definition.info.name,
        definition.place,
        no_longer_called(facts, OLD_LIMIT),
        f"nothing calls `{OLD_LIMIT}` {{when}}: the library asks `{NEW_LIMIT}()`, which is inherited here",
        f"override `{NEW_LIMIT}` as well",
        silent=True,
    )


def only_says_none(info: FunctionInfo) -> bool:
    """True where the method says that there is no limit, which is what the inherited one says."""
    returns = [node.value for node in walk(info.node) if isinstance(node, ast.Return)]
    return all(value is None or ast.unparse(value) in ("None", "-1") for value in returns)


def called_in_file(facts: Facts, name: str) -> bool:
    return any(isinstance(call.node.func, ast.Attribute) and call.node.func.attr == name for call in facts.calls)


def abstract_limit(facts: Facts, item: ClassUse) -> Iterator[Misfit]:
    """A layer class derived from the abstract one, without the method that became abstract."""
    info = item.info
    if not is_abstract(facts, info) or not info.bases_known() or info.method(NEW_LIMIT) is not None:
        return
    if info.method("update") is None or info.method("get_seq_length") is None:
        return  # it is abstract itself
    yield Misfit(
        info.node,
        info.name,
        item.place,
        releases_of(facts.timeline, "max-length-abstract"),
        f"`{info.name}` has no `{NEW_LIMIT}`, which is abstract {{when}}: TypeError, it cannot be instantiated",
        f"define `{NEW_LIMIT}`; `{OLD_LIMIT}` was its name before 5.13",
    )


def is_abstract(facts: Facts, info: ClassInfo) -> bool:
    """True for a class that derives from the abstract layer and from no other class of transformers."""
    bases = [base for base in info.foreign_bases() if base.startswith("transformers.")]
    return bool(bases) and all(base.rpartition(".")[2] == ABSTRACT_LAYER for base in bases)


def derives_from_layer(facts: Facts, info: ClassInfo) -> bool:
    """True for a subclass of a layer that holds keys and values (those of linear attention are called in other ways)."""
    return any(
        facts.timeline.is_layer_class(facts.timeline.canonical(base) or base) and "Linear" not in base
        for base in info.foreign_bases()
        if base.startswith("transformers.")
    )


def derives_from_cache(facts: Facts, info: ClassInfo) -> bool:
    return any(cache_class(facts, base) is not None for base in info.foreign_bases())
