"""The walk over statements: an abstract interpreter that follows names, branches, loops, functions and classes.

One pass records the facts. Functions are walked after the module's own statements; a function is walked again when a
later call site, attribute assignment or return has taught something about what it reads.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlint.analysis.annotations import Annotations
from kvlint.analysis.callers import CACHE_PARAMETERS, filled_by_prepare, keys_written, uncalled
from kvlint.analysis.calls import IMPORT_ERRORS, LESSONS, teaches
from kvlint.analysis.expressions import ITERATED as CACHES
from kvlint.analysis.expressions import holds
from kvlint.analysis.facts import (
    AssignUse,
    AttributeUse,
    ClassUse,
    Facts,
    FunctionUse,
    ImportUse,
    ReturnUse,
)
from kvlint.analysis.guards import is_question
from kvlint.analysis.library import is_hook_owner, is_layer_class, is_own_module
from kvlint.analysis.names import (
    ATTENTION_PARTS,
    CACHE_NAMES,
    CACHE_OUTPUT_KEYS,
    LOOSE_CACHE_NAMES,
    MODEL_KWARGS_NAMES,
    MODEL_NAMES,
    OTHER_ENGINES,
    PROOF_MEMBERS,
)
from kvlint.analysis.project import WORTH_FOLLOWING, Project, package_name
from kvlint.analysis.reach import narrow
from kvlint.analysis.recorder import Flow, Records, merge, path_of, written_since
from kvlint.analysis.scopes import ClassInfo, FunctionInfo, keeps_own_format, own_format, returns_unknown
from kvlint.analysis.telling import Telling
from kvlint.analysis.values import (
    CACHE,
    UNKNOWN,
    Atom,
    CacheObject,
    Certainty,
    Config,
    Foreign,
    GenerationConfigValue,
    Instance,
    Items,
    Later,
    LegacyCache,
    LocalClass,
    LocalFunction,
    Mapping,
    Model,
    ModelKwargs,
    ModelOutput,
    NoneValue,
    PerRelease,
    ProjectModule,
    Sequence,
    Symbol,
    Truth,
    Unknown,
    Value,
    changed_mapping,
    grown,
    join,
    literal,
    now,
    of_type,
    only,
)
from kvlint.analysis.versions import demanded_releases
from kvlint.behaviour import layer_past_families
from kvlint.engine.link import LEVELS, family, level
from kvlint.engine.units import Place, Surroundings
from kvlint.nodes import walk
from kvlint.releases import ReleaseSet
from kvlint.source import Region
from kvlint.timeline import Timeline

if TYPE_CHECKING:
    from kvlint.analysis.joint import Joint

MAX_ROUNDS = 3
IMPORT_LINE = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<dots>\.*)(?P<module>[\w.]*)[ \t]+import\b|import[ \t]+(?P<modules>[\w., \t]+))",
    re.MULTILINE,
)
MAX_LOOP_DEPTH = 3
MAX_FOLLOWED = 6
"""Imports of imports are followed through so many modules."""
MAX_HELPER_STATEMENTS = 12
"""A function that decides about the release is no longer than this."""
WORTH_WALKING = re.compile(
    r"[Cc]ache|CACHE|past|kv|KV|[Vv]ersion|VERSION|transformers|pretrained|[Gg]enerat|_mask\(|legacy|seen_tokens"
    r"|MethodType|\bforward = |hook|ignore_keys|_length\(|\.crop\(|\.layers\b|getattr|hasattr|isinstance"
)
"""Words of which a function needs one to meet a cache by itself, or to teach others something that matters."""
USED_AS_CACHE = re.compile("|".join(sorted(PROOF_MEMBERS)) + r"|\b(?:cache|past_key_values) *=")
PREPARE = "prepare_inputs_for_generation"
LAYER_PAST = "layer_past"
MAKES_MODELS = re.compile(r"\.(?:from_pretrained|from_config)\s*\(|\w(?:Attention|DecoderLayer)\s*\(")
"""What makes a model, or a part of one, may hand it to others."""
ASKS_THE_RELEASE = re.compile(r"version|signature|getfullargspec", re.IGNORECASE)
KEPT = (CacheObject, LegacyCache, Sequence, Items)
"""What attributes are given that has several forms: a cache here, pairs made of it there."""
STORED_MARK = "="
"""Begins the name under which a flow keeps what an attribute was given last; no name of Python has it."""
COMPANIONS = frozenset({"transformers", "peft", "trl", "optimum", "accelerate", "auto_gptq", "unsloth", "bitsandbytes"})
TRANSFORMERS_MODULES = frozenset(
    {
        "cache_utils",
        "modeling_utils",
        "modeling_outputs",
        "modeling_attn_mask_utils",
        "masking_utils",
        "generation",
        "generation.utils",
        "generation.configuration_utils",
        "modeling_flash_attention_utils",
        "configuration_utils",
        "modeling_layers",
    }
)
HOOKS = frozenset({"forward", "prepare_inputs_for_generation", "_reorder_cache", "_update_model_kwargs_for_generation"})
ATTRIBUTE_ERRORS = frozenset({"AttributeError", "Exception", "BaseException"})
OTHER_TENSORS = frozenset({"tensorflow", "jax", "flax", "mlx", "mlx_lm", "mlx_vlm"})
"""Without torch beside them, models are not those of transformers, also where its tokenizers are used."""
CATCHES = frozenset({"suppress", "raises", "assertRaises", "assertRaisesRegex"})
"""Context managers that take exceptions: tests that something is gone want it to be."""
ENDS = frozenset({"exit", "_exit", "skipTest"})
NOT_INSTALLED = frozenset({"PackageNotFoundError", "DistributionNotFound"})
"""What is raised where a package is missing: without transformers nothing here matters."""
ENDS_A_PART = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@lru_cache(maxsize=4)
def import_roots(text: str, in_transformers: bool) -> frozenset[str]:
    """The packages that a text imports from; kept for the examples in the docstrings of a module."""
    roots: set[str] = set()
    for match in IMPORT_LINE.finditer(text):
        dots, module = match["dots"], match["module"]
        if not dots:
            roots |= {part.split(".")[0] for part in re.split(r"[\s,]+", match["modules"] or module)}
        elif module in TRANSFORMERS_MODULES or in_transformers:
            roots.add("transformers")
    return frozenset(roots)


class Walk(Annotations):
    """Walks one module."""

    joint: Joint | None

    def __init__(
        self, text: str, tree: ast.Module, path: Path, target: ReleaseSet, project: Project, timeline: Timeline
    ) -> None:
        super().__init__(text, tree, path, target, project, timeline)
        self.changed: set[tuple[str, Any]] = set()
        self.telling = Telling(text, self.index)
        self._handlers = {}
        self._executors: dict[type[ast.stmt], Callable[[Any, Flow], Flow | None]] = {}
        self._closures: dict[int, Flow] = {}
        self._walked: set[int] = set()
        self._function_at: dict[int, FunctionInfo] = {}
        self._class_at: dict[int, ClassInfo] = {}
        self._loop_depth = 0
        self._breaks: list[list[Flow]] = []
        self._missing: list[ReleaseSet | None] = []
        self._conditions = {}
        self._asking = False
        self._shims = set()
        self._put_on_caches: set[str] = set()
        """The members that the module puts on classes of caches."""
        self._patched: set[str] = set()
        """The levels of a model (attention, layers, models) of which methods are replaced."""
        self._package = package_name(path)
        self.in_transformers = self._package.split(".")[0] == "transformers"
        self._following: set[Path] = {path}
        self.in_parts = False
        self.around = ""
        self.joint = None
        self.surroundings = Surroundings()
        self.own_classes: frozenset[str] = frozenset()
        """Classes whose ``forward`` only code of the project calls, although they derive from a part of the library."""
        self._places_at: dict[int, list[Place]] = {}
        self._stored: dict[str, list[tuple[ClassInfo, str, Value]]] | None = None
        """What the function that is walked gives to attributes, by the mark of their paths."""
        self._exits: list[Flow] = []

    def join(self, joint: Joint, surroundings: Surroundings, names: set[str]) -> None:
        """Makes this one of several walks: *names* are those that mean something in any of them."""
        self.joint = joint
        self.surroundings = surroundings
        self.telling.names = names
        here = str(self.path)
        self._shims.update(surroundings.shims)
        for place in surroundings.places:
            if place.value[0] == here:
                self._places_at.setdefault(place.line, []).append(place)
        self.own_classes = frozenset(name for path, name in surroundings.own if path == here)

    def methods_named(self, name: str) -> list[FunctionInfo]:
        """The methods of this name that classes of the modules walked together define."""
        walks = self.joint.walks.values() if self.joint is not None else (self,)
        return [cls.methods[name] for other in walks for cls in other.classes if name in cls.methods]

    def pass_to_places(
        self, model: Model, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> None:
        """A call of a layer or of attention of the library is one of the functions of the project that stand there."""
        if self.joint is None or model.role not in LEVELS or not model.family:
            return
        for place in self.surroundings.places:
            if level(place.target) == LEVELS[model.role] and family(place.target) == model.family:
                info = self.joint.placed(place)
                if info is not None:
                    self.pass_arguments(info, 1, arguments, keywords)

    def function_at(self, line: int) -> FunctionInfo | None:
        """The function, or the ``forward`` of the class, that is defined on a line."""
        for info in self.functions:
            if info.node.lineno == line:
                return info
        return next((cls.method("forward") for cls in self.classes if cls.node.lineno == line), None)

    # -- the module -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Walks the module's statements, then its functions until nothing new is learnt."""
        self.survey_imports()
        self.run_module()
        self.walk_speaking()
        for _ in range(MAX_ROUNDS - 1):
            changed, self.changed = self.changed, set()
            if not self.walk_again(changed, self.names_of_caches()):
                break
        narrow([self])

    def walk_again(self, changed: set[tuple[str, Any]], names: set[str]) -> bool:
        """Walks what the lessons of the last round concern once more; False where that is nothing.

        *names* are those of `names_of_caches`, of all modules that are walked together.
        """
        again = [info for info in self.functions if self._concerned(info, changed) or self._meets_cache(info, names)]
        module_again = ("reader", id(self)) in changed
        if not again and not module_again:
            return False
        self._drop_facts([*again, None] if module_again else again)
        if module_again:
            self.module_flow = Flow({}, self.target)
            self.run_module()
        for info in again:
            self.run_function(info)
        return True

    def was_walked(self, info: FunctionInfo) -> bool:
        """True for a function that was looked at."""
        return id(info) in self._walked

    def has(self, item: FunctionInfo | ClassInfo) -> bool:
        """True for a function or class of this module."""
        found = self._class_at if isinstance(item, ClassInfo) else self._function_at
        return found.get(id(item.node)) is item

    def narrow(self, functions: list[FunctionInfo], item: FunctionInfo | ClassInfo, releases: ReleaseSet) -> None:
        """Walks functions once more for fewer releases: those of *item*, which only these releases get to."""
        body = item.node.body
        self.note_reached(body[0], body[-1], releases)
        self._drop_facts(functions)
        for table in (self.records.functions, self.records.classes):
            for key, use in list(table.items()):
                if use.info is item or use.info in functions:
                    table[key] = replace(use, place=replace(use.place, releases=use.place.releases & releases))
        for info in functions:
            info.releases &= releases
            if info.releases & self.target and self.was_walked(info):
                self.run_function(info)

    def walk_speaking(self) -> None:
        """Walks the functions that speak of caches: before them the ``__init__`` of their classes, whose attributes they
        read, and after them those that are found inside of others meanwhile."""
        aliases = self._quiet_names()
        speaking = [info for info in self.functions if self._speaks_of_caches(info, aliases)]
        classes = {id(cls) for info in speaking if info.owner is not None for cls in info.owner.ancestors()}
        first = {
            id(info)
            for info in self.functions
            if info.name == "__init__"
            and (info.owner is None or id(info.owner) in classes or is_of_library(info.owner))
        }
        known = len(self.functions)
        for info in self.functions[:known]:
            if id(info) in first:
                self.run_function(info)
        self.changed -= {lesson for lesson in self.changed if lesson[0] == "attribute"}
        later = {id(info) for info in speaking} - first
        for position, info in enumerate(self.functions):
            if position >= known:  # found inside of others meanwhile
                wanted = info.name == "__init__" or self._speaks_of_caches(info, aliases)
            else:
                wanted = id(info) in later
            if wanted:
                self.run_function(info)

    def names_of_caches(self) -> set[str]:
        """Names of the module, of attributes and of functions that hold or return a cache, or a part of a model of
        transformers that takes one, whatever they are called."""
        known = [(name, value) for cls in self.classes for name, value in cls.attributes.items()]
        known += [(info.name, info.returns) for info in self.functions]
        known += [(name, value) for name, value in self.module_flow.names.items() if type(value) is not Later]
        return {
            name
            for name, value in known
            if any(holds(item, CACHES) or any(map(is_library_part, item)) for item in (value, *parts(value)))
        }

    def _meets_cache(self, info: FunctionInfo, names: set[str]) -> bool:
        """True for a function that has not been walked, because it does not speak of caches, and that uses such a name."""
        if id(info) in self._walked:
            return False
        words = self.telling.all_words(info.node)
        closure = self._closures.get(id(info.node)) if info.parent is not None else None
        return not names.isdisjoint(words) or (
            closure is not None and any(holds(closure.names.get(word, ()), CACHES) for word in words)
        )

    def _quiet_names(self) -> frozenset[str]:
        """Names of the module that stand for something that is worth walking, and do not say so: ``DynamicCache as DC``."""
        return frozenset(
            name
            for name, value in self.module_flow.names.items()
            if type(value) is not Later and not WORTH_WALKING.search(name) and any(map(self._worth_walking, value))
        )

    def _worth_walking(self, atom: Atom) -> bool:
        if isinstance(atom, LocalClass):
            return self.cache_base(atom.info) is not None
        if isinstance(atom, PerRelease):
            return True
        return isinstance(atom, Symbol) and WORTH_WALKING.search(atom.name.rpartition(".")[2] + "(") is not None

    def _speaks_of_caches(self, info: FunctionInfo, aliases: frozenset[str]) -> bool:
        """False for a function that can meet a cache only through what it is given; it is walked once that is known."""
        if info.owner is not None and self.cache_base(info.owner) is not None:
            return True
        text = self.function_text(info)
        if WORTH_WALKING.search(text) is not None or MAKES_MODELS.search(text) is not None:
            return True
        return bool(aliases) and not aliases.isdisjoint(self.telling.all_words(info.node))

    def function_text(self, info: FunctionInfo) -> str:
        """The lines of a function."""
        node = info.node
        start = self.index.line_start(node.lineno)
        return self.text[start : self.index.line_end(node.end_lineno or node.lineno)]

    def run_module(self) -> None:
        flow = self.block(self.tree.body, self.module_flow, in_parts=self.in_parts)
        if flow is not None and flow is not self.module_flow:
            for name, value in flow.names.items():
                self.module_flow.set(name, value)
        for name, value in self.module_flow.names.items():
            self.telling.add(name, value)

    def survey_imports(self) -> None:
        """Finds out whether the file uses transformers, or another engine with caches of its own."""
        roots = import_roots(self.text, self.in_transformers)
        if self.around:
            roots |= import_roots(self.around, self.in_transformers)
        self.uses_transformers = bool(roots & COMPANIONS)
        other_tensors = bool(roots & OTHER_TENSORS) and "torch" not in roots
        self.foreign_engine = other_tensors or (bool(roots & OTHER_ENGINES) and "transformers" not in roots)

    def _concerned(self, info: FunctionInfo, changed: set[tuple[str, Any]]) -> bool:
        if ("parameter", id(info.node)) in changed or ("reader", id(info.node)) in changed:
            return True
        names = {key for kind, key in changed if kind == "attribute"}
        if not names:
            return False
        text = self.function_text(info)
        return any(name in text and re.search(rf"\b{re.escape(name)}\b", text) for name in names)

    def tell_readers(self, info: FunctionInfo) -> None:
        """Notes for another walk who has used the result of a function before it was known."""
        self.changed |= {("reader", reader) for reader in info.readers}

    def _drop_facts(self, infos: Iterable[FunctionInfo | None]) -> None:
        gone = {id(info) for info in infos}
        for table in (getattr(self.records, name) for name in Records.__slots__):
            for key in [key for key, use in table.items() if id(use.place.function) in gone]:
                del table[key]

    # -- statements -------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], flow: Flow | None, in_parts: bool = False) -> Flow | None:
        """The flow after *body*; None where it never ends normally.

        *in_parts*: the statements come from cells or examples, of which one may end early and the next still runs.
        """
        whole = self.target.bits
        for statement in body:
            if flow is None or not flow.releases:
                self.note_reached(statement, body[-1], ReleaseSet())
                return None
            if flow.releases.bits != whole or self.reach:
                self.note_reached(statement, statement, flow.releases)
            self._statement = statement
            kind = type(statement)
            executor = self._executors.get(kind)
            if executor is None:
                executor = self._executors[kind] = getattr(self, "_exec_" + kind.__name__, self._exec_other)
            after = executor(statement, flow)
            flow = flow if after is None and in_parts and isinstance(statement, ENDS_A_PART) else after
        return flow

    def note_reached(self, first: ast.stmt, last: ast.stmt, releases: ReleaseSet) -> None:
        """Notes the releases that reach some statements: those of all visits together; nothing where every one does."""
        if self._asking:
            return
        key = (first.lineno, last.end_lineno or last.lineno)
        reached = self.reach.get(key)
        if self.target <= releases:
            if reached is not None:
                del self.reach[key]
        else:
            self.reach[key] = releases if reached is None else reached | releases

    def _exec_other(self, node: ast.stmt, flow: Flow) -> Flow | None:
        self._eval_children(node, flow)
        return flow

    def value_of(self, value: ast.expr, flow: Flow, statement: ast.stmt) -> Value:
        """The value of the expression of a simple statement, which is not looked into where the statement is dull."""
        if is_opaque(value) and self.telling.dull(statement, flow):
            return UNKNOWN
        return self.expression(value, flow, statement)

    def _exec_Expr(self, node: ast.Expr, flow: Flow) -> Flow | None:
        if isinstance(node.value, ast.Constant):
            return flow
        self.value_of(node.value, flow, node)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, (ast.Attribute, ast.Name)):
            name = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else node.value.func.id
            if name == "setattr" and len(node.value.args) == 3:
                self._setattr(node.value, flow)
            if name in ENDS or (name == "skip" and path_of(node.value.func) == "pytest.skip"):
                return None
            if "version" in name:
                demanded = demanded_releases(node.value, self.timeline)
                if demanded is not None:
                    flow.releases &= demanded
                    return flow if flow.releases else None
        return flow

    def _setattr(self, node: ast.Call, flow: Flow) -> None:
        name = literal(self.expression(node.args[1], flow, node))
        if isinstance(name, str):
            target = ast.copy_location(ast.Attribute(node.args[0], name, ast.Store()), node)
            self.assign(target, self.expression(node.args[2], flow, node), flow, node.args[2])

    def _exec_Assign(self, node: ast.Assign, flow: Flow) -> Flow:
        if is_question(node.value):
            self.telling.names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        value = self.value_of(node.value, flow, node)
        for target in node.targets:
            self.assign(target, value, flow, node.value)
            self.records.assigns[id(target)] = AssignUse(node, target, value, self.place(flow))
        return flow

    def _exec_AnnAssign(self, node: ast.AnnAssign, flow: Flow) -> Flow:
        annotated = self.annotation(node.annotation, flow)
        if node.value is None:
            if isinstance(node.target, ast.Name) and annotated:
                flow.bind(node.target.id, annotated)
            return flow
        value = self.value_of(node.value, flow, node)
        if annotated and all(isinstance(atom, Unknown) for atom in value):
            value = annotated
        self.assign(node.target, value, flow, node.value)
        self.records.assigns[id(node.target)] = AssignUse(node, node.target, value, self.place(flow))
        return flow

    def _exec_AugAssign(self, node: ast.AugAssign, flow: Flow) -> Flow:
        added = self.value_of(node.value, flow, node)
        target = node.target
        if isinstance(target, ast.Name):
            value = self.lookup(target.id, flow)
            if isinstance(node.op, ast.BitOr) and value and all(isinstance(atom, Mapping) for atom in value):
                merged = tuple(changed_mapping(atom, "update", (added,)) for atom in of_type(value, Mapping))
                flow.bind(target.id, merged)
            else:
                flow.bind(target.id, grown(value, added) if isinstance(node.op, ast.Add) else UNKNOWN)
        elif isinstance(target, ast.Attribute):
            base = self.expression(target.value, flow, target)
            self.record_attribute(target, target.value, base, target.attr, "augmented", flow, node)
            flow.forget(path_of(target) or "?")
        elif isinstance(target, ast.Subscript):
            base = self.expression(target.value, flow, target)
            index = self.expression(target.slice, flow, target)
            self.record_subscript(target, base, index, "store", flow, node)
        return flow

    def assign(self, target: ast.expr, value: Value, flow: Flow, value_node: ast.expr | None) -> None:
        """Binds a target; unpacks where it is a tuple."""
        if isinstance(target, ast.Name):
            flow.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_tuple(target, value, flow, value_node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, (Sequence(UNKNOWN),), flow, None)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value, flow)
        elif isinstance(target, ast.Subscript):
            base = self.expression(target.value, flow, target)
            index = self.expression(target.slice, flow, target)
            self.record_subscript(target, base, index, "store", flow, None)
            use = self.records.subscripts.get(id(target))
            if use is not None:
                self.records.subscripts[id(target)] = replace(use, assigned=value)
            self._assign_key(target, base, index, value, flow)

    def _assign_tuple(
        self, target: ast.Tuple | ast.List, value: Value, flow: Flow, value_node: ast.expr | None
    ) -> None:
        if value_node is not None and not isinstance(value_node, (ast.Tuple, ast.List)):
            self.record_iteration(value_node, value, "unpack", target, flow, None)
        if any(isinstance(item, ast.Starred) for item in target.elts):
            for item in target.elts:
                self.assign(item, UNKNOWN, flow, None)
            return
        for item, part in zip(target.elts, self.unpacked(value, len(target.elts)), strict=True):
            self.assign(item, part, flow, None)

    def _assign_attribute(self, target: ast.Attribute, value: Value, flow: Flow) -> None:
        base = self.expression(target.value, flow, target)
        self.record_attribute(target, target.value, base, target.attr, "store", flow, None)
        use = self.records.attributes.get(id(target))
        if use is not None:
            self.records.attributes[id(target)] = replace(use, assigned=value)
        elif is_patch(target, base, value):
            self.records.attributes[id(target)] = AttributeUse(
                target, target.value, base, target.attr, "store", self.place(flow), path_of(target.value), value
            )
        if target.attr in HOOKS:
            self._teach_patches(base, value)
            if target.attr == "forward" and self._function is not None and of_type(value, LocalFunction):
                self._function.replaces.update(self.kinds_of(base))
        self._teach_bound(base, target.attr, value)
        for atom in value:
            if isinstance(atom, LocalFunction) and atom.info.places:
                atom.info.installed[id(target)] = flow.releases
            elif isinstance(atom, (LocalClass, Instance)):
                for method in atom.info.methods.values():
                    if method.places:
                        method.installed[id(target)] = flow.releases
        path = path_of(target)
        if path:
            flow.bind(path, value)
            self.telling.add(target.attr, value)
        if any(isinstance(atom, Symbol) and atom.name.split(".")[0] == "transformers" for atom in base):
            self._shims.add(target.attr)
        for atom in base:
            info = (
                atom.info if isinstance(atom, Instance) else atom.local_class if isinstance(atom, CacheObject) else None
            )
            if info is not None:
                self._store(info, target.attr, path, value, flow)

    def _store(self, info: ClassInfo, name: str, path: str, value: Value, flow: Flow) -> None:
        """What an attribute is given. Others see it when the function is left: what is overwritten before that, nobody does."""
        shadow = STORED_MARK + path.replace(".", STORED_MARK)
        held = shadow in flow.names or any(isinstance(atom, KEPT) for atom in value)
        if self._stored is None or not path or "[" in path or not held:
            self._teach_attribute(info, name, value)
            return
        flow.set(shadow, value)
        self._stored.setdefault(shadow, []).append((info, name, value))

    def _leave(self, stored: dict[str, list[tuple[ClassInfo, str, Value]]], exits: list[Flow]) -> None:
        """Teaches the attributes that a function has stored what they hold where it is left."""
        for shadow, entries in stored.items():
            left = [flow.names[shadow] for flow in exits if shadow in flow.names]
            for info, name, value in entries:
                self._teach_attribute(info, name, join(*left) if left else value)

    def prepares_by_itself(self, hook: str) -> bool:
        """True where a ``prepare_inputs_for_generation`` of the project may answer a call of the *hook* on a model, with the
        cache under an older name."""
        if hook != PREPARE:
            return False
        walks = self.joint.walks.values() if self.joint is not None else (self,)
        return PREPARE in self.surroundings.taken or any(map(gives_back_an_older_name, walks))

    def kinds_of(self, value: Value) -> set[str]:
        """Which kinds of modules (model, layer, attention) a value is, by itself or by the bases of its class."""
        bases = [base for atom in of_type(value, Instance) for base in atom.info.foreign_bases()]
        kinds = {self.library.part(base) or ("model" if is_hook_owner(base) else "") for base in bases}
        return (kinds | {atom.role for atom in of_type(value, Model)}) - {""}

    def _teach_patches(self, base: Value, value: Value) -> None:
        """Functions that are put in the place of a method of the library are called by it.

        Where attention modules and the layers or models around them are replaced, those hand on what they like.
        """
        names = [atom.name for atom in base if isinstance(atom, Symbol)]
        if not names or not all(is_hook_owner(name) or is_layer_class(name) for name in names):
            return
        self._patched.update(map(level_of, names))
        for atom in of_type(value, LocalFunction):
            if atom.info.patches and atom.info.installed_on not in names:
                atom.info.installed_on = ""
            if not atom.info.patches:
                atom.info.patches = True
                atom.info.installed_on = names[0] if len(names) == 1 else ""
                self.changed.add(("parameter", id(atom.info.node)))

    def _teach_bound(self, base: Value, name: str, value: Value) -> None:
        """The first parameter of a function that becomes a method is the object: of that model, or of that class of caches."""
        of_caches = tuple(
            CacheObject(cls, source="self", origin=atom.origin)
            for atom in of_type(base, Symbol)
            if (cls := self.library.cache_class(atom.name)) is not None
        )
        if of_caches:
            self._put_on_caches.add(name)
        base = of_caches if of_caches and len(of_caches) == len(base) else base
        for atom in of_type(value, LocalFunction):
            info = atom.info
            if (atom.bound or base is of_caches) and info.owner is None and not info.is_static:
                merged = join(info.bound_to, base) if info.bound_to else base
                if merged != info.bound_to:
                    info.bound_to = merged
                    self.changed.add(("parameter", id(info.node)))

    def narrowed(self, path: str, value: Value) -> None:
        """An attribute or an item that a condition says something of means something from here on."""
        parts = re.findall(r"\w+", path)
        if len(parts) > 1:
            for part in parts[1:] if parts[0] == "self" else parts:
                self.telling.add(part, value)

    def _teach_attribute(self, info: ClassInfo, name: str, value: Value) -> None:
        known = info.attributes.get(name)
        merged = value if known is None else join(known, value)
        if merged != known:
            info.attributes[name] = merged
            self.telling.add(name, merged)
            if teaches(merged, known or ()):
                self.changed.add(("attribute", name))

    def _assign_key(self, target: ast.Subscript, base: Value, index: Value, value: Value, flow: Flow) -> None:
        path = path_of(target)
        key = literal(index)
        base_path = path_of(target.value)
        if path:
            flow.bind(path, value)
            self.telling.add(re.split(r"[.\[]", base_path)[-1], value)
        if isinstance(key, str) and base_path:
            mappings = [atom for atom in base if isinstance(atom, Mapping)]
            if mappings and len(mappings) == len(base):
                changed = [
                    Mapping((*[item for item in atom.items if item[0] != key], (key, value)), atom.open)
                    for atom in mappings
                ]
                flow.set(base_path, tuple(changed))

    def _exec_Delete(self, node: ast.Delete, flow: Flow) -> Flow:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                base = self.expression(target.value, flow, target)
                self.record_attribute(target, target.value, base, target.attr, "delete", flow, node)
            elif isinstance(target, ast.Subscript):
                base = self.expression(target.value, flow, target)
                index = self.expression(target.slice, flow, target)
                self.record_subscript(target, base, index, "delete", flow, node)
                holder = path_of(target.value)
                if holder in flow.names and all(isinstance(atom, Mapping) for atom in flow.names[holder]):
                    held = of_type(flow.names[holder], Mapping)
                    flow.set(holder, tuple(changed_mapping(atom, "pop", (index,)) for atom in held))
            path = path_of(target)
            if path:
                flow.forget(path)
        return flow

    def _exec_If(self, node: ast.If, flow: Flow) -> Flow | None:
        when_true: Flow | None = flow
        when_false: Flow | None = flow.copy()
        if not self.telling.decides_nothing(node.test, flow, self.module_flow):
            when_true, when_false = self.branch(node.test, flow, node)
        typing_only = self._typing_only
        self._typing_only = typing_only or is_type_checking(node.test)
        after_true = self.block(node.body, when_true)
        self._typing_only = typing_only
        after_false = self.block(node.orelse, when_false)
        return merge([after_true, after_false])

    def _exec_For(self, node: ast.For | ast.AsyncFor, flow: Flow) -> Flow | None:
        value = self.expression(node.iter, flow, node)
        self.record_iteration(node.iter, value, "for", node.target, flow, node)
        item = self.item_value(value, node.iter)
        return self._loop(node, flow, item)

    _exec_AsyncFor = _exec_For

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, flow: Flow, item: Value | None) -> Flow | None:
        self._loop_depth += 1
        self._breaks.append([])
        entry: Flow | None = flow
        after: Flow | None = None
        for _ in range(2 if self._loop_depth <= MAX_LOOP_DEPTH else 1):
            if entry is None:
                break
            start = entry.copy()
            if isinstance(node, ast.While):
                when_true, _ = self.branch(node.test, start, node)
                body_flow = when_true
            else:
                if item is not None:
                    self.assign(node.target, item, start, None)
                body_flow = start
            after = self.block(node.body, body_flow)
            entry = merge([flow, after, *self._breaks[-1]])
        self._loop_depth -= 1
        broken = self._breaks.pop()
        done = entry
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        if endless:
            return merge([*broken])
        if isinstance(node, ast.While) and done is not None:
            _, done = self.branch(node.test, done, node)
        return merge([self.block(node.orelse, done), *broken])

    def _exec_While(self, node: ast.While, flow: Flow) -> Flow | None:
        return self._loop(node, flow, None)

    def _exec_Break(self, node: ast.Break, flow: Flow) -> None:
        if self._breaks:
            self._breaks[-1].append(flow)

    def _exec_Continue(self, node: ast.Continue, flow: Flow) -> None:
        if self._breaks:
            self._breaks[-1].append(flow)

    def _exec_With(self, node: ast.With | ast.AsyncWith, flow: Flow) -> Flow | None:
        for item in node.items:
            value = self.expression(item.context_expr, flow, node)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, flow, item.context_expr)
        caught = self._caught
        if any(is_suppress(item.context_expr) for item in node.items):
            names = {
                name
                for item in node.items
                if is_suppress(item.context_expr)
                for name in exception_names(item.context_expr)
            }
            self._caught = caught | names
        after = self.block(node.body, flow)
        if self._caught is not caught:
            self._caught = caught
            return merge([after, flow]) if after is None else after
        return after

    _exec_AsyncWith = _exec_With

    def _exec_Return(self, node: ast.Return, flow: Flow) -> None:
        value = self.value_of(node.value, flow, node) if node.value is not None else (NoneValue(),)
        if self._function is not None:
            self.records.returns[id(node)] = ReturnUse(node, value, self.place(flow))
            if self._stored:
                self._exits.append(flow.copy())
            merged = join(self._function.returns, value) if self._function.returns else value
            if merged != self._function.returns:
                self._function.returns = merged
                if teaches(merged, ()) or any(isinstance(atom, LocalFunction) for atom in value):
                    self.tell_readers(self._function)

    def _exec_Raise(self, node: ast.Raise, flow: Flow) -> None:
        self._eval_children(node, flow)

    def _exec_Assert(self, node: ast.Assert, flow: Flow) -> Flow | None:
        when_true, _ = self.branch(node.test, flow, node)
        if node.msg is not None:
            self.expression(node.msg, flow, node)
        if when_true is None and self.records.guards.get(id(node.test)) is None:
            return flow
        return when_true

    def _exec_Global(self, node: ast.Global, flow: Flow) -> Flow:
        return flow

    _exec_Nonlocal = _exec_Global

    def _exec_Match(self, node: ast.Match, flow: Flow) -> Flow | None:
        self.expression(node.subject, flow, node)
        going: Flow | None = flow
        ends: list[Flow | None] = []
        for case in node.cases:
            if going is None:
                break
            taken, going = self._match_case(case, node, going)
            if taken is not None:
                ends.append(self.block(case.body, taken))
        return merge([*ends, going])

    def _match_case(self, case: ast.match_case, node: ast.Match, flow: Flow) -> tuple[Flow | None, Flow | None]:
        """The flow into a case, and the one that goes on to the next."""
        taken: Flow | None = flow.copy()
        left: Flow | None = flow
        test = test_of_pattern(case.pattern, node.subject)
        if test is not None:
            taken, other = self.branch(test, flow, node)
            left = other if case.guard is None and is_whole_test(case.pattern) else flow
        elif case.guard is None and is_irrefutable(case.pattern):
            left = None
        if taken is None:
            return None, left
        for item in walk(case.pattern):
            if isinstance(item, (ast.MatchAs, ast.MatchStar)) and item.name:
                whole = item is case.pattern
                taken.bind(item.name, self.expression(node.subject, taken, node) if whole else UNKNOWN)
        if case.guard is not None:
            taken, _ = self.branch(case.guard, taken, node)
        return taken, left

    # -- try --------------------------------------------------------------------------------------------------------

    def _exec_Try(self, node: ast.Try, flow: Flow) -> Flow | None:
        before = flow.copy()
        names = {name for handler in node.handlers if is_guard(handler, node) for name in handler_names(handler)}
        caught, self._caught = self._caught, self._caught | frozenset(names)
        self._missing.append(None)
        after_body = self.block(node.body, flow)
        missing = self._missing.pop()
        self._caught = caught
        if after_body is not None:
            after_body = self.block(node.orelse, after_body)
        ends: list[Flow | None] = [after_body]
        partial = merge([before.copy(), after_body.copy()]) if after_body is not None else before.copy()
        for handler in node.handlers:
            start = partial.copy() if partial is not None else before.copy()
            start.releases = before.releases
            if missing is not None and self._decided(handler, node):
                start.releases = before.releases & missing
                start.names = dict(before.names)
            if handler.name:
                start.bind(handler.name, UNKNOWN)
            if handler.type is not None:
                self.expression(handler.type, start, node)
            if handler_names(handler) <= NOT_INSTALLED:
                continue
            if handler_names(handler) & ATTRIBUTE_ERRORS and self._decided(handler, node):
                self._rule_out_caches(node, before, start)
            if start.releases:
                ends.append(self.block(handler.body, start))
        result = merge(ends)
        if node.finalbody:
            final = self.block(node.finalbody, result if result is not None else before.copy())
            result = final if result is not None else None
        return result

    _exec_TryStar = _exec_Try

    def _rule_out_caches(self, node: ast.Try, before: Flow, handler: Flow) -> None:
        """What lacks a member that every cache in force has is no cache: ``past.get_seq_length()`` raised."""
        for read in (item for statement in node.body for item in walk(statement) if isinstance(item, ast.Attribute)):
            path = path_of(read.value)
            value = before.names.get(path, ()) if path else ()
            others = tuple(
                atom
                for atom in now(value)
                if not isinstance(atom, CacheObject)
                or not before.releases <= (self.member_releases(atom, read.attr) or ReleaseSet(0))
            )
            if len(others) < len(now(value)):
                handler.narrow(path, others or UNKNOWN)

    def _decided(self, handler: ast.ExceptHandler, node: ast.Try) -> bool:
        """True where the handler runs for the missing names of the body alone, as far as anyone can tell."""
        return bool(handler_names(handler) & (IMPORT_ERRORS | ATTRIBUTE_ERRORS)) and len(node.body) <= 6

    def note_missing(self, releases: ReleaseSet, flow: Flow, errors: frozenset[str]) -> None:
        """Inside a ``try`` that handles the error: the rest of its body runs only where the name exists, its handler
        only where it does not (nowhere, where every release in force has it)."""
        if self._missing and self._caught & errors and releases:
            gone = flow.releases & releases
            self._missing[-1] = (self._missing[-1] or ReleaseSet(0)) | gone
            flow.releases = flow.releases - gone

    def note_missing_member(self, base: Value, name: str, flow: Flow) -> None:
        """The same for an attribute of a cache, of a cache class or of a module of transformers."""
        if not self._missing or not self._caught & ATTRIBUTE_ERRORS or len(base) != 1:
            return
        lives = self.member_releases(base[0], name)
        if lives:
            self.note_missing(self.timeline.all - lives, flow, ATTRIBUTE_ERRORS)

    # -- imports ----------------------------------------------------------------------------------------------------

    def _exec_Import(self, node: ast.Import, flow: Flow) -> Flow | None:
        for alias in node.names:
            joined = self.project.module_path(self.path, alias.name, 0) if self.joint is not None else None
            if joined is not None and self.joint is not None and joined in self.joint.walks:
                if alias.asname or "." not in alias.name:
                    flow.bind(alias.asname or alias.name, (ProjectModule(joined),))
                    continue
            if alias.asname:
                flow.bind(alias.asname, (Symbol(alias.name),))
            else:
                root = alias.name.split(".")[0]
                flow.bind(root, (Symbol(root),))
            if alias.name.split(".")[0] == "transformers":
                bound = alias.asname or alias.name.split(".")[0]
                self._record_import(node, alias, alias.name, bound, flow)
        return flow if flow.releases else None

    def _record_import(
        self, node: ast.Import | ast.ImportFrom, alias: ast.alias, qualified: str, bound: str, flow: Flow
    ) -> None:
        self.records.imports[id(alias)] = ImportUse(alias, node, qualified, bound, self.place(flow))
        if self.timeline.knows(qualified):
            self.note_missing(self.timeline.all - self.timeline.importable(qualified), flow, IMPORT_ERRORS)

    def _exec_ImportFrom(self, node: ast.ImportFrom, flow: Flow) -> Flow | None:
        module = self.absolute_module(node)
        for alias in node.names:
            if alias.name == "*":
                self.star_import = self.star_import or module.split(".")[0] == "transformers"
                self._bind_star(node, module, flow)
                continue
            bound = alias.asname or alias.name
            qualified = f"{module}.{alias.name}"
            if alias.name in self._shims and module.split(".")[0] == "transformers":
                flow.bind(bound, UNKNOWN)
                continue
            if module.split(".")[0] == "transformers":
                flow.bind(bound, self.library_value(qualified))
                self._record_import(node, alias, qualified, bound, flow)
                if not flow.releases:
                    return None
                continue
            flow.bind(bound, self._project_name(node, module, alias.name))
        return flow

    def _bind_star(self, node: ast.ImportFrom, module: str, flow: Flow) -> None:
        """``from .base import *``: the names of a module of the project, those that it imports itself among them."""
        if module.split(".")[0] == "transformers" or (node.level == 0 and module.split(".")[0] in sys_modules()):
            return
        path = self.project.module_path(self.path, node.module or "", node.level)
        if path is None or path == self.path:
            return
        inner = self._followed(path)
        for name in [*inner.module_flow.names] if inner is not None else ():
            if name.isidentifier() and not name.startswith("_") and name not in flow.names:
                flow.bind(name, Later.of(UNKNOWN, partial(self._exported_or_unknown, path, name)))

    def _exported_or_unknown(self, path: Path, name: str) -> Value:
        return self.exported(path, name) or UNKNOWN

    def absolute_module(self, node: ast.ImportFrom) -> str:
        """The module of a from-import; relative ones are resolved where that is possible."""
        module = node.module or ""
        if node.level == 0:
            return module
        parts = self._package.split(".") if self._package else []
        if self.path.stem == "__init__":
            parts = [*parts, "__init__"]
        if len(parts) > node.level or (parts and len(parts) == node.level and module):
            base = parts[: len(parts) - node.level]
            absolute = ".".join([*base, module] if module else base)
            if absolute.split(".")[0] == "transformers":
                return absolute
        if node.level >= 2 and module in TRANSFORMERS_MODULES:
            if self.project.module_path(self.path, module, node.level) is None:
                self.uses_transformers = True
                return f"transformers.{module}"
        return "." * node.level + module

    def _project_name(self, node: ast.ImportFrom, module: str, name: str) -> Value:
        """What a name imported from the project is, where its own module says so."""
        fallback: Value = (Symbol(f"{module}.{name}"),) if node.level == 0 else UNKNOWN
        if self.joint is not None:
            joined = self._joined_name(node, name, fallback)
            if joined is not None:
                return joined
        if not WORTH_FOLLOWING.search(name) and not WORTH_FOLLOWING.search(node.module or ""):
            return fallback
        if node.level == 0 and (not module or module.split(".")[0] in sys_modules()):
            return fallback
        if node.level and not node.module:
            module_of_name = self.project.module_path(self.path, name, node.level)
            if module_of_name is not None:
                return (ProjectModule(module_of_name),)
        path = self.project.module_path(self.path, node.module or "", node.level)
        if path is None:
            return fallback
        return Later.of(fallback, lambda: self.exported(path, name) or fallback)

    def _joined_name(self, node: ast.ImportFrom, name: str, fallback: Value) -> Value | None:
        """What a name of a module that is walked together with this one is; None for any other."""
        assert self.joint is not None
        inner = ".".join(filter(None, (node.module or "", name)))
        module = self.project.module_path(self.path, inner, node.level)
        if module in self.joint.walks:
            return (ProjectModule(module),)
        path = self.project.module_path(self.path, node.module or "", node.level)
        if path in self.joint.walks:
            return Later.of(fallback, lambda: self.exported(path, name) or fallback)
        return None

    def exported(self, path: Path, name: str) -> Value:
        """The value of a name at the top level of another module of the project."""
        inner = self._followed(path)
        if inner is None:
            return ()
        value = now(inner.module_flow.names.get(name, ()))
        self.dependencies.update(inner.dependencies)
        return value

    def _followed(self, path: Path) -> Walk | None:
        """The walk over the statements of another module of the project; None where it cannot be followed."""
        self.dependencies[path] = None
        inner = self.joint.module(path) if self.joint is not None else None
        if inner is None and path not in self._following and len(self._following) <= MAX_FOLLOWED:
            inner = self.project.walk(path, self.target, self._shallow)
        return inner

    def _shallow(self, path: Path) -> Walk | None:
        """The walk over the statements of another module; None where that fails."""
        module = self.project.module(path)
        if module is None:
            return None
        inner = Walk(module.text, module.tree, path, self.target, self.project, self.timeline)
        inner._following = self._following | {path}
        inner.joint = self.joint
        inner.survey_imports()
        try:
            inner.run_module()
        except (RecursionError, IndexError):
            return None
        return inner

    # -- functions and classes --------------------------------------------------------------------------------------

    def _exec_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, flow: Flow) -> Flow:
        for decorator in node.decorator_list:
            self.expression(decorator, flow, node)
        for default in (*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)):
            self.expression(default, flow, node)
        owner = self._owner if self._in_class_body else None
        prefix = (
            owner.qualname + "." if owner is not None else (self._function.qualname + "." if self._function else "")
        )
        info = self._known_function(node, prefix + node.name, owner)
        info.releases = self._not_skipped(node, flow)
        if owner is not None:
            owner.methods[node.name] = info
        flow.bind(node.name, (LocalFunction(info),))
        self._closures[id(node)] = flow
        self.records.functions[id(node)] = FunctionUse(info, self.place(flow))
        return flow

    _exec_AsyncFunctionDef = _exec_FunctionDef

    def _not_skipped(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, flow: Flow) -> ReleaseSet:
        """The releases on which a test runs that ``skipif`` or ``skipUnless`` leaves out on others."""
        left = flow.releases
        for decorator in node.decorator_list:
            if (
                not isinstance(decorator, ast.Call)
                or not decorator.args
                or not isinstance(decorator.func, ast.Attribute)
            ):
                continue
            name = decorator.func.attr.lower()
            if name in ("skipif", "skipunless"):
                value = self.expression(decorator.args[0], flow, decorator)
                if len(value) == 1 and isinstance(value[0], Truth):
                    left = left & value[0].releases if name == "skipunless" else left - value[0].releases
        return left

    def _known_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, qualname: str, owner: ClassInfo | None
    ) -> FunctionInfo:
        info = self._function_at.get(id(node))
        if info is None:
            info = self._function_at[id(node)] = FunctionInfo(node, qualname, owner, self._function, home=self)
            info.places = self._places_of(node, owner)
            self.functions.append(info)
        return info

    def _places_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ClassInfo | None) -> tuple[Place, ...]:
        """Where the project puts a function, or the class whose method it is."""
        found = list(self._places_at.get(node.lineno, ()))
        if owner is not None and node.name in HOOKS:
            whole = (place for place in self._places_at.get(owner.node.lineno, ()) if not place.member)
            found += [replace(place, member=node.name) for place in whole]
        return tuple(found)

    _in_class_body = False

    def _exec_ClassDef(self, node: ast.ClassDef, flow: Flow) -> Flow:
        for decorator in node.decorator_list:
            self.expression(decorator, flow, node)
        bases = []
        for base in node.bases:
            value = self.expression(base, flow, node)
            self.record_symbols(base, value, "base", flow)
            bases.append(value)
        for keyword in node.keywords:
            self.expression(keyword.value, flow, node)
        info = self._class_at.get(id(node))
        if info is None:
            info = self._class_at[id(node)] = ClassInfo(node, node.name)
            self.classes.append(info)
        info.bases = tuple(bases)
        info.releases = self._not_skipped(node, flow)
        flow.bind(node.name, (LocalClass(info),))
        self.records.classes[id(node)] = ClassUse(info, self.place(flow))
        outer = (self._owner, self._in_class_body, self._statement)
        self._owner, self._in_class_body = info, True
        inner = flow.copy()
        fork = inner.fork
        last = self.block(node.body, inner) or inner
        self._owner, self._in_class_body, self._statement = outer
        for name in written_since(fork, [last]):
            made = last.names.get(name)
            if (
                made is not None
                and name not in flow.names
                and name[0] not in "?"
                and "." not in name
                and not isinstance(made[0], LocalFunction)
            ):
                info.attributes.setdefault(name, now(made))
        return flow

    def run_function(self, info: FunctionInfo) -> None:
        """Walks one function with what is known of its parameters."""
        self._walked.add(id(info))
        outer = (self._function, self._owner, self._caught, self._in_class_body, self._loop_depth, self._breaks)
        self._function, self._owner, self._caught, self._in_class_body = (
            info,
            info.owner or self._enclosing_owner(info),
            frozenset(),
            False,
        )
        self._loop_depth, self._breaks = 0, []
        self._statement = info.node
        leaving = (self._stored, self._exits)
        self._stored, self._exits = {}, []
        closure = self._closures.get(id(info.node))
        flow = Flow({}, info.releases)
        if closure is not None and info.parent is not None:
            flow = Flow(dict(closure.names), info.releases, set(closure.reached_through))
        self._bind_parameters(info, flow)
        if info.node.returns is not None:
            promised = self.annotation(info.node.returns, flow)
            if promised and not info.returns and any(isinstance(atom, (CacheObject, LegacyCache)) for atom in promised):
                info.returns = promised
                self.tell_readers(info)
        end = self.block(info.node.body, flow)
        self._leave(self._stored, [*self._exits, *([end] if end is not None else [])])
        self._stored, self._exits = leaving
        if info.name == PREPARE and not self._asking:
            self._fill_forward(info)
        elif info.name == "forward" and not self._asking:
            self._fill_reorder(info)
        self._function, self._owner, self._caught, self._in_class_body, self._loop_depth, self._breaks = outer

    def version_verdict(self, info: FunctionInfo, given: dict[str, Value]) -> Value | None:
        """What a small function says about the release when it is asked with these arguments; None for any other."""
        if info.owner is not None or len(info.node.body) > MAX_HELPER_STATEMENTS or self._asking:
            return None
        if not all(isinstance(literal(value), (str, int)) for value in given.values()):
            return None
        if not self._speaks_of_versions(info):
            return None
        if self._function_at.get(id(info.node)) is info:
            return self._ask(info, given)
        return info.home._ask(info, given) if isinstance(info.home, Walk) else None

    def _speaks_of_versions(self, info: FunctionInfo) -> bool:
        """True for a function that names versions, or a name of its module that a version decides."""
        if ASKS_THE_RELEASE.search(ast.unparse(info.node)):
            return True
        names = (info.home if isinstance(info.home, Walk) else self).module_flow.names
        words = {item.id for item in walk(info.node) if isinstance(item, ast.Name)} & names.keys()
        return any(isinstance(atom, (Truth, PerRelease)) for word in words for atom in names[word])

    def _ask(self, info: FunctionInfo, given: dict[str, Value]) -> Value | None:
        """Walks the function once for these arguments, apart from everything that is being recorded."""
        kept = (self.records, self.changed, self._statement, self._missing, self._typing_only)
        self.records, self.changed, self._missing, self._asking = Records(), set(), [], True
        try:
            asked = FunctionInfo(info.node, info.qualname, None, info.parent, info.releases, dict(given))
            self.run_function(asked)
        finally:
            self.records, self.changed, self._statement, self._missing, self._typing_only = kept
            self._asking = False
        return asked.returns if len(asked.returns) == 1 and isinstance(asked.returns[0], Truth) else None

    def _enclosing_owner(self, info: FunctionInfo) -> ClassInfo | None:
        parent = info.parent
        while parent is not None:
            if parent.owner is not None:
                return parent.owner
            parent = parent.parent
        return None

    def _bind_parameters(self, info: FunctionInfo, flow: Flow) -> None:
        arguments = info.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: dict[str, ast.expr] = {}
        for arg, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
            defaults[arg.arg] = default
        for arg, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword_default is not None:
                defaults[arg.arg] = keyword_default
        markers = self._usage_markers(info)
        for position, arg in enumerate((*positional, *arguments.kwonlyargs)):
            if position == 0 and info.owner is not None and not info.is_static and arg in positional:
                flow.bind(arg.arg, self._self_value(info))
                if arg.annotation is not None:
                    self.annotation(arg.annotation, flow)
                continue
            if (
                position == 0
                and info.bound_to
                and only(info.bound_to, CacheObject)
                and "__init__" not in self._put_on_caches
            ):
                flow.bind(arg.arg, info.bound_to)
                continue
            if position == 0 and info.places and info.owner is None:
                flow.bind(arg.arg, (self._placed_self(info),))
                continue
            if position == 0 and info.installed_on and self.is_hook(info) and arg in positional:
                flow.bind(arg.arg, self._installed_self(info))
                continue
            if position == 0 and is_models(info.bound_to) and arg in positional and arg.annotation is None:
                flow.bind(arg.arg, info.bound_to)
                continue
            if self._asking:
                known = info.arguments.get(arg.arg)
                flow.bind(arg.arg, self.expression(defaults.get(arg.arg), flow, arg) if known is None else known)
                continue
            flow.bind(arg.arg, self._parameter(info, arg, defaults.get(arg.arg), flow, markers))
        if arguments.vararg is not None:
            flow.bind(arguments.vararg.arg, (Sequence(UNKNOWN, is_tuple=True),))
        if arguments.kwarg is not None:
            hook = self.is_hook(info)
            flow.bind(arguments.kwarg.arg, UNKNOWN if self.foreign_engine else (ModelKwargs(hook),))

    def _self_value(self, info: FunctionInfo) -> Value:
        owner = info.owner
        assert owner is not None
        if any(isinstance(item, ast.Name) and item.id == "classmethod" for item in info.node.decorator_list):
            return (LocalClass(owner),)
        base = self.cache_base(owner)
        if base is not None:
            if not owner.bases_known():
                return UNKNOWN
            return (
                CacheObject(
                    base,
                    source="self",
                    local_class=owner,
                    origin=self.origin(owner.node, f"`{owner.name}` is a {base.rpartition('.')[2]}"),
                ),
            )
        return (Instance(owner),)

    def _fill_forward(self, prepare: FunctionInfo) -> None:
        """``generate`` hands on what ``prepare_inputs_for_generation`` returns."""
        forward = prepare.owner.method("forward") if prepare.owner is not None else None
        if forward is not None:
            for made in of_type(prepare.returns, Mapping):
                self.pass_arguments(forward, 1, (), made.items)

    def _fill_reorder(self, forward: FunctionInfo) -> None:
        """Beam search hands on what ``forward`` returned as its cache."""
        reorder = forward.owner.method("_reorder_cache") if forward.owner is not None else None
        held = own_format(forward.owner) if forward.owner is not None else ()
        if reorder is not None and held:
            self.pass_arguments(reorder, reorder.first_positional(), (held,), ())

    def _placed_self(self, info: FunctionInfo) -> Model:
        """The object that a function is bound to which stands in the place of a method of the library."""
        target = info.places[0].target
        role = next((role for role, height in LEVELS.items() if height == level(target)), "model")
        name = target.rpartition(".")[2]
        origin = self.origin(info.node, f"put in the place of `{name}.{info.places[0].member}`")
        return Model(Certainty.PROVEN, role, cls=target, family=family(target), origin=origin)

    def _installed_self(self, info: FunctionInfo) -> Value:
        """An object of the class of transformers that the function is put into."""
        name = info.installed_on
        role = self.library.part(name) or ("" if is_layer_class(name) else "model")
        return (Model(Certainty.PROVEN, role, cls=name),) if role else UNKNOWN

    def is_hook(self, info: FunctionInfo) -> bool:
        """True for the methods that transformers itself calls with a cache object."""
        if info.places:
            return any(place.by_library and not place.of_a_module for place in info.places)
        if info.patches:
            return not self.foreign_engine and len(self._patched) == 1
        if info.owner is None or info.name not in HOOKS:
            return False
        if info.name == "forward" and (info.owner.name in self.own_classes or filled_by_prepare(info)):
            return False
        if self.target <= uncalled(info, str(self.path), self.surroundings, self.library.timeline):
            return False
        if self.foreign_engine or info.owner.name.startswith(("TF", "Flax")):
            return False
        if info.name == PREPARE:
            return not is_own_module(info.owner.foreign_bases())
        if info.name == "_reorder_cache" and (keeps_own_format(info.owner) or returns_unknown(info.owner)):
            return False
        return any(is_hook_owner(base) or is_layer_class(base) for base in info.owner.foreign_bases())

    def _parameter(
        self, info: FunctionInfo, arg: ast.arg, default: ast.expr | None, flow: Flow, markers: dict[str, str]
    ) -> Value:
        annotated = self.annotation(arg.annotation, flow) if arg.annotation is not None else ()
        info.promised[arg.arg] = annotated
        passed = info.arguments.get(arg.arg, ())
        optional: Value = (NoneValue(),) if isinstance(default, ast.Constant) and default.value is None else ()
        if arg.arg in CACHE_NAMES | CACHE_OUTPUT_KEYS and self.is_hook(info):
            origin = self.origin(arg, f"transformers passes a cache to `{info.name}`")
            hooked = CacheObject(CACHE, Certainty.PROVEN, "hook", origin=origin)
            return join(
                tuple(atom for atom in annotated if isinstance(atom, CacheObject) and atom.cls != CACHE) or (hooked,),
                optional,
            )
        if arg.arg == LAYER_PAST and self.is_hook(info):
            life = self._layer_past(info)
            if life:
                origin = self.origin(arg, f"transformers passes the cache of all layers to `{info.name}`")
                hooked = CacheObject(CACHE, Certainty.PROVEN, "hook", when=life, origin=origin)
                before = self.timeline.all - life
                return join((hooked,), (Unknown(when=before),) if before & self.target else (), optional)
        passed = passed or self._passed_beside(info, arg.arg)
        if any(isinstance(atom, LESSONS) for atom in passed):
            demonstrated = tuple(atom for atom in passed if not isinstance(atom, Unknown))
            also = annotated if len(demonstrated) < len(passed) else ()
            return join(demonstrated, also, optional)
        if any(
            isinstance(atom, (CacheObject, LegacyCache, Model, Instance, ModelOutput, Sequence, Config))
            for atom in annotated
        ):
            return join(annotated, optional)
        if arg.arg in info.arguments and not any(isinstance(atom, CacheObject) for atom in annotated):
            return join(UNKNOWN, optional)  # the project fills it, with what is not known: the name says nothing
        if info.places and all(place.of_a_module for place in info.places):
            return join(annotated or UNKNOWN, optional)  # so does what the library hands to its helper
        if arg.annotation is not None and not is_open_annotation(arg.annotation):
            return join(annotated or (Foreign(),), optional)
        if arg.arg in markers and not self.foreign_engine:
            certainty = Certainty.CONTEXT
            origin = self.origin(arg, f"a parameter that is used as a cache (`{markers[arg.arg]}`)")
            return join((CacheObject(CACHE, certainty, "usage", origin=origin),), optional)
        value = self.conventional(arg.arg, arg)
        if info.owner is not None and not any(base.startswith("transformers.") for base in info.owner.foreign_bases()):
            value = weakened(value)
        return join(value, optional)

    def _layer_past(self, info: FunctionInfo) -> ReleaseSet:
        """The releases on which the ``layer_past`` of a function that the library calls is a cache."""
        names = [place.target for place in info.places] or [info.installed_on]
        if info.owner is not None:
            names += info.owner.foreign_bases()
        found = ReleaseSet(0)
        for name in names:
            parts = (self.timeline.canonical(name) or name).split(".")
            if parts[:2] == ["transformers", "models"] and len(parts) > 3 and parts[2] in layer_past_families():
                found |= self.timeline.matching(layer_past_families()[parts[2]])
        return found

    def _passed_beside(self, info: FunctionInfo, name: str) -> Value:
        """The caches that the other methods of a class are given under the same name, for one that nobody calls."""
        if info.owner is None or info.callers or name not in CACHE_NAMES:
            return ()
        found: list[Value] = []
        for other in info.owner.methods.values():
            caches = of_type(other.arguments.get(name, ()), CacheObject)
            if other is not info and caches:
                found.append(tuple(replace(atom, certainty=min(atom.certainty, Certainty.CONTEXT)) for atom in caches))
        return join(*found) if found else ()

    def conventional(self, name: str, node: ast.AST) -> Value:
        """What a parameter of this name usually is."""
        if self.foreign_engine:
            return UNKNOWN
        if name in CACHE_NAMES and self.uses_transformers:
            return (
                CacheObject(
                    CACHE, Certainty.CONTEXT, "parameter", origin=self.origin(node, f"a parameter named `{name}`")
                ),
            )
        if name in CACHE_NAMES or name in LOOSE_CACHE_NAMES:
            return (
                Unknown(),
                CacheObject(
                    CACHE, Certainty.NAMED, "parameter", origin=self.origin(node, f"a parameter named `{name}`")
                ),
            )
        if name in MODEL_KWARGS_NAMES:
            return (ModelKwargs(),)
        if name == "generation_config":
            return (GenerationConfigValue(),)
        if name in ("config", "model_config", "cfg"):
            return (Config(),)
        if MODEL_NAMES.search(name):
            certainty = Certainty.CONTEXT if self.uses_transformers else Certainty.NAMED
            return (Model(certainty, origin=self.origin(node, f"a parameter named `{name}`")),)
        return UNKNOWN

    def _handed_to_library(self, info: FunctionInfo) -> dict[str, str]:
        """Parameters of a method, whatever they are called, that it hands as the cache to the part of transformers that its
        class is: ``self(states, cache=present)``, ``super().forward(states, cache=present)``."""
        owner = info.owner
        if owner is None or "cache" not in self.function_text(info):
            return {}
        calls = () if owner.method("forward") is not None else ("self", "self.forward")
        if not any("forward" in ancestor.methods for ancestor in owner.ancestors()[1:]):
            calls = (*calls, "super().forward")
        if not any(is_hook_owner(base) or is_layer_class(base) for base in owner.foreign_bases()):
            return {}
        names = {arg.arg for arg in info.parameters()}
        found: dict[str, str] = {}
        for node in walk(info.node):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in calls:
                for keyword in node.keywords:
                    if keyword.arg == "cache" and isinstance(keyword.value, ast.Name) and keyword.value.id in names:
                        found.setdefault(keyword.value.id, f"{ast.unparse(node.func)}(cache={keyword.value.id})")
        return found

    def _usage_markers(self, info: FunctionInfo) -> dict[str, str]:
        """Parameters with a cache-like name that the body uses as only a cache can be used."""
        candidates = {
            arg.arg
            for arg in info.parameters()
            if arg.arg in CACHE_NAMES or arg.arg in LOOSE_CACHE_NAMES or arg.arg.endswith("_cache")
        }
        found = self._handed_to_library(info)
        if not candidates or USED_AS_CACHE.search(self.function_text(info)) is None:
            return found
        for node in walk(info.node):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in candidates:
                if node.attr in PROOF_MEMBERS:
                    found.setdefault(node.value.id, f"{node.value.id}.{node.attr}")
            elif isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                for keyword in node.keywords:
                    if (
                        keyword.arg in ("cache", "past_key_values")
                        and isinstance(keyword.value, ast.Name)
                        and keyword.value.id in candidates
                    ):
                        if name == "generate" or (keyword.arg == "cache" and MODEL_NAMES.search(name)):
                            found.setdefault(keyword.value.id, f"{name}({keyword.arg}={keyword.value.id})")
        return found


def gives_back_an_older_name(walk: Walk) -> bool:
    """True where the ``prepare_inputs_for_generation`` of a module of the file gives its cache back under an older name."""
    older = CACHE_PARAMETERS - {"cache"}
    return any(
        info.name == PREPARE
        and info.owner is not None
        and bool(info.owner.node.bases)
        and bool(older & keys_written(info.node))
        for info in walk.functions
    )


def is_models(value: Value) -> bool:
    """True for models, or parts of models, of transformers and nothing else."""
    return bool(value) and all(isinstance(atom, Model) and atom.certainty >= Certainty.CONTEXT for atom in value)


def parts(value: Value) -> Iterable[Value]:
    """The items of tuples and lists whose items are known."""
    listed = (item for atom in value if isinstance(atom, Items) for item in atom.items)
    return (*listed, *(atom.item for atom in value if isinstance(atom, Sequence)))


def is_of_library(info: ClassInfo) -> bool:
    """True for a class that derives from one of transformers: what it holds stands where the library calls it."""
    return any(base.startswith("transformers.") for base in info.foreign_bases())


def is_opaque(value: ast.expr) -> bool:
    """True for expressions whose value is unknown unless something in them is known."""
    if isinstance(value, ast.BinOp):
        return not isinstance(value.op, ast.Add) or not any(
            isinstance(side, (ast.Tuple, ast.List, ast.ListComp, ast.BinOp)) for side in (value.left, value.right)
        )
    return isinstance(value, (ast.Call, ast.Attribute, ast.Subscript, ast.JoinedStr))


def test_of_pattern(pattern: ast.pattern, subject: ast.expr) -> ast.expr | None:
    """``isinstance(subject, DynamicCache)`` for ``case DynamicCache()``, ``subject is None`` for ``case None``."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        return test_of_pattern(pattern.pattern, subject)
    if isinstance(pattern, ast.MatchSingleton) and pattern.value is None:
        return ast.copy_location(ast.Compare(subject, [ast.Is()], [ast.Constant(None)]), pattern)
    classes: list[ast.expr] = []
    for part in pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]:
        if isinstance(part, ast.MatchClass):
            classes.append(part.cls)
        elif isinstance(part, ast.MatchSequence):
            classes += [ast.Name("tuple", ast.Load()), ast.Name("list", ast.Load())]
        else:
            return None
    test = ast.Call(ast.Name("isinstance", ast.Load()), [subject, ast.Tuple(classes, ast.Load())], [])
    return ast.fix_missing_locations(ast.copy_location(test, pattern))


def is_whole_test(pattern: ast.pattern) -> bool:
    """True where nothing but the class, or None, is asked for: what comes behind is none of it."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        return is_whole_test(pattern.pattern)
    if isinstance(pattern, ast.MatchOr):
        return all(map(is_whole_test, pattern.patterns))
    if isinstance(pattern, ast.MatchClass):
        return not pattern.patterns and not pattern.kwd_patterns
    return isinstance(pattern, ast.MatchSingleton)


def is_irrefutable(pattern: ast.pattern) -> bool:
    """True for ``case _`` and ``case name``."""
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def level_of(qualified: str) -> str:
    """Where a class of transformers stands in a model."""
    if "Attention" in qualified:
        return "attention"
    return "layer" if is_layer_class(qualified) else "model"


def is_library_part(atom: Atom) -> bool:
    """True for an attention module or a layer of transformers, built here."""
    return isinstance(atom, Model) and atom.role != "model" and atom.cls != ""


def is_patch(target: ast.Attribute, base: Value, value: Value) -> bool:
    """True where a function of the file takes the place of a ``forward``, or something of it that of something of transformers."""
    if target.attr in HOOKS:
        return any(isinstance(atom, LocalFunction) for atom in value)
    if target.attr in ATTENTION_PARTS:
        in_layer = any(isinstance(atom, Model) and atom.role == "layer" for atom in base)
        return in_layer and any(isinstance(atom, Instance) for atom in value)
    if not any(isinstance(atom, (LocalClass, LocalFunction)) for atom in value):
        return False
    return any(isinstance(atom, Symbol) and atom.name.startswith("transformers.") for atom in base)


def weakened(value: Value) -> Value:
    """Caches that only their name speaks for: a method of a class of the project may well have a format of its own."""
    caches = [replace(atom, certainty=Certainty.NAMED) for atom in value if isinstance(atom, CacheObject)]
    return (Unknown(), *caches) if caches else value


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def is_open_annotation(node: ast.expr) -> bool:
    """True for annotations that say nothing: ``Any``, ``object``, ``Optional[Any]``."""
    if isinstance(node, ast.Subscript):
        return is_open_annotation(node.slice)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("Any", "object")


def is_suppress(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in CATCHES


def exception_names(node: ast.expr) -> set[str]:
    """The exceptions that a ``suppress(...)`` or a ``pytest.raises(...)`` names."""
    assert isinstance(node, ast.Call)
    items = [part for item in node.args for part in (item.elts if isinstance(item, ast.Tuple) else [item])]
    return {item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in items}


def handler_names(handler: ast.ExceptHandler) -> frozenset[str]:
    """Names of the exceptions a handler takes."""
    if handler.type is None:
        return frozenset({"BaseException", "Exception"})
    nodes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return frozenset(item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in nodes)


def is_guard(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    """True where the handler goes on in another way; one that raises again, or that nets everything around a long
    body, is no guard for the single use."""
    if handler.body and isinstance(handler.body[-1], ast.Raise):
        return False
    broad = bool(handler_names(handler) & {"Exception", "BaseException"})
    return not (broad and len(node.body) > 4)


def sys_modules() -> frozenset[str]:
    import sys

    return sys.stdlib_module_names


def analyse(
    region: Region,
    path: Path,
    target: ReleaseSet,
    project: Project,
    timeline: Timeline,
    around: str = "",
    surroundings: Surroundings | None = None,
) -> Facts:
    """The facts of one region; a ``generation_config.json`` and the prose of a document have a text and no tree.

    *around* is the module that an example in a docstring stands in: what that imports is around the example, too.
    *surroundings* are what the project says of a module that is walked alone.
    Raises SyntaxError where the text does not parse and RecursionError where it is nested too deeply.
    """
    if not region.is_python:
        return Facts(text=region.text, path=path, kind=region.kind, target=target, timeline=timeline)
    tree = project.parsed(path, target, region.text)
    if tree is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(region.text)
    walker = Walk(region.text, tree, path, target, project, timeline)
    walker.in_parts = region.kind != "module"
    walker.around = around
    if surroundings is not None:
        walker.surroundings = surroundings
        walker._shims.update(surroundings.shims)
    walker.run()
    return walker.facts(region.kind)
