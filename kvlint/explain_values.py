"""What the analysis knows of the expressions on one line, in words, and why nothing is reported of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kvlint.analysis import values as v
from kvlint.analysis.facts import Facts
from kvlint.analysis.names import looks_like_cache
from kvlint.checks.receivers import last_name, members_of, receiver
from kvlint.releases import ReleaseSet
from kvlint.source import Region, position

HOW_SURE = {
    v.Certainty.PROVEN: "",
    v.Certainty.CONTEXT: ", by its name in code that uses transformers",
    v.Certainty.NAMED: ", by its name alone, which no rule takes for enough",
}
WORDS: dict[type[v.Atom], str] = {
    v.NoneValue: "None",
    v.Foreign: "an object of another library or of the project",
    v.Outside: "what a model of another library gives",
    v.NegativeNumber: "a number that is not positive",
    v.OutputDict: "a dict made of a model output",
    v.ModelKwargs: "keyword arguments of forward or generate",
    v.ModelLayers: "the decoder layers of a model",
    v.Config: "a model configuration",
    v.GenerationConfigValue: "a GenerationConfig",
    v.Pipeline: "a pipeline",
    v.Items: "a tuple or list",
    v.Sequence: "a tuple or list",
    v.Mapping: "a dict",
    v.LegacyCache: "a cache in the old format, a tuple of pairs",
    v.LayerPair: "the keys and values of one layer",
    v.CacheLayer: "one layer of a cache",
    v.CacheLayers: "the layers of a cache",
    v.TensorShape: "the shape of a stored tensor",
    v.CacheLength: "a number of tokens read from a cache",
}
"""What the alternatives of a value are called; those that need more words are in `words`."""


@dataclass(frozen=True, slots=True)
class Valued:
    """An expression on the line, what it is, and the line that shows it (0: none, or in another file)."""

    text: str
    what: str
    evidence: int

    def __str__(self) -> str:
        return f"`{self.text}` is {self.what}{f' (line {self.evidence})' if self.evidence else ''}"


def values_on(facts: Facts, region: Region, line: int) -> list[Valued]:
    """The expressions on a line of the region of which something is known, each once, in the order of the text."""
    found: dict[str, tuple[int, Valued]] = {}
    for node, value in seen(facts):
        text = " ".join(facts.source(node).split())
        if getattr(node, "lineno", 0) != line or text in found or len(text) > 80:
            continue
        what = " or ".join(dict.fromkeys(words(atom) for atom in value))
        known = [atom for atom in value if not isinstance(atom, (v.Unknown, v.Literal, v.NoneValue))]
        if known:
            origin = next((atom.origin for atom in known if atom.origin is not None), None)
            here = origin is not None and origin.path in ("", str(facts.path))
            evidence = position(region, origin.start)[0] if origin is not None and here else 0
            found[text] = (facts.span(node)[0], Valued(text, what, evidence))
    return [item for _, item in sorted(found.values(), key=lambda pair: (pair[0], pair[1].text))]


def seen(facts: Facts) -> Iterator[tuple[ast.AST, v.Value]]:
    """The expressions whose values the walk kept, with these."""
    for use in facts.attributes:
        yield use.value_node, use.value
    for item in facts.subscripts:
        yield item.node.value, item.value
    for each in facts.iterations:
        yield each.node, each.value
    for test in facts.tests:
        yield test.subject, test.value
    for call in facts.calls:
        yield call.node, call.result
        yield call.node.func, call.callee
        yield from zip(call.node.args, call.arguments, strict=False)
        yield from zip(
            (keyword.value for keyword in call.node.keywords), (value for _, value in call.keywords), strict=False
        )
    for assign in facts.assigns:
        yield assign.target, assign.value
    for back in facts.returns:
        if back.node.value is not None:
            yield back.node.value, back.value


def words(atom: v.Atom) -> str:
    """One alternative of a value in words."""
    if isinstance(atom, v.CacheObject):
        name = atom.local_class.name if atom.local_class is not None else atom.cls.rpartition(".")[2]
        what = "a cache" if atom.cls == v.CACHE and atom.local_class is None else f"a `{name}`"
        return f"{what} ({atom.source}{HOW_SURE[atom.certainty]})"
    if isinstance(atom, v.Model):
        return f"a {'model' if atom.role == 'model' else atom.role + ' of a model'}{HOW_SURE[atom.certainty]}"
    if isinstance(atom, v.ModelOutput):
        return "what generate returns" if atom.kind == "generate" else "what a model returns"
    if isinstance(atom, v.StoredTensor):
        return f"stored {atom.part}, [batch, kv heads, sequence, head dim]"
    if isinstance(atom, v.Symbol):
        return f"`{atom.name}`"
    if isinstance(atom, v.Literal):
        return repr(atom.value)
    if isinstance(atom, v.Member):
        return f"the member `{atom.name}` of {words(atom.of)}"
    if isinstance(atom, (v.LocalClass, v.Instance)):
        return f"{'the class' if isinstance(atom, v.LocalClass) else 'an object of the class'} `{atom.info.name}`"
    if isinstance(atom, v.LocalFunction):
        return f"the function `{atom.info.name}`"
    return WORDS.get(type(atom), "something else that is not known")


def reasons(facts: Facts, line: int) -> list[str]:
    """Why the rules say nothing of what stands on a line of the region."""
    found: list[str] = []
    every = facts.target
    for use in facts.attributes:
        if use.node.lineno != line:
            continue
        name, text = use.name, facts.source(use.value_node)
        left = use.place.releases & every
        if left != every:
            found.append(f"only {releases(facts, left)} gets to this line, by the conditions around it")
        if use.place.caught:
            found.append(f"{', '.join(sorted(use.place.caught))} raised here is caught")
        cache = receiver(facts, use)
        if cache is None:
            if all(isinstance(atom, (v.Unknown, v.NoneValue)) for atom in use.value):
                found.append(f"nothing shows what `{text}` is, and what is not known is never reported")
        elif left <= members_of(facts, cache, name):
            found.append(f"`{name}` of {words(cache)} is there on {releases(facts, left)}")
    found += unknown_objects(facts, line)
    return list(dict.fromkeys(found))


def unknown_objects(facts: Facts, line: int) -> list[str]:
    """What looks like a use of a cache on the line and was not followed, since nothing shows what the object is."""
    if facts.tree is None:
        return []
    followed = {id(use.node) for use in facts.attributes} | {id(use.node) for use in facts.subscripts}
    classes = (v.CACHE, v.DYNAMIC_CACHE, v.STATIC_CACHE, v.ENCODER_DECODER_CACHE)
    members = {name for cls in classes for name in facts.timeline.members(cls)}
    found = []
    for node in ast.walk(facts.tree):
        if not isinstance(node, (ast.Attribute, ast.Subscript)) or node.lineno != line or id(node) in followed:
            continue
        if (isinstance(node, ast.Attribute) and node.attr in members) or looks_like_cache(last_name(node.value)):
            text = facts.source(node.value)
            if text in ("self", "cls"):
                continue
            found.append(f"nothing shows what `{text}` is, and what is not known is never reported")
    return found


def releases(facts: Facts, these: ReleaseSet) -> str:
    """A set of releases as ranges."""
    written = ", ".join(facts.timeline.ranges(these))
    return written or "no release in force"
