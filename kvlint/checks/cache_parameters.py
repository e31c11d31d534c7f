"""The cache parameter of one function: which names it takes, and how to make it take the one the library uses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from kvlint.analysis.facts import CallUse, Facts
from kvlint.analysis.scopes import FunctionInfo, keeps_own_format
from kvlint.analysis.values import Instance, LocalFunction, Member, Model, SuperObject
from kvlint.checks.library_calls import CACHE_PARAMETERS, OLD_PARAMETERS, LibraryCalled
from kvlint.findings import Applicability, Edit, Fix
from kvlint.nodes import walk

NEW_NAME = "cache"


def accepted_names(info: FunctionInfo) -> set[str]:
    """Names under which the function takes the cache: parameters, and keys that it looks up in its ``**kwargs``."""
    names = {arg.arg for arg in info.parameters() if arg.arg in (*CACHE_PARAMETERS, *OLD_PARAMETERS)}
    if info.node.args.kwarg is not None:
        names |= {key for key, _, _ in read_keys(info.node, info.node.args.kwarg.arg)}
    return names


def read_keys(function: ast.AST, kwargs: str) -> list[tuple[str, ast.expr, bool]]:
    """Cache keys that the function looks up in a dict parameter: key, place, and whether a missing one raises."""
    found: list[tuple[str, ast.expr, bool]] = []
    guarded: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and is_name(node.comparators[0], kwargs):
            key = string(node.left)
            if key and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                guarded.add(key)
                found.append((key, node, False))
        elif isinstance(node, ast.Subscript) and is_name(node.value, kwargs) and isinstance(node.ctx, ast.Load):
            key = string(node.slice)
            if key:
                found.append((key, node, True))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_name(node.func.value, kwargs):
            key = string(node.args[0]) if node.args else ""
            if key and node.func.attr in ("get", "pop", "setdefault"):
                found.append((key, node, node.func.attr == "pop" and len(node.args) == 1))
    return [(key, node, raises and key not in guarded) for key, node, raises in found if key in CACHE_PARAMETERS]


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def string(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def translated_by_decorator(facts: Facts, info: FunctionInfo) -> bool:
    """True where a decorator is told a name of the cache, or is a function of the file that names one: it renames
    keywords before the function sees them."""
    for decorator in info.node.decorator_list:
        if any(isinstance(node, ast.Constant) and node.value in CACHE_PARAMETERS for node in walk(decorator)):
            return True
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        for use in facts.functions:
            if is_name(name, use.info.qualname) and any(map(names_cache, walk(use.info.node))):
                return True
    return False


def names_cache(node: ast.AST) -> bool:
    """True for a string, or the keyword of a call, that is a name of the cache."""
    if isinstance(node, ast.keyword):
        return node.arg in CACHE_PARAMETERS
    return isinstance(node, ast.Constant) and node.value in CACHE_PARAMETERS


def given_twice(info: FunctionInfo, names: Iterable[str]) -> str:
    """The one of these names that the function passes on by itself and that its ``**kwargs`` brings to the same call."""
    kwarg = info.node.args.kwarg
    if kwarg is None:
        return ""
    for node in walk(info.node):
        if isinstance(node, ast.Call):
            own = {item.arg for item in node.keywords}
            spread = any(item.arg is None and is_name(item.value, kwarg.arg) for item in node.keywords)
            if spread and not own.isdisjoint(names):
                return next(name for name in names if name in own)
    return ""


def only_passes_on(info: FunctionInfo, accepted: set[str]) -> bool:
    """True where the parameter goes nowhere but, by keyword, into calls that get all of ``**kwargs`` too.

    What the library passed in then reaches the callee through ``**kwargs``.
    """
    kwarg = info.node.args.kwarg
    if kwarg is None:
        return False
    passed: set[int] = set()
    for node in walk(info.node):
        if isinstance(node, ast.Call) and any(
            item.arg is None and is_name(item.value, kwarg.arg) for item in node.keywords
        ):
            passed |= {id(item.value) for item in node.keywords if item.arg in CACHE_PARAMETERS}
    uses = [node for node in walk(info.node) if isinstance(node, ast.Name) and node.id in accepted]
    return bool(uses) and all(id(node) in passed for node in uses)


def is_unread(info: FunctionInfo, accepted: set[str]) -> bool:
    """True where nothing reads the parameter: it is no loss that it is never filled."""
    names = any(isinstance(node, ast.Name) and node.id in accepted for node in walk(info.node))
    return not names and not calls_locals(info)


def calls_locals(info: FunctionInfo) -> bool:
    """True where ``locals()`` reads every parameter."""
    return any(isinstance(node, ast.Call) and is_name(node.func, "locals") for node in walk(info.node))


# -- fixes ----------------------------------------------------------------------------------------------------------


def renaming_fix(facts: Facts, item: LibraryCalled, parameter: ast.arg, hit: Sequence[LibraryCalled]) -> Fix | None:
    """Calls the parameter ``cache``; None where a name, a key or a caller in the file stands against it.

    Functions of one class are renamed together. ``prepare_inputs_for_generation`` names what ``forward`` takes: where
    that keeps the old name, the new one is taken in as well. So it is for a model's ``forward``, which anybody may call,
    and for a function that other code hands its cache under the old name.
    """
    if item.role == "model" or (item.role == "prepare" and forward_keeps(item, parameter.arg, hit)):
        return merging_fix(facts, item, parameter, (NEW_NAME,))
    if called_by_old_name(facts, item, parameter.arg):
        return merging_fix(facts, item, parameter, (NEW_NAME,))
    edits = rename_edits(facts, item, parameter, hit)
    if edits is None:
        return None
    owner = item.info.owner
    together = [other for other in hit if owner is not None and other.info.owner is owner and not other.elsewhere]
    for other in together:
        if other.role == "model":
            continue
        name = next((arg for arg in other.info.parameters() if arg.arg in CACHE_PARAMETERS), None)
        if name is None or rename_edits(facts, other, name, hit) is None:
            return None
    applicability = Applicability.SAFE if is_done(item, parameter.arg) else Applicability.UNSAFE
    together = [other for other in together if other.role != "model"]
    group = f"KV305 {owner.qualname}" if owner is not None and len(together) > 1 else ""
    return Fix(f"Rename `{parameter.arg}` to `{NEW_NAME}`", applicability, tuple(sorted(set(edits))), group)


def called_by_old_name(facts: Facts, item: LibraryCalled, old: str) -> bool:
    """True where a call that the rename does not follow may hand the function its cache as *old*: in another file, or
    through something that is not known. A layer of the library hands on what it does not know to its attention."""
    prepare = item.role == "prepare"
    for words in facts.surroundings.keywords:
        callee, _, name = words.rpartition(" ")
        if name == old and (callee == item.info.name if prepare else not callee[:1].isupper()):
            return True
    for use in facts.calls:
        if use.keyword(old) is None or calls_function(use, item.info):
            continue
        func = use.node.func
        called = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if prepare and called != item.info.name:
            continue
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call):  # super().forward
            continue
        if not called[:1].isupper() and not any(isinstance(atom, LocalFunction) for atom in use.callee):
            return True
    return False


def treated_as_a_cache(facts: Facts, item: LibraryCalled, name: str) -> bool:
    """True where the parameter is nothing but an argument of calls into the library, an object whose members are used, or
    compared with None."""
    given: set[int] = set()
    for use in facts.calls:
        if use.place.function is item.info and any(
            (isinstance(atom, Member) and isinstance(atom.of, (SuperObject, Model))) or isinstance(atom, Model)
            for atom in use.callee
        ):
            given |= {id(node) for node in use.node.args} | {id(keyword.value) for keyword in use.node.keywords}
    for node in walk(item.info.node):
        if isinstance(node, ast.Attribute):
            given.add(id(node.value))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            given.add(id(node.left))
    uses = [node for node in walk(item.info.node) if isinstance(node, ast.Name) and node.id == name]
    return bool(uses) and all(id(node) in given for node in uses)


def is_indexed(info: FunctionInfo, name: str) -> bool:
    """True where the parameter is read like a tuple: under its new name it is a cache, and the function is not done."""
    return any(isinstance(node, ast.Subscript) and is_name(node.value, name) for node in walk(info.node))


def is_done(item: LibraryCalled, name: str) -> bool:
    """True where a cache under this name meets no code of the project that reads pairs: in the function itself, in the
    other methods of its class and of the classes above, nor in a ``forward`` that keeps pairs."""
    owner = item.info.owner
    if is_indexed(item.info, name) or (owner is not None and keeps_own_format(owner)):
        return False
    above = owner.ancestors() if owner is not None else ()
    others = [method for cls in above for method in cls.methods.values() if method is not item.info]
    return not any(
        is_indexed(method, arg.arg) for method in others for arg in method.parameters() if arg.arg in CACHE_PARAMETERS
    )


def forward_keeps(item: LibraryCalled, old: str, hit: Sequence[LibraryCalled]) -> bool:
    """True where the class's own ``forward`` takes the cache by its old name alone, and goes on doing so."""
    owner = item.info.owner
    forward = owner.method("forward") if owner is not None else None
    if forward is None or any(other.info is forward for other in hit):
        return False
    accepted = accepted_names(forward)
    return old in accepted and NEW_NAME not in accepted


def rename_edits(
    facts: Facts, item: LibraryCalled, parameter: ast.arg, hit: Sequence[LibraryCalled]
) -> list[Edit] | None:
    old, function = parameter.arg, item.info.node
    if not can_be_renamed(function, parameter):
        return None
    calls = {id(use.node): use for use in facts.calls}
    renamed = {id(other.info.node) for other in hit}
    edits = [name_edit(facts, parameter, old)]
    keys = 0
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == old:
            edits.append(name_edit(facts, node, old))
        elif isinstance(node, ast.Call):
            made = keyword_edits(facts, node, old, calls.get(id(node)), renamed)
            if made is None:
                return None
            edits += made
        elif item.role == "prepare" and isinstance(node, ast.Dict):
            for key in node.keys:
                if key is not None and string(key) == old:
                    edits.append(key_edit(facts, key, old))
                    keys += 1
        elif item.role == "prepare" and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if string(node.slice) == old:
                edits.append(key_edit(facts, node.slice, old))
                keys += 1
    if count_constants(function, old) != keys or any(edit.start < 0 for edit in edits):
        return None
    for use in facts.calls:
        if calls_function(use, item.info) and use.keyword(old) is not None and not inside(function, use.node):
            keyword = use.keyword(old)
            assert keyword is not None
            edits.append(name_edit(facts, keyword, old))
    return edits


def can_be_renamed(function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> bool:
    """False where the new name is taken, or an inner function has a parameter of the old one."""
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == NEW_NAME:
            return False
        if isinstance(node, ast.arg) and (
            node.arg == NEW_NAME or (node.arg == parameter.arg and node is not parameter)
        ):
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal)) and parameter.arg in node.names:
            return False
        if isinstance(node, ast.Call) and is_name(node.func, "locals"):
            return False
    return True


def keyword_edits(facts: Facts, node: ast.Call, old: str, use: CallUse | None, renamed: set[int]) -> list[Edit] | None:
    """The keyword of a call into the library follows the parameter; that of other calls stays. None: both are there."""
    keyword = next((item for item in node.keywords if item.arg == old), None)
    if keyword is None or use is None:
        return []
    if any(item.arg == NEW_NAME for item in node.keywords):
        return None
    follows = False
    for atom in use.callee:
        if isinstance(atom, Member) and isinstance(atom.of, (SuperObject, Model)):
            follows = True
        elif isinstance(atom, LocalFunction):
            follows = id(atom.info.node) in renamed
    return [name_edit(facts, keyword, old)] if follows else []


def calls_function(use: CallUse, info: FunctionInfo) -> bool:
    """True for a call of the function: by its name, through an object, or of an object whose ``forward`` it is."""
    for atom in use.callee:
        if isinstance(atom, LocalFunction) and atom.info is info:
            return True
        if isinstance(atom, Instance) and atom.info.method("forward") is info:
            return True
    return False


def inside(function: ast.AST, node: ast.AST) -> bool:
    return any(other is node for other in walk(function))


def count_constants(function: ast.AST, text: str) -> int:
    """Strings that are just *text*."""
    return sum(1 for node in walk(function) if isinstance(node, ast.Constant) and node.value == text)


def name_edit(facts: Facts, node: ast.AST, old: str) -> Edit:
    """Replaces the name at the beginning of a node."""
    start, _ = facts.span(node)
    return Edit(start, start + len(old), NEW_NAME)


def key_edit(facts: Facts, node: ast.expr, old: str) -> Edit:
    """Replaces a string literal's content; an edit at -1 where it is not written plainly."""
    start, end = facts.span(node)
    quote = facts.text[start]
    if facts.text[start:end] != f"{quote}{old}{quote}":
        return Edit(-1, -1, "")
    return Edit(start + 1, end - 1, NEW_NAME)


def keys_fix(facts: Facts, function: ast.AST, kwargs: str, applicability: Applicability, only_new: bool) -> Fix | None:
    """Looks the cache up as ``cache`` in a dict parameter, with *only_new* in place of the old key, else in front of it.

    All places of the function together; None where the key is written anywhere else, or another old one is looked up.
    """
    keys = read_keys(function, kwargs)
    old = keys[0][0]
    if any(key != old for key, _, _ in keys) or count_constants(function, NEW_NAME):
        return None
    found = [
        (node, key)
        for node in walk(function)
        if isinstance(node, ast.expr) and (key := key_node(node, kwargs, old)) is not None
    ]
    if len(found) != count_constants(function, old):
        return None
    edits: list[Edit] = []
    for node, key in found:
        if only_new:
            edits.append(key_edit(facts, key, old))
            continue
        text = with_new_key(facts, node, key, kwargs)
        if not text or facts.text[facts.span(key)[0]] not in "\"'" or node.lineno != node.end_lineno:
            return None
        edits.append(Edit(*facts.span(node), text))
    if not edits or any(edit.start < 0 for edit in edits):
        return None
    title = f'Replace with "{NEW_NAME}"' if only_new else f'Look for "{NEW_NAME}" first'
    return Fix(title, applicability, tuple(sorted(edits)), f"KV305 keys {facts.span(function)[0]}")


def key_node(node: ast.AST, kwargs: str, key: str) -> ast.expr | None:
    """The key of a look-up (or store) in the dict parameter, where it is *key*."""
    found: ast.expr | None = None
    if isinstance(node, ast.Subscript) and is_name(node.value, kwargs):
        found = node.slice
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and is_name(node.comparators[0], kwargs):
        found = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_name(node.func.value, kwargs):
        if node.func.attr in ("get", "pop", "setdefault") and node.args:
            found = node.args[0]
    return found if found is not None and string(found) == key else None


def with_new_key(facts: Facts, node: ast.AST, key: ast.expr, kwargs: str) -> str:
    """The look-up of either key as code; "" for a form that has none."""
    source, quote = facts.source(node), facts.text[facts.span(key)[0]]
    new = f"{quote}{NEW_NAME}{quote}"
    if isinstance(node, ast.Subscript):
        return f"({kwargs}[{new}] if {new} in {kwargs} else {source})" if isinstance(node.ctx, ast.Load) else ""
    if isinstance(node, ast.Compare):
        is_in = isinstance(node.ops[0], ast.In)
        return f"({new} in {kwargs} or {source})" if is_in else f"({new} not in {kwargs} and {source})"
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if node.func.attr == "get" or (node.func.attr == "pop" and len(node.args) == 2):
        return f"{kwargs}.{node.func.attr}({new}, {source})"
    return ""


def merging_fix(facts: Facts, item: LibraryCalled, parameter: ast.arg, passed: Sequence[str]) -> Fix | None:
    """Adds the library's names as parameters and takes whichever was given, in front of the first statement."""
    function, old = item.info.node, parameter.arg
    names = {node.id for node in walk(function) if isinstance(node, ast.Name)}
    names |= {node.arg for node in walk(function) if isinstance(node, ast.arg)}
    if any(name in names for name in passed):
        return None
    edits = parameter_edits(facts, function, parameter, passed)
    place = merge_place(facts, function)
    if edits is None or place is None:
        return None
    offset, indent = place
    lines = [f"{old} = {name} if {name} is not None else {old}" for name in passed]
    text = "".join(f"{line}\n{indent}" for line in lines)
    edits.append(Edit(offset, offset, text))
    joined = " and ".join(f"`{name}`" for name in passed)
    refuses = function.args.kwarg is None or parameter in required_parameters(function)
    known = item.role != "model" or refuses or treated_as_a_cache(facts, item, old)
    sure = known and is_done(item, old)
    applicability = Applicability.SAFE if sure else Applicability.UNSAFE
    return Fix(f"Take {joined} as well as `{old}`", applicability, tuple(sorted(edits)))


def required_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """The parameters without a default."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    named = [arg for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return positional[: len(positional) - len(arguments.defaults)] + named


def merge_place(facts: Facts, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, str] | None:
    """Where new lines go in front of a body and the comments above its first statement: offset behind the indent, and
    the indent. What takes two names together stays in front. None for one-line functions."""
    body = function.body
    documented = (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    )
    rest = [item for item in body[1 if documented else 0 :] if not is_merging(item)]
    if not rest:
        return None
    first = rest[0]
    line = min([first.lineno, *(item.lineno for item in getattr(first, "decorator_list", ()))])
    start = facts.index.line_start(line)
    text = facts.text[start:]
    indent = text[: len(text) - len(text.lstrip(" \t"))]
    before = facts.text[start : facts.span(first)[0]]
    if line <= function.lineno or (before.strip() and not text.lstrip(" \t").startswith("@")):
        return None
    return before_comments(facts.text, start, indent), indent


def is_merging(statement: ast.stmt) -> bool:
    """True for ``old = new if new is not None else old``."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.IfExp):
        return False
    target, left = statement.targets[0], statement.value.orelse
    return isinstance(target, ast.Name) and isinstance(left, ast.Name) and target.id == left.id


def before_comments(text: str, start: int, indent: str) -> int:
    """Where the statement that begins at *indent* behind *start* begins, with the comment lines in front of it."""
    while start > 0:
        previous = text.rfind("\n", 0, start - 1) + 1
        if not text[previous:start].startswith(f"{indent}#"):
            break
        start = previous
    return start + len(indent)


def parameter_edits(
    facts: Facts, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg, passed: Sequence[str]
) -> list[Edit] | None:
    """Gives the old parameter a default and adds the new ones behind the other positional ones."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    edits: list[Edit] = []
    if parameter in positional:
        index = positional.index(parameter)
        first_default = len(positional) - len(arguments.defaults)
        if index < first_default:
            if index != first_default - 1:
                return None
            _, end = facts.span(parameter)
            edits.append(Edit(end, end, default_text(parameter)))
    elif arguments.kw_defaults[arguments.kwonlyargs.index(parameter)] is None:
        _, end = facts.span(parameter)
        edits.append(Edit(end, end, default_text(parameter)))
    last, default = last_named(arguments)
    if last is None:
        return None
    gap = gap_before(facts, last)
    added = "".join(f"{gap}{name}=None" for name in passed)
    _, end = facts.span(default if default is not None else last)
    end = past_parentheses(facts, end, default)
    if edits and edits[-1].start == end:
        edits[-1] = Edit(end, end, edits[-1].text + added)
    else:
        edits.append(Edit(end, end, added))
    return edits


def gap_before(facts: Facts, last: ast.arg) -> str:
    """What stands between the last parameter and one more: a new line where each has its own."""
    line = facts.text.split("\n")[last.lineno - 1]
    before = line[: last.col_offset]
    alone = bool(before) and not before.strip() and line.rstrip().endswith((",", "None", "False", "True"))
    return f",\n{before}" if alone else ", "


def default_text(parameter: ast.arg) -> str:
    return "=None" if parameter.annotation is None else " = None"


def last_named(arguments: ast.arguments) -> tuple[ast.arg | None, ast.expr | None]:
    """The parameter behind which new ones go, with its default: the last keyword-only or positional one."""
    if arguments.kwonlyargs:
        return arguments.kwonlyargs[-1], arguments.kw_defaults[-1]
    if arguments.vararg is not None:
        return arguments.vararg, None
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional or not arguments.args:
        return None, None
    return positional[-1], arguments.defaults[-1] if arguments.defaults else None


def past_parentheses(facts: Facts, end: int, default: ast.expr | None) -> int:
    """The end of a default value, behind parentheses that belong to it."""
    if default is None:
        return end
    start, _ = facts.span(default)
    opened = 0
    position = start - 1
    while position >= 0 and facts.text[position] in " \t\n(":
        opened += facts.text[position] == "("
        position -= 1
    if facts.text[position] != "=":
        return end
    while opened:
        closing = facts.text.find(")", end)
        if closing < 0:
            return end
        end, opened = closing + 1, opened - 1
    return end
