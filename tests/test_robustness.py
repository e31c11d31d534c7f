"""What a hostile user tries: odd bytes, odd code, odd surroundings. Nothing may crash, and no fix may spoil a file."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest

from kvlint.analysis.positions import LineIndex
from kvlint.checks import all_checks
from kvlint.errors import UsageProblem
from kvlint.findings import Applicability
from kvlint.jobs import FixRequest, Job, Result
from kvlint.linter import lint, parses
from kvlint.screen import candidates
from kvlint.source import Region
from kvlint.timeline import the_timeline

HEAD = "from transformers import DynamicCache\npast = DynamicCache()\n"
CODES = frozenset(check.code for check in all_checks()) | {"KV000", "KV900"}
BOTH = frozenset({Applicability.SAFE, Applicability.UNSAFE})


def run(text: str | bytes, name: str = "a.py", target: str = "5.24.0", fix: bool = True) -> Result:
    """The file linted for *target*, with every fix applied."""
    data = text.encode() if isinstance(text, str) else text
    return lint(
        Job(
            path=f"/nowhere/{name}",
            shown=name,
            codes=CODES,
            triggered=candidates(data, CODES, name),
            target=the_timeline().matching(target),
            fix=FixRequest(BOTH, CODES) if fix else None,
            data=data,
        )
    )


def fixed(text: str | bytes, **more: Any) -> str:
    """The text after all fixes, which must be code, hold the same comments, and have nothing left to fix."""
    data = text.encode() if isinstance(text, str) else text
    result = run(data, **more)
    assert (result.faults, result.notices) == ((), ())
    new = result.fixed if result.fixed is not None else data
    compile(new, "a.py", "exec")
    assert comments(new) == comments(data)
    assert run(new, **more).fixed is None
    return new.decode()


def comments(data: bytes) -> list[str]:
    tokens = tokenize.tokenize(io.BytesIO(data).readline)
    return sorted(token.string for token in tokens if token.type == tokenize.COMMENT)


def command(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Runs ``$KVLINT`` in a shell, so that streams can be closed and files be pipes."""
    return subprocess.run(
        ["sh", "-c", line.replace("$KVLINT", f"'{sys.executable}' -m kvlint")],
        capture_output=True,
        check=False,
        cwd=folder,
        timeout=60,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "XDG_CACHE_HOME": str(folder / "results"),
            **environment,
        },
    )


# ---------------------------------------------------------------------------------------------------------------------
# Fixes


class Stored(ast.NodeTransformer):
    """What the fix of ``past[0][0]`` is to make of a tree."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        inner = node.value
        if isinstance(inner, ast.Subscript) and ast.unparse(inner) in ("past[0]", "past[1]"):
            new = ast.parse(f"past.layers[{ast.unparse(inner.slice)}].{'values' if node.slice.value else 'keys'}")  # type: ignore[attr-defined]
            return new.body[0].value  # type: ignore[attr-defined, no-any-return]
        return node


FORMATTED = [
    'f"{E}{E}"',
    'f"E {E} é{E}"',
    'f"{{E}} {E!r} {E:>3} {x:{E}}"',
    'f"""é\n é{E}\n{ E }\n  {\nE}"""',
    '("a"\n f"{E}"\n "é" f"{E}")',
    'f"\\n{E}\\x41{E}"',
    'f"\\\n{E}\\\n{E}"',
    'rf"\\n{E}"',
    "f'''{f\"{E}\" + f\"é{E}\"}'''",
    'f"{(lambda: E)()}{ {1: E}[1] }"',
    'f"\U0001f600{E}\U0001f600{E}"',
    "f\"{'past[0][0]'}{E}\"",
    'f"past[0][0]{E}past[0][0]"',
    'f"{x}" \\\n  f"{E}"',
    'f"""{x:{\nE}}"""',
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("template", FORMATTED)
def test_fixes_inside_format_strings_change_nothing_else(template: str, newline: str) -> None:
    text = f"{HEAD}é = 'é'; q = {template.replace('E', 'past[0][0]')}; r = past[1][1]\n"
    expected = ast.dump(Stored().visit(ast.parse(text)))
    new = fixed(text.replace("\n", newline).encode())
    assert ast.dump(ast.parse(new.replace("\r\n", "\n"))) == expected


def test_two_names_of_the_cache_in_one_call_do_not_become_one() -> None:
    head = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
    new = fixed(f"{head}def step(past):\n    return model(past_key_value=past, past_key_values=past)\n")
    assert "past_key_value=past" in new


def test_a_fix_uses_only_names_that_hold_at_its_place() -> None:
    head = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
    body = "def step(pairs: DynamicCache):\n    return model(x, past_key_values=pairs.to_legacy_cache())\n"
    local = "def other():\n    from transformers import DynamicCache as Kept\n    return Kept()\n"
    typing = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from transformers import DynamicCache\n"
    assert "Kept(tuple" not in fixed(head + local + body.replace("DynamicCache", "'Cache'"))
    assert "DynamicCache(tuple" not in fixed(head + typing + body.replace("DynamicCache", "'DynamicCache'"))
    assert "DynamicCache(tuple" in fixed(f"from transformers import DynamicCache\n{head}{body}")


def test_code_with_a_keyword_given_twice_is_no_code() -> None:
    assert parses(Region("f(a=1, b=2)\n"))
    assert not parses(Region("x = [f(a=1, **k, a=2)]\n"))


def test_a_class_that_a_type_comment_names_stays_imported() -> None:
    text = "from transformers import HybridCache\ndef f(c):\n    # type: (HybridCache) -> int\n    return 1\n"
    assert fixed(text) == text


# ---------------------------------------------------------------------------------------------------------------------
# Odd code


def test_two_ellipses_in_an_index() -> None:
    text = "import torch\ndef f(k: torch.Tensor, n):\n    k = k.view(1, 2, 3, 4)\n    return k[..., ...].shape, k[..., 0, ...]\n"
    result = run(text + "y = torch.cat([past_key_values[0][0][..., :3, ...], f(1, 2)], dim=-2)\n")
    assert result.faults == ()


@pytest.mark.parametrize("index", ["()", "..., ...", "None, ..., 0, ...", "*n"])
def test_odd_indices_of_keys(index: str) -> None:
    body = f"    b, n, s, d = k.shape\n    y = k[{index}]\n    return torch.cat([y, k.shape[{index}]], dim=2), y.shape[0]\n"
    result = run(f"import torch\ndef attend(q, k: torch.Tensor, v, past_key_value):\n{body}")
    assert (result.faults, result.diagnostics) == ((), ())


@pytest.mark.parametrize("problem", [RecursionError, MemoryError])
def test_a_check_that_runs_out_of_depth_or_memory_is_no_internal_error(
    monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    from kvlint import checks

    def fail(*_: object) -> list[object]:
        raise problem

    monkeypatch.setattr(checks, "findings", fail)
    result = run(f"{HEAD}past[0][0]\n", fix=False)
    assert result.faults == ()
    assert [item.code for item in result.diagnostics] == ["KV000"]


def test_offsets_in_a_line_with_characters_of_many_bytes() -> None:
    text = "a = 'é😀'; b = 'ü'; c = 1\nd = 1; e = 'é'; f = 2\n"
    tree = ast.parse(text)
    index = LineIndex(text)
    found = []
    for node in [*tree.body, *reversed(tree.body)]:
        start, end = index.span(node)
        found.append(text[start:end])
    assert found[:6] == ["a = 'é😀'", "b = 'ü'", "c = 1", "d = 1", "e = 'é'", "f = 2"]
    assert found[6:] == found[:6][::-1]


# ---------------------------------------------------------------------------------------------------------------------
# Odd surroundings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(f"{HEAD}past[0][0]\n")
    return tmp_path


@pytest.mark.skipif(os.name != "posix", reason="shell, pipes and /dev")
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("$KVLINT - <&-", 2, "standard input is closed"),
        ("$KVLINT a.py >&-", 1, ""),
        ("$KVLINT a.py --diff -q >&-", 1, ""),
        ("$KVLINT nope.py 2>&-", 2, ""),
        ("cat a.py | $KVLINT /dev/stdin", 2, "/dev/stdin: neither a file nor a folder (standard input is read with -)"),
        ("mkfifo f.py && $KVLINT f.py", 2, "f.py: neither a file nor a folder"),
        ("mkdir gone && cd gone && rmdir ../gone && $KVLINT", 2, "the current folder does not exist any more"),
        ("$KVLINT a.py --select ''", 2, "--select: names no rule"),
    ],
)
def test_odd_surroundings_get_one_line(folder: Path, line: str, code: int, words: str) -> None:
    done = command(line, folder)
    assert done.returncode == code, done.stderr
    assert words in done.stderr.decode()
    assert done.stderr.count(b"\n") == (1 if words else 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_under_the_report(folder: Path) -> None:
    done = command("$KVLINT a.py > /dev/full", folder)
    assert (done.returncode, done.stderr) == (2, b"kvlint: error: output: no space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes")
@pytest.mark.parametrize("report", ["full", "json", "gitlab", "sarif", "junit", "github"])
def test_a_file_name_that_is_no_utf_8(folder: Path, report: str) -> None:
    os.rename(folder / "a.py", os.fsencode(folder) + b"/\xff.py")
    done = command(f"$KVLINT --output-format {report}", folder)
    assert done.returncode == 1, done.stderr
    assert b"KV204" in done.stdout


def test_a_relative_cache_folder_in_the_environment_is_not_made(folder: Path) -> None:
    done = command("$KVLINT a.py", folder, XDG_CACHE_HOME="relative", HOME=str(folder / "home"))
    assert done.returncode == 1
    assert not (folder / "relative").exists()


@pytest.mark.skipif(os.name != "posix", reason="folders that may not be entered")
def test_a_home_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import timeline_overlay

    stat = os.stat

    def refuse(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *rest, **more)

    monkeypatch.setattr(os, "stat", refuse)
    assert timeline_overlay.merged(b"{}", tmp_path / "timeline") == b"{}"


def test_what_cannot_be_written_is_not_called_fixed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from kvlint.cli import main

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "replace", refuse)
    done = CliRunner().invoke(main, ["--fix", "--no-cache", "a.py"])
    assert done.exit_code == 2
    assert "KV204" in done.stdout
    assert "Fixed" not in done.output
    assert "a.py: cannot be written: permission denied" in done.stderr


def test_pipes_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    from kvlint.config import Overrides, Resolver
    from kvlint.discovery import discover

    with pytest.raises(UsageProblem, match="neither a file nor a folder"):
        discover([os.devnull], Resolver.create(Overrides(), str(tmp_path), None, True))
