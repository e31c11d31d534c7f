"""``cache._seen_tokens = n``, ``cache.key_cache = [...]``: plain attributes that nothing reads any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.values import Symbol, of_type
from kvlint.behaviour import fact, method_hint, releases_of
from kvlint.checks.absent_values import place_at
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of_cache
from kvlint.checks.receivers import describe, receiver
from kvlint.checks.words import CACHE_WORDS
from kvlint.findings import Category, Finding
from kvlint.nodes import walk

FACTS = {
    "key_cache": "attribute-lists-ignored",
    "value_cache": "attribute-lists-ignored",
    "_seen_tokens": "seen-tokens-ignored",
    "seen_tokens": "seen-tokens-ignored",
}
PROPERTY_RELEASES = ">=4.54,<4.56"
"""On these ``key_cache`` and ``value_cache`` are properties without a setter."""
REGISTRARS = ("register_pytree_node", "_register_pytree_node")


class DeadCacheAttributeAssignment(Check):
    """Reports assignments to attributes of a cache that have no effect."""

    triggers = tuple(FACTS)
    also = (CACHE_WORDS,)
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        yield from self._unflattened(facts)
        for use in facts.attributes:
            if use.action != "store" or use.name not in FACTS or use.place.known_members:
                continue
            cache = receiver(facts, use)
            if cache is None or cache.local_class is not None:
                continue
            known = fact(FACTS[use.name])
            silent = releases_of(facts.timeline, FACTS[use.name])
            raising = (
                facts.timeline.matching(PROPERTY_RELEASES)
                if use.name in ("key_cache", "value_cache")
                else silent - silent
            )
            in_force = use.place.releases & cache.when
            dead = (
                f"assigning `{use.name}` of {describe(cache)} changes nothing {{when}}: {known.says}; "
                "it sets a plain attribute"
            )
            refused = f"`{use.name}` of {describe(cache)} cannot be assigned: AttributeError, the property has no setter, {{when}}"
            for life, message, category in (
                (silent - raising, dead, Category.SILENT),
                (raising, refused, Category.BREAKS),
            ):
                if in_force & life:
                    yield self.finding(
                        facts,
                        use.node,
                        use.place,
                        message,
                        releases=in_force & life,
                        life=life,
                        category=category,
                        help=method_hint(f"{use.name}="),
                        origin=cache.origin,
                        defect=defect_of_cache(facts, cache),
                    )

    def _unflattened(self, facts: Facts) -> Iterator[Finding]:
        """``setattr(cache, name, value)`` over the state that the function beside it in a pytree registration wrote down."""
        silent = releases_of(facts.timeline, FACTS["key_cache"])
        raising = facts.timeline.matching(PROPERTY_RELEASES)
        for node, place, names in restored(facts):
            wrong = place.releases & (silent - raising)
            if wrong:
                yield self.finding(
                    facts,
                    node,
                    place,
                    f"this sets {' and '.join(f'`{name}`' for name in names)} of a new cache {{when}}, plain attributes that "
                    "nothing reads: the rebuilt cache is empty",
                    releases=wrong,
                    life=silent - raising,
                    help="keep the pairs of `cache.layers` and build the cache from them: `DynamicCache(pairs)`",
                )


def restored(facts: Facts) -> Iterator[tuple[ast.Call, Place, list[str]]]:
    """Calls of ``setattr`` on a new cache with a name that is not written there, in the function that turns a flattened
    cache back, with the attributes that the function beside it flattened."""
    defined = {use.info.qualname: use for use in facts.functions}
    for call in walk(facts.tree) if facts.tree is not None else ():
        if not isinstance(call, ast.Call) or last_name(call.func) not in REGISTRARS or len(call.args) < 3:
            continue
        flatten, use = (defined.get(last_name(node)) for node in call.args[1:3])
        constants = walk(flatten.info.node) if flatten is not None else ()
        names = sorted({node.value for node in constants if isinstance(node, ast.Constant) and node.value in FACTS})
        if not names or use is None:
            continue
        made = {
            target.id
            for other in facts.calls
            if other.place.function is use.info
            and isinstance(other.parent, ast.Assign)
            and any(
                facts.timeline.is_cache_class(facts.timeline.canonical(atom.name) or atom.name)
                for atom in of_type(other.callee, Symbol)
            )
            for target in other.parent.targets
            if isinstance(target, ast.Name)
        }
        for node in walk(use.info.node):
            if isinstance(node, ast.Call) and last_name(node.func) == "setattr" and len(node.args) == 3:
                holder, name = node.args[:2]
                if isinstance(holder, ast.Name) and holder.id in made and isinstance(name, ast.Name):
                    yield node, place_at(facts, node, use.place), names


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
