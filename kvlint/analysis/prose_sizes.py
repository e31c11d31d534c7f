"""Cache sizes that a document works out in prose: products of numbers beside the name of a model.

``KV cache of Llama-3.1-70B: 2 * 80 * 64 * 128 * 2 bytes per token`` counts 64 query heads where the model caches 8 kv
heads. A product is one only where every factor is accounted for by the sizes of the one model that is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvlint.analysis.model_configs import KnownConfig, model_mentions
from kvlint.analysis.sizes import CACHE_WORD, NOT_A_SIZE

_NUMBER = re.compile(
    r"(?P<value>\d{1,3}(?:[,_]\d{3})+|\d+)(?P<kilo>[kK](?!\w))?"
    r"(?![,.]?\d|[A-Za-wyzY-Z_]|x(?!\s*\d)|\s*(?:\^|\*\*)|e\d)"
)
_FIRST = re.compile(rf"(?<![\w.,^]){_NUMBER.pattern}")
_NAME = re.compile(r"(?<!\w)[A-Za-z]\w*")
_NOTE = r"(?:\\?[ \t,;]|\\text\{[^{}\n]*\}|\([^()\n*×]{0,48}\)|(?<!\w)[A-Za-z][\w./-]*|[)`$]){0,12}?"
_OPERATOR = re.compile(
    rf"(?P<note>{_NOTE})\s*(?:\\?\*(?!\*)|×|⋅|·|∙|\\times\b|\\cdot\b|(?<=[\s\d)])[xX](?=\s*[\d(]))[ \t]*\(?\$?\s*"
)
_DIVISION = re.compile(r"[)`$\s]*(?:/|÷|\\div\b)\s*")
_UNIT = re.compile(
    r"\(?\s*(?:1e\d+|1[,_ ]?000[,_\d]*|1[,_]?024[,_\d]*|1[,_]073[,_]741[,_]824|1[,_]048[,_]576|(?:2|10)\s*(?:\^|\*\*))"
)
_AMOUNT = re.compile(r"(?i)token|seq|len|ctx|context|batch|user|request|prompt|position")
_FREE_NAME = re.compile(r"(?i)seq|tok|len|ctx|context|batch|bsz|byte|dtype|itemsize|^[bcdlnpst]$")
_HEADING = re.compile(r"(?P<level>#{1,6})[ \t]+(?P<text>.*)")
_FENCE = re.compile(r"`{3,}|~{3,}")
_AWARE = re.compile(
    r"(?i)\b[gm]qa\b|\bmha\b|grouped[- ]query|multi[- ]head|key_value|n_?kv|(?:kv|k/v|key[-/ ]values?)[- ]?heads?|query heads?"
    r"|instead of|naive|wrong|incorrect|over-?estimat"
)
"""A section that says so compares the two ways to count."""
_SIZED_NAME = re.compile(r"(?i)(?<![\w.])(?:[a-z][\w.]*[-_ ])?(?P<size>\d+(?:\.\d+)?)b(?:illion)?\b")


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor: its value (None for a name) and the words behind it."""

    value: int | None
    start: int
    end: int
    note: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ProseSize:
    """A product that counts query heads: its place, the model as it is written, and the factor that is wrong."""

    start: int
    end: int
    model: str
    config: KnownConfig
    counted: Factor
    kind: str
    """heads or hidden"""

    def corrected(self, text: str) -> str:
        """The product with the kv heads."""
        right = str(self.config.kv_heads)
        if self.kind == "hidden":
            sign = re.search(r"[×⋅·∙*]|\\times|\\cdot|[xX]", text[self.start : self.end])
            right += f" {sign.group() if sign else '*'} {self.config.head_dim}"
        return text[self.start : self.counted.start] + right + text[self.counted.end : self.end]


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph with what introduces it. *section* is all text under the same headings, the headings included."""

    start: int
    end: int
    headings: tuple[str, ...]
    section: str


def prose_sizes(text: str) -> Iterator[ProseSize]:
    """The products in *text* (Markdown without its Python blocks) that size the cache of a named model with query heads."""
    for passage in passages(text):
        for factors in products(text, passage.start, passage.end):
            found = judged(text, passage, factors)
            if found is not None and not _AWARE.search(passage.section):
                yield found


def passages(text: str) -> Iterator[Passage]:
    """The paragraphs of a document; a block of plain text belongs to the paragraph before it.

    A paragraph that ends with a colon, or is all bold, goes on in the next one.
    """
    headings: list[tuple[int, str]] = []
    found: list[tuple[int, int]] = []
    section_start = offset = 0
    begin: int | None = None
    fence = ""
    last = ""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        bare = line.strip(" \t>")
        heading = None if fence else _HEADING.match(line)
        mark = _FENCE.match(bare)
        if fence:
            if mark is not None and bare.startswith(fence) and not bare.strip(fence[0]):
                fence = ""
                found.append((begin if begin is not None else offset, offset + len(line)))
                begin = None
        elif heading is not None:
            yield from in_section(
                text, headings, [*found, *([(begin, offset)] if begin is not None else [])], section_start, offset
            )
            level = len(heading["level"])
            headings = [item for item in headings if item[0] < level] + [(level, heading["text"])]
            found, begin, section_start = [], None, offset + len(line) + 1
        elif mark is not None:
            fence = mark.group()
            begin = offset if begin is None else begin
        elif bare:
            begin = offset if begin is None else begin
            last = bare
        elif begin is not None and not goes_on(last, lines, index):
            found.append((begin, offset))
            begin = None
        offset += len(line) + 1
    rest = [(begin, len(text))] if begin is not None else []
    yield from in_section(text, headings, [*found, *rest], section_start, len(text))


def in_section(
    text: str, headings: Sequence[tuple[int, str]], found: Sequence[tuple[int, int]], start: int, end: int
) -> Iterator[Passage]:
    words = tuple(heading for _, heading in headings)
    section = "\n".join((*words, text[start:end]))
    for first, last in found:
        yield Passage(first, last, words, section)


def goes_on(last: str, lines: Sequence[str], index: int) -> bool:
    """Whether the blank line *index*, with the line *last* before it, does not end a paragraph."""
    if last.endswith((":", ":**", "：")) or (last.startswith("**") and last.endswith("**") and len(last) > 4):
        return True
    after = next((line.strip(" \t>") for line in lines[index + 1 : index + 4] if line.strip(" \t>")), "")
    return _FENCE.match(after) is not None


def products(text: str, start: int, end: int) -> Iterator[list[Factor]]:
    """The products of four factors and more in a part of *text*."""
    place = start
    while place < end:
        first = _FIRST.search(text, place, end)
        if first is None:
            return
        factors = [factor_of(first)]
        while True:
            operator = _OPERATOR.match(text, factors[-1].end, end)
            if operator is None:
                break
            after = _NUMBER.match(text, operator.end(), end) or _NAME.match(text, operator.end(), end)
            if after is None:
                factors = []
                place = operator.end()
                break
            factors[-1] = replace(factors[-1], note=operator["note"])
            factors.append(factor_of(after))
        if factors:
            tail = re.compile(r"[^\n|;.=≈~]{0,24}").match(text, factors[-1].end, end)
            factors[-1] = replace(factors[-1], note=tail.group() if tail else "")
            place = factors[-1].end
        if len(factors) >= 4 and complete(text, factors):
            yield factors


def factor_of(match: re.Match[str]) -> Factor:
    if match.re is _NAME:
        return Factor(None, match.start(), match.end(), name=match.group())
    value = int(re.sub(r"[,_]", "", match["value"])) * (1024 if match["kilo"] else 1)
    return Factor(value, match.start(), match.end())


def complete(text: str, factors: list[Factor]) -> bool:
    """False where the product is a part of a sum or a quotient of more than a unit of size."""
    before = text[max(0, factors[0].start - 4) : factors[0].start].rstrip(" ($`")
    if before.endswith(("+", "/", "^", "÷")) or re.search(r"(?:\w|\))\s*[*×·]$", before):
        return False
    division = _DIVISION.match(text, factors[-1].end)
    if division is not None:
        return _UNIT.match(text, division.end()) is not None
    return not re.match(r"[)`$ ]*(?:[+^−]|-\s?\d|\*\*)", text[factors[-1].end :][:8])


def judged(text: str, passage: Passage, factors: list[Factor]) -> ProseSize | None:
    """The finding for a product, or None where it is right or not known to be wrong."""
    line_start = text.rfind("\n", 0, factors[0].start) + 1
    line_end = text.find("\n", factors[-1].end)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    paragraph = text[passage.start : passage.end]
    if not CACHE_WORD.search("\n".join((*passage.headings, paragraph))) or NOT_A_SIZE.search(line):
        return None
    named = the_model(line) or the_model(paragraph)
    for heading in reversed(passage.headings):
        named = named or the_model(heading)
    if named is None or named[1] is None:
        return None
    model, config = named
    assert config is not None
    if not config.kv_heads or config.kv_heads == config.heads:
        return None
    ratio = config.heads // config.kv_heads
    if re.search(rf"(?:/|÷|divided by)\s*{ratio}\b", paragraph):
        return None
    counted = accounted(factors, config)
    if counted is None:
        return None
    kind, factor = counted
    return ProseSize(factors[0].start, factors[-1].end, model, config, factor, kind)


def the_model(text: str) -> tuple[str, KnownConfig | None] | None:
    """The one model that a text names; a pair without configuration where it names several, or an unknown one beside it."""
    found = model_mentions(text)
    if not found:
        return ("", None) if _SIZED_NAME.search(text) else None
    rest = text
    for words, _ in found:
        rest = rest.replace(words, " ")
    sizes = {match["size"] for words, _ in found for match in re.finditer(r"(?i)(?P<size>\d+(?:\.\d+)?)b\b", words)}
    if len({config.name for _, config in found}) > 1:
        return ("", None)
    if any(match["size"] not in sizes for match in _SIZED_NAME.finditer(rest)):
        return ("", None)
    return found[0]


def accounted(factors: list[Factor], config: KnownConfig) -> tuple[str, Factor] | None:
    """Which factor counts the query heads, where every factor has its part in the size of the model's cache."""
    if any(factor.value is None and not _FREE_NAME.search(factor.name) for factor in factors):
        return None
    numbers = [factor for factor in factors if factor.value is not None]
    amounts = [factor for factor in numbers if _AMOUNT.search(factor.note)]
    plain = [factor for factor in numbers if factor not in amounts]
    values = Counter(factor.value for factor in plain)
    for kind, wanted in (
        ("heads", (config.layers, config.heads, config.head_dim)),
        ("hidden", (config.layers, config.hidden)),
    ):
        left = values - Counter(wanted)
        if sum(left.values()) != sum(values.values()) - len(wanted):
            continue
        rest = list(left.elements())
        if (
            (config.kv_heads > 4 and config.kv_heads in rest)
            or not {2, 4} & set(rest)
            or any(not is_free(value or 0) for value in rest)
        ):
            return None
        value = config.heads if kind == "heads" else config.hidden
        chosen = [factor for factor in plain if factor.value == value]
        best = [factor for factor in chosen if re.search(r"(?i)head|hidden|dim", factor.note)]
        order = best or chosen
        return kind, order[-1] if value == config.layers else order[0]
    return None


def is_free(value: int) -> bool:
    """True for a number that may be two tensors, bytes, or tokens."""
    return value in (1, 2, 4) or (value >= 128 and (value & (value - 1) == 0 or value % 1000 == 0 or value % 1024 == 0))
