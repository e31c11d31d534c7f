"""Subclasses of cache classes that miss what the library calls: ``__init__``, ``update(**kwargs)``, the lengths."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Mapping

from kvlint.analysis.facts import AttributeUse, CallUse, ClassUse, Facts, FunctionUse, Place
from kvlint.analysis.scopes import ClassInfo, FunctionInfo
from kvlint.analysis.values import CACHE, LocalClass, LocalFunction, Member, SuperObject, Symbol, of_type
from kvlint.behaviour import releases_of
from kvlint.checks.base import Check
from kvlint.checks.override_signatures import misfits
from kvlint.checks.receivers import cache_class
from kvlint.findings import Applicability, Category, Edit, Finding, Fix
from kvlint.nodes import statements, walk
from kvlint.releases import ReleaseSet
from kvlint.sieve import Groups
from kvlint.timeline import Timeline

KEEPERS = frozenset(
    {"append", "extend", "insert", "setdefault", "copy_", "index_copy_", "put", "put_nowait", "write", "store", "add"}
)
"""Methods that leave what they are given in the object."""
NUMBERS = frozenset({"int", "float", "len", "bool", "max", "min"})
LENGTHS = ("get_seq_length", "get_mask_sizes")


class IncompleteCacheSubclass(Check):
    """Reports own cache classes that the library cannot use as it used to."""

    triggers = ("Cache", "Layer")
    pattern = r"\bCache\b|\bdef\s+(?:update|lazy_initialization|get_mask_sizes|get_max_cache_shape)\b|Cache\.update\s*="

    def ways(self, timeline: Timeline) -> Iterator[tuple[Groups, Mapping[str, ReleaseSet]]]:
        kinds = (timeline.is_cache_class, timeline.is_layer_class)
        found = {
            name.rpartition(".")[2]
            for name in timeline.symbols()
            if any(kind(timeline.canonical(name) or name) for kind in kinds)
        }
        yield (("class", ".update ="),), dict.fromkeys(found, timeline.all)

    def findings(self, facts: Facts) -> Iterator[Finding]:
        if facts.in_transformers:
            return
        for use in facts.calls:
            yield from self._bare_init(facts, use)
        for definition in facts.functions:
            yield from self._update_signature(facts, definition)
        for store in facts.attributes:
            yield from self._replaced_update(facts, store)
        for item in facts.classes:
            yield from self._own_storage(facts, item)
        yield from self._misfits(facts)

    def _bare_init(self, facts: Facts, use: CallUse) -> Iterator[Finding]:
        """``super().__init__()`` in a direct subclass of ``Cache``, or such a subclass built without its own init."""
        info = bare_init_of(facts, use)
        of_class = isinstance(use.node.func, ast.Attribute) and not isinstance(use.node.func.value, ast.Call)
        if (
            info is None
            or len(use.node.args) != int(of_class)
            or use.starred
            or use.node.keywords
            or use.place.caught & {"TypeError", "ValueError", "Exception"}
        ):
            return
        life = releases_of(facts.timeline, "bare-cache-init")
        wrong = use.place.releases & life & releases_of_uses(facts, info)
        if wrong:
            yield self.finding(
                facts,
                use.node,
                use.place,
                "`Cache.__init__` needs the layers or their class: it raises ValueError (TypeError on 4.54 and 4.55) {when}",
                releases=wrong,
                life=life,
                help="write `super().__init__(layer_class_to_replicate=DynamicLayer)` (4.56 and newer), or derive from `DynamicCache`",
            )

    def _update_signature(self, facts: Facts, definition: FunctionUse) -> Iterator[Finding]:
        info = definition.info
        if info.name != "update" or info.owner is None or info.node.args.kwarg is not None or info.parameter("kwargs"):
            return
        if not is_cache_subclass(facts, info.owner) or not takes_states(info) or needs_more(info):
            return
        yield from self._without_kwargs(facts, info, definition.place)

    def _replaced_update(self, facts: Facts, use: AttributeUse) -> Iterator[Finding]:
        """``DynamicCache.update = update`` with a function of the file."""
        if use.action != "store" or use.name != "update" or len(use.value) != 1 or len(use.assigned) != 1:
            return
        atom, given = use.value[0], use.assigned[0]
        if not isinstance(atom, Symbol) or not isinstance(given, LocalFunction):
            return
        info = given.info
        if cache_class(facts, atom.name) is None or info.node.args.kwarg is not None or info.parameter("kwargs"):
            return
        if any(item.info is info for item in facts.functions):
            yield from self._without_kwargs(facts, info, use.place)

    def _without_kwargs(self, facts: Facts, info: FunctionInfo, place: Place) -> Iterator[Finding]:
        life = releases_of(facts.timeline, "update-gets-kwargs")
        wrong = place.releases & life
        if info.owner is not None:
            wrong &= releases_of_uses(facts, info.owner)
        if not wrong:
            return
        start, _ = facts.span(info.node)
        header = facts.text.index(info.name, facts.text.index("def", start))
        yield self.finding(
            facts,
            info.node,
            place,
            "models call `cache.update(..., kwargs=kwargs)` {when}: TypeError, this `update` takes no `kwargs`",
            releases=wrong,
            life=life,
            help="add `**kwargs`",
            span=(header, header + len(info.name)),
            fix=kwargs_fix(facts, info.node),
        )

    def _misfits(self, facts: Facts) -> Iterator[Finding]:
        for item in misfits(facts):
            wrong = item.place.releases & item.life
            if not wrong:
                continue
            span = None
            if item.name:
                start, _ = facts.span(item.node)
                header = facts.text.index(item.name, start + len("def"))
                span = (header, header + len(item.name))
            yield self.finding(
                facts,
                item.node,
                item.place,
                item.says,
                releases=wrong,
                life=item.life,
                category=Category.SILENT if item.silent else Category.BREAKS,
                help=item.help,
                span=span,
            )

    def _own_storage(self, facts: Facts, item: ClassUse) -> Iterator[Finding]:
        info = item.info
        if "update" not in info.methods or not is_cache_subclass(facts, info, layers=False) or not info.bases_known():
            return
        update = info.methods["update"]
        missing = [name for name in LENGTHS if info.method(name) is None]
        if not missing or uses_layers(update.node) or not takes_states(update) or not keeps_states(info, update):
            return
        life = releases_of(facts.timeline, "layers-hold-the-length")
        wrong = item.place.releases & life & releases_of_uses(facts, info)
        if not wrong:
            return
        start, _ = facts.span(info.node)
        name_start = facts.text.index(info.name, start + len("class"))
        both = " and ".join(f"`{name}`" for name in missing)
        yield self.finding(
            facts,
            info.node,
            item.place,
            f"`{info.name}` keeps its tensors outside `layers`, where the inherited {both} look {{when}}: they see an empty cache",
            releases=wrong,
            life=life,
            category=Category.SILENT,
            help="override `get_seq_length` and `get_mask_sizes` too, or keep the tensors in `self.layers`",
            span=(name_start, name_start + len(info.name)),
        )


def bare_init_of(facts: Facts, use: CallUse) -> ClassInfo | None:
    """The direct subclass of ``Cache`` whose base is initialised by this call."""
    for atom in use.callee:
        if isinstance(atom, Member) and atom.name == "__init__" and isinstance(atom.of, SuperObject):
            return atom.of.info if derives_directly(facts, atom.of.info) else None
        if isinstance(atom, Symbol) and atom.name.endswith(".__init__") and use.place.owner is not None:
            if cache_class(facts, atom.name.removesuffix(".__init__")) == CACHE:
                return use.place.owner if derives_directly(facts, use.place.owner) else None
        if isinstance(atom, LocalClass) and derives_directly(facts, atom.info) and "__init__" not in atom.info.methods:
            return atom.info
    return None


def derives_directly(facts: Facts, info: ClassInfo) -> bool:
    """True where the first base is transformers' ``Cache`` itself."""
    if not info.bases:
        return False
    return any(cache_class(facts, atom.name) == CACHE for atom in of_type(info.bases[0], Symbol))


def is_cache_subclass(facts: Facts, info: ClassInfo, layers: bool = True) -> bool:
    for base in info.foreign_bases():
        if cache_class(facts, base) is not None:
            return True
        if (
            layers
            and base.startswith("transformers.")
            and facts.timeline.is_layer_class(facts.timeline.canonical(base) or base)
        ):
            return True
    return False


def releases_of_uses(facts: Facts, info: ClassInfo) -> ReleaseSet:
    """The releases on which the file does anything with a class: those of the branches that name it, where all its uses
    stand in branches that some releases do not get to; every release for a class that is not used here."""
    if facts.tree is None or not facts.reach:
        return facts.timeline.all
    uses = [item for item in statements(facts.tree) if isinstance(item, ast.stmt) and mentions(item, info.name)]
    found = ReleaseSet(0)
    for statement in uses:
        found |= facts.reaching(statement)
    return found if uses else facts.timeline.all


def mentions(statement: ast.stmt, name: str) -> bool:
    """True where the statement itself, without the statements in it, reads a name."""
    todo: list[ast.AST] = [item for item in ast.iter_child_nodes(statement) if not isinstance(item, ast.stmt)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return True
        todo += [item for item in ast.iter_child_nodes(node) if not isinstance(item, ast.stmt)]
    return False


def takes_states(info: FunctionInfo) -> bool:
    """True for an ``update`` that can be called as models call it, with keys, values and the number of the layer: one that
    takes ``layer_idx`` elsewhere is called by the project's own models alone."""
    spec = info.node.args
    positional = [item.arg for item in [*spec.posonlyargs, *spec.args][info.first_positional() :]]
    if "layer_idx" in positional and positional.index("layer_idx") != 2:
        return False
    first = positional[0] if positional else ""
    return (spec.vararg is not None or len(positional) >= 3) and not first.startswith("layer")


PASSED_KEYS = frozenset({"sin", "cos", "cache_position", "partial_rotation_size", "sliding_window"})
"""What models have put into ``cache_kwargs`` (the modeling files of 4.36.2 to 4.57.6; the contracts do not look into it)."""


def needs_more(info: FunctionInfo) -> bool:
    """True for an ``update`` that needs more than models give it on any release: parameters, or items of ``cache_kwargs``."""
    spec = info.node.args
    positional = [item.arg for item in [*spec.posonlyargs, *spec.args][info.first_positional() :]]
    for node in walk(info.node):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "cache_kwargs":
            if isinstance(node.slice, ast.Constant) and node.slice.value not in PASSED_KEYS:
                return True
    return any(name != "cache_kwargs" for name in positional[3 : len(positional) - len(spec.defaults)])


def keeps_states(info: ClassInfo, update: FunctionInfo) -> bool:
    """True where the keys or values that ``update`` is given are kept by the object: stored, appended, or handed to a
    method of its own that does."""
    spec = update.node.args
    names = {arg.arg for arg in [*spec.posonlyargs, *spec.args][update.first_positional() :][:2]}
    if not names:
        return True
    return keeps(info, update.node, names, set())


def keeps(info: ClassInfo, function: ast.AST, names: set[str], seen: set[str]) -> bool:
    """The same for a method whose parameters *names* hold states."""
    for node in walk(function):
        if isinstance(node, ast.Assign) and reads(node.value, names):
            for target in node.targets:
                if any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in flat(target)):
                    return True
                names = names | {part.id for part in flat(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [*node.args, *(item.value for item in node.keywords)]
            if node.func.attr in KEEPERS and any(reads(item, names) for item in given):
                return True
            method = info.method(node.func.attr) if isinstance(node.func.value, ast.Name) else None
            if method is not None and method.name not in seen and any(reads(item, names) for item in given):
                spec = method.node.args
                taken = [*spec.posonlyargs, *spec.args][method.first_positional() :]
                inner = {arg.arg for arg, item in zip(taken, node.args, strict=False) if reads(item, names)}
                inner |= {item.arg for item in node.keywords if item.arg and reads(item.value, names)}
                if keeps(info, method.node, inner, seen | {method.name}):
                    return True
    return False


def reads(node: ast.AST, names: set[str]) -> bool:
    """True where a value is made of one of the names as a tensor, not of a number that is computed from it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NUMBERS:
        return False
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("item", "size", "dim")
    ):
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "device", "dtype", "ndim"):
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    return any(reads(child, names) for child in ast.iter_child_nodes(node))


def flat(target: ast.expr) -> Iterator[ast.expr]:
    """The parts of a target of an assignment."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from flat(item)
    else:
        yield target


def uses_layers(node: ast.AST) -> bool:
    """True where a method works on ``self.layers`` or hands the tensors to the base class or another cache."""
    for item in walk(node):
        if isinstance(item, ast.Attribute) and item.attr in ("layers", "update", "append_new_layers"):
            return True
        if isinstance(item, ast.Name) and item.id == "super":
            return True
    return False


def kwargs_fix(facts: Facts, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Fix | None:
    """Adds ``**kwargs`` behind the last parameter, on a line of its own where that one has a line of its own."""
    start, end = facts.span(node)
    place = end_of_parameters(facts.text[start:end])
    if place is None:
        return None
    first, last = start + place[0], start + place[1]
    line = facts.text.rfind("\n", 0, first) + 1
    indent = facts.text[line:first]
    new = f",\n{indent}**kwargs" if line > start and not indent.strip() else ", **kwargs"
    return Fix("Add `**kwargs`", Applicability.SAFE, (Edit(last, last, new),))


def end_of_parameters(source: str) -> tuple[int, int] | None:
    """Offsets of the first and behind the last character of the last parameter of a function; None where it has none."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    depth, first, last, pending = 0, -1, -1, False
    for token in tokenize.generate_tokens(iter(lines).__next__):
        begin, stop = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.type == tokenize.OP and token.string in ")]}":
            depth -= 1
            if depth == 0:
                return (first, last) if last >= 0 else None
        if depth == 1 and token.type == tokenize.OP and token.string == ",":
            pending = True
        elif depth >= 1 and token.type not in (tokenize.NL, tokenize.COMMENT):
            first = begin if pending else first
            last, pending = stop, False
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
            pending = depth == 1 or pending
    return None
