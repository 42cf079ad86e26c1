"""A Jupyter notebook as blocks of Python."""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any, Final

from coderoom.blocks import Block, normalize_language
from coderoom.errors import RequestError

__all__ = ["read_cells"]

_FORMAT: Final = 4
_NO_RUN: Final = "no-run"
_MAGIC: Final = re.compile(r"\s*(?:[\w.,\[\] ]+=\s*)?[%!]")
_FLAGS: Final = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def read_cells(name: str, text: str) -> list[Block]:
    """The code cells of a notebook of nbformat 4, without empty ones and those with the tag `no-run`.

    Args:
        name: The file's name, for messages.
        text: What is in it.

    Returns:
        A block for each cell; its `line` is the cell's number among those of code.

    Raises:
        RequestError: If it is no such notebook, is in another language than Python, or holds nothing to run, or if a
            cell is not all Python.
    """
    notebook = _parse(name, text)
    _check_language(name, notebook.get("metadata"))
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    blocks = []
    for number, cell in enumerate(cells, start=1):
        code = _source_of(name, number, cell)
        if code.strip() and _NO_RUN not in _tags(cell):
            _check_code(name, number, code)
            blocks.append(Block(language="python", code=code, tag="python", line=number))
    if not blocks:
        raise RequestError(f"{name!r} holds no code cell to run.")
    return blocks


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        notebook: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestError(f"{name}:{error.lineno}: {name!r} is no notebook: it is not JSON ({error.msg}).") from error
    except RecursionError as error:
        raise RequestError(f"{name!r} is no notebook: it is nested too deeply.") from error
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise RequestError(f"{name!r} is no notebook: it is JSON without an 'nbformat'.")
    if notebook["nbformat"] != _FORMAT:
        raise RequestError(
            f"{name!r} is of nbformat {notebook['nbformat']!r}, and {_FORMAT} is what runs here. Save it anew as one."
        )
    if not isinstance(notebook.get("cells"), list):
        raise RequestError(f"{name!r} is no notebook of nbformat {_FORMAT}: it has no list of 'cells'.")
    return notebook


def _check_language(name: str, metadata: Any) -> None:
    for key, inner in (("kernelspec", "language"), ("language_info", "name")):
        facts = metadata.get(key) if isinstance(metadata, dict) else None
        language = facts.get(inner) if isinstance(facts, dict) else None
        if isinstance(language, str) and normalize_language(language) != "python":
            raise RequestError(f"{name!r} is a notebook in {language!r}; only those in Python run here.")


def _source_of(name: str, number: int, cell: dict[str, Any]) -> str:
    source = cell.get("source")
    lines = [source] if isinstance(source, str) else source
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise RequestError(
            f"{name!r} is no notebook of nbformat {_FORMAT}: the 'source' of code cell {number} is neither a string "
            "nor a list of strings."
        )
    return "".join(lines)


def _tags(cell: dict[str, Any]) -> list[Any]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def _check_code(name: str, number: int, code: str) -> None:
    """Refuse what only IPython understands; other mistakes are for the interpreter to tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, name, "exec", _FLAGS, dont_inherit=True)
    except SyntaxError as error:
        lines = code.split("\n")
        wrong = lines[error.lineno - 1 : error.lineno] if error.lineno else []
        first = next(line for line in lines if line.strip())
        for line in (first, *wrong):
            if _MAGIC.match(line):
                raise RequestError(
                    f"{name!r}, cell {number}: {line.strip()!r} is for IPython and is not Python, so nothing of the "
                    f"notebook was run. Take it out, or give the cell the tag {_NO_RUN!r}."
                ) from error
    except (MemoryError, RecursionError, ValueError):
        return
