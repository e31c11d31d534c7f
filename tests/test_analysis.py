"""The analysis: what it follows, what decides a branch, and what looks alike and must stay silent.

Each example is linted under all KV1xx and KV2xx rules; exactly the marked lines are reported.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from analysing import expect, lint

WIDE = ">=4.45"
"""A range with both sides of every change: a guard decides, or nothing does."""


def cases(**named: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", list(named.values()), ids=list(named))


# --- names


@cases(
    direct="""
        from transformers import DynamicCache
        DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    alias="""
        from transformers import DynamicCache as DC
        DC.from_legacy_cache(pairs)  # KV201
    """,
    module="""
        import transformers
        transformers.DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    module_alias="""
        import transformers as tf
        tf.cache_utils.DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    submodule="""
        from transformers import cache_utils
        cache_utils.DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    dotted_import="""
        import transformers.cache_utils as cu
        cu.DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    other_name="""
        from transformers import DynamicCache
        Kind = DynamicCache
        Kind.from_legacy_cache(pairs)  # KV201
    """,
    in_function="""
        def f(pairs):
            from transformers import DynamicCache
            return DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    star="""
        from transformers import *
        DynamicCache.from_legacy_cache(pairs)  # KV201
    """,
    getattr_literal="""
        from transformers import DynamicCache
        getattr(DynamicCache, "from_legacy_cache")(pairs)  # KV201
    """,
)
def test_names_are_followed(text: str) -> None:
    expect(text)


@cases(
    subclass_is_local="""
        class DynamicCache:
            @classmethod
            def from_legacy_cache(cls, pairs):
                return cls()
        DynamicCache.from_legacy_cache(pairs)
    """,
    shadowed="""
        from transformers import DynamicCache
        def f(DynamicCache):
            return DynamicCache.from_legacy_cache(pairs)
    """,
    other_package="""
        from mypackage.cache_utils import DynamicCache
        DynamicCache.from_legacy_cache(pairs)
    """,
    rebound="""
        from transformers import DynamicCache
        handle = DynamicCache()
        handle = open("x")
        handle.key_cache
    """,
)
def test_other_things_of_the_same_name_are_silent(text: str) -> None:
    expect(text)


def test_names_are_followed_through_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "caches.py").write_text("from transformers import DynamicCache as Kind\n")
    main = tmp_path / "main.py"
    expect(
        """
        from caches import Kind
        Kind.from_legacy_cache(pairs)  # KV201
        """,
        path=main,
    )


# --- objects


@cases(
    constructed="""
        from transformers import DynamicCache
        cache = DynamicCache()
        cache.to_legacy_cache()  # KV201
    """,
    annotated="""
        from transformers import Cache
        def f(x: Cache):
            return x.key_cache  # KV202
    """,
    optional="""
        from typing import Optional
        from transformers import Cache
        def f(x: Optional[Cache] = None):
            return x.key_cache  # KV202
    """,
    union="""
        from transformers import Cache
        def f(x: Cache | None = None):
            return x.key_cache  # KV202
    """,
    quoted="""
        from transformers import Cache
        def f(x: "Cache | None" = None):
            return x.key_cache  # KV202
    """,
    future="""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from transformers import Cache
        def f(x: Cache):
            return x.key_cache  # KV202
    """,
    isinstance_test="""
        from transformers import Cache
        def f(x):
            if isinstance(x, Cache):
                return x[0]  # KV204
            return x[0]
    """,
    assertion="""
        from transformers import DynamicCache
        def f(x):
            assert isinstance(x, DynamicCache)
            return x.value_cache  # KV202
    """,
    model_output="""
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        result = model(ids, use_cache=True)
        past = result.past_key_values
        past[0]  # KV204
    """,
    output_key="""
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        result = model(ids)
        result["past_key_values"].key_cache  # KV202
    """,
    generate_output="""
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        result = model.generate(ids, return_dict_in_generate=True)
        result.past_key_values.to_legacy_cache()  # KV201
    """,
    parameter="""
        import transformers
        def f(past_key_values):
            return past_key_values.get_usable_length(1)  # KV201
    """,
    kwargs_get="""
        import transformers
        def f(**model_kwargs):
            past = model_kwargs.get("past_key_values")
            return past.seen_tokens  # KV202
    """,
    no_import="""
        def f(model, past_key_values):
            return past_key_values.get_usable_length(1)  # KV201
    """,
)
def test_caches_are_recognised(text: str) -> None:
    expect(text)


FLOW = """
    from transformers import DynamicCache
"""


@cases(
    assignment=FLOW
    + """
    a = DynamicCache()
    b = a
    b.key_cache  # KV202
    """,
    tuple_unpacking=FLOW
    + """
    a, b = 1, DynamicCache()
    b.key_cache  # KV202
    """,
    walrus=FLOW
    + """
    if (c := DynamicCache()):
        c.key_cache  # KV202
    """,
    conditional=FLOW
    + """
    c = DynamicCache() if flag else None
    c.key_cache  # KV202
    """,
    default=FLOW
    + """
    def f(c=None):
        c = c or DynamicCache()
        return c.key_cache  # KV202
    """,
    loop=FLOW
    + """
    for c in [DynamicCache(), DynamicCache()]:
        c.key_cache  # KV202
    """,
    comprehension=FLOW
    + """
    x = [c.key_cache for c in [DynamicCache()]]  # KV202
    """,
    with_block=FLOW
    + """
    with torch.no_grad():
        c = DynamicCache()
    c.key_cache  # KV202
    """,
    closure=FLOW
    + """
    def outer():
        c = DynamicCache()
        def inner():
            return c.key_cache  # KV202
        return inner
    """,
    lambda_body=FLOW
    + """
    c = DynamicCache()
    f = lambda: c.key_cache  # KV202
    """,
    instance_attribute=FLOW
    + """
    class Holder:
        def __init__(self):
            self.store = DynamicCache()
        def read(self):
            return self.store.key_cache  # KV202
    """,
    attribute_set_later=FLOW
    + """
    class Holder:
        def read(self):
            return self.store.key_cache  # KV202
        def fill(self):
            self.store = DynamicCache()
    """,
    argument=FLOW
    + """
    def read(x):
        return x.key_cache  # KV202
    read(DynamicCache())
    """,
    keyword_argument=FLOW
    + """
    def read(a, *, x):
        return x.key_cache  # KV202
    read(1, x=DynamicCache())
    """,
    result=FLOW
    + """
    def make():
        return DynamicCache()
    make().key_cache  # KV202
    """,
    result_in_a_tuple=FLOW
    + """
    def make():
        return 1, DynamicCache()
    a, b = make()
    b.key_cache  # KV202
    """,
    property_result=FLOW
    + """
    class Holder:
        @property
        def kv(self):
            return DynamicCache()
        def read(self):
            return self.kv.key_cache  # KV202
    """,
    inherited_attribute=FLOW
    + """
    class Base:
        def __init__(self):
            self.kv = DynamicCache()
    class Holder(Base):
        def read(self):
            return self.kv.key_cache  # KV202
    """,
    dataclass_field="""
    from dataclasses import dataclass
    from transformers import Cache
    @dataclass
    class State:
        kv: Cache
        def read(self):
            return self.kv.key_cache  # KV202
    """,
    list_of_caches=FLOW
    + """
    caches = [DynamicCache() for _ in range(3)]
    caches[0].key_cache  # KV202
    """,
    first_turn_of_a_loop=FLOW
    + """
    for i in range(3):
        if i == 0:
            c = DynamicCache()
        c.key_cache  # KV202
    """,
    formatted_string=FLOW
    + """
    c = DynamicCache()
    print(f"{c.key_cache[0].shape}")  # KV202
    """,
    method_result=FLOW
    + """
    class Maker:
        def make(self):
            return DynamicCache()
        def use(self):
            return self.make().key_cache  # KV202
    """,
    dictionary=FLOW
    + """
    d = {"kv": DynamicCache()}
    d["kv"].key_cache  # KV202
    """,
    class_in_a_function=FLOW
    + """
    def outer():
        class Holder:
            def __init__(self):
                self.kv = DynamicCache()
                self.kv.key_cache  # KV202
            def read(self):
                return self.kv.value_cache  # KV202
        return Holder
    """,
    async_function=FLOW
    + """
    async def f():
        c = DynamicCache()
        return c.key_cache  # KV202
    """,
    match_statement=FLOW
    + """
    c = DynamicCache()
    match kind:
        case 1:
            c.key_cache  # KV202
    """,
    copied="""
    import copy
    from transformers import DynamicCache
    c = copy.deepcopy(DynamicCache())
    c.key_cache  # KV202
    """,
)
def test_values_flow(text: str) -> None:
    expect(text)


@cases(
    rebound_in_branch=FLOW
    + """
    c = DynamicCache()
    if flag:
        c = []
        c.key_cache
    """,
    deleted=FLOW
    + """
    c = DynamicCache()
    del c
    c.key_cache
    """,
    loop_rebinds=FLOW
    + """
    c = DynamicCache()
    for c in range(3):
        c.key_cache
    """,
    parameter_of_own_class="""
    class Store:
        key_cache = []
    def f(x: Store):
        return x.key_cache
    """,
    other_method_call=FLOW
    + """
    def f(c):
        return c.key_cache
    f(object())
    """,
)
def test_flow_is_sensitive(text: str) -> None:
    expect(text)


# --- guards: code behind them is silent where the release decides


@cases(
    parse="""
        import transformers
        from packaging import version
        if version.parse(transformers.__version__) < version.parse("5.0"):
            past.to_legacy_cache()
        else:
            past.to_legacy_cache()  # KV201
    """,
    version_class="""
        import transformers
        from packaging.version import Version
        if Version(transformers.__version__) >= Version("4.56.0.dev0"):
            past.key_cache  # KV202
        else:
            past.key_cache
    """,
    dunder_import="""
        from packaging import version
        from transformers import __version__ as _TF_VERSION
        if version.parse(_TF_VERSION) >= version.parse("5"):
            past.to_legacy_cache()  # KV201
    """,
    metadata="""
        import importlib.metadata
        from packaging.version import parse
        if parse(importlib.metadata.version("transformers")) < parse("5.0.0"):
            past.to_legacy_cache()
    """,
    tuple_comparison="""
        import transformers
        if tuple(int(x) for x in transformers.__version__.split(".")[:2]) < (5, 0):
            past.to_legacy_cache()
    """,
    major="""
        import transformers
        if int(transformers.__version__.split(".")[0]) >= 5:
            pass
        else:
            past.to_legacy_cache()
    """,
    hoisted="""
        import transformers
        from packaging import version
        IS_V5 = version.parse(transformers.__version__) >= version.parse("5.0")
        if not IS_V5:
            past.to_legacy_cache()
    """,
    hoisted_in_function="""
        import transformers
        from packaging import version
        IS_V5 = version.parse(transformers.__version__) >= version.parse("5.0")
        def f(past_key_values):
            if IS_V5:
                return past_key_values
            return past_key_values.to_legacy_cache()
    """,
    early_return="""
        import transformers
        from packaging import version
        def f(past_key_values):
            if version.parse(transformers.__version__) >= version.parse("5"):
                return past_key_values
            return past_key_values.to_legacy_cache()
    """,
    early_raise="""
        import transformers
        from packaging import version
        if version.parse(transformers.__version__) >= version.parse("5"):
            raise RuntimeError("too new")
        past.to_legacy_cache()
    """,
    conditional_expression="""
        import transformers
        from packaging import version
        old = version.parse(transformers.__version__) < version.parse("5")
        pairs = past.to_legacy_cache() if old else past
    """,
    and_or="""
        import transformers
        from packaging import version
        old = version.parse(transformers.__version__) < version.parse("5")
        pairs = old and past.to_legacy_cache()
    """,
    named_helper="""
        from transformers.utils import is_transformers_version
        if is_transformers_version("<", "5"):
            past.to_legacy_cache()
    """,
    greater_helper="""
        from mylib.utils import is_transformers_version_greater_than
        if is_transformers_version_greater_than("4.99"):
            pass
        else:
            past.to_legacy_cache()
    """,
    check_helper="""
        from mylib.utils import check_if_transformers_greater
        if not check_if_transformers_greater("5.0.0"):
            past.to_legacy_cache()
    """,
    range_helper="""
        from trl.utils import is_transformers_version_in_range
        if is_transformers_version_in_range(max_version="4.57.6"):
            past.to_legacy_cache()
    """,
    imported_flag="""
        from mylib.compat import IS_TRANSFORMERS_V5_OR_LATER
        if not IS_TRANSFORMERS_V5_OR_LATER:
            past.to_legacy_cache()
    """,
    imported_flag_lt="""
        from mylib.compat import transformers_lt_5_0
        if transformers_lt_5_0:
            past.to_legacy_cache()
    """,
    metadata_module="""
        from importlib import metadata
        from packaging.version import parse
        if parse(metadata.version("transformers")) < parse("5.0.0"):
            past.to_legacy_cache()
    """,
    pkg_resources="""
        from pkg_resources import get_distribution, parse_version
        if parse_version(get_distribution("transformers").version) < parse_version("5.0"):
            past.to_legacy_cache()
    """,
    starts_with="""
        import transformers
        if transformers.__version__.startswith("4."):
            past.to_legacy_cache()
    """,
    joined_float="""
        import transformers
        if float(".".join(transformers.__version__.split(".")[:2])) < 5.0:
            past.to_legacy_cache()
    """,
    major_attribute="""
        import transformers
        from packaging.version import Version
        if Version(transformers.__version__).major < 5:
            past.to_legacy_cache()
    """,
    chained="""
        import transformers
        from packaging.version import parse
        if parse("4.40") <= parse(transformers.__version__) < parse("5"):
            past.to_legacy_cache()
    """,
    class_attribute="""
        import transformers
        from packaging.version import parse
        class Runner:
            v5 = parse(transformers.__version__) >= parse("5")
            def run(self, past_key_values):
                return past_key_values if self.v5 else past_key_values.to_legacy_cache()
    """,
    set_in_init="""
        import transformers
        from packaging.version import parse
        class Runner:
            def __init__(self):
                self.v5 = parse(transformers.__version__) >= parse("5")
            def run(self, past_key_values):
                if not self.v5:
                    return past_key_values.to_legacy_cache()
                return past_key_values
    """,
    skipped_test="""
        import pytest
        import transformers
        from packaging.version import parse
        @pytest.mark.skipif(parse(transformers.__version__) >= parse("5"), reason="old")
        def test_old(past_key_values):
            past_key_values.to_legacy_cache()
    """,
    keyword_by_version="""
        import transformers
        from packaging.version import parse
        from transformers import StaticCache
        new = parse(transformers.__version__) >= parse("4.56")
        cache = StaticCache(config=config, max_cache_len=3, **({} if new else {"max_batch_size": 1}))
    """,
    asked_helper="""
        import transformers
        from packaging.version import parse
        def older_than(limit):
            return parse(transformers.__version__) < parse(limit)
        def f(past_key_values):
            if older_than("5.0"):
                return past_key_values.to_legacy_cache()
            if older_than("5.10"):
                return past_key_values
            return past_key_values.get_seq_length()
    """,
    class_by_version="""
        import transformers
        from packaging import version
        if version.parse(transformers.__version__) >= version.parse("5"):
            from transformers import StaticCache as Hybrid
        else:
            from transformers import HybridCache as Hybrid
        def f(x: Hybrid):
            return isinstance(x, Hybrid)
    """,
)
def test_version_guards_decide(text: str) -> None:
    text = text.replace("        import transformers\n", "        import transformers\n", 1)
    expect("        past = model(ids, use_cache=True).past_key_values\n" + text.lstrip("\n"), WIDE)


@cases(
    hasattr_object="""
        import transformers
        def f(past_key_values):
            if hasattr(past_key_values, "key_cache"):
                return past_key_values.key_cache
    """,
    hasattr_class="""
        from transformers import DynamicCache
        if hasattr(DynamicCache, "from_legacy_cache"):
            c = DynamicCache.from_legacy_cache(pairs)
    """,
    hasattr_else="""
        import transformers
        def f(past_key_values):
            return past_key_values.key_cache if hasattr(past_key_values, "key_cache") else 0
    """,
    callable_getattr="""
        import transformers
        def f(past_key_values):
            if callable(getattr(past_key_values, "to_legacy_cache", None)):
                return past_key_values.to_legacy_cache()
    """,
    getattr_default="""
        import transformers
        def f(past_key_values):
            return getattr(past_key_values, "seen_tokens", 0)
    """,
    attribute_error="""
        import transformers
        def f(past_key_values):
            try:
                return past_key_values.get_max_cache_shape()
            except AttributeError:
                return past_key_values.get_max_length()
    """,
    import_error="""
        try:
            from transformers import HybridCache
        except ImportError:
            HybridCache = None
    """,
    import_error_object="""
        try:
            from transformers.cache_utils import HybridCache, SlidingWindowCache
        except (ImportError, AttributeError):
            HybridCache = SlidingWindowCache = object
        class Mine(HybridCache):
            pass
    """,
    import_error_any="""
        import typing
        try:
            from transformers import HybridCache
        except ModuleNotFoundError:
            HybridCache = typing.Any
        def f(x: HybridCache):
            return x
    """,
    suppressed="""
        import contextlib
        with contextlib.suppress(ImportError):
            from transformers import HybridCache
    """,
    type_checking="""
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from transformers import HybridCache
        def f(x: "HybridCache"):
            return x
    """,
    flag_of_the_import="""
        try:
            from transformers import HybridCache
            HAS_HYBRID = True
        except ImportError:
            HAS_HYBRID = False
        def f(x):
            return HAS_HYBRID and isinstance(x, HybridCache)
    """,
    none_of_the_import="""
        try:
            from transformers import HybridCache
        except ImportError:
            HybridCache = None
        if HybridCache is not None:
            cache = HybridCache(config, 1, 2)
    """,
    shim_of_a_module="""
        from transformers import cache_utils
        cache_utils.HybridCache = cache_utils.StaticCache
        from transformers.cache_utils import HybridCache
        HybridCache(config=config, max_cache_len=3)
    """,
    shim_of_a_class="""
        from transformers import DynamicCache
        DynamicCache.from_legacy_cache = classmethod(lambda cls, pairs: cls(pairs))
        def f(pairs):
            return DynamicCache.from_legacy_cache(pairs)
    """,
    shim_behind_hasattr="""
        import transformers.cache_utils as cache_utils
        if not hasattr(cache_utils, "SinkCache"):
            cache_utils.SinkCache = object
        from transformers.cache_utils import SinkCache
    """,
    has_layers="""
        import transformers
        def f(past_key_values):
            if hasattr(past_key_values, "layers"):
                return past_key_values.layers[0].keys
            return past_key_values.key_cache[0]
    """,
    signature="""
        import inspect
        from transformers.masking_utils import create_causal_mask
        if "cache_position" in inspect.signature(create_causal_mask).parameters:
            create_causal_mask(config=c, inputs_embeds=e, attention_mask=m, cache_position=p, cache=None)
    """,
    isinstance_tuple="""
        import transformers
        def f(past_key_values):
            if isinstance(past_key_values, tuple):
                return past_key_values[0][0].shape[2]
            return past_key_values.get_seq_length()
    """,
    isinstance_cache_else="""
        from transformers import Cache
        def f(past_key_values):
            if isinstance(past_key_values, Cache):
                return past_key_values.get_seq_length()
            return past_key_values[0][0].shape[2]
    """,
    not_isinstance="""
        from transformers import Cache
        def f(past_key_values):
            if not isinstance(past_key_values, Cache):
                for k, v in past_key_values:
                    yield k
    """,
)
def test_other_guards_decide(text: str) -> None:
    expect(text)


@cases(
    raises_again="""
        try:
            from transformers import HybridCache  # KV101
        except ImportError:
            raise ImportError("install an older transformers")
    """,
    hasattr_of_changed_meaning="""
        import transformers
        def f(past_key_values, n):
            if hasattr(past_key_values, "crop"):
                past_key_values.crop(max_length=n)  # KV209
    """,
    isinstance_keeps_methods_missing="""
        from transformers import Cache
        def f(x):
            if isinstance(x, Cache):
                return x.to_legacy_cache()  # KV201
    """,
    other_exception="""
        import transformers
        def f(past_key_values):
            try:
                return past_key_values.to_legacy_cache()  # KV201
            except KeyError:
                return None
    """,
    logged_and_raised="""
        import transformers
        def f(past_key_values):
            try:
                return past_key_values.to_legacy_cache()  # KV201
            except AttributeError:
                print("no")
                raise
    """,
    hasattr_of_another="""
        import transformers
        def f(past_key_values, other):
            if hasattr(other, "key_cache"):
                return past_key_values.key_cache  # KV202
    """,
    after_the_guard="""
        import transformers
        def f(past_key_values):
            if hasattr(past_key_values, "key_cache"):
                pass
            return past_key_values.key_cache  # KV202
    """,
)
def test_what_is_no_guard(text: str) -> None:
    expect(text)


GUARD = """
    from {module} import {name}
    def f(past_key_values):
        if {test}:
            return past_key_values.to_legacy_cache(){mark}
        return past_key_values
"""


IS_VERSION = """
def is_version(op, than):
    import operator
    ops = {'<': operator.lt, '>=': operator.ge}
    return ops[op](version.parse(transformers.__version__), version.parse(than))
"""


@pytest.mark.parametrize(
    ("definition", "name", "test", "silent"),
    [
        ("OLD = version.parse(transformers.__version__) < version.parse('5.0')", "OLD", "OLD", True),
        ("NEW = version.parse(transformers.__version__) >= version.parse('5.0')", "NEW", "not NEW", True),
        ("NEW = version.parse(transformers.__version__) >= version.parse('5.0')", "NEW", "NEW", False),
        (
            "def older(than):\n    return version.parse(transformers.__version__) < version.parse(than)",
            "older",
            "older('5.0')",
            True,
        ),
        (
            "def older(than):\n    return version.parse(transformers.__version__) < version.parse(than)",
            "older",
            "older('5.10')",
            False,
        ),
        (
            IS_VERSION,
            "is_version",
            "is_version('<', '5.0')",
            None,
        ),
        ("HAS = hasattr(transformers.DynamicCache, 'to_legacy_cache')", "HAS", "HAS", True),
    ],
)
def test_guards_of_other_modules(tmp_path: Path, definition: str, name: str, test: str, silent: bool | None) -> None:
    (tmp_path / "pyproject.toml").touch()
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "compat.py").write_text(f"import transformers\nfrom packaging import version\n{definition}\n")
    main = package / "main.py"
    mark = "" if silent in (True, None) else "  # KV201"
    expect(GUARD.format(module=".compat", name=name, test=test, mark=mark), WIDE, path=main)
    absolute = GUARD.format(module="pkg.compat", name=name, test=test, mark=mark)
    expect(absolute, WIDE, path=main)


def test_guard_reexported_through_a_package(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    package = tmp_path / "src" / "pkg"
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "utils" / "__init__.py").write_text("from .versions import transformers_is_old\n")
    (package / "utils" / "versions.py").write_text(
        textwrap.dedent(
            """
            import transformers
            from packaging.version import Version
            transformers_is_old = Version(transformers.__version__) < Version("5.0.0")
            """
        )
    )
    expect(
        GUARD.format(module="pkg.utils", name="transformers_is_old", test="transformers_is_old", mark=""),
        WIDE,
        path=package / "main.py",
    )


# --- look-alikes


@cases(
    own_cache_class="""
        class KVCache:
            def __init__(self):
                self.key_cache, self.value_cache = [], []
            def update(self, k, v, layer_idx):
                self.key_cache[layer_idx] = k
        cache = KVCache()
        cache.key_cache[0]
    """,
    own_static_cache="""
        class StaticCache:
            def __init__(self, batch, length, device):
                self.max_cache_len = length
        cache = StaticCache(1, 128, device="cuda")
        cache.max_cache_len
    """,
    own_config="""
        from dataclasses import dataclass
        @dataclass
        class CacheConfig:
            size: int
        CacheConfig(size=1)
    """,
    subclass_with_own_lists="""
        from transformers.cache_utils import DynamicCache
        class Mine(DynamicCache):
            def __init__(self):
                super().__init__()
                self.key_cache = []
                self._seen_tokens = 0
            def length(self):
                return self._seen_tokens + len(self.key_cache)
        Mine().key_cache
    """,
    own_tuples="""
        import torch
        def f(memory):
            for a, b, c, d, e, f, g, h, i in memory:
                yield a
    """,
    pil_crop="""
        from PIL import Image
        import transformers
        image = Image.open("x.png")
        image = image.crop((0, 0, 10, 10))
    """,
    torchvision_crop="""
        import torchvision.transforms.functional as F
        import transformers
        F.crop(image, 0, 0, 10, 10)
    """,
    text_cache="""
        import transformers
        text_cache = {}
        for a, b in text_cache.items():
            text_cache[a] = b
        text_cache[0]
    """,
    past_tokens="""
        import transformers
        past_tokens = [1, 2, 3]
        past_tokens[0]
        for token in past_tokens:
            print(token)
    """,
    web_cache="""
        from django.core.cache import cache
        cache.update(key, value)
        for k, v in cache:
            pass
    """,
    lru="""
        from functools import lru_cache
        import transformers
        @lru_cache(maxsize=None)
        def f(x):
            return x
        f.cache_info().maxsize
    """,
    onnx_names="""
        import transformers
        names = {"past_key_values.0.key": 1}
        past_key_values_names = [f"past_key_values.{i}.key" for i in range(2)]
        past_key_values_names[0]
    """,
    string_only="""
        text = "DynamicCache.from_legacy_cache and past_key_values[0][0].shape[2]"
    """,
    vllm="""
        from vllm.attention import Attention
        def forward(kv_cache, x):
            key_cache, value_cache = kv_cache
            return kv_cache[0]
    """,
)
def test_look_alikes_are_silent(text: str) -> None:
    expect(text)


def test_origin_says_where_the_cache_came_from() -> None:
    text = "from transformers import DynamicCache\ncache = DynamicCache()\nx = cache.key_cache\n"
    (finding,) = lint(text)
    assert finding.origin is not None
    assert text[finding.origin.start :].startswith("DynamicCache()")


def test_findings_are_the_same_every_time() -> None:
    text = "from transformers import HybridCache, SinkCache\nHybridCache\nSinkCache(1)\npast_key_values[0]\n"
    assert lint(text) == lint(text)
