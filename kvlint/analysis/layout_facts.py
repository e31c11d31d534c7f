"""From the facts about a region to the layouts in it: what the layout checks read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis import layout
from kvlint.analysis.facts import Facts, Place
from kvlint.analysis.layout import Axis, Tensor, settle
from kvlint.analysis.layout_calls import LayoutCalls
from kvlint.analysis.layout_roles import BATCH, FEATURES, HEAD_DIM, SEQUENCE, Evidence, Roles, Strength, is_heads
from kvlint.analysis.layout_values import Append, Attend, Cut, Expansion, Function, LengthRead, Site
from kvlint.analysis.values import (
    CacheLayers,
    CacheObject,
    Certainty,
    LocalClass,
    LocalFunction,
    StoredTensor,
    SuperObject,
    Value,
    now,
    of_type,
)
from kvlint.findings import Origin
from kvlint.nodes import walk

STATE_WORDS = ("past", "cache", "qkv", "_proj", "groups")
STATE_NAME = re.compile(r"(?<![a-z])(?:k|v|kvs?|keys?|values?)(?![a-z])")
ODD_TUPLES = ("bloom", "gptbigcode", "gpt_bigcode", "santacoder", "chatglm", "qwen/qwen-", "qwen_7b", "qwen-7b-chat")
ODD_NAMES = (re.compile(r"mpt(?<!\wmpt)\b"), re.compile(r"starcoder(?!2)"))
"""Models whose pasts were laid out in another way than ``[batch, kv heads, sequence, head dim]`` on some release: keys
transposed or folded into the batch (Bloom, MPT), one tensor for both (GPT-BigCode), sequence first (ChatGLM, Qwen 1)."""
HELPER = re.compile(r"(?i)split|merge|shape|heads?(?:_|$)|repeat|transpose|permute")
"""Names of functions that lay out heads."""
OPERATION_WORDS = (
    "cat", "concat", "concatenate", "hstack", "vstack", "stack", "repeat", "repeat_interleave", "tile", "expand", "index_select",
    "narrow", "rearrange", "einsum", "scaled_dot_product_attention", "flash_attn_func", "memory_efficient_attention", "update",
    "shape", "size", "index_copy_", "broadcast_to", "transpose", "view", "zeros", "empty", "register_buffer", "flash_attn_with_kvcache",
    "flatten", "repeat_kv",
)  # fmt: skip
OPERATIONS = re.compile(rf"\b(?:{'|'.join(OPERATION_WORDS)})\b")


def handles_states(text: str) -> bool:
    """True for code that names keys or values, and that lays out or joins tensors."""
    lowered = text.lower()
    if not any(word in lowered for word in STATE_WORDS) and STATE_NAME.search(lowered) is None:
        return False
    return ".shape" in text or "[:" in text or "[..." in text or OPERATIONS.search(text) is not None


def speaks_of_odd_tuples(text: str) -> bool:
    """True for code that may meet the pasts of such a model."""
    lowered = text.lower()
    return any(word in lowered for word in ODD_TUPLES) or any(name.search(lowered) for name in ODD_NAMES)


@dataclass(slots=True)
class Layouts:
    """The places of one region and the roles of the axes that meet there."""

    facts: Facts
    walk: LayoutCalls
    roles: Roles

    def sites(self, kind: type[Site]) -> Iterator[list[Site]]:
        """The places of a kind; each with all contexts in which it was seen (those with known arguments, if any)."""
        for seen in self.walk.sites.values():
            if self.facts.reach:
                seen = [(inlined, site) for inlined, site in seen if self.facts.reaching(site.statement)]
            chosen = [site for inlined, site in seen if inlined and isinstance(site, kind)]
            plain = [site for inlined, site in seen if not inlined and isinstance(site, kind)]
            if plain or chosen:
                yield [*plain, *chosen]

    def let_go(self) -> None:
        """Cuts what refers to itself in circles; see ``Facts.let_go``."""
        self.walk.let_go()

    def place(self, statement: ast.stmt) -> Place:
        return Place(self.facts.reaching(statement), frozenset(), statement, None, None)

    def origin(self, evidence: Evidence | None) -> Origin | None:
        """Where the evidence stands."""
        if evidence is None or evidence.node is None or not hasattr(evidence.node, "lineno"):
            return None
        start, _ = self.facts.span(self.walk.elsewhere.get(id(evidence.node), evidence.node))
        return Origin(start, evidence.text)

    def settled(self, tensor: Tensor) -> Tensor:
        return settle(tensor, self.walk.book.ranks)

    def axis(self, tensor: Tensor, index: int) -> Axis | None:
        return layout.axis_at(self.settled(tensor), index)

    def evidence(self, tensor: Tensor, index: int, least: Strength = Strength.CONSUMER) -> Evidence | None:
        """What is known of one axis of a tensor."""
        return self.roles.axis(self.axis(tensor, index), least)

    def layout_text(self, tensor: Tensor) -> str:
        """``[batch, heads, sequence, head dim]`` with a question mark where nothing is known."""
        tensor = self.settled(tensor)
        names = []
        for axis in tensor.axes:
            factors = [
                self.roles.role(factor.key, Strength.CONVENTION)
                or ("features" if factor.kind == "features" else "copies" if factor.kind == "copies" else "?")
                for factor in axis
            ]
            names.append(" x ".join(factors) if factors else "1")
        front = "..., " if tensor.lead is not None else ""
        return f"[{front}{', '.join(names)}{', ...' if tensor.open else ''}]"

    def sequence_axis(self, tensor: Tensor) -> int | None:
        """The index of the sequence axis (negative) of a tensor of four axes, where everything else is known."""
        tensor = self.settled(tensor)
        if tensor.rank is None:
            return None
        roles = [self.role_at(tensor, index) for index in range(tensor.rank)]
        found = [index for index, role in enumerate(roles) if role == SEQUENCE]
        if len(found) == 1:
            return found[0] - tensor.rank
        if found or tensor.rank != 4:
            return None
        open_axes = [index for index, role in enumerate(roles) if role is None]
        if len(open_axes) == 1 and BATCH in roles:
            return open_axes[0] - tensor.rank
        if open_axes == [0, 2] or open_axes == [0, 1]:
            return open_axes[1] - tensor.rank
        return None

    def role_at(self, tensor: Tensor, index: int) -> str | None:
        found = self.evidence(tensor, index, Strength.CONVENTION)
        return found.role if found is not None else None


def layouts(facts: Facts) -> Layouts:
    """The layouts of a region; worked out once, when the first check asks."""
    known = facts.memo.get("layouts")
    if not isinstance(known, Layouts):
        known = interpret(facts)
        facts.memo["layouts"] = known
    return known


def interpret(facts: Facts, trace: bool = False) -> Layouts:
    """Runs the interpreter over the functions that handle keys and values; with *trace* it keeps every binding."""
    libraries = {use.bound: use.qualified for use in facts.imports if use.bound}
    classes: dict[str, ast.ClassDef] = {}
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    owners: dict[int, str] = {}
    lines = facts.text.split("\n")
    for use in facts.classes:
        classes.setdefault(use.info.name, use.info.node)
    for function in facts.functions:
        info = function.info
        if info.owner is not None:
            owners[id(info.node)] = info.owner.name
        if info.parent is not None and info.owner is None:
            continue
        text = "\n".join(lines[info.node.lineno - 1 : info.node.end_lineno])
        if handles_states(text):
            functions.append(info.node)
    reader = LayoutCalls(
        [function.info.node for function in facts.functions], classes, owners, libraries, contracts(facts)
    )
    inherit(reader, facts)
    reader.reads = {}
    reader.copy_names = {}
    reader.copy_counts = {}
    reader.trace = [] if trace else None
    tree = facts.tree
    if tree is not None:
        top = [
            node
            for node in tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))
        ]
        text = "\n".join("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in top)
        reader.run(tree, functions, handles_states(text))
    return Layouts(facts, reader, reader.book.resolve())


def inherit(reader: LayoutCalls, facts: Facts) -> None:
    """Tells the walk what the classes of the file derive from and which helpers it imports from its project."""
    own = {id(use.info.node) for use in facts.classes}
    for use in facts.classes:
        if not use.info.node.bases:
            continue
        for info in use.info.ancestors():
            reader.parents[id(info.node)] = [
                atom.info.node for base in info.bases for atom in of_type(base, LocalClass)
            ]
            if id(info.node) not in own:
                for node in walk(info.node):
                    reader.elsewhere.setdefault(id(node), use.info.node.bases[0])
    if facts.tree is None:
        return
    for statement in facts.tree.body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            name = alias.asname or alias.name
            if HELPER.search(name):
                for atom in of_type(now(facts.module_names.get(name, ())), LocalFunction):
                    reader.module_env[name] = (Function(atom.info.node),)
                    for node in walk(atom.info.node):
                        reader.elsewhere.setdefault(id(node), statement)


def contracts(facts: Facts) -> dict[int, str]:
    """Nodes whose value comes out of a transformers cache. A negative key tells what iterating over a node yields, or
    that a call is ``update`` of such a cache."""
    found: dict[int, str] = {}
    if speaks_of_odd_tuples(facts.text):
        return found
    for use in facts.attributes:
        if use.action == "load" and use.name in ("keys", "values") and use.call is None and is_layer(use.value):
            found[id(use.node)] = use.name
    for sub in facts.subscripts:
        part = subscript_part(sub.value, sub.index)
        if part and sub.action == "load":
            found[id(sub.node)] = part
    for loop in facts.iterations:
        if any(isinstance(atom, CacheObject) and trusted(atom) for atom in loop.value):
            found[-id(loop.node)] = "pair"
        else:
            lists = [atom for atom in loop.value if isinstance(atom, CacheLayers) and trusted(atom.cache)]
            if lists and lists[0].part != "layers":
                found[-id(loop.node)] = lists[0].part
    for call in facts.calls:
        if isinstance(call.node.func, ast.Attribute) and call.node.func.attr == "update":
            for atom in call.callee:
                of = getattr(atom, "of", None)
                known = trusted(of) if isinstance(of, CacheObject) else asks_library(of)
                if known and len(call.node.args) >= 2:
                    found[-id(call.node)] = "update"
    return found


def trusted(cache: CacheObject | None) -> bool:
    return cache is not None and cache.certainty >= Certainty.CONTEXT and cache.local_class is None


def asks_library(of: object) -> bool:
    """True for ``super()`` in a subclass of a cache whose ``update`` is the library's."""
    if not isinstance(of, SuperObject):
        return False
    info = of.info
    bases = info.foreign_bases()
    return (
        any(base.startswith("transformers.") and base.endswith("Cache") for base in bases)
        and all(base.startswith("transformers.") for base in bases)
        and not any(
            isinstance(item, ast.FunctionDef) and item.name == "update"
            for ancestor in info.ancestors()
            if ancestor is not info
            for item in ancestor.node.body
        )
    )


def is_layer(value: Value) -> bool:
    return bool(value) and all(type(atom).__name__ == "CacheLayer" and trusted(atom.cache) for atom in value)  # type: ignore[attr-defined]


def subscript_part(value: Value, index: Value) -> str:
    """What a subscript of a cache's list or of a layer's pair gives."""
    for atom in value:
        if isinstance(atom, CacheLayers) and atom.part in ("keys", "values") and trusted(atom.cache):
            return atom.part if len(value) == 1 else ""
        if type(atom).__name__ == "LayerPair" and trusted(atom.cache) and len(value) == 1:  # type: ignore[attr-defined]
            number = getattr(index[0], "value", None) if len(index) == 1 else None
            return "keys" if number == 0 else "values" if number == 1 else ""
    return ""


__all__ = [
    "FEATURES",
    "HEAD_DIM",
    "Append",
    "Attend",
    "Cut",
    "Expansion",
    "Layouts",
    "LengthRead",
    "StoredTensor",
    "is_heads",
    "layouts",
]
