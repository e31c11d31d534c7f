"""Fixes that leave options of generation out: of a call, of a dict display, of a ``generation_config.json``."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from kvlint.analysis.facts import Facts
from kvlint.carriers.json_spans import members
from kvlint.checks.generation_settings import JSON_KIND, Option
from kvlint.findings import Applicability, Edit, Fix
from kvlint.rewriting import can_be_dropped, drop_keywords, has_comment

BETWEEN = re.compile(r"\s*,\s*")
BEHIND = re.compile(r"\s*,?\s*")


def leave_out(facts: Facts, options: Sequence[Option], applicability: Applicability) -> Fix | None:
    """The fix without these options; None where one is not written in a place of its own, or a comment would be lost."""
    edits: list[Edit] = []
    if facts.kind == JSON_KIND:
        edits = json_edits(facts.text, facts.text.index("{"), {option.name for option in options})
    else:
        holders = {id(option.holder): option.holder for option in options}
        for key, holder in holders.items():
            together = [option.name for option in options if id(option.holder) == key]
            made = code_edits(facts, holder, together)
            if not made:
                return None
            edits += made
    if not edits:
        return None
    names = " and ".join(f"`{option.name}`" for option in options)
    return Fix(f"Leave out {names}", applicability, tuple(sorted(edits)))


def leave_out_key(facts: Facts, option: Option, key: str) -> Fix | None:
    """The fix without one key of the dict that is an option's value, where that dict is written right there."""
    if facts.kind == JSON_KIND:
        edits = json_edits(facts.text, option.value_span[0], {key})
    else:
        edits = code_edits(facts, dict_at(facts, option), [key])
    return Fix(f"Leave out `{key}`", Applicability.UNSAFE, tuple(edits)) if edits else None


def dict_at(facts: Facts, option: Option) -> ast.Call | ast.Dict | None:
    """The dict display, or the call of ``dict``, that is an option's value."""
    node = option.node
    if isinstance(node, ast.Dict):
        return node
    is_dict = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    return node if isinstance(node, ast.Call) and is_dict else None


def code_edits(facts: Facts, holder: ast.Call | ast.Dict | None, names: Collection[str]) -> list[Edit]:
    """The edits that take keywords out of a call, or keys out of a display; none where that is not possible."""
    if isinstance(holder, ast.Call):
        edit = drop_keywords(facts, holder, tuple(names))
        return [] if edit is None else [edit]
    if holder is None:
        return []
    spans: list[tuple[int, int]] = []
    dropped: list[int] = []
    for index, (key, value) in enumerate(zip(holder.keys, holder.values, strict=True)):
        start, end = facts.span(value)
        start = facts.text.rindex("**", 0, start) if key is None else facts.span(key)[0]
        spans.append((start, end))
        if isinstance(key, ast.Constant) and key.value in names:
            dropped.append(index)
            if not can_be_dropped(value):
                return []
    if len(dropped) != len(names):
        return []
    return without_items(facts.text, spans, dropped, facts.span(holder)[1] - 1)


def json_edits(text: str, start: int, names: Collection[str]) -> list[Edit]:
    """The edits that take members out of the JSON object at *start*; none where a name is there twice, or not at all."""
    found = [(name, span) for name, span in members(text, start) if span.key is not None]
    dropped = [index for index, (name, _) in enumerate(found) if name in names]
    if len(dropped) != len(names):
        return []
    spans = [(span.key[0], span.end) for _, span in found if span.key is not None]
    return without_items(text, spans, dropped, text.index("}", spans[-1][1]))


def without_items(text: str, spans: Sequence[tuple[int, int]], dropped: Sequence[int], end: int) -> list[Edit]:
    """The edits that take items out of a list with commas that closes at *end*.

    None where anything but commas stands between the items (parentheses, comments): whose it is, is not to be seen.
    """
    gaps = [text[last[1] : following[0]] for last, following in pairwise(spans)]
    if not all(BETWEEN.fullmatch(gap) for gap in gaps) or not BEHIND.fullmatch(text[spans[-1][1] : end]):
        return []
    edits = []
    index = 0
    while index < len(spans):
        if index not in dropped:
            index += 1
            continue
        first = index
        while index in dropped:
            index += 1
        if index < len(spans):
            edits.append(Edit(spans[first][0], spans[index][0], ""))
        elif first:
            edits.append(Edit(spans[first - 1][1], spans[-1][1], ""))
        else:
            edits.append(Edit(spans[0][0], end, ""))
    return [] if any(has_comment(text[edit.start : edit.end]) for edit in edits) else edits
