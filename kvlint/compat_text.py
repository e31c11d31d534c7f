"""The terminal chart of ``kvlint compat``: a sentence, then one line a minor release."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass

from kvlint.compat import Compatibility, Segment, headline, remarks
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.report._text import count, paint

WIDEST = 100
NARROWEST = 24
WIDEST_USE = 3
"""Columns of one use in a bar, where there are few."""
SILENT_WORDS = "silently wrong"
SHORTEST_RANGE = len("on 4.54 to 5.24")


@dataclass(frozen=True, slots=True)
class Look:
    """How to draw: *width* in columns, *blocks* for a terminal that shows block characters."""

    width: int = 80
    color: bool = False
    blocks: bool = True

    @property
    def marks(self) -> tuple[str, str]:
        """The characters of uses that break, and of silently wrong ones."""
        return ("█", "▒") if self.blocks else ("#", "~")


def render(compat: Compatibility, look: Look) -> str:
    """The sentence, what belongs to it, the chart, and the rules that were found."""
    width = max(NARROWEST, min(look.width, WIDEST))
    good = not compat.breaking | compat.wrong
    color = "green" if good else "yellow" if compat.working else "red"
    lines = [paint(line, color, look.color) for line in wrapped(sentence(headline(compat)), width, "")]
    for remark in remarks(compat):
        lines += wrapped(sentence(remark), width, "  ")
    lines.append("")
    if compat.uses:
        lines += chart(compat, look, width)
        lines += ["", *rules(compat, width), ""]
    lines += wrapped(closing(compat), width, "")
    return "\n".join(lines) + "\n"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def closing(compat: Compatibility) -> str:
    files = count(compat.files, "file")
    if not compat.uses:
        return f"No use that breaks or is silently wrong in {files}."
    places = len({use.path for use in compat.uses})
    wrong = f"{count(len(compat.uses), 'use')} in {places:,} of {files}"
    return f"{wrong}; --html FILE writes the matrix of uses and releases."


def chart(compat: Compatibility, look: Look, width: int) -> list[str]:
    """A line for every minor release (or piece of one), with a bar of its uses."""
    segments = compat.segments()
    label = max(len(segment.label) for segment in segments)
    most = max(segment.breaks + segment.silent for segment in segments)
    broken = max(len(str(segment.breaks)) for segment in segments)
    quiet = max(len(str(segment.silent)) for segment in segments)
    wordy = width >= label + broken + quiet + 36
    number = len(numbers(segments[0], broken, quiet, wordy, False))
    bar = max(4, width - label - number - 4)
    lines = []
    for segment in segments:
        drawn, length = drawn_bar(segment, most, bar, look)
        text = numbers(segment, broken, quiet, wordy, look.color)
        lines.append(f"{segment.label:>{label}}  {drawn}{' ' * (bar - length)}  {text}".rstrip())
    breaks, silent = look.marks
    keys = [f"{paint(breaks, 'red', look.color)} breaks", f"{paint(silent, 'yellow', look.color)} {SILENT_WORDS}"]
    if width < len(f"x breaks  x {SILENT_WORDS}") + label + 2:
        return [*lines, "", *keys]
    return [*lines, "", " " * (label + 2) + "  ".join(keys)]


def drawn_bar(segment: Segment, most: int, room: int, look: Look) -> tuple[str, int]:
    """The bar, and how many columns it takes; a use is one to three columns where there is room for all."""
    breaks, silent = look.marks
    first = scaled(segment.breaks, most, room)
    second = min(scaled(segment.silent, most, room), room - first) if segment.silent else 0
    if segment.silent and not second:
        first, second = first - 1, 1
    bar = paint(breaks * first, "red", look.color) + paint(silent * second, "yellow", look.color)
    return bar, first + second


def scaled(number: int, most: int, room: int) -> int:
    if most <= room:
        return number * min(WIDEST_USE, room // most)
    return max(1, round(number * room / most)) if number else 0


def numbers(segment: Segment, broken: int, quiet: int, wordy: bool, color: bool) -> str:
    """``11 break,  2 silent``, or ``works``."""
    breaks = f"{segment.breaks:>{broken}}" if segment.breaks else " " * broken
    silent = f"{segment.silent:>{quiet}}" if segment.silent else " " * quiet
    if not segment.breaks and not segment.silent:
        size = len(f"{breaks} break  {silent} silent") if wordy else len(f"{breaks}+{silent}")
        word = "works" if wordy else "ok"
        return paint(word, "green", color) + " " * (size - len(word))
    if not wordy:
        return f"{breaks}{'+' if segment.silent else ' '}{silent}"
    return f"{breaks} {'break' if segment.breaks else '     '}  {silent} {'silent' if segment.silent else '      '}"


def rules(compat: Compatibility, width: int) -> list[str]:
    """The rules with the number of uses each concerns and the releases on which it finds them, most uses first."""
    places: Counter[tuple[str, str]] = Counter()
    releases: dict[tuple[str, str], ReleaseSet] = {}
    for use in compat.uses:
        places.update({(one.item.code, one.item.name) for one in use.found})
        for one in use.found:
            rule = (one.item.code, one.item.name)
            releases[rule] = releases.get(rule, NO_RELEASE) | one.releases
    rows = sorted(places.items(), key=lambda row: (-row[1], row[0]))
    digits = len(str(rows[0][1]))
    longest = max(len(name) for (_, name), _ in rows)
    lines = []
    for (code, name), number in rows:
        start = f"{number:>{digits}}  {code}  "
        if len(start) + longest + 2 + SHORTEST_RANGE <= width:
            start += f"{name:<{longest}}  "
            name = f"on {compat.text(releases[code, name])}"
        lines += wrapped(name, width, " " * len(start), start)
    return lines


def wrapped(text: str, width: int, indent: str, start: str | None = None) -> list[str]:
    """*text* in lines of at most *width* columns; *start* begins the first one."""
    return textwrap.wrap(text, width, initial_indent=indent if start is None else start, subsequent_indent=indent)
