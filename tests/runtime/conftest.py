"""The runtime tests need torch and transformers, run offline, and share one small random Llama."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    """Model code warns about what it deprecates; warnings are errors here, and those are not ours."""
    import torch

    from kvlint.runtime.environment import quiet

    quiet()
    torch.set_num_threads(1)
