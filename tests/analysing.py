"""What the tests of checks are made of: marked code in, findings and fixed code out, without the command line."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable
from pathlib import Path

from kvlint import checks
from kvlint.analysis import analyse
from kvlint.analysis.project import Project
from kvlint.carriers.regions import edited
from kvlint.findings import Finding
from kvlint.fixing import MAX_ROUNDS, allowed_applicabilities, choose, merged_edits
from kvlint.releases import ReleaseSet
from kvlint.rulebook import MARKER
from kvlint.source import parse, position
from kvlint.timeline import the_timeline

OURS = frozenset(check.code for check in checks.all_checks() if check.code[:3] in ("KV1", "KV2"))


def releases(target: str) -> ReleaseSet:
    """The releases of a specifier; "latest" is the newest one."""
    timeline = the_timeline()
    return timeline.matching(f"=={timeline.releases[-1]}" if target == "latest" else target)


def lint(text: str, target: str = "latest", *, codes: Iterable[str] = OURS, path: Path | None = None) -> list[Finding]:
    """What the checks with these codes find in a module of this text (which lies at *path*, if its neighbours count)."""
    where = path or Path("example.py")
    (region,) = parse(where, text.encode()).regions
    project = Project.of(where) if path is not None else Project()
    facts = analyse(region, where, releases(target), project, the_timeline())
    return checks.findings(facts, frozenset(codes))


def lines(text: str, target: str = "latest", **more: object) -> set[tuple[int, str]]:
    """The findings as (line, code)."""
    (region,) = parse(Path("example.py"), text.encode()).regions
    return {(position(region, one.start)[0], one.code) for one in lint(text, target, **more)}  # type: ignore[arg-type]


def split_marks(text: str) -> tuple[str, set[tuple[int, str]]]:
    """Dedents marked code; gives the code without its markers, and what they promise."""
    code, promised = [], set()
    for number, line in enumerate(textwrap.dedent(text).strip("\n").split("\n"), 1):
        marker = MARKER.search(line)
        if marker is not None:
            promised |= {(number, one) for one in marker[1].replace(",", " ").split()}
            line = line[: marker.start()]
        code.append(line)
    return "\n".join(code) + "\n", promised


def expect(text: str, target: str = "latest", *, path: Path | None = None) -> None:
    """Fails unless exactly the marked lines are reported."""
    code, promised = split_marks(text)
    found = lines(code, target, path=path)
    told = "\n".join(f"{one.code} {one.message}" for one in lint(code, target, path=path))
    assert found == promised, f"marked {sorted(promised)}, reported {sorted(found)} in\n{code}\n{told}"


def fixed(text: str, target: str = "latest", *, unsafe: bool = False, codes: Iterable[str] = OURS) -> str:
    """The text after all rounds of fixes; each round must parse."""
    codes = frozenset(codes)
    for _ in range(MAX_ROUNDS):
        units = choose(lint(text, target, codes=codes), (), allowed_applicabilities(unsafe), codes)
        new = edited(text, merged_edits(units))
        if new == text:
            return text
        ast.parse(new)
        text = new
    raise AssertionError(f"still changing after {MAX_ROUNDS} rounds:\n{text}")
