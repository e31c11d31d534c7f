"""From the sources of transformers releases to the facts of the timeline; nothing of transformers is imported.

``read_wheel`` and ``read_folder`` give a release's sources, ``extract`` reads them with ``ast`` into a ``Record``
of one release, ``Merged`` folds records into one value per distinct fact with the set of releases it holds on,
and ``Merged.dump`` writes the text of ``timeline.json``.

Symbols are dotted names without the leading ``transformers.``. Every fact is a short string:

====================================  ==============================================================
fact of a symbol                      value
====================================  ==============================================================
``""`` (the symbol itself)            ``module``, ``class(.base, other.base)``, ``def(parameters)``,
                                      ``import .target``, ``alias .target``, ``value`` or ``value JSON``
``member``                            ``method(..)``, ``classmethod(..)``, ``staticmethod(..)``,
                                      ``generated method`` (the ``__init__`` of a dataclass),
                                      ``property``, ``settable property``, ``attribute``,
                                      ``late attribute`` (first set outside ``__init__``),
                                      ``class attribute = literal``
``name!`` (``!`` for the symbol)      announced: ``old>new@5.40.0`` for a keyword, ``@4.56.0`` for the whole
====================================  ==============================================================

A target with a leading dot lies in transformers, one without lies elsewhere. Classes of modeling files other
than caches are reduced to one string a class:
``kind^|forward(cache keywords)|forward!renames|has(private hooks)|flags``, with the kinds ``g`` (a model with
``generate``), ``m`` (another model), ``l`` (layer), ``a`` (attention), ``o`` (output) and ``x`` (other, also a
function), and ``^`` where the class is exported at the top level. A dict from which a model picks the class of its
attention or layers (``LLAMA_ATTENTION_CLASSES``) has the kind ``r``: ``r|holds(class, class)``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kvlint.releases import ReleaseSet
from kvlint.timeline import CACHE_KEYWORDS, FORMAT, TABLES

_CACHE_WORD = re.compile(r"cache|past|_supports_|_skip_keys", re.IGNORECASE)
_MODEL_FILE = re.compile(r"transformers/(models/.+/(?:modeling|generation)_[^/]*\.py|modeling_layers\.py)$")
_OTHER_FRAMEWORK = re.compile(r"/(?:modeling|generation)_(?:tf|flax)_")
_HOOK = re.compile(r"^_\w*(?:cache|past|causal_mask|4d_|model_kwargs)")
_MODEL_METHODS = ("forward", "prepare_inputs_for_generation")
_KINDS: Mapping[str, str] = {"model": "gm", "layer": "l", "attention": "a"}
_PAST_KEYWORDS = frozenset({"past_key_value", "past_key_values", "cache", "cache_params", "layer_past", "past"})
_BUILTIN_BASES = frozenset({"object", "dict", "list", "tuple", "str", "int", "Exception", "ValueError"})
_WARNERS = frozenset({"warn", "warning", "warning_once"})
_ANNOUNCED = re.compile(r"\bv?(\d+\.\d+(?:\.\d+)?)\b")
_LONGEST_DEFAULT = 48


@dataclass(frozen=True, slots=True)
class Module:
    """How much of a module is kept: every name, or only some classes; of these, every member or only some."""

    classes: str = r".*"
    members: str = r".*"
    every_name: bool = True


MODULES: Mapping[str, Module] = {
    "cache_utils": Module(),
    "masking_utils": Module(),
    "modeling_attn_mask_utils": Module(),
    "modeling_flash_attention_utils": Module(),
    "modeling_outputs": Module(members=r"cache|past", every_name=False),
    "modeling_utils": Module(
        classes=r"PreTrainedModel$", members=r"cache|past|_supports_|_skip_keys", every_name=False
    ),
    "generation.utils": Module(),
    "generation.configuration_utils": Module(
        classes=r"GenerationConfig$", members=r"cache|past|__init__|validate|update"
    ),
    "generation.candidate_generator": Module(members=r"__init__|get_candidates|cache|past"),
    "generation.continuous_batching.cache": Module(classes=r"Cache", every_name=False),
    "integrations.executorch": Module(members=r"__init__|forward|generate|export|cache"),
    "utils.generic": Module(classes=r"ModelOutput$", every_name=False),
}
"""Modules outside ``models`` of which symbols are kept."""


class Sources(Protocol):
    """The Python files of one release, by their path from the folder that holds ``transformers``.

    ``paths`` gives those that the timeline is made of, or those that *wanted* accepts.
    """

    def paths(self, wanted: Callable[[str], bool] | None = None) -> Sequence[str]: ...

    def key(self, path: str) -> int: ...

    def text(self, path: str) -> str: ...


@dataclass(frozen=True)
class WheelSources:
    """Sources inside a wheel (or any zip with a ``transformers`` folder at its root)."""

    archive: zipfile.ZipFile

    @cached_property
    def _infos(self) -> dict[str, zipfile.ZipInfo]:
        return {info.filename: info for info in self.archive.infolist() if info.filename.startswith("transformers/")}

    def paths(self, wanted: Callable[[str], bool] | None = None) -> Sequence[str]:
        return sorted(filter(wanted or _wanted, self._infos))

    def key(self, path: str) -> int:
        return self._infos[path].CRC

    def text(self, path: str) -> str:
        return self.archive.read(self._infos[path]).decode("utf-8")


@dataclass(frozen=True)
class FolderSources:
    """Sources of an installed package; *root* is the folder that holds ``transformers``."""

    root: Path

    def paths(self, wanted: Callable[[str], bool] | None = None) -> Sequence[str]:
        found = (path.relative_to(self.root).as_posix() for path in (self.root / "transformers").rglob("*.py"))
        return sorted(filter(wanted or _wanted, found))

    def key(self, path: str) -> int:
        return zlib.crc32((self.root / path).read_bytes())

    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")


def _wanted(path: str) -> bool:
    if not path.startswith("transformers/") or not path.endswith(".py"):
        return False
    if _OTHER_FRAMEWORK.search(path):
        return False
    return path.endswith("/__init__.py") or bool(_MODEL_FILE.match(path)) or _module_name(path) in MODULES


def _module_name(path: str) -> str:
    """``transformers/generation/utils.py`` -> ``generation.utils``; a package's ``__init__`` -> the package."""
    dotted = path.removeprefix("transformers/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix("__init__").removesuffix(".")


@dataclass(frozen=True, slots=True)
class Record:
    """What one release has: ``symbols[symbol][fact]`` and ``models[module][class]``, values as described above."""

    version: str
    symbols: Mapping[str, Mapping[str, str]]
    models: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What one file contributes, whatever the other files of its release say."""

    symbols: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    structure: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ParsedFiles = dict[tuple[str, int], FileFacts]
"""Facts by path and content: most files do not change between neighbouring releases."""


def read_wheel(path: Path, parsed: ParsedFiles | None = None) -> Record:
    """The record of the release in the wheel at *path*.

    Raises ValueError with one line where the file is not a wheel of transformers.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return extract(WheelSources(archive), parsed)
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable wheel: {error}") from error


def read_folder(root: Path, parsed: ParsedFiles | None = None) -> Record:
    """The record of the transformers package in the folder *root* (a site-packages folder).

    Raises ValueError with one line where there is none.
    """
    if not (root / "transformers" / "__init__.py").is_file():
        raise ValueError(f"{root} holds no transformers package")
    return extract(FolderSources(root), parsed)


def extract(sources: Sources, parsed: ParsedFiles | None = None) -> Record:
    """The record of one release from its sources; *parsed* carries results of unchanged files between releases.

    Raises ValueError where the sources are not those of transformers or hold no literal version.
    """
    known: ParsedFiles = {} if parsed is None else parsed
    paths = sources.paths()
    if "transformers/__init__.py" not in paths:
        raise ValueError("no transformers/__init__.py in it")
    init = sources.text("transformers/__init__.py")
    version = release_of(sources)
    files: dict[str, FileFacts] = {}
    for path in paths:
        key = (path, sources.key(path))
        if key not in known:
            known[key] = read_file(_module_name(path), sources.text(path), package=path.endswith("/__init__.py"))
        files[_module_name(path)] = known[key]
    return _assemble(version, files, every_model_exported="define_import_structure(" in init)


def release_of(sources: Sources) -> str:
    """The version that the sources name. Raises ValueError where they name none."""
    found = re.search(r"^__version__ = [\"']([^\"']+)[\"']", sources.text("transformers/__init__.py"), re.MULTILINE)
    if found is None:
        raise ValueError("transformers/__init__.py names no version")
    return found[1]


def _assemble(version: str, files: Mapping[str, FileFacts], every_model_exported: bool) -> Record:
    symbols: dict[str, dict[str, str]] = {}
    models: dict[str, dict[str, str]] = {}
    top = _top_level(files, every_model_exported)
    for module, facts in files.items():
        if module:
            symbols[module] = {"": "module"}
        prefix = f"{module}." if module else ""
        symbols.update({prefix + name: dict(members) for name, members in facts.symbols.items()})
        if facts.models:
            models[module.removeprefix("models.")] = {
                name: value.replace("|", "^|", 1) if f".{module}.{name}" in top.get(name, ()) else value
                for name, value in facts.models.items()
            }
    for name, targets in top.items():
        for target in targets:
            module = target[1:].rpartition(".")[0]
            known = target[1:] in symbols
            if known or (module in MODULES and MODULES[module].every_name):
                symbols[name] = {"": f"import {target}"}
                if module.startswith("models."):
                    symbols[f"{module.rpartition('.')[0]}.{name}"] = {"": f"import {target}"}
    for package in ("generation", "integrations"):
        for name, target in _package_names(files, package).items():
            symbols.setdefault(f"{package}.{name}", {"": f"import {target}"})
    return Record(version, symbols, models)


def _top_level(files: Mapping[str, FileFacts], every_model_exported: bool) -> dict[str, tuple[str, ...]]:
    """Names of ``transformers`` itself with the places where they are defined (``.module.name``)."""
    places: dict[str, tuple[str, ...]] = {}
    for submodule, names in files[""].structure.items():
        for name in names:
            places[name] = (_defining(files, submodule, name),)
    if every_model_exported:
        for module, facts in files.items():
            if module.startswith("models."):
                for name in facts.exported:
                    places[name] = (*places.get(name, ()), f".{module}.{name}")
    return places


def _defining(files: Mapping[str, FileFacts], submodule: str, name: str) -> str:
    """Follows a name that a package passes on to the file of the package that defines it."""
    package = files.get(submodule)
    if package is not None:
        for inner, names in package.structure.items():
            if name in names:
                return f".{submodule}.{inner}.{name}"
        for module, facts in files.items():
            if module.startswith(f"{submodule}.") and (name in facts.exported or name in facts.models):
                return f".{module}.{name}"
    return f".{submodule}.{name}"


def _package_names(files: Mapping[str, FileFacts], package: str) -> dict[str, str]:
    """Cache-related names that ``transformers.generation`` or ``transformers.integrations`` hands out."""
    facts = files.get(package)
    if facts is None:
        return {}
    return {
        name: f".{package}.{inner}.{name}"
        for inner, names in facts.structure.items()
        for name in names
        if f"{package}.{inner}" in MODULES or _CACHE_WORD.search(name)
    }


def read_file(module: str, text: str, package: bool = False) -> FileFacts:
    """The facts of one file; *module* is its dotted name without ``transformers.``."""
    tree = ast.parse(text)
    if package:
        return FileFacts(_passed_on(tree, module), structure=_import_structure(tree))
    if module in MODULES:
        return FileFacts(symbols=_symbols(tree, module, MODULES[module]), exported=_exported(tree))
    return _model_file(tree, module)


def _passed_on(tree: ast.Module, package: str) -> dict[str, dict[str, str]]:
    """Kept classes that a package imports at once, not lazily: ``transformers.utils.ModelOutput``."""
    found: dict[str, dict[str, str]] = {}
    for name, target in _imports(_flat(tree.body), f"{package}.__init__" if package else "__init__").items():
        module, _, defined = target[1:].rpartition(".")
        if target.startswith(".") and module in MODULES and re.search(MODULES[module].classes, defined):
            found[name] = {"": f"import {target}"}
    return found


# ---------------------------------------------------------------------------------------------- statements and names


def _flat(statements: Sequence[ast.stmt], typing: bool = False) -> Iterator[ast.stmt]:
    """Module-level statements in order, those of ``if``, ``try`` and ``with`` included, typing-only ones on demand."""
    for statement in statements:
        if isinstance(statement, ast.If):
            if typing or "TYPE_CHECKING" not in ast.dump(statement.test):
                yield from _flat(statement.body, typing)
            yield from _flat(statement.orelse, typing)
        elif isinstance(statement, ast.Try):
            for block in (statement.body, *(handler.body for handler in statement.handlers)):
                yield from _flat(block, typing)
            yield from _flat([*statement.orelse, *statement.finalbody], typing)
        elif isinstance(statement, ast.With):
            yield from _flat(statement.body, typing)
        else:
            yield statement


def _imports(statements: Iterable[ast.stmt], module: str) -> dict[str, str]:
    """Imported names with their targets (``.module.name`` inside transformers)."""
    names: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, ast.Import):
            for item in statement.names:
                target = item.name if item.asname else item.name.partition(".")[0]
                inside = target.partition(".")[0] == "transformers"
                names[item.asname or target] = target.removeprefix("transformers") if inside else target
        elif isinstance(statement, ast.ImportFrom):
            source = _import_source(statement, module)
            for item in statement.names:
                if item.name != "*":
                    names[item.asname or item.name] = f"{source}.{item.name}" if source != "." else f".{item.name}"
    return names


def _import_source(statement: ast.ImportFrom, module: str) -> str:
    name = statement.module or ""
    if statement.level:
        parts = module.split(".")[: -statement.level] if module else []
        return "." + ".".join([*parts, *([name] if name else [])])
    if name == "transformers" or name.startswith("transformers."):
        return name.removeprefix("transformers") or "."
    return name


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    return None


def _resolved(node: ast.expr, names: Mapping[str, str], module: str) -> str:
    dotted = _dotted(node)
    if dotted is None:
        return "unknown"
    first, _, rest = dotted.partition(".")
    target = names.get(first, first if first in _BUILTIN_BASES else f".{module}.{first}")
    return f"{target}.{rest}" if rest else target


def _strings(node: ast.AST) -> tuple[str, ...]:
    return tuple(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def _exported(tree: ast.Module) -> frozenset[str]:
    """What a file of ``models`` exports at the top level: ``__all__`` and objects decorated for export."""
    names: set[str] = set()
    for statement in _flat(tree.body):
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                names.update(_strings(statement.value))
        elif isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            if any(_called_name(decorator) in ("export", "requires") for decorator in statement.decorator_list):
                names.add(statement.name)
    return frozenset(names)


def _called_name(decorator: ast.expr) -> str:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (_dotted(node) or "").rpartition(".")[2]


def _import_structure(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The ``_import_structure`` of an ``__init__`` file, all optional dependencies taken as present."""
    structure: dict[str, tuple[str, ...]] = {}

    def add(key: str, value: ast.expr) -> None:
        structure[key] = (*structure.get(key, ()), *_strings(value))

    for statement in _flat(tree.body):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            if any(isinstance(target, ast.Name) and target.id == "_import_structure" for target in statement.targets):
                for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                    if isinstance(key, ast.Constant):
                        add(str(key.value), value)
            continue
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AugAssign):
            target, value = statement.target, statement.value
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
            function = statement.value.func
            if not (isinstance(function, ast.Attribute) and function.attr in ("extend", "append")):
                continue
            target, value = function.value, statement.value.args[0]
        else:
            continue
        if isinstance(target, ast.Subscript) and _dotted(target.value) == "_import_structure":
            if isinstance(target.slice, ast.Constant):
                add(str(target.slice.value), value)
    return structure


# ------------------------------------------------------------------------------------------------- full symbol facts


def _symbols(tree: ast.Module, module: str, kept: Module) -> dict[str, dict[str, str]]:
    imported = _imports(_flat(tree.body), module)
    names = {**_imports(_flat(tree.body, typing=True), module), **imported}
    found: dict[str, dict[str, str]] = {}
    if kept.every_name:
        inside = {name: target for name, target in imported.items() if target.startswith(".")}
        found.update({name: {"": f"import {target}"} for name, target in inside.items()})
    constants = _constants(tree)
    for statement in _flat(tree.body):
        if isinstance(statement, ast.ClassDef):
            full = re.search(kept.classes, statement.name)
            if full or kept.every_name:
                found[statement.name] = _class_facts(statement, names, module, kept.members if full else None)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and kept.every_name:
            found[statement.name] = _function_facts(statement)
            if statement.name == "__getattr__" and isinstance(statement, ast.FunctionDef):
                found.update(_lazily_given(statement))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and kept.every_name:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name) and statement.value is not None:
                    found[target.id] = {"": _value(target.id, statement.value, constants, found, module)}
    return found


def _value(
    name: str, value: ast.expr, constants: Mapping[str, Any], found: Mapping[str, Mapping[str, str]], module: str
) -> str:
    if isinstance(value, ast.Name) and value.id in found:
        return f"alias .{module}.{value.id}"
    held = constants.get(name)
    return f"value {_json(held)}" if held and _CACHE_WORD.search(f"{name} {held}") else "value"


def _lazily_given(function: ast.FunctionDef) -> dict[str, dict[str, str]]:
    """Names a module-level ``__getattr__`` makes up: ``if name == "X": class X(.models.x.X)``."""
    found: dict[str, dict[str, str]] = {}
    for branch in ast.walk(function):
        if not (isinstance(branch, ast.If) and isinstance(branch.test, ast.Compare)):
            continue
        name = next((text for text in _strings(branch.test)), None)
        if name is not None:
            inner = [node for node in branch.body if isinstance(node, ast.ClassDef) and node.name == name]
            facts = _class_facts(inner[0], {}, "cache_utils", ".*") if inner else {"": "value"}
            found[name] = {**facts, "!": "@" + (_announced(branch.body) or "")}
    return found


def _function_facts(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    facts = {"": f"def{_signature(function)}"}
    announced = _announcements(function)
    if announced:
        facts["!"] = announced
    return facts


def _class_facts(node: ast.ClassDef, names: Mapping[str, str], module: str, members: str | None) -> dict[str, str]:
    bases = [_resolved(base, names, module) for base in node.bases]
    facts = {"": f"class({', '.join(bases)})"}
    if members is None:
        return facts
    for name, value in _members(node).items():
        if re.search(members, name.removesuffix("!")):
            facts[name] = value
    if "__init__" not in facts and any(_called_name(decorator) == "dataclass" for decorator in node.decorator_list):
        facts["__init__"] = "generated method"
    return facts


def _members(node: ast.ClassDef) -> dict[str, str]:
    facts: dict[str, str] = {}
    assigned: dict[str, str] = {}
    for statement in _flat(node.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if _is_accessor(statement):
                facts[statement.name] = "settable property"
                continue
            facts[statement.name] = _method(statement)
            announced = _announcements(statement)
            if announced:
                facts[f"{statement.name}!"] = announced
            for name in _self_attributes(statement):
                kind = "attribute" if statement.name == "__init__" else "late attribute"
                assigned[name] = "attribute" if assigned.get(name) == "attribute" else kind
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    facts[target.id] = "class attribute" + _literal(statement.value)
    for name, kind in assigned.items():
        facts.setdefault(name, kind)
    return facts


def _is_accessor(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr == "setter" for item in function.decorator_list)


def _literal(value: ast.expr | None) -> str:
    if value is None:
        return ""
    source = ast.unparse(value)
    return f" = {source}" if len(source) <= _LONGEST_DEFAULT else ""


def _method(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = {_called_name(decorator) for decorator in function.decorator_list}
    if decorators & {"property", "cached_property", "abstractproperty"}:
        return "property"
    kind = next((kind for kind in ("classmethod", "staticmethod") if kind in decorators), "method")
    return f"{kind}{_signature(function)}"


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The parameter list as source, without annotations; a long default becomes ``...``."""

    def default(node: ast.expr | None) -> ast.expr | None:
        if node is None or len(ast.unparse(node)) <= _LONGEST_DEFAULT:
            return node
        return ast.Constant(...)

    def bare(argument: ast.arg) -> ast.arg:
        return ast.arg(argument.arg)

    given = function.args
    arguments = ast.arguments(
        posonlyargs=[bare(argument) for argument in given.posonlyargs],
        args=[bare(argument) for argument in given.args],
        vararg=bare(given.vararg) if given.vararg else None,
        kwonlyargs=[bare(argument) for argument in given.kwonlyargs],
        kw_defaults=[default(node) for node in given.kw_defaults],
        kwarg=bare(given.kwarg) if given.kwarg else None,
        defaults=[node for node in map(default, given.defaults) if node is not None],
    )
    return f"({ast.unparse(arguments)})"


def _self_attributes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Attributes that the method sets on its first parameter, also through ``register_buffer("name", ...)``."""
    arguments = (*function.args.posonlyargs, *function.args.args)
    if not arguments:
        return
    owner = arguments[0].arg
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == owner:
                yield node.attr
        elif isinstance(node, ast.Call) and _dotted(node.func) == f"{owner}.register_buffer" and node.args:
            if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _announcements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Renamed keywords of ``deprecate_kwarg`` and the announced removal of the whole function, in one string."""
    found = [text for decorator in function.decorator_list if (text := _renamed_keyword(decorator))]
    announced = _announced(function.body)
    if announced is not None:
        found.append(f"@{announced}")
    return ";".join(found)


def _renamed_keyword(decorator: ast.expr) -> str | None:
    if not isinstance(decorator, ast.Call) or _called_name(decorator) != "deprecate_kwarg":
        return None
    given: dict[str, str] = {}
    for name, value in zip(("old_name", "version", "new_name"), decorator.args, strict=False):
        given[name] = "".join(_strings(value)[:1])
    for keyword in decorator.keywords:
        if keyword.arg in ("old_name", "version", "new_name"):
            given[keyword.arg] = "".join(_strings(keyword.value)[:1])
    return f"{given.get('old_name', '')}>{given.get('new_name', '')}@{given.get('version', '').lstrip('v')}"


def _announced(body: Sequence[ast.stmt]) -> str | None:
    """The release named by an unconditional warning about the removal of what this body belongs to, "" if unnamed."""
    for statement in body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
            continue
        call = statement.value
        if (_dotted(call.func) or "").rpartition(".")[2] not in _WARNERS:
            continue
        text = "".join(_strings(call))
        if "deprecated" in text or "removed" in text:
            versions = _ANNOUNCED.findall(text)
            return versions[-1] if versions else ""
    return None


def _constants(tree: ast.Module) -> dict[str, list[str] | dict[str, str]]:
    """Module constants made of strings, as they are with every optional dependency installed."""
    held: dict[str, list[str] | dict[str, str]] = {}

    def evaluate(node: ast.expr | None) -> list[str] | dict[str, str] | None:
        if isinstance(node, ast.Name):
            return held.get(node.id)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            texts: list[str] = []
            for item in node.elts:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    texts.append(item.value)
                elif isinstance(item, ast.Starred):
                    texts.extend(evaluate(item.value) or ())
                else:
                    return None
            return texts
        if isinstance(node, ast.Dict):
            return {
                key.value: (_dotted(value) or "").rpartition(".")[2]
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = evaluate(node.left), evaluate(node.right)
            return None if left is None or right is None else list(dict.fromkeys([*left, *right]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "set"):
            inner = evaluate(node.args[0]) if node.args else []
            return None if inner is None else list(inner)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            return evaluate(node.func.value)
        return None

    for statement in _flat(tree.body):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name):
                value = evaluate(statement.value)
                if value is not None:
                    held[target.id] = value
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                mapping = held.get(target.value.id)
                if isinstance(mapping, dict) and isinstance(target.slice, ast.Constant) and statement.value is not None:
                    mapping[str(target.slice.value)] = (_dotted(statement.value) or "").rpartition(".")[2]
    return {name: value for name, value in held.items() if name.isupper()}


# ---------------------------------------------------------------------------------------------------- modeling files


def _model_file(tree: ast.Module, module: str) -> FileFacts:
    imported = _imports(_flat(tree.body), module)
    names = {**_imports(_flat(tree.body, typing=True), module), **imported}
    symbols: dict[str, dict[str, str]] = {}
    models = {
        name: f"import {target}"
        for name, target in imported.items()
        if target.startswith((".cache_utils.", ".masking_utils.", ".modeling_attn_mask_utils.")) or "Cache" in target
    }
    ancestors: dict[str, set[str]] = {}
    for statement in _flat(tree.body):
        if isinstance(statement, ast.FunctionDef) and _HOOK.search(statement.name):
            models[statement.name] = "x|function"
        if not isinstance(statement, ast.ClassDef):
            continue
        bases = [_resolved(base, names, module) for base in statement.bases]
        local = {base.rpartition(".")[2] for base in bases}
        ancestors[statement.name] = local.union(*(ancestors.get(base, set()) for base in local))
        if _is_cache_class(statement, bases, symbols, module):
            symbols[statement.name] = _class_facts(statement, names, module, ".*")
        else:
            reduced = _reduced_class(statement, ancestors[statement.name])
            if reduced is not None:
                models[statement.name] = reduced
    models.update(_registries(tree, models))
    return FileFacts(symbols, models, _exported(tree))


def _registries(tree: ast.Module, models: Mapping[str, str]) -> dict[str, str]:
    """Constants that are dicts of classes, where one of these is an attention module or layer that takes a past."""
    found: dict[str, str] = {}
    for statement in _flat(tree.body):
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict)):
            continue
        target, values = statement.targets[0], statement.value.values
        names = list(dict.fromkeys(value.id for value in values if isinstance(value, ast.Name)))
        if not (isinstance(target, ast.Name) and target.id.isupper() and names):
            continue
        taken = (_forward_names(models.get(name, "")) for name in names)
        if all(isinstance(value, ast.Name) for value in values) and any(item & _PAST_KEYWORDS for item in taken):
            found[target.id] = f"r|holds({', '.join(names)})"
    return found


def _forward_names(value: str) -> set[str]:
    """Cache keywords of ``forward`` of a reduced layer or attention class."""
    forward = re.search(r"\|forward\(([^)]*)\)", value)
    return set(forward[1].split(", ")) if forward and value[0] in "la" else set()


def _is_cache_class(node: ast.ClassDef, bases: Sequence[str], symbols: Mapping[str, object], module: str) -> bool:
    if "Cache" in node.name and not any(base.endswith(("Module", "ModelOutput")) for base in bases):
        return True
    return any(base.startswith(".cache_utils.") or base.removeprefix(f".{module}.") in symbols for base in bases)


def _reduced_class(node: ast.ClassDef, ancestors: set[str]) -> str | None:
    parts: list[str] = []
    for statement in _flat(node.body):
        if isinstance(statement, ast.FunctionDef) and statement.name in _MODEL_METHODS:
            keywords = _cache_keywords(statement)
            renames = [text for item in statement.decorator_list if (text := _renamed_keyword(item))]
            if set(keywords) & set(CACHE_KEYWORDS) or renames:
                parts.append(f"{statement.name}({', '.join(keywords)})")
            if renames:
                parts.append(f"{statement.name}!{';'.join(renames)}")
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if (name.startswith("_supports_") and "cache" in name) or name == "_skip_keys_device_placement":
                parts.append(f"{name}{_literal(statement.value)}")
    hooks = sorted(
        {
            statement.name
            for statement in node.body
            if isinstance(statement, ast.FunctionDef) and _HOOK.search(statement.name)
        }
    )
    if hooks:
        parts.append(f"has({', '.join(hooks)})")
    fields = [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id in CACHE_KEYWORDS
    ]
    if fields and any("Output" in name for name in (node.name, *ancestors)):
        parts.append(f"fields({', '.join(fields)})")
    return f"{_kind(node.name, ancestors)}|{'|'.join(sorted(parts))}" if parts else None


def _cache_keywords(function: ast.FunctionDef) -> list[str]:
    given = function.args
    found = [
        argument.arg
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        if argument.arg in CACHE_KEYWORDS
    ]
    if given.vararg:
        found.append("*args")
    if given.kwarg:
        found.append("**kwargs")
    return found


def _kind(name: str, ancestors: set[str]) -> str:
    if "GenerationMixin" in ancestors:
        return "g"
    if any(ancestor.endswith("PreTrainedModel") or ancestor == "PreTrainedModel" for ancestor in ancestors):
        return "m"
    if "ModelOutput" in ancestors or name.endswith("Output"):
        return "o"
    if "Attention" in name and not name.endswith(("Layer", "Block")):
        return "a"
    return "l" if name.endswith(("Layer", "Block")) else "x"


# ----------------------------------------------------------------------------------------------------------- merging

Masks = dict[str, int]
"""Releases of each value a fact ever had, as bit masks over the release list."""


@dataclass(slots=True)
class Merged:
    """Facts of many releases. ``symbols[symbol][fact]`` and ``models[module][class]`` hold masks by value."""

    releases: list[str] = field(default_factory=list)
    symbols: dict[str, dict[str, Masks]] = field(default_factory=dict)
    models: dict[str, dict[str, Masks]] = field(default_factory=dict)

    def facts(self) -> Iterator[Masks]:
        for members in (*self.symbols.values(), *self.models.values()):
            yield from members.values()

    def add(self, record: Record) -> None:
        """Adds a release, or replaces what is known of it; releases stay in version order."""
        from packaging.version import Version

        if record.version in self.releases:
            place = self.releases.index(record.version)
            for masks in self.facts():
                for value in masks:
                    masks[value] &= ~(1 << place)
        else:
            place = sum(Version(known) < Version(record.version) for known in self.releases)
            self.releases.insert(place, record.version)
            low = (1 << place) - 1
            for masks in self.facts():
                for value, mask in masks.items():
                    masks[value] = (mask & low) | ((mask & ~low) << 1)
        for kept, given in ((self.symbols, record.symbols), (self.models, record.models)):
            for name, facts in given.items():
                members = kept.setdefault(name, {})
                for fact, value in facts.items():
                    masks = members.setdefault(fact, {})
                    masks[value] = masks.get(value, 0) | 1 << place

    def record(self, version: str) -> Record:
        """What is known of one release, in the shape ``extract`` gives. Raises ValueError for an unknown release."""
        bit = 1 << self.releases.index(version)

        def on_it(kept: Mapping[str, Mapping[str, Masks]]) -> dict[str, dict[str, str]]:
            found: dict[str, dict[str, str]] = {}
            for name, members in kept.items():
                facts = {fact: value for fact, masks in members.items() for value, mask in masks.items() if mask & bit}
                if facts:
                    found[name] = facts
            return found

        return Record(version, on_it(self.symbols), on_it(self.models))

    def dump(self) -> str:
        """The text of ``timeline.json``: one line a symbol, sorted, the same for the same facts."""
        histories: dict[str, list[int | str]] = {}
        values: dict[str, str] = {}

        def spans(masks: Masks) -> list[int | str]:
            return _spans(masks, len(self.releases))

        def history(masks: Masks) -> str:
            encoded = spans({_shared(values, value, value): mask for value, mask in masks.items()})
            return _shared(histories, encoded, _json(encoded))

        symbols = {
            symbol: {fact: spans(masks) for fact, masks in sorted(members.items()) if any(masks.values())}
            for symbol, members in sorted(self.symbols.items())
        }
        models = {
            module: {name: history(masks) for name, masks in sorted(classes.items()) if any(masks.values())}
            for module, classes in sorted(self.models.items())
        }
        tables: tuple[Mapping[str, object], ...] = (symbols, models, histories, values)
        blocks = [f'"format":{FORMAT}', f'"releases":{_json(self.releases)}', f'"common":{_json(self._common())}']
        for name, table in zip(TABLES, tables, strict=True):
            rows = (f"{_json(key)}:{_json(row)}" for key, row in sorted(table.items()) if row)
            blocks.append(f'"{name}":{{\n' + ",\n".join(rows) + "\n}")
        return "{\n" + ",\n".join(blocks) + "\n}\n"

    def _common(self) -> dict[str, dict[str, list[int]]]:
        """For each kind of modeling class the spans on which half of those that take a past take a keyword."""
        return {kind: self._common_keywords(letters) for kind, letters in _KINDS.items()}

    def _common_keywords(self, letters: str) -> dict[str, list[int]]:
        taken: list[Counter[str]] = [Counter() for _ in self.releases]
        for classes in self.models.values():
            for value, mask in (item for masks in classes.values() for item in masks.items()):
                forward = re.search(r"\|forward\(([^)]*)\)", value)
                names = set(forward[1].split(", ")) if forward and value[0] in letters else set()
                if names & _PAST_KEYWORDS:
                    for index in ReleaseSet(mask):
                        taken[index].update(names | {""})
        found: dict[str, list[int]] = {}
        for keyword in CACHE_KEYWORDS:
            mask = sum(1 << index for index, counts in enumerate(taken) if 2 * counts[keyword] >= counts[""] > 0)
            spans = _spans({"": mask}, len(self.releases))
            found[keyword] = [part for part in spans if isinstance(part, int)]
        return found

    @staticmethod
    def load(text: str) -> Merged:
        """Reads what ``dump`` wrote. Raises ValueError for another layout."""
        raw = json.loads(text)
        if raw.get("format") != FORMAT:
            raise ValueError(f"the timeline has layout {raw.get('format')}, this kvlint reads {FORMAT}")
        count = len(raw["releases"])
        return Merged(
            list(raw["releases"]),
            {
                symbol: {fact: _masks(spans, count) for fact, spans in members.items()}
                for symbol, members in raw["symbols"].items()
            },
            {
                module: {
                    name: {
                        raw["values"][value]: mask for value, mask in _masks(raw["histories"][history], count).items()
                    }
                    for name, history in classes.items()
                }
                for module, classes in raw["models"].items()
            },
        )


_Shared = TypeVar("_Shared")


def _shared(table: dict[str, _Shared], value: _Shared, text: str) -> str:
    """The key of *value* in *table*: a short digest of *text*, so that a new value renames none of the others."""
    digest = hashlib.blake2s(text.encode()).hexdigest()
    for length in range(5, len(digest) + 1):
        key = digest[:length]
        if table.setdefault(key, value) == value:
            return key
    raise AssertionError("two texts with one digest")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _spans(masks: Masks, count: int) -> list[int | str]:
    """``[first, last, value, first, last, value, ...]`` in order of time; the newest release is written as -1."""
    runs: list[tuple[int, int, str]] = []
    for value, mask in masks.items():
        first = 0
        while mask >> first:
            first += ((mask >> first) & -(mask >> first)).bit_length() - 1
            length = (~(mask >> first) & -~(mask >> first)).bit_length() - 1
            runs.append((first, first + length - 1, value))
            first += length
    return [part for first, last, value in sorted(runs) for part in (first, -1 if last == count - 1 else last, value)]


def _masks(spans: Sequence[int | str], count: int) -> Masks:
    masks: Masks = {}
    for first, last, value in zip(spans[::3], spans[1::3], spans[2::3], strict=True):
        assert isinstance(first, int) and isinstance(last, int) and isinstance(value, str)
        end = count - 1 if last == -1 else last
        masks[value] = masks.get(value, 0) | ((1 << (end - first + 1)) - 1) << first
    return masks
