"""Is the object of a use a transformers cache? The policy that all checks of members share."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import AttributeUse, Facts, SubscriptUse
from kvlint.analysis.library import COMMON_CLASSES, STATE_CLASSES, library_of
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import ClassInfo, FunctionInfo, set_on_self
from kvlint.analysis.values import (
    CACHE,
    CacheObject,
    Certainty,
    Items,
    LayerPair,
    LegacyCache,
    Member,
    ModelOutput,
    NoneValue,
    Sequence,
    StoredTensor,
    SuperObject,
    Symbol,
    Unknown,
    Value,
    cache_of,
    is_promised,
    of_type,
    without,
)
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet

ATTRIBUTE_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})

TELLING_MEMBERS = frozenset(
    {
        "to_legacy_cache",
        "from_legacy_cache",
        "get_usable_length",
        "get_max_cache_shape",
        "key_cache",
        "value_cache",
        "seen_tokens",
        "_seen_tokens",
        "get_max_length",
        "batch_split",
        "from_batch_splits",
        "conv_states",
        "ssm_states",
        "update_conv_state",
        "update_ssm_state",
        "has_previous_state",
    }
)
"""Members by which even a merely well-named object gives itself away as a transformers cache."""


def members_of(facts: Facts, cache: CacheObject, name: str) -> ReleaseSet:
    """Releases on which the cache has the member. Where only the base class is known: on which any common class has."""
    if cache.local_class is not None and cache.local_class.defines(name):
        if not is_never_set(facts, cache.local_class, name):
            return facts.timeline.all
    library = library_of(facts.timeline)
    lives = library.member(cache.cls, name)
    if cache.cls != CACHE:  # where the class is gone, the object is some other cache
        lives |= library.member(CACHE, name) - facts.timeline.importable(cache.cls)
    return lives


def is_never_set(facts: Facts, info: ClassInfo, name: str) -> bool:
    """True for an attribute that only methods set which nothing in the project calls, by name or by a string."""
    if not all(base.startswith("transformers.") for base in info.foreign_bases()):
        return False
    if any(use.name == name and use.action == "store" and not is_self(use.value_node) for use in facts.attributes):
        return False
    setters: list[FunctionInfo] = []
    for ancestor in info.ancestors():
        if name in ancestor.methods or name in names_of_body(ancestor):
            return False
        setters += [method for method in ancestor.methods.values() if name in set_on_self(method.node)]
    return bool(setters) and not any(may_run(facts, method) for method in setters)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def names_of_body(info: ClassInfo) -> set[str]:
    """Names that the body of a class itself binds."""
    targets = [target for statement in info.node.body for target in assignment(statement)[0]]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def may_run(facts: Facts, method: FunctionInfo) -> bool:
    """True for a method that Python or the library calls, that has a decorator, or that some code may call."""
    name = method.name
    if name.startswith("__") or method.node.decorator_list or method.called or name in facts.surroundings.called:
        return True
    if any(facts.timeline.member(cls, name) for cls in (*COMMON_CLASSES, *STATE_CLASSES)):
        return True
    return re.search(rf"(?<!\bdef )\b{re.escape(name)}\b", facts.text) is not None


def kind_of(facts: Facts, cache: CacheObject, name: str) -> str:
    """What the member was on the newest release that had it: "method", "attribute", or "" where no release had it."""
    classes = (cache.cls,) if cache.cls != CACHE else (*COMMON_CLASSES, *STATE_CLASSES)
    newest, kind = -1, ""
    for cls in classes:
        for releases, found in facts.timeline.member_kind(cls, name):
            if releases.newest > newest:
                newest, kind = releases.newest, found
    return "method" if kind.endswith("method") else "attribute" if kind else ""


def receiver(facts: Facts, use: AttributeUse) -> CacheObject | None:
    """The cache that *use* reads a member of, or None where it may be something else."""
    value = without(use.value, LegacyCache, LayerPair, Sequence, Items)
    known = cache_of(value, Certainty.CONTEXT)
    if known is not None:
        unsure = known.certainty < Certainty.PROVEN or may_be_else(value)
        return None if unsure and use.name in TENSOR_MEMBERS else known
    for atom in value:
        if isinstance(atom, Symbol):
            cls = cache_class(facts, atom.name)
            if cls is not None:
                return CacheObject(cls, when=atom.when, origin=atom.origin)
        elif isinstance(atom, SuperObject):
            return inherited_from(facts, atom.info, use.name)
    if use.name not in TELLING_MEMBERS or facts.foreign_engine or use.name in own_members(facts):
        return None
    if not all(isinstance(atom, (Unknown, NoneValue, CacheObject)) for atom in value):
        return None
    name = last_name(use.value_node)
    if name and looks_like_cache(name):
        named = next((atom for atom in value if isinstance(atom, CacheObject)), None)
        return named or CacheObject(CACHE, Certainty.NAMED, "name")
    return None


def inherited_from(facts: Facts, info: ClassInfo, name: str) -> CacheObject | None:
    """The cache class that ``super().name`` in a subclass reaches, past the classes of the project in between."""
    bases = info.foreign_bases()
    known = info.bases_known() and all(base.startswith("transformers.") for base in bases)
    if not known or any(name in other.methods or name in names_of_body(other) for other in info.ancestors()[1:]):
        return None
    return next((CacheObject(cls, source="super") for base in bases if (cls := cache_class(facts, base))), None)


def own_members(facts: Facts) -> frozenset[str]:
    """Members that classes of the file define and that do not stand on a class of transformers."""
    known = facts.memo.get("own members")
    if not isinstance(known, frozenset):
        names: set[str] = set()
        for use in facts.classes:
            if not any(base.startswith("transformers.") for base in use.info.foreign_bases()):
                names |= set(use.info.methods) | use.info.assigned
        known = facts.memo["own members"] = frozenset(names)
    return known


def cache_class(facts: Facts, qualified: str) -> str | None:
    """The canonical cache class behind a dotted name."""
    if not qualified.startswith("transformers."):
        return None
    canonical = facts.timeline.canonical(qualified) or qualified
    return canonical if facts.timeline.is_cache_class(canonical) else None


def last_name(node: ast.expr) -> str:
    """The name that the object is reached by: ``x`` of ``x``, ``b`` of ``a.b``, ``k`` of ``a["k"]``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
    return ""


def known_cache(value: Value) -> CacheObject | None:
    """A cache that is more than a name; None after a test for one of what an annotation calls a list: it may be either."""
    found = cache_of(value, Certainty.CONTEXT)
    if found is not None and found.source == "isinstance" and any(map(is_promised, value)):
        return None
    return found


def may_be_else(value: Value) -> bool:
    """True where one alternative is not known at all: a function that returns a cache here, and a tensor there.

    What is not known on releases on which it is no cache takes nothing from those on which it is one.
    """
    caches = [atom.when for atom in value if isinstance(atom, CacheObject)]
    return any(isinstance(atom, Unknown) and (not caches or any(atom.when & when for when in caches)) for atom in value)


def describe(cache: CacheObject) -> str:
    """How messages call the object: its class where it is known."""
    return f"`{cache.cls.rpartition('.')[2]}`" if cache.cls != CACHE else "a cache"


@dataclass(frozen=True, slots=True)
class MissingMember:
    """A member of a cache that some release in force lacks."""

    use: AttributeUse
    cache: CacheObject
    wrong: ReleaseSet
    life: ReleaseSet


def missing_members(facts: Facts, kind: str) -> Iterator[MissingMember]:
    """Uses of members of this kind ("method", "attribute") on caches, where a release in force has no such member."""
    for use in facts.attributes:
        if use.place.caught & ATTRIBUTE_ERRORS or use.place.typing_only:
            continue
        if use.place.known_members:
            continue
        cache = receiver(facts, use)
        if cache is None or (cache.local_class is not None and not cache.local_class.bases_known()):
            continue
        lives = members_of(facts, cache, use.name)
        if not lives or kind_of(facts, cache, use.name) != kind:
            continue
        life = facts.timeline.all - lives
        wrong = use.place.releases & cache.when & life
        if wrong:
            yield MissingMember(use, cache, wrong, life)


def hidden_members(facts: Facts) -> Iterator[MissingMember]:
    """``getattr(cache, "key_cache", None)`` where a release in force lacks the member: the default hides that it is gone.

    Silent where the function asks the same object for anything else that may take its place, or where the default is no
    plain "there is none": such code knows more than one kind of cache.
    """
    for use in facts.defaults:
        cache = known_cache(use.value)
        if cache is not None and cache.certainty < Certainty.PROVEN and cache.source != "usage":
            continue
        if (
            cache is None
            or kind_of(facts, cache, use.name) != "attribute"
            or use.place.typing_only
            or use.place.known_members
            or may_be_else(use.value)
        ):
            continue
        if cache.local_class is not None and not cache.local_class.bases_known():
            continue
        if not isinstance(use.node, ast.Call) or not says_nothing(use.node.args[2]) or asked_otherwise(use):
            continue
        lives = members_of(facts, cache, use.name)
        in_force = use.place.releases & cache.when
        if lives and in_force - lives:
            yield MissingMember(use, cache, in_force - lives, facts.timeline.all - lives)


def says_nothing(node: ast.expr) -> bool:
    """True for None, False, 0 and empty collections."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    return isinstance(node, ast.Constant) and not node.value


def asked_otherwise(use: AttributeUse) -> bool:
    """True where the function around reads another member of the object, or an item of it, or asks for its kind."""
    path, function = path_of(use.value_node), use.place.function
    if not path or function is None:
        return True
    targets, _ = assignment(use.place.statement)
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    for node in walk(function.node):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and path_of(node.value) == path:
            return True
        if isinstance(node, (ast.If, ast.IfExp, ast.BoolOp)):
            parts = walk(node.values[0] if isinstance(node, ast.BoolOp) else node.test)
            decides = any(part is use.node or (isinstance(part, ast.Name) and part.id in names) for part in parts)
            if decides and any(path_of(part) == path and part is not use.value_node for part in walk(node)):
                return True  # what is done without the member needs the object
        if isinstance(node, (ast.For, ast.comprehension)) and path_of(node.iter) == path:
            return True
        if isinstance(node, ast.Call) and node is not use.node and isinstance(node.func, ast.Name):
            asks = node.func.id in ("getattr", "hasattr", "isinstance", "type", "len", "zip", "enumerate")
            if asks and node.args and path_of(node.args[0]) == path:
                return True
    return False


CONTRACT_SOURCES = frozenset({"constructed", "hook", "output", "isinstance", "self"})
"""Where a cache came from the library for certain: what the code does with it does not make it something else."""
TENSOR_MEMBERS = frozenset(
    {
        *("shape", "size", "device", "dtype", "dim", "ndim", "is_cuda", "new_zeros", "contiguous"),
        *("to", "cuda", "cpu", "half", "float"),
    }
)


NO_TENSOR_METHODS = frozenset({"cat", "update", "append", "extend", "push", "add_tokens"})
"""Methods that caches of projects have, and tensors have not."""
OWN_CACHE_CALL = re.compile(rf"[01]\s*\]\s*\.\s*(?:{'|'.join(sorted(NO_TENSOR_METHODS))})\s*\(")
PAIR_TAKERS = frozenset({"DynamicCache", "EncoderDecoderCache"})
"""Classes whose only positional argument is a collection of pairs."""


def taken_as_tensor(parent: ast.AST | None) -> bool:
    """True where the expression around a subscript treats what it yields as a tensor."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in TENSOR_MEMBERS
    return isinstance(parent, ast.Call) and ast.unparse(parent.func) in ("torch.is_tensor", "torch.cat")


def own_formats(facts: Facts) -> frozenset[tuple[int, str]]:
    """(function, path) pairs of names that the code indexes in ways that no transformers cache ever allowed.

    ``x[i] = t``, ``x[0].shape`` (a layer is a pair, no tensor), ``x[i][j]`` with a variable or with 2 and more,
    ``x[:, i]`` where the name may be something else as well; and what is turned into a cache by
    ``from_legacy_cache(x)`` or ``DynamicCache(x)``.
    """
    found: set[tuple[int, str]] = set()
    for use in facts.subscripts:
        if any(isinstance(atom, CacheObject) for atom in use.value):
            axes = isinstance(use.node.slice, ast.Tuple) and may_be_else(use.value)
            if use.path and (use.action != "load" or axes or taken_as_tensor(use.parent)):
                found.add((id(use.place.function), use.path))
        elif any(isinstance(atom, LayerPair) for atom in use.value):
            part = use.node.slice
            usual = isinstance(part, (ast.UnaryOp, ast.Slice)) or (
                isinstance(part, ast.Constant) and part.value in (0, 1)
            )
            outer = use.node.value
            if (not usual or use.action != "load") and isinstance(outer, ast.Subscript):
                path = path_of(outer.value)
                if path:
                    found.add((id(use.place.function), path))
    for call in facts.calls:
        func = call.node.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if (name == "from_legacy_cache" and call.node.args) or (name in PAIR_TAKERS and len(call.node.args) == 1):
            path = path_of(call.node.args[0])
            if path:
                found.add((id(call.place.function), path))
    return frozenset(found)


def is_its_own(cache: CacheObject, function: FunctionInfo | None) -> bool:
    """True for a parameter, a cache by its name alone, of a function whose outputs hold collections that it built and
    never a cache: it takes what it gave."""
    if cache.source != "parameter" or function is None:
        return False
    held = [atom for output in of_type(function.returns, ModelOutput) for atom in output.held]
    built = any(isinstance(atom, (Items, Sequence)) for atom in held)
    return built and all(isinstance(atom, (Items, Sequence, NoneValue)) for atom in held)


def holds_own_caches(facts: Facts) -> bool:
    """True where the items of a layer's past are objects with methods that no tensor has: caches of the project's own
    (``past_key_value[0].cat(keys, dim=2)``), behind a class that derives from a model of transformers."""
    known = facts.memo.get("own caches")
    if not isinstance(known, bool):
        nodes = walk(facts.tree) if facts.tree is not None and OWN_CACHE_CALL.search(facts.text) else []
        known = any(is_call_of_own_cache(node) for node in nodes) or any(
            isinstance(atom.of, StoredTensor) and atom.name in NO_TENSOR_METHODS
            for use in facts.calls
            for atom in of_type(use.callee, Member)
        )
        facts.memo["own caches"] = known
    return known


def is_call_of_own_cache(node: ast.AST) -> bool:
    """``past[0].cat(...)``: the method of an item of a pair that would be a tensor in every format of transformers."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    item = node.func.value
    if node.func.attr not in NO_TENSOR_METHODS or not isinstance(item, ast.Subscript):
        return False
    pair = isinstance(item.slice, ast.Constant) and item.slice.value in (0, 1)
    return pair and looks_like_cache(last_name(item.value))


def comes_in(use: SubscriptUse) -> bool:
    """True for an attribute that the function reads as others have left it: a cache from one, pairs from another."""
    return cache_of(use.value, Certainty.PROVEN) is not None and is_as_left(use.node.value, use.place.function)


def is_as_left(node: ast.expr, function: FunctionInfo | None) -> bool:
    """True for an attribute that a function has not set before it reads it, but for other branches of a condition."""
    if not isinstance(node, ast.Attribute) or function is None:
        return False
    nodes = walk(function.node)
    stores = [
        other
        for other in nodes
        if isinstance(other, ast.Attribute)
        and other.attr == node.attr
        and isinstance(other.ctx, ast.Store)
        and (other.lineno, other.col_offset) < (node.lineno, node.col_offset)
    ]
    if not stores:
        return True
    branches = [
        (item.body, item.orelse)
        for item in nodes
        if isinstance(item, ast.If) and item.orelse and is_in(node, item.orelse)
    ]
    return all(any(is_in(store, body) for body, _ in branches) for store in stores)


def is_in(node: ast.expr, body: list[ast.stmt]) -> bool:
    """True for a node that stands in these statements, by its place in the text."""
    first, last = body[0], body[-1]
    return (
        (first.lineno, first.col_offset)
        <= (node.lineno, node.col_offset)
        < (last.end_lineno or 0, last.end_col_offset or 0)
    )


def may_be_rebuilt(value: Value) -> bool:
    """True where the code itself may have put a collection of its own in the cache's place; one of Nones is a start."""
    proven = cache_of(value, Certainty.PROVEN) is not None
    made = any(isinstance(atom, CacheObject) and atom.source in ("constructed", "hook") for atom in value)
    for atom in value:
        if isinstance(atom, LegacyCache):
            if made and atom.built == "isinstance":
                continue  # the other branch of a question: nobody has been seen to make one
            if not (proven and atom.built == "annotation"):
                return True
        if isinstance(atom, Sequence) and atom.promised and proven:
            continue
        if isinstance(atom, (Items, Sequence)):
            items = atom.items if isinstance(atom, Items) else (atom.item,)
            if any(not isinstance(part, NoneValue) for item in items for part in item):
                return True
    return False
