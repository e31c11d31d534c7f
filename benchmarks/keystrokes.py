"""Times what a person at an editor waits for: from a keystroke to the findings that ``kvlint server`` sends.

    python benchmarks/keystrokes.py                       # files of peft, downloaded as for run.py
    python benchmarks/keystrokes.py --tree FOLDER FILE... # files of another project

A real client speaks with a real server over standard input and output. In each file one character is typed at a time at
the end of a comment in its middle, and the next one only when the findings of the last have come. Warm means that the
server has looked at the file once. CPU milliseconds are those of the process that lints, by keystroke (Linux only);
they are what counts on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from run import TREES, fetch_trees

FILES = (
    "src/peft/tuners/lora/model.py",
    "src/peft/tuners/boft/layer.py",
    "src/peft/tuners/lora/layer.py",
    "tests/testing_common.py",
    "src/peft/peft_model.py",
)
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Timed:
    """One file: how long the first look took, and each keystroke after it (milliseconds)."""

    name: str
    lines: int
    first: float
    keystrokes: tuple[float, ...]
    cpu: float | None


def main() -> int:
    """Runs the benchmark and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, help="a project to use instead of peft")
    parser.add_argument("--keystrokes", type=int, default=30)
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache" / "kvlint-benchmarks")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    tree = given.tree.resolve() if given.tree else fetch_trees(given.work, TREES[1:2])["peft"]
    rows = asyncio.run(measure(tree, given.files or FILES, given.keystrokes))
    print(report(rows))
    return 0


async def measure(tree: Path, files: tuple[str, ...] | list[str], keystrokes: int) -> list[Timed]:
    client = LanguageClient("keystrokes", "1")
    answers: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def published(params: types.PublishDiagnosticsParams) -> None:
        answers.put_nowait(params)

    await client.start_io(sys.executable, "-m", "kvlint", "server")
    await client.initialize_async(
        types.InitializeParams(capabilities=types.ClientCapabilities(), root_uri=tree.as_uri())
    )
    client.initialized(types.InitializedParams())
    rows = [await type_in(client, answers, tree / name, name, keystrokes) for name in files]
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return rows


async def type_in(
    client: LanguageClient,
    answers: asyncio.Queue[types.PublishDiagnosticsParams],
    path: Path,
    name: str,
    keystrokes: int,
) -> Timed:
    uri, text = path.as_uri(), path.read_text(encoding="utf-8")
    rows = text.split("\n")
    line = next((row for row in range(len(rows) // 2, len(rows)) if rows[row].strip().startswith("#")), len(rows) - 1)
    column = len(rows[line].encode("utf-16-le")) // 2
    start = time.perf_counter()
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 0, text)))
    answer = await answers.get()
    first = time.perf_counter() - start
    times = []
    before = linting_seconds(client)
    for version in range(1, keystrokes + 1):
        at = types.Position(line, column + version - 1)
        start = time.perf_counter()
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=version, uri=uri),
                [types.TextDocumentContentChangePartial(types.Range(at, at), "x")],
            )
        )
        while answer.version != version:
            answer = await answers.get()
        times.append(time.perf_counter() - start)
    after = linting_seconds(client)
    cpu = 1000 * (after - before) / keystrokes if before is not None and after is not None else None
    client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
    while answer.version is not None:
        answer = await answers.get()
    return Timed(name, len(rows), 1000 * first, tuple(1000 * item for item in times), cpu)


def linting_seconds(client: LanguageClient) -> float | None:
    """CPU seconds of the child of the server; None where the system does not tell."""
    server = client._server
    try:
        tasks = list(Path(f"/proc/{server.pid}/task").iterdir()) if server is not None else []
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        ticks = [Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13] for child in children]
    except OSError:
        return None
    return sum(int(user) + int(system) for user, system in ticks) / TICKS if ticks else None


def report(rows: list[Timed]) -> str:
    lines = ["| file | lines | first look, ms | keystroke, median ms | 95 % below, ms | CPU ms |", "| --- " * 6 + "|"]
    for row in rows:
        high = sorted(row.keystrokes)[int(0.95 * (len(row.keystrokes) - 1))]
        cpu = f"{row.cpu:.0f}" if row.cpu is not None else "?"
        lines.append(
            f"| {row.name} | {row.lines:,} | {row.first:.0f} | {statistics.median(row.keystrokes):.0f} | {high:.0f} | {cpu} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
