"""gitignore patterns as compiled matchers.

Written out here, not taken from pathspec, for start-up time and speed: nearly every repository has a
`.gitignore`, importing pathspec costs more than reading a tree of 500 files, and it tries one pattern after the
other on every path. Where pathspec and git disagree (a folder that is brought back and holds another ignored
one) git is right: the tests compare this module with git on generated patterns and paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring patterns of the same sign, joined: they ignore, or (after a ``!``) they bring back."""

    ignores: bool
    by_name: re.Pattern[str] | None
    by_path: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Matcher:
    """The patterns of one `.gitignore` file or one setting. *blocks* are ordered last pattern first."""

    blocks: tuple[Block, ...]

    def decide(self, path: str, name: str) -> bool | None:
        """True: ignored, False: explicitly brought back, None: no pattern matches.

        *path* is relative to the directory of the patterns, with ``/`` between its parts and one at the end of a
        directory; *name* is its last part, with the same ``/`` at the end.
        """
        for block in self.blocks:
            if (block.by_name and block.by_name.match(name)) or (block.by_path and block.by_path.match(path)):
                return block.ignores
        return None

    def excludes(self, path: str) -> bool:
        """True where *path* (a file, relative to the directory of the patterns) or a directory above it is ignored."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if self.decide("/".join(parts[:depth]) + "/", parts[depth - 1] + "/"):
                return True
        return self.decide(path, parts[-1]) is True


@lru_cache(maxsize=512)
def compile_patterns(lines: tuple[str, ...]) -> Matcher:
    """The matcher of gitignore *lines*. Raises ValueError, naming the pattern, where one cannot be read."""
    blocks: list[tuple[bool, list[str], list[str]]] = []
    for line in lines:
        translated = translate(line)
        if translated is None:
            continue
        ignores, anchored, expression = translated
        try:
            re.compile(expression)
        except re.error as problem:
            raise ValueError(f"{line!r} is not a valid glob: {problem.msg}") from None
        if not blocks or blocks[-1][0] is not ignores:
            blocks.append((ignores, [], []))
        _, names, paths = blocks[-1]
        (paths if anchored else names).append(expression)
    return Matcher(
        tuple(
            Block(ignores, join_expressions(names), join_expressions(paths)) for ignores, names, paths in blocks[::-1]
        )
    )


def join_expressions(expressions: Iterable[str]) -> re.Pattern[str] | None:
    joined = "|".join(expressions)
    return re.compile(rf"(?:{joined})\Z") if joined else None


def translate(line: str) -> tuple[bool, bool, str] | None:
    """One gitignore line as ``(ignores, matched against the whole path, regular expression)``; None: says nothing."""
    pattern = line.rstrip("\r\n")
    while pattern.endswith(" ") and not pattern.endswith("\\ "):
        pattern = pattern[:-1]
    if not pattern or pattern.startswith("#"):
        return None
    ignores = not pattern.startswith("!")
    if not ignores:
        pattern = pattern[1:]
    directory_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    anchored = "/" in pattern
    pattern = pattern.removeprefix("/")
    if not pattern:
        return None
    expression = translate_path(pattern) if anchored else translate_part(pattern)
    return ignores, anchored, expression + ("/" if directory_only else "/?")


def flaw(glob: str) -> str:
    """Why a glob of a setting cannot be what a person means, "" where it can.

    In an ignore file git passes over such a line; in a setting it would silently exclude nothing.
    """
    if not glob.strip() or glob.strip() in ("!", "/"):
        return "an empty glob matches nothing"
    if glob.startswith("#"):
        return f"{glob!r} is a comment in gitignore patterns (write '\\#...')"
    index = 0
    while index < len(glob):
        char = glob[index]
        index += 1
        if char == "\\":
            if index == len(glob) or glob[index].isalnum():
                return f"{glob!r} is not a valid glob: a backslash quotes the character behind it (write / between folders)"
            index += 1
        elif char == "[":
            end = class_end(glob, index)
            if end < 0:
                return f"{glob!r} is not a valid glob: '[' is not closed (write '[[]' for the character)"
            index = end + 1
        elif char == "{":
            return f"{glob!r} is not a valid glob: braces are not expanded (a glob for each alternative; '\\{{' is the character)"
    return ""


def translate_path(pattern: str) -> str:
    """A pattern with a ``/`` in it, relative to the directory of the patterns."""
    parts = pattern.split("/")
    expression = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if len(part) > 1 and not part.strip("*"):
            expression += ".+" if last else "(?:[^/]+/)*"
        else:
            expression += translate_part(part) + ("" if last else "/")
    return expression


def translate_part(part: str) -> str:
    """The part of a pattern between two slashes."""
    expression, index = "", 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            while index < len(part) and part[index] == "*":
                index += 1
            expression += "[^/]*"
        elif char == "?":
            expression += "[^/]"
        elif char == "\\" and index < len(part):
            expression += re.escape(part[index])
            index += 1
        elif char == "[" and (end := class_end(part, index)) > 0:
            expression += translate_class(part[index:end])
            index = end + 1
        else:
            expression += re.escape(char)
    return expression


def class_end(part: str, start: int) -> int:
    """Index of the ``]`` that closes the class whose text begins at *start*; -1 where none does."""
    first = start + 1 if part[start : start + 1] in ("!", "^") else start
    return part.find("]", first + 1)


def translate_class(text: str) -> str:
    negated = text[:1] in ("!", "^")
    body = (text[1:] if negated else text).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    body = body.replace("&&", "&\\&").replace("||", "|\\|").replace("~~", "~\\~").replace("--", "-\\-")
    return f"(?!/)[{'^' if negated else ''}{body}]"
