"""``_reorder_cache`` that builds tuples: beam search still prefers it, and needs a cache object back."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, FunctionUse
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.scopes import FunctionInfo, keeps_own_format, returns_unknown
from kvlint.analysis.values import NoneValue, only
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.legacy_values import is_legacy
from kvlint.checks.library_calls import OTHER_FRAMEWORKS, without_made_cache
from kvlint.checks.receivers import holds_own_caches
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.nodes import walk

NAME = "_reorder_cache"


class LegacyReorderCache(Check):
    """Reports ``_reorder_cache`` methods that return tuples."""

    triggers = (NAME,)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "reorder-cache-needs-cache")
        for use in facts.functions:
            owner = use.info.owner
            if owner is None or use.info.name != NAME or owner.name.startswith(OTHER_FRAMEWORKS):
                continue
            if holds_own_caches(facts) or keeps_own_format(owner) or returns_unknown(owner):
                continue
            bases = owner.foreign_bases()
            if not any(is_torch_model_class(base) for base in bases) or not takes_past(use.info):
                continue
            left = [item.value for item in facts.returns if item.place.function is use.info]
            returned = [value for value in left if not only(value, NoneValue)]  # nothing to reorder is nothing returned
            wrong = (life & use.place.releases) - without_made_cache(facts, owner)
            if not wrong or not returned or not all(is_legacy(value) for value in returned):
                continue
            start, end = name_span(facts, use.info.node)
            yield self.finding(
                facts,
                use.info.node,
                use.place,
                f"`{owner.name}.{NAME}` returns a tuple: beam search calls it and needs a cache object: AttributeError {{when}}",
                releases=wrong,
                life=life,
                help="delete the method: beam search calls `cache.reorder_cache(beam_idx)`",
                fix=delete(facts, use) if use.place.releases <= life else None,
                span=(start, end),
            )


def takes_past(info: FunctionInfo) -> bool:
    """True where the reordered thing is called like a cache; XLNet's ``mems`` are none."""
    names = [arg.arg for arg in info.parameters()]
    first = names[info.first_positional() :][:1]
    return bool(first) and looks_like_cache(first[0])


def name_span(facts: Facts, node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """Where the name stands in the ``def`` line."""
    start, _ = facts.span(node)
    found = facts.text.index(node.name, start)
    return found, found + len(node.name)


def refers(node: ast.AST) -> bool:
    """True for ``model._reorder_cache``, and for the name as a string, by which ``getattr`` asks for it."""
    return (isinstance(node, ast.Attribute) and node.attr == NAME) or (
        isinstance(node, ast.Constant) and node.value == NAME
    )


def delete(facts: Facts, use: FunctionUse) -> Fix | None:
    """Deletes the method with the blank lines around it; None where something refers to it or a comment would go."""
    node = use.info.node
    owner = use.info.owner
    assert owner is not None and facts.tree is not None
    if NAME in facts.surroundings.called or any(refers(other) for other in walk(facts.tree)):
        return None
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    start = facts.index.line_start(first)
    end = facts.index.line_end(node.end_lineno or node.lineno)
    if "#" in facts.text[start:end] or facts.text[start : facts.span(node)[0]].strip(" \t@").startswith("class "):
        return None
    body = owner.node.body
    if len(body) == 1:
        indent = facts.text[start : len(facts.text)]
        width = len(indent) - len(indent.lstrip(" \t"))
        return Fix(f"Delete `{NAME}`", Applicability.UNSAFE, (Edit(start + width, end, "pass"),))
    if body.index(node) == len(body) - 1:
        previous = body[-2]
        start = facts.index.line_end(previous.end_lineno or previous.lineno)
        return Fix(f"Delete `{NAME}`", Applicability.UNSAFE, (Edit(start, end, ""),))
    following = body[body.index(node) + 1]
    line = min([following.lineno, *(item.lineno for item in getattr(following, "decorator_list", ()))])
    between = facts.text[end : facts.index.line_start(line)]
    if "#" in between:
        return Fix(f"Delete `{NAME}`", Applicability.UNSAFE, (Edit(start, min(end + 1, len(facts.text)), ""),))
    return Fix(f"Delete `{NAME}`", Applicability.UNSAFE, (Edit(start, facts.index.line_start(line), ""),))
