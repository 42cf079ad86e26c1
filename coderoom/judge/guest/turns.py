"""Which thread of the tests uses the code: one at a time, until its use has ended."""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Optional, Tuple

_LOOK = 0.25
_MOST_LOOKS = 4


class Turn:
    """A lock that notices when nobody will release it.

    The code has one process, in which a use that calls the tests back can only end when they have answered. If that
    answer waits for another thread, and this one for its turn, both wait for ever.

    Args:
        stuck: Called by the thread that waits in vain; it raises an exception, or ends the process.

    Attributes:
        called_back: The thread that the code has called back; `None`: none.
    """

    def __init__(self, stuck: Callable[[], Any]) -> None:
        self.called_back: Optional[int] = None
        self._stuck = stuck
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        place, looks = None, 0
        while not self._lock.acquire(timeout=_LOOK):
            before, place = place, self._place()
            looks = looks + 1 if place is not None and place == before else 0
            if looks == _MOST_LOOKS:
                self._stuck()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _place(self) -> Optional[Tuple[int, int]]:
        """What the thread that was called back does: a thread that waits does the same for a second."""
        frame = None if self.called_back is None else sys._current_frames().get(self.called_back)
        return None if frame is None else (id(frame), frame.f_lasti)
