"""Sends requests to a model: within a budget, at a limited rate, with retries and a journal of answers.

Each request is a step, which the journal, the budget and the count of what was used observe. Whatever a model raises
leaves `BudgetedModel` as `Stopped`. Models are AutoGen's model clients, and a service with OpenAI's API.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, TypeAdapter, ValidationError
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from coderoom._util.tasks import cancel_and_wait
from coderoom._util.text import encodable
from coderoom.errors import BudgetExceeded, MissingKeyError, RequestError
from coderoom.generation.cache import Journal
from coderoom.generation.models import Message, Model, Reply, as_data, of_data
from coderoom.generation.solution import GenerationEvent, ModelAsked, StopReason, Usage
from coderoom.judge.guest.values import name_of
from coderoom.models.budgets import Budget, Spending
from coderoom.models.calling import make_ready
from coderoom.models.clients import make_client
from coderoom.models.json_output import send_for_json
from coderoom.models.names import innermost_client, model_name_of
from coderoom.models.rates import RateLimiter
from coderoom.models.services import (
    DEFAULT_MODEL,
    MODEL_VARIABLE,
    NO_KEY,
    OPENAI,
    advice_for,
    client_config,
    is_model_text,
    is_transient,
    said,
    service_of,
)
from coderoom.models.structured import create_in_form, is_unreadable
from coderoom.models.watching import watch_client
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
        self.words = text or reason.words


@dataclass(eq=False)
class BudgetedModel:
    """Sends the requests of one solution to a model, within its budgets; see `AICodeGenerator` for the limits.

    The memory has the replies of earlier, interrupted work; `emit` is called with each event. The `branch_models`
    repair in branches, in turn; without them, `model` does.
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
    branch_models: Sequence[Model] = ()

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.concurrency)
        now = asyncio.get_running_loop().time()
        self._end = None if self.max_seconds is None else now + self.max_seconds
        self._broken: dict[str, Stopped] = {}  # By the names of models.
        self._counted = _Counted()
        # Not validated: the seconds may be none.
        budget = Budget.model_construct(tokens=self.max_tokens, seconds=self.max_seconds)
        spending = Spending(budget, "the generator", counts_known=False)
        spending.reset()
        self._observers = [*([] if self.memory is None else [self.memory]), spending, self._counted]

    @property
    def seconds_left(self) -> float:
        """How many seconds of the time budget are left."""
        return math.inf if self._end is None else self._end - asyncio.get_running_loop().time()

    @property
    def usage(self) -> Usage:
        """What was used."""
        return self._counted.usage

    @property
    def branch_usage(self) -> dict[str, Usage]:
        """What of that other models have used, by their names."""
        return {name: usage for name, usage in self._counted.by_model.items() if name != self.model.name}

    async def ask(
        self,
        step: str,
        function: str,
        messages: Sequence[Message],
        form: type[BaseModel] | None = None,
        model: Model | None = None,
    ) -> Reply:
        """Send a request for a step (`specs`, `tests`, `code` or `repair`), or take the reply from memory.

        A `model` is asked in place of the usual one.

        Raises:
            Stopped: The request failed, or a budget is used up.
        """
        asked = model or self.model

        async def send() -> tuple[Reply, bool]:
            if (broken := self._broken.get(asked.name)) is not None:  # Concurrent work need not fail on its own.
                raise Stopped(StopReason.MODEL_FAILED, str(broken)) from broken
            purpose, started, how = f"{step} of {function}" if function else step, time.monotonic(), "has no answer"
            _log.debug("Model request for %s begins.", purpose)
            noted = _Noted(self.rate_limiter)
            try:
                with observing(noted):
                    reply = await self._send(asked, messages, form, noted)
                how = "is answered"
            finally:
                _log.debug("Model request for %s %s after %.2f s.", purpose, how, time.monotonic() - started)
            return reply, noted.known

        whole = [
            asked.name,
            [[each.role, each.content] for each in messages],
            form.__name__ if form is not None else "",
        ]
        key = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
        request = {"key": key, "priced_as": asked.name}
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

    async def _send(
        self, model: Model, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted
    ) -> Reply:
        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.retries + 1),
            wait=wait_random_exponential(multiplier=0.5, max=30),
            retry=retry_if_result(_may_pass),
            retry_error_callback=lambda state: state.outcome.result(),  # type: ignore[union-attr]
        )
        tried: _Tried = await attempts(self._try_once, model, messages, form, noted)
        reply, found = tried
        if reply is not None:
            return reply
        if issubclass(type(found), BudgetExceeded):
            raise Stopped(StopReason.BUDGET, str(found))
        described = str(name_of(type(found)))
        with suppress(BaseException):  # Its text cannot be made, whatever the client raises there.
            text, advice = f"{described}: {said(found)}".rstrip(": "), advice_for(found)  # type: ignore[arg-type]
            described = encodable(f"{text.rstrip('.')}. {advice}" if advice else text)
        text = f"The model {model.name!r} could not be called: {described}"
        broken = self._broken[model.name] = Stopped(StopReason.MODEL_FAILED, text)
        raise broken from found

    async def _try_once(
        self, model: Model, messages: Sequence[Message], form: type[BaseModel] | None, noted: _Noted
    ) -> _Tried:
        """Send a request; return the reply, or what the model raised. Such an exception may lie about its class.

        The request is a task of its own. If it ends in a `CancelledError` or a `GeneratorExit`, the model raised it: if
        this task is cancelled or closed, waiting for the request raises.
        """

        async def request() -> Reply:
            noted.limit = limit = asyncio.timeout(self.request_timeout)
            try:
                async with limit:
                    if not getattr(model, "is_watched", False):
                        await noted.wait(MODEL, {})
                    return _cleaned(await model.complete(messages, form))
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

    def __init__(self) -> None:
        self.by_model: dict[str, Usage] = {}

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        replayed = known or result["cached"]
        found = {"replayed": 1} if replayed else {"requests": 1, **result["usage"]}
        used, name = Usage(**found), request["priced_as"]
        self.usage += used
        self.by_model[name] = self.by_model.get(name, Usage()) + used


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


_REASONING = re.compile(r"(?:openai/)?(?:o\d|gpt-5)")
_HEADERS_VARIABLE = "CODEROOM_MODEL_HEADERS"


def as_model(client: Any, *, max_answer_tokens: int | None = None) -> Model:
    """Adapt what a caller passes: a `Model`, which has to limit its replies itself, or a model client of AutoGen."""
    if isinstance(client, Model):
        if not isinstance(client.name, str):
            raise RequestError(f"the name of a model is a text, not {client.name!r:.200}")
        if max_answer_tokens is not None:
            raise RequestError("max_answer_tokens= works with a model client of AutoGen or model=; limit your Model.")
        return client
    if isinstance(client, ChatCompletionClient):
        return AutoGenModel(client, max_answer_tokens=max_answer_tokens)
    raise RequestError(f"expected a model client of AutoGen or a coderoom.generation.Model, got {client!r:.200}")


class AutoGenModel:
    """Adapts a model client of AutoGen.

    Args:
        client: The client. It is not closed.
        max_answer_tokens: The most tokens of one reply; `None`: the client's own limit.
    """

    is_watched = True

    def __init__(self, client: ChatCompletionClient, *, max_answer_tokens: int | None = None) -> None:
        self._client = client
        self._limit: dict[str, Any] = {}
        if max_answer_tokens is not None:
            inner = innermost_client(client)
            parameters = inspect.signature(inner.create).parameters
            takes_any = inspect.Parameter.VAR_KEYWORD in (each.kind for each in parameters.values())
            if takes_any or "extra_create_args" in parameters:
                is_ollama = any(kind.__module__.startswith("autogen_ext.models.ollama") for kind in type(inner).__mro__)
                # Reasoning models of OpenAI's API reject the older field, many servers the newer.
                field = "max_completion_tokens" if _REASONING.match(model_name_of(inner)) else "max_tokens"
                self._limit = {"num_predict" if is_ollama else field: max_answer_tokens}
        self.name = model_name_of(client)

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        await make_ready(self._client)
        unwatch = watch_client(self._client)
        try:
            return await self._complete(list(map(_of_autogen, messages)), form)
        except Exception as error:
            if is_unreadable(error):
                return Reply("", complete=False)
            raise
        finally:
            unwatch()

    async def _complete(self, payload: Sequence[LLMMessage], form: type[BaseModel] | None) -> Reply:

        async def create(messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
            if extra := {**arguments.get("extra_create_args", {}), **self._limit}:
                arguments["extra_create_args"] = extra
            return await self._client.create(messages, **arguments)

        async def send(arguments: dict[str, Any], _: bool) -> CreateResult:
            return await create(payload, **arguments)

        if form is None:
            result = await create(payload)
        elif getattr(form, "closed", True):
            result = await create_in_form(self._client, payload, form, source="generator", create=create)
        else:  # A schema cannot say what is asked for; the request does.
            wants_json = bool(self._client.model_info.get("json_output"))
            result = await send_for_json(self._client, {"json_output": True} if wants_json else {}, send)
        text = result.content if isinstance(result.content, str) else ""
        usage = result.usage
        return Reply(text, usage.prompt_tokens, usage.completion_tokens, result.finish_reason != "length")


def _of_autogen(message: Message) -> LLMMessage:
    match message.role:
        case "system":
            return SystemMessage(content=message.content)
        case "user":
            return UserMessage(content=message.content, source="generator")
        case _:
            return AssistantMessage(content=message.content, source="model")


class OpenAIModel:
    """A model behind an endpoint with OpenAI's chat completions API.

    Args:
        name: The model; `None`: the environment variable `CODEROOM_MODEL`, else `gpt-4o`. Without `base_url`, it may
            name a service with OpenAI's API, such as `gemini:NAME`.
        api_key: The key; `None`: the variable `OPENAI_API_KEY`. A server given by `base_url` may need none.
        base_url: The address; `None`: the variable `OPENAI_BASE_URL`, else that of OpenAI.
        headers: Headers for every request; `None`: the JSON object in the variable `CODEROOM_MODEL_HEADERS`.
        timeout: The most seconds that a request may take.
        max_answer_tokens: The most tokens of one reply; `None`: the server's own limit.

    Raises:
        MissingDependencyError: There is no key.
        RequestError: The model's service has another API, or the variable is not a JSON object of strings.
    """

    is_watched = True

    def __init__(
        self,
        name: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        max_answer_tokens: int | None = None,
    ) -> None:
        named = name or os.environ.get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL
        self.name = named.removeprefix("openai:")
        key, address = api_key or os.environ.get("OPENAI_API_KEY"), base_url or os.environ.get("OPENAI_BASE_URL")
        if base_url is None and self.name == named and is_model_text(named):
            service = service_of(named)
            if service is None or service[0].provider != OPENAI:
                made = f"model_client=coderoom.configs.make_model({named!r})"
                raise RequestError(f"the model {named!r} needs a client of its own; give {made}")
            found = client_config(named, os.environ)
            self.name, key, address = found["model"], api_key or found["api_key"], found["base_url"]
        if not key and not address:
            raise MissingKeyError(
                f"The model {self.name!r} needs a key: give api_key=, set OPENAI_API_KEY, or give base_url= of a "
                "server that needs none."
            )
        self._config = {
            "model": self.name,
            "api_key": key or NO_KEY,
            **({"base_url": address} if address else {}),
            "default_headers": _headers(headers),
            "timeout": timeout,
            "max_retries": 0,
            "include_name_in_message": False,
        }
        self._most_tokens = max_answer_tokens
        self._models: dict[asyncio.AbstractEventLoop, AutoGenModel] = {}
        self._lock = threading.Lock()

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        loop = asyncio.get_running_loop()
        with self._lock:  # Connections cannot be used in another event loop.
            if loop not in self._models:
                known = {each: model for each, model in self._models.items() if not each.is_closed()}
                model = AutoGenModel(make_client(OPENAI, self._config), max_answer_tokens=self._most_tokens)
                self._models = {**known, loop: model}
            model = self._models[loop]
        return await model.complete(messages, form)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        with self._lock:
            model = self._models.pop(asyncio.get_running_loop(), None)
        if model is not None:
            await model._client.close()


def _headers(given: Mapping[str, str] | None) -> dict[str, str]:
    text = os.environ.get(_HEADERS_VARIABLE, "").strip()
    if given is not None or not text:
        return dict(given or {})
    try:
        return TypeAdapter(dict[str, str]).validate_json(text)
    except ValidationError:  # It shows the value, which may be a key.
        why = f'{_HEADERS_VARIABLE} must be a JSON object of strings, such as {{"x-api-key": "..."}}.'
    raise RequestError(why)
