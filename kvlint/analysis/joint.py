"""Several modules of a project walked together, so that what one passes, stores or returns is known in the others.

The modules share nothing but the functions and classes that they import from each other: a call teaches the parameters of
a function wherever it stands, and the functions that were taught something are walked again, until nothing is new.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from pathlib import Path

from kvlint.analysis.evaluate import Walk
from kvlint.analysis.facts import Facts
from kvlint.analysis.project import Project
from kvlint.analysis.reach import narrow
from kvlint.analysis.scopes import FunctionInfo
from kvlint.engine.units import Place, Surroundings
from kvlint.releases import ReleaseSet
from kvlint.timeline import Timeline

MAX_ROUNDS = 6
"""Rounds of walking again: what is known travels through so many calls at least."""


class Joint:
    """The walks over the modules of a cluster. *texts* are their sources by path; those that do not parse are left out."""

    def __init__(
        self,
        texts: Mapping[str, str],
        surroundings: Surroundings,
        target: ReleaseSet,
        project: Project,
        timeline: Timeline,
    ) -> None:
        self.paths = frozenset(map(Path, texts))
        self.target = target
        self.timeline = timeline
        self._project = project.beside()
        self.walks: dict[Path, Walk] = {}
        self._begun: set[Path] = set()
        self._names: set[str] = set()
        for name, text in texts.items():
            self._begin(Path(name), text, surroundings)
        self._run()

    def _begin(self, path: Path, text: str, surroundings: Surroundings) -> Walk | None:
        """The walk over a module, of which nothing has been walked; None where it does not parse."""
        tree = self._project.parsed(path, self.target, text) or parsed(text)
        if tree is None:
            return None
        walk = Walk(text, tree, path, self.target, self._project, self.timeline)
        walk.join(self, surroundings, self._names)
        self.walks[path] = walk
        return walk

    def facts(self, path: Path, surroundings: Surroundings | None = None) -> Facts | None:
        """The facts of one of the modules, with the *surroundings* of its own; None for one that is not among them."""
        walk = self.walks.get(path)
        if walk is not None and surroundings is not None:
            walk.surroundings = surroundings
        return walk.facts("module", apart=False) if walk is not None else None

    def facts_of_change(self, path: Path, text: str, surroundings: Surroundings) -> Facts | None:
        """The facts of one of the modules with another *text*; None where that does not parse.

        Only this one is walked: what the others pass to its functions, and return to it, is what they did before. So
        what it has come to teach them, and what of its attributes they set, is not known until all are walked again.
        """
        before = self.walks.get(path)
        walk = self._begin(path, text, surroundings)
        if walk is None:
            return None
        functions = before.functions if before is not None else ()
        taught = {info.qualname: info.taught for info in functions if info.taught}
        self._begun.discard(path)
        self.module(path)
        for info in walk.functions:
            if info.qualname in taught:
                info.taught = taught[info.qualname]
                info.arguments.update(info.taught)
                info.called = True
                walk.changed.add(("parameter", id(info.node)))
        walk.walk_speaking()
        for _ in range(MAX_ROUNDS):
            changed, walk.changed = walk.changed, set()
            if not walk.walk_again(
                changed, {name for other in self.walks.values() for name in other.names_of_caches()}
            ):
                break
        narrow([walk])
        return walk.facts("module", apart=False)

    def let_go(self) -> None:
        """Forgets everything; nothing may be asked of the facts that were handed out afterwards."""
        for walk in self.walks.values():
            walk.let_go()
        self.walks.clear()

    def module(self, path: Path) -> Walk | None:
        """The walk over a module of the cluster, of which the statements have been walked; None for any other."""
        walk = self.walks.get(path)
        if walk is not None and path not in self._begun:
            self._begun.add(path)
            walk.survey_imports()
            walk.run_module()
        return walk

    def placed(self, place: Place) -> FunctionInfo | None:
        """The function that a place is about, where its module is among these."""
        walk = self.module(Path(place.value[0]))
        return walk.function_at(place.line) if walk is not None else None

    def _run(self) -> None:
        walks = list(self.walks.values())
        for path in self.walks:
            self.module(path)
        for walk in walks:
            walk.walk_speaking()
        for _ in range(MAX_ROUNDS):
            changed: set[tuple[str, object]] = set()
            for walk in walks:
                changed |= walk.changed
                walk.changed = set()
            names = {name for walk in walks for name in walk.names_of_caches()}
            if not sum([walk.walk_again(changed, names) for walk in walks]):
                break
        narrow(walks)


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a module; None where it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
