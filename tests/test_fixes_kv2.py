"""Fixes of KV101, KV102 and KV201 to KV214: the sixteen ways in which rewriting tools have broken code.

Kinds of fixes: *classes* (KV101, KV102: imports, calls, annotations), *calls* (KV201 `from_legacy_cache`, KV206, KV207, KV208,
KV213: a call rewritten), *attributes* (KV201 to KV204, KV212: a method or attribute of a cache), *crop* (KV209), *targets* (KV205:
`, *_`), *tests* (KV211: a condition), *signatures* (KV214: `**kwargs`).
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import page_runner
import pytest
from analysing import fixed, lint
from hypothesis import example, given, settings
from hypothesis import strategies as st

HEAD = """\
from transformers import Cache, DynamicCache, EncoderDecoderCache, QuantizedCache, StaticCache
from transformers.masking_utils import create_causal_mask
c = DynamicCache()
config = model.config
"""

UPDATE = """\
from transformers import DynamicCache
class A(DynamicCache):
    def update({}):
        return super().update(k, v, i)
"""


def rewritten(code: str, unsafe: bool) -> str:
    """*code* behind some imports, after all fixes."""
    text = fixed(HEAD + code + "\n", unsafe=unsafe)
    assert text.startswith(HEAD)
    return text[len(HEAD) : -1]


def pairs(*cases: tuple[str, str | None]) -> pytest.MarkDecorator:
    """(before, after); None for "stays as it is, whatever is asked for"."""
    return pytest.mark.parametrize(("before", "after"), cases, ids=[case[0].replace("\n", " ")[:60] for case in cases])


def check(before: str, after: str | None) -> None:
    assert rewritten(before, unsafe=True) == (before if after is None else after)


def check_module(before: str, after: str | None) -> None:
    assert fixed(before, unsafe=True) == (before if after is None else after)


# --- 1


@pairs(
    ("x = DynamicCache.from_legacy_cache(*args)", None),
    ("x = DynamicCache.from_legacy_cache(**kw)", None),
    ("x = c.get_usable_length(*args)", None),
    ("x = c.get_usable_length(1, **kw)", None),
    ("x = c.to_legacy_cache(*args)", None),
    ("x = StaticCache(config, batch, n, **kw)", None),
    ("x = StaticCache(config, *rest)", None),
    ("c.crop(*args)", None),
    ("c.crop(**kw)", None),
    ("x = QuantizedCache(*args)", None),
    ("x = EncoderDecoderCache(self_attention_cache=a, **kw)", None),
    (
        "x = StaticCache(config=config, max_cache_len=3, device='cpu', **kw)",
        "x = StaticCache(config=config, max_cache_len=3, **kw)",
    ),
    ("x = DynamicCache(offloaded=True, **kw)", "x = DynamicCache(offloading=True, **kw)"),
    ("m = create_causal_mask(config, input_embeds=e, **kw)", "m = create_causal_mask(config, inputs_embeds=e, **kw)"),
)
def test_1_stars_in_the_call(before: str, after: str | None) -> None:
    """An argument that may hide in `*args` or `**kwargs` keeps a call that is put together anew as it is; one that is only dropped or
    renamed is its own, whatever else is passed. Targets, tests and signatures: no call is rewritten."""
    check(before, after)


def test_1_stars_in_a_call_of_a_class_that_is_gone() -> None:
    check_module("from transformers import HybridCache\nx = HybridCache(*args)\n", None)
    check_module("from transformers import HybridCache\nx = HybridCache(max_cache_len=3, **kw)\n", None)


# --- 2


@pairs(
    ("x = DynamicCache(offloaded=True, offloading=True)", None),
    ("x = StaticCache(config, batch, 3, max_cache_len=3)", None),
    ("x = StaticCache(config, batch, max_cache_len=3)", "x = StaticCache(config=config, max_cache_len=3)"),
    (
        "x = StaticCache(config, batch, 3, offloading=True)",
        "x = StaticCache(config=config, max_cache_len=3, offloading=True)",
    ),
    ("m = create_causal_mask(config, input_embeds=e, inputs_embeds=e)", None),
    (
        "def f(x, **kwargs): return DynamicCache.from_legacy_cache(past_key_values=x)",
        "def f(x, **kwargs): return DynamicCache(x)",
    ),
)
def test_2_keyword_is_there_already(before: str, after: str | None) -> None:
    """Attributes, targets and tests add no keyword."""
    check(before, after)


def test_2_offloading_is_not_added_twice() -> None:
    before = "from transformers import OffloadedStaticCache\nx = OffloadedStaticCache(config=a, max_cache_len=3, offloading=False)\n"
    after = "from transformers import StaticCache\nx = StaticCache(config=a, max_cache_len=3, offloading=False)\n"
    check_module(before, after)


def test_2_update_that_has_kwargs() -> None:
    text = UPDATE.format("self, k, v, i, **anything")
    check_module(text, None)


# --- 3


@pairs(
    ("x = c.crop(len(a) if b else 4)", "x = c.crop(min(0, (len(a) if b else 4) - c.get_seq_length()))"),
    ("x = c.crop(len(a) + 1)", "x = c.crop(min(0, len(a) + 1 - c.get_seq_length()))"),
    ("x = c.crop((a_len))", "x = c.crop(min(0, a_len - c.get_seq_length()))"),
    ("x = c.crop((n := 3))", "x = c.crop(min(0, (n := 3) - c.get_seq_length()))"),
    ("x = c.crop(c.get_seq_length() - (n - 1))", "x = c.crop(-(n - 1))"),
    ("x = c.crop(c.get_seq_length() - n)", "x = c.crop(-n)"),
    ("x = (c).to_legacy_cache()", "x = tuple((layer.keys, layer.values) for layer in c.layers)"),
    (
        "x = (c if y else c).to_legacy_cache()",
        "x = tuple((layer.keys, layer.values) for layer in (c if y else c).layers)",
    ),
    ("x = list((c if y else c).key_cache)", "x = list([layer.keys for layer in (c if y else c).layers])"),
    ("x = (c).key_cache[0]", "x = (c).layers[0].keys"),
    ("x = (c.key_cache)[0]", "x = (c.layers)[0].keys"),
    ("x = (c.key_cache[0])", "x = (c.layers[0].keys)"),
    ("x = -c.seen_tokens ** 2", "x = -c.get_seq_length() ** 2"),
    ("x = c.get_usable_length((1), (i))", "x = c.get_seq_length(i)"),
    ("x = DynamicCache((config))", "x = DynamicCache(config=(config))"),
    (
        "x = (\n    c\n    .to_legacy_cache()\n)",
        "x = (\n    tuple((layer.keys, layer.values) for layer in c.layers)\n)",
    ),
    ("for (k, v) in c: pass", "for (k, v, *_) in c: pass"),
    ("for [k, v] in c: pass", None),
)
def test_3_parentheses(before: str, after: str | None) -> None:
    """A list on the left of a loop is seen as no pair, so it is not reported at all. Classes: names only."""
    check(before, after)


def test_3_condition_in_a_larger_one() -> None:
    before = (
        "from transformers import LlamaForCausalLM\nclass M(LlamaForCausalLM):\n"
        "    def prepare_inputs_for_generation(self, input_ids, cache=None, **kwargs):\n"
        "        if cache is None or flag:\n            pass\n        else:\n            input_ids = input_ids[:, -1:]\n"
    )
    check_module(
        before, before.replace("cache is None or flag", "(cache is None or cache.get_seq_length() == 0) or flag")
    )


# --- 4


@pairs(
    ('x = QuantizedCache("HQ" "Q", config)', None),
    ('x = QuantizedCache(backend="HQQ", config=config)', 'x = QuantizedCache(backend="hqq", config=config)'),
    ("x = QuantizedCache('Quanto', config)", "x = QuantizedCache('quanto', config)"),
    ('x = QuantizedCache("""HQQ""", config)', None),
    ('x = QuantizedCache(f"{a}", config)', None),
    (
        'x = StaticCache(config=config, max_cache_len=3, device="cu" "da")',
        "x = StaticCache(config=config, max_cache_len=3)",
    ),
    ('x = f"{c.seen_tokens}" f"{c.key_cache[0]}"', 'x = f"{c.get_seq_length()}" f"{c.layers[0].keys}"'),
    ('x = f"""\n  {c.seen_tokens} ä\n"""', 'x = f"""\n  {c.get_seq_length()} ä\n"""'),
)
def test_4_strings_in_several_pieces(before: str, after: str | None) -> None:
    """Only the name of a backend is a string that a fix changes."""
    check(before, after)


# --- 5


@pairs(
    ("x = StaticCache(config, batch, 3,)", "x = StaticCache(config=config, max_cache_len=3,)"),
    (
        "x = StaticCache(\n    config,\n    1,\n    3,\n    'cpu',\n)",
        "x = StaticCache(\n    config=config,\n    max_cache_len=3,\n)",
    ),
    (
        "x = StaticCache(\n    config=config,\n    max_cache_len=3,\n    device='cpu'\n)",
        "x = StaticCache(\n    config=config,\n    max_cache_len=3\n)",
    ),
    (
        "x = StaticCache(config=config, max_cache_len=3, device='cpu',)",
        "x = StaticCache(config=config, max_cache_len=3,)",
    ),
    (
        "x = StaticCache(device='cpu', config=config, max_cache_len=3)",
        "x = StaticCache(config=config, max_cache_len=3)",
    ),
    ("x = DynamicCache.from_legacy_cache(  # note\n    p\n)", "x = DynamicCache(  # note\n    p\n)"),
    ("x = DynamicCache.from_legacy_cache(\n    # note\n    p,\n)", "x = DynamicCache(\n    # note\n    p,\n)"),
    ("x = c.to_legacy_cache(  # note\n)", None),
    ("x = c.get_usable_length(  # note\n    1, i\n)", None),
    ("c.crop(  # note\n    3\n)", None),
    ("x = DynamicCache(num_hidden_layers=2)", "x = DynamicCache()"),
    ("x = DynamicCache(\n    num_hidden_layers=2,\n)", "x = DynamicCache()"),
    ("for k, v, in c: pass", "for k, v, *_, in c: pass"),
)
def test_5_commas_and_comments(before: str, after: str | None) -> None:
    check(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self, k, v, i", "self, k, v, i, **kwargs"),
        ("self, k, v, i,", "self, k, v, i, **kwargs,"),
        ("self, k, v, i, *args", "self, k, v, i, *args, **kwargs"),
        ("self, k, v, i, extra=(1, 2)", "self, k, v, i, extra=(1, 2), **kwargs"),
        ("self, k: 'int', v: dict[str, int], i", "self, k: 'int', v: dict[str, int], i, **kwargs"),
        ("self, k, v, i, *, x=None", "self, k, v, i, *, x=None, **kwargs"),
        ("self, k, v, i=(3)", "self, k, v, i=(3), **kwargs"),
        ("self, k, v, i=((3), [4])", "self, k, v, i=((3), [4]), **kwargs"),
        ("self, k, v, i  # the layer\n    ", "self, k, v, i, **kwargs  # the layer\n    "),
        (
            "\n        self,\n        k,\n        v,\n        i: int = (1),  # the layer\n    ",
            "\n        self,\n        k,\n        v,\n        i: int = (1),\n        **kwargs,  # the layer\n    ",
        ),
        ("\n        self, k, v,\n        i\n    ", "\n        self, k, v,\n        i,\n        **kwargs\n    "),
    ],
)
def test_5_parameters_with_commas_and_defaults(before: str, after: str) -> None:
    check_module(UPDATE.format(before), UPDATE.format(after))


def test_5_names_of_an_import_on_several_lines() -> None:
    use = "x = HybridCache(config=a, max_cache_len=3)\n"
    after = "from transformers import (\n    StaticCache,\n)\n" + use.replace("Hybrid", "Static")
    check_module("from transformers import (\n    StaticCache,\n    HybridCache,\n)\n" + use, after)
    check_module("from transformers import (\n    HybridCache,\n    StaticCache,\n)\n" + use, after)
    check_module("from transformers import (\n    HybridCache,  # why\n    StaticCache,\n)\n" + use, None)


# --- 6


@pairs(
    ("x = (c.key_cache[0],)", "x = (c.layers[0].keys,)"),
    ("x = c.key_cache[0],", "x = c.layers[0].keys,"),
    ("x = (c.to_legacy_cache(),)", "x = (tuple((layer.keys, layer.values) for layer in c.layers),)"),
    ("x = c.seen_tokens,", "x = c.get_seq_length(),"),
)
def test_6_tuples_of_one(before: str, after: str | None) -> None:
    """Targets of one name are no pairs; the other kinds build no tuple."""
    check(before, after)


# --- 7


@pairs(
    ("c.key_cache[0] = t", "c.layers[0].keys = t"),
    ("c.key_cache[0] += t", "c.layers[0].keys += t"),
    ("c.value_cache[0][..., 1:] = 0", "c.layers[0].values[..., 1:] = 0"),
    ("a, c.key_cache[0] = 1, t", "a, c.layers[0].keys = 1, t"),
    ("del c.key_cache[0]", None),
    ("c.key_cache[0:1] = [t]", None),
    ("c.key_cache = []", None),
    ("c.key_cache += [t]", None),
    ("c.key_cache.append(t)", None),
    ("c.seen_tokens = 1", None),
    ("c._seen_tokens += 1", None),
    ("del c.seen_tokens", None),
    ("x = c.key_cache", None),
    ("f(c.key_cache)", None),
    ("x = t in c.key_cache", None),
)
def test_7_what_is_not_only_read(before: str, after: str | None) -> None:
    """A list that is stored, passed on or changed is more than its items. Calls, crop and tests are never assigned to."""
    check(before, after)


# --- 8 and 9


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from transformers import HybridCache as HC\ndef f(a: HC): return isinstance(a, HC)\nx = HC(config=a, max_cache_len=3)\n",
            "from transformers import StaticCache as HC\ndef f(a: HC): return isinstance(a, HC)\nx = HC(config=a, max_cache_len=3)\n",
        ),
        (
            "from transformers import StaticCache, HybridCache\nx = HybridCache(a, 1, 3)\n",
            "from transformers import StaticCache\nx = StaticCache(config=a, max_cache_len=3)\n",
        ),
        (
            "from transformers import StaticCache\nfrom transformers import HybridCache\nx: HybridCache = f()\n",
            "from transformers import StaticCache\nx: StaticCache = f()\n",
        ),
        (
            "import transformers as tf\nx = tf.cache_utils.HybridCache(config=a, max_cache_len=3)\n",
            "import transformers as tf\nx = tf.cache_utils.StaticCache(config=a, max_cache_len=3)\n",
        ),
        (
            "import transformers\nfrom transformers import HybridCache\nx: HybridCache = f()\ny: transformers.HybridCache = g()\n",
            "import transformers\nfrom transformers import StaticCache\nx: StaticCache = f()\ny: transformers.StaticCache = g()\n",
        ),
        (
            "from transformers.models.jamba.modeling_jamba import HybridMambaAttentionDynamicCache as H\nx = H(config=a, batch_size=1)\n",
            "from transformers import DynamicCache as H\nx = H(config=a)\n",
        ),
    ],
)
def test_8_aliases_and_both_styles_of_import(before: str, after: str) -> None:
    """Only classes are imported; all other kinds work on what a name means, whatever it is called (see test_analysis)."""
    check_module(before, after)


def test_8_alias_of_a_constructor() -> None:
    check_module(
        "from transformers import DynamicCache as DC\nx = DC.from_legacy_cache(p)\n",
        "from transformers import DynamicCache as DC\nx = DC(p)\n",
    )


def test_9_references_without_a_call_are_unsafe() -> None:
    """Nothing but classes removes a name that other code may still read."""
    text = 'from transformers import HybridCache\nKINDS = {"hybrid": HybridCache}\nx = HybridCache(config=a, max_cache_len=3)\n'
    assert fixed(text) == text
    assert "HybridCache" not in fixed(text, unsafe=True)


def test_9_exported_names_keep_the_import() -> None:
    check_module('from transformers import HybridCache\n__all__ = ["HybridCache"]\n', None)


# --- 10


@pytest.mark.parametrize(
    "use",
    [
        "class M(HybridCache): pass",
        "x = HybridCache(*args)",
        "x = HybridCache(config=a, max_cache_len=3, odd=1)",
        "x = HybridCache(config=a, max_cache_len=3, device=f())",
        "x = HybridCache(config=a, max_batch_size=3)",
    ],
)
def test_10_all_or_nothing(use: str) -> None:
    """The mentions of a class go together. Each fix of another kind stands alone: no name depends on it."""
    check_module(f"from transformers import HybridCache\n{use}\ny = HybridCache(config=a, max_cache_len=3)\n", None)


def test_10_old_releases_in_one_place_keep_all() -> None:
    text = (
        "import transformers\nfrom packaging.version import parse\nfrom transformers import HybridCache\n"
        "x = HybridCache(config=a, max_cache_len=3)\n"
    )
    assert fixed(text, ">=4.50", unsafe=True) == text
    assert fixed(text, ">=4.56") != text


# --- 11, 12


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            (
                "from transformers import StaticCache\nif a:\n    from transformers import StaticCache\n"
                "    from transformers import HybridCache\n"
            ),
            "from transformers import StaticCache\nif a:\n    from transformers import StaticCache\n",
        ),
        (
            "def f():\n    from transformers import StaticCache\n    if a:\n        from transformers import HybridCache\n",
            "def f():\n    from transformers import StaticCache\n    if a:\n        pass\n",
        ),
    ],
)
def test_11_only_statement_of_its_block(before: str, after: str) -> None:
    """Only an import that has become needless is ever removed."""
    check_module(before, after)


@pairs(
    (
        "a = 1; x = c.to_legacy_cache(); b = 2",
        "a = 1; x = tuple((layer.keys, layer.values) for layer in c.layers); b = 2",
    ),
    ("if y: x = c.key_cache[0]", "if y: x = c.layers[0].keys"),
    ("if y: x = c.key_cache[0]; z = c.seen_tokens", "if y: x = c.layers[0].keys; z = c.get_seq_length()"),
    ("for k, v in c: a = k; b = v", "for k, v, *_ in c: a = k; b = v"),
    (
        "if y: c.crop(3); x = DynamicCache(config)",
        "if y: c.crop(min(0, 3 - c.get_seq_length())); x = DynamicCache(config=config)",
    ),
    (
        "x = lambda: c.seen_tokens; y = DynamicCache(offloaded=True)",
        "x = lambda: c.get_seq_length(); y = DynamicCache(offloading=True)",
    ),
)
def test_12_several_statements_on_a_line(before: str, after: str | None) -> None:
    check(before, after)


def test_12_import_that_shares_its_line_is_not_cut_out() -> None:
    check_module(
        "from transformers import StaticCache; from transformers import HybridCache\nx: HybridCache = f()\n", None
    )


# --- 13, 14


@pytest.mark.parametrize(
    "taken", ["class StaticCache: pass", "StaticCache = 1", "def f(StaticCache): pass", "from mine import StaticCache"]
)
def test_13_new_name_means_something_else(taken: str) -> None:
    """Code is never moved, and no kind but classes brings a new name (`layer` and `_` are bound inside what they stand in)."""
    check_module(f"from transformers import HybridCache\n{taken}\nx: HybridCache = f()\n", None)


@pytest.mark.parametrize(
    "text",
    [
        "from mylib import HybridCache\nx = HybridCache(config=a, max_cache_len=3)\n",
        "class Store:\n    def crop(self, n): pass\n    def use(self):\n        self.crop(3)\n",
        "class Store:\n    key_cache = []\nStore().key_cache[0]\n",
        "from transformers import DynamicCache\nclass A(DynamicCache):\n    def to_legacy_cache(self): return ()\nA().to_legacy_cache()\n",
        "from mylib import create_causal_mask\ncreate_causal_mask(input_embeds=e, cache_position=p)\n",
    ],
)
def test_14_same_spelling(text: str) -> None:
    check_module(text, None)


# --- 15


@pairs(
    ("x = c.get_usable_length(f(), 1)", None),
    ("x = StaticCache(config=config, max_cache_len=3, device=f())", None),
    ("x = StaticCache(config, f(), 3)", None),
    ("make().crop(3)", None),
    ("c.crop(c.get_seq_length() - n - 1)", "c.crop(min(0, c.get_seq_length() - n - 1 - c.get_seq_length()))"),
    ("c.crop(kept - c.get_seq_length())", None),
    ("c.crop(max_length=-2)", "c.crop(-2)"),
    ("c.crop(tokens_to_remove=n)", None),
    ("x = c.key_cache[1:]", None),
    ("x = len(c.key_cache[0])", "x = len(c.layers[0].keys)"),
    ("x = len(c.key_cache)", "x = len(c.layers)"),
    ("x = EncoderDecoderCache(cross_attention_cache=a, self_attention_cache=b)", None),
    ("if c.key_cache: pass", None),
    (
        "e = EncoderDecoderCache(c, c)\nx = e[0][0]",
        "e = EncoderDecoderCache(c, c)\nx = e.self_attention_cache.layers[0].keys",
    ),
    (
        "e = EncoderDecoderCache(c, c)\nx = e[i][3]",
        "e = EncoderDecoderCache(c, c)\nx = e.cross_attention_cache.layers[i].values",
    ),
    (
        "e = EncoderDecoderCache(c, c)\nx = e[0][2].shape[-2]",
        "e = EncoderDecoderCache(c, c)\nx = e.cross_attention_cache.get_seq_length()",
    ),
    ("e = EncoderDecoderCache(c, c)\nx = e.key_cache[0]", None),
    (
        "class Mine: pass\nkind = StaticCache if a else Mine\nx = kind(config=config, max_cache_len=3, device='cpu')",
        None,
    ),
    ("kind = StaticCache if a else Other\nx = kind(config=config, max_cache_len=3, offloaded=True)", None),
)
def test_15_meaning(before: str, after: str | None) -> None:
    """Values whose computation may matter are not dropped or repeated; the order of arguments is kept."""
    check(before, after)


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("x = DynamicCache.from_legacy_cache(p)", ">=4.50"),
        ("x = c.to_legacy_cache()", ">=4.50"),
        ("x = c.key_cache[0]", ">=4.50"),
        ("c.crop(3)", ">=5.10"),
        ("x = DynamicCache(config)", ">=4.50"),
        ("x = DynamicCache(offloaded=True)", ">=4.50"),
        ("x = StaticCache(config=config, max_cache_len=3, device='cpu')", ">=4.50"),
        ("m = create_causal_mask(config=config, input_embeds=e)", ">=5.0"),
    ],
)
def test_15_replacement_that_an_old_release_lacks(code: str, target: str) -> None:
    text = HEAD + code + "\n"
    assert lint(text, target), "it is reported all the same"
    assert fixed(text, target, unsafe=True) == text


# --- 16


@pairs(
    (
        "x = DynamicCache.from_legacy_cache(c.to_legacy_cache())",
        "x = DynamicCache(tuple((layer.keys, layer.values) for layer in c.layers))",
    ),
    ("x = c.key_cache[c.seen_tokens]", "x = c.layers[c.get_seq_length()].keys"),
    (
        "x = c.key_cache[c.get_usable_length(1)][c.value_cache[0].shape[0]]",
        "x = c.layers[c.get_seq_length()].keys[c.layers[0].values.shape[0]]",
    ),
    (
        "x = StaticCache(config, batch, c.get_usable_length(1, 0))",
        "x = StaticCache(config=config, max_cache_len=c.get_seq_length(0))",
    ),
    ("x = [k for k, v in DynamicCache.from_legacy_cache(p)]", "x = [k for k, v, *_ in DynamicCache(p)]"),
    ("c.crop(c.seen_tokens)", "c.crop(min(0, c.get_seq_length() - c.get_seq_length()))"),
    (
        "if hasattr(c, 'key_cache'):\n    x = c.key_cache[0]\nelse:\n    x = c.layers[0].keys",
        None,
    ),
    ("try:\n    x = c.to_legacy_cache()\nexcept AttributeError:\n    x = None", None),
)
def test_16_nested_matches_and_shims(before: str, after: str | None) -> None:
    check(before, after)


def test_16_import_in_a_shim_stays() -> None:
    text = (
        "try:\n    from transformers import HybridCache\nexcept ImportError:\n"
        "    from transformers import StaticCache as HybridCache\nx: HybridCache = f()\n"
    )
    check_module(text, None)


def test_16_comments_next_to_the_edit_stay() -> None:
    before = "x = [  # one\n    c.key_cache[0],  # two\n    # three\n    c.seen_tokens,  # four\n]  # five"
    after = "x = [  # one\n    c.layers[0].keys,  # two\n    # three\n    c.get_seq_length(),  # four\n]  # five"
    check(before, after)


def test_16_tabs_and_blanks_of_the_statement_stay() -> None:
    check("if a:\n\tx  =  c.key_cache [ 0 ]  ", "if a:\n\tx  =  c.layers [ 0 ].keys  ")


# --- random surroundings

STALE = {
    "c.to_legacy_cache()": "tuple((layer.keys, layer.values) for layer in c.layers)",
    "DynamicCache.from_legacy_cache(p)": "DynamicCache(p)",
    "c.get_usable_length(1, i)": "c.get_seq_length(i)",
    "c.key_cache[i]": "c.layers[i].keys",
    "len(c.value_cache)": "len(c.layers)",
    "c.seen_tokens": "c.get_seq_length()",
    "DynamicCache(config)": "DynamicCache(config=config)",
    "DynamicCache(offloaded=True)": "DynamicCache(offloading=True)",
    "StaticCache(config, batch, n)": "StaticCache(config=config, max_cache_len=n)",
    "StaticCache(config=config, max_cache_len=n, device='cpu')": "StaticCache(config=config, max_cache_len=n)",
    "EncoderDecoderCache(self_attention_cache=a, cross_attention_cache=b)": "EncoderDecoderCache(a, b)",
    "QuantizedCache('HQQ', config)": "QuantizedCache('hqq', config)",
    "c.crop(n_len)": "c.crop(min(0, n_len - c.get_seq_length()))",
    "[k for k, v in c]": "[k for k, v, *_ in c]",
    "create_causal_mask(config=config, input_embeds=e)": "create_causal_mask(config=config, inputs_embeds=e)",
}
EXPRESSIONS = (
    "{}",
    "({})",
    "[{}, ä]",
    "f({}, y=1)",
    "f(y={})",
    "{{'k': {}}}",
    "(  # inside\n    {}  # behind\n)",
    "g(\n    {},  # last\n)",
    "{} if y else z",
    "y if z else {}",
    "not {}",
    "{} is None",
    "[{} for q in r]",
    "(lambda q: {})",
    "z[{}]",
    "await_({}).result",
    "'ä' + str({})",
    "{}, 1",
)
STATEMENTS = (
    "x = {}",
    "x = {}  # a comment",
    "return_({})",
    "x = y = {}",
    "x: int = {}",
    "x += {}",
    "assert {}, 'no'",
    "if {}:\n    pass  # taken",
    "if y: x = {}; z = 1",
    "while y:\n\tx = {}\n\tbreak",
    "with f({}) as q:\n    pass",
    "try:\n    x = {}\nexcept KeyError:\n    pass",
    "def f(i, n, p):\n    '''A docstring: c.key_cache[0].'''\n    return {}",
    "class A:\n    x = {}",
    "@decorated({})\ndef f(): ...",
    "x = 1;  y = {} ; z = 2",
    "# c.seen_tokens in a comment\nx = {}\n# and behind",
)


@st.composite
def wrapped(draw: st.DrawFn) -> tuple[str, str]:
    """A stale use somewhere in a statement, and what is to become of it."""
    old = draw(st.sampled_from(sorted(STALE)))
    before, after = old, STALE[old]
    for _ in range(draw(st.integers(0, 2))):
        shape = draw(st.sampled_from(EXPRESSIONS))
        if not (shape == "{}, 1" and (before.endswith(", 1") or "for k, v" in before)):
            before, after = shape.format(before), shape.format(after)
    shape = draw(st.sampled_from(STATEMENTS))
    return shape.format(before), shape.format(after)


def comments(text: str) -> list[str]:
    return [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(wrapped())
@example(("x = c.key_cache[i]", "x = c.layers[i].keys"))
def test_fix_changes_the_use_and_nothing_else(pair: tuple[str, str]) -> None:
    """The fixed text parses, is the old one with the replacement in it, keeps every comment, and a second run changes nothing."""
    before, after = (HEAD + text + "\n" for text in pair)
    if not parses(before):
        return
    text = fixed(before, unsafe=True)
    assert parses(text)
    assert comments(text) == comments(before)
    assert fixed(text, unsafe=True) == text
    assert text == after


@settings(max_examples=60, deadline=None)
@given(st.lists(wrapped(), min_size=2, max_size=4), st.sampled_from(["", "    ", "\t"]))
def test_fixes_do_not_reach_each_other(several: list[tuple[str, str]], indent: str) -> None:
    """Several uses in one file, also in one block, are each rewritten as if they were alone."""
    several = [pair for pair in several if parses(pair[0]) and "\n" not in pair[0]]
    head = HEAD + ("if True_:\n" if indent else "")
    before, after = (head + "".join(f"{indent}{pair[side]}\n" for pair in several) for side in (0, 1))
    if not several or not parses(before):
        return
    assert fixed(before, unsafe=True) == after


def test_fixes_of_what_is_not_listed_wait(tmp_path: Path) -> None:
    """Deprecated names are only counted: `--fix` renames them where they are shown."""
    file = tmp_path / "example.py"
    text = HEAD + "m = create_causal_mask(config=config, inputs_embeds=e, attention_mask=m, past_key_values=None)\n"
    file.write_text(text, encoding="utf-8")
    assert page_runner.fix(file, "--target", "latest").decode() == text
    assert "cache=None" in page_runner.fix(file, "--target", "latest", "--show", "deprecated").decode()


# --- names that are free


@pytest.mark.parametrize("before", ["from gettext import gettext as _", "def _(text): return text", "print(_)"])
def test_the_rest_does_not_hide_a_name_of_the_file(before: str) -> None:
    check(f"{before}\nfor k, v in c: pass", f"{before}\nfor k, v, *_rest in c: pass")


def test_no_free_name_for_the_rest_no_fix() -> None:
    check("_rest = print(_)\nfor k, v in c: pass", None)
