"""JUnit XML: one test suite a file, one failed test case a finding."""

from __future__ import annotations

from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from kvlint.report._view import View
from kvlint.report.json import full_message


def render(view: View) -> str:
    """The document."""
    total = len(view.found)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="kvlint" tests="{max(total, 1)}" failures="{total}" errors="0">',
    ]
    if not total:
        lines.append(
            '  <testsuite name="kvlint" tests="1" failures="0" errors="0"><testcase name="no findings" /></testsuite>'
        )
    for path, group in groupby(view.found, key=lambda item: item.path):
        items = list(group)
        suite = f'<testsuite name={quoteattr(clean(path))} tests="{len(items)}" failures="{len(items)}" errors="0">'
        lines.append(f"  {suite}")
        for item in items:
            cell = f"cell {item.cell}, " if item.cell is not None else ""
            where = f"{cell}line {item.line}, column {item.column}"
            name = quoteattr(f"{item.code} {item.name}")
            message = full_message(item)
            lines += [
                f'    <testcase name={name} classname={quoteattr(clean(path))} line="{item.span.line}">',
                f"      <failure message={quoteattr(clean(message))}>{escape(clean(f'{where}: {message}'))}</failure>",
                "    </testcase>",
            ]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def clean(text: str) -> str:
    """*text* without the characters that XML cannot hold."""
    return "".join(char if char in "\t\n\r" or " " <= char <= "\ud7ff" or char >= "\ue000" else "?" for char in text)
