"""What the analysis can know about the value of an expression.

A value is a tuple of *atoms*: the alternatives that may reach the expression. Every atom carries the releases on
which it is the alternative (``when``; a name bound in a version branch is not the same thing everywhere) and where
the knowledge comes from (``origin``). No atom means "unknown"; unknown is silent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlint.findings import Origin
from kvlint.releases import EVERY_RELEASE, ReleaseSet

if TYPE_CHECKING:
    from kvlint.analysis.scopes import ClassInfo, FunctionInfo

CACHE = "transformers.cache_utils.Cache"
DYNAMIC_CACHE = "transformers.cache_utils.DynamicCache"
STATIC_CACHE = "transformers.cache_utils.StaticCache"
QUANTIZED_CACHE = "transformers.cache_utils.QuantizedCache"
ENCODER_DECODER_CACHE = "transformers.cache_utils.EncoderDecoderCache"


class Certainty(IntEnum):
    """How well it is known that a value is a transformers object."""

    NAMED = 1
    """A conventional name in a conventional place; nothing else."""
    CONTEXT = 2
    """A conventional name in code that uses transformers, or used as only such an object can be."""
    PROVEN = 3
    """Constructed, annotated, tested with isinstance, or handed over by the library."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One alternative of a value."""

    when: ReleaseSet = field(default=EVERY_RELEASE, kw_only=True)
    origin: Origin | None = field(default=None, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Unknown(Atom):
    """Anything at all."""


@dataclass(frozen=True, slots=True)
class Foreign(Atom):
    """An object that an annotation calls by a class which is none of transformers', as far as is known."""


@dataclass(frozen=True, slots=True)
class Outside(Atom):
    """A model that a class of another library (or of the project) built here, and whatever it gives: caches of its own."""


@dataclass(frozen=True, slots=True)
class NoneValue(Atom):
    """The constant None."""


@dataclass(frozen=True, slots=True)
class Literal(Atom):
    """A constant: str, bytes, int, float or bool."""

    value: Any


@dataclass(frozen=True, slots=True)
class Symbol(Atom):
    """Something imported, by its dotted name: a module, class, function or constant of another package."""

    name: str


@dataclass(frozen=True, slots=True)
class CacheObject(Atom):
    """A transformers cache. *cls* is the canonical dotted name of its class (``CACHE`` when only the base is known)."""

    cls: str = CACHE
    certainty: Certainty = Certainty.PROVEN
    source: str = "constructed"
    """constructed, annotation, isinstance, output, hook, parameter, attribute, call"""
    local_class: ClassInfo | None = field(default=None, compare=False)
    config_given: bool = False
    """Constructed with ``config=``, so that the layer types follow the model's (sliding layers where it has them)."""
    filled: bool = False


@dataclass(frozen=True, slots=True)
class CacheLayers(Atom):
    """``cache.layers``, or the lists ``key_cache`` and ``value_cache`` (*part* is then "keys" or "values")."""

    cache: CacheObject
    part: str = "layers"


@dataclass(frozen=True, slots=True)
class CacheLayer(Atom):
    """One element of ``cache.layers``."""

    cache: CacheObject


@dataclass(frozen=True, slots=True)
class LayerPair(Atom):
    """What a legacy subscript or iteration of a cache (or of a legacy tuple) yields for one layer."""

    cache: CacheObject | None = None
    indexed: bool = False
    """From a subscript of the cache itself, which releases without ``__getitem__`` do not get past."""


@dataclass(frozen=True, slots=True)
class StoredTensor(Atom):
    """A key or value tensor held by a transformers cache, ``[batch, kv heads, sequence, head dim]``."""

    part: str
    cache: CacheObject | None = None
    via: str = "layers"
    """How it was reached: "layers", "lists" or "subscript"."""


@dataclass(frozen=True, slots=True)
class TensorShape(Atom):
    """``.shape`` of a stored tensor."""

    tensor: StoredTensor


@dataclass(frozen=True, slots=True)
class CacheLength(Atom):
    """A number of tokens read from a cache. *how* is the member that gave it."""

    cache: CacheObject
    how: str
    node: ast.AST | None = field(default=None, compare=False)
    """The call or attribute that read it."""


@dataclass(frozen=True, slots=True)
class NegativeNumber(Atom):
    """A number below zero, or zero, by the way it is computed (``-n``, ``kept - cache.get_seq_length()``)."""


@dataclass(frozen=True, slots=True)
class LegacyCache(Atom):
    """A tuple (or list) of per-layer key/value tuples, the format of transformers before its cache classes."""

    built: str = "tuple"
    of: CacheObject | None = None
    """The cache that it lists the items of (``list(cache)``)."""


@dataclass(frozen=True, slots=True)
class Model(Atom):
    """A transformers model. *role* is "model", "layer" (a decoder layer) or "attention"."""

    certainty: Certainty = Certainty.PROVEN
    role: str = "model"
    name: str = ""
    """The hub id or path it was loaded from, when literal."""
    cls: str = ""
    windowed: bool = False
    """Built from such a configuration (see ``Config.windowed``)."""
    family: str = ""
    """The module of transformers that its class, or the one whose place a function takes, stands in."""


@dataclass(frozen=True, slots=True)
class ModelLayers(Atom):
    """The list of decoder layers of a model."""

    model: Model


@dataclass(frozen=True, slots=True)
class ModelOutput(Atom):
    """What a model call ("forward") or ``generate(..., return_dict_in_generate=True)`` ("generate") returns."""

    kind: str = "forward"
    certainty: Certainty = Certainty.PROVEN
    held: Value = ()
    """What was given to it as the cache, where code of the project made it."""


@dataclass(frozen=True, slots=True)
class OutputDict(Atom):
    """A plain dict made from a model output: ``dict(out)``, ``{**out}``, ``out.to_dict()``."""


@dataclass(frozen=True, slots=True)
class ModelKwargs(Atom):
    """A dict of keyword arguments of ``forward`` or ``generate`` (``model_kwargs``, ``**kwargs`` of a hook)."""

    hook: bool = False


@dataclass(frozen=True, slots=True)
class Config(Atom):
    """A model configuration."""

    certainty: Certainty = Certainty.CONTEXT
    name: str = ""
    cls: str = ""
    windowed: bool = False
    """Built here with a sliding window, or with layer types that are not all full attention."""


@dataclass(frozen=True, slots=True)
class GenerationConfigValue(Atom):
    """A GenerationConfig object."""


@dataclass(frozen=True, slots=True)
class Pipeline(Atom):
    """What ``pipeline(...)`` of transformers returns; a call of it hands its options to ``generate``."""


@dataclass(frozen=True, slots=True)
class Items(Atom):
    """A tuple or list display with known items."""

    items: tuple[Value, ...]
    is_tuple: bool = True


@dataclass(frozen=True, slots=True)
class Sequence(Atom):
    """An iterable of unknown length whose items all have one value."""

    item: Value
    is_tuple: bool = False
    promised: bool = False
    """An annotation says so; nobody has been seen to make it."""


@dataclass(frozen=True, slots=True)
class ProjectModule(Atom):
    """A module of the project (``from . import compat``)."""

    path: Path


@dataclass(frozen=True, slots=True)
class Mapping(Atom):
    """A dict display with known literal keys; *open* when other keys may be there."""

    items: tuple[tuple[str, Value], ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Member(Atom):
    """A bound attribute or method, not called yet."""

    of: Atom
    name: str


@dataclass(frozen=True, slots=True)
class LocalClass(Atom):
    """A class defined in the file or its project."""

    info: ClassInfo


@dataclass(frozen=True, slots=True)
class Instance(Atom):
    """An object of a class defined in the file or its project."""

    info: ClassInfo


@dataclass(frozen=True, slots=True)
class LocalFunction(Atom):
    """A function defined in the file or its project; *bound* when reached through an object."""

    info: FunctionInfo
    bound: bool = False


@dataclass(frozen=True, slots=True)
class SuperObject(Atom):
    """``super()`` inside a method of *info*."""

    info: ClassInfo


@dataclass(frozen=True, slots=True)
class PerRelease(Atom):
    """A Python value for each release of the timeline, oldest first (``transformers.__version__`` and what follows)."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Truth(Atom):
    """A boolean that is True on exactly these releases."""

    releases: ReleaseSet


@dataclass(frozen=True, slots=True)
class HasMember(Atom):
    """The result of ``hasattr(x, name)`` on something whose members the timeline does not know."""

    path: str
    name: str


def is_promised(atom: Atom) -> bool:
    """True for a collection of which only an annotation says that it is there."""
    return (isinstance(atom, LegacyCache) and atom.built == "annotation") or (
        isinstance(atom, Sequence) and atom.promised
    )


Value = tuple[Atom, ...]
UNKNOWN: Value = (Unknown(),)
NONE: Value = (NoneValue(),)

MAX_ALTERNATIVES = 8


class Later(tuple[Atom, ...]):
    """A value that is worked out when somebody asks for it (what a name imported from the project is).

    As a tuple it is what holds without an answer.
    """

    _work: Callable[[], Value] | None
    _answer: Value

    @staticmethod
    def of(fallback: Value, work: Callable[[], Value]) -> Later:
        """*fallback* until the answer of *work* is asked for."""
        later = Later(fallback)
        later._work = work
        later._answer = fallback
        return later

    def now(self) -> Value:
        """The value; the fallback while it is being worked out (modules that import each other)."""
        work, self._work = self._work, None
        if work is not None:
            self._answer = work()
        return self._answer


def now(value: Value) -> Value:
    """*value*, worked out where that was put off."""
    return value.now() if type(value) is Later else value


def join(*values: Value) -> Value:
    """All alternatives of *values*, each once; too many become unknown."""
    if len(values) == 1 and len(values[0]) == 1:
        return values[0]
    if len(values) == 2 and (values[0] == values[1] or not values[1]):
        return values[0]
    atoms: list[Atom] = []
    for value in values:
        for atom in value:
            if atom not in atoms:
                atoms.append(atom)
    return tuple(atoms) if len(atoms) <= MAX_ALTERNATIVES else UNKNOWN


def is_mixed(items: Iterable[Value]) -> bool:
    """True where some items are caches and others are something else: what a single one is depends on its place."""
    return len({bool(cache_of(item, Certainty.NAMED)) for item in items if not only(item, NoneValue)}) > 1


def is_collection(value: Value) -> bool:
    """True where every alternative is a tuple or list whose items are known."""
    return bool(value) and all(isinstance(atom, (Items, Sequence)) for atom in value)


def grown(value: Value, added: Value) -> Value:
    """What ``value + added`` makes of a collection; unknown for anything else. None cannot be added to: it was a tuple."""
    value = without(value, NoneValue) or value
    if any(isinstance(atom, LegacyCache) for atom in value):
        return value
    collections = [atom for atom in value if isinstance(atom, (Items, Sequence))]
    if not collections or len(collections) != len(value):
        return UNKNOWN
    parts = [item for atom in of_type(added, Items) for item in atom.items]
    parts += [item for atom in collections if isinstance(atom, Items) for item in atom.items]
    parts += [atom.item for atom in collections if isinstance(atom, Sequence)]
    parts += [atom.item for atom in of_type(added, Sequence)]
    if is_mixed(parts):
        # (hidden_states,) + (cache,): an item is one or the other by its place
        if len(value) == len(added) == 1 and isinstance(value[0], Items) and isinstance(added[0], Items):
            return (Items((*value[0].items, *added[0].items), value[0].is_tuple),)
        return UNKNOWN
    return (Sequence(join(*parts) if parts else UNKNOWN, is_tuple=all(atom.is_tuple for atom in collections)),)


def changed_mapping(
    mapping: Mapping, method: str, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...] = ()
) -> Mapping:
    """The dict behind a call of one of the methods that change it in place."""
    items = dict(mapping.items)
    key = literal(arguments[0]) if arguments else None
    if method == "pop" and isinstance(key, str):
        items.pop(key, None)
        return replace(mapping, items=tuple(items.items()))
    if method == "setdefault" and isinstance(key, str):
        if not mapping.open:
            items.setdefault(key, arguments[1] if len(arguments) > 1 else (NoneValue(),))
        return replace(mapping, items=tuple(items.items()))
    if method == "update":
        is_open = mapping.open
        for name, value in [*(("", value) for value in arguments), *keywords]:
            if name:
                items[name] = value
            elif len(value) == 1 and isinstance(value[0], Mapping) and not value[0].open:
                items.update(value[0].items)
            else:
                items, is_open = {}, True
        return replace(mapping, items=tuple(items.items()), open=is_open)
    return replace(mapping, items=(), open=method != "clear")


def restrict(value: Value, releases: ReleaseSet) -> Value:
    """*value* as seen on *releases* only: alternatives that cannot occur there are gone."""
    kept: list[Atom] = []
    for atom in value:
        when = atom.when & releases
        if when:
            kept.append(atom if atom.when is when else replace(atom, when=when))
    return tuple(kept)


def of_type(value: Value, *types: type[Atom]) -> Iterator[Any]:
    """The alternatives of these types."""
    for atom in value:
        if isinstance(atom, types):
            yield atom


def only(value: Value, kind: type[Atom]) -> bool:
    """True where every alternative is of this type (and there is one)."""
    return bool(value) and all(isinstance(atom, kind) for atom in value)


def without(value: Value, *types: type[Atom]) -> Value:
    """The alternatives that are of none of these types."""
    return tuple(atom for atom in value if not isinstance(atom, types))


def cache_of(value: Value, least: Certainty = Certainty.CONTEXT) -> CacheObject | None:
    """The best-known cache among the alternatives that are at least *least* certain.

    A value that may also be a legacy tuple, a local object or a plain collection is not a cache to speak of, unless
    the cache alternative is proven.
    """
    best: CacheObject | None = None
    for atom in value:
        if isinstance(atom, CacheObject):
            if atom.certainty >= least and (best is None or atom.certainty > best.certainty):
                best = atom
    if best is not None and best.certainty < Certainty.PROVEN:
        for atom in value:
            if isinstance(atom, (LegacyCache, Items, Sequence, Mapping, Instance, LayerPair)):
                return None
    return best


def literal(value: Value) -> Any:
    """The constant of a value with exactly one literal alternative, else None."""
    if len(value) == 1 and isinstance(value[0], Literal):
        return value[0].value
    return None


def symbols(value: Value) -> Iterable[str]:
    """The dotted names among the alternatives."""
    return [atom.name for atom in value if isinstance(atom, Symbol)]
