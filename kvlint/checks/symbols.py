"""Names of transformers that are missing on a release in force: how they are found, and how they are replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kvlint.analysis.facts import Facts, ImportUse, Place, SymbolUse
from kvlint.behaviour import ClassReplacement, class_replacement
from kvlint.findings import Applicability, Edit, Fix
from kvlint.nodes import walk
from kvlint.releases import ReleaseSet
from kvlint.rewriting import as_keyword, has_comment, is_plain, rewrite_call, with_argument, without_arguments

TYPE_COMMENT = re.compile(r"#\s*type:.*")
WORD = re.compile(r"\w+")

IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
ATTRIBUTE_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class SymbolReference:
    """One place that names something of transformers which is not there on *missing*."""

    qualified: str
    missing: ReleaseSet
    node: ast.AST
    span: tuple[int, int]
    place: Place
    use: ImportUse | SymbolUse
    through_import: bool

    @property
    def is_import(self) -> bool:
        return isinstance(self.use, ImportUse)

    def advice(self, facts: Facts) -> str:
        replacement = class_replacement(facts.timeline.canonical(self.qualified) or self.qualified)
        return replacement.hint if replacement is not None else ""


def references(facts: Facts) -> Iterator[SymbolReference]:
    """Imports and uses of recorded names that some release in force lacks."""
    return references_where(facts, lacking)


def references_where(facts: Facts, wrong: Callable[[Facts, str], ReleaseSet]) -> Iterator[SymbolReference]:
    """Imports and uses of recorded names on releases in force where *wrong* says so."""
    for item in facts.imports:
        if item.place.typing_only or item.place.caught & IMPORT_ERRORS:
            continue
        missing = item.place.releases & wrong(facts, item.qualified)
        if missing:
            span = facts.span(item.node)
            yield SymbolReference(item.qualified, missing, item.node, span, item.place, item, True)
    for use in facts.symbols:
        if use.place.typing_only:
            continue
        qualified, node = recorded_part(facts, use)
        if not qualified:
            continue
        missing = use.place.releases & wrong(facts, qualified)
        if not missing or (not use.imported and use.place.caught & ATTRIBUTE_ERRORS):
            continue
        span = facts.span(use.quoted) if use.quoted is not None else facts.span(node)
        yield SymbolReference(qualified, missing, node, span, use.place, use, isinstance(node, ast.Name))


def recorded_part(facts: Facts, use: SymbolUse) -> tuple[str, ast.expr]:
    """The longest beginning of the dotted name that the timeline knows (``HybridCache`` of ``HybridCache.update``)."""
    qualified, node = use.qualified, use.node
    while qualified.count("."):
        if facts.timeline.knows(qualified):
            return qualified, node
        qualified = qualified.rpartition(".")[0]
        if not isinstance(node, ast.Attribute):
            break
        node = node.value
    return "", use.node


def lacking(facts: Facts, qualified: str) -> ReleaseSet:
    """Releases on which the name cannot be had; none for a name that no release is known to have had."""
    if not facts.timeline.knows(qualified):
        return ReleaseSet(0)
    return facts.timeline.all - facts.timeline.importable(qualified)


# -- replacing a class ----------------------------------------------------------------------------------------------


def class_fix(facts: Facts, reference: SymbolReference, every: Sequence[SymbolReference]) -> Fix | None:
    """One fix for all places that name the class, or None where one of them cannot be rewritten; planned once a class."""
    canonical = facts.timeline.canonical(reference.qualified) or reference.qualified
    key = ("class fix", canonical, id(every))
    if key not in facts.memo:
        facts.memo[key] = (planned_class_fix(facts, canonical, every), every)
    planned = facts.memo[key]
    assert isinstance(planned, tuple)
    fix: Fix | None = planned[0]
    return fix


def planned_class_fix(facts: Facts, canonical: str, every: Sequence[SymbolReference]) -> Fix | None:
    replacement = class_replacement(canonical)
    if replacement is None or not replacement.use:
        return None
    same = [item for item in every if (facts.timeline.canonical(item.qualified) or item.qualified) == canonical]
    same += unreported(facts, canonical, same)
    usable = facts.timeline.compare(">=", replacement.needs)
    if not all(item.place.releases <= usable for item in same):
        return None
    if any(isinstance(item.node, ast.Call) for item in same):
        return None  # getattr(transformers, "HybridCache")
    builder = ClassRewrite(facts, canonical, replacement, same)
    edits = builder.edits()
    if edits is None:
        return None
    title = f"Replace `{canonical.rpartition('.')[2]}` with `{replacement.use}`"
    return Fix(title, builder.applicability, tuple(sorted(set(edits))))


def unreported(facts: Facts, canonical: str, reported: Sequence[SymbolReference]) -> list[SymbolReference]:
    """Mentions that only a type checker reads (annotations that are quoted, or never evaluated): nothing breaks there, but
    they follow the rest."""
    found = []
    for use in facts.symbols:
        if use.place.typing_only and (use.quoted is not None or use.context == "annotation"):
            qualified, node = recorded_part(facts, use)
            if qualified and (facts.timeline.canonical(qualified) or qualified) == canonical:
                missing = use.place.releases & reported[0].missing
                span = facts.span(use.quoted or node)
                found.append(
                    SymbolReference(qualified, missing, node, span, use.place, use, isinstance(node, ast.Name))
                )
    return found


MAX_ALIASES = 16
"""Names that one import gives to the same class, at most, where it is rewritten."""


def names(node: ast.expr, name: str) -> bool:
    """True for ``name`` and ``module.name``."""
    return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) == name


class ClassRewrite:
    """Rewrites every mention of one class in a region."""

    def __init__(
        self, facts: Facts, canonical: str, replacement: ClassReplacement, same: Sequence[SymbolReference]
    ) -> None:
        self.facts = facts
        self.canonical = canonical
        self.old = canonical.rpartition(".")[2]
        self.replacement = replacement
        self.same = same
        self.applicability = Applicability.SAFE
        self.calls = {id(use.node.func): use.node for use in reversed(facts.calls)}
        self.imports = [use for use in facts.imports if use.bound == replacement.use]

    def edits(self) -> list[Edit] | None:
        bound = {item.use.bound for item in self.same if isinstance(item.use, ImportUse)}
        if not self._all_mentions_known(bound) or (self.old in bound and self._new_name_is_taken()):
            return None
        edits: list[Edit] = []
        imported: dict[int, list[ImportUse]] = {}
        for item in self.same:
            if isinstance(item.use, ImportUse):
                imported.setdefault(id(item.use.statement), []).append(item.use)
        if any(len(uses) > MAX_ALIASES for uses in imported.values()):
            return None
        for item in self.same:
            made = self._import_edit(item.use) if isinstance(item.use, ImportUse) else self._use_edits(item)
            if made is None:
                return None
            edits += made
        return edits + self._docstring_edits(bound)

    def _all_mentions_known(self, bound: set[str]) -> bool:
        """False where the file mentions the imported name in a place that the analysis did not account for."""
        assert self.facts.tree is not None
        accounted = {id(item.node) for item in self.same}
        quoted = {id(item.use.quoted) for item in self.same if isinstance(item.use, SymbolUse)}
        for comment in TYPE_COMMENT.finditer(self.facts.text):
            if not bound.isdisjoint(WORD.findall(comment.group())):
                return False
        for node in walk(self.facts.tree):
            if isinstance(node, ast.Name) and node.id in bound and id(node) not in accounted:
                return False
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in bound:
                if id(node) not in quoted:
                    return False
        return True

    def _new_name_is_taken(self) -> bool:
        """True where the file gives the replacement's name to something else."""
        assert self.facts.tree is not None
        new = self.replacement.use
        ours = {id(use.node) for use in self.facts.imports}
        for node in walk(self.facts.tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == new:
                return True
            if isinstance(node, ast.Name) and node.id == new and not isinstance(node.ctx, ast.Load):
                return True
            if isinstance(node, ast.arg) and node.arg == new:
                return True
            if isinstance(node, ast.alias) and id(node) not in ours and (node.asname or node.name) == new:
                return True
        return any(use.bound == new and use.qualified.rpartition(".")[2] != new for use in self.facts.imports)

    def _import_edit(self, use: ImportUse) -> list[Edit] | None:
        statement = use.statement
        if not isinstance(statement, ast.ImportFrom):
            return None
        aliases = statement.names
        first, _ = self.facts.span(aliases[0])
        _, last = self.facts.span(aliases[-1])
        source = self.facts.text[first:last]
        if has_comment(source):
            return None
        start, end = self.facts.span(use.node)
        keep_name = use.node.asname is None and self._already_imported(use)
        if not keep_name:
            renamed = self.replacement.use + (f" as {use.node.asname}" if use.node.asname else "")
            module = self._module_edit(statement)
            if module is None:
                return None
            return [*module, Edit(first, last, source[: start - first] + renamed + source[end - first :])]
        if len(aliases) == 1:
            return self._statement_removal(statement)
        position = aliases.index(use.node)
        if position + 1 < len(aliases):
            cut = (start, self.facts.span(aliases[position + 1])[0])
        else:
            cut = (self.facts.span(aliases[position - 1])[1], end)
        return [Edit(first, last, source[: cut[0] - first] + source[cut[1] - first :])]

    def _module_edit(self, statement: ast.ImportFrom) -> list[Edit] | None:
        """The replacement lives in ``transformers`` and ``transformers.cache_utils``: other modules are renamed."""
        module = statement.module or ""
        if statement.level or module in ("transformers", "transformers.cache_utils"):
            return []
        if len(statement.names) > 1:
            return None
        start, end = self.facts.span(statement)
        source = self.facts.text[start:end]
        match = re.match(r"from\s+(\S+)\s", source)
        return None if match is None else [Edit(start + match.start(1), start + match.end(1), "transformers")]

    def _already_imported(self, use: ImportUse) -> bool:
        return any(
            other.qualified.rpartition(".")[2] == self.replacement.use
            and other.place.function is use.place.function
            and other.statement.lineno <= use.statement.lineno
            for other in self.imports
        ) or any(alias.name == self.replacement.use for alias in getattr(use.statement, "names", ()))

    def _statement_removal(self, statement: ast.ImportFrom) -> list[Edit] | None:
        facts = self.facts
        start, end = facts.span(statement)
        line_start = facts.index.line_start(statement.lineno)
        line_end = facts.index.line_end(statement.end_lineno or statement.lineno)
        if facts.text[line_start:start].strip() or facts.text[end:line_end].strip():
            return None
        assert facts.tree is not None
        if id(statement) in self._alone:
            return [Edit(start, end, "pass")]
        return [Edit(line_start, min(line_end + 1, len(facts.text)), "")]

    @cached_property
    def _alone(self) -> frozenset[int]:
        """The statements that stand alone in their block, which must not become empty."""
        assert self.facts.tree is not None
        return frozenset(
            id(block[0])
            for node in walk(self.facts.tree)
            for block in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None))
            if isinstance(block, list) and len(block) == 1
        )

    def _use_edits(self, item: SymbolReference) -> list[Edit] | None:
        use = item.use
        assert isinstance(use, SymbolUse)
        if use.quoted is not None:
            self_start, self_end = self.facts.span(use.quoted)
            source = self.facts.text[self_start:self_end]
            return [
                Edit(self_start + match.start(), self_start + match.end(), self.replacement.use)
                for match in re.finditer(rf"\b{re.escape(self.old)}\b", source)
            ]
        if use.context == "base":
            return None
        name_edit = self._name_edit(item.node)
        if name_edit is None:
            return None
        if use.context != "call":
            if use.context in ("load", "isinstance") and id(item.node) not in self._tested_with_the_new:
                if self._tells_apart:
                    return None
                self.applicability = Applicability.UNSAFE
            return name_edit
        if use.node is not item.node:
            return None
        call = self.calls.get(id(use.node))
        return None if call is None else self._call_edits(call, name_edit)

    @cached_property
    def _tested_with_the_new(self) -> set[int]:
        """The items (ids) of tuples that hold the replacement, too: a test for those stays as wide as it is."""
        assert self.facts.tree is not None
        return {
            id(item)
            for node in walk(self.facts.tree)
            if isinstance(node, ast.Tuple) and any(names(item, self.replacement.use) for item in node.elts)
            for item in node.elts
        }

    @cached_property
    def _tells_apart(self) -> bool:
        """True where the file tests, registers or looks up the replacement as well, so that both would be one to it."""
        assert self.facts.tree is not None
        loads = {
            id(use.node)
            for use in self.facts.symbols
            if use.context in ("load", "isinstance") and names(use.node, self.replacement.use)
        }
        return any(
            id(node) in loads or (isinstance(node, ast.Constant) and node.value == self.replacement.use)
            for node in walk(self.facts.tree)
        )

    def _name_edit(self, node: ast.AST) -> list[Edit] | None:
        start, end = self.facts.span(node)
        if isinstance(node, ast.Name):
            if node.id != self.old:
                return []
            return [Edit(start, end, self.replacement.use)]
        if isinstance(node, ast.Attribute):
            return [Edit(end - len(node.attr), end, self.replacement.use)]
        return None

    def _call_edits(self, node: ast.Call, name_edit: list[Edit]) -> list[Edit] | None:
        """The constructor call of the replacement; None where an argument has no counterpart."""
        import libcst

        if any(isinstance(item, ast.Starred) for item in node.args) or any(item.arg is None for item in node.keywords):
            return None
        names = self._argument_names(node)
        if names is None:
            return None
        values = [*node.args, *(item.value for item in node.keywords)]
        accepted = self._accepted()
        for name, value in zip(names, values, strict=True):
            if name in self.replacement.drop:
                if not is_plain(value):
                    return None
            elif name not in accepted:
                return None
        if self.replacement.use == "StaticCache" and "max_cache_len" not in names:
            return None
        if self.replacement.use == "DynamicCache" and self.replacement.needs == "5.5" and "config" not in names:
            return None

        def change(call: libcst.Call) -> libcst.Call:
            args = [
                as_keyword(arg, name) if arg.keyword is None else arg
                for arg, name in zip(call.args, names, strict=True)
            ]
            kept = without_arguments(
                call.with_changes(args=args),
                lambda _, arg: arg.keyword is not None and arg.keyword.value in self.replacement.drop,
            )
            if self.replacement.add and self.replacement.add.partition("=")[0] not in names:
                kept = with_argument(kept, self.replacement.add)
            new = libcst.Name(self.replacement.use)
            if not name_edit:
                return kept
            func = kept.func.with_changes(attr=new) if isinstance(kept.func, libcst.Attribute) else new
            return kept.with_changes(func=func)

        edit = rewrite_call(self.facts, node, change)
        return None if edit is None else [edit]

    def _argument_names(self, node: ast.Call) -> list[str] | None:
        """The parameter that each argument fills, by the newest signature of the old class."""
        dated = self.facts.timeline.signatures(self.canonical)
        if not dated:
            return None
        signature = max(dated, key=lambda item: item[0].newest)[1]
        if node.args and signature.accepts_args:
            older = [item for item in dated if not item[1].accepts_args]
            if not older:
                return None
            signature = max(older, key=lambda item: item[0].newest)[1]
        positional = [parameter.name for parameter in signature.positional]
        if len(node.args) > len(positional):
            return None
        names = positional[: len(node.args)] + [item.arg or "" for item in node.keywords]
        return names if len(set(names)) == len(names) else None

    def _accepted(self) -> set[str]:
        dated = self.facts.timeline.signatures(f"transformers.cache_utils.{self.replacement.use}")
        signature = max(dated, key=lambda item: item[0].newest)[1]
        return {parameter.name for parameter in signature.parameters}

    def _docstring_edits(self, bound: set[str]) -> list[Edit]:
        """Mentions of the old name in docstrings follow the code."""
        if self.old not in bound:
            return []
        assert self.facts.tree is not None
        edits: list[Edit] = []
        for node in walk(self.facts.tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
                first = node.body[0]
                if (
                    isinstance(first, ast.Expr)
                    and isinstance(first.value, ast.Constant)
                    and isinstance(first.value.value, str)
                ):
                    start, end = self.facts.span(first)
                    for match in re.finditer(rf"\b{re.escape(self.old)}\b", self.facts.text[start:end]):
                        edits.append(Edit(start + match.start(), start + match.end(), self.replacement.use))
        return edits
