"""What ``kvlint api Class.method`` says of calls: what comes in, what goes on, what becomes of results, by release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvlint.contracts import Call, Contracts, Use
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Dated, Timeline

_BY_KIND = frozenset({"cache", "cache layer", "mask function"})
"""Kinds of which a call does not tell the class: the keywords of all calls, and how many positions, with an example."""

_WORDS = {"whole": "uses the result as it is", "returned": "returns it", "ignored": "drops it"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a section: a text for people, and the same as plain data."""

    releases: ReleaseSet
    text: str
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class Contract:
    """What is recorded of a method; a section without rows is left out."""

    releases: ReleaseSet
    sections: tuple[tuple[str, tuple[Row, ...]], ...]

    def as_text(self) -> tuple[tuple[str, Dated[str]], ...]:
        """The sections for a terminal."""
        return tuple((title, tuple((row.releases, row.text) for row in rows)) for title, rows in self.sections)

    def as_json(self, timeline: Timeline) -> dict[str, list[dict[str, object]]]:
        """The sections as plain data; releases as ranges ``5.0.0-5.24.0``."""
        return {
            title: [{"releases": list(timeline.ranges(row.releases)), **row.data} for row in rows]
            for title, rows in self.sections
        }


def contract(contracts: Contracts, cls: str, method: str, parameters_known: bool = False) -> Contract | None:
    """The contract of a method of a class, or of a function of a module; None where nothing is recorded.

    The parameters are left out where *parameters_known* says that they are printed already.
    """
    releases = contracts.defines(cls, method)
    found = (
        ("takes", () if parameters_known else tuple(_takes(contracts, cls, method))),
        ("old names", tuple(_renames(contracts, cls, method))),
        ("comes in", _comes_in(contracts, cls, method)),
        ("passes on", tuple(_call(rs, call, own=True) for rs, call in contracts.calls(cls, method))),
        ("kwargs go to", tuple(_swallows(contracts, cls, method))),
        ("returns", tuple(_texts(contracts.returns(cls, method)))),
        ("reads keys", tuple(_keys(contracts.reads(cls, method).items()))),
        ("writes keys", tuple(_keys(contracts.writes(cls, method).items()))),
    )
    sections = tuple((title, rows) for title, rows in found if rows)
    if not sections:
        return None
    return Contract(releases, sections)


def _takes(contracts: Contracts, cls: str, method: str) -> Iterator[Row]:
    for rs, signature in contracts.takes(cls, method):
        yield Row(rs, str(signature), {"signature": str(signature)})


def _renames(contracts: Contracts, cls: str, method: str) -> Iterator[Row]:
    for rs, renamed in contracts.renames(cls, method):
        for each in renamed:
            until = f" until {each.removal}" if each.removal else ""
            yield Row(
                rs,
                f"{each.old}= still fills {each.new}={until}",
                {"old": each.old, "new": each.new, "until": each.removal},
            )


def _comes_in(contracts: Contracts, cls: str, method: str) -> tuple[Row, ...]:
    kinds = [kind for _, kind in contracts.kind(cls)] or ["mask function"]
    by_kind = [kind for kind in dict.fromkeys(kinds) if kind in _BY_KIND]
    if by_kind:
        return tuple(row for kind in by_kind for row in _of_kind(contracts, kind, method))
    return tuple(_call(rs, call) for rs, call in contracts.callers(cls, method))


def _of_kind(contracts: Contracts, kind: str, method: str) -> Iterator[Row]:
    """What callers of any class of the kind pass, each with the newest of those that show it."""
    aspects = contracts.kind_callers(kind, method)
    for aspect, values in aspects.items():
        for value, dated in values.items():
            if value.startswith("checkpoint "):
                continue
            releases = NO_RELEASE
            for rs, _ in dated:
                releases |= rs
            _, caller = max(dated, key=lambda item: item[0].newest)
            text = {"keyword": f"{value}=", "positions": _positions(value)}.get(aspect) or use_words(value)
            file = Call(caller, "", (), (), (), Use(""), False).file
            yield Row(
                releases, f"{text}  ({_short(caller)} in {file})", {aspect: value, "caller": caller, "file": file}
            )


def _positions(value: str) -> str:
    count = value.rstrip("+")
    more = " and what *args hold" if value.endswith("+") else ""
    return f"{count} by position{more}"


def _call(rs: ReleaseSet, call: Call, own: bool = False) -> Row:
    by = "" if own else f"{_short(call.caller)} calls "
    under = " under gradient checkpointing" if call.checkpoint else ""
    text = f"{by}{call}{under}, {use_words(call.use.text)}  ({call.file})"
    return Row(
        rs,
        text,
        {
            "caller": call.caller,
            "file": call.file,
            "calls": call.receiver,
            "positions": list(call.positions),
            "keywords": [name for name, _ in call.keywords],
            "filled_by": {name: value for name, value in call.keywords if value != name},
            "spread": list(call.starred),
            "checkpoint": call.checkpoint,
            "result": call.use.text,
        },
    )


def _swallows(contracts: Contracts, cls: str, method: str) -> Iterator[Row]:
    for rs, onward in contracts.swallows(cls, method):
        yield Row(rs, ", ".join(onward) or "nothing: an unknown keyword is swallowed", {"to": list(onward)})


def _texts(dated: Dated[tuple[str, ...]]) -> Iterator[Row]:
    for rs, texts in dated:
        if texts:
            yield Row(rs, "; ".join(texts), {"values": list(texts)})


def _keys(items: Iterable[tuple[str, ReleaseSet]]) -> Iterator[Row]:
    """Keys that are there on the same releases stand in one row."""
    grouped: dict[ReleaseSet, list[str]] = {}
    for key, rs in items:
        grouped.setdefault(rs, []).append(key)
    for rs, keys in grouped.items():
        yield Row(rs, ", ".join(keys), {"keys": keys})


def use_words(text: str) -> str:
    """What a caller does with a result, from the words of the file (``contracts_read``)."""
    said: list[str] = []
    groups: list[list[str]] = []
    for word in text.split(" "):
        if word in ("unpack", "uses", "item", "from", "field", *_WORDS):
            groups.append([word])
        else:
            groups[-1].append(word)
    for word, *values in groups:
        if word == "unpack":
            said.append(f"unpacks {values[0].replace('+', ' or more')}")
        elif word == "uses":
            said.append(f"uses {', '.join(values)} of them")
        elif word == "item":
            said.append(f"takes [{'], ['.join(values)}]")
        elif word == "from":
            said.append(f"takes [{values[0]}:]")
        elif word == "field":
            said.append(f"reads {', '.join(f'.{value}' for value in values)}")
        else:
            said.append(_WORDS[word])
    return ", ".join(said)


def _short(caller: str) -> str:
    """``LlamaModel.forward`` of its full name."""
    parts = caller.split(".")
    return ".".join(parts[-2:] if parts[-2][:1].isupper() else parts[-1:])
