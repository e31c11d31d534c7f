"""What has to change together: a fix is offered only as far as everything that goes with it can be fixed.

A function that was half migrated is worse than one that was not touched: a renamed parameter wakes a branch that
another finding says is wrong, one rewritten subscript leaves the others behind. So the findings of one *unit* are taken
together: those that concern one value in one function, and those of the methods that the library calls of one model class,
which hand one cache from one to the other. The fix of each is trusted as far as the least trusted of them, and where one of them has none,
the others are only shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvlint.analysis.facts import Facts
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.values import CacheObject, Certainty, Value
from kvlint.checks.own_models import file_has_own_model
from kvlint.checks.tuple_models import tuple_model
from kvlint.findings import Applicability, Category, Finding
from kvlint.nodes import children, walk

FAMILIES = ("KV2", "KV3", "KV5")
"""Rules about the cache objects, parameters and tensors of one piece of code. Imports, settings, sizes and the reuse of a
cache between runs are right or wrong by themselves."""
BLOCKING = (Category.BREAKS, Category.SILENT)
PROTOCOL = frozenset(
    {
        "forward", "prepare_inputs_for_generation", "_reorder_cache", "reorder_cache", "_update_model_kwargs_for_generation",
        "_prepare_cache_for_generation", "_supports_default_dynamic_cache", "__call__",
    }
)  # fmt: skip
"""Methods through which ``generate`` sends a model's cache round."""
RANK = {Applicability.SAFE: 2, Applicability.UNSAFE: 1, Applicability.SHOWN: 0}
OPENING = frozenset(
    {"list", "tuple", "dict", "enumerate", "zip", "reversed", "iter", "sorted", "map", "next", "range", "len"}
)
READING = frozenset({"get", "pop", "items", "values", "keys", "update", "copy", "to_legacy_cache", "from_legacy_cache"})
"""Calls whose result is a part, or another form, of what they are given, or of the object that they belong to."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Layout:
    """The functions and model classes of a region, by their spans."""

    functions: tuple[tuple[int, int, FunctionNode], ...]
    models: tuple[tuple[int, int, str], ...]


def settle(facts: Facts, findings: Sequence[Finding], applied: frozenset[str]) -> list[Finding]:
    """*findings* with each fix as far as its unit allows. Those of rules outside of *applied* are only asked, and left out."""
    listed = [finding for finding in findings if finding.code in applied]
    if facts.tree is None or not any(finding.fix is not None and concerned(finding) for finding in listed):
        return listed
    held = held_by_evidence(facts, findings)
    findings = [shown(finding) if id(finding) in held else finding for finding in findings]
    listed = [finding for finding in findings if finding.code in applied]
    units = unit_names(facts, [finding for finding in findings if concerned(finding)])
    trust: dict[str, int] = {}
    rewritten = [
        (edit.start, edit.end, rank(finding)) for finding in listed if finding.fix for edit in finding.fix.edits
    ]
    for finding in findings:
        unit = units.get(id(finding))
        if unit is not None and finding.category in BLOCKING:
            known = rank(finding) if finding.code in applied else 0
            # what another fix writes anew, or deletes, goes with it
            known = max([known, *(r for start, end, r in rewritten if start < finding.end and finding.start < end)])
            trust[unit] = min(trust.get(unit, 2), known)
    return [limited(finding, units.get(id(finding)), trust) for finding in listed]


def held_by_evidence(facts: Facts, findings: Sequence[Finding]) -> set[int]:
    """The findings, by id, whose value may be of a format of the project's own, so that no rewrite is right for sure."""
    offered = [finding for finding in findings if finding.fix is not None and concerned(finding)]
    if file_has_own_model(facts):
        whole = {
            model.fix for use in facts.functions if (model := tuple_model(facts, use.info)) is not None and model.fix
        }
        return {id(finding) for finding in offered if finding.fix not in whole}
    named = [finding for finding in offered if rests_on_a_name(facts, finding)]
    return {id(finding) for finding in named} if named and facts.surroundings.own_format else set()


def rests_on_a_name(facts: Facts, finding: Finding) -> bool:
    """True where the cache of the use was not made here, nor handed over by the library, nor told apart by its class."""
    known = facts.memo.get("uses of named caches")
    if not isinstance(known, tuple):
        uses: list[tuple[ast.AST, Value]] = [(use.node, use.value) for use in facts.subscripts]
        uses += [(use.node, use.value) for use in facts.iterations]
        uses += [(use.node, use.value) for use in facts.tests]
        uses += [(use.node, use.value) for use in facts.attributes]
        known = facts.memo["uses of named caches"] = tuple(
            facts.span(node)
            for node, value in uses
            if any(isinstance(atom, CacheObject) and atom.certainty < Certainty.PROVEN for atom in value)
        )
    return any(finding.start <= start and end <= finding.end for start, end in known)


def shown(finding: Finding) -> Finding:
    """The finding with a fix that is printed and never applied."""
    return replace(finding, fix=replace(finding.fix, applicability=Applicability.SHOWN) if finding.fix else None)


def concerned(finding: Finding) -> bool:
    return finding.code.startswith(FAMILIES)


def rank(finding: Finding) -> int:
    return RANK[finding.fix.applicability] if finding.fix is not None else 0


def limited(finding: Finding, unit: str | None, trust: dict[str, int]) -> Finding:
    """The finding with a fix that goes no further than its unit, and that names it."""
    if finding.fix is None or unit is None:
        return finding
    allowed = min(trust.get(unit, 2), rank(finding))
    applicability = next(item for item, value in RANK.items() if value == allowed)
    return replace(finding, fix=replace(finding.fix, applicability=applicability, unit=unit))


def unit_names(facts: Facts, findings: Iterable[Finding]) -> dict[int, str]:
    """The unit of each finding, by the finding's id; none for one that stands by itself."""
    layout = layout_of(facts)
    groups: dict[int, Groups] = {}
    placed: list[tuple[Finding, str, int, set[str]]] = []
    for finding in findings:
        function = innermost(layout, finding.start)
        start = function[0] if function is not None else -1
        model = model_at(layout, finding.start) if function is not None and function[2].name in PROTOCOL else ""
        assert facts.tree is not None
        scope: ast.AST = function[2] if function is not None else facts.tree
        if start not in groups:
            groups[start] = Groups(derived(scope))
        names = subjects(facts, scope, finding)
        groups[start].join(names)
        placed.append((finding, model, start, names))
    found: dict[int, str] = {}
    for finding, model, start, names in placed:
        if model:
            found[id(finding)] = f"model {model}"
        elif names:
            found[id(finding)] = f"value {start} {groups[start].root(min(names))}"
    return found


def layout_of(facts: Facts) -> Layout:
    known = facts.memo.get("unit layout")
    if not isinstance(known, Layout):
        assert facts.tree is not None
        functions = tuple(
            (*facts.span(node), node)
            for node in walk(facts.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        )
        models = tuple(
            (*facts.span(use.info.node), use.info.qualname)
            for use in facts.classes
            if any(is_torch_model_class(base) or base.endswith("nn.Module") for base in use.info.foreign_bases())
        )
        known = facts.memo["unit layout"] = Layout(functions, models)
    return known


def innermost(layout: Layout, place: int) -> tuple[int, int, FunctionNode] | None:
    return max(
        (item for item in layout.functions if item[0] <= place < item[1]), key=lambda item: item[0], default=None
    )


def model_at(layout: Layout, place: int) -> str:
    return min((item for item in layout.models if item[0] <= place < item[1]), default=(0, 0, ""))[2]


class Groups:
    """Names of one function that stand for one value, or for parts of it."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.parents: dict[str, str] = {}
        for one, other in pairs:
            self.join((one, other))

    def root(self, name: str) -> str:
        while name in self.parents:
            name = self.parents[name]
        return name

    def join(self, names: Iterable[str]) -> None:
        roots = sorted({self.root(name) for name in names})
        for other in roots[1:]:
            self.parents[other] = roots[0]


def derived(scope: ast.AST) -> Iterator[tuple[str, str]]:
    """Pairs of names of which one holds the other, a part of it, or something made of its parts."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from crossed(bound(target), held(node.value))
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield from crossed(bound(node.target), held(node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield from crossed(bound(node.target), held(node.iter))


def crossed(ones: Iterable[str], others: Iterable[str]) -> Iterator[tuple[str, str]]:
    found = list(others)
    for one in ones:
        for other in found:
            yield one, other


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module without those of the functions in it."""
    waiting = list(children(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += children(node)


def bound(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from bound(item)
    elif isinstance(target, ast.Starred):
        yield from bound(target.value)
    else:
        yield from path(target)


def held(node: ast.expr) -> Iterator[str]:
    """The names whose value, or a part of it, an expression may be."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        yield from path(node)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from held(item)
    elif isinstance(node, ast.IfExp):
        yield from held(node.body)
        yield from held(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for item in node.values:
            yield from held(item)
    elif isinstance(node, ast.Call):
        func = node.func
        if isinstance(func, ast.Name) and (func.id in OPENING or func.id.endswith("Cache")):
            for item in node.args:
                yield from held(item)
        elif isinstance(func, ast.Attribute) and func.attr in READING:
            yield from held(func.value)
    elif isinstance(node, (ast.Starred, ast.NamedExpr, ast.Await)):
        yield from held(node.value)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        yield from held(node.generators[0].iter)


def path(node: ast.expr) -> Iterator[str]:
    """The name that an expression begins with; of an attribute of ``self``, that too."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield f"self.{node.attr}"
            return
        node = node.value
    if isinstance(node, ast.Name) and node.id != "self":
        yield node.id
    elif isinstance(node, ast.Call):
        yield from held(node)


def subjects(facts: Facts, scope: ast.AST, finding: Finding) -> set[str]:
    """The names that a finding is about: those in its span, else those of the smallest expression around it."""
    imported = {use.bound for use in facts.imports}
    best: tuple[int, set[str]] | None = None
    inside: set[str] = set()
    for node in own_nodes(scope):
        if isinstance(node, ast.arg):
            start, _ = facts.span(node)
            if start == finding.start:
                return {node.arg}
        if not isinstance(node, ast.expr) or not hasattr(node, "lineno"):
            continue
        start, end = facts.span(node)
        if finding.start <= start and end <= finding.end:
            inside |= set(path(node)) - imported if isinstance(node, (ast.Name, ast.Attribute)) else set()
        elif start <= finding.start and finding.end <= end and (best is None or end - start < best[0]):
            names = {name for part in walk(node) if isinstance(part, (ast.Name, ast.Attribute)) for name in path(part)}
            if names - imported:
                best = (end - start, names - imported)
    return inside or (best[1] if best is not None else set())
