"""A person whom a function reaches: at a page, in a chat, wherever the program has them."""

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
"""What AutoGen's `UserProxyAgent` takes: a function of the question, an async one also of a token, that answers."""

_HOW: Final = "Answer yes or no; a reason may follow, as in: no because it deletes files."
_FOLD: Final = "\u21b3"
_WIDTH: Final = 64
"""What fits into a message on AutoGen Studio's page, in a window of a usual size."""
_SHORT: Final = 300
"""What that page shows of such a message in any case, without being asked for more."""
_turns: WeakKeyDictionary[Any, WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
_AGAIN: Final = "That was neither a yes nor a no, and a yes with a condition is none."


class InputApproval(Approval):
    """Asks a person through an input function, such as AutoGen's `UserProxyAgent` has.

    The question holds the whole code, with control characters and invisible ones shown as such, and long lines folded.
    The answer is `yes` or `no`, with a reason if the person likes. What AutoGen Studio was told before the question
    was sent is dropped. Several agents that ask through the same function get the person one after the other.

    Without an answer the code does not run: an error of the function, the end of its input, an answer that is not
    understood three times and the timeout are each a no, with the reason. A cancel ends the question at once, also if
    the function does not look at its token.

    Args:
        input_func: Gives the person's answer to a question. An async function also gets a cancellation token. One that
            is not async runs in a thread of its own.
        timeout: How many seconds the person has; `None` for no limit.
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
        """Show the code and wait for the person's answer. It never raises but for a cancel."""
        limit = asyncio.timeout(self._timeout)
        try:
            async with _turn(self._input_func), limit:  # Else the answer to one question could count for another.
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
        """What the input function answers. It is a task of its own, and left alone if it does not let go."""
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
    # Of a bound method there is a new one each time.
    owner = getattr(input_func, "__self__", input_func)
    try:
        turns = _turns.setdefault(owner, WeakKeyDictionary())
    except TypeError:  # Nobody else can have the same.
        return asyncio.Lock()
    # A lock stays with the event loop in which somebody has waited for it.
    return turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def _shown(code: str) -> str:
    """The code, each block in a fence that nobody runs, behind its size: a page may cut off long texts."""
    blocks = extract_code_blocks(code)
    exact = "\n\n".join(fence(block.code, block.tag) for block in blocks) == code
    # What cannot be taken apart and put together again is shown as it stands.
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
    """The code with long lines folded: what is pushed out to the right of a page must be seen too."""
    lines = code.replace(_FOLD, f"<U+{ord(_FOLD):04X}>").split("\n")
    return "\n".join(f"\n{_FOLD} ".join(_in_width(line)) for line in lines)


def _in_width(line: str) -> list[str]:
    wide = line.expandtabs(8)
    return [line] if cell_len(wide) <= _WIDTH else chop_cells(wide, _WIDTH - 2)


def _look_at(call: asyncio.Future[object]) -> None:
    # So that nobody complains of the error of a function that nobody waits for any more.
    if not call.cancelled():
        call.exception()
