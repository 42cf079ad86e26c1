"""Functions of the host, as the code sees them: stubs that send a call out and wait for what comes of it."""

from __future__ import annotations

import builtins
import itertools
import os
import select
import signal
import threading
from typing import Any, Callable

from .frames import Channel, encode

__all__ = ["Functions", "HostFunctionError", "why_not_data"]

_DEEPEST = 200
_SCALARS = (str, int, float, bool, type(None))


class HostFunctionError(Exception):
    """A function of the host failed with an exception that has no name here."""


class Functions:
    """Offers functions of the host in a namespace.

    Calls go out on the runner's channel, and whoever waits for an answer reads it: one thread at a time, for all.
    Coroutines are told by their event loop that there is something to read.

    Args:
        channel: The runner's channel.
        namespace: Where the stubs go.
        largest: The most bytes that a call's arguments may have.
    """

    def __init__(self, channel: Channel, namespace: dict[str, Any], largest: int) -> None:
        self._channel = channel
        self._namespace = namespace
        self._largest = largest
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._reading = False
        self._arrivals = select.poll()
        self._arrivals.register(channel.sock, select.POLLIN)
        self._pid = 0

    def offer(self, offers: list[dict[str, Any]]) -> None:
        """Put stubs into the namespace; see `coderoom.sandbox._functions` for what describes them."""
        self._pid = os.getpid()
        for told in offers:
            self._namespace[told["name"]] = _make_stub(self, told)

    def be_here(self) -> None:
        """Take calls in this process, which is a fork of the one before."""
        if self._pid:
            self._pid = os.getpid()

    def call(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function and wait for its result."""
        answers: list[dict[str, Any]] = []
        number = self._send(name, args, kwargs, answers.append)
        try:
            while not answers:
                with self._changed:
                    while self._reading and not answers:
                        self._changed.wait()
                    if answers:
                        break
                    self._reading = True
                try:
                    self._arrivals.poll()
                    self._take()
                finally:
                    with self._changed:
                        self._reading = False
                        self._changed.notify_all()
        finally:
            self._waiting.pop(number, None)
        return _result(answers[0])

    async def call_async(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """The same without keeping others of the event loop from their work."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: Any = loop.create_future()

        def settle(answer: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(lambda: future.done() or future.set_result(answer))

        number = self._send(name, args, kwargs, settle)
        loop.add_reader(self._channel.sock, self._take_what_is_there)
        try:
            return _result(await future)
        finally:
            self._waiting.pop(number, None)
            if not self._waiting:
                loop.remove_reader(self._channel.sock)

    def _send(self, name: str, args: Any, kwargs: dict[str, Any], settle: Callable[[dict[str, Any]], None]) -> int:
        if os.getpid() != self._pid:
            raise RuntimeError(f"{name}() can only be called from the session's own process, not from a fork of it")
        _check(name, args, kwargs)
        number = next(self._numbers)
        body = encode({"event": "call", "call": number, "name": name, "args": args, "kwargs": kwargs})
        if len(body) > self._largest:
            raise ValueError(f"{name}(): the arguments have {len(body):,} bytes as JSON; {self._largest:,} may be sent")
        self._waiting[number] = settle
        try:
            with self._sending:  # A message may be several packets.
                self._channel.send_encoded(body)
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return number

    def _take_what_is_there(self) -> None:
        with self._changed:
            if self._reading:
                return  # A thread is at it already.
            self._reading = True
        try:
            while self._arrivals.poll(0):
                self._take()
        finally:
            with self._changed:
                self._reading = False
                self._changed.notify_all()

    def _take(self) -> None:
        # An interrupt in the midst of a message would lose the rest of it.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            received = self._channel.receive()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        if received is None:
            os._exit(0)  # The host has gone.
        message, fds = received
        for fd in fds:
            os.close(fd)
        settle = self._waiting.pop(message.get("call", 0), None)
        if settle is not None:  # Else nobody waits any more.
            settle(message)


def why_not_data(value: Any, deep: int = _DEEPEST) -> str | None:
    """Why JSON cannot carry a value as it is; `None` if it can. A tuple comes out as a list."""
    if isinstance(value, _SCALARS):
        return None
    if deep == 0:
        return "is nested too deeply"
    if isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"has the key {key!r:.100}, and JSON knows only text as keys"
        items = list(value.values())
    else:
        return f"is or holds a {type(value).__qualname__}, which JSON cannot carry"
    for item in items:
        why = why_not_data(item, deep - 1)
        if why:
            return why
    return None


def _check(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    for which, value in [*enumerate(args, 1), *kwargs.items()]:
        why = why_not_data(value)
        if why:
            raise TypeError(f"{name}(): argument {which!r} {why}; pass text, numbers, booleans, None, lists and dicts")


def _result(answer: dict[str, Any]) -> Any:
    if "error" not in answer:
        return answer.get("value")
    error = answer["error"]
    kind = getattr(builtins, error["type"], Exception)
    if kind is not Exception:
        try:
            raised = kind(*error["args"])
        except Exception:  # One that wants other arguments.
            raised = HostFunctionError(error["message"])
    else:
        raised = HostFunctionError(error["message"])
    raise raised


class _Shown:
    """Stands for an object of the host in a signature, and looks like it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _make_stub(functions: Functions, told: dict[str, Any]) -> Any:
    name = told["name"]
    stub: Any
    if told["is_async"]:

        async def stub(*args: Any, **kwargs: Any) -> Any:
            return await functions.call_async(name, args, kwargs)
    else:

        def stub(*args: Any, **kwargs: Any) -> Any:
            return functions.call(name, args, kwargs)

    signature = _signature(told)
    stub.__name__ = stub.__qualname__ = name
    stub.__module__ = "__main__"
    stub.__doc__ = told["doc"]
    stub.__signature__ = signature
    stub.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if parameter.annotation is not parameter.empty
    }
    if signature.return_annotation is not signature.empty:
        stub.__annotations__["return"] = signature.return_annotation
    return stub


def _signature(told: dict[str, Any]) -> Any:
    import inspect

    parameters = []
    for item in told["parameters"]:
        default: Any = inspect.Parameter.empty
        if "default" in item:
            default = item["default"]
        elif "default_text" in item:
            default = _Shown(item["default_text"])
        annotation = _annotation(item.get("annotation"), inspect.Parameter.empty)
        kind = getattr(inspect.Parameter, item["kind"])
        parameters.append(inspect.Parameter(item["name"], kind, default=default, annotation=annotation))
    returns = _annotation(told.get("returns"), inspect.Signature.empty)
    return inspect.Signature(parameters, return_annotation=returns)


def _annotation(text: str | None, empty: Any) -> Any:
    if text is None:
        return empty
    known = getattr(builtins, text, None)
    if text == "None":
        return None
    return known if isinstance(known, type) else _Shown(text)
