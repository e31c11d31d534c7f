"""``use_cache=False`` in generation: every step computes the whole sequence again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import Scope, tree_of
from kvlint.checks.cache_feeds import Feed, dependence, feeds_of, last_part, scope_of
from kvlint.checks.generation_settings import JSON_KIND, Settings, settings_finding, settings_of
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk

REASON = re.compile(
    r"gradient_checkpointing|\.backward\(|\bTrainer\b|TrainingArguments|use_cache ?[=:] ?True|\"use_cache\": ?True|no_cache|uncached"
    r"|without_(?:kv_)?cache|output_(?:attentions|hidden_states) ?= ?True|baseline|reference|compare|benchmark"
    r"|continuous_batching|paged|\.train\(\)|\bloss\b"
)
"""Words beside which generation without a cache has a reason: training, a comparison, all attentions of all steps."""
NO_CACHE = re.compile(r"(?i)no_?cache|uncached|reference|golden|baseline|train|bench|compare|^test_|expected")
PROMPT_TUNING = re.compile(
    r"(?i)num_virtual_tokens|(?:prompt|prefix)_?(?:tuning|encoder|embeddings?)|soft_?(?:prompt|tokens?)"
)
"""Words of code about learned tokens."""
COMMENT = re.compile(r"(?:^|\s)#\s*(?!kvlint\b|noqa\b|type:|pylint\b|pragma\b|fmt:)\w")
"""A comment for people."""
MESSAGE = "generation without a cache: every step computes the keys and values of the whole sequence again"
HELP = "leave `use_cache` out: the tokens are the same"


class CacheDisabled(Check):
    """Reports generation that is told not to use a cache, and gives no reason."""

    triggers = ("use_cache",)
    category = Category.WASTEFUL

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for settings in settings_of(facts):
            option = settings.given("use_cache")
            if (
                option is None
                or option.value is not False
                or settings.given("cache")
                or settings.given("past_key_values")
            ):
                continue
            if (
                settings.given("cache_implementation")
                or has_reason(facts, settings, option.span)
                or puts_in_front(facts)
            ):
                continue
            start, end = option.value_span
            written = facts.text[start:end]
            fix = None
            if written in ("False", "false"):
                fix = Fix(
                    "Use the cache", Applicability.UNSAFE, (Edit(start, end, "True" if written == "False" else "true"),)
                )
            yield settings_finding(
                self,
                facts,
                settings,
                option.span,
                MESSAGE,
                releases=settings.releases,
                life=settings.releases,
                help=HELP,
                category=Category.WASTEFUL,
                fix=fix,
            )
        if facts.kind != JSON_KIND:
            for feed in feeds_of(facts):
                node = disabled_in_loop(facts, feed)
                if node is not None:
                    yield self.finding(
                        facts,
                        node,
                        feed.place,
                        MESSAGE,
                        releases=feed.place.releases,
                        help="keep the cache of the output and feed only the new token: `out = model(token, cache=out.cache)`",
                    )


def has_reason(facts: Facts, settings: Settings, span: tuple[int, int]) -> bool:
    """True where the code beside the option says why: a comment, training, a comparison with the cached run."""
    if settings.kind == "json" or facts.tree is None or settings.place is None:
        return False
    place = settings.place
    if settings.kind == "dict":  # written over what a caller has asked for: somebody needs it so
        return True
    if commented(facts, span[0], place.statement):
        return True
    if short(facts, span[0], place.statement):
        return True
    node: ast.AST = place.function.node if place.function is not None else facts.tree
    if settings.kind in ("attribute", "update") and not rules_generation(facts, node, place.statement):
        return True
    if place.function is not None and NO_CACHE.search(place.function.qualname):
        return True
    if any(NO_CACHE.search(path_of(target)) for target in getattr(place.statement, "targets", ())):
        return True
    if isinstance(node, ast.Module):
        first, last = max(place.statement.lineno - 15, 1), (place.statement.end_lineno or place.statement.lineno) + 15
        lines = facts.text.split("\n")
        text = "\n".join(lines[first - 1 : last])
    else:
        text = facts.source(node)
    return bool(REASON.search(text)) or "gradient_checkpointing" in facts.text


def puts_in_front(facts: Facts) -> bool:
    """True for a file with a model that puts learned tokens before what it is given: with a cache it would on every step."""
    if PROMPT_TUNING.search(facts.text):
        return True
    nodes = walk(facts.tree) if facts.tree is not None and "inputs_embeds" in facts.text else []
    forwards = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    return any(
        isinstance(call, ast.Call) and any(item.arg == "inputs_embeds" for item in call.keywords)
        for forward in forwards
        for call in walk(forward)
    )


def rules_generation(facts: Facts, scope: ast.AST, statement: ast.stmt) -> bool:
    """True for a setting that is made in any case, in a scope that goes on to generate."""
    parent = tree_of(facts).parent(statement)
    if parent is not scope and not isinstance(parent, (ast.With, ast.AsyncWith)):
        return False
    return any(
        isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "generate"
        for item in walk(scope)
        if getattr(item, "lineno", 0) > statement.lineno
    )


def commented(facts: Facts, offset: int, statement: ast.stmt) -> bool:
    """True for a comment on the line of the option, in the statement, or on the line above either."""
    lines = facts.text.split("\n")
    line = facts.text.count("\n", 0, offset) + 1
    numbers = {line, line - 1, statement.lineno, statement.lineno - 1}
    return any(COMMENT.search(lines[number - 1]) for number in numbers if 0 < number <= len(lines))


def short(facts: Facts, offset: int, statement: ast.stmt) -> bool:
    """True for a call that makes one token, for which no cache is needed, or returns what only a run without cache has."""
    for node in walk(statement):
        if isinstance(node, ast.Call):
            start, end = facts.span(node)
            if start <= offset < end:
                for item in node.keywords:
                    if (
                        item.arg in ("max_new_tokens", "max_length")
                        and isinstance(item.value, ast.Constant)
                        and item.value.value == 1
                    ):
                        return True
                    if item.arg in ("output_attentions", "output_hidden_states", "labels"):
                        return True
    return False


def disabled_in_loop(facts: Facts, feed: Feed) -> ast.keyword | None:
    """The ``use_cache=False`` of a decoding loop that feeds ever longer ids."""
    keyword = feed.use.keyword("use_cache")
    if (
        feed.role != "model"
        or keyword is None
        or not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    ):
        return None
    scope = scope_of(facts, feed)
    loops = scope.loops(feed.node)
    if not loops or len(feed.ids) != 1 or not grows_by_cat(scope, path_of(feed.ids[0]), loops[0]):
        return None
    if not dependence(facts, scope, loops[0], feed.ids).carried:
        return None
    name = getattr(scope.node, "name", "")
    text = facts.source(scope.node) if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else facts.text
    if commented(facts, facts.span(keyword)[0], feed.place.statement) or NO_CACHE.search(name) or REASON.search(text):
        return None
    return keyword


def grows_by_cat(scope: Scope, path: str, loop: ast.AST) -> bool:
    """True for ``ids = torch.cat([ids, token], dim=1)`` inside *loop*."""
    for item in scope.bindings.get(path, ()):
        value = item.value
        if (
            isinstance(value, ast.Call)
            and last_part(path_of(value.func)) in ("cat", "concat", "hstack")
            and scope.tree.inside(item.node, loop)
        ):
            if value.args and isinstance(value.args[0], (ast.List, ast.Tuple)) and value.args[0].elts:
                if path_of(value.args[0].elts[0]) == path:
                    return True
    return False
