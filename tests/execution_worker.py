"""Runs examples on the transformers that this interpreter finds: a request a line on stdin, an answer a line on stdout.

Importing torch and transformers costs seconds, so it happens once; every setup is built once too. Each example then
runs in a forked child, so that nothing it changes reaches the next one (where there is no fork, in this process).
Gradients are off, as they are in any code that generates.

A request is ``{"code", "language", "setups", "preamble", "check"}``; an answer has ``exception`` (null or type, message
and the example's lines of the traceback, innermost last), ``warnings`` (pairs of type and message, type ``log`` for the
transformers logger) and ``check`` (null, true, false, or text: what went wrong when the expression was evaluated).
"""

from __future__ import annotations

import json
import linecache
import logging
import os
import sys
import tempfile
import traceback
import types
import warnings
from pathlib import Path

SETUPS = Path(__file__).parent / "setups"
EXAMPLE = "<example>"
EXAMPLE_SECONDS = 120


class LogKeeper(logging.Handler):
    """Keeps the text of every record."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def build(setups, built):
    """The namespace of these setups, each built on top of those before it, once."""
    key = tuple(setups)
    if key not in built:
        namespace = dict(build(setups[:-1], built)) if len(setups) > 1 else {}
        path = SETUPS / f"{setups[-1]}.py"
        if not path.is_file():
            raise LookupError(f"there is no setup {setups[-1]!r}: tests/setups has no {path.name}")
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True), namespace)
        built[key] = namespace
    return built[key]


def run(request, namespace):
    """Runs one example in *namespace* and says what it did."""
    import torch
    import transformers

    module = types.ModuleType("example")
    module.__dict__.update({name: value for name, value in namespace.items() if not name.startswith("__")})
    sys.modules["example"] = module
    torch.manual_seed(0)
    once = getattr(logging.Logger, "warning_once", None)
    if hasattr(once, "cache_clear"):
        once.cache_clear()
    keeper = LogKeeper()
    logger = transformers.utils.logging.get_logger("transformers")
    logger.addHandler(keeper)
    code = request["code"]
    if request["language"] == "json":
        directory = Path(tempfile.mkdtemp())
        (directory / "generation_config.json").write_text(code, encoding="utf-8")
        module.__dict__["_directory"] = str(directory)
        code = "generation_config = transformers.GenerationConfig.from_pretrained(_directory)\n"
    linecache.cache[EXAMPLE] = (len(code), None, code.splitlines(True), EXAMPLE)
    answer = {"exception": None, "warnings": [], "check": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for number, text in enumerate(request["preamble"]):
                exec(compile(text, f"<setup {number}>", "exec", dont_inherit=True), module.__dict__)
            del caught[:], keeper.texts[:]
            exec(compile(code, EXAMPLE, "exec", dont_inherit=True), module.__dict__)
        except Exception as error:
            frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == EXAMPLE]
            if isinstance(error, SyntaxError) and error.filename == EXAMPLE:
                frames.append(error.lineno)
            answer["exception"] = {
                "type": type(error).__name__,
                "message": str(error),
                "lines": frames,
                "traceback": traceback.format_exc(),
            }
        answer["warnings"] = [[type(one.message).__name__, str(one.message)] for one in caught]
        answer["warnings"] += [["log", text] for text in keeper.texts]
        if request["check"] is not None and answer["exception"] is None:
            try:
                answer["check"] = bool(eval(request["check"], module.__dict__))
            except Exception as error:
                answer["check"] = f"{type(error).__name__}: {error}"
    return answer


def run_apart(request, namespace):
    """`run` in a forked child; an answer with an exception of type ``Died`` where the child gives none."""
    if not hasattr(os, "fork"):
        return run(request, namespace)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import signal

            signal.alarm(EXAMPLE_SECONDS)
            os.close(read)
            with os.fdopen(write, "w", encoding="utf-8") as pipe:
                json.dump(run(request, namespace), pipe)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text and status == 0:
        return json.loads(text)
    died = {"type": "Died", "message": f"the process ended with wait status {status}", "lines": [], "traceback": ""}
    return {"exception": died, "warnings": [], "check": None}


def main():
    """Answers requests until stdin closes. The first line written is the release that runs them."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    channel.write(json.dumps({"transformers": transformers.__version__}) + "\n")
    channel.flush()
    built = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = run_apart(request, build(["base", *request["setups"]], built))
        except Exception as error:
            answer = {"setup": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
