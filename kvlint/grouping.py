"""One defect is one finding: what only fails behind another finding of the same file becomes a place of that one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvlint.findings import Finding


def grouped(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """The findings that are reported, each with those that come from the same defect, in their order.

    A finding follows another one that leads its defect, on the releases of that one, unless it has a fix of its own: a
    fix is something to decide on. Two findings of a rule about the very same text are one.
    """
    every = once(findings)
    heads: dict[str, Finding] = {}
    for finding in every:
        if finding.leads:
            heads.setdefault(finding.defect, finding)
    followers: dict[int, list[Finding]] = {}
    for finding in every:
        head = heads.get(finding.defect) if finding.defect else None
        if head is not None and follows(finding, head):
            followers.setdefault(id(head), []).append(finding)
    following = {id(finding) for some in followers.values() for finding in some}
    for finding in every:
        if id(finding) not in following:
            yield finding, followers.get(id(finding), [])


def follows(finding: Finding, head: Finding) -> bool:
    """True where *finding* needs no look of its own once *head* is mended."""
    own_fix = finding.fix is not None and finding.fix != head.fix
    return finding is not head and finding.releases <= head.releases and not own_fix


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
