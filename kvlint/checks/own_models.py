"""Model classes of the project that keep the past in a format of their own: pairs, lists, sums, counts.

What the library would hand over as a cache object is whatever such a class returned one step before. Code that reads it works as it
stands, and a rewrite for cache objects breaks it. The file's own classes are looked at here; what the others hold, link knows.
"""

from __future__ import annotations

import ast

from kvlint.analysis.facts import Facts
from kvlint.checks.tuple_models import tuple_model
from kvlint.engine.own_formats import own_forward
from kvlint.nodes import walk


def file_has_own_model(facts: Facts) -> bool:
    """True where a class of the file has such a format and no fix converts it whole."""
    known = facts.memo.get("own model")
    if not isinstance(known, bool):
        converted = {
            id(use.info.node)
            for use in facts.functions
            if (model := tuple_model(facts, use.info)) is not None and model.fix is not None
        }
        classes = (
            (node for node in walk(facts.tree) if isinstance(node, ast.ClassDef)) if facts.tree is not None else ()
        )
        known = any((found := own_forward(node)) is not None and id(found) not in converted for node in classes)
        facts.memo["own model"] = known
    return known
