"""Writes the table of a sweep as Markdown: ``python -m kvlint.runtime.table SWEEP.json [MORE.json ...] > table.md``.

A model that is in several files is taken from the last: so a sweep can be completed by a run of a few models.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from kvlint.runtime.report import read_json
from kvlint.runtime.result import Status, Verification


def table(verifications: Sequence[Verification], date: str) -> str:
    """The Markdown page for *verifications*; *date* is when they were made, ``2026-11-30``."""
    first = verifications[0]
    states = ("passed", "failed", "unsupported")
    groups = {state: [one for one in verifications if one.status == state] for state in states}
    lines = [
        "# Families checked by `kvlint verify`",
        "",
        f"transformers {first.transformers}, torch {_torch(verifications)}, {date}, CPU, float32, random weights.",
        "Written by `kvlint.runtime.table` from the JSON of `kvlint verify --random-weights --all --json FILE`.",
        "",
        f"{len(verifications)} model types: " + ", ".join(f"{len(groups[state])} {state}" for state in states) + ".",
    ]
    if groups["failed"]:
        lines += ["", "## Failed", "", "| family | check | what was found |", "| --- | --- | --- |"]
        for one in groups["failed"]:
            for check in one.failures:
                name = f"{check.code} {check.name}".strip()
                lines.append(f"| {one.model} | {name} | {_cell(check.message)} |")
    if groups["unsupported"]:
        lines += ["", "## Unsupported", "", "| family | reason |", "| --- | --- |"]
        lines += [f"| {one.model} | {_cell(one.unsupported)} |" for one in groups["unsupported"]]
    lines += ["", "## Passed", "", "| family | cache layers | passed | do not apply |", "| --- | --- | --- | --- |"]
    for one in groups["passed"]:
        counts = [sum(1 for check in one.checks if check.status is state) for state in _COUNTED]
        lines.append(f"| {one.model} | {_layers(one)} | {counts[0]} | {counts[1]} |")
    return "\n".join(lines) + "\n"


_COUNTED = (Status.PASSED, Status.NOT_APPLICABLE)


def _torch(verifications: Sequence[Verification]) -> str:
    return next((one.torch for one in verifications if one.torch), "?")


def _layers(one: Verification) -> str:
    names = [layer.layer_class for layer in one.layers]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table of the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--date", default=datetime.now(timezone.utc).date().isoformat())
    options = parser.parse_args(arguments)
    merged: dict[str, Verification] = {}
    for path in options.files:
        merged |= {one.model: one for one in read_json(path.read_text(encoding="utf-8"))}
    print(table([merged[name] for name in sorted(merged)], options.date), end="")


if __name__ == "__main__":
    main()
