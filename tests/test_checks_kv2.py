"""KV201 to KV214: since when each use is wrong, of which category it is, and what must stay silent."""

from __future__ import annotations

import pytest
from analysing import expect, lint

from kvlint.timeline import the_timeline

EVERY = ">=4.36"
HEAD = """\
import torch
import transformers
from transformers import Cache, DynamicCache, EncoderDecoderCache, QuantizedCache, StaticCache
from transformers.cache_utils import DynamicLayer
c = DynamicCache()
s = StaticCache(config=a, max_cache_len=3)
out = model(ids, use_cache=True)
config = model.config
"""


def said(code: str, text: str, target: str) -> list[tuple[str, tuple[str, ...]]]:
    """(category, releases in force on which it is wrong) of what the check finds behind the head."""
    found = lint(HEAD + text + "\n", target, codes=[code])
    return [(one.category.value, the_timeline().ranges(one.releases)) for one in found if one.start >= len(HEAD)]


@pytest.mark.parametrize(
    ("code", "text", "target", "category", "ranges"),
    [
        ("KV201", "c.to_legacy_cache()", EVERY, "breaks", ("5.0.0-5.24.0",)),
        ("KV201", "DynamicCache.from_legacy_cache(p)", EVERY, "breaks", ("5.0.0-5.24.0",)),
        ("KV201", "c.get_usable_length(1)", EVERY, "breaks", ("4.54.0-5.24.0",)),
        ("KV201", "c.get_max_length()", EVERY, "breaks", ("4.49.0-5.12.1",)),
        ("KV201", "c.get_max_cache_shape()", ">=4.47", "breaks", ("5.20.0-5.24.0",)),
        ("KV201", "c.batch_split(2, 1)", ">=4.42", "breaks", ("4.54.0-5.24.0",)),
        ("KV201", "s.batch_repeat_interleave(2)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV201", "s.crop(-1)", ">=4.56", "breaks", ("4.56.0-5.23.0",)),
        ("KV201", "c.reset()", ">=4.54", "silent", ("4.54.0-5.17.0",)),
        ("KV201", "c.to('cpu')", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV202", "c.key_cache", EVERY, "breaks", ("4.56.0-5.24.0",)),
        ("KV202", "c.seen_tokens", EVERY, "breaks", ("4.54.0-5.24.0",)),
        ("KV202", "c._seen_tokens", ">=4.39", "breaks", ("4.54.0-5.24.0",)),
        ("KV202", "s.max_batch_size", ">=4.47", "breaks", ("5.20.0-5.24.0",)),
        ("KV202", "s.max_cache_len", ">=4.38", "breaks", ("5.20.0-5.24.0",)),
        ("KV202", "c.layers", EVERY, "breaks", ("4.36.0-4.53.3",)),
        ("KV202", "x = not c.has_previous_state", ">=5.5", "silent", ("5.5.0-5.24.0",)),
        ("KV203", "c._seen_tokens = 1", EVERY, "silent", ("4.54.0-5.24.0",)),
        ("KV203", "c.key_cache = []", ">=4.56", "silent", ("4.56.0-5.24.0",)),
        ("KV203", "c.key_cache = []", ">=4.54,<4.56", "breaks", ("4.54.0-4.55.4",)),
        ("KV204", "c[0]", EVERY, "breaks", ("5.0.0-5.24.0",)),
        ("KV205", "for k, v in c: pass", EVERY, "breaks", ("5.0.0-5.24.0",)),
        ("KV205", "for x in s: pass", ">=4.54", "breaks", ("5.0.0-5.24.0",)),
        ("KV206", "DynamicCache(config)", ">=4.50", "breaks", ("4.50.0-5.24.0",)),
        ("KV206", "StaticCache(config, batch_size, n)", ">=4.56", "silent", ("4.56.0-5.24.0",)),
        ("KV206", "StaticCache(config, 1, n, 'cpu', torch.float32)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV206", "StaticCache(config, batch, max_cache_len=n)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV206", "QuantizedCache('HQQ', config)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV206", "DynamicCache(num_hidden_layers=2)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV206", "StaticCache(config=config)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV207", "StaticCache(config=config, max_cache_len=3, dtype=d)", ">=4.56", "silent", ("4.56.0-5.24.0",)),
        ("KV208", "DynamicCache(offloaded=True)", ">=4.56", "breaks", ("4.56.0-5.24.0",)),
        ("KV208", "StaticCache(config=a, max_cache_len=3, offloaded=True)", ">=4.56", "silent", ("4.56.0-5.24.0",)),
        ("KV209", "c.crop(3)", ">=5.20", "breaks", ("5.20.0-5.24.0",)),
        ("KV209", "c.crop(3)", ">=5.10,<5.20", "deprecated", ("5.15.0-5.19.0",)),
        ("KV209", "c.crop(0)", EVERY, "silent", ("5.14.0-5.24.0",)),
        ("KV209", "c.crop(max_length=-3)", ">=4.42", "breaks", ("5.15.0-5.24.0",)),
        ("KV209", "s.crop(3)", ">=5.20", "breaks", ("5.24.0",)),
        ("KV210", "x = c.get_max_length() is None", ">=4.54", "silent", ("5.13.0-5.24.0",)),
        ("KV210", "x = c.get_max_cache_shape() is not None", ">=4.47", "silent", ("4.54.0-5.19.0",)),
        ("KV212", "n = s.layers[0].keys.shape[2]", ">=4.56", "silent", ("4.56.0-5.24.0",)),
        ("KV213", "s.update(k, v, 0, {'cache_position': p})", ">=4.54", "silent", ("5.4.0-5.24.0",)),
        ("KV213", "c.get_mask_sizes(cache_position, 0)", ">=4.54", "silent", ("5.4.0-5.24.0",)),
        ("KV213", "c.get_seq_length(cache_position=p)", ">=4.54", "breaks", ("4.56.0-5.24.0",)),
    ],
)
def test_dates_and_categories(code: str, text: str, target: str, category: str, ranges: tuple[str, ...]) -> None:
    assert said(code, text, target) == [(category, ranges)]


@pytest.mark.parametrize(
    ("code", "text", "target"),
    [
        ("KV201", "c.to_legacy_cache()", "<5"),
        ("KV201", "c.get_seq_length(); c.reorder_cache(i); c.batch_select_indices(i)", "latest"),
        ("KV201", "c.reset()", ">=5.18"),
        ("KV202", "c.key_cache", "<4.56"),
        ("KV202", "c.has_previous_state(); c.layers; c.is_compileable", "latest"),
        ("KV203", "c.layers[0].keys = t", "latest"),
        ("KV204", "c[0]", "<5"),
        ("KV205", "for k, v in c: pass", "<5"),
        ("KV205", "for k, v, *rest in c: pass", "latest"),
        ("KV205", "for item in c: pass", "latest"),
        ("KV205", "for layer in s.layers: pass", "latest"),
        ("KV206", "DynamicCache(); DynamicCache(pairs); DynamicCache(config=config)", "latest"),
        ("KV206", "StaticCache(config, 128); StaticCache(config, 128, False)", "latest"),
        ("KV206", "EncoderDecoderCache(DynamicCache(), DynamicCache()); EncoderDecoderCache()", "latest"),
        ("KV206", "QuantizedCache('hqq', config); QuantizedCache(backend='quanto', config=config, nbits=2)", "latest"),
        ("KV207", "StaticCache(config=config, max_cache_len=3, offloading=True)", "latest"),
        ("KV207", "StaticCache(config=config, max_cache_len=3, dtype=d)", ">=4.47,<4.54"),
        ("KV208", "DynamicCache(offloading=True)", "latest"),
        ("KV209", "c.crop(-1); c.crop(-n); c.crop(kept - c.get_seq_length()); c.crop(n - past_length)", "latest"),
        ("KV209", "c.crop(3)", "<5.15"),
        ("KV209", "c.crop(tokens_to_remove=n)", "latest"),
        ("KV210", "x = s.get_max_length() is None", "latest"),
        ("KV210", "n = c.get_max_length()\nx = n is None or n == -1", "latest"),
        ("KV210", "n = c.get_max_length()\nx = n if n > 0 else None", "latest"),
        ("KV210", "x = c.get_max_length() is None", "<4.49"),
        ("KV212", "n = c.layers[0].keys.shape[2]", "latest"),
        ("KV212", "n = s.layers[0].keys.shape[1]; m = s.layers[0].keys.shape[-1]", "latest"),
        ("KV213", "c.update(k, v, 0, {'cache_position': p}); s.update(k, v, 0)", "latest"),
        ("KV213", "c.get_mask_sizes(3, 0); c.get_mask_sizes(cache_position.shape[0], 0)", "latest"),
        ("KV213", "{}.update(cache_position=1); metrics.update(a=1)", "latest"),
        ("KV214", "class A(DynamicCache): pass", "latest"),
        (
            "KV214",
            "class A(DynamicCache):\n    def update(self, *args, **kwargs): return super().update(*args, **kwargs)",
            "latest",
        ),
        ("KV214", "class A(Cache):\n    def __init__(self): super().__init__(layers=[])", "latest"),
        ("KV214", "class A(Cache):\n    def __init__(self): super().__init__()", "<4.54"),
        ("KV214", "class A(dict):\n    def update(self, key): pass", "latest"),
        ("KV214", "class A(DynamicLayer):\n    def update(self, k, v, *args, **kwargs): return k, v", "latest"),
    ],
)
def test_right_uses_are_silent(code: str, text: str, target: str) -> None:
    assert said(code, text, target) == []


# --- KV201, KV202


def test_member_of_a_subclass_is_its_own() -> None:
    expect(
        """
        from transformers import DynamicCache
        class Mine(DynamicCache):
            @property
            def seen_tokens(self):
                return self.get_seq_length()
            def get_usable_length(self, n, i=0):
                return self.get_seq_length(i)
        m = Mine()
        m.seen_tokens
        m.get_usable_length(1)
        m.key_cache  # KV202
        """
    )


def test_class_is_named_where_it_is_known() -> None:
    (finding,) = lint("from transformers import DynamicCache\nDynamicCache().to_legacy_cache()\n")
    assert finding.message == "`DynamicCache` has no `to_legacy_cache()`: AttributeError from 5.0.0"
    (finding,) = lint("from transformers import Cache\ndef f(x: Cache): return x.to_legacy_cache()\n")
    assert finding.message == "a cache has no `to_legacy_cache()`: AttributeError from 5.0.0"


def test_patching_a_method_is_no_use_of_it() -> None:
    expect("from transformers import DynamicCache\nDynamicCache.to_legacy_cache = lambda self: tuple(self)\n")


def test_has_previous_state_called_and_not_called() -> None:
    expect(
        """
        from transformers import DynamicCache
        c = DynamicCache(config=config)
        if c.has_previous_state:  # KV202
            pass
        if c.has_previous_state():
            pass
        if c.has_previous_state(0):
            pass
        """
    )


# --- KV205


@pytest.mark.parametrize(
    "text",
    [
        "for k, v in past_key_values: pass  # KV205",
        "for i, (k, v) in enumerate(past_key_values): pass  # KV205",
        "for k, v in reversed(past_key_values): pass  # KV205",
        "x = [k for k, v in past_key_values]  # KV205",
        "x = {i: k for i, (k, v) in enumerate(past_key_values)}  # KV205",
        "k, v = zip(*past_key_values)  # KV205",
        "for layer in past_key_values:\n    k, v = layer  # KV205",
        "for layer in past_key_values:\n    for t in layer: t.cpu()  # KV205",
        "for layer in past_key_values:\n    k, v, *_ = layer",
        "for layer in past_key_values:\n    k = layer[0]",
        "for i, layer in enumerate(past_key_values): layer[1]",
    ],
)
def test_ways_of_iterating(text: str) -> None:
    expect("import transformers\nout = model(ids, use_cache=True)\npast_key_values = out.past_key_values\n" + text)


# --- KV206 to KV208


def test_one_finding_for_one_mistake() -> None:
    expect(
        """
        from transformers import DynamicCache, StaticCache
        StaticCache(model.config, batch_size, length, "cpu", dtype)  # KV206
        StaticCache(config=model.config, max_cache_len=3, device="cpu", dtype=dtype)  # KV207
        DynamicCache(model.config, offloading=True)  # KV206
        StaticCache(config=model.config, max_cache_len=3, offloaded=True)  # KV208
        """
    )


def test_constructor_of_a_subclass_is_its_own() -> None:
    expect(
        """
        from transformers import StaticCache
        class Mine(StaticCache):
            def __init__(self, config, batch, length, device, dtype):
                super().__init__(config=config, max_cache_len=length)
        Mine(config, 1, 3, "cpu", dtype)
        """
    )


def test_what_offloading_moves_is_told() -> None:
    (dynamic,) = lint("from transformers import DynamicCache\nDynamicCache(offloaded=True)\n")
    (static,) = lint("from transformers import StaticCache\nStaticCache(config=a, max_cache_len=3, offloaded=True)\n")
    assert "moves all layers unless" in dynamic.help
    assert "moves all layers but the sliding ones unless" in static.help


# --- KV209


def test_error_of_a_static_cache_is_another_one() -> None:
    (dynamic,) = lint(HEAD + "c.crop(3)\n", codes=["KV209"])
    (static,) = lint(HEAD + "s.crop(3)\n", codes=["KV209"])
    assert "raises ValueError from 5.20.0" in dynamic.message
    assert "raises RuntimeError from 5.24.0" in static.message


# --- KV211

MODEL = """
from transformers import LlamaForCausalLM
class M(LlamaForCausalLM):
    def {name}(self, input_ids, cache=None, pixel_values=None, inputs_embeds=None, **kwargs):
{body}
"""


@pytest.mark.parametrize(
    ("name", "body", "reported"),
    [
        ("prepare_inputs_for_generation", "if cache is not None:\n    input_ids = input_ids[:, -1:]", True),
        ("prepare_inputs_for_generation", "if cache:\n    input_ids = input_ids[:, -1:]", True),
        ("prepare_inputs_for_generation", "if cache is not None:\n    pixel_values = None", True),
        ("prepare_inputs_for_generation", "if cache is None:\n    x = 1\nelse:\n    pixel_values = None", True),
        (
            "prepare_inputs_for_generation",
            "if inputs_embeds is not None and cache is None:\n    return {'inputs_embeds': inputs_embeds}",
            True,
        ),
        ("prepare_inputs_for_generation", "x = input_ids[:, -1:] if cache is not None else input_ids", True),
        (
            "prepare_inputs_for_generation",
            "if cache is not None:\n    n = cache.get_seq_length()\n    input_ids = input_ids[:, n:]",
            False,
        ),
        (
            "prepare_inputs_for_generation",
            "if cache is not None and cache.get_seq_length() > 0:\n    input_ids = input_ids[:, -1:]",
            False,
        ),
        ("prepare_inputs_for_generation", "if cache is None:\n    cache = make()", False),
        ("forward", "if cache is not None:\n    input_ids = input_ids[:, -1:]", True),
        ("forward", "if cache is not None:\n    x = cache.get_seq_length()", False),
        ("other", "if cache is not None:\n    input_ids = input_ids[:, -1:]", False),
    ],
)
def test_tests_that_mean_the_first_step(name: str, body: str, reported: bool) -> None:
    indented = "\n".join("        " + line for line in body.split("\n"))
    found = lint(MODEL.format(name=name, body=indented), codes=["KV211"])
    assert [one.code for one in found] == (["KV211"] if reported else [])


# --- KV212


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("d = DynamicCache(config=config)\nn = d.layers[0].keys.shape[-2]", True),
        ("d = DynamicCache(config=config)\nn = d.layers[0].values.size(2)", True),
        ("d = DynamicCache(config=config)\nf(d.layers[i].keys.shape[2])", True),
        ("past_length = out.past_key_values.layers[0].keys.shape[2]", True),
        ("x = out.past_key_values.layers[0].keys.shape[2]", False),
        ("d = DynamicCache(config=config)\nn = d.layers[0].keys.shape[0]", False),
        ("d = DynamicCache(config=config)\nn = d.layers[0].get_seq_length()", False),
    ],
)
def test_lengths_from_shapes(text: str, reported: bool) -> None:
    assert [one.code for one in lint(HEAD + text + "\n", codes=["KV212"])] == (["KV212"] if reported else [])


# --- KV214


def test_own_classes() -> None:
    expect(
        """
        from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
        class Bare(Cache):
            pass
        Bare()  # KV214
        class Init(Cache):
            def __init__(self, n):
                super().__init__()  # KV214
        class Narrow(DynamicCache):
            def update(self, key_states, value_states, layer_idx, cache_kwargs=None):  # KV214
                return super().update(key_states, value_states, layer_idx)
        class NarrowLayer(DynamicLayer):
            def update(self, key_states, value_states, cache_kwargs=None):  # KV214
                return super().update(key_states, value_states)
        class Apart(DynamicCache):  # KV214
            def update(self, key_states, value_states, layer_idx, **kwargs):
                self.mine[layer_idx] = key_states
                return key_states, value_states
        class Counted(DynamicCache):
            def update(self, key_states, value_states, layer_idx, **kwargs):
                self.mine[layer_idx] = key_states
                return key_states, value_states
            def get_seq_length(self, layer_idx=0):
                return 1
            def get_mask_sizes(self, query_length, layer_idx):
                return 1, 0
        """
    )


def test_update_of_a_layer_needs_kwargs_too() -> None:
    """A layer gets the `kwargs` that the cache hands on."""
    found = lint(
        "from transformers.cache_utils import DynamicLayer\nclass A(DynamicLayer):\n"
        "    def update(self, k, v, *args):\n        return super().update(k, v)\n"
    )
    assert [one.code for one in found] == ["KV214"]
