"""The life of one name of the transformers API, gathered from the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kvlint.api_contracts import Contract, contract
from kvlint.contracts import Contracts
from kvlint.releases import ReleaseSet
from kvlint.timeline import Dated, Deprecation, Timeline

_VALUE_OPTION = "cache_implementation"


@dataclass(frozen=True, slots=True)
class Life:
    """What the timeline knows of a name; *sections* hold dated texts under a title."""

    name: str
    kind: str
    releases: ReleaseSet
    imports: tuple[tuple[str, ReleaseSet], ...] = ()
    sections: tuple[tuple[str, Dated[str]], ...] = ()
    members: tuple[tuple[str, ReleaseSet], ...] = ()
    """Members of a class, or names that a module defines."""
    contract: Contract | None = None
    """How the library calls it, and what it calls."""

    def as_json(self, timeline: Timeline) -> dict[str, object]:
        """The life as plain data; releases as ranges ``5.0.0-5.24.0``."""
        return {
            "name": self.name,
            "kind": self.kind,
            "releases": list(timeline.ranges(self.releases)),
            "imports": {label: list(timeline.ranges(rs)) for label, rs in self.imports},
            **{
                title: [{"releases": list(timeline.ranges(rs)), "value": text} for rs, text in dated]
                for title, dated in self.sections
            },
            "members": {name: list(timeline.ranges(rs)) for name, rs in self.members},
            **({"contract": self.contract.as_json(timeline)} if self.contract else {}),
        }


def life(timeline: Timeline, contracts: Contracts, name: str) -> list[Life]:
    """The lives that *name* can mean, the most likely first; empty for a name that no release knows."""
    text = name.strip()
    if "=" in text:
        return _value_life(timeline, text)
    if text == _VALUE_OPTION:
        return [_option_life(timeline)]
    symbols = _meant(timeline, text)
    if symbols:
        lives = [_symbol_life(timeline, symbol) for symbol in symbols]
        return [_with_contract(each, timeline, contracts) if each.kind == "function" else each for each in lives]
    owner, _, member = text.rpartition(".")
    owners = _meant(timeline, owner) if owner else _caches(timeline)
    found = [_member_life(timeline, cls, member) for cls in owners if timeline.member_kind(cls, member)]
    if not owner:
        return sorted(found, key=lambda each: -len(each.releases))
    unknown = [cls for cls in owners if not timeline.member_kind(cls, member) and contracts.defines(cls, member)]
    found += [Life(f"{cls}.{member}", "method", contracts.defines(cls, member)) for cls in unknown]
    return [_with_contract(each, timeline, contracts) for each in found]


def _with_contract(each: Life, timeline: Timeline, contracts: Contracts) -> Life:
    cls, _, method = each.name.rpartition(".")
    found = contract(contracts, cls, method, bool(timeline.signatures(cls, method)) or each.kind == "function")
    return replace(each, contract=found)


def near_names(timeline: Timeline, name: str) -> Iterator[str]:
    """Names that a person can have meant by the unknown *name*, spelt as briefly as it."""
    if "=" in name:
        yield from (f"{_VALUE_OPTION}={value}" for value in timeline.cache_implementations())
        return
    yield _VALUE_OPTION
    owner, _, _ = name.rpartition(".")
    for symbol in timeline.symbols():
        yield symbol if name.startswith("transformers.") else symbol.rpartition(".")[2]
    for cls in _meant(timeline, owner) if owner else _caches(timeline):
        yield from (f"{owner}.{member}".lstrip(".") for member in timeline.members(cls))


def _meant(timeline: Timeline, text: str) -> list[str]:
    """Qualified names that *text*, possibly shortened, stands for: each definition once, the top level first."""
    qualified = text if text.partition(".")[0] == "transformers" else f"transformers.{text}"
    if timeline.knows(qualified):
        return [qualified]
    ending = f".{text}"
    found = [symbol for symbol in timeline.symbols() if symbol.endswith(ending) and _defines(timeline, symbol)]
    return sorted(found, key=lambda symbol: (symbol.count("."), symbol))


def _defines(timeline: Timeline, symbol: str) -> bool:
    return any(place == symbol for _, place in timeline.definitions(symbol))


def _caches(timeline: Timeline) -> list[str]:
    prefix = "transformers.cache_utils."
    names = (prefix + name for name in timeline.names(prefix.rstrip(".")))
    return [name for name in names if timeline.is_cache_class(name) or timeline.is_layer_class(name)]


def _value_life(timeline: Timeline, text: str) -> list[Life]:
    option, _, given = text.partition("=")
    value = given.strip().strip("\"'")
    accepted = timeline.cache_implementations()
    if option.strip() != _VALUE_OPTION or value not in accepted:
        return []
    handled = timeline.generation_values("NEED_SETUP_CACHE_CLASSES_MAPPING").get(value)
    deprecated = timeline.generation_values("DEPRECATED_STATIC_CACHE_IMPLEMENTATIONS").get(value)
    notes = [(rs, note) for rs, note in ((deprecated, "deprecated"), (handled, "builds a class of its own")) if rs]
    return [Life(f'{_VALUE_OPTION}="{value}"', "value", accepted[value], sections=_sections(("notes", notes)))]


def _option_life(timeline: Timeline) -> Life:
    """Every value that the option takes, with the releases that take it, and those that announce its end."""
    accepted = timeline.cache_implementations()
    handled = timeline.generation_values("NEED_SETUP_CACHE_CLASSES_MAPPING")
    deprecated = timeline.generation_values("DEPRECATED_STATIC_CACHE_IMPLEMENTATIONS")
    values, own, ending = (
        [(rs, value) for value, rs in sorted(found.items())] for found in (accepted, handled, deprecated)
    )
    sections = _sections(("values", values), ("builds a class of its own", own), ("deprecated", ending))
    return Life(_VALUE_OPTION, "option of generate and GenerationConfig", _all(accepted.values()), sections=sections)


def _symbol_life(timeline: Timeline, qualified: str) -> Life:
    values = [value for _, value in timeline.facts(qualified).get("", ())]
    places = dict.fromkeys(place for _, place in timeline.definitions(qualified))
    spelt = dict.fromkeys([qualified, f"transformers.{qualified.rpartition('.')[2]}", *places])
    imports = tuple((_statement(name), timeline.importable(name)) for name in spelt if timeline.knows(name))
    if any(value.startswith("module") for value in values):
        names = ((name, f"{qualified}.{name}") for name in timeline.names(qualified))
        defined = tuple((name, timeline.importable(full)) for name, full in names if _defines(timeline, full))
        return Life(qualified, "module", timeline.importable(qualified), imports, members=defined)
    subject = next(iter(places)) if len(places) == 1 else qualified
    own = {name: rs for name, rs in timeline.members(subject).items() if not _plain_dunder(name)}
    methods = ("forward", "prepare_inputs_for_generation", "fields")
    return Life(
        qualified,
        _kind(timeline, qualified),
        _all(timeline.importable(name) for name in spelt),
        imports,
        _sections(
            ("defined in", [(rs, place) for rs, place in timeline.definitions(qualified) if len(places) > 1]),
            ("alias of", timeline.alias_target(subject).items()),
            ("bases", [(rs, ", ".join(names)) for rs, names in timeline.bases(subject) if names]),
            ("parameters", [(rs, str(signature)) for rs, signature in timeline.signatures(subject)]),
            *((method, _keywords(timeline, subject, method)) for method in methods),
            ("announced", _announced(timeline.deprecations(subject))),
        ),
        tuple(own.items()),
    )


def _plain_dunder(name: str) -> bool:
    return hasattr(object, name) and name != "__init__"


def _keywords(timeline: Timeline, qualified: str, method: str) -> list[tuple[ReleaseSet, str]]:
    return [(rs, ", ".join(names)) for rs, names in timeline.forward_keywords(qualified, method)]


def _kind(timeline: Timeline, qualified: str) -> str:
    if timeline.is_cache_class(qualified):
        return "cache class"
    if timeline.is_layer_class(qualified):
        return "cache layer class"
    kind = timeline.class_kind(qualified)
    if kind is not None:
        return f"{kind} class"
    if timeline.bases(qualified):
        return "class"
    return "function" if timeline.signatures(qualified) else "name"


def _member_life(timeline: Timeline, cls: str, member: str) -> Life:
    kinds = timeline.member_kind(cls, member)
    owners = [(rs, owner) for rs, owner in timeline.member_owner(cls, member) if owner != timeline.canonical(cls)]
    return Life(
        f"{cls}.{member}",
        kinds[-1][1],
        timeline.member(cls, member),
        sections=_sections(
            ("kind", kinds if len(kinds) > 1 else ()),
            ("inherited from", owners),
            ("parameters", [(rs, str(signature)) for rs, signature in timeline.signatures(cls, member)]),
            ("announced", _announced(timeline.deprecations(cls, member))),
        ),
    )


def _announced(dated: Dated[tuple[Deprecation, ...]]) -> list[tuple[ReleaseSet, str]]:
    return [(rs, "; ".join(_announcement(each) for each in announced)) for rs, announced in dated]


def _announcement(each: Deprecation) -> str:
    subject = "removal" if each.old is None else f"{each.old}=" + (f" renamed to {each.new}=" if each.new else " goes")
    return f"{subject} in {each.removal}" if each.removal else subject


def _statement(qualified: str) -> str:
    module, _, name = qualified.rpartition(".")
    return f"from {module} import {name}" if module else f"import {name}"


def _all(sets: Iterable[ReleaseSet]) -> ReleaseSet:
    found = ReleaseSet()
    for rs in sets:
        found |= rs
    return found


def _sections(*given: tuple[str, Iterable[tuple[ReleaseSet, str]]]) -> tuple[tuple[str, Dated[str]], ...]:
    sections = ((title, tuple(dated)) for title, dated in given)
    return tuple((title, dated) for title, dated in sections if dated)
