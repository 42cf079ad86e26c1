"""The guest's side of calls to functions of the host: stubs, which send calls and wait for their answers.

Used by the runner. `coderoom.sandbox.functions.calls` is the host's side.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import os
import select
import signal
import threading
import types
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Tuple

from .cpython import watch_dropped_coroutines
from .frames import Channel, encode
from .values import as_argument

ENDED = "the cell had ended before the function answered"
"""The error of a call that is still waiting when its cell ends."""

LEFT = "the code did not wait for the answer any more"
"""The logged error of a call whose coroutine was cancelled."""

PER_CALL = 256
"""The memory that a waiting call takes besides its message, in bytes."""

_MOST_WAITING = 8 * 1024 * 1024

Answer = Dict[str, Any]
Request = Tuple[Dict[str, Any], List[int]]

_SMALL = 32_768  # A message of one packet.


def most_waiting(largest: int) -> int:
    """The most bytes for all unanswered calls together, if each message may have `largest` bytes."""
    return max(_MOST_WAITING, largest + PER_CALL)


class HostFunctionError(RuntimeError):
    """An exception of a host function that is not a built-in one. It is a builtin of a session."""

    __module__ = "builtins"


class Functions:
    """Offers functions of the host in a namespace.

    Calls go out on the runner's channel. One thread at a time reads it for all: for the calls that wait for answers,
    and for the runner, which waits for requests. For coroutines, their event loop watches the channel.
    """

    def __init__(self, channel: Channel, namespace: dict[str, Any], limits: dict[str, Any]) -> None:
        self._channel = channel
        self._namespace = namespace
        self._largest = limits["value_bytes"]
        self._most = limits["calls"]
        self._left = 0
        self._numbers = itertools.count(1)
        self._arrivals = select.poll()
        self._arrivals.register(channel.sock, select.POLLIN)
        self._pid = 0
        self._async: set[str] = set()
        self._dropped: List[str] = []
        self._held: Dict[int, str] = {}
        self._start()

    def _start(self) -> None:
        self._open = False
        self._waiting: Dict[int, Tuple[Callable[[Answer], None], int]] = {}
        self._waiting_bytes = 0  # An upper bound; see `_reserve`.
        self._requests: Deque[Request] = deque()
        self._loops: Dict[Any, int] = {}
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._reader = 0  # The thread that reads. If it is the one that asks, an interrupt has left it there.
        self._busy: set[int] = set()

    def offer(self, offers: list[dict[str, Any]]) -> None:
        """Put stubs into the namespace; see `coderoom.sandbox.functions` for the descriptions."""
        self._pid = os.getpid()
        known = self._namespace["__builtins__"]  # A dictionary under the restricted policy.
        (known if isinstance(known, dict) else vars(known))[HostFunctionError.__name__] = HostFunctionError
        for each in offers:
            stub = make_stub(self, each)
            self._namespace[each["name"]] = (
                _wrapped(stub, each["inside"], self._namespace) if "inside" in each else stub
            )
        self._async = {each["name"] for each in offers if each["is_async"]}
        if self._async:
            watch_dropped_coroutines(self._dropped.append)

    def not_awaited(self) -> list[str]:
        """The async functions that the cell has called and not awaited: their calls have not begun."""
        if not self._async:
            return []
        import inspect

        before, self._held = (
            self._held,
            {
                id(value): value.__qualname__
                for value in self._namespace.values()
                if isinstance(value, types.CoroutineType) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED
            },
        )
        names = [*self._dropped, *(name for each, name in self._held.items() if each not in before)]
        return [name for name in names if name in self._async]

    def attach(self) -> None:
        """Take calls in this process. After a fork, waiting calls of the parent's threads are dropped."""
        if self._pid:
            self._pid = os.getpid()
            self._channel.forget()
            for loop in self._loops:  # They watch the parent's socket.
                if not loop.is_closed():
                    loop.remove_reader(self._channel.sock)
            self._start()

    def begin_cell(self) -> None:
        """Allow calls, and fail those that an earlier cell has left waiting."""
        self._settle_all({"type": "RuntimeError", "args": [ENDED], "message": ENDED})
        self._left = self._most + 1  # The host rejects and logs the last one.
        self._busy.discard(threading.get_ident())  # Left there if an interrupt came within `_exclusively`.
        self._dropped.clear()
        self._open = True

    def end_cell(self, message: dict[str, Any]) -> None:
        """Send the result of the cell, and allow no more calls."""
        with self._sending:
            self._open = False
            self._channel.send(message)

    def receive(self) -> Request | None:
        """Wait for a request; `None`: the host has ended."""
        if not self._pid:
            return self._channel.receive()
        self._read_until(self._requests)
        return self._requests.popleft()

    def call(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function and wait for its result."""
        answers: list[Answer] = []
        with self._exclusively(name):
            number = self._send(name, args, kwargs, answers.append)
            try:
                self._read_until(answers)
            finally:
                self._waiting.pop(number, None)
        return result_of(answers[0])

    async def call_async(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: Any = loop.create_future()

        def settle(answer: Answer) -> None:
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(answer))
            except RuntimeError:  # The event loop is closed.
                pass

        with self._exclusively(name):
            number = self._send(name, args, kwargs, settle)
        watched = self._watch(loop)
        try:
            return result_of(await future)
        except asyncio.CancelledError:
            with self._sending:
                if self._open and os.getpid() == self._pid:
                    self._channel.send({"event": "left", "call": number})
            raise
        finally:
            self._waiting.pop(number, None)
            if watched is self._loops:  # Otherwise the call began in the parent of this process.
                left = self._loops.pop(loop, 1) - 1
                if left:
                    self._loops[loop] = left
                elif not loop.is_closed():
                    loop.remove_reader(self._channel.sock)

    @contextlib.contextmanager
    def _exclusively(self, name: str) -> Iterator[None]:
        """Refuse a call from `__del__` or a signal handler that has interrupted another call: it would wait forever."""
        me = threading.get_ident()
        if me in self._busy:
            raise RuntimeError(f"{name}() cannot be called here: it would interrupt another call in the same thread")
        self._busy.add(me)
        try:
            yield
        finally:
            self._busy.discard(me)

    def _send(self, name: str, args: Any, kwargs: dict[str, Any], settle: Callable[[Answer], None]) -> int:
        if os.getpid() != self._pid:
            raise RuntimeError(f"{name}() can only be called from the session's own process, not from a fork of it")
        args = [as_argument(name, number, value) for number, value in enumerate(args, 1)]
        kwargs = {key: as_argument(name, key, value) for key, value in kwargs.items()}
        number = next(self._numbers)
        body = encode({"event": "call", "call": number, "name": name, "args": args, "kwargs": kwargs})
        if len(body) > self._largest:
            raise too_large(name, len(body), self._largest)
        try:
            with self._sending:  # A message may have several packets.
                self._reserve(name, len(body))
                self._waiting[number] = (settle, len(body))
                with _uninterrupted() if len(body) > _SMALL else contextlib.nullcontext():
                    self._channel.send_encoded(body)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return number

    def _reserve(self, name: str, size: int) -> None:
        """Count a call; refuse it if the host would not accept one more."""
        if not self._open:
            raise RuntimeError(f"{name}() can only be called while a cell runs")
        if not self._left:
            raise too_many(name, self._most)
        size += PER_CALL
        most = most_waiting(self._largest)
        if self._waiting_bytes + size > most:
            self._waiting_bytes = sum(each + PER_CALL for _, each in list(self._waiting.values()))
            if self._waiting_bytes + size > most:
                raise RuntimeError(f"{name}(): too many calls wait; let some end first")
        self._waiting_bytes += size
        self._left -= 1

    def _read_until(self, found: Any) -> None:
        """Read, or wait while another thread reads, until something was added to `found`."""
        me = threading.get_ident()
        while not found:
            try:
                with self._changed:
                    while self._reader not in (0, me) and not found:
                        self._changed.wait()
                    if found:
                        return
                    self._reader = me
                self._arrivals.poll()
                self._read_message()
            finally:
                self._stop_reading(me)

    def _stop_reading(self, me: int) -> None:
        with self._changed:
            if self._reader == me:
                self._reader = 0
            self._changed.notify_all()

    def _watch(self, loop: Any) -> Dict[Any, int]:
        self._loops[loop] = self._loops.get(loop, 0) + 1
        if self._loops[loop] == 1:
            loop.add_reader(self._channel.sock, self._read_available)
        return self._loops

    def _read_available(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if self._reader not in (0, me):
                return  # A thread is reading already.
            self._reader = me
        self._busy.add(me)
        try:
            while self._arrivals.poll(0):
                self._read_message()
        finally:
            self._busy.discard(me)
            self._stop_reading(me)

    def _read_message(self) -> None:
        with _uninterrupted():
            received = self._channel.receive()
            if received is None:
                os._exit(0)  # The host has ended.
            message, _ = received
            op = message.get("op")
            if op == "reply":
                self._settle(message["call"], message)
            elif op == "ended":
                self._settle_all(message["error"])
            else:
                self._requests.append(received)

    def _settle(self, number: int, answer: Answer) -> None:
        settle, _ = self._waiting.pop(number, (None, 0))
        if settle is not None:  # Otherwise the code no longer waits.
            settle(answer)

    def _settle_all(self, error: dict[str, Any]) -> None:
        for number in list(self._waiting):
            self._settle(number, {"error": error})


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block interrupts, which would cut off a message that is being sent or received."""
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def too_large(name: str, size: int, most: int) -> ValueError:
    """The error for a call whose arguments are too large."""
    return ValueError(f"{name}(): the arguments have {size:,} bytes as JSON; {most:,} may be sent")


def too_many(name: str, most: int) -> RuntimeError:
    """The error for a call beyond the limit."""
    return RuntimeError(f"{name}(): a cell may make {most:,} calls, and this one has made them")


def result_of(answer: dict[str, Any]) -> Any:
    """Return the value of an answer, or raise its exception."""
    if "error" not in answer:
        return answer.get("value")
    error = answer["error"]
    kind = getattr(builtins, str(error["type"]), None)
    raised: Exception = HostFunctionError(error["message"])
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
        try:
            raised = kind(*error["args"])
        except Exception:  # Its class needs other arguments.
            pass
    raise raised


def make_stub(functions: Any, offer: dict[str, Any]) -> Any:
    """Make the stub of a host function."""
    name = offer["name"]
    stub: Any
    if offer["is_async"]:

        async def stub(*args: Any, **kwargs: Any) -> Any:
            return await functions.call_async(name, args, kwargs)
    else:

        def stub(*args: Any, **kwargs: Any) -> Any:
            return functions.call(name, args, kwargs)

    signature = _signature(offer)
    stub.__name__ = stub.__qualname__ = name
    stub.__module__ = "__main__"
    stub.__doc__ = offer["doc"]
    stub.__signature__ = signature
    stub.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if parameter.annotation is not parameter.empty
    }
    if signature.return_annotation is not signature.empty:
        stub.__annotations__["return"] = signature.return_annotation
    return stub


def _wrapped(stub: Any, source: str, names: dict[str, Any]) -> Any:
    """What the host wants code to call in place of the stub; see `HostFunction.inside`."""
    module: dict[str, Any] = {"__name__": "_coderoom_" + stub.__name__}
    exec(compile(source, "<%s>" % module["__name__"], "exec"), module)
    return module["wrap"](stub, names)


class Shown:
    """Stands in a signature for an object that is missing here or shown differently; its `repr` is the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(offer: dict[str, Any]) -> Any:
    import inspect

    parameters = []
    for item in offer["parameters"]:
        default: Any = inspect.Parameter.empty
        if "default" in item:
            default = item["default"]
        elif "default_text" in item:
            default = Shown(item["default_text"])
        annotation = _annotation(item.get("annotation"), inspect.Parameter.empty)
        kind = getattr(inspect.Parameter, item["kind"])
        parameters.append(inspect.Parameter(item["name"], kind, default=default, annotation=annotation))
    returns = _annotation(offer.get("returns"), inspect.Signature.empty)
    return inspect.Signature(parameters, return_annotation=returns)


def _annotation(text: str | None, empty: Any) -> Any:
    if text is None:
        return empty
    known = getattr(builtins, text, None)
    if text == "None":
        return None
    return known if isinstance(known, type) else Shown(text)
