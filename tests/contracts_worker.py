"""Runs tiny models on the transformers that this interpreter finds, and writes down how the library calls its parts.

Prints one JSON object: ``release``, ``families`` and ``calls``. A call has the ``caller`` (the innermost function of
transformers that made it, by its full name), the ``callee`` (a class and a method), how many ``positions`` and which
``keywords`` were passed, ``spread`` (the keys of every dict among the caller's local names at that time) and what the
caller did with the result: ``unpacked``, ``items``, ``rest_from``, ``fields``.

Results are handed on as tuples and outputs that remember who looks into them; that is seen only where the caller does.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
import types
import warnings

import torch
import transformers
from transformers import cache_utils
from transformers.utils import ModelOutput

HOOKS = ("prepare_inputs_for_generation", "_prepare_cache_for_generation", "_update_model_kwargs_for_generation")
PACKAGE = transformers.__name__ + "."
calls = {}
own = set()
"""Code of the functions of this file that stand between a caller and what it calls."""


def mine(function):
    own.add(function.__code__)
    return function


def caller_of(frame):
    """The frame of the library's function that called, and its full name; None for another caller."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_name
        if frame.f_code in own or module.startswith("torch.") or name.startswith("<"):
            frame = frame.f_back
        elif module == "transformers.modeling_layers" and name == "__call__":
            frame = frame.f_back
        elif not module.startswith(PACKAGE):
            return None
        else:
            full = full_name(frame, module, name)
            if full is not None:
                return frame, full
            frame = frame.f_back
    return None


def full_name(frame, module, name):
    """``transformers.models.llama.modeling_llama.LlamaModel.forward``; None for a function inside of another one."""
    values = list(frame.f_locals.values())
    for value in values[:1]:
        for cls in value.__mro__ if isinstance(value, type) else type(value).__mro__:
            method = vars(cls).get(name)
            method = getattr(method, "__func__", method)
            if callable(method) and inspect.unwrap(method).__code__ is frame.f_code:
                return f"{cls.__module__}.{cls.__qualname__}.{name}"
    function = frame.f_globals.get(name)
    if isinstance(function, types.FunctionType) and inspect.unwrap(function).__code__ is frame.f_code:
        return f"{module}.{name}"
    return None


class Note:
    """One kind of call, with what was ever done with its result."""

    def __init__(self, **facts):
        self.facts = facts
        self.unpacked, self.items, self.rest_from, self.fields = set(), set(), set(), set()

    def as_json(self):
        seen = {name: sorted(getattr(self, name)) for name in ("unpacked", "items", "rest_from", "fields")}
        return {**self.facts, **seen}


def note(found, callee, positions, keywords):
    frame, caller = found
    spread = {
        name: sorted(value)
        for name, value in frame.f_locals.items()
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value)
    }
    key = json.dumps([caller, frame.f_lineno, callee, positions, sorted(keywords), spread])
    if key not in calls:
        calls[key] = Note(caller=caller, callee=callee, positions=positions, keywords=sorted(keywords), spread=spread)
    return calls[key]


class SeenItems:
    """Iterates over a result, and remembers how many values were taken when it came to its end."""

    def __init__(self, values, result_note):
        self.values, self.count, self.note = iter(values), 0, result_note

    def __iter__(self):
        return self

    def __next__(self):
        try:
            value = next(self.values)
        except StopIteration:
            self.note.unpacked.add(self.count)
            raise
        self.count += 1
        return value


class SeenTuple(tuple):
    """A tuple that remembers how its caller takes it apart."""

    def __iter__(self):
        values = tuple.__iter__(self)
        return SeenItems(values, self.note) if sys._getframe(1) is self.frame else values

    def __getitem__(self, index):
        if sys._getframe(1) is self.frame:
            remember_index(self.note, index)
        return tuple.__getitem__(self, index)


def remember_index(result_note, index):
    if isinstance(index, str):
        result_note.fields.add(index)
    elif isinstance(index, slice):
        result_note.rest_from.add(index.start or 0)
    else:
        result_note.items.add(index)


@functools.cache
def seen_output(cls):
    """A class of outputs whose objects remember which fields their caller reads."""

    class Seen(cls):
        def __getattribute__(self, name):
            get = object.__getattribute__
            state = get(self, "__dict__")
            if "_frame" in state and sys._getframe(1) is state["_frame"]:
                if name in {each.name for each in dataclasses.fields(cls)}:
                    state["_note"].fields.add(name)
                elif name == "get":
                    return lambda key, *default: (state["_note"].fields.add(key), get(self, name)(key, *default))[1]
            return get(self, name)

        def __getitem__(self, index):
            state = object.__getattribute__(self, "__dict__")
            if "_frame" in state and sys._getframe(1) is state["_frame"]:
                remember_index(state["_note"], index)
            return cls.__getitem__(self, index)

    Seen.__name__, Seen.__qualname__ = cls.__name__, cls.__qualname__
    return Seen


def seen(result, frame, result_note):
    """The result in a shape that remembers what the caller does with it."""
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        result = SeenTuple(result)
        result.frame, result.note = frame, result_note
    elif isinstance(result, ModelOutput) and dataclasses.is_dataclass(result):
        cls = type(result)
        base = cls.__mro__[1] if "Seen" in repr(cls.__getattribute__) else cls
        result.__class__ = seen_output(base)
        object.__getattribute__(result, "__dict__").update(_frame=frame, _note=result_note)
    return result


# ------------------------------------------------------------------------------------------------------------- watching


def watch(model):
    """Notes every call of a part of the model, and of its hooks for generation."""
    for module in model.modules():
        if type(module).__module__.startswith(PACKAGE):
            stack = []
            module.register_forward_pre_hook(functools.partial(before, stack), with_kwargs=True)
            module.register_forward_hook(functools.partial(after, stack), with_kwargs=True)
    for name in HOOKS:
        setattr(model, name, watched_hook(model, name))


@mine
def before(stack, module, arguments, keywords):
    found = caller_of(sys._getframe())
    if found is not None:
        callee = f"{type(module).__module__}.{type(module).__qualname__}.forward"
        found = (found[0], note(found, callee, len(arguments), keywords))
    stack.append(found)


@mine
def after(stack, module, arguments, keywords, result):
    found = stack.pop()
    return result if found is None else seen(result, *found)


def watched_hook(model, name):
    method = getattr(model, name)
    defined = next(cls for cls in type(model).__mro__ if name in vars(cls))

    @mine
    @functools.wraps(method)
    def watched(*arguments, **keywords):
        found = caller_of(sys._getframe())
        if found is None:
            return method(*arguments, **keywords)
        result_note = note(
            found, f"{type(model).__module__}.{type(model).__qualname__}.{name}", len(arguments), keywords
        )
        result = method(*arguments, **keywords)
        if isinstance(result, dict) and name == "prepare_inputs_for_generation":
            result_note.facts["returned"] = sorted({*result_note.facts.get("returned", ()), *result})
            result_note.facts["defined"] = f"{defined.__module__}.{defined.__qualname__}"
        return result

    own.add(watched.__code__)
    return watched


def watch_caches():
    """Notes every call of a method of a cache, or of a layer of one."""
    for cls in list(vars(cache_utils).values()):
        if isinstance(cls, type) and cls.__module__ == cache_utils.__name__:
            if cls.__name__.endswith(("Cache", "Layer", "LayerMixin")):
                for name, method in list(vars(cls).items()):
                    if isinstance(method, types.FunctionType) and not name.startswith("__"):
                        setattr(cls, name, watched_method(cls, name, method))


def watched_method(cls, name, method):
    @functools.wraps(method)
    def watched(self, *arguments, **keywords):
        frame = sys._getframe(1)
        found = caller_of(frame)
        if found is None:
            return method(self, *arguments, **keywords)
        result_note = note(found, f"{cls.__module__}.{cls.__qualname__}.{name}", len(arguments), keywords)
        return seen(method(self, *arguments, **keywords), found[0], result_note)

    own.add(watched.__code__)
    return watched


# -------------------------------------------------------------------------------------------------------------- running

SMALL = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 63}
PLAIN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}
DECODER = {**PLAIN, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}
SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 4}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**DECODER, "sliding_window": 4}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**DECODER, "num_local_experts": 2}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**PLAIN, "intermediate_size": 48}),
    "falcon": ("FalconForCausalLM", "FalconConfig", PLAIN),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "opt": ("OPTForCausalLM", "OPTConfig", {**PLAIN, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **PLAIN,
            **EXPERTS,
            "intermediate_size": 48,
            "num_key_value_heads": 4,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        {
            **DECODER,
            **EXPERTS,
            "num_experts": 4,
            "shared_expert_intermediate_size": 16,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
    ),
}


def build(model, config, options):
    torch.manual_seed(0)
    made = getattr(transformers, config)(**{**SMALL, **options})
    made._attn_implementation = "eager"
    return getattr(transformers, model)(made).eval()


def use(model):
    """The ways in which people run a model, as far as it has them."""
    encoder_decoder = model.config.is_encoder_decoder
    ids = torch.randint(3, 64, (2, 6))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    options = {"attention_mask": mask, "max_new_tokens": 4, "do_sample": False}
    model.generate(ids, **options)
    model.generate(ids, num_beams=2, **options)
    shown = {"output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True}
    if hasattr(model.config, "num_attention_heads"):
        model.generate(ids, **options, **shown)
        model.generate(ids[:1], max_new_tokens=4, do_sample=False, cache_implementation="static")
        if not is_stateful(model):
            model.generate(ids[1:], max_new_tokens=4, do_sample=False, prompt_lookup_num_tokens=2)
    more = {"decoder_input_ids": ids[:, :2]} if encoder_decoder else {}
    model(ids, **more, use_cache=True, return_dict=False)


def is_stateful(model):
    return getattr(model, "_is_stateful", False) or "linear_attention" in (
        getattr(model.config, "layer_types", None) or ()
    )


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    watch_caches()
    ran = []
    with torch.no_grad():
        for family in sys.argv[1:] or FAMILIES:
            model = build(*FAMILIES[family])
            watch(model)
            use(model)
            ran.append(family)
    print(
        json.dumps(
            {"release": transformers.__version__, "families": ran, "calls": [*map(Note.as_json, calls.values())]}
        )
    )


if __name__ == "__main__":
    main()
