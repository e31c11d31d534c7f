"""Reviewdog's diagnostic format (rdjson): one object with all findings and, for safe and unsafe fixes, suggestions."""

from __future__ import annotations

import json
from typing import Any

from kvlint.diagnostics import Diagnostic, FileSpan, PlacedEdit
from kvlint.report._view import View
from kvlint.report.json import message_with_cell
from kvlint.rulebook import page_url

SEVERITIES = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}


def render(view: View) -> str:
    """The object, indented."""
    source = {"name": "kvlint", "url": "https://github.com/kvlint/kvlint"}
    found = {"source": source, "severity": "WARNING", "diagnostics": [as_object(item) for item in view.found]}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def as_object(item: Diagnostic) -> dict[str, Any]:
    """One finding. A fix that touches several places is left out: a reviewer takes suggestions one by one."""
    found: dict[str, Any] = {
        "message": message_with_cell(item),
        "severity": SEVERITIES[item.severity],
        "location": {"path": item.path, "range": range_of(item.span)},
        "code": {"value": item.code, "url": page_url(item.code, item.name)},
    }
    if item.fix is not None and len(item.fix.edits) == 1 and item.cell is None:
        (edit,) = item.fix.edits
        found["suggestions"] = [{"range": range_of(edit_span(edit)), "text": edit.text}]
    return found


def edit_span(edit: PlacedEdit) -> FileSpan:
    return FileSpan(edit.start_line, edit.start_column, edit.end_line, edit.end_column)


def range_of(span: FileSpan) -> dict[str, dict[str, int]]:
    return {
        "start": {"line": span.line, "column": span.column},
        "end": {"line": span.end_line, "column": span.end_column},
    }
