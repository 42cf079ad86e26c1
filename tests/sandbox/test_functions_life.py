"""Calls to functions of the host from odd places, from there back into sandboxes, and over a session's life."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, Sandbox, Session

from .offered import aadd, block, error_of, hang, plus

pytestmark = pytest.mark.usefixtures("released")


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20)) as sandbox:
        yield sandbox


class TestOddPlaces:
    @pytest.mark.parametrize(
        ("code", "said"),
        [
            pytest.param(
                "import os\nr, w = os.pipe()\nif not os.fork():\n    try: add(1, 2)\n"
                "    except RuntimeError as e: os.write(w, str(e).encode())\n    os._exit(0)\nos.wait()\n"
                "[os.read(r, 1000).decode(), add(1, 2)]",
                "not from a fork of it",
                id="a fork",
            ),
            pytest.param(
                "import multiprocessing\ncontext = multiprocessing.get_context('fork')\nours, theirs = context.Pipe()\n"
                "def work():\n    try: add(1, 2)\n    except RuntimeError as e: theirs.send(str(e))\n"
                "process = context.Process(target=work)\nprocess.start()\nprocess.join()\n[ours.recv(), add(1, 2)]",
                "not from a fork of it",
                id="multiprocessing",
            ),
            pytest.param(
                "class X:\n    def __del__(self): found.append(add(1, 1))\nfound = []\nx = X()\ndel x\n"
                "[str(found), add(1, 2)]",
                "[2]",
                id="__del__",
            ),
            pytest.param(
                "import signal\nfound = []\ndef handle(*_):\n    try: found.append(add(1, 1))\n"
                "    except RuntimeError as e: found.append(str(e))\n"
                "signal.signal(signal.SIGALRM, handle)\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\nnap()\n"
                "[str(found), add(1, 2)]",
                "it would interrupt another call",
                id="a signal during a call",
            ),
            pytest.param(
                "import gc\nclass X:\n    def __init__(self): self.me = self\n    def __del__(self):\n"
                "        try: found.append(add(1, 1))\n        except RuntimeError as e: found.append(str(e))\n"
                "found = []\ngc.set_threshold(1, 1, 1)\nfor _ in range(300): X(); add(1, 1)\n"
                "gc.set_threshold(700, 10, 10)\n[str(len(found) > 100), add(1, 2)]",
                "True",
                id="the collector during a call",
            ),
        ],
    )
    async def test_a_call_from(self, sandbox: Sandbox, code: str, said: str) -> None:
        def nap() -> None:
            threading.Event().wait(0.3)

        async with sandbox.session(functions=[plus, nap]) as session:
            result = await session.run(code, timeout=15)
            assert result.success, result
            assert said in result.value[0]
            assert result.value[1] == 3
            assert (await session.run("add(2, 2)")).value == 4

    async def test_functions_at_exit(self, sandbox: Sandbox) -> None:
        called = []

        def note(what: str) -> None:
            called.append(what)

        async with sandbox.session(functions=[note]) as session:
            assert (await session.run("import atexit\natexit.register(note, 'exit')\nnote('cell')")).success
            result = await session.run("import os\natexit._run_exitfuncs()\nos._exit(3)")
            assert result.exit_code == 3
            assert [call.outcome for call in result.calls] == [Outcome.OK]
        assert called == ["cell", "exit"]


class TestFromTheHostBackIn:
    async def test_the_same_session_is_an_error_and_no_deadlock(self, sandbox: Sandbox) -> None:
        sessions: list[Session] = []

        async def again(what: str) -> Any:
            session = sessions[0]
            if what == "run":
                return (await session.run("1")).value
            if what == "stream":
                return [item async for item in session.stream("1")]
            return await getattr(session, what)()

        def again_in_a_thread() -> Any:
            return asyncio.run_coroutine_threadsafe(sessions[0].run("1"), loop).result()

        loop = asyncio.get_running_loop()
        code = (
            "found = []\nfor what in ('run', 'stream', 'checkpoint', 'restart', 'start', ''):\n    try:\n"
            "        await again(what) if what else again_in_a_thread()\n    except Exception as error:\n"
            "        found.append(str(error))\n[len(found), *set(found)]"
        )
        async with sandbox.session(functions=[again, again_in_a_thread]) as session:
            sessions.append(session)
            result = await session.run(code)
            assert result.value[0] == 6, result
            assert len(result.value) == 2
            assert "cannot use the same session: it would wait for itself" in result.value[1]

    async def test_another_session_and_the_sandbox_work(self, sandbox: Sandbox) -> None:
        others: list[Session] = []

        async def elsewhere(code: str) -> Any:
            return (await others[0].run(code)).value

        async def once(code: str) -> Any:
            return (await sandbox.run(code)).value

        def once_in_a_thread(code: str) -> Any:
            async def work() -> Any:
                async with Sandbox() as own:
                    return (await own.run(code)).value

            return asyncio.run(work())

        async with (
            sandbox.session() as other,
            sandbox.session(functions=[elsewhere, once, once_in_a_thread]) as session,
        ):
            others.append(other)
            result = await session.run(
                "[await elsewhere('x = 1\\nx'), await elsewhere('x + 1'), await once('3'), once_in_a_thread('4')]"
            )
            assert result.value == [1, 2, 3, 4], result.output

    async def test_by_way_of_another_session_it_is_an_error_too(self, sandbox: Sandbox) -> None:
        sessions: dict[str, Session] = {}

        async def run_in(name: str, code: str) -> Any:
            result = await sessions[name].run(code)
            return result.value if result.success else error_of(result)[1]

        async with sandbox.session(functions=[run_in]) as one, sandbox.session(functions=[run_in]) as two:
            sessions.update(one=one, two=two)
            result = await one.run("await run_in('two', 'await run_in(\"one\", \"1\")')", timeout=15)
            assert "it would wait for itself" in result.value, result

    async def test_what_a_function_leaves_running_may_use_the_session_later(self, sandbox: Sandbox) -> None:
        sessions: list[Session] = []
        tasks: list[asyncio.Task[ExecutionResult]] = []

        async def start() -> None:
            async def wait_and_run() -> ExecutionResult:
                await ended.wait()
                return await sessions[0].run("x + 1")

            tasks.append(asyncio.create_task(wait_and_run()))

        ended = asyncio.Event()
        async with sandbox.session(functions=[start]) as session:
            sessions.append(session)
            assert (await session.run("x = 1\nawait start()")).success
            ended.set()
            assert (await tasks[0]).value == 2

    async def test_a_function_may_end_the_cell_the_session_and_the_sandbox(self, sandbox: Sandbox) -> None:
        ends: dict[str, Any] = {}

        async def end(what: str) -> None:
            await ends[what]()

        for what in ("cancel", "close"):
            async with sandbox.session(functions=[end]) as session:
                ends[what] = getattr(session, what)
                result = await session.run(f"await end({what!r})\nawait end('nothing')\nwhile True: pass")
                assert result.outcome is Outcome.CANCELLED, result
                if what == "close":
                    with pytest.raises(RequestError, match="closed"):
                        await session.run("1")

    async def test_they_see_the_context_of_whoever_runs_the_cell(self, sandbox: Sandbox) -> None:
        who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

        def ask() -> str:
            return who.get()

        async def ask_async() -> str:
            who.set(who.get() + "!")
            return who.get()

        async with sandbox.session(functions=[ask, ask_async]) as session:
            for name in ("a", "b"):
                who.set(name)
                result = await session.run("[ask(), await ask_async(), await ask_async()]")
                assert result.value == [name, name + "!", name + "!"]


class TestALife:
    @pytest.mark.slow
    async def test_stubs_are_there_again_whatever_happened(self, sandbox: Sandbox) -> None:
        async with sandbox.session(functions=[plus, aadd]) as session:
            assert (await session.run("x = add(1, 1)\nx")).value == 2
            mark = await session.checkpoint()
            assert (await session.run("del add\naadd = None\nx = 0")).success
            await session.rollback(mark)
            assert (await session.run("[x, add(2, 2), await aadd(3, 3)]")).value == [2, 4, 6]
            await session.rollback(mark)
            assert (await session.run("import os\nos._exit(1)")).state_lost
            assert (await session.run("add(2, 3)")).value == 5
            await session.restart()
            assert (await session.run("add(2, 4)")).value == 6
            # Whatever the interrupt meets is inside of the outer `try`.
            stubborn = (
                "while True:\n    try:\n        while True:\n"
                "            try: add(1, 1)\n            except Exception: pass\n"
                "    except BaseException: pass"
            )
            result = await session.run(stubborn, timeout=0.3)
            assert result.state_lost
            assert (await session.run("[add(2, 5), await aadd(1, 0)]")).value == [7, 1]

    async def test_a_checkpoint_in_the_midst_of_what_goes_on(self, sandbox: Sandbox) -> None:
        code = (
            "import asyncio, threading\nthread = threading.Thread(target=block, daemon=True)\nthread.start()\n"
            "async def background():\n    while True: await aadd(1, 1)\n"
            "task = asyncio.ensure_future(background())\nfor _ in range(20): await aadd(1, 1)\n"
        )
        async with sandbox.session(functions=[plus, aadd, block]) as session:
            assert (await session.run(code)).success
            for _ in range(3):
                mark = await session.checkpoint()
                assert (await session.run("[add(1, 1), await aadd(2, 2)]", timeout=10)).value == [2, 4]
                await session.rollback(mark)
                assert (await session.run("[add(1, 1), await aadd(2, 2)]", timeout=10)).value == [2, 4]

    async def test_a_wait_that_was_begun_before_a_checkpoint_ends_no_wait_after_it(self, sandbox: Sandbox) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        code = (
            "import asyncio\nasync def background():\n    try: await never()\n    except RuntimeError: print('ended')\n"
            "task = asyncio.ensure_future(background())\nawait aadd(1, 1)\nx = 1\n"
        )
        async with sandbox.session(functions=[aadd, never]) as session:
            assert (await session.run(code)).success
            mark = await session.checkpoint()
            for _ in range(2):
                await session.rollback(mark)
                result = await session.run("await aadd(2, 2)", timeout=10)
                assert (result.value, result.stdout) == (4, "ended\n"), result

    async def test_each_session_has_its_own(self, sandbox: Sandbox) -> None:
        def make(number: int) -> Any:
            def which() -> int:
                return number

            return which

        async def one(number: int) -> Any:
            async with sandbox.session(functions=[make(number)]) as session:
                return (await session.run("[which() for _ in range(50)]")).value

        assert await asyncio.gather(*map(one, range(6))) == [[number] * 50 for number in range(6)]
        result = await sandbox.run("which()")
        assert error_of(result)[0] == "NameError"

    async def test_close_in_the_midst_of_a_call(self, sandbox: Sandbox) -> None:
        session = sandbox.session(functions=[hang, block])
        for call in ("await hang()", "block()"):
            session = sandbox.session(functions=[hang, block])
            task = asyncio.ensure_future(session.run(call))
            await asyncio.sleep(0.3)
            await session.close()
            result = await task
            assert result.outcome is Outcome.CANCELLED
            assert [each.outcome for each in result.calls] == [Outcome.CANCELLED]
        assert (await sandbox.run("1")).value == 1
