"""Checkpoints: what they keep, how many there can be, and how they end."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Checkpoint, Limits, Sandbox, Session
from coderoom.sandbox.snapshots import Snapshot

from .places import also_at_a_server, on_both_shapes, on_each_engine, on_python

COUNT = """
import os
def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
sum(state(pid) != "Z" for pid in os.listdir("/proc") if pid.isdigit())
"""


async def value_of(session: Session, code: str) -> object:
    result = await session.run(code)
    assert result.success, result.output
    return result.value


async def until_there_are(session: Session, count: object) -> None:
    for _ in range(200):
        if await value_of(session, COUNT) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("something has not ended")


class TestWhatItKeeps:
    @on_both_shapes
    async def test_random_numbers_come_again(self, session: Session) -> None:
        await value_of(session, "import random, os\nif not os.fork(): os._exit(0)\nos.wait()\nrandom.seed(1)")
        mark = await session.checkpoint()
        expected = await value_of(session, "random.seed(1)\nrandom.random()")
        for _ in range(3):
            await session.rollback(mark)
            assert await value_of(session, "random.random()") == expected

    async def test_random_numbers_that_nobody_seeded_come_again(self) -> None:
        async with Sandbox(preload=["random"]) as sandbox, sandbox.session() as session:
            mark = await session.checkpoint()
            first = await value_of(session, "import random\nrandom.random()")
            await session.rollback(mark)
            assert await value_of(session, "import random\nrandom.random()") == first

    async def test_code_cannot_write_into_its_memory(self, session: Session) -> None:
        await session.checkpoint()
        opened = (
            "import os\nopened = []\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try:\n"
            "        os.close(os.open(f'/proc/{pid}/mem', os.O_RDWR))\n    except OSError:\n        continue\n"
            "    opened.append(int(pid))\nopened"
        )
        assert await value_of(session, opened) == []
        await session.rollback(await session.checkpoint())
        assert await value_of(session, opened) == []

    async def test_it_shares_memory_with_the_session(self) -> None:
        limits = Limits(memory_bytes=400_000_000)
        async with Sandbox(limits=limits) as sandbox, sandbox.session() as session:
            await value_of(session, "data = bytearray(b'x') * 150_000_000")
            for _ in range(6):
                await session.checkpoint()
            assert await value_of(session, "import time\ntime.sleep(1)\nlen(data)") == 150_000_000

    @pytest.mark.parametrize("preload", [[], ["random"]])
    async def test_each_start_has_random_numbers_of_its_own(self, preload: list[str]) -> None:
        code = "import random\nrandom.random()"
        async with Sandbox(preload=preload) as sandbox, sandbox.session() as one, sandbox.session() as other:
            found = [await value_of(one, code), await value_of(other, code)]
            found += [(await sandbox.run(code)).value for _ in range(3)]
        assert len(set(found)) == 5

    async def test_the_codes_own_forks_have_random_numbers_of_their_own(self) -> None:
        code = (
            "import os, random\nr, w = os.pipe()\n"
            "if not os.fork():\n    os.write(w, str(random.random()).encode())\n    os._exit(0)\n"
            "os.wait()\nfloat(os.read(r, 100)) == random.random()"
        )
        async with Sandbox(preload=["random"]) as sandbox:
            assert (await sandbox.run(code)).value is False

    @also_at_a_server(on_both_shapes)
    async def test_threads_are_not_in_it_and_nobody_waits_for_them(self, session: Session) -> None:
        code = "import logging, threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True)"
        await value_of(session, f"{code}\nt.start()")
        mark = await session.checkpoint()
        await session.rollback(mark)
        assert await value_of(session, "t.join()\n[t.is_alive(), threading.active_count()]") == [False, 1]
        await value_of(session, "u = threading.Thread(target=int)\nu.start()\nu.join()\nlogging.info('')")


class TestHowMany:
    @pytest.mark.slow
    @on_python
    async def test_those_that_a_rollback_discards_do_not_count(self, session: Session) -> None:
        discarded = []  # One that nobody has any more would end by itself.
        for _ in range(70):
            first = await session.checkpoint()
            await session.rollback(first)
            await session.release(first)
            second = await session.checkpoint()
            discarded.append(await session.checkpoint())
            await session.rollback(second)
            await session.release(second)

    async def test_more_than_there_can_be_name_the_way_out(self) -> None:
        async with Sandbox(limits=Limits(processes=8)) as sandbox, sandbox.session() as session:
            marks = []
            for number in range(64):
                await value_of(session, f"x = {number}")
                marks.append(await session.checkpoint())
            with pytest.raises(RequestError, match=r"64 checkpoints.*session\.release"):
                await session.checkpoint()
            # They are none of the code's own processes.
            programs = "import subprocess\nps = [subprocess.Popen(['sleep', '9']) for _ in range(5)]\n"
            await value_of(session, f"{programs}for p in ps: p.kill(); p.wait()")
            await session.run("import os\nos._exit(1)")
            assert await value_of(session, f"{programs}len(ps)") == 5
            await session.release(marks.pop())
            await session.checkpoint()
            await session.rollback(marks[40])
            assert await value_of(session, "x") == 40

    @on_each_engine
    async def test_a_released_one_is_gone(self, session: Session) -> None:
        await value_of(session, "x = 1")
        mark = await session.checkpoint()
        await session.release(mark)
        await session.release(mark)
        with pytest.raises(RequestError, match="checkpoint is gone"):
            await session.rollback(mark)
        assert await value_of(session, "x") == 1

    async def test_the_files_of_a_released_one_are_gone_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "kept.txt").write_text("kept")
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            mark = await session.checkpoint(files=True)
            assert isinstance(mark.files, Snapshot)
            copy = mark.files.folder
            assert (copy / "kept.txt").exists()
            await session.release(mark)
            assert not copy.exists()

    @on_python
    async def test_a_released_one_ends(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as session:
            before = await value_of(session, COUNT)
            mark = await session.checkpoint()
            assert await value_of(session, COUNT) != before
            await session.release(mark)
            await until_there_are(session, before)

    @on_python
    async def test_one_that_nobody_has_any_more_ends(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as session:
            before = await value_of(session, COUNT)
            for _ in range(100):
                await session.checkpoint()
            marks = [await session.checkpoint()]

            def forget() -> None:
                marks.clear()
                gc.collect()

            thread = threading.Thread(target=forget)
            thread.start()
            await asyncio.to_thread(thread.join)
            await until_there_are(session, before)

    def test_one_that_outlives_its_event_loop_is_quiet(self) -> None:
        async def make() -> Checkpoint:
            async with Sandbox() as sandbox, sandbox.session() as session:
                return await session.checkpoint()

        mark = asyncio.run(make())
        del mark
        gc.collect()

    @on_each_engine
    async def test_the_state_outlives_the_one_that_it_came_from(self, session: Session) -> None:
        await value_of(session, "x = 1")
        mark = await session.checkpoint()
        await session.rollback(mark)
        await session.release(mark)
        assert await value_of(session, "x") == 1
        with pytest.raises(RequestError, match="gone"):
            await session.rollback(mark)
        await value_of(session, "x = 2")
        other = await session.checkpoint()
        await value_of(session, "x = 3")
        await session.rollback(other)
        assert await value_of(session, "x") == 2
        await session.release(other)
        await session.restart()
        assert not (await session.run("x")).success

    @pytest.mark.slow
    async def test_a_loop_of_attempts_never_comes_to_an_end_of_them(self) -> None:
        async with Sandbox(limits=Limits(processes=8)) as sandbox, sandbox.session() as session:
            await value_of(session, "x = 0")
            for number in range(1, 81):
                mark = await session.checkpoint()
                await value_of(session, "x = None")
                await session.rollback(mark)
                assert await value_of(session, "x += 1\nx") == number

    async def test_there_can_be_any_number_in_the_life_of_a_session(self) -> None:
        async with Sandbox() as sandbox, sandbox.session() as session:
            for _ in range(150):
                await session.release(await session.checkpoint())
            assert await value_of(session, "6 * 7") == 42

    async def test_more_files_than_fit(self, workspace: Path) -> None:
        limits = Limits(disk_bytes=65_536)
        async with Sandbox(workspace=workspace, limits=limits) as sandbox, sandbox.session() as session:
            before = await value_of(session, COUNT)
            (workspace / "large").write_bytes(bytes(100_000))
            with pytest.raises(RequestError, match="too large"):
                await session.checkpoint(files=True)
            await until_there_are(session, before)

    @pytest.mark.slow
    async def test_files_that_cannot_be_kept_leave_nothing_behind(self, workspace: Path) -> None:
        async with Sandbox(workspace=workspace) as sandbox, sandbox.session() as session:
            before = await value_of(session, COUNT)
            workspace.joinpath(*["deep"] * 110).mkdir(parents=True)
            for _ in range(70):
                with pytest.raises(RequestError, match="more than 100 deep"):
                    await session.checkpoint(files=True)
            await until_there_are(session, before)


@on_each_engine
class TestWhatIsNoCheckpoint:
    async def test_a_wrong_type(self, session: Session) -> None:
        for wrong in ("x", None, 3):
            with pytest.raises(RequestError, match=r"session\.checkpoint"):
                await session.rollback(wrong)  # type: ignore[arg-type]
            with pytest.raises(RequestError, match=r"session\.checkpoint"):
                await session.release(wrong)  # type: ignore[arg-type]

    async def test_one_of_another_session(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as one, sandbox.session() as other:
            await value_of(one, "x = 1")
            mark = await one.checkpoint()
            with pytest.raises(RequestError, match="another session's"):
                await other.rollback(mark)
            with pytest.raises(RequestError, match="another session's"):
                await other.release(mark)
            await one.rollback(mark)
            assert await value_of(one, "x") == 1

    async def test_one_of_a_closed_session(self, sandbox: Sandbox) -> None:
        session = sandbox.session()
        mark = await session.checkpoint()
        await session.close()
        await session.release(mark)
        with pytest.raises(RequestError, match="session is closed"):
            await session.rollback(mark)


OTHERS = """
import os, signal
others = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())]
for pid in others: os.kill(pid, signal.NAME)
"""
RUNNER = """
import gc, sys, time
gc.unfreeze()
runner = next(item for item in gc.get_objects() if type(item).__name__ == "Runner" and hasattr(item, "move_to"))
"""
# The first never reads its requests; the second does, but its fork never reports that it is ready.
DEAF = f"""{RUNNER}
sys.modules[type(runner).__module__.rpartition(".")[0] + ".fork_server"].ForkServer.serve = lambda self: time.sleep(60)
"""
MUTE = f"""{RUNNER}
type(runner)._resume = lambda *_: time.sleep(60)
"""


@on_python
class TestBrokenOnes:
    async def test_one_that_code_has_stopped_goes_on(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as session:
            await value_of(session, "x = 1")
            mark = await session.checkpoint()
            await value_of(session, OTHERS.replace("NAME", "SIGSTOP"))
            await session.rollback(mark)
            assert await value_of(session, "x") == 1

    async def test_one_that_code_has_ended_is_gone(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as session:
            mark = await session.checkpoint()
            await value_of(session, OTHERS.replace("NAME", "SIGKILL"))
            with pytest.raises(RequestError, match="checkpoint is gone"):
                await session.rollback(mark)
            assert await value_of(session, "1 + 1") == 2

    @pytest.mark.parametrize("code", [DEAF, MUTE], ids=["deaf", "mute"])
    @pytest.mark.timeout(15)
    async def test_one_that_does_not_answer_is_not_waited_for(self, sandbox: Sandbox, code: str) -> None:
        async with sandbox.session() as session:
            await value_of(session, code)
            mark = await session.checkpoint()
            with pytest.raises(RequestError, match=r"code has broken it\. The session was restarted"):
                await session.rollback(mark)
            assert await value_of(session, "1 + 1") == 2

    @pytest.mark.slow
    @pytest.mark.timeout(15)
    async def test_one_of_a_process_that_stands_still_cannot_be_made(self, sandbox: Sandbox) -> None:
        code = "import os, signal, time\nme = os.getpid()\nif not os.fork():\n    time.sleep(0.2)\n    "
        async with sandbox.session() as session:
            await value_of(session, f"{code}os.kill(me, signal.SIGSTOP)\n    os._exit(0)")
            await asyncio.sleep(0.5)
            with pytest.raises(RequestError, match="does not answer"):
                await session.checkpoint()
            await session.run("1", timeout=0.2)
            assert await value_of(session, "1 + 1") == 2
