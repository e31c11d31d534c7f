"""Writing a file in one step."""

from __future__ import annotations

import os


def write_atomically(path: str, data: bytes, create_folder: bool = False) -> None:
    """Replaces the file at *path* (or the one it is a link to) in one step; its mode is kept. Raises OSError."""
    import tempfile

    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if create_folder:
        os.makedirs(folder, exist_ok=True)
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, "permission denied", path)
    handle, temporary = tempfile.mkstemp(prefix=".kvlint-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode is not None:
            os.chmod(temporary, mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
