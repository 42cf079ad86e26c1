"""A state in pydantic-monty's interpreter, and the cells that run in it."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.cell import Program
from coderoom.sandbox.engines.monty.calls import MontyCalls
from coderoom.sandbox.engines.monty.cells import MontyCell, returned, stopped, trip_of
from coderoom.sandbox.engines.monty.pool import MontyPool, MontyWorker
from coderoom.sandbox.engines.monty.workers import Tap, resident
from coderoom.sandbox.functions import HostFunction
from coderoom.sandbox.guest.files import Workspace
from coderoom.sandbox.result import Artifact, ExecutionResult, OutputChunk

__all__ = ["Mark", "MontySession"]

_MIB = 1024 * 1024
_EMPTY = 12 * _MIB  # What a worker has before any code runs, and a little more.
_LIGHT = 16 * _MIB  # A state up to this size is copied before every cell, in some milliseconds.
_COPIED = 200 * _MIB  # A larger one is not copied at all: it would not get through to us.
_KEPT = "Variables are as they were before this cell."
_GONE = "The session was restarted: earlier variables are gone."


@dataclass(frozen=True, eq=False)
class Mark:
    """A state that a session can return to; `None` is the fresh one."""

    state: bytes | None


class MontySession:
    """A state, and the cells that run in it; made by `MontyEngine.open`.

    Args:
        pool: The workers.
        functions: The host's functions that the code may call.
        on_close: Called with the session once it is closed.
    """

    def __init__(
        self, pool: MontyPool, functions: Mapping[str, HostFunction], on_close: Callable[[MontySession], object]
    ) -> None:
        self._pool = pool
        self._on_close = on_close
        self._limits = pool.limits
        # A copy is made inside, with three times its size, and counts there.
        self._copied = min(_COPIED, pool.limits.memory_bytes // 5)
        self._functions = functions
        self._worker: MontyWorker | None = None
        self._has_slot = False
        self._state: bytes | None = None  # What the worker began with, and what there is to go back to.
        self._changed = False  # Whether the worker's state is another one by now.
        self._marks: list[Mark] = []
        self._lost = self._used = self._closed = False
        self._broken: SandboxUnavailable | None = None
        self._lock = asyncio.Lock()
        self._cancelled = asyncio.Event()
        self._tap: Tap | None = None

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell.

        Args:
            code: The cell.
            program: `None`: this engine runs only Python.
            timeout: The seconds that it has; `None`: `limits.wall_seconds`.
            final: Whether nobody needs the state afterwards.
            on_chunk: Called with each piece of output as it arrives.

        Raises:
            SandboxUnavailable: A worker ended without being told to; that says nothing about the code.
            RequestError: The session is closed.
        """
        async with self._use():
            self._cancelled.clear()
            cell = MontyCell.read(code, self._pool.result_name)
            seconds = timeout or self._limits.wall_seconds
            if self._has_slot:
                return await self._run(cell, await self._get_ready(final), seconds, final, on_chunk)
            ready = asyncio.ensure_future(self._get_ready(final))
            if await self._race(ready, None) != "done":
                return ExecutionResult(**stopped(None, None, "" if final else _KEPT), code=code)
            return await self._run(cell, ready.result(), seconds, final, on_chunk)

    async def cancel(self) -> None:
        """End the cell that runs."""
        self._cancelled.set()

    async def checkpoint(self) -> Mark:
        """Keep the state as it is.

        Raises:
            RequestError: The session is closed, or the state is too large to be copied.
            SandboxUnavailable: The worker has ended.
        """
        async with self._use():
            self._raise_broken()
            if not await self._keep(self._copied):
                raise RequestError(
                    "The state is too large for a checkpoint: the engine 'monty' keeps up to "
                    f"{self._copied // _MIB} MiB with memory_bytes={self._limits.memory_bytes:,}."
                )
            mark = Mark(self._state)
            self._marks.append(mark)
            return mark

    async def rollback(self, mark: Mark) -> None:
        """Go back to a state, as often as wanted; checkpoints that were made after it are gone.

        Raises:
            RequestError: The session is closed, or the checkpoint is of another session, or gone.
        """
        async with self._use():
            if mark not in self._marks:
                raise RequestError(
                    "This checkpoint is gone: the session was rolled back behind it, restarted or closed."
                )
            del self._marks[self._marks.index(mark) + 1 :]
            await self._go_back(mark.state)

    def release(self, mark: Mark) -> None:
        """Keep a state no longer; one that is gone already is no error."""
        if mark in self._marks:
            self._marks.remove(mark)

    async def restart(self) -> None:
        """Go back to the fresh state; checkpoints are gone."""
        async with self._use():
            self._marks.clear()
            self._used = False
            await self._go_back(None)

    async def close(self) -> None:
        """End the cell that runs, and forget the state; a second time does nothing."""
        self._closed = True
        self._cancelled.set()
        async with self._lock:
            self._marks.clear()
            await self._go_back(None)
            await self._rest()
            self._on_close(self)

    def abandon(self) -> None:
        """The same without waiting, for a session that nobody has any more."""
        task = asyncio.ensure_future(self.close())
        self._abandoning = task

    def hold_output(self, held: bool) -> None:
        """Let the cell that runs wait with its output, or go on."""
        if self._tap is not None:
            self._tap.hold(held)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Let no cell begin for as long as the context lasts; between cells nothing runs anyway."""
        async with self._use():
            yield

    @property
    def used(self) -> bool:
        """Whether code has run since the fresh state."""
        return self._used

    async def park(self) -> bool:
        """Give up the slot, and the worker too unless the state is too large; `False` if both are needed."""
        if self._lock.locked():
            return False
        async with self._lock:
            await self._park()
        return True

    @contextlib.asynccontextmanager
    async def _use(self) -> AsyncIterator[None]:
        async with self._lock:
            if self._closed:
                raise RequestError("The session is closed; open a new one.")
            try:
                yield
            finally:
                await self._rest()

    async def _run(
        self,
        cell: MontyCell,
        worker: MontyWorker,
        seconds: float,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
    ) -> ExecutionResult:
        self._used = True
        folder = self._pool.workspace
        files = None if folder is None else Workspace(str(folder), bring=False)
        if files is not None:
            await asyncio.to_thread(files.remember)
        tap = self._tap = Tap(self._limits.output_bytes, on_chunk, worker.pid)
        if self._lost and not final:  # Whoever asked for the cell that lost it got no result.
            tap.take("stderr", f"{_GONE}\n")
        begin = time.monotonic()
        calls = MontyCalls(self, self._functions, self._limits)
        lookup = {"input": _no_input, "exit": _exit, "quit": _exit, **calls.lookup()}
        feed = asyncio.ensure_future(worker.feed(cell.source, lookup, tap.take))
        try:
            ending = await self._race(feed, seconds)
            duration = time.monotonic() - begin
            tap.finish()
            facts = await self._judge(cell, ending, feed, seconds, final)
        except BaseException:
            # Whoever waited has gone, or the worker has.
            await asyncio.shield(self._drop(final))
            raise
        finally:
            self._tap = None
            tap.finish()
            called = await calls.close()
        if files is not None:
            facts["artifacts"] = _artifacts((await asyncio.to_thread(files.changes))[0], str(folder))
            facts["artifacts_left_out"] = files.left_out
        lost, self._lost = self._lost and not final, False
        return _conclude(cell.code, facts, tap, duration=duration, state_lost=lost, calls=called)

    async def _judge(
        self, cell: MontyCell, ending: str, feed: asyncio.Future[Any], seconds: float, final: bool
    ) -> dict[str, Any]:
        """What came of it. A worker that was in the middle of something is let go."""
        if ending != "done":
            return stopped(seconds if ending == "timeout" else None, "wall", await self._drop(final))
        error: Any = feed.exception()
        ours = error is not None and not self._pool.is_of_code(error)
        trip = None if ours or error is None else trip_of(error)
        if not ours and trip is None:
            self._changed = True
            return returned(feed.result()) if error is None else cell.failed(error, self._pool.workspace is not None)
        rest = await self._drop(final)
        if trip == "memory":
            return cell.outgrew(error, self._limits, rest)
        if trip == "cpu" or getattr(error, "timed_out", False):
            return stopped(self._limits.cpu_seconds or 0, "cpu", rest)
        raise SandboxUnavailable(
            f"The worker of the engine 'monty' ended while it ran code: {error}. {rest}"
        ) from error

    async def _race(self, work: asyncio.Future[Any], seconds: float | None) -> Literal["done", "timeout", "cancelled"]:
        """Wait for something, but not longer than for a time, and not if the cell is cancelled."""
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait((work, cancelled), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return "done"
            return "cancelled" if cancelled.done() else "timeout"
        finally:
            cancelled.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
                if not work.cancelled():
                    work.exception()  # Nobody waits for it any more.

    async def _get_ready(self, final: bool) -> MontyWorker:
        self._raise_broken()
        self._pool.note_busy(self)
        if not self._has_slot:
            await self._pool.take_slot()
            self._has_slot = True
        if self._worker is None:
            self._worker = await self._pool.check_out(self._state)
        elif not final:
            await self._keep(min(_LIGHT, self._copied))
        return self._worker

    async def _keep(self, most: int) -> bool:
        """Have a copy of the state, unless it is larger than that; whether there is one now."""
        worker = self._worker
        if worker is None or not self._changed:
            return True
        if (resident(worker.pid) or 0) - _EMPTY > most:
            return False
        dump = asyncio.ensure_future(worker.dump())
        try:
            await asyncio.wait((dump,))
        finally:
            # If it were cancelled in the middle, the state would be gone.
            await asyncio.wait((dump,))
        try:
            self._state = dump.result()
        except SandboxUnavailable as error:
            await self._drop()
            raise SandboxUnavailable(f"{error} {_GONE}") from error
        self._changed = False
        return True

    async def _drop(self, final: bool = False) -> str:
        """Let the worker go as it is; what is to be said of the variables."""
        worker, self._worker = self._worker, None
        if self._changed:
            self._state, self._lost = None, True
        self._changed = False
        if worker is not None:
            await self._pool.give_back(worker, ended=True)
        return "" if final else _GONE if self._lost else _KEPT

    async def _go_back(self, state: bytes | None) -> None:
        worker, self._worker = self._worker, None
        self._state, self._changed, self._lost, self._broken = state, False, False, None
        if worker is not None:
            await self._pool.give_back(worker)

    async def _rest(self) -> None:
        """Let others have what this session does not need now."""
        if self._has_slot and (self._worker is None or self._pool.note_idle(self)):
            await self._park()

    async def _park(self) -> None:
        self._pool.note_busy(self)
        try:
            if await self._keep(self._copied) and self._worker is not None:
                worker, self._worker = self._worker, None
                await self._pool.give_back(worker)
        except SandboxUnavailable as error:
            self._broken = error  # Whoever comes next has to know; now nobody asks.
        finally:
            if self._has_slot:
                self._has_slot = False
                self._pool.give_slot()

    def _raise_broken(self) -> None:
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken


def _conclude(code: str, facts: dict[str, Any], tap: Tap, **more: Any) -> ExecutionResult:
    output = tap.output
    output.add("stderr", facts.pop("stderr", "").encode("utf-8", "replace"))
    tap.finish()
    if output.truncated and facts.get("limit") in (None, "value"):
        facts["limit"] = "output"
    return ExecutionResult(
        **facts,
        **more,
        stdout=output.text("stdout"),
        stderr=output.text("stderr"),
        output=output.text(),
        truncated=output.truncated,
        output_size=output.size,
        code=code,
    )


def _artifacts(found: Sequence[Mapping[str, Any]], workspace: str) -> tuple[Artifact, ...]:
    return tuple(
        Artifact(
            file["name"],
            file["size"],
            mimetypes.guess_type(file["name"])[0] or "application/octet-stream",
            Path(workspace, file["name"]),
        )
        for file in found
    )


def _no_input(*_: object) -> str:
    raise RuntimeError("input() is not available: nobody can answer here. Put the values into the code.")


def _exit(code: object = None) -> None:
    raise SystemExit(*(() if code is None else (str(code),)))
