"""One file through all of it: bytes -> regions -> facts -> findings -> what comments leave -> fixes, to a fixpoint.

Nothing here writes; nothing that a file holds, and no fault of a check, stops a run.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint import suppression
from kvlint.diagnostics import Diagnostic, FileSpan, Placer, SourceLine, document_place, document_starts
from kvlint.engine.units import Surroundings
from kvlint.findings import Category, Finding
from kvlint.fingerprint import digest
from kvlint.fixing import MAX_ROUNDS, Unit, choose, first_unit, marked, merged_edits
from kvlint.grouping import grouped
from kvlint.jobs import Fault, FixRequest, Job, Result
from kvlint.roots import find_root
from kvlint.screen import candidates
from kvlint.selection import SYNTAX_ERROR, UNUSED_SUPPRESSION
from kvlint.source import PROSE, EditError, Region, Skipped, Source, SourceError, apply_region_edits, position
from kvlint.source import parse as parse_source
from kvlint.timeline import the_timeline

if TYPE_CHECKING:
    from kvlint.analysis.facts import Facts
    from kvlint.analysis.joint import Joint
    from kvlint.analysis.project import Project
    from kvlint.timeline import Timeline

CODE_LIMIT = 1_500_000
"""Bytes of the largest file that is parsed, and characters of code in the largest notebook: every line of one this big may
hold a finding, and it still takes seconds. What is bigger was not written by hand."""
NOTEBOOK_LIMIT = 100_000_000
"""Bytes of the largest notebook that is read: nearly all of a big one is output."""
NEWER_SYNTAX = (
    ((3, 11), re.compile(r"^\s*except\s*\*|\[[^\]]*\*\w|:\s*\*\w")),
    ((3, 13), re.compile(r"^\s*(?:(?:async\s+)?def|class|type)\s+\w+\s*\[[^\]]*=")),
    (
        (3, 12),
        re.compile(r"^\s*(?:(?:async\s+)?def|class)\s+\w+\s*\[|^\s*type\s+\w+[^=]*=|\b(?:[fF][rR]?|[rR][fF])[\"']"),
    ),
    ((3, 14), re.compile(r"\b(?:[tT][rR]?|[rR][tT])[\"']|^\s*except\s+[\w.]+(?:\s*,\s*(?:\w+\.)*[A-Z]\w*)+\s*:")),
)
"""Syntax that lets an older parser stumble, with the Python that brought it, as it looks on one line."""


@dataclass(frozen=True, slots=True)
class RegionLook:
    """The findings of one region that are left, and those that a comment silences."""

    region: Region
    kept: tuple[Finding, ...]
    silenced: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What one reading of a file's bytes showed."""

    source: Source
    regions: tuple[RegionLook, ...]
    faults: tuple[Fault, ...]
    dependencies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What the checks found in a region; not *complete* where something kept them from looking at all of it."""

    findings: Sequence[Finding] = ()
    faults: tuple[Fault, ...] = ()
    dependencies: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The outcome of the rounds of fixing."""

    data: bytes
    look: Look
    applied: dict[str, int]
    notices: tuple[str, ...]
    marks: tuple[tuple[str, str], ...] = ()


def lint(job: Job) -> Result:
    """Lints, and with ``job.fix`` rewrites, one file. Raises nothing on what it holds."""
    data = job.data
    if data is None:
        try:
            data = Path(job.path).read_bytes()
        except OSError as problem:
            return unreadable(job, f"cannot be read: {(problem.strerror or str(problem)).lower()}")
    limit = NOTEBOOK_LIMIT if job.path.endswith(".ipynb") else CODE_LIMIT
    if len(data) > limit:
        return too_big(job, data, f"{in_mb(len(data))} is over the limit of {in_mb(limit)} for a file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return lint_bytes(job, data)
        except TooMuchCode as problem:
            return too_big(job, data, str(problem))
        except (RecursionError, MemoryError) as problem:
            return unreadable(job, too_much(problem), data)


class TooMuchCode(Exception):
    """A notebook or a document holds more code than is looked at."""


def too_big(job: Job, data: bytes, why: str) -> Result:
    """The result of a file that is not looked at for its size."""
    return Result(job.shown, job.path, (), notices=(f"{job.shown}: not checked: {why}",), digest=digest(data))


def in_mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB".replace(".0 ", " ")


def lint_bytes(job: Job, data: bytes) -> Result:
    timeline = the_timeline()
    look = look_at(job, data, timeline)
    rewrite = Rewrite(data, look, {}, ())
    if job.fix is not None and not look.faults:
        rewrite = rewrite_file(job, job.fix, data, look, timeline)
        look = rewrite.look
    return Result(
        job.shown,
        job.path,
        tuple(sorted(place_all(job, look, timeline), key=lambda item: item.sort_key)),
        original=data if rewrite.data != data else b"",
        fixed=rewrite.data if rewrite.data != data else None,
        applied=tuple(sorted(rewrite.applied.items())),
        notices=rewrite.notices,
        faults=look.faults,
        digest=digest(data),
        dependencies=look.dependencies,
        marks=rewrite.marks,
    )


def look_at(job: Job, data: bytes, timeline: Timeline) -> Look:
    """Reads *data* as the job's file and collects the findings of its regions. Raises TooMuchCode."""
    path = Path(job.path)
    source = parse_source(path, data, fix_docstrings=job.fix_docstrings, wanted=lambda text: worth_reading(job, text))
    code = max((len(region.text) for region in source.regions), default=0)
    if code > CODE_LIMIT:
        raise TooMuchCode(f"{in_mb(code)} of code is over the limit of {in_mb(CODE_LIMIT)}")
    listen = job.use_suppressions and suppression.mentions(data)
    file_wide = [
        suppression.file_wide_comments(region.text, region.kind == PROSE) if listen else () for region in source.regions
    ]
    regions: list[RegionLook] = []
    faults: list[Fault] = []
    dependencies: set[str] = set()
    for index, region in enumerate(source.regions):
        around = source.regions[0].text if region.kind == "docstring" and source.regions[0].kind == "module" else ""
        found = find(job, path, region, timeline, around) if job.triggered else Found()
        faults += found.faults
        dependencies.update(found.dependencies)
        kept: tuple[Finding, ...] = tuple(found.findings)
        silenced: tuple[Finding, ...] = ()
        if listen:
            others = [comment for other, comments in enumerate(file_wide) if other != index for comment in comments]
            judged = job.codes if found.complete else job.codes - {UNUSED_SUPPRESSION[0]}
            outcome = suppression.apply(region.text, kept, judged, others, region.kind == PROSE)
            kept, silenced = outcome.kept, outcome.silenced
        regions.append(RegionLook(region, kept, silenced))
    return Look(source, tuple(regions), tuple(faults), tuple(sorted(dependencies)))


def worth_reading(job: Job, text: str) -> bool:
    """True where one of the rules could fire on the examples in a docstring, or a comment there speaks to kvlint."""
    return suppression.mentions(text.encode("utf-8", "replace")) or may_fire(job, text)


def may_fire(job: Job, text: str) -> bool:
    """True where one of the rules could fire on a piece of the file."""
    data = text.encode("utf-8", "replace")
    return bool(candidates(data, job.triggered, "x.md", job.target.bits, len(the_timeline().releases)))


def find(job: Job, path: Path, region: Region, timeline: Timeline, around: str = "") -> Found:
    """The findings of one region; *around* is the module of an example in a docstring."""
    from kvlint.analysis import analyse

    try:
        facts = joint_facts(job, region, path, timeline)
        if facts is None:
            # Nobody else decides about a module alone; what others call, take and give back is still known.
            told = job.surroundings
            known = Surroundings(called=told.called, keywords=told.keywords, taken=told.taken)
            beside_it = known if region.kind == "module" else None
            facts = analyse(region, path, job.target, project_of(path.parent), timeline, around, beside_it)
    except (SyntaxError, RecursionError, MemoryError) as problem:
        finding = (
            syntax_finding(region, problem)
            if isinstance(problem, SyntaxError)
            else finding_of_kv000(0, 0, too_much(problem))
        )
        return Found((finding,) if SYNTAX_ERROR[0] in job.codes else (), complete=False)
    except Exception as problem:
        return Found((), (fault_of("the analysis", job.shown, problem),), complete=False)
    try:
        return checked(job, facts, beside(job, path, region))
    finally:
        facts.let_go()


@dataclass(slots=True)
class Shelf:
    """The modules that were walked together last, for the next file of their cluster."""

    key: str = ""
    joint: Joint | None = None


@lru_cache(maxsize=1)
def shelf() -> Shelf:
    """The one of this process."""
    return Shelf()


def joint_facts(job: Job, region: Region, path: Path, timeline: Timeline) -> Facts | None:
    """The facts of a module that was walked together with those around it; None for a region that stands alone."""
    around = job.surroundings.around
    if region.kind != "module" or job.surroundings.alone:
        return None
    from kvlint.analysis.joint import Joint

    held = shelf()
    if job.typing and held.joint is not None and path in held.joint.paths:
        held.key = ""
        return held.joint.facts_of_change(path, region.text, job.surroundings)
    texts = {other: region.text if other == job.path else text_of(other) for other in around}
    words = [f"{job.target.bits:x}", repr(job.surroundings.shared)]
    words += [f"{other} {len(text)} {digest(text.encode('utf-8', 'replace'))}" for other, text in texts.items()]
    key = digest("\n".join(words).encode("utf-8", "surrogateescape"))
    if held.key != key or held.joint is None:
        if held.joint is not None:
            held.joint.let_go()
        held.joint = None
        held.joint = Joint(texts, job.surroundings, job.target, root_of(path.parent), timeline)
        held.key = key
    return held.joint.facts(path, job.surroundings)


def text_of(path: str) -> str:
    """The source of another module of the project; empty where it cannot be read."""
    try:
        source = parse_source(Path(path), Path(path).read_bytes(), docstrings=False)
    except OSError:
        return ""
    return next((region.text for region in source.regions if region.kind == "module"), "")


def beside(job: Job, path: Path, region: Region) -> frozenset[str]:
    """The rules that are not selected and that could fire on the region: what they find may stand against a fix."""
    from kvlint.checks import modules
    from kvlint.checks.units import FAMILIES

    if not job.with_fixes:
        return frozenset()
    others = frozenset(code for code in modules() if code.startswith(FAMILIES)) - job.codes
    data = region.text.encode("utf-8", "replace")
    return candidates(data, others, path.name, job.target.bits, len(the_timeline().releases)) if others else others


def checked(job: Job, facts: Facts, beside: frozenset[str]) -> Found:
    """What the checks find in the facts of a region; where one of them fails, what the others do."""
    from kvlint import checks

    others = (other for other in job.surroundings.around if other != job.path)
    dependencies = (*(str(dependency) for dependency in facts.dependencies), *others)
    try:
        return Found(checks.findings(facts, job.triggered, job.with_fixes, beside), (), dependencies)
    except (RecursionError, MemoryError) as problem:
        finding = finding_of_kv000(0, 0, too_much(problem))
        return Found((finding,) if SYNTAX_ERROR[0] in job.codes else (), (), dependencies, complete=False)
    except Exception:
        findings: list[Finding] = []
        faults: list[Fault] = []
        for code in sorted(job.triggered):
            try:
                findings += checks.findings(facts, frozenset({code}), False)
            except Exception as problem:
                faults.append(fault_of(code, job.shown, problem))
        return Found(findings, tuple(faults), dependencies, complete=False)


@lru_cache(maxsize=64)
def root_of(folder: Path) -> Path | None:
    """The root of the project that holds the files of *folder*."""
    return find_root(folder / "file")


@lru_cache(maxsize=1)
def project_at(root: Path | None) -> Project:
    """The project at *root*; kept from one file to the next, so that a shared module is parsed once."""
    from kvlint.analysis.project import Project

    return Project(root)


def forget_project() -> None:
    """Lets go of every module that was followed: some of them have changed since (in an editor's server)."""
    root_of.cache_clear()
    project_at.cache_clear()
    shelf.cache_clear()


def project_of(folder: Path) -> Project:
    """The project that holds the files of *folder*, with few enough parsed modules of other files."""
    project = project_at(root_of(folder))
    project.forget()
    return project


def followed_by(job: Job) -> int:
    """Characters of other modules that were read so far for the project of the job's file."""
    return project_at(root_of(Path(job.path).parent)).followed


def rewrite_file(job: Job, fix: FixRequest, data: bytes, look: Look, timeline: Timeline) -> Rewrite:
    """Applies fixes, round after round, until no further one can be applied."""
    seen = {digest(data)}
    applied: dict[str, int] = {}
    notices: list[str] = []
    fixable = fix.fixable
    marks: list[tuple[str, str]] = []
    for _ in range(1 if fix.single else MAX_ROUNDS):
        offered = [(item.region, offered_in(item, fix, fixable)) for item in look.regions]
        if fix.single:
            offered, marks = only_first(offered)
        if not any(units for _, units in offered):
            break
        new, done, refused = one_round(look.source, offered)
        if refused:
            fixable -= {finding.code for unit in refused for finding in unit.findings}
            notices.append(f"{job.shown}: discarded a fix of {rules_of(refused)}: the result could not be read back")
        if new == data:
            continue
        if digest(new) in seen:
            notices.append(f"{job.shown}: the fixes of {rules_of(done)} undo each other; stopped")
            break
        seen.add(digest(new))
        for unit in done:
            for finding in unit.findings:
                applied[finding.code] = applied.get(finding.code, 0) + 1
        data = new
        look = look_at(job, data, timeline)
        if look.faults:
            break
    else:
        if not fix.single:
            notices.append(f"{job.shown}: still changing after {MAX_ROUNDS} rounds of fixes; run again")
    return Rewrite(data, look, applied, tuple(notices), tuple(marks))


def offered_in(look: RegionLook, fix: FixRequest, fixable: frozenset[str]) -> tuple[Unit, ...]:
    """The units of a region that can be applied in this round, without those that the request refuses."""
    if not look.region.fixable:
        return ()
    units = choose(shown(look.kept, fix), look.silenced, fix.allowed, fixable)
    if not fix.refused:
        return units
    return tuple(unit for mark, unit in marked(look.region.text, units) if mark not in fix.refused)


def only_first(
    offered: Sequence[tuple[Region, tuple[Unit, ...]]],
) -> tuple[list[tuple[Region, tuple[Unit, ...]]], list[tuple[str, str]]]:
    """The first unit of change of all that are offered, and its marks with what they are in words."""
    left: list[tuple[Region, tuple[Unit, ...]]] = []
    marks: list[tuple[str, str]] = []
    for region, units in offered:
        chosen = first_unit(units) if not marks else ()
        left.append((region, chosen))
        for mark, unit in marked(region.text, units):
            if any(unit is other for other in chosen):
                finding = unit.findings[0]
                line = position(region, finding.start)[0]
                title = finding.fix.title if finding.fix is not None else ""
                marks.append((mark, f"line {line}, {finding.code}: {title}"))
    return left, marks


def shown(findings: Iterable[Finding], fix: FixRequest) -> list[Finding]:
    """The findings that the report lists: what nobody sees is not changed either."""
    return [finding for finding in findings if finding.category.value not in fix.hidden]


def one_round(source: Source, offered: Sequence[tuple[Region, Sequence[Unit]]]) -> tuple[bytes, list[Unit], list[Unit]]:
    """The new bytes, the units that were applied and those that were refused because they would break the file.

    All are tried together; only where that fails are they tried one by one.
    """
    everything = [unit for _, units in offered for unit in units]
    new = try_round(source, offered)
    if new is not None:
        return new, everything, []
    accepted: list[list[Unit]] = [[] for _ in offered]
    refused: list[Unit] = []
    new = source.raw
    for index, (_, units) in enumerate(offered):
        for unit in units:
            accepted[index].append(unit)
            candidate = try_round(
                source, [(region, chosen) for (region, _), chosen in zip(offered, accepted, strict=True)]
            )
            if candidate is None:
                refused.append(accepted[index].pop())
            else:
                new = candidate
    return new, [unit for units in accepted for unit in units], refused


def try_round(source: Source, chosen: Sequence[tuple[Region, Sequence[Unit]]]) -> bytes | None:
    """The bytes with these units applied, or None where they cannot be written or no longer parse."""
    changes = [(region, merged_edits(units)) for region, units in chosen if units]
    try:
        new = apply_region_edits(source, changes)
    except EditError:
        return None
    again = parse_source(
        source.path,
        new,
        docstrings=source.docstrings,
        fix_docstrings=source.fix_docstrings,
        wanted=source.wanted,
    )
    if len(again.errors) > len(source.errors) or len(again.skipped) > len(source.skipped):
        return None
    return new if all(parses(region) for region in again.regions if region.kind != "docstring") else None


def parses(region: Region) -> bool:
    """True where the text of the region is what it claims to be: JSON, or Python that gives no keyword twice."""
    try:
        if region.kind == "generation-config":
            import json

            json.loads(region.text)
        elif region.is_python:
            calls = (node for node in ast.walk(ast.parse(region.text)) if isinstance(node, ast.Call))
            return not any(repeats(call.keywords) for call in calls)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def repeats(keywords: Sequence[ast.keyword]) -> bool:
    """True where one name is given twice, which the compiler refuses and the parser lets pass."""
    names = [keyword.arg for keyword in keywords if keyword.arg is not None]
    return len(names) != len(set(names))


def rules_of(units: Iterable[Unit]) -> str:
    return ", ".join(sorted({finding.code for unit in units for finding in unit.findings}))


def place_all(job: Job, look: Look, timeline: Timeline) -> list[Diagnostic]:
    """Everything that a look at a file found, placed."""
    placed = []
    if SYNTAX_ERROR[0] in job.codes:
        placed += [source_error(job.shown, problem) for problem in look.source.errors]
        placed += [
            skipped_block(job.shown, look.source, block)
            for block in look.source.skipped
            if block.text and may_fire(job, block.text)
        ]
    for item in look.regions:
        if item.kept:
            placer = Placer.of(job.shown, look.source, item.region, timeline.ranges)
            heads = grouped(item.kept, job.path) if job.grouped else ((finding, []) for finding in item.kept)
            placed += [placer.place(head, others) for head, others in heads]
    return placed


def syntax_finding(region: Region, problem: SyntaxError) -> Finding:
    """KV000 at the place where the parser stopped."""
    starts = suppression.line_starts(region.text)
    row = min(max(problem.lineno or 1, 1), len(starts))
    line_end = starts[row] - 1 if row < len(starts) else len(region.text)
    start = min(starts[row - 1] + max((problem.offset or 1) - 1, 0), line_end)
    words = describe_syntax_error(problem, region.text[starts[row - 1] : line_end])
    return finding_of_kv000(start, min(start + 1, line_end), f"cannot be parsed: {words}")


def describe_syntax_error(problem: SyntaxError, line: str) -> str:
    """The parser's words, with a hint where they or the *line* show Python 2, or a Python newer than the running one."""
    words = problem.msg or "invalid syntax"
    needed = newer_syntax(line, sys.version_info[:2])
    if needed is not None:
        running, newer = (".".join(map(str, version)) for version in (sys.version_info[:2], needed))
        return f"{words} (this may be syntax of Python {newer}; kvlint runs on Python {running} and reads no newer one)"
    old = (
        "Missing parentheses in call to 'print'",
        "Missing parentheses in call to 'exec'",
        "multiple exception types must",
    )
    if words.startswith(old) or "leading zeros in decimal integer" in words:
        return f"{words.split('. Did')[0]} (this is Python 2)"
    return words


def newer_syntax(line: str, running: tuple[int, int]) -> tuple[int, int] | None:
    """The Python that a line the parser of *running* stumbled over may have been written for, None for no newer one."""
    return next((needed for needed, pattern in NEWER_SYNTAX if needed > running and pattern.search(line)), None)


def finding_of_kv000(start: int, end: int, message: str) -> Finding:
    code, name = SYNTAX_ERROR
    return Finding(code, name, Category.META, start, end, message)


def source_error(shown: str, problem: SourceError) -> Diagnostic:
    """KV000 for a file, or a part of one, that could not be turned into text."""
    line, column = problem.line or 1, problem.column or 1
    code, name = SYNTAX_ERROR
    return Diagnostic(
        code, name, Category.META, shown, line, column, line, column, None, problem.message, "", (), None, None, ()
    )


def skipped_block(shown: str, source: Source, block: Skipped) -> Diagnostic:
    """KV000, undecided, for a cell or an example that may use a cache and is no Python that can be parsed."""
    code, name = SYNTAX_ERROR
    line, cell = block.line.number, block.line.cell
    first = block.text.split("\n", 1)[0]
    in_file = None
    if cell is not None:
        place = document_place(document_starts(source.text), block.offset)
        in_file = FileSpan(*place, *place)
    what = "cell" if cell is not None else "example"
    message = f"this {what} cannot be parsed as Python, so nothing in it was checked"
    column = len(first) - len(first.lstrip()) + 1
    end = max(len(first.rstrip()) + 1, column)
    where = (line, column, line, end, cell)
    snippet = (SourceLine(line, first),)
    return Diagnostic(code, name, Category.UNDECIDED, shown, *where, message, "", (), None, None, snippet, (), in_file)


def unreadable(job: Job, message: str, data: bytes = b"") -> Result:
    """The result of a file of which nothing could be checked."""
    found = (source_error(job.shown, SourceError(message)),) if SYNTAX_ERROR[0] in job.codes else ()
    return Result(job.shown, job.path, found, digest=digest(data) if data else "")


def too_much(problem: BaseException) -> str:
    if isinstance(problem, RecursionError):
        return "not checked: nested more deeply than the recursion limit of Python allows"
    return "not checked: nested more deeply than the parser of Python allows, or too big for the memory there is"


def fault_of(part: str, shown: str, problem: Exception) -> Fault:
    """What an exception that should not have happened says, and where it was raised."""
    place = problem.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" ({Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno})" if place is not None else ""
    words = " ".join(str(problem).split())[:200]
    return Fault(part, shown, f"{type(problem).__name__}: {words}{where}")
