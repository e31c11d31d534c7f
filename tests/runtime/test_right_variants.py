"""Models that are right, written in unusual ways: everything that applies must pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvlint.runtime.environment import cache_keyword
from kvlint.runtime.models import Loaded, Source, load
from kvlint.runtime.probe import Plan
from kvlint.runtime.result import Status
from kvlint.runtime.verify import verify_model
from tests.runtime import broken


def llama(**options: Any) -> Loaded:
    return load(Source("llama", random_weights=True, **options))


def replaced(loaded: Loaded, forward: Callable[..., Any]) -> Loaded:
    loaded.model.forward = functools.partial(forward, loaded.model.forward)
    return loaded


def anything_in(original: Any, *arguments: Any, **options: Any) -> Any:
    return original(*arguments, **options)


def wrapped() -> Loaded:
    """A module of one's own around the model, which names no argument."""

    class Wrapper(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.inner, self.config = model, model.config

        def forward(self, *arguments: Any, **options: Any) -> Any:
            return self.inner(*arguments, **options)

    loaded = llama()
    return Loaded(Wrapper(loaded.model), loaded.config, "wrapped", "llama")


def answering_in_tuples() -> Loaded:
    """A module whose forward gives tuples, and that has no generate."""

    class Tuples(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.inner, self.config = model, model.config

        def forward(self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, past_key_values: Any = None,
                    use_cache: bool = False, **options: Any) -> Any:  # fmt: skip
            return self.inner(
                input_ids, attention_mask, position_ids, past_key_values, use_cache=use_cache, return_dict=False
            )

    loaded = llama()
    return Loaded(Tuples(loaded.model), loaded.config, "tuples", "llama")


def float32_embeddings_above_bfloat16() -> Loaded:
    loaded = llama(dtype="bfloat16")
    loaded.model.model.embed_tokens.float()
    embed = loaded.model.model.embed_tokens.forward
    loaded.model.model.embed_tokens.forward = lambda ids: embed(ids).bfloat16()
    return loaded


def float32_norms_above_bfloat16() -> Loaded:
    loaded = llama(dtype="bfloat16")
    for name, module in loaded.model.named_modules():
        if name.endswith("norm"):
            own = module.float().forward
            module.forward = lambda hidden, own=own: own(hidden).bfloat16()
    return loaded


def grouped_without_repeating(loaded: Loaded) -> Loaded:
    """Attention that never repeats its kv heads: queries are grouped instead."""
    keyword = cache_keyword(loaded.model.model.layers[0].self_attn) or "cache"
    for layer in loaded.model.model.layers:
        module = layer.self_attn
        config, dim = module.config, module.head_dim
        heads = config.num_key_value_heads

        def forward(
            hidden_states: torch.Tensor, position_embeddings: Any = None, attention_mask: Any = None,
            module: Any = module, dim: int = dim, heads: int = heads, **options: Any,
        ) -> Any:  # fmt: skip
            rows, tokens = hidden_states.shape[:2]
            q = module.q_proj(hidden_states).view(rows, tokens, -1, dim).transpose(1, 2)
            k = module.k_proj(hidden_states).view(rows, tokens, heads, dim).transpose(1, 2)
            v = module.v_proj(hidden_states).view(rows, tokens, heads, dim).transpose(1, 2)
            q, k = (broken._rotated(part, *position_embeddings) for part in (q, k))
            cache = options.get(keyword)
            if cache is not None:
                k, v = cache.update(k, v, module.layer_idx)
            grouped = q.view(rows, heads, -1, tokens, dim)
            scores = grouped @ k[:, :, None].transpose(-1, -2) / dim**0.5
            width = k.shape[2]
            allowed = torch.ones(tokens, width, dtype=torch.bool).tril(width - tokens)
            if attention_mask is not None:
                allowed = (attention_mask if attention_mask.dtype == torch.bool else attention_mask > -1.0)[:, :, None]
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
            out = (scores.softmax(-1) @ v[:, :, None]).reshape(rows, -1, tokens, dim)
            return module.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1)), None

        module.forward = forward
    return loaded


class Counting(DynamicCache):
    """A cache of one's own that counts its updates."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        self.updates = getattr(self, "updates", 0) + 1
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class Growing(broken.DynamicLayer):
    """A layer that allocates in blocks of 8 rows and shows those that are filled."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        old = self.get_seq_length()
        total = old + key_states.shape[2]
        for name, new in (("keys", key_states), ("values", value_states)):
            block = torch.zeros(*new.shape[:2], -(-total // 8) * 8, new.shape[3], dtype=new.dtype)
            if old:
                block[:, :, :old] = getattr(self, name)
            block[:, :, old:total] = new
            setattr(self, name, block[:, :, :total])
        return self.keys, self.values


def with_adapters() -> Loaded:
    """Adapters in float32 beside weights in bfloat16."""
    loaded = llama(dtype="bfloat16")
    for layer in loaded.model.model.layers:
        project, down = layer.self_attn.v_proj, torch.nn.Linear(64, 4, bias=False)
        up = torch.nn.Linear(4, project.out_features, bias=False)
        layer.self_attn.adapter = torch.nn.Sequential(down, up)

        def forward(hidden: torch.Tensor, project: Any = project, own: Any = project.forward, add: Any = None) -> Any:
            return own(hidden) + add(hidden.float()).to(hidden.dtype)

        project.forward = functools.partial(forward, add=layer.self_attn.adapter)
    return loaded


VARIANTS: dict[str, Callable[[], Loaded]] = {
    "anything in": lambda: replaced(llama(), anything_in),
    "wrapped": wrapped,
    "tuples": answering_in_tuples,
    "float32 embeddings above bfloat16": float32_embeddings_above_bfloat16,
    "float32 norms above bfloat16": float32_norms_above_bfloat16,
    "adapters": with_adapters,
    "float16": lambda: llama(dtype="float16"),
    "float64": lambda: llama(dtype="float64"),
    "eager": lambda: llama(attention="eager"),
    "sdpa": lambda: llama(attention="sdpa"),
    "plain attention": lambda: broken.with_mistake(""),
    "grouped without repeating": lambda: grouped_without_repeating(llama()),
    "a cache of one's own": lambda: broken.with_cache(lambda config: Counting(config=config)),
    "layers that grow in blocks": lambda: broken.with_layers(lambda _: Growing()),
    "layers of four bits": lambda: broken.with_layers(lambda _: broken.FourBits()),
    "cross-attention": lambda: broken.with_cross_attention(""),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_right_variant_passes(name: str) -> None:
    result = verify_model(VARIANTS[name]())
    assert [(check.name, check.message) for check in result.failures] == []
    states = {check.name: check.status for check in result.checks}
    assert {states[name] for name in ("cached-steps", "kv-heads", "seq-length", "reach")} == {Status.PASSED}


FAMILIES = (
    "bloom", "mpt", "gptj", "gpt_neox", "opt", "phi", "stablelm", "qwen3", "cohere2", "olmo2", "gemma3_text",
    "gpt_oss", "mixtral", "granite", "codegen", "xglm", "mbart", "biogpt",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_families_with_positions_masks_and_norms_of_their_own_pass(family: str) -> None:
    result = verify_model(
        load(Source(family, random_weights=True)), only=("cached-chunk", "reach", "head-map", "causal")
    )
    assert [(check.name, check.message) for check in result.failures] == []
    assert {check.name: check.status for check in result.checks}["causal"] is Status.PASSED


@pytest.mark.parametrize(
    "plan",
    [Plan(batch=1), Plan(batch=3, prompt=2), Plan(steps=1, chunk=2), Plan(prompt=20), Plan(seed=3), Plan(padding=1)],
    ids=["one row", "short prompt", "one step", "long prompt", "another seed", "little padding"],
)
def test_other_sizes_of_the_run_pass(plan: Plan) -> None:
    for family in ("llama", "mistral"):
        result = verify_model(load(Source(family, random_weights=True)), plan)
        assert [(check.name, check.message) for check in result.failures] == []


def test_there_are_at_least_forty_right_variants() -> None:
    assert len(VARIANTS) + len(FAMILIES) + 6 >= 40


def test_a_token_that_generate_suppresses_is_not_taken_for_the_one_it_chose() -> None:
    """In bfloat16 the end of the text is likeliest and not chosen, and the next two candidates are nearly equal."""
    result = verify_model(load(Source("falcon_h1", random_weights=True, dtype="bfloat16")), only=("padded-generate",))
    assert [(check.name, check.message) for check in result.failures] == []
    assert "two candidates are nearly equal" in result.checks[-1].found


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_quantized_decoder_beside_plain_cross_attention_passes(family: str) -> None:
    result = verify_model(
        load(Source(family, random_weights=True)),
        Plan(cache="quantized", quantized_backend="fp8"),
        only=("quantized-rows",),
    )
    assert {check.name: check.status for check in result.checks}["quantized-rows"] is Status.PASSED
