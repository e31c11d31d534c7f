"""``cache.crop(n)``: the argument was the length to keep, it is the number of tokens to remove, below zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.evaluate import handler_names
from kvlint.analysis.facts import AttributeUse, CallUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import CACHE, DYNAMIC_CACHE, STATIC_CACHE, CacheObject, NegativeNumber, Value, literal
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import tree_of
from kvlint.checks.receivers import describe, known_cache
from kvlint.checks.signs import NEGATIVE, POSITIVE, ZERO, Signs, sign_of
from kvlint.checks.words import KNOWN_CACHE
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet
from kvlint.rewriting import has_comment, is_plain, minimal, parenthesised

ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.MatMult)
"""Operators that bind at least as strongly as the minus sign behind them."""
BROAD = frozenset({"ValueError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class Argument:
    """The argument of one ``crop`` call."""

    node: ast.expr
    keyword: str
    value: Value
    signs: int

    @property
    def number(self) -> int | None:
        found = literal(self.value)
        return found if isinstance(found, int) else None

    @property
    def is_negative(self) -> bool:
        """Below zero, or nothing to remove; a minus in front of what is not known says so."""
        by_form = bool(self.value) and all(isinstance(atom, NegativeNumber) for atom in self.value)
        return (self.number is None and (by_form or not self.signs & POSITIVE)) or (self.number or 0) < 0

    @property
    def is_positive(self) -> bool:
        """A number of tokens to keep: a length, a count, never below zero."""
        return not self.signs & NEGATIVE and bool(self.signs & POSITIVE)


class CropArgument(Check):
    """Reports ``crop`` calls whose argument means something else or raises."""

    triggers = ("crop",)
    pattern = KNOWN_CACHE

    def findings(self, facts: Facts) -> Iterator[Finding]:
        calls = {id(use.node): use for use in facts.calls}
        for use in facts.attributes:
            cache = known_cache(use.value)
            if use.name != "crop" or use.call is None or cache is None or id(use.call) not in calls:
                continue
            if cache.local_class is not None and cache.local_class.defines("crop"):
                continue
            argument = argument_of(facts, calls[id(use.call)], path_of(use.value_node))
            if argument is not None:
                yield from self._of_call(facts, use, cache, argument)

    def _of_call(self, facts: Facts, use: AttributeUse, cache: CacheObject, argument: Argument) -> Iterator[Finding]:
        assert use.call is not None
        in_force = use.place.releases & cache.when
        refused = refused_keyword(facts, cache, argument.keyword)
        if refused & in_force and not use.place.caught & {"TypeError", "Exception"}:
            yield self.finding(
                facts,
                use.call,
                use.place,
                f"`crop` takes no `{argument.keyword}`: TypeError {{when}}",
                releases=refused & in_force,
                life=refused,
                help="pass the number of tokens to remove by position, below zero: right on every release",
                origin=cache.origin,
                fix=crop_fix(facts, use, cache, argument),
            )
            return
        caught = bool(use.place.caught & BROAD)
        if argument.is_negative or (caught and not thrown_away(facts, use)):
            return
        if argument.keyword == "tokens_to_remove" and argument.number is None:
            return  # written for the new meaning; its sign is not to be seen
        if argument.signs == ZERO:
            yield from self._zero(facts, use, cache)
            return
        if not argument.is_positive:
            return  # a difference, a number from elsewhere: its sign is not to be seen
        life = releases_of(facts.timeline, "crop-positive")
        error = "ValueError"
        if cache.cls == STATIC_CACHE:  # older releases have no `crop` for its layers at all: KV201
            life, error = facts.timeline.matching(">=5.24"), "RuntimeError"
        wrong = in_force & life
        if wrong:
            yield self.finding(
                facts,
                use.call,
                use.place,
                f"`crop` of {describe(cache)} takes the number of tokens to remove, below zero; "
                f"a positive one (the length to keep) raises {error} {{when}}"
                + (", and the `except` around throws the cache away every time" if caught else ""),
                releases=wrong,
                life=life,
                category=Category.SILENT if caught else None,
                help="write `cache.crop(min(0, length - cache.get_seq_length()))`, or `cache.crop(-n)` to remove n tokens",
                origin=cache.origin,
                fix=crop_fix(facts, use, cache, argument),
            )
            return
        life = releases_of(facts.timeline, "crop-positive-warns")
        if not caught and in_force & life and cache.cls != STATIC_CACHE:
            yield self.finding(
                facts,
                use.call,
                use.place,
                "a positive argument of `crop` is deprecated {when} and raises from 5.20",
                releases=in_force & life,
                life=life,
                category=Category.DEPRECATED,
                help="write `cache.crop(min(0, length - cache.get_seq_length()))`",
                origin=cache.origin,
                fix=crop_fix(facts, use, cache, argument),
            )

    def _zero(self, facts: Facts, use: AttributeUse, cache: CacheObject) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "crop-zero")
        wrong = use.place.releases & cache.when & life
        if wrong and use.call is not None and not facts.in_transformers:
            yield self.finding(
                facts,
                use.call,
                use.place,
                "`crop(0)` does nothing {when}; before, it emptied the cache",
                releases=wrong,
                life=life,
                category=Category.SILENT,
                help="build a new cache, or `cache.reset()` (5.18 and newer)",
                origin=cache.origin,
            )


def thrown_away(facts: Facts, use: AttributeUse) -> bool:
    """True where the handler that takes the exception puts something else in the cache's place: nothing says then that
    the call never works."""
    path = path_of(use.value_node)
    child: ast.AST = use.node
    for node in tree_of(facts).ancestors(use.node):
        if isinstance(node, ast.Try) and any(child is statement for statement in node.body):
            handler = next((one for one in node.handlers if handler_names(one) & BROAD), None)
            if handler is not None:
                targets = [target for item in walk(handler) for target in assignment(item)[0]]
                if path and any(path_of(target) == path for target in targets):
                    return True
                returned = [item.value for item in handler.body if isinstance(item, ast.Return)]
                return any(isinstance(one, ast.Call) and "Cache" in ast.unparse(one.func) for one in returned)
        child = node
    return False


def argument_of(facts: Facts, use: CallUse, receiver: str) -> Argument | None:
    node = use.node
    if len(node.args) == 1 and not node.keywords and not use.starred:
        return read_argument(facts, node.args[0], "", use.arguments[0], receiver)
    if len(node.keywords) == 1 and not node.args and node.keywords[0].arg is not None:
        return read_argument(facts, node.keywords[0].value, node.keywords[0].arg, use.keywords[0][1], receiver)
    return None


def read_argument(facts: Facts, node: ast.expr, keyword: str, value: Value, receiver: str) -> Argument:
    known = literal(value)
    signs = sign_of(known) if isinstance(known, int) else Signs(facts, receiver).of(node)
    return Argument(node, keyword, value, signs)


def refused_keyword(facts: Facts, cache: CacheObject, keyword: str) -> ReleaseSet:
    """Releases on which ``crop`` does not know the keyword (old names that are renamed with a warning are known)."""
    found = ReleaseSet(0)
    if not keyword:
        return found
    cls = cache.cls if cache.cls != CACHE else DYNAMIC_CACHE
    for releases, signature in facts.timeline.signatures(cls, "crop"):
        if signature.parameter(keyword) is None and not signature.accepts_kwargs:
            found |= releases
    for releases, deprecations in facts.timeline.deprecations(cls, "crop"):
        if any(item.old == keyword for item in deprecations):
            found -= releases
    return found


def crop_fix(facts: Facts, use: AttributeUse, cache: CacheObject, argument: Argument) -> Fix | None:
    """The length to keep, turned into the number of tokens to remove.

    ``get_seq_length`` counts what the cache has seen. Where the length to keep is more than there is, both calls do
    nothing. Unsafe: the number may have been meant for tokens to remove.
    """
    assert use.call is not None
    if not use.place.releases <= releases_of(facts.timeline, "crop-zero") or not is_plain(use.value_node):
        return None
    start, end = facts.span(use.call)
    if has_comment(facts.text[start:end]) or argument.keyword == "tokens_to_remove":
        return None
    receiver = facts.source(use.value_node)
    node = argument.node
    if argument.is_negative:
        text = f"{receiver}.crop({facts.source(node)})"
        return Fix("Pass it by position", Applicability.SAFE, (minimal(facts.text, start, end, text),))
    source = facts.source(node)
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and ast.unparse(node.left) == f"{ast.unparse(use.value_node)}.get_seq_length()"
    ):
        removed = facts.source(node.right)
        if not isinstance(node.right, ast.Constant):
            removed = parenthesised(removed, node.right)
        text = f"{receiver}.crop(-{removed})"
    else:
        weak = isinstance(node, (ast.IfExp, ast.BoolOp, ast.Lambda, ast.NamedExpr, ast.Compare))
        kept = (
            f"({source})" if weak or (isinstance(node, ast.BinOp) and not isinstance(node.op, ARITHMETIC)) else source
        )
        text = f"{receiver}.crop(min(0, {kept} - {receiver}.get_seq_length()))"
    return Fix("Remove the rest by number", Applicability.UNSAFE, (minimal(facts.text, start, end, text),))
