"""Fixes the models of old transformers releases as remote code, and runs them on the installed one.

The modeling files of a release are taken from its wheel and laid out as if a model on the hub had brought them along
(relative imports of the library become absolute ones). `kvlint --fix --unsafe-fixes --target '>=5.24'` rewrites them.
Then a tiny model with random weights generates greedily, with a cache and without: the tokens must be the same.

    python scripts/check_old_models.py [--wheels FOLDER] [--family NAME ...] [--release VERSION ...]

What else the file misses in the installed release and what has nothing to do with caches gets a stand-in, which the
table names. What kvlint reports and does not fix is given back by `kvlint shim` in a second try ("with shim").
Exit code 1 where tokens differ.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = (
    "llama",
    "gpt2",
    "mistral",
    "qwen2",
    "gemma",
    "gemma2",
    "phi",
    "phi3",
    "opt",
    "gpt_neox",
    "stablelm",
    "cohere",
    "starcoder2",
    "gptj",
    "bloom",
    "falcon",
    "mixtral",
    "persimmon",
    "olmo",
    "granite",
    "codegen",
)
RELEASES = ("4.36.2", "4.40.2", "4.44.2", "4.46.3")
TARGET = ">=5.24"
SIZES = {
    "vocab_size": 97, "hidden_size": 32, "n_embd": 32, "word_embed_proj_dim": 32, "intermediate_size": 48, "ffn_dim": 48,
    "num_hidden_layers": 3, "n_layer": 3, "num_attention_heads": 4, "n_head": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 128, "n_positions": 128, "rotary_dim": 4, "sliding_window": 64, "num_local_experts": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "query_pre_attn_scalar": 8,
}  # fmt: skip

OLD_CONFIG_DEFAULTS = {
    "add_cross_attention": False,
    "is_decoder": False,
    "pruned_heads": {},
    "chunk_size_feed_forward": 0,
}
"""Attributes of every configuration before 5.0."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one family of one release."""

    family: str
    release: str
    result: str
    detail: str
    fixed: int
    left: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="folder with transformers wheels (default: pip downloads them)")
    parser.add_argument("--family", action="append", help="a family to check (default: all of FAMILIES)")
    parser.add_argument("--release", action="append", help=f"a release to check (default: {', '.join(RELEASES)})")
    parser.add_argument("--keep", type=Path, help="folder to leave the files in")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        folder, family, shim = options.run
        print(json.dumps(run_model(Path(folder), family, Path(shim) if shim else None)))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve() / "old"
        places: list[tuple[str, str]] = []
        for release in options.release or RELEASES:
            wheel = wheel_of(release, options.wheels, Path(scratch))
            for family in options.family or FAMILIES:
                if write_family(wheel, family, folder / release):
                    places.append((family, release))
        settled = ("--target", TARGET, "--no-cache", "--isolated")
        before = counts(kvlint(*settled, "--output-format", "json", str(folder)), folder)
        kvlint(*settled, "--fix", "--fix-only", "--unsafe-fixes", str(folder))
        after = counts(kvlint(*settled, "--output-format", "json", str(folder)), folder)
        for family, release in places:
            row = check(folder / release, family, release, before, after)
            rows.append(row)
            print(shown(row), flush=True)
    same = sum(row.result.startswith("same") for row in rows)
    print(f"{same} of {len(rows)}: same tokens with and without a cache")
    return 1 if any(row.result.startswith("different") for row in rows) else 0


def counts(report: str, folder: Path) -> dict[tuple[str, str], Counter[str]]:
    """Family and release -> how often each rule reports something there."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for item in json.loads(report):
        release, family = Path(item["path"]).resolve().relative_to(folder).parts[:2]
        found.setdefault((family, release), Counter())[item["code"]] += 1
    return found


def shown(row: Row) -> str:
    return f"{row.family:<11}{row.release:<8} {row.fixed:>3} fixed  {row.left or '-':<24} {row.result:<22} {row.detail}".rstrip()


def wheel_of(release: str, wheels: Path | None, folder: Path) -> Path:
    """The wheel of a release, from a folder or from pip."""
    name = f"transformers-{release}-py3-none-any.whl"
    if wheels is None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "-q",
            "-d",
            str(folder),
            f"transformers=={release}",
        ]
        subprocess.run(command, check=True)
        wheels = folder
    if not (wheels / name).is_file():
        raise SystemExit(f"no {name} in {wheels}")
    return wheels / name


def write_family(wheel: Path, family: str, folder: Path) -> bool:
    """Writes the modeling and configuration file of a family as remote code; False where the release has none."""
    with zipfile.ZipFile(wheel) as archive:
        for kind in ("modeling", "configuration"):
            try:
                text = archive.read(f"transformers/models/{family}/{kind}_{family}.py").decode()
            except KeyError:
                return False
            target = folder / family / f"{kind}_{family}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(as_remote_code(text), encoding="utf-8")
    (folder / family / "__init__.py").write_text("", encoding="utf-8")
    return True


def as_remote_code(text: str) -> str:
    """Imports from the library by its name, as files outside of it have them."""
    text = re.sub(r"\bfrom \.\.\. import\b", "from transformers import", text)
    text = re.sub(r"\bfrom \.\.\.([a-z])", r"from transformers.\1", text)
    return re.sub(r"\bfrom \.\.([a-z])", r"from transformers.models.\1", text)


def check(
    folder: Path,
    family: str,
    release: str,
    before: dict[tuple[str, str], Counter[str]],
    after: dict[tuple[str, str], Counter[str]],
) -> Row:
    """Runs one fixed family: as it is, and with a shim for what is left."""
    path = folder / family
    left = after.get((family, release), Counter())
    result = {"result": "not run"} if left["KV103"] else worker(folder, family, None)  # an import that must fail
    if left and not result["result"].startswith("same"):
        shim = path / "compat_shim.py"
        kvlint("shim", "--target", TARGET, str(path), "-o", str(shim))
        if shim.is_file():
            result = worker(folder, family, shim)
            result["result"] += " (with shim)"
    detail = "; ".join(
        [*([result["detail"]] if result["detail"] else []), *(f"stand-in: {n}" for n in result["stands_in"])]
    )
    counted = " ".join(f"{code}x{count}" for code, count in sorted(left.items()))
    fixed = sum(before.get((family, release), Counter()).values()) - sum(left.values())
    return Row(family, release, result["result"], detail, fixed, counted)


def kvlint(*arguments: str) -> str:
    """Runs kvlint and gives what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "kvlint", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"kvlint {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def worker(folder: Path, family: str, shim: Path | None) -> dict[str, Any]:
    """Runs the model in a process of its own."""
    command = [sys.executable, __file__, "--run", str(folder), family, str(shim or "")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"result": "not run", "detail": last[:160], "stands_in": []}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert isinstance(found, dict)
    return found


# -- in the worker --------------------------------------------------------------------------------------------------


def run_model(folder: Path, family: str, shim: Path | None) -> dict[str, Any]:
    """Generates with the fixed files of *folder*."""
    sys.path.insert(0, str(folder))
    with redirect_stdout(io.StringIO()):
        if shim is not None:
            sys.path.insert(0, str(shim.parent))
            importlib.import_module("compat_shim").install()
        stands_in = [
            name
            for kind in ("configuration", "modeling")
            for name in add_stand_ins(folder / family / f"{kind}_{family}.py")
        ]
        stands_in += add_config_defaults(folder / family / f"modeling_{family}.py")
        try:
            result, detail = generate_both(family)
        except Exception as error:  # what the table tells is any failure of code from elsewhere
            frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
            where = [frame for frame in frames if family in Path(frame.filename).name]
            line = f" (line {where[-1].lineno})" if where else ""
            result, detail = (
                "not run",
                f"{type(error).__name__}: {str(error).splitlines()[0][:110] if str(error) else ''}{line}",
            )
    return {"result": result, "detail": detail, "stands_in": stands_in}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of every import from transformers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("transformers"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def add_stand_ins(path: Path) -> list[str]:
    """Gives the installed release the names that the file imports, that it lacks, and that are no part of caches."""
    added: list[str] = []
    for module, name in imported(path):
        if "attn_mask" in module or "cache" in module:
            continue
        try:
            holder = importlib.import_module(module)
        except ModuleNotFoundError:
            holder = sys.modules[module] = types.ModuleType(module)
        if not hasattr(holder, name):
            setattr(holder, name, stand_in(name))
            added.append(name)
    return added


def add_config_defaults(path: Path) -> list[str]:
    """Gives configurations the attributes that all of them had before 5.0 and that the file reads."""
    from transformers import PretrainedConfig

    text, base = path.read_text(encoding="utf-8"), PretrainedConfig
    missing = [name for name in OLD_CONFIG_DEFAULTS if f"config.{name}" in text and not hasattr(base, name)]
    for name in missing:
        setattr(base, name, OLD_CONFIG_DEFAULTS[name])
    return [f"config.{name}" for name in missing]


def stand_in(name: str) -> object:
    """A dict for a constant, an empty class for a class, and for a function one that answers no."""
    if name.isupper():
        return {}
    return type(name, (), {}) if name[0].isupper() else lambda *_, **__: False


def generate_both(family: str) -> tuple[str, str]:
    """Compares the tokens of greedy decoding with and without a cache, with prompts of two lengths."""
    import torch
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.generation.utils import GenerationMixin

    configs = importlib.import_module(f"{family}.configuration_{family}")
    models = importlib.import_module(f"{family}.modeling_{family}")
    config_class: Any = next(
        item for item in vars(configs).values()
        if inspect.isclass(item) and issubclass(item, PretrainedConfig) and item.__module__ == configs.__name__
    )  # fmt: skip
    model_class: Any = next(
        item for name, item in sorted(vars(models).items())
        if name.endswith(("ForCausalLM", "LMHeadModel")) and inspect.isclass(item) and issubclass(item, PreTrainedModel)
    )  # fmt: skip
    if not issubclass(model_class, GenerationMixin):
        # before 4.50 every model was one that generates
        model_class = type(model_class.__name__, (model_class, GenerationMixin), {"__module__": model_class.__module__})
    known = {**inspect.signature(config_class.__init__).parameters, **getattr(config_class, "attribute_map", {})}
    settings = {name: value for name, value in SIZES.items() if name in known}
    config = config_class(**settings)
    config._attn_implementation = "eager"
    config.pad_token_id = 0  # no longer there by itself
    if not hasattr(model_class, "get_head_mask"):
        base: Any = PreTrainedModel
        base.get_head_mask = lambda self, mask, layers, *_: [None] * layers
    cls: Any
    for cls in model_class.__mro__:
        if isinstance(cls.__dict__.get("_tied_weights_keys"), list):
            cls._tied_weights_keys = None  # a dict in 5.x; weights are filled below one by one
    config.tie_word_embeddings = False
    plain_rotary(config)
    torch.manual_seed(0)
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3, generator=generator)
    ids = torch.randint(2, 97, (2, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    ids[1, :3] = 0
    options = {"max_new_tokens": 12, "do_sample": False, "attention_mask": mask, "pad_token_id": 0}
    if "num_logits_to_keep" in inspect.signature(model_class.forward).parameters:
        options["num_logits_to_keep"] = 0  # `generate` calls it `logits_to_keep` now
    lengths: list[int] = []
    model.get_input_embeddings().register_forward_pre_hook(lambda _, given: lengths.append(given[0].shape[-1]))
    with_cache = model.generate(ids, use_cache=True, **options)
    fed = lengths[-1]
    model.config.use_cache = False  # not every old model hands on what `generate` was told
    without = model.generate(ids, use_cache=False, **options)
    if lengths[-1] <= 9:
        return "different", "without a cache only a part of the ids is fed"
    if not torch.equal(with_cache, without):
        row = next(index for index in range(2) if not torch.equal(with_cache[index], without[index]))
        first = next(index for index in range(9, 21) if with_cache[row, index] != without[row, index])
        return "different", f"from token {first - 8}" + (" of the padded row" if row else "")
    if len(set(with_cache[0, 9:].tolist())) < 3:
        return "same tokens", "hardly any variety"
    return ("same tokens", "") if fed == 1 else ("same, cache unused", f"{fed} ids fed in the last step")


def plain_rotary(config: Any) -> None:
    """Rotary embeddings as old files read them: nothing scaled, and the plain kind among the library's functions."""
    import torch
    from transformers import modeling_rope_utils

    if getattr(config, "rope_theta", None) is None:
        return
    theta = config.rope_theta
    config.rope_scaling = None
    config.rope_theta = theta

    def default(config: Any = None, device: Any = None, **kwargs: Any) -> tuple[Any, float]:
        size = kwargs.get("dim") or int(head_size(config) * getattr(config, "partial_rotary_factor", 1.0))
        return 1.0 / theta ** (torch.arange(0, size, 2, device=device).float() / size), 1.0

    modeling_rope_utils.ROPE_INIT_FUNCTIONS.setdefault("default", default)


def head_size(config: Any) -> int:
    """Width of one attention head."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert isinstance(size, int)
    return size


if __name__ == "__main__":
    raise SystemExit(main())
