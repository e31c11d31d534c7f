"""Which fixes go into a round, and what the rounds make of a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlint import linter
from kvlint.carriers.regions import Region, edited
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.fixing import allowed_applicabilities, choose, collides, merged_edits
from kvlint.jobs import FixRequest, Job, Result
from kvlint.linter import Found
from kvlint.releases import ReleaseSet
from kvlint.writing import write_atomically

SAFE, UNSAFE, SHOWN = Applicability.SAFE, Applicability.UNSAFE, Applicability.SHOWN
EVERYTHING = frozenset({"KV101", "KV202", "KV204", "KV900"})


def finding(*edits: Edit, code: str = "KV204", applicability: Applicability = SAFE, group: str = "") -> Finding:
    start = min((edit.start for edit in edits), default=0)
    fix = Fix("Rewrite it", applicability, edits, group) if edits else None
    return Finding(code, "some-name", Category.BREAKS, start, start + 1, "is wrong", fix=fix)


def chosen(*findings: Finding, silenced: tuple[Finding, ...] = (), unsafe: bool = False) -> tuple[Edit, ...]:
    return merged_edits(choose(findings, silenced, allowed_applicabilities(unsafe), EVERYTHING))


A, B, C = Edit(0, 3, "a"), Edit(3, 5, "b"), Edit(8, 9, "c")


def test_neighbours_go_together_and_overlaps_wait() -> None:
    assert chosen(finding(A), finding(B), finding(C)) == (A, B, C)
    assert chosen(finding(Edit(0, 4, "x")), finding(B)) == (Edit(0, 4, "x"),)
    assert chosen(finding(Edit(3, 3, "x")), finding(B)) == (Edit(3, 3, "x"),)
    assert chosen(finding(Edit(0, 9, "x")), finding(B), finding(C)) == (Edit(0, 9, "x"),)


def test_the_same_edit_of_two_fixes_is_made_once() -> None:
    shared = Edit(0, 0, "import x\n")
    assert chosen(finding(shared, B), finding(shared, C)) == (shared, B, C)
    assert chosen(finding(shared, B), finding(Edit(0, 0, "import y\n"), C)) == (shared, B)


def test_applicability() -> None:
    unsafe = finding(B, applicability=UNSAFE)
    shown = finding(C, applicability=SHOWN)
    assert chosen(finding(A), unsafe, shown) == (A,)
    assert chosen(finding(A), unsafe, shown, unsafe=True) == (A, B)
    assert choose([finding(A, code="KV999")], (), allowed_applicabilities(False), EVERYTHING) == ()


def test_a_group_is_applied_whole_or_not_at_all() -> None:
    first, second = finding(A, group="g"), finding(C, group="g")
    assert chosen(first, second) == (A, C)
    assert chosen(first, finding(C, group="g", applicability=UNSAFE)) == ()
    assert chosen(first, silenced=(second,)) == ()
    assert chosen(first, finding(C, group="g", code="KV999")) == ()
    assert chosen(finding(Edit(1, 2, "x")), first, second) == (A, C)
    assert chosen(finding(Edit(0, 1, "x"), code="KV101"), first, second) == (Edit(0, 1, "x"),)


def test_a_fix_that_overlaps_itself_is_never_applied() -> None:
    assert chosen(finding(Edit(0, 4, "x"), Edit(2, 6, "y"))) == ()


spans = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], min(pair[0] + pair[1], 30)))
fixes = st.lists(
    st.tuples(spans, st.sampled_from(["", "x", "yy"])).map(lambda item: Edit(*item[0], item[1])), max_size=3
)


@given(st.lists(fixes, max_size=12))
def test_a_round_never_overlaps_and_loses_nothing_without_reason(every: list[list[Edit]]) -> None:
    findings = [finding(*edits) for edits in every]
    units = choose(findings, (), allowed_applicabilities(False), EVERYTHING)
    edits = merged_edits(units)
    assert not any(collides(one, other) for one in edits for other in edits if one is not other)
    edited("." * 30, edits)
    taken = [item for unit in units for item in unit.findings]
    for item in findings:
        if item.fix is None or item in taken:
            continue
        own = item.fix.edits
        blocked = any(collides(one, other) for one in own for other in edits)
        assert blocked or any(collides(one, other) for one in own for other in own)


# ---------------------------------------------------------------------------------------------------------------------
# Rounds, with a finder that rewrites words


def word_finder(rewrites: dict[str, str], group: str, kind: str) -> object:
    """Stands in for the checks: a finding, with a fix, on every word of *rewrites* in regions of *kind* ("": all)."""

    def find(job: Job, path: Path, region: Region, timeline: object, around: str = "") -> Found:
        compile(region.text, "region", "exec")
        return Found(
            [
                finding(Edit(match.start(), match.end(), new), group=group)
                for old, new in rewrites.items()
                if kind in ("", region.kind)
                for match in re.finditer(rf"\b{old}\b", region.text)
            ]
        )

    return find


def fix(
    monkeypatch: pytest.MonkeyPatch,
    text: bytes,
    rewrites: dict[str, str],
    name: str = "a.py",
    group: str = "",
    kind: str = "",
    docstrings: bool = False,
) -> Result:
    monkeypatch.setattr(linter, "find", word_finder(rewrites, group, kind))
    job = Job(
        f"/nowhere/{name}",
        name,
        EVERYTHING,
        frozenset({"KV204"}),
        ReleaseSet.of(0),
        fix=FixRequest(allowed_applicabilities(False), EVERYTHING),
        fix_docstrings=docstrings,
        data=text,
    )
    return linter.lint(job)


def test_rounds_go_on_until_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"one = one\n", {"one": "two", "two": "three"})
    assert (result.fixed, result.applied, result.diagnostics) == (b"three = three\n", (("KV204", 4),), ())
    assert result.original == b"one = one\n"


def test_without_anything_to_fix_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"x = 1\n", {"one": "two"})
    assert (result.fixed, result.original, result.notices) == (None, b"", ())


def test_fixes_that_undo_each_other_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"a = 1\n", {"a": "b", "b": "a"})
    assert result.fixed == b"b = 1\n"
    assert result.notices == ("a.py: the fixes of KV204 undo each other; stopped",)


def test_fixes_without_end_stop_after_some_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"a = 1\n", {f"{'a' * n}": "a" * (n + 1) for n in range(1, 30)})
    assert result.fixed == b"a" * 11 + b" = 1\n"
    assert result.notices == ("a.py: still changing after 10 rounds of fixes; run again",)


def test_a_fix_that_breaks_the_file_is_dropped_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"one = bad\ntwo = bad\n", {"one": "three", "bad": "(", "two": "four"})
    assert result.fixed == b"three = bad\nfour = bad\n"
    assert result.notices == ("a.py: discarded a fix of KV204: the result could not be read back",)
    assert len(result.diagnostics) == 2


def test_a_group_that_breaks_the_file_is_dropped_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fix(monkeypatch, b"one = bad\n", {"one": "three", "bad": "("}, group="g")
    assert result.fixed is None
    assert len(result.diagnostics) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"x = one\r\ny = 1\r\n", b"x = two\r\ny = 1\r\n"),
        (b"x = one\r\ny = one\nz = one", b"x = two\r\ny = two\nz = two"),
        (b"\xef\xbb\xbfx = one", b"\xef\xbb\xbfx = two"),
        (b"# -*- coding: latin-1 -*-\ns = '\xe9'; x = one\n", b"# -*- coding: latin-1 -*-\ns = '\xe9'; x = two\n"),
        ("s = '\u2028\x0c'; x = one\n".encode(), "s = '\u2028\x0c'; x = two\n".encode()),
        (b"\tx\n".replace(b"\tx", b"if 1:\n\tx = one"), b"if 1:\n\tx = two\n"),
    ],
)
def test_only_the_edited_bytes_change(monkeypatch: pytest.MonkeyPatch, before: bytes, after: bytes) -> None:
    assert fix(monkeypatch, before, {"one": "two"}).fixed == after


def test_several_regions_of_a_file_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"# Title\n\n```python\nx = one\n```\n\none in prose\n\n- item\n\n  ```python\n  y = one\n  ```\n"
    result = fix(monkeypatch, text, {"one": "two"}, "a.md")
    assert result.fixed == text.replace(b"= one", b"= two")


def test_a_region_that_is_not_fixable_is_reported_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'def f():\n    """Doc.\n\n    >>> x = one  # past_key_values\n    """\n'
    result = fix(monkeypatch, text, {"one": "two"}, kind="docstring")
    assert result.fixed is None
    (left,) = result.diagnostics
    assert left.fix is not None
    assert (left.line, left.column, left.fix.applicability) == (4, 13, SHOWN)
    fixed = fix(monkeypatch, text, {"one": "two"}, kind="docstring", docstrings=True).fixed
    assert fixed == text.replace(b"one", b"two")


def test_silenced_findings_are_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x = one  # kvlint: ignore[KV204]\ny = one\n"
    assert fix(monkeypatch, text, {"one": "two"}).fixed == b"x = one  # kvlint: ignore[KV204]\ny = two\n"


def test_a_comment_that_silences_nothing_any_more_goes_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"y = 1  # kvlint: ignore[KV204]\nx = one  # keep\n"
    assert fix(monkeypatch, text, {"one": "two"}).fixed == b"y = 1\nx = two  # keep\n"


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def test_writing_keeps_mode_and_link(tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    real.write_bytes(b"old")
    real.chmod(0o754)
    link = tmp_path / "link.py"
    link.symlink_to("real.py")
    write_atomically(str(link), b"new\r\n")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode & 0o777) == (b"new\r\n", 0o754)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "real.py"]


def test_a_read_only_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.py"]


def test_a_write_that_fails_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.py"]
