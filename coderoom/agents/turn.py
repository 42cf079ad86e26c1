"""A turn of a `CodeActAgent`: what has happened in it, what ends it, and the output while code runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autogen_agentchat.messages import BaseChatMessage
from autogen_core import CancellationToken
from autogen_core.models import RequestUsage

from coderoom._util.tasks import cancel_and_wait
from coderoom.agents.attempt import Attempt, StopReason, why_no_more
from coderoom.sandbox import OutputChunk

__all__ = ["Turn", "TurnLimits", "with_output"]


_MOST = 1_000_000
_MOST_AT_ONCE = 100
"""How many pieces are told as they come. Each has a price for whoever shows it: a flood comes in fewer, larger ones."""
_GATHER_SECONDS = 0.05
_NO_MORE = "\n[What the code prints after this is not shown while it runs.]\n"

T = TypeVar("T")


@dataclass(frozen=True)
class TurnLimits:
    """What a turn may use.

    Attributes:
        steps: How many pieces of code it may run.
        tokens: How many tokens its model calls may use; `None`: any number.
        seconds: How long it may take; `None`: any time.

    Raises:
        ValueError: One is out of its range.
    """

    steps: int
    tokens: int | None
    seconds: float | None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"max_steps must be 1 or more, not {self.steps!r}.")
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more, or None for any number, not {self.tokens!r}.")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"max_seconds must be above 0, or None for any time, not {self.seconds!r}.")


class Turn:
    """What has happened in a turn so far. To be made in a running event loop, and closed at the end.

    Args:
        limits: What it may use.
        cancellation_token: Ends the turn.

    Attributes:
        token: What ends its calls: the turn's own token, or its time.
        attempts: The code that was run, in order.
        answer: The message that ends it, once there is one.
        asked_again: Whether the model was told of code in a reply of which nothing was run.
    """

    def __init__(self, limits: TurnLimits, cancellation_token: CancellationToken) -> None:
        self.token = CancellationToken()
        self.attempts: list[Attempt] = []
        self.answer: BaseChatMessage | None = None
        self.asked_again = False
        self._limits = limits
        self._outer = cancellation_token
        self._tokens = 0
        self._late = False
        cancellation_token.add_callback(self.token.cancel)
        self._timer = (
            None if limits.seconds is None else asyncio.get_running_loop().call_later(limits.seconds, self._time_is_up)
        )

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def use(self, usage: RequestUsage) -> None:
        """Count the tokens of a model call."""
        self._tokens += usage.prompt_tokens + usage.completion_tokens

    @property
    def number(self) -> int:
        """The number of the next piece of code, from 1."""
        return len(self.attempts) + 1

    @property
    def last(self) -> Attempt | None:
        """The last piece of code that was run; `None` if none was."""
        return self.attempts[-1] if self.attempts else None

    @property
    def known_texts(self) -> list[str]:
        """The code that was run and what it printed."""
        codes = [block.code for attempt in self.attempts for block in attempt.blocks]
        return [*codes, *(attempt.output for attempt in self.attempts)]

    @property
    def whole(self) -> Attempt | None:
        """The last piece of code, with all files that the turn has made or changed and that are there."""
        if self.last is None:
            return None
        found = {item.name: item for attempt in self.attempts for item in attempt.artifacts if not attempt.undone}
        there = tuple(item for item in found.values() if item.path is None or item.path.exists())
        return replace(self.last, artifacts=there)

    @property
    def ran_out_of_time(self) -> bool:
        """Whether a call of it was cancelled because of the time, and by nobody else."""
        task = asyncio.current_task()
        return self._late and not self._outer.is_cancelled() and (task is None or not task.cancelling())

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further step; `None` if there is one."""
        if self.answer is not None:
            return StopReason.ANSWERED if self.attempts else StopReason.NO_CODE
        if self._late:
            return StopReason.MAX_SECONDS
        if not self.attempts:
            return None
        if reason := why_no_more(self.attempts):
            return reason
        if len(self.attempts) >= self._limits.steps:
            return StopReason.MAX_STEPS
        if self._limits.tokens is not None and self._tokens >= self._limits.tokens:
            return StopReason.MAX_TOKENS
        return None

    def _time_is_up(self) -> None:
        self._late = True
        self.token.cancel()


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run something that tells of output.

    Args:
        run: What to run; it gets the function to tell output to.

    Yields:
        The output, piece by piece, as long as it is not endless, and last what `run` returned.
    """
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    told = 0

    def tell(chunk: OutputChunk) -> None:
        nonlocal told
        if told < _MOST:
            told += len(chunk.text)
            waiting.append(chunk if told < _MOST else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(tell))
    task.add_done_callback(lambda _: news.set())
    pieces = 0
    try:
        while waiting or not task.done():
            if not waiting:
                news.clear()
                await news.wait()
                continue
            pieces += 1
            if pieces > _MOST_AT_ONCE:
                await asyncio.wait([task], timeout=_GATHER_SECONDS)
                while waiting:
                    yield _gathered(waiting)
            else:
                yield waiting.popleft()
        yield await task
    finally:
        await cancel_and_wait(task)


def _gathered(waiting: deque[OutputChunk]) -> OutputChunk:
    """The first piece, together with those behind it that went to the same place."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))
