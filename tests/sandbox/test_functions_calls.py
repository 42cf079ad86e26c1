"""Calls to functions of the host: side by side, at limits, and at the end of a cell."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import HostFunction, Limits, Sandbox

from .offered import RELEASED, aadd, block, hang, plus, run

pytestmark = pytest.mark.usefixtures("released")


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20)) as sandbox:
        yield sandbox


class Meeting:
    """Functions that end when a number of them are at work at the same time."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.count, self.there, self.all = count, 0, asyncio.Event()

    def meet(self, number: int) -> int:
        self.barrier.wait(20)
        return number

    async def meet_async(self, number: int) -> int:
        self.there += 1
        if self.there == self.count:
            self.all.set()
        await self.all.wait()
        return number


class TestSideBySide:
    @pytest.mark.parametrize(
        "code",
        [
            "import asyncio\nawait asyncio.gather(*(meet_async(i) for i in range(4)))",
            "import asyncio\nawait asyncio.gather(*(asyncio.to_thread(meet, i) for i in range(4)))",
            "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
            "    found = list(pool.map(meet, range(4)))\nfound",
            "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "def work(i):\n    async def both():\n        return await meet_async(i)\n    return asyncio.run(both())\n"
            "with ThreadPoolExecutor(4) as pool:\n    found = list(pool.map(work, range(4)))\nfound",
            "import asyncio, threading\nother = []\n"
            "async def two(begin):\n"
            "    return await asyncio.gather(*(meet_async(i) for i in range(begin, begin + 2)))\n"
            "thread = threading.Thread(target=lambda: other.extend(asyncio.run(two(2))))\nthread.start()\n"
            "own = await two(0)\nthread.join()\nown + other",
        ],
        ids=["gather", "gather of threads", "threads", "an event loop in each thread", "two event loops"],
    )
    async def test_all_at_once(self, sandbox: Sandbox, code: str) -> None:
        meeting = Meeting(4)
        result = await run(sandbox, code, meeting.meet, meeting.meet_async)
        assert result.value == list(range(4)), result.output
        assert len(result.calls) == 4
        assert not result.state_lost

    @pytest.mark.slow
    async def test_many_more_than_are_done_at_a_time(self, sandbox: Sandbox) -> None:
        code = (
            "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "found = await asyncio.gather(*(aadd(i, 1) for i in range(3000)))\n"
            "with ThreadPoolExecutor(16) as pool:\n    found += pool.map(lambda i: add(i, 1), range(1000))\n"
            "sum(found)"
        )
        result = await run(sandbox, code, plus, aadd)
        assert result.value == sum(range(1, 3001)) + sum(range(1, 1001)), result.output

    async def test_large_answers_at_once(self, sandbox: Sandbox) -> None:
        async def give(count: int) -> str:
            return "x" * count

        code = (
            "import asyncio\nfound = await asyncio.gather(*(give(900_000 + i) for i in range(40)))\n"
            "[len(each) - 900_000 for each in found] == list(range(40))"
        )
        result = await run(sandbox, code, give)
        assert result.value is True, result.output

    async def test_both_kinds_together_and_output_between(self, sandbox: Sandbox) -> None:
        code = (
            "import asyncio\n"
            "async def one(i):\n    print(await aadd(i, 0))\n    return add(i, i)\n"
            "await asyncio.gather(*(one(i) for i in range(50)))"
        )
        result = await run(sandbox, code, plus, aadd)
        assert result.value == [2 * i for i in range(50)], result.output
        assert sorted(map(int, result.stdout.split())) == list(range(50))


class TestLimits:
    @pytest.mark.parametrize("count", [0, 1, 5])
    async def test_there_can_be_so_many_calls_in_a_cell(self, count: int) -> None:
        code = (
            "done, said = 0, set()\nfor i in range(count + 3):\n    try:\n        done = add(i, 1)\n"
            "    except RuntimeError as error:\n        said.add(str(error))\n[done, list(said)]"
        )
        async with Sandbox(limits=Limits(calls=count)) as sandbox, sandbox.session(functions=[plus]) as session:
            await session.run(f"count = {count}")
            for _ in range(2):
                result = await session.run(code)
                assert result.value == [
                    count,
                    [f"add(): a cell may make {count} calls, and this one has made them"],
                ], result.output
                outcomes = [call.outcome for call in result.calls]
                assert outcomes == [Outcome.OK] * count + [Outcome.REJECTED]  # The first of those that were too many.

    async def test_those_of_a_crowd_that_are_too_many_are_told_so(self) -> None:
        code = (
            "import asyncio\nfound = await asyncio.gather(*(aadd(i, 1) for i in range(6000)), return_exceptions=True)\n"
            "[sum(isinstance(each, int) for each in found), len({str(e) for e in found if not isinstance(e, int)})]"
        )
        async with Sandbox(limits=Limits(calls=5000)) as sandbox, sandbox.session(functions=[aadd]) as session:
            result = await session.run(code)
            assert result.value == [5000, 1], result.output
            assert len(result.calls) == 5001

    async def test_what_is_relayed_comes_whole_and_counts_but_is_not_logged(self) -> None:
        def relay(text: Any, answer: Callable[[Any], None]) -> None:
            if not text:
                raise ValueError("nothing is relayed")
            asyncio.get_running_loop().call_later(0.01, answer, text + "!")

        def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            return args[0]

        signature = inspect.signature(lambda text: None)
        function = HostFunction("say", signature, "", False, False, check, run=str, relay=relay)
        code = (
            "found = [say('a'), len(say('x' * 200_000))]\n"
            "for each in ('', 'b', 'c'):\n    try: found.append(say(each))\n"
            "    except Exception as error: found.append(str(error))\nfound"
        )
        limits = Limits(calls=4, value_bytes=500_000)
        async with Sandbox(limits=limits) as sandbox, sandbox.session(functions=[function]) as session:
            result = await session.run(code)
        many = "say(): a cell may make 4 calls, and this one has made them"
        assert result.value == ["a!", 200_001, "nothing is relayed", "b!", many], result.output
        assert [each.outcome for each in result.calls] == [Outcome.REJECTED]

    async def test_what_waits_can_have_so_many_bytes(self, sandbox: Sandbox) -> None:
        async def size(text: str) -> int:
            return len(text)

        code = (
            "import asyncio\nmany = (size('x' * 900_000) for _ in range(30))\n"
            "found = await asyncio.gather(*many, return_exceptions=True)\n"
            "[found.count(900_000) > 5, {str(each) for each in found} - {'900000'}, await size('x')]"
        )
        result = await run(sandbox, code, size)
        assert result.value_repr == "[True, {'size(): too many calls wait; let some end first'}, 1]"

    async def test_a_call_has_so_much_time(self) -> None:
        code = (
            "found = []\nfor call in (block, hang):\n    try:\n        value = call()\n        await value\n"
            "    except TimeoutError as error:\n        found.append(str(error))\nfound"
        )
        limits = Limits(call_seconds=0.2, wall_seconds=20)
        async with Sandbox(limits=limits) as sandbox, sandbox.session(functions=[block, hang]) as session:
            result = await session.run(code)
            assert result.value == [f"{name}() did not answer within 0.2 seconds" for name in ("block", "hang")]
            assert [call.outcome for call in result.calls] == [Outcome.TIMEOUT] * 2


class TestTheEndOfACell:
    @pytest.mark.parametrize("call", ["block()", "await hang()", "await asyncio.to_thread(block)", "await stubborn()"])
    @pytest.mark.parametrize("how", ["timeout", "cancel", "cancelled task"])
    async def test_in_the_midst_of_a_call(self, sandbox: Sandbox, call: str, how: str) -> None:
        async def stubborn() -> None:
            while not RELEASED.is_set():
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue

        async with sandbox.session(functions=[block, hang, stubborn, plus]) as session:
            await session.run("import asyncio\nx = 41")
            task = asyncio.ensure_future(session.run(call, timeout=0.4 if how == "timeout" else None))
            if how != "timeout":
                await asyncio.sleep(0.3)
                await session.cancel() if how == "cancel" else task.cancel()
            if how == "cancelled task":
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                result = await task
                assert result.outcome is (Outcome.TIMEOUT if how == "timeout" else Outcome.CANCELLED)
                assert [(each.name, each.outcome) for each in result.calls] == [
                    (call.split("(")[1 if "thread" in call else 0].split()[-1].strip(")"), Outcome.CANCELLED)
                ]
                assert not result.state_lost
            assert (await session.run("add(x, 1)")).value == 42
            RELEASED.set()

    async def test_nothing_is_called_after_the_deadline(self, sandbox: Sandbox) -> None:
        called = []

        def note(what: str) -> None:
            called.append(what)

        code = (
            "import time\ntry: time.sleep(30)\nexcept KeyboardInterrupt:\n    try: note('late')\n"
            "    except RuntimeError as error: said = str(error)\n"
        )
        async with sandbox.session(functions=[note]) as session:
            result = await session.run(code, timeout=0.3)
            assert result.outcome is Outcome.TIMEOUT
            result = await session.run("note('in time')\nsaid")
            assert "the cell's time is over" in result.value
            assert called == ["in time"]

    async def test_threads_that_go_on_do_not_take_what_is_the_next_cells(self, sandbox: Sandbox) -> None:
        code = (
            "import threading, time\nsaid, run = [], True\n"
            "def work():\n    while run:\n        try: add(1, 1)\n"
            "        except RuntimeError as error: said.append(str(error)); time.sleep(0.001)\n"
            "threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]\n"
            "for thread in threads: thread.start()\n"
        )
        async with sandbox.session(functions=[plus]) as session:
            assert (await session.run(code)).success
            for i in range(20):
                result = await session.run(f"add({i}, 1)", timeout=10)
                assert result.value == i + 1, result
                await asyncio.sleep(0.01)
            mark = await session.checkpoint()
            result = await session.run("run = False\nfor thread in threads: thread.join()\nset(said)", timeout=10)
            assert "can only be called while a cell runs" in str(result.value_repr)
            await session.rollback(mark)
            assert (await session.run("add(20, 1)", timeout=10)).value == 21

    async def test_a_thread_that_still_waits_is_answered(self, sandbox: Sandbox) -> None:
        code = (
            "import threading\nsaid = []\n"
            "def work():\n    try: block()\n    except RuntimeError as error: said.append(str(error))\n"
            "thread = threading.Thread(target=work)\nthread.start()\nimport time; time.sleep(0.2)"
        )
        async with sandbox.session(functions=[block, plus]) as session:
            result = await session.run(code)
            assert result.success
            assert [call.outcome for call in result.calls] == [Outcome.CANCELLED]
            result = await session.run("thread.join(5)\n[add(1, 1), said]")
            assert result.value == [2, ["the cell had ended before the function answered"]]

    async def test_a_task_that_nobody_waits_for(self, sandbox: Sandbox) -> None:
        async def give(count: int) -> str:
            await asyncio.sleep(0.05)
            return "x" * count

        code = (
            "import asyncio\ntasks = [asyncio.ensure_future(give(1_000_000)) for _ in range(20)]\n"
            "await asyncio.sleep({pause})\nlen(tasks)"
        )
        async with sandbox.session(functions=[give, plus]) as session:
            for pause in (0, 0.05, 0.06, 0.08):
                result = await session.run(code.format(pause=pause), timeout=10)
                assert result.value == 20
                result = await session.run("x = add(1, 1)\nx", timeout=10)
                assert result.value == 2, result
                assert not result.state_lost


async def test_a_call_that_the_code_gives_up_is_ended_and_says_so(sandbox: Sandbox) -> None:
    begun, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def slow(seconds: float) -> str:
        begun.release()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            ended.release()
            raise
        return "late"

    async def wait_for(what: str, number: int) -> None:
        for _ in range(number):
            await (begun if what == "begun" else ended).acquire()

    code = (
        "import asyncio\nsaid = []\ntry: await asyncio.wait_for(slow(60), 0.2)\n"
        "except asyncio.TimeoutError: said.append('given up')\nsaid.append(await slow(0))\n"
        "tasks = [asyncio.ensure_future(slow(60)) for _ in range(5)]\nawait wait_for('begun', 7)\n"
        "for task in tasks: task.cancel()\nawait asyncio.wait(tasks)\nawait wait_for('ended', 6)\n"
        "many = [asyncio.ensure_future(slow(60)) for _ in range(40)]\nawait asyncio.sleep(0.1)\n"
        "for task in many: task.cancel()\nawait asyncio.wait(many)\nsaid + [await slow(0)]"
    )
    result = await run(sandbox, code, slow, wait_for)
    assert result.value == ["given up", "late", "late"], result
    given_up = [call for call in result.calls if call.outcome is Outcome.CANCELLED]
    assert {call.error for call in given_up} == {"the code did not wait for the answer any more"}
    assert (len(given_up), len(result.calls)) == (46, 50)
