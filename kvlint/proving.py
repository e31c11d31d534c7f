"""``--fix --prove COMMAND``: fixes are kept only where a command of the project's own passes afterwards.

A unit of change lies in one file, and a file is replaced in one step: a run that is killed leaves each file with the unit
or without it. Where the command fails before anything is fixed, it can only judge all fixes together.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from kvlint.discovery import FoundFile, describe_error
from kvlint.errors import UsageProblem
from kvlint.jobs import Result
from kvlint.run import Options, run
from kvlint.writing import write_atomically

MOST_UNITS = 1_000
"""Units of one file that are tried one by one."""


def prove(files: Sequence[FoundFile], options: Options, command: str) -> tuple[str, ...]:
    """Applies the fixes that *options* allow to *files* as far as *command* passes; a line for each that it judged.

    The command runs in the current folder, in the shell. Raises UsageProblem where a file cannot be written.
    """
    options = replace(options, use_cache=False)
    passes = Judge(command, options.cwd)
    with interrupts_raised():
        if passes():
            return tuple(line for file in files for line in file_by_file(file, options, passes))
        return together(files, options, passes)


@dataclass(frozen=True, slots=True)
class Judge:
    """Runs the command; its output is not shown."""

    command: str
    folder: str

    def __call__(self) -> bool:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            self.command,
            shell=True,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return done.returncode == 0


def file_by_file(file: FoundFile, options: Options, passes: Callable[[], bool]) -> Iterator[str]:
    """All fixes of a file at once; where the command fails after them, one unit after the other."""
    changed = fixed(file, options)
    if changed is None:
        return
    if tried([changed], passes):
        yield f"{changed.shown}: kept: {counted(changed)}"
        return
    refused: frozenset[str] = frozenset()
    for _ in range(MOST_UNITS):
        one = fixed(file, replace(options, refused=refused, single=True))
        if one is None:
            return
        kept = tried([one], passes)
        yield from (f"{one.shown}: {'kept' if kept else 'taken back'}: {words}" for _, words in one.marks)
        if not kept:
            refused |= {mark for mark, _ in one.marks}


def together(files: Sequence[FoundFile], options: Options, passes: Callable[[], bool]) -> tuple[str, ...]:
    """All fixes of all files, where the command passes after them; none where it does not."""
    changed = [result for file in files if (result := fixed(file, options)) is not None]
    if not changed:
        return ("the command fails, and there is nothing to fix",)
    if tried(changed, passes):
        return tuple(f"{result.shown}: kept: {counted(result)}" for result in changed)
    return ("the command fails before and after the fixes: all of them were taken back",)


def fixed(file: FoundFile, options: Options) -> Result | None:
    """The file with fixes, not written yet; None where they change nothing."""
    return next((result for result in run((file,), options).results if result.fixed is not None), None)


def tried(results: Sequence[Result], passes: Callable[[], bool]) -> bool:
    """Writes the fixed files and asks the command; where it fails, or anything comes between, they are as before."""
    kept = False
    written: list[Result] = []
    try:
        for result in results:
            written.append(result)
            write(result, result.fixed or b"")
        kept = passes()
    finally:
        if not kept:
            for result in written:
                write(result, result.original)
    return kept


def write(result: Result, data: bytes) -> None:
    try:
        write_atomically(result.path, data)
    except OSError as problem:
        raise UsageProblem(f"{result.shown}: cannot be written: {describe_error(problem)}") from None


def counted(result: Result) -> str:
    total = sum(number for _, number in result.applied)
    rules = ", ".join(code for code, _ in result.applied)
    return f"{total} fix{'' if total == 1 else 'es'} ({rules})"


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """A request to end the process is an exception inside, so that a file on trial is put back first."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
