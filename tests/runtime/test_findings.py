"""Every script of docs/verify-findings.md does on 5.24.0 what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import transformers

PAGE = Path(__file__).parents[2] / "docs" / "verify-findings.md"
SECTIONS = re.findall(
    r"^## (.+?)\n.*?^```python\n(.+?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.skipif(transformers.__version__ != "5.24.0", reason="the page is about transformers 5.24.0")
@pytest.mark.parametrize(("title", "script"), SECTIONS, ids=[title.split(": ")[-1] for title, _ in SECTIONS])
def test_the_script_shows_what_the_page_says(title: str, script: str) -> None:
    exec(compile(script, title, "exec"), {"__name__": title})


def test_the_page_has_a_script_in_every_section() -> None:
    assert len(SECTIONS) == PAGE.read_text(encoding="utf-8").count("\n## ")
