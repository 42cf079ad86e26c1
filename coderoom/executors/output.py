"""What executors and agents do with the output and the files of code."""

from __future__ import annotations

from pathlib import Path

from coderoom._util.files import name_inside, write_inside
from coderoom._util.text import bound_output, save_output
from coderoom.errors import RequestError
from coderoom.sandbox import ExecutionResult


def keep_named_file(root: Path, name: str, code: str) -> str:
    """Save a block to the file that it names; return why that is not possible, or an empty text."""
    try:
        write_inside(root, name_inside(name), code.encode("utf-8", "replace"))
    except RequestError as error:
        return str(error)
    except OSError as error:
        return (
            f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
            "Name a plain file whose folders are not links."
        )
    return ""


def bound_and_save(result: ExecutionResult, limit: int, folder: Path, *, is_shared: bool = True) -> tuple[str, Path]:
    """Shorten an output above the limit, and save the whole; return the short one, which names the file, and the file.

    `is_shared` says that code works in this folder. Behind a wall it sees the file at another path.
    """
    path = save_output(result.output, folder)
    total = max(len(result.output), result.output_size) if result.truncated else len(result.output)
    named = path.relative_to(folder) if is_shared else path
    return bound_output(result.output, limit, whole=named, total=total, partly=result.truncated), path
