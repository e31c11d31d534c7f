"""``limit = cache.get_max_length()`` tested against None: "no limit" is -1 now."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.values import STATIC_CACHE, CacheLength, Certainty, of_type
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.receivers import known_cache, members_of
from kvlint.checks.words import CACHE_WORDS
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import assignment

FACTS = {"get_max_length": "max-length-minus-one", "get_max_cache_shape": "max-shape-minus-one"}


class MaxLengthSentinel(Check):
    """Reports lengths whose "no limit" the code looks for as None."""

    triggers = tuple(FACTS)
    also = (CACHE_WORDS,)
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        asked = nodes_asked_for_none(facts)
        for use in facts.attributes:
            if use.name not in FACTS or use.call is None or id(use.call) not in asked:
                continue
            cache = known_cache(use.value)
            if cache is None or cache.cls == STATIC_CACHE or cache.certainty < Certainty.CONTEXT:
                continue
            if cache.local_class is not None and cache.local_class.defines(use.name):
                continue
            life = releases_of(facts.timeline, FACTS[use.name]) & members_of(facts, cache, use.name)
            wrong = use.place.releases & cache.when & life
            if wrong:
                yield self.finding(
                    facts,
                    use.call,
                    use.place,
                    f"`{use.name}()` answers -1, not None, for a cache without a limit {{when}}, and the code below looks for None",
                    releases=wrong,
                    life=life,
                    help="test `limit > 0`, or drop the branch: a dynamic cache has no limit",
                    origin=cache.origin,
                    fix=None
                    if cache.source == "constructed" and not cache.config_given  # an empty one raises
                    else none_again(facts, use.call, use.place.statement),
                )


def none_again(facts: Facts, call: ast.expr, statement: ast.stmt) -> Fix | None:
    """Turns -1 into None behind ``limit = cache.get_max_length()``, which is right for either answer."""
    targets, value = assignment(statement)
    if value is not call:
        return None
    target = targets[0]
    start, end = facts.span(statement)
    line_end = facts.index.line_end(statement.end_lineno or statement.lineno)
    indent = facts.text[facts.index.line_start(statement.lineno) : start]
    behind = facts.text[end:line_end].strip()
    if len(targets) != 1 or not isinstance(target, ast.Name) or indent.strip() or (behind and behind[0] != "#"):
        return None
    unit = "\t" if "\t" in indent else "    "
    text = f"\n{indent}if {target.id} == -1:\n{indent}{unit}{target.id} = None"
    return Fix("Take -1 for None", Applicability.UNSAFE, (Edit(line_end, line_end, text),))


def nodes_asked_for_none(facts: Facts) -> set[int]:
    """The calls whose result is compared with None somewhere (and not with a number below one as well)."""
    asked: set[int] = set()
    for use in facts.compares:
        if (
            len(use.node.comparators) == 1
            and isinstance(use.node.comparators[0], ast.Constant)
            and use.node.comparators[0].value is None
        ):
            asked |= {id(atom.node) for atom in of_type(use.left, CacheLength) if atom.how in FACTS}
    for use in facts.compares:
        right = use.node.comparators[0]
        bound = right.value if isinstance(right, ast.Constant) else None
        if isinstance(right, ast.UnaryOp) and isinstance(right.op, ast.USub):
            bound = -1
        if isinstance(bound, int) and bound in (-1, 0):
            asked -= {id(atom.node) for atom in of_type(use.left, CacheLength)}
    return asked
