"""Names for content: of a file, of this very kvlint."""

from __future__ import annotations

import os
import sys
from functools import cache
from hashlib import blake2b

from kvlint import __version__


def digest(data: bytes) -> str:
    """The name of some content."""
    return blake2b(data, digest_size=16).hexdigest()


@cache
def own_fingerprint() -> str:
    """A name for this kvlint: version, size and date of each of its files and rule data, the Python that runs it."""
    parts = [__version__, sys.version]
    package = os.path.dirname(__file__)
    folders = [package, os.path.join(package, "_rules", "api"), os.path.join(os.path.dirname(package), "rules", "api")]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir():
                if not entry.name.startswith("_"):
                    folders.append(entry.path)
            elif entry.name.endswith((".py", ".json", ".toml")):
                status = entry.stat()
                parts.append(f"{entry.name} {status.st_size} {status.st_mtime_ns}")
    return digest("\n".join(parts).encode())
