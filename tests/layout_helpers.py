"""What the tests of layouts share: from a piece of code to its tensors, and to the findings of the layout rules."""

from __future__ import annotations

from pathlib import Path

from kvlint import checks, source
from kvlint.analysis import analyse
from kvlint.analysis.layout import Tensor
from kvlint.analysis.layout_facts import Layouts, interpret
from kvlint.analysis.project import Project
from kvlint.findings import Category
from kvlint.timeline import load


def layouts_of(text: str) -> Layouts:
    """The layouts in a module, with all of its bindings kept."""
    timeline = load()
    path = Path("module.py")
    region = source.parse(path, text.encode()).regions[0]
    return interpret(
        analyse(region, path, timeline.matching(timeline.releases[-1]), Project(None), timeline), trace=True
    )


def last_tensor(layouts: Layouts, name: str) -> Tensor | None:
    """What is bound to a name in the end; None where it is no tensor, or one of several."""
    bindings = [binding for binding in layouts.walk.trace or () if binding.name == name and not binding.inlined]
    value = bindings[-1].value if bindings else ()
    return value[0] if len(value) == 1 and isinstance(value[0], Tensor) else None


def layout_of(text: str, name: str = "k") -> str:
    """``[batch, heads, sequence, head dim]`` for the last binding of a name."""
    layouts = layouts_of(text)
    tensor = last_tensor(layouts, name)
    return layouts.layout_text(tensor) if tensor is not None else ""


def found(text: str, codes: str, undecided: bool = False) -> list[tuple[str, int]]:
    """(code, line) of the findings of some rules; undecided places only on request."""
    timeline = load()
    path = Path("module.py")
    region = source.parse(path, text.encode()).regions[0]
    facts = analyse(region, path, timeline.matching(timeline.releases[-1]), Project(None), timeline)
    return [
        (item.code, source.position(region, item.start)[0])
        for item in checks.findings(facts, frozenset(codes.split()))
        if undecided or item.category is not Category.UNDECIDED
    ]


def lines_marked(text: str) -> list[tuple[str, int]]:
    """(code, line) of every ``# KV501`` comment."""
    return [
        (line.rpartition("# ")[2].strip(), number) for number, line in enumerate(text.split("\n"), 1) if "# KV" in line
    ]
