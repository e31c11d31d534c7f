"""What the options of the commands share: lists of words, and help in groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kvlint.config import Overrides, Resolver, check_globs
from kvlint.errors import UsageProblem
from kvlint.selection import check_selectors

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of the context of every command."""
OPTIONAL_VALUES = ("--add-ignore",)
"""Options whose value may be left out, and is given with ``=``: what follows them otherwise is a path."""

Command = TypeVar("Command", bound=Callable[..., Any])


class Listed(click.ParamType[Any]):
    """Words separated by commas."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value


LISTED = Listed()


def flat(values: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The words of an option that may be repeated."""
    return tuple(word for value in values for word in value)


class Grouped(click.Option):
    """An option that the help lists under the heading *group*."""

    def __init__(self, *arguments: Any, group: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has a heading for each group of options, in the order of their first options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        head = [f"{word}=" if word in OPTIONAL_VALUES else word for word in args[:end]]
        return super().parse_args(ctx, head + args[end:])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(parameter, "group", "Other options"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def option(group: str, *names: str, **more: Any) -> Callable[[Command], Command]:
    """A `click.option` under the heading *group*."""
    return click.option(*names, cls=Grouped, group=group, **more)


SETTINGS = "Settings"
RULES = "Which rules"
FILES = "Which files"
FIXING = "Fixing"
KNOWN = "Known findings"
REPORT = "Report"
RUN = "How to run"


def rule_options(command: Command) -> Command:
    """``--select`` and ``--ignore``."""
    chosen = "Use these rules only: codes, prefixes (KV2), names, ALL; comma-separated."
    command = option(RULES, "--ignore", type=LISTED, multiple=True, metavar="RULES", help="Do not use these rules.")(
        command
    )
    return option(RULES, "--select", type=LISTED, multiple=True, metavar="RULES", help=chosen)(command)


def file_options(command: Command) -> Command:
    """``--exclude``, ``--extend-exclude``."""
    command = option(FILES, "--extend-exclude", type=LISTED, multiple=True, metavar="GLOBS", help="Exclude these too.")(
        command
    )
    instead = "Exclude these instead of the default ones."
    return option(FILES, "--exclude", type=LISTED, multiple=True, metavar="GLOBS", help=instead)(command)


def config_options(command: Command) -> Command:
    """``--config``, ``--isolated``."""
    command = option(SETTINGS, "--isolated", is_flag=True, help="Read no configuration file.")(command)
    text = "Read settings from FILE, not from the nearest pyproject.toml."
    return option(SETTINGS, "--config", metavar="FILE", help=text)(command)


def jobs_option(command: Command) -> Command:
    """``--jobs``."""
    text = "Worker processes (default: one a core)."
    return option(RUN, "--jobs", "-j", type=click.IntRange(min=0), default=None, metavar="N", help=text)(command)


def shared_overrides(options: dict[str, Any], **more: Any) -> Overrides:
    """The settings that the shared options of a command make, with *more*. Raises UsageProblem for rules and globs that do
    not exist."""
    lists = {name: flat(options.get(name, ())) for name in ("select", "ignore", "exclude", "extend_exclude")}
    for name in ("select", "ignore"):
        check_selectors(lists[name], f"--{name}")
    if options.get("select") and not lists["select"]:
        raise UsageProblem("--select: names no rule")
    for name in ("exclude", "extend_exclude"):
        check_globs(lists[name], f"--{name.replace('_', '-')}")
    return Overrides(
        select=lists["select"] if options.get("select") else None,
        ignore=lists["ignore"],
        exclude=lists["exclude"] if options.get("exclude") else None,
        extend_exclude=lists["extend_exclude"],
        jobs=options.get("jobs"),
        **more,
    )


def resolver_of(options: dict[str, Any], overrides: Overrides, cwd: str) -> Resolver:
    """Finds settings as ``--config`` and ``--isolated`` have it. Raises UsageProblem where these cannot be used."""
    config, isolated = options["config"], options["isolated"]
    if config is not None and not os.path.isfile(config):
        raise UsageProblem(f"--config {config}: no such file")
    if config is not None and isolated:
        raise UsageProblem("--config and --isolated contradict each other")
    return Resolver.create(overrides, cwd, config, isolated)
