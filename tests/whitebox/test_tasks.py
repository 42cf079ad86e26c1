"""Waiting for work: what ends with a token, what is finished, and limits that can be paused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

import pytest
from autogen_core import CancellationToken

from coderoom._util.tasks import (
    LARGE,
    Deadline,
    all_of,
    aside,
    await_with_token,
    cancel_and_wait,
    is_large,
    pausing_deadlines,
    run_uncancellable,
    together,
    within,
)


async def test_a_token_ends_what_is_waited_for_before_and_after_it_began() -> None:
    before, later = CancellationToken(), CancellationToken()
    before.cancel()
    asyncio.get_running_loop().call_soon(later.cancel)
    for token in (before, later):
        with pytest.raises(asyncio.CancelledError):
            await await_with_token(asyncio.sleep(60), token)
    assert await await_with_token(asyncio.sleep(0, "done"), CancellationToken()) == "done"


async def test_works_are_done_a_few_at_a_time_and_all_of_them_before_one_fails() -> None:
    begun: list[int] = []
    most = running = 0

    def work(number: int) -> Callable[[], Awaitable[int]]:
        async def do() -> int:
            nonlocal most, running
            begun.append(number)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            if number == 1:
                raise ValueError(number)
            return number

        return do

    with pytest.raises(ValueError, match="1"):
        await all_of(map(work, range(5)), 2)
    assert (begun, most, running) == ([0, 1, 2, 3, 4], 2, 0)
    assert await all_of(map(work, (4, 2)), 2) == [4, 2]


async def test_a_failure_ends_what_is_done_at_the_same_time() -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("other")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await together([other(), fails()])
    assert ended == ["other"]


async def test_what_must_be_finished_is_finished_before_the_cancellation() -> None:
    go_on, done = asyncio.Event(), []

    async def work() -> None:
        await go_on.wait()
        done.append("work")

    task = asyncio.ensure_future(run_uncancellable(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]


async def test_a_task_that_does_not_end_is_left_to_itself_after_a_while() -> None:
    go_on = asyncio.Event()
    deaf = asyncio.ensure_future(run_uncancellable(go_on.wait()))
    await asyncio.sleep(0)
    await cancel_and_wait(deaf, patience=0.01)
    assert not deaf.done()
    go_on.set()
    await cancel_and_wait(deaf)
    assert deaf.cancelled()


@dataclass
class Message:
    """A message of AutoGen has its text in `content`, or a picture in `image`."""

    content: Any = None
    image: Any = None


@dataclass
class Picture:
    width: int
    height: int


@dataclass
class Call:
    arguments: str


@pytest.mark.parametrize("of", [str, lambda text: [{"a": (text,)}], lambda text: Message([Call(text)])])
async def test_much_text_is_looked_at_in_a_thread(of: Callable[[str], Any]) -> None:
    for size, large in ((LARGE // 2, False), (LARGE + 1, True)):
        assert is_large(of("x" * size)) is large
        assert (await aside(lambda _: current_thread(), of("x" * size)) is main_thread()) is not large
    assert is_large(*["x" * 1000] * (LARGE // 1000 + 1))
    assert [is_large(Message(image=Picture(width, 1000))) for width in (50, 51)] == [False, True]


async def test_a_limit_does_not_run_while_it_is_paused() -> None:
    late = asyncio.Event()
    deadline = Deadline(0.02, late.set)
    with within(deadline):
        with pausing_deadlines(), deadline.paused():
            await asyncio.sleep(0.05)
        assert not late.is_set()
        async with asyncio.timeout(10):
            await late.wait()
    late.clear()
    with within(Deadline(0.02, late.set)):
        pass
    with pausing_deadlines():  # It is not around this any more.
        await asyncio.sleep(0.05)
    assert not late.is_set()
