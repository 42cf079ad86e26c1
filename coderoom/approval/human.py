"""A person decides: at the terminal (`HumanApproval`), or through a function (`InputApproval`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import sys
import termios
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import CancellationToken, Component
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from coderoom._util.autogen import forget_early_answers
from coderoom._util.components import Seconds, TimedConfig
from coderoom._util.tasks import retrieve_exception
from coderoom._util.terminal import asking
from coderoom._util.text import visible
from coderoom.approval import editing
from coderoom.approval.answers import ChangesRequest, Edited, edited_answer, no, text_to_edit
from coderoom.approval.base import Approval, call, call_in_thread, is_async
from coderoom.approval.calls import Always, CallRequest
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import SUFFIXES
from coderoom.steps import answer_elsewhere, is_observed

T = TypeVar("T")

DEFAULT_PROMPT: Final = "Run this code?"
TRIES: Final = 3
"""How often a person is asked before unclear answers count as a no."""
_UNCLEAR: Final = f"The person's answer was not understood {TRIES} times."

# A yes followed by anything but "because" may be a yes with a condition, which nothing would enforce.
_ANSWER = re.compile(
    r"(?:(?P<no>no?)\b[\s,;:.!-]*(?:because\b)?|(?P<yes>y(?:es)?)[\s,;:.!]*(?:because\b|$))(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)


def understand(answer: str, who: str, request: ApprovalRequest) -> ApprovalResponse | None:
    """Read an answer of a person; `None` if it is neither a yes nor a no. An empty answer is a no.

    A no with a reason goes to the model, and one without ends the turn. All calls of a function can be allowed at once.
    """
    if isinstance(request, CallRequest) and answer.strip().lower() in ("a", "always"):
        return Always(reason=f"{who} said always.")
    if not answer.strip():
        return no(f"{who} said no.")
    match = _ANSWER.fullmatch(answer.strip())
    if match is None:
        return None
    approved, reason = match["yes"] is not None, match["reason"].strip()
    if not (approved or reason):
        return no(f"{who} said no.")
    return ApprovalResponse(approved=approved, reason=reason or f"{who} said yes.")


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
_CHOICES_OF_CALLS: Final = (
    "y, n, n and why (for the code), a for all its calls in this session, or e to edit it [y/N/a/e] "
)
_CHOICES_OF_CHANGES: Final = "A reason may follow. [y/N] "
_HELP: Final = "Please answer y or n; a reason may follow, as in: n because it deletes files\n"
_SETTLE_SECONDS: Final = 0.15

# For the whole process, since all event loops share the terminal.
_terminal = threading.Lock()

standing_yes: Final[ContextVar[str]] = ContextVar("coderoom_standing_yes", default="")
"""The words in which the person at the terminal has agreed to all code beforehand; empty: they are asked."""


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
        if (words := standing_yes.get()) and not isinstance(request, ChangesRequest | CallRequest):
            return ApprovalResponse(approved=True, reason=words)
        if isinstance(request, CallRequest) and request.always:
            return _said_always(request)
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
        # Time for a program that shows the conversation on the same terminal.
        await asyncio.sleep(_SETTLE_SECONDS)
        await self._show(descriptor, request, request.code)
        editable, made, unclear = not isinstance(request, ChangesRequest), None, 0
        choices = _CHOICES_OF_CALLS if isinstance(request, CallRequest) else _CHOICES
        while unclear < TRIES:
            say(f"{_prompt(self._prompt, request)} {choices if editable else _CHOICES_OF_CHANGES}")
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
            response = understand(line, "A person at the terminal", request)
            if response is not None:
                return made if made is not None and response.approved else response
            unclear += 1
            say(_HELP)
        return no(_UNCLEAR)

    async def _show(self, descriptor: int, request: ApprovalRequest, code: str) -> None:
        # In a thread: highlighting takes time, and writing to a terminal may block.
        if isinstance(request, CallRequest):
            if request.block:
                await call_in_thread(show_code, request.block, "The code that makes the call")
            await call_in_thread(show_code, code, request.title)
        else:
            await call_in_thread(show_code, code)
        discard_typed_ahead(descriptor)


def _prompt(prompt: str, request: ApprovalRequest) -> str:
    is_default = prompt == DEFAULT_PROMPT and isinstance(request, CallRequest)
    return "Make this call?" if is_default else prompt


def _said_always(request: CallRequest) -> ApprovalResponse:
    reason = f"A person has said yes to all calls of {request.function}() in this session."
    return ApprovalResponse(approved=True, reason=reason)


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


InputFunc = Callable[[str], str | Awaitable[str]] | Callable[[str, CancellationToken | None], Awaitable[str]]
"""The input function of AutoGen's `UserProxyAgent`: it takes the question, if async also a token, and answers."""

_HOW: Final = "Answer yes or no (why, as in: no because it deletes files, goes to the model), or edit: and other code."
_HOW_OF_CALLS: Final = (
    "Answer yes or no (why, as in: no because it is too much, goes to the code), always (for all calls of this "
    "function in this session), or edit: and the call with other arguments."
)
_HOW_OF_CHANGES: Final = "Answer yes or no; a reason may follow, as in: no because it deletes files."
_EDIT: Final = re.compile(r"e(?:dit)?[ \t]*:(?P<code>.*)", re.IGNORECASE | re.DOTALL)
_FOLD: Final = "\u21b3"
_WIDTH: Final = 64
"""The characters of a line that fit into a message of AutoGen Studio's page."""
_SHORT: Final = 300
"""The characters of a message that this page shows without a click."""
_turns: WeakKeyDictionary[Any, WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
_AGAIN: Final = "That was neither a yes nor a no; a yes with a condition does not count."


class InputApproval(Approval):
    """Asks a person through an input function like that of AutoGen's `UserProxyAgent`.

    Somebody who watches the run may answer instead, on the page of `coderoom runs serve`.

    The question contains the whole code, with symbols for control and invisible characters, and long lines folded. The
    answer is `yes` or `no`, with an optional reason, which the model gets after a no; or `edit:` and then other code,
    about which the question is asked again. That code needs a fence if there are several blocks. Answers that AutoGen
    Studio received before the question are dropped. Questions through the same function are asked one after the other.

    Without an answer the code does not run: an error of the function, the end of its input, three unclear answers and
    the timeout count as a no, with a reason. A cancellation ends the question at once, even if the function ignores its
    token.

    Args:
        input_func: Returns the person's answer to a question. An async function also gets a cancellation token. A sync
            function runs in its own thread.
        timeout: The seconds to wait for the answer; `None` for no limit.
        prompt: The question.
        show: Called with each question before it is asked, for programs whose input function does not show it.
    """

    def __init__(
        self,
        input_func: InputFunc,
        timeout: float | None = 300.0,
        prompt: str = DEFAULT_PROMPT,
        *,
        show: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._input_func: Callable[..., Any] = input_func
        self._timeout = timeout
        self._prompt = prompt
        self._show = show

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Show the code and wait for the person's answer. Only a cancellation is raised."""
        if isinstance(request, CallRequest) and request.always:
            return _said_always(request)
        limit = asyncio.timeout(self._timeout)
        try:
            # One question at a time, so that no answer counts for another one.
            async with _turn(self._input_func), limit:
                return await self._ask(request)
        except EOFError:
            return no("The input ended before a person answered.")
        except Exception as error:
            if limit.expired():
                return no(f"No person answered within {self._timeout:g} seconds.")
            return no(f"The person could not be asked: {type(error).__name__}: {error}")

    async def _ask(self, request: ApprovalRequest) -> ApprovalResponse:
        editable, prompt = not isinstance(request, ChangesRequest), _prompt(self._prompt, request)
        how = _HOW_OF_CALLS if isinstance(request, CallRequest) else _HOW if editable else _HOW_OF_CHANGES
        shown, made = _shown_request(request, request.code), None
        question = f"{prompt} {how}\n\n{shown}"
        for _ in range(TRIES):
            if self._show is not None:
                await self._show(question)
            code = text_to_edit(request.code if made is None else made.code) if editable else ""
            answer = await self._answer(f"{question}\n\n{prompt} ", shown, code)
            if not isinstance(answer, str):
                return no(f"The input function answered with {type(answer).__name__} where a text was expected.")
            problem = _AGAIN
            if editable and (edit := _EDIT.fullmatch(answer.strip())):
                try:
                    made = _read_edit(edit["code"], request)
                    # Asked about again: a page may have lost the ends of the lines.
                    shown = _shown_request(request, made.code)
                    question = f"{prompt} {how}\n\n{shown}"
                    continue
                except ValueError as error:
                    problem = f"{error} Nothing has run."
                    shown = f"{problem}\n\n{shown}"
            elif (response := understand(answer, "A person", request)) is not None:
                return made if made is not None and response.approved else response
            question = f"{problem} {prompt} {how}"
        return no(_UNCLEAR)

    async def _answer(self, question: str, shown: str, code: str) -> object:
        """Call the input function, which is abandoned if it ignores its cancellation; or who watches the run answers.

        They see what is `shown`, know how to answer, and may edit the code.
        """
        forget_early_answers(self._input_func)
        token = CancellationToken()
        arguments = (question, token) if is_async(self._input_func) else (question,)
        try:
            return await first_of(call(self._input_func, *arguments), answer_elsewhere(shown, code))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise EOFError from None
        finally:
            token.cancel()


async def first_of(*asked: Coroutine[Any, Any, T]) -> T:
    """What the first of several ends with. The others are cancelled, and left alone if they ignore that."""
    tasks = [asyncio.create_task(each) for each in asked]
    for task in tasks:
        task.add_done_callback(retrieve_exception)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    return next(task for task in tasks if task in done).result()


async def _nobody(question: str, token: CancellationToken | None) -> str:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable: it is never done")


def _read_edit(code: str, request: ApprovalRequest) -> Edited:
    if _FOLD in code and _FOLD not in request.code:
        raise ValueError(f"It has a {_FOLD}, at which the question has folded a long line: write that line as a whole.")
    return edited_answer(code.lstrip(" \t").strip("\n"), request)


def _turn(input_func: Callable[..., object]) -> asyncio.Lock:
    # A bound method is a new object each time.
    owner = getattr(input_func, "__self__", input_func)
    try:
        turns = _turns.setdefault(owner, WeakKeyDictionary())
    except TypeError:  # Without weak references; such objects are not shared.
        return asyncio.Lock()
    # A lock belongs to one event loop.
    return turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _shown_request(request: ApprovalRequest, code: str) -> str:
    if not isinstance(request, CallRequest):
        return _shown(code)
    made_by = f"\n\n{_shown(request.block, 'The code that makes it')}" if request.block else ""
    return f"{request.title}. {_shown(code, 'The call')}{made_by}"


def _shown(code: str, what: str = "The code that waits") -> str:
    """The size of the code, since a page may cut long texts, and its blocks, marked `no-run`."""
    blocks = extract_code_blocks(code)
    exact = "\n\n".join(fence(block.code, block.tag) for block in blocks) == code
    # Show the text as it is if its blocks are not all of it.
    parts = [(block.code, block.tag) for block in blocks] if exact else [(code, "text")]
    lines = sum(len(visible(part, exact=True).splitlines()) for part, _ in parts)
    body = "\n\n".join(fence(_folded(visible(part, exact=True)), tag, "no-run") for part, tag in parts)
    size = f"{what} has {lines} line{'' if lines == 1 else 's'}"
    if _FOLD in body:
        size += f"; at {_FOLD} a long one goes on"
    if len(body) > _SHORT:
        size += "; open this message to see all of it"
    return f"{size}:\n\n{body}"


def _folded(code: str) -> str:
    """The code with long lines folded, so that their ends are visible on a page."""
    folded = []
    for line in code.replace(_FOLD, f"<U+{ord(_FOLD):04X}>").split("\n"):
        wide = line.expandtabs(8)
        folded.append(line if cell_len(wide) <= _WIDTH else f"\n{_FOLD} ".join(chop_cells(wide, _WIDTH - 2)))
    return "\n".join(folded)
