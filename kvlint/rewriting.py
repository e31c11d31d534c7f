"""Builders of fixes: text edits made from syntax nodes. LibCST is imported only when a call has to be rewritten."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvlint.analysis.facts import Facts
from kvlint.findings import Edit

if TYPE_CHECKING:
    import libcst


def replace_node(facts: Facts, node: ast.AST, text: str) -> Edit:
    """Replaces the source of *node*."""
    start, end = facts.span(node)
    return minimal(facts.text, start, end, text)


NAME = re.compile(r"[^\W\d]\w*")


def minimal(text: str, start: int, end: int, new: str) -> Edit:
    """The smallest edit that turns ``text[start:end]`` into *new*: common beginnings and ends are left alone.

    Not where the new part repeats a name of the rest: renaming that name must not go into the same round.
    """
    old = text[start:end]
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    added, kept = new[head : len(new) - tail], old[:head] + " " + old[len(old) - tail :]
    if set(NAME.findall(added)) & set(NAME.findall(kept)):
        return Edit(start, end, new)
    return Edit(start + head, end - tail, added)


def has_comment(text: str) -> bool:
    """True where the piece of code holds a comment, which a rewrite of it would lose."""
    if "#" not in text:
        return False
    try:
        return any(
            token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline)
        )
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return True


def is_plain(node: ast.expr) -> bool:
    """True for an expression that can be repeated or dropped: names, attributes, constants and constant subscripts."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    if isinstance(node, ast.Attribute):
        return is_plain(node.value)
    if isinstance(node, ast.Subscript):
        return is_plain(node.value) and is_plain(node.slice)
    if isinstance(node, ast.UnaryOp):
        return is_plain(node.operand)
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(is_plain(item) for item in node.elts)
    if isinstance(node, ast.BinOp):
        return is_plain(node.left) and is_plain(node.right)
    return False


def can_be_dropped(node: ast.expr) -> bool:
    """True for an expression that does nothing but have a value."""
    does = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return not any(isinstance(part, does) for part in ast.walk(node))


def parenthesised(source: str, node: ast.expr) -> str:
    """*source*, in parentheses where *node* binds weaker than an attribute access."""
    strong = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Tuple, ast.List, ast.Dict, ast.Set)
    return (
        source
        if (isinstance(node, strong) and source[:1] != "(")
        or (source.startswith("(") and source.endswith(")") and isinstance(node, ast.Tuple))
        else f"({source})"
    )


def rewrite_call(facts: Facts, node: ast.Call, change: Callable[[libcst.Call], libcst.Call]) -> Edit | None:
    """The edit that makes *change* to a call; None where LibCST cannot read it or a comment would be lost."""
    import libcst

    start, end = facts.span(node)
    source = facts.text[start:end]
    try:
        parsed = libcst.parse_expression(source)
    except (libcst.ParserSyntaxError, RecursionError):
        return None
    if not isinstance(parsed, libcst.Call):
        return None
    new = libcst.Module([]).code_for_node(change(parsed))
    if source.count("#") != new.count("#"):
        return None
    return minimal(facts.text, start, end, new)


def without_arguments(call: libcst.Call, drop: Callable[[int, libcst.Arg], bool]) -> libcst.Call:
    """The call without the arguments that *drop* (index, argument) names; commas and layout of the others stay."""
    import libcst

    kept = [arg for index, arg in enumerate(call.args) if not drop(index, arg)]
    if kept and len(kept) != len(call.args) and call.args[-1] is not kept[-1]:
        kept[-1] = kept[-1].with_changes(
            comma=call.args[-1].comma, whitespace_after_arg=call.args[-1].whitespace_after_arg
        )
    changed = call.with_changes(args=kept)
    if not kept:
        changed = changed.with_changes(whitespace_before_args=libcst.SimpleWhitespace(""))
    return changed


def as_keyword(arg: libcst.Arg, name: str) -> libcst.Arg:
    """A positional argument, passed by keyword."""
    import libcst

    return arg.with_changes(
        keyword=libcst.Name(name),
        equal=libcst.AssignEqual(libcst.SimpleWhitespace(""), libcst.SimpleWhitespace("")),
    )


def with_argument(call: libcst.Call, argument: str) -> libcst.Call:
    """The call with one more argument, written as code, behind the others."""
    import libcst

    parsed = libcst.parse_expression(f"f({argument})")
    assert isinstance(parsed, libcst.Call)
    added = parsed.args[0]
    if not call.args:
        return call.with_changes(args=[added])
    last = call.args[-1]
    if isinstance(last.comma, libcst.Comma):
        separator = (
            call.args[0].comma if len(call.args) > 1 else libcst.Comma(whitespace_after=libcst.SimpleWhitespace(" "))
        )
        added = added.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
        return call.with_changes(args=[*call.args[:-1], last.with_changes(comma=separator), added])
    comma = call.args[0].comma if len(call.args) > 1 else libcst.Comma(whitespace_after=libcst.SimpleWhitespace(" "))
    added = added.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    before = last.with_changes(comma=comma, whitespace_after_arg=libcst.SimpleWhitespace(""))
    return call.with_changes(args=[*call.args[:-1], before, added])


def keyword_edit(facts: Facts, keyword: ast.keyword, new: str) -> Edit:
    """Renames a keyword argument in place."""
    start, _ = facts.span(keyword)
    assert keyword.arg is not None
    return Edit(start, start + len(keyword.arg), new)


def attribute_edit(facts: Facts, node: ast.Attribute, new: str) -> Edit:
    """Replaces the name behind the last dot of an attribute."""
    _, end = facts.span(node)
    return Edit(end - len(node.attr), end, new)


def drop_keywords(facts: Facts, node: ast.Call, names: Sequence[str]) -> Edit | None:
    """Removes keyword arguments whose values can be dropped without anybody noticing."""
    for keyword in node.keywords:
        if keyword.arg in names and not can_be_dropped(keyword.value):
            return None
    return rewrite_call(
        facts,
        node,
        lambda call: without_arguments(call, lambda _, arg: arg.keyword is not None and arg.keyword.value in names),
    )
