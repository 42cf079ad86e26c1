"""Writes one run into the journal. A journal that cannot be written ends a run only if the run requires it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from coderoom.errors import JournalError
from coderoom.runs.journal import Journal, Step


class Writer:
    """Writes a run.

    Args:
        journal: The journal; `None`: nothing is written.

    Attributes:
        run: The id of the run; `None` if it is not in the journal.
        failure: Why nothing is written any more; empty if that is not so.

    Raises:
        JournalError: Any method raises it if the journal cannot be written, and is required.
    """

    def __init__(self, journal: Journal | None) -> None:
        self.run: str | None = None
        self.failure = ""
        self._journal = journal
        self._number = 0
        self._lock = RLock()  # Functions of the host are called in threads.

    @property
    def path(self) -> Path | None:
        """The journal's file; `None` without a journal."""
        return None if self._journal is None else self._journal.path

    def hide_values(self, secrets: Mapping[str, str]) -> None:
        """Have these values replaced in what is written."""
        if self._journal is not None:
            self._journal.hide_values(secrets)

    def begin(
        self, command: str, name: str, task: str, model: str | None, request: Mapping[str, Any], run: str | None = None
    ) -> None:
        """Add the run; the arguments are those of a `RunEntry`, and its id, if it has one already."""

        def write(journal: Journal) -> None:
            self.run = journal.begin(command, name, task, model, request, run)

        self._try(write)

    def write(
        self,
        kind: str,
        result: Any,
        *,
        request: Any = None,
        actor: str = "",
        key: str = "",
        seconds: float = 0.0,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add a step; the arguments are those of a `Step`, and the contents that it refers to by hash."""
        with self._lock:
            self._number += 1
            step = Step(self._number, kind, actor, key, time.time(), seconds, request, result)
            self._try(lambda journal: journal.add(str(self.run), step, contents))

    def close(self, outcome: str, facts: Mapping[str, Any]) -> None:
        """Say how the run ended."""
        self._try(lambda journal: journal.end(str(self.run), outcome, facts))

    def _try(self, write: Callable[[Journal], None]) -> None:
        try:
            if self._journal is not None and not self.failure:
                write(self._journal)
        except JournalError as error:
            if self._journal is not None and self._journal.required:
                raise
            self.failure = f"{error} The run goes on without it, and cannot be resumed."
