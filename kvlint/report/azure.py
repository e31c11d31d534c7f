"""Logging commands that Azure Pipelines shows as errors and warnings of the build."""

from __future__ import annotations

from kvlint.report._view import View
from kvlint.report.json import message_with_cell

LEVELS = {"error": "error", "warning": "warning", "note": "warning"}


def render(view: View) -> str:
    """One ``##vso[task.logissue ...]`` line a finding."""
    lines = []
    for item in view.found:
        properties = (
            f"type={LEVELS[item.severity]};sourcepath={escape(item.path)};linenumber={item.span.line};"
            f"columnnumber={item.span.column};code={item.code};"
        )
        lines.append(f"##vso[task.logissue {properties}]{escape_message(f'{item.name}: {message_with_cell(item)}')}\n")
    return "".join(lines)


def escape(text: str) -> str:
    """*text* as a property of a logging command."""
    return escape_message(text).replace(";", "%3B").replace("]", "%5D")


def escape_message(text: str) -> str:
    """*text* as the message of a logging command."""
    return text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")
