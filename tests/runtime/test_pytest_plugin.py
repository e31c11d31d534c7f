"""The pytest plugin, run inside pytest: the fixture, the option, and both without harm where nothing is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvlint

pytest_plugins = ["pytester"]

# The entry point is blocked so that the plugin is loaded once, whether or not kvlint is installed.
ARGUMENTS = ("-p", "no:kvlint", "-p", "kvlint.pytest_plugin", "-p", "no:cacheprovider")

MODEL = """
import torch
from kvlint.runtime.models import Source, load

loaded = load(Source("llama", random_weights=True))
ids = torch.arange(12).reshape(2, 6) + 5
"""

FIXTURE = (
    MODEL
    + """
def test_sound(check_cache):
    with torch.no_grad():
        cache = loaded.model(ids, use_cache=True).cache
    check_cache(cache, loaded.config, tokens=6, batch=2)

def test_broken(check_cache):
    with torch.no_grad():
        cache = loaded.model(ids, use_cache=True).cache
    cache.layers[1].keys = cache.layers[1].keys.repeat(1, 2, 1, 1)
    check_cache(cache, loaded.config, tokens=6, batch=2)
"""
)

OPTION = (
    MODEL
    + """
def test_sound():
    loaded.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3)

def test_broken():
    original = loaded.model.model.layers[0].self_attn.forward
    def forward(*arguments, **options):
        result = original(*arguments, **options)
        layer = options["cache"].layers[0]
        layer.keys, layer.values = layer.keys.double(), layer.values.double()
        return result
    loaded.model.model.layers[0].self_attn.forward = forward
    with torch.no_grad():
        loaded.model(ids, use_cache=True)
"""
)


DIRECT = (
    MODEL
    + """
from transformers import LlamaForCausalLM

def doubled(output):
    for layer in output.cache.layers:
        layer.keys, layer.values = layer.keys.double(), layer.values.double()
    return output

def test_sound():
    cache = loaded.model.forward(ids, use_cache=True).cache
    loaded.model.forward(ids[:, :1], cache=cache)

def test_broken():
    own = loaded.model.lm_head.forward
    cache = loaded.model.forward(ids, use_cache=True).cache
    def forward(hidden):
        cache.layers[0].keys = cache.layers[0].keys.double()
        return own(hidden)
    loaded.model.lm_head.forward = forward
    loaded.model.forward(ids[:, :1], cache=cache)

def test_a_class_of_the_test():
    class Own(LlamaForCausalLM):
        def forward(self, *arguments, **options):
            return doubled(super().forward(*arguments, **options))

    Own(loaded.config).forward(ids, use_cache=True)
"""
)


def test_the_fixture_fails_a_test_with_code_and_layer(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIXTURE)
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*CacheError: KV602 kv-heads: layer 1: expected 2 kv heads, found 4*"])


def test_the_option_watches_every_model(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OPTION)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--kv-verify")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*CacheError: dtype-device: layer 0: *torch.float64*"])
    from transformers import PreTrainedModel

    assert "__call__" not in vars(PreTrainedModel)


def test_forward_called_directly_is_watched_too(pytester: pytest.Pytester) -> None:
    from transformers import LlamaForCausalLM, PreTrainedModel

    before = LlamaForCausalLM.forward, PreTrainedModel.__init__
    pytester.makepyfile(DIRECT)
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--kv-verify")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*CacheError: dtype-device: layer 0: *", "*CacheError: dtype-device: layer 0, 1: *"])
    assert (LlamaForCausalLM.forward, PreTrainedModel.__init__) == before


def test_without_the_option_nothing_is_watched(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OPTION)
    pytester.runpytest_inprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_a_senseless_interval_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--kv-verify", "--kv-verify-every", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_loading_the_plugin_imports_nothing_heavy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(kvlint.__file__).parent.parent))
    pytester.makepyfile("""
        import sys
        def test_light():
            heavy = {"torch", "transformers", "numpy", "libcst", "rich"} & set(sys.modules)
            assert not heavy
    """)
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)
