"""What a run does at this moment: the steps that have begun, since when, and the end of what they have written.

The run notes it here, and writes it into the journal twice a second, where its page finds it. No step is made of it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any, Final

_KEPT: Final = 16_000
"""Characters that are kept of what a step has written: more than are shown, so that no secret is shown in part."""
MOST_SHOWN: Final = 8_000


@dataclass
class Doing:
    """A step that has begun.

    Attributes:
        kind: As that of a `Step`.
        actor: The agent; empty if that is not known.
        since: When it began, in seconds since the epoch.
        branch: The branch that it belongs to; empty outside of one.
        text: The end of what it has written.
    """

    kind: str
    actor: str
    since: float
    branch: str = ""
    text: str = ""


class Doings:
    """The steps of a run that have begun and not ended. Any thread may use it."""

    def __init__(self) -> None:
        self._all: list[Doing] = []
        self._lock = Lock()

    def begin(self, kind: str, actor: str, branch: str = "") -> None:
        """A step begins."""
        with self._lock:
            self._all.append(Doing(kind, actor, time.time(), branch))

    def write(self, kind: str, actor: str, text: str, branch: str = "") -> None:
        """A step writes something."""
        with self._lock:
            if found := self._find(kind, actor, branch):
                found.text = (found.text + text)[-_KEPT:]

    def end(self, kind: str, actor: str, branch: str = "") -> None:
        """A step has ended."""
        with self._lock:
            if found := self._find(kind, actor, branch):
                self._all.remove(found)

    def facts(self) -> list[dict[str, Any]]:
        """All of them, as plain data."""
        with self._lock:
            return [asdict(each) for each in self._all]

    def _find(self, kind: str, actor: str, branch: str) -> Doing | None:
        wanted = (kind, actor, branch)
        return next((each for each in self._all if (each.kind, each.actor, each.branch) == wanted), None)
