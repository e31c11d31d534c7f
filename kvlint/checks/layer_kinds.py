"""Which kinds of layers the model behind a cache may have: layers of linear attention hold no keys, and the cache of an
encoder-decoder model has two halves with layers each."""

from __future__ import annotations

import re

from kvlint.analysis.facts import Facts
from kvlint.analysis.values import CACHE, CacheObject
from kvlint.findings import Applicability

LINEAR = re.compile(
    r"Mamba|Jamba|Bamba|Zamba|FalconH1|GraniteMoeHybrid|NemotronH|BailingHybrid|Qwen3Next|Qwen3_5|Lfm[23]|MiniMax|KimiLinear|"
    r"OlmoHybrid|RecurrentGemma|Rwkv|xLSTM|Zaya|linear_attention|mamba|has_previous_state|conv_state|ssm_state|recurrent_state"
)
"""Models of which some layers hold a state and no keys, and words of code about them."""
ENCODER_DECODER = re.compile(
    r"EncoderDecoder|Seq2Seq|ForConditionalGeneration|decoder_input_ids|encoder_outputs|encoder_hidden_states|cross_attn|"
    r"cross_attention|\b(?:Bart|T5|MBart|Marian|Whisper|Pegasus)"
)
"""Models with an encoder, and words of code about them."""
MODEL_CLASS = re.compile(r"\b(\w+?)(?:ForCausalLM|LMHeadModel|ForConditionalGeneration)\b")


def trust_in_layers(facts: Facts, cache: CacheObject) -> Applicability | None:
    """How far a fix that reads keys and values of every layer is right: safe for a cache that was made here without a
    model's config and for models whose layers are known, not at all where the file is about models with other layers.
    An annotation says no more than the base class: it needs a look."""
    if cache.source == "constructed" and not cache.config_given:
        return Applicability.SAFE
    if mentions(facts, LINEAR) or (cache.cls == CACHE and mentions(facts, ENCODER_DECODER)):
        return None
    if cache.cls == CACHE and cache.source == "annotation":
        return Applicability.UNSAFE
    named = {name for name in MODEL_CLASS.findall(facts.text) if name and not name.startswith("Auto")}
    return Applicability.SAFE if named else Applicability.UNSAFE


def may_have_halves(facts: Facts, cache: CacheObject) -> bool:
    """True where the cache may well be one of an encoder-decoder model, which has no ``layers`` itself: an annotation says
    no more than the base class, or the file is about such models."""
    return cache.cls == CACHE and (cache.source == "annotation" or mentions(facts, ENCODER_DECODER))


def mentions(facts: Facts, words: re.Pattern[str]) -> bool:
    key = f"mentions {words.pattern}"
    known = facts.memo.get(key)
    if not isinstance(known, bool):
        known = facts.memo[key] = words.search(facts.text) is not None
    return known
