"""Holds every rule page to what it says; there is no code for a single page here (see rules/README.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import page_runner
import pytest
from packaging.specifiers import SpecifierSet
from page_runner import FIXED_SHAPES, MOST_ROUNDS, PLAIN, SHAPES, Example, Shape, Worker

from kvlint import rulebook
from kvlint.findings import Category

FILES = sorted(rulebook.folder().glob("KV*.md"))


def _readable() -> list[rulebook.Page]:
    """The pages that keep to the format; the others fail in `test_format`."""
    pages = []
    for file in FILES:
        try:
            pages.append(rulebook.parse(file, file.read_text(encoding="utf-8")))
        except rulebook.RulebookError:
            continue
    return pages


PAGES = _readable()
EXAMPLES = [example for page in PAGES for example in page_runner.examples(page)]
BAD = [example for example in EXAMPLES if example.block.role == "bad"]
FIXED = [example for example in EXAMPLES if example.block.role == "fixed"]
RIGHT = [example for example in EXAMPLES if example.block.role in ("fixed", "good")]
WITH_FIX = {id(example.bad) for example in FIXED}


def each(chosen: list[Example]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", chosen, ids=[example.id for example in chosen])


def each_shape(chosen: list[Example], shapes: tuple[Shape, ...]) -> pytest.MarkDecorator:
    pairs = [
        (example, shape) for example in chosen for shape in page_runner.shapes_of(example.bad or example.block, shapes)
    ]
    return pytest.mark.parametrize(
        ("example", "shape"), pairs, ids=[f"{example.id}-{shape.name}" for example, shape in pairs]
    )


# --- the page itself


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_format(file: Path) -> None:
    page = rulebook.parse(file, file.read_text(encoding="utf-8"))
    assert str(SpecifierSet(page.applies))
    assert page.summary and not page.summary.endswith(".")
    assert all(text.strip() for text in page.sections.values()), "a heading has nothing below it"
    bad = [block for block in page.blocks if block.role == "bad"]
    assert bad, "there is no bad example"
    for block in bad:
        says = {"raises", "warns", "silent", "norun"} & set(block.attributes)
        assert len(says) == 1, f"line {block.line}: say one of raises, warns, silent, norun; found {sorted(says)}"
        assert page.code in {code for _, code in block.marks}, f"line {block.line}: no marker {page.code}"
    for block in page.blocks:
        assert block.attributes.get("norun") != "", f"line {block.line}: norun needs a reason"
        places = {*block.attributes.get("on", "5").split(), *block.attributes.get("works", "").split()}
        assert places <= {"4", "5"}, f"line {block.line}: on and works take 4 and 5"
        unknown = set(block.attributes.get("not_in", "").split()) - ({shape.name for shape in SHAPES} - {PLAIN.name})
        assert not unknown, f"line {block.line}: not_in knows no {', '.join(sorted(unknown))}"
        if block.role == "fixed":
            assert page.fix in ("safe", "unsafe", "sometimes"), f"line {block.line}: the page says fix = {page.fix!r}"
            assert block.attributes.get("fix", "safe") in ("safe", "unsafe"), (
                f"line {block.line}: fix is safe or unsafe"
            )
    if {Category.BREAKS, Category.SILENT} & set(page.categories):
        assert any("norun" not in block.attributes for block in bad), "no bad example is run"
    orphans = [example.block.line for example in page_runner.examples(page) if example.block.role == "fixed"]
    matched = [example.block.line for example in page_runner.examples(page) if example.bad is not None]
    assert orphans == matched, "a fixed fence has no bad fence above it"
    if page.fix in ("safe", "unsafe", "sometimes"):
        assert matched, f"the page says fix = {page.fix!r} and shows no fixed example"


# --- what is reported


@each_shape(BAD, SHAPES)
def test_bad_is_reported_where_marked(example: Example, shape: Shape, empty_folder: Path) -> None:
    file = page_runner.write(empty_folder, example.block, shape)
    found = page_runner.relevant(example.page, page_runner.findings(file, *example.options))
    moved = {(line + shape.first_line - 1, code) for line, code in example.block.marks}
    assert page_runner.places(found) == moved
    assert {one["cell"] for one in found} == {shape.cell}
    allowed = {category.value for category in example.page.categories}
    assert {one["category"] for one in found if one["code"] == example.page.code} <= allowed


@each(BAD)
def test_report_is_complete(example: Example, empty_folder: Path) -> None:
    file = page_runner.write(empty_folder, example.block, PLAIN)
    lines = example.block.text.split("\n")
    for one in page_runner.findings(file, *example.options):
        assert one["path"] and one["message"] and "\n" not in one["message"]
        assert (one["line"], one["column"]) <= (one["end_line"], one["end_column"])
        assert 1 <= one["column"] <= len(lines[one["line"] - 1]) + 1
        if one["code"] == example.page.code:
            assert (one["name"], one["url"]) == (example.page.name, example.page.url)


@each(RIGHT)
def test_right_code_is_silent(example: Example, empty_folder: Path) -> None:
    if example.block.language == "python":
        compile(example.block.text, "example.py", "exec", dont_inherit=True)
    file = page_runner.write(empty_folder, example.block, PLAIN)
    assert page_runner.relevant(example.page, page_runner.findings(file, *example.options)) == []


# --- ignore comments


def _can_be_ignored(example: Example) -> bool:
    return example.block.language == "python" and Category.META not in example.page.categories


@each([example for example in BAD if _can_be_ignored(example)])
def test_ignore_comment_silences(example: Example, empty_folder: Path) -> None:
    comments: dict[int, str] = {}
    for line in sorted({line for line, _ in example.block.marks}):
        codes = sorted(code for number, code in example.block.marks if number == line)
        comments[line] = f"# kvlint: ignore[{', '.join(codes)}] known"
    text = page_runner.with_comments(example.block.text, comments)
    file = page_runner.write(empty_folder, example.block, PLAIN, text)
    assert page_runner.relevant(example.page, page_runner.findings(file, *example.options)) == []


@each([example for example in RIGHT if _can_be_ignored(example)])
def test_needless_ignore_comment_is_reported_and_removed(example: Example, empty_folder: Path) -> None:
    line = next(number for number, line in enumerate(example.block.text.split("\n"), 1) if line.strip())
    text = page_runner.with_comments(example.block.text, {line: f"# kvlint: ignore[{example.page.code}]"})
    file = page_runner.write(empty_folder, example.block, PLAIN, text)
    found = page_runner.relevant(example.page, page_runner.findings(file, *example.options))
    assert [one["code"] for one in found] == ["KV900"]
    assert page_runner.fix(file, *example.options).decode() == example.block.text


# --- fixes


@each_shape(FIXED, FIXED_SHAPES)
def test_fix_gives_the_fixed_text(example: Example, shape: Shape, empty_folder: Path) -> None:
    assert example.bad is not None
    file = page_runner.write(empty_folder, example.bad, shape)
    fixed = page_runner.fix(file, *example.fix_options)
    assert fixed.decode() == shape.build(example.block.text).decode()
    assert page_runner.fix(file, *example.fix_options) == fixed, "a second run changed something"


@each(FIXED)
def test_fix_works_in_a_function(example: Example, empty_folder: Path) -> None:
    assert example.bad is not None
    shape = next((shape for shape in page_runner.shapes_of(example.bad, SHAPES) if shape.name == "function"), PLAIN)
    file = page_runner.write(empty_folder, example.bad, shape)
    fixed = page_runner.fix(file, *example.fix_options)
    if example.block.language == "python":
        compile(fixed, "example.py", "exec", dont_inherit=True)
    assert page_runner.relevant(example.page, page_runner.findings(file, *example.options)) == []


@each([example for example in FIXED if Category.META not in example.page.categories])
def test_fix_keeps_comments(example: Example) -> None:
    assert example.bad is not None
    if example.block.language == "python":
        left = page_runner.comments(example.block.text)
        assert [comment for comment in page_runner.comments(example.bad.text) if comment not in left] == []


@each(FIXED)
def test_unsafe_fix_waits_to_be_asked_for(example: Example, empty_folder: Path) -> None:
    assert example.bad is not None
    file = page_runner.write(empty_folder, example.bad, PLAIN)
    offered = {
        one["fix"]["applicability"]
        for one in page_runner.findings(file, *example.options)
        if one["fix"] is not None and one["code"] == example.page.code
    }
    assert offered == ({"unsafe"} if "unsafe" in example.allowed else {"safe"})
    before = file.read_bytes()
    assert (page_runner.fix(file, *example.options) == before) == ("unsafe" in example.allowed)


@each([example for example in BAD if id(example.block) not in WITH_FIX])
def test_bad_without_a_fixed_example_is_not_changed(example: Example, empty_folder: Path) -> None:
    file = page_runner.write(empty_folder, example.block, PLAIN)
    before = file.read_bytes()
    assert page_runner.fix(file, *example.options, "--unsafe-fixes") == before


@each(FIXED)
def test_edits_of_the_report_applied_by_hand(example: Example, empty_folder: Path) -> None:
    assert example.bad is not None
    text = example.bad.text
    for _ in range(MOST_ROUNDS):
        file = page_runner.write(empty_folder, example.bad, PLAIN, text)
        found = page_runner.relevant(example.page, page_runner.findings(file, *example.options))
        changed = page_runner.apply_by_hand(text, found, example.allowed)
        if changed == text:
            break
        text = changed
    assert text == example.block.text


# --- execution


def _runs(chosen: list[Example]) -> pytest.MarkDecorator:
    pairs = [
        (example, major)
        for example in chosen
        if "norun" not in example.block.attributes
        for major in dict.fromkeys((*example.releases, *example.works))
    ]
    return pytest.mark.parametrize(
        ("example", "major"), pairs, ids=[f"{example.id}-on{major}" for example, major in pairs]
    )


@_runs(BAD)
def test_bad_does_what_the_page_says(example: Example, major: str, worker: Callable[[str], Worker]) -> None:
    if major in example.releases:
        page_runner.verify_bad(example, worker(major))
    else:
        answer = worker(major).run(example.request(None))
        assert answer.get("exception", "setup") is None, f"it should run, but {page_runner.complaint(answer)}"


@_runs(RIGHT)
def test_right_code_runs(example: Example, major: str, worker: Callable[[str], Worker]) -> None:
    page_runner.verify_right(example, worker(major))


# --- the format: a page that breaks it is refused, with the place and the reason

GOOD_PAGE = """+++
code = "KV998"
name = "an-example"
category = "breaks"
summary = "Something"
applies = ">=5.0"
fix = "none"
since = "0.1.0"
+++

## What it does

One.

## Why it matters

Two.

## How to fix

```python bad raises="NameError: 'x'"
x  # KV998
y = 1  # a comment stays
```

## When not to

Four.

## Fix safety

Five.

## Evidence

Six.
"""


def test_page_is_read() -> None:
    page = rulebook.parse(Path("KV998-an-example.md"), GOOD_PAGE)
    (block,) = page.blocks
    assert block.text == "x\ny = 1  # a comment stays\n"
    assert block.marks == {(1, "KV998")}
    assert block.attributes == {"raises": "NameError: 'x'"}
    assert block.marked in GOOD_PAGE
    assert page.sections["Evidence"] == "Six."
    assert page.category is Category.BREAKS


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('code = "KV998"', 'code = "KV997"', "says KV997-an-example"),
        ('since = "0.1.0"', "", "since is missing"),
        ('since = "0.1.0"', 'since = "0.1.0"\nfoo = "x"', "foo is not a key"),
        ('category = "breaks"', 'category = "bad"', "category is one of breaks"),
        ('fix = "none"', 'fix = "maybe"', "fix is one of safe"),
        ('fix = "none"', "fix = none", "is not TOML"),
        ("## Evidence", "## Proof", "the headings are"),
        ("## Fix safety", "## Evidence", "stands there twice"),
        ("bad raises=", "bad rises=", "'rises' is no attribute of a bad fence"),
        ("python bad", "python worse", "found 'python worse"),
        ("x  # KV998", "x", ":21: a bad fence marks at least one line"),
        ("python bad raises=\"NameError: 'x'\"", "python good", "only bad fences carry markers"),
        ("y = 1  # a comment stays\n```", "y = 1", "the fence is not closed"),
    ],
)
def test_page_that_breaks_the_format_is_refused(old: str, new: str, said: str) -> None:
    assert old in GOOD_PAGE
    with pytest.raises(rulebook.RulebookError, match=r"KV998-an-example\.md") as caught:
        rulebook.parse(Path("KV998-an-example.md"), GOOD_PAGE.replace(old, new))
    assert said in str(caught.value)


def test_page_and_check_need_each_other(tmp_path: Path) -> None:
    page = rulebook.parse(Path("KV998-an-example.md"), GOOD_PAGE)
    (tmp_path / "kv997_other.py").touch()
    (tmp_path / "__init__.py").touch()
    assert rulebook.unpaired([page], tmp_path) == (
        "the check kvlint/checks/kv997_other.py has no page rules/KV997-other.md",
        "the page KV998-an-example.md has no check kvlint/checks/kv998_an_example.py",
    )
    (tmp_path / "kv997_other.py").rename(tmp_path / "kv998_an_example.py")
    assert rulebook.unpaired([page], tmp_path) == ()


def test_same_code_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "KV998-an-example.md").write_text(GOOD_PAGE, encoding="utf-8")
    twin = GOOD_PAGE.replace("an-example", "b-example")
    (tmp_path / "KV998-b-example.md").write_text(twin, encoding="utf-8")
    with pytest.raises(rulebook.RulebookError, match=r"KV998 is the rule of KV998-an-example\.md already"):
        rulebook.read_pages(tmp_path)


# --- the harness: an example that does something else than its fence says fails


def _example(fence: str, code: str) -> Example:
    old = GOOD_PAGE[GOOD_PAGE.index("```python bad") : GOOD_PAGE.index("## When not to")]
    text = GOOD_PAGE.replace(old, f"```python {fence}\n{code}```\n\n")
    *_, example = page_runner.examples(rulebook.parse(Path("KV998-an-example.md"), text))
    return example


@pytest.mark.parametrize(
    ("fence", "code", "said"),
    [
        ("bad raises=TypeError", "x = 1  # KV998\n", "it should raise TypeError, but it ran"),
        ("bad raises=TypeError", "x = y  # KV998\n", "it should raise TypeError, but it raised NameError"),
        ('bad raises="NameError: z"', "x = y  # KV998\n", "the message should have 'z'"),
        ("bad raises=NameError", "x = 1  # KV998\ny = z\n", "it should raise on a marked line"),
        ("bad silent='x == 1'", "x = 2  # KV998\n", "'x == 1' should hold, but it ran"),
        ("bad silent='x == 1'", "x = y  # KV998\n", "it should run, but it raised NameError"),
        ("bad silent='y == 1'", "x = 2  # KV998\n", "NameError: name 'y' is not defined"),
        ("bad warns=FutureWarning", "x = 2  # KV998\n", "it should warn with 'FutureWarning'"),
        ("bad silent=True setup=nothing", "x = 2  # KV998\n", "there is no setup 'nothing'"),
    ],
)
def test_wrong_claim_of_a_bad_example_fails(fence: str, code: str, said: str, worker: Callable[[str], Worker]) -> None:
    with pytest.raises(AssertionError) as caught:
        page_runner.verify_bad(_example(fence, code), worker("5"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fence", "code", "said"),
    [
        ("good", "x = y\n", "it should run, but it raised NameError"),
        ("good check='x == 1'", "x = 2\n", "'x == 1' should hold, but it ran"),
        ("bad silent='x == 2'", "x = 2  # KV998\n```\n```python fixed\nx = 1 + 1\n", "should no longer hold"),
    ],
)
def test_wrong_claim_of_a_right_example_fails(
    fence: str, code: str, said: str, worker: Callable[[str], Worker]
) -> None:
    with pytest.raises(AssertionError) as caught:
        page_runner.verify_right(_example(fence, code), worker("5"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fence", "code"),
    [
        ("bad raises=NameError", "x = (\n    y  # KV998\n)\n"),
        ("bad raises=NameError elsewhere", "def f():  # KV998\n    return y\n\n\nf()\n"),
        ("bad raises=SyntaxError", "x = =  # KV998\n"),
        ("bad warns='UserWarning: hello'", "import warnings\nwarnings.warn('hello')  # KV998\n"),
        ("bad silent='model.config is config' setup=llama", "x = 1  # KV998\n"),
    ],
)
def test_right_claim_of_a_bad_example_passes(fence: str, code: str, worker: Callable[[str], Worker]) -> None:
    page_runner.verify_bad(_example(fence, code), worker("5"))


def test_examples_do_not_reach_each_other(worker: Callable[[str], Worker]) -> None:
    changing = _example("good", "DynamicCache.get_seq_length = None\n")
    asking = _example("good check='callable(DynamicCache.get_seq_length)'", "x = 1\n")
    page_runner.verify_right(changing, worker("5"))
    page_runner.verify_right(asking, worker("5"))


def test_missing_4x_says_which_command_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLINT_TRANSFORMERS4", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"run `python scripts/install_transformers4\.py`"):
        Worker("4")


def test_json_examples_are_loaded_as_generation_config(worker: Callable[[str], Worker]) -> None:
    example = _example("good", "")
    request = {**example.request("generation_config.max_new_tokens == 7"), "language": "json"}
    request["code"] = json.dumps({"max_new_tokens": 7})
    assert worker("5").run(request)["check"] is True


SETUPS = sorted(path.stem for path in page_runner.WORKER.with_name("setups").glob("*.py") if path.stem != "base")


@pytest.mark.parametrize("setup", SETUPS)
def test_setup_is_described_and_can_be_built(setup: str, worker: Callable[[str], Worker]) -> None:
    described = (page_runner.ROOT / "rules" / "README.md").read_text(encoding="utf-8")
    assert f"`{setup}`" in described
    setups = f"llama {setup}" if setup in ("output", "cache", "pairs") else setup
    page_runner.verify_right(_example(f"good setup='{setups}'", "x = 1\n"), worker("5"))
