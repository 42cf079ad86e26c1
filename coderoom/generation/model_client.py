"""Sends requests to a model: within a budget, at a limited rate, with retries and a journal of answers.

Whatever a model raises leaves this module as `Stopped`. Used by the pipeline.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from coderoom._util.tasks import cancel_and_wait
from coderoom._util.text import encodable
from coderoom.errors import BudgetExceeded
from coderoom.generation.cache import Journal
from coderoom.generation.models import Message, Model, Reply
from coderoom.generation.solution import GenerationEvent, ModelAsked, StopReason, Usage
from coderoom.judge.guest.values import name_of
from coderoom.models.rates import RateLimiter
from coderoom.models.services import advice_for, is_transient, said
from coderoom.steps import MODEL, StepObserver, observing

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
        self._time = asyncio.get_running_loop().time
        self._end = None if self.max_seconds is None else self._time() + self.max_seconds
        self._broken: Stopped | None = None
        self.usage = Usage()

    async def ask(
        self, step: str, function: str, messages: Sequence[Message], form: type[BaseModel] | None = None
    ) -> Reply:
        """Send a request for a step (`specs`, `tests`, `code` or `repair`), or take the reply from memory.

        Raises:
            Stopped: The request failed, or a budget is used up.
        """
        request = _hash(self.model.name, messages, form)
        reply = self.memory.take(request) if self.memory is not None else None
        replayed = reply is not None
        if reply is None:
            purpose, started = f"{step} of {function}" if function else step, time.monotonic()
            _log.debug("Model request for %s begins.", purpose)
            noted = _Noted(self.rate_limiter)
            try:
                with observing(noted):
                    reply = await self._ask(messages, form, noted)
                replayed = noted.known
            finally:
                how = "is answered" if reply is not None else "ended without an answer"
                _log.debug("Model request for %s %s after %.2f s.", purpose, how, time.monotonic() - started)
            if self.memory is not None:
                self.memory.add(request, reply)
        self._count(reply, replayed)
        self.emit(ModelAsked(step, function, reply.prompt_tokens, reply.completion_tokens, replayed))
        return reply

    async def _ask(self, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted) -> Reply:
        async with self._places:
            self._check()
            try:
                async with asyncio.timeout_at(self._end):
                    return await self._ask_again(messages, form, noted)
            except TimeoutError:
                raise Stopped(StopReason.SECONDS) from None

    async def _ask_again(self, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted) -> Reply:
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
                with self.rate_limiter.current() if self.rate_limiter else nullcontext():
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

    def _check(self) -> None:
        if self._broken is not None:  # Concurrent work need not fail with a request of its own.
            raise Stopped(StopReason.MODEL_FAILED, str(self._broken)) from self._broken
        if self.max_tokens is not None and self.usage.total_tokens >= self.max_tokens:
            raise Stopped(StopReason.TOKENS)
        if self._end is not None and self._time() >= self._end:
            raise Stopped(StopReason.SECONDS)

    def _count(self, reply: Reply, replayed: bool) -> None:
        usage = self.usage
        more = {
            "requests": usage.requests + 1,
            "prompt_tokens": usage.prompt_tokens + reply.prompt_tokens,
            "completion_tokens": usage.completion_tokens + reply.completion_tokens,
        }
        self.usage = usage.model_copy(update={"replayed": usage.replayed + 1} if replayed else more)


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
