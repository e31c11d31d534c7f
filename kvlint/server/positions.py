"""Places of a text as the protocol counts them: lines from 0, columns in UTF-16 units unless agreed otherwise."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

NEWLINE = re.compile(r"\r\n|\r|\n")
UNITS = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
"""Bytes of one unit of each encoding."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a text. Only ``\\n``, ``\\r\\n`` and ``\\r`` end one, as in the protocol and in kvlint's findings."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    encoding: str = "utf-16"

    @staticmethod
    def of(text: str, encoding: str = "utf-16") -> Lines:
        """The lines of *text*; columns outside are counted in units of *encoding*."""
        matches = list(NEWLINE.finditer(text))
        starts = (0, *(match.end() for match in matches))
        ends = (*(match.start() for match in matches), len(text))
        return Lines(text, starts, ends, encoding)

    def units(self, line: int, column: int) -> tuple[int, int]:
        """A 1-based line and column in characters as 0-based line and column in units; what lies outside is moved in."""
        row = min(max(line - 1, 0), len(self.starts) - 1)
        stretch = self.text[self.starts[row] : self.ends[row]][: max(column - 1, 0)]
        return row, width(stretch, self.encoding)

    def offset(self, row: int, units: int) -> int:
        """The offset of a 0-based line and column in units; what lies outside is moved in."""
        if row >= len(self.starts):
            return len(self.text)
        row = max(row, 0)
        start, end = self.starts[row], self.ends[row]
        if units <= 0:
            return start
        line = self.text[start:end]
        if line.isascii():
            return min(start + units, end)
        reached = 0
        for index, char in enumerate(line):
            if reached >= units:
                return start + index
            reached += width(char, self.encoding)
        return end

    def characters(self, row: int, units: int) -> tuple[int, int]:
        """The reverse of `units`: a 1-based line and column in characters."""
        return self.place(self.offset(row, units))

    def place(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column, in characters, of an offset."""
        row = bisect_right(self.starts, offset) - 1
        return row + 1, offset - self.starts[row] + 1


def width(text: str, encoding: str) -> int:
    """How many units of *encoding* a text takes."""
    if text.isascii():
        return len(text)
    unit = UNITS.get(encoding, 2)
    return len(text.encode({1: "utf-8", 2: "utf-16-le", 4: "utf-32-le"}[unit], "surrogatepass")) // unit
