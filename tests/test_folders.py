"""The user's folders are those of platformdirs."""

from __future__ import annotations

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from kvlint.folders import cache_folder, data_folder


@pytest.mark.parametrize("base", ["", "/somewhere/else"])
def test_unix(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("XDG_DATA_HOME", base)
    there = Unix("kvlint")
    assert cache_folder("linux") == there.user_cache_dir
    assert data_folder("linux") == there.user_data_dir


def test_a_relative_base_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    set_wrongly = cache_folder("linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert set_wrongly == cache_folder("linux")


def test_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    there = MacOS("kvlint")
    assert cache_folder("darwin") == there.user_cache_dir
    assert data_folder("darwin") == there.user_data_dir


def test_this_platform() -> None:
    assert cache_folder() == platformdirs.user_cache_dir("kvlint")
    assert data_folder() == platformdirs.user_data_dir("kvlint")
