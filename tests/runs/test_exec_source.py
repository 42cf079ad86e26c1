from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.runs import read_blocks


def read(tmp_path: Path, name: str, text: str) -> Any:
    (tmp_path / name).write_text(text)
    return read_blocks(str(tmp_path / name))


def notebook(*sources: Any, **facts: Any) -> str:
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"nbformat": 4, "cells": cells, **facts})


@pytest.mark.parametrize("name", ["x.hs", "x.csv", "x.yaml", "x.PNG"])
def test_a_kind_that_does_not_run_is_told_what_does(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError) as told:
        read(tmp_path, name, "```python\nprint(1)\n```\n")
    for word in (name, ".md", ".ipynb", ".py", "bash", "--language"):
        assert word in str(told.value)


def test_a_file_without_code_is_told_which_languages_run(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="python, sh, bash, javascript, "):
        read(tmp_path, "n.md", "# Nothing\n```haskell\nmain\n```\n")


@pytest.mark.parametrize(
    ("language", "tag"), [("python", "python"), ("py", "python"), ("BASH", "bash"), ("js", "javascript")]
)
def test_a_named_language_goes_before_the_suffix(tmp_path: Path, language: str, tag: str) -> None:
    (tmp_path / "x.rb").write_text("1")
    [block] = read_blocks(str(tmp_path / "x.rb"), language=language).blocks
    assert block.tag == tag


def test_markdown_can_be_named_too(tmp_path: Path) -> None:
    (tmp_path / "x.rst").write_text("```python\n1\n```\n")
    assert read_blocks(str(tmp_path / "x.rst"), language="markdown").kind == "markdown"


def test_a_block_whose_end_is_unclear_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"n\.md:3: nothing of the file was run: .* here-document 'END'"):
        read(tmp_path, "n.md", "a\n\n```sh\ncat <<'END'\n```\n\n```sh\nrm -rf build\n```\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("```python\nx\n", 1),
        ("a\n\n> ```python\n> x\n\nb\n", 3),
        ("```python\nx\n```\n```json\n{}\n", 4),
        ("a <execute> x\n", 1),
    ],
)
def test_a_block_that_is_never_closed_is_named(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(RequestError, match=rf"n\.md:{line}: .* never closed"):
        read(tmp_path, "n.md", text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n```python\n\nhere\n```\n", 4),
        ("a\r\n```python\r\nhere\r\n```\r\n", 3),
        ("- a\n\n  ```python\n  here\n  ```\n", 4),
        ("<execute>here</execute>\n", 1),
        ("a <execute>\n\n\nhere\n</execute>\n", 4),
        ("<execute>\n```python\n\nhere\n```\n</execute>\n", 4),
    ],
)
def test_a_line_of_code_is_found_in_the_file(tmp_path: Path, text: str, line: int) -> None:
    source = read(tmp_path, "n.md", text)
    number = source.blocks[0].code.split("\n").index("here") + 1
    assert source.place(1, number) == f"{tmp_path / 'n.md'}:{line}"


# --- Notebooks ---


def test_the_code_cells_of_a_notebook_are_blocks(tmp_path: Path) -> None:
    text = json.loads(notebook("x = 1", ["def f():\n", "    return x"], " \n", "await f()"))
    text["cells"].insert(1, {"cell_type": "markdown", "source": "%prose"})
    text["cells"].append({"cell_type": "code", "source": "%magic", "metadata": {"tags": ["no-run"]}})
    source = read(tmp_path, "n.ipynb", json.dumps(text))
    assert [(block.line, block.code) for block in source.blocks] == [
        (1, "x = 1"),
        (2, "def f():\n    return x"),
        (4, "await f()"),
    ]
    assert source.place(3, 1) == f"{tmp_path / 'n.ipynb'}, cell 4, line 1"


@pytest.mark.parametrize(
    "code",
    [
        "%lsmagic",
        "import os\n%prun os.stat(1)",
        "%matplotlib inline\n%load_ext sql",
        "%%sql\nit's",
        "%%capture\nx = 1\nif x:\n    y = %store x",
        "def f():\n    return Out[1]",
        "print(__)",
        "try:\n    Out\nexcept ValueError:\n    pass",
    ],
)
def test_what_only_ipython_knows_is_named(tmp_path: Path, code: str) -> None:
    with pytest.raises(RequestError, match=r"n\.ipynb', cell 2: '.*' (is a command of|exists only in) IPython"):
        read(tmp_path, "n.ipynb", notebook("1", code))


@pytest.mark.parametrize(
    "code",
    [
        "%matplotlib inline\n!echo it's",
        "%%bash\nit's",
        "%%html\nit's",
        "%who",
        "len?",
        "x = 1\n?len",
        "pip install pandas",
        "x = (5\n% 3)",
        "'''\n%time\n'''",
        "x = 1\nthis is no Python",
        "x = '\\d'",
        "(",
        "# why?\n(",
        "Out = 1\nOut",
        " x = 1\n x",
        "try:\n    get_ipython().run_line_magic('matplotlib', 'inline')\nexcept (NameError, KeyError):\n    pass",
        "if 'get_ipython' in globals():\n    get_ipython()",
    ],
)
def test_what_looks_like_it_and_is_none_is_left_to_the_interpreter(tmp_path: Path, code: str) -> None:
    assert len(read(tmp_path, "n.ipynb", notebook(code)).blocks) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ('{\n"nbformat": 4,', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "'nbformat'"),
        (json.dumps({"nbformat": 3, "worksheets": []}), "nbformat 3"),
        (json.dumps({"nbformat": 4}), "'cells'"),
        (notebook(7), "code cell 1"),
        (notebook("1", ["x", 1]), "code cell 2"),
        (notebook(), "no code cell"),
        (notebook("  "), "no code cell"),
        (notebook("1", metadata={"kernelspec": {"language": "R"}}), "'R'"),
        (notebook("1", metadata={"language_info": {"name": "julia"}}), "'julia'"),
    ],
)
def test_what_is_no_notebook_is_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RequestError, match=r"n\.ipynb") as told:
        read(tmp_path, "n.ipynb", text)
    assert words in str(told.value)


@pytest.mark.parametrize("metadata", [None, [], {"kernelspec": None}, {"kernelspec": {"language": "python"}}])
def test_a_notebooks_metadata_may_say_anything(tmp_path: Path, metadata: Any) -> None:
    assert len(read(tmp_path, "n.ipynb", notebook("1", metadata=metadata)).blocks) == 1
