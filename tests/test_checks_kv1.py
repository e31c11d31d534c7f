"""KV101 to KV103: names that are gone, what is said of them and when."""

from __future__ import annotations

import pytest
from analysing import expect, fixed, lint, releases

from kvlint.findings import Applicability, Category
from kvlint.timeline import the_timeline

EVERY = ">=4.36"


def said(text: str, target: str = EVERY) -> list[tuple[str, tuple[str, ...]]]:
    """(code, releases in force on which it is wrong) of each finding."""
    return [(one.code, the_timeline().ranges(one.releases)) for one in lint(text, target)]


@pytest.mark.parametrize(
    ("text", "code", "ranges"),
    [
        ("from transformers import HybridCache\n", "KV101", ("4.36.0-4.43.4", "5.0.0-5.24.0")),
        ("from transformers.cache_utils import HybridCache\n", "KV101", ("4.36.0-4.41.2", "5.0.0-5.24.0")),
        ("from transformers import SinkCache\n", "KV101", ("5.0.0-5.24.0",)),
        ("from transformers import MambaCache\n", "KV101", ("4.36.0-4.43.4", "5.5.0-5.24.0")),
        ("from transformers import OffloadedCache\n", "KV101", ("4.36.0-4.43.4", "5.0.0-5.24.0")),
        ("from transformers import QuantizedCacheConfig\n", "KV103", ("4.36.0-4.41.2", "4.56.0-5.24.0")),
        ("import transformers.modeling_attn_mask_utils\n", "KV103", ("5.24.0",)),
        ("from transformers.modeling_attn_mask_utils import AttentionMaskConverter\n", "KV103", ("5.24.0",)),
    ],
)
def test_dates(text: str, code: str, ranges: tuple[str, ...]) -> None:
    assert said(text) == [(code, ranges)]


def test_alias_is_dated_to_the_patch_release_and_follows_its_absence() -> None:
    text = "from transformers.cache_utils import SlidingWindowCache\n"
    assert said(text, ">=5.0") == [("KV101", ("5.0.0-5.5.0",)), ("KV102", ("5.5.1-5.24.0",))]
    assert {one.category for one in lint(text)} == {Category.SILENT}


@pytest.mark.parametrize("target", [">=4.44,<5", "==4.57.6"])
def test_silent_where_the_class_is_there(target: str) -> None:
    assert (
        said("from transformers import HybridCache\ndef f(x: HybridCache): return isinstance(x, HybridCache)\n", target)
        == []
    )


def test_every_mention_is_reported_once() -> None:
    expect(
        """
        from transformers import HybridCache, DynamicCache  # KV101
        class Mine(HybridCache):  # KV101
            pass
        def f(a: HybridCache) -> HybridCache:  # KV101
            if isinstance(a, (DynamicCache, HybridCache)):  # KV101
                return HybridCache(config=a)  # KV101
        KINDS = [HybridCache]  # KV101
        """
    )


def test_what_follows_a_missing_module_is_reported_at_the_import_only() -> None:
    expect(
        """
        from transformers.modeling_attn_mask_utils import _prepare_4d_causal_attention_mask  # KV103
        mask = _prepare_4d_causal_attention_mask(None, (1, 2), x, 0)
        """
    )


def test_message_names_the_module_that_is_gone() -> None:
    (finding,) = lint("from transformers.modeling_attn_mask_utils import AttentionMaskConverter\n")
    assert (
        "the module `transformers.modeling_attn_mask_utils` is not in transformers: ModuleNotFoundError from 5.24.0"
        in finding.message
    )
    (finding,) = lint("from transformers.cache_utils import QuantizedCacheConfig\n")
    assert finding.message == "`QuantizedCacheConfig` is not in transformers: ImportError from 4.56.0"


def test_class_that_nothing_replaces_says_so() -> None:
    (finding,) = lint("from transformers import SinkCache\n")
    assert finding.fix is None
    assert "custom_generate" in finding.help


def test_annotation_speaks_of_the_object_not_of_the_class_that_is_gone() -> None:
    """What is annotated as a `HybridCache` is some other cache where that class is gone: only what no cache has is reported."""
    expect(
        """
        from transformers import HybridCache  # KV101
        def f(a: HybridCache):  # KV101
            a.get_seq_length()
            a.layers[0]
            return a.key_cache  # KV202
        """
    )


def test_use_that_is_only_checked_by_types_is_rewritten_and_not_reported() -> None:
    text = 'from transformers import HybridCache\ndef f(a: "HybridCache | None"): return a\n'
    assert [one.code for one in lint(text)] == ["KV101"]
    assert fixed(text) == text.replace("Hybrid", "Static")


def test_all_mentions_have_one_and_the_same_fix() -> None:
    found = lint(
        "from transformers import HybridCache\nx = HybridCache(config=a, max_cache_len=3)\ny: HybridCache = x\n"
    )
    assert len({one.fix for one in found}) == 1
    assert found[0].fix is not None and found[0].fix.applicability is Applicability.SAFE


def test_class_tested_with_isinstance_keeps_its_alias() -> None:
    text = (
        "from transformers.cache_utils import SlidingWindowCache\ndef f(a): return isinstance(a, SlidingWindowCache)\n"
    )
    found = lint(text)
    assert [one.code for one in found] == ["KV102", "KV102"]
    assert all(one.fix is None for one in found)


# --- private hooks


def test_hook_that_is_gone_is_reported_where_it_is_called() -> None:
    expect(
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        model._get_initial_cache_position(6, "cpu", {})  # KV103
        model._get_cache("static", 1, 2, 3)  # KV103
        model._prepare_cache_for_generation
        """
    )


def test_hook_that_is_gone_is_reported_where_it_is_overridden() -> None:
    text = """
        from transformers import LlamaForCausalLM
        class M(LlamaForCausalLM):
            def _extract_past_from_model_output(self, outputs):  # KV103
                return outputs.past_key_values
            def _get_cache(self, *args):
                return None
            def use(self):
                return self._get_cache()
    """
    expect(text)


@pytest.mark.parametrize(
    "text",
    [
        # a method of one's own, called by the class itself
        """
        from transformers import LlamaForCausalLM
        class M(LlamaForCausalLM):
            def _get_cache(self, *args):
                return None
            def use(self):
                return self._get_cache()
        """,
        # no model of transformers
        """
        import transformers
        class M:
            def _get_cache(self, *args):
                return None
        """,
        # a name that transformers never had
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        model._my_own_cache()
        """,
        # asked for first
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        if hasattr(model, "_get_cache"):
            model._get_cache("static", 1, 2, 3)
        """,
    ],
)
def test_hooks_of_others_are_silent(text: str) -> None:
    expect(text)


def test_nothing_is_known_of_names_that_no_release_had() -> None:
    expect("from transformers import FancyCache\nfrom transformers.cache_utils import make_cache\n")


def test_releases_of_the_target_alone_count() -> None:
    (finding,) = lint("from transformers import HybridCache\n", ">=4.56,<5.3")
    assert finding.releases == releases(">=5.0,<5.3")
    assert "from 5.0.0" in finding.message


def test_registries_of_attention_classes_are_dated() -> None:
    module = "transformers.models.llama.modeling_llama"
    dates = ("4.48.0-5.24.0",)
    assert said(f"from {module} import LLAMA_ATTENTION_CLASSES\nLLAMA_ATTENTION_CLASSES['eager'] = 1\n") == [
        ("KV103", dates)
    ]
    text = "from transformers.models.llama import modeling_llama\nmodeling_llama.LLAMA_ATTENTION_CLASSES['eager'] = A\n"
    (found,) = lint(text, EVERY)
    assert (found.code, the_timeline().ranges(found.releases)) == ("KV103", dates)
    assert "`modeling_llama.LlamaAttention = ...`" in found.help
    text = "from transformers.models.falcon.modeling_falcon import FALCON_ATTENTION_CLASSES\n"
    assert said(text) == []
    (early,) = lint("from transformers.models.glm.modeling_glm import GLM_ATTENTION_CLASSES\n", "==4.45.0")
    assert early.help == ""
    assert said("from transformers.models.clip.modeling_clip import CLIP_ATTENTION_CLASSES\n") == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "_prepare_4d_causal_attention_mask",
            "create_causal_mask(config=..., inputs_embeds=..., attention_mask=..., cache",
        ),
        ("_prepare_4d_causal_attention_mask_for_sdpa", "`sdpa`"),
        ("_prepare_4d_attention_mask", "create_bidirectional_mask"),
        ("_prepare_4d_attention_mask_for_sdpa", "create_bidirectional_mask"),
        ("_create_4d_causal_attention_mask", "attention_mask=None"),
        ("AttentionMaskConverter", "`kvlint shim` keeps the old class"),
    ],
)
def test_each_mask_helper_has_its_own_advice(name: str, told: str) -> None:
    (found,) = lint(f"from transformers.modeling_attn_mask_utils import {name}\n", EVERY)
    assert told in found.help
    assert found.fix is None


TESTED = """from transformers import HybridCache
from transformers import StaticCache

def kind(cache):
    return isinstance(cache, HybridCache)
"""


def test_a_class_test_is_widened_only_by_hand() -> None:
    assert fixed(TESTED, unsafe=False) == TESTED
    assert "isinstance(cache, StaticCache)" in fixed(TESTED, unsafe=True)


@pytest.mark.parametrize(
    "more",
    [
        "def bounded(cache): return isinstance(cache, StaticCache)",
        "NAMES = {StaticCache: 1}",
        'NAMES = ["StaticCache"]',
    ],
)
def test_two_classes_that_the_file_tells_apart_do_not_become_one(more: str) -> None:
    text = f"{TESTED}\n{more}\n"
    assert fixed(text, unsafe=True) == text
