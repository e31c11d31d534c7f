"""Helpers around the cache that are gone: config classes, mapping constants, mask modules, private hooks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from kvlint.analysis.facts import AttributeUse, Facts, FunctionUse
from kvlint.analysis.library import is_torch_model_class
from kvlint.analysis.values import LocalFunction, Model, Symbol, of_type
from kvlint.behaviour import helper_hint, releases_of
from kvlint.checks.base import Check
from kvlint.checks.defects import defect_of
from kvlint.checks.generation_members import GENERATION_CONFIG, missing_settings
from kvlint.checks.missing_names import missing_names
from kvlint.checks.private_members import GENERATION_MIXIN, is_hook_name, lives_of, model_classes, private_hooks
from kvlint.checks.swallowed_imports import swallowed_imports, swallowed_message
from kvlint.checks.symbols import ATTRIBUTE_ERRORS, SymbolReference, references
from kvlint.findings import Category, Finding
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.sieve import Groups
from kvlint.timeline import Timeline

GENERATION = "transformers.generation"
GENERATION_NAMES = re.compile(r"(?i)cache|past_key|quant_backend")
AREAS = (
    "transformers.cache_utils",
    "transformers.masking_utils",
    "transformers.modeling_attn_mask_utils",
    GENERATION,
    "transformers.integrations.executorch",
    "transformers.modeling_flash_attention_utils",
)
MASK_METHODS = ("_update_causal_mask", "_prepare_4d_causal_attention_mask_with_cache_position")
LOOPS = frozenset(
    {
        *("greedy_search", "contrastive_search", "_greedy_search", "_contrastive_search", "_beam_sample"),
        *("_group_beam_search", "_constrained_beam_search", "_dola_decoding"),
    }
)
"""Loops of generation that are gone, under names that hardly anything else has."""


class RemovedCacheHelper(Check):
    """Reports helpers of the cache code that are gone on a release in force."""

    triggers = (
        "CacheConfig",
        "CACHE",
        "_MAPPING",
        "_CLASSES",
        "_TYPES",
        "modeling_attn_mask_utils",
        "masking_utils",
        "mask",
        "cache_utils",
        "_cache",
        "_past",
        "past_key_values",
        "cache_config",
        "return_legacy_cache",
        ".forward =",
        "GenerationMixin",
    )

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        yield from missing_names(
            timeline,
            lambda name: (
                (is_area(name, name.rpartition(".")[2]) or is_registry(timeline, name))
                and not timeline.is_cache_class(name)
            ),
        )
        yield (), dict.fromkeys((*private_hooks(timeline), *LOOPS), timeline.all)  # a class may lack what others have
        yield ((".forward =", "generation ="), ("Attention",)), {}
        settings = ("cache_config", "return_legacy_cache")
        yield (), {name: timeline.all - timeline.member(GENERATION_CONFIG, name) for name in settings[1:]}
        yield (), {settings[0]: releases_of(timeline, "cache-config-is-dict")}

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for reference in references(facts):
            if is_function_use(reference):
                continue
            if in_area(facts, reference) and not names_cache_class(facts, reference):
                yield self._reference(facts, reference)
        for reference in swallowed_imports(facts):
            if in_area(facts, reference) and not names_cache_class(facts, reference):
                life = facts.timeline.all - facts.timeline.importable(reference.qualified)
                yield self.finding(
                    facts,
                    reference.node,
                    reference.place,
                    swallowed_message(reference),
                    releases=reference.missing,
                    life=life,
                    help=helper_hint(reference.qualified),
                    category=Category.SILENT,
                )
        yield from self._patched_classes(facts)
        if facts.in_transformers:
            return
        for use in (*facts.attributes, *facts.defaults):
            yield from self._hook_call(facts, use)
            yield from self._dead_patch(facts, use)
        for definition in facts.functions:
            yield from self._hook_override(facts, definition)
        for item in missing_settings(facts):
            yield self.finding(
                facts,
                item.use.node,
                item.use.place,
                item.says,
                releases=item.wrong,
                life=item.life,
                help=item.help,
                category=Category.SILENT if item.use.action == "default" else Category.BREAKS,
            )

    def _patched_classes(self, facts: Facts) -> Iterator[Finding]:
        """``modeling_llama.LlamaFlashAttention2.forward = attend``: the class is gone, and with it the statement fails."""
        for use in facts.attributes:
            if use.action != "store" or use.name not in ("forward", "prepare_inputs_for_generation"):
                continue
            for atom in use.value:
                qualified = atom.name if isinstance(atom, Symbol) else ""
                if not qualified.startswith("transformers.models.") or not facts.timeline.knows(qualified):
                    continue
                life = facts.timeline.all - facts.timeline.importable(qualified)
                wrong = use.place.releases & atom.when & life
                if wrong and not use.place.caught & ATTRIBUTE_ERRORS:
                    module, _, name = qualified.rpartition(".")
                    yield self.finding(
                        facts,
                        use.value_node,
                        use.place,
                        f"`{module.rpartition('.')[2]}` has no `{name}`: AttributeError {{when}}",
                        releases=wrong,
                        life=life,
                        help=successor_hint(facts, module, name),
                    )

    def _reference(self, facts: Facts, reference: SymbolReference) -> Finding:
        module, _, name = reference.qualified.rpartition(".")
        life = facts.timeline.all - facts.timeline.importable(reference.qualified)
        module_life = facts.timeline.all - facts.timeline.importable(module)
        node, span = reference.node, reference.span
        module_is_gone = bool(reference.missing & module_life) and module != "transformers"
        if reference.is_import:
            error = "ModuleNotFoundError" if reference.missing & module_life else "ImportError"
            subject = f"the module `{module}`" if module_is_gone else f"`{name}`"
            message = f"{subject} is not in transformers: {error} {{when}}"
        elif reference.through_import:
            message = f"`{name}` is not in transformers: its import fails {{when}}"
        else:
            message = f"`{module}` has no `{name}`: AttributeError {{when}}"
        return self.finding(
            facts,
            node,
            reference.place,
            message,
            releases=reference.missing,
            life=life,
            help=registry_hint(facts, reference) or helper_hint(reference.qualified),
            span=span,
            defect=defect_of(facts, module if module_is_gone else reference.qualified),
            leads=reference.is_import,
        )

    def _hook_call(self, facts: Facts, use: AttributeUse) -> Iterator[Finding]:
        """``model._extract_past_from_model_output(...)``: a private member that is gone."""
        if use.action not in ("load", "default") or use.place.caught & ATTRIBUTE_ERRORS or use.place.known_members:
            return
        classes = model_classes(facts, use) if is_hook_name(use.name) else None
        if classes is None or use.name in facts.surroundings.shims:
            return
        if use.name == "_reorder_cache" and ast.unparse(use.value_node) == "self":
            return  # it only ever raised NotImplementedError: who calls it means the one of a subclass
        lives = lives_of(facts.timeline, use.name, classes)
        wrong = use.place.releases - lives
        if not lives or not wrong:
            return
        of_mixin = bool(facts.timeline.member(GENERATION_MIXIN, use.name))
        says = f"`GenerationMixin.{use.name}` is gone" if of_mixin else f"models have no `{use.name}`"
        read = use.action == "load"
        yield self.finding(
            facts,
            use.node,
            use.place,
            f"{says}: AttributeError {{when}}" if read else f"{says} {{when}}: this is always the default",
            releases=wrong,
            life=facts.timeline.all - lives,
            category=Category.BREAKS if read else Category.SILENT,
            help=hook_hint(use.name),
        )

    def _dead_patch(self, facts: Facts, use: AttributeUse) -> Iterator[Finding]:
        """``LlamaModel._update_causal_mask = f``: a member of a class of transformers that nothing calls any more."""
        if use.action != "store" or not is_overridable(use.name) or use.place.known_members:
            return
        if not any(of_type(use.assigned, LocalFunction)) or is_called_somewhere(facts, use.name):
            return
        lives = patched_lives(facts, use)
        wrong = use.place.releases - lives
        if lives and wrong:
            yield self.finding(
                facts,
                use.node,
                use.place,
                f"nothing calls `{use.name}` {{when}}: the method that is patched here is gone",
                releases=wrong,
                life=facts.timeline.all - lives,
                category=Category.SILENT,
                help=hook_hint(use.name),
            )

    def _hook_override(self, facts: Facts, definition: FunctionUse) -> Iterator[Finding]:
        """A method that overrides a private hook which nothing calls any more."""
        info = definition.info
        if info.owner is None or not is_overridable(info.name) or info.called or is_called_somewhere(facts, info.name):
            return
        bases = [base for base in info.owner.foreign_bases() if is_torch_model_class(base)]
        if not bases or info.name == "_reorder_cache":
            return
        of_mixin = facts.timeline.member(GENERATION_MIXIN, info.name)
        lives = of_mixin or lives_of_classes(facts, info.name, bases)
        wrong = definition.place.releases - lives
        if not lives or not wrong:
            return
        start, _ = facts.span(info.node)
        header = facts.text.index(info.name, start)
        owner = "GenerationMixin" if of_mixin else f"`{bases[0].rpartition('.')[2]}`"
        yield self.finding(
            facts,
            info.node,
            definition.place,
            f"nothing calls `{info.name}` {{when}}: the hook of {owner} that it overrides is gone",
            releases=wrong,
            life=facts.timeline.all - lives,
            category=Category.SILENT,
            help=hook_hint(info.name),
            span=(header, header + len(info.name)),
        )


def is_overridable(name: str) -> bool:
    """True for a private hook around the cache, or one of the loops in which ``generate`` decodes."""
    return is_hook_name(name) or name in LOOPS


def patched_lives(facts: Facts, use: AttributeUse) -> ReleaseSet:
    """Releases on which what a member is put on has it, by its class; none for a class that transformers does not know."""
    for atom in use.value:
        cls = atom.name if isinstance(atom, Symbol) else atom.cls if isinstance(atom, Model) else ""
        if cls.rpartition(".")[2] == "GenerationMixin":
            return facts.timeline.member(GENERATION_MIXIN, use.name)
        if cls.startswith("transformers.models.") or (is_torch_model_class(cls) and ".Auto" not in cls):
            return facts.timeline.member(GENERATION_MIXIN, use.name) or lives_of_classes(facts, use.name, [cls])
    return NO_RELEASE


def lives_of_classes(facts: Facts, name: str, classes: list[str]) -> ReleaseSet:
    """Releases on which these classes have the member themselves, or one of their file; none where none ever had it."""
    found = lives_of(facts.timeline, name, classes)
    modules = {(facts.timeline.canonical(cls) or cls).rpartition(".")[0] for cls in classes}
    for symbol in facts.timeline.symbols():
        if symbol.rpartition(".")[0] in modules:
            for releases, names in facts.timeline.forward_keywords(symbol, "has"):
                found |= releases if name in names else NO_RELEASE
    return found


def is_called_somewhere(facts: Facts, name: str) -> bool:
    """True where the project itself calls a method of this name: it serves its own purpose then."""
    return name in facts.surroundings.called or is_called(facts, name)


def hook_hint(name: str) -> str:
    masks = helper_hint("transformers.modeling_attn_mask_utils") if name in MASK_METHODS else ""
    return helper_hint(f"{GENERATION_MIXIN}.{name}") or masks


def successor_hint(facts: Facts, module: str, name: str) -> str:
    """The class that took over from ``XFlashAttention2`` and its like."""
    successor = re.sub(r"(?:Flash|Sdpa|Flex)Attention2?$", "Attention", name)
    if successor != name and facts.timeline.knows(f"{module}.{successor}"):
        return f"models have one attention class since 4.48: patch `{successor}` on these releases"
    return "patch the class that its model uses on these releases"


def is_function_use(reference: SymbolReference) -> bool:
    """True for a use of an imported function or constant: its import is reported, which is where the program stops."""
    name = reference.qualified.rpartition(".")[2]
    return (
        reference.through_import
        and not reference.is_import
        and not name.endswith(("Config", "Layer", "Wrapper", "Processor"))
    )


def in_area(facts: Facts, reference: SymbolReference) -> bool:
    """True for names of the modules that hold the cache code, by their own or their exported name."""
    short = reference.qualified.rpartition(".")[2]
    if is_registry(facts.timeline, reference.qualified):
        return True
    names = (reference.qualified, facts.timeline.canonical(reference.qualified) or "")
    return any(is_area(name, short) for name in names)


def is_area(name: str, short: str) -> bool:
    """True for a name of one of the modules; *short* is the end of the name that the code uses."""
    return any(
        name == area
        or (name.startswith(area + ".") and (area != GENERATION or GENERATION_NAMES.search(short) is not None))
        for area in AREAS
    )


def is_registry(timeline: Timeline, name: str) -> bool:
    """True for a dict in which models of transformers looked up the class of their attention or layers."""
    in_model_file = name.startswith("transformers.models.") and name.rpartition(".")[2].isupper()
    return in_model_file and timeline.class_kind(name) == "registry"


def registry_hint(facts: Facts, reference: SymbolReference) -> str:
    """What replaces the class of a registry that is gone; "" for any other name."""
    held = facts.timeline.held_classes(reference.qualified)
    if not held or reference.missing.newest < held[-1][0].newest:
        return ""
    module, _, cls = held[-1][1][0].rpartition(".")
    if not reference.missing <= facts.timeline.importable(f"{module}.{cls}"):
        return "models name the class of their layers directly now: put your own in its place in their module"
    return f"models name the class directly now: `{module.rpartition('.')[2]}.{cls} = ...` before the model is built"


def names_cache_class(facts: Facts, reference: SymbolReference) -> bool:
    return facts.timeline.is_cache_class(facts.timeline.canonical(reference.qualified) or reference.qualified)


def is_called(facts: Facts, name: str) -> bool:
    """True where the file itself calls a method of this name."""
    assert facts.tree is not None
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        for node in walk(facts.tree)
    )
