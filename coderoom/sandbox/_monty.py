"""The engine `monty`: cells in pydantic-monty's own interpreter, on any system. All that knows pydantic-monty is here.

Its workers have neither files nor a network nor other programs, because the interpreter has no words for them; that is
a wall made of language. A state is data that can be copied, so a session needs a worker only while a cell runs, a
checkpoint is a copy, and a cell that had to be ended takes nothing with it but itself.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import json
import mimetypes
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox._collector import Collector
from coderoom.sandbox._inside.files import Workspace
from coderoom.sandbox._limits import Limits
from coderoom.sandbox._policy import Policy
from coderoom.sandbox._result import Artifact, CodeError, ExecutionResult, Limit, OutputChunk
from coderoom.sandbox._session import stream_of

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["MODULES", "MontyEngine", "MontySession"]

MODULES = frozenset(
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json "
    "math os pathlib posixpath random re sys time tomllib typing unicodedata".split()
)

_MIB = 1024 * 1024
_EVER = 86_400.0
_WORKER = 12 * _MIB  # What a worker has before any code runs, and a little more.
_LIGHT = 16 * _MIB  # A state up to this size is kept before every cell: that takes some milliseconds.
_BLOATED = 64 * _MIB  # A worker that has grown to this is not used again: it gives nothing back.
_BACKLOG = 4 * _MIB
_REPR = 20_000
_PYTHON = ("python", "python3", "py")
_KEPT = "Variables are as they were before this cell."
_GONE = "The session was restarted: earlier variables are gone."
_CPYTHON = "engine='cpython' runs all of Python"

_SHOW = "__coderoom_show__"
_NAME = "<python-input-"
_OURS = f"{_NAME}0>"
# The first thing that a fresh state is fed. It turns a value into text in there: on its way out a value is copied three
# times, which a large one does not survive, and what is left of an instance outside is only its class's name. Builtins
# are defaults, for the code may give their names to something else.
_PRELUDE = '''
import json as __coderoom_json

def __coderoom_plain__(value, room, *, scalars=(bool, int, float), string=str, sequences=(list, tuple), mapping=dict,
                       type=type, len=len):
    level, deep = [value], 0
    while level and deep < 200:
        below = []
        deep += 1
        for item in level:
            kind = type(item)
            room -= 1
            if kind is string:
                room -= len(item)
            elif kind in sequences:
                room -= len(item)
                below.extend(item if room > 0 else ())
            elif kind is mapping:
                for key in item:
                    if type(key) is not string:
                        return False, room
                    room -= len(key) + 1
                below.extend(item.values() if room > 0 else ())
            elif item is not None and kind not in scalars:
                return False, room
            if room < 0:
                return False, room
        level = below
    return not level, room

def __coderoom_brief__(value, most, *, plain=__coderoom_plain__, string=str, mapping=dict, type=type, repr=repr, len=len):
    if type(value) is string:
        return repr(value[:most])
    parts, size = [], 0
    for item in value.items() if type(value) is mapping else value:
        part = repr(item) if plain(item, 2000)[0] else "..."
        parts.append(part)
        size += len(part)
        if size > most:
            break
    return f"{type(value).__name__} of {len(value):,}: " + ", ".join(parts)

def __coderoom_show__(value, other=None, *, limit=LIMIT, most=REPR, plain=__coderoom_plain__, brief=__coderoom_brief__,
                      repr=repr, len=len, type=type, dumps=__coderoom_json.dumps, Error=Exception):
    if value is None and other is not None:
        try:
            value = other()
        except Error:
            pass
    if value is None:
        return None
    data, room = plain(value, limit)
    try:
        shown = brief(value, most) if room < 0 else repr(value)
        if len(shown) > most:
            shown = f"{shown[:most]}... ({len(shown):,} characters)"
    except Error as error:
        shown = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    if data:
        try:
            text = dumps(value)
            if len(text) <= limit:
                return ("data", shown, text)
        except Error:
            pass
    return ("repr", shown)
'''

# A worker that computes does not notice that its host has died, only one that waits does. This program notices.
_GUARD = """
import os, signal, sys
held = {}
for line in sys.stdin.buffer:
    pid = int(line[1:])
    old = held.pop(pid, None)
    if old is not None:
        os.close(old)
    if line[:1] == b"+":
        try:
            held[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            pass
for pid, fd in held.items():
    try:
        os.kill(pid, signal.SIGKILL) if fd is None else signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
"""


class MontyEngine:
    """Workers with pydantic-monty's interpreter, and the sessions that take turns in them.

    Args:
        limits: What a cell may use. `processes` and `open_files` say nothing here: the code can start nothing.
        policy: `open` or `restricted`; the code is checked before it gets here, but under `restricted` the variable
            `result` counts where a cell has no value.
        preload: Modules; all that there are need no preparation, so that they are only checked.
        workspace: A folder that the code may read and write, seen inside as `/workspace`; `None`: there are no files.
        env: The whole environment of the code.
        network: Must be false, as `python`, `readable` and `options` must be empty: there is no such thing here.
        python: See `network`.
        readable: See `network`.
        options: See `network`.
        workers: How many sessions may have a worker at a time; the state of the others waits as data.

    Raises:
        RequestError: Something is asked for that this engine does not have.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        policy: str = "open",
        preload: Sequence[str] = (),
        workspace: Path | None = None,
        env: Mapping[str, str] | None = None,
        network: bool = False,
        python: object = None,
        readable: Sequence[object] = (),
        options: Mapping[str, Any] | None = None,
        workers: int = 32,
    ) -> None:
        given = {"network": network, "python": python, "readable": readable, "options": options}
        for name, value in given.items():
            if value:
                raise RequestError(f"{name}={value!r} is nothing for the engine 'monty'; {_CPYTHON}.")
        unknown = [name for name in preload if name not in MODULES]
        if unknown:
            raise RequestError(f"preload={unknown!r}: {_modules()}")
        if workers < 1:
            raise RequestError(f"workers={workers!r} must be at least 1")
        self.limits = limits or Limits()
        self.result_name = "result" if Policy.named(policy).name == "restricted" else None
        self.workspace = workspace
        self._env = dict(env or {})
        self._slots = asyncio.Semaphore(workers)
        self._waiting = 0
        self._idle: dict[MontySession, None] = {}
        self._sessions: set[MontySession] = set()
        self._pool: pydantic_monty.AsyncMonty | None = None
        self._ending = contextlib.ExitStack()
        self._guard = _Guard()
        self.mount: pydantic_monty.MountDir | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start a first worker and try whether it does what is needed; a second time does nothing.

        Raises:
            MissingDependencyError: pydantic-monty is not installed.
            SandboxUnavailable: No worker can be started, or it is not one that is known here.
        """
        if self._pool is not None:
            return
        monty = _import()
        try:
            if self.workspace is not None:
                self.workspace.mkdir(parents=True, exist_ok=True)
                self.mount = self._ending.enter_context(
                    monty.MountDir(
                        host_path=self.workspace,
                        virtual_path="/workspace",
                        mode="read-write",
                        write_bytes_limit=self.limits.disk_bytes,
                    )
                )
            binary = self._ending.enter_context(_launcher(self.limits))
            # Its own bound would let checkouts wait where no session can be asked to give up its worker.
            pool = monty.AsyncMonty(binary_path=binary, min_processes=1, max_processes=65_536)
            self._pool = await pool.__aenter__()
            await self._try(monty)
        except (OSError, ValueError, TypeError, RuntimeError, monty.MontyError) as error:
            await self.close()
            raise SandboxUnavailable(
                f"The engine 'monty' cannot be started with pydantic-monty {monty.__version__}: {error}. "
                "pip install 'coderoom[monty]' gets a version that is known to work."
            ) from error

    async def close(self) -> None:
        """End every session and every worker; a second time does nothing."""
        for session in list(self._sessions):
            await session.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)
        self._guard.end()
        self._ending.close()

    def kill(self) -> None:
        """The same without waiting, for when there is no event loop any more."""
        self._pool = None
        self._guard.end()
        self._ending.close()

    async def open(self, functions: Mapping[str, Callable[..., Any]] | None = None) -> MontySession:
        """Open a session with a fresh state.

        Args:
            functions: Functions of the host that the code may call by these names; coroutine functions are awaited.

        Raises:
            SandboxUnavailable: The engine is not started.
        """
        if self._pool is None:
            raise SandboxUnavailable("The engine 'monty' is not started, or closed.")
        session = MontySession(self, functions or {})
        self._sessions.add(session)
        return session

    async def check_out(self, state: bytes | None) -> _Worker:
        """Have a worker with a state; `None` is the fresh one."""
        if self._pool is None:
            raise SandboxUnavailable("The engine 'monty' is closed.")
        monty = _import()
        checkout = self._pool.checkout(
            limits={
                "max_memory": self.limits.memory_bytes,
                "max_feed_duration_secs": self.limits.cpu_seconds or _EVER,
                "max_suspensions": 2**53,
            },
            os_policy={"sleep_system_max": float("inf")},
        )
        try:
            await checkout.__aenter__()
            worker = _Worker(checkout, checkout.worker_pid or 0)
            self._guard.hold(worker.pid)
            if state is None:
                prelude = _PRELUDE.replace("LIMIT", str(self.limits.value_bytes)).replace("REPR", str(_REPR))
                await checkout.feed_run(prelude)
            else:
                await checkout.load_session(state)
        except (OSError, RuntimeError, monty.MontyError) as error:
            raise SandboxUnavailable(f"A worker of the engine 'monty' could not be started: {error}") from error
        return worker

    async def give_back(self, worker: _Worker, ended: bool = False) -> None:
        """Let a worker serve others, or be replaced if it has ended or is too large."""
        if not ended and (_resident(worker.pid) or 0) > _BLOATED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            ended = True
        with contextlib.suppress(Exception):  # It is gone in any case.
            await worker.checkout.__aexit__(None, None, None)
        if ended:
            self._guard.release(worker.pid)

    async def take_slot(self) -> None:
        """Wait until there may be one worker more; a session that does nothing gives its own up."""
        self._waiting += 1
        try:
            while self._slots.locked() and self._idle:
                session = next(iter(self._idle))
                del self._idle[session]
                if await session.park():
                    break
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    def give_slot(self) -> None:
        """Let somebody else have a worker."""
        self._slots.release()

    def note_idle(self, session: MontySession) -> bool:
        """Note that a session needs its worker no longer at once; whether somebody else waits for one."""
        self._idle[session] = None
        return self._waiting > 0

    def note_busy(self, session: MontySession) -> None:
        """Note that it needs it again."""
        self._idle.pop(session, None)

    def note_closed(self, session: MontySession) -> None:
        """Note that it is closed."""
        self._idle.pop(session, None)
        self._sessions.discard(session)

    def answer(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        """What the code asks of its system."""
        if name == "os.getenv":
            return self._env.get(args[0], args[1])
        return dict(self._env) if name == "os.environ" else _import().NOT_HANDLED

    async def _try(self, monty: Any) -> None:
        worker = await self.check_out(None)
        try:
            state = await worker.checkout.dump()
            shown = await worker.checkout.feed_run(f"{_SHOW}([1, 'a'])")
        finally:
            await self.give_back(worker)
        worker = await self.check_out(state)
        await self.give_back(worker)
        if shown != ("data", "[1, 'a']", '[1, "a"]'):
            raise ValueError(f"a list came out as {shown!r}")


@dataclass(frozen=True)
class _Worker:
    checkout: pydantic_monty.AsyncMontySession
    pid: int


@dataclass(frozen=True, eq=False)
class _Mark:
    """A state that a session can return to; `None` is the fresh one."""

    state: bytes | None


class MontySession:
    """A state, and the cells that run in it; made by `MontyEngine.open`.

    Args:
        engine: The engine.
        functions: The host's functions that the code may call.
    """

    def __init__(self, engine: MontyEngine, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._engine = engine
        self._functions = {"input": _no_input, "exit": _exit, "quit": _exit, **functions}
        self._worker: _Worker | None = None
        self._has_slot = False
        self._state: bytes | None = None  # What the worker starts from, and what there is to go back to.
        self._changed = False  # Whether the worker's state is another by now.
        self._marks: list[_Mark] = []
        self._lost = self._used = self._closed = False
        self._lock = asyncio.Lock()
        self._cancelled = asyncio.Event()
        self._tap: _Tap | None = None

    async def run(
        self,
        code: str,
        language: str = "python",
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell.

        Args:
            code: The cell.
            language: `python`; any other comes to nothing but an error that says so.
            timeout: The seconds that it has; `None`: `limits.wall_seconds`.
            final: Whether nobody needs the state afterwards.
            on_chunk: Called with each piece of output as it arrives.

        Raises:
            SandboxUnavailable: A worker ended without being told to; that says nothing about the code.
            RequestError: The session is closed.
        """
        if language.strip().lower() not in _PYTHON:
            message = f"The engine 'monty' runs only Python, and this is {language!r}. engine='cpython' runs others too."
            return ExecutionResult(Outcome.ERROR, 1, error=CodeError("UnknownLanguage", message), code=code)
        async with self._lock:
            self._require_open()
            self._cancelled.clear()
            cell = _Cell.read(code, self._engine.result_name)
            try:
                ready = asyncio.ensure_future(self._get_ready(final))
                if await self._race(ready, None) != "done":
                    return self._conclude(cell, _cancelled(_KEPT), None, 0)
                ready.result()
                return await self._run(cell, timeout or self._engine.limits.wall_seconds, final, on_chunk)
            finally:
                await self._rest()

    async def stream(
        self, code: str, *, language: str = "python", timeout: float | None = None
    ) -> AsyncIterator[OutputChunk | ExecutionResult]:
        """Run a cell and give what it prints while it prints it; the result comes last. See `run`."""
        async with contextlib.aclosing(
            stream_of(lambda on_chunk: self.run(code, language, timeout, on_chunk=on_chunk), self.hold_output)
        ) as items:
            async for item in items:
                yield item

    async def cancel(self) -> None:
        """End the cell that runs."""
        self._cancelled.set()

    async def checkpoint(self) -> _Mark:
        """Keep the state as it is.

        Raises:
            RequestError: The state is too large to be copied.
            SandboxUnavailable: The worker has ended.
        """
        async with self._lock:
            self._require_open()
            if not await self._keep(self._engine.limits.memory_bytes // 4):
                raise RequestError(
                    "The state is too large for a checkpoint: a copy needs three times its size inside of "
                    f"memory_bytes={self._engine.limits.memory_bytes:,}. Raise Limits(memory_bytes=...), or drop variables."
                )
            mark = _Mark(self._state)
            self._marks.append(mark)
            return mark

    async def rollback(self, mark: _Mark) -> None:
        """Go back to a state, as often as wanted; later checkpoints are gone.

        Raises:
            RequestError: The checkpoint is of another session, or gone.
        """
        async with self._lock:
            self._require_open()
            if mark not in self._marks:
                raise RequestError("This checkpoint is gone: the session was rolled back behind it, restarted or closed.")
            del self._marks[self._marks.index(mark) + 1 :]
            await self._go_back(mark.state)

    async def restart(self) -> None:
        """Go back to the fresh state; checkpoints are gone."""
        async with self._lock:
            self._require_open()
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
            self._engine.note_closed(self)

    def hold_output(self, held: bool) -> None:
        """Let the cell that runs wait with its output, or go on."""
        if self._tap is not None:
            self._tap.hold(held)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Let no cell begin for as long as the context lasts; between cells nothing runs anyway."""
        async with self._lock:
            yield

    @property
    def used(self) -> bool:
        """Whether code has run since the fresh state."""
        return self._used

    async def park(self) -> bool:
        """Give up the slot, and the worker too unless the state is too large; `False` if it is just needed."""
        if self._lock.locked():
            return False
        async with self._lock:
            await self._park()
        return True

    async def _run(
        self, cell: _Cell, seconds: float, final: bool, on_chunk: Callable[[OutputChunk], None] | None
    ) -> ExecutionResult:
        worker, engine = self._worker, self._engine
        assert worker is not None
        self._used = True
        tap = self._tap = _Tap(engine.limits.output_bytes, on_chunk, worker.pid)
        files = None if engine.workspace is None else Workspace(str(engine.workspace), bring=False)
        if files is not None:
            await asyncio.to_thread(files.remember)
        begin = time.monotonic()
        feed = asyncio.ensure_future(
            worker.checkout.feed_run(
                cell.source,
                external_lookup=dict(self._functions),
                print_callback=tap.take,
                mount=engine.mount,
                os=engine.answer,
            )
        )
        try:
            ending = await self._race(feed, seconds)
            facts = await self._judge(cell, ending, feed, seconds, final)
        except BaseException:
            await asyncio.shield(self._drop())
            raise
        finally:
            self._tap = None
            tap.finish()
        if files is not None:
            facts["artifacts"] = _artifacts(await asyncio.to_thread(files.changes), engine.workspace)
        return self._conclude(cell, facts, tap.output, time.monotonic() - begin, lost=not final)

    async def _judge(
        self, cell: _Cell, ending: str, feed: asyncio.Future[Any], seconds: float, final: bool
    ) -> dict[str, Any]:
        """What came of it; a worker that was ended, or may have been in the middle of something, is let go."""
        if ending != "done":
            rest = await self._drop(final)
            return _cancelled(rest) if ending == "cancelled" else _timeout(seconds, "wall", rest)
        monty, limits = _import(), self._engine.limits
        error = feed.exception()
        if error is None or isinstance(error, monty.MontySyntaxError | monty.MontyRuntimeError):
            self._changed = True
            trip = _trip(error)
            if trip is None:
                return _returned(feed.result()) if error is None else cell.failed(error)
            rest = await self._drop(final)
            return _timeout(limits.cpu_seconds or _EVER, "cpu", rest) if trip == "cpu" else cell.outgrew(error, limits, rest)
        rest = await self._drop(final)
        if getattr(error, "timed_out", False):
            return _timeout(limits.cpu_seconds or _EVER, "cpu", rest)
        raise SandboxUnavailable(f"The worker of the engine 'monty' ended while it ran code: {error}. {rest}") from error

    async def _race(self, work: asyncio.Future[Any], seconds: float | None) -> Literal["done", "timeout", "cancelled"]:
        """Wait for something, but not longer than for a time, or until it is cancelled."""
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

    async def _get_ready(self, final: bool) -> None:
        self._engine.note_busy(self)
        if not self._has_slot:
            await self._engine.take_slot()
            self._has_slot = True
        if self._worker is None:
            self._worker = await self._engine.check_out(self._state)
            self._changed = False
        elif not final:
            await self._keep(min(_LIGHT, self._engine.limits.memory_bytes // 5))

    async def _keep(self, most: int) -> bool:
        """Have a copy of the state, if it is not too large for that; whether there is one now."""
        worker = self._worker
        if worker is None or not self._changed:
            return True
        if (_resident(worker.pid) or 0) - _WORKER > most:
            return False
        try:
            self._state = await worker.checkout.dump()
        except (RuntimeError, _import().MontyError) as error:
            self._lost = True
            await self._drop()
            raise SandboxUnavailable(f"The session's worker has ended ({error}). {_GONE}") from error
        self._changed = False
        return True

    async def _drop(self, final: bool = False) -> str:
        """Let the worker go as it is; what is to be said of the variables."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await self._engine.give_back(worker, ended=True)
        if self._changed:
            self._state = None
            self._lost = True
        self._changed = False
        return "" if final else _GONE if self._lost else _KEPT

    async def _go_back(self, state: bytes | None) -> None:
        worker, self._worker = self._worker, None
        self._state, self._changed, self._lost = state, False, False
        if worker is not None:
            await self._engine.give_back(worker)
        await self._rest()

    async def _rest(self) -> None:
        if not self._has_slot:
            return
        if self._worker is None or self._engine.note_idle(self):
            await self._park()

    async def _park(self) -> None:
        self._engine.note_busy(self)
        try:
            with contextlib.suppress(SandboxUnavailable):  # The next cell says that the state is lost.
                if await self._keep(self._engine.limits.memory_bytes // 5) and self._worker is not None:
                    worker, self._worker = self._worker, None
                    await self._engine.give_back(worker)
        finally:
            if self._has_slot:
                self._has_slot = False
                self._engine.give_slot()

    def _require_open(self) -> None:
        if self._closed:
            raise RequestError("The session is closed; open a new one.")

    def _conclude(
        self, cell: _Cell, facts: dict[str, Any], output: Collector | None, duration: float, lost: bool = False
    ) -> ExecutionResult:
        output = output or Collector(0)
        told = facts.pop("stderr", "")
        output.add("stderr", told.encode("utf-8", "replace"))
        if output.truncated and not facts.get("limit"):
            facts["limit"] = "output"
        if lost:
            lost, self._lost = self._lost, False
        return ExecutionResult(
            **facts,
            stdout=output.text("stdout"),
            stderr=output.text("stderr"),
            output=output.text(),
            duration=duration,
            truncated=output.truncated,
            output_size=output.size,
            code=cell.code,
            state_lost=lost,
        )
