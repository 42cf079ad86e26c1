from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coderoom.approval import (
    AlwaysApprove,
    Approval,
    ApprovalRequest,
    ApprovalResponse,
    FinalNo,
    NeverApprove,
    ask_approval,
)

REQUEST = ApprovalRequest(code="print(1)", context=[])
YES = ApprovalResponse(approved=True, reason="fine")


def say_yes(request: ApprovalRequest) -> ApprovalResponse:
    assert request is REQUEST
    return YES


async def say_yes_async(request: ApprovalRequest) -> ApprovalResponse:
    await asyncio.sleep(0)
    return say_yes(request)


def say_yes_soon(request: ApprovalRequest) -> Any:
    return say_yes_async(request)


def configured(flag: bool, request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=flag, reason="configured")


async def configured_async(flag: bool, request: ApprovalRequest) -> ApprovalResponse:
    return configured(flag, request)


class AsyncObject:
    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return await say_yes_async(request)

    async def method(self, request: ApprovalRequest) -> ApprovalResponse:
        return await say_yes_async(request)


class SyncObject:
    def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return say_yes(request)


class Undecided(Approval):
    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        return None


@pytest.mark.parametrize(
    "approval",
    [
        say_yes,
        say_yes_async,
        say_yes_soon,
        AsyncObject(),
        AsyncObject().method,
        SyncObject(),
        functools.partial(configured, True),
        functools.partial(configured_async, True),
        functools.partial(functools.partial(configured_async), True),
        functools.partial(AsyncObject()),
        lambda request: True,
        AlwaysApprove(),
    ],
)
async def test_every_kind_of_callable_may_say_yes(approval: Callable[[ApprovalRequest], object]) -> None:
    assert (await ask_approval(approval, REQUEST)).approved is True


@pytest.mark.parametrize(
    "approval",
    [
        functools.partial(configured, False),
        functools.partial(configured_async, False),
        lambda request: False,
        NeverApprove(),
        Undecided(),
    ],
)
async def test_every_kind_of_callable_may_say_no(approval: Callable[[ApprovalRequest], object]) -> None:
    answer = await ask_approval(approval, REQUEST)
    assert answer.approved is False
    assert answer.reason


async def test_ce14_an_async_callable_object_is_awaited() -> None:
    assert await ask_approval(AsyncObject(), REQUEST) == YES


async def test_ce14_a_sync_approval_does_not_block_the_event_loop() -> None:
    ticks = 0
    released = threading.Event()

    def wait_for_the_loop(request: ApprovalRequest) -> ApprovalResponse:
        # Only the event loop can let it go on: if the loop were blocked, this would be a no.
        return ApprovalResponse(approved=released.wait(30), reason="")

    async def tick() -> None:
        nonlocal ticks
        while ticks < 5:
            await asyncio.sleep(0.01)
            ticks += 1
        released.set()

    ticker = asyncio.create_task(tick())
    answer = await ask_approval(wait_for_the_loop, REQUEST)
    await ticker
    assert answer.approved
    assert ticks == 5


async def test_ce14_a_timeout_is_a_no() -> None:
    never = threading.Event()
    answer = await ask_approval(lambda request: never.wait(30), REQUEST, timeout=0.05)
    never.set()
    assert answer.approved is False
    assert "0.05 seconds" in answer.reason


async def test_ce14_a_timeout_is_a_no_for_async_approvals_too() -> None:
    async def sleep(request: ApprovalRequest) -> ApprovalResponse:
        await asyncio.sleep(30)
        return YES

    answer = await ask_approval(sleep, REQUEST, timeout=0.05)
    assert answer.approved is False
    assert "0.05 seconds" in answer.reason


async def test_a_yes_after_the_timeout_is_none() -> None:
    async def stubborn(request: ApprovalRequest) -> ApprovalResponse:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return YES

    assert (await ask_approval(stubborn, REQUEST, timeout=0.05)).approved is False


async def test_the_approvals_own_timeout_error_is_told_as_what_it_is() -> None:
    def gave_up(request: ApprovalRequest) -> ApprovalResponse:
        raise TimeoutError("the pager is off")

    answer = await ask_approval(gave_up, REQUEST, timeout=30)
    assert answer == FinalNo(reason="The approval failed: TimeoutError: the pager is off")


async def test_what_a_thread_left_behind_returns_is_dropped() -> None:
    go_on = threading.Event()
    threads: list[threading.Thread] = []

    def late(request: ApprovalRequest) -> Any:
        threads.append(threading.current_thread())
        go_on.wait(30)
        return YES

    answer = await ask_approval(late, REQUEST, timeout=0.05)
    assert not answer.approved
    go_on.set()
    threads[0].join(30)
    await asyncio.sleep(0.01)


def test_a_thread_that_outlives_its_event_loop_is_quiet() -> None:
    go_on = threading.Event()
    threads: list[threading.Thread] = []

    def late(request: ApprovalRequest) -> Any:
        threads.append(threading.current_thread())
        go_on.wait(30)
        return YES

    assert not asyncio.run(ask_approval(late, REQUEST, timeout=0.05)).approved
    go_on.set()
    threads[0].join(30)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_exception_is_a_no_that_names_it(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ApprovalRequest) -> ApprovalResponse:
        raise KeyError("no such reviewer")

    async def broken_async(request: ApprovalRequest) -> ApprovalResponse:
        return broken(request)

    with caplog.at_level(logging.WARNING, logger="coderoom.approval"):
        answer = await ask_approval(broken if kind == "sync" else broken_async, REQUEST)
    assert answer.approved is False
    assert "KeyError" in answer.reason
    assert "no such reviewer" in answer.reason
    assert any(record.levelno == logging.WARNING and record.exc_info for record in caplog.records)


async def test_an_exhausted_iterator_is_a_no_and_no_hang() -> None:
    answers: Iterator[ApprovalResponse] = iter([])
    answer = await asyncio.wait_for(ask_approval(lambda request: next(answers), REQUEST), 30)
    assert answer.approved is False
    assert "StopIteration" in answer.reason


async def test_a_cancel_passes() -> None:
    started = asyncio.Event()

    async def sleep(request: ApprovalRequest) -> ApprovalResponse:
        started.set()
        await asyncio.sleep(30)
        return YES

    asking = asyncio.create_task(ask_approval(sleep, REQUEST, timeout=30))
    await started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_cancel_passes_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    go_on = threading.Event()

    def wait(request: ApprovalRequest) -> bool:
        loop.call_soon_threadsafe(started.set)
        return go_on.wait(30)

    asking = asyncio.create_task(ask_approval(wait, REQUEST))
    await started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go_on.set()


@pytest.mark.parametrize(
    ("value", "name"), [("yes", "str"), (1, "int"), (None, "NoneType"), ({"approved": True}, "dict")]
)
async def test_an_answer_of_another_type_is_a_no_that_names_it(value: object, name: str) -> None:
    answer = await ask_approval(lambda request: value, REQUEST)
    assert answer.approved is False
    assert name in answer.reason


async def test_context_variables_reach_the_thread() -> None:
    user = contextvars.ContextVar[str]("user")
    user.set("ada")
    answer = await ask_approval(lambda request: ApprovalResponse(approved=True, reason=user.get()), REQUEST)
    assert answer.reason == "ada"


@pytest.mark.slow
def test_an_approval_that_never_returns_does_not_keep_the_interpreter() -> None:
    script = textwrap.dedent("""
        import asyncio, threading
        from coderoom.approval import ApprovalRequest, ask_approval

        def forever(request):
            threading.Event().wait()

        request = ApprovalRequest(code="x", context=[])
        print(asyncio.run(ask_approval(forever, request, timeout=0.1)).approved)
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "False\n"), run.stderr


async def test_many_sync_approvals_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(12)

    def meet(request: ApprovalRequest) -> bool:
        together.wait(30)
        return True

    answers = await asyncio.gather(*(ask_approval(meet, REQUEST) for _ in range(12)))
    assert all(answer.approved for answer in answers)
