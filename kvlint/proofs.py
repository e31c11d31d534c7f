"""What the fixes of a rule were run on: the examples of its page, and the projects that ``rules/proofs.toml`` names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kvlint import rulebook

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of fix. *works* and *held* are projects that are run: fixed, or left as they are because they would break."""

    rule: str
    does: str
    works: tuple[str, ...]
    held: tuple[str, ...]
    caches: tuple[str, ...]


@cache
def shapes() -> tuple[Shape, ...]:
    """The table, in its order."""
    rows = tomllib.loads((rulebook.folder() / "proofs.toml").read_text(encoding="utf-8"))["shape"]
    return tuple(
        Shape(row["rule"], row["does"], tuple(row["works"]), tuple(row["held"]), tuple(row["caches"])) for row in rows
    )


def proven(page: rulebook.Page) -> Iterator[str]:
    """What the fixes of a rule were run on, a line each; nothing for a rule without fixes."""
    run = [block for block in page.blocks if block.role == "fixed" and "norun" not in block.attributes]
    if run:
        older = sum("4" in block.attributes.get("works", "").split() for block in run)
        also = f", {older} also on the newest 4.x" if older else ""
        yield f"{len(run)} fixed example{'' if len(run) == 1 else 's'} of this page, on the newest release{also}"
    for shape in shapes():
        if shape.rule == page.code:
            parts = [f"run after it: {', '.join(shape.works)}"] if shape.works else []
            parts += [f"not offered in: {', '.join(shape.held)}"] if shape.held else []
            yield f"{shape.does} ({', '.join(shape.caches)}): {'; '.join(parts)}"
