"""Writes one run into the journal: what the runs of teams, files and instructions have in common."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from coderoom.errors import JournalError
from coderoom.runs.doing import Doing, Doings
from coderoom.runs.journal import Journal, Step
from coderoom.steps import WORDS

T = TypeVar("T")


class Writer:
    """Writes one run into the journal. One that cannot be written ends a run only if the run requires it.

    Args:
        journal: The journal; `None`: nothing is written.

    Attributes:
        run: The id of the run; `None` if it is not in the journal.
        failure: Why nothing is written any more; empty if that is not so.
        doings: What the run does at this moment.
        words_waiting: What a person has said to the team while it works, and no agent has got yet.

    Raises:
        JournalError: Any method raises it if the journal cannot be written, and is required.
    """

    def __init__(self, journal: Journal | None) -> None:
        self.run: str | None = None
        self.failure = ""
        self.doings = Doings()
        self.words_waiting: deque[str] = deque()
        self._told: list[dict[str, Any]] = []
        self._journal = journal
        self._number = 0
        self._lock = RLock()  # Functions of the host are called in threads.

    @property
    def journal(self) -> Journal | None:
        """The journal, if there is one."""
        return self._journal

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
        self.run = self._try(lambda journal: journal.begin(command, name, task, model, request, run))

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
            number = self._number
        self._add(Step(number, kind, actor, key, time.time(), seconds, request, result), contents)

    def _add(self, step: Step, contents: Mapping[str, bytes] | None) -> None:
        self._try(lambda journal: journal.add(str(self.run), step, contents))

    def write_doings(self) -> None:
        """Write what the run does at this moment, and the words that wait, if that has changed."""
        waiting = [asdict(Doing(WORDS, "", 0.0, text=text)) for text in self.words_waiting.copy()]
        if (doings := [*self.doings.facts(), *waiting]) != self._told:
            self._told = doings
            self._try(lambda journal: journal.tell(str(self.run), doings))

    def take_said(self) -> None:
        """Have what somebody has said in another process wait here."""
        self.words_waiting += self._try(lambda journal: journal.take_said(str(self.run))) or ()

    def close(self, outcome: str, facts: Mapping[str, Any]) -> None:
        """Say how the run ended, also if nothing else could be written any more, so that nobody takes it for killed."""
        is_kept = False
        try:
            self._try(lambda journal: journal.end(str(self.run), outcome, facts))
            is_kept = not self.failure
        finally:
            if self._journal is not None and self.run is not None and not is_kept:
                self._journal.give_room()
                with suppress(JournalError):
                    self._journal.end(self.run, outcome, facts)

    def discard(self) -> None:
        """Remove a run in which nothing was asked."""
        self.close("cancelled", {})
        self._try(lambda journal: journal.remove([str(self.run)]))

    def _try(self, use: Callable[[Journal], T]) -> T | None:
        if self._journal is None or self.failure:
            return None
        try:
            return use(self._journal)
        except JournalError as error:
            if self._journal.required:
                raise
            self.failure = f"{error} The run goes on without it, and cannot be resumed."
            return None
