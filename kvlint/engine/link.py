"""From the units of a project to what they say together: modules, ancestors, and who stands where the library calls.

Reads the outsides only; costs milliseconds a hundred files.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kvlint.engine.units import ClassHead, FunctionHead, Import, Place, Put, Shape, Surroundings, Unit

LIBRARY = "transformers"
MAX_STEPS = 12
"""Imports of imports and names for names are followed through so many of them."""
ROOM = 500_000
"""Characters of source that are walked together at most."""
REORDER = "_reorder_cache"
HOLDS_CACHES = re.compile(r"^transformers$|(?:^|\.)cache_utils$|Cache$|CacheLayer|(?:Static|Dynamic)\w*Layer$")
"""The package, the module of the caches, and the classes of caches and of their layers."""
CALLED_MEMBERS = frozenset({"forward", "prepare_inputs_for_generation", "__call__", "update", "_reorder_cache"})
"""Members that the library calls by themselves; what is put elsewhere is looked at by the module it replaces."""


def family(target: str) -> str:
    """The module of a class of the library."""
    return target.rpartition(".")[0]


LEVELS = {"attention": 1, "layer": 2}
"""How far up in a model its parts stand, as ``level`` says it."""


def level(target: str) -> int:
    """How far up in a model a class stands, by its name: attention 1, layer 2, model 3, head 4."""
    name = target.rpartition(".")[2]
    if "Attention" in name:
        return 1
    if name.endswith(("Layer", "Block")):
        return 2
    return 4 if "For" in name or "LMHead" in name else 3


def elsewhere(counts: Counter[str], own: frozenset[str]) -> tuple[str, ...]:
    """The words that another file has, sorted: those that this one alone has are left out."""
    return tuple(sorted(word for word, count in counts.items() if count > (word in own)))


@dataclass(frozen=True, slots=True)
class Thing:
    """What a name means: *kind* is library, class, function or module.

    *name* is the dotted name of a library thing, the qualified name of a class or function of *path*.
    """

    kind: str
    name: str
    path: str = ""


@dataclass(eq=False)
class Project:
    """The units of one project by path, and what follows from them. *root* is its folder."""

    root: str
    units: Mapping[str, Unit]
    _imports: dict[str, dict[str, list[Import]]] = field(default_factory=dict, repr=False)
    _aliases: dict[str, dict[str, list[Shape]]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[str, str, str], list[Thing]] = field(default_factory=dict, repr=False)
    _asked: set[tuple[str, str, str]] = field(default_factory=set, repr=False)
    """The names whose meaning is being looked up: those of `_known`."""

    @cached_property
    def functions(self) -> dict[tuple[str, str], FunctionHead]:
        return {(path, item.qualname): item for path, unit in self.units.items() for item in unit.functions}

    @cached_property
    def classes(self) -> dict[tuple[str, str], ClassHead]:
        return {(path, item.qualname): item for path, unit in self.units.items() for item in unit.classes}

    # -- modules ----------------------------------------------------------------------------------------------------

    def module(self, importer: str, module: str, level: int) -> str:
        """The path of the module that *importer* means; "" where the project has none."""
        folder = os.path.dirname(importer)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self._at(folder, module)
        for base in self._search(folder):
            found = self._at(base, module)
            if found:
                return found
        return ""

    def _search(self, folder: str) -> list[str]:
        top = folder
        while os.path.join(top, "__init__.py") in self._known_files and os.path.dirname(top) != top:
            top = os.path.dirname(top)
        return list(dict.fromkeys((top, folder, *self._roots, self.root, os.path.join(self.root, "src"))))

    @cached_property
    def _known_files(self) -> frozenset[str]:
        return frozenset(self.units)

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        """Folders that hold top packages."""
        tops = set()
        for path in self.units:
            folder = os.path.dirname(path)
            if os.path.basename(path) == "__init__.py":
                parent = os.path.dirname(folder)
                if os.path.join(parent, "__init__.py") not in self._known_files:
                    tops.add(parent)
        return tuple(sorted(tops))

    def _at(self, folder: str, module: str) -> str:
        stem = os.path.join(folder, *module.split(".")) if module else folder
        for candidate in (f"{stem}.py" if module else "", os.path.join(stem, "__init__.py")):
            if candidate in self.units:
                return candidate
        return ""

    # -- names ------------------------------------------------------------------------------------------------------

    def meaning(self, path: str, name: str, scope: str = "", steps: int = 0) -> list[Thing]:
        """What a dotted name means in the module at *path*, seen from the function or class *scope*."""
        if steps > MAX_STEPS or not name:
            return []
        root, _, rest = name.partition(".")
        found = self._root(path, root, scope, steps)
        return [thing for item in found for thing in self._member(item, rest, steps)]

    def _root(self, path: str, name: str, scope: str, steps: int) -> list[Thing]:
        """What a plain name means; a name that stands for itself means nothing. Answers to whole questions are kept."""
        key = (path, name, scope)
        if key in self._known:
            return self._known[key]
        if key in self._asked:
            return []
        self._asked.add(key)
        found = self._look_up(path, name, scope, steps)
        self._asked.remove(key)
        if not self._asked:
            self._known[key] = found
        return found

    def _look_up(self, path: str, name: str, scope: str, steps: int) -> list[Thing]:
        while True:
            qualified = f"{scope}.{name}" if scope else name
            if (path, qualified) in self.functions:
                return [Thing("function", qualified, path)]
            if (path, qualified) in self.classes:
                return [Thing("class", qualified, path)]
            shapes = self._aliases_of(path).get(qualified)
            if shapes and scope:
                return self._of_shapes(path, shapes, scope, steps + 1)
            around = self.functions.get((path, scope))
            if around is not None and (name in around.parameters or name == around.kwarg):
                return []
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        found: list[Thing] = []
        for item in self._imports_of(path).get(name, ()):
            found += self._imported(path, item, steps + 1)
        if not found:
            found = self._of_shapes(path, self._aliases_of(path).get(name, ()), "", steps + 1)
        if not found:
            for star in self.units[path].stars:
                source = self.module(path, star.module, star.level)
                if source:
                    found += self.meaning(source, name, "", steps + 1)
                elif star.module.split(".")[0] == LIBRARY and not star.level:
                    found.append(Thing("library", f"{star.module}.{name}"))
        return list(dict.fromkeys(found))

    def _of_shapes(self, path: str, shapes: Iterable[Shape], scope: str, steps: int) -> list[Thing]:
        found: list[Thing] = []
        for item in shapes:
            if item[0] == "name":
                found += self.meaning(path, item[1], scope, steps)
        return list(dict.fromkeys(found))

    def _imported(self, path: str, item: Import, steps: int) -> list[Thing]:
        if not item.name:
            source = self.module(path, item.module, item.level)
            if source:
                return [Thing("module", "", source)]
            return [Thing("library", item.module)] if item.module.split(".")[0] == LIBRARY else []
        submodule = f"{item.module}.{item.name}" if item.module else item.name
        inner = self.module(path, submodule, item.level)
        source = self.module(path, item.module, item.level)
        if source and source != path:
            found = self.meaning(source, item.name, "", steps + 1)
            if found:
                return found
        if inner:
            return [Thing("module", "", inner)]
        if not source and item.level == 0 and item.module.split(".")[0] == LIBRARY:
            return [Thing("library", submodule)]
        return []

    def _member(self, thing: Thing, rest: str, steps: int) -> list[Thing]:
        if not rest:
            return [thing]
        if thing.kind == "library":
            return [Thing("library", f"{thing.name}.{rest}")]
        if thing.kind == "module":
            first, _, more = rest.partition(".")
            found = self._root(thing.path, first, "", steps + 1)
            if not found:
                folder = os.path.dirname(thing.path)
                inner = self._at(folder, first) if thing.path.endswith("__init__.py") else ""
                found = [Thing("module", "", inner)] if inner else []
            return [part for item in found for part in self._member(item, more, steps + 1)]
        if thing.kind == "class":
            first, _, more = rest.partition(".")
            inherited = self.method(thing.path, thing.name, first)
            if inherited is not None and not more:
                return [Thing("function", inherited[1], inherited[0])]
        return []

    def _imports_of(self, path: str) -> dict[str, list[Import]]:
        if path not in self._imports:
            table: dict[str, list[Import]] = {}
            for bound, item in self.units[path].imports:
                table.setdefault(bound, []).append(item)
            self._imports[path] = table
        return self._imports[path]

    def _aliases_of(self, path: str) -> dict[str, list[Shape]]:
        if path not in self._aliases:
            table: dict[str, list[Shape]] = {}
            for bound, item in self.units[path].aliases:
                table.setdefault(bound, []).append(item)
            self._aliases[path] = table
        return self._aliases[path]

    # -- classes ----------------------------------------------------------------------------------------------------

    def ancestors(self, path: str, qualname: str) -> tuple[list[tuple[str, str]], list[str]]:
        """The class and those of the project that it derives from, nearest first, and its ancestors in the library."""
        own: list[tuple[str, str]] = []
        library: list[str] = []
        queue = [(path, qualname)]
        while queue:
            key = queue.pop(0)
            head = self.classes.get(key)
            if head is None or key in own:
                continue
            own.append(key)
            scope = key[1].rpartition(".")[0]
            for base in head.bases:
                for thing in self.meaning(key[0], base, scope):
                    if thing.kind == "class" and (thing.path, thing.name) != key:
                        queue.append((thing.path, thing.name))
                    elif thing.kind == "library" and thing.name not in library:
                        library.append(thing.name)
        return own, library

    def method(self, path: str, qualname: str, name: str) -> tuple[str, str] | None:
        """Where the class finds a method among its ancestors of the project."""
        own, _ = self.ancestors(path, qualname)
        for place, cls in own:
            if (place, f"{cls}.{name}") in self.functions:
                return place, f"{cls}.{name}"
        return None

    # -- places -----------------------------------------------------------------------------------------------------

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Every function and class of the project that some file puts in the place of something of the library."""
        found: dict[Place, None] = {}
        for path, unit in self.units.items():
            for put in unit.puts:
                for place in self._places_of(path, put):
                    found.setdefault(place, None)
        replaced = {(family(place.target), level(place.target)) for place in found if self._has_forward(place)}
        judged = [
            replace(place, by_library=(family(place.target), level(place.target) + 1) not in replaced)
            for place in found
        ]
        return tuple(sorted(judged, key=lambda item: (item.at, item.target, item.member, item.value)))

    def _has_forward(self, place: Place) -> bool:
        """True where the ``forward`` of the target is the project's from then on."""
        return place.member == "forward" or (not place.member and self.method(*place.value, "forward") is not None)

    def _places_of(self, path: str, put: Put) -> Iterable[Place]:
        values = self._put_values(path, put)
        if not values:
            return
        for target, member in self._targets(path, put):
            for value in values:
                key = (value.path, value.name)
                line = self.functions[key].line if value.kind == "function" else self.classes[key].line
                yield Place(target, member, key, line, (path, put.line), put.how)

    def _put_values(self, path: str, put: Put) -> list[Thing]:
        """The functions and classes of the project that are put somewhere."""
        kind, name = put.value[0], put.value[1] if len(put.value) > 1 else ""
        things = self.meaning(path, name, put.function)
        if kind in ("name", "bound"):
            return [thing for thing in things if thing.kind in ("function", "class")]
        if kind == "made":
            made: list[Thing] = []
            for thing in things:
                if thing.kind == "class":
                    made.append(thing)
                elif thing.kind == "function":
                    made += self._given_back(thing)
            return made
        return []

    def _given_back(self, thing: Thing) -> list[Thing]:
        """The functions and classes that a factory of the project returns."""
        head = self.functions[(thing.path, thing.name)]
        found: list[Thing] = []
        for item in head.returns:
            if item[0] in ("name", "bound"):
                found += [
                    other
                    for other in self.meaning(thing.path, item[1], thing.name)
                    if other.kind in ("function", "class")
                ]
        return found

    def _targets(self, path: str, put: Put) -> list[tuple[str, str]]:
        """The classes of the library that something is put on, with its name there ("": it takes the class's place)."""
        if put.how == "call":
            return []
        things = self.meaning(path, put.target, put.function) if put.target else []
        library = [thing.name for thing in things if thing.kind == "library"]
        if put.how == "table":
            return [(name, put.member) for name in library]
        if library:
            if put.how == "item":
                return []
            if put.member in CALLED_MEMBERS:
                return [(name, put.member) for name in library]
            return [(f"{name}.{put.member}", "") for name in library] if put.member else []
        member = put.member if put.member in CALLED_MEMBERS else ""
        if member or put.how == "setattr" or put.target.endswith("_modules"):
            return [(name, member) for name in self._asked_for(path, put)]
        return []

    def _asked_for(self, path: str, put: Put) -> list[str]:
        """The classes that the conditions around pick, by name or by a string compared with the class's name."""
        found: list[str] = []
        for word in put.asked:
            if word.startswith('"'):
                name = word.strip('"')
                if name.isidentifier() and name != name.lower():  # of a class; `"__main__"` is none
                    found.append(name)
                continue
            found += [thing.name for thing in self.meaning(path, word, put.function) if thing.kind == "library"]
        return found

    # -- who decides about whom -------------------------------------------------------------------------------------

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """By path: the files that call, or are called by, a function of the file that speaks of caches; both ways."""
        edges: dict[str, set[str]] = {path: set() for path in self.units}
        speaking = {
            path: {item.name for item in unit.functions if item.speaks} | {item.name for item in unit.classes}
            for path, unit in self.units.items()
        }
        defined = {path: {item.name for item in unit.functions} for path, unit in self.units.items()}
        for path, unit in self.units.items():
            for other in sorted(self._imported_modules(path) - {path}):
                names = speaking[other]
                if names & unit.called or names & self._inherited_names(path) or defined[other] & unit.given:
                    edges[path].add(other)
                    edges[other].add(path)
        for place in self.places:
            if place.value[0] != place.at[0]:
                edges[place.value[0]].add(place.at[0])
                edges[place.at[0]].add(place.value[0])
        return {path: tuple(sorted(found)) for path, found in edges.items()}

    def _inherited_names(self, path: str) -> set[str]:
        return {base.rpartition(".")[2] for item in self.units[path].classes for base in item.bases}

    def _imported_modules(self, path: str) -> set[str]:
        """The modules in which the imported names of a file are defined, through re-exports."""
        found: set[str] = set()
        for bound, _ in self.units[path].imports:
            for thing in self._root(path, bound, "", 0):
                if thing.path and thing.path != path:
                    found.add(thing.path)
        for star in self.units[path].stars:
            source = self.module(path, star.module, star.level)
            if source:
                found.add(source)
        return found

    @cached_property
    def clusters(self) -> dict[str, tuple[str, ...]]:
        """By path: the files whose code decides with the file's own, sorted; every file is in one cluster.

        A cluster grows from its first file to the files next to it until it holds ``ROOM`` characters.
        """
        found: dict[str, tuple[str, ...]] = {}
        for path in sorted(self.units):
            if path not in found:
                cluster = self._grown_from(path, found)
                found.update(dict.fromkeys(cluster, cluster))
        return found

    def _grown_from(self, path: str, taken: Mapping[str, object]) -> tuple[str, ...]:
        chosen = {path}
        room = ROOM - self.units[path].size
        ring = [path]
        while ring:
            near = {other for item in ring for other in self.neighbours[item]}
            ring = []
            for other in sorted(near - chosen):
                size = self.units[other].size
                if other not in taken and size <= room:
                    room -= size
                    chosen.add(other)
                    ring.append(other)
        return tuple(sorted(chosen))

    def surroundings(self, path: str) -> Surroundings:
        """What the project says about the file at *path*."""
        around = self.clusters.get(path, (path,))
        inside = frozenset(around)
        return Surroundings(
            around,
            tuple(place for place in self.places if place.value[0] in inside),
            tuple(key for key in self.own_classes if key[0] in inside),
            tuple(key for key in self.handed if key[0] in inside),
            self.shims,
            self._called_on_caches(inside),
            elsewhere(self._keywords, self.units[path].keywords) if path in self.units else (),
            elsewhere(self._taken, self.units[path].taken) if path in self.units else (),
        )

    @cached_property
    def _keywords(self) -> Counter[str]:
        """In how many files a keyword is written."""
        return Counter(word for unit in self.units.values() for word in unit.keywords)

    @cached_property
    def _taken(self) -> Counter[str]:
        return Counter(word for unit in self.units.values() for word in unit.taken)

    def _called_on_caches(self, inside: frozenset[str]) -> tuple[str, ...]:
        """Names of methods in these files, of cache classes or to reorder caches, that some file of the project calls, sorted."""
        names = {
            item.name
            for path in inside
            for item in (self.units[path].functions if path in self.units else ())
            if item.owner
            and (item.name == REORDER or any(map(HOLDS_CACHES.search, self.ancestors(path, item.owner)[1])))
        }
        return tuple(sorted(names & self._called)) if names else ()

    @cached_property
    def _called(self) -> frozenset[str]:
        return frozenset().union(*(unit.called for unit in self.units.values()))

    @cached_property
    def shims(self) -> tuple[str, ...]:
        """Names that the project puts on caches of the library, or on the modules that hold them."""
        found: set[str] = set()
        for path, unit in self.units.items():
            for put in unit.puts:
                if put.how in ("attribute", "setattr") and put.member and put.member not in CALLED_MEMBERS:
                    for thing in self.meaning(path, put.target, put.function):
                        if thing.kind == "library" and HOLDS_CACHES.search(thing.name):
                            found.add(put.member)
        return tuple(sorted(found))

    # -- who calls a class's methods --------------------------------------------------------------------------------

    @cached_property
    def own_classes(self) -> tuple[tuple[str, str], ...]:
        """Classes derived from parts of the library whose ``forward`` only code of the project calls.

        Those that are put nowhere in the library's place, and are held only by classes with a ``forward`` of their own.
        """
        placed = {place.value for place in self.places}
        return tuple(
            key
            for key, holders in sorted(self._holders.items())
            if key not in placed
            and all(self.method(path, cls, "forward") is not None for path, cls in holders)
            and not any(self._stands_for(other, placed) for other in holders)
        )

    @cached_property
    def handed(self) -> tuple[tuple[str, str], ...]:
        """Classes that are put in the library's place, or held by a class whose ``forward`` is the library's."""
        held = {
            key
            for key, holders in self._holders.items()
            if any(self.method(path, cls, "forward") is None for path, cls in holders)
        }
        return tuple(sorted({place.value for place in self.places if not place.member} | held))

    def _stands_for(self, key: tuple[str, str], placed: set[tuple[str, str]]) -> bool:
        return key in placed and key not in self._holders

    @cached_property
    def _holders(self) -> dict[tuple[str, str], set[tuple[str, str]]]:
        """By class of the project: the classes whose objects keep one of its objects in an attribute."""
        found: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for (path, qualname), head in self.classes.items():
            for _, item in head.attributes:
                if item[0] == "made":
                    for thing in self.meaning(path, item[1], qualname):
                        if thing.kind == "class":
                            found.setdefault((thing.path, thing.name), set()).add((path, qualname))
        return found
