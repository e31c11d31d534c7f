"""``generation_config.json``: the settings that a model on the hub brings along, linted as JSON."""

from __future__ import annotations

import re
from pathlib import PurePath

from kvlint.carriers.json_spans import JsonError, document_value, line_and_column
from kvlint.carriers.regions import Extraction, NewlineLayout, Region, SourceError

_NAME = re.compile(r"generation[_-]?config", re.IGNORECASE)


def claims(path: PurePath) -> bool:
    """Whether a file of this name is JSON; what is no generation settings then has no regions."""
    return path.suffix.lower() == ".json"


def is_generation_config(path: PurePath) -> bool:
    """Whether a file of this name holds generation settings."""
    return claims(path) and _NAME.search(path.name) is not None


def extract(path: PurePath, document: str) -> Extraction:
    """One region with the whole text, if the file is named like generation settings and holds a JSON object."""
    if not is_generation_config(path):
        return Extraction()
    try:
        root = document_value(document)
    except JsonError as error:
        line, column = line_and_column(document, error.offset)
        return Extraction(errors=(SourceError(f"is not valid JSON: {error}", line, column),))
    if not isinstance(root.value, dict):
        return Extraction()
    if "\r" not in document:
        return Extraction((Region(document, "generation-config"),))
    text = document.replace("\r\n", "\n").replace("\r", "\n")
    return Extraction((Region(text, "generation-config", layout=NewlineLayout(text, document)),))
