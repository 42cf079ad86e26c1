"""The journal of paid answers, with which interrupted work continues."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import asdict
from typing import Final

from coderoom.generation.model import Reply
from coderoom.generation.store.rows import ANSWER, Name, Rows

__all__ = ["Journal"]

_FIELDS: Final = {"text": str, "prompt_tokens": int, "completion_tokens": int, "complete": bool}


class Journal:
    """The answers to the requests of one piece of work; `SolutionCache.journal` makes them.

    The answers to the same request are numbered, and each journal counts for itself where it is. If several processes
    do the same work at once, the first answer of a number is the one that stays, and each goes on with what it was
    answered itself.
    """

    def __init__(self, rows: Rows, key: str) -> None:
        self._rows = rows
        self._key = key
        self._next: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, request: str) -> Reply | None:
        """Take the next answer to a request.

        Args:
            request: A hash of the whole request.

        Returns:
            The answer; `None` if there is none (any more), and the model has to be asked.
        """
        with self._lock:
            reply = self._rows.read(self._name(request), _parse)
            if reply is not None:
                self._next[request] += 1
        return reply

    def add(self, request: str, reply: Reply) -> None:
        """Record what the model has answered now; it is on disk when this returns.

        Args:
            request: A hash of the whole request.
            reply: The answer.
        """
        # Pure ASCII, so that halves of characters come back as they were: later requests are made of them.
        body = json.dumps(asdict(reply), allow_nan=False).encode()
        with self._lock:
            self._rows.write(self._name(request), body, replace=False)
            self._next[request] += 1

    def forget(self) -> None:
        """Remove all answers of this work."""
        with self._lock:
            self._rows.remove(ANSWER, self._key)
            self._next.clear()

    def _name(self, request: str) -> Name:
        return Name(ANSWER, self._key, request, self._next[request])


def _parse(body: bytes) -> Reply:
    told = json.loads(body)
    if not isinstance(told, dict) or {name: type(value) for name, value in told.items()} != _FIELDS:
        raise ValueError("it is no reply of a model")
    return Reply(**told)
