"""Other ways to write the same code: what an example means stays, and so do its lines (or all move down by as many)."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Tokens = Sequence[tokenize.TokenInfo]
Change = Callable[[Tokens, int, int], str | None]
"""What stands in place of the token at an index, so deep in brackets; None to leave it."""
OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")
IMPORTED = re.compile(r"^from transformers[\w.]* import (?P<names>[^\n(]+|\([^)]*\))", re.MULTILINE)
CALL_OR_NUMBER = re.compile(r"^( *)((?:self\.)?[a-z_]\w*) = (?=[^\n=]*$)(?!\w+ = )", re.MULTILINE)
FUTURE = re.compile(r"^from __future__ [^\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A way to write code, and by how many lines it moves down. None as the result: it cannot be written so."""

    name: str
    write: Callable[[str], str | None]
    down: int = 0


def rewritten(text: str, change: Change) -> str:
    """*text* with tokens changed. Raises TokenError and SyntaxError on what is no Python."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    edits, depth = [], 0
    for index, token in enumerate(tokens):
        depth -= token.type == tokenize.OP and token.string in CLOSING
        new = change(tokens, index, depth)
        depth += token.type == tokenize.OP and token.string in OPENING
        if new is not None and token.start[0] == token.end[0]:
            edits.append((token.start[0] - 1, token.start[1], token.end[1], new))
    for row, start, end, new in reversed(edits):
        lines[row] = lines[row][:start] + new + lines[row][end:]
    return "".join(lines)


def touches(tokens: Tokens, index: int) -> bool:
    """True where the token follows a name without a blank."""
    return index > 0 and tokens[index - 1].type == tokenize.NAME and tokens[index - 1].end == tokens[index].start


def spaced_keywords(text: str) -> str:
    def change(tokens: Tokens, index: int, depth: int) -> str | None:
        return " = " if tokens[index].string == "=" and depth and touches(tokens, index) else None

    return rewritten(text, change)


def spaced_calls(text: str) -> str:
    def change(tokens: Tokens, index: int, depth: int) -> str | None:
        return " (" if tokens[index].string == "(" and touches(tokens, index) else None

    return rewritten(text, change)


def spaced_indices(text: str) -> str:
    def change(tokens: Tokens, index: int, depth: int) -> str | None:
        return {"[": "[ ", "]": " ]"}.get(tokens[index].string)

    return rewritten(text, change)


def tight_commas(text: str) -> str:
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    commas = [
        token.end for token, after in itertools.pairwise(tokens)
        if token.string == "," and after.start == (token.end[0], token.end[1] + 1)
    ]  # fmt: skip
    for row, column in reversed(commas):
        lines[row - 1] = lines[row - 1][:column] + lines[row - 1][column + 1 :]
    return "".join(lines)


def single_quotes(text: str) -> str:
    def change(tokens: Tokens, index: int, depth: int) -> str | None:
        token = tokens[index]
        plain = token.type == tokenize.STRING and re.fullmatch(r"\"[^\"'\\]*\"", token.string)
        return f"'{token.string[1:-1]}'" if plain else None

    return rewritten(text, change)


def annotated(text: str) -> str:
    return CALL_OR_NUMBER.sub(r'\1\2: "Any" = ', text)


def asynchronous(text: str) -> str:
    return re.sub(r"^( *)def ", r"\1async def ", text, flags=re.MULTILINE)


def aliased(text: str) -> str | None:
    """Every name that is imported from transformers gets another one, which says nothing."""
    spans = [match.span() for match in IMPORTED.finditer(text)]
    names = [
        part.split("#")[0].strip()
        for match in IMPORTED.finditer(text)
        for part in match["names"].strip("()").split(",")
    ]
    names = [name for name in names if name.isidentifier()]
    stored = any(re.search(rf"^ *{name} *=", text, re.MULTILINE) for name in names)
    if not names or stored or "kvlint:" in text or "getattr(" in text:
        return None
    other = {name: f"Zq{number}" for number, name in enumerate(names)}
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def change(tokens: Tokens, index: int, depth: int) -> str | None:
        token = tokens[index]
        if token.string not in other or (index and tokens[index - 1].string == "."):
            return None
        place = starts[token.start[0] - 1] + token.start[1]
        if any(start <= place < end for start, end in spans):
            return f"{token.string} as {other[token.string]}"
        keyword = tokens[index + 1].string == "=" and depth
        return None if keyword else other[token.string]

    return rewritten(text, change)


def inside(header: str, levels: int = 1) -> Callable[[str], str]:
    """The code as the body of something."""
    return lambda text: header + textwrap.indent(FUTURE.sub("", text), "    " * levels)


SPELLINGS = (
    Spelling("spaced-keywords", spaced_keywords),
    Spelling("spaced-calls", spaced_calls),
    Spelling("spaced-indices", spaced_indices),
    Spelling("tight-commas", tight_commas),
    Spelling("single-quotes", single_quotes),
    Spelling("annotated", annotated),
    Spelling("asynchronous", asynchronous),
    Spelling("aliased", aliased),
    Spelling("if", inside("if wanted():\n"), 1),
    Spelling("with", inside("with torch.no_grad():\n"), 1),
    Spelling("main", inside('if __name__ == "__main__":\n'), 1),
    Spelling("method", inside("class Example:\n    def run(self):\n", 2), 2),
)
