"""Keyword arguments that the ``**kwargs`` of ``StaticCache`` swallows: ``max_batch_size``, ``device``, ``dtype``, ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import Symbol, of_type
from kvlint.checks.base import Check
from kvlint.checks.receivers import cache_class
from kvlint.findings import Applicability, Category, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import drop_keywords, is_plain

OTHER_RULES = ("offloaded",)
"""Keywords that KV208 speaks of."""

EFFECTS = {
    "max_batch_size": "the batch size is that of the first tensors",
    "batch_size": "the batch size is that of the first tensors",
    "device": "tensors are made where the first keys are",
    "dtype": "tensors have the dtype of the first keys",
    "layer_device_map": "tensors are made where the first keys of each layer are",
}


class SwallowedCacheArgument(Check):
    """Reports keyword arguments of cache constructors that are accepted and ignored."""

    triggers = ("Cache",)
    pattern = r"Cache[\"']?\)?\s*\(|Cache\s+as\b|=\s*[\w.]*Cache\b(?!\s*[\w(])"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.calls:
            for atom in of_type(use.callee, Symbol):
                cls = cache_class(facts, atom.name)
                if cls is None:
                    continue
                in_force = use.place.releases & atom.when & facts.timeline.importable(atom.name)
                yield from self._of_call(facts, use, cls, in_force)

    def _of_call(self, facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Iterator[Finding]:
        ignored = ignored_keywords(facts, use.node, cls)
        in_all = [name for name, releases in ignored.items() if in_force <= releases]
        for keyword in use.node.keywords:
            life = ignored.get(keyword.arg or "", ReleaseSet(0))
            wrong = in_force & life
            if not wrong or keyword.arg is None or keyword.arg in OTHER_RULES:
                continue
            fix = None
            if in_force <= life and is_plain(keyword.value):
                plain = [item.arg for item in use.node.keywords if item.arg in in_all and is_plain(item.value)]
                edit = drop_keywords(facts, use.node, [name for name in plain if name not in (None, *OTHER_RULES)])
                fix = Fix("Leave out what is ignored", Applicability.SAFE, (edit,)) if edit is not None else None
            effect = EFFECTS.get(keyword.arg, "nothing reads it")
            yield self.finding(
                facts,
                keyword,
                use.place,
                f"`{cls.rpartition('.')[2]}` ignores `{keyword.arg}` {{when}}: {effect}",
                releases=wrong,
                life=life,
                help="leave it out",
                fix=fix if len(use.callee) == 1 else None,
            )


def ignored_keywords(facts: Facts, node: ast.Call, cls: str) -> dict[str, ReleaseSet]:
    """Keywords of the call that only ``**kwargs`` takes, by release; constructors of 4.54 and 4.55 pass them on."""
    found: dict[str, ReleaseSet] = {}
    for releases, signature in facts.timeline.signatures(cls):
        if not signature.accepts_kwargs or signature.accepts_args:
            continue
        for keyword in node.keywords:
            if keyword.arg is not None and signature.parameter(keyword.arg) is None:
                found[keyword.arg] = found.get(keyword.arg, ReleaseSet(0)) | releases
    return found
