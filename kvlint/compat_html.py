"""``kvlint compat --html``: one page with the matrix of uses (rows) and minor releases (columns).

The page stands alone: its style and its script are in it, and it loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from kvlint import __version__
from kvlint.compat import Compatibility, Segment, Use, Verdict, headline, remarks, union
from kvlint.compat_text import sentence
from kvlint.report._text import count
from kvlint.rulebook import page_url

LABELLED = 5
"""Runs of at least so many columns say in words what they are."""
WORDS = {"b": "breaks", "s": "silent", "o": ""}


@dataclass(frozen=True, slots=True)
class Links:
    """Where the lines of the files are: *template* with ``{path}`` and ``{line}``, or the files themselves.

    *folder* is that of the page, *base* the one that paths are relative to.
    """

    folder: str
    base: str
    template: str | None

    @staticmethod
    def of(page: str, template: str | None) -> Links:
        return Links(os.path.dirname(os.path.abspath(page)), os.getcwd(), template)

    def to(self, path: str, line: int) -> str:
        """The address of a line of a file."""
        if self.template is not None:
            return self.template.format(path=quote(path), line=line)
        absolute = os.path.join(self.base, path)
        try:
            relative = os.path.relpath(absolute, self.folder)
        except ValueError:  # another drive
            return Path(absolute).as_uri()
        return f"{quote(relative.replace(os.sep, '/'))}#L{line}"


def render(compat: Compatibility, links: Links) -> str:
    """The whole page."""
    segments = compat.segments()
    verdict = "good" if not compat.breaking | compat.wrong else "some" if compat.working else "none"
    parts = [
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n",
        '<meta name=viewport content="width=device-width, initial-scale=1">\n',
        f"<title>kvlint compat: {escape(headline(compat))}</title>\n<style>\n{resource('compat.css')}</style>\n",
        f"<header>\n<h1 class={verdict}>{escape(sentence(headline(compat)))}</h1>\n",
        *(f"<p>{escape(sentence(remark))}.</p>\n" for remark in remarks(compat)),
        f"<p class=facts>{escape(facts(compat))}</p>\n",
    ]
    if compat.uses:
        parts += [controls(compat), "</header>\n", table(compat, segments, links)]
        parts.append(f"<script>\n{resource('compat.js')}</script>\n")
    else:
        parts.append("</header>\n")
    return "".join(parts) + "</html>\n"


@cache
def resource(name: str) -> str:
    """The text of the style sheet or of the script."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def facts(compat: Compatibility) -> str:
    """What the page is about, in small print."""
    files = count(compat.files, "file")
    spans = f"transformers {compat.text(compat.scope)}"
    if not compat.uses:
        return f"No use that breaks or is silently wrong in {files} · {spans} · kvlint {__version__}"
    places = len({use.path for use in compat.uses})
    return f"{count(len(compat.uses), 'use')} in {places:,} of {files} · {spans} · kvlint {__version__}"


def controls(compat: Compatibility) -> str:
    """The filter, the legend that is a switch for each kind, and the count of what is shown."""
    breaking = sum(bool(use.breaks) for use in compat.uses)
    silent = sum(bool(use.silent) for use in compat.uses)
    return (
        "<form role=search onsubmit='return false'>\n"
        "<label class=filter>Filter <input type=search id=filter placeholder='file, rule, text' autocomplete=off "
        "aria-keyshortcuts='/'></label>\n"
        f"<label class=kind><input type=checkbox id=b checked> <i class='key b'></i> breaks ({breaking:,})</label>\n"
        f"<label class=kind><input type=checkbox id=s checked> <i class='key s'></i> runs, silently wrong ({silent:,})</label>\n"
        "<span class=kind><i class='key o'></i> works</span>\n"
        "<button type=button id=unfold aria-pressed=false>Unfold all</button>\n"
        "<output id=shown aria-live=polite></output>\n</form>\n"
    )


def table(compat: Compatibility, segments: Sequence[Segment], links: Links) -> str:
    most = max(segment.breaks + segment.silent for segment in segments)
    heads = "".join(column(segment, number, most, segments) for number, segment in enumerate(segments))
    parts = [
        f"<div id=matrix tabindex=0 role=region aria-label='Uses by release'>\n<table style='--n:{len(segments)}'>\n",
        f"<colgroup><col class=use><col class=release span={len(segments)}></colgroup>\n",
        f"<thead><tr><th scope=col class=use><span>Use</span></th>{heads}</tr></thead>\n",
    ]
    number = 0
    for path, group in groupby(compat.uses, key=lambda use: use.path):
        uses = list(group)
        target = escape(links.to(path, 1), quote=True)
        parts.append(
            f"<tbody data-path='{escape(path, quote=True)}'>\n<tr class=file><th scope=rowgroup class=use>"
            f"<div><button type=button aria-expanded=true title='Fold or unfold this file'></button>"
            f"<a href='{target}'>{escape(path)}</a> <small>{count(len(uses), 'use')}</small></div></th>"
            f"<td colspan={len(segments)}></td></tr>\n"
        )
        for use in uses:
            parts.append(row(compat, use, segments, links))
            number += 1
        parts.append("</tbody>\n")
    return "".join(parts) + "</table>\n</div>\n"


def column(segment: Segment, number: int, most: int, segments: Sequence[Segment]) -> str:
    """The head of a column: a bar of its uses, its number, and a switch that shows only what is wrong there."""
    total = segment.breaks + segment.silent
    what = f"{segment.breaks} break, {segment.silent} silently wrong" if total else "everything works"
    major = segment.label.split(".")[0]
    first = number == 0 or segments[number - 1].label.split(".")[0] != major
    bars = "".join(
        f"<i class={kind} style='height:{100 * value / most:.4g}%'></i>"
        for kind, value in (("s", segment.silent), ("b", segment.breaks))
        if value
    )
    label = escape(segment.label)
    return (
        f"<th scope=col class='release{' major' if first else ''}{' ok' if not total else ''}'>"
        f"<button type=button aria-pressed=false data-column={number} title='{label}: {what}'>"
        f"<span class=bar aria-hidden=true>{bars}</span><span class=label>{label}</span>"
        f"<span class=sr>: {what}</span></button></th>"
    )


def row(compat: Compatibility, use: Use, segments: Sequence[Segment], links: Links) -> str:
    """One use: its place and its line, all that was found there behind a fold, and its stretch of every column."""
    states = ["b" if use.breaks & item.releases else "s" if use.silent & item.releases else "o" for item in segments]
    codes = " ".join(dict.fromkeys(one.item.code for one in use.found))
    target = escape(links.to(use.path, use.line), quote=True)
    findings = "".join(finding(compat, one) for one in use.found)
    when = "; ".join(
        f"{word} on {compat.text(releases)}"
        for word, releases in (("breaks", use.breaks), ("silently wrong", use.silent))
        if releases
    )
    cells = []
    position = 0
    for state, run in groupby(states):
        length = len(list(run))
        span = compat.text(union(item.releases for item in segments[position : position + length]))
        says = {"b": "breaks", "s": "runs, silently wrong", "o": "works"}[state]
        word = WORDS[state] if length >= LABELLED else ""
        cells.append(
            f"<td colspan={length} class={state} title='{span}: {says}'><span>{word}</span>"
            f"<span class=sr>{span}: {says}</span></td>"
        )
        position += length
    return (
        f"<tr class=row data-states={''.join(states)}><th scope=row class=use><details><summary>"
        f"<a href='{target}'>{escape(use.place)}</a> <b>{codes}</b> <code>{escape(use.source)}</code></summary>"
        f"<div class=more><p class=when>{escape(sentence(when))}.</p><pre>{escape(use.source)}</pre>{findings}</div>"
        f"</details></th>{''.join(cells)}</tr>\n"
    )


def finding(compat: Compatibility, one: Verdict) -> str:
    item = one.item
    kind = "b" if item.category.value == "breaks" else "s"
    url = escape(page_url(item.code, item.name), quote=True)
    help = f"<p class=help>{code_marks(item.help)}</p>" if item.help else ""
    return (
        f"<div class='finding {kind}'><p><a href='{url}'>{item.code} {escape(item.name)}</a> "
        f"<small>{escape(compat.text(one.releases))}</small></p><p>{code_marks(item.message)}</p>{help}</div>"
    )


def code_marks(text: str) -> str:
    """The text with what stands in backquotes as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
