"""What was seen, as the protocol says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lsprotocol import types

from kvlint.carriers.regions import refined
from kvlint.diagnostics import Diagnostic, PlacedEdit, PlacedRelated
from kvlint.findings import Applicability, Category, Edit
from kvlint.rulebook import page_url
from kvlint.server.buffers import Offer, Spot
from kvlint.server.positions import Lines

SOURCE = "kvlint"
SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def span(lines: Lines, item: Diagnostic | PlacedEdit | PlacedRelated | Spot) -> types.Range:
    """The range of a finding, an edit or a place."""
    if isinstance(item, PlacedEdit):
        start, end = (item.start_line, item.start_column), (item.end_line, item.end_column)
    else:
        start, end = (item.line, item.column), (item.end_line, item.end_column)
    return types.Range(types.Position(*lines.units(*start)), types.Position(*lines.units(*end)))


def diagnostic(
    item: Diagnostic, lines: Lines, uri: str, uri_of: Callable[[int | None], str | None]
) -> types.Diagnostic:
    """A finding, with where its value came from and the other places of its defect as far as they lie in this document.

    *uri_of* tells the document of a cell.
    """
    message = f"{item.message}\n→ {item.help}" if item.help else item.message
    related = []
    if item.origin is not None and not item.origin.path and uri_of(item.origin.cell) == uri:
        start = types.Position(*lines.units(item.origin.line, item.origin.column))
        related.append(
            types.DiagnosticRelatedInformation(types.Location(uri, types.Range(start, start)), item.origin.text)
        )
    for place in item.related:
        if place.path == item.path and uri_of(place.cell) == uri:
            related.append(types.DiagnosticRelatedInformation(types.Location(uri, span(lines, place)), place.message))
    return types.Diagnostic(
        range=span(lines, item),
        message=message,
        severity=SEVERITIES[item.severity],
        code=item.code,
        code_description=types.CodeDescription(page_url(item.code, item.name)),
        source=SOURCE,
        tags=[types.DiagnosticTag.Deprecated] if item.category is Category.DEPRECATED else None,
        related_information=related or None,
    )


def offer_title(offer: Offer) -> str:
    """What the menu says of a fix."""
    codes = ", ".join(dict.fromkeys(item.code for item in offer.resolves))
    look = " (needs a look)" if offer.applicability is Applicability.UNSAFE else ""
    return f"{offer.title} [{codes}]{look}"


def text_edits(edits: Sequence[PlacedEdit], lines: Lines) -> list[types.TextEdit]:
    return [types.TextEdit(span(lines, edit), edit.text) for edit in edits]


def whole_edits(old: str, new: str, lines: Lines) -> list[types.TextEdit]:
    """Small edits that turn one text into the other."""
    edits = []
    for edit in refined(old, [Edit(0, len(old), new)]):
        start, end = lines.units(*lines.place(edit.start)), lines.units(*lines.place(edit.end))
        edits.append(types.TextEdit(types.Range(types.Position(*start), types.Position(*end)), edit.text))
    return edits
