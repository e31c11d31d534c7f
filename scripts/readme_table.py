"""Writes the generated parts of README.md: the table of rules and the output of the example.

python scripts/readme_table.py           rewrites README.md
python scripts/readme_table.py --check   exits 1 where it is out of date
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
sys.path.insert(0, str(ROOT))

from kvlint import rulebook  # noqa: E402


def table(pages: Iterable[rulebook.Page]) -> str:
    """The rules as a Markdown table, by code."""
    rows = ["| rule | category | fix | what it reports |", "| --- | --- | --- | --- |"]
    for page in pages:
        link = f"[{page.code}](rules/{page.path.name}) {page.name}"
        categories = ", ".join(category.value for category in page.categories)
        rows.append(f"| {link} | {categories} | {page.fix} | {page.summary.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def example() -> str:
    """What the example prints, in a fence."""
    variables = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "GITHUB_ACTIONS")}
    run = subprocess.run(
        [sys.executable, "-m", "kvlint", "examples", "--no-cache"],
        cwd=ROOT,
        env={**variables, "NO_COLOR": "1", "COLUMNS": "110"},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if run.returncode != 1:
        raise SystemExit(f"the example should have findings, kvlint ended with exit code {run.returncode}")
    return f"```text\n$ kvlint examples/\n{run.stdout.strip()}\n```"


def filled(text: str) -> str:
    """*text* with the generated parts between its markers. Raises SystemExit where a marker is missing."""
    parts = {"rules": table(rulebook.read_pages(ROOT / "rules")), "example": example()}
    for name, part in parts.items():
        places = list(re.finditer(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", text, re.DOTALL))
        if len(places) != 1:
            raise SystemExit(f"{README.name}: one <!-- {name} --> ... <!-- /{name} -->, please; found {len(places)}")
        text = f"{text[: places[0].start()]}\n{part}\n\n{text[places[0].end() :]}"
    return text


def main() -> int:
    """Rewrites or checks README.md."""
    text = README.read_text(encoding="utf-8")
    new = filled(text)
    if "--check" in sys.argv[1:]:
        if new != text:
            print("README.md is out of date: run python scripts/readme_table.py", file=sys.stderr)
        return int(new != text)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
