"""The rule pages: where they lie, what stands in them, and their pairing with the check modules.

A rule is two files named alike: a page, ``rules/KV204-cache-subscript.md``, and a module,
``kvlint/checks/kv204_cache_subscript.py``. Rules of the category ``meta`` (syntax errors, ignore comments) come out
of the engine itself and have a page only. ``rules/README.md`` describes the format of a page.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from kvlint.findings import Category

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

URL = "https://github.com/kvlint/kvlint/blob/main/rules/{stem}.md"

HEADINGS = ("What it does", "Why it matters", "How to fix", "When not to", "Fix safety", "Evidence")
"""The level-two headings of every page, in this order."""

FIX_KINDS = ("safe", "unsafe", "shown", "sometimes", "none")

LANGUAGES = ("python", "json")
ROLES = ("bad", "fixed", "good", "setup")
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "bad": frozenset(
        {"target", "setup", "on", "raises", "warns", "silent", "works", "elsewhere", "norun", "not_in"},
    ),
    "fixed": frozenset({"fix", "on", "works", "check", "norun"}),
    "good": frozenset({"target", "setup", "on", "works", "check", "norun"}),
    "setup": frozenset(),
}
"""The attributes that a fence of each role may carry."""

MARKER = re.compile(r"[ \t]*#[ \t]*(KV\d{3}(?:[ ,]+KV\d{3})*)[ \t]*$")
_STEM = re.compile(r"(KV\d{3})-([a-z0-9]+(?:-[a-z0-9]+)*)")
_FENCE = re.compile(r"^(`{3,})(.*)$")
_HEADING = re.compile(r"^## (.+?)\s*$")
_KEYS = {"code", "name", "category", "summary", "applies", "fix", "since"}
_OPTIONAL_KEYS = {"setup", "question"}


class RulebookError(Exception):
    """A page that does not keep to the format, or a page and a check that lack each other; says which file and what."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced example. *text* is its source without the marker comments, *marks* the marked places.

    *line* is the line of the opening fence in the page, *marks* holds (1-based line of *text*, code) pairs.
    """

    language: str
    role: str
    text: str
    line: int
    attributes: Mapping[str, str]
    marks: frozenset[tuple[int, str]]

    @property
    def marked(self) -> str:
        """The text as it stands on the page, with its markers (ends of line, two spaces in front)."""
        lines = self.text.split("\n")
        for number in sorted({line for line, _ in self.marks}):
            codes = " ".join(sorted(code for line, code in self.marks if line == number))
            lines[number - 1] += f"  # {codes}"
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Page:
    """A rule page: its front matter, its sections (heading to Markdown text) and its fenced examples, in order.

    *body* is the Markdown after the front matter; its first line is line *first_line* of the file.
    """

    path: Path
    code: str
    name: str
    categories: tuple[Category, ...]
    summary: str
    applies: str
    fix: str
    since: str
    setup: str
    question: str
    """What a person has to answer before a fix that is not safe is applied; "" where nothing is asked."""
    body: str
    first_line: int
    sections: Mapping[str, str]
    blocks: tuple[Block, ...] = field(repr=False)

    @property
    def category(self) -> Category:
        """The category named first: the one the rule mostly reports."""
        return self.categories[0]

    @property
    def module(self) -> str:
        """The name of the check module that belongs to the page."""
        return f"{self.code.lower()}_{self.name.replace('-', '_')}"

    @property
    def url(self) -> str:
        """Where the page can be read in a browser."""
        return page_url(self.code, self.name)


def page_url(code: str, name: str) -> str:
    """The address of the page of the rule *code* called *name*."""
    return URL.format(stem=f"{code}-{name}")


def folder() -> Path:
    """The folder that holds the pages: inside the installed package, or beside the package in a checkout.

    Raises RulebookError where neither exists.
    """
    package = Path(__file__).parent
    for candidate in (package / "_rules", package.parent / "rules"):
        if candidate.is_dir():
            return candidate
    raise RulebookError(
        f"the rule pages are missing: there is neither {package / '_rules'} nor {package.parent / 'rules'}"
    )


def parse(path: Path, text: str) -> Page:
    """Reads one page. Raises RulebookError, with the line where one can be named, if it breaks the format."""

    def wrong(what: str, line: int | None = None) -> RulebookError:
        return RulebookError(f"{path.name}{f':{line}' if line else ''}: {what}")

    stem = _STEM.fullmatch(path.stem)
    if stem is None:
        raise wrong("a page is called KVNNN-name.md")
    lines = text.split("\n")
    if lines[0] != "+++" or "+++" not in lines[1:]:
        raise wrong("a page starts with TOML between two +++ lines", 1)
    close = lines.index("+++", 1)
    try:
        front = tomllib.loads("\n".join(lines[1:close]))
    except tomllib.TOMLDecodeError as error:
        raise wrong(f"the front matter is not TOML: {error}") from None
    _check_keys(front, wrong)
    if (front["code"], front["name"]) != stem.groups():
        raise wrong(f"the front matter says {front['code']}-{front['name']}")
    names = front["category"] if isinstance(front["category"], list) else [front["category"]]
    known = {category.value: category for category in Category if category is not Category.UNDECIDED}
    if not names or any(name not in known for name in names):
        raise wrong(f"category is one of {', '.join(known)}, or a list of them")
    if front["fix"] not in FIX_KINDS:
        raise wrong(f"fix is one of {', '.join(FIX_KINDS)}")
    first = next((number for number in range(close + 1, len(lines)) if lines[number].strip()), close + 1)
    sections, blocks = _read_body(lines, first, wrong)
    if tuple(sections) != HEADINGS:
        raise wrong(f"the headings are {', '.join(HEADINGS)}, in this order; found {', '.join(sections) or 'none'}")
    return Page(
        path=path,
        code=front["code"],
        name=front["name"],
        categories=tuple(known[name] for name in names),
        summary=front["summary"],
        applies=front["applies"],
        fix=front["fix"],
        since=front["since"],
        setup=front.get("setup", ""),
        question=front.get("question", ""),
        body="\n".join(lines[first:]).rstrip("\n") + "\n",
        first_line=first + 1,
        sections=sections,
        blocks=blocks,
    )


def _check_keys(front: Mapping[str, Any], wrong: Any) -> None:
    missing, unknown = _KEYS - set(front), set(front) - _KEYS - _OPTIONAL_KEYS
    if missing or unknown:
        raise wrong(
            "front matter: "
            + "; ".join(
                [f"{key} is missing" for key in sorted(missing)] + [f"{key} is not a key" for key in sorted(unknown)]
            )
        )
    for key in set(front) - {"category"}:
        if not isinstance(front[key], str) or "\n" in front[key]:
            raise wrong(f"front matter: {key} is one line of text")
    if not front.get("question", "?").endswith("?"):
        raise wrong("front matter: question ends with a question mark")


def _read_body(lines: list[str], start: int, wrong: Any) -> tuple[dict[str, str], tuple[Block, ...]]:
    sections: dict[str, list[str]] = {}
    blocks: list[Block] = []
    heading: str | None = None
    index = start
    while index < len(lines):
        fence = _FENCE.match(lines[index])
        if fence is None:
            title = _HEADING.match(lines[index])
            if title is not None:
                heading = title.group(1)
                if heading in sections:
                    raise wrong(f"the heading {heading!r} stands there twice", index + 1)
                sections[heading] = []
            elif heading is not None:
                sections[heading].append(lines[index])
            index += 1
            continue
        end = next((i for i in range(index + 1, len(lines)) if lines[i].rstrip() == fence.group(1)), None)
        if end is None:
            raise wrong("the fence is not closed", index + 1)
        block = _read_fence(fence.group(2), lines[index + 1 : end], index + 1, wrong)
        if block is not None:
            blocks.append(block)
        if heading is not None:
            sections[heading].extend(lines[index : end + 1])
        index = end + 1
    return {title: "\n".join(body).strip("\n") for title, body in sections.items()}, tuple(blocks)


def _read_fence(info: str, body: list[str], line: int, wrong: Any) -> Block | None:
    """The block of a fence, or None for a fence that only shows something (no role after the language)."""
    try:
        words = shlex.split(info)
    except ValueError as error:
        raise wrong(f"the fence line cannot be read: {error}", line) from None
    if len(words) < 2:
        return None
    language, role, *rest = words
    if language not in LANGUAGES or role not in ROLES:
        raise wrong(f"a fence is one of {', '.join(LANGUAGES)} with one of {', '.join(ROLES)}; found {info!r}", line)
    attributes: dict[str, str] = {}
    for word in rest:
        key, _, value = word.partition("=")
        if key not in ATTRIBUTES[role]:
            raise wrong(f"{key!r} is no attribute of a {role} fence: {', '.join(sorted(ATTRIBUTES[role]))}", line)
        if key in attributes:
            raise wrong(f"the attribute {key} stands there twice", line)
        attributes[key] = value
    marks: set[tuple[int, str]] = set()
    plain: list[str] = []
    for number, text in enumerate(body, 1):
        marker = MARKER.search(text)
        if marker is not None:
            marks.update((number, code) for code in re.findall(r"KV\d{3}", marker.group(1)))
            text = text[: marker.start()]
        plain.append(text)
    if marks and role != "bad":
        raise wrong(f"only bad fences carry markers, this {role} fence has one", line)
    if not marks and role == "bad":
        raise wrong("a bad fence marks at least one line", line)
    return Block(language, role, "\n".join(plain) + "\n", line, attributes, frozenset(marks))


def read_pages(directory: Path | None = None) -> tuple[Page, ...]:
    """Every page of *directory* (default: the project's own), by code, whether or not its check exists.

    Raises RulebookError for a page that breaks the format or a code or name that stands on two pages.
    """
    directory = folder() if directory is None else directory
    pages = [parse(path, path.read_text(encoding="utf-8")) for path in sorted(directory.glob("KV*.md"))]
    seen: dict[str, Page] = {}
    for page in pages:
        for key in (page.code, page.name):
            if key in seen:
                raise RulebookError(f"{page.path.name}: {key} is the rule of {seen[key].path.name} already")
            seen[key] = page
    return tuple(pages)


def unpaired(pages: Iterable[Page], checks: Path | None = None) -> tuple[str, ...]:
    """What lacks its other half, one sentence each: pages without a check module, check modules without a page."""
    checks = Path(__file__).parent / "checks" if checks is None else checks
    modules = {path.stem for path in checks.glob("kv[0-9][0-9][0-9]_*.py")}
    wanted = {page.module: page for page in pages}
    without_check = [
        f"the page {page.path.name} has no check kvlint/checks/{module}.py"
        for module, page in wanted.items()
        if module not in modules and page.category is not Category.META
    ]
    without_page = [
        f"the check kvlint/checks/{module}.py has no page rules/{module[:5].upper()}-{module[6:].replace('_', '-')}.md"
        for module in modules - set(wanted)
    ]
    return tuple(sorted(without_check + without_page))


@cache
def load() -> tuple[Page, ...]:
    """The rulebook: every page, by code. Refuses (RulebookError) while a page and its check are not both there."""
    pages = read_pages()
    lonely = unpaired(pages)
    if lonely:
        raise RulebookError("; ".join(lonely))
    return pages


def find(wanted: str, pages: Iterable[Page]) -> Page:
    """The page with this code or name (any case). Raises LookupError with a suggestion where there is none."""
    by_key = {key: page for page in pages for key in (page.code.lower(), page.name)}
    page = by_key.get(wanted.lower())
    if page is not None:
        return page
    close = get_close_matches(wanted.lower(), by_key, n=1)
    hint = ""
    if close:
        near = by_key[close[0]]
        hint = f"; did you mean {near.code} ({near.name})?"
    raise LookupError(f"no rule is called {wanted!r}{hint}")
