"""``cache.layers[0].keys.shape[-2]`` as the number of tokens: sliding layers keep a window, static ones their size."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.values import (
    CACHE,
    DYNAMIC_CACHE,
    STATIC_CACHE,
    CacheObject,
    Certainty,
    StoredTensor,
    TensorShape,
    of_type,
)
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.kv204_cache_subscript import LENGTH_AXES, axis_of
from kvlint.checks.words import CACHE_WORDS
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.rewriting import has_comment, is_plain, minimal

LENGTH_NAMES = re.compile(r"(?i)past|pos|len|seen|offset|start|total|step|cur")


class SlidingLengthFromShape(Check):
    """Reports lengths that are read from the shape of stored keys or values."""

    triggers = (".keys", ".values")
    also = (("layers",), CACHE_WORDS, ("shape", "size"))
    pattern = r"\.\s*(?:keys|values)\b(?!\s*\()"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.subscripts:
            if use.action == "load" and axis_of(use.node.slice) in LENGTH_AXES:
                for shape in of_type(use.value, TensorShape):
                    shape_node = use.node.value
                    tensor_node = shape_node.value if isinstance(shape_node, ast.Attribute) else None
                    yield from self._read(facts, use.node, use.place, shape.tensor, tensor_node)
        for item in facts.attributes:
            if item.name == "size" and item.call is not None and len(item.call.args) == 1:
                if axis_of(item.call.args[0]) in LENGTH_AXES:
                    for tensor in of_type(item.value, StoredTensor):
                        yield from self._read(facts, item.call, item.place, tensor, item.value_node)

    def _read(
        self, facts: Facts, node: ast.expr, place: Place, tensor: StoredTensor, tensor_node: ast.expr | None
    ) -> Iterator[Finding]:
        cache = tensor.cache
        if cache is None or tensor.via != "layers" or not may_be_bounded(cache, place.statement):
            return
        if cache.local_class is not None or is_check_of_shape(place.statement, node):
            return
        life = releases_of(facts.timeline, "sliding-keeps-window")
        wrong = place.releases & cache.when & life
        if not wrong:
            return
        why = (
            "a static layer has the size it was allocated with"
            if cache.cls == STATIC_CACHE
            else "a layer with a sliding window keeps one token less than its window, so this stops growing"
        )
        yield self.finding(
            facts,
            node,
            place,
            f"the shape of stored {tensor.part} is not the number of tokens seen {{when}}: {why}",
            releases=wrong,
            life=life,
            help="`cache.get_seq_length()` counts the tokens",
            origin=cache.origin,
            fix=fix_of(facts, node, tensor_node, place.releases <= life),
        )


def may_be_bounded(cache: CacheObject, statement: ast.stmt) -> bool:
    """True for static caches, for dynamic ones that follow a config, and for those of a model output read as a length."""
    if cache.cls == STATIC_CACHE or cache.config_given:
        return True
    if cache.source != "output" or cache.cls not in (CACHE, DYNAMIC_CACHE) or cache.certainty < Certainty.CONTEXT:
        return False
    targets, _ = assignment(statement)
    return any(isinstance(target, ast.Name) and LENGTH_NAMES.search(target.id) for target in targets)


def is_check_of_shape(statement: ast.stmt, node: ast.expr) -> bool:
    """True where code makes sure of what is stored: ``assert layer.keys.shape[-2] == window - 1``, or raises otherwise."""
    if not isinstance(statement, ast.Assert) and not (
        isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise)
    ):
        return False
    return any(
        isinstance(item, ast.Compare)
        and isinstance(item.ops[0], (ast.Eq, ast.NotEq))
        and any(side is node for side in (item.left, *item.comparators))
        for item in walk(statement.test)
    )


def fix_of(facts: Facts, node: ast.expr, tensor_node: ast.expr | None, everywhere: bool) -> Fix | None:
    """``c.layers[i].keys.shape[-2]`` becomes ``c.get_seq_length(i)``; unsafe, since the number changes."""
    if not everywhere or not isinstance(tensor_node, ast.Attribute) or not isinstance(tensor_node.value, ast.Subscript):
        return None
    layers = tensor_node.value.value
    if not isinstance(layers, ast.Attribute) or layers.attr != "layers" or not is_plain(layers.value):
        return None
    start, end = facts.span(node)
    index = tensor_node.value.slice
    first = isinstance(index, ast.Constant) and index.value == 0
    if has_comment(facts.text[start:end]) or (not first and not isinstance(index, ast.Name)):
        return None
    argument = "" if first else facts.source(index)
    text = f"{facts.source(layers.value)}.get_seq_length({argument})"
    return Fix("Ask the cache", Applicability.UNSAFE, (minimal(facts.text, start, end, text),))
