"""Reads cache objects: which layers there are, what each of them holds, how many bytes that really takes.

All of it works on transformers 4.56 and newer; a cache without ``layers`` is refused by ``self_layers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvlint.runtime.environment import CACHE_NAMES, load_torch


class UnsupportedCache(TypeError):
    """The object is no cache of transformers that keeps its data in ``layers``."""


def self_attention(cache: Any) -> Any:
    """The self-attention half of an encoder-decoder cache, any other cache itself."""
    return getattr(cache, "self_attention_cache", cache)


def is_cache(value: Any) -> bool:
    """True for an object that keeps a list of cache layers and takes updates, whatever its class is called."""
    inner = self_attention(value)
    return isinstance(getattr(inner, "layers", None), list) and callable(getattr(inner, "update", None))


def is_legacy(value: Any) -> bool:
    """True for the format before caches were objects: a tuple (or list) of a tuple of tensors for each layer."""
    return (
        isinstance(value, (tuple, list))
        and bool(value)
        and all(isinstance(pair, (tuple, list)) and len(pair) >= 2 for pair in value)
        and all(hasattr(tensor, "shape") for pair in value for tensor in pair if tensor is not None)
    )


def output_cache(output: Any) -> Any:
    """The cache that a model's output carries, or None. Names are read through keys: 5.24 warns on old attributes.

    A tuple (``return_dict=False``) is searched for a cache object; one in the legacy format is returned as it is.
    """
    keys = set(output.keys()) if hasattr(output, "keys") else set()
    for name in CACHE_NAMES:
        if name in keys:
            return output[name]
    if keys:
        return next((output[key] for key in output if is_cache(output[key])), None)
    if isinstance(output, (tuple, list)):
        found = next((value for value in output if is_cache(value)), None)
        return found if found is not None else next((value for value in output[1:] if is_legacy(value)), None)
    return None


def self_layers(cache: Any) -> list[Any]:
    """The layers of *cache*; of an encoder-decoder cache those of its self-attention. Raises UnsupportedCache."""
    layers = getattr(self_attention(cache), "layers", None)
    if not isinstance(layers, list):
        raise UnsupportedCache(f"{type(cache).__name__} keeps no list of layers (transformers 4.56 and newer have it)")
    return layers


def cross_layers(cache: Any) -> list[Any]:
    """The cross-attention layers of an encoder-decoder cache, an empty list for any other."""
    inner = getattr(cache, "cross_attention_cache", None)
    return list(getattr(inner, "layers", []))


def is_sliding(layer: Any) -> bool:
    """True for layers that bound themselves to a window."""
    return bool(getattr(layer, "is_sliding", False))


def is_static(layer: Any) -> bool:
    """True for preallocated layers."""
    return hasattr(layer, "max_cache_len")


def is_quantized(layer: Any) -> bool:
    """True for layers that keep old rows quantized."""
    return hasattr(layer, "_quantized_keys")


def is_recurrent(layer: Any) -> bool:
    """True for layers with convolution or recurrent states."""
    return hasattr(layer, "recurrent_states")


def is_empty_by_design(layer: Any) -> bool:
    """True for the placeholder of layers that keep nothing (shared keys and values, layers without attention)."""
    return type(layer).__name__ == "DummyLayer"


def keys_of(layer: Any) -> Any | None:
    """The keys of *layer*, ``(batch, kv heads, length, head dim)``, or None where it holds none (yet)."""
    keys = getattr(layer, "keys", None)
    return keys if keys is not None and keys.numel() else None


def values_of(layer: Any) -> Any | None:
    """The values of *layer*, shaped as ``keys_of``, or None."""
    values = getattr(layer, "values", None)
    return values if values is not None and values.numel() else None


def states_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """Name and tensor of every convolution and recurrent state, and of indexer keys, that *layer* holds."""
    for name in ("conv_states", "recurrent_states"):
        states = getattr(layer, name, None)
        if isinstance(states, dict):
            yield from ((f"{name}[{index}]", tensor) for index, tensor in states.items() if tensor is not None)
        elif hasattr(states, "shape"):
            yield name, states
    indexer = getattr(layer, "indexer_keys", None)
    if indexer is not None and indexer.numel():
        yield "indexer_keys", indexer


def length_of(cache: Any, index: int) -> int | None:
    """``get_seq_length`` of layer *index* as a plain number, None where the layer does not count tokens."""
    inner = self_attention(cache)
    layer = self_layers(cache)[index]
    if not hasattr(layer, "get_seq_length"):
        return None
    try:
        return int(inner.get_seq_length(index))
    except (ValueError, NotImplementedError):
        return None


def mask_sizes_of(cache: Any, index: int, query_length: int) -> tuple[int, int] | None:
    """``(kv length, kv offset)`` that the mask of the next *query_length* tokens would be built with.

    None where the layer has none, or where its release still takes ``cache_position`` (before 5.4).
    """
    inner = self_attention(cache)
    layer = self_layers(cache)[index]
    if not hasattr(layer, "get_mask_sizes"):
        return None
    torch = load_torch()
    argument: Any = query_length
    if "cache_position" in inner.get_mask_sizes.__code__.co_varnames:
        start = length_of(cache, index) or 0
        argument = torch.arange(start, start + query_length)
    try:
        length, offset = inner.get_mask_sizes(argument, index)
    except (ValueError, NotImplementedError, AttributeError):
        return None
    return int(length), int(offset)


def tensors_of(holder: Any) -> Iterator[Any]:
    """Every tensor that *holder* (a layer) keeps for the sequence: keys, values, states, compressed rows, quantized
    parts with their scales, in whatever attribute; counters (integers without axes) are left out."""
    for name, value in vars(holder).items():
        if name != "_pending_beam_idx":  # an order that waits to be applied (quantized layers)
            yield from (one for one in _flat(value) if one.dim() or one.is_floating_point())


def beside_layers(cache: Any) -> Iterator[Any]:
    """Every tensor that a cache keeps on itself and not in its layers (states of a family's own cache class)."""
    for half in (self_attention(cache), getattr(cache, "cross_attention_cache", None)):
        for name, value in vars(half).items() if half is not None else ():
            if name not in ("layers", "self_attention_cache", "cross_attention_cache"):
                yield from _flat(value)


def _flat(value: Any) -> Iterator[Any]:
    torch = load_torch()
    if value is None:
        return
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif isinstance(value, torch.Tensor):
        inner = [getattr(value, name, None) for name in ("_data", "_scale", "_shift")]
        parts = [part for part in inner if isinstance(part, torch.Tensor)]
        if parts:
            for part in parts:
                packed = getattr(part, "_data", part)
                yield packed if isinstance(packed, torch.Tensor) else part
        else:
            yield value


def visible_bytes(layer: Any) -> int:
    """Bytes of the elements that the layer's tensors show."""
    return shown(tensors_of(layer))


def held_bytes(layer: Any) -> int:
    """Bytes of the storages behind the layer's tensors, each counted once.

    A slice keeps the whole storage it was cut from alive: a sliding layer holds the full prompt from its first
    forward until the next one.
    """
    return stored(tensors_of(layer))


def shown(tensors: Iterable[Any]) -> int:
    """Bytes of the elements of *tensors*."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def stored(tensors: Iterable[Any]) -> int:
    """Bytes of the storages behind *tensors*, each counted once."""
    sizes: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sizes[(str(tensor.device), storage.data_ptr())] = storage.nbytes()
    return sum(sizes.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of what one layer held at one moment; keys and values ``(batch, kv heads, length, head dim)``."""

    keys: Any | None
    values: Any | None
    states: tuple[tuple[str, Any], ...] = field(default=())
    length: int | None = None
    visible_bytes: int = 0
    held_bytes: int = 0


def snapshot(cache: Any) -> tuple[Snapshot, ...]:
    """A copy of every (self-attention) layer of *cache*."""
    if cache is None:
        return ()
    return tuple(
        Snapshot(
            keys=_copy(keys_of(layer)),
            values=_copy(values_of(layer)),
            states=tuple((name, _copy(tensor)) for name, tensor in states_of(layer)),
            length=length_of(cache, index),
            visible_bytes=visible_bytes(layer),
            held_bytes=held_bytes(layer),
        )
        for index, layer in enumerate(self_layers(cache))
    )


def cross_snapshot(cache: Any) -> tuple[Snapshot, ...]:
    """A copy of every cross-attention layer, empty for caches without."""
    return tuple(
        Snapshot(
            _copy(keys_of(layer)), _copy(values_of(layer)),
            visible_bytes=visible_bytes(layer), held_bytes=held_bytes(layer),
        )
        for layer in cross_layers(cache)
    )  # fmt: skip


def _copy(tensor: Any | None) -> Any | None:
    return None if tensor is None else tensor.detach().clone()
