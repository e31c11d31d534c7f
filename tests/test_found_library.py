"""What code expects of the parts, classes and places of transformers that they no longer give; and right code that looks alike."""

from __future__ import annotations

import analysing
import pytest

from kvlint import checks

ALL = frozenset(check.code for check in checks.all_checks()) - {
    "KV308",
    "KV901",
}  # renames that still work; dead guards


def expect(text: str) -> None:
    code, promised = analysing.split_marks(text)
    found = analysing.lines(code, codes=ALL)
    assert found == promised, f"marked {sorted(promised)}, reported {sorted(found)} in\n{code}"


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
def test_results_of_attention(text: str) -> None:
    """Attention modules return two outputs, wherever the module comes from."""
    expect(text)


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
def test_fields_of_own_outputs(text: str) -> None:
    """A field under the old name of an output of the project: nothing can be put there, or nothing read."""
    expect(text)
