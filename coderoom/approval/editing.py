"""Has a person edit code in a program of their own. Used by `HumanApproval`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path


def editor() -> list[str]:
    """The command of the person's editor: `VISUAL`, else `EDITOR`; empty if there is none."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(command)
    except ValueError:
        return []


async def edit(command: Sequence[str], name: str, text: str, terminal: int) -> str:
    """Have a text edited at a terminal, as a file with this name, and return what became of it.

    A cancellation ends the editor.

    Raises:
        ValueError: The editor failed, or what it left is not a text.
    """
    # In a folder of its own, which nobody else may enter; code that runs does not see it.
    with tempfile.TemporaryDirectory(prefix="coderoom-edit-") as folder, _keeping_settings(terminal):
        file = Path(folder, name)
        await asyncio.to_thread(file.write_text, f"{text}\n", encoding="utf-8", errors="replace")
        try:
            process = await asyncio.create_subprocess_exec(
                *command, str(file), stdin=terminal, stdout=terminal, stderr=terminal
            )
        except OSError as error:
            raise ValueError(f"The editor {command[0]!r} cannot be started: {error.strerror}.") from error
        try:
            code = await process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        if code:
            raise ValueError(f"The editor {command[0]!r} ended with exit code {code}.")
        try:
            return (await asyncio.to_thread(file.read_text, encoding="utf-8")).removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"What the editor {command[0]!r} left cannot be read: {error}.") from error


@contextlib.contextmanager
def _keeping_settings(terminal: int) -> Iterator[None]:
    """Restore the terminal's settings, which an editor that is killed leaves as they are."""
    before = termios.tcgetattr(terminal)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
