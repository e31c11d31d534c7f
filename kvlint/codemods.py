"""The fixes as a codemod of LibCST: ``python -m libcst.tool codemod --no-format -x kvlint.codemods.MigrateCache src/``.

One command for all rules. What has to change together lies in one file (see ``checks/units.py``), so a file is written
whole or not at all, in whatever order LibCST's workers come to it.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from functools import lru_cache

import libcst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from kvlint.config import Overrides, Resolver, Settings
from kvlint.discovery import FoundFile
from kvlint.engine.index import Index
from kvlint.errors import UsageProblem
from kvlint.fixing import allowed_applicabilities
from kvlint.run import Options, Targets, run
from kvlint.selection import check_selectors


@lru_cache(maxsize=1)
def projects() -> Index:
    """The projects of the files, read once a process, as they were before anything was rewritten."""
    return Index()


class MigrateCache(CodemodCommand):
    """Applies kvlint's fixes to each module; the nearest ``[tool.kvlint]`` holds, the options of the command go over it."""

    DESCRIPTION = "Fix the use of KV caches of transformers (the safe fixes of kvlint)."

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """The options of the command."""
        arg_parser.add_argument(
            "--target", metavar="RELEASES", help="Releases of transformers: 5.24, '>=4.56,<6', latest (default)."
        )
        arg_parser.add_argument(
            "--rules", metavar="RULES", default="", help="Fix only these: codes, prefixes or names, with commas."
        )
        arg_parser.add_argument("--unsafe-fixes", action="store_true", help="Also the fixes that need a look.")

    def __init__(
        self, context: CodemodContext, target: str | None = None, rules: str = "", unsafe_fixes: bool = False
    ) -> None:
        super().__init__(context)
        self.overrides = Overrides(target=target, unsafe_fixes=True if unsafe_fixes else None)
        self.rules = tuple(filter(None, (rule.strip() for rule in rules.split(","))))
        try:
            check_selectors(self.rules, "--rules")
            here = os.getcwd()
            Targets(Options(here)).of(self._settings(here), here)
        except UsageProblem as problem:
            print(f"kvlint: error: {problem}", file=sys.stderr)
            sys.exit(2)

    def transform_module_impl(self, tree: libcst.Module) -> libcst.Module:
        """The module after the fixes. Raises SkipFile for one that cannot be checked."""
        path = os.path.abspath(self.context.filename or "<string>")
        settings = self._settings(os.path.dirname(path))
        options = Options(os.getcwd(), allowed_applicabilities(settings.unsafe_fixes), use_cache=False, jobs=1)
        outcome = run((FoundFile(path, settings),), options, tree.bytes, index=projects())
        for result in outcome.results:
            if result.faults:
                raise SkipFile("; ".join(map(str, result.faults)))
            if result.fixed is not None:
                return libcst.parse_module(result.fixed, config=tree.config_for_parsing)
        return tree

    def _settings(self, folder: str) -> Settings:
        settings = Resolver.create(self.overrides, os.getcwd()).for_folder(folder)
        return replace(settings, fixable=self.rules) if self.rules else settings
