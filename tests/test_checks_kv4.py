"""KV401 to KV404: values and options of generation, in code and in ``generation_config.json``."""

# ruff: noqa: E501, ISC004 (the examples are written as one string each)

from __future__ import annotations

from pathlib import Path

import pytest
from analysing import fixed, lint

from kvlint import checks
from kvlint.analysis import analyse
from kvlint.analysis.project import Project
from kvlint.analysis.values import Config, Model
from kvlint.carriers.regions import edited
from kvlint.checks.kv404_quantized_cache_on_sliding_model import families, other_layers
from kvlint.findings import Applicability, Finding
from kvlint.source import parse
from kvlint.timeline import the_timeline

EVERY = ">=4.36"
NEW = ">=5.24"
CODES = ["KV401", "KV402", "KV403", "KV404"]
HEAD = "from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig\nmodel = AutoModelForCausalLM.from_pretrained('x')\n"


def said(found: list[Finding]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(code, category, releases in force on which it is wrong)."""
    return [(one.code, one.category.value, the_timeline().ranges(one.releases)) for one in found]


def code(text: str, target: str = NEW) -> list[tuple[str, str, tuple[str, ...]]]:
    return said(lint(HEAD + text + "\n", target, codes=CODES))


def json(text: str, target: str = NEW) -> list[Finding]:
    path = Path("generation_config.json")
    (region,) = parse(path, text.encode()).regions
    timeline = the_timeline()
    facts = analyse(region, path, timeline.matching(target), Project(), timeline)
    return checks.findings(facts, frozenset(CODES))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("static", []),
        ("paged", [("KV401", "breaks", ("4.45.0-4.57.6",))]),
        ("dynamic", [("KV401", "breaks", ("4.45.0-4.49.0",))]),
        ("dynamic_full", [("KV401", "breaks", ("4.45.0-4.55.4", "5.15.0-5.24.0"))]),
        ("mamba", [("KV401", "breaks", ("4.54.0-5.24.0",))]),
        ("sink", [("KV401", "breaks", ("4.45.0-5.24.0",))]),
        ("hybrid", [("KV401", "silent", ("5.0.0-5.24.0",))]),
    ],
)
def test_values_by_release(value: str, expected: list[tuple[str, str, tuple[str, ...]]]) -> None:
    assert code(f"model.generate(ids, cache_implementation={value!r})", EVERY) == expected


@pytest.mark.parametrize(
    "text",
    [
        "model.generate(ids, cache_implementation='sink')",
        "self.llm.generate(ids, cache_implementation='sink')",
        "model.generation_config.cache_implementation = 'sink'",
        "model.generation_config.update(cache_implementation='sink')",
        "setattr(model.generation_config, 'cache_implementation', 'sink')",
        "GenerationConfig(cache_implementation='sink')",
        "GenerationConfig.from_pretrained('x', cache_implementation='sink')",
        "kw = {'cache_implementation': 'sink'}\nmodel.generate(ids, **kw)",
        "kw = dict(cache_implementation='sink')\nmodel.generate(ids, **kw)",
        "kw = {}\nkw['cache_implementation'] = 'sink'\nmodel.generate(ids, **kw)",
        "kw = {}\nkw.update(cache_implementation='sink')\nmodel.generate(ids, **kw)",
        "kw = {}\nkw.update({'cache_implementation': 'sink'})\nmodel.generate(ids, **kw)",
        "kw = {}\nkw |= {'cache_implementation': 'sink'}\nmodel.generate(ids, **kw)",
        "kw = {}\nkw.setdefault('cache_implementation', 'sink')\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}\nkw.setdefault('cache_implementation', 'static')\nmodel.generate(ids, **kw)",
        "def f(ids, **kw):\n    kw.setdefault('cache_implementation', 'sink')\n    return model.generate(ids, **kw)",
        "model.generate(ids, cache_implementation='static' if fast else 'sink')",
        "def f(m):\n    m.generate(ids, **{'cache_implementation': 'sink'})",
        "def f(generate_kwargs):\n    generate_kwargs['cache_implementation'] = 'sink'",
    ],
)
def test_places(text: str) -> None:
    assert [item[:2] for item in code(text)] == [("KV401", "breaks")]


@pytest.mark.parametrize(
    "text",
    [
        "model.generate(ids, cache_implementation=None)",
        "model.generate(ids, cache_implementation=name)",
        "helper(cache_implementation='sink')",
        "kw = {'cache_implementation': 'sink'}\nkw.pop('cache_implementation')\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}\ndel kw['cache_implementation']\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}\nkw.clear()\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}\nkw.update(user)\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}\nkw |= {'cache_implementation': 'static'}\nmodel.generate(ids, **kw)",
        "model.generate(ids, cache_implementation=name or 'sink')",
        "kw = {'cache': DynamicCache()}\nif static:\n    kw = {'cache_implementation': 'static'}\nmodel.generate(ids, **kw)",
        "kw = {'cache_implementation': 'static'}\nif own:\n    kw.pop('cache_implementation')\n    kw['cache'] = DynamicCache()\n"
        "model.generate(ids, **kw)",
        "kw = {'cache_implementation': 'sink'}",
        "try:\n    model.generate(ids, cache_implementation='sink')\nexcept ValueError:\n    pass",
        "model.config.cache_implementation = 'sink'",
        "model.generate(ids, cache=DynamicCache(), cache_implementation=None)",
        "model.generate(ids, cache=None, cache_implementation='static')",
        "model.generate(ids, cache_config={'nbits': 4}, **kw)",
        "model.generate(ids, cache_config={'nbits': 4}, generation_config=g)",
        "model.generate(ids, max_cache_len=8, cache_implementation='static')",
        "model.generate(ids, max_cache_len=8, cache_implementation=name)",
        "model.generate(ids, use_cache=False)",
        "model.generate(ids, cache_implementation='quantized', cache_config={'backend': 'hqq', 'nbits': 4})",
        "model.generate(ids, cache_implementation='quantized', cache_config=config)",
        "GenerationConfig(return_legacy_cache=False)",
    ],
)
def test_silent(text: str) -> None:
    assert code(text) == []


@pytest.mark.parametrize(
    ("text", "target", "category"),
    [
        ("model.generate(ids, cache=DynamicCache(), cache_implementation='static')", NEW, "breaks"),
        ("model.generate(ids, past_key_values=c, cache_implementation='static')", ">=4.42", "breaks"),
        ("model.generate(ids, use_cache=False, cache_implementation='static')", NEW, "silent"),
        ("GenerationConfig(use_cache=False, cache_config={})", NEW, "silent"),
        ("model.generate(ids, max_cache_len=8)", NEW, "silent"),
        ("model.generate(ids, max_cache_len=8)", "<5.13", "breaks"),
        ("model.generate(ids, max_cache_len=8, cache_implementation='static')", ">=5.0,<5.13", "breaks"),
        ("GenerationConfig(max_cache_len=8, cache_implementation='static')", ">=5.0,<5.13", "silent"),
        ("GenerationConfig(cache_config={'nbits': 4})", ">=4.48,<4.54", "breaks"),
        ("GenerationConfig(cache_config={'nbits': 4})", NEW, "silent"),
        ("model.generate(ids, cache_implementation='static', cache_config={'max_cache_len': 8})", NEW, "silent"),
        ("model.generate(ids, return_legacy_cache=False)", NEW, "breaks"),
        ("GenerationConfig(return_legacy_cache=True)", NEW, "silent"),
        ("model.generate(ids, cache_implementation='quantized', cache_config={'backend': 'HQQ'})", NEW, "breaks"),
        ("model.generate(ids, cache_implementation='quantized', cache_config={'device': 'cuda'})", NEW, "breaks"),
    ],
)
def test_options(text: str, target: str, category: str) -> None:
    assert [item[:2] for item in code(text, target)] == [("KV403", category)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kw = {'cache_implementation': 'sink'}\nmodel.generate(ids, **kw)", "'sink'"),
        ("model.generate(ids, cache_implementation='static' if fast else 'sink')", "'sink'"),
        ("kw = {}\nkw.update(cache_implementation='sink')\nmodel.generate(ids, **kw)", "'sink'"),
        (
            "class A:\n    def __init__(self):\n        self.kw = {'cache_implementation': 'sink'}\n"
            "        self.other = {'cache_implementation': 'sink'}\n"
            "    def go(self, ids):\n        return model.generate(ids, **self.kw)",
            "'sink'",
        ),
        (
            "def f(ids):\n    kw = {'cache_implementation': 'sink'}\n    return model.generate(ids, **kw)\n"
            "def g(ids):\n    kw = {'cache_implementation': 'sink'}\n    return kw",
            "'sink'",
        ),
        (
            "kw = {'cache_implementation': name}\nkw['cache_implementation'] = 'sink'\nmodel.generate(ids, **kw)",
            "'sink'",
        ),
    ],
)
def test_a_finding_stands_where_the_value_is_written(text: str, place: str) -> None:
    (finding,) = lint(HEAD + text + "\n", NEW, codes=["KV401"])
    assert (HEAD + text)[finding.start : finding.end] == place
    assert finding.start == (HEAD + text).index(place)


def test_hybrid_in_code_is_reported_wherever_it_is_set() -> None:
    for text in (
        "model.generation_config.cache_implementation = 'hybrid'",
        "NAME = 'hybrid'\nmodel.generation_config.cache_implementation = NAME",
        "GenerationConfig(cache_implementation='hybrid')",
    ):
        assert [item[:2] for item in code(text)] == [("KV401", "silent")]


# -- KV403 and KV404: leaving options out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "new", "target", "safe"),
    [
        ("model.generate(ids, cache=c, cache_implementation='static')", "model.generate(ids, cache=c)", NEW, False),
        ("model.generate(ids, max_cache_len=8, top_k=1)", "model.generate(ids, top_k=1)", NEW, False),
        ("model.generate(ids, max_cache_len=8, top_k=1)", "model.generate(ids, top_k=1)", ">=5.0", False),
        (
            "model.generate(ids, max_cache_len=8, cache_implementation='dynamic')",
            "model.generate(ids, cache_implementation='dynamic')",
            NEW,
            True,
        ),
        ("model.generate(ids, max_cache_len=8, cache_implementation='static')", None, ">=5.0", False),
        (
            "model.generate(ids, cache_implementation='static', cache_config={'max_cache_len': 8})",
            "model.generate(ids, cache_implementation='static')",
            ">=4.54",
            True,
        ),
        ("model.generate(ids, cache_implementation='static', cache_config={'max_cache_len': 8})", None, ">=4.50", True),
        ("model.generate(ids, cache_implementation='static', cache_config=make())", None, NEW, True),
        ("GenerationConfig(max_cache_len=8)", "GenerationConfig()", NEW, False),
        ("model.generate(ids, return_legacy_cache=False)", "model.generate(ids)", NEW, False),
        ("model.generate(ids, return_legacy_cache=False)", None, ">=4.50", False),
        ("GenerationConfig(return_legacy_cache=True)", "GenerationConfig()", NEW, False),
        ("model.generate(ids, **{'max_cache_len': 8, 'top_k': 1})", "model.generate(ids, **{'top_k': 1})", NEW, False),
        ("model.generate(ids, **{'top_k': 1, 'max_cache_len': 8})", "model.generate(ids, **{'top_k': 1})", NEW, False),
        ("model.generate(ids, **{'max_cache_len': 8})", "model.generate(ids, **{})", NEW, False),
        ("model.generate(ids, **{'top_k': 1, ('max_cache_len'): 8})", None, NEW, False),
        (
            "def f():\n    kw = dict(top_k=1, max_cache_len=8)\n    model.generate(ids, **kw)",
            "def f():\n    kw = dict(top_k=1)\n    model.generate(ids, **kw)",
            NEW,
            False,
        ),
        (
            "def f():\n    kw = {\n        'top_k': 1,\n        'max_cache_len': 8,\n    }\n    model.generate(ids, **kw)",
            "def f():\n    kw = {\n        'top_k': 1,\n    }\n    model.generate(ids, **kw)",
            NEW,
            False,
        ),
        (
            "def f():\n    kw = {\n        'max_cache_len': 8,  # why\n        'top_k': 1,\n    }\n    model.generate(ids, **kw)",
            None,
            NEW,
            False,
        ),
        (
            "def f():\n    kw = {'max_cache_len': 8}\n    model.generate(ids, **kw)\n    return kw",
            None,
            NEW,
            False,
        ),
        ("kw = {'max_cache_len': 8, 'top_k': 1}\nmodel.generate(ids, **kw)", None, NEW, False),
        (
            "model.generate(ids, cache_implementation='quantized', cache_config={'device': 'cuda', 'nbits': 4})",
            "model.generate(ids, cache_implementation='quantized', cache_config={'nbits': 4})",
            NEW,
            False,
        ),
        (
            "model.generate(ids, cache_implementation='quantized', cache_config=dict(device='cuda', nbits=4))",
            "model.generate(ids, cache_implementation='quantized', cache_config=dict(nbits=4))",
            NEW,
            False,
        ),
        (
            "model.generate(ids, cache_implementation='quantized', cache_config={'backend': 'HQQ'})",
            "model.generate(ids, cache_implementation='quantized', cache_config={'backend': 'hqq'})",
            NEW,
            False,
        ),
        ("model.generate(ids, cache_implementation='quantized', cache_config={'backend': 'nope'})", None, NEW, False),
    ],
)
def test_what_is_left_out(text: str, new: str | None, target: str, safe: bool) -> None:
    (finding, *_) = lint(HEAD + text + "\n", target, codes=["KV403"])
    assert (finding.fix is None) == (new is None)
    if new is not None:
        assert finding.fix is not None
        assert (finding.fix.applicability is Applicability.SAFE) == safe
        assert fixed(HEAD + text + "\n", target, codes=["KV403"], unsafe=True) == HEAD + new + "\n"


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ('{\n  "max_cache_len": 8,\n  "top_k": 1\n}\n', '{\n  "top_k": 1\n}\n'),
        ('{\n  "top_k": 1,\n  "max_cache_len": 8\n}\n', '{\n  "top_k": 1\n}\n'),
        ('{"top_k":1 ,"max_cache_len" : 8 , "a": {"max_cache_len": 3}}', '{"top_k":1 ,"a": {"max_cache_len": 3}}'),
        ('{"max_cache_len": 8}', "{}"),
        ('{"max_cache_len": 9, "max_cache_len": 8}', None),
        (
            '{"use_cache": false, "cache_config": {}, "x": 1, "cache_implementation": "static"}',
            '{"use_cache": false, "x": 1}',
        ),
        ('{"return_legacy_cache": true, "x": "}"}', '{"x": "}"}'),
        (
            '{"cache_implementation": "quantized", "cache_config": {"nbits": 4, "device": "cuda"}}',
            '{"cache_implementation": "quantized", "cache_config": {"nbits": 4}}',
        ),
        (
            '{"cache_implementation": "quantized", "cache_config": {"backend": "HQQ"}}',
            '{"cache_implementation": "quantized", "cache_config": {"backend": "hqq"}}',
        ),
    ],
)
def test_what_is_left_out_of_json(text: str, new: str | None) -> None:
    finding = next(one for one in json(text) if one.code == "KV403")
    assert (finding.fix is None) == (new is None)
    if finding.fix is not None:
        assert finding.fix.applicability is Applicability.UNSAFE
        assert edited(text, finding.fix.edits) == new


def test_a_quantized_cache_is_left_out_with_its_options() -> None:
    head = HEAD + "model = AutoModelForCausalLM.from_pretrained('google/gemma-2-2b')\n"
    text = "model.generate(ids, cache_implementation='quantized', cache_config={'nbits': 4}, top_k=1)\n"
    assert fixed(head + text, NEW, codes=["KV404"], unsafe=True) == head + "model.generate(ids, top_k=1)\n"
    assert [one.fix for one in lint(head + text, ">=5.0", codes=["KV404"])] == [None]


def test_option_that_an_assignment_completes() -> None:
    assert (
        code(
            "model.generation_config.cache_implementation = 'quantized'\nmodel.generate(ids, cache_config={'nbits': 4})"
        )
        == []
    )


@pytest.mark.parametrize(
    ("value", "new", "target"),
    [
        ("sliding_window", "static", ">=4.56"),
        ("offloaded_hybrid", "offloaded_static", ">=4.56"),
        ("hybrid", "static", ">=4.56,<5"),
    ],
)
def test_deprecated_values(value: str, new: str, target: str) -> None:
    text = HEAD + "model.generate(ids, cache_implementation={!r})\n"
    assert [item[:2] for item in code(f"model.generate(ids, cache_implementation={value!r})", target)] == [
        ("KV402", "deprecated")
    ]
    assert fixed(text.format(value), target, codes=["KV402"]) == text.format(new)
    assert code(f"model.generate(ids, cache_implementation={value!r})", ">=4.53,<5") == []


def test_joined_strings_are_not_rewritten() -> None:
    text = HEAD + "model.generate(ids, cache_implementation='sliding' '_window')\n"
    assert [one.fix for one in lint(text, NEW, codes=["KV402"])] == [None]


# -- JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"cache_implementation": "dynamic_full"}', [("KV401", "breaks")]),
        ('{"cache_implementation": "sliding_window"}', [("KV402", "deprecated")]),
        ('{"cache_implementation": "hybrid"}', []),
        ('{"cache_implementation": null, "use_cache": true}', []),
        ('{"use_cache": false, "cache_implementation": "static"}', [("KV403", "silent")]),
        ('{"max_cache_len": 8}', [("KV403", "silent")]),
        ('{"cache_config": {"nbits": 4}, "cache_implementation": "quantized"}', []),
        ('{"cache_config": {"device": "cuda"}, "cache_implementation": "quantized"}', [("KV403", "breaks")]),
        ('{"return_legacy_cache": true}', [("KV403", "silent")]),
        ('{"max_new_tokens": 3}', []),
    ],
)
def test_generation_config(text: str, expected: list[tuple[str, str]]) -> None:
    assert [item[:2] for item in said(json(text))] == expected


def test_json_finding_stands_at_the_value_and_is_fixed_there() -> None:
    text = '{\n  "cache_implementation": "dynamic_full",\n  "top_k": 3\n}\n'
    (finding,) = json(text)
    assert text[finding.start : finding.end] == '"dynamic_full"'
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    assert text[: edit.start] + edit.text + text[edit.end :] == text.replace("dynamic_full", "dynamic")


# -- KV404 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("google/gemma-2-9b-it", True),
        ("google/gemma-3-1b-it", True),
        ("openai/gpt-oss-20b", True),
        ("mistralai/Mistral-7B-Instruct-v0.1", True),
        ("mistralai/Mistral-7B-Instruct-v0.3", False),
        ("google/gemma-2b", False),
        ("meta-llama/Llama-3.1-8B", False),
        ("Qwen/Qwen2.5-7B", False),
        ("", False),
    ],
)
def test_names_of_families(name: str, refused: bool) -> None:
    assert bool(other_layers(Model(name=name))) is refused


@pytest.mark.parametrize(
    ("cls", "refused"),
    [
        ("Gemma2ForCausalLM", True),
        ("Gemma2Config", True),
        ("GemmaForCausalLM", False),
        ("MistralForCausalLM", False),
        ("Olmo3Model", True),
    ],
)
def test_classes_of_families(cls: str, refused: bool) -> None:
    assert bool(other_layers(Config(cls=f"transformers.{cls}"))) is refused


def test_every_family_exists() -> None:
    timeline = the_timeline()
    for prefix, family in families().items():
        assert family["evidence"] and family["names"]
        known = [f"transformers.{prefix}{end}" for end in ("ForCausalLM", "ForConditionalGeneration")]
        assert any(timeline.importable(name) for name in known), prefix


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (
            "m = AutoModelForCausalLM.from_pretrained('google/gemma-2-2b')\nm.generate(ids, cache_implementation='quantized')",
            1,
        ),
        (
            "from transformers import QuantizedCache\nm = AutoModelForCausalLM.from_pretrained('google/gemma-2-2b')\nQuantizedCache('quanto', m.config)",
            1,
        ),
        (
            "from transformers import MistralConfig, MistralForCausalLM\nm = MistralForCausalLM(MistralConfig(sliding_window=8))\n"
            "m.generate(ids, cache_implementation='quantized')",
            1,
        ),
        (
            "from transformers import LlamaConfig, LlamaForCausalLM\nm = LlamaForCausalLM(LlamaConfig(layer_types=['sliding_attention']))\n"
            "m.generate(ids, cache_implementation='quantized')",
            1,
        ),
        (
            "from transformers import MistralConfig, MistralForCausalLM\nm = MistralForCausalLM(MistralConfig(sliding_window=None))\n"
            "m.generate(ids, cache_implementation='quantized')",
            0,
        ),
        ("m = AutoModelForCausalLM.from_pretrained(name)\nm.generate(ids, cache_implementation='quantized')", 0),
    ],
)
def test_quantized_caches(text: str, count: int) -> None:
    assert [item[0] for item in code(text)] == ["KV404"] * count
    assert code(text, "<5.14") == []
