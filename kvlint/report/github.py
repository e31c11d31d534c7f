"""Workflow commands that GitHub Actions shows beside the changed lines."""

from __future__ import annotations

from kvlint.report._view import View
from kvlint.report.json import full_message

LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def render(view: View) -> str:
    """One ``::error file=...`` line a finding."""
    lines = []
    for item in view.found:
        properties = [f"title={escape_property(f'kvlint ({item.code})')}", f"file={escape_property(item.path)}"]
        span = item.span
        properties += [f"line={span.line}", f"col={span.column}"]
        properties += [f"endLine={span.end_line}", f"endColumn={max(span.end_column - 1, 1)}"]
        cell = f"cell {item.cell}:" if item.cell is not None else ""
        message = f"{item.path}:{cell}{item.line}:{item.column}: {item.code} {item.name}: {full_message(item)}"
        lines.append(f"::{LEVELS[item.severity]} {','.join(properties)}::{escape(message)}\n")
    return "".join(lines)


def escape(text: str) -> str:
    """*text* as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    return escape(text).replace(":", "%3A").replace(",", "%2C")
