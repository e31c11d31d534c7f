"""What the walk over a region hands to the checks: flat, typed records of the uses that could matter.

A check never walks the tree or follows names: it reads these records. Each holds its syntax node (for the range and
for building a fix), the place it stands in, and the values that meet there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.analysis.positions import LineIndex
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.analysis.values import UNKNOWN, Value
from kvlint.engine.units import Surroundings
from kvlint.releases import ReleaseSet

if TYPE_CHECKING:
    from kvlint.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Place:
    """Where a use stands: what can reach it and what would catch its exception."""

    releases: ReleaseSet
    """The part of the target range that can reach this place."""
    caught: frozenset[str]
    """Names of exceptions that an enclosing ``try`` handles without raising again."""
    statement: ast.stmt
    function: FunctionInfo | None
    owner: ClassInfo | None
    known_members: frozenset[tuple[str, str]] = frozenset()
    """(path, name) pairs that an enclosing ``hasattr`` has established."""
    typing_only: bool = False
    """Inside ``if TYPE_CHECKING:`` or a quoted annotation: nothing runs here."""


@dataclass(frozen=True, slots=True)
class ImportUse:
    """A name imported from another package (``from m import name``), or a module (*name* is then empty)."""

    node: ast.alias
    statement: ast.Import | ast.ImportFrom
    qualified: str
    bound: str
    place: Place


@dataclass(frozen=True, slots=True)
class SymbolUse:
    """A reference to an imported name: a call, base class, isinstance argument, annotation, attribute chain."""

    node: ast.expr
    qualified: str
    context: str
    """call, base, isinstance, annotation, except, load"""
    place: Place
    imported: bool = False
    """Reached through a from-import of this very name (as against an attribute of a module)."""
    quoted: ast.Constant | None = None
    """The string that holds the annotation, when it is quoted."""


@dataclass(frozen=True, slots=True)
class AttributeUse:
    """``value.name`` read, stored or deleted; ``getattr(value, "name")`` counts as a read."""

    node: ast.expr
    value_node: ast.expr
    value: Value
    name: str
    action: str
    """load, store, augmented, delete"""
    place: Place
    path: str = ""
    assigned: Value = UNKNOWN
    call: ast.Call | None = None
    """The call, when the attribute is called at once."""
    parent: ast.AST | None = None


@dataclass(frozen=True, slots=True)
class SubscriptUse:
    """``value[index]`` read, stored or deleted."""

    node: ast.Subscript
    value: Value
    index: Value
    action: str
    place: Place
    path: str = ""
    assigned: Value = UNKNOWN
    parent: ast.AST | None = None


@dataclass(frozen=True, slots=True)
class IterationUse:
    """An iteration over a value: a loop, a comprehension, unpacking, ``zip(*value)``, ``tuple(value)``, ``*value``."""

    node: ast.expr
    value: Value
    how: str
    """for, comprehension, unpack, star, call"""
    target: ast.expr | None
    place: Place
    function_name: str = ""
    """For "call": the callable that iterates (zip, enumerate, tuple, list, ...)."""
    loop: ast.AST | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class CallUse:
    """A call with the values of the callee and of its arguments."""

    node: ast.Call
    callee: Value
    arguments: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    """Keyword arguments; the name is "" for ``**mapping``."""
    place: Place
    starred: bool = False
    result: Value = UNKNOWN
    parent: ast.AST | None = None

    def keyword(self, name: str) -> ast.keyword | None:
        return next((item for item in self.node.keywords if item.arg == name), None)

    def keyword_value(self, name: str) -> Value | None:
        return next((value for key, value in self.keywords if key == name), None)


@dataclass(frozen=True, slots=True)
class TestUse:
    """A condition that asks about a value: its truth, or whether it is None."""

    __test__ = False

    node: ast.expr
    subject: ast.expr
    value: Value
    kind: str
    """truth, is-none, is-not-none; is-tuple, is-cache (isinstance)"""
    place: Place
    owner_node: ast.AST
    """The If, IfExp, While or BoolOp whose branch is decided."""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class CompareUse:
    """A comparison of values."""

    node: ast.Compare
    left: Value
    rights: tuple[Value, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class FunctionUse:
    """A function definition with its resolved surroundings."""

    info: FunctionInfo
    place: Place


@dataclass(frozen=True, slots=True)
class ClassUse:
    """A class definition."""

    info: ClassInfo
    place: Place


@dataclass(frozen=True, slots=True)
class ReturnUse:
    """A return statement with its value."""

    node: ast.Return
    value: Value
    place: Place


@dataclass(frozen=True, slots=True)
class AssignUse:
    """A simple assignment ``name = value`` (also annotated and class-level ones)."""

    node: ast.Assign | ast.AnnAssign
    target: ast.expr
    value: Value
    place: Place


@dataclass(frozen=True, slots=True)
class GuardUse:
    """A condition that the release decides: on which releases it is true."""

    node: ast.expr
    releases: ReleaseSet
    place: Place


def by_line(reach: Mapping[tuple[int, int], ReleaseSet]) -> dict[int, ReleaseSet]:
    """The releases that get to each line that not all of them get to; *reach* has them by the first and last line."""
    found: dict[int, ReleaseSet] = {}
    for (first, last), releases in reach.items():
        for line in range(first, last + 1):
            known = found.get(line)
            found[line] = releases if known is None else known & releases
    return found


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the checks may ask about one region."""

    text: str
    path: Path
    kind: str
    target: ReleaseSet
    timeline: Timeline
    tree: ast.Module | None = None
    uses_transformers: bool = False
    foreign_engine: bool = False
    """The file imports another engine with caches of its own (vLLM, MLX, JAX, TensorFlow, llama.cpp, ...)."""
    in_transformers: bool = False
    """The file is part of the transformers package itself."""
    imports: tuple[ImportUse, ...] = ()
    symbols: tuple[SymbolUse, ...] = ()
    attributes: tuple[AttributeUse, ...] = ()
    subscripts: tuple[SubscriptUse, ...] = ()
    iterations: tuple[IterationUse, ...] = ()
    calls: tuple[CallUse, ...] = ()
    tests: tuple[TestUse, ...] = ()
    compares: tuple[CompareUse, ...] = ()
    functions: tuple[FunctionUse, ...] = ()
    classes: tuple[ClassUse, ...] = ()
    returns: tuple[ReturnUse, ...] = ()
    assigns: tuple[AssignUse, ...] = ()
    guards: tuple[GuardUse, ...] = ()
    defaults: tuple[AttributeUse, ...] = ()
    """``getattr(value, "name", default)``: reads that do not raise where the member is missing."""
    dependencies: tuple[Path, ...] = ()
    module_names: dict[str, Value] = field(default_factory=dict)
    memo: dict[object, object] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out from the facts on demand, for the next check that asks (layouts of tensors)."""
    reach: dict[tuple[int, int], ReleaseSet] = field(default_factory=dict, compare=False, repr=False)
    """First and last lines of statements that not every release of the target reaches, and those that do."""
    surroundings: Surroundings = field(default_factory=Surroundings, compare=False, repr=False)
    """What the project says about the file."""
    undo: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    def let_go(self) -> None:
        """Cuts what refers to itself in circles, so that the tree is freed now and not by the garbage collector.

        Nothing may be asked of the facts, or of their functions and classes, afterwards.
        """
        for known in self.memo.values():
            let_go = getattr(known, "let_go", None)
            if let_go is not None:
                let_go()
        self.memo.clear()
        if self.undo is not None:
            self.undo()

    def reaching(self, statement: ast.stmt) -> ReleaseSet:
        """The releases of the target on which a statement runs, as far as version guards and early ends decide it."""
        known = self.memo.get("reach")
        if not isinstance(known, dict):
            known = self.memo["reach"] = by_line(self.reach)
        return self.target & known.get(statement.lineno, self.target)

    @property
    def index(self) -> LineIndex:
        return LineIndex.of(self.text)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Character offsets of a node in the region's text."""
        return self.index.span(node)

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.index.span(node)
        return self.text[start:end]
