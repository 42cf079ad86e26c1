"""The calls that a cell makes to functions of the host."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from coderoom.outcome import Outcome
from coderoom.sandbox._functions._data import as_data, shorten, tell
from coderoom.sandbox._functions._function import Arguments, HostFunction
from coderoom.sandbox._inside.frames import encode
from coderoom.sandbox._limits import Limits
from coderoom.sandbox._result import FunctionCall

__all__ = ["Calls", "calls_of"]

_SIDE_BY_SIDE = 32
_WAITING_BYTES = 16 * 1024 * 1024
_callers: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("coderoom_callers", default=())


class Replies(Protocol):
    """Where answers go: the process that runs the cell."""

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send a message if that needs no waiting."""

    async def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a message."""


def calls_of(owner: object) -> bool:
    """Whether this is done for a call from a cell of that owner, which would wait for itself."""
    return any(caller is owner for caller in _callers.get())


class Calls:
    """Answers the calls of one cell. What comes from there is hostile: it may be anything, and any number of times.

    Args:
        owner: Whose cell it is; see `calls_of`.
        functions: Those that may be called, by name. Nothing else can be reached.
        limits: How many calls there may be, how long each may take, and how large a result may be.
        replies: Where answers go.

    Attributes:
        torn: Whether an answer was broken off in its midst, so that its reader will understand no other one.
    """

    def __init__(self, owner: object, functions: Mapping[str, HostFunction], limits: Limits, replies: Replies) -> None:
        self._owner = owner
        self._functions = functions
        self._limits = limits
        self._replies = replies
        self._slots = asyncio.Semaphore(_SIDE_BY_SIDE)
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._log: list[FunctionCall | None] = []
        self._waiting_bytes = 0
        self.torn = False

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
        elif len(self._log) >= self._limits.calls:
            limit = f"{self._limits.calls:,}"
            self._refuse(number, RuntimeError(f"{name}(): a cell may make {limit} calls, and this one has made them"))
        elif self._waiting_bytes + size > _WAITING_BYTES:
            self._refuse(number, RuntimeError(f"{name}(): too many calls wait; let some end first"))
        else:
            self._log.append(None)
            self._waiting_bytes += size
            task = asyncio.get_running_loop().create_task(
                self._answer(len(self._log) - 1, number, function, args, kwargs)
            )
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._done(task, size))

    async def close(self) -> tuple[FunctionCall, ...]:
        """End what is still at work, and return all calls in the order in which they came."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        return tuple(call for call in self._log if call is not None)

    def _done(self, task: asyncio.Task[None], size: int) -> None:
        self._tasks.discard(task)
        self._waiting_bytes -= size

    async def _answer(
        self, index: int, number: int, function: HostFunction, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        begin = time.monotonic()
        outcome = Outcome.CANCELLED
        error: str | None = "the cell had ended before it answered"
        try:
            async with self._slots:
                reply, outcome = await self._run(function, args, kwargs)
                error = reply["error"]["message"] if "error" in reply else None
                await self._send({"op": "reply", "call": number, **reply})
        finally:
            arguments = {name: shorten(value) for name, value in function.name_arguments(args, kwargs).items()}
            duration = time.monotonic() - begin
            self._log[index] = FunctionCall(function.name, arguments, outcome, duration, error)

    async def _run(
        self, function: HostFunction, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], Outcome]:
        try:
            arguments = function.check(args, kwargs)
        except Exception as error:
            return {"error": tell(error)}, Outcome.REJECTED
        deadline = asyncio.timeout(self._limits.call_seconds)
        try:
            with self._as_caller():
                async with deadline:
                    value = await self._call(function, arguments)
            return {"value": self._as_data(function.name, value)}, Outcome.OK
        except Exception as error:
            if deadline.expired():
                late = TimeoutError(f"{function.name}() did not answer within {self._limits.call_seconds:g} seconds")
                return {"error": tell(late)}, Outcome.TIMEOUT
            return {"error": tell(error)}, Outcome.ERROR

    @contextlib.contextmanager
    def _as_caller(self) -> Iterator[None]:
        token = _callers.set((*_callers.get(), self._owner))
        try:
            yield
        finally:
            _callers.reset(token)

    async def _call(self, function: HostFunction, arguments: Arguments) -> Any:
        if not function.in_thread:
            return await function.run(arguments)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="coderoom-call")
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        value, error = await loop.run_in_executor(self._threads, lambda: context.run(_keep, function, arguments))
        if error is not None:
            raise error
        return value

    def _as_data(self, name: str, value: Any) -> Any:
        value = as_data(name, value)
        size = len(encode({"value": value}))
        if size > self._limits.value_bytes:
            raise ValueError(
                f"{name}(): its result has {size:,} bytes as JSON; {self._limits.value_bytes:,} may come back"
            )
        return value

    async def _send(self, reply: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # Whoever asked has ended.
            if not self._replies.send_now(reply):
                self.torn = True
                await self._replies.send(reply)
                self.torn = False

    def _refuse(self, number: int, error: Exception) -> None:
        # Whoever asks for more than there is and does not read the answers gets none.
        with contextlib.suppress(ConnectionError):
            self._replies.send_now({"op": "reply", "call": number, "error": tell(error)})


def _keep(function: HostFunction, arguments: Arguments) -> tuple[Any, BaseException | None]:
    """Call a function; some exceptions must not go through a future."""
    try:
        return function.run(arguments), None
    except (Exception, SystemExit) as error:
        return None, RuntimeError(f"{type(error).__name__}: {error}") if _unfit(error) else error


def _unfit(error: BaseException) -> bool:
    return isinstance(error, SystemExit | StopIteration)
