"""What only an accelerator can show, in one run of a few minutes: where tensors lie, half precision, attention kernels,
a compiled decode on a static cache, offloaded and quantized caches, peak memory against the bytes of the cache, and the
stored values against a CPU in float32. Called by ``scripts/gpu_check.sh``.

Every part states what must hold and notes what it found; one that raises is recorded as an error and the run goes on.
The JSON is written anew after every part, so that a run which is cut off leaves what it has. ``--device cpu`` is the dry
run: the same parts, small; what cannot be there without CUDA is listed as not run, with its reason.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from kvlint.runtime import layers as cache_layers
from kvlint.runtime.environment import cache_keyword, forward_parameters, load_torch, load_transformers, quiet
from kvlint.runtime.models import Source, describe, load
from kvlint.runtime.probe import NoCache, Plan, Runner, updates_seen_by
from kvlint.runtime.result import Status
from kvlint.runtime.verify import Options, verify

FAMILIES = ("llama", "mistral", "gemma3_text", "gpt_oss", "deepseek_v3", "qwen3_next", "t5")
"""One family a cache layout: full, sliding, mixed, mixed with sinks, latent, linear with full, encoder-decoder."""

_RELATIVE = {"float32": 2e-3, "bfloat16": 5e-2}
"""Largest difference of a stored number to the one of a CPU in float32, in parts of the tensor's largest: rows of later
layers carry the rounding of all before. Measured on a CPU with these models: 2e-6 in float32, 2e-2 in bfloat16."""


class NotHere(RuntimeError):
    """What a part needs is not there; the message says what."""


@dataclass
class Findings:
    """What one part found: *checks* that must hold, *figures* to be read, *skipped* what of it was not run."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def expect(self, what: str, holds: bool, found: object = "") -> None:
        """Notes that *what* must hold and whether it does, with what was *found*."""
        self.checks.append({"check": what, "holds": bool(holds), "found": str(found)})


@dataclass(frozen=True)
class Part:
    """A part of the run. *optional* ones may be missing (a package that is not installed) without a word in the exit code."""

    name: str
    run: Callable[[Findings], None]
    optional: bool = False


def parts(device: str) -> Iterator[Part]:
    """All parts, the most telling first: a run that hits its limit has these."""
    cuda = device.startswith("cuda")
    half = "bfloat16"
    for family in ("llama", "gemma3_text", "deepseek_v3", "qwen3_next"):
        for dtype in ("float32", half):
            yield Part(f"values {family} {dtype}", partial(_values, family, device, dtype))
    for family in FAMILIES:
        for kind in ("dynamic", "static"):
            yield Part(f"placement {family} {kind}", partial(_placement, family, device, half, kind))
    for kind in ("offloaded", "offloaded-static"):
        for family in ("llama", "gemma3_text"):
            yield Part(f"placement {family} {kind}", partial(_placement, family, device, half, kind))
        yield Part(f"prefetch llama {kind}", partial(_prefetch, device, half, kind))
    for family in ("llama", "gpt2"):
        yield Part(f"quantized {family}", partial(_quantized, family, device, half))
    yield Part("compiled static decode", partial(_compiled, device, half))
    for windowed in (False, True):
        for length in (1024, 16384) if cuda else (64, 256):
            name = f"memory {'mixed' if windowed else 'full'} {length}"
            yield Part(name, partial(_memory, device, half if cuda else "float32", length, windowed))
    for family in FAMILIES:
        for kind in ("dynamic", "static"):
            # The model's own attention implementation: sdpa, or eager where the family has sinks.
            yield Part(f"verify {family} {kind}", partial(_verified, family, device, half, "", kind))
    for family in ("llama", "mistral"):
        for attention in ("eager", "sdpa"):
            yield Part(
                f"attention {family} {attention}", partial(_verified, family, device, half, attention, "dynamic")
            )
        yield Part(f"attention {family} flash", partial(_flash, family, device, half), optional=True)


def _loaded(family: str, device: str, dtype: str, attention: str = "") -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if family not in CONFIG_MAPPING:
        raise NotHere(f"this release of transformers has no {family}")
    return load(Source(family, random_weights=True, device=device, dtype=dtype, attention=attention))


def _verified(family: str, device: str, dtype: str, attention: str, kind: str, found: Findings) -> None:
    """All checks of ``kvlint verify``, and the attention implementation that was asked for."""
    _loaded(family, "cpu", "float32")
    source = Source(family, random_weights=True, device=device, dtype=dtype, attention=attention)
    result = verify(Options(source, Plan(cache=kind)))
    if result.unsupported:
        raise NotHere(result.unsupported)
    for one in result.checks:
        if one.status in (Status.PASSED, Status.FAILED):
            found.expect(f"{one.code} {one.name}".strip(), one.status is Status.PASSED, one.message)
    if attention:
        found.expect(f"attention is {attention}", result.attention == attention, result.attention)
    found.figures["attention"] = result.attention
    found.figures["deviations"] = {one.name: one.deviation for one in result.checks if one.deviation is not None}


def _flash(family: str, device: str, dtype: str, found: Findings) -> None:
    from transformers import utils

    probe: Any = utils
    if not device.startswith("cuda"):
        raise NotHere("flash attention needs CUDA")
    if not probe.is_flash_attn_2_available():
        raise NotHere("flash_attn is not installed")
    _verified(family, device, dtype, "flash_attention_2", "dynamic", found)


def _filled(family: str, device: str, dtype: str, kind: str) -> tuple[Runner, Any]:
    """A runner of *family* and a cache of *kind* that took a prompt and two single tokens."""
    if kind.startswith("offloaded") and not device.startswith("cuda"):
        raise NotHere("an offloaded cache needs CUDA: it prefetches on a stream of its own")
    runner = Runner(_loaded(family, device, dtype), Plan(cache=kind))
    ids = runner.prompt(8)
    _, cache = runner.advance(ids[:, :6], runner.new_cache())
    for position in (6, 7):
        _, cache = runner.advance(ids[:, position : position + 1], cache)
    return runner, cache


def _placement(family: str, device: str, dtype: str, kind: str, found: Findings) -> None:
    """Device and dtype of every tensor that the cache stores."""
    runner, cache = _filled(family, device, dtype, kind)
    resting = _resting(cache) if kind.startswith("offloaded") else frozenset[int]()
    here = runner.device.type
    for part, layers in (("self", cache_layers.self_layers(cache)), ("cross", cache_layers.cross_layers(cache))):
        for index, layer in enumerate(layers):
            wanted = "cpu" if part == "self" and index in resting else here
            for number, tensor in enumerate(cache_layers.tensors_of(layer)):
                where = f"{part} layer {index} tensor {number}"
                found.expect(f"{where} on {wanted}", tensor.device.type == wanted, tensor.device)
                if tensor.is_floating_point() and number < 2 and cache_layers.keys_of(layer) is not None:
                    found.expect(f"{where} in {dtype}", str(tensor.dtype) == f"torch.{dtype}", tensor.dtype)
    for number, tensor in enumerate(cache_layers.beside_layers(cache)):
        found.expect(f"tensor {number} beside the layers on {here}", tensor.device.type == here, tensor.device)
    found.figures["tensors"] = len(found.checks)


def _resting(cache: Any) -> frozenset[int]:
    """Layers of an offloaded cache whose keys and values lie on the CPU between two forwards: all that are offloaded but the
    first of them, which the last update of a forward fetches for the next (``Cache.update``, transformers 5.24.0)."""
    inner = cache_layers.self_attention(cache)
    layers = cache_layers.self_layers(cache)
    offloaded = [
        index for index, layer in enumerate(layers) if not (inner.only_non_sliding and cache_layers.is_sliding(layer))
    ]
    return frozenset(offloaded[1:])


def _prefetch(device: str, dtype: str, kind: str, found: Findings) -> None:
    """Inside a forward: when a layer is updated the next one is on its way to the device, and the layer itself goes."""
    runner, cache = _filled("llama", device, dtype, kind)
    layers = cache_layers.self_layers(cache)
    seen: list[tuple[int, str, str]] = []

    def look(_: Any, layer: int, keys: Any, values: Any, returned: Any) -> None:
        following = layers[(layer + 1) % len(layers)]
        seen.append((layer, layers[layer].keys.device.type, following.keys.device.type))

    with updates_seen_by(look):
        runner.advance(runner.prompt(1, seed=4), cache)
    found.expect("every layer is updated", [layer for layer, _, _ in seen] == list(range(len(layers))), seen)
    for layer, own, following in seen:
        found.expect(f"layer {layer} goes to the CPU after its update", own == "cpu", own)
        found.expect(f"the layer after {layer} is fetched", following == runner.device.type, following)


def _quantized(family: str, device: str, dtype: str, found: Findings) -> None:
    """Every quantizing backend that is installed: all checks, and fewer bytes than plain rows take."""
    _loaded(family, "cpu", "float32")
    ran = 0
    for backend in ("fp8", "quanto", "hqq"):
        source = Source(family, random_weights=True, device=device, dtype=dtype)
        result = verify(Options(source, Plan(prompt=16, cache="quantized", quantized_backend=backend)))
        if result.unsupported:
            found.skipped.append(f"{backend}: {result.unsupported}")
            continue
        ran += 1
        for one in result.failures:
            found.expect(f"{backend} {one.code} {one.name}", False, one.message)
        held, plain = (
            sum(getattr(layer, name) for layer in result.layers) for name in ("visible_bytes", "expected_bytes")
        )
        found.expect(f"{backend} takes less than plain rows", held < plain, f"{held} of {plain} bytes")
        away = [layer.index for layer in result.layers if layer.device and not layer.device.startswith(device[:4])]
        found.expect(f"{backend} rows on {device}", not away, f"layers {away} elsewhere" if away else device)
    if not ran:
        raise NotHere("no quantizing backend: " + "; ".join(found.skipped))


def _values(family: str, device: str, dtype: str, found: Findings) -> None:
    """Every stored tensor against the same model's on a CPU in float32, after the same ids."""
    torch = load_torch()
    plain = _loaded(family, "cpu", "float32")
    # Weights are rounded first, so that both models have the same ones and only the arithmetic differs.
    plain.model.to(getattr(torch, dtype)).to(torch.float32)
    moved = type(plain)(
        copy.deepcopy(plain.model).to(getattr(torch, dtype)).to(device), plain.config, plain.name, family
    )
    moved.model.eval()
    ids = Runner(plain, Plan()).prompt(8)
    held = []
    for loaded in (plain, moved):
        runner = Runner(loaded, Plan())
        _, cache = runner.advance(ids[:, :6].to(runner.device), runner.new_cache())
        for position in (6, 7):
            _, cache = runner.advance(ids[:, position : position + 1].to(runner.device), cache)
        held.append([list(cache_layers.tensors_of(layer)) for layer in cache_layers.self_layers(cache)])
    worst = 0.0
    for index, (wanted, got) in enumerate(zip(*held, strict=True)):
        found.expect(f"layer {index} holds as many tensors", len(wanted) == len(got), f"{len(got)} for {len(wanted)}")
        for number, (one, two) in enumerate(zip(wanted, got, strict=False)):
            if tuple(one.shape) != tuple(two.shape):
                found.expect(f"layer {index} tensor {number} of shape {list(one.shape)}", False, list(two.shape))
                continue
            gap = float((one.float() - two.float().cpu()).abs().max()) / max(1e-6, float(one.abs().max()))
            worst = max(worst, gap)
            found.expect(
                f"layer {index} tensor {number} within {_RELATIVE[dtype]}", gap <= _RELATIVE[dtype], f"{gap:.1e}"
            )
    found.figures["largest_difference"] = worst


def _compiled(device: str, dtype: str, found: Findings) -> None:
    """Tokens of a compiled decode on a static cache against the same decode as it is, and milliseconds a step both ways.

    On a CPU the graph is captured and run by the eager backend: no compiler is needed, and times say nothing.
    """
    torch, transformers = load_torch(), load_transformers()
    cuda = device.startswith("cuda")
    loaded = _loaded("llama", device, dtype if cuda else "float32", "sdpa")
    prompt, new = 16, 32
    ids = torch.randint(5, 100, (2, prompt), generator=torch.Generator().manual_seed(0)).to(device)
    keyword = str(cache_keyword(loaded.model))
    counted = "cache_position" in forward_parameters(loaded.model)
    step = torch.compile(
        loaded.model.forward, fullgraph=True, **({"mode": "reduce-overhead"} if cuda else {"backend": "eager"})
    )

    def decode(forward: Callable[..., Any]) -> tuple[Any, float, Any]:
        cache = transformers.StaticCache(config=loaded.config, max_cache_len=prompt + new)
        with torch.no_grad():
            token = loaded.model(ids, use_cache=True, **{keyword: cache}).logits[:, -1:].argmax(-1)
            tokens = [token]
            started = time.perf_counter()
            for number in range(new - 1):
                if number == new // 2:
                    _synchronise(device)
                    started = time.perf_counter()
                position = torch.full((1,), prompt + number, device=device)
                options = {"position_ids": position.expand(2, 1), keyword: cache, "use_cache": True}
                if counted:
                    options["cache_position"] = position
                logits = forward(input_ids=tokens[-1], **options).logits
                tokens.append(logits[:, -1:].argmax(-1).clone())
            _synchronise(device)
        return torch.cat(tokens, dim=1), (time.perf_counter() - started) * 1000 / (new - 1 - new // 2), cache

    plain, plain_ms, _ = decode(loaded.model)
    compiled, compiled_ms, cache = decode(step)
    same = float((plain == compiled).float().mean())
    found.expect("nine of ten tokens as without compiling", same >= 0.9, same)
    layers = cache_layers.self_layers(cache)
    rows = {int(layer.keys.shape[2]) for layer in layers}
    found.expect("the static rows were not made anew", rows == {prompt + new}, rows)
    written = {int((layer.keys.float().abs().sum((0, 1, 3)) > 0).sum()) for layer in layers}
    found.expect("every step wrote its row", written == {prompt + new - 1}, written)
    away = {str(layer.keys.device) for layer in layers if layer.keys.device.type != torch.device(device).type}
    found.expect(f"keys on {device}", not away, away or device)
    found.figures |= {"same_tokens": same, "ms_a_step": plain_ms, "compiled_ms_a_step": compiled_ms}


def _memory(device: str, dtype: str, tokens: int, windowed: bool, found: Findings) -> None:
    """Bytes that a prompt of *tokens* leaves in the cache and on the device, and the peak of the next step.

    The model has 8 layers, 16 query heads on 4 kv heads of 64 (every other layer with a window of 512 if *windowed*).
    """
    torch, transformers = load_torch(), load_transformers()
    cuda = device.startswith("cuda")
    layers, heads, kv_heads, head_dim = (8, 16, 4, 64) if cuda else (2, 4, 2, 16)
    common: dict[str, Any] = {
        "vocab_size": 1000, "hidden_size": heads * head_dim, "intermediate_size": heads * head_dim,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "max_position_embeddings": tokens + 64, "attn_implementation": "sdpa",
    }  # fmt: skip
    window = 512 if cuda else 16
    if windowed:
        types = ["sliding_attention", "full_attention"] * (layers // 2)
        config = transformers.Gemma3TextConfig(**common, sliding_window=window, layer_types=types)
    else:
        config = transformers.LlamaConfig(**common)
    torch.manual_seed(0)
    wanted = getattr(torch, dtype)
    model = transformers.AutoModelForCausalLM.from_config(config).to(wanted).to(device).eval()
    keyword = str(cache_keyword(model))
    ids = torch.randint(5, 100, (1, tokens)).to(device)
    item = torch.empty((), dtype=wanted).element_size()
    row = 2 * kv_heads * head_dim * item
    windows = layers // 2 if windowed else 0
    formula = (layers - windows) * tokens * row + windows * min(tokens, window - 1) * row
    with torch.no_grad():
        model(ids[:, :8], use_cache=False)  # libraries take workspace of their own on the first run: not counted
        gc.collect()
        before = _allocated(device)
        cache = transformers.DynamicCache(config=config)
        output = model(ids, use_cache=True, logits_to_keep=1, **{keyword: cache})
        del output
        gc.collect()
        shown = sum(cache_layers.visible_bytes(layer) for layer in cache_layers.self_layers(cache))
        after_prompt = _allocated(device)
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        model(ids[:, :1], use_cache=True, logits_to_keep=1, **{keyword: cache})
        peak = _peak(device)
    gc.collect()
    held = sum(cache_layers.held_bytes(layer) for layer in cache_layers.self_layers(cache))
    found.expect(f"{formula} bytes by the formula", shown == formula, shown)
    found.figures |= {
        "tokens": tokens, "formula_bytes": formula, "mha_bytes": layers * tokens * 2 * heads * head_dim * item,
        "visible_bytes": shown, "storage_bytes_after_step": held,
    }  # fmt: skip
    if not cuda:
        found.skipped.append("bytes on the device and their peak: a CPU counts neither")
        return
    device_bytes, peak_bytes = _allocated(device) - before, peak - before
    slack = held // 20 + (2 << 20)
    found.expect(f"{held} bytes of storage on the device", abs(device_bytes - held) <= slack, device_bytes)
    found.expect(f"a peak of {held} bytes or more", peak_bytes >= held - slack, peak_bytes)
    # A step makes one layer's keys and values anew, and repeats them once for the query heads where the kernel needs that.
    most = max(held, after_prompt - before) + (2 + heads // kv_heads) * tokens * row + (16 << 20)
    found.expect(f"a peak of {most} bytes or less", peak_bytes <= most, peak_bytes)
    found.figures |= {
        "device_bytes_after_prompt": after_prompt - before, "device_bytes_after_step": device_bytes,
        "peak_device_bytes_of_a_step": peak_bytes,
    }  # fmt: skip


def _allocated(device: str) -> int:
    torch = load_torch()
    if not device.startswith("cuda"):
        return 0
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_allocated(device))


def _peak(device: str) -> int:
    return int(load_torch().cuda.max_memory_allocated(device)) if device.startswith("cuda") else 0


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        load_torch().cuda.synchronize(device)


def run(
    device: str, limit_seconds: float, wanted: Sequence[str] = (), keep: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """All parts (or those whose name contains one of *wanted*) until *limit_seconds* are used up, as plain values.

    *keep* is called with the document after every part. The status of a part is "passed", "failed" (a check does not
    hold), "error" (it raised), "not run" (with its reason) or "no time" (the limit was reached before it).
    """
    torch, transformers = load_torch(), load_transformers()
    quiet()
    if device == "cpu":
        torch.set_num_threads(1)
    started = time.perf_counter()
    document: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "finished": False,
        "seconds": 0.0,
        "parts": [],
    }
    for part in parts(device):
        if wanted and not any(word in part.name for word in wanted):
            continue
        begun = time.perf_counter()
        if begun - started > limit_seconds:
            outcome = {"status": "no time", "reason": f"{limit_seconds:.0f} s were used up"}
        else:
            outcome = _outcome(part)
        seconds = round(time.perf_counter() - begun, 2)
        document["parts"].append({"part": part.name, "optional": part.optional, **outcome, "seconds": seconds})
        document["seconds"] = round(time.perf_counter() - started, 1)
        print(f"{seconds:7.2f} s  {outcome['status']:<8} {part.name}  {outcome.get('reason', '')}", flush=True)
        if keep is not None:
            keep(document)
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    document["finished"] = True
    if keep is not None:
        keep(document)
    return document


def _outcome(part: Part) -> dict[str, Any]:
    """Status and findings of one part."""
    found = Findings()
    try:
        part.run(found)
    except (NotHere, NoCache) as error:
        return {"status": "not run", "reason": str(error), "checks": found.checks}
    except Exception as error:  # out of memory, a kernel that is missing: recorded, and the next part runs
        return {"status": "error", "reason": describe(error), "checks": found.checks}
    failed = [check for check in found.checks if not check["holds"]]
    reason = f"{failed[0]['check']}: found {failed[0]['found']}" if failed else "; ".join(found.skipped)
    status = "failed" if failed else "passed"
    return {
        "status": status, "reason": reason, "held": len(found.checks) - len(failed), "checks": failed,
        "figures": found.figures, "skipped": found.skipped,
    }  # fmt: skip


def exit_code(document: dict[str, Any], dry: bool) -> int:
    """1 where a part failed or raised, 2 where one that is not optional was not run, else 0. In a *dry* run (without CUDA) what
    was not run for want of CUDA counts as optional."""
    states = [(part["status"], part["optional"] or (dry and "CUDA" in part["reason"])) for part in document["parts"]]
    if any(status in ("failed", "error") for status, _ in states):
        return 1
    missing = any(status in ("not run", "no time") and not optional for status, optional in states)
    return 2 if missing or not states else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts and writes the JSON; the exit code is that of ``exit_code``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds after which no further part is started")
    parser.add_argument("--only", action="append", default=[], help="only parts whose name contains this")
    parser.add_argument("output", type=Path)
    options = parser.parse_args(arguments)

    def keep(document: dict[str, Any]) -> None:
        unfinished = options.output.with_name(options.output.name + ".part")
        unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, options.output)

    document = run(options.device, options.limit, options.only, keep)
    counts: dict[str, int] = {}
    for part in document["parts"]:
        counts[part["status"]] = counts.get(part["status"], 0) + 1
    print(f"{document['seconds']:.0f} s: " + ", ".join(f"{count} {status}" for status, count in counts.items()))
    return exit_code(document, dry=not options.device.startswith("cuda"))


if __name__ == "__main__":
    raise SystemExit(main())
