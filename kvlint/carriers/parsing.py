"""Whether a piece of text is Python."""

from __future__ import annotations

import ast
import warnings


def parsed(text: str) -> ast.Module | None:
    """The tree of *text*, or None where it is not Python (or Python's parser gives up on it)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def parses(text: str) -> bool:
    """Whether *text* is Python; ``await`` and ``return`` outside of functions count as such."""
    return parsed(text) is not None


def literal_value(text: str) -> str | None:
    """The string that the literal *text* stands for; None where it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return value if isinstance(value, str) else None
