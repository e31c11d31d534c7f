"""From a region's text to facts about cache use."""

from __future__ import annotations

from kvlint.analysis.evaluate import analyse

__all__ = ["analyse"]
