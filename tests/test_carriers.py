"""Notebooks, Markdown, reStructuredText, docstrings, generation settings: reading, places, writing back."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlint import source
from kvlint.carriers.json_spans import JsonError, json_positions
from kvlint.carriers.magics import masked
from kvlint.findings import Edit

PYTHON_KERNEL = {"kernelspec": {"name": "python3", "language": "python"}, "language_info": {"name": "python"}}


def parse(text: str, path: str, **settings: bool) -> source.Source:
    return source.parse(Path(path), text.encode(), **settings)


def notebook(*cells: Any, metadata: Any = PYTHON_KERNEL, **options: Any) -> str:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell} for cell in cells
    ]
    options = {"indent": 1, **options}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, **options) + "\n"


def edit(region: source.Region, old: str, new: str) -> Edit:
    start = region.text.index(old)
    return Edit(start, start + len(old), new)


def rewritten(found: source.Source, *changes: tuple[str, str], region: int = 0) -> str:
    target = found.regions[region]
    return source.apply_edits(found, target, [edit(target, old, new) for old, new in changes]).decode()


def where(found: source.Source, needle: str) -> tuple[int, int, int | None]:
    region = found.regions[0]
    return source.position(region, region.text.index(needle))


# Notebooks


def test_notebook_case() -> None:
    path = Path(__file__).parent / "cases" / "005_sink_cache_notebook.ipynb"
    found = source.read(path)
    (region,) = found.regions
    assert region.kind == "notebook"
    assert where(found, "SinkCache")[::2] == (1, 2)
    assert where(found, "SinkCache(")[::2] == (1, 3)
    first = region.text.index("SinkCache")
    assert source.document_position(found, region, first)[0] == 26
    place = source.document_offset(region, first)
    assert found.text[place : place + 9] == "SinkCache"
    assert rewritten(found, (", SinkCache", "")) == found.text.replace(", SinkCache", "")


def test_cells_are_joined_and_counted_among_the_code_cells() -> None:
    text = json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": "x = 1", "metadata": {}},
                {"cell_type": "code", "source": "a = 1\nb = 2", "metadata": {}, "outputs": []},
                {"cell_type": "raw", "source": ["r = 3"], "metadata": {}},
                {"cell_type": "code", "source": [], "metadata": {}, "outputs": []},
                {"cell_type": "code", "source": ["c = 3\n", "d = 4"], "metadata": {}, "outputs": []},
            ]
        }
    )
    found = parse(text, "n.ipynb")
    assert found.regions[0].text == "a = 1\nb = 2\nc = 3\nd = 4"
    assert where(found, "d") == (2, 1, 3)
    assert where(found, "b") == (2, 1, 1)


@pytest.mark.parametrize(
    ("line", "stands_for"),
    [
        ("!pip install -q transformers", "pass"),
        ("%matplotlib inline", "pass"),
        ("files = !ls *.py", "files = ..."),
        ("out = %env HOME", "out = ..."),
        ("model?", "pass"),
        ("model.generate??", "pass"),
        ("?model", "pass"),
        ("pip install x", "pass"),
        ("%%bash", None),
        ("%time y = f(x)", "y = f(x)"),
        ("%timeit -n 10 -r 3 f(x)", "f(x)"),
    ],
)
def test_magic_lines_are_read_as_python_and_never_written(line: str, stands_for: str | None) -> None:
    found = parse(notebook(f"a = 1\n{line}\nb = 2"), "n.ipynb")
    region = found.regions[0]
    assert region.text == f"a = 1\n{stands_for or 'pass'}\nb = 2"
    assert rewritten(found, ("b = 2", "b = 3")) == found.text.replace("b = 2", "b = 3")
    if stands_for in ("pass", "files = ...", "out = ..."):
        with pytest.raises(source.EditError, match="magic"):
            rewritten(found, (stands_for, "c"))


def test_magics_keep_indent_and_continued_lines() -> None:
    lines = ["if x:", "    !pip install \\", "        y", "z = (1", " % 2)", 's = """', "!not a command", '"""']
    assert [mask.text for mask in masked(lines)] == ["if x:", "    pass", "        pass", *lines[3:]]


def test_time_magic_shifts_columns_only() -> None:
    found = parse(notebook("%time y = old(x)\n!ls"), "n.ipynb")
    assert where(found, "old") == (1, 11, 1)
    assert rewritten(found, ("old", "new")) == found.text.replace("old", "new")


def test_a_timed_value_is_read_in_its_place() -> None:
    found = parse(notebook("y = %time old(x)\nz = %timeit -n 3 old(y)"), "n.ipynb")
    assert found.regions[0].text == "y =       old(x)\nz =              old(y)"
    assert where(found, "old") == (1, 11, 1)
    assert rewritten(found, ("old(x)", "new()")) == found.text.replace("old(x)", "new()")


@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n 3", "%%capture out"])
def test_cell_magics_around_python(magic: str) -> None:
    found = parse(notebook(f"{magic}\na = old()"), "n.ipynb")
    assert found.regions[0].text == "pass\na = old()"
    assert where(found, "old") == (2, 5, 1)
    assert rewritten(found, ("old", "new")) == found.text.replace("old", "new")
    with pytest.raises(source.EditError, match="cell magic"):
        source.apply_edits(found, found.regions[0], [Edit(0, 0, "import x\n")])


def test_other_cell_magics_and_broken_cells_are_left_out() -> None:
    found = parse(notebook("%%bash\nls", "x = 1", "def f(:", "%%html\n<b>", "y = 2"), "n.ipynb")
    assert found.regions[0].text == "x = 1\ny = 2"
    assert [skip.line.cell for skip in found.skipped] == [1, 3, 4]
    assert found.errors == ()


def test_written_files_are_modules_of_their_own() -> None:
    found = parse(notebook("x = 1", "%%writefile lib.py\ny = old", "%%writefile a.txt\nz", "w = 3"), "n.ipynb")
    assert [region.text for region in found.regions] == ["x = 1\nw = 3", "pass\ny = old"]
    assert rewritten(found, ("old", "new"), region=1) == found.text.replace("old", "new")


def test_top_level_await_and_indented_cells() -> None:
    found = parse(notebook("await f()", "    a = 1\n    b = old"), "n.ipynb")
    assert found.regions[0].text == "await f()\na = 1\nb = old"
    assert where(found, "old") == (2, 9, 2)
    assert "    b = new\\n" in rewritten(found, ("b = old", "b = new\nc = 3"))


@pytest.mark.parametrize(
    ("metadata", "python"),
    [
        ({}, True),
        ({"kernelspec": {"name": "python3"}}, True),
        ({"kernelspec": {"name": "ir", "language": "R"}}, False),
        ({"language_info": {"name": "julia"}}, False),
        ({"language_info": {"name": "ipython"}}, True),
    ],
)
def test_only_python_notebooks(metadata: dict[str, Any], python: bool) -> None:
    assert bool(parse(notebook("x = 1", metadata=metadata), "n.ipynb").regions) is python


def test_cells_of_another_language_are_left_out() -> None:
    text = '{"cells": [{"cell_type": "code", "metadata": {"vscode": {"languageId": "sql"}}, "source": "x = 1"}]}'
    assert parse(text, "n.ipynb").regions == ()


def test_format_three_notebooks() -> None:
    text = json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["x = old"]}]}]})
    found = parse(text, "n.ipynb")
    assert where(found, "old") == (1, 5, 1)
    assert rewritten(found, ("old", "new")) == text.replace("old", "new")


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('{"cells": [\n', "is not valid JSON", 2),
        ('{"cells": []} x', "is not valid JSON: Extra data", 1),
        ("[" * 100_000, "is not valid JSON: nested too deeply", 1),
        ("", "is not valid JSON", 1),
        ("[]", "no object", 1),
    ],
)
def test_broken_notebooks_are_error_entries(text: str, message: str, line: int) -> None:
    found = parse(text, "n.ipynb")
    assert found.regions == ()
    assert [(message in error.message, error.line) for error in found.errors] == [(True, line)]


def test_notebook_write_back_touches_only_changed_strings() -> None:
    # Escapes, white space and key order as no encoder would write them together.
    text = (
        '{"nbformat":4,  "cells" : [ {"source": ["a = \\"\\u00e9\\" # \\/\\t\\n" , "b = old\\n",\n "c = 3"],'
        '"outputs":[{"t":1.50}], "cell_type":"code"},'
        '{"cell_type":"code","source":"d = \'\\ud83d\\ude00\' ; e = old2"}]}'
    )
    found = parse(text, "n.ipynb")
    region = found.regions[0]
    assert region.text == "a = \"é\" # /\t\nb = old\nc = 3\nd = '😀' ; e = old2"
    assert rewritten(found, ("b = old", "b = new")) == text.replace("b = old", "b = new")
    assert rewritten(found, ("old2", "new2")) == text.replace("old2", "new2")
    assert rewritten(found, ('"é"', '"é!"')) == text.replace("u00e9", "u00e9!")
    # New lines become new strings of the list, with its separator; non-ASCII is escaped as around it.
    assert rewritten(found, ("b = old\n", 'b = f(\n  "ü"\n)\n')) == text.replace(
        '"b = old\\n",\n', '"b = f(\\n" , "  \\"ü\\"\\n" , ")\\n",\n'.replace("ü", "\\u00fc")
    )
    assert rewritten(found, ("e = old2", "e = [\n]")) == text.replace("e = old2", "e = [\\n]")


def test_notebook_keeps_raw_characters_raw() -> None:
    found = parse(notebook(["a = 'é'\n", "b = 1"], ["c = 2"], ensure_ascii=False), "n.ipynb")
    assert rewritten(found, ("'é'", "'éü'")) == found.text.replace("é", "éü")
    assert rewritten(found, ("c = 2", "c = 'ü'")) == found.text.replace("c = 2", "c = 'ü'")


def test_notebook_lines_are_removed_with_their_strings() -> None:
    found = parse(notebook(["a = 1\n", "b = 2\n", "c = 3"], ["d = 4"]), "n.ipynb")
    indent = "\n    "
    assert rewritten(found, ("a = 1\n", "")) == found.text.replace(f'"a = 1\\n",{indent}', "")
    assert rewritten(found, ("b = 2\n", "")) == found.text.replace(f'"b = 2\\n",{indent}', "")
    assert rewritten(found, ("c = 3\n", "")) == found.text.replace(f'\\n",{indent}"c = 3"', '"')
    assert rewritten(found, ("c = 3", "c = 3\ne = 5")) == found.text.replace('c = 3"', f'c = 3\\n",{indent}"e = 5"')
    assert rewritten(found, ("d = 4", "")) == found.text.replace("d = 4", "")
    start = found.regions[0].text.index("b")
    for place, text in ((0, "a = 1"), (start, "b = 2")):
        raw = source.apply_edits(found, found.regions[0], [Edit(place, place, "import x\n")]).decode()
        assert raw == found.text.replace(f'"{text}', f'"import x\\n",{indent}"{text}')
    joined = rewritten(found, ("1\nb", "1; b"))
    assert json.loads(joined)["cells"][0]["source"] == ["a = 1; b = 2\n", "c = 3"]


def test_edits_across_cells_are_refused() -> None:
    found = parse(notebook("a = 1", "b = 2"), "n.ipynb")
    with pytest.raises(source.EditError, match="border"):
        rewritten(found, ("1\nb", "1; b"))


def test_lone_surrogates_are_read_and_left_as_they_are() -> None:
    found = parse('{"cells": [{"cell_type": "code", "source": ["a = \'\\ud800\'\\n", "b = 1"]}]}', "n.ipynb")
    assert (found.regions[0].text, found.skipped) == ("a = '\ufffd'\nb = 1", ())
    assert rewritten(found, ("b = 1", "b = 2")) == found.text.replace("b = 1", "b = 2")
    with pytest.raises(source.EditError, match="surrogate"):
        source.apply_edits(found, found.regions[0], [Edit(11, 11, "\nc = '\ufffd'")])


STATEMENT = st.sampled_from(
    ["x = 1", "y = 'é'", 's = "\\\\ \\"q\\""', "if x:\n    y = 2", "f(\n  1,\n)", "# ü", "", "t = '😀\\t'", "!ls"]
)
REPLACEMENT = st.sampled_from(["z = 3", "z = 'ö'", "import a\nimport b", "g(\n\t'\\\\',\n)", 'q = "😀"'])


@given(
    st.lists(st.tuples(st.lists(STATEMENT, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1, 4]),
    st.data(),
)
def test_random_notebook_edits(
    cells: list[tuple[list[str], bool]], ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    sources = ["\n".join(parts) for parts, _ in cells]
    written = [
        text.splitlines(keepends=True) if listed else text for text, (_, listed) in zip(sources, cells, strict=True)
    ]
    found = parse(notebook(*written, ensure_ascii=ascii_only, indent=indent), "n.ipynb")
    places = [
        (index, start)
        for index, region in enumerate(found.regions)
        for start in range(len(region.text))
        if region.text.startswith("x = 1", start)
    ]
    if not places:
        return
    index, start = data.draw(st.sampled_from(places))
    region = found.regions[index]
    new = data.draw(REPLACEMENT)
    raw = source.apply_edits(found, region, [Edit(start, start + 5, new)])
    again = source.parse(found.path, raw)
    assert again.regions[index].text == region.text[:start] + new + region.text[start + 5 :]
    line, _, cell = source.position(region, start)
    assert cell is not None
    before, after = json.loads(found.raw), json.loads(raw)
    lines = sources[cell - 1].split("\n")
    lines[line - 1] = lines[line - 1].replace("x = 1", new)
    source_text = after["cells"][cell - 1]["source"]
    assert "".join(source_text) == "\n".join(lines)
    if isinstance(source_text, list):
        assert source_text == "\n".join(lines).splitlines(keepends=True)
    after["cells"][cell - 1]["source"] = before["cells"][cell - 1]["source"]
    assert after == before
    if ascii_only:
        assert raw.isascii()
    place = source.document_offset(region, start)
    assert raw.startswith(found.text[:place].encode())
    assert raw.endswith(found.text[source.document_offset(region, start + 5) :].encode())


# Markdown


@pytest.mark.parametrize(
    "info",
    [
        "python", "py", "Python3", "ipython", 'python title="x.py"', "python {1,3}", "python{1,3}", "{python}",
        "{python, echo=FALSE}", "{code-cell} python", "{code-cell} ipython3", "{.python .numberLines}", "python:a.py",
        "pycon", "{code-block} python", "py hl_lines='1'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_python_fences(info: str, fence: str) -> None:
    found = parse(f"# t\n\n{fence}{info}\nx = old\n{fence}\ny = 1\n", "README.md")
    assert [region.text for region in found.regions] == ["x = old"]
    assert where(found, "old") == (4, 5, None)
    assert rewritten(found, ("old", "new")) == found.text.replace("old", "new")


@pytest.mark.parametrize("info", ["", "bash", "json", "{r}", "pythonic", "console", "text python", "{code-cell} julia"])
def test_other_fences(info: str) -> None:
    assert parse(f"```{info}\nx = 1\n```\n", "README.md").regions == ()


def test_fences_share_one_module() -> None:
    text = "```python\nimport a\n```\ntext `x`\n\n~~~py\na.b\n~~~\n````python\ns = '''\n```python\n'''\n````\n"
    found = parse(text, "x.markdown")
    assert found.regions[0].text == "import a\na.b\ns = '''\n```python\n'''"
    assert where(found, "a.b") == (7, 1, None)


def test_a_deeply_indented_fence_ends_no_block() -> None:
    text = '```python\ndef f():\n    """\n    ```py\n    x\n    ```\n    """\n   ```\nafter\n'
    assert parse(text, "x.md").regions[0].text.endswith('```py\n    x\n    ```\n    """')


def test_fences_in_lists_and_quotes() -> None:
    text = (
        "1. one\n   ```python\n   if x:\n       old\n\n   z\n   ```\n"
        "> > - ```py\n> >   a = 1\n> >   ```\n> ```py\n> b\nend\n"
    )
    found = parse(text, "x.md")
    region = found.regions[0]
    assert region.text == "if x:\n    old\n\nz\na = 1\nb"
    assert where(found, "old") == (4, 8, None)
    assert where(found, "a = ") == (9, 7, None)
    assert rewritten(found, ("    old\n", "    u\n    v\n"), ("b", "c\nd")) == text.replace(
        "       old\n", "       u\n       v\n"
    ).replace("> b\n", "> c\n> d\n")


def test_comments_unclosed_fences_and_broken_blocks() -> None:
    text = "<!-- a\n```python\nhidden = 1\n```\n-->\n```python\nx = (\n```\n<!-- one line -->\n```python\ny = 1"
    found = parse(text, "x.md")
    assert found.regions[0].text == "y = 1"
    assert [skip.line.number for skip in found.skipped] == [7]
    assert rewritten(found, ("y = 1", "y = 2\nz = 3")) == text.replace("y = 1", "y = 2\nz = 3")


def test_blocks_with_common_indent_magics_and_options() -> None:
    text = "```python\n    ...\n    !pip install x\n    a = old\n```\n```{code-cell} python\n:tags: [x]\n\nb = 2\n```\n"
    found = parse(text, "x.md")
    assert found.regions[0].text == "...\npass\na = old\n\nb = 2"
    assert where(found, "old") == (4, 9, None)
    assert rewritten(found, ("a = old", "a = [\n  1]")) == text.replace("a = old", "a = [\n      1]")


def test_consoles() -> None:
    text = (
        "> ```pycon\n> >>> import a\n> >>> for x in y:\n> ...     old(x)\n> ...\n> 1\n"
        "> >>> z = 1\n> >>> z\n> 1\n> ```\n"
        "```py\nIn [1]: q = f(\n   ...:   2)\nOut[1]: 3\n```\n"
    )
    found = parse(text, "x.md")
    assert found.regions[0].text == "import a\nfor x in y:\n    old(x)\n\nz = 1\nz\nq = f(\n  2)"
    assert where(found, "old") == (4, 11, None)
    assert rewritten(found, ("import a\n", "import a\nimport b\n")) == text.replace(
        "> >>> import a\n", "> >>> import a\n> >>> import b\n"
    )
    assert rewritten(found, ("z = 1\n", "z = [\n  1]\nw = 2\n")) == text.replace(
        "> >>> z = 1\n", "> >>> z = [\n> ...   1]\n> >>> w = 2\n"
    )
    assert rewritten(found, ("    old(x)", "    u\n    v")) == text.replace("    old(x)", "    u\n> ...     v")
    assert rewritten(found, ("z = 1\n", "")) == text.replace("> >>> z = 1\n", "")
    assert rewritten(found, ("q = f(", "q = g(\n  1,")) == text.replace("q = f(", "q = g(\n   ...:   1,")
    with pytest.raises(source.EditError, match="output"):
        rewritten(found, ("z\nq", "q"), ("z = 1\n", ""))
    with pytest.raises(source.EditError, match="output"):
        rewritten(found, ("    old(x)\n\n", ""))


def test_consoles_with_loose_prompts() -> None:
    text = "```python\n>>> with a:\n>>>     b = [\n    1,\n]\n>>> c = (\n>>> d = 4\nout\n```\n"
    found = parse(text, "x.md")
    assert found.regions[0].text == "with a:\n    b = [\n    1,\n]\nd = 4"
    assert [skip.line.number for skip in found.skipped] == [6]


def test_an_edit_that_would_not_read_back_is_refused() -> None:
    found = parse("```python\nx = 1\n```\n", "x.md")
    for text in ("'''\n```\n'''", "x = ("):
        with pytest.raises(source.EditError, match="read back"):
            rewritten(found, ("x = 1", text))


PREFIXES = st.sampled_from(["", "   ", "> ", "> > ", "- ", ">   "])


@given(
    st.lists(
        st.tuples(PREFIXES, st.sampled_from(["```", "~~~~"]), st.lists(STATEMENT, min_size=1, max_size=4)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", ">>> "]),
    st.data(),
)
def test_random_markdown_edits(
    blocks: list[tuple[str, str, list[str]]], newline: str, prompt: str, data: st.DataObject
) -> None:
    lines = []
    for prefix, fence, statements in blocks:
        inner = prefix.replace("-", " ")
        lines += ["text", "", f"{prefix}{fence}python"]
        for statement in statements:
            head, *rest = statement.split("\n")
            lines += [f"{inner}{prompt}{head}".rstrip(), *(f"{inner}{prompt and '... '}{line}" for line in rest)]
        lines += [f"{inner}{fence}", ""]
    document = newline.join(lines)
    found = parse(document, "x.md")
    if not found.regions:
        return
    (region,) = found.regions
    places = [start for start in range(len(region.text)) if region.text.startswith("x = 1", start)]
    if not places:
        return
    start = data.draw(st.sampled_from(places))
    new = data.draw(REPLACEMENT)
    raw = source.apply_edits(found, region, [Edit(start, start + 5, new)])
    again = source.parse(found.path, raw)
    assert again.regions[0].text == region.text[:start] + new + region.text[start + 5 :]
    place = source.document_offset(region, start)
    assert raw.decode().startswith(document[:place])
    assert raw.decode().endswith(document[place + 5 :])
    assert raw.decode().count(newline) == document.count(newline) + new.count("\n")


# reStructuredText


def test_restructuredtext() -> None:
    text = (
        "Title\n=====\n\n.. code-block:: python\n   :linenos:\n\n   if x:\n       old\n\n   y\n\n"
        "Literal::\n\n   not = python(\n\n.. code:: bash\n\n   z = 1\n\n"
        ".. a comment\n   .. code:: python\n\n      hidden\n\n"
        ">>> a = 1\n>>> a\n1\n\n* .. sourcecode:: python\n\n.. code:: py\n\n\tb = 2\n"
    )
    found = parse(text, "doc.rst")
    assert found.regions[0].text == "if x:\n    old\n\ny\na = 1\na\nb = 2"
    assert found.regions[0].kind == "rst"
    assert where(found, "old") == (8, 8, None)
    assert where(found, "b = 2") == (33, 2, None)
    assert rewritten(found, ("    old", "    u\n    v"), ("a = 1", "a = 1\nc = 2")) == text.replace(
        "       old", "       u\n       v"
    ).replace(">>> a = 1", ">>> a = 1\n>>> c = 2")


# Docstrings

DOCSTRINGS = '''"""Module.

>>> import os
"""

class Model:
    r"""Raw \\d.

    Example:

    ```python
    >>> from t import old
    >>> x = old(
    ...     1)
    2
    ```

    >>> é = "\\n"
    """

    def f(self):
        """>>> y = old
        """
        """
        >>> second = "no docstring"
        """
        z = """
        >>> not_a_docstring
        """

    def g(self):
        """
        >>> v = 1
        >>> w = "\\\\n"

        .. code-block:: python

            u = old2
        """
'''


def test_docstrings_have_a_region_each() -> None:
    found = parse(DOCSTRINGS, "m.py")
    assert [(region.kind, region.fixable) for region in found.regions] == [("module", True)] + [
        ("docstring", False)
    ] * 4
    texts = [region.text for region in found.regions[1:]]
    assert texts == [
        "import os",
        'from t import old\nx = old(\n    1)\né = "\\n"',
        "y = old",
        'v = 1\nw = "\\n"\nu = old2',
    ]
    first = found.regions[2]
    assert source.position(first, first.text.index("x = ")) == (13, 9, None)
    assert source.position(found.regions[3], 4) == (22, 20, None)
    with pytest.raises(source.EditError, match="not rewritten"):
        rewritten(found, ("os", "sys"), region=1)


def test_docstrings_are_fixed_only_when_asked() -> None:
    found = parse(DOCSTRINGS, "m.py", fix_docstrings=True)
    assert rewritten(found, ("import old", "import new"), region=2) == DOCSTRINGS.replace("import old", "import new")
    assert rewritten(found, ("x = old(\n    1)", "x = old()"), region=2) == DOCSTRINGS.replace(
        "x = old(\n    ...     1)", "x = old()"
    )
    assert rewritten(found, ("u = old2", "u = [\n  1]"), region=4) == DOCSTRINGS.replace(
        "u = old2", "u = [\n              1]"
    )
    with pytest.raises(source.EditError, match="read back"):
        rewritten(found, ("u = old2", 'u = """x"""'), region=4)
    with pytest.raises(source.EditError, match="read back"):
        rewritten(found, ("u = old2", r"u = '\n'"), region=4)


def test_escaped_lines_of_a_docstring_are_read_as_meant_and_not_rewritten() -> None:
    found = parse('def f():\n    """\n    >>> a = "\\\\d"\n    >>> b = 2\n    """\n', "m.py", fix_docstrings=True)
    assert found.regions[1].text == 'a = "\\d"\nb = 2'
    assert rewritten(found, ("b = 2", "b = 3"), region=1) == found.text.replace("b = 2", "b = 3")
    with pytest.raises(source.EditError, match="escaped"):
        rewritten(found, ("a =", "c ="), region=1)


def test_what_is_no_docstring() -> None:
    assert len(parse(DOCSTRINGS, "m.py", docstrings=False).regions) == 1
    for text in (
        '"""\n>>> a = 1\n""" ">>> b"\n',
        'x = 1\n"""\n>>> a = 1\n"""\n',
        'def f():\n    return {\n        "a":\n        """\n        >>> a = 1\n        """\n    }\n',
        'def f():\n    if x:\n        """\n        >>> a = 1\n        """\n',
        '# """\n# >>> a = 1\n# """\nx = \'"""\'\n>>> b = 1\ny = \'"""\'\n',
        'def f(x="""\n>>> a = 1\n"""): pass\n',
    ):
        assert [region.kind for region in parse(text, "m.py").regions] == ["module"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "# comment\n\n",
        'def f(\n    x: int = 1,  # def is a word\n    y="class z",\n) -> int:  # why\n    ',
        "class A(B):\n    x = 1\n    async def f(self): ",
        "class A:\n\n    # comment\n    ",
        "@a(\n  1)\ndef f(x={}): ",
    ],
)
@pytest.mark.parametrize("quotes", ['"""', "'''", 'r"""'])
def test_docstrings_are_found_without_parsing_the_module(header: str, quotes: str) -> None:
    text = f"{header}{quotes}\n    >>> a = 1\n    {quotes[-3:]}\n"
    ((_, example),) = [parse(text, "m.py").regions]
    assert (example.kind, example.text) == ("docstring", "a = 1")


def test_escaped_quotes_end_no_docstring() -> None:
    text = 'def f():\n    """a \\\\ b \\""" c\n    >>> a = 1\n    """\n'
    assert ast.parse(text)
    assert [region.text for region in parse(text, "m.py").regions[1:]] == ["a = 1"]


def test_only_wanted_docstrings() -> None:
    def wanted(text: str) -> bool:
        return "old" in text

    found = source.parse(Path("m.py"), DOCSTRINGS.encode(), fix_docstrings=True, wanted=wanted)
    assert len(found.regions) == 4
    assert rewritten(found, ("y = old", "y = new"), region=2) == DOCSTRINGS.replace("y = old", "y = new")


def test_docstring_positions_count_characters() -> None:
    found = parse('def é(): """>>> x = old\r\n"""\r\n', "m.py", fix_docstrings=True)
    assert source.position(found.regions[1], 4) == (1, 21, None)
    assert rewritten(found, ("old", "new"), region=1) == found.text.replace("old", "new")


# Generation settings


def test_generation_settings() -> None:
    text = '{\r\n  "cache_implementation": "dynamic_full",\r\n  "a": [1, {"b": "é"}]\r\n}\r\n'
    found = parse(text, "generation_config.json")
    (region,) = found.regions
    assert region.kind == "generation-config"
    spans = json_positions(region.text)
    span = spans["cache_implementation",]
    assert region.text[span.start : span.end] == '"dynamic_full"'
    assert span.key is not None
    assert region.text[slice(*span.key)] == '"cache_implementation"'
    assert spans["a", 1, "b"].value == "é"
    assert spans[()].value == json.loads(text)
    assert source.position(region, span.start) == (2, 27, None)
    raw = source.apply_edits(found, region, [Edit(span.start, span.end, '"dynamic"')])
    assert raw.decode() == text.replace("dynamic_full", "dynamic")


def test_settings_that_are_no_json_are_an_error_entry() -> None:
    found = parse('{\n "a": 1,,\n}', "generation_config.json")
    assert found.regions == ()
    assert [(error.line, error.column) for error in found.errors] == [(2, 9)]
    assert parse("{}", "config.json").regions == ()
    assert parse("[1]", "generation_config.json").regions == ()


def test_repeated_keys_count_as_json_counts_them() -> None:
    spans = json_positions('{"a": 1, "a": 22}')
    assert spans["a",].value == 22


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 0, 2]), st.booleans())
def test_spans_hold_their_values(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    spans = json_positions(text)
    for path, span in spans.items():
        inner = value
        for step in path:
            inner = inner[step]
        assert span.value == inner
        assert json.loads(text[span.start : span.end]) == inner
        if span.key is not None:
            assert json.loads(text[slice(*span.key)]) == path[-1]
    assert len(spans) == _count(value)


def _count(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(_count, inner))


@given(st.text(alphabet='{}[]",:1a\\ \n', max_size=20))
def test_spans_exist_exactly_for_json(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(JsonError):
            json_positions(text)
    else:
        assert json_positions(text)[()].value == expected


def test_every_region_of_python_parses() -> None:
    texts = {"m.py": DOCSTRINGS, "n.ipynb": notebook("%%time\nx = !ls\nif x:\n    !ls\n", "await x")}
    for path, text in texts.items():
        found = parse(text, path)
        assert found.regions
        for region in found.regions:
            assert isinstance(ast.parse(region.text), ast.Module)
