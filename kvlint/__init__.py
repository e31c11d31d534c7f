"""kvlint: finds and rewrites stale or incorrect KV-cache code of Hugging Face transformers."""

from __future__ import annotations

__version__ = "0.1.0"
