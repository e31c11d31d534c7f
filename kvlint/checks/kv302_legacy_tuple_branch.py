"""``isinstance(past_key_values, tuple)`` where the library hands over a cache object: the branch is never taken."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import Facts, TestUse
from kvlint.analysis.recorder import path_of
from kvlint.analysis.values import CacheObject, Certainty, NoneValue, Value
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.receivers import describe
from kvlint.checks.words import CACHE_WORDS, KNOWN_CACHE, TUPLE_WORDS
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import assignment, walk
from kvlint.rewriting import has_comment, parenthesised

CONVERSIONS = ("Cache", "from_legacy_cache")


class LegacyTupleBranch(Check):
    """Reports tests for a tuple that a cache object never passes; silent where only that branch looks at the past."""

    triggers = ("isinstance",)
    also = (TUPLE_WORDS, CACHE_WORDS)
    pattern = KNOWN_CACHE
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "library-passes-cache-objects")
        for use in facts.tests:
            if use.kind != "is-tuple" or not isinstance(use.owner_node, (ast.If, ast.IfExp)):
                continue
            cache = proven(use.value)
            wrong = life & use.place.releases
            if cache is None or not wrong or use.owner_node.test is not use.node:
                continue
            lost = is_lost(use)
            if not lost and wrong != use.place.releases:
                continue
            name = facts.source(use.subject)
            message = f"`{name}` is {describe(cache)}, never a tuple, {{when}}: "
            if lost:
                message += "the branch that reads it is not taken, as if there were no past"
            else:
                message += "this branch is dead"
            yield self.finding(
                facts,
                use.node,
                use.place,
                message,
                releases=wrong,
                life=life,
                help=f"ask the cache: `{name}.get_seq_length()`" if lost else "keep the other branch only",
                category=Category.SILENT if lost else Category.DEPRECATED,
                origin=cache.origin,
                fix=None if lost else keep_other(facts, use),
            )


def proven(value: Value) -> CacheObject | None:
    """The cache, where the value is one (or None) beyond doubt."""
    found: CacheObject | None = None
    for atom in value:
        if isinstance(atom, NoneValue):
            continue
        if not isinstance(atom, CacheObject) or atom.certainty < Certainty.PROVEN or atom.source == "annotation":
            return None
        found = atom
    return found


def is_lost(use: TestUse) -> bool:
    """True where the other way ignores the past: a constant, or nothing at all while the branch computes something."""
    owner, path = use.owner_node, path_of(use.subject)
    if isinstance(owner, ast.IfExp):
        return isinstance(owner.orelse, ast.Constant) and mentions(owner.body, path)
    if not isinstance(owner, ast.If) or owner.orelse:
        return False
    body = ast.Module(owner.body, [])
    if any(isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break)) for node in walk(body)):
        return False
    if any(word in ast.dump(node.func) for node in walk(body) if isinstance(node, ast.Call) for word in CONVERSIONS):
        return False
    assigned = [target for node in owner.body for target in assignment(node)[0]]
    reads = any(isinstance(node, ast.Subscript) and path_of(node).startswith(path + "[") for node in walk(body))
    return reads and bool(assigned) and not any(path_of(target) == path for target in assigned)


def mentions(node: ast.AST, path: str) -> bool:
    return any(path_of(other) == path for other in walk(node))


def keep_other(facts: Facts, use: TestUse) -> Fix | None:
    """``a if isinstance(x, tuple) else b`` becomes ``b``, and so does the statement."""
    owner = use.owner_node
    if isinstance(owner, ast.If):
        edit = without_branch(facts, owner)
        return Fix("Keep the branch that is taken", Applicability.UNSAFE, (edit,)) if edit is not None else None
    if not isinstance(owner, ast.IfExp):
        return None
    start, end = facts.span(owner)
    if has_comment(facts.text[start:end]):
        return None
    text = facts.source(owner.orelse)
    if isinstance(owner.orelse, (ast.IfExp, ast.Lambda, ast.BoolOp, ast.Compare, ast.BinOp)):
        text = parenthesised(text, owner.orelse)
    return Fix("Keep the branch that is taken", Applicability.UNSAFE, (Edit(start, end, text),))


def without_branch(facts: Facts, owner: ast.If) -> Edit | None:
    """The edit that leaves the ``else`` of a statement, one level further out, or the ``elif`` as the new ``if``.

    None where the layout is not the usual one: an ``elif`` itself, suites on one line, strings over several lines.
    """
    index, text = facts.index, facts.text
    start, end = index.line_start(owner.lineno), index.line_end(owner.end_lineno or owner.lineno)
    indent = text[start : start + owner.col_offset]
    if indent.strip() or not text.startswith("if", start + owner.col_offset) or not owner.orelse:
        return None
    first = owner.orelse[0]
    line = index.line_start(first.lineno)
    if isinstance(first, ast.If) and len(owner.orelse) == 1 and text.startswith(indent + "elif", line):
        return Edit(start, line + len(indent) + len("elif"), indent + "if")
    inner = text[line : line + first.col_offset]
    above = owner.body[-1].end_lineno or owner.lineno
    header = next((n for n in range(above + 1, first.lineno) if line_text(facts, n).startswith(indent + "else")), None)
    if header is None or inner.strip() or not inner.startswith(indent) or spans_lines(owner.orelse):
        return None
    kept = text[index.line_start(header + 1) : end].split("\n")
    if any(row.strip() and not row.startswith(inner) for row in kept):
        return None
    return Edit(start, end, "\n".join(indent + row[len(inner) :] if row.strip() else row for row in kept))


def line_text(facts: Facts, line: int) -> str:
    return facts.text[facts.index.line_start(line) : facts.index.line_end(line)]


def spans_lines(body: list[ast.stmt]) -> bool:
    """True where a string goes over several lines, so that moving the lines would change it."""
    return any(
        isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno
        for statement in body
        for node in walk(statement)
    )
