"""Options of generation that do nothing, or raise, in the company they are given in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kvlint.analysis.facts import Facts
from kvlint.behaviour import releases_of
from kvlint.carriers.json_spans import members
from kvlint.checks.base import Check
from kvlint.checks.generation_settings import JSON_KIND, Option, Settings, settings_finding, settings_of
from kvlint.checks.leaving_out import dict_at, leave_out, leave_out_key
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet

CACHES = ("cache", "past_key_values")
QUANTIZED = "transformers.cache_utils.QuantizedCache"
BACKENDS = {"quanto": ">=4.42", "hqq": ">=4.42", "fp8": ">=5.21"}


class IneffectiveCacheOption(Check):
    """Reports combinations of cache options that are refused or ignored."""

    triggers = ("cache_implementation", "cache_config", "max_cache_len", "return_legacy_cache")
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for settings in settings_of(facts):
            for finding in (
                self._both(facts, settings),
                self._without_cache(facts, settings),
                *self._max_cache_len(facts, settings),
                *self._unused_config(facts, settings),
                self._legacy(facts, settings),
            ):
                if finding is not None:
                    yield finding
            yield from self._config_keys(facts, settings)

    def _say(
        self,
        facts: Facts,
        settings: Settings,
        option: Option,
        fact: str,
        message: str,
        help: str,
        error: str = "",
        life: ReleaseSet | None = None,
        fix: Fix | None = None,
    ) -> Finding | None:
        life = releases_of(facts.timeline, fact) if life is None else life
        wrong = life & settings.releases
        caught = settings.place.caught if settings.place is not None else frozenset()
        if not wrong or (error and caught & {error, "Exception"}):
            return None
        return settings_finding(
            self,
            facts,
            settings,
            option.span,
            message,
            releases=wrong,
            life=life,
            help=help,
            category=Category.BREAKS if error else Category.SILENT,
            fix=fix,
        )

    def _both(self, facts: Facts, settings: Settings) -> Finding | None:
        """A cache object and the name of one in the same call."""
        named = settings.given("cache_implementation")
        if settings.kind != "generate" or named is None or not isinstance(named.value, str):
            return None
        cache = next((option for name in CACHES if (option := settings.given(name)) is not None), None)
        if cache is None or cache.value is not None:
            return None
        return self._say(
            facts,
            settings,
            named,
            "cache-and-implementation",
            f"`cache_implementation` together with a cache (`{cache.name}=`): ValueError {{when}}",
            "pass one of the two: the cache object already says what kind it is",
            "ValueError",
            fix=without(facts, settings, (named,), releases_of(facts.timeline, "cache-and-implementation")),
        )

    def _without_cache(self, facts: Facts, settings: Settings) -> Finding | None:
        """Cache options of a generation that keeps no cache."""
        switch = settings.given("use_cache")
        if switch is None or switch.value is not False or settings.kind in ("attribute", "dict"):
            return None
        options = [
            one for name in ("cache_implementation", "cache_config") if (one := settings.given(name)) is not None
        ]
        if not options:
            return None
        life = facts.timeline.compare(">=", "4.45")
        return self._say(
            facts,
            settings,
            options[0],
            "",
            f"`{options[0].name}` has no effect with `use_cache=False`",
            "drop one of the two",
            life=life,
            fix=without(facts, settings, options, life, idle=life),
        )

    def _max_cache_len(self, facts: Facts, settings: Settings) -> Iterator[Finding | None]:
        option = settings.given("max_cache_len")
        if option is None or settings.kind in ("attribute", "dict"):
            return
        refused = NO_RELEASE
        idle = NO_RELEASE
        if is_static(settings):
            idle = releases_of(facts.timeline, "max-cache-len-unused")
        elif decided(facts, settings):
            idle = releases_of(facts.timeline, "max-cache-len-needs-static")
            idle |= releases_of(facts.timeline, "max-cache-len-unused")
        if settings.kind == "generate":
            refused = releases_of(facts.timeline, "max-cache-len-refused")
        fix = without(facts, settings, (option,), refused | idle, idle=idle - refused)
        if settings.kind == "generate":
            yield self._say(
                facts,
                settings,
                option,
                "max-cache-len-refused",
                "`generate` takes no `max_cache_len`: ValueError {when}",
                "build the cache yourself: `StaticCache(config=model.config, max_cache_len=...)`",
                "ValueError",
                fix=fix,
            )
        if is_static(settings):
            yield self._say(
                facts,
                settings,
                option,
                "max-cache-len-unused",
                "nothing reads `max_cache_len` {when}: the cache is as long as the call needs",
                "build the cache yourself: `StaticCache(config=model.config, max_cache_len=...)`",
                life=releases_of(facts.timeline, "max-cache-len-unused") - refused,
                fix=fix,
            )
        elif decided(facts, settings):
            yield self._say(
                facts,
                settings,
                option,
                "max-cache-len-needs-static",
                "`max_cache_len` has no effect {when}: only static caches read it",
                'add `cache_implementation="static"`, or drop it',
                life=releases_of(facts.timeline, "max-cache-len-needs-static") - refused,
                fix=fix,
            )

    def _unused_config(self, facts: Facts, settings: Settings) -> Iterator[Finding | None]:
        """``cache_config`` for something else than a quantized cache."""
        switch = settings.given("use_cache")
        if switch is not None and switch.value is False:
            return None
        option = settings.given("cache_config")
        if option is None or settings.kind in ("attribute", "dict") or not decided(facts, settings):
            return
        named = settings.given("cache_implementation")
        refused = NO_RELEASE
        idle = releases_of(facts.timeline, "cache-config-for-quantized")
        if named is None:
            refused = releases_of(facts.timeline, "cache-config-needs-implementation")
        fix = without(facts, settings, (option,), refused | idle, idle=idle - refused)
        if named is None:
            yield self._say(
                facts,
                settings,
                option,
                "cache-config-needs-implementation",
                "`cache_config` without `cache_implementation`: ValueError {when}",
                'add `cache_implementation="quantized"`',
                "ValueError",
                fix=fix,
            )
        elif not isinstance(named.value, str) or named.value == "quantized":
            return
        yield self._say(
            facts,
            settings,
            option,
            "cache-config-for-quantized",
            "`cache_config` has no effect {when}: only quantized caches read it",
            'add `cache_implementation="quantized"`, or drop it',
            life=idle - refused,
            fix=fix,
        )

    def _legacy(self, facts: Facts, settings: Settings) -> Finding | None:
        option = settings.given("return_legacy_cache")
        if option is None:
            return None
        if settings.kind == "generate":
            return self._say(
                facts,
                settings,
                option,
                "legacy-cache-refused",
                "`generate` takes no `return_legacy_cache`: ValueError {when}",
                "drop it: what comes back is always a cache object",
                "ValueError",
                fix=without(facts, settings, (option,), releases_of(facts.timeline, "legacy-cache-refused")),
            )
        if option.value is not True:
            return None
        return self._say(
            facts,
            settings,
            option,
            "legacy-cache-ignored",
            "`return_legacy_cache` is ignored {when}: a cache object comes back",
            "make the tuple yourself: `tuple((layer.keys, layer.values) for layer in cache.layers)`",
            fix=without(facts, settings, (option,), releases_of(facts.timeline, "legacy-cache-ignored")),
        )

    def _config_keys(self, facts: Facts, settings: Settings) -> Iterator[Finding]:
        """Keys of ``cache_config`` that the quantized cache does not take, and names of backends it does not know."""
        named, option = settings.given("cache_implementation"), settings.given("cache_config")
        if named is None or named.value != "quantized" or option is None or option.items is None:
            return
        for key, value in option.items.items():
            unknown = facts.timeline.compare(">=", "4.56") & unknown_key(facts, key)
            at = key_option(facts, settings, option, key)
            if unknown:
                found = self._say(
                    facts,
                    settings,
                    at,
                    "",
                    f"a quantized cache takes no `{key}`: TypeError {{when}}",
                    "leave it out",
                    "TypeError",
                    unknown,
                    leave_out_key(facts, option, key) if settings.releases <= unknown else None,
                )
                if found is not None:
                    yield found
            elif key == "backend" and isinstance(value, str):
                known = facts.timeline.matching(BACKENDS[value]) if value in BACKENDS else NO_RELEASE
                refused = facts.timeline.compare(">=", "4.56") - known
                hint = f'write "{value.lower()}"' if value.lower() in BACKENDS else 'one of "quanto", "hqq"'
                found = (
                    self._say(
                        facts,
                        settings,
                        at,
                        "",
                        f'no quantization backend is called "{value}": ValueError {{when}}',
                        hint,
                        "ValueError",
                        refused,
                        lower_case(facts, at, value) if settings.releases <= refused else None,
                    )
                    if refused
                    else None
                )
                if found is not None:
                    yield found


def without(
    facts: Facts, settings: Settings, options: Sequence[Option], right: ReleaseSet, idle: ReleaseSet = NO_RELEASE
) -> Fix | None:
    """Leaves the options out, where that is right on every release in force.

    Safe where a call says by itself that they are *idle*; what a configuration holds, or leaves open, another place may
    complete.
    """
    if not settings.releases <= right or (
        settings.kind != "generate" and is_read(facts, {one.name for one in options})
    ):
        return None
    named = settings.given("cache_implementation") is not None or settings.given("use_cache") is not None
    is_safe = settings.kind == "generate" and named and settings.releases <= idle
    return leave_out(facts, options, Applicability.SAFE if is_safe else Applicability.UNSAFE)


def is_read(facts: Facts, names: set[str]) -> bool:
    """True where code of the file asks a configuration for one of the options: ``config.max_cache_len``, or by a string."""
    nodes = walk(facts.tree) if facts.tree is not None and facts.kind != JSON_KIND else []
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in names)
        or (
            isinstance(node, ast.Call)
            and any(isinstance(item, ast.Constant) and item.value in names for item in node.args)
        )
        for node in nodes
    )


def lower_case(facts: Facts, option: Option, value: str) -> Fix | None:
    """The name of a backend as it is spelled today."""
    new = value.lower()
    start, end = option.value_span
    quote = facts.text[start : start + 1]
    if new not in BACKENDS or facts.text[start:end] != f"{quote}{value}{quote}":
        return None
    return Fix(f'Replace with "{new}"', Applicability.UNSAFE, (Edit(start + 1, end - 1, new),))


def unknown_key(facts: Facts, key: str) -> ReleaseSet:
    """Releases on which the constructor of the quantized cache has no such parameter."""
    unknown = NO_RELEASE
    for releases, signature in facts.timeline.signatures(QUANTIZED):
        if signature.parameter(key) is None and not signature.accepts_kwargs:
            unknown |= releases
    return unknown


def key_option(facts: Facts, settings: Settings, option: Option, key: str) -> Option:
    """The option narrowed to one key of its dict, where that is written right there."""
    if facts.kind == JSON_KIND:
        for name, span in members(facts.text, option.value_span[0]):
            if name == key and span.key is not None:
                return Option(key, None, (span.key[0], span.end), (span.start, span.end))
        return option
    holder = dict_at(facts, option)
    if isinstance(holder, ast.Dict):
        for written, item in zip(holder.keys, holder.values, strict=True):
            if isinstance(written, ast.Constant) and written.value == key:
                return Option(key, None, (facts.span(written)[0], facts.span(item)[1]), facts.span(item))
    if isinstance(holder, ast.Call):
        for keyword in holder.keywords:
            if keyword.arg == key:
                return Option(key, None, facts.span(keyword), facts.span(keyword.value))
    return option


def is_static(settings: Settings) -> bool:
    named = settings.given("cache_implementation")
    return (
        named is not None and isinstance(named.value, str) and named.value not in ("dynamic", "offloaded", "quantized")
    )


def decided(facts: Facts, settings: Settings) -> bool:
    """True where nothing else can name the implementation: no open ``**``, no other config, no assignment in the file."""
    named = settings.given("cache_implementation")
    if named is not None:
        return isinstance(named.value, str)
    if settings.open or settings.kind == "update":
        return False
    if settings.kind != "generate":
        return True
    if any(use.name == "cache_implementation" and use.action == "store" for use in facts.attributes):
        return False
    place = settings.place
    return place is not None and not any(
        any(item.arg == "generation_config" for item in use.node.keywords) and use.place is place for use in facts.calls
    )
