"""Sends requests to a model: within a budget, at a limited rate, with retries and a journal of answers.

Each request is a step, which the journal, the budget and the count of what was used observe. Whatever a model raises
leaves this module as `Stopped`. Used by the pipeline.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from coderoom._util.tasks import cancel_and_wait
from coderoom._util.text import encodable
from coderoom.errors import BudgetExceeded
from coderoom.generation.cache import Journal
from coderoom.generation.models import Message, Model, Reply, as_data, of_data
from coderoom.generation.solution import GenerationEvent, ModelAsked, StopReason, Usage
from coderoom.judge.guest.values import name_of
from coderoom.models.budgets import Budget, Spending
from coderoom.models.rates import RateLimiter
from coderoom.models.services import advice_for, is_transient, said
from coderoom.steps import MODEL, StepObserver, observing, once

_log = logging.getLogger("coderoom.generation")

_LONGEST = 400_000  # Searching a longer reply for code blocks and JSON would take too long.
_MOST_TOKENS = 10**12
_PATIENCE_SECONDS = 5.0
"""How long a client that ignores its cancellation is waited for."""


class Stopped(Exception):  # noqa: N818 (not an error)
    """No more requests are sent: one has failed, or a budget is used up; if there is more to say, the text does."""

    def __init__(self, reason: StopReason, text: str = "") -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(eq=False)
class BudgetedModel:
    """Sends the requests of one solution to a model, within its budgets; see `AICodeGenerator` for the limits.

    The memory has the replies of earlier, interrupted work; `emit` is called with each event.
    """

    model: Model
    memory: Journal | None
    emit: Callable[[GenerationEvent], None]
    concurrency: int
    rate_limiter: RateLimiter | None
    request_timeout: float | None
    retries: int
    max_tokens: int | None
    max_seconds: float | None

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.concurrency)
        now = asyncio.get_running_loop().time()
        self._end = None if self.max_seconds is None else now + self.max_seconds
        self._broken: Stopped | None = None
        self._counted = _Counted()
        # Not validated: the seconds may be none.
        budget = Budget.model_construct(tokens=self.max_tokens, seconds=self.max_seconds)
        spending = Spending(budget, "the generator", counts_known=False)
        spending.reset()
        self._observers = [*([] if self.memory is None else [self.memory]), spending, self._counted]

    @property
    def usage(self) -> Usage:
        """What was used."""
        return self._counted.usage

    async def ask(
        self, step: str, function: str, messages: Sequence[Message], form: type[BaseModel] | None = None
    ) -> Reply:
        """Send a request for a step (`specs`, `tests`, `code` or `repair`), or take the reply from memory.

        Raises:
            Stopped: The request failed, or a budget is used up.
        """

        async def send() -> tuple[Reply, bool]:
            if self._broken is not None:  # Concurrent work need not fail with a request of its own.
                raise Stopped(StopReason.MODEL_FAILED, str(self._broken)) from self._broken
            purpose, started, how = f"{step} of {function}" if function else step, time.monotonic(), "has no answer"
            _log.debug("Model request for %s begins.", purpose)
            noted = _Noted(self.rate_limiter)
            try:
                with observing(noted):
                    reply = await self._send(messages, form, noted)
                how = "is answered"
            finally:
                _log.debug("Model request for %s %s after %.2f s.", purpose, how, time.monotonic() - started)
            return reply, noted.known

        request = {"key": _hash(self.model.name, messages, form), "priced_as": self.model.name}
        async with self._places:
            try:
                async with asyncio.timeout_at(self._end):
                    # Not those of the context: they observe the requests of the model's client.
                    reply, replayed = await once(MODEL, request, send, _dump, _load, self._observers)
            except BudgetExceeded as error:  # Of other budgets, `send` raises a `Stopped`.
                raise Stopped(StopReason.TOKENS if error.limit == "tokens" else StopReason.SECONDS) from None
            except TimeoutError:
                raise Stopped(StopReason.SECONDS) from None
        self.emit(ModelAsked(step, function, reply.prompt_tokens, reply.completion_tokens, replayed))
        return reply

    async def _send(self, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted) -> Reply:
        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.retries + 1),
            wait=wait_random_exponential(multiplier=0.5, max=30),
            retry=retry_if_result(_may_pass),
            retry_error_callback=lambda state: state.outcome.result(),  # type: ignore[union-attr]
        )
        tried: _Tried = await attempts(self._try_once, messages, form, noted)
        reply, found = tried
        if reply is not None:
            return reply
        if issubclass(type(found), BudgetExceeded):
            raise Stopped(StopReason.BUDGET, str(found))
        text = f"The model {self.model.name!r} could not be called: {_described(found)}"
        self._broken = Stopped(StopReason.MODEL_FAILED, text)
        raise self._broken from found

    async def _try_once(self, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted) -> _Tried:
        """Send a request; return the reply, or what the model raised. Such an exception may lie about its class.

        The request is a task of its own. If it ends in a `CancelledError` or a `GeneratorExit`, the model raised it: if
        this task is cancelled or closed, waiting for the request raises.
        """

        async def request() -> Reply:
            noted.limit = limit = asyncio.timeout(self.request_timeout)
            try:
                async with limit:
                    if not getattr(self.model, "is_watched", False):
                        await noted.wait(MODEL, {})
                    return _cleaned(await self.model.complete(messages, form))
            except TimeoutError as error:
                if limit.expired():
                    raise TimeoutError(f"no reply within {self.request_timeout} s") from error
                raise

        task = asyncio.create_task(request())
        try:
            await asyncio.wait((task,))
        finally:
            await cancel_and_wait(task, _PATIENCE_SECONDS)
        if task.cancelled():
            return None, asyncio.CancelledError("the client cancelled its own request")
        error = task.exception()
        if issubclass(type(error), (KeyboardInterrupt, SystemExit)):
            raise error  # type: ignore[misc]
        return (task.result(), None) if error is None else (None, error)


class _Counted(StepObserver):
    """Counts what was used."""

    usage = Usage()

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        replayed = known or result["cached"]
        found = {"replayed": 1} if replayed else {"requests": 1, **result["usage"]}
        self.usage = Usage(**{name: getattr(self.usage, name) + found.get(name, 0) for name in Usage.model_fields})


def _dump(answered: tuple[Reply, bool]) -> dict[str, Any]:
    return as_data(answered[0], cached=answered[1])


def _load(data: Any) -> tuple[Reply, bool]:
    return of_data(data), True


class _Noted(StepObserver):
    """Notes whether the reply to a request is one of an earlier start of the run, and delays a request that is new."""

    limit: asyncio.Timeout
    known = False

    def __init__(self, limiter: RateLimiter | None) -> None:
        self._limiter = limiter

    async def wait(self, kind: str, request: Any) -> None:
        if self._limiter is None:
            return
        began, end = asyncio.get_running_loop().time(), self.limit.when()
        self.limit.reschedule(None)  # The service has its whole time after the pause.
        await self._limiter.begin()
        self.limit.reschedule(None if end is None else end + asyncio.get_running_loop().time() - began)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        self.known = known


def _cleaned(reply: Reply) -> Reply:
    """The reply with valid fields, whatever a server sent instead of text and numbers."""
    text = reply.text if isinstance(reply.text, str) else ""
    return Reply(
        encodable(text[:_LONGEST]),
        _tokens(reply.prompt_tokens),
        _tokens(reply.completion_tokens),
        bool(reply.complete) and len(text) <= _LONGEST,
    )


def _tokens(count: object) -> int:
    return min(count, _MOST_TOKENS) if type(count) is int and count > 0 else 0


_Tried = tuple[Reply | None, BaseException | None]


def _may_pass(tried: _Tried) -> bool:
    _, found = tried
    try:
        return found is not None and is_transient(found)
    except BaseException:  # Such an exception may do anything.
        return False


def _described(error: Any) -> str:
    name = str(name_of(type(error)))
    try:
        text, advice = f"{name}: {said(error)}".rstrip(": "), advice_for(error)
        return encodable(f"{text.rstrip('.')}. {advice}" if advice else text)
    except BaseException:  # Its text cannot be made, whatever the client raises there.
        return name


def _hash(model: str, messages: Sequence[Message], form: type[BaseModel] | None) -> str:
    request = [model, [[each.role, each.content] for each in messages], form.__name__ if form is not None else ""]
    return hashlib.sha256(json.dumps(request).encode()).hexdigest()
