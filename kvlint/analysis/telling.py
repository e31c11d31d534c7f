"""Statements that cannot matter: no word of theirs means anything to the walk, and no name holds anything it follows.

Most lines of a model are arithmetic on tensors. A statement whose words are all dull has no value that a check asks for,
so the walk does not look into it.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from kvlint.analysis.calls import ITERATORS, SEQUENCE_METHODS
from kvlint.analysis.names import (
    ATTENTION_PARTS,
    CACHE_KEYWORDS,
    CACHE_NAMES,
    CACHE_OUTPUT_KEYS,
    DISTINCTIVE_MEMBERS,
    LAYER_LISTS,
    LOOSE_CACHE_NAMES,
    MODEL_KWARGS_NAMES,
    MODEL_NAMES,
    MODEL_PARTS,
)
from kvlint.analysis.positions import LineIndex
from kvlint.analysis.recorder import Flow
from kvlint.analysis.scopes import ClassInfo
from kvlint.analysis.values import (
    UNKNOWN,
    Foreign,
    Instance,
    Later,
    Literal,
    NegativeNumber,
    NoneValue,
    Symbol,
    Unknown,
    Value,
)

UNREAD: frozenset[str] = frozenset()
WORD = re.compile(r"[^\W\d]\w*|:=")
TELLING_WORD = re.compile(
    r"(?i)cache|past|kv|version|transformers|pretrained|generat|legacy|seen_tokens|crop|attr$|instance|subclass|callable|super"
    r"|hook|method|partial|kwargs|reorder|copy|ignore_keys|import|config|cast$|signature|argspec|co_varnames|_implementation|:="
)
TELLING_NAMES = (
    CACHE_NAMES | LOOSE_CACHE_NAMES | CACHE_KEYWORDS | CACHE_OUTPUT_KEYS | DISTINCTIVE_MEMBERS | MODEL_KWARGS_NAMES
    | MODEL_PARTS | LAYER_LISTS | ATTENTION_PARTS | ITERATORS | SEQUENCE_METHODS
    | {"dict", "vars", "int", "float", "get", "pop", "setdefault", "exit", "_exit", "forward", "TYPE_CHECKING"}
)  # fmt: skip
DULL_PACKAGES = frozenset({"torch", "numpy", "math", "time", "logging", "random", "os", "json", "einops", "tqdm", "re"})
DULL_ATOMS = (Unknown, Literal, NoneValue, Foreign, NegativeNumber)


class Telling:
    """What means something in one file: words by themselves, and names by what they have shown to hold."""

    def __init__(self, text: str, index: LineIndex) -> None:
        self.text = text
        self.index = index
        self.names: set[str] = set()
        """Names of the module and of attributes that hold something the walk follows."""
        self._words: dict[int, frozenset[str] | None] = {}
        self._classes: set[int] = set()

    def add(self, name: str, value: Value) -> None:
        """Notes that a name of the module, or an attribute of whatever object, has a value that is followed."""
        if name not in self.names and self.interesting(value):
            self.names.add(name)

    def all_words(self, node: ast.stmt | ast.expr) -> frozenset[str]:
        """The words on the lines of a node."""
        start, end = self.index.line_start(node.lineno), self.index.line_end(node.end_lineno or node.lineno)
        return frozenset(WORD.findall(self.text, start, end))

    def words(self, node: ast.stmt | ast.expr) -> frozenset[str] | None:
        """The words on the lines of a node; None where one of them means something by itself."""
        known = self._words.get(id(node), UNREAD)
        if known is UNREAD:
            words = self.all_words(node)
            known = self._words[id(node)] = None if any(map(is_telling, words)) else words
        return known

    def dull(self, node: ast.stmt | ast.expr, flow: Flow) -> bool:
        """True where nothing on the lines of a node can matter under this flow."""
        words = self.words(node)
        if words is None:
            return False
        names = flow.names
        for word in words:
            value = names.get(word)
            if value is not None and value is not UNKNOWN and self.interesting(value):
                return False
        return self.names.isdisjoint(words)

    def decides_nothing(self, test: ast.expr, flow: Flow, outer: Flow) -> bool:
        """True for a dull condition that could go either way: nothing in it is known for certain.

        Names that the flow does not know have the values of the *outer* one, the module's.
        """
        if isinstance(test, ast.Constant):
            return False
        for word in self.words(test) or ():
            value = flow.names.get(word) or outer.names.get(word)
            if value is not None and value is not UNKNOWN and not any(isinstance(atom, Unknown) for atom in value):
                return False
        return self.dull(test, flow)

    def interesting(self, value: Value) -> bool:
        """True where one of the alternatives is something that the walk follows."""
        if type(value) is Later:
            return True
        for atom in value:
            if isinstance(atom, DULL_ATOMS):
                continue
            if isinstance(atom, Symbol):
                if atom.name.partition(".")[0] in DULL_PACKAGES and not atom.name.startswith("torch.cat"):
                    continue
            elif isinstance(atom, Instance):
                self.know_class(atom.info)
                continue
            return True
        return False

    def know_class(self, info: ClassInfo) -> None:
        """The methods of a class and what its attributes hold mean something from now on."""
        if id(info) in self._classes:
            return
        self._classes.add(id(info))
        for each in info.ancestors():
            self.names.update(each.methods)
            for name, value in each.attributes.items():
                self.add(name, value)


@lru_cache(maxsize=20_000)
def is_telling(word: str) -> bool:
    """True for a word that means something wherever it stands."""
    return word in TELLING_NAMES or TELLING_WORD.search(word) is not None or MODEL_NAMES.search(word) is not None
