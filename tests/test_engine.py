"""lower, link and the joint walk: what the files of a project say about each other."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvlint.config import Settings
from kvlint.engine.index import Index, copy_around
from kvlint.engine.link import Project, level
from kvlint.public import lint_paths

LLAMA = "transformers.models.llama.modeling_llama"
ATTEND = """
    def attend(self, hidden_states, past_key_value=None, **kwargs):
        return past_key_value.update(hidden_states, hidden_states, self.layer_idx), None
    """


def written(root: Path, files: Mapping[str, str]) -> Path:
    (root / "setup.py").write_text("", encoding="utf-8")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return root


def project(root: Path, files: Mapping[str, str]) -> Project:
    return Index().project(str(written(root, files)))


def places(root: Path, files: Mapping[str, str]) -> list[tuple[str, str, str, bool]]:
    """(target without its module, member, what stands there, whether the library calls it) of every place."""
    return [
        (place.target.removeprefix(f"{LLAMA}."), place.member, place.value[1], place.by_library)
        for place in project(root, files).places
    ]


def found(
    root: Path, files: Mapping[str, str], target: str = "5.24", order: tuple[str, ...] = ()
) -> set[tuple[str, int, str]]:
    """(file, line, code) of what is reported in a project, related places among them."""
    written(root, files)
    names = [str(root / name) for name in order or files]
    result = set()
    for outcome in lint_paths(names, settings=Settings(target=target), cache=False).files:
        for item in outcome.findings:
            for one in (item, *item.related):
                result.add((Path(one.path).name, one.line, one.code))
    return result


SPELLINGS = [
    f"import {LLAMA} as m\nfrom a import attend\nm.LlamaAttention.forward = attend",
    f"from {LLAMA} import LlamaAttention\nimport a\nLlamaAttention.forward = a.attend",
    "import transformers\nfrom a import attend\ntransformers.models.llama.modeling_llama.LlamaAttention.forward = attend",
    f"from {LLAMA} import LlamaAttention as A\nfrom a import attend as b\nsetattr(A, 'forward', b)",
    f"from {LLAMA} import LlamaAttention\nfrom a import *\n\ndef go():\n    LlamaAttention.forward = attend",
    (
        f"import types\nfrom {LLAMA} import LlamaAttention\nfrom a import attend\n\n"
        "def go(model):\n    for m in model.modules():\n        if isinstance(m, LlamaAttention):\n"
        "            m.forward = types.MethodType(attend, m)"
    ),
    (
        f"from {LLAMA} import LlamaAttention\nfrom a import attend\n\n"
        "def go(model):\n    for m in model.modules():\n        if isinstance(m, LlamaAttention):\n"
        "            m.forward = attend.__get__(m)"
    ),
    (
        "from a import attend\n\n"
        "def go(model):\n    for m in model.modules():\n        if type(m).__name__ == 'LlamaAttention':\n"
        "            m.forward = attend.__get__(m)"
    ),
]


@pytest.mark.parametrize("install", SPELLINGS)
def test_a_function_in_the_place_of_a_method_is_known_across_files(install: str, tmp_path: Path) -> None:
    files = {"a.py": ATTEND, "install.py": install}
    ((target, member, value, by_library),) = places(tmp_path, files)
    assert (target.rpartition(".")[2], member, value, by_library) == ("LlamaAttention", "forward", "attend", True)
    assert ("a.py", 1, "KV305") in found(tmp_path, files)


def test_a_function_that_nobody_puts_anywhere_is_nobodys_business(tmp_path: Path) -> None:
    assert found(tmp_path, {"a.py": ATTEND, "b.py": "from a import attend\nprint(attend)\n"}) == set()


def test_parts_of_a_layer_that_is_replaced_are_called_by_that(tmp_path: Path) -> None:
    files = {
        "a.py": ATTEND
        + "\n    def layer(self, x, past=None):\n        return self.self_attn(x, past_key_value=past)\n",
        "install.py": f"""
            from {LLAMA} import LlamaAttention, LlamaDecoderLayer
            from a import attend, layer
            LlamaAttention.forward = attend
            LlamaDecoderLayer.forward = layer
            """,
    }
    assert [item[2:] for item in places(tmp_path, files)] == [("attend", False), ("layer", True)]


@pytest.mark.parametrize(
    ("name", "height"),
    [("LlamaAttention", 1), ("LlamaDecoderLayer", 2), ("GPT2Block", 2), ("LlamaModel", 3), ("LlamaForCausalLM", 4)],
)
def test_the_height_of_a_class_in_a_model(name: str, height: int) -> None:
    assert level(f"{LLAMA}.{name}") == height


def test_a_parameter_is_no_name_of_a_star_import(tmp_path: Path) -> None:
    text = f"from {LLAMA} import *\n\nclass Mine:\n    pass\n\nclass Model:\n    def __init__(self):\n        self.part = Mine()\n"
    assert places(tmp_path, {"a.py": text + "# past_key_values\n"}) == []


def test_names_that_stand_for_each_other_end(tmp_path: Path) -> None:
    files = {
        "a.py": "from b import x\ny = x\n# past_key_values\n",
        "b.py": "from a import y\nx = y\n# past_key_values\n",
    }
    assert project(tmp_path, files).meaning(str(tmp_path / "a.py"), "x") == []


CONTAINER = {
    "slots.py": """
        class Slot:
            def __init__(self, kv):
                self.kv = kv
        """,
    "engine.py": """
        from transformers import AutoModelForCausalLM
        from slots import Slot

        def first(name, ids):
            model = AutoModelForCausalLM.from_pretrained(name)
            return Slot(model(ids, use_cache=True).past_key_values)
        """,
    "use.py": """
        from engine import first

        def width(name, ids):
            return first(name, ids).kv[0][0].shape[2]
        """,
}


def test_a_cache_is_followed_through_an_object_of_another_file(tmp_path: Path) -> None:
    assert found(tmp_path, CONTAINER) == {("use.py", 4, "KV204")}


@pytest.mark.parametrize("order", list(itertools.permutations(CONTAINER)))
def test_the_order_of_files_changes_nothing(order: tuple[str, ...], tmp_path: Path) -> None:
    assert found(tmp_path, CONTAINER, order=order) == {("use.py", 4, "KV204")}


def test_a_file_alone_says_what_it_says_among_the_others(tmp_path: Path) -> None:
    written(tmp_path, CONTAINER)
    assert found(tmp_path, CONTAINER, order=("use.py",)) == {("use.py", 4, "KV204")}


STORED = """
    from transformers import AutoModelForCausalLM

    class Reader:
        def __init__(self, name):
            self.model = AutoModelForCausalLM.from_pretrained(name)
            self.memory = None

        def read(self, ids):
            self.memory = self.model(ids, use_cache=True).past_key_values
            {then}

        def width(self):
            return self.memory[0][0].shape[2]
    """


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("pass", True),
        ("self.memory = [(layer.keys, layer.values) for layer in self.memory.layers]", False),
        ("self.memory = None", False),
        ("if ids is None:\n                self.memory = None", True),
    ],
)
def test_an_attribute_holds_what_a_function_leaves_in_it(then: str, told: bool, tmp_path: Path) -> None:
    lines = {line for _, line, code in found(tmp_path, {"a.py": STORED.format(then=then)}) if code == "KV204"}
    assert bool(lines) == told


GUARDED = """
    import transformers
    from packaging.version import parse
    from transformers import DynamicCache

    NEW = parse(transformers.__version__) >= parse("5")

    def convert(cache: DynamicCache):
        def inner():
            return cache.to_legacy_cache()
        return inner()

    class Old(DynamicCache):
        def pairs(self):
            return self.to_legacy_cache()
    """


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (
            "def f(cache):\n    if NEW:\n        return cache\n    return convert(cache)\nif not NEW:\n    kind = Old",
            set(),
        ),
        ("def f(cache):\n    return convert(cache)\nif not NEW:\n    kind = Old", {9}),
        ("def f(cache):\n    if NEW:\n        return cache\n    return convert(cache)\nkind = Old", {14}),
        ("", {9, 14}),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_what_only_old_releases_get_to_is_looked_at_for_those(
    use: str, told: set[int], apart: bool, tmp_path: Path
) -> None:
    files = {"a.py": textwrap.dedent(GUARDED) + ("" if apart else use)}
    if apart:
        files["b.py"] = f"from a import NEW, Old, convert\n{use}"
    assert {line for name, line, _ in found(tmp_path, files) if name == "a.py"} == told


OWN = """
    from transformers import LlamaForCausalLM

    class Talker(LlamaForCausalLM):
        def prepare_inputs_for_generation(self, input_ids, past_key_values=None, **kwargs):
            return {{"input_ids": input_ids[:, -1:], "cache": past_key_values}}

        def generate(self, ids, **model_kwargs):
            {body}
    """


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return self(**self.prepare_inputs_for_generation(ids, **model_kwargs))", False),
        ("return super().generate(ids, **model_kwargs)", True),
        ("self.prepare_inputs_for_generation(ids)\n            return self._sample(ids, **model_kwargs)", True),
    ],
)
def test_who_generates_by_itself_fills_its_own_hooks(body: str, told: bool, tmp_path: Path) -> None:
    codes = {code for _, _, code in found(tmp_path, {"a.py": OWN.format(body=body)})}
    assert ("KV305" in codes) == told


def test_a_copy_of_the_library_says_its_version(tmp_path: Path) -> None:
    package = tmp_path / "third_party" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "4.37.2"\n', encoding="utf-8")
    assert copy_around(str(package), str(tmp_path)) == str(package)
    other = tmp_path / "ours" / "transformers"
    other.mkdir(parents=True)
    for name in ("__init__.py", "modeling_utils.py"):
        (other / name).write_text("", encoding="utf-8")
    assert copy_around(str(other), str(tmp_path)) == ""


def test_a_loose_folder_that_is_big_is_read_file_by_file(tmp_path: Path) -> None:
    for number in range(450):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / f"m{number}.py").write_text("past_key_values = 1\n", encoding="utf-8")
    (tmp_path / "a.py").write_text("past_key_values = 1\n", encoding="utf-8")
    assert list(Index().project(str(tmp_path)).units) == [str(tmp_path / "a.py")]
