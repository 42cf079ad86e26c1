"""The engine `cpython`: cells in forks of a warm interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coderoom._util.tasks import run_uncancellable
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.cell import Collector, Program
from coderoom.sandbox.engines.cpython.channel import ForkServerClient, integer
from coderoom.sandbox.engines.cpython.outcome import Ending, RunningCell, conclude
from coderoom.sandbox.engines.cpython.room import MOST_CHECKPOINTS, Room, Runner
from coderoom.sandbox.functions import Calls, HostFunction
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.result import ExecutionResult, OutputChunk

__all__ = ["CPythonSession", "CheckpointHandle"]

# What code gets to end by itself after its time, so that its variables stay; `subprocess` alone takes 0.25 seconds.
_GRACE = 0.3
_LAST_GRACE = 0.2  # Once all that it could be waiting for has ended.
_LEAVING = 0.4  # For a fork of the state, where it has threads.
_GONE = "This checkpoint is gone: it was released, or the session was rolled back behind it, restarted or closed."
_RESTARTED = b"The session was restarted: earlier variables are gone.\n"
_cells = itertools.count(1)


@dataclass(eq=False)
class CheckpointHandle:
    """A state that waits.

    Attributes:
        client: The process that holds it.
        pid: Its number inside the room.
        released: Whether nobody will go back to it.
    """

    client: ForkServerClient
    pid: int
    released: bool = False


@dataclass(eq=False)
class _Live:
    runner: Runner
    sending: asyncio.Future[None] | None = None


class CPythonSession:
    """A state in a room, and the cells that run in it.

    Args:
        give_back: Called at the end with the room.
        room: The room.
        limits: What the code may use.
        result_name: A variable whose value counts where a cell has none.
        functions: Functions of the host that cells may call, by name.
    """

    def __init__(
        self,
        give_back: Callable[[Room], None],
        room: Room,
        limits: Limits,
        result_name: str | None,
        functions: Mapping[str, HostFunction],
    ) -> None:
        self._give_back = give_back
        self._room = room
        self._limits = limits
        self._result_name = result_name
        self._functions = functions
        self._live: _Live | None = None
        self._held: list[CheckpointHandle] = []
        self._root: CheckpointHandle | None = None  # What the state that lives is a fork of.
        self._work: asyncio.Future[Any] | None = None
        self._closed = False
        self._printing: Runner | None = None
        self._lost = False
        self._used = False
        self._waited_for: RunningCell | None = None  # The cell that `cancel` ends.

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell; see `Session.run`."""
        cell = self._waited_for = RunningCell(next(_cells), Collector(self._limits.output_bytes, on_chunk))
        await self._settle()
        self._room.limit = None
        begin = time.monotonic()
        if self._limits.cpu_seconds is not None:
            await self._room.tell({"op": "cell"})
        live = await (self._give(cell, code, final) if program is None else self._launch(cell, code, program))
        if self._lost:  # Whoever asked for the cell that lost it got no result.
            cell.output.add("stderr", _RESTARTED)
        self._printing = live.runner
        try:
            ending = await self._see(cell, live, timeout or self._limits.wall_seconds, final)
        finally:
            self._printing = None
            if program is not None:
                live.runner.close()
        if cell.ended is not None:
            if cell.ended.get("lost"):
                raise SandboxUnavailable("Everything in the sandbox was ended from outside while the code ran.")
            cell.ended = {**cell.ended, "limit": self._room.limit}
        lost, self._lost = self._lost, False
        duration = time.monotonic() - begin
        result = conclude(cell, ending, code, self._limits, duration, timeout, state_lost=None if final else lost)
        calls = await cell.end_calls()
        return replace(result, calls=calls) if calls else result

    async def cancel(self) -> None:
        """End the cell that runs."""
        if self._waited_for is not None:
            self._waited_for.finish(Ending.CANCELLED)

    async def checkpoint(self) -> CheckpointHandle:
        """Keep the state as it is; see `Session.checkpoint`."""
        await self._settle()
        count = sum(not held.released for held in self._held)
        if count >= MOST_CHECKPOINTS:
            raise RequestError(
                f"The session has {count} checkpoints, and cannot have more: let go of some with session.release()."
            )
        try:
            return await self._keep()
        except SandboxUnavailable as error:
            if self._room.lost:
                raise
            raise RequestError(
                f"The state cannot be kept, beside {count} checkpoints: {error} "
                "Let go of some with session.release(), and end what code runs in the background."
            ) from error

    async def rollback(self, held: CheckpointHandle) -> None:
        """Go back to a state; see `Session.rollback`."""
        await self._settle()
        await self._whole(self._roll_back(held))

    def release(self, held: CheckpointHandle) -> None:
        """Keep a state no longer; see `Session.release`."""
        held.released = True
        self._sweep()

    async def restart(self) -> None:
        """Go back to the fresh state; checkpoints are gone."""
        await self._settle()
        await self._whole(self._restart())

    def hold_output(self, held: bool) -> None:
        """Let the cell that runs wait with its output, or go on."""
        if self._printing is not None:
            self._printing.pause() if held else self._printing.resume()

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Let everything in the room stand still for as long as the context lasts."""
        try:
            await self._room.ask("freeze", "freeze")
            yield
        finally:  # Also if nobody waited for the answer: it may have been done.
            await run_uncancellable(self._room.ask("thaw", "thaw"))

    async def close(self) -> None:
        """End everything that the session has started; a second time does nothing."""
        self.abandon()

    def abandon(self) -> None:
        """The same without waiting: the room ends the processes."""
        if self._closed:
            return
        self._closed = True
        if self._work is not None:
            self._work.cancel()  # The room is somebody else's from now on.
        if self._live is not None:
            self._room.leave(self._live.runner)
        for held in self._held:
            held.client.close()
        self._give_back(self._room)

    @property
    def used(self) -> bool:
        """Whether code has run since the fresh state."""
        return self._used

    async def _give(self, cell: RunningCell, code: str, final: bool) -> _Live:
        """Give a cell to the process with the state."""
        live = await self._get_live()
        if self._functions:
            cell.calls = Calls(self, self._functions, self._limits, live.runner)
        live.runner.watch(cell)
        self._used = True
        message = {"op": "cell", "id": cell.number, "code": code, "final": final, "result_name": self._result_name}
        with contextlib.suppress(ConnectionError):  # Then it has ended, and that is noted in a moment.
            if not live.runner.send_now(message):
                # It may never take the rest of it. The cell's time runs meanwhile.
                live.sending = asyncio.ensure_future(live.runner.send(message))
        return live

    async def _launch(self, cell: RunningCell, code: str, program: Program) -> _Live:
        """Start a program for a cell."""
        runner = Runner()
        runner.watch(cell)
        await self._room.start(runner, "exec", code=code, **program.request())
        return _Live(runner)

    async def _get_live(self) -> _Live:
        live = self._live
        if live is None or live.runner.ended is not None:
            if live is not None:  # It has ended between two cells.
                self._lost = self._lost or self._used
                self._room.leave(live.runner)
            self._live = live = _Live(await self._room.take_spare())
            self._root = None
            self._sweep()
            if self._functions:
                offers = [function.to_offer() for function in self._functions.values()]
                with contextlib.suppress(ConnectionError):  # Then it has ended, and that is noted in a moment.
                    await live.runner.send({"op": "functions", "offers": offers})
        await self._get_ready(live.runner)
        return live

    async def _get_ready(self, runner: Runner) -> None:
        if not runner.ready.is_set():
            await self._room.patiently(runner.ready.wait())
        if runner.pid == 0:
            raise SandboxUnavailable(f"The session's process could not start: {runner.why_not_ready}.")

    async def _keep(self) -> CheckpointHandle:
        live = await self._get_live()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client = ForkServerClient(ours, live.runner.key)
        try:
            client.announce("holding")
            try:
                await self._room.patiently(live.runner.send({"op": "checkpoint"}, (theirs.fileno(),)))
            except ConnectionError as error:
                raise SandboxUnavailable("The session's process has ended.") from error
            finally:
                theirs.close()
            facts = await self._room.patiently(client.expect("holding"))
        except BaseException:
            client.close()
            raise
        held = CheckpointHandle(client, integer(facts, "pid"))
        self._held.append(held)
        self._room.keep(_pids_of(self._held))
        return held

    async def _roll_back(self, held: CheckpointHandle) -> None:
        if held not in self._held or held.released or held.client.lost:
            raise RequestError(_GONE)
        try:
            await self._go_back(held)
        except SandboxUnavailable as error:
            # Code was in that process and may have broken it. The room is as sound as before.
            await self._restart()
            raise RequestError("This checkpoint is gone: code has broken it. The session was restarted.") from error
        self._lost = False

    async def _go_back(self, held: CheckpointHandle) -> None:
        """Let the state that lives be a fork of one that waits."""
        keep = self._held[: self._held.index(held) + 1]
        await self._end_live(keep, held)
        self._drop(self._held[len(keep) :])
        runner = Runner(self._room.largest)
        try:
            await self._room.patiently(held.client.start(runner))
        except BaseException:
            runner.close()
            raise
        self._live = _Live(runner)
        await self._get_ready(runner)

    async def _restart(self) -> None:
        await self._end_live([])
        self._drop(self._held)
        self._used = self._lost = False

    async def _see(self, cell: RunningCell, live: _Live, seconds: float, final: bool) -> Ending:
        """Wait for a cell's end, and clear up after it."""
        try:
            ending = await cell.wait(seconds)
            self._waited_for = None
        except BaseException:
            # The caller is gone. The code is ended all the same, and its variables stay if they can.
            self._waited_for = None
            with contextlib.suppress(SandboxUnavailable):
                await self._finish(cell, live, Ending.CANCELLED, final)
            raise
        await self._finish(cell, live, ending, final)
        return ending

    async def _finish(self, cell: RunningCell, live: _Live, ending: Ending, final: bool) -> None:
        if ending is not Ending.BY_ITSELF or cell.answer is None:
            await self._whole(self._clear_up(cell, live, ending, final))
        else:
            if live.sending is not None or cell.calls is not None:
                await self._whole(_stop_sending(cell, live))
            if live.runner.broken and not final:
                await self._whole(self._lose())
        cell.output.finish()

    async def _clear_up(self, cell: RunningCell, live: _Live, ending: Ending, final: bool) -> None:
        """End what a cell has left running that it should not have."""
        await _stop_sending(cell, live)
        if final:  # Everything ends in a moment.
            return
        if live is not self._live:  # A program of another language, which has nothing of the session's.
            if ending is not Ending.BY_ITSELF:
                await self._room.kill(self._kept_pids())
            return
        try:
            if ending is not Ending.BY_ITSELF:
                await self._interrupt(cell, live)
            if cell.answer is None or live.runner.broken:
                await self._lose()
            elif cell.answer.get("threads", 1) != 1:
                await self._leave_threads()
            else:
                await self._room.kill(self._kept_pids())
        except SandboxUnavailable:
            self._lost = True
            raise

    async def _interrupt(self, cell: RunningCell, live: _Live) -> None:
        """Ask code to end by itself; then its variables are still there."""
        self._printing = None
        if live.runner.paused:  # It may be waiting for somebody to take what it has printed.
            cell.output.finish()
            live.runner.resume()
        await self._room.interrupt(_pids_of(self._held))
        if not await cell.wait_longer(_GRACE):
            # It may be waiting for somebody who does not let himself be interrupted.
            await self._room.kill(self._kept_pids())
            await self._room.interrupt(_pids_of(self._held))
            await cell.wait_longer(_LAST_GRACE)

    async def _leave_threads(self) -> None:
        """Let the state that lives be a fork of itself, which has none of its threads: nobody can end those."""
        try:
            async with asyncio.timeout(_LEAVING):
                held = await self._keep()
                held.released = True
                await self._go_back(held)
        except (SandboxUnavailable, TimeoutError):
            await self._lose()

    async def _lose(self) -> None:
        await self._end_live(self._held)
        self._lost = True

    async def _end_live(self, keep: list[CheckpointHandle], root: CheckpointHandle | None = None) -> None:
        self._root = root
        await self._room.kill(_pids_of(keep))
        live, self._live = self._live, None
        if live is not None:
            self._room.leave(live.runner)
        self._sweep()

    def _sweep(self) -> None:
        """End states that nobody wants any more, but not the parent of the state that lives: it tells of its end."""
        if not self._closed:
            self._drop([held for held in self._held if held.released and held is not self._root])

    def _drop(self, unwanted: Sequence[CheckpointHandle]) -> None:
        if unwanted:
            for held in unwanted:
                held.client.close()
            self._held = [held for held in self._held if held not in unwanted]
            self._room.keep(_pids_of(self._held))

    def _kept_pids(self) -> list[int]:
        return [*([] if self._live is None else [self._live.runner.pid]), *_pids_of(self._held)]

    async def _whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something to its end, even if whoever waits for it goes meanwhile."""
        self._work = task = asyncio.ensure_future(work)
        task.add_done_callback(_retrieve)
        await asyncio.shield(task)

    async def _settle(self) -> None:
        """Wait for what an earlier call has left to be done."""
        if self._work is not None:
            await asyncio.wait((self._work,))
            self._work = None


def _pids_of(held: Sequence[CheckpointHandle]) -> list[int]:
    """The numbers of the processes that wait."""
    # Code can end them; then somebody else may get their numbers.
    return [each.pid for each in held if not each.client.lost]


async def _stop_sending(cell: RunningCell, live: _Live) -> None:
    if live.sending is not None:
        live.sending.cancel()
        await asyncio.gather(live.sending, return_exceptions=True)
        live.sending = None
    await cell.end_calls()


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
