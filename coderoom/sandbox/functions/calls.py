"""The calls that a cell makes to functions of the host, and their answers.

A session makes one `Calls` for each cell that may call functions. Plain functions run in threads, async functions in
tasks of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from coderoom._util.tasks import Deadline, call_in_loop, pausing_deadlines, retrieve_exception, run_uncancellable
from coderoom.errors import SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox.config import Limits
from coderoom.sandbox.functions.function import (
    LONGEST,
    Arguments,
    HostFunction,
    NotAllowedError,
    NotBegun,
    as_data,
    error_data,
    shorten,
)
from coderoom.sandbox.guest.frames import encode
from coderoom.sandbox.guest.functions import ENDED, LEFT, PER_CALL, most_waiting, too_large, too_many
from coderoom.sandbox.result import FunctionCall

_CONCURRENT = 32
_THREADS = 16  # Not more, since each may have a result that is far too large.
_LARGE = 65_536  # The arguments of a larger call are checked in a thread, since that would block the event loop.
_HEAD = 1024  # The bytes of a call besides its arguments.
_CLOSING_SECONDS = 0.2
# Arguments and errors in the log have about so many characters together, later ones are cut; the names in one entry.
_ROOM = 1024 * 1024
_LEAST = 60
_MOST_NAMES = 20
_LONGEST_NAME = 100
_callers: contextvars.ContextVar[tuple[Calls, ...]] = contextvars.ContextVar("coderoom_callers", default=())
_current: contextvars.ContextVar[tuple[Calls, _Call] | None] = contextvars.ContextVar("coderoom_call", default=None)

_Answer = tuple[dict[str, Any], Outcome]


class Threads:
    """A pool of threads that does not delay the end of the interpreter.

    A pool of `concurrent.futures` would: it waits until all functions have returned.
    """

    def __init__(self) -> None:
        self._count = 0
        self._idle: deque[None] = deque()  # One entry for each thread that waits; simpler than a semaphore, and faster.
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self, work: Callable[[], None]) -> None:
        """Do `work`, which must not raise, in a thread."""
        self._jobs.put(work)
        if self._idle:
            self._idle.pop()  # Only this thread takes entries.
        elif self._count < _THREADS:
            self._count += 1
            name = f"coderoom-call-{self._count}"
            threading.Thread(target=_serve, args=(self._jobs, self._idle), name=name, daemon=True).start()

    def close(self) -> None:
        """End each thread after its current work; waiting work is not done."""
        for _ in range(self._count):
            self._jobs.put(None)


def _serve(jobs: queue.SimpleQueue[Callable[[], None] | None], idle: deque[None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # So that a waiting thread keeps no objects alive.
        idle.append(None)


class Replies(Protocol):
    """The connection to the process that runs the cell, over which answers are sent."""

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send a message, from any thread, if that is possible without waiting; return whether it was sent."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""

    def suspend_reading(self, suspended: bool) -> None:
        """Stop or continue to read calls."""

    def limit_input(self) -> None:
        """Accept little more than the cell's answer from now on."""


def calls_of(owner: object) -> bool:
    """Whether the caller answers a call from a cell of this owner, so that using the owner would be a deadlock."""
    return any(calls.is_open and calls.owner is owner for calls in _callers.get())


@contextlib.asynccontextmanager
async def while_a_person_decides() -> AsyncIterator[None]:
    """Stop the code whose call the caller answers, and all time limits of that call, its cell and its turn.

    All processes of the session stand still, so that the code gains no time by the question. Outside of a call, only
    time limits around it are stopped.
    """
    with pausing_deadlines():
        if (found := _current.get()) is None:
            yield
            return
        calls, call = found
        async with calls.standing_still(call.number):
            with contextlib.nullcontext() if call.deadline is None else call.deadline.paused():
                yield


def log_edited(arguments: Mapping[str, Any]) -> None:
    """Have the log show the call that the caller answers as it was edited, with these arguments by their names."""
    if (found := _current.get()) is not None:
        calls, call = found
        calls.log_edited(call, arguments)


def call_id() -> str:
    """The id of the call that the caller answers; empty outside of one."""
    if (found := _current.get()) is None:
        return ""
    calls, call = found
    return calls.id_of(call)


@dataclass(eq=False)
class _Call:
    number: int
    function: HostFunction
    args: list[Any]
    kwargs: dict[str, Any]
    size: int
    place: int  # Its index in the log.
    begun: float | None  # `None` once its outcome is in the log.
    refused: Exception | None = None
    task: asyncio.Task[None] | None = None
    deadline: Deadline | None = None
    left: bool = False
    answered: bool = False


@dataclass
class _Pending:
    """What a plain function returned that still has to be awaited."""

    value: Awaitable[Any]


class Calls:
    """Answers the calls of one cell. Calls come from untrusted code: they may be malformed, and of any number.

    Functions run in the context of the code that runs the cell. `owner` is the engine's session; see `calls_of`.
    `stop` stops the cell and its time limit as long as its context lasts.
    """

    def __init__(
        self,
        owner: object,
        functions: Mapping[str, HostFunction],
        limits: Limits,
        replies: Replies,
        stop: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.owner = owner
        self.is_open = True
        self._functions = functions
        self._limits = limits
        self._replies = replies
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._context.run(_callers.set, (*_callers.get(), self))
        self._waiting: deque[_Call] = deque()
        self._waiting_bytes = 0
        self._running: set[_Call] = set()
        self._by_number: dict[int, _Call] = {}
        self._threads = Threads()
        self._finished: deque[tuple[_Call, _Answer | _Pending | Arguments]] = deque()  # What threads have done.
        self._log: list[FunctionCall] = []
        self._relayed = 0  # Calls that are not in the log.
        self._room = _ROOM
        self._suspended = False
        self._computing = threading.Lock()  # Many threads that compute would block the event loop.
        self._answering = threading.Lock()  # Threads send short answers themselves.
        self._sending = asyncio.Lock()
        self._long: _Call | None = None  # The call whose answer is being sent in several packets.
        self._stop = stop
        self._stopped = contextlib.AsyncExitStack()
        self._stopping = asyncio.Lock()
        self._decisions = 0  # For which the cell is stopped.

    def take(self, message: Mapping[str, Any], size: int) -> None:
        """Process a call that has arrived, of a size in bytes."""
        number, name = message.get("call"), message.get("name")
        args, kwargs = message.get("args"), message.get("kwargs")
        if type(number) is not int or not (
            isinstance(name, str) and isinstance(args, list) and isinstance(kwargs, dict)
        ):
            return
        function = self._functions.get(name)
        if function is None:
            self._refuse(number, NameError(f"no function {name[:100]!r} is offered here"))
            return
        if not self.is_open:
            self._refuse(number, RuntimeError(f"{name}() cannot be called: the cell's time is over"))
            return
        most, largest = self._limits.calls, self._limits.value_bytes
        made = len(self._log) + self._relayed
        if made > most:  # The code has got the error already.
            return
        refused: Exception | None = None
        if made == most:
            refused = too_many(function.name, most)
        elif size > largest + _HEAD:
            refused = too_large(function.name, size, largest)
        if function.relay is not None and refused is None:
            self._relay(number, function, function.relay, args, kwargs)
            return
        arguments = self._to_log(function.name_arguments(args, kwargs))
        id = secrets.token_hex(8)
        reads = function.effect is not None and function.effect.name == "read"
        self._log.append(FunctionCall(function.name, arguments, Outcome.CANCELLED, 0.0, id=id, reads=reads))
        self._waiting_bytes += size + PER_CALL
        place, begun = len(self._log) - 1, time.monotonic()
        call = self._by_number[number] = _Call(number, function, args, kwargs, size, place, begun, refused)
        self._waiting.append(call)
        if self._waiting_bytes > most_waiting(largest):
            self._suspend_reading(True)  # Only code that bypasses our stubs sends so many.
        self._start()

    def _relay(self, number: int, function: HostFunction, relay: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Have a function answer a call whenever it can, without a task, a time limit or an entry in the log."""
        self._relayed += 1
        try:
            relay(function.check(args, kwargs), functools.partial(self._pass_on, number, function))
        except Exception as error:
            self._refuse(number, error)

    def _pass_on(self, number: int, function: HostFunction, value: Any) -> None:
        message = {"op": "reply", "call": number, "value": value}
        if self.is_open and not self._send_now(message):
            call = _Call(number, function, [], {}, 0, 0, begun=None, answered=True)
            self._waiting_bytes += PER_CALL
            self._running.add(call)
            self._start_task(call, self._send(call, message))

    def leave(self, number: Any) -> None:
        """Cancel a call whose answer the code no longer waits for."""
        call = self._by_number.get(number) if type(number) is int else None
        if call is not None and not call.left:
            call.left = True
            with self._answering:
                self._write(call, Outcome.CANCELLED, LEFT)
            if call is not self._long:
                self._cancel(call)

    async def close(self) -> tuple[FunctionCall, ...]:
        """End the calls that still run, and return all calls in the order of their arrival."""
        with self._answering:
            self.is_open = False
        self._suspend_reading(False)
        self._replies.limit_input()
        unfinished = [*self._waiting, *self._running]
        unanswered = not all(call.answered for call in unfinished)
        self._waiting.clear()
        self._finished.clear()
        long = self._long
        for call in list(self._running):
            if call is not long:
                self._cancel(call)
        tasks = [call.task for call in self._running if call.task is not None]
        if long is not None and long.task is not None:  # A message that is cut off makes the channel unusable.
            await asyncio.wait((long.task,), timeout=_CLOSING_SECONDS)
            self._cancel(long)
        if tasks:  # A task that ignores its cancellation is left running; its answer is dropped.
            await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
        with contextlib.suppress(SandboxUnavailable):  # All of it has ended.
            await self._stopped.aclose()  # Of a decision that ignores its cancellation.
        with contextlib.suppress(ConnectionError):
            if unanswered:
                self._replies.send_now({"op": "ended", "error": error_data(RuntimeError(ENDED))})
        self._threads.close()
        for call in unfinished:
            self._write(call, Outcome.CANCELLED, ENDED)
        return tuple(self._log)

    def _suspend_reading(self, suspended: bool) -> None:
        if self._suspended != suspended:
            self._suspended = suspended
            self._replies.suspend_reading(suspended)

    def _start(self) -> None:
        self._take_finished()
        while self._waiting and len(self._running) < _CONCURRENT:
            call = self._waiting.popleft()
            if call.left:
                self._forget(call)
                continue
            self._running.add(call)
            call.deadline = Deadline(self._limits.call_seconds, functools.partial(self._expire, call))
            if call.function.in_thread or call.size > _LARGE:
                self._start_thread(call)
            else:
                self._start_task(call, self._run_async(call))

    def _start_thread(self, call: _Call) -> None:
        context = self._context_of(call)

        def work() -> None:
            self._finished.append((call, context.run(self._answer_in_thread, call)))
            # Otherwise the event loop need not wake up: it comes here with the next call, or at the end of the cell.
            if not call.answered or self._waiting or self._suspended:
                call_in_loop(self._loop, self._take_finished)

        self._threads.run(work)

    def _take_finished(self) -> None:
        while self._finished:
            call, result = self._finished.popleft()
            if isinstance(result, tuple):
                self._answer(call, *result)
            elif call in self._running and not call.answered:
                task = self._start_task(call, self._run_async(call, result))
                task.add_done_callback(lambda _, pending=result: _close(pending))  # type: ignore[misc] # It may not begin.
            else:
                _close(result)

    def _start_task(self, call: _Call, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        call.task = task = self._loop.create_task(work, context=self._context_of(call))
        task.add_done_callback(retrieve_exception)  # Of an interrupt of the event loop.
        task.add_done_callback(lambda _: self._end(call) if call.task is task else None)
        return task

    def _context_of(self, call: _Call) -> contextvars.Context:
        context = self._context.copy()
        context.run(_current.set, (self, call))
        return context

    def standing_still(self, number: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Stop the cell as long as the context of any call lasts; this one is of the call with a number."""
        return self._standing_still()

    @contextlib.asynccontextmanager
    async def _standing_still(self) -> AsyncIterator[None]:
        async with self._stopping:
            if not self._decisions and self.is_open:
                await self._stopped.enter_async_context(self._stop())
            self._decisions += 1
        try:
            yield
        finally:
            await run_uncancellable(self._decided())

    async def _decided(self) -> None:
        async with self._stopping:
            self._decisions -= 1
            if not self._decisions:
                await self._stopped.aclose()

    def _answer_in_thread(self, call: _Call) -> _Answer | _Pending | Arguments:
        """Do the work of a thread, and send the answer if possible: a detour over the event loop takes longer."""
        result = self._run_in_thread(call)
        if isinstance(result, tuple):
            with self._answering:
                wanted = self.is_open and call in self._running and not call.answered
                if wanted and self._send_now({"op": "reply", "call": call.number, **result[0]}):
                    self._set_answered(call, *result)
        return result

    def _run_in_thread(self, call: _Call) -> _Answer | _Pending | Arguments:
        """Check the arguments, and call a plain function; raises nothing, since an exception would end the thread."""
        function = call.function
        if call not in self._running:  # The cell has ended while the call waited for a thread.
            return {"error": error_data(RuntimeError(ENDED))}, Outcome.CANCELLED
        try:
            with self._computing if call.size > _LARGE else contextlib.nullcontext():
                arguments = _check(call)
        except BaseException as error:
            return {"error": error_data(error)}, Outcome.REJECTED
        if not function.in_thread:
            return arguments
        try:
            value = function.run(arguments)
            if inspect.isawaitable(value):
                return _Pending(value)
            self._check_length(function, value)  # Before the lock: too large values that wait fill the memory.
            with self._computing:
                return {"value": self._data(function, value)}, Outcome.OK
        except BaseException as error:
            return {"error": error_data(error)}, Outcome.ERROR

    async def _run_async(self, call: _Call, ready: Arguments | _Pending | None = None) -> None:
        """Answer a call in the event loop; `ready` is what a thread has prepared, if one has."""
        function = call.function
        try:
            ready = ready or _check(call)
        except Exception as error:
            self._answer(call, {"error": error_data(error)}, Outcome.REJECTED)
            return
        try:
            value = await (ready.value if isinstance(ready, _Pending) else function.run(ready))
            reply, outcome = {"value": self._data(function, value)}, Outcome.OK
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            never_made = isinstance(error, NotAllowedError | NotBegun)
            if isinstance(error, asyncio.CancelledError) and (call.left or call.answered or not self.is_open):
                if never_made:
                    self._write(call, Outcome.REJECTED, ENDED)
                    self._log[call.place] = replace(self._log[call.place], outcome=Outcome.REJECTED)
                raise
            reply, outcome = {"error": error_data(error)}, Outcome.REJECTED if never_made else Outcome.ERROR
        self._answer(call, reply, outcome)

    def _expire(self, call: _Call) -> None:
        seconds = self._limits.call_seconds
        late = TimeoutError(f"{call.function.name}() did not answer within {seconds:g} seconds")
        task = call.task
        self._answer(call, {"error": error_data(late)}, Outcome.TIMEOUT)
        if task is not None:
            task.cancel()

    def _answer(self, call: _Call, reply: dict[str, Any], outcome: Outcome) -> None:
        """Log and send the answer of a call; only the first one counts."""
        with self._answering:
            is_first = not call.answered
            if is_first:
                self._set_answered(call, reply, outcome)
        message = {"op": "reply", "call": call.number, **reply}
        if is_first and self.is_open and call in self._running and not self._send_now(message):
            self._start_task(call, self._send(call, message))
        elif call.task is None:
            self._end(call)

    def _set_answered(self, call: _Call, reply: dict[str, Any], outcome: Outcome) -> None:
        call.answered = True
        self._write(call, outcome, reply["error"]["message"] if "error" in reply else None)

    def log_edited(self, call: _Call, arguments: Mapping[str, Any]) -> None:
        """Put the arguments into the log that somebody has made of those of a call."""
        self._log[call.place] = replace(self._log[call.place], arguments=self._to_log(arguments), edited=True)

    def id_of(self, call: _Call) -> str:
        """The id of a call in the log."""
        return self._log[call.place].id

    def _write(self, call: _Call, outcome: Outcome, error: str | None) -> None:
        """Put the outcome of a call into the log; only the first one counts."""
        if call.begun is not None:
            error = None if error is None else shorten(error, self._most_logged())
            self._room -= len(error or "")
            duration, call.begun = time.monotonic() - call.begun, None
            self._log[call.place] = replace(self._log[call.place], outcome=outcome, duration=duration, error=error)

    def _to_log(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        shown = _brief(arguments, self._most_logged())
        self._room -= sum(len(name) + len(repr(value)) for name, value in shown.items())
        return shown

    def _most_logged(self) -> int:
        return min(LONGEST, max(_LEAST, self._room))

    def _send_now(self, message: dict[str, Any]) -> bool:
        try:
            return not self._sending.locked() and self._replies.send_now(message)
        except ConnectionError:  # The process that called has ended.
            return True

    async def _send(self, call: _Call, message: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            async with self._sending:
                with self._answering:  # No thread is sending now, and none begins while the other lock is taken.
                    self._long = call
                try:
                    await self._replies.send(message)
                finally:
                    self._long = None

    def _cancel(self, call: _Call) -> None:
        if call.task is None:  # Its thread cannot be stopped; its answer is dropped.
            self._end(call)
        else:
            call.task.cancel()

    def _end(self, call: _Call) -> None:
        if call in self._running:
            self._running.discard(call)
            if call.deadline is not None:
                call.deadline.cancel()
            self._forget(call)
            self._start()

    def _forget(self, call: _Call) -> None:
        if self._by_number.get(call.number) is call:
            del self._by_number[call.number]
        self._waiting_bytes -= call.size + PER_CALL
        if self._waiting_bytes <= most_waiting(self._limits.value_bytes):
            self._suspend_reading(False)

    def _data(self, function: HostFunction, value: Any) -> Any:
        self._check_length(function, value)
        value = as_data(function.name, value, function.pack)
        self._check_size(function, len(encode({"value": value})))
        return value

    def _check_length(self, function: HostFunction, value: Any) -> None:
        if isinstance(value, str | list | tuple | dict):
            self._check_size(function, len(value))  # Its JSON has at least as many bytes.

    def _check_size(self, function: HostFunction, size: int) -> None:
        most = self._limits.value_bytes
        if size > most:
            raise ValueError(
                f"{function.name}(): its result has {size:,} bytes as JSON, or more; {most:,} may come back"
            )

    def _refuse(self, number: int, error: Exception) -> None:
        # Dropped if the code does not read answers.
        self._send_now({"op": "reply", "call": number, "error": error_data(error)})


def _close(result: object) -> None:
    """Let go of what was not awaited, without Python's warning."""
    if isinstance(result, _Pending) and inspect.iscoroutine(result.value):
        result.value.close()


def _check(call: _Call) -> Arguments:
    if call.refused is not None:
        raise call.refused
    return call.function.check(call.args, call.kwargs)


def _brief(arguments: Mapping[str, Any], most: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if len(found) == _MOST_NAMES or most <= 0:
            found["..."] = f"{len(arguments) - len(found)} more"
            break
        kept = shorten(value, most)  # A copy: the function may change its arguments.
        found[shorten(name, _LONGEST_NAME)] = kept
        most -= len(repr(kept))
    return found
