"""Is what a call feeds one turn of a conversation, the whole of it, or one of several prompts?"""

from __future__ import annotations

import ast
import re

from kvlint.analysis.recorder import path_of
from kvlint.checks.bindings import COMPREHENSIONS, Scope, prefixes
from kvlint.checks.cache_feeds import Dependence, Feed, last_part, slice_of
from kvlint.nodes import walk

TURNS = re.compile(
    r"(?i)(?:^|_)(?:turns?|messages?|msgs?|utterances?|dialog(?:ue)?s?|conversations?|chat|repl(?:y|ies)|user_(?:inputs?|turns?|messages?))(?:_|$)"
)
"""What people call the parts of a conversation."""
WHOLE = re.compile(
    r"(?i)histor|conversation|messages|dialog|transcript|context|generated|past|prev|full|all_|chunk|segment|window|block|piece|step|grow|prefix"
)
"""Names of what may hold the earlier turns, or be a piece of one sequence."""
PROMPT = re.compile(r"(?i)prompt")
"""A name of one turn in a chat, and of anything at all elsewhere."""
PIECES = re.compile(
    r"(?i)histor|conversation|dialog|transcript|prev|chunk|segment|window|block|piece|step|grow|split|stream"
)
"""Names of a loop that may go through pieces, or through ever longer versions, of one sequence."""
CHAT = re.compile(r"(?i)chat|conver|session|dialog|assistant|bot|say|reply|respond|turn|talk|send")
"""Names of classes and functions that hold a conversation."""


def loop_parts(loop: ast.AST) -> list[ast.expr]:
    """What a loop goes through, and its targets."""
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        return [loop.iter, loop.target]
    if isinstance(loop, COMPREHENSIONS):
        return [part for item in loop.generators for part in (item.iter, item.target)]
    return []


def loop_words(loop: ast.AST) -> list[str]:
    """The names that a loop goes through and binds, and the functions it calls for that."""
    words: list[str] = []
    for part in loop_parts(loop):
        for node in walk(part):
            if isinstance(node, (ast.Name, ast.Attribute)):
                words.append(last_part(path_of(node)) or getattr(node, "attr", ""))
    return words


def goes_through_pieces(loop: ast.AST) -> bool:
    """True where the rounds may bring pieces of one sequence, or ever longer versions of it."""
    return any(PIECES.search(word) for word in loop_words(loop))


def is_strided(loop: ast.AST) -> bool:
    """True for a loop over ``range(start, stop, step)``."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and len(node.args) == 3
        for part in loop_parts(loop)
        for node in walk(part)
    )


def is_conversation(loop: ast.AST, found: Dependence) -> bool:
    """True where the rounds of a loop are turns of one conversation."""
    if any(isinstance(call.func, ast.Name) and call.func.id == "input" for call in found.calls):
        return True
    return isinstance(loop, ast.While) or any(TURNS.search(word) for word in loop_words(loop))


def may_hold_history(scope: Scope, feed: Feed) -> bool:
    """True where what is fed may contain the earlier turns, as far as this function shows."""
    owner = feed.place.owner
    chat = any(CHAT.search(name) for name in (getattr(scope.node, "name", ""), owner.name if owner is not None else ""))
    expressions, paths = slice_of(scope, feed.inputs)
    for path in paths:
        if any(scope.changed_in(prefix, scope.node) for prefix in prefixes(path)):
            return True
        definitions = [item for key in prefixes(path) for item in scope.bindings.get(key, ()) if item.value is not None]
        if definitions:
            continue
        if path.startswith("self.") and not is_fixed_part(path):
            return True
        whole = WHOLE.search(path) or (PROMPT.search(path) and not chat)
        if whole and not is_single_message(scope, expressions, path):
            return True
    return any(reads_length(item) for item in expressions)


def is_fixed_part(path: str) -> bool:
    """True for what an object keeps besides tokens: its tokenizer, model, device, configuration."""
    return bool(
        re.search(
            r"(?i)^self\.(?:\w+\.)*\w*(?:tok\w*|proc\w*|model|device|dtype|config|cfg|args|system\w*|template)\b", path
        )
    )


def is_single_message(scope: Scope, expressions: list[ast.expr], path: str) -> bool:
    """True where *path* is the content of one message in a list that is written out: ``[{"role": ..., "content": path}]``."""
    for item in expressions:
        for node in walk(item):
            if isinstance(node, ast.List) and node.elts and all(isinstance(part, ast.Dict) for part in node.elts):
                if any(path_of(part) == path for part in walk(node)):
                    return True
    return False


def reads_length(expression: ast.expr) -> bool:
    """True where the length of a cache has a part in it."""
    return any(isinstance(node, ast.Attribute) and node.attr == "get_seq_length" for node in walk(expression))


def mask_follows_past(scope: Scope, feed: Feed) -> bool:
    """True where the mask may cover the past: made from the length of the cache, from an earlier mask, or unknown."""
    if feed.mask is None:
        return False
    expressions, paths = slice_of(scope, (feed.mask,))
    if any(reads_length(item) for item in expressions):
        return True
    for item in expressions:
        for node in walk(item):
            if isinstance(node, ast.Call) and last_part(path_of(node.func)) in (
                "cat",
                "concat",
                "concatenate",
                "pad",
                "hstack",
            ):
                if "mask" in ast.unparse(node) or "ones" in ast.unparse(node):
                    return True
    return any(re.search(r"(?i)past|prev|full|total|cached|hist|running", last_part(path)) for path in paths)
