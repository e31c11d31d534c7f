"""A quantized cache for a model with sliding, chunked or recurrent layers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kvlint.analysis.facts import Facts
from kvlint.analysis.values import QUANTIZED_CACHE, Config, Model, Symbol, of_type
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.generation_settings import Option, Settings, settings_finding, settings_of
from kvlint.checks.leaving_out import leave_out
from kvlint.findings import Applicability, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.timeline import packaged_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HELP = 'leave it out (the dynamic cache bounds such layers by itself), or use "offloaded"'


class QuantizedCacheOnSlidingModel(Check):
    """Reports quantized caches of models that are known to have other layers than full attention."""

    triggers = ("quantized", "QuantizedCache")
    also = (("cache_implementation", "QuantizedCache"),)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "quantized-full-attention-only")
        for settings in settings_of(facts):
            option = settings.given("cache_implementation")
            if (
                settings.kind not in ("generate", "attribute")
                or option is None
                or option.value != "quantized"
                or settings.model is None
            ):
                continue
            wrong = life & settings.releases
            layers = other_layers(settings.model)
            place = settings.place
            if wrong and layers and place is not None and not place.caught & {"ValueError", "Exception"}:
                yield settings_finding(
                    self,
                    facts,
                    settings,
                    option.span,
                    f"{shown(settings.model)} has {layers} layers, which a quantized cache refuses: ValueError {{when}}",
                    releases=wrong,
                    life=life,
                    help=HELP,
                    fix=without(facts, settings, option, life),
                )
        for use in facts.calls:
            if not any(
                isinstance(atom, Symbol) and facts.timeline.canonical(atom.name) == QUANTIZED_CACHE
                for atom in use.callee
            ):
                continue
            values = [*use.arguments, *(value for name, value in use.keywords if name == "config")]
            config = next((atom for value in values for atom in of_type(value, Config)), None)
            wrong = life & use.place.releases
            layers = other_layers(config) if config is not None else ""
            if wrong and config is not None and layers and not use.place.caught & {"ValueError", "Exception"}:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    f"{shown(config)} has {layers} layers, which a quantized cache refuses: ValueError {{when}}",
                    releases=wrong,
                    life=life,
                    help=HELP,
                )


def without(facts: Facts, settings: Settings, option: Option, life: ReleaseSet) -> Fix | None:
    """Leaves the quantized cache out, and the options for it; what a variable or another config holds stays."""
    if not settings.releases <= life:
        return None
    config = settings.given("cache_config")
    return leave_out(facts, (option,) if config is None else (option, config), Applicability.UNSAFE)


@lru_cache(maxsize=1)
def families() -> Mapping[str, Mapping[str, Any]]:
    """The content of ``sliding_models.toml``, by the prefix of the class names."""
    data: Mapping[str, Any] = tomllib.loads(
        packaged_file().with_name("sliding_models.toml").read_text(encoding="utf-8")
    )
    found: Mapping[str, Mapping[str, Any]] = data["family"]
    return found


def other_layers(source: Model | Config) -> str:
    """The kind of layer that is refused, where model or config are known to have one; "" otherwise."""
    if source.windowed:
        return "windowed"
    short = source.cls.rpartition(".")[2]
    for prefix, family in families().items():
        if any(re.search(pattern, source.name, re.IGNORECASE) for pattern in family["names"]) and source.name:
            return str(family["layers"]).replace("_", " ").removesuffix(" attention") + " attention"
        rest = short.removeprefix(prefix)
        if (
            rest != short
            and (not rest or rest.startswith(("For", "Model", "Config", "Text")))
            and family.get("classes", True)
        ):
            return str(family["layers"]).replace("_", " ").removesuffix(" attention") + " attention"
    return ""


def shown(source: Model | Config) -> str:
    if source.name:
        return f'"{source.name}"'
    return f"`{source.cls.rpartition('.')[2]}`" if source.cls else "the model"
