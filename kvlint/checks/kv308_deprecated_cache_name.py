"""``past_key_values`` and ``cache_params`` where the release calls it ``cache``: still translated, with a warning."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.values import Certainty, Member, ModelOutput, Value, literal, of_type
from kvlint.checks.base import Check
from kvlint.checks.call_targets import Argument, arguments_of, is_none, target_of
from kvlint.checks.generation_settings import display_of, only_for
from kvlint.findings import Applicability, Category, Edit, Finding, Fix

OLD_NAMES = ("past_key_values", "cache_params")
NEW_NAME = "cache"
GROUP = "KV308"


@dataclass(frozen=True, slots=True)
class OldName:
    """One place that uses an old name: where, and the edit that renames it (None where it cannot be renamed)."""

    node: ast.AST
    span: tuple[int, int]
    place: Place
    says: str
    edit: Edit | None


class DeprecatedCacheName(Check):
    """Reports keywords, attributes and keys that have been renamed to ``cache`` and still work."""

    triggers = OLD_NAMES
    category = Category.DEPRECATED

    def findings(self, facts: Facts) -> Iterator[Finding]:
        renamed = facts.timeline.keyword_of_kind("model", NEW_NAME)
        places = [
            item
            for item in (*keywords(facts), *attributes(facts), *keys(facts))
            if item.place.releases and item.place.releases <= renamed and not item.place.typing_only
        ]
        together = all(item.edit is not None for item in places)
        for item in places:
            fix = None
            if together and item.edit is not None:
                fix = Fix(f"Rename to `{NEW_NAME}`", Applicability.SAFE, (item.edit,), GROUP if len(places) > 1 else "")
            finding = self.finding(
                facts,
                item.node,
                item.place,
                f"{item.says} is deprecated {{when}}: the name is `{NEW_NAME}`",
                releases=item.place.releases,
                life=renamed,
                help="old keywords of `forward` are announced to work until 5.40, those of `generate` until 6.0",
                fix=fix,
                span=item.span,
            )
            yield finding if together else replace(finding, fix=None)


def keywords(facts: Facts) -> Iterator[OldName]:
    """Keywords of calls into the library, written out or as keys of a dict display behind ``**``."""
    for use in facts.calls:
        names = {name for name, _ in use.keywords}
        for item in arguments_of(use):
            if item.name not in OLD_NAMES:
                continue
            target = target_of(facts, use)
            if target is None or (target.role == "output" and is_none(item.value)):
                continue
            start, end = facts.span(item.keyword)
            edit = None
            if (
                item.written
                and NEW_NAME not in names
                and (target.certainty is Certainty.PROVEN or not own_forward(facts, item.name))
            ):
                end = start + len(item.name)
                edit = Edit(start, end, NEW_NAME)
            elif not item.written and NEW_NAME not in names:
                found = key_behind(facts, use, item)
                edit = None if found is None else Edit(*found, NEW_NAME)
            yield OldName(item.keyword, (start, end), use.place, f"`{item.name}=` of {target.shown}", edit)


def key_behind(facts: Facts, use: CallUse, item: Argument) -> tuple[int, int] | None:
    """Where the key stands in the dict that only this call unpacks; None where it cannot be renamed there."""
    holder, value = display_of(facts, use, item.keyword.value, item.name, item.value)
    if holder is None or value is None or not only_for(facts, item.keyword.value, holder):
        return None
    if isinstance(holder, ast.Call):
        if any(keyword.arg == NEW_NAME for keyword in holder.keywords):
            return None
        start, _ = facts.span(next(keyword for keyword in holder.keywords if keyword.value is value))
        return start, start + len(item.name)
    keys = [key for key in holder.keys if isinstance(key, ast.Constant)]
    if any(key.value == NEW_NAME for key in keys) or None in holder.keys:
        return None
    key = next(key for key, other in zip(holder.keys, holder.values, strict=True) if other is value)
    assert key is not None
    start, end = facts.span(key)
    quote = facts.text[start : start + 1]
    return (start + 1, end - 1) if facts.text[start:end] == f"{quote}{item.name}{quote}" else None


def own_forward(facts: Facts, name: str) -> bool:
    """True where a ``forward`` of the file takes the old name and not the new one."""
    return any(
        use.info.name == "forward" and use.info.parameter(name) is not None and use.info.parameter(NEW_NAME) is None
        for use in facts.functions
    )


def is_output(value: Value) -> bool:
    """True where every alternative is a model output, known as more than a name."""
    return bool(value) and all(isinstance(atom, ModelOutput) and atom.certainty >= Certainty.CONTEXT for atom in value)


def attributes(facts: Facts) -> Iterator[OldName]:
    """``out.past_key_values``, read or set."""
    for use in facts.attributes:
        if use.name not in OLD_NAMES or not is_output(use.value):
            continue
        span = facts.span(use.node)
        edit = None
        if isinstance(use.node, ast.Attribute):
            edit = Edit(span[1] - len(use.name), span[1], NEW_NAME)
            span = (edit.start, edit.end)
        yield OldName(use.node, span, use.place, f"`.{use.name}` of a model output", edit)


def keys(facts: Facts) -> Iterator[OldName]:
    """``out["past_key_values"]``, ``out.get("past_key_values")`` and ``"past_key_values" in out``."""
    found: list[tuple[ast.expr, str, Place]] = []
    for use in facts.subscripts:
        key = literal(use.index)
        if key in OLD_NAMES and is_output(use.value):
            found.append((use.node.slice, key, use.place))
    for call in facts.calls:
        key = literal(call.arguments[0]) if call.arguments else None
        holders = tuple(atom.of for atom in of_type(call.callee, Member) if atom.name in ("get", "pop"))
        if key in OLD_NAMES and len(holders) == len(call.callee) and is_output(holders):
            found.append((call.node.args[0], key, call.place))
    for compare in facts.compares:
        left = compare.node.left
        key = left.value if isinstance(left, ast.Constant) else None
        if key in OLD_NAMES and isinstance(compare.node.ops[0], (ast.In, ast.NotIn)) and is_output(compare.rights[0]):
            found.append((left, key, compare.place))
    for node, key, place in found:
        start, end = facts.span(node)
        quote = facts.text[start : start + 1]
        plain = facts.text[start:end] == f"{quote}{key}{quote}"
        edit = Edit(start + 1, end - 1, NEW_NAME) if plain else None
        yield OldName(node, (start, end), place, f'the key "{key}" of a model output', edit)
