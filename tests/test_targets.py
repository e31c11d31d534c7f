"""The target range: what people write, what their projects say, what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlint.errors import UsageProblem
from kvlint.targets import Target, nearest_requirement, project_requirement, requiring_folder, resolve, specifier_in
from kvlint.timeline import Timeline, load

TIMELINE = load(overlay=Path("nowhere"))
NEWEST = TIMELINE.releases[-1]


def versions(target: Target) -> list[str]:
    return [TIMELINE.releases[index] for index in target.releases]


def target(
    text: str, root: Path | None = None, environment: Path | None = None, timeline: Timeline = TIMELINE
) -> Target:
    return resolve(text, timeline, str(root) if root else None, str(environment) if environment else None)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def install(environment: Path, version: str) -> Path:
    site = environment / "lib" / "python3.12" / "site-packages"
    (site / f"transformers-{version}.dist-info").mkdir(parents=True)
    (site / "transformers_stream-0.1.dist-info").mkdir()
    return environment


def test_releases_and_ranges() -> None:
    assert versions(target("4.57.6")) == ["4.57.6"]
    assert versions(target("5.0")) == [version for version in TIMELINE.releases if version.startswith("5.0.")]
    assert set(versions(target("4"))) == {version for version in TIMELINE.releases if version.startswith("4.")}
    assert versions(target(" >= 4.57.5, < 5.0.1 ")) == ["4.57.5", "4.57.6", "5.0.0"]
    assert versions(target("==5.4.*")) == ["5.4.0"]
    assert versions(target("~=5.23.0,!=5.23.1"))[0] == "5.23.0"


def test_latest_is_the_default() -> None:
    assert versions(target("")) == versions(target("latest")) == versions(target("LATEST")) == [NEWEST]
    assert target("").note == ""


@pytest.mark.parametrize("text", ["4.99", "<4.0", "9", ">=6", "5.999.1"])
def test_no_such_release(text: str) -> None:
    with pytest.raises(UsageProblem, match=rf"^--target: .*{TIMELINE.releases[0]} to {NEWEST}"):
        target(text)


def test_nonsense_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageProblem, match=r"did you mean 'installed'\?"):
        target("instaled")
    with pytest.raises(UsageProblem, match=r"^--target: '>=x' is neither"):
        target(">=x")


@pytest.mark.parametrize(
    ("line", "specifier"),
    [
        ("transformers", ""),
        ("transformers>=4.40,<5", ">=4.40,<5"),
        ("transformers[torch] >= 4.40 ; python_version < '3.12'", ">= 4.40"),
        ("transformers (>=4.40)", ">=4.40"),
        ("transformers==4.57.6  # pinned", "==4.57.6"),
        ("Transformers~=4.40", "~=4.40"),
        ("transformers @ git+https://example.org/transformers", None),
        ("sentence-transformers>=3", None),
        ("transformers-stream-generator==0.0.4", None),
        ("# transformers>=4", None),
        ("adapter-transformers", None),
        ("-r transformers.txt", None),
    ],
)
def test_requirement_lines(line: str, specifier: str | None) -> None:
    assert specifier_in(line) == specifier


@pytest.mark.parametrize(
    ("name", "text", "specifier"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["torch", "transformers>=4.40,<5"]\n', ">=4.40,<5"),
        ("pyproject.toml", '[project.optional-dependencies]\nhf = ["transformers<5"]\n', "<5"),
        ("pyproject.toml", '[dependency-groups]\ndev = [{include-group = "x"}, "transformers<5"]\n', "<5"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntransformers = "^4.40"\n', "^4.40"),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\ntransformers = {version = "~4.40", extras = ["torch"]}\n',
            "~4.40",
        ),
        ("pyproject.toml", '[tool.poetry.group.ml.dependencies]\ntransformers = "4.57.6"\n', "4.57.6"),
        ("setup.cfg", "[options]\ninstall_requires =\n    torch\n    transformers<5\n", "<5"),
        ("setup.cfg", "[options.extras_require]\nhf =\n    transformers<5; python_version>'3'\n", "<5"),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['torch', 'transformers<5'])\n", "<5"),
        ("setup.py", "DEPS = ['transformers >=4.40, <5']\nraise SystemExit\n", ">=4.40, <5"),
        ("requirements.txt", "torch\ntransformers<5  # later\n", "<5"),
        ("requirements-dev.txt", "transformers<5\n", "<5"),
        ("requirements/base.txt", "transformers<5\n", "<5"),
        ("uv.lock", '[[package]]\nname = "transformers"\nversion = "4.57.6"\n', "==4.57.6"),
        ("poetry.lock", '[[package]]\nname = "transformers"\nversion = "4.57.6"\n', "==4.57.6"),
        ("Pipfile.lock", '{"default": {"transformers": {"version": "==4.57.6"}}}', "==4.57.6"),
    ],
)
def test_what_a_project_says(tmp_path: Path, name: str, text: str, specifier: str) -> None:
    write(tmp_path / name, text)
    requirement = project_requirement(str(tmp_path))
    assert requirement is not None
    assert (requirement.specifier, requirement.source) == (specifier, name)
    assert all(version.startswith("4.") for version in versions(target("project", tmp_path)))


def test_a_declared_range_goes_before_the_lock_file_and_an_open_one_behind_it(tmp_path: Path) -> None:
    write(tmp_path / "uv.lock", '[[package]]\nname = "transformers"\nversion = "4.57.6"\n')
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["transformers>=4.50"]\n')
    assert len(versions(target("project", tmp_path))) > 10
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["transformers"]\n')
    assert versions(target("project", tmp_path)) == ["4.57.6"]
    (tmp_path / "uv.lock").unlink()
    assert target("project", tmp_path).releases == TIMELINE.all


def test_a_project_that_says_nothing_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["sentence-transformers"]\n')
    with pytest.raises(UsageProblem, match=r"--target project: nothing there requires transformers"):
        target("project", tmp_path)
    with pytest.raises(UsageProblem, match=r"no pyproject\.toml"):
        target("project")


def test_damaged_project_files_are_named_or_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "setup.py", "transformers<5 (\n")
    write(tmp_path / "setup.cfg", "transformers<5\n")
    write(tmp_path / "Pipfile.lock", '{"default": "transformers"')
    assert project_requirement(str(tmp_path)) is None
    write(tmp_path / "pyproject.toml", "transformers = \n")
    with pytest.raises(UsageProblem, match=r"pyproject\.toml: not valid TOML"):
        target("project", tmp_path)
    assert target("", tmp_path).note == ""


def test_the_default_says_where_the_project_disagrees(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["transformers<5"]\n')
    assert target("", tmp_path).note == (
        f"this project requires transformers<5 (pyproject.toml); kvlint checks for {NEWEST}; use --target project"
    )
    assert target("latest", tmp_path).note == ""
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["transformers>=4.50"]\n')
    assert target("", tmp_path).note == ""


@pytest.mark.parametrize(
    ("asked", "release"),
    [
        ("4.46.0", "4.46.1"),
        ("==4.52.0", "4.52.1"),
        ("=== 4.57.0", "4.57.1"),
        ("v5.10.0", "5.10.1"),
        ("5.10.3", "5.10.4"),
        ("4.46.99", "4.46.3"),
    ],
)
def test_a_patch_release_that_was_withdrawn_or_never_made_stands_for_the_nearest(asked: str, release: str) -> None:
    found = target(asked)
    number = asked.lstrip("=v ")
    assert versions(found) == [release]
    assert found.text == release
    assert found.note.startswith(f"transformers {number} (--target) is not among the releases kvlint knows")
    assert found.note.endswith(f"it checks for {release}")


def test_a_range_or_a_release_that_is_known_has_no_note() -> None:
    for asked in ("4.46.1", "==4.57.6", "~=4.52.0", ">=4.46.0,<4.47"):
        assert target(asked).note == ""
    assert versions(target("~=4.52.0"))[0] == "4.52.1"


def test_a_withdrawn_release_in_requirements_or_an_environment_falls_back_too(tmp_path: Path) -> None:
    write(tmp_path / "requirements.txt", "torch\ntransformers==4.46.0\n")
    found = target("project", tmp_path)
    assert (versions(found), found.source) == (["4.46.1"], "requirements.txt")
    assert "4.46.0 (requirements.txt)" in found.note
    assert "requires transformers==4.46.0 (requirements.txt)" in target("", tmp_path).note
    installed = target("installed", environment=install(tmp_path / "env", "4.57.0"))
    assert versions(installed) == ["4.57.1"]
    assert installed.note.endswith("it checks for 4.57.1")


def test_requirements_without_a_project_file_are_found_from_below(tmp_path: Path) -> None:
    write(tmp_path / "requirements.txt", "transformers<5\n")
    inner = tmp_path / "src" / "models"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert requiring_folder(str(inner)) == str(tmp_path)
    nested = tmp_path / "src" / "requirements.txt"
    write(nested, "torch\n")
    nearest_requirement.cache_clear()
    assert requiring_folder(str(inner)) == str(tmp_path), "a file that does not mention transformers says nothing"
    write(nested, "transformers>=5\n")
    nearest_requirement.cache_clear()
    assert requiring_folder(str(inner)) == str(tmp_path / "src")


def test_installed_reads_the_name_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = install(tmp_path / "given", "4.57.6")
    assert versions(target("installed", environment=given)) == ["4.57.6"]
    interpreter = given / "bin" / "python"
    write(interpreter, "")
    assert versions(target("installed", environment=interpreter)) == ["4.57.6"]
    project = tmp_path / "project"
    install(project / ".venv", "4.50.0")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert versions(target("installed", project)) == ["4.50.0"]
    monkeypatch.setenv("VIRTUAL_ENV", str(install(tmp_path / "active", "4.51.0")))
    assert versions(target("installed", project)) == ["4.51.0"]


def test_an_installed_release_that_is_not_known(tmp_path: Path) -> None:
    newer = target("installed", environment=install(tmp_path / "newer", "99.1.0"))
    assert versions(newer) == [NEWEST]
    assert "99.1.0" in newer.note
    between = target("installed", environment=install(tmp_path / "between", "4.57.6.post1"))
    assert versions(between) == ["4.57.6"]
    with pytest.raises(UsageProblem, match="older than what kvlint knows"):
        target("installed", environment=install(tmp_path / "older", "4.1.0"))


def test_nothing_installed_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageProblem, match="--target installed: transformers is not installed"):
        target("installed", environment=tmp_path / "empty")
    with pytest.raises(UsageProblem, match=r"--python .*: no such file"):
        target("installed", environment=tmp_path / "missing")
