"""What decides about a line although it stands elsewhere: annotations, tests, patches, star imports, factories.

Each project is marked: a line is reported with exactly the codes behind its ``#``, on transformers 5.24.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import analysing
import pytest

from kvlint.config import Settings
from kvlint.public import lint_paths


def expect(folder: Path, files: Mapping[str, str], target: str = "5.24") -> None:
    """Fails unless exactly the marked lines of a project are reported, related places left out."""
    promised: set[tuple[str, int, str]] = set()
    (folder / "setup.py").write_text("", encoding="utf-8")
    for name, text in files.items():
        code, marks = analysing.split_marks(text)
        promised |= {(name, *mark) for mark in marks}
        (folder / name).write_text(code, encoding="utf-8")
    outcomes = lint_paths([str(folder)], settings=Settings(target=target), cache=False).files
    found = {(Path(one.path).name, one.line, one.code) for outcome in outcomes for one in outcome.findings}
    assert found == promised, f"marked {sorted(promised - found)}, reported {sorted(found - promised)}"


HELD = """
    from transformers import LlamaForCausalLM
    from arch import Pictures

    class Seeing(LlamaForCausalLM, Pictures):
        def forward(self, input_ids=None, attention_mask=None, cache{annotation} = None, **kwargs):
            attention_mask = self.widened(input_ids, attention_mask, cache)
            return super().forward(input_ids=input_ids, attention_mask=attention_mask, cache=cache, **kwargs)

        def prepare_inputs_for_generation(self, input_ids, cache=None, attention_mask=None, **kwargs):
            return {{"input_ids": input_ids[:, -1:], "cache": cache, "attention_mask": attention_mask}}
    """
ARCH = """
    import torch

    class Pictures:
        def widened(self, input_ids, attention_mask, past_key_values):
            if past_key_values is not None:
                return torch.ones((1, past_key_values[-1][-1].shape[-2] + 1))  # KV204
            return attention_mask
    """


@pytest.mark.parametrize(
    "annotation", ["", ": list[torch.FloatTensor] | None", ": Optional[List[torch.Tensor]]", ": list"]
)
def test_an_annotation_says_nothing_against_what_the_library_hands_over(annotation: str, tmp_path: Path) -> None:
    imports = "import torch\n    from typing import List, Optional"
    expect(tmp_path, {"model.py": f"\n    {imports}{HELD.format(annotation=annotation)}", "arch.py": ARCH})


def test_a_list_that_the_project_makes_is_one(tmp_path: Path) -> None:
    maker = """
        from arch import Pictures

        def count(pictures: Pictures, ids, mask, keys: list, values: list):
            return pictures.widened(ids, mask, [(key, value) for key, value in zip(keys, values)])
        """
    expect(tmp_path, {"use.py": maker, "arch.py": ARCH.replace("  # KV204", "")})


REORDER = """
    from transformers import DynamicCache, PreTrainedModel

    class Talker(PreTrainedModel):
        def _reorder_cache(self, past, beam_idx):{mark}
            {start}
            reordered = ()
            for layer in past:
                reordered += (tuple(state.index_select(0, beam_idx) for state in layer),)
            return reordered

        def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):
            return {{"input_ids": input_ids, "cache": cache}}
    """


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("if past is None: return past", True),
        ("if past is None: return None", True),
        ("if isinstance(past, DynamicCache): return past", False),
    ],
)
def test_a_return_of_nothing_is_no_cache(start: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": REORDER.format(start=start, mark="  # KV303" if told else "")})


PATCH = """
    from other_library import Speaker
    from transformers import LlamaForCausalLM, MistralForCausalLM

    def patch(model):
        def model_forward(self, input_ids=None, attention_mask=None, past_key_values=None, use_cache=None, **kwargs):{mark}
            return self.run(input_ids, past_key_values)

        {test}
        model.model.forward = model_forward.__get__(model.model, model.model.__class__)
        return model
    """


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("assert isinstance(model, LlamaForCausalLM)", True),
        ("assert isinstance(model, (LlamaForCausalLM, MistralForCausalLM))", True),
        ("assert isinstance(model, Speaker)", False),
        ("assert isinstance(model, (LlamaForCausalLM, Speaker))", True),
    ],
)
def test_a_test_of_the_class_tells_what_a_model_is(test: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": PATCH.format(test=test, mark="  # KV305" if told else "")})


BESIDE = """
    from types import MethodType
    from transformers import BloomForCausalLM

    def convert(model: BloomForCausalLM):
        old = model.forward

        def inner(self, input_ids=None, past_key_values=None, attention_mask=None, **others):{inner}
            return self.run(input_ids, past_key_values, attention_mask)

        def forward(self, input_ids=None, past_key_values=None, attention_mask=None, **others):{outer}
            return self.transformer(input_ids, past_key_values=past_key_values, attention_mask=attention_mask)

        def prepare(self, input_ids, cache=None, attention_mask=None, **kwargs):
            return {{"input_ids": input_ids, "past_key_values": cache, "attention_mask": attention_mask}}

        {patches}
        return model
    """


@pytest.mark.parametrize(
    ("patches", "inner", "outer"),
    [
        (["transformer.forward inner"], True, False),
        (["transformer.forward inner", "forward forward"], False, True),
        (["forward forward", "prepare_inputs_for_generation prepare"], False, False),
        (["transformer.forward inner", "prepare_inputs_for_generation prepare"], True, False),
    ],
)
def test_who_is_put_beside_whom_fills_it(patches: list[str], inner: bool, outer: bool, tmp_path: Path) -> None:
    lines = []
    for patch in patches:
        member, function = patch.split()
        lines.append(f"model.{member} = MethodType({function}, model.{member}".rpartition(".")[0] + ")")
    marks = {name: "  # KV305" if told else "" for name, told in (("inner", inner), ("outer", outer))}
    expect(tmp_path, {"a.py": BESIDE.format(patches="\n        ".join(lines), **marks)})


INSTANCE = """
    import types
    from transformers import LlamaForCausalLM

    def inner(self, input_ids=None, cache=None, use_cache=None, **kwargs):
        hidden = self.embed_tokens(input_ids)
        mask = self._update_causal_mask(None, hidden, None, cache, False)  # KV103
        for layer in self.layers:
            outputs = layer(hidden, cache=cache, attention_mask=mask, **kwargs)
            hidden = outputs[0]{row}
        return hidden

    def step(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        model_kwargs["cache"] = outputs.cache
        model_kwargs["cache_position"] = model_kwargs["cache_position"][-1:] + num_new_tokens  # KV307
        return model_kwargs

    def own_layer(self, hidden, **kwargs):
        return hidden, None

    def patch(model: LlamaForCausalLM):
        model.model.forward = types.MethodType(inner, model.model)
        model._update_model_kwargs_for_generation = step.__get__(model, model.__class__)
        {also}
    """


@pytest.mark.parametrize(
    ("also", "told"),
    [
        ("return model", True),
        ("for layer in model.model.layers: layer.forward = types.MethodType(own_layer, layer)", False),
    ],
)
def test_self_of_a_function_that_is_put_on_an_object_is_that_object(also: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": INSTANCE.format(also=also, row="  # KV309" if told else "")})


def test_self_of_a_function_that_is_put_on_anything_is_nothing(tmp_path: Path) -> None:
    text = INSTANCE.replace("model: LlamaForCausalLM", "model: LlamaForCausalLM, other")
    text = text.format(row="", also="other.run = inner.__get__(other)").replace("  # KV103", "")
    expect(tmp_path, {"a.py": text})


LAYERS = """
    from types import MethodType
    from transformers import LlamaForCausalLM

    def attend(self, hidden_states, attention_mask=None, past_key_value=None, **kwargs):{attend}
        return self.read(hidden_states, past_key_value), None

    def inner(self, input_ids=None, past_key_values=None, attention_mask=None, **kwargs):  # KV305
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, {call})
        return hidden

    def patch(model: LlamaForCausalLM):
        for layer in model.model.layers:
            layer.self_attn.forward = MethodType(attend, layer.self_attn)
        model.model.forward = MethodType(inner, model.model)
    """


@pytest.mark.parametrize(("call", "told"), [("past_key_value=past_key_values", False), ("cache=past_key_values", True)])
def test_a_layer_hands_on_to_its_attention_what_it_does_not_know(call: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": LAYERS.format(call=call, attend="  # KV305" if told else "")})


STAR = """
    from {module} import *

    class Repeated(DynamicCache):
        def batch_repeat_interleave(self, repeats):
            return self.key_cache  # KV202
    """


def test_a_star_import_brings_what_its_module_imports(tmp_path: Path) -> None:
    base = "from transformers.cache_utils import Cache, DynamicCache\n"
    again = "from base import *\n"
    expect(tmp_path, {"base.py": base, "again.py": again, "a.py": STAR.format(module="again")})


def test_a_star_import_brings_what_its_module_defines(tmp_path: Path) -> None:
    base = "class DynamicCache(dict):\n    key_cache = ()\n# transformers: none\n"
    expect(tmp_path, {"base.py": base, "a.py": STAR.format(module="base").replace("  # KV202", "")})


def test_modules_that_import_each_other_whole_end(tmp_path: Path) -> None:
    first = "from transformers import DynamicCache\nfrom second import *\n"
    second = "from first import *\nkept = DynamicCache()\nprint(kept[0])  # KV204\n"
    expect(tmp_path, {"first.py": first, "second.py": second})


PUT = """
    from transformers.cache_utils import DynamicCache

    def store(self, keys, values, layer_idx, *args, **kwargs):
        self.key_cache.append(keys){mark}
        return keys, values

    def begin(self, *args, **kwargs):
        self.key_cache = []

    DynamicCache.update = store
    {also}
    """


@pytest.mark.parametrize(("also", "told"), [("", True), ("DynamicCache.__init__ = begin", False)])
def test_a_function_that_is_put_on_a_class_of_caches_gets_one(also: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": PUT.format(also=also, mark="  # KV202" if told else "")})


DIALOGUE = """
    from transformers import GPT2LMHeadModel

    class Dialogue(GPT2LMHeadModel):
        def forward(self, {main}, past_key_values=None, position_ids=None, use_cache=None):{mark}
            return self.transformer(inputs_embeds=self.read({main}), position_ids=position_ids, use_cache=use_cache)
    """


@pytest.mark.parametrize(("main", "told"), [("samples", False), ("input_ids", True)])
def test_generate_hands_over_no_positions_alone(main: str, told: bool, tmp_path: Path) -> None:
    expect(tmp_path, {"a.py": DIALOGUE.format(main=main, mark="  # KV305" if told else "")})


@pytest.mark.parametrize("imported", ["", "from model import Own\n"])
@pytest.mark.parametrize(("key", "reported"), [("past_key_values", False), ("cache", True)])
def test_what_a_prepare_of_the_project_gives_back(tmp_path: Path, imported: str, key: str, reported: bool) -> None:
    """A model that is only handed in may be one of the project's, whose own hook answers, wherever it is defined."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "model.py").write_text(
        "from transformers import LlamaForCausalLM\n\n\n"
        "class Own(LlamaForCausalLM):\n"
        "    def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):\n"
        f'        return {{"input_ids": input_ids, "{key}": cache}}\n'
    )
    (tmp_path / "loop.py").write_text(
        imported + "from transformers import DynamicCache\n\n\n"
        "def step(model, ids):\n"
        "    inputs = model.prepare_inputs_for_generation(ids, cache=DynamicCache())\n"
        '    return inputs.pop("past_key_values")\n'
    )
    options = ("--isolated", "--no-cache", "--target", "5.24", "--exit-zero", "--output-format", "json")
    command = [sys.executable, "-m", "kvlint", *options, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("KV306" in {item["code"] for item in json.loads(run.stdout)}) is reported
