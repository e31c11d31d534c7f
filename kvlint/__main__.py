"""``python -m kvlint``."""

from __future__ import annotations

from kvlint.cli import main

if __name__ == "__main__":
    main()
