"""What comes at the worst moment: a cancel, a close or a second call just while something else is under way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox, Session, snapshots
from coderoom.sandbox.engines.cpython.engine import Worker
from coderoom.sandbox.engines.cpython.processes import ForkServerClient
from coderoom.sandbox.engines.cpython.room import Room
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.walls import workspace as lending


class Gate:
    """Delays its callers until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox("none") as sandbox:
        yield sandbox


@pytest.fixture
def gate() -> Gate:
    return Gate()


def hold_up(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, gate: Gate, after: bool = False) -> None:
    """Let a coroutine function pass the gate before it does its work, or after it."""
    original = getattr(owner, name)

    async def delayed(*args: Any, **kwargs: Any) -> Any:
        if not after:
            await gate.passed()
        result = await original(*args, **kwargs)
        if after:
            await gate.passed()
        return result

    monkeypatch.setattr(owner, name, delayed)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's workspaces are lent")
async def test_a_workspace_that_is_being_lent_is_given_back(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    reached, opened = threading.Event(), threading.Event()
    chown_workspace = lending.chown_workspace

    def delayed(folder: Path | None, undo: contextlib.ExitStack) -> Any:
        lent = chown_workspace(folder, undo)
        reached.set()
        assert opened.wait(20)
        return lent

    monkeypatch.setattr(lending, "chown_workspace", delayed)

    async def have_it() -> None:
        with contextlib.ExitStack() as unwind:
            await lending.borrowed(workspace, unwind)
            raise AssertionError("it should have been cancelled")

    having = asyncio.create_task(have_it())
    await asyncio.to_thread(reached.wait)
    assert (workspace / "a.txt").stat().st_uid != 0
    having.cancel()
    await asyncio.sleep(0.01)
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await having
    assert (workspace / "a.txt").stat().st_uid == 0
    with contextlib.ExitStack() as unwind:
        chown_workspace(workspace, unwind)  # Nobody else has it.


async def test_a_cancel_that_comes_with_the_answer_is_a_cancel() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        client = ForkServerClient(ours)
        task = asyncio.create_task(client.expect("looked"))
        await asyncio.sleep(0.01)
        client._on_message({"event": "looked"})
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        client.close()


class TestStarting:
    async def test_a_start_that_nobody_waited_for_is_no_later_start(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate
    ) -> None:
        hold_up(monkeypatch, Worker, "start", gate)
        sandbox = Sandbox("none")
        waiting = asyncio.create_task(sandbox.start())
        await gate.reached.wait()
        waiting.cancel()
        await asyncio.wait((waiting,))
        gate.open.set()
        await until(lambda: not sandbox._engine.lost)
        sandbox._engine._worker.kill()  # type: ignore[attr-defined]
        assert sandbox._engine.lost
        try:
            assert (await sandbox.run("1 + 1")).value == 2
        finally:
            await sandbox.close()

    async def test_a_failure_that_nobody_waited_for_is_not_that_of_a_later_start(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate
    ) -> None:
        async def fail(_: Worker) -> None:
            await gate.passed()
            raise SandboxUnavailable("not now")

        sandbox = Sandbox("none")
        with monkeypatch.context() as patched:
            patched.setattr(Worker, "start", fail)
            waiting = asyncio.create_task(sandbox.start())
            await gate.reached.wait()
            waiting.cancel()
            await asyncio.wait((waiting,))
            gate.open.set()
            starting = sandbox._starting
            assert starting is not None
            await asyncio.wait((starting,))
        async with sandbox:
            assert (await sandbox.run("1 + 1")).value == 2

    async def test_who_waits_for_a_start_is_told_that_the_sandbox_was_closed(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate
    ) -> None:
        hold_up(monkeypatch, Worker, "start", gate)
        sandbox = Sandbox("none")
        waiting = asyncio.create_task(sandbox.run("1"))
        await gate.reached.wait()
        await sandbox.close()
        with pytest.raises(RequestError, match="closed"):
            await waiting


class TestClosing:
    async def test_who_waits_for_a_room_is_told_that_there_will_be_none(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, sandbox: Sandbox
    ) -> None:
        hold_up(monkeypatch, Worker, "_open", gate)
        waiting = asyncio.create_task(sandbox.run("1"))
        await gate.reached.wait()
        await sandbox.close()
        async with asyncio.timeout(10):
            with pytest.raises(SandboxUnavailable):
                await waiting

    async def test_a_room_that_comes_with_a_cancel_is_there_for_the_next_one(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
    ) -> None:
        offer, workers = Worker._offer, []

        def offer_and_cancel(worker: Worker, room: Room) -> None:
            workers.append(worker)
            offer(worker, room)
            waiting.cancel()

        with monkeypatch.context() as cancelled:
            cancelled.setattr(Worker, "_offer", offer_and_cancel)
            waiting = asyncio.create_task(sandbox.run("1"))
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await sandbox.run("2")).value == 2
        assert len(workers[0]._all) == 1

    @pytest.mark.slow
    async def test_who_waits_for_a_room_gets_whatever_breaks(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
    ) -> None:
        async def broken(*_: object) -> Room:
            raise ValueError("nobody expects this")

        await sandbox.start()
        with monkeypatch.context() as broken_rooms:
            broken_rooms.setattr(Room, "open", broken)
            async with asyncio.timeout(10):
                results = await asyncio.gather(sandbox.run("1"), sandbox.run("2"), return_exceptions=True)
        assert [type(each) for each in results] == [SandboxUnavailable] * 2
        assert "nobody expects this" in str(results[0])
        assert (await sandbox.run("3")).value == 3

    async def test_a_cell_that_is_about_to_begin_does_not_hold_it_up(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, sandbox: Sandbox
    ) -> None:
        hold_up(monkeypatch, Worker, "_take", gate)
        session = sandbox.session()
        running = asyncio.create_task(session.run("while True: pass", timeout=60))
        await gate.reached.wait()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        gate.open.set()
        async with asyncio.timeout(20):
            await closing
            with pytest.raises(RequestError, match="closed"):
                await running

    async def test_a_session_is_closed_to_the_end(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, sandbox: Sandbox
    ) -> None:
        session = sandbox.session()
        await session.start()
        worker: Any = sandbox._engine._worker  # type: ignore[attr-defined]
        async with session._lock:  # As a cell has it that is just being ended.
            closing = asyncio.create_task(session.close())
            await asyncio.sleep(0.01)
            closing.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert session._engine is None
        assert worker._tidying

    async def test_a_sandbox_is_closed_to_the_end(self, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
        sandbox = Sandbox("none")
        await sandbox.start()
        hold_up(monkeypatch, sandbox._engine, "close", gate)
        closing = asyncio.create_task(sandbox.close())
        await gate.reached.wait()
        closing.cancel()
        await asyncio.sleep(0.01)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert sandbox._engine.lost


class TestCancelling:
    async def test_a_cell_that_is_about_to_begin_is_cancelled_too(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, session: Session
    ) -> None:
        await session.run("x = 1")
        hold_up(monkeypatch, type(session._engine), "_settle", gate)
        running = asyncio.create_task(session.run("while True: pass", timeout=60))
        await gate.reached.wait()
        await session.cancel()
        gate.open.set()
        async with asyncio.timeout(20):
            assert (await running).outcome is Outcome.CANCELLED

    async def test_a_session_does_not_stay_frozen(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, workspace: Path
    ) -> None:
        async with Sandbox("none", workspace=workspace) as sandbox, sandbox.session() as session:
            await session.run("x = 1")
            ask = Room.ask

            async def delayed(self: Room, op: str, event: str, **arguments: Any) -> Any:
                answer = await ask(self, op, event, **arguments)
                if op == "freeze":
                    await gate.passed()
                return answer

            monkeypatch.setattr(Room, "ask", delayed)
            keeping = asyncio.create_task(session.checkpoint(files=True))
            await gate.reached.wait()
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            result = await session.run("x", timeout=10)
            assert (result.outcome, result.value, result.state_lost) == (Outcome.OK, 1, False)

    @pytest.mark.parametrize("times", [1, 2])
    async def test_a_rollback_that_was_begun_is_whole(
        self, monkeypatch: pytest.MonkeyPatch, workspace: Path, times: int
    ) -> None:
        async with Sandbox("none", workspace=workspace) as sandbox, sandbox.session() as session:
            await session.run("x = 1\nopen('a.txt', 'w').write('one')")
            mark = await session.checkpoint(files=True)
            await session.run("x = 2\nopen('a.txt', 'w').write('two')\nopen('b.txt', 'w').write('two')")
            reached, opened = threading.Event(), threading.Event()
            remove = snapshots._remove_changed

            def delayed(*args: Any) -> None:
                reached.set()
                assert opened.wait(20)
                remove(*args)

            monkeypatch.setattr(snapshots, "_remove_changed", delayed)
            going_back = asyncio.create_task(session.rollback(mark))
            await asyncio.to_thread(reached.wait)
            for _ in range(times):
                going_back.cancel()
                await asyncio.sleep(0.01)
            looking = asyncio.create_task(session.run("import os\n(x, open('a.txt').read(), sorted(os.listdir()))"))
            await asyncio.sleep(0.1)
            opened.set()
            with pytest.raises(asyncio.CancelledError):
                await going_back
            assert (await looking).value == (1, "one", ["a.txt"])

    async def test_the_copy_of_a_checkpoint_that_nobody_waits_for_is_removed(
        self, monkeypatch: pytest.MonkeyPatch, workspace: Path
    ) -> None:
        copies: list[Path] = []
        async with Sandbox("none", workspace=workspace) as sandbox, sandbox.session() as session:
            await session.run("open('a.txt', 'w').write('one')")
            reached, opened = threading.Event(), threading.Event()
            copy = snapshots._copy_files

            def delayed(source: Path, target: Path, *more: Any) -> None:
                copies.append(target)
                reached.set()
                assert opened.wait(20)
                copy(source, target, *more)

            monkeypatch.setattr(snapshots, "_copy_files", delayed)
            keeping = asyncio.create_task(session.checkpoint(files=True))
            await asyncio.to_thread(reached.wait)
            keeping.cancel()
            await asyncio.sleep(0.05)
            assert copies[0].is_dir()
            opened.set()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            assert not copies[0].exists()

    async def test_the_threads_of_functions_end(
        self, monkeypatch: pytest.MonkeyPatch, gate: Gate, sandbox: Sandbox
    ) -> None:
        def plain() -> int:
            return len(threading.enumerate())

        async with sandbox.session(functions=[plain]) as session:
            before = threading.active_count()
            with monkeypatch.context() as patched:
                hold_up(patched, Calls, "close", gate)
                running = asyncio.create_task(session.run("plain()"))
                await gate.reached.wait()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                gate.open.set()
            assert (await session.run("2")).value == 2
            await until(lambda: threading.active_count() <= before)
