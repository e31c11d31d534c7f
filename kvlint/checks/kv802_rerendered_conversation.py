"""A conversation that is rendered anew with changed earlier turns, or fed whole to a model, beside the cache of its old text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.recorder import path_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import FUNCTIONS, NOTHING, Placed, Scope, by_path, position, tree_of
from kvlint.checks.cache_feeds import (
    Feed,
    cache_sources,
    cached_feeds,
    calls_in,
    handled,
    is_output_cache,
    renewed_by_callee,
    renews,
    scope_of,
    slice_of,
    stays,
)
from kvlint.findings import Category, Finding
from kvlint.nodes import walk

THINKING_MODELS = re.compile(
    r"^(?:Qwen/QwQ-32B|Qwen/Qwen3-(?:0\.6B|1\.7B|4B|8B|14B|32B|30B-A3B|235B-A22B)(?:-FP8|-AWQ|-GPTQ-Int[48])?|deepseek-ai/DeepSeek-R1(?:-\w[\w.-]*)?)$"
)
"""Models whose chat template leaves the reasoning out of all turns but the last."""
REASONING = re.compile(r"(?i)think|reasoning|<\|channel\|>|analysis")


class RerenderedConversation(Check):
    """Reports conversations that go to the model again in another form than the one in the cache."""

    triggers = ("apply_chat_template",)
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for feed in cached_feeds(facts):
            scope = scope_of(facts, feed)
            messages = rendered_messages(scope, feed)
            if not messages or not is_live(facts, scope, feed):
                continue
            why = difference(facts, scope, feed, messages)
            if why:
                assert feed.keyword is not None and feed.cache is not None
                yield self.finding(
                    facts,
                    feed.keyword,
                    feed.place,
                    f"the whole conversation is fed beside its own cache, {why}",
                    releases=feed.place.releases,
                    help="keep the ids and append the new turn to them, or start a new cache when the conversation is rendered anew",
                )


def rendered_messages(scope: Scope, feed: Feed) -> str:
    """The path of the growing list of messages that a chat template makes the ids from; "" where there is none."""
    expressions, _ = slice_of(scope, feed.inputs)
    for call in calls_in(expressions):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "apply_chat_template":
            argument = (
                call.args[0]
                if call.args
                else next((item.value for item in call.keywords if item.arg == "conversation"), None)
            )
            path = path_of(argument) if argument is not None else ""
            if path:
                return path
    return ""


def region_of(scope: Scope, feed: Feed) -> ast.AST | None:
    """What runs once for each turn: the loop around the feed, or the function of an object."""
    loops = scope.loops(feed.node)
    if loops:
        return loops[0]
    if feed.path.startswith("self.") and isinstance(scope.node, FUNCTIONS):
        return scope.node
    return None


def is_live(facts: Facts, scope: Scope, feed: Feed) -> bool:
    """True where the cache is that of the turns before."""
    region = region_of(scope, feed)
    if region is None:
        return False
    if feed.path and stays(facts, scope, feed.path, region):
        return not (
            region is scope.node
            and (getattr(scope.node, "name", "") == "__init__" or renewed_by_callee(facts, scope, feed))
        )
    sources = [item for item in cache_sources(scope, feed) if scope.tree.inside(item.node, region)]
    if not sources or handled(facts, scope, feed.path, region):
        return False
    assert feed.cache is not None
    bound = scope.bound_in(feed.path, region)
    if region is scope.node:
        return bool(bound) and all(
            position(item.node) > position(feed.node) and is_result(scope, feed, item.value) for item in bound
        )
    return all(is_result(scope, feed, item.value) for item in sources) and all(
        position(item.node) >= position(feed.node) or is_result(scope, feed, item.value) for item in bound
    )


def is_result(scope: Scope, feed: Feed, value: ast.expr | None) -> bool:
    """True for ``out.past_key_values`` of a call on this cache."""
    if value is None:
        return False
    return bool(is_output_cache(value)) or (
        value is feed.node and feed.cache is not None and bool(is_output_cache(feed.cache))
    )


def difference(facts: Facts, scope: Scope, feed: Feed, messages: str) -> str:
    """How the new ids differ from those in the cache, as far as the code proves it; "" where they may just continue them."""
    region = region_of(scope, feed)
    assert region is not None
    grows = changes_any(scope, messages, region, ("append", "extend")) or rebuilt(scope, messages, region, growing=True)
    if feed.role == "model":
        expressions, _ = slice_of(scope, feed.inputs)
        if grows and not any(cuts(item) for item in expressions):
            return "and a call of the model appends all it is given: every turn is in the cache again"
        return ""
    key = ("edited", messages, id(region), feed.path, id(feed.place.owner))
    edit = scope.memo.get(key)
    if edit is None:
        edit = scope.memo[key] = edited(facts, scope, feed, messages, region)
    if edit:
        return f"but {edit}: the ids no longer begin with what the cache holds"
    if not grows:
        return ""
    altered = altered_reply(scope, messages, region)
    if altered:
        return f"but {altered}: the ids no longer begin with what the cache holds"
    name = thinking_model(facts)
    if name:
        return f"but the chat template of {name} drops the reasoning of earlier turns: the ids no longer begin with what the cache holds"
    return ""


def cuts(expression: ast.expr) -> bool:
    """True where something is sliced on the way, for example to what the cache does not hold yet."""
    return any(
        isinstance(node, ast.Subscript)
        and (
            isinstance(node.slice, ast.Slice)
            or (
                isinstance(node.slice, ast.Tuple)
                and any(isinstance(item, ast.Slice) and item.lower is not None for item in node.slice.elts)
            )
        )
        for node in walk(expression)
    )


def changes(scope: Scope, path: str, region: ast.AST, methods: tuple[str, ...]) -> list[ast.AST]:
    """Calls of a method that changes the list in place."""
    return [
        node for method in methods for node in scope.all_inside(scope.methods.get(f"{path}.{method}", NOTHING), region)
    ]


def changes_any(scope: Scope, path: str, region: ast.AST, methods: tuple[str, ...]) -> bool:
    """True where there is such a call."""
    return any(scope.inside(scope.methods.get(f"{path}.{method}", NOTHING), region) for method in methods)


def rebuilt(scope: Scope, path: str, region: ast.AST, growing: bool) -> bool:
    """True for ``messages = messages + [...]`` and ``messages += [...]`` (*growing*), or for ``messages = messages[-n:]``."""
    for item in scope.bound_in(path, region):
        if item.path != path:
            continue
        if growing and item.kind == "augmented":
            return True
        if item.value is None or item.kind != "assign":
            continue
        sliced = any(
            isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and path_of(node.value) == path
            for node in walk(item.value)
        )
        grown = isinstance(item.value, ast.BinOp) and path_of(item.value.left) == path
        if (growing and grown and not sliced) or (not growing and sliced):
            return True
    return False


def edited(facts: Facts, scope: Scope, feed: Feed, messages: str, region: ast.AST) -> str:
    """What is done to earlier messages between two turns."""
    where = [(scope, region)]
    if messages.startswith("self.") and feed.path.startswith("self."):
        tree = tree_of(facts)
        others = [
            use.info
            for use in facts.functions
            if use.info.owner is feed.place.owner and use.info.node is not scope.node
        ]
        where += [(tree.scope(info.node), info.node) for info in others if info.name in scope.called]
    for other, part in where:
        if other is not scope and renews(facts, other, feed.path):
            return ""
        if rebuilt(other, messages, part, growing=False):
            return "only the last messages are kept"
        for call in changes(other, messages, part, ("pop", "insert", "remove")):
            assert isinstance(call, ast.Call)
            first = call.args[0] if call.args else None
            by_value = isinstance(call.func, ast.Attribute) and call.func.attr == "remove"
            if by_value or (isinstance(first, ast.Constant) and isinstance(first.value, int) and first.value >= 0):
                return f"earlier messages are changed (`{facts.source(call)}`)"
        for node in other.all_inside(stored_items(other).get(messages, NOTHING), part):
            return f"earlier messages are changed (`{facts.source(node)}`)"
    return ""


def stored_items(scope: Scope) -> dict[str, Placed]:
    """Stores to an index from the front, or to a slice, of a list, by the path of the list."""
    known = scope.memo.get("stored items")
    if not isinstance(known, dict):
        found: list[tuple[str, ast.AST]] = []
        for node in scope.nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
                target = node
                while isinstance(target.value, ast.Subscript):
                    target = target.value
                if early_index(target.slice):
                    found.append((path_of(target.value), node))
        known = scope.memo["stored items"] = by_path(found)
    return known


def early_index(node: ast.expr) -> bool:
    """True for an index from the front, or a slice."""
    return isinstance(node, ast.Slice) or (
        isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 0
    )


def altered_reply(scope: Scope, messages: str, region: ast.AST) -> str:
    """How the reply is changed before it becomes a message."""
    key = ("altered reply", messages, id(region))
    known = scope.memo.get(key)
    if not isinstance(known, str):
        known = scope.memo[key] = alteration(scope, messages, region)
    return known


def alteration(scope: Scope, messages: str, region: ast.AST) -> str:
    for call in changes(scope, messages, region, ("append", "extend")):
        for node in walk(call):
            if not isinstance(node, ast.Dict) or not is_reply(node):
                continue
            content = next(
                (
                    value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "content"
                ),
                None,
            )
            if content is None:
                continue
            expressions, _ = slice_of(scope, (content,))
            if any(drops_reasoning(item) for item in expressions):
                return "the reasoning is taken out of the replies"
            if any(cuts_text(item) for item in expressions):
                return "the replies are cut"
    return ""


def is_reply(node: ast.Dict) -> bool:
    return any(
        isinstance(key, ast.Constant)
        and key.value == "role"
        and isinstance(value, ast.Constant)
        and value.value in ("assistant", "model")
        for key, value in zip(node.keys, node.values, strict=True)
    )


def drops_reasoning(expression: ast.expr) -> bool:
    """``text.split("</think>")[-1]``, ``re.sub(r"<think>.*?</think>", "", text)``, ``text.partition("</think>")[2]``."""
    for node in walk(expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("split", "rsplit", "partition", "rpartition", "sub", "replace", "removeprefix"):
                if any(
                    isinstance(item, ast.Constant) and isinstance(item.value, str) and REASONING.search(item.value)
                    for item in node.args
                ):
                    return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if re.search(r"(?i)(?:strip|remove|drop|without|clean)_?(?:think|reasoning)", name):
                return True
    return False


def cuts_text(expression: ast.expr) -> bool:
    """``text[:200]``, ``text.split("\\n")[0]``."""
    for node in walk(expression):
        if isinstance(node, ast.Subscript):
            if (
                isinstance(node.slice, ast.Slice)
                and node.slice.lower is None
                and isinstance(node.slice.upper, ast.Constant)
            ):
                return True
            inner = node.value
            first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
            if (
                first
                and isinstance(inner, ast.Call)
                and isinstance(inner.func, ast.Attribute)
                and inner.func.attr in ("split", "splitlines", "partition")
            ):
                return True
    return False


def thinking_model(facts: Facts) -> str:
    """The name of a model of this file whose template drops earlier reasoning, where it is the only one."""
    if facts.tree is None:
        return ""
    names = facts.memo.get("names of models")
    if not isinstance(names, set):
        names = facts.memo["names of models"] = {
            node.value
            for node in walk(facts.tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.match(r"^[\w.-]+/[\w.-]+$", node.value)
        }
    return next(iter(names)) if len(names) == 1 and all(THINKING_MODELS.match(name) for name in names) else ""
