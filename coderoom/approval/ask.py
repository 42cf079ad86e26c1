"""Asking for approval, whatever kind of callable was given, so that nothing but a yes is a yes."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from autogen_agentchat.agents import ApprovalFuncType, ApprovalRequest, ApprovalResponse

from coderoom.approval.base import Approval, as_response, no

__all__ = ["ask_approval", "call_in_thread", "is_async"]

_log = logging.getLogger("coderoom.approval")

T = TypeVar("T")


async def ask_approval(
    approval: Approval | ApprovalFuncType | Callable[[ApprovalRequest], object],
    request: ApprovalRequest,
    *,
    timeout: float | None = None,
) -> ApprovalResponse:
    """Ask whether code may run, and fail closed.

    Functions that are not async run in a thread of their own, with the caller's context variables, so that one that
    waits for a person holds up nobody. After a timeout or a cancel such a thread is left behind and what it returns
    is dropped; it does not keep the interpreter from ending, but one left in `input()` on a pipe makes it abort there,
    so ask people through `HumanApproval`. An awaitable that a function returns is awaited on the event loop.

    Args:
        approval: An `Approval`, or any callable, async or not, that takes the request and returns an
            `ApprovalResponse` or a bool.
        request: What is asked for.
        timeout: After how many seconds to stop waiting; `None` for no limit.

    Returns:
        The answer. A timeout, an exception and an answer of another type are each a no, with the reason.

    Raises:
        asyncio.CancelledError: If the caller was cancelled.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            answer = await _answer(approval, request)
    except Exception as error:
        if not limit.expired():
            _log.warning("An approval failed, so the code does not run.", exc_info=True)
            return no(f"The approval failed: {type(error).__name__}: {error}")
    # Also for one that did not let itself be cancelled: a yes that comes late is none.
    if limit.expired():
        return no(f"The approval did not answer within {timeout:g} seconds.")
    return as_response(answer)


async def _answer(approval: Callable[[ApprovalRequest], object], request: ApprovalRequest) -> object:
    answer = approval(request) if is_async(approval) else await call_in_thread(approval, request)
    return await answer if inspect.isawaitable(answer) else answer


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call_in_thread(function: Callable[..., T], *args: object) -> T:
    """Call `function` in a daemon thread of its own.

    `asyncio.to_thread` would not do: `asyncio.run` and the interpreter wait at their end for the threads of its pool,
    and so for a function that never returns.
    """
    loop = asyncio.get_running_loop()
    # A pair, since a future refuses to hold a `StopIteration`, and then nobody would ever be told.
    outcome: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if outcome.done():
            _drop(value)
        else:
            outcome.set_result((value, error))

    def work() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = context.run(function, *args)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(deliver, value, failure)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _drop(value)

    threading.Thread(target=work, name="coderoom-approval", daemon=True).start()
    result, failure = await outcome
    if failure is not None:
        raise failure
    return result  # type: ignore[return-value]  # without a failure it is what the function returned


def _drop(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()
