"""``kvlint shim``: the module that it writes holds what the files use and nothing else, and makes old code run."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvlint.shim import members
from kvlint.shim_commands import shim

FIXTURE = Path(__file__).parent / "fixtures" / "modeling_tern.py"


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(shim, arguments, standalone_mode=False)
    assert result.exception is None, result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


def write_shim(tmp_path: Path, source: str, name: str = "old.py", *options: str) -> str:
    """The shim for a file with this content."""
    (tmp_path / name).write_text(textwrap.dedent(source), encoding="utf-8")
    return invoke(str(tmp_path / name), "--target", "5.24", *options)[1]


def keys(text: str) -> set[str]:
    """What a shim puts where."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("adds", "for_old_code"):
            assert isinstance(node.args[0], ast.Constant)
            found.add(str(node.args[0].value))
    return found


def run_python(folder: Path, script: str) -> str:
    """What a script prints, run in *folder* with the transformers that is installed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# -- what is written ------------------------------------------------------------------------------------------------


def test_only_what_is_used_is_brought(tmp_path: Path) -> None:
    text = write_shim(
        tmp_path,
        """
        from transformers import DynamicCache

        cache = DynamicCache.from_legacy_cache(None)
        print(cache.seen_tokens)
        """,
    )
    assert keys(text) == {"DynamicCache.from_legacy_cache", "Cache.seen_tokens"}
    assert "AttentionMaskConverter" not in text and "OLD_FILES" not in text and "key_cache" not in text
    assert "old.py:4" in text and "old.py:5" in text


def test_a_helper_that_is_shared_brings_no_member_along(tmp_path: Path) -> None:
    text = write_shim(
        tmp_path,
        """
        from transformers import EncoderDecoderCache

        def show(cache: EncoderDecoderCache):
            for keys, values, cross_keys, cross_values in cache:
                print(keys.shape)
        """,
    )
    assert keys(text) == {"EncoderDecoderCache.__iter__"}
    assert "def to_legacy_cache_of_both" in text


def test_the_variant_that_the_code_asks_for(tmp_path: Path) -> None:
    asking = """
        from transformers import DynamicCache

        limit = DynamicCache().get_max_cache_shape()
        if limit is not None:
            print(limit)
        """
    text = write_shim(tmp_path, asking)
    assert keys(text) == {"Cache.get_max_cache_shape"} and "get_max_cache_shape_or_none" in text
    text = write_shim(tmp_path, asking.replace("is not None", "> 0"))
    assert keys(text) == {"Cache.get_max_cache_shape"} and "get_max_cache_shape_or_none" not in text


def test_code_that_is_up_to_date_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        "from transformers import DynamicCache\n\ncache = DynamicCache()\n", encoding="utf-8"
    )
    code, text, notes = invoke(str(tmp_path / "new.py"), "-o", str(tmp_path / "out.py"))
    assert (code, text) == (0, "") and "these files need nothing" in notes
    assert not (tmp_path / "out.py").exists()


def test_what_cannot_be_mended_is_listed(tmp_path: Path) -> None:
    source = "from transformers import SinkCache, HybridCache\n\ncache = SinkCache(4, 2)\n"
    (tmp_path / "sink.py").write_text(source, encoding="utf-8")
    code, text, notes = invoke(str(tmp_path / "sink.py"), "--target", "5.24")
    assert code == 0
    assert "# * sink.py:1: KV101 `SinkCache`" in text and "sink.py:1: KV101 `SinkCache`" in notes
    assert keys(text) == {"cache_utils.HybridCache"}
    assert invoke(str(tmp_path / "sink.py"), "--target", "5.24", "--strict")[0] == 1


def test_only_its_own_files_are_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "compat_shim.py"
    out.write_text("precious = 1\n", encoding="utf-8")
    result = CliRunner().invoke(shim, [str(FIXTURE), "-o", str(out)], standalone_mode=False)
    assert "not overwritten" in str(result.exception) and out.read_text(encoding="utf-8") == "precious = 1\n"
    out.unlink()
    for _ in range(2):
        assert invoke(str(FIXTURE), "-o", str(out))[0] == 0
    assert "Written by kvlint" in out.read_text(encoding="utf-8")


def test_every_member_can_be_written(tmp_path: Path) -> None:
    from kvlint.shim import module
    from kvlint.shim_needs import Needs, Want

    for key in sorted(members().keys):
        text = module(Needs((Want("x/old.py", 3, (key,)),), (), ("old.py",)), "5.24.0")
        assert keys(text) == {key.removesuffix(":None")}
        assert_names_are_known(text)


def assert_names_are_known(text: str) -> None:
    """Every name that the module reads is defined in it, imported or built in, and no import is idle."""
    import builtins

    tree = ast.parse(text)
    known = set(dir(builtins)) | {"__file__", "__name__"}
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
            imported |= {item.asname or item.name for item in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert read <= known | imported
    assert imported <= read


# -- what it does ---------------------------------------------------------------------------------------------------

GENERATION = """
    import importlib.util
    import sys

    import torch

    import compat_shim

    print("installed", len(compat_shim.install()), len(compat_shim.install()))
    spec = importlib.util.spec_from_file_location("transformers_modules.tern.modeling_tern", "modeling_tern.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)

    torch.manual_seed(3)
    config = module.TernConfig(pad_token_id=0, bos_token_id=1, eos_token_id=None)
    model = module.TernForCausalLM(config).eval()
    fed = []
    model.model.register_forward_pre_hook(lambda m, a, k: fed.append(k["input_ids"].shape[1]), with_kwargs=True)
    ids = torch.randint(3, 97, (2, 7))
    mask = torch.ones_like(ids)
    ids[1, :3] = mask[1, :3] = 0
    for beams in (1, 3):
        how = dict(attention_mask=mask, max_new_tokens=14, do_sample=False, num_beams=beams)
        fed.clear()
        cached = model.generate(ids, use_cache=True, **how)
        assert fed == [7] + [1] * 13, fed
        fed.clear()
        plain = model.generate(ids, use_cache=False, **how)
        assert fed == list(range(7, 21)), fed
        assert torch.equal(cached, plain), (cached, plain)
        assert len(set(cached[0, 7:].tolist())) > 2, "the tokens tell one step from another"
    pairs = model(ids, attention_mask=mask, use_cache=True).past_key_values
    assert isinstance(pairs, tuple) and len(pairs) == 3 and pairs[0][0].shape == (2, 2, 7, 8)
    print("done")
"""


def test_an_old_modeling_file_generates_the_same_tokens_with_the_cache_as_without(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shutil.copy(FIXTURE, tmp_path / "modeling_tern.py")
    _, _, notes = invoke(str(tmp_path / "modeling_tern.py"), "-o", str(tmp_path / "compat_shim.py"), "--target", "5.24")
    assert "wrote" in notes
    output = run_python(tmp_path, GENERATION)
    assert output.splitlines()[-1] == "done"
    if transformers.__version__.startswith("5."):
        assert output.splitlines()[0] == "installed 9 0"


def test_without_the_shim_it_does_not_even_import(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
        pytest.skip("the module of mask helpers went in 5.24")
    shutil.copy(FIXTURE, tmp_path / "modeling_tern.py")
    with pytest.raises(AssertionError, match="modeling_attn_mask_utils"):
        run_python(tmp_path, "import modeling_tern")


OTHERS = """
    import inspect

    import torch
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, StaticCache

    import compat_shim

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, 64, (1, 6))

    def observed():
        cache = DynamicCache()
        cache.update(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), 0)
        static = StaticCache(config=config, max_cache_len=12)
        tokens = model.generate(ids, max_new_tokens=5, do_sample=False).tolist()
        outcome = []
        try:
            cache.crop(3)
        except Exception as problem:
            outcome.append(type(problem).__name__)
        return (
            [len(item) for item in cache], cache.get_max_length(), static.get_max_length(), tokens, outcome,
            cache.get_seq_length(), str(inspect.signature(DynamicCache.__init__)), sorted(vars(type(model))),
            str(inspect.signature(type(model).forward)),
        )

    before = observed()
    assert compat_shim.install()
    assert observed() == before
    print("same")
"""


def test_the_library_behaves_as_before_for_everybody_else(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("these members changed in 5.x")
    text = write_shim(
        tmp_path,
        """
        from transformers import DynamicCache, GenerationMixin, HybridCache, PreTrainedModel

        def old(cache: DynamicCache):
            for keys, values in cache:
                print(keys)
            limit = cache.get_max_length()
            if limit is not None:
                cache.crop(5)
            print(cache[0], cache.key_cache, cache.value_cache, cache.get_usable_length(1), cache.to_legacy_cache())

        class OldForCausalLM(PreTrainedModel, GenerationMixin):
            def forward(self, input_ids, past_key_values=None, **kwargs):
                return past_key_values.get_seq_length()
        """,
        "old.py",
        "-o",
        str(tmp_path / "compat_shim.py"),
    )
    assert text == ""
    written = (tmp_path / "compat_shim.py").read_text(encoding="utf-8")
    assert {"DynamicCache.__iter__", "Cache.get_max_length", "Cache.crop", "Cache.__getitem__"} <= keys(written)
    assert '"OldForCausalLM": ("forward",)' in written
    assert run_python(tmp_path, OTHERS).strip() == "same"


CHANGED = """
    import torch
    from transformers import DynamicCache

    import compat_shim

    compat_shim.install()
    import old

    cache = DynamicCache()
    for layer in range(2):
        cache.update(torch.full((1, 2, 5, 4), 1.0 + layer), torch.full((1, 2, 5, 4), 9.0), layer)
    assert old.pairs(cache) == 2
    assert old.limit(cache) is None
    old.cut(cache, 3)
    assert cache.get_seq_length() == 3
    old.cut(cache, 3)
    old.cut(cache, 8)
    assert cache.get_seq_length() == 3
    old.cut(cache, -1)
    assert cache.get_seq_length() == 2
    keys = old.lists(cache)
    assert [tensor.shape[2] for tensor in keys] == [1, 1] and cache.layers[1].keys.shape[2] == 1
    assert torch.cat(keys).shape == (2, 2, 1, 4)
    assert cache.seen_tokens == 1
    try:
        cache[2]
    except KeyError:
        print("done")
"""


def test_changed_members_answer_the_old_file_in_the_old_way(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("these members changed in 5.x")
    write_shim(
        tmp_path,
        """
        from transformers import DynamicCache

        def pairs(cache: DynamicCache):
            count = 0
            for keys, values in cache:
                assert keys.shape == values.shape
                count += 1
            return count

        def limit(cache: DynamicCache):
            found = cache.get_max_length()
            return None if found is None else found

        def cut(cache: DynamicCache, length):
            cache.crop(length)

        def lists(cache: DynamicCache):
            for index in range(len(cache.key_cache)):
                cache.key_cache[index] = cache.key_cache[index][:, :, -1:]
                cache.value_cache[index] = cache.value_cache[index][:, :, -1:]
            print(cache.seen_tokens, cache[0][0].shape)
            return cache.key_cache
        """,
        "old.py",
        "-o",
        str(tmp_path / "compat_shim.py"),
    )
    assert run_python(tmp_path, CHANGED).splitlines()[-1] == "done"


# -- the members themselves -----------------------------------------------------------------------------------------


def filled(layers: int = 2, length: int = 5) -> object:
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(layers):
        cache.update(torch.randn(4, 2, length, 3), torch.randn(4, 2, length, 3), layer)
    return cache


@pytest.fixture
def brought() -> object:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("the members are for caches with layers")
    from kvlint import shim_members

    return shim_members


def test_lists_of_tensors_are_written_through(brought: object) -> None:
    import torch

    cache = filled()
    view = brought.LayerTensors(cache, "keys")  # type: ignore[attr-defined]
    assert len(view) == 2 and view[-1] is cache.layers[1].keys  # type: ignore[attr-defined]
    view[0] = torch.zeros(4, 2, 1, 3)
    assert cache.layers[0].keys.shape[2] == 1  # type: ignore[attr-defined]
    view.append(torch.ones(4, 2, 5, 3))
    brought.LayerTensors(cache, "values").append(torch.ones(4, 2, 5, 3))  # type: ignore[attr-defined]
    assert len(view) == 3 and cache.get_seq_length(2) == 5  # type: ignore[attr-defined]
    keys, _ = cache.update(torch.ones(4, 2, 1, 3), torch.ones(4, 2, 1, 3), 2)  # type: ignore[attr-defined]
    assert keys.shape[2] == 6 and view[2].shape[2] == 6


def test_assigned_lists_become_layers(brought: object) -> None:
    import torch

    cache = filled(3)
    keys = brought.TensorLists("key_cache", "keys")  # type: ignore[attr-defined]
    keys.__set__(cache, [torch.zeros(1, 2, 2, 3)])
    assert len(cache.layers) == 1 and cache.layers[0].keys.shape == (1, 2, 2, 3)  # type: ignore[attr-defined]


def test_a_cache_with_storage_of_its_own_keeps_it(brought: object) -> None:
    from transformers import DynamicCache

    class Own(DynamicCache):
        def update(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
            """Stores elsewhere."""

    cache = Own()
    lists = brought.TensorLists("key_cache", "keys")  # type: ignore[attr-defined]
    seen = brought.SeenTokens("_seen_tokens")  # type: ignore[attr-defined]
    lists.__set__(cache, [1, 2])
    seen.__set__(cache, 7)
    assert lists.__get__(cache) == [1, 2] and seen.__get__(cache) == 7


def test_batches_are_split_and_put_together(brought: object) -> None:
    import torch
    from transformers import DynamicCache

    cache = filled()
    splits = brought.batch_split(cache, 4, 3)  # type: ignore[attr-defined]
    assert [split.layers[0].keys.shape[0] for split in splits] == [3, 1]
    whole = brought.from_batch_splits(DynamicCache, splits)  # type: ignore[attr-defined]
    assert torch.equal(whole.layers[1].values, cache.layers[1].values)  # type: ignore[attr-defined]


def test_tuples_of_both_caches_go_there_and_back(brought: object) -> None:
    import torch
    from transformers import EncoderDecoderCache

    pairs = tuple(tuple(torch.randn(1, 2, 3 + index // 2, 4) for index in range(4)) for _ in range(2))
    cache = brought.from_legacy_cache_of_both(EncoderDecoderCache, pairs)  # type: ignore[attr-defined]
    back = brought.to_legacy_cache_of_both(cache)  # type: ignore[attr-defined]
    assert cache.is_updated == {0: True, 1: True}
    assert [tensor.shape[2] for tensor in brought.getitem(cache, 1)] == [3, 3, 4, 4]  # type: ignore[attr-defined]
    assert brought.get_usable_length(cache, 2) == 3  # type: ignore[attr-defined]
    assert all(
        torch.equal(one, other)
        for layer, again in zip(pairs, back, strict=True)
        for one, other in zip(layer, again, strict=True)
    )


@pytest.mark.parametrize("name", ["HybridCache", "OffloadedStaticCache", "SlidingWindowCache"])
def test_old_constructors(brought: object, name: str) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, max_position_embeddings=32)
    cache = getattr(brought, name)(config, 2, 12, "cpu", None)
    assert cache.get_max_length() == 12 and len(cache.layers) == 2
    assert cache.offloading == name.startswith("Offloaded")
    assert getattr(brought, name)(config=config, max_batch_size=1).get_max_length() == 32


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(("length", "past"), [(1, 0), (1, 4), (3, 0), (3, 4)])
def test_masks_hide_what_they_should(brought: object, length: int, past: int, window: int | None) -> None:
    import torch

    padding = torch.ones(2, past + length)
    padding[1, :2] = 0
    embeds = torch.zeros(2, length, 8)
    mask = brought._prepare_4d_causal_attention_mask(padding, (2, length), embeds, past, window)  # type: ignore[attr-defined]
    assert mask.shape == (2, 1, length, past + length)
    for row in range(2):
        for query in range(length):
            for key in range(past + length):
                ahead = key > past + query
                left_behind = window is not None and key < past + query - window
                hidden = ahead or left_behind or padding[row, key] == 0
                assert (mask[row, 0, query, key] < 0) == hidden
    unmasked = brought._prepare_4d_causal_attention_mask_for_sdpa(padding, (2, length), embeds, past, window)  # type: ignore[attr-defined]
    assert not (unmasked < 0).all(-1).any(), "no query is left without a key"


# -- attention and layers of a model file ---------------------------------------------------------------------------

OLD_ATTENTION = """
import torch
from torch import nn
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, apply_rotary_pos_emb, repeat_kv


class OldAttention(LlamaAttention):
    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        batch, length, _ = hidden_states.shape
        shape = (batch, length, -1, self.head_dim)
        query, keys, values = (
            project(hidden_states).view(shape).transpose(1, 2) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, keys = apply_rotary_pos_emb(query, keys, *position_embeddings)
        if past_key_values is not None:
            keys, values = past_key_values.update(keys, values, self.layer_idx)
        keys, values = (repeat_kv(one, self.num_key_value_groups) for one in (keys, values))
        total = keys.shape[-2]
        mask = torch.full((length, total), float("-inf")).triu(total - length + 1)
        weights = (query @ keys.transpose(-1, -2) * self.scaling + mask).softmax(-1)
        return self.o_proj((weights @ values).transpose(1, 2).reshape(batch, length, -1)), None
"""
OLD_LAYER = """

class OldLayer(LlamaDecoderLayer):
    def __init__(self, config, layer_idx):
        super().__init__(config, layer_idx)
        self.self_attn = OldAttention(config, layer_idx)

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, position_embeddings=None, **kwargs):
        attended, _ = self.self_attn(
            self.input_layernorm(hidden_states),
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class OldForCausalLM(LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.layers = nn.ModuleList([OldLayer(config, index) for index in range(config.num_hidden_layers)])
"""
OLD_REPLACEMENT = """

modeling_llama.LlamaAttention = OldAttention


class OldForCausalLM(LlamaForCausalLM):
    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **kwargs):
        if past_key_values is not None:
            input_ids = input_ids[:, past_key_values.get_seq_length() :]
        return {"input_ids": input_ids, "past_key_values": past_key_values, "attention_mask": attention_mask}
"""
PARTS = """
    import sys

    import torch
    from transformers import LlamaConfig

    import compat_shim

    if {how!r} == "shim":
        compat_shim.install()
    import modeling_old

    if {how!r} == "shim":
        print(*compat_shim.install())
        assert compat_shim.install() == []
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, initializer_range=0.5,
    )
    model = modeling_old.OldForCausalLM(config).eval()
    ids = torch.randint(3, 64, (1, 6))
    fed = []
    model.model.embed_tokens.register_forward_hook(lambda module, args, output: fed.append(args[0].shape[1]))
    cached = model.generate(ids, max_new_tokens=8, do_sample=False)
    steps = list(fed)
    plain = model.generate(ids, max_new_tokens=8, do_sample=False, use_cache=False)
    print(torch.equal(cached, plain), *steps)
"""


@pytest.mark.parametrize(
    ("rest", "adapted"),
    [(OLD_LAYER, "OldLayer.forward"), (OLD_REPLACEMENT, "OldAttention.forward")],
    ids=["a layer of its own", "a class put in the place of the library's"],
)
def test_attention_and_layers_get_the_cache(tmp_path: Path, rest: str, adapted: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
        pytest.skip("layers are called with the old name there")
    (tmp_path / "modeling_old.py").write_text(OLD_ATTENTION + rest, encoding="utf-8")
    _, _, notes = invoke(str(tmp_path / "modeling_old.py"), "-o", str(tmp_path / "compat_shim.py"), "--target", "5.24")
    assert "wrote" in notes
    written = (tmp_path / "compat_shim.py").read_text(encoding="utf-8")
    assert f"Call it again once the file is imported: {adapted.split('.')[0]} can be adapted only then." in written
    without, *steps = run_python(tmp_path, PARTS.format(how="plain")).split()
    assert without == "False" or steps == [str(length) for length in range(6, 14)]
    done, outcome = run_python(tmp_path, PARTS.format(how="shim")).splitlines()
    assert (done, outcome) == (adapted, "True 6 1 1 1 1 1 1 1")
