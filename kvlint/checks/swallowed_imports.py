"""Imports of a name that is gone behind ``except ImportError``, where what the other names were for is never done."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.evaluate import handler_names
from kvlint.analysis.facts import Facts, ImportUse
from kvlint.checks.bindings import tree_of
from kvlint.checks.symbols import IMPORT_ERRORS, SymbolReference, lacking
from kvlint.nodes import assignment, walk
from kvlint.releases import NO_RELEASE, ReleaseSet


def swallowed_imports(facts: Facts) -> Iterator[SymbolReference]:
    """Imports that fail on a release in force, in a function that gives up then.

    Only where the same statement imports names that are there, which the function goes on to use: it would work but for
    the one that is gone. An import of that one alone asks whether there is such a class, and is answered.
    """
    for item in facts.imports:
        statement, function = item.statement, item.place.function
        if not item.place.caught & IMPORT_ERRORS or item.place.typing_only or function is None:
            continue
        missing = item.place.releases & lacking(facts, item.qualified)
        if not missing or not isinstance(statement, ast.ImportFrom):
            continue
        if not gives_up(facts, statement):
            continue
        wrong = missing & working(facts, item, statement, function.node)
        if wrong:
            yield SymbolReference(item.qualified, wrong, item.node, facts.span(item.node), item.place, item, False)


def working(facts: Facts, item: ImportUse, statement: ast.ImportFrom, function: ast.AST) -> ReleaseSet:
    """Releases that have a name of the statement which the function goes on to use."""
    module = item.qualified.rpartition(".")[0]
    found = NO_RELEASE
    for alias in statement.names:
        if uses(function, {alias.asname or alias.name}):
            found |= facts.timeline.importable(f"{module}.{alias.name}")
    return found


def gives_up(facts: Facts, statement: ast.ImportFrom) -> bool:
    """True where the handler says something at most, and returns nothing, or False."""
    for node in tree_of(facts).ancestors(statement):
        if isinstance(node, ast.Try) and statement in node.body:
            handler = next((one for one in node.handlers if handler_names(one) & IMPORT_ERRORS), None)
            if handler is None or not isinstance(handler.body[-1], ast.Return):
                return False
            value = handler.body[-1].value
            nothing = value is None or (isinstance(value, ast.Constant) and not value.value)
            return nothing and all(isinstance(one, ast.Expr) for one in handler.body[:-1])
    return False


def uses(function: ast.AST, names: set[str]) -> bool:
    """True where a function calls one of the names or sets something on it."""
    for node in walk(function):
        targets, _ = assignment(node)
        flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        held = [target.value for target in flat if isinstance(target, ast.Attribute)]
        if isinstance(node, ast.Call):
            held += [node.func, *(node.args[:1] if getattr(node.func, "id", "") == "setattr" else ())]
        if any(isinstance(one, ast.Name) and one.id in names for one in held):
            return True
    return False


def swallowed_message(reference: SymbolReference) -> str:
    """What is said of such an import."""
    name = reference.qualified.rpartition(".")[2]
    function = reference.place.function
    shown = f"`{function.name}`" if function is not None else "the code"
    return f"`{name}` is not in transformers {{when}}: this import always fails, and {shown} gives up without a word"
