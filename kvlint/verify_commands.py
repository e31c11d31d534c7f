"""The command ``kvlint verify``: options to a plan, results to a report and an exit code.

Exit codes: 0 all checks of all models passed, 1 a check failed, 2 something could not be checked.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvlint.runtime.result import Verification
    from kvlint.runtime.verify import Options

_CACHES = ("dynamic", "static", "quantized", "offloaded", "offloaded-static")
_FILE = click.Path(path_type=Path, dir_okay=False)


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
    "--cache", "caches", type=click.Choice(_CACHES), multiple=True, default=("dynamic",), show_default=True,
    help="The cache to run with; given several times, each is run.",
)  # fmt: skip
@click.option("--quantized-backend", default="quanto", show_default=True, help="quanto, hqq or fp8.")
@click.option("--batch", type=click.IntRange(1), default=2, show_default=True, help="Rows of the batch.")
@click.option("--prompt-length", type=click.IntRange(2), default=6, show_default=True, help="Tokens of the prompt.")
@click.option("--new-tokens", type=click.IntRange(1), default=4, show_default=True, help="Single steps after it.")
@click.option("--chunk", type=click.IntRange(2), default=3, show_default=True, help="Tokens then fed at once.")
@click.option("--at-length", type=click.IntRange(1), help="Say what the cache would take at so many tokens a row.")
@click.option("--check", "only", multiple=True, metavar="NAME", help="Only this check (and what it builds on).")
@click.option("--skip", multiple=True, metavar="NAME", help="Leave this check out.")
@click.option("--list-checks", is_flag=True, help="List the checks with what they are for, and run nothing.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of weights and prompts.")
@click.option("--trust-remote-code", is_flag=True, help="Run the model's own code from its repository.")
@click.option("--ignore-remote-code", is_flag=True, help="Check the library's code although the model brings its own.")
@click.option("--allow-pickle", is_flag=True, help="Read weights that are not in safetensors files.")
@click.option("--json", "json_path", type=_FILE, help="Write all results here.")
@click.option("--markdown", "markdown_path", type=_FILE, help="Write a report in Markdown here.")
@click.option("--junit", "junit_path", type=_FILE, help="Write JUnit XML here.")
@click.option("--plot", "plot_path", type=_FILE, help="Draw the bytes (PNG).")
@click.option(
    "--limit", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds a model, with several."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes, with several models.")
@click.option("--resume", type=_FILE, help="Keep each result here as it comes, and go on from what is there already.")
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
    caches: tuple[str, ...],
    quantized_backend: str,
    batch: int,
    prompt_length: int,
    new_tokens: int,
    chunk: int,
    at_length: int | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    list_checks: bool,
    seed: int,
    trust_remote_code: bool,
    ignore_remote_code: bool,
    allow_pickle: bool,
    json_path: Path | None,
    markdown_path: Path | None,
    junit_path: Path | None,
    plot_path: Path | None,
    limit: float,
    jobs: int,
    resume: Path | None,
) -> None:
    """Run MODEL for real and check the cache that it builds.

    MODEL is a path or a hub id; with --random-weights also a model type ("llama") or the path of a config.json.
    Exit code 0: everything passed; 1: a check failed; 2: something could not be checked.
    """
    if everything and not random_weights:
        raise click.UsageError("--all needs --random-weights")
    if not everything and not models and not list_checks:
        raise click.UsageError("name a MODEL, or give --random-weights --all")
    from kvlint.runtime.environment import RuntimeUnavailable, load_torch, quiet
    from kvlint.runtime.models import ModelUnavailable, Source, model_types

    try:
        torch = load_torch()
        quiet()
        from kvlint.runtime.checks.base import all_checks
        from kvlint.runtime.probe import Plan
        from kvlint.runtime.verify import Options

        if list_checks:
            _list_checks()
            return
        for names in (only, skip):
            _require_known(names, tuple(check.name for check in all_checks()), "check")
        _require_device(torch, device)
        if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise click.UsageError(f"{dtype} is no dtype of torch (float32, bfloat16, float16)")
        if random_weights and not full_size and device == "cpu":
            torch.set_num_threads(1)  # handing out such small tensors takes longer than computing them
        source = Source(
            models[0] if models else "", random_weights, layers, max_hidden, device, dtype, attention,
            trust_remote_code, ignore_remote_code, allow_pickle, seed, not full_size,
        )  # fmt: skip
        plan = Plan(batch, prompt_length, new_tokens, chunk, 2, caches[0], quantized_backend, seed=seed)
        options = Options(source, plan, only, skip, at_length)
        wanted = [
            replace(options, source=replace(source, name=name), plan=replace(plan, cache=cache))
            for name in (model_types() if everything else models)
            for cache in dict.fromkeys(caches)
        ]
        results = _run(wanted, limit, jobs, resume)
        _write(results, json_path, markdown_path, junit_path, plot_path)
    except (RuntimeUnavailable, ModelUnavailable) as error:
        click.echo(f"kvlint verify: {error}", err=True)
        context.exit(2)
    context.exit(exit_code(results))


def exit_code(results: Sequence[Verification]) -> int:
    """0 when everything passed, 1 when a check failed, 2 when something could not be checked and nothing failed."""
    if any(one.status == "failed" for one in results):
        return 1
    return 2 if any(one.unsupported for one in results) else 0


def _list_checks() -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from kvlint.runtime.checks.base import all_checks

    table = Table(box=None, pad_edge=False)
    for title in ("check", "builds on", "what for"):
        table.add_column(title, overflow="fold")
    for check in all_checks():
        table.add_row(check.name, ", ".join(check.needs), escape(check.explanation))
    Console().print(table)


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


def _run(wanted: Sequence[Options], limit: float, jobs: int, resume: Path | None) -> tuple[Verification, ...]:
    from rich.console import Console

    from kvlint.runtime.report import print_model, print_sweep, reason_of
    from kvlint.runtime.sweep import sweep
    from kvlint.runtime.verify import verify as verify_one

    console = Console()
    if len({one.source.name for one in wanted}) == 1 and resume is None:
        results = tuple(verify_one(one) for one in wanted)
        for number, result in enumerate(results):
            if number:
                console.print()
            print_model(console, result)
        if len(results) > 1:
            console.print()
            print_sweep(console, results)
        return results
    quiet_console = Console(stderr=True)

    def progress(done: int, one: Verification) -> None:
        quiet_console.print(
            f"[{done}/{len(wanted)}] {one.model}: {one.status} {reason_of(one)}"[: console.width], markup=False,
            highlight=False,
        )  # fmt: skip

    try:
        results = sweep(wanted, limit_seconds=limit, processes=jobs, progress=progress, resume=resume)
    except (OSError, ValueError) as error:
        click.echo(f"kvlint verify: --resume {resume}: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        kept = (
            f": {resume} has what is done, --resume goes on from there" if resume else " (--resume FILE keeps results)"
        )
        click.echo(f"kvlint verify: interrupted{kept}", err=True)
        sys.exit(2)
    print_sweep(console, results)
    return results


def _write(
    results: tuple[Verification, ...],
    json_path: Path | None,
    markdown_path: Path | None,
    junit_path: Path | None,
    plot_path: Path | None,
) -> None:
    from kvlint.runtime.report import to_json, to_junit, to_markdown

    try:
        for path, render in ((json_path, to_json), (markdown_path, to_markdown), (junit_path, to_junit)):
            if path is not None:
                path.write_text(render(results), encoding="utf-8")
        if plot_path is not None:
            from kvlint.runtime.plot import plot

            drawable = [one for one in results if one.growth]
            if drawable:
                plot([one for one in drawable if one.model == drawable[0].model], plot_path)
    except OSError as error:
        click.echo(f"kvlint verify: cannot write {error.filename}: {error.strerror}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    verify()
