"""The checks of a recorded run. Every module of this package defines some, with the ``check`` decorator.

``run_checks`` finds them by walking the package, orders them by what they build on, and turns each into a result.
"""

from __future__ import annotations

from kvlint.runtime.checks.base import Evidence, Outcome, all_checks, check, run_checks

__all__ = ["Evidence", "Outcome", "all_checks", "check", "run_checks"]
