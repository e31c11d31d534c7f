"""Shows verifications: a table for people, JSON, JUnit XML. Pure functions, except that the table is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kvlint.runtime.result import CheckResult, Status, Verification

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {
    Status.PASSED: "[green]passed[/]",
    Status.FAILED: "[bold red]failed[/]",
    Status.SKIPPED: "[yellow]skipped[/]",
    Status.NOT_APPLICABLE: "[dim]n/a[/]",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float) -> str:
    """``1.5 MiB``: a number of bytes for people."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit takes every size")


def to_json(verifications: Sequence[Verification]) -> str:
    """The verifications as a JSON document with a summary of the counts."""
    counts = {state: sum(1 for one in verifications if one.status == state) for state in _STATES}
    document = {"summary": counts, "verifications": [one.to_json() for one in verifications]}
    return json.dumps(document, indent=1) + "\n"


_STATES = ("passed", "failed", "unsupported")


def to_junit(verifications: Sequence[Verification]) -> str:
    """The verifications as JUnit XML: one suite a model, one case a check."""
    root = ElementTree.Element("testsuites", name="kvlint verify")
    for one in verifications:
        suite = ElementTree.SubElement(
            root, "testsuite", name=one.model, tests=str(max(1, len(one.checks))), failures=str(len(one.failures)),
            time=f"{one.seconds:.3f}",
        )  # fmt: skip
        if one.unsupported:
            case = ElementTree.SubElement(suite, "testcase", classname=one.model, name="supported")
            ElementTree.SubElement(case, "skipped", message=one.unsupported)
        for check in one.checks:
            name = f"{check.code} {check.name}".strip()
            case = ElementTree.SubElement(suite, "testcase", classname=one.model, name=name)
            if check.status is Status.FAILED:
                failure = ElementTree.SubElement(case, "failure", message=check.message)
                failure.text = check.explanation
            elif check.status is not Status.PASSED:
                ElementTree.SubElement(case, "skipped", message=check.message or check.status.value)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def print_model(console: Console, one: Verification) -> None:
    """The full table of one model: every check, every failure explained, the bytes."""
    from rich.markup import escape
    from rich.table import Table

    facts = [
        one.model_type,
        f"{one.parameters:,} parameters",
        one.device,
        one.dtype,
        one.attention,
        f"{one.cache} cache",
    ]
    console.print(f"[bold]{escape(one.model)}[/]  {escape(', '.join(fact for fact in facts if fact))}")
    if one.unsupported:
        console.print(f"[yellow]unsupported[/]: {escape(one.unsupported)}")
        return
    table = Table(box=None, pad_edge=False, show_header=True)
    for title in ("check", "", "code", "what was found"):
        table.add_column(title, overflow="fold")
    for check in one.checks:
        table.add_row(check.name, _MARKS[check.status], check.code, escape(check.message))
    console.print(table)
    for check in one.failures:
        console.print(f"\n[bold]{check.name}[/]: {escape(check.explanation)}")
    console.print(_bytes_line(one))
    console.print(_verdict(one.checks))


def _bytes_line(one: Verification) -> str:
    visible = sum(layer.visible_bytes for layer in one.layers)
    held = sum(layer.held_bytes for layer in one.layers)
    formula, mha, static = (
        sum(getattr(layer, name) for layer in one.layers) for name in ("expected_bytes", "mha_bytes", "static_bytes")
    )
    text = f"\ncache after {one.tokens} tokens x {one.batch} rows: {size_text(visible)} ({size_text(held)} held)"
    if formula:
        text += f"; formula {size_text(formula)}, per query head {size_text(mha)}, static {size_text(static)}"
    if one.peak_bytes:
        text += f"; peak on the device {size_text(one.peak_bytes)}"
    return text


def _verdict(checks: Sequence[CheckResult]) -> str:
    counts = {status: sum(1 for check in checks if check.status is status) for status in Status}
    words = [f"{count} {status.value}" for status, count in counts.items() if count]
    return ", ".join(words)


def print_sweep(console: Console, verifications: Sequence[Verification]) -> None:
    """The short table of many models, and the counts."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("model", "", "seconds", "reason"):
        table.add_column(title, overflow="fold")
    colours = {"passed": "green", "failed": "bold red", "unsupported": "yellow"}
    for one in verifications:
        colour = colours[one.status]
        table.add_row(escape(one.model), f"[{colour}]{one.status}[/]", f"{one.seconds:.1f}", escape(reason_of(one)))
    console.print(table)
    console.print(summary_line(verifications))


def reason_of(one: Verification) -> str:
    """Why a model did not pass: the reason it is unsupported, or its failed checks with the first one's finding."""
    if one.unsupported:
        return one.unsupported
    if not one.failures:
        return ""
    names = ", ".join(f"{check.code} {check.name}".strip() for check in one.failures)
    return f"{names}: {one.failures[0].message}"


def summary_line(verifications: Sequence[Verification]) -> str:
    """``4 models: 3 passed, 1 failed``."""
    counts = [(state, sum(1 for one in verifications if one.status == state)) for state in _STATES]
    words = ", ".join(f"{count} {state}" for state, count in counts if count)
    return f"{len(verifications)} model{'s' if len(verifications) != 1 else ''}: {words}"


def read_json(text: str) -> tuple[Verification, ...]:
    """The verifications of a document that ``to_json`` wrote. Raises ValueError, KeyError or TypeError otherwise."""
    document: dict[str, Any] = json.loads(text)
    return tuple(Verification.from_json(item) for item in document["verifications"])
