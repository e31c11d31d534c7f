"""What passes between the two processes of the server: texts to look at, and what was seen. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from kvlint.diagnostics import Diagnostic, PlacedEdit, PlacedRelated
from kvlint.findings import Applicability


@dataclass(frozen=True, slots=True)
class Buffer:
    """The text of a document as it stands in the editor.

    *root* is the folder of the workspace that it belongs to. With *cells* the text is the JSON of a notebook whose
    cells are documents of their own, and places are those of the cells; without, places are those of the text.
    """

    path: str
    root: str
    text: str
    cells: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """A range of a buffer as a person marks it: 1-based lines and columns, in the cell *cell*; empty for a caret."""

    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None

    def touches(self, item: Diagnostic) -> bool:
        """True where a finding, or another place of its defect in the same file, shares a character with this or meets it."""
        here = [place for place in item.related if place.path == item.path]
        return self.meets(item) or any(map(self.meets, here))

    def meets(self, item: Diagnostic | PlacedRelated | Spot) -> bool:
        """True where the two ranges share a character or meet."""
        if self.cell != item.cell:
            return False
        return (item.line, item.column) <= (self.end_line, self.end_column) and (self.line, self.column) <= (
            item.end_line,
            item.end_column,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a buffer showed. *problem* is what keeps it from being looked at (a wrong setting).

    *passing*: the files around it were taken as they were looked at last, so another look may show something else.
    """

    diagnostics: tuple[Diagnostic, ...] = ()
    problem: str = ""
    notices: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A fix that can be applied alone: its *edits* mend all of *resolves*."""

    title: str
    applicability: Applicability
    edits: tuple[PlacedEdit, ...]
    resolves: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Text to show for a place, as Markdown, and the range that it is about."""

    text: str
    spot: Spot
