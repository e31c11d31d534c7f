"""``cache_position`` and friends given to ``update``, ``get_mask_sizes`` and the mask helpers."""

from __future__ import annotations

import ast
from collections import abc
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import (
    CACHE,
    DYNAMIC_CACHE,
    STATIC_CACHE,
    CacheObject,
    Certainty,
    Mapping,
    Member,
    Symbol,
    of_type,
)
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.call_targets import sure_arguments
from kvlint.checks.missing_names import symbols_in
from kvlint.checks.positional import PREPARE, misplaced, private_methods
from kvlint.checks.words import CACHE_WORDS
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.rewriting import drop_keywords, keyword_edit
from kvlint.sieve import Groups
from kvlint.timeline import Signature, Timeline

HINTS = {"input_embeds": "it is called `inputs_embeds`", "max_batch_size": "it is called `batch_size`"}
CHECKED_METHODS = frozenset({"update", "get_seq_length", "get_mask_sizes", "reorder_cache", "batch_repeat_interleave"})
MASK_MODULES = ("transformers.masking_utils.", "transformers.modeling_attn_mask_utils.")
EXPORT_MODULE = "transformers.integrations.executorch."
"""Classes that make a static cache for an exported graph."""


class CacheUpdateArguments(Check):
    """Reports arguments that these functions refuse, or take and ignore."""

    triggers = (
        "update(",
        "get_mask_sizes",
        "_mask(",
        "_mask as",
        "get_seq_length(",
        "reorder_cache(",
        "_attention_mask",
        "Exportable",
        "_for_generation",
        "create_",
        "_cache",
    )

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, abc.Mapping[str, ReleaseSet]]]:
        yield (tuple(f"{name}(" for name in sorted(CHECKED_METHODS)), CACHE_WORDS), {}
        modules = (*MASK_MODULES, EXPORT_MODULE)
        yield (), {name.rpartition(".")[2]: timeline.all for name in symbols_in(timeline, modules)}
        yield (), dict.fromkeys(sorted({PREPARE, *private_methods(timeline)}), timeline.all)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for use in facts.calls:
            yield from self._places(facts, use)
            for atom in use.callee:
                if isinstance(atom, Member) and isinstance(atom.of, CacheObject) and atom.name in CHECKED_METHODS:
                    yield from self._method(facts, use, atom.of, atom.name)
                elif isinstance(atom, Symbol):
                    yield from self._helper(facts, use, atom)

    def _places(self, facts: Facts, use: CallUse) -> Iterator[Finding]:
        """Positional arguments of functions whose order changed."""
        told = NO_RELEASE
        for item in misplaced(facts, use):
            wrong = (use.place.releases & item.life) - told
            if wrong and not use.place.caught & {"TypeError", "Exception"}:
                told |= wrong
                yield self.finding(
                    facts,
                    item.node,
                    use.place,
                    item.says,
                    releases=wrong,
                    life=item.life,
                    help=item.help,
                )

    def _method(self, facts: Facts, use: CallUse, cache: CacheObject, name: str) -> Iterator[Finding]:
        if cache.certainty < Certainty.CONTEXT or cache.local_class is not None:
            return
        if name == "update" and cache.cls == STATIC_CACHE:
            yield from self._static_update(facts, use, cache)
        if name == "get_mask_sizes":
            yield from self._mask_sizes(facts, use, cache)
        if use.place.caught & {"TypeError", "Exception"}:
            return
        cls = cache.cls if cache.cls != CACHE else DYNAMIC_CACHE
        in_force = use.place.releases & cache.when
        for keyword in use.node.keywords:
            life = refused(facts, cls, name, keyword.arg or "")
            if keyword.arg and life & in_force and not (name == "get_mask_sizes" and keyword.arg == "cache_position"):
                yield self.finding(
                    facts,
                    keyword,
                    use.place,
                    f"`{name}` takes no `{keyword.arg}`: TypeError {{when}}",
                    releases=life & in_force,
                    life=life,
                    help="leave it out: the layers count for themselves"
                    if keyword.arg == "cache_position"
                    else "leave it out",
                    origin=cache.origin,
                )

    def _static_update(self, facts: Facts, use: CallUse, cache: CacheObject) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "static-update-counts-itself")
        wrong = use.place.releases & cache.when & life
        if wrong and names_position(use):
            yield self.finding(
                facts,
                use.node,
                use.place,
                "a static cache ignores `cache_position` {when}: the tokens are appended, not written at these positions",
                releases=wrong,
                life=life,
                category=Category.SILENT,
                help="cut back first, `cache.crop(-(cache.get_seq_length() - start))` (5.24 and newer), then update",
                origin=cache.origin,
            )

    def _mask_sizes(self, facts: Facts, use: CallUse, cache: CacheObject) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "mask-sizes-query-length")
        wrong = use.place.releases & cache.when & life
        keyword = use.keyword("cache_position")
        argument = use.node.args[0] if use.node.args else keyword.value if keyword is not None else None
        if not wrong or argument is None or not is_positions(argument, keyword is not None):
            return
        yield self.finding(
            facts,
            use.node,
            use.place,
            "`get_mask_sizes` takes the number of new tokens, not their positions, {when}: the sizes are nonsense",
            releases=wrong,
            life=life,
            category=Category.SILENT,
            help="pass `cache_position.shape[0]`, the query length",
            origin=cache.origin,
        )

    def _helper(self, facts: Facts, use: CallUse, atom: Symbol) -> Iterator[Finding]:
        """Keyword arguments that a mask helper refuses."""
        canonical = facts.timeline.canonical(atom.name) or atom.name
        if not canonical.startswith((*MASK_MODULES, EXPORT_MODULE)) or use.place.caught & {"TypeError", "Exception"}:
            return
        short = canonical.rpartition(".")[2]
        in_force = use.place.releases & atom.when & facts.timeline.importable(atom.name)
        given = {item.arg for item in use.node.keywords}
        for argument in sure_arguments(use):
            keyword, name = argument.keyword, argument.name
            life = refused(facts, canonical, None, name)
            wrong = life & in_force & argument.when
            if not wrong or ("", name) in use.place.known_members:
                continue
            yield self.finding(
                facts,
                keyword,
                use.place,
                f"`{short}` takes no `{name}`: TypeError {{when}}",
                releases=wrong,
                life=life,
                help=HINTS.get(name, "leave it out"),
                fix=helper_fix(facts, use, keyword, in_force, in_force <= life, given) if argument.written else None,
            )


def helper_fix(
    facts: Facts, use: CallUse, keyword: ast.keyword, in_force: ReleaseSet, everywhere: bool, given: set[str | None]
) -> Fix | None:
    if keyword.arg == "input_embeds" and "inputs_embeds" not in given:
        since = renamed_since(facts, use)
        if in_force <= since:
            return Fix(
                "Rename to `inputs_embeds`", Applicability.SAFE, (keyword_edit(facts, keyword, "inputs_embeds"),)
            )
        return None
    if keyword.arg == "cache_position" and everywhere:
        edit: Edit | None = drop_keywords(facts, use.node, ("cache_position",))
        return Fix("Leave it out", Applicability.SAFE, (edit,)) if edit is not None else None
    return None


def renamed_since(facts: Facts, use: CallUse) -> ReleaseSet:
    """Releases on which the helper takes ``inputs_embeds``."""
    found = facts.timeline.all
    for atom in of_type(use.callee, Symbol):
        canonical = facts.timeline.canonical(atom.name) or atom.name
        takes = ReleaseSet(0)
        for releases, signature in facts.timeline.signatures(canonical):
            if signature.parameter("inputs_embeds") is not None:
                takes |= releases
        found &= takes
    return found


def refused(facts: Facts, function: str, member: str | None, keyword: str) -> ReleaseSet:
    """Releases on which a call with this keyword raises TypeError; keywords renamed with a warning are taken."""
    found = ReleaseSet(0)
    if not keyword:
        return found
    for releases, signature in facts.timeline.signatures(function, member):
        if not takes(signature, keyword):
            found |= releases
    for releases, deprecations in facts.timeline.deprecations(function, member):
        if any(item.old == keyword for item in deprecations):
            found -= releases
    return found


def takes(signature: Signature, keyword: str) -> bool:
    return signature.accepts_kwargs or signature.parameter(keyword) is not None


def names_position(use: CallUse) -> bool:
    """True where the call passes ``cache_position``, in a dict or as a keyword."""
    if use.keyword("cache_position") is not None:
        return True
    values = [*use.arguments[3:], *(value for name, value in use.keywords if name == "cache_kwargs")]
    return any("cache_position" in dict(mapping.items) for value in values for mapping in of_type(value, Mapping))


def is_positions(node: ast.expr, by_old_keyword: bool) -> bool:
    """True for an expression that holds positions: the old keyword, a name that says so, ``torch.arange(...)``."""
    if by_old_keyword:
        return True
    if isinstance(node, ast.Name):
        return "position" in node.id
    if isinstance(node, ast.Attribute):
        return "position" in node.attr
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ("arange", "tensor")
    return False
