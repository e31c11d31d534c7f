"""From the lines and UTF-8 columns of ``ast`` to character offsets of the text."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from functools import lru_cache


class LineIndex:
    """Line starts of one text; offsets and columns count characters."""

    __slots__ = ("_ascii", "_line", "_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._ascii = text.isascii()
        self._line: tuple[int, list[int]] = (0, [])
        starts = [0]
        position = text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = text.find("\n", position + 1)
        self._starts = starts

    @staticmethod
    @lru_cache(maxsize=4)
    def of(text: str) -> LineIndex:
        """The index of a text; the last few are kept because every check of a region asks for the same one."""
        return LineIndex(text)

    def offset(self, line: int, byte_column: int) -> int:
        """Character offset of a 1-based line and a 0-based UTF-8 byte column."""
        start = self._starts[line - 1]
        return start + byte_column if self._ascii else start + byte_column - self._surplus(line, byte_column)

    def _surplus(self, line: int, byte_column: int) -> int:
        """How many of the first *byte_column* bytes of a line only continue a character.

        The answer for a line is kept until another one is asked for: a line can be as long as the file.
        """
        if self._line[0] != line:
            end = self._starts[line] if line < len(self._starts) else len(self._text)
            content = self._text[self._starts[line - 1] : end]
            continuing = re.finditer(rb"[\x80-\xbf]", b"" if content.isascii() else content.encode())
            self._line = (line, [match.start() for match in continuing])
        return bisect_left(self._line[1], byte_column)

    def line(self, offset: int) -> int:
        """1-based line of a character offset."""
        return bisect_right(self._starts, offset)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        """Offset of the line break (or of the end of the text) of a 1-based line."""
        return self._starts[line] - 1 if line < len(self._starts) else len(self._text)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Character offsets of a node that has a position."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return start, end
