"""A person at the terminal decides: `HumanApproval`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import termios
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import CancellationToken, Component
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from coderoom._util.components import Seconds, TimedConfig
from coderoom._util.terminal import asking
from coderoom._util.text import visible
from coderoom.approval import editing
from coderoom.approval.answers import (
    DEFAULT_PROMPT,
    TRIES,
    UNCLEAR,
    ChangesRequest,
    Edited,
    about_edited,
    decided_by,
    edited_answer,
    no,
    prompt_for,
    said_always,
    understand,
)
from coderoom.approval.base import Approval, call_in_thread
from coderoom.approval.by_input import InputApproval, InputFunc, first_of
from coderoom.approval.calls import CallRequest
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import SUFFIXES
from coderoom.steps import SETTLE_SECONDS, is_observed

_POLL_SECONDS: Final = 0.05
_LONGEST_LINE: Final = 1_000_000
_STEP: Final = 4096
_LONGEST_HIGHLIGHT: Final = 100_000


def say(text: str) -> None:
    """Write to standard error."""
    stream = sys.stderr
    if stream is None:
        raise OSError("there is no standard error")
    stream.write(text)
    stream.flush()


def show_code(markdown: str, title: str = "Code that waits for approval") -> None:
    """Show the whole request, which is untrusted, each line after a margin, so that none can look like the question."""
    lines = visible(markdown, exact=True).splitlines()
    header = f"{title} ({len(lines)} line{'' if len(lines) == 1 else 's'}):"
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
    if os.isatty(descriptor):
        with contextlib.suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)


async def read_line(descriptor: int) -> str | None:
    """Read a line, and leave everything after it for the next reader; `None` at the end of input.

    The rest of a line of more than a million bytes is dropped.

    It polls instead of waiting in a thread: a thread would remain after a cancellation, and take the next line or abort
    the interpreter's exit.
    """
    line, size = bytearray(), 0
    ready = select.poll()  # Unlike `select.select`, for descriptors above 1023 too.
    ready.register(descriptor, select.POLLIN)
    while True:
        try:
            if not ready.poll(0):
                await asyncio.sleep(_POLL_SECONDS)
                continue
            # One byte at a time, so that nothing after the line is read.
            byte = os.read(descriptor, 1)
        except BlockingIOError:
            await asyncio.sleep(_POLL_SECONDS)
            continue
        except OSError:
            byte = b""
        if not byte and not size:
            return None
        if byte in (b"", b"\n"):
            return line.decode(errors="replace")
        size += 1
        if size <= _LONGEST_LINE:
            line += byte
        if size % _STEP == 0:
            await asyncio.sleep(0)


_CHOICES: Final = "y, n, n and why (for the model), or e to edit it [y/N/e] "
_CHOICES_WITH_ALWAYS: Final = "y, n, n and why (for the model), a for {}, or e to edit it [y/N/a/e] "
_CHOICES_OF_CALLS: Final = (
    "y, n, n and why (for the code), a for all its calls in this session, or e to edit it [y/N/a/e] "
)
_CHOICES_OF_CHANGES: Final = "A reason may follow. [y/N] "
_WHO: Final = "A person at the terminal"
_HELP: Final = "Please answer y or n; a reason may follow, as in: n because it deletes files\n"

# For the whole process, since all event loops share the terminal.
_terminal = threading.Lock()


@dataclass
class StandingYes:
    """Whether the person at the terminal has agreed to all code beforehand.

    Attributes:
        scope: What code that would be, as the question says it.
        reason: Why they are not asked; empty: they are.
    """

    scope: str
    reason: str = ""


standing_yes: Final[ContextVar[StandingYes | None]] = ContextVar("coderoom_standing_yes", default=None)
"""Where a person can agree to all code beforehand; `None`: nowhere, so that each question is about its code only."""

instead_of_terminal: Final[ContextVar[InputFunc | None]] = ContextVar("coderoom_instead_of_terminal", default=None)
"""Reaches the person in this context, where they are not at the terminal of this process."""


class HumanApprovalConfig(TimedConfig):
    """Config of `HumanApproval`."""

    timeout: Seconds | None = 300.0
    prompt: str = DEFAULT_PROMPT


class HumanApproval(Approval, Component[HumanApprovalConfig]):
    """Asks a person at the terminal.

    The code goes to standard error, highlighted if that is a terminal, with symbols for control and invisible
    characters. The answer is a line of standard input: `y` or `n`, with an optional reason, as in
    `n because it deletes files`, which the model gets. Enter alone is a no. What was typed at a terminal before the
    question is dropped. Questions of several agents are asked one after the other.

    After `e` the person edits the code, in the program that `VISUAL` or `EDITOR` names, or line by line if there is
    none. Then the question is asked again about what they have made of it, which is what runs after a yes.

    Without an answer the code does not run: missing or ended standard input, three unclear answers and the timeout
    count as a no, with a reason.

    Args:
        timeout: The seconds to wait for the answer after the code was shown; `None` for no limit. There is none while
            the code is edited.
        prompt: The question.

    Raises:
        ValueError: The timeout is not above 0.
    """

    component_config_schema = HumanApprovalConfig
    component_provider_override = "coderoom.approval.HumanApproval"

    def __init__(self, timeout: float | None = 300.0, prompt: str = DEFAULT_PROMPT) -> None:
        HumanApprovalConfig(timeout=timeout, prompt=prompt)  # Checks them.
        self._timeout, self._prompt = timeout, prompt

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Show the code and wait for the person's answer, here or from somebody who watches the run."""
        standing = _standing_for(request)
        if standing is not None and standing.reason:
            decided_by("a person, who has said always")
            return ApprovalResponse(approved=True, reason=standing.reason)
        if isinstance(request, CallRequest) and request.always:
            return said_always(request)
        if (reached := instead_of_terminal.get()) is not None:
            return await InputApproval(reached, self._timeout, self._prompt).decide(request)
        if not is_observed():
            return await self._decide(request)
        return await first_of(self._decide(request), self._decide_elsewhere(request))

    async def _decide_elsewhere(self, request: ApprovalRequest) -> ApprovalResponse:
        response = await InputApproval(_nobody, None, self._prompt).decide(request)
        word = "yes" if response.approved else "edited" if isinstance(response, Edited) else "no"
        _say_if_possible(f"\nAnswered on the page of the run: {word}. {visible(response.reason)}\n")
        return response

    async def _decide(self, request: ApprovalRequest) -> ApprovalResponse:
        async with _terminal_to_oneself():
            descriptor = input_descriptor()
            if descriptor is None:
                return no("There is no terminal or other standard input to ask a person at.")
            limit = asyncio.timeout(self._timeout)
            try:
                async with limit:
                    return await self._ask(descriptor, request, limit)
            except (OSError, ValueError) as error:
                if limit.expired():
                    reason = f"No person answered within {self._timeout:g} seconds."
                    _say_if_possible(f"\n{reason} The code does not run.\n")
                    return no(reason)
                return no(f"The code could not be shown to a person: {type(error).__name__}: {error}")
            except asyncio.CancelledError:
                _say_if_possible("\nThe question is withdrawn.\n")
                raise

    async def _ask(self, descriptor: int, request: ApprovalRequest, limit: asyncio.Timeout) -> ApprovalResponse:
        await asyncio.sleep(SETTLE_SECONDS)
        await self._show(descriptor, request, request.code)
        editable, made, unclear = not isinstance(request, ChangesRequest), None, 0
        choices = _CHOICES_OF_CALLS if isinstance(request, CallRequest) else _CHOICES
        if (standing := _standing_for(request)) is not None:
            choices = _CHOICES_WITH_ALWAYS.format(standing.scope)
        while unclear < TRIES:
            say(f"{prompt_for(self._prompt, request)} {choices if editable else _CHOICES_OF_CHANGES}")
            line = await _read_answer(descriptor)
            if line is None:
                return no("The input ended before a person answered.")
            if editable and line.strip().lower() in ("e", "edit"):
                limit.reschedule(None)
                try:
                    text = await _edit(descriptor, request.code if made is None else made.code)
                    if text is None:
                        say("The code is as it was.\n")
                    else:
                        made = edited_answer(text, request)
                except ValueError as error:
                    say(f"{error} The code stays as it was.\n")
                if self._timeout is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + self._timeout)
                await self._show(descriptor, request, request.code if made is None else made.code)
                continue
            response = understand(line, _WHO, request)
            if standing is not None and line.strip().lower() in ("a", "always"):
                standing.reason = f"{_WHO} has said always."
                response = ApprovalResponse(approved=True, reason=f"{_WHO} said always.")
            if response is not None:
                decided_by("a person at the terminal")
                return about_edited(made, response)
            unclear += 1
            say(_HELP)
        return no(UNCLEAR)

    async def _show(self, descriptor: int, request: ApprovalRequest, code: str) -> None:
        # In a thread: highlighting takes time, and writing to a terminal may block.
        if isinstance(request, CallRequest):
            if request.block and request.is_new_to("terminal"):
                await call_in_thread(show_code, request.block, "The code that makes the call")
            elif request.block and (lines := request.lines()):
                await call_in_thread(show_code, "\n".join(lines), f"Where the code above calls {request.function}()")
            await call_in_thread(show_code, code, request.title)
        else:
            await call_in_thread(show_code, code)
        discard_typed_ahead(descriptor)


def _standing_for(request: ApprovalRequest) -> StandingYes | None:
    """What a yes to all code beforehand would be in, if the request is about code."""
    return None if isinstance(request, ChangesRequest | CallRequest) else standing_yes.get()


async def _read_answer(descriptor: int) -> str | None:
    line = await read_line(descriptor)
    if not os.isatty(descriptor):  # A terminal has shown the end of the line.
        say("\n")
    return line


async def _edit(descriptor: int, code: str) -> str | None:
    """Have the person edit the code, the only block without its fence; `None` if they leave it as it is.

    Raises:
        ValueError: The editor failed.
    """
    blocks = extract_code_blocks(code)
    only = blocks[0] if len(blocks) == 1 else None
    name, text = "code.md", code
    if only is not None:
        suffix = next((each for each, language in SUFFIXES.items() if language == only.language), ".txt")
        name, text = f"code{suffix}", only.code
    if (editor := editing.editor()) and os.isatty(descriptor):
        changed = await editing.edit(editor, name, text, descriptor)
    else:
        say("Write the code, and after it a line with a single dot; the dot alone leaves the code as it is.\n")
        lines: list[str] = []
        while (line := await _read_answer(descriptor)) not in (None, "."):
            lines.append(line or "")
        changed = "\n".join(lines) if lines and line else text
    if changed == text:
        return None
    return changed if only is None else fence(changed, only.tag)


@contextlib.asynccontextmanager
async def _terminal_to_oneself() -> AsyncIterator[None]:
    while not _terminal.acquire(blocking=False):  # noqa: ASYNC110 (the owner may run in another event loop)
        await asyncio.sleep(_POLL_SECONDS)
    try:
        async with asking():
            yield
    finally:
        _terminal.release()


def _say_if_possible(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say(text)


async def _nobody(question: str, token: CancellationToken | None) -> str:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable: it is never done")
