"""The command ``kvlint explain``: what is known of one line, by what evidence, and what follows; or of a whole project."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvlint.config import SHOWABLE
from kvlint.errors import UsageProblem
from kvlint.options import FILES, HELP, REPORT, SETTINGS, GroupedCommand, option

if TYPE_CHECKING:
    from kvlint.analysis.facts import Facts
    from kvlint.analysis.layout import Tensor
    from kvlint.analysis.layout_facts import Layouts
    from kvlint.explain_values import Valued
    from kvlint.jobs import Job
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
@option(SETTINGS, "--target", metavar="RELEASES", help="Releases of transformers: 5.24, '>=4.56,<6', latest, project.")
@option(SETTINGS, "--config", metavar="FILE", help="Read settings from FILE, not from the nearest pyproject.toml.")
@option(REPORT, "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(place: str | None, project: bool, target: str | None, config: str | None, output_format: str) -> None:
    """Explain a line: what its values are, the layouts of its tensors, and why each is reported or not.

    The line counts as in the findings (in a notebook: FILE:CELL:LINE).
    """
    if project:
        from kvlint.explain_project import as_text, explain_project

        linked = explain_project(place or ".")
        click.echo(json.dumps(linked.as_json(), indent=2) if output_format == "json" else as_text(linked).rstrip("\n"))
        return
    if place is None:
        raise UsageProblem("name a place (`kvlint explain src/model.py:12`), or ask for the whole --project")
    path, cell, line = parse_place(place)
    if config is not None and not os.path.isfile(config):
        raise UsageProblem(f"--config {config}: no such file")
    known = explain_line(path, cell, line, target, config)
    if output_format == "json":
        click.echo(json.dumps(as_json(path, line, known), indent=2, ensure_ascii=False))
        return
    for tensor in known.tensors:
        click.echo(f"{tensor.name}: {tensor.layout}")
        for index, (role, text, where) in enumerate(tensor.axes):
            shown = f"{text}{f' (line {where})' if where else ''}" if text else "nothing shows what it is"
            click.echo(f"  axis {index}: {role or '?'}; {shown}")
    for said in (*known.values, *known.findings):
        click.echo(said)
    for reason in known.reasons:
        click.echo(f"not reported: {reason}")
    if not (known.tensors or known.values or known.findings or known.reasons):
        click.echo(f"{place}: nothing here has to do with a cache, a model or their tensors, as far as is known")


def parse_place(place: str) -> tuple[Path, int | None, int]:
    """``file.py:12`` or ``notebook.ipynb:3:12``. Raises UsageProblem where it is neither, or names no file."""
    found = re.fullmatch(r"(.+?):(?:(\d+):)?(\d+)", place)
    if found is None:
        raise UsageProblem(f"not a place: {place} (write FILE:LINE, as in src/attention.py:12)")
    path = Path(found[1])
    if not path.is_file():
        raise UsageProblem(f"no such file: {path}")
    return path, int(found[2]) if found[2] else None, int(found[3])


@dataclass(slots=True)
class Line:
    """What is known of a line: its tensors, the values of its expressions, the findings there, and why there are no more."""

    tensors: list[Explained] = field(default_factory=list)
    values: list[Valued] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    target: str = ""


def explain_line(path: Path, cell: int | None, line: int, target: str | None = None, config: str | None = None) -> Line:
    """What is known of a line of a file, with its project around it, for the releases of *target* (default: as configured).

    Raises UsageProblem where the file cannot be read, has no such cell or line, or the target means nothing.
    """
    from kvlint import source
    from kvlint.analysis import analyse
    from kvlint.analysis.layout_facts import interpret
    from kvlint.explain_values import reasons, values_on
    from kvlint.linter import joint_facts, project_of
    from kvlint.timeline import the_timeline

    timeline = the_timeline()
    read = source.read(path)
    if read.errors:
        problem = read.errors[0]
        where = f"{path}:{problem.line}" if problem.line else str(path)
        raise UsageProblem(f"{where}: {problem.message}")
    check_place(read, cell, line)
    job, asked, text = job_for(path, target, config)
    known = Line(target=text)
    for region in read.regions:
        wanted = [index for index, item in enumerate(region.lines, 1) if item.number == line and item.cell == cell]
        if not wanted:
            continue
        try:
            facts = joint_facts(job, region, path.absolute(), timeline)
            if facts is None:
                facts = analyse(region, path.absolute(), job.target, project_of(path.absolute().parent), timeline)
        except (SyntaxError, RecursionError) as error:
            raise UsageProblem(f"{path} cannot be read: {error}") from None
        if region.is_python:
            known.tensors += tensors_on(interpret(facts, trace=True), region, wanted[0])
            known.values += values_on(facts, region, wanted[0])
        known.findings += verdicts(facts, region, (line, cell), job.codes, asked)
        if region.is_python and not known.findings:
            known.reasons += reasons(facts, wanted[0])
    return known


def job_for(path: Path, target: str | None, config: str | None) -> tuple[Job, frozenset[str], str]:
    """The file as a run would look at it, the rules that are in use for it, and the releases in force in words."""
    from kvlint.config import Overrides, Resolver
    from kvlint.engine.index import Index
    from kvlint.jobs import Job
    from kvlint.run import Options, Targets, in_use, surroundings_of
    from kvlint.selection import known_rules

    absolute = str(path.absolute())
    folder = os.path.dirname(absolute)
    settings = Resolver.create(Overrides(target=target), os.getcwd(), config).for_folder(folder)
    found = Targets(Options(cwd=os.getcwd())).of(settings, folder)
    every = frozenset(rule.code for rule in known_rules())
    around = surroundings_of(Index(), absolute)
    job = Job(absolute, str(path), every, every, found.releases, with_fixes=False, surroundings=around)
    return job, in_use(*settings.codes_for(absolute)), f"{found.text} ({found.source})"


def verdicts(
    facts: Facts, region: Region, place: tuple[int, int | None], codes: frozenset[str], asked: frozenset[str]
) -> list[str]:
    """The findings of all rules on a line, those included that no run would list, with what keeps them from it."""
    from kvlint import source
    from kvlint.checks import findings
    from kvlint.suppression import apply

    found = findings(facts, codes, fixes=False)
    silenced = set(apply(region.text, found, codes, (), region.kind == source.PROSE).silenced)
    lines = []
    for finding in found:
        if source.position(region, finding.start)[::2] == place:
            kept_out = ""
            if finding.code not in asked:
                kept_out = " (not reported: the rule is not in use)"
            elif finding in silenced:
                kept_out = " (not reported: a comment silences it)"
            elif finding.category.value in SHOWABLE:
                kept_out = f" (only counted: --show {finding.category.value})"
            lines.append(f"{finding.code} {finding.category.value}: {finding.message}{kept_out}")
    return lines


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


def as_json(path: Path, line: int, known: Line) -> dict[str, Any]:
    return {
        "path": str(path),
        "line": line,
        "tensors": [
            {
                "name": item.name,
                "layout": item.layout,
                "axes": [{"role": role, "evidence": text, "line": where or None} for role, text, where in item.axes],
            }
            for item in known.tensors
        ],
        "values": [{"text": item.text, "what": item.what, "line": item.evidence or None} for item in known.values],
        "findings": known.findings,
        "not_reported": known.reasons,
        "target": known.target,
    }
