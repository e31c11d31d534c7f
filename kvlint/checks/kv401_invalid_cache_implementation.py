"""A ``cache_implementation`` that a release in force refuses, or silently replaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from kvlint.analysis.facts import Facts
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.generation_settings import Option, Settings, choices, settings_finding, settings_of
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet

NAME = "cache_implementation"
REPLACEMENTS = {"dynamic_full": "dynamic", "hybrid": "static"}


class InvalidCacheImplementation(Check):
    """Reports values that raise ValueError, and ``"hybrid"`` where it no longer means anything."""

    triggers = (NAME,)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for group in settings_of(facts):
            given = group.given(NAME)
            given = or_default(facts, group, given) if given is not None else None
            for settings, option in choices(facts, group, given) if given is not None else ():
                if isinstance(option.value, str):
                    yield from self._of_value(facts, settings, option)
                elif settings.kind == "json" or option.value is not None:
                    yield from self._of_type(facts, settings, option)

    def _of_type(self, facts: Facts, settings: Settings, option: Option) -> Iterator[Finding]:
        """What is no string is no name of a cache (`validate` asks ``value not in ALL_CACHE_IMPLEMENTATIONS``)."""
        refused = refused_on(facts, "")
        wrong = refused & settings.releases
        caught = settings.place.caught if settings.place is not None else frozenset()
        if wrong and not caught & {"ValueError", "Exception"}:
            where = "loading the file raises" if settings.kind == "json" else "it raises"
            start, end = option.value_span
            yield settings_finding(
                self,
                facts,
                settings,
                option.value_span,
                f"`{' '.join(facts.text[start:end].split())}` is not a `{NAME}`: {where} ValueError {{when}}",
                releases=wrong,
                life=refused,
                help=advice(facts, settings.releases),
            )

    def _of_value(self, facts: Facts, settings: Settings, option: Option) -> Iterator[Finding]:
        refused = refused_on(facts, str(option.value))
        wrong = refused & settings.releases
        caught = settings.place.caught if settings.place is not None else frozenset()
        if wrong and not caught & {"ValueError", "Exception"}:
            where = "loading the file raises" if settings.kind == "json" else "it raises"
            yield settings_finding(
                self,
                facts,
                settings,
                option.value_span,
                f'"{option.value}" is not a `{NAME}`: {where} ValueError {{when}}',
                releases=wrong,
                life=refused,
                help=advice(facts, settings.releases),
                fix=replacement(facts, settings, option, wrong),
            )
        ignored = releases_of(facts.timeline, "hybrid-means-dynamic") if option.value == "hybrid" else NO_RELEASE
        lost = ignored & settings.releases - wrong
        if lost and settings.kind != "json":
            yield settings_finding(
                self,
                facts,
                settings,
                option.value_span,
                f'`{NAME}="hybrid"` is unset {{when}}: `generate` builds a dynamic cache instead',
                releases=lost,
                life=ignored,
                help='write "static" for a preallocated cache (sliding layers keep their window), or leave it out',
                category=Category.SILENT,
                fix=replacement(facts, settings, option, lost),
            )


def or_default(facts: Facts, settings: Settings, option: Option) -> Option:
    """The option with the constant that its parameter has by default, where the function does nothing else with it."""
    function = settings.place.function if settings.place is not None else None
    if option.value is not None or not isinstance(option.node, ast.Name) or function is None:
        return option
    spec = function.node.args
    positional = [*spec.posonlyargs, *spec.args]
    pairs = [
        *zip(reversed(positional), reversed(spec.defaults), strict=False),
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ]
    default = next((value for arg, value in pairs if arg.arg == option.node.id), None)
    uses = [node for node in walk(function.node) if isinstance(node, ast.Name) and node.id == option.node.id]
    if not isinstance(default, ast.Constant) or not isinstance(default.value, str) or len(uses) != 1:
        return option
    return replace(option, value=default.value, value_span=facts.span(default), holder=None)


def refused_on(facts: Facts, value: str) -> ReleaseSet:
    """Releases that check the value and do not have it."""
    checked = facts.timeline.importable("transformers.generation.configuration_utils.ALL_CACHE_IMPLEMENTATIONS")
    accepted = facts.timeline.cache_implementations().get(value, NO_RELEASE)
    if value == "paged":
        accepted |= releases_of(facts.timeline, "paged-means-continuous-batching")
    return checked - accepted


def advice(facts: Facts, releases: ReleaseSet) -> str:
    names = [name for name, known in facts.timeline.cache_implementations().items() if releases <= known]
    modern = [name for name in names if "hybrid" not in name and name != "sliding_window"]
    return "one of " + ", ".join(f'"{name}"' for name in modern or names) if names else ""


def replacement(facts: Facts, settings: Settings, option: Option, wrong: ReleaseSet) -> Fix | None:
    """The nearest value that every release in force takes."""
    new = REPLACEMENTS.get(str(option.value))
    if new is None or settings.releases & refused_on(facts, new):
        return None
    if option.value == "hybrid" and not settings.releases <= facts.timeline.compare(">=", "4.56"):
        return None
    edit = string_edit(facts, option, new)
    return None if edit is None else Fix(f'Replace with "{new}"', Applicability.UNSAFE, (edit,))


def string_edit(facts: Facts, option: Option, new: str) -> Edit | None:
    """Replaces the content of the option's value where it is written as a plain string."""
    start, end = option.value_span
    quote = facts.text[start : start + 1]
    if facts.text[start:end] != f"{quote}{option.value}{quote}":
        return None
    return Edit(start + 1, end - 1, new)
