"""A migration as a report, in the order in which a person works through it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from kvlint.diagnostics import Diagnostic
from kvlint.documents import Block, Chapter, Document, Heading, Listing, Paragraph, Place, Places, Table
from kvlint.findings import Category
from kvlint.migration import Group, Migration
from kvlint.report._patch import patch
from kvlint.report._text import count, place
from kvlint.rulebook import Page, load

PATCH_LINES = 80
"""So many lines of the patch are shown on a terminal."""


def document(found: Migration, paths: Sequence[str], written: bool) -> Document:
    """The report on a migration of *paths*; *written*: its safe fixes are in the files already."""
    way = found.journey
    pages = {page.code: page for page in load()}
    arguments = " ".join(map(shlex.quote, paths))
    chapters = [
        Chapter("1. What breaks, by release", tuple(breaking(found))),
        Chapter("2. What is fixed for you", tuple(fixes(found, arguments, written))),
        Chapter("3. What needs a look", tuple(looks(found, pages, arguments))),
        Chapter("4. What is left by hand", tuple(by_hand(found, pages))),
        Chapter("5. Which pins to raise", tuple(pins(found))),
    ]
    if found.unread:
        text = "kvlint cannot say anything about these places:"
        chapters.append(Chapter("6. What could not be read", (Paragraph(text), places(found.unread))))
    return Document(f"From transformers {way.start_text} to {way.end_text}", lead(found, written), tuple(chapters))


def lead(found: Migration, written: bool) -> tuple[str, ...]:
    """What it is about, and the numbers."""
    way = found.journey
    lines = [
        f"From {way.start_text} ({way.start_source}) to {way.end_text} ({way.end_source}); {count(found.files, 'file')}."
    ]
    look, hand = (sum(len(group.found) for group in groups) for groups in (found.look, found.by_hand))
    if not (found.applied or look or hand):
        lines.append(f"Nothing to do: no use is wrong on {way.end_text}.")
    else:
        done = "fixed" if written else "fixed by --apply"
        lines.append(f"{count(found.applied, 'finding')} {done}, {look:,} to look at, {hand:,} left by hand.")
    if found.deprecated:
        uses = count(found.deprecated, "use")
        lines.append(
            f"{uses} still work{'s' if found.deprecated == 1 else ''} there and will be removed later (--show deprecated)."
        )
    return tuple(lines)


def breaking(found: Migration) -> Iterable[Block]:
    way = found.journey
    stages = [(f"{way.start_text} already", found.before)] if found.before else []
    stages += [(stage.label, stage.found) for stage in found.stages]
    if not stages:
        yield Paragraph(f"Nothing that works on {way.start_text} is wrong on {way.end_text}.")
        return
    yield Paragraph(
        f"Uses that are wrong on {way.end_text}, by the release from which on they are. Silent ones raise nothing."
    )
    yield Table(("from", "rule", "break", "silent"), tuple(row for stage in stages for row in rows_of(*stage)))


def rows_of(label: str, found: Sequence[Diagnostic]) -> Iterable[tuple[str, ...]]:
    """A row for each rule: how many of its uses break, and how many are silently wrong."""
    silent = Counter(item.code for item in found if item.category is Category.SILENT)
    for number, ((code, name), total) in enumerate(sorted(Counter((item.code, item.name) for item in found).items())):
        yield label if not number else "", f"{code} {name}", f"{total - silent[code]:,}", f"{silent[code]:,}"


def fixes(found: Migration, arguments: str, written: bool) -> Iterable[Block]:
    """The safe fixes, as one patch."""
    way = found.journey
    if not found.fixed:
        yield Paragraph("No finding has a fix that is safe to apply without a look.")
        return
    size = f"{count(found.applied, 'finding')} in {count(len(found.fixed), 'file')}"
    if written:
        yield Paragraph(f"Written: {size}.")
    else:
        yield Paragraph(f"`kvlint migrate --apply` writes this ({size}), as does:")
        yield Listing(f"kvlint --fix --target {way.end_text} {arguments}", "console")
    changes = b"".join(patch(item.shown, item.original, item.fixed or b"") for item in found.fixed)
    yield Listing(changes.decode("utf-8", "replace"), "diff", PATCH_LINES)


def looks(found: Migration, pages: dict[str, Page], arguments: str) -> Iterable[Block]:
    """The fixes that need a decision, by rule."""
    if not found.look:
        yield Paragraph("Nothing: no fix needs a decision.")
        return
    after = " Lines are those after the fixes above." if found.fixed else ""
    yield Paragraph(f"These have a fix, too, which is right where the answer to the question is yes.{after}")
    for group in found.look:
        page = pages[group.code]
        yield heading(group, page)
        yield Paragraph(page.question or "Is this what is meant here?")
        yield places(group.found)
        command = f"kvlint --fix --unsafe-fixes --select {group.code} --target {found.journey.end_text}"
        yield Paragraph("Where all are a yes:")
        yield Listing(f"{command} {arguments}", "console")


def by_hand(found: Migration, pages: dict[str, Page]) -> Iterable[Block]:
    """The findings without a fix, by rule."""
    if not found.by_hand:
        yield Paragraph("Nothing.")
        return
    if found.fixed:
        yield Paragraph("Lines are those after the fixes above.")
    for group in found.by_hand:
        page = pages[group.code]
        yield heading(group, page)
        yield Paragraph(f"{page.summary}.")
        yield places(group.found)


def heading(group: Group, page: Page) -> Heading:
    return Heading(f"{group.code} {group.name}: {count(len(group.found), 'place')}", page.url)


def places(found: Sequence[Diagnostic]) -> Places:
    return Places(tuple(map(place_of, found)))


def place_of(item: Diagnostic) -> Place:
    source = next((line.text.strip() for line in item.source if line.number == item.line), "")
    remarks = [item.message]
    if item.fix is not None and item.fix.title:
        remarks.append(f"fix: {item.fix.title}")
    if item.help:
        remarks.append(f"→ {item.help}")
    if item.related:
        spots = dict.fromkeys(f"{other.path}:{other.line}:{other.column}" for other in item.related)
        remarks.append(f"the same defect: {', '.join(spots)}")
    return Place(place(item), source, tuple(remarks))


def pins(found: Migration) -> Iterable[Block]:
    """What the project requires, now and then."""
    way = found.journey
    begin = way.releases[found.floor]
    if found.floor > way.start:
        yield Paragraph(
            f"What is fixed, and what needed no change, works from {begin} on: older releases lack something that it uses."
        )
    else:
        yield Paragraph(f"What is fixed, and what needed no change, works from {begin} to {way.end_text}.")
    if not found.pins:
        yield Paragraph(
            f"No file of the project requires transformers; whatever installs it has to take {way.end_text}."
        )
        return
    rows = [
        (pin.source, f"`transformers{pin.now}`", f"`transformers{pin.then}`" if pin.then else "stays")
        for pin in found.pins
    ]
    yield Table(("file", "now", "then"), tuple(rows))
