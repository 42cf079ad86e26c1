"""Calls that a cancellation token ends, of model clients above all, and the closing of what nobody else closes.

Used by agents, approvals and executors. AutoGen Studio, for instance, makes a team for each run and does not close it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from weakref import ref

from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage
from autogen_core.tools import Tool
from pydantic import BaseModel, ValidationError

from coderoom._util.autogen import transports_of
from coderoom._util.json_output import output_arguments, parse_tolerantly, request_for_json, send_for_json
from coderoom._util.tasks import call_in_loop, cancel_and_wait, run_uncancellable
from coderoom._util.text import encodable
from coderoom.errors import ModelError

T = TypeVar("T")

_SOON: Final = 0.01
"""The seconds to wait for a chunk that has arrived already."""
_MOST_READY: Final = 100


async def await_with_token(call: Awaitable[T], cancellation_token: CancellationToken) -> T:
    """Wait for `call` and cancel it when the token is cancelled."""
    loop = asyncio.get_running_loop()
    future = asyncio.ensure_future(call)
    if cancellation_token.is_cancelled():
        future.cancel()
    cancellation_token.add_callback(lambda: call_in_loop(loop, future.cancel))
    return await future


async def call_model(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    *,
    stream: bool,
    source: str,
    message_id: str,
    cancellation_token: CancellationToken,
    tools: Sequence[Tool] = (),
) -> AsyncGenerator[ModelClientStreamingChunkEvent | CreateResult, None]:
    """Call a model; yield its chunks, if `stream` is set, and its result last.

    The token ends the call at once, even if the client ignores it. An answer that is not text is a `TypeError`, unless
    the model was offered tools. A stream without anything in it is a `ModelError`: a page of a web server is one.
    """
    more: dict[str, Any] = {"tools": tools} if tools else {}
    await close_with_loop(model_client)
    result: CreateResult | None = None
    if stream:
        async with aclosing(_stream(model_client, messages, cancellation_token, more)) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    result = item
                else:
                    text = encodable(item)
                    yield ModelClientStreamingChunkEvent(content=text, source=source, full_message_id=message_id)
        if result is None:
            raise TypeError(f"{type(model_client).__name__} ended its stream without a result.")
    else:
        result = await await_with_token(
            model_client.create(messages, cancellation_token=cancellation_token, **more), cancellation_token
        )
    if result.finish_reason == "unknown" and not (result.content or result.thought or result.usage.prompt_tokens):
        raise ModelError("The answer was empty, and even its end was missing.")
    if not isinstance(result.content, str):
        if tools:
            yield result
            return
        names = ", ".join(repr(call.name) for call in result.content)
        raise TypeError(
            f"The model called {names} as a tool, but it has no tools and should answer with code in text. Try another "
            "model, or say so in `system_message`."
        )
    thought = None if result.thought is None else encodable(result.thought)
    yield result.model_copy(update={"content": encodable(result.content), "thought": thought})


async def _stream(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    cancellation_token: CancellationToken,
    more: Mapping[str, Any],
) -> AsyncGenerator[str | CreateResult, None]:
    # OpenAI's client counts the tokens of a stream only with this argument, which other clients do not have.
    asks = "include_usage" in inspect.signature(model_client.create_stream).parameters
    more = {**more, "include_usage": True} if asks else more
    # Cancelled by `_hang_up` only.
    own_token = CancellationToken()
    chunks = model_client.create_stream(messages, cancellation_token=own_token, **more)
    finished = False
    try:
        while not finished:
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            try:
                item = await await_with_token(anext(chunks), cancellation_token)
            except StopAsyncIteration:
                finished = True
            else:
                yield item
    finally:
        try:
            if not finished:
                await _hang_up(chunks, own_token)
        finally:
            await chunks.aclose()


async def _hang_up(chunks: AsyncGenerator[str | CreateResult, None], token: CancellationToken) -> None:
    """Make a client close its connection.

    If a stream is closed between two chunks, AutoGen's clients keep the connection open and the service goes on
    writing. They close it only if they are cancelled while waiting for a chunk.
    """
    # Chunks that have arrived already are read, up to a limit.
    for _ in range(_MOST_READY):
        read = asyncio.ensure_future(anext(chunks))
        try:
            await asyncio.wait([read], timeout=_SOON)
            if not read.done():
                token.cancel()
                await asyncio.wait([read], timeout=_SOON)
        finally:
            await cancel_and_wait(read)
        if read.cancelled() or read.exception() is not None:
            return


Open = dict[ref[Any], list[Any]]

_open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], Open]] = {}


async def close_with_loop(model_client: Any) -> None:
    """Close a client's connections when the running event loop ends. The client can still be used in another loop.

    AutoGen's teams do not close clients. Open connections cause warnings when the interpreter ends, and an error when
    the client is used in a second event loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for old in [old for old in _open if old.is_closed()]:
            del _open[old]
        opened: Open = {}
        # Asynchronous generators are closed when a loop ends.
        at_end = _close_at_end(loop, opened)
        _open[loop] = at_end, opened
        await anext(at_end)
    opened = _open[loop][1]
    if ref(model_client) not in opened:
        for dead in [client for client in opened if client() is None]:
            await _close(opened.pop(dead))
        opened[ref(model_client)] = transports_of(model_client)


async def _close_at_end(loop: asyncio.AbstractEventLoop, opened: Open) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        for transports in list(opened.values()):
            await _close(transports)


async def _close(transports: list[Any]) -> None:
    for transport in transports:
        with suppress(Exception):
            await transport.aclose()


Close = Callable[[], Awaitable[None]]

_opened: ContextVar[list[Close] | None] = ContextVar("_opened", default=None)
_requests: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def closing_what_opens() -> AsyncIterator[None]:
    """Close everything that is passed to `at_end_of_run` inside, at the end."""
    opened: list[Close] = []
    _opened.set(opened)
    try:
        yield
    finally:
        await run_uncancellable(_close_all(opened))


def at_end_of_run(close: Close) -> None:
    """Close something at the end of the surrounding run. Does nothing if the run's caller closes its components."""
    opened = _opened.get()
    if opened is not None and close not in opened:
        opened.append(close)


def note_run() -> None:
    """Detect runs of `autogenstudio serve`, which creates a team in the task of each request. Components call this."""
    if "autogenstudio.web.serve" not in sys.modules or _opened.get() is not None:
        return
    try:
        request: asyncio.Task[Any] | None = asyncio.current_task()
    except RuntimeError:  # There is no event loop.
        return
    if request is not None:
        opened: list[Close] = []
        _opened.set(opened)
        request.add_done_callback(lambda _: _close_later(opened))


def _close_later(opened: list[Close]) -> None:
    closing = asyncio.get_running_loop().create_task(_close_all(opened))
    _requests.add(closing)
    closing.add_done_callback(_requests.discard)


async def _close_all(opened: list[Close]) -> None:
    await asyncio.gather(*(close() for close in opened), return_exceptions=True)


DecisionT = TypeVar("DecisionT", bound=BaseModel)

_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""The errors of the OpenAI package, besides `ValueError`, for an answer that it cannot parse."""


@dataclass(frozen=True)
class Answer(Generic[DecisionT]):
    """A model's answer to a structured question: the decision (`None` if it cannot be read), the text and the usage."""

    value: DecisionT | None
    text: str
    usage: RequestUsage | None


async def ask_structured(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    schema: type[DecisionT],
    *,
    source: str,
    cancellation_token: CancellationToken,
) -> Answer[DecisionT]:
    """Ask for a decision, by structured output if the client and its service have it, else by asking for JSON.

    The last message is the question. The value of a malformed answer is `None`; an error of the client is raised.
    """
    describes = not model_client.model_info.get("structured_output")
    in_words = UserMessage(content=request_for_json(schema), source=source)

    async def send(arguments: dict[str, Any], describe: bool) -> CreateResult:
        question = [*messages, in_words] if describe or describes else list(messages)
        create = model_client.create(question, cancellation_token=cancellation_token, **arguments)
        return await await_with_token(create, cancellation_token)

    await close_with_loop(model_client)
    try:
        result = await send_for_json(model_client, output_arguments(model_client, schema), send)
    except Exception as error:
        if isinstance(error, ValidationError) or type(error).__name__ in _UNREADABLE:
            return Answer(None, f"(unreadable: {type(error).__name__})", None)
        raise
    text = encodable(result.content) if isinstance(result.content, str) else ""
    shown = [message.content for message in messages if isinstance(message, UserMessage)]
    texts = [part for content in shown for part in ([content] if isinstance(content, str) else content)]
    return Answer(parse_tolerantly(text, schema, [part for part in texts if isinstance(part, str)]), text, result.usage)
