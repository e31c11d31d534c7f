"""Fixes that can be applied alone, with every edit that belongs to them, placed where an editor can apply them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kvlint.diagnostics import Diagnostic, PlacedEdit, PlacedOrigin, Placer, document_place
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.fixing import Unit, choose
from kvlint.jobs import FixRequest, Job
from kvlint.linter import Look, RegionLook, shown, try_round
from kvlint.server.buffers import Offer, Spot
from kvlint.source import EditError, Region, Source, document_edits, document_position
from kvlint.source import parse as parse_source
from kvlint.suppression import line_starts
from kvlint.timeline import the_timeline


def offers(job: Job, look: Look, request: FixRequest, spot: Spot, cells: bool) -> tuple[Offer, ...]:
    """The fixes of the findings at *spot*, the safe ones first.

    Each was tried: with it the file can be read back and still parses. *cells* as in `Buffer`.
    """
    found: dict[tuple[PlacedEdit, ...], Offer] = {}
    for item in look.regions:
        if not item.kept or not item.region.fixable:
            continue
        in_json = item.region.kind == "notebook" and not cells
        placer = Placer.of(job.shown, look.source, item.region, the_timeline().ranges)
        listed = shown(item.kept, request)
        for finding in listed:
            place = in_document(look.source, item.region, finding, placer) if in_json else placer.place(finding)
            if finding.fix is None or not spot.touches(place):
                continue
            unit = unit_of(finding, listed, item, request)
            if unit is None or try_round(look.source, [(item.region, [unit])]) is None:
                continue
            edits = placed(look.source, item.region, unit, placer, in_json)
            if edits:
                known = found.get(edits)
                resolves = (*known.resolves, place) if known else (place,)
                found[edits] = Offer(finding.fix.title, worst(unit), edits, resolves)
    return tuple(sorted(found.values(), key=lambda offer: offer.applicability is not Applicability.SAFE))


def unit_of(finding: Finding, listed: Sequence[Finding], item: RegionLook, request: FixRequest) -> Unit | None:
    """What has to be applied together with the fix of a finding; None where that may not, or cannot, be applied."""
    group = finding.fix.group if finding.fix is not None else ""
    members = [
        other for other in listed if other is finding or (group and other.fix is not None and other.fix.group == group)
    ]
    units = choose(members, item.silenced, request.allowed, request.fixable)
    return units[0] if len(units) == 1 else None


def worst(unit: Unit) -> Applicability:
    """A unit is as safe as the least safe of its fixes."""
    unsafe = any(item.fix is not None and item.fix.applicability is not Applicability.SAFE for item in unit.findings)
    return Applicability.UNSAFE if unsafe else Applicability.SAFE


def placed(source: Source, region: Region, unit: Unit, placer: Placer, in_json: bool) -> tuple[PlacedEdit, ...]:
    """The edits of a unit as places of the document, or of its cells."""
    if not in_json:
        return placer.place_fix(Fix("", Applicability.SAFE, unit.edits)).edits
    try:
        edits = document_edits(region, unit.edits)
    except EditError:
        return ()
    return tuple(edit_in_document(source.text, edit) for edit in edits)


def edit_in_document(text: str, edit: Edit) -> PlacedEdit:
    return PlacedEdit(*document_place(text, edit.start), *document_place(text, edit.end), edit.text)


def in_document(source: Source, region: Region, finding: Finding, placer: Placer) -> Diagnostic:
    """A finding of a notebook at its place in the JSON text, with the cell in its message."""
    item = placer.place(finding)
    return moved(
        item, *document_position(source, region, finding.start), *document_position(source, region, finding.end)
    )


def placed_in_json(job: Job, found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings of a notebook, placed in the JSON text that holds the cells."""
    source = parse_source(Path(job.path), job.data or b"", docstrings=False)
    offsets: dict[tuple[int | None, int], tuple[Region, int, int]] = {}
    for region in source.regions:
        for index, start in enumerate(line_starts(region.text)):
            line = region.line(index)
            offsets.setdefault((line.cell, line.number), (region, start, line.column))

    def place(cell: int | None, line: int, column: int) -> tuple[int, int] | None:
        known = offsets.get((cell, line))
        if known is None:
            return None
        region, start, stripped = known
        return document_position(source, region, start + max(column - 1 - stripped, 0))

    def both(item: Diagnostic) -> tuple[int, int, int, int]:
        if item.cell is None:
            return item.line, item.column, item.end_line, item.end_column
        first = place(item.cell, item.line, item.column) or (1, 1)
        last = place(item.cell, item.end_line, item.end_column) or first
        return (*first, *last)

    return tuple(moved(item, *both(item)) for item in found)


def moved(item: Diagnostic, line: int, column: int, end_line: int, end_column: int) -> Diagnostic:
    """A finding at another place; the origin, which lies in a cell, is told in words."""
    message = f"cell {item.cell}: {item.message}" if item.cell is not None else item.message
    origin: PlacedOrigin | None = item.origin if item.cell is None else None
    return replace(
        item,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        cell=None,
        message=message,
        origin=origin,
    )
