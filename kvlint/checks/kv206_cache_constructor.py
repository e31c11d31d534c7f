"""Constructor arguments of cache classes that raise, are missing, or changed their position and meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.values import (
    DYNAMIC_CACHE,
    ENCODER_DECODER_CACHE,
    QUANTIZED_CACHE,
    STATIC_CACHE,
    Config,
    literal,
)
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.call_targets import sure_arguments
from kvlint.checks.constructions import SEEN_BY, Construction, constructions
from kvlint.checks.defects import defect_of_call
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import code_of, statements, walk
from kvlint.releases import ReleaseSet
from kvlint.rewriting import as_keyword, is_plain, rewrite_call, without_arguments
from kvlint.timeline import Signature

if TYPE_CHECKING:
    import libcst

STATIC_EXTRAS = ("max_batch_size", "batch_size", "device", "dtype", "layer_device_map")
OTHER_RULES = ("offloaded",)
"""Keywords that KV208 speaks of."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a constructor call."""

    node: ast.AST
    wrong: ReleaseSet
    message: str
    help: str
    category: Category = Category.BREAKS
    fix: Fix | None = None


class CacheConstructor(Check):
    """Reports constructor calls that the class does not take, or takes in another sense."""

    triggers = ("Cache",)
    pattern = SEEN_BY

    def findings(self, facts: Facts) -> Iterator[Finding]:
        for item in constructions(facts):
            use, in_force = item.use, item.releases
            if use.starred or use.place.caught & {"TypeError", "Exception"} or second_try(facts, use):
                continue
            for number, mistake in enumerate(mistakes(facts, item)):
                yield self.finding(
                    facts,
                    mistake.node,
                    use.place,
                    mistake.message,
                    releases=mistake.wrong & in_force,
                    life=mistake.wrong,
                    help=mistake.help,
                    category=mistake.category,
                    fix=mistake.fix if len(use.callee) == 1 and item.whole else None,
                    defect=defect_of_call(facts, use),
                    leads=not number,
                )


def second_try(facts: Facts, use: CallUse) -> bool:
    """True for a call in an ``except`` behind a ``try`` of the same constructor: it is meant for other releases."""
    known = facts.memo.get("tried before")
    if not isinstance(known, dict):
        found: dict[int, set[str]] = {}
        for node in statements(facts.tree) if facts.tree is not None and "except" in facts.text else ():
            if isinstance(node, ast.Try):
                first = {
                    code_of(other.func) for item in node.body for other in walk(item) if isinstance(other, ast.Call)
                }
                for item in node.handlers:
                    for other in walk(item):
                        if isinstance(other, ast.Call):
                            found.setdefault(id(other), set()).update(first)
        known = facts.memo["tried before"] = found
    tried = known.get(id(use.node))
    return tried is not None and code_of(use.node.func) in tried


def mistakes(facts: Facts, item: Construction) -> Iterator[Mistake]:
    """What is wrong with the call on the releases in force, most telling first; on each release at most one
    mistake an argument."""
    use, cls, in_force = item.use, item.cls, item.releases
    told, left = ReleaseSet(0), in_force
    for judge in (dynamic_config, layer_count, static_positional, quantized_backend, encoder_decoder_keywords):
        mistake = judge(facts, use, cls, in_force)
        if mistake is not None and mistake.wrong & left:
            yield replace(mistake, wrong=mistake.wrong - told)
            told |= mistake.wrong
            left -= mistake.wrong
    for mistake in by_signature(facts, item, left):
        yield replace(mistake, wrong=mistake.wrong - told)


LAYER_COUNTS = frozenset(
    {"num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "decoder_layers"}
)
"""Fields of configurations that hold the number of layers."""


def layer_count(facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Mistake | None:
    """``DynamicCache(config.num_hidden_layers)``: releases 4.45 to 4.49 took the number of layers."""
    if cls != DYNAMIC_CACHE or not use.node.args or not is_count(use.node.args[0]):
        return None
    wrong = ReleaseSet(0)
    for releases, signature in facts.timeline.signatures(cls):
        if not signature.positional or signature.positional[0].name != "num_hidden_layers":
            wrong |= releases
    return Mistake(
        use.node,
        wrong & facts.timeline.matching(">=4.50"),
        "the first argument of `DynamicCache` is an iterable of key/value pairs, not a number of layers: TypeError {when}",
        "write `DynamicCache(config=model.config)`, or leave it out",
    )


def is_count(node: ast.expr) -> bool:
    """True for an expression that is a number of layers: a field of a configuration, ``len(...)``, an int, a parameter
    that is called or annotated so."""
    if isinstance(node, (ast.Attribute, ast.Name)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return name in LAYER_COUNTS
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "len"
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int) and not isinstance(value, bool)


def dynamic_config(facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Mistake | None:
    """``DynamicCache(model.config)``: the first argument is an iterable of key/value pairs."""
    if cls != DYNAMIC_CACHE or not use.arguments or not any(isinstance(atom, Config) for atom in use.arguments[0]):
        return None
    if any(not isinstance(atom, Config) for atom in use.arguments[0]):
        return None
    wrong = facts.timeline.matching(">=4.50")
    fix = None
    if in_force <= facts.timeline.matching(">=4.56"):
        edit = rewrite_call(
            facts,
            use.node,
            lambda call: call.with_changes(args=[as_keyword(call.args[0], "config"), *call.args[1:]]),
        )
        fix = Fix("Pass `config=`", Applicability.SAFE, (edit,)) if edit is not None else None
    return Mistake(
        use.node,
        wrong,
        "the first argument of `DynamicCache` is an iterable of key/value pairs, not a config: it raises {when}",
        "write `DynamicCache(config=...)` (4.56 and newer)",
        fix=fix,
    )


def static_positional(facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Mistake | None:
    """``StaticCache(config, batch, length)``: read as ``max_cache_len=batch, offloading=length``."""
    node = use.node
    if cls != STATIC_CACHE or len(node.args) < 2:
        return None
    since = releases_of(facts.timeline, "static-positional")
    if len(node.args) >= 5:
        return Mistake(
            node,
            since,
            f"`StaticCache` takes at most four positional arguments, not {len(node.args)}: TypeError {{when}}",
            "write `StaticCache(config=..., max_cache_len=...)`",
            fix=static_fix(facts, use, in_force),
        )
    if use.keyword("max_cache_len") is not None:
        return Mistake(
            node,
            since,
            "the second positional argument of `StaticCache` is `max_cache_len`, which is given twice: TypeError {when}",
            "write `StaticCache(config=..., max_cache_len=...)`",
            fix=static_fix(facts, use, in_force),
        )
    names_batch = "batch" in facts.source(node.args[1]).lower()
    third = use.arguments[2] if len(node.args) > 2 else ()
    old_order = names_batch or (len(node.args) > 2 and not isinstance(literal(third), bool))
    if old_order:
        return Mistake(
            node,
            since,
            "`StaticCache` reads its second and third positional arguments as `max_cache_len` and `offloading` {when}: "
            "a cache of as many tokens as the batch has rows",
            "write `StaticCache(config=..., max_cache_len=...)`",
            Category.SILENT,
            static_fix(facts, use, in_force),
        )
    before = facts.timeline.matching("<4.56")
    if in_force & before:
        return Mistake(
            node,
            before,
            "`StaticCache` reads its second positional argument as `max_batch_size` {when}",
            "name the arguments",
            Category.SILENT,
        )
    return None


def static_fix(facts: Facts, use: CallUse, in_force: ReleaseSet) -> Fix | None:
    """Names the config and the length, leaves out what the class no longer takes."""
    node = use.node
    if not in_force <= facts.timeline.matching(">=4.56") or len(node.args) > 6:
        return None
    names = ["config", "max_batch_size", "max_cache_len", "device", "dtype", "layer_device_map"][: len(node.args)]
    given = {item.arg for item in node.keywords}
    if "max_cache_len" not in (*names, *given) or None in given or given & set(names):
        return None
    dropped = [value for name, value in zip(names, node.args, strict=True) if name in STATIC_EXTRAS]
    dropped += [item.value for item in node.keywords if item.arg in STATIC_EXTRAS]
    if not all(is_plain(value) for value in dropped):
        return None

    def change(call: libcst.Call) -> libcst.Call:
        args = [as_keyword(arg, name) for arg, name in zip(call.args, names, strict=False)] + list(
            call.args[len(names) :]
        )
        return without_arguments(
            call.with_changes(args=args), lambda _, arg: arg.keyword is not None and arg.keyword.value in STATIC_EXTRAS
        )

    edit = rewrite_call(facts, node, change)
    return Fix("Name the arguments", Applicability.SAFE, (edit,)) if edit is not None else None


def quantized_backend(facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Mistake | None:
    """``QuantizedCache(config, ...)`` and backend names in capitals."""
    if cls != QUANTIZED_CACHE:
        return None
    since = facts.timeline.matching(">=4.56")
    backend = use.arguments[0] if use.arguments else use.keyword_value("backend")
    if backend is None:
        return None
    name = literal(backend)
    if use.arguments and backend and all(isinstance(atom, Config) for atom in backend):
        return Mistake(
            use.node,
            since,
            "the first argument of `QuantizedCache` is the name of the backend, the config comes second: TypeError {when}",
            'write `QuantizedCache("quanto", config, ...)` or `QuantizedCache("hqq", config, ...)`',
        )
    if isinstance(name, str) and name != name.lower():
        node = (
            use.node.args[0]
            if use.node.args
            else next(item.value for item in use.node.keywords if item.arg == "backend")
        )
        start, end = facts.span(node)
        source = facts.text[start:end]
        edits = Fix("Write it in small letters", Applicability.SAFE, (Edit(start, end, source.lower()),))
        return Mistake(
            use.node,
            facts.timeline.matching(">=4.54"),
            f"`QuantizedCache` knows no backend called {name!r}: ValueError {{when}}",
            f'backend names are in small letters: "{name.lower()}"',
            fix=edits if source.lower() in (repr(name.lower()), f'"{name.lower()}"') else None,
        )
    return None


def encoder_decoder_keywords(facts: Facts, use: CallUse, cls: str, in_force: ReleaseSet) -> Mistake | None:
    """``EncoderDecoderCache(self_attention_cache=..., cross_attention_cache=...)``: positional only since 4.56."""
    node = use.node
    names = [item.arg for item in node.keywords]
    if cls != ENCODER_DECODER_CACHE or not names or set(names) - {"self_attention_cache", "cross_attention_cache"}:
        return None
    fix = None
    if not node.args and names == ["self_attention_cache", "cross_attention_cache"]:
        import libcst

        edit = rewrite_call(
            facts,
            node,
            lambda call: call.with_changes(
                args=[arg.with_changes(keyword=None, equal=libcst.MaybeSentinel.DEFAULT) for arg in call.args]
            ),
        )
        fix = Fix("Pass both by position", Applicability.SAFE, (edit,)) if edit is not None else None
    return Mistake(
        node,
        facts.timeline.matching(">=4.56"),
        "`EncoderDecoderCache` takes its two caches by position only: TypeError {when}",
        "write `EncoderDecoderCache(self_attention_cache, cross_attention_cache)`",
        fix=fix,
    )


def by_signature(facts: Facts, item: Construction, left: ReleaseSet) -> Iterator[Mistake]:
    """Arguments that the constructor's signature refuses on the releases *left*: unknown keywords, too many positional
    ones, missing ones."""
    use, cls, in_force = item.use, item.cls, item.releases
    node = use.node
    unknown: dict[str, ReleaseSet] = {}
    too_many = ReleaseSet(0)
    missing: dict[str, ReleaseSet] = {}
    for releases, signature in facts.timeline.signatures(cls):
        if not releases & left:
            continue
        for name in refused_keywords(signature, use):
            unknown[name] = unknown.get(name, ReleaseSet(0)) | releases
        if not signature.accepts_args and len(node.args) > len(signature.positional):
            too_many |= releases
        for name in missing_parameters(signature, use) if item.whole else ():
            missing[name] = missing.get(name, ReleaseSet(0)) | releases
    short = cls.rpartition(".")[2]
    for argument in sure_arguments(use):
        if argument.name in unknown and argument.name not in OTHER_RULES and argument.when & in_force:
            wrong = unknown[argument.name]
            yield Mistake(
                argument.keyword,
                wrong & argument.when,
                f"`{short}` takes no `{argument.name}`: TypeError {{when}}",
                keyword_hint(cls, argument.name),
                fix=drop_fix(facts, use, cls, argument.keyword, in_force <= wrong) if argument.written else None,
            )
    if too_many:
        yield Mistake(
            node, too_many, f"`{short}` takes fewer positional arguments: TypeError {{when}}", "name the arguments"
        )
    told = too_many
    for name in sorted(missing):
        if missing[name] & left - told:
            wrong = missing[name] - told
            yield Mistake(node, wrong, f"`{short}` needs `{name}`: TypeError {{when}}", f"pass `{name}=...`")
            told |= wrong


def refused_keywords(signature: Signature, use: CallUse) -> list[str]:
    if signature.accepts_kwargs:
        return []
    known = {parameter.name for parameter in signature.parameters}
    return [item.name for item in sure_arguments(use) if item.name not in known]


def missing_parameters(signature: Signature, use: CallUse) -> list[str]:
    """Parameters without a default that the call does not fill."""
    if use.node.keywords and any(item.arg is None for item in use.node.keywords):
        return []
    filled = {parameter.name for parameter in signature.positional[: len(use.node.args)]}
    filled |= {item.arg for item in use.node.keywords if item.arg is not None}
    return [
        parameter.name
        for parameter in signature.parameters
        if parameter.default is None
        and parameter.name not in filled
        and parameter.kind in ("positional", "normal", "keyword")
    ]


def keyword_hint(cls: str, name: str) -> str:
    if cls == DYNAMIC_CACHE and name == "num_hidden_layers":
        return "leave it out: the cache grows by itself, or takes its layers from `config=` (4.56 and newer)"
    if name == "config":
        return "`config=` is accepted from 4.56"
    return "leave it out"


def drop_fix(facts: Facts, use: CallUse, cls: str, keyword: ast.keyword, everywhere: bool) -> Fix | None:
    """Leaves out an argument that had no effect but to be accepted."""
    if not everywhere or keyword.arg != "num_hidden_layers" or not is_plain(keyword.value):
        return None
    edit = rewrite_call(
        facts,
        use.node,
        lambda call: without_arguments(
            call, lambda _, arg: arg.keyword is not None and arg.keyword.value == keyword.arg
        ),
    )
    return Fix(f"Leave out `{keyword.arg}`", Applicability.SAFE, (edit,)) if edit is not None else None
