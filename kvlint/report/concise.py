"""One line a finding."""

from __future__ import annotations

from kvlint.report._text import heading, place, summary
from kvlint.report._view import View


def render(view: View) -> str:
    """``path:line:column: CODE name [*]: message`` for every finding, and the summary."""
    return "".join(f"{place(item, view.color)}: {heading(item, view)}\n" for item in view.found) + summary(view)
