"""``kvlint compat --output-format json``: one object with the verdict on every release and every use."""

from __future__ import annotations

import json
from typing import Any

from kvlint import __version__
from kvlint.compat import Compatibility, Use, headline
from kvlint.releases import ReleaseSet
from kvlint.report.json import full_message
from kvlint.rulebook import page_url


def render(compat: Compatibility) -> str:
    """The object, indented. Releases come as runs of full version numbers, both ends included: ``4.48.0-4.53.3``."""
    document = {
        "kvlint": __version__,
        "summary": headline(compat),
        "files": compat.files,
        "works": spans(compat, compat.working),
        "silent": spans(compat, compat.wrong),
        "breaks": spans(compat, compat.breaking),
        "releases": [release_object(compat, index) for index in compat.scope],
        "uses": [use_object(compat, use) for use in compat.uses],
        "unread": [
            {"path": item.path, "line": item.line, "column": item.column, "cell": item.cell, "message": item.message}
            for item in compat.unread
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def release_object(compat: Compatibility, index: int) -> dict[str, Any]:
    """One release with the number of uses that break there and of those that are silently wrong."""
    breaks, silent = compat.counts(index)
    return {"release": compat.releases[index], "breaks": breaks, "silent": silent}


def use_object(compat: Compatibility, use: Use) -> dict[str, Any]:
    """One place with its findings, and what it does on which releases, all findings taken together."""
    return {
        "path": use.path,
        "line": use.line,
        "column": use.column,
        "cell": use.cell,
        "source": use.source,
        "breaks": spans(compat, use.breaks),
        "silent": spans(compat, use.silent),
        "findings": [
            {
                "code": one.item.code,
                "name": one.item.name,
                "category": one.item.category.value,
                "message": full_message(one.item),
                "releases": spans(compat, one.releases),
                "url": page_url(one.item.code, one.item.name),
            }
            for one in use.found
        ],
    }


def spans(compat: Compatibility, chosen: ReleaseSet) -> list[str]:
    """Runs of releases, as in the findings of the linter."""
    named = ((compat.releases[first], compat.releases[last]) for first, last in chosen.spans())
    return [first if first == last else f"{first}-{last}" for first, last in named]
