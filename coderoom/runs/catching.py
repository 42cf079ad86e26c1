"""Ctrl-C, and its like, taken by a function."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["signals_go_to"]

_SIGNALS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def signals_go_to(take: Callable[[], None]) -> Iterator[None]:
    """While this lasts, Ctrl-C, SIGTERM and the terminal's end call `take` in the event loop, and do nothing else."""
    loop = asyncio.get_running_loop()
    caught = []
    for number in _SIGNALS:
        # Not in the main thread, or not on this system: then the caller's own ways apply.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, take)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
