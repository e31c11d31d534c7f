"""A tuple or list of keys and values given to a model as its cache, or returned by one as its cache."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.callers import is_head
from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import keeps_own_format
from kvlint.analysis.values import Atom, LegacyCache, Value, is_promised
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import FUNCTIONS, position, tree_of
from kvlint.checks.call_targets import Argument, Target, arguments_of, target_of
from kvlint.checks.kv304_singular_cache_keyword import wrong_releases
from kvlint.checks.legacy_values import built_beside, describe_legacy, is_legacy, is_pairs
from kvlint.checks.library_calls import OTHER_FRAMEWORKS
from kvlint.checks.tuple_models import tuple_model
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.nodes import walk
from kvlint.rewriting import has_comment

KEYWORDS = ("past_key_values", "cache", "past_key_value")
NEEDS = "4.56"
TESTED = ("isinstance", "slice")


class LegacyTupleCache(Check):
    """Reports tuples where a cache object is needed."""

    triggers = ("past_key_value", "cache")
    pattern = r"past_key_value|\bcache\s*=(?!=)|[\"']cache[\"']"

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.calls:
            for item in arguments_of(use):
                if item.name not in KEYWORDS or not is_built(facts, use, item):
                    continue
                target = target_of(facts, use)
                if target is not None and converted_by_hook(facts, use):
                    continue
                if (
                    target is None
                    or target.role == "mask"
                    or (target.role == "output" and not in_model(use, item.value))
                ):
                    continue
                yield from self._found(facts, use, item, target)

    def _found(self, facts: Facts, use: CallUse, item: Argument, target: Target) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "legacy-tuple-refused")
        if target.role in ("model", "layer", "attention"):
            life -= wrong_releases(facts, target.role, item.name)  # what nobody reads raises nothing
        beside = built_beside(item.value) if not is_legacy(item.value) else ()
        wrong = life & use.place.releases
        error = "ValueError" if target.role == "generate" else "AttributeError"
        if not wrong or use.place.caught & {error, "Exception"}:
            return
        what = describe_legacy(beside or item.value)
        if target.role == "output":
            message = f"{what} is returned as the cache: the next step raises {error} {{when}}, it needs a cache object"
        elif beside:
            message = f"{target.shown} gets {what} as its cache on one path: {error} {{when}}"
        else:
            message = f"{target.shown} gets {what} as its cache: {error} {{when}}"
        model = tuple_model(facts, use.place.function) if target.role == "output" else None
        yield self.finding(
            facts,
            item.keyword,
            use.place,
            message,
            releases=wrong,
            life=life,
            help="`DynamicCache(pairs)` takes one (keys, values) pair for each layer (4.56 and newer); encoder-decoder "
            "models need `EncoderDecoderCache(DynamicCache(self_pairs), DynamicCache(cross_pairs))`",
            fix=model.fix if model is not None else wrap(facts, use, item, target),
        )


def converted_by_hook(facts: Facts, use: CallUse) -> bool:
    """True where the module that is called has a hook of the file, which may make a cache of what is given."""
    path = path_of(use.node.func)
    for other in facts.calls:
        func = other.node.func
        if isinstance(func, ast.Attribute) and func.attr == "register_forward_pre_hook":
            flag = other.keyword("with_kwargs")
            if flag is not None and path and path_of(func.value) == path:
                return True
    return False


def is_built(facts: Facts, use: CallUse, item: Argument) -> bool:
    """True for a tuple or list that the code makes; what an annotation or a test merely promises may be None as well."""
    if built_beside(item.value) and not made_here(facts, use, item.keyword.value):
        return True
    if not is_legacy(item.value) or any(map(was_not_made, item.value)):
        return False
    node = item.keyword.value
    if isinstance(node, ast.Name) and use.place.function is not None:
        parameter = use.place.function.parameter(node.id)
        return parameter is None or parameter.annotation is None
    return True


def was_not_made(atom: Atom) -> bool:
    """True for what an annotation or a test says of a value that nobody has been seen to make."""
    return is_promised(atom) or (isinstance(atom, LegacyCache) and atom.built in TESTED)


def made_here(facts: Facts, use: CallUse, node: ast.expr) -> bool:
    """True where the function of a call may itself have made pairs of a cache, for a case that it knows of."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    around = use.place.function.node if use.place.function is not None else facts.tree
    if around is None or not name:
        return True
    for statement in walk(around):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            named = any(getattr(target, "attr", getattr(target, "id", "")) == name for target in targets)
            if named and isinstance(statement.value, BUILDERS):
                return True
            if (
                named
                and isinstance(statement.value, ast.Call)
                and getattr(statement.value.func, "id", "") in COLLECTIONS
            ):
                return True
    return False


BUILDERS = (ast.Tuple, ast.List, ast.ListComp, ast.GeneratorExp, ast.IfExp, ast.BinOp)
COLLECTIONS = frozenset({"tuple", "list"})


def in_model(use: CallUse, given: Value) -> bool:
    """True inside a PyTorch model class of transformers, where the output goes back to ``generate``.

    A model that does not generate, and is no model of the library's own, is a part of one of the project: what it gives
    back goes to that one.
    """
    owner = use.place.owner
    if owner is None or owner.name.startswith(OTHER_FRAMEWORKS) or keeps_own_format(owner):
        return False
    if not is_legacy(given):
        return False  # a cache as well: what it is on which path, the function that gave it back decides
    bases = [base for base in owner.foreign_bases() if base.startswith("transformers.")]
    return bool(bases) and (is_head(owner) or any(is_whole(base) for base in bases))


def is_whole(qualified: str) -> bool:
    """True for a class of the library that brings a model, or a part of one; ``PreTrainedModel``s and mixins bring none."""
    return not qualified.endswith(("PreTrainedModel", "Mixin"))


def name_of_the_class(facts: Facts, use: CallUse) -> str:
    """What ``DynamicCache`` is called at the place of *use*; "" where no import that always runs before it gives it a name.

    Imports in other functions, in branches and for type checkers only do not count, and neither does a name that is
    bound anew.
    """
    assert facts.tree is not None
    tree = tree_of(facts)
    around = [item for item in tree.ancestors(use.node) if isinstance(item, (*FUNCTIONS, ast.Module))]
    scopes = [tree.scope(item) for item in around if not isinstance(item, ast.Lambda)]
    for other in facts.imports:
        if other.qualified.rpartition(".")[2] == "DynamicCache" and position(other.statement) < position(use.node):
            rebound = any(other.bound in scope.bindings for scope in scopes)
            if tree.parent(other.statement) in around and not rebound:
                return other.bound
    return ""


def wrap(facts: Facts, use: CallUse, item: Argument, target: Target) -> Fix | None:
    """``DynamicCache(pairs)`` in the place of pairs, where the class is imported and the pairs are known to be such."""
    if not item.written or target.role == "output" or not is_pairs(item.value):
        return None
    bound = name_of_the_class(facts, use)
    start, end = facts.span(item.keyword.value)
    if not bound or has_comment(facts.text[start:end]) or not use.place.releases <= facts.timeline.compare(">=", NEEDS):
        return None
    edits = (Edit(start, start, f"{bound}("), Edit(end, end, ")"))
    return Fix(f"Make a `{bound}` of it", Applicability.UNSAFE, edits)
