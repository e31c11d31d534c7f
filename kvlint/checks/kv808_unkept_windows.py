"""``DynamicCache()`` without the configuration, for a model whose layers have windows: they keep every token."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import DYNAMIC_CACHE, CacheObject, Member, Model, Symbol, of_type
from kvlint.checks.base import Check
from kvlint.checks.cache_feeds import CACHE_WORDS, cached_feeds
from kvlint.checks.kv404_quantized_cache_on_sliding_model import other_layers, shown
from kvlint.findings import Category, Finding

WINDOWS = ("sliding", "chunked", "windowed")
TAKES_CONFIG = ">=4.56"
"""Releases on which a dynamic cache makes the layers that a configuration asks for."""
GOES_BACK = re.compile(r"\bcrop\b|activate_past_recording|assistant_model|prompt_lookup|truncate")
"""What needs the tokens that a window has left behind."""


class UnkeptWindows(Check):
    """Reports empty dynamic caches that a model with sliding or chunked layers fills."""

    triggers = ("DynamicCache",)
    also = (CACHE_WORDS,)
    category = Category.WASTEFUL

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if GOES_BACK.search(facts.text):
            return
        made = {facts.span(use.node)[0]: use for use in facts.calls if is_bare(facts, use)}
        life = facts.timeline.matching(TAKES_CONFIG)
        told: set[int] = set()
        for feed in cached_feeds(facts) if made else ():
            model = model_of(feed.use)
            layers = other_layers(model) if model is not None else ""
            if model is None or not layers.startswith(WINDOWS):
                continue
            for start in origins(facts, feed.use):
                use = made.get(start)
                wrong = use.place.releases & life if use is not None else life - life
                if use is None or not wrong or start in told:
                    continue
                told.add(start)
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    f"{shown(model)} has {layers} layers, and this cache keeps every token of them {{when}}",
                    releases=wrong,
                    life=life,
                    help="`DynamicCache(config=model.config)` keeps what the windows see; the tokens are the same",
                )


def is_bare(facts: Facts, use: CallUse) -> bool:
    """True for ``DynamicCache()``."""
    classes = [facts.timeline.canonical(atom.name) for atom in use.callee if isinstance(atom, Symbol)]
    return classes == [DYNAMIC_CACHE] and len(use.callee) == 1 and not use.node.args and not use.node.keywords


def model_of(use: CallUse) -> Model | None:
    """The one model that a call runs."""
    if len(use.callee) != 1:
        return None
    atom = use.callee[0].of if isinstance(use.callee[0], Member) else use.callee[0]
    return atom if isinstance(atom, Model) and atom.role == "model" else None


def origins(facts: Facts, use: CallUse) -> list[int]:
    """Where the cache that a call is given was made, if it is one that was made in this file."""
    found = [atom for name, value in use.keywords if name in CACHE_WORDS for atom in of_type(value, CacheObject)]
    if len(found) != 1 or found[0].source != "constructed" or found[0].config_given or found[0].local_class is not None:
        return []
    origin = found[0].origin
    return [origin.start] if origin is not None and origin.path in ("", str(facts.path)) else []
