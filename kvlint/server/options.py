"""What an editor may set: the keys of a configuration file that concern findings, and two of the server's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvlint.config import Overrides, read_value
from kvlint.errors import UsageProblem, did_you_mean

SHARED = (
    "target", "select", "extend-select", "ignore", "show", "unsafe-fixes", "fix-docstrings", "exclude", "extend-exclude",
)  # fmt: skip
"""Keys that mean what they mean in ``[tool.kvlint]``; here they come on top of it, as options of the command do."""
RUNS = ("type", "save")
KEYS = (*SHARED, "config", "python", "run")
WHERE = "the editor's settings for kvlint"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What the editor asks for. *config* "" stands for the nearest configuration, *python* for the environment that
    ``target = "installed"`` reads; with *on_save* nothing is looked at while one types."""

    overrides: Overrides = field(default_factory=Overrides)
    config: str = ""
    python: str = ""
    on_save: bool = False


def read(given: Any) -> tuple[ClientOptions, tuple[str, ...]]:
    """The options in what an editor sends, and a line for each that is wrong and therefore left out.

    Editors differ in how they wrap it (``{"kvlint": {...}}``, ``{"settings": {...}}``, bare) and in whether names are
    written ``extendSelect`` or ``extend-select``.
    """
    if given is None:
        return ClientOptions(), ()
    table = unwrapped(given)
    if not isinstance(table, Mapping):
        return ClientOptions(), (f"{WHERE} must be a table of names and values, not {table!r}",)
    shared: dict[str, Any] = {}
    own: dict[str, str] = {}
    problems = []
    for name, value in table.items():
        key = kebab(str(name))
        try:
            if value is None:
                continue
            if key in SHARED:
                shared[key.replace("-", "_")] = read_value(key, value, f"{WHERE}: {key}", "")
            elif key in KEYS:
                own[key] = own_value(key, value)
            else:
                hint = did_you_mean(key, KEYS) or f" (they are: {', '.join(KEYS)})"
                raise UsageProblem(f"{WHERE}: there is no {key!r}{hint}")
        except UsageProblem as problem:
            problems.append(str(problem))
    options = ClientOptions(Overrides(**shared), own.get("config", ""), own.get("python", ""), own.get("run") == "save")
    return options, tuple(problems)


def unwrapped(given: Any) -> Any:
    """The table itself out of what is around it."""
    for name in ("settings", "kvlint"):
        if isinstance(given, Mapping) and name in given:
            given = given[name]
            if given is None:
                return {}
    return given


def kebab(name: str) -> str:
    """``extend-select`` of ``extendSelect`` and ``extend_select``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).replace("_", "-").lower()


def own_value(key: str, value: Any) -> str:
    """A setting of the server's own. Raises UsageProblem where it cannot be one."""
    if not isinstance(value, str):
        raise UsageProblem(f"{WHERE}: {key} must be a string, not {value!r}")
    if key == "run" and value not in RUNS:
        raise UsageProblem(f"{WHERE}: run is 'type' or 'save', not {value!r}{did_you_mean(value, RUNS)}")
    return value
