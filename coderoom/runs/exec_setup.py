"""What a file's code finds when it begins: its folder, its arguments, its own name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from coderoom.blocks import Block
from coderoom.errors import RequestError
from coderoom.runs.exec_source import STDIN, Source

__all__ = ["check_request", "code_to_run", "keep_file", "open_workspace", "prelude"]

_FILE_NAME: Final = re.compile(r"\s*(?:#|//)\s*filename:\s*(.*?)\s*", re.IGNORECASE)
_WORKSPACE: Final = "/workspace/"


def open_workspace(workspace: Path) -> tuple[Path, bool]:
    """The folder to work in, and whether it had to be made.

    Raises:
        RequestError: If it is no folder, or cannot be made. What is above it has to be there, since a path that is
            mistyped is made of folders that nobody wants.
    """
    try:
        folder = workspace.resolve()
        if folder.is_dir():
            return folder, False
        there, above = folder.exists(), folder.parent.is_dir()
        if above and not there:
            folder.mkdir()
            return folder, True
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {reason}.") from error
    if there:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    raise RequestError(
        f"The workspace {str(folder)!r} is not there, nor is the folder {str(folder.parent)!r} in which it could be "
        "made. Check the path, or make that folder first."
    )


def check_request(source: Source, arguments: Sequence[str]) -> None:
    """Find before anything runs what could not be done.

    Raises:
        RequestError: If the arguments have nobody to go to, or a block names a file that is not in the workspace.
    """
    if arguments and all(block.language == "javascript" for block in source.blocks):
        raise RequestError(
            f"{source.name!r} cannot be given arguments: only code in python, sh and bash can, and not javascript."
        )
    for number, block in enumerate(source.blocks, start=1):
        name = _named_file(source, block)
        if name is not None and _inside(name) is None:
            raise RequestError(
                f"{source.place(number, 1)}: the file {name!r} is not in the workspace. Name one inside of it."
            )


def prelude(source: Source, arguments: Sequence[str], workspace: Path) -> str:
    """The cell that gives Python what a script finds when it begins; empty if there is nothing to give.

    `sys.argv` begins with the script's name; `__file__` is its place as the code sees it, if it is in the workspace.

    Args:
        source: The file. What is not a script has arguments only if there are some.
        arguments: What was given after the file.
        workspace: The folder that the code works in.
    """
    is_script = source.kind == "script"
    if not (is_script or arguments) or all(block.language != "python" for block in source.blocks):
        return ""
    if source.name == STDIN:
        return f"__import__('sys').argv[:] = {['-', *arguments]!r}"
    path = Path(source.name)
    path = path.parent.resolve() / path.name
    name = path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.name
    lines = [f"__import__('sys').argv[:] = {[name, *arguments]!r}"]
    if is_script:
        lines.append(f"__file__ = __import__('os').path.abspath({name!r})")
        if "/" in name:  # Modules beside the script are found, as Python does it.
            lines.append("__import__('sys').path.insert(0, __import__('os').path.dirname(__file__))")
    return "\n".join(lines)


def code_to_run(block: Block, arguments: Sequence[str]) -> str:
    """The code of a block; a shell's begins with its arguments, on its first line so that lines keep their numbers."""
    if not arguments or block.language != "sh":
        return block.code
    return f"set -- {shlex.join(arguments)}; {block.code}"


def keep_file(source: Source, block: Block) -> str:
    """The shell commands that write a block to the file that its first line names; empty if it names none."""
    name = _named_file(source, block)
    inside = None if name is None else _inside(name)
    if inside is None:
        return ""
    path = f"./{inside}"
    folder = str(PurePosixPath(path).parent)
    return f"mkdir -p {shlex.quote(folder)} && printf %s {shlex.quote(block.code)} > {shlex.quote(path)}"


def _named_file(source: Source, block: Block) -> str | None:
    if source.kind == "script":  # It is a file already.
        return None
    match = _FILE_NAME.fullmatch(block.code.partition("\n")[0])
    return None if match is None else match[1].strip("\"'`")


def _inside(name: str) -> str | None:
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    return None if inside.startswith("/") or inside.split("/")[0] in (".", "..") else inside
