"""Which cached rows a new token sees, and whether what is read from the cache is what was written to it.

One token is fed onto a filled cache, the same in every row of a batch, and in row *i* of the batch the values that
``Cache.update`` returns for position *i* are disturbed. The rows whose logits change are the positions that the new token
sees. That needs neither masks nor names of modules, and one forward a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, Outcome, check, correlation
from kvlint.runtime.expectations import Kind, LayerExpectation
from kvlint.runtime.inspection import Problem
from kvlint.runtime.probe import Runner, clone, updates_seen_by

_SEEN = 1e-6
"""A change of the logits above this part of the largest one is a change; rows that are not seen change nothing at all."""

_ALIKE = 0.9
"""Least correlation of quantized rows with the rows that were given: 4 bits in groups of 16 keep 0.99."""


@check("reach", needs=("cached-steps",))
def reach(evidence: Evidence) -> Outcome:
    """A new token must see every earlier position of its layer and itself: all of a full layer, the window of a windowed
    one, its chunk of a chunked one. A mask that is off by one hides the newest token, or shows one too many, with the
    cache as without it, so that both agree."""
    runner = evidence.runner
    past = min(evidence.plan.prompt + evidence.plan.steps, 14)
    ids = runner.prompt(past + 1, rows=1, seed=8).expand(past + 1, -1)
    cache, _ = runner.fill(ids[:, :past])
    problems: list[Problem] = []
    judged = 0
    plain, _ = runner.advance(ids[:, past:], clone(cache))
    for index, (layer, expected) in enumerate(zip(cache_layers.self_layers(cache), evidence.expected, strict=False)):
        if not expected.kind.attends or expected.kind in (Kind.OTHER, Kind.INDEXED):
            continue
        moved, shown = _disturbed(runner, clone(cache), ids[:, past:], index, layer, past)
        if moved is None:
            continue
        change = (moved - plain).abs().amax(dim=(1, 2))
        seen = {position for position in shown if float(change[position]) > _SEEN * float(plain.abs().max())}
        if not seen:
            continue  # nothing of this layer reaches the logits
        judged += 1
        wanted = _visible(expected, past) & set(shown)
        if seen != wanted and not _undeclared_window(evidence, expected, seen, past):
            problems.append(Problem(index, f"token {past} to see positions {_span(wanted)}", _span(seen)))
    if not judged:
        return Outcome.not_applicable("no layer returns its rows from Cache.update in a known order")
    return Outcome.problems(problems, f"{judged} layers, {past + 1} positions")


def _disturbed(
    runner: Runner, cache: Any, token: Any, index: int, layer: Any, past: int
) -> tuple[Any | None, tuple[int, ...]]:
    """Logits of *token* where batch row i has its values at position i disturbed in layer *index*, and the positions
    that were; None where the layer's update was not called or returned another layout."""
    torch = runner.torch
    shown: list[int] = []
    own = cache_layers.self_attention(cache)

    def disturb(held: Any, at: int, keys: Any, values: Any, returned: Any) -> Any:
        if held is not own or at != index or shown:
            return None
        columns = _columns(layer, int(returned[1].shape[-2]), past)
        if returned[1].dim() != 4 or returned[1].shape[0] != token.shape[0] or columns is None:
            return None
        changed = returned[1].clone()
        amount = 10 * max(1.0, float(changed.abs().max()))
        for position, column in columns.items():
            changed[position, :, column] += amount
        shown.extend(columns)
        return returned[0], changed

    with updates_seen_by(disturb), torch.no_grad():
        logits, _ = runner.advance(token, cache)
    return (logits if shown else None), tuple(shown)


def _columns(layer: Any, width: int, past: int) -> dict[int, int] | None:
    """Position -> column of the rows that a step after *past* tokens gets back, oldest first, the new one last."""
    if cache_layers.is_static(layer) and not (cache_layers.is_sliding(layer) and past >= int(layer.max_cache_len)):
        return {position: position for position in range(past + 1)} if width > past else None
    return {past + 1 - width + column: column for column in range(width)} if width <= past + 1 else None


def _visible(expected: LayerExpectation, past: int) -> set[int]:
    """Positions that the token after *past* others may see."""
    positions = range(past + 1)
    if expected.window and expected.kind is Kind.CHUNKED:
        return {position for position in positions if position // expected.window == past // expected.window}
    if expected.window:
        return {position for position in positions if position > past - expected.window}
    return set(positions)


def _undeclared_window(evidence: Evidence, expected: LayerExpectation, seen: set[int], past: int) -> bool:
    """True where a full layer sees its newest rows only and the configuration has that number: local attention under a
    name of the family's own."""
    suffix = expected.window is None and seen == set(range(past + 1 - len(seen), past + 1)) and len(seen) > 1
    numbers = {value for value in vars(evidence.runner.config).values() if isinstance(value, int)}
    return suffix and len(seen) in numbers


def _span(positions: set[int]) -> str:
    ordered = sorted(positions)
    if ordered and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered)) or "none"


@check("quantized-rows", needs=("runs",))
def quantized_rows(evidence: Evidence) -> Outcome:
    """The rows that a quantized cache returns must be the rows it was given, but for rounding: quantized along one axis
    and read back along another they have the right shape and other numbers."""
    if not evidence.lossy:
        return Outcome.not_applicable("rows are not quantized")
    runner, ids = evidence.runner, evidence.recording.ids
    problems: list[Problem] = []
    worst = 1.0
    given, returned = _rows(runner, ids, evidence.plan.prompt)
    for index in sorted(returned):
        for name, mine, theirs in zip(("keys", "values"), given[index], returned[index], strict=True):
            if mine.shape != theirs.shape:
                problems.append(Problem(index, f"{name} {list(mine.shape)}", f"{list(theirs.shape)}"))
                continue
            alike = correlation(mine, theirs)
            scale = float((mine.double() * theirs).sum() / (mine.double() ** 2).sum().clamp(min=1e-30))
            worst = min(worst, alike)
            if alike < _ALIKE:
                expected = f"{name} read back as they were written (a correlation of at least {_ALIKE})"
                problems.append(Problem(index, expected, f"{alike:.2f}"))
            elif not 0.8 < scale < 1.25:
                problems.append(Problem(index, f"{name} read back as large as they were written", f"{scale:.2f} times"))
    return Outcome.problems(problems, f"{len(returned)} layers, correlation {worst:.3f} and more")


def _rows(runner: Runner, ids: Any, prompt: int) -> tuple[dict[int, Sequence[Any]], dict[int, Sequence[Any]]]:
    """By layer the keys and values that were given to the cache, all steps together, and what the last step got back."""
    parts: dict[int, list[tuple[Any, Any]]] = {}
    last: dict[int, Sequence[Any]] = {}

    def note(held: Any, layer: int, keys: Any, values: Any, returned: Any) -> None:
        if not cache_layers.is_quantized(cache_layers.self_layers(held)[layer]):
            return  # the encoder's keys, under the same number
        parts.setdefault(layer, []).append((keys, values))
        last[layer] = returned

    with updates_seen_by(note):
        _, cache = runner.advance(ids[:, :prompt], runner.new_cache())
        for position in range(prompt, int(ids.shape[1])):
            _, cache = runner.advance(ids[:, position : position + 1], cache)
    given: dict[int, Sequence[Any]] = {
        layer: tuple(runner.torch.cat([pair[side] for pair in pairs], dim=-2) for side in (0, 1))
        for layer, pairs in parts.items()
    }
    return given, last
