"""``kvlint rule``: prints rule pages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from kvlint import rulebook
from kvlint.errors import UsageProblem
from kvlint.options import HELP, REPORT, RULES, GroupedCommand, option

PREFIX = re.compile(r"KV\d{0,2}\Z")
RELEASES = {"4": "the newest 4.x", "5": "the newest release"}


@click.command("rule", cls=GroupedCommand, context_settings=HELP)
@click.argument("wanted", metavar="CODE|PREFIX|NAME", required=False)
@option(RULES, "--all", "every", is_flag=True, help="Print every rule: a table, or every page in the other formats.")
@option(
    REPORT,
    "--output-format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="text is for a terminal, markdown is the page as it is written, json has its parts.",
)
def rule(wanted: str | None, every: bool, output_format: str) -> None:
    """Explain a rule: what it reports, why, and how to fix it.

    CODE is like KV204, NAME like cache-subscript. A PREFIX (KV2) lists the rules whose codes begin so.
    """
    if (wanted is None) != every:
        raise UsageProblem("name one rule (`kvlint rule KV204`), list some (`kvlint rule KV2`), or ask for --all")
    try:
        pages = rulebook.load()
        chosen = beginning(wanted, pages)
        listed = every or bool(chosen)
        if wanted is not None and not chosen:
            chosen = (rulebook.find(wanted, pages),)
    except rulebook.RulebookError as error:
        raise UsageProblem(f"the rulebook is damaged: {error}") from None
    except LookupError as error:
        raise UsageProblem(f"{error} (`kvlint rule --all` lists them)") from None
    if output_format == "json":
        parts = [_as_json(page) for page in chosen]
        click.echo(json.dumps(parts if listed else parts[0], indent=2, ensure_ascii=False))
    elif output_format == "markdown":
        click.echo("\n".join(as_markdown(page) for page in chosen), nl=False)
    elif listed:
        click.echo(_as_table(chosen), nl=False)
    else:
        _echo_text(chosen[0])


def beginning(prefix: str | None, pages: tuple[rulebook.Page, ...]) -> tuple[rulebook.Page, ...]:
    """The rules whose codes begin with *prefix* (``KV2``); all of them without one, none for anything that is no prefix."""
    if prefix is None:
        return pages
    if not PREFIX.match(prefix.upper()):
        return ()
    return tuple(page for page in pages if page.code.startswith(prefix.upper()))


def _as_json(page: rulebook.Page) -> dict[str, Any]:
    return {
        "code": page.code,
        "name": page.name,
        "categories": [category.value for category in page.categories],
        "summary": page.summary,
        "applies": page.applies,
        "fix": page.fix,
        "since": page.since,
        "question": page.question,
        "url": page.url,
        "sections": dict(page.sections),
    }


def as_markdown(page: rulebook.Page) -> str:
    """The page without what only the tests read: captions in place of fence attributes, no front matter."""
    categories = ", ".join(category.value for category in page.categories)
    facts = f"*{categories}*, transformers {page.applies}, fix: {page.fix}"
    asked = f"Before a fix that is not safe: {page.question}\n\n" if page.question else ""
    body = "\n".join(_captioned(page))
    return f"# {page.code} {page.name}\n\n{page.summary}.\n\n{facts}\n\n{asked}{body}\n"


def _captioned(page: rulebook.Page) -> Iterator[str]:
    """The lines of the body, with each example's fence reduced to its language and a caption above it."""
    lines = page.body.rstrip("\n").split("\n")
    offset = page.first_line
    blocks = {block.line - offset: block for block in page.blocks}
    for index, line in enumerate(lines):
        block = blocks.get(index)
        if block is None:
            yield line
            continue
        yield f"{_caption(block)}:"
        yield ""
        yield line[: len(line) - len(line.lstrip("`"))] + block.language


def _caption(block: rulebook.Block) -> str:
    """What the fence says, in words."""
    attributes = block.attributes
    words = {"bad": "Wrong", "fixed": "What the fix makes of it", "good": "Right", "setup": "Before the examples"}
    said = []
    if "target" in attributes:
        said.append(f"for target {attributes['target']}")
    if "raises" in attributes:
        said.append(f"raises {attributes['raises'].partition(':')[0]}")
    if "warns" in attributes:
        said.append(f"warns: {attributes['warns'].partition(': ')[2] or attributes['warns']}")
    if "silent" in attributes:
        said.append(f"afterwards, without an error, {attributes['silent']}")
    places = attributes.get("on", "").split()
    if places and block.role == "bad":
        said.append("on " + " and ".join(RELEASES[place] for place in places))
    if "works" in attributes and block.role == "bad":
        said.append("works on " + " and ".join(RELEASES[place] for place in attributes["works"].split()))
    return words[block.role] + (f" ({'; '.join(said)})" if said else "")


def _as_table(pages: tuple[rulebook.Page, ...]) -> str:
    """One line a rule: code, name, categories, summary."""
    rows = [(page.code, page.name, ", ".join(category.value for category in page.categories)) for page in pages]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + f"  {page.summary}\n"
        for row, page in zip(rows, pages, strict=True)
    )


def _echo_text(page: rulebook.Page) -> None:
    text = as_markdown(page)
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
