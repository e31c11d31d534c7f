"""``offloaded=True``: the argument is called ``offloading``; what is offloaded differs between the classes."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import DYNAMIC_CACHE, STATIC_CACHE, Symbol, of_type
from kvlint.checks.base import Check
from kvlint.checks.receivers import cache_class
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import keyword_edit


class OffloadedKeyword(Check):
    """Reports ``offloaded=`` in a cache constructor."""

    triggers = ("offloaded",)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.calls:
            for atom in of_type(use.callee, Symbol):
                cls = cache_class(facts, atom.name)
                if cls in (DYNAMIC_CACHE, STATIC_CACHE):
                    in_force = use.place.releases & atom.when & facts.timeline.importable(atom.name)
                    yield from self._of_call(facts, use, cls or "", in_force)

    def _of_call(self, facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Iterator[Finding]:
        keyword = use.keyword("offloaded")
        if keyword is None or use.place.caught & {"TypeError", "Exception"} or not in_force:
            return
        since = facts.timeline.matching(">=4.56")
        swallowed = since if cls == STATIC_CACHE else ReleaseSet(0)
        short = cls.rpartition(".")[2]
        fix = None
        if in_force <= since and use.keyword("offloading") is None:
            fix = Fix("Rename to `offloading`", Applicability.SAFE, (keyword_edit(facts, keyword, "offloading"),))
        moved = "all layers but the sliding ones" if cls == STATIC_CACHE else "all layers"
        ignored = f"`{short}` ignores `offloaded` {{when}}: nothing is offloaded"
        refused = f"`{short}` takes no `offloaded`: TypeError {{when}}"
        for life, message, category in (
            (swallowed, ignored, Category.SILENT),
            (facts.timeline.all - swallowed, refused, Category.BREAKS),
        ):
            if in_force & life:
                yield self.finding(
                    facts,
                    keyword,
                    use.place,
                    message,
                    releases=in_force & life,
                    life=life,
                    category=category,
                    help=f"the argument is `offloading` (4.56 and newer); "
                    f"it moves {moved} unless `offload_only_non_sliding` says otherwise",
                    fix=fix if len(use.callee) == 1 else None,
                )
