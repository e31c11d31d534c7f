"""Comments that silence findings, and those that silence nothing."""

from __future__ import annotations

import pytest

from kvlint import suppression
from kvlint.carriers.regions import edited
from kvlint.findings import Category, Edit, Finding
from kvlint.selection import known_rules

CODES = frozenset(rule.code for rule in known_rules())


def at(text: str, needle: str, code: str = "KV204", statement: str = "") -> Finding:
    """A finding on the first *needle* in *text*, in the statement that is *statement* (default: the needle)."""
    start = text.index(needle)
    first = text.index(statement) if statement else start
    return Finding(
        code,
        "some-name",
        Category.BREAKS,
        start,
        start + len(needle),
        "is wrong",
        statement_start=first,
        statement_end=first + len(statement or needle),
    )


def outcome(text: str, *findings: Finding, codes: frozenset[str] = CODES) -> tuple[list[str], list[str]]:
    """The codes that are kept (without KV900), and the messages of KV900."""
    left = suppression.apply(text, findings, codes).kept
    return (
        [finding.code for finding in left if finding.code != "KV900"],
        [finding.message for finding in left if finding.code == "KV900"],
    )


def cleaned(text: str, *findings: Finding, codes: frozenset[str] = CODES) -> str:
    """*text* after the fixes of KV900."""
    edits: list[Edit] = []
    for finding in suppression.apply(text, findings, codes).kept:
        if finding.fix is not None:
            edits += finding.fix.edits
    return edited(text, edits)


@pytest.mark.parametrize(
    "comment",
    [
        "# kvlint: ignore[KV204]",
        "# kvlint: ignore[KV204] because of x",
        "#kvlint:ignore[KV204]",
        "# KVLINT: IGNORE[kv204]",
        "# kvlint: ignore[cache-subscript]",
        "# kvlint: ignore[KV101, KV204]",
        "# kvlint: ignore[KV2]",
        "# kvlint: ignore",
        "# kvlint: ignore - old API",
        "# noqa: KV204",
        "# noqa:KV204",
        "# noqa: E501, KV204",
        "# noqa: E501 KV204",
        "# NoQA: kv204",
        "# noqa",
        "# type: ignore # kvlint: ignore[KV204]",
        "# see below, kvlint: not # kvlint: ignore[KV204]",
    ],
)
def test_silences(comment: str) -> None:
    text = f"x = past[0]  {comment}\n"
    assert outcome(text, at(text, "past[0]"), codes=CODES - {"KV900"}) == ([], [])


@pytest.mark.parametrize(
    "comment",
    [
        "# kvlint: ignore[KV101]",
        "# kvlint: ignored",
        "# kvlint: ignore-files",
        "# kvlint ignore",
        "# noqa: E501",
        "# noqa: E501,F401",
        "# noqa_KV204",
        "# kvlint: ignore[]",
        "# kvlint: ignore-file",
    ],
)
def test_does_not_silence(comment: str) -> None:
    text = f"x = past[0]  {comment}\n"
    assert outcome(text, at(text, "past[0]"), codes=CODES - {"KV900"})[0] == ["KV204"]


def test_any_line_of_the_statement_counts() -> None:
    statement = "x = call(\n    past[0],  # one\n    2,\n)"
    for line in range(4):
        lines = statement.split("\n")
        lines[line] += "  # kvlint: ignore[KV204]"
        text = "a = 1\n" + "\n".join(lines) + "\nb = 2\n"
        finding = at(text, "past[0]", statement="\n".join(lines))
        assert outcome(text, finding) == ([], [])


def test_the_line_directly_above_counts_when_the_comment_stands_alone() -> None:
    text = "if a:\n    # kvlint: ignore[KV204] why\n    x = past[0]\n"
    assert outcome(text, at(text, "past[0]")) == ([], [])
    text = "# kvlint: ignore[KV204]\n\nx = past[0]\n"
    assert outcome(text, at(text, "past[0]"))[0] == ["KV204"]
    text = "a = 1  # kvlint: ignore[KV204]\nx = past[0]\n"
    assert outcome(text, at(text, "past[0]"))[0] == ["KV204"]
    text = "# noqa: KV204\nx = past[0]\n"
    assert outcome(text, at(text, "past[0]"))[0] == ["KV204"]


def test_strings_are_no_comments() -> None:
    text = 'x = past["# kvlint: ignore[KV204]"]\n"""\n# kvlint: ignore-file\n"""\n'
    assert outcome(text, at(text, "past")) == (["KV204"], [])


def test_whole_file() -> None:
    text = "import a\n# kvlint: ignore-file[KV2]\nx = past[0]\ny = HybridCache()\n"
    assert outcome(text, at(text, "past[0]"), at(text, "HybridCache()", "KV101")) == (["KV101"], [])
    text = "# kvlint: ignore-file\nx = past[0]\ny = HybridCache()\n"
    assert outcome(text, at(text, "past[0]"), at(text, "HybridCache()", "KV101")) == ([], [])


def test_a_file_wide_comment_of_another_region() -> None:
    comments = suppression.file_wide_comments("# kvlint: ignore-file[KV204]\n# kvlint: ignore\n")
    text = "x = past[0]\n"
    assert suppression.apply(text, [at(text, "past[0]")], CODES, comments).kept == ()


def test_text_that_cannot_be_tokenized_keeps_the_comments_up_to_there() -> None:
    text = "# kvlint: ignore-file[KV204]\nx = past[0]\n'''\n"
    assert outcome(text, at(text, "past[0]")) == ([], [])


def test_unused_comments_are_reported_and_removed() -> None:
    text = (
        "a = 1  # kvlint: ignore[KV204] old\n# kvlint: ignore\nb = 2\nc = 3  # kvlint: ignore[KV101] # type: ignore\n"
    )
    assert outcome(text)[1] == [
        "nothing here is silenced by KV204",
        "this comment silences nothing",
        "nothing here is silenced by KV101",
    ]
    assert cleaned(text) == "a = 1\nb = 2\nc = 3  # type: ignore\n"


def test_only_the_unused_code_of_a_list_is_removed() -> None:
    for listed in ("KV101, KV204", "KV204, KV101", "KV204,KV101", "KV101,  KV204, KV202", "removed-cache-class, KV204"):
        text = f"x = past[0]  # kvlint: ignore[{listed}] why\n"
        assert cleaned(text, at(text, "past[0]")) == "x = past[0]  # kvlint: ignore[KV204] why\n"


def test_the_codes_of_other_tools_are_not_touched() -> None:
    text = "a = 1  # noqa: E501, KV204\n"
    assert cleaned(text) == "a = 1  # noqa: E501\n"
    text = "a = 1  # noqa: KV204, E501\n"
    assert cleaned(text) == "a = 1  # noqa: E501\n"
    text = "a = 1  # noqa: KV204,KV101 E501\n"
    assert cleaned(text) == "a = 1  # noqa: E501\n"
    text = "a = 1  # noqa: KV204\n"
    assert cleaned(text) == "a = 1\n"
    text = "a = 1  # noqa: E501\nb = 2  # noqa\n"
    assert outcome(text) == ([], [])


def test_a_rule_that_is_not_in_use_is_not_unused() -> None:
    text = "a = 1  # kvlint: ignore[KV204, KV101]\n"
    assert outcome(text, codes=CODES - {"KV204"})[1] == ["nothing here is silenced by KV101"]
    assert outcome("a = 1  # kvlint: ignore[KV2]\n", codes=CODES - {"KV204"}) == ([], [])
    assert outcome(text, codes=CODES - {"KV900"}) == ([], [])


def test_a_word_that_is_no_rule_is_named_and_left_for_the_user() -> None:
    text = "a = past[0]  # kvlint: ignore[cache-subscrpt]\n"
    kept, messages = outcome(text, at(text, "past[0]"))
    assert kept == ["KV204"]
    assert messages == ["'cache-subscrpt' is not a rule, did you mean 'cache-subscript'?"]
    assert cleaned(text, at(text, "past[0]")) == text


def test_kv900_is_silenced_by_its_own_code_only() -> None:
    text = "a = 1  # kvlint: ignore[KV204, KV900]\n"
    assert outcome(text) == ([], [])
    text = "a = 1  # kvlint: ignore[KV204] # kvlint: ignore\n"
    assert len(outcome(text)[1]) == 2


def test_the_quick_look_at_bytes_finds_every_comment() -> None:
    assert suppression.mentions(b"x  # kvlint: ignore")
    assert suppression.mentions(b"x  #noqa")
    assert suppression.could_be_unused(b"x  # KVLINT : ignore-file")
    assert suppression.could_be_unused(b"x  # noqa: E501, kv204")
    assert not suppression.could_be_unused(b"x  # noqa: E501\nKV204")
    assert not suppression.mentions(b"kvlint ignores; no qa")
