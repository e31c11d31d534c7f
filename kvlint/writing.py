"""Writing a file in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress


def write_atomically(path: str, data: bytes, create_folder: bool = False) -> None:
    """Replaces the file at *path* (or the one it is a link to) in one step; mode and owner are kept. Raises OSError."""
    import tempfile

    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if create_folder:
        os.makedirs(folder, exist_ok=True)
    before = os.stat(target) if os.path.exists(target) else None
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, "permission denied", path)
    handle, temporary = tempfile.mkstemp(prefix=".kvlint-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if before is not None:
            keep_owner(temporary, before)
            os.chmod(temporary, before.st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def keep_owner(path: str, before: os.stat_result) -> None:
    """Gives a new file to the owner of the one it replaces, where we may (as root, who lints the files of others)."""
    change_owner: Callable[[str, int, int], None] | None = getattr(os, "chown", None)
    if change_owner is not None:
        with suppress(OSError):
            change_owner(path, before.st_uid, before.st_gid)
