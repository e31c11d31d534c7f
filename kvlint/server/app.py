"""The half of the server that speaks with the editor. It looks at nothing itself: it asks the worker."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from kvlint import __version__
from kvlint.server import options, present
from kvlint.server.buffers import Buffer, Offer, Seen, Spot, Told
from kvlint.server.documents import Documents, cell_sources
from kvlint.server.options import ClientOptions
from kvlint.server.positions import Lines
from kvlint.server.worker import PATIENCE_S, Failed, Lost, Worker

FIX_ALL = "source.fixAll.kvlint"
FIX_NOTEBOOK = "notebook.source.fixAll.kvlint"
SECTION = "kvlint"
PAUSE_S = 1.0
"""After so long without a keystroke, the files around a document are looked at again, too."""
WATCHED = "**/{*.py,pyproject.toml,kvlint.toml,setup.cfg,requirements*.txt,*.lock}"
NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(
            notebook="jupyter-notebook", cells=[types.NotebookCellLanguage(language="python")]
        )
    ]
)


@dataclass(slots=True)
class Desk:
    """The state of the server: what is open, what is due to be looked at, and what the user was told already."""

    server: LanguageServer
    worker: Worker
    documents: Documents = field(default_factory=Documents)
    client: ClientOptions = field(default_factory=ClientOptions)
    given: Any = None
    """What the editor sent with its greeting."""
    due: dict[str, None] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    """Those of *due* that are due for a keystroke: to be looked at quickly."""
    pauses: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    looking: asyncio.Task[None] | None = None
    line: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "kvlint-worker"))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Asks the worker. Raises Lost or Failed."""
        return await asyncio.get_running_loop().run_in_executor(self.line, self.worker.ask, method, *arguments)

    async def try_ask(self, method: str, *arguments: Any) -> Any:
        """Asks the worker; where that fails the log says so, and the answer is None."""
        try:
            return await self.ask(method, *arguments)
        except (Lost, Failed) as problem:
            if not self.worker.stopped:
                self.log(f"{method}: {problem}", types.MessageType.Error)
            return None

    def check(self, *uris: str, typed: bool = False) -> None:
        """Has documents or notebooks looked at, those that were named last first, after what is being looked at now.

        *typed*: for a keystroke, so quickly; a document that is due for another reason stays so.
        """
        for uri in uris:
            if not typed:
                self.typed.discard(uri)
            elif uri not in self.due:
                self.typed.add(uri)
            self.due.pop(uri, None)
            self.due[uri] = None
            if (pause := self.pauses.pop(uri, None)) is not None:
                pause.cancel()
        if self.looking is None or self.looking.done():
            self.looking = asyncio.get_running_loop().create_task(self.look_at_all())

    async def look_at_all(self) -> None:
        while self.due and not self.worker.stopped:
            uri, _ = self.due.popitem()
            await self.look_at(uri)

    async def look_at(self, uri: str) -> None:
        """Looks at one document or notebook and publishes what is seen, unless it has changed again meanwhile."""
        buffer = self.documents.buffer(uri)
        if buffer is None:
            return
        version = self.version_of(uri)
        quickly = uri in self.typed
        self.typed.discard(uri)
        try:
            seen: Seen = await self.ask("see", buffer, quickly)
        except Lost as problem:
            if self.worker.stopped:
                return
            self.tell_once(f"kvlint: {buffer.path}: not checked: {problem}", types.MessageType.Warning)
            seen = Seen()
        except Failed as problem:
            self.log(f"{buffer.path}: internal error: {problem}; please report it", types.MessageType.Error)
            seen = Seen()
        if uri in self.due or self.documents.buffer(uri) is None:
            return
        if seen.passing:
            self.pauses[uri] = asyncio.get_running_loop().call_later(PAUSE_S, self.check, uri)
        if seen.problem:
            self.tell_once(f"kvlint: {seen.problem}; nothing is checked until this is mended")
        for fault in seen.faults:
            self.log(fault, types.MessageType.Error)
        for notice in seen.notices:
            self.log(notice, types.MessageType.Info)
        self.publish(uri, buffer, version, seen)

    def publish(self, uri: str, buffer: Buffer, version: int | None, seen: Seen) -> None:
        """Sends the findings of a document, or of every cell of a notebook."""
        notebook = self.documents.notebooks.get(uri)
        if notebook is None:
            lines = Lines.of(buffer.text, self.documents.encoding)
            found = [present.diagnostic(item, lines, uri, lambda cell: uri) for item in seen.diagnostics]
            self.send(uri, found, version)
            return
        cells = dict(enumerate(self.documents.cell_texts(notebook), 1))
        for number, (cell_uri, text) in cells.items():
            lines = Lines.of(text, self.documents.encoding)
            found = [
                present.diagnostic(item, lines, cell_uri, lambda cell: cells[cell][0] if cell in cells else None)
                for item in seen.diagnostics
                if (item.cell or 1) == number
            ]
            self.send(cell_uri, found, None)

    def send(self, uri: str, found: list[types.Diagnostic], version: int | None) -> None:
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def version_of(self, uri: str) -> int | None:
        document = self.documents.texts.get(uri)
        return document.version if document is not None else None

    def log(self, message: str, kind: types.MessageType) -> None:
        self.server.window_log_message(types.LogMessageParams(kind, message))

    def tell_once(self, message: str, kind: types.MessageType = types.MessageType.Error) -> None:
        """Shows a message, unless it was shown since the settings were read last."""
        if message not in self.told:
            self.told.add(message)
            self.server.window_show_message(types.ShowMessageParams(kind, message))

    async def configure(self, given: Any) -> None:
        """Takes what the editor has set, says what of it is wrong, and looks at everything again."""
        self.told.clear()
        self.client, problems = options.read(given)
        for problem in problems:
            self.tell_once(f"kvlint: {problem}")
        try:
            await asyncio.get_running_loop().run_in_executor(self.line, self.worker.configure, self.client)
        except (Lost, Failed) as problem:
            self.log(f"settings: {problem}", types.MessageType.Error)
        self.check(*self.documents.wholes())

    async def files_changed(self, paths: list[str]) -> None:
        """Looks again at everything that is open: a changed file may decide about any other, and settings about all."""
        if any(not path.endswith((".py", ".pyi", ".ipynb", ".md", ".rst")) for path in paths):
            self.told.clear()
        await self.try_ask("forget", tuple(paths))
        self.check(*self.documents.wholes())

    def spot_of(self, uri: str, range: types.Range) -> tuple[Buffer, Spot, Lines] | None:
        """What a range of a document, or of a cell, means to the worker, and the lines of the document."""
        document = self.documents.texts.get(uri)
        buffer = self.documents.buffer(self.documents.whole(uri))
        if document is None or buffer is None:
            return None
        cell = None
        if document.notebook:
            cell = [known for known, _ in self.documents.cell_texts(self.documents.notebooks[document.notebook])].index(
                uri
            ) + 1
        lines = Lines.of(document.text, self.documents.encoding)
        start = lines.characters(range.start.line, range.start.character)
        end = lines.characters(range.end.line, range.end.character)
        return buffer, Spot(*start, *end, cell), lines

    def workspace_edit(self, edits: dict[str, list[types.TextEdit]]) -> types.WorkspaceEdit:
        """An edit that holds for the versions that are open now, where the editor can be told so."""
        capabilities = self.server.client_capabilities.workspace
        edit = capabilities.workspace_edit if capabilities is not None else None
        if edit is None or not edit.document_changes:
            return types.WorkspaceEdit(changes=edits)
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(uri, self.version_of(uri)), list(made)
                )
                for uri, made in edits.items()
            ]
        )

    async def quick_fixes(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The fixes of the findings in a range."""
        uri = params.text_document.uri
        asked = self.spot_of(uri, params.range)
        if asked is None:
            return []
        buffer, spot, _ = asked
        version = self.version_of(uri)
        offers: tuple[Offer, ...] | None = await self.try_ask("offers", buffer, spot)
        if offers is None or self.version_of(uri) != version:
            return []
        return [self.quick_fix(uri, offer, params.context.diagnostics) for offer in offers]

    def quick_fix(self, uri: str, offer: Offer, shown: Any) -> types.CodeAction:
        edits: dict[str, list[types.TextEdit]] = {}
        for cell in dict.fromkeys(edit.cell for edit in offer.edits):
            where = self.uri_of_cell(uri, cell)
            lines = Lines.of(self.documents.texts[where].text, self.documents.encoding)
            edits[where] = present.text_edits([edit for edit in offer.edits if edit.cell == cell], lines)
        codes = {item.code for item in offer.resolves}
        return types.CodeAction(
            title=present.offer_title(offer),
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[item for item in shown if item.source == present.SOURCE and item.code in codes],
            is_preferred=offer.applicability.value == "safe",
            edit=self.workspace_edit(edits),
        )

    def uri_of_cell(self, uri: str, cell: int | None) -> str:
        """The document that the edits of a cell belong to."""
        document = self.documents.texts[uri]
        if cell is None or not document.notebook:
            return uri
        return self.documents.cell_texts(self.documents.notebooks[document.notebook])[cell - 1][0]

    async def fix_everything(self, uri: str) -> types.WorkspaceEdit | None:
        """The edit that applies every safe fix of a document or of its whole notebook; None where nothing changes."""
        whole = self.documents.whole(uri)
        buffer = self.documents.buffer(whole)
        if buffer is None:
            return None
        fixed: str | None = await self.try_ask("fixed", buffer)
        if fixed is None or self.documents.buffer(whole) != buffer:
            return None
        notebook = self.documents.notebooks.get(whole)
        if notebook is None:
            pairs = [(whole, buffer.text, fixed)]
        else:
            cells = self.documents.cell_texts(notebook)
            pairs = [
                (cell, text, new) for (cell, text), new in zip(cells, cell_sources(fixed), strict=True) if text != new
            ]
        edits = {
            where: present.whole_edits(old, new, Lines.of(old, self.documents.encoding)) for where, old, new in pairs
        }
        return self.workspace_edit(edits) if edits else None

    def can_resolve(self) -> bool:
        """Whether the editor asks for the edit of an action when the action is chosen."""
        capabilities = self.server.client_capabilities.text_document
        actions = capabilities.code_action if capabilities is not None else None
        return bool(actions and actions.resolve_support and "edit" in actions.resolve_support.properties)


def asks_for(kind: str, only: Any) -> bool:
    """Whether one of the kinds that an editor asks for (all, where it names none) holds *kind*."""
    return only is None or any(kind == wanted or kind.startswith(f"{wanted}.") for wanted in map(word, only))


def word(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def create(patience_s: float = PATIENCE_S) -> tuple[LanguageServer, Desk]:
    """The server, and its state."""
    server = LanguageServer("kvlint", __version__, notebook_document_sync=NOTEBOOKS)
    desk = Desk(server, Worker(patience_s))
    register_lifetime(server, desk)
    register_documents(server, desk)
    register_questions(server, desk)
    return server, desk


def register_lifetime(server: LanguageServer, desk: Desk) -> None:
    """Start, settings, end."""

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        desk.given = params.initialization_options
        desk.documents.encoding = word(server.workspace.position_encoding)
        folders = [folder.uri for folder in params.workspace_folders or ()]
        roots = [to_fs_path(uri) for uri in folders or ([params.root_uri] if params.root_uri else [])]
        desk.documents.folders = [root for root in roots if root]

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        await desk.configure(desk.given)
        await desk.try_ask("warm")
        await watch(server)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def configuration_changed(params: types.DidChangeConfigurationParams) -> None:
        given = params.settings
        workspace = server.client_capabilities.workspace
        if not given and workspace is not None and workspace.configuration:
            asked = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
            given = next(iter(await server.workspace_configuration_async(asked)), None)
        await desk.configure(given)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def watched_files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path for change in params.changes if (path := to_fs_path(change.uri))]
        await desk.files_changed(paths)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = {to_fs_path(folder.uri) for folder in params.event.removed}
        added = [path for folder in params.event.added if (path := to_fs_path(folder.uri))]
        desk.documents.folders = [path for path in desk.documents.folders if path not in gone] + added
        desk.check(*desk.documents.wholes())

    @server.feature(types.SHUTDOWN)
    def shutdown(params: Any = None) -> None:
        desk.worker.stop()


async def watch(server: LanguageServer) -> None:
    """Asks the editor to tell of changed files, where it can."""
    workspace = server.client_capabilities.workspace
    files = workspace.did_change_watched_files if workspace is not None else None
    if files is None or not files.dynamic_registration:
        return
    watchers = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(WATCHED)])
    await server.client_register_capability_async(
        types.RegistrationParams(
            [types.Registration("kvlint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watchers)]
        )
    )


def register_documents(server: LanguageServer, desk: Desk) -> None:
    """Opening, typing, saving, closing."""
    documents = desk.documents

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        documents.open(params.text_document)
        desk.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def typed(params: types.DidChangeTextDocumentParams) -> None:
        documents.change(params.text_document.uri, params.text_document.version, params.content_changes)
        if not desk.client.on_save:
            desk.check(params.text_document.uri, typed=True)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        path = to_fs_path(params.text_document.uri)
        if path:
            await desk.files_changed([path])
        desk.check(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        forget(params.text_document.uri)
        documents.close(params.text_document.uri)
        desk.send(params.text_document.uri, [], None)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_opened(params: types.DidOpenNotebookDocumentParams) -> None:
        documents.open_notebook(params)
        desk.check(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_typed(params: types.DidChangeNotebookDocumentParams) -> None:
        for gone in documents.change_notebook(params):
            desk.send(gone, [], None)
        if not desk.client.on_save:
            desk.check(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def notebook_saved(params: types.DidSaveNotebookDocumentParams) -> None:
        desk.check(params.notebook_document.uri)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_closed(params: types.DidCloseNotebookDocumentParams) -> None:
        forget(params.notebook_document.uri)
        for cell in documents.close_notebook(params.notebook_document.uri):
            desk.send(cell, [], None)

    def forget(uri: str) -> None:
        desk.due.pop(uri, None)
        if (pause := desk.pauses.pop(uri, None)) is not None:
            pause.cancel()


def register_questions(server: LanguageServer, desk: Desk) -> None:
    """Code actions and hovers."""
    kinds = [types.CodeActionKind.QuickFix, FIX_ALL, FIX_NOTEBOOK]

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds, resolve_provider=True)
    )
    async def code_actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        only = params.context.only
        uri = params.text_document.uri
        document = desk.documents.texts.get(uri)
        if document is None:
            return []
        actions = await desk.quick_fixes(params) if asks_for("quickfix", only) else []
        kind = FIX_NOTEBOOK if only and asks_for(FIX_NOTEBOOK, only) else FIX_ALL
        # Without a word for it, "fix all" stands beside a fix of its own kind: looking for it costs a whole run.
        if asks_for(kind, only) and (only or any(action.is_preferred for action in actions)):
            everything = types.CodeAction("Fix everything that kvlint can fix safely", kind)
            if desk.can_resolve():
                everything.data = {"uri": uri, "version": document.version}
                actions.append(everything)
            elif edit := await desk.fix_everything(uri):
                everything.edit = edit
                actions.append(everything)
        return actions

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        data = action.data if isinstance(action.data, dict) else {}
        uri = data.get("uri", "")
        if action.edit is None and uri in desk.documents.texts and desk.version_of(uri) == data.get("version"):
            action.edit = await desk.fix_everything(uri)
        return action

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        uri = params.text_document.uri
        asked = desk.spot_of(uri, types.Range(params.position, params.position))
        if asked is None:
            return None
        buffer, spot, lines = asked
        told: Told | None = await desk.try_ask("tell", buffer, spot)
        if told is None:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, told.text), present.span(lines, told.spot))


def run() -> None:
    """Serves on standard input and output until the editor is gone. What is printed otherwise goes to the error stream."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server, desk = create()
    try:
        server.start_io(sys.stdin.buffer, out)
    finally:
        desk.worker.stop()
