"""Comments that silence findings: ``# kvlint: ignore[KV204] why``, ``# noqa: KV204``, ``# kvlint: ignore-file``.

A comment counts for a finding when it stands on any line of the reported statement, or alone on the line directly
above it. Only real comments count (the text is tokenized), never strings that look like one.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvlint.errors import did_you_mean
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.selection import UNUSED_SUPPRESSION, expand, known_rules

MENTIONS = re.compile(rb"(?i)kvlint\s*:\s*ignore|#\s*noqa")
COULD_BE_UNUSED = re.compile(rb"(?i)kvlint\s*:\s*ignore|#\s*noqa\s*:[^\n]*\bKV\d")

IGNORES = re.compile(r"(?i)kvlint\s*:\s*ignore")

IGNORE = re.compile(r"#\s*kvlint\s*:\s*ignore(?P<file>-file)?(?![\w-])\s*(?:\[(?P<codes>[^\]\n]*)\])?", re.IGNORECASE)
NOQA = re.compile(r"#\s*noqa(?P<colon>\s*:\s*(?P<codes>[A-Z]+\d+(?:[\s,]+[A-Z]+\d+)*))?(?![\w])", re.IGNORECASE)
ITEM = re.compile(r"[^\s,]+")
HTML_COMMENT = re.compile(r"<!--(?P<words>[^\n]*?)-->")


@dataclass(frozen=True, slots=True)
class Item:
    """One code, prefix or name in a comment, with its place in the text."""

    text: str
    start: int
    end: int
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Comment:
    """A suppression comment. *items* is None for a bare one, which silences everything.

    *start* and *end* span the directive alone (other words may share the comment), *lines* are the 1-based lines on
    which a statement must stand for the comment to count, None for the whole file.
    """

    kind: str
    items: tuple[Item, ...] | None
    start: int
    end: int
    lines: frozenset[int] | None
    foreign: bool = False


def mentions(data: bytes) -> bool:
    """True where the bytes of a file may hold a suppression comment."""
    return MENTIONS.search(data) is not None


def could_be_unused(data: bytes) -> bool:
    """True where they may hold one that KV900 could complain about (a bare ``# noqa`` is other tools' too)."""
    return COULD_BE_UNUSED.search(data) is not None


def find_comments(text: str, prose: bool = False) -> tuple[Comment, ...]:
    """The suppression comments in Python source, in order. Source that cannot be tokenized has those up to there.

    In *prose* (Markdown) they are HTML comments: ``<!-- kvlint: ignore[KV701] why -->``.
    """
    found: list[Comment] = []
    starts = line_starts(text)
    if prose:
        for match in HTML_COMMENT.finditer(text):
            row = bisect_right(starts, match.start())
            line_end = starts[row] if row < len(starts) else len(text)
            alone = not (text[starts[row - 1] : match.start()] + text[match.end() : line_end]).strip()
            found += read_comment("#" + match["words"], match.start("words") - 1, row, alone)
        return tuple(found)
    code_before = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                alone = not code_before and not text[starts[row - 1] : starts[row - 1] + column].strip()
                found += read_comment(token.string, starts[row - 1] + column, row, alone)
            code_before = token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    except (tokenize.TokenError, SyntaxError):
        pass
    return tuple(found)


def read_comment(comment: str, offset: int, row: int, alone: bool) -> list[Comment]:
    """The directives of one comment that begins at *offset* on line *row*; *alone*: no code stands on that line."""
    lines = frozenset((row, row + 1) if alone else (row,))
    found = []
    for match in IGNORE.finditer(comment):
        whole_file = match["file"] is not None
        if whole_file and not alone:
            continue
        items = None if match["codes"] is None else read_items(comment, match.span("codes"), offset)
        found.append(
            Comment("ignore", items, offset + match.start(), offset + match.end(), None if whole_file else lines)
        )
    for match in NOQA.finditer(comment):
        if match["colon"] is None:
            found.append(Comment("noqa", None, offset + match.start(), offset + match.end(), frozenset((row,))))
            continue
        every = read_items(comment, match.span("codes"), offset)
        ours = tuple(item for item in every if item.text.upper().startswith("KV"))
        if ours:
            found.append(
                Comment(
                    "noqa",
                    ours,
                    offset + match.start(),
                    offset + match.end(),
                    frozenset((row,)),
                    len(ours) < len(every),
                )
            )
    return found


def read_items(comment: str, span: tuple[int, int], offset: int) -> tuple[Item, ...]:
    return tuple(
        Item(match[0], offset + match.start(), offset + match.end(), expand(match[0]))
        for match in ITEM.finditer(comment, *span)
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of the findings of a region, and what was silenced."""

    kept: tuple[Finding, ...]
    silenced: tuple[Finding, ...]


def apply(
    text: str,
    findings: Sequence[Finding],
    codes: frozenset[str],
    file_wide: Sequence[Comment] = (),
    prose: bool = False,
) -> Outcome:
    """Drops the findings of a region that a comment silences, and reports comments that silence nothing (KV900).

    *codes* are the rules in use: a comment for another rule is not unused. *file_wide* are comments of other regions
    of the file that hold for all of it.
    """
    comments = find_comments(text, prose) if findings or could_be_unused(text.encode("utf-8", "replace")) else ()
    if not comments and not file_wide:
        return Outcome(tuple(findings), ())
    starts = line_starts(text)
    used: set[tuple[int, int]] = set()
    kept: list[Finding] = []
    silenced: list[Finding] = []
    everywhere = (*(comment for comment in comments if comment.lines is None), *file_wide)
    near = by_line(comments)
    for finding in findings:
        lines = statement_lines(finding, starts)
        silent = silence(finding.code, [*on_lines(near, lines), *everywhere], used)
        (silenced if silent else kept).append(finding)
    if UNUSED_SUPPRESSION[0] in codes:
        explicit = tuple(comment for comment in comments if comment.items is not None)
        everywhere = tuple(comment for comment in explicit if comment.lines is None)
        near = by_line(explicit)
        for finding in unused(text, comments, codes, used):
            lines = statement_lines(finding, starts)
            silent = silence(finding.code, [*on_lines(near, lines), *everywhere], set())
            (silenced if silent else kept).append(finding)
    return Outcome(tuple(kept), tuple(silenced))


def file_wide_comments(text: str, prose: bool = False) -> tuple[Comment, ...]:
    """The ``ignore-file`` comments of a region."""
    if not IGNORES.search(text):
        return ()
    return tuple(comment for comment in find_comments(text, prose) if comment.lines is None)


def by_line(comments: Iterable[Comment]) -> dict[int, list[Comment]]:
    """The comments that hold for single lines, by line."""
    found: dict[int, list[Comment]] = {}
    for comment in comments:
        for line in comment.lines or ():
            found.setdefault(line, []).append(comment)
    return found


def on_lines(near: dict[int, list[Comment]], lines: range) -> list[Comment]:
    """Those that hold for one of the lines."""
    wanted = lines if len(lines) <= len(near) else [line for line in near if line in lines]
    return [comment for line in wanted for comment in near.get(line, ())]


def silence(code: str, comments: Iterable[Comment], used: set[tuple[int, int]]) -> bool:
    """True where one of the comments silences a finding of *code*; adds every place that does so to *used*."""
    silent = False
    for comment in comments:
        if comment.items is None:
            used.add((comment.start, comment.end))
            silent = True
            continue
        for item in comment.items:
            if code in item.codes:
                used.add((item.start, item.end))
                silent = True
    return silent


def unused(text: str, comments: Iterable[Comment], codes: frozenset[str], used: set[tuple[int, int]]) -> list[Finding]:
    """A KV900 finding for every comment, or code in one, that silenced nothing though its rules were in use."""
    found: list[Finding] = []
    for comment in comments:
        if comment.items is None:
            if comment.kind == "ignore" and (comment.start, comment.end) not in used:
                found.append(
                    report(comment.start, comment.end, "this comment silences nothing", whole_comment(text, comment))
                )
            continue
        unknown = [item for item in comment.items if not item.codes]
        idle = [item for item in comment.items if item.codes and not item_is_used(item, codes, used)]
        for item in unknown:
            candidates = [word for rule in known_rules() for word in (rule.code, rule.name)]
            message = f"{item.text!r} is not a rule{did_you_mean(item.text, candidates)}"
            found.append(report(item.start, item.end, message, ()))
        if not idle:
            continue
        if len(idle) == len(comment.items) and not comment.foreign:
            edits = whole_comment(text, comment)
        else:
            edits = tuple(without_item(text, item, comment) for item in idle)
        words = ", ".join(item.text for item in idle)
        found.append(report(idle[0].start, idle[-1].end, f"nothing here is silenced by {words}", edits))
    return found


def item_is_used(item: Item, codes: frozenset[str], used: set[tuple[int, int]]) -> bool:
    """True also where the item's rules, or some of them, are not in use: then nobody can know."""
    return (item.start, item.end) in used or not item.codes <= codes or item.codes == {UNUSED_SUPPRESSION[0]}


def report(start: int, end: int, message: str, edits: tuple[Edit, ...]) -> Finding:
    code, name = UNUSED_SUPPRESSION
    fix = Fix("Remove what silences nothing", Applicability.SAFE, edits) if edits else None
    return Finding(code, name, Category.META, start, end, message, fix=fix)


def whole_comment(text: str, comment: Comment) -> tuple[Edit, ...]:
    """Removes the directive with the reason written after it, and the line where nothing else stands on it.

    Another comment on the line (a further ``#``) is kept.
    """
    line_start = text.rfind("\n", 0, comment.start) + 1
    line_end = text.find("\n", comment.start)
    line_end = len(text) if line_end < 0 else line_end
    next_comment = text.find("#", comment.end, line_end)
    before = text[line_start : comment.start]
    if next_comment >= 0:
        return (Edit(comment.start, next_comment, ""),)
    if not before.strip():
        return (Edit(line_start, min(line_end + 1, len(text)), ""),)
    return (Edit(line_start + len(before.rstrip()), line_end, ""),)


def without_item(text: str, item: Item, comment: Comment) -> Edit:
    """Removes one code of several together with the separator after it, or before it where it is the last."""
    end = item.end
    while end < comment.end and text[end] in ", \t":
        end += 1
    if end < comment.end and text[end] != "]":
        return Edit(item.start, end, "")
    start = item.start
    while start > comment.start and text[start - 1] in ", \t":
        start -= 1
    return Edit(start, item.end, "")


def statement_lines(finding: Finding, starts: Sequence[int]) -> range:
    """The 1-based lines of the statement that a finding is about."""
    first = finding.statement_start if finding.statement_start >= 0 else finding.start
    last = max(finding.statement_end if finding.statement_end >= 0 else finding.end, first + 1)
    return range(bisect_right(starts, first), bisect_right(starts, last - 1) + 1)


def line_starts(text: str) -> list[int]:
    """The offset of every line's first character; lines end in a newline alone."""
    starts, position = [0], text.find("\n")
    while position >= 0:
        starts.append(position + 1)
        position = text.find("\n", position + 1)
    return starts
