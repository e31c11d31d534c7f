"""One line a finding, as pylint writes its parseable output: many editors and servers read it."""

from __future__ import annotations

from kvlint.report._text import file_name, plain
from kvlint.report._view import View
from kvlint.report.json import message_with_cell


def render(view: View) -> str:
    """``path:line: [CODE] name: message`` for every finding."""
    return "".join(
        f"{file_name(item.path)}:{item.span.line}: [{item.code}] {item.name}: {plain(' '.join(message_with_cell(item).split()))}\n"
        for item in view.found
    )
