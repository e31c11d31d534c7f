"""Members of generation settings that are gone: attributes of ``cache_config``, which is a dict, and ``return_legacy_cache``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.expressions import is_cache_config
from kvlint.analysis.facts import AttributeUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import GenerationConfigValue, only
from kvlint.behaviour import releases_of
from kvlint.checks.receivers import ATTRIBUTE_ERRORS
from kvlint.nodes import walk
from kvlint.releases import ReleaseSet

GENERATION_CONFIG = "transformers.generation.configuration_utils.GenerationConfig"
GONE = ("return_legacy_cache",)
"""Settings around the cache that are no attribute of the configuration any more."""


@dataclass(frozen=True, slots=True)
class MissingSetting:
    """A read of a member that generation settings do not have on the releases *wrong*."""

    use: AttributeUse
    wrong: ReleaseSet
    life: ReleaseSet
    says: str
    help: str


def missing_settings(facts: Facts) -> Iterator[MissingSetting]:
    """``generation_config.cache_config.batch_size``, ``generation_config.return_legacy_cache``."""
    for use in (*facts.attributes, *facts.defaults):
        if use.action not in ("load", "default") or use.place.typing_only or use.place.known_members:
            continue
        if use.action == "load" and use.place.caught & ATTRIBUTE_ERRORS:
            continue
        if len(use.value) == 1 and is_cache_config(use.value):
            found = of_dict(facts, use)
        elif use.name in GONE and use.action == "load" and only(use.value, GenerationConfigValue):
            found = of_settings(facts, use)
        else:
            continue
        if found is not None and found.wrong:
            yield found


def of_dict(facts: Facts, use: AttributeUse) -> MissingSetting | None:
    """An attribute of ``cache_config`` that no dict has; None where the code around asks what it is."""
    if hasattr(dict, use.name) or asks_kind(use):
        return None
    life = releases_of(facts.timeline, "cache-config-is-dict")
    outcome = "AttributeError {when}" if use.action == "load" else "this is always the default {when}"
    says = f"`cache_config` is a dict, which has no `{use.name}`: {outcome}"
    return MissingSetting(use, use.place.releases & life, life, says, f'`cache_config["{use.name}"]`')


def of_settings(facts: Facts, use: AttributeUse) -> MissingSetting | None:
    """A setting that is gone; None where the file sets it, which makes it an attribute again."""
    if re.search(rf"{use.name}[\"']?\s*[:=](?!=)", facts.text):
        return None
    life = facts.timeline.all - facts.timeline.member(GENERATION_CONFIG, use.name)
    says = f"`GenerationConfig` has no `{use.name}`: AttributeError {{when}}"
    return MissingSetting(use, use.place.releases & life, life, says, "models return cache objects only")


def asks_kind(use: AttributeUse) -> bool:
    """True where the function asks what the object is: ``isinstance(x, dict)``, ``hasattr(x, ...)``."""
    path, function = path_of(use.value_node), use.place.function
    nodes = walk(function.node) if function is not None else []
    return bool(path) and any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "hasattr", "type", "is_dataclass")
        and bool(node.args)
        and path_of(node.args[0]) == path
        for node in nodes
    )
