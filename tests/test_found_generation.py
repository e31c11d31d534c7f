"""Ways to construct caches, to ask for the first step, and to set options of generation that were missed once."""

from __future__ import annotations

from analysing import fixed, lines, split_marks

GENERATION = frozenset(
    f"KV{number}"
    for number in (101, 206, 207, 208, 211, 213, 214, 306, 307, 309, 401, 402, 403, 404, 801, 802, 803, 804, 806)
)


def found(text: str, target: str = "latest") -> None:
    """Fails unless the rules of generation report exactly the marked lines."""
    code, promised = split_marks(text)
    assert lines(code, target, codes=GENERATION) == promised, code


# -- constructors ------------------------------------------------------------------------------------------------------


def test_a_dict_of_arguments_is_followed_into_a_constructor() -> None:
    found("""
        from transformers import DynamicCache, StaticCache
        def f(model, bs, n):
            kw = dict(max_batch_size=bs, device=model.device)  # KV207
            return StaticCache(config=model.config, max_cache_len=n, **kw)
        def g(cfg):
            opts = {"config": cfg}
            opts["offloaded"] = True
            return DynamicCache(**opts)  # KV208
        def h(cfg):
            opts = {"config": cfg, "num_hidden_layers": 2}
            return DynamicCache(**opts)  # KV206
        def fine(cfg, n):
            opts = {"config": cfg, "max_cache_len": n}
            return StaticCache(**opts)
    """)


def test_a_dict_that_depends_on_the_release_is_followed() -> None:
    text = """
        import transformers
        from packaging.version import Version
        from transformers import DynamicCache
        def f(cfg):
            opts = {}
            if Version(transformers.__version__) >= Version("4.56"):
                opts["config"] = cfg
                opts["offloading"] = True
            else:
                opts["offloaded"] = True
            return DynamicCache(**opts)
    """
    found(text)


def test_a_dict_of_arguments_is_followed_into_a_mask_helper() -> None:
    found("""
        from transformers.masking_utils import create_causal_mask
        def f(cfg, x, m, pos, c):
            mask_kwargs = {"config": cfg, "inputs_embeds": x, "attention_mask": m, "cache_position": pos,
                           "past_key_values": c}
            return {"full_attention": create_causal_mask(**mask_kwargs)}  # KV213
    """)


def test_a_dict_that_asks_the_signature_is_not_reported() -> None:
    found("""
        import inspect
        from transformers.masking_utils import create_causal_mask
        def f(cfg, x, m, pos, c):
            mask_kwargs = {"config": cfg, "inputs_embeds": x, "attention_mask": m, "past_key_values": c}
            if "cache_position" in inspect.signature(create_causal_mask).parameters:
                mask_kwargs["cache_position"] = pos
            return create_causal_mask(**mask_kwargs)
        def g(cfg, x, m, pos, c):
            kw = {"config": cfg, "inputs_embeds": x, "attention_mask": m, "past_key_values": c, "cache_position": pos}
            kw = {k: v for k, v in kw.items() if k in inspect.signature(create_causal_mask).parameters}
            return create_causal_mask(**kw)
    """)


def test_what_a_subclass_passes_to_the_base_is_a_construction() -> None:
    found("""
        from transformers import DynamicCache, StaticCache
        class A(DynamicCache):
            def __init__(self, config):
                super().__init__(config=config, offloaded=True)  # KV208
        class B(StaticCache):
            def __init__(self, config, b, n):
                super().__init__(config, b, n)  # KV206
        class C(StaticCache):
            def __init__(self, config, b, n):
                StaticCache.__init__(self, config=config, max_cache_len=n, max_batch_size=b)  # KV207
        class D(DynamicCache):
            def __init__(self, config=None, **kwargs):
                super().__init__(config=config, **kwargs)
        class E(D):
            def __init__(self, config):
                super().__init__(config=config, anything=True)
    """)


def test_partial_is_a_construction() -> None:
    found("""
        from functools import partial
        from transformers import StaticCache
        make = partial(StaticCache, max_batch_size=4)  # KV207
        fine = partial(StaticCache, max_cache_len=4)
    """)


def test_the_bare_init_of_cache_by_its_name() -> None:
    found("""
        from transformers import Cache
        class A(Cache):
            def __init__(self):
                Cache.__init__(self)  # KV214
    """)


def test_super_is_fixed_like_a_constructor() -> None:
    text = """
from transformers import DynamicCache
class A(DynamicCache):
    def __init__(self, config):
        super().__init__(config=config, offloaded=True)
"""
    assert fixed(text, codes=GENERATION) == text.replace("offloaded", "offloading")


# -- the cache as a flag -----------------------------------------------------------------------------------------------


def test_the_first_step_told_by_the_cache() -> None:
    found("""
        from transformers import LlamaForCausalLM
        class X(LlamaForCausalLM):
            def forward(self, input_ids=None, pixel_values=None, inputs_embeds=None, cache=None, **kw):
                if cache is None and pixel_values is not None:  # KV211
                    inputs_embeds = self.merge(input_ids, pixel_values)
                    input_ids = None
                return super().forward(input_ids=input_ids, inputs_embeds=inputs_embeds, cache=cache, **kw)
            def prepare_inputs_for_generation(self, input_ids, cache=None, **kw):
                has_past = cache is not None
                if has_past:  # KV211
                    input_ids = input_ids[:, -1:]
                return {"input_ids": input_ids, "cache": cache}
        class Y(LlamaForCausalLM):
            def forward(self, input_ids=None, images=None, cache=None, **kw):
                if cache is None:  # KV211
                    kw["inputs_embeds"] = self.encode_images(images)
                return super().forward(input_ids, cache=cache, **kw)
            def prepare_inputs_for_generation(self, input_ids, cache=None, inputs_embeds=None, **kw):
                is_prefill = not cache
                if inputs_embeds is not None and is_prefill:  # KV211
                    return {"inputs_embeds": inputs_embeds, "cache": cache}
                return {"input_ids": input_ids, "cache": cache}
        class Z(LlamaForCausalLM):
            def prepare_inputs_for_generation(self, input_ids, cache=None, inputs_embeds=None, **kw):
                if inputs_embeds is not None and not cache:  # KV211
                    return {"inputs_embeds": inputs_embeds, "cache": cache}
                return {"input_ids": input_ids, "cache": cache}
        class W(LlamaForCausalLM):
            def prepare_inputs_for_generation(self, input_ids, **kwargs):
                if kwargs.get("cache") is not None:  # KV211
                    input_ids = input_ids[:, -1:]
                return {"input_ids": input_ids, **kwargs}
    """)


def test_conditions_that_tell_the_first_step() -> None:
    found("""
        from transformers import LlamaForCausalLM
        class X(LlamaForCausalLM):
            def forward(self, input_ids=None, pixel_values=None, inputs_embeds=None, cache=None, **kw):
                is_first = cache is None or not cache.is_initialized or pixel_values is not None
                if cache is None or pixel_values is not None:
                    inputs_embeds = self.merge(input_ids, pixel_values)
                if pixel_values is not None and is_first:
                    inputs_embeds = self.merge(input_ids, pixel_values)
                return super().forward(inputs_embeds=inputs_embeds, cache=cache, **kw)
        class Y(LlamaForCausalLM):
            def forward(self, input_ids=None, images=None, cache=None, **kw):
                no_cache = cache is None
                if no_cache:
                    kw["inputs_embeds"] = self.encode_images(images)
                else:
                    kw["inputs_embeds"] = self.encode_images(images)[:, cache.get_seq_length():]
                return super().forward(input_ids, cache=cache, **kw)
            def prepare_inputs_for_generation(self, input_ids, cache=None, inputs_embeds=None, **kw):
                has_past = cache is not None and cache.get_seq_length() > 0
                if has_past:
                    input_ids = input_ids[:, -1:]
                return {"input_ids": input_ids, "cache": cache}
    """)


# -- options of generation ---------------------------------------------------------------------------------------------


def test_a_pipeline_hands_its_options_to_generate() -> None:
    found("""
        from transformers import pipeline
        pipe = pipeline("text-generation", model="meta-llama/Llama-3.2-1B")
        print(pipe("Hello", max_new_tokens=5, cache_implementation="mamba"))  # KV401
        print(pipeline("text-generation", model="x")("Hi", cache_implementation="mamba"))  # KV401
        print(pipe("Hello", cache_implementation="static"))
        pipe.model.generation_config.cache_implementation = "mamba"  # KV401
    """)


def test_a_generation_config_from_a_dict() -> None:
    found("""
        from transformers import GenerationConfig
        g = GenerationConfig.from_dict({"cache_implementation": "dynamic_full"})  # KV401
        fine = GenerationConfig.from_dict({"cache_implementation": "static"})
    """)


def test_a_quantized_cache_set_on_the_model() -> None:
    found("""
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("google/gemma-3-1b-it")
        model.generation_config.cache_implementation = "quantized"  # KV404
        other = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
        other.generation_config.cache_implementation = "quantized"
    """)


def test_generate_in_a_thread() -> None:
    found("""
        from threading import Thread
        from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer
        tok = AutoTokenizer.from_pretrained("x")
        def stream(model, text):
            inputs = tok(text, return_tensors="pt")
            streamer = TextIteratorStreamer(tok)
            kwargs = dict(**inputs, streamer=streamer, max_new_tokens=20, cache_implementation="hybrid")  # KV401
            Thread(target=model.generate, kwargs=kwargs).start()
        def pos(model, inputs, pos):
            Thread(target=model.generate, kwargs={"cache_position": pos, **inputs}).start()  # KV307
        def slow(model, inputs):
            Thread(target=model.generate, kwargs=dict(inputs, use_cache=False)).start()  # KV806
        def fine(model, inputs):
            Thread(target=model.generate, kwargs=dict(inputs, use_cache=True)).start()
    """)


def test_positions_set_on_the_inputs() -> None:
    found("""
        from transformers import AutoTokenizer
        tok = AutoTokenizer.from_pretrained("x")
        def f(model, pos):
            inputs = tok("a", return_tensors="pt")
            inputs["cache_position"] = pos
            return model.generate(**inputs)  # KV307
        def fine(model, pos):
            inputs = tok("a", return_tensors="pt")
            inputs["cache_position"] = pos
            out = model(**inputs)
            inputs.pop("cache_position")
            return model.generate(**inputs)
        def depends(model, pos, old):
            inputs = tok("a", return_tensors="pt")
            if old:
                inputs["cache_position"] = pos
            return model.generate(**inputs)
    """)


def test_the_default_of_a_parameter_is_what_generate_gets() -> None:
    found("""
        from transformers import AutoModelForCausalLM
        def f(model, ids, cache_implementation="hybrid"):  # KV401
            return model.generate(ids, cache_implementation=cache_implementation)
        def fine(model, ids, cache_implementation="hybrid"):
            if cache_implementation == "hybrid":
                cache_implementation = None
            return model.generate(ids, cache_implementation=cache_implementation)
    """)


# -- caches that are used again ----------------------------------------------------------------------------------------


def test_the_cache_of_the_turn_before_with_the_new_turn_alone() -> None:
    found("""
        from transformers import AutoTokenizer
        tok = AutoTokenizer.from_pretrained("x")
        def f(model, msgs):
            past = None
            for msg in msgs:
                enc = tok(msg, return_tensors="pt")
                res = model.generate(**enc, past_key_values=past, return_dict_in_generate=True)  # KV803
                past = res.past_key_values
        def fine(model, msgs):
            past, text = None, ""
            for msg in msgs:
                text = text + msg
                enc = tok(text, return_tensors="pt")
                res = model.generate(**enc, past_key_values=past, return_dict_in_generate=True)
                past = res.past_key_values
                text = text + tok.decode(res.sequences[0])
        def other(model, msgs):
            past = None
            for msg in msgs:
                enc = tok(msg, return_tensors="pt")
                res = model.generate(**enc, past_key_values=past, return_dict_in_generate=True)
                past = None
    """)


def test_a_mask_that_is_made_anew_in_every_round() -> None:
    found("""
        import torch
        from transformers import AutoTokenizer
        def f(model, batch, n):
            ids, attn, cache = batch["input_ids"], batch["attention_mask"], None
            for _ in range(n):
                out = model(ids, attention_mask=attn, past_key_values=cache, use_cache=True)  # KV803
                cache = out.past_key_values
                ids = out.logits[:, -1:].argmax(-1)
                attn = torch.ones_like(ids)
        def fine(model, batch, n):
            ids, attn, cache = batch["input_ids"], batch["attention_mask"], None
            for _ in range(n):
                out = model(ids, attention_mask=attn, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                ids = out.logits[:, -1:].argmax(-1)
                attn = torch.cat([attn, torch.ones_like(ids)], 1)
        def whole(model, batch, n):
            ids, attn, cache = batch["input_ids"], batch["attention_mask"], None
            for _ in range(n):
                out = model(ids, attention_mask=attn, past_key_values=cache, use_cache=True)
                ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
                attn = torch.ones_like(ids)
    """)


def test_repeated_ids_beside_the_cache_of_one_row() -> None:
    found("""
        from transformers import AutoModelForCausalLM
        def f(model, ids):
            past = model(ids, use_cache=True).past_key_values
            return model(ids.repeat(8, 1), past_key_values=past)  # KV804
        def g(model, ids, n):
            out = model(ids[:, :-1], use_cache=True)
            return model.generate(ids.repeat_interleave(n, dim=0), past_key_values=out.past_key_values)  # KV804
        def h(model, ids):
            past = model(ids, use_cache=True).past_key_values
            more = ids.expand(4, -1)
            return model(more, past_key_values=past)  # KV804
        def fine(model, ids):
            past = model(ids, use_cache=True).past_key_values
            past.batch_repeat_interleave(8)
            return model(ids.repeat(8, 1), past_key_values=past)
        def also(model, ids):
            ids = ids.repeat(8, 1)
            past = model(ids, use_cache=True).past_key_values
            return model(ids.repeat(1, 8), past_key_values=past)
        def unknown(model, ids, prefix):
            past = model(prefix, use_cache=True).past_key_values
            return model(ids.repeat(8, 1), past_key_values=past)
    """)


def test_a_shared_cache_in_a_dict_and_by_its_head() -> None:
    found("""
        import copy
        import torch
        from transformers import AutoModelForCausalLM, DynamicCache
        def g(model, head, tails):
            kv = model(head, use_cache=True).past_key_values
            kw = dict(past_key_values=kv, max_new_tokens=5)
            for t in tails:
                model.generate(torch.cat([head, t], 1), **kw)  # KV801
        def h(model, head, a, b, kv):
            model.generate(torch.cat([head, a], 1), cache=kv)
            model.generate(torch.cat([head, b], 1), cache=kv)  # KV801
        def i(kv: DynamicCache, cands):
            return [copy.copy(kv) for _ in cands]  # KV801
        def fine(model, head, tails):
            kv = model(head, use_cache=True).past_key_values
            for t in tails:
                kw = dict(past_key_values=copy.deepcopy(kv), max_new_tokens=5)
                model.generate(torch.cat([head, t], 1), **kw)
        def grows(model, head, a, more, kv):
            model.generate(torch.cat([head, a], 1), cache=kv)
            b = torch.cat([a, more], 1)
            model.generate(torch.cat([head, b], 1), cache=kv)
        def deep(kv: DynamicCache, cands):
            return [copy.deepcopy(kv) for _ in cands]
    """)


# -- smaller ones ------------------------------------------------------------------------------------------------------


def test_a_class_that_getattr_names() -> None:
    text = """
        import transformers
        from transformers import cache_utils
        a = getattr(transformers, "HybridCache")  # KV101
        b = getattr(cache_utils, "HybridCache")  # KV101
        c = getattr(transformers, "HybridCache", None)
        try:
            d = getattr(transformers, "HybridCache")
        except AttributeError:
            d = None
        if hasattr(transformers, "HybridCache"):
            e = getattr(transformers, "HybridCache")
    """
    found(text)


def test_keys_of_outputs() -> None:
    found("""
        from transformers import AutoModelForCausalLM
        IGNORE = ("past_key_values", "attentions")
        BOTH = ("past_key_values", "cache")
        model = AutoModelForCausalLM.from_pretrained("x")
        def f(ids):
            out = model(ids)
            d = {k: v for k, v in out.items()}
            return d["past_key_values"]  # KV306
        def g(ids):
            out = model(ids)
            return vars(out)["past_key_values"]  # KV306
        def fine(ids):
            out = model(ids)
            d = {k: v for k, v in out.items() if k not in BOTH}
            e = {f"x_{k}": v for k, v in out.items()}
            return [k for k in out if k not in BOTH], e["past_key_values"]
        def h(ids):
            out = model(ids)
            return [f for f in out if f != "past_key_values"]  # KV306
        def i(trainer):
            trainer.train(ignore_keys_for_eval=["past_key_values"])  # KV306
            trainer.train(ignore_keys_for_eval=["past_key_values", "cache"])
    """)


def test_keys_of_outputs_in_a_constant() -> None:
    found("""
        from transformers import AutoModelForCausalLM
        IGNORE = ("past_key_values", "attentions")  # KV306
        def f(ids):
            model = AutoModelForCausalLM.from_pretrained("x")
            out = model(ids)
            return {k: v for k, v in out.items() if k not in IGNORE}
    """)


def test_an_update_that_is_put_into_a_cache_class() -> None:
    found("""
        from transformers import DynamicCache
        def update(self, key_states, value_states, layer_idx, cache_kwargs=None):  # KV214
            return key_states, value_states
        DynamicCache.update = update
        def other(self, key_states, value_states, layer_idx, **kwargs):
            return key_states, value_states
        DynamicCache.update = other
    """)


def test_a_third_output_that_is_added() -> None:
    found("""
        from transformers.models.llama.modeling_llama import LlamaAttention
        class A(LlamaAttention):
            def forward(self, hidden_states, cache=None, **kwargs):
                outputs = super().forward(hidden_states, cache=cache, **kwargs)
                outputs += (cache,)
                return outputs  # KV309
        class B(LlamaAttention):
            def forward(self, hidden_states, cache=None, **kwargs):
                return super().forward(hidden_states, cache=cache, **kwargs) + (cache,)  # KV309
        class C(LlamaAttention):
            def forward(self, hidden_states, cache=None, **kwargs):
                outputs = super().forward(hidden_states, cache=cache, **kwargs)
                return outputs
    """)
