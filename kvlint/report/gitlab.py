"""A GitLab code quality report."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2b

from kvlint.report._view import View
from kvlint.report.json import full_message

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
                "description": f"{item.name}: {full_message(item)}",
                "severity": SEVERITIES[item.severity],
                "fingerprint": blake2b(
                    f"{identity}\n{seen[identity]}".encode(errors="surrogateescape"), digest_size=16
                ).hexdigest(),
                "location": {
                    "path": item.path,
                    "positions": {
                        "begin": {"line": item.line, "column": item.column},
                        "end": {"line": item.end_line, "column": item.end_column},
                    },
                },
            }
        )
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
