"""A GitLab code quality report."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2b

from kvlint.report._view import View
from kvlint.report.json import message_with_cell

SEVERITIES = {"error": "major", "warning": "minor", "note": "info"}


def render(view: View) -> str:
    """The list of findings; a fingerprint stays the same while a finding only moves to another line."""
    seen: Counter[str] = Counter()
    entries = []
    for item in view.found:
        text = next((line.text.strip() for line in item.source if line.number == item.line), "")
        identity = f"{item.path}\n{item.code}\n{text}"
        seen[identity] += 1
        entries.append(
            {
                "check_name": item.code,
                "description": f"{item.name}: {message_with_cell(item)}",
                "severity": SEVERITIES[item.severity],
                "fingerprint": blake2b(
                    f"{identity}\n{seen[identity]}".encode(errors="surrogateescape"), digest_size=16
                ).hexdigest(),
                "location": {
                    "path": item.path,
                    "positions": {
                        "begin": {"line": item.span.line, "column": item.span.column},
                        "end": {"line": item.span.end_line, "column": item.span.end_column},
                    },
                },
            }
        )
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
