"""Kinds of defects that people met, in several forms, and right code that looks like them; every rule is on."""

from __future__ import annotations

import analysing
import pytest

from kvlint import checks

ALL = frozenset(check.code for check in checks.all_checks())


def expect(text: str) -> None:
    code, promised = analysing.split_marks(text)
    found = analysing.lines(code, codes=ALL)
    assert found == promised, f"marked {sorted(promised)}, reported {sorted(found)} in\n{code}"


def snippets(*texts: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", texts, ids=[" ".join(text.split())[-60:] for text in texts])


@snippets(
    """
    import torch
    from transformers import DynamicCache, LlamaForCausalLM

    def samples(model: LlamaForCausalLM, ids: torch.Tensor, n: int):
        cache = DynamicCache(config=model.config)
        model(ids, cache=cache)
        for layer in cache.layers:
            layer.keys = layer.keys.repeat(n, 1, 1, 1)  # KV804
            layer.values = torch.cat([layer.values] * n, dim=0)  # KV804
        last = ids[:, -1:].repeat_interleave(n, dim=0)
        return model(last, cache=cache).logits
    """,
    """
    import torch
    from transformers import DynamicCache, LlamaForCausalLM

    def samples(model: LlamaForCausalLM, ids: torch.Tensor, n: int):
        cache = DynamicCache(config=model.config)
        model(ids, cache=cache)
        for i, layer in enumerate(cache.layers):
            layer.keys = torch.tile(layer.keys, (n, 1, 1, 1))  # KV804
        return model(ids[:, -1:].repeat_interleave(n, 0), cache=cache).logits
    """,
    """
    import torch
    from transformers import DynamicCache, LlamaForCausalLM

    def samples(model: LlamaForCausalLM, ids: torch.Tensor, n: int):
        cache = DynamicCache(config=model.config)
        model(ids, cache=cache)
        for layer in cache.layers:
            layer.keys = layer.keys.repeat_interleave(n, dim=0)
            layer.values = layer.values.repeat_interleave(n, dim=0)
        return model(ids[:, -1:].repeat_interleave(n, dim=0), cache=cache).logits
    """,
)
def test_rows_repeated_layer_by_layer(text: str) -> None:
    expect(text)


@snippets(
    """
    from transformers import BartForConditionalGeneration, DynamicCache, EncoderDecoderCache

    def summaries(model: BartForConditionalGeneration, texts, start):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for text in texts:
            cache.self_attention_cache = DynamicCache()  # KV801
            print(model(text, decoder_input_ids=start, cache=cache).logits)
    """,
    """
    from transformers import T5ForConditionalGeneration, DynamicCache, EncoderDecoderCache

    def summaries(model: T5ForConditionalGeneration, texts, start):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for text in texts:
            print(model(input_ids=text, decoder_input_ids=start, cache=cache).logits)  # KV801
    """,
    """
    from transformers import BartForConditionalGeneration, DynamicCache, EncoderDecoderCache

    def summaries(model: BartForConditionalGeneration, texts, start):
        for text in texts:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            print(model(text, decoder_input_ids=start, cache=cache).logits)
    """,
    """
    from transformers import BartForConditionalGeneration, DynamicCache, EncoderDecoderCache

    def steps(model: BartForConditionalGeneration, text, tokens):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for token in tokens:
            print(model(text, decoder_input_ids=token, cache=cache).logits)
    """,
)
def test_cross_half_of_the_first_input(text: str) -> None:
    expect(text)


@snippets(
    """
    import torch
    from transformers import LlamaForCausalLM

    def greedy(model: LlamaForCausalLM, ids, mask, steps: int):
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        out = model(ids, attention_mask=mask, position_ids=places, use_cache=True)
        for _ in range(steps):
            token = out.logits[:, -1:].argmax(-1)
            mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
            place = torch.full_like(token, out.cache.get_seq_length())  # KV805
            out = model(token, attention_mask=mask, position_ids=place, cache=out.cache)
    """,
    """
    import torch
    from transformers import LlamaForCausalLM

    def greedy(model: LlamaForCausalLM, ids, mask, steps: int):
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        out = model(ids, attention_mask=mask, position_ids=places, use_cache=True)
        for _ in range(steps):
            token = out.logits[:, -1:].argmax(-1)
            mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
            place = mask.sum(-1, keepdim=True) - 1
            out = model(token, attention_mask=mask, position_ids=place, cache=out.cache)
    """,
    """
    from transformers import MambaForCausalLM

    def lengths(model: MambaForCausalLM, ids):
        out = model(ids, use_cache=True)
        return out.cache.get_seq_length()  # KV805
    """,
    """
    from transformers import MambaForCausalLM, JambaForCausalLM

    def started(model: MambaForCausalLM, other: JambaForCausalLM, ids):
        out = model(ids, use_cache=True)
        mixed = other(ids, use_cache=True)
        return out.cache.has_previous_state(), mixed.cache.get_seq_length()
    """,
)
def test_lengths_that_are_no_positions(text: str) -> None:
    expect(text)


@snippets(
    """
    def step(lm, ids, cache=None):
        if cache:  # KV211
            ids = ids[:, -1:]
        return lm(ids, cache=cache, use_cache=True)
    """,
    """
    def lookup(words, cache=None):
        if cache:
            words = words[-1:]
        return words
    """,
    """
    import torch
    from transformers import MistralConfig
    from transformers.masking_utils import create_causal_mask

    def mask(config: MistralConfig, embeds, padding, store):
        seen = store.get_seq_length()
        where = torch.arange(seen, seen + embeds.shape[1], device=embeds.device)
        return create_causal_mask(config, embeds, padding, where, store)  # KV213
    """,
    """
    from transformers.masking_utils import create_causal_mask

    def mask(config, embeds, padding, store):
        return create_causal_mask(config, embeds, padding, store)
    """,
)
def test_flags_and_places(text: str) -> None:
    expect(text)


@snippets(
    """
    import torch
    from transformers import DynamicCache

    class Meter(DynamicCache):
        def update(self, key_states, value_states, layer_idx, *args, **kwargs):
            self.top = max(self.top, key_states.abs().max().item())
            return key_states, value_states
    """,
    """
    from transformers import DynamicCache

    class Keeper(DynamicCache):  # KV214
        def __init__(self):
            super().__init__()
            self.held = {}

        def update(self, key_states, value_states, layer_idx, *args, **kwargs):
            self._put(key_states, value_states, layer_idx)
            return self.held[layer_idx]

        def _put(self, keys, values, index):
            self.held[index] = (keys, values)
    """,
    """
    from transformers import GPT2LMHeadModel

    class CaptionLM(GPT2LMHeadModel):
        def forward(self, samples: dict, past_key_values=None):
            return super().forward(inputs_embeds=samples["x"], cache=past_key_values)
    """,
    """
    import inspect
    from transformers import masking_utils

    SLICES = "_slice" in inspect.signature(masking_utils.prepare_padding_mask).parameters

    def padding(mask, length, offset):
        if SLICES:
            return masking_utils.prepare_padding_mask(mask, length, offset, _slice=False)
        return masking_utils.prepare_padding_mask(mask, length, offset)
    """,
    """
    from transformers import AutoModelForCausalLM, DynamicCache

    def to_cache(module, args, kwargs):
        pairs = kwargs.get("past_key_values")
        if isinstance(pairs, (list, tuple)):
            kwargs["past_key_values"] = DynamicCache(pairs)
        return args, kwargs

    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.register_forward_pre_hook(to_cache, with_kwargs=True)
    """,
)
def test_right_code(text: str) -> None:
    expect(text)
