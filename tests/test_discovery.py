"""Which files are linted: globs, git's ignore files, links, odd entries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlint.config import Overrides, Resolver
from kvlint.discovery import discover
from kvlint.errors import UsageProblem
from kvlint.globs import compile_patterns

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Makes empty files (or, for a mapping, files with that text) below a fresh folder."""

    def make(*names: str, **texts: str) -> Path:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts.get(name, ""), encoding="utf-8")
        return tmp_path

    return make


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def found(root: Path, *paths: str, **overrides: object) -> list[str]:
    resolver = Resolver.create(Overrides(**overrides), str(root))  # type: ignore[arg-type]
    return [os.path.relpath(file.path, root).replace(os.sep, "/") for file in discover(paths or (".",), resolver).files]


def test_takes_the_kinds_of_files_it_can_read(tree: Tree) -> None:
    root = tree(
        "a.py",
        "b.pyi",
        "c.ipynb",
        "d.md",
        "e.rst",
        "f.markdown",
        "g.txt",
        "h.json",
        "m/generation_config.json",
        "Makefile",
    )
    assert found(root) == ["a.py", "b.pyi", "c.ipynb", "d.md", "e.rst", "f.markdown", "m/generation_config.json"]


def test_a_file_without_a_suffix_needs_a_python_shebang(tree: Tree) -> None:
    root = tree("x")
    write(root / "tool", "#!/usr/bin/env python3\n")
    write(root / "shell", "#!/bin/sh\necho python\n")
    write(root / "exact", "#!/usr/bin/python3.11 -u\n")
    assert found(root) == ["exact", "tool"]


def test_a_file_that_is_named_is_linted_whatever_it_is_called(tree: Tree) -> None:
    root = tree("notes.txt", "build/a.py")
    assert found(root, "notes.txt", "build/a.py") == ["build/a.py", "notes.txt"]


def test_order_is_that_of_the_paths_and_every_file_comes_once(tree: Tree) -> None:
    root = tree("b.py", "a/z.py", "a/b.py")
    assert found(root, "b.py", ".", "a", "a/z.py") == ["a/b.py", "a/z.py", "b.py"]


def test_a_folder_called_like_a_module_is_walked(tree: Tree) -> None:
    assert found(tree("x.py/inner.py")) == ["x.py/inner.py"]


def test_default_excludes_hold_below_the_given_folder_only(tree: Tree) -> None:
    root = tree("a.py", ".venv/lib/b.py", "node_modules/c.py", "lib/site-packages/d.py", "__pycache__/e.py")
    assert found(root) == ["a.py"]
    assert found(root, ".venv") == [".venv/lib/b.py"]
    assert found(root, "lib/site-packages") == ["lib/site-packages/d.py"]


def test_extend_exclude_adds_and_exclude_replaces(tree: Tree) -> None:
    root = tree("a.py", "build/b.py", "gen/c.py", "gen/keep/d.py")
    assert found(root, extend_exclude=("gen",)) == ["a.py"]
    assert found(root, exclude=("gen/keep",)) == ["a.py", "build/b.py", "gen/c.py"]
    assert found(root, extend_exclude=("*.py",)) == []


def test_excludes_of_a_project_are_relative_to_it(tree: Tree) -> None:
    root = tree("p/gen/a.py", "gen/b.py", "p/c.py")
    write(root / "p" / "pyproject.toml", '[tool.kvlint]\nextend-exclude = ["/gen"]\n')
    assert found(root) == ["gen/b.py", "p/c.py"]


def test_force_exclude_holds_for_named_files(tree: Tree) -> None:
    root = tree("build/a.py", "b.py", "gen/deep/c.py")
    named = ("build/a.py", "b.py", "gen/deep/c.py", "gen")
    assert found(root, *named, force_exclude=True, extend_exclude=("gen",)) == ["b.py"]


def test_nested_gitignore_files(tree: Tree) -> None:
    root = tree("a.py", "b_pb2.py", "sub/a.py", "sub/b_pb2.py", "sub/keep_pb2.py", "sub/out/x.py", "out.py")
    write(root / ".gitignore", "*_pb2.py\n")
    write(root / "sub" / ".gitignore", "!keep_pb2.py\nout/\n")
    assert found(root) == ["a.py", "out.py", "sub/a.py", "sub/keep_pb2.py"]
    assert "sub/out/x.py" in found(root, respect_gitignore=False)


def test_ignore_files_above_the_start_hold_up_to_the_root_of_the_repository(tree: Tree) -> None:
    root = tree("repo/src/a.py", "repo/src/gen.py", "repo/src/local.py", "repo/.git/HEAD", "repo/.git/info/x")
    write(root / "repo" / ".gitignore", "gen.py\n")
    write(root / "repo" / ".git" / "info" / "exclude", "local.py\n")
    write(root / ".gitignore", "a.py\n")
    assert found(root, "repo/src") == ["repo/src/a.py"]


def test_an_ignored_folder_that_is_named_is_linted(tree: Tree) -> None:
    root = tree(".git/HEAD", "out/a.py", "out/b.log.py")
    write(root / ".gitignore", "/out\n")
    assert found(root) == []
    assert found(root, "out") == ["out/a.py", "out/b.log.py"]


def test_a_bad_line_in_a_gitignore_costs_that_line_only(tree: Tree) -> None:
    root = tree("a.py", "b.py")
    write(root / ".gitignore", "[z-a]x\nb.py\n\\\n")
    assert found(root) == ["a.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_links(tree: Tree) -> None:
    root = tree("real/a.py", "b.py")
    (root / "link.py").symlink_to(root / "b.py")
    (root / "other.py").symlink_to(root / "real" / "a.py")
    (root / "dead.py").symlink_to(root / "gone.py")
    (root / "folder").symlink_to(root / "real", target_is_directory=True)
    (root / "loop").symlink_to(root, target_is_directory=True)
    assert found(root) == ["b.py", "real/a.py"]
    assert found(root, "link.py", "other.py") == ["link.py", "other.py"]
    assert found(root, "folder") == ["folder/a.py"]
    with pytest.raises(UsageProblem, match=r"dead.py: no such file"):
        found(root, "dead.py")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a named pipe")
def test_what_is_no_regular_file_is_left_alone(tree: Tree) -> None:
    root = tree("a.py")
    os.mkfifo(root / "pipe.py")
    assert found(root) == ["a.py"]


def test_an_unreadable_folder_is_reported(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree("a.py", "shut/b.py")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    outcome = discover((".",), Resolver.create(Overrides(), str(root)))
    assert [Path(file.path).name for file in outcome.files] == ["a.py"]
    assert [problem.message for problem in outcome.problems] == ["cannot be read: permission denied"]


def test_a_missing_path_is_a_mistake(tree: Tree) -> None:
    with pytest.raises(UsageProblem, match=r"^nope\.py: no such file or directory$"):
        found(tree("a.py"), "nope.py")


def test_a_bad_glob_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\[b-a\]' is not a valid glob"):
        compile_patterns(("ok", "[b-a]"))


NAMES = st.sampled_from(["a", "b", "ab", "a.py", "b.py", "x y", "[a]", "a-b", "..a"])
PARTS = st.one_of(
    NAMES, st.sampled_from(["*", "**", "?", "a*", "*.py", "[ab]", "[!a]*", "a?", "\\*", "[a-b].py", "***", "b**"])
)


SLASH = st.sampled_from(["", "/"])


def is_documented(part: str) -> bool:
    """False for two asterisks beside something else: git says they are one, and matches ``b**/b`` against ``b/a/b``."""
    return "**" not in part or not part.strip("*")


@st.composite
def patterns(draw: st.DrawFn) -> str:
    body = "/".join(draw(st.lists(PARTS.filter(is_documented), min_size=1, max_size=4)))
    return draw(st.sampled_from(["", "", "", "!"])) + draw(SLASH) + body + draw(SLASH)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True, capture_output=True)
    return root


@settings(max_examples=250, deadline=None)
@given(
    st.lists(patterns(), min_size=1, max_size=5),
    st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=12),
)
def test_globs_are_those_of_git(repository: Path, lines: list[str], paths: list[str]) -> None:
    write(repository / ".git" / "info" / "exclude", "\n".join(lines) + "\n")
    ignored = subprocess.run(
        ["git", "-C", str(repository), "check-ignore", "--no-index", "-z", "--stdin"],
        input="\0".join(paths).encode(),
        capture_output=True,
        check=False,
    )
    expected = set(ignored.stdout.decode().split("\0")) - {""}
    matcher = compile_patterns(tuple(lines))
    assert {path for path in paths if matcher.excludes(path)} == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(patterns(), min_size=1, max_size=4))
def test_a_walk_agrees_with_git(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    root = tmp_path_factory.mktemp("repository")
    for name in ("a.py", "b.py", "a/a.py", "a/b/b.py", "ab/a.py", "x y/[a]/é.py", "b/a-b/a.py", "b/b.py"):
        write(root / name, "")
    subprocess.run(["git", "init", "-q", str(root)], check=True, capture_output=True)
    write(root / ".gitignore", "\n".join(lines) + "\n")
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True
    )
    expected = sorted(name for name in listed.stdout.decode().split("\0") if name.endswith(".py"))
    assert sorted(found(root)) == expected
