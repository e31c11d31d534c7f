"""A ``cache_implementation`` that is accepted with a warning and announced for removal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvlint.analysis.facts import Facts
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.generation_settings import Option, Settings, choices, settings_finding, settings_of
from kvlint.checks.kv401_invalid_cache_implementation import NAME, string_edit
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.releases import NO_RELEASE, ReleaseSet

REPLACEMENTS = {
    "hybrid": "static",
    "hybrid_chunked": "static",
    "sliding_window": "static",
    "offloaded_hybrid": "offloaded_static",
    "offloaded_hybrid_chunked": "offloaded_static",
}


class DeprecatedCacheImplementation(Check):
    """Reports values that only stand for another one."""

    triggers = (NAME,)
    category = Category.DEPRECATED

    def findings(self, facts: Facts) -> Iterator[Finding]:
        deprecated = facts.timeline.generation_values("DEPRECATED_STATIC_CACHE_IMPLEMENTATIONS")
        for group in settings_of(facts):
            given = group.given(NAME)
            for settings, option in choices(facts, group, given) if given is not None else ():
                if option.value in REPLACEMENTS:
                    yield from self._of_value(facts, settings, option, deprecated)

    def _of_value(
        self, facts: Facts, settings: Settings, option: Option, deprecated: Mapping[str, ReleaseSet]
    ) -> Iterator[Finding]:
        life = deprecated.get(str(option.value), NO_RELEASE)
        if option.value == "hybrid":
            life = life - releases_of(facts.timeline, "hybrid-means-dynamic")
            if settings.kind == "json":
                return
        wrong = life & settings.releases
        if not wrong or wrong != settings.releases:
            return
        new = REPLACEMENTS[str(option.value)]
        edit = string_edit(facts, option, new)
        yield settings_finding(
            self,
            facts,
            settings,
            option.value_span,
            f'`{NAME}="{option.value}"` is deprecated {{when}}: it stands for "{new}"',
            releases=wrong,
            life=life,
            help=f'write "{new}": the kind of each layer comes from the model\'s config',
            category=Category.DEPRECATED,
            fix=None if edit is None else Fix(f'Replace with "{new}"', Applicability.SAFE, (edit,)),
        )
