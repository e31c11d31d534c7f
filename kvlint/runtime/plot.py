"""Draws where a cache's bytes go: by length, and by layer. matplotlib is an optional dependency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvlint.runtime.environment import RuntimeUnavailable
from kvlint.runtime.result import Verification


def plot(runs: Verification | Sequence[Verification], path: Path) -> None:
    """Writes a PNG (or what *path*'s suffix says): bytes over tokens, and bytes of every layer at the end, each held
    against the grouped-query formula, the formula of multi-head attention and a static cache. Sizes in KiB.

    Of several runs (one a kind of cache) the first is drawn in full, of the others what their tensors hold.

    Raises RuntimeUnavailable without matplotlib and OSError where *path* cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise RuntimeUnavailable(f'--plot needs matplotlib: pip install "kvlint[plot]" ({error})') from error
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    one, *others = [runs] if isinstance(runs, Verification) else runs
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines = (
        ("visible_bytes", f"{one.cache} cache, held in tensors", "-", "o", "C0"),
        ("held_bytes", f"{one.cache} cache, held in storages", ":", "o", "C1"),
        ("expected_bytes", "formula (kv heads)", "--", "", "C2"),
        ("mha_bytes", "formula, as MHA", "--", "", "C3"),
        ("static_bytes", "formula, preallocated", "-.", "", "C4"),
    )
    tokens = [point.tokens for point in one.growth]
    for name, label, style, marker, colour in lines:
        sizes = [getattr(point, name) / 1024 for point in one.growth]
        left.plot(tokens, sizes, linestyle=style, marker=marker or None, label=label, color=colour)
    for number, other in enumerate(others):
        sizes = [point.visible_bytes / 1024 for point in other.growth]
        left.plot([point.tokens for point in other.growth], sizes, marker="s", label=f"{other.cache} cache, held in tensors",
                  color=f"C{5 + number}")  # fmt: skip
    left.set_xlabel("tokens a row")
    left.set_ylabel("KiB")
    left.set_title("cache by length")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    width = 0.2
    for offset, (name, _, _, _, colour) in enumerate(lines[:1] + lines[2:]):
        places = [place + (offset - 1.5) * width for place in range(len(one.layers))]
        right.bar(places, [getattr(layer, name) / 1024 for layer in one.layers], width, color=colour)
    right.set_xticks(range(len(one.layers)), [f"{layer.index}\n{layer.kind}" for layer in one.layers])
    right.set_title(f"cache by layer after {one.tokens} tokens")
    figure.suptitle(f"{one.model} ({one.dtype}, {one.cache} cache, batch {one.batch})")
    figure.savefig(path, dpi=120)
