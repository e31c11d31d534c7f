"""What every check is built on: from a use to a finding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from kvlint.analysis.facts import Facts, Place
from kvlint.checks.tuple_models import held_back
from kvlint.checks.words import LIBRARY_WORDS
from kvlint.findings import Category, Finding, Fix, Origin
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.sieve import Groups, Sieve

if TYPE_CHECKING:
    from kvlint.timeline import Timeline


ABOUT_THE_LIBRARY = "1238"
"""Kinds of rules (the digit behind KV) about what the library's caches are and do; the others are about numbers and tensors."""


class Check:
    """Base of all checks. A subclass names the words that any of its findings needs in the file, and finds."""

    code: str = ""
    name: str = ""
    triggers: ClassVar[tuple[str, ...]] = ()
    """Words of which one must be in the bytes of a file for the check to fire there."""
    also: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """More groups of words; of each group one must be there as well."""
    pattern: ClassVar[str] = ""
    """A regular expression that a Python file must match, too."""
    default: ClassVar[bool] = True
    """False for a check that runs only when it is selected."""
    category: ClassVar[Category] = Category.BREAKS

    @classmethod
    def of_module(cls, module: str) -> Check:
        """The check of a module called ``kv204_cache_subscript``: the file's name is the code and the name."""
        check = cls()
        code, _, name = module.partition("_")
        check.code, check.name = code.upper(), name.replace("_", "-")
        return check

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        """Ways to a finding, one of which must be open: groups of words as in *also*, and words of which one must be
        there, each with the releases on which it can lead to a finding. No way at all: nothing more is asked for."""
        return iter(())

    def sieve(self, timeline: Timeline) -> Sieve:
        """What a file must hold for the check to fire."""
        ways = tuple(
            (groups, {word: dated[word].bits for word in sorted(dated)}) for groups, dated in self.ways(timeline)
        )
        about_the_library = (LIBRARY_WORDS,) if self.code[2] in ABOUT_THE_LIBRARY else ()
        return Sieve((tuple(sorted(set(self.triggers))), *self.also, *about_the_library), self.pattern, ways)

    def run(self, facts: Facts, fixes: bool) -> Iterator[Finding]:
        """The findings in a region; their fixes are dropped where nobody wants any, and where a model is left alone."""
        for finding in self.findings(facts):
            kept = finding.fix is None or (fixes and not held_back(facts, finding))
            yield finding if kept else replace(finding, fix=None)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """The findings in a region."""
        raise NotImplementedError

    def finding(
        self,
        facts: Facts,
        node: ast.AST,
        place: Place,
        message: str,
        *,
        releases: ReleaseSet = NO_RELEASE,
        life: ReleaseSet = NO_RELEASE,
        help: str = "",
        category: Category | None = None,
        origin: Origin | None = None,
        fix: Fix | None = None,
        span: tuple[int, int] | None = None,
        defect: str = "",
        leads: bool = False,
    ) -> Finding:
        """A finding at *node*.

        *releases* are those in force on which the use is wrong. In *message*, ``{when}`` stands for the releases in
        prose ("from 5.0.0"); *life* gives all releases on which it is wrong, in force or not, for that prose.
        """
        start, end = span or facts.span(node)
        statement_start, statement_end = statement_span(facts, place.statement)
        told = touching(life & facts.timeline.all, releases) if life else releases
        when = facts.timeline.describe(told, facts.timeline.all) if told else ""
        return Finding(
            code=self.code,
            name=self.name,
            category=category or self.category,
            start=start,
            end=end,
            message=message.replace("{when}", when),
            help=help,
            releases=releases,
            origin=None if origin is not None and is_here(facts, origin) and origin.start == start else origin,
            fix=fix,
            statement_start=min(statement_start, start),
            statement_end=max(statement_end, end),
            defect=defect,
            leads=leads,
        )


def is_here(facts: Facts, origin: Origin) -> bool:
    """True for evidence in the file of the facts themselves."""
    return origin.path in ("", str(facts.path))


def statement_span(facts: Facts, statement: ast.stmt) -> tuple[int, int]:
    """Offsets of a simple statement, or of the header of a compound one."""
    start, end = facts.span(statement)
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        first = body[0]
        decorators = getattr(first, "decorator_list", None)
        line = decorators[0].lineno if decorators else first.lineno
        if line > statement.lineno:
            end = facts.index.line_end(line - 1)
        else:
            end = facts.span(first)[0]
    return start, max(start, end)


def touching(whole: ReleaseSet, part: ReleaseSet) -> ReleaseSet:
    """The runs of neighbouring releases of *whole* that hold a member of *part*; all of *part* in any case."""
    kept = part
    for first, last in whole.spans():
        run = ReleaseSet.span(first, last)
        if run & part:
            kept |= run
    return kept
