"""The engine `cpython`: cells in forks of a warm interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox._collector import Collector
from coderoom.sandbox._languages import Program, program_for
from coderoom.sandbox._limits import Limits
from coderoom.sandbox._outcome import Ending, conclude
from coderoom.sandbox._result import ExecutionResult, OutputChunk
from coderoom.sandbox._room import Holder, Room, integer, why_not
from coderoom.sandbox._runner import Cell, Runner

__all__ = ["CPythonSession", "Held"]

_GRACE = 0.25  # What code gets to end by itself after its time, so that its variables stay.
_PATIENCE = 20.0
_cells = itertools.count(1)


@dataclass(eq=False)
class Held:
    """A state that waits.

    Attributes:
        holder: The process that holds it.
        pid: Its number inside the room.
    """

    holder: Holder
    pid: int


@dataclass(eq=False)
class _Live:
    runner: Runner
    parent: Holder
    number: int
    sending: asyncio.Future[None] | None = None


class CPythonSession:
    """A state in a room, and the cells that run in it.

    Args:
        room: The room; whoever has it closes it.
        limits: What the code may use.
        result_name: A variable whose value counts where a cell has none.
    """

    def __init__(self, room: Room, limits: Limits, result_name: str | None) -> None:
        self._room = room
        self._limits = limits
        self._result_name = result_name
        self._live: _Live | None = None
        self._held: list[Held] = []
        self._printing: Runner | None = None
        self._lost = False
        self._used = False
        self._cancelled = asyncio.Event()

    async def run(
        self,
        code: str,
        language: str = "python",
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell; see `Session.run`."""
        self._cancelled.clear()
        self._room.take_limit()
        cell = Cell(next(_cells), Collector(self._limits.output_bytes, on_chunk))
        begin = time.monotonic()
        program = program_for(language)
        if self._limits.cpu_seconds is not None:
            await self._room.tell({"op": "cell"})
        live = await (self._give(cell, code, final) if program is None else self._launch(cell, code, program))
        self._printing = live.runner
        try:
            seconds = timeout or self._limits.wall_seconds
            ending = await self._wait(cell, live, seconds, may_answer=not (final or program))
            cell.output.finish()
            lost = await self._clear_up(cell, live, ending, final)
        except BaseException:
            # Whoever waited has gone. What runs is ended all the same.
            self._lost = self._lost or not final
            with contextlib.suppress(SandboxUnavailable):
                await asyncio.shield(self._end_live(self._held))
            raise
        finally:
            self._printing = None
            if program is not None:
                live.runner.close()
        if cell.ended is not None:
            if cell.ended.get("lost"):
                raise SandboxUnavailable("Everything in the sandbox was ended from outside while the code ran.")
            cell.ended = {**cell.ended, "limit": self._room.take_limit()}
        lost, self._lost = lost or self._lost, False
        duration = time.monotonic() - begin
        return conclude(cell, ending, code, self._limits, duration, timeout, state_lost=None if final else lost)

    async def cancel(self) -> None:
        """End the cell that runs."""
        self._cancelled.set()

    async def checkpoint(self) -> Held:
        """Keep the state as it is; see `Session.checkpoint`."""
        live = await self._get_live()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        holder = Holder(ours, live.runner.key)
        try:
            holder.announce("holding")
            try:
                await live.runner.send({"op": "checkpoint"}, (theirs.fileno(),))
            except ConnectionError as error:
                raise SandboxUnavailable("The session's process has ended.") from error
            finally:
                theirs.close()
            facts = await holder.expect("holding")
        except BaseException:
            holder.close()
            raise
        held = Held(holder, integer(facts, "pid"))
        self._held.append(held)
        await self._tell_kept()
        return held

    async def rollback(self, held: Held) -> None:
        """Go back to a state; see `Session.rollback`."""
        if held not in self._held or held.holder.lost:
            raise RequestError("This checkpoint is gone: the session was rolled back behind it, restarted or closed.")
        keep = self._held[: self._held.index(held) + 1]
        await self._end_live(keep)
        for other in self._held[len(keep) :]:
            other.holder.close()
        self._held = keep
        await self._tell_kept()
        self._live = await self._fork(held.holder)
        try:
            await self._get_live()
        except SandboxUnavailable as error:
            # Code was in that process and may have broken it. The room is as sound as before.
            await self.restart()
            raise RequestError("This checkpoint is gone: code has broken it. The session was restarted.") from error

    async def restart(self) -> None:
        """Go back to the fresh state; checkpoints are gone."""
        await self._end_live([])
        for held in self._held:
            held.holder.close()
        self._held = []
        self._used = False

    def hold_output(self, held: bool) -> None:
        """Let the cell that runs wait with its output, or go on."""
        if self._printing is not None:
            self._printing.pause() if held else self._printing.resume()

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Let everything in the room stand still for as long as the context lasts."""
        await self._room.ask("freeze", "freeze")
        try:
            yield
        finally:
            await self._room.ask("thaw", "thaw")

    def close(self) -> None:
        """Close what is ours; the room ends the processes."""
        if self._live is not None:
            self._room.leave(self._live.runner)
        for held in self._held:
            held.holder.close()

    @property
    def used(self) -> bool:
        """Whether code has run since the fresh state."""
        return self._used

    async def _give(self, cell: Cell, code: str, final: bool) -> _Live:
        """Give a cell to the process with the state."""
        live = await self._get_live()
        live.runner.watch(cell)
        self._used = True
        message = {"op": "cell", "id": cell.number, "code": code, "final": final, "result_name": self._result_name}
        with contextlib.suppress(ConnectionError):  # Then it has ended, and that is noted in a moment.
            if not live.runner.send_now(message):
                # It may never take the rest of it. The cell's time runs meanwhile.
                live.sending = asyncio.ensure_future(live.runner.send(message))
        return live

    async def _launch(self, cell: Cell, code: str, program: Program) -> _Live:
        """Start a program for a cell."""
        runner = Runner()
        runner.watch(cell)
        return _Live(runner, self._room, await self._room.start(runner, "exec", code=code, **program.request()))

    async def _get_live(self) -> _Live:
        live = self._live
        if live is None or live.runner.ended is not None:
            if live is not None:
                self._room.leave(live.runner)
            runner, number = await self._room.take_spare()
            self._live = live = _Live(runner, self._room, number)
        if not live.runner.ready.is_set():
            try:
                await asyncio.wait_for(live.runner.ready.wait(), _PATIENCE)
            except TimeoutError:
                raise SandboxUnavailable(f"The session's process did not get ready in {_PATIENCE:g} seconds.") from None
        if live.runner.pid == 0:
            raise SandboxUnavailable(f"The session's process could not start: {why_not(live.runner)}.")
        return live

    async def _fork(self, parent: Holder) -> _Live:
        runner = Runner(self._room.largest)
        return _Live(runner, parent, await parent.start(runner))

    async def _wait(self, cell: Cell, live: _Live, seconds: float, may_answer: bool) -> Ending:
        ending = await self._first(cell, seconds)
        if live.sending is not None:
            live.sending.cancel()
            await asyncio.gather(live.sending, return_exceptions=True)
            live.sending = None
        if ending is not Ending.BY_ITSELF and may_answer:
            # It may end by itself when it is interrupted; then its variables are still there.
            with contextlib.suppress(SandboxUnavailable):
                await live.parent.interrupt(live.number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(cell.finished.wait(), _GRACE)
        return ending

    async def _first(self, cell: Cell, seconds: float) -> Ending:
        finished = asyncio.ensure_future(cell.finished.wait())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait((finished, cancelled), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if finished.done():
                return Ending.BY_ITSELF
            return Ending.CANCELLED if cancelled.done() else Ending.TIMEOUT
        finally:
            finished.cancel()
            cancelled.cancel()

    async def _clear_up(self, cell: Cell, live: _Live, ending: Ending, final: bool) -> bool:
        """End what a cell has left running that it should not have; return whether the variables are gone."""
        if final or (ending is Ending.BY_ITSELF and cell.answer is not None):
            return False
        if live is not self._live:  # A program of another language.
            if ending is not Ending.BY_ITSELF:
                await self._room.kill(self._kept_pids())
            return False
        if cell.answer is None or cell.answer.get("threads", 1) != 1:
            await self._end_live(self._held)
            return True
        await self._room.kill(self._kept_pids())
        return False

    async def _tell_kept(self) -> None:
        await self._room.tell({"op": "keep", "pids": [held.pid for held in self._held]})

    def _kept_pids(self) -> list[int]:
        live = [] if self._live is None else [self._live.runner.pid]
        return live + [held.pid for held in self._held]

    async def _end_live(self, keep: list[Held]) -> None:
        await self._room.kill([held.pid for held in keep])
        live, self._live = self._live, None
        if live is not None:
            self._room.leave(live.runner)
