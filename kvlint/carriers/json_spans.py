"""Where keys and values lie in a JSON text, and how strings are written there.

`json` decodes; this finds places. Values that nobody asks about are skipped by `json`'s own scanner.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple["str | int", ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")
_DECODER = json.JSONDecoder()


class JsonError(ValueError):
    """Text that is not JSON; *offset* says where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Span:
    """The value at ``text[start:end]``; *key* is the span of the key (quotes included) of an object's member."""

    start: int
    end: int
    value: Any
    key: tuple[int, int] | None = None


def skip_space(text: str, offset: int) -> int:
    """The first offset from *offset* on that is not white space."""
    match = _SPACE.match(text, offset)
    return offset if match is None else match.end()


def value_at(text: str, offset: int) -> tuple[Any, int]:
    """The decoded value that begins at *offset* and the offset of its end; raises `JsonError`."""
    try:
        value, end = _DECODER.raw_decode(text, offset)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from None
    except RecursionError:
        raise JsonError("nested too deeply", offset) from None
    except ValueError as error:
        # Integers of more digits than Python converts.
        raise JsonError(str(error), offset) from None
    return value, int(end)


def document_value(text: str) -> Span:
    """The one value that makes up *text*; raises `JsonError`."""
    start = skip_space(text, 0)
    value, end = value_at(text, start)
    rest = skip_space(text, end)
    if rest != len(text):
        raise JsonError("Extra data", rest)
    return Span(start, end, value)


def members(text: str, offset: int) -> Iterator[tuple[str, Span]]:
    """The members of the object that begins at *offset*, in their order, repeated keys included; raises `JsonError`."""
    place = skip_space(text, offset + 1)
    while text[place : place + 1] != "}":
        key, key_end = value_at(text, place)
        if not isinstance(key, str):
            raise JsonError("Expecting property name enclosed in double quotes", place)
        colon = skip_space(text, key_end)
        if text[colon : colon + 1] != ":":
            raise JsonError("Expecting ':' delimiter", colon)
        start = skip_space(text, colon + 1)
        value, end = value_at(text, start)
        yield key, Span(start, end, value, (place, key_end))
        place = _next(text, end, "}")


def items(text: str, offset: int) -> Iterator[Span]:
    """The items of the array that begins at *offset*; raises `JsonError`."""
    place = skip_space(text, offset + 1)
    while text[place : place + 1] != "]":
        value, end = value_at(text, place)
        yield Span(place, end, value)
        place = _next(text, end, "]")


def _next(text: str, end: int, closing: str) -> int:
    """Where the next member begins, or where the closing bracket stands."""
    place = skip_space(text, end)
    following = text[place : place + 1]
    if following == ",":
        return skip_space(text, place + 1)
    if following != closing:
        raise JsonError("Expecting ',' delimiter", place)
    return place


def json_positions(text: str) -> Mapping[Path, Span]:
    """The spans of every value in *text* by the path of keys and indices that leads there; raises `JsonError`.

    The path of the whole value is ``()``. Of repeated keys the last one counts, as it does for `json.loads`.
    """
    root = document_value(text)
    result: dict[Path, Span] = {(): root}
    waiting: list[tuple[Path, Span]] = [((), root)]
    while waiting:
        path, span = waiting.pop()
        inner: list[tuple[Path, Span]] = []
        if isinstance(span.value, dict):
            inner = [((*path, key), member) for key, member in members(text, span.start)]
        elif isinstance(span.value, list):
            inner = [((*path, index), item) for index, item in enumerate(items(text, span.start))]
        result.update(inner)
        waiting += inner
    return result


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """The line and column, both 1-based, of *offset*."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def encoded(text: str, *, ascii_only: bool) -> str:
    """*text* as it stands between the quotes of a JSON string; lone surrogates are always escaped."""
    if ascii_only:
        return json.dumps(text)[1:-1]
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    return re.sub(r"[\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", written)


class StringMap:
    """Leads between the characters of a decoded string and its literal at ``text[start:end]``, quotes included."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._body = start + 1
        self._decoded: list[int] = []  # offset in the decoded string behind each escape
        self._written: list[int] = []  # offset in the body behind each escape
        extra = 0
        if text.find("\\", start, end) >= 0:
            for match in _ESCAPE.finditer(text, start + 1, end - 1):
                extra += len(match.group()) - 1
                written = match.end() - self._body
                self._decoded.append(written - extra)
                self._written.append(written)

    def written(self, offset: int) -> int:
        """The document offset at which the decoded character *offset* begins."""
        index = bisect_left(self._decoded, offset + 1) - 1
        if index < 0:
            return self._body + offset
        return self._body + self._written[index] + offset - self._decoded[index]
