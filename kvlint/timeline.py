"""Questions to the timeline of the transformers cache API, answered with sets of releases.

``load`` reads ``rules/api/timeline.json`` (written by ``scripts/build_timeline.py``; ``timeline_build`` describes its
layout) and gives a ``Timeline``. Names are asked for as a program writes them, ``transformers.HybridCache`` or
``transformers.cache_utils.HybridCache``; both lead to the same facts. A name of which no recorded release knows
anything gives the empty set, and ``knows`` is False for it: it is no business of kvlint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from kvlint.errors import UsageProblem
from kvlint.releases import NO_RELEASE, ReleaseSet

_T = TypeVar("_T")
_P = ParamSpec("_P")

FORMAT: Final = 1
"""Version of the file's layout; a file with another number is not read."""

TABLES: Final = ("symbols", "models", "histories", "values")
"""The tables of the file, in order. Each row of a table is a line."""

CACHE_KEYWORDS: Final = (
    "past_key_value",
    "past_key_values",
    "cache_position",
    "layer_past",
    "cache",
    "cache_params",
    "use_cache",
    "past",
)
"""Keywords of ``forward`` and ``prepare_inputs_for_generation`` that are kept for modeling classes."""

_PLAIN: Final = re.compile(r"\d+(?:\.\d+)*")
_CACHE_MEMBERS: Final = ("get_seq_length", "key_cache", "reorder_cache", "conv_states", "ssm_states", "rnn_state")
_MIXIN: Final = "generation.utils.GenerationMixin"
_HARMLESS_BASES: Final = frozenset({"object", "abc.ABC", "ABC", "typing.Generic", "typing.Protocol"})
_GENERATION_MODULES: Final = ("generation.configuration_utils", "generation.utils")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. *kind*: ``positional`` (only), ``normal``, ``keyword`` (only), ``args`` or ``kwargs``."""

    name: str
    kind: str
    default: str | None
    """Source of the default, None where the parameter is required."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters as a caller sees them: ``self`` and ``cls`` are left out."""

    parameters: tuple[Parameter, ...]

    @property
    def accepts_kwargs(self) -> bool:
        """Whether unknown keyword arguments are swallowed by ``**``."""
        return any(parameter.kind == "kwargs" for parameter in self.parameters)

    @property
    def accepts_args(self) -> bool:
        """Whether surplus positional arguments are swallowed by ``*``."""
        return any(parameter.kind == "args" for parameter in self.parameters)

    @property
    def positional(self) -> tuple[Parameter, ...]:
        """Parameters that a positional argument can reach, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.kind in ("positional", "normal"))

    def parameter(self, name: str) -> Parameter | None:
        """The named parameter; None where there is none (``*args`` and ``**kwargs`` are not named)."""
        named = (item for item in self.parameters if item.kind not in ("args", "kwargs"))
        return next((item for item in named if item.name == name), None)

    def __str__(self) -> str:
        marks = {"args": "*", "kwargs": "**"}
        texts: list[str] = []
        for parameter in self.parameters:
            if parameter.kind == "keyword" and not any(text.startswith("*") for text in texts):
                texts.append("*")
            default = "" if parameter.default is None else f"={parameter.default}"
            texts.append(f"{marks.get(parameter.kind, '')}{parameter.name}{default}")
        return f"({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class Deprecation:
    """What a release announces: *old* keyword replaced by *new*, or (old None) the removal of the whole."""

    old: str | None
    new: str | None
    removal: str
    """The release named by the announcement, "" where it names none."""


Dated = tuple[tuple[ReleaseSet, _T], ...]
"""Values with the releases on which they hold, oldest first; the sets are disjoint."""


def _remembered(
    method: Callable[Concatenate[Timeline, _P], _T],
) -> Callable[Concatenate[Timeline, _P], _T]:
    """Keeps the answers of a method on the timeline they belong to."""

    def answer(self: Timeline, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = (method.__name__, args, tuple(kwargs.items()))
        if key not in self._answers:
            self._answers[key] = method(self, *args, **kwargs)
        known: _T = self._answers[key]
        return known

    return update_wrapper(answer, method)


class _Rows(Mapping[str, Any]):
    """One table of the file, a row a line: it is taken apart, and a row decoded, when somebody asks; most rows never are."""

    __slots__ = ("_block", "_decoded", "_raw")

    def __init__(self, block: str) -> None:
        self._block = block
        self._raw: dict[str, str] | None = None
        self._decoded: dict[str, Any] = {}

    @property
    def raw(self) -> dict[str, str]:
        """The text of each row."""
        if self._raw is None:
            pairs = [line.partition('":') for line in self._block.split("\n")]
            self._raw = {key[1:]: value.removesuffix(",") for key, _, value in pairs}
        return self._raw

    def __getitem__(self, key: str) -> Any:
        if key not in self._decoded:
            self._decoded[key] = json.loads(self.raw[key])
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)


def _tables(text: str) -> tuple[Mapping[str, Any], tuple[_Rows, _Rows, _Rows, _Rows]]:
    """Splits the file into its head and its tables, without decoding a row. Raises ValueError for another layout."""
    starts = [text.find(f'"{name}":{{\n') for name in TABLES]
    try:
        head = json.loads(text if starts[0] == -1 else text[: starts[0]].rstrip().removesuffix(",") + "}")
    except ValueError as error:
        raise ValueError("the timeline is damaged; reinstall kvlint") from error
    if head.get("format") != FORMAT or -1 in starts:
        raise ValueError(f"the timeline has layout {head.get('format')}, this kvlint reads {FORMAT}")
    tables = []
    for name, start, end in zip(TABLES, starts, (*starts[1:], len(text)), strict=True):
        tables.append(_Rows(text[start + len(name) + 5 : end].removesuffix("\n}\n}\n").removesuffix("\n},\n")))
    symbols, models, histories, values = tables
    return head, (symbols, models, histories, values)


class Timeline:
    """The recorded releases and what each has. Immutable; answers are remembered on the object."""

    __slots__ = (
        "_answers",
        "_common",
        "_histories",
        "_models",
        "_numbers",
        "_symbols",
        "_values",
        "all",
        "fingerprint",
        "releases",
    )

    releases: tuple[str, ...]
    """Version numbers, oldest first; index *i* is bit *i* of every ``ReleaseSet``."""
    all: ReleaseSet
    fingerprint: str
    """Changes with the content: for caches of results."""

    def __init__(self, text: str, fingerprint: str = "") -> None:
        """*text* is what ``timeline_build.Merged.dump`` writes. Raises ValueError for another layout."""
        head, tables = _tables(text)
        self.releases = tuple(head["releases"])
        self.all = ReleaseSet.span(0, len(self.releases) - 1)
        self.fingerprint = fingerprint
        self._common: Mapping[str, Mapping[str, list[int]]] = head["common"]
        self._symbols, self._models, self._histories, self._values = tables
        self._numbers = tuple(_order(release) for release in self.releases)
        self._answers: dict[object, Any] = {}

    # ------------------------------------------------------------------------------------------------------ releases

    def index(self, version_text: str) -> int | None:
        """The index of a release, None where the timeline has none of this number (``5.24`` means ``5.24.0``)."""
        if version_text in self.releases:
            return self.releases.index(version_text)
        number = _order(version_text) if _PLAIN.fullmatch(version_text) else None
        return self._numbers.index(number) if number in self._numbers else None

    @_remembered
    def compare(self, op: str, version: str) -> ReleaseSet:
        """Releases *r* for which ``Version(r) op Version(version)`` holds.

        *op* is one of ``<  <=  ==  !=  >  >=``. Raises ValueError for another operator or an invalid version.
        """
        order = {"<": (-1,), "<=": (-1, 0), "==": (0,), "!=": (-1, 1), ">": (1,), ">=": (0, 1)}.get(op)
        if order is None:
            raise ValueError(f"{op!r} is no comparison of versions")
        bits = 0
        for index, sign in enumerate(self._signs(version)):
            bits |= (sign in order) << index
        return ReleaseSet(bits)

    @_remembered
    def _signs(self, version: str) -> tuple[int, ...]:
        """For each release -1, 0 or 1: older than, equal to or newer than *version*."""
        if _PLAIN.fullmatch(version):
            other = _order(version)
            return tuple((number > other) - (number < other) for number in self._numbers)
        from packaging.version import InvalidVersion, Version

        try:
            given = Version(version)
        except InvalidVersion as error:
            raise ValueError(f"{version!r} is not a version number") from error
        return tuple((Version(item) > given) - (Version(item) < given) for item in self.releases)

    @_remembered
    def matching(self, specifier: str) -> ReleaseSet:
        """Releases that a PEP 440 specifier allows; a bare ``5.24`` is all its patch releases, ``5.24.0`` one.

        Raises ValueError with a line for a person where the text is no specifier or no known release matches.
        """
        text = specifier.strip()
        if _PLAIN.fullmatch(text):
            parts = tuple(int(part) for part in text.split("."))
            found = [index for index, number in enumerate(self._numbers) if number[: len(parts)] == parts]
            chosen = ReleaseSet.of(*found)
        else:
            from packaging.specifiers import InvalidSpecifier, SpecifierSet

            try:
                allowed = SpecifierSet(text)
            except InvalidSpecifier as error:
                raise ValueError(
                    f"{specifier!r} is neither a release such as 5.24 nor a range such as '>=4.56,<6'"
                ) from error
            fitting = (allowed.contains(release, prereleases=True) for release in self.releases)
            chosen = ReleaseSet.of(*(index for index, fits in enumerate(fitting) if fits))
        if not chosen:
            raise ValueError(
                f"no known transformers release matches {specifier!r} "
                f"(known: {self.releases[0]} to {self.releases[-1]}; 'kvlint api update' reads a newer one)"
            )
        return chosen

    @_remembered
    def describe(self, rs: ReleaseSet, within: ReleaseSet) -> str:
        """Prose for a message, seen from the range *within*: ``from 5.0.0``, ``on 4.54.0 to 4.57.6``, ``on 5.4.0``.

        Releases that lie outside *within* do not count, also not as gaps. "" where nothing is left.
        """
        members = list(within)
        runs: list[list[int]] = []
        for place, index in enumerate(members):
            if index in rs:
                if runs and runs[-1][1] == place - 1:
                    runs[-1][1] = place
                else:
                    runs.append([place, place])
        texts = [self._run_text(members, first, last) for first, last in runs]
        return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else "".join(texts)

    def _run_text(self, members: list[int], first: int, last: int) -> str:
        start, end = self.releases[members[first]], self.releases[members[last]]
        if first == last and not (last == len(members) - 1 and first > 0):
            return f"on {start}"
        if last == len(members) - 1 and first > 0:
            return f"from {start}"
        return f"on {start} to {end}"

    def ranges(self, rs: ReleaseSet) -> tuple[str, ...]:
        """Runs of neighbouring releases for machines: ``5.0.0-5.24.0``, ``5.4.0``."""
        spans = ((self.releases[first], self.releases[last]) for first, last in (rs & self.all).spans())
        return tuple(start if start == end else f"{start}-{end}" for start, end in spans)

    # --------------------------------------------------------------------------------------------------------- names

    @_remembered
    def importable(self, qualified: str) -> ReleaseSet:
        """Releases on which the module or name can be imported (with every optional dependency installed)."""
        symbol = _symbol(qualified)
        return self.all if symbol == "" else _union(self._itself(symbol))

    def knows(self, qualified: str) -> bool:
        """Whether any recorded release has this name or module; what never existed is not kvlint's business."""
        return bool(self.importable(qualified))

    @_remembered
    def definitions(self, qualified: str) -> Dated[str]:
        """Where the name is defined, by release; imports are followed, aliases are not."""
        return tuple((rs, f"transformers.{name}") for rs, name in self._resolved(_symbol(qualified), aliases=False))

    def canonical(self, qualified: str) -> str | None:
        """The defining qualified name on the newest release that has it; None for an unknown name."""
        found = self.definitions(qualified)
        return max(found, key=lambda item: item[0].newest)[1] if found else None

    @_remembered
    def alias_target(self, qualified: str) -> Mapping[ReleaseSet, str]:
        """Releases on which the name is only another name of a class, with the qualified name of that class."""
        found: dict[ReleaseSet, str] = {}
        for rs, name in self._resolved(_symbol(qualified), aliases=False):
            for valid, value in self._itself(name):
                if value.startswith("alias .") and rs & valid:
                    found[rs & valid] = f"transformers.{value.removeprefix('alias .')}"
        return found

    def names(self, module: str) -> tuple[str, ...]:
        """Known names of a module (``transformers.cache_utils``) or, for ``transformers``, of the top level."""
        prefix = _symbol(module) + "." if _symbol(module) else ""
        return tuple(
            symbol.removeprefix(prefix)
            for symbol in self._symbols
            if symbol.startswith(prefix) and "." not in symbol.removeprefix(prefix)
        )

    def symbols(self) -> Iterator[str]:
        """Every recorded qualified name, classes of modeling files included."""
        for symbol in self._symbols:
            yield f"transformers.{symbol}"
        for module, classes in self._models.items():
            prefix = "transformers." if module in self._symbols else "transformers.models."
            for name in classes:
                yield f"{prefix}{module}.{name}"

    def facts(self, qualified: str) -> Mapping[str, Dated[str]]:
        """Everything recorded of one name as is, by fact; ``timeline_build`` says how to read the values."""
        symbol = _symbol(qualified)
        names = ("", *self._symbols.get(symbol, ()))
        return {fact: self._fact(symbol, fact) for fact in names if self._fact(symbol, fact)}

    @_remembered
    def _fact(self, symbol: str, fact: str) -> Dated[str]:
        spans = self._symbols.get(symbol, {}).get(fact)
        if spans is not None:
            return self._dated(spans)
        if fact:
            return ()
        module, _, name = symbol.rpartition(".")
        history = self._models.get(module.removeprefix("models."), {}).get(name)
        if history is not None:
            return tuple((rs, self._values[value]) for rs, value in self._dated(self._histories[history]))
        places = self._exported_from(name) if not module or module.startswith("models.") else {}
        return tuple(
            (rs, f"import .models.{place}.{name}")
            for place, rs in places.items()
            if not module or f"models.{place}".startswith(f"{module}.")
        )

    def _itself(self, symbol: str) -> Dated[str]:
        return self._fact(symbol, "")

    @_remembered
    def _exported_from(self, name: str) -> Mapping[str, ReleaseSet]:
        """Modules below ``models`` whose class of this name ``transformers`` exports, with the releases."""
        found: dict[str, ReleaseSet] = {}
        for module, row in self._models.raw.items():
            if f'"{name}":' in row:
                spans = self._dated(self._histories[self._models[module][name]])
                rs = _union(tuple(item for item in spans if "^" in self._values[item[1]].partition("|")[0]))
                if rs:
                    found[module] = rs
        return found

    def _dated(self, spans: list[Any]) -> Dated[str]:
        last = len(self.releases) - 1
        merged: dict[str, ReleaseSet] = {}
        for place in range(0, len(spans), 3):
            first, end, value = spans[place : place + 3]
            merged[value] = merged.get(value, NO_RELEASE) | ReleaseSet.span(first, last if end == -1 else end)
        return tuple((rs, value) for value, rs in merged.items())

    @_remembered
    def _resolved(self, symbol: str, aliases: bool = True) -> Dated[str]:
        """The defining symbol by release, through imports and (on demand) aliases."""
        found: dict[str, ReleaseSet] = {}
        for rs, value in self._itself(symbol):
            word, _, target = value.partition(" .")
            if target and (word == "import" or (word == "alias" and aliases)) and target != symbol:
                followed = self._resolved(target, aliases) or ((self.all, target),)
            else:
                followed = ((self.all, symbol),)
            for valid, name in followed:
                if rs & valid:
                    found[name] = found.get(name, NO_RELEASE) | rs & valid
        return tuple((rs, name) for name, rs in found.items())

    # ------------------------------------------------------------------------------------------------------- classes

    @_remembered
    def _lineage(self, symbol: str) -> Dated[tuple[str, ...]]:
        """The class and its ancestors in lookup order, by release; names outside transformers start with ``:``."""
        found: Dated[tuple[str, ...]] = ()
        for rs, value in self._itself(symbol):
            if not value.startswith("class("):
                continue
            lines: list[tuple[ReleaseSet, tuple[str, ...]]] = [(rs, ())]
            for base in filter(None, value[6:-1].split(", ")):
                lines = [
                    (left & right, (*before, *after))
                    for left, before in lines
                    for right, after in self._base_lineage(base)
                    if left & right
                ]
            found += tuple((releases, (symbol, *_last_ones(names))) for releases, names in lines)
        return found

    def _base_lineage(self, base: str) -> Dated[tuple[str, ...]]:
        if not base.startswith("."):
            return ((self.all, (f":{base}",)),)
        found: Dated[tuple[str, ...]] = ()
        for rs, name in self._resolved(base[1:]):
            found += tuple((rs & valid, names) for valid, names in self._lineage(name) if rs & valid)
        rest = self.all - _union(found)
        return (*found, (rest, (f":transformers{base}",))) if rest else found

    @_remembered
    def _classes(self, qualified: str) -> Dated[tuple[str, ...]]:
        """Lineages of whatever class the name stands for, by release."""
        return tuple(
            (rs & valid, names)
            for rs, name in self._resolved(_symbol(qualified))
            for valid, names in self._lineage(name)
            if rs & valid
        )

    @_remembered
    def bases(self, qualified: str) -> Dated[tuple[str, ...]]:
        """Direct bases by release, those of transformers with their defining qualified name."""
        found: dict[tuple[str, ...], ReleaseSet] = {}
        for rs, symbol in self._resolved(_symbol(qualified)):
            for valid, value in self._itself(symbol):
                if value.startswith("class(") and rs & valid:
                    names = tuple(self._base_name(base) for base in filter(None, value[6:-1].split(", ")))
                    found[names] = found.get(names, NO_RELEASE) | rs & valid
        return tuple((rs, names) for names, rs in found.items())

    def _base_name(self, base: str) -> str:
        qualified = f"transformers{base}"
        return (self.canonical(qualified) or qualified) if base.startswith(".") else base

    def descends(self, qualified: str, ancestor: str) -> ReleaseSet:
        """Releases on which the class is *ancestor* or a subclass of it."""
        found = NO_RELEASE
        for rs, symbol in self._resolved(_symbol(ancestor)):
            for valid, names in self._classes(qualified):
                if symbol in names:
                    found |= rs & valid
        return found

    @_remembered
    def subclasses_of(self, qualified: str) -> Mapping[str, ReleaseSet]:
        """Recorded classes that descend from the class (itself left out), with the releases on which they do."""
        own = {symbol for _, symbol in self._resolved(_symbol(qualified))}
        found: dict[str, ReleaseSet] = {}
        for symbol, facts in self._symbols.items():
            if symbol in own or not any(str(value).startswith("class(") for value in facts[""][2::3]):
                continue
            releases = _union(tuple((rs, names) for rs, names in self._lineage(symbol) if own & set(names)))
            if releases:
                found[f"transformers.{symbol}"] = releases
        return found

    @_remembered
    def is_layer_class(self, qualified: str) -> bool:
        """Whether the name stands for a cache layer (what ``cache.layers`` holds) on some release."""
        return any(
            name.startswith("cache_utils.") and name.endswith(("Layer", "LayerMixin"))
            for _, names in self._classes(qualified)
            for name in names
        )

    @_remembered
    def is_cache_class(self, qualified: str) -> bool:
        """Whether the name stands for a cache on some release: ``Cache``, its subclasses, and caches of single models.

        A class of a modeling file counts where it is named a cache and has a member that only caches of keys, values
        or recurrent states have.
        """
        for _, names in self._classes(qualified):
            if "cache_utils.Cache" in names:
                return True
            if names[0].rpartition(".")[2].endswith("Cache") and names[0].startswith(("models.", "cache_utils.")):
                if not self.is_layer_class(qualified) and any(self.member(qualified, name) for name in _CACHE_MEMBERS):
                    return True
        return False

    @_remembered
    def may_have_more(self, qualified: str) -> ReleaseSet:
        """Releases on which instances can have members that the timeline does not see.

        That is so below a class from outside transformers (``torch.nn.Module`` until 4.49), an unrecorded one, or one
        with ``__getattr__``.
        """
        found = NO_RELEASE
        for rs, names in self._classes(qualified):
            if any(name.startswith(":") and name[1:] not in _HARMLESS_BASES for name in names):
                found |= rs
        return found | self.member(qualified, "__getattr__")

    # ------------------------------------------------------------------------------------------------------- members

    @_remembered
    def _member(self, qualified: str, name: str) -> Dated[tuple[str, str]]:
        """(class that provides the member, value) by release: the first class in lookup order wins."""
        found: dict[tuple[str, str], ReleaseSet] = {}
        for rs, names in self._classes(qualified):
            left = rs
            for owner in names:
                for valid, value in self._fact(owner, name):
                    if left & valid:
                        found[owner, value] = found.get((owner, value), NO_RELEASE) | left & valid
                left -= _union(self._fact(owner, name))
        return tuple((rs, key) for key, rs in found.items())

    @_remembered
    def member(self, cls: str, name: str) -> ReleaseSet:
        """Releases on which instances of the class have the member, own or inherited.

        A member that a method sets counts on every instance; what every object has counts on every release of the
        class. Members from outside transformers are not seen, see ``may_have_more``.
        """
        if hasattr(object, name):
            return _union(self._classes(cls))
        return _union(self._member(cls, name)) | self._reduced_member(cls, name)

    def _reduced_member(self, cls: str, name: str) -> ReleaseSet:
        """Members of classes in modeling files: hooks, flags, ``forward``, output fields, and what the library adds."""
        parents = {"model": _MIXIN, "output": "utils.generic.ModelOutput"}
        kind = self.class_kind(cls)
        if kind is None:
            return NO_RELEASE
        found = NO_RELEASE
        for part in ("has", "fields"):
            found |= _union(tuple(item for item in self.forward_keywords(cls, part) if name in item[1]))
        if name in ("forward", "prepare_inputs_for_generation"):
            found |= _union(self.forward_keywords(cls, name))
        for rs, symbol in self._resolved(_symbol(cls)):
            found |= rs & _union(tuple(item for item in self._itself(symbol) if _has_flag(item[1], name)))
        if kind in parents:
            generates = self._generating(cls) if kind == "model" else self.importable(cls)
            found |= generates & self.member(f"transformers.{parents[kind]}", name)
        return found

    def _generating(self, cls: str) -> ReleaseSet:
        """Releases on which a class of a modeling file is a model that has the library's ``generate``."""
        found = NO_RELEASE
        for rs, symbol in self._resolved(_symbol(cls)):
            for valid, value in self._itself(symbol):
                if "|" in value and value[0] in "gm":
                    found |= rs & valid & (self.all if value[0] == "g" else self._models_generate())
        return found

    @_remembered
    def member_kind(self, cls: str, name: str) -> Dated[str]:
        """What the member is, by release.

        One of ``method``, ``classmethod``, ``staticmethod``, ``generated method`` (of a dataclass), ``property``,
        ``settable property``, ``attribute``, ``late attribute`` (set by another method than ``__init__``) and
        ``class attribute``.
        """
        return _regrouped((rs, _kind(value)) for rs, (_, value) in self._member(cls, name))

    @_remembered
    def member_owner(self, cls: str, name: str) -> Dated[str]:
        """The qualified name of the class that provides the member, by release."""
        return _regrouped((rs, f"transformers.{owner}") for rs, (owner, _) in self._member(cls, name))

    @_remembered
    def members(self, cls: str) -> Mapping[str, ReleaseSet]:
        """Every recorded member of the class, own and inherited, sorted by name."""
        owners = {owner for _, names in self._classes(cls) for owner in names}
        found = {fact for owner in owners for fact in self._symbols.get(owner, ()) if fact and not fact.endswith("!")}
        return {name: self.member(cls, name) for name in sorted(found) if self.member(cls, name)}

    @_remembered
    def signatures(self, cls_or_function: str, member: str | None = None) -> Dated[Signature]:
        """Parameters by release: of a function, of a class (its ``__init__``) or of a method of it.

        ``self`` and ``cls`` are left out. Properties and attributes have no signature; a class without ``__init__``
        in its recorded line has none either.
        """
        values: list[tuple[ReleaseSet, str]] = []
        if member is None:
            for rs, symbol in self._resolved(_symbol(cls_or_function)):
                values += [(rs & valid, value) for valid, value in self._itself(symbol) if rs & valid]
            if any(value.startswith("class(") for _, value in values):
                return self.signatures(cls_or_function, "__init__")
        else:
            values += [(rs, value) for rs, (_, value) in self._member(cls_or_function, member)]
        return _regrouped((rs, _parsed_signature(value)) for rs, value in values if _callable(value))

    # ---------------------------------------------------------------------------------------------------- generation

    @_remembered
    def generation_values(self, constant: str) -> Mapping[str, ReleaseSet]:
        """Strings that a constant of ``generation`` holds (list items, or keys of a mapping), with their releases.

        *constant* is the bare name, such as ``ALL_CACHE_IMPLEMENTATIONS``.
        """
        found: dict[str, ReleaseSet] = {}
        for module in _GENERATION_MODULES:
            for rs, symbol in self._resolved(f"{module}.{constant}"):
                for valid, value in self._itself(symbol):
                    held = json.loads(value.removeprefix("value ")) if value.startswith("value ") else ()
                    for text in held:
                        found[text] = found.get(text, NO_RELEASE) | rs & valid
        return {text: found[text] for text in sorted(found) if found[text]}

    @_remembered
    def cache_implementations(self) -> Mapping[str, ReleaseSet]:
        """Accepted values of ``cache_implementation`` with the releases that accept them.

        ``ALL_CACHE_IMPLEMENTATIONS`` where a release checks against it, else the keys of the mappings that
        ``generate`` looks the value up in.
        """
        checked = self.importable("transformers.generation.configuration_utils.ALL_CACHE_IMPLEMENTATIONS")
        found = dict(self.generation_values("ALL_CACHE_IMPLEMENTATIONS"))
        for constant in ("NEED_SETUP_CACHE_CLASSES_MAPPING", "NEEDS_CACHE_CONFIG"):
            for value, rs in self.generation_values(constant).items():
                found[value] = found.get(value, NO_RELEASE) | (rs - checked)
        return {value: found[value] for value in sorted(found) if found[value]}

    # ------------------------------------------------------------------------------------------------- modeling files

    @_remembered
    def class_kind(self, qualified: str) -> str | None:
        """Of a class in a modeling file: ``model``, ``layer``, ``attention``, ``output`` or ``other``; else None.

        ``registry`` for a dict from which the models of the file pick the class of their attention or layers.
        """
        letters = {"g": "model", "m": "model", "l": "layer", "a": "attention", "o": "output", "x": "other"}
        letters["r"] = "registry"
        for _, symbol in self._resolved(_symbol(qualified)):
            for _, value in self._itself(symbol):
                if "|" in value:
                    return letters[value[0]]
        return None

    @_remembered
    def forward_keywords(self, qualified_class: str, method: str = "forward") -> Dated[tuple[str, ...]]:
        """Cache keywords of a method of a modeling class by release, ``*args`` and ``**kwargs`` included.

        *method* is ``forward``, ``prepare_inputs_for_generation``, ``fields`` (of an output class) or ``has`` (private
        hooks that the class defines). A model that
        leaves ``prepare_inputs_for_generation`` to the library gives the keywords of the library's. Empty for classes
        whose method has no cache keyword.
        """
        found: list[tuple[ReleaseSet, tuple[str, ...]]] = []
        for rs, symbol in self._resolved(_symbol(qualified_class)):
            for valid, value in self._itself(symbol):
                own = _part(value, f"{method}(") if "|" in value else None
                if own is not None:
                    found.append((rs & valid, tuple(filter(None, own.rstrip(")").split(", ")))))
        if method == "prepare_inputs_for_generation":
            inherited = self._generating(qualified_class) - _union(tuple(found))
            for rs, signature in self.signatures(f"transformers.{_MIXIN}", method):
                found.append((rs & inherited, _cache_names(signature)))
        return _regrouped(found)

    @_remembered
    def defines(self, qualified_class: str, method: str) -> ReleaseSet:
        """Releases on which a modeling class has a method with a cache keyword of its own, not the library's."""
        found = NO_RELEASE
        for rs, symbol in self._resolved(_symbol(qualified_class)):
            for valid, value in self._itself(symbol):
                if "|" in value and _part(value, f"{method}(") is not None:
                    found |= rs & valid
        return found

    @_remembered
    def held_classes(self, qualified: str) -> Dated[tuple[str, ...]]:
        """Qualified names of the classes in a registry (see ``class_kind``) by release; empty for anything else."""
        found: list[tuple[ReleaseSet, tuple[str, ...]]] = []
        for rs, symbol in self._resolved(_symbol(qualified)):
            for valid, value in self._itself(symbol):
                held = _part(value, "holds(") if value.startswith("r|") else None
                if held is not None:
                    module = symbol.rpartition(".")[0]
                    names = held.rstrip(")").split(", ")
                    found.append((rs & valid, tuple(f"transformers.{module}.{name}" for name in names)))
        return _regrouped(found)

    @_remembered
    def _models_generate(self) -> ReleaseSet:
        """Releases on which every ``PreTrainedModel`` can generate."""
        return self.descends("transformers.modeling_utils.PreTrainedModel", f"transformers.{_MIXIN}")

    def keyword_of_kind(self, kind: str, keyword: str) -> ReleaseSet:
        """Releases on which the library's own code of this kind takes the keyword in ``forward``.

        *kind* is ``model``, ``layer`` or ``attention``. A keyword counts on a release where at least half of the
        classes of the kind that take a past at all take it. Raises KeyError for another kind.
        """
        spans = self._common[kind].get(keyword, [])
        return _union(self._dated([part for pair in zip(spans[::2], spans[1::2], strict=True) for part in (*pair, "")]))

    # --------------------------------------------------------------------------------------------------- deprecations

    @_remembered
    def deprecations(self, qualified: str, member: str | None = None) -> Dated[tuple[Deprecation, ...]]:
        """What releases announce for a function, a class (also in its ``__init__``) or a method of it.

        Decorators that rename a keyword, and unconditional warnings that the whole goes.
        """
        values: list[tuple[ReleaseSet, str]] = []
        places = self._resolved(_symbol(qualified))
        for rs, symbol in places:
            values += [(rs & valid, text) for valid, text in self._announced(symbol, member)]
        for rs, (owner, _) in self._member(qualified, member or "__init__"):
            if member is not None or any(owner == symbol for _, symbol in places):
                values += [(rs & valid, text) for valid, text in self._fact(owner, f"{member or '__init__'}!")]
        return _regrouped([(rs, _parsed_deprecations(text)) for rs, text in values if rs])

    def _announced(self, symbol: str, member: str | None) -> Dated[str]:
        """Announcements recorded with the symbol itself: of a function, or of a method of a modeling class."""
        if member is None:
            return self._fact(symbol, "!")
        parts = ((rs, _part(value, f"{member}!")) for rs, value in self._itself(symbol) if "|" in value)
        return tuple((rs, text) for rs, text in parts if text)


def _symbol(qualified: str) -> str:
    """``transformers.cache_utils.Cache`` -> ``cache_utils.Cache``; ``transformers`` -> the empty string."""
    return "" if qualified == "transformers" else qualified.removeprefix("transformers.")


def _order(version: str) -> tuple[int, ...]:
    """``5.24`` -> ``(5, 24, 0, 0)``, ``5.25.0.dev0`` -> ``(5, 25, 0, -1)``.

    Orders plain numbers among each other, and against a release that is not plain, as packaging does.
    """
    plain = _PLAIN.match(version)
    numbers = [int(part) for part in plain[0].split(".")] if plain else []
    before = plain is not None and plain[0] != version and "post" not in version and "+" not in version
    while len(numbers) > 3 and numbers[-1] == 0:
        numbers.pop()
    return (*numbers, *([0] * (3 - len(numbers))), -1 if before else 0)


def _union(dated: Dated[Any]) -> ReleaseSet:
    bits = 0
    for rs, _ in dated:
        bits |= rs.bits
    return ReleaseSet(bits)


def _regrouped(items: Iterator[tuple[ReleaseSet, _T]] | list[tuple[ReleaseSet, _T]]) -> Dated[_T]:
    """One entry a distinct value, in order of time."""
    merged: dict[_T, ReleaseSet] = {}
    for rs, value in items:
        merged[value] = merged.get(value, NO_RELEASE) | rs
    pairs = [(rs, value) for value, rs in merged.items() if rs]
    return tuple(sorted(pairs, key=lambda pair: pair[0].oldest))


def _last_ones(names: tuple[str, ...]) -> tuple[str, ...]:
    """Keeps the last mention of each name: a shared ancestor comes after all its descendants."""
    return tuple(reversed(dict.fromkeys(reversed(names))))


def _kind(value: str) -> str:
    return re.split(r"[(=]", value, maxsplit=1)[0].strip()


def _callable(value: str) -> bool:
    return value.startswith(("def(", "method(", "classmethod(", "staticmethod("))


def _part(value: str, start: str) -> str | None:
    """The piece of a reduced modeling class that starts with *start*, without it."""
    return next((part.removeprefix(start) for part in value.split("|")[1:] if part.startswith(start)), None)


def _has_flag(value: str, name: str) -> bool:
    """Whether a reduced modeling class assigns *name* in its body."""
    return any(part.partition(" = ")[0] == name for part in value.split("|")[1:])


def _cache_names(signature: Signature) -> tuple[str, ...]:
    marks = {"args": "*", "kwargs": "**"}
    return tuple(
        f"{marks.get(parameter.kind, '')}{parameter.name}"
        for parameter in signature.parameters
        if parameter.kind in marks or parameter.name in CACHE_KEYWORDS
    )


def _parsed_signature(value: str) -> Signature:
    import ast

    kind, _, parameters = value.partition("(")
    function = ast.parse(f"def f({parameters}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    plain = [(item, "positional") for item in given.posonlyargs] + [(item, "normal") for item in given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + [ast.unparse(node) for node in given.defaults]
    found = [Parameter(item.arg, where, default) for (item, where), default in zip(plain, defaults, strict=True)]
    if kind in ("method", "classmethod") and found:
        del found[0]
    if given.vararg:
        found.append(Parameter(given.vararg.arg, "args", None))
    for item, node in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(Parameter(item.arg, "keyword", None if node is None else ast.unparse(node)))
    if given.kwarg:
        found.append(Parameter(given.kwarg.arg, "kwargs", None))
    return Signature(tuple(found))


def _parsed_deprecations(value: str) -> tuple[Deprecation, ...]:
    found = []
    for text in value.split(";"):
        names, _, removal = text.rpartition("@")
        old, _, new = names.partition(">")
        found.append(Deprecation(old or None, new or None, removal))
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------- loading


def packaged_file() -> Path:
    """The timeline that came with kvlint: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "_rules" / "api" / "timeline.json"
    return inside if inside.is_file() else here.parent / "rules" / "api" / "timeline.json"


def read(packaged: Path | None = None, overlay: Path | None = None) -> bytes:
    """The packaged timeline with what ``kvlint api update`` has learnt since, as a file.

    *packaged* and *overlay* (a folder) replace the usual places. Raises ValueError with one line where a file is
    missing or damaged.
    """
    from kvlint import timeline_overlay

    path = packaged or packaged_file()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the timeline {path} cannot be read: {error.strerror}; reinstall kvlint") from error
    return timeline_overlay.merged(data, overlay if overlay is not None else timeline_overlay.folder())


def load(packaged: Path | None = None, overlay: Path | None = None) -> Timeline:
    """The timeline that ``read`` finds. Raises ValueError with one line where it cannot be read."""
    from kvlint.timeline_overlay import digest

    data = read(packaged, overlay)
    return Timeline(data.decode("utf-8"), digest(data))


@cache
def the_timeline() -> Timeline:
    """The timeline, read once in each process. Raises UsageProblem where it is missing or damaged."""
    try:
        return load()
    except ValueError as problem:
        raise UsageProblem(str(problem)) from None
