"""Values of calls: constructors, models, members of caches, builtins, functions of the file, version helpers."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

from kvlint.analysis.expressions import (
    INTERESTING,
    SAME_MODEL_METHODS,
    SIGNATURE,
    VERSION,
    Expressions,
    holds,
    table_of_names,
)
from kvlint.analysis.facts import CallUse
from kvlint.analysis.library import LOADERS, is_foreign_loader, is_output_class, is_own, is_torch_model_class
from kvlint.analysis.names import (
    CACHE_KEYWORDS,
    CACHE_OUTPUT_KEYS,
    MODEL_CALL_KEYWORDS,
    MODEL_NAMES,
    VERSION_HELPER,
    looks_like_cache,
    version_of_name,
)
from kvlint.analysis.recorder import Flow, path_of, unknown
from kvlint.analysis.scopes import ClassInfo, FunctionInfo, HookUse
from kvlint.analysis.values import (
    CACHE,
    UNKNOWN,
    Atom,
    CacheLength,
    CacheObject,
    Certainty,
    Config,
    GenerationConfigValue,
    HasMember,
    Instance,
    Items,
    LegacyCache,
    Literal,
    LocalClass,
    LocalFunction,
    Mapping,
    Member,
    Model,
    ModelKwargs,
    ModelOutput,
    NoneValue,
    OutputDict,
    Outside,
    PerRelease,
    Pipeline,
    Sequence,
    StoredTensor,
    SuperObject,
    Symbol,
    Truth,
    Unknown,
    Value,
    changed_mapping,
    grown,
    is_collection,
    join,
    literal,
    of_type,
    restrict,
)
from kvlint.analysis.versions import VERSION_CLASSES, apply_each, compare_each, to_specifier, to_version
from kvlint.releases import ReleaseSet

ITERATORS = frozenset(
    {
        "tuple",
        "list",
        "zip",
        "enumerate",
        "iter",
        "reversed",
        "map",
        "filter",
        "sorted",
        "set",
        "next",
        "sum",
        "any",
        "all",
        "max",
        "min",
    }
)
MODULE_METHODS = frozenset(
    {"load_state_dict", "state_dict", "register_buffer", "register_parameter", "add_module", "get_submodule"}
    | {"get_parameter", "get_buffer", "named_parameters", "named_modules", "named_children", "named_buffers"}
    | {
        "requires_grad_",
        "zero_grad",
        "share_memory",
        "extra_repr",
        "register_forward_hook",
        "to_empty",
        "set_extra_state",
    }
    | {"register_forward_pre_hook", "get_extra_state", "set_submodule", "register_module", "add_argument", "parse_args"}
)
"""Methods of ``torch.nn.Module``, and of parsers of arguments, that a project may define as well."""
CACHE_KINDS: frozenset[type[Atom]] = frozenset({CacheObject, LegacyCache})
HANDS_ON = frozenset({"tqdm", "trange", "track", "islice"})
"""Functions whose items are those of their first argument."""
TENSOR_METHODS = frozenset(
    {"to", "clone", "detach", "contiguous", "cpu", "cuda", "float", "half", "bfloat16", "requires_grad_"}
)
FOLLOWED = INTERESTING | {Model, SuperObject}
BINDERS = ("types.MethodType", "functools.partial", "functools.partialmethod")
SIGNATURES = ("inspect.signature", "inspect.getfullargspec", "inspect.getargspec")
SEQUENCE_METHODS = frozenset({"split", "chunk", "unbind", "tensor_split"})
"""Methods of tensors (and of strings) that return a tuple or list, whatever they are given."""
GENERATION_HOOKS = ("prepare_inputs_for_generation", "_update_model_kwargs_for_generation")
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
HOOK_REGISTRARS = ("register_forward_pre_hook", "register_forward_hook")
OPERATOR_FUNCTIONS = {"lt": "Lt", "le": "LtE", "gt": "Gt", "ge": "GtE", "eq": "Eq", "ne": "NotEq"}
VERSION_PACKAGES = ("importlib.metadata.version", "importlib_metadata.version", "pkg_resources.get_distribution")


PYTREE_REGISTRARS = ("register_pytree_node", "_register_pytree_node", "register_pytree_with_keys")
LESSONS = (CacheObject, LegacyCache, Model, ModelOutput, Instance, Items, Sequence, Truth, LocalClass)
"""What a function has to be told of its arguments and of what other functions return; the rest changes nothing in it."""
WINDOW_CONFIGS = ("MistralConfig", "MinistralConfig", "MixtralConfig", "Phi3Config", "Starcoder2Config")
"""Configurations whose layers all have the window as soon as ``sliding_window`` is given."""


def is_windowed(config: str, keywords: tuple[tuple[str, Value], ...]) -> bool:
    """True where a configuration is built with layers that are not full attention, as its literals say."""
    for name, value in keywords:
        if name == "layer_types" and len(value) == 1 and isinstance(value[0], Items):
            kinds = [literal(item) for item in value[0].items]
            if any(isinstance(kind, str) and kind != "full_attention" for kind in kinds):
                return True
        if (
            name == "sliding_window"
            and config in WINDOW_CONFIGS
            and isinstance(literal(value), int)
            and literal(value) > 0
        ):
            return True
    return False


def given_config(arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]) -> Config | None:
    """The configuration that a model is built from."""
    values = [*arguments[:1], *(value for name, value in keywords if name == "config")]
    return next((atom for value in values for atom in of_type(value, Config)), None)


LIST_GROWERS = frozenset({"append", "extend", "insert"})
DICT_CHANGERS = frozenset({"update", "pop", "setdefault", "clear", "popitem"})


def teaches(value: Value, before: Value) -> bool:
    """True where a value says something that can change what another function means.

    A collection does by what is in it, or because it stands beside a cache.
    """
    beside = any(isinstance(atom, CacheObject) for atom in value)
    for atom in value:
        if atom in before:
            continue
        if isinstance(atom, (Items, Sequence)) and not beside:
            items = atom.items if isinstance(atom, Items) else (atom.item,)
            if any(teaches(item, ()) for item in items):
                return True
        elif isinstance(atom, LESSONS):
            return True
    return False


def hands_on(function: ast.expr, callee: Value) -> bool:
    """True for ``tqdm(...)``, ``itertools.islice(...)`` and their like, unless the file defines the name."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in HANDS_ON and not any(isinstance(atom, (LocalFunction, LocalClass)) for atom in callee)


def given_names(keywords: tuple[tuple[str, Value], ...]) -> set[str]:
    """The names of keyword arguments, those of dicts that are unpacked among them."""
    spread = {key for name, value in keywords if not name for atom in of_type(value, Mapping) for key, _ in atom.items}
    return {name for name, _ in keywords if name} | spread


class Calls(Expressions):
    """Evaluates calls."""

    def _eval_Call(self, node: ast.Call, flow: Flow, parent: ast.AST | None) -> Value:
        special = self._special_form(node, flow, parent)
        if special is not None:
            return special
        callee = self.expression(node.func, flow, node)
        starred = any(isinstance(item, ast.Starred) for item in node.args)
        arguments = tuple(self.expression(item, flow, node) for item in node.args)
        keywords = tuple((item.arg or "", self.expression(item.value, flow, node)) for item in node.keywords)
        self.record_symbols(node.func, callee, "call", flow)
        if isinstance(node.func, ast.Attribute) and node.func.attr in HOOK_REGISTRARS:
            given = arguments[0] if arguments else next((value for name, value in keywords if name == "hook"), ())
            for hook in of_type(given, LocalFunction):
                hook.info.hooks[id(node)] = HookUse(node, callee, flow.releases, self.tree)
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass") and len(node.args) == 2:
            self.mark_tested(node.args[1])
        if hands_on(node.func, callee) and arguments and holds(arguments[0], CACHE_KINDS):
            return arguments[0]
        parts = [self.call_atom(atom, node, arguments, keywords, flow) for atom in callee]
        result = join(*parts) if parts else UNKNOWN
        if self._worth_recording(node, callee, arguments, keywords):
            place = self.place(flow)
            known = frozenset(("", name) for name, _ in keywords if name and flow.knows_member("", name))
            if known:
                place = replace(place, known_members=known)
            self.records.calls[id(node)] = CallUse(node, callee, arguments, keywords, place, starred, result, parent)
        return result

    def _worth_recording(
        self, node: ast.Call, callee: Value, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> bool:
        for atom in callee:
            if isinstance(atom, Symbol) and atom.name.startswith(("transformers.", "copy.", "torch.cat")):
                return True
            if isinstance(atom, Symbol) and atom.name == "functools.partial" and arguments:
                if any(self.library.cache_class(made.name) for made in of_type(arguments[0], Symbol)):
                    return True
            if isinstance(atom, (Model, LocalFunction, LocalClass, Pipeline)) or (
                isinstance(atom, Member) and type(atom.of) in FOLLOWED
            ):
                return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in HOOK_REGISTRARS:
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "generate":
            if any(isinstance(atom, Mapping) for name, value in keywords if not name for atom in value):
                return True
        for keyword in node.keywords:
            if (
                keyword.arg == "target"
                and isinstance(keyword.value, ast.Attribute)
                and keyword.value.attr == "generate"
            ):
                return True  # Thread(target=model.generate, kwargs=...)
            if keyword.arg in CACHE_KEYWORDS or keyword.arg in (
                "cache_position",
                "cache_implementation",
                "ignore_keys",
                "ignore_keys_for_eval",
                "use_cache",
            ):
                return True
        return any(holds(value, INTERESTING) for value in arguments)

    # -- forms that are not plain calls ---------------------------------------------------------------------------

    def _special_form(self, node: ast.Call, flow: Flow, parent: ast.AST | None) -> Value | None:
        if not isinstance(node.func, ast.Name) or node.func.id in flow.names:
            return None
        name, arguments = node.func.id, node.args
        if name == "super" and self._owner is not None and not node.keywords:
            return (SuperObject(self._owner),)
        if name == "getattr" and len(arguments) in (2, 3):
            return self._getattr(node, flow, parent)
        if name in ("hasattr", "isinstance", "callable"):
            return None
        return None

    def _getattr(self, node: ast.Call, flow: Flow, parent: ast.AST | None) -> Value | None:
        name_value = literal(self.expression(node.args[1], flow, node))
        base = self.expression(node.args[0], flow, node)
        fallback = self.expression(node.args[2], flow, node) if len(node.args) == 3 else None
        if not isinstance(name_value, str):
            return UNKNOWN
        stand_in = ast.copy_location(ast.Attribute(node.args[0], name_value, ast.Load()), node)
        if fallback is None:
            self.record_attribute(node, node.args[0], base, name_value, "load", flow, parent)
            value = self.attribute(base, name_value, stand_in, flow)
            self.record_symbols(node, value, "load", flow)
            return value
        self.record_default(node, node.args[0], base, name_value, flow, parent)
        parts: list[Value] = []
        absent = ReleaseSet(0)
        for atom in base:
            present = self.member_releases(atom, name_value)
            value = self.attribute_of(atom, name_value, stand_in, flow)
            parts.append(value if present is None else restrict(value, present))
            absent |= self.timeline.all if present is None else self.timeline.all - present
        if base and absent != self.timeline.all:
            fallback = restrict(fallback, absent)
        return join(*[part for part in parts if part], fallback) or UNKNOWN

    def member_releases(self, atom: Atom, name: str) -> ReleaseSet | None:
        """Releases on which an alternative has the member; None where that is not known."""
        if isinstance(atom, CacheObject):
            if atom.local_class is not None and atom.local_class.defines(name):
                return self.timeline.all
            return self.library.member(atom.cls, name)
        if isinstance(atom, Symbol):
            cls = self.library.cache_class(atom.name)
            if cls is not None:
                return self.timeline.member(cls, name)
            qualified = f"{atom.name}.{name}"
            if qualified == VERSION:
                return self.timeline.all
            if self.timeline.knows(qualified):
                return self.timeline.importable(qualified)
        return None

    # -- calls by alternative -------------------------------------------------------------------------------------

    def call_atom(
        self,
        atom: Atom,
        node: ast.Call,
        arguments: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
        flow: Flow,
    ) -> Value:
        """What calling one alternative of the callee returns."""
        if isinstance(atom, Symbol):
            return self._call_symbol(atom, node, arguments, keywords, flow)
        if isinstance(atom, Member):
            return self._call_member(atom, node, arguments, keywords, flow)
        if isinstance(atom, LocalFunction):
            found = self._call_function(atom, node, arguments, keywords, flow)
            owner = atom.info.owner
            if owner is None or found is not UNKNOWN or atom.info.name not in LOADERS:
                return found
            return (Instance(owner),) if self.is_model_instance(owner) or is_own(owner) else found
        if isinstance(atom, LocalClass):
            return self._call_class(atom.info, node, arguments, keywords)
        if isinstance(atom, Model):
            self.pass_to_places(atom, arguments, keywords)
            return self._call_model(atom, node, keywords)
        if isinstance(atom, Instance):
            method = atom.info.method("forward") or atom.info.method("__call__")
            if method is not None:
                made = self._call_function(LocalFunction(method, bound=True), node, arguments, keywords, flow)
                if not unknown(made):
                    return made
                if not self.is_model_instance(atom.info):
                    return (Outside(),) if is_own(atom.info) else UNKNOWN
            else:
                atom.info.given |= given_names(keywords)
            return self._call_model(Model(), node, keywords) if self.is_model_instance(atom.info) else UNKNOWN
        if isinstance(atom, Outside):
            return (atom,)
        if isinstance(atom, Unknown):
            only = self.only_method(node.func)
            if only is not None:
                return self._call_function(LocalFunction(only, bound=True), node, arguments, keywords, flow)
            return self._call_unknown(node, arguments, flow)
        return UNKNOWN

    def only_method(self, func: ast.expr) -> FunctionInfo | None:
        """The method that an object of unknown class is asked for, where one class of the project has one of that name.

        Only one that gives or takes a cache, and whose name no class of torch or of transformers has.
        """
        name = func.attr if isinstance(func, ast.Attribute) else ""
        if "_" not in name.strip("_") or name in MODULE_METHODS or self.library.has_member(name):
            return None
        found = self.methods_named(name)
        if len(found) != 1 or not any(isinstance(atom, (*CACHE_KINDS, Items, Sequence)) for atom in found[0].returns):
            return None
        return found[0]

    def methods_named(self, name: str) -> list[FunctionInfo]:
        raise NotImplementedError

    def _call_symbol(
        self,
        atom: Symbol,
        node: ast.Call,
        arguments: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
        flow: Flow,
    ) -> Value:
        name = atom.name
        cache_class = self.library.cache_class(name)
        if cache_class is not None:
            return (self.constructed(cache_class, node, keywords, atom.when),)
        owner, _, method = name.rpartition(".")
        owner_class = self.library.cache_class(owner)
        if owner_class is not None and method in ("from_legacy_cache", "from_batch_splits"):
            return (
                CacheObject(owner_class, filled=True, when=atom.when, origin=self.origin(node, "a cache built here")),
            )
        if method in ("from_pretrained", "from_config", "_from_config") and is_torch_model_class(owner):
            first = literal(arguments[0]) if arguments else None
            loaded = first if isinstance(first, str) else ""
            config = given_config(arguments, keywords)
            origin = self.origin(node, "a model loaded here")
            name = loaded or (config.name if config is not None else "")
            windowed = config is not None and config.windowed
            return (Model(Certainty.PROVEN, name=name, cls=owner, windowed=windowed, origin=origin),)
        if is_torch_model_class(name):
            config = given_config(arguments, keywords)
            windowed = config is not None and config.windowed
            return (
                Model(Certainty.PROVEN, cls=name, windowed=windowed, origin=self.origin(node, "a model built here")),
            )
        if name in ("copy.deepcopy", "copy.copy", "torch.nn.ModuleList") and arguments:
            return arguments[0]
        part = self.library.part(name)
        if part:
            return (Model(Certainty.PROVEN, part, cls=name, when=atom.when, origin=self.origin(node, "built here")),)
        if name in SIGNATURES and len(arguments) == 1 and len(arguments[0]) == 1:
            return (Member(arguments[0][0], SIGNATURE),)
        if name in BINDERS and arguments:
            bound = name == "types.MethodType"
            return tuple(LocalFunction(item.info, bound) for item in of_type(arguments[0], LocalFunction)) or UNKNOWN
        if method in PYTREE_REGISTRARS and len(arguments) > 1:
            self._teach_flatten(node, arguments)
        if owner in ("operator", "_operator") and method in OPERATOR_FUNCTIONS and len(arguments) == 2:
            truth = self.compare_values(OPERATOR_FUNCTIONS[method], arguments[0], arguments[1])
            return (Truth(truth),) if truth is not None else UNKNOWN
        if name in VERSION_PACKAGES and arguments and literal(arguments[0]) == "transformers":
            if name == "pkg_resources.get_distribution":
                return (Member(PerRelease(self.timeline.releases), "distribution"),)
            return (PerRelease(self.timeline.releases),)
        if name == "importlib.import_module" and arguments and isinstance(literal(arguments[0]), str):
            module = str(literal(arguments[0]))
            if self.timeline.knows(module):
                self.note_missing(self.timeline.all - self.timeline.importable(module), flow, IMPORT_ERRORS)
            return (Symbol(module),)
        if method == "SpecifierSet" and arguments:
            specifier = to_specifier(literal(arguments[0]))
            return (Literal(specifier),) if specifier is not None else UNKNOWN
        if method in VERSION_CLASSES:
            parsed = self._parse_version(arguments)
            if parsed is not None:
                return parsed
        if VERSION_HELPER.search(method) or version_of_name(method):
            helper = self.helper_truth(method, node, arguments, keywords)
            if helper is not None:
                return helper
        if is_output_class(name):
            held = next((value for key, value in keywords if key in CACHE_OUTPUT_KEYS), ())
            return (ModelOutput("made", held=held),)
        if name in ("transformers.pipeline", "transformers.pipelines.pipeline"):
            return (Pipeline(when=atom.when),)
        if name.startswith("transformers.") and owner.endswith(".GenerationConfig") and method == "from_dict":
            return (GenerationConfigValue(),)
        if name.startswith("transformers.") and method.endswith("GenerationConfig"):
            return (GenerationConfigValue(),)
        if method == "from_pretrained" and owner.endswith("Config") and owner.startswith("transformers."):
            if owner.endswith("GenerationConfig"):
                return (GenerationConfigValue(),)
            first = literal(arguments[0]) if arguments else None
            return (Config(Certainty.PROVEN, first if isinstance(first, str) else "", owner),)
        if name.startswith("transformers.") and name.endswith("Config"):
            return (Config(Certainty.PROVEN, cls=name, windowed=is_windowed(method, keywords)),)
        if is_foreign_loader(name):
            return (Outside(),)
        if method == "cast" and name in ("typing.cast", "typing_extensions.cast") and len(arguments) == 2:
            annotated = self.annotation(node.args[0], flow)
            return annotated or arguments[1]
        if name in ("torch.no_grad", "torch.inference_mode"):
            return UNKNOWN
        return self._call_unknown(node, arguments, flow) if not name.startswith(("torch.", "numpy.")) else UNKNOWN

    def _teach_flatten(self, node: ast.Call, arguments: tuple[Value, ...]) -> None:
        """``register_pytree_node(cls, flatten, unflatten)``: an object of the class is flattened."""
        made: list[Atom] = []
        for atom in arguments[0]:
            cls = self.library.cache_class(atom.name) if isinstance(atom, Symbol) else None
            if cls is not None:
                made.append(self.constructed(cls, node, (), atom.when))
            elif isinstance(atom, LocalClass):
                made.append(Instance(atom.info))
        for function in of_type(arguments[1], LocalFunction):
            if made and len(made) == len(arguments[0]):
                self.pass_arguments(function.info, 0, (tuple(made),), ())

    def constructed(
        self, cls: str, node: ast.Call, keywords: tuple[tuple[str, Value], ...], when: ReleaseSet
    ) -> CacheObject:
        """The object a cache constructor call makes."""
        config_given = any(name == "config" for name, _ in keywords)
        short = cls.rpartition(".")[2]
        return CacheObject(
            cls, config_given=config_given, when=when, origin=self.origin(node, f"a `{short}` constructed here")
        )

    def _parse_version(self, arguments: tuple[Value, ...]) -> Value | None:
        if not arguments:
            return None
        value = arguments[0]
        if len(value) == 1 and isinstance(value[0], PerRelease):
            parsed = apply_each(value[0].values, to_version)
            return (PerRelease(parsed),) if parsed is not None else UNKNOWN
        text = literal(value)
        if isinstance(text, str):
            try:
                return (Literal(to_version(text)),)
            except ValueError:
                return UNKNOWN
        return None

    def helper_truth(
        self, name: str, node: ast.Call, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> Value | None:
        """The verdict of a version helper such as ``is_transformers_version(">=", "5.0")``, read by its name."""
        texts = [literal(value) for value in arguments]
        named = {key: literal(value) for key, value in keywords}
        low = named.get("min_version", named.get("lower"))
        high = named.get("max_version", named.get("upper"))
        if isinstance(low, str) or isinstance(high, str):
            found = self.timeline.all
            if isinstance(low, str):
                found &= self.timeline.compare(">=", low)
            if isinstance(high, str):
                found &= self.timeline.compare("<=" if "range" in name else "<", high)
            return (Truth(found),)
        texts += [value for value in named.values() if value is not None]
        strings = [text for text in texts if isinstance(text, str) and text != "transformers"]
        operators = [text for text in strings if text in ("<", "<=", ">", ">=", "==", "!=")]
        versions = [text for text in strings if re.match(r"v?\d+(\.\d+)*", text)]
        specifier = next((found for text in strings if (found := to_specifier(text)) is not None and found), None)
        if specifier is not None:
            holds = compare_each("In", self.timeline.releases, specifier)
            return (Truth(holds),) if holds is not None else None
        if not versions:
            by_name = version_of_name(name)
            return (Truth(self.timeline.compare(*by_name)),) if by_name and not strings else None
        version = versions[0].lstrip("v")
        if operators:
            return (Truth(self.timeline.compare(operators[0], version)),)
        lowered = name.lower()
        if any(word in lowered for word in ("less_or_equal", "_le", "lte")):
            operator = "<="
        elif any(word in lowered for word in ("less", "lower", "older", "before", "below")):
            operator = "<"
        elif "greater_than" in lowered or "newer" in lowered:
            operator = ">" if "equal" not in lowered and "check_if" in lowered else ">="
        elif any(word in lowered for word in ("greater", "at_least", "min", "_ge", "require", "version", "check")):
            operator = ">="
        else:
            return None
        return (Truth(self.timeline.compare(operator, version)),)

    def _call_member(
        self,
        atom: Member,
        node: ast.Call,
        arguments: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
        flow: Flow,
    ) -> Value:
        of, name = atom.of, atom.name
        if isinstance(of, Member) and of.name == SIGNATURE and name == "keys":
            return (of,)
        if isinstance(of, Mapping) and name in DICT_CHANGERS and isinstance(node.func, ast.Attribute):
            path = path_of(node.func.value)
            found = self.key_of(of, str(literal(arguments[0])), node) if name == "pop" and arguments else UNKNOWN
            if path in flow.names:
                changed = [
                    changed_mapping(item, name, arguments, keywords) if isinstance(item, Mapping) else item
                    for item in flow.names[path]
                ]
                flow.set(path, tuple(changed))
            return join(found, *arguments[1:2]) if name in ("pop", "setdefault") else UNKNOWN
        if isinstance(of, LocalFunction):
            return (LocalFunction(of.info, bound=True),) if name == "__get__" else UNKNOWN
        if isinstance(of, LocalClass):
            return (Instance(of.info),)
        if isinstance(of, CacheObject):
            return self._call_cache_method(of, name, node)
        if isinstance(of, StoredTensor):
            return (of,) if name in TENSOR_METHODS else UNKNOWN
        if isinstance(of, Instance):
            return (of,) if name in SAME_MODEL_METHODS else UNKNOWN
        if isinstance(of, Model):
            if name == "generate":
                wanted = next((value for key, value in keywords if key == "return_dict_in_generate"), None)
                return (
                    (ModelOutput("generate", max(of.certainty, Certainty.CONTEXT)),)
                    if wanted is not None and literal(wanted) is True
                    else UNKNOWN
                )
            if name in SAME_MODEL_METHODS:
                return (of,)
            if name in GENERATION_HOOKS:
                own = of.certainty < Certainty.PROVEN and self.prepares_by_itself(name)
                return UNKNOWN if own else (ModelKwargs(hook=True),)
            if name in ("forward", "__call__"):
                return self._call_model(of, node, keywords)
            return UNKNOWN
        if isinstance(of, (ModelOutput, ModelKwargs, OutputDict, Mapping)) and name in ("get", "pop", "setdefault"):
            key = literal(arguments[0]) if arguments else None
            if isinstance(of, Mapping) and arguments and not isinstance(key, str):
                return join(table_of_names(of), *arguments[1:2])
            if isinstance(key, str):
                if isinstance(of, ModelOutput):
                    found = self._attribute_output(of, key, node)
                    return join(found, arguments[1] if len(arguments) > 1 else (NoneValue(),))
                found = self.key_of(of, key, node)
                return join(found, arguments[1] if len(arguments) > 1 else (NoneValue(),))
            return UNKNOWN
        if isinstance(of, ModelOutput) and name in ("to_dict", "copy"):
            return (OutputDict(),)
        if isinstance(of, (ModelKwargs, OutputDict, Mapping)) and name == "copy":
            return (of,)
        if isinstance(of, (Items, LegacyCache, Sequence)):
            path = path_of(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if name in LIST_GROWERS and arguments and path in flow.names:
                added: Value = (Items((arguments[-1],)),)
                if name == "extend":
                    added = arguments[0] if is_collection(arguments[0]) else (Sequence(UNKNOWN),)
                flow.set(path, grown(flow.names[path], added))
            return UNKNOWN
        if isinstance(of, SuperObject):
            if self.is_model_instance(of.info) and name in ("forward", "__call__"):
                return self._call_model(Model(), node, keywords)
            if name in GENERATION_HOOKS and self.is_model_instance(of.info):
                return (ModelKwargs(hook=True),)
            if name == "update" and self._is_cache_class_info(of.info):
                return UNKNOWN
            return UNKNOWN
        if isinstance(of, PerRelease):
            return self._call_version_method(of, name, arguments)
        if isinstance(of, Literal) and name == "contains" and arguments:
            dated = next(of_type(arguments[0], PerRelease), None) if len(arguments[0]) == 1 else None
            holds = compare_each("In", dated.values, of.value) if dated is not None else None
            return (Truth(holds),) if holds is not None else UNKNOWN
        if isinstance(of, Literal) and isinstance(of.value, str) and name == "join" and len(arguments) == 1:
            if len(arguments[0]) == 1 and isinstance(arguments[0][0], PerRelease):
                values = apply_each(arguments[0][0].values, of.value.join)
                return (PerRelease(values),) if values is not None else UNKNOWN
        if isinstance(of, Unknown):
            return self._call_unknown(node, arguments, flow)
        return UNKNOWN

    def _call_version_method(self, of: PerRelease, name: str, arguments: tuple[Value, ...]) -> Value:
        plain = [literal(value) for value in arguments]
        if name in ("split", "startswith", "strip", "rsplit", "partition", "replace", "isdigit") and None not in plain:
            values = apply_each(of.values, lambda value: getattr(value, name)(*plain))
            if values is not None:
                if values and isinstance(values[0], bool):
                    return (Truth(ReleaseSet(sum(1 << i for i, value in enumerate(values) if value))),)
                return (PerRelease(values),)
        return UNKNOWN

    def _call_cache_method(self, of: CacheObject, name: str, node: ast.Call) -> Value:
        if name in ("to_legacy_cache",):
            return (LegacyCache("to_legacy_cache", origin=of.origin),)
        if name == "update":
            return (Items(((StoredTensor("keys", of, "update"),), (StoredTensor("values", of, "update"),))),)
        if name in ("get_seq_length", "get_usable_length", "get_max_length", "get_max_cache_shape", "__len__"):
            return (CacheLength(of, name, node, when=of.when),)
        if name in ("to", "cuda", "cpu"):
            return (of,)
        if name == "batch_split":
            return (Sequence((of,)),)
        return UNKNOWN

    def _is_cache_class_info(self, info: ClassInfo) -> bool:
        return any(self.library.cache_class(base) for base in info.foreign_bases())

    def _call_class(
        self, info: ClassInfo, node: ast.Call, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> Value:
        init = info.method("__init__")
        if init is not None:
            self.pass_arguments(init, 1, arguments, keywords)
        base = self.cache_base(info)
        if base is not None:
            origin = self.origin(node, f"a `{info.name}` constructed here (a subclass of {base.rpartition('.')[2]})")
            return (CacheObject(base, local_class=info, origin=origin),)
        return (Instance(info),)

    def cache_base(self, info: ClassInfo) -> str | None:
        """The transformers cache class a local class derives from."""
        for base in info.foreign_bases():
            found = self.library.cache_class(base)
            if found is not None:
                return found
        return None

    def _call_model(self, model: Model, node: ast.Call, keywords: tuple[tuple[str, Value], ...] = ()) -> Value:
        if model.role == "layer":
            return UNKNOWN
        if model.role == "attention":
            return UNKNOWN
        if any(
            item.arg == "return_dict" and isinstance(item.value, ast.Constant) and item.value.value is False
            for item in node.keywords
        ):
            return UNKNOWN
        certainty = model.certainty
        if certainty < Certainty.CONTEXT and MODEL_CALL_KEYWORDS & given_names(keywords):
            certainty = Certainty.CONTEXT
        return (ModelOutput("forward", certainty),)

    def _call_unknown(self, node: ast.Call, arguments: tuple[Value, ...], flow: Flow) -> Value:
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if isinstance(func, ast.Name) and func.id not in flow.names:
            builtin = self._call_builtin(name, node, arguments, flow)
            if builtin is not None:
                return builtin
        if name in SEQUENCE_METHODS and isinstance(func, ast.Attribute) and (arguments or node.keywords):
            return (Sequence(UNKNOWN, is_tuple=True),)
        if name in ("get", "pop") and arguments and isinstance(literal(arguments[0]), str):
            found = self.key_of(Unknown(), literal(arguments[0]), node)
            return join(found, arguments[1] if len(arguments) > 1 else (NoneValue(),))
        if name.endswith(GENERATION_HOOKS) and self.uses_transformers and not self.foreign_engine:
            if self.prepares_by_itself(name):
                return UNKNOWN
            return (ModelKwargs(hook=True),)  # a model's own, kept under another name: base_model_prepare_inputs_...
        if name == "generate":
            wanted = any(
                item.arg == "return_dict_in_generate"
                and isinstance(item.value, ast.Constant)
                and item.value.value is True
                for item in node.keywords
            )
            return (ModelOutput("generate", Certainty.CONTEXT),) if wanted else UNKNOWN
        if name in VERSION_CLASSES:
            parsed = self._parse_version(arguments)
            if parsed is not None:
                return parsed
        if VERSION_HELPER.search(name) or version_of_name(name):
            keywords = tuple((item.arg or "", self.expression(item.value, flow, node)) for item in node.keywords)
            helper = self.helper_truth(name, node, arguments, keywords)
            if helper is not None:
                return helper
        if (
            not self.foreign_engine
            and any(item.arg == "use_cache" for item in node.keywords)
            and MODEL_NAMES.search(name)
        ):
            return (ModelOutput("forward", Certainty.CONTEXT),)
        return UNKNOWN

    def _call_builtin(self, name: str, node: ast.Call, arguments: tuple[Value, ...], flow: Flow) -> Value | None:
        if name in ITERATORS:
            if node.args and not isinstance(node.args[0], ast.Starred):
                for item, value in zip(node.args, arguments, strict=True):
                    self.record_iteration(item, value, "call", None, flow, node, name)
            return self._call_iterator(name, node, arguments)
        if name == "dict":
            if any(isinstance(atom, (ModelOutput, OutputDict)) for value in arguments for atom in value):
                return (OutputDict(),)
            starred = [item for item in node.keywords if item.arg is None]
            if any(
                isinstance(atom, ModelOutput) for item in starred for atom in self.expression(item.value, flow, node)
            ):
                return (OutputDict(),)
            items = tuple((item.arg, self.expression(item.value, flow, node)) for item in node.keywords if item.arg)
            return (Mapping(items, open=bool(starred or arguments)),)
        if (
            name in ("int", "float")
            and len(arguments) == 1
            and len(arguments[0]) == 1
            and isinstance(arguments[0][0], PerRelease)
        ):
            values = apply_each(arguments[0][0].values, int if name == "int" else float)
            return (PerRelease(values),) if values is not None else UNKNOWN
        if name == "bool" and len(arguments) == 1:
            known = len(arguments[0]) == 1 and isinstance(arguments[0][0], (Truth, HasMember))
            return arguments[0] if known else UNKNOWN
        if name == "hasattr" and len(arguments) == 2:
            return self._hasattr(node, arguments)
        if name == "callable" and len(node.args) == 1:
            return self._callable(arguments[0], node.args[0])
        if name == "vars" and len(arguments) == 1:
            outputs = bool(arguments[0]) and all(isinstance(atom, ModelOutput) for atom in arguments[0])
            return (OutputDict(),) if outputs else UNKNOWN
        return None

    def _call_iterator(self, name: str, node: ast.Call, arguments: tuple[Value, ...]) -> Value:
        if not arguments or any(isinstance(item, ast.Starred) for item in node.args):
            return (Sequence(UNKNOWN),)
        first = arguments[0]
        if name in ("tuple", "list", "iter", "reversed", "sorted"):
            if len(first) == 1 and isinstance(first[0], PerRelease):
                values = apply_each(first[0].values, tuple)
                return (PerRelease(values),) if values is not None else UNKNOWN
            if any(isinstance(atom, CacheObject) for atom in first):
                return (
                    (LegacyCache("tuple", next(of_type(first, CacheObject))),)
                    if name in ("tuple", "list")
                    else (Sequence(self.item_value(first, node)),)
                )
            if any(isinstance(atom, Unknown) for atom in first):
                return (Sequence(UNKNOWN, is_tuple=name == "tuple"),)
            if any(isinstance(atom, (Items,)) for atom in first) and name in ("tuple", "list"):
                return tuple(
                    replace(atom, is_tuple=name == "tuple") if isinstance(atom, (Items, Sequence)) else atom
                    for atom in first
                )
            return (Sequence(self.item_value(first, node), is_tuple=name == "tuple"),)
        if name == "zip":
            return (Sequence((Items(tuple(self.item_value(value, node) for value in arguments)),)),)
        if name == "enumerate":
            return (Sequence((Items((UNKNOWN, self.item_value(first, node))),)),)
        if name == "map" and len(arguments) == 2:
            second = arguments[1]
            if (
                len(second) == 1
                and isinstance(second[0], PerRelease)
                and isinstance(node.args[0], ast.Name)
                and node.args[0].id == "int"
            ):
                values = apply_each(second[0].values, lambda value: tuple(int(item) for item in value))
                return (PerRelease(values),) if values is not None else UNKNOWN
            return (Sequence(UNKNOWN),)
        if name == "next":
            return self.item_value(first, node)
        return UNKNOWN

    def _hasattr(self, node: ast.Call, arguments: tuple[Value, ...]) -> Value:
        name = literal(arguments[1])
        if not isinstance(name, str):
            return UNKNOWN
        path = path_of(node.args[0])
        subject = arguments[0]
        if any(isinstance(atom, CacheObject) for atom in subject):
            subject = tuple(atom for atom in subject if not isinstance(atom, (Unknown, NoneValue)))
        elif unknown(subject) and looks_like_cache(path.rpartition(".")[2]) and not self.foreign_engine:
            subject = (CacheObject(CACHE, Certainty.NAMED, "name"),)
        truths: list[ReleaseSet] = []
        for atom in subject:
            present = self.member_releases(atom, name)
            if not present:
                return (HasMember(path, name),)
            truths.append(present)
        if not truths or any(truth != truths[0] for truth in truths):
            return (HasMember(path, name),)
        return (Truth(truths[0]),)

    def _callable(self, value: Value, node: ast.expr) -> Value:
        """``callable(getattr(x, "name", None))``: true where the member exists."""
        present = [atom for atom in value if not isinstance(atom, NoneValue)]
        asked = any(isinstance(atom, NoneValue) for atom in value) or (
            bool(value) and isinstance(node, (ast.Call, ast.Name))
        )
        if asked and all(isinstance(atom, Member) for atom in present):
            releases = ReleaseSet(0)
            for atom in present:
                releases |= atom.when & self.timeline.all
            return (Truth(releases),)
        return UNKNOWN

    # -- functions of the file ------------------------------------------------------------------------------------

    def _call_function(
        self,
        atom: LocalFunction,
        node: ast.Call,
        arguments: tuple[Value, ...],
        keywords: tuple[tuple[str, Value], ...],
        flow: Flow,
    ) -> Value:
        info = atom.info
        reaching = info.callers.get(id(node))
        info.callers[id(node)] = flow.releases if reaching is None else reaching | flow.releases
        if VERSION_HELPER.search(info.name):
            helper = self.helper_truth(info.name, node, arguments, keywords)
            if helper is not None:
                return helper
        if not any(isinstance(item, ast.Starred) for item in node.args):
            positional = [arg.arg for arg in (*info.node.args.posonlyargs, *info.node.args.args)]
            given = {**dict(zip(positional, arguments, strict=False)), **dict(keywords)}
            verdict = self.version_verdict(info, given)
            if verdict is not None:
                return verdict
            first = info.first_positional() if atom.bound or info.is_static else 0
            self.pass_arguments(info, 0 if info.is_static else first, arguments, keywords)
        return self.result_of(info)

    def pass_arguments(
        self, info: FunctionInfo, first: int, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> None:
        """Joins the values of a call site into what is known of the parameters."""
        spec = info.node.args
        positional = [*spec.posonlyargs, *spec.args][first:]
        info.called = True
        pairs = [(arg.arg, value) for arg, value in zip(positional, arguments, strict=False)]
        names = {arg.arg for arg in info.parameters()}
        pairs += [(name, value) for name, value in keywords if name in names]
        for name, value in pairs:
            if info.home is not self:
                info.taught[name] = join(info.taught.get(name, value), value)
            known = info.arguments.get(name)
            merged = value if known is None else join(known, value)
            if merged != known:
                info.arguments[name] = merged
                if any(isinstance(atom, LESSONS) for atom in merged) or (known is None and name in CACHE_KEYWORDS):
                    self.changed.add(("parameter", id(info.node)))

    changed: set[tuple[str, Any]]

    def pass_to_places(
        self, model: Model, arguments: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...]
    ) -> None:
        raise NotImplementedError

    def version_verdict(self, info: FunctionInfo, given: dict[str, Value]) -> Value | None:
        raise NotImplementedError

    def annotation(self, node: ast.expr, flow: Flow) -> Value:
        raise NotImplementedError

    def compare_values(self, op: str, left: Value, right: Value) -> ReleaseSet | None:
        raise NotImplementedError
