"""Writes a shim: a module that back-fills the members of transformers that some files still use, and nothing else.

The code comes from ``shim_members``, which is read as text: the members that are wanted, and whatever they use.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from kvlint import __version__
from kvlint.shim_needs import NONE, REORDER, Needs, places

WRITTEN_BY = "Written by kvlint"
"""Stands in the first lines of every shim: such a file may be overwritten."""
REGISTERING = ("adds", "for_old_code")
STEPS = {"adds": "add_missing", "for_old_code": "answer_old_code"}
ADAPTING = "adapt_old_classes"
PLACES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Part:
    """A top-level statement of the members' module: what it defines, uses and, with ``adds``, brings."""

    text: str
    bare: str
    """Without the marks that put it anywhere."""
    names: frozenset[str]
    uses: frozenset[str]
    key: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Members:
    """The members' module, taken apart."""

    imports: tuple[ast.stmt, ...]
    parts: tuple[Part, ...]
    keys: frozenset[str] = field(default=frozenset())


@cache
def members() -> Members:
    """Reads ``shim_members.py``."""
    text = Path(__file__).with_name("shim_members.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports = tuple(node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    parts = tuple(parts_of(tree.body[1:], text.splitlines()))
    return Members(imports, parts, frozenset(part.key for part in parts if part.key))


def parts_of(body: Sequence[ast.stmt], lines: Sequence[str]) -> Iterator[Part]:
    """The statements that are no imports; a string below an assignment belongs to it."""
    for number, node in enumerate(body):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_text(node):
            continue
        last = node
        if isinstance(node, ast.AnnAssign) and number + 1 < len(body) and is_text(body[number + 1]):
            last = body[number + 1]
        end = last.end_lineno or last.lineno
        decorators = getattr(node, "decorator_list", [])
        marks = [item for item in decorators if marking(item)]
        marked = marking(marks[0]) if marks else marking(node.value) if isinstance(node, ast.Expr) else None
        start = min([node.lineno, *(item.lineno for item in decorators)])
        dropped = {line for item in marks for line in range(item.lineno, (item.end_lineno or item.lineno) + 1)}
        bare = "\n".join(lines[line - 1] for line in range(start, end + 1) if line not in dropped)
        yield Part(
            text="\n".join(lines[start - 1 : end]),
            bare=bare,
            names=frozenset(defined(node)),
            uses=frozenset(item.id for item in ast.walk(node) if isinstance(item, ast.Name)),
            key=marked[1] if marked else "",
            mark=marked[0] if marked else "",
        )


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def marking(node: ast.expr) -> tuple[str, str] | None:
    """``("adds", "Cache.key_cache")`` of a decorator, or of ``adds("Cache.key_cache")(...)``."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in REGISTERING and isinstance(node.args[0], ast.Constant):
            return node.func.id, str(node.args[0].value)
        node = node.func
    return None


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def module(needs: Needs, target: str) -> str:
    """The text of the shim for the releases *target*; "" where there is nothing that it could bring."""
    wanted = places(needs.wants)
    methods = sorted({want.method for want in needs.wants if want.method is not None})
    if not wanted and not methods:
        return ""
    known = members()
    chosen = [part for part in known.parts if part.key in wanted]
    steps = {STEPS[part.mark] for part in chosen} | ({ADAPTING} if methods else set())
    install = next(part for part in known.parts if "install" in part.names)
    body = "\n".join(line for line in install.text.split("\n") if not calls_step(line) or called_step(line) in steps)
    needed = names_in(body)
    for part in chosen:
        needed |= part.uses
    included = closure(known.parts, needed)
    classes: dict[str, list[str]] = {}
    for cls, method in methods:
        classes.setdefault(cls, []).append(method)
    blocks = []
    for part in known.parts:
        if part is install:
            blocks.append(body)
        elif part in chosen:
            blocks.append(part.text.replace(f'{NONE}"', '"'))
        elif part in included:
            blocks.append(filled_in(part, needs.files, classes))
    code = joined(blocks)
    return (
        "\n\n".join(
            [
                head(needs, wanted, classes, target),
                "from __future__ import annotations",
                imports(known.imports, code),
                code,
            ]
        )
        + "\n"
    )


def calls_step(line: str) -> bool:
    return line.strip().startswith("done += ") and line.rstrip().endswith("()")


def called_step(line: str) -> str:
    return line.strip().removeprefix("done += ").removesuffix("()")


def names_in(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def closure(parts: Iterable[Part], needed: set[str]) -> list[Part]:
    """The parts that define what is needed, and what they use themselves."""
    by_name = {name: part for part in parts for name in part.names}
    found: dict[int, Part] = {}
    waiting = sorted(needed)
    while waiting:
        part = by_name.get(waiting.pop())
        if part is not None and id(part) not in found:
            found[id(part)] = part
            waiting += sorted(part.uses - set(REGISTERING))
    return list(found.values())


def filled_in(part: Part, files: Sequence[str], classes: dict[str, list[str]]) -> str:
    """A helper's text; the constants get their values."""
    if "OLD_FILES" in part.names:
        return part.text.replace("= ()", f"= {tuple_text(files)}", 1)
    if "OLD_CLASSES" in part.names:
        rows = "".join(f'    "{cls}": {tuple_text(methods)},\n' for cls, methods in classes.items())
        return part.text.replace("= {}", f"= {{\n{rows}}}" if rows else "= {}", 1)
    return part.bare


def tuple_text(items: Sequence[str]) -> str:
    inner = ", ".join(f'"{item}"' for item in items)
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def joined(blocks: Sequence[str]) -> str:
    """Two blank lines around functions and classes, none between constants."""
    parts = [blocks[0]]
    for before, block in pairwise(blocks):
        simple = not any(text.startswith(("def ", "class ", "@")) for text in (before, block))
        parts.append(("\n" if simple else "\n\n\n") + block)
    return "".join(parts)


def imports(statements: Iterable[ast.stmt], code: str) -> str:
    """The imports that the code uses, in the groups of the original."""
    used = names_in(code)
    standard: list[str] = []
    other: list[str] = []
    for node in statements:
        assert isinstance(node, (ast.Import, ast.ImportFrom))
        aliases = [item for item in node.names if (item.asname or item.name).split(".")[0] in used]
        if not aliases or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        names = ", ".join(item.name for item in aliases)
        line = f"from {node.module} import {names}" if isinstance(node, ast.ImportFrom) else f"import {names}"
        name = node.module or "" if isinstance(node, ast.ImportFrom) else aliases[0].name
        third_party = name.split(".")[0] in ("torch", "transformers", "packaging")
        (other if third_party else standard).append(line)
    return "\n\n".join("\n".join(group) for group in (standard, other) if group)


def head(needs: Needs, wanted: dict[str, list[str]], classes: dict[str, list[str]], target: str) -> str:
    """The docstring, which says what is patched, and a comment with what could not be mended."""
    known = {part.key: part.mark for part in members().parts if part.key}
    added = {key: where for key, where in wanted.items() if known[key] == "adds"}
    changed = {key: where for key, where in wanted.items() if known[key] != "adds"}
    lines = [
        *wrapped(
            f"Lets {listed(needs.files)} run on transformers {target}. {WRITTEN_BY} {__version__}; change it there."
        ),
        "",
        "Call ``install()`` before the model is loaded. What it patches:",
        "",
    ]
    for key, where in added.items():
        lines += bullet(f"{key.removesuffix(NONE)}: added where it is missing ({shown_places(where)})")
    for key, where in changed.items():
        lines += bullet(
            f"{key}: answers {listed(needs.files)} as it did; everybody else as before ({shown_places(where)})"
        )
    for cls, methods in classes.items():
        taking = [name for name in methods if name != REORDER]
        if taking:
            take = "takes" if len(taking) == 1 else "take"
            lines += bullet(
                f"{cls} of {listed(needs.files)}: {listed(taking)} {take} the cache by the library's name for it"
            )
        if REORDER in methods:
            lines += bullet(f"{cls} of {listed(needs.files)}: {REORDER} lets a cache object reorder itself")
    if any(want.late for want in needs.wants):
        late = sorted({want.method[0] for want in needs.wants if want.late and want.method is not None})
        lines += ["", *wrapped(f"Call it again once the file is imported: {listed(late)} can be adapted only then.")]
    lines += [
        "",
        *wrapped(
            "Nothing that exists is replaced for anybody but those files, so the library behaves as before. Code that "
            "asks ``hasattr`` for an added member now finds it."
        ),
    ]
    text = '"""' + "\n".join(lines) + '\n"""'
    if needs.leftovers:
        text += "\n\n# Not mended here, because no member that could be added would do it:"
        for item in needs.leftovers:
            place = f"{item.shown.rpartition('/')[2]}:{item.line}: {item.code} {item.message}"
            text += "\n" + "\n".join(textwrap.wrap(place, 110, initial_indent="# * ", subsequent_indent="#   "))
    return text


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)


def bullet(text: str) -> list[str]:
    return textwrap.wrap(
        text, 110, initial_indent="* ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def shown_places(where: Sequence[str]) -> str:
    more = f" and {len(where) - PLACES_SHOWN} more" if len(where) > PLACES_SHOWN else ""
    return ", ".join(where[:PLACES_SHOWN]) + more


def listed(items: Sequence[str]) -> str:
    return " and ".join((", ".join(items[:-1]), items[-1])) if len(items) > 1 else "".join(items)
