"""Gets the model to check: from a path or an id, or with random weights from a configuration, shrunk.

Remote code runs only where asked for, and weights are read from safetensors only unless pickles are allowed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from kvlint.runtime.environment import load_torch, load_transformers
from kvlint.runtime.shrinking import Sizes, shrink


class ModelUnavailable(RuntimeError):
    """The model cannot be had: a wrong path or id, files that are missing, a refused format. The message says which."""


class NotConstructible(RuntimeError):
    """A model of this type cannot be built from its configuration alone; the message says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from.

    *name* is a path, a hub id, or (with *random_weights*) a model type or the path of a ``config.json``. *dtype* is
    a torch dtype's name or "auto", *attention* an attention implementation's name or empty for the model's own.
    A model that brings its own code (``auto_map``) is refused unless *trust_remote_code* runs that code or
    *ignore_remote_code* says that the library's code is meant.
    """

    name: str
    random_weights: bool = False
    layers: int | None = None
    hidden: int | None = None
    device: str = "cpu"
    dtype: str = "auto"
    attention: str = ""
    trust_remote_code: bool = False
    ignore_remote_code: bool = False
    allow_pickle: bool = False
    seed: int = 0
    shrunk: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in eval mode on its device, with its configuration."""

    model: Any
    config: Any
    name: str
    model_type: str

    @property
    def encoder_decoder(self) -> bool:
        """True for models that take encoder and decoder ids."""
        return bool(getattr(self.config, "is_encoder_decoder", False))


_MAPPINGS = (
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "AutoModelForSpeechSeq2Seq"),
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "AutoModelForSeq2SeqLM"),
    ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "AutoModelForCausalLM"),
    ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "AutoModelForImageTextToText"),
    ("MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES", "AutoModelForMultimodalLM"),
    ("MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES", "AutoModelForTextToWaveform"),
)
"""The tables of transformers that list models with a decoder, and the auto class of each, in order of preference."""


def model_types() -> tuple[str, ...]:
    """Every model type with a decoder that the installed transformers can build, sorted."""
    load_transformers()
    from transformers.models.auto import modeling_auto

    names: set[str] = set()
    for table, _ in _MAPPINGS:
        names |= set(getattr(modeling_auto, table, ()))
    return tuple(sorted(names))


def load(source: Source) -> Loaded:
    """The model of *source*. Raises ModelUnavailable or NotConstructible; an out-of-memory error passes through."""
    if source.random_weights:
        return next(candidates(source))
    return _pretrained(source)


def candidates(source: Source) -> Iterator[Loaded]:
    """Random models of *source*, the most telling shrinking first.

    Not every family accepts every shrinking (a head dim that must be derived, heads that cannot be grouped), so the
    caller takes the first that runs. Raises NotConstructible where none can even be built.
    """
    config_class, config, from_type = _configuration(source)
    problems: list[str] = []
    built = False
    for sizes, grouped in _attempts(source, from_type):
        try:
            loaded = _random(source, config_class, config, sizes, grouped)
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever a configuration or constructor raises on sizes it does not accept
            problems.append(describe(error))
            continue
        built = True
        yield loaded
    if not built:
        raise NotConstructible(f"cannot be built from a configuration alone: {problems[0]}")


def _attempts(source: Source, from_type: bool) -> Iterator[tuple[Sizes | None, bool]]:
    if not source.shrunk:
        yield None, False
        return
    base = Sizes()
    if source.hidden:
        base = replace(base, hidden=source.hidden, head_dim=max(8, source.hidden // base.query_heads * 2))
    if source.layers:
        base = replace(base, layers=source.layers)
    derived = replace(base, head_dim=base.derived_head_dim)
    yield base, from_type
    yield derived, from_type
    yield base, False
    yield derived, False
    yield replace(base, head_dim=24), from_type  # equal to the nope + rope dims of a shrunk latent attention
    yield replace(derived, query_heads=2, kv_heads=2, head_dim=base.hidden // 2), False
    yield replace(base, fill=True), from_type
    yield replace(derived, keep_layers=True), from_type


def _configuration(source: Source) -> tuple[Any, dict[str, Any], bool]:
    """The configuration class, its dictionary, and whether it comes from a bare model type."""
    load_transformers()
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    path = Path(source.name)
    if path.is_file():
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"{path} is no configuration: {error}") from error
        if isinstance(data, dict) and _own_code(data):
            if source.trust_remote_code:
                config = AutoConfig.from_pretrained(str(path.parent), trust_remote_code=True)
                return type(config), {**config.to_dict(), "_name_or_path": str(path.parent)}, False
            _refuse_own_code(source, data)
        if not isinstance(data, dict) or data.get("model_type") not in CONFIG_MAPPING:
            raise ModelUnavailable(f"{path} has no model_type that the installed transformers knows")
        return CONFIG_MAPPING[data["model_type"]], CONFIG_MAPPING[data["model_type"]].from_dict(data).to_dict(), False
    if source.name in CONFIG_MAPPING and not path.exists():
        config_class = CONFIG_MAPPING[source.name]
        try:
            return config_class, config_class().to_dict(), True
        except Exception as error:  # strict configurations raise their own types
            raise NotConstructible(f"has no default configuration: {describe(error)}") from error
    require_reachable(source.name)
    try:
        _refuse_own_code(source, PretrainedConfig.get_config_dict(source.name)[0])
        config = AutoConfig.from_pretrained(source.name, trust_remote_code=source.trust_remote_code)
    except ModelUnavailable:
        raise
    except Exception as error:  # network, repository, JSON and remote-code errors all mean the same here
        raise ModelUnavailable(
            f"{source.name} is neither a model type, nor a config.json, nor a model that can be read: {describe(error)}"
        ) from error
    return type(config), config.to_dict(), False


def _random(source: Source, config_class: Any, config: dict[str, Any], sizes: Sizes | None, grouped: bool) -> Loaded:
    torch = load_torch()
    data = dict(config) if sizes is None else shrink(config, sizes, group_heads=grouped)
    place = data.get("_name_or_path")
    for key in ("model_type", "transformers_version", "architectures", "torch_dtype", "dtype", "_name_or_path"):
        data.pop(key, None)
    own_code = bool(_own_code(data)) and source.trust_remote_code
    if not own_code:
        data.pop("auto_map", None)
    # Encoders that can also decode (BERT and its kin) attend causally, and cache, only when told.
    if data.get("is_decoder") is False:
        data["is_decoder"] = True
    built = config_class(**data)
    torch.manual_seed(source.seed)
    dtype = torch.float32 if source.dtype == "auto" else getattr(torch, source.dtype)
    auto = _auto_class(built)
    arguments: dict[str, Any] = {"attn_implementation": source.attention} if source.attention else {}
    if own_code:
        built._name_or_path = place
        arguments["trust_remote_code"] = True
    if sizes is None:
        _refuse_giants(auto, built, arguments)
    model = auto.from_config(built, **arguments).to(dtype).to(source.device).eval()
    _forget_padding(model)
    return Loaded(model, model.config, source.name, str(getattr(built, "model_type", "")))


def _auto_class(config: Any) -> Any:
    """The auto class that builds *config* with its decoder: sequence-to-sequence tables count for encoder-decoders, or
    where no other lists the type; causal for whatever is listed nowhere, remote code included."""
    import transformers
    from transformers.models.auto import modeling_auto

    kind = str(getattr(config, "model_type", ""))
    listed = [name for table, name in _MAPPINGS if kind in getattr(modeling_auto, table, ())]
    if not getattr(config, "is_encoder_decoder", False):
        listed.sort(key=lambda name: "Seq2Seq" in name)
    name = next((name for name in listed if hasattr(transformers, name)), "AutoModelForCausalLM")
    return getattr(transformers, name)


def _refuse_giants(auto: Any, config: Any, arguments: dict[str, Any]) -> None:
    """Raises NotConstructible when the unshrunk model would have more than two thousand million parameters."""
    torch = load_torch()
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in auto.from_config(config, **arguments).parameters())
    if count > 2e9:
        raise NotConstructible(f"has {count / 1e9:.1f} thousand million parameters at full size")


def _forget_padding(model: Any) -> None:
    """Gives the padding row of embeddings real weights: a zero row would hide a wrong token at that position."""
    torch = load_torch()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                if module.num_embeddings > 8:
                    module.weight[module.padding_idx].normal_(0.0, 0.1)


def _pretrained(source: Source) -> Loaded:
    torch = load_torch()
    load_transformers()
    from transformers import AutoConfig, PretrainedConfig

    arguments: dict[str, Any] = {"trust_remote_code": source.trust_remote_code}
    require_reachable(source.name)
    try:
        _refuse_own_code(source, PretrainedConfig.get_config_dict(source.name)[0])
        config = AutoConfig.from_pretrained(source.name, **arguments)
        auto = _auto_class(config)
        if source.attention:
            arguments["attn_implementation"] = source.attention
        model = auto.from_pretrained(
            source.name,
            dtype="auto" if source.dtype == "auto" else getattr(torch, source.dtype),
            use_safetensors=None if source.allow_pickle else True,
            **arguments,
        )
    except (torch.cuda.OutOfMemoryError, ModelUnavailable):
        raise
    except Exception as error:  # the hub client, the loaders and remote code raise many types
        raise ModelUnavailable(f"cannot load {source.name}: {describe(error)}{_hint(error, source)}") from error
    model = model.to(source.device).eval()
    return Loaded(model, model.config, source.name, str(getattr(model.config, "model_type", "")))


def _own_code(config: Mapping[str, Any]) -> str:
    """The code that a configuration's ``auto_map`` asks for ("modeling_own.OwnModel"), empty without: tokenizers and
    processors do not count."""
    asked = config.get("auto_map")
    if not isinstance(asked, Mapping):
        return ""
    names = [key for key in asked if str(key).startswith(("AutoModel", "AutoConfig"))]
    best = next((key for key in names if str(key).startswith("AutoModel")), names[0] if names else "")
    return str(asked[best]) if best else ""


def _refuse_own_code(source: Source, config: Mapping[str, Any]) -> None:
    """Raises ModelUnavailable where the library's code would be checked in place of the model's own, unasked."""
    code = _own_code(config)
    if code and not source.trust_remote_code and not source.ignore_remote_code:
        raise ModelUnavailable(
            f"{source.name} brings its own code ({code}), which was not run: --trust-remote-code runs it, "
            "--ignore-remote-code checks the code of transformers in its place"
        )


def require_reachable(name: str) -> None:
    """Raises ModelUnavailable at once, and not after half a minute of retries, where *name* is a hub id that is not in
    the local cache and the hub cannot be reached; and where it can only be a path, and there is none."""
    if Path(name).exists():
        return
    if name.startswith((".", "/", "~")) or (os.sep != "/" and os.sep in name) or name.count("/") > 1:
        raise ModelUnavailable(f"cannot load {name}: there is no such folder or file")
    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    if constants.HF_HUB_OFFLINE:
        raise ModelUnavailable(f"cannot load {name}: it is not in the local cache, and HF_HUB_OFFLINE is set")
    if getproxies():
        return
    host = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=3).close()
    except OSError as error:
        raise ModelUnavailable(
            f"cannot load {name}: it is not in the local cache, and {host.hostname} cannot be reached "
            f"({error}); give a folder, or --random-weights and a model type"
        ) from error


def _hint(error: Exception, source: Source) -> str:
    """Which option lets through what was refused."""
    text = str(error)
    if "trust_remote_code" in text and not source.trust_remote_code:
        return " (--trust-remote-code runs the model's own code)"
    if "safetensors" in text and not source.allow_pickle:
        return " (--allow-pickle reads other weight files)"
    return ""


def describe(error: BaseException, limit: int = 200) -> str:
    """One line for an exception: its type and the first line of its text, cut to *limit* characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:limit] if text else type(error).__name__
