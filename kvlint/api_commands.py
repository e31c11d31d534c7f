"""``kvlint api``: the life of a name, what changed between two releases, and reading a release kvlint does not know."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kvlint import timeline as timeline_module
from kvlint.api_diff import Difference, compare
from kvlint.api_life import Life, life, near_names
from kvlint.contracts import load as load_contracts
from kvlint.errors import UsageProblem, did_you_mean
from kvlint.timeline import Timeline

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ApiGroup(click.Group):
    """What is not the name of a subcommand is a name of the API."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["NAME   or   kvlint api COMMAND ..."]


def _output_format(command: _Command) -> _Command:
    return click.option(
        "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print."
    )(command)


@click.group("api", cls=ApiGroup, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def api(ctx: click.Context) -> None:
    """Ask what kvlint knows of the cache API of each transformers release.

    NAME is a class, function, module, member or value: HybridCache, DynamicCache.key_cache,
    transformers.masking_utils.create_causal_mask, cache_implementation=hybrid. The name of that option alone lists its
    values. Of a method, such as LlamaDecoderLayer.forward, it also prints how the library calls it, what it passes on and
    what it returns.
    """
    if ctx.invoked_subcommand is None:
        raise UsageProblem("name what to look up, such as DynamicCache.key_cache (see kvlint api --help)")


@api.command("show", hidden=True)
@click.argument("name")
@_output_format
def show(name: str, output_format: str) -> None:
    """Print the life of NAME: on which releases it exists, where, with which parameters."""
    timeline = _timeline()
    try:
        contracts = load_contracts(timeline.releases)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    lives = life(timeline, contracts, name)
    if not lives:
        raise UsageProblem(f"no release has {name!r}{did_you_mean(name, near_names(timeline, name))}")
    if output_format == "json":
        click.echo(json.dumps([each.as_json(timeline) for each in lives], indent=2))
    else:
        click.echo("\n".join(_life_text(each, timeline) for each in lives))


@api.command("diff")
@click.argument("old")
@click.argument("new")
@click.option("--all", "every", is_flag=True, help="List each changed class of a modeling file, not only how many.")
@_output_format
def diff(old: str, new: str, every: bool, output_format: str) -> None:
    """Print what was removed, added and changed between OLD and NEW (4.57 is its newest patch release)."""
    timeline = _timeline()
    try:
        first, second = (timeline.releases[timeline.matching(text).newest] for text in (old, new))
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    merged = _merged()
    found = compare(merged.record(first), merged.record(second))
    if output_format == "json":
        click.echo(json.dumps({"old": first, "new": second, **found.as_json()}, indent=2))
    else:
        click.echo(_difference_text(found, first, second, every), nl=False)


@api.command("update")
@click.option(
    "--from",
    "source",
    metavar="PATH",
    help="A wheel, a site-packages folder, an environment or a source checkout; "
    "default: the transformers beside this kvlint.",
)
@click.option("--force", is_flag=True, help="Replace what is known of this release.")
@_output_format
def update(source: str | None, force: bool, output_format: str) -> None:
    """Read a transformers release that kvlint does not know, from its source files; nothing of it is imported."""
    from kvlint import timeline_overlay
    from kvlint.timeline_build import read_folder, read_wheel

    path = Path(source) if source else _installed()
    try:
        record = read_wheel(path) if path.is_file() else read_folder(_package_root(path))
    except (ValueError, SyntaxError, UnicodeDecodeError, OSError) as error:
        raise UsageProblem(f"nothing learnt: {error}") from error
    timeline = _timeline()
    known = record.version in timeline.releases
    if known and not force:
        _report(output_format, {"version": record.version, "learnt": False}, f"{record.version} is known already")
        return
    folder = timeline_overlay.folder()
    try:
        timeline_overlay.learn(record, folder, timeline_module.packaged_file().read_bytes(), replaces=force)
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be written: {error.strerror}") from error
    learnt = _timeline()
    place = learnt.releases.index(record.version)
    text = f"learnt transformers {record.version} (kept in {folder})"
    report: dict[str, object] = {"version": record.version, "learnt": True, "folder": str(folder)}
    if place:
        before = learnt.releases[place - 1]
        found = compare(_merged().record(before), record)
        text += (
            f"\nagainst {before}: {len(found.removed)} removed, {len(found.added)} added, {len(found.changed)} changed"
        )
        report.update(against=before, **found.as_json())
    _report(output_format, report, text)


def _report(output_format: str, report: dict[str, object], text: str) -> None:
    click.echo(json.dumps(report, indent=2) if output_format == "json" else text)


def _timeline() -> Timeline:
    try:
        return timeline_module.load()
    except ValueError as error:
        raise UsageProblem(str(error)) from error


def _merged() -> Any:
    from kvlint.timeline_build import Merged

    return Merged.load(timeline_module.read().decode("utf-8"))


def _installed() -> Path:
    """The folder that holds an installed transformers, found without importing it."""
    from importlib.util import find_spec

    try:
        spec = find_spec("transformers")
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise UsageProblem(f"no transformers beside {sys.executable}; name a wheel or a folder with --from")
    return Path(places[0]).parent


def _package_root(path: Path) -> Path:
    """The folder that holds the package: *path* itself, its ``src``, its parent, or that of an environment."""
    if path.name == "transformers" and (path / "__init__.py").is_file():
        return path.resolve().parent
    inside = (path / "src", *sorted(path.glob("lib/python*/site-packages")), path / "Lib" / "site-packages")
    return next((each for each in (path, *inside) if (each / "transformers" / "__init__.py").is_file()), path)


def _life_text(each: Life, timeline: Timeline) -> str:
    def on(rs: Any) -> str:
        return ", ".join(text.replace("-", " to ") for text in timeline.ranges(rs)) or "never"

    rows: list[tuple[str, str]] = [(f"  {label}", on(rs)) for label, rs in each.imports]
    lines = [f"{each.name}  ({each.kind})", f"  on {on(each.releases)}"]
    lines += [f"  {label:<{_width(rows)}}  {text}" for label, text in ((label.strip(), text) for label, text in rows)]
    for title, dated in (*each.sections, *(each.contract.as_text() if each.contract else ())):
        lines += [f"  {title}", *_table([(on(rs), text) for rs, text in dated])]
    if each.members:
        lines += ["  members", *_table([(name, on(rs)) for name, rs in each.members])]
    return "\n".join(lines) + "\n"


def _width(rows: Sequence[tuple[str, str]]) -> int:
    return max((len(left.strip()) for left, _ in rows), default=0)


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = min(_width(rows), 40)
    return [f"    {left:<{width}}  {right}" for left, right in rows]


def _difference_text(found: Difference, old: str, new: str, every: bool) -> str:
    if not found:
        return f"no difference of the cache API between {old} and {new}\n"
    lines: list[str] = []
    for title, names in ((f"removed since {old}", found.removed), (f"added in {new}", found.added)):
        if names:
            lines += [f"{title} ({len(names)})", *(f"  {name}" for name in names), ""]
    if found.changed:
        lines.append(f"changed ({len(found.changed)})")
        for name, before, after in found.changed:
            lines += [f"  {name}", f"    - {before}", f"    + {after}"]
        lines.append("")
    if found.models:
        lines.append(f"modeling classes ({sum(len(classes) for _, classes in found.models)})")
        for change, classes in found.models:
            lines.append(f"  {len(classes):>5}  {change}")
            lines += [f"           {name}" for name in classes] if every else []
        lines.append("")
    return "\n".join(lines)
