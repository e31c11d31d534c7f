"""One defect is one finding: what only fails behind another finding of the same file becomes a place of that one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvlint.findings import Finding

UNFILLED = "KV305"
"""The rule of parameters that nobody fills: what would fail with the value that they should have is told with them."""


def grouped(findings: Iterable[Finding], path: str) -> Iterator[tuple[Finding, list[Finding]]]:
    """The findings that are reported, each with those that come from the same defect, in their order.

    A finding follows another one that leads its defect, on the releases of that one, unless it has a fix of its own: a
    fix is something to decide on. What can only come true once a parameter of this file (*path*) is filled follows the
    finding about that parameter, fix or none. Two findings of a rule about the very same text are one.
    """
    every = once(findings)
    parameters = {finding.start: finding for finding in every if finding.code == UNFILLED}
    heads: dict[str, Finding] = {}
    for finding in every:
        if finding.leads:
            heads.setdefault(finding.defect, finding)
    followers: dict[int, list[Finding]] = {}
    for finding in every:
        head = heads.get(finding.defect) if finding.defect else None
        if head is None or not follows(finding, head):
            head = parameter_of(finding, parameters, path)
        if head is not None:
            followers.setdefault(id(head), []).append(finding)
    following = {id(finding) for some in followers.values() for finding in some}
    for finding in every:
        if id(finding) not in following:
            yield finding, followers.get(id(finding), [])


def follows(finding: Finding, head: Finding) -> bool:
    """True where *finding* needs no look of its own once *head* is mended."""
    own_fix = finding.fix is not None and finding.fix != head.fix
    return finding is not head and finding.releases <= head.releases and not own_fix


def parameter_of(finding: Finding, parameters: Mapping[int, Finding], path: str) -> Finding | None:
    """The finding about the parameter that *finding*'s value comes from, where that one fails wherever this one does."""
    origin = finding.origin
    if origin is None or origin.path not in ("", path) or finding.code == UNFILLED:
        return None
    head = parameters.get(origin.start)
    return head if head is not None and finding.releases <= head.releases else None


def once(findings: Iterable[Finding]) -> list[Finding]:
    """The first of the findings that one rule has about one stretch of text (two functions behind one name)."""
    seen: set[tuple[str, int, int, str]] = set()
    kept = []
    for finding in findings:
        key = (finding.code, finding.start, finding.end, finding.category.value)
        if key not in seen or finding.fix is not None:
            kept.append(finding)
        seen.add(key)
    return kept
