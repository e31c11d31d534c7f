"""A real client of ``kvlint server``, over standard input and output, for tests that speak as an editor does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

PATIENCE_S = 60

CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True)
    ),
    text_document=types.TextDocumentClientCapabilities(
        code_action=types.CodeActionClientCapabilities(
            resolve_support=types.ClientCodeActionResolveOptions(properties=["edit"])
        )
    ),
    notebook_document=types.NotebookDocumentClientCapabilities(
        synchronization=types.NotebookDocumentSyncClientCapabilities()
    ),
)


class Editor:
    """One editor with one folder open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("tests", "1")
        self.published: dict[str, list[types.PublishDiagnosticsParams]] = {}
        self.messages: list[str] = []
        self.logged: list[str] = []
        self.came = asyncio.Event()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.published.setdefault(params.uri, []).append(params)
            self.came.set()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def shown(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self.came.set()

        @self.client.feature(types.WINDOW_LOG_MESSAGE)
        def logged(params: types.LogMessageParams) -> None:
            self.logged.append(params.message)
            self.came.set()

    @property
    def process(self) -> Any:
        return self.client._server

    async def start(self, settings: Any = None, capabilities: types.ClientCapabilities = CAPABILITIES) -> Any:
        await self.client.start_io(sys.executable, "-m", "kvlint", "server", "--stdio")
        answer = await self.client.initialize_async(
            types.InitializeParams(
                capabilities=capabilities,
                root_uri=self.folder.as_uri(),
                workspace_folders=[types.WorkspaceFolder(self.folder.as_uri(), "here")],
                initialization_options=settings,
            )
        )
        self.client.initialized(types.InitializedParams())
        return answer

    async def stop(self) -> int:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()
        return int(self.process.returncode)

    async def until(self, wanted: Callable[[], Any]) -> Any:
        """Waits for what comes from the server until *wanted* gives something."""
        while not (found := wanted()):
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), PATIENCE_S)
        return found

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    async def answer(self, uri: str, version: int | None) -> list[types.Diagnostic]:
        """The findings of a version of a document."""
        params = await self.until(
            lambda: next((item for item in self.published.get(uri, []) if item.version == version), None)
        )
        return list(params.diagnostics)

    async def open(self, name: str, text: str, language: str = "python") -> list[types.Diagnostic]:
        uri = self.uri(name)
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, language, 1, text))
        )
        return await self.answer(uri, 1)

    async def type(self, name: str, version: int, *changes: Any) -> list[types.Diagnostic]:
        self.send_change(name, version, *changes)
        return await self.answer(self.uri(name), version)

    def send_change(self, name: str, version: int, *changes: Any) -> None:
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=version, uri=self.uri(name)), list(changes)
            )
        )

    async def actions(self, uri: str, range: types.Range, only: list[str] | None = None) -> list[types.CodeAction]:
        shown = self.published[uri][-1].diagnostics
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(types.TextDocumentIdentifier(uri), range, types.CodeActionContext(shown, only=only))
        )
        return [item for item in found or () if isinstance(item, types.CodeAction)]

    async def hover(self, uri: str, line: int, column: int) -> str:
        found = await self.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, column))
        )
        return found.contents.value if found is not None else ""


def with_editor(folder: Path, talk: Callable[[Editor], Coroutine[Any, Any, None]], **how: Any) -> None:
    """Starts a server, talks with it, and stops it."""

    async def run() -> None:
        editor = Editor(folder)
        await editor.start(**how)
        try:
            await asyncio.wait_for(talk(editor), 4 * PATIENCE_S)
        finally:
            code = await editor.stop()
        assert code == 0, (await editor.process.stderr.read()).decode()

    asyncio.run(run())


def place(line: int, column: int, end_line: int | None = None, end_column: int | None = None) -> types.Range:
    end = (line if end_line is None else end_line, column if end_column is None else end_column)
    return types.Range(types.Position(line, column), types.Position(*end))


def insertion(line: int, column: int, text: str) -> types.TextDocumentContentChangePartial:
    return types.TextDocumentContentChangePartial(place(line, column), text)


def applied(text: str, edits: Any) -> str:
    """The text with edits applied, as an editor that counts in UTF-16 units does."""
    lines = text.split("\n")
    data = [line.encode("utf-16-le") for line in lines]

    def offset(position: types.Position) -> int:
        before = sum(len(line) + 2 for line in data[: position.line])
        return before + 2 * position.character

    whole = text.encode("utf-16-le")
    for edit in sorted(edits, key=lambda edit: offset(edit.range.start), reverse=True):
        start, end = offset(edit.range.start), offset(edit.range.end)
        whole = whole[:start] + edit.new_text.encode("utf-16-le") + whole[end:]
    return whole.decode("utf-16-le")
