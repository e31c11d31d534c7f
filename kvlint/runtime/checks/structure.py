"""What the cache looks like: axes, heads, head dims, rows, lengths, dtypes, and that old rows stay as they were.

These checks only read the recorded run. They come first: everything else builds on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kvlint.runtime import inspection
from kvlint.runtime import layers as cache_layers
from kvlint.runtime.checks.base import Evidence, Outcome, check
from kvlint.runtime.dtypes import allowed
from kvlint.runtime.expectations import Kind
from kvlint.runtime.inspection import Moment, Problem, shape_text
from kvlint.runtime.layers import Snapshot
from kvlint.runtime.probe import Step, clone

_LAYOUT = ("update-layout", "append-axis")


def _all_steps(evidence: Evidence) -> Iterable[Step]:
    yield from evidence.recording.one_by_one
    yield from evidence.recording.steps


def _moment(evidence: Evidence) -> Moment:
    recording = evidence.recording
    tokens = sum(step.tokens for step in recording.steps if not step.error)
    return Moment(
        cache_layers.self_layers(recording.cache), evidence.expected, evidence.plan.batch, tokens,
        allowed(evidence.runner.model), evidence.runner.device,
    )  # fmt: skip


def _moment_as_given(evidence: Evidence) -> Moment:
    """As ``_moment``; a quantized layer is stood in for by the shapes that its updates were given."""
    moment = _moment(evidence)
    if not evidence.lossy:
        return moment
    empty = evidence.runner.torch.empty
    given = {update.layer: update for step in evidence.recording.steps for update in step.updates}
    layers = [
        SimpleNamespace(
            keys=empty(given[index].given, device="meta"), values=empty(given[index].given_values, device="meta")
        )
        if cache_layers.is_quantized(layer) and index in given
        else layer
        for index, layer in enumerate(moment.layers)
    ]
    return replace(moment, layers=layers)


@check("update-layout")
def update_layout(evidence: Evidence) -> Outcome:
    """Cache.update takes keys and values as [batch, kv heads, tokens, head dim]. Given before the transpose
    ([batch, tokens, kv heads, head dim]) a dynamic cache still concatenates on axis -2, which then is the heads."""
    problems: list[Problem] = []
    seen = 0
    for step in _all_steps(evidence):
        for update in step.updates:
            seen += 1
            expected = evidence.expected[update.layer] if update.layer < len(evidence.expected) else None
            heads = expected.kv_heads if expected else None
            if heads is None or len(update.given) != 4 or heads == step.tokens:
                continue
            if update.given[1:3] == (step.tokens, heads):
                wanted = shape_text((evidence.plan.batch, heads, step.tokens, update.given[3]))
                problems.append(Problem(update.layer, wanted, shape_text(update.given), "KV505"))
    if not seen:
        return Outcome.not_applicable("nothing went through Cache.update")
    return Outcome.problems(problems, f"{seen} updates")


@check("append-axis")
def append_axis(evidence: Evidence) -> Outcome:
    """A step may make keys and values longer on one axis only: the sequence, axis -2. Concatenated on axis 1 the
    cache gets more heads, on the last axis wider ones; attention then mixes positions with heads or channels."""
    problems: list[Problem] = []
    compared = 0
    for step in _all_steps(evidence):
        for index, (before, after) in enumerate(zip(step.before, step.after, strict=False)):
            for old, new in ((before.keys, after.keys), (before.values, after.values)):
                if old is None or new is None or old.dim() != new.dim():
                    continue
                compared += 1
                grown = [axis for axis in range(old.dim()) if old.shape[axis] != new.shape[axis]]
                wrong = [axis for axis in grown if axis != old.dim() - 2]
                if wrong:
                    code = {1: "KV501", old.dim() - 1: "KV502"}.get(wrong[0], "")
                    problems.append(
                        Problem(
                            index, f"only axis {old.dim() - 2} (the sequence) to grow",
                            f"axis {wrong[0]} grew: {shape_text(old.shape)} became {shape_text(new.shape)} ({step.name})",
                            code,
                        )
                    )  # fmt: skip
    if not compared:
        return Outcome.not_applicable("no layer keeps keys and values between steps")
    return Outcome.problems(problems, f"{compared} tensors compared")


@check("layer-kinds")
def layer_kinds(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    return Outcome.problems(inspection.layer_kinds(_moment(evidence)), _inventory(evidence))


def _inventory(evidence: Evidence) -> str:
    names = [type(layer).__name__ for layer in cache_layers.self_layers(evidence.recording.cache)]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


@check("batch", needs=_LAYOUT)
def batch(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    return Outcome.problems(inspection.batch_rows(_moment_as_given(evidence)))


@check("kv-heads", needs=_LAYOUT)
def kv_heads(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    moment = _moment_as_given(evidence)
    known = [e for _, _, e in moment.attending() if e.kv_heads is not None]
    if not known and not inspection.kv_heads(moment):
        return Outcome.not_applicable("no layer holds keys, or the configuration gives no number of kv heads")
    return Outcome.problems(inspection.kv_heads(moment), f"{known[0].kv_heads} kv heads" if known else "")


@check("head-dim", needs=_LAYOUT)
def head_dim(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    moment = _moment_as_given(evidence)
    known = [e for _, _, e in moment.attending() if e.key_dim is not None]
    if not known:
        return Outcome.not_applicable("no layer holds keys, or the configuration gives no head dim")
    found = f"keys {known[0].key_dim}, values {known[0].value_dim}"
    return Outcome.problems(inspection.head_dim(moment), found)


@check("stored-rows", needs=(*_LAYOUT, "seq-length"))
def stored_rows(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    layers = cache_layers.self_layers(evidence.recording.cache)
    problems: list[Problem] = []
    tokens = 0
    for step in evidence.recording.steps:
        if step.error:
            break
        tokens = step.start + step.tokens
        for index, (layer, expected, held) in enumerate(zip(layers, evidence.expected, step.after, strict=False)):
            if not expected.kind.attends or held.keys is None:
                continue
            shape = tuple(held.keys.shape)
            problem = inspection.rows_problem(layer, expected, index, tokens, shape)
            problems += [problem] if problem is not None else []
            for problem in inspection.values_problem(index, shape, held.values):
                problems.append(replace(problem, expected=f"{problem.expected} ({step.name})"))
    if not any(held.keys is not None for step in evidence.recording.steps for held in step.after):
        return Outcome.not_applicable("no layer holds keys")
    return Outcome.problems(problems, f"after {tokens} tokens")


@check("runs", needs=(*_LAYOUT, "kv-heads", "head-dim", "stored-rows"))
def runs(evidence: Evidence) -> Outcome:
    """The prompt and single tokens must run on the cache that the step before left behind."""
    recording = evidence.recording
    for step in (*recording.one_by_one, *recording.steps):
        if step.error:
            return Outcome.failed("no exception", f"{step.name}: {step.error}")
    return Outcome.passed(f"{len(recording.steps)} forwards")


@check("seq-length", needs=_LAYOUT)
def seq_length(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    problems: list[Problem] = []
    counted = 0
    for step in evidence.recording.steps:
        if step.error:
            break
        tokens = step.start + step.tokens
        for index, held in enumerate(step.after):
            if held.length is None or index >= len(evidence.expected) or not evidence.expected[index].kind.attends:
                continue
            counted += 1
            problem = inspection.length_problem(evidence.expected[index], index, tokens, held.length)
            if problem is not None:
                problems.append(replace(problem, expected=f"{problem.expected} ({step.name})"))
    if not counted:
        return Outcome.not_applicable("no layer counts tokens (states have no length)")
    return Outcome.problems(problems)


@check("mask-sizes", needs=("stored-rows",))
def mask_sizes(evidence: Evidence) -> Outcome:
    """The mask of a step is built from get_mask_sizes before the keys are there: its width must be the number of key
    rows that update then returns, and offset + width must end at the last token."""
    problems: list[Problem] = []
    compared = 0
    for step in evidence.recording.steps[1:]:
        for update in step.updates:
            sizes = step.sizes[update.layer] if update.layer < len(step.sizes) else None
            layer = cache_layers.self_layers(evidence.recording.cache)[update.layer]
            if sizes is None or len(update.returned) != 4 or evidence.expected[update.layer].kind is Kind.OTHER:
                continue
            compared += 1
            width, offset = sizes
            if width != update.returned[2]:
                problems.append(
                    Problem(update.layer, f"a mask of {update.returned[2]} columns ({step.name})", f"{width}")
                )
            elif not cache_layers.is_static(layer) and width + offset != step.start + step.tokens:
                end = step.start + step.tokens
                problems.append(
                    Problem(update.layer, f"a mask that ends at token {end} ({step.name})", f"{width + offset}")
                )
    if not compared:
        return Outcome.not_applicable("no mask sizes to compare (states, or a release before 5.4)")
    return Outcome.problems(problems, f"{compared} masks")


@check("old-rows", needs=("stored-rows", "finite"))
def old_rows(evidence: Evidence) -> Outcome:
    """Rows that were in the cache before a step are bit for bit the same after it: keys and values of past tokens
    never change. One changed number is invisible in every shape and wrong in every later token."""
    problems: list[Problem] = []
    compared = 0
    layers = cache_layers.self_layers(evidence.recording.cache)
    for step in evidence.recording.steps[1:]:
        for index, layer in enumerate(layers):
            if index >= len(step.before) or cache_layers.is_quantized(layer):
                continue
            if index < len(evidence.expected) and evidence.expected[index].kind is Kind.OTHER:
                continue
            for name, old, new in _kept(step, step.before[index], step.after[index]):
                compared += 1
                if not bool((old == new).all()):
                    changed = int((old != new).sum())
                    problems.append(
                        Problem(index, f"old {name} unchanged", f"{changed} numbers changed in {step.name}")
                    )
    if not compared:
        return Outcome.not_applicable("no layer keeps rows in plain tensors")
    return Outcome.problems(problems, f"{compared} tensors compared")


def _kept(step: Step, before: Snapshot, after: Snapshot) -> Iterable[tuple[str, Any, Any]]:
    """Of keys and values the rows that are there both before and after the step."""
    for name, old, new in (("keys", before.keys, after.keys), ("values", before.values, after.values)):
        if old is None or new is None:
            continue
        valid_old = min(step.start, int(old.shape[-2]))
        valid_new = min(step.start + step.tokens, int(new.shape[-2]))
        keep = valid_new - step.tokens
        if keep > 0:
            yield name, old[..., valid_old - keep : valid_old, :], new[..., :keep, :]


@check("states", needs=("runs",))
def states(evidence: Evidence) -> Outcome:
    """Linear and convolution layers keep states of one fixed size, with the batch first, that steps change (the same
    token twice may leave a short convolution as it was); indexer keys [batch, tokens, dim] keep their old rows."""
    problems: list[Problem] = []
    compared = 0
    kept: set[tuple[int, str]] = set()
    changed: set[tuple[int, str]] = set()
    for step in evidence.recording.steps[1:]:
        for index, (before, after) in enumerate(zip(step.before, step.after, strict=False)):
            previous = dict(before.states)
            for name, new in after.states:
                old = previous.get(name)
                if old is None:
                    continue
                compared += 1
                if name == "indexer_keys":
                    if not bool((old[:, : step.start] == new[:, : step.start]).all()):
                        problems.append(Problem(index, "old indexer keys unchanged", f"changed in {step.name}"))
                    continue
                kept.add((index, name))
                if tuple(old.shape) != tuple(new.shape):
                    problems.append(
                        Problem(index, f"{name} of one size", f"{shape_text(old.shape)}, then {shape_text(new.shape)}")
                    )
                elif new.shape[0] != evidence.plan.batch:
                    problems.append(Problem(index, f"{name}: {evidence.plan.batch} rows", shape_text(new.shape)))
                elif not bool((old == new).all()):
                    changed.add((index, name))
    if not compared:
        return Outcome.not_applicable("no layer keeps states")
    for index, name in sorted(kept - changed):
        if name.startswith("recurrent") or not any(at == index for at, _ in changed):
            problems.append(Problem(index, f"{name} that steps change", "the same numbers after every step"))
    return Outcome.problems(problems, f"{compared} states compared")


@check("shared-layers", needs=("runs",))
def shared_layers(evidence: Evidence) -> Outcome:
    """Layers that read the keys and values of an earlier layer, or have no attention, must hold nothing."""
    layers = cache_layers.self_layers(evidence.recording.cache)
    shared = [i for i, e in enumerate(evidence.expected) if e.kind is Kind.SHARED]
    if not shared:
        return Outcome.not_applicable("every layer has its own cache")
    problems = [
        Problem(index, "nothing", shape_text(layers[index].keys.shape))
        for index in shared
        if index < len(layers) and cache_layers.keys_of(layers[index]) is not None
    ]
    return Outcome.problems(problems, f"{len(shared)} layers")


@check("cross-attention", needs=("runs",))
def cross_attention(evidence: Evidence) -> Outcome:
    """Keys and values of the encoder's output are computed once and then only read: bit for bit the same after every
    step, one row for every encoder token. Computed anew in each step they give the same answer at many times the cost."""
    recording, runner = evidence.recording, evidence.runner
    steps = [step for step in recording.steps if step.cross]
    if not steps:
        if runner.loaded.encoder_decoder and not hasattr(recording.cache, "cross_attention_cache"):
            found = type(recording.cache).__name__
            return Outcome.failed("an EncoderDecoderCache with keys and values of the encoder's output", found)
        return Outcome.not_applicable("no encoder")
    problems: list[Problem] = []
    for step in steps[1:]:
        for index, (first, now) in enumerate(zip(steps[0].cross, step.cross, strict=False)):
            for name, old, new in (("keys", first.keys, now.keys), ("values", first.values, now.values)):
                if old is None or new is None or (old.shape == new.shape and bool((old == new).all())):
                    continue
                same_shape = old.shape == new.shape
                grew = "changed" if same_shape else f"{shape_text(old.shape)} became {shape_text(new.shape)}"
                problems.append(Problem(index, f"cross-attention {name} unchanged", f"{grew} in {step.name}"))
    problems = problems or _unread(evidence)
    stale = _stale(evidence) if runner.loaded.encoder_decoder and not problems else None
    return stale or Outcome.problems(problems, f"{len(steps[0].cross)} layers")


def _unread(evidence: Evidence) -> list[Problem]:
    """Cross-attention layers whose cached keys or values can be changed without any effect on the next step."""
    runner = evidence.runner
    cache, _ = runner.fill(runner.prompt(evidence.plan.prompt))
    token = runner.prompt(1, seed=5)
    plain, _ = runner.advance(token, clone(cache))
    problems = []
    for index, layer in enumerate(cache_layers.cross_layers(cache)):
        if cache_layers.keys_of(layer) is None:
            continue
        for name in ("keys", "values"):
            changed = clone(cache)
            held = cache_layers.cross_layers(changed)[index]
            # Another pattern in every number: a shift of all of them could vanish in a normalisation.
            setattr(held, name, getattr(held, name).roll(1, dims=-1) * 3.0 + 1.0)
            moved, _ = runner.advance(token, changed)
            if bool((moved == plain).all()):
                found = "the same answer when they change: computed anew in every step"
                problems.append(Problem(index, f"a step to read the cached {name} of the encoder's output", found))
                break
    return problems


def _stale(evidence: Evidence) -> Outcome | None:
    """Failed where a new cache answers for another output of the encoder as for the one before; else None."""
    runner = evidence.runner
    if not any(held.keys is not None for step in evidence.recording.steps for held in step.cross):
        return None  # the model took no part of the encoder's output
    ids = runner.prompt(evidence.plan.prompt)
    first = runner.fill(ids)[1]
    with runner.another_encoding():
        second = runner.fill(ids)[1]
    if bool((first == second).all()):
        return Outcome.failed(
            "other logits for another output of the encoder", "the same: keys and values of the one before"
        )
    return None


@check("cache-off", needs=("runs",))
def cache_off(evidence: Evidence) -> Outcome:
    """With use_cache=False a forward fills no cache and hands none back: training, scoring and contrastive passes ask for
    that to save the memory."""
    runner = evidence.runner
    _, cache = runner.forward(runner.prompt(evidence.plan.prompt), None, use_cache=False)
    filled = cache is not None and (not cache_layers.is_cache(cache) or cache_layers.stored(_held(cache)))
    if filled:
        return Outcome.failed("no cache with use_cache=False", f"a filled {type(cache).__name__}")
    return Outcome.passed()


def _held(cache: Any) -> Iterable[Any]:
    for layer in (*cache_layers.self_layers(cache), *cache_layers.cross_layers(cache)):
        yield from cache_layers.tensors_of(layer)


@check("window", needs=("stored-rows",))
def window(evidence: Evidence) -> Outcome:
    """A window says something only once it is full: a run that is shorter than it treats a windowed layer as a full one."""
    windows = {index: one.window for index, one in enumerate(evidence.expected) if one.kind.windowed and one.window}
    if not windows:
        return Outcome.not_applicable("no layer has a window")
    tokens = sum(step.tokens for step in evidence.recording.steps)
    short = [index for index, size in windows.items() if size > tokens - evidence.plan.chunk]
    if not short:
        return Outcome.passed(f"filled: {', '.join(map(str, sorted(set(windows.values()))))} tokens, {tokens} were run")
    need = max(windows[index] for index in short)
    return Outcome.not_applicable(
        f"not filled: {need} tokens, {tokens} were run (--prompt-length {need + 1} fills it); layers "
        f"{', '.join(map(str, short[:6]))}{', ...' if len(short) > 6 else ''} were checked as full ones"
    )


@check("dtype-device", needs=("runs",))
def dtype_device(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    moment = _moment(evidence)
    if not moment.attending():
        return Outcome.not_applicable("no layer holds keys")
    if evidence.plan.offloads:
        moment = Moment(moment.layers, moment.expected, moment.batch, moment.tokens, moment.dtypes, None)
    return Outcome.problems(inspection.dtype_and_device(moment), str(evidence.runner.dtype))


@check("finite", needs=("runs",))
def finite(evidence: Evidence) -> Outcome:
    """See ``inspection.EXPLANATIONS``."""
    return Outcome.problems(inspection.finite(_moment(evidence)))
