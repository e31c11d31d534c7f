"""A report of several chapters, written once and rendered three ways: for a terminal, as Markdown, as a page.

Text may hold `code` between backquotes. Whatever comes out of the linted files is data: no way of rendering obeys it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from kvlint.report._text import paint
from kvlint.report.full import visible


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Code, or a patch; a terminal shows its first *most* lines (0: all)."""

    text: str
    language: str
    most: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; numbers are right-aligned."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the linted files: where, the line there, and what is to be said of it."""

    where: str
    source: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Several places."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading inside of a chapter, with the address of a page about it ("" for none)."""

    text: str
    url: str = ""


Block = Paragraph | Listing | Table | Places | Heading


@dataclass(frozen=True, slots=True)
class Chapter:
    """A title and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The whole report."""

    title: str
    lead: tuple[str, ...]
    chapters: tuple[Chapter, ...]


# -- a terminal ---------------------------------------------------------------------------------------------------------


def as_text(document: Document, width: int, color: bool) -> str:
    """For a terminal that is *width* columns wide."""
    parts = [paint(visible(document.title), "bold", color), *(filled(text, width) for text in document.lead)]
    for chapter in document.chapters:
        parts += ["", paint(visible(chapter.title), "bold", color)]
        for block in chapter.blocks:
            parts += ["", *text_lines(block, width, color)]
    return "\n".join(parts) + "\n"


def filled(text: str, width: int, indent: str = "") -> str:
    """Prose, broken into lines; words are never torn apart."""
    return textwrap.fill(
        visible(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def text_lines(block: Block, width: int, color: bool) -> list[str]:
    if isinstance(block, Heading):
        return [paint(visible(block.text), "cyan", color)]
    if isinstance(block, Listing):
        return listing_lines(block, color)
    if isinstance(block, Table):
        return table_lines(block)
    if isinstance(block, Places):
        found: list[str] = []
        for place in block.places:
            found.append(f"  {paint(visible(place.where), 'bold', color)}  {visible(place.source)}".rstrip())
            found += [filled(remark, width, "      ") for remark in place.remarks]
        return found
    return [filled(block.text, width)]


def listing_lines(block: Listing, color: bool) -> list[str]:
    every = [visible(line) for line in block.text.rstrip("\n").split("\n")]
    shown = every[: block.most] if block.most else every
    if color and block.language == "diff":
        tones = {"+": "green", "-": "red", "@": "cyan"}
        shown = [paint(line, tones[line[0]], True) if line[:1] in tones else line for line in shown]
    if block.language == "console":
        shown = [f"    {line}" for line in shown]
    more = len(every) - len(shown)
    return [*shown, f"... {more:,} more line{'' if more == 1 else 's'}"] if more else shown


def table_lines(block: Table) -> list[str]:
    rows = [block.head, *block.rows]
    widths = [max(len(visible(row[number])) for row in rows) for number in range(len(block.head))]
    right = [numeric(block, number) for number in range(len(block.head))]
    return [
        "  "
        + "  ".join(
            visible(cell).rjust(wide) if high else visible(cell).ljust(wide)
            for cell, wide, high in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def numeric(block: Table, number: int) -> bool:
    """True for a column of numbers."""
    return all(row[number].replace(",", "").isdigit() for row in block.rows)


# -- Markdown -----------------------------------------------------------------------------------------------------------


def as_markdown(document: Document) -> str:
    """For a merge request, or a file beside the code."""
    parts = [f"# {prose(document.title)}", *map(prose, document.lead)]
    for chapter in document.chapters:
        parts.append(f"## {prose(chapter.title)}")
        parts += [markdown_of(block) for block in chapter.blocks]
    return "\n\n".join(parts) + "\n"


def markdown_of(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### [{prose(block.text)}]({block.url})" if block.url else f"### {prose(block.text)}"
    if isinstance(block, Listing):
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", block.text)), default=0))
        text = "\n".join(visible(line) for line in block.text.rstrip("\n").split("\n"))
        return f"{fence}{block.language}\n{text}\n{fence}"
    if isinstance(block, Table):
        rule = ["---:" if numeric(block, number) else "---" for number in range(len(block.head))]
        return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in (block.head, rule, *block.rows))
    if isinstance(block, Places):
        return "\n".join(
            "\n".join(
                [
                    f"* {code(place.where)} {code(place.source)}".rstrip(),
                    *(f"  <br>{prose(item)}" for item in place.remarks),
                ]
            )
            for place in block.places
        )
    return prose(block.text)


def cell(text: str) -> str:
    return prose(text).replace("|", "\\|") if not set(text) <= set("-:") else text


def prose(text: str) -> str:
    """Text in which only what stands between backquotes is code, and nothing else is markup."""
    pieces = visible(text).split("`")
    if len(pieces) % 2 == 0:
        return plain(visible(text).replace("`", "'"))
    return "".join(code(piece) if index % 2 else plain(piece) for index, piece in enumerate(pieces))


def plain(text: str) -> str:
    return re.sub(r"([\\*_\[\]<>#])", r"\\\1", text)


def code(text: str) -> str:
    """Code in a line, also where it holds backquotes."""
    text = visible(text)
    if not text:
        return ""
    tick = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{tick} {text} {tick}" if "`" in text else f"{tick}{text}{tick}"


# -- a page -------------------------------------------------------------------------------------------------------------


def as_html(document: Document) -> str:
    """One page that loads nothing."""
    parts = [
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n",
        '<meta name=viewport content="width=device-width, initial-scale=1">\n',
        f"<title>{escape(visible(document.title))}</title>\n<style>\n{stylesheet()}</style>\n<main>\n",
        f"<h1>{marked(document.title)}</h1>\n",
        *(f"<p>{marked(text)}</p>\n" for text in document.lead),
        navigation(document),
    ]
    for number, chapter in enumerate(document.chapters, 1):
        parts.append(f"<section id=c{number}>\n<h2>{marked(chapter.title)}</h2>\n")
        parts += [html_of(block) for block in chapter.blocks]
        parts.append("</section>\n")
    return "".join([*parts, "</main>\n</html>\n"])


@cache
def stylesheet() -> str:
    return Path(__file__).with_name("document.css").read_text(encoding="utf-8")


def navigation(document: Document) -> str:
    links = (f"<a href='#c{number}'>{marked(chapter.title)}</a>" for number, chapter in enumerate(document.chapters, 1))
    return f"<nav aria-label=Chapters>{''.join(links)}</nav>\n"


def html_of(block: Block) -> str:
    if isinstance(block, Heading):
        link = (
            f"<a href='{escape(block.url, quote=True)}'>{marked(block.text)}</a>" if block.url else marked(block.text)
        )
        return f"<h3>{link}</h3>\n"
    if isinstance(block, Listing):
        return f"<pre tabindex=0>{''.join(html_lines(block))}</pre>\n"
    if isinstance(block, Table):
        kinds = [" class=number" if numeric(block, number) else "" for number in range(len(block.head))]
        head = row(block.head, kinds, "th scope=col")
        body = "".join(row(cells, kinds, "td") for cells in block.rows)
        return f"<div class=table><table><thead>{head}</thead><tbody>{body}</tbody></table></div>\n"
    if isinstance(block, Places):
        return f"<ul class=places>{''.join(map(html_place, block.places))}</ul>\n"
    return f"<p>{marked(block.text)}</p>\n"


def row(cells: Sequence[str], kinds: Sequence[str], tag: str) -> str:
    name = tag.split()[0]
    inner = "".join(f"<{tag}{kind}>{marked(text)}</{name}>" for text, kind in zip(cells, kinds, strict=True))
    return f"<tr>{inner}</tr>"


def html_place(place: Place) -> str:
    source = f"<pre tabindex=0>{escape(visible(place.source))}</pre>" if place.source else ""
    remarks = "".join(f"<p>{marked(remark)}</p>" for remark in place.remarks)
    return f"<li><b>{escape(visible(place.where))}</b>{source}{remarks}</li>\n"


def html_lines(block: Listing) -> Iterable[str]:
    kinds = {"+": "plus", "-": "minus", "@": "at"} if block.language == "diff" else {}
    for line in block.text.rstrip("\n").split("\n"):
        kind = kinds.get(line[:1], "")
        text = escape(visible(line))
        yield f"<span class={kind}>{text}</span>\n" if kind else f"{text}\n"


def marked(text: str) -> str:
    """The text with what stands in backquotes as code."""
    pieces = escape(visible(text)).split("`")
    if len(pieces) % 2 == 0:
        return escape(visible(text))
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
