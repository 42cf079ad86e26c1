"""From a block to a file and the command that runs it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from autogen_core.code_executor import CodeBlock

__all__ = ["Cell", "CellRefused", "Programs", "file_name_of", "named_file", "not_inside", "write_cell"]

_PROGRAMS = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "sh": "sh",
    "shell": "sh",
    "bash": "bash",
    "javascript": "node",
    "js": "node",
    "node": "node",
}
_ENDINGS = {"python": ".py", "sh": ".sh", "bash": ".sh", "node": ".js"}
_FILE_NAME = re.compile(r"\s*(?:#|//)\s*filename:\s*(.*?)\s*", re.IGNORECASE)


class CellRefused(Exception):  # noqa: N818 (the block is at fault; its author reads the message)
    """A block cannot be run as it is."""


@dataclass(frozen=True)
class Programs:
    """Where the interpreters are.

    Attributes:
        python: The interpreter for Python.
        path: The search path for all others.
    """

    python: str
    path: str

    def find(self, language: str) -> tuple[str, str]:
        """Return the name and the file of the program for a language.

        Raises:
            CellRefused: There is none.
        """
        name = _PROGRAMS.get(language.strip().lower())
        if name is None:
            known = ", ".join(sorted(_PROGRAMS))
            raise CellRefused(f"Unknown language {language!r}: this executor runs {known}.")
        if name == "python":
            return name, self.python
        program = shutil.which(name, path=self.path)
        if program is None:
            raise CellRefused(f"The language {language!r} needs {name!r}, which is not installed here.")
        return name, os.path.abspath(program)  # noqa: PTH100 (must not follow links: some programs go by their name)


@dataclass(frozen=True)
class Cell:
    """A block as a file.

    Attributes:
        path: The file.
        command: The command that runs it.
        temporary: The file's inode if it is ours, to be removed after the run; 0 if the author named it.
    """

    path: Path
    command: tuple[str, ...]
    temporary: int

    def remove(self) -> None:
        """Remove the file if it is ours and nobody has put another in its place."""
        with contextlib.suppress(OSError):
            if self.temporary and self.path.lstat().st_ino == self.temporary:
                self.path.unlink()


def write_cell(block: CodeBlock, number: int, work_dir: Path, programs: Programs) -> Cell:
    """Write a block to a file in the work directory.

    A first line `# filename: NAME` (or `// filename: NAME`) names the file, which stays. Else it is a free name such as
    `cell_1.py`, in the work directory itself so that the code can import what is there.

    Args:
        block: The block.
        number: Which block of the request it is, counted from 1.
        work_dir: The work directory.
        programs: Where the interpreters are.

    Raises:
        CellRefused: The language is unknown or its program is missing, or the name is not one for a file in the
            work directory.
        OSError: The work directory cannot be written to.
    """
    name, program = programs.find(block.language)
    data = block.code.encode("utf-8", "replace")
    path = named_file(block.code, work_dir)
    if path is None:
        path, inode = _write_free(data, number, _ENDINGS[name], work_dir)
        return Cell(path, (program, str(path)), inode)
    try:
        _write_named(data, path)
    except OSError as error:
        raise CellRefused(f"The file {str(path)!r} cannot be written: {error.strerror or error}.") from error
    return Cell(path, (program, str(path)), 0)


def named_file(code: str, work_dir: Path) -> Path | None:
    """Return the file that the code's first line names, or `None` if it names none.

    Raises:
        CellRefused: It is not a file in the work directory.
    """
    name = file_name_of(code)
    if name is None:
        return None
    root = work_dir.resolve()
    try:
        path = (root / name).resolve()
        inside = path != root and path.is_relative_to(root) and not path.is_dir()
    except (OSError, ValueError, RuntimeError):  # Too long, with a NUL in it, or a loop of links.
        inside = False
    if not inside:
        raise not_inside(name)
    return path


def file_name_of(code: str) -> str | None:
    """Return the name of a file that the code's first line gives, or `None` if it gives none."""
    match = _FILE_NAME.fullmatch(code.partition("\n")[0])
    return None if match is None else match[1].strip("\"'`")


def not_inside(name: str) -> CellRefused:
    """Return the error of a name that is not one for a file in the work directory."""
    return CellRefused(f"Filename is not in the workspace: {name!r}. Name a file inside of the work directory.")


def _write_free(data: bytes, number: int, ending: str, work_dir: Path) -> tuple[Path, int]:
    # Made exclusively: other runs, in this process and in others, may work in the same folder.
    for free in itertools.count(number):
        path = work_dir / f"cell_{free}{ending}"
        try:
            with path.open("xb") as file:
                file.write(data)
                return path, os.fstat(file.fileno()).st_ino
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


def _write_named(data: bytes, path: Path) -> None:
    # In one step, so that a run in parallel never reads half of it.
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{uuid.uuid4().hex}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
