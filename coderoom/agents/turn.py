"""A turn of a `CodeActAgent`: its limits, and what ends it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from autogen_core import CancellationToken

from coderoom.agents.attempt import Attempt
from coderoom.agents.base import Turn
from coderoom.agents.messages import StopReason

__all__ = ["LimitedTurn", "TurnLimits"]


@dataclass(frozen=True)
class TurnLimits:
    """What a turn may use.

    Attributes:
        steps: The most attempts.
        tokens: The most tokens of its model calls; `None`: unlimited.
        seconds: The most seconds; `None`: unlimited.

    Raises:
        ValueError: A limit is out of range.
    """

    steps: int
    tokens: int | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"max_steps must be 1 or more, not {self.steps!r}.")
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more, or None for no limit, not {self.tokens!r}.")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"max_seconds must be above 0, or None for no limit, not {self.seconds!r}.")


class LimitedTurn(Turn):
    """A turn of a `CodeActAgent`. Create it in a running event loop, and close it at the end.

    Args:
        limits: What it may use.
        cancellation_token: Ends the turn.

    Attributes:
        asked_again: Whether the model was told that code in a reply was not run.
    """

    def __init__(self, limits: TurnLimits, cancellation_token: CancellationToken) -> None:
        super().__init__(CancellationToken())
        self.asked_again = False
        self._limits = limits
        self._outer = cancellation_token
        self._late = False
        cancellation_token.add_callback(self.token.cancel)
        self._timer = (
            None if limits.seconds is None else asyncio.get_running_loop().call_later(limits.seconds, self._time_is_up)
        )

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def known_texts(self) -> list[str]:
        """The code that was run and what it printed."""
        codes = [block.code for attempt in self.attempts for block in attempt.blocks]
        return [*codes, *(attempt.output for attempt in self.attempts)]

    @property
    def whole(self) -> Attempt | None:
        """The last attempt, with all existing files that the turn has created or changed."""
        if not self.attempts:
            return None
        found = {item.name: item for attempt in self.attempts for item in attempt.artifacts if not attempt.undone}
        there = tuple(item for item in found.values() if item.path is None or item.path.exists())
        return replace(self.attempts[-1], artifacts=there)

    @property
    def ran_out_of_time(self) -> bool:
        """Whether the time limit cancelled the turn, and nothing else did."""
        task = asyncio.current_task()
        return self._late and not self._outer.is_cancelled() and (task is None or not task.cancelling())

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further step; `None` if there is one."""
        if self._late:
            return StopReason.MAX_SECONDS
        if not self.attempts:
            return None
        if reason := super().stop_reason:
            return reason
        if len(self.attempts) >= self._limits.steps:
            return StopReason.MAX_STEPS
        if self._limits.tokens is not None and self.tokens >= self._limits.tokens:
            return StopReason.MAX_TOKENS
        return None

    def _time_is_up(self) -> None:
        self._late = True
        self.token.cancel()
