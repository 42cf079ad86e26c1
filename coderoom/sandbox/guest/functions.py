"""Functions of the host, as the code sees them: stubs that send a call out and wait for what comes of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Tuple

from .frames import Channel, encode
from .plain import as_plain
from .stubs import HostFunctionError, make_stub, result_of, too_large, too_many, why_not_data

__all__ = ["ENDED", "LEFT", "PER_CALL", "Functions", "most_waiting"]

ENDED = "the cell had ended before the function answered"
"""What a call is told that still waits when its cell ends."""

LEFT = "the code did not wait for the answer any more"
"""What is written down of a call whose coroutine was cancelled."""

PER_CALL = 256
"""What a call that waits costs besides its bytes."""

_MOST_WAITING = 8 * 1024 * 1024

Answer = Dict[str, Any]
Request = Tuple[Dict[str, Any], List[int]]

_SMALL = 32_768  # A message of one packet.


def most_waiting(largest: int) -> int:
    """What the calls may cost, all together, that have no answer yet, if each may have so many bytes."""
    return max(_MOST_WAITING, largest + PER_CALL)


class Functions:
    """Offers functions of the host in a namespace.

    Calls go out on the runner's channel, and whoever waits for something reads it, one thread at a time for all: calls
    for their answers, and the runner for requests. Coroutines are told by their event loop that there is something.

    Args:
        channel: The runner's channel.
        namespace: Where the stubs go.
        limits: The session's; `value_bytes` holds for the arguments of a call, and a cell may make `calls` of them.
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
        self._start()

    def _start(self) -> None:
        self._open = False
        self._waiting: Dict[int, Tuple[Callable[[Answer], None], int]] = {}
        self._waiting_bytes = 0  # At most; see `_count`.
        self._requests: Deque[Request] = deque()
        self._loops: Dict[Any, int] = {}
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._reader = 0
        self._busy: set[int] = set()

    def offer(self, offers: list[dict[str, Any]]) -> None:
        """Put stubs into the namespace; see `coderoom.sandbox.functions` for what describes them."""
        self._pid = os.getpid()
        known = self._namespace["__builtins__"]  # Under a policy they are the cell's own.
        (known if isinstance(known, dict) else vars(known))[HostFunctionError.__name__] = HostFunctionError
        for told in offers:
            self._namespace[told["name"]] = make_stub(self, told)

    def be_here(self) -> None:
        """Take calls in this process, which is a fork of the one before and has none of its threads."""
        if self._pid:
            self._pid = os.getpid()
            self._channel.forget()
            for loop in self._loops:  # What they look at is another socket by now.
                if not loop.is_closed():
                    loop.remove_reader(self._channel.sock)
            self._start()

    def begin(self) -> None:
        """Let a cell make calls."""
        self._settle_all({"type": "RuntimeError", "args": [ENDED], "message": ENDED})
        self._left = self._most + 1  # The host says no to the last one, and so knows of it.
        self._busy.discard(threading.get_ident())  # An interrupt may have come at a bad moment.
        self._open = True

    def end(self, message: dict[str, Any]) -> None:
        """Send what came of the cell, after which nobody can make calls."""
        with self._sending:
            self._open = False
            self._channel.send(message)

    def receive(self) -> Request | None:
        """Wait for a request; `None`: the host has gone."""
        if not self._pid:
            return self._channel.receive()
        self._read_until(self._requests)
        return self._requests.popleft()

    def call(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function and wait for its result."""
        answers: list[Answer] = []
        with self._alone(name):
            number = self._send(name, args, kwargs, answers.append)
            try:
                self._read_until(answers)
            finally:
                self._waiting.pop(number, None)
        return result_of(answers[0])

    async def call_async(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """The same without keeping others of the event loop from their work."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: Any = loop.create_future()

        def settle(answer: Answer) -> None:
            try:
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(answer))
            except RuntimeError:  # It is closed: nobody waits there any more.
                pass

        with self._alone(name):
            number = self._send(name, args, kwargs, settle)
        watched = self._watch(loop)
        try:
            return result_of(await future)
        except asyncio.CancelledError:
            self._say_left(number)
            raise
        finally:
            self._waiting.pop(number, None)
            if watched is self._loops:  # Else it was begun in a process that this one is a fork of.
                self._leave(loop)

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Keep `__del__` and the handlers of signals from waiting for what they have interrupted."""
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
        args = [_data(name, number, value) for number, value in enumerate(args, 1)]
        kwargs = {key: _data(name, key, value) for key, value in kwargs.items()}
        number = next(self._numbers)
        body = encode({"event": "call", "call": number, "name": name, "args": args, "kwargs": kwargs})
        if len(body) > self._largest:
            raise too_large(name, len(body), self._largest)
        try:
            with self._sending:  # A message may be several packets.
                self._count(name, len(body))
                self._waiting[number] = (settle, len(body))
                with _whole() if len(body) > _SMALL else contextlib.nullcontext():
                    self._channel.send_encoded(body)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return number

    def _say_left(self, number: int) -> None:
        """Tell the host that nobody waits for an answer any more."""
        with self._sending:
            if self._open and os.getpid() == self._pid:
                self._channel.send({"event": "left", "call": number})

    def _count(self, name: str, size: int) -> None:
        """See to it that the host takes one call more; it would not answer each of too many."""
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
        """Read, or let another thread read, until there is what this one waits for."""
        me = threading.get_ident()
        while not found:
            try:
                with self._changed:
                    while self._reader and not found:
                        self._changed.wait()
                    if found:
                        return
                    self._reader = me
                self._arrivals.poll()
                self._take()
            finally:
                self._let_read(me)

    def _let_read(self, me: int) -> None:
        with self._changed:
            if self._reader == me:
                self._reader = 0
            self._changed.notify_all()

    def _watch(self, loop: Any) -> Dict[Any, int]:
        self._loops[loop] = self._loops.get(loop, 0) + 1
        if self._loops[loop] == 1:
            loop.add_reader(self._channel.sock, self._take_what_is_there)
        return self._loops

    def _leave(self, loop: Any) -> None:
        left = self._loops.pop(loop, 1) - 1
        if left:
            self._loops[loop] = left
        elif not loop.is_closed():
            loop.remove_reader(self._channel.sock)

    def _take_what_is_there(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if self._reader:
                return  # A thread is at it already.
            self._reader = me
        self._busy.add(me)
        try:
            while self._arrivals.poll(0):
                self._take()
        finally:
            self._busy.discard(me)
            self._let_read(me)

    def _take(self) -> None:
        with _whole():
            received = self._channel.receive()
            if received is None:
                os._exit(0)  # The host has gone.
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
        if settle is not None:  # Else nobody waits any more.
            settle(answer)

    def _settle_all(self, error: dict[str, Any]) -> None:
        """Let nobody wait any more for what an ended cell has called."""
        for number in list(self._waiting):
            self._settle(number, {"error": error})


def _data(name: str, which: Any, value: Any) -> Any:
    """An argument as JSON carries it."""
    if why_not_data(value) is None:
        return value
    value = as_plain(value)
    why = why_not_data(value)
    if why:
        raise TypeError(f"{name}(): argument {which!r} {why}; pass text, numbers, booleans, None, lists and dicts")
    return value


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Let no interrupt come in the midst of a message: the rest of it would be lost."""
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
