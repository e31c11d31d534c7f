"""What code expects of the parts, classes and places of transformers that they no longer give; and right code that looks alike."""

from __future__ import annotations

import re
from pathlib import Path

import analysing
import pytest

from kvlint.config import Settings
from kvlint.public import lint_paths

FILE = re.compile(r"^ *#== (\S+)\n", re.MULTILINE)
"""Begins another file of the project; the first one has no name."""


def expect(text: str, folder: Path) -> None:
    """Fails unless exactly the marked lines of a project are reported on 5.24, related places left out."""
    promised: set[tuple[str, int, str]] = set()
    (folder / "setup.py").write_text("", encoding="utf-8")
    parts = ["main.py", *FILE.split(text)]
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        code, marks = analysing.split_marks(part)
        promised |= {(name, *mark) for mark in marks}
        (folder / name).write_text(code, encoding="utf-8")
    outcomes = lint_paths([str(folder)], settings=Settings(target="5.24"), cache=False).files
    found = {(Path(one.path).name, one.line, one.code) for outcome in outcomes for one in outcome.findings}
    assert found == promised, f"not reported {sorted(promised - found)}, too much {sorted(found - promised)}"


def snippets(*texts: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", texts, ids=[" ".join(text.split())[-60:] for text in texts])


@snippets(
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm

    class Block(nn.Module):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.norm = LlamaRMSNorm(config.hidden_size)
            self.self_attn = LlamaAttention(config, layer_idx)

        def forward(self, x, mask, rope, cache=None):
            residual = x
            x, weights, past = self.self_attn(self.norm(x), position_embeddings=rope, attention_mask=mask, cache=cache)  # KV309
            return residual + x, past
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    attn = LlamaAttention(config, layer_idx=0)
    out, weights, past = attn(x, position_embeddings=rope, attention_mask=None)  # KV309
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Mine(LlamaAttention):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
            out, weights, past = super().forward(hidden_states, position_embeddings, attention_mask, cache, **kwargs)  # KV309
            return out, weights
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    _old = LlamaAttention.forward

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
        out, weights, past = _old(self, hidden_states, position_embeddings, attention_mask, cache, **kwargs)  # KV309
        return out, weights

    LlamaAttention.forward = forward
    """,
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
    for layer in model.model.layers:
        out, w, past = layer.self_attn(x, position_embeddings=rope, attention_mask=None)
    """,
    """
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
    for layer in model.model.layers:
        out, w, past = layer.self_attn(x, position_embeddings=rope, attention_mask=None)  # KV309
    """,
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Block(nn.Module):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.self_attn = LlamaAttention(config, layer_idx)

        def forward(self, x, mask, rope, cache=None):
            outputs = self.self_attn(x, position_embeddings=rope, attention_mask=mask, cache=cache)
            x, weights, past = outputs  # KV309
            return x
    """,
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Block(nn.Module):
        def __init__(self, config, layer_idx):
            super().__init__()
            self.self_attn = LlamaAttention(config, layer_idx)

        def forward(self, x, mask, rope, cache=None):
            outputs = self.self_attn(x, position_embeddings=rope, attention_mask=mask, cache=cache)
            x = outputs[0]
            past = outputs[2]  # KV309
            return x, past
    """,
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Net(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attns = nn.ModuleList([LlamaAttention(config, i) for i in range(4)])

        def forward(self, x, mask, rope):
            for attn in self.attns:
                x, _, _ = attn(x, position_embeddings=rope, attention_mask=mask)  # KV309
            return x
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    attn = LlamaAttention(config, layer_idx=0)
    out, *rest = attn(x, position_embeddings=rope, attention_mask=None)
    out2, w = attn(x, position_embeddings=rope, attention_mask=None)
    """,
    """
    from transformers.models.t5.modeling_t5 import T5Attention

    attn = T5Attention(config)
    out, pos, w = attn(x)
    """,
    """
    from torch import nn
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attn = GPT2Attention(config, layer_idx=0)

        def forward(self, x, past=None):
            out, present, weights = self.attn(x, past, output_attentions=True)  # KV309
            return out, present
    """,
    """
    from torch import nn
    from transformers.models.bart.modeling_bart import BartAttention

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attn = BartAttention(32, 4, is_decoder=True, config=config, layer_idx=0)

        def forward(self, x):
            out, weights, present = self.attn(x)  # KV309
            return out, present
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def build(config):
        return LlamaAttention(config, layer_idx=0)

    attn = build(config)
    out, weights, past = attn(x, position_embeddings=rope, attention_mask=None)  # KV309
    """,
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention
    from transformers.models.mistral.modeling_mistral import MistralAttention

    KINDS = {"llama": LlamaAttention, "mistral": MistralAttention}

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attn = KINDS[config.model_type](config, layer_idx=0)

        def forward(self, x, rope):
            out, weights, past = self.attn(x, rope)  # KV309
            return out
    """,
    """
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Mine(LlamaAttention):
        def forward(self, x, rope=None):
            return x, None, None

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attn = Mine(config, layer_idx=0)

        def forward(self, x, rope):
            out, weights, past = self.attn(x, rope)
            return out
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    class Layer(LlamaDecoderLayer):
        def forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
            residual = hidden_states
            hidden_states, weights, past = self.self_attn(hidden_states=hidden_states, cache=cache)  # KV309
            return residual + hidden_states
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer
    from .attn import Mine

    class Layer(LlamaDecoderLayer):
        def __init__(self, config, layer_idx):
            super().__init__(config, layer_idx)
            self.self_attn = Mine(config)

        def forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
            residual = hidden_states
            hidden_states, weights, past = self.self_attn(hidden_states=hidden_states, cache=cache)
            return residual + hidden_states
    """,
    """
    from transformers.models.llama import modeling_llama

    def layer_forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
        hidden_states, weights, present = self.self_attn(hidden_states=hidden_states, cache=cache)  # KV309
        return hidden_states

    modeling_llama.LlamaDecoderLayer.forward = layer_forward
    """,
    """
    from transformers.models.llama import modeling_llama

    def attn_forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
        return hidden_states, None, cache

    def layer_forward(self, hidden_states, attention_mask=None, cache=None, **kwargs):
        hidden_states, weights, present = self.self_attn(hidden_states=hidden_states, cache=cache)
        return hidden_states

    modeling_llama.LlamaDecoderLayer.forward = layer_forward
    modeling_llama.LlamaAttention.forward = attn_forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Mine(LlamaAttention):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
            if self.training:
                result = super().forward(hidden_states, position_embeddings, attention_mask, cache, **kwargs)
                attn_output, attn_weights, past_key_value = result  # KV309
                return attn_output, attn_weights
            return super().forward(hidden_states, position_embeddings, attention_mask, cache, **kwargs)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    attn = LlamaAttention(config, layer_idx=0)
    outputs = attn(x, position_embeddings=rope, attention_mask=None)
    if len(outputs) == 3:
        out, w, past = outputs
    else:
        out, w = outputs
    """,
    """
    import types
    from torch import nn
    from transformers.models.llama.modeling_llama import LlamaAttention

    def three(self, x, rope=None):
        return x, None, None

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.attn = LlamaAttention(config, layer_idx=0)
            self.attn.forward = types.MethodType(three, self.attn)

        def forward(self, x, rope):
            out, weights, past = self.attn(x, rope)
            return out
    """,
)
def test_results_of_attention(text: str, tmp_path: Path) -> None:
    """Attention modules return two outputs, wherever the module comes from."""
    expect(text, tmp_path)


@snippets(
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    from transformers import LlamaForCausalLM
    from transformers.utils import ModelOutput

    @dataclass
    class SpeechOutput(ModelOutput):
        loss: Optional[torch.Tensor] = None
        logits: Optional[torch.Tensor] = None
        past_key_values: Optional[Tuple] = None  # KV306

    class Speech(LlamaForCausalLM):
        def forward(self, input_ids=None, cache=None, **kwargs):
            out = super().forward(input_ids, cache=cache, **kwargs)
            return SpeechOutput(logits=out.logits, past_key_values=out.past_key_values)
    """,
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    from transformers.file_utils import ModelOutput

    @dataclass
    class SpeechOutput(ModelOutput):
        logits: Optional[torch.Tensor] = None
        past_key_values: Optional[Tuple] = None

    def make(logits, past):
        return SpeechOutput(logits, past)
    """,
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPast

    @dataclass
    class SpeechOutput(BaseModelOutputWithPast):
        past_key_values: Optional[Tuple] = None  # KV306
        extra: Optional[torch.Tensor] = None

    def make(logits, past):
        return SpeechOutput(logits, cache=past)
    """,
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

    @dataclass
    class SpeechOutput(BaseModelOutputWithPast):
        extra: Optional[torch.Tensor] = None

    def make(logits, past):
        return SpeechOutput(logits, past_key_values=past), CausalLMOutputWithPast(logits=logits, past_key_values=past)
    """,
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    from transformers.utils import ModelOutput

    @dataclass
    class SpeechOutput(ModelOutput):
        logits: Optional[torch.Tensor] = None
        cache: Optional[Tuple] = None

    def make(logits, past):
        return SpeechOutput(logits=logits, past_key_values=past)
    """,
    """
    from dataclasses import dataclass
    from typing import Optional, Tuple

    import torch
    import transformers

    @dataclass
    class SpeechOutput:
        logits: Optional[torch.Tensor] = None
        past_key_values: Optional[Tuple] = None

    def make(logits, past):
        return SpeechOutput(logits=logits, past_key_values=past)
    """,
    """
    from typing import NamedTuple, Optional, Tuple
    import transformers

    class SpeechOutput(NamedTuple):
        logits: object = None
        past_key_values: Optional[Tuple] = None

    x = SpeechOutput(logits=1, past_key_values=2)
    """,
    """
    from dataclasses import dataclass
    from transformers.utils import ModelOutput

    @dataclass
    class SpeechOutput(ModelOutput):
        logits: object = None
        past_key_values: object = None

        def __init__(self, logits=None, past_key_values=None):
            self.logits = logits
            self.past_key_values = past_key_values

    x = SpeechOutput(logits=1, past_key_values=2)
    """,
    """
    from dataclasses import dataclass
    from transformers.utils import ModelOutput

    @dataclass
    class First(ModelOutput):
        logits: object = None
        past_key_values: object = None  # KV306

    @dataclass
    class Second(First):
        extra: object = None

    x = Second(logits=1, past_key_values=2)
    """,
    """
    import transformers
    from dataclasses import dataclass
    from packaging import version
    from transformers.utils import ModelOutput

    if version.parse(transformers.__version__) < version.parse("5.24"):

        @dataclass
        class First(ModelOutput):
            logits: object = None
            past_key_values: object = None
    else:

        @dataclass
        class First(ModelOutput):
            logits: object = None
            cache: object = None

    x = First(logits=1, past_key_values=2)
    """,
    """
    import dataclasses
    import torch
    from transformers.utils.generic import ModelOutput

    @dataclasses.dataclass
    class MambaOut(ModelOutput):
        last_hidden_state: torch.FloatTensor = None
        cache_params: object = None  # KV306

    def f(h, c):
        return MambaOut(last_hidden_state=h, cache_params=c)
    """,
    """
    from dataclasses import dataclass
    from transformers.modeling_outputs import MoeModelOutputWithPast, Seq2SeqLMOutput

    @dataclass
    class A(MoeModelOutputWithPast):
        past_key_values: object = None  # KV306

    class B(Seq2SeqLMOutput):
        past_key_values: object = None  # KV306
    """,
)
def test_fields_of_own_outputs(text: str, tmp_path: Path) -> None:
    """A field under the old name of an output of the project: nothing can be put there, or nothing read."""
    expect(text, tmp_path)


@snippets(
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def make_forward(window):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
            return self.o_proj(hidden_states), None

        return forward

    LlamaAttention.forward = make_forward(16)
    """,
    """
    import types
    from transformers import LlamaForCausalLM

    def make_forward(cfg):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_value=None, **kwargs):  # KV305
            k, v = past_key_value.update(hidden_states, hidden_states, self.layer_idx)
            return self.o_proj(k), None

        return forward

    model = LlamaForCausalLM.from_pretrained("x")
    for layer in model.model.layers:
        layer.self_attn.forward = types.MethodType(make_forward(3), layer.self_attn)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention
    from transformers.models.mistral.modeling_mistral import MistralAttention

    def llama_forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_value=None, **kwargs):  # KV305
        k, v = past_key_value.update(hidden_states, hidden_states, self.layer_idx)
        return self.o_proj(k), None

    FORWARDS = {"llama": llama_forward}

    def install(kind):
        LlamaAttention.forward = FORWARDS[kind]
    """,
    """
    from transformers import GPT2LMHeadModel

    def F(model):
        old = model.forward

        def forward(input_ids=None, past_key_values=None, attention_mask=None, **kwargs):  # KV305
            return old(input_ids, cache=past_key_values, attention_mask=attention_mask, **kwargs)

        return forward

    class Wrapped(GPT2LMHeadModel):
        def __init__(self, config):
            super().__init__(config)
            self.transformer.forward = F(self.transformer)
    """,
    """
    import functools
    from transformers.models.llama.modeling_llama import LlamaAttention

    def traced(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper

    @traced
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
        return self.o_proj(hidden_states), None

    LlamaAttention.forward = forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def renamed(fn):
        def wrapper(*args, cache=None, **kwargs):
            return fn(*args, past_key_values=cache, **kwargs)

        return wrapper

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        return self.o_proj(hidden_states), None

    LlamaAttention.forward = renamed(forward)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def renamed(fn):
        def wrapper(*args, **kwargs):
            if "cache" in kwargs:
                kwargs["past_key_values"] = kwargs.pop("cache")
            return fn(*args, **kwargs)

        return wrapper

    @renamed
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        return self.o_proj(hidden_states), None

    LlamaAttention.forward = forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention
    from transformers.utils.deprecation import deprecate_kwarg

    @deprecate_kwarg("cache", new_name="past_key_values", version="9.0")
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        return self.o_proj(hidden_states), None

    LlamaAttention.forward = forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def make(cfg):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
            return self.o_proj(hidden_states), None, cache  # KV309

        return forward

    LlamaAttention.forward = make(3)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def a(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
        return self.o_proj(hidden_states), None

    def b(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
        return self.o_proj(hidden_states), None

    def pick(fast):
        if fast:
            return a
        return b

    LlamaAttention.forward = pick(True)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Patches:
        @staticmethod
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
            return self.o_proj(hidden_states), None

    LlamaAttention.forward = Patches.forward
    """,
    """
    from torch import nn
    from transformers import LlamaForCausalLM

    def make(cfg):
        def forward(self, hidden_states, past_key_values=None, **kwargs):
            return hidden_states

        return forward

    class Mine(nn.Module):
        def forward(self, x, past_key_values=None):
            return x

    Mine.forward = make(2)
    m = Mine()
    m.forward = make(3).__get__(m)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def llama_forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
        k, v = cache.update(hidden_states, hidden_states, self.layer_idx)
        return self.o_proj(k), None

    def own_forward(self, hidden_states, past_key_value=None, **kwargs):
        k, v = past_key_value.update(hidden_states, hidden_states, self.layer_idx)
        return self.o_proj(k), None

    FORWARDS = {"llama": llama_forward, "own": own_forward}
    LlamaAttention.forward = FORWARDS["llama"]
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    old = LlamaAttention.forward

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        kwargs.pop("cache", None)
        return old(self, hidden_states, position_embeddings, attention_mask, cache=past_key_values, **kwargs)

    def forward2(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        return old(self, hidden_states, position_embeddings, attention_mask, past_key_values=past_key_values, **kwargs)

    LlamaAttention.forward = forward2
    """,
)
def test_functions_from_factories(text: str, tmp_path: Path) -> None:
    """Functions that a factory, a table or a wrapper puts where the library calls them."""
    expect(text, tmp_path)


@snippets(
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def llama_forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_value=None, **kwargs):  # KV305
        k, v = past_key_value.update(hidden_states, hidden_states, self.layer_idx)
        return self.o_proj(k), None

    FORWARDS = {"llama": llama_forward}

    def pick(kind):
        if kind == "x":
            return FORWARDS.get(kind)
        return FORWARDS[kind]

    LlamaAttention.forward = pick("llama")
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    def traced(fn):
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
        return self.o_proj(hidden_states), None

    LlamaAttention.forward = traced(forward)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention
    from lib import make_forward

    LlamaAttention.forward = make_forward(3)
    #== lib.py
    def make_forward(cfg):
        def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
            return self.o_proj(hidden_states), None

        return forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaAttention
    from lib import FORWARDS

    LlamaAttention.forward = FORWARDS["llama"]
    #== lib.py
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):  # KV305
        return self.o_proj(hidden_states), None

    FORWARDS = {"llama": forward}
    """,
)
def test_functions_known_by_linking(text: str, tmp_path: Path) -> None:
    """The same where the function that decides speaks of no cache, or lies in another file."""
    expect(text, tmp_path)


@snippets(
    """
    from dataclasses import dataclass
    from transformers.utils import ModelOutput

    @dataclass
    class First(ModelOutput):
        logits: object = None
        past_key_values: object = None  # KV306
    #== use.py
    from main import First

    def wrap(out):
        return First(logits=out.logits, past_key_values=out.past_key_values)
    """,
)
def test_fields_given_elsewhere(text: str, tmp_path: Path) -> None:
    """The call that hands over the field may stand in another file."""
    expect(text, tmp_path)


@snippets(
    """
    import torch
    from transformers import LlamaForCausalLM

    class Mine(LlamaForCausalLM):
        def think(self, input_ids, **model_kwargs):
            for _ in range(3):
                inputs = self.prepare_inputs_for_generation(input_ids, **model_kwargs)
                outputs = self(**inputs)
                model_kwargs = self._update_model_kwargs_for_generation(outputs, model_kwargs)
                past = model_kwargs.pop("past_key_values")  # KV306
                model_kwargs["cache"] = past
    """,
    """
    import torch
    from transformers import LlamaForCausalLM

    class Mine(LlamaForCausalLM):
        def think(self, input_ids, **model_kwargs):
            for _ in range(3):
                inputs = self.prepare_inputs_for_generation(input_ids, **model_kwargs)
                outputs = self(**inputs)
                model_kwargs = self._update_model_kwargs_for_generation(outputs, model_kwargs)
                past = model_kwargs.pop("past_key_values", None)  # KV306
                if past is not None:
                    past.crop(-1)
    """,
    """
    import torch

    def sample(model, input_ids, logits_processor, **model_kwargs):
        while True:
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs, is_encoder_decoder=False)
            if model_kwargs["past_key_values"] is not None:  # KV306
                model_kwargs["past_key_values"] = model._reorder_cache(model_kwargs["past_key_values"], 3)  # KV103 KV306
    """,
    """
    import torch

    def sample(model, input_ids, logits_processor, **model_kwargs):
        while True:
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs, is_encoder_decoder=False)
            if model_kwargs.get("past_key_values") is not None:  # KV306
                model_kwargs["past_key_values"].reorder_cache(beam_idx)
    """,
    """
    import torch

    def sample(model, input_ids, logits_processor, **model_kwargs):
        while True:
            past = model_kwargs.get("past_key_values")  # KV306
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
    """,
    """
    import torch

    def speculate(model, input_ids, candidates, **model_kwargs):
        while True:
            inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            past = inputs.pop("past_key_values", None)  # KV306
            outputs = model(**inputs, past_key_values=past)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
    """,
    """
    import torch
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    class Gen(AssistedCandidateGenerator):
        def get_candidates(self, input_ids):
            past = self.assistant_kwargs.get("past_key_values", None)  # KV306
            if past is not None:
                past.crop(-3)
            return super().get_candidates(input_ids)
    """,
    """
    import torch

    def sample(model, input_ids, **model_kwargs):
        while True:
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            del model_kwargs["past_key_values"]  # KV306
    """,
    """
    import torch
    from torch import nn

    class Mine(nn.Module):
        def _update_model_kwargs_for_generation(self, outputs, model_kwargs):
            model_kwargs["past_key_values"] = outputs[1]
            return model_kwargs

        def sample(self, input_ids, **model_kwargs):
            while True:
                outputs = self(input_ids, **model_kwargs)
                model_kwargs = self._update_model_kwargs_for_generation(outputs, model_kwargs)
                past = model_kwargs.pop("past_key_values")
    """,
    """
    import torch

    def sample(model, input_ids, past, **model_kwargs):
        model_kwargs["past_key_values"] = past
        outputs = model(input_ids, **model_kwargs)
        past = model_kwargs.pop("past_key_values")
        return past
    """,
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("x")

    def run(ids, **kwargs):
        past = kwargs.pop("past_key_values", None)
        return model(ids, cache=past, **kwargs)
    """,
    """
    import torch

    def sample(model, input_ids, **model_kwargs):
        while True:
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            past = model_kwargs.pop("past_key_values", None)
            if past is None:
                past = model_kwargs.pop("cache", None)
    """,
    """
    import torch

    def sample(model, input_ids, **model_kwargs):
        while True:
            model_inputs = model.prepare_inputs_for_generation(input_ids, **model_kwargs)
            outputs = model(**model_inputs, return_dict=True)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            key = "cache" if "cache" in model_kwargs else "past_key_values"
            past = model_kwargs[key]
    """,
    """
    import torch
    from transformers import LlamaForCausalLM

    class Mine(LlamaForCausalLM):
        def _update_model_kwargs_for_generation(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
            model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, is_encoder_decoder, num_new_tokens)
            past = model_kwargs.pop("past_key_values", None)  # KV306
            if past is not None:
                past.crop(-1)
                model_kwargs["past_key_values"] = past
            return model_kwargs
    """,
    """
    from transformers import LlamaForCausalLM

    class Mine(LlamaForCausalLM):
        def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
            super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
            self.last = model_kwargs["past_key_values"]  # KV306
    """,
    """
    def custom_generate(model, input_ids, generation_config, logits_processor, stopping_criteria, **model_kwargs):
        past = model_kwargs.pop("past_key_values")  # KV305
        out = model(input_ids, past_key_values=past)
        return out.logits

    def main(model, ids):
        return model.generate(ids, custom_generate=custom_generate)
    """,
    """
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    def sample(model: AutoModelForCausalLM, input_ids):
        model_kwargs = {"past_key_values": DynamicCache(), "use_cache": True}
        while True:
            outputs = model(input_ids, **model_kwargs)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            past = model_kwargs.get("past_key_values")
    """,
    """
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    def sample(model: AutoModelForCausalLM, input_ids, past):
        model_kwargs = dict(past_key_values=past)
        while True:
            outputs = model(input_ids, **model_kwargs)
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            past = model_kwargs["past_key_values"]
    """,
    """
    import torch

    def sample(model, input_ids, **model_kwargs):
        while True:
            past = model_kwargs.get("past_key_values")
            outputs = model(**model.prepare_inputs_for_generation(input_ids, **model_kwargs))
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)

    def main(model, ids, cache):
        sample(model, ids, past_key_values=cache)
    """,
    """
    import torch

    def sample(model, input_ids, **model_kwargs):
        while True:
            outputs = model(**model.prepare_inputs_for_generation(input_ids, **model_kwargs))
            if "past_key_values" not in model_kwargs:  # KV306
                n = 1
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
    """,
    """
    class Gen:
        def get_candidates(self, input_ids):
            past = self.assistant_kwargs.get("past_key_values", None)
            return past
    """,
    """
    def custom_generate(model, input_ids, generation_config, cache=None, **model_kwargs):
        past = cache if cache is not None else model_kwargs.pop("past_key_values")
        return model(input_ids, past_key_values=past).logits

    def main(model, ids):
        return model.generate(ids, custom_generate=custom_generate)
    """,
    """
    def custom_generate(model, input_ids, generation_config, past_key_values=None, **model_kwargs):  # KV305
        return model(input_ids, past_key_values=past_key_values).logits

    def main(model, ids):
        return model.generate(ids, custom_generate=custom_generate)
    """,
)
def test_dicts_of_generation(text: str, tmp_path: Path) -> None:
    """The cache under its old key in the dicts of generation, and dicts that hold it there."""
    expect(text, tmp_path)


@snippets(
    """
    from transformers.models.llama.modeling_llama import LlamaModel

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    LlamaModel._update_causal_mask = mask  # KV103
    """,
    """
    from transformers.models.llama import modeling_llama

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    setattr(modeling_llama.LlamaModel, "_update_causal_mask", mask)  # KV103
    """,
    """
    import types
    from transformers import LlamaForCausalLM

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    model = LlamaForCausalLM.from_pretrained("x")
    model.model._update_causal_mask = types.MethodType(mask, model.model)  # KV103
    """,
    """
    from transformers.generation.utils import GenerationMixin

    def extract(self, outputs):
        return outputs.past_key_values

    GenerationMixin._extract_past_from_model_output = extract  # KV103
    """,
    """
    from transformers.generation.utils import GenerationMixin

    def greedy(self, input_ids, **model_kwargs):
        return input_ids

    GenerationMixin.greedy_search = greedy  # KV103
    GenerationMixin._sample = greedy
    """,
    """
    import transformers

    def greedy(self, input_ids, **model_kwargs):
        return input_ids

    transformers.generation.utils.GenerationMixin._contrastive_search = greedy  # KV103
    """,
    """
    from transformers import LlamaModel

    class Mine(LlamaModel):
        def _update_causal_mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions=False):  # KV103
            return None
    """,
    """
    from transformers import LlamaModel

    class Mine(LlamaModel):
        def _update_causal_mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions=False):
            return None

        def forward(self, input_ids, attention_mask=None, cache=None, **kwargs):
            return self._update_causal_mask(attention_mask, None, None, cache)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaModel

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    def forward(self, input_ids, attention_mask=None, cache=None, **kwargs):
        return self._update_causal_mask(attention_mask, None, None, cache, False)

    LlamaModel._update_causal_mask = mask
    LlamaModel.forward = forward
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaModel

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    LlamaModel._update_causal_mask = mask
    #== other.py
    from transformers.models.llama.modeling_llama import LlamaModel

    class Mine(LlamaModel):
        def forward(self, input_ids, attention_mask=None, cache=None, **kwargs):
            return self._update_causal_mask(attention_mask, None, None, cache, False)
    """,
    """
    from transformers.models.llama.modeling_llama import LlamaModel

    def mask(self, attention_mask, input_tensor, cache_position, past_key_values, output_attentions):
        return None

    if hasattr(LlamaModel, "_update_causal_mask"):
        LlamaModel._update_causal_mask = mask
    """,
    """
    from torch import nn

    class Mine(nn.Module):
        def _update_causal_mask(self, attention_mask):
            return attention_mask

    def other(self, m):
        return m

    Mine._update_causal_mask = other
    """,
    """
    from transformers import AutoModelForCausalLM
    import types

    def mask(self, attention_mask):
        return None

    model = AutoModelForCausalLM.from_pretrained("x", trust_remote_code=True)
    model.model._update_causal_mask = types.MethodType(mask, model.model)
    """,
    """
    from transformers.generation.utils import GenerationMixin

    def prepare(self, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length):
        return None

    def update(self, outputs, model_kwargs, is_encoder_decoder=False, num_new_tokens=1):
        return model_kwargs

    GenerationMixin._prepare_cache_for_generation = prepare
    GenerationMixin._update_model_kwargs_for_generation = update
    """,
    """
    from transformers import LlamaForCausalLM

    LlamaForCausalLM._supports_cache_class = True
    """,
    """
    from transformers import LlamaForCausalLM, PreTrainedModel

    class Mine(LlamaForCausalLM):
        def _temporary_reorder_cache(self, past_key_values, beam_idx):  # KV103
            return past_key_values
    """,
    """
    from transformers.models.bart.modeling_bart import BartDecoder

    def mask(self, *args):
        return None

    BartDecoder._update_causal_mask = mask  # KV103
    """,
)
def test_dead_patches(text: str, tmp_path: Path) -> None:
    """Methods that are put, or overridden, where nothing calls them any more."""
    expect(text, tmp_path)


@snippets(
    """
    import torch
    from transformers import PreTrainedModel

    class Mine(PreTrainedModel):
        def forward(self, input_ids=None, past_key_values=None):
            return input_ids

    m = Mine(config)
    m.generate(ids)  # KV311
    """,
    """
    from transformers import LlamaPreTrainedModel

    class Mine(LlamaPreTrainedModel):
        def prepare_inputs_for_generation(self, input_ids, **kw):
            return {"input_ids": input_ids}

    m = Mine.from_pretrained("x")
    out = m.generate(ids)  # KV311
    """,
    """
    from transformers import PreTrainedModel

    class LM(PreTrainedModel):
        def prepare_inputs_for_generation(self, input_ids, **kw):
            return {"input_ids": input_ids}

    class VLM(PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.language_model = LM(config.text)

        def chat(self, ids):
            return self.language_model.generate(ids)  # KV311
    """,
    """
    from transformers import PreTrainedModel

    class LM(PreTrainedModel):
        def prepare_inputs_for_generation(self, input_ids, **kw):
            return {"input_ids": input_ids}

        def chat(self, ids):
            return self.generate(ids)
    """,
    """
    from transformers import PreTrainedModel

    class LM(PreTrainedModel):
        def generate(self, ids, **kw):
            return super().generate(ids, **kw)  # KV311

    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel, GenerationMixin, LlamaForCausalLM

    class LM(PreTrainedModel, GenerationMixin):
        pass

    class LM2(LlamaForCausalLM):
        pass

    class LM3(LM):
        pass

    LM(config).generate(3)
    LM2(config).generate(3)
    LM3(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel
    from somewhere import Gen

    class LM(PreTrainedModel, Gen):
        pass

    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel, AutoModelForCausalLM

    class LM(PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.lm = AutoModelForCausalLM.from_config(config)
            self.generate = self.lm.generate

    class LM2(PreTrainedModel):
        def __getattr__(self, name):
            return getattr(self.lm, name)

    LM(config).generate(3)
    LM2(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel, GenerationMixin

    class LM(PreTrainedModel):
        pass

    LM.generate = GenerationMixin.generate
    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel, GenerationMixin

    class LM(PreTrainedModel):
        pass

    LM.__bases__ = (PreTrainedModel, GenerationMixin)
    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel

    class LM(PreTrainedModel):
        pass

    m = LM(config)
    if hasattr(m, "generate"):
        m.generate(3)
    try:
        m.generate(3)
    except AttributeError:
        pass
    """,
    """
    from lib import LM

    m = LM.from_pretrained("x").eval().to("cuda")
    m.generate(3)  # KV311
    #== lib.py
    from transformers import PreTrainedModel

    class LM(PreTrainedModel):
        def forward(self, input_ids=None, past_key_values=None, cache=None):
            return input_ids
    """,
    """
    from transformers import PreTrainedModel

    class Gen:
        def generate(self, ids):
            return ids

    class LM(Gen, PreTrainedModel):
        pass

    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel, AutoModelForCausalLM

    class LM(PreTrainedModel):
        pass

    AutoModelForCausalLM.register(Cfg, LM)
    m = AutoModelForCausalLM.from_pretrained("x")
    m.generate(3)
    """,
    """
    import transformers
    from transformers import PreTrainedModel
    from packaging.version import Version

    if Version(transformers.__version__) >= Version("4.50"):
        from transformers import GenerationMixin

        class LM(PreTrainedModel, GenerationMixin):
            pass
    else:

        class LM(PreTrainedModel):
            pass

    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel

    try:
        from transformers import GenerationMixin
    except ImportError:
        GenerationMixin = object

    class LM(PreTrainedModel, GenerationMixin):
        pass

    LM(config).generate(3)
    """,
    """
    from transformers import PreTrainedModel
    from peft import get_peft_model

    class LM(PreTrainedModel):
        pass

    m = get_peft_model(LM(config), c)
    m.generate(3)
    """,
    """
    from transformers import PreTrainedModel, LlamaForCausalLM

    class LM(PreTrainedModel):
        pass

    m = LM(config) if x else LlamaForCausalLM(config)
    m.generate(3)
    """,
)
def test_generate_of_own_classes(text: str, tmp_path: Path) -> None:
    """A class without the mixin has no generate, unless something else brings it."""
    expect(text, tmp_path)


@snippets(
    """
    import torch
    from torch.utils import _pytree as pytree
    from transformers.cache_utils import DynamicCache

    def flatten(cache: DynamicCache):
        return pytree._dict_flatten({"keys": [l.keys for l in cache.layers], "values": [l.values for l in cache.layers]})

    def unflatten(values, context):
        state = pytree._dict_unflatten(values, context)
        cache = DynamicCache()
        for name, value in state.items():
            setattr(cache, name, value)
        return cache

    pytree.register_pytree_node(DynamicCache, flatten, unflatten)
    """,
    """
    import torch
    from transformers.cache_utils import DynamicCache

    def flatten(cache):
        return [cache.key_cache, cache.value_cache], ["key_cache", "value_cache"]  # KV202

    def unflatten(values, names):
        cache = DynamicCache()
        for name, value in zip(names, values):
            setattr(cache, name, value)  # KV203
        return cache

    torch.utils._pytree.register_pytree_node(DynamicCache, flatten, unflatten)
    """,
    """
    import torch
    from transformers.cache_utils import DynamicCache

    class State:
        pass

    def flatten(cache):
        return [cache.key_cache, cache.value_cache], ["key_cache", "value_cache"]

    def unflatten(values, names):
        cache = State()
        for name, value in zip(names, values):
            setattr(cache, name, value)
        return cache

    torch.utils._pytree.register_pytree_node(State, flatten, unflatten)
    """,
)
def test_pytrees_of_caches(text: str, tmp_path: Path) -> None:
    """A pytree node is flattened and rebuilt by functions that belong together."""
    expect(text, tmp_path)


@snippets(
    """
    from transformers import DynamicCache, Gemma3ForCausalLM

    model = Gemma3ForCausalLM.from_pretrained("google/gemma-3-1b-it")
    cache = DynamicCache()  # KV808
    model(ids, past_key_values=cache, use_cache=True)
    """,
    """
    from transformers import DynamicCache, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained("google/gemma-3-1b-it")
    out = model.generate(ids, cache=DynamicCache())  # KV808
    """,
    """
    from transformers import DynamicCache, AutoModelForCausalLM, LlamaForCausalLM, MistralForCausalLM

    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
    out = model.generate(ids, cache=DynamicCache())
    m2 = MistralForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
    out = m2.generate(ids, cache=DynamicCache())
    """,
    """
    from transformers import DynamicCache, Gemma3ForCausalLM

    model = Gemma3ForCausalLM.from_pretrained("google/gemma-3-1b-it")
    cache = DynamicCache(config=model.config)
    model(ids, past_key_values=cache, use_cache=True)
    """,
    """
    from transformers import DynamicCache, Gemma3ForCausalLM

    model = Gemma3ForCausalLM.from_pretrained("google/gemma-3-1b-it")
    cache = DynamicCache()
    model(ids, past_key_values=cache, use_cache=True)
    cache.crop(-3)
    """,
    """
    from transformers import DynamicCache, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(name)
    cache = DynamicCache()
    model(ids, past_key_values=cache, use_cache=True)
    """,
)
def test_windows_that_are_not_kept(text: str, tmp_path: Path) -> None:
    """A dynamic cache keeps windows where it is told of them."""
    expect(text, tmp_path)


@snippets(
    """
    from transformers import AutoModelForCausalLM, StaticCache

    class Session:
        def __init__(self, model: AutoModelForCausalLM):
            self.model = model
            self.cache = StaticCache(config=model.config, max_cache_len=64)

        def feed(self, ids):
            before = self.cache.get_seq_length()  # KV805
            self.model(ids, cache=self.cache)
            return self.cache.get_seq_length() - before
    """,
    """
    from transformers import AutoModelForCausalLM, StaticCache

    model = AutoModelForCausalLM.from_pretrained("x")
    cache = StaticCache(config=model.config, max_cache_len=64)
    model(ids, cache=cache)
    start = cache.get_seq_length()  # KV805
    model(more, cache=cache)
    print(cache.get_seq_length() - start)
    """,
    """
    from transformers import AutoModelForCausalLM, StaticCache

    model = AutoModelForCausalLM.from_pretrained("x")
    cache = StaticCache(config=model.config, max_cache_len=64)
    start = cache.get_seq_length()
    model(more, cache=cache)
    print(cache.get_seq_length() - start)
    """,
    """
    from transformers import AutoModelForCausalLM, StaticCache

    def step(model: AutoModelForCausalLM, cache: StaticCache, ids):
        start = cache.get_seq_length()
        positions = start + ids.shape[1]
        out = model(ids, cache=cache)
        return out, positions
    """,
    """
    from transformers import AutoModelForCausalLM, StaticCache

    def step(model: AutoModelForCausalLM, cache: StaticCache, ids):
        start = int(cache.get_seq_length())
        out = model(ids, cache=cache)
        return out, start
    """,
    """
    from transformers import AutoModelForCausalLM, DynamicCache

    def step(model: AutoModelForCausalLM, cache: DynamicCache, ids):
        start = cache.get_seq_length()
        out = model(ids, cache=cache)
        return out, start
    """,
    """
    from transformers import AutoModelForCausalLM, StaticCache

    def step(model: AutoModelForCausalLM, cache: StaticCache, ids):
        start = cache.get_seq_length()  # KV805
        out = model(ids, cache=cache)
        return out, start
    """,
)
def test_lengths_that_move_on(text: str, tmp_path: Path) -> None:
    """The length of a static cache is its counter."""
    expect(text, tmp_path)
