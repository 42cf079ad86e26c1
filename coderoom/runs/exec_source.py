"""Reads the code blocks of a Markdown file, a notebook or a script."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from coderoom.blocks import Block, extract_code_blocks, normalize_language
from coderoom.errors import RequestError
from coderoom.sandbox import INTERPRETERS, LANGUAGES, SUFFIXES
from coderoom.sandbox.guest import magics
from coderoom.sandbox.guest.cells import dedented

STDIN: Final = "<stdin>"

_LISTED: Final = f"{', '.join(LANGUAGES[:-1])} and {LANGUAGES[-1]}"
_MARKDOWN: Final = frozenset({"", ".md", ".markdown", ".mdown", ".mdx", ".mkd", ".qmd", ".rmd", ".txt"})
_NOTEBOOK: Final = ".ipynb"
_FIRST_LINE: Final = re.compile(rf"#!.*?\b({'|'.join(INTERPRETERS)})(?:[\d.]*)\b")
_TAG: Final = "execute"
_MOST_BYTES: Final = 16 * 1024 * 1024

Kind = Literal["markdown", "script", "notebook"]


@dataclass(frozen=True)
class Source:
    """A file that was read: the blocks that run here, the other ones, and the lines where the code of each begins.

    In a notebook, a block's `line` is the number of the code cell, because users see no lines there.
    """

    name: str
    kind: Kind
    blocks: Sequence[Block]
    skipped: Sequence[Block] = ()
    starts: Sequence[int] = field(default=(1,))

    def where(self, block: Block) -> str:
        """Where a block begins, in words."""
        return f"{'cell' if self.kind == 'notebook' else 'line'} {block.line}"

    def place(self, number: int, line: int) -> str:
        """The place of a line of code, such as `notes.md:9`; blocks and lines are counted from 1."""
        if self.kind == "notebook":
            return f"{self.name}, {self.where(self.blocks[number - 1])}, line {line}"
        return f"{self.name}:{self.starts[number - 1] + line - 1}"


def read_blocks(file: str, stdin: bytes | None = None, language: str | None = None) -> Source:
    """Read a Markdown file, a notebook, or a script, which is one block.

    Blocks of data, and those marked `no-run`, are left out.

    Args:
        file: The file's path. Its suffix decides how it is read; without one, a first line `#!` does.
        stdin: Text to read instead of the file.
        language: Overrides the suffix: a script's language, or `markdown`.

    Raises:
        RequestError: The file cannot be read, does not run here, is incomplete, or contains no code to run.
    """
    known = None if language is None else _known(language)
    text = _read_text(file, stdin)
    name = STDIN if stdin is not None else file
    kind = known or _kind_of(file, text)
    if kind == "notebook":
        return Source(name, "notebook", read_cells(name, text))
    if kind == "markdown":
        return _read_markdown(name, text)
    block = Block(language=normalize_language(kind), code=text, tag=kind)
    return Source(name, "script", [block])


def _known(language: str) -> str:
    name = normalize_language(language)
    if name not in LANGUAGES and name != "markdown":
        raise RequestError(f"The language {language!r} does not run here: --language takes {_LISTED}, or markdown.")
    return "bash" if language.strip().lower() == "bash" else name


def _kind_of(file: str, text: str) -> str:
    suffix = Path(file).suffix.lower()
    shebang = _FIRST_LINE.match(text)
    if suffix == _NOTEBOOK:
        return "notebook"
    if shebang is not None and (suffix == "" or (suffix, shebang[1]) == (".sh", "bash")):
        return INTERPRETERS[shebang[1]]
    if suffix in _MARKDOWN:
        return "markdown"
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    scripts = ", ".join(SUFFIXES)
    raise RequestError(
        f"{file!r} is not a kind of file that runs here. These are: Markdown (.md, .txt and similar), notebooks "
        f"({_NOTEBOOK}), and scripts in {_LISTED} ({scripts}). If it is one of them, pass --language."
    )


def _read_markdown(name: str, text: str) -> Source:
    everything = extract_code_blocks(text, longest=_MOST_BYTES)
    for block in everything:
        if not block.closed:
            what = f"<{_TAG}> tag" if block.tag == _TAG else "fence"
            raise RequestError(
                f"{name}:{block.line}: the {what} that begins here is never closed, so its block is incomplete, and "
                "nothing of the file was run. Close it."
            )
        if block.unclear and not block.no_run:
            raise RequestError(f"{name}:{block.line}: nothing of the file was run: in this block, {block.unclear}.")
    found = [block for block in everything if not block.no_run]
    blocks = [block for block in found if block.language in LANGUAGES]
    if not blocks:
        raise RequestError(
            f"{name!r} contains no code block to run. Blocks in {_LISTED} run here; of a script, say --language."
        )
    skipped = [block for block in found if block.language not in LANGUAGES and not block.is_data]
    lines = re.split(r"\r\n?|\n", text)
    return Source(name, "markdown", blocks, skipped, [_start(block, lines) for block in blocks])


def _start(block: Block, lines: Sequence[str]) -> int:
    """The line where a block's code begins."""
    if block.tag != _TAG:
        return block.line + 1
    # After a tag, the code may begin on the same line or some lines below.
    code = block.code.split("\n")
    blank = next((index for index, line in enumerate(code) if line.strip()), 0)
    for number, line in enumerate(lines[block.line - 1 :], start=block.line):
        if code[blank].strip() in line:
            return number - blank
    return block.line


def _read_text(file: str, stdin: bytes | None) -> str:
    try:
        if stdin is None:
            with Path(file).open("rb") as source:
                data = source.read(_MOST_BYTES + 1)
        else:
            data = stdin
    except (OSError, ValueError) as error:
        raise RequestError(f"Cannot read {file!r}: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > _MOST_BYTES:
        raise RequestError(f"{file!r} has more than {_MOST_BYTES} bytes.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{file!r} is not UTF-8 text: byte {error.start} cannot be read.") from error
    if "\0" in text:
        raise RequestError(f"{file!r} is not text: it contains a NUL character at position {text.index(chr(0))}.")
    return text


_FORMAT: Final = 4
_NO_RUN: Final = "no-run"
# Magics, shell commands, help, and what runs without its `%`.
_MAGIC: Final = re.compile(
    r"\s*(?:[\w.,\[\] ]+=\s*)?[%!]|\s*\?|[^#]*\?\s*$"
    r"|\s*(?:cat|cd|conda|cp|ls|mamba|matplotlib|mkdir|mv|pip|rm|time|timeit|uv)\s+[\w.~/-]"
)
_OF_IPYTHON: Final = re.compile(r"In|Out|__|___|_\d+|_i+\d*|_[dio]h")
_FLAGS: Final = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def read_cells(name: str, text: str) -> list[Block]:
    """The code cells of a notebook of nbformat 4, without empty ones and those with the tag `no-run`.

    A block's `line` is the number of the code cell. A cell with commands of IPython is refused.
    """
    notebook = _parse(name, text)
    for keys in (("kernelspec", "language"), ("language_info", "name")):
        language = _inside(notebook.get("metadata"), *keys)
        if isinstance(language, str) and normalize_language(language) != "python":
            raise RequestError(f"{name!r} is a notebook in {language!r}; only those in Python run here.")
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    blocks = []
    own: set[str] = set()
    for number, cell in enumerate(cells, start=1):
        source = cell.get("source")
        lines = [source] if isinstance(source, str) else source
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise RequestError(
                f"{name!r} is not a notebook of nbformat {_FORMAT}: the 'source' of code cell {number} is neither a "
                "string nor a list of strings."
            )
        code = "".join(lines)
        tags = _inside(cell, "metadata", "tags")
        if code.strip() and not (isinstance(tags, list) and _NO_RUN in tags):
            _check_code(name, number, code, own)
            blocks.append(Block(language="python", code=code, tag="python", line=number))
    if not blocks:
        raise RequestError(f"{name!r} contains no code cell to run.")
    return blocks


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        notebook: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{name}:{error.lineno}: {name!r} is not a notebook: it is not JSON ({error.msg})."
        ) from error
    except RecursionError as error:
        raise RequestError(f"{name!r} is not a notebook: it is nested too deeply.") from error
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise RequestError(f"{name!r} is not a notebook: it is JSON without an 'nbformat'.")
    if notebook["nbformat"] != _FORMAT:
        raise RequestError(
            f"{name!r} has nbformat {notebook['nbformat']!r}, and only {_FORMAT} runs here. Save it in that format."
        )
    if not isinstance(notebook.get("cells"), list):
        raise RequestError(f"{name!r} is not a notebook of nbformat {_FORMAT}: it has no list of 'cells'.")
    return notebook


def _inside(data: Any, *keys: str) -> Any:
    """What is below some keys of data that may have any form; `None` if there is nothing."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _check_code(name: str, number: int, code: str, own: set[str]) -> None:
    """Refuse what only IPython has; the interpreter reports other mistakes. `own` are names that the code has set."""
    code = _without_commands(name, number, dedented(code))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(code, name, "exec", _FLAGS, dont_inherit=True)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and _OF_IPYTHON.fullmatch(node.id)]
        own.update(node.id for node in names if isinstance(node.ctx, ast.Store))
        own.update(node.asname or node.name for node in ast.walk(tree) if isinstance(node, ast.alias))
        own.update(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
        handled = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Try) and _expects_names_to_lack(node)
                   for node in ast.walk(ast.Module(node.body, []))}  # fmt: skip
        # Who writes a name as text asks whether it is there: `if "get_ipython" in globals()`.
        asked = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        unknown = next((node for node in names if node.id not in own | asked and id(node) not in handled), None)
    except SyntaxError as error:
        lines = code.split("\n")
        wrong = lines[error.lineno - 1 : error.lineno] if error.lineno else []
        first = next(line for line in lines if line.strip())
        for line in (first, *wrong):
            if _MAGIC.match(line):
                raise RequestError(
                    f"{name!r}, cell {number}: {line.strip()!r} is a command of IPython and not Python, so nothing "
                    f"of the notebook was run. Remove it, or give the cell the tag {_NO_RUN!r}."
                ) from error
        return
    except (MemoryError, RecursionError, ValueError):
        return
    if unknown is not None:
        raise RequestError(
            f"{name!r}, cell {number}: {unknown.id!r} exists only in IPython, so nothing of the notebook was run. "
            f"Remove it, or give the cell the tag {_NO_RUN!r}."
        )


def _without_commands(name: str, number: int, code: str) -> str:
    """A cell in Python alone, if the sandbox knows all commands in it."""
    try:
        ast.parse(code)
    except SyntaxError:
        if unknown := magics.unknown_in(code):
            raise RequestError(
                f"{name!r}, cell {number}: {unknown!r} is a command of IPython that is not here, so nothing of the "
                f"notebook was run. Remove it, or give the cell the tag {_NO_RUN!r}."
            ) from None
        return magics.translate(code)
    except (MemoryError, RecursionError, ValueError):
        pass
    return code


def _expects_names_to_lack(tried: ast.Try) -> bool:
    """Whether a `try` handles the error of a name that does not exist."""
    caught = [each.type for each in tried.handlers]
    names = {getattr(node, "id", "") for each in caught if each is not None for node in ast.walk(each)}
    return None in caught or not names.isdisjoint(("NameError", "Exception", "BaseException"))
