"""Methods of cache objects that a release in force lacks: ``to_legacy_cache``, ``get_usable_length``, ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvlint.analysis.facts import Facts
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import CACHE, DYNAMIC_CACHE, ENCODER_DECODER_CACHE, CacheObject, NoneValue, Symbol
from kvlint.behaviour import broken_members, method_hint
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of_cache
from kvlint.checks.layer_kinds import trust_in_layers
from kvlint.checks.layer_members import gone_from_layers, missing_layer_members
from kvlint.checks.missing_names import missing_member_ways
from kvlint.checks.receivers import (
    ATTRIBUTE_ERRORS,
    TENSOR_MEMBERS,
    MissingMember,
    describe,
    known_cache,
    may_be_else,
    missing_members,
)
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.releases import ReleaseSet
from kvlint.rewriting import attribute_edit, has_comment, is_plain, minimal, parenthesised, rewrite_call
from kvlint.sieve import MEMBER, Groups
from kvlint.timeline import Timeline

if TYPE_CHECKING:
    import libcst

PLAIN_RENAMES = {
    "get_max_cache_shape": ("get_max_length", ">=5.13"),
    "get_max_length": ("get_max_cache_shape", ">=4.46.1,<5.20"),
}


class RemovedCacheMethod(Check):
    """Reports calls of cache methods that are gone, not there yet, or broken on one class."""

    triggers = (
        "legacy_cache",
        "get_usable_length",
        "get_max_length",
        "get_max_cache_shape",
        "batch_",
        "get_mask_sizes",
        "crop",
        "reset",
        "reorder_cache",
        "activate_past_recording",
        "conv_state",
        "ssm_state",
        "early_initialization",
        "past",
        "cache.",
        "Cache.",
        "super().",
        "has_previous_state",
        "__getitem__",
        ".to(",
    )

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        yield from missing_member_ways(timeline)
        yield ((".to(",), ("Cache)", "Cache,", "Cache(")), {}
        yield (("layers", "Layer"),), {MEMBER + name: gone for name, gone in gone_from_layers(timeline).items()}

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for missing in missing_members(facts, "method"):
            name = missing.use.name
            if missing.use.action == "store":
                continue
            yield self.finding(
                facts,
                missing.use.node,
                missing.use.place,
                f"{describe(missing.cache)} has no `{name}()`: AttributeError {{when}}",
                releases=missing.wrong,
                life=missing.life,
                help=method_hint(name),
                origin=missing.cache.origin,
                defect=defect_of_cache(facts, missing.cache),
                fix=fix_of(facts, missing),
            )
        for layer in missing_layer_members(facts, "method"):
            yield self.finding(
                facts,
                layer.use.node,
                layer.use.place,
                f"the layers of {describe(layer.cache)} have no `{layer.use.name}()`: AttributeError {{when}}",
                releases=layer.wrong,
                life=layer.life,
                help=method_hint(f"layers.{layer.use.name}"),
                origin=layer.cache.origin,
                defect=defect_of_cache(facts, layer.cache),
            )
        yield from self._broken(facts)

    def _broken(self, facts: Facts) -> Iterator[Finding]:
        """Methods that the class inherits but cannot do."""
        for use in facts.attributes:
            cache = known_cache(use.value)
            if cache is None or use.action != "load" or use.place.caught & ATTRIBUTE_ERRORS or use.place.known_members:
                continue
            if use.name in TENSOR_MEMBERS and may_be_else(use.value):
                continue
            if cache.local_class is not None and not inherits_all(cache.local_class, use.name):
                continue
            for row in broken_members(cache.cls, use.name):
                life = facts.timeline.matching(row.releases)
                wrong = use.place.releases & cache.when & life
                if wrong:
                    yield self.finding(
                        facts,
                        use.node,
                        use.place,
                        f"`{use.name}` of {describe(cache)}: {row.says}: {row.outcome} {{when}}",
                        releases=wrong,
                        life=life,
                        category=Category.SILENT if row.effect == "silent" else Category.BREAKS,
                        help=row.hint,
                        origin=cache.origin,
                        defect=defect_of_cache(facts, cache),
                    )


def inherits_all(info: ClassInfo, name: str) -> bool:
    """True where a subclass has the member from transformers alone: no class of the project or of a third package, of
    which ``torch.nn.Module`` is one, is among its bases with a member of its own."""
    return (
        info.bases_known()
        and not info.defines(name)
        and all(base.startswith("transformers.") for base in info.foreign_bases())
    )


def fix_of(facts: Facts, missing: MissingMember) -> Fix | None:
    """The replacement, where it is right on all releases in force."""
    use, name = missing.use, missing.use.name
    if not isinstance(use.node, ast.Attribute) or use.place.releases - missing.cache.when:
        return None
    if missing.cache.source == "super":
        return None
    in_force = use.place.releases
    if name in PLAIN_RENAMES and use.call is not None:
        new, range_ = PLAIN_RENAMES[name]
        if missing.cache.source == "constructed" and not missing.cache.config_given and new == "get_max_length":
            return None  # without a layer there is no answer: ValueError
        if in_force <= facts.timeline.matching(range_):
            return Fix(f"Replace with `{new}()`", Applicability.UNSAFE, (attribute_edit(facts, use.node, new),))
        return None
    if use.call is None or any(isinstance(arg, ast.Starred) for arg in use.call.args):
        return None
    if any(keyword.arg is None for keyword in use.call.keywords):
        return None
    if name == "from_legacy_cache" and in_force <= facts.timeline.matching(">=4.56"):
        return from_legacy_fix(facts, missing, use.node, use.call)
    if name == "to_legacy_cache" and in_force <= facts.timeline.matching(">=4.54"):
        return to_legacy_fix(facts, missing.cache, use.node, use.call)
    if name == "get_usable_length":
        return usable_length_fix(facts, use.node, use.call)
    return None


def from_legacy_fix(facts: Facts, missing: MissingMember, node: ast.Attribute, call: ast.Call) -> Fix | None:
    """``DynamicCache.from_legacy_cache(pairs)`` becomes ``DynamicCache(pairs)``."""
    if not any(isinstance(atom, Symbol) for atom in missing.use.value) or len(call.args) + len(call.keywords) > 1:
        return None
    # The constructor of an encoder-decoder cache takes neither None nor items without the cross-attention half.
    safe = missing.cache.cls != ENCODER_DECODER_CACHE
    if not safe and may_be_none(facts, call):
        return None

    def change(parsed: libcst.Call) -> libcst.Call:
        import libcst

        assert isinstance(parsed.func, libcst.Attribute)
        args = [arg.with_changes(keyword=None, equal=libcst.MaybeSentinel.DEFAULT) for arg in parsed.args]
        return parsed.with_changes(func=parsed.func.value, args=args)

    edit = rewrite_call(facts, call, change)
    if edit is None:
        return None
    name = facts.source(node.value)
    return Fix(f"Call `{name}(...)` itself", Applicability.SAFE if safe else Applicability.UNSAFE, (edit,))


def may_be_none(facts: Facts, call: ast.Call) -> bool:
    """True for a call without arguments, and where None is one of the things that are passed."""
    use = next((item for item in facts.calls if item.node is call), None)
    if use is None:
        return True
    values = [*use.arguments, *(value for _, value in use.keywords)]
    return not values or any(isinstance(atom, NoneValue) for value in values for atom in value)


def to_legacy_fix(facts: Facts, cache: CacheObject, node: ast.Attribute, call: ast.Call) -> Fix | None:
    """``cache.to_legacy_cache()`` becomes a tuple built from the layers."""
    if call.args or call.keywords or cache.cls not in (CACHE, DYNAMIC_CACHE):
        return None
    start, end = facts.span(call)
    if has_comment(facts.text[start:end]):
        return None
    source = parenthesised(facts.source(node.value), node.value)
    text = f"tuple((layer.keys, layer.values) for layer in {source}.layers)"
    trust = trust_in_layers(facts, cache)
    if trust is None:
        return None
    return Fix(
        "Build the tuple from the layers",
        trust if cache.cls == DYNAMIC_CACHE else Applicability.UNSAFE,
        (minimal(facts.text, start, end, text),),
    )


def usable_length_fix(facts: Facts, node: ast.Attribute, call: ast.Call) -> Fix | None:
    """``get_usable_length(new, layer)`` becomes ``get_seq_length(layer)``."""
    positional = list(call.args)
    new = positional[0] if positional else keyword_of(call, "new_seq_length")
    layer = positional[1] if len(positional) > 1 else keyword_of(call, "layer_idx")
    if (new is not None and not is_plain(new)) or len(positional) > 2:
        return None
    _, end = facts.span(call)
    name_start = facts.span(node)[1] - len(node.attr)
    if has_comment(facts.text[name_start:end]):
        return None
    text = f"get_seq_length({facts.source(layer) if layer is not None else ''})"
    return Fix("Replace with `get_seq_length`", Applicability.SAFE, (Edit(name_start, end, text),))


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
