"""``offloaded=True``: the argument is called ``offloading``; what is offloaded differs between the classes."""

from __future__ import annotations

from collections.abc import Iterator

from kvlint.analysis.facts import Facts
from kvlint.analysis.values import DYNAMIC_CACHE, STATIC_CACHE
from kvlint.checks.base import Check
from kvlint.checks.call_targets import sure_arguments
from kvlint.checks.constructions import Construction, constructions
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import keyword_edit


class OffloadedKeyword(Check):
    """Reports ``offloaded=`` in a cache constructor."""

    triggers = ("offloaded",)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for item in constructions(facts):
            if item.cls in (DYNAMIC_CACHE, STATIC_CACHE):
                yield from self._of_call(facts, item)

    def _of_call(self, facts: Facts, item: Construction) -> Iterator[Finding]:
        use, cls = item.use, item.cls
        given = next((one for one in sure_arguments(use) if one.name == "offloaded" and one.when & item.releases), None)
        if given is None or use.place.caught & {"TypeError", "Exception"}:
            return
        keyword, in_force = given.keyword, item.releases & given.when
        since = facts.timeline.matching(">=4.56")
        swallowed = since if cls == STATIC_CACHE else ReleaseSet(0)
        short = cls.rpartition(".")[2]
        fix = None
        if given.written and in_force <= since and use.keyword("offloading") is None:
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
