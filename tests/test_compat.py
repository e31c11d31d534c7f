"""``kvlint compat``: uses by release, the sentence on top, the chart, the object for programs, the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvlint.compat import Compatibility, Segment, Use, compatibility, headline, ranges, remarks
from kvlint.compat_commands import compat
from kvlint.compat_html import Links
from kvlint.compat_html import render as render_page
from kvlint.compat_text import Look, render
from kvlint.config import Overrides, Resolver
from kvlint.diagnostics import Diagnostic
from kvlint.discovery import discover
from kvlint.findings import Category
from kvlint.releases import ReleaseSet
from kvlint.run import Options, run
from kvlint.timeline import the_timeline

RELEASES = ("4.1.0", "4.1.1", "4.2.0", "5.0.0", "5.0.1", "5.1.0")
EVERY = ReleaseSet.span(0, 5)

OLD = """\
from transformers import DynamicCache

cache = DynamicCache()
cache.crop(4)
print(cache.key_cache[0].shape)
print(cache.layers[0].keys.shape)
pairs = cache.to_legacy_cache()
"""


def diagnostic(category: Category, *releases: str, code: str = "KV201", line: int = 1, column: int = 1) -> Diagnostic:
    return Diagnostic(
        code,
        "a-rule",
        category,
        "a.py",
        line,
        column,
        line,
        column + 1,
        None,
        "it is `gone`",
        "",
        releases,
        None,
        None,
        (),
    )


def of(*found: Diagnostic) -> Compatibility:
    return compatibility(found, RELEASES, EVERY, 1)


def only_use(known: Compatibility) -> Use:
    assert len(known.uses) == 1
    return known.uses[0]


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ((0, 1), ["4.1"]),
        ((0, 1, 2), ["4.1 to 4.2"]),
        ((1, 2), ["4.1.1 to 4.2"]),
        ((0, 3, 4, 5), ["4.1.0", "5.0 to 5.1"]),
        ((2, 3), ["4.2 to 5.0.0"]),
        ((1,), ["4.1.1"]),
        ((), []),
    ],
)
def test_ranges_name_whole_minor_releases(chosen: tuple[int, ...], text: list[str]) -> None:
    assert ranges(RELEASES, ReleaseSet.of(*chosen), EVERY) == text


def test_ranges_are_seen_within_the_scope() -> None:
    scope = ReleaseSet.of(1, 2, 5)
    assert ranges(RELEASES, ReleaseSet.of(1, 2, 5), scope) == ["4.1 to 5.1"]


def test_a_place_counts_once_and_breaking_goes_first() -> None:
    use = only_use(
        of(
            diagnostic(Category.SILENT, "4.1.0-5.1.0", code="KV207"),
            diagnostic(Category.BREAKS, "4.2.0-5.0.0"),
            diagnostic(Category.BREAKS, "5.0.0", code="KV206"),
        )
    )
    assert list(use.breaks) == [2, 3]
    assert list(use.silent) == [0, 1, 4, 5]
    assert [one.item.code for one in use.found] == ["KV201", "KV206", "KV207"]


def test_deprecated_and_wasteful_uses_work() -> None:
    known = of(diagnostic(Category.DEPRECATED, "5.0.0-5.1.0"), diagnostic(Category.WASTEFUL, "4.1.0-5.1.0", line=2))
    assert not known.uses
    assert headline(known) == "works on every release (4.1 to 5.1)"


def test_the_sentence_tells_silent_releases_apart() -> None:
    known = of(diagnostic(Category.BREAKS, "5.0.1-5.1.0"), diagnostic(Category.SILENT, "5.0.0-5.1.0", line=2))
    assert headline(known) == "works on 4.1 to 4.2"
    assert remarks(known) == ["runs, with something silently wrong, on 5.0.0", "breaks on 5.0.1 to 5.1"]


def test_uses_that_no_release_makes_right_are_told_separately() -> None:
    known = of(
        diagnostic(Category.SILENT, "4.1.0-5.1.0", code="KV501"), diagnostic(Category.BREAKS, "5.0.0-5.1.0", line=9)
    )
    assert headline(known) == "works on no release"
    assert "1 use is wrong on every release; the rest works on 4.1 to 4.2" in remarks(known)


def test_a_minor_release_is_split_where_its_releases_differ() -> None:
    known = of(diagnostic(Category.BREAKS, "5.0.1-5.1.0"), diagnostic(Category.SILENT, "4.1.0-4.1.1", line=2))
    assert known.segments() == [
        Segment("4.1", ReleaseSet.of(0, 1), 0, 1),
        Segment("4.2", ReleaseSet.of(2), 0, 0),
        Segment("5.0.0", ReleaseSet.of(3), 0, 0),
        Segment("5.0.1", ReleaseSet.of(4), 1, 0),
        Segment("5.1", ReleaseSet.of(5), 1, 0),
    ]


def test_equal_numbers_of_different_uses_are_still_told_apart() -> None:
    known = of(diagnostic(Category.BREAKS, "5.0.0"), diagnostic(Category.BREAKS, "5.0.1", line=2))
    assert [segment.label for segment in known.segments()] == ["4.1", "4.2", "5.0.0", "5.0.1", "5.1"]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
@pytest.mark.parametrize("many", [1, 7, 300])
def test_the_chart_fits(width: int, many: int) -> None:
    found = [diagnostic(Category.BREAKS, "5.0.1-5.1.0", line=line + 1) for line in range(many)]
    text = render(of(*found, diagnostic(Category.SILENT, "4.1.0-5.1.0", line=9000)), Look(width))
    assert max(len(line) for line in text.splitlines()) <= min(width, 100)
    bars = {
        line.split()[0]: (line.count("█"), line.count("▒"))
        for line in text.splitlines()
        if re.match(r" *\d+\.\d", line)
    }
    assert bars["5.1"][0] >= bars["5.0.0"][0] == 0
    assert bars["4.1"][1] >= 1


def test_a_lone_silent_use_is_visible_beside_many_breaking_ones() -> None:
    found = [diagnostic(Category.BREAKS, "5.1.0", line=line + 1) for line in range(900)]
    text = render(of(*found, diagnostic(Category.SILENT, "5.1.0", line=9000)), Look(80, blocks=False))
    assert re.search(r"^ *5\.1 .*#~ +900 break", text, re.MULTILINE)


def test_colours_only_where_asked_for() -> None:
    known = of(diagnostic(Category.BREAKS, "5.1.0"))
    assert "\x1b[" not in render(known, Look())
    coloured = render(known, Look(color=True))
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(known, Look())


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "old.py").write_text(OLD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(compat, ["--no-cache", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return int(result.return_value or 0), result.output


def as_object(*arguments: str) -> dict[str, object]:
    return dict(json.loads(invoke("--output-format", "json", *arguments)[1]))


def test_one_analysis_says_where_each_use_is_wrong(old: Path) -> None:
    known = as_object(".")
    uses = {use["line"]: use for use in known["uses"]}  # type: ignore[attr-defined]
    assert uses[5]["breaks"] == ["4.56.0-5.24.0"], "`key_cache` went in 4.56"
    assert uses[6]["breaks"] == ["4.36.0-4.53.3"], "`layers` came in 4.54: older releases break too"
    assert uses[7]["breaks"] == ["5.0.0-5.24.0"]
    assert known["works"] == ["4.54.0-4.55.4"]
    assert known["summary"] == "works on 4.54 to 4.55"
    assert uses[5]["source"] == "print(cache.key_cache[0].shape)"


def test_the_terminal_starts_with_the_sentence(old: Path) -> None:
    code, text = invoke("old.py")
    assert code == 0
    assert text.startswith("Works on 4.54 to 4.55\n")
    assert re.search(r"^4\.55 +works$", text, re.MULTILINE)
    assert re.search(r"^ 5\.24 ", text, re.MULTILINE) or re.search(r"^5\.24 ", text, re.MULTILINE)


def test_notebooks_and_markdown_count_too(old: Path) -> None:
    (old / "old.py").unlink()
    (old / "read.md").write_text(f"Text\n\n```python\n{OLD}```\n", encoding="utf-8")
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": OLD,
    }
    (old / "nb.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8"
    )
    known = as_object(".")
    places = {(use["path"], use["cell"], use["line"]) for use in known["uses"]}  # type: ignore[attr-defined]
    assert {("read.md", None, 8), ("nb.ipynb", 1, 5)} <= places
    assert known["works"] == ["4.54.0-4.55.4"]


def test_fail_on_asks_about_a_range(old: Path) -> None:
    assert invoke("--fail-on", ">=4.54,<4.56", ".")[0] == 0
    assert invoke("--fail-on", "5.24", ".")[0] == 1


def test_a_target_narrows_the_question(old: Path) -> None:
    known = as_object("--target", ">=5", ".")
    assert known["summary"] == "works on no release"
    assert known["releases"][0]["release"] == "5.0.0"  # type: ignore[index]


def test_a_file_that_cannot_be_parsed_is_mentioned(old: Path) -> None:
    (old / "bad.py").write_text("from transformers import DynamicCache\nDynamicCache(\n", encoding="utf-8")
    assert "1 file was not or not wholly judged" in invoke(".")[1]
    assert [item["path"] for item in as_object(".")["unread"]] == ["bad.py"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-",), "standard input"),
        (("nowhere",), "no such file"),
        (("--fail-on", "seven", "."), "--fail-on"),
        (("--html", "no/such/folder/x.html", "."), "--html no/such/folder/x.html"),
        (("--link", "{file}", "--html", "x.html", "."), "{path} and {line}"),
        (("--link", "{path}", "."), "--html"),
    ],
)
def test_mistakes_are_one_line(old: Path, arguments: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(compat, ["--no-cache", *arguments], standalone_mode=False)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


# -- the page -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a test wants to know of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.widths: list[int] = []
        self.columns = 0
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a":
            self.links.append(given["href"] or "")
        if given.get("src") or tag == "link":
            self.loaded.append(tag)
        if tag == "th" and "release" in (given.get("class") or "").split():
            self.columns += 1
        if tag == "tr":
            self.widths.append(0)
        if tag == "td":
            self.widths[-1] += int(given.get("colspan") or 1)
        if tag not in ("meta", "col", "input", "i", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("i", "html"):
            assert self.open.pop() == tag


def page_of(known: Compatibility, links: Links) -> tuple[str, Page]:
    text = render_page(known, links)
    parsed = Page()
    parsed.feed(text)
    assert not parsed.open, "every element is closed"
    return text, parsed


def test_the_page_stands_alone_and_its_rows_are_as_wide_as_its_head(old: Path) -> None:
    invoke("--html", "page.html", ".")
    parsed = Page()
    text = (old / "page.html").read_text(encoding="utf-8")
    parsed.feed(text)
    assert not parsed.loaded and "@import" not in text and "url(" not in text
    assert parsed.columns >= 47
    assert set(parsed.widths) - {0} == {parsed.columns}
    assert "old.py#L5" in parsed.links
    assert any("KV202-removed-cache-attribute" in link for link in parsed.links)
    assert "prefers-color-scheme: dark" in text


def test_links_follow_the_page_or_a_template(tmp_path: Path) -> None:
    here = Links(str(tmp_path / "out"), str(tmp_path), None)
    assert here.to("a b/x.py", 7) == "../a%20b/x.py#L7"
    hosted = Links(str(tmp_path), str(tmp_path), "https://example.org/{path}?line={line}")
    assert hosted.to("a b/x.py", 7) == "https://example.org/a%20b/x.py?line=7"


def test_nothing_of_a_file_becomes_markup() -> None:
    nasty = Diagnostic(
        "KV201",
        "a-rule",
        Category.BREAKS,
        "<b>'.py",
        1,
        1,
        1,
        2,
        None,
        '`<script>` & "',
        "",
        ("5.0.0",),
        None,
        None,
        (),
    )
    text, parsed = page_of(of(nasty), Links("/", "/", None))
    assert "<script>` &" not in text and "<code>&lt;script&gt;</code> &amp;" in text
    assert parsed.columns == 5


def test_a_page_without_uses_has_no_matrix() -> None:
    text, parsed = page_of(of(), Links("/", "/", None))
    assert parsed.columns == 0 and "Works on every release" in text


# -- against single releases ----------------------------------------------------------------------------------------


def judged(paths: list[str], target: str, scope: ReleaseSet) -> Compatibility:
    folder = str(Path(__file__).parent)
    found = discover(paths, Resolver.create(Overrides(target=target, exclude=()), folder, None, isolated=True))
    outcome = run(found.files, Options(cwd=folder, use_cache=False, with_fixes=False, grouped=False, jobs=1))
    found_there = (item for result in outcome.results for item in result.diagnostics)
    return compatibility(found_there, the_timeline().releases, scope, outcome.files)


@pytest.mark.parametrize("release", ["4.36.2", "4.46.3", "4.53.0", "4.55.4", "4.57.6", "5.3.0", "5.15.0", "5.24.0"])
def test_the_whole_range_says_of_a_release_what_that_release_alone_says(release: str) -> None:
    timeline = the_timeline()
    paths = [str(path) for path in sorted((Path(__file__).parent / "cases").rglob("*.py"))]
    paths.append(str(Path(__file__).parent / "fixtures" / "modeling_tern.py"))
    bit = timeline.matching(f"=={release}")
    whole = judged(paths, ">=0", timeline.all)
    alone = judged(paths, release, bit)

    def verdicts(known: Compatibility) -> dict[tuple[str, str], str]:
        return {
            (use.path, use.place): "breaks" if use.breaks & bit else "silent" for use in known.uses if use.wrong & bit
        }

    assert verdicts(alone), "the cases hold something that is wrong on every release"
    assert verdicts(whole) == verdicts(alone)
