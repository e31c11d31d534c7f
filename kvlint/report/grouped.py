"""Findings under the name of their file."""

from __future__ import annotations

from itertools import groupby

from kvlint.report._text import file_name, heading, paint, summary
from kvlint.report._view import View


def render(view: View) -> str:
    """A heading for every file, its findings indented below, and the summary."""
    parts = []
    for path, items in groupby(view.found, key=lambda item: item.path):
        parts.append(f"{paint(file_name(path), 'bold', view.color)}:\n")
        for item in items:
            cell = f"cell {item.cell}:" if item.cell is not None else ""
            parts.append(f"  {cell}{item.line}:{item.column}: {heading(item, view)}\n")
        parts.append("\n")
    return "".join(parts) + summary(view)
