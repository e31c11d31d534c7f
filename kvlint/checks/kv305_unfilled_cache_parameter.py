"""``forward(..., past_key_values=None)`` where the library passes ``cache=``: the parameter stays None, or TypeError."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.callers import BESIDE_IDS
from kvlint.analysis.facts import AttributeUse, Facts, Place
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import Instance, LocalFunction, Model, Symbol, of_type
from kvlint.checks.base import Check
from kvlint.checks.cache_parameters import (
    accepted_names,
    given_twice,
    is_unread,
    keys_fix,
    merging_fix,
    only_passes_on,
    read_keys,
    renaming_fix,
    translated_by_decorator,
)
from kvlint.checks.hooks import registered_hooks
from kvlint.checks.kv211_cache_as_decode_flag import cuts_to_last, drops_media
from kvlint.checks.library_calls import (
    CACHE_PARAMETERS,
    OLD_PARAMETERS,
    LibraryCalled,
    handed_on_by_the_class,
    is_own_object,
    kind_names,
    library_called,
    without_made_cache,
)
from kvlint.checks.library_contracts import cache_by_position
from kvlint.findings import Applicability, Category, Finding
from kvlint.nodes import walk
from kvlint.releases import NO_RELEASE, ReleaseSet

INPUT_NAMES = re.compile(r"ids$|^inputs?(?:_|$)|_inputs?$|embeds|tokens?$|features|_values$|hidden_states|^x$")
"""What people call the ids, or what stands for them, among the parameters of a model."""
HOOK_KEYS = ("past_key_values", "past_key_value", "cache_params")


class UnfilledCacheParameter(Check):
    """Reports functions that the library calls and that do not know the keyword it uses for the cache."""

    triggers = ("past_key_value", "cache_params", "forward", "prepare_inputs_for_generation")
    also = (("forward", "prepare_inputs_for_generation", "custom_generate"),)
    pattern = r"\b(?:past_key_values?|cache_params|cache|layer_past|past)\s*[:=,)\"'\]]|\.\s*forward\s*=(?!=)"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        called = library_called(facts)
        wrong = {id(item): unfilled(facts, item) for item in called}
        hit = [item for item in called if wrong[id(item)]]
        for item in hit:
            yield self._parameter_finding(facts, item, wrong[id(item)], hit)
        yield from self._kwargs_findings(facts, called)
        yield from self._hook_findings(facts)

    def _parameter_finding(
        self, facts: Facts, item: LibraryCalled, wrong: ReleaseSet, hit: list[LibraryCalled]
    ) -> Finding:
        parameter = known_parameter(item.info)
        assert parameter is not None
        passed = passed_names(item, wrong)
        life = missing(dict(item.names), accepted_names(item.info))
        given = " or ".join(f"`{name}=`" for name in passed_names(item, life))
        loose = item.info.node.args.kwarg is not None and not required(item.info, parameter)
        twice = given_twice(item.info, passed) if loose else ""
        if twice:
            message = (
                f"the library calls `{item.shown}` with {given}, and what is called there gets `{twice}=` twice, "
                "by itself and in `**kwargs`: TypeError {when}"
            )
        elif loose:
            what = (
                "so the cache is never used"
                if item.role != "prepare"
                else "so every step starts from the whole sequence"
            )
            message = (
                f"`{parameter.arg}` of `{item.shown}` is never filled {{when}}: "
                f"the library passes {given}, which ends in `**{item.info.node.args.kwarg.arg}`, {what}"  # type: ignore[union-attr]
            )
        else:
            message = f"the library calls `{item.shown}` with {given}, which it does not take: TypeError {{when}}"
        renamed = passed == ["cache"] and item.place.releases <= facts.timeline.keyword_of_kind("model", "cache")
        fix = None
        old = parameter.arg in OLD_PARAMETERS  # it has been None for years: what a cache there would wake nobody knows
        own = is_own_object(item.info, parameter.arg)
        if not (old or own) and not item.elsewhere and not wrong & without_made_cache(facts, item.info.owner):
            fix = renaming_fix(facts, item, parameter, hit) if renamed else merging_fix(facts, item, parameter, passed)
        node: ast.AST = item.patched.node if item.elsewhere and item.patched is not None else parameter
        return self.finding(
            facts,
            node,
            item.place,
            message,
            releases=wrong,
            life=life,
            help=advice(parameter.arg, passed, renamed),
            category=Category.SILENT if loose and not twice else Category.BREAKS,
            fix=fix,
            span=facts.span(node) if item.elsewhere else parameter_span(facts, parameter),
        )

    def _kwargs_findings(self, facts: Facts, called: list[LibraryCalled]) -> Iterator[Finding]:
        """Functions without a parameter for the cache that look it up in their ``**kwargs``."""
        for item in called:
            if known_parameter(item.info) is None and not item.elsewhere and item.info.node.args.kwarg is not None:
                kwargs = item.info.node.args.kwarg.arg
                yield from self._key_findings(
                    facts, item.info.node, item.place, kwargs, dict(item.names), item.shown, item.role
                )

    def _hook_findings(self, facts: Facts) -> Iterator[Finding]:
        """Hooks see what the library hands to the module; those of a whole model, what its caller hands to it."""
        by_old_name = calls_model_by_old_name(facts)
        by_new_name = any(
            any(isinstance(atom, Model) for atom in use.callee) and any(name == "cache" for name, _ in use.keywords)
            for use in facts.calls
        )
        for hook in registered_hooks(facts):
            if hook.role == "model" and not by_new_name:
                continue  # nobody here says under which name it comes
            role = hook.role or "attention"
            if not by_old_name or hook.role in ("layer", "attention"):
                names = kind_names(facts, role)
                yield from self._key_findings(
                    facts, hook.function, hook.place, hook.keywords, names, hook.shown.strip("`"), hook.role or "model"
                )

    def _key_findings(
        self,
        facts: Facts,
        function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        place: Place,
        kwargs: str,
        names: dict[str, ReleaseSet],
        shown: str,
        role: str,
    ) -> Iterator[Finding]:
        keys = read_keys(function, kwargs)
        known = {key for key, _, _ in keys}
        if not known & set(HOOK_KEYS):
            return
        wrong = missing(names, known) & place.releases
        passed = sorted(name for name, releases in names.items() if releases & wrong)
        if not wrong:
            return
        given = " or ".join(f"`{name}`" for name in passed)
        life = NO_RELEASE
        for name in passed:
            life |= names[name]
        # Anybody may hand the cache to a model under the old name, which a forward of the library translates.
        only_new = role != "model" and place.releases <= facts.timeline.keyword_of_kind("model", "cache")
        body: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
        wakes = role in ("model", "prepare") and any(cuts_to_last(node) or drops_media(node) for node in body)
        applicability = Applicability.UNSAFE if wakes else Applicability.SAFE
        fix = keys_fix(facts, function, kwargs, applicability, only_new) if passed == ["cache"] else None
        looked_up = [item for item in keys if item[0] in HOOK_KEYS]
        reads = [node for _, node, _ in looked_up if not isinstance(node, ast.Compare)]
        first = reads[0] if reads else looked_up[0][1]  # a test of the dict is there for what is read from it
        for key, node, raises in looked_up:
            result = "KeyError" if raises else "it is never there"
            yield self.finding(
                facts,
                node,
                place,
                f'the library hands the cache to `{shown}` as {given}, not as "{key}": {result} {{when}}',
                releases=wrong,
                life=life,
                help=f'look for "cache" first: `{kwargs}.get("cache", {kwargs}.get("{key}"))`',
                category=Category.BREAKS if raises else Category.SILENT,
                defect=f"KV305 {facts.span(function)[0]} {kwargs}",
                leads=node is first,
                fix=fix,
            )


def known_parameter(info: FunctionInfo) -> ast.arg | None:
    """The first parameter that is named like the cache on some release, else the one that was before there were caches."""
    parameters = info.parameters()
    named = (arg for names in (CACHE_PARAMETERS, OLD_PARAMETERS) for arg in parameters if arg.arg in names)
    return next(named, None)


def missing(names: dict[str, ReleaseSet], accepted: set[str]) -> ReleaseSet:
    """Releases on which the cache comes under a name, and under none of the accepted ones."""
    given = taken = NO_RELEASE
    for name, releases in names.items():
        given |= releases
        if name in accepted:
            taken |= releases
    return given - taken


def filled_by_position(facts: Facts, item: LibraryCalled, parameter: ast.arg) -> ReleaseSet:
    """Releases on which the model hands the part its cache by position, at the place of this parameter after ``self``."""
    owner, arguments = item.info.owner, item.info.node.args
    place = [*arguments.posonlyargs, *arguments.args].index(parameter) - 1
    classes = [*(owner.foreign_bases() if owner is not None else ()), item.replaces]
    found = NO_RELEASE
    for cls in classes:
        if cls.startswith("transformers."):
            found |= cache_by_position(facts, cls, place)
    return found


def unfilled(facts: Facts, item: LibraryCalled) -> ReleaseSet:
    """The releases in force on which the function's cache parameter is not the one that is filled."""
    parameter = known_parameter(item.info)
    if parameter is None:
        return NO_RELEASE
    accepted = accepted_names(item.info)
    if item.role == "model" and not takes_ids(item.info):
        return NO_RELEASE  # nothing but the project calls it
    wrong = missing(dict(item.names), accepted) & item.place.releases
    if wrong and item.role in ("layer", "attention") and parameter not in item.info.node.args.kwonlyargs:
        wrong -= filled_by_position(facts, item, parameter)
    if not wrong or translated_by_decorator(facts, item.info) or fills_it_itself(facts, item, parameter.arg):
        return NO_RELEASE
    loose = item.info.node.args.kwarg is not None and not required(item.info, parameter)
    if parameter.arg in OLD_PARAMETERS and not loose and item.role != "prepare":
        return NO_RELEASE  # it takes nothing of what the library passes: the project calls it in its own way
    if loose and (item.encoder or handed_on_by_the_class(item.info.owner, parameter.arg)):
        return NO_RELEASE
    if loose and item.role == "attention" and filled_through_layer(facts, item, parameter.arg):
        return NO_RELEASE
    if loose and item.role in ("prepare", "model") and is_unread(item.info, accepted):
        return NO_RELEASE
    if loose and given_twice(item.info, passed_names(item, wrong)):
        return wrong
    if loose and only_passes_on(item.info, accepted) and not lost_further_on(facts, item, wrong):
        return NO_RELEASE
    return wrong


def filled_through_layer(facts: Facts, item: LibraryCalled, name: str) -> bool:
    """True for a function that is put on the attention of a model object, where the file puts a ``forward`` on such an
    object, too, that calls layers of the library with the keyword: they hand on what they do not know to their attention."""
    use = item.patched
    if not isinstance(use, AttributeUse) or use.name != "forward" or any(of_type(use.value, Symbol)):
        return False
    return any(
        call.place.function is not None
        and call.place.function.bound_to
        and any(key == name for key, _ in call.keywords)
        and any(atom.role == "layer" for atom in of_type(call.callee, Model))
        for call in facts.calls
    )


def takes_ids(info: FunctionInfo) -> bool:
    """True for a forward that can be called as ``generate`` does, with ids or embeddings by keyword."""
    if info.node.args.kwarg is not None or info.owner is None:
        return True
    others = [arg.arg for arg in info.parameters()[info.first_positional() :] if arg.arg not in CACHE_PARAMETERS]
    return not others or any(INPUT_NAMES.search(name) for name in others if name not in BESIDE_IDS)


def fills_it_itself(facts: Facts, item: LibraryCalled, name: str) -> bool:
    """True for ``past`` and ``layer_past`` where the project speaks of the key: it hands on what it keeps itself."""
    if name not in OLD_PARAMETERS:
        return False
    owner = item.info.owner
    functions = [info for cls in owner.ancestors() for info in cls.methods.values()] if owner is not None else []
    others = [info.node for info in functions if info is not item.info]
    written = any(
        (isinstance(node, ast.Constant) and node.value == name) or (isinstance(node, ast.keyword) and node.arg == name)
        for function in others
        for node in walk(function)
    )
    return written or any(key == name for use in facts.calls for key, _ in use.keywords)


def lost_further_on(facts: Facts, item: LibraryCalled, wrong: ReleaseSet) -> bool:
    """True where what is passed on goes to a function of the file that takes the old name, and so gets None.

    Not where the library calls that function as well: then it is reported itself, and mended there.
    """
    reported: set[int] = set()
    for use in facts.calls:
        if use.place.function is not item.info or not any(name in CACHE_PARAMETERS for name, _ in use.keywords):
            continue
        for atom in use.callee:
            info = atom.info if isinstance(atom, LocalFunction) else None
            if isinstance(atom, Instance):
                info = atom.info.method("forward")
            if info is None or known_parameter(info) is None:
                continue
            accepted = accepted_names(info)
            if missing(dict(item.names), accepted) & wrong and not only_passes_on(info, accepted):
                reported = reported or {id(other.info.node) for other in library_called(facts)}
                if id(info.node) not in reported:
                    return True
    return False


def passed_names(item: LibraryCalled, wrong: ReleaseSet) -> list[str]:
    """The keywords under which the library hands over the cache on these releases, oldest first."""
    names = [name for name, releases in item.names.items() if releases & wrong]
    return sorted(names, key=lambda name: (item.names[name] & wrong).oldest)


def required(info: FunctionInfo, parameter: ast.arg) -> bool:
    """True for a parameter without a default value."""
    arguments = info.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if parameter in positional:
        return positional.index(parameter) < len(positional) - len(arguments.defaults)
    return arguments.kw_defaults[arguments.kwonlyargs.index(parameter)] is None


def parameter_span(facts: Facts, parameter: ast.arg) -> tuple[int, int]:
    start, _ = facts.span(parameter)
    return start, start + len(parameter.arg)


def advice(name: str, passed: list[str], renamed: bool) -> str:
    if renamed:
        return f"call the parameter `cache`, or take both names: `cache=None, {name}=None`"
    others = ", ".join(f"`{item}=None`" for item in passed)
    return f"take {others} besides `{name}` and use whichever is given: right on every release"


def calls_model_by_old_name(facts: Facts) -> bool:
    """True where the file itself calls a model with an old keyword: hooks on that model then see it."""
    return any(
        any(isinstance(atom, Model) and atom.role == "model" for atom in use.callee)
        and any(name in HOOK_KEYS for name, _ in use.keywords)
        for use in facts.calls
    )
