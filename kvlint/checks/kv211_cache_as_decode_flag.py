"""``if past_key_values is not None:`` read as "not the first step": ``generate`` passes an empty cache there too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, TestUse
from kvlint.analysis.nodes import assignment, walk
from kvlint.analysis.values import CacheObject, Certainty, cache_of
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.library_calls import without_made_cache
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import has_comment, is_plain, minimal

HOOKS = ("prepare_inputs_for_generation", "forward")
MEDIA = re.compile(r"pixel_values|image|images|video|audio|input_features|inputs_embeds|visual|speech")
FIRST_STEP = re.compile(
    r"vision|visual|encode_image|get_image|image_features|image_embeds|audio_features|inputs_embeds"
)
DECIDES_OTHERWISE = (
    "get_seq_length",
    "cache_position",
    "is_first_iteration",
    "_seen_tokens",
    "seen_tokens",
    "get_usable_length",
)


class CacheAsDecodeFlag(Check):
    """Reports tests for a cache that decide whether the prompt has been processed."""

    triggers = ("prepare_inputs_for_generation", "def forward")
    also = (("cache", "past_key_value"),)
    pattern = (
        r"(?:ids|inputs_embeds)[^\n]*\[\s*:\s*:?\s*,\s*-\s*1|def\s+prepare_inputs_for_generation[\s\S]*inputs_embeds|"
        r"(?:pixel_values|image|video|audio|input_features|inputs_embeds|visual|speech)(?:\[[^\]\n]*\]|[^\n=:\[])*=\s*None"
    )
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.tests:
            cache = cache_of(use.value, Certainty.PROVEN)
            function = use.place.function
            if cache is None or cache.source != "hook" or function is None or function.name not in HOOKS:
                continue
            if not isinstance(use.owner_node, (ast.If, ast.IfExp)) or not decides_first_step(facts, use, function.name):
                continue
            life = releases_of(facts.timeline, "empty-cache-first-step")
            if use.kind == "truth":
                life &= facts.timeline.matching(">=4.56")
            wrong = (use.place.releases & cache.when & life) - without_made_cache(facts, use.place.owner)
            if wrong:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    "`generate` passes an empty cache on the first step too {when}: this test does not tell the first step from later ones",
                    releases=wrong,
                    life=life,
                    help="ask the cache: `cache is not None and cache.get_seq_length() > 0`",
                    origin=cache.origin,
                    fix=fix_of(facts, use, cache),
                )


def decides_first_step(facts: Facts, use: TestUse, function: str) -> bool:
    """True where one side of the condition can only be meant for the first step, or only for later ones."""
    owner = use.owner_node
    assert isinstance(owner, (ast.If, ast.IfExp))
    test = facts.source(owner.test)
    if any(word in test for word in DECIDES_OTHERWISE):
        return False
    with_cache, without = branches(owner, use)
    source = " ".join(facts.source(node) for node in with_cache)
    if any(word in source for word in DECIDES_OTHERWISE):
        return False
    if any(cuts_to_last(node) or drops_media(node) for node in with_cache):
        return True
    if use.kind != "is-none" or function != "prepare_inputs_for_generation":
        return False
    return "inputs_embeds" in test and any("inputs_embeds" in facts.source(node) for node in without)


def branches(owner: ast.If | ast.IfExp, use: TestUse) -> tuple[list[ast.AST], list[ast.AST]]:
    """(what runs with a cache, what runs without)."""
    body: list[ast.AST] = list(owner.body) if isinstance(owner, ast.If) else [owner.body]
    orelse: list[ast.AST] = list(owner.orelse) if isinstance(owner, ast.If) else [owner.orelse]
    negated = isinstance(owner.test, ast.UnaryOp) and isinstance(owner.test.op, ast.Not)
    if (use.kind == "is-none") != negated:
        return orelse, body
    return body, orelse


def cuts_to_last(node: ast.AST) -> bool:
    """``input_ids[:, -1:]`` or ``input_ids[:, -1]`` somewhere in *node*."""
    for item in walk(node):
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Tuple) and len(item.slice.elts) == 2:
            first, second = item.slice.elts
            name = ast.unparse(item.value)
            if not re.search(r"(?i)input_ids|decoder_input_ids|token_ids|^ids$|position_ids|inputs_embeds", name):
                continue
            if isinstance(first, ast.Slice) and first.lower is None and first.upper is None:
                bound = second.lower if isinstance(second, ast.Slice) else second
                if (
                    isinstance(bound, ast.UnaryOp)
                    and isinstance(bound.op, ast.USub)
                    and isinstance(bound.operand, ast.Constant)
                ):
                    if bound.operand.value == 1 and "position" not in name:
                        return True
    return False


def drops_media(node: ast.AST) -> bool:
    """``pixel_values = None`` somewhere in *node*."""
    for item in walk(node):
        targets, value = assignment(item)
        if isinstance(value, ast.Constant) and value.value is None:
            for target in targets:
                if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) and MEDIA.search(ast.unparse(target)):
                    return True
    return False


def fix_of(facts: Facts, use: TestUse, cache: CacheObject) -> Fix | None:
    """Asks for the length as well."""
    if not is_plain(use.subject) or use.kind not in ("is-none", "is-not-none", "truth"):
        return None
    start, end = facts.span(use.node)
    if has_comment(facts.text[start:end]):
        return None
    name = facts.source(use.subject)
    if use.kind == "is-none":
        text = f"{name} is None or {name}.get_seq_length() == 0"
    else:
        text = f"{name} is not None and {name}.get_seq_length() > 0"
    owner = use.owner_node
    assert isinstance(owner, (ast.If, ast.IfExp))
    if owner.test is not use.node:
        text = f"({text})"
    since = facts.timeline.matching(">=5.0")
    safe = use.place.releases <= since and cache.when & ReleaseSet(use.place.releases.bits) == use.place.releases
    return Fix(
        "Ask for the length",
        Applicability.SAFE if safe else Applicability.UNSAFE,
        (minimal(facts.text, start, end, text),),
    )
