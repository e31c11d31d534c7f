"""The process that lints for the server: started when asked, killed when it takes too long, started again when it died."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from kvlint.server.options import ClientOptions

PATIENCE_S = 30.0
"""No file that a person edits takes so long."""


class Lost(Exception):
    """The worker gave no answer; the message says why, and a new one is there for the next question."""


class Failed(Exception):
    """The worker answered with an exception that nothing expected."""


class Worker:
    """Answers questions by calling the methods of a `Session` in a process of its own, one after the other."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.client: ClientOptions | None = None
        self.process: SpawnProcess | None = None
        self.connection: Connection[Any, Any] | None = None
        self.stopped = False
        self.turn = threading.Lock()

    def ask(self, method: str, *arguments: Any) -> Any:
        """What the session's *method* returns. Raises Lost or Failed."""
        with self.turn:
            connection = self._connection()
            try:
                connection.send((method, arguments))
                if not connection.poll(self.patience_s):
                    self._end()
                    raise Lost(f"took more than {self.patience_s:.0f} s")
                good, answer = connection.recv()
            except (EOFError, OSError):
                self._end()
                raise Lost("the process that lints died (out of memory?)") from None
        if not good:
            raise Failed(answer)
        return answer

    def configure(self, client: ClientOptions) -> None:
        """Has the options of the editor hold from now on, for this process and those that come after it."""
        self.client = client
        if self.process is not None:
            self.ask("use", client)

    def stop(self) -> None:
        """Ends the process; whoever waits for an answer gets Lost."""
        self.stopped = True
        if self.process is not None:
            self.process.kill()

    def _connection(self) -> Connection[Any, Any]:
        if self.stopped:
            raise Lost("the server is stopping")
        if self.connection is None:
            context = get_context("spawn")
            ours, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs, self.client), name="kvlint", daemon=True)
            self.process.start()
            theirs.close()
            self.connection = ours
        return self.connection

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = None


def serve(connection: Connection[Any, Any], client: ClientOptions | None) -> None:
    """Answers until the server is gone. What is printed here must not get between the messages of the protocol."""
    import signal

    from kvlint.server.options import ClientOptions
    from kvlint.server.session import Session

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    session = Session(client or ClientOptions())
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[bool, Any] = (True, getattr(session, method)(*arguments))
        except Exception as problem:
            words = " ".join(str(problem).split())[:200]
            answer = (False, f"{type(problem).__name__}: {words}")
        try:
            connection.send(answer)
        except (EOFError, OSError):
            return
