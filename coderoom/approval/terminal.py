"""The terminal: code shown so that it cannot pose as anything else, and a line read without anyone being held up."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from typing import Final

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from coderoom._util.text import visible
from coderoom.approval.ask import call_in_thread

__all__ = ["discard_typed_ahead", "input_descriptor", "read_line", "say", "show_code", "visible"]

_POLL_SECONDS: Final = 0.05
_LONGEST_LINE: Final = 4096
_LONGEST_HIGHLIGHT: Final = 100_000


def say(text: str) -> None:
    """Write to the person, beside the program's own output."""
    stream = sys.stderr
    if stream is None:
        raise OSError("there is no standard error")
    stream.write(text)
    stream.flush()


def show_code(markdown: str) -> None:
    """Show the whole request, each line behind a margin, so that no line of it can pose as the question.

    Args:
        markdown: The code as it stands in the request. It comes from a model and is not trusted.

    Raises:
        OSError, ValueError: If there is nowhere to show it.
    """
    lines = visible(markdown).splitlines()
    header = f"Code that waits for approval ({len(lines)} line{'' if len(lines) == 1 else 's'}):"
    stream = sys.stderr
    if stream is None or not stream.isatty():
        say("\n" + "\n".join([header, *(f"| {line}" for line in lines)]) + "\n")
        return
    text = "\n".join(lines)
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    console.print()
    console.print(Text(header, style="bold"))
    # Wrapped and never cropped: what is pushed out to the right must be seen too.
    console.print(
        Syntax(
            text,
            "markdown" if len(text) <= _LONGEST_HIGHLIGHT else "text",
            theme="ansi_dark",
            background_color="default",
            line_numbers=True,
            word_wrap=True,
        )
    )
    stream.flush()


def input_descriptor() -> int | None:
    """Where a person's answers come from, or `None` if there is no such place."""
    try:
        descriptor = sys.stdin.fileno()
        os.fstat(descriptor)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor


def discard_typed_ahead(descriptor: int) -> None:
    """Forget what was typed at a terminal before there was a question: it is no answer to it."""
    if not os.isatty(descriptor):
        return
    try:
        import termios
    except ImportError:
        return
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
    except termios.error:
        return


async def read_line(descriptor: int) -> str | None:
    """Read a line, and leave everything behind it for the next reader.

    It looks now and then instead of waiting in a thread, so that a cancel leaves no reader behind: one that is left
    would take the next line, or abort the interpreter's exit.

    Returns:
        The line, or `None` at the end of input.
    """
    if sys.platform == "win32":  # `select` takes only sockets there, so a cancel costs the next line
        return await call_in_thread(sys.stdin.readline) or None
    line = bytearray()
    while len(line) < _LONGEST_LINE:
        try:
            if not select.select([descriptor], [], [], 0)[0]:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            # One byte at a time, since what is read beyond the line's end cannot be put back.
            byte = os.read(descriptor, 1)
        except BlockingIOError:
            await asyncio.sleep(_POLL_SECONDS)
            continue
        except OSError:
            byte = b""
        if not byte and not line:
            return None
        if byte in (b"", b"\n"):
            break
        line += byte
    return line.decode(errors="replace")
