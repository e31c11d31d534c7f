"""Where code and JSON set the options of generation that concern the cache: one record for each group of options."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import (
    GenerationConfigValue,
    Literal,
    Member,
    Model,
    ModelKwargs,
    NoneValue,
    Symbol,
    Value,
    literal,
    of_type,
)
from kvlint.analysis.values import Mapping as MappingValue
from kvlint.carriers.json_spans import JsonError, document_value, members
from kvlint.checks.base import Check, touching
from kvlint.checks.bindings import first_line, tree_of
from kvlint.checks.call_targets import arguments_of, is_none, target_of, with_threads
from kvlint.findings import Category, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import ReleaseSet

JSON_KIND = "generation-config"
MAX_GROUPS = 16
"""Combinations of dicts behind the ``**`` of one call that are looked at."""
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
    node: ast.expr | None = field(default=None, compare=False)
    """The expression of the value; None in JSON."""
    holder: ast.Call | ast.Dict | None = field(default=None, compare=False)
    """The call or dict display in which the option can be left out without touching anything else."""


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
    call: ast.Call | None = field(default=None, compare=False)

    def given(self, name: str) -> Option | None:
        """The option, where it is set to something else than None."""
        option = self.options.get(name)
        return option if option is not None and option.given else None


def settings_of(facts: Facts) -> Iterator[Settings]:
    """Every group of options in the region."""
    if facts.kind == JSON_KIND:
        yield from json_settings(facts)
        return
    for use in with_threads(facts):
        kind = call_kind(facts, use)
        if kind == "default":
            name, value = literal(use.arguments[0]), use.arguments[1]
            option = option_of(facts, name, value, use.node, use.node.args[1])
            yield Settings("dict", {name: option}, use.place.releases, True, use.place)
        elif kind == "set":
            name, value = literal(use.arguments[1]), use.arguments[2]
            option = option_of(facts, name, value, use.node, use.node.args[2])
            yield Settings("attribute", {name: option}, use.place.releases, True, use.place)
        elif kind == "from_dict":
            yield from from_dict_settings(facts, use)
        elif kind:
            yield from call_settings(facts, use, kind)
    for attribute in facts.attributes:
        if attribute.action == "store" and attribute.name in OPTIONS and is_settings(attribute.value):
            node = assigned_node(facts, attribute.node)
            if node is not None:
                option = option_of(facts, attribute.name, attribute.assigned, attribute.node, node)
                releases, model = attribute.place.releases, model_behind(facts, attribute.value_node)
                yield Settings("attribute", {attribute.name: option}, releases, True, attribute.place, model)
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
    """What a call does with options: ``generate``, ``config``, ``update``, ``default`` (of a dict), ``set`` (by
    ``setattr``), "" for others."""
    if isinstance(use.node.func, ast.Name) and use.node.func.id == "setattr" and len(use.arguments) == 3:
        return "set" if is_settings(use.arguments[0]) and literal(use.arguments[1]) in OPTIONS else ""
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
        if (
            isinstance(atom, Symbol)
            and atom.name.startswith("transformers.")
            and atom.name.endswith(".GenerationConfig.from_dict")
        ):
            return "from_dict"
        if isinstance(atom, Member) and isinstance(atom.of, GenerationConfigValue) and atom.name == "update":
            return "update"
        if isinstance(atom, Member) and isinstance(atom.of, ModelKwargs) and atom.name == "setdefault":
            if len(use.arguments) == 2 and literal(use.arguments[0]) in OPTIONS:
                return "default"
    if not any(item.name in OPTIONS for item in arguments_of(use)):
        return ""
    target = target_of(facts, use)
    return "generate" if target is not None and target.role in ("generate", "pipeline") else ""


def call_settings(facts: Facts, use: CallUse, kind: str) -> Iterator[Settings]:
    """The options of one call: one group for each dict that may stand behind its ``**``."""
    written = {
        keyword.arg: option_of(facts, keyword.arg, value, keyword, keyword.value, use.node)
        for keyword, (name, value) in zip(use.node.keywords, use.keywords, strict=True)
        if keyword.arg is not None and name in OPTIONS
    }
    groups: list[tuple[dict[str, Option], bool, ReleaseSet]] = [(written, False, use.place.releases)]
    for keyword, (name, value) in zip(use.node.keywords, use.keywords, strict=True):
        if name:
            continue
        ways = [
            (unpacked(facts, use, keyword, atom), atom.open, atom.when)
            if isinstance(atom, MappingValue)
            else ({}, True, atom.when)
            for atom in value
        ] or [({}, True, facts.timeline.all)]
        groups = [
            ({**options, **more}, is_open or more_open, releases & when)
            for options, is_open, releases in groups
            for more, more_open, when in ways
        ][:MAX_GROUPS]
    for options, is_open, releases in groups:
        if options and releases:
            yield Settings(kind, options, releases, is_open, use.place, model_of(use), use.node)


def from_dict_settings(facts: Facts, use: CallUse) -> Iterator[Settings]:
    """The options of ``GenerationConfig.from_dict({...})``."""
    for atom in of_type(use.arguments[0] if use.arguments else (), MappingValue):
        spread = ast.copy_location(ast.keyword(None, use.node.args[0]), use.node.args[0])
        options, releases = unpacked(facts, use, spread, atom), use.place.releases & atom.when
        if options and releases:
            yield Settings("config", options, releases, True, use.place, None, use.node)


def unpacked(facts: Facts, use: CallUse, keyword: ast.keyword, mapping: MappingValue) -> dict[str, Option]:
    """The options in a dict that a call unpacks."""
    found: dict[str, Option] = {}
    for name, value in mapping.items:
        if name in OPTIONS:
            holder, node = display_of(facts, use, keyword.value, name, value)
            if node is None:
                found[name] = option_of(facts, name, value, keyword.value, keyword.value)
            else:
                owned = holder if holder is not None and only_for(facts, keyword.value, holder) else None
                found[name] = option_of(facts, name, value, node, node, owned)
    return found


def option_of(
    facts: Facts,
    name: str,
    value: Value,
    node: ast.AST,
    value_node: ast.expr,
    holder: ast.Call | ast.Dict | None = None,
) -> Option:
    return Option(
        name,
        constant(value),
        facts.span(node),
        facts.span(value_node),
        not is_none(value),
        value,
        dict_items(value),
        value_node,
        holder,
    )


def constant(value: Value) -> object:
    return value[0].value if len(value) == 1 and isinstance(value[0], Literal) else None


def choices(facts: Facts, settings: Settings, option: Option) -> Iterator[tuple[Settings, Option]]:
    """One constant at a time where an option is one of several, each with the releases on which it is that one."""
    if option.node is None or option.value is not None:
        yield settings, option
        return
    if not all(isinstance(atom, (Literal, NoneValue)) for atom in option.known):
        return
    for atom in of_type(option.known, Literal):
        written = [node for node in walk(option.node) if isinstance(node, ast.Constant) and node.value == atom.value]
        span = facts.span(written[0]) if len(written) == 1 else option.value_span
        one = replace(option, value=atom.value, value_span=span)
        yield replace(settings, releases=settings.releases & atom.when), one


def dict_items(value: Value) -> dict[str, object] | None:
    """The items of a dict display with literal keys; the value of an item is None where it is no constant."""
    if len(value) == 1 and isinstance(value[0], MappingValue) and not value[0].open:
        return {key: constant(item) for key, item in value[0].items}
    return None


def display_of(
    facts: Facts, use: CallUse, unpacked_node: ast.expr, key: str, value: Value
) -> tuple[ast.Call | ast.Dict | None, ast.expr | None]:
    """The one place from which the unpacked dict has *key* with this value, and the display that holds it.

    Of several places in the region those count that are in the function of the call, or assigned to the same name.
    """
    if facts.tree is None:
        return None, None
    wanted = constant(value)
    group = settings_groups(facts).get((key, wanted))
    if group is None:
        return None, None
    if id(unpacked_node) in group.by_holder:
        return group.by_holder[id(unpacked_node)]
    found, path = group.written, path_of(unpacked_node)
    named = group.named.get(path, []) if path else []
    if len(found) > 1 and use.place.function is not None:
        function, tree = use.place.function.node, tree_of(facts)
        inside = [item for item in group.near(function) if tree.inside(item[1], function)]
        found = inside or named
    if len(found) > 1 and found is not named and all(holder is not None for holder, _ in found):
        kept = {id(item[1]) for item in named}
        found = [item for item in found if id(item[1]) in kept]
    return found[0] if len(found) == 1 else (None, None)


Written = tuple["ast.Call | ast.Dict | None", ast.expr]
"""The display or call that gives a dict one of the options (None: something else does), and the value."""


class SettingsGroup:
    """The places where dicts get one option with one value."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.by_holder: dict[int, Written] = {}
        self.named: dict[str, list[Written]] = {}
        """Those in displays that are assigned to a path, by the path."""
        self._sorted: list[Written] = []

    def add(self, facts: Facts, holder: ast.Call | ast.Dict | None, node: ast.expr) -> None:
        item = (holder, node)
        self.written.append(item)
        if holder is not None:
            self.by_holder.setdefault(id(holder), item)
            targets, _ = assignment(tree_of(facts).parent(holder))
            path = path_of(targets[0]) if targets else ""
            if path:
                self.named.setdefault(path, []).append(item)

    def near(self, function: ast.stmt) -> Iterator[Written]:
        """Those that stand on the lines of a function."""
        if not self._sorted:
            self._sorted = sorted(self.written, key=lambda item: item[1].lineno)
        first = bisect_left(self._sorted, first_line(function), key=lambda item: item[1].lineno)
        for item in islice(self._sorted, first, None):
            if item[1].lineno > (function.end_lineno or 0):
                break
            yield item


def settings_groups(facts: Facts) -> dict[tuple[str, object], SettingsGroup]:
    """The places of `settings_written`, by option and constant value (None: no constant)."""
    known = facts.memo.get("generation option groups")
    if not isinstance(known, dict):
        found: dict[tuple[str, object], SettingsGroup] = {}
        for holder, name, node in settings_written(facts):
            value = node.value if isinstance(node, ast.Constant) else None
            found.setdefault((name, value), SettingsGroup()).add(facts, holder, node)
        known = facts.memo["generation option groups"] = found
    return known


def settings_written(facts: Facts) -> list[tuple[ast.Call | ast.Dict | None, str, ast.expr]]:
    """Every place in the region where a dict gets one of the options: the display or call, the key, the value."""
    known = facts.memo.get("generation options")
    if isinstance(known, list):
        return known
    found: list[tuple[ast.Call | ast.Dict | None, str, ast.expr]] = []
    for node in walk(facts.tree) if facts.tree is not None else ():
        if isinstance(node, ast.Dict):
            for name, item in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and name.value in OPTIONS:
                    found.append((node, name.value, item))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "dict":
                found += [(node, item.arg, item.value) for item in node.keywords if item.arg in OPTIONS]
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "update":
                found += [(None, item.arg, item.value) for item in node.keywords if item.arg in OPTIONS]
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault" and len(node.args) == 2:
                if isinstance(node.args[0], ast.Constant) and node.args[0].value in OPTIONS:
                    found.append((None, node.args[0].value, node.args[1]))
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                if target.slice.value in OPTIONS:
                    found.append((None, target.slice.value, node.value))
    facts.memo["generation options"] = found
    return found


def only_for(facts: Facts, unpacked_node: ast.expr, holder: ast.Call | ast.Dict) -> bool:
    """True where a display is written in the call, or is the value of a variable that nothing else reads."""
    if unpacked_node is holder:
        return True
    tree = tree_of(facts)
    parent = tree.parent(holder)
    targets, _ = assignment(parent)
    if not isinstance(unpacked_node, ast.Name) or facts.tree is None:
        return False
    name = unpacked_node.id
    if len(targets) != 1 or not (isinstance(targets[0], ast.Name) and targets[0].id == name):
        return False
    scope = tree.scope_of(holder)
    if scope is not tree.scope_of(unpacked_node) or (isinstance(scope.node, ast.Module) and facts.kind == "module"):
        return False  # what a module calls so, others may import
    return sum(1 for node in walk(scope.node) if isinstance(node, ast.Name) and node.id == name) == 2


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


def model_behind(facts: Facts, node: ast.expr) -> Model | None:
    """The model whose ``generation_config`` an expression reads."""
    for use in facts.attributes:
        if use.node is node and use.name == "generation_config":
            return next(of_type(use.value, Model), None)
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
