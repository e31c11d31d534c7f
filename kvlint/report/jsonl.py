"""The objects of the JSON report, one a line."""

from __future__ import annotations

import json

from kvlint.report._view import View
from kvlint.report.json import as_object


def render(view: View) -> str:
    """One compact object a line."""
    return "".join(json.dumps(as_object(item), ensure_ascii=False) + "\n" for item in view.found)
