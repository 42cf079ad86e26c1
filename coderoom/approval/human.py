"""`HumanApproval`: a person at the terminal. Also what a person's answer means, for `InputApproval`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final, Self

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from coderoom._util.components import Seconds, TimedConfig
from coderoom._util.text import visible
from coderoom.approval.base import Approval, call_in_thread, no

__all__ = ["DEFAULT_PROMPT", "TRIES", "HumanApproval", "not_understood", "understand", "visible"]

DEFAULT_PROMPT: Final = "Run this code?"
TRIES: Final = 3
"""How often a person is asked before unclear answers count as a no."""

# A yes followed by anything but "because" may be a yes with a condition, which nothing would enforce.
_ANSWER = re.compile(
    r"(?:(?P<no>no?)\b[\s,;:.!-]*(?:because\b)?|(?P<yes>y(?:es)?)[\s,;:.!]*(?:because\b|$))(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)


def understand(answer: str, who: str) -> ApprovalResponse | None:
    """Read an answer.

    Args:
        answer: What the person wrote. An empty answer is a no.
        who: The person, for the default reason.

    Returns:
        The decision, or `None` if the answer is neither a yes nor a no.
    """
    if not answer.strip():
        return no(f"{who} said no.")
    match = _ANSWER.fullmatch(answer.strip())
    if match is None:
        return None
    approved = match["yes"] is not None
    reason = match["reason"].strip()
    return ApprovalResponse(approved=approved, reason=reason or f"{who} said {'yes' if approved else 'no'}.")


def not_understood() -> ApprovalResponse:
    """The no after too many unclear answers."""
    return no(f"The person's answer was not understood {TRIES} times.")


_POLL_SECONDS: Final = 0.05
_LONGEST_LINE: Final = 4096
_LONGEST_HIGHLIGHT: Final = 100_000


def say(text: str) -> None:
    """Write to standard error."""
    stream = sys.stderr
    if stream is None:
        raise OSError("there is no standard error")
    stream.write(text)
    stream.flush()


def show_code(markdown: str) -> None:
    """Show the whole request, each line after a margin, so that no line can look like the question.

    Args:
        markdown: The code of the request. It is untrusted.

    Raises:
        OSError, ValueError: It cannot be shown.
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
    # Wrapped and never cropped: the end of a long line must be visible too.
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
    """The descriptor of standard input, or `None` if there is none."""
    try:
        descriptor = sys.stdin.fileno()
        os.fstat(descriptor)
    except (AttributeError, OSError, ValueError):
        return None
    return descriptor


def discard_typed_ahead(descriptor: int) -> None:
    """Drop what was typed at a terminal before the question was shown."""
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
    """Read a line, and leave everything after it for the next reader.

    It polls instead of waiting in a thread: a thread would remain after a cancellation, and take the next line or abort
    the interpreter's exit.

    Returns:
        The line, or `None` at the end of input.
    """
    if sys.platform == "win32":  # `select` takes only sockets there; a cancellation loses the next line
        return await call_in_thread(sys.stdin.readline) or None
    line = bytearray()
    while len(line) < _LONGEST_LINE:
        try:
            if not select.select([descriptor], [], [], 0)[0]:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            # One byte at a time, so that nothing after the line is read.
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


_WHO: Final = "A person at the terminal"
_HELP: Final = "Please answer y or n; a reason may follow, as in: n because it deletes files\n"
_SETTLE_SECONDS: Final = 0.15

# For the whole process, since all event loops share the terminal.
_terminal = threading.Lock()


class HumanApprovalConfig(TimedConfig):
    """Config of `HumanApproval`."""

    timeout: Seconds | None = 300.0
    prompt: str = DEFAULT_PROMPT


class HumanApproval(Approval, Component[HumanApprovalConfig]):
    """Asks a person at the terminal.

    The code goes to standard error, highlighted if that is a terminal, with symbols for control and invisible
    characters. The answer is a line of standard input: `y` or `n`, with an optional reason, as in
    `n because it deletes files`. Enter alone is a no. What was typed at a terminal before the question is dropped.
    Questions of several agents are asked one after the other.

    Without an answer the code does not run: missing or ended standard input, three unclear answers and the timeout
    count as a no, with a reason.

    Args:
        timeout: The seconds to wait for the answer after the code was shown; `None` for no limit.
        prompt: The question.

    Raises:
        ValueError: The timeout is not above 0.
    """

    component_config_schema = HumanApprovalConfig
    component_provider_override = "coderoom.approval.HumanApproval"

    def __init__(self, timeout: float | None = 300.0, prompt: str = DEFAULT_PROMPT) -> None:
        self._config = HumanApprovalConfig(timeout=timeout, prompt=prompt)

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Show the code and wait for the person's answer."""
        async with _terminal_to_oneself():
            descriptor = input_descriptor()
            if descriptor is None:
                return no("There is no terminal or other standard input to ask a person at.")
            limit = asyncio.timeout(self._config.timeout)
            try:
                async with limit:
                    return await self._ask(descriptor, request.code)
            except (OSError, ValueError) as error:
                if limit.expired():
                    return self._too_late()
                return no(f"The code could not be shown to a person: {type(error).__name__}: {error}")
            except asyncio.CancelledError:
                _say_if_possible("\nThe question is withdrawn.\n")
                raise

    async def _ask(self, descriptor: int, code: str) -> ApprovalResponse:
        # Time for a program that shows the conversation on the same terminal.
        await asyncio.sleep(_SETTLE_SECONDS)
        # In a thread: highlighting takes time, and writing to a terminal may block.
        await call_in_thread(show_code, code)
        discard_typed_ahead(descriptor)
        for _ in range(TRIES):
            say(f"{self._config.prompt} A reason may follow. [y/N] ")
            line = await read_line(descriptor)
            if line is None:
                return no("The input ended before a person answered.")
            response = understand(line, _WHO)
            if response is not None:
                return response
            say(_HELP)
        return not_understood()

    def _too_late(self) -> ApprovalResponse:
        reason = f"No person answered within {self._config.timeout:g} seconds."
        _say_if_possible(f"\n{reason} The code does not run.\n")
        return no(reason)

    def _to_config(self) -> HumanApprovalConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: HumanApprovalConfig) -> Self:
        return cls(timeout=config.timeout, prompt=config.prompt)


@contextlib.asynccontextmanager
async def _terminal_to_oneself() -> AsyncIterator[None]:
    while not _terminal.acquire(blocking=False):  # noqa: ASYNC110 (the owner may run in another event loop)
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        _terminal.release()


def _say_if_possible(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say(text)
