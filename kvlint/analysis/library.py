"""What dotted names of transformers (and of a few companions) mean to the analysis."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import lru_cache

from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import CACHE, DYNAMIC_CACHE, ENCODER_DECODER_CACHE, STATIC_CACHE
from kvlint.contracts import contracts_of
from kvlint.releases import ReleaseSet
from kvlint.timeline import Timeline

COMMON_CLASSES = (CACHE, DYNAMIC_CACHE, STATIC_CACHE, ENCODER_DECODER_CACHE)
STATE_CLASSES = (
    "transformers.models.mamba.modeling_mamba.MambaCache",
    "transformers.cache_utils.MambaCache",
    "transformers.models.jamba.modeling_jamba.HybridMambaAttentionDynamicCache",
    "transformers.models.qwen3_next.modeling_qwen3_next.Qwen3NextDynamicCache",
)
STATE_MEMBERS = frozenset(
    {
        *("conv_states", "ssm_states", "recurrent_states", "update_conv_state", "update_ssm_state"),
        "has_previous_state",
    }
)
"""Members of the caches of single models with recurrent states, which any model's cache may stand for."""

MODEL_BASES = ("PreTrainedModel", "GenerationMixin", "ForCausalLM", "ForConditionalGeneration", "Model", "LMHeadModel")
HOOK_BASES = ("PreTrainedModel", "GenerationMixin", "ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


GENERATION_MIXIN = "transformers.generation.utils.GenerationMixin"
PRE_TRAINED_MODEL = "transformers.PreTrainedModel"


class Library:
    """Answers about imported names; wraps the timeline and remembers the answers."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.cache_class = lru_cache(maxsize=None)(self._cache_class)
        self.member = lru_cache(maxsize=None)(self._member)
        self.layer_class = lru_cache(maxsize=None)(self._layer_class)
        self.part = lru_cache(maxsize=None)(self._part)
        self.held_by = lru_cache(maxsize=None)(self._held_by)

    def _member(self, cls: str, name: str) -> ReleaseSet:
        """Releases on which a cache has the member; of a cache of unknown class: on which any common class has it."""
        if cls != CACHE:
            return self.timeline.member(cls, name)
        found = ReleaseSet(0)
        for common in (*COMMON_CLASSES, *(STATE_CLASSES if name in STATE_MEMBERS else ())):
            found |= self.timeline.member(common, name)
        return found

    def has_member(self, name: str) -> bool:
        """True for a method that the models or the caches of some release have."""
        holders = (GENERATION_MIXIN, PRE_TRAINED_MODEL, *COMMON_CLASSES)
        return any(self.timeline.member(cls, name) for cls in holders)

    def _part(self, qualified: str) -> str:
        """ "layer" or "attention" for a class of a modeling file that is one and takes a cache; "" for any other name."""
        if not qualified.startswith("transformers.models."):
            return ""
        kind = self.timeline.class_kind(qualified)
        return kind if kind in ("layer", "attention") and self.timeline.forward_keywords(qualified) else ""

    def _layer_class(self, model: str) -> str:
        """The class of the layers of a model class, where its file has one ``XDecoderLayer`` (``XBlock``, ``XLayer``) only."""
        canonical = self.timeline.canonical(model) or model
        module = canonical.rpartition(".")[0]
        if not canonical.startswith("transformers.models.") or self.part(canonical):
            return ""
        names = [
            name for name in self.timeline.symbols() if name.rpartition(".")[0] == module and self.part(name) == "layer"
        ]
        return names[0] if len(names) == 1 else ""

    def _held_by(self, cls: str, attribute: str) -> str:
        """The class of the newest release that an attribute of a class of transformers holds, where it is one only."""
        canonical = self.timeline.canonical(cls) or cls
        dated = contracts_of(self.timeline.releases).held(canonical, attribute) if canonical else ()
        names = max(dated, key=lambda item: item[0].newest)[1] if dated else ()
        return names[0] if len(names) == 1 and self.part(names[0]) else ""

    def held_class(self, qualified: str) -> str:
        """One of the classes in a registry of a modeling file (``LLAMA_ATTENTION_CLASSES``); "" for any other name."""
        if not (qualified.startswith("transformers.models.") and qualified.rpartition(".")[2].isupper()):
            return ""
        held = self.timeline.held_classes(qualified)
        return held[-1][1][0] if held and held[-1][1] else ""

    def _cache_class(self, qualified: str) -> str | None:
        """The canonical name of a cache class of transformers, or None for any other name."""
        if not qualified.startswith("transformers."):
            return None
        canonical = self.timeline.canonical(qualified) or qualified
        return canonical if self.timeline.is_cache_class(canonical) else None


@lru_cache(maxsize=2)
def library_of(timeline: Timeline) -> Library:
    """The library of a timeline; its answers serve all files of a run."""
    return Library(timeline)


@lru_cache(maxsize=4096)
def is_torch_model_class(qualified: str) -> bool:
    """True for a PyTorch model class of transformers (by its name; TensorFlow and Flax classes are not)."""
    if not qualified.startswith("transformers."):
        return False
    name = qualified.rpartition(".")[2]
    if name.startswith(("TF", "Flax")) or not name[:1].isupper():
        return False
    if name.endswith(("Config", "Tokenizer", "TokenizerFast", "Processor")) or "Output" in name:
        return False  # `BaseModelOutputWithPast` is what a model returns
    return name.startswith("AutoModel") or any(base in name for base in MODEL_BASES)


COMPANIONS = frozenset(
    {
        *("peft", "trl", "unsloth", "adapters", "modelscope", "accelerate", "optimum.habana", "optimum.gptq"),
        *("optimum.quanto", "optimum.bettertransformer", "awq", "auto_gptq", "gptqmodel", "ipex_llm", "bigdl"),
        *("intel_extension_for_transformers", "sentence_transformers", "liger_kernel", "axolotl", "llamafactory"),
    }
)
"""Packages whose classes load, derive from or wrap the PyTorch models of transformers and hand their caches through."""
LOADERS = frozenset({"from_pretrained", "from_config", "_from_config"})


@lru_cache(maxsize=4096)
def is_foreign_loader(qualified: str) -> bool:
    """True for ``X.from_pretrained`` of a class that is not known to be one of transformers: where a name comes from
    tells what it builds (``ORTModelForCausalLM`` of optimum keeps tuples), not how it ends."""
    owner, _, method = qualified.rpartition(".")
    package = owner.partition(".")[0]
    if method not in LOADERS or not owner.rpartition(".")[2][:1].isupper() or package == "transformers":
        return False
    return not any(owner.startswith(f"{name}.") for name in COMPANIONS)


def is_foreign_class(qualified: str) -> bool:
    """True for a class of another library whose objects are no models of transformers, as far as names tell: classes that
    end like those (``LlavaForCausalLM``), and those of torch, of which all modules are objects, may be."""
    package, name = qualified.partition(".")[0], qualified.rpartition(".")[2]
    if package in ("", "transformers", "torch", name) or package in sys.stdlib_module_names or not name[:1].isupper():
        return False
    if any(qualified.startswith(f"{companion}.") for companion in COMPANIONS):
        return False
    return not any(name.endswith(base) for base in HOOK_BASES) and "Module" not in name


def is_hook_owner(qualified: str) -> bool:
    """True for a base class whose ``forward`` and generation hooks the library calls with a cache object."""
    return is_torch_model_class(qualified)


def is_output_class(qualified: str) -> bool:
    """True for classes of what a model returns (``modeling_outputs.py`` and the like): they are called so."""
    short = qualified.rpartition(".")[2]
    return qualified.startswith("transformers.") and "Output" in short and not short.startswith(("TF", "Flax"))


def is_own_module(bases: Sequence[str]) -> bool:
    """True for imported bases of a class that is a module of torch and nothing of transformers: ``generate`` never runs it."""
    return any(base.startswith("torch.nn.") for base in bases) and not any(
        base.startswith("transformers.") for base in bases
    )


def is_own(info: ClassInfo) -> bool:
    """True for a class of the project whose bases are all known and none of which is a class of transformers."""
    return info.bases_known() and not any(base.startswith("transformers.") for base in info.foreign_bases())


def is_record(info: ClassInfo) -> bool:
    """True for a dataclass, a named tuple or a typed dict of the project: what it keeps under a name is its own."""
    decorators = (ast.unparse(item) for item in info.node.decorator_list)
    records = any("dataclass" in text or text.startswith(("attr.", "attrs.", "define")) for text in decorators)
    return is_own(info) and (records or any(base.startswith("typing.") for base in info.foreign_bases()))


def is_layer_class(qualified: str) -> bool:
    """True for decoder layers and attention modules of transformers, by their name."""
    if not qualified.startswith("transformers."):
        return False
    name = qualified.rpartition(".")[2]
    return name.endswith(("Attention", "DecoderLayer", "Block", "FlashAttention2", "SdpaAttention"))
