"""The members that ``kvlint shim`` can back-fill, as working code.

kvlint reads this file as text and copies what is needed into the module that it writes; only tests import it. A
definition says with ``adds`` what it puts where, with ``for_old_code`` what it answers in place of a member that exists
with another meaning. Whatever a definition uses is copied along.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import PreTrainedModel, cache_utils
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache, StaticCache

OLD_FILES: tuple[str, ...] = ()
"""Names of the files that this module is for."""
OLD_CLASSES: dict[str, tuple[str, ...]] = {}
"""Classes of those files, with the methods that know the cache by an old name, or as a tuple, only."""

CACHE_NAMES = ("cache", "past_key_values", "past_key_value", "cache_params", "layer_past")

_ADDITIONS: list[tuple[str, Any]] = []
_CHANGES: list[tuple[str, str, Any]] = []


# -- putting it in --------------------------------------------------------------------------------------------------


def install() -> list[str]:
    """Puts in what is missing and returns its names; does nothing on a release that has it all. May be called again."""
    done: list[str] = []
    done += add_missing()
    done += answer_old_code()
    done += adapt_old_classes()
    return done


def adds(key: str) -> Callable[[Any], Any]:
    """Marks what ``install`` adds to a class or a module of transformers, unless that has it."""

    def register(value: Any) -> Any:
        _ADDITIONS.append((key, value))
        return value

    return register


def add_missing() -> list[str]:
    """Adds the members that are not there."""
    done = []
    for key, value in _ADDITIONS:
        owner, _, name = key.rpartition(".")
        for place in places(owner):
            if not hasattr(place, name):
                setattr(place, name, value)
                done.append(f"{place.__name__}.{name}")
    return done


def places(owner: str) -> list[Any]:
    """A cache class, or a module of transformers; the top level too where it showed the names of that module."""
    found = getattr(cache_utils, owner, None)
    if found is not None:
        return [found]
    if owner == "cache_utils":
        return [cache_utils, transformers]
    qualified = f"transformers.{owner}"
    try:
        return [importlib.import_module(qualified)]
    except ModuleNotFoundError:
        module = types.ModuleType(qualified, "Back-filled: this release of transformers has no such module.")
        sys.modules[qualified] = module
        setattr(transformers, owner, module)
        return [module]


def for_old_code(key: str, since: str) -> Callable[[Any], Any]:
    """Marks what the old files get in place of a member that means something else *since* a release.

    The function takes the member as its first argument (None where there is none). Everybody else gets the member.
    """

    def register(function: Any) -> Any:
        _CHANGES.append((key, since, function))
        return function

    return register


def answer_old_code() -> list[str]:
    """Makes members that have changed answer in the old way, to the old files only."""
    done = []
    for key, since, function in _CHANGES:
        owner, _, name = key.rpartition(".")
        place = getattr(cache_utils, owner)
        original = getattr(place, name, None)
        if Version(transformers.__version__) < Version(since) and original is not None:
            continue
        if getattr(original, "answers_old_code", False):
            continue
        setattr(place, name, two_faced(function, original, name))
        done.append(f"{owner}.{name} (for {', '.join(OLD_FILES)})")
    return done


def two_faced(function: Any, original: Any, name: str) -> Any:
    """A method that is *function* for the old files and *original* for all others."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if called_by_old_code(sys._getframe(1)):
            return function(original, self, *args, **kwargs)
        if original is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return original(self, *args, **kwargs)

    if original is not None:
        functools.update_wrapper(method, original)
    method.answers_old_code = True  # type: ignore[attr-defined]
    return method


def called_by_old_code(frame: types.FrameType) -> bool:
    """Whether the code of *frame* stands in one of the old files (transformers has files of the same names)."""
    module = str(frame.f_globals.get("__name__"))
    return os.path.basename(frame.f_code.co_filename) in OLD_FILES and not module.startswith("transformers.")


def adapt_old_classes() -> list[str]:
    """Adapts the classes of the old files: those that exist, and models also when they are defined later."""
    done = [name for cls in all_subclasses(torch.nn.Module) for name in adapt(cls)]
    before = PreTrainedModel.__dict__.get("__init_subclass__")
    if OLD_CLASSES and not getattr(getattr(before, "__func__", None), "adapts_old_classes", False):
        inherited = before.__func__ if before is not None else None

        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            if inherited is not None:
                inherited(cls, **kwargs)
            else:
                super(PreTrainedModel, cls).__init_subclass__(**kwargs)
            adapt(cls)

        init_subclass.adapts_old_classes = True  # type: ignore[attr-defined]
        setattr(PreTrainedModel, "__init_subclass__", classmethod(init_subclass))  # noqa: B010
        done.append("PreTrainedModel.__init_subclass__ (adapts the classes of the old files)")
    return done


def all_subclasses(cls: type) -> Iterator[type]:
    children: list[type] = cls.__subclasses__()
    for child in children:
        yield child
        yield from all_subclasses(child)


def adapt(cls: type) -> list[str]:
    """Makes the methods of an old class take the cache under the name that the library passes it by."""
    module = sys.modules.get(cls.__module__)
    if (
        cls.__module__.startswith("transformers.")
        or os.path.basename(getattr(module, "__file__", "") or "") not in OLD_FILES
    ):
        return []
    done = []
    for name in OLD_CLASSES.get(cls.__name__, ()):
        method = cls.__dict__.get(name)
        if method is not None and not hasattr(method, "adapted"):
            setattr(cls, name, reordering(method) if name == "_reorder_cache" else taking_the_cache(method))
            done.append(f"{cls.__name__}.{name}")
    return done


def with_positions_cut(inputs: Any) -> Any:
    """Model inputs with as many positions as tokens: newer releases hand over those of the whole sequence."""
    tokens, positions = inputs.get("input_ids"), inputs.get("position_ids")
    if tokens is not None and positions is not None and positions.shape[-1] > tokens.shape[-1]:
        inputs["position_ids"] = positions[..., -tokens.shape[-1] :]
    return inputs


def reordering(function: Any) -> Any:
    """``_reorder_cache`` that leaves a cache object to itself; *function* is for tuples."""

    def reorder(self: Any, past_key_values: Any, beam_idx: Any) -> Any:
        if not isinstance(past_key_values, Cache):
            return function.__get__(self, type(self))(past_key_values, beam_idx)
        past_key_values.reorder_cache(beam_idx)
        return past_key_values

    reorder.adapted = True  # type: ignore[attr-defined]
    return reorder


def taking_the_cache(function: Any) -> Any:
    """*function* with the cache handed to the parameter that it has for it."""
    signature = inspect.signature(function)
    own = next(name for name in signature.parameters if name in CACHE_NAMES)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in CACHE_NAMES:
            if name not in signature.parameters and name in kwargs:
                given = kwargs.pop(name)
                if given is not None and kwargs.get(own) is None:
                    kwargs[own] = given
        result = function(*args, **kwargs)
        return with_positions_cut(result) if function.__name__ == "prepare_inputs_for_generation" else result

    parameters = list(signature.parameters.values())
    added = inspect.Parameter("cache", inspect.Parameter.KEYWORD_ONLY, default=None)
    last = parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters[:-1], added, parameters[-1]] if last else [*parameters, added]
    )
    call.adapted = True  # type: ignore[attr-defined]
    return call


# -- members of caches ----------------------------------------------------------------------------------------------


def is_filled(layer: Any) -> bool:
    return getattr(layer, "keys", None) is not None


def has_own_storage(cache: Any) -> bool:
    """Whether the cache is of a class from elsewhere that keeps keys and values itself."""
    return not type(cache).update.__module__.startswith("transformers.")


class LayerTensors(list[Any]):
    """``key_cache`` or ``value_cache``: a list whose items are the tensors of the layers, to read and to write."""

    def __init__(self, cache: Any, part: str) -> None:
        self.cache, self.part = cache, part
        super().__init__(self._current())

    def _current(self) -> list[Any]:
        tensors = [getattr(layer, self.part, None) for layer in self.cache.layers]
        while tensors and tensors[-1] is None and isinstance(self.cache, DynamicCache):
            tensors.pop()
        return tensors

    def __len__(self) -> int:
        return len(self._current())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._current())

    def __getitem__(self, index: Any) -> Any:
        return self._current()[index]

    def __setitem__(self, index: Any, tensor: Any) -> None:
        if isinstance(index, slice):
            for position, one in zip(range(*index.indices(len(self))), tensor, strict=True):
                self[position] = one
            return
        position = index + len(self) if index < 0 else index
        layers = self.cache.layers
        if position == len(layers):
            new_layer: Any = cache_utils.DynamicLayer
            layers.append(new_layer())
        layer = layers[position]
        setattr(layer, self.part, tensor)
        if not layer.is_initialized and layer.keys is not None and layer.values is not None:
            layer.is_initialized, layer.dtype, layer.device = True, tensor.dtype, tensor.device
        if layer.is_initialized and hasattr(layer, "cumulative_length") and isinstance(self.cache, DynamicCache):
            layer.cumulative_length = layer.keys.shape[-2]
        super().__init__(self._current())

    def append(self, tensor: Any) -> None:
        self[len(self)] = tensor

    def extend(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            self.append(tensor)


class TensorLists:
    """The attribute ``key_cache`` or ``value_cache``; a cache with storage of its own keeps its own lists."""

    def __init__(self, name: str, part: str) -> None:
        self.name, self.part = name, part

    def __get__(self, cache: Any, owner: Any = None) -> Any:
        if cache is None:
            return self
        if self.name in cache.__dict__:
            return cache.__dict__[self.name]
        if has_own_storage(cache):
            raise AttributeError(f"{type(cache).__name__!r} object has no attribute {self.name!r}")
        return LayerTensors(cache, self.part)

    def __set__(self, cache: Any, tensors: Any) -> None:
        if has_own_storage(cache) or not hasattr(cache, "layers"):
            cache.__dict__[self.name] = tensors
            return
        tensors = list(tensors)
        del cache.layers[len(tensors) :]
        view = LayerTensors(cache, self.part)
        for position, tensor in enumerate(tensors):
            view[position] = tensor


adds("Cache.key_cache")(TensorLists("key_cache", "keys"))
adds("Cache.value_cache")(TensorLists("value_cache", "values"))


class SeenTokens:
    """The attribute ``seen_tokens`` or ``_seen_tokens``: how many tokens the layers have seen, whatever is assigned."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, cache: Any, owner: Any = None) -> Any:
        if cache is None:
            return self
        return cache.__dict__[self.name] if self.name in cache.__dict__ else int(cache.get_seq_length())

    def __set__(self, cache: Any, number: Any) -> None:
        if has_own_storage(cache):
            cache.__dict__[self.name] = number


adds("Cache.seen_tokens")(SeenTokens("seen_tokens"))
adds("Cache._seen_tokens")(SeenTokens("_seen_tokens"))


@adds("Cache.__getitem__")
def getitem(self: Any, layer_idx: int) -> tuple[Any, ...]:
    """The keys and values of one layer, of both kinds of attention where there are two. Raises KeyError, as it did, for
    a layer without any."""
    if isinstance(self, EncoderDecoderCache):
        both: tuple[Any, ...] = to_legacy_cache_of_both(self)[layer_idx]
        return both
    filled = sum(map(is_filled, self.layers))
    if not -filled <= layer_idx < filled:
        raise KeyError(f"Cache only has {filled} layers, attempted to access layer with index {layer_idx}")
    layer = self.layers[layer_idx if layer_idx >= 0 else filled + layer_idx]
    return layer.keys, layer.values


@adds("Cache.get_usable_length")
def get_usable_length(self: Any, new_seq_length: int, layer_idx: int = 0) -> int:
    """How many of the cached tokens stay when *new_seq_length* come: all of them, unless the cache is bounded."""
    layers = getattr(self, "self_attention_cache", self).layers
    limit = layers[layer_idx].max_cache_len if isinstance(self, StaticCache) and layer_idx < len(layers) else None
    previous = int(self.get_seq_length(layer_idx))
    if limit is not None and previous + new_seq_length > limit:
        return int(limit - new_seq_length)
    return previous


@for_old_code("Cache.get_max_length", since="5.13")
def get_max_length(original: Any, self: Any, *args: Any) -> int | None:
    """The longest that the cache can be, None where there is no bound."""
    return length_limit(self)


@adds("Cache.get_max_cache_shape:None")
def get_max_cache_shape_or_none(self: Any, layer_idx: int = 0) -> int | None:
    """The longest that the cache can be, None where there is no bound (as until 4.53)."""
    return length_limit(self)


@adds("Cache.get_max_cache_shape")
def get_max_cache_shape(self: Any, layer_idx: int = 0) -> int:
    """The longest that the cache can be, -1 where there is no bound (as from 4.54 on)."""
    limit = length_limit(self)
    return -1 if limit is None else limit


def length_limit(cache: Any) -> int | None:
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None)
    if layers is None:  # until 4.53; None stood for no bound there
        limit: int | None = cache.get_max_cache_shape()
        return limit
    longest = max((int(getattr(layer, "max_cache_len", -1)) for layer in layers), default=-1)
    return longest if longest > 0 else None


@for_old_code("Cache.crop", since="5.14")
def crop(original: Any, self: Any, max_length: int) -> None:
    """Cuts the cache to its first *max_length* tokens; below zero, removes so many."""
    crop_to(original, self, max_length)


@for_old_code("EncoderDecoderCache.crop", since="5.14")
def crop_both(original: Any, self: Any, maximum_length: int) -> None:
    """Cuts the self-attention cache to its first *maximum_length* tokens; below zero, removes so many."""
    crop_to(original, self, maximum_length)


def crop_to(original: Any, cache: Any, length: int) -> None:
    removed = -length if length < 0 else int(cache.get_seq_length()) - length
    if removed > 0:
        original(cache, -removed)


@for_old_code("DynamicCache.__iter__", since="5.0")
def iter_pairs(original: Any, self: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and values of each layer."""
    return iter([(layer.keys, layer.values) for layer in self.layers if is_filled(layer)])


@for_old_code("EncoderDecoderCache.__iter__", since="5.0")
def iter_quadruples(original: Any, self: Any) -> Iterator[tuple[Any, ...]]:
    """The keys and values of the self-attention, then of the cross-attention, of each layer."""
    return iter(to_legacy_cache_of_both(self))


@adds("DynamicCache.to_legacy_cache")
def to_legacy_cache(self: Any) -> tuple[tuple[Any, Any], ...]:
    """A tuple with the keys and values of each layer."""
    return tuple((layer.keys, layer.values) for layer in self.layers if is_filled(layer))


def from_legacy_cache(cls: Any, past_key_values: Any = None) -> Any:
    """A cache with the keys and values of a tuple; an empty one for None."""
    cache = cls()
    for layer_idx, layer in enumerate(past_key_values if past_key_values is not None else ()):
        cache.update(layer[0], layer[1], layer_idx)
    return cache


adds("DynamicCache.from_legacy_cache")(classmethod(from_legacy_cache))


@adds("EncoderDecoderCache.to_legacy_cache")
def to_legacy_cache_of_both(self: Any) -> tuple[tuple[Any, ...], ...]:
    """A tuple with the keys and values of the self-attention, then of the cross-attention, of each layer."""
    own = [(layer.keys, layer.values) for layer in self.self_attention_cache.layers if is_filled(layer)]
    cross = [(layer.keys, layer.values) for layer in self.cross_attention_cache.layers if is_filled(layer)]
    return tuple(pair + (cross[index] if cross else ()) for index, pair in enumerate(own))


def from_legacy_cache_of_both(cls: Any, past_key_values: Any = None) -> Any:
    """A cache with the keys and values of a tuple of pairs or of quadruples; an empty one for None."""
    cache = cls(DynamicCache(), DynamicCache())
    for layer_idx, layer in enumerate(past_key_values if past_key_values is not None else ()):
        cache.self_attention_cache.update(layer[0], layer[1], layer_idx)
        if len(layer) > 2:
            cache.cross_attention_cache.update(layer[2], layer[3], layer_idx)
            cache.is_updated[layer_idx] = True
    return cache


adds("EncoderDecoderCache.from_legacy_cache")(classmethod(from_legacy_cache_of_both))


@adds("DynamicCache.batch_split")
def batch_split(self: Any, full_batch_size: int, split_size: int, num_hidden_layers: int | None = None) -> list[Any]:
    """Caches of at most *split_size* rows of the batch each."""
    splits = []
    for start in range(0, full_batch_size, split_size):
        split = DynamicCache()
        for layer_idx, layer in enumerate(self.layers):
            rows = slice(start, start + split_size)
            split.update(layer.keys[rows], layer.values[rows], layer_idx)
        splits.append(split)
    return splits


def from_batch_splits(cls: Any, splits: list[Any], num_hidden_layers: int | None = None) -> Any:
    """The reverse of ``batch_split``."""
    cache = cls()
    for layer_idx in range(len(splits[0].layers)):
        parts = [split.layers[layer_idx] for split in splits]
        keys, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("keys", "values"))
        cache.update(keys, values, layer_idx)
    return cache


adds("DynamicCache.from_batch_splits")(classmethod(from_batch_splits))


def max_batch_size(self: Any) -> int:
    """The rows of the batch; -1 before the first update."""
    return int(self.batch_size)


adds("Cache.max_batch_size")(property(max_batch_size))


def max_cache_len(self: Any) -> int:
    """The length of the longest layer."""
    limit = length_limit(self)
    return -1 if limit is None else limit


adds("Cache.max_cache_len")(property(max_cache_len))


# -- classes of caches ----------------------------------------------------------------------------------------------


class FixedCache(StaticCache):
    """A static cache with the arguments of old: it takes batch size, device and type from the first update."""

    offloading = False

    def __init__(
        self,
        config: Any,
        max_batch_size: int | None = None,
        max_cache_len: int | None = None,
        device: Any = None,
        dtype: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        length = max_cache_len if max_cache_len is not None else config.max_position_embeddings
        super().__init__(config=config, max_cache_len=length, offloading=self.offloading)


@adds("cache_utils.HybridCache")
class HybridCache(FixedCache):
    """A static cache: each layer is of the kind that the config says."""


@adds("cache_utils.HybridChunkedCache")
class HybridChunkedCache(FixedCache):
    """A static cache: each layer is of the kind that the config says."""


@adds("cache_utils.SlidingWindowCache")
class SlidingWindowCache(FixedCache):
    """A static cache: each layer is of the kind that the config says."""


@adds("cache_utils.OffloadedStaticCache")
class OffloadedStaticCache(FixedCache):
    """A static cache that keeps only the layer at work on the device."""

    offloading = True


@adds("cache_utils.OffloadedHybridCache")
class OffloadedHybridCache(FixedCache):
    """A static cache that keeps only the layer at work on the device."""

    offloading = True


@adds("cache_utils.OffloadedCache")
class OffloadedCache(DynamicCache):
    """A dynamic cache that keeps only the layer at work on the device."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config, offloading=True)


# -- masks ----------------------------------------------------------------------------------------------------------


def causal_mask(length: int, past: int, dtype: Any, device: Any, window: int | None) -> Any:
    """``[1, 1, length, past + length]``: 0 where a query may look, the lowest number of *dtype* elsewhere."""
    query = torch.arange(past, past + length, device=device)[:, None]
    key = torch.arange(past + length, device=device)[None, :]
    hidden = key > query
    if window is not None:
        hidden = hidden | (key < query - window)
    return masked(hidden[None, None], dtype)


def masked(hidden: Any, dtype: Any) -> Any:
    """0 and the lowest number of *dtype*, for False and True."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill(hidden, torch.finfo(dtype).min)


def padding_mask(mask: Any, length: int | None, dtype: Any) -> Any:
    """``[batch, 1, length, keys]`` out of ``[batch, keys]``, where 1 stands for a token and 0 for padding."""
    batch, keys = mask.shape
    hidden = mask[:, None, None, :].expand(batch, 1, keys if length is None else length, keys) == 0
    return masked(hidden, dtype)


def combined_mask(mask: Any, shape: Any, like: Any, past: int, window: int | None) -> Any:
    """The causal mask with the padding; None where there is nothing to hide."""
    length = int(shape[-1])
    if mask is not None and mask.dim() == 4:
        return masked(mask == 0, like.dtype)
    causal = causal_mask(length, past, like.dtype, like.device, window) if length > 1 or window is not None else None
    if mask is None:
        return causal if causal is None else causal.expand(int(shape[0]), 1, *causal.shape[-2:])
    padding = padding_mask(mask, length, like.dtype).to(like.device)
    return padding if causal is None else causal.masked_fill(padding < 0, torch.finfo(like.dtype).min)


def unmask_hidden_rows(mask: Any, lowest: Any) -> Any:
    """Lets queries that may look nowhere look everywhere: a softmax over nothing is not a number."""
    return mask.mul(~torch.all(mask == lowest, dim=-1, keepdim=True))


@adds("modeling_attn_mask_utils._prepare_4d_causal_attention_mask")
def _prepare_4d_causal_attention_mask(
    attention_mask: Any,
    input_shape: Any,
    inputs_embeds: Any,
    past_key_values_length: int,
    sliding_window: int | None = None,
) -> Any:
    return combined_mask(attention_mask, input_shape, inputs_embeds, past_key_values_length, sliding_window)


@adds("modeling_attn_mask_utils._prepare_4d_causal_attention_mask_for_sdpa")
def _prepare_4d_causal_attention_mask_for_sdpa(
    attention_mask: Any,
    input_shape: Any,
    inputs_embeds: Any,
    past_key_values_length: int,
    sliding_window: int | None = None,
) -> Any:
    mask = combined_mask(attention_mask, input_shape, inputs_embeds, past_key_values_length, sliding_window)
    return mask if mask is None else unmask_hidden_rows(mask, torch.finfo(mask.dtype).min)


@adds("modeling_attn_mask_utils._prepare_4d_attention_mask")
def _prepare_4d_attention_mask(mask: Any, dtype: Any, tgt_len: int | None = None) -> Any:
    return padding_mask(mask, tgt_len, dtype)


@adds("modeling_attn_mask_utils._prepare_4d_attention_mask_for_sdpa")
def _prepare_4d_attention_mask_for_sdpa(mask: Any, dtype: Any, tgt_len: int | None = None) -> Any:
    return padding_mask(mask, tgt_len, dtype)


@adds("modeling_attn_mask_utils._create_4d_causal_attention_mask")
def _create_4d_causal_attention_mask(
    input_shape: Any, dtype: Any, device: Any, past_key_values_length: int = 0, sliding_window: int | None = None
) -> Any:
    mask = causal_mask(int(input_shape[-1]), past_key_values_length, dtype, device, sliding_window)
    return mask.expand(int(input_shape[0]), 1, *mask.shape[-2:])


@adds("modeling_attn_mask_utils.AttentionMaskConverter")
class AttentionMaskConverter:
    """Masks of four axes, for causal attention or not."""

    def __init__(self, is_causal: bool, sliding_window: int | None = None) -> None:
        self.is_causal, self.sliding_window = is_causal, sliding_window

    def to_causal_4d(
        self, batch_size: int, query_length: int, key_value_length: int, dtype: Any, device: Any = "cpu"
    ) -> Any:
        if query_length == 1 and self.sliding_window is None:
            return None
        mask = causal_mask(query_length, key_value_length - query_length, dtype, device, self.sliding_window)
        return mask.expand(batch_size, 1, *mask.shape[-2:])

    def to_4d(self, attention_mask_2d: Any, query_length: int, dtype: Any, key_value_length: int | None = None) -> Any:
        if not self.is_causal:
            return padding_mask(attention_mask_2d, query_length, dtype)
        past = (key_value_length or query_length) - query_length
        like = torch.empty(0, dtype=dtype, device=attention_mask_2d.device)
        return combined_mask(attention_mask_2d, (len(attention_mask_2d), query_length), like, past, self.sliding_window)

    @staticmethod
    def _make_causal_mask(
        input_ids_shape: Any,
        dtype: Any,
        device: Any,
        past_key_values_length: int = 0,
        sliding_window: int | None = None,
    ) -> Any:
        mask = causal_mask(int(input_ids_shape[-1]), past_key_values_length, dtype, device, sliding_window)
        return mask.expand(int(input_ids_shape[0]), 1, *mask.shape[-2:])

    @staticmethod
    def _expand_mask(mask: Any, dtype: Any, tgt_len: int | None = None) -> Any:
        return padding_mask(mask, tgt_len, dtype)

    @staticmethod
    def _unmask_unattended(expanded_mask: Any, min_dtype: Any) -> Any:
        return unmask_hidden_rows(expanded_mask, min_dtype)

    @staticmethod
    def _ignore_causal_mask_sdpa(*args: Any, **kwargs: Any) -> bool:
        """A mask is always made: leaving it out only saves time."""
        return False
