"""The command ``kvlint verify``: options to a plan, results to a report and an exit code.

Exit codes are those of the linter: 0 all checks passed, 1 some failed, 2 the check could not be run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kvlint.runtime.result import Verification
    from kvlint.runtime.verify import Options

_CACHES = ("dynamic", "static", "quantized", "offloaded", "offloaded-static")


@click.command("verify")
@click.argument("models", nargs=-1)
@click.option("--random-weights", is_flag=True, help="Build MODEL (a model type or config.json) with random weights.")
@click.option("--all", "everything", is_flag=True, help="With --random-weights: every family of the installed release.")
@click.option("--full-size", is_flag=True, help="Do not shrink the configuration (with --random-weights).")
@click.option("--layers", type=click.IntRange(1), help="Most layers of a shrunk model (default 6).")
@click.option("--max-hidden", type=click.IntRange(16), help="Width of a shrunk model (default 64).")
@click.option("--device", default="cpu", show_default=True, help="A torch device: cpu, cuda, cuda:1, mps.")
@click.option("--dtype", default="auto", show_default=True, help="float32, bfloat16, float16, or auto.")
@click.option("--attn-implementation", "attention", default="", help="eager, sdpa, flash_attention_2, ...")
@click.option(
    "--cache", type=click.Choice(_CACHES), default="dynamic", show_default=True, help="The cache to run with."
)
@click.option("--quantized-backend", default="quanto", show_default=True, help="quanto, hqq or fp8.")
@click.option("--batch", type=click.IntRange(1), default=2, show_default=True, help="Rows of the batch.")
@click.option("--prompt-length", type=click.IntRange(2), default=6, show_default=True, help="Tokens of the prompt.")
@click.option("--new-tokens", type=click.IntRange(1), default=4, show_default=True, help="Single steps after it.")
@click.option("--chunk", type=click.IntRange(2), default=3, show_default=True, help="Tokens then fed at once.")
@click.option("--check", "only", multiple=True, metavar="NAME", help="Only this check (and what it builds on).")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights and prompts.")
@click.option("--trust-remote-code", is_flag=True, help="Run the model's own code from its repository.")
@click.option("--allow-pickle", is_flag=True, help="Read weights that are not in safetensors files.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all results here.")
@click.option("--junit", "junit_path", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path, dir_okay=False), help="Draw the bytes (PNG).")
@click.option("--limit", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds a model, with --all.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes, with several models.")
@click.pass_context
def verify(
    context: click.Context,
    models: tuple[str, ...],
    random_weights: bool,
    everything: bool,
    full_size: bool,
    layers: int | None,
    max_hidden: int | None,
    device: str,
    dtype: str,
    attention: str,
    cache: str,
    quantized_backend: str,
    batch: int,
    prompt_length: int,
    new_tokens: int,
    chunk: int,
    only: tuple[str, ...],
    seed: int,
    trust_remote_code: bool,
    allow_pickle: bool,
    json_path: Path | None,
    junit_path: Path | None,
    plot_path: Path | None,
    limit: float,
    jobs: int,
) -> None:
    """Run MODEL for real and check the cache that it builds.

    MODEL is a path or a hub id; with --random-weights also a model type ("llama") or the path of a config.json.
    """
    if everything and not random_weights:
        raise click.UsageError("--all needs --random-weights")
    if not everything and not models:
        raise click.UsageError("name a MODEL, or give --random-weights --all")
    from kvlint.runtime.environment import RuntimeUnavailable, load_torch, quiet
    from kvlint.runtime.models import ModelUnavailable, Source, model_types

    try:
        torch = load_torch()
        quiet()
        from kvlint.runtime.checks.base import all_checks
        from kvlint.runtime.probe import Plan
        from kvlint.runtime.verify import Options

        _require_known(only, tuple(check.name for check in all_checks()), "check")
        _require_device(torch, device)
        if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise click.UsageError(f"{dtype} is no dtype of torch (float32, bfloat16, float16)")
        if random_weights and not full_size and device == "cpu":
            torch.set_num_threads(1)  # handing out such small tensors takes longer than computing them
        source = Source(
            models[0] if models else "", random_weights, layers, max_hidden, device, dtype, attention,
            trust_remote_code, allow_pickle, seed, not full_size,
        )  # fmt: skip
        plan = Plan(batch, prompt_length, new_tokens, chunk, 2, cache, quantized_backend, seed=seed)
        options = Options(source, plan, only)
        results = _run(model_types() if everything else models, options, limit, jobs)
        _write(results, json_path, junit_path, plot_path)
    except (RuntimeUnavailable, ModelUnavailable) as error:
        click.echo(f"kvlint verify: {error}", err=True)
        context.exit(2)
    context.exit(exit_code(results))


def exit_code(results: tuple[Verification, ...]) -> int:
    """0 when all passed, 1 when some check failed, 2 when the only model named could not be checked at all.

    In a sweep over many models an unsupported one is no failure: it is listed with its reason.
    """
    if any(one.status == "failed" for one in results):
        return 1
    return 2 if len(results) == 1 and results[0].unsupported else 0


def _require_known(names: tuple[str, ...], known: tuple[str, ...], what: str) -> None:
    for name in names:
        if name not in known:
            raise click.UsageError(f"no {what} is named {name}; there are: {', '.join(known)}")


def _require_device(torch: object, device: str) -> None:
    try:
        torch.empty(0, device=device)  # type: ignore[attr-defined]
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise click.UsageError(f"device {device} cannot be used: {first}") from error


def _run(names: tuple[str, ...], options: Options, limit: float, jobs: int) -> tuple[Verification, ...]:
    from rich.console import Console

    from kvlint.runtime.report import print_model, print_sweep, reason_of
    from kvlint.runtime.sweep import sweep
    from kvlint.runtime.verify import verify as verify_one

    console = Console()
    if len(names) == 1:
        from dataclasses import replace

        result = verify_one(replace(options, source=replace(options.source, name=names[0])))
        print_model(console, result)
        return (result,)
    quiet_console = Console(stderr=True)

    def progress(done: int, one: Verification) -> None:
        quiet_console.print(
            f"[{done}/{len(names)}] {one.model}: {one.status} {reason_of(one)}"[: console.width], markup=False,
            highlight=False,
        )  # fmt: skip

    results = sweep(names, options, limit_seconds=limit, processes=jobs, progress=progress)
    print_sweep(console, results)
    return results


def _write(
    results: tuple[Verification, ...], json_path: Path | None, junit_path: Path | None, plot_path: Path | None
) -> None:
    from kvlint.runtime.report import to_json, to_junit

    try:
        if json_path is not None:
            json_path.write_text(to_json(results), encoding="utf-8")
        if junit_path is not None:
            junit_path.write_text(to_junit(results), encoding="utf-8")
        if plot_path is not None:
            from kvlint.runtime.plot import plot

            drawable = [one for one in results if one.growth]
            if drawable:
                plot(drawable[0], plot_path)
    except OSError as error:
        click.echo(f"kvlint verify: cannot write {error.filename}: {error.strerror}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    verify()
