"""What is left of a session when a cell is stopped: at a deadline, by a cancel, or because nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, OutputChunk, Sandbox, Session

from .places import everywhere, on_both_shapes, on_every_kind_of_wall

GONE = "The session was restarted: earlier variables are gone."

WAITING = {
    "a program": "import subprocess\nsubprocess.run(['sleep', '60'])",
    "a program that does not listen": "import subprocess\nsubprocess.run(['sh', '-c', 'trap \"\" INT; sleep 60'])",
    "a shell": "import os\nos.system('sleep 60')",
    "a shell and more": "import os\nos.system('sleep 60')\nwhile True: pass",
    "a shell that does not listen": "import os\nos.system('trap \"\" INT; sleep 60')",
    "threads": (
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool: list(pool.map(time.sleep, [60, 60]))"
    ),
    "a thread that does not end": (
        "import threading\ndef spin():\n    while True: pass\n"
        "thread = threading.Thread(target=spin)\nthread.start()\nthread.join()"
    ),
    "a child": "import os, time\nif not os.fork(): time.sleep(60)\nos.wait()",
    "an event loop": "import asyncio\nawait asyncio.sleep(60)",
    "sleep": "import time\ntime.sleep(60)",
    "a loop": "while True: pass",
}
# No signal gets through to Python as long as this has not come to its end.
DEAF = "import itertools, collections\ncollections.deque(itertools.repeat(0), maxlen=0)"


class TestDeadlines:
    @on_every_kind_of_wall
    async def test_a_one_shot_run_is_interrupted_first_too(self, sandbox: Sandbox) -> None:
        waits = "import time\nprint('begin', end='')\ntry:\n    time.sleep(60)\nfinally:\n    print(', end')"
        cases = {waits: "begin, end\n", f"print('a', end='')\nprint('b', end='')\n{DEAF}": "ab"}
        results = await asyncio.gather(*(sandbox.run(code, timeout=0.7) for code in cases))
        for result, printed in zip(results, cases.values(), strict=True):
            assert (result.outcome, result.stdout) == (Outcome.TIMEOUT, printed), result

    @on_every_kind_of_wall
    async def test_variables_outlive_code_that_waits(self, sandbox: Sandbox) -> None:
        few = asyncio.Semaphore(4)

        async def interrupt(code: str) -> tuple[ExecutionResult, ExecutionResult]:
            async with few, sandbox.session() as session:
                await session.run("x = 1")
                return await session.run(f"print('before')\n{code}", timeout=0.7), await session.run("x")

        pairs = await asyncio.gather(*map(interrupt, WAITING.values()))
        for what, (stopped, after) in zip(WAITING, pairs, strict=True):
            assert (stopped.outcome, stopped.state_lost) == (Outcome.TIMEOUT, False), (what, stopped)
            assert stopped.stdout == "before\n", (what, stopped)
            assert stopped.error is not None
            assert "still there" in stopped.error.message
            assert (after.value, after.state_lost, after.stderr) == (1, False, ""), (what, after)

    @on_both_shapes
    async def test_nothing_of_the_cell_goes_on(self, session: Session) -> None:
        await session.run("x = 1")
        code = (
            "import subprocess, threading, time\n"
            "def write():\n    while True: open('beat', 'a').write('x'); time.sleep(0.01)\n"
            "threading.Thread(target=write).start()\n"
            "subprocess.run('while :; do echo >> beat; sleep 0.01; done', shell=True)"
        )
        assert not (await session.run(code, timeout=0.5)).state_lost
        size = "import os\nos.path.getsize('beat')"
        before = (await session.run(size)).value
        await asyncio.sleep(0.3)
        assert (await session.run(size)).value == before
        assert (await session.run("threading.active_count()")).value == 1

    @on_both_shapes
    async def test_a_session_goes_on_without_its_threads_as_often_as_wanted(self, session: Session) -> None:
        await session.run("x = 0")
        mark = await session.checkpoint()
        for number in range(1, 4):
            assert (await session.run("x += 1\nx")).value == number
            result = await session.run(WAITING["threads"], timeout=0.3)
            assert not result.state_lost, result
        assert (await session.run("from concurrent.futures import ThreadPoolExecutor")).success
        code = "with ThreadPoolExecutor(2) as pool: y = list(pool.map(abs, [-1, -2]))\n[x, y]"
        assert (await session.run(code)).value == [3, [1, 2]]
        await session.rollback(mark)
        assert (await session.run("x")).value == 0

    @on_both_shapes
    async def test_code_that_cannot_be_interrupted_loses_them_and_says_so(self, session: Session) -> None:
        await session.run("x = 1")
        result = await session.run(DEAF, timeout=0.3)
        assert (result.outcome, result.state_lost) == (Outcome.TIMEOUT, True)
        assert result.error is not None
        assert GONE in result.error.message
        result = await session.run("1 + 1")
        assert (result.value, result.state_lost, result.stderr) == (2, False, "")

    async def test_a_reader_that_is_slow_does_not_cost_them(self, session: Session) -> None:
        await session.run("x = 1")
        last: OutputChunk | ExecutionResult | None = None
        async for item in session.stream("while True: print('x' * 1000)", timeout=0.5):
            if last is None:
                await asyncio.sleep(1)
            last = item
        assert isinstance(last, ExecutionResult)
        assert (last.outcome, last.state_lost) == (Outcome.TIMEOUT, False)
        assert (await session.run("x")).value == 1


async def wait_for(session: Session, code: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.run(code), 0.5)


async def cancel_the_task(session: Session, code: str) -> None:
    task = asyncio.ensure_future(session.run(code))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_the_task_twice(session: Session, code: str) -> None:
    task = asyncio.ensure_future(session.run(code))
    await asyncio.sleep(0.5)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_the_stream(session: Session, code: str) -> None:
    items = session.stream(f"print('x')\n{code}")
    async for _ in items:
        await asyncio.sleep(0.5)
        break
    await items.aclose()


async def cancel_the_session(session: Session, code: str) -> None:
    task = asyncio.ensure_future(session.run(code))
    await asyncio.sleep(0.5)
    await session.cancel()
    assert (await task).outcome is Outcome.CANCELLED


Stop = Callable[[Session, str], Awaitable[None]]
UNHEARD = [
    wait_for,
    cancel_the_task,
    *(pytest.param(stop, marks=pytest.mark.slow) for stop in (cancel_the_task_twice, leave_the_stream)),
]


class TestCancelling:
    @pytest.mark.parametrize("stop", [*UNHEARD, cancel_the_session])
    async def test_variables_stay(self, sandbox: Sandbox, stop: Stop) -> None:
        async def interrupt(what: str) -> ExecutionResult:
            async with sandbox.session() as session:
                await session.run("x = 1")
                await stop(session, WAITING[what])
                return await session.run("x")

        for result in await asyncio.gather(*map(interrupt, ["a loop", "a program", "threads"])):
            assert (result.value, result.state_lost, result.stderr) == (1, False, ""), result

    @everywhere
    async def test_variables_stay_behind_every_wall(self, session: Session) -> None:
        await session.run("x = 1")
        await wait_for(session, "while True: pass")
        result = await session.run("x")
        assert (result.value, result.state_lost) == (1, False), result

    @pytest.mark.parametrize("stop", UNHEARD)
    async def test_the_next_result_says_what_nobody_was_there_to_hear(self, session: Session, stop: Stop) -> None:
        await session.run("x = 1")
        mark = await session.checkpoint()
        await stop(session, DEAF)
        result = await session.run("print('here')\nx")
        assert (result.outcome, result.state_lost) == (Outcome.ERROR, True), result
        assert result.stderr.startswith(f"{GONE}\n"), result
        assert result.output.startswith(f"{GONE}\nhere\n"), result
        result = await session.run("1 + 1")
        assert (result.value, result.state_lost, result.output) == (2, False, "")
        await session.rollback(mark)
        assert (await session.run("x")).value == 1

    @pytest.mark.parametrize("back", ["rollback", "restart"])
    async def test_who_goes_back_need_not_be_told(self, session: Session, back: str) -> None:
        mark = await session.checkpoint()
        await wait_for(session, DEAF)
        await (session.rollback(mark) if back == "rollback" else session.restart())
        result = await session.run("1")
        assert (result.state_lost, result.output) == (False, "")

    async def test_a_program_of_another_language_costs_nothing(self, session: Session) -> None:
        await session.run("x = 1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run("sleep 60", language="sh"), 0.3)
        result = await session.run("x")
        assert (result.value, result.state_lost) == (1, False)

    async def test_what_ends_between_two_cells_is_told_with_the_next(self, session: Session) -> None:
        code = "import os, threading\nx = 1\nthreading.Timer(0.3, os._exit, (1,)).start()"
        assert not (await session.run(code)).state_lost
        await asyncio.sleep(1)
        result = await session.run("x")
        assert (result.outcome, result.state_lost) == (Outcome.ERROR, True)
        assert result.stderr.startswith(GONE)

    async def test_a_rollback_that_nobody_waits_for_is_whole(self, session: Session) -> None:
        await session.run("x = 1")
        mark = await session.checkpoint()
        await session.run("x = 2")
        task = asyncio.ensure_future(session.rollback(mark))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await session.run("x")
        assert result.value in (1, 2)
        assert not result.state_lost
