"""What ``lower`` makes of a file: plain data that says who defines, imports, holds and installs what.

Everything is strings, ints and tuples, so that a unit can be kept on disk and handed between processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Shape = tuple[str, ...]
"""What an expression stands for, as far as names say:

``("name", "a.b.c")`` a dotted name, ``("made", "a.B")`` what calling it gives, with the first argument behind it where that is
a name, ``("bound", "f")`` a function bound to an object or filled in (``MethodType(f, m)``, ``f.__get__(m)``, ``partial(f)``),
``("table", "key=f", "=g")`` a dict whose values are names (a key that is no string is empty), ``("item", "TABLE", "key")`` what a
key of one gives (any key where it is not written), ``("?",)`` anything else.
"""
UNKNOWN_SHAPE: Shape = ("?",)


@dataclass(frozen=True, slots=True)
class Import:
    """``from <level dots><module> import <name> as <bound>``; *name* is empty for ``import module``."""

    module: str
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class FunctionHead:
    """The outside of a function. *speaks*: its body has a word of caches."""

    name: str
    qualname: str
    line: int
    parameters: tuple[str, ...]
    kwarg: str
    owner: str
    """Qualified name of the class whose method it is; "" for a plain function."""
    returns: tuple[Shape, ...] = ()
    keys: tuple[str, ...] = ()
    """Of ``prepare_inputs_for_generation``: the keys and keywords that it writes, from which ``forward`` is filled."""
    speaks: bool = False


@dataclass(frozen=True, slots=True)
class ClassHead:
    """The outside of a class. *attributes* are those of its body whose value is a name, and what ``self`` is given."""

    name: str
    qualname: str
    line: int
    bases: tuple[str, ...]
    attributes: tuple[tuple[str, Shape], ...] = ()


@dataclass(frozen=True, slots=True)
class Put:
    """Something of the file is put somewhere: ``target.member = value``, in any spelling.

    *target* is the dotted name it is put on, "" where that is no name. *asked* are the names and the strings by which
    the conditions around it pick the target (``isinstance(m, LlamaAttention)``, ``type(m).__name__ == "LlamaAttention"``).
    *how*: attribute, setattr, item (of a dict), call (a registry's or a hook's function, *member* is its name).
    """

    how: str
    target: str
    member: str
    value: Shape
    line: int
    function: str
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """One file, lowered. *called* are the last names of what it calls or registers as a hook, and the classes that it loads."""

    path: str
    functions: tuple[FunctionHead, ...] = ()
    classes: tuple[ClassHead, ...] = ()
    imports: tuple[tuple[str, Import], ...] = ()
    stars: tuple[Import, ...] = ()
    aliases: tuple[tuple[str, Shape], ...] = ()
    """``name = shape`` at the top level, in order; a name bound twice stands twice."""
    puts: tuple[Put, ...] = ()
    called: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    """Of *called*: those that are given something whose name speaks of caches."""
    size: int = 0
    keywords: frozenset[str] = frozenset()
    """``forward past_key_values``: what is called with which name of a cache; of a dict with such a key, the key alone."""
    taken: frozenset[str] = frozenset()
    """Names of caches that functions take which are called ``forward`` or ``generate``, or stand where those are called;
    and ``prepare_inputs_for_generation``, where one gives its cache back under an older name."""
    surface: str = ""
    """A digest of what a file that only follows a name into this one can see of it."""
    own_format: bool = False
    """True where a class of the file keeps the past in a format of its own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A function or class of the project that stands where the library calls it.

    *target* is the class of transformers whose *member* it is (``forward``), or the class that is replaced as a whole
    (*member* is then empty). *value* is (path, qualified name), defined on *line*; *at* is the (path, line) that puts it
    there. *by_library*: the code around its target is still the library's, so the library calls it.
    """

    target: str
    member: str
    value: tuple[str, str]
    line: int
    at: tuple[str, int]
    how: str = field(default="attribute", compare=False)
    by_library: bool = True

    @property
    def of_a_module(self) -> bool:
        """True where it stands for a function of a module of the library: a helper, which a cache may never reach."""
        names = self.target.split(".")
        return not self.member and not any(name[:1].isupper() for name in names[-2:])


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the project says about one file, for the analysis of it.

    *around* are the files whose code decides with its own (itself among them, sorted): they are walked together.
    *places* are those of functions and classes of these files. *own* are (path, qualified name) of classes whose methods
    the project calls by itself and the library never does, *handed* those that it puts, or leaves, where the library calls
    them. *shims* are names that the project puts on the library's
    caches, or on the modules that hold them, and private ones on any class of it, so that they exist there on every release.
    *called* are names of methods of the cache classes in these files, of private methods and of private members put on classes
    that some file of the project calls. *keywords* are those
    of the other files' units: callers that a rename does not see. *taken* are names that ``forward`` methods there take, and
    ``prepare_inputs_for_generation`` where one there gives its cache back under an older name. *surface* is that of the
    file's unit. *own_format*: a class of another file of the project keeps the past in a format of its own.
    """

    around: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    handed: tuple[tuple[str, str], ...] = ()
    shims: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    surface: str = ""
    own_format: bool = False

    @property
    def shared(self) -> Surroundings:
        """What is the same for all files around, and what their walk together may ask."""
        return replace(self, keywords=(), taken=(), surface="", own_format=False)

    @property
    def alone(self) -> bool:
        """True for a file about which no other decides."""
        return len(self.around) < 2 and not self.places and not self.own


ALONE = Surroundings()
"""Nothing is known around a file."""
