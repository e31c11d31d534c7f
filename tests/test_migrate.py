"""``kvlint migrate``: where a project is and goes, what breaks on the way, what is fixed, asked and left, which pins move."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvlint.cli import main
from kvlint.documents import (
    Chapter,
    Document,
    Heading,
    Listing,
    Paragraph,
    Place,
    Places,
    Table,
    as_html,
    as_markdown,
    as_text,
)
from kvlint.errors import UsageProblem
from kvlint.migration import Journey, first_wrong, journey, pins_of
from kvlint.releases import ReleaseSet
from kvlint.rulebook import load
from kvlint.timeline import the_timeline

RENAMED = "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"
FIXED = RENAMED.replace("past[0][0]", "past.layers[0].keys")
REMOVED = "from transformers import HybridCache\n\n\nclass Mine(HybridCache):\n    pass\n"
UNSURE = (
    "from transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "out = model(input_ids, use_cache=True)\nfor step in range(3):\n    keys = out.past_key_values[0][0]\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def project(here: Path, requirement: str = "transformers==4.46.3", **files: str) -> None:
    (here / "pyproject.toml").write_text(f'[project]\nname = "p"\nversion = "1"\ndependencies = ["{requirement}"]\n')
    for name, text in files.items():
        (here / f"{name}.py").write_text(text)


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["migrate", "--no-cache", *arguments])


# -- from where to where ------------------------------------------------------------------------------------------------


def way(here: Path, start: str | None = None, end: str | None = None) -> tuple[str, str]:
    found = journey(the_timeline(), str(here), start, end)
    return found.start_text, found.end_text


def test_the_way_begins_where_the_project_is(here: Path) -> None:
    newest = the_timeline().releases[-1]
    project(here)
    assert way(here) == ("4.46.3", newest)
    assert way(here, end="4.56") == ("4.46.3", "4.56.2")
    assert way(here, start="4.50") == ("4.50.0", newest)
    project(here, "transformers>=4.50,<5")
    assert way(here) == ("4.50.0", newest)
    (here / "uv.lock").write_text('[[package]]\nname = "transformers"\nversion = "4.53.1"\n')
    assert way(here) == ("4.53.1", newest)
    (here / "requirements.txt").write_text("transformers==4.48.0\n")
    assert way(here) == ("4.48.0", newest)
    project(here, "transformers")
    (here / "uv.lock").unlink()
    (here / "requirements.txt").unlink()
    assert way(here) == (the_timeline().releases[0], newest)


def test_a_way_that_nobody_names_or_that_leads_back_is_a_mistake(here: Path) -> None:
    (here / "a.py").write_text(RENAMED)
    outcome = migrate()
    assert outcome.exit_code == 2 and "--from 4.46" in outcome.stderr
    outcome = migrate("--from", "5.24", "--to", "4.46")
    assert outcome.exit_code == 2 and "newer than 4.46.3" in outcome.stderr
    for arguments in (["-"], ["--apply", "--check", "--from", "4.46"], ["nowhere", "--from", "4.46"]):
        outcome = migrate(*arguments)
        assert outcome.exit_code == 2 and outcome.stderr.count("\n") == 1
    with pytest.raises(UsageProblem):
        journey(the_timeline(), None, None, None)


def test_the_release_that_brought_a_change_begins_the_run_that_lasts() -> None:
    known = the_timeline().releases
    found = Journey(known, 2, 9, "", "")
    assert first_wrong(ReleaseSet.span(5, 9), found) == 5
    assert first_wrong(ReleaseSet.span(3, 4) | ReleaseSet.span(7, 9), found) == 7
    assert first_wrong(ReleaseSet.span(0, 12), found) == 2
    assert first_wrong(ReleaseSet.span(3, 8), found) is None


# -- the report ---------------------------------------------------------------------------------------------------------


def test_the_report_walks_through_in_order(here: Path) -> None:
    project(here, a=RENAMED, b=REMOVED, c=UNSURE)
    outcome = migrate()
    text = outcome.stdout
    assert outcome.exit_code == 0, outcome.output
    parts = [text.index(title) for title in ("1. What", "2. What", "3. What", "4. What", "5. Which")]
    assert parts == sorted(parts)
    broken, fixed, look, hand, pins = (text[a:b] for a, b in zip(parts, [*parts[1:], len(text)], strict=True))
    assert "5.0" in broken and "KV204" in broken and "KV101" in broken
    assert "+keys = past.layers[0].keys" in fixed and "--apply" in fixed
    question = next(page.question for page in load() if page.code == "KV204")
    assert question in " ".join(look.split()) and "c.py:6:12" in look
    assert "b.py:1:26" in hand and "StaticCache" in hand and "b.py:4:12" in hand
    assert "transformers==4.46.3" in pins and "transformers==5.24.0" in pins
    assert (here / "a.py").read_text() == RENAMED


def test_apply_writes_the_safe_part_and_check_counts(here: Path) -> None:
    project(here, a=RENAMED, b=REMOVED)
    outcome = migrate("--check")
    assert outcome.exit_code == 1 and "1 finding fixed by --apply, 0 to look at, 1 left by hand." in outcome.stdout
    assert "What breaks" not in outcome.stdout
    assert migrate("--apply").exit_code == 0
    assert (here / "a.py").read_text() == FIXED and (here / "b.py").read_text() == REMOVED
    (here / "b.py").unlink()
    assert migrate("--check").exit_code == 0
    assert "Nothing to do: no use is wrong on 5.24.0." in migrate().stdout


def test_what_is_wrong_already_is_told_apart(here: Path) -> None:
    project(here, "transformers==5.10.0", a=RENAMED)
    assert "5.10.1 already" in migrate().stdout


def test_a_file_that_cannot_be_written_is_a_fault(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(here, a=RENAMED)

    def refuse(path: str, data: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kvlint.writing.write_atomically", refuse)
    outcome = migrate("--apply")
    assert outcome.exit_code == 2 and "a.py: cannot be written: permission denied" in outcome.stderr
    assert "Written:" not in outcome.stdout


def test_what_cannot_be_parsed_is_listed(here: Path) -> None:
    project(here, a="from transformers import DynamicCache\npast = (\n")
    assert "What could not be read" in migrate().stdout


@pytest.mark.parametrize(
    ("now", "floor", "then"),
    [
        ("==4.46.3", "5.0.0", "==5.24.0"),
        (">=4.46", "4.54.0", ">=4.54,<6"),
        (">=4.46,<5", "4.54.1", ">=4.54.1,<6"),
        (">=4.56", "4.54.0", ""),
        ("", "5.24.0", ">=5.24,<6"),
    ],
)
def test_pins_move_as_far_as_they_must(here: Path, now: str, floor: str, then: str) -> None:
    project(here, f"transformers{now}")
    timeline = the_timeline()
    found = journey(timeline, str(here), "4.46", "5.24")
    pins = pins_of(str(here), timeline, found, timeline.releases.index(floor))
    assert [(pin.now, pin.then) for pin in pins] == [(now, then)]


def test_the_floor_is_where_the_fixed_code_works(here: Path) -> None:
    project(here, "transformers>=4.46", a=RENAMED)
    text = migrate().stdout
    assert "works from 4.54.0 on" in text and "transformers>=4.54,<6" in text


# -- the three forms ----------------------------------------------------------------------------------------------------

EVIL = "a<b>.py `x` | \x1b[31m *y* ```"
REPORT = Document(
    EVIL,
    (EVIL,),
    (
        Chapter(
            EVIL,
            (
                Heading(EVIL, "https://example.org/?a='b'"),
                Paragraph(EVIL),
                Listing(f"{EVIL}\n+<script>\n", "diff"),
                Table((EVIL, "n"), ((EVIL, "1,000"), ("", "20"))),
                Places((Place(EVIL, EVIL, (EVIL, "odd ` tick")),)),
            ),
        ),
    ),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_whatever_stands_in_a_file_stays_text() -> None:
    page = Tags()
    page.feed(as_html(REPORT))
    assert not page.open and "script" not in page.seen and "b" in page.seen
    for text in (as_html(REPORT), as_markdown(REPORT), as_text(REPORT, 80, color=False)):
        assert "\x1b" not in text
    markdown = as_markdown(REPORT)
    assert "````diff" in markdown and "\\<b\\>" in markdown and "| 1,000 |" in markdown
    rows = [line for line in markdown.split("\n") if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {3}


def test_reports_are_written_where_asked(here: Path) -> None:
    project(here, a=RENAMED)
    assert migrate("--markdown", "r.md", "--html", "r.html").exit_code == 0
    assert (here / "r.md").read_text().startswith("# From transformers 4.46.3 to 5.24.0")
    assert "<h1>From transformers 4.46.3 to 5.24.0</h1>" in (here / "r.html").read_text()
    outcome = migrate("--html", os.path.join("no", "r.html"))
    assert outcome.exit_code == 2 and "no such file" in outcome.stderr


def test_a_long_patch_is_cut_on_a_terminal_only() -> None:
    patch = Document("t", (), (Chapter("c", (Listing("+x\n" * 90, "diff", 80),)),))
    assert "... 10 more lines" in as_text(patch, 80, color=False)
    assert as_markdown(patch).count("+x") == as_html(patch).count("+x") == 90


# -- what a range takes away --------------------------------------------------------------------------------------------


def test_a_range_that_takes_fixes_away_says_so(here: Path) -> None:
    project(here, a=RENAMED)

    def last(*arguments: str) -> str:
        return CliRunner().invoke(main, ["--no-cache", *arguments, "a.py"]).stdout

    assert "1 more fix with --target 5.24." in last("--target", ">=4.46")
    for arguments in (["--target", "5.24"], ["--target", ">=5"], ["-q", "--target", ">=4.46"]):
        assert "more fix" not in last(*arguments)
    assert "more fix" not in last("--target", ">=4.46", "--output-format", "json")
