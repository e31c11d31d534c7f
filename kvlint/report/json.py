"""A JSON list of objects, one a finding; their keys (`as_object`) stay compatible from one release to the next."""

from __future__ import annotations

import json
from typing import Any

from kvlint.diagnostics import Diagnostic, PlacedEdit, PlacedFix, PlacedRelated
from kvlint.report._view import View
from kvlint.rulebook import page_url


def render(view: View) -> str:
    """The list, indented."""
    return json.dumps([as_object(item) for item in view.found], indent=2, ensure_ascii=False) + "\n"


def as_object(item: Diagnostic) -> dict[str, Any]:
    """One finding. Lines and columns are 1-based, columns count characters, ``end_column`` is the one after the last.

    ``releases`` holds the runs of releases on which the use is wrong (``5.0.0-5.24.0``, ``5.4.0``), ``origin`` the line
    of the evidence, ``related`` the other places of the same defect. In a notebook lines are those of
    the code cell ``cell`` (1-based).
    """
    return {
        "code": item.code,
        "name": item.name,
        "category": item.category.value,
        "severity": item.severity,
        "path": item.path,
        "line": item.line,
        "column": item.column,
        "end_line": item.end_line,
        "end_column": item.end_column,
        "cell": item.cell,
        "message": full_message(item),
        "releases": list(item.releases),
        "origin": item.origin.line if item.origin is not None and not item.origin.path else None,
        "fix": fix_object(item.fix) if item.fix is not None and item.fix.edits else None,
        "url": page_url(item.code, item.name),
        "related": [related_object(related) for related in item.related],
    }


def related_object(item: PlacedRelated) -> dict[str, Any]:
    """Another place of the same defect; in a notebook with its cell."""
    place = {
        "path": item.path,
        "line": item.line,
        "column": item.column,
        "end_line": item.end_line,
        "end_column": item.end_column,
        "code": item.code,
        "message": item.message,
    }
    return place if item.cell is None else {**place, "cell": item.cell}


def message_with_cell(item: Diagnostic) -> str:
    """The full message; in a notebook with the cell and its line in front, for formats whose places are those of the file."""
    cell = f"cell {item.cell}, line {item.line}: " if item.cell is not None else ""
    return cell + full_message(item)


def full_message(item: Diagnostic) -> str:
    """What happens and, where it is known, what to do."""
    return f"{item.message}; {item.help}" if item.help else item.message


def fix_object(fix: PlacedFix) -> dict[str, Any]:
    return {
        "applicability": fix.applicability.value,
        "title": fix.title,
        "edits": [edit_object(edit) for edit in fix.edits],
    }


def edit_object(edit: PlacedEdit) -> dict[str, Any]:
    """One edit; in a notebook it also says in which cell, which may be another one than the finding's."""
    place = {
        "start_line": edit.start_line,
        "start_column": edit.start_column,
        "end_line": edit.end_line,
        "end_column": edit.end_column,
        "text": edit.text,
    }
    return place if edit.cell is None else {**place, "cell": edit.cell}
