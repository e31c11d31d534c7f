"""The output formats, given findings made up here."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvlint.cli import main
from kvlint.diagnostics import Diagnostic, FileSpan, PlacedEdit, PlacedFix, PlacedOrigin, PlacedRelated, SourceLine
from kvlint.findings import Applicability, Category
from kvlint.report import FOR_PEOPLE, format_names, render
from kvlint.report._patch import patch, quoted
from kvlint.report._view import View, split

SAFE, UNSAFE, SHOWN = Applicability.SAFE, Applicability.UNSAFE, Applicability.SHOWN


def diagnostic(**changes: Any) -> Diagnostic:
    base = Diagnostic(
        code="KV204",
        name="cache-subscript",
        category=Category.BREAKS,
        path="src/a.py",
        line=12,
        column=5,
        end_line=12,
        end_column=12,
        cell=None,
        message="raises TypeError from 5.0.0",
        help="ask the layer",
        releases=("5.0.0-5.24.0",),
        origin=PlacedOrigin(4, 1, None, "a cache, constructed here", SourceLine(4, "past = DynamicCache()")),
        fix=PlacedFix("Replace it", SAFE, (PlacedEdit(12, 5, 12, 12, "past.layers"),)),
        source=(SourceLine(11, ""), SourceLine(12, "x = past[0] + 1"), SourceLine(13, "y = 2")),
    )
    return replace(base, **changes)


def fixed_with(applicability: Applicability) -> PlacedFix:
    return PlacedFix("Replace it", applicability, (PlacedEdit(1, 1, 1, 1, "x"),))


NOTEBOOK = diagnostic(
    path="n.ipynb", cell=3, category=Category.SILENT, code="KV203", name="dead-assignment", fix=None,
    in_file=FileSpan(40, 9, 40, 16),
)  # fmt: skip
NOTEBOOK_FIX = diagnostic(
    path="n.ipynb", cell=3, fix=PlacedFix("Replace it", SAFE, (PlacedEdit(1, 1, 1, 4, "import x\n", 1),))
)
NASTY = diagnostic(
    path="src/<a> & 'b', 50%.py",
    message='says "no" & <never>: 100%,\x1b[31m red\ud800',
    help="",
    origin=None,
    fix=None,
    source=(SourceLine(12, "x = '\x1b[31m' + past[0]"),),
)
EVERYTHING = (diagnostic(), NOTEBOOK, NOTEBOOK_FIX, NASTY)


def view(*found: Diagnostic, **changes: Any) -> View:
    return View(**{"found": found, "files": 7, **changes})


def test_formats_are_found_by_their_files() -> None:
    assert format_names() == (
        "azure", "concise", "full", "github", "gitlab", "grouped", "json", "jsonl", "junit", "pylint", "rdjson", "sarif",
    )  # fmt: skip
    assert set(format_names()) > FOR_PEOPLE


@pytest.mark.parametrize("name", format_names())
def test_every_format_takes_everything_and_nothing(name: str) -> None:
    text = render(name, view(*EVERYTHING))
    assert text.endswith("\n")
    assert render(name, view(*EVERYTHING)) == text
    empty = render(name, view())
    assert empty == "" or empty.endswith("\n")
    assert ("Nothing found in 7 files." in empty) is (name in FOR_PEOPLE)


def test_concise() -> None:
    lines = render("concise", view(*EVERYTHING, quiet=True)).splitlines()
    assert lines[0] == "src/a.py:12:5: KV204 cache-subscript [*]: raises TypeError from 5.0.0"
    assert lines[1] == "n.ipynb:cell 3:12:5: KV203 dead-assignment (silent): raises TypeError from 5.0.0"


def test_full() -> None:
    assert render("full", view(diagnostic(), quiet=True)) == (
        "src/a.py:12:5: KV204 cache-subscript [*]: raises TypeError from 5.0.0\n"
        "   |\n"
        "11 |\n"
        "12 | x = past[0] + 1\n"
        "   |     ^^^^^^^\n"
        "13 | y = 2\n"
        "   |\n"
        "   = a cache, constructed here (line 4): `past = DynamicCache()`\n"
        "   = help: ask the layer\n"
        "   = fix (--fix): Replace it\n"
        "\n"
    )


def test_carets_stand_under_the_finding_also_behind_tabs_and_wide_characters() -> None:
    item = diagnostic(source=(SourceLine(12, "\t漢e\u0301 = past[0]"),), column=8, end_column=15)
    lines = render("full", view(item, quiet=True)).splitlines()
    assert lines[3] == "   | \t" + " " * 6 + "^" * 7


def test_a_finding_over_several_lines_is_underlined_to_the_end_of_its_first_line() -> None:
    item = diagnostic(end_line=14, end_column=2, source=(SourceLine(12, "x = past[  "),))
    assert "   |     ^^^^^\n" in render("full", view(item))


def test_only_a_part_of_a_very_long_line_is_shown() -> None:
    item = diagnostic(column=1005, end_column=1012, source=(SourceLine(12, "aaaa past[0] bbb", 999),))
    assert "   |      ^^^^^^^\n" in render("full", view(item))


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in render("full", view(replace(NASTY, message="x")))


def test_fix_marks_follow_what_a_run_would_apply() -> None:
    unsafe, shown = diagnostic(fix=fixed_with(UNSAFE)), diagnostic(fix=fixed_with(SHOWN))
    assert "[*]" not in render("concise", view(unsafe, shown))
    assert "[*]" in render("concise", view(unsafe, allowed=frozenset({SAFE, UNSAFE})))
    assert "fix (--fix --unsafe-fixes: look at the result): Replace it" in render("full", view(unsafe))
    assert "by hand: Replace it" in render("full", view(shown))
    assert "[*]" not in render("concise", view(diagnostic(), fixable=frozenset({"KV101"})))


def last_line(*found: Diagnostic, **changes: Any) -> str:
    return render("concise", view(*found, **changes)).splitlines()[-1]


def test_the_summary() -> None:
    silent, waste = diagnostic(category=Category.SILENT, path="b.py"), diagnostic(category=Category.WASTEFUL, fix=None)
    assert last_line(diagnostic(), diagnostic(fix=fixed_with(UNSAFE)), silent, waste) == (
        "Found 4 findings (1 silent, 2 breaking, 1 wasteful) in 2 files; "
        "2 fixable with --fix, 1 more with --unsafe-fixes."
    )
    assert last_line(diagnostic(fix=fixed_with(UNSAFE))).endswith("; 1 fixable with --unsafe-fixes.")
    assert last_line(diagnostic(fix=None)) == "Found 1 finding (1 breaking) in 1 file."
    assert last_line() == "Nothing found in 7 files."
    assert last_line(files=0) == "No files to lint."
    assert last_line(applied=(("KV204", 3),), changed=2, fixing=True) == "Fixed 3 findings in 2 files; nothing left."
    assert last_line(diagnostic(fix=fixed_with(UNSAFE)), applied=(("KV204", 1),), changed=1, fixing=True) == (
        "Fixed 1 finding in 1 file; 1 finding (1 breaking) in 1 file left; 1 fixable with --unsafe-fixes."
    )


def test_the_summary_counts_what_is_not_shown() -> None:
    hidden = ((Category.DEPRECATED, 14), (Category.UNDECIDED, 2))
    lines = render("concise", view(hidden=hidden, hidden_codes=("KV501",))).splitlines()
    assert lines == [
        "Nothing found in 7 files.",
        "14 deprecated uses not shown (--show deprecated)",
        "2 places undecided (KV501): --show undecided",
    ]


def test_splitting_what_is_shown() -> None:
    deprecated, undecided = (
        diagnostic(category=Category.DEPRECATED),
        diagnostic(category=Category.UNDECIDED, code="KV501"),
    )
    shown, hidden, codes = split((diagnostic(), deprecated, undecided), ())
    assert (len(shown), hidden[Category.DEPRECATED], hidden[Category.UNDECIDED], codes) == (1, 1, 1, {"KV501"})
    shown, hidden, codes = split((diagnostic(), deprecated, undecided), ("deprecated", "undecided"))
    assert (len(shown), not hidden, codes) == (3, True, set())


def test_json() -> None:
    first, second, third, _ = json.loads(render("json", view(*EVERYTHING)))
    assert first == {
        "code": "KV204",
        "name": "cache-subscript",
        "category": "breaks",
        "severity": "error",
        "path": "src/a.py",
        "line": 12,
        "column": 5,
        "end_line": 12,
        "end_column": 12,
        "cell": None,
        "message": "raises TypeError from 5.0.0; ask the layer",
        "releases": ["5.0.0-5.24.0"],
        "origin": 4,
        "fix": {
            "applicability": "safe",
            "title": "Replace it",
            "edits": [{"start_line": 12, "start_column": 5, "end_line": 12, "end_column": 12, "text": "past.layers"}],
        },
        "url": "https://github.com/kvlint/kvlint/blob/main/rules/KV204-cache-subscript.md",
        "related": [],
    }
    assert (second["cell"], second["fix"], second["severity"]) == (3, None, "error")
    assert third["fix"]["edits"][0]["cell"] == 1
    assert json.loads(render("json", view())) == []


def test_severities() -> None:
    def severity(category: Category, code: str = "KV204") -> str:
        return diagnostic(category=category, code=code).severity

    assert [severity(category) for category in Category] == ["error", "error", "warning", "note", "note", "warning"]
    assert severity(Category.META, "KV000") == "error"


def test_jsonl_holds_the_same_objects() -> None:
    lines = render("jsonl", view(*EVERYTHING)).splitlines()
    assert [json.loads(line) for line in lines] == json.loads(render("json", view(*EVERYTHING)))


def test_github() -> None:
    lines = render("github", view(*EVERYTHING)).splitlines()
    assert lines[0] == (
        "::error title=kvlint (KV204),file=src/a.py,line=12,col=5,endLine=12,endColumn=11::"
        "src/a.py:12:5: KV204 cache-subscript: raises TypeError from 5.0.0; ask the layer"
    )
    assert "file=n.ipynb,line=40,col=9," in lines[1]
    assert "n.ipynb:cell 3:12:5: KV203" in lines[1]
    assert "file=src/<a> & 'b'%2C 50%25.py," in lines[3]


def test_gitlab_fingerprints_follow_the_code_and_not_the_line() -> None:
    first = json.loads(render("gitlab", view(diagnostic(), diagnostic(line=40, source=()))))
    moved = diagnostic(line=90, source=(SourceLine(90, "x = past[0] + 1"),))
    second = json.loads(render("gitlab", view(moved, moved)))
    assert first[0]["fingerprint"] == second[0]["fingerprint"]
    assert len({entry["fingerprint"] for entry in (*first, *second)}) == 3
    assert first[0]["severity"] == "major"


def test_junit_is_xml_whatever_the_findings_hold() -> None:
    suites = ElementTree.fromstring(render("junit", view(*EVERYTHING)))
    assert (suites.attrib["failures"], len(suites.findall(".//failure"))) == ("4", 4)
    assert len(ElementTree.fromstring(render("junit", view())).findall(".//testcase")) == 1


def test_sarif() -> None:
    (run,) = json.loads(render("sarif", view(*EVERYTHING)))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["KV203", "KV204"]
    first, second, third, _ = run["results"]
    assert rules[first["ruleIndex"]] == first["ruleId"] == "KV204"
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "src/a.py"
    assert location["region"] == {"startLine": 12, "startColumn": 5, "endLine": 12, "endColumn": 12}
    assert first["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 4
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "past.layers"}
    assert second["message"]["text"].startswith("cell 3, line 12: ")
    assert second["locations"][0]["physicalLocation"]["region"]["startLine"] == 40
    assert "fixes" not in third


def test_the_other_places_of_a_defect() -> None:
    other = PlacedRelated("src/b.py", 3, 4, 3, 9, "KV305", "is never filled")
    in_cell = PlacedRelated("n.ipynb", 1, 2, 1, 3, "KV204", "cannot be indexed", 7)
    item = diagnostic(related=(other, in_cell))
    (found,) = json.loads(render("json", view(item)))
    assert found["related"] == [
        {
            "path": "src/b.py", "line": 3, "column": 4, "end_line": 3, "end_column": 9,
            "code": "KV305", "message": "is never filled",
        },
        {
            "path": "n.ipynb", "line": 1, "column": 2, "end_line": 1, "end_column": 3,
            "code": "KV204", "message": "cannot be indexed", "cell": 7,
        },
    ]  # fmt: skip
    text = render("full", view(item))
    assert "   = also KV305 src/b.py:3:4: is never filled\n" in text
    assert "   = also KV204 n.ipynb:cell 7:1:2: cannot be indexed\n" in text
    (run,) = json.loads(render("sarif", view(item)))["runs"]
    places = run["results"][0]["relatedLocations"]
    assert [place["id"] for place in places] == [0, 1, 2]
    assert places[1]["physicalLocation"]["artifactLocation"]["uri"] == "src/b.py"
    assert places[1]["message"]["text"] == "KV305: is never filled"
    assert places[2]["message"]["text"] == "cell 7, line 1: KV204: cannot be indexed"


def test_notebook_places_are_those_of_the_file_in_formats_for_services() -> None:
    (row,) = json.loads(render("gitlab", view(NOTEBOOK)))
    assert row["location"]["positions"]["begin"] == {"line": 40, "column": 9}
    assert "cell 3, line 12: " in row["description"]
    (case,) = ElementTree.fromstring(render("junit", view(NOTEBOOK))).findall(".//testcase")
    assert case.attrib["line"] == "40"
    assert "cell 3, line 12" in str(case[0].text)
    (found,) = json.loads(render("rdjson", view(NOTEBOOK)))["diagnostics"]
    assert found["location"]["range"]["start"] == {"line": 40, "column": 9}


def test_rdjson() -> None:
    found = json.loads(render("rdjson", view(*EVERYTHING)))
    first, second, third, _ = found["diagnostics"]
    assert first["location"] == {
        "path": "src/a.py",
        "range": {"start": {"line": 12, "column": 5}, "end": {"line": 12, "column": 12}},
    }
    assert first["suggestions"][0]["text"] == "past.layers"
    assert (first["severity"], first["code"]["value"]) == ("ERROR", "KV204")
    assert "suggestions" not in second
    assert "suggestions" not in third


def test_azure_and_pylint() -> None:
    lines = render("azure", view(*EVERYTHING)).splitlines()
    assert len(lines) == 4
    assert lines[0] == (
        "##vso[task.logissue type=error;sourcepath=src/a.py;linenumber=12;columnnumber=5;code=KV204;]"
        "cache-subscript: raises TypeError from 5.0.0; ask the layer"
    )
    assert "sourcepath=src/<a> & 'b', 50%AZP25.py;" in lines[3]
    assert render("pylint", view(diagnostic())) == (
        "src/a.py:12: [KV204] cache-subscript: raises TypeError from 5.0.0; ask the layer\n"
    )


def test_full_shows_silent_findings_first() -> None:
    silent = diagnostic(category=Category.SILENT, path="z.py", message="is wrong")
    text = render("full", view(diagnostic(), silent))
    assert text.index("z.py:12:5") < text.index("src/a.py:12:5")
    assert render("concise", view(diagnostic(), silent)).startswith("src/a.py")


def test_full_folds_what_exceeds_twenty_of_a_rule_in_a_file() -> None:
    many = [diagnostic(line=number, source=()) for number in range(1, 36)]
    other = diagnostic(code="KV305", name="other", line=50, source=())
    text = render("full", view(*many, other))
    assert text.count("[*]: raises") == 21
    places = "21, 22, 23, 24, 25, 26, 27, 28, 29, 30, ..."
    assert f"src/a.py: 15 more KV204 cache-subscript (lines {places}); --output-format concise lists them\n" in text
    assert text.index("15 more") < text.index("KV305")
    assert "more KV204" not in render("full", view(*many[:20]))
    assert "src/a.py: 1 more KV204 cache-subscript (line 21);" in render("full", view(*many[:21]))


def test_the_summary_names_the_target_and_what_a_baseline_hides() -> None:
    lines = render("concise", view(targets=("5.24.0 (the newest release known)",), known=3)).splitlines()
    assert lines == [
        "Checked for transformers 5.24.0 (the newest release known).",
        "Nothing found in 7 files.",
        "3 known findings not shown (--no-baseline)",
    ]


def test_patch_names() -> None:
    assert quoted("a/b.py") == "a/b.py"
    assert quoted("a/b c.py") == "a/b c.py\t"
    assert quoted('a/b"\\\n.py') == '"a/b\\"\\\\\\012.py"'
    assert patch("a.py", b"x\n", b"x\n") == b""
    assert patch("/abs/a.py", b"", b"x") == (
        b"--- a/abs/a.py\n+++ b/abs/a.py\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize("format_name", ["full", "concise", "grouped", "pylint"])
def test_no_name_and_no_line_gives_a_terminal_or_a_runner_an_order(
    format_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "::error title=x::\u202ea\x9b2J.py"
    text = "from transformers import DynamicCache\nx = DynamicCache()[0]  # \u202e \x9b31m\n"
    Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--isolated", "--no-cache", "--target", "5.24", "--output-format", format_name, name])
    out = capsys.readouterr().out
    assert "KV204" in out and "\\u202e" in out
    assert not {"\u202e", "\x9b", "\x1b"} & set(out)
    assert not any(line.lstrip().startswith("::") for line in out.splitlines())
