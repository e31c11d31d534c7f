"""SARIF 2.1.0, for code scanning: results with their fixes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from kvlint import __version__
from kvlint.diagnostics import Diagnostic, FileSpan, PlacedFix
from kvlint.report._view import View
from kvlint.report.json import message_with_cell
from kvlint.rulebook import page_url

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(view: View) -> str:
    """The log of one run."""
    rules = sorted({(item.code, item.name) for item in view.found})
    index = {code: number for number, (code, _) in enumerate(rules)}
    driver = {
        "name": "kvlint",
        "version": __version__,
        "informationUri": "https://github.com/kvlint/kvlint",
        "rules": [
            {
                "id": code,
                "name": "".join(word.capitalize() for word in name.split("-")),
                "shortDescription": {"text": name.replace("-", " ")},
                "helpUri": page_url(code, name),
            }
            for code, name in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [result(item, index[item.code]) for item in view.found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def result(item: Diagnostic, rule_index: int) -> dict[str, Any]:
    """One finding."""
    found: dict[str, Any] = {
        "ruleId": item.code,
        "ruleIndex": rule_index,
        "level": item.severity,
        "message": {"text": message_with_cell(item)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": artifact(item.path),
                    "region": span_region(item.span),
                }
            }
        ],
        "properties": {"category": item.category.value, "releases": list(item.releases)},
    }
    if related := related_locations(item):
        found["relatedLocations"] = related
    if item.fix is not None and item.fix.edits and item.cell is None:
        found["fixes"] = [fix(item, item.fix)]
    return found


def related_locations(item: Diagnostic) -> list[dict[str, Any]]:
    """Where the value came from, and the other places of the same defect."""
    places: list[tuple[str, dict[str, Any]]] = []
    if item.origin is not None and not item.origin.path:
        origin, cell = item.origin.in_file or item.origin, ""
        if item.origin.cell is not None:
            cell = f"cell {item.origin.cell}, line {item.origin.line}: "
        at = {"startLine": origin.line, "startColumn": origin.column}
        places.append((cell + item.origin.text, {"artifactLocation": artifact(item.path), "region": at}))
    for other in item.related:
        cell = f"cell {other.cell}, line {other.line}: " if other.cell is not None else ""
        place: dict[str, Any] = {"artifactLocation": artifact(other.path)}
        if other.cell is None:
            place["region"] = region(other.line, other.column, other.end_line, other.end_column)
        places.append((f"{cell}{other.code}: {other.message}", place))
    return [
        {"id": number, "message": {"text": text}, "physicalLocation": place}
        for number, (text, place) in enumerate(places)
    ]


def fix(item: Diagnostic, placed: PlacedFix) -> dict[str, Any]:
    """A fix as replacements of regions of the file."""
    replacements = [
        {
            "deletedRegion": region(edit.start_line, edit.start_column, edit.end_line, edit.end_column),
            "insertedContent": {"text": edit.text},
        }
        for edit in placed.edits
    ]
    return {
        "description": {"text": f"{placed.title} ({placed.applicability.value})"},
        "artifactChanges": [{"artifactLocation": artifact(item.path), "replacements": replacements}],
    }


def artifact(shown: str) -> dict[str, str]:
    path = quote(shown, errors="surrogateescape")
    return {"uri": f"file://{path}" if path.startswith("/") else path}


def span_region(span: FileSpan) -> dict[str, int]:
    return region(span.line, span.column, span.end_line, span.end_column)


def region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
