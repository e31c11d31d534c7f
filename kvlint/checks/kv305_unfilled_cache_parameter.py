"""``forward(..., past_key_values=None)`` where the library passes ``cache=``: the parameter stays None, or TypeError."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.scopes import FunctionInfo
from kvlint.analysis.values import Instance, LocalFunction, Member, Model, of_type
from kvlint.checks.base import Check
from kvlint.checks.cache_parameters import (
    accepted_names,
    is_unread,
    keys_fix,
    merging_fix,
    only_passes_on,
    read_keys,
    renaming_fix,
    translated_by_decorator,
)
from kvlint.checks.library_calls import (
    CACHE_PARAMETERS,
    LibraryCalled,
    kind_names,
    library_called,
    without_made_cache,
)
from kvlint.findings import Applicability, Category, Finding
from kvlint.releases import NO_RELEASE, ReleaseSet

INPUT_NAMES = re.compile(r"ids$|^inputs?(?:_|$)|_inputs?$|embeds|tokens?$|features|_values$|hidden_states|^x$")
"""What people call the ids, or what stands for them, among the parameters of a model."""
HOOK_KEYS = ("past_key_values", "past_key_value", "cache_params")


BY_POSITION = frozenset({"GPT2Block", "DecisionTransformerGPT2Block", "ImageGPTBlock", "GPTBigCodeBlock", "GitLayer"})
"""Layers that their models give the cache as the second argument, whatever it is called (4.57.6 and 5.24.0, the
``modeling_*.py`` of gpt2, decision_transformer, imagegpt, gpt_bigcode and git)."""


class UnfilledCacheParameter(Check):
    """Reports functions that the library calls and that do not know the keyword it uses for the cache."""

    triggers = ("past_key_value", "cache_params", "forward", "prepare_inputs_for_generation")
    also = (("forward", "prepare_inputs_for_generation"),)
    pattern = r"\b(?:past_key_values?|cache_params|cache)\s*[:=,)\"'\]]|\.\s*forward\s*=(?!=)"
    category = Category.SILENT

    def findings(self, facts: Facts) -> Iterator[Finding]:
        called = library_called(facts)
        wrong = {id(item): unfilled(facts, item) for item in called}
        hit = [item for item in called if wrong[id(item)] and not filled_by_position(item)]
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
        given = " or ".join(f"`{name}=`" for name in passed)
        loose = item.info.node.args.kwarg is not None and not required(item.info, parameter)
        if loose:
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
        life = NO_RELEASE
        for name in passed:
            life |= item.names[name]
        renamed = item.place.releases <= facts.timeline.keyword_of_kind("model", "cache")
        fix = None
        if not item.elsewhere and not wrong & without_made_cache(facts, item.info.owner):
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
            category=Category.SILENT if loose else Category.BREAKS,
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
        for use in facts.calls:
            hook = hook_function(use)
            if hook is None or calls_model_by_old_name(facts):
                continue
            info = hook if isinstance(hook, FunctionInfo) else None
            node = hook.node if isinstance(hook, FunctionInfo) else hook
            position = 2 + (info.first_positional() if info is not None else 0)
            positional = [*node.args.posonlyargs, *node.args.args]
            if len(positional) <= position:
                continue
            place = (
                use.place if info is None else next((one.place for one in facts.functions if one.info is info), None)
            )
            role = hook_role(use)
            if role == "model":
                continue  # it sees the keyword of whoever calls the model
            names, shown = kind_names(facts, role), "the hook" if info is None else info.name
            if place is not None:
                yield from self._key_findings(facts, node, place, positional[position].arg, names, shown, role)

    def _key_findings(
        self,
        facts: Facts,
        function: ast.AST,
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
        only_new = place.releases <= facts.timeline.keyword_of_kind("model", "cache")
        # Users may hand the cache to a model under the old name, which a forward of the library translates.
        applicability = Applicability.UNSAFE if role == "model" and only_new else Applicability.SAFE
        fix = keys_fix(facts, function, kwargs, applicability, only_new) if passed == ["cache"] else None
        for key, node, raises in keys:
            if key not in HOOK_KEYS:
                continue
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
                fix=fix,
            )


def known_parameter(info: FunctionInfo) -> ast.arg | None:
    """The first parameter that is named like the cache on some release."""
    return next((arg for arg in info.parameters() if arg.arg in CACHE_PARAMETERS), None)


def missing(names: dict[str, ReleaseSet], accepted: set[str]) -> ReleaseSet:
    """Releases on which the cache comes under a name, and under none of the accepted ones."""
    given = taken = NO_RELEASE
    for name, releases in names.items():
        given |= releases
        if name in accepted:
            taken |= releases
    return given - taken


def filled_by_position(item: LibraryCalled) -> bool:
    """True for the second parameter of a layer that is handed its cache by position."""
    owner, parameter = item.info.owner, known_parameter(item.info)
    if owner is None or parameter is None:
        return False
    positional = [*item.info.node.args.posonlyargs, *item.info.node.args.args]
    place = next((index for index, arg in enumerate(positional) if arg is parameter), -1)
    return place == 2 and any(base.rpartition(".")[2] in BY_POSITION for base in owner.foreign_bases())


def unfilled(facts: Facts, item: LibraryCalled) -> ReleaseSet:
    """The releases in force on which the function's cache parameter is not the one that is filled."""
    parameter = known_parameter(item.info)
    if parameter is None:
        return NO_RELEASE
    accepted = accepted_names(item.info)
    if item.role == "model" and not takes_ids(item.info):
        return NO_RELEASE  # nothing but the project calls it
    wrong = missing(dict(item.names), accepted) & item.place.releases
    if not wrong or translated_by_decorator(item.info):
        return NO_RELEASE
    loose = item.info.node.args.kwarg is not None and not required(item.info, parameter)
    if loose and item.encoder:
        return NO_RELEASE
    if loose and item.role in ("prepare", "model") and is_unread(item.info, accepted):
        return NO_RELEASE
    if loose and only_passes_on(item.info, accepted) and not lost_further_on(facts, item, wrong):
        return NO_RELEASE
    return wrong


def takes_ids(info: FunctionInfo) -> bool:
    """True for a forward that can be called as ``generate`` does, with ids or embeddings by keyword."""
    if info.node.args.kwarg is not None or info.owner is None:
        return True
    others = [arg.arg for arg in info.parameters()[info.first_positional() :] if arg.arg not in CACHE_PARAMETERS]
    return not others or any(INPUT_NAMES.search(name) for name in others)


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


def hook_function(use: CallUse) -> FunctionInfo | ast.Lambda | None:
    """The function of the file, or the lambda, that a call registers as a hook which sees keyword arguments."""
    func = use.node.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("register_forward_pre_hook", "register_forward_hook"):
        return None
    flag = use.keyword("with_kwargs")
    if flag is None or not isinstance(flag.value, ast.Constant) or flag.value.value is not True or not use.arguments:
        return None
    if use.node.args and isinstance(use.node.args[0], ast.Lambda):
        return use.node.args[0]
    return next((atom.info for atom in of_type(use.arguments[0], LocalFunction)), None)


def hook_role(use: CallUse) -> str:
    for atom in use.callee:
        if isinstance(atom, Member) and isinstance(atom.of, Model):
            return atom.of.role
    return "attention"


def calls_model_by_old_name(facts: Facts) -> bool:
    """True where the file itself calls a model with an old keyword: hooks on that model then see it."""
    return any(
        any(isinstance(atom, Model) and atom.role == "model" for atom in use.callee)
        and any(name in HOOK_KEYS for name, _ in use.keywords)
        for use in facts.calls
    )
