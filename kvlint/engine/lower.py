"""From a module's syntax tree to its unit: what it defines, imports, holds, calls and installs.

One pass; nothing is resolved here. Conditions around a statement are remembered only by the names and strings in them,
for the places that a condition picks (``if isinstance(module, LlamaAttention): module.forward = ...``).
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from kvlint.engine.own_formats import own_forward
from kvlint.engine.units import UNKNOWN_SHAPE, ClassHead, FunctionHead, Import, Put, Shape, Unit
from kvlint.fingerprint import digest
from kvlint.nodes import any_between, children, lines_with, walk

SPEAKS = ("past", "cache", "key_value", "kv", "present", "hidden_states", "input_ids")
GIVEN = re.compile(r"(?i)past|cache|key_value|kv|present|out(put)?s?$|pairs|memory")
TELLS = (
    *SPEAKS, "version", "transformers", "import", "head", "key", "value", "transpose", "permute", "reshape", "view(", "cat(",
    "stack(", "einsum", "rearrange",
)  # fmt: skip
"""What a body needs to tell another file anything: about caches, about releases, or about the layout of keys and values."""
TOLD_STATEMENTS = 12
"""Bodies of so few statements are asked for what they return."""
SAYS_GIVEN = ("past", "cache", "key_value", "kv", "present", "out", "pairs", "memory")
"""What a line needs for a name on it to be such a name."""
CACHE_KEYWORDS = frozenset({"cache", "past_key_values", "past_key_value", "cache_params", "layer_past", "past"})
"""Names under which caches are handed over, today or on older releases."""
PREPARE = "prepare_inputs_for_generation"
BINDERS = frozenset({"MethodType", "partial", "partialmethod", "wraps"})
REGISTRARS = frozenset({"register", "register_forward_pre_hook", "register_forward_hook", "update", "setdefault"})
LOADERS = frozenset({"from_pretrained", "from_config", "_from_config"})
HOOKS = frozenset({"register_forward_pre_hook", "register_forward_hook"})
TABLE_SIZE = 40
"""A dict with more entries is no table of what is installed."""
CALLED_BY_USERS = ("forward", "generate", "__call__")
"""Methods of a model that people call with a cache."""
TELLING = frozenset({ast.Call, ast.Attribute, ast.Dict, ast.Subscript})
"""The expressions that say something here."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TRIES: tuple[type[ast.Try], ...] = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))


def lower(path: str, text: str, tree: ast.Module) -> Unit:
    """The unit of the module at *path*."""
    lowering = Lowering(text)
    lowering.block(tree.body)
    return Unit(
        path,
        tuple(lowering.functions),
        tuple(lowering.classes),
        tuple(lowering.imports),
        tuple(lowering.stars),
        tuple(lowering.aliases),
        tuple(lowering.puts),
        frozenset(lowering.called),
        frozenset(lowering.given),
        len(text),
        lowering.words(),
        taken_in(lowering),
        lowering.surface(),
        lowering.own_format,
    )


def taken_in(lowering: Lowering) -> frozenset[str]:
    """Names of caches that functions take which are called ``forward`` or ``generate``, or are put where those are called.

    Beside them the name of the hook where a ``prepare_inputs_for_generation`` gives its cache back under an older name.
    """
    put = {
        item.value[1] for item in lowering.puts if item.member in CALLED_BY_USERS and item.value[0] in ("name", "bound")
    }
    taken = {
        name
        for item in lowering.functions
        if item.name in CALLED_BY_USERS or item.name in put
        for name in CACHE_KEYWORDS.intersection(item.parameters)
    }
    older = CACHE_KEYWORDS - {"cache"}
    modules = {item.qualname for item in lowering.classes if item.bases}
    prepared = any(
        item.name == PREPARE and item.owner in modules and older.intersection(item.keys) for item in lowering.functions
    )
    return frozenset(taken | {PREPARE} if prepared else taken)


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute chain; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


def shape(node: ast.AST | None) -> Shape:
    """What an expression stands for, as far as names say."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = dotted(node)
        return ("name", name) if name else UNKNOWN_SHAPE
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if last == "__get__":
            return ("bound", name.rpartition(".")[0])
        if last in BINDERS and node.args:
            inner = shape(node.args[0])
            return ("bound", inner[1]) if inner[0] in ("name", "bound") else inner
        if last in ("staticmethod", "classmethod") and node.args:
            return shape(node.args[0])
        if last == "get" and "." in name:
            return ("item", name.rpartition(".")[0], text_of(node.args[0]) if node.args else "")
        given = dotted(node.args[0]) if node.args else ""
        made = ("made", name, given) if given else ("made", name)
        return made if name else UNKNOWN_SHAPE
    if isinstance(node, ast.IfExp):
        first, second = shape(node.body), shape(node.orelse)
        return first if first != UNKNOWN_SHAPE else second
    if isinstance(node, ast.Subscript):
        name = dotted(node.value)
        return ("item", name, text_of(node.slice)) if name else UNKNOWN_SHAPE
    if isinstance(node, ast.Dict) and len(node.values) <= TABLE_SIZE:
        names = [dotted(value) for value in node.values]
        keys = [text_of(key) for key in node.keys if key is not None]
        whole = names and all(names) and len(keys) == len(names)
        return ("table", *(f"{key}={name}" for key, name in zip(keys, names, strict=True))) if whole else UNKNOWN_SHAPE
    return UNKNOWN_SHAPE


def text_of(node: ast.expr) -> str:
    """The string that a constant is; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def keys_of(node: ast.expr) -> list[str]:
    """The keys of a dict display that is handed over with ``**``."""
    return [text_of(key) for key in node.keys if key is not None] if isinstance(node, ast.Dict) else []


def speaks(node: ast.AST) -> bool:
    """True where an argument is called like something that has to do with caches, or given under such a name."""
    for item in walk(node):
        kind = item.__class__
        if kind is ast.Name:
            name: str | None = item.id  # type: ignore[attr-defined]
        elif kind is ast.Attribute:
            name = item.attr  # type: ignore[attr-defined]
        elif kind is ast.keyword:
            name = item.arg  # type: ignore[attr-defined]
        else:
            continue
        if name is not None and is_given(name):
            return True
    return False


@lru_cache(maxsize=4096)
def is_given(name: str) -> bool:
    return GIVEN.search(name) is not None


def made_in(value: ast.expr) -> list[str]:
    """The names that are called in an expression: ``nn.ModuleList([Layer(config) for _ in range(n)])`` makes layers."""
    called = [dotted(node.func) for node in walk(value) if isinstance(node, ast.Call)]
    return list(dict.fromkeys(name for name in called if name))


def words_of(test: ast.AST) -> tuple[str, ...]:
    """The dotted names and the identifiers in strings of a condition."""
    found: list[str] = []
    for node in walk(test):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.append(f'"{node.value}"')
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = dotted(node)
            if name:
                found.append(name)
    return tuple(dict.fromkeys(found))


class Lowering:
    """The state of the pass: the scope it stands in, the conditions around it, what was found."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        lowercase = text.lower()
        self._giving = lines_with(lowercase, SAYS_GIVEN)
        self._speaking = lines_with(lowercase, SPEAKS)
        self._telling = lines_with(lowercase, TELLS)
        self._hidden: list[tuple[int, int]] = []
        self.own_format = False
        self.functions: list[FunctionHead] = []
        self.classes: list[ClassHead] = []
        self.imports: list[tuple[str, Import]] = []
        self.stars: list[Import] = []
        self.aliases: list[tuple[str, Shape]] = []
        self.puts: list[Put] = []
        self.called: set[str] = set()
        self.given: set[str] = set()
        self.keywords: set[str] = set()
        self._scope = ""
        self._function = ""
        self._owner = ""
        self._attributes: list[tuple[str, Shape]] | None = None
        self._returns: list[Shape] = []
        self._keys: dict[str, None] = {}
        self._asked: tuple[str, ...] = ()
        self._loose = False

    def words(self) -> frozenset[str]:
        """The keywords; where the file takes hold of ``prepare_inputs_for_generation`` in another way than by a plain call
        (``partial(model.prepare_inputs_for_generation, ...)``), any of them may reach it."""
        names = {word.rpartition(" ")[2] for word in self.keywords} if self._loose else set()
        return frozenset(self.keywords | {f"{PREPARE} {name}" for name in names})

    def surface(self) -> str:
        """A digest of the lines that another file can be told something by, without comments and blank lines.

        Left out are the bodies of functions that tell nothing. A line that makes a cache, or speaks of one, counts with its
        number where no function is around: a finding may name it.
        """
        shown: list[str] = []
        first = 0
        for start, end in [*self._hidden, (len(self.lines) + 1, 0)]:
            for number in range(first, start - 1):
                line = self.lines[number].rstrip()
                if line and not line.lstrip().startswith("#"):
                    shown.append(f"{number} {line}" if "ache" in line and line[0] not in " \t" else line)
            first = max(first, end)
        return digest("\n".join(shown).encode("utf-8", "surrogatepass"))

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, FUNCTIONS):
            self._define_function(node)
        elif isinstance(node, ast.ClassDef):
            self._define_class(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.If, ast.While)):
            self._expression(node.test)
            self._conditional(node.test, node.body)
            self.block(node.orelse)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._expression(node.iter)
            self.block([*node.body, *node.orelse])
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self._expression(item.context_expr)
            self.block(node.body)
        elif isinstance(node, TRIES):
            self.block(node.body)
            for handler in node.handlers:
                self.block(handler.body)
            self.block([*node.orelse, *node.finalbody])
        elif isinstance(node, ast.Match):
            self._expression(node.subject)
            for case in node.cases:
                self.block(case.body)
        else:
            self._simple(node)

    def _conditional(self, test: ast.expr, body: list[ast.stmt]) -> None:
        outer = self._asked
        self._asked = (*outer, *words_of(test))
        self.block(body)
        self._asked = outer

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return):
            if self._function and node.value is not None:
                self._returns.append(shape(node.value))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, node.value)
        for child in children(node):
            if isinstance(child, ast.expr):
                self._expression(child)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        made = shape(value)
        if isinstance(target, ast.Name):
            if isinstance(value, ast.Dict):
                self._table(value)
            if self._attributes is not None and not self._function:
                self._attributes.append((target.id, made))
            elif made != UNKNOWN_SHAPE:
                key = f"{self._scope}.{target.id}" if self._scope else target.id
                self.aliases.append((key, made))
        elif isinstance(target, ast.Attribute):
            holder = dotted(target.value)
            if holder == "self" and self._attributes is not None:
                self._attributes.append((target.attr, made))
                self._attributes += [(target.attr, ("made", name)) for name in made_in(value)]
            self._put("attribute", holder, target.attr, made, target)
        elif isinstance(target, ast.Subscript):
            holder = dotted(target.value)
            self._put("item", holder, text_of(target.slice), made, target)

    def _put(self, how: str, target: str, member: str, value: Shape, node: ast.expr) -> None:
        if value != UNKNOWN_SHAPE or (how in ("attribute", "setattr") and not target.startswith("self")):
            line = node.lineno
            self.puts.append(Put(how, target, member, value, line, self._scope, self._asked))

    def _table(self, display: ast.Dict) -> None:
        """``{A: {"forward": f}}`` and ``{A: B}``: what a loop may install."""
        for key, value in zip(display.keys, display.values, strict=True):
            holder = dotted(key) if key is not None else ""
            if not holder:
                continue
            if isinstance(value, ast.Dict):
                for name, inner in zip(value.keys, value.values, strict=True):
                    if isinstance(name, ast.Constant) and isinstance(name.value, str):
                        self._put("table", holder, name.value, shape(inner), inner)
            elif isinstance(value, ast.Name):
                self._put("table", holder, "", shape(value), value)

    def _expression(self, node: ast.AST) -> None:
        plain: set[int] = set()
        for item in walk(node):
            if item.__class__ not in TELLING:
                continue
            if isinstance(item, ast.Call):
                self._call(item)
                self._keywords_of(item, plain)
            elif isinstance(item, ast.Attribute):
                if item.attr == PREPARE and isinstance(item.ctx, ast.Load):
                    self._loose |= id(item) not in plain
            elif isinstance(item, ast.Dict):
                keys = [text_of(key) for key in item.keys if key is not None]
                self._keys.update((key, None) for key in keys if key)
                self.keywords.update(CACHE_KEYWORDS.intersection(keys))
            elif isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store):
                if key := text_of(item.slice):
                    self._keys[key] = None
                    self.keywords.update(CACHE_KEYWORDS & {key})

    def _keywords_of(self, node: ast.Call, plain: set[int]) -> None:
        """Notes the names that a call hands its arguments over by; *plain* are the methods that are called as they are."""
        given = [keyword.arg for keyword in node.keywords if keyword.arg]
        given += [name for keyword in node.keywords if keyword.arg is None for name in keys_of(keyword.value)]
        self._keys.update(dict.fromkeys(given))
        called = dotted(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        self.keywords.update(f"{called} {name}" for name in CACHE_KEYWORDS.intersection(given))
        if called == PREPARE:
            plain.add(id(node.func))
            self._loose |= any(keyword.arg is None for keyword in node.keywords)

    def _call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if last:
            self.called.add(last)
            if last in LOADERS:  # of a class of the project: it makes an object of it
                self.called.add(name.rpartition(".")[0].rpartition(".")[2])
            if last not in self.given and self._may_give(node) and any(map(speaks, (*node.args, *node.keywords))):
                self.given.add(last)
        if last == "setattr" and len(node.args) == 3:
            self._put("setattr", dotted(node.args[0]), text_of(node.args[1]), shape(node.args[2]), node)
        elif last in REGISTRARS and isinstance(node.func, ast.Attribute):
            if last in HOOKS:
                names = (item for part in (*node.args, *node.keywords) for item in walk(part))
                self.called |= {item.id for item in names if isinstance(item, ast.Name)}
            holder = dotted(node.func.value)
            for item in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if isinstance(item, ast.Dict):
                    for part in item.values:
                        self._put("call", holder, last, shape(part), node)
                else:
                    self._put("call", holder, last, shape(item), node)

    def _may_give(self, node: ast.Call) -> bool:
        """False where no line of a call holds a word of what speaks of caches."""
        return any_between(self._giving, node.lineno, node.end_lineno or node.lineno)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                bound = alias.asname or alias.name.split(".")[0]
                module = alias.name if alias.asname else alias.name.split(".")[0]
                self.imports.append((bound, Import(module, "", 0)))
            elif alias.name == "*":
                self.stars.append(Import(node.module or "", "", node.level))
            else:
                bound = alias.asname or alias.name
                self.imports.append((bound, Import(node.module or "", alias.name, node.level)))

    def _define_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *(item for item in node.args.kw_defaults if item)):
            self._expression(part)
        qualname = f"{self._scope}.{node.name}" if self._scope else node.name
        outer = (self._scope, self._function, self._returns, self._asked, self._keys)
        in_class = self._attributes is not None and not self._function
        self._scope, self._function, self._returns, self._asked, self._keys = qualname, qualname, [], (), {}
        place = len(self.functions)
        self.block(node.body)
        returns, keys = tuple(dict.fromkeys(self._returns)), tuple(self._keys)
        self._scope, self._function, self._returns, self._asked, self._keys = outer
        if not self._tells(node):
            self._hidden.append((node.body[0].lineno, node.end_lineno or node.lineno))
        arguments = node.args
        parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.functions.insert(
            place,
            FunctionHead(
                node.name,
                qualname,
                node.lineno,
                tuple(item.arg for item in parameters),
                arguments.kwarg.arg if arguments.kwarg else "",
                self._owner if in_class else "",
                returns,
                keys if node.name == PREPARE else (),
                any_between(self._speaking, node.lineno, node.end_lineno or node.lineno),
            ),
        )

    def _tells(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """True for a function whose body may tell another file something."""
        first, last = node.body[0].lineno, node.end_lineno or node.lineno
        return len(node.body) <= TOLD_STATEMENTS or first == node.lineno or any_between(self._telling, first, last)

    def _define_class(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(item.value for item in node.keywords)):
            self._expression(part)
        qualname = f"{self._scope}.{node.name}" if self._scope else node.name
        outer = (self._scope, self._function, self._owner, self._attributes)
        self._scope, self._function, self._owner, self._attributes = qualname, "", qualname, []
        self.block(node.body)
        if not self.own_format and any_between(self._speaking, node.lineno, node.end_lineno or node.lineno):
            self.own_format = own_forward(node) is not None
        attributes = tuple(dict.fromkeys(self._attributes or ()))
        self._scope, self._function, self._owner, self._attributes = outer
        bases = tuple(filter(None, (dotted(base) for base in node.bases)))
        self.classes.append(ClassHead(node.name, qualname, node.lineno, bases, attributes))
