"""``if past_key_values is not None:`` read as "not the first step": ``generate`` passes an empty cache there too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from kvlint.analysis.facts import Facts, TestUse
from kvlint.analysis.recorder import path_of
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import CacheObject, Certainty, cache_of
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import Scope, tree_of
from kvlint.checks.cache_feeds import PLAIN
from kvlint.checks.library_calls import (
    LibraryCalled,
    class_names,
    handed_on_by_the_class,
    is_own_object,
    library_called,
    without_made_cache,
)
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.rewriting import has_comment, is_plain, minimal

HOOKS = ("prepare_inputs_for_generation", "forward")
MEDIA = re.compile(r"pixel_values|image|images|video|audio|input_features|inputs_embeds|visual|speech")
FIRST_STEP = re.compile(
    r"vision|visual|encode_image|get_image|image_features|image_embeds|audio_features|inputs_embeds"
)
MEDIA_WORK = re.compile(
    r"(?i)encode_|_encoder|(?<!prepare_)vision|visual|image|video|audio|speech|pixel|merge|multi_?modal|(?:get|extract)_\w*features"
)
"""Names of functions that bring media into the prompt."""
DECIDES_OTHERWISE = (
    "get_seq_length",
    "cache_position",
    "has_previous_state",
    "is_first_iteration",
    "_seen_tokens",
    "seen_tokens",
    "get_usable_length",
    "is_initialized",
)


class CacheAsDecodeFlag(Check):
    """Reports tests for a cache that decide whether the prompt has been processed."""

    triggers = ("prepare_inputs_for_generation", "def forward", "use_cache=")
    also = (("cache", "past_key_value"),)
    pattern = (
        r"(?:ids|inputs_embeds)[^\n]*\[\s*:\s*:?\s*,\s*-\s*1|def\s+prepare_inputs_for_generation[\s\S]*inputs_embeds|"
        r"(?:pixel_values|image|video|audio|input_features|inputs_embeds|visual|speech)(?:\[[^\]\n]*\]|[^\n=:\[])*=\s*None"
    )
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        yield from self._truth(facts)
        for use in (*facts.tests, *flags(facts)):
            cache = cache_of(use.value, Certainty.PROVEN) or from_kwargs(facts, use)
            function = use.place.function
            name = hook_name(facts, function)
            if cache is None or cache.source != "hook" or not name:
                continue
            if not isinstance(use.owner_node, (ast.If, ast.IfExp)) or not decides_first_step(facts, use, name):
                continue
            life = releases_of(facts.timeline, "empty-cache-first-step")
            if use.kind == "truth":
                life &= facts.timeline.matching(">=4.56")
            wrong = (use.place.releases & cache.when & life) - without_made_cache(facts, use.place.owner)
            wrong -= handed_back(facts, use)
            if wrong:
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    "`generate` passes an empty cache on the first step too {when}: this test does not tell the first step from later ones",
                    releases=wrong,
                    life=life,
                    help=f"ask the cache: `cache is not None and {question_of(facts, use)[1].format('cache')}`",
                    origin=cache.origin,
                    fix=fix_of(facts, use, cache),
                )

    def _truth(self, facts: Facts) -> Iterator[Finding]:
        """``if cache:`` in any function that hands the cache on to a model and feeds it the last token only."""
        life = releases_of(facts.timeline, "empty-cache-first-step") & facts.timeline.matching(">=4.56")
        for use in facts.tests:
            function = use.place.function
            wrong = use.place.releases & life
            if use.kind != "truth" or function is None or function.name in HOOKS or not wrong or facts.foreign_engine:
                continue
            name = use.subject.id if isinstance(use.subject, ast.Name) else ""
            if not isinstance(use.owner_node, (ast.If, ast.IfExp)) or not given_to_model(function.node, name):
                continue
            if any(isinstance(atom, PLAIN) for atom in use.value):
                continue
            with_cache, _ = branches(use.owner_node, use)
            if any(cuts_to_last(node) for node in with_cache):
                yield self.finding(
                    facts,
                    use.node,
                    use.place,
                    f"`{name}` is true with no token in it where it was made with a config {{when}}: the first step loses its prompt",
                    releases=wrong,
                    life=life,
                    help=f"ask the cache: `{name} is not None and {name}.get_seq_length() > 0`",
                )


def given_to_model(function: ast.AST, name: str) -> bool:
    """True where the function calls something with ``cache=name`` (or the old keyword) beside ``use_cache=``."""
    for node in walk(function) if name else ():
        if isinstance(node, ast.Call) and any(item.arg == "use_cache" for item in node.keywords):
            if any(item.arg in ("cache", "past_key_values") and path_of(item.value) == name for item in node.keywords):
                return True
    return False


def hook_name(facts: Facts, function: FunctionInfo | None) -> str:
    """The hook of ``generate`` that a function is, also one that is put in its place under another name; "" for others."""
    if function is None or function.name in HOOKS:
        return function.name if function is not None else ""
    item = next((item for item in library_called(facts) if item.info.node is function.node), None)
    return "" if item is None or item.role not in ("model", "prepare") else HOOKS[item.role == "model"]


def handed_back(facts: Facts, use: TestUse) -> ReleaseSet:
    """Releases on which only the class itself fills the parameter, with what its forward returned: never an empty cache."""
    function, subject = use.place.function, use.subject
    if function is None or not isinstance(subject, ast.Name) or not handed_on_by_the_class(use.place.owner, subject.id):
        return NO_RELEASE
    items = [item for item in library_called(facts) if item.info.node is function.node]
    return facts.timeline.all - items[0].names.get(subject.id, NO_RELEASE) if items else NO_RELEASE


def from_kwargs(facts: Facts, use: TestUse) -> CacheObject | None:
    """The cache that a condition reads from the ``**kwargs`` of a function that the library calls with one."""
    function = use.place.function
    if function is None or function.node.args.kwarg is None:
        return None
    node: ast.AST | None = use.subject
    if isinstance(node, ast.Name):
        bindings = tree_of(facts).scope(function.node).bindings.get(node.id, [])
        node = bindings[0].value if len(bindings) == 1 else None
    kwargs = function.node.args.kwarg.arg
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        holder, given = node.func.value, node.args[0] if node.args else None
    elif isinstance(node, ast.Subscript):
        holder, given = node.value, node.slice
    else:
        return None
    key = given.value if isinstance(given, ast.Constant) and path_of(holder) == kwargs else None
    for item in library_called(facts):
        if item.info.node is function.node and item.role in ("model", "prepare") and isinstance(key, str):
            when = item.names.get(key, NO_RELEASE)
            return CacheObject(source="hook", when=when) if when else None
    return None


def decides_first_step(facts: Facts, use: TestUse, function: str) -> bool:
    """True where one side of the condition can only be meant for the first step, or only for later ones."""
    owner = use.owner_node
    assert isinstance(owner, (ast.If, ast.IfExp))
    test = facts.source(owner.test)
    if any(word in test for word in DECIDES_OTHERWISE):
        return False
    only_without = first_step_branch(owner, use)
    if only_without and brings_media(facts, owner, only_without):
        return True
    with_cache, without = branches(owner, use)
    source = " ".join(facts.source(node) for node in with_cache)
    if any(word in source for word in DECIDES_OTHERWISE):
        return False
    if any(cuts_to_last(node) or drops_media(node) for node in with_cache):
        return True
    if function == "prepare_inputs_for_generation" and resets(only_without):
        return True
    if (use.kind != "is-none" and not only_without) or function != "prepare_inputs_for_generation":
        return False
    return "inputs_embeds" in test and any("inputs_embeds" in facts.source(node) for node in without)


def resets(branch: list[ast.AST]) -> bool:
    """True where what runs without a cache puts something on an object that outlives the call: it begins a prompt anew."""
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for part in branch for node in walk(part)
    )


def branches(owner: ast.If | ast.IfExp, use: TestUse) -> tuple[list[ast.AST], list[ast.AST]]:
    """(what runs with a cache, what runs without)."""
    body: list[ast.AST] = list(owner.body) if isinstance(owner, ast.If) else [owner.body]
    orelse: list[ast.AST] = list(owner.orelse) if isinstance(owner, ast.If) else [owner.orelse]
    negated = is_negated(owner.test, use.node) != use.negated
    if (use.kind == "is-none") != negated:
        return orelse, body
    return body, orelse


def is_negated(test: ast.expr, node: ast.expr) -> bool:
    """True where *node* stands below an odd number of ``not`` in *test*."""
    if test is node:
        return False
    parts = test.values if isinstance(test, ast.BoolOp) else [test.operand] if isinstance(test, ast.UnaryOp) else []
    for part in parts:
        if any(item is node for item in walk(part)):
            return is_negated(part, node) != (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
    return False


def first_step_branch(owner: ast.If | ast.IfExp, use: TestUse) -> list[ast.AST]:
    """What runs without a cache only; empty where other conditions lead there too."""
    _, without = branches(owner, use)
    whole = owner.test is use.node or (isinstance(owner.test, ast.UnaryOp) and owner.test.operand is use.node)
    body = owner.body if isinstance(owner, ast.If) else [owner.body]
    if whole:
        return without
    anded = isinstance(owner.test, ast.BoolOp) and isinstance(owner.test.op, ast.And)
    direct = anded and any(
        part is use.node or (isinstance(part, ast.UnaryOp) and part.operand is use.node)
        for part in (owner.test.values if isinstance(owner.test, ast.BoolOp) else ())
    )
    return without if direct and without and without[0] is body[0] else []


def brings_media(facts: Facts, owner: ast.If | ast.IfExp, branch: list[ast.AST]) -> bool:
    """True where *branch* hands media to a function whose name says that it works on them, and nothing else does."""
    if not media_calls(branch):
        return False
    others: list[ast.AST] = list(owner.body) if isinstance(owner, ast.If) else [owner.body]
    others += list(owner.orelse) if isinstance(owner, ast.If) else [owner.orelse]
    return not media_calls([node for node in others if not any(node is part for part in branch)])


def media_calls(nodes: list[ast.AST]) -> list[ast.Call]:
    found: list[ast.Call] = []
    for part in nodes:
        for node in walk(part):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if not path_of(node.func).startswith("self.") or not MEDIA_WORK.search(node.func.attr):
                continue
            given = [*node.args, *(item.value for item in node.keywords)]
            if any(MEDIA.search(path_of(item)) and "inputs_embeds" not in path_of(item) for item in given):
                found.append(node)
    return found


# -- a flag that says whether there is a cache --------------------------------------------------------------------------


def flags(facts: Facts) -> Iterator[TestUse]:
    """Conditions that read a variable which says whether a cache was passed: ``has_past = cache is not None``."""
    for item in library_called(facts):
        if item.role in ("model", "prepare") and item.info.name in HOOKS and not item.elsewhere:
            yield from _flags_of(facts, item)


def _flags_of(facts: Facts, item: LibraryCalled) -> Iterator[TestUse]:
    scope = tree_of(facts).scope(item.info.node)
    for bindings in list(scope.bindings.values()):
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
            continue
        asked = question(bindings[0].value)
        if asked is None or asked[0].id not in item.names:
            continue
        subject, kind, negated = asked
        if len(scope.bindings.get(subject.id, ())) != 1 or scope.bindings[subject.id][0].kind != "parameter":
            continue
        cache = CacheObject(source="hook", when=item.names[subject.id])
        for owner, name in read_in_conditions(scope, bindings[0].path):
            place = replace(item.place, statement=statement_of(scope, owner), function=item.info)
            yield TestUse(name, subject, (cache,), kind, place, owner, negated)


def question(node: ast.expr) -> tuple[ast.Name, str, bool] | None:
    """(cache, kind, negated) for ``cache is None``, ``cache is not None``, ``not cache`` and ``bool(cache)``."""
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and len(node.ops) == 1:
        if isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None:
            if isinstance(node.ops[0], ast.Is):
                return node.left, "is-none", False
            if isinstance(node.ops[0], ast.IsNot):
                return node.left, "is-not-none", False
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = question(node.operand)
        if inner is not None:
            return inner[0], inner[1], not inner[2]
        if isinstance(node.operand, ast.Name):
            return node.operand, "truth", True
    if isinstance(node, ast.Call) and path_of(node.func) == "bool" and len(node.args) == 1:
        if isinstance(node.args[0], ast.Name):
            return node.args[0], "truth", False
    return None


def read_in_conditions(scope: Scope, path: str) -> Iterator[tuple[ast.If | ast.IfExp, ast.Name]]:
    for owner in scope.nodes:
        if isinstance(owner, (ast.If, ast.IfExp)):
            for node in walk(owner.test):
                if isinstance(node, ast.Name) and node.id == path:
                    yield owner, node


def statement_of(scope: Scope, node: ast.AST) -> ast.stmt:
    if isinstance(node, ast.stmt):
        return node
    return next(item for item in scope.tree.ancestors(node) if isinstance(item, ast.stmt))


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


def question_of(facts: Facts, use: TestUse) -> tuple[str, str]:
    """How to ask a cache whether it is empty, and whether it holds something: one of linear layers alone has no length."""
    function = use.place.function
    owner = function.owner if function is not None else None
    bases = owner.foreign_bases() if owner is not None else ()
    linear = any("cache_params" in class_names(facts, base) for base in bases if base.startswith("transformers."))
    if linear or (function is not None and function.parameter("cache_params") is not None):
        return "not {0}.has_previous_state()", "{0}.has_previous_state()"
    return "{0}.get_seq_length() == 0", "{0}.get_seq_length() > 0"


def fix_of(facts: Facts, use: TestUse, cache: CacheObject) -> Fix | None:
    """Asks for the length as well."""
    function = use.place.function
    if function is not None and isinstance(use.subject, ast.Name) and is_own_object(function, use.subject.id):
        return None
    if (
        not is_plain(use.subject)
        or not any(item.node is use.node for item in facts.tests)
        or use.kind not in ("is-none", "is-not-none", "truth")
    ):
        return None
    start, end = facts.span(use.node)
    if has_comment(facts.text[start:end]):
        return None
    name = facts.source(use.subject)
    empty, filled = (words.format(name) for words in question_of(facts, use))
    text = f"{name} is None or {empty}" if use.kind == "is-none" else f"{name} is not None and {filled}"
    owner = use.owner_node
    assert isinstance(owner, (ast.If, ast.IfExp))
    if owner.test is not use.node:
        text = f"({text})"
    since = facts.timeline.matching(">=5.0")
    if "has_previous_state" in filled:
        since = releases_of(facts.timeline, "has-previous-state-method")
        if not use.place.releases <= since:
            return None
    safe = use.place.releases <= since and cache.when & ReleaseSet(use.place.releases.bits) == use.place.releases
    return Fix(
        "Ask for the length",
        Applicability.SAFE if safe else Applicability.UNSAFE,
        (minimal(facts.text, start, end, text),),
    )
