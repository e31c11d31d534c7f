"""Axes of key and value tensors as symbols, and what tensor operations do to them.

A tensor is a row of axes; an axis is a product of *factors* in row-major order (``view(b, s, h * d)`` has an axis of two
factors, an axis of size one has none). A factor has an identity: what the code says about it in one place (``view(b, s,
self.num_heads, self.head_dim)``, an argument of scaled-dot-product attention) holds wherever the factor went since. The
roles themselves (batch, heads, sequence, head dim) are no part of the domain: they are looked up in the role book.

Everything here is a pure function of its arguments; None stands for "not known any more".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

Size = tuple[int, tuple[str, ...]]
"""A product: an integer and the symbols it is multiplied with, sorted. ``(1, ())`` is one."""

ONE: Size = (1, ())


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of an axis. *kind* is "features" (what a projection gives, not split yet), "copies" or ""."""

    key: str
    size: Size
    kind: str = ""


Axis = tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Lead:
    """The axes of tensor *key*, whose number is not known, without its last *drop* ones."""

    key: str
    drop: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: leading axes of unknown number (or none), then *axes*; *open* when unknown ones follow."""

    lead: Lead | None
    axes: tuple[Axis, ...] = ()
    open: bool = False
    tags: frozenset[str] = frozenset()
    """What it is by its name or its projection: key, value, query, past."""
    name: str = ""

    @property
    def rank(self) -> int | None:
        return len(self.axes) if self.lead is None and not self.open else None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, as the product it is; *factor* when it is the size of one axis. *names* are what it was called."""

    size: Size
    names: tuple[str, ...] = ()
    factor: Factor | None = None
    quotient: tuple[Scalar, Scalar] | None = None
    """The numbers it is the quotient of."""

    @property
    def value(self) -> int | None:
        return self.size[0] if not self.size[1] else None


@dataclass(frozen=True, slots=True)
class Dims:
    """A shape, or a part of one: the sizes of leading axes of unknown number (or none), then known ones."""

    lead: Lead | None
    items: tuple[Scalar, ...]
    tensor: Tensor | None = None
    """The tensor, where this is the whole of its shape."""


def product(left: Size, right: Size) -> Size:
    return left[0] * right[0], tuple(sorted(left[1] + right[1]))


def divide(left: Size, right: Size) -> Size | None:
    """The exact quotient, or None where it is not one."""
    if right[0] == 0 or left[0] % right[0]:
        return None
    rest = list(left[1])
    for symbol in right[1]:
        if symbol not in rest:
            return None
        rest.remove(symbol)
    return left[0] // right[0], tuple(rest)


def axis_size(axis: Axis) -> Size:
    total = ONE
    for factor in axis:
        total = product(total, factor.size)
    return total


def known_factor(key: str, index: int) -> Factor:
    """The axis at *index* of a tensor that nothing else is known of."""
    name = f"{key}[{index}]"
    return Factor(name, (1, (name,)))


def unknown_tensor(key: str, name: str = "", tags: frozenset[str] = frozenset()) -> Tensor:
    return Tensor(Lead(key), name=name, tags=tags)


# -- ranks -----------------------------------------------------------------------------------------------------------


def settle(tensor: Tensor, ranks: dict[str, int]) -> Tensor:
    """The tensor with its leading axes spelt out, where the rank of the tensor they come from is known."""
    lead = tensor.lead
    if lead is None or lead.key not in ranks:
        return tensor
    count = ranks[lead.key] - lead.drop
    if count < 0:
        return tensor
    axes = tuple((known_factor(lead.key, index),) for index in range(count))
    return replace(tensor, lead=None, axes=axes + tensor.axes)


def reveal(tensor: Tensor, count: int) -> Tensor:
    """At least *count* last axes spelt out, taken from the leading ones (counted from the end)."""
    while tensor.lead is not None and len(tensor.axes) < count:
        lead = tensor.lead
        factor = known_factor(lead.key, -lead.drop - 1)
        tensor = replace(tensor, lead=Lead(lead.key, lead.drop + 1), axes=((factor,), *tensor.axes))
    return tensor


def place(tensor: Tensor, index: int) -> int | None:
    """The position in ``tensor.axes`` of an axis index, or None where it is not among them."""
    count = len(tensor.axes)
    if tensor.lead is not None:
        return count + index if -count <= index < 0 else None
    if tensor.open:
        return index if 0 <= index < count else None
    return index % count if -count <= index < count else None


def axis_at(tensor: Tensor, index: int) -> Axis | None:
    """The axis at *index*; for a tensor of unknown rank, the symbol of that axis."""
    position = place(tensor, index)
    if position is not None:
        return tensor.axes[position]
    if tensor.open or tensor.lead is None:
        return None
    lead = tensor.lead
    if index >= 0:
        return (known_factor(lead.key, index),) if not tensor.axes else None
    return (known_factor(lead.key, index + len(tensor.axes) - lead.drop),)


# -- moving axes -----------------------------------------------------------------------------------------------------


def transpose(tensor: Tensor, first: int, second: int) -> Tensor | None:
    """``tensor.transpose(first, second)``."""
    lead = tensor.lead
    if lead is not None:
        if first < 0 and second < 0:
            tensor = reveal(tensor, max(-first, -second))
        elif first >= 0 and second >= 0 and not tensor.axes:
            axes = tuple((known_factor(lead.key, index),) for index in range(max(first, second) + 1))
            tensor = replace(tensor, lead=None, axes=axes, open=True)
        else:
            return None
    left, right = place(tensor, first), place(tensor, second)
    if left is None or right is None:
        return None
    axes_list = list(tensor.axes)
    axes_list[left], axes_list[right] = axes_list[right], axes_list[left]
    return replace(tensor, axes=tuple(axes_list))


def permute(tensor: Tensor, order: Sequence[int]) -> Tensor | None:
    """``tensor.permute(*order)`` of a tensor whose axes are all known."""
    rank = tensor.rank
    if rank is None or rank != len(order):
        return None
    positions = [index % rank for index in order if -rank <= index < rank]
    if sorted(positions) != list(range(rank)):
        return None
    return replace(tensor, axes=tuple(tensor.axes[index] for index in positions))


def move(tensor: Tensor, source: int, target: int) -> Tensor | None:
    """``torch.movedim(tensor, source, target)``."""
    rank = tensor.rank
    if rank is None or not (-rank <= source < rank and -rank <= target < rank):
        return None
    order = [index for index in range(rank) if index != source % rank]
    order.insert(target % rank, source % rank)
    return permute(tensor, order)


def insert(tensor: Tensor, index: int, axis: Axis = ()) -> Tensor | None:
    """The tensor with one more axis, at *index* of the result."""
    if tensor.lead is not None:
        if index >= 0:
            return None
        tensor = reveal(tensor, -index - 1)
        position = len(tensor.axes) + 1 + index
    elif tensor.open:
        if not 0 <= index <= len(tensor.axes):
            return None
        position = index
    else:
        count = len(tensor.axes) + 1
        if not -count <= index < count:
            return None
        position = index % count
    return replace(tensor, axes=(*tensor.axes[:position], axis, *tensor.axes[position:]))


def remove(tensor: Tensor, index: int) -> Tensor | None:
    """The tensor without the axis at *index* (one element of it was taken)."""
    if tensor.lead is not None and index < 0:
        tensor = reveal(tensor, -index)
    position = place(tensor, index)
    if position is None:
        return None
    return replace(tensor, axes=(*tensor.axes[:position], *tensor.axes[position + 1 :]))


def with_axis(tensor: Tensor, index: int, axis: Axis) -> Tensor | None:
    """The tensor with another axis at *index*."""
    if tensor.lead is not None and index < 0:
        tensor = reveal(tensor, -index)
    position = place(tensor, index)
    if position is None:
        return None
    return replace(tensor, axes=(*tensor.axes[:position], axis, *tensor.axes[position + 1 :]))


# -- copies ----------------------------------------------------------------------------------------------------------


def tiled(tensor: Tensor, index: int, copies: Factor) -> Tensor | None:
    """All of the axis, several times over: ``repeat``, ``tile``, ``cat([x] * n)``."""
    axis = axis_at(tensor, index)
    return None if axis is None else with_axis(tensor, index, (copies, *axis))


def interleaved(tensor: Tensor, index: int, copies: Factor) -> Tensor | None:
    """Every element of the axis several times: ``repeat_interleave``, ``numpy.repeat``."""
    axis = axis_at(tensor, index)
    return None if axis is None else with_axis(tensor, index, (*axis, copies))


# -- reshaping -------------------------------------------------------------------------------------------------------

Split = Callable[[Factor, Scalar | None, int], Factor]
"""Makes the part of a factor that a target size takes (None: the rest of it); the number says which part it is."""


def reshape(tensor: Tensor, targets: Sequence[Scalar | None], split: Split) -> Tensor | None:
    """``tensor.reshape(*targets)`` of a tensor whose axes are all known; a target of None stands for -1.

    The factors are laid out in row-major order and the targets take them from the left, and behind a -1 from the right.
    A factor is split only where it is divided by what is taken, or is an undivided projection. None where the sizes
    cannot be told to fit.
    """
    if tensor.rank is None or sum(target is None for target in targets) > 1:
        return None
    flat = [factor for axis in tensor.axes for factor in axis]
    wild = next((index for index, target in enumerate(targets) if target is None), None)
    if wild is None:
        taken = take(flat, list(targets), split, from_left=True)
        if taken is None:
            return None
        axes, rest = taken
        if rest:
            return None
        return replace(tensor, axes=tuple(axes))
    before = take(flat, list(targets[:wild]), split, from_left=True, partial=True)
    if before is None:
        return None
    after = take(before[1], list(targets[wild + 1 :])[::-1], split, from_left=False, partial=True)
    if after is None:
        return None
    middle = tuple(after[1])
    return replace(tensor, axes=(*before[0], middle, *after[0][::-1]))


def take(
    flat: list[Factor], targets: list[Scalar | None], split: Split, from_left: bool, partial: bool = False
) -> tuple[list[Axis], list[Factor]] | None:
    """The axes that *targets* take from one end of *flat*, and the factors that are left."""
    rest = list(flat)
    axes: list[Axis] = []
    parts = 0
    for number, target in enumerate(targets):
        assert target is not None
        wanted = target.size
        axis: list[Factor] = []
        last = number == len(targets) - 1 and not partial
        while wanted != ONE:
            if not rest:
                return None
            end = 0 if from_left else len(rest) - 1
            factor = rest[end]
            left = divide(wanted, factor.size)
            if left is not None:
                axis.append(rest.pop(end))
                wanted = left
                parts = 0
                continue
            divided = divide(factor.size, wanted)
            if divided is not None:
                part = split(factor, replace(target, size=wanted), parts)
                rest[end] = replace(split(factor, None, parts + 1), size=divided)
                axis.append(part)
                parts += 1
                break
            if factor.kind != "features" or wanted != target.size:
                return None
            if last and len(rest) == 1:
                axis.append(split(rest.pop(end), target, parts))
                break
            axis.append(split(factor, target, parts))
            parts += 1
            if only_ones(targets[number + 1 :]):
                rest.pop(end)
            break
        else:
            parts = 0 if not axis else parts
        axes.append(tuple(axis) if from_left else tuple(axis[::-1]))
    return axes, rest


def only_ones(targets: Sequence[Scalar | None]) -> bool:
    return bool(targets) and all(target is not None and target.size == ONE for target in targets)
