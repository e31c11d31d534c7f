"""Bars of CPU seconds by tree and tool, drawn from the figures of a run. Needs matplotlib."""

from __future__ import annotations

import json
import statistics
from pathlib import Path


def draw(figures: str, image: str) -> None:
    """Draws the cold runs in *figures* (JSON) into *image* (PNG), on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    rows = [row for row in json.loads(Path(figures).read_text(encoding="utf-8")) if row["situation"] == "cold"]
    trees = list(dict.fromkeys(row["tree"] for row in rows))
    figure, axes = plt.subplots(1, max(len(trees), 1), figsize=(4 * max(len(trees), 1), 3.2), squeeze=False)
    for axis, tree in zip(axes[0], trees, strict=False):
        chosen = [row for row in rows if row["tree"] == tree]
        names = [row["tool"] for row in chosen]
        seconds = [statistics.median(sample["cpu"] for sample in row["samples"]) for row in chosen]
        colours = ["#b03060" if name == "kvlint" else "#6080a0" for name in names]
        axis.barh(range(len(names)), seconds, color=colours)
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("CPU seconds, cold")
        axis.set_title(tree)
    figure.tight_layout()
    figure.savefig(image, dpi=110)
