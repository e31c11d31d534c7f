"""Functions and classes of the linted file, as the analysis remembers them between passes."""

from __future__ import annotations

import ast
from collections import deque
from dataclasses import dataclass, field

from kvlint.analysis.values import (
    CacheObject,
    Certainty,
    Items,
    LegacyCache,
    LocalClass,
    ModelOutput,
    Sequence,
    Symbol,
    Unknown,
    Value,
    of_type,
)
from kvlint.engine.units import Place
from kvlint.nodes import walk
from kvlint.releases import EVERY_RELEASE, ReleaseSet

MAX_ANCESTORS = 64
"""So many classes of a file are looked at for what a class inherits."""


@dataclass(frozen=True, slots=True, eq=False)
class HookUse:
    """A call that registers a function as a hook of a module, in the module *tree*."""

    node: ast.Call
    callee: Value
    releases: ReleaseSet
    tree: ast.Module


@dataclass(eq=False, slots=True)
class FunctionInfo:
    """A function or method. Filled while the file is analysed; identity is the node's."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    qualname: str
    owner: ClassInfo | None = None
    parent: FunctionInfo | None = None
    releases: ReleaseSet = EVERY_RELEASE
    arguments: dict[str, Value] = field(default_factory=dict)
    """Parameter name -> join of the values that call sites in the file pass."""
    taught: dict[str, Value] = field(default_factory=dict)
    """Of *arguments*, what call sites in other files pass."""
    returns: Value = ()
    called: bool = False
    patches: bool = False
    """It takes the place of a method that transformers calls (``LlamaAttention.forward = forward``)."""
    places: tuple[Place, ...] = ()
    """Where the project puts it, in whatever file."""
    installed: dict[int, ReleaseSet] = field(default_factory=dict)
    """The statements that put it there (ids of their nodes), with the releases that get to them."""
    promised: dict[str, Value] = field(default_factory=dict)
    """What the annotations of the parameters say that they are."""
    replaces: set[str] = field(default_factory=set)
    """The kinds of modules (model, layer, attention) whose ``forward`` it replaces on the objects that it is given."""
    installed_on: str = ""
    """The class of transformers that it is put into, where that is one only: its first parameter is an object of it."""
    bound_to: Value = ()
    """The objects that it is put on as a method (``model.forward = MethodType(f, model)``)."""
    callers: dict[int, ReleaseSet] = field(default_factory=dict)
    """The calls of it in the file (ids of their nodes) with the releases that get there."""
    hooks: dict[int, HookUse] = field(default_factory=dict)
    """The calls that register it as a hook of a module, in whatever file (by the ids of their nodes)."""
    readers: set[int] = field(default_factory=set)
    """The functions (ids of their nodes; the walk's for a module's own statements) that have used the result."""
    home: object = None
    """The walk over the module that the function stands in."""

    def let_go(self) -> None:
        """Forgets what leads back to this function."""
        self.owner = self.parent = self.home = None
        self.arguments.clear()
        self.promised.clear()
        self.taught.clear()
        self.hooks.clear()
        self.returns = self.bound_to = ()

    @property
    def name(self) -> str:
        return self.node.name

    def parameters(self) -> list[ast.arg]:
        """All named parameters in order, without ``*args`` and ``**kwargs``."""
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    def parameter(self, name: str) -> ast.arg | None:
        return next((arg for arg in self.parameters() if arg.arg == name), None)

    @property
    def is_static(self) -> bool:
        return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in self.node.decorator_list)

    def first_positional(self) -> int:
        """Index of the first parameter that a call through an object fills."""
        return 1 if self.owner is not None and not self.is_static else 0


@dataclass(eq=False, slots=True)
class ClassInfo:
    """A class defined in the file or its project."""

    node: ast.ClassDef
    qualname: str
    bases: tuple[Value, ...] = ()
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    """Attribute name -> join of the values assigned in the class body and to ``self``."""
    releases: ReleaseSet = EVERY_RELEASE
    given: set[str] = field(default_factory=set)
    """The keywords with which its objects are called, where its ``forward`` is inherited from the library."""
    _assigned: frozenset[str] | None = None
    _foreign: tuple[list[ClassInfo], list[str]] | None = None
    _ancestors: tuple[tuple[Value, ...], list[ClassInfo]] | None = None

    def let_go(self) -> None:
        """Forgets what leads back to this class."""
        self.methods.clear()
        self.attributes.clear()
        self._ancestors = self._foreign = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def assigned(self) -> frozenset[str]:
        """Names of the attributes that the methods set on ``self`` (``self.n += 1`` reads first: it sets nothing new)."""
        if self._assigned is None:
            self._assigned = frozenset(set_on_self(self.node))
        return self._assigned

    def ancestors(self) -> list[ClassInfo]:
        """This class and the local classes it derives from, nearest first; of very many, the nearest ones."""
        if self._ancestors is not None and self._ancestors[0] is self.bases:
            return self._ancestors[1]
        seen: list[ClassInfo] = []
        known: set[int] = set()
        queue = deque([self])
        while queue and len(seen) < MAX_ANCESTORS:
            info = queue.popleft()
            if id(info) in known:
                continue
            known.add(id(info))
            seen.append(info)
            for base in info.bases:
                queue.extend(atom.info for atom in of_type(base, LocalClass))
        self._ancestors = (self.bases, seen)
        return seen

    def foreign_bases(self) -> list[str]:
        """Dotted names of the imported classes it derives from, through local classes."""
        ancestors = self.ancestors()
        if self._foreign is None or self._foreign[0] is not ancestors:
            names: list[str] = []
            for info in ancestors:
                for base in info.bases:
                    names.extend(atom.name for atom in of_type(base, Symbol) if atom.name not in names)
            self._foreign = (ancestors, names)
        return self._foreign[1]

    def method(self, name: str) -> FunctionInfo | None:
        for info in self.ancestors():
            if name in info.methods:
                return info.methods[name]
        return None

    def defines(self, name: str) -> bool:
        """True where the class or a local ancestor defines the member or assigns it to ``self``."""
        return any(
            name in info.methods or name in info.attributes or name in info.assigned for info in self.ancestors()
        )

    def attribute(self, name: str) -> Value:
        for info in self.ancestors():
            if name in info.attributes:
                return info.attributes[name]
        return ()

    def bases_known(self) -> bool:
        """True where every base class, through local ancestors, is a name that was resolved."""
        return all(
            any(isinstance(atom, (Symbol, LocalClass)) for atom in base)
            for info in self.ancestors()
            for base in info.bases
        )


def set_on_self(function: ast.AST) -> set[str]:
    """Names of the attributes that a function, or the methods of a class, set on ``self``."""
    nodes = walk(function)
    augmented = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and id(node) not in augmented
    }


def own_format(owner: ClassInfo) -> Value:
    """What the ``forward`` of a model of the project gives back as its cache; () where that is not known."""
    forward = owner.method("forward")
    outputs = of_type(forward.returns, ModelOutput) if forward is not None else ()
    return tuple(atom for output in outputs for atom in output.held)


def keeps_own_format(owner: ClassInfo) -> bool:
    """True for a model whose ``forward`` returns collections of its own where a cache is meant, and that prepares its own
    inputs: the library stores what it returned and hands it back to the model's code, nothing else reads it."""
    if owner.method("prepare_inputs_for_generation") is None:
        return False
    held = own_format(owner)
    return any(isinstance(atom, (Items, Sequence, LegacyCache)) for atom in held) and not any(
        isinstance(atom, CacheObject) and atom.certainty >= Certainty.PROVEN and atom.source != "hook" for atom in held
    )


def returns_unknown(owner: ClassInfo) -> bool:
    """True for a model whose own ``forward`` gives back a cache of which nothing is known: that is what beam search hands
    to its ``_reorder_cache``."""
    return owner.method("forward") is not None and all(isinstance(atom, Unknown) for atom in own_format(owner))
