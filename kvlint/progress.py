"""One line on a terminal that says how far a long run has come; it is wiped away before the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

DELAY = 2.0
"""Seconds before the line is shown: most runs are over by then."""
INTERVAL = 0.1
"""Seconds between two updates."""


@dataclass(slots=True)
class Progress:
    """Counts files and findings, and shows them on *stream*."""

    stream: TextIO
    total: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    findings: int = 0
    width: int = 0
    next_update: float = field(init=False)

    def __post_init__(self) -> None:
        self.next_update = self.clock() + DELAY

    def file(self, findings: int = 0) -> None:
        """One more file is done."""
        self.done += 1
        self.findings += findings
        now = self.clock()
        if now >= self.next_update:
            self.next_update = now + INTERVAL
            found = f", {self.findings:,} found" if self.findings else ""
            self.show(f"{self.done:,} of {self.total:,} files{found}")

    def show(self, text: str) -> None:
        """Writes *text* over what stood there."""
        self.stream.write(f"\r{text.ljust(self.width)}")
        self.stream.flush()
        self.width = len(text)

    def clear(self) -> None:
        """Wipes the line away, where there is one."""
        if self.width:
            self.stream.write(f"\r{'':{self.width}}\r")
            self.stream.flush()
            self.width = 0


def on_terminal(total: int) -> Progress | None:
    """The progress of a run over *total* files; None where nobody looks: the error stream is no terminal, or a dumb one."""
    import os

    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    return Progress(sys.stderr, total)
