"""What the library passes to its own parts, and what it does with what they give back, by release.

``load`` reads ``rules/api/contracts.json`` (written by ``scripts/build_timeline.py``; ``contracts_build`` describes its
layout, ``contracts_read`` the lines in it) and gives ``Contracts``. A class is asked for as a program writes it,
``transformers.LlamaForCausalLM``, by its full path, or by its bare name. Answers are release sets of the timeline; of
what is not recorded (a class that has no part in caches, a release that only ``kvlint api update`` learnt) they are empty.

The file is read as lines and looked up by bisection: a question decodes only the rows that it needs.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kvlint.errors import UsageProblem
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Dated, Deprecation, Signature, _parsed_deprecations, _parsed_signature, packaged_file

FORMAT: Final = 1
"""Version of the file's layout; a file with another number is not read."""

TABLES: Final[Mapping[str, int]] = {"kinds": 0, "rows": 0, "elsewhere": 0, "texts": 4, "lines": 4, "words": 3}
"""The tables of the file, in order, with the width of their names; 0 for an object, whose rows have keys.

Each row of a table is a line, and the lines of a table are sorted.
"""

_OWN_PACKAGES: Final = frozenset({"generation", "integrations", "utils"})
_USE_WORDS: Final = frozenset({"unpack", "uses", "item", "from", "field", "whole", "returned", "ignored"})
_HELD: Final = re.compile(r"self\.([\w<>]+)(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Use:
    """What a caller does with a result."""

    text: str
    """The words of the file: ``unpack 2 uses 0``."""
    unpacked: int | None = None
    """How many values it unpacks, None where it unpacks nothing."""
    or_more: bool = False
    """Whether a starred target takes what is over."""
    used: frozenset[int] = frozenset()
    """Of the unpacked values those that get a name, by index."""
    items: frozenset[int] = frozenset()
    """Constant indices that it takes."""
    rest_from: int | None = None
    """Start of the slice that it takes (``outputs[1:]``)."""
    fields: frozenset[str] = frozenset()
    """Attributes and string keys that it reads."""
    whole: bool = False
    """Whether it goes on as one value, as a tensor does."""
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call in the library's source."""

    caller: str
    """The qualified name of the function that it stands in."""
    receiver: str
    """What is called, as ``contracts_read`` writes it: ``self.self_attn``, ``<cache>.update``."""
    positions: tuple[str, ...]
    """What is passed by position: a name, a literal, ``_`` for anything else; ``*args`` for a starred one."""
    keywords: tuple[tuple[str, str], ...]
    """Keywords with what fills them: the same name, another one where that is known, ``past_key_values[*]`` for an item."""
    starred: tuple[str, ...]
    """Dicts that are spread into the call, such as ``kwargs``."""
    use: Use
    checkpoint: bool
    """Whether the call is the one under gradient checkpointing."""

    @property
    def file(self) -> str:
        """The source file below the folder that holds ``transformers``."""
        return source_file(self.caller)

    def __str__(self) -> str:
        shown = [*self.positions]
        shown += [f"{name}=" if name == value else f"{name}={value}" for name, value in self.keywords]
        shown += [f"**{name}" for name in self.starred]
        return f"{self.receiver}({', '.join(shown)})"


def parse_call(line: str, caller: str) -> Call:
    """A call from its line without the mark."""
    head, _, use = line.rpartition(") ")
    checkpoint = head.startswith("checkpoint ")
    receiver, arguments = split_receiver(head)
    positions: list[str] = []
    keywords: list[tuple[str, str]] = []
    starred: list[str] = []
    for argument in _split(arguments):
        name, equals, value = argument.partition("=")
        if argument.startswith("**"):
            starred.append(argument[2:])
        elif equals and name.isidentifier():
            keywords.append((name, value or name))
        else:
            positions.append(argument)
    return Call(caller, receiver, tuple(positions), tuple(keywords), tuple(starred), parse_use(use), checkpoint)


def split_receiver(head: str) -> tuple[str, str]:
    """The receiver of a line, and its arguments."""
    text = head.removeprefix("checkpoint ")
    inherited = "super()." if text.startswith("super().") else ""
    receiver, _, arguments = text.removeprefix(inherited).partition("(")
    return f"{inherited}{receiver}", arguments


def _split(arguments: str) -> list[str]:
    return arguments.split(", ") if arguments else []


def parse_use(text: str) -> Use:
    """A use from its words."""
    groups: dict[str, list[str]] = {}
    word = ""
    for part in text.split(" "):
        if part in _USE_WORDS:
            word = part
            groups[word] = []
        else:
            groups[word].append(part)
    unpacked = groups.get("unpack", [""])[0]
    return Use(
        text,
        int(unpacked.rstrip("+")) if unpacked else None,
        unpacked.endswith("+"),
        frozenset(map(int, groups.get("uses", ()))),
        frozenset(map(int, groups.get("item", ()))),
        min(map(int, groups["from"])) if "from" in groups else None,
        frozenset(groups.get("field", ())),
        "whole" in groups,
        "returned" in groups,
    )


def split_line(line: str) -> list[str]:
    """The words of a line: up to the first bracket, each argument, and from the closing bracket on."""
    if line[0] == "#":
        return line.split("|")
    head, bracket, rest = line.partition("(")
    if not bracket or line[0] in "?+@!":
        return [line[0], *line[1:].split(", ")]
    inside, closing, use = rest.rpartition(")")
    if line[0] == "(":
        return ["(", *rest.split(", ")]
    return [head + bracket, *(inside.split(", ") if inside else ()), closing + use]


def joined_line(words: Sequence[str]) -> str:
    """The line of which ``split_line`` gives these words."""
    if words[0][0] == "#":
        return "|".join(words)
    if words[-1][:1] == ")" and "(" in words[0]:
        return words[0] + ", ".join(words[1:-1]) + words[-1]
    return words[0] + ", ".join(words[1:])


def family(module: str, owner: str) -> str:
    """The part of the name of a class that all classes of its model have: ``Llama`` of ``LlamaModel``."""
    stem = module.rpartition(".")[2].partition("_")[2].replace("_", "")
    return owner[: len(stem)] if stem and owner.lower().startswith(stem) else ""


def abbreviated(head: str, module: str, owner: str) -> str:
    """A head in which ``~`` stands for the family: so it is the same for all models that are built alike."""
    name = family(module, owner)
    return re.sub(rf"(?<![\w.]){name}(?=[A-Z])", "~", head) if name else head


def spelt_out(head: str, module: str, owner: str) -> str:
    """The head of which ``abbreviated`` makes this one."""
    return head.replace("~", family(module, owner))


def base36(number: int) -> str:
    """Two digits for the index of a release."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return digits[number // 36] + digits[number % 36]


def source_file(qualified: str) -> str:
    """``transformers.models.llama.modeling_llama.LlamaModel.forward`` -> ``transformers/models/llama/modeling_llama.py``."""
    parts = qualified.split(".")
    if parts[1:2] == ["models"]:
        end = next((place for place, part in enumerate(parts) if part.startswith(("modeling_", "generation_"))), 3)
        return "/".join(parts[: end + 1]) + ".py"
    end = next(
        (place for place, part in enumerate(parts) if part[:1].isupper() or part.startswith("_")), len(parts) - 1
    )
    return "/".join(parts[:end]) + ".py"


class _Table:
    """The rows of one table; they are split when somebody asks, and a row is decoded when it is asked for."""

    __slots__ = ("_block", "_decoded", "_rows", "_width")

    def __init__(self, block: str, width: int) -> None:
        self._block = block
        self._width = width
        self._rows: list[str] | None = None
        self._decoded: dict[str, Any] = {}

    @property
    def rows(self) -> list[str]:
        if self._rows is None:
            self._rows = self._block.split("\n") if self._block else []
        return self._rows

    def get(self, key: str) -> Any:
        """The decoded row, None where there is none."""
        if key not in self._decoded:
            start = f'"{key}' if self._width else f'"{key}":'
            place = bisect_left(self.rows, start)
            row = self.rows[place] if place < len(self.rows) else ""
            if not row.startswith(start):
                self._decoded[key] = None
            elif self._width:
                self._decoded[key] = json.loads(row.removesuffix(","))[self._width :]
            else:
                self._decoded[key] = json.loads(row[len(start) :].removesuffix(","))
        return self._decoded[key]

    def keys_with(self, text: str) -> list[str]:
        """Keys of the rows in which *text* stands."""
        if text not in self._block:
            return []
        return [row[1:].partition('":')[0] for row in self.rows if text in row]


Lines = tuple[str, ...]
_Place = tuple[str, str]
"""A module without ``models.`` and a name in it."""


class Contracts:
    """Questions to the contracts. Immutable; answers are remembered on the object."""

    __slots__ = ("_answers", "_bits", "_tables", "known", "releases")

    releases: tuple[str, ...]
    """The releases of the file, oldest first."""
    known: ReleaseSet
    """Releases of the timeline that the contracts know."""

    def __init__(self, text: str, timeline_releases: Sequence[str] | None = None, onward: bool = False) -> None:
        """*timeline_releases* are those that sets of releases count; the file's own where it is None.

        With *onward* a release that the file does not know is taken to be like the one before it. Raises ValueError for
        another layout.
        """
        starts = [text.find(f'"{name}":{"[" if width else "{"}\n') for name, width in TABLES.items()]
        if -1 in starts:
            raise ValueError("the contracts are damaged; reinstall kvlint")
        head = json.loads(text[: starts[0]].rstrip().removesuffix(",") + "}")
        if head.get("format") != FORMAT:
            raise ValueError(f"the contracts have layout {head.get('format')}, this kvlint reads {FORMAT}")
        self._tables: dict[str, _Table] = {}
        for (name, width), start, end in zip(TABLES.items(), starts, (*starts[1:], len(text)), strict=True):
            block = text[start + len(name) + 5 : end].removesuffix("\n}\n").rstrip(",\n")
            self._tables[name] = _Table(block[:-1].removesuffix("\n"), width)
        self.releases = tuple(head["releases"])
        bits = dict.fromkeys(self.releases, 0)
        known: str | None = None
        for place, release in enumerate(timeline_releases or self.releases):
            known = release if release in bits else known if onward else None
            if known is not None:
                bits[known] |= 1 << place
        self._bits = tuple(bits.values())
        self.known = self._span(0, -1)
        self._answers: dict[object, Any] = {}

    # ------------------------------------------------------------------------------------------------------- rows

    def _span(self, first: int, last: int) -> ReleaseSet:
        bits = 0
        for bit in self._bits[first : len(self._bits) if last == -1 else last + 1]:
            bits |= bit
        return ReleaseSet(bits)

    def _dated(self, spans: Sequence[Any]) -> dict[str, ReleaseSet]:
        found: dict[str, ReleaseSet] = {}
        for first, last, value in zip(spans[::3], spans[1::3], spans[2::3], strict=True):
            found[value] = found.get(value, NO_RELEASE) | self._span(first, last)
        return found

    def _remember(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._answers:
            self._answers[key] = make()
        return self._answers[key]

    def _row(self, module: str) -> Mapping[str, Mapping[str, str]]:
        """Histories of a module by class and method."""
        return self._tables["rows"].get(module) or {}

    def _lines(self, module: str, owner: str, method: str) -> Dated[Lines]:
        """What is recorded of a method (the method ``""`` is the head of the class), by release."""
        history = self._row(module).get(owner, {}).get(method)
        if history is None:
            return ()
        found: Dated[Lines] = self._remember(history, lambda: self._decoded(history))
        return found

    def _decoded(self, history: str) -> Dated[Lines]:
        found: dict[str, ReleaseSet] = {}
        starts = [*range(0, len(history), 6)]
        for start in starts:
            first = int(history[start : start + 2], 36)
            last = int(history[start + 6 : start + 8], 36) - 1 if start + 6 < len(history) else -1
            text = history[start + 2 : start + 6]
            if text != "----":
                found[text] = found.get(text, NO_RELEASE) | self._span(first, last)
        return tuple((rs, self._text(text)) for text, rs in found.items())

    def _text(self, key: str) -> Lines:
        text: str = self._tables["texts"].get(key)
        return tuple(self._line(text[place : place + 4]) for place in range(0, len(text), 4))

    def _line(self, key: str) -> str:
        line: str = self._tables["lines"].get(key)
        words = self._tables["words"]
        return joined_line([words.get(line[place : place + 3]) for place in range(0, len(line), 3)])

    def everything(self) -> Iterator[tuple[str, str, str, Dated[Lines]]]:
        """Each recorded head and method as ``(module, class, method, lines by release)``."""
        for module in self._tables["rows"].keys_with(""):
            for owner, methods in self._row(module).items():
                for method in methods:
                    dated = self._lines(module, owner, method)
                    if not method:
                        dated = tuple((rs, (spelt_out(lines[0], module, owner),)) for rs, lines in dated)
                    yield module, owner, method, dated

    def _places(self, cls: str) -> tuple[_Place, ...]:
        """Where a class of this name is recorded."""
        found: tuple[_Place, ...] = self._remember(("places", cls), lambda: self._find(cls))
        return found

    def _find(self, cls: str) -> tuple[_Place, ...]:
        module, _, name = cls.removeprefix("transformers.").rpartition(".")
        module = module.removeprefix("models.")
        row = self._row(module)
        if row:
            return ((module, name),) if name in row else ()
        places = self._tables["rows"].keys_with(f'"{name}":{{')
        return tuple((place, name) for place in places if not module or place.startswith(f"{module}."))

    def _heads(self, place: _Place) -> Iterator[tuple[ReleaseSet, str, tuple[str, ...], dict[str, tuple[str, ...]]]]:
        """Kind, bases and held classes of a class by release."""
        for rs, lines in self._lines(*place, ""):
            kind, bases, held = spelt_out(lines[0], *place)[1:].split("|")
            pairs = (item.split("=") for item in held.split(";") if item)
            yield rs, kind, tuple(filter(None, bases.split(", "))), {name: tuple(v.split(", ")) for name, v in pairs}

    def _place_of(self, name: str, module: str) -> _Place | None:
        """Where the class lies that a file of *module* calls *name*; None outside of transformers."""
        if not name.startswith("."):
            return (module, name) if "." not in name else None
        places = self._places(f"transformers{name}")
        return places[0] if places else None

    def _lineage(self, place: _Place) -> Dated[tuple[_Place, ...]]:
        """The class and its ancestors in lookup order, by release, as far as they are recorded."""
        found: Dated[tuple[_Place, ...]] = self._remember(("lineage", place), lambda: self._ancestry(place))
        return found

    def _ancestry(self, place: _Place) -> Dated[tuple[_Place, ...]]:
        found: list[tuple[ReleaseSet, tuple[_Place, ...]]] = []
        for rs, _, bases, _ in self._heads(place):
            lines: list[tuple[ReleaseSet, tuple[_Place, ...]]] = [(rs, ())]
            for base in bases:
                above = self._place_of(base, place[0])
                if above is None or above == place:
                    continue
                after = self._lineage(above)
                rest = self.known
                for valid, _ in after:
                    rest -= valid
                lines = [
                    (left & right, (*before, *names))
                    for left, before in lines
                    for right, names in (*after, (rest, ()))
                    if left & right
                ]
            found += [(valid, _last_ones((place, *names))) for valid, names in lines]
        return tuple(found)

    def _method(self, cls: str, method: str) -> list[tuple[ReleaseSet, _Place, Lines]]:
        """What is recorded of a method, own or inherited, with the class that provides it.

        A function of a module is asked for with the module as the class.
        """
        found: list[tuple[ReleaseSet, _Place, Lines]] = []
        for place in self._places(cls):
            for rs, owners in self._lineage(place):
                left = rs
                for module, owner in owners:
                    for valid, lines in self._lines(module, owner, method):
                        if left & valid:
                            found.append((left & valid, (module, owner), lines))
                            left -= valid
        if not found:
            module = cls.removeprefix("transformers.").removeprefix("models.")
            found = [(rs, (module, ""), lines) for rs, lines in self._lines(module, "", method)]
        return found

    def _marked(self, cls: str, method: str, mark: str) -> Iterator[tuple[ReleaseSet, tuple[str, ...]]]:
        for rs, _, lines in self._method(cls, method):
            yield rs, tuple(line[1:] for line in lines if line[0] == mark)

    # ------------------------------------------------------------------------------------------------------ classes

    def defines(self, cls: str, method: str = "forward") -> ReleaseSet:
        """Releases on which a recorded method exists, own or inherited."""
        return _union(rs for rs, _, _ in self._method(cls, method))

    def kind(self, cls: str) -> Dated[str]:
        """``attention``, ``layer``, ``mixer``, ``model``, ``head``, ``cache``, ``cache layer``, ``generation``, ``other``."""
        return _regrouped((rs, kind) for place in self._places(cls) for rs, kind, _, _ in self._heads(place))

    def classes(self, module: str, kind: str) -> tuple[str, ...]:
        """Qualified names of the recorded classes of a modeling module that are of a kind on some release."""
        short = module.removeprefix("transformers.").removeprefix("models.")
        owners = (owner for owner in self._row(short) if owner)
        return tuple(
            qualified((short, owner))
            for owner in owners
            if any(head[1] == kind for head in self._heads((short, owner)))
        )

    def generates(self, cls: str) -> ReleaseSet:
        """Releases on which ``GenerationMixin`` is an ancestor of the class (until 4.51 it is one of every model)."""
        return _union(
            rs
            for place in self._places(cls)
            for rs, owners in self._lineage(place)
            if any(name == "GenerationMixin" for _, name in owners)
        )

    def generates_from_hub(self) -> ReleaseSet:
        """Releases on which an auto class adds ``GenerationMixin`` to a model class of remote code."""
        return self.defines("transformers.models.auto.auto_factory", "add_generation_mixin_to_remote_model")

    def held(self, cls: str, attribute: str) -> Dated[tuple[str, ...]]:
        """Qualified names of the classes that an attribute of the class can hold; ``AutoModel`` where the configuration chooses."""
        return _regrouped(
            (rs, tuple(self._qualified(name, place[0]) for name in held[attribute]))
            for place in self._places(cls)
            for rs, _, _, held in self._heads(place)
            if attribute in held
        )

    def _qualified(self, name: str, module: str) -> str:
        if name.startswith("."):
            return f"transformers{name}"
        return f"transformers.{name}" if name == "AutoModel" else qualified((module, name))

    # ------------------------------------------------------------------------------------------------------ methods

    def takes(self, cls: str, method: str = "forward") -> Dated[Signature]:
        """Parameters of a method, ``self`` left out."""
        return _regrouped((rs, _parsed_signature(f"def({lines[0]})")) for rs, lines in self._marked(cls, method, "("))

    def returns(self, cls: str, method: str = "forward") -> Dated[tuple[str, ...]]:
        """What the ``return`` statements of a method give, as ``contracts_read`` writes it."""
        return _regrouped(self._marked(cls, method, "="))

    def wrappers(self, cls: str, method: str = "forward") -> Dated[tuple[str, ...]]:
        """Names of the decorators between the caller and the function, those that rename left out."""
        return _regrouped((rs, _names(found)) for rs, found in self._marked(cls, method, "@"))

    def renames(self, cls: str, method: str = "forward") -> Dated[tuple[Deprecation, ...]]:
        """Old keywords that the method itself still translates. An override has no such translation."""
        found = self._marked(cls, method, "!")
        return _regrouped((rs, _parsed_deprecations(";".join(lines))) for rs, lines in found if lines)

    def reads(self, cls: str, method: str) -> Mapping[str, ReleaseSet]:
        """Keys that the method reads from its dict of keyword arguments."""
        return _by_item((rs, _names(lines)) for rs, lines in self._marked(cls, method, "?"))

    def writes(self, cls: str, method: str) -> Mapping[str, ReleaseSet]:
        """Keys that the method writes into that dict, or into the one that it returns."""
        return _by_item((rs, _names(lines)) for rs, lines in self._marked(cls, method, "+"))

    def calls(self, cls: str, method: str = "forward") -> Dated[Call]:
        """What the method calls, in the order of the source."""
        return _regrouped(
            (rs, parse_call(line[1:], f"{qualified(place)}.{method}"))
            for rs, place, lines in self._method(cls, method)
            for line in lines
            if line[0] == ">"
        )

    def swallows(self, cls: str, method: str = "forward") -> Dated[tuple[str, ...]]:
        """Releases on which the method takes ``**kwargs``, with where they go on: ``LlamaAttention.forward``.

        An empty tuple is the end of the way: an unknown keyword is swallowed without a word.
        """
        found: list[tuple[ReleaseSet, tuple[str, ...]]] = []
        for rs, (module, owner), lines in self._method(cls, method):
            spread = re.search(r"\*\*(\w+)$", lines[0])
            if spread is None:
                continue
            calls = [parse_call(line[1:], "") for line in lines if line[0] == ">"]
            onward = [call.receiver for call in calls if spread[1] in call.starred]
            for valid, _, _, held in self._heads((module, owner)) if owner else ((rs, "", (), {}),):
                names = [name for receiver in onward for name in _callee(receiver, held)]
                found.append((rs & valid, tuple(dict.fromkeys(names))))
        return _regrouped(found)

    # ------------------------------------------------------------------------------------------------------ callers

    def callers(self, cls: str, method: str = "forward") -> Dated[Call]:
        """Calls in the library that reach the method on an instance of exactly this class.

        Of methods of caches and of their layers, and where only a kind of class is known (``AutoModel``), the file keeps
        which keywords and how many positions there are (``passed``, ``positions``, ``result_use``), and as callers those
        that show one of these.
        """
        found: Dated[Call] = self._remember(
            ("callers", cls, method), lambda: _regrouped(self._found_callers(cls, method))
        )
        return found

    def _found_callers(self, cls: str, method: str) -> Iterator[tuple[ReleaseSet, Call]]:
        target = self._kind_row(cls, method)
        if target is not None:
            yield from self._examples(target)
            return
        wanted = "self" if method == "forward" else f"self.{method}"
        for place in self._places(cls):
            if method == "forward":
                yield from self._holding(place)
            for rs, owners in self._lineage(place):
                for owner in owners:
                    for valid, _, call in self._calls_of(owner):
                        if call.receiver == wanted and rs & valid:
                            yield rs & valid, call

    def _holding(self, place: _Place) -> Iterator[tuple[ReleaseSet, Call]]:
        """Calls of ``forward`` through an attribute that holds the class."""
        module, name = place
        for other in (module, *(self._tables["elsewhere"].get(f"{module}.{name}") or ())):
            spelt = name if other == module else f".models.{module}.{name}"
            for owner in self._row(other):
                for rs, _, _, held in self._heads((other, owner)):
                    for valid, _, call in self._calls_of((other, owner)) if held else ():
                        for on, classes in self._reached(call.receiver, held, other, rs & valid):
                            if spelt in classes and on:
                                yield on, call

    def _reached(
        self, receiver: str, held: Mapping[str, tuple[str, ...]], module: str, rs: ReleaseSet
    ) -> Iterator[tuple[ReleaseSet, tuple[str, ...]]]:
        """Classes that a receiver can be of, also one inside of another: ``self.model.decoder``."""
        first, _, rest = receiver.removeprefix("self.").partition(".")
        if not rest or not receiver.startswith("self."):
            yield rs, held_classes(receiver, held)
            return
        for name in held_classes(f"self.{first}", held):
            place = self._place_of(name, module)
            for valid, _, _, inner in self._heads(place) if place is not None and place[0] == module else ():
                yield rs & valid, held_classes(f"self.{rest}", inner)

    def _calls_of(self, place: _Place) -> tuple[tuple[ReleaseSet, str, Call], ...]:
        """Every call in the methods of a class, with the method."""
        found: tuple[tuple[ReleaseSet, str, Call], ...] = self._remember(
            ("calls", place),
            lambda: tuple(
                (rs, method, parse_call(line[1:], f"{qualified(place)}.{method}".replace("..", ".")))
                for method in self._row(place[0]).get(place[1], ())
                if method or not place[1]
                for rs, lines in self._lines(*place, method)
                for line in lines
                if line[0] == ">"
            ),
        )
        return found

    def _kind_row(self, cls: str, method: str) -> str | None:
        """The row of a kind, where calls do not tell the class: methods of caches and their layers."""
        kinds = {kind for _, kind in self.kind(cls)}
        kind = next((kind for kind in ("cache", "cache layer") if kind in kinds), None)
        return None if kind is None else f"{kind}.{method}"

    def _examples(self, target: str) -> Iterator[tuple[ReleaseSet, Call]]:
        row = self._tables["kinds"].get(target) or {}
        kind, _, method = target.partition(".")
        receiver = {"cache": f"<cache>.{method}", "cache layer": f"<layer>.{method}"}.get(kind)
        seen: dict[str, ReleaseSet] = {}
        for values in row.values():
            for spans in values.values():
                for caller, rs in self._dated(spans).items():
                    seen[caller] = seen.get(caller, NO_RELEASE) | rs
        for caller, rs in seen.items():
            module, owner, name = _split_caller(caller)
            for valid, each, call in self._calls_of((module, owner)):
                if each == name and rs & valid and call.receiver in (receiver, f"self.{method}"):
                    yield rs & valid, call

    def kind_callers(self, kind: str, method: str = "forward") -> Mapping[str, Mapping[str, Dated[str]]]:
        """What callers pass to any class of a kind: ``{aspect: {value: by release the caller that shows it}}``.

        Aspects are ``keyword``, ``positions`` (a number, with ``+`` where a starred argument follows) and ``use``. Besides
        the kinds of classes there are ``attention function``, ``mask function``, ``logits processor``, ``stopping criteria``
        and ``candidate generator``.
        """
        row = self._tables["kinds"].get(f"{kind}.{method}") or {}
        return {
            aspect: {
                value: tuple((rs, qualified_caller(caller)) for caller, rs in self._dated(spans).items())
                for value, spans in values.items()
            }
            for aspect, values in row.items()
        }

    def called(self, kind: str) -> tuple[str, ...]:
        """Methods of a kind that the library calls on some release."""
        keys = self._tables["kinds"].keys_with(f'"{kind}.')
        return tuple(key.partition(".")[2] for key in keys if key.startswith(f"{kind}."))

    def passed(self, cls: str, method: str = "forward", checkpoint: bool = False) -> Mapping[str, ReleaseSet]:
        """Keywords that callers use, each with the releases on which one of them does.

        What travels in a spread dict (``**kwargs``) has no name here: ``passes_more`` says where there is one.
        """
        target = self._kind_row(cls, method)
        if target is not None:
            found = self.kind_callers(*_parts(target)).get("keyword", {})
            return {name: _union(rs for rs, _ in dated) for name, dated in found.items()}
        return _by_item(
            (rs, tuple(name for name, _ in call.keywords))
            for rs, call in self.callers(cls, method)
            if call.checkpoint == checkpoint
        )

    def passes_more(self, cls: str, method: str = "forward") -> ReleaseSet:
        """Releases on which a caller spreads a dict into the call: other keywords can arrive as well."""
        return _union(rs for rs, call in self.callers(cls, method) if call.starred)

    def positions(self, cls: str, method: str = "forward", checkpoint: bool = False) -> Mapping[int, ReleaseSet]:
        """Indices that callers fill by position, each with the releases on which one of them does."""
        target = self._kind_row(cls, method)
        if target is not None:
            found = self.kind_callers(*_parts(target)).get("positions", {})
            counted = ((_union(rs for rs, _ in dated), int(value.rstrip("+"))) for value, dated in found.items())
            return _by_item((rs, tuple(range(count))) for rs, count in counted)
        return _by_item(
            (rs, tuple(range(sum(not text.startswith("*") for text in call.positions))))
            for rs, call in self.callers(cls, method)
            if call.checkpoint == checkpoint
        )

    def result_use(self, cls: str, method: str = "forward") -> Dated[Use]:
        """What callers do with the result, those under gradient checkpointing left out."""
        target = self._kind_row(cls, method)
        if target is not None:
            found = self.kind_callers(*_parts(target)).get("use", {})
            return _regrouped((_union(rs for rs, _ in dated), parse_use(text)) for text, dated in found.items())
        return _regrouped((rs, call.use) for rs, call in self.callers(cls, method) if not call.checkpoint)


def qualified(place: _Place) -> str:
    """``("llama.modeling_llama", "LlamaModel")`` -> ``transformers.models.llama.modeling_llama.LlamaModel``."""
    module, name = place
    own = "." not in module or module.partition(".")[0] in _OWN_PACKAGES
    return f"transformers.{'' if own else 'models.'}{module}.{name}"


def qualified_caller(caller: str) -> str:
    """The qualified name of a caller as the table ``kinds`` writes it: ``llama.modeling_llama.LlamaModel.forward``."""
    module, owner, method = _split_caller(caller)
    return f"{qualified((module, owner))}.{method}".replace("..", ".")


def _split_caller(caller: str) -> tuple[str, str, str]:
    if ".." in caller:
        module, _, function = caller.partition("..")
        return module, "", function
    module, owner, method = caller.rsplit(".", 2)
    return module, owner, method


def _parts(target: str) -> tuple[str, str]:
    kind, _, method = target.partition(".")
    return kind, method


def held_classes(receiver: str, held: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Classes that a receiver such as ``self.layers[*]`` or ``self.layer[0]`` can be of."""
    path = _HELD.fullmatch(receiver)
    if path is None:
        return ()
    classes = held.get(path[1], ())
    if path[2] is not None and re.fullmatch(r"-?\d+", path[2]) and len(classes) > 1:
        place = int(path[2])
        return (classes[place],) if -len(classes) <= place < len(classes) else ()
    return classes


def _callee(receiver: str, held: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    classes = held_classes(receiver, held)
    if classes:
        yield from (f"{name.rpartition('.')[2]}.forward" for name in classes)
    else:
        yield receiver


def _names(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for line in lines for name in line.split(", "))


def _union(sets: Iterable[ReleaseSet]) -> ReleaseSet:
    bits = 0
    for rs in sets:
        bits |= rs.bits
    return ReleaseSet(bits)


def _by_item(items: Iterable[tuple[ReleaseSet, Iterable[Any]]]) -> dict[Any, ReleaseSet]:
    found: dict[Any, ReleaseSet] = {}
    for rs, values in items:
        for value in values:
            found[value] = found.get(value, NO_RELEASE) | rs
    return {value: rs for value, rs in sorted(found.items()) if rs}


def _regrouped(items: Iterable[tuple[ReleaseSet, Any]]) -> Dated[Any]:
    """One entry a distinct value, in the order in which they come."""
    merged: dict[Any, ReleaseSet] = {}
    for rs, value in items:
        merged[value] = merged.get(value, NO_RELEASE) | rs
    return tuple((rs, value) for value, rs in merged.items() if rs)


def _last_ones(places: tuple[_Place, ...]) -> tuple[_Place, ...]:
    """Keeps the last mention of each class: a shared ancestor comes after all its descendants."""
    return tuple(reversed(dict.fromkeys(reversed(places))))


# ------------------------------------------------------------------------------------------------------------- loading


def load(timeline_releases: Sequence[str] | None = None, path: Path | None = None, onward: bool = False) -> Contracts:
    """The packaged contracts (see ``Contracts``). Raises ValueError with one line where they cannot be read."""
    file = path or packaged_file().with_name("contracts.json")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the contracts {file} cannot be read: {error.strerror}; reinstall kvlint") from error
    return Contracts(text, timeline_releases, onward)


@lru_cache(maxsize=1)
def contracts_of(releases: tuple[str, ...]) -> Contracts:
    """The contracts for checks, read once in each process; *releases* are those of the timeline, learnt ones too.

    Raises UsageProblem where they are damaged.
    """
    try:
        return load(releases, onward=True)
    except ValueError as problem:
        raise UsageProblem(str(problem)) from None
