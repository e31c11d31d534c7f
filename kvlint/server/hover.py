"""What to tell of a place: the findings there with the page of their rule, and the life of the name there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvlint import rulebook
from kvlint.api_life import Life, life
from kvlint.behaviour import class_replacement, helper_hint, method_hint
from kvlint.contracts import load as load_contracts
from kvlint.diagnostics import Diagnostic
from kvlint.findings import Category
from kvlint.jobs import Job
from kvlint.releases import ReleaseSet
from kvlint.server.buffers import Buffer, Spot, Told
from kvlint.source import Region, document_offset
from kvlint.source import parse as parse_source
from kvlint.suppression import line_starts
from kvlint.timeline import Timeline, the_timeline

OPTION = "cache_implementation"
MOST_LIVES = 2
SECTIONS = ("What it does", "How to fix")
"""The sections of a rule's page that a hover shows; the page itself is linked."""
SHOWN_FACTS = ("parameters", "announced", "inherited from", "notes")


@dataclass(frozen=True, slots=True)
class Named:
    """A name of transformers at a place of a region: how the timeline calls it, and the characters that spell it."""

    name: str
    start: int
    end: int


def tell(job: Job, found: Sequence[Diagnostic], buffer: Buffer, spot: Spot) -> Told | None:
    """What is known of *spot*; None for nothing."""
    here = [item for item in found if spot.touches(item)]
    parts = [finding_text(item) for item in here]
    parts += [page_text(code) for code in dict.fromkeys(item.code for item in here)]
    where = Spot(here[0].line, here[0].column, here[0].end_line, here[0].end_column, here[0].cell) if here else spot
    spoken = named_at(job, buffer, spot)
    if spoken is not None:
        name, place = spoken
        timeline = the_timeline()
        lives = life(timeline, load_contracts(timeline.releases), name)
        parts += [life_text(each, timeline, job.target) for each in lives[:MOST_LIVES]]
        where = place if not here else where
    return Told("\n\n---\n\n".join(parts), where) if parts else None


def finding_text(item: Diagnostic) -> str:
    """A finding in Markdown."""
    releases = ", ".join(span.replace("-", " to ") for span in item.releases)
    on = f", on transformers {releases}" if releases else ""
    kind = "" if item.category is Category.META else f" ({item.category.value}{on})"
    help = f"\n\n→ {item.help}" if item.help else ""
    return f"**{item.code} {item.name}**{kind}\n\n{item.message}{help}"


def page_text(code: str) -> str:
    """The short form of a rule's page."""
    try:
        page = rulebook.find(code, rulebook.load())
    except (rulebook.RulebookError, LookupError):
        return ""
    said = [f"#### {title}\n\n{plain(page.sections[title])}" for title in SECTIONS if page.sections.get(title)]
    return "\n\n".join([f"### [{page.code} {page.name}]({page.url})\n\n{page.summary}.", *said])


def plain(section: str) -> str:
    """A section of a page without the words behind the language of a fence, which are for the tests."""
    return "\n".join(line.split(" ")[0] if line.startswith("```") else line for line in section.split("\n"))


def life_text(each: Life, timeline: Timeline, target: ReleaseSet) -> str:
    """The life of a name in Markdown: where it exists, what it takes, what to write instead where it is gone."""
    lines = [f"**{each.name}** ({each.kind})", "", f"exists on transformers {on(timeline, each.releases)}"]
    gone = target - each.releases
    if gone and each.releases:
        lines += ["", f"**not on {on(timeline, gone)}**, which you target"]
        if hint := replacement(each.name, timeline):
            lines += ["", f"→ {hint}"]
    places = [f"* `{statement}`: {on(timeline, releases)}" for statement, releases in each.imports if releases]
    facts = [
        f"* {title}, {on(timeline, releases)}: `{text}`"
        for title, dated in each.sections
        if title in SHOWN_FACTS
        for releases, text in dated
    ]
    return "\n".join([*lines, *([""] if places or facts else []), *places, *facts])


def on(timeline: Timeline, releases: ReleaseSet) -> str:
    return ", ".join(span.replace("-", " to ") for span in timeline.ranges(releases)) or "no release"


def replacement(name: str, timeline: Timeline) -> str:
    """What to write instead of a name that is gone; empty where nothing is known."""
    known = class_replacement(timeline.canonical(name) or name)
    if known is not None:
        return known.hint
    return method_hint(name.rpartition(".")[2]) or helper_hint(name)


def named_at(job: Job, buffer: Buffer, spot: Spot) -> tuple[str, Spot] | None:
    """The name of transformers at *spot* and where it stands; None where there is none, or it is not known to be one."""
    source = parse_source(Path(job.path), job.data or b"", docstrings=False)
    in_json = not buffer.cells and Path(job.path).suffix.lower() == ".ipynb"
    for region in source.regions:
        if not region.is_python:
            continue
        offset = offset_in_json(source.text, region, spot) if in_json else offset_in(region, spot)
        if offset is None:
            continue
        try:
            tree = ast.parse(region.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        spoken = name_in(region.text, tree, offset) or member_in(job, region, offset)
        if spoken is not None:
            return spoken.name, spot if in_json else spot_of(region, spoken)
    return None


def offset_in(region: Region, spot: Spot) -> int | None:
    """The offset of the region's text that *spot* begins at; None where it lies elsewhere."""
    starts = line_starts(region.text)
    for index, start in enumerate(starts):
        line = region.line(index)
        if (line.number, line.cell) == (spot.line, spot.cell):
            end = starts[index + 1] - 1 if index + 1 < len(starts) else len(region.text)
            offset = start + spot.column - 1 - line.column
            return offset if start <= offset <= end else None
    return None


def offset_in_json(text: str, region: Region, spot: Spot) -> int | None:
    """The offset of a notebook's code that lies at *spot* of its JSON text."""
    lines = text.split("\n")
    wanted = sum(len(line) + 1 for line in lines[: spot.line - 1]) + spot.column - 1
    low, high = 0, len(region.text)
    while low < high:
        middle = (low + high) // 2
        if document_offset(region, middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if document_offset(region, low) == wanted else None


def spot_of(region: Region, spoken: Named) -> Spot:
    """The place of a name in the document."""
    starts = line_starts(region.text)
    row = max(index for index, start in enumerate(starts) if start <= spoken.start)
    line = region.line(row)
    column = line.column + spoken.start - starts[row] + 1
    return Spot(line.number, column, line.number, column + spoken.end - spoken.start, line.cell)


def name_in(text: str, tree: ast.Module, offset: int) -> Named | None:
    """The name at *offset* where the imports of the module alone tell what it is."""
    from kvlint.analysis.positions import LineIndex

    index = LineIndex.of(text)
    bound = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                start, end = index.span(alias)
                if start <= offset <= end and of_transformers(node.module):
                    return Named(f"{node.module}.{alias.name}", start, end)
        elif isinstance(node, ast.Name | ast.Attribute):
            start, end = index.span(node)
            word = node.id if isinstance(node, ast.Name) else node.attr
            if end - len(word) <= offset <= end and (name := dotted(node, bound)) is not None:
                return Named(name, end - len(word), end)
        elif isinstance(node, ast.keyword) and node.arg == OPTION and isinstance(node.value, ast.Constant):
            start, end = index.span(node.value)
            if start <= offset <= end:
                return Named(f"{OPTION}={node.value.value!s}", start, end)
    return None


def imported(tree: ast.Module) -> dict[str, str]:
    """What the names that are imported from transformers stand for."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and of_transformers(node.module):
            bound.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if of_transformers(alias.name):
                    bound[alias.asname or "transformers"] = alias.name if alias.asname else "transformers"
    return bound


def of_transformers(module: str) -> bool:
    return module.split(".")[0] == "transformers"


def dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The full name of ``a.b.c`` where ``a`` is imported from transformers."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return ".".join([bound[node.id], *reversed(parts)])


def member_in(job: Job, region: Region, offset: int) -> Named | None:
    """The member of a cache at *offset*, where the analysis knows that its object is one."""
    from kvlint.analysis import analyse
    from kvlint.checks.receivers import receiver
    from kvlint.linter import joint_facts, project_of

    path = Path(job.path)
    try:
        facts = joint_facts(job, region, path, the_timeline())
        if facts is None:
            facts = analyse(region, path, job.target, project_of(path.parent), the_timeline())
    except (SyntaxError, RecursionError, MemoryError):
        return None
    try:
        for use in facts.attributes:
            _, end = facts.span(use.node)
            start = end - len(use.name)
            if isinstance(use.node, ast.Attribute) and start <= offset <= end:
                cache = receiver(facts, use)
                if cache is not None and cache.local_class is None:
                    return Named(f"{owner(cache.cls, use.name)}.{use.name}", start, end)
    finally:
        facts.let_go()
    return None


def owner(cls: str, member: str) -> str:
    """The class to tell of: that of the object, or where only the base is known the first common one with the member."""
    from kvlint.analysis.library import COMMON_CLASSES

    timeline = the_timeline()
    return next((each for each in candidates(cls, COMMON_CLASSES) if timeline.member_kind(each, member)), cls)


def candidates(cls: str, common: Sequence[str]) -> Iterator[str]:
    yield cls
    yield from common
