"""The command ``kvlint explain``: what is known of the tensors on one line, and by what evidence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvlint.errors import UsageProblem
from kvlint.options import FILES, HELP, REPORT, GroupedCommand, option

if TYPE_CHECKING:
    from kvlint.analysis.layout import Tensor
    from kvlint.analysis.layout_facts import Layouts
    from kvlint.source import Region, Source


@dataclass(frozen=True, slots=True)
class Explained:
    """One tensor on the line: its name, its layout, and for each axis what it is and what shows it."""

    name: str
    layout: str
    axes: tuple[tuple[str, str, int], ...]
    """Role, evidence, and the line of the evidence (0: none)."""


@click.command("explain", cls=GroupedCommand, context_settings=HELP)
@click.argument("place", metavar="FILE:LINE", required=False)
@option(
    FILES,
    "--project",
    is_flag=True,
    help="Explain the whole project of the current folder, or of a PATH given in place of FILE:LINE: its classes with "
    "their ancestors in the library, who is put where, what the library calls.",
)
@option(REPORT, "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(place: str | None, project: bool, output_format: str) -> None:
    """Explain the layout of the tensors that are made or used on a line, with the evidence for each axis.

    The line counts as in the findings (in a notebook: FILE:CELL:LINE).
    """
    if project:
        from kvlint.explain_project import as_text, explain_project

        known = explain_project(place or ".")
        click.echo(json.dumps(known.as_json(), indent=2) if output_format == "json" else as_text(known).rstrip("\n"))
        return
    if place is None:
        raise UsageProblem("name a place (`kvlint explain src/model.py:12`), or ask for the whole --project")
    path, cell, line = parse_place(place)
    tensors, verdicts = explain_line(path, cell, line)
    if output_format == "json":
        click.echo(json.dumps(as_json(path, line, tensors, verdicts), indent=2, ensure_ascii=False))
        return
    if not tensors and not verdicts:
        click.echo(f"{place}: no key or value tensor is followed here")
    for tensor in tensors:
        click.echo(f"{tensor.name}: {tensor.layout}")
        for index, (role, text, where) in enumerate(tensor.axes):
            shown = f"{text}{f' (line {where})' if where else ''}" if text else "nothing shows what it is"
            click.echo(f"  axis {index}: {role or '?'}; {shown}")
    for verdict in verdicts:
        click.echo(verdict)


def parse_place(place: str) -> tuple[Path, int | None, int]:
    """``file.py:12`` or ``notebook.ipynb:3:12``. Raises UsageProblem where it is neither, or names no file."""
    found = re.fullmatch(r"(.+?):(?:(\d+):)?(\d+)", place)
    if found is None:
        raise UsageProblem(f"not a place: {place} (write FILE:LINE, as in src/attention.py:12)")
    path = Path(found[1])
    if not path.is_file():
        raise UsageProblem(f"no such file: {path}")
    return path, int(found[2]) if found[2] else None, int(found[3])


def explain_line(path: Path, cell: int | None, line: int) -> tuple[list[Explained], list[str]]:
    """The tensors and the findings of the layout rules on a line of a file.

    Raises UsageProblem where the file cannot be read, or has no such cell or line.
    """
    from kvlint import source
    from kvlint.analysis import analyse
    from kvlint.analysis.layout_facts import interpret
    from kvlint.analysis.project import Project
    from kvlint.checks import all_checks, findings
    from kvlint.timeline import load

    timeline = load()
    codes = frozenset(check.code for check in all_checks() if check.code[2] in "567")
    tensors: list[Explained] = []
    verdicts: list[str] = []
    read = source.read(path)
    if read.errors:
        problem = read.errors[0]
        where = f"{path}:{problem.line}" if problem.line else str(path)
        raise UsageProblem(f"{where}: {problem.message}")
    check_place(read, cell, line)
    for region in read.regions:
        wanted = [index for index, item in enumerate(region.lines, 1) if item.number == line and item.cell == cell]
        if not wanted:
            continue
        try:
            facts = analyse(region, path, timeline.matching(timeline.releases[-1]), Project.of(path), timeline)
        except (SyntaxError, RecursionError) as error:
            raise UsageProblem(f"{path} cannot be read: {error}") from None
        if region.is_python:
            tensors += tensors_on(interpret(facts, trace=True), region, wanted[0])
        for finding in findings(facts, codes, fixes=False):
            if source.position(region, finding.start)[::2] == (line, cell):
                verdicts.append(f"{finding.code} {finding.category.value}: {finding.message}")
    return tensors, verdicts


def check_place(read: Source, cell: int | None, line: int) -> None:
    """Raises UsageProblem where the file has no such cell or line, or the place is written in the wrong way for it."""
    path = read.path
    notebook = next((region for region in read.regions if region.kind == "notebook"), None)
    if notebook is None:
        if path.suffix == ".ipynb":
            raise UsageProblem(f"{path} has no code cell in Python")
        if cell is not None:
            raise UsageProblem(f"{path} is no notebook: write FILE:LINE, without a cell")
        count = len(read.text.splitlines())
        if not 1 <= line <= max(count, 1):
            raise UsageProblem(f"{path} has no line {line} (it has {count:,})")
        return
    places = notebook.lines
    if cell is None:
        raise UsageProblem(f"{path} is a notebook: write FILE:CELL:LINE, cells counted among the code cells")
    numbers = [place.number for place in places if place.cell == cell]
    if not numbers:
        known = sorted({place.cell for place in places if place.cell is not None})
        raise UsageProblem(f"{path} has no code cell {cell} in Python (it has {known[0]} to {known[-1]})")
    if line not in numbers:
        raise UsageProblem(f"cell {cell} of {path} has no line {line} (it has {max(numbers):,})")


def tensors_on(layouts: Layouts, region: Region, line: int) -> list[Explained]:
    """The tensors bound on a line of the region, and those that meet at a place there."""
    from kvlint.analysis.layout import Tensor

    found: dict[tuple[str, str], Explained] = {}
    for binding in layouts.walk.trace or ():
        if binding.line == line:
            for atom in binding.value:
                if isinstance(atom, Tensor):
                    item = explained(layouts, region, binding.name, atom)
                    found.setdefault((item.name, item.layout), item)
    for seen in layouts.walk.sites.values():
        for _, site in seen:
            if site.node.lineno == line:
                groups = [getattr(site, name) for name in ("new", "old", "tensors") if hasattr(site, name)]
                for tensor in flattened(groups):
                    item = explained(layouts, region, tensor.name or "tensor", tensor)
                    found.setdefault((item.name, item.layout), item)
    return list(found.values())


def flattened(groups: Any) -> list[Tensor]:
    from kvlint.analysis.layout import Tensor

    if isinstance(groups, Tensor):
        return [groups]
    return [tensor for item in groups for tensor in flattened(item)]


def explained(layouts: Layouts, region: Region, name: str, tensor: Tensor) -> Explained:
    from kvlint import source
    from kvlint.analysis.layout_roles import Strength

    settled = layouts.settled(tensor)
    axes = []
    for axis in settled.axes:
        evidence = layouts.roles.axis(axis, Strength.CONVENTION)
        role = evidence.role if evidence is not None else " x ".join(factor.kind or "?" for factor in axis)
        origin = layouts.origin(evidence)
        where = source.position(region, origin.start)[0] if origin is not None else 0
        axes.append((role, evidence.text if evidence is not None else "", where))
    return Explained(name, layouts.layout_text(settled), tuple(axes))


def as_json(path: Path, line: int, tensors: list[Explained], verdicts: list[str]) -> dict[str, Any]:
    return {
        "path": str(path),
        "line": line,
        "tensors": [
            {
                "name": item.name,
                "layout": item.layout,
                "axes": [{"role": role, "evidence": text, "line": where or None} for role, text, where in item.axes],
            }
            for item in tensors
        ],
        "findings": verdicts,
    }
