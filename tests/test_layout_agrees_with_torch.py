"""Random chains of tensor operations, run in torch: whenever the analysis claims an axis, torch agrees.

Every element of the tensor holds the number of its own place (row, token, head, component). Along an axis that is claimed
to be the heads, say, only the head may change from one element to the next.
"""

from __future__ import annotations

import einops
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layout_helpers import last_tensor, layouts_of

from kvlint.analysis.layout_roles import BATCH, HEAD_DIM, HEADS, KV_HEADS, SEQUENCE, Strength

B, S, H, D = 2, 3, 5, 7
COORDINATES = {BATCH: 0, SEQUENCE: 1, HEADS: 2, KV_HEADS: 2, HEAD_DIM: 3}
FIRST = (
    "k.view(b, s, num_heads, head_dim)",
    "k.view(b, -1, num_heads, head_dim)",
    "k.view(b, s, -1, head_dim)",
    "k.reshape(b, s, num_heads, -1)",
    "k.unflatten(-1, (num_heads, head_dim))",
    "k.view(*x.shape[:-1], num_heads, head_dim)",
    "k.view(x.size()[:-1] + (num_heads, head_dim))",
    "k.view((*x.shape[:2], num_heads, head_dim))",
    "rearrange(k, 'b s (h d) -> b s h d', h=num_heads)",
    "rearrange(k, 'b n (h d) -> b h n d', h=num_heads)",
    "split(k, num_heads, head_dim)",
    "k.view(b * s, num_heads, head_dim)",
    "k.view(b, s, 1, num_heads, head_dim)",
    "k.view(b, s, num_heads, head_dim).transpose(1, 2)",
)


def run(code: str) -> torch.Tensor:
    """The value of ``k`` after the body of the function, for a projection that changes nothing."""
    names = {"torch": torch, "rearrange": einops.rearrange, "k_proj": lambda x: x}
    exec(compile(code, "chain", "exec"), names)
    result = names["attend"](torch.arange(B * S * H * D).view(B, S, H * D), H, D)  # type: ignore[operator]
    assert isinstance(result, torch.Tensor)
    return result


@st.composite
def chains(draw: st.DrawFn) -> str:
    """A function that lays a projection out."""
    lines = [
        "def split(k, heads, dim):",
        "    return k.view(k.size(0), k.size(1), heads, dim)",
        "def attend(x, num_heads, head_dim):",
        "    b, s, _ = x.shape",
        "    k = k_proj(x)",
        "    k = " + draw(st.sampled_from(FIRST)),
    ]
    value = run("\n".join([*lines, "    return k"]))
    for _ in range(draw(st.integers(0, 6))):
        lines.append("    k = " + draw(steps(value)))
        value = run("\n".join([*lines, "    return k"]))
    return "\n".join([*lines, "    return k"])


@st.composite
def steps(draw: st.DrawFn, value: torch.Tensor) -> str:
    """One more operation that the tensor allows."""
    rank = value.dim()
    axis = st.integers(0, rank - 1)
    either = st.integers(-rank, rank - 1)
    options = ["transpose", "permute", "swapaxes", "movedim", "unsqueeze", "none", "slice", "cat", "contiguous", "add"]
    if rank > 2:
        options += ["flatten", "select", "merge", "negative merge"]
    if value.numel() < 20_000 and rank < 6:
        options += ["repeat", "interleave", "stack", "expand"]
    kind = draw(st.sampled_from(options))
    if kind in ("transpose", "swapaxes", "movedim"):
        one, other = draw(either), draw(either)
        return f"torch.movedim(k, {one}, {other})" if kind == "movedim" else f"k.{kind}({one}, {other})"
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        return f"k.permute({', '.join(map(str, order))})"
    if kind == "unsqueeze":
        return f"k.unsqueeze({draw(st.integers(-rank - 1, rank))})"
    if kind == "none":
        position = draw(axis)
        return f"k[{', '.join([':'] * position + ['None'] + [':'] * (rank - position))}]"
    if kind == "slice":
        position = draw(axis)
        return f"k[{', '.join([':'] * position + ['1:' if value.shape[position] > 1 else ':'] + [':'] * (rank - position - 1))}]"
    if kind == "cat":
        return f"torch.cat([k, k + 0], dim={draw(either)})"
    if kind == "stack":
        return f"torch.stack([k, k + 0], dim={draw(either)})"
    if kind == "select":
        return f"k.select({draw(axis)}, 0)"
    if kind == "flatten":
        first = draw(st.integers(0, rank - 2))
        return f"k.flatten({first}, {draw(st.integers(first, rank - 1))})"
    if kind in ("merge", "negative merge"):
        first = draw(st.integers(0, rank - 2))
        sizes = [f"k.shape[{index}]" for index in range(rank)]
        merged = "-1" if kind == "negative merge" else f"{sizes[first]} * {sizes[first + 1]}"
        return f"k.reshape({', '.join([*sizes[:first], merged, *sizes[first + 2 :]])})"
    if kind == "repeat":
        position = draw(axis)
        return f"k.repeat({', '.join('2' if index == position else '1' for index in range(rank))})"
    if kind == "interleave":
        return f"k.repeat_interleave(2, dim={draw(either)})"
    if kind == "expand":
        position = draw(axis)
        sizes = ["-1"] * (rank + 1)
        sizes[position] = "2"
        return f"k.unsqueeze({position}).expand({', '.join(sizes)})"
    return "k + 1 - 1" if kind == "add" else "k.contiguous()"


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
)
@given(chains())
def test_claimed_axes_are_what_torch_makes_of_them(code: str) -> None:
    value = run(code)
    layouts = layouts_of(code)
    tensor = last_tensor(layouts, "k")
    if tensor is None:
        return
    tensor = layouts.settled(tensor)
    if tensor.rank is None:
        return
    assert tensor.rank == value.dim(), code
    for index, axis in enumerate(tensor.axes):
        if not axis:
            assert value.shape[index] == 1, f"axis {index} of\n{code}"
        if len(axis) != 1:
            continue
        evidence = layouts.roles.axis(axis, Strength.CONVENTION)
        if evidence is None or axis[0].kind == "copies":
            continue
        line = value
        for other in reversed([number for number in range(value.dim()) if number != index]):
            line = line.select(other, 0)
        places = [coordinates(int(item)) for item in line]
        for coordinate in range(4):
            if coordinate != COORDINATES[evidence.role]:
                assert len({place[coordinate] for place in places}) == 1, (
                    f"axis {index} is called {evidence.role} in\n{code}"
                )


def coordinates(number: int) -> tuple[int, int, int, int]:
    """Row, token, head and component of an element."""
    number, component = divmod(number, D)
    number, head = divmod(number, H)
    row, token = divmod(number, S)
    return row, token, head, component


def test_most_chains_are_followed_to_the_end() -> None:
    """The test above means little where the analysis claims nothing."""
    claimed = total = 0
    for first in FIRST:
        for step in (
            "k.transpose(1, 2)",
            "k.permute(0, 2, 1, 3)",
            "k.flatten(2, 3)",
            "k.contiguous()",
            "k[:, :, None]",
        ):
            code = "\n".join(
                [
                    "def split(k, heads, dim):",
                    "    return k.view(k.size(0), k.size(1), heads, dim)",
                    "def attend(x, num_heads, head_dim):",
                    "    b, s, _ = x.shape",
                    "    k = k_proj(x)",
                    f"    k = {first}",
                    f"    k = {step}",
                ]
            )
            tensor = last_tensor(layouts_of(code), "k")
            total += 1
            claimed += tensor is not None and tensor.lead is None
    assert claimed >= 0.85 * total
