"""State of one walk: the flow through the code, and the facts recorded on the way."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.library import library_of
from kvlint.analysis.names import looks_like_cache
from kvlint.analysis.positions import LineIndex
from kvlint.analysis.project import Project
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.analysis.values import UNKNOWN, Later, Unknown, Value, join, now, restrict
from kvlint.engine.units import Surroundings
from kvlint.findings import Origin
from kvlint.releases import ReleaseSet
from kvlint.timeline import Timeline

MEMBER_MARK = "?"
"""Prefix of the flow's keys that say "this path has this member" (never a Python name)."""


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """A point at which a flow was copied. *written* are the names that were given a value since the fork *before* it."""

    before: Fork | None
    written: dict[str, None]
    depth: int


@dataclass(slots=True)
class Flow:
    """What is known on one path through the code: the values of names and dotted paths, and the releases that reach it.

    *written* are the names that got a value since the last *fork*: where flows meet again, only these can differ.
    """

    names: dict[str, Value]
    releases: ReleaseSet
    reached_through: set[str] = field(default_factory=set)
    """Paths below which something was bound on some path: the others have nothing to be forgotten with them."""
    fork: Fork = field(default_factory=lambda: Fork(None, {}, 0))
    written: dict[str, None] = field(default_factory=dict)

    def copy(self) -> Flow:
        if self.written:
            self.fork = Fork(self.fork, self.written, self.fork.depth + 1)
            self.written = {}
        return Flow(dict(self.names), self.releases, self.reached_through, self.fork)

    def set(self, path: str, value: Value) -> None:
        """Gives a path a value and forgets nothing."""
        self.names[path] = value
        self.written[path] = None

    def bind(self, path: str, value: Value) -> None:
        """Gives a name or dotted path a new value and forgets everything that was reached through the old one."""
        if path in self.reached_through:
            self.forget(path)
        self.names[path] = value
        self.written[path] = None
        if not path.isidentifier():
            self._note(path)

    def forget(self, path: str) -> None:
        names = self.names
        if path in self.reached_through:
            starts = (path + ".", path + "[", MEMBER_MARK + path + ".")
            for key in [key for key in names if key.startswith(starts)]:
                del names[key]
                self.written[key] = None
        if names.pop(path, None) is not None:
            self.written[path] = None

    def narrow(self, path: str, value: Value) -> None:
        """Gives a path a narrower value; what was reached through it stays known."""
        self.set(path, value)
        if not path.isidentifier():
            self._note(path)

    def know_member(self, path: str, name: str) -> None:
        self.reached_through.add(path)
        self._note(path)
        self.set(f"{MEMBER_MARK}{path}.{name}", UNKNOWN)

    def knows_member(self, path: str, name: str) -> bool:
        return f"{MEMBER_MARK}{path}.{name}" in self.names

    def _note(self, path: str) -> None:
        """Notes what a path is reached through: ``a`` and ``a.b`` for ``a.b.c``."""
        end = max(path.rfind("."), path.rfind("["))
        while end > 0 and path[:end] not in self.reached_through:
            path = path[:end]
            self.reached_through.add(path)
            end = max(path.rfind("."), path.rfind("["))


def merge(flows: list[Flow | None]) -> Flow | None:
    """The flow after several branches: values of either, the releases of all."""
    alive = [flow for flow in flows if flow is not None and flow.releases]
    if not alive:
        return None
    if len(alive) == 1:
        return alive[0]
    releases = ReleaseSet(0)
    for flow in alive:
        releases |= flow.releases
    narrowed = any(flow.releases != releases for flow in alive)
    reached = alive[0].reached_through
    for flow in alive:
        if flow.reached_through is not reached:
            reached = reached | flow.reached_through
    fork = common_fork(alive)
    written = written_since(fork, alive) if fork is not None else all_names(alive)
    first, rest = alive[0].names, [flow.names for flow in alive[1:]]
    names = dict(first)
    for key in written:
        value = first.get(key)
        if all(other.get(key) is value for other in rest):
            continue
        merged = merged_value(key, alive, narrowed)
        if merged is not None:
            names[key] = merged
        else:
            names.pop(key, None)
    return Flow(names, releases, reached, fork, written) if fork is not None else Flow(names, releases, reached)


def common_fork(flows: list[Flow]) -> Fork | None:
    """The last point at which all flows were one; None where there was none."""
    found: Fork | None = flows[0].fork
    for flow in flows[1:]:
        other: Fork | None = flow.fork
        while found is not other and found is not None and other is not None:
            if found.depth > other.depth:
                found = found.before
            elif other.depth > found.depth:
                other = other.before
            else:
                found, other = found.before, other.before
        if found is not other:
            return None
    return found


def written_since(fork: Fork, flows: list[Flow]) -> dict[str, None]:
    """The names that one of the flows was given since *fork*, in order."""
    found: dict[str, None] = {}
    for flow in flows:
        parts = [flow.written]
        point = flow.fork
        while point is not fork and point.before is not None:
            parts.append(point.written)
            point = point.before
        for part in reversed(parts):
            found.update(part)
    return found


def all_names(flows: list[Flow]) -> dict[str, None]:
    """All names of the flows, in order."""
    return {key: None for flow in flows for key in flow.names}


def merged_value(key: str, alive: list[Flow], narrowed: bool) -> Value | None:
    """The value of a name that differs between flows; None where it is known after all of them only if it is in each."""
    if key[0] == MEMBER_MARK:
        return UNKNOWN if all(key in flow.names for flow in alive) else None
    if ("." in key or "[" in key) and not all(key in flow.names for flow in alive):
        return None
    parts = []
    for flow in alive:
        part = flow.names.get(key)
        if part is None:
            continue
        if type(part) is Later:
            part = part.now()
        parts.append(restrict(part, flow.releases) if narrowed else part)
    return join(*parts) or UNKNOWN


@dataclass(slots=True)
class Records:
    """Facts of the current pass, keyed by node so that a later visit of the same place replaces an earlier one."""

    imports: dict[int, Any] = field(default_factory=dict)
    symbols: dict[int, Any] = field(default_factory=dict)
    attributes: dict[int, Any] = field(default_factory=dict)
    subscripts: dict[int, Any] = field(default_factory=dict)
    iterations: dict[tuple[int, str], Any] = field(default_factory=dict)
    calls: dict[int, Any] = field(default_factory=dict)
    tests: dict[int, Any] = field(default_factory=dict)
    compares: dict[int, Any] = field(default_factory=dict)
    functions: dict[int, Any] = field(default_factory=dict)
    classes: dict[int, Any] = field(default_factory=dict)
    returns: dict[int, Any] = field(default_factory=dict)
    assigns: dict[int, Any] = field(default_factory=dict)
    guards: dict[int, Any] = field(default_factory=dict)
    defaults: dict[int, Any] = field(default_factory=dict)


class Recorder:
    """What every part of the walk shares: the text, the library, the records, the place where the walk stands."""

    def __init__(
        self, text: str, tree: ast.Module, path: Path, target: ReleaseSet, project: Project, timeline: Timeline
    ) -> None:
        self.text = text
        self.tree = tree
        self.path = path
        self.target = target
        self.project = project
        self.timeline = timeline
        self.library = library_of(timeline)
        self.index = LineIndex(text)
        self.records = Records()
        self.functions: list[FunctionInfo] = []
        self.classes: list[ClassInfo] = []
        self.dependencies: dict[Path, None] = {}
        """The other files that were read, in order."""
        self.reach: dict[tuple[int, int], ReleaseSet] = {}
        """First and last lines of statements that not every release of the target reaches, and those that do."""
        self.uses_transformers = False
        self.foreign_engine = False
        self.in_transformers = False
        self.star_import = False
        self.module_flow = Flow({}, target)
        self._statement: ast.stmt = tree.body[0] if tree.body else ast.Pass(lineno=1, col_offset=0)
        self._function: FunctionInfo | None = None
        self._owner: ClassInfo | None = None
        self._caught: frozenset[str] = frozenset()
        self._typing_only = False
        self._place: Place | None = None
        self.surroundings = Surroundings()
        self.joint: Any = None

    def place(self, flow: Flow) -> Place:
        """The place where the walk stands now."""
        last = self._place
        if (
            last is not None
            and last.statement is self._statement
            and last.releases == flow.releases
            and last.caught is self._caught
            and last.typing_only == self._typing_only
            and last.function is self._function
        ):
            return last
        self._place = Place(
            flow.releases, self._caught, self._statement, self._function, self._owner, typing_only=self._typing_only
        )
        return self._place

    def origin(self, node: ast.AST, text: str) -> Origin:
        """Evidence: this place shows *text*."""
        line: int = node.lineno  # type: ignore[attr-defined]
        path = str(self.path) if self.joint is not None else ""
        return Origin(self.index.offset(line, node.col_offset), text, path, line)  # type: ignore[attr-defined]

    def facts(self, kind: str, apart: bool = True) -> Facts:
        """What the walk has recorded. *apart*: nobody else needs what the walk knows once the facts are let go."""
        records = self.records
        return Facts(
            text=self.text,
            path=self.path,
            kind=kind,
            target=self.target,
            timeline=self.timeline,
            tree=self.tree,
            uses_transformers=self.uses_transformers,
            foreign_engine=self.foreign_engine,
            in_transformers=self.in_transformers,
            imports=tuple(records.imports.values()),
            symbols=tuple(records.symbols.values()),
            attributes=tuple(records.attributes.values()),
            subscripts=tuple(records.subscripts.values()),
            iterations=tuple(records.iterations.values()),
            calls=tuple(records.calls.values()),
            tests=tuple(records.tests.values()),
            compares=tuple(records.compares.values()),
            functions=tuple(records.functions.values()),
            classes=tuple(records.classes.values()),
            returns=tuple(records.returns.values()),
            assigns=tuple(records.assigns.values()),
            guards=tuple(records.guards.values()),
            defaults=tuple(records.defaults.values()),
            dependencies=tuple(self.dependencies),
            reach=self.reach,
            undo=self.let_go if apart else None,
            surroundings=self.surroundings,
            module_names={
                name: now(value) if looks_like_cache(name) else value for name, value in self.module_flow.names.items()
            },
        )

    def let_go(self) -> None:
        """Forgets everything; see ``Facts.let_go``."""
        for function in self.functions:
            function.let_go()
        for cls in self.classes:
            cls.let_go()
        self.__dict__.clear()


def path_of(node: ast.AST) -> str:
    """``a.b["c"][0]`` as a key, for names, attributes and constant subscripts; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = path_of(node.value)
        return f"{base}.{node.attr}" if base else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = path_of(node.value)
        return f"{base}[{node.slice.value!r}]" if base else ""
    return ""


def unknown(value: Value) -> bool:
    """True where nothing is known about any alternative."""
    return not value or all(isinstance(atom, Unknown) for atom in value)
