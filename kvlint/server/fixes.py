"""Fixes that can be applied alone, with every edit that belongs to them, placed where an editor can apply them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvlint.diagnostics import Diagnostic, PlacedEdit, Placer, document_place, document_starts
from kvlint.findings import Applicability, Edit, Finding, Fix
from kvlint.fixing import Unit, choose
from kvlint.jobs import FixRequest, Job
from kvlint.linter import Look, RegionLook, shown, try_round
from kvlint.server.buffers import Offer, Spot
from kvlint.source import EditError, Region, Source, document_edits
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
            place = in_document(placer.place(finding)) if in_json else placer.place(finding)
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
    starts = document_starts(text)
    return PlacedEdit(*document_place(starts, edit.start), *document_place(starts, edit.end), edit.text)


def in_document(item: Diagnostic) -> Diagnostic:
    """A finding of a notebook at its place in the JSON text, with the cell in its message.

    Places that lie in cells are left out.
    """
    if item.cell is None:
        return item
    span = item.span
    return replace(
        item,
        line=span.line,
        column=span.column,
        end_line=span.end_line,
        end_column=span.end_column,
        cell=None,
        message=f"cell {item.cell}: {item.message}",
        origin=None,
        related=(),
    )
