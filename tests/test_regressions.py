"""Findings that were wrong or missing on real code, each as the smallest example of its cause."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from analysing import fixed, lines, lint

from kvlint import checks
from kvlint.findings import Applicability
from kvlint.grouping import grouped

ALL = frozenset(check.code for check in checks.all_checks()) - {"KV901"}
"""The rules that are on by default."""


def found(text: str, target: str = "latest") -> set[tuple[int, str]]:
    """(line, code) of every finding in dedented code."""
    return lines(textwrap.dedent(text).strip("\n") + "\n", target, codes=ALL)


def codes_of_project(text: str, target: str = "5.24") -> set[str]:
    """The rules that report something in dedented code, with what the project says of its only file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "module.py").write_text(textwrap.dedent(text))
        options = ("--isolated", "--no-cache", "--target", target, "--exit-zero", "--output-format", "json")
        command = [sys.executable, "-m", "kvlint", *options, folder]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    return {item["code"] for item in json.loads(run.stdout)}


def codes(text: str, target: str = "latest") -> set[str]:
    return {code for _, code in found(text, target)}


class TestOptionalAnnotations:
    """``x: Optional[Tensor] = None`` was None for certain, and the code behind ``x is not None`` was dead."""

    def test_optional_of_a_foreign_class(self) -> None:
        code = """
            from typing import Optional
            import torch
            from transformers import PreTrainedModel

            class FooModel(PreTrainedModel):
                def forward(self, input_ids: Optional[torch.Tensor] = None, past_key_values=None):
                    if input_ids is not None:
                        shape = input_ids.shape
                    else:
                        raise ValueError("nothing given")
                    length = past_key_values[0][0].shape[2]
                    return shape, length
            """
        assert (11, "KV204") in found(code)

    def test_union_written_with_a_bar(self) -> None:
        code = """
            import torch
            from transformers import PreTrainedModel

            class FooModel(PreTrainedModel):
                def forward(self, input_ids: torch.Tensor | None = None, past_key_values=None):
                    if input_ids is None:
                        return None
                    return past_key_values[0][0].shape[2]
            """
        assert (8, "KV204") in found(code)


class TestItemsOfJoinedTuples:
    """``(hidden_states,) + (cache,)`` made a cache of every item."""

    CODE = """
        from transformers.cache_utils import DynamicCache

        def attention(x, past_key_value: DynamicCache):
            return (x, past_key_value) + (None,)

        def layer(x, past_key_value: DynamicCache):
            outputs = attention(x, past_key_value)
            outputs = (x,) + outputs[1:]
            hidden_states, past_key_value = outputs[:2]
            return hidden_states.{first}, past_key_value.{second}
        """

    def test_a_tensor_is_no_cache(self) -> None:
        assert found(self.CODE.format(first="dtype", second="layers")) == set()
        assert found(self.CODE.format(first="key_cache", second="layers")) == set()

    def test_the_cache_still_is_one(self) -> None:
        code = """
            from transformers.cache_utils import DynamicCache

            def attention(x):
                outputs = (x,) + (DynamicCache(),)
                return outputs[1].key_cache
            """
        assert found(code) == {(5, "KV202")}


class TestOwnModules:
    """Another engine's ``prepare_inputs_for_generation`` is not called by ``generate``."""

    def test_module_of_torch(self) -> None:
        code = """
            from torch import nn
            from transformers.models.llama import LlamaConfig

            class LlamaForCausalLM(nn.Module):
                def prepare_inputs_for_generation(self, past_key_values, context=None):
                    return {"past_key_values": past_key_values, "length": past_key_values[0][0].shape[1]}
            """
        assert found(code) == set()

    def test_with_the_mixin_it_is(self) -> None:
        code = """
            from torch import nn
            from transformers import GenerationMixin

            class LlamaForCausalLM(nn.Module, GenerationMixin):
                def prepare_inputs_for_generation(self, input_ids, past_key_values, context=None):
                    return {"past_key_values": past_key_values}
            """
        assert codes(code) == {"KV305"}


class TestPatchesThatCallEachOther:
    """A replaced layer under a replaced model is called by the replacement, in its own way."""

    LAYER = """
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel

        def layer_forward(self, hidden_states, past_key_value=None, **kwargs):
            return self.self_attn(hidden_states, past_key_value)

        LlamaDecoderLayer.forward = layer_forward
        """
    MODEL = """
        def model_forward(self, input_ids, cache=None, **kwargs):
            for layer in self.layers:
                input_ids = layer(input_ids, past_key_value=cache)
            return input_ids

        LlamaModel.forward = model_forward
        """

    def test_layer_alone(self) -> None:
        assert "KV305" in codes(self.LAYER)

    def test_layer_under_a_replaced_model(self) -> None:
        assert found(self.LAYER + self.MODEL) == set()

    def test_attention_under_a_layer_that_is_not_seen(self) -> None:
        attention = """
            from transformers.models.mistral.modeling_mistral import MistralAttention, MistralDecoderLayer
            {more}

            def attention_forward(self, hidden_states, past_key_value=None, **kwargs):
                return hidden_states, None, past_key_value

            MistralAttention.forward = attention_forward
            {patch}
            """
        assert "KV309" in codes(attention.format(more="", patch=""))
        patch = "MistralDecoderLayer.forward = fast_forward"
        assert found(attention.format(more="from .fast import *", patch=patch)) == set()


def test_a_tuple_under_a_keyword_that_is_swallowed_raises_nothing() -> None:
    code = """
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer

        class Block(LlamaDecoderLayer):
            def forward(self, hidden_states, layer_past=None):
                pair = (self.key(layer_past), self.value(layer_past))
                return super().forward(hidden_states, past_key_value=pair)
        """
    assert codes(code) == {"KV304"}


def test_a_helper_that_an_object_keeps_is_reported_where_it_is_imported() -> None:
    code = """
        from transformers.modeling_attn_mask_utils import _prepare_4d_causal_attention_mask

        class Patcher:
            def __init__(self):
                self.original = _prepare_4d_causal_attention_mask

            def restore(self, module):
                module.mask = self.original
        """
    assert 8 not in {line for line, _ in found(code)}
    assert (1, "KV103") in found(code)


def test_mems_are_no_cache() -> None:
    code = """
        from transformers import PreTrainedModel

        class FooLMHeadModel(PreTrainedModel):
            @staticmethod
            def _reorder_cache(mems, beam_idx):
                return [layer_past.index_select(1, beam_idx) for layer_past in mems]
        """
    assert found(code) == set()


class TestOwnFormats:
    """Collections that the code made itself, or takes apart as no cache of transformers ever could be."""

    def test_items_of_an_item_by_a_variable(self) -> None:
        code = """
            from transformers import PreTrainedModel

            def crop(model, past_key_values, length):
                return [[past_key_values[i][0][:, :, :length], *(past_key_values[i][j] for j in range(1, 4))] for i in range(9)]
            """
        assert found(code) == set()

    def test_what_becomes_a_cache_was_none(self) -> None:
        code = """
            from transformers import DynamicCache

            def forward(model, past_key_values):
                length = past_key_values[0][0].shape[-2]
                return model.model(past_key_values=DynamicCache.from_legacy_cache(past_key_values)), length
            """
        assert codes(code) == {"KV201", "KV308"}

    FORWARD = """
        from transformers import PreTrainedModel

        class FooForCausalLM(PreTrainedModel):
            def forward(self, input_ids, cache=None, use_cache=True):
                if {condition}:
                    cache = {value}
                return cache[0]
        """

    def test_rebound_under_a_condition(self) -> None:
        assert (
            found(self.FORWARD.format(condition="use_cache", value="tuple(self.tensor(i) for i in range(9))")) == set()
        )

    def test_a_list_of_nones_is_a_start(self) -> None:
        assert codes(self.FORWARD.format(condition="cache is None", value="[None] * 9")) == {"KV204"}


class TestPartsOfOwnLayers:
    """A layer of the project calls its attention by its own keyword, and unpacks what its own attention returns."""

    ATTENTION = """
        from transformers.models.bart.modeling_bart import BartAttention, BartDecoderLayer

        class OwnAttention(BartAttention):
            def forward(self, hidden_states, past_key_value=None):
                return hidden_states, None, past_key_value
        """
    LAYER = """
        class OwnLayer(BartDecoderLayer):
            def forward(self, hidden_states, past_key_value=None):
                states, weights, past = self.self_attn(hidden_states, past_key_value=past_key_value)
                return states, past
        """

    def test_attention_alone(self) -> None:
        assert found(self.ATTENTION) == {(4, "KV305"), (5, "KV309")}

    def test_attention_of_an_own_layer(self) -> None:
        assert found(self.ATTENTION + self.LAYER) == {(8, "KV305")}


class TestModulesPickedByTheNameOfTheirClass:
    CODE = """
        import types
        import transformers

        def attention_forward(self, hidden_states, attention_mask=None, past_key_value=None, **kwargs):
            return hidden_states, past_key_value

        def dispatch(model):
            for module in model.modules():
                if type(module).__name__ == "{name}":
                    module.forward = types.MethodType(attention_forward, module)
        """

    def test_class_of_transformers(self) -> None:
        assert codes(self.CODE.format(name="LlamaAttention")) == {"KV305"}

    def test_class_from_the_hub(self) -> None:
        assert found(self.CODE.format(name="NobodysAttention")) == set()


def test_four_names_for_a_layer_of_an_own_format() -> None:
    code = """
        import transformers

        def crop(past_key_values, size):
            return [[step, k[:, :size], v[:, :size], beam] for step, k, v, beam in past_key_values]
        """
    assert found(code) == set()


def test_reorder_cache_of_a_subclass_is_called_by_its_mixin() -> None:
    code = """
        from transformers.generation import GenerationMixin

        class OwnGenerationMixin(GenerationMixin):
            def beam_search(self, past, beam_idx):
                return self._reorder_cache(past, beam_idx)
        """
    assert found(code) == set()


def test_renaming_and_repeating_a_name_take_turns() -> None:
    code = textwrap.dedent(
        """
        from transformers import LlamaForCausalLM

        class FooForCausalLM(LlamaForCausalLM):
            def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
                if past_key_values is not None:
                    input_ids = input_ids[:, -1:]
                return {"input_ids": input_ids, "past_key_values": past_key_values}
        """
    )
    new = fixed(code, unsafe=True, codes=ALL)
    assert "past_key_values" not in new
    assert "cache is not None and cache.get_seq_length() > 0" in new


def test_no_second_fix_for_the_pairs_that_became_a_cache() -> None:
    code = textwrap.dedent(
        """
        from transformers import DynamicCache

        def forward(model, past_key_values):
            length = past_key_values[0][0].shape[-2]
            return model(past_key_values=DynamicCache.from_legacy_cache(past_key_values)), length
        """
    )
    assert "past_key_values[0][0].shape[-2]" in fixed(code, unsafe=True, codes=ALL - {"KV308"})


def test_outputs_gathered_from_a_list() -> None:
    code = """
        from transformers import DynamicCache, PreTrainedModel

        class Encoder(PreTrainedModel):
            def forward(self, hidden_states, use_cache=True):
                cache = DynamicCache(config=self.config)
                return tuple(v for v in [hidden_states, cache, None] if v is not None)

        class Pooler(PreTrainedModel):
            def forward(self, hidden_states):
                return hidden_states[:, 0]

        class FooModel(PreTrainedModel):
            def __init__(self, config):
                self.encoder, self.pooler = Encoder(config), Pooler(config)

            def forward(self, input_ids):
                outputs = self.encoder(input_ids)
                return self.pooler(outputs[0])
        """
    assert found(code) == set()


def test_a_size_named_after_its_axis_is_no_length() -> None:
    code = """
        from transformers import DynamicCache

        def sizes(cache: DynamicCache):
            keys = cache.layers[0].keys
            len1, len3 = keys.shape[1], keys.shape[3]
            past_len = keys.shape[1]
            return len1, len3, past_len
        """
    assert {(6, "KV503")} == {item for item in found(code) if item[1] == "KV503"}


def test_a_function_that_counts_the_items_of_a_layer_knows_other_formats() -> None:
    code = """
        from transformers import AutoModel

        def past_length(past_key_values):
            if len(past_key_values[0]) != 4:
                past_len = past_key_values[0][0].shape[0]
            else:
                past_len = past_key_values[0][0].shape[-2]
            return past_len
        """
    assert "KV503" not in codes(code)


def test_a_dead_tuple_branch_goes_and_the_rest_moves_out() -> None:
    before = """
        from transformers import LlamaForCausalLM

        def length(model: LlamaForCausalLM, ids):
            past = model(ids).cache
            if isinstance(past, tuple):
                n = past[0][0].shape[2]
            else:
                # what was seen

                n = past.get_seq_length()  # tokens
            if isinstance(past, tuple):
                n = past[0][0].shape[2]
            elif n > 3:
                n = 3
            return n
        """
    after = """
        from transformers import LlamaForCausalLM

        def length(model: LlamaForCausalLM, ids):
            past = model(ids).cache
            # what was seen

            n = past.get_seq_length()  # tokens
            if n > 3:
                n = 3
            return n
        """
    text = textwrap.dedent(before).strip("\n") + "\n"
    assert fixed(text, unsafe=True, codes=frozenset({"KV302"})) == textwrap.dedent(after).strip("\n") + "\n"


def test_a_branch_with_a_long_string_stays() -> None:
    code = """
        from transformers import LlamaForCausalLM

        def length(model: LlamaForCausalLM, ids):
            past = model(ids).cache
            if isinstance(past, tuple):
                n = past[0][0].shape[2]
            else:
                n = len('''
        two lines''')
            return n
        """
    text = textwrap.dedent(code).strip("\n") + "\n"
    assert fixed(text, unsafe=True, codes=frozenset({"KV302"})) == text


def test_a_function_that_asks_for_the_format_of_the_tensor_knows_both() -> None:
    code = """
        from transformers import DynamicCache

        def past_length(cache: DynamicCache, ids):
            past_len = cache.layers[0].keys.shape[1]
            if cache.layers[0].keys.shape[0] == ids.shape[0]:
                cache = convert(cache)
            return past_len
        """
    assert "KV503" not in codes(code)
    assert "KV503" in codes(code.replace("if cache.layers[0].keys.shape[0] == ids.shape[0]:", "if ids is None:"))


def test_a_read_is_not_mended_where_the_list_is_assigned_back() -> None:
    code = """
        from transformers import DynamicCache

        def trim(cache: DynamicCache, n):
            cache.key_cache = [k[:, :, :n] for k in cache.key_cache]
            return cache.key_cache[0]
        """
    text = textwrap.dedent(code).strip("\n") + "\n"
    assert {(4, "KV202"), (4, "KV203"), (5, "KV202")} <= found(code)
    assert fixed(text, unsafe=True) == text, "nor is another read of the same cache: half of a function is no step"


OWN_CACHES = """
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    class Attention(nn.Module):
        def forward(self, hidden_states, past_key_value=None):
            keys = self.k_proj(hidden_states)
            if past_key_value is not None:
                keys = KEYS
            return keys

    class FooModel(PreTrainedModel):
        def forward(self, input_ids=None, past_key_values=None):
            length = past_key_values[0][0].shape[2] if past_key_values is not None else 0
            for index, layer in enumerate(self.layers):
                layer(input_ids, past_key_value=past_key_values[index])
            return length

        @staticmethod
        def _reorder_cache(past_key_values, beam_idx):
            return tuple(tuple(t.index_select(0, beam_idx) for t in layer) for layer in past_key_values)
    """


def test_caches_of_a_project_behind_a_model_class() -> None:
    """Items of a layer's past with methods that tensors have not are objects of the project (medusa)."""
    about_the_cache = {"KV204", "KV205", "KV303"}
    own = OWN_CACHES.replace("KEYS", "past_key_value[0].cat(keys, dim=2)")
    assert not codes(own) & about_the_cache
    tensors = OWN_CACHES.replace("KEYS", "torch.cat([past_key_value[0], keys], dim=2)")
    assert codes(tensors) >= {"KV204", "KV205"}


EXPORTED = """
    import numpy as np
    import torch
    from optimum.modeling_base import OptimizedModel
    from transformers import PreTrainedModel
    from transformers.generation import GenerationMixin

    class Exported(BASES):
        def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
            if past_key_values is not None:
                length = past_key_values[0][0].shape[2]
                input_ids = input_ids[:, length:]
            return {"input_ids": input_ids, "past_key_values": past_key_values}

        def _grown(self, model_kwargs):
            return model_kwargs["past_key_values"][0][0].shape[-2]

        @staticmethod
        def _reorder_cache(past_key_values, beam_idx):
            return tuple(tuple(np.take(t, beam_idx, 0) for t in layer) for layer in past_key_values)
    """


@pytest.mark.parametrize("bases", ["OptimizedModel, GenerationMixin", "PreTrainedModel, GenerationMixin"])
def test_generate_hands_exported_models_a_cache_too(bases: str) -> None:
    """`_prepare_cache_for_generation` (generation/utils.py, 5.0 to 5.24) asks nothing of the class but whether it is stateful."""
    assert codes(EXPORTED.replace("BASES", bases)) >= {"KV204", "KV205", "KV303"}


def test_a_class_name_that_says_nothing() -> None:
    """``Attention`` is the name of a class of transformers, too; a module that is picked by it may be from the hub (xtuner)."""
    code = """
        import types

        def attention_forward(self, hidden_states, attention_mask=None, past_key_value=None):
            return hidden_states

        def dispatch(model):
            for module in model.modules():
                if type(module).__name__ == "NAME":
                    module.forward = types.MethodType(attention_forward, module)
        """
    assert "KV305" not in codes(code.replace("NAME", "Attention"))
    assert "KV305" not in codes(code.replace("NAME", "BaichuanAttention"))
    assert "KV305" in codes(code.replace("NAME", "LlamaAttention"))


class TestCachesAmongOtherThings:
    """A function that returns a cache here and a tensor there, and calls of a model's method under another name."""

    PROMPTS = """
        import torch
        from transformers import DynamicCache

        class Prompted:
            def get_prompt(self, size):
                if self.prefix:
                    return DynamicCache()
                return self.encoder(size)

            def forward(self, embeds):
                prompts = self.get_prompt(3)
                prompts = prompts.to(embeds.dtype)
                return torch.cat((prompts[:, :2], embeds), dim=1)
        """

    def test_what_only_a_tensor_can_is_done_with_the_tensor(self) -> None:
        assert codes(self.PROMPTS) == set()
        assert codes(self.PROMPTS.replace("return self.encoder(size)", "return DynamicCache()")) == {"KV201", "KV204"}
        assert codes(self.PROMPTS.replace("prompts[:, :2]", "prompts[0]")) == {"KV204"}

    HOOK = """
        from transformers import PreTrainedModel

        class Wrapped:
            def __init__(self, base_model: PreTrainedModel):
                self.base_model_prepare_inputs_for_generation = base_model.prepare_inputs_for_generation

            def prepare_inputs_for_generation(self, *args, **kwargs):
                model_kwargs = self.base_model_prepare_inputs_for_generation(*args, **kwargs)
                other = {}
                other["past_key_values"] = 1
                if model_kwargs["past_key_values"] is None:
                    model_kwargs["past_key_values"] = self.get_prompt(other)
                return model_kwargs
        """

    def test_the_hook_of_a_model_kept_under_another_name(self) -> None:
        assert found(self.HOOK) == {(11, "KV306"), (12, "KV306")}
        text = textwrap.dedent(self.HOOK).strip("\n") + "\n"
        new = text.replace('model_kwargs["past_key_values"]', 'model_kwargs["cache"]')
        assert fixed(text, codes=["KV306"]) == new


class TestGrowingCollections:
    """Lists that grow stayed empty, and dicts that are changed stayed as they were."""

    def test_a_list_that_is_appended_to_is_not_empty(self) -> None:
        code = """
            import torch
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained("x")
            past = []
            for _ in range(12):
                past.append((torch.zeros(1), torch.zeros(1)))
            model(ids, cache=tuple(past))
            """
        (finding,) = lint(textwrap.dedent(code), codes=["KV301"])
        assert finding.message.startswith("`model` gets a tuple as its cache")
        (finding,) = lint(textwrap.dedent(code).replace("past.append", "print"), codes=["KV301"])
        assert finding.message.startswith("`model` gets an empty tuple as its cache")

    def test_caches_of_a_list_that_grew(self) -> None:
        code = """
            from transformers import DynamicCache

            caches = []
            caches.append(DynamicCache())
            for cache in caches:
                print(cache.key_cache)
            """
        assert found(code) == {(6, "KV202")}


class TestSignaturesAsGuards:
    """``"cache" in inspect.signature(model.forward).parameters`` decided nothing."""

    CODE = """
        import inspect

        from transformers import LlamaForCausalLM

        def run(model: LlamaForCausalLM, ids, past):
            names = {names}
            if "cache" {op} names:
                return model(ids, cache=past)
            return model(ids, past_key_values=past)
        """

    def test_ways_to_ask(self) -> None:
        for names in (
            "inspect.signature(model.forward).parameters",
            "inspect.signature(model.forward).parameters.keys()",
            "inspect.signature(LlamaForCausalLM.forward).parameters",
            "inspect.getfullargspec(model.forward).args",
            "model.forward.__code__.co_varnames",
        ):
            assert found(self.CODE.format(names=names, op="in"), ">=4.45") == set(), names

    def test_the_wrong_way_round(self) -> None:
        code = self.CODE.format(names="inspect.signature(model.forward).parameters", op="not in")
        assert (8, "KV304") in found(code, ">=4.45")

    def test_of_something_else(self) -> None:
        code = self.CODE.format(names="inspect.signature(run).parameters", op="in")
        assert (8, "KV304") in found(code, ">=4.45")


def test_a_prompt_that_is_a_cache_or_a_tensor() -> None:
    """A helper returns a cache under one configuration and a tensor under another; tensor uses show the latter (peft)."""
    code = """
        import torch
        from transformers import DynamicCache

        class Peft(torch.nn.Module):
            def get_prompt(self, n):
                if self.kind == "prefix":
                    return DynamicCache(self.encoder(n))
                return self.encoder(n).repeat(n, 1, 1)

            def forward(self, x):
                prompts = self.get_prompt(2)
                prompts = prompts.to(x.dtype)
                return torch.cat((prompts[:, :5], x), dim=1)

            def other(self):
                return self.get_prompt(2).key_cache
        """
    assert found(code) == {(16, "KV202")}
    sure = code.replace("        return self.encoder(n).repeat(n, 1, 1)\n", "")
    assert {code for _, code in found(sure)} >= {"KV201", "KV202", "KV204"}


OTHER_ENGINE = """
    from transformers import PretrainedConfig
    from .phi3 import Phi3ForCausalLM

    class Phi3VForCausalLM(Phi3ForCausalLM):
        def prepare_inputs_for_generation(self, PARAMETERS, context=None):
            return {"input_ids": context.input_ids, "past_key_values": past_key_values}
    """


def test_generate_of_another_engine(tmp_path: Path) -> None:
    """``generate`` gives the ids first; and a base class of the project is followed whatever its file is called (lmdeploy)."""
    assert "KV305" not in codes(OTHER_ENGINE.replace("PARAMETERS", "past_key_values, inputs_embeds=None"))
    text = textwrap.dedent(OTHER_ENGINE.replace("PARAMETERS", "input_ids, past_key_values=None")).lstrip("\n")
    assert "KV305" in {code for _, code in lines(text, codes=ALL)}
    base = "import torch.nn as nn\n\nclass Phi3ForCausalLM(nn.Module):\n    def forward(self, past_key_values): ...\n"
    (tmp_path / "phi3.py").write_text(base)
    assert "KV305" not in {code for _, code in lines(text, codes=ALL, path=tmp_path / "phi3_v.py")}


def test_a_cache_parameter_that_nothing_reads() -> None:
    """Where the old name is a mere parameter, it makes no difference that it is never filled (mPLUG-Owl in lmms-eval)."""
    code = """
        from transformers import PreTrainedModel

        class FooForCausalLM(PreTrainedModel):
            def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
                return BODY
        """
    assert "KV305" not in codes(code.replace("BODY", '{"input_ids": input_ids}'))
    assert "KV305" in codes(code.replace("BODY", '{"input_ids": input_ids, "past_key_values": past_key_values}'))
    assert "KV305" in codes(code.replace("BODY", "prepared(locals())"))
    assert "KV305" in codes(code.replace("BODY", '{"input_ids": input_ids}').replace(", **kwargs", ""))


NAMED_MODEL = """
    from transformers import PreTrainedModel

    class NAMEForCausalLM(PreTrainedModel):
        STATEFUL

        def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
            if past_key_values is not None:
                input_ids = input_ids[:, -1:]
            return {"input_ids": input_ids, "past_key_values": past_key_values}

        @staticmethod
        def _reorder_cache(past_key_values, beam_idx):
            return tuple(tuple(t.index_select(0, beam_idx) for t in layer) for layer in past_key_values)
    """


@pytest.mark.parametrize(
    ("name", "stateful", "target", "silent"),
    [
        ("Foo", "pass", "latest", False),
        ("Foo", "pass", "5.4.0", False),
        ("Reformer", "pass", "latest", True),
        ("MiniMax", "pass", "latest", True),
        ("MiniMaxM2", "pass", "latest", False),
        ("Jamba", "pass", "latest", False),
        ("Jamba", "pass", "5.4.0", True),
        ("Foo", "_is_stateful = True", "5.4.0", True),
        ("Foo", "_is_stateful = True", "latest", False),
    ],
)
def test_models_for_which_generate_makes_no_cache(name: str, stateful: str, target: str, silent: bool) -> None:
    """`_supports_default_dynamic_cache` goes by class names, and up to 5.4 by `_is_stateful` (Reformer of 4.46)."""
    target = target if target == "latest" else f"=={target}"
    about_the_cache = codes(NAMED_MODEL.replace("NAME", name).replace("STATEFUL", stateful), target)
    assert about_the_cache & {"KV211", "KV303"} == (set() if silent else {"KV211", "KV303"})


def test_prepare_inputs_keeps_to_what_forward_takes() -> None:
    """A decoder that its model calls by the old name; renaming what it is prepared with alone broke it (Musicgen of 4.46)."""
    code = textwrap.dedent(
        """
        from transformers import PreTrainedModel, GenerationMixin

        class FooForCausalLM(PreTrainedModel, GenerationMixin):
            def forward(self, input_ids=None, past_key_values=None):
                return past_key_values

            def prepare_inputs_for_generation(self, input_ids, past_key_values=None, use_cache=True, **kwargs):
                # a comment
                return {"input_ids": input_ids, "past_key_values": past_key_values}

        class FooForConditionalGeneration(PreTrainedModel):
            def __init__(self, config):
                self.decoder = FooForCausalLM(config)

            def forward(self, input_ids=None, past_key_values=None):
                return self.decoder(input_ids, past_key_values=past_key_values)
        """
    ).lstrip("\n")
    assert (7, "KV305") in lines(code, codes=ALL)
    better = fixed(code, codes=frozenset({"KV305"}), unsafe=True)
    assert "use_cache=True, cache=None, **kwargs):" in better
    assert "past_key_values = cache if cache is not None else past_key_values" in better
    assert '"past_key_values": past_key_values}' in better
    assert "def forward(self, input_ids=None, past_key_values=None):\n        return past_key_values" in better


DEMANDING = """
    from transformers.models.llama.modeling_llama import LlamaAttention
    from transformers.utils.versions import require_version

    def attention_forward(self, hidden_states, attention_mask=None, past_key_value=None, **kwargs):
        keys, values = past_key_value.update(hidden_states, hidden_states, 0)
        return keys, None, past_key_value

    def apply():
        DEMAND
        LlamaAttention.forward = attention_forward

    def again():
        AGAIN
    """


@pytest.mark.parametrize(
    ("demand", "again", "silent"),
    [
        ('require_version("transformers>=4.45.0,<4.48.0", "hint")', "pass", True),
        ('versions.check_version("transformers < 4.48", mandatory=True)', "pass", True),
        ('require_version("transformers>=4.45.0", "hint")', "pass", False),
        ('require_version("tokenizers<0.20")', "pass", False),
        ('require_version("transformers<4.48")', "LlamaAttention.forward = attention_forward", False),
        ("require_version(WANTED)", "pass", False),
        ('show("transformers<4.48")', "pass", False),
    ],
)
def test_functions_that_demand_a_release(demand: str, again: str, silent: bool) -> None:
    """``require_version`` raises elsewhere; a patch is in force where one of its assignments runs (LLaMA-Factory)."""
    found_codes = codes(DEMANDING.replace("DEMAND", demand).replace("AGAIN", again))
    assert found_codes & {"KV305", "KV309"} == (set() if silent else {"KV305", "KV309"})


def test_check_min_version_narrows() -> None:
    code = """
        from transformers import AutoConfig, DynamicCache
        from transformers.utils import check_min_version

        DEMAND
        DynamicCache(config=AutoConfig.from_pretrained("gpt2"))
        """
    assert "KV206" in codes(code.replace("DEMAND", 'check_min_version("4.52.0.dev0")'), ">=4.50")
    assert "KV206" not in codes(code.replace("DEMAND", 'check_min_version("4.57.0.dev0")'), ">=4.50")


def test_a_block_with_three_outputs() -> None:
    """A replaced block of T5 takes what attention takes and returns two biases, no past (TransformerLens)."""
    code = """
        import types

        class Block(Bridge):
            def patch(self):
                def forward(block, hidden_states, attention_mask=None, cache=None, **kwargs):
                    outputs = block.layer[0](hidden_states, cache=cache)
                    return hidden_states, outputs[1], THIRD

                self.original.forward = types.MethodType(forward, self.original)
        """
    assert "KV309" not in codes(
        "import transformers\n" + textwrap.dedent(code).replace("THIRD", "outputs[2] if outputs else None")
    )
    assert "KV309" in codes(
        "import transformers\n" + textwrap.dedent(code).replace("THIRD", "cache if outputs else None")
    )


def test_a_count_of_filled_layers_wants_a_look() -> None:
    """``len(cache.key_cache)`` counted filled layers; those that a config makes are there when they are empty (Gaudi)."""
    code = "from transformers import DynamicCache\n\ndef f(cache: DynamicCache, i: int):\n    "
    filled, counted = (
        code + "if i < len(cache.key_cache):\n        pass\n",
        code + "return range(len(cache.key_cache))\n",
    )
    assert fixed(filled) == filled
    count = "sum(layer.is_initialized for layer in cache.layers)"
    assert fixed(filled, unsafe=True) == filled.replace("len(cache.key_cache)", count)
    assert fixed(counted) == counted.replace("key_cache", "layers")


def test_no_encoder_decoder_cache_of_none() -> None:
    """``from_legacy_cache(None)`` was an empty cache; the constructor takes no None (Whisper of Gaudi)."""
    code = "from transformers import EncoderDecoderCache\n\ndef f(pairs):\n    CONDITION\n"
    code += "    return EncoderDecoderCache.from_legacy_cache(ARGUMENT)\n"
    pairs = code.replace("ARGUMENT", "pairs").replace("CONDITION", "pass")
    assert "EncoderDecoderCache(pairs)" in fixed(pairs, unsafe=True)
    none = code.replace("ARGUMENT", "pairs").replace("CONDITION", "pairs = pairs if len(pairs) else None")
    empty = code.replace("ARGUMENT", "").replace("CONDITION", "pass")
    assert fixed(none, unsafe=True) == none
    assert fixed(empty, unsafe=True) == empty


def test_the_old_call_behind_the_new_one() -> None:
    """What an ``except`` tries after the same constructor failed is meant for other releases (hqq)."""
    code = """
        from transformers import StaticCache

        def make(config, device, dtype):
            try:
                return FIRST
            except TypeError:
                return StaticCache(config, 1, 8, device, dtype)
        """
    assert "KV206" not in codes(code.replace("FIRST", "StaticCache(config=config, max_cache_len=8)"))
    assert "KV206" in codes(code.replace("FIRST", "other(config)"))


LAYERS_OF_SOMETHING = """
    from transformers import AutoModelForCausalLM

    class PrefixCache:
        def update(self, key, value, layer_idx, cache_kwargs=None):
            return key, value

    def run(model: AutoModelForCausalLM, hidden, cache):
        for layer in model.model.layers:
            hidden = layer(hidden, attention_mask=None, past_key_value=PASSED, use_cache=True)[0]
        return hidden
    """


def test_an_own_cache_for_layers_of_the_hub() -> None:
    """Layers of remote code that are given an object of the project keep their keyword (LLaDA2 in Unsloth)."""
    assert "KV304" in codes(LAYERS_OF_SOMETHING.replace("PASSED", "cache"))
    assert "KV304" not in codes(LAYERS_OF_SOMETHING.replace("PASSED", "PrefixCache()"))


@pytest.mark.parametrize(("base", "told"), [("LlamaModel", False), ("nn.Module", True)])
def test_a_class_in_the_place_of_its_base_is_told_of_once(tmp_path: Path, base: str, told: bool) -> None:
    """The file that defines a replaced model is told; the one that puts it in its place only where nothing else would be."""
    models = textwrap.dedent(
        f"""
        from torch import nn
        from transformers.models.llama.modeling_llama import LlamaModel

        class OwnModel({base}):
            def forward(self, input_ids=None, past_key_values=None):
                return past_key_values
        """
    )
    patch = textwrap.dedent(
        """
        from transformers.models.llama import modeling_llama
        from models import OwnModel

        modeling_llama.LlamaModel = OwnModel
        """
    )
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "models.py").write_text(models)
    (tmp_path / "patch.py").write_text(patch)
    assert ("KV305" in {code for _, code in lines(patch, codes=ALL, path=tmp_path / "patch.py")}) is told
    assert ("KV305" in {code for _, code in lines(models, codes=ALL, path=tmp_path / "models.py")}) is not told


@pytest.mark.parametrize(
    "guard",
    [
        'layers = getattr(cache, "layers", None)\n    if layers is not None:\n        return layers[0].keys',
        'layers = getattr(cache, "layers", None)\n    if layers:\n        return layers[0].keys',
        'if (layers := getattr(cache, "layers", None)) is not None:\n        return layers[0].keys',
        'if "layers" in dir(cache):\n        return cache.layers[0].keys',
        'if "layers" in vars(cache):\n        return cache.layers[0].keys',
        'if "layers" in cache.__dict__:\n        return cache.layers[0].keys',
        'if "layers" not in dir(cache):\n        return cache.key_cache[0]\n    elif True:\n        return cache.layers[0].keys',
    ],
)
def test_a_guard_by_the_member_that_came_instead(guard: str) -> None:
    """The release that has `layers` never reaches what is meant for the ones before it."""
    head = "from transformers import DynamicCache\n\n\ndef first(cache: DynamicCache):\n    "
    assert codes(f"{head}{guard}\n    return cache.key_cache[0]\n") == set()


def test_a_member_that_is_missing_guards_nothing() -> None:
    head = "from transformers import DynamicCache\n\n\ndef first(cache: DynamicCache):\n    "
    guard = 'other = getattr(cache, "nothing_of_the_kind", None)\n    if other is not None:\n        return other'
    assert codes(f"{head}{guard}\n    return cache.key_cache[0]\n") == {"KV202"}


@pytest.mark.parametrize(
    ("head", "use", "code"),
    [
        ("from transformers import DynamicCache as DC", "cache = DC()\n    return cache[0]", "KV204"),
        ("from transformers import StaticCache as SC", "return SC(config, 1, 128)", "KV206"),
        ("from transformers import DynamicCache\nDC = DynamicCache", "cache = DC()\n    return cache[0]", "KV204"),
        (
            "from transformers import DynamicCache\n\n\nclass Ring(DynamicCache):\n    pass",
            "ring = Ring()\n    return ring[0]",
            "KV204",
        ),
        (
            "from transformers import DynamicCache as DC\n\n\ndef make():\n    return DC()",
            "made = make()\n    return made[0]",
            "KV204",
        ),
        (
            "from transformers.masking_utils import create_causal_mask as mask_of",
            "return mask_of(input_embeds=x)",
            "KV213",
        ),
    ],
)
def test_a_name_that_does_not_say_that_it_is_a_cache(head: str, use: str, code: str) -> None:
    """Functions that name a cache class by an alias without "cache" in it were not walked."""
    assert codes(f"{head}\n\n\ndef first(config, x):\n    {use}\n") == {code}


def test_a_returned_name_that_holds_three_outputs() -> None:
    text = """
from transformers.models.llama.modeling_llama import LlamaAttention


class Sparse(LlamaAttention):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
        out, weights = super().forward(hidden_states, position_embeddings, attention_mask, cache, **kwargs)
        outputs = (out, weights, cache)
        {more}return outputs
"""
    assert codes(text.format(more="")) == {"KV309"}
    assert codes(text.format(more="outputs = outputs[:2]\n        ")) == set()


PATCHED_ATTENTION = """
from typing import Optional, Tuple

import torch
from transformers.models.llama import modeling_llama


def forward(self, hidden_states, cache: Optional[Tuple[torch.Tensor]] = None, **kwargs):
    return hidden_states, cache[0].shape[-2]


def decoder_forward(self, hidden_states, cache=None, **kwargs):
    return self.self_attn(hidden_states, cache=(None, None))


def replace():
    modeling_llama.LlamaAttention.forward = forward
"""


def test_the_annotation_of_a_function_that_the_library_calls_is_not_believed() -> None:
    """The attention patches of FastChat still say that they are given a tuple."""
    assert codes(PATCHED_ATTENTION) == {"KV204"}


def test_whoever_replaces_the_layers_as_well_passes_what_they_like() -> None:
    """Unsloth replaces attention, layers and models, and hands pairs down between them."""
    more = "    modeling_llama.LlamaDecoderLayer.forward = decoder_forward\n"
    assert "KV204" not in codes(PATCHED_ATTENTION + more)


def test_the_classes_of_a_match() -> None:
    """A case by class narrows what is matched, in the case and behind it."""
    head = "from transformers import DynamicCache\n\n\ndef first(cache: DynamicCache | None):\n    match cache:\n"
    assert codes(
        head + "        case None:\n            return 0\n        case known:\n            return known[0]\n"
    ) == {"KV204"}
    old = "        case tuple() | list():\n            return cache[0][0]\n"
    assert codes(head.replace(": DynamicCache | None", "") + old) == set()
    new = "        case DynamicCache() as known:\n            return known.seen_tokens\n        case _:\n            return cache\n"
    assert codes(head.replace(": DynamicCache | None", "") + new) == {"KV202"}
    guarded = "        case DynamicCache(seen_tokens=0):\n            return 0\n        case _:\n            return cache[0]\n"
    assert codes(head + guarded) == {"KV204"}


@pytest.mark.parametrize(
    "is_new",
    [
        'Version(__version__) >= Version("5")',
        'Version(own_name) >= Version("5")',
        'own_name.split(".")[0] == "5"',
        'own_name.startswith("5.")',
        'bool(Version(own_name) >= Version("5"))',
        "(Version(own_name).major, Version(own_name).minor) >= (5, 0)",
        "[Version(own_name).major, 0] >= [5, 0]",
        'Version(own_name) in SpecifierSet(">=5")',
        'Version(own_name) not in SpecifierSet("<5")',
        'SpecifierSet(">=5").contains(own_name)',
        'SpecifierSet(">=5").contains(Version(own_name), prereleases=True)',
        'is_transformers_version(">=5")',
        'hasattr(transformers, "__version__") and Version(transformers.__version__) >= Version("5")',
    ],
)
@pytest.mark.parametrize("form", ["if", "name", "helper"])
def test_the_version_by_every_name(is_new: str, form: str) -> None:
    """``from transformers import __version__`` was a name like any other, and its guards decided nothing."""
    text = """
from packaging.specifiers import SpecifierSet
from packaging.version import Version
import transformers
from transformers import DynamicCache, __version__
from transformers import __version__ as own_name
from .helpers import is_transformers_version


def helper():
    return NEW


name = NEW


def first(cache: DynamicCache):
    if FORM:
        return cache.layers[0].keys
    return cache.key_cache[0]
"""
    text = text.replace("FORM", {"if": is_new, "name": "name", "helper": "helper()"}[form]).replace("NEW", is_new)
    assert codes(text, "5.24.0") == set()
    assert codes(text, "<4.50") == set()
    assert codes(text.replace("if ", "if not "), "5.24.0") == {"KV202"}


@pytest.mark.parametrize(
    "loop",
    [
        "while start < n:\n        out = model(ids[:, start : start + 512], past_key_values=cache)\n        start += 512",
        "for tok in toks:\n        out = model(tok, position_ids=torch.tensor([[start]]), past_key_values=cache)\n        start += 1",
        "for tok in toks:\n        start += 1\n        start += 2\n        out = model(toks[start], past_key_values=cache)",
        "while more:\n        start += more[start]\n        out = model.generate(ids[start], past_key_values=cache)",
    ],
)
def test_a_counter_in_a_loop(loop: str) -> None:
    """A counter that only its own line sets was followed in circles, and the file was given up."""
    text = f"""
from transformers import DynamicCache


def prefill(model, ids, toks, n, more):
    cache = DynamicCache(config=model.config)
    start = 0
    {loop}
    return cache.to_legacy_cache()
"""
    assert "KV201" in codes(text)


GUARDED = """
import importlib.metadata

import pytest
import transformers
from packaging import version
from transformers import DynamicCache

try:
    NUMBER = importlib.metadata.version("transformers")
except importlib.metadata.PackageNotFoundError:
    NUMBER = "0.0.0"


def first(cache: DynamicCache, past_key_values):
    {body}
"""


@pytest.mark.parametrize(
    "body",
    [
        'if getattr(cache, "layers", None) is not None:\n        return cache.layers[0]\n    return cache.key_cache',
        'if getattr(cache, "layers", None):\n        return cache.layers[0]\n    return cache.key_cache',
        'if getattr(cache, "key_cache", None) is None:\n        return cache.layers\n    return cache.key_cache',
        'if getattr(cache, "to_legacy_cache", None):\n        return cache.to_legacy_cache()',
        "with pytest.raises(AttributeError):\n        cache.to_legacy_cache()",
        "with pytest.raises((TypeError, ValueError)):\n        cache[0]",
        "with pytest.raises(ImportError):\n        from transformers import HybridCache",
        "try:\n        return past_key_values.get_seq_length()\n    except AttributeError:\n        return past_key_values[0][0].shape[2]",
        "if type(past_key_values) is tuple:\n        return past_key_values[0][0].shape[2]",
        "if type(past_key_values) in (tuple, list):\n        return past_key_values[0][0].shape[2]",
        'if version.parse(NUMBER) >= version.parse("5"):\n        return cache.layers\n    return cache.key_cache',
        'if version.parse(NUMBER) >= version.parse("5"):\n        pytest.skip("old")\n    return cache.key_cache',
    ],
)
def test_guards_that_were_not_followed(body: str) -> None:
    assert codes(GUARDED.format(body=body), "5.24.0") == set()


@pytest.mark.parametrize(
    "body",
    [
        'if getattr(cache, "layers", None) is None:\n        return 0\n    return cache.key_cache',
        "with pytest.raises(ValueError):\n        pass\n    return cache.key_cache",
        "try:\n        return past_key_values.get_seq_length()\n    except AttributeError:\n        return cache.key_cache",
        "if type(cache) is DynamicCache:\n        return cache.key_cache",
    ],
)
def test_what_guards_nothing(body: str) -> None:
    assert codes(GUARDED.format(body=body), "5.24.0") == {"KV202"}


def test_an_annotation_that_is_never_evaluated() -> None:
    head = "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
    checked = "if TYPE_CHECKING:\n    from transformers.cache_utils import HybridCache\n\n\n"
    used = "def first(cache: HybridCache | None): ...\n"
    assert codes(head + checked + used) == set()
    assert found(head + "from transformers import HybridCache\n\n\n" + used) == {(3, "KV101")}


@pytest.mark.parametrize("engine", ["import mlx.core as mx", "import mlx_lm"])
def test_models_of_mlx_beside_a_tokenizer_of_transformers(engine: str) -> None:
    text = f"from transformers import AutoTokenizer\n{engine}\n\n\ndef step(model, tokens, cache=None, **kwargs):\n"
    text += '    first = kwargs.get("cache")[0]\n    return model(tokens[None], cache=cache), first\n'
    assert codes(text, ">=4.45") == set()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("LlamaForCausalLM.prepare_inputs_for_generation = prepare", 6),
        ("def install(model):\n    model.prepare_inputs_for_generation = MethodType(prepare, model)", 6),
        ("def install(model):\n    for layer in model.model.layers:\n        layer.self_attn = Fast()", 11),
    ],
)
def test_what_takes_the_place_of_a_hook_or_a_part(text: str, line: int) -> None:
    head = """import torch
from types import MethodType
from transformers import LlamaForCausalLM


def prepare(self, input_ids, past_key_values=None, **kwargs):
    return {"input_ids": input_ids[:, past_key_values.get_seq_length() :], "past_key_values": past_key_values}


class Fast(torch.nn.Module):
    def forward(self, hidden_states, position_embeddings=None, past_key_values=None, **kwargs):
        past_key_values.update(hidden_states, hidden_states, 0)
        return hidden_states, None


"""
    assert {place for place in found(head + text + "\n") if place[1] == "KV305"} == {(line, "KV305")}


def test_slices_of_layers_are_layers() -> None:
    text = "import transformers\n\n\ndef step(model, h, cache):\n    for layer in model.model.layers[:4]:\n"
    assert "KV304" in codes(text + "        h = layer(h, past_key_value=cache)\n    return h\n")


@pytest.mark.parametrize(
    "loop",
    [
        "for (k, v), other in zip(cache, others):",
        "for k, v in tqdm(cache):",
        "for k, v in itertools.islice(cache, 4):",
        "layers = tuple(cache)\n    for k, v in layers:",
    ],
)
def test_other_ways_to_iterate(loop: str) -> None:
    head = "import itertools\nfrom tqdm import tqdm\nfrom transformers import DynamicCache\n\n\n"
    text = f"{head}def show(cache: DynamicCache, others):\n    {loop}\n        print(k)\n"
    assert codes(text) == {"KV205"}
    assert codes(text.replace("k, v", "k, v, window")) == set()


def test_generate_of_a_model_that_an_object_holds() -> None:
    text = "class Runner:\n    def run(self, ids):\n        return self.model.generate(ids, cache_implementation='hybrid')\n"
    assert codes(text) == {"KV401"}
    assert codes(text.replace("self.model", "self.engine")) == set()


PRIVATE = """
import transformers
from packaging import version
from transformers import DynamicCache

NEW = version.parse(transformers.__version__) >= version.parse("5")


def _old_pairs(cache: DynamicCache):
    return cache.to_legacy_cache()


def pairs(cache: DynamicCache, run):
    if NEW:
        return cache.layers
    {call}
"""


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("return _old_pairs(cache)", set()),
        ("return run(_old_pairs)", set()),
        ("return cache", {"KV201"}),
        ("return cache\n\n\ndef other(cache):\n    return _old_pairs(cache)", {"KV201"}),
    ],
)
def test_a_private_function_that_is_called_under_a_guard_only(call: str, told: set[str]) -> None:
    assert codes(PRIVATE.format(call=call)) == told


def test_generate_made_no_cache_for_own_classes_that_did_not_ask_for_it() -> None:
    """Until 4.53 (`_supports_cache_class` is False by default) such a class was handed None on the first step."""
    text = """
from transformers import GenerationMixin, PreTrainedModel


class Own(PreTrainedModel, GenerationMixin):
    {supports}
    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
        if past_key_values is not None:
            input_ids = input_ids[:, -1:]
        return {{"input_ids": input_ids, "past_key_values": past_key_values}}
"""
    assert "KV211" not in codes(text.format(supports=""), "==4.52.4")
    assert "KV211" in codes(text.format(supports="_supports_cache_class = True\n"), "==4.52.4")
    assert "KV211" in codes(text.format(supports=""), "==5.9.0")


@pytest.mark.parametrize("path", ["words.md", "generation_config.json"])
def test_every_check_takes_what_has_no_tree(path: str) -> None:
    """Prose and JSON have a text only."""
    from kvlint.analysis import analyse
    from kvlint.analysis.project import Project
    from kvlint.source import parse
    from kvlint.timeline import the_timeline

    text = (
        "# Title\n\nThe cache.\n" if path.endswith(".md") else '{"use_cache": true, "cache_implementation": "static"}\n'
    )
    timeline = the_timeline()
    for region in parse(Path(path), text.encode()).regions:
        facts = analyse(region, Path(path), timeline.all, Project(), timeline)
        for check in checks.all_checks():
            list(check.run(facts, True))


def test_layers_that_are_given_their_cache_by_position() -> None:
    """`GPT2Model` calls its blocks with the cache as the second argument."""
    text = """
from transformers.models.{module} import {base}


class Own({base}):
    def forward(self, hidden_states, past_key_value=None, **kwargs):
        return super().forward(hidden_states, past_key_value, **kwargs)
"""
    assert "KV305" not in codes(text.format(module="gpt2.modeling_gpt2", base="GPT2Block"))
    assert "KV305" in codes(text.format(module="llama.modeling_llama", base="LlamaDecoderLayer"))


@pytest.mark.parametrize(
    "body",
    [
        "old = isinstance(past_key_values, (tuple, list))\n    if old:\n        return past_key_values[0][0]",
        "old = isinstance(past_key_values, tuple)\n    if not old:\n        return 1\n    return past_key_values[0][0]",
        'new = hasattr(past_key_values, "get_seq_length")\n    return 1 if new else past_key_values[0][0]',
        "if isinstance(past_key_values, DynamicCache):\n        return 1\n    return past_key_values[0][0]",
        'return 1 if callable(getattr(past_key_values, "get_seq_length", None)) else past_key_values[0][0]',
    ],
)
def test_tuples_that_are_told_apart_in_another_way(body: str) -> None:
    assert "KV204" not in codes(f"from transformers import DynamicCache\n\n\ndef first(past_key_values):\n    {body}\n")


def test_a_test_that_no_longer_holds() -> None:
    body = "old = isinstance(past_key_values, tuple)\n    past_key_values = DynamicCache()\n    return past_key_values[0] if old else 1"
    assert codes(f"from transformers import DynamicCache\n\n\ndef first(past_key_values):\n    {body}\n") == {"KV204"}


def test_a_model_that_never_reads_its_cache() -> None:
    """A reward model takes the parameter because others do, and scores whole sequences."""
    text = """
from transformers import LlamaForCausalLM


class Reward(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, **kwargs):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        return {score}
"""
    assert "KV305" not in codes(text.format(score="self.score(hidden[:, -1])"))
    assert "KV305" in codes(text.format(score="self.score(hidden[:, -1]), past_key_values"))


@pytest.mark.parametrize("condition", ["is_v5()", "is_v5_at_once()", "V5", "compat.is_v5()", "compat.V5"])
def test_a_version_that_another_module_of_the_project_tests(tmp_path: Path, condition: str) -> None:
    """Helpers without arguments were asked only where they stand in the same file."""
    compat = textwrap.dedent(
        """
        import transformers
        from packaging import version

        V5 = version.parse(transformers.__version__) >= version.parse("5")


        def is_v5():
            return V5


        def is_v5_at_once():
            return version.parse(transformers.__version__) >= version.parse("5")
        """
    )
    use = f"""
from transformers import DynamicCache

from . import compat
from .compat import V5, is_v5, is_v5_at_once


def keys(cache: DynamicCache):
    return cache.layers if {condition} else cache.key_cache
"""
    for name, text in (("pyproject.toml", ""), ("__init__.py", ""), ("compat.py", compat), ("use.py", use)):
        (tmp_path / name).write_text(text)
    assert lines(use, "5.24.0", codes=ALL, path=tmp_path / "use.py") == set()
    old = use.replace(condition + " else", f"not {condition} else")
    assert {code for _, code in lines(old, "5.24.0", codes=ALL, path=tmp_path / "use.py")} == {"KV202"}


def test_nothing_is_asked_of_a_value_that_cannot_be() -> None:
    """`contains` of a set of versions, asked about a value without alternatives, or about no version at all."""
    text = """
from packaging.specifiers import SpecifierSet
from transformers import DynamicCache


def first(cache: DynamicCache, other):
    layers = getattr(cache, "layers", None)
    if layers is None and SpecifierSet(">=5").contains(layers):
        return 0
    return SpecifierSet(">=5").contains(other), SpecifierSet(">=5").contains(), cache.key_cache
"""
    assert codes(text, "5.24.0") == {"KV202"}


def test_a_hook_that_another_file_registers(tmp_path: Path) -> None:
    """Where and how it is registered decides: on attention it writes under a key that nothing reads, on a model not."""
    hooks = """
def give_store(module, args, kwargs):
    kwargs["past_key_value"] = module.new_store()
    return args, kwargs


def settings(kwargs):
    kwargs["past_key_value"] = 1
    return kwargs
"""
    register = """
from transformers import AutoModelForCausalLM

from hooks import give_store


def calibrate(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    for layer in model.model.layers:
        {module}.register_forward_pre_hook(give_store, with_kwargs=True)
    return model
"""
    found = {}
    for module in ("layer.self_attn", "model"):
        folder = tmp_path / module
        folder.mkdir()
        (folder / "pyproject.toml").write_text("")
        (folder / "hooks.py").write_text(hooks)
        (folder / "calibrate.py").write_text(register.format(module=module))
        options = ("--isolated", "--no-cache", "--target", "5.24", "--exit-zero", "--output-format", "json")
        command = [sys.executable, "-m", "kvlint", *options, str(folder)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found[module] = {(Path(item["path"]).name, item["line"], item["code"]) for item in json.loads(run.stdout)}
    assert found == {"layer.self_attn": {("hooks.py", 3, "KV306")}, "model": set()}


@pytest.mark.parametrize("called", [True, False])
def test_an_attribute_that_one_method_sets(called: bool) -> None:
    code = """
        from transformers import DynamicCache

        class SpanCache(DynamicCache):
            def fill(self):
                self.value_cache = []

            def spans(self):
                return len([value for value in self.value_cache])

        def use(cache):
            {use}
        """
    assert codes(code.format(use="cache.fill()" if called else "pass")) == (set() if called else {"KV202"})


def test_a_mixin_of_torch_brings_the_methods_of_a_module() -> None:
    code = """
        import torch
        from transformers import DynamicCache

        class MovableCache(DynamicCache{more}):
            def move(self, device):
                return self.to(device)
        """
    assert codes(code.format(more="")) == {"KV201"}
    assert codes(code.format(more=", torch.nn.Module")) == set()


def test_cache_position_of_a_mixer_is_only_tested() -> None:
    code = """
        from transformers.models.qwen3_next import modeling_qwen3_next

        def forward(self, hidden_states, cache=None, cache_position=None, attention_mask=None, **kwargs):
            decoding = cache is not None and cache_position is not None and hidden_states.shape[1] == 1
            return self.one_step(hidden_states, cache) if decoding else self.chunked(hidden_states, cache)

        modeling_qwen3_next.Qwen3NextGatedDeltaNet.forward = forward
        """
    assert codes(code) == {"KV307"}


def test_past_that_the_project_hands_on_itself() -> None:
    code = """
        from transformers import GenerationMixin, OPTPreTrainedModel

        class Captioner(OPTPreTrainedModel, GenerationMixin):
            def prepare_inputs_for_generation(self, input_ids, past=None, **kwargs):
                return {{"input_ids": input_ids if past is None else input_ids[:, -1:], "rows": past}}

            def _update_model_kwargs_for_generation(self, outputs, model_kwargs, **kwargs):
                {update}
                return model_kwargs
        """
    assert "KV305" in codes(code.format(update="pass"))
    assert "KV305" not in codes(code.format(update='model_kwargs["past"] = outputs.rows'))


def test_settings_that_are_asked_what_they_are() -> None:
    code = """
        def rows(generation_config):
            settings = generation_config.cache_config
            if isinstance(settings, dict):
                return settings.get("batch_size")
            return settings.batch_size
        """
    assert codes(code) == set()


def test_a_class_that_may_be_missing_is_asked_for() -> None:
    code = """
        def has_hybrid(cache):
            try:
                from transformers import HybridCache, StaticCache
            except ImportError:
                return False
            return isinstance(cache, (HybridCache, StaticCache))
        """
    assert codes(code) == set()


STEPPING = """\
from transformers import PreTrainedModel, GenerationMixin

class State:
    pass

class Mixer(PreTrainedModel, GenerationMixin):
    def forward(self, input_ids, cache_params: ANNOTATION = None, use_cache=None, **kwargs):
        if cache_params is not None:
            input_ids = input_ids[:, -1:]
        logits, cache_params = self.backbone(input_ids, cache_params)
        return self.outputs(logits, cache_params)
"""
STEP = """
    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, **kwargs):
        model_kwargs["cache_params"] = outputs.get("cache_params")
        return model_kwargs
"""


@pytest.mark.parametrize("handed_on", [False, True])
def test_a_parameter_that_the_class_fills_by_its_own_step(handed_on: bool) -> None:
    """The library passes nothing under that name, but from the second step on the class does."""
    code = STEPPING.replace("ANNOTATION", "object") + (STEP if handed_on else "")
    assert ("KV305" in codes(code, "5.24")) is not handed_on
    assert handed_on is False or "KV211" not in codes(code, "5.24")


@pytest.mark.parametrize(("annotation", "offered"), [("object", True), ("State", False)])
def test_no_fix_hands_the_librarys_cache_to_a_class_of_the_project(annotation: str, offered: bool) -> None:
    code = STEPPING.replace("ANNOTATION", annotation)
    (finding,) = lint(code, "5.24", codes=["KV305"])
    assert (finding.fix is not None) is offered


@pytest.mark.parametrize(
    ("parameters", "reported"),
    [("layer_idx, keys, values", False), ("keys, layer_idx, values", False), ("keys, values, layer_idx", True)],
)
def test_an_update_that_only_models_of_the_project_can_call(parameters: str, reported: bool) -> None:
    """Models of the library hand over keys, values and the number of the layer, in this order."""
    code = f"""
        from transformers.cache_utils import Cache

        class Paged(Cache):
            def __init__(self):
                self.keys, self.values = [], []

            def update(self, {parameters}):
                self.keys.append(keys)
                self.values.append(values)
                return keys, values
        """
    assert ("KV214" in codes(code)) is reported


REORDERED = """
    import torch
    from transformers import GenerationMixin, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class Compiled(PreTrainedModel, GenerationMixin):
        def forward(self, input_ids, past_key_values=None, **kwargs):
            FORWARD
            return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)

        def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):
            return dict(input_ids=input_ids, past_key_values=cache)

        def _reorder_cache(self, past_key_values, beam_idx):
            return tuple(tuple(state.index_select(0, beam_idx) for state in layer) for layer in past_key_values)
    """


@pytest.mark.parametrize(
    ("forward", "reported"),
    [
        ("logits, past_key_values = self.request(input_ids, past_key_values)", False),
        (
            """logits = self.request(input_ids)
        if self.stateful:
            past_key_values = ((),)
        if not self.stateful:
            past_key_values = tuple(self.read(name) for name in self.names)""",
            False,
        ),
        ("logits = self.request(input_ids, past_key_values)", True),
    ],
)
def test_beam_search_hands_on_what_forward_gave_back(forward: str, reported: bool) -> None:
    """A format of the project's own, or one of which nothing is known, is no cache of the library."""
    code = textwrap.dedent(REORDERED).replace("FORWARD", forward)
    assert bool({"KV303", "KV205"} & codes(code)) is reported


@pytest.mark.parametrize(
    ("place", "reported"),
    [
        ("transformers.generation.utils._crop_past_key_values", False),
        ("transformers.models.llama.modeling_llama.LlamaAttention.forward", True),
    ],
)
def test_a_helper_that_replaces_one_of_the_library_is_handed_no_cache(
    tmp_path: Path, place: str, reported: bool
) -> None:
    code = f"""
import transformers

def shortened(model, past_key_values, **kwargs):
    return past_key_values[0][0][:, :, :4]

{place} = shortened
"""
    (tmp_path / "patch.py").write_text(code)
    options = ("--isolated", "--no-cache", "--target", "5.0", "--exit-zero", "--output-format", "json")
    command = [sys.executable, "-m", "kvlint", *options, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("KV204" in {item["code"] for item in json.loads(run.stdout)}) is reported


OWN_PAIRS = """
    import torch
    from torch import nn
    from transformers import GenerationMixin, PreTrainedModel
    from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

    class Inner(BASE):
        def forward(self, input_ids=None, past_key_values=None):
            pairs = ()
            for index, layer in enumerate(self.layers):
                input_ids, pair = layer(input_ids, past_key_values[index] if past_key_values else None)
                pairs += (pair,)
            return BaseModelOutputWithPast(last_hidden_state=input_ids, past_key_values=pairs)

    class Outer(PreTrainedModel, GenerationMixin):
        def __init__(self, config):
            super().__init__(config)
            self.inner = Inner(config)

        def forward(self, input_ids=None, past_key_values=None):
            outputs = self.inner(input_ids, past_key_values)
            return CausalLMOutputWithPast(logits=outputs[0], past_key_values=outputs.past_key_values)

        def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
            return {"input_ids": input_ids[:, -1:] if past_key_values else input_ids, "past_key_values": past_key_values}

        def _reorder_cache(self, past_key_values, beam_idx):
            return tuple(tuple(state.index_select(0, beam_idx) for state in layer) for layer in past_key_values)
    """


@pytest.mark.parametrize("base", ["PreTrainedModel", "nn.Module"])
def test_pairs_that_go_from_a_part_of_a_model_to_its_head(base: str) -> None:
    """The head stores them, hands them to its own code and reorders them: nothing of the library meets them."""
    assert not {"KV301", "KV303", "KV205"} & codes(OWN_PAIRS.replace("BASE", base))


def test_pairs_that_a_part_of_a_model_of_the_library_returns() -> None:
    code = OWN_PAIRS.replace("class Inner(BASE)", "class Inner(LlamaModel)").replace(
        "import GenerationMixin", "import LlamaModel, GenerationMixin"
    )
    assert "KV301" in codes(code)


def test_positions_that_do_not_fit_once_the_cache_is_filled() -> None:
    """While nothing fills the cache the ids are not cut: a place of that defect, told with it."""
    code = """
        from transformers import LlamaForCausalLM

        class Chat(LlamaForCausalLM):
            def prepare_inputs_for_generation(self, input_ids, PAST=None, position_ids=None, **kwargs):
                if PAST is not None:
                    input_ids = input_ids[:, -1:]
                return {"input_ids": input_ids, "cache": PAST, "position_ids": position_ids}
        """
    listed = lint(
        textwrap.dedent(code).replace("PAST", "past_key_values").lstrip("\n"), "5.24", codes=["KV305", "KV310"]
    )
    heads = {finding.code: [item.code for item in behind] for finding, behind in grouped(listed, "example.py")}
    assert heads == {"KV305": ["KV310"]}
    assert {"KV310"} <= codes(code.replace("PAST", "cache"), "5.24")


@pytest.mark.parametrize("target", ["5.24", ">=4.48"])
def test_a_parameter_says_since_when_it_is_unfilled(target: str) -> None:
    code = """\\
from transformers.models.llama.modeling_llama import LlamaAttention

def attention(self, hidden_states, past_key_value=None, **kwargs):
    return self.o_proj(hidden_states if past_key_value is None else past_key_value), None

LlamaAttention.forward = attention
"""
    (finding,) = lint(code, target, codes=["KV305"])
    assert "from 4.56.0" in finding.message


REPLACED = """
    import types
    from transformers import LlamaForCausalLM

    def attend(self, hidden_states, past_key_value=None, **kwargs):
        return self.o_proj(hidden_states), None, past_key_value

    def layer(self, hidden_states, past_key_value=None, **kwargs):
        hidden_states, _, past = self.self_attn(hidden_states, past_key_value=past_key_value)
        return hidden_states, past

    def replace_layers(model):
        for index in range(len(model.model.layers)):
            model.model.layers[index].forward = types.MethodType(layer, model.model.layers[index])

    def enable(model: LlamaForCausalLM):
        HELPER(model)
        for layer in model.model.layers:
            module = layer.self_attn
            module.forward = types.MethodType(attend, module)
    """


@pytest.mark.parametrize(("helper", "reported"), [("replace_layers", False), ("print", True)])
def test_a_part_whose_caller_a_helper_replaces(helper: str, reported: bool) -> None:
    """What calls the attention then is the project's own layer, which unpacks three and passes the old keyword."""
    code = REPLACED.replace("HELPER", helper)
    if helper == "print":
        code = code.replace("layer.forward = types", "other.forward = types").replace(
            "replace_layers(model)", "unused(model)"
        )
        code = code[: code.index("    def layer")] + code[code.index("    def enable") :]
    told = {
        item.code
        for item in lint(textwrap.dedent(code).lstrip("\n"), "5.24", codes=["KV305", "KV309"])
        if "attend" in item.message
    }
    assert told == ({"KV305", "KV309"} if reported else set())


@pytest.mark.parametrize("place", ["LlamaAttention", "GemmaAttention"])
def test_the_keyword_of_an_attention_that_is_replaced_beside_its_layer(place: str) -> None:
    code = f"""
        from transformers.models.gemma.modeling_gemma import GemmaAttention
        from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer

        def attend(self, hidden_states, past_key_value=None, **kwargs):
            return hidden_states, None, past_key_value

        def layer(self, hidden_states, past_key_value=None, **kwargs):
            hidden_states, _, past = self.self_attn(hidden_states, past_key_value=past_key_value)
            return hidden_states, past

        {place}.forward = attend
        LlamaDecoderLayer.forward = layer
        """
    assert ("KV304" in codes_of_project(code)) is (place == "GemmaAttention")


def test_a_forward_that_the_prepare_of_a_class_above_fills() -> None:
    code = """
        from transformers import GenerationMixin, PreTrainedModel

        class Base(PreTrainedModel, GenerationMixin):
            def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):
                return {"input_ids": input_ids, "past_key_values": cache}

        class Derived(Base):
            def forward(self, input_ids=None, past_key_values=None):
                return self.run(input_ids, past_key_values)

            def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):
                return super().prepare_inputs_for_generation(input_ids, cache=cache, **kwargs)
        """
    assert "KV305" not in codes(code, "5.24")


@pytest.mark.parametrize(
    ("parameters", "body", "reported"),
    [
        ("cache_kwargs=None", "pass", True),
        ("mask, cache_kwargs", "pass", False),
        ("cache_kwargs", "queries = cache_kwargs['queries']", False),
        ("cache_kwargs", "sin = cache_kwargs['sin']", True),
    ],
)
def test_an_update_that_needs_what_no_model_gives(parameters: str, body: str, reported: bool) -> None:
    code = f"""
        from transformers import DynamicCache

        class Own(DynamicCache):
            def update(self, key_states, value_states, layer_idx, {parameters}):
                {body}
                return super().update(key_states, value_states, layer_idx)
        """
    assert ("KV214" in codes(code, "5.24")) is reported


def test_a_module_that_is_imported_by_a_call() -> None:
    code = """
        import importlib
        import pytest

        def test_masks():
            try:
                masks = importlib.import_module("transformers.modeling_attn_mask_utils")
            except ImportError:
                pytest.skip("gone")
            assert masks.AttentionMaskConverter(is_causal=True)
        """
    assert "KV103" not in codes(code, "5.24")
    assert "KV103" in codes(code.replace("except ImportError", "except ValueError"), "5.24")


def test_a_packer_of_keys_and_values() -> None:
    """What a helper calls the axes of what it is given holds for one of its callers at most."""
    code = """
        import torch
        from transformers import DynamicCache

        def pack(data, size):
            batch, heads, head_dim, length = data.shape
            return data.view(batch, heads, head_dim, length // size, size)

        class Packed(DynamicCache):
            def update(self, key_states, value_states, layer_idx, **kwargs):
                self.packed = pack(key_states.transpose(2, 3), 2), pack(value_states, 2)
                return key_states, torch.cat([self.values, value_states], dim=2)
        """
    assert not {"KV501", "KV502", "KV503"} & codes(code)


@pytest.mark.parametrize("other", ["head // group", "head"])
def test_a_head_map_beside_the_other_one(other: str) -> None:
    code = f"""
        def attend(queries, keys, num_heads, num_kv_heads, interleaved):
            group = num_heads // num_kv_heads
            for head in range(num_heads):
                if interleaved:
                    kv_head = head % num_kv_heads
                else:
                    kv_head = {other}
                yield queries[:, head] @ keys[:, kv_head]
        """
    assert ("KV601" in codes(code)) is (other == "head")


@pytest.mark.parametrize(("given", "reported"), [("kept", False), ("past_key_values", True)])
def test_a_function_that_gives_back_a_list_takes_one(given: str, reported: bool) -> None:
    """Only its name would say that the parameter is a cache: what it holds is what the function itself made before."""
    code = f"""
        from transformers.modeling_outputs import BaseModelOutputWithPast

        def step(self, input_ids, past_key_values):
            length = past_key_values[0][0].shape[-2]
            kept = []
            for index, layer in enumerate(self.layers):
                input_ids, pair = layer(input_ids, past_key_values[index], length)
                kept.append(pair)
            return BaseModelOutputWithPast(last_hidden_state=input_ids, past_key_values={given})
        """
    assert ("KV204" in codes(code)) is reported


@pytest.mark.parametrize(("call", "own"), [("keys.cat(new)", True), ("keys.clone()", False)])
def test_items_of_a_pair_with_methods_of_their_own(call: str, own: bool) -> None:
    code = f"""
        from transformers.cache_utils import Cache

        def attend(self, new, past_key_value: Cache):
            keys, values = past_key_value[self.layer_idx]
            return {call}, values
        """
    assert ("KV204" in codes(code)) is not own


@pytest.mark.parametrize(
    ("read", "safe"), [("past_key_values[-1][-1].shape[-2]", False), ("past_key_values.get_seq_length()", True)]
)
def test_a_cache_that_wakes_another_method_of_the_class(read: str, safe: bool) -> None:
    """It was None there: where pairs are read, filling it breaks what worked."""
    code = f"""
        from transformers import LlamaForCausalLM

        class Pictures:
            def joined(self, input_ids, past_key_values):
                return input_ids if past_key_values is None else input_ids[:, {read} :]

        class Chat(LlamaForCausalLM, Pictures):
            def forward(self, input_ids=None, past_key_values=None, images=None):
                return super().forward(self.joined(input_ids, past_key_values), past_key_values=past_key_values)
        """
    (finding,) = lint(textwrap.dedent(code).lstrip("\\n"), "5.24", codes=["KV305"])
    assert finding.fix is not None
    assert (finding.fix.applicability is Applicability.SAFE) is safe


def test_an_instance_of_one_cache_class_is_none_of_another() -> None:
    code = """
        from transformers import DynamicCache, StaticCache

        def room(past_key_values):
            is_static = isinstance(past_key_values, StaticCache)
            return past_key_values.get_max_cache_shape() if is_static else 0

        print(room(DynamicCache()))
        """
    (finding,) = lint(textwrap.dedent(code).lstrip("\\n"), "5.24", codes=["KV201"])
    assert finding.message.startswith("`StaticCache` has no")


@pytest.mark.parametrize("test", ["callable(method)", 'callable(getattr(cache, "get_seq_length", None))'])
def test_what_a_cache_never_gets_to_is_no_finding(test: str) -> None:
    code = f"""
        from transformers import DynamicCache

        def length(cache):
            method = getattr(cache, "get_seq_length", None)
            if {test}:
                return method()
            return cache[0][0].shape[2]

        print(length(DynamicCache()))
        """
    assert "KV204" not in codes(code)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        ("assert cache.layers[0].keys.shape[-2] == 7", False),
        ("if any(layer.keys.shape[-2] != 7 for layer in cache.layers): raise RuntimeError", False),
        ("return cache.layers[0].keys.shape[-2]", True),
        ("assert ids.shape[1] > cache.layers[0].keys.shape[-2]", True),
    ],
)
def test_a_check_of_what_is_stored_is_no_length(read: str, wrong: bool) -> None:
    code = f"""
        from transformers import DynamicCache

        def look(config, ids):
            cache = DynamicCache(config=config)
            {read}
        """
    assert ("KV212" in codes(code)) is wrong


@pytest.mark.parametrize(
    ("head", "called"), [("GPT2ForSequenceClassification", False), ("GPT2LMHeadModel", True), ("GPT2Model", True)]
)
@pytest.mark.parametrize("patched", [True, False])
def test_a_head_that_does_not_generate_is_called_by_people_alone(head: str, called: bool, patched: bool) -> None:
    code = (
        f"""
        from transformers import {head}

        def forward(self, input_ids=None, past_key_values=None, attention_mask=None):
            return self.layers(input_ids, past_key_values, attention_mask)

        {head}.forward = forward
        """
        if patched
        else f"""
        from transformers import {head}

        class Pipelined({head}):
            def forward(self, input_ids=None, past_key_values=None, attention_mask=None):
                return self.layers(input_ids, past_key_values, attention_mask)
        """
    )
    assert ("KV305" in codes(code)) is called


@pytest.mark.parametrize("layers", [("Self", "Cross"), ("Self",)])
def test_an_attention_that_only_the_layers_of_the_project_call(layers: tuple[str, ...]) -> None:
    """T5Attention is called by two classes of layers (``kvlint api T5Attention.forward``)."""
    code = """
        from transformers.models.t5.modeling_t5 import T5Attention, T5LayerCrossAttention, T5LayerSelfAttention

        class Attention(T5Attention):
            def forward(self, hidden_states, mask=None, key_value_states=None, past_key_values=None):
                return self.attend(hidden_states, mask, key_value_states, past_key_values)
        """
    for name in layers:
        code += f"""
        class {name}Layer(T5Layer{name}Attention):
            def forward(self, hidden_states, attention_mask=None, past_key_values=None, **kwargs):
                return self.part(hidden_states, attention_mask, past_key_values=past_key_values)
        """
    found = lint(textwrap.dedent(code).lstrip("\\n"), "5.24", codes=["KV305"])
    assert any("`Attention.forward`" in finding.message for finding in found) is (len(layers) == 1)


@pytest.mark.parametrize(("name", "wrong"), [("OwnForSequenceClassification", False), ("OwnForCausalLM", True)])
def test_a_head_of_the_project_that_judges_gets_no_cache(name: str, wrong: bool) -> None:
    code = f"""
        from transformers import PreTrainedModel

        class {name}(PreTrainedModel):
            def forward(self, input_ids=None, past_key_values=None, cache=None):
                seen = cache[0][0].shape[2] if cache is not None else 0
                return self.model(input_ids, seen)
        """
    assert ("KV204" in codes(code)) is wrong


def test_a_list_that_an_annotation_promises_was_not_made() -> None:
    """A default that nobody fills travels through a dict into the call; the annotation is that of every old model."""
    code = """
        import torch
        from typing import List, Optional
        from transformers import AutoModelForCausalLM

        def prepared(ids, past_key_values: Optional[List[torch.FloatTensor]] = None):
            return {"input_ids": ids, "past_key_values": past_key_values}

        model = AutoModelForCausalLM.from_pretrained("gpt2")
        inputs = prepared(torch.ones(1, 3))
        model.generate(**inputs)
        """
    assert "KV301" not in codes(code)


@pytest.mark.parametrize(("where", "wrong"), [("inside", True), ("behind", False)])
def test_a_test_for_a_cache_of_what_is_annotated_as_a_list(where: str, wrong: bool) -> None:
    """In the branch it is a cache; behind both it may be either."""
    inside = "seen = past_key_values[0][0].shape[2]" if where == "inside" else "seen = past_key_values.get_seq_length()"
    behind = "past_key_values[0]" if where == "behind" else "None"
    code = f"""
        import torch
        from typing import List, Optional
        from transformers import Cache

        def layers(hidden, past_key_values: Optional[List[torch.FloatTensor]] = None):
            seen = 0
            if isinstance(past_key_values, Cache):
                {inside}
            else:
                seen = past_key_values[0][0].shape[2]
            return hidden[seen:], {behind}
        """
    assert ("KV204" in codes(code)) is wrong


@pytest.mark.parametrize(("target", "wrong"), [("LlamaAttention", True), ("Own", False)])
@pytest.mark.parametrize("put", ["setattr(target, name, function)", "target.forward = function"])
def test_a_helper_that_is_handed_the_class(target: str, wrong: bool, put: str) -> None:
    code = f"""
        from transformers.models.llama.modeling_llama import LlamaAttention

        class Own:
            pass

        def patch(target, name, function):
            {put}

        def attend(self, hidden_states, attention_mask=None, past_key_value=None):
            return self.attend(hidden_states, attention_mask, past_key_value)

        patch({target}, "forward", attend)
        """
    assert ("KV305" in codes(code)) is wrong


@pytest.mark.parametrize(("given", "wrong"), [("hidden, **kwargs", True), ("hidden, past_key_values=None", False)])
def test_a_part_that_a_module_of_the_project_calls_with_what_it_is_called_with(given: str, wrong: bool) -> None:
    """``**kwargs`` are those of the library; a keyword of its own is the project's."""
    code = f"""
        import torch
        from transformers.models.llama.modeling_llama import LlamaAttention

        class Wrapped(torch.nn.Module):
            def __init__(self, config):
                super().__init__()
                self.inner = LlamaAttention(config, 0)

                def attend(module, hidden_states, attention_mask=None, past_key_values=None, **kwargs):
                    return module.o_proj(past_key_values.update(hidden_states, hidden_states, 0)[0])

                self.inner.forward = attend.__get__(self.inner)

            def forward(self, hidden, **kwargs):
                return self.inner({given})
        """
    assert ("KV305" in codes(code)) is wrong
