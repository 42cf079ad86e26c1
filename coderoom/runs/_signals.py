"""Ctrl-C, and its like, as a cancellation."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from autogen_core import CancellationToken

__all__ = ["EXIT_INTERRUPTED", "cancel_on_signal"]

EXIT_INTERRUPTED = 130


@contextmanager
def cancel_on_signal(token: CancellationToken, hard_exit_after: float | None = None) -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM cancel `token`.

    Args:
        token: What to cancel.
        hard_exit_after: Seconds after the signal at which the process ends anyway; `None` for never.
    """
    loop = asyncio.get_running_loop()
    caught = []
    timers: list[threading.Timer] = []

    def cancel() -> None:
        if hard_exit_after is not None and not timers:
            # A thread, since what does not end may be what holds the loop up. The processes that run code end with
            # this one.
            timers.append(threading.Timer(hard_exit_after, os._exit, (EXIT_INTERRUPTED,)))
            timers[0].daemon = True
            timers[0].start()
        token.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not in the main thread, or not on this system: then the caller's own ways apply.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, cancel)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
        for timer in timers:
            timer.cancel()
