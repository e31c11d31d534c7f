"""Models written for old releases: what is found in them, and that the fixed ones decode with a cache as without."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from analysing import lint

from kvlint import checks
from kvlint.findings import Category

CODES = frozenset(check.code for check in checks.all_checks())
FIXTURES = Path(__file__).parent / "fixtures"
ROOT = Path(__file__).parent.parent

GENERATE = """
import json, sys, warnings
import torch

name = sys.argv[1]
if sys.argv[2:]:
    import compat_shim
    compat_shim.install()
module = __import__(f"modeling_{name.lower()}")
config = getattr(module, f"{name}Config")(pad_token_id=0)
torch.manual_seed(0)
model = getattr(module, f"{name}ForCausalLM")(config).eval()
for weight in model.parameters():
    if weight.dim() > 1:
        weight.data.normal_(0, 0.3)
ids = torch.randint(1, 97, (2, 9))
mask = torch.ones_like(ids)
mask[1, :3] = 0
lengths = []
model.model.embed_tokens.register_forward_pre_hook(lambda _, given: lengths.append(given[0].shape[-1]))
answers = {}
for beams in (1, 2):
    options = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, num_beams=beams)
    answers[beams] = [model.generate(ids, use_cache=True, **options).tolist()]
    answers[f"fed {beams}"] = lengths[-1]
    answers[beams].append(model.generate(ids, use_cache=False, **options).tolist())
print(json.dumps(answers))
"""


def kvlint(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "kvlint", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def found(folder: Path, name: str) -> list[tuple[str, str]]:
    """Rule and source line of every finding, in the order of the file; deprecated names are left out, as on a terminal."""
    text = (folder / name).read_text(encoding="utf-8")
    shown = [one for one in lint(text, ">=5.24", codes=CODES) if one.category in (Category.BREAKS, Category.SILENT)]
    starts = sorted((one.start, one.code) for one in shown)
    return [(code, text[text.rfind("\n", 0, start) + 1 :].splitlines()[0].strip()) for start, code in starts]


def fix(folder: Path, name: str) -> str:
    shutil.copy(FIXTURES / name, folder / name)
    kvlint(folder, "--isolated", "--no-cache", "--target", ">=5.24", "--fix-only", "--fix", "--unsafe-fixes", name)
    return (folder / name).read_text(encoding="utf-8")


def generated(folder: Path, *arguments: str) -> dict[str, object]:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
        pytest.skip("the files are fixed for 5.24 and newer")
    (folder / "generate.py").write_text(GENERATE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "generate.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answers, dict)
    return answers


def test_findings_of_a_model_with_cache_objects(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "modeling_plover.py", tmp_path)
    assert found(tmp_path, "modeling_plover.py") == [
        ("KV306", 'keys_to_ignore_at_inference = ["past_key_values"]'),
        ("KV201", "past_key_values = DynamicCache.from_legacy_cache(past_key_values)"),
        ("KV201", "next_cache = next_cache.to_legacy_cache()"),
        ("KV305", "past_key_values: Optional[Union[Cache, List[torch.FloatTensor]]] = None,"),
        ("KV305", "past_key_values=None,"),
        ("KV310", "position_ids=None,"),
        ("KV303", "def _reorder_cache(past_key_values, beam_idx):"),
        ("KV205", "reordered_past += (tuple(state.index_select(0, beam_idx) for state in layer_past),)"),
    ]


@pytest.mark.parametrize("shim", [False, True])
def test_fixed_models_decode_as_without_a_cache(tmp_path: Path, shim: bool) -> None:
    """The older one imports a module that is gone: a shim brings it. Greedily, and with beams."""
    name = "Tern" if shim else "Plover"
    file = f"modeling_{name.lower()}.py"
    fix(tmp_path, file)
    left = [code for code, _ in found(tmp_path, file)]
    assert left == (["KV103"] if shim else [])
    if shim:
        kvlint(tmp_path, "shim", "--target", ">=5.24", file, "-o", "compat_shim.py")
    answers = generated(tmp_path, name, *(["shim"] if shim else []))
    for beams in ("1", "2"):
        with_cache, without = answers[beams]  # type: ignore[misc]
        assert with_cache == without
        assert answers[f"fed {beams}"] == 1, "one new token is fed at each step: the cache is used"
    assert len({token for row in answers["1"][0] for token in row[9:]}) > 4  # type: ignore[index]


def test_unfixed_model_does_not_run(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "modeling_plover.py", tmp_path)
    with pytest.raises(AssertionError, match="from_legacy_cache"):
        generated(tmp_path, "Plover")


def test_added_lines_stand_in_front_of_comments(tmp_path: Path) -> None:
    text = fix(tmp_path, "modeling_plover.py")
    assert re.search(
        r"device=input_ids.device,\n +\)\n +# only the ids that the cache does not know\n +if cache is not None", text
    )


@pytest.mark.parametrize(
    "body",
    [
        "position_ids = position_ids[:, -input_ids.shape[1] :]",
        "position_ids = torch.arange(input_ids.shape[1])[None]",
        "if position_ids is not None:\n            position_ids = position_ids[:, -1:]",
    ],
)
def test_positions_that_are_cut_anyway(tmp_path: Path, body: str) -> None:
    (tmp_path / "head.py").write_text(
        "import torch\n"
        "from transformers import LlamaForCausalLM\n\n\n"
        "class Head(LlamaForCausalLM):\n"
        "    def prepare_inputs_for_generation(self, input_ids, cache=None, position_ids=None, **kwargs):\n"
        "        input_ids = input_ids[:, -1:]\n"
        f"        {body}\n"
        '        return {"input_ids": input_ids, "position_ids": position_ids, "cache": cache}\n',
        encoding="utf-8",
    )
    assert "KV310" not in [code for code, _ in found(tmp_path, "head.py")]
