"""A run as its page tells it. The server keeps it while the run goes on, so that a change costs what is new."""

from __future__ import annotations

from threading import Lock

from coderoom.runs.journal import EVENT, MESSAGE, Journal, RunEntry, Step
from coderoom.runs.pages.run_requests import RequestsHtml
from coderoom.runs.pages.run_story import StoryHtml
from coderoom.runs.said import undoes


class ToldRun:
    """What is known of a run, and how its page tells it.

    Args:
        entry: The run.
        live: Whether its page comes from a server.

    Attributes:
        lock: For threads that use it.
        story: Its story.
        requests: Its requests to models.
        steps: Its steps, but those that only the story needs.
    """

    def __init__(self, entry: RunEntry, *, live: bool) -> None:
        self.lock = Lock()
        self._live = live
        self._begin(entry)

    def _begin(self, entry: RunEntry) -> None:
        self.story, self.requests = StoryHtml(entry), RequestsHtml(entry, live=self._live)
        self.steps: list[Step] = []
        self._facts = entry.facts
        self._last: Step | None = None

    def catch_up(self, journal: Journal, entry: RunEntry) -> None:
        """Tell what is new, or all again if something has changed that was told."""
        new = list(journal.steps(entry.id, first=self._last.number if self._last else 1))
        if self._last is not None:
            is_as_before = new[:1] == [self._last] and entry.facts == self._facts
            new = new[1:]
            if not is_as_before or (new and not self.story.is_whole) or any(map(undoes, new)):
                self._begin(entry)
                new = list(journal.steps(entry.id))
        if new:
            self.story.add(journal, new)
            self.requests.add(journal, new)
            self.steps += (step for step in new if step.kind not in (MESSAGE, EVENT))
            self._last = new[-1]
