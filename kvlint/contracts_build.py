"""From the sources of transformers releases to ``rules/api/contracts.json``; nothing of transformers is imported.

``extract`` reads the files of one release that call, or are called with, caches (``contracts_read``) into a ``Record``
of the timeline's kind, ``timeline_build.Merged`` folds records together, and ``dump`` writes the file:

=============  =======================================================================================================
table          a row of it, one a line
=============  =======================================================================================================
``kinds``      ``kind.method``: what callers of any class of the kind pass: ``{aspect: {value: [first, last, caller,
               ...]}}`` with the aspects ``keyword``, ``positions`` (how many) and ``use``; the caller is the evidence
``rows``       module: ``{"Class": {"": history of the head, "method": history}}``; the class ``""`` has the functions
``elsewhere``  ``module.Class``: modules whose classes hold it, besides its own
``texts``      a name of four characters; a head or the lines of a method (see ``contracts_read``): names of lines
``lines``      a name of four characters; one line - a call, a signature, a rename, a head: names of words
``words``      a name of three characters; a piece of a line: a receiver with its bracket, one argument, a closing bracket
               with the use
=============  =======================================================================================================

A history is a row of ``FFtext``: from which release on (two digits of base 36) which text holds, ``----`` for none. Names
are digests of what they stand for: a release more renames nothing. Rows of a table are sorted by their text, so that a
reader finds one without looking at the others.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvlint.contracts import (
    FORMAT,
    TABLES,
    Contracts,
    abbreviated,
    base36,
    held_classes,
    parse_call,
    split_line,
    split_receiver,
)
from kvlint.contracts_read import FileContracts, read_file
from kvlint.timeline import CACHE_KEYWORDS
from kvlint.timeline_build import (
    FolderSources,
    Masks,
    Merged,
    Record,
    Sources,
    WheelSources,
    _json,
    _module_name,
    _spans,
    release_of,
)

_FILES = re.compile(
    r"transformers/(?:models/.+/(?:modeling|generation)_[^/]*|models/auto/auto_factory|cache_utils|masking_utils"
    r"|modeling_attn_mask_utils|modeling_layers|modeling_utils|generation/utils|generation/candidate_generator"
    r"|generation/continuous_batching/[^/]*|integrations/executorch|utils/generic)\.py$"
)
_OTHER_FRAMEWORK = re.compile(r"/(?:modeling|generation)_(?:tf|flax)_")

_GENERATES = "GenerationMixin"
_OF_MODELS = frozenset(
    {*CACHE_KEYWORDS, "attention_mask", "position_ids", "input_ids", "inputs_embeds", "encoder_hidden_states"}
)
"""Keywords that are counted for kinds of whole models, whose others are a matter of the single model."""

ParsedContracts = dict[tuple[str, int], FileContracts]
"""Contracts by path and content: most files do not change between neighbouring releases."""


def wanted(path: str) -> bool:
    """Whether a file of the package is read for contracts."""
    return bool(_FILES.match(path)) and not _OTHER_FRAMEWORK.search(path) and not path.endswith("__init__.py")


def read_wheel(path: Path, parsed: ParsedContracts | None = None) -> Record:
    """The contracts of the release in the wheel at *path*. Raises ValueError where it is no wheel of transformers."""
    try:
        with zipfile.ZipFile(path) as archive:
            return extract(WheelSources(archive), parsed)
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable wheel: {error}") from error


def read_folder(root: Path, parsed: ParsedContracts | None = None) -> Record:
    """The contracts of the transformers package in the folder *root* (a site-packages folder)."""
    return extract(FolderSources(root), parsed)


def extract(sources: Sources, parsed: ParsedContracts | None = None) -> Record:
    """The contracts of one release; *parsed* carries results of unchanged files between releases.

    Raises ValueError where the sources hold no literal version.
    """
    known: ParsedContracts = {} if parsed is None else parsed
    rows: dict[str, dict[str, str]] = {}
    for path in sources.paths(wanted):
        key = (path, sources.key(path))
        module = _module_name(path)
        if key not in known:
            known[key] = read_file(module, sources.text(path))
        if not any(method or _GENERATES in text for row in known[key].rows.values() for method, text in row.items()):
            continue
        facts = {
            f"{owner}.{method}": text if method or not owner else f"#{text}"
            for owner, methods in known[key].rows.items()
            for method, text in methods.items()
        }
        rows[module.removeprefix("models.")] = facts
    return Record(release_of(sources), rows, {})


# ------------------------------------------------------------------------------------------------------------- writing


def dump(merged: Merged) -> str:
    """The text of ``contracts.json``: the same for the same facts."""
    count = len(merged.releases)
    words, lines, texts = (_Shared(TABLES[name]) for name in ("words", "lines", "texts"))

    def line_key(line: str) -> str:
        return lines.key(line, "".join(words.key(word, word) for word in split_line(line)))

    def text_key(text: str) -> str:
        return texts.key(text, "".join(map(line_key, text.split("\n"))))

    rows: dict[str, dict[str, dict[str, str]]] = {}
    for module, facts in sorted(merged.symbols.items()):
        for fact, masks in sorted(facts.items()):
            owner, _, method = fact.partition(".")
            shown = (text if method else abbreviated(text, module, owner) for text in masks)
            named = {text_key(text): mask for text, mask in zip(shown, masks.values(), strict=True) if mask}
            history = _history(named, count)
            if history:
                rows.setdefault(module, {}).setdefault(owner, {})[method] = history
    heads = _Heads.of(merged)
    tables: tuple[Mapping[str, object], ...] = (
        _kinds(merged, heads),
        rows,
        heads.elsewhere(),
        texts.table,
        lines.table,
        words.table,
    )
    blocks = [f'"format":{FORMAT}', f'"releases":{_json(merged.releases)}']
    for (name, width), table in zip(TABLES.items(), tables, strict=True):
        if width:
            written = [_json(f"{key}{row}") for key, row in table.items()]
        else:
            written = [f"{_json(key)}:{_json(row)}" for key, row in table.items() if row]
        begin, end = "[]" if width else "{}"
        blocks.append(f'"{name}":{begin}\n' + ",\n".join(sorted(written)) + f"\n{end}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


class _Shared:
    """A table in which each value stands once, under a name of fixed width that depends on the value alone."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.table: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def key(self, value: str, row: str) -> str:
        """The name of *value*, which is written as *row*."""
        known = self._keys.get(value)
        salt = 0
        while known is None:
            digest = hashlib.blake2s(f"{salt}{value}".encode()).digest()
            name = base64.urlsafe_b64encode(digest).decode("ascii")[: self.width]
            salt += 1
            if name not in self.table:
                known = self._keys[value] = name
                self.table[name] = row
        return known


def _history(masks: Masks, count: int) -> str:
    """``FFtextFFtext``: from which release on (two digits of base 36) which text holds, ``----`` where none does."""
    spans = _spans(masks, count)
    parts: list[str] = []
    end = 0
    for first, last, text in zip(spans[::3], spans[1::3], spans[2::3], strict=True):
        assert isinstance(first, int) and isinstance(last, int)
        if first > end:
            parts.append(f"{base36(end)}----")
        parts.append(f"{base36(first)}{text}")
        end = count if last == -1 else last + 1
    if parts and end < count:
        parts.append(f"{base36(end)}----")
    return "".join(parts)


def merged(contracts: Contracts) -> Merged:
    """What a file says of all its releases, in the shape that ``dump`` writes."""
    symbols: dict[str, dict[str, Masks]] = {}
    for module, owner, method, dated in contracts.everything():
        masks = symbols.setdefault(module, {}).setdefault(f"{owner}.{method}", {})
        masks.update({"\n".join(lines): rs.bits for rs, lines in dated})
    return Merged(list(contracts.releases), symbols)


# --------------------------------------------------------------------------------------------------------------- kinds


@dataclass(slots=True)
class _Seen:
    """Callers of a kind's method by aspect and value, with their releases."""

    callers: dict[tuple[str, str], Masks] = field(default_factory=dict)

    def add(self, aspect: str, value: str, caller: str, mask: int) -> None:
        masks = self.callers.setdefault((aspect, value), {})
        masks[caller] = masks.get(caller, 0) | mask


def _kinds(merged: Merged, heads: _Heads) -> dict[str, dict[str, dict[str, list[int | str]]]]:
    """What callers pass to any class of a kind, with one of them as evidence for as many releases as it holds on."""
    seen: dict[str, _Seen] = {}
    for module, facts in merged.symbols.items():
        for fact, masks in facts.items():
            owner = fact.rpartition(".")[0]
            if fact.endswith("."):
                continue
            for text, mask in masks.items():
                for line in text.split("\n"):
                    if line[0] == ">":
                        for target, valid in _targets(line[1:], module, owner, heads):
                            if mask & valid:
                                note = seen.setdefault(target, _Seen())
                                _note(note, line[1:], f"{module}.{fact}", mask & valid, target.split(".")[0])
    count = len(merged.releases)
    defined = heads.methods(merged, "cache")
    seen = {target: each for target, each in seen.items() if not target.startswith("cache.") or target in defined}
    found: dict[str, dict[str, dict[str, list[int | str]]]] = {}
    for target, each in seen.items():
        for (aspect, value), callers in sorted(each.callers.items()):
            row = found.setdefault(target, {}).setdefault(aspect, {})
            row[value] = _spans(_fewest(callers), count)
    return found


def _note(seen: _Seen, line: str, caller: str, mask: int, kind: str) -> None:
    call = parse_call(line, "")
    prefix = "checkpoint " if call.checkpoint else ""
    whole_model = kind in ("model", "head", "other")
    for keyword, _ in call.keywords:
        if whole_model and keyword not in _OF_MODELS:
            continue
        seen.add("keyword", prefix + keyword, caller, mask)
    starred = any(text.startswith("*") for text in call.positions)
    seen.add("positions", f"{prefix}{len(call.positions)}{'+' if starred else ''}", caller, mask)
    if not (call.checkpoint or whole_model):
        seen.add("use", line.rpartition(") ")[2], caller, mask)


def _fewest(callers: Masks) -> Masks:
    """As few callers as needed to show a value on all of its releases, each release with one."""
    left = 0
    for mask in callers.values():
        left |= mask
    chosen_ones: Masks = {}
    while left:
        best = max(sorted(callers), key=lambda name: (callers[name] & left).bit_count())
        chosen_ones[best] = callers[best] & left
        left &= ~callers[best]
    return chosen_ones


@dataclass(frozen=True, slots=True)
class _Heads:
    """Heads of classes by module and name: ``(kind, attributes that hold modules, releases)``."""

    known: Mapping[tuple[str, str], Sequence[tuple[str, Mapping[str, tuple[str, ...]], int]]]

    @staticmethod
    def of(merged: Merged) -> _Heads:
        known: dict[tuple[str, str], list[tuple[str, Mapping[str, tuple[str, ...]], int]]] = {}
        for module, facts in merged.symbols.items():
            for fact, masks in facts.items():
                if fact.endswith("."):
                    for text, mask in masks.items():
                        kind, _, held = text[1:].split("|")
                        pairs = (item.split("=") for item in held.split(";") if item)
                        classes = {name: tuple(value.split(", ")) for name, value in pairs}
                        known.setdefault((module, fact[:-1]), []).append((kind, classes, mask))
        return _Heads(known)

    def methods(self, merged: Merged, kind: str) -> set[str]:
        """``kind.method`` for each method that a class of the kind defines."""
        owners = {place for place, heads in self.known.items() if any(head[0] == kind for head in heads)}
        found = (
            fact.split(".")
            for module, facts in merged.symbols.items()
            for fact in facts
            if (module, fact.split(".")[0]) in owners
        )
        return {f"{kind}.{method}" for _, method in found if method}

    def elsewhere(self) -> dict[str, list[str]]:
        """Modules of which a class holds a class of another module, by the latter."""
        found: dict[str, set[str]] = {}
        for (module, _), heads in self.known.items():
            for _, held, _ in heads:
                for name in (name for classes in held.values() for name in classes if name.startswith(".")):
                    found.setdefault(name[1:].removeprefix("models."), set()).add(module)
        return {name: sorted(modules) for name, modules in found.items()}

    def kinds(self, module: str, name: str) -> Iterator[tuple[str, int]]:
        """Kinds of a class that *module* names, with releases."""
        if name == "AutoModel":
            yield "model", -1
            return
        if name.startswith("."):
            module, _, name = name[1:].removeprefix("models.").rpartition(".")
        for kind, _, mask in self.known.get((module, name), ()):
            yield kind, mask


def _targets(line: str, module: str, owner: str, heads: _Heads) -> Iterator[tuple[str, int]]:
    """``kind.method`` that a call goes to, with the releases on which the caller's class says so."""
    receiver, _ = split_receiver(line)
    if receiver.startswith(("<cache>.", "<layer>.")):
        yield f"{'cache' if receiver.startswith('<cache>') else 'cache layer'}.{receiver.partition('.')[2]}", -1
    elif receiver == "self":
        yield "head.forward", -1
    elif receiver == "<model>":
        yield "model.forward", -1
    elif receiver.startswith("<model>."):
        yield f"generation.{receiver.partition('.')[2]}", -1
    elif receiver.startswith("<"):
        name, _, method = receiver[1:].partition(">")
        name = "attention function" if name == "attention" else name
        yield f"{name.replace('_', ' ')}.{method.removeprefix('.') or '__call__'}", -1
    elif receiver.startswith("."):
        yield f"mask function.{receiver.rpartition('.')[2]}", -1
    elif receiver.startswith("self."):
        path = re.fullmatch(r"self\.([\w<>]+)(?:\[([^\]]*)\])?", receiver)
        for kind, held, mask in heads.known.get((module, owner), ()) if path else ():
            assert path is not None
            if path[1] in held:
                for name in held_classes(receiver, held):
                    for kind_held, valid in heads.kinds(module, name):
                        if mask & valid:
                            yield f"{kind_held}.forward", mask & valid
            elif kind in ("cache", "cache layer"):
                yield f"{kind}.{path[1]}", mask
