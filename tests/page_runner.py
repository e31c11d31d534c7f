"""What the tests of the rule pages are made of: example shapes, kvlint runs, hand-applied edits, executed examples.

Nothing here knows a single rule: everything comes out of the pages (see rules/README.md).
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kvlint import rulebook
from kvlint.findings import Category

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("execution_worker.py")
INSTALL_4 = "python scripts/install_transformers4.py"
MOST_ROUNDS = 20


# ---------------------------------------------------------------------------------------------------------------------
# Running kvlint


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command line: its exit code and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str


def kvlint(*arguments: str | Path) -> Run:
    """Runs the command line in this process. An exception that escapes it is raised here too."""
    from kvlint.cli import main

    result = CliRunner(env={"KVLINT_TRACEBACK": "1"}).invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def _successful(*arguments: str | Path) -> Run:
    """A run that worked, with findings or without. Raises RuntimeError (never an expected failure) for another one."""
    run = kvlint(*arguments, "--no-cache", "--jobs", "1")
    if run.exit_code not in (0, 1):
        raise RuntimeError(f"exit code {run.exit_code}: {run.stderr}")
    return run


def findings(file: Path, *options: str) -> list[dict[str, Any]]:
    """What the JSON report lists for *file*. The exit code must fit: 0 without findings, 1 with one that is no note."""
    run = _successful(file, "--output-format", "json", *options)
    found = json.loads(run.stdout)
    assert isinstance(found, list)
    if not found or any(one["severity"] != "note" for one in found):
        assert run.exit_code == (1 if found else 0)
    return found


def fix(file: Path, *options: str) -> bytes:
    """The bytes of *file* after ``--fix`` with these options."""
    _successful(file, "--fix", *options)
    return file.read_bytes()


def options_for(page: rulebook.Page, target: str) -> list[str]:
    """The options under which an example of *page* is linted."""
    options = ["--target", target, "--extend-select", page.code]
    if Category.DEPRECATED in page.categories:
        options += ["--show", "deprecated"]
    return options


def relevant(page: rulebook.Page, found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """*found* without the deprecated names that belong to other pages."""
    return [one for one in found if one["category"] != Category.DEPRECATED.value or one["code"] == page.code]


def places(found: Iterable[dict[str, Any]]) -> set[tuple[int, str]]:
    """Findings as (line, code), with the other places of their defects."""
    return {(one["line"], one["code"]) for each in found for one in (each, *each["related"])}


# ---------------------------------------------------------------------------------------------------------------------
# Examples in other shapes


@dataclass(frozen=True, slots=True)
class Shape:
    """A way of putting an example into a file: its suffix, its bytes, and where the example's lines come to lie."""

    name: str
    build: Callable[[str], bytes]
    suffix: str = ".py"
    first_line: int = 1
    cell: int | None = None


def _tabs(text: str) -> bytes:
    lines = []
    for line in text.split("\n"):
        blanks = len(line) - len(line.lstrip(" "))
        lines.append("\t" * (blanks // 4) + " " * (blanks % 4) + line[blanks:])
    return "\n".join(lines).encode()


def _function(text: str) -> bytes:
    return ("def example():\n" + textwrap.indent(text, "    ")).encode()


def _notebook(text: str) -> bytes:
    def cell(kind: str, source: str) -> dict[str, Any]:
        code = {"execution_count": None, "outputs": []} if kind == "code" else {}
        return {"cell_type": kind, "metadata": {}, "source": source.splitlines(True), **code}

    notebook = {
        "cells": [cell("markdown", "# Example\n"), cell("code", text.removesuffix("\n")), cell("code", "%time 1 + 1")],
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _markdown(text: str) -> bytes:
    return f"# Example\n\nSome words.\n\n```python\n{text}```\n\nMore words.\n".encode()


PLAIN = Shape("module", str.encode)
SHAPES = (
    PLAIN,
    Shape("crlf", lambda text: text.replace("\n", "\r\n").encode()),
    Shape("bom", lambda text: b"\xef\xbb\xbf" + text.encode()),
    Shape("tabs", _tabs),
    Shape("function", _function, first_line=2),
    Shape("notebook", _notebook, suffix=".ipynb", cell=1),
    Shape("markdown", _markdown, suffix=".md", first_line=6),
)
FIXED_SHAPES = tuple(shape for shape in SHAPES if shape.name not in ("tabs", "function"))
"""The shapes whose fixed file is the shape of the fixed text (a tab or an indent may change where a line breaks)."""


def shapes_of(block: rulebook.Block, shapes: Sequence[Shape]) -> Iterator[Shape]:
    """Those of *shapes* that this example is to be seen in."""
    without = block.attributes.get("not_in", "").split()
    for shape in shapes:
        if block.language == "json" and shape.name not in ("module", "crlf", "bom"):
            continue
        if shape.name not in without:
            yield shape


def write(directory: Path, block: rulebook.Block, shape: Shape, text: str | None = None) -> Path:
    """Puts an example (or *text* in its stead) into a file of this shape."""
    name = "generation_config.json" if block.language == "json" else f"example{shape.suffix}"
    path = directory / name
    path.write_bytes(shape.build(block.text if text is None else text))
    return path


# ---------------------------------------------------------------------------------------------------------------------
# Comments and edits


def comments(text: str) -> list[str]:
    """The comments of a piece of Python, in order."""
    return [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]


def with_comments(text: str, wanted: Mapping[int, str]) -> str:
    """*text* with a comment at the end of each of these lines, or of the last line of the statement that fills it."""
    lines = text.split("\n")
    for line, comment in sorted(wanted.items()):
        for number in (line, _last_line(text, line)):
            trial = [*lines]
            trial[number - 1] += f"  {comment}"
            try:
                if any(own.endswith(comment) for own in comments("\n".join(trial))) and _parses("\n".join(trial)):
                    lines = trial
                    break
            except tokenize.TokenError:
                continue
        else:
            raise AssertionError(f"no comment can be put on line {line} of\n{text}")
    return "\n".join(lines)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def statement_lines(text: str, line: int) -> range:
    """The lines of the innermost statement around *line*; of a compound statement, those of its head."""
    best = range(line, line + 1)
    smallest: int | None = None
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt | ast.excepthandler) or node.end_lineno is None:
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        last = node.end_lineno
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
            last = max(node.lineno, body[0].lineno - 1)
        if first <= line <= last and (smallest is None or last - first < smallest):
            best, smallest = range(first, last + 1), last - first
    return best


def _last_line(text: str, line: int) -> int:
    try:
        return statement_lines(text, line)[-1]
    except SyntaxError:
        return line


def apply_by_hand(text: str, found: Iterable[dict[str, Any]], allowed: frozenset[str]) -> str:
    """*text* with the edits of the JSON report applied as a reader of that report would: fixes that overlap wait."""
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))

    taken: list[tuple[int, int, str]] = []
    for one in found:
        if one["fix"] is None or one["fix"]["applicability"] not in allowed:
            continue
        edits = [
            (
                starts[edit["start_line"] - 1] + edit["start_column"] - 1,
                starts[edit["end_line"] - 1] + edit["end_column"] - 1,
                edit["text"],
            )
            for edit in one["fix"]["edits"]
        ]
        new = [edit for edit in edits if edit not in taken]
        if all(end < start_ or end_ < start for start, end, _ in new for start_, end_, _ in taken):
            taken.extend(new)
    for start, end, replacement in sorted(taken, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Running examples


def transformers4_folder() -> Path:
    """The folder that holds the newest 4.x release. Raises RuntimeError, saying what to do, where there is none."""
    named = os.environ.get("KVLINT_TRANSFORMERS4")
    folder = Path(named) if named else ROOT / ".cache" / "transformers4"
    if not (folder / "transformers").is_dir():
        raise RuntimeError(f"no transformers 4.x in {folder}: run `{INSTALL_4}` to put it there")
    return folder


class Worker:
    """A process with one release of transformers that runs examples, each apart from the others."""

    def __init__(self, major: str) -> None:
        """Starts the process for ``"4"`` or ``"5"``. Raises RuntimeError, saying what to do, where it cannot start."""
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "warning",
            "PYTHONWARNINGS": "default",
        }
        if major == "4":
            self.environment["PYTHONPATH"] = str(transformers4_folder())
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=self.environment,
            text=True,
            encoding="utf-8",
        )
        self.release = self._read()["transformers"]
        if not self.release.startswith(f"{major}."):
            self.close()
            raise RuntimeError(f"examples of {major}.x need transformers {major}.x, found {self.release}")

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer to a request (see execution_worker)."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            tail = self.errors.read().decode(errors="replace")[-4000:]
            self.close()
            raise RuntimeError(f"the process that runs the examples ended:\n{tail}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def close(self) -> None:
        """Ends the process and closes its pipes."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@dataclass(frozen=True, slots=True)
class Example:
    """A block with what it inherits from its page, from its bad block and from the setup fence above it."""

    page: rulebook.Page
    block: rulebook.Block
    bad: rulebook.Block | None
    preamble: tuple[str, ...]

    @property
    def id(self) -> str:
        """Page, role and line: unique, and enough to find the fence."""
        return f"{self.page.code}-{self.block.role}-line{self.block.line}"

    def attribute(self, name: str, default: str) -> str:
        """The attribute of the block itself, or of the bad block that a fixed block belongs to."""
        for block in (self.block, self.bad):
            if block is not None and name in block.attributes:
                return block.attributes[name]
        return default

    @property
    def target(self) -> str:
        """The target range to lint for."""
        return self.attribute("target", "latest")

    @property
    def options(self) -> list[str]:
        """The options to lint with."""
        return options_for(self.page, self.target)

    @property
    def fix_options(self) -> list[str]:
        """The options to fix with: unsafe fixes too where the page says that this one is unsafe."""
        return [*self.options, "--unsafe-fixes"] if "unsafe" in self.allowed else self.options

    @property
    def allowed(self) -> frozenset[str]:
        """The applicabilities that a fix of this example may have."""
        kind = self.block.attributes.get("fix", self.page.fix)
        return frozenset({"safe", "unsafe"} if kind == "unsafe" else {"safe"})

    @property
    def releases(self) -> tuple[str, ...]:
        """Where the example must do what it says: ``"4"``, ``"5"``, or both."""
        return tuple(self.attribute("on", "5").split())

    @property
    def works(self) -> tuple[str, ...]:
        """Where the example must just run."""
        return tuple(self.block.attributes.get("works", "").split())

    def request(self, check: str | None) -> dict[str, Any]:
        """What to send to a worker."""
        return {
            "code": self.block.text,
            "language": self.block.language,
            "setups": self.attribute("setup", self.page.setup).split(),
            "preamble": list(self.preamble),
            "check": check,
        }


def examples(page: rulebook.Page) -> Iterator[Example]:
    """The examples of a page. A fixed block belongs to the bad block above it."""
    preamble: tuple[str, ...] = ()
    bad: rulebook.Block | None = None
    for block in page.blocks:
        if block.role == "setup":
            preamble = (block.text,)
            continue
        if block.role == "bad":
            bad = block
        yield Example(page, block, bad if block.role == "fixed" else None, preamble)
        if block.role == "fixed":
            bad = None


def complaint(answer: Mapping[str, Any]) -> str:
    """What an answer says, in words for a failed test."""
    if "setup" in answer:
        return f"the setup failed: {answer['setup']}"
    error = answer["exception"]
    if error is not None:
        return f"it raised {error['type']}: {error['message']}\n{error['traceback']}"
    return f"it ran; warnings: {answer['warnings']}; the expression gave {answer['check']}"


def verify_bad(example: Example, worker: Worker) -> None:
    """Fails unless a bad example does what its fence says."""
    attributes = example.block.attributes
    answer = worker.run(example.request(attributes.get("silent")))
    said = complaint(answer)
    assert "setup" not in answer, said
    if "raises" in attributes:
        kind, _, text = attributes["raises"].partition(": ")
        exception = answer["exception"]
        assert exception is not None and exception["type"] == kind, f"it should raise {kind}, but {said}"
        assert text in exception["message"], f"the message should have {text!r}, but {said}"
        if "elsewhere" not in attributes and example.block.language == "python" and kind != "SyntaxError":
            marked = {line for line, _ in example.block.marks}
            assert exception["lines"], f"it should raise on a marked line, but {said}"
            raising = set(statement_lines(example.block.text, exception["lines"][-1]))
            assert marked & raising, f"it should raise on a marked line, but {said}"
        return
    assert answer["exception"] is None, f"it should run, but {said}"
    if "warns" in attributes:
        kind, _, text = attributes["warns"].partition(": ")
        assert any(name == kind and text in message for name, message in answer["warnings"]), (
            f"it should warn with {attributes['warns']!r}, but {said}"
        )
    if "silent" in attributes:
        assert answer["check"] is True, f"afterwards {attributes['silent']!r} should hold, but {said}"


def verify_right(example: Example, worker: Worker) -> None:
    """Fails unless a fixed or good example runs and shows a right result."""
    check = example.block.attributes.get("check")
    wrong = example.bad.attributes.get("silent") if example.bad is not None else None
    answer = worker.run(example.request(check or wrong))
    said = complaint(answer)
    assert answer.get("exception", "setup") is None, f"it should run, but {said}"
    if check is not None:
        assert answer["check"] is True, f"afterwards {check!r} should hold, but {said}"
    elif wrong is not None:
        assert answer["check"] is False, f"afterwards {wrong!r} should no longer hold (or give check=), but {said}"
