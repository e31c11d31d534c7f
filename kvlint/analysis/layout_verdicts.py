"""Judges what the layout interpreter recorded: wrong, right, or undecided, and by what evidence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvlint.analysis.layout import Scalar, Tensor, known_factor
from kvlint.analysis.layout_facts import Layouts
from kvlint.analysis.layout_roles import (
    BATCH,
    GROUP,
    HEAD_DIM,
    HEADS,
    SEQUENCE,
    Evidence,
    Strength,
    is_heads,
    role_of,
    roles_of,
)
from kvlint.analysis.layout_values import Append, Attend, Cut, Expansion, LengthRead, Site, tags_of
from kvlint.nodes import code_of, walk

LENGTH_BOUND = re.compile(
    r"(?i)len|seq(?!_?dim)|window|tokens|past|keep|max_cache|max_pos|context|cache_size|n_ctx|num_to|accepted|offset|cutoff"
)
LENGTH_CONTRADICTION = re.compile(r"(?i)len|offset|seq|past")
PAST_LENGTH = re.compile(r"(?i)past|kv_?seq|cache|offset|prev|kv_?len")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows for one place. *outcome* is wrong, right or undecided; *role* is the axis that is really meant."""

    site: Site
    outcome: str
    role: str = ""
    evidence: Evidence | None = None
    tensor: Tensor | None = None
    sequence: int | None = None
    """Index of the sequence axis, where it is known."""
    note: str = ""


def appends(layouts: Layouts) -> Iterator[Verdict]:
    """The verdict on every append."""
    pending: list[Append] = []
    contradicted: list[Verdict] = []
    for contexts in layouts.sites(Append):
        found = [append_verdict(layouts, site) for site in contexts if isinstance(site, Append)]
        verdict = combine(found)
        if verdict.outcome != "undecided":
            yield verdict
            continue
        assert isinstance(verdict.site, Append)
        by_length = contradiction(layouts, verdict.site)
        if by_length is not None:
            contradicted.append(by_length)
            yield by_length
        else:
            pending.append(verdict.site)
    for site in pending:
        twin = next((item for item in contradicted if are_twins(item.site, site)), None)
        if twin is not None:
            yield Verdict(site, "wrong", twin.role, twin.evidence, site.new[0], twin.sequence, twin.note)
        else:
            yield Verdict(site, "undecided", tensor=site.new[0])


def combine(found: Sequence[Verdict]) -> Verdict:
    """One verdict for a place that was seen in several contexts."""
    wrong = [item for item in found if item.outcome == "wrong"]
    right = [item for item in found if item.outcome == "right"]
    if wrong and not right:
        return wrong[0]
    if right and not wrong:
        return right[0]
    first = found[0]
    return Verdict(first.site, "undecided", tensor=first.tensor)


def append_verdict(layouts: Layouts, site: Append) -> Verdict:
    new = [axis_verdict(layouts, tensor, site.axis) for tensor in possible(layouts, site)]
    old = [axis_verdict(layouts, tensor, site.axis) for tensor in site.old]
    outcomes_new, outcomes_old = {item[0] for item in new}, {item[0] for item in old}
    for mine, other in ((new, outcomes_old), (old, outcomes_new)):
        if not mine:
            continue
        kinds = {item[0] for item in mine}
        made_so = mine is old and site.how == "slice" and all(is_laid_out(item[2]) for item in mine)
        if kinds == {"wrong"} and ("right" not in other or made_so):
            _, role, evidence, tensor = mine[0]
            return Verdict(site, "wrong", role, evidence, tensor, layouts.sequence_axis(tensor))
        if kinds == {"right"} and "wrong" not in other:
            return Verdict(site, "right", mine[0][1], mine[0][2], mine[0][3])
    return Verdict(site, "undecided", tensor=site.new[0])


def is_laid_out(evidence: Evidence | None) -> bool:
    """True where the code itself lays the axis out so: what is written into such a buffer has to fit it."""
    return evidence is not None and evidence.strength == Strength.STRUCTURE


def possible(layouts: Layouts, site: Append) -> tuple[Tensor, ...]:
    """The alternatives for the new tensor that can be joined to the old one at all: those with as many axes."""
    ranks = {layouts.settled(tensor).rank for tensor in site.old}
    if len(ranks) != 1 or None in ranks:
        return site.new
    fitting = tuple(tensor for tensor in site.new if layouts.settled(tensor).rank in (None, *ranks))
    return fitting or site.new


def axis_verdict(layouts: Layouts, tensor: Tensor, index: int) -> tuple[str, str, Evidence | None, Tensor]:
    """Whether an append along this axis extends the sequence."""
    axis = layouts.axis(tensor, index)
    if axis is None:
        return "undecided", "", None, tensor
    factors = [factor for factor in axis if factor.kind != "copies"]
    if len(factors) == 1 and factors[0].kind == "features":
        return "undecided", "", None, tensor
    evidence = layouts.roles.axis(axis)
    if evidence is None:
        weak = layouts.roles.axis(axis, Strength.CONVENTION)
        if weak is not None and weak.role == SEQUENCE:
            return "right", SEQUENCE, weak, tensor
        roles = (
            [layouts.role_at(tensor, position) for position in range(4)] if layouts.settled(tensor).rank == 4 else []
        )
        if (
            len(roles) == 4
            and roles[index % 4] is None
            and index % 4 != 0
            and HEAD_DIM in roles
            and any(is_heads(role) for role in roles)
        ):
            return "right", SEQUENCE, None, tensor
        return "undecided", "", None, tensor
    if evidence.role == SEQUENCE:
        return "right", SEQUENCE, evidence, tensor
    if is_heads(evidence.role) or evidence.role == HEAD_DIM:
        if layouts.settled(tensor).rank == 4 or (
            evidence.role == HEAD_DIM and (index < 0 or evidence.strength >= Strength.STRUCTURE)
        ):
            return "wrong", HEADS if is_heads(evidence.role) else HEAD_DIM, evidence, tensor
    return "undecided", evidence.role, evidence, tensor


def contradiction(layouts: Layouts, site: Append) -> Verdict | None:
    """The code itself takes another axis of the same tensors for their length (``offset += keys.shape[2]``)."""
    for tensor in (*site.new, *site.old):
        tensor = layouts.settled(tensor)
        if tensor.lead is None or tensor.axes or tensor.lead.drop or tensor.lead.key == "?":
            continue
        key = tensor.lead.key
        indexes = range(4) if site.axis >= 0 else range(-4, 0)
        told = {
            index: found
            for index in indexes
            if (found := layouts.roles.own(known_factor(key, index).key, Strength.LENGTH)[0]) is not None
            and found.strength == Strength.LENGTH
            and LENGTH_CONTRADICTION.search(found.text)
        }
        if len(told) == 1 and site.axis not in told:
            index, found = next(iter(told.items()))
            if any(layouts.roles.evidence(known_factor(key, other).key) is not None for other in indexes):
                continue
            return Verdict(site, "wrong", "", found, tensor, index, f"the length is read from axis {index}")
    return None


def are_twins(one: Site, other: Site) -> bool:
    """Keys and values appended in the same way, in the same function."""
    return (
        isinstance(one, Append)
        and isinstance(other, Append)
        and one.function is other.function
        and one.axis == other.axis
        and one.part != other.part
        and abs(one.node.lineno - other.node.lineno) <= 4
    )


def lengths(layouts: Layouts) -> Iterator[Verdict]:
    """Lengths read from the axis of heads, of head dims, or (for the length of a past) of the batch."""
    contradicted = same_tensor_lengths(layouts)
    for contexts in layouts.sites(LengthRead):
        verdicts = []
        for site in contexts:
            assert isinstance(site, LengthRead)
            found = [layouts.evidence(tensor, site.axis) for tensor in site.tensors]
            roles = {item.role if item is not None else None for item in found}
            bad = {
                role
                for role in roles
                if role is not None
                and (is_heads(role) or role == HEAD_DIM or (role == BATCH and PAST_LENGTH.search(site.name)))
            }
            ranked = all(layouts.settled(tensor).rank == 4 for tensor in site.tensors)
            if bad and len(roles) == 1 and ranked:
                role = next(iter(bad))
                verdicts.append(
                    Verdict(
                        site,
                        "wrong",
                        HEADS if is_heads(role) else role,
                        found[0],
                        site.tensors[0],
                        layouts.sequence_axis(site.tensors[0]),
                    )
                )
            elif roles == {SEQUENCE}:
                verdicts.append(Verdict(site, "right", SEQUENCE, found[0], site.tensors[0]))
            else:
                verdicts.append(Verdict(site, "undecided", tensor=site.tensors[0]))
        verdict = combine(verdicts)
        pair = contradicted.get(id(verdict.site.node))
        if verdict.outcome == "undecided" and pair is not None:
            other = pair[1]
            evidence = Evidence(
                SEQUENCE, Strength.LENGTH, other.node, f"read from axis {other.axis} as `{other.name}` here"
            )
            verdict = Verdict(verdict.site, "wrong", HEAD_DIM, evidence, None, other.axis)
        yield verdict


def same_tensor_lengths(layouts: Layouts) -> dict[int, tuple[LengthRead, LengthRead]]:
    """Lengths of one tensor read from two axes, the last one and the one before: the last is the wrong one of the two.

    The key is the identity of the wrong place; the value holds it and the other one.
    """
    reads: dict[str, list[LengthRead]] = {}
    for contexts in layouts.sites(LengthRead):
        for site in contexts:
            assert isinstance(site, LengthRead)
            for tensor in site.tensors:
                lead = layouts.settled(tensor).lead
                if lead is not None and not tensor.axes and not lead.drop:
                    reads.setdefault(lead.key, []).append(site)
    found: dict[int, tuple[LengthRead, LengthRead]] = {}
    for sites in reads.values():
        for last, before in ((-1, -2), (3, 2)):
            wrong = [site for site in sites if site.axis == last]
            right = [site for site in sites if site.axis == before]
            if wrong and right:
                found |= {id(site.node): (site, right[0]) for site in wrong}
    return found


def cuts(layouts: Layouts) -> Iterator[Verdict]:
    """Slices to a length, and reorderings of rows, on an axis that is something else."""
    for contexts in layouts.sites(Cut):
        verdicts = []
        for site in contexts:
            assert isinstance(site, Cut)
            wanted = BATCH if site.how == "reorder" else SEQUENCE
            if site.how == "reorder" and "beam" not in site.bound.lower():
                continue
            if site.how != "reorder" and not LENGTH_BOUND.search(site.bound):
                continue
            found = [layouts.evidence(tensor, site.axis) for tensor in site.tensors]
            roles = {item.role if item is not None else None for item in found}
            ranked = all(layouts.settled(tensor).rank == 4 for tensor in site.tensors)
            role = next(iter(roles)) if len(roles) == 1 else None
            wrong = (
                is_heads(role)
                or (site.how == "reorder" and role in (HEAD_DIM, SEQUENCE))
                or (role == HEAD_DIM and not re.search(r"(?i)dim|rot|half|//\s*2", site.bound))
            )
            if role == HEAD_DIM and site.how != "reorder":
                wrong = wrong and any("past" in tensor.tags for tensor in site.tensors)
            if ranked and wrong:
                verdicts.append(
                    Verdict(
                        site,
                        "wrong",
                        HEADS if is_heads(role) else str(role),
                        found[0],
                        site.tensors[0],
                        layouts.sequence_axis(site.tensors[0]),
                    )
                )
            elif role == wanted:
                verdicts.append(Verdict(site, "right", wanted, found[0], site.tensors[0]))
            else:
                verdicts.append(Verdict(site, "undecided", tensor=site.tensors[0]))
        if verdicts:
            yield combine(verdicts)


def attentions(layouts: Layouts) -> Iterator[Verdict]:
    """Keys (and values) handed over in the other of the two layouts."""
    for contexts in layouts.sites(Attend):
        verdicts = [attention_verdict(layouts, site) for site in contexts if isinstance(site, Attend)]
        yield combine(verdicts)


def attention_verdict(layouts: Layouts, site: Attend) -> Verdict:
    if site.name == "memory_efficient_attention":
        return Verdict(site, "undecided")
    keys = site.tensors[0] if site.name == "update" else site.tensors[1]
    outcomes = set()
    evidence: Evidence | None = None
    for tensor in keys:
        if layouts.settled(tensor).rank != 4:
            return Verdict(site, "undecided", tensor=tensor)
        second, third = (layouts.evidence(tensor, index, Strength.STRUCTURE) for index in (1, 2))
        heads_first = second is not None and is_heads(second.role)
        heads_third = third is not None and is_heads(third.role)
        if heads_first == heads_third:
            return Verdict(site, "undecided", tensor=tensor)
        last = layouts.evidence(tensor, 3, Strength.STRUCTURE)
        if heads_third and (last is None or last.role != HEAD_DIM):
            return Verdict(site, "undecided", tensor=tensor)
        wrong = heads_third if site.wants == "heads-first" else heads_first
        outcomes.add("wrong" if wrong else "right")
        evidence = third if heads_third else second
    if len(outcomes) != 1:
        return Verdict(site, "undecided")
    return Verdict(site, outcomes.pop(), HEADS, evidence, keys[0])


def expansions(layouts: Layouts) -> Iterator[Verdict]:
    """Copies of kv heads in the wrong order, or along an axis that is not the heads."""
    for contexts in layouts.sites(Expansion):
        verdicts = [expansion_verdict(layouts, site) for site in contexts if isinstance(site, Expansion)]
        yield combine(verdicts)


def expansion_verdict(layouts: Layouts, site: Expansion) -> Verdict:
    tensor = site.tensors[0]
    axis = layouts.axis(tensor, site.axis)
    evidence = layouts.evidence(tensor, site.axis)
    role = evidence.role if evidence is not None else None
    grouped = is_group_count(layouts, site)
    divided = axis is not None and len(axis) == 1 and divides(site.count, axis[0].size)
    if site.order == "interleaved":
        if is_heads(role) or divided:
            return Verdict(site, "right", HEADS, evidence, tensor)
        if (
            grouped
            and role in (SEQUENCE, HEAD_DIM, BATCH)
            and is_state(layouts, site)
            and layouts.settled(tensor).rank == 4
        ):
            return Verdict(site, "wrong", str(role), evidence, tensor)
        return Verdict(site, "undecided", tensor=tensor)
    if (is_heads(role) and grouped and is_state(layouts, site)) or (divided and (is_heads(role) or role is None)):
        if queries_are_tiled(layouts, site.function):
            return Verdict(site, "undecided", tensor=tensor)
        note = "" if is_state(layouts, site) else "groups"
        return Verdict(site, "wrong", HEADS, evidence, tensor, note=note)
    if role in (BATCH, SEQUENCE, HEAD_DIM):
        return Verdict(site, "right", str(role), evidence, tensor)
    return Verdict(site, "undecided", tensor=tensor, note="group" if grouped and is_state(layouts, site) else "")


def is_state(layouts: Layouts, site: Expansion) -> bool:
    """True where the tensor is a key or a value, by its name, or by the name of the function that expands it."""
    if any(tensor.tags & {"key", "value", "kv"} for tensor in site.tensors):
        return True
    name = getattr(site.function, "name", "")
    return bool(re.search(r"(?i)kv|key|gqa|grouped_q", name)) and not any(
        "query" in tensor.tags for tensor in site.tensors
    )


def is_group_count(layouts: Layouts, site: Expansion) -> bool:
    """True where the number of copies is query heads over kv heads."""
    count = site.count
    if count is None:
        return False
    if role_of(count) == GROUP:
        return True
    if count.quotient is not None:
        roles = []
        for part in count.quotient:
            role = role_of(part)
            if role is None and part.factor is not None:
                role = layouts.roles.role(part.factor.key)
            roles.append(role)
        return all(is_heads(role) for role in roles)
    return False


def divides(count: Scalar | None, size: tuple[int, tuple[str, ...]]) -> bool:
    """True where the count is ``something // size of the axis``, with heads above: so many query heads share one."""
    if count is None or count.quotient is None:
        return False
    above, below = count.quotient
    return below.size == size and bool(below.size[1]) and is_heads(role_of(above))


def queries_are_tiled(layouts: Layouts, function: ast.AST | None) -> bool:
    """True where the queries of the function are grouped in the same order (``q.view(b, n_rep, n_kv, s, d)``)."""
    if function is None:
        return False
    memo = layouts.facts.memo
    key = ("queries are tiled", id(function))
    if key not in memo:
        memo[key] = has_tiled_queries(function)
    return bool(memo[key])


def has_tiled_queries(function: ast.AST) -> bool:
    """The same, looked for."""
    for node in walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("view", "reshape", "unflatten")
        ):
            base = code_of(node.func.value)
            if "query" not in tags_of(base.rpartition(".")[2]) and "query" not in tags_of(
                base.split(".")[0].split("(")[0]
            ):
                continue
            items = (
                node.args[0].elts
                if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List))
                else node.args
            )
            names = [item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in items]
            roles = roles_of([Scalar((1, (name,)), (name,)) for name in names])
            if GROUP in roles and any(is_heads(role) for role in roles):
                return roles.index(GROUP) < next(index for index, role in enumerate(roles) if is_heads(role))
    return False
