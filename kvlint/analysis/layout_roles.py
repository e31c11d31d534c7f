"""What an axis is for: roles, the names that tell them, and the book in which the evidence is collected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from kvlint.analysis.layout import Axis, Scalar
from kvlint.nodes import walk

BATCH, HEADS, KV_HEADS, SEQUENCE, HEAD_DIM = "batch", "heads", "kv heads", "sequence", "head dim"
FEATURES, GROUP = "features", "group"


class Strength(IntEnum):
    """How good the evidence for a role is."""

    CONVENTION = 0
    """Hidden states are ``[batch, sequence, features]``: decides that an append is right, never that one is wrong."""
    LENGTH = 1
    """The code itself takes the axis for the number of tokens (``offset += keys.shape[2]``)."""
    CONSUMER = 2
    """What is done with the tensor only makes sense so (``scaled_dot_product_attention``, an einsum)."""
    NAMED = 3
    """Its size is unpacked into a name that says so (``b, n_heads, s, head_dim = k.shape``)."""
    STRUCTURE = 4
    """The code lays it out so (``view(b, s, heads, head_dim)``), or the library promises it."""


GROUP_NAME = re.compile(
    r"(?:^|_)(?:n_?rep|num_?rep|reps?|repeats?|n_?groups?|num_groups?|groups?|group_size|kv_groups|gqa_ratio|gqa_factor|expansion)$"
    r"|key_value_groups|(?:q|queries|query|heads)_per_(?:kv|group)|n_rep|num_repeats?|head_groups"
)
KV_HEADS_NAME = re.compile(
    r"(?:kv|key_?value|key|k)_?(?:n_?)?heads?(?:_|$)|query_groups|groups_per_partition|(?:^|_)(?:n_?kv|num_?kv|kvh|hkv|h_kv|nkv|kv_nh|kv_h|n_kv_h|h_k|hk)$"
)
HEAD_DIM_NAME = re.compile(
    r"head_?(?:dim|size|width|channels|features|hidden)|(?:dim|d|size|channels|width|features|hidden_size|embed_size)_(?:per_)?(?:attention_)?head(?:s)?$"
    r"|^(?:d_?k|d_?v|d_?q|d_?kv|d_?qk|hd|dh|h_?dim|hs|head_d|hdim|d_h|k_dim|key_dim|v_dim|attention_head_size|key_value_proj_dim|"
    r"kv_channels|per_head|qk_dim|dim_head|depth)$|_per_attention_head$|_per_head$|^(?:qk|q|k|v)_head_dim|^attn_head_(?:size|dim)"
)
HEADS_NAME = re.compile(r"heads?(?:_|\d|$)|^(?:n_?h|nh|nhead|n_hd|num_h|hq|h_q|n_?q|nqh|hn|n_hq)$")
NOT_HEADS = re.compile(r"(?:idx|index|id|mask|ids|scale|type|name|dim|size|slice|split|weight|layer)")
BATCH_NAME = re.compile(
    r"(?:^|_)(?:b|bs|bsz|bsize|batch|batches|nbatch|nbatches|bz|bsz_|batch_?size|batchsize|beams?)(?:\d|_|$)|^batch|^n_?batch"
)
SEQUENCE_NAME = re.compile(
    r"len(?:gth|s)?(?:_|\d|$)|seq|(?:^|_)(?:tokens?|tgt|src|n_?ctx|ctx|time|timesteps?|t_q|t_k|tq|tk|sq|sk|s_q|s_k|n_?tok|block_size|max_positions?|q_l|k_l)$"
    r"|context|ntokens|positions?$|klen|qlen|tlen|slen"
)
FEATURES_NAME = re.compile(
    r"embed_?dim|emb_?dim|hidden_?(?:size|dim)|d_?model|n_?embd|n_?state|inner_dim|all_head_size|model_dim|projection_size|^(?:dim|c|hidden|channels|width|features|embedding_dim|attn_dim|n_model)$|embed_size"
)
LETTERS = {
    "b": BATCH,
    "h": HEADS,
    "g": GROUP,
    "s": SEQUENCE,
    "t": SEQUENCE,
    "l": SEQUENCE,
    "n": SEQUENCE,
    "d": HEAD_DIM,
    "c": FEATURES,
    "m": FEATURES,
    "k": KV_HEADS,
}


@lru_cache(maxsize=20_000)
def role_of_name(name: str) -> str | None:
    """The role that a name of more than one letter stands for."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    text = re.sub(r"^(?:self|config|cfg|args|this)_", "", text)
    if len(text) < 2:
        return None
    if KV_HEADS_NAME.search(text) and not HEAD_DIM_NAME.search(text) and not NOT_HEADS.search(text):
        return KV_HEADS
    if GROUP_NAME.search(text):
        return GROUP
    if HEAD_DIM_NAME.search(text) and "num_" not in text and not text.startswith("n_head"):
        return HEAD_DIM
    if HEADS_NAME.search(text) and not NOT_HEADS.search(text):
        return HEADS
    if BATCH_NAME.search(text) and "head" not in text:
        return BATCH
    if SEQUENCE_NAME.search(text):
        return SEQUENCE
    if FEATURES_NAME.search(text):
        return FEATURES
    return None


def role_of(scalar: Scalar) -> str | None:
    """The role of a number by what it was called, or by the quotient it is; None where that is not told or told twice."""
    roles = {role for role in map(role_of_name, scalar.names) if role is not None}
    if len(roles) > 1:
        roles = {HEADS if role == KV_HEADS else role for role in roles}
    if len(roles) == 1:
        return next(iter(roles))
    if roles:
        return None
    if scalar.quotient is not None:
        above, below = role_of(scalar.quotient[0]), role_of(scalar.quotient[1])
        if above == FEATURES and is_heads(below):
            return HEAD_DIM
        if is_heads(above) and below == KV_HEADS:
            return GROUP
        if is_heads(above) and below is None and scalar.quotient[1].value is None and scalar.quotient[1].names:
            return HEADS
    return None


def roles_of(scalars: Sequence[Scalar | None]) -> list[str | None]:
    """The roles of a row of sizes, read together: single letters count where the whole row then makes sense, and a -1
    is the one that is missing."""
    roles = [None if scalar is None else role_of(scalar) for scalar in scalars]
    letters: list[str | None] = [None] * len(roles)
    for index, scalar in enumerate(scalars):
        if roles[index] is None and scalar is not None:
            single = {name.lower() for name in scalar.names if len(name.strip("_")) == 1}
            if len(single) == 1:
                letters[index] = LETTERS.get(next(iter(single)))
    joined = [role or letter for role, letter in zip(roles, letters, strict=True)]
    if sensible(joined) and sum(role is not None for role in joined) >= len(joined) - 1:
        roles = joined
    wild = [index for index, scalar in enumerate(scalars) if scalar is None]
    if len(wild) == 1 and len(roles) == 4 and wild[0] < 3:
        have = {HEADS if is_heads(role) else role for role in roles if role is not None}
        missing = {BATCH, HEADS, SEQUENCE, HEAD_DIM} - have
        if len(have) == 3 and len(missing) == 1 and None not in [r for i, r in enumerate(roles) if i != wild[0]]:
            roles[wild[0]] = missing.pop()
    return roles


def sensible(roles: Sequence[str | None]) -> bool:
    """True where no role stands there twice, and heads and head dim are both there."""
    present = [HEADS if is_heads(role) else role for role in roles if role is not None]
    return len(set(present)) == len(present) and HEADS in present and HEAD_DIM in present


def is_heads(role: str | None) -> bool:
    return role in (HEADS, KV_HEADS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows the role of an axis, and where."""

    role: str
    strength: Strength
    node: ast.AST | None
    text: str


@dataclass(slots=True)
class RoleBook:
    """The evidence for the roles of factors, and which factors are one and the same or lie on one axis of a concatenation."""

    evidence: dict[str, list[Evidence]] = field(default_factory=dict)
    parent: dict[str, str] = field(default_factory=dict)
    aligned: dict[str, set[str]] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    peers: dict[str, set[str]] = field(default_factory=dict)
    noted: set[tuple[str, str, Strength, int]] = field(default_factory=set)

    def note(self, key: str, role: str, strength: Strength, node: ast.AST | None, text: str) -> None:
        """Adds evidence for the factor *key*."""
        found = self.evidence.setdefault(key, [])
        if (key, role, strength, id(node)) not in self.noted:
            self.noted.add((key, role, strength, id(node)))
            found.append(Evidence(role, strength, node, text))

    def note_axis(self, axis: Axis | None, role: str, strength: Strength, node: ast.AST | None, text: str) -> None:
        """Adds evidence for an axis that is a single factor."""
        if axis is not None and len(axis) == 1:
            self.note(axis[0].key, role, strength, node, text)

    def find(self, key: str) -> str:
        while key in self.parent:
            key = self.parent[key]
        return key

    def same(self, left: str, right: str) -> None:
        """The two factors are one."""
        left, right = self.find(left), self.find(right)
        if left != right:
            self.parent[right] = left

    def align(self, left: str, right: str) -> None:
        """The two factors lie on the same axis of tensors that are joined."""
        if left != right:
            self.aligned.setdefault(left, set()).add(right)
            self.aligned.setdefault(right, set()).add(left)

    def set_rank(self, key: str, rank: int) -> None:
        """The tensor *key* has this many axes."""
        if key in self.ranks:
            return
        self.ranks[key] = rank
        for index in range(rank):
            self.same(f"{key}[{index}]", f"{key}[{index - rank}]")
        for peer in sorted(self.peers.get(key, ())):
            self.set_rank(peer, rank)

    def same_rank(self, left: str, right: str) -> None:
        """The two tensors have as many axes."""
        if left == right:
            return
        self.peers.setdefault(left, set()).add(right)
        self.peers.setdefault(right, set()).add(left)
        for one, other in ((left, right), (right, left)):
            if one in self.ranks:
                self.set_rank(other, self.ranks[one])

    def resolve(self) -> Roles:
        """The roles that follow from everything noted."""
        groups: dict[str, list[Evidence]] = {}
        for key, items in self.evidence.items():
            groups.setdefault(self.find(key), []).extend(items)
        links: dict[str, set[str]] = {}
        for key, others in self.aligned.items():
            root = self.find(key)
            for other in others:
                other_root = self.find(other)
                if other_root != root:
                    links.setdefault(root, set()).add(other_root)
        return Roles(self, groups, links)


@dataclass(slots=True)
class Roles:
    """Answers: which role a factor has."""

    book: RoleBook
    groups: dict[str, list[Evidence]]
    links: dict[str, set[str]]

    def own(self, key: str, least: Strength) -> tuple[Evidence | None, bool]:
        """The best evidence for a factor, and whether there was any (two roles of one strength cancel out)."""
        items = [item for item in self.groups.get(self.book.find(key), ()) if item.strength >= least]
        if not items:
            return None, False
        top = max(item.strength for item in items)
        best = [
            item
            for item in items
            if item.strength == top or (top == Strength.STRUCTURE and item.strength == Strength.NAMED)
        ]
        plain = {HEADS if is_heads(item.role) else item.role for item in best}
        if len(plain) > 1:
            return None, True
        return next((item for item in best if item.role == KV_HEADS), best[0]), True

    def evidence(self, key: str, least: Strength = Strength.CONSUMER) -> Evidence | None:
        """The evidence for the role of a factor: its own, else what lies on the same axis of a joined tensor.

        What the code takes for a length, and what is only usual, counts where nothing better says what the axis is: a
        length that is read from the heads must not make them the sequence.
        """
        if least < Strength.CONSUMER:
            better = self.evidence(key)
            if better is not None:
                return better
        found, any_own = self.own(key, least)
        if any_own:
            return found
        seen = {self.book.find(key)}
        frontier = [self.book.find(key)]
        for _ in range(6):
            nearest: list[Evidence] = []
            following: list[str] = []
            for root in frontier:
                for other in sorted(self.links.get(root, ())):
                    if other in seen:
                        continue
                    seen.add(other)
                    found, any_own = self.own(other, least)
                    if found is not None:
                        nearest.append(found)
                    elif any_own:
                        return None
                    else:
                        following.append(other)
            if nearest:
                plain = {HEADS if is_heads(item.role) else item.role for item in nearest}
                return nearest[0] if len(plain) == 1 else None
            frontier = following
        return None

    def role(self, key: str, least: Strength = Strength.CONSUMER) -> str | None:
        found = self.evidence(key, least)
        return found.role if found is not None else None

    def axis(self, axis: Axis | None, least: Strength = Strength.CONSUMER) -> Evidence | None:
        """The evidence for an axis of one factor, or of one factor and copies of it."""
        if axis is None:
            return None
        factors = [factor for factor in axis if factor.kind != "copies"]
        return self.evidence(factors[0].key, least) if len(factors) == 1 else None


def names_in(node: ast.AST) -> Iterable[str]:
    """Identifiers in an expression: names and attributes."""
    for child in walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr
