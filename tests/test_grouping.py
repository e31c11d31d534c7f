"""One defect is one finding: what only fails behind another finding of the file is a place of that one."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from kvlint.cli import main


def report(
    folder: Path, capsys: pytest.CaptureFixture[str], code: str, target: str = "5.24"
) -> list[tuple[str, int, list[int]]]:
    """Code, line and the lines of the other places of every finding."""
    (folder / "code.py").write_text(textwrap.dedent(code).lstrip(), encoding="utf-8")
    options = ["--target", target, "--no-cache", "--output-format", "json", "--exit-zero", str(folder / "code.py")]
    with pytest.raises(SystemExit):
        main(options)
    return [
        (one["code"], one["line"], [other["line"] for other in one["related"]])
        for one in json.loads(capsys.readouterr().out)
    ]


SINK = """
    from transformers.cache_utils import SinkCache

    cache = SinkCache(window_length=4, num_sink_tokens=2)
    print(cache.key_cache, cache.value_cache)
    """


def test_uses_and_members_of_a_class_whose_import_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(tmp_path, capsys, SINK) == [("KV101", 1, [3, 4, 4])]


def test_members_that_fail_where_the_import_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path, capsys, SINK, ">=4.56,<6")
    assert found == [("KV101", 1, [3]), ("KV202", 4, []), ("KV202", 4, [])]


def test_an_import_that_is_ignored_leads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path, capsys, SINK.replace("SinkCache\n", "SinkCache  # kvlint: ignore[KV101]\n", 1))
    assert [line for _, line, _ in found] == [3, 4, 4]


def test_a_module_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
        from transformers.modeling_attn_mask_utils import _prepare_4d_attention_mask
        from transformers.modeling_attn_mask_utils import AttentionMaskConverter
        from transformers.models.llama.modeling_llama import LLAMA_ATTENTION_CLASSES
        """
    assert report(tmp_path, capsys, code) == [("KV103", 1, [2]), ("KV103", 3, [])]


def test_members_of_a_class_that_is_there_are_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
        from transformers import DynamicCache

        cache = DynamicCache()
        print(cache.key_cache)
        print(cache.value_cache)
        """
    assert report(tmp_path, capsys, code) == [("KV202", 4, []), ("KV202", 5, [])]


def test_two_functions_behind_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
        from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

        def masks(config, x, mask, cache):
            if config.sliding_window is None:
                make = create_causal_mask
            else:
                make = create_sliding_window_causal_mask
            return make(config=config, inputs_embeds=x, attention_mask=mask, cache=cache, no_such_argument=1)
        """
    found = report(tmp_path, capsys, code)
    assert len(found) == len(set(map(str, found))) <= 1
