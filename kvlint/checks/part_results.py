"""What code makes of the result of an attention module or a decoder layer of transformers that it calls itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis.facts import CallUse, Facts, Place
from kvlint.analysis.names import ATTENTION_PARTS
from kvlint.analysis.values import Instance, LocalClass, LocalFunction, Member, Model, SuperObject, Symbol, of_type
from kvlint.checks.absent_values import place_at
from kvlint.checks.bindings import position, tree_of
from kvlint.checks.library_contracts import returns_alone, returns_two
from kvlint.engine.link import LEVELS, level
from kvlint.nodes import walk
from kvlint.releases import ReleaseSet

CALLS = ("forward", "__call__")


@dataclass(frozen=True, slots=True)
class WrongResult:
    """A use of a result that is not what the part returns. *outcome* is an exception, or "" where nothing raises."""

    node: ast.AST
    place: Place
    life: ReleaseSet
    says: str
    outcome: str
    role: str


def wrong_results(facts: Facts) -> Iterator[WrongResult]:
    """Uses of the results of library parts that do not fit what these return."""
    if facts.in_transformers or facts.foreign_engine:
        return
    replaced = replaced_kinds(facts)
    for use in facts.calls:
        found = called_classes(facts, use)
        kinds = {kind_of(facts, cls) for cls in found}
        role = kinds.pop() if len(kinds) == 1 else ""
        if role not in ("attention", "layer") or (role in replaced and not is_original(use)):
            continue
        short = " or ".join(sorted({cls.rpartition(".")[2] for cls in found}))
        life = facts.timeline.all
        for cls in found:
            life &= returns_two(facts, cls) if role == "attention" else returns_alone(facts, cls)
        yield from (attention_result if role == "attention" else layer_result)(facts, use, short, life)


def kind_of(facts: Facts, qualified: str) -> str:
    return facts.timeline.class_kind(facts.timeline.canonical(qualified) or qualified) or ""


def is_original(use: CallUse) -> bool:
    """True for ``old(self, ...)``: a ``forward`` that was kept under a name of its own before another took its place."""
    return isinstance(use.node.func, ast.Name) and all(isinstance(atom, Symbol) for atom in use.callee)


def called_classes(facts: Facts, use: CallUse) -> set[str]:
    """The classes of transformers whose ``forward`` a call can run; empty where it may be code of the project."""
    found: set[str] = set()
    for atom in use.callee:
        if isinstance(atom, Symbol) and atom.name.endswith(".forward"):
            found.add(atom.name.removesuffix(".forward"))
            continue
        if isinstance(atom, Member) and atom.name in CALLS:
            if isinstance(atom.of, SuperObject) and any(
                "forward" in info.methods for info in atom.of.info.ancestors()[1:]
            ):
                return set()
            atom = atom.of
        if isinstance(atom, Model) and atom.role in ("layer", "attention"):
            found.add("" if atom.origin is None and has_own_kind(facts, atom.cls) else atom.cls)
        elif isinstance(atom, SuperObject) or (isinstance(atom, Instance) and atom.info.method("forward") is None):
            if not atom.info.bases_known():
                return set()
            kinds = [base for base in atom.info.foreign_bases() if is_part(facts, base)]
            found.add(kinds[0] if len(kinds) == 1 else "")
        else:
            return set()
    return found if "" not in found else set()


def has_own_kind(facts: Facts, cls: str) -> bool:
    """True where a class of the file derives from one of transformers: an object that is not built here may be of it."""
    return any(cls in use.info.foreign_bases() for use in facts.classes)


def is_part(facts: Facts, qualified: str) -> bool:
    return kind_of(facts, qualified) in ("layer", "attention")


def replaced_kinds(facts: Facts) -> set[str]:
    """Kinds of parts of models whose ``forward`` the project replaces: they return what the replacement does."""
    found: set[str] = set()
    for use in facts.attributes:
        if use.action == "store" and use.name == "forward" and any(of_type(use.assigned, LocalFunction)):
            for symbol in of_type(use.value, Symbol):
                found.add(facts.timeline.class_kind(facts.timeline.canonical(symbol.name) or symbol.name) or "")
            found |= {model.role for model in of_type(use.value, Model)}
        elif (
            use.action == "store"
            and use.name in ATTENTION_PARTS
            and any(isinstance(atom, (Instance, LocalClass)) for atom in use.assigned)
        ):
            found.add("attention")
    for place in facts.surroundings.places:
        if place.member in ("", "forward"):
            found |= {role for role, height in LEVELS.items() if height == level(place.target)}
    return found


def attention_result(facts: Facts, use: CallUse, short: str, life: ReleaseSet) -> Iterator[WrongResult]:
    """``out, weights, past = self.attn(...)`` and ``self.attn(...)[2]``."""
    target = unpacked_into(facts, use)
    if target is not None and len(target.elts) == 3 and not any(isinstance(item, ast.Starred) for item in target.elts):
        says = f"`{short}` returns two outputs {{when}}, and three are unpacked"
        yield WrongResult(target, place_at(facts, target, use.place), life, says, "ValueError", "attention")
        return
    for node in items_of(facts, use):
        index = index_of(node)
        if index == 2:
            says = f"`{short}` returns two outputs {{when}}, and the third is asked for"
            yield WrongResult(node, place_at(facts, node, use.place), life, says, "IndexError", "attention")
            return


def layer_result(facts: Facts, use: CallUse, short: str, life: ReleaseSet) -> Iterator[WrongResult]:
    """``layer(...)[0]``, ``outputs[-1]``, ``states, past = layer(...)`` of a layer that returns a tensor."""
    target = unpacked_into(facts, use)
    if target is not None:
        says = f"`{short}` returns the hidden states alone {{when}}: unpacking takes the rows of the batch apart"
        yield WrongResult(target, place_at(facts, target, use.place), life, says, "ValueError", "layer")
        return
    for node in items_of(facts, use):
        place = place_at(facts, node, use.place)
        if isinstance(node.slice, ast.Slice):
            parent = tree_of(facts).parent(node)
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add):
                says = f"`{short}` returns the hidden states alone {{when}}, a tensor that no tuple can be added to"
                yield WrongResult(node, place, life, says, "TypeError", "layer")
                return
        elif index_of(node) is not None:
            says = f"`{short}` returns the hidden states alone {{when}}: this is a row of the batch, not an output"
            yield WrongResult(node, place, life, says, "", "layer")
            return


def unpacked_into(facts: Facts, use: CallUse) -> ast.Tuple | ast.List | None:
    """The targets into which the result of a call is unpacked, at once or through the name that it is put into."""
    parent = use.parent
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or parent.value is not use.node:
        return None
    target = parent.targets[0]
    if isinstance(target, (ast.Tuple, ast.List)):
        return target
    for node in named_result(facts, use):
        later = tree_of(facts).parent(node)
        if isinstance(later, ast.Assign) and later.value is node and len(later.targets) == 1:
            if isinstance(later.targets[0], (ast.Tuple, ast.List)):
                return later.targets[0]
    return None


def items_of(facts: Facts, use: CallUse) -> list[ast.Subscript]:
    """Subscripts of the result, at once or through the name it is put into, which holds nothing else and is never asked
    what it is."""
    parent = use.parent
    if isinstance(parent, ast.Subscript) and parent.value is use.node:
        return [parent]
    parents = [tree_of(facts).parent(node) for node in named_result(facts, use)]
    return [node for node in parents if isinstance(node, ast.Subscript)]


def named_result(facts: Facts, use: CallUse) -> list[ast.Name]:
    """Later mentions of the name that the result is put into, which holds nothing else and is never asked what it is."""
    parent = use.parent
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return []
    name, scope = parent.targets[0].id, tree_of(facts).scope_of(use.node)
    if len(scope.bindings.get(name, ())) != 1:
        return []
    found: list[ast.Name] = []
    for node in scope.nodes:
        if isinstance(node, ast.Call) and asks_kind(node, name):
            return []
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            found.append(node)
    return sorted((node for node in found if position(node) > position(parent)), key=position)


def asks_kind(node: ast.Call, name: str) -> bool:
    """``isinstance(name, tuple)``, ``torch.is_tensor(name)``, ``len(name)``, ``type(name)``."""
    word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return word in ("isinstance", "is_tensor", "len", "type", "hasattr") and any(
        isinstance(item, ast.Name) and item.id == name for argument in node.args[:1] for item in walk(argument)
    )


def index_of(node: ast.Subscript) -> int | None:
    """The constant index of a subscript."""
    index = node.slice
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub) and isinstance(index.operand, ast.Constant):
        value = index.operand.value
        return -value if isinstance(value, int) else None
    value = index.value if isinstance(index, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
