"""Keyword arguments that the ``**kwargs`` of ``StaticCache`` swallows: ``max_batch_size``, ``device``, ``dtype``, ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.recorder import path_of
from kvlint.checks.base import Check
from kvlint.checks.bindings import tree_of
from kvlint.checks.call_targets import Argument, sure_arguments
from kvlint.checks.constructions import SEEN_BY, Construction, constructions
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
    pattern = SEEN_BY
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for item in constructions(facts):
            yield from self._of_call(facts, item)

    def _of_call(self, facts: Facts, item: Construction) -> Iterator[Finding]:
        use, cls, in_force = item.use, item.cls, item.releases
        ignored = ignored_keywords(facts, use, cls)
        in_all = [name for name, releases in ignored.items() if in_force <= releases]
        for argument in sure_arguments(use):
            keyword = argument.keyword
            life = ignored.get(argument.name, ReleaseSet(0))
            wrong = in_force & life & argument.when
            if not wrong or argument.name in OTHER_RULES:
                continue
            fix = None
            if argument.written and item.whole and in_force <= life and is_plain(keyword.value):
                plain = [item.arg for item in use.node.keywords if item.arg in in_all and is_plain(item.value)]
                edit = drop_keywords(facts, use.node, [name for name in plain if name not in (None, *OTHER_RULES)])
                fix = Fix("Leave out what is ignored", Applicability.SAFE, (edit,)) if edit is not None else None
            effect = EFFECTS.get(argument.name, "nothing reads it")
            yield self.finding(
                facts,
                keyword if argument.written else key_node(facts, argument),
                use.place,
                f"`{cls.rpartition('.')[2]}` ignores `{argument.name}` {{when}}: {effect}",
                releases=wrong,
                life=life,
                help="leave it out",
                fix=fix if len(use.callee) == 1 else None,
            )


def key_node(facts: Facts, argument: Argument) -> ast.AST:
    """The key in the dict display behind ``**``, where that is written once; else the ``**`` itself."""
    value: ast.expr | None = argument.keyword.value
    if path_of(argument.keyword.value):
        scope = tree_of(facts).scope_of(argument.keyword.value)
        made = scope.definitions(path_of(argument.keyword.value), argument.keyword.value)
        value = made[0].value if len(made) == 1 and made[0].kind == "assign" else None
    if isinstance(value, ast.Dict):
        found = [key for key in value.keys if isinstance(key, ast.Constant) and key.value == argument.name]
        return found[0] if len(found) == 1 else argument.keyword
    if isinstance(value, ast.Call):
        return next((item for item in value.keywords if item.arg == argument.name), argument.keyword)
    return argument.keyword


def ignored_keywords(facts: Facts, use: CallUse, cls: str) -> dict[str, ReleaseSet]:
    """Keywords of the call that only ``**kwargs`` takes, by release; constructors of 4.54 and 4.55 pass them on.

    A constructor that takes nothing else only says where its class has gone (``SinkCache`` in ``cache_utils.py`` of 4.57.6).
    """
    found: dict[str, ReleaseSet] = {}
    for releases, signature in facts.timeline.signatures(cls):
        if not signature.accepts_kwargs or signature.accepts_args or len(signature.parameters) == 1:
            continue
        for argument in sure_arguments(use):
            if signature.parameter(argument.name) is None:
                found[argument.name] = found.get(argument.name, ReleaseSet(0)) | releases
    return found
