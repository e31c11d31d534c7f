"""The documents that are open in the editor: their texts, and which of them are the cells of a notebook.

pygls keeps texts too, but takes a form feed or U+2028 for the end of a line, which the protocol does not: an edit below
one would go astray.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from lsprotocol import types
from pygls.uris import to_fs_path

from kvlint.server.buffers import Buffer
from kvlint.server.positions import Lines

SUFFIXES = {"python": ".py", "markdown": ".md", "restructuredtext": ".rst", "jupyter": ".ipynb"}
"""The suffix that a document of each language has while it is not saved."""


@dataclass(slots=True)
class Document:
    """One text. *notebook* is the address of the notebook that it is a cell of."""

    uri: str
    version: int
    language: str
    text: str
    notebook: str = ""


@dataclass(slots=True)
class Notebook:
    """The cells of a notebook, by their addresses, in order."""

    uri: str
    version: int
    cells: list[str]


@dataclass(slots=True)
class Documents:
    """Everything that is open. *encoding* is how the editor counts columns, *folders* are those of the workspace."""

    encoding: str = "utf-16"
    folders: list[str] = field(default_factory=list)
    texts: dict[str, Document] = field(default_factory=dict)
    notebooks: dict[str, Notebook] = field(default_factory=dict)

    def open(self, item: types.TextDocumentItem, notebook: str = "") -> None:
        self.texts[item.uri] = Document(item.uri, item.version, item.language_id, item.text, notebook)

    def change(self, uri: str, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        """Applies what was typed, in order."""
        document = self.texts.get(uri)
        if document is not None:
            for change in changes:
                document.text = changed(document.text, change, self.encoding)
            document.version = version

    def close(self, uri: str) -> None:
        self.texts.pop(uri, None)

    def open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        notebook = params.notebook_document
        self.notebooks[notebook.uri] = Notebook(
            notebook.uri, notebook.version, [cell.document for cell in notebook.cells]
        )
        for item in params.cell_text_documents:
            self.open(item, notebook.uri)

    def change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> list[str]:
        """Applies a change of cells; returns the addresses of those that are gone."""
        notebook = self.notebooks.get(params.notebook_document.uri)
        cells = params.change.cells
        if notebook is None:
            return []
        notebook.version = params.notebook_document.version
        gone: list[str] = []
        if cells is not None and cells.structure is not None:
            array = cells.structure.array
            added = [cell.document for cell in array.cells or ()]
            notebook.cells[array.start : array.start + array.delete_count] = added
            for item in cells.structure.did_open or ():
                self.open(item, notebook.uri)
            gone = [closed.uri for closed in cells.structure.did_close or ()]
            for uri in gone:
                self.close(uri)
        for content in (cells.text_content or ()) if cells is not None else ():
            self.change(content.document.uri, content.document.version, content.changes)
        return gone

    def close_notebook(self, uri: str) -> list[str]:
        """Forgets a notebook; returns the addresses of its cells."""
        notebook = self.notebooks.pop(uri, None)
        cells = notebook.cells if notebook is not None else []
        for cell in cells:
            self.close(cell)
        return cells

    def whole(self, uri: str) -> str:
        """The address of what is looked at as one: the notebook of a cell, else the document itself."""
        document = self.texts.get(uri)
        return document.notebook if document is not None and document.notebook else uri

    def cell_texts(self, notebook: Notebook) -> list[tuple[str, str]]:
        """The address and the text of each cell."""
        return [(uri, self.texts[uri].text) for uri in notebook.cells if uri in self.texts]

    def buffer(self, uri: str) -> Buffer | None:
        """What to look at for a whole document or notebook; None for what is not on this machine, or of no kind of ours."""
        notebook = self.notebooks.get(uri)
        if notebook is not None:
            path = self.path_of(uri, "jupyter")
            text = as_notebook([text for _, text in self.cell_texts(notebook)])
            return Buffer(path, self.root_of(path), text, cells=True) if path else None
        document = self.texts.get(uri)
        if document is None or document.notebook:
            return None
        path = self.path_of(uri, document.language)
        return Buffer(path, self.root_of(path), document.text) if path else None

    def path_of(self, uri: str, language: str) -> str:
        """The path of a document; one that was never saved gets a name in the first folder. "" for one that is elsewhere."""
        scheme = uri.partition(":")[0]
        suffix = SUFFIXES.get(language, "")
        if scheme == "file":
            path = os.path.normpath(to_fs_path(uri) or "")
            known = path.endswith((*SUFFIXES.values(), ".pyi", ".markdown", "generation_config.json"))
            return path if known or suffix == ".py" else ""
        if scheme == "untitled" and suffix:
            return os.path.join(self.folders[0] if self.folders else os.getcwd(), f"untitled{suffix}")
        return ""

    def root_of(self, path: str) -> str:
        """The innermost folder of the workspace that holds *path*; outside of all, the folder of the file."""
        holding = [folder for folder in self.folders if path.startswith(os.path.join(folder, ""))]
        return max(holding, key=len) if holding else os.path.dirname(path)

    def wholes(self) -> list[str]:
        """The addresses of everything that is looked at."""
        return [*self.notebooks, *(uri for uri, document in self.texts.items() if not document.notebook)]


def changed(text: str, change: types.TextDocumentContentChangeEvent, encoding: str) -> str:
    """The text after one change."""
    if not isinstance(change, types.TextDocumentContentChangePartial):
        return change.text
    lines = Lines.of(text, encoding)
    start = lines.offset(change.range.start.line, change.range.start.character)
    end = lines.offset(change.range.end.line, change.range.end.character)
    return text[:start] + change.text + text[max(start, end) :]


def as_notebook(cells: Sequence[str]) -> str:
    """A notebook file with these code cells."""
    made: list[dict[str, object]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text} for text in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, ensure_ascii=False)


def cell_sources(notebook: str) -> list[str]:
    """The texts of the cells of a file that `as_notebook` wrote, with fixes in it."""
    return [
        source if isinstance(source := cell["source"], str) else "".join(source)
        for cell in json.loads(notebook)["cells"]
    ]
