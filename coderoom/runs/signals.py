"""Ctrl-C, and its like, as a cancellation."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autogen_core import CancellationToken

from coderoom.executors import end_descendants
from coderoom.runs.catching import signals_go_to

__all__ = ["EXIT_INTERRUPTED", "cancel_on_signal"]

EXIT_INTERRUPTED = 130
_END_OTHERS_SECONDS: Final = 0.8
_END_ALL_SECONDS: Final = 1.7


def _end_all() -> None:
    end_descendants()
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def cancel_on_signal(token: CancellationToken, *, owns_process: bool = False) -> Iterator[None]:
    """While this lasts, Ctrl-C, SIGTERM and the terminal's end cancel `token`.

    Args:
        token: What to cancel.
        owns_process: Whether this is all that the process is for. Then what does not end by itself is ended: first the
            processes below this one, as some executors of AutoGen's wait for theirs, and at last this one.
    """
    timers: list[threading.Timer] = []

    def cancel() -> None:
        if owns_process and not timers:
            # Threads, since what does not end may be what holds the loop up.
            timers.append(threading.Timer(_END_OTHERS_SECONDS, end_descendants))
            timers.append(threading.Timer(_END_ALL_SECONDS, _end_all))
            for timer in timers:
                timer.daemon = True
                timer.start()
        token.cancel()

    try:
        with signals_go_to(cancel):
            yield
    finally:
        for timer in timers:
            timer.cancel()
