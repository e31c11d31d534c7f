"""IPython's additions to Python: magics, shell lines and help, replaced by Python of the same number of lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Cell magics whose cell is Python that runs in the notebook's own namespace.
PYTHON_CELL_MAGICS = frozenset(
    {"time", "timeit", "capture", "prun", "debug", "memit", "mprun", "lprun", "snakeviz", "pyinstrument", "scalene"}
)
# Cell magics that write the cell into a file.
FILE_CELL_MAGICS = frozenset({"writefile", "file"})

_CELL_MAGIC = re.compile(r"%%(?P<name>\w+)[ \t]*(?P<arguments>.*)")
_TIMED = re.compile(r"%time(?:it(?:[ \t]+-[a-z]+[ \t]*\d*)*)?[ \t]+(?=[^\s-])")
_LINE_MAGIC = re.compile(r"[ \t]*(?:%{1,2}[A-Za-z_!]|!|\?{1,2}[\w%*]|\$[ \t])")
_COMMAND = re.compile(
    r"[ \t]*(?:pip3?|conda|mamba|uv|apt|apt-get|cd|ls|git|wget|curl|export|huggingface-cli|hf)[ \t]+[\w./~-]"
)
_HELP = re.compile(r"[ \t]*%{0,2}[A-Za-z_][\w.*\[\]'\"]*\?{1,2}[ \t]*(?:#.*)?$")
_ASSIGNED_TARGET = r"[ \t]*[A-Za-z_][\w.,\s\[\]'\"*():]*="
_ASSIGNED = re.compile(rf"(?P<target>{_ASSIGNED_TARGET})[ \t]*[!%][ \t]*[\w./~${{\"'(]")
_TIMED_VALUE = re.compile(rf"(?P<target>{_ASSIGNED_TARGET}[ \t]*)(?P<magic>{_TIMED.pattern})")
_TOKEN = re.compile(
    r"#.*|(?P<triple>\"\"\"|''')|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|(?P<open>[\[({])|(?P<close>[\])}])|(?P<join>\\$)"
)


@dataclass(frozen=True, slots=True)
class Masked:
    """A line with its magic replaced: *text* stands for the line, or for the line without its first *strip* characters.

    *changed* tells a replacement from the line's own text.
    """

    text: str
    strip: int = 0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class CellMagic:
    """A ``%%name arguments`` line."""

    name: str
    arguments: str


def cell_magic(line: str) -> CellMagic | None:
    """The cell magic that *line* calls."""
    match = _CELL_MAGIC.match(line)
    return None if match is None else CellMagic(match["name"], match["arguments"].strip())


def masked(lines: Sequence[str]) -> list[Masked]:
    """*lines* with every magic, shell and help line replaced by a statement at the same indent.

    Lines inside of strings and brackets and continued lines are never taken for one.
    """
    result: list[Masked] = []
    state = _State()
    command_goes_on = False
    for line in lines:
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if command_goes_on:
            result.append(Masked(indent + "pass", changed=True))
            command_goes_on = line.endswith("\\")
            continue
        if not state.at_statement:
            state.advance(line)
            result.append(Masked(line))
            continue
        timed = _TIMED.match(line)
        if timed is not None:
            rest = line[timed.end() :]
            state.advance(rest)
            result.append(Masked(rest, strip=timed.end()))
            continue
        timed = _TIMED_VALUE.match(line)
        if timed is not None:
            blanked = timed["target"] + " " * len(timed["magic"]) + line[timed.end() :]
            state.advance(blanked)
            result.append(Masked(blanked))
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            result.append(Masked(assigned["target"] + " ...", changed=True))
        elif _LINE_MAGIC.match(line) or _COMMAND.match(line) or _HELP.match(line):
            result.append(Masked(indent + "pass", changed=True))
        else:
            state.advance(line)
            result.append(Masked(line))
            continue
        command_goes_on = line.endswith("\\")
    return result


class _State:
    """What the lines seen so far leave open: brackets, a triple-quoted string, a backslash at the end."""

    def __init__(self) -> None:
        self._depth = 0
        self._quotes = ""
        self._joined = False

    @property
    def at_statement(self) -> bool:
        return not (self._depth or self._quotes or self._joined)

    def advance(self, line: str) -> None:
        self._joined = False
        place = 0
        while True:
            if self._quotes:
                closing = re.compile(r"(?:[^\\]|\\.)*?" + self._quotes).match(line, place)
                if closing is None:
                    return
                place = closing.end()
                self._quotes = ""
            token = _TOKEN.search(line, place)
            if token is None:
                return
            place = token.end()
            if token["triple"]:
                self._quotes = token["triple"]
            elif token["open"]:
                self._depth += 1
            elif token["close"]:
                self._depth = max(0, self._depth - 1)
            elif token["join"]:
                self._joined = True
