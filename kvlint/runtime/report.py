"""Shows verifications: a table for people, JSON, JUnit XML. Pure functions, except that the table is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kvlint.runtime.result import CheckResult, LayerSummary, Status, Verification

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
    versions = (
        ("kvlint", one.kvlint), ("transformers", one.transformers), ("torch", one.torch), ("Python", one.python),
        ("seed", str(one.seed)),
    )  # fmt: skip
    console.print("[dim]" + escape(", ".join(f"{name} {value}" for name, value in versions if value)) + "[/]")
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
    for note in one.notes:
        console.print(f"\n[yellow]note[/]: {escape(note)}")
    for title, rows in _tables(one):
        console.print(f"\n[bold]{title}[/]")
        console.print(_grid(rows))
    console.print(_bytes_line(one))
    console.print(_verdict(one.checks))


def _tables(one: Verification) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Title and rows of the tables of bytes that there are: what the run held, and what another length would hold."""
    tables = [(f"held after {one.tokens} tokens x {one.batch} rows", layer_rows(one))]
    if one.projection is not None:
        title = f"extrapolated to {one.projection.tokens} tokens x {one.projection.batch} rows"
        tables.append((title, projection_rows(one)))
    return [(title, rows) for title, rows in tables if len(rows) > 1]


def _grid(rows: Sequence[Sequence[str]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(rows[0]):
        if any(row[number] for row in rows[1:]):  # the values of most layers are shaped as their keys
            table.add_column(title, overflow="fold", no_wrap=max(len(row[number]) for row in rows[1:]) < 10)
    rows = [rows[0], *([cell for number, cell in enumerate(row) if any(other[number] for other in rows[1:])]
                       for row in rows[1:])]  # fmt: skip
    for row in rows[1:]:
        table.add_row(*map(escape, row))
    return table


def layer_rows(one: Verification) -> list[tuple[str, ...]]:
    """The table of what each layer held, a title row first; layers that are alike share a row. Dtype and device have a
    column where not all layers have those of the run."""
    groups: dict[tuple[str, ...], list[LayerSummary]] = {}
    mixed = any(layer.keys and (layer.dtype, layer.device) != (one.dtype, one.device) for layer in one.layers)
    for layer in one.layers:
        shapes = (_shape(layer.keys), "" if layer.values == layer.keys else _shape(layer.values))
        place = (layer.dtype, layer.device) if mixed else ()
        key: tuple[str, ...] = (layer.kind, layer.layer_class, *shapes, *place, str(layer.visible_bytes))
        groups.setdefault(key, []).append(layer)
    columns = ("dtype", "device") if mixed else ()
    titles = ("layer", "kind", "cache layer", "keys", "values", *columns, "bytes", "formula", "as MHA")
    rows: list[tuple[str, ...]] = [titles]
    for key, layers in groups.items():
        first = layers[0]
        rows.append(
            (
                _ranges([layer.index for layer in layers]), *key[:-1], size_text(first.visible_bytes),
                size_text(first.expected_bytes) if first.expected_bytes else "",
                size_text(first.mha_bytes) if first.mha_bytes else "",
            )
        )  # fmt: skip
    return rows


def projection_rows(one: Verification) -> list[tuple[str, ...]]:
    """The table of the bytes at another length, a title row first and the sum last; empty where none was asked for."""
    if one.projection is None:
        return []
    groups: dict[tuple[Any, ...], list[int]] = {}
    for layer in one.projection.layers:
        key = (layer.part, layer.kind, layer.bytes, layer.formula_bytes, layer.mha_bytes, layer.how)
        groups.setdefault(key, []).append(layer.index)
    rows: list[tuple[str, ...]] = [("layer", "kind", "bytes", "formula", "as MHA", "how")]
    for (part, kind, size, formula, mha, how), indices in groups.items():
        name = _ranges(indices) if part != "beside" else ""
        rows.append((name, kind if part == "self" else part, _each(size, indices), _each(formula, indices),
                     _each(mha, indices), how))  # fmt: skip
    layers = one.projection.layers
    formula, mha = (
        sum(value for layer in layers if (value := getattr(layer, name)) is not None)
        for name in ("formula_bytes", "mha_bytes")
    )
    rows.append(("all", "", size_text(sum(layer.bytes for layer in layers)), size_text(formula), size_text(mha), ""))
    return rows


def _each(size: int | None, indices: Sequence[int]) -> str:
    if size is None:
        return ""
    return size_text(size) if len(indices) == 1 else f"{len(indices)} x {size_text(size)}"


def _shape(shape: Sequence[int]) -> str:
    return str(list(shape)) if shape else ""


def _ranges(indices: Sequence[int]) -> str:
    """``0-3, 5``: sorted numbers with runs joined."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def to_markdown(verifications: Sequence[Verification]) -> str:
    """The verifications as Markdown: versions, seed and prompt, then the tables of checks, layers and bytes."""
    lines = ["# kvlint verify", "", summary_line(verifications) + "."]
    for one in verifications:
        lines += ["", f"## {one.model}, {one.cache} cache: {one.status}", ""]
        facts = (
            ("kvlint", one.kvlint), ("transformers", one.transformers), ("torch", one.torch), ("Python", one.python),
            ("device", one.device), ("dtype", one.dtype), ("attention", one.attention), ("seed", str(one.seed)),
            ("parameters", f"{one.parameters:,}"),
        )  # fmt: skip
        lines.append(", ".join(f"{name} {value}" for name, value in facts if value) + ".")
        if one.prompt:
            lines += ["", f"Prompt: `{[list(row) for row in one.prompt]}`"]
        if one.unsupported:
            lines += ["", f"Could not be checked: {one.unsupported}"]
            continue
        checks = [("check", "", "code", "what was found")]
        checks += [(check.name, check.status.value, check.code, check.message) for check in one.checks]
        lines += ["", *_markdown(checks)]
        lines += [line for check in one.failures for line in ("", f"**{check.name}**: {check.explanation}")]
        lines += [line for note in one.notes for line in ("", f"Note: {note}")]
        for title, rows in _tables(one):
            lines += ["", f"Bytes {title}:", "", *_markdown(rows)]
        lines += ["", _bytes_line(one).strip()]
    return "\n".join(lines) + "\n"


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _bytes_line(one: Verification) -> str:
    visible = sum(layer.visible_bytes for layer in one.layers)
    held = sum(layer.held_bytes for layer in one.layers)
    formula, mha, static = (
        sum(getattr(layer, name) for layer in one.layers) for name in ("expected_bytes", "mha_bytes", "static_bytes")
    )
    text = f"\ncache after {one.tokens} tokens x {one.batch} rows: {size_text(visible)} ({size_text(held)} held)"
    if formula:
        text += f"; formula {size_text(formula)}, as MHA {size_text(mha)}, static {size_text(static)}"
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
    kinds = len({one.cache for one in verifications}) > 1
    for title in ("model", *(("cache",) if kinds else ()), "", "seconds", "bytes", "reason"):
        table.add_column(title, overflow="fold")
    colours = {"passed": "green", "failed": "bold red", "unsupported": "yellow"}
    for one in verifications:
        colour = colours[one.status]
        size = size_text(sum(layer.visible_bytes for layer in one.layers)) if one.layers else ""
        table.add_row(
            escape(one.model), *((one.cache,) if kinds else ()), f"[{colour}]{one.status}[/]", f"{one.seconds:.1f}", size,
            escape(reason_of(one)),
        )  # fmt: skip
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
    """``4 models: 3 passed, 1 failed``; runs where a model was run with several caches."""
    counts = [(state, sum(1 for one in verifications if one.status == state)) for state in _STATES]
    words = ", ".join(f"{count} {state}" for state, count in counts if count)
    what = "model" if len({one.cache for one in verifications}) < 2 else "run"
    return f"{len(verifications)} {what}{'s' if len(verifications) != 1 else ''}: {words}"


def read_json(text: str) -> tuple[Verification, ...]:
    """The verifications of a document that ``to_json`` wrote. Raises ValueError, KeyError or TypeError otherwise."""
    document: dict[str, Any] = json.loads(text)
    return tuple(Verification.from_json(item) for item in document["verifications"])
