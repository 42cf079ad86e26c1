"""Calls that cells in pydantic-monty's interpreter make to functions of the host."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from coderoom.sandbox.functions import Calls, HostFunction
from coderoom.sandbox.guest.frames import encode
from coderoom.sandbox.guest.plain import as_plain
from coderoom.sandbox.guest.stubs import exception_of, too_many, why_not_data
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.result import FunctionCall

__all__ = ["MontyCalls"]


class MontyCalls:
    """What a cell may call, with the same limits and the same log as behind any wall.

    Args:
        owner: Whose cell it is.
        functions: The functions, by name.
        limits: How many calls there may be, how long each may take, and how large arguments and results may be.
    """

    def __init__(self, owner: object, functions: Mapping[str, HostFunction], limits: Limits) -> None:
        self._functions = functions
        self._limits = limits
        self._calls = Calls(owner, functions, limits, self)
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def lookup(self) -> dict[str, Callable[..., Any]]:
        """The functions as the interpreter wants them: it calls plain ones in threads of its own."""
        return {name: self._make(name, function.is_async) for name, function in self._functions.items()}

    async def close(self) -> tuple[FunctionCall, ...]:
        """End what is still at work, and return all calls in the order in which they came."""
        calls = await self._calls.close()
        for future in self._waiting.values():
            future.cancel()
        return calls

    def send_now(self, message: dict[str, Any]) -> bool:
        """Take an answer."""
        future = self._waiting.get(message.get("call", 0))
        if future is not None and not future.done():
            future.set_result(message)
        return True

    async def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """The same, which never has to wait."""
        self.send_now(message)

    def hold(self, held: bool) -> None:
        """Whoever calls waits by himself."""

    def limit_input(self) -> None:
        """There is nothing on its way."""

    def _make(self, name: str, is_async: bool) -> Callable[..., Any]:
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, list(args), kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self._call(name, list(args), kwargs), self._loop).result()

        return call_async if is_async else call

    async def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if why_not_data(args) or why_not_data(kwargs):
            args, kwargs = as_plain(args), as_plain(kwargs)
        why = why_not_data(args) or why_not_data(kwargs)
        if why:
            raise TypeError(f"{name}(): an argument {why}; pass text, numbers, booleans, None, lists and dicts")
        number = next(self._numbers)
        if number > self._limits.calls + 1:  # The one before was told so, and is in the log.
            raise too_many(name, self._limits.calls)
        future = self._waiting[number] = self._loop.create_future()
        try:
            message = {"call": number, "name": name, "args": args, "kwargs": kwargs}
            self._calls.take(message, len(encode(message)))
            answer = await future
        except asyncio.CancelledError:
            self._calls.leave(number)
            raise
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise exception_of(answer["error"])
        return answer["value"]
