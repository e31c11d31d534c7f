"""What ``kvlint api update`` has learnt: releases that the packaged timeline does not have, in the user's data folder.

The folder holds one record a release (``5.25.0.json``) and, for speed, the timeline with all of them merged
(``merged.json``) under the digest of the packaged file it was made from (``merged.base``). A newer kvlint has another
packaged file: the records are merged anew, and those it knows by itself have no effect.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvlint.folders import data_folder

if TYPE_CHECKING:
    from kvlint.timeline_build import Record

MERGED = "merged.json"
BASE = "merged.base"


def folder() -> Path:
    """The folder of learnt releases; the environment variable KVLINT_DATA_DIR replaces the user's data folder."""
    given = os.environ.get("KVLINT_DATA_DIR")
    return Path(given or data_folder()) / "timeline"


def digest(data: bytes) -> str:
    """A short name for the content of a timeline."""
    return f"{len(data)}-{zlib.crc32(data):08x}"


def merged(packaged: bytes, overlay: Path) -> bytes:
    """The bytes of the timeline with every learnt release; *packaged* itself where nothing was learnt.

    Raises ValueError with one line where the learnt files are damaged.
    """
    if not os.path.isdir(overlay):  # says False, too, where the home folder is somebody else's
        return packaged
    try:
        if (overlay / BASE).read_text(encoding="ascii") == digest(packaged):
            return (overlay / MERGED).read_bytes()
    except OSError:
        pass
    records = learnt(overlay)
    if not records:
        return packaged
    text = _merge(packaged, records).encode("utf-8")
    with suppress(OSError):
        _remember(overlay, packaged, text)
    return text


def learnt(overlay: Path) -> list[tuple[Record, bool]]:
    """The records of the folder, each with whether it replaces what the packaged timeline says of its release."""
    from kvlint.timeline_build import Record

    found = []
    for path in sorted(overlay.glob("[0-9]*.json")):
        try:
            raw = json.loads(path.read_bytes())
            found.append((Record(raw["version"], raw["symbols"], raw["models"]), bool(raw["replaces"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged; delete it or run 'kvlint api update' again") from error
    return found


def learn(record: Record, overlay: Path, packaged: bytes, replaces: bool) -> None:
    """Writes a record, atomically, and the merged timeline. Raises OSError where the folder cannot be written."""
    from kvlint.writing import write_atomically

    overlay.mkdir(parents=True, exist_ok=True)
    raw = {"version": record.version, "replaces": replaces, "symbols": record.symbols, "models": record.models}
    write_atomically(str(overlay / f"{record.version}.json"), json.dumps(raw, sort_keys=True, indent=0).encode("utf-8"))
    _remember(overlay, packaged, _merge(packaged, learnt(overlay)).encode("utf-8"))


def _merge(packaged: bytes, records: list[tuple[Record, bool]]) -> str:
    from kvlint.timeline_build import Merged

    timeline = Merged.load(packaged.decode("utf-8"))
    own = set(timeline.releases)
    for record, replaces in records:
        if replaces or record.version not in own:
            timeline.add(record)
    return timeline.dump()


def _remember(overlay: Path, packaged: bytes, merged_bytes: bytes) -> None:
    from kvlint.writing import write_atomically

    (overlay / BASE).unlink(missing_ok=True)
    write_atomically(str(overlay / MERGED), merged_bytes)
    write_atomically(str(overlay / BASE), digest(packaged).encode("ascii"))
