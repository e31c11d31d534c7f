"""KV301 to KV308: what is reported on which releases, what must stay silent, and what the fixes leave."""

# ruff: noqa: E501, ISC004 (the examples are written as one string each)

from __future__ import annotations

from pathlib import Path

import pytest
from analysing import fixed, lines, lint, split_marks

from kvlint.timeline import the_timeline

NEW = ">=5.24"
WIDE = ">=4.48"
ATTENTION = "from transformers.models.llama.modeling_llama import LlamaAttention\n"
MODEL = "from transformers import LlamaForCausalLM\n"


def expect(code: str, text: str, target: str = NEW, *, path: Path | None = None) -> None:
    """Fails unless the check with this code reports exactly the marked lines."""
    plain, promised = split_marks(text)
    assert lines(plain, target, codes=[code], path=path) == promised, [
        one.message for one in lint(plain, target, codes=[code], path=path)
    ]


def ranges(code: str, text: str, target: str = ">=4.36") -> list[tuple[str, tuple[str, ...]]]:
    """(category, releases in force on which it is wrong) of the findings."""
    return [(one.category.value, the_timeline().ranges(one.releases)) for one in lint(text, target, codes=[code])]


# -- KV305 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ATTENTION
            + "class A(LlamaAttention):\n    def forward(self, hidden_states, past_key_values=None, **kwargs):\n        past_key_values.update()\n",
            [("silent", ("4.36.0-4.55.4", "5.24.0"))],
        ),
        (
            ATTENTION
            + "class A(LlamaAttention):\n    def forward(self, hidden_states, past_key_value=None, **kwargs):\n        past_key_value.update()\n",
            [("silent", ("4.56.0-5.24.0",))],
        ),
        (
            MODEL
            + "class A(LlamaForCausalLM):\n    def forward(self, input_ids, past_key_values=None):\n        return past_key_values\n",
            [("breaks", ("5.24.0",))],
        ),
        (
            MODEL + "class A(LlamaForCausalLM):\n    def forward(self, input_ids, cache=None):\n        return cache\n",
            [("breaks", ("4.36.0-5.23.0",))],
        ),
        (
            MODEL
            + "class A(LlamaForCausalLM):\n    def prepare_inputs_for_generation(self, ids, past_key_values=None, **kw):\n        return {'x': past_key_values}\n",
            [("silent", ("5.24.0",))],
        ),
        (
            "from transformers import MambaForCausalLM\nclass A(MambaForCausalLM):\n"
            "    def forward(self, input_ids, cache_params=None, **kw):\n        return cache_params.x\n",
            [("silent", ("5.24.0",))],
        ),
    ],
)
def test_unfilled_on_these_releases(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert ranges("KV305", text) == expected


UNFILLED = [
    # assigned over a method, in every spelling
    ATTENTION
    + "def f(self, hidden_states, past_key_values=None, **kw):  # KV305\n    return past_key_values.x\nLlamaAttention.forward = f\n",
    ATTENTION
    + "def f(self, hidden_states, past_key_values=None, **kw):  # KV305\n    return past_key_values.x\nsetattr(LlamaAttention, 'forward', f)\n",
    "from transformers.models.llama import modeling_llama\n"
    "def f(self, hidden_states, past_key_values=None):  # KV305\n    return past_key_values.x\nmodeling_llama.LlamaAttention.forward = f\n",
    "import types\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"
    "def f(self, input_ids, past_key_values=None):  # KV305\n    return past_key_values.x\nmodel.forward = types.MethodType(f, model)\n",
    "from types import MethodType\ndef f(self, hidden_states, attention_mask, past_key_values=None):  # KV305\n    return past_key_values.x\n"
    "def patch(model):\n    for layer in model.model.layers:\n        setattr(layer.self_attn, 'forward', MethodType(f, layer.self_attn))\n",
    "from functools import partial\ndef f(self, hidden_states, attention_mask, past_key_values=None):  # KV305\n    return past_key_values.x\n"
    "def patch(model):\n    for module in model.modules():\n        module.forward = partial(f, module)\n",
    "def f(self, hidden_states, attention_mask, past_key_values=None):  # KV305\n    return past_key_values.x\n"
    "def patch(model):\n    for layer in model.model.layers:\n        layer.self_attn.forward = f.__get__(layer.self_attn)\n",
    # a class in the place of one of transformers
    "from torch import nn\nfrom transformers.models.llama import modeling_llama\nclass A(nn.Module):\n"
    "    def forward(self, hidden_states, past_key_values=None, **kw):  # KV305\n        return past_key_values.x\n"
    "modeling_llama.LlamaAttention = A\n",
    # through a class of the file; by what the class is called and what it defines
    ATTENTION
    + "class A(LlamaAttention):\n    pass\nclass B(A):\n    def forward(self, h, past_key_values=None):  # KV305\n        return past_key_values.x\n",
    "from transformers import PreTrainedModel\nclass AForCausalLM(PreTrainedModel):\n    def forward(self, ids, past_key_values=None):  # KV305\n        return 1\n",
    "from transformers import PreTrainedModel\nclass A(PreTrainedModel):\n    def forward(self, ids, past_key_values=None):  # KV305\n        return 1\n"
    "    def prepare_inputs_for_generation(self, ids, **kw):\n        return kw\n",
    # held by a class that inherits the library's forward
    "from transformers import LlamaModel, LlamaForCausalLM\nclass A(LlamaModel):\n    def forward(self, ids, past_key_values=None):  # KV305\n        return 1\n"
    "class B(LlamaForCausalLM):\n    def __init__(self, config):\n        self.model = A(config)\n",
    # any class may have prepare_inputs_for_generation
    "class A:\n    def prepare_inputs_for_generation(self, ids, past_key_values=None, **kw):  # KV305\n        return {'past_key_values': past_key_values}\n",
    # looked up in **kwargs, and by hooks
    MODEL
    + "class A(LlamaForCausalLM):\n    def forward(self, *args, **kw):\n        past = kw['past_key_values']  # KV305\n        return past\n",
    "def hook(module, args, kw):\n    return kw.get('past_key_values')  # KV305\nmodel.model.layers[0].self_attn.register_forward_pre_hook(hook, with_kwargs=True)\n",
    # passed on by position: not by **kwargs
    MODEL
    + "class A(LlamaForCausalLM):\n    def forward(self, ids, past_key_values=None, **kw):  # KV305\n        return super().forward(ids, None, None, past_key_values, **kw)\n",
]


@pytest.mark.parametrize("text", UNFILLED)
def test_unfilled(text: str) -> None:
    expect("KV305", text)


FILLED = [
    ATTENTION
    + "class A(LlamaAttention):\n    def forward(self, h, cache=None, past_key_values=None, **kw):\n        return cache or past_key_values\n",
    ATTENTION
    + "class A(LlamaAttention):\n    def forward(self, h, past_key_values=None, **kw):\n        past_key_values = kw.pop('cache', past_key_values)\n",
    ATTENTION
    + "class A(LlamaAttention):\n    def forward(self, *args, **kw):\n        return super().forward(*args, **kw)\n",
    MODEL
    + "class A(LlamaForCausalLM):\n    def forward(self, ids, past_key_values=None, **kw):\n        return super().forward(ids, past_key_values=past_key_values, **kw)\n",
    # a decorator that translates
    MODEL
    + "from x import rename\nclass A(LlamaForCausalLM):\n    @rename('cache', 'past_key_values')\n    def forward(self, ids, past_key_values=None):\n        return 1\n",
    # not called by the library
    "from torch import nn\nclass A(nn.Module):\n    def forward(self, hidden_states, past_key_values=None):\n        return past_key_values\n",
    "from transformers import PreTrainedModel\nclass Encoder(PreTrainedModel):\n    def forward(self, ids, past_key_values=None):\n        return 1\n",
    "from transformers import BertModel\nclass A(BertModel):\n    def forward(self, ids, past_key_values=None):\n        return 1\n",
    "from transformers import LlamaModel, LlamaForCausalLM\nclass A(LlamaModel):\n    def forward(self, ids, past_key_values=None):\n        return 1\n"
    "class B(LlamaForCausalLM):\n    def __init__(self, config):\n        self.model = A(config)\n"
    "    def forward(self, ids, cache=None):\n        return self.model(ids, past_key_values=cache)\n",
    # other frameworks and engines
    "from transformers import TFPreTrainedModel\nclass TFA(TFPreTrainedModel):\n    def prepare_inputs_for_generation(self, ids, past_key_values=None, **kw):\n        return 1\n",
    "import jax\nclass A:\n    def prepare_inputs_for_generation(self, ids, past_key_values=None, **kw):\n        return 1\n",
    # a static helper, another method, another hook
    MODEL
    + "class A(LlamaForCausalLM):\n    @staticmethod\n    def forward(ids, past_key_values=None):\n        return 1\n",
    MODEL + "class A(LlamaForCausalLM):\n    def step(self, ids, past_key_values=None):\n        return 1\n",
    "def hook(module, args, kw):\n    return kw.get('cache', kw.get('past_key_values'))\nmodel.register_forward_pre_hook(hook, with_kwargs=True)\n",
    "def hook(module, args, kw):\n    return kw.get('past_key_values')\nmodel.register_forward_pre_hook(hook)\n",
    # a patch of something else
    "import types\ndef f(self, x, past_key_values=None):\n    return x\nclass A:\n    pass\na = A()\na.forward = types.MethodType(f, a)\n",
]


@pytest.mark.parametrize("text", FILLED)
def test_filled(text: str) -> None:
    expect("KV305", text)


def test_releases_of_the_definition_count() -> None:
    text = (
        "import transformers\nfrom packaging.version import Version\n"
        + ATTENTION
        + "if Version(transformers.__version__) < Version('5.24'):\n    class A(LlamaAttention):\n"
        "        def forward(self, h, past_key_values=None):\n            return 1\n"
    )
    assert ranges("KV305", text, ">=5.0") == []


def test_function_of_another_file_is_reported_where_it_is_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "attention_forward.py").write_text(
        "def attend(self, hidden_states, past_key_values=None):\n    return past_key_values.x\n" + "\n" * 40
    )
    expect(
        "KV305",
        ATTENTION + "from attention_forward import attend\nLlamaAttention.forward = attend  # KV305\n",
        path=tmp_path / "patch.py",
    )


RENAMED = [
    # keywords of library calls follow, keys of other dicts do not exist, callers in the file follow
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, past_key_values=None, **kw):\n        past_key_values.x\n"
        "        return super().forward(h, past_key_values=past_key_values)\na = A()\na(h, past_key_values=None)\n",
        ATTENTION + "class A(LlamaAttention):\n    def forward(self, h, cache=None, **kw):\n        cache.x\n"
        "        return super().forward(h, cache=cache)\na = A()\na(h, cache=None)\n",
    ),
    # an annotation, a comment and a trailing comma stay
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(\n        self,\n        past_key_values: object = None,  # the past\n    ):\n        return past_key_values\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(\n        self,\n        cache: object = None,  # the past\n    ):\n        return cache\n",
    ),
    # the new name is taken
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, past_key_values=None):\n        cache = {}\n        return past_key_values, cache\n",
        None,
    ),
    # the old name is also a string
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, past_key_values=None):\n        return past_key_values, 'past_key_values'\n",
        None,
    ),
    # an inner function has a parameter of the name
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, past_key_values=None):\n        return lambda past_key_values: 1\n",
        None,
    ),
    (
        ATTENTION + "class A(LlamaAttention):\n    def forward(self, past_key_values=None):\n        return locals()\n",
        None,
    ),
]


@pytest.mark.parametrize(("before", "after"), RENAMED)
def test_renaming(before: str, after: str | None) -> None:
    assert fixed(before, NEW, codes=["KV305"]) == (before if after is None else after)


def test_a_hook_takes_both_names_where_its_own_forward_keeps_the_old_one() -> None:
    text = (
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, input_ids, past_key_values=None):\n        return self.model(input_ids, cache=past_key_values)\n"
        "    def prepare_inputs_for_generation(self, ids, past_key_values=None, **kw):\n        return {'past_key_values': past_key_values}\n"
    )
    both = text.replace("past_key_values=None, **kw", "past_key_values=None, cache=None, **kw").replace(
        "        return {",
        "        past_key_values = cache if cache is not None else past_key_values\n        return {",
    )
    assert fixed(text, NEW, codes=["KV305"]) == both
    blocked = text.replace("past_key_values}", "[cache for cache in past_key_values]}")
    assert fixed(blocked, NEW, unsafe=True, codes=["KV305"]) == blocked


def test_a_model_forward_takes_both_names() -> None:
    text = (
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, input_ids, past_key_values=None):\n        return self.model(input_ids, cache=past_key_values)\n"
    )
    both = text.replace("past_key_values=None)", "past_key_values=None, cache=None)").replace(
        "        return", "        past_key_values = cache if cache is not None else past_key_values\n        return"
    )
    assert fixed(text, NEW, codes=["KV305"]) == both


MERGED = [
    (
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, past_key_values=None, *, x=(1)):\n        'Attends.'\n\n        # first\n        return past_key_values\n",
        WIDE,
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, past_key_values=None, *, x=(1), past_key_value=None, cache=None):\n        'Attends.'\n\n"
        "        past_key_values = past_key_value if past_key_value is not None else past_key_values\n"
        "        past_key_values = cache if cache is not None else past_key_values\n        # first\n        return past_key_values\n",
    ),
    # no default yet; tabs; *args
    (
        MODEL
        + "class A(LlamaForCausalLM):\n\tdef forward(self, ids, past_key_values, *args, **kw):\n\t\treturn past_key_values\n",
        ">=5.0",
        MODEL + "class A(LlamaForCausalLM):\n\tdef forward(self, ids, past_key_values=None, *args, cache=None, **kw):\n"
        "\t\tpast_key_values = cache if cache is not None else past_key_values\n\t\treturn past_key_values\n",
    ),
    (
        MODEL + "class A(LlamaForCausalLM):\n    def forward(self, past_key_values):\n        return past_key_values\n",
        ">=5.0",
        MODEL + "class A(LlamaForCausalLM):\n    def forward(self, past_key_values=None, cache=None):\n"
        "        past_key_values = cache if cache is not None else past_key_values\n        return past_key_values\n",
    ),
    # a required parameter follows; the body is on the line; the name is taken
    (
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, past_key_values, ids):\n        return past_key_values\n",
        ">=5.0",
        None,
    ),
    (
        MODEL + "class A(LlamaForCausalLM):\n    def forward(self, past_key_values=None): return past_key_values\n",
        ">=5.0",
        None,
    ),
    (
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, past_key_values=None):\n        cache = 1\n        return past_key_values\n",
        ">=5.0",
        None,
    ),
]


@pytest.mark.parametrize(("before", "target", "after"), MERGED)
def test_merging(before: str, target: str, after: str | None) -> None:
    assert fixed(before, target, codes=["KV305"]) == (before if after is None else after)


# -- KV301 to KV304 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "def f(model, ids, kv):\n    model(ids, past_key_values=[(k, v) for k, v in kv], use_cache=True)  # KV301\n",
        "def f(model, ids):\n    model.generate(ids, past_key_values=())  # KV301\n",
        "def f(model, ids, n):\n    past = ()\n    for i in range(n):\n        past += ((i, i),)\n    model(ids, past_key_values=past, use_cache=True)  # KV301\n",
        "def f(model, ids, n):\n    past = ()\n    for i in range(n):\n        past = past + ((i, i),)\n    model(ids, past_key_values=past, use_cache=True)  # KV301\n",
        "def f(model, ids, t):\n    model.generate(**{'input_ids': ids, 'past_key_values': t.chunk(2)})  # KV301\n",
        "from transformers.modeling_outputs import BaseModelOutputWithPast\nfrom transformers import LlamaModel\nclass A(LlamaModel):\n"
        "    def forward(self, ids):\n        out = ()\n        for b in self.h:\n            out = out + (b(ids),)\n        return BaseModelOutputWithPast(past_key_values=out)  # KV301\n",
        # what may be a cache, or None, or is promised only
        "def f(model, ids, past_key_values):\n    model(ids, past_key_values=past_key_values, use_cache=True)\n",
        "from typing import List\ndef f(model, ids, past: List[int] = None):\n    model(ids, past_key_values=past, use_cache=True)\n",
        "from transformers import Cache\ndef f(model, ids, past=None):\n    if not isinstance(past, Cache):\n        model(ids, past_key_values=past, use_cache=True)\n",
        "def f(model, ids, c, t):\n    past = c if t else ()\n    model(ids, past_key_values=past, use_cache=True)\n",
        "def f(model, ids):\n    try:\n        model(ids, past_key_values=(), use_cache=True)\n    except AttributeError:\n        pass\n",
        # models of the file
        "from torch import nn\nclass M(nn.Module):\n    def forward(self, x, past_key_values=None):\n        return x\ndef f(model, x):\n    model(x, past_key_values=(), use_cache=True)\n",
        "from torch import nn\nclass M(nn.Module):\n    def forward(self, x, past_key_values=None):\n        return x\nm = M()\nm(1, past_key_values=())\n",
        "import jax\ndef f(model, ids):\n    model(ids, past_key_values=(), use_cache=True)\n",
    ],
)
def test_legacy_tuples(text: str) -> None:
    expect("KV301", text)


def test_legacy_tuples_were_taken_before() -> None:
    text = "from transformers import GPT2LMHeadModel\nmodel = GPT2LMHeadModel(c)\nmodel(ids, past_key_values=())\n"
    assert ranges("KV301", text) == [("breaks", ("5.0.0-5.24.0",))]


@pytest.mark.parametrize(
    "text",
    [
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, ids, cache=None):\n        n = cache[0][0].shape[2] if isinstance(cache, tuple) else 0  # KV302\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, ids, cache=None):\n        n = 0\n        if isinstance(cache, (tuple, list)):  # KV302\n            n = cache[0][0].shape[2]\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, ids, cache=None):\n        n = cache[0] if isinstance(cache, tuple) else cache.get_seq_length()  # KV302\n",
        # a parameter of one's own may be anything
        "from transformers import Cache\ndef f(past_key_values: Cache):\n    return past_key_values[0] if isinstance(past_key_values, tuple) else 0\n",
        "def f(past_key_values):\n    return past_key_values[0] if isinstance(past_key_values, tuple) else 0\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, ids, cache=None):\n        return ids[0] if isinstance(ids, tuple) else 0\n",
    ],
)
def test_tuple_branches(text: str) -> None:
    expect("KV302", text)


def test_dead_branch_is_no_error() -> None:
    text = MODEL + "class A(LlamaForCausalLM):\n    def forward(self, ids, cache=None):\n        n = {}\n"
    assert ranges("KV302", text.format("cache[0] if isinstance(cache, tuple) else 0"), NEW) == [("silent", ("5.24.0",))]
    dead = text.format("cache[0] if isinstance(cache, tuple) else cache.x")
    assert ranges("KV302", dead, NEW) == [("deprecated", ("5.24.0",))]
    assert fixed(dead, NEW, unsafe=True, codes=["KV302"]) == text.format("cache.x")
    assert ranges("KV302", dead, WIDE) == []


@pytest.mark.parametrize(
    "text",
    [
        MODEL
        + "class A(LlamaForCausalLM):\n    def _reorder_cache(self, past, idx):  # KV303\n        return tuple(p for p in past)\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def _reorder_cache(self, past, idx):\n        past.reorder_cache(idx)\n        return past\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def _reorder_cache(self, mems, idx):\n        return [m for m in mems]\n",
        "class A:\n    def _reorder_cache(self, past, idx):\n        return tuple(p for p in past)\n",
    ],
)
def test_reorder_cache(text: str) -> None:
    expect("KV303", text)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("    x = 1\n\n    def _reorder_cache(self, past, idx):\n        return ()\n", "    x = 1\n"),
        ("    @staticmethod\n    def _reorder_cache(past, idx):\n        return ()\n\n    x = 1\n", "    x = 1\n"),
        ("    def _reorder_cache(self, past, idx):\n        return ()\n", "    pass\n"),
        ("    def _reorder_cache(self, past, idx):\n        return ()  # why\n", None),
        (
            "    def _reorder_cache(self, past, idx):\n        return ()\n\n    def f(self):\n        return self._reorder_cache\n",
            None,
        ),
    ],
)
def test_deleting_reorder_cache(body: str, left: str | None) -> None:
    before = MODEL + "class A(LlamaForCausalLM):\n" + body
    after = before if left is None else MODEL + "class A(LlamaForCausalLM):\n" + left
    assert fixed(before, NEW, unsafe=True, codes=["KV303"]) == after


HEAD = "from transformers import AutoModelForCausalLM, DynamicCache\nmodel = AutoModelForCausalLM.from_pretrained('x')\nc = DynamicCache()\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model(ids, past_key_value=c)", [("breaks", ("4.36.0-4.55.4",)), ("silent", ("4.56.0-5.24.0",))]),
        ("model.generate(ids, past_key_value=c)", [("breaks", ("4.36.0-5.24.0",))]),
        ("model.model.layers[0](h, past_key_value=c)", [("silent", ("5.0.0-5.24.0",))]),
        ("model.model.layers[0].self_attn(h, past_key_values=c)", [("silent", ("4.36.0-4.55.4",))]),
        ("model(ids, cache=c)", [("silent", ("4.36.0-5.23.0",))]),
        ("model.generate(ids, cache=c)", [("breaks", ("4.36.0-5.23.0",))]),
        ("model(ids, past_key_values=c)", []),
        ("model(ids, past_key_value=None)", []),
        ("tokenizer(ids, past_key_value=c)", []),
    ],
)
def test_cache_keywords(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert sorted(ranges("KV304", HEAD + text + "\n")) == expected


@pytest.mark.parametrize(
    "text",
    [
        # parts of an own module
        "from torch import nn\nclass L(nn.Module):\n    def forward(self, h, past_key_value=None):\n        return self.self_attn(h, past_key_value=past_key_value)\n",
        "from transformers import PreTrainedModel\nclass M(PreTrainedModel):\n    def __init__(self, config):\n        self.layers = make(config)\n"
        "    def forward(self, h, past_key_values=None):\n        for layer in self.layers:\n            h = layer(h, past_key_value=past_key_values)\n",
        # the library's part in a layer of the library
        "from transformers.models.llama.modeling_llama import LlamaDecoderLayer\nclass L(LlamaDecoderLayer):\n"
        "    def forward(self, h, cache=None):\n        return self.self_attn(h, past_key_value=cache)  # KV304\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, cache=None):\n        return super().forward(h, past_key_value=cache)  # KV304\n",
    ],
)
def test_parts_of_modules(text: str) -> None:
    expect("KV304", text)


@pytest.mark.parametrize(
    ("target", "call", "after"),
    [
        (NEW, "model(ids, past_key_value = c,)", "model(ids, cache = c,)"),
        (WIDE, "model(ids, past_key_value=c)", "model(ids, past_key_values=c)"),
        (WIDE, "model.model.layers[0](h, past_key_value=c)", None),
        (NEW, "model(ids, past_key_value=c, cache=c)", None),
        (NEW, "model(ids, past_key_value=c, **kw)", None),
    ],
)
def test_renaming_the_keyword(target: str, call: str, after: str | None) -> None:
    assert fixed(HEAD + call + "\n", target, codes=["KV304"]) == HEAD + (after or call) + "\n"


REGISTERED = """from torch import nn
from transformers.models.jamba import modeling_jamba
from transformers.models.jamba.modeling_jamba import ALL_DECODER_LAYER_TYPES
import transformers


class Mine(nn.Module):
    def forward(self, hidden_states, alibi, attention_mask, PARAMETERS):  MARK
        return hidden_states


"""


@pytest.mark.parametrize(
    "put",
    [
        'modeling_jamba.ALL_DECODER_LAYER_TYPES["attention"] = Mine',
        'ALL_DECODER_LAYER_TYPES["attention"] = Mine',
        'ALL_DECODER_LAYER_TYPES.update({"attention": Mine, "mamba": Mine})',
        "ALL_DECODER_LAYER_TYPES.update(attention=Mine)",
        'transformers.models.jamba.modeling_jamba.ALL_DECODER_LAYER_TYPES["attention"] = Mine',
        "for key in ALL_DECODER_LAYER_TYPES:\n    ALL_DECODER_LAYER_TYPES[key] = Mine",
    ],
)
def test_class_in_a_registry_is_called_by_the_library(put: str) -> None:
    text = REGISTERED + put + "\n"
    old = text.replace("PARAMETERS", "layer_past=None, past_key_values=None, **kwargs")
    expect("KV305", old.replace("MARK", "# KV305"))
    both = text.replace("PARAMETERS", "layer_past=None, cache=None, past_key_values=None, **kwargs")
    expect("KV305", both.replace("MARK", ""))


def test_registry_counts_where_it_is_there_and_reached() -> None:
    llama = """import transformers
from packaging.version import Version
from transformers.models.llama import modeling_llama


class Mine:
    def forward(self, hidden_states, past_key_values=None, **kwargs):
        return hidden_states


"""
    put = 'modeling_llama.LLAMA_ATTENTION_CLASSES["eager"] = Mine\n'
    assert ranges("KV305", llama + put) == [("silent", ("4.36.0-4.47.1",))]
    assert ranges("KV305", llama + put, NEW) == []
    guarded = f'if Version(transformers.__version__) < Version("4.40"):\n    {put}'
    assert ranges("KV305", llama + guarded) == [("silent", ("4.36.0-4.39.3",))]
    own = 'MY_ATTENTION_CLASSES = {}\nMY_ATTENTION_CLASSES["eager"] = Mine\n'
    assert ranges("KV305", llama + own) == []


def test_class_in_two_registries_is_called_by_both() -> None:
    text = REGISTERED.replace("MARK", "").replace("PARAMETERS", "past_key_value=None, **kwargs")
    text += "from transformers.models.llama.modeling_llama import LLAMA_ATTENTION_CLASSES\n"
    text += 'LLAMA_ATTENTION_CLASSES["eager"] = Mine\nALL_DECODER_LAYER_TYPES["eager"] = Mine\n'
    assert [category for category, _ in ranges("KV305", text, NEW)] == ["silent"]


@pytest.mark.parametrize(("family", "registry", "reported"), [("gptj", "GPTJ", True), ("bark", "BARK", False)])
def test_third_output_of_a_class_in_a_registry(family: str, registry: str, reported: bool) -> None:
    """Layers of bark take whatever comes behind the first output."""
    text = f"""from torch import nn
from transformers.models.{family}.modeling_{family} import {registry}_ATTENTION_CLASSES


class Mine(nn.Module):
    def forward(self, hidden_states, past_key_values=None, cache=None, **kwargs):
        return hidden_states, None, None


{registry}_ATTENTION_CLASSES["eager"] = Mine
"""
    assert [one.code for one in lint(text, "==5.10.2", codes=["KV309"])] == (["KV309"] if reported else [])


# -- KV306 to KV308 -------------------------------------------------------------------------------------------------

OUT = "def f(model, ids, feeds):\n    out = model(ids, use_cache=True)\n"


@pytest.mark.parametrize(
    "line",
    [
        "dict(out)['past_key_values']  # KV306",
        "{**out}['past_key_values']  # KV306",
        "dict(**out).get('past_key_values')  # KV306",
        "'past_key_values' in dict(out)  # KV306",
        "'past_key_values' in out.keys()  # KV306",
        "[k for k in out.keys() if k != 'past_key_values']  # KV306",
        "[v for k, v in out.items() if k not in ['past_key_values', 'loss']]  # KV306",
        "model.prepare_inputs_for_generation(ids)['past_key_values']  # KV306",
        "Trainer(model).predict(ids, ignore_keys=['past_key_values'])  # KV306",
        "out['past_key_values']",
        "'past_key_values' in out",
        "[v for k, v in out.items() if k not in ['past_key_values', 'cache']]",
        "[v for k, v in feeds.items() if k != 'past_key_values']",
        "feeds['past_key_values']",
        "Trainer(model).predict(ids, ignore_keys=['past_key_values', 'cache'])",
        "other(ids, ignore_keys=['past_key_values'])",
    ],
)
def test_output_keys(line: str) -> None:
    expect("KV306", OUT + "    " + line + "\n")
    assert ranges("KV306", OUT + "    " + line + "\n", "<5.24") == []


def test_keys_to_ignore() -> None:
    expect(
        "KV306",
        "from transformers import LlamaConfig\nclass C(LlamaConfig):\n    keys_to_ignore_at_inference = ['past_key_values']  # KV306\n",
    )
    expect("KV306", "class C:\n    keys_to_ignore_at_inference = ['past_key_values']\n")
    text = "from transformers import LlamaConfig\nclass C(LlamaConfig):\n    keys_to_ignore_at_inference = [{}]\n"
    assert fixed(text.format("'past_key_values'"), NEW, codes=["KV306"]) == text.format("'cache'")
    assert fixed(text.format("'past_key_values'"), WIDE, codes=["KV306"]) == text.format("'cache', 'past_key_values'")


@pytest.mark.parametrize(
    "text",
    [
        "def f(model, ids, p):\n    model.generate(ids, cache_position=p)  # KV307\n",
        "def f(model, ids, p):\n    model.generate(ids, cache_position=None)\n    model(ids, cache_position=p)\n",
        ATTENTION + "class A(LlamaAttention):\n    def forward(self, h, cache_position):  # KV307\n        return h\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, cache_position=None):  # KV307\n        return cache_position[0]\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, cache_position=None):\n        return super().forward(h, cache_position=cache_position)\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, cache_position=None):\n        return cache_position[0] if cache_position is not None else 0\n",
        ATTENTION
        + "class A(LlamaAttention):\n    def forward(self, h, cache_position=None):\n        cache_position = make()\n        return cache_position[0]\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def forward(self, h, cache_position=None):\n        return cache_position[0]\n",
        MODEL
        + "class A(LlamaForCausalLM):\n    def prepare_inputs_for_generation(self, ids, cache=None, cache_position=None, **kw):  # KV307\n        return ids[:, cache_position]\n".replace(
            "ids[:, cache_position]", "cache_position.shape"
        ),
        "from torch import nn\nclass A(nn.Module):\n    def forward(self, h, cache_position):\n        return cache_position[0]\n",
    ],
)
def test_cache_position(text: str) -> None:
    expect("KV307", text, ">=5.4")
    assert ranges("KV307", split_marks(text)[0], "<5.4") == []


def test_position_behind_a_past_that_never_comes() -> None:
    text = (
        MODEL
        + "class A(LlamaForCausalLM):\n    def prepare_inputs_for_generation(self, ids, past_key_values=None, cache_position=None, **kw):\n"
        "        if past_key_values is not None:\n            ids = ids[:, -cache_position.shape[0] :]\n        return ids\n"
    )
    assert ranges("KV307", text, ">=5.0") == [("breaks", ("5.4.0-5.23.0",))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model(ids, past_key_values=c)", "model(ids, cache=c)"),
        ("model.generate(ids, past_key_values=c)", "model.generate(ids, cache=c)"),
        (
            "out = model(ids)\nout.past_key_values, out['past_key_values'], out.get('past_key_values')",
            "out = model(ids)\nout.cache, out['cache'], out.get('cache')",
        ),
        ("out = model(ids)\nout.past_key_values = None", "out = model(ids)\nout.cache = None"),
        # all or nothing
        ("out = model(ids)\nmodel(ids, past_key_values=c)\nmodel(**{'past_key_' 'values': c})", None),
        ("out = model(ids)\nout.past_key_values\ngetattr(out, 'past_key_values')", None),
        # not a model output, not a call of the library
        ("x.past_key_values, feeds['past_key_values'], helper(past_key_values=c)", None),
        ("def helper(past_key_values): pass\nhelper(past_key_values=c)", None),
    ],
)
def test_renaming_everything_or_nothing(before: str, after: str | None) -> None:
    assert fixed(HEAD + before + "\n", NEW, codes=["KV308"]) == HEAD + (before if after is None else after) + "\n"


def test_old_names_stay_where_they_are_needed() -> None:
    assert ranges("KV308", HEAD + "model(ids, past_key_values=c)\n", WIDE) == []
    assert ranges("KV308", HEAD + "model(ids, past_key_values=c)\n", NEW) == [("deprecated", ("5.24.0",))]


def test_merging_lines_go_in_front_of_the_comments_of_the_first_statement() -> None:
    text = """\
from transformers import GenerationMixin, PreTrainedModel


class A(PreTrainedModel, GenerationMixin):
    def forward(self, input_ids=None, past_key_values=None, **kwargs):
        \"\"\"Doc.\"\"\"

        # how many tokens there are
        # so far
        return past_key_values.get_seq_length() if past_key_values is not None else 0
"""
    new = text.replace("past_key_values=None, **kwargs", "past_key_values=None, cache=None, **kwargs").replace(
        "        # how many",
        "        past_key_values = cache if cache is not None else past_key_values\n        # how many",
    )
    assert fixed(text, ">=5.20", codes=["KV305"]) == new


PASSED_ON = """\
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer


class OwnAttention(LlamaAttention):
    def forward(self, hidden_states, {parameter}=None, **kwargs):
        return {parameter}.update(hidden_states, hidden_states, 0)


class OwnLayer(LlamaDecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.self_attn = OwnAttention(config, layer_idx)

    def forward(self, hidden_states, past_key_values=None, **kwargs):{mark}
        return self.self_attn(hidden_states, past_key_values=past_key_values, **kwargs)
"""


def test_what_is_passed_on_to_a_part_with_the_old_name_is_lost() -> None:
    expect("KV305", PASSED_ON.format(parameter="past_key_values", mark="  # KV305"))
    both = PASSED_ON.format(parameter="past_key_values", mark="").replace("None, **", "None, cache=None, **", 1)
    expect("KV305", both)
    left_to_the_library = PASSED_ON.format(parameter="past_key_values", mark="").replace(
        "        self.self_attn = OwnAttention(config, layer_idx)\n", "        self.own = 1\n"
    )
    assert "OwnLayer" not in "".join(one.message for one in lint(left_to_the_library, NEW, codes=["KV305"]))


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("    kw = {'past_key_values': past, 'use_cache': True}\n    return model.generate(ids, **kw)\n", True),
        ("    kw = dict(past_key_values=past)\n    return model(ids, **kw)\n", True),
        ("    return model(ids, **{'past_key_values': past})\n", True),
        (
            "    out = model(ids, **{'past_key_values': past})\n    kw = dict(past_key_values=out)\n    return model(ids, **kw)\n",
            True,
        ),
        ("    kw = {'past_key_values': past}\n    print(kw)\n    return model(ids, **kw)\n", False),
        ("    kw = {}\n    kw['past_key_values'] = past\n    return model(ids, **kw)\n", False),
        ("    kw = {'past_key_values': past, **more}\n    return model(ids, **kw)\n", False),
    ],
)
def test_keys_of_dicts_are_renamed_with_the_rest_or_nothing_is(text: str, renamed: bool) -> None:
    code = (
        MODEL
        + "model = LlamaForCausalLM.from_pretrained('x')\ndef f(ids, past, more):\n    model(ids, past_key_values=past)\n"
        + text
    )
    new = code.replace("'past_key_values'", "'cache'").replace("past_key_values=", "cache=")
    assert fixed(code, NEW, codes=["KV308"]) == (new if renamed else code)


HOOKED = """\
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("x")


def hook(module, args, kwargs):
    {body}
    return args, kwargs


model.model.layers[0].self_attn.register_forward_pre_hook(hook, with_kwargs=True)
"""


@pytest.mark.parametrize(
    ("body", "target", "after"),
    [
        ("past = kwargs['past_key_values']", NEW, "past = kwargs['cache']"),
        ("kwargs['past_key_values'] = trim(kwargs['past_key_values'])", NEW, "kwargs['cache'] = trim(kwargs['cache'])"),
        (
            "past = kwargs.pop('past_key_values', None)",
            ">=5.0",
            "past = kwargs.pop('cache', kwargs.pop('past_key_values', None))",
        ),
        (
            "if 'past_key_values' not in kwargs: return",
            ">=5.0",
            "if ('cache' not in kwargs and 'past_key_values' not in kwargs): return",
        ),
        (
            "past = kwargs['past_key_values']",
            ">=5.0",
            "past = (kwargs['cache'] if 'cache' in kwargs else kwargs['past_key_values'])",
        ),
        ("kwargs['past_key_values'] = trim(kwargs['past_key_values'])", ">=5.0", None),
        ("past = kwargs.pop('past_key_values')", ">=5.0", None),
        ("past = kwargs['past_key_values'] or other['past_key_values']", NEW, None),
        ("past = kwargs.get('past_key_value', kwargs.get('past_key_values'))", NEW, None),
        ("past = kwargs['past_key_values']", ">=4.50", None),
    ],
)
def test_hooks_look_for_the_new_key(body: str, target: str, after: str | None) -> None:
    text = HOOKED.format(body=body)
    assert lint(text, target, codes=["KV305"])
    assert fixed(text, target, codes=["KV305"]) == (text if after is None else HOOKED.format(body=after))


def test_a_lambda_is_a_hook_too() -> None:
    text = HOOKED.format(body="pass").replace("_hook(hook,", "_hook(lambda m, a, kw: print(kw['past_key_values']),")
    assert [one.code for one in lint(text, NEW, codes=["KV305"])] == ["KV305"]
    assert "kw['cache']" in fixed(text, NEW, codes=["KV305"])


def test_a_key_that_is_asked_for_first_raises_nothing() -> None:
    expect(
        "KV306",
        MODEL
        + "model = LlamaForCausalLM.from_pretrained('x')\ndef f(ids):\n"
        + "    kwargs = model.prepare_inputs_for_generation(ids)\n"
        + "    if kwargs.get('past_key_values') is not None:  # KV306\n"
        + "        return kwargs['past_key_values']\n",
    )
