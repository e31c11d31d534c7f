"""Functions and classes that only some releases get to, because all that mentions them stands behind a guard.

``_legacy_pairs(cache)`` that is called for old releases only is looked at for those, and so is a class that is only the base
of what an ``else`` defines. Asked of all modules that are walked together; what nobody mentions may be called by anybody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvlint.analysis.facts import by_line
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.nodes import lines_with, walk_lines
from kvlint.releases import NO_RELEASE, ReleaseSet

if TYPE_CHECKING:
    from kvlint.analysis.evaluate import Walk

MAX_STEPS = 4
"""Functions behind functions behind a guard: so many steps are followed."""


def narrow(walks: list[Walk]) -> None:
    """Looks once more, for fewer releases, at what only some releases get to."""
    for _ in range(MAX_STEPS):
        if not sum(narrow_once(walk, walks) for walk in walks):
            return


def narrow_once(walk: Walk, walks: list[Walk]) -> bool:
    """One step for the functions and classes at the top of a module; False where nothing is new."""
    new = False
    guarded = any(other.reach for other in walks)
    functions = [
        info for info in walk.functions if info.owner is None and info.parent is None and walk.was_walked(info)
    ]
    items: list[FunctionInfo | ClassInfo] = [*functions, *walk.classes]
    for item in items:
        if not guarded and not called_under_a_guard(item, walk.target):
            continue
        reaching = reached_by_mentions(item, walks)
        if reaching is not None and not item.releases & walk.target <= reaching:
            item.releases &= reaching
            walk.narrow(inside(item, walk), item, reaching)
            new = True
    return new


def called_under_a_guard(item: FunctionInfo | ClassInfo, target: ReleaseSet) -> bool:
    """True for a function with a call that not every release gets to (``old(c) if OLD else c``: no line tells)."""
    return isinstance(item, FunctionInfo) and any(not target <= releases for releases in item.callers.values())


def inside(item: FunctionInfo | ClassInfo, walk: Walk) -> list[FunctionInfo]:
    """The function, or the methods of the class, and the functions inside of them."""
    found = [item] if isinstance(item, FunctionInfo) else [info for info in walk.functions if info.owner is item]
    for info in walk.functions:
        if info.parent is not None and info.parent in found and info not in found:
            found.append(info)
    return found


def reached_by_mentions(item: FunctionInfo | ClassInfo, walks: list[Walk]) -> ReleaseSet | None:
    """The releases that get to a mention of a function or class; None where it is mentioned nowhere, or by a string."""
    found, mentioned = NO_RELEASE, False
    callers = item.callers if isinstance(item, FunctionInfo) else {}
    for walk in walks:
        if item.name not in walk.text:
            continue
        lines = by_line(walk.reach)
        for node in mentions(walk, item):
            if isinstance(node, ast.Constant):
                return None
            mentioned = True
            found |= callers.get(id(node), walk.target) & lines.get(node.lineno, walk.target)
            if walk.target <= found:
                return None
    return found if mentioned else None


def mentions(walk: Walk, item: FunctionInfo | ClassInfo) -> Iterator[ast.expr]:
    """Where a module speaks of a function or class outside of its own code: its calls, its name, the name in a string."""
    called: set[int] = set()
    own = item.node
    for node in walk_lines(walk.tree, lines_with(walk.text, (item.name,))):
        if not isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Constant)):
            continue
        if walk.has(item) and own.lineno <= node.lineno <= (own.end_lineno or own.lineno):
            continue
        if isinstance(node, ast.Call) and named(node.func) == item.name:
            called.add(id(node.func))
            yield node
        elif named(node) == item.name and id(node) not in called:
            yield node


def named(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
