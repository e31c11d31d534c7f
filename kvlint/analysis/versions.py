"""Version arithmetic as the linted code writes it, done for every release at once.

``transformers.__version__`` is a different string on each release; what the code makes of it (``parse``, ``split``,
``int``, tuples, ``.major``, comparisons) is computed for each of them, so that any spelling of a guard decides.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvlint.releases import ReleaseSet

if TYPE_CHECKING:
    from kvlint.timeline import Timeline

VERSION_CLASSES = ("Version", "LooseVersion", "StrictVersion", "parse", "parse_version")
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "In": lambda left, right: left in right,
    "NotIn": lambda left, right: left not in right,
}


def to_version(text: Any) -> Any:
    """A comparable version of a text such as ``4.56.0.dev0``. Raises ValueError on anything else."""
    from packaging.version import InvalidVersion, Version

    if isinstance(text, Version):
        return text
    try:
        return Version(str(text))
    except InvalidVersion as error:
        raise ValueError(str(error)) from error


def to_specifier(text: Any) -> Any:
    """The set of versions that a text such as ``>=4.56,<6`` means, None for anything else."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not isinstance(text, str) or text.strip(" ")[:1] not in ("<", ">", "=", "!", "~"):
        return None
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def compare_each(name: str, left: tuple[Any, ...], right: Any) -> ReleaseSet | None:
    """Releases on which ``left <op> right`` holds, or None where the comparison is not one Python would do."""
    compare = COMPARISONS.get(name)
    if compare is None:
        return None
    bits = 0
    for index, value in enumerate(left):
        try:
            if compare(*comparable(value, right)):
                bits |= 1 << index
        except (TypeError, ValueError):
            return None
    return ReleaseSet(bits)


def comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides as versions where one of them is a version."""
    from packaging.version import Version

    if isinstance(left, Version) and isinstance(right, str):
        return left, to_version(right)
    return left, right


def apply_each(values: tuple[Any, ...], function: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    """*function* of every release's value, or None where it fails on one."""
    try:
        return tuple(function(value) for value in values)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError):
        return None


DEMANDS = re.compile(r"^_?(?:require|check|assert|ensure|verify)_(?:\w+_)?versions?(?:_core)?$")
"""Functions that raise where a requirement is not met, such as ``transformers.utils.versions.require_version``."""
DEMANDED = re.compile(r"^\s*transformers\s*((?:===?|~=|!=|[<>]=?)[^;]*?)\s*$")


def demanded_releases(call: ast.Call, timeline: Timeline) -> ReleaseSet | None:
    """The releases that get past ``require_version("transformers>=4.45,<4.48")`` or ``check_min_version("4.45")``.

    None for any other call.
    """
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not call.args or not isinstance(call.args[0], ast.Constant) or not isinstance(call.args[0].value, str):
        return None
    text = call.args[0].value
    specifier = DEMANDED.match(text) if DEMANDS.match(name) else None
    try:
        if name == "check_min_version":
            return timeline.matching(f">={to_version(text.removesuffix('.dev0'))}")
        return timeline.matching(specifier[1]) if specifier is not None else None
    except ValueError:
        return None
