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


def test_model_of_pairs_is_converted_whole(tmp_path: Path) -> None:
    """Its layers join the tensors themselves: one fix takes the pairs from the cache and puts the new ones into it."""
    text = fix(tmp_path, "modeling_wren.py")
    assert found(tmp_path, "modeling_wren.py") == []
    assert text.count("from transformers import DynamicCache\n") == 1
    inside = text[text.index("class WrenModel") : text.index("class WrenForCausalLM")]
    assert "past_length = past_key_values[0][0].size(-2)" in inside, "what reads the pairs stays as it was"
    answers = generated(tmp_path, "Wren")
    for beams in ("1", "2"):
        with_cache, without = answers[beams]  # type: ignore[misc]
        assert with_cache == without
        assert answers[f"fed {beams}"] == 1
    assert len({token for row in answers["1"][0] for token in row[9:]}) > 4  # type: ignore[index]


def one_by_index(text: str) -> str:
    """The same model, with pairs by the number of the layer and an alias for what is returned."""
    text = text.replace("            past_key_values = tuple([None] * len(self.h))\n", "")
    text = text.replace(
        "for i, (block, layer_past) in enumerate(zip(self.h, past_key_values)):",
        "for i, block in enumerate(self.h):\n            layer_past = past_key_values[i] if past_key_values is not None else None",
    )
    text = text.replace(
        "if use_cache is True:\n                presents = presents + (outputs[1],)",
        "if use_cache:\n                presents += (outputs[1],)",
    )
    text = text.replace(
        "        if return_dict is False:",
        "        # what the caller gets\n        next_cache = presents if use_cache else None\n        if return_dict is False:",
    )
    return text.replace("past_key_values=presents)", "past_key_values=next_cache)").replace(
        "[hidden_states, presents]", "[hidden_states, next_cache]"
    )


def test_pairs_by_the_number_of_the_layer(tmp_path: Path) -> None:
    text = one_by_index((FIXTURES / "modeling_wren.py").read_text(encoding="utf-8"))
    (tmp_path / "modeling_wren.py").write_text(text, encoding="utf-8")
    assert ("KV204", "layer_past = past_key_values[i] if past_key_values is not None else None") in found(
        tmp_path, "modeling_wren.py"
    )
    kvlint(tmp_path, "--isolated", "--no-cache", "--target", ">=5.24", "--fix", "--unsafe-fixes", "modeling_wren.py")
    assert found(tmp_path, "modeling_wren.py") == []
    answers = generated(tmp_path, "Wren")
    assert answers["1"][0] == answers["1"][1] and answers["fed 1"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value = torch.cat((past_value, value), dim=-2)", "value = torch.cat((past_value, value), dim=self.axis)"),
        ("value = torch.cat((past_value, value), dim=-2)", "value = joined(past_value, value)"),
        ("presents = presents + (outputs[1],)", "presents = presents + (outputs[1], outputs[2])"),
        ("presents = () if use_cache else None", "presents = [] if use_cache else None"),
        ("past_length = past_key_values[0][0].size(-2)", "past_length = length_of(past_key_values)"),
        ("hidden_states = outputs[0]\n", "hidden_states = outputs[0]\n            watch(presents)\n"),
        ("past_key, past_value = layer_past\n", "past_key, past_value = layer_past[-2:]\n"),
        (
            "from transformers.generation import GenerationMixin\n",
            "from transformers.generation import GenerationMixin\nDynamicCache = dict\n",
        ),
    ],
)
def test_model_of_pairs_that_is_not_understood_stays_as_it_is(tmp_path: Path, old: str, new: str) -> None:
    text = (FIXTURES / "modeling_wren.py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "modeling_wren.py").write_text(text.replace(old, new, 1), encoding="utf-8")
    kvlint(tmp_path, "--isolated", "--no-cache", "--target", ">=5.24", "--fix", "--unsafe-fixes", "modeling_wren.py")
    fixed = (tmp_path / "modeling_wren.py").read_text(encoding="utf-8")
    assert fixed == text.replace(old, new, 1), "half of a conversion is worse than none"
    left = [code for code, _ in found(tmp_path, "modeling_wren.py")]
    assert "KV205" in left, "and it is told"


def test_model_of_pairs_is_no_finding_where_tuples_are_passed(tmp_path: Path) -> None:
    text = (FIXTURES / "modeling_wren.py").read_text(encoding="utf-8")
    shown = lint(text, "==4.36.2", codes=frozenset({"KV204", "KV205"}))
    assert shown == []
    both = [one for one in lint(text, ">=4.57", codes=frozenset({"KV205"})) if "first step" in one.message]
    assert [one.fix for one in both] == [None]


def test_unfixed_model_does_not_run(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "modeling_plover.py", tmp_path)
    with pytest.raises(AssertionError, match="from_legacy_cache"):
        generated(tmp_path, "Plover")


def test_added_lines_stand_in_front_of_comments(tmp_path: Path) -> None:
    text = fix(tmp_path, "modeling_plover.py")
    assert re.search(
        r"device=input_ids.device,\n +\)\n +# only the ids that the cache does not know\n +if past_key_values is not None",
        text,
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
