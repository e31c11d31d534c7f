"""The documentation as a site: it builds without a warning, and its pages lead to one another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

from click.testing import CliRunner

from kvlint.cli import command_modules, main
from kvlint.rulebook import load

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def text_of(page: Path) -> str:
    """What a page says, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))).split())


class Anchors(HTMLParser):
    """The links of a page and the places in it that links may lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "a" and named.get("href"):
            self.links.append(named["href"] or "")
        self.places.add(named.get("id") or "")


def test_every_rule_has_its_page_with_its_examples(site: Path) -> None:
    for page in load():
        text = text_of(site / "rules" / page.path.stem / "index.html")
        assert page.name in text
        assert all(block.text.split("\n")[0].strip() in text for block in page.blocks if block.role == "bad")
        assert "```" not in text


def test_every_command_is_described(site: Path) -> None:
    text = text_of(site / "commands" / "index.html")
    assert all(f"Usage: kvlint {name}" in text for name in command_modules())


def test_the_reference_has_what_programs_import(site: Path) -> None:
    import kvlint

    text = text_of(site / "reference" / "index.html")
    assert [name for name in kvlint.__all__ if name not in text and name != "__version__"] == []
    runtime = text_of(site / "runtime-reference" / "index.html")
    assert all(name in runtime for name in ("check_cache", "watch_cache", "verify_model", "CheckResult"))


def test_links_lead_somewhere(site: Path) -> None:
    pages = {path: Anchors(path) for path in site.rglob("*.html") if path.name != "404.html"}
    lost = []
    for path, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if there not in pages or (parts.fragment and unquote(parts.fragment) not in pages[there].places):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost and len(pages) > len(load())


def test_links_into_the_repository_name_files_that_are_there(site: Path) -> None:
    named = {
        match[1]
        for path in site.rglob("*.html")
        for match in re.finditer(
            r"github\.com/kvlint/kvlint/(?:blob|tree)/main/([^\"#]+)\"", path.read_text(encoding="utf-8")
        )
    }
    assert named and [name for name in named if not (ROOT / unquote(name)).exists()] == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://[^\"]+", page) == []


def test_the_first_page_shows_what_is_really_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    shown = page.partition("$ kvlint src/\n")[2].partition("```")[0]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "decoding.py").write_text(
        "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["--no-cache", "src/"]).stdout.startswith(shown)
