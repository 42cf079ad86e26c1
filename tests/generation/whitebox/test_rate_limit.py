"""Requests of one generator begin no more often than they may, however many event loops and threads ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from coderoom.generation import AICodeGenerator
from coderoom.models.rates import RateLimiter
from tests.support import openai_server as server

from ..scripted import ScriptedModel, function, test

PER_MINUTE = 60
SECONDS = 60 / PER_MINUTE


def spaced(begin: float, times: list[float], seconds: float) -> bool:
    """Whether none came before its turn; a busy machine makes them later only."""
    return all(each >= begin + number * seconds - 0.001 for number, each in enumerate(sorted(times)))


def side_by_side(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_loops_of_several_threads_share_one_pace() -> None:
    pace, began = RateLimiter(60 / 0.05), list[float]()
    begin = time.monotonic()

    async def ask() -> None:
        await pace.begin()
        began.append(time.monotonic())

    async def ask_often() -> None:
        given_up = asyncio.create_task(ask())
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(ask())
            await asyncio.sleep(0)
            given_up.cancel()

    side_by_side(4, lambda: asyncio.run(ask_often()))
    assert 4 * 6 <= len(began) <= 4 * 7
    assert spaced(begin, began, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_a_server_sees_it(threads: int) -> None:
    tests = {"double": [test("two", 4, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)]}
    model = ScriptedModel([function("double")], tests, {"double": "def double(x):\n    return 2 * x"})
    came: list[float] = []

    def respond(request: server.Request) -> server.Step | str:
        came.append(time.monotonic())
        if "response_format" in request.body:
            return server.Failure(400, message="no response_format")
        return model.respond(request)

    with server.OpenAIServer(respond=respond) as place:
        generator = AICodeGenerator(
            model="gpt-4o", api_key="test", base_url=place.base_url, cache=False, requests_per_minute=PER_MINUTE
        )

        async def solve() -> None:
            try:
                async with asyncio.timeout(60):
                    solution = await generator.generate_solution("Double a number.")
            finally:
                await generator.close()
            assert solution.all_tests_passed, solution.missing
            solved.append(True)

        solved: list[bool] = []
        begin = time.monotonic()
        side_by_side(threads, lambda: asyncio.run(solve()))
    assert len(solved) == threads
    assert len(came) > 3 * threads, "a request that the server refuses is asked again without a schema"
    assert spaced(begin, came, SECONDS)
