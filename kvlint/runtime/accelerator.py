"""What only an accelerator can show, in one run of a few minutes: half precision, attention kernels, a compiled decode
on a static cache, offloaded caches, and peak memory against the formula. Called by ``scripts/gpu_check.sh``.

Every part is a function that returns plain values; one that fails is recorded with its reason and the run goes on.
``--device cpu`` runs the same parts small (no peak memory, no offloading), so that they can be tried without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from kvlint.runtime.environment import load_torch, load_transformers, quiet
from kvlint.runtime.layers import held_bytes, self_layers, visible_bytes
from kvlint.runtime.models import Source, describe, load
from kvlint.runtime.probe import Plan
from kvlint.runtime.verify import Options, verify

FAMILIES = ("llama", "mistral", "gemma3_text", "gpt_oss", "deepseek_v3", "qwen3_next")
"""One family a cache layout: full, sliding, mixed, mixed with sinks, latent, linear with full."""

Part = tuple[str, Callable[[], dict[str, Any]]]


def parts(device: str) -> Iterator[Part]:
    """Name and function of every part, the most telling first: a run that hits its limit has these."""
    cuda = device.startswith("cuda")
    half = "bfloat16" if cuda else "float32"
    for family in FAMILIES:
        for kind in ("dynamic", "static"):
            # The model's own attention implementation: sdpa, or eager where the family has sinks.
            yield f"verify {family} {kind}", partial(_verified, family, device, half, "", kind)
    for family in ("gpt2", "llama"):
        yield f"verify {family} quantized fp8", partial(_verified, family, device, half, "", "quantized")
    yield "compiled static decode", partial(_compiled, device, half)
    lengths = (1024, 4096, 16384) if cuda else (64, 256)
    for length in lengths:
        for windowed in (False, True):
            yield f"memory {'mixed' if windowed else 'full'} {length}", partial(_memory, device, half, length, windowed)
    yield f"memory offloaded {lengths[-1]}", partial(_memory, device, half, lengths[-1], False, True)
    for family in ("llama", "gemma3_text"):
        for kind in ("offloaded", "offloaded-static"):
            for only in (None, False, True):
                name = f"verify {family} {kind} only_non_sliding={'default' if only is None else only}"
                yield name, partial(_verified, family, device, half, "", kind, only)
    for family in ("llama", "mistral"):
        for attention in ("eager", "sdpa"):
            name = f"verify {family} dynamic {attention}"
            yield name, partial(_verified, family, device, half, attention, "dynamic")
        yield f"verify {family} dynamic flash", partial(_flash, family, device, half)


def _verified(
    family: str, device: str, dtype: str, attention: str, kind: str, only_non_sliding: bool | None = None
) -> dict[str, Any]:
    source = Source(family, random_weights=True, device=device, dtype=dtype, attention=attention)
    plan = Plan(cache=kind, quantized_backend="fp8", only_non_sliding=only_non_sliding)
    result = verify(Options(source, plan))
    return {
        "status": result.status,
        "attention": result.attention,
        "unsupported": result.unsupported,
        "failures": [{"check": one.name, "code": one.code, "message": one.message} for one in result.failures],
        "deviations": {one.name: one.deviation for one in result.checks if one.deviation is not None},
        "peak_bytes": result.peak_bytes,
    }


def _flash(family: str, device: str, dtype: str) -> dict[str, Any]:
    from transformers import utils

    probe: Any = utils
    if not probe.is_flash_attn_2_available():
        return {"status": "unsupported", "unsupported": "flash_attn is not installed", "failures": []}
    return _verified(family, device, dtype, "flash_attention_2", "dynamic")


def _compiled(device: str, dtype: str) -> dict[str, Any]:
    """Tokens of a compiled decode on a static cache against an uncached run, and milliseconds a step both ways.

    On a CPU the graph is captured and run by the eager backend: no compiler is needed, and times say nothing.
    """
    torch, transformers = load_torch(), load_transformers()
    cuda = device.startswith("cuda")
    loaded = load(Source("llama", random_weights=True, device=device, dtype=dtype, attention="sdpa"))
    prompt, new = 16, 32
    ids = torch.randint(5, 100, (2, prompt), generator=torch.Generator().manual_seed(0)).to(device)
    step = torch.compile(
        loaded.model.forward, fullgraph=True, **({"mode": "reduce-overhead"} if cuda else {"backend": "eager"})
    )

    def decode(forward: Callable[..., Any]) -> tuple[Any, float]:
        cache = transformers.StaticCache(config=loaded.config, max_cache_len=prompt + new)
        with torch.no_grad():
            token = loaded.model(ids, cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
            tokens = [token]
            for number in range(new - 1):
                if number == new // 2:
                    _synchronise(device)
                    started = time.perf_counter()
                positions = torch.full((2, 1), prompt + number, device=device)
                logits = forward(input_ids=tokens[-1], position_ids=positions, cache=cache, use_cache=True).logits
                tokens.append(logits[:, -1:].argmax(-1).clone())
            _synchronise(device)
        return torch.cat(tokens, dim=1), (time.perf_counter() - started) * 1000 / (new - 1 - new // 2)

    eager, eager_ms = decode(loaded.model)
    compiled, compiled_ms = decode(step)
    return {
        "status": "passed" if bool((eager == compiled).float().mean() > 0.9) else "failed",
        "same_tokens": float((eager == compiled).float().mean()),
        "eager_ms_a_step": eager_ms,
        "compiled_ms_a_step": compiled_ms,
        "failures": [],
    }


def _memory(device: str, dtype: str, tokens: int, windowed: bool, offloading: bool = False) -> dict[str, Any]:
    """Bytes that a prompt of *tokens* leaves on the device, and at the peak, against the formula.

    The model has 8 layers, 16 query heads on 4 kv heads of 64 (every other layer with a window of 512 if *windowed*).
    """
    torch, transformers = load_torch(), load_transformers()
    cuda = device.startswith("cuda")
    if offloading and not cuda:
        return {"status": "unsupported", "unsupported": "offloading needs CUDA", "failures": []}
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
    ids = torch.randint(5, 100, (1, tokens)).to(device)
    item = torch.empty((), dtype=wanted).element_size()
    row = 2 * kv_heads * head_dim * item
    windowed_layers = layers // 2 if windowed else 0
    formula = (layers - windowed_layers) * tokens * row + windowed_layers * min(tokens, window - 1) * row
    cache = transformers.DynamicCache(config=config, **({"offloading": True} if offloading else {}))
    gc.collect()
    before = _allocated(device)
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    with torch.no_grad():
        output = model(ids, cache=cache, use_cache=True, logits_to_keep=1)
        peak = _peak(device)
        del output
        gc.collect()
        after_prompt = _allocated(device)
        shown = sum(visible_bytes(layer) for layer in self_layers(cache))
        held = sum(held_bytes(layer) for layer in self_layers(cache))
        model(ids[:, :1], cache=cache, use_cache=True, logits_to_keep=1)
    gc.collect()
    after_step = _allocated(device)
    exact = shown == formula
    return {
        "status": "passed" if exact else "failed",
        "failures": [] if exact else [{"check": "bytes", "code": "KV701", "message": f"formula {formula}, found {shown}"}],
        "tokens": tokens,
        "formula_bytes": formula,
        "mha_bytes": layers * tokens * 2 * heads * head_dim * item,
        "visible_bytes": shown,
        "storage_bytes_after_prompt": held,
        "storage_bytes_after_step": sum(held_bytes(layer) for layer in self_layers(cache)),
        "device_bytes_after_prompt": None if before is None else after_prompt - before,
        "device_bytes_after_step": None if before is None else after_step - before,
        "peak_device_bytes": None if before is None else peak - before,
    }  # fmt: skip


def _allocated(device: str) -> Any:
    torch = load_torch()
    if not device.startswith("cuda"):
        return None
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_allocated(device))


def _peak(device: str) -> Any:
    return int(load_torch().cuda.max_memory_allocated(device)) if device.startswith("cuda") else None


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        load_torch().cuda.synchronize(device)


def run(device: str, limit_seconds: float, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """All parts (or those whose name contains one of *wanted*) until *limit_seconds* are used up; plain values."""
    torch, transformers = load_torch(), load_transformers()
    quiet()
    if device == "cpu":
        torch.set_num_threads(1)
    started = time.perf_counter()
    results: list[dict[str, Any]] = []
    for name, part in parts(device):
        if wanted and not any(word in name for word in wanted):
            continue
        if time.perf_counter() - started > limit_seconds:
            results.append({"part": name, "status": "skipped", "unsupported": "no time left", "failures": []})
            continue
        begun = time.perf_counter()
        try:
            outcome = part()
        except Exception as error:  # out of memory, a kernel that is missing: recorded, and the next part runs
            outcome = {"status": "error", "unsupported": describe(error), "failures": []}
        seconds = round(time.perf_counter() - begun, 2)
        results.append({"part": name, **outcome, "seconds": seconds})
        print(f"{seconds:7.2f} s  {outcome['status']:<11} {name}  {outcome.get('unsupported', '')}", flush=True)
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "torch": str(torch.__version__),
        "transformers": str(transformers.__version__),
        "seconds": round(time.perf_counter() - started, 1),
        "parts": results,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts, writes the JSON; 1 when a part failed or raised, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=270.0, help="seconds after which no further part is started")
    parser.add_argument("--only", action="append", default=[], help="only parts whose name contains this")
    parser.add_argument("output", type=Path)
    options = parser.parse_args(arguments)
    document = run(options.device, options.limit, options.only)
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(part["status"] in ("failed", "error") for part in document["parts"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
