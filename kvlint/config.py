"""Settings: the command line over the nearest ``[tool.kvlint]`` (pyproject.toml) or ``kvlint.toml`` over the defaults.

The nearest configuration above a file is the whole configuration of that file; nothing is inherited from a file
further up. Globs in it are relative to the folder it lies in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kvlint.errors import UsageProblem, did_you_mean
from kvlint.globs import compile_patterns, flaw
from kvlint.selection import check_selectors, expand, resolve

DEFAULT_EXCLUDES = (
    ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pants.d",
    ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "__pycache__",
    "__pypackages__", "_build", "buck-out", "build", "dist", "node_modules", "site-packages", "venv",
)  # fmt: skip
"""Names of files and folders that a walk never enters; naming one on the command line lints it all the same."""

SHOWABLE = ("deprecated", "undecided")

BASELINE_NAME = "kvlint-baseline.json"
"""What `--write-baseline` writes where no baseline is named."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides how a file is linted and reported.

    *root* is the folder that globs are relative to ("": the current one, in calls of `kvlint.lint`); *source* the
    configuration file, "" for none; *target_from* names what said *target*. *select* None stands for every rule that is
    on by default, *fixable* None for every rule, *output_format* "" for the one that fits the place (`format_in_force`).
    *origins* says for fields that are not as they are by default what set them.
    """

    root: str = ""
    source: str = ""
    target: str = ""
    target_from: str = "--target"
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    show: tuple[str, ...] = ()
    fixable: tuple[str, ...] | None = None
    unfixable: tuple[str, ...] = ()
    unsafe_fixes: bool = False
    fix_docstrings: bool = False
    exclude: tuple[str, ...] = DEFAULT_EXCLUDES
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    respect_gitignore: bool = True
    output_format: str = ""
    jobs: int = 0
    cache_dir: str = ""
    baseline: str = ""
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def codes_for(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Codes in use for the file at the absolute *path*, and those of them that were asked for by name."""
        codes, asked = resolve(self.select, self.extend_select, self.ignore)
        if self.per_file_ignores and (relative := relative_to(path, self.root)):
            for pattern, selectors in self.per_file_ignores:
                if compile_patterns((pattern,)).excludes(relative):
                    for selector in selectors:
                        codes -= expand(selector)
        return codes, asked & codes

    @property
    def format_in_force(self) -> str:
        """The output format: in a GitHub workflow annotations, unless something asks for another one."""
        return self.output_format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "full")

    @property
    def hidden_kinds(self) -> frozenset[str]:
        """Kinds of findings that are counted, not listed."""
        return frozenset(SHOWABLE) - frozenset(self.show)

    def fixable_codes(self) -> frozenset[str]:
        """Codes whose fixes may be applied."""
        codes, _ = resolve(self.fixable, (), self.unfixable)
        return codes

    def excludes(self, path: str) -> bool:
        """True where the absolute *path*, or a folder between it and *root*, is excluded."""
        relative = relative_to(path, self.root)
        return bool(relative) and compile_patterns((*self.exclude, *self.extend_exclude)).excludes(relative)


UNSETTABLE = ("root", "source", "target_from", "origins")
KEYS = {item.name.replace("_", "-"): item.name for item in fields(Settings) if item.name not in UNSETTABLE}
"""The keys of a configuration file, and the field that each one fills."""

SELECTOR_KEYS = ("select", "extend-select", "ignore", "fixable", "unfixable")


def relative_to(path: str, folder: str) -> str:
    """*path* relative to *folder* with ``/`` between its parts; "" where it does not lie below it."""
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(prefix) :].replace(os.sep, "/") if path.startswith(prefix) else ""


def read_toml(path: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises UsageProblem where it cannot be read or parsed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise UsageProblem(f"{path}: cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageProblem(f"{path}: not valid TOML: {problem}") from None


def load(path: str) -> Settings | None:
    """The settings in one configuration file; None for a pyproject.toml without a ``[tool.kvlint]`` table."""
    if os.path.basename(path) == "pyproject.toml":
        try:
            with open(path, "rb") as file:
                if b"kvlint" not in file.read():
                    return None
        except OSError as problem:
            raise UsageProblem(f"{path}: cannot be read: {problem.strerror}") from None
        tool = read_toml(path).get("tool")
        table = tool.get("kvlint") if isinstance(tool, dict) else None
        if table is None:
            return None
        where = f"{path}: [tool.kvlint]"
        if not isinstance(table, dict):
            raise UsageProblem(f"{where} must be a table")
    else:
        table = read_toml(path)
        where = path
    return from_table(table, path, where)


def from_table(table: Mapping[str, Any], path: str, where: str) -> Settings:
    """Settings from the keys of a table. Raises UsageProblem naming *where* for an unknown key or a wrong value."""
    settings = Settings(root=os.path.dirname(os.path.abspath(path)), source=path)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f" (the keys are: {', '.join(sorted(KEYS))})"
            raise UsageProblem(f"{where}: unknown key {key!r}{hint}")
        values[KEYS[key]] = read_value(key, value, f"{where}: {key}", settings.root)
    if "target" in values:
        values["target_from"] = f"{where}: target"
    return replace(settings, **values, origins=tuple((name, path) for name in values if name in KEYS.values()))


def read_value(key: str, value: Any, where: str, root: str) -> Any:
    """*value* in the form in which Settings hold it. Raises UsageProblem where it has the wrong type or meaning."""
    if key == "per-file-ignores":
        if not isinstance(value, dict):
            raise UsageProblem(f"{where} must be a table of globs to lists of rules")
        pairs = tuple((glob, strings(codes, f"{where}.{glob!r}")) for glob, codes in value.items())
        check_globs([glob for glob, _ in pairs], where)
        for glob, codes in pairs:
            check_selectors(codes, f"{where}.{glob!r}")
        return pairs
    default = getattr(Settings(root=""), KEYS[key])
    if default is None or isinstance(default, tuple):
        listed = strings(value, where)
        if key in SELECTOR_KEYS:
            check_selection(key, listed, where)
        elif key == "show":
            check_show(listed, where)
        else:
            check_globs(listed, where)
        return listed
    if type(value) is not type(default):
        kinds = {bool: "true or false", int: "a number", str: "a string"}
        raise UsageProblem(f"{where} must be {kinds[type(default)]}, not {value!r}")
    if key == "output-format":
        check_format(value, where)
    if key == "jobs" and value < 0:
        raise UsageProblem(f"{where} must be 0 (one a core) or more, not {value}")
    if key in ("cache-dir", "baseline"):
        return os.path.join(root, os.path.expanduser(value))
    return value


def strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageProblem(f"{where} must be a list of strings, not {value!r}")
    return tuple(value)


def check_selection(key: str, selectors: tuple[str, ...], where: str) -> None:
    """Raises UsageProblem for a selector that stands for no rule, and for a ``select`` that leaves none to run."""
    check_selectors(selectors, where)
    if key == "select" and not selectors:
        raise UsageProblem(
            f"{where} names no rule (leave it out for all that are on by default; ['ALL'] is every rule)"
        )


def check_globs(globs: list[str] | tuple[str, ...], where: str) -> None:
    """Raises UsageProblem for the first glob that cannot be read, or that matches nothing at all."""
    for glob in globs:
        if reason := flaw(glob):
            raise UsageProblem(f"{where}: {reason}")
    try:
        compile_patterns(tuple(globs))
    except ValueError as problem:
        raise UsageProblem(f"{where}: {problem}") from None


def check_show(kinds: tuple[str, ...], where: str) -> None:
    """Raises UsageProblem for a kind of finding that is not one of the hidden ones."""
    for kind in kinds:
        if kind not in SHOWABLE:
            hint = did_you_mean(kind, SHOWABLE) or f": it takes {' and '.join(SHOWABLE)}"
            raise UsageProblem(f"{where}: {kind!r} is not a kind of finding that is hidden{hint}")


def check_format(name: str, where: str) -> None:
    """Raises UsageProblem where there is no output format of that name."""
    from kvlint.report import format_names

    if name not in format_names():
        hint = did_you_mean(name, format_names()) or f" (there are: {', '.join(format_names())})"
        raise UsageProblem(f"{where}: unknown output format {name!r}{hint}")


def validate(settings: Settings, where: str) -> None:
    """Raises UsageProblem, naming *where*, for rules, globs, kinds or formats in *settings* that do not exist."""
    for key in SELECTOR_KEYS:
        selectors = getattr(settings, KEYS[key])
        if selectors is not None:
            check_selection(key, selectors, f"{where}: {key}")
    for glob, selectors in settings.per_file_ignores:
        check_globs((glob,), f"{where}: per-file-ignores")
        check_selectors(selectors, f"{where}: per-file-ignores.{glob!r}")
    check_globs(settings.exclude, f"{where}: exclude")
    check_globs(settings.extend_exclude, f"{where}: extend-exclude")
    check_show(settings.show, f"{where}: show")
    if settings.output_format:
        check_format(settings.output_format, f"{where}: output-format")
    if settings.jobs < 0:
        raise UsageProblem(f"{where}: jobs must be 0 (one a core) or more, not {settings.jobs}")


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says; None where it says nothing."""

    target: str | None = None
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    unsafe_fixes: bool | None = None
    fix_docstrings: bool | None = None
    exclude: tuple[str, ...] | None = None
    extend_exclude: tuple[str, ...] = ()
    force_exclude: bool | None = None
    respect_gitignore: bool | None = None
    output_format: str | None = None
    jobs: int | None = None
    cache_dir: str | None = None
    baseline: str | None = None

    def over(self, settings: Settings) -> Settings:
        """*settings* with the command line's word on top.

        ``--select`` replaces the file's whole selection (its ``ignore`` included); ``--ignore``, ``--extend-select``,
        ``--extend-exclude`` and ``--show`` add to it.
        """
        changes: dict[str, Any] = {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
            and item.name not in ("extend_select", "ignore", "extend_exclude", "show")
        }
        if self.target is not None:
            changes["target_from"] = "--target"
        keep = self.select is None
        changes["extend_select"] = (*(settings.extend_select if keep else ()), *self.extend_select)
        changes["ignore"] = (*(settings.ignore if keep else ()), *self.ignore)
        changes["extend_exclude"] = (*settings.extend_exclude, *self.extend_exclude)
        changes["show"] = tuple(dict.fromkeys((*settings.show, *self.show)))
        said = {item.name for item in fields(self) if getattr(self, item.name) not in (None, ())}
        options = tuple((name, f"--{name.replace('_', '-')}") for name in sorted(said))
        return replace(settings, **changes, origins=(*settings.origins, *options))


@dataclass(slots=True)
class Resolver:
    """Finds the settings of a folder: reads each configuration file once.

    *fixed* holds for every folder (``--config``, ``--isolated``) in place of what lies above it.
    """

    overrides: Overrides
    cwd: str
    fixed: Settings | None = None
    known: dict[str, Settings] = field(default_factory=dict)

    @staticmethod
    def create(overrides: Overrides, cwd: str, config: str | None = None, isolated: bool = False) -> Resolver:
        """Raises UsageProblem where *config* cannot be used."""
        fixed = None
        if config is not None:
            fixed = load(config)
            if fixed is None:
                raise UsageProblem(f"{config}: there is no [tool.kvlint] table in it")
            fixed = replace(fixed, root=cwd)
        elif isolated:
            fixed = Settings(root=cwd)
        return Resolver(overrides, cwd, overrides.over(fixed) if fixed else None)

    def for_folder(self, folder: str) -> Settings:
        """The settings of the files in the absolute *folder*."""
        if self.fixed is not None:
            return self.fixed
        if folder not in self.known:
            self.known[folder] = self._find(folder)
        return self.known[folder]

    def _find(self, folder: str) -> Settings:
        for name in ("kvlint.toml", "pyproject.toml"):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and (found := load(path)) is not None:
                return self.overrides.over(found)
        parent = os.path.dirname(folder)
        if parent == folder:
            return self.overrides.over(Settings(root=self.cwd))
        return self.for_folder(parent)


def describe(settings: Settings, remarks: Iterable[str] = ()) -> str:
    """The settings as the TOML that would bring them about, for ``--show-settings``: each with what set it, then *remarks*."""
    from kvlint.run import in_use

    lines = [f"# {settings.source or 'no configuration file: the defaults'}"]
    codes = in_use(*resolve(settings.select, settings.extend_select, settings.ignore))
    for key, name in sorted(KEYS.items()):
        value: Any = getattr(settings, name)
        if value is None or value == "":
            continue
        if name == "per_file_ignores":
            inner = ", ".join(f"{quote(glob)} = {quote(list(rules))}" for glob, rules in value)
            text = f"{key} = {{ {inner} }}" if inner else f"{key} = {{}}"
        else:
            text = f"{key} = {quote(value)}"
        set_by = [os.path.basename(by) for field_name, by in settings.origins if field_name == name]
        lines.append(f"{text}  # {' and '.join(dict.fromkeys(set_by)) or 'default'}")
    lines.append(f"# rules in use: {', '.join(sorted(codes))}")
    lines += (f"# {remark}" for remark in remarks)
    return "\n".join(lines) + "\n"


def quote(value: object) -> str:
    """A string, number, boolean or list as TOML."""
    import json

    writers: dict[type, Callable[[Any], str]] = {
        bool: lambda item: str(item).lower(),
        tuple: lambda items: f"[{', '.join(quote(item) for item in items)}]",
        list: lambda items: f"[{', '.join(quote(item) for item in items)}]",
    }
    return writers.get(type(value), json.dumps)(value)
