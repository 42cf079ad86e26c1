"""Sessions of the engine `monty`: limits, checkpoints, turns, files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session

from .looking import children, error_of, is_stopped


class TestLimits:
    async def test_time_takes_only_the_cell(self, session: Session) -> None:
        await session.run("x = [1]\ndef f(): return x")
        result = await session.run("print('before')\nx.append(2)\nwhile True: pass", timeout=0.2)
        assert (result.outcome, result.exit_code, result.limit) == (Outcome.TIMEOUT, 124, "wall")
        assert result.stdout == "before\n"
        assert not result.state_lost
        assert error_of(result).message == (
            "The code was stopped after 0.2 seconds. Variables are as they were before this cell."
        )
        assert (await session.run("f()")).value == [1]

    @pytest.mark.parametrize(
        "code",
        [
            "import time\ntime.sleep(60)",
            "try:\n    while True: pass\nexcept BaseException:\n    pass",
            "a = b = (1,)\nfor _ in range(60):\n    a, b = (a, a), (b, b)\na == b",
            "import asyncio\nawait asyncio.sleep(60)",
            "while True: print('x')",
        ],
    )
    async def test_nothing_escapes_the_deadline(self, session: Session, code: str) -> None:
        assert (await session.run(code, timeout=0.2)).outcome is Outcome.TIMEOUT
        assert (await session.run("1")).value == 1

    async def test_processor_time(self) -> None:
        async with Sandbox(engine="monty", limits=Limits(cpu_seconds=0.2)) as sandbox:
            session = sandbox.session()
            await session.run("x = 1")
            result = await session.run("while True: pass")
            assert (result.outcome, result.exit_code, result.limit) == (Outcome.TIMEOUT, 124, "cpu")
            assert (await session.run("import time\ntime.sleep(0.4)\nx")).value == 1
            forged = await session.run("raise TimeoutError('feed time limit exceeded: 1s > 0.2s')")
            assert (forged.outcome, forged.limit) == (Outcome.ERROR, None)

    @pytest.mark.parametrize(
        "code",
        [
            "x.append('a' * 10 ** 10)",
            "while True: x.append('a' * 300_000)",
            "y = ','.join(str(i) for i in range(10 ** 7))",
            "try:\n    y = [0] * 10 ** 9\nexcept MemoryError:\n    pass",
        ],
    )
    async def test_memory_takes_only_the_cell(
        self, session: Session, capfd: pytest.CaptureFixture[str], code: str
    ) -> None:
        await session.run("x = [1]")
        result = await session.run(f"print('before')\n{code}")
        assert (result.outcome, result.exit_code, result.limit) == (Outcome.MEMORY, 137, "memory")
        assert not result.state_lost
        assert error_of(result).message == (
            "The code wanted more memory than the 64 MiB that it may have. Variables are as they were before this cell."
        )
        assert result.stdout == "before\n"
        assert (await session.run("x")).value == [1]
        assert capfd.readouterr() == ("", "")

    async def test_a_state_that_is_too_large_to_copy_is_lost_and_that_is_said(self, session: Session) -> None:
        await session.run("big = [str(i) for i in range(300_000)]")
        assert (await session.run("len(big)")).value == 300_000
        with pytest.raises(RequestError, match="too large for a checkpoint"):
            await session.checkpoint()
        result = await session.run("while True: pass", timeout=0.2)
        assert result.state_lost
        assert "earlier variables are gone" in error_of(result).message
        again = await session.run("big")
        assert (error_of(again).type, again.state_lost) == ("NameError", False)

    async def test_output_is_bounded_while_it_is_read(self) -> None:
        async with Sandbox(engine="monty", limits=Limits(output_bytes=2048)) as sandbox:
            result = await sandbox.session().run("for i in range(300_000):\n    print(i)")
        assert result.truncated
        assert (result.outcome, result.limit) == (Outcome.OK, "output")
        assert result.output_size == sum(len(str(i)) + 1 for i in range(300_000))
        assert result.stdout.startswith("0\n1\n")
        assert result.stdout.endswith("299999\n")
        assert len(result.stdout) < 2200

    @pytest.mark.slow
    async def test_host_calls_and_sleeps_are_not_counted(self, sandbox: Sandbox) -> None:
        def add(a: int, b: int) -> int:
            return a + b

        session = sandbox.session(functions=[add])
        assert (await session.run("n = 0\nfor i in range(1500):\n    n = add(n, 1)\nn")).value == 1500
        assert (await session.run("import time\nfor i in range(1100):\n    time.sleep(0)\ni")).value == 1099


class TestSessions:
    async def test_checkpoints_nest_and_outlive_what_ends_a_cell(self, session: Session) -> None:
        fresh = await session.checkpoint()
        await session.run("x = [1]")
        one = await session.checkpoint()
        await session.run("x.append(2)")
        two = await session.checkpoint()
        await session.run("x.append(3)\nwhile True: pass", timeout=0.1)
        assert (await session.run("x")).value == [1, 2]
        for mark, value in ((two, [1, 2]), (one, [1]), (one, [1])):
            await session.rollback(mark)
            assert (await session.run("x.append(9)\nx[:-1]")).value == value
        with pytest.raises(RequestError, match="checkpoint is gone"):
            await session.rollback(two)
        await session.rollback(fresh)
        assert error_of(await session.run("x")).type == "NameError"

    async def test_a_checkpoint_is_gone_after_a_restart(self, session: Session) -> None:
        mark = await session.checkpoint()
        await session.restart()
        with pytest.raises(RequestError, match="checkpoint is gone"):
            await session.rollback(mark)

    @pytest.mark.slow
    async def test_hundreds_take_turns(self) -> None:
        async with Sandbox(engine="monty", concurrency=3) as sandbox:
            before = children()
            sessions = [sandbox.session() for _ in range(200)]
            await asyncio.gather(*(session.run(f"x = {i}") for i, session in enumerate(sessions)))
            results = await asyncio.gather(*(session.run("x += 1\nx") for session in sessions))
            assert [result.value for result in results] == list(range(1, 201))
            assert len(children() - before) <= 3

    @pytest.mark.slow
    async def test_large_states_do_not_keep_others_waiting(self) -> None:
        async with Sandbox(engine="monty", concurrency=1, limits=Limits(memory_bytes=64 << 20)) as sandbox:
            sessions = [sandbox.session() for _ in range(3)]
            for i, session in enumerate(sessions):
                assert (await session.run(f"x = {i}\nbig = [str(i) for i in range(300_000)]")).success
            assert [(await session.run("x")).value for session in sessions] == [0, 1, 2]

    async def test_cancelling(self, session: Session) -> None:
        await session.run("x = 1")
        task = asyncio.ensure_future(session.run("print('before')\nx = 2\nwhile True: pass"))
        await asyncio.sleep(0.2)
        await session.cancel()
        result = await task
        assert (result.outcome, result.exit_code, result.stdout) == (Outcome.CANCELLED, 125, "before\n")
        assert (await session.run("x")).value == 1

    async def test_cancelling_one_that_waits_for_a_worker(self) -> None:
        async with Sandbox(engine="monty", concurrency=1) as sandbox:
            one, two = sandbox.session(), sandbox.session()
            long = asyncio.ensure_future(one.run("while True: pass"))
            await asyncio.sleep(0.2)
            waiting = asyncio.ensure_future(two.run("1"))
            await asyncio.sleep(0.1)
            await two.cancel()
            assert (await waiting).outcome is Outcome.CANCELLED
            waiting = asyncio.ensure_future(two.run("1"))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            assert [(await each.run("2")).value for each in (one, two)] == [2, 2]

    async def test_a_stream(self, session: Session) -> None:
        items = [item async for item in session.stream("print('a')\nprint('b')\n1 / 0")]
        assert isinstance(items[-1], ExecutionResult)
        chunks = [item for item in items if isinstance(item, OutputChunk)]
        assert "".join(chunk.text for chunk in chunks) == items[-1].output
        assert {chunk.stream for chunk in chunks} == {"stdout", "stderr"}
        assert items[-1].output.startswith("a\nb\nTraceback")

    async def test_code_waits_when_nobody_takes_its_output(self, session: Session) -> None:
        stream = session.stream("for i in range(300_000): print('x' * 50)\n1")
        first = await anext(stream)
        assert isinstance(first, OutputChunk)
        for _ in range(500):
            if any(is_stopped(pid) for pid in children()):
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("it never waited")
        size = len(first.text)
        async for item in stream:
            if isinstance(item, OutputChunk):
                size += len(item.text)
        assert size == 300_000 * 51
        assert (await session.run("i")).value == 299_999


class TestFiles:
    async def test_a_workspace(self, tmp_path: Path) -> None:
        (tmp_path / "in.csv").write_text("a,b\n")
        limits = Limits(disk_bytes=65_536)
        async with Sandbox(engine="monty", workspace=tmp_path, env={"STAGE": "test"}, limits=limits) as sandbox:
            session = sandbox.session()
            result = await session.run("import os\nopen('out.txt', 'w').write(open('in.csv').read())\nos.getcwd()")
            assert result.value == "/workspace"
            (artifact,) = result.artifacts
            assert (artifact.name, artifact.size, artifact.media_type) == ("out.txt", 4, "text/plain")
            assert artifact.path == tmp_path / "out.txt"
            assert artifact.path.read_text() == "a,b\n"
            assert (await session.run("os.getenv('STAGE'), os.getenv('HOME'), os.environ")).value == (
                *("test", None),
                {"STAGE": "test"},
            )
            assert (await session.run("open('big', 'w').write('x' * 70_000)")).limit == "disk"
            for path in ("/etc/passwd", "../../etc/passwd", "/workspace/../etc/passwd"):
                assert error_of(await session.run(f"open({path!r})")).type in ("PermissionError", "FileNotFoundError")
            (tmp_path / "link").symlink_to("/etc/passwd")
            assert not (await session.run("open('link').read()")).success

    async def test_none(self, session: Session) -> None:
        assert "give the sandbox a workspace" in error_of(await session.run("open('x', 'w')")).message
