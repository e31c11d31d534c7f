"""What changed of the cache API between two releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvlint.timeline_build import Record


@dataclass(frozen=True, slots=True)
class Difference:
    """Qualified names in order; a class that came or went is named without its members."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]
    """(name, value before, value after)"""
    models: tuple[tuple[str, tuple[str, ...]], ...]
    """(change of the cache keywords, classes of modeling files that made it), the most frequent first."""

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed or self.models)

    def as_json(self) -> dict[str, object]:
        """The difference as plain data."""
        return {
            "removed": list(self.removed),
            "added": list(self.added),
            "changed": [{"name": name, "old": before, "new": after} for name, before, after in self.changed],
            "models": [{"change": change, "classes": list(classes)} for change, classes in self.models],
        }


def compare(old: Record, new: Record) -> Difference:
    """The difference from *old* to *new*. Names that a module merely imports do not count, except at the top level;
    neither do modules of models that came or went."""
    removed: list[str] = []
    added: list[str] = []
    changed: list[tuple[str, str, str]] = []
    for symbol in sorted({*old.symbols, *new.symbols}):
        before, after = _own(symbol, old.symbols), _own(symbol, new.symbols)
        if not before or not after:
            (removed if before else added).extend([f"transformers.{symbol}"] if before or after else [])
            continue
        for fact in sorted({*before, *after}):
            first, second = before.get(fact), after.get(fact)
            name = f"transformers.{symbol}" + (f".{fact}" if fact not in ("", "!") else "")
            if first == second:
                continue
            if fact.endswith("!"):
                changed.append((name.removesuffix("!"), _announcement(first), _announcement(second)))
            elif first is None or second is None:
                (added if first is None else removed).append(name)
            else:
                changed.append((name, first, second))
    return Difference(tuple(removed), tuple(added), tuple(changed), _models(old.models, new.models))


def _announcement(value: str | None) -> str:
    return f"announces {value}" if value else "announces nothing"


def _own(symbol: str, symbols: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The facts of a symbol, none for one that is only passed on and for the modules of single models."""
    facts = symbols.get(symbol, {})
    passed_on = facts.get("", "").startswith("import ") and "." in symbol
    of_a_model = facts.get("") == "module" and symbol.startswith("models.")
    return {} if passed_on or of_a_model else facts


def _models(
    old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    changes: dict[str, list[str]] = {}
    for module in sorted(old.keys() & new.keys()):
        for name in sorted(old[module].keys() & new[module].keys()):
            before, after = (_keywords(table[module][name]) for table in (old, new))
            for method in sorted(before.keys() & after.keys()):
                if before[method] != after[method]:
                    change = f"{method}({before[method]}) -> {method}({after[method]})"
                    changes.setdefault(change, []).append(f"{module}.{name}")
    ordered = sorted(changes.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple((change, tuple(classes)) for change, classes in ordered)


def _keywords(value: str) -> dict[str, str]:
    """Method -> cache keywords, of a reduced modeling class."""
    parts = (part.partition("(") for part in value.split("|")[1:] if part.endswith(")"))
    return {method: keywords.removesuffix(")") for method, _, keywords in parts}
