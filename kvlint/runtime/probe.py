"""Runs a model step by step and records what its cache held before and after each step.

One run is: a prompt, single tokens chosen greedily, then several tokens at once (as a verifier of drafts feeds them),
and the same tokens without any cache in one forward, for reference. A second, shorter run feeds one token and one
token more: there even a cache that grows on a wrong axis can be seen growing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.dtypes import coarsest
from kvlint.runtime.environment import cache_keyword, forward_parameters, load_torch
from kvlint.runtime.expectations import Kind, expectations, text_config
from kvlint.runtime.inspection import EXPLANATIONS
from kvlint.runtime.models import Loaded, describe
from kvlint.runtime.result import CheckResult, Status


class NoCache(RuntimeError):
    """The model returned no cache, or one that is not a transformers cache; the message says what it returned."""


class Broken(NoCache):
    """The model is wrong in a way that leaves no cache to look at: *result* is the failed check that says how."""

    def __init__(self, result: CheckResult) -> None:
        self.result = result
        super().__init__(result.message)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a run: rows, prompt tokens, single steps, tokens of the chunk, left padding of the padded run's last row.

    *cache* is "dynamic", "static", "quantized", "offloaded" (dynamic) or "offloaded-static"; *only_non_sliding* is
    ``offload_only_non_sliding``, None for the class's own default (False for the dynamic, True for the static cache).
    *make_cache* is a function from the configuration and a length in tokens to an empty cache of a class of your own; it
    takes the place of *cache*, which is then only what reports call it.
    """

    batch: int = 2
    prompt: int = 6
    steps: int = 4
    chunk: int = 3
    padding: int = 2
    cache: str = "dynamic"
    quantized_backend: str = "quanto"
    residual: int = 4
    seed: int = 0
    only_non_sliding: bool | None = None
    make_cache: Callable[[Any, int], Any] | None = None

    @property
    def offloads(self) -> bool:
        """True where layers leave the device between their forwards."""
        return self.cache.startswith("offloaded")

    @property
    def tokens(self) -> int:
        """Tokens a row has taken at the end."""
        return self.prompt + self.steps + self.chunk


@dataclass(frozen=True, slots=True)
class Update:
    """One call of ``Cache.update`` (self-attention): the layer, the shapes given and the shapes returned."""

    layer: int
    given: tuple[int, ...]
    given_values: tuple[int, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One cached forward. *logits* is ``(batch, tokens, vocabulary)``; *sizes* are the mask sizes asked for before it."""

    name: str
    start: int
    tokens: int
    before: tuple[cache_layers.Snapshot, ...]
    after: tuple[cache_layers.Snapshot, ...]
    cross: tuple[cache_layers.Snapshot, ...]
    updates: tuple[Update, ...]
    sizes: tuple[tuple[int, int] | None, ...]
    logits: Any | None
    error: str = ""
    beside_bytes: int = 0


class Runner:
    """Feeds a model the way ``generate`` does: explicit positions, a mask over everything seen, the cache passed on."""

    def __init__(self, loaded: Loaded, plan: Plan) -> None:
        self.torch = load_torch()
        self.loaded, self.plan = loaded, plan
        self.model, self.config = loaded.model, loaded.config
        parameters = forward_parameters(self.model)
        self.keyword = cache_keyword(self.model)
        self.positions = "position_ids" in parameters
        self.masked = "attention_mask" in parameters
        self.device = next(self.model.parameters()).device
        self.dtype = coarsest(self.model)
        self._encoded: dict[tuple[int, int], Any] = {}
        self._encoding = 0
        layers = expectations(self.config)
        self.states_only = bool(layers) and all(layer.kind is Kind.LINEAR for layer in layers)
        """No layer attends: padding matters while the prompt is read, and later masks are not passed (as in generate)."""

    def prompt(self, tokens: int, rows: int | None = None, seed: int = 0) -> Any:
        """Random ids ``(rows, tokens)`` that are no special tokens of small vocabularies; the same for the same seed."""
        generator = self.torch.Generator().manual_seed(self.plan.seed * 1000 + seed)
        high = min(100, self.vocabulary)
        shape = (rows or self.plan.batch, tokens)
        return self.torch.randint(min(5, high - 1), high, shape, generator=generator).to(self.device)

    @property
    def vocabulary(self) -> int:
        """How many ids can be fed; logits may be over more (sound codes beside text)."""
        return int(getattr(text_config(self.config), "vocab_size", 160) or 160)

    def new_cache(self, length: int | None = None) -> Any | None:
        """An empty cache of the plan's kind for *length* tokens, or None: the model then builds its own."""
        import transformers

        length = length or self.plan.tokens + self.plan.chunk + 2
        kind = self.plan.cache
        cache: Any
        if self.plan.make_cache is not None:
            return self.plan.make_cache(self.config, length)
        if kind == "dynamic":
            return None
        if kind == "static":
            cache = transformers.StaticCache(config=self.config, max_cache_len=length)
        elif self.plan.offloads:
            if self.device.type != "cuda":
                raise NoCache("an offloaded cache needs a CUDA device: it prefetches on a stream of its own")
            options: dict[str, Any] = {"config": self.config, "offloading": True}
            if self.plan.only_non_sliding is not None:
                options["offload_only_non_sliding"] = self.plan.only_non_sliding
            if kind == "offloaded-static":
                cache = transformers.StaticCache(max_cache_len=length, **options)
            else:
                cache = transformers.DynamicCache(**options)
        elif kind == "quantized":
            grouped = {} if self.plan.quantized_backend == "fp8" else {
                "residual_length": self.plan.residual, "q_group_size": 16, "nbits": 4,
            }  # fmt: skip
            cache = transformers.QuantizedCache(backend=self.plan.quantized_backend, config=self.config, **grouped)
        else:
            raise ValueError(f"unknown cache kind {kind!r}")
        if self.loaded.encoder_decoder:
            return transformers.EncoderDecoderCache(cache, transformers.DynamicCache(config=self.config))
        return cache

    def forward(
        self, ids: Any, cache: Any | None, *, use_cache: bool, mask: Any | None = None, explicit: bool = True
    ) -> tuple[Any, Any | None]:
        """Logits ``(rows, tokens, vocabulary)`` in float32 and the cache that came back.

        *mask* is ``(rows, past + tokens)`` with 0 for padding; without *explicit* neither it nor positions are given.
        """
        output = self._output(ids, cache, use_cache=use_cache, mask=mask, explicit=explicit)
        logits = output.logits if hasattr(output, "logits") else output[0]
        if logits.dim() != 3 or tuple(logits.shape[:2]) != tuple(ids.shape):
            raise NoCache(f"returns logits of shape {tuple(logits.shape)} for ids of shape {tuple(ids.shape)}")
        return logits.float(), cache_layers.output_cache(output)

    def hidden(self, ids: Any, cache: Any | None) -> tuple[Any, ...]:
        """What every layer hands on for *ids*, the embeddings first, each ``(rows, tokens, width)``; empty where the
        model does not say. With a cache, *ids* are fed onto it."""
        output = self._output(ids, cache, use_cache=cache is not None, hidden=True)
        states = getattr(output, "decoder_hidden_states", None) or getattr(output, "hidden_states", None)
        return tuple(states or ())

    def _output(
        self, ids: Any, cache: Any | None, *, use_cache: bool, mask: Any | None = None, explicit: bool = True,
        hidden: bool = False,
    ) -> Any:  # fmt: skip
        past = self._past(cache)
        if mask is None:
            mask = ids.new_ones((ids.shape[0], past + ids.shape[1]))
        arguments: dict[str, Any] = {"use_cache": use_cache}
        if cache is not None and self.keyword is not None:
            arguments[self.keyword] = cache
        if self.loaded.encoder_decoder:
            arguments |= self._encoder_arguments(ids.shape[0])
            arguments["decoder_input_ids"] = ids
        else:
            arguments["input_ids"] = ids
            if explicit and self.masked and not (self.states_only and past):
                arguments["attention_mask"] = mask
            if explicit and self.positions:
                arguments["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :].contiguous()
        if hidden:
            arguments |= {"output_hidden_states": True, "return_dict": True}
        with self.torch.no_grad():
            return self.model(**arguments)

    def _past(self, cache: Any | None) -> int:
        """Tokens a row of *cache* has taken: kept on the object by ``advance``, because linear layers do not count."""
        return int(getattr(cache, "_kvlint_tokens", 0)) if cache is not None else 0

    def advance(self, ids: Any, cache: Any | None, **options: Any) -> tuple[Any, Any]:
        """One cached forward; returns logits and the cache. Raises NoCache where none comes back (and none was
        filled in place), Broken where it is in the legacy format."""
        past = self._past(cache)
        logits, returned = self.forward(ids, cache, use_cache=True, **options)
        if returned is None and cache is not None:
            returned = cache
        if returned is None:
            raise NoCache("returns no cache with use_cache=True")
        if cache_layers.is_legacy(returned):
            found = f"a tuple of {len(returned)} tuples of tensors (the legacy format)"
            raise Broken(
                CheckResult("cache-class", Status.FAILED, "KV301", "a Cache object", found, EXPLANATIONS["cache-class"])
            )
        cache_layers.self_layers(returned)
        returned._kvlint_tokens = past + ids.shape[1]
        return logits, returned

    def uncached(self, ids: Any, mask: Any | None = None) -> Any:
        """Logits of *ids* without a cache."""
        return self.forward(ids, None, use_cache=False, mask=mask)[0]

    def fill(self, ids: Any, recording: bool = False) -> tuple[Any, Any]:
        """A new cache that has taken *ids* in one forward, and the logits.

        *recording* asks its layers to keep what they would drop, so that tokens can be taken back; it has to be asked
        for before the first forward, so the cache is then built here and not by the model.
        """
        cache = self.new_cache()
        if recording:
            cache = cache if cache is not None else self.built_cache()
            if hasattr(cache, "activate_past_recording"):
                cache.activate_past_recording()
        logits, cache = self.advance(ids, cache)
        return cache, logits

    def built_cache(self) -> Any:
        """An empty dynamic cache as the model would build it itself."""
        import transformers

        cache = transformers.DynamicCache(config=self.config)
        if self.loaded.encoder_decoder:
            return transformers.EncoderDecoderCache(cache, transformers.DynamicCache(config=self.config))
        return cache

    @property
    def text_encoder(self) -> bool:
        """True where the encoder of an encoder-decoder model takes ids (and not sound or images)."""
        encoder = self.model.get_encoder()
        return "input_ids" in (getattr(self.model, "main_input_name", ""), getattr(encoder, "main_input_name", ""))

    @contextmanager
    def another_encoding(self) -> Iterator[None]:
        """Inside the block the encoder's output is another one (of ids and random states that are not used elsewhere)."""
        self._encoding = 50
        try:
            yield
        finally:
            self._encoding = 0

    def _encoder_arguments(self, rows: int) -> dict[str, Any]:
        """The encoder's output for *rows* rows, computed once: row i is the same for every number of rows.

        Of an encoder of sound or images the output is drawn at random: what is checked is the decoder's cache.
        """
        key = (rows, self._encoding)
        if key not in self._encoded:
            ids = self.prompt(5, rows=16, seed=7 + self._encoding)[:rows]
            mask = self.torch.ones_like(ids)
            if self.text_encoder:
                with self.torch.no_grad():
                    output = self.model.get_encoder()(input_ids=ids, attention_mask=mask)
                self._encoded[key] = {"encoder_outputs": output, "attention_mask": mask}
            else:
                from transformers.modeling_outputs import BaseModelOutput

                config = text_config(self.config)
                width = getattr(config, "cross_attention_hidden_size", None) or config.hidden_size
                generator = self.torch.Generator().manual_seed(self.plan.seed + 9 + self._encoding)
                states = self.torch.randn(16, 5, int(width), generator=generator)[:rows]
                output = BaseModelOutput(last_hidden_state=states.to(self.device).to(self.dtype))
                output.attention_mask = mask  # some encoders of sound shorten their mask and hand it on
                self._encoded[key] = {"encoder_outputs": output}
        return dict(self._encoded[key])


OnUpdate = Callable[[Any, int, Any, Any, Any], Any]
"""Called after an update with the cache, the layer, the keys and values given, and what the update returned; what it
returns is handed to the model instead, unless that is None."""


@contextmanager
def updates_seen_by(callback: OnUpdate) -> Iterator[None]:
    """Calls *callback* after every ``Cache.update`` of the block, subclasses' own updates included."""
    from transformers.cache_utils import Cache

    owners = [cls for cls in _with_subclasses(Cache) if "update" in vars(cls)]
    kept = [(cls, vars(cls)["update"]) for cls in owners]
    depth = [0]

    def replacement(original: Any) -> Any:
        @functools.wraps(original)
        def update(self: Any, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                returned = original(self, key_states, value_states, layer_idx, *args, **kwargs)
            finally:
                depth[0] -= 1
            if depth[0]:  # a subclass's update that calls its base class's: one update, seen once
                return returned
            changed = callback(self, layer_idx, key_states, value_states, returned)
            return returned if changed is None else changed

        return update

    for cls, original in kept:
        cls.update = replacement(original)
    try:
        yield
    finally:
        for cls, original in kept:
            cls.update = original


def _with_subclasses(cls: Any) -> set[Any]:
    return {cls}.union(*(_with_subclasses(one) for one in cls.__subclasses__()))


@contextmanager
def recorded_updates(into: list[Update]) -> Iterator[None]:
    """Notes every ``Cache.update`` of the block."""

    def note(cache: Any, layer: int, keys: Any, values: Any, returned: Any) -> None:
        into.append(Update(layer, tuple(keys.shape), tuple(values.shape), tuple(returned[0].shape)))

    with updates_seen_by(note):
        yield


def take_step(runner: Runner, name: str, ids: Any, cache: Any | None) -> tuple[Step, Any | None]:
    """One recorded forward. An exception of the model is kept in ``Step.error``; the cache is then as it was left."""
    before = cache_layers.snapshot(cache)
    sizes: tuple[tuple[int, int] | None, ...] = ()
    if cache is not None:
        count = len(cache_layers.self_layers(cache))
        sizes = tuple(cache_layers.mask_sizes_of(cache, index, ids.shape[1]) for index in range(count))
    start = int(getattr(cache, "_kvlint_tokens", 0))
    updates: list[Update] = []
    logits, error = None, ""
    with recorded_updates(updates):
        try:
            logits, cache = runner.advance(ids, cache)
        except (NoCache, cache_layers.UnsupportedCache, MemoryError):
            raise
        except Exception as problem:  # a broken attention module may raise anything: that is what is looked for
            if type(problem).__name__ == "OutOfMemoryError":
                raise
            error = describe(problem)
    own = _self_only(updates, cache)
    step = Step(
        name, start, int(ids.shape[1]), before, cache_layers.snapshot(cache), cache_layers.cross_snapshot(cache),
        tuple(own), sizes, logits, error,
        cache_layers.shown(cache_layers.beside_layers(cache)) if cache is not None else 0,
    )  # fmt: skip
    return step, cache


def _self_only(updates: list[Update], cache: Any | None) -> list[Update]:
    """Of an encoder-decoder cache's updates the first of each layer: self-attention comes before cross-attention."""
    if not cache_layers.cross_layers(cache):
        return updates
    seen: set[int] = set()
    return [update for update in updates if not (update.layer in seen or seen.add(update.layer))]  # type: ignore[func-returns-value]


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole run. *ids* is ``(batch, tokens)``: everything fed; *reference* the uncached logits of the same ids.

    *consistent* is whether the uncached model, given only the prompt, answers as it does given everything: where it
    does not, cached and uncached logits cannot be compared position by position. *leak* is the largest change of the
    prompt's uncached logits when only later tokens change: a causal model has none. *chunk_error* is what the model
    raised when it was fed several tokens at once onto a filled cache.
    """

    steps: tuple[Step, ...]
    one_by_one: tuple[Step, ...]
    ids: Any
    reference: Any | None
    consistent: bool
    cache: Any
    inconsistency: float = 0.0
    leak: float | None = None
    chunk_error: str = ""


def record(runner: Runner) -> Recording:
    """Runs *runner*'s plan. Raises NoCache or UnsupportedCache where the model keeps no cache that could be checked."""
    plan, torch = runner.plan, runner.torch
    if runner.keyword is None:
        raise NoCache("its forward takes no cache (it keeps a state or memory of its own format)")
    one_by_one = _one_by_one(runner)
    ids = runner.prompt(plan.prompt)
    step, cache = take_step(runner, "prompt", ids, runner.new_cache())
    if step.error and cache is None:
        _refuse_prompt(runner, ids, step.error)
    steps = [step]
    for number in range(plan.steps):
        if steps[-1].error:
            break
        token = steps[-1].logits[:, -1:].argmax(-1) % runner.vocabulary  # type: ignore[index]
        step, cache = take_step(runner, f"step {number + 1}", token, cache)
        steps.append(step)
        ids = torch.cat([ids, token], dim=1)
    chunk_error = ""
    if not steps[-1].error:
        chunk = runner.prompt(plan.chunk, seed=1)
        kept = clone(cache)
        step, cache = take_step(runner, "chunk", chunk, cache)
        ids = torch.cat([ids, chunk], dim=1)
        if step.error:
            # Judged on its own: a model that takes one token at a time is checked with those.
            chunk_error, cache = step.error, kept
        else:
            steps.append(step)
    reference, gap, leak = None, 0.0, None
    if not any(step.error for step in steps):
        reference = runner.uncached(ids)
        alone = runner.uncached(ids[:, : plan.prompt])
        gap = float((reference[:, : plan.prompt] - alone).abs().max())
        others = torch.cat([ids[:, : plan.prompt], runner.prompt(ids.shape[1] - plan.prompt, seed=6)], dim=1)
        leak = float((reference - runner.uncached(others))[:, : plan.prompt].abs().max())
    consistent = reference is not None and gap <= 1e-2 * max(1.0, float(reference.abs().max()))
    return Recording(tuple(steps), one_by_one, ids, reference, consistent, cache, gap, leak, chunk_error)


def _refuse_prompt(runner: Runner, ids: Any, error: str) -> NoReturn:
    """Raises Broken where the prompt runs without a cache and not with one, else NoCache."""
    try:
        runner.uncached(ids)
    except Exception as problem:  # the model cannot be run at all on such inputs
        if type(problem).__name__ == "OutOfMemoryError":
            raise
        raise NoCache(f"the prompt cannot be run: {error}") from problem
    raise Broken(
        CheckResult(
            "runs", Status.FAILED, "", "the prompt to run with use_cache=True as it does without", error,
            "The prompt and single tokens must run on the cache that the step before left behind.",
        )
    )  # fmt: skip


def _one_by_one(runner: Runner) -> tuple[Step, ...]:
    """One token, then one token more: the run in which every axis but the one that grows has its final size."""
    ids = runner.prompt(2)
    first, cache = take_step(runner, "first token", ids[:, :1], runner.new_cache())
    if first.error:
        return (first,)
    second, _ = take_step(runner, "second token", ids[:, 1:], cache)
    return first, second


def clone(cache: Any) -> Any:
    """An independent copy of *cache*. The prefetch stream of an offloaded cache cannot be copied: it is shared."""
    owner = cache_layers.self_attention(cache)
    stream = vars(owner).pop("prefetch_stream", None)
    try:
        copied = copy.deepcopy(cache)
    finally:
        if stream is not None:
            owner.prefetch_stream = stream
    if stream is not None:
        cache_layers.self_attention(copied).prefetch_stream = stream
    return copied
