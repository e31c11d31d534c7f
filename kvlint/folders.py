"""The user's folders, as platformdirs has them: importing it would cost more than reading the result cache does.

A test compares them with platformdirs, on every platform.
"""

from __future__ import annotations

import os
import sys

NAME = "kvlint"


def cache_folder(platform: str = sys.platform) -> str:
    """Where the platform keeps caches."""
    if platform == "win32":
        return os.path.join(local_data(), NAME, NAME, "Cache")
    if platform == "darwin":
        return os.path.expanduser(f"~/Library/Caches/{NAME}")
    return os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), NAME)


def data_folder(platform: str = sys.platform) -> str:
    """Where the platform keeps what a program has learnt."""
    if platform == "win32":
        return os.path.join(local_data(), NAME, NAME)
    if platform == "darwin":
        return os.path.expanduser(f"~/Library/Application Support/{NAME}")
    return os.path.join(xdg("XDG_DATA_HOME", "~/.local/share"), NAME)


def local_data() -> str:
    return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local")


def xdg(variable: str, fallback: str) -> str:
    """A folder of the freedesktop specification, in which a relative path counts as none."""
    base = os.environ.get(variable, "")
    return base if os.path.isabs(base) else os.path.expanduser(fallback)
