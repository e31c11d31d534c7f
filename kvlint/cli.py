"""The command ``kvlint``: finds the subcommand, and turns every failure into one line and an exit code.

Exit codes: 0 clean, 1 findings, 2 a mistake of the user or an internal error, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

import click

from kvlint import __version__
from kvlint.errors import UsageProblem, did_you_mean

COMMAND_FILE = re.compile(r"(\w+)_commands?\.py\Z")
"""``api_commands.py`` holds the command ``api``, under that name; a module is imported when its command is run."""

OWN_OPTIONS = ("-h", "--help", "-V", "--version")


class KvlintGroup(click.Group):
    """Subcommands loaded when needed; what is not one of them goes to ``check``."""

    def main(  # type: ignore[override]  # one of its overloads, with the default for the mode
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Runs the command line (``sys.argv`` by default) and exits, whatever happens, with one of the exit codes."""
        arguments = list(sys.argv[1:] if args is None else args)
        sys.exit(exit_code_of(lambda: super(KvlintGroup, self).main(arguments, "kvlint", standalone_mode=False)))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(command_modules(), key=lambda name: (name != "check", name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = command_modules().get(cmd_name)
        if module is None:
            return None
        from importlib import import_module

        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in OWN_OPTIONS and args[0] not in command_modules()):
            args = ["check", *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS] [PATHS]...   or   kvlint COMMAND ..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        check = self.get_command(ctx, "check")
        if check is not None:
            check.format_options(click.Context(check, parent=ctx, info_name="check"), formatter)
        self.format_commands(ctx, formatter)


@cache
def command_modules() -> dict[str, str]:
    """The module of every subcommand, told from the names of the files of this package."""
    matches = map(COMMAND_FILE.match, os.listdir(os.path.dirname(__file__)))
    return {match[1]: f"kvlint.{match[0].removesuffix('.py')}" for match in matches if match is not None}


@click.group(
    cls=KvlintGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 clean, 1 findings, 2 a mistake in the call or an internal error. "
    "A path that is called like a command is given as ./rule.",
)
@click.version_option(__version__, "-V", "--version", message="kvlint %(version)s")
def main() -> None:
    """Find stale or incorrect KV-cache code of Hugging Face transformers in PATHS (default: the current
    folder), for the releases you target, and rewrite what can be rewritten."""


def exit_code_of(command: Callable[[], Any]) -> int:
    """Runs *command* and turns its outcome, or its failure, into an exit code."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = command()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except UsageProblem as problem:
        return complain(str(problem))
    except click.NoSuchOption as problem:
        return complain(describe_option(problem))
    except click.ClickException as problem:
        return complain(problem.format_message())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        if os.environ.get("KVLINT_TRACEBACK"):
            raise
        return complain(describe_failure(problem))
    except Exception as problem:
        if os.environ.get("KVLINT_TRACEBACK"):
            raise
        words = " ".join(str(problem).split())
        return complain(
            f"internal error: {type(problem).__name__}: {words} (KVLINT_TRACEBACK=1 shows where; please report it)"
        )


def complain(message: str) -> int:
    """One line on the error stream, and the exit code of a mistake."""
    print(f"kvlint: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def open_closed_streams() -> None:
    """Gives a process that was started without an output or an error stream (``>&-``) one that leads nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def describe_failure(problem: OSError) -> str:
    """What the system refused, in words."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder does not exist any more"
    reason = (problem.strerror or str(problem) or type(problem).__name__).lower()
    return (
        f"{os.fsdecode(problem.filename)}: {reason}"
        if isinstance(problem.filename, str | bytes)
        else f"output: {reason}"
    )


def describe_option(problem: click.NoSuchOption) -> str:
    known = problem.ctx.command.params if problem.ctx is not None else []
    names = [name for parameter in known for name in parameter.opts if name.startswith("--")]
    return f"no such option: {problem.option_name}{did_you_mean(problem.option_name, names)}"
