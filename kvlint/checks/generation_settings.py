"""Where code and JSON set the options of generation that concern the cache: one record for each group of options."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.nodes import walk
from kvlint.analysis.values import (
    Config,
    GenerationConfigValue,
    Literal,
    Member,
    Model,
    ModelKwargs,
    Symbol,
    Value,
    literal,
    of_type,
)
from kvlint.analysis.values import Mapping as MappingValue
from kvlint.carriers.json_spans import JsonError, document_value, members
from kvlint.checks.base import Check, touching
from kvlint.checks.call_targets import arguments_of, has_open_keywords, is_none, target_of
from kvlint.findings import Category, Finding, Fix
from kvlint.releases import ReleaseSet

JSON_KIND = "generation-config"
OPTIONS = (
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "use_cache",
    "return_legacy_cache",
    "past_key_values",
    "cache",
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option. *value* is its constant (None where it has none), *given* False where it is set to None."""

    name: str
    value: object
    span: tuple[int, int]
    value_span: tuple[int, int]
    given: bool = True
    known: Value = ()
    items: Mapping[str, object] | None = None
    """Literal items of a dict (of ``cache_config``), None where they are not all known."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options that are set together. *kind*: generate, config (a constructor), attribute, dict or json.

    *open*: other options may be set in the same place. *place* is None for JSON.
    """

    kind: str
    options: Mapping[str, Option]
    releases: ReleaseSet
    open: bool = False
    place: Place | None = field(default=None, compare=False)
    model: Model | None = None

    def given(self, name: str) -> Option | None:
        """The option, where it is set to something else than None."""
        option = self.options.get(name)
        return option if option is not None and option.given else None


def settings_of(facts: Facts) -> Iterator[Settings]:
    """Every group of options in the region."""
    if facts.kind == JSON_KIND:
        yield from json_settings(facts)
        return
    for use in facts.calls:
        kind = call_kind(facts, use)
        if kind:
            options = dict(call_options(facts, use))
            if options:
                yield Settings(kind, options, use.place.releases, has_open_keywords(use), use.place, model_of(use))
    for attribute in facts.attributes:
        if attribute.action == "store" and attribute.name in OPTIONS and is_settings(attribute.value):
            node = assigned_node(facts, attribute.node)
            if node is not None:
                option = option_of(facts, attribute.name, attribute.assigned, attribute.node, node)
                yield Settings("attribute", {attribute.name: option}, attribute.place.releases, True, attribute.place)
    for item in facts.subscripts:
        key = literal(item.index)
        if (
            item.action == "store"
            and key in OPTIONS
            and item.value
            and all(isinstance(atom, ModelKwargs) for atom in item.value)
        ):
            node = assigned_node(facts, item.node)
            if node is not None:
                option = option_of(facts, key, item.assigned, item.node, node)
                yield Settings("dict", {key: option}, item.place.releases, True, item.place)


def is_settings(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, GenerationConfigValue) for atom in value)


def call_kind(facts: Facts, use: CallUse) -> str:
    """``generate`` or ``config`` for the calls that take options, "" for others."""
    for atom in use.callee:
        if (
            isinstance(atom, Symbol)
            and atom.name.startswith("transformers.")
            and atom.name.endswith(".GenerationConfig")
        ):
            return "config"
        if (
            isinstance(atom, Symbol)
            and atom.name.startswith("transformers.")
            and atom.name.endswith(".GenerationConfig.from_pretrained")
        ):
            return "update"
        if isinstance(atom, Member) and isinstance(atom.of, GenerationConfigValue) and atom.name == "update":
            return "update"
    if not any(item.name in OPTIONS for item in arguments_of(use)):
        return ""
    target = target_of(facts, use)
    return "generate" if target is not None and target.role == "generate" else ""


def call_options(facts: Facts, use: CallUse) -> Iterator[tuple[str, Option]]:
    for item in arguments_of(use):
        if item.name in OPTIONS:
            if item.written:
                yield item.name, option_of(facts, item.name, item.value, item.keyword, item.keyword.value)
                continue
            node = display_of(facts, item.name, literal(item.value)) or item.keyword.value
            yield item.name, option_of(facts, item.name, item.value, node, node)


def option_of(facts: Facts, name: str, value: Value, node: ast.AST, value_node: ast.AST) -> Option:
    return Option(
        name, constant(value), facts.span(node), facts.span(value_node), not is_none(value), value, dict_items(value)
    )


def constant(value: Value) -> object:
    return value[0].value if len(value) == 1 and isinstance(value[0], Literal) else None


def dict_items(value: Value) -> dict[str, object] | None:
    """The items of a dict display with literal keys; the value of an item is None where it is no constant."""
    if len(value) == 1 and isinstance(value[0], MappingValue) and not value[0].open:
        return {key: constant(item) for key, item in value[0].items}
    return None


def display_of(facts: Facts, key: str, value: object) -> ast.expr | None:
    """The one place in the region where a dict gets *key* with this constant."""
    if value is None or facts.tree is None:
        return None
    found: list[ast.expr] = []
    for node in walk(facts.tree):
        if isinstance(node, ast.Dict):
            for name, item in zip(node.keys, node.values, strict=True):
                if (
                    isinstance(name, ast.Constant)
                    and name.value == key
                    and isinstance(item, ast.Constant)
                    and item.value == value
                ):
                    found.append(item)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            found += [
                item.value
                for item in node.keywords
                if item.arg == key and isinstance(item.value, ast.Constant) and item.value.value == value
            ]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value == value:
            target = node.targets[0]
            if (
                isinstance(target, ast.Subscript)
                and isinstance(target.slice, ast.Constant)
                and target.slice.value == key
            ):
                found.append(node.value)
    return found[0] if len(found) == 1 else None


def assigned_node(facts: Facts, target: ast.expr) -> ast.expr | None:
    """The expression that is assigned to a target."""
    for use in facts.assigns:
        if use.target is target:
            return use.node.value
    return None


def model_of(use: CallUse) -> Model | None:
    """The model whose method is called."""
    for atom in use.callee:
        if isinstance(atom, Member) and isinstance(atom.of, Model):
            return atom.of
    return None


def json_settings(facts: Facts) -> Iterator[Settings]:
    try:
        root = document_value(facts.text)
        found = dict(members(facts.text, root.start)) if isinstance(root.value, dict) else {}
    except JsonError:
        return
    options: dict[str, Option] = {}
    for name, span in found.items():
        if name in OPTIONS:
            value = span.value if isinstance(span.value, (str, bool, int, float)) else None
            items = span.value if isinstance(span.value, dict) else None
            start = span.key[0] if span.key is not None else span.start
            options[name] = Option(
                name, value, (start, span.end), (span.start, span.end), span.value is not None, (), items
            )
    if options:
        yield Settings("json", options, facts.target)


def settings_finding(
    check: Check,
    facts: Facts,
    settings: Settings,
    span: tuple[int, int],
    message: str,
    *,
    releases: ReleaseSet,
    life: ReleaseSet,
    help: str = "",
    category: Category = Category.BREAKS,
    fix: Fix | None = None,
) -> Finding:
    """A finding at an option, in code or in JSON."""
    if settings.place is not None:
        return check.finding(
            facts,
            settings.place.statement,
            settings.place,
            message,
            releases=releases,
            life=life,
            help=help,
            category=category,
            fix=fix,
            span=span,
        )
    told = touching(life & facts.timeline.all, releases) if life else releases
    return Finding(
        code=check.code,
        name=check.name,
        category=category,
        start=span[0],
        end=span[1],
        message=message.replace("{when}", facts.timeline.describe(told, facts.timeline.all) if told else ""),
        help=help,
        releases=releases,
        fix=fix,
        statement_start=span[0],
        statement_end=span[1],
    )


def config_named(value: Value) -> str:
    """The hub name of the model that a config belongs to."""
    return next((atom.name for atom in of_type(value, Config) if atom.name), "")
