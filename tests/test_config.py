"""Settings: where they come from, what they refuse, which side wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlint.config import DEFAULT_EXCLUDES, KEYS, Overrides, Resolver, Settings, describe, load
from kvlint.errors import UsageProblem
from kvlint.selection import expand, known_rules, resolve


def resolver(root: Path, config: str | None = None, isolated: bool = False, **overrides: object) -> Resolver:
    return Resolver.create(Overrides(**overrides), str(root), config, isolated)  # type: ignore[arg-type]


def configure(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(root: Path, text: str, name: str = "pyproject.toml") -> str:
    configure(root, text, name)
    with pytest.raises(UsageProblem) as problem:
        resolver(root).for_folder(str(root))
    message = str(problem.value)
    assert "\n" not in message
    return message


def test_the_nearest_configuration_is_the_whole_configuration(tmp_path: Path) -> None:
    configure(tmp_path, '[tool.kvlint]\ntarget = "4.57"\nextend-exclude = ["x"]\n')
    configure(tmp_path / "sub", '[tool.kvlint]\nshow = ["deprecated"]\n')
    configure(tmp_path / "sub" / "deep", "[tool.other]\n")
    found = resolver(tmp_path)
    assert found.for_folder(str(tmp_path)).target == "4.57"
    inner = found.for_folder(str(tmp_path / "sub" / "deep"))
    assert (inner.target, inner.show, inner.root) == ("", ("deprecated",), str(tmp_path / "sub"))


def test_a_file_of_its_own_has_the_keys_at_the_top_and_goes_first(tmp_path: Path) -> None:
    configure(tmp_path, '[tool.kvlint]\ntarget = "4.57"\n')
    configure(tmp_path, 'target = "5.1"\njobs = 3\n', "kvlint.toml")
    settings = resolver(tmp_path).for_folder(str(tmp_path))
    assert (settings.target, settings.jobs) == ("5.1", 3)


def test_without_any_configuration_globs_are_relative_to_the_current_folder(tmp_path: Path) -> None:
    settings = resolver(tmp_path, isolated=True).for_folder(str(tmp_path / "sub"))
    assert (settings.root, settings.exclude) == (str(tmp_path), DEFAULT_EXCLUDES)


def test_isolated_reads_no_file_and_config_reads_that_one_only(tmp_path: Path) -> None:
    configure(tmp_path, "[tool.kvlint]\nnonsense = 1\n")
    assert resolver(tmp_path, isolated=True).for_folder(str(tmp_path)).source == ""
    other = configure(tmp_path / "other", '[tool.kvlint]\ntarget = "5.2"\n')
    assert resolver(tmp_path, str(other)).for_folder(str(tmp_path)).target == "5.2"
    empty = configure(tmp_path / "empty", "[project]\n")
    with pytest.raises(UsageProblem, match=r"no \[tool.kvlint\] table"):
        resolver(tmp_path, str(empty))


def test_an_unknown_key_is_refused_with_file_key_and_suggestion(tmp_path: Path) -> None:
    message = refusal(tmp_path, "[tool.kvlint]\nselct = []\n")
    assert message == f"{tmp_path / 'pyproject.toml'}: [tool.kvlint]: unknown key 'selct', did you mean 'select'?"


def test_a_key_unlike_any_other_gets_the_list_of_keys(tmp_path: Path) -> None:
    message = refusal(tmp_path, "zzz = 1\n", "kvlint.toml")
    assert all(key in message for key in KEYS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('select = "KV2"', "select must be a list of strings, not 'KV2'"),
        ("select = [2]", "select must be a list of strings"),
        ('select = ["KV999"]', "select: unknown rule 'KV999'"),
        ('ignore = ["cache-subscrpt"]', "did you mean 'cache-subscript'?"),
        ('jobs = "2"', "jobs must be a number, not '2'"),
        ("jobs = true", "jobs must be a number"),
        ("jobs = -1", "jobs must be 0 (one a core) or more"),
        ("target = 5", "target must be a string"),
        ('unsafe-fixes = "yes"', "unsafe-fixes must be true or false"),
        ('show = ["depricated"]', "did you mean 'deprecated'?"),
        ('output-format = "jsn"', "unknown output format 'jsn', did you mean 'json'?"),
        ('exclude = ["[b-a]"]', "exclude: '[b-a]' is not a valid glob"),
        ("select = []", "select names no rule"),
        ('exclude = ["["]', "exclude: '[' is not a valid glob: '[' is not closed"),
        ('exclude = [""]', "exclude: an empty glob matches nothing"),
        ('extend-exclude = ["src/{a,b}.py"]', "braces are not expanded"),
        ("extend-exclude = ['src\\old']", "write / between folders"),
        ('exclude = ["#old"]', "is a comment in gitignore patterns"),
        ('per-file-ignores = {"a[b" = ["KV2"]}', "per-file-ignores: 'a[b' is not a valid glob"),
        ('per-file-ignores = ["a"]', "per-file-ignores must be a table"),
        ('per-file-ignores = {"a" = "KV2"}', "per-file-ignores.'a' must be a list of strings"),
        ('per-file-ignores = {"a" = ["KV9999"]}', "per-file-ignores.'a': unknown rule"),
        ("= 3", "not valid TOML"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, line: str, words: str) -> None:
    message = refusal(tmp_path, f"[tool.kvlint]\n{line}\n")
    assert words in message
    assert message.startswith(str(tmp_path / "pyproject.toml"))


@pytest.mark.parametrize("glob", ["a[]b]c", "[!a-c]*", r"\[x\]", r"\{x\}", "!kept.py", "a/**/b", r"\#x", r"a\ b", "*"])
def test_globs_that_mean_something_are_taken(tmp_path: Path, glob: str) -> None:
    configure(tmp_path, f"[tool.kvlint]\nextend-exclude = ['{glob}']\n")
    assert resolver(tmp_path).for_folder(str(tmp_path)).extend_exclude == (glob,)


def test_the_table_must_be_a_table(tmp_path: Path) -> None:
    assert "must be a table" in refusal(tmp_path, "[tool]\nkvlint = 3\n")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kvlint.toml").write_bytes(b'target = "\xff"\n')
    with pytest.raises(UsageProblem, match="not valid TOML"):
        load(str(tmp_path / "kvlint.toml"))


def test_the_command_line_wins(tmp_path: Path) -> None:
    configure(
        tmp_path,
        '[tool.kvlint]\ntarget = "5"\nselect = ["KV1"]\nignore = ["KV101"]\nextend-select = ["KV204"]\n'
        'exclude = ["a"]\nextend-exclude = ["b"]\nshow = ["deprecated"]\nunsafe-fixes = true\n',
    )
    plain = resolver(tmp_path).for_folder(str(tmp_path))
    assert plain.unsafe_fixes
    given = resolver(
        tmp_path, target="4.57", ignore=("KV102",), extend_exclude=("c",), show=("undecided",), unsafe_fixes=False
    ).for_folder(str(tmp_path))
    assert (given.target, given.select, given.ignore) == ("4.57", ("KV1",), ("KV101", "KV102"))
    assert (given.exclude, given.extend_exclude) == (("a",), ("b", "c"))
    assert given.show == ("deprecated", "undecided")
    assert not given.unsafe_fixes
    selecting = resolver(tmp_path, select=("KV101",)).for_folder(str(tmp_path))
    assert selecting.codes_for(str(tmp_path / "a.py"))[0] == {"KV101"}


def test_per_file_ignores_are_gitignore_globs_below_the_configuration(tmp_path: Path) -> None:
    configure(tmp_path, '[tool.kvlint.per-file-ignores]\n"tests/" = ["KV2"]\n"*_old.py" = ["removed-cache-class"]\n')
    settings = resolver(tmp_path).for_folder(str(tmp_path))
    every = settings.codes_for(str(tmp_path / "a.py"))[0]
    assert {"KV101", "KV204"} <= every
    assert settings.codes_for(str(tmp_path / "tests" / "deep" / "a.py"))[0] == every - expand("KV2")
    assert settings.codes_for(str(tmp_path / "x_old.py"))[0] == every - {"KV101"}
    assert settings.codes_for("/elsewhere/tests/a.py")[0] == every


def test_an_empty_list_of_fixable_rules_fixes_nothing(tmp_path: Path) -> None:
    configure(tmp_path, "[tool.kvlint]\nfixable = []\n")
    assert resolver(tmp_path).for_folder(str(tmp_path)).fixable_codes() == frozenset()


def test_selectors() -> None:
    every = {rule.code for rule in known_rules()}
    assert expand("ALL") == expand("all") == expand("KV") == every
    assert expand("kv204") == expand("KV204") == expand("cache-subscript") == expand("Cache_Subscript") == {"KV204"}
    assert expand("KV2") == {code for code in every if code.startswith("KV2")}
    assert expand("KV2x") == expand("") == expand("KV99999") == frozenset()


def test_the_narrower_selector_decides_and_ignoring_wins_a_draw() -> None:
    assert resolve(("KV204",), (), ("KV2",))[0] == {"KV204"}
    assert resolve(("KV204",), (), ("KV204",))[0] == frozenset()
    assert resolve(("KV204",), (), ("cache-subscript",))[0] == frozenset()
    assert "KV204" not in resolve(None, (), ("KV2",))[0]
    assert "KV204" in resolve(None, ("KV204",), ("KV2",))[0]


def test_what_was_asked_for_is_known() -> None:
    assert resolve(None, (), ())[1] == frozenset()
    assert resolve(None, ("KV204",), ())[1] == {"KV204"}
    assert resolve(("ALL",), (), ())[1] == {rule.code for rule in known_rules()}


def test_settings_are_printed_as_the_toml_that_brings_them_about(tmp_path: Path) -> None:
    text = (
        'target = ">=4.56,<6"\nselect = ["KV2"]\nshow = ["undecided"]\njobs = 2\nunsafe-fixes = true\n'
        'per-file-ignores = { "a \\"b\\"" = ["KV204"] }\n'
    )
    configure(tmp_path, text, "kvlint.toml")
    first = load(str(tmp_path / "kvlint.toml"))
    assert isinstance(first, Settings)
    again = configure(tmp_path, describe(first), "kvlint.toml")
    assert load(str(again)) == first
