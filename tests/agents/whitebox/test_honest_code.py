"""The check of types stops no code of the examples, the benchmarks and the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from autogen_core.code_executor import CodeBlock

from coderoom.agents.type_check import TypeCheck
from coderoom.blocks import extract_code_blocks, normalize_language
from tests.support.commands import ROOT


def blocks_in(text: str) -> Iterator[str]:
    """The Python blocks of Markdown, or of replies in a YAML file."""
    for indented in re.findall(r"(?ms)^( +```python\n.*?^ +```)$", text):
        yield from blocks_in(dedent(indented))
    for block in extract_code_blocks(text):
        if block.closed and normalize_language(block.language) == "python":
            yield block.code


def code_of(file: Path) -> Iterator[str]:
    text = file.read_text()
    if file.suffix != ".py":
        yield from blocks_in(text)
        return
    yield text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "```python" in node.value:
            yield from blocks_in(node.value)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_honest_code_is_stopped() -> None:
    check = TypeCheck(1_000)
    folders = ("examples", "benchmarks", "docs", "coderoom/configs", "coderoom/judge/gauntlet")
    files = [ROOT / "README.md", *(file for folder in folders for file in sorted((ROOT / folder).rglob("*")))]
    found = {code: file for file in files if file.suffix in (".py", ".md", ".yaml") for code in code_of(file)}
    assert len(found) > 200
    wrong = {file: check.find([CodeBlock(code=code, language="python")], [], ()) for code, file in found.items()}
    assert {file: said for file, said in wrong.items() if said} == {}
