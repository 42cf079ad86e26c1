"""The event loop of a session, in which its cells await; used by the interpreter."""

from __future__ import annotations

import contextvars
import functools
import linecache
import sys
import threading
import types
import warnings
from typing import Any, Callable

from .failures import is_library


class Loop:
    """One event loop for all cells, made when the first one needs it.

    `asyncio` is imported late: it is large, would slow down each fork, and few cells need it.
    """

    def __init__(self) -> None:
        self._loop: Any = None
        # One for all cells, so that a token of one can be used in another.
        self._context = contextvars.copy_context() if sys.version_info >= (3, 11) else None

    def adapt(self, asyncio: Any) -> None:
        """Give code that is not in a coroutine the loop too, as if it was running; called with the module `asyncio`."""
        for name in ("get_running_loop", "get_event_loop"):
            for module in (asyncio, asyncio.events):
                setattr(module, name, self._or_ours(getattr(module, name)))

    def _or_ours(self, get: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(get)
        def get_loop() -> Any:
            try:
                return get()
            except RuntimeError:
                if not _is_for_cell(sys._getframe(1)):
                    raise
                return self._get()

        return get_loop

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with the context variables of the cells."""
        return function(*args) if self._context is None else self._context.run(function, *args)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine to its end, with the context variables of the cells."""
        loop = self._get()
        if self._context is not None:
            return self._complete(loop, loop.create_task(coroutine, context=self._context))
        # Before Python 3.11, a task runs in a copy of the context: keep the variables that it has set.
        context = contextvars.copy_context()

        async def main() -> Any:
            nonlocal context
            try:
                return await coroutine
            finally:
                context = contextvars.copy_context()

        try:
            return self._complete(loop, loop.create_task(main()))
        finally:
            for variable, value in context.items():
                if variable.get(context) is not value:
                    variable.set(value)

    def _complete(self, loop: Any, task: Any) -> Any:
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # Interrupted while it waited: it must not go on in the next cell.
                self._cancel([task])
            raise

    def end_cell(self) -> None:
        """Let tasks that nobody has awaited begin."""
        if self._loop is None or self._loop.is_closed():
            return
        import asyncio

        asyncio.set_event_loop(self._loop)  # `asyncio.run` leaves none.
        self._loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        """Cancel all tasks and close the loop, as `asyncio.run` does at its end."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        import asyncio

        self._loop = loop
        self._cancel(asyncio.all_tasks(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
        if sys.version_info >= (3, 9):
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def _cancel(self, tasks: Any) -> None:
        import asyncio

        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _get(self) -> Any:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._loop = asyncio.get_event_loop()  # The code may have made one, with tasks.
            except RuntimeError:
                pass
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop


def _is_for_cell(frame: types.FrameType) -> bool:
    """Whether the author's code asks for the loop, or a function of `asyncio` that creates a task; not a library.

    Code that tries whether a loop is running, to call `asyncio.run` otherwise, is told the truth.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if frame.f_globals.get("__name__") == "asyncio.tasks":
        return True
    if is_library(frame.f_code.co_filename):
        return False
    last = frame.f_lineno
    lines = linecache.getlines(frame.f_code.co_filename)[max(last - 2, 0) : last]
    return not any(line.lstrip().startswith("try:") for line in lines)
