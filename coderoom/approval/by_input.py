"""A person decides through a function, such as that of AutoGen's `UserProxyAgent`: `InputApproval`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import CancellationToken
from rich.cells import cell_len, chop_cells

from coderoom._util.autogen import forget_early_answers
from coderoom._util.tasks import retrieve_exception
from coderoom._util.text import visible
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
    text_to_edit,
    understand,
)
from coderoom.approval.base import Approval, call, is_async
from coderoom.approval.calls import CallRequest
from coderoom.blocks import extract_code_blocks, fence
from coderoom.steps import AskedAbout, answer_elsewhere

T = TypeVar("T")

InputFunc = Callable[[str], str | Awaitable[str]] | Callable[[str, CancellationToken | None], Awaitable[str]]
"""The input function of AutoGen's `UserProxyAgent`: it takes the question, if async also a token, and answers."""

_HOW: Final[dict[AskedAbout, str]] = {
    "code": "Answer yes or no (why, as in: no because it deletes files, goes to the model), or edit: and other code.",
    "call": "Answer yes or no (why, as in: no because it is too much, goes to the code), always (for all calls of this "
    "function in this session), or edit: and the call with other arguments.",
    "changes": "Answer yes or no; a reason may follow, as in: no because it deletes files.",
}
_EDIT: Final = re.compile(r"e(?:dit)?[ \t]*:(?P<code>.*)", re.IGNORECASE | re.DOTALL)
_FOLD: Final = "\u21b3"
_WIDTH: Final = 64
"""The characters of a line that fit into a message of AutoGen Studio's page."""
_SHORT: Final = 300
"""The characters of a message that this page shows without a click."""
_turns: WeakKeyDictionary[Any, WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
_AGAIN: Final = "That was neither a yes nor a no; a yes with a condition does not count."


class ApprovalQuestion(str):
    """The text of a question, as an input function gets it.

    Args:
        text: The text.
        subject: The part that is the same whenever this is asked: the place of a call is shown once a session.
    """

    def __new__(cls, text: str, subject: str) -> ApprovalQuestion:
        """As `str`."""
        made = super().__new__(cls, text)
        made.subject = subject
        return made

    subject: str


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
            return said_always(request)
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
        about, prompt = _about(request), prompt_for(self._prompt, request)
        editable, how = about != "changes", _HOW[about]
        place, made = _shown_place(request), None
        shown = _shown_request(request, request.code)
        subject = f"{prompt} {how}\n\n{shown}"
        question, shown = subject + place, shown + place
        for _ in range(TRIES):
            if self._show is not None:
                await self._show(question)
            code = text_to_edit(request.code if made is None else made.code) if editable else ""
            asked = ApprovalQuestion(f"{question}\n\n{prompt} ", subject)
            who, answer = await self._answer(asked, shown, code, about)
            if not isinstance(answer, str):
                return no(f"The input function answered with {type(answer).__name__} where a text was expected.")
            problem = _AGAIN
            if editable and (edit := _EDIT.fullmatch(answer.strip())):
                try:
                    made = _read_edit(edit["code"], request)
                    # Asked about again: a page may have lost the ends of the lines.
                    shown = _shown_request(request, made.code)
                    question = subject = f"{prompt} {how}\n\n{shown}"
                    continue
                except ValueError as error:
                    problem = f"{error} Nothing has run."
                    shown = f"{problem}\n\n{shown}"
            elif (response := understand(answer, "A person", request)) is not None:
                decided_by(who)
                return about_edited(made, response)
            question = f"{problem} {how}"
        return no(UNCLEAR)

    async def _answer(self, question: str, shown: str, code: str, about: AskedAbout) -> tuple[str, object]:
        """Call the input function, which is abandoned if it ignores its cancellation; or who watches the run answers.

        It returns who that was, and the answer. They see what is `shown`, know how to answer, and may edit the code.
        """
        forget_early_answers(self._input_func)
        token = CancellationToken()
        arguments = (question, token) if is_async(self._input_func) else (question,)
        try:
            return await first_of(
                _of("a person", call(self._input_func, *arguments)),
                _of("a person on the page of the run", answer_elsewhere(shown, code, about)),
            )
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


async def _of(who: str, asked: Coroutine[Any, Any, T]) -> tuple[str, T]:
    return who, await asked


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


def _about(request: ApprovalRequest) -> AskedAbout:
    if isinstance(request, CallRequest):
        return "call"
    return "changes" if isinstance(request, ChangesRequest) else "code"


def _shown_request(request: ApprovalRequest, code: str) -> str:
    return f"{request.title}. {_shown(code, 'The call')}" if isinstance(request, CallRequest) else _shown(code)


def _shown_place(request: ApprovalRequest) -> str:
    """What makes a call, to be shown after it: the code, or its lines if the code was shown before."""
    if not isinstance(request, CallRequest):
        return ""
    if request.block and request.is_new_to("input"):
        return f"\n\n{_shown(request.block, 'The code that makes it')}"
    if not (lines := request.lines()):
        return ""
    where = f"It is made by the code that was shown before, which calls {request.function}() here:"
    shown = _folded(visible("\n".join(lines), exact=True))
    return f"\n\n{where}\n\n{fence(shown, 'text', 'no-run')}"


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
