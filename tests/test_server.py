"""``kvlint server``, asked by a real client over standard input and output; its halves asked directly where that shows more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pygls.lsp.client")

from lsp_client import CAPABILITIES, Editor, applied, insertion, place, with_editor
from lsprotocol import types

from kvlint.cli import main
from kvlint.server import options
from kvlint.server.buffers import Buffer, Spot
from kvlint.server.documents import changed
from kvlint.server.positions import Lines
from kvlint.server.session import Session
from kvlint.server.worker import Failed, Lost, Worker

STALE = "from transformers import DynamicCache\n\npast = DynamicCache()\nkeys = past[0][0]\n"
FIXED = STALE.replace("past[0][0]", "past.layers[0].keys")
RENAMED = (
    "from transformers import OffloadedCache\n\n\ndef one(config):\n    return OffloadedCache(config=config)\n\n\n"
    "def two(config):\n    return OffloadedCache(config=config)\n"
)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def codes(found: list[types.Diagnostic]) -> list[Any]:
    return [item.code for item in found]


def edits_of(action: types.CodeAction) -> dict[str, tuple[int | None, list[types.TextEdit]]]:
    """Edits by document, with the version that they are for."""
    assert action.edit is not None
    return {
        change.text_document.uri: (change.text_document.version, list(change.edits))
        for change in action.edit.document_changes or ()
        if isinstance(change, types.TextDocumentEdit)
    }


def test_findings_come_on_opening_and_typing_and_go_on_closing(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        found = await editor.open("a.py", STALE)
        assert codes(found) == ["KV204"]
        item = found[0]
        assert item.range == place(3, 7, 3, 14)
        assert item.severity is types.DiagnosticSeverity.Error
        assert item.source == "kvlint"
        assert item.code_description is not None and item.code_description.href.endswith("KV204-cache-subscript.md")
        assert item.related_information is not None and item.related_information[0].location.range.start.line == 2
        assert codes(await editor.type("a.py", 2, insertion(3, 0, "more = past[1][1]\n"))) == ["KV204", "KV204"]
        removed = types.TextDocumentContentChangePartial(place(3, 0, 5, 0), "")
        assert await editor.type("a.py", 3, removed) == []
        assert codes(await editor.type("a.py", 4, types.TextDocumentContentChangeWholeDocument(STALE))) == ["KV204"]
        uri = editor.uri("a.py")
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        assert await editor.answer(uri, None) == []

    with_editor(here, talk)


def test_columns_count_in_the_units_agreed_upon(here: Path) -> None:
    line = 'both = ("\N{GRINNING FACE}é", past[0][0])\n'
    text = STALE.split("keys")[0] + "\fx = 1\u2028\n".replace("\u2028", "") + line

    async def talk(editor: Editor) -> None:
        found = await editor.open("a.py", text)
        before = line[: line.index("past")]
        start = len(before.encode("utf-16-le")) // 2
        assert [item.range.start for item in found] == [types.Position(4, start)]
        action = (await editor.actions(editor.uri("a.py"), found[0].range))[0]
        version, edits = edits_of(action)[editor.uri("a.py")]
        assert version == 1
        assert applied(text, edits) == text.replace("past[0][0]", "past.layers[0].keys")

    with_editor(here, talk)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_changes_land_where_the_protocol_counts(encoding: str) -> None:
    text = 'a = "\N{GRINNING FACE}"\r\nb = "\x0c\u2028é"\rc = 1\n'
    lines = Lines.of(text, encoding)
    for offset, char in enumerate(text):
        if char in "\r\n":
            continue
        row, units = lines.units(*lines.place(offset))
        assert lines.offset(row, units) == offset
        change = types.TextDocumentContentChangePartial(place(row, units), "!")
        assert changed(text, change, encoding) == text[:offset] + "!" + text[offset:]
    assert lines.offset(99, 0) == len(text)
    assert lines.offset(0, 99) == text.index("\r")


def test_a_quick_fix_holds_every_edit_that_belongs_to_it(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        found = await editor.open("a.py", RENAMED)
        assert codes(found) == ["KV101"]
        uses = found[0].related_information
        assert uses is not None and len(uses) == 2
        uri = editor.uri("a.py")
        actions = await editor.actions(uri, uses[1].location.range, ["quickfix"])
        assert [action.kind for action in actions] == ["quickfix"]
        assert actions[0].diagnostics is not None and set(codes(list(actions[0].diagnostics))) == {"KV101"}
        _, edits = edits_of(actions[0])[uri]
        fixed = applied(RENAMED, edits)
        assert "OffloadedCache" not in fixed and fixed.count("DynamicCache(config=config, offloading=True)") == 2
        assert "from transformers import DynamicCache\n" in fixed

    with_editor(here, talk)


def test_fix_all_is_worked_out_when_it_is_chosen_and_for_that_version_only(here: Path) -> None:
    text = STALE + "more = past[1][1]\n"

    async def talk(editor: Editor) -> None:
        found = await editor.open("a.py", text)
        uri = editor.uri("a.py")
        everything = next(
            action for action in await editor.actions(uri, found[0].range) if action.kind == "source.fixAll.kvlint"
        )
        assert everything.edit is None
        resolved = await editor.client.code_action_resolve_async(everything)
        version, edits = edits_of(resolved)[uri]
        assert version == 1
        assert applied(text, edits) == FIXED + "more = past.layers[1].values\n"
        on_save = await editor.actions(uri, place(0, 0, 5, 0), ["source.fixAll"])
        assert [action.kind for action in on_save] == ["source.fixAll.kvlint"]
        await editor.type("a.py", 2, insertion(0, 0, "\n"))
        assert (await editor.client.code_action_resolve_async(everything)).edit is None

    with_editor(here, talk)


def test_an_editor_that_cannot_do_much_gets_plain_edits(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        found = await editor.open("a.py", STALE)
        actions = await editor.actions(editor.uri("a.py"), found[0].range)
        assert [action.kind for action in actions] == ["quickfix", "source.fixAll.kvlint"]
        for action in actions:
            assert action.edit is not None and action.edit.changes is not None
            assert applied(STALE, action.edit.changes[editor.uri("a.py")]) == FIXED

    with_editor(here, talk, capabilities=types.ClientCapabilities())


def test_an_unsafe_fix_says_so_and_fix_all_leaves_it(here: Path) -> None:
    text = "from transformers import DynamicCache\n\npast = DynamicCache()\npast.crop(max_length=-3)\n"

    async def talk(editor: Editor) -> None:
        await editor.open("a.py", text)
        for found in editor.published[editor.uri("a.py")][-1].diagnostics:
            for action in await editor.actions(editor.uri("a.py"), found.range, ["quickfix"]):
                assert action.is_preferred == ("needs a look" not in action.title)

    with_editor(here, talk)


def test_hover_tells_of_the_finding_and_of_names(here: Path) -> None:
    text = (
        "import transformers\nfrom transformers import DynamicCache as Dynamic\n\npast = Dynamic()\n"
        "keys = past.key_cache\nsize = transformers.cache_utils.HybridCache\nother.key_cache\n"
        'model.generate(cache_implementation="hybrid")\n'
    )

    async def talk(editor: Editor) -> None:
        await editor.open("a.py", text)
        uri = editor.uri("a.py")
        assert "**transformers.DynamicCache** (cache class)" in await editor.hover(uri, 3, 9)
        member = await editor.hover(uri, 4, 15)
        assert "KV202" in member and "rules/KV202" in member
        assert "**transformers.cache_utils.DynamicCache.key_cache**" in member and "not on 5.24.0" in member
        assert "HybridCache** (" in await editor.hover(uri, 5, 36)
        assert "→ `StaticCache(config=" in await editor.hover(uri, 5, 36)
        assert await editor.hover(uri, 6, 8) == ""
        assert 'cache_implementation="hybrid"' in await editor.hover(uri, 7, 38)
        assert await editor.hover(uri, 99, 0) == ""

    with_editor(here, talk)


def test_hover_works_in_a_file_without_any_finding(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        await editor.open("a.py", "from transformers import DynamicCache\n\ncache = DynamicCache()\n")
        assert "4.36.0 to 5.24.0" in await editor.hover(editor.uri("a.py"), 2, 12)

    with_editor(here, talk)


def notebook(editor: Editor, *texts: str) -> list[str]:
    """Opens a notebook with these cells; returns their addresses."""
    uris = [f"vscode-notebook-cell:/here/n.ipynb#{number}" for number in range(len(texts))]
    editor.client.notebook_document_did_open(
        types.DidOpenNotebookDocumentParams(
            types.NotebookDocument(
                editor.uri("n.ipynb"),
                "jupyter-notebook",
                1,
                [types.NotebookCell(types.NotebookCellKind.Code, uri) for uri in uris],
            ),
            [types.TextDocumentItem(uri, "python", 1, text) for uri, text in zip(uris, texts, strict=True)],
        )
    )
    return uris


def test_the_cells_of_a_notebook_are_one_program(here: Path) -> None:
    first = "from transformers import DynamicCache\npast = DynamicCache()\n"
    second = "%time 1\nkeys = past[0][0]\n"

    async def talk(editor: Editor) -> None:
        one, two = notebook(editor, first, second)
        await editor.until(lambda: editor.published.get(two))
        found = list(editor.published[two][-1].diagnostics)
        assert codes(found) == ["KV204"] and found[0].range == place(1, 7, 1, 14)
        assert editor.published[one][-1].diagnostics == ()
        action = (await editor.actions(two, found[0].range, ["quickfix"]))[0]
        ((uri, (version, edits)),) = edits_of(action).items()
        assert (uri, version) == (two, 1)
        assert applied(second, edits) == second.replace("past[0][0]", "past.layers[0].keys")
        everything = (await editor.actions(two, found[0].range, ["notebook.source.fixAll"]))[0]
        resolved = await editor.client.code_action_resolve_async(everything)
        ((uri, (version, edits)),) = edits_of(resolved).items()
        assert applied(second, edits) == second.replace("past[0][0]", "past.layers[0].keys")
        assert "DynamicCache** (cache class)" in await editor.hover(one, 1, 10)

        count = len(editor.published[two])
        change = types.TextDocumentContentChangePartial(place(0, 0, 1, 0), "")
        editor.client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, editor.uri("n.ipynb")),
                types.NotebookDocumentChangeEvent(
                    cells=types.NotebookDocumentCellChanges(
                        text_content=[
                            types.NotebookDocumentCellContentChanges(
                                types.VersionedTextDocumentIdentifier(version=2, uri=two), [change]
                            )
                        ]
                    )
                ),
            )
        )
        await editor.until(lambda: len(editor.published[two]) > count)
        assert editor.published[two][-1].diagnostics[0].range == place(0, 7, 0, 14)

        new = "vscode-notebook-cell:/here/n.ipynb#new"
        editor.client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(3, editor.uri("n.ipynb")),
                types.NotebookDocumentChangeEvent(
                    cells=types.NotebookDocumentCellChanges(
                        structure=types.NotebookDocumentCellChangeStructure(
                            types.NotebookCellArrayChange(0, 1, [types.NotebookCell(types.NotebookCellKind.Code, new)]),
                            did_open=[types.TextDocumentItem(new, "python", 1, "past = load()\n")],
                            did_close=[types.TextDocumentIdentifier(one)],
                        )
                    )
                ),
            )
        )
        await editor.until(lambda: editor.published.get(new))
        await editor.until(lambda: editor.published[two][-1].diagnostics == ())

    with_editor(here, talk)


def test_a_notebook_that_is_opened_as_text_has_places_of_the_text(here: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# A title\n"]},
        {
            "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
            "source": ["from transformers import DynamicCache\n", "past = DynamicCache()\n", 'print("\\t", past[0][0])'],
        },
    ]  # fmt: skip
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)

    async def talk(editor: Editor) -> None:
        found = await editor.open("n.ipynb", text, "json")
        assert codes(found) == ["KV204"]
        line = text.split("\n")[found[0].range.start.line]
        assert line[found[0].range.start.character : found[0].range.end.character] == "past[0]"
        assert found[0].message.startswith("cell 1: ")
        action = (await editor.actions(editor.uri("n.ipynb"), found[0].range, ["quickfix"]))[0]
        _, edits = edits_of(action)[editor.uri("n.ipynb")]
        assert applied(text, edits) == text.replace("past[0][0]", "past.layers[0].keys")

    with_editor(here, talk)


def test_other_languages_and_places(here: Path) -> None:
    page = f"# A page\n\n```python\n{STALE}```\n"

    async def talk(editor: Editor) -> None:
        found = await editor.open("a.md", page, "markdown")
        assert [item.range for item in found] == [place(6, 7, 6, 14)]
        unsaved = "untitled:Untitled-1"
        item = types.TextDocumentItem(unsaved, "python", 1, STALE)
        editor.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        assert codes(await editor.answer(unsaved, 1)) == ["KV204"]
        assert await editor.open(".venv/lib/python3.11/site-packages/x/a.py", STALE) == []
        old = types.TextDocumentItem("git:/here/a.py?HEAD", "python", 1, STALE)
        editor.client.text_document_did_open(types.DidOpenTextDocumentParams(old))
        assert codes(await editor.open("b.py", STALE)) == ["KV204"]
        assert "git:/here/a.py?HEAD" not in editor.published

    with_editor(here, talk)


def test_a_wrong_configuration_is_said_once_and_mended_without_a_restart(here: Path) -> None:
    config = here / "pyproject.toml"
    config.write_text('[tool.kvlint]\ntarget = "4.57"\nselct = ["KV2"]\n')

    async def talk(editor: Editor) -> None:
        assert await editor.open("a.py", STALE) == []
        assert len(editor.messages) == 1 and "unknown key 'selct', did you mean 'select'?" in editor.messages[0]
        assert await editor.type("a.py", 2, insertion(0, 0, "\n")) == []
        assert len(editor.messages) == 1
        assert await editor.actions(editor.uri("a.py"), place(4, 7)) == []
        assert await editor.hover(editor.uri("a.py"), 4, 8) == ""
        config.write_text('[tool.kvlint]\ntarget = "5.24"\n')
        editor.client.workspace_did_change_watched_files(
            types.DidChangeWatchedFilesParams([types.FileEvent(config.as_uri(), types.FileChangeType.Changed)])
        )
        await editor.until(lambda: editor.published[editor.uri("a.py")][-1].diagnostics)
        assert codes(list(editor.published[editor.uri("a.py")][-1].diagnostics)) == ["KV204"]

    with_editor(here, talk)


def test_settings_of_the_editor_hold_and_wrong_ones_are_said(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        assert await editor.open("a.py", STALE) == []
        editor.client.workspace_did_change_configuration(
            types.DidChangeConfigurationParams({"kvlint": {"target": "5.24", "extendSelct": ["KV5"], "run": "never"}})
        )
        await editor.until(lambda: editor.published[editor.uri("a.py")][-1].diagnostics)
        assert any("'extend-selct', did you mean 'extend-select'?" in text for text in editor.messages)
        assert any("run is 'type' or 'save', not 'never'" in text for text in editor.messages)
        count = len(editor.published[editor.uri("a.py")])
        editor.client.workspace_did_change_configuration(
            types.DidChangeConfigurationParams({"kvlint": {"target": "5.99"}})
        )
        await editor.until(lambda: len(editor.published[editor.uri("a.py")]) > count)
        assert editor.published[editor.uri("a.py")][-1].diagnostics == ()
        assert "5.99" in editor.messages[-1] and "nothing is checked" in editor.messages[-1]

    with_editor(here, talk, settings={"settings": {"target": "4.48"}})


def test_on_save_only(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        assert codes(await editor.open("a.py", STALE)) == ["KV204"]
        editor.send_change("a.py", 2, insertion(3, 0, "more = past[1][1]\n"))
        await editor.hover(editor.uri("a.py"), 0, 0)
        assert [item.version for item in editor.published[editor.uri("a.py")]] == [1]
        editor.client.text_document_did_save(
            types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(editor.uri("a.py")))
        )
        assert codes(await editor.answer(editor.uri("a.py"), 2)) == ["KV204", "KV204"]

    with_editor(here, talk, settings={"run": "save"})


def test_saving_a_module_has_its_importers_looked_at_again(here: Path) -> None:
    helper = here / "helper.py"
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    helper.write_text("Past = list\n")
    text = "from helper import Past\n\nimport transformers\n\nstore = Past()\nkeys = store.key_cache\n"

    async def talk(editor: Editor) -> None:
        assert await editor.open("a.py", text) == []
        helper.write_text("from transformers import DynamicCache\n\nPast = DynamicCache\n")
        editor.client.text_document_did_save(
            types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(helper.as_uri()))
        )
        await editor.until(lambda: editor.published[editor.uri("a.py")][-1].diagnostics)
        assert codes(list(editor.published[editor.uri("a.py")][-1].diagnostics)) == ["KV202"]

    with_editor(here, talk)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the process that lints in /proc")
def test_the_server_outlives_the_process_that_lints(here: Path) -> None:
    async def talk(editor: Editor) -> None:
        assert codes(await editor.open("a.py", STALE)) == ["KV204"]
        tasks = Path(f"/proc/{editor.process.pid}/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        lines = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
        (linting,) = (int(child) for child, line in lines.items() if b"spawn_main" in line)
        os.kill(linting, signal.SIGKILL)
        assert await editor.type("a.py", 2, insertion(0, 0, "\n")) == []
        assert codes(await editor.type("a.py", 3, insertion(0, 0, "\n"))) == ["KV204"]
        assert any("died" in message for message in editor.messages)

    with_editor(here, talk)


def test_text_that_nobody_can_read_kills_nothing(here: Path) -> None:
    deep = "x = " + "(" * 5_000 + "past_key_values" + ")" * 5_000 + "\n"
    texts = [
        deep,
        "\ufeffx = past_key_values[0]\n",
        "past_key_values = '\ud83d'\n",
        "def f(:\n  past_key_values[0]",
        "\0",
    ]

    async def talk(editor: Editor) -> None:
        for number, text in enumerate(texts):
            await editor.open(f"bad{number}.py", text)
        assert await editor.open("config.py", "# -*- coding: latin-1 -*-\nx = 'é'\n") == []
        assert codes(await editor.open("a.py", STALE)) == ["KV204"]

    with_editor(here, talk)


def test_a_worker_that_takes_too_long_is_replaced(here: Path) -> None:
    worker = Worker(patience_s=0.05)
    slow = Buffer(str(here / "a.py"), str(here), STALE * 400)
    try:
        with pytest.raises(Lost, match="took more than"):
            worker.ask("see", slow)
        worker.patience_s = 60
        seen = worker.ask("see", Buffer(str(here / "a.py"), str(here), STALE))
        assert [item.code for item in seen.diagnostics] == ["KV204"]
        with pytest.raises(Failed, match="AttributeError"):
            worker.ask("no_such_question")
    finally:
        worker.stop()
    with pytest.raises(Lost):
        worker.ask("see", slow)


def test_a_fault_in_a_check_is_reported_with_what_the_others_find(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvlint import checks

    right = checks.findings

    def broken(facts: Any, wanted: frozenset[str], *rest: Any) -> Any:
        if "KV202" in wanted:
            raise ValueError("no good")
        return right(facts, wanted, *rest)

    monkeypatch.setattr(checks, "findings", broken)
    text = STALE + "lists = past.key_cache\n"
    seen = Session().see(Buffer(str(here / "a.py"), str(here), text))
    assert [item.code for item in seen.diagnostics] == ["KV204"]
    assert len(seen.faults) == 1 and "KV202" in seen.faults[0]


def test_a_session_gives_what_the_command_gives(here: Path) -> None:
    """The cases of the tests, as buffers: the same findings, the same text after fixing, and no offer that breaks."""
    from kvlint.config import Overrides, Resolver
    from kvlint.discovery import FoundFile
    from kvlint.findings import Applicability
    from kvlint.run import Options, run

    session = Session()
    cases = sorted((Path(__file__).parent / "cases").glob("*.py"))[:60]
    offered = 0
    for case in cases:
        path = here / case.name
        path.write_bytes(case.read_bytes())
        resolver = Resolver.create(Overrides(), str(here))
        files = [FoundFile(str(path), resolver.for_folder(str(here)))]
        plain = run(files, Options(cwd=str(here), use_cache=False, jobs=1))
        hidden = resolver.for_folder(str(here)).hidden_kinds
        wanted = [item for result in plain.results for item in result.diagnostics if item.category.value not in hidden]
        buffer = Buffer(str(path), str(here), path.read_text())
        seen = session.see(buffer).diagnostics
        assert list(seen) == wanted
        fixing = run(files, Options(cwd=str(here), use_cache=False, jobs=1, allowed=frozenset({Applicability.SAFE})))
        fixed = next((result.fixed for result in fixing.results if result.fixed is not None), None)
        assert session.fixed(buffer) == (fixed.decode() if fixed is not None else None)
        for item in seen:
            spot = Spot(item.line, item.column, item.end_line, item.end_column)
            for offer in session.offers(buffer, spot):
                offered += 1
                assert item in offer.resolves or any(spot.touches(other) for other in offer.resolves)
                assert all(edit.cell is None for edit in offer.edits)
    assert offered > 10


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"target": 5}, "target must be a string"),
        ({"select": ["KV99"]}, "unknown rule 'KV99'"),
        ({"kvlint": ["x"]}, "must be a table"),
        ({"python": 3}, "python must be a string"),
        ({"exclude": "x"}, "must be a list of strings"),
    ],
)
def test_wrong_options_are_left_out(given: Any, problem: str) -> None:
    read, problems = options.read(given)
    assert len(problems) == 1 and problem in problems[0]
    assert read == options.ClientOptions()


def test_options_in_every_wrapping() -> None:
    for given in (
        {"target": "5.24", "extend-select": ["KV806"], "unsafeFixes": True},
        {"kvlint": {"target": "5.24", "extendSelect": ["KV806"], "unsafe_fixes": True}},
        {"settings": {"kvlint": {"target": "5.24", "extendSelect": ["KV806"], "unsafeFixes": True, "run": None}}},
    ):
        read, problems = options.read(given)
        assert not problems
        assert (read.overrides.target, read.overrides.extend_select, read.overrides.unsafe_fixes) == (
            "5.24",
            ("KV806",),
            True,
        )
    assert options.read(None) == options.read({}) == options.read({"kvlint": None})


def test_without_pygls_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    result = CliRunner().invoke(main, ["server"])
    assert result.exit_code == 2
    assert "pip install 'kvlint[lsp]'" in result.stderr


def test_the_server_ends_with_its_editor(here: Path) -> None:
    """Without a word of goodbye: neither process may stay behind."""

    async def run() -> None:
        editor = Editor(here)
        await editor.start(capabilities=CAPABILITIES)
        assert codes(await editor.open("a.py", STALE)) == ["KV204"]
        editor.process.stdin.close()
        await asyncio.wait_for(editor.process.wait(), 30)
        await editor.client.stop()

    asyncio.run(run())


HELPER = (
    "def first(pairs):\n    return pairs[0][0]\n\n\n"
    "def length(pairs):\n    total = pairs.get_seq_length()\n    return total\n"
)
CALLER = (
    "from transformers import DynamicCache\n\nfrom helper import first\n\npast = DynamicCache()\nkeys = first(past)\n"
)


def test_what_another_file_passes_counts_while_one_types(here: Path) -> None:
    (here / "pyproject.toml").write_text("")
    (here / "main.py").write_text(CALLER)
    (here / "helper.py").write_text(HELPER)
    session = Session()

    def look(text: str, typing: bool) -> tuple[bool, list[tuple[str, int]]]:
        seen = session.see(Buffer(str(here / "helper.py"), str(here), text), typing=typing)
        return seen.passing, [(item.code, item.line) for item in seen.diagnostics]

    assert look(HELPER, typing=True) == (False, [("KV204", 2)])
    assert look(f"import os\n\n{HELPER}", typing=True) == (True, [("KV204", 4)])
    assert look(HELPER.replace("[0][0]", ".layers[0].keys"), typing=True) == (True, [])
    assert look("def first(pairs):\n    return pairs[", typing=True) == (True, [("KV000", 2)])
    assert look(HELPER, typing=True) == (True, [("KV204", 2)])
    assert look(HELPER, typing=False) == (False, [("KV204", 2)])

    (here / "main.py").write_text(CALLER.replace("DynamicCache()", "[(1, 2)]"))
    assert look(HELPER, typing=True)[1] == look(HELPER, typing=False)[1] == []


def test_a_pause_has_the_whole_project_looked_at(here: Path) -> None:
    (here / "pyproject.toml").write_text("")
    (here / "helper.py").write_text(HELPER)

    async def talk(editor: Editor) -> None:
        uri = editor.uri("main.py")
        assert codes(await editor.open("main.py", CALLER)) == []
        helper = await editor.open("helper.py", HELPER)
        assert helper == []  # the caller is not saved yet
        (here / "main.py").write_text(CALLER)
        await editor.type("helper.py", 2, insertion(6, 16, " "))
        await editor.until(lambda: codes(list(editor.published[editor.uri("helper.py")][-1].diagnostics)) == ["KV204"])
        assert not editor.published[uri][-1].diagnostics

    with_editor(here, talk)


def test_the_problem_matcher_of_the_docs_reads_what_the_command_prints(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import re

    page = (Path(__file__).parent.parent / "docs" / "editors.md").read_text(encoding="utf-8")
    tasks = next(
        json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "problemMatcher" in block
    )
    task = tasks["tasks"][0]
    pattern = task["problemMatcher"]["pattern"]
    (here / "a b.py").write_text(STALE + "past.crop(max_length=1)\nlists = past.key_cache\n")
    monkeypatch.chdir(here)
    printed = CliRunner().invoke(main, task["command"].split()[1:]).stdout.splitlines()
    found = [match for line in printed if (match := re.match(pattern["regexp"], line))]
    places = [tuple(match[pattern[part]] for part in ("file", "line", "column", "code")) for match in found]
    assert ("a b.py", "4", "8", "KV204") in places
    assert len(places) == sum("KV" in line for line in printed) >= 3
