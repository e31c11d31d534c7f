"""What the site has beside the files of ``docs/``: rule pages, help of the commands, and documents of the repository.

A hook of mkdocs (mkdocs.yml names it). Links are written for the repository; here they are turned to the pages of the site, or
to the repository in the web where the site has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from kvlint.cli import command_modules, main
from kvlint.rule_commands import as_markdown
from kvlint.rulebook import Page, load

ROOT = Path(__file__).resolve().parent.parent
IN_THE_WEB = "https://github.com/kvlint/kvlint/blob/main/"
DOCUMENTS = {
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "rules/README.md": "writing-a-rule.md",
}
"""Documents of the repository that are pages of the site, by their paths there and here."""
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


def on_config(config: Any) -> Any:
    """Lists every rule page and every document that the configuration does not name."""
    known = set(names_in(config.nav))
    for item in config.nav:
        if isinstance(item, dict) and "Rules" in item:
            item["Rules"] += [{f"{page.code} {page.name}": site_name(page)} for page in load()]
    others = sorted(path.name for path in Path(config.docs_dir).glob("*.md") if path.name not in known)
    if others:
        config.nav.append({"More": others})
    return config


def names_in(nav: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(nav, str):
        yield nav
    for item in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from names_in(item)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made."""
    made = {site_name(page): as_markdown(page) for page in load()}
    made["rules/index.md"] = rule_table()
    made["commands.md"] = commands()
    made |= {there: (ROOT / here).read_text(encoding="utf-8") for here, there in DOCUMENTS.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def site_name(page: Page) -> str:
    return f"rules/{page.path.name}"


def rule_table() -> str:
    """All rules with their categories."""
    rows = [
        f"| [{page.code}]({page.path.name}) | {page.name} | {', '.join(item.value for item in page.categories)} | {page.fix} | "
        f"{page.summary.replace('|', chr(92) + '|')} |"
        for page in load()
    ]
    text = (
        "`breaks` raises on a release of the target, `silent` runs and is wrong, `wasteful` costs memory or time for "
        "nothing, `deprecated` works and will be removed. `kvlint rule KV204` prints a page in the terminal."
    )
    head = ["| code | name | category | fix | what |", "| --- | --- | --- | --- | --- |"]
    return "\n".join(["# Rules", "", text, "", *head, *rows, ""])


def commands() -> str:
    """The help of every command."""
    parts = ["# Commands", "", "`kvlint PATHS` is `kvlint check PATHS`.", ""]
    parent = click.Context(main, info_name="kvlint")
    for name in sorted(command_modules(), key=lambda name: (name != "check", name)):
        command = main.get_command(parent, name)
        if command is not None:
            parts += [f"## {name}", "", "```text", help_of(command, parent, name), "```", ""]
    return "\n".join(parts)


def help_of(command: click.Command, parent: click.Context, name: str) -> str:
    """What ``--help`` prints; of a command with commands of its own, theirs too."""
    context = click.Context(command, parent=parent, info_name=name, max_content_width=100, terminal_width=100)
    text = command.get_help(context).rstrip()
    for inner in sorted(getattr(command, "commands", {})):
        text += "\n\n" + help_of(command.commands[inner], context, inner)  # type: ignore[attr-defined]
    return text


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns the links of a page."""
    here = source_of(page.file.src_uri)
    lines = []
    fence = ""
    for line in markdown.split("\n"):
        mark = FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        lines.append(line if fence else LINK.sub(lambda found: turned(found, here, page.file.src_uri), line))
    return "\n".join(lines)


def source_of(name: str) -> str:
    """Where a page of the site stands in the repository."""
    documents = {there: here for here, there in DOCUMENTS.items()}
    return documents.get(name, name if name.startswith("rules/") else f"docs/{name}")


def turned(found: re.Match[str], here: str, name: str) -> str:
    """A link as the site has it."""
    before, target, anchor, after = found[1], found[2], found[3] or "", found[4]
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    path = os.path.normpath(os.path.join(os.path.dirname(here), target)).replace(os.sep, "/")
    there = page_at(path)
    if there is None:
        return f"{before}{IN_THE_WEB}{path}{anchor}{after}" if (ROOT / path).exists() else found[0]
    relative = os.path.relpath(there, os.path.dirname(name) or ".").replace(os.sep, "/")
    return f"{before}{relative}{anchor}{after}"


def page_at(path: str) -> str | None:
    """The page of the site that shows a file of the repository; None where none does."""
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path.startswith("rules/KV") or path == "rules/index.md":
        return path
    inside = path.removeprefix("docs/")
    return inside if inside != path else None
