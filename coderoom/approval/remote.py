"""`InputApproval`: a person who is asked through a function, on a web page or in a chat for instance."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import CancellationToken
from rich.cells import cell_len, chop_cells

from coderoom._util.autogen import forget_early_answers
from coderoom._util.text import visible
from coderoom.approval.base import Approval, call_in_thread, is_async, no
from coderoom.approval.human import DEFAULT_PROMPT, TRIES, not_understood, understand
from coderoom.blocks import extract_code_blocks, fence

__all__ = ["InputApproval", "InputFunc"]

InputFunc = Callable[[str], str | Awaitable[str]] | Callable[[str, CancellationToken | None], Awaitable[str]]
"""The input function of AutoGen's `UserProxyAgent`: it takes the question, if async also a token, and answers."""

_HOW: Final = "Answer yes or no; a reason may follow, as in: no because it deletes files."
_FOLD: Final = "\u21b3"
_WIDTH: Final = 64
"""The characters of a line that fit into a message of AutoGen Studio's page."""
_SHORT: Final = 300
"""The characters of a message that this page shows without a click."""
_turns: WeakKeyDictionary[Any, WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
_AGAIN: Final = "That was neither a yes nor a no; a yes with a condition does not count."


class InputApproval(Approval):
    """Asks a person through an input function like that of AutoGen's `UserProxyAgent`.

    The question contains the whole code, with symbols for control and invisible characters, and long lines folded. The
    answer is `yes` or `no`, with an optional reason. Answers that AutoGen Studio received before the question are
    dropped. Questions through the same function are asked one after the other.

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
        limit = asyncio.timeout(self._timeout)
        try:
            async with (
                _turn(self._input_func),
                limit,
            ):  # One question at a time, so that no answer counts for another one.
                return await self._ask(request.code)
        except EOFError:
            return no("The input ended before a person answered.")
        except Exception as error:
            if limit.expired():
                return no(f"No person answered within {self._timeout:g} seconds.")
            return no(f"The person could not be asked: {type(error).__name__}: {error}")

    async def _ask(self, code: str) -> ApprovalResponse:
        question = f"{self._prompt} {_HOW}\n\n{_shown(code)}"
        for _ in range(TRIES):
            if self._show is not None:
                await self._show(question)
            answer = await self._answer(f"{question}\n\n{self._prompt} ")
            if not isinstance(answer, str):
                return no(f"The input function answered with {type(answer).__name__} where a text was expected.")
            response = understand(answer, "A person")
            if response is not None:
                return response
            question = f"{_AGAIN} {self._prompt} {_HOW}"
        return not_understood()

    async def _answer(self, question: str) -> object:
        """Call the input function in a task, which is abandoned if it ignores its cancellation."""
        forget_early_answers(self._input_func)
        token = CancellationToken()
        call = asyncio.ensure_future(self._call(question, token))
        call.add_done_callback(_look_at)
        try:
            await asyncio.wait({call})
        finally:
            if not call.done():
                token.cancel()
                call.cancel()
        if call.cancelled():
            raise EOFError
        return call.result()

    async def _call(self, question: str, token: CancellationToken) -> object:
        if is_async(self._input_func):
            return await self._input_func(question, token)
        answer = await call_in_thread(self._input_func, question)
        return await answer if inspect.isawaitable(answer) else answer


def _turn(input_func: Callable[..., object]) -> asyncio.Lock:
    # A bound method is a new object each time.
    owner = getattr(input_func, "__self__", input_func)
    try:
        turns = _turns.setdefault(owner, WeakKeyDictionary())
    except TypeError:  # Without weak references; such objects are not shared.
        return asyncio.Lock()
    # A lock belongs to one event loop.
    return turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _shown(code: str) -> str:
    """The size of the code, since a page may cut long texts, and its blocks, marked `no-run`."""
    blocks = extract_code_blocks(code)
    exact = "\n\n".join(fence(block.code, block.tag) for block in blocks) == code
    # Show the text as it is if its blocks are not all of it.
    parts = [(block.code, block.tag) for block in blocks] if exact else [(code, "text")]
    lines = sum(len(visible(part).splitlines()) for part, _ in parts)
    body = "\n\n".join(fence(_folded(visible(part)), tag, "no-run") for part, tag in parts)
    size = f"The code that waits has {lines} line{'' if lines == 1 else 's'}"
    if _FOLD in body:
        size += f"; at {_FOLD} a long one goes on"
    if len(body) > _SHORT:
        size += "; open this message to see all of it"
    return f"{size}:\n\n{body}"


def _folded(code: str) -> str:
    """The code with long lines folded, so that their ends are visible on a page."""
    lines = code.replace(_FOLD, f"<U+{ord(_FOLD):04X}>").split("\n")
    return "\n".join(f"\n{_FOLD} ".join(_in_width(line)) for line in lines)


def _in_width(line: str) -> list[str]:
    wide = line.expandtabs(8)
    return [line] if cell_len(wide) <= _WIDTH else chop_cells(wide, _WIDTH - 2)


def _look_at(call: asyncio.Future[object]) -> None:
    # Retrieved, so that asyncio does not log it.
    if not call.cancelled():
        call.exception()
