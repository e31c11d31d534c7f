"""``dict(out)["past_key_values"]``, ``k != "past_key_values"`` over ``out.items()``, ``keys_to_ignore_at_inference``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import (
    Certainty,
    Member,
    ModelKwargs,
    ModelOutput,
    OutputDict,
    Value,
    literal,
    of_type,
)
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import tree_of
from kvlint.checks.own_outputs import lost_fields
from kvlint.checks.stale_keys import dead_writes, is_put, library_reads, loop_reads
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet

MODEL_BASES = ("Module", "PreTrainedModel", "Config", "Cache")
OLD_KEYS = ("past_key_values", "cache_params")
NEW_KEY = "cache"
SINGULAR = "past_key_value"
EVALUATION_METHODS = frozenset({"predict", "evaluate", "prediction_step", "evaluation_loop", "prediction_loop"})
IGNORE_KEYWORDS = {"ignore_keys": EVALUATION_METHODS, "ignore_keys_for_eval": frozenset({"train"})}
"""Keywords that name output keys to leave out, and the methods of a trainer that take them."""
IGNORED_KEYS = "keys_to_ignore_at_inference"


@dataclass(frozen=True, slots=True)
class Mention:
    """A key written as a string, in a place where a missing key *raises* or goes unnoticed."""

    node: ast.expr
    key: str
    place: Place
    raises: bool
    says: str


class RenamedCacheOutputKey(Check):
    """Reports keys of model outputs that are spelled as on another release where nothing translates them."""

    triggers = ("past_key_value", "cache_params")
    pattern = r"[\"'](?:past_key_values?|cache_params)[\"']|\bupdate\(|\bdict\(|\bclass\s+\w+\s*\([^)]*Output"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        own = has_own_outputs(facts)
        for mention in (*subscripts(facts), *lookups(facts), *comparisons(facts), *loops(facts)):
            if own:
                continue
            life = stale(facts, mention.key)
            wrong = life & mention.place.releases
            if not wrong or (mention.raises and mention.place.caught & {"KeyError", "Exception", "LookupError"}):
                continue
            yield self.finding(
                facts,
                mention.node,
                mention.place,
                f'{mention.says} has no key "{mention.key}" {{when}}'
                + (": KeyError" if mention.raises else ", and nothing says so"),
                releases=wrong,
                life=life,
                help=f'the key is "{NEW_KEY}" from 5.24.0; attribute access and a subscript of the output itself are translated',
                category=Category.BREAKS if mention.raises else Category.SILENT,
                fix=replace_key(facts, mention),
            )
        yield from self._stale(facts)
        yield from self._lost(facts)
        for node, items, place, where in () if own else ignored(facts):
            life = facts.timeline.keyword_of_kind("model", NEW_KEY)
            wrong = life & place.releases
            if wrong:
                yield self.finding(
                    facts,
                    node,
                    place,
                    f'{where} names "{items[0].value!s}", which no output has {{when}}: the cache is kept',
                    releases=wrong,
                    life=life,
                    help=f'name "{NEW_KEY}" as well',
                    fix=replace_ignored(facts, items, place.releases <= life),
                )

    def _lost(self, facts: Facts) -> Iterator[Finding]:
        """Outputs of the project with a field under the old name."""
        if facts.in_transformers or facts.foreign_engine:
            return
        life = stale(facts, OLD_KEYS[0])
        for item in lost_fields(facts):
            place, name, owner = item.use.place, item.node.id, item.use.info.name
            wrong = life & place.releases
            if not wrong:
                continue
            if item.raises:
                says = f"`{owner}({name}=...)` is handed on as `{NEW_KEY}=` {{when}}, which is no field of the class: TypeError"
            else:
                says = f"`{owner}.{name}` hides where outputs keep their `{NEW_KEY}` {{when}}: it reads None, whatever was given"
            edit = Edit(*facts.span(item.node), NEW_KEY)
            yield self.finding(
                facts,
                item.node,
                place,
                says,
                releases=wrong,
                life=life,
                help=f"call the field `{NEW_KEY}`; the old name still works as a keyword and as an attribute"
                if item.raises
                else f"leave the field out; the class has `{NEW_KEY}` from its base, which the old name still reads",
                category=Category.BREAKS if item.raises else Category.SILENT,
                fix=Fix(f"Rename to `{NEW_KEY}`", Applicability.SAFE, (edit,))
                if item.raises and place.releases <= life
                else None,
            )

    def _stale(self, facts: Facts) -> Iterator[Finding]:
        """Dicts of generation: what is looked up in them under the old key, and what is put there."""
        if facts.in_transformers or facts.foreign_engine:
            return
        renamed = stale(facts, OLD_KEYS[0])
        told: set[int] = set()
        for item in (*loop_reads(facts), *library_reads(facts), *dead_writes(facts)):
            life = releases_of(facts.timeline, "singular-keyword-swallowed") if item.key == SINGULAR else renamed
            wrong = life & item.place.releases
            raises = item.how == "raises"
            if not wrong or id(item.node) in told or (raises and item.place.caught & {"KeyError", "Exception"}):
                continue
            told.add(id(item.node))
            if item.how == "written":
                message = (
                    f'nothing reads "{item.key}" from {item.where} {{when}}: the cache that is put there is not used'
                )
            else:
                what = ": KeyError" if raises else ", and nothing says so"
                message = (
                    f'{item.where} has no key "{item.key}" {{when}}{what}: the library keeps the cache as "{NEW_KEY}"'
                )
            yield self.finding(
                facts,
                item.node,
                item.place,
                message,
                releases=wrong,
                life=life,
                help=f'the key is "{NEW_KEY}" from 5.24.0',
                category=Category.BREAKS if raises else Category.SILENT,
            )


def has_own_outputs(facts: Facts) -> bool:
    """True where a class of the file is an output with the old key: it has that field, or its ``__init__`` takes it, and its
    bases make it a dict or a plain class."""
    for use in facts.classes:
        bases = use.info.foreign_bases()
        init = use.info.method("__init__")
        fields = [item.target for item in use.info.node.body if isinstance(item, ast.AnnAssign)]
        named = any(isinstance(item, ast.Name) and item.id in OLD_KEYS for item in fields)
        given = init is not None and any(arg.arg in OLD_KEYS for arg in init.parameters()) and is_plain_output(bases)
        if (named or given) and not any(base.endswith(MODEL_BASES) for base in bases):
            return True
    return False


def is_plain_output(bases: list[str]) -> bool:
    """True for the bases of a dict, of a tuple, or of nothing at all."""
    return all(
        base.rpartition(".")[2] in ("dict", "OrderedDict", "UserDict", "ModelOutput", "object") for base in bases
    )


def stale(facts: Facts, key: str) -> ReleaseSet:
    """Releases on which outputs store their cache under another key."""
    renamed = facts.timeline.keyword_of_kind("model", NEW_KEY)
    return renamed if key in OLD_KEYS else NO_RELEASE


def plain_dict(value: Value) -> str:
    """What the value is, where it is a dict made from an output or filled by the library; "" for anything else."""
    if any(isinstance(atom, OutputDict) for atom in value):
        return "a dict made from a model output"
    if value and all(isinstance(atom, ModelKwargs) and atom.hook for atom in value):
        return "what the library returns"
    return ""


def subscripts(facts: Facts) -> Iterator[Mention]:
    """``dict(out)["past_key_values"]``; a dict that is filled by the library in the same function counts too."""
    for use in facts.subscripts:
        key = literal(use.index)
        says = plain_dict(use.value)
        if key in OLD_KEYS and says and use.action == "load" and not is_parameter(use.node.value, use.place):
            known = ("", key) in use.place.known_members or put_before(facts, use.node.value, key, use.place)
            if not known and not tested(use.node, key, use.place):
                yield Mention(use.node.slice, key, use.place, True, says)


def put_before(facts: Facts, holder: ast.expr, key: str, place: Place) -> bool:
    """True where the function has put the key into the dict by itself before: what the library updates keeps it."""
    path = path_of(holder)
    return bool(path) and place.function is not None and is_put(facts, place.function.node, path, key, holder)


def is_parameter(node: ast.expr, place: Place) -> bool:
    """True for the ``**kwargs`` of the function itself: what it holds is KV305's business."""
    return (
        isinstance(node, ast.Name)
        and place.function is not None
        and place.function.node.args.kwarg is not None
        and place.function.node.args.kwarg.arg == node.id
    )


def tested(node: ast.Subscript, key: str, place: Place) -> bool:
    """True where the function asks somewhere whether the key is there."""
    if place.function is None:
        return False
    name = ast.dump(node.value)
    for other in walk(place.function.node):
        asked: ast.expr | None = None
        holder: ast.expr | None = None
        if isinstance(other, ast.Compare) and isinstance(other.ops[0], (ast.In, ast.NotIn)):
            asked, holder = other.left, other.comparators[0]
        elif isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute) and other.func.attr == "get":
            asked, holder = other.args[0] if other.args else None, other.func.value
        if isinstance(asked, ast.Constant) and asked.value in (key, NEW_KEY) and holder is not None:
            if ast.dump(holder) == name:
                return True
    return False


def lookups(facts: Facts) -> Iterator[Mention]:
    """``dict(out).get("past_key_values")`` and ``.pop``."""
    for use in facts.calls:
        func = use.node.func
        if not isinstance(func, ast.Attribute) or not use.arguments or func.attr not in ("get", "pop"):
            continue
        key = literal(use.arguments[0])
        holders = tuple(atom.of for atom in of_type(use.callee, Member))
        says = plain_dict(holders) if len(holders) == len(use.callee) else ""
        if key in OLD_KEYS and says and not is_parameter(func.value, use.place) and not has_other_lookup(use):
            if put_before(facts, func.value, key, use.place):
                continue
            yield Mention(use.node.args[0], key, use.place, func.attr == "pop" and len(use.arguments) == 1, says)


def has_other_lookup(use: CallUse) -> bool:
    """True for ``d.get("past_key_values", d.get("cache"))`` and ``d.get("cache", d.get("past_key_values"))``."""
    if use.place.function is None:
        return False
    own = ast.dump(use.node.func)
    return any(
        isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == NEW_KEY
        and ast.dump(node.func) == own
        for node in walk(use.place.function.node)
    )


def comparisons(facts: Facts) -> Iterator[Mention]:
    """``"past_key_values" in dict(out)`` and ``"past_key_values" in out.keys()``."""
    for compare in facts.compares:
        key = compare.node.left.value if isinstance(compare.node.left, ast.Constant) else None
        if key in OLD_KEYS and isinstance(compare.node.ops[0], (ast.In, ast.NotIn)):
            says = plain_dict(compare.rights[0]) if only_output_dict(compare.rights[0]) else ""
            if says:
                yield Mention(compare.node.left, key, compare.place, False, says)
    for use in facts.calls:
        parent = use.parent
        if output_view(use) and isinstance(parent, ast.Compare) and len(parent.ops) == 1:
            left = parent.left
            if (
                isinstance(left, ast.Constant)
                and left.value in OLD_KEYS
                and isinstance(parent.ops[0], (ast.In, ast.NotIn))
            ):
                yield Mention(left, left.value, use.place, False, "`keys()` of a model output")


def only_output_dict(value: Value) -> bool:
    return bool(value) and all(isinstance(atom, OutputDict) for atom in value)


def output_view(use: CallUse) -> str:
    """``keys`` or ``items`` of a model output or of a dict made from one; "" for other calls."""
    for atom in use.callee:
        if isinstance(atom, Member) and atom.name in ("keys", "items"):
            if isinstance(atom.of, OutputDict) or (
                isinstance(atom.of, ModelOutput) and atom.of.certainty >= Certainty.CONTEXT
            ):
                return atom.name
    return ""


def loops(facts: Facts) -> Iterator[Mention]:
    """Comparisons of the key inside a loop or comprehension over ``out.items()`` or ``out.keys()``."""
    for use in facts.calls:
        view = output_view(use)
        parent = use.parent
        if not view or not isinstance(parent, (ast.For, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)):
            continue
        target = loop_target(parent, use.node)
        if view == "items":
            target = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
        yield from compared_in(facts, parent, target, use.place)
    for item in facts.iterations:
        certain = bool(item.value) and all(
            isinstance(atom, OutputDict) or (isinstance(atom, ModelOutput) and atom.certainty >= Certainty.CONTEXT)
            for atom in item.value
        )
        if certain and item.how in ("for", "comprehension") and item.loop is not None:
            yield from compared_in(facts, item.loop, item.target, item.place)


def compared_in(facts: Facts, loop: ast.AST, target: ast.expr | None, place: Place) -> Iterator[Mention]:
    """Comparisons of the loop's *target*, a key, with the names of keys."""
    if not isinstance(target, ast.Name):
        return
    for node in walk(loop):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name):
            if node.left.id == target.id and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
                yield from compared_keys(constant_of(facts, node.comparators[0]), place, loop)


def constant_of(facts: Facts, node: ast.expr) -> ast.expr:
    """The list that a name of the module stands for, where it is bound once."""
    if isinstance(node, ast.Name) and facts.tree is not None:
        found = tree_of(facts).scope(facts.tree).bindings.get(node.id, ())
        value = found[0].value if len(found) == 1 and found[0].kind == "assign" else None
        if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return value
    return node


def loop_target(parent: ast.AST, iterated: ast.expr) -> ast.expr | None:
    if isinstance(parent, ast.For):
        return parent.target
    return next((item.target for item in getattr(parent, "generators", ()) if item.iter is iterated), None)


def compared_keys(node: ast.expr, place: Place, loop: ast.AST) -> Iterator[Mention]:
    items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    texts = {item.value for item in walk(loop) if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    texts |= {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    if NEW_KEY in texts:
        return
    for item in items:
        if isinstance(item, ast.Constant) and item.value in OLD_KEYS:
            yield Mention(item, item.value, place, False, "an iterated model output")


def ignored(facts: Facts) -> Iterator[tuple[ast.expr, list[ast.Constant], Place, str]]:
    """Lists of output keys to leave out that name only the old key."""
    for use in facts.assigns:
        target = use.target
        if isinstance(target, ast.Name) and target.id == IGNORED_KEYS and use.node.value is not None:
            owner = use.place.owner
            if owner is not None and any("Config" in base for base in owner.foreign_bases()):
                yield from ignored_list(use.node.value, use.place, f"`{IGNORED_KEYS}`")
        elif isinstance(target, ast.Attribute) and target.attr == IGNORED_KEYS and use.node.value is not None:
            yield from ignored_list(use.node.value, use.place, f"`{IGNORED_KEYS}`")
    for call in facts.calls:
        name = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""
        for word, methods in IGNORE_KEYWORDS.items():
            keyword = call.keyword(word)
            if keyword is not None and name in methods:
                yield from ignored_list(keyword.value, call.place, f"`{word}`")


def ignored_list(node: ast.expr, place: Place, where: str) -> Iterator[tuple[ast.expr, list[ast.Constant], Place, str]]:
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return
    constants = [item for item in node.elts if isinstance(item, ast.Constant)]
    old = [item for item in constants if item.value in OLD_KEYS]
    if old and not any(item.value == NEW_KEY for item in constants):
        yield old[0], old, place, where


def replace_key(facts: Facts, mention: Mention) -> Fix | None:
    """The new key; where the function also puts something under the old key, that and all readers go along."""
    if not mention.place.releases <= stale(facts, mention.key):
        return None
    edit = literal_edit(facts, mention.node, mention.key, NEW_KEY)
    if edit is None:
        return None
    function, holder = mention.place.function, holder_of(facts, mention.node)
    stored = [
        use
        for use in facts.subscripts
        if use.action == "store"
        and literal(use.index) == mention.key
        and use.place.function is function
        and holder
        and path_of(use.node.value) == holder
    ]
    if not stored:
        return Fix(f'Replace with "{NEW_KEY}"', Applicability.SAFE, (edit,))
    others = [literal_edit(facts, use.node.slice, mention.key, NEW_KEY) for use in stored]
    if any(other is None for other in others):
        return None
    edits = {edit, *(other for other in others if other is not None)}
    name = function.qualname if function is not None else ""
    return Fix(f'Replace with "{NEW_KEY}"', Applicability.SAFE, tuple(sorted(edits)), f"KV306 {name} {holder}")


def holder_of(facts: Facts, key: ast.expr) -> str:
    """The path of the dict that a key is looked up in: by a subscript, ``in``, ``get`` or ``pop``."""
    parent = tree_of(facts).parent(key)
    if isinstance(parent, ast.Subscript):
        return path_of(parent.value)
    if isinstance(parent, ast.Compare):
        return path_of(parent.comparators[0])
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return path_of(parent.func.value)
    return ""


def replace_ignored(facts: Facts, items: list[ast.Constant], only_new: bool) -> Fix | None:
    """Puts the new key in the place of the old one, or in front of it where older releases are in force."""
    if len(items) != 1:
        return None
    if only_new:
        edit = literal_edit(facts, items[0], items[0].value, NEW_KEY)  # type: ignore[arg-type]
        return None if edit is None else Fix(f'Replace with "{NEW_KEY}"', Applicability.SAFE, (edit,))
    start, _ = facts.span(items[0])
    quote = facts.text[start]
    if quote not in "\"'":
        return None
    return Fix(f'Add "{NEW_KEY}"', Applicability.SAFE, (Edit(start, start, f"{quote}{NEW_KEY}{quote}, "),))


def literal_edit(facts: Facts, node: ast.expr, old: str, new: str) -> Edit | None:
    """Replaces the content of a plainly written string literal."""
    start, end = facts.span(node)
    quote = facts.text[start : start + 1]
    if facts.text[start:end] != f"{quote}{old}{quote}":
        return None
    return Edit(start + 1, end - 1, new)
