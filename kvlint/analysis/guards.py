"""Conditions: which releases and which alternatives of a value each branch is left with."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from kvlint.analysis.calls import Calls
from kvlint.analysis.expressions import SIGNATURE
from kvlint.analysis.facts import GuardUse, TestUse
from kvlint.analysis.library import is_foreign_class, is_torch_model_class
from kvlint.analysis.names import CACHE_KEYWORDS, looks_like_cache, version_of_name
from kvlint.analysis.recorder import Flow, merge, path_of
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import (
    CACHE,
    DYNAMIC_CACHE,
    ENCODER_DECODER_CACHE,
    Atom,
    CacheObject,
    Certainty,
    Foreign,
    HasMember,
    Instance,
    Items,
    LayerPair,
    LegacyCache,
    Literal,
    LocalClass,
    Mapping,
    Member,
    Model,
    NoneValue,
    Outside,
    PerRelease,
    Sequence,
    Symbol,
    Truth,
    Unknown,
    Value,
    is_promised,
    literal,
    of_type,
)
from kvlint.analysis.versions import compare_each
from kvlint.findings import Origin
from kvlint.nodes import assignment, statements, walk
from kvlint.releases import NO_RELEASE, ReleaseSet
from kvlint.timeline import Timeline

SWAPPED = {"Lt": "Gt", "LtE": "GtE", "Gt": "Lt", "GtE": "LtE", "Eq": "Eq", "NotEq": "NotEq"}


FORWARD_KEYWORDS = frozenset({"cache_position", "use_cache"})
"""What the timeline knows of every ``forward`` besides the names of the cache (``Timeline.forward_keywords``)."""


@dataclass(frozen=True, slots=True)
class TestedClasses:
    """The second argument of ``isinstance``, sorted by what it means here."""

    __test__ = False

    caches: tuple[str, ...]
    has_tuple: bool
    has_other: bool
    own: tuple[ClassInfo, ...] = ()
    """Classes of the project among the others."""
    models: tuple[str, ...] = ()
    """The model classes of transformers, where nothing else is asked for."""
    foreign: bool = False
    """Nothing but classes of other libraries is asked for, of which none is known to hold models of transformers."""


def is_question(node: ast.AST | None) -> bool:
    """True for ``isinstance(x, kind)`` and ``hasattr(x, name)``."""
    asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "hasattr")
    return asked and isinstance(node, ast.Call) and len(node.args) == 2


def conditions_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.Call]:
    """The names that a function sets once, to an ``isinstance`` or a ``hasattr`` of a name that it never sets again."""
    stored: dict[str, int] = {}
    asked: dict[str, ast.Call] = {}
    for statement in statements(function):
        targets, value = assignment(statement)
        bound = [*targets, getattr(statement, "target", None)]
        for item in (part for target in bound if target is not None for part in walk(target)):
            if isinstance(item, ast.Name):
                stored[item.id] = stored.get(item.id, 0) + 1
        if isinstance(value, ast.Call) and is_question(value) and isinstance(targets[0], ast.Name):
            asked[targets[0].id] = value
    return {
        name: call
        for name, call in asked.items()
        if stored[name] == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id not in stored
    }


def kind_asked_for(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.Call | None:
    """``isinstance(x, kind)`` for ``type(x) is kind``, ``type(x) == kind`` and ``type(x) in (kind, ...)``."""
    asked = isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "type"
    if not asked or not isinstance(left, ast.Call) or len(left.args) != 1:
        return None
    if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
        return None
    return ast.Call(ast.Name("isinstance", ast.Load()), [left.args[0], right], [])


def namespace_of(node: ast.expr) -> ast.expr | None:
    """The object whose names ``dir(x)``, ``vars(x)`` and ``x.__dict__`` hold."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("dir", "vars")
    return node.args[0] if called and isinstance(node, ast.Call) and len(node.args) == 1 else None


class Guards(Calls):
    """Splits a flow at a condition."""

    _conditions: dict[int, dict[str, ast.Call]]
    """What the names of a function stand for that are set to a test once, by the function."""
    _asking: bool
    """A version helper is being asked: what its arguments decide is decided."""

    def branch(
        self, test: ast.expr, flow: Flow, owner: ast.AST, evaluate: bool = True
    ) -> tuple[Flow | None, Flow | None]:
        """The flows on which *test* is true and false; None for one that no release in force can take."""
        if isinstance(test, ast.BoolOp):
            return self._branch_bool(test, flow, owner)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            when_true, when_false = self.branch(test.operand, flow, owner, evaluate)
            return when_false, when_true
        value = self.expression(test, flow, owner)
        if isinstance(test, ast.NamedExpr):
            return self._branch_truth(test.target, value, flow, owner)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            split = self._branch_compare(test, value, flow, owner)
            if split is not None:
                return split
        if isinstance(test, ast.Call):
            split = self._branch_call(test, value, flow, owner)
            if split is not None:
                return split
        return self._branch_truth(test, value, flow, owner)

    def _branch_bool(self, test: ast.BoolOp, flow: Flow, owner: ast.AST) -> tuple[Flow | None, Flow | None]:
        going: Flow | None = flow
        left: list[Flow | None] = []
        wants_true = isinstance(test.op, ast.And)
        for item in test.values:
            if going is None or not going.releases:
                break
            when_true, when_false = self.branch(item, going, owner)
            left.append(when_false if wants_true else when_true)
            going = when_true if wants_true else when_false
        done = merge(left)
        return (going, done) if wants_true else (done, going)

    def _split(self, flow: Flow, releases: ReleaseSet, test: ast.expr) -> tuple[Flow | None, Flow | None]:
        self.records.guards[id(test)] = GuardUse(test, releases, self.place(flow))
        yes, no = flow.copy(), flow.copy()
        yes.releases = flow.releases & releases
        no.releases = flow.releases - releases
        return (yes if yes.releases else None), (no if no.releases else None)

    def _branch_truth(
        self, test: ast.expr, value: Value, flow: Flow, owner: ast.AST
    ) -> tuple[Flow | None, Flow | None]:
        if len(value) == 1 and isinstance(value[0], Truth):
            return self._split(flow, value[0].releases, test)
        if len(value) > 1 and self._differs_by_release(value):
            return self._split(flow, self._restricted_truth(value), test)
        truths = of_type(value, Truth)
        if truths and all(isinstance(atom, Truth) or literal((atom,)) is False for atom in value):
            found = NO_RELEASE  # false otherwise: on the one path a release decides, on the other nothing does
            for atom in truths:
                found |= atom.releases
            yes, _ = self._split(flow, found, test)
            return yes, flow.copy()
        if len(value) == 1 and isinstance(value[0], HasMember):
            yes = flow.copy()
            yes.know_member(value[0].path, value[0].name)
            return yes, flow.copy()
        if len(value) == 1 and isinstance(value[0], Literal):
            if isinstance(value[0].value, bool) or (value[0].value == 1 and isinstance(test, ast.Constant)):
                return (flow.copy(), None) if value[0].value else (None, flow.copy())
        if (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
            isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
        ):
            return flow.copy(), flow.copy()
        if isinstance(test, (ast.Name, ast.Attribute)) and all(isinstance(atom, (Unknown, Symbol)) for atom in value):
            by_name = version_of_name(test.id if isinstance(test, ast.Name) else test.attr)
            if by_name is not None:
                return self._split(flow, self.timeline.compare(*by_name), test)
        asked = self._condition(test) if isinstance(test, ast.Name) else None
        if asked is not None:
            return self.branch(asked, flow, owner)
        self._record_test(test, test, value, "truth", flow, owner)
        yes, no = flow.copy(), flow.copy()
        path = path_of(test)
        kept = tuple(atom for atom in value if not isinstance(atom, NoneValue))
        if path and kept != value and kept:
            yes.narrow(path, kept)
        if path or isinstance(test, ast.Call):
            if kept != value and kept:
                self._narrow_releases(yes, kept)
            if not kept and value:
                return None, no
            self._narrow_to_absent(no, value)
        return (yes if yes.releases else None), (no if no.releases else None)

    def _condition(self, name: ast.Name) -> ast.Call | None:
        """``isinstance(past, tuple)`` for ``is_legacy`` that the function sets to it once; *past* stays what it is."""
        if self._function is None:
            return None
        node = self._function.node
        known = self._conditions.get(id(node))
        if known is None:
            known = self._conditions[id(node)] = conditions_of(node)
        return known.get(name.id)

    def _narrow_to_absent(self, flow: Flow, value: Value) -> None:
        """``layers = getattr(cache, "layers", None)``: where it is false, the member is taken to be missing."""
        nothing = [atom for atom in value if isinstance(atom, NoneValue)]
        if nothing and not any(isinstance(atom, Unknown) or self.timeline.all <= atom.when for atom in value):
            self._narrow_releases(flow, tuple(nothing))

    def _differs_by_release(self, value: Value) -> bool:
        """True for booleans of which each release knows one; several on the same release decide nothing."""
        if not all(isinstance(atom, (Truth, Literal)) for atom in value):
            return False
        seen = ReleaseSet(0)
        for atom in value:
            if seen & atom.when & self.timeline.all:
                return False
            seen |= atom.when
        return True

    def _restricted_truth(self, value: Value) -> ReleaseSet:
        """Where a value that differs by release is true."""
        result = ReleaseSet(0)
        for atom in value:
            if isinstance(atom, Truth):
                result |= atom.releases & atom.when
            elif isinstance(atom, Literal) and atom.value:
                result |= atom.when & self.timeline.all
        return result

    def _narrow_releases(self, flow: Flow, value: Value) -> None:
        """Leaves only releases on which one of the alternatives can be there."""
        possible = ReleaseSet(0)
        for atom in value:
            possible |= atom.when
        flow.releases &= possible

    def _record_test(
        self,
        test: ast.expr,
        subject: ast.expr,
        value: Value,
        kind: str,
        flow: Flow,
        owner: ast.AST,
        negated: bool = False,
    ) -> None:
        if any(isinstance(atom, CacheObject) for atom in value):
            self.records.tests[id(test)] = TestUse(test, subject, value, kind, self.place(flow), owner, negated)

    # -- comparisons ------------------------------------------------------------------------------------------------

    def version_truth(self, node: ast.Compare, left: Value, rights: tuple[Value, ...]) -> ReleaseSet | None:
        if len(rights) == 1:
            return self.compare_values(type(node.ops[0]).__name__, left, rights[0])
        parts: list[ReleaseSet] = []
        operands = (left, *rights)
        for position, op in enumerate(node.ops):
            part = self.compare_values(type(op).__name__, operands[position], operands[position + 1])
            if part is None:
                return None
            parts.append(part)
        result = parts[0]
        for part in parts[1:]:
            result &= part
        return result

    def with_parameter(self, function: Atom, name: object) -> ReleaseSet | None:
        """Releases on which a function of the library has a parameter of this name; None where that is not known.

        Of a ``forward`` only the parameters that have to do with the cache are.
        """
        if isinstance(function, Symbol) and not function.name.endswith(".forward") and isinstance(name, str):
            return self.named_parameter(function.name, name)
        if name not in CACHE_KEYWORDS | FORWARD_KEYWORDS:
            return None
        qualified, kind = "", "model"
        if isinstance(function, Member) and isinstance(function.of, Model) and function.name == "forward":
            qualified, kind = function.of.cls, function.of.role
        elif isinstance(function, Symbol) and function.name.endswith(".forward"):
            qualified = function.name.removesuffix(".forward")
        else:
            return None
        dated = self.timeline.forward_keywords(self.timeline.canonical(qualified) or qualified) if qualified else ()
        if dated:
            having = ReleaseSet(0)
            for releases, names in dated:
                having |= releases if name in names else ReleaseSet(0)
            return having
        return self.timeline.keyword_of_kind(kind, str(name)) if isinstance(function, Member) else None

    def named_parameter(self, function: str, name: str) -> ReleaseSet | None:
        """The releases on which the signature of a function has a parameter; None where one of them is not known."""
        dated = self.timeline.signatures(self.timeline.canonical(function) or function)
        known = having = ReleaseSet(0)
        for releases, signature in dated:
            known |= releases
            having |= releases if signature.parameter(name) is not None else ReleaseSet(0)
        return having if known and self.target <= known else None

    def compare_values(self, op: str, left: Value, right: Value) -> ReleaseSet | None:
        if len(left) != 1 or len(right) != 1:
            return None
        if op in ("In", "NotIn") and isinstance(right[0], Member) and right[0].name == SIGNATURE:
            having = self.with_parameter(right[0].of, literal(left))
            return having if op == "In" or having is None else self.timeline.all - having
        if self._asking and op in ("Eq", "NotEq") and isinstance(left[0], Literal) and isinstance(right[0], Literal):
            holds = (left[0].value == right[0].value) == (op == "Eq")
            return self.timeline.all if holds else ReleaseSet(0)
        if isinstance(left[0], PerRelease):
            constant = constant_of(right)
            return compare_each(op, left[0].values, constant) if constant is not None else None
        if isinstance(right[0], PerRelease) and op in SWAPPED:
            constant = constant_of(left)
            return compare_each(SWAPPED[op], right[0].values, constant) if constant is not None else None
        if isinstance(left[0], Truth) and op in ("Is", "Eq") and isinstance(literal(right), bool):
            return left[0].releases if literal(right) else self.timeline.all - left[0].releases
        return None

    def _branch_compare(
        self, test: ast.Compare, value: Value, flow: Flow, owner: ast.AST
    ) -> tuple[Flow | None, Flow | None] | None:
        if len(value) == 1 and isinstance(value[0], Truth):
            return self._split(flow, value[0].releases, test)
        op, right = test.ops[0], test.comparators[0]
        kind = kind_asked_for(test.left, op, right)
        if kind is not None:
            same, other = self.branch(ast.fix_missing_locations(ast.copy_location(kind, test)), flow, owner)
            return (other, same) if isinstance(op, (ast.IsNot, ast.NotEq, ast.NotIn)) else (same, other)
        if (
            isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq))
            and isinstance(right, ast.Constant)
            and right.value is None
        ):
            subject = test.left.target if isinstance(test.left, ast.NamedExpr) else test.left
            negative = isinstance(op, (ast.IsNot, ast.NotEq))
            return self._branch_none(test, subject, flow, owner, negative)
        if (
            isinstance(op, (ast.In, ast.NotIn))
            and isinstance(test.left, ast.Constant)
            and isinstance(test.left.value, str)
        ):
            holder = namespace_of(right)
            if holder is not None:
                asked = ast.Call(ast.Name("hasattr", ast.Load()), [holder, test.left], [])
                there, missing = self.branch(ast.fix_missing_locations(ast.copy_location(asked, test)), flow, owner)
                return (there, missing) if isinstance(op, ast.In) else (missing, there)
            yes, no = flow.copy(), flow.copy()
            yes.know_member("", test.left.value)
            path = path_of(right)
            if path:
                yes.know_member(path, test.left.value)
            return (yes, no) if isinstance(op, ast.In) else (no, yes)
        return None

    def _branch_none(
        self, test: ast.Compare, subject: ast.expr, flow: Flow, owner: ast.AST, negative: bool
    ) -> tuple[Flow | None, Flow | None]:
        value = self.expression(subject, flow, test)
        kind = "is-not-none" if negative else "is-none"
        self._record_test(test, subject, value, kind, flow, owner)
        some, none = flow.copy(), flow.copy()
        path = path_of(subject)
        kept = tuple(atom for atom in value if not isinstance(atom, NoneValue))
        nothing = tuple(atom for atom in value if isinstance(atom, NoneValue))
        if path:
            if kept != value or (kept and path.isidentifier() and path not in some.names):
                some.narrow(path, kept)  # also a name of the module: after both branches it may be either
            if kept:
                self._narrow_releases(some, kept)
            none.narrow(path, nothing or (NoneValue(),))
        elif kept:
            self._narrow_releases(some, kept)
        if nothing and not any(isinstance(atom, Unknown) for atom in value):
            self._narrow_releases(none, nothing)
        some_flow = some if some.releases and (kept or not value) else None
        none_flow = none if none.releases else None
        return (some_flow, none_flow) if negative else (none_flow, some_flow)

    # -- isinstance, hasattr ----------------------------------------------------------------------------------------

    def _branch_call(
        self, test: ast.Call, value: Value, flow: Flow, owner: ast.AST
    ) -> tuple[Flow | None, Flow | None] | None:
        if not isinstance(test.func, ast.Name):
            return None
        if test.func.id == "isinstance" and len(test.args) == 2:
            classes = self.tested_classes(test.args[1], flow)
            if classes is None:
                return None
            subject = self.expression(test.args[0], flow, test)
            if not classes.has_other and bool(classes.caches) != classes.has_tuple:
                self._record_test(
                    test, test.args[0], subject, "is-tuple" if classes.has_tuple else "is-cache", flow, owner
                )
            path = path_of(test.args[0])
            yes, no = flow.copy(), flow.copy()
            if path:
                yes.narrow(path, narrow_to(subject, classes, path, self, test))
                no.narrow(path, narrow_from(subject, classes, path))
                for flow in (yes, no):
                    self.narrowed(path, flow.names[path])
            return yes, no
        return None

    def narrowed(self, path: str, value: Value) -> None:
        """Tells that a path has this value from here on."""
        raise NotImplementedError

    def tested_classes(self, node: ast.expr, flow: Flow) -> TestedClasses | None:
        """What an ``isinstance`` asks for; None where nothing about caches or tuples is asked."""
        nodes = list(node.elts) if isinstance(node, ast.Tuple) else [node]
        if isinstance(node, ast.BinOp):
            nodes = flatten_union(node)
        caches: list[str] = []
        own: list[ClassInfo] = []
        models: list[str] = []
        foreign: list[bool] = []
        has_tuple = has_other = False
        for item in nodes:
            value = flattened(self.expression(item, flow, node if item is not node else None))
            if isinstance(item, ast.Name) and item.id in ("tuple", "list", "Tuple", "List", "Sequence", "Iterable"):
                has_tuple = True
                continue
            found = False
            for atom in value:
                cls = self.library.cache_class(atom.name) if isinstance(atom, Symbol) else None
                if isinstance(atom, LocalClass):
                    cls = self.cache_base(atom.info)
                    if cls is None and atom.info.bases_known():
                        own.append(atom.info)
                if isinstance(atom, Symbol) and is_torch_model_class(atom.name):
                    models.append(atom.name)
                if cls is not None:
                    caches.append(cls)
                    found = True
            foreign.append(len(value) == 1 and isinstance(value[0], Symbol) and is_foreign_class(value[0].name))
            has_other = has_other or not found
        if not caches and not has_tuple and not has_other:
            return None
        whole = tuple(models) if len(models) == len(nodes) else ()
        return TestedClasses(tuple(caches), has_tuple, has_other, tuple(own), whole, all(foreign))


def constant_of(value: Value) -> object:
    """A constant, or a tuple of constants, to compare with; None for anything else."""
    found = literal(value)
    if found is not None:
        return found
    if len(value) == 1 and isinstance(value[0], Items):
        parts = [literal(item) for item in value[0].items]
        if all(part is not None for part in parts):
            return tuple(parts) if value[0].is_tuple else list(parts)
    return None


def flattened(value: Value) -> Value:
    """The classes of a tuple of classes that has a name (``CLASSES = (DynamicCache, StaticCache)``)."""
    if len(value) == 1 and isinstance(value[0], Items):
        return tuple(atom for item in value[0].items for atom in item)
    return value


def flatten_union(node: ast.expr) -> list[ast.expr]:
    """The members of ``A | B | C``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return flatten_union(node.left) + flatten_union(node.right)
    return [node]


def narrow_to(value: Value, classes: TestedClasses, path: str, walk: Guards, test: ast.Call) -> Value:
    """The alternatives of *value* that are instances of *classes*."""
    kept: list[Atom] = []
    origin = walk.origin(test, "tested with isinstance here")
    target = classes.caches[0] if len(classes.caches) == 1 else CACHE
    for atom in value:
        if isinstance(atom, CacheObject):
            if classes.caches:
                if all(apart(walk.timeline, atom.cls, cls) for cls in classes.caches):
                    continue
                cls = target if atom.cls == CACHE else atom.cls
                source = atom.source if atom.source == "hook" else "isinstance"
                kept.append(
                    replace(atom, cls=cls, certainty=Certainty.PROVEN, source=source, origin=atom.origin or origin)
                )
            elif (classes.has_tuple and atom.certainty < Certainty.PROVEN) or classes.has_tuple:
                kept.append(LegacyCache("isinstance"))
        elif isinstance(atom, (LegacyCache, Items, Sequence, LayerPair)):
            if classes.has_tuple:
                kept.append(atom)
        elif isinstance(atom, Model):
            if classes.foreign and atom.certainty < Certainty.PROVEN:
                kept.append(Outside(when=atom.when))
            elif classes.has_other and not classes.own:
                kept.append(narrowed_model(atom, classes.models, origin))
        elif isinstance(atom, (Unknown, Foreign)) and classes.models:
            kept.append(narrowed_model(Model(when=atom.when), classes.models, origin))
        elif isinstance(atom, (Unknown, Foreign)):
            if classes.caches:
                kept.append(CacheObject(target, Certainty.PROVEN, "isinstance", origin=origin))
            elif classes.has_tuple:
                kept.append(
                    LegacyCache("isinstance") if looks_like_cache(path.rpartition(".")[2]) else Sequence((Unknown(),))
                )
        elif isinstance(atom, (Instance, Mapping)) and classes.has_other:
            kept.append(atom)
    if not kept:
        kept += [Instance(info) for info in classes.own]
    asked_alone = classes.caches and not (classes.has_tuple or classes.has_other)
    others = bool(value) and all(isinstance(atom, CacheObject) for atom in value)
    if not kept and asked_alone and ("." in path or others or all(map(is_promise, value))):
        kept.append(CacheObject(target, Certainty.PROVEN, "isinstance", origin=origin))  # None until somebody sets it
    return tuple(kept) or (Unknown(),)


def apart(timeline: Timeline, first: str, second: str) -> bool:
    """True for two classes of caches of which no object is an instance of both, on any release."""
    if CACHE in (first, second) or first == second:
        return False
    return not timeline.descends(first, second) and not timeline.descends(second, first)


def is_promise(atom: Atom) -> bool:
    """True for what only an annotation says, and for a default: code that asks for something else gets that as well."""
    return isinstance(atom, NoneValue) or is_promised(atom)


def narrowed_model(model: Model, classes: tuple[str, ...], origin: Origin) -> Model:
    """A model that is an object of one of these classes; the same one where these are not known."""
    if model.role != "model" or not classes or (model.cls and model.certainty == Certainty.PROVEN):
        return model
    return replace(
        model,
        certainty=Certainty.PROVEN,
        cls=classes[0] if len(classes) == 1 else "",
        origin=model.origin or origin,
    )


def is_told_apart(cache: CacheObject, classes: TestedClasses) -> bool:
    """True where the library's own cache is told from a format that came before it, by the class that is usual there.

    A model gives an EncoderDecoderCache always, or never: who asks for it keeps another format for the other case.
    """
    if cache.source == "hook" and DYNAMIC_CACHE in classes.caches:
        return True
    return ENCODER_DECODER_CACHE in classes.caches


def narrow_from(value: Value, classes: TestedClasses, path: str) -> Value:
    """The alternatives of *value* that are not instances of *classes*."""
    kept: list[Atom] = []
    removed_cache = False
    for atom in value:
        if isinstance(atom, CacheObject) and classes.caches:
            by_name = atom.cls == CACHE and (atom.certainty < Certainty.PROVEN or is_told_apart(atom, classes))
            if CACHE in classes.caches or atom.cls in classes.caches or by_name:
                removed_cache = True
                continue
        if isinstance(atom, (LegacyCache, Items, Sequence)) and classes.has_tuple:
            continue
        if isinstance(atom, Instance) and any(own in atom.info.ancestors() for own in classes.own):
            continue
        kept.append(atom)
    if removed_cache and not any(not isinstance(atom, (Unknown, NoneValue)) for atom in kept):
        kept = [atom for atom in kept if isinstance(atom, NoneValue)] + [LegacyCache("isinstance")]
    return tuple(kept) or (Unknown(),)
