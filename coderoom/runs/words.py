"""What a person says while a team works: each agent gets it before its next request to a model.

Used by `run_team`. The words wait in the `RunLog`; see `Run.tell`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from autogen_agentchat.messages import TextMessage

from coderoom._util.autogen import current_agent
from coderoom.agents import metadata as keys
from coderoom.runs.run_log import RunLog
from coderoom.runs.story import USER
from coderoom.steps import WORDS, StepObserver


class Hearing(StepObserver):
    """Gives the agents of a team what a person says, for the time of one task.

    Args:
        log: Where words wait, and where those are that a resumed run has got before.
        show: Gets words as a message, once the first agent has got them.
    """

    def __init__(self, log: RunLog, show: Callable[[TextMessage], None]) -> None:
        self._log, self._show = log, show
        self._heard: list[str] = []
        self._next: defaultdict[str, int] = defaultdict(int)  # How many of them each agent has got.

    @property
    def _waiting(self) -> deque[str]:
        return self._log.words_waiting

    def has_words(self) -> bool:
        """Whether words wait, another agent has got some, or a resumed run knows some."""
        return bool(self._waiting) or self._log.words_known > 0 or self._next[current_agent()] < len(self._heard)

    def unheard(self) -> list[str]:
        """The words for this agent: those that others have got, and those that wait."""
        return [*self._heard[self._next[current_agent()] :], *self._waiting]

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Note and show that an agent has got words."""
        if kind != WORDS:
            return
        agent = current_agent()
        new = result[len(self._heard) - self._next[agent] :]
        self._next[agent] += len(result)
        for text in new:
            self._heard.append(text)
            if not known:
                self._waiting.remove(text)
            self._show(TextMessage(content=text, source=USER, metadata={keys.HEARD_BY: agent}))
