"""Which dtypes the keys and values of each layer may have, read from the weights and not from the cache.

A model need not have one dtype: embeddings or norms are often kept in float32 above layers in bfloat16, adapters are,
and under autocast keys have a dtype that no weight has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvlint.runtime.environment import load_torch


def layer_dtypes(model: Any) -> dict[int, frozenset[Any]]:
    """By layer index the dtypes of the weights of its attention: of every module that knows its ``layer_idx``.

    A layer whose weights are quantized is left out: what it computes in is not the dtype of any weight.
    """
    found: dict[int, set[Any]] = {}
    quantized: set[int] = set()
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        if not isinstance(index, int):
            continue
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.dim() < 2:
                continue
            if tensor.is_floating_point() and tensor.dtype.itemsize > 1:
                found.setdefault(index, set()).add(tensor.dtype)
            else:
                quantized.add(index)
    return {index: frozenset(dtypes) for index, dtypes in found.items() if index not in quantized}


def weight_dtypes(model: Any) -> frozenset[Any]:
    """The floating dtypes of all weights, those of one byte left out."""
    return frozenset(p.dtype for p in model.parameters() if p.is_floating_point() and p.dtype.itemsize > 1)


def coarsest(model: Any) -> Any:
    """The least precise floating dtype among the weights: results are no better than that."""
    torch = load_torch()
    return max(weight_dtypes(model), key=lambda dtype: float(torch.finfo(dtype).eps), default=torch.float32)


def allowed(model: Any, extra: Any = None) -> Callable[[int], frozenset[Any] | None]:
    """A function from a layer's index to the dtypes that its keys and values may have, None where that is unknown.

    *extra* (the dtype of autocast) is allowed everywhere. Where no module knows its layer, all weights count.
    """
    more = frozenset() if extra is None else frozenset({extra})
    known = layer_dtypes(model)
    if not any(isinstance(getattr(module, "layer_idx", None), int) for module in model.modules()):
        everywhere = weight_dtypes(model) | more
        return lambda index: everywhere or None
    return lambda index: known[index] | more if index in known else None
