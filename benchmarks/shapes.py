"""Made-up files of any size, one kind of growth each: what `doubling.py` doubles.

A shape is code that is written *n* times over between a head and a foot; ``{i}`` is the number of the copy, ``{j}``
that of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

TRANSFORMERS = "import copy\nimport torch\nfrom transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache\n"
CHAT = (
    TRANSFORMERS
    + "model = AutoModelForCausalLM.from_pretrained('m')\ntok = AutoTokenizer.from_pretrained('m')\ncache = DynamicCache()\n"
    "ids = tok('a', return_tensors='pt').input_ids\nmessages = []\n"
)
IN_FUNCTION = CHAT + "def run(model, tok, ids, cache: DynamicCache, flag):\n"
ATTENTION = (
    "import torch\nfrom torch import nn\nfrom transformers.cache_utils import Cache\n"
    "class Attention(nn.Module):\n    def forward(self, x, past_key_value: Cache = None):\n"
    "        b, s, _ = x.shape\n        k = self.k_proj(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)\n"
    "        v = self.v_proj(x).view(b, s, self.num_heads, self.head_dim).transpose(1, 2)\n"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of file: what is written before, *n* times, and after; *fix* runs it with all fixes applied."""

    name: str
    build: Callable[[int], str]
    suffix: str = ".py"
    fix: bool = False


@dataclass(frozen=True, slots=True)
class ProjectShape:
    """A kind of project: *build* gives the texts of its *n* modules by name."""

    name: str
    build: Callable[[int], dict[str, str]]


def repeated(head: str, unit: str, foot: str = "") -> Callable[[int], str]:
    """*unit* written *n* times between *head* and *foot*."""
    return lambda n: (
        head + "".join(unit.replace("{i}", str(i)).replace("{j}", str(i - 1)) for i in range(1, n + 1)) + foot
    )


def notebook(head: str, unit: str) -> Callable[[int], str]:
    """A notebook with *n* cells."""

    def build(n: int) -> str:
        sources = [head, *(unit.replace("{i}", str(i)).replace("{j}", str(i - 1)) for i in range(1, n + 1))]
        cells = [
            {
                "cell_type": "code",
                "metadata": {},
                "outputs": [],
                "execution_count": None,
                "source": text.splitlines(True),
            }
            for text in sources
        ]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)

    return build


def markdown(head: str, unit: str) -> Callable[[int], str]:
    """A Markdown document with *n* fences."""
    return repeated("# Title\n", f"\nSome text {{i}}.\n\n```python\n{head}{unit}```\n")


def nested(head: str, opening: str, inner: str, step: int = 4) -> Callable[[int], str]:
    """Blocks inside each other, at most 90 deep (the parser takes no more), the whole as often as needed."""

    def build(n: int) -> str:
        text = head
        while n > 0:
            depth = min(n, 18)
            text += "".join(" " * (step * level) + opening.replace("{i}", str(level)) + "\n" for level in range(depth))
            text += " " * (step * depth) + inner + "\n"
            n -= depth
        return text

    return build


def expression(head: str, start: str, part: str, end: str) -> Callable[[int], str]:
    """One expression with *n* parts."""
    return lambda n: head + start + "".join(part.replace("{i}", str(i)) for i in range(n)) + end + "\n"


def spread(builders: dict[str, Callable[[int], str]], suffix: str = ".py", fix: bool = False) -> list[Shape]:
    return [Shape(name, build, suffix, fix) for name, build in builders.items()]


TURNS = spread(
    {
        "generate in a row": repeated(CHAT, "ids = model.generate(ids, past_key_values=cache, max_new_tokens=5)\n"),
        "generate in a function": repeated(
            IN_FUNCTION, "    ids = model.generate(ids, past_key_values=cache, max_new_tokens=5)\n"
        ),
        "generate of new prompts": repeated(
            CHAT,
            "ids{i} = tok('question {i}', return_tensors='pt').input_ids\n"
            "out{i} = model.generate(ids{i}, past_key_values=cache, max_new_tokens=5)\n",
        ),
        "generate of one name": repeated(
            CHAT,
            "ids = tok('question {i}', return_tensors='pt').input_ids\n"
            "out = model.generate(ids, past_key_values=cache, max_new_tokens=5)\n",
        ),
        "chat turns": repeated(
            CHAT,
            "messages.append({'role': 'user', 'content': 'q{i}'})\n"
            "ids = tok.apply_chat_template(messages, return_tensors='pt')\n"
            "out = model.generate(ids, past_key_values=cache)\n"
            "messages.append({'role': 'assistant', 'content': tok.decode(out[0])})\n",
        ),
        "forward in a row": repeated(
            CHAT, "out = model(ids, past_key_values=cache, use_cache=True)\nids = out.logits[:, -1:].argmax(-1)\n"
        ),
        "output caches in a row": repeated(
            CHAT, "out = model(ids, past_key_values=cache)\ncache = out.past_key_values\n"
        ),
        "texts that grow": repeated(
            CHAT, "text += 'more {i}'\nout = model.generate(tok(text).input_ids, past_key_values=cache)\n"
        ),
        "deep copies": repeated(
            CHAT, "c{i} = copy.deepcopy(cache)\nout{i} = model.generate(ids, past_key_values=c{i})\n"
        ),
        "shallow copies": repeated(
            CHAT, "c{i} = copy.copy(cache)\nout{i} = model.generate(ids, past_key_values=c{i})\n"
        ),
        "loops with generate": repeated(
            CHAT,
            "for prompt in prompts:\n    x = tok(prompt).input_ids\n    out = model.generate(x, past_key_values=cache)\n",
        ),
        "loops with forward": repeated(
            CHAT,
            "for question in questions:\n    x = tok(question).input_ids\n    out = model(x, past_key_values=cache)\n",
        ),
        "one loop with many calls": repeated(
            CHAT + "for prompt in prompts:\n",
            "    out = model.generate(tok(prompt).input_ids, past_key_values=cache)\n",
        ),
        "functions with generate": repeated(
            CHAT, "def f{i}(prompt):\n    return model.generate(tok(prompt).input_ids, past_key_values=cache)\n"
        ),
        "methods with generate": repeated(
            CHAT + "class Chat:\n    def __init__(self):\n        self.cache = DynamicCache()\n",
            "    def say{i}(self, text):\n        return model.generate(tok(text).input_ids, past_key_values=self.cache)\n",
        ),
        "methods with forward": repeated(
            CHAT + "class Chat:\n    def __init__(self):\n        self.cache = DynamicCache()\n",
            "    def say{i}(self, ids):\n        out = model(ids, past_key_values=self.cache)\n        self.last = out.logits\n",
        ),
        "helpers that generate": repeated(
            CHAT,
            "def f{i}(cache, prompt):\n    return model.generate(tok(prompt).input_ids, past_key_values=cache)\n"
            "f{i}(cache, 'a')\nf{i}(cache, 'b')\n",
        ),
        "one helper, many calls": repeated(
            CHAT + "def f(cache, prompt):\n    return model.generate(tok(prompt).input_ids, past_key_values=cache)\n",
            "f(cache, 'a{i}')\n",
        ),
        "masks that are joined": repeated(
            CHAT,
            "mask = torch.cat([mask, torch.ones(1, 1)], dim=1)\n"
            "out = model(ids, attention_mask=mask, past_key_values=cache)\n",
        ),
        "crops between calls": repeated(CHAT, "out = model.generate(ids, past_key_values=cache)\ncache.crop(-{i})\n"),
        "keywords in a dict": repeated(
            CHAT, "kw{i} = dict(past_key_values=cache, max_new_tokens=5)\nout = model.generate(ids, **kw{i})\n"
        ),
        "lists of caches": repeated(
            CHAT, "caches.append(DynamicCache())\nout = model(ids, past_key_values=caches[{i}])\n"
        ),
    }
)

REMOVED = spread(
    {
        "imports of a removed class": repeated("", "from transformers import HybridCache\n"),
        "aliases of a removed class": repeated("", "from transformers import HybridCache as H{i}\n"),
        "calls of a removed class": repeated(
            "from transformers import HybridCache\n", "c{i} = HybridCache(config, max_batch_size=1, max_cache_len=9)\n"
        ),
        "annotations of a removed class": repeated(
            "from transformers import HybridCache\n", "def f{i}(c: HybridCache):\n    return c\n"
        ),
        "quoted names of a removed class": repeated(
            "from transformers import HybridCache\n", "def f{i}(c: 'HybridCache'):\n    return c\n"
        ),
        "isinstance of a removed class": repeated(
            "from transformers import HybridCache\n", "ok = isinstance(c{i}, HybridCache)\n"
        ),
        "attributes of the package": repeated("import transformers\n", "c{i} = transformers.SinkCache(4, 4)\n"),
        "subclasses of a removed class": repeated(
            "from transformers import HybridCache\n", "class C{i}(HybridCache):\n    pass\n"
        ),
        "guarded imports": repeated(
            "", "try:\n    from transformers import HybridCache\nexcept ImportError:\n    HybridCache = None\n"
        ),
        "docstrings that name a class": repeated(
            "from transformers import HybridCache\n", 'def f{i}(c: HybridCache):\n    """Takes a HybridCache."""\n'
        ),
        "removed helpers": repeated(
            "", "from transformers.modeling_utils import prune_linear_layer, apply_chunking_to_forward\n"
        ),
        "all removed classes": repeated(
            "",
            "from transformers.cache_utils import SinkCache, HybridCache, MambaCache, OffloadedStaticCache\n"
            "x{i} = OffloadedStaticCache(config)\n",
        ),
        "many names in one import": lambda n: (
            "from transformers import (\n" + "".join(f"    HybridCache as H{i},\n" for i in range(n)) + ")\n"
        ),
    }
)

MEMBERS = spread(
    {
        "subscripts": repeated(CHAT, "k{i} = cache[0][0]\n"),
        "conversions": repeated(CHAT, "legacy{i} = cache.to_legacy_cache()\n"),
        "members that are gone": repeated(CHAT, "n{i} = cache.get_usable_length(3)\nm{i} = cache.seen_tokens\n"),
        "key_cache": repeated(CHAT, "k{i} = cache.key_cache[{i}].shape[-2]\n"),
        "loops over a cache": repeated(CHAT, "for k, v in cache:\n    print(k.shape)\n"),
        "from_legacy_cache": repeated(CHAT, "c{i} = DynamicCache.from_legacy_cache(pairs)\n"),
        "updates": repeated(CHAT, "k, v = cache.update(k, v, {i}, {'cache_position': p})\n"),
        "functions with a cache": repeated(TRANSFORMERS, "def f{i}(cache: DynamicCache):\n    return cache[0][0]\n"),
        "functions in a chain": repeated(
            CHAT + "def f0(c):\n    return c[0]\n", "def f{i}(c):\n    return f{j}(c)\n", "f1(cache)\n"
        ),
        "functions in a chain, last first": repeated(CHAT, "def f{j}(c):\n    return f{i}(c)\n", "f0(cache)\n"),
        "functions called with a cache": repeated(CHAT, "def f{i}(c):\n    return c[0]\nf{i}(cache)\n"),
        "one function, many calls": repeated(CHAT + "def f(c, n):\n    return c[n]\n", "f(cache, {i})\n"),
        "methods in a chain": repeated(
            CHAT + "class A:\n    def f0(self, c):\n        return c[0]\n",
            "    def f{i}(self, c):\n        return self.f{j}(c)\n",
        ),
        "attributes": repeated(
            CHAT + "class A:\n    def __init__(self):\n",
            "        self.c{i} = DynamicCache()\n",
            "    def f(self):\n        return self.c1[0]\n",
        ),
        "classes": repeated(
            TRANSFORMERS,
            "class A{i}:\n    def __init__(self):\n        self.c = DynamicCache()\n    def f(self):\n        return self.c[0]\n",
        ),
        "subclasses of a cache": repeated(
            TRANSFORMERS, "class C{i}(DynamicCache):\n    def update(self, k, v, n, kw=None):\n        return k, v\n"
        ),
        "subclasses of each other": repeated(
            TRANSFORMERS + "class C0(DynamicCache):\n    pass\n", "class C{i}(C{j}):\n    pass\n"
        ),
        "nested classes": repeated(
            TRANSFORMERS, "class C{i}:\n    class Inner(DynamicCache):\n        pass\n    cache = Inner()\n"
        ),
        "names in a chain": repeated(CHAT + "c0 = cache\n", "c{i} = c{j}\n", "c1[0]\n"),
        "names in a chain, used": repeated(CHAT + "c0 = cache\n", "c{i} = c{j}\nc{i}[0]\n"),
        "dicts of caches": repeated(CHAT + "d = {}\n", "d['k{i}'] = DynamicCache()\nd['k{i}'][0]\n"),
        "a long list": expression(CHAT, "x = [", "cache, ", "]\nfor c in x:\n    c[0]"),
        "a long dict": expression(CHAT, "x = {", "'k{i}': cache, ", "}\nx['k1'][0]"),
        "a long tuple of pairs": expression(CHAT, "model(ids, past_key_values=(", "(k{i}, v{i}), ", "))"),
        "lambdas": repeated(CHAT, "f{i} = lambda c: c[0]\n"),
        "comprehensions": repeated(CHAT, "x{i} = [layer[0].shape for layer in cache]\n"),
    }
)

FLOW = spread(
    {
        "branches": repeated(CHAT, "if flag{i}:\n    cache = DynamicCache()\nelse:\n    cache = None\n"),
        "branches on one flag": repeated(
            IN_FUNCTION, "    if flag:\n        cache = DynamicCache()\n    x{i} = cache[0]\n"
        ),
        "branches of new names": repeated(CHAT, "if flag:\n    c{i} = DynamicCache()\nelse:\n    c{i} = (1, 2)\n"),
        "one long elif": lambda n: (
            IN_FUNCTION
            + "    if flag == 0:\n        x = cache[0]\n"
            + "".join(f"    elif flag == {i}:\n        x = cache[{i}]\n" for i in range(1, min(n, 400)))
            + "".join(f"    if flag == {i}:\n        x = cache[{i}]\n" for i in range(400, n))
        ),
        "version guards": repeated(
            "import transformers\nfrom packaging import version\n" + CHAT,
            "if version.parse(transformers.__version__) >= version.parse('4.5{i}'[:4]):\n    x{i} = cache[0]\n",
        ),
        "early returns": repeated(IN_FUNCTION, "    if flag == {i}:\n        return cache[{i}]\n"),
        "tries": repeated(CHAT, "try:\n    x{i} = cache[0]\nexcept Exception:\n    cache = None\n"),
        "withs": repeated(CHAT, "with torch.no_grad():\n    x{i} = cache[0]\n"),
        "loops": repeated(CHAT, "for i{i} in range(3):\n    x{i} = cache[0]\n"),
        "whiles": repeated(CHAT, "while cache is not None:\n    cache = cache[0]\n    break\n"),
        "isinstance": repeated(IN_FUNCTION, "    if isinstance(cache, tuple):\n        x{i} = cache[0]\n"),
        "none tests": repeated(IN_FUNCTION, "    if cache is not None:\n        x{i} = cache[0]\n"),
        "nested ifs": nested(CHAT, "if flag{i}:", "cache[0]"),
        "nested loops": nested(CHAT, "for x{i} in y:", "cache[0]"),
        "nested functions": nested(CHAT, "def f{i}(cache):", "cache[0]"),
        "matches": repeated(
            CHAT, "match flag:\n    case {i}:\n        cache = DynamicCache()\n    case _:\n        cache[0]\n"
        ),
        "conditional expressions": repeated(CHAT, "cache = DynamicCache() if flag{i} else cache\n"),
        "a long or": expression(CHAT, "x = cache", " or c{i}", ""),
        "a long condition": expression(CHAT, "if cache is not None", " and cache is not c{i}", ":\n    cache[0]"),
        "globals": repeated(CHAT, "def f{i}():\n    global cache\n    cache = DynamicCache()\n    cache[0]\n"),
    }
)

TENSORS = spread(
    {
        "joins": repeated(ATTENTION, "        k = torch.cat([k, k{i}], dim=2)\n"),
        "joins of pairs": repeated(
            ATTENTION,
            "        k = torch.cat([past_key_value[0], k], dim=1)\n        v = torch.cat([past_key_value[1], v], dim=1)\n",
        ),
        "views": repeated(ATTENTION, "        k{i} = k.view(b, s, self.num_heads, self.head_dim).transpose(1, 2)\n"),
        "transposes": repeated(ATTENTION, "        k = k.transpose(1, 2)\n"),
        "einsums": repeated(ATTENTION, "        w{i} = torch.einsum('bhqd,bhkd->bhqk', q, k)\n"),
        "repeat_kv": repeated(ATTENTION, "        k{i} = k.repeat(1, self.num_key_value_groups, 1, 1)\n"),
        "lengths from shapes": repeated(ATTENTION, "        n{i} = k.shape[{i} % 4] + past_key_value[0][0].shape[2]\n"),
        "sizes": repeated(
            "", "kv_bytes_{i} = 2 * num_layers * num_attention_heads * head_dim * seq_len * batch_size * 2\n"
        ),
        "a chain of sizes": repeated(
            "size0 = num_layers\n", "size{i} = size{j} * num_attention_heads * 2  # kv cache\n"
        ),
        "forwards": repeated(
            "import torch\n",
            "def forward{i}(self, q, k, v, layer_past=None):\n    b, s, h, d = k.shape\n"
            "    if layer_past is not None:\n        k = torch.cat((layer_past[0], k), dim=1)\n"
            "    return k, (k, v)\n",
        ),
        "attention classes": repeated(
            "import torch\nfrom torch import nn\n",
            "class A{i}(nn.Module):\n    def forward(self, x, past_key_value=None):\n"
            "        k = self.k_proj(x).view(1, 2, self.num_heads, -1).transpose(1, 2)\n"
            "        if past_key_value is not None:\n            k = torch.cat([past_key_value[0], k], dim=2)\n"
            "        return k\n",
        ),
    }
)

TEXT = spread(
    {
        "uses in one f-string": expression(CHAT, 'x = f"', "{cache[0][0]}", '"'),
        "a long sum": expression(CHAT, "x = 0", " + cache.get_seq_length()", ""),
        "a long call": expression(CHAT, "f(", "cache[{i}], ", ")"),
        "keywords of a call": expression(CHAT, "f(", "k{i}=cache[{i}], ", ")"),
        "a long string": expression(CHAT, "x = '", "past_key_values ", "'\ncache[0]"),
        "comments": repeated(CHAT, "# past_key_values {i}\n", "cache[0]\n"),
        "ignore comments": repeated(CHAT, "cache[0]  # kvlint: ignore[KV204]\n"),
        "needless comments": repeated(CHAT, "x = 1  # kvlint: ignore[KV204]\n"),
        "decorators": repeated(TRANSFORMERS, "@d{i}\n@e{i}\ndef f{i}(cache: DynamicCache):\n    return cache[0]\n"),
        "parameters": lambda n: (
            TRANSFORMERS + "def f(" + "".join(f"c{i}: DynamicCache, " for i in range(n)) + "):\n    return c0[0]\n"
        ),
        "docstring examples": repeated(
            TRANSFORMERS,
            'def f{i}():\n    """Does.\n\n    >>> from transformers import DynamicCache\n'
            '    >>> c = DynamicCache()\n    >>> c[0]\n    """\n',
        ),
    }
)

DOCUMENTS = [
    Shape("notebook cells", notebook(CHAT, "k{i} = cache[0][0]\n"), ".ipynb"),
    Shape("notebook chat", notebook(CHAT, "ids = model.generate(ids, past_key_values=cache)\n"), ".ipynb"),
    Shape("markdown fences", markdown(CHAT, "k = cache[0][0]\n"), ".md"),
    Shape("markdown prose", repeated("", "The KV cache takes 2 * 32 layers * 32 heads * 128 = {i} bytes.\n\n"), ".md"),
    Shape("rst blocks", repeated("", "Text\n\n.. code-block:: python\n\n    from transformers import HybridCache\n\n"), ".rst"),
]  # fmt: skip

FIXES = [
    Shape("fix: notebook cells", notebook(CHAT, "k{i} = cache[0][0]\n"), ".ipynb", True),
    Shape("fix: notebook removed class", notebook("import torch\n", "from transformers import HybridCache\n"), ".ipynb", True),
    Shape("fix: markdown fences", markdown(CHAT, "k = cache[0][0]\n"), ".md", True),
    Shape("fix: subscripts", repeated(CHAT, "k{i} = cache[0][0]\n"), ".py", True),
    Shape("fix: removed class", repeated("from transformers import HybridCache\n", "c{i}: HybridCache = None\n"), ".py", True),
    Shape("fix: conversions", repeated(CHAT, "c{i} = DynamicCache.from_legacy_cache(pairs)\n"), ".py", True),
    Shape("fix: carriage returns", lambda n: repeated(CHAT, "k{i} = cache[0][0]\n")(n).replace("\n", "\r\n"), ".py", True),
    Shape(
        "fix: generate of new prompts",
        repeated(CHAT, "out{i} = model.generate(tok('q{i}').input_ids, past_key_values=cache)\n"),
        ".py",
        True,
    ),
]  # fmt: skip

SHAPES = [*TURNS, *REMOVED, *MEMBERS, *FLOW, *TENSORS, *TEXT, *DOCUMENTS, *FIXES]

HELPER = (
    "from transformers import DynamicCache\n{imports}\ndef fill{i}(model, ids, cache=None):\n"
    "    cache = cache if cache is not None else DynamicCache()\n    k = cache.key_cache[0]\n    return {call}\n"
)


def importing(targets: Callable[[int, int], list[int]]) -> Callable[[int], dict[str, str]]:
    """*n* modules with a function each, that call those of the modules which *targets* gives for (number, n)."""

    def build(n: int) -> dict[str, str]:
        texts = {}
        for i in range(n):
            others = targets(i, n)
            imports = "".join(f"from project.part{j} import fill{j}\n" for j in others)
            call = ", ".join(f"fill{j}(model, ids, cache)" for j in others) or "cache"
            texts[f"part{i}"] = HELPER.format(i=i, imports=imports, call=call)
        return texts

    return build


def one_base(n: int) -> dict[str, str]:
    """One module with a class that all others derive from."""
    base = (
        "from transformers.models.llama.modeling_llama import LlamaAttention\nclass Base(LlamaAttention):\n"
        "    def keep(self, cache):\n        self.cache = cache\n        return cache.key_cache\n"
    )
    part = (
        "from project.base import Base\nclass Part{i}(Base):\n    def forward(self, x, past_key_values=None, **kwargs):\n"
        "        self.keep(past_key_values)\n        return super().forward(x, past_key_values=past_key_values)\n"
    )
    return {"base": base, **{f"part{i}": part.format(i=i) for i in range(n - 1)}}


def patches(n: int) -> dict[str, str]:
    """Every module puts a function in the place of attention of the library, and calls a layer."""
    text = (
        "from transformers import DynamicCache\nfrom transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer\n"
        "def forward{i}(self, hidden_states, past_key_value=None, **kwargs):\n    k = past_key_value.key_cache\n    return k, None\n"
        "LlamaAttention.forward = forward{i}\n"
        "def run{i}(layer: LlamaDecoderLayer, x):\n    return layer(x, past_key_values=DynamicCache())\n"
    )
    return {f"part{i}": text.format(i=i) for i in range(n)}


def reexports(n: int) -> dict[str, str]:
    """A chain of modules that hand one function on, with a call of it in each."""
    first = "from transformers import DynamicCache\ndef fill(cache):\n    return cache.key_cache\n"
    part = "from transformers import DynamicCache\nfrom project.part{j} import fill\nx{i} = fill(DynamicCache())\n"
    return {"part0": first, **{f"part{i}": part.format(i=i, j=i - 1) for i in range(1, n)}}


PROJECTS = [
    ProjectShape("modules alone", importing(lambda i, n: [])),
    ProjectShape("a chain of modules", importing(lambda i, n: [i + 1] if i + 1 < n else [])),
    ProjectShape("a ring of modules", importing(lambda i, n: [(i + 1) % n])),
    ProjectShape("one module, many importers", importing(lambda i, n: [0] if i else [])),
    ProjectShape("one importer, many modules", importing(lambda i, n: list(range(1, n)) if i == 0 else [])),
    ProjectShape("modules in groups of eight", importing(lambda i, n: [j for j in range(i - i % 8, min(i - i % 8 + 8, n)) if j != i])),
    ProjectShape("a tree of modules", importing(lambda i, n: [j for j in (2 * i + 1, 2 * i + 2) if j < n])),
    ProjectShape("one base class", one_base),
    ProjectShape("patches", patches),
    ProjectShape("names handed on", reexports),
]  # fmt: skip
