"""Approvals: the base class, `AlwaysApprove`, `NeverApprove`, `ChainApproval`, and `ask_approval`, used by agents."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import CodeType, MappingProxyType
from typing import Any, Final, Literal, TypeVar

from autogen_agentchat.agents import ApprovalFuncType, ApprovalRequest, ApprovalResponse
from autogen_core import CancellationToken, Component, ComponentBase, ComponentModel
from pydantic import BaseModel

from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom._util.tasks import await_with_token, call_in_loop
from coderoom.approval.answers import Edited, FinalNo, as_response, no, noting_deciders
from coderoom.approval.calls import Always, CallRequest
from coderoom.errors import BudgetExceeded
from coderoom.models.services import in_words
from coderoom.steps import APPROVAL, once

NOBODY_DECIDED: Final = "No approval had an opinion on this code, and without a yes it does not run."


class Approval(ArgumentsConfig, ABC, ComponentBase[BaseModel]):
    """Decides whether code may run.

    Write your own by implementing `decide`. For use in a team file, derive from `autogen_core.Component[YourConfig]` as
    well and implement `_to_config` and `_from_config`. A subclass is dumped under its own name.

    An approval is callable, so it is a valid `approval_func` for AutoGen's own agents too.
    """

    component_type = "approval"

    @abstractmethod
    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        """Decide on a request.

        Args:
            request: The code, as Markdown with one fence for each block, and the conversation before it.

        Returns:
            The decision, or `None` for no opinion: the next approval of a chain decides.
        """

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        """Decide on a request alone: having no opinion is a no."""
        answer = await self.decide(request)
        return no(NOBODY_DECIDED) if answer is None else as_response(answer)

    # AutoGen's own agent awaits only what `inspect.iscoroutinefunction` accepts; on Python 3.11 that accepts only
    # functions and objects with the attributes of functions.
    __defaults__ = None
    __kwdefaults__ = None

    @property
    def __name__(self) -> str:
        return type(self).__qualname__

    @property
    def __code__(self) -> CodeType:
        return type(self).__call__.__code__

    async def close(self) -> None:
        """Release the approval's resources; it can be used again afterwards."""


class AlwaysApproveConfig(StrictConfig):
    """Config of `AlwaysApprove`."""


class AlwaysApprove(Approval, Component[AlwaysApproveConfig]):
    """Says yes to everything. For code in a sandbox that is trusted."""

    component_config_schema = AlwaysApproveConfig
    component_provider_override = "coderoom.approval.AlwaysApprove"

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Say yes."""
        return ApprovalResponse(approved=True, reason="All code is approved here.")


class NeverApproveConfig(StrictConfig):
    """Config of `NeverApprove`."""

    reason: str = "No code is approved here."


class NeverApprove(Approval, Component[NeverApproveConfig]):
    """Says no to everything: for a dry run, or as the last of a chain.

    Args:
        reason: The reason that people and models see.
    """

    component_config_schema = NeverApproveConfig
    component_provider_override = "coderoom.approval.NeverApprove"

    def __init__(self, reason: str = "No code is approved here.") -> None:
        self._reason = reason

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Say no."""
        return no(self._reason)


class ChainApprovalConfig(StrictConfig):
    """Config of `ChainApproval`."""

    approvals: list[ComponentModel]
    mode: Literal["first", "all"] = "first"


class ChainApproval(Approval, Component[ChainApprovalConfig]):
    """Asks several approvals, one after the other.

    A typical chain has rules for clear cases and a person for the rest:
    `ChainApproval([RuleApproval([...]), HumanApproval()])`.

    Args:
        approvals: The approvals, in order.
        mode: `"first"`: the first approval with an opinion decides. `"all"`: all approvals with an opinion must say
            yes, and the first no ends the chain. Code on which no approval has an opinion does not run; inside another
            chain, that chain goes on.

    Raises:
        TypeError: An item of `approvals` is not an `Approval`.
        ValueError: The mode is unknown.
    """

    component_config_schema = ChainApprovalConfig
    component_provider_override = "coderoom.approval.ChainApproval"

    def __init__(self, approvals: Sequence[Approval], mode: Literal["first", "all"] = "first") -> None:
        for index, approval in enumerate(approvals):
            if not isinstance(approval, Approval):
                raise TypeError(
                    f"approvals[{index}] is {approval!r}, which is not an Approval; to put a function into a chain, "
                    "call it from the `decide` of a subclass of Approval."
                )
        if mode not in ("first", "all"):
            raise ValueError(f"mode must be 'first' or 'all', not {mode!r}.")
        self._approvals = tuple(approvals)
        self._mode: Literal["first", "all"] = mode

    @property
    def members(self) -> Sequence[Approval]:
        """Its approvals, in order."""
        return self._approvals

    def with_members(self, change: Callable[[Any], Any]) -> ChainApproval:
        """The same chain of what this makes of its approvals."""
        return ChainApproval([change(each) for each in self._approvals], self._mode)

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask in order until it is decided."""
        return await self._opinion(request) or no(NOBODY_DECIDED)

    async def _opinion(
        self, request: ApprovalRequest, edited: Edited | None = None, editor: int | None = None
    ) -> ApprovalResponse | None:
        """Ask in order; about code that one of them has `edited`, all but the `editor`."""
        agreed: list[str] = []
        kind: type[ApprovalResponse] = ApprovalResponse
        for place, approval in enumerate(self._approvals):
            # A chain without an opinion leaves the decision to the next approval of the outer chain.
            if place == editor and edited is not None:
                answer: ApprovalResponse | None = ApprovalResponse(approved=True, reason=edited.reason)
            elif isinstance(approval, ChainApproval) and type(approval).decide is ChainApproval.decide:
                answer = await approval._opinion(request)
            else:
                answer = await approval.decide(request.model_copy())  # Which changes it for no other one.
            if answer is None:
                continue
            response = as_response(answer)
            if isinstance(response, Edited):
                if isinstance(request, CallRequest):
                    return await self._opinion(request.edited(response.code), response, place)
                return await self._opinion(request.model_copy(update={"code": response.code}), response, place)
            if not response.approved:
                return response
            if self._mode == "first":
                return edited or response
            agreed.append(response.reason)
            kind = Always if isinstance(response, Always) else kind  # The others are asked again all the same.
        if not agreed:
            return None
        reason = " ".join(filter(None, agreed))
        return edited.model_copy(update={"reason": reason}) if edited else kind(approved=True, reason=reason)

    async def close(self) -> None:
        """Close all approvals of the chain, even if one of them fails."""
        async with AsyncExitStack() as stack:
            for approval in self._approvals:
                stack.push_async_callback(approval.close)


_log = logging.getLogger("coderoom.approval")

T = TypeVar("T")


async def ask_approval(
    approval: Approval | ApprovalFuncType | Callable[[ApprovalRequest], object],
    request: ApprovalRequest,
    *,
    timeout: float | None = None,
) -> ApprovalResponse:
    """Ask whether code may run. Every error counts as a no, but that of a budget.

    Sync functions run in their own thread, with the caller's context variables, so that waiting for a person does not
    block the event loop. After a timeout or a cancellation the thread goes on and its result is dropped. It does not
    prevent the interpreter from ending, except in `input()` on a pipe, where the interpreter aborts; so ask people
    through `HumanApproval`. An awaitable that a function returns is awaited on the event loop.

    Args:
        approval: An `Approval`, or a sync or async callable that takes the request and returns an `ApprovalResponse`
            or a bool.
        request: The request.
        timeout: The seconds to wait for the answer; `None` for no limit.

    Returns:
        The answer. A timeout, an exception and an answer of another type are a no with a reason.

    Raises:
        asyncio.CancelledError: The caller was cancelled.
        BudgetExceeded: A request to the model of the approval is not covered.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            answer = await call(approval, request)
    except BudgetExceeded:
        raise
    except Exception as error:
        if not limit.expired():
            _log.warning("An approval failed, so the code does not run.", exc_info=True)
            return no(in_words("The approval", error))
    # The approval may have ignored its cancellation; a yes after the timeout does not count.
    if limit.expired():
        return no(f"The approval did not answer within {timeout:g} seconds.")
    return as_response(answer)


async def approve_once(
    approval: Approval | ApprovalFuncType,
    request: ApprovalRequest,
    cancellation_token: CancellationToken,
    place: Mapping[str, Any] = MappingProxyType({}),
) -> ApprovalResponse:
    """Ask as a step: in a resumed run, what was decided before is not asked again.

    Args:
        approval: Who is asked.
        request: The question.
        cancellation_token: Ends it.
        place: What tells it apart from equal ones in the run, besides their order.

    Returns:
        The answer. One from before the run was resumed counts for this question only.
    """
    by: list[str] = []

    async def ask() -> ApprovalResponse:
        with noting_deciders() as noted:
            response = await await_with_token(ask_approval(approval, request), cancellation_token)
        by[:] = noted or [getattr(approval, "__name__", type(approval).__name__)]
        return response

    def dump(response: ApprovalResponse) -> dict[str, Any]:
        return {**response.model_dump(), "by": " and ".join(by)}

    def load(found: Mapping[str, Any]) -> ApprovalResponse:
        kind = Edited if "code" in found else FinalNo if "final" in found else ApprovalResponse
        known = kind.model_fields.keys() - {"always"}  # That held in the session of then.
        return kind.model_validate({name: found[name] for name in known if name in found})

    return await once(APPROVAL, {"code": request.code, **place}, ask, dump, load)


async def call(function: Callable[..., object], *arguments: object) -> object:
    """Call a sync function in a thread of its own, or an async one, and return its answer."""
    answer = function(*arguments) if is_async(function) else await call_in_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of the function returns an awaitable."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call_in_thread(function: Callable[..., T], *args: object) -> T:
    """Call `function` in a new daemon thread.

    With `asyncio.to_thread`, `asyncio.run` and the interpreter would wait at their end for a function that never
    returns.
    """
    loop, done, context = asyncio.get_running_loop(), asyncio.Event(), contextvars.copy_context()
    outcome: Future[T] = Future()  # Not asyncio's, which does not accept a `StopIteration`.

    def work() -> None:
        try:
            outcome.set_result(context.run(function, *args))
        except BaseException as error:
            outcome.set_exception(error)
        call_in_loop(loop, done.set)

    threading.Thread(target=work, name="coderoom-approval", daemon=True).start()
    await done.wait()
    return outcome.result()
