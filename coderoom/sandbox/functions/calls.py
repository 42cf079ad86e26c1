"""The calls that a cell makes to functions of the host."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coderoom.outcome import Outcome
from coderoom.sandbox.functions.data import Told, as_data, tell
from coderoom.sandbox.functions.function import Arguments, HostFunction
from coderoom.sandbox.functions.log import CallLog
from coderoom.sandbox.functions.threads import Threads
from coderoom.sandbox.guest.frames import encode
from coderoom.sandbox.guest.functions import ENDED, LEFT, PER_CALL, most_waiting
from coderoom.sandbox.guest.stubs import too_large, too_many
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.result import FunctionCall

__all__ = ["Calls", "calls_of"]

_SIDE_BY_SIDE = 32
_THREADS = 16  # Each may hold a value that is far too large before that can be seen.
_LARGE = 65_536  # To check the arguments of so large a call takes a while.
_HEAD = 1024  # What a call has besides its arguments.
_MOMENT = 0.2
_callers: contextvars.ContextVar[tuple[Calls, ...]] = contextvars.ContextVar("coderoom_callers", default=())


class Replies(Protocol):
    """Where answers go: the process that runs the cell."""

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send a message if that needs no waiting."""

    async def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a message."""

    def hold(self, held: bool) -> None:
        """Let no more calls come for now."""

    def limit_input(self) -> None:
        """Let hardly any come from now on."""


def calls_of(owner: object) -> bool:
    """Whether this is done for a call from a cell of that owner, which would wait for itself."""
    return any(calls.is_open and calls.owner is owner for calls in _callers.get())


@dataclass
class _Call:
    number: int
    function: HostFunction
    args: list[Any]
    kwargs: dict[str, Any]
    size: int
    place: int
    refused: Exception | None = None
    task: asyncio.Task[None] | None = None
    left: bool = False


class Calls:
    """Answers the calls of one cell. What comes from there is hostile: it may be anything, and any number of times.

    Functions run in the context of whoever runs the cell.

    Args:
        owner: Whose cell it is; see `calls_of`.
        functions: Those that may be called, by name. Nothing else can be reached.
        limits: How many calls there may be, how long each may take, and how large arguments and results may be.
        replies: Where answers go.

    Attributes:
        owner: See above.
        is_open: Whether the cell still runs.
    """

    def __init__(self, owner: object, functions: Mapping[str, HostFunction], limits: Limits, replies: Replies) -> None:
        self.owner = owner
        self.is_open = True
        self._functions = functions
        self._limits = limits
        self._replies = replies
        self._context = contextvars.copy_context()
        self._context.run(_callers.set, (*_callers.get(), self))
        self._waiting: deque[_Call] = deque()
        self._open_calls: dict[int, _Call] = {}
        self._waiting_bytes = 0
        self._tasks: dict[asyncio.Task[None], _Call] = {}
        self._threads = Threads(_THREADS)
        self._log = CallLog()
        self._held = False
        self._checking = asyncio.Lock()
        self._packing = threading.Lock()
        self._turn = asyncio.Lock()
        self._long: asyncio.Task[None] | None = None  # What sends a long answer, piece by piece.

    def take(self, message: Mapping[str, Any], size: int) -> None:
        """Take a call that has arrived.

        Args:
            message: The call.
            size: How many bytes it had.
        """
        number, name = message.get("call"), message.get("name")
        args, kwargs = message.get("args"), message.get("kwargs")
        if type(number) is not int or not (
            isinstance(name, str) and isinstance(args, list) and isinstance(kwargs, dict)
        ):
            return
        function = self._functions.get(name)
        if function is None:
            self._refuse(number, NameError(f"no function {name[:100]!r} is offered here"))
        elif not self.is_open:
            self._refuse(number, RuntimeError(f"{name}() is not called any more, since the cell's time is over"))
        else:
            self._queue(number, function, args, kwargs, size)

    def leave(self, number: Any) -> None:
        """End a call whose answer nobody waits for any more."""
        call = self._open_calls.get(number) if type(number) is int else None
        if call is not None and not call.left:
            call.left = True
            self._log.write(call.place, Outcome.CANCELLED, LEFT)
            if call.task is not None and call.task is not self._long:
                call.task.cancel()

    async def close(self) -> tuple[FunctionCall, ...]:
        """End what is still at work, and return all calls in the order in which they came."""
        self.is_open = False
        self._hold(False)
        self._replies.limit_input()
        cut_off = bool(self._tasks or self._waiting)
        self._waiting.clear()
        for task in self._tasks:
            if task is not self._long:
                task.cancel()
        if self._long is not None:  # Else its reader would understand nothing that comes after it.
            await asyncio.wait((self._long,), timeout=_MOMENT)
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # One that does not let itself be cancelled is left alone; it can answer nobody any more.
            await asyncio.wait(tuple(self._tasks), timeout=_MOMENT)
        with contextlib.suppress(ConnectionError):
            if cut_off:  # What nobody reads would be in the way of whoever comes next.
                self._replies.send_now({"op": "ended", "error": tell(RuntimeError(ENDED))})
        self._threads.close()
        return self._log.close(ENDED)

    def _queue(self, number: int, function: HostFunction, args: list[Any], kwargs: dict[str, Any], size: int) -> None:
        most, largest = self._limits.calls, self._limits.value_bytes
        if len(self._log) > most:  # The code has been told already.
            return
        refused: Exception | None = None
        if len(self._log) == most:
            refused = too_many(function.name, most)
        elif size > largest + _HEAD:
            refused = too_large(function.name, size, largest)
        place = self._log.open(function, args, kwargs)
        self._waiting_bytes += size + PER_CALL
        call = self._open_calls[number] = _Call(number, function, args, kwargs, size, place, refused)
        self._waiting.append(call)
        if self._waiting_bytes > most_waiting(largest):
            self._hold(True)  # No stub sends so many.
        self._start()

    def _hold(self, held: bool) -> None:
        if self._held != held:
            self._held = held
            self._replies.hold(held)

    def _start(self) -> None:
        while self._waiting and len(self._tasks) < _SIDE_BY_SIDE:
            call = self._waiting.popleft()
            if call.left:
                self._forget(call)
                continue
            call.task = task = asyncio.get_running_loop().create_task(self._answer(call), context=self._context.copy())
            self._tasks[task] = call
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._forget(self._tasks.pop(task))
        if not task.cancelled():
            task.exception()  # What is no answer either: somebody has interrupted the event loop.
        self._start()

    def _forget(self, call: _Call) -> None:
        if self._open_calls.get(call.number) is call:
            del self._open_calls[call.number]
        self._waiting_bytes -= call.size + PER_CALL
        if self._waiting_bytes <= most_waiting(self._limits.value_bytes):
            self._hold(False)

    async def _answer(self, call: _Call) -> None:
        reply, outcome = await self._run(call)
        self._log.write(call.place, outcome, reply["error"]["message"] if "error" in reply else None)
        if self.is_open:
            await self._send({"op": "reply", "call": call.number, **reply})

    async def _run(self, call: _Call) -> tuple[dict[str, Any], Outcome]:
        name = call.function.name
        try:
            arguments = await self._check(call)
        except Exception as error:
            return {"error": tell(error)}, Outcome.REJECTED
        deadline = asyncio.timeout(self._limits.call_seconds)
        try:
            async with deadline:
                return {"value": await self._call(call.function, arguments)}, Outcome.OK
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if deadline.expired():
                late = TimeoutError(f"{name}() did not answer within {self._limits.call_seconds:g} seconds")
                return {"error": tell(late)}, Outcome.TIMEOUT
            if isinstance(error, asyncio.CancelledError) and (call.left or not self.is_open):
                raise
            return {"error": tell(error)}, Outcome.ERROR

    async def _check(self, call: _Call) -> Arguments:
        if call.refused is not None:
            raise call.refused
        if call.size <= _LARGE:
            return call.function.check(call.args, call.kwargs)
        async with self._checking:
            checked: Arguments = await self._in_thread(lambda: call.function.check(call.args, call.kwargs))
        return checked

    async def _call(self, function: HostFunction, arguments: Arguments) -> Any:
        if function.in_thread:
            value = await self._in_thread(lambda: self._run_here(function, arguments))
            if not isinstance(value, _Later):
                return value
            return self._data(function, await value.value)
        return self._data(function, await function.run(arguments))

    def _run_here(self, function: HostFunction, arguments: Arguments) -> Any:
        value = function.run(arguments)
        if inspect.isawaitable(value):
            return _Later(value)
        self._check_length(function, value)  # What is too large must not wait, or many such would lie in memory.
        with self._packing:  # Many threads that compute would leave the event loop no time.
            return self._data(function, value)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        value, told = await self._threads.run(lambda: context.run(_value_or_error, work))
        if told is not None:
            raise Told(told)  # Not the error itself, since its traceback may hold much.
        return value

    def _data(self, function: HostFunction, value: Any) -> Any:
        self._check_length(function, value)
        value = as_data(function.name, value, function.pack)
        self._check_size(function, len(encode({"value": value})))
        return value

    def _check_length(self, function: HostFunction, value: Any) -> None:
        if isinstance(value, str | list | tuple | dict):
            self._check_size(function, len(value))  # As JSON it has at least as many bytes.

    def _check_size(self, function: HostFunction, size: int) -> None:
        most = self._limits.value_bytes
        if size > most:
            raise ValueError(
                f"{function.name}(): its result has {size:,} bytes as JSON, or more; {most:,} may come back"
            )

    async def _send(self, reply: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # Whoever asked has ended.
            if self._turn.locked() or not self._replies.send_now(reply):
                async with self._turn:
                    self._long = asyncio.current_task()
                    try:
                        await self._replies.send(reply)
                    finally:
                        self._long = None

    def _refuse(self, number: int, error: Exception) -> None:
        # Whoever asks for more than there is and does not read the answers gets none.
        with contextlib.suppress(ConnectionError):
            self._replies.send_now({"op": "reply", "call": number, "error": tell(error)})


@dataclass
class _Later:
    """What a plain function returned, which is still to be awaited."""

    value: Awaitable[Any]


def _value_or_error(work: Callable[[], Any]) -> tuple[Any, dict[str, Any] | None]:
    """Do it and raise nothing: of some exceptions an event loop would make more than an answer."""
    try:
        return work(), None
    except BaseException as error:
        return None, tell(error)
